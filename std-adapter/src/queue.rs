//! The queue before an extension, and the worker that runs its entries.
//!
//! A request is read when it arrives. If it needs no extension, it is answered at once, whatever
//! runs. Otherwise it waits: first in, first out within a client, and in turn between clients, so
//! that the calls of one client do not hold up all calls of another. An entry is removed when its
//! client disconnects, and when its time limit has passed since its arrival. The extension gets
//! what is left of the limit.
//!
//! A request keeps its id and its progress token. What the extension writes while a request runs is
//! about that request only.
//!
//! A connection of lines has a [`Session`] of its own, in which `initialize` may set a
//! configuration. The queue counts the open sessions. While another session is open, a different
//! configuration is refused. When the last session is lost, the safe state runs before anything
//! else.
//!
//! An extension in another process or on a board is reached through a [`RemoteExtension`] when a
//! message needs it, see [`Queue::reach`].

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{self, Poll};
use std::thread;
use std::time::{Duration, Instant};

use rigline::exchange::LEAST_REPLY;
use rigline::exchange::{Ahead, Exchange, Late, Next, Served, Session};
use rigline::json::write::Message;
use rigline::json::{Json, JsonKind};
use rigline::protocol::Protocol;
use rigline::rpc;
use rigline::serve::whole::{self, HandlerEnd, Runner};
use rigline::service::JobRun;
use rigline::{Call, Config, Context, Event, Extension, Failure, FailureKind, Manifest, Operation, Outcome, Schema};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use crate::between::{Between, Renewal};
use crate::callers::{InCall, Ticket as Caller};
use crate::clock::TokioClock;
use crate::log::logs_in;
use crate::mutex::lock;
use crate::net::{Presence, Stream, Token};
use crate::requires::RequirePath;
use crate::text::on_one_line;

/// How long [`Extension::safe_state`] may take after a panic.
const SAFE_STATE_AFTER_PANIC: Duration = Duration::from_secs(10);
/// How long the next request waits after the safe state: what was switched off takes its time to
/// fall.
const FALL: Duration = Duration::from_millis(20);
/// A request that has waited no longer is begun without looking for its client.
const NO_WAIT: Duration = Duration::from_millis(1);
/// How much of what comes before a reply waits for a client that does not read, in bytes. What is
/// beyond it is dropped, and counted in a log before the reply.
const BACKLOG: usize = 8 << 20;
/// The most lines that wait for a client that waits for no reply.
const UNHEARD: usize = 64;
/// The most sessions that are remembered. One more, and the one that was silent for longest is
/// forgotten.
pub(crate) const SESSIONS: usize = 1000;
/// The memory for a line of a log, twice. What a long one has taken of it is given back.
const LOGS: usize = 16 << 20;
/// The size of the memory for replies that is kept between requests that are answered at once, in
/// bytes.
const KEPT: usize = 64 << 10;
/// The most requests that wait or run, of all clients of a server of lines.
const REQUESTS: usize = 4096;
/// The most bytes of requests that wait or run. One alone may be longer.
const WAITING: usize = 256 << 20;

/// The settings of a [`Queue`]: its protocols, limits and defaults.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The protocols. A message without a marker belongs to the first one.
    pub protocols: Vec<&'static Protocol>,
    /// Whether every message is read by the protocol of its session, which is the first one unless
    /// another was [named](Queue::receive_by). Answers of other protocols are recognised and not
    /// answered.
    pub is_pinned: bool,
    /// The greatest lengths of a request and of a reply, in bytes.
    pub limits: (usize, usize),
    /// The greatest number of requests that wait or run.
    pub most: usize,
    /// Whether the outputs of the hardware stay as they are when sessions end.
    pub keeps_outputs: bool,
    /// The time without a request after which the safe state runs, if the first protocol has
    /// [`with_safe_end`](Protocol::with_safe_end). With none, it never runs for that reason.
    pub idle: Option<Duration>,
    /// The configuration that the extension has at the start, as JSON text.
    pub config: Option<String>,
    /// The extension, if it is in another process or on a board. It is connected when a message
    /// needs it. None for an extension in this process.
    pub remote: Option<Arc<dyn RemoteExtension>>,
    /// The messages by which clients of a protocol are told that the operations are others.
    pub changes: fn(&Protocol) -> Option<&'static Changes>,
}

/// The messages by which clients are told that the operations of a server are others.
#[derive(Debug)]
pub struct Changes {
    /// Writes the notification, a line without its newline. A subscription is named by the JSON text
    /// of its id; the session of a connection has none.
    pub notification: fn(subscription: Option<&str>) -> String,
    /// Returns the id of a subscription, as JSON text, from the line that acknowledges it. `None` if
    /// the subscription is for something else.
    pub subscription: fn(acknowledgement: &[u8]) -> Option<String>,
}

impl Settings {
    /// Settings for a server of lines, which detects one of these protocols for each message.
    pub fn of_lines(protocols: Vec<&'static Protocol>, limits: (usize, usize)) -> Self {
        Self {
            protocols,
            is_pinned: false,
            limits,
            most: REQUESTS,
            keeps_outputs: false,
            idle: None,
            config: None,
            remote: None,
            changes: |_| None,
        }
    }
}

/// An extension in another process or on a board.
///
/// An implementation connects to the extension when the queue asks for that. While it is connected,
/// it has the extension's manifest.
pub trait RemoteExtension: fmt::Debug + Send + Sync {
    /// The manifest of the extension; none while it is not connected, and if the queue's own
    /// extension offers only a part of it.
    fn manifest(&self) -> Option<&'static Manifest>;

    /// Whether it is connected.
    fn is_reached(&self) -> bool {
        self.manifest().is_some()
    }

    /// Whether clients of this protocol are answered by the manifest of the queue's own extension
    /// while it is not connected, as far as that says anything. Otherwise they are refused, and told
    /// why it is not there.
    fn has_stand_in(&self, protocol: &Protocol) -> bool {
        let _ = protocol;
        false
    }

    /// Called once with the means to tell the queue that the manifest is another one.
    fn begin(&self, renewal: Renewal) {
        drop(renewal);
    }

    /// Connects to the extension. If that takes long, `told` gets messages for the client.
    fn reach<'a>(&'a self, told: &'a (dyn Fn(&str) + Send + Sync)) -> Reaching<'a>;
}

/// A connection attempt of a [`RemoteExtension`].
pub type Reaching<'a> = Pin<Box<dyn Future<Output = Result<(), Absence>> + Send + 'a>>;

/// The reason why an extension cannot be reached.
#[derive(Debug, Clone)]
pub struct Absence {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The error code in JSON-RPC.
    pub code: i32,
    /// A description of the reason.
    pub message: String,
}

/// The receiver of a request's reply: the other end of a connection, or the reader of this
/// process's standard output.
#[derive(Debug, Clone)]
pub struct QueueClient {
    stream: Option<Stream>,
    /// Whether a peer counts as there if it has closed its sending half and the system does not know more.
    is_patient: bool,
    /// Its entry in a list of callers.
    caller: Option<Arc<Caller>>,
}

impl QueueClient {
    /// The client of this process's own streams, which is never gone.
    pub fn of_process() -> Self {
        Self { stream: None, is_patient: true, caller: None }
    }

    /// The peer of a connection. It counts as gone if the system does not know whether it still
    /// reads.
    pub fn of(stream: Stream) -> Self {
        Self { stream: Some(stream), is_patient: false, caller: None }
    }

    /// The peer of a connection of lines. If it has closed its sending half and the system does not
    /// know more, it counts as present.
    pub fn of_lines(stream: Stream) -> Self {
        Self { stream: Some(stream), is_patient: true, caller: None }
    }

    /// A client in this process that is identified by its entry in a list of callers.
    pub fn of_caller(caller: Arc<Caller>) -> Self {
        Self { caller: Some(caller), ..Self::of_process() }
    }

    /// The state of the peer, if the client is a connection.
    pub fn presence(&self) -> Option<Presence> {
        self.stream.as_ref().map(Stream::presence)
    }

    /// Whether the client no longer waits for its reply. A client that has closed only its sending
    /// half and still reads does wait.
    pub fn is_gone(&self) -> bool {
        match self.stream.as_ref().map(Stream::presence) {
            Some(Presence::Gone) => true,
            Some(Presence::Unknown) => !self.is_patient,
            _ => false,
        }
    }

    /// A number that no other open connection has.
    fn key(&self) -> usize {
        let of_caller = |caller: &Arc<Caller>| usize::MAX - usize::try_from(caller.id()).unwrap_or_default();
        let own = || self.caller.as_ref().map_or(0, of_caller);
        self.stream.as_ref().map_or_else(own, Stream::key)
    }

    /// The name of the client, for people.
    fn peer(&self) -> String {
        match (&self.stream, &self.caller) {
            (_, Some(caller)) => caller.name().to_owned(),
            (Some(stream), _) => stream.ends().map_or_else(
                || "the client at an address that is not known".to_owned(),
                |ends| format!("the client at {}", ends.peer),
            ),
            (None, None) => "the client at standard input".to_owned(),
        }
    }
}

