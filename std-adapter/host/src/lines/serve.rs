//! A server of lines. The requests of all its clients wait in one [`Queue`] before the extension.
//!
//! A request that does not need the extension is answered at once, whatever runs. The lines of a
//! connection are handled in their order. A line that begins or ends a session waits until the
//! earlier lines of its connection have been answered. In a protocol without ids, each line waits
//! for the one before it. Lines after a batch or a configuration also wait for its end. The time
//! limit of a call counts from its arrival. A call whose limit passes while it waits is answered,
//! and never runs. A batch runs member by member, and requests of other clients may run between the
//! members. When a client ends, its requests end too.
//!
//! When the extension has other operations than before, clients are told that have begun a session
//! or a subscription in a protocol with a word for it.
//!
//! | what | limit |
//! |---|---|
//! | requests of a connection that wait or run | 64, and 16 MiB; what is beyond is left unread |
//! | lines that wait for a client who does not read | 16 MiB; then it is dropped, as after 10 s in which it takes nothing |
//! | subscriptions of a connection | 64; with one more, the oldest ends |
//! | logs that wait for it | 4 MiB; what is beyond is dropped, and counted in the next log or before the next reply |

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{self, Poll, Waker};
use std::time::{Duration, Instant};

use rigline::exchange::Session;
use rigline::json::{Json, JsonKind};
use rigline::protocol::Protocol;
use rigline::rpc;
use rigline::serve::{Transport, whole};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::{Entrance, Event, Input, NOT_ALLOWED, Output, error_line, wait_until};
use rigline_std::log;
use rigline_std::mutex::lock;
use rigline_std::net::{self, Access, Listeners, Presence, Stream};
use rigline_std::queue::{Asker, Changes, Early, Incoming, Line, Queue, QueueClient, Received, Replies};

/// The most requests of a connection that wait or run, and the most lines that wait for those.
const MAX_WAITING: usize = 64;
/// The most bytes of them.
const MAX_BYTES: usize = 16 << 20;
/// How many bytes wait for a client that does not read before it is dropped.
const MAX_UNREAD: usize = 16 << 20;
/// The most subscriptions of a connection.
const MAX_SUBSCRIPTIONS: usize = 64;
/// How often a full queue is tried again, and a client that has ended its input is looked for.
const TICK: Duration = Duration::from_millis(100);

/// Serves TCP clients that [may ask](Access), at most `clients` at a time. Further clients are told
/// so, and refused. The future runs until it is dropped.
///
/// # Errors
/// The listeners cannot be used in this runtime.
pub async fn serve_tcp(
    queue: &Arc<Queue>,
    listeners: Vec<std::net::TcpListener>,
    access: Access,
    clients: usize,
) -> io::Result<()> {
    let listeners = Listeners::new(listeners)?;
    let mut entrance = Entrance::new(access.clone(), clients);
    let access = Arc::new(access);
    // What is dropped with it ends.
    let mut serving = JoinSet::new();
    loop {
        while serving.try_join_next().is_some() {}
        let Ok(stream) = listeners.accept().await else {
            // Out of file descriptors, most likely: some will be given back.
            tokio::time::sleep(TICK).await;
            continue;
        };
        let Some(place) = entrance.admit(&stream) else { continue };
        let (queue, access) = (Arc::clone(queue), Arc::clone(&access));
        serving.spawn(async move {
            serve_stream(&queue, stream, &access).await;
            drop(place);
        });
    }
}

/// Serves a client that has connected, if it may ask.
async fn serve_stream(queue: &Arc<Queue>, stream: Stream, access: &Access) {
    let mut reader = stream.clone();
    let out = Output::of(stream.clone(), MAX_UNREAD, true);
    let end = match access.refusal(stream.ends()) {
        Some(refusal) => {
            out.send(error_line(NOT_ALLOWED, &refusal));
            out.finish().await;
            End::Refused
        }
        None => {
            let input = Input::of_socket(queue.limits().0, access.token.clone()).with_telnet();
            serve_with(queue, QueueClient::of_lines(stream), &mut reader, input, out, Transport::Stream).await
        }
    };
    if end == End::Refused {
        net::drain(&mut reader).await;
    }
}

