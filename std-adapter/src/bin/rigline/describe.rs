use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use rigline_std::host::{HostError, Manifest, Operation};
use rigline_std::target::{Port, Serial, Target};
use serde_json::{Value, json};

use crate::connect::{self, Connection, Failure, ProtocolName};
use crate::peer::{self, PeerArguments};

/// Show what an extension is and can do
///
/// Exit codes: 0 it answered, 2 usage, 3 it could not be talked to, 124 it did not start in time.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    peer: PeerArguments,
    /// namel3ss: the tool of a service that is asked what it keeps
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Print the manifest as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        connect::run(async move {
            match self.peer.protocol {
                ProtocolName::Amplifier => {
                    let (raw, manifest) = peer::describe_amplifier(&self.connection, &self.peer).await?;
                    connect::print(&if self.json {
                        format!("{raw:#}\n")
                    } else {
                        connect::printable(&as_text(&manifest))
                    });
                    return Ok(connect::SUCCESS);
                }
                ProtocolName::Namel3ss => {
                    let tool = self.tool.as_deref();
                    let text = peer::describe_namel3ss(&self.connection, &self.peer, tool, self.json).await?;
                    connect::print(&text);
                    return Ok(connect::SUCCESS);
                }
                ProtocolName::Gevals => {}
            }
            let host = self.connection.open(self.connection.options()).await?;
            let manifest = host.describe();
            connect::print(&if self.json { as_json(&manifest)? } else { connect::printable(&as_text(&manifest)) });
            host.shutdown().await.map_err(|error| Failure::of(&error))?;
            Ok(connect::SUCCESS)
        })
    }
}

/// Describes the rig that is plugged in, if it is the only one. No byte is written to a port that does not look like ours.
pub(crate) fn the_only_one() -> ExitCode {
    match rigline_std::host::ports::Roots::of_environment().find(&Port::Auto) {
        Ok(port) => {
            connect::print(&format!("{port}\n\n"));
            let connection = Connection::to(Target::Serial(Serial::new(Port::Auto)));
            Arguments { connection, peer: PeerArguments::default(), tool: None, json: false }.run()
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
            ExitCode::SUCCESS
        }
        Err(error) => {
            connect::complain(format_args!("rigline: {error}"));
            ExitCode::from(connect::USAGE)
        }
    }
}

/// The manifest as it came, and which of the commands it requires are there.
fn as_json(manifest: &Manifest) -> Result<String, Failure> {
    let requires: Vec<Value> = manifest
        .requires
        .iter()
        .map(|command| json!({ "command": command, "found": which::which(command).ok() }))
        .collect();
    let described = json!({ "manifest": manifest.raw, "requires": requires, "faults": manifest.faults });
    serde_json::to_string_pretty(&described)
        .map(|text| text + "\n")
        .map_err(|error| Failure { code: connect::FAILED, text: error.to_string() })
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
    for fault in &manifest.faults {
        let _ = writeln!(text, "fault in the manifest: {fault}");
    }
    for operation in &manifest.operations {
        let _ = write!(text, "\n{}", operation.name);
        if !operation.description.is_empty() {
            let _ = write!(text, ": {}", operation.description);
        }
        text.push('\n');
        if let Some(table) = table(operation) {
            let _ = writeln!(text, "{table}");
        }
    }
    text
}

fn table(operation: &Operation) -> Option<Table> {
    let properties = operation.params.get("properties")?.as_object().filter(|properties| !properties.is_empty())?;
    let required = operation.params.get("required").and_then(Value::as_array);
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic).set_header([
        "argument",
        "type",
        "default",
        "description",
    ]);
    for (name, schema) in properties {
        let is_required = required.is_some_and(|names| names.iter().any(|required| required == name));
        let default = match schema.get("default") {
            Some(default) => default.to_string(),
            None if is_required => "(required)".to_owned(),
            None => String::new(),
        };
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        table.add_row([name.clone(), type_of(schema), default, description.to_owned()]);
    }
    Some(table)
}

/// A schema's type in a few words: `integer 1..1000`, `"a" | "b"`.
fn type_of(schema: &Value) -> String {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    let name = match schema.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
        _ => "any".to_owned(),
    };
    match (schema.get("minimum"), schema.get("maximum")) {
        (Some(minimum), Some(maximum)) => format!("{name} {minimum}..{maximum}"),
        (Some(minimum), None) => format!("{name} from {minimum}"),
        (None, Some(maximum)) => format!("{name} up to {maximum}"),
        (None, None) => name,
    }
}
