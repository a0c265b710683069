//! The session with a target, to which steps are sent.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rigline::json::Json;
use rigline::{FailureKind, Level, Phase};
use tokio::sync::Mutex;

use super::verdict::Cause;
use rigline_host::by_schema::{Schema, spelled};
use rigline_host::choose::{self, Chosen, Need};
use rigline_host::client::{
    self, CallFailure, CallOutcome, CallRequest, Client, ClientError, ClientOptions, Description, Part,
};
use rigline_host::ports::Roots;
use rigline_host::protocol::Protocol;
use rigline_host::record::Recorder;
use rigline_host::target::Target;
use rigline_host::wire;
use rigline_host::{Agent, CallContext, Credentials, EventKind, HostError, JsonObject, Listener, Manifest, Options};

/// A future on the heap.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Receives the logs of an extension. It must not wait.
pub type OnLog = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// Opens sessions with targets.
pub trait Connect: Send + Sync {
    /// Opens a session with `target`, configured with `settings`. A program is started in `folder`, and found from there if its path is
    /// relative.
    fn connect<'a>(
        &'a self,
        target: &'a str,
        folder: Option<&'a Path>,
        settings: Option<JsonObject>,
        log: OnLog,
    ) -> Pending<'a, Result<Box<dyn Session>, SessionError>>;
}

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct SessionError {
    /// The reason.
    pub text: String,
    /// Whether the extension did not answer in time.
    pub is_timeout: bool,
}

impl SessionError {
    /// A reason other than the time.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_timeout: false }
    }
}

/// A session with an extension.
pub trait Session: Send + Sync {
    /// Calls an operation. The error is the reason why there is no answer.
    fn call<'a>(&'a self, call: &'a Call<'a>) -> Pending<'a, Result<StepResult, String>>;
    /// The JSON Schema of an operation's arguments, if it has one.
    fn schema(&self, operation: &str) -> Option<Schema>;
    /// All operations with their schemas; empty if the target has not described itself.
    fn operations(&self) -> Vec<(String, Schema)>;
    /// The title of the target's protocol, if that does not carry this part of a call or of a session.
    fn lacks(&self, _part: Part) -> Option<&'static str> {
        None
    }
    /// Ends the running call at once. The next one begins in a new session.
    fn cancel(&self) -> Pending<'_, Result<(), String>>;
    /// The identity of the rig that answers.
    fn rig(&self) -> Rig;
    /// Ends the session.
    fn close(self: Box<Self>) -> Pending<'static, ()>;
}

/// A call of an operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The operation.
    pub operation: &'a str,
    /// The arguments of the call, as JSON text: numbers keep their digits.
    pub args: String,
    /// The part of the task.
    pub phase: Phase,
    /// The task's directory.
    pub workdir: &'a str,
    /// Environment variables.
    pub env: &'a BTreeMap<String, String>,
    /// The time limit.
    pub timeout: Option<Duration>,
    /// The prompt and the answer of the agent.
    pub agent: Option<(&'a str, &'a str)>,
}

/// The answer of an operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepResult {
    /// Why the step failed, if it did.
    pub failure: Option<String>,
    /// The cause.
    pub cause: Cause,
    /// The message of the step.
    pub message: Option<String>,
    /// The outputs of the step, in their order.
    pub outputs: Vec<(String, String)>,
}

/// The identity of a rig, as far as it reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rig {
    /// The extension's name.
    pub name: String,
    /// The extension's version.
    pub version: String,
    /// The target as it was given.
    pub target: String,
    /// The serial number of the USB device.
    pub serial_number: Option<String>,
}

/// Sessions with targets.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// The program that `sim` starts: see [`Options::sim_program`].
    pub sim_program: Option<PathBuf>,
    /// How long a busy port, or a device that is not plugged in, is waited for [default: not at all].
    pub wait: Duration,
    /// Records what passes, and what each rig says of itself.
    pub recorder: Option<Arc<Recorder>>,
    /// The credentials that an HTTP server is sent with each request.
    pub credentials: Credentials,
}