/// Serves one client over a pair of streams, until the client ends or `lost` is ready.
///
/// With [`Transport::Stdio`], the client is the process that started this one, and `shutdown` ends
/// serving. With [`Transport::Stream`], the client may begin a new session after `shutdown`, and
/// HTTP is refused.
pub async fn serve<R, W>(
    queue: &Arc<Queue>,
    client: QueueClient,
    mut reader: R,
    writer: W,
    transport: Transport,
    lost: impl Future<Output = ()>,
) -> End
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let is_stream = transport == Transport::Stream;
    let limit = queue.limits().0;
    let input = if is_stream { Input::of_socket(limit, None).with_telnet() } else { Input::of_process(limit) };
    let out = Output::of(writer, MAX_UNREAD, is_stream);
    let watched = out.clone();
    let losing = async {
        lost.await;
        watched.lose();
        pending().await
    };
    tokio::select! {
        end = serve_with(queue, client, &mut reader, input, out, transport) => end,
        end = losing => end,
    }
}

async fn serve_with<R: AsyncRead + Unpin>(
    queue: &Arc<Queue>,
    client: QueueClient,
    reader: &mut R,
    input: Input,
    out: Output,
    transport: Transport,
) -> End {
    let Some(session) = queue.new_session() else { return End::Lost };
    let mut connection = Connection {
        out: out.clone(),
        client: client.clone(),
        seat: ConnectionSession { queue: Arc::clone(queue), client, session },
        transport,
        waiting: VecDeque::new(),
        open: Vec::new(),
        apart: None,
        is_full: false,
        changes: None,
        subscriptions: VecDeque::new(),
        renewals: None,
    };
    let end = connection.run(reader, input).await;
    connection.abandon();
    if out.finish().await { end } else { End::Lost }
}

/// The way in which serving a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The client has closed its sending half, and has got all its answers.
    Input,
    /// The acknowledgement of `shutdown` was sent.
    Shutdown,
    /// The client is gone, or has read nothing for too long.
    Lost,
    /// The client may not ask, or spoke HTTP.
    Refused,
}

/// A connection's session, which is lost if it is open when this is dropped.
struct ConnectionSession {
    queue: Arc<Queue>,
    client: QueueClient,
    session: Session,
}

impl ConnectionSession {
    fn set(&mut self, session: Session) {
        match (self.session.is_open(), session.is_open()) {
            (false, true) => self.queue.session_opened(),
            (true, false) => self.queue.session_closed(false),
            _ => {}
        }
        self.session = session;
    }
}

impl Drop for ConnectionSession {
    fn drop(&mut self) {
        if self.session.is_open() {
            self.queue.session_closed(true);
        }
        self.queue.connection_ended(&self.client, self.session.protocol());
    }
}

struct Connection {
    // Before the seat: what it has asked for ends before its session does.
    open: Vec<Open>,
    apart: Option<Apart>,
    out: Output,
    client: QueueClient,
    transport: Transport,
    /// Lines that were not received yet.
    waiting: VecDeque<Waiting>,
    /// The queue has no room for the next one.
    is_full: bool,
    /// How the session is told that the operations are others, if its protocol has a word for it.
    changes: Option<&'static Changes>,
    /// The ids of requests to be told so, as JSON text.
    subscriptions: VecDeque<(String, &'static Changes)>,
    /// Changes with the operations, while the client wants to be told.
    renewals: Option<watch::Receiver<u64>>,
    seat: ConnectionSession,
}

/// A line that was not received yet.
struct Waiting {
    line: Vec<u8>,
    since: Instant,
    expiry: Expiry,
}

/// The time at which a waiting line is answered before its turn.
#[derive(Clone, Copy)]
enum Expiry {
    /// The line was not read for its time limit.
    Unread,
    /// The line has no time limit, or cannot be answered before its turn.
    Never,
    At(Instant),
}

impl Expiry {
    fn instant(self) -> Option<Instant> {
        match self {
            Self::At(instant) => Some(instant),
            Self::Unread | Self::Never => None,
        }
    }
}

/// A request that waits or runs.
struct Open {
    incoming: Incoming,
    bytes: usize,
    /// Whether the lines behind it wait.
    is_barrier: bool,
}

/// A line that is worked on while nothing else of its connection is received.
struct Apart {
    working: Pin<Box<dyn Future<Output = Done> + Send>>,
    /// The cancelled members, if it is a batch.
    cancels: Option<Arc<Cancels>>,
}

/// The result of such a line.
struct Done {
    session: Session,
    reply: Option<Vec<u8>>,
    /// The line itself, if it is to be received now.
    line: Option<Waiting>,
}

/// The ids of a batch's members that are cancelled.
#[derive(Default)]
struct Cancels {
    ids: Mutex<Vec<Vec<u8>>>,
    changed: Notify,
}

impl Cancels {
    fn add(&self, id: Vec<u8>) {
        lock(&self.ids).push(id);
        self.changed.notify_one();
    }

