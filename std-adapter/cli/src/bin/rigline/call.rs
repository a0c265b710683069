use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use rigline::FailureKind;
use rigline::json::{Json, JsonKind};
use rigline_host::choose::Chosen;
use rigline_host::client::{self, CallFailure, CallOutcome, CallRequest, Command, Described, Description};
use rigline_host::coerce::{Schema, operation_named};
use rigline_host::protocol::Protocol;
use rigline_host::record::Recorder;
use rigline_host::target::Target;
use semver::{Version, VersionReq};
use serde_json::Value;

use crate::arguments::Given;
use crate::complete;
use crate::connect::{self, Connection, Failure};
use crate::describe;
use crate::out::{self, Table};
use crate::protocol::{HasOptions, OwnOptions, PeerArguments};
use crate::record::{self, RecordArguments};

/// `call`'s options of single protocols.
#[derive(Debug)]
pub(crate) struct OfCall;

impl HasOptions for OfCall {
    const COMMAND: Command = Command::Call;
}

/// Call an operation
///
/// The operation's schema determines the type of each value: `samples=4` is a number if the schema requires a number, and `channel=3V3`
/// is a string. `place.city=Bonn` sets a member of an object, and `days.0=3` an element of a list. Arguments are checked before anything
/// is sent. Logs go to standard error, outputs to standard output. `rigline call TARGET OPERATION --help` shows one operation.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    peer: PeerArguments,
    #[command(flatten)]
    own: OwnOptions<OfCall>,
    #[command(flatten)]
    record: RecordArguments,
    /// The operation, or the tool
    #[arg(add = complete::operations())]
    operation: String,
    /// The arguments, as name=value
    #[arg(value_name = "NAME=VALUE", add = complete::arguments())]
    values: Vec<String>,
    /// The arguments as one JSON object, @FILE, or - for standard input; name=value adds to them
    #[arg(long, value_name = "JSON|@FILE|-", value_parser = connect::json_text)]
    args: Option<String>,
    /// How long the call may take, more than 0s [default: 30s; namel3ss: the time limit of the tool's binding, or 10s]
    #[arg(long, value_name = "DURATION", value_parser = connect::time_limit)]
    timeout: Option<Duration>,
    /// Fail with 3 unless the extension's version is in this range, such as ">=1.2"
    #[arg(long, value_name = "RANGE")]
    expect_version: Option<VersionReq>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        connect::run_alone(async move {
            let as_json = self.json;
            let mut evidence = Evidence::default();
            let mut called = match self.begin_recording() {
                Ok(recorder) => {
                    self.connection.recorder.clone_from(&recorder);
                    evidence.recorder = recorder;
                    self.call(&mut evidence).await
                }
                Err(failure) => Err(failure),
            };
            if let Err(failure) = &called {
                evidence.report = as_json_of_failure(failure);
                if as_json {
                    connect::print_json(&evidence.report);
                }
            }
            if let Some(recorder) = evidence.recorder {
                let code = called.as_ref().map_or_else(|failure| failure.code, |code| *code);
                let files = [("report.json", evidence.report), ("values.jsonl", evidence.values)];
                let ended = record::finish(&recorder, &files, code);
                called = called.map(|_| ended);
            }
            called
        })
    }

    fn begin_recording(&self) -> Result<Option<Arc<Recorder>>, Failure> {
        let target = &self.connection.target;
        let is_single_document = self.peer.protocol.is_some_and(|protocol| protocol.is_single_document);
        let has_session = !is_single_document && !matches!(target, Target::Http(_));
        if self.record.is_wanted() && !has_session {
            let text = "--record: what passes over HTTP, and what a program gets that is started for one call, is not recorded";
            return Err(Failure::usage(text));
        }
        self.record.begin(&target.to_string())
    }

    /// Prints the help for a named operation: that operation.
    pub(crate) fn describe(self) -> Result<ExitCode, Failure> {
        describe::Arguments::of_operation(self.connection, self.peer, self.operation, self.json).run()
    }

    async fn call(mut self, evidence: &mut Evidence) -> Result<u8, Failure> {
        let wanted = self.peer.wanted(&self.connection, &self.own)?;
        if let Some(protocol) = wanted {
            self.can_expect(protocol)?;
        }
        let spinner = Spinner::start(self.connection.quiet, format!("{} {}", self.connection.target, self.operation));
        let mut options = self.connection.options();
        if let Some(listener) = options.listener.take() {
            let bar = spinner.bar.clone();
            options.listener = Some(Arc::new(move |event| bar.suspend(|| listener(event))));
        }
        let own = std::mem::take(&mut self.own.values);
        // Made once: a signal between two steps must not be lost.
        let mut interrupted = pin!(connect::interrupted());
        let mut chosen = tokio::select! {
            biased;
            interruption = &mut interrupted => return Err(interruption),
            chosen = self.peer.client(&self.connection, options, own, wanted) => chosen?,
        };
        let prepared = tokio::select! {
            biased;
            interruption = &mut interrupted => {
                chosen.client.interrupt().await;
                return Err(interruption);
            }
            prepared = self.prepare(&mut chosen) => prepared,
        };
        let Chosen { mut client, .. } = chosen;
        let args = match prepared {
            Ok((operation, args)) => {
                self.operation = operation;
                args
            }
            Err(failure) => {
                let _ = client.close().await;
                return Err(failure);
            }
        };
        let request =
            CallRequest { operation: self.operation.clone(), args, timeout: self.timeout, ..CallRequest::default() };
        let called = tokio::select! {
            biased;
            interruption = &mut interrupted => {
                spinner.bar.finish_and_clear();
                client.interrupt().await;
                return Err(interruption);
            }
            called = client.call(&request) => called,
        };
        spinner.bar.finish_and_clear();
        let record_fault = client.record_fault();
        if let Some(fault) = &record_fault {
            connect::complain(format_args!("rigline: {fault}"));
        }
        let answer = match called {
            Ok(answer) => answer,
            Err(error) => {
                // Said before the connection is closed, which may take a while; what that brings adds nothing.
                let failure = Failure::from(error);
                failure.tell();
                evidence.report = as_json_of_failure(&failure);
                if self.json {
                    connect::print_json(&evidence.report);
                }
                let _ = client.close().await;
                return Ok(failure.code);
            }
        };
        if self.connection.verbose && !answer.stderr.is_empty() {
            connect::complain(answer.stderr.trim_end());
        }
        evidence.answer(&self.operation, &answer);
        if self.json {
            connect::print_json(&evidence.report);
        } else {
            connect::print(&as_text(&answer));
            if let Some(failure) = &answer.failure {
                out::complain_of_failure(&format!("{} failed: {failure}", self.operation));
            }
        }
        match client.close().await {
            Ok(Some(unclean)) => connect::complain(format_args!("rigline: {unclean}")),
            Ok(None) => {}
            Err(error) => connect::complain(format_args!("rigline: shutdown: {error}")),
        }
        let code = exit_code(answer.failure.as_ref());
        Ok(if record_fault.is_some() { code.max(connect::FAILED) } else { code })
    }

    /// The operation's own name and the arguments, checked against the extension's description.
    async fn prepare(&self, chosen: &mut Chosen) -> Result<(String, String), Failure> {
        self.can_expect(chosen.protocol)?;
        if !chosen.protocol.has_manifest {
            PeerArguments::check_carried(&self.connection, chosen, self.timeout.is_some())?;
            // The program that calls knows what the operation takes.
            return Ok((self.operation.clone(), self.arguments(&Schema::any())?));
        }
        let described = chosen.client.describe(None, self.connection.start_timeout).await?;
        PeerArguments::check_carried(&self.connection, chosen, self.timeout.is_some())?;
        let Description::Manifest(described) = described else {
            return Err(Failure::usage(format!("{} does not list its operations", self.connection.target)));
        };
        let Described { manifest, .. } = &*described;
        if let Some(recorder) = &self.connection.recorder {
            client::identify(recorder, &mut *chosen.client, manifest).await;
        }
        self.expected(&manifest.name, &manifest.version)?;
        let names: Vec<&str> = manifest.operations.iter().map(|operation| operation.name.as_str()).collect();
        let name = operation_named(&self.operation, &names).map_err(Failure::usage)?;
        let schema =
            manifest.operation(name).map_or_else(Schema::any, |operation| Schema::read(&operation.params_text));
        Ok((name.to_owned(), self.arguments(&schema)?))
    }

    /// Whether an extension says its version, where one is expected.
    fn can_expect(&self, protocol: &Protocol) -> Result<(), Failure> {
        if self.expect_version.is_none() || protocol.has_manifest {
            return Ok(());
        }
        Err(Failure::usage(format!("--expect-version: with {} an extension has no version", protocol.title)))
    }

    fn expected(&self, name: &str, version: &str) -> Result<(), Failure> {
        let Some(range) = &self.expect_version else { return Ok(()) };
        let no = |why: String| Failure::no_answer(format!("{name}: {why}"));
        let version =
            Version::parse(version).map_err(|error| no(format!("its version `{version}` is not semantic: {error}")))?;
        if range.matches(&version) { Ok(()) } else { Err(no(format!("version {version} is not in {range}"))) }
    }

    fn arguments(&self, schema: &Schema) -> Result<String, Failure> {
        let words =
            ["rigline".to_owned(), "describe".to_owned(), self.connection.target.to_string(), self.operation.clone()];
        let given = Given {
            operation: &self.operation,
            args: self.args.as_deref(),
            values: &self.values,
            is_quiet: self.connection.quiet,
            help: out::command_line(&words) + &self.peer.option(),
        };
        given.arguments(schema)
    }
}

