use std::process::ExitCode;

use rigline::json::{Json, JsonKind};
use rigline_host::choose::Chosen;
use rigline_host::client::{Command, Description, Page};
use rigline_host::coerce::{Draft, Schema, SchemaView, coerce, operation_named};
use rigline_host::target::{Port, Serial, Target};
use rigline_host::{HostError, Manifest, Operation};
use serde_json::{Value, json};

use crate::complete;
use crate::connect::{self, Connection, Failure};
use crate::out::{self, Table};
use crate::protocol::{HasOptions, OwnOptions, PeerArguments};

/// `describe`'s options of single protocols.
#[derive(Debug)]
pub(crate) struct OfDescribe;

impl HasOptions for OfDescribe {
    const COMMAND: Command = Command::Describe;
}

/// Show what an extension is and can do, or one of its operations
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    peer: PeerArguments,
    /// Show only this operation, with an example call
    #[arg(add = complete::operations())]
    operation: Option<String>,
    #[command(flatten)]
    own: OwnOptions<OfDescribe>,
    /// Print the manifest, or the operation, as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// One operation, as `call TARGET OPERATION --help` shows it.
    pub(crate) fn of_operation(connection: Connection, peer: PeerArguments, operation: String, json: bool) -> Self {
        Self { connection, peer, operation: Some(operation), own: OwnOptions::none(), json }
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        connect::run(async move {
            let wanted = self.peer.wanted(&self.connection, &self.own)?;
            let (options, own) = (self.connection.options(), self.own.values.clone());
            let mut chosen = self.peer.client(&self.connection, options, own, wanted).await?;
            let described = chosen.client.describe(self.operation.as_deref(), self.connection.start_timeout).await;
            let described = match PeerArguments::check_carried(&self.connection, &chosen, false) {
                Err(failure) if described.is_ok() => Err(failure),
                _ => described.map_err(Failure::from),
            };
            let Chosen { client, .. } = chosen;
            let shown = match described {
                Ok(Description::Manifest(described)) => self.show(&described.text, &described.manifest),
                Ok(Description::Page(page)) => {
                    self.show_page(page);
                    Ok(())
                }
                Err(failure) => Err(failure),
            };
            let closed = client.close().await.map_err(Failure::from);
            shown.and(closed.map(drop))?;
            Ok(connect::SUCCESS)
        })
    }

    fn show_page(&self, page: Page) {
        if self.json {
            connect::print_json(&indented(&page.json));
            return;
        }
        let mut table = Table::new(page.heads);
        page.rows.into_iter().for_each(|row| table.row(row));
        connect::print(&if table.is_empty() { page.text } else { format!("{}{table}", page.text) });
    }

    /// `text` is the JSON text of all.
    fn show(&self, text: &str, manifest: &Manifest) -> Result<(), Failure> {
        let Some(name) = &self.operation else {
            if self.json {
                connect::print_json(&indented(text));
            } else {
                connect::print(&as_text(manifest));
            }
            return Ok(());
        };
        let names: Vec<&str> = manifest.operations.iter().map(|operation| operation.name.as_str()).collect();
        let name = operation_named(name, &names).map_err(Failure::usage)?;
        let Some(operation) = manifest.operation(name) else {
            return Err(Failure::usage(format!("there is no operation `{name}`")));
        };
        let outputs = outputs(operation);
        let protocol = self.peer.option();
        let example = format!("{}{protocol}", example(&self.connection.target, operation));
        if self.json {
            let value = format!(
                "{{\"operation\":{},\"description\":{},\"params\":{},\"outputs\":{},\"example\":{}}}",
                json!(operation.name),
                json!(operation.description),
                operation.params_text,
                outputs.unwrap_or(Json::NULL).as_str(),
                json!(example)
            );
            connect::print_json(&indented(&value));
        } else {
            let text = describe(operation, outputs);
            connect::print(&format!("{}\nExample:\n  {example}\n", text.trim_start_matches('\n')));
        }
        Ok(())
    }
}