    fn has(&self, id: &[u8]) -> bool {
        lock(&self.ids).iter().any(|known| known == id)
    }

    /// Waits until the member with this id is cancelled.
    async fn wait(&self, id: &[u8]) {
        while id.is_empty() || !self.has(id) {
            self.changed.notified().await;
        }
    }
}

impl Connection {
    async fn run<R: AsyncRead + Unpin>(&mut self, reader: &mut R, mut input: Input) -> End {
        let mut has_ended = false;
        loop {
            if !self.receive_waiting() {
                return End::Lost;
            }
            if self.transport == Transport::Stdio && self.seat.session.has_ended() && self.open.is_empty() {
                return End::Shutdown;
            }
            if has_ended && self.is_idle() {
                return End::Input;
            }
            let due = self.next_due();
            let is_unread = self.out.waiting() >= MAX_UNREAD / 2;
            let may_read = !has_ended && !is_unread && !self.has_enough();
            // A target that is reached meanwhile says nothing of that.
            let is_unknown = self.waiting.iter().any(|waiting| matches!(waiting.expiry, Expiry::Unread));
            let (deadline, ticks) = (input.deadline(), has_ended || self.is_full || is_unknown);
            let out = self.out.clone();
            let mut renewals = self.renewals.clone();
            tokio::select! {
                biased;
                () = out.gone() => return End::Lost,
                () = self.progress() => continue,
                () = changed(&mut renewals) => {
                    self.renewals = renewals;
                    self.tell_of_change();
                    continue;
                }
                () = out.at_most(MAX_UNREAD / 2 - 1), if is_unread => continue,
                () = wait_until(deadline), if may_read => {
                    self.out.send(input.stalled());
                    return End::Refused;
                }
                () = wait_until(due.map(Into::into)) => {
                    self.refuse_late();
                    continue;
                }
                () = tokio::time::sleep(TICK), if ticks => {
                    self.is_full = false;
                    // One that closed its sending half only still reads.
                    if has_ended && self.is_gone() {
                        return End::Lost;
                    }
                    continue;
                }
                read = reader.read(input.space()), if may_read => match read {
                    Ok(0) => {
                        input.finish();
                        has_ended = true;
                        if self.is_gone() {
                            return End::Lost;
                        }
                    }
                    Ok(read) => input.commit(read),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return End::Lost,
                },
            }
            while let Some(event) = input.next_event() {
                match event {
                    Event::Line(line) => self.take(line),
                    Event::Answer(line) => self.out.send(line),
                    Event::Nothing => {}
                    Event::Refusal(line) => {
                        self.out.send(line);
                        return End::Refused;
                    }
                }
            }
        }
    }

    /// Takes the session as it is after a message.
    fn set_session(&mut self, session: Session) {
        self.seat.set(session);
        self.listen();
    }

    /// Begins or ends to listen whether the operations are others.
    fn listen(&mut self) {
        let ConnectionSession { queue, session, .. } = &self.seat;
        // Lines of other protocols may come in between.
        self.changes = queue.changes_in(session.protocol()).or(self.changes).filter(|_| session.is_open());
        if self.changes.is_none() && self.subscriptions.is_empty() {
            self.renewals = None;
        } else if self.renewals.is_none() {
            self.renewals = Some(self.seat.queue.renewals());
        }
    }

    /// Takes the acknowledgement of a request that stays open.
    fn subscribe(&mut self, acknowledgement: &[u8]) {
        let Some(changes) = self.seat.queue.changes_in(self.seat.session.protocol()) else { return };
        let Some(id) = (changes.subscription)(acknowledgement) else { return };
        self.unsubscribe(id.as_bytes());
        self.subscriptions.push_back((id, changes));
        if self.subscriptions.len() > MAX_SUBSCRIPTIONS {
            self.subscriptions.pop_front();
        }
        self.listen();
    }

    fn unsubscribe(&mut self, id: &[u8]) {
        self.subscriptions.retain(|(known, _)| known.as_bytes() != id);
        self.listen();
    }

    /// Tells the client that the operations are others.
    fn tell_of_change(&self) {
        let of_session = self.changes.map(|changes| (changes.notification)(None));
        let of_each = self.subscriptions.iter().map(|(id, changes)| (changes.notification)(Some(id)));
        of_session.into_iter().chain(of_each).for_each(|line| self.send(line.into_bytes()));
    }

