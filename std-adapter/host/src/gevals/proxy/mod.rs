//! One extension at any target, for callers that cannot reach it themselves. `rigline bridge` and `rigline serve` use
//! it.
//!
//! A [`Proxy`] holds the extension. It connects when the first request needs it, and again after a loss. [`Proxy::serve`]
//! serves one caller over a pair of streams, as a gevals extension does; it may run for several callers at once.
//!
//! # Example
//! A program, served to several TCP clients:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use rigline_host::Options;
//! use rigline_host::proxy::{Limits, Proxy, Transport};
//! use tokio::net::TcpListener;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let proxy = Proxy::new("exec:./greeter".parse()?, Options::default(), Limits::default());
//! let listener = TcpListener::bind("127.0.0.1:7000").await?;
//! loop {
//!     let (stream, _) = listener.accept().await?;
//!     let proxy = Arc::clone(&proxy);
//!     tokio::spawn(async move {
//!         let (reader, writer) = stream.into_split();
//!         proxy.serve(reader, writer, Transport::Stream).await
//!     });
//! }
//! # }
//! ```
//!
//! # Who gets what
//! - Calls take turns, in the order in which they came. A call's time limit counts from its arrival: what is left of it in its turn goes to the
//!   extension, and a call whose time is up before gets -32001, which says who holds the extension. Logs go to the caller whose call runs, or ran last.
//! - Ids, arguments and results pass as they are. Faulty requests are answered here, and so are calls whose arguments break the
//!   operation's schema (-32602; with the features `amplifier` or `eval`): the real host sends no such call either.
//! - Every caller has its own session: its `shutdown` does not end another caller's. The extension's session goes on until
//!   [`Proxy::close`], so that what one caller set up the next one finds.
//! - The extension has one `config`. A caller that wants another one while another caller has a session is refused.
//! - A caller that is lost in a session, without `shutdown`, has its call cancelled. If it was the only one, the extension
//!   loses its connection too: hardware goes into its safe state (a program is asked to end by SIGTERM).
//! - A call whose caller is gone when its turn comes is not begun. A caller that only closed its sending half still gets its
//!   answers; where the system does not distinguish the two, as between machines, it counts as one that reads.
//! - Over TCP a caller [may have to](Access) send a token first, as the line
//!   `{"jsonrpc":"2.0","id":0,"method":"authenticate","params":{"token":TOKEN}}`; without an id it gets no answer.
//!
//! # Bounds
//! | what | limit |
//! |---|---|
//! | a request | [`Limits::request`] |
//! | a reply or a log | [`Limits::reply`]; in place of a longer reply goes -32603 with its size, longer logs are shortened |
//! | requests that wait | 64 a caller; what is beyond is left unread |
//! | memory for a line | taken as it comes, and given back |
//! | lines that wait for a caller who does not read | 16 MiB; then it is dropped, as after 10 s in which it takes nothing |
//!
//! A request that is longer than the extension's own limit (`limits` in its manifest) goes without `context.agent`, and
//! then without `context.env`, if that makes it fit; a log says so.

mod callers;
mod session;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rigline::GoDuration;
use rigline::client::Request;
use rigline::json::{Json, Kind, RawJson};
use rigline::protocol::gevals;
use rigline::rpc;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use callers::{CallState, Caller, Ticket};
pub use rigline::serve::Transport;
pub use session::End;

use self::callers::{Callers, InCall};
use crate::by_schema::Schemas;
use crate::host::wire::{self, Connect};
use crate::host::{Direction, Event, EventKind, Host, HostError, JsonObject, Log, NO_LIMIT, Options};
use crate::lines::{self, Entrance, on_one_line, refusal_body};
use crate::target::Target;
use crate::terminal::cut;
use rigline_std::net::{Access, Listeners, Presence, Stream};
use rigline_std::sync::lock;

/// How long a program that lost its caller has to put things in order.
const GRACE: Duration = Duration::from_secs(2);

