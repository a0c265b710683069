//! The session with a target. The steps of a trial are calls in it.

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
use rigline_host::choose::{self, Chosen, ProtocolNeed};
use rigline_host::client::{
    self, CallFailure, CallOutcome, CallRequest, Client, ClientError, ClientOptions, Description, Part,
};
use rigline_host::coerce::Schema;
use rigline_host::ports::Roots;
use rigline_host::protocol::Protocol;
use rigline_host::record::Recorder;
use rigline_host::spelled;
use rigline_host::target::Target;
use rigline_host::wire;
use rigline_host::{Agent, CallContext, Credentials, EventKind, HostError, JsonObject, Listener, Manifest, Options};

/// A boxed future that may move to another thread.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The function that gets the logs of an extension. It must return without waiting.
pub type OnLog = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// A connector, which opens sessions with targets.
pub trait Connect: Send + Sync {
    /// Opens a session with `target` and configures it with `settings`. If the target is a program,
    /// it is started in `folder`, and a relative path to it begins there.
    fn connect<'a>(
        &'a self,
        target: &'a str,
        folder: Option<&'a Path>,
        settings: Option<JsonObject>,
        log: OnLog,
    ) -> Pending<'a, Result<Box<dyn EvalSession>, SessionError>>;
}

/// The error for a session that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct SessionError {
    /// The reason, as text.
    pub text: String,
    /// Whether the reason is that the extension did not answer in time.
    pub is_timeout: bool,
}

impl SessionError {
    /// An error with this reason. It is not about a time limit.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_timeout: false }
    }
}

/// A session with an extension.
pub trait EvalSession: Send + Sync {
    /// Calls an operation. The result may be a failure of the operation. An error means that there
    /// was no answer, and is the reason.
    fn call<'a>(&'a self, call: &'a Call<'a>) -> Pending<'a, Result<StepResult, String>>;
    /// Returns the JSON Schema of an operation's arguments. Returns `None` if the target describes
    /// no such operation.
    fn schema(&self, operation: &str) -> Option<Schema>;
    /// Returns all operations with their schemas. The list is empty if the target does not describe
    /// itself.
    fn operations(&self) -> Vec<(String, Schema)>;
    /// Returns the title of the target's protocol if that protocol cannot transport this part of a
    /// call or a session. Returns `None` if it can.
    fn lacks(&self, _part: Part) -> Option<&'static str> {
        None
    }
    /// Stops the running call at once. The next call begins in a new session.
    fn cancel(&self) -> Pending<'_, Result<(), String>>;
    /// Returns the rig that answers in this session.
    fn rig(&self) -> RigIdentity;
    /// Ends the session, and waits for its end.
    fn close(self: Box<Self>) -> Pending<'static, ()>;
}

/// The parameters of a call of an operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The name of the operation.
    pub operation: &'a str,
    /// The arguments of the call, as the text of a JSON object. Numbers keep their digits.
    pub args: String,
    /// The phase of the trial in which the call happens.
    pub phase: Phase,
    /// The working folder of the task.
    pub workdir: &'a str,
    /// The environment variables of the task, which are sent with the call.
    pub env: &'a BTreeMap<String, String>,
    /// The time limit of the call. `None` means no limit.
    pub timeout: Option<Duration>,
    /// The prompt and the answer of the agent under test. `None` before an agent has run.
    pub agent: Option<(&'a str, &'a str)>,
}

/// The result of a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepResult {
    /// The reason why the operation failed. `None` if it succeeded.
    pub failure: Option<String>,
    /// The cause of the failure. It has no meaning if the operation succeeded.
    pub cause: Cause,
    /// The message of the operation.
    pub message: Option<String>,
    /// The outputs of the operation as pairs of name and value, in their order.
    pub outputs: Vec<(String, String)>,
}

/// The identity of a rig. Values that the rig does not report are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RigIdentity {
    /// The name of the extension on the rig.
    pub name: String,
    /// The version of the extension on the rig.
    pub version: String,
    /// The target, as the caller named it.
    pub target: String,
    /// The serial number of the USB device. `None` if it is not known.
    pub serial_number: Option<String>,
}

/// The connector that opens targets by rigline's own clients.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// The program that the target `sim` starts. [`Options::sim_program`] has the default.
    pub sim_program: Option<PathBuf>,
    /// The longest time to wait for a busy port, or for a device that is not plugged in. Zero means
    /// not to wait.
    pub wait: Duration,
    /// The recorder of all lines that pass, and of the identity of each rig.
    pub recorder: Option<Arc<Recorder>>,
    /// The credentials that each request to an HTTP server carries.
    pub credentials: Credentials,
}

impl Connect for Hosts {
    fn connect<'a>(
        &'a self,
        target: &'a str,
        folder: Option<&'a Path>,
        settings: Option<JsonObject>,
        log: OnLog,
    ) -> Pending<'a, Result<Box<dyn EvalSession>, SessionError>> {
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
            let asked = choose::connect(&target, ClientOptions::new(options), None, ProtocolNeed::Context).await?;
            let open = Open::new(asked, &target, self.recorder.as_deref()).await?;
            Ok(Box::new(open) as Box<dyn EvalSession>)
        })
    }
}

/// Opens a session with a target. A relative path begins at the working folder of this process, and
/// nothing is recorded.
pub async fn open(
    target: &Target,
    settings: Option<JsonObject>,
    credentials: Credentials,
    log: OnLog,
) -> Result<Box<dyn EvalSession>, ClientError> {
    let mut options = session_options(settings, log);
    options.credentials = credentials;
    let options = ClientOptions::new(options);
    let asked = choose::connect(target, options, None, ProtocolNeed::Context).await?;
    Ok(Box::new(Open::new(asked, target, None).await?))
}

/// Opens a session over a connection that the caller's `dialer` opens.
pub async fn over(
    dialer: Box<dyn wire::Connect>,
    target: &Target,
    settings: Option<JsonObject>,
    log: OnLog,
) -> Result<Box<dyn EvalSession>, SessionError> {
    let options = ClientOptions::new(session_options(settings, log));
    let asked = choose::over(dialer, target, options, ProtocolNeed::Context).await?;
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
/// timeout. Not every protocol has one.
fn why(error: &HostError, limit: Option<Duration>, elapsed: Duration) -> String {
    match (error, limit) {
        (HostError::Timeout { extension, request, details, after, .. }, Some(limit)) => {
            let grace = after.saturating_sub(limit);
            let parts = if grace.is_zero() { String::new() } else { format!(": limit {limit:?} + grace {grace:?}") };
            let waited = elapsed.as_secs_f64();
            format!("{extension} did not answer `{request}` within {limit:?} (waited {waited:.1}s{parts}){details}")
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
    rig: RigIdentity,
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
        let rig = RigIdentity {
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
    outputs.extend(outcome.blocks_as_output());
    outputs
}

impl EvalSession for Open {
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

    fn rig(&self) -> RigIdentity {
        self.rig.clone()
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move { drop(self.client.into_inner().close().await) })
    }
}