    /// Ends all that it has asked for.
    fn abandon(&mut self) {
        self.open.clear();
        self.apart = None;
        self.waiting.clear();
    }

    fn is_idle(&self) -> bool {
        self.open.is_empty() && self.apart.is_none() && self.waiting.is_empty()
    }

    /// Whether the client is known to be gone. One that closed its sending half only still reads.
    fn is_gone(&self) -> bool {
        self.client.presence() == Some(Presence::Gone)
    }

    /// Whether no more is read for now.
    fn has_enough(&self) -> bool {
        let bytes = self
            .waiting
            .iter()
            .map(|waiting| waiting.line.len())
            .chain(self.open.iter().map(|open| open.bytes))
            .sum::<usize>();
        self.waiting.len() >= MAX_WAITING || bytes >= MAX_BYTES
    }

    /// When the time of a line is up that was not received, and can be answered all the same.
    fn next_due(&mut self) -> Option<Instant> {
        let ConnectionSession { queue, session, .. } = &self.seat;
        // What an extension has is known once it is reached.
        let is_reached = queue.is_reached();
        let is_unread = |waiting: &&mut Waiting| is_reached && matches!(waiting.expiry, Expiry::Unread);
        for Waiting { line, since, expiry } in self.waiting.iter_mut().rev().take_while(is_unread) {
            *expiry = queue.due(session, line, *since).map_or(Expiry::Never, Expiry::At);
        }
        self.waiting.iter().filter_map(|waiting| waiting.expiry.instant()).min()
    }

    /// Answers the calls whose time is up before they were received.
    fn refuse_late(&mut self) {
        let now = Instant::now();
        let is_late = |waiting: &Waiting| waiting.expiry.instant().is_some_and(|due| due <= now);
        let (late, left): (VecDeque<_>, _) = std::mem::take(&mut self.waiting).into_iter().partition(is_late);
        self.waiting = left;
        for Waiting { line, since, .. } in late {
            let reply = self.seat.queue.refuse_late(self.seat.session, line, since);
            reply.into_iter().for_each(|reply| self.send(reply));
        }
    }

    /// Takes a line. What need not wait for what came before it on this connection is answered.
    fn take(&mut self, line: &[u8]) {
        if !self.subscriptions.is_empty()
            && let Early::Cancels(id) = self.seat.queue.look_ahead(&mut { self.seat.session }, line)
        {
            self.unsubscribe(&id);
        }
        let queue = &self.seat.queue;
        // What an extension has is known once it is reached.
        let waits = self.is_idle() || !queue.is_reached();
        let early = if waits { Early::Waits } else { queue.look_ahead(&mut self.seat.session, line) };
        match early {
            Early::Waits => {
                self.waiting.push_back(Waiting { line: line.to_vec(), since: Instant::now(), expiry: Expiry::Unread });
            }
            Early::Reply(reply) => self.send(reply),
            Early::Silent => {}
            Early::Cancels(id) => {
                self.waiting.retain(|waiting| {
                    let message = Json::parse(&waiting.line).ok();
                    message.and_then(|message| message.get("id")).is_none_or(|known| known.as_bytes() != id)
                });
                let mut meant = self.open.iter().filter(|open| open.incoming.id() == id);
                if let (Some(open), None) = (meant.next(), meant.next()) {
                    open.incoming.cancel();
                }
                if let Some(cancels) = self.apart.as_ref().and_then(|apart| apart.cancels.as_ref()) {
                    cancels.add(id);
                }
            }
        }
    }