/// The parameters that the function that makes an extension gets. It is called on the thread of the
/// extension.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The clock that times the extension's calls.
    pub clock: TokioClock,
    /// The greatest lengths of a request and of a reply, in bytes.
    pub limits: (usize, usize),
}

/// The queue before an extension. Requests are passed to it by [`receive`](Self::receive).
#[derive(Debug)]
pub struct Queue {
    shared: Arc<Shared>,
    /// Memory for what is answered at once.
    scratch: Mutex<Vec<u8>>,
    _carriers: JoinSet<()>,
}

/// The fate of a message that a transport passed to the queue: it is answered, it waits for the
/// extension, or the queue is full.
#[derive(Debug)]
pub enum Received {
    /// The message is answered by these bytes.
    Reply(Vec<u8>),
    /// The message is acknowledged by these bytes. Its request stays open, and no reply comes
    /// later.
    StaysOpen(Vec<u8>),
    /// The message needs no answer.
    Silent,
    /// The message waits for the extension. Its reply comes from the [`Incoming`].
    Waits(Incoming),
    /// The queue is full: too many requests wait.
    Full,
    /// The extension has ended.
    Gone,
}

/// The sender of a request.
#[derive(Debug)]
pub struct Asker<'a> {
    /// The client that gets the reply.
    pub client: &'a QueueClient,
    /// The name of the client's session in this queue, if it has one.
    pub session: Option<&'a str>,
    /// Whether the request is cancelled if its [`Incoming`] is dropped before the reply.
    pub cancels: bool,
    /// Whether the client may get logs that are not about its own request.
    pub wants_logs: bool,
    /// The client's description of itself, if it has neither a session nor a connection of its own.
    /// Clients with equal descriptions count as one.
    pub identity: Option<&'a str>,
    /// When the request came, if it has waited before it is received.
    pub arrived: Option<Instant>,
}

/// A line for the client of a request, without its end.
#[derive(Debug)]
pub enum Line {
    /// A notification about the request.
    Notification(Vec<u8>),
    /// The reply to the request, after which nothing follows.
    Reply(Vec<u8>),
}

/// The turn of an entry: that of its session, or else of its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Turn {
    Connection(usize),
    Session(String),
}

/// A client that may have switched something on: a session, a connection, or a client by what it
/// says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    Connection(usize),
    Session(String),
    Named(String),
}

/// The most clients that are told apart by what they have switched on.
const MOST_CLIENTS: usize = 4096;

/// Some clients.
#[derive(Debug, Default)]
struct Clients {
    known: HashSet<Who>,
    /// There were too many to tell them apart: all others are among them.
    are_all: bool,
}

impl Clients {
    fn has(&self, who: &Who) -> bool {
        self.are_all || self.known.contains(who)
    }

    fn add(&mut self, who: Who) {
        if self.known.len() < MOST_CLIENTS {
            self.known.insert(who);
        } else {
            self.are_all |= !self.known.contains(&who);
        }
    }

    fn are_none(&self) -> bool {
        !self.are_all && self.known.is_empty()
    }

    /// Whether all of them have sessions.
    fn are_sessions(&self) -> bool {
        !self.are_all && self.known.iter().all(|who| matches!(who, Who::Session(_)))
    }
}

/// A request that waits for its turn.
struct Entry {
    number: u64,
    /// The manifest that it was received for.
    manifest: &'static Manifest,
    who: Who,
    message: Vec<u8>,
    session: Session,
    exchange: Exchange,
    lines: mpsc::UnboundedSender<Line>,
    ticket: Arc<Ticket>,
    client: QueueClient,
    since: Instant,
    /// When the time limit has passed that counts from its arrival.
    deadline: Option<Instant>,
    /// It was acknowledged, so that it runs whether its client is there or not.
    is_acknowledged: bool,
}

/// The state of a request that has no reply yet.
#[derive(Debug)]
struct Ticket {
    /// The JSON text of its id.
    id: Box<[u8]>,
    session: Option<String>,
    is_cancelled: AtomicBool,
    cancelled: Notify,
    /// Why its call is ended, with a failure that says so.
    halted: OnceLock<Arc<str>>,
    halting: Notify,
    /// How many bytes of notifications wait for its client.
    backlog: AtomicUsize,
    /// How many were dropped since that was said.
    dropped: AtomicUsize,
    /// The session of the request, once the extension has run for it.
    session_after: Mutex<Option<Session>>,
}

/// State that the two threads share.
///
/// Waking the other thread costs more than many a call. So neither wakes the other for each
/// request: a task of the server's wakes the extension's thread when all connections that had
/// something to say have said it, and another one hands out all the lines that there are by then.
struct Shared {
    settings: Settings,
    /// The extension's manifest, which a renewal makes another one.
    manifest: Mutex<&'static Manifest>,
    /// The observer that is told of renewals.
    between: OnceLock<Arc<dyn Between>>,
    state: Mutex<State>,
    /// The sessions that are known by a name. It is locked before the state.
    sessions: Mutex<VecDeque<(String, Session)>>,
    /// Entries were put into the queue: for the server's task.
    filled: Notify,
    /// There are entries: for the extension's thread.
    ready: Notify,
    told: Mutex<Vec<(mpsc::UnboundedSender<Line>, Line)>>,
    /// There are lines: for the server's task.
    telling: Notify,
    /// A session has begun.
    has_begun: AtomicBool,
    /// The safe state was brought about, the manifest was read, or a request has ended.
    calm: Notify,
    /// How often the manifest was read again. Clients that want to be told subscribe to it.
    renewals: watch::Sender<u64>,
}

#[allow(clippy::struct_excessive_bools, reason = "each is a separate fact")]
#[derive(Default)]
struct State {
    /// The entries of each client, whose turn comes next first.
    waiting: VecDeque<(Turn, VecDeque<Box<Entry>>)>,
    /// The requests that have no reply yet, the oldest first.
    open: BTreeMap<u64, Open>,
    last: u64,
    /// How many bytes they have.
    bytes: usize,
    /// The running work.
    running: Option<Held>,
    /// No more entries are accepted.
    is_closed: bool,
    /// How many sessions of connections are open.
    sessions: usize,
    /// The last of them was lost.
    is_unsafe: bool,
    /// The extension may have another manifest.
    is_stale: bool,
    /// That is read.
    is_renewing: bool,
    /// The safe state is brought about.
    is_making_safe: bool,
    /// The configuration that one of them has set, as JSON text.
    config: Option<String>,
    /// Clients that may have switched something on since the last safe state, and whose protocol
    /// has it switched off when they go.
    touched: Clients,
    /// Those whose protocol leaves it on.
    staying: Clients,
    /// Clients whose next reply reports the safe state.
    owed: Clients,
    /// When a client was heard of last, or something ended.
    heard: Option<Instant>,
    /// Listeners without a request: the last to come is the last.
    listeners: Vec<Listener>,
    /// The server ends: nobody listens any more.
    has_ended_listeners: bool,
    /// The members of batches that were not received yet, by the number of the batch.
    batches: BTreeMap<u64, Members>,
}

/// The members of a batch that were not received yet.
#[derive(Debug)]
struct Members {
    session: Option<String>,
    /// The JSON texts of their ids.
    ids: Vec<Box<[u8]>>,
}

/// The members of a batch that were not received yet. They can be cancelled until this is dropped.
#[derive(Debug)]
pub(crate) struct BatchMembers {
    shared: Arc<Shared>,
    number: u64,
}

impl BatchMembers {
    /// Takes out the member with this id, which is to be received now. Returns `false` if it was cancelled.
    pub(crate) fn begin(&self, id: &str) -> bool {
        self.shared.state().batches.get_mut(&self.number).is_some_and(|members| members.take(id.as_bytes()))
    }
}

impl Drop for BatchMembers {
    fn drop(&mut self) {
        self.shared.state().batches.remove(&self.number);
    }
}

impl Members {
    fn take(&mut self, id: &[u8]) -> bool {
        let place = self.ids.iter().position(|known| **known == *id);
        place.map(|place| self.ids.remove(place)).is_some()
    }
}

/// A client that waits for no reply, and hears what concerns all clients.
#[derive(Debug)]
struct Listener {
    session: Option<String>,
    lines: mpsc::Sender<Line>,
    /// How many lines were dropped since that was said.
    dropped: usize,
}

impl Listener {
    /// Sends a line, and before it how many were dropped. A line for which there is no room is dropped.
    fn tell(&mut self, line: &[u8], protocol: &Protocol) {
        if self.dropped > 0 && self.lines.capacity() > 1 {
            let mut memory = vec![0; LEAST_REPLY];
            let length = whole::dropped_logs(protocol, self.dropped, &mut memory).unwrap_or_default();
            memory.truncate(length.saturating_sub(1));
            if self.lines.try_send(Line::Notification(memory)).is_ok() {
                self.dropped = 0;
            }
        }
        if self.lines.capacity() == 0
            || self.dropped > 0
            || self.lines.try_send(Line::Notification(line.to_vec())).is_err()
        {
            self.dropped += 1;
        }
    }
}

