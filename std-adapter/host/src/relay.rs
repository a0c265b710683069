//! A remote extension as a local one, so that any protocol and any transport can serve it.
//!
//! A [`Relay`] is an [`Extension`] whose handler passes each call on to a [`Target`]: a program, a
//! device or a server. The module [`choose`] decides by which protocol the target is asked. A
//! server of MCP prefers MCP. Otherwise Amplifier's protocol is used if the target answers it, as
//! rigline's own extensions do: results then keep their types, and failures their codes. If it does
//! not, gevals is used, whose outputs are strings.
//!
//! Arguments that break the schema of an operation are refused by the relay, and not sent. A
//! decimal that namel3ss writes as a string is sent as a number where the schema wants a number.
//!
//! Parts of a call that only one of the two protocols has are lost. The members `entry`, `trace_id`
//! and `project` of namel3ss do not reach the target. A relay keeps no
//! [guarantees](rigline::Guarantee), since nothing is known about the work of the target.
//! A configuration and the context of a gevals call reach a target that is asked by gevals, and a
//! server of rigline's own. Logs go to the [listener](Options::listener).
//! A part of a call or of its result that the protocol of the clients or the protocol of the target
//! [does not carry](crate::protocol::Protocol::carries) is reported once, on standard error and by a log.
//!
//! A relay that [`Relay::on_demand`] makes connects to the target when it is first needed, and again
//! after its session has ended. One that [`Relay::watch_on_demand`] makes also looks whether the target
//! comes, goes or has other operations. If a request is longer than the target accepts, it is sent without
//! `context.agent`, and then without `context.env`; a log says so.
//!
//! A call is given up when its time is over or its caller is gone. It is then cancelled at the
//! target too: a program is ended and started again for the next call, and a connection is opened
//! again. A call that only reads goes on there instead, without its time limit, if something may be on
//! that the end of the call would switch off. The target says which operations only read, as MCP's
//! `readOnlyHint`; each other call counts as one that changes something. When the session of the relay's own client is lost, the session with the target is also
//! ended as a loss, so that the target brings about its safe state. A session of an MCP client
//! always ends like that. A relay that is dropped ends its session regularly, and waits for that.
//!
//! ```no_run
//! use rigline_host::Options;
//! use rigline_std::http::{self, HttpServer};
//! use rigline_host::relay::Relay;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let relay = Relay::connect(&"serial:auto".parse()?, Options::default())?;
//! let server = HttpServer::bind("127.0.0.1:8080", http::Options::amplifier())?;
//! server.run(move |_| relay)?;
//! # Ok(())
//! # }
//! ```

mod losses;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use rigline::json::{Json, JsonKind, RawJson};
use rigline::{
    Call, Config, Content, Context, Extension, Failure, FailureKind, Level, Manifest, Operation, Outcome, Schema,
};
use rigline::{Effects, MAX_IDENTIFIER};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::backlog;
use crate::choose::{self, Chosen, ProtocolNeed};
use crate::client::{self, CallRequest, Cause, Client, ClientError, ClientOptions, Described, Description, Part};
use crate::coerce::Schemas;
use crate::host::wire::Connect;
use crate::host::{Event, EventKind, HostError, JsonObject, Log, NO_LIMIT, Options};
use crate::lines::on_one_line;
use crate::protocol::Protocol;
use crate::protocols::{self, passing};
use crate::target::Target;
use crate::terminal::cut;
use losses::{AskedBy, Losses};
use rigline_std::between::Renewal;
use rigline_std::mutex::lock;
use rigline_std::queue::{Absence, Reaching, RemoteExtension};
use rigline_std::stderr::complain;

/// How long a description may take.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an event may take.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How many log lines, and how many bytes of them, wait for the caller of a call. Further ones are dropped, and counted.
const LOGS: usize = 4096;
const LOG_BYTES: usize = 4 << 20;

/// The longest reason why the other end is not there, in characters.
const REASON: usize = 2000;

/// The number of distinct failure codes that a relay preserves. Further ones are replaced by the
/// code of their kind.
const CODES: usize = 64;

/// An extension whose calls are passed on to a target. The [module](self) describes it.
pub struct Relay {
    known: Arc<Mutex<Known>>,
    renewal: Arc<OnceLock<Renewal>>,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    codes: Vec<&'static str>,
    losses: Losses,
    /// A call did not end by itself.
    was_cut_off: bool,
    /// Logs for the caller.
    logs: backlog::Receiver<Log>,
    /// A caller waits, who gets the logs. Without one they go to the listener.
    is_calling: Arc<AtomicBool>,
    /// The target has logged during a call.
    has_logged: Arc<AtomicBool>,
}

/// The reason why a relay could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The target does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A thread or a runtime cannot be started.
    #[error("the relay cannot be started: {0}")]
    Start(#[from] io::Error),
}

impl RelayError {
    /// Returns whether the target did not answer within the time limit.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Client(error) => error.is_timeout(),
            Self::Start(_) => false,
        }
    }

    /// The reason that a client is told.
    fn absence(&self) -> Absence {
        let (kind, code) = match self {
            Self::Client(ClientError::Host(HostError::Refused { error, .. })) => {
                (passing::kind(error.code), error.code.unwrap_or(passing::FAILED))
            }
            Self::Client(error) => kind_of(error),
            Self::Start(_) => (FailureKind::Internal, rigline::rpc::INTERNAL_ERROR),
        };
        Absence { kind, code, message: cut(&self.to_string(), REASON) }
    }

    /// Whether the other end may come if it is waited for.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Client(ClientError::Host(HostError::Busy { .. } | HostError::NoDevice { .. })))
    }
}

/// The kind of a failure to get an answer, and its code in JSON-RPC.
fn kind_of(error: &ClientError) -> (FailureKind, i32) {
    match error {
        _ if error.is_timeout() => (FailureKind::Timeout, passing::TIMEOUT),
        ClientError::Host(HostError::BadReply { .. } | HostError::LineTooLong { .. }) => {
            (FailureKind::Internal, rigline::rpc::INTERNAL_ERROR)
        }
        ClientError::Other { cause: Cause::Usage, .. } => (FailureKind::BadArguments, rigline::rpc::INVALID_PARAMS),
        _ => (FailureKind::NoAnswer, passing::FAILED),
    }
}

/// A job for the connection's thread.
#[derive(Debug)]
enum Job {
    Call {
        request: CallRequest,
        /// The caller knows the operation as one that only reads.
        only_reads: bool,
        answer: oneshot::Sender<RelayedOutcome>,
    },
    /// Open a session with the target. Events that take long are reported.
    Reach { told: mpsc::UnboundedSender<String>, answer: oneshot::Sender<Result<(), Absence>> },
    /// Open a session with the target, with this configuration.
    Configure { config: JsonObject, answer: oneshot::Sender<Result<(), Absence>> },
    /// End the connection. The next call opens it again.
    Release(oneshot::Sender<()>),
    /// End the connection as a loss does, so that the target brings about its safe state.
    Abandon(oneshot::Sender<()>),
    /// End the connection if a call that nobody waits for is still running there.
    Settle(oneshot::Sender<()>),
}