/// The report for a recording.
#[derive(Default)]
struct Evidence {
    recorder: Option<Arc<Recorder>>,
    report: String,
    values: String,
}

impl Evidence {
    fn answer(&mut self, operation: &str, answer: &CallOutcome) {
        self.report = as_json(answer);
        let outputs = Json::parse(answer.outputs.as_bytes()).unwrap_or(Json::NULL);
        // Their own text, so that numbers keep their digits.
        let mut add = |output: &str, value: Json<'_>| {
            let (operation, output) = (Value::from(operation), Value::from(output));
            self.values += &format!("{{\"operation\":{operation},\"output\":{output},\"value\":{value}}}\n");
        };
        match outputs.kind() {
            JsonKind::Object => outputs.members().for_each(|(name, value)| add(&name.to_string(), value)),
            JsonKind::Null => {}
            _ => add("result", outputs),
        }
    }
}

/// The exit code of an answer: the same in every protocol.
fn exit_code(failure: Option<&CallFailure>) -> u8 {
    match failure {
        None => connect::SUCCESS,
        Some(failure) => match failure.kind {
            FailureKind::UnknownOperation | FailureKind::BadArguments => connect::USAGE,
            FailureKind::Timeout => connect::TIMED_OUT,
            FailureKind::NoAnswer => connect::NO_ANSWER,
            _ => connect::FAILED,
        },
    }
}

