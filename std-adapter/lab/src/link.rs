//! Sessions with the agent of another host, over a carrier that may lose, repeat and delay what it carries.
//!
//! A session is a pair of byte streams, as a connection to the agent's socket is one. Its bytes travel in numbered messages, which are sent again
//! until they are acknowledged, and are taken once, in their order. Each message to the agent says until when it may be taken, on the clock of
//! the agent's host: one that comes later ends the session, and nothing of it reaches the agent, whatever it was stuck in. The clock is learnt from the
//! messages of the other end, each of which tells the time there.
//!
//! | carrier | module |
//! |---|---|
//! | standard input and output of `ssh HOST rigline lab proxy` | `ssh` |
//! | a NATS server | `nats` |

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rigline_std::mutex::lock;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, sleep_until};

use crate::book::Refusal;
use crate::clock::{self, BootTime};
use crate::connection::{AgentError, AgentLocation, Connection, OpenSession, There};
use crate::frames::{HEAD as FRAME_HEAD, PIECE};
use crate::handshake::Far;
use crate::users;

/// The version of the messages. The first byte of each is this.
pub(crate) const VERSION: u8 = 1;
/// The most bytes of one message's contents: a whole frame of a rig's bytes.
const CHUNK: usize = PIECE + FRAME_HEAD;
/// The length of what all messages begin with: the version, the kind and the session. This is the same in all versions.
const HEAD: usize = 18;
/// The length of what other messages than refusals begin with.
const WHOLE_HEAD: usize = HEAD + 24;
/// The most bytes of a message.
pub(crate) const LONGEST: usize = WHOLE_HEAD + CHUNK;
/// How many bytes of a message a carrier must take. Longer messages are sent in parts.
pub(crate) const LEAST: usize = 1024;
/// How many bytes of one session may be under way in one direction.
const WINDOW: usize = 256 << 10;
/// How many messages wait to be read.
const UNREAD: usize = 64;
/// How many messages wait for a carrier. More are dropped, and sent again later.
pub(crate) const CARRIED: usize = 256;
/// How old a message to the agent may be.
const FRESH: u64 = 5_000;
/// After which time a message without an acknowledgement is sent again; then after twice that, up to [`SLOWEST`].
const RESEND: Duration = Duration::from_millis(250);
const SLOWEST: Duration = Duration::from_secs(2);
/// How long an acknowledgement waits for a message that it can go with.
const ACKNOWLEDGE: Duration = Duration::from_millis(5);
/// After which time without a message one is sent that says that this end is there.
const PING: Duration = Duration::from_secs(3);
/// After which time without a message the other end is gone.
const SILENT: Duration = Duration::from_secs(10);
/// How long a session is tried to begin.
const BEGIN: Duration = Duration::from_secs(10);
/// How long the end of a session is told for.
const ENDING: Duration = Duration::from_secs(2);
/// The most sessions that one host serves.
const SESSIONS: usize = 1000;
/// How long the estimate of the other clock is kept although a newer one is earlier: messages under way for longer make it earlier.
const ESTIMATE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum MessageKind {
    /// A session begins; who asks for it, as JSON.
    Hello,
    /// It has begun; what the agent has answered, as JSON.
    Welcome,
    /// Bytes.
    Data,
    /// Nothing but what all messages have.
    Ack,
    /// No bytes follow.
    End,
    /// The session is over; the exit code and the reason, as JSON. This message is the same in all versions.
    Refused,
}

impl MessageKind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Hello, Self::Welcome, Self::Data, Self::Ack, Self::End, Self::Refused]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Message {
    kind: MessageKind,
    session: u128,
    seq: u64,
    ack: u64,
    /// To the agent: until when it may be taken. From the agent: the time there.
    time: BootTime,
    bytes: Vec<u8>,
}

/// Why something is no message.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// It is of another version.
    Version(u8, u128),
    Broken,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(WHOLE_HEAD + self.bytes.len());
        out.extend([VERSION, self.kind as u8]);
        out.extend(self.session.to_le_bytes());
        if self.kind != MessageKind::Refused {
            for number in [self.seq, self.ack, self.time] {
                out.extend(number.to_le_bytes());
            }
        }
        out.extend(&self.bytes);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(Fault::Broken)?;
        let [version, kind, session @ ..] = *head;
        let session = u128::from_le_bytes(session);
        if kind == MessageKind::Refused as u8 {
            return Ok(Self { kind: MessageKind::Refused, session, seq: 0, ack: 0, time: 0, bytes: rest.to_vec() });
        }
        if version != VERSION {
            return Err(Fault::Version(version, session));
        }
        let kind = MessageKind::of(kind).ok_or(Fault::Broken)?;
        let number = |rest: &[u8], place: usize| {
            let bytes = rest.get(place * 8..place * 8 + 8).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
            bytes.map(u64::from_le_bytes).ok_or(Fault::Broken)
        };
        let (seq, ack, time) = (number(rest, 0)?, number(rest, 1)?, number(rest, 2)?);
        let bytes = rest.get(24..).unwrap_or_default().to_vec();
        Ok(Self { kind, session, seq, ack, time, bytes })
    }

    fn refused(session: u128, refusal: &Refusal) -> Vec<u8> {
        let bytes = json!({ "code": refusal.code, "why": refusal.why }).to_string().into_bytes();
        Self { kind: MessageKind::Refused, session, seq: 0, ack: 0, time: 0, bytes }.encode()
    }
}