/// The outcome of a call: outputs as JSON texts, and how it ended.
#[derive(Debug)]
struct RelayedOutcome {
    outputs: Vec<(String, String)>,
    /// Blocks beside the outputs, with the text of the message among them.
    content: Vec<String>,
    end: Result<Option<String>, Fault>,
}

#[derive(Debug)]
struct Fault {
    kind: FailureKind,
    code: Option<String>,
    message: String,
}

/// The description of the other end, as of when it was last there.
struct Known {
    manifest: &'static Manifest,
    service: RelayService,
    /// Operations that have another name here, and the name that they have there.
    renamed: Vec<(&'static str, String)>,
    schemas: Arc<Schemas>,
    /// The manifest's text. Another one is another manifest.
    text: String,
    /// Why the target is not there, if it is not.
    absence: Option<String>,
    /// Whether there is a session with it, or was one that was lost.
    is_open: bool,
    /// How it was asked last.
    asked_by: Option<AskedBy>,
}

/// How the operations of the other end are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RelayService {
    /// They are served to agents, which call operations by their identifiers alone. Other hosts call
    /// each by its own name.
    is_for_agents: bool,
    /// The other end is reached when a client needs it.
    is_lazy: bool,
    /// Clients are told when they become others.
    is_watched: bool,
}

/// News about the target, for [`Relay::watch`].
#[derive(Debug, Clone)]
pub enum TargetNews {
    /// The target is present, and this is its description.
    Present(Box<Described>),
    /// The target is absent, for this reason.
    Absent(String),
}

/// A function that gets news about the target.
pub type OnTargetNews = Arc<dyn Fn(&TargetNews) + Send + Sync>;

/// The only operation where the other end has never been there.
const FIND: &str = "find_board";

static NOTHING_KNOWN: Manifest = {
    let mut manifest =
        Manifest::new("rigline", env!("CARGO_PKG_VERSION")).operations(&[Operation::new(FIND, Schema::OBJECT)
            .description("Looks for the board, which is not there. Its tools are listed once it is found.")
            .effects(Effects::READ_ONLY)]);
    manifest.can_change = true;
    manifest
};

/// A function that makes the dialer for each session with the target.
pub type Dialer = Arc<dyn Fn(&Options) -> Result<Box<dyn Connect>, HostError> + Send + Sync>;

/// How the other end is reached and asked.
struct Way {
    target: Target,
    dialer: Option<Dialer>,
    options: Options,
    need: ProtocolNeed,
}

/// The behaviour of a relay beside passing calls on.
#[derive(Default)]
struct Manner {
    /// Logs and progress go to the caller.
    takes_logs: bool,
    /// It reaches the other end when something is first asked for.
    is_lazy: bool,
    watch: Option<OnTargetNews>,
    /// The other end as it was when it was last there.
    last: Option<Described>,
}

/// A handle on the target of a [`Relay`], for the server before the relay.
#[derive(Clone)]
pub struct Remote {
    jobs: mpsc::WeakSender<Job>,
    known: Arc<Mutex<Known>>,
    renewal: Arc<OnceLock<Renewal>>,
    /// The server offers only a part of the operations.
    is_partial: bool,
}

impl Remote {
    /// The handle for a server that offers only a part of the relay's operations. It reads the
    /// manifest of the extension that selects them.
    #[must_use]
    pub fn partial(self) -> Self {
        Self { is_partial: true, ..self }
    }

    /// Ends the session and the connection as soon as no call runs, so that another program can use
    /// the target. The next call opens them again.
    pub async fn release(&self) {
        self.end(Job::Release).await;
    }

    /// Ends the session as a loss does, so that the target brings about its safe state.
    pub async fn abandon(&self) {
        self.end(Job::Abandon).await;
    }

    /// The same, if a call that was given up goes on there.
    async fn settle(&self) {
        self.end(Job::Settle).await;
    }

    /// Ends the session and the connection, and takes over the description `described`. It holds
    /// until a connection is opened again, which may reach another target.
    pub async fn forget(&self, described: &Described) {
        self.release().await;
        let mut known = lock(&self.known);
        let service = known.service;
        if let Some(present) = Known::present(described, service) {
            *known = present;
        }
        known.is_open = false;
    }

    /// Opens the connection, and learns the operations of the target.
    ///
    /// # Errors
    /// The target is absent. The text says why.
    pub async fn find(&self) -> Result<(), String> {
        let request = CallRequest { operation: FIND.to_owned(), args: "{}".to_owned(), ..CallRequest::default() };
        let jobs = self.jobs.upgrade();
        ask(jobs.as_ref(), request, false).await.end.map(drop).map_err(|fault| fault.message)
    }

    async fn end(&self, job: fn(oneshot::Sender<()>) -> Job) {
        let (done, told) = oneshot::channel();
        if let Some(jobs) = self.jobs.upgrade()
            && jobs.send(job(done)).await.is_ok()
        {
            let _ = told.await;
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &lock(&self.known).manifest.name).finish_non_exhaustive()
    }
}

impl RemoteExtension for Remote {
    fn manifest(&self) -> Option<&'static Manifest> {
        let known = lock(&self.known);
        (known.is_open && !self.is_partial).then_some(known.manifest)
    }

    fn is_reached(&self) -> bool {
        lock(&self.known).is_open
    }

    /// Clients that are told when the target comes have what is known of it until then. So have all
    /// clients of a relay that has looked for it at its start, if something is known.
    fn has_stand_in(&self, protocol: &rigline::protocol::Protocol) -> bool {
        let known = lock(&self.known);
        let is_missed = known.absence.as_ref().is_some_and(|why| !why.is_empty());
        is_missed && (protocols::changes_in(protocol).is_some() || !known.service.is_lazy && !known.text.is_empty())
    }

    fn begin(&self, renewal: Renewal) {
        let _ = self.renewal.set(renewal);
    }

    fn reach<'a>(&'a self, told: &'a (dyn Fn(&str) + Send + Sync)) -> Reaching<'a> {
        Box::pin(async move {
            let (tell, mut texts) = mpsc::unbounded_channel();
            let (answer, answered) = oneshot::channel();
            if let Some(jobs) = self.jobs.upgrade() {
                let _ = jobs.send(Job::Reach { told: tell, answer }).await;
            }
            let mut answered = pin!(answered);
            loop {
                tokio::select! {
                    biased;
                    Some(text) = texts.recv() => told(&text),
                    answer = &mut answered => return answer.unwrap_or_else(|_| Err(ended())),
                }
            }
        })
    }
}

/// The relay is not there any more.
fn ended() -> Absence {
    let (kind, code) = (FailureKind::Unreachable, passing::FAILED);
    Absence { kind, code, message: "the relay has ended".to_owned() }
}

