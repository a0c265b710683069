//! The host's side: talk to any extension, wherever it is.
//!
//! A [`Host`] is a session with one extension: it starts the program or opens the port, reads the manifest, makes calls
//! and shuts down. It never hangs (each step has a deadline), never returns a reply to another call, and leaves no process
//! behind.
//!
//! ```
//! # #[cfg(unix)]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rigline_host::{CallContext, Host, Options};
//!
//! // Any program that answers a line by a line will do.
//! let script = r#"
//!     read line; echo '{"jsonrpc":"2.0","id":1,"result":{"name":"rig","version":"1.0.0","protocolVersion":"0.0.1","operations":{"measure":{"params":{}}}}}'
//!     read line; echo '{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"settling"}}'
//!     echo '{"jsonrpc":"2.0","id":2,"result":{"success":true,"outputs":{"millivolts":"3301"}}}'
//! "#;
//! # std::fs::write(std::env::temp_dir().join("rigline-doc-host.sh"), script)?;
//! # let target = format!("exec:sh {}", std::env::temp_dir().join("rigline-doc-host.sh").display());
//! let host = Host::connect(&target.parse()?, Options::default()).await?;
//! assert_eq!(host.describe().name, "rig");
//!
//! #[derive(serde::Serialize)]
//! struct Measure {
//!     channel: &'static str,
//! }
//! #[derive(serde::Deserialize)]
//! struct Measured {
//!     millivolts: u16,
//! }
//! let measured: Measured = host.call_typed("measure", &Measure { channel: "3V3" }, CallContext::default()).await??;
//! assert_eq!(measured.millivolts, 3301);
//!
//! assert!(host.shutdown().await?.is_clean());
//! # Ok(())
//! # }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
//!
//! # The parts
//! - [`Host::connect`] takes a [`Target`] and [`Options`]: deadlines, limits, and a [`listener`](Options::listener) that
//!   gets every log line, line of standard error and skipped line as an [`Event`].
//! - [`Host::describe`] is the [`Manifest`]; [`Host::call`] returns a [`CallResult`], which may be a failure: an
//!   [`Err`] is a [`HostError`], and means that there is no usable answer.
//! - [`Host::cancel`] ends the running calls and begins a new session; [`Host::reconnect`] does so after a loss.
//! - [`Host::shutdown`] ends the session and the process, and reports how. The process group of a host that
//!   is dropped is asked to end, and ended a second later.
//! - [`wire`] has the connections without a session, for who wants to say other things than a host does; and [`wire::Connect`],
//!   by which a host runs over any pair of streams ([`Host::over`]).
//! - [`local`] has extensions in this very process.
//! - [`ports`] lists serial ports.
//!
//! # Bounds
//! A line of at most [`Options::line_limit`] bytes is kept, one that is longer is dropped as it comes. Of standard error
//! [`Options::stderr_lines`] lines are kept, of skipped lines the last five. Eight calls may be out at once.

mod child;
mod connection;
mod error;
mod event;
mod json_object;
mod link;
pub mod local;
mod manifest;
mod port_info;
pub mod ports;
mod reading;
mod recorded;
mod replay;
mod result;
mod rig_lock;
mod serial;
mod transport;
pub mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rigline::client::{Request, RequestContext};
use rigline::json::RawJson;
use rigline::{GoDuration, Phase};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

pub use child::Child;
#[allow(unused_imports, reason = "only protocols without ids report who else has a port open")]
pub(crate) use error::also_open;
pub use error::{Details, HostError, ProcessExit, RpcFailure};
pub use event::{Event, EventKind, Log};
pub use json_object::JsonObject;
pub use manifest::{Manifest, Operation, spelled};
pub use port_info::Holder;
pub use result::{CallResult, CallVerdict};
pub use rig_lock::names as rig_names;

pub(crate) use crate::record::transcript::Direction;

use crate::http_client::Credentials;
use crate::record::Recorder;
use crate::target::Target;
pub(crate) use connection::{Completion, Connection, End, RawLine, RequestError};
use ports::Roots;
pub(crate) use result::OwnedReply;
use rigline_std::mutex::lock;
use wire::Connect;

/// Texts of an extension's that are shown are cut at this many bytes.
pub(crate) const TEXT_LIMIT: usize = 1024;

/// How long DTR stays low to end what a board does.
pub(crate) const DTR_LOW: Duration = Duration::from_millis(250);
/// How long a process that was asked to end has before it is killed.
pub(crate) const TERMINATION: Duration = Duration::from_millis(500);

