//! `call` and `describe` by Amplifier's protocol and by namel3ss's.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rigline::json::{Json, Kind};
use rigline::manifest::Guarantee;
use rigline_std::amplifier::{self, CallError, EventLog, HttpError, ModuleError};
use rigline_std::host;
use rigline_std::http::Token;
use rigline_std::namel3ss::{self, Project, RunError, Runner, ToolCall};
use rigline_std::target::{Exec, Target};
use serde_json::{Value, json};

use crate::connect::{self, Connection, Failure, ProtocolName};
use crate::files;
use crate::out::{self, Table};

/// How a peer that does not speak gevals is reached.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct PeerArguments {
    /// What it speaks. A namel3ss target may also be the folder of a project, whose tools.yaml, packs and settings then count
    #[arg(long, value_enum, default_value = "gevals")]
    pub(crate) protocol: ProtocolName,
    /// Over HTTP, send the bearer token that stands in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl PeerArguments {
    pub(crate) fn token(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let failed = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
        Token::from_file(path).map_err(failed)?;
        Ok(Some(files::read(path).map_err(failed)?.trim().to_owned()))
    }

    /// A host of an Amplifier module.
    pub(crate) fn amplifier(&self, connection: &Connection) -> Result<amplifier::Host, Failure> {
        let host = amplifier::Host::new(&connection.target, &connection.options());
        let host = host.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(match self.token()? {
            Some(token) => host.with_token(&token),
            None => host,
        })
    }

    /// A host of namel3ss tools.
    pub(crate) fn namel3ss(&self, connection: &Connection) -> Result<namel3ss::Host, Failure> {
        let mut host = match &connection.target {
            Target::Exec(Exec { program, args }) if args.is_empty() && Path::new(program).is_dir() => {
                let root = std::fs::canonicalize(program).unwrap_or_else(|_| program.into());
                let project = Project::load(&root, &[]).map_err(|error| Failure::usage(error.to_string()))?;
                namel3ss::Host::new(project)
            }
            target => match namel3ss::Host::of_target(target) {
                Some(host) => host,
                None => {
                    // A process for each call is what the protocol has; this one goes to the device.
                    let this = rigline_std::process::this().map_err(|error| Failure::usage(error.to_string()))?;
                    let words = ["bridge", &target.to_string(), "--protocol", "namel3ss"].map(str::to_owned);
                    let bridge = Exec { program: this.to_string_lossy().into_owned(), args: words.to_vec() };
                    let mut host = namel3ss::Host::of_target(&Target::Exec(bridge))
                        .ok_or_else(|| Failure::usage(format!("{target}: no namel3ss tool can be there")))?;
                    host.is_bridge = true;
                    host
                }
            },
        };
        host.token = self.token()?;
        Ok(host)
    }
}

/// The shape of a trace record.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TraceFormat {
    /// As the protocol's text has it
    Text,
    /// As namel3ss keeps it in .namel3ss/run/last.json
    Namel3ss,
}

/// What only one of these protocols has.
#[derive(Debug, clap::Args)]
pub(crate) struct CallArguments {
    /// Amplifier: the session that the call belongs to
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Amplifier: add the events of the call to this file, as JSON lines: `module:invoke`, and `policy:decision` if it is forbidden
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// namel3ss: add the trace record of the call to this file, as a JSON line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// namel3ss: the shape of the trace record: the text's, or that of the real program's own records
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text", requires = "trace")]
    trace_format: TraceFormat,
    /// namel3ss: a service must say first which guarantees it enforces
    #[arg(long)]
    handshake: bool,
    /// namel3ss: a guarantee that the tool must keep, such as `no_network`; may be repeated
    #[arg(long, value_name = "GUARANTEE", value_parser = guarantee)]
    require: Vec<Guarantee>,
}

impl CallArguments {
    /// That nothing is asked for which the protocol does not have.
    pub(crate) fn check(&self, protocol: ProtocolName) -> Result<(), Failure> {
        let amplifier = [("--session", self.session.is_some()), ("--events", self.events.is_some())];
        let namel3ss = [
            ("--trace", self.trace.is_some()),
            ("--handshake", self.handshake),
            ("--require", !self.require.is_empty()),
        ];
        for (own, name, options) in [
            (ProtocolName::Amplifier, "amplifier", &amplifier[..]),
            (ProtocolName::Namel3ss, "namel3ss", &namel3ss[..]),
        ] {
            if let Some((option, _)) = options.iter().find(|(_, is_there)| *is_there && own != protocol) {
                return Err(Failure::usage(format!("{option} goes with --protocol {name}")));
            }
        }
        Ok(())
    }
}