impl Relay {
    /// A relay that connects to the target when it is first needed. The protocol is chosen by
    /// `need`. Logs and progress go to the caller.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn on_demand(target: Target, options: Options, need: ProtocolNeed) -> Result<Self, RelayError> {
        Self::on_demand_over(target, None, options, need)
    }

    /// A relay as [`on_demand`](Self::on_demand) makes it, over connections that `dialer` opens. The
    /// dialer is called once for each session.
    ///
    /// # Errors
    /// As [`on_demand`](Self::on_demand).
    pub fn on_demand_over(
        target: Target,
        dialer: Option<Dialer>,
        mut options: Options,
        need: ProtocolNeed,
    ) -> Result<Self, RelayError> {
        options.reconnect = true;
        options.call_timeout = NO_LIMIT;
        let manner = Manner { takes_logs: true, is_lazy: true, ..Manner::default() };
        Self::start(Way { target, dialer, options, need }, manner)
    }

    /// A relay as [`on_demand`](Self::on_demand) makes it, that watches the target from then on. The
    /// target may come and go, and have other operations when it comes again: `told` gets the news,
    /// and so does the server that the [handle](Self::remote) was given to. While the target is
    /// absent, it is looked for as long as a client of that server wants to know.
    ///
    /// # Errors
    /// As [`on_demand`](Self::on_demand).
    pub fn watch_on_demand(
        target: Target,
        mut options: Options,
        need: ProtocolNeed,
        told: OnTargetNews,
    ) -> Result<Self, RelayError> {
        options.call_timeout = NO_LIMIT;
        let manner = Manner { takes_logs: true, is_lazy: true, watch: Some(told), last: None };
        Self::start(Way { target, dialer: None, options, need }, manner)
    }

    /// Returns a handle on the target, for the server before the relay.
    pub fn remote(&self) -> Remote {
        let jobs = self.jobs.as_ref().map(mpsc::Sender::downgrade);
        Remote {
            jobs: jobs.unwrap_or_else(|| mpsc::channel(1).0.downgrade()),
            known: Arc::clone(&self.known),
            renewal: Arc::clone(&self.renewal),
            is_partial: false,
        }
    }

    /// Makes a relay, connects to the target, and asks for its description. It blocks until that is
    /// known, so it must not be called in an async context.
    ///
    /// With a [`config`](Options::config), the target is asked by gevals, since only gevals has a
    /// configuration.
    ///
    /// # Errors
    /// The target cannot be reached, or answers no known protocol.
    pub fn connect(target: &Target, options: Options) -> Result<Self, RelayError> {
        Self::connect_by(target, options, None)
    }

    /// Makes a relay as [`connect`](Self::connect) does, and uses the protocol `first` if the
    /// target answers it. Logs and progress then go to the caller and not to the listener.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_by(
        target: &Target,
        mut options: Options,
        first: Option<&'static Protocol>,
    ) -> Result<Self, RelayError> {
        options.reconnect = true;
        let manner = Manner { takes_logs: first.is_some(), ..Manner::default() };
        Self::start(Way::to(target, options, first), manner)
    }

    /// Makes a relay as [`connect_by`](Self::connect_by) does, for a target that comes and goes,
    /// and whose operations may change meanwhile. While the target is absent, the relay has the
    /// operations of `last`, marked as absent. Each call looks for the target, and fails with the
    /// reason if it is not found. `told` gets the news when the target comes, goes or has other
    /// operations; the manifest of the relay has then changed.
    ///
    /// A rig of the lab is not held while no call needs it, since others may wait for it. If `last`
    /// is known, the rig is not asked; otherwise it is given back after it has described itself.
    /// After a call the rig is kept until [`Remote::release`].
    ///
    /// # Errors
    /// A thread cannot be started, or the target is a program that cannot be started.
    pub fn watch(
        target: &Target,
        options: Options,
        first: Option<&'static Protocol>,
        last: Option<Described>,
        told: OnTargetNews,
    ) -> Result<Self, RelayError> {
        let manner = Manner { takes_logs: first.is_some(), is_lazy: false, watch: Some(told), last };
        Self::start(Way::to(target, options, first), manner)
    }

    fn start(mut way: Way, manner: Manner) -> Result<Self, RelayError> {
        let Manner { takes_logs, is_lazy, watch, last } = manner;
        let (log, logs) = backlog::backlog(LOGS, LOG_BYTES);
        let others = way.options.listener.take();
        let losses = Losses::new(&way.target);
        let is_calling = Arc::new(AtomicBool::new(false));
        let has_caller = is_calling.clone();
        let has_logged = Arc::new(AtomicBool::new(false));
        let logged = has_logged.clone();
        way.options.listener = Some(Arc::new(move |event: &Event| match &event.kind {
            EventKind::Fault(text) if takes_logs && has_caller.load(Ordering::Relaxed) => {
                let line =
                    Log { level: Level::Warn, level_name: None, message: text.clone(), data: None, data_text: None };
                let size = size_of(&line);
                logged.store(true, Ordering::Relaxed);
                log.send(line, size);
                others.iter().for_each(|listener| listener(event));
            }
            EventKind::Log(line) if has_caller.load(Ordering::Relaxed) => {
                logged.store(true, Ordering::Relaxed);
                if takes_logs {
                    log.send(line.clone(), size_of(line));
                } else {
                    others.iter().for_each(|listener| listener(event));
                }
            }
            _ => others.iter().for_each(|listener| listener(event)),
        }));
        let (jobs, queue) = mpsc::channel(1);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // What can come later is waited for; a program is there or is not.
        let may_come = watch.is_some() && !matches!(way.target, Target::Exec(_) | Target::Replay(_) | Target::Sim);
        // Nobody looks for a rig that is another's all the time: that would take it whenever it is free.
        let is_rig = watch.is_some() && matches!(way.target, Target::Rig(_));
        let is_known = is_rig && last.is_some();
        // It is asked by agents' protocol, since it is served in that.
        let service = RelayService { is_for_agents: takes_logs && !is_lazy, is_lazy, is_watched: watch.is_some() };
        let known = match &last {
            Some(last) if is_rig => Known::last(Some(last), service),
            last => Known::absent(last.as_ref(), String::new(), service),
        };
        let known = Arc::new(Mutex::new(known));
        let shared = Arc::clone(&known);
        let renewal = Arc::<OnceLock<Renewal>>::default();
        let asked = Arc::clone(&renewal);
        let thread = thread::Builder::new().name("rigline-relay".into()).spawn(move || {
            runtime.block_on(async {
                let mut end = OtherEnd {
                    wait: way.options.wait,
                    config: way.options.config.clone(),
                    way,
                    known: shared,
                    renewal: asked,
                    watch,
                    may_come: may_come && !is_rig,
                    is_lazy,
                    open: None,
                    traces: Traces::default(),
                    is_cancel_said: false,
                };
                let opened = if is_lazy || is_known { Ok(()) } else { end.reach().await };
                if is_rig {
                    end.close().await;
                }
                let is_there = opened.is_ok() || may_come;
                let _ = tell.send(opened.or_else(|error| if may_come { Ok(()) } else { Err(error) }));
                if is_there {
                    // Later on, nothing is waited for.
                    if end.watch.is_some() && !is_lazy {
                        end.wait = Duration::ZERO;
                    }
                    end.pass_on(queue).await;
                }
            });
            runtime.shutdown_background();
        })?;
        told.recv().map_err(io::Error::other)??;
        Ok(Self {
            known,
            renewal,
            jobs: Some(jobs),
            thread: Some(thread),
            codes: Vec::new(),
            losses,
            was_cut_off: false,
            logs,
            is_calling,
            has_logged,
        })
    }

    /// Returns the reason why the target is absent. Returns `None` if it is present, or if the
    /// relay does not [watch](Self::watch) it.
    pub fn absence(&self) -> Option<String> {
        lock(&self.known).absence.clone()
    }

    /// Ends the connection, so that another program can use the target. The next call opens it
    /// again.
    #[doc(hidden)]
    pub async fn release(&self) {
        self.remote().release().await;
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

async fn ask(jobs: Option<&mpsc::Sender<Job>>, request: CallRequest, only_reads: bool) -> RelayedOutcome {
    let gone = || fault(FailureKind::Unreachable, ended().message);
    let (answer, told) = oneshot::channel();
    match jobs {
        Some(jobs) if jobs.send(Job::Call { request, only_reads, answer }).await.is_ok() => {
            told.await.unwrap_or_else(|_| gone())
        }
        _ => gone(),
    }
}

/// While it is there, a caller waits.
struct Calling<'c>(&'c AtomicBool);