impl Connect for Hosts {
    fn connect<'a>(
        &'a self,
        target: &'a str,
        folder: Option<&'a Path>,
        settings: Option<JsonObject>,
        log: OnLog,
    ) -> Pending<'a, Result<Box<dyn Session>, SessionError>> {
        Box::pin(async move {
            let mut target: Target = target.parse().map_err(|error| SessionError::new(format!("{error}")))?;
            if let (Target::Exec(exec), Some(folder)) = (&mut target, folder)
                && exec.program.contains(['/', '\\'])
            {
                exec.program = folder.join(&exec.program).to_string_lossy().into_owned();
            }
            if let (Target::Replay(replay), Some(folder)) = (&mut target, folder) {
                replay.path = folder.join(&replay.path);
            }
            let mut options = session_options(settings, log);
            options.recorder.clone_from(&self.recorder);
            options.wait = self.wait;
            options.is_alone = true;
            options.working_dir = folder.filter(|_| matches!(target, Target::Exec(_))).map(Path::to_owned);
            options.sim_program.clone_from(&self.sim_program);
            options.credentials.clone_from(&self.credentials);
            if self.recorder.is_some() && matches!(target, Target::Http(_)) {
                return Err(SessionError::new("what passes over HTTP is not recorded"));
            }
            let asked = choose::connect(&target, ClientOptions::new(options), None, Need::Context).await?;
            let open = Open::new(asked, &target, self.recorder.as_deref()).await?;
            Ok(Box::new(open) as Box<dyn Session>)
        })
    }
}

/// Opens a session with a target, without a folder and a recording.
pub async fn open(
    target: &Target,
    settings: Option<JsonObject>,
    credentials: Credentials,
    log: OnLog,
) -> Result<Box<dyn Session>, ClientError> {
    let mut options = session_options(settings, log);
    options.credentials = credentials;
    let options = ClientOptions::new(options);
    let asked = choose::connect(target, options, None, Need::Context).await?;
    Ok(Box::new(Open::new(asked, target, None).await?))
}

/// Opens a session over a connection of the caller's own.
pub async fn over(
    dialer: Box<dyn wire::Connect>,
    target: &Target,
    settings: Option<JsonObject>,
    log: OnLog,
) -> Result<Box<dyn Session>, SessionError> {
    let options = ClientOptions::new(session_options(settings, log));
    let asked = choose::over(dialer, target, options, Need::Context).await?;
    Ok(Box::new(Open::new(asked, target, None).await?))
}

fn session_options(settings: Option<JsonObject>, log: OnLog) -> Options {
    let mut options = Options::default();
    options.config = settings;
    options.reconnect = true;
    options.listener = Some(listener(log));
    options
}

fn listener(log: OnLog) -> Listener {
    Arc::new(move |event| match &event.kind {
        EventKind::Log(said) => match &said.data {
            Some(data) => log(said.level, &format!("{} {data}", said.message)),
            None => log(said.level, &said.message),
        },
        EventKind::Stderr(line) => log(Level::Debug, line),
        EventKind::Exited(_) | EventKind::Gone(_) | EventKind::Reconnected | EventKind::Echo => {
            log(Level::Debug, &format!("{}: {}", event.extension, event.kind));
        }
        _ => log(Level::Warn, &format!("{}: {}", event.extension, event.kind)),
    })
}

/// Why there is no answer. The time limit is distinguished from the grace, in which an extension can itself report a
/// timeout.
fn why(error: &HostError, limit: Option<Duration>, elapsed: Duration) -> String {
    match (error, limit) {
        (HostError::Timeout { extension, request, details, .. }, Some(limit)) => {
            let grace = Options::default().grace;
            format!(
                "{extension} did not answer `{request}` within {limit:?} (waited {:.1}s: limit {limit:?} + grace {grace:?}){details}",
                elapsed.as_secs_f64()
            )
        }
        _ => error.to_string(),
    }
}

struct Open {
    /// Calls take turns.
    client: Mutex<Box<dyn Client>>,
    protocol: &'static Protocol,
    lacks: Vec<Part>,
    manifest: Manifest,
    rig: Rig,
}

impl From<ClientError> for SessionError {
    fn from(error: ClientError) -> Self {
        Self { text: error.to_string(), is_timeout: error.is_timeout() }
    }
}

impl Open {
    async fn new(chosen: Chosen, target: &Target, recorder: Option<&Recorder>) -> Result<Self, ClientError> {
        let mut chosen = chosen;
        let manifest = match chosen.client.describe(None, Options::default().start_timeout).await? {
            Description::Manifest(described) => described.manifest,
            Description::Page(_) => return Err(ClientError::usage(format!("{target} does not list its operations"))),
        };
        if let Some(recorder) = recorder {
            client::identify(recorder, &mut *chosen.client, &manifest).await;
        }
        let rig = Rig {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            serial_number: serial_number(target),
            target: target.to_string(),
        };
        let lacks = Part::ALL.into_iter().filter(|part| !chosen.carries(*part)).collect();
        let Chosen { client, protocol } = chosen;
        Ok(Self { client: Mutex::new(client), protocol, lacks, manifest, rig })
    }