fn guarantee(text: &str) -> Result<Guarantee, String> {
    let names = || Guarantee::ALL.map(Guarantee::name).join(", ");
    Guarantee::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| format!("there are: {}", names()))
}

/// What `call` says and a peer is asked.
pub(crate) struct Asked<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) peer: &'a PeerArguments,
    pub(crate) more: &'a CallArguments,
    pub(crate) operation: &'a str,
    pub(crate) timeout: Option<Duration>,
}

/// The result's JSON text, or what went wrong, and the exit code.
pub(crate) type Told = (Result<String, Fault>, u8);

/// A failure that the peer tells of.
pub(crate) struct Fault {
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    /// What else it says: an object.
    pub(crate) details: Option<Value>,
}

impl Asked<'_> {
    /// Calls an Amplifier module. `args` gets the names of its operations, the schema of this one, if it is one of them, and the
    /// module's name and version.
    pub(crate) async fn amplifier(
        &self,
        args: impl FnOnce(&[&str], Option<&Value>, (&str, &str)) -> Result<String, Failure>,
    ) -> Result<Told, Failure> {
        let mut host = self.peer.amplifier(self.connection)?;
        let events = self.more.events.as_deref().map(Recording::append).transpose()?;
        host.events = events.clone().map(|events| Arc::new(EventLog::new(events)));
        host.session_id.clone_from(&self.more.session);
        host.timeout = self.connection.start_timeout;
        let described = host.describe().await;
        let description = match described {
            Ok(description) => description,
            Err(error) => {
                host.close().await;
                return Err(failure_of(&error));
            }
        };
        host.timeout = self.timeout.unwrap_or(rigline::protocol::amplifier::TIMEOUT);
        let names: Vec<&str> = description.capabilities.iter().map(String::as_str).collect();
        let any = Value::Bool(true);
        let is_known = names.contains(&self.operation);
        let schema = is_known.then(|| description.inputs.get(self.operation).unwrap_or(&any));
        let args = match args(&names, schema, (&description.name, &description.version)) {
            Ok(args) => args,
            Err(failure) => {
                host.close().await;
                return Err(failure);
            }
        };
        let invoked = tokio::select! {
            invoked = host.invoke(self.operation, &args) => invoked,
            interruption = connect::interrupted() => {
                host.cancel().await;
                return Err(interruption);
            }
        };
        let told = match invoked {
            Ok(Ok(result)) => Ok((Ok(result), connect::SUCCESS)),
            Ok(Err(ModuleError { code, message, details })) => {
                let exit = match code.as_str() {
                    "unsupported_op" | "bad_request" => connect::USAGE,
                    "timeout" => connect::TIMED_OUT,
                    _ => connect::FAILED,
                };
                Ok((Err(Fault { code: Some(code), message, details: details.map(Value::Object) }), exit))
            }
            Err(error) => Err(failure_of(&error)),
        };
        host.close().await;
        let is_written = events.is_none_or(|events| events.is_written("--events"));
        told.map(|(result, code)| (result, if is_written { code } else { code.max(connect::FAILED) }))
    }

    /// Calls a namel3ss tool.
    pub(crate) async fn namel3ss(&self, payload: String) -> Result<Told, Failure> {
        let mut host = self.peer.namel3ss(self.connection)?;
        if self.more.handshake {
            host.project.settings.python_tools.service_handshake_required = Some(true);
        }
        if !self.more.require.is_empty() {
            let required = host.project.settings.capability_overrides.entry(self.operation.to_owned()).or_default();
            required.extend(self.more.require.iter().map(|guarantee| (guarantee.name().to_owned(), true.into())));
            // The local runner keeps guarantees in its sandbox only; a native program answers for itself.
            if let Some(binding) = &mut host.project.fallback {
                binding.sandbox = Some(true);
            }
        }
        // Before the call, so that what cannot be written is told before anything runs.
        let traces = self.more.trace.as_deref().map(Recording::append).transpose()?;
        let call = ToolCall {
            tool: self.operation.to_owned(),
            payload: payload.clone(),
            timeout: self.timeout,
            ..ToolCall::default()
        };
        let (result, trace) = tokio::select! {
            called = host.call(&call) => called,
            interruption = connect::interrupted() => return Err(interruption),
        };
        let mut least = connect::SUCCESS;
        if let Some(mut file) = traces {
            let output = result.as_ref().ok().and_then(|called| called.result.as_deref().ok());
            let line = match self.more.trace_format {
                TraceFormat::Text => trace.to_line(),
                TraceFormat::Namel3ss => trace.to_namel3ss_line(&payload, output),
            };
            let _ = file.write_all(line.as_bytes());
            if !file.is_written("--trace") {
                least = connect::FAILED;
            }
        }
        match result {
            Ok(called) => {
                if self.connection.verbose && !called.stderr.is_empty() {
                    connect::complain(called.stderr.trim_end());
                }
                Ok(match called.result {
                    Ok(result) => (Ok(result), least),
                    Err(error) => {
                        let exit = match error.error_type.as_str() {
                            // A ValueError may be the tool's own: it ran.
                            "UnknownTool" | "ProtocolError" => connect::USAGE,
                            "TimeoutError" => connect::TIMED_OUT,
                            _ => connect::FAILED,
                        };
                        let details = error.reason_code.map(|reason| json!({ "reason_code": reason }));
                        (Err(Fault { code: Some(error.error_type), message: error.message, details }), exit)
                    }
                })
            }
            Err(error) => {
                let code = match &error {
                    RunError::Timeout { .. } | RunError::Service { source: HttpError::Timeout { .. }, .. } => {
                        connect::TIMED_OUT
                    }
                    RunError::UnknownTool { .. }
                    | RunError::UnavailablePack { .. }
                    | RunError::BuiltIn { .. }
                    | RunError::Binding(_) => connect::USAGE,
                    RunError::Device { code, .. } => *code,
                    _ => connect::NO_ANSWER,
                };
                Err(Failure { code, text: error.to_string() })
            }
        }
    }
}