/// An event of a carrier.
#[derive(Debug)]
pub(crate) enum Event {
    /// Messages of up to so many bytes can be sent from now on.
    Up(usize),
    /// None can be sent until it is [up](Self::Up) again, since this has happened.
    Down(String),
    /// A message.
    Message(Vec<u8>),
    /// Nobody was there to take a message.
    Nobody,
    /// It is refused to send or get messages.
    Denied(String),
}

/// A carrier's end: where messages go, and what comes. It has ended for good when no more comes.
pub(crate) struct Carrier {
    /// Messages that are sent.
    pub(crate) out: mpsc::Sender<Vec<u8>>,
    /// The events of the carrier.
    pub(crate) events: mpsc::Receiver<Event>,
}

/// The threads of all links: they outlive the runtimes of those who use them.
pub(crate) static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("rigline-link").enable_all().build()
});

/// Numbered messages of one direction, and the numbers of those of the other one.
#[derive(Default)]
struct Flow {
    sent: u64,
    unacked: VecDeque<(u64, Vec<u8>)>,
    /// When they are sent again, and after which time they were last.
    again: Option<(Instant, Duration)>,
    got: u64,
    /// When the other end must have been told what was got.
    owes: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Order {
    Next,
    Again,
    Ahead,
}

impl Flow {
    fn send(&mut self, session: u128, kind: MessageKind, time: BootTime, bytes: Vec<u8>) -> Vec<u8> {
        self.sent += 1;
        let message = Message { kind, session, seq: self.sent, ack: self.got, time, bytes }.encode();
        self.unacked.push_back((self.sent, message.clone()));
        self.again.get_or_insert((Instant::now() + RESEND, RESEND));
        self.owes = None;
        message
    }

    /// The other end has got all up to this number. Returns how many bytes of contents those were that it had not told.
    fn acked(&mut self, ack: u64) -> usize {
        let mut count = 0;
        while self.unacked.front().is_some_and(|(seq, _)| *seq <= ack)
            && let Some((_, message)) = self.unacked.pop_front()
        {
            count += message.len().saturating_sub(WHOLE_HEAD);
            self.again = Some((Instant::now() + RESEND, RESEND));
        }
        if self.unacked.is_empty() {
            self.again = None;
        }
        count
    }

    fn order(&self, seq: u64) -> Order {
        match seq.checked_sub(self.got) {
            Some(1) => Order::Next,
            Some(0) | None => Order::Again,
            Some(_) => Order::Ahead,
        }
    }

    fn owe(&mut self) {
        self.owes.get_or_insert(Instant::now() + ACKNOWLEDGE);
    }

    /// Returns the messages that are to be sent again now.
    fn resend(&mut self, now: Instant, at_once: bool) -> impl Iterator<Item = &Vec<u8>> {
        let is_due = at_once || self.again.is_some_and(|(due, _)| due <= now);
        if is_due && let Some((due, pause)) = &mut self.again {
            *pause = if at_once { RESEND } else { (*pause * 2).min(SLOWEST) };
            *due = now + *pause;
        }
        self.unacked.iter().map(|(_, message)| message).filter(move |_| is_due)
    }
}

fn offset_of(time: BootTime) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX).saturating_sub(i64::try_from(clock::now()).unwrap_or_default())
}

#[derive(Default)]
struct State {
    under_way: usize,
    over: Option<String>,
    waker: Option<Waker>,
}

/// The state that the sender of a session and its link share.
#[derive(Default)]
struct Window {
    state: Mutex<State>,
    offset: Arc<AtomicI64>,
    /// The most bytes of a message's contents.
    chunk: AtomicUsize,
}

impl Window {
    fn free(&self, count: usize) {
        let mut state = lock(&self.state);
        state.under_way = state.under_way.saturating_sub(count);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    fn close(&self, why: &str) {
        let mut state = lock(&self.state);
        state.over.get_or_insert_with(|| why.to_owned());
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// Bytes for the agent of another host.
struct Sending {
    session: u128,
    commands: mpsc::UnboundedSender<Command>,
    window: Arc<Window>,
}

impl AsyncWrite for Sending {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let most = self.window.chunk.load(Ordering::Relaxed);
        let bytes = bytes.get(..bytes.len().min(most)).unwrap_or_default();
        let mut state = lock(&self.window.state);
        if let Some(why) = &state.over {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why.clone())));
        }
        if state.under_way > 0 && state.under_way + bytes.len() > WINDOW {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.under_way += bytes.len();
        let command = Command::Send { session: self.session, bytes: bytes.to_vec() };
        if self.commands.send(command).is_err() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = self.commands.send(Command::End { session: self.session, ending: Ending::new() });
        Poll::Ready(Ok(()))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::End { session: self.session, ending: Ending::new() });
    }
}

/// While it is there, an end is not told yet.
pub(crate) struct Ending;