/// The next thing to do.
enum Task {
    Entry(Box<Entry>, Facts),
    SafeState,
    /// Read the manifest of the extension again, since it may have changed.
    Renewal,
}

/// The facts about an entry when it has its turn.
struct Facts {
    /// Some client may have switched something on.
    is_touched: bool,
    /// The client of the entry may have.
    is_touched_by_it: bool,
    /// Its reply reports a safe state.
    is_owed: bool,
}

/// A request that has no reply yet.
struct Open {
    ticket: Arc<Ticket>,
    bytes: usize,
    /// Keeps its client waiting until the reply is out. When the extension ends, the queue is
    /// closed before the client hears of it.
    lines: mpsc::UnboundedSender<Line>,
    wants_logs: bool,
    session: Session,
    /// Its entry in the list of callers.
    call: Option<InCall>,
}

/// The holder of the extension.
#[derive(Debug, Clone)]
struct Held {
    client: QueueClient,
    operation: &'static str,
    since: Instant,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, operation, since } = self;
        write!(f, "{operation} has run for {:.1} s, for {}", since.elapsed().as_secs_f64(), client.peer())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The manifest of the [remote extension](Settings::remote), or else the one that the extension
    /// had when it was served last.
    fn manifest(&self) -> &'static Manifest {
        let known = *lock(&self.manifest);
        self.settings.remote.as_ref().and_then(|remote| remote.manifest()).unwrap_or(known)
    }

    /// The server of a session by this protocol, or by the first one.
    fn served(&self, manifest: &'static Manifest, protocol: Option<&'static Protocol>) -> io::Result<Served<'_>> {
        let Settings { protocols, is_pinned, limits, .. } = &self.settings;
        let served = Served::new(manifest, protocols, *limits).zip(protocol.or(protocols.first().copied()));
        served
            .map(|(served, protocol)| if *is_pinned { served.with_protocol(protocol) } else { served })
            .ok_or_else(|| io::Error::other("no protocol"))
    }

    async fn carry_requests(&self) {
        loop {
            self.filled.notified().await;
            self.ready.notify_one();
        }
    }

    async fn carry_lines(&self) {
        loop {
            self.telling.notified().await;
            let lines = std::mem::take(&mut *lock(&self.told));
            for (client, line) in lines {
                let _ = client.send(line);
            }
        }
    }

    /// Brings a line to a request's client.
    fn tell(&self, client: &mpsc::UnboundedSender<Line>, line: Line) {
        let mut told = lock(&self.told);
        told.push((client.clone(), line));
        // Otherwise the one who carries them is on its way already.
        if told.len() == 1 {
            drop(told);
            self.telling.notify_one();
        }
    }

    /// Brings a log or progress, unless too much of it waits.
    fn notify(&self, client: &mpsc::UnboundedSender<Line>, ticket: &Ticket, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if client.is_closed() {
            return;
        }
        if ticket.backlog.load(Ordering::Relaxed).saturating_add(line.len()) <= BACKLOG {
            ticket.backlog.fetch_add(line.len(), Ordering::Relaxed);
            self.tell(client, Line::Notification(line.to_vec()));
        } else {
            ticket.dropped.fetch_add(usize::try_from(logs_in(line)).unwrap_or(1), Ordering::Relaxed);
        }
    }

    /// Tells a client how many logs were dropped, if there were any.
    fn tell_dropped(&self, client: &mpsc::UnboundedSender<Line>, ticket: &Ticket, protocol: &Protocol) {
        let count = ticket.dropped.swap(0, Ordering::Relaxed);
        let mut line = vec![0; LEAST_REPLY];
        if count > 0
            && let Some(length) = whole::dropped_logs(protocol, count, &mut line)
        {
            line.truncate(length.saturating_sub(1));
            ticket.backlog.fetch_add(line.len(), Ordering::Relaxed);
            self.tell(client, Line::Notification(line));
        }
    }

    /// The next entry whose client is there, or the safe state if that is due; none when there will
    /// be no more.
    async fn next(&self) -> Option<Task> {
        loop {
            let next = {
                let mut state = self.state();
                if std::mem::take(&mut state.is_unsafe) {
                    state.is_making_safe = true;
                    return Some(Task::SafeState);
                }
                if std::mem::take(&mut state.is_stale) {
                    state.is_renewing = true;
                    return Some(Task::Renewal);
                }
                let next = state.pop();
                if next.is_none() && state.is_closed {
                    return None;
                }
                if let Some(entry) = &next {
                    state.running = Some(entry.holds());
                }
                next.map(|entry| (state.facts(&entry.who), entry))
            };
            match next {
                None => self.ready.notified().await,
                // A client does not give up that soon.
                Some((_, entry))
                    if !entry.is_acknowledged
                        && entry.since.elapsed() > NO_WAIT
                        && (entry.lines.is_closed() || entry.client.is_gone()) =>
                {
                    self.ended(entry.number, |_| ());
                }
                Some((facts, entry)) => {
                    if entry.client.caller.is_some()
                        && let Some(call) = self.state().open.get_mut(&entry.number).and_then(|open| open.call.as_mut())
                    {
                        call.runs();
                    }
                    return Some(Task::Entry(entry, facts));
                }
            }
        }
    }

    /// An entry has its reply, or needs none. `change` is made with it.
    fn ended(&self, number: u64, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let over = (state.end(number), state.running.take());
        state.heard = Some(Instant::now());
        drop(state);
        drop(over);
        self.calm.notify_waiters();
    }

    /// Whether what the clients have switched on does not outlive them.
    fn ends_safe(&self) -> bool {
        !self.settings.keeps_outputs && self.settings.protocols.first().is_some_and(|protocol| protocol.has_safe_end())
    }

    /// The safe state was brought about. Every client that is there hears so at once, but for the
    /// one whose request it is, which has heard already. The next replies to those who had switched
    /// something on say so, and the next one to `cause`.
    fn made_safe(&self, to: &Served<'_>, cause: Option<(&Who, u64)>) {
        let mut state = self.state();
        (state.is_unsafe, state.is_making_safe) = (false, false);
        self.calm.notify_waiters();
        let (touched, staying) = (std::mem::take(&mut state.touched), std::mem::take(&mut state.staying));
        state.owed.are_all |= touched.are_all || staying.are_all;
        for who in touched.known.into_iter().chain(staying.known).chain(cause.map(|(who, _)| who.clone())) {
            state.owed.add(who);
        }
        if !to.manifest().has_safe_state {
            return;
        }
        let mut memory = vec![0; LEAST_REPLY];
        for (number, open) in &state.open {
            if open.wants_logs && cause.is_none_or(|(_, own)| own != *number) {
                let length = open.session.write_made_safe(&mut memory);
                if let Some(line) = memory.get(..length).filter(|line| !line.is_empty()) {
                    self.notify(&open.lines, &open.ticket, line);
                }
            }
        }
        state.listeners.retain(|listener| !listener.lines.is_closed());
        let session = Session::new(to);
        let length = session.write_made_safe(&mut memory);
        memory.truncate(length);
        let mut told = HashSet::new();
        for listener in state.listeners.iter_mut().rev().filter(|_| length > 0) {
            if listener.session.as_ref().is_none_or(|session| told.insert(session.clone())) {
                listener.tell(&memory, session.protocol());
            }
        }
    }

    /// Has the safe state brought about if the last session has ended, and, of the clients whose
    /// protocol has a safe end, only sessions have switched something on: of a client without one,
    /// only its silence says that it is gone.
    fn make_safe_without_sessions(&self) {
        if !self.ends_safe() || !lock(&self.sessions).is_empty() {
            return;
        }
        if self.state().no_session_is_left() {
            self.ready.notify_one();
        }
    }

    /// Has the safe state brought about when no client was heard of for so long.
    async fn watch_idle(&self, idle: Duration) {
        let mut ticks = tokio::time::interval((idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(1)));
        loop {
            ticks.tick().await;
            let mut state = self.state();
            let is_idle = state.running.is_none() && state.open.is_empty() && !state.touched.are_none();
            if is_idle && state.heard.is_some_and(|heard| heard.elapsed() >= idle) {
                state.is_unsafe = true;
                self.ready.notify_one();
            }
        }
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.ready.notify_one();
        self.calm.notify_waiters();
    }
}

impl State {
    /// Returns what is to be dropped when the state is not locked any more.
    fn end(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(open.bytes);
        Some(open)
    }

    fn facts(&self, who: &Who) -> Facts {
        Facts {
            is_touched: !self.touched.are_none() || !self.staying.are_none(),
            is_touched_by_it: self.touched.has(who) || self.staying.has(who),
            is_owed: self.owed.has(who),
        }
    }