impl<'c> Calling<'c> {
    fn begin(is_calling: &'c AtomicBool) -> Self {
        is_calling.store(true, Ordering::Relaxed);
        Self(is_calling)
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// About how many bytes a log takes while it waits.
fn size_of(log: &Log) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(elements) => elements.iter().map(of).sum(),
            Value::Object(members) => members.iter().map(|(name, value)| name.len() + of(value) + 64).sum(),
            _ => 0,
        }
        .saturating_add(32)
    }
    log.message.len() + log.data.as_ref().map_or(0, of) + log.data_text.as_ref().map_or(0, String::len) + 128
}

/// Adds what is there beside the outputs to a reply. Protocols that have blocks get them as they are, in their order; this returns whether the
/// message is among those that were written. The others get each block that is no text as an output.
fn pass_content_on(
    outputs: &[(String, String)],
    content: &[String],
    is_success: bool,
    cx: &mut Context<'_>,
) -> Result<bool, Failure> {
    let blocks = content.iter().map(|text| (text, Json::parse(text.as_bytes()).unwrap_or(Json::NULL)));
    if cx.has_content() {
        // A text alone is the message.
        let is_message = matches!(content, [_]) && blocks.clone().all(|(_, block)| block.members().count() == 2);
        let has_texts = is_success && !(is_message && blocks.clone().all(|(_, block)| is_text_block(block)));
        for (text, _) in blocks.clone().filter(|(_, block)| has_texts || !is_text_block(*block)) {
            match RawJson::from_checked_str(text) {
                Ok(block) => cx.content("content", &Content::Block(block))?,
                Err(error) => return Err(cx.failure(FailureKind::Internal, format_args!("content: {error}"))),
            }
        }
        return Ok(has_texts && !content.is_empty());
    }
    let mut names: HashSet<String> = outputs.iter().map(|(name, _)| name.clone()).collect();
    let mut next: HashMap<String, usize> = HashMap::new();
    for (_, block) in blocks.filter(|(_, block)| !is_text_block(*block)) {
        let kind = block.get("type").and_then(|kind| kind.text()).map(|kind| kind.to_string());
        let kind = kind.unwrap_or_else(|| "content".into());
        let first = next.entry(kind.clone()).or_insert(1);
        let numbered =
            (*first..).map(|number| (number, if number == 1 { kind.clone() } else { format!("{kind}-{number}") }));
        let is_free = |name: &(usize, String)| name.1 != "message" && !names.contains(&name.1);
        let (number, name) = numbered.into_iter().find(is_free).unwrap_or_default();
        *first = number + 1;
        match text_of_block(block) {
            Some(text) => cx.output_of_new_name(&name, text.as_str())?,
            None => match RawJson::from_checked_str(block.as_str()) {
                Ok(block) => cx.output_of_new_name(&name, &block)?,
                Err(error) => return Err(cx.failure(FailureKind::Internal, format_args!("{name}: {error}"))),
            },
        }
        names.insert(name);
    }
    Ok(false)
}

/// Whether a block is a text.
fn is_text_block(block: Json<'_>) -> bool {
    block.get("type").and_then(|kind| kind.text()).is_some_and(|kind| kind == *"text")
}

/// A block as a text: bytes as a `data:` URI (RFC 2397), a text as it is; none for a block of another kind.
fn text_of_block(block: Json<'_>) -> Option<String> {
    let text = |json: Json<'_>, name: &str| Some(json.get(name)?.text()?.to_string());
    let place = block.get("resource").unwrap_or(block);
    if let Some(text) = text(place, "text") {
        return Some(text);
    }
    let data = text(place, "data").or_else(|| text(place, "blob"))?;
    Some(format!("data:{};base64,{data}", text(place, "mimeType").unwrap_or_default()))
}

/// The factor for progress that is counted in fractions of one: here it is a whole number.
const FRACTIONS: f64 = 1000.0;

/// Gives a log to the caller; one that reports progress, as such. `scale` is the factor for the progress of this call, once there was some.
fn pass_log_on(log: &Log, scale: &mut Option<f64>, cx: &mut Context<'_>) {
    let number = |name: &str| log.data.as_ref()?.get(name)?.as_f64();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is rounded down, and saturates")]
    match number("progress") {
        Some(done) => {
            let total = number("total");
            let is_fraction = done.fract() > 0.0 || total.is_some_and(|total| total <= 1.0 || total.fract() > 0.0);
            let scale = *scale.get_or_insert(if is_fraction { FRACTIONS } else { 1.0 });
            cx.progress((done * scale) as u32, total.map(|total| (total * scale) as u32), log.message.as_str());
        }
        None => {
            let data = log.data.as_ref().map(|data| {
                let text = log.data_text.clone().unwrap_or_else(|| data.to_string());
                // A host drops a log whose data is no object.
                on_one_line(&if data.is_object() { text } else { format!("{{\"value\":{text}}}") }).into_owned()
            });
            match data.as_ref().and_then(|data| RawJson::from_checked_str(data).ok()) {
                Some(data) => cx.log_with(level_of(log), log.message.as_str(), &data),
                None => cx.log(level_of(log), log.message.as_str()),
            }
        }
    }
}

/// The level of a log; words that are worse than an error are one.
fn level_of(log: &Log) -> Level {
    match log.level_name.as_deref() {
        Some("fatal" | "critical" | "alert" | "emergency" | "panic") => Level::Error,
        _ => log.level,
    }
}

impl Known {
    /// The name that an operation has at the other end.
    fn name_there<'o>(&'o self, operation: &'o str) -> &'o str {
        self.renamed.iter().find(|(here, _)| *here == operation).map_or(operation, |(_, there)| there)
    }

    /// Whether an operation says that it changes nothing. It has its name at the other end.
    fn only_reads(&self, operation: &str) -> bool {
        let found = self.manifest.operations.iter().find(|known| self.name_there(known.name) == operation);
        found.is_some_and(Operation::only_reads)
    }

