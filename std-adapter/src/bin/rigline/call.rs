use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use rigline::Phase;
use rigline_std::host::{Agent, CallContext, CallResult, Outcome, Shutdown};
use rigline_std::record::Recorder;
use rigline_std::target::Target;
use semver::{Version, VersionReq};
use serde_json::{Map, Value, json};

use crate::arguments::{self, Given};
use crate::complete;
use crate::connect::{self, Connection, Failure, ProtocolName};
use crate::describe;
use crate::out::{self, Table};
use crate::peer::{self, Asked, CallArguments, Fault, PeerArguments};
use crate::record::{self, RecordArguments, Values};

/// Call an operation
///
/// The operation's schema decides what a value is: `samples=4` is a number where a number is wanted, `channel=3V3` a string.
/// `place.city=Bonn` sets a member of an object, and `days.0=3` an element of a list. Arguments are checked before anything is sent.
/// Logs go to standard error, outputs to standard output. `rigline call TARGET OPERATION --help` shows one operation.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    peer: PeerArguments,
    #[command(flatten)]
    more: CallArguments,
    #[command(flatten)]
    record: RecordArguments,
    /// The operation, or the tool
    #[arg(add = complete::operations())]
    operation: String,
    /// Its arguments, as name=value
    #[arg(value_name = "NAME=VALUE", add = complete::arguments())]
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
    pub(crate) fn run(mut self) -> ExitCode {
        connect::run_alone(async move {
            let as_json = self.json;
            let failed = |failure: &Failure| {
                let fault = Fault { code: None, message: failure.text.clone(), details: None };
                peer::as_json(&Err(fault))
            };
            let recorder = match self.begin_recording() {
                Ok(recorder) => recorder,
                Err(failure) => {
                    if as_json {
                        connect::print_json(&failed(&failure));
                    }
                    return Err(failure);
                }
            };
            self.connection.recorder.clone_from(&recorder);
            let mut evidence = Evidence::default();
            let mut called = self.any(&mut evidence).await;
            if let Err(failure) = &called {
                let text = failed(failure);
                if as_json {
                    connect::print_json(&text);
                }
                evidence.report = text;
            }
            if let Some(recorder) = recorder {
                let code = called.as_ref().map_or_else(|failure| failure.code, |code| *code);
                let files = [("report.json", evidence.report), ("values.jsonl", evidence.values.into_text())];
                let ended = record::finish(&recorder, &files, code);
                called = called.map(|_| ended);
            }
            called
        })
    }

    fn begin_recording(&self) -> Result<Option<Arc<Recorder>>, Failure> {
        let target = &self.connection.target;
        let has_lines = self.peer.protocol != ProtocolName::Namel3ss && !matches!(target, Target::Http(_));
        if self.record.is_wanted() && !has_lines {
            let text = "--record: what passes over HTTP, and what a program gets that is started for one call, is not recorded";
            return Err(Failure::usage(text));
        }
        self.record.begin(&target.to_string())
    }

    /// What `--help` shows where an operation is named: that operation.
    pub(crate) fn describe(self) -> ExitCode {
        describe::Arguments::of_operation(self.connection, self.peer, self.operation, self.json).run()
    }

    async fn any(self, evidence: &mut Evidence) -> Result<u8, Failure> {
        self.more.check(self.peer.protocol)?;
        if self.peer.protocol == ProtocolName::Gevals {
            self.call(evidence).await
        } else {
            self.call_peer(evidence).await
        }
    }

    async fn call_peer(self, evidence: &mut Evidence) -> Result<u8, Failure> {
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
        evidence.report = peer::as_json(&result);
        if let Ok(result) = &result {
            let value = serde_json::from_str(result).unwrap_or_else(|_| Value::from(result.as_str()));
            evidence.value(&self.operation, "result", value);
        }
        if self.json {
            connect::print_json(&evidence.report);
        } else {
            match &result {
                Ok(result) => connect::print(&peer::as_text(result)),
                Err(fault) => {
                    if let Some(details) = &fault.details {
                        connect::print(&peer::as_text(&details.to_string()));
                    }
                    let code = fault.code.as_deref().unwrap_or_default();
                    out::complain_of_failure(&format!("{} failed: {code}: {}", self.operation, fault.message));
                }
            }
        }
        Ok(code)
    }

    async fn call(self, evidence: &mut Evidence) -> Result<u8, Failure> {
        let spinner = Spinner::start(self.connection.quiet, format!("{} {}", self.connection.target, self.operation));
        let mut options = self.connection.options();
        if let Some(listener) = options.listener.take() {
            let bar = spinner.bar.clone();
            options.listener = Some(Arc::new(move |event| bar.suspend(|| listener(event))));
        }
        let host = tokio::select! {
            host = self.connection.open(options) => host?,
            interruption = connect::interrupted() => return Err(interruption),
        };
        if let Some(recorder) = &self.connection.recorder {
            host.identify(recorder).await;
        }
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
                evidence.report = peer::as_json(&Err(Fault { code: None, message: failure.text, details: None }));
                if self.json {
                    connect::print_json(&evidence.report);
                }
                let _ = host.shutdown().await;
                return Ok(failure.code);
            }
        };
        evidence.report = as_json(&result);
        for (name, value) in &result.outputs {
            evidence.value(&self.operation, name, Value::from(value.as_str()));
        }
        if self.json {
            connect::print_json(&evidence.report);
        } else {
            connect::print(&as_text(&result));
            if let Some(failure) = result.failure() {
                out::complain_of_failure(&format!("{} failed: {failure}", self.operation));
            }
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
        let Some(schema) = schema else { return Err(arguments::no_operation(&self.operation, operations)) };
        let protocol = if self.peer.protocol == ProtocolName::Amplifier { " --protocol amplifier" } else { "" };
        let words =
            ["rigline".to_owned(), "describe".to_owned(), self.connection.target.to_string(), self.operation.clone()];
        let given = Given {
            operation: &self.operation,
            args: self.args.as_deref(),
            values: &self.values,
            is_quiet: self.connection.quiet,
            help: out::command_line(&words) + protocol,
        };
        given.arguments(schema)
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

/// What a recording keeps of the result.
#[derive(Default)]
struct Evidence {
    report: String,
    values: Values,
}

impl Evidence {
    fn value(&mut self, operation: &str, name: &str, value: Value) {
        self.values.add(&json!({ "operation": operation, "output": name, "value": value }));
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

fn unclean(end: &Shutdown) -> String {
    let why = match (&end.error, end.killed, end.exit) {
        (Some(error), ..) => format!("shutdown was answered with an error: {error}"),
        (None, true, _) => "it did not end after shutdown, and was killed".to_owned(),
        (None, false, Some(exit)) => exit.to_string(),
        (None, false, None) => "shutdown was not answered".to_owned(),
    };
    format!("rigline: the extension did not end cleanly: {why}")
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
        let mut table = Table::new(&[]);
        for (name, value) in &result.outputs {
            table.row([name, value]);
        }
        text.push_str(&table.to_string());
    }
    text
}

/// A sign of life on a terminal; nothing elsewhere.
struct Spinner {
    bar: ProgressBar,
}

impl Spinner {
    fn start(quiet: bool, what: String) -> Self {
        let bar = if quiet || !out::has_progress() { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_message(out::word(&what).into_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