    /// The operation's own name, in whichever spelling it was written.
    fn named(&self, operation: &str) -> Option<&str> {
        let names: Vec<&str> = self.manifest.operations.iter().map(|operation| operation.name.as_str()).collect();
        spelled(operation, &names).ok().flatten()
    }
}

/// The serial number of the device at a port.
fn serial_number(target: &Target) -> Option<String> {
    let Target::Serial(serial) = target else { return None };
    let port = Roots::of_environment().find(&serial.port).ok()?;
    port.usb.map(|usb| usb.serial_number).filter(|number| !number.is_empty())
}

/// The cause of an operation's failure: the board, the rig or the eval.
fn cause(failure: &CallFailure, is_described: bool) -> Cause {
    match failure.kind {
        // An operation's own time limit: what it waited for did not come.
        FailureKind::Failed | FailureKind::Timeout => Cause::Board,
        FailureKind::BadArguments => Cause::Eval,
        // One that it describes and refuses is its own fault.
        FailureKind::UnknownOperation if !is_described => Cause::Eval,
        _ => Cause::Rig,
    }
}

/// The outputs as texts: strings as they are, and of everything else its JSON text, digits and all. What is there beside the outputs, such as
/// images, is one more.
fn texts(outcome: &CallOutcome) -> Vec<(String, String)> {
    let plain = |json: String| match Json::parse(json.as_bytes()).ok().and_then(|json| json.text()) {
        Some(text) => text.to_string(),
        None => json,
    };
    let mut outputs: Vec<_> = outcome.members().into_iter().map(|(name, json)| (name, plain(json))).collect();
    let blocks: Vec<&str> = outcome.blocks().collect();
    if !blocks.is_empty() && outputs.iter().all(|(name, _)| name != "content") {
        outputs.push(("content".to_owned(), format!("[{}]", blocks.join(","))));
    }
    outputs
}

impl Session for Open {
    fn call<'a>(&'a self, call: &'a Call<'a>) -> Pending<'a, Result<StepResult, String>> {
        let context = CallContext {
            workdir: Some(call.workdir.to_owned()),
            phase: call.phase,
            env: call.env.clone(),
            timeout: None,
            agent: call.agent.map(|(prompt, output)| Agent { prompt: prompt.to_owned(), output: output.to_owned() }),
        };
        Box::pin(async move {
            let started = Instant::now();
            let named = self.named(call.operation);
            let request = CallRequest {
                operation: named.unwrap_or(call.operation).to_owned(),
                args: call.args.clone(),
                timeout: call.timeout,
                session_id: None,
                context: Some(Box::new(context)),
            };
            let outcome = match self.client.lock().await.call(&request).await {
                Ok(outcome) => outcome,
                // The call is over, so the session goes on.
                Err(ClientError::Host(error @ HostError::Late { .. })) => {
                    let failure = Some(error.to_string());
                    return Ok(StepResult { failure, cause: Cause::Rig, message: None, outputs: Vec::new() });
                }
                Err(ClientError::Host(error)) => return Err(why(&error, call.timeout, started.elapsed())),
                Err(error) => return Err(error.to_string()),
            };
            let cause = outcome.failure.as_ref().map(|failure| cause(failure, named.is_some())).unwrap_or_default();
            let failure = outcome.failure.as_ref().map(ToString::to_string);
            let outputs = texts(&outcome);
            Ok(StepResult { failure, cause, message: outcome.message, outputs })
        })
    }

    fn schema(&self, operation: &str) -> Option<Schema> {
        let operation = self.manifest.operation(self.named(operation)?)?;
        Some(Schema::read(&operation.params_text))
    }

    fn operations(&self) -> Vec<(String, Schema)> {
        self.manifest.operations.iter().map(|it| (it.name.clone(), Schema::read(&it.params_text))).collect()
    }

    fn lacks(&self, part: Part) -> Option<&'static str> {
        self.lacks.contains(&part).then_some(self.protocol.title)
    }

    fn cancel(&self) -> Pending<'_, Result<(), String>> {
        Box::pin(async move {
            self.client.lock().await.cancel().await;
            Ok(())
        })
    }

    fn rig(&self) -> Rig {
        self.rig.clone()
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move { drop(self.client.into_inner().close().await) })
    }
}