    /// See [`Shared::make_safe_without_sessions`]. Returns whether the safe state is due.
    fn no_session_is_left(&mut self) -> bool {
        let is_due = self.touched.are_sessions() && !self.touched.are_none();
        self.is_unsafe |= is_due;
        is_due
    }

    /// The first entry of the client whose turn it is, who then waits behind all others.
    fn pop(&mut self) -> Option<Box<Entry>> {
        let (turn, mut entries) = self.waiting.pop_front()?;
        let entry = entries.pop_front();
        if !entries.is_empty() {
            self.waiting.push_back((turn, entries));
        }
        entry
    }

    fn push(&mut self, turn: Turn, entry: Box<Entry>) {
        match self.waiting.iter_mut().find(|(known, _)| *known == turn) {
            Some((_, entries)) => entries.push_back(entry),
            None => self.waiting.push_back((turn, [entry].into())),
        }
    }

    /// Takes an entry out of the queue; none if it does not wait there.
    fn take(&mut self, number: u64) -> Option<Box<Entry>> {
        let (client, place) = self.waiting.iter().enumerate().find_map(|(client, (_, entries))| {
            Some((client, entries.iter().position(|entry| entry.number == number)?))
        })?;
        let (_, entries) = self.waiting.get_mut(client)?;
        let entry = entries.remove(place);
        if entries.is_empty() {
            self.waiting.remove(client);
        }
        entry
    }

    /// Nobody waits for its reply any more. It is not begun, or it is ended.
    fn cancel(&mut self, number: u64) {
        let Some(ticket) = self.open.get(&number).map(|open| open.ticket.clone()) else { return };
        if self.take(number).is_some() {
            self.end(number);
        } else {
            ticket.is_cancelled.store(true, Ordering::Release);
            ticket.cancelled.notify_one();
        }
    }
}

impl Entry {
    fn holds(&self) -> Held {
        let operation = operation_of(&self.exchange, self.manifest).unwrap_or("the configuration");
        Held { client: self.client.clone(), operation, since: Instant::now() }
    }

    /// The reply which says that it was not begun.
    fn refuse(self, to: &Served<'_>, kind: FailureKind, why: &dyn Message) -> Option<Vec<u8>> {
        let Self { mut message, mut session, mut exchange, .. } = self;
        let mut out = vec![0; LEAST_REPLY * 2];
        exchange.refuse(to, &mut message, &mut out, kind, why);
        match session.settle(to, &message, &mut out, &mut exchange) {
            Next::Reply(length) => {
                out.truncate(length);
                Some(out)
            }
            _ => None,
        }
    }

    /// The reply which says that its time was up before it was begun. `holder` holds the extension.
    fn refuse_late(self, to: &Served<'_>, holder: Option<&Held>) -> Option<Vec<u8>> {
        let since = self.since;
        refuse_late(since, holder, |why| self.refuse(to, FailureKind::Timeout, why))
    }
}

