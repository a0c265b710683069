//! An extension that is somewhere else, as one that is here: it can then be served by any protocol and any transport.
//!
//! A [`Relay`] is an [`Extension`] whose handler passes each call on to a [`Target`]: a program, a device, a server. The other
//! end is asked by Amplifier's protocol if it answers that, as rigline's own extensions do: then results keep their types, and
//! failures their codes and details. Else it is asked by gevals, whose outputs are strings. An HTTP target is asked by
//! Amplifier's protocol.
//!
//! Arguments that break an operation's schema are refused here, and not sent. A decimal that namel3ss writes as a string is sent as a
//! number where the schema wants one.
//!
//! What only one of two protocols knows is lost between them: namel3ss's `entry`, `trace_id` and `project` do not get
//! through, and as nothing is known of what the other end does, it keeps no [guarantees](rigline::manifest::Guarantee). Logs go to
//! the [listener](Options::listener).
//!
//! A call that is given up, because its time is up or its caller gone, is cancelled at the other end too: a program is asked
//! to end and started anew for the next call, a connection is opened anew. When a relay is dropped it ends its session in good
//! order, and waits for that.
//!
//! ```no_run
//! use rigline_std::host::Options;
//! use rigline_std::http::{self, Server};
//! use rigline_std::relay::Relay;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let relay = Relay::connect(&"serial:auto".parse()?, Options::default())?;
//! let server = Server::bind("127.0.0.1:8080", http::Options::amplifier())?;
//! server.run(move |_| relay)?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rigline::event::Event;
use rigline::json::{Json, Kind, RawJson};
use rigline::protocol::amplifier::session_id;
use rigline::{Call, Context, Extension, Failure, FailureKind, Manifest, Operation, Outcome, Schema};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use crate::amplifier::{self, CallError, Description, ModuleError, ModuleKind};
use crate::by_schema::Schemas;
use crate::host::{self, CallContext, Host, HostError, Options};
use crate::target::Target;

/// How long Amplifier's protocol is tried before gevals.
const PATIENCE: Duration = Duration::from_secs(3);

/// More than any call takes.
const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How many codes of failures a relay takes over; what comes beyond is told by its kind.
const CODES: usize = 64;

/// An extension that is somewhere else. See the [module](self).
pub struct Relay {
    manifest: &'static Manifest,
    schemas: Schemas,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    codes: Vec<&'static str>,
}

/// Why there is no relay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The other end does not answer as a gevals extension.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The other end does not answer as an Amplifier module.
    #[error(transparent)]
    Module(#[from] CallError),
    /// There is no thread or runtime to be had.
    #[error("the relay cannot be started: {0}")]
    Start(#[from] io::Error),
}

impl RelayError {
    /// Whether there was no answer in time.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Host(error) => error.is_timeout(),
            Self::Module(error) => is_timeout(error),
            Self::Start(_) => false,
        }
    }
}