/// A file that a call's record is added to. Its own failure does not take the call's result with it.
#[derive(Clone)]
struct Recording {
    file: Arc<File>,
    fault: Arc<Mutex<Option<io::Error>>>,
}

impl Recording {
    fn append(path: &Path) -> Result<Self, Failure> {
        Ok(Self { file: Arc::new(files::append(path)?), fault: Arc::default() })
    }

    /// Whether all of it was written; complains if not.
    fn is_written(&self, option: &str) -> bool {
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = &fault {
            connect::complain(format_args!("rigline: {option}: cannot be written: {error}"));
        }
        fault.is_none()
    }
}

impl Write for Recording {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = (&*self.file).write_all(bytes) {
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn failure_of(error: &CallError) -> Failure {
    if let CallError::Connect(error) = error {
        return Failure::of(error);
    }
    let is_timeout = matches!(error, CallError::Timeout { .. } | CallError::Http(HttpError::Timeout { .. }));
    let code = if is_timeout { connect::TIMED_OUT } else { connect::NO_ANSWER };
    Failure { code, text: error.to_string() }
}

/// What came of a call as JSON, in the shape that every protocol's has; outputs as they came, digits and all.
pub(crate) fn as_json(result: &Result<String, Fault>) -> String {
    let message = |text: &str| {
        let message = Json::parse(text.as_bytes()).ok()?.get("message")?.text()?.to_string();
        Some(Value::from(message))
    };
    let (message, error, code, outputs) = match result {
        Ok(text) => (message(text).unwrap_or_default(), Value::Null, Value::Null, text.clone()),
        Err(fault) => {
            let details = fault.details.as_ref().map_or("{}".into(), Value::to_string);
            (Value::Null, fault.message.as_str().into(), fault.code.as_deref().into(), details)
        }
    };
    format!(
        "{{\n  \"success\": {},\n  \"message\": {message},\n  \"error\": {error},\n  \"code\": {code},\n  \"outputs\": {outputs}\n}}\n",
        result.is_ok()
    )
}

/// A result for people: its message, and a table of the rest.
pub(crate) fn as_text(result: &str) -> String {
    let json = Json::parse(result.as_bytes()).unwrap_or(Json::NULL);
    let plain = |value: Json<'_>| value.text().map_or_else(|| value.as_str().to_owned(), |text| text.to_string());
    if json.kind() != Kind::Object {
        return if json.is_null() { String::new() } else { plain(json) + "\n" };
    }
    let mut text = String::new();
    let mut table = Table::new(&[]);
    for (name, value) in json.members() {
        match value.text() {
            Some(message) if name == "message" => text = format!("{message}\n"),
            _ => table.row([name.to_string(), plain(value)]),
        }
    }
    if !table.is_empty() {
        text.push_str(&table.to_string());
    }
    text
}

/// What an Amplifier module says about itself, as it came, and as a gevals manifest.
pub(crate) async fn describe_amplifier(
    connection: &Connection,
    peer: &PeerArguments,
) -> Result<(String, host::Manifest), Failure> {
    let mut host = peer.amplifier(connection)?;
    host.timeout = connection.start_timeout;
    let described = host.describe_as_text().await;
    host.close().await;
    let (description, text) = described.map_err(|error| failure_of(&error))?;
    let json = Json::parse(text.as_bytes()).unwrap_or(Json::NULL);
    let schema =
        |kind: &str, name: &str| json.get(kind).and_then(|schemas| schemas.get(name)).map(|json| json.as_str());
    let operations: Vec<String> = description
        .capabilities
        .iter()
        .map(|name| {
            let params = schema("inputs", name).unwrap_or("true");
            let outputs = schema("outputs", name).unwrap_or("null");
            format!("{}:{{\"params\":{params},\"outputs\":{outputs}}}", json!(name))
        })
        .collect();
    let kind = json!(description.kind);
    let about = format!("an Amplifier module of the kind {}", kind.as_str().unwrap_or_default());
    let manifest = host::Manifest::read(&format!(
        "{{\"name\":{},\"version\":{},\"protocolVersion\":\"1\",\"description\":{},\"operations\":{{{}}}}}",
        json!(description.name),
        json!(description.version),
        json!(about),
        operations.join(",")
    ));
    let manifest = manifest.map_err(|text| Failure { code: connect::NO_ANSWER, text })?;
    Ok((text, manifest))
}

/// What there is to know of namel3ss tools: a project's tools, or what a service says when hands are shaken.
pub(crate) async fn describe_namel3ss(
    connection: &Connection,
    peer: &PeerArguments,
    tool: Option<&str>,
    as_json: bool,
) -> Result<String, Failure> {
    let host = peer.namel3ss(connection)?;
    if host.project.fallback.is_none() {
        return Ok(tools(&host.project, as_json));
    }
    let none = || {
        Failure::usage(
            "a namel3ss program does not say what it is: name a service, with --tool, or the folder of a project",
        )
    };
    let Some(tool) = tool else { return Err(none()) };
    let request = json!({
        "protocol_version": rigline::protocol::namel3ss::VERSION,
        "tool_name": tool,
        "runner": "service",
        "required_guarantees": {},
    });
    let answer = host.raw_handshake(&request.to_string()).await.ok_or_else(none)?;
    let answer = answer.map_err(|error| Failure { code: connect::NO_ANSWER, text: error.to_string() })?;
    let bad = |error: serde_json::Error| Failure { code: connect::NO_ANSWER, text: format!("the handshake: {error}") };
    let value: Value = serde_json::from_str(&answer).map_err(bad)?;
    if value["ok"] == false {
        let why = value["error"]["message"].as_str().unwrap_or("the service refuses the handshake");
        return Err(Failure { code: connect::FAILED, text: why.to_owned() });
    }
    if as_json {
        return Ok(Json::parse(answer.as_bytes()).map_or_else(|_| answer.clone(), out::indented));
    }
    let mut text = format!("{tool} {}\n", value["service_version"].as_str().unwrap_or("of no version"));
    text.push_str(&format!("enforcement: {}\n", value["enforcement"].as_str().unwrap_or("none")));
    for (name, kept) in value["supported_guarantees"].as_object().into_iter().flatten() {
        text.push_str(&format!("{name}: {kept}\n"));
    }
    Ok(text)
}

fn tools(project: &Project, as_json: bool) -> String {
    let own = project.bindings.tools.keys();
    let names = project.packs.iter().flat_map(|(_, pack)| pack.entrypoints.keys()).chain(own);
    let resolved: Vec<_> = names.filter_map(|name| project.resolve(name)).collect();
    if as_json {
        let tools: Vec<Value> = resolved
            .iter()
            .map(|tool| {
                json!({
                    "tool": tool.tool,
                    "kind": tool.binding.kind,
                    "entry": tool.binding.entry,
                    "runner": tool.runner.name(),
                    "resolved_source": tool.source.name(),
                    "pack_id": tool.pack.map(|pack| &pack.id),
                })
            })
            .collect();
        return format!("{:#}\n", json!({ "app_root": project.app_root, "tools": tools }));
    }
    let mut table = Table::new(&["tool", "runner", "from", "runs"]);
    for tool in resolved {
        let runs = match tool.runner {
            Runner::Service => tool.binding.url.clone(),
            Runner::Container => tool.binding.image.clone(),
            _ => None,
        };
        let from = tool.pack.map_or_else(|| tool.source.name().to_owned(), |pack| format!("pack {}", pack.id));
        let runs = runs.unwrap_or_else(|| tool.binding.entry.clone());
        table.row([tool.tool.to_owned(), tool.runner.name().to_owned(), from, runs]);
    }
    format!("{}\n{table}", project.app_root.display())
}