/// Refuses what has waited since then, and whose time is up.
fn refuse_late<T>(since: Instant, holder: Option<&Held>, refuse: impl FnOnce(&Late<'_>) -> T) -> T {
    let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let holder = holder.map(Held::to_string);
    refuse(&Late { waited, running: holder.as_deref() })
}

/// The name of the operation that runs or waits; none if it is a configuration.
fn operation_of(exchange: &Exchange, manifest: &'static Manifest) -> Option<&'static str> {
    exchange.operation().and_then(|index| manifest.operations.get(index)).map(|operation| operation.name)
}

impl Queue {
    /// Starts a thread with the extension that `make` returns. If `requires`, the commands in its
    /// manifest's `requires` are checked before each call. The receiver gets the result when the
    /// thread has ended.
    ///
    /// # Errors
    /// The thread cannot be started, or `make` panicked.
    pub async fn start<E: Extension>(
        settings: Settings,
        requires: bool,
        make: impl FnOnce(&ServerInfo) -> E + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<io::Result<()>>)> {
        let (shared, manifest, ended) = Self::on_thread(settings, requires, make)?;
        match manifest.await {
            Ok(manifest) => Ok((Self::before(manifest, shared), ended)),
            Err(_) => Err(io::Error::other("making the extension panicked")),
        }
    }

    /// Starts as [`start`](Self::start) does, with an extension that exists already, and without
    /// the check of its requirements.
    pub fn start_with<E: Extension + Send + 'static>(
        settings: Settings,
        extension: E,
    ) -> io::Result<(Self, oneshot::Receiver<io::Result<()>>)> {
        let manifest = extension.manifest();
        let (shared, _, ended) = Self::on_thread(settings, false, |_| extension)?;
        Ok((Self::before(manifest, shared), ended))
    }

    #[allow(clippy::type_complexity, reason = "it is for two callers")]
    fn on_thread<E: Extension>(
        settings: Settings,
        requires: bool,
        make: impl FnOnce(&ServerInfo) -> E + Send + 'static,
    ) -> io::Result<(Arc<Shared>, oneshot::Receiver<&'static Manifest>, oneshot::Receiver<io::Result<()>>)> {
        let limits = settings.limits;
        let shared = Arc::new(Shared::new(settings));
        let end = End(shared.clone());
        let (tell_manifest, manifest) = oneshot::channel();
        let (tell_end, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("rigline-extension".into()).spawn(move || {
            let end = end;
            let info = ServerInfo { clock: TokioClock::new(), limits };
            let made = panic::catch_unwind(AssertUnwindSafe(|| {
                let _context = runtime.enter();
                make(&info)
            }));
            let result = match made {
                Ok(extension) => {
                    let _ = tell_manifest.send(extension.manifest());
                    if requires {
                        run(&runtime, &info.clock, RequirePath::new(extension), &end.0)
                    } else {
                        run(&runtime, &info.clock, extension, &end.0)
                    }
                }
                Err(_) => Err(io::Error::other("making the extension panicked")),
            };
            runtime.shutdown_background();
            drop(end);
            let _ = tell_end.send(result);
        })?;
        Ok((shared, manifest, ended))
    }

    /// A queue before an extension of this thread, and the future that runs its entries until the
    /// queue is [closed](Self::close). Use both in one runtime.
    pub fn over<E: Extension>(
        extension: E,
        settings: Settings,
        clock: TokioClock,
    ) -> (Self, impl Future<Output = io::Result<()>>) {
        let shared = Arc::new(Shared::new(settings));
        let queue = Self::before(extension.manifest(), shared.clone());
        let mut extension = RequirePath::new(extension);
        let working = async move {
            let end = End(shared);
            clock.drive(work(&end.0, &mut extension, &clock)).await
        };
        (queue, working)
    }

    fn before(manifest: &'static Manifest, shared: Arc<Shared>) -> Self {
        let mut carriers = JoinSet::new();
        let (for_requests, for_lines) = (shared.clone(), shared.clone());
        carriers.spawn(async move { for_requests.carry_requests().await });
        carriers.spawn(async move { for_lines.carry_lines().await });
        if let Some(idle) = shared.settings.idle.filter(|_| shared.ends_safe()) {
            let shared = shared.clone();
            carriers.spawn(async move { shared.watch_idle(idle).await });
        }
        *lock(&shared.manifest) = manifest;
        Self { shared, scratch: Mutex::default(), _carriers: carriers }
    }

    /// Tells somebody when the extension is served anew, and how that is asked for.
    pub(crate) fn stand_between(&self, between: Arc<dyn Between>) {
        if self.shared.between.set(between.clone()).is_ok() {
            between.begin(self.renewal());
        }
    }

    /// The means to let the extension be served anew after its manifest has changed.
    pub fn renewal(&self) -> Renewal {
        let (shared, known) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.shared));
        let renewal = Renewal::new(false, move || {
            if let Some(shared) = shared.upgrade() {
                shared.state().is_stale = true;
                shared.ready.notify_one();
            }
        });
        renewal.awaited(move || known.upgrade().is_some_and(|shared| shared.renewals.receiver_count() > 0))
    }

    /// The messages by which clients of this protocol are told that the operations are others.
    pub fn changes_in(&self, protocol: &Protocol) -> Option<&'static Changes> {
        (self.shared.settings.changes)(protocol)
    }

    /// Changes when the extension is served anew. While somebody has it, clients want to be told.
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.shared.renewals.subscribe()
    }

    /// The manifest of the extension.
    pub fn manifest(&self) -> &'static Manifest {
        self.shared.manifest()
    }

    /// Whether the extension is connected, so that it can be called. An extension in this process
    /// always is.
    pub fn is_reached(&self) -> bool {
        self.shared.settings.remote.as_ref().is_none_or(|remote| remote.is_reached())
    }

    /// Connects to the extension if the next message needs it. If that takes long, `told` gets a
    /// line: a log in the session's protocol.
    ///
    /// # Errors
    /// The extension cannot be reached. The error is the reply, which says why.
    pub async fn reach(
        &self,
        session: &mut Session,
        message: &[u8],
        told: &(dyn Fn(Vec<u8>) + Send + Sync),
    ) -> Result<(), Vec<u8>> {
        let Some(remote) = self.shared.settings.remote.clone().filter(|_| self.needs_extension(*session, message))
        else {
            return Ok(());
        };
        let before = *session;
        let told = |text: &str| {
            let mut memory = vec![0; text.len() * 6 + LEAST_REPLY];
            let length = before.write_warning(&text, &mut memory);
            memory.truncate(length);
            if !memory.is_empty() {
                told(memory);
            }
        };
        let reached = remote.reach(&told).await;
        self.renewed().await;
        let Err(absence) = reached else { return Ok(()) };
        if !self.needs_extension(*session, message) {
            return Ok(());
        }
        let Ok(to) = self.shared.served(self.manifest(), Some(session.protocol())) else { return Ok(()) };
        let Absence { kind, code, message: why } = absence;
        let mut out = vec![0; why.len() * 6 + LEAST_REPLY * 2];
        let length = session.refuse(&to, message, &mut out, (kind, code), &why.as_str());
        out.truncate(length.unwrap_or_default());
        Err(out)
    }

    /// Reaches the extension as [`reach`](Self::reach) does, for a message without a session, in this
    /// protocol in place of the first one.
    pub(crate) async fn reach_by(&self, protocol: &'static Protocol, message: &[u8]) -> Result<(), Vec<u8>> {
        match self.session_by(Some(protocol)).filter(|_| !self.is_reached()) {
            Some(mut session) => self.reach(&mut session, message, &|_| ()).await,
            None => Ok(()),
        }
    }

    /// Waits until the manifest was read again, if it may be another one.
    async fn renewed(&self) {
        self.until(|state| !(state.is_stale || state.is_renewing)).await;
    }

    /// Waits until the state is like that, or the queue is closed.
    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let mut calm = std::pin::pin!(self.shared.calm.notified());
            calm.as_mut().enable();
            {
                let state = self.shared.state();
                if state.is_closed || is_so(&state) {
                    return;
                }
            }
            calm.await;
        }
    }

    /// Whether a message cannot be received before the extension is reached: a request that neither
    /// ends a session nor brings a configuration, which reaches it itself, and whose answer depends
    /// on the extension. With a stand-in it is a request for an operation that this does not have.
    fn needs_extension(&self, mut session: Session, message: &[u8]) -> bool {
        if self.is_reached() || self.is_answered_alike(session, message) {
            return false;
        }
        let Ok(to) = self.shared.served(self.manifest(), Some(session.protocol())) else { return false };
        let mut exchange = Exchange::new(&to);
        self.answered_at_once(|out| {
            let mut asked = session;
            match asked.receive(&to, message, out, &mut exchange) {
                Next::Shutdown(_) => false,
                Next::Run { .. } if exchange.operation().is_none() => false,
                _ if self.has_stand_in(asked.protocol()) => session.asks_for_unknown_operation(&to, message),
                _ => session.refuse(&to, message, out, (FailureKind::Unreachable, 0), &"").is_some(),
            }
        })
    }

    /// Whether clients of this protocol are answered while the extension is not connected.
    fn has_stand_in(&self, protocol: &Protocol) -> bool {
        self.shared.settings.remote.as_ref().is_some_and(|remote| remote.has_stand_in(protocol))
    }

    /// Whether a request is answered, and not refused, by the same bytes whatever the extension is:
    /// it asks whether the server is there.
    fn is_answered_alike(&self, session: Session, message: &[u8]) -> bool {
        static OTHER: Manifest = Manifest::new("other", "1.0.0").operations(&[Operation::new("other", Schema::OBJECT)]);
        let answer = |manifest| {
            let (mut session, to) = (session, self.shared.served(manifest, Some(session.protocol())).ok()?);
            let mut exchange = Exchange::new(&to);
            self.answered_at_once(|out| match session.receive(&to, message, out, &mut exchange) {
                Next::Reply(length) => out.get(..length).map(<[u8]>::to_vec),
                _ => None,
            })
        };
        let is_refusal = |reply: &[u8]| {
            Json::parse(reply).is_ok_and(|reply| {
                reply.get("error").is_some()
                    || reply.get("result").is_some_and(|result| result.get("isError").is_some())
            })
        };
        let one = answer(&NO_MANIFEST).filter(|reply| !is_refusal(reply));
        one.is_some_and(|one| answer(&OTHER).is_some_and(|other| one == other))
    }

    /// Waits until the safe state has run, if it has to run.
    pub async fn settled(&self) {
        self.until(|state| !(state.is_unsafe || state.is_making_safe)).await;
    }

    /// Ends all calls, also those that wait, with a failure that says `why`. Returns when no call
    /// runs any more.
    pub async fn halt(&self, why: &str) {
        let why: Arc<str> = why.into();
        let waiting = {
            let mut state = self.shared.state();
            let waiting = std::mem::take(&mut state.waiting);
            for (_, entries) in &waiting {
                entries.iter().for_each(|entry| drop(state.end(entry.number)));
            }
            for open in state.open.values() {
                let _ = open.ticket.halted.set(why.clone());
                open.ticket.halting.notify_one();
            }
            waiting
        };
        for entry in waiting.into_iter().flat_map(|(_, entries)| entries) {
            let lines = entry.lines.clone();
            let to = self.shared.served(entry.manifest, Some(entry.session.protocol())).ok();
            if let Some(reply) = to.and_then(|to| entry.refuse(&to, FailureKind::Unreachable, &&*why)) {
                let _ = lines.send(Line::Reply(reply));
            }
        }
        self.until(|state| state.running.is_none()).await;
    }

    /// The greatest lengths of a request and of a reply, in bytes.
    pub fn limits(&self) -> (usize, usize) {
        self.shared.settings.limits
    }

    /// Receives a message, which is one JSON text.
    pub fn receive(&self, message: Vec<u8>, asker: &Asker<'_>) -> Received {
        self.receive_by(None, message, asker)
    }

    /// Receives a message as [`receive`](Self::receive) does, in this protocol in place of the
    /// first one.
    pub fn receive_by(&self, protocol: Option<&'static Protocol>, message: Vec<u8>, asker: &Asker<'_>) -> Received {
        let known = asker.session.and_then(|name| self.session(name));
        let Some(mut session) = known.or_else(|| self.session_by(protocol)) else { return Received::Gone };
        let received = self.receive_in(&mut session, message, asker, true).unwrap_or(Received::Full);
        if let Some(name) = asker.session {
            self.keep_session(name, session);
        }
        if session.is_open() {
            self.shared.has_begun.store(true, Ordering::Release);
        }
        received
    }

    /// A session for a connection that has sent nothing yet; none if the queue has no protocol.
    pub fn new_session(&self) -> Option<Session> {
        self.session_by(None)
    }

    fn session_by(&self, protocol: Option<&'static Protocol>) -> Option<Session> {
        Some(Session::new(&self.shared.served(self.manifest(), protocol).ok()?))
    }

    /// Receives a message of a connection with this session. `is_alone` says that no other message
    /// of the connection waits or runs.
    ///
    /// # Errors
    /// The message must be received again later, and is returned. Either it begins or ends a
    /// session and is not alone, or the queue is full.
    pub fn receive_in(
        &self,
        session: &mut Session,
        mut message: Vec<u8>,
        asker: &Asker<'_>,
        is_alone: bool,
    ) -> Result<Received, Vec<u8>> {
        {
            let mut state = self.shared.state();
            if state.is_closed {
                return Ok(Received::Gone);
            }
            state.heard = Some(Instant::now());
        }
        on_one_line(&mut message);
        let manifest = self.manifest();
        let Ok(to) = self.shared.served(manifest, Some(session.protocol())) else { return Ok(Received::Gone) };
        let (before, mut exchange) = (*session, Exchange::new(&to));
        let received = self.answered_at_once(|out| {
            let next = session.receive(&to, &message, out, &mut exchange);
            let length = match next {
                Next::Reply(length)
                | Next::StaysOpen(length)
                | Next::ReplyThenRun(length)
                | Next::Shutdown(Some(length)) => length,
                Next::Nothing | Next::Run { .. } | Next::Shutdown(None) => 0,
            };
            (next, out.get(..length).unwrap_or_default().to_vec())
        });
        let is_configuration = matches!(received.0, Next::Run { .. }) && exchange.operation().is_none();
        let changes =
            is_configuration || matches!(received.0, Next::Shutdown(_)) || session.is_open() != before.is_open();
        if changes && !is_alone {
            *session = before;
            return Err(message);
        }
        let enqueued = match received {
            (Next::Nothing, _) => return Ok(Received::Silent),
            (Next::Shutdown(length), reply) => {
                let _ = session.settle(&to, &message, &mut [], &mut exchange);
                return Ok(length.map_or(Received::Silent, |_| Received::Reply(reply)));
            }
            (Next::Reply(_), reply) => return Ok(Received::Reply(reply)),
            (Next::StaysOpen(_), reply) => return Ok(Received::StaysOpen(reply)),
            (Next::ReplyThenRun(_), reply) => {
                // Nobody waits for what comes of it: it goes on when its client is gone.
                let _ = session.settle(&to, &message, &mut [], &mut exchange);
                self.enqueue(message, *session, (exchange, manifest), asker, true).map(|_| Received::Reply(reply))
            }
            (Next::Run { .. }, _) => {
                self.enqueue(message, *session, (exchange, manifest), asker, false).map(Received::Waits)
            }
        };
        match enqueued {
            Ok(received) => Ok(received),
            Err(Refused::Gone) => Ok(Received::Gone),
            Err(Refused::Full(message)) => {
                *session = before;
                Err(message)
            }
        }
    }

    /// Decides on a message of a connection while another message of it waits or runs.
    pub fn look_ahead(&self, session: &mut Session, message: &[u8]) -> Early {
        let Ok(to) = self.shared.served(self.manifest(), Some(session.protocol())) else { return Early::Waits };
        self.answered_at_once(|out| match session.look_ahead(&to, message, out, b"") {
            Ahead::Wait | Ahead::Cancel => Early::Waits,
            Ahead::Reply(length) => Early::Reply(out.get(..length).unwrap_or_default().to_vec()),
            Ahead::Nothing => Early::Silent,
            Ahead::Forget(span) => {
                let id = message.get(span.range());
                Early::Cancels(id.unwrap_or_default().to_vec())
            }
        })
    }

    /// When the time is up of a message that came then and has to wait before it is received, and can be answered before its turn: a call in a
    /// protocol with ids.
    pub fn due(&self, session: &Session, message: &[u8], since: Instant) -> Option<Instant> {
        let to = self.shared.served(self.manifest(), Some(session.protocol())).ok()?;
        let (nanos, is_early) = session.limit_ahead(&to, message)?;
        since.checked_add(Duration::from_nanos(nanos)).filter(|_| is_early)
    }

    /// The reply to a call that came then, and whose time was up before it could be received; none if it gets none.
    pub fn refuse_late(&self, mut session: Session, mut message: Vec<u8>, since: Instant) -> Option<Vec<u8>> {
        let to = self.shared.served(self.manifest(), Some(session.protocol())).ok()?;
        let mut exchange = Exchange::new(&to);
        let mut out = vec![0; LEAST_REPLY * 2];
        if !matches!(session.receive(&to, &message, &mut out, &mut exchange), Next::Run { .. }) {
            return None;
        }
        let running = self.shared.state().running.clone();
        refuse_late(since, running.as_ref(), |why| {
            exchange.refuse(&to, &mut message, &mut out, FailureKind::Timeout, why);
        });
        let Next::Reply(length) = session.settle(&to, &message, &mut out, &mut exchange) else { return None };
        out.truncate(length);
        Some(out)
    }

    /// Takes note that a connection has begun a session.
    pub fn session_opened(&self) {
        self.shared.state().sessions += 1;
    }

    /// Takes note that a connection's session has ended. If it was lost and no other session is
    /// open, the safe state runs.
    pub fn session_closed(&self, is_lost: bool) {
        let mut state = self.shared.state();
        state.sessions = state.sessions.saturating_sub(1);
        state.is_unsafe |= is_lost && state.sessions == 0 && !self.shared.settings.keeps_outputs;
        drop(state);
        self.shared.ready.notify_one();
    }

    /// Takes note that a connection without a session has ended. If it has switched something on in
    /// a protocol with [`with_safe_end`](Protocol::with_safe_end), and no session is open, the safe
    /// state runs.
    pub fn connection_ended(&self, client: &QueueClient, protocol: &Protocol) {
        let who = Who::Connection(client.key());
        let mut state = self.shared.state();
        state.owed.known.remove(&who);
        let has_touched = state.touched.known.remove(&who) | state.staying.known.remove(&who);
        if has_touched && protocol.has_safe_end() && !self.shared.settings.keeps_outputs && state.sessions == 0 {
            state.is_unsafe = true;
        }
        drop(state);
        self.shared.ready.notify_one();
    }

    fn enqueue(
        &self,
        message: Vec<u8>,
        session: Session,
        (exchange, manifest): (Exchange, &'static Manifest),
        asker: &Asker<'_>,
        is_acknowledged: bool,
    ) -> Result<Incoming, Refused> {
        let (lines, receiver) = mpsc::unbounded_channel();
        let arrived = asker.arrived.filter(|_| !session.protocol().has_own_limit());
        let since = arrived.unwrap_or_else(Instant::now);
        let deadline = exchange.timeout_nanos().and_then(|nanos| since.checked_add(Duration::from_nanos(nanos)));
        let ticket = Arc::new(Ticket {
            id: exchange.id(&message).into(),
            session: asker.session.map(str::to_owned),
            is_cancelled: AtomicBool::new(false),
            cancelled: Notify::new(),
            halted: OnceLock::new(),
            halting: Notify::new(),
            backlog: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            session_after: Mutex::new(None),
        });
        let is_operation = exchange.operation().is_some();
        let who = match (asker.session, asker.identity) {
            (Some(name), _) => Who::Session(name.to_owned()),
            (None, Some(identity)) => Who::Named(identity.to_owned()),
            (None, None) => Who::Connection(asker.client.key()),
        };
        let turn = match asker.session {
            Some(name) => Turn::Session(name.to_owned()),
            None => Turn::Connection(asker.client.key()),
        };
        let operation = operation_of(&exchange, manifest);
        let wants_logs = asker.wants_logs && session.wants_warnings();
        let mut entry = Box::new(Entry {
            number: 0,
            manifest,
            who,
            message,
            session,
            exchange,
            lines: lines.clone(),
            ticket: ticket.clone(),
            client: asker.client.clone(),
            since,
            deadline,
            is_acknowledged,
        });
        let number = {
            let mut state = self.shared.state();
            if state.is_closed {
                return Err(Refused::Gone);
            }
            let bytes = entry.message.len();
            let is_too_much = !state.open.is_empty() && state.bytes.saturating_add(bytes) > WAITING;
            if is_too_much || state.open.len() >= self.shared.settings.most {
                return Err(Refused::Full(entry.message));
            }
            state.bytes += bytes;
            state.last += 1;
            entry.number = state.last;
            let call = asker.client.caller.as_ref().zip(operation).map(|(caller, operation)| caller.begin(operation));
            let open = Open { ticket: ticket.clone(), bytes, lines, wants_logs, session, call };
            state.open.insert(entry.number, open);
            let number = entry.number;
            state.push(turn, entry);
            number
        };
        self.shared.filled.notify_one();
        Ok(Incoming {
            shared: self.shared.clone(),
            number,
            lines: receiver,
            ticket,
            cancels: asker.cancels,
            is_acknowledged,
            is_operation,
            is_over: false,
            expiry: deadline.map(|at| Box::pin(tokio::time::sleep_until(at.into()))),
        })
    }

    /// Calls `answer` with memory for a reply of any length that is allowed. What is beyond a small
    /// one is given back.
    fn answered_at_once<T>(&self, answer: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut scratch = std::mem::take(&mut *lock(&self.scratch));
        // The system gives such memory page by page, as it is written.
        let size = self.limits().1.saturating_add(1).max(LEAST_REPLY);
        if scratch.len() < size {
            scratch = vec![0; size];
        }
        let answered = answer(&mut scratch);
        *lock(&self.scratch) = scratch;
        answered
    }

    /// Cancels the open request of this session with this id, if there is exactly one. If there is none, a batch's member with this id that was
    /// not received yet never will be.
    pub fn cancel(&self, id: &str, session: Option<&str>) {
        let mut state = self.shared.state();
        let is_meant = |ticket: &Ticket| *ticket.id == *id.as_bytes() && ticket.session.as_deref() == session;
        let mut found = state.open.iter().filter(|(_, open)| is_meant(&open.ticket)).map(|(number, _)| *number);
        match (found.next(), found.next()) {
            (Some(number), None) => state.cancel(number),
            (Some(_), Some(_)) => {}
            (None, _) => {
                let mut batches = state.batches.values_mut().filter(|members| members.session.as_deref() == session);
                let _ = batches.any(|members| members.take(id.as_bytes()));
            }
        }
    }

    /// Announces the members of a batch, by the JSON texts of their ids, so that each can be cancelled before it is received.
    pub(crate) fn batch_members(&self, session: Option<&str>, ids: Vec<Box<[u8]>>) -> BatchMembers {
        let mut state = self.shared.state();
        state.last += 1;
        let number = state.last;
        state.batches.insert(number, Members { session: session.map(str::to_owned), ids });
        BatchMembers { shared: self.shared.clone(), number }
    }

    /// A new name for a session, which nobody can guess.
    pub fn session_name() -> String {
        Token::random().reveal().to_owned()
    }

    /// Begins a session of this name. If there are 1,000 already, the one that was silent for
    /// longest is forgotten.
    pub fn open_session(&self, name: &str) {
        if let Ok(to) = self.shared.served(self.manifest(), None) {
            let mut sessions = lock(&self.shared.sessions);
            if sessions.len() >= SESSIONS {
                sessions.pop_front();
            }
            sessions.push_back((name.to_owned(), Session::new(&to)));
        }
    }

    /// The session of this name, if there is one. The session counts as used now.
    pub fn session(&self, name: &str) -> Option<Session> {
        let mut sessions = lock(&self.shared.sessions);
        let place = sessions.iter().position(|(known, _)| known == name)?;
        let session = sessions.remove(place)?;
        let found = session.1;
        sessions.push_back(session);
        Some(found)
    }

    fn keep_session(&self, name: &str, session: Session) {
        if let Some((_, kept)) = lock(&self.shared.sessions).iter_mut().find(|(known, _)| known == name) {
            *kept = session;
        }
    }

    /// Ends a session, and cancels its open requests. Returns whether there was one of that name.
    pub fn end_session(&self, name: &str) -> bool {
        let mut sessions = lock(&self.shared.sessions);
        let Some(place) = sessions.iter().position(|(known, _)| known == name) else { return false };
        sessions.remove(place);
        drop(sessions);
        let mut state = self.shared.state();
        state.listeners.retain(|listener| listener.session.as_deref() != Some(name));
        let open = state.open.iter().filter(|(_, open)| open.ticket.session.as_deref() == Some(name));
        for number in open.map(|(number, _)| *number).collect::<Vec<_>>() {
            state.cancel(number);
        }
        drop(state);
        self.shared.make_safe_without_sessions();
        true
    }

    /// A channel of messages for a client that waits for no reply, of a session or of none. It ends
    /// with the server. It has room for 64 lines. Further ones are dropped, and counted in a log
    /// before the next one.
    pub fn listen(&self, session: Option<&str>) -> mpsc::Receiver<Line> {
        let (lines, receiver) = mpsc::channel(UNHEARD);
        let mut state = self.shared.state();
        state.listeners.retain(|listener| !listener.lines.is_closed());
        // A request to listen that comes while the server ends has an end too.
        if !state.has_ended_listeners {
            state.listeners.push(Listener { session: session.map(str::to_owned), lines, dropped: 0 });
        }
        receiver
    }

    /// Ends all channels of [`listen`](Self::listen).
    pub fn end_listeners(&self) {
        let mut state = self.shared.state();
        state.has_ended_listeners = true;
        state.listeners.clear();
    }

    /// Whether the extension still answers.
    pub fn is_alive(&self) -> bool {
        !self.shared.state().is_closed
    }

    /// Closes the queue: no further request is accepted. Open requests are still answered.
    pub fn close(&self) {
        self.shared.close();
    }
}