impl Ending {
    pub(crate) fn new() -> Self {
        ENDINGS.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        ENDINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that come in pieces.
pub(crate) struct Pieces {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    read: usize,
}

impl Pieces {
    pub(crate) fn new(pieces: mpsc::Receiver<io::Result<Vec<u8>>>) -> Self {
        Self { pieces, piece: Vec::new(), read: 0 }
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.read >= self.piece.len() {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(Ok(piece)) => (self.piece, self.read) = (piece, 0),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
        let rest = self.piece.get(self.read..).unwrap_or_default();
        let count = rest.len().min(into.remaining());
        into.put_slice(rest.get(..count).unwrap_or_default());
        self.read += count;
        Poll::Ready(Ok(()))
    }
}

enum Command {
    Open {
        session: u128,
        hello: Value,
        opened: Opened,
        incoming: mpsc::Sender<io::Result<Vec<u8>>>,
        window: Arc<Window>,
    },
    Send {
        session: u128,
        bytes: Vec<u8>,
    },
    End {
        session: u128,
        ending: Ending,
    },
}

type Opened = oneshot::Sender<Result<Value, AgentError>>;

/// The way to the agent of another host, for all sessions of this process.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    commands: mpsc::UnboundedSender<Command>,
}

/// How many sessions of this process have not told their end yet.
static ENDINGS: AtomicUsize = AtomicUsize::new(0);

/// Waits until other hosts know which sessions and leases of this process have ended, but not for long.
pub async fn settle() {
    let given_up = Instant::now() + ENDING;
    while ENDINGS.load(Ordering::Relaxed) > 0 && Instant::now() < given_up {
        sleep(Duration::from_millis(2)).await;
    }
}

impl Link {
    /// Uses a carrier to the host `name`.
    pub(crate) fn new(name: &str, carrier: Carrier) -> io::Result<Self> {
        let runtime = RUNTIME.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let (commands, received) = mpsc::unbounded_channel();
        let near = Near {
            name: name.to_owned(),
            out: carrier.out,
            sessions: HashMap::new(),
            is_up: false,
            longest: LONGEST,
            denied: None,
            trouble: None,
        };
        runtime.spawn(near.run(carrier.events, received));
        Ok(Self { commands })
    }

    /// Whether the carrier has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        self.commands.is_closed()
    }

    /// Begins a session.
    pub(crate) async fn open(&self, hello: Value) -> Result<OpenSession, AgentError> {
        let session = uuid::Uuid::new_v4().as_u128();
        let (opened, welcome) = oneshot::channel();
        let (incoming, pieces) = mpsc::channel(UNREAD);
        let window = Arc::new(Window::default());
        let there = There(Some(Arc::clone(&window.offset)));
        let sending = Sending { session, commands: self.commands.clone(), window: Arc::clone(&window) };
        let gone = || AgentError::Lost(io::ErrorKind::BrokenPipe.into());
        let open = Command::Open { session, hello, opened, incoming, window };
        self.commands.send(open).map_err(|_| gone())?;
        let welcome = welcome.await.map_err(|_| gone())??;
        let agent = welcome.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
        let (reading, sending) = (Box::new(Pieces::new(pieces)), Box::new(sending));
        Ok(OpenSession { reading, sending, there, agent: agent.unwrap_or_default() })
    }
}

/// A session on the side of those who use it.
struct Used {
    flow: Flow,
    /// The first message, until it is answered, with who waits for that; and when it is sent again.
    hello: Option<(Vec<u8>, Opened, Instant)>,
    began: Instant,
    heard: Instant,
    said: Instant,
    incoming: mpsc::Sender<io::Result<Vec<u8>>>,
    window: Arc<Window>,
    /// When the clock there was estimated.
    estimated: Option<Instant>,
    /// The agent's instance.
    instance: String,
    /// The host's own name of the session. Another host of the same name does not know it.
    key: u128,
    /// How long its end is told.
    ends: Option<(Instant, Ending)>,
}

struct Near {
    name: String,
    out: mpsc::Sender<Vec<u8>>,
    sessions: HashMap<u128, Used>,
    is_up: bool,
    /// The most bytes of a message.
    longest: usize,
    /// Why no session can begin, if the carrier was denied.
    denied: Option<Refusal>,
    /// The last trouble of the carrier.
    trouble: Option<String>,
}

impl Near {
    async fn run(mut self, mut events: mpsc::Receiver<Event>, mut commands: mpsc::UnboundedReceiver<Command>) {
        let why = loop {
            let due = self.sessions.values().map(|session| session.due(self.is_up)).min();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                event = events.recv() => match event {
                    Some(event) => self.event(event),
                    None => break self.trouble.take().unwrap_or_else(|| "the connection has ended".to_owned()),
                },
                () = at(due) => {}
            }
            self.tick();
        };
        commands.close();
        let why = format!("{}: {why}", self.name);
        while let Ok(command) = commands.try_recv() {
            if let Command::Open { opened, .. } = command {
                let lost = || AgentError::Lost(io::Error::other(why.clone()));
                let _ = opened.send(Err(self.denied.clone().map_or_else(lost, AgentError::Refused)));
            }
        }
        for (_, session) in self.sessions.drain() {
            session.fail(&AgentError::Lost(io::Error::other(why.clone())));
        }
    }