/// The function that gets every [`Event`], in order. The task that reads from the extension calls
/// it, so it must return without waiting.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// The function that gets every line. A sent line has its newline, a received one does not.
pub type Traffic = Arc<dyn Fn(Direction, &[u8]) + Send + Sync>;

/// The options of a [`Host`]. Begin with [`Options::default`] and change the fields that differ.
#[derive(Clone)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct Options {
    /// The longest time from the start of the connection to the manifest [default: 10 s].
    pub start_timeout: Duration,
    /// The time limit of a call that has none of its own [default: 30 s].
    pub call_timeout: Duration,
    /// The time for which the host waits beyond a call's own time limit, so that a timeout error of
    /// the extension can arrive [default: 2 s]. Any other answer in this time is
    /// [`HostError::Late`].
    pub grace: Duration,
    /// The longest time from `shutdown` to the end of the process [default: 5 s].
    pub shutdown_timeout: Duration,
    /// Whether the outputs of the hardware stay as they are at the end of a session over MCP, which
    /// has no `shutdown` [default: no]. Extensions and servers of rigline's know it there too, except
    /// over HTTP. A program or server that passes calls on keeps them only if it has such an option
    /// of its own.
    pub keep_outputs: bool,
    /// The longest time to wait for a busy port, or for a device that is not plugged in [default:
    /// zero, which is not to wait].
    pub wait: Duration,
    /// Whether other processes of this user are kept from the rig during the session, as runs of
    /// evals want [default: no]. A serial port is never shared.
    pub is_alone: bool,
    /// The longest line from the extension, in bytes, without its newline [default: 16 MiB]. A
    /// longer line is dropped.
    pub line_limit: usize,
    /// The number of last lines of standard error that errors show [default: 20].
    pub stderr_lines: usize,
    /// The configuration of the extension: the member `config` of gevals' `initialize`.
    pub config: Option<JsonObject>,
    /// Whether a reply without `"jsonrpc":"2.0"` fails its call [default: no]. Otherwise it is
    /// accepted, and an event reports it.
    pub strict: bool,
    /// Whether a call after a loss of the connection connects again. Otherwise it fails with the
    /// reason of the loss.
    pub reconnect: bool,
    /// The time for which a port is left alone after it was opened, for boards that reset then
    /// [default: zero]. Usually it is not needed, since `initialize` is repeated.
    pub boot_delay: Duration,
    /// The folder that a program is started in [default: the folder of this process].
    pub working_dir: Option<PathBuf>,
    /// The environment variables that a program gets in addition to those of this process.
    pub env: Vec<(String, String)>,
    /// The program that the target `sim` starts, with the argument `rig`. By default it is the
    /// command `rigline`: this program itself, if it is that command, or the one in `PATH`.
    pub sim_program: Option<PathBuf>,
    /// The folders in which serial ports are searched [default: [`Roots::of_environment`]].
    pub roots: Roots,
    /// The credentials that each request to an HTTP server carries.
    pub credentials: Credentials,
    /// The function that gets every event.
    pub listener: Option<Listener>,
    /// The function that gets every line that is sent or received.
    pub traffic: Option<Traffic>,
    /// The recorder that gets every line that is sent or received.
    pub recorder: Option<Arc<Recorder>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(2),
            shutdown_timeout: Duration::from_secs(5),
            keep_outputs: false,
            wait: Duration::ZERO,
            is_alone: false,
            line_limit: 16 * 1024 * 1024,
            stderr_lines: 20,
            config: None,
            strict: false,
            reconnect: false,
            boot_delay: Duration::ZERO,
            working_dir: None,
            env: Vec::new(),
            sim_program: None,
            roots: Roots::of_environment(),
            credentials: Credentials::default(),
            listener: None,
            traffic: None,
            recorder: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("start_timeout", &self.start_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("shutdown_timeout", &self.shutdown_timeout)
            .field("keep_outputs", &self.keep_outputs)
            .field("line_limit", &self.line_limit)
            .finish_non_exhaustive()
    }
}