    /// Receives the lines whose time has come. Returns whether the extension is still there.
    fn receive_waiting(&mut self) -> bool {
        while !self.is_full
            && self.apart.is_none()
            && self.open.len() < MAX_WAITING
            && !self.open.iter().any(|open| open.is_barrier)
            && let Some(mut waiting) = self.waiting.pop_front()
        {
            let is_alone = self.open.is_empty();
            if is_batch(&waiting.line, &self.seat.session) {
                if !is_alone {
                    self.waiting.push_front(waiting);
                    break;
                }
                let (queue, session) = (Arc::clone(&self.seat.queue), self.seat.session);
                let cancels = Arc::new(Cancels::default());
                let working =
                    batch(queue, session, self.client.clone(), waiting, self.out.clone(), Arc::clone(&cancels));
                self.apart = Some(Apart { working: Box::pin(working), cancels: Some(cancels) });
                break;
            }
            if !self.seat.queue.is_reached() {
                if !is_alone {
                    self.waiting.push_front(waiting);
                    break;
                }
                let working = reached(Arc::clone(&self.seat.queue), self.seat.session, waiting, self.out.clone());
                let mut working: Pin<Box<dyn Future<Output = Done> + Send>> = Box::pin(working);
                // What need not be reached goes on at once.
                match working.as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
                    Poll::Ready(Done { line: Some(same), .. }) => waiting = same,
                    Poll::Ready(done) => {
                        self.set_session(done.session);
                        done.reply.into_iter().for_each(|reply| self.send(reply));
                        continue;
                    }
                    Poll::Pending => {
                        self.apart = Some(Apart { working, cancels: None });
                        break;
                    }
                }
            }
            let Waiting { line, since, expiry } = waiting;
            let bytes = line.len();
            let mut session = self.seat.session;
            let asker = asker(&self.client, since);
            match self.seat.queue.receive_in(&mut session, line, &asker, is_alone) {
                Ok(Received::Reply(reply)) => self.send(reply),
                Ok(Received::StaysOpen(acknowledgement)) => {
                    self.set_session(session);
                    self.subscribe(&acknowledgement);
                    self.send(acknowledgement);
                }
                Ok(Received::Silent | Received::Full) => {}
                Ok(Received::Gone) => return false,
                Ok(Received::Waits(incoming)) => {
                    let is_barrier = !incoming.is_operation() || !session.protocol().has_ids();
                    self.open.push(Open { incoming, bytes, is_barrier });
                }
                Err(line) => {
                    self.is_full = is_alone;
                    self.waiting.push_front(Waiting { line, since, expiry });
                    break;
                }
            }
            self.set_session(session);
            // A client that is no connection of its own may go on, as one that connects anew.
            if self.seat.session.has_ended()
                && self.transport == Transport::Stream
                && self.client.presence().is_none()
                && let Some(session) = self.seat.queue.new_session()
            {
                self.set_session(session);
            }
        }
        true
    }