/// The longest name of an operation in the list of callers, in characters.
const LONGEST_NAME: usize = 100;

/// A call that has waited no longer for its turn goes on with its time limit as it came.
const NO_WAIT: Duration = Duration::from_millis(20);

/// How long lines may be, in bytes without the newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest request that is accepted: 8 MiB.
    pub request: usize,
    /// The longest line that is sent: 8 MiB.
    pub reply: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request: 8 << 20, reply: 8 << 20 }
    }
}

/// One extension for several callers. See the [module](self).
pub struct Proxy {
    dialers: Dialers,
    options: Options,
    limits: Limits,
    /// The caller that holds this lock may call.
    turn: tokio::sync::Mutex<Option<Host>>,
    shared: Arc<Mutex<Shared>>,
    callers: Arc<Callers>,
    /// Changes to who has all calls cancelled.
    halt: watch::Sender<Arc<str>>,
}

/// Makes the connector to the extension, once for each session with it.
type Dialers = Box<dyn Fn(&Options) -> Result<Box<dyn Connect>, HostError> + Send + Sync>;

/// Gets a log line, without its newline.
type OnLog = Arc<dyn Fn(&str) + Send + Sync>;

/// The caller.
struct Calling {
    /// Gets the logs.
    log: OnLog,
    /// Becomes true when the caller has disconnected, or its call is to be cancelled.
    gone: watch::Receiver<bool>,
    /// The connection of the caller, if that can be asked.
    stream: Option<Stream>,
    /// The entry of the caller in the list of callers, if it has one.
    ticket: Option<Arc<Ticket>>,
    /// When its request came.
    arrived: Instant,
}

/// The call that has its turn.
#[derive(Clone)]
struct Held {
    caller: String,
    operation: String,
    since: Instant,
}

/// A call's turn, which ends with this.
struct Turn<'p>(&'p Mutex<Shared>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(self.0).held = None;
    }
}

impl Calling {
    /// The caller's name, for people.
    fn name(&self) -> String {
        if let Some(ends) = self.stream.as_ref().and_then(Stream::ends) {
            return format!("the client at {}", ends.peer);
        }
        self.ticket.as_ref().and_then(|ticket| ticket.name()).unwrap_or_else(|| "another client".to_owned())
    }

    fn is_gone(&self) -> bool {
        *self.gone.borrow() || self.stream.as_ref().is_some_and(|stream| stream.presence() == Presence::Gone)
    }
}

/// A caller's part in the extension's session. However serving the caller ends, its part ends with it.
struct Seat {
    proxy: Arc<Proxy>,
    is_taken: AtomicBool,
}

impl Seat {
    fn new(proxy: &Arc<Proxy>) -> Self {
        Self { proxy: Arc::clone(proxy), is_taken: AtomicBool::new(false) }
    }

    /// While `shared` is locked, so that the count and this agree.
    fn take(&self, shared: &mut Shared) {
        shared.sessions += usize::from(!self.is_taken.swap(true, Ordering::AcqRel));
    }

    fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    /// Returns whether it was the last one.
    fn leave(&self) -> bool {
        let mut shared = lock(&self.proxy.shared);
        let was_taken = self.is_taken.swap(false, Ordering::AcqRel);
        shared.sessions = shared.sessions.saturating_sub(usize::from(was_taken));
        was_taken && shared.sessions == 0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let was_taken = self.is_taken();
        self.leave();
        if was_taken {
            lock(&self.proxy.shared).is_cut = true;
        }
    }
}

#[derive(Default)]
struct Shared {
    config: Option<JsonObject>,
    /// The manifest's text, while there is a session with the extension.
    manifest: Option<Arc<str>>,
    request_limit: Option<usize>,
    /// The schemas of the extension's operations.
    schemas: Option<Schemas>,
    /// Callers that have a session.
    sessions: usize,
    /// The call that has its turn.
    held: Option<Held>,
    /// A caller's session was cut off, and the hardware was not made safe.
    is_cut: bool,
    /// Gets the logs.
    caller: Option<OnLog>,
    /// A log as it came, until the host has reported that it is one.
    raw_log: Option<String>,
}