/// Until the extension is made.
static NO_MANIFEST: Manifest = Manifest::new("none", "0.0.0");

/// The treatment of a message that came while another one of its connection waits or runs.
#[derive(Debug)]
pub enum Early {
    /// The message waits for its turn.
    Waits,
    /// The message is answered by these bytes.
    Reply(Vec<u8>),
    /// The message needs no answer.
    Silent,
    /// The message cancels the request with this id. The bytes are the JSON text of the id.
    Cancels(Vec<u8>),
}

/// Why a request is not in the queue.
enum Refused {
    /// There are too many requests, or too many bytes of them. The request is returned.
    Full(Vec<u8>),
    Gone,
}

impl Shared {
    fn new(settings: Settings) -> Self {
        Self {
            state: Mutex::new(State { config: settings.config.clone(), ..State::default() }),
            settings,
            manifest: Mutex::new(&NO_MANIFEST),
            between: OnceLock::new(),
            sessions: Mutex::default(),
            filled: Notify::new(),
            ready: Notify::new(),
            told: Mutex::default(),
            telling: Notify::new(),
            has_begun: AtomicBool::new(false),
            calm: Notify::new(),
            renewals: watch::Sender::new(0),
        }
    }
}

/// A request that waits or runs, and the lines that come back for it.
#[allow(clippy::struct_excessive_bools, reason = "each is a separate fact")]
#[derive(Debug)]
pub struct Incoming {
    shared: Arc<Shared>,
    number: u64,
    lines: mpsc::UnboundedReceiver<Line>,
    ticket: Arc<Ticket>,
    cancels: bool,
    /// It goes on without anybody who waits for it.
    is_acknowledged: bool,
    is_operation: bool,
    /// It has its reply, or will have none.
    is_over: bool,
    /// When the time limit has passed.
    expiry: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// The JSON text of the request's id; empty if it has none.
    pub fn id(&self) -> &[u8] {
        &self.ticket.id
    }