/// The facts about its task that a host sends with a call (gevals "Context Object"), and the time
/// limit of the call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallContext {
    /// The working folder of the task [default: the folder of this process at the time of
    /// [`Host::connect`]].
    pub workdir: Option<String>,
    /// The phase of the task in which the call happens.
    pub phase: Phase,
    /// The environment variables of the task.
    pub env: BTreeMap<String, String>,
    /// The time limit of the call, from the request to the answer. It is sent to the extension.
    ///
    /// The host waits [`Options::grace`] longer for the extension's own timeout error. Any other
    /// answer after the limit is [`HostError::Late`].
    pub timeout: Option<Duration>,
    /// The prompt and the answer of the agent under test. `None` if there is no agent.
    pub agent: Option<Agent>,
}

/// The prompt and the answer of the agent under test: gevals "Agent Context Object".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// The prompt that the agent got.
    pub prompt: String,
    /// The answer that the agent gave.
    pub output: String,
}

/// How a session ended: whether the extension answered `shutdown`, and how its process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Whether the extension answered `shutdown`. Some extensions end without an answer.
    pub acknowledged: bool,
    /// The way in which the process ended. `None` if the extension is no child process.
    pub exit: Option<ProcessExit>,
    /// Whether the process was killed because it did not end in time.
    pub killed: bool,
    /// The error with which the extension answered `shutdown`.
    pub error: Option<String>,
}

impl Shutdown {
    /// Returns whether the session ended as the protocol specifies. A process that ends without a
    /// reply, but with status 0, counts.
    pub fn is_clean(&self) -> bool {
        !self.killed && self.error.is_none() && self.exit.map_or(self.acknowledged, ProcessExit::is_success)
    }
}

/// A session with one extension. The [crate](crate) documentation has an example.
///
/// It needs a tokio runtime with I/O and time, which must run as long as the session.
pub struct Host {
    dialer: Box<dyn Connect>,
    options: Arc<Options>,
    current: Mutex<Arc<Connection>>,
    manifest: Mutex<Arc<Manifest>>,
    /// This process's own folder when the session began.
    workdir: String,
    /// Only one task reconnects.
    renewal: tokio::sync::Mutex<()>,
}

impl Host {
    /// Starts or opens the target, and opens a session with it.
    ///
    /// # Errors
    /// The target cannot be started or opened, or does not answer `initialize` within
    /// [`Options::start_timeout`].
    pub async fn connect(target: &Target, options: Options) -> Result<Self, HostError> {
        let dialer = wire::dialer(target, &options)?;
        Self::over(dialer, options).await
    }

    /// Opens a session over connections that the caller's `dialer` opens. Otherwise it is
    /// [`connect`](Self::connect).
    pub async fn over(dialer: Box<dyn Connect>, options: Options) -> Result<Self, HostError> {
        let options = Arc::new(options);
        let (connection, manifest) = open(&*dialer, &options, options.wait).await?;
        Ok(Self::on(dialer, options, connection, manifest))
    }

    /// With a session that has begun.
    pub(crate) fn on(
        dialer: Box<dyn Connect>,
        options: Arc<Options>,
        connection: Connection,
        manifest: Manifest,
    ) -> Self {
        Self {
            dialer,
            options,
            current: Mutex::new(Arc::new(connection)),
            manifest: Mutex::new(Arc::new(manifest)),
            workdir: std::env::current_dir().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default(),
            renewal: tokio::sync::Mutex::new(()),
        }
    }

    /// Returns the manifest of the extension.
    pub fn describe(&self) -> Arc<Manifest> {
        Arc::clone(&lock(&self.manifest))
    }

    /// Returns the process of the extension. Returns `None` if it is no child of this process.
    pub fn child(&self) -> Option<Child> {
        self.current().child().cloned()
    }

    /// Returns whether the connection is open, as far as is known without asking.
    pub fn is_connected(&self) -> bool {
        self.current().ended().is_none()
    }

    /// Calls an operation. `args` must be an object that fits the schema in the manifest. It is
    /// sent unchanged.
    ///
    /// If the future is dropped, the extension continues to run the operation, and its reply is
    /// ignored.
    ///
    /// # Errors
    /// There is no usable answer. A failed operation is not an error.
    pub async fn call(&self, operation: &str, args: &Value, context: CallContext) -> Result<CallResult, HostError> {
        self.call_json(operation, &serde_json::to_string(args).unwrap_or_default(), context).await
    }