/// An answer as JSON, in one shape for every protocol. An operation's own code is a further member where the protocol's code is another.
fn as_json(answer: &CallOutcome) -> String {
    let failure = answer.failure.as_ref();
    let message = answer.message.as_deref().filter(|_| !(answer.is_message_output && failure.is_some()));
    // A number is told with the text, and a word is a member of its own only.
    let error = failure.map(|failure| match &failure.code {
        Some(Value::Number(_)) => failure.to_string(),
        _ => failure.message.clone(),
    });
    let code = failure.and_then(|failure| failure.code.clone()).unwrap_or_default();
    let own_code = failure.and_then(|failure| failure.custom_code.as_deref()).filter(|own| code != **own);
    to_json(failure.is_none(), message, error.as_deref(), &code, own_code, &answer.outputs_and_blocks())
}

/// The same shape for a call without an answer.
fn as_json_of_failure(failure: &Failure) -> String {
    to_json(false, None, Some(&failure.text), &Value::Null, None, "{}")
}

/// Outputs keep their digits, which a number of `serde_json` may not.
fn to_json(
    success: bool,
    message: Option<&str>,
    error: Option<&str>,
    code: &Value,
    own_code: Option<&str>,
    outputs: &str,
) -> String {
    let (message, error) = (Value::from(message), Value::from(error));
    let own_code = own_code.map(|own| format!(",\"own_code\":{}", Value::from(own))).unwrap_or_default();
    let text = format!(
        "{{\"success\":{success},\"message\":{message},\"error\":{error},\"code\":{code}{own_code},\"outputs\":{outputs}}}"
    );
    Json::parse(text.as_bytes()).map_or_else(|_| text.clone(), out::indented)
}

/// An answer for people: its message, and a table of the outputs.
fn as_text(answer: &CallOutcome) -> String {
    let outputs = answer.outputs_and_blocks();
    let json = Json::parse(outputs.as_bytes()).unwrap_or(Json::NULL);
    let plain = |value: Json<'_>| value.text().map_or_else(|| value.as_str().to_owned(), |text| text.to_string());
    let mut text = answer.message.as_ref().map(|message| format!("{message}\n")).unwrap_or_default();
    if json.kind() != JsonKind::Object {
        return if json.is_null() { text } else { plain(json) + "\n" };
    }
    let mut table = Table::new(&[]);
    for (name, value) in json.members() {
        match value.text() {
            Some(message) if answer.is_message_output && name == "message" => text = format!("{message}\n"),
            _ => table.row([name.to_string(), plain(value)]),
        }
    }
    if !table.is_empty() {
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