    /// Whether the request runs an operation. Otherwise it sets a configuration.
    pub fn is_operation(&self) -> bool {
        self.is_operation
    }

    /// The session of the connection after the extension has run for the request; none if it has
    /// not run.
    pub fn session_after(&self) -> Option<Session> {
        lock(&self.ticket.session_after).take()
    }

    /// Whether the request still waits for its turn.
    pub fn waits(&self) -> bool {
        let state = self.shared.state();
        state.waiting.iter().any(|(_, entries)| entries.iter().any(|entry| entry.number == self.number))
    }

    /// Cancels the request, because nobody waits for its reply any more. If it has not begun, it is
    /// removed; otherwise it is ended.
    pub fn cancel(&self) {
        self.shared.state().cancel(self.number);
    }

    /// Waits for the next line. It is none if the request was cancelled, or the extension has
    /// ended.
    pub async fn line(&mut self) -> Option<Line> {
        poll_fn(|task| self.poll_line(task)).await
    }

    /// Polls for the next line, as [`line`](Self::line) does.
    pub fn poll_line(&mut self, task: &mut task::Context<'_>) -> Poll<Option<Line>> {
        if let Poll::Ready(line) = self.lines.poll_recv(task) {
            match &line {
                Some(Line::Notification(line)) => {
                    self.ticket.backlog.fetch_sub(line.len(), Ordering::Relaxed);
                }
                Some(Line::Reply(_)) | None => self.is_over = true,
            }
            return Poll::Ready(line);
        }
        if let Some(expiry) = &mut self.expiry
            && expiry.as_mut().poll(task).is_ready()
        {
            self.expiry = None;
            if let Some(reply) = self.expire() {
                return Poll::Ready(Some(Line::Reply(reply)));
            }
        }
        Poll::Pending
    }

    /// Takes it out of the queue, since its time is up; none if it is not there any more. Returns
    /// its reply.
    fn expire(&self) -> Option<Vec<u8>> {
        let (entry, running) = {
            let mut state = self.shared.state();
            let entry = state.take(self.number)?;
            state.end(self.number);
            (entry, state.running.clone())
        };
        let to = self.shared.served(entry.manifest, Some(entry.session.protocol())).ok()?;
        entry.refuse_late(&to, running.as_ref())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // No client waits for a call that has not begun yet. One that runs goes on, unless it is to be cancelled, and what comes of it goes
        // nowhere.
        if !self.is_acknowledged && !self.is_over && (self.cancels || self.waits()) {
            self.shared.state().cancel(self.number);
        }
    }
}

/// Closes the queue when the extension's thread ends for any reason: waiting clients get an error.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.state();
            state.is_closed = true;
            state.open.clear();
            state.bytes = 0;
            state.running = None;
            std::mem::take(&mut state.waiting)
        };
        self.0.calm.notify_waiters();
        drop(left);
    }
}

fn run<E: Extension>(
    runtime: &tokio::runtime::Runtime,
    clock: &TokioClock,
    mut extension: E,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let working = clock.drive(work(shared, &mut extension, clock));
    match panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(working))) {
        Ok(result) => result,
        Err(_) => {
            // That the rails go off matters more than a state that may be odd.
            let safe_state = async { tokio::time::timeout(SAFE_STATE_AFTER_PANIC, extension.safe_state()).await };
            let _ = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(safe_state)));
            Err(io::Error::other("the handler panicked"))
        }
    }
}

/// Answers an entry whose time is up before it runs. Returns an entry that has time left.
fn answer_late(shared: &Arc<Shared>, entry: Box<Entry>) -> io::Result<Option<Box<Entry>>> {
    if entry.deadline.is_none_or(|deadline| deadline > Instant::now()) {
        return Ok(Some(entry));
    }
    let to = shared.served(entry.manifest, Some(entry.session.protocol()))?;
    let (number, lines) = (entry.number, entry.lines.clone());
    let reply = entry.refuse_late(&to, None);
    shared.ended(number, |_| ());
    reply.into_iter().for_each(|reply| shared.tell(&lines, Line::Reply(reply)));
    Ok(None)
}

