use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::ProgressBar;
use rigline::Phase;
use rigline::json::{Json, Kind, RawJson};
use rigline_std::host::{Agent, CallContext, CallResult, Outcome, Shutdown};
use semver::{Version, VersionReq};
use serde_json::{Map, Value, json};

use crate::connect::{self, Connection, Failure, ProtocolName};
use crate::peer::{self, Asked, CallArguments, PeerArguments};

/// Call an operation
///
/// Arguments are typed by the operation's schema: `samples=4` is a number where a number is wanted, `channel=3V3` a string. They are
/// checked before anything is sent. Logs go to standard error, outputs to standard output.
///
/// Exit codes: 0 success, 1 the operation failed, 2 usage or bad arguments, 3 the extension could not be talked to, 124 timed out.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    peer: PeerArguments,
    #[command(flatten)]
    more: CallArguments,
    /// The operation, or the tool
    operation: String,
    /// Its arguments, as name=value
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// Its arguments as one JSON object, @FILE, or - for standard input; name=value adds to them
    #[arg(long, value_name = "JSON|@FILE|-", value_parser = connect::json_text)]
    args: Option<String>,
    /// How long the call may take, which must be more than 0s [default: 30s; namel3ss: as the tool is bound, else 10s]
    #[arg(long, value_name = "DURATION", value_parser = connect::time_limit)]
    timeout: Option<Duration>,
    /// The part of the task: setup, verify or cleanup
    #[arg(long, value_parser = phase)]
    phase: Option<Phase>,
    /// A variable of the task, as NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The task's directory [default: this one]
    #[arg(long, value_name = "DIR")]
    workdir: Option<String>,
    /// What the agent under test was asked
    #[arg(long, value_name = "TEXT|@FILE", value_parser = connect::text_of)]
    agent_prompt: Option<String>,
    /// What the agent under test answered
    #[arg(long, value_name = "TEXT|@FILE", value_parser = connect::text_of)]
    agent_output: Option<String>,
    /// Fail with 3 unless the extension's version is in this range, such as ">=1.2"
    #[arg(long, value_name = "RANGE")]
    expect_version: Option<VersionReq>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        connect::run_alone(async move {
            self.more.check(self.peer.protocol)?;
            if self.peer.protocol == ProtocolName::Gevals { self.call().await } else { self.call_peer().await }
        })
    }

    async fn call_peer(self) -> Result<u8, Failure> {
        for (option, is_there) in [
            ("--phase", self.phase.is_some()),
            ("--env", !self.env.is_empty()),
            ("--workdir", self.workdir.is_some()),
            ("--agent-prompt", self.agent_prompt.is_some()),
            ("--agent-output", self.agent_output.is_some()),
            ("--config", self.connection.config.is_some()),
        ] {
            if is_there {
                return Err(Failure::usage(format!("{option} goes with --protocol gevals")));
            }
        }
        let spinner = Spinner::start(self.connection.quiet, format!("{} {}", self.connection.target, self.operation));
        let asked = Asked {
            connection: &self.connection,
            peer: &self.peer,
            more: &self.more,
            operation: &self.operation,
            timeout: self.timeout,
        };
        let (result, code) = if self.peer.protocol == ProtocolName::Amplifier {
            let prepare = |names: &[&str], schema: Option<&Value>, (name, version): (&str, &str)| {
                self.expected(name, version).and_then(|()| self.arguments(names, schema))
            };
            asked.amplifier(prepare).await?
        } else {
            if self.expect_version.is_some() {
                return Err(Failure::usage("--expect-version: a namel3ss tool has no version"));
            }
            // What a tool takes is written in the program that calls it.
            asked.namel3ss(self.arguments(&[&self.operation], Some(&Value::Bool(true)))?).await?
        };
        spinner.bar.finish_and_clear();
        if self.json {
            connect::print(&peer::as_json(&result));
        } else {
            match &result {
                Ok(result) => connect::print(&connect::printable(&peer::as_text(result))),
                Err(fault) => {
                    if let Some(details) = &fault.details {
                        connect::print(&connect::printable(&peer::as_text(&details.to_string())));
                    }
                    let text = format!("{} failed: {}: {}", self.operation, fault.code, fault.message);
                    connect::complain(format_args!("rigline: {}", connect::printable(&text)));
                }
            }
        }
        Ok(code)
    }

    async fn call(self) -> Result<u8, Failure> {
        let spinner = Spinner::start(self.connection.quiet, format!("{} {}", self.connection.target, self.operation));
        let mut options = self.connection.options();
        if let Some(listener) = options.listener.take() {
            let bar = spinner.bar.clone();
            options.listener = Some(std::sync::Arc::new(move |event| bar.suspend(|| listener(event))));
        }
        let host = tokio::select! {
            host = self.connection.open(options) => host?,
            interruption = connect::interrupted() => return Err(interruption),
        };
        let manifest = host.describe();
        let names: Vec<&str> = manifest.operations.iter().map(|operation| operation.name.as_str()).collect();
        let schema = manifest.operation(&self.operation).map(|operation| &operation.params);
        let prepared = self
            .expected(&manifest.name, &manifest.version)
            .and_then(|()| Ok((self.arguments(&names, schema)?, self.context()?)));
        let (args, context) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                let _ = host.shutdown().await;
                return Err(failure);
            }
        };
        let called = tokio::select! {
            called = host.call_json(&self.operation, &args, context) => called,
            interruption = connect::interrupted() => {
                spinner.bar.finish_and_clear();
                // A program may put its hardware into the safe state first. A port or a socket that is closed says as much.
                if let Some(child) = host.child() {
                    child.terminate();
                    let _ = tokio::time::timeout(Duration::from_secs(2), child.ended()).await;
                }
                return Err(interruption);
            }
        };
        spinner.bar.finish_and_clear();
        let result = match called {
            Ok(result) => result,
            Err(error) => {
                // Said before what is there still is ended, which may take a while; what it says to that adds nothing.
                let failure = Failure::of(&error);
                failure.tell();
                let _ = host.shutdown().await;
                return Ok(failure.code);
            }
        };
        connect::print(&if self.json { as_json(&result) } else { connect::printable(&as_text(&result)) });
        if let Some(failure) = result.failure().filter(|_| !self.json) {
            let failure = connect::printable(&failure);
            connect::complain(format_args!("rigline: {} failed: {failure}", self.operation));
        }
        match host.shutdown().await {
            Ok(end) if !end.is_clean() => connect::complain(unclean(&end)),
            Ok(_) => {}
            Err(error) => connect::complain(format_args!("rigline: shutdown: {error}")),
        }
        Ok(code(&result))
    }

    fn expected(&self, name: &str, version: &str) -> Result<(), Failure> {
        let Some(range) = &self.expect_version else { return Ok(()) };
        let no = |why: String| Failure { code: connect::NO_ANSWER, text: format!("{name}: {why}") };
        let version =
            Version::parse(version).map_err(|error| no(format!("its version `{version}` is not semantic: {error}")))?;
        if range.matches(&version) { Ok(()) } else { Err(no(format!("version {version} is not in {range}"))) }
    }

    fn arguments(&self, operations: &[&str], schema: Option<&Value>) -> Result<String, Failure> {
        let Some(params) = schema else {
            let near = nearest(&self.operation, operations).map(|near| format!("; did you mean `{near}`?"));
            return Err(Failure::usage(format!(
                "there is no operation `{}`{}\nthere are: {}",
                self.operation,
                near.unwrap_or_default(),
                operations.join(", ")
            )));
        };
        // Values as JSON text, so that numbers keep their digits.
        let mut args: Map<String, Value> = match self.args.as_deref().map(|text| Json::parse(text.as_bytes())) {
            None => Map::new(),
            Some(Ok(args)) if args.kind() == Kind::Object => {
                args.members().map(|(name, value)| (name.to_string(), value.as_str().into())).collect()
            }
            Some(Ok(_)) => return Err(Failure::usage("--args: expected a JSON object")),
            Some(Err(error)) => return Err(Failure::usage(format!("--args: not JSON: {error}"))),
        };
        let properties = params.get("properties").and_then(Value::as_object);
        let mut given = Vec::new();
        for pair in &self.values {
            let Some((name, text)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                return Err(Failure::usage(format!("`{pair}`: expected NAME=VALUE")));
            };
            if given.contains(&name) {
                return Err(Failure::usage(format!("{}: `{name}` is given more than once", self.operation)));
            }
            given.push(name);
            let schema = properties.and_then(|properties| properties.get(name));
            args.insert(name.to_owned(), typed(text, schema).into());
        }
        let names: Vec<&str> = properties.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        let closed = params.get("additionalProperties") == Some(&Value::Bool(false));
        for name in args.keys().filter(|name| !names.contains(&name.as_str())) {
            // A schema that is open takes any name; one that is nearly a known one is not meant as another.
            let near = nearest(name, &names).filter(|near| !args.contains_key(*near));
            if closed || near.is_some() {
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                let there_are = if names.is_empty() {
                    "it takes none".to_owned()
                } else {
                    format!("there are: {}", names.join(", "))
                };
                return Err(Failure::usage(format!(
                    "{}: there is no argument `{name}`{near}\n{there_are}",
                    self.operation
                )));
            }
            if says_nothing_of_others(params) && !self.connection.quiet {
                connect::complain(format_args!(
                    "rigline: {} knows no argument `{name}`; it is sent all the same",
                    self.operation
                ));
            }
        }
        let members: Vec<String> = args
            .iter()
            .map(|(name, text)| format!("{}:{}", Value::from(name.as_str()), text.as_str().unwrap_or_default()))
            .collect();
        let mut args = format!("{{{}}}", members.join(",")).into_bytes();
        // On one line, as two of the protocols need it.
        let args = RawJson::from_checked(&mut args).unwrap_or(RawJson::NULL).to_string();
        let bad = |error: serde_json::Error| Failure::usage(format!("{}: {error}", self.operation));
        check(&self.operation, params, &serde_json::from_str(&args).map_err(bad)?)?;
        Ok(args)
    }

    fn context(&self) -> Result<CallContext, Failure> {
        let mut context = CallContext {
            phase: self.phase.unwrap_or_default(),
            workdir: self.workdir.clone(),
            timeout: self.timeout,
            ..CallContext::default()
        };
        for pair in &self.env {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(Failure::usage(format!("--env `{pair}`: expected NAME=VALUE")));
            };
            context.env.insert(name.to_owned(), value.to_owned());
        }
        if self.agent_prompt.is_some() || self.agent_output.is_some() {
            context.agent = Some(Agent {
                prompt: self.agent_prompt.clone().unwrap_or_default(),
                output: self.agent_output.clone().unwrap_or_default(),
            });
        }
        Ok(context)
    }
}