    /// Waits until something that was asked for has come to its end. Logs and progress are sent meanwhile.
    async fn progress(&mut self) {
        if self.open.is_empty() && self.apart.is_none() {
            return pending().await;
        }
        poll_fn(|task| {
            let mut has_ended = false;
            if let Some(apart) = &mut self.apart
                && let Poll::Ready(Done { session, reply, line }) = apart.working.as_mut().poll(task)
            {
                self.apart = None;
                self.set_session(session);
                reply.into_iter().for_each(|reply| self.send(reply));
                line.into_iter().for_each(|line| self.waiting.push_front(line));
                has_ended = true;
            }
            let mut place = 0;
            while let Some(open) = self.open.get_mut(place) {
                let line = match open.incoming.poll_line(task) {
                    Poll::Pending => {
                        place += 1;
                        continue;
                    }
                    Poll::Ready(line) => line,
                };
                let line = match line {
                    Some(Line::Notification(line)) => {
                        send_log(&self.out, line, &self.seat.session, self.seat.queue.limits().1);
                        continue;
                    }
                    Some(Line::Reply(reply)) => Some(reply),
                    None => None,
                };
                let open = self.open.remove(place);
                if !open.incoming.is_operation()
                    && let Some(session) = open.incoming.session_after()
                {
                    self.set_session(session);
                }
                line.into_iter().for_each(|reply| self.send(reply));
                has_ended = true;
            }
            if has_ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn send(&self, mut reply: Vec<u8>) {
        reply.push(b'\n');
        // Of logs that were dropped the client learns with the result, at the latest.
        self.out.report_dropped(|count| dropped_logs(self.seat.session.protocol(), count));
        self.out.send(reply);
    }
}

/// Waits until the operations are others.
async fn changed(renewals: &mut Option<watch::Receiver<u64>>) {
    let has_changed = match renewals {
        Some(renewals) => renewals.changed().await.is_ok(),
        None => false,
    };
    if !has_changed {
        pending::<()>().await;
    }
}

/// Whether a line is a batch of JSON-RPC, whose members are run one by one. Any other array, and a batch that is to be refused as a whole, is a
/// message like any other.
fn is_batch(line: &[u8], session: &Session) -> bool {
    if line.trim_ascii_start().first() != Some(&b'[') {
        return false;
    }
    let Ok(json) = Json::parse(line.trim_ascii()) else { return false };
    let is_json_rpc = session.protocol().has_ids() || json.elements().any(|member| member.get("jsonrpc").is_some());
    is_json_rpc && (1..=rpc::MAX_BATCH).contains(&json.elements().count())
}

/// Reaches the extension, which is to come before the line is received.
async fn reached(queue: Arc<Queue>, mut session: Session, waiting: Waiting, out: Output) -> Done {
    let (told, limit) = (session, queue.limits().1);
    let log = |line| send_log(&out, line, &told, limit);
    match queue.reach(&mut session, &waiting.line, &log).await {
        Ok(()) => Done { session, reply: None, line: Some(waiting) },
        Err(reply) => Done { session, reply: Some(reply).filter(|reply| !reply.is_empty()), line: None },
    }
}

/// A connection of lines asks, by a request that came then.
fn asker(client: &QueueClient, since: Instant) -> Asker<'_> {
    Asker { client, session: None, cancels: true, wants_logs: true, identity: None, arrived: Some(since) }
}

/// Runs the members of a batch one after the other. The time limit of each counts from when the batch came.
async fn batch(
    queue: Arc<Queue>,
    mut session: Session,
    client: QueueClient,
    Waiting { line, since, .. }: Waiting,
    out: Output,
    cancels: Arc<Cancels>,
) -> Done {
    let limit = queue.limits().1;
    let mut replies = Replies::new(queue.limits().1);
    let members: Vec<Vec<u8>> = Json::parse(line.trim_ascii())
        .map(|json| json.elements().map(|member| member.as_bytes().to_vec()).collect())
        .unwrap_or_default();
    for member in members {
        let json = Json::parse(&member).unwrap_or(Json::NULL);
        let id = json.get("id").map_or_else(String::new, |id| id.as_str().to_owned());
        if json.kind() != JsonKind::Object {
            let refusal = error_line(rpc::INVALID_REQUEST, "a member of a batch must be an object");
            replies.push(refusal.trim_ascii_end());
            continue;
        }
        if replies.is_full() {
            if !id.is_empty() {
                replies.add_too_large(&id);
            }
            continue;
        }
        if cancels.has(id.as_bytes()) {
            continue;
        }
        let told = session;
        let log = |line| send_log(&out, line, &told, limit);
        if let Err(reply) = queue.reach(&mut session, &member, &log).await {
            if !reply.is_empty() {
                replies.add(&id, &reply);
            }
            continue;
        }
        let asker = asker(&client, since);
        let mut message = member;
        let received = loop {
            match queue.receive_in(&mut session, message, &asker, true) {
                Ok(received) => break received,
                Err(again) => {
                    message = again;
                    tokio::time::sleep(TICK).await;
                }
            }
        };
        match received {
            Received::Reply(reply) => replies.add(&id, &reply),
            Received::Waits(mut incoming) => {
                loop {
                    let line = tokio::select! {
                        line = incoming.line() => line,
                        () = cancels.wait(id.as_bytes()) => {
                            incoming.cancel();
                            break;
                        }
                    };
                    match line {
                        Some(Line::Notification(line)) => send_log(&out, line, &session, limit),
                        Some(Line::Reply(reply)) => break replies.add(&id, &reply),
                        None => break,
                    }
                }
                if !incoming.is_operation()
                    && let Some(after) = incoming.session_after()
                {
                    session = after;
                }
            }
            Received::StaysOpen(_) => {
                let text = "a request that stays open cannot be in a batch";
                replies.push(error_line(rpc::INVALID_REQUEST, text).trim_ascii_end());
            }
            Received::Silent | Received::Full | Received::Gone => {}
        }
    }
    Done { session, reply: replies.end(), line: None }
}

/// Sends a log line. One that is too long is shortened, or dropped and counted if that cannot be.
fn send_log(out: &Output, mut line: Vec<u8>, session: &Session, limit: usize) {
    line.push(b'\n');
    if line.len() > limit + 1
        && let Some(short) = log::shortened(&line, limit)
    {
        line = short;
    }
    if line.len() > limit + 1 {
        return out.drop_logs(1);
    }
    out.log(line, |count| dropped_logs(session.protocol(), count));
}

/// The log line that says how many were dropped.
fn dropped_logs(protocol: &Protocol, count: u64) -> Vec<u8> {
    let mut line = vec![0; 512];
    let length = whole::dropped_logs(protocol, usize::try_from(count).unwrap_or(usize::MAX), &mut line);
    line.truncate(length.unwrap_or_default());
    line
}