/// Runs one entry after the other.
async fn work<E: Extension>(shared: &Arc<Shared>, extension: &mut E, clock: &TokioClock) -> io::Result<()> {
    let (mut out, mut logs) = (vec![0; shared.settings.limits.1.saturating_add(1).max(LEAST_REPLY)], vec![0; LOGS]);
    while let Some(task) = shared.next().await {
        let (entry, facts) = match task {
            Task::Entry(entry, facts) => (entry, facts),
            Task::SafeState => {
                extension.safe_state().await;
                shared.made_safe(&shared.served(extension.manifest(), None)?, None);
                tokio::time::sleep(FALL).await;
                continue;
            }
            Task::Renewal => {
                *lock(&shared.manifest) = extension.manifest();
                shared.state().is_renewing = false;
                shared.calm.notify_waiters();
                shared.between.get().into_iter().for_each(|between| between.renewed());
                shared.renewals.send_modify(|count| *count += 1);
                continue;
            }
        };
        let Some(entry) = answer_late(shared, entry)? else { continue };
        let Entry { number, manifest, who, mut message, mut session, mut exchange, lines, ticket, deadline, .. } =
            *entry;
        let mut to = shared.served(manifest, Some(session.protocol()))?;
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            exchange.set_timeout_nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        }
        exchange.set_touched(facts.is_touched);
        if facts.is_owed {
            exchange.set_notice();
        }
        let touched = Cell::new(facts.is_touched_by_it);
        let may_be_on = touched.get() || exchange.can_change(&to);
        let longest = Cell::new(0);
        let send = |line: &[u8]| {
            longest.set(longest.get().max(line.len()));
            shared.notify(&lines, &ticket, line);
        };
        let stop = async {
            while !ticket.is_cancelled.load(Ordering::Acquire) {
                ticket.cancelled.notified().await;
            }
            true
        };
        let was_open = session.is_open();
        let mut configured = Configured { inner: &mut *extension, shared, was_open, ticket: &ticket };
        let mut stop = std::pin::pin!(stop);
        let end = loop {
            let runner = Runner::new(clock, &send, &mut logs).touched(&touched);
            let end = runner.run(&mut configured, &to, &mut exchange, &mut message, &mut out, stop.as_mut()).await;
            let now = configured.inner.manifest();
            if exchange.operation().is_some() || std::ptr::eq(now, to.manifest()) || end != HandlerEnd::Returned {
                break end;
            }
            // The configuration has brought another manifest, which is the answer. The extension
            // has it already.
            to = shared.served(now, Some(session.protocol()))?;
            if !matches!(session.receive(&to, &message, &mut out, &mut exchange), Next::Run { .. }) {
                break end;
            }
        };
        let next = session.settle(&to, &message, &mut out, &mut exchange);
        if exchange.has_given_notice() {
            shared.state().owed.known.remove(&who);
        }
        let was_made_safe = end != HandlerEnd::Returned && may_be_on;
        if was_made_safe {
            shared.made_safe(&to, Some((&who, number)));
        }
        *lock(&ticket.session_after) = Some(session);
        // Its session may have ended while it ran. None ends between the look and the mark.
        let sessions = shared.ends_safe().then(|| lock(&shared.sessions));
        shared.ended(number, |state| {
            if touched.get() && !was_made_safe {
                let has_safe_end = session.protocol().has_safe_end();
                if has_safe_end { &mut state.touched } else { &mut state.staying }.add(who);
            }
            if sessions.as_ref().is_some_and(|sessions| sessions.is_empty()) {
                state.no_session_is_left();
            }
        });
        drop(sessions);
        if let Next::Reply(length) = next {
            shared.tell_dropped(&lines, &ticket, session.protocol());
            shared.tell(&lines, Line::Reply(out.get(..length).unwrap_or_default().to_vec()));
        }
        if was_made_safe {
            tokio::time::sleep(FALL).await;
        }
        if out.len() > KEPT && matches!(next, Next::Reply(length) if length > KEPT) {
            // Its pages are given back.
            out = vec![0; out.len()];
        }
        if longest.get() > KEPT {
            logs = vec![0; LOGS];
        }
    }
    end(shared, extension).await;
    Ok(())
}

/// Brings the extension to its safe state at the end of the queue, if it may be out of it.
async fn end<E: Extension>(shared: &Arc<Shared>, extension: &mut E) {
    let is_in_session = {
        let state = shared.state();
        state.sessions > 0 || state.is_unsafe || shared.ends_safe() && !state.touched.are_none()
    };
    if shared.settings.keeps_outputs {
        return;
    }
    if is_in_session || shared.has_begun.load(Ordering::Acquire) {
        extension.safe_state().await;
    }
}

/// The extension for one entry: it is not configured otherwise than another session has it.
struct Configured<'e, E> {
    inner: &'e mut E,
    shared: &'e Shared,
    /// Whether the session of the entry was open before.
    was_open: bool,
    ticket: &'e Ticket,
}

impl<E: Extension> Extension for Configured<'_, E> {
    fn manifest(&self) -> &'static Manifest {
        self.inner.manifest()
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let Ticket { halted, halting, .. } = self.ticket;
        let end = async {
            loop {
                match halted.get() {
                    Some(why) => break why,
                    None => halting.notified().await,
                }
            }
        };
        let why = tokio::select! {
            biased;
            why = end => why,
            result = self.inner.call(call, cx) => return result,
        };
        Err(cx.failure(FailureKind::Unreachable, &**why))
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let text = config.json().as_str().to_owned();
        let (has_others, is_known) = {
            let state = self.shared.state();
            let known = state.config.as_ref().and_then(|known| Json::parse(known.as_bytes()).ok());
            (state.sessions > usize::from(self.was_open), known.is_some_and(|known| is_same(known, config.json())))
        };
        match (has_others, is_known) {
            (true, true) => return Ok(()),
            (true, false) => {
                let text = "another client has a session with another config; it must end first";
                return Err(cx.failure(FailureKind::Unreachable, text));
            }
            (false, _) => {}
        }
        self.inner.configure(config, cx).await?;
        self.shared.state().config = Some(text);
        Ok(())
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        self.inner.on_event(event, cx).await;
    }

    async fn run_task(&mut self, group: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.inner.run_task(group, task, cx).await
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        self.inner.run_job(job, cx).await;
    }

    async fn safe_state(&mut self) {
        self.inner.safe_state().await;
    }
}

/// Whether two JSON values are equal. The order of members does not matter. Numbers are equal if
/// their texts are.
// The checker of `Json::parse` bounds the depth.
pub fn is_same(one: Json<'_>, other: Json<'_>) -> bool {
    if one.kind() != other.kind() {
        return false;
    }
    match one.kind() {
        JsonKind::Object => {
            let (one, other) = (by_name(one), by_name(other));
            let has =
                |(name, value): (&String, &Json<'_>)| other.get(name).is_some_and(|other| is_same(*value, *other));
            one.len() == other.len() && one.iter().all(has)
        }
        JsonKind::Array => {
            one.elements().count() == other.elements().count()
                && one.elements().zip(other.elements()).all(|(one, other)| is_same(one, other))
        }
        JsonKind::String => one.text().map(|text| text.to_string()) == other.text().map(|text| text.to_string()),
        _ => one.as_str() == other.as_str(),
    }
}

fn by_name(object: Json<'_>) -> BTreeMap<String, Json<'_>> {
    object.members().map(|(name, value)| (name.to_string(), value)).collect()
}

/// The replies to the members of a batch, whose total length has a limit.
#[derive(Debug)]
pub struct Replies {
    text: Vec<u8>,
    limit: usize,
    /// One did not fit: nothing more is run, since nobody would hear what came of it.
    is_full: bool,
}

impl Replies {
    /// Replies of at most `limit` bytes together.
    pub fn new(limit: usize) -> Self {
        Self { text: Vec::new(), limit, is_full: false }
    }

    /// Whether there is no room for a further reply, so that no further member should run.
    pub fn is_full(&self) -> bool {
        self.is_full || !self.has_room(LEAST_REPLY)
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.text.len().saturating_add(bytes).saturating_add(2) <= self.limit
    }

    /// Adds the reply to the member with this id. If it does not fit, an error is added in its
    /// place.
    pub fn add(&mut self, id: &str, reply: &[u8]) {
        if self.has_room(reply.len()) { self.push(reply) } else { self.add_too_large(id) }
    }

    /// Adds the refusal of a member that was not received.
    pub fn push(&mut self, reply: &[u8]) {
        self.text.push(if self.text.is_empty() { b'[' } else { b',' });
        self.text.extend_from_slice(reply);
    }

    /// Adds the error for a member whose reply does not fit.
    pub fn add_too_large(&mut self, id: &str) {
        self.is_full = true;
        let text = format!("the replies to the batch are longer than {} bytes", self.limit);
        let (id, code) = (if id.is_empty() { "null" } else { id }, rpc::INTERNAL_ERROR);
        self.push(
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":\"{text}\"}}}}")
                .as_bytes(),
        );
    }

    /// The reply to the whole batch; none if no member has a reply.
    pub fn end(mut self) -> Option<Vec<u8>> {
        if self.text.is_empty() {
            return None;
        }
        self.text.push(b']');
        Some(self.text)
    }
}