    /// None if there were too many manifests already.
    fn present(described: &Described, service: RelayService) -> Option<Self> {
        let (manifest, renamed) = lasting(described, service)?;
        Some(Self {
            manifest,
            service,
            renamed,
            schemas: Arc::new(Schemas::of(&described.manifest.operations)),
            text: described.manifest.text.clone(),
            absence: None,
            is_open: true,
            asked_by: None,
        })
    }

    /// The description that was known last, or nothing.
    fn last(last: Option<&Described>, service: RelayService) -> Self {
        last.and_then(|last| Self::present(last, service)).unwrap_or_else(|| Self {
            manifest: &NOTHING_KNOWN,
            service,
            renamed: Vec::new(),
            schemas: Arc::new(Schemas::of(&[])),
            text: String::new(),
            absence: None,
            is_open: false,
            asked_by: None,
        })
    }

    fn absent(last: Option<&Described>, why: String, service: RelayService) -> Self {
        let mut known = Self::last(last, service);
        known.go(&why);
        known
    }

    /// It is not there any more: its operations are marked.
    fn go(&mut self, why: &str) {
        if self.absence.is_none() {
            self.manifest = marked(self.manifest);
        }
        self.absence = Some(why.to_owned());
        self.is_open = false;
    }

    /// Takes a description; returns whether it is news.
    fn come(&mut self, described: &Described) -> bool {
        if self.absence.is_none() && self.text == described.manifest.text {
            self.is_open = true;
            return false;
        }
        match Self::present(described, self.service) {
            Some(present) => *self = Self { asked_by: self.asked_by.take(), ..present },
            None => {
                (self.is_open, self.absence, self.text) = (true, None, described.manifest.text.clone());
                complain(format_args!(
                    "rigline: the operations of the target have changed too often; the list stays as it is until this command is started again"
                ));
            }
        }
        true
    }
}

/// A manifest whose operations say that the other end is not there.
fn marked(manifest: &'static Manifest) -> &'static Manifest {
    static MARKED: Mutex<BTreeMap<usize, &'static Manifest>> = Mutex::new(BTreeMap::new());
    lock(&MARKED).entry(std::ptr::from_ref(manifest).addr()).or_insert_with(|| mark(manifest))
}

fn mark(manifest: &'static Manifest) -> &'static Manifest {
    const MARK: &str = "Absent: the board is not plugged in, and a call says what is missing.";
    let operations = manifest.operations.iter().map(|operation| {
        let mut marked = *operation;
        if operation.name != FIND {
            marked.description = leak(format!("{MARK} {}", operation.description));
        }
        marked
    });
    let mut lasting = manifest.operations(Vec::leak(operations.collect()));
    lasting.description = leak(format!("{MARK} {}", manifest.description).trim_end().to_owned());
    Box::leak(Box::new(lasting))
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("to", &lock(&self.known).manifest.name).finish_non_exhaustive()
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
        lock(&self.known).manifest
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let only_reads = call.only_reads();
        let mut args = call.args_json().as_str().to_owned();
        let (schemas, operation) = {
            let known = lock(&self.known);
            (Arc::clone(&known.schemas), known.name_there(call.operation()).to_owned())
        };
        if call.has_numeric_strings() {
            args = schemas.with_numbers(&operation, &args);
        }
        args = schemas.without_nulls(&operation, args);
        // Not every extension checks its arguments.
        if let Some(refusal) = schemas.refusal(&operation, &args) {
            return Err(cx.failure(FailureKind::BadArguments, refusal.as_str()).refused());
        }
        let left = cx.deadline().map(|deadline| Duration::from_nanos(deadline.nanos_since(cx.now())));
        // A little less, so that the other end's own error for it wins, and it need not be cut off.
        let limit = left.map_or(Duration::ZERO, |left| {
            left.saturating_sub((left / 10).min(Duration::from_millis(250))).max(Duration::from_millis(1))
        });
        self.was_cut_off = true;
        let request = CallRequest {
            operation,
            args,
            timeout: Some(limit),
            session_id: protocols::ALL.iter().find_map(|protocol| protocol.session_id.and_then(|of| of(&call.context))),
            context: passing::context(&call.context),
        };
        // They are about a call that was given up.
        self.logs.clear();
        let asked_by = lock(&self.known).asked_by.clone();
        self.losses.of_request(&request, asked_by.as_ref(), cx);
        let mut scale = None;
        let answer = {
            let Self { jobs, logs, is_calling, .. } = &mut *self;
            let _calling = Calling::begin(is_calling);
            let mut answer = pin!(ask(jobs.as_ref(), request, only_reads));
            // A target that logs without end does not keep its own reply from being seen.
            let mut passed = 0;
            let answer = loop {
                tokio::select! {
                    biased;
                    Some(log) = logs.recv(), if passed < LOGS => {
                        passed += 1;
                        pass_log_on(&log, &mut scale, cx);
                    }
                    answer = &mut answer => break answer,
                    () = std::future::ready(()), if passed >= LOGS => passed = 0,
                }
            };
            // They came before it, on another thread.
            for _ in 0..LOGS {
                let Some(log) = logs.try_recv() else { break };
                pass_log_on(&log, &mut scale, cx);
            }
            answer
        };
        self.losses.of_answer(&answer, self.has_logged.swap(false, Ordering::Relaxed), cx);
        let RelayedOutcome { outputs, content, end } = answer;
        match self.logs.take_dropped() {
            0 => {}
            dropped => {
                let text = format_args!("{dropped} logs were dropped: they came faster than they could be passed on");
                cx.log_with(Level::Warn, text, &serde_json::json!({ "dropped": dropped }));
            }
        }
        self.was_cut_off = false;
        for (name, value) in &outputs {
            // The other end may have written it on many lines.
            let mut value = value.clone().into_bytes();
            match RawJson::from_checked(&mut value) {
                Ok(value) => cx.output_of_new_name(name, &value)?,
                Err(error) => return Err(cx.failure(FailureKind::Internal, format_args!("output {name}: {error}"))),
            }
        }
        let are_blocks = pass_content_on(&outputs, &content, end.is_ok(), cx)?;
        match end {
            Ok(_) if are_blocks => Ok(Outcome::DONE),
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

    /// The other end is asked for another session, unless it has this configuration.
    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let (answer, answered) = oneshot::channel();
        let config = match config.json().as_str().parse() {
            Ok(config) => config,
            Err(error) => return Err(cx.failure(FailureKind::BadArguments, format_args!("{error}"))),
        };
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(Job::Configure { config, answer }).await;
        }
        let Absence { kind, message, .. } = match answered.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(absence)) => absence,
            Err(_) => ended(),
        };
        Err(cx.failure(kind, message.as_str()))
    }

    /// The other end has its own: a call that was cut off was cancelled there, and a session that ends here is lost there.
    async fn safe_state(&mut self) {
        if std::mem::take(&mut self.was_cut_off) {
            self.remote().settle().await;
        } else {
            self.remote().abandon().await;
        }
    }

    async fn on_event(&mut self, event: rigline::Event<'_>, cx: &mut Context<'_>) {
        let request = CallRequest {
            operation: "on_event".into(),
            args: event.json().as_str().to_owned(),
            timeout: Some(EVENT_TIMEOUT),
            session_id: event.session_id().value().map(|id| id.to_string()),
            context: None,
        };
        if let Err(fault) = ask(self.jobs.as_ref(), request, false).await.end {
            cx.warn(format_args!("on_event: {}", fault.message));
        }
    }
}