    fn command(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Open { session, hello, opened, incoming, window } => {
                if let Some(refusal) = &self.denied {
                    let _ = opened.send(Err(AgentError::Refused(refusal.clone())));
                    return;
                }
                let bytes = hello.to_string().into_bytes();
                let message = Message { kind: MessageKind::Hello, session, seq: 0, ack: 0, time: 0, bytes }.encode();
                if self.is_up {
                    let _ = self.out.try_send(message.clone());
                }
                let used = Used {
                    flow: Flow::default(),
                    hello: Some((message, opened, now + RESEND)),
                    began: now,
                    heard: now,
                    said: now,
                    incoming,
                    window,
                    estimated: None,
                    instance: String::new(),
                    key: 0,
                    ends: None,
                };
                self.sessions.insert(session, used);
            }
            Command::Send { session, bytes } => self.send(session, MessageKind::Data, bytes),
            Command::End { session, ending } => {
                let Some(used) = self.sessions.get_mut(&session).filter(|used| used.ends.is_none()) else { return };
                if used.hello.is_some() {
                    self.sessions.remove(&session);
                    return;
                }
                used.ends = Some((now + ENDING, ending));
                self.send(session, MessageKind::End, Vec::new());
            }
        }
    }

    fn send(&mut self, session: u128, kind: MessageKind, bytes: Vec<u8>) {
        let Some(used) = self.sessions.get_mut(&session) else { return };
        let until = There(Some(Arc::clone(&used.window.offset))).now() + FRESH;
        let message = used.flow.send(used.key, kind, until, bytes);
        used.said = Instant::now();
        if self.is_up {
            // One that finds no room is sent again.
            let _ = self.out.try_send(message);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Up(longest) => {
                (self.is_up, self.trouble) = (true, None);
                self.longest = self.longest.min(longest);
                let now = Instant::now();
                for used in self.sessions.values_mut() {
                    if let Some((message, _, again)) = &mut used.hello {
                        *again = now + RESEND;
                        let _ = self.out.try_send(message.clone());
                    }
                    for message in used.flow.resend(now, true) {
                        let _ = self.out.try_send(message.clone());
                    }
                }
            }
            Event::Down(why) => (self.is_up, self.trouble) = (false, Some(why)),
            Event::Nobody => self.trouble = Some("no agent of this name is there".to_owned()),
            Event::Denied(why) => {
                let refusal = Refusal::refused(format!("{}: {why}", self.name));
                for (_, used) in self.sessions.drain() {
                    used.fail(&AgentError::Refused(refusal.clone()));
                }
                self.denied = Some(refusal);
            }
            Event::Message(bytes) => match Message::decode(&bytes) {
                Ok(message) => self.message(message),
                Err(Fault::Version(version, session)) => self.fail(session, &other_version(&self.name, version)),
                Err(Fault::Broken) => {}
            },
        }
    }

    fn fail(&mut self, session: u128, why: &AgentError) {
        if let Some(used) = self.sessions.remove(&session) {
            used.fail(why);
        }
    }

    fn message(&mut self, message: Message) {
        let now = Instant::now();
        let Message { kind, session, seq, ack, time, bytes } = message;
        // A host that does not know a session names it as it was named.
        let by_key = || self.sessions.iter().find(|(_, used)| used.key == session).map(|(id, _)| *id);
        let session = if self.sessions.contains_key(&session) { session } else { by_key().unwrap_or_default() };
        let Some(used) = self.sessions.get_mut(&session) else { return };
        used.heard = now;
        if kind == MessageKind::Refused {
            let Refusal { code, why } = refusal_of(&bytes);
            let why = format!("{}: {why}", self.name);
            self.fail(session, &AgentError::Refused(Refusal { code, why }));
            return;
        }
        used.estimate(time, now);
        let freed = used.flow.acked(ack);
        used.window.free(freed);
        match kind {
            MessageKind::Welcome => {
                let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let (instance, machine) = (text("link_instance"), text("machine"));
                if let Some((_, opened, _)) = used.hello.take() {
                    used.window.chunk.store(self.longest - WHOLE_HEAD, Ordering::Relaxed);
                    used.instance = format!("{instance} on {machine}");
                    used.key = u128::from_str_radix(&text("session"), 16).unwrap_or_default();
                    let _ = opened.send(Ok(answer));
                } else if used.instance != format!("{instance} on {machine}") {
                    let why = format!(
                        "two agents call themselves {}: {}, and {instance} on {machine}; end one of them, or give it another name by --name",
                        self.name, used.instance
                    );
                    self.fail(session, &AgentError::Refused(Refusal::refused(why)));
                }
            }
            MessageKind::Data | MessageKind::End => match used.flow.order(seq) {
                Order::Ahead => {}
                Order::Again => used.flow.owe(),
                Order::Next if kind == MessageKind::End => {
                    used.flow.got = seq;
                    let last = used.acknowledgement();
                    let _ = self.out.try_send(last);
                    if let Some(used) = self.sessions.remove(&session) {
                        used.window.close("the agent has closed the connection");
                    }
                }
                Order::Next => match used.incoming.try_send(Ok(bytes)) {
                    // It comes again.
                    Err(mpsc::error::TrySendError::Full(_)) => {}
                    _ => {
                        used.flow.got = seq;
                        used.flow.owe();
                    }
                },
            },
            MessageKind::Ack | MessageKind::Hello | MessageKind::Refused => {}
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let mut failed: Vec<(u128, String)> = Vec::new();
        for (id, used) in &mut self.sessions {
            if let Some((message, _, again)) = &mut used.hello {
                if now >= used.began + BEGIN {
                    let why = self.trouble.clone().unwrap_or_else(|| "its agent does not answer".to_owned());
                    failed.push((*id, why));
                } else if self.is_up && now >= *again {
                    *again = now + RESEND;
                    let _ = self.out.try_send(message.clone());
                }
                continue;
            }
            if now >= used.heard + SILENT || used.ends.as_ref().is_some_and(|(ends, _)| now >= *ends) {
                let why = self.trouble.clone().map(|why| format!(" ({why})")).unwrap_or_default();
                failed.push((*id, format!("it was silent for {} s{why}", SILENT.as_secs())));
                continue;
            }
            if used.ends.is_some() && used.flow.unacked.is_empty() {
                failed.push((*id, String::new()));
                continue;
            }
            if !self.is_up {
                continue;
            }
            for message in used.flow.resend(now, false) {
                used.said = now;
                let _ = self.out.try_send(message.clone());
            }
            if used.flow.owes.is_some_and(|owes| owes <= now) || now >= used.said + PING {
                (used.flow.owes, used.said) = (None, now);
                let _ = self.out.try_send(used.acknowledgement());
            }
        }
        for (id, why) in failed {
            let why = format!("{}: {why}", self.name);
            self.fail(id, &AgentError::Lost(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
    }
}

impl Used {
    fn due(&self, is_up: bool) -> Instant {
        if let Some((_, _, again)) = &self.hello {
            return if is_up { (*again).min(self.began + BEGIN) } else { self.began + BEGIN };
        }
        let last = self.ends.as_ref().map_or(self.heard + SILENT, |(ends, _)| (*ends).min(self.heard + SILENT));
        if !is_up {
            return last;
        }
        let again = self.flow.again.map_or(last, |(again, _)| again);
        let owes = self.flow.owes.unwrap_or(last);
        // One that has told its end goes at once.
        let over = if self.ends.is_some() && self.flow.unacked.is_empty() { self.began } else { last };
        last.min(again).min(owes).min(over).min(self.said + PING)
    }

    fn acknowledgement(&self) -> Vec<u8> {
        let time = There(Some(Arc::clone(&self.window.offset))).now() + FRESH;
        let (session, ack) = (self.key, self.flow.got);
        Message { kind: MessageKind::Ack, session, seq: 0, ack, time, bytes: Vec::new() }.encode()
    }

    /// Learns the clock there. It is never taken for later than it is.
    fn estimate(&mut self, time: BootTime, now: Instant) {
        let offset = offset_of(time);
        let is_old = self.estimated.is_none_or(|estimated| now >= estimated + ESTIMATE);
        if is_old || offset > self.window.offset.load(Ordering::Relaxed) {
            self.window.offset.store(offset, Ordering::Relaxed);
            self.estimated = Some(now);
        }
    }

    fn fail(self, why: &AgentError) {
        let (error, text) = match why {
            AgentError::Refused(refusal) => (io::Error::other(refusal.why.clone()), refusal.why.clone()),
            AgentError::Lost(error) => (io::Error::new(error.kind(), error.to_string()), error.to_string()),
        };
        self.window.close(&text);
        if let Some((_, opened, _)) = self.hello {
            let why = match why {
                AgentError::Refused(refusal) => AgentError::Refused(refusal.clone()),
                AgentError::Lost(_) => AgentError::Lost(io::Error::new(error.kind(), text)),
            };
            let _ = opened.send(Err(why));
        }
        // A reader that is behind learns it as the end.
        let _ = self.incoming.try_send(Err(error));
    }
}

fn other_version(name: &str, version: u8) -> AgentError {
    AgentError::Refused(Refusal::refused(format!(
        "{name}: it is of another version of rigline, whose messages are of version {version}, and those of this command of version {VERSION}"
    )))
}

/// A refusal, from its JSON.
pub(crate) fn refusal_of(bytes: &[u8]) -> Refusal {
    let told = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let code = told.get("code").and_then(Value::as_u64).and_then(|code| u8::try_from(code).ok());
    let why = told.get("why").and_then(Value::as_str).unwrap_or_default();
    Refusal { code: code.unwrap_or(3), why: why.to_owned() }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// A message that has come to a host.
#[derive(Debug)]
pub(crate) struct Received {
    /// Where answers go; the carrier knows what that is.
    pub(crate) from: String,
    /// The user's name, if the carrier vouches for it; if not, it is the user who runs this.
    pub(crate) user: Option<String>,
    /// Whether this user may end the leases of others.
    pub(crate) is_admin: bool,
    /// The message.
    pub(crate) bytes: Vec<u8>,
}

/// A message that goes from a host, with the place where it goes.
pub(crate) type Outgoing = (String, Vec<u8>);

/// A session on the side of the agent.
struct Served {
    /// The client's name of the session.
    asked: u128,
    from: String,
    user: Option<String>,
    flow: Flow,
    heard: Instant,
    said: Instant,
    welcome: Option<Vec<u8>>,
    to_agent: Option<mpsc::Sender<Vec<u8>>>,
    window: Arc<Semaphore>,
    tasks: Vec<AbortHandle>,
    /// The agent has closed the connection.
    is_over: bool,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

enum Inner {
    Opened(u128, Result<Box<(Connection, Value)>, Refusal>),
    Bytes(u128, Vec<u8>),
    Ended(u128),
}

/// Passes the sessions of a carrier on to the agent of this host.
pub(crate) struct Host {
    place: AgentLocation,
    /// Facts of the host that a client is told at the beginning of a session, beside the agent's answer.
    about: Value,
    via: &'static str,
    out: mpsc::Sender<Outgoing>,
    inner: mpsc::Sender<Inner>,
    sessions: HashMap<u128, Served>,
    /// The most bytes of a message's contents.
    chunk: usize,
}

impl Host {
    /// Serves until `received` ends. `longest` is how many bytes a message may have.
    pub(crate) fn serve(
        place: &AgentLocation,
        name: &str,
        via: &'static str,
        instance: &str,
        longest: usize,
        mut received: mpsc::Receiver<Received>,
        out: mpsc::Sender<Outgoing>,
    ) -> JoinHandle<()> {
        let (inner, mut happens) = mpsc::channel(UNREAD);
        let about = json!({
            "host": name,
            "link_instance": instance,
            "machine": users::machine(),
            "rigline": env!("CARGO_PKG_VERSION"),
        });
        let chunk = longest.clamp(LEAST, LONGEST) - WHOLE_HEAD;
        let mut host = Self { place: place.clone(), about, via, out, inner, sessions: HashMap::new(), chunk };
        tokio::spawn(async move {
            loop {
                let due = host.sessions.values().map(Served::due).min();
                tokio::select! {
                    received = received.recv() => match received {
                        Some(received) => host.received(received),
                        None => break,
                    },
                    Some(inner) = happens.recv() => host.happens(inner),
                    () = at(due) => {}
                }
                host.tick();
            }
        })
    }

    fn send(&self, to: &str, message: Vec<u8>) {
        // One that finds no room is sent again.
        let _ = self.out.try_send((to.to_owned(), message));
    }

    fn refuse(&mut self, key: u128, refusal: &Refusal) {
        if let Some(served) = self.sessions.remove(&key) {
            self.send(&served.from, Message::refused(served.asked, refusal));
        }
    }

    fn received(&mut self, received: Received) {
        let Received { from, user, is_admin, bytes } = received;
        let message = match Message::decode(&bytes) {
            Ok(message) => message,
            Err(Fault::Version(version, session)) => {
                let why = format!(
                    "this host's rigline is {}, whose messages are of version {VERSION}; those of the command are of version {version}",
                    env!("CARGO_PKG_VERSION")
                );
                self.send(&from, Message::refused(session, &Refusal::refused(why)));
                return;
            }
            Err(Fault::Broken) => return,
        };
        let Message { kind, session, seq, ack, time, bytes } = message;
        let now = Instant::now();
        if kind == MessageKind::Hello {
            self.hello(session, from, user, is_admin, &bytes);
            return;
        }
        let Some(served) = self.sessions.get_mut(&session).filter(|served| served.user == user && served.from == from)
        else {
            if kind != MessageKind::Refused {
                let why = "the host does not know the session: it has ended it, or was started again";
                self.send(&from, Message::refused(session, &Refusal::refused(why)));
            }
            return;
        };
        served.heard = now;
        let freed = served.flow.acked(ack);
        served.window.add_permits(freed);
        if !matches!(kind, MessageKind::Data | MessageKind::End) {
            return;
        }
        match served.flow.order(seq) {
            Order::Ahead => {}
            Order::Again => served.flow.owe(),
            Order::Next => {
                let here = clock::now();
                if time < here {
                    let why =
                        format!("message {seq} came {} ms too late, and the agent got nothing of it", here - time);
                    self.refuse(session, &Refusal::refused(why));
                    return;
                }
                if kind == MessageKind::End {
                    served.flow.got = seq;
                    let last = served.acknowledgement();
                    self.send(&from, last);
                    self.sessions.remove(&session);
                    return;
                }
                let Some(agent) = &served.to_agent else { return };
                match agent.try_send(bytes) {
                    // It comes again.
                    Err(mpsc::error::TrySendError::Full(_)) => {}
                    // Its end is on its way.
                    _ => {
                        served.flow.got = seq;
                        served.flow.owe();
                    }
                }
            }
        }
    }

    fn hello(&mut self, session: u128, from: String, user: Option<String>, is_admin: bool, bytes: &[u8]) {
        let now = Instant::now();
        let known = self
            .sessions
            .values_mut()
            .find(|served| served.asked == session && served.user == user && served.from == from);
        if let Some(served) = known {
            served.heard = now;
            if let Some(welcome) = served.welcome.clone() {
                self.send(&from, welcome);
            }
            return;
        }
        if self.sessions.len() >= SESSIONS {
            let why = format!("{SESSIONS} sessions are open, which is the limit");
            self.send(&from, Message::refused(session, &Refusal::refused(why)));
            return;
        }
        let hello: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let told = |name: &str| {
            let text = hello.get(name).and_then(Value::as_str).unwrap_or_default();
            text.chars().filter(|char| !char.is_control()).take(100).collect::<String>()
        };
        let protocol = hello.get("protocol").and_then(Value::as_u64).unwrap_or_default();
        let who = Far {
            user: user.clone().unwrap_or_else(|| told("user")),
            machine: told("machine"),
            pid: hello.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default(),
            via: self.via.to_owned(),
            is_vouched: user.is_some(),
            is_admin,
        };
        let key = uuid::Uuid::new_v4().as_u128();
        let (place, inner) = (self.place.clone(), self.inner.clone());
        let opening = tokio::spawn(async move {
            let opened = Connection::open_for(&place, &who, protocol).await.map(Box::new).map_err(Refusal::from);
            let _ = inner.send(Inner::Opened(key, opened)).await;
        });
        let served = Served {
            asked: session,
            from,
            user,
            flow: Flow::default(),
            heard: now,
            said: now,
            welcome: None,
            to_agent: None,
            window: Arc::new(Semaphore::new(WINDOW)),
            tasks: vec![opening.abort_handle()],
            is_over: false,
        };
        self.sessions.insert(key, served);
    }

    fn happens(&mut self, inner: Inner) {
        match inner {
            Inner::Opened(key, Err(refusal)) => self.refuse(key, &refusal),
            Inner::Opened(key, Ok(opened)) => {
                let (connection, mut answer) = *opened;
                let Some(served) = self.sessions.get_mut(&key) else { return };
                answer["session"] = format!("{key:032x}").into();
                for (name, value) in self.about.as_object().into_iter().flatten() {
                    answer[name] = value.clone();
                }
                let bytes = answer.to_string().into_bytes();
                let (session, time) = (served.asked, clock::now());
                let welcome = Message { kind: MessageKind::Welcome, session, seq: 0, ack: 0, time, bytes }.encode();
                served.welcome = Some(welcome.clone());
                let (mut reader, mut writer) = connection.into_halves();
                let (to_agent, mut bytes) = mpsc::channel::<Vec<u8>>(UNREAD);
                served.to_agent = Some(to_agent);
                let writing = tokio::spawn(async move {
                    while let Some(bytes) = bytes.recv().await {
                        if writer.write_all(&bytes).await.is_err() {
                            break;
                        }
                    }
                });
                let (inner, window, length) = (self.inner.clone(), Arc::clone(&served.window), self.chunk);
                let reading = tokio::spawn(async move {
                    let mut chunk = vec![0; length];
                    while let Ok(count @ 1..) = reader.read(&mut chunk).await {
                        let Ok(room) = window.acquire_many(u32::try_from(count).unwrap_or(u32::MAX)).await else {
                            break;
                        };
                        room.forget();
                        let bytes = chunk.get(..count).unwrap_or_default().to_vec();
                        if inner.send(Inner::Bytes(key, bytes)).await.is_err() {
                            return;
                        }
                    }
                    let _ = inner.send(Inner::Ended(key)).await;
                });
                served.tasks = vec![writing.abort_handle(), reading.abort_handle()];
                let from = served.from.clone();
                self.send(&from, welcome);
            }
            Inner::Bytes(key, bytes) => self.pass(key, MessageKind::Data, bytes),
            Inner::Ended(key) => {
                self.pass(key, MessageKind::End, Vec::new());
                if let Some(served) = self.sessions.get_mut(&key) {
                    served.is_over = true;
                }
            }
        }
    }

    fn pass(&mut self, key: u128, kind: MessageKind, bytes: Vec<u8>) {
        let Some(served) = self.sessions.get_mut(&key) else { return };
        let message = served.flow.send(served.asked, kind, clock::now(), bytes);
        served.said = Instant::now();
        let from = served.from.clone();
        self.send(&from, message);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let is_there = |served: &Served| now < served.heard + SILENT;
        self.sessions.retain(|_, served| is_there(served) && !(served.is_over && served.flow.unacked.is_empty()));
        let mut out = Vec::new();
        for served in self.sessions.values_mut() {
            for message in served.flow.resend(now, false) {
                served.said = now;
                out.push((served.from.clone(), message.clone()));
            }
            let is_open = served.welcome.is_some();
            if is_open && (served.flow.owes.is_some_and(|owes| owes <= now) || now >= served.said + PING) {
                (served.flow.owes, served.said) = (None, now);
                out.push((served.from.clone(), served.acknowledgement()));
            }
        }
        for (to, message) in out {
            self.send(&to, message);
        }
    }
}

impl Served {
    fn acknowledgement(&self) -> Vec<u8> {
        let (session, ack, time) = (self.asked, self.flow.got, clock::now());
        Message { kind: MessageKind::Ack, session, seq: 0, ack, time, bytes: Vec::new() }.encode()
    }

    fn due(&self) -> Instant {
        let last = self.heard + SILENT;
        let again = self.flow.again.map_or(last, |(again, _)| again);
        let owes = self.flow.owes.unwrap_or(last);
        let ping = if self.welcome.is_some() { self.said + PING } else { last };
        last.min(again).min(owes).min(ping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folders::Folders;
    use tokio::net::UnixListener;

    #[test]
    fn messages_are_read_as_they_were_written_and_other_versions_are_named() {
        let message = Message { kind: MessageKind::Data, session: 7, seq: 1, ack: 2, time: 3, bytes: b"abc".to_vec() };
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes), Ok(message));
        assert_eq!(Message::decode(&bytes[..WHOLE_HEAD - 1]), Err(Fault::Broken));
        assert_eq!(Message::decode(&[]), Err(Fault::Broken));
        let mut other = bytes.clone();
        other[0] = 9;
        assert_eq!(Message::decode(&other), Err(Fault::Version(9, 7)));
        let mut unknown = bytes;
        unknown[1] = 99;
        assert_eq!(Message::decode(&unknown), Err(Fault::Broken));
        // A refusal is read whatever its version is.
        let mut refused = Message::refused(7, &Refusal::usage("no"));
        refused[0] = 9;
        let refused = Message::decode(&refused).unwrap();
        assert_eq!((refused.session, refusal_of(&refused.bytes)), (7, Refusal::usage("no")));
    }

    /// An agent that greets, and says what it is told.
    fn echo(folder: &std::path::Path) -> (AgentLocation, Arc<Mutex<Vec<u8>>>) {
        let place = AgentLocation::here(Folders::all_in(folder.into()), "/bin/false".into());
        let listener = UnixListener::bind(place.folders.socket_path()).unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let all = Arc::clone(&all);
                tokio::spawn(async move {
                    let mut hello = vec![0; 4096];
                    let count = stream.read(&mut hello).await.unwrap();
                    assert!(hello[..count].ends_with(b"\n"));
                    stream.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"pid\":5}}\n").await.unwrap();
                    let mut bytes = vec![0; 4096];
                    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                        lock(&all).extend(&bytes[..count]);
                        stream.write_all(&bytes[..count]).await.unwrap();
                    }
                });
            }
        });
        (place, heard)
    }

    /// Two ends with a carrier between them that does with each message what `fate` says of its number and of whether it goes
    /// to the host: how often it arrives, and after which time.
    fn between(place: &AgentLocation, mut fate: impl FnMut(usize, bool) -> (usize, Duration) + Send + 'static) -> Link {
        let (out, mut to_host) = mpsc::channel::<Vec<u8>>(CARRIED);
        let (tell, events) = mpsc::channel(CARRIED);
        let (arrived, received) = mpsc::channel(CARRIED);
        let (answers, mut answered) = mpsc::channel::<Outgoing>(CARRIED);
        drop(Host::serve(place, "lab1", "test", "i", LONGEST, received, answers));
        tokio::spawn(async move {
            let mut count = 0;
            tell.send(Event::Up(LONGEST)).await.unwrap();
            loop {
                let (message, to_near) = tokio::select! {
                    Some(message) = to_host.recv() => (message, false),
                    Some((_, message)) = answered.recv() => (message, true),
                    else => break,
                };
                count += 1;
                let (times, after) = fate(count, !to_near);
                for _ in 0..times {
                    let (message, tell, arrived) = (message.clone(), tell.clone(), arrived.clone());
                    let carry = async move {
                        sleep(after).await;
                        if to_near {
                            let _ = tell.send(Event::Message(message)).await;
                        } else {
                            let received =
                                Received { from: "near".into(), user: None, is_admin: false, bytes: message };
                            let _ = arrived.send(received).await;
                        }
                    };
                    if after.is_zero() { carry.await } else { drop(tokio::spawn(carry)) }
                }
            }
        });
        Link::new("lab1", Carrier { out, events }).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bytes_arrive_once_and_in_order_over_a_carrier_that_loses_repeats_and_reorders() {
        let folder = tempfile::tempdir().unwrap();
        let (place, heard) = echo(folder.path());
        // One message in 16 is lost, one is repeated and one comes late. Which ones follows no period that repeated sending could fall in with,
        // and so few that what waits for a lost message is not too old when it is sent again.
        let fates = Arc::new([const { AtomicUsize::new(0) }; 16]);
        let counts = Arc::clone(&fates);
        let link = between(&place, move |count, _| {
            let place = (count as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60;
            counts[usize::try_from(place).unwrap()].fetch_add(1, Ordering::Relaxed);
            match place {
                3 => (0, Duration::ZERO),
                8 => (2, Duration::ZERO),
                13 => (1, Duration::from_millis(30)),
                _ => (1, Duration::ZERO),
            }
        });
        let mut session =
            link.open(json!({ "protocol": 3, "user": "ann", "machine": "desk", "pid": 1 })).await.unwrap();
        assert_eq!(session.agent, 5);
        let sent: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).take(300_000).collect();
        let (mut reading, sending) = (session.reading, &mut session.sending);
        let copy = sent.clone();
        let reader = tokio::spawn(async move {
            let mut back = vec![0; copy.len()];
            reading.read_exact(&mut back).await.unwrap();
            assert!(back == copy);
        });
        for piece in sent.chunks(7_001) {
            sending.write_all(piece).await.unwrap();
        }
        tokio::time::timeout(Duration::from_secs(60), reader).await.unwrap().unwrap();
        assert!(*lock(&heard) == sent);
        for place in [3, 8, 13] {
            assert!(fates[place].load(Ordering::Relaxed) > 0, "nothing was lost, repeated or late: {fates:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_too_old_when_it_arrives_ends_the_session_and_does_not_reach_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let (place, heard) = echo(folder.path());
        let stuck = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_stuck = Arc::clone(&stuck);
        let link = between(&place, move |_, to_host| {
            let after = if to_host && is_stuck.load(Ordering::Relaxed) {
                Duration::from_millis(FRESH + 300)
            } else {
                Duration::ZERO
            };
            (1, after)
        });
        let mut session = link.open(json!({ "protocol": 3 })).await.unwrap();
        session.sending.write_all(b"fresh").await.unwrap();
        let mut back = [0; 5];
        session.reading.read_exact(&mut back).await.unwrap();
        stuck.store(true, Ordering::Relaxed);
        session.sending.write_all(b"stale").await.unwrap();
        let error = session.reading.read_exact(&mut back).await.unwrap_err();
        assert!(error.to_string().contains("too late"), "{error}");
        assert_eq!(*lock(&heard), b"fresh");
    }

    #[tokio::test]
    async fn an_estimate_of_another_clock_is_never_later_than_that_clock() {
        let window = Arc::new(Window::default());
        let (incoming, _pieces) = mpsc::channel(1);
        let now = Instant::now();
        let mut used = Used {
            flow: Flow::default(),
            hello: None,
            began: now,
            heard: now,
            said: now,
            incoming,
            window: Arc::clone(&window),
            estimated: None,
            instance: String::new(),
            key: 0,
            ends: None,
        };
        let there = There(Some(Arc::clone(&window.offset)));
        // It is ten seconds ahead, and messages take a while.
        let ahead = clock::now() + 10_000;
        used.estimate(ahead - 500, now);
        assert!(there.now() <= ahead && there.now() + 600 > ahead);
        used.estimate(ahead - 10, now);
        assert!(there.now() + 100 > ahead);
        used.estimate(ahead - 400, now);
        assert!(there.now() + 100 > ahead, "a slower message tells nothing new");
        used.estimate(ahead - 400, now + ESTIMATE);
        assert!(there.now() + 500 > ahead && there.now() + 300 < ahead, "but an old estimate is not kept");
    }
}