/// A JSON-RPC error.
#[derive(Debug, Clone)]
struct Refusal {
    code: i32,
    message: String,
    data: Value,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Proxy {
    /// A proxy for an extension, which is not connected to yet. The options' `config` is what callers get that bring none.
    pub fn new(target: Target, options: Options, limits: Limits) -> Arc<Self> {
        Self::over(move |options| wire::dialer(&target, options), options, limits)
    }

    /// As [`new`](Self::new), for an extension that the caller knows how to dial; asked once for each session with it.
    pub fn over(
        dialers: impl Fn(&Options) -> Result<Box<dyn Connect>, HostError> + Send + Sync + 'static,
        mut options: Options,
        limits: Limits,
    ) -> Arc<Self> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (listener, traffic) = (options.listener.take(), options.traffic.take());
        let seen = Arc::clone(&shared);
        options.traffic = Some(Arc::new(move |direction, line| {
            if direction == Direction::Received {
                lock(&seen).raw_log = raw_log(line);
            }
            if let Some(traffic) = &traffic {
                traffic(direction, line);
            }
        }));
        let told = Arc::clone(&shared);
        options.listener = Some(Arc::new(move |event| {
            forward_log(&told, event);
            if let Some(listener) = &listener {
                listener(event);
            }
        }));
        Arc::new(Self {
            dialers: Box::new(dialers),
            options,
            limits,
            turn: tokio::sync::Mutex::new(None),
            shared,
            callers: Callers::new(),
            halt: watch::Sender::new("".into()),
        })
    }

    /// Enters a caller in the list of [`callers`](Self::callers), until the ticket is dropped.
    pub fn enter(&self, name: &str) -> Ticket {
        self.callers.enter(name)
    }

    /// The callers that have [entered](Self::enter), with the state of their newest calls.
    pub fn callers(&self) -> watch::Receiver<Vec<Caller>> {
        self.callers.subscribe()
    }

    /// Cancels all calls, those that wait too, and ends the session with the extension as a loss does, so that hardware goes into its safe
    /// state; then begins a new session. The callers' own sessions go on. `who` is named to callers whose calls are cancelled.
    ///
    /// # Errors
    /// No new session could be begun: in words.
    pub async fn make_safe(&self, who: &str) -> Result<(), String> {
        self.halt.send_replace(who.into());
        let mut turn = self.turn.lock().await;
        let config = lock(&self.shared).config.clone();
        self.forget();
        if let Some(host) = turn.take() {
            end_gently(&host).await;
        }
        self.connect(&mut turn, config).await.map_err(|refusal| refusal.message)
    }