/// How often an end that comes and goes is looked for.
const LOOK: Duration = Duration::from_secs(1);

impl Way {
    fn to(target: &Target, options: Options, first: Option<&'static Protocol>) -> Self {
        let need = if first.is_some() { ProtocolNeed::Types } else { ProtocolNeed::Session };
        Self { target: target.clone(), dialer: None, options, need }
    }

    /// Connects to the other end, by the protocol that it answers.
    async fn connect(&self, config: Option<JsonObject>, wait: Duration) -> Result<(Chosen, Described), RelayError> {
        let has_config = config.is_some();
        let options = Options { wait, config, ..self.options.clone() };
        let dialer = self.dialer.as_ref().map(|dial| dial(&options)).transpose().map_err(ClientError::from)?;
        let options = ClientOptions::new(options);
        let mut chosen = match dialer {
            Some(dialer) => choose::over(dialer, &self.target, options, self.need).await?,
            None => choose::connect(&self.target, options, None, self.need).await?,
        };
        let described = describe(&mut *chosen.client, DESCRIBE_TIMEOUT).await?;
        if has_config && !chosen.carries(Part::Config) {
            let text = format!("{} does not carry {}", chosen.protocol.title, Part::Config.name());
            return Err(ClientError::usage(text).into());
        }
        Ok((chosen, described))
    }
}

/// The other end, on its own thread.
struct OtherEnd {
    way: Way,
    known: Arc<Mutex<Known>>,
    renewal: Arc<OnceLock<Renewal>>,
    watch: Option<OnTargetNews>,
    /// Whether it may come later.
    may_come: bool,
    is_lazy: bool,
    config: Option<JsonObject>,
    /// How long it is waited for.
    wait: Duration,
    open: Option<Box<dyn Client>>,
    traces: Traces,
    /// It was said that calls cannot be given up.
    is_cancel_said: bool,
}

/// The traces that calls have left at the other end.
#[derive(Debug, Default)]
struct Traces {
    /// A call that nobody waits for any more goes on there.
    is_left: bool,
    /// Something may be on there.
    is_touched: bool,
}

