//! The list of commands in `rigline --help`, in groups.

use clap::Command;
use clap::builder::StyledStr;

/// Headings with their commands, in the order of the help. Every other command is hidden.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Use an extension", &["describe", "call", "check"]),
    ("Write one", &["new"]),
    ("Serve it to hosts", &["serve", "install", "web"]),
    ("Test hardware", &["eval"]),
    ("Look at ports and traffic", &["ports", "monitor", "replay"]),
    ("Share rigs", &["lock", "lab"]),
    ("Get help", &["help", "completions"]),
];

const TEMPLATE: &str = "{about}\n\n{usage-heading} {usage}\n";

/// Adds the list of commands to the root's help, as wide as the rest of it.
pub(crate) fn in_groups(command: Command, columns: Option<usize>) -> Command {
    let list = list(&command, columns);
    let header = *command.get_styles().get_header();
    let rest = format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(StyledStr::from(format!("{TEMPLATE}{list}{rest}")))
}

/// The list as clap lays it out, with a heading before the first command of each group.
fn list(command: &Command, columns: Option<usize>) -> String {
    let mut listed = Command::new("rigline").disable_help_flag(true).help_template("{subcommands}");
    if let Some(columns) = columns {
        listed = listed.term_width(columns);
    }
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    for (place, name) in names.enumerate() {
        let about = match *name {
            "help" => Some(StyledStr::from("Print the help of a command")),
            name => command.find_subcommand(name).and_then(Command::get_about).cloned(),
        };
        listed = listed.subcommand(Command::new(*name).about(about.unwrap_or_default()).display_order(place));
    }
    let header = *command.get_styles().get_header();
    let help = listed.disable_help_subcommand(true).render_help();
    let (plain, styled) = (help.to_string(), help.ansi().to_string());
    let mut text = String::new();
    for (line, styled) in plain.lines().zip(styled.lines()) {
        let name = line.split_whitespace().next().filter(|_| line.starts_with("  ") && !line.starts_with("   "));
        let begun = GROUPS.iter().find(|(_, names)| names.first().copied() == name);
        if let Some((heading, _)) = begun {
            text += &format!("\n{header}{heading}:{header:#}\n");
        }
        text += styled;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::GROUPS;

    /// A command that is in no group is hidden, and one that is in a group is not.
    #[test]
    fn every_visible_command_is_in_one_group() {
        let root = crate::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let count = grouped.len();
        grouped.sort_unstable();
        grouped.dedup();
        assert_eq!(grouped.len(), count);
        let visible = root.get_subcommands().filter(|command| !command.is_hide_set());
        let mut visible: Vec<&str> = visible.map(clap::Command::get_name).chain(["help"]).collect();
        visible.sort_unstable();
        assert_eq!(visible, grouped);
        assert!(count <= 15, "{count}");
    }
}