    /// Serves callers that connect and [may ask](Access), up to so many at once; the others are told so, and refused. It
    /// runs until it is dropped.
    ///
    /// # Errors
    /// The listeners cannot be used in this runtime.
    pub async fn serve_tcp(
        self: &Arc<Self>,
        listeners: Vec<std::net::TcpListener>,
        access: Access,
        callers: usize,
    ) -> io::Result<()> {
        let listeners = Listeners::new(listeners)?;
        let mut entrance = Entrance::new(access.clone(), callers);
        let access = Arc::new(access);
        // What is dropped with it ends.
        let mut serving = JoinSet::new();
        loop {
            while serving.try_join_next().is_some() {}
            let Ok(stream) = listeners.accept().await else {
                // Out of file descriptors, most likely: some will be given back.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Some(place) = entrance.admit(&stream) else { continue };
            let (proxy, access) = (Arc::clone(self), Arc::clone(&access));
            serving.spawn(async move {
                proxy.serve_stream(stream, &access).await;
                drop(place);
            });
        }
    }

    /// Ends the session with the extension properly: hardware stays as it is.
    pub async fn close(&self) {
        let mut turn = self.turn.lock().await;
        self.forget();
        if let Some(host) = turn.take() {
            let _ = host.shutdown().await;
        }
    }

    /// As [`close`](Self::close), unless a caller has a session: for an extension that is not in use.
    pub async fn close_if_idle(&self) {
        let mut turn = self.turn.lock().await;
        if lock(&self.shared).sessions > 0 {
            return;
        }
        self.forget();
        if let Some(host) = turn.take() {
            let _ = host.shutdown().await;
        }
    }

    /// Ends the session with the extension at once, whatever runs. If a caller had a session, hardware goes into its safe
    /// state.
    pub async fn abandon(&self) {
        let Ok(mut turn) = tokio::time::timeout(GRACE, self.turn.lock()).await else { return };
        let is_open = {
            let shared = lock(&self.shared);
            shared.sessions > 0 || shared.is_cut
        };
        self.forget();
        match turn.take() {
            Some(host) if is_open => end_gently(&host).await,
            Some(host) => drop(host.shutdown().await),
            None => {}
        }
    }

    /// Ends the session with the extension as a loss does: hardware goes into its safe state.
    async fn lose(&self) {
        let mut turn = self.turn.lock().await;
        if lock(&self.shared).sessions > 0 {
            // Another caller came meanwhile.
            return;
        }
        self.forget();
        if let Some(host) = turn.take() {
            end_gently(&host).await;
        }
    }

    fn forget(&self) {
        let mut shared = lock(&self.shared);
        shared.manifest = None;
        shared.config = None;
        shared.is_cut = false;
    }

    /// Opens a caller's session; returns the manifest.
    async fn initialize(&self, params: Json<'_>, seat: &Seat, calling: &Calling) -> Result<Arc<str>, Refusal> {
        let bad = |text: &str| Refusal { code: rpc::INVALID_PARAMS, message: text.to_owned(), data: Value::Null };
        if params.is_null() {
            return Err(bad("params: required, but missing"));
        }
        if params.get("protocolVersion").and_then(|version| version.text()).is_none_or(|text| text != gevals::VERSION) {
            return Err(bad("params.protocolVersion: only 0.0.1 is supported"));
        }
        let config = params.get("config").filter(|config| !config.is_null());
        if config.is_some_and(|config| config.kind() != Kind::Object) {
            return Err(bad("params.config: expected an object"));
        }
        let config: Option<JsonObject> = match config {
            Some(config) => Some(config.as_str().parse().map_err(|error: HostError| bad(&error.to_string()))?),
            None => self.options.config.clone(),
        };
        // A running call of another caller does not delay the session.
        if let Some(manifest) = self.join(config.as_ref(), seat)? {
            return Ok(manifest);
        }
        let mut turn = self.turn.lock().await;
        if calling.is_gone() {
            return Err(Refusal::internal("the caller has disconnected"));
        }
        if let Some(manifest) = self.join(config.as_ref(), seat)? {
            return Ok(manifest);
        }
        if let Some(host) = turn.take() {
            self.forget();
            let _ = host.shutdown().await;
        }
        self.connect(&mut turn, config).await?;
        let mut shared = lock(&self.shared);
        seat.take(&mut shared);
        Ok(shared.manifest.clone().unwrap_or_else(|| "{}".into()))
    }

    /// Joins the extension's current session, if its configuration fits.
    fn join(&self, config: Option<&JsonObject>, seat: &Seat) -> Result<Option<Arc<str>>, Refusal> {
        let mut shared = lock(&self.shared);
        let Some(manifest) = shared.manifest.clone() else { return Ok(None) };
        // Who brings no config takes what is there.
        if config.is_none() || config == shared.config.as_ref() {
            seat.take(&mut shared);
            return Ok(Some(manifest));
        }
        if shared.sessions > usize::from(seat.is_taken()) {
            return Err(Refusal {
                code: gevals::OPERATION_FAILED,
                message: "another client has a session with another config; it must end first".to_owned(),
                data: Value::Null,
            });
        }
        Ok(None)
    }

    /// Connects to the extension.
    async fn connect(&self, turn: &mut Option<Host>, config: Option<JsonObject>) -> Result<(), Refusal> {
        let mut options = self.options.clone();
        options.config.clone_from(&config);
        let mut at_once = options.clone();
        at_once.wait = Duration::ZERO;
        let host = match self.host(at_once).await {
            Err(error @ (HostError::Busy { .. } | HostError::NoDevice { .. })) if !options.wait.is_zero() => {
                let text = format!("{error}; waiting up to {:?}", options.wait);
                self.tell("warn", &text);
                self.host(options).await
            }
            host => host,
        }
        .map_err(|error| Refusal::of(&error))?;
        let manifest = host.describe();
        let limits = json!({ "request": self.limits.request, "reply": self.limits.reply });
        let mut shared = lock(&self.shared);
        shared.config = config;
        shared.manifest = Some(with_limits(&manifest.text, &limits).into());
        shared.request_limit = manifest.request_limit;
        {
            shared.schemas = Some(Schemas::of(&manifest.operations));
        }
        drop(shared);
        *turn = Some(host);
        Ok(())
    }

    async fn host(&self, options: Options) -> Result<Host, HostError> {
        Host::over((self.dialers)(&options)?, options).await
    }

    /// Runs a call; returns its result's text. Does not begin it, or ends it, when the caller has disconnected.
    async fn execute(&self, params: Json<'_>, seat: &Seat, calling: &Calling) -> Result<String, Refusal> {
        let mut gone = calling.gone.clone();
        let mut halt = self.halt.subscribe();
        let operation = params.get("operation").and_then(|operation| operation.text());
        let operation = operation.map(|operation| operation.to_string()).unwrap_or_default();
        let in_call = calling.ticket.as_ref().map(|ticket| ticket.begin(&cut(&operation, LONGEST_NAME)));
        let deadline = deadline_of(params, calling.arrived);
        let mut turn = tokio::select! {
            biased;
            turn = self.turn.lock() => turn,
            () = lines::at(deadline.map(Into::into)) => return Err(self.waited_too_long(calling.arrived)),
            _ = halt.changed() => return Err(Refusal::halted(&halt)),
            () = async { drop(gone.wait_for(|gone| *gone).await) } => return Err(Refusal::internal("the caller has disconnected")),
        };
        if calling.is_gone() {
            return Err(Refusal::internal("the caller has disconnected"));
        }
        let waited = calling.arrived.elapsed();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(self.waited_too_long(calling.arrived));
        }
        in_call.iter().for_each(InCall::runs);
        let _turn = {
            let mut shared = lock(&self.shared);
            shared.caller = Some(Arc::clone(&calling.log));
            let held = Held { caller: calling.name(), operation: cut(&operation, LONGEST_NAME), since: Instant::now() };
            shared.held = Some(held);
            Turn(&self.shared)
        };
        match turn.as_ref() {
            Some(host) if host.is_connected() => {}
            Some(host) => host.reconnect().await.map_err(|error| Refusal::of(&error))?,
            None => {
                // One-shot use: no caller has asked for a session.
                self.connect(&mut turn, self.options.config.clone()).await?;
            }
        }
        let Some(host) = turn.as_ref() else { return Err(Refusal::internal("there is no connection")) };
        let mut text = if params.is_null() { "{}".to_owned() } else { on_one_line(params.as_str()).into_owned() };
        {
            let shared = lock(&self.shared);
            let schemas = shared.schemas.as_ref();
            let named = schemas.and_then(|schemas| schemas.spelled(&operation)).unwrap_or(&operation).to_owned();
            if let Some(message) = schemas.and_then(|schemas| misfit(schemas, &named, params)) {
                return Err(Refusal { code: rpc::INVALID_PARAMS, message, data: Value::Null });
            }
            drop(shared);
            if named != operation {
                text = with_operation(params, &named);
            }
        }
        // What is left of its limit is the extension's to keep.
        if let Some(left) = left.filter(|_| waited > NO_WAIT)
            && let Some(limited) = with_timeout(&text, left)
        {
            text = limited;
        }
        let limit = lock(&self.shared).request_limit;
        if let Some(limit) = limit {
            self.fit(&mut text, limit)?;
        }
        let raw = RawJson::from_checked_str(&text).map_err(|error| Refusal::internal(error.to_string()))?;
        let request = host.request("execute", raw, self.patience(params, left));
        tokio::select! {
            answer = request => match answer {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(error)) => Err(Refusal {
                    code: error.code.unwrap_or(gevals::OPERATION_FAILED),
                    message: error.message,
                    data: error.data,
                }),
                Err(error) => Err(Refusal::of(&error)),
            },
            _ = halt.changed() => {
                host.give_up(GRACE).await;
                Err(Refusal::halted(&halt))
            }
            () = async { drop(gone.wait_for(|gone| *gone).await) } => {
                let is_last = seat.is_taken() && lock(&self.shared).sessions == 1;
                if is_last {
                    // It loses its connection anyway: to start it again would only delay that.
                    host.give_up(GRACE).await;
                } else {
                    let _ = host.cancel().await;
                }
                Err(Refusal::internal("the caller has disconnected"))
            }
        }
    }

    /// The time limit of a call: longer than its own timeout, so that the extension's timeout error arrives first. A
    /// timeout of zero is no limit, as in extensions.
    fn patience(&self, params: Json<'_>, left: Option<Duration>) -> Duration {
        match (left, timeout_of(params)) {
            (Some(left), _) => left.saturating_add(self.options.grace).min(NO_LIMIT),
            (None, None) => self.options.call_timeout,
            (None, Some(_)) => NO_LIMIT,
        }
    }

    /// The answer to a call whose time limit passed before its turn.
    fn waited_too_long(&self, arrived: Instant) -> Refusal {
        let waited = arrived.elapsed().as_secs_f64();
        let mut message = format!("the time limit passed after {waited:.1} s in the queue");
        if let Some(Held { caller, operation, since }) = lock(&self.shared).held.clone() {
            message += &format!(": {operation} has run for {:.1} s, for {caller}", since.elapsed().as_secs_f64());
        }
        Refusal { code: gevals::TIMEOUT, message, data: Value::Null }
    }

    /// Shortens a request's parameters to the extension's limit.
    fn fit(&self, params: &mut String, limit: usize) -> Result<(), Refusal> {
        // The parameters are on one line by now.
        let size = |params: &str| {
            let params = RawJson::from_checked_str(params).map_err(|error| Refusal::internal(error.to_string()))?;
            Ok(Request::Other { method: "execute", params }.measure() - 1)
        };
        for name in ["agent", "env"] {
            if size(params)? <= limit {
                return Ok(());
            }
            if let Some(without) = without(params, name) {
                *params = without;
                self.tell(
                    "warn",
                    &format!("context.{name} was omitted, since the request does not fit {limit} bytes with it"),
                );
            }
        }
        let needed = size(params)?;
        if needed <= limit {
            return Ok(());
        }
        let message = format!("request too large: it needs {needed} bytes, and the device accepts {limit}");
        Err(Refusal { code: rpc::INTERNAL_ERROR, message, data: Value::Null })
    }

    /// Sends a log of the proxy's to the caller.
    fn tell(&self, level: &str, message: &str) {
        let line = json!({ "jsonrpc": "2.0", "method": "log", "params": { "level": level, "message": message } });
        let caller = lock(&self.shared).caller.clone();
        if let Some(caller) = caller {
            caller(&line.to_string());
        }
    }
}