    /// Calls an operation with arguments that are JSON text already. They are sent as they are, so
    /// numbers keep their digits; a [`Value`] rounds numbers that an `f64` cannot hold.
    ///
    /// # Errors
    /// As [`call`](Self::call). [`HostError::Types`] if `args` is not JSON, and
    /// [`HostError::NoObject`] if it is not an object.
    pub async fn call_json(&self, operation: &str, args: &str, context: CallContext) -> Result<CallResult, HostError> {
        let started = Instant::now();
        if self.options.reconnect && self.current().ended().is_some_and(|end| !matches!(end, End::ShutDown)) {
            self.renew(self.options.wait.max(self.options.start_timeout)).await?;
        }
        let connection = self.current();
        let (after, timeout) = match context.timeout {
            // As in extensions, zero means no limit.
            Some(Duration::ZERO) => (Duration::MAX, None),
            Some(timeout) => (timeout.saturating_add(self.options.grace), Some(go_duration(timeout))),
            None => (self.options.call_timeout, None),
        };
        let workdir = context.workdir.as_deref().unwrap_or(&self.workdir);
        let env: Vec<(&str, &str)> = context.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut args = args.as_bytes().to_vec();
        if let Err(source) = serde_json::from_slice::<serde::de::IgnoredAny>(&args) {
            return Err(HostError::Types { what: "the arguments", source });
        }
        // The real host sends null for none.
        if !matches!(args.trim_ascii_start().first(), Some(b'{' | b'n')) {
            return Err(HostError::NoObject("the arguments"));
        }
        let room_of_args = args.len();
        let request = Request::Execute {
            operation,
            args: RawJson::from_checked(&mut args).unwrap_or(RawJson::NULL),
            context: RequestContext {
                workdir,
                phase: context.phase,
                env: &env,
                timeout,
                agent: context.agent.as_ref().map(|agent| (agent.prompt.as_str(), agent.output.as_str())),
            },
        };
        // Room for it however many escapes it needs, where measuring would take longer.
        let agent = context.agent.as_ref().map_or(0, |agent| agent.prompt.len() + agent.output.len());
        let texts = env.iter().map(|(name, value)| name.len() + value.len() + 1).sum::<usize>();
        let room =
            (operation.len() + workdir.len() + texts + agent).saturating_mul(6).saturating_add(room_of_args + 400);
        let limit = self.describe().request_limit.unwrap_or(usize::MAX);
        let size = if room > limit.min(4096) { request.measure() } else { room };
        if size > limit.saturating_add(1) {
            return Err(HostError::RequestTooLarge { extension: connection.name(), size: size - 1, limit });
        }
        let limit = context.timeout.filter(|limit| !limit.is_zero());
        let sent = limit.map(|limit| (limit, Instant::now()));
        let answered = connection.request_of(&request, size, deadline(started, after)).await;
        let exceeded = sent.map(|(limit, sent)| (limit, sent.elapsed())).filter(|(limit, took)| took > limit);
        let in_time = |result: CallResult| match exceeded {
            // The extension noticed in time that its time was over; its error was on its way.
            Some((limit, took)) if !result.is_timeout() => Err(HostError::Late {
                extension: connection.name(),
                request: operation.to_owned(),
                took,
                limit,
                answer: shown(result.to_string().as_bytes()),
            }),
            _ => Ok(result),
        };
        match answered {
            Ok(Completion::Answer(OwnedReply::Called(result))) => {
                for fault in &result.faults {
                    connection.tell(EventKind::Fault(format!("{operation}: {fault}")));
                }
                in_time(*result)
            }
            Ok(Completion::Answer(OwnedReply::Error(error, raw))) => in_time(CallResult::of_error(error, raw)),
            Ok(completion) => Err(connection.completion_error(completion, after)),
            Err(trouble) => {
                let mut error = connection.error(trouble, operation, after);
                if let HostError::Timeout { limit, .. } = &mut error {
                    *limit = context.timeout;
                }
                Err(error)
            }
        }
    }

    /// Calls an operation with arguments and outputs of the caller's types. The inner error is the
    /// failure of the operation.
    ///
    /// Outputs are strings in this protocol. Each is read as the type of its field, as
    /// [`CallResult::outputs_as`] does.
    pub async fn call_typed<Args: Serialize + ?Sized, Outputs: DeserializeOwned>(
        &self,
        operation: &str,
        args: &Args,
        context: CallContext,
    ) -> Result<Result<Outputs, CallFailed>, HostError> {
        let args = serde_json::to_string(args).map_err(|source| HostError::Types { what: "the arguments", source })?;
        let result = self.call_json(operation, &args, context).await?;
        if !result.is_success() {
            return Ok(Err(CallFailed(Box::new(result))));
        }
        result.outputs_as().map(Ok).map_err(|source| HostError::Types { what: "the outputs", source })
    }