fn phase(text: &str) -> Result<Phase, String> {
    match text {
        "setup" => Ok(Phase::Setup),
        "verify" => Ok(Phase::Verify),
        "cleanup" => Ok(Phase::Cleanup),
        _ => Err("expected setup, verify or cleanup".to_owned()),
    }
}

/// A value as its schema wants it, as JSON text: what can be read as what is wanted is that, anything else is a string.
fn typed(text: &str, schema: Option<&Value>) -> String {
    let wants = |name: &str| match schema.and_then(|schema| schema.get("type")) {
        Some(Value::String(wanted)) => wanted == name,
        Some(Value::Array(wanted)) => wanted.iter().any(|wanted| wanted == name),
        _ => false,
    };
    let knows = schema.is_some_and(|schema| schema.get("type").is_some());
    match serde_json::from_str::<Value>(text) {
        Ok(value) => {
            let fits = match &value {
                Value::Null => wants("null"),
                Value::Bool(_) => wants("boolean"),
                Value::Number(_) => wants("number") || wants("integer"),
                Value::String(_) => false,
                Value::Array(_) => wants("array"),
                Value::Object(_) => wants("object"),
            };
            // Without a type to go by, only what cannot be meant as text is taken as JSON.
            if fits || !knows && !value.is_string() { text.trim().to_owned() } else { Value::from(text).to_string() }
        }
        Err(_) => Value::from(text).to_string(),
    }
}