/// Describes the rig that is plugged in, if it is the only one. No byte is written to a port that does not look like ours.
pub(crate) fn the_only_one() -> Result<ExitCode, Failure> {
    match rigline_host::ports::Roots::of_environment().find(&Port::Auto) {
        Ok(port) => {
            connect::print(&format!("{port}\n\n"));
            let connection = Connection::to(Target::Serial(Serial::new(Port::Auto)));
            Arguments {
                connection,
                peer: PeerArguments::default(),
                operation: None,
                own: OwnOptions::none(),
                json: false,
            }
            .run()
        }
        Err(HostError::NoDevice { ports, .. }) => {
            let mut text = "No rig is plugged in.".to_owned();
            if !ports.is_empty() {
                text.push_str(" These serial ports do not look like one:\n");
                for port in &ports {
                    let _ = std::fmt::Write::write_fmt(&mut text, format_args!("  {port}\n"));
                }
            }
            text.push_str(concat!(
                "\nThe built-in one needs no hardware:\n",
                "  rigline describe sim\n",
                "  rigline call sim measure channel=3V3\n",
                "`rigline ports` lists serial ports, `rigline help` the commands.\n",
            ));
            connect::print(&text);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(Failure::usage(error)),
    }
}

fn indented(text: &str) -> String {
    Json::parse(text.as_bytes()).map_or_else(|_| text.to_owned(), out::indented)
}

fn as_text(manifest: &Manifest) -> String {
    use std::fmt::Write as _;

    let mut text = format!("{} {}", manifest.name, manifest.version);
    if !manifest.description.is_empty() {
        let _ = write!(text, ": {}", manifest.description);
    }
    text.push('\n');
    for command in &manifest.requires {
        let found = which::which(command).map_or("NOT FOUND in PATH".to_owned(), |path| path.display().to_string());
        let _ = writeln!(text, "requires {command}: {found}");
    }
    if let (Some(request), Some(reply)) = (manifest.request_limit, manifest.reply_limit) {
        let _ = writeln!(text, "limits: {request} bytes a request, {reply} bytes a reply");
    }
    if manifest.raw["abridged"] == true {
        text.push_str("without descriptions: with them, the manifest is longer than the longest reply\n");
    }
    for fault in &manifest.faults {
        let _ = writeln!(text, "fault in the manifest: {fault}");
    }
    for operation in &manifest.operations {
        text.push_str(&describe(operation, outputs(operation)));
    }
    text
}

/// An operation: its description, its arguments and its outputs.
fn describe(operation: &Operation, outputs: Option<Json<'_>>) -> String {
    let mut text = format!("\n{}", out::word(&operation.name));
    if !operation.description.is_empty() {
        text.push_str(&format!(": {}", operation.description));
    }
    text.push('\n');
    let mut table = Table::new(&["argument", "type", "default", "description"]);
    rows(&SchemaView::of_text(&operation.params_text), "", &mut table, 0);
    if !table.is_empty() {
        text.push_str(&table.to_string());
    }
    if let Some(outputs) = outputs {
        let mut table = Table::new(&["output", "type", "", "description"]);
        rows(&SchemaView::of(outputs), "", &mut table, 0);
        if !table.is_empty() {
            text.push_str(&table.to_string());
        }
    }
    text
}

/// The schema of an operation's outputs, where the extension reports it.
fn outputs(operation: &Operation) -> Option<Json<'_>> {
    let outputs = Json::parse(operation.outputs_text.as_deref()?.as_bytes()).ok()?;
    (outputs.kind() == JsonKind::Object).then_some(outputs)
}

/// How deep objects are shown. A schema may refer to itself.
const DEPTH: usize = 5;
/// How many rows a table has.
const ROWS: usize = 200;

/// A row for each member. The members of an object, and of a list's elements, follow it with the names that `call`
/// accepts.
fn rows(place: &SchemaView<'_>, prefix: &str, table: &mut Table, depth: usize) {
    let required = place.required_names();
    for (name, member) in place.members() {
        if table.len() >= ROWS {
            break;
        }
        let default = match member.keyword("default") {
            Some(default) => default.as_str().to_owned(),
            None if required.contains(name) => "(required)".to_owned(),
            None => String::new(),
        };
        let path = format!("{prefix}{name}");
        table.row([path.as_str(), &member.summary(), &default, &member.description()]);
        if depth < DEPTH {
            rows(&member, &format!("{path}."), table, depth + 1);
            if let Some(elements) = member.elements() {
                rows(&elements, &format!("{path}.0."), table, depth + 1);
            }
        }
    }
}

/// A command line that calls it, with what it requires.
fn example(target: &Target, operation: &Operation) -> String {
    let mut words = vec!["rigline".to_owned(), "call".to_owned(), target.to_string(), operation.name.clone()];
    examples(&SchemaView::of_text(&operation.params_text), "", &mut words, 0);
    out::command_line(&words)
}

fn examples(place: &SchemaView<'_>, prefix: &str, words: &mut Vec<String>, depth: usize) {
    let required = place.required_names();
    for (name, member) in place.members().filter(|(name, _)| required.contains(*name)) {
        let path = format!("{prefix}{name}");
        if depth < DEPTH && words.len() < ROWS && member.names().next().is_some() {
            examples(&member, &format!("{path}."), words, depth + 1);
        } else {
            words.push(format!("{path}={}", value(&member, 0)));
        }
    }
}

/// A value that the schema probably accepts.
fn value(place: &SchemaView<'_>, depth: usize) -> String {
    let given =
        place.keyword("examples").and_then(|examples| examples.elements().next()).or_else(|| place.keyword("example"));
    let given = given.or_else(|| place.keyword("default")).or_else(|| place.values().first().copied());
    if let Some(given) = given {
        return given.text().map_or_else(|| given.as_str().to_owned(), |text| text.to_string());
    }
    match place.types().first().map(|name| &**name) {
        Some("integer" | "number") => number(place),
        Some("boolean") => "true".to_owned(),
        Some("array") => match place.elements() {
            Some(elements) if elements.types() == ["string"] => format!("[{}]", Value::from(value(&elements, depth))),
            Some(elements) if depth < DEPTH && elements.names().next().is_none() => {
                format!("[{}]", value(&elements, depth + 1))
            }
            _ => "[]".to_owned(),
        },
        Some("object") => "{}".to_owned(),
        _ => "TEXT".to_owned(),
    }
}

/// A number within the bounds of a place: 1, or a bound.
fn number(place: &SchemaView<'_>) -> String {
    let bound = |name| place.keyword(name).map(|bound| bound.as_str());
    let bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
    let keywords: Vec<String> = bounds.iter().filter_map(|name| Some(format!("\"{name}\":{}", bound(name)?))).collect();
    let schema = Schema::read(&format!("{{{}}}", keywords.join(",")));
    let mut candidates = ["1"].into_iter().chain(["minimum", "maximum", "multipleOf"].into_iter().filter_map(bound));
    let fits = |text: &&str| coerce(&Draft::json(*text), &schema).checked.mismatches.is_empty();
    candidates.find(fits).unwrap_or("1").to_owned()
}