/// Asks a program to end, so that it can put its hardware into the safe state, and then drops the connection.
async fn end_gently(host: &Host) {
    if let Some(child) = host.child() {
        child.end(GRACE).await;
    }
}

impl Refusal {
    fn internal(message: impl Into<String>) -> Self {
        Self { code: rpc::INTERNAL_ERROR, message: message.into(), data: Value::Null }
    }

    fn halted(halt: &watch::Receiver<Arc<str>>) -> Self {
        let message = format!("the call was cancelled: {} switched everything off", *halt.borrow());
        Self { code: gevals::OPERATION_FAILED, message, data: Value::Null }
    }

    fn of(error: &HostError) -> Self {
        let code = match error {
            HostError::Timeout { .. } | HostError::Late { .. } | HostError::StartTimeout { .. } => gevals::TIMEOUT,
            HostError::Refused { error, .. } => error.code.unwrap_or(gevals::OPERATION_FAILED),
            HostError::BadReply { .. } | HostError::LineTooLong { .. } | HostError::RequestTooLarge { .. } => {
                rpc::INTERNAL_ERROR
            }
            _ => gevals::OPERATION_FAILED,
        };
        let mut message = error.to_string();
        if message.len() > 2000 {
            let end = (0..=2000).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
            message.truncate(end);
            message.push('…');
        }
        Self { code, message, data: Value::Null }
    }