/// A call on its way.
struct Job {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

struct Request {
    op: String,
    args: String,
    session_id: Option<String>,
    /// How long it may take; zero is no limit.
    limit: Duration,
}

/// What came of a call: outputs as JSON texts, and how it ended.
struct Answer {
    outputs: Vec<(String, String)>,
    end: Result<Option<String>, Fault>,
}

struct Fault {
    kind: FailureKind,
    code: Option<String>,
    message: String,
}

impl Relay {
    /// Starts or opens the target, and asks it what it is. It blocks until that is known, and takes a thread of its own for
    /// the connection, so it must not be called in an async context.
    ///
    /// With a [`config`](Options::config), which only gevals has, gevals is what the other end is asked by.
    ///
    /// # Errors
    /// The other end cannot be reached, or answers neither protocol.
    pub fn connect(target: &Target, mut options: Options) -> Result<Self, RelayError> {
        options.reconnect = true;
        let target = target.clone();
        let (jobs, queue) = mpsc::channel(1);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("rigline-relay".into()).spawn(move || {
            runtime.block_on(async {
                match Upstream::connect(&target, options).await {
                    Ok((upstream, manifest)) => {
                        let _ = tell.send(Ok(manifest));
                        pass_on(upstream, queue).await;
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            });
            runtime.shutdown_background();
        })?;
        let description = told.recv().map_err(io::Error::other)??;
        let inputs = description.inputs.iter().map(|(name, schema)| (name.as_str(), schema));
        let schemas = Schemas::new(inputs);
        Ok(Self { manifest: lasting(description), schemas, jobs: Some(jobs), thread: Some(thread), codes: Vec::new() })
    }

    async fn ask(&self, request: Request) -> Answer {
        let gone = || Answer {
            outputs: Vec::new(),
            end: Err(Fault { kind: FailureKind::Unreachable, code: None, message: "the relay has ended".into() }),
        };
        let (answer, told) = oneshot::channel();
        match &self.jobs {
            Some(jobs) if jobs.send(Job { request, answer }).await.is_ok() => told.await.unwrap_or_else(|_| gone()),
            _ => gone(),
        }
    }

    /// A code that lasts as long as a failure wants it to.
    fn code(&mut self, code: &str) -> Option<&'static str> {
        let known = self.codes.iter().find(|known| **known == code).copied();
        if known.is_none() && self.codes.len() < CODES {
            self.codes.push(leak(code.to_owned()));
            return self.codes.last().copied();
        }
        known
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("to", &self.manifest.name).finish_non_exhaustive()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Extension for Relay {
    fn manifest(&self) -> &'static Manifest {
        self.manifest
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let mut args = call.args_json().as_str().to_owned();
        if call.has_numeric_strings() {
            args = self.schemas.with_numbers(call.operation(), &args);
        }
        // Not every extension checks its arguments.
        if let Some(refusal) = self.schemas.refusal(call.operation(), &args) {
            return Err(cx.failure(FailureKind::BadArguments, refusal.as_str()));
        }
        let left = cx.deadline().map(|deadline| Duration::from_nanos(deadline.nanos_since(cx.now())));
        let request = Request {
            op: call.operation().to_owned(),
            args,
            session_id: session_id(&call.context).map(|id| id.to_string()),
            // A little less, so that the other end's own word for it wins, and it need not be cut off.
            limit: left.map_or(Duration::ZERO, |left| {
                left.saturating_sub((left / 10).min(Duration::from_millis(250))).max(Duration::from_millis(1))
            }),
        };
        let Answer { outputs, end } = self.ask(request).await;
        for (name, value) in outputs {
            // The other end may have written it on many lines.
            let mut value = value.into_bytes();
            match RawJson::from_checked(&mut value) {
                Ok(value) => cx.output(&name, &value)?,
                Err(error) => return Err(cx.failure(FailureKind::Internal, format_args!("output {name}: {error}"))),
            }
        }
        match end {
            Ok(Some(message)) => cx.done(message.as_str()),
            Ok(None) => Ok(Outcome::DONE),
            Err(Fault { kind, code, message }) => {
                let failure = cx.failure(kind, message.as_str());
                Err(match code.and_then(|code| self.code(&code)) {
                    Some(code) => failure.with_code(code),
                    None => failure,
                })
            }
        }
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let request = Request {
            op: "on_event".into(),
            args: event.json().as_str().to_owned(),
            session_id: event.session_id().value().map(|id| id.to_string()),
            limit: rigline::protocol::amplifier::TIMEOUT,
        };
        if let Err(fault) = self.ask(request).await.end {
            cx.warn(format_args!("on_event: {}", fault.message));
        }
    }
}

/// Passes calls on until there is nobody left who could make any.
async fn pass_on(mut upstream: Upstream, mut queue: mpsc::Receiver<Job>) {
    while let Some(Job { request, mut answer }) = queue.recv().await {
        // The caller may be gone.
        if answer.is_closed() {
            continue;
        }
        let told = tokio::select! {
            biased;
            () = answer.closed() => None,
            told = upstream.call(&request) => Some(told),
        };
        match told {
            Some(told) => {
                let _ = answer.send(told);
            }
            None => upstream.cancel().await,
        }
    }
    upstream.close().await;
}

/// The other end, by the protocol that it answers.
enum Upstream {
    Amplifier(amplifier::Host),
    Gevals(Host),
}

impl Upstream {
    async fn connect(target: &Target, options: Options) -> Result<(Self, Description), RelayError> {
        if matches!(target, Target::Http(_)) {
            let mut host = amplifier::Host::new(target, &options)?;
            let description = host.describe().await?;
            return Ok((Self::Amplifier(host), description));
        }
        if options.config.is_none()
            && let Some(found) = Self::amplifier(target, &options).await
        {
            return Ok(found);
        }
        let host = Host::connect(target, options).await?;
        let manifest = host.describe();
        let description = Description {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            kind: ModuleKind::default(),
            capabilities: manifest.operations.iter().map(|operation| operation.name.clone()).collect(),
            inputs: manifest
                .operations
                .iter()
                .map(|operation| (operation.name.clone(), operation.params.clone()))
                .collect(),
            outputs: Map::new(),
        };
        Ok((Self::Gevals(host), description))
    }

    /// Asks by Amplifier's protocol. What keeps it from answering, gevals will tell, and wait for what can be waited for.
    async fn amplifier(target: &Target, options: &Options) -> Option<(Self, Description)> {
        let mut host = amplifier::Host::new(target, options).ok()?;
        let patience = PATIENCE.min(options.start_timeout);
        // A board may be booting when the first line comes.
        let tries = if matches!(target, Target::Serial(_) | Target::Tcp(_)) { 3 } else { 1 };
        let usual = std::mem::replace(&mut host.timeout, patience / tries);
        for _ in 0..tries {
            match host.describe().await {
                Ok(description) => {
                    host.timeout = usual;
                    return Some((Self::Amplifier(host), description));
                }
                Err(error) if is_timeout(&error) => {}
                Err(_) => break,
            }
        }
        host.cancel().await;
        None
    }

    async fn call(&mut self, request: &Request) -> Answer {
        match self {
            Self::Amplifier(host) => {
                host.session_id.clone_from(&request.session_id);
                host.timeout = if request.limit.is_zero() { NO_LIMIT } else { request.limit };
                match host.invoke(&request.op, &request.args).await {
                    Ok(Ok(result)) => succeeded(&result),
                    Ok(Err(error)) => failed(error),
                    Err(error) => {
                        let kind = if is_timeout(&error) { FailureKind::Timeout } else { FailureKind::Unreachable };
                        fault(kind, error.to_string())
                    }
                }
            }
            Self::Gevals(host) => {
                let context = CallContext { timeout: Some(request.limit), ..CallContext::default() };
                match host.call_json(&request.op, &request.args, context).await {
                    Ok(result) => gevals_answer(result),
                    Err(error) => {
                        let kind = if error.is_timeout() { FailureKind::Timeout } else { FailureKind::Unreachable };
                        fault(kind, error.to_string())
                    }
                }
            }
        }
    }

    async fn cancel(&mut self) {
        match self {
            Self::Amplifier(host) => host.cancel().await,
            // What keeps it from coming back, the next call will meet again.
            Self::Gevals(host) => drop(host.cancel().await),
        }
    }

    async fn close(self) {
        match self {
            Self::Amplifier(host) => host.close().await,
            Self::Gevals(host) => drop(host.shutdown().await),
        }
    }
}

fn is_timeout(error: &CallError) -> bool {
    matches!(error, CallError::Timeout { .. } | CallError::Http(amplifier::HttpError::Timeout { .. }))
}

fn fault(kind: FailureKind, message: String) -> Answer {
    Answer { outputs: Vec::new(), end: Err(Fault { kind, code: None, message }) }
}

/// The members of an object, each as its JSON text; what is no object stands as `value`.
fn members(json: Json<'_>) -> Vec<(String, String)> {
    match json.kind() {
        Kind::Object => json.members().map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect(),
        Kind::Null => Vec::new(),
        _ => vec![("value".into(), json.as_str().to_owned())],
    }
}

fn succeeded(result: &str) -> Answer {
    match Json::parse(result.as_bytes()) {
        Ok(result) => Answer { outputs: members(result), end: Ok(None) },
        Err(error) => fault(FailureKind::Internal, format!("the result cannot be read: {error}")),
    }
}

fn failed(error: ModuleError) -> Answer {
    let kind = match error.code.as_str() {
        "timeout" => FailureKind::Timeout,
        "oom" => FailureKind::TooLarge,
        "unreachable" => FailureKind::Unreachable,
        "bad_request" => FailureKind::BadArguments,
        "forbidden" => FailureKind::Forbidden,
        "unsupported_op" => FailureKind::UnknownOperation,
        // Internal or the operation's own: the text has one word for both, and the second is what callers can use.
        _ => FailureKind::Failed,
    };
    let code = (!error.is_reserved()).then_some(error.code);
    let details = error.details.unwrap_or_default();
    let outputs = details.into_iter().map(|(name, value)| (name, value.to_string())).collect();
    Answer { outputs, end: Err(Fault { kind, code, message: error.message }) }
}

fn gevals_answer(result: host::CallResult) -> Answer {
    let outputs = result.outputs.into_iter().map(|(name, value)| (name, Value::from(value).to_string())).collect();
    let error = |kind, message| Err(Fault { kind, code: None, message });
    let end = match result.outcome {
        host::Outcome::Success => Ok(result.message),
        host::Outcome::Failed(why) => error(FailureKind::Failed, why),
        host::Outcome::Refused(refused) => {
            let kind = match refused.code {
                Some(-32601) => FailureKind::UnknownOperation,
                Some(-32602) => FailureKind::BadArguments,
                Some(-32001) => FailureKind::Timeout,
                Some(-32002) => FailureKind::RequirementNotMet,
                Some(-32603) => FailureKind::Internal,
                _ => FailureKind::Unreachable,
            };
            error(kind, refused.message)
        }
        host::Outcome::Invalid(why) => error(FailureKind::Internal, why),
    };
    Answer { outputs, end }
}

/// What `describe` told, as a manifest, which lasts for good: there is one a relay.
fn lasting(description: Description) -> &'static Manifest {
    let schema = |schema: &Value| Schema::text(leak(schema.to_string()));
    let operations: Vec<Operation> = description
        .capabilities
        .into_iter()
        .map(|name| {
            let params = description.inputs.get(&name).map_or(Schema::OBJECT, schema);
            let outputs = description.outputs.get(&name).map(schema);
            Operation::new(leak(name), params).optional_outputs(outputs)
        })
        .collect();
    let (name, version) = (leak(description.name), leak(description.version));
    // Other people's versions are what they are.
    let mut manifest = Manifest::try_new(name, version).unwrap_or_else(|_| Manifest::new(name, "0.0.0"));
    manifest.version = version;
    Box::leak(Box::new(manifest.kind(description.kind).operations(Vec::leak(operations))))
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}