    /// Sends a request with any method and parameters. Returns the text of the reply's `result`, or
    /// its `error`. Use it to forward requests, or to test how an extension handles one.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn request(
        &self,
        method: &str,
        params: RawJson<'_>,
        timeout: Duration,
    ) -> Result<Result<String, RpcFailure>, HostError> {
        let connection = self.current();
        let request = Request::Other { method, params };
        match connection.request(&request, deadline(Instant::now(), timeout)).await {
            Ok(Completion::Answer(OwnedReply::Result(text))) => Ok(Ok(text)),
            Ok(Completion::Answer(OwnedReply::Error(error, _))) => Ok(Err(error)),
            Ok(completion) => Err(connection.completion_error(completion, timeout)),
            Err(error) => Err(connection.error(error, method, timeout)),
        }
    }

    /// Cancels all pending calls, and opens a new session. The protocol has no message for that, so
    /// the connection is ended: the process group of a program is ended and the program started
    /// again, the DTR line of a board is dropped and raised, and a TCP connection is opened again.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn cancel(&self) -> Result<(), HostError> {
        self.give_up(TERMINATION).await;
        self.renew(self.options.start_timeout).await
    }

    /// Ends the connection with its pending calls, as [`cancel`](Self::cancel) does. A program has so long to end. The next session
    /// begins with [`reconnect`](Self::reconnect).
    pub(crate) async fn give_up(&self, within: Duration) {
        let connection = self.current();
        if let Some(control) = connection.control() {
            let _ = control.set_dtr(false);
            sleep(DTR_LOW).await;
            let _ = control.set_dtr(true);
        }
        connection.cancel();
        if let Some(child) = connection.child() {
            child.end(within).await;
        }
        connection.close(End::Cancelled);
    }

    /// Connects again after a loss, and opens a new session. A board that is now plugged into
    /// another port is found by its serial number; it is waited for within
    /// [`Options::start_timeout`]. If the connection is open, nothing happens.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn reconnect(&self) -> Result<(), HostError> {
        self.renew(self.options.start_timeout).await
    }

    async fn renew(&self, wait: Duration) -> Result<(), HostError> {
        let _only = self.renewal.lock().await;
        let old = self.current();
        if old.ended().is_none() {
            return Ok(());
        }
        if let Some(child) = old.child() {
            child.kill();
            child.reaped().await;
        }
        // A port is closed before it is opened again.
        drop(old);
        let (connection, manifest) = open(&*self.dialer, &self.options, wait).await?;
        connection.tell(EventKind::Reconnected);
        *lock(&self.manifest) = Arc::new(manifest);
        *lock(&self.current) = Arc::new(connection);
        Ok(())
    }

    /// Ends the session with `shutdown`, and waits for the reply and the end of the process.
    /// Pending calls fail.
    ///
    /// A process that does not end within [`Options::shutdown_timeout`] is terminated, and then
    /// killed. If a call has exceeded its time limit, the process has only half a second.
    ///
    /// # Errors
    /// [`HostError::Gone`] if the device or the connection was lost before.
    pub async fn shutdown(&self) -> Result<Shutdown, HostError> {
        let connection = self.current();
        // It had its time already.
        let after = if connection.is_late() { TERMINATION } else { self.options.shutdown_timeout };
        let mut deadline = deadline(Instant::now(), after);
        let mut report = Shutdown { acknowledged: false, exit: None, killed: false, error: None };
        match connection.request(&Request::Shutdown, deadline).await {
            Ok(Completion::Answer(OwnedReply::Result(_))) => report.acknowledged = true,
            Ok(Completion::Answer(OwnedReply::Error(error, _))) => report.error = Some(error.to_string()),
            Ok(Completion::Answer(OwnedReply::Bad(why, _))) => report.error = Some(why),
            Ok(completion) => report.error = Some(connection.completion_error(completion, after).to_string()),
            // It went at once.
            Err(RequestError::End(End::Exited(_)) | RequestError::Late | RequestError::InputClosed(_)) => {}
            // It cannot tell anything any more, and need not be given long.
            Err(RequestError::End(End::Gone(_))) if connection.child().is_some() => {
                deadline = deadline.min(Instant::now() + TERMINATION);
            }
            Err(error @ RequestError::End(End::Gone(_))) if matches!(connection.ended(), Some(End::Gone(_))) => {
                connection.close(End::ShutDown);
                return Err(connection.error(error, "shutdown", after));
            }
            Err(error) => return Err(connection.error(error, "shutdown", after)),
        }
        if let Some(child) = connection.child() {
            connection.close_input().await;
            let mut ended = timeout_at(deadline, child.ended()).await.ok();
            if ended.is_none() {
                report.killed = true;
                ended = child.end(TERMINATION).await;
            }
            if ended.is_some() {
                // Until its last lines are read.
                let _ = tokio::time::timeout(TERMINATION, connection.wait_for_end()).await;
            }
            connection.close(End::ShutDown);
            report.exit = Some(child.ended().await);
            child.reaped().await;
        }
        connection.close(End::ShutDown);
        Ok(report)
    }

    fn current(&self) -> Arc<Connection> {
        Arc::clone(&lock(&self.current))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("extension", &self.current().name()).finish_non_exhaustive()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.current().abandon();
    }
}