    /// The text after a reply's id.
    fn body(&self) -> String {
        if self.data.is_null() {
            return refusal_body(self.code, &self.message);
        }
        let error = json!({ "code": self.code, "message": self.message, "data": self.data });
        format!(",\"error\":{error}}}")
    }
}

/// The time limit that a call brings.
fn timeout_of(params: Json<'_>) -> Option<Duration> {
    let timeout = params.get("context").and_then(|context| context.get("timeout")?.text())?;
    Duration::try_from(GoDuration::parse(&timeout.to_cow()).ok()?).ok()
}

/// When the time limit of a call has passed, which counts from its arrival; none if it has none.
fn deadline_of(params: Json<'_>, arrived: Instant) -> Option<Instant> {
    arrived.checked_add(timeout_of(params).filter(|timeout| !timeout.is_zero())?)
}

/// The parameters with what is left of their time limit; none if they bring none.
fn with_timeout(params: &str, left: Duration) -> Option<String> {
    let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
    with_context(params, "timeout", Some(&format!("\"{left}ms\"")))
}

/// The parameters without a member of their context; none if it has no such member.
fn without(params: &str, name: &str) -> Option<String> {
    with_context(params, name, None)
}

/// The parameters with another value of a member of their context, or without it; none if it has no such member.
fn with_context(params: &str, name: &str, value: Option<&str>) -> Option<String> {
    let params = Json::parse(params.as_bytes()).ok()?;
    let context = params.get("context")?;
    context.get(name)?;
    let object = |members: Vec<String>| format!("{{{}}}", members.join(","));
    let kept = context.members().filter_map(|(key, old)| match value {
        _ if key != *name => Some(format!("\"{}\":{old}", key.raw())),
        value => Some(format!("\"{}\":{}", key.raw(), value?)),
    });
    let context = object(kept.collect());
    Some(object(
        params
            .members()
            .map(
                |(key, value)| {
                    if key == "context" {
                        format!("\"context\":{context}")
                    } else {
                        format!("\"{}\":{value}", key.raw())
                    }
                },
            )
            .collect(),
    ))
}