/// Whether a schema lets names pass that it does not have, without having said so.
fn says_nothing_of_others(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
        && ["additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref"]
            .iter()
            .all(|keyword| schema.get(keyword).is_none())
}

/// Checks arguments against a schema, each fault by its argument.
fn check(operation: &str, schema: &Value, args: &Value) -> Result<(), Failure> {
    let validator = jsonschema::validator_for(schema).map_err(|error| Failure {
        code: connect::NO_ANSWER,
        text: format!("{operation}: the extension's own schema is invalid: {error}"),
    })?;
    let faults: Vec<String> = validator
        .iter_errors(args)
        .map(|error| match error.instance_path().to_string().trim_start_matches('/').replace('/', ".") {
            path if path.is_empty() => format!("{operation}: {error}"),
            path => format!("{operation}: {path}: {error}"),
        })
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(Failure::usage(faults.join("\n"))) }
}

fn unclean(end: &Shutdown) -> String {
    let why = match (&end.error, end.killed, end.exit) {
        (Some(error), ..) => format!("shutdown was answered with an error: {error}"),
        (None, true, _) => "it did not end after shutdown, and was killed".to_owned(),
        (None, false, Some(exit)) => exit.to_string(),
        (None, false, None) => "shutdown was not answered".to_owned(),
    };
    format!("rigline: the extension did not end cleanly: {why}")
}

/// The name that was probably meant.
fn nearest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    names
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .filter(|(distance, known)| *distance * 3 <= known.len().max(3))
        .min()
        .map(|(_, known)| known)
}

fn code(result: &CallResult) -> u8 {
    match &result.outcome {
        Outcome::Success => connect::SUCCESS,
        Outcome::Refused(error) => match error.code {
            Some(-32601 | -32602) => connect::USAGE,
            Some(-32001) => connect::TIMED_OUT,
            _ => connect::FAILED,
        },
        Outcome::Invalid(_) => connect::NO_ANSWER,
        _ => connect::FAILED,
    }
}

fn as_json(result: &CallResult) -> String {
    let outputs: Map<String, Value> =
        result.outputs.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect();
    let error_code = match &result.outcome {
        Outcome::Refused(error) => error.code,
        _ => None,
    };
    let text = json!({
        "success": result.is_success(),
        "message": result.message,
        "error": result.failure(),
        "code": error_code,
        "outputs": outputs,
    });
    format!("{text:#}\n")
}

fn as_text(result: &CallResult) -> String {
    let mut text = String::new();
    if let Some(message) = &result.message {
        text.push_str(message);
        text.push('\n');
    }
    if !result.outputs.is_empty() {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        for (name, value) in &result.outputs {
            table.add_row([name, value]);
        }
        text.push_str(&table.to_string());
        text.push('\n');
    }
    text
}

/// A sign of life on a terminal; nothing elsewhere.
struct Spinner {
    bar: ProgressBar,
}

impl Spinner {
    fn start(quiet: bool, what: String) -> Self {
        let bar =
            if quiet || !std::io::stderr().is_terminal() { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