/// The failure of an operation, as an error.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailed(pub Box<CallResult>);

impl fmt::Display for CallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for CallFailed {}

/// Opens a connection and a session.
async fn open(
    dialer: &dyn Connect,
    options: &Arc<Options>,
    wait: Duration,
) -> Result<(Connection, Manifest), HostError> {
    let connection = dial_within(dialer, options, wait).await?;
    let start = deadline(Instant::now(), options.start_timeout);
    let manifest = begin(&connection, options, start).await?;
    Ok((connection, manifest))
}

/// Opens a connection, on which no session has begun.
pub(crate) async fn dial(dialer: &dyn Connect, options: &Arc<Options>) -> Result<Connection, HostError> {
    dial_within(dialer, options, options.wait).await
}

async fn dial_within(dialer: &dyn Connect, options: &Arc<Options>, wait: Duration) -> Result<Connection, HostError> {
    let wire = wire::open(dialer, options, wait).await?;
    let connection = Connection::open(wire, &dialer.name(), options);
    let others = connection.control().map(|control| control.others()).unwrap_or_default();
    if !others.is_empty() {
        connection.tell(EventKind::AlsoOpen(others));
    }
    if !options.boot_delay.is_zero() {
        sleep(options.boot_delay).await;
    }
    Ok(connection)
}

/// Opens a session.
pub(crate) async fn begin(connection: &Connection, options: &Options, until: Instant) -> Result<Manifest, HostError> {
    let config = options.config.as_ref().and_then(|config| RawJson::from_checked_str(config.as_str()).ok());
    connection.initialize(&Request::Initialize { config }, until).await
}

/// Ends a connection without a session: a program is asked to end, a device's DTR drops.
pub(crate) async fn hang_up(connection: Connection) {
    if let Some(control) = connection.control() {
        let _ = control.set_dtr(false);
        sleep(DTR_LOW).await;
        let _ = control.discard();
        let _ = control.set_dtr(true);
    }
    connection.close_input().await;
    if let Some(child) = connection.child()
        && tokio::time::timeout(TERMINATION, child.ended()).await.is_err()
    {
        child.end(TERMINATION).await;
    }
    connection.close(End::ShutDown);
}

/// A number that another session on the same port will not have.
pub(crate) fn random() -> u32 {
    use std::hash::{BuildHasher as _, RandomState};
    // Each RandomState has different keys, from the system's random numbers.
    let hash = RandomState::new().hash_one(SystemTime::now());
    u32::try_from(hash >> 32).unwrap_or_default()
}

/// Longer than any call takes. An [`Instant`] cannot be as late as the latest duration has it.
pub(crate) const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

pub(crate) fn deadline(from: Instant, after: Duration) -> Instant {
    // A century is as good as for ever.
    from.checked_add(after).unwrap_or_else(|| from + Duration::from_secs(3_000_000_000))
}

fn go_duration(duration: Duration) -> GoDuration {
    GoDuration::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// A text of the peer's as it is shown: cut, and what is not UTF-8 replaced.
pub(crate) fn shown(text: &[u8]) -> String {
    let cut = text.get(..TEXT_LIMIT).unwrap_or(text);
    let mut shown = String::from_utf8_lossy(cut).into_owned();
    if cut.len() < text.len() {
        shown.push('…');
    }
    shown
}