/// Why the arguments of a call break the schema of its operation, if they do.
fn misfit(schemas: &Schemas, name: &str, params: Json<'_>) -> Option<String> {
    // As for the real host, absent and null arguments are an empty object.
    let args = params.get("args").filter(|args| !args.is_null()).map_or("{}", |args| args.as_str());
    schemas.refusal(name, args)
}

/// The parameters of a call, with the operation's own name.
fn with_operation(params: Json<'_>, name: &str) -> String {
    let members = params.members().map(|(key, value)| {
        if key == "operation" {
            format!("\"operation\":{}", Value::from(name))
        } else {
            format!("\"{}\":{}", key.raw(), on_one_line(value.as_str()))
        }
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// A line that is a log as the real host wants it, to be passed as it is.
fn raw_log(line: &[u8]) -> Option<String> {
    // Replies, most of them, are not looked at any further.
    if !line.windows(5).any(|part| part == b"\"log\"") {
        return None;
    }
    let json = Json::parse(line).ok()?;
    let params = json.get("params")?;
    let is = |member: Option<Json<'_>>, text: &str| {
        member.and_then(|member| member.text()).is_some_and(|found| found == *text)
    };
    let fits = is(json.get("jsonrpc"), "2.0")
        && is(json.get("method"), "log")
        && json.get("id").is_none()
        && params.get("level").is_some_and(|level| level.kind() == Kind::String)
        && params.get("message").is_some_and(|message| message.kind() == Kind::String)
        && params.get("data").is_none_or(|data| data.kind() == Kind::Object);
    fits.then(|| json.as_str().replace('\r', " "))
}

fn forward_log(shared: &Mutex<Shared>, event: &Event) {
    let EventKind::Log(log) = &event.kind else { return };
    let mut shared = lock(shared);
    let line = shared.raw_log.take().unwrap_or_else(|| log_line(log));
    let caller = shared.caller.clone();
    drop(shared);
    if let Some(caller) = caller {
        caller(&line);
    }
}

/// A log in the form that the real host shows: it drops one whose data is not an object.
fn log_line(log: &Log) -> String {
    let mut params = Map::new();
    params.insert("level".into(), log.level.name().into());
    params.insert("message".into(), log.message.as_str().into());
    match &log.data {
        None => {}
        Some(data @ Value::Object(_)) => drop(params.insert("data".into(), data.clone())),
        Some(data) => drop(params.insert("data".into(), json!({ "value": data }))),
    }
    json!({ "jsonrpc": "2.0", "method": "log", "params": params }).to_string()
}

/// A manifest's text with other limits; everything else as it came, digits and all.
fn with_limits(manifest: &str, limits: &Value) -> String {
    let json = Json::parse(manifest.as_bytes()).unwrap_or(Json::NULL);
    let mut text = String::from("{");
    for (name, value) in json.members() {
        let name = name.to_string();
        if name != "limits" {
            text.push_str(&format!("{}:{},", Value::from(name), on_one_line(value.as_str())));
        }
    }
    text + &format!("\"limits\":{limits}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_left_out_and_the_rest_stays_as_it_is() {
        let params =
            r#"{"operation":"a\u0062","args":{"n":1.50,"env":1},"context":{"env":{"A":"b"},"workdir":"/","agent":{}}}"#;
        let table = [
            (
                "agent",
                Some(r#"{"operation":"a\u0062","args":{"n":1.50,"env":1},"context":{"env":{"A":"b"},"workdir":"/"}}"#),
            ),
            ("env", Some(r#"{"operation":"a\u0062","args":{"n":1.50,"env":1},"context":{"workdir":"/","agent":{}}}"#)),
            ("phase", None),
        ];
        for (name, left) in table {
            assert_eq!(without(params, name).as_deref(), left, "{name}");
        }
        assert_eq!(without("[1]", "env"), None);
    }

    #[test]
    fn logs_that_the_real_host_would_drop_are_rewritten() {
        let fine = br#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m","data":{"n":1.50}}}"#;
        assert_eq!(raw_log(fine).unwrap().as_bytes(), fine);
        // O 3: levels that are not in the text occur, and pass.
        let fatal = br#"{"jsonrpc":"2.0","method":"log","params":{"level":"fatal","message":"m"}}"#;
        assert_eq!(raw_log(fatal).unwrap().as_bytes(), fatal);
        for odd in [
            &br#"{"method":"log","params":{"level":"info","message":"m"}}"#[..],
            br#"{"jsonrpc":"2.0","method":"log","params":{"level":3,"message":"m"}}"#,
            br#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m","data":[1]}}"#,
            br#"{"jsonrpc":"2.0","method":"log","params":{"level":"info"}}"#,
            b"nonsense",
        ] {
            assert_eq!(raw_log(odd), None);
        }
    }
}
