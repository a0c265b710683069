//! The next step after a command line that clap refuses, as its `tip:`.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use rigline_host::coerce::nearest;
use rigline_host::protocols;
use rigline_host::target::Target;

/// Adds the tip, if there is one. A tip of clap's own about similar names stays.
pub(crate) fn add(error: &mut clap::Error, root: &Command, words: &[OsString]) {
    let words: Vec<String> = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => text(error, ContextKind::InvalidSubcommand).and_then(|name| {
            let has_similar = error.get(ContextKind::SuggestedSubcommand).is_some();
            of_command(root, &words, &name, has_similar)
        }),
        ErrorKind::UnknownArgument if error.get(ContextKind::Suggested).is_some() => {
            text(error, ContextKind::InvalidArg).map(|name| of_argument(root, &words, &name))
        }
        ErrorKind::ValueValidation => text(error, ContextKind::InvalidValue).and_then(|value| of_value(&value)),
        ErrorKind::MissingRequiredArgument => of_missing(error, &words),
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
}

/// A word that is no command.
fn of_command(root: &Command, words: &[String], name: &str, has_similar: bool) -> Option<String> {
    if let Some((first, _)) = name.split_once(char::is_whitespace)
        && root.find_subcommand(first).is_some()
    {
        return Some(format!("the shell passed one word; without the quotes it is: rigline {name}"));
    }
    let inner = root.get_subcommands().find(|outer| outer.find_subcommand(name).is_some());
    if let Some(outer) = inner.filter(|outer| outer.get_name() != "help") {
        return Some(format!("there is `rigline {} {name}`", outer.get_name()));
    }
    if root.get_arguments().any(|argument| argument.get_long() == Some(name)) || name == "version" {
        return Some(format!("there is `rigline --{name}`"));
    }
    if has_similar {
        return None;
    }
    // After `help`, clap looks for none.
    let names: Vec<&str> = root.get_subcommands().map(Command::get_name).collect();
    if let Some(meant) = nearest(name, &names).filter(|meant| *meant != name) {
        return Some(format!("a similar subcommand exists: '{meant}'"));
    }
    match name.parse() {
        Ok(Target::Exec(_)) | Err(_) if words.iter().any(|word| word.contains('=')) => {
            Some(format!("an operation is called by: rigline call TARGET {}", words.join(" ")))
        }
        Ok(Target::Exec(_)) | Err(_) => None,
        Ok(_) => Some(format!("`{name}` is a target; `rigline describe {name}` shows its operations")),
    }
}

/// An option that the command does not have, and to which none is similar. clap's tip is to pass it as a value.
fn of_argument(root: &Command, words: &[String], name: &str) -> String {
    let before = words.iter().zip(words.iter().skip(1)).find(|(_, word)| word.starts_with(name));
    if name.starts_with('-')
        && name.chars().nth(1).is_some_and(|digit| digit.is_ascii_digit())
        && let Some((option, value)) = before.filter(|(option, _)| option.starts_with("--"))
    {
        return format!("`{value}` is below 0, which {option} cannot be");
    }
    let (mut command, mut path) = (root, "rigline".to_owned());
    for word in words {
        let Some(inner) = command.find_subcommand(word) else { break };
        (command, path) = (inner, format!("{path} {}", inner.get_name()));
    }
    match name.strip_prefix("--") {
        Some(argument) if command.get_name() == "call" => {
            format!(
                "an argument of the operation is written without dashes: {argument}=VALUE; `{path} --help` lists the options"
            )
        }
        _ => format!("`{path} --help` lists the options"),
    }
}

/// A value that cannot be used: a target behind the name of a protocol.
fn of_value(value: &str) -> Option<String> {
    let (name, target) = value.split_once(':')?;
    let protocol = protocols::named(name).filter(|protocol| protocol.client.is_some())?;
    target.parse::<Target>().is_ok().then(|| format!("did you mean {target} --protocol {}?", protocol.name))
}

/// Words that a command needs.
fn of_missing(error: &clap::Error, words: &[String]) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_missing = |name: &str| missing.iter().any(|missing| missing == name);
    if is_missing("<TARGET>") {
        return Some("`rigline targets` explains targets; the built-in rig is the target sim".to_owned());
    }
    let target = words.iter().skip(1).find(|word| !word.starts_with('-'));
    let target = target.filter(|_| is_missing("<OPERATION>"))?;
    Some(format!("`rigline describe {target}` lists the operations"))
}

/// A word that the error is about.
fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}