impl OtherEnd {
    /// Forwards calls until the relay is dropped.
    async fn pass_on(&mut self, mut queue: mpsc::Receiver<Job>) {
        let mut is_released = false;
        loop {
            let look = async {
                if self.watch.is_some() && !is_released {
                    tokio::time::sleep(LOOK).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            let job = tokio::select! {
                biased;
                job = queue.recv() => job,
                () = look => {
                    self.look_for().await;
                    continue;
                }
            };
            match job {
                None => break,
                Some(Job::Call { request, only_reads, answer }) => {
                    is_released = false;
                    self.call(request, only_reads, answer).await;
                }
                Some(Job::Reach { told, mut answer }) => {
                    let reached = tokio::select! {
                        biased;
                        () = answer.closed() => continue,
                        reached = self.reach_telling(&told) => reached,
                    };
                    let _ = answer.send(reached.map_err(|error| error.absence()));
                }
                Some(Job::Configure { config, mut answer }) => {
                    let configured = tokio::select! {
                        biased;
                        () = answer.closed() => continue,
                        configured = self.configure(config) => configured,
                    };
                    let _ = answer.send(configured.map_err(|error| error.absence()));
                }
                Some(Job::Release(done)) => {
                    self.close().await;
                    is_released = true;
                    let _ = done.send(());
                }
                Some(Job::Abandon(done)) => {
                    self.abandon().await;
                    let _ = done.send(());
                }
                // A call that was cut off was cancelled there, with its safe state.
                Some(Job::Settle(done)) => {
                    if self.traces.is_left {
                        self.abandon().await;
                    }
                    self.traces.is_touched = false;
                    let _ = done.send(());
                }
            }
        }
        self.close().await;
    }

    /// No session is open until it is reached again.
    fn forget(&self) {
        if self.is_lazy {
            lock(&self.known).is_open = false;
        }
    }

    async fn close(&mut self) {
        self.forget();
        if let Some(upstream) = self.open.take() {
            let _ = upstream.close().await;
        }
    }

    /// Connects. What is learnt is told.
    async fn reach(&mut self) -> Result<(), RelayError> {
        self.reach_within(self.wait).await
    }

    async fn reach_within(&mut self, wait: Duration) -> Result<(), RelayError> {
        match self.way.connect(self.config.clone(), wait).await {
            Ok((chosen, described)) => {
                lock(&self.known).asked_by = Some(AskedBy::of(&chosen));
                self.open = Some(chosen.client);
                self.tell_of(&described);
                Ok(())
            }
            Err(error) => {
                self.tell_absence(&error);
                Err(error)
            }
        }
    }

    /// As [`reach`](Self::reach), unless there is a session. If the other end is busy or not plugged in, that is told before it is waited for.
    async fn reach_telling(&mut self, told: &mpsc::UnboundedSender<String>) -> Result<(), RelayError> {
        if self.open.is_some() && lock(&self.known).is_open {
            return Ok(());
        }
        match self.reach_within(Duration::ZERO).await {
            // A rig of the lab has a queue, and what it cannot wait for is refused again at once.
            Err(error) if (error.may_pass() || matches!(self.way.target, Target::Rig(_))) && !self.wait.is_zero() => {
                let text = format!("{error}; waiting up to {:?}", self.wait);
                complain(format_args!("{text}"));
                let _ = told.send(text);
                self.reach().await
            }
            reached => reached,
        }
    }

    async fn configure(&mut self, config: JsonObject) -> Result<(), RelayError> {
        if self.open.is_some() && self.config.as_ref() == Some(&config) {
            return Ok(());
        }
        self.close().await;
        let before = self.config.replace(config);
        let reached = self.reach().await;
        if reached.is_err() {
            self.config = before;
        }
        reached
    }

    fn tell_of(&self, described: &Described) {
        let is_news = lock(&self.known).come(described);
        if is_news {
            self.tell(|| TargetNews::Present(Box::new(described.clone())));
        }
    }

    fn tell(&self, news: impl FnOnce() -> TargetNews) {
        let Some(watch) = &self.watch else { return };
        watch(&news());
        if let Some(renewal) = self.renewal.get() {
            renewal.ask();
        }
    }

    fn tell_absence(&self, error: &RelayError) {
        if self.watch.is_none() {
            return;
        }
        let was_there = {
            let mut known = lock(&self.known);
            let was_there = known.absence.as_ref().is_none_or(String::is_empty);
            known.go(&error.to_string());
            was_there
        };
        if was_there {
            self.tell(|| TargetNews::Absent(error.to_string()));
        }
    }

    /// Ends the session as a loss does.
    async fn abandon(&mut self) {
        self.forget();
        self.traces = Traces::default();
        if let Some(upstream) = self.open.take() {
            upstream.abandon().await;
        }
    }

    /// `was_reading`: the caller knows the operation as one that only reads.
    async fn call(&mut self, mut request: CallRequest, was_reading: bool, mut answer: oneshot::Sender<RelayedOutcome>) {
        // The caller may be gone.
        if answer.is_closed() {
            return;
        }
        if self.watch.is_some() {
            self.notice_loss();
        }
        let only_reads = lock(&self.known).only_reads(&request.operation);
        self.traces.is_touched |= !only_reads;
        // There all callers are one client, for which a call that is late switches off what any of them has on. It is given up here.
        if only_reads && !self.is_safe() {
            request.timeout = Some(Duration::ZERO);
        }
        let told = tokio::select! {
            biased;
            () = answer.closed() => None,
            told = self.answer(request, was_reading) => Some(told),
        };
        let is_safe = self.is_safe();
        match (told, &mut self.open) {
            (Some(told), _) => {
                self.traces.is_left = false;
                let _ = answer.send(told);
            }
            // What only reads is not cut off where that ends the session, or switches off what others have on, who share the session. If the
            // next one is given up too, it does not come to its end.
            (None, Some(upstream)) => {
                let has_safe_state = lock(&self.known).manifest.has_safe_state;
                // Where nothing is on that its end would switch off, a new session takes less time than the rest of the call.
                let may_end = is_safe && (upstream.cancels_calls() || has_safe_state);
                let may_stay = only_reads && !self.traces.is_left && !may_end;
                self.traces.is_left = may_stay && upstream.leave();
                let asked_by = lock(&self.known).asked_by.clone();
                if let Some(asked_by) = asked_by.filter(|asked_by| !asked_by.carries(Part::Cancel))
                    && !std::mem::replace(&mut self.is_cancel_said, true)
                {
                    let text = asked_by.lacks(Part::Cancel, "the target goes on with it");
                    complain(format_args!("warning: {text}"));
                }
                if !self.traces.is_left {
                    upstream.cancel().await;
                }
            }
            (None, None) => {}
        }
    }

    /// Whether the end of a call at the other end switches nothing off there.
    fn is_safe(&self) -> bool {
        !self.traces.is_touched || !lock(&self.known).manifest.has_safe_state
    }

    async fn answer(&mut self, request: CallRequest, was_reading: bool) -> RelayedOutcome {
        if self.open.is_none()
            && let Err(error) = self.reach().await
        {
            let Absence { kind, message, .. } = error.absence();
            return fault(kind, message);
        }
        if request.operation == FIND && self.watch.is_some() {
            let name = lock(&self.known).manifest.name;
            let said = format!("found {name}: list the tools again");
            return RelayedOutcome { end: Ok(Some(said)), ..fault(FailureKind::Internal, String::new()) };
        }
        // It may have been another one that the call was accepted for, perhaps because it only reads.
        if was_reading && !lock(&self.known).only_reads(&request.operation) {
            let operation = request.operation;
            let text =
                format!("the target is another one than before, where {operation} does not only read: call it again");
            return fault(FailureKind::Unreachable, text);
        }
        let Some(upstream) = &mut self.open else { return fault(FailureKind::Unreachable, ended().message) };
        call_fitting(&mut **upstream, request, &self.way.options).await
    }

    fn notice_loss(&mut self) {
        if self.open.as_ref().is_some_and(|upstream| upstream.is_lost()) {
            self.forget();
            self.open = None;
        }
    }

    /// Looks whether the other end has come, gone, or changed.
    async fn look_for(&mut self) {
        self.notice_loss();
        let Some(upstream) = &mut self.open else {
            // A program is started when it is called. What was reached on demand is left alone while nobody wants to know.
            let is_awaited = !self.is_lazy || self.renewal.get().is_some_and(Renewal::is_awaited);
            if self.may_come && is_awaited {
                let _ = self.reach().await;
            }
            return;
        };
        if upstream.has_changed() {
            match describe(&mut **upstream, DESCRIBE_TIMEOUT).await {
                Ok(described) => self.tell_of(&described),
                Err(error) => self.tell_absence(&error.into()),
            }
        }
    }
}

/// Calls, without what makes the request too long for the other end where it can be left out.
async fn call_fitting(upstream: &mut dyn Client, mut request: CallRequest, options: &Options) -> RelayedOutcome {
    loop {
        let error = match upstream.call(&request).await {
            Ok(outcome) => return relayed(outcome),
            Err(error) => error,
        };
        let ClientError::Host(HostError::RequestTooLarge { extension, size, limit }) = &error else {
            let (kind, _) = kind_of(&error);
            return fault(kind, cut(&error.to_string(), REASON));
        };
        let left_out = request.context.as_mut().and_then(|context| match context.agent.take() {
            Some(_) => Some("agent"),
            None if !std::mem::take(&mut context.env).is_empty() => Some("env"),
            None => None,
        });
        let Some(name) = left_out else {
            let text = format!("request too large: it needs {size} bytes, and the device accepts {limit}");
            return fault(FailureKind::TooLarge, text);
        };
        let message = format!("context.{name} was omitted, since the request does not fit {limit} bytes with it");
        let log = Log { level: Level::Warn, level_name: None, message, data: None, data_text: None };
        let event = Event { time: SystemTime::now(), extension: extension.as_str().into(), kind: EventKind::Log(log) };
        options.listener.iter().for_each(|listener| listener(&event));
    }
}

async fn describe(client: &mut dyn Client, limit: Duration) -> Result<Described, ClientError> {
    match client.describe(None, limit).await? {
        Description::Manifest(described) => Ok(*described),
        Description::Page(_) => Err(ClientError::usage("the target does not list its operations")),
    }
}

fn fault(kind: FailureKind, message: String) -> RelayedOutcome {
    RelayedOutcome { outputs: Vec::new(), content: Vec::new(), end: Err(Fault { kind, code: None, message }) }
}

fn relayed(answer: client::CallOutcome) -> RelayedOutcome {
    let outputs = match Json::parse(answer.outputs.as_bytes()) {
        Ok(outputs) => members(outputs),
        Err(error) => return fault(FailureKind::Internal, format!("the result cannot be read: {error}")),
    };
    let end = match answer.failure {
        None => Ok(answer.message.filter(|_| !answer.is_message_output)),
        Some(failure) => {
            // A number is the code of the protocol that the target was asked by.
            let number = failure.code.as_ref().filter(|code| code.is_number()).map(|code| format!(" ({code})"));
            let message = number.and_then(|number| failure.message.strip_suffix(&number)).unwrap_or(&failure.message);
            Err(Fault { kind: failure.kind, code: failure.custom_code, message: message.to_owned() })
        }
    };
    RelayedOutcome { outputs, content: answer.content, end }
}

/// The members of an object, each as its JSON text; a value that is not an object becomes the member `value`.
fn members(json: Json<'_>) -> Vec<(String, String)> {
    match json.kind() {
        JsonKind::Object => json.members().map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect(),
        JsonKind::Null => Vec::new(),
        _ => vec![("value".into(), json.as_str().to_owned())],
    }
}

/// A name for each operation, so that no two make one [identifier](Operation::identifier), by which agents call them: all but the first of those
/// that do have a number.
fn distinct(operations: &[crate::host::Operation]) -> Vec<String> {
    let of = |name: &str| Operation::identifier_of(name).collect::<Vec<u8>>();
    let mut taken = HashSet::new();
    let mut numbers = HashMap::new();
    let names = operations.iter().map(|operation| {
        let name = operation.name.as_str();
        if taken.insert(of(name)) {
            return name.to_owned();
        }
        let most = name.len().min(MAX_IDENTIFIER - "_1000000".len());
        let end = (0..=most).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
        let stem = name.get(..end).unwrap_or_default();
        let number: &mut u32 = numbers.entry(of(stem)).or_insert(1);
        loop {
            *number += 1;
            let numbered = format!("{stem}_{number}");
            if taken.insert(of(&numbered)) {
                return numbered;
            }
        }
    });
    names.collect()
}

/// How many bytes of descriptions may have become manifests, as these last as long as the process. One alone may have more.
const LASTING: usize = 32 << 20;

/// The operations that have another name in a manifest than at the other end.
type Renamed = Vec<(&'static str, String)>;

/// The manifests there were: what comes back takes no further memory.
#[derive(Default)]
struct Manifests {
    known: BTreeMap<(String, String), (&'static Manifest, Renamed)>,
    bytes: usize,
}

/// The description as a manifest, and the operations that have another name in it. None if there were too many already.
fn lasting(described: &Described, service: RelayService) -> Option<(&'static Manifest, Renamed)> {
    static MANIFESTS: Mutex<Manifests> = Mutex::new(Manifests { known: BTreeMap::new(), bytes: 0 });
    lock(&MANIFESTS).lasting(described, service)
}

impl Manifests {
    fn lasting(&mut self, described: &Described, service: RelayService) -> Option<(&'static Manifest, Renamed)> {
        let Described { manifest, kind, has_typed_outputs, .. } = described;
        let key = (manifest.text.clone(), format!("{kind:?} {has_typed_outputs} {service:?}"));
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        // Some memory goes to each, however short it is.
        let bytes = self.bytes + manifest.text.len() + 4096;
        if bytes > LASTING && !self.known.is_empty() {
            return None;
        }
        self.bytes = bytes;
        Some(self.known.entry(key).or_insert(made_lasting(described, service)).clone())
    }
}

/// Makes a manifest that lasts as long as the process.
fn made_lasting(described: &Described, service: RelayService) -> (&'static Manifest, Renamed) {
    let Described { manifest, kind, has_typed_outputs, .. } = described;
    let schema = |text: &str| Schema::text(leak(on_one_line(text).into_owned()));
    let effects_of = |operation: &crate::host::Operation| {
        let annotations = operation.annotations.as_ref()?.as_object()?;
        let is = |name: &str, otherwise| annotations.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        Some(match is("readOnlyHint", false) {
            true => Effects::READ_ONLY,
            // What is not said is assumed to be the worst.
            false => Effects::changes(is("destructiveHint", true), is("idempotentHint", false)),
        })
    };
    let names = match service.is_for_agents {
        true => distinct(&manifest.operations),
        false => manifest.operations.iter().map(|operation| operation.name.clone()).collect(),
    };
    let names: Vec<&'static str> = names.into_iter().map(leak).collect();
    let renamed = names.iter().zip(&manifest.operations).filter(|(here, operation)| operation.name != **here);
    let renamed = renamed.map(|(here, operation)| (*here, operation.name.clone())).collect();
    let operations: Vec<Operation> = manifest
        .operations
        .iter()
        .zip(&names)
        .map(|(operation, name)| {
            // Arguments are an object anyway.
            let params = if operation.params == true { Schema::OBJECT } else { schema(&operation.params_text) };
            let outputs = operation.outputs_text.as_deref().filter(|_| *has_typed_outputs).map(schema);
            let lasting =
                Operation::new(name, params).description(leak(operation.description.clone())).optional_outputs(outputs);
            let members = operation.tool_text.as_deref();
            let members = members.and_then(|members| members.strip_prefix('{')?.strip_suffix('}'));
            let members = members.unwrap_or_default().trim();
            let lasting = lasting.tool_members(leak(on_one_line(members).into_owned()));
            match effects_of(operation) {
                Some(effects) => lasting.effects(effects),
                None => lasting,
            }
        })
        .collect();
    let (name, version) = (leak(manifest.name.clone()), leak(manifest.version.clone()));
    // Other people's versions are what they are.
    let mut lasting = Manifest::try_new(name, version).unwrap_or_else(|_| Manifest::new(name, "0.0.0"));
    lasting.version = version;
    lasting.description = leak(manifest.description.clone());
    lasting.is_elsewhere = true;
    lasting.can_change = service.is_watched;
    lasting.has_safe_state = manifest.raw["safeState"] == true;
    let mut lasting = lasting.kind(kind.unwrap_or_default()).operations(Vec::leak(operations));
    if let Some(members) = passing::members(manifest) {
        lasting.own_members = leak(members);
    }
    (Box::leak(Box::new(lasting)), renamed)
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESK: RelayService = RelayService { is_for_agents: false, is_lazy: false, is_watched: false };

    fn described(operation: &str, description: &str) -> Described {
        let text = format!(
            r#"{{"name":"x","version":"1.0.0","protocolVersion":"0.0.1","operations":{{"{operation}":{{"description":"{description}","params":{{}}}}}}}}"#
        );
        let manifest = crate::host::Manifest::read(&text).unwrap();
        Described { text, manifest, kind: None, has_typed_outputs: false }
    }

    /// Manifests last as long as the process.
    #[test]
    fn a_target_whose_operations_change_without_end_costs_bounded_memory() {
        let mut manifests = Manifests::default();
        let [one, other] = ["one", "other"].map(|name| described(name, ""));
        let first = manifests.lasting(&one, DESK).unwrap().0;
        let second = manifests.lasting(&other, DESK).unwrap().0;
        let bytes = manifests.bytes;
        for _ in 0..1000 {
            assert!(std::ptr::eq(manifests.lasting(&one, DESK).unwrap().0, first));
            assert!(std::ptr::eq(manifests.lasting(&other, DESK).unwrap().0, second));
        }
        assert_eq!(manifests.bytes, bytes, "what comes back takes no further memory");
        let mut long = described("long", "");
        let take = |number: &usize| {
            // What is read of it matters less than how long it is.
            long.manifest.text = format!("{number} {}", "x".repeat(1 << 20));
            manifests.lasting(&long, DESK).is_some()
        };
        let made = (0..1000).take_while(take);
        assert_eq!(made.count(), (LASTING >> 20) - 1);
        assert!(manifests.lasting(&one, DESK).is_some() && manifests.bytes <= LASTING);
    }

    #[test]
    fn a_board_that_comes_and_goes_has_two_manifests() {
        let described = described("op", "comes and goes");
        let mut known = Known::present(&described, RelayService { is_for_agents: true, ..DESK }).unwrap();
        let there = known.manifest;
        known.go("unplugged");
        let gone = known.manifest;
        assert!(!std::ptr::eq(there, gone));
        for _ in 0..3 {
            assert!(known.come(&described) && std::ptr::eq(known.manifest, there));
            known.go("unplugged");
            assert!(std::ptr::eq(known.manifest, gone));
        }
    }
}
