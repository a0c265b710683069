//! A connection at work: lines out, lines in, and what ends it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use rigline::client::{self, Client, Incoming, Received, Request, StartError};
use rigline::frame::{Frame, Framer, LineEnds};
use rigline::json::write;
use rigline::link::{Collected, Collector};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::child::Child;
use super::error::{Details, Exit, HostError, RpcFailure, also_open};
use super::event::{Event, EventKind, Log};
use super::manifest::{Manifest, value};
use super::reading::Reading;
use super::result::Answer;
use super::transport::{Control, RawConnection, Reader, TransportTraits, Writer};
use super::{Direction, Options, shown};

use crate::sync::lock;

/// How many skipped lines are shown between two messages; more are counted.
const SHOWN_SKIPPED: u32 = 100;
/// How many skipped lines an error shows.
const KEPT_SKIPPED: usize = 5;
/// How long a child's pipes are read after its end, when another process of its group holds them.
const LAST_LINES: Duration = Duration::from_millis(300);
/// How long a child that closed its output or input has to end before that counts as a fault of its own.
const ENDING: Duration = Duration::from_millis(500);
/// How many bytes of answers to a peer's own requests may wait.
const REFUSALS: usize = 1 << 20;
/// How much beyond the limit is read before a line that does not end fails the call.
const SLACK: u64 = 64 * 1024;

pub(super) struct Connection {
    shared: Arc<Shared>,
    child: Option<Child>,
    traits: TransportTraits,
    reading: Arc<Reading>,
    /// What reads, and watches. It ends with the connection.
    tasks: Mutex<JoinSet<()>>,
}

struct Shared {
    options: Arc<Options>,
    name: Mutex<Arc<str>>,
    state: Mutex<State>,
    writer: Arc<AsyncMutex<Writer>>,
    control: Mutex<Option<Arc<dyn Control>>>,
    output_read: watch::Sender<bool>,
    errors_read: watch::Sender<bool>,
    ended: watch::Sender<bool>,
    heard: AtomicBool,
    /// A call was not answered in time, and no reply has come since.
    is_late: AtomicBool,
    /// Answers to the peer's own requests that could not be written at once.
    refusals: mpsc::UnboundedSender<Refusal>,
    /// How many bytes of them wait.
    refusals_waiting: watch::Sender<usize>,
    /// A request is out that is due before [`State::next_due`].
    sooner: Notify,
}

struct State {
    client: Client,
    waiting: Vec<Waiting>,
    /// When [`watch_deadlines`] looks next.
    next_due: Option<Instant>,
    end: Option<End>,
    /// `initialize` is out on a shared wire: errors that name no request may be about what was there before.
    booting: bool,
    stderr: VecDeque<String>,
    skipped: VecDeque<String>,
    budget: u32,
    more_skipped: u64,
    hint: Option<String>,
}

/// What is still to be written of an answer to a peer's own request.
struct Refusal {
    rest: Vec<u8>,
    /// The writer, if the beginning of the line is written already.
    writer: Option<OwnedMutexGuard<Writer>>,
}

/// A request that is out.
struct Waiting {
    id: u32,
    /// It is an `execute` of the host's own.
    is_call: bool,
    /// When it is given up, unless its sender sees to that.
    due: Option<Instant>,
    sender: ResponseSender,
}

/// Who wants to know what becomes of a request.
enum ResponseSender {
    One(oneshot::Sender<Completion>),
    /// Somebody who has several out, and takes the first answer.
    OfSeveral(mpsc::UnboundedSender<Completion>),
}

impl ResponseSender {
    /// A caller that has given up is not informed.
    fn tell(self, completion: Completion) {
        match self {
            Self::One(sender) => drop(sender.send(completion)),
            Self::OfSeveral(sender) => drop(sender.send(completion)),
        }
    }
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub(super) enum Completion {
    Answer(Answer),
    /// The line that must have been its reply was over the limit.
    TooLong(u64),
    /// It was not answered in time.
    Late,
    End(End),
}

/// What ended a connection.
#[derive(Debug, Clone)]
pub(super) enum End {
    Exited(Exit),
    Gone(String),
    Cancelled,
    ShutDown,
}

/// Why a request has no completion.
#[derive(Debug)]
pub(super) enum RequestError {
    Late,
    End(End),
    InputClosed(io::Error),
    TooManyCalls,
}

impl Connection {
    /// Begins to read from a wire.
    pub(super) fn open(wire: RawConnection, name: &str, base: u32, options: &Arc<Options>) -> Self {
        let client = Client::new(base);
        let state = State {
            client: if options.strict { client.strict() } else { client },
            waiting: Vec::new(),
            next_due: None,
            end: None,
            booting: wire.traits.shared,
            stderr: VecDeque::new(),
            skipped: VecDeque::new(),
            budget: SHOWN_SKIPPED,
            more_skipped: 0,
            hint: None,
        };
        let (refusals, refused) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            options: Arc::clone(options),
            name: Mutex::new(name.into()),
            state: Mutex::new(state),
            writer: Arc::new(AsyncMutex::new(wire.writer)),
            control: Mutex::new(wire.control),
            output_read: watch::channel(false).0,
            errors_read: watch::channel(wire.stderr.is_none()).0,
            ended: watch::channel(false).0,
            heard: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            refusals,
            refusals_waiting: watch::channel(0).0,
            sooner: Notify::new(),
        });
        let output = read_output(Arc::clone(&shared), wire.reader, wire.traits.ends, wire.child.clone());
        let reading = Arc::new(Reading::new(output));
        let mut tasks = JoinSet::new();
        let all = Arc::clone(&reading);
        tasks.spawn(async move { all.all().await });
        tasks.spawn(watch_deadlines(Arc::clone(&shared)));
        tasks.spawn(write_refusals(Arc::clone(&shared), refused));
        if let Some(stderr) = wire.stderr {
            tasks.spawn(read_errors(Arc::clone(&shared), stderr));
        }
        if let Some(child) = wire.child.clone() {
            tasks.spawn(watch_child(Arc::clone(&shared), child));
        }
        Self { shared, child: wire.child, traits: wire.traits, reading, tasks: Mutex::new(tasks) }
    }

    pub(super) fn child(&self) -> Option<&Child> {
        self.child.as_ref()
    }

    pub(super) fn ended(&self) -> Option<End> {
        self.shared.lock().end.clone()
    }

    /// Whether a call was not answered in time, and no reply has come since.
    pub(super) fn is_late(&self) -> bool {
        self.shared.is_late.load(Ordering::Relaxed)
    }

    /// Waits for the connection's end, whatever it is.
    pub(super) async fn wait_for_end(&self) {
        let _ = self.shared.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Ends the connection: every call that is out fails with `end`, and a child's group is gone.
    pub(super) fn close(&self, end: End) {
        self.shared.end(end);
        if let Some(child) = &self.child {
            child.kill();
        }
        lock(&self.tasks).abort_all();
        self.reading.close();
        self.shared.release();
    }

    pub(super) fn control(&self) -> Option<Arc<dyn Control>> {
        lock(&self.shared.control).clone()
    }

    /// No more requests: a child that waits for the end of its input sees it.
    pub(super) async fn close_input(&self) {
        let mut writer = self.shared.writer.lock().await;
        let _ = timeout(ENDING, writer.shutdown()).await;
        *writer = Box::new(tokio::io::sink());
    }

    /// Opens the session.
    pub(super) async fn initialize(&self, request: &Request<'_>, deadline: Instant) -> Result<Manifest, HostError> {
        let after = self.shared.options.start_timeout;
        let (sender, mut fates) = mpsc::unbounded_channel();
        let mut out = VecDeque::new();
        loop {
            // What the lost ones are answered with is welcome too, as long as they are few.
            if out.len() >= 4
                && let Some(oldest) = out.pop_front()
            {
                self.shared.forget(oldest);
            }
            let boundary: &[u8] = if self.traits.shared { b"\n" } else { b"" };
            let sender = ResponseSender::OfSeveral(sender.clone());
            let started = self.shared.begin(request, request.measure(), boundary, None, sender);
            let (id, line) = started.map_err(|trouble| self.error(trouble, "", after))?;
            out.push_back(id);
            if let Err(trouble) = self.shared.send(line, deadline).await {
                // Its last words may say more than the broken pipe.
                let trouble = self.after_all(trouble).await;
                return Err(self.start_error(trouble, after));
            }
            let next = self.traits.resend.map_or(deadline, |pause| deadline.min(Instant::now() + pause));
            let result = match timeout_at(next, fates.recv()).await {
                Ok(Some(Completion::Answer(Answer::Result(text)))) => Manifest::read(&text)
                    .map_err(|why| HostError::BadReply { extension: self.name(), why, details: self.details(None) }),
                Ok(Some(Completion::Answer(Answer::Error(error, _)))) => {
                    Err(HostError::Refused { extension: self.name(), error })
                }
                // Damage on a wire that is just being opened: the next try may get through.
                Ok(Some(Completion::Answer(Answer::Bad(..)) | Completion::TooLong(_))) if self.traits.shared => {
                    continue;
                }
                Ok(Some(completion)) => Err(self.fate_error(completion, after)),
                Ok(None) => {
                    Err(self.start_error(RequestError::End(End::Gone("the connection is closed".into())), after))
                }
                Err(_) if Instant::now() < deadline => continue,
                Err(_) => Err(self.start_error(RequestError::Late, after)),
            };
            let mut state = self.shared.lock();
            state.booting = false;
            state.hint = None;
            drop(state);
            for id in out {
                self.shared.forget(id);
            }
            if let Ok(manifest) = &result
                && !manifest.name.is_empty()
            {
                *lock(&self.shared.name) = manifest.name.as_str().into();
            }
            return result;
        }
    }

    /// Sends a request and waits for what becomes of it.
    pub(super) async fn request(&self, request: &Request<'_>, deadline: Instant) -> Result<Completion, RequestError> {
        self.request_of(request, request.measure(), deadline).await
    }

    /// The same, with a request that has room in `size` bytes.
    pub(super) async fn request_of(
        &self,
        request: &Request<'_>,
        size: usize,
        deadline: Instant,
    ) -> Result<Completion, RequestError> {
        let (sender, completion) = oneshot::channel();
        let (id, line) = self.shared.begin(request, size, b"", Some(deadline), ResponseSender::One(sender))?;
        let forget = Forget(&self.shared, id);
        if let Err(trouble) = self.shared.send(line, deadline).await {
            return Err(self.after_all(trouble).await);
        }
        let completion = self.reading.until(completion).await;
        // Whoever told it has forgotten it.
        std::mem::forget(forget);
        match completion {
            Ok(Completion::End(end)) => Err(RequestError::End(end)),
            Ok(Completion::Late) => Err(RequestError::Late),
            Ok(completion) => Ok(completion),
            Err(_) => Err(RequestError::End(End::Gone("the connection is closed".into()))),
        }
    }

    /// A broken pipe is most often the first sign of an end: the end itself says more.
    async fn after_all(&self, trouble: RequestError) -> RequestError {
        if let RequestError::InputClosed(_) = trouble {
            let _ = timeout(ENDING, self.wait_for_end()).await;
            if let Some(end) = self.ended() {
                return RequestError::End(end);
            }
        }
        trouble
    }

    pub(super) fn name(&self) -> String {
        // The peer says its name, and errors are printed.
        crate::terminal::one_line(&lock(&self.shared.name)).into_owned()
    }

    pub(super) fn tell(&self, kind: EventKind) {
        self.shared.tell(kind);
    }

    #[allow(clippy::unnecessary_box_returns, reason = "every error has it boxed")]
    pub(super) fn details(&self, hint: Option<String>) -> Box<Details> {
        // Somebody else may have got what was waited for.
        let also = self.control().and_then(|control| also_open(&control.others()));
        let state = self.shared.lock();
        let hint = hint.or_else(|| state.hint.clone());
        Box::new(Details {
            hint: match (hint, also) {
                (Some(hint), Some(also)) => Some(format!("{hint}; {also}")),
                (hint, also) => hint.or(also),
            },
            stderr: state.stderr.iter().cloned().collect(),
            skipped: state.skipped.iter().cloned().collect(),
        })
    }

    fn start_error(&self, trouble: RequestError, after: Duration) -> HostError {
        match trouble {
            RequestError::Late => {
                let silent = !self.shared.heard.load(Ordering::Relaxed);
                let hint = silent.then(|| "it has written nothing at all".to_owned());
                let hint = self.shared.lock().hint.clone().or(hint);
                HostError::StartTimeout { extension: self.name(), after, details: self.details(hint) }
            }
            trouble => self.error(trouble, "initialize", after),
        }
    }

    /// The error that a trouble with `request` is.
    pub(super) fn error(&self, trouble: RequestError, request: &str, after: Duration) -> HostError {
        let extension = self.name();
        match trouble {
            RequestError::Late => {
                let request = request.to_owned();
                HostError::Timeout { extension, request, after, limit: None, details: self.details(None) }
            }
            RequestError::End(End::Exited(exit)) => HostError::Exited { extension, exit, details: self.details(None) },
            RequestError::End(End::Gone(why)) => HostError::Gone { extension, why, details: self.details(None) },
            RequestError::End(End::Cancelled) => HostError::Cancelled { extension },
            RequestError::End(End::ShutDown) => HostError::ShutDown { extension },
            RequestError::InputClosed(error) => HostError::Gone {
                extension,
                why: if self.child.is_some() {
                    format!("it closed its standard input, and still runs: {error}")
                } else {
                    format!("nothing can be sent to it: {error}")
                },
                details: self.details(None),
            },
            RequestError::TooManyCalls => HostError::TooManyCalls(client::MAX_PENDING),
        }
    }

    /// The error for a completion that is not a usable answer.
    pub(super) fn fate_error(&self, completion: Completion, after: Duration) -> HostError {
        let extension = self.name();
        match completion {
            Completion::Answer(Answer::Bad(why, line)) => {
                let mut details = self.details(None);
                if !line.is_empty() {
                    details.skipped.push(line);
                }
                HostError::BadReply { extension, why, details }
            }
            Completion::Answer(_) => {
                HostError::BadReply { extension, why: "not what was asked for".into(), details: self.details(None) }
            }
            Completion::TooLong(length) => HostError::LineTooLong {
                extension,
                length,
                limit: self.shared.options.line_limit,
                details: self.details(None),
            },
            Completion::Late => self.error(RequestError::Late, "initialize", after),
            Completion::End(end) => self.error(RequestError::End(end), "initialize", after),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close(End::ShutDown);
    }
}

/// Nobody waits any more, because it was answered or its caller gave up.
struct Forget<'c>(&'c Shared, u32);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn tell(&self, kind: EventKind) {
        if let Some(listener) = &self.options.listener {
            let extension = lock(&self.name).clone();
            listener(&Event { time: SystemTime::now(), extension, kind });
        }
    }

    fn forget(&self, id: u32) {
        let mut state = self.lock();
        state.client.forget(id);
        state.waiting.retain(|waiting| waiting.id != id);
    }

    /// Makes a request's line, and a place for its completion.
    fn begin(
        &self,
        request: &Request<'_>,
        size: usize,
        boundary: &[u8],
        due: Option<Instant>,
        sender: ResponseSender,
    ) -> Result<(u32, Vec<u8>), RequestError> {
        let mut memory = vec![0; size];
        let mut out = write::Writer::new(&mut memory);
        let mut state = self.lock();
        if let Some(end) = &state.end {
            return Err(RequestError::End(end.clone()));
        }
        let id = state.client.start(request, &mut out).map_err(|error| match error {
            StartError::TooManyPending => RequestError::TooManyCalls,
            error => RequestError::InputClosed(io::Error::other(error)),
        })?;
        if state.waiting.is_empty() {
            // What was odd about an earlier call explains nothing about this one.
            state.hint = None;
        }
        state.waiting.push(Waiting { id, is_call: matches!(request, Request::Execute { .. }), due, sender });
        let is_sooner = due.is_some_and(|due| state.next_due.is_none_or(|next| due < next));
        drop(state);
        if is_sooner {
            self.sooner.notify_one();
        }
        let length = out.len();
        memory.truncate(length);
        if !boundary.is_empty() {
            memory.splice(..0, boundary.iter().copied());
        }
        Ok((id, memory))
    }

    /// Sends a line whole, even if the caller gives up in the middle of it.
    async fn send(&self, line: Vec<u8>, deadline: Instant) -> Result<(), RequestError> {
        let mut writer = match Arc::clone(&self.writer).try_lock_owned() {
            Ok(writer) => writer,
            Err(_) => match timeout_at(deadline, Arc::clone(&self.writer).lock_owned()).await {
                Ok(writer) => writer,
                Err(_) => return Err(RequestError::Late),
            },
        };
        if let Some(traffic) = &self.options.traffic {
            traffic(Direction::Sent, &line);
        }
        // Most lines go at once, and cost no task.
        let sent = match poll_fn(|cx| Poll::Ready(at_once(&mut writer, &line, cx))).await {
            Ok(Written::Whole) => return Ok(()),
            Ok(Written::Part(sent)) => sent,
            Err(error) => return Err(RequestError::InputClosed(error)),
        };
        let rest = tokio::spawn(async move {
            writer.write_all(line.get(sent..).unwrap_or_default()).await?;
            writer.flush().await
        });
        match timeout_at(deadline, rest).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(RequestError::InputClosed(error)),
            Ok(Err(_)) => Err(RequestError::InputClosed(io::ErrorKind::BrokenPipe.into())),
            Err(_) => Err(RequestError::Late),
        }
    }

    /// Ends the connection, once: everything that waits fails.
    fn end(&self, end: End) {
        let mut state = self.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(end.clone());
        state.client.reset();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        match &end {
            End::Exited(exit) => self.tell(EventKind::Exited(*exit)),
            End::Gone(why) => self.tell(EventKind::Gone(why.clone())),
            End::Cancelled | End::ShutDown => {}
        }
        for waiting in waiting {
            waiting.sender.tell(Completion::End(end.clone()));
        }
        if matches!(end, End::Gone(_)) {
            self.release();
        }
        self.ended.send_replace(true);
    }

    /// Gives a port back at once: so that it can be opened again, and the kernel can give its name to the next device.
    fn release(&self) {
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = Box::new(tokio::io::sink());
        } else if let Ok(runtime) = Handle::try_current() {
            // Somebody writes, and will soon be told that the device is gone.
            let writer = Arc::clone(&self.writer);
            runtime.spawn(async move { *writer.lock().await = Box::new(tokio::io::sink()) });
        }
        if let Some(control) = lock(&self.control).take() {
            let _ = control.discard();
        }
    }

    /// `is_told`: the line that is too long has failed its call already.
    fn frame(self: &Arc<Self>, frame: Frame<'_>, is_told: &mut bool) {
        match frame {
            Frame::Line(line) => {
                if let Some(traffic) = &self.options.traffic {
                    traffic(Direction::Received, line);
                }
                self.line(line);
            }
            Frame::TooLong(too_long) => {
                let length = too_long.dropped as u64;
                self.tell(EventKind::TooLong { length, limit: too_long.limit });
                if !std::mem::take(is_told) {
                    self.too_long(length);
                }
            }
        }
    }

    /// A line over the limit has ended, or does not end: the call that is out alone must be the one that it answers.
    fn too_long(&self, length: u64) {
        let mut state = self.lock();
        if !state.booting
            && let [Waiting { id, .. }] = *state.waiting
        {
            state.finish(id, Completion::TooLong(length));
        } else {
            let limit = self.options.line_limit;
            state.hint = Some(format!("a line of {length} bytes was dropped; the limit is {limit}"));
        }
    }

    fn line(self: &Arc<Self>, mut line: &[u8]) {
        loop {
            let mut state = self.lock();
            let received = state.client.receive(line);
            let skipped = std::mem::take(&mut state.more_skipped);
            let is_message = !matches!(received.incoming, Incoming::NonProtocol(_) | Incoming::Malformed(_));
            if matches!(received.incoming, Incoming::Reply(_) | Incoming::UnknownId(_)) {
                self.is_late.store(false, Ordering::Relaxed);
            }
            if is_message {
                state.budget = SHOWN_SKIPPED;
            } else {
                state.more_skipped = skipped;
            }
            let mut events = Vec::new();
            if is_message && skipped > 0 {
                events.push(EventKind::MoreSkipped(skipped));
            }
            if !received.before.is_empty() {
                let why = "it precedes a message".to_owned();
                state.skip(received.before, why, &mut events);
            }
            let request = state.take_in(&received, &mut events);
            drop(state);
            events.extend(received.anomalies.texts().map(EventKind::Anomaly));
            for event in events {
                self.tell(event);
            }
            if let Some(refusal) = request {
                self.refuse(refusal);
            }
            if received.rest.is_empty() {
                return;
            }
            line = received.rest;
        }
    }

    /// Answers a request of the peer's, after those that came before it. Most answers are written here at once, so that they precede
    /// everything that follows the request. A peer that asks without reading gets a bounded number of answers.
    fn refuse(&self, line: Vec<u8>) {
        let mut refusal = Refusal { rest: line, writer: None };
        if *self.refusals_waiting.borrow() == 0
            && let Ok(mut writer) = Arc::clone(&self.writer).try_lock_owned()
        {
            match at_once(&mut writer, &refusal.rest, &mut Context::from_waker(Waker::noop())) {
                Ok(Written::Whole) | Err(_) => return,
                Ok(Written::Part(0)) => {}
                Ok(Written::Part(sent)) => {
                    refusal.rest.drain(..sent);
                    refusal.writer = Some(writer);
                }
            }
        }
        let length = refusal.rest.len();
        let has_room = self.refusals_waiting.send_if_modified(|waiting| {
            // The rest of a line that has begun always has room: half a line would damage the next one.
            let has_room = refusal.writer.is_some() || *waiting + length <= REFUSALS;
            *waiting += if has_room { length } else { 0 };
            has_room
        });
        if !has_room || self.refusals.send(refusal).is_err() {
            self.lock().hint = Some("it sends requests without reading the responses".to_owned());
        }
    }

    /// Waits until the peer has been sent all answers to its own requests, but not for long.
    async fn refusals_written(&self) {
        let mut waiting = self.refusals_waiting.subscribe();
        let _ = timeout(ENDING, waiting.wait_for(|waiting| *waiting == 0)).await;
    }
}

impl State {
    fn finish(&mut self, id: u32, completion: Completion) {
        self.client.forget(id);
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) {
            self.waiting.swap_remove(at).sender.tell(completion);
        }
    }

    fn skip(&mut self, text: &[u8], why: String, events: &mut Vec<EventKind>) {
        let text = shown(text);
        if self.skipped.len() >= KEPT_SKIPPED {
            self.skipped.pop_front();
        }
        self.skipped.push_back(text.clone());
        if text.get(..15).is_some_and(|start| start.eq_ignore_ascii_case("Content-Length:")) {
            self.hint = Some(
                "it frames messages with Content-Length headers; here a message is one JSON text a line".to_owned(),
            );
        }
        match self.budget.checked_sub(1) {
            Some(budget) => {
                self.budget = budget;
                events.push(EventKind::Skipped { text, why });
            }
            None => self.more_skipped += 1,
        }
    }

    /// Gives the refusal of a request, if the message was one.
    fn take_in(&mut self, received: &Received<'_>, events: &mut Vec<EventKind>) -> Option<Vec<u8>> {
        match received.incoming {
            Incoming::Reply(reply) => {
                let is_call = self.waiting.iter().any(|waiting| waiting.id == reply.id && waiting.is_call);
                self.finish(reply.id, Completion::Answer(Answer::of(reply.body, is_call)));
            }
            Incoming::Malformed(broken) => {
                let why = broken.to_string();
                self.hint = Some(format!("a damaged message came: {why}"));
                match broken.id {
                    Some(id) => self.finish(id, Completion::Answer(Answer::Bad(why.clone(), shown(broken.text)))),
                    None if self.budget == 0 => {
                        self.more_skipped += 1;
                        return None;
                    }
                    None => self.budget -= 1,
                }
                events.push(EventKind::Damaged { text: shown(broken.text), why });
            }
            Incoming::UnknownId(stray) => {
                if !stray.late {
                    self.hint = Some(format!("a reply came to an id that was never sent: {}", stray.id));
                }
                events.push(EventKind::UnknownId { id: shown(stray.id.as_bytes()), late: stray.late });
            }
            Incoming::ErrorWithoutId { error, only } => {
                let failure = RpcFailure::of(error);
                self.hint = Some(format!("an error came that names no request: {failure}"));
                events.push(EventKind::ErrorWithoutId(failure.clone()));
                if let Some(id) = only.filter(|_| !self.booting) {
                    self.finish(id, Completion::Answer(Answer::Error(failure, error.json().as_str().to_owned())));
                }
            }
            Incoming::Log(log) => {
                let level = log.level();
                let name = log
                    .level_name()
                    .map(|name| name.to_string())
                    .filter(|name| !name.is_empty() && name != level.name());
                events.push(EventKind::Log(Log {
                    level,
                    level_name: name,
                    message: log.message().to_string(),
                    data: log.data().map(value),
                }));
            }
            Incoming::Notification { method, params } => {
                events.push(EventKind::Notification { method: method.to_string(), params: value(params) });
            }
            Incoming::Request(request) => {
                events.push(EventKind::Refused { method: shown(request.method.to_string().as_bytes()) });
                let mut out = write::Writer::new(&mut []);
                client::write_refusal(&request, &mut out);
                let mut memory = vec![0; out.needed()];
                let mut out = write::Writer::new(&mut memory);
                client::write_refusal(&request, &mut out);
                return out.finish().ok().map(|line| line.to_vec());
            }
            Incoming::Echo => {
                self.hint = Some("a request came back: the line echoes".to_owned());
                events.push(EventKind::Echo);
            }
            Incoming::NonProtocol(noise) => self.skip(noise.text, noise.why.to_string(), events),
            _ => {}
        }
        None
    }
}

/// How much of a line was written.
enum Written {
    /// All of it, and it was flushed.
    Whole,
    /// So many bytes, or all of them without the flush.
    Part(usize),
}

/// Writes what goes without waiting.
fn at_once(writer: &mut OwnedMutexGuard<Writer>, line: &[u8], cx: &mut Context<'_>) -> io::Result<Written> {
    let mut writer = Pin::new(&mut ***writer);
    let sent = match writer.as_mut().poll_write(cx, line) {
        Poll::Ready(sent) => sent?,
        Poll::Pending => 0,
    };
    if sent < line.len() {
        return Ok(Written::Part(sent));
    }
    match writer.poll_flush(cx) {
        Poll::Ready(flushed) => flushed.map(|()| Written::Whole),
        Poll::Pending => Ok(Written::Part(sent)),
    }
}

/// Fails the requests that are due. One timer does for all of them, and is left as it is while every new request is due later
/// than an old one was: most are answered long before.
async fn watch_deadlines(shared: Arc<Shared>) {
    loop {
        let next = {
            let mut state = shared.lock();
            let now = Instant::now();
            while let Some(late) = state.waiting.iter().find(|waiting| waiting.due.is_some_and(|due| due <= now)) {
                let id = late.id;
                shared.is_late.store(true, Ordering::Relaxed);
                state.finish(id, Completion::Late);
            }
            state.next_due = state.waiting.iter().filter_map(|waiting| waiting.due).min();
            state.next_due
        };
        match next {
            Some(next) => drop(timeout_at(next, shared.sooner.notified()).await),
            None => shared.sooner.notified().await,
        }
    }
}

/// Writes the answers that wait, in order.
async fn write_refusals(shared: Arc<Shared>, mut refused: mpsc::UnboundedReceiver<Refusal>) {
    while let Some(Refusal { rest, writer }) = refused.recv().await {
        let mut writer = match writer {
            Some(writer) => writer,
            None => Arc::clone(&shared.writer).lock_owned().await,
        };
        let sent = async {
            writer.write_all(&rest).await?;
            writer.flush().await
        };
        let sent = sent.await;
        drop(writer);
        if sent.is_err() {
            refused.close();
            shared.refusals_waiting.send_replace(0);
            return;
        }
        shared.refusals_waiting.send_modify(|waiting| *waiting = waiting.saturating_sub(rest.len()));
    }
}

async fn read_output(shared: Arc<Shared>, mut reader: Reader, ends: LineEnds, child: Option<Child>) {
    // Pages that no line reaches are never touched.
    let mut memory = vec![0; shared.options.line_limit.saturating_add(1)];
    let mut framer = Framer::new(&mut memory).with_mode(ends);
    let limit = framer.limit() as u64;
    let (mut since_newline, mut told) = (0_u64, false);
    let mut memory = [0; FRAME];
    let mut frames = Suspicion { collector: Collector::new(&mut memory), bytes: 0 };
    let why = loop {
        let space = framer.space();
        match reader.read(space).await {
            Ok(0) => break "the connection was closed".to_owned(),
            Ok(read) => {
                shared.heard.store(true, Ordering::Relaxed);
                let chunk = space.get(..read).unwrap_or_default();
                if let (None, Some(hint)) = (&child, frames.look(chunk)) {
                    shared.lock().hint = Some(hint.to_owned());
                }
                let end = chunk.iter().rposition(|byte| *byte == b'\n' || (ends == LineEnds::Serial && *byte == b'\r'));
                match end {
                    Some(at) => since_newline = (read - at) as u64,
                    None => since_newline += read as u64,
                }
                framer.commit(read);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break format!("{error}"),
        }
        while let Some(frame) = framer.next() {
            shared.frame(frame, &mut told);
        }
        if since_newline > limit + SLACK && !told {
            told = true;
            // It may never end.
            shared.is_late.store(true, Ordering::Relaxed);
            shared.too_long(since_newline);
        }
    };
    framer.finish();
    while let Some(frame) = framer.next() {
        shared.frame(frame, &mut told);
    }
    shared.refusals_written().await;
    shared.output_read.send_replace(true);
    if let Some(child) = child {
        // Its end is told by who watches it, unless it does not end.
        if timeout(ENDING, child.ended()).await.is_err() {
            shared.end(End::Gone("it closed its standard output, and still runs".into()));
        }
    } else {
        let serial = matches!(ends, LineEnds::Serial);
        shared.end(End::Gone(if serial { format!("device gone: {why}") } else { why }));
    }
}

/// The longest frame that is recognised, and how much of what comes first is looked at for one, in bytes.
const FRAME: usize = 2048;
const LOOKED_AT: usize = 64 * 1024;

/// Looks whether a peer that should write lines writes the frames of the binary link.
struct Suspicion<'m> {
    collector: Collector<'m>,
    bytes: usize,
}

impl Suspicion<'_> {
    fn look(&mut self, chunk: &[u8]) -> Option<&'static str> {
        if self.bytes >= LOOKED_AT {
            return None;
        }
        self.bytes += chunk.len();
        let mut hint = None;
        for byte in chunk {
            match self.collector.push(*byte) {
                Some(Collected::Frame(_)) => {
                    return Some("it speaks the binary link: add the option ?link=cobs to the target");
                }
                // Text has no byte 0.
                Some(_) if *byte == 0 => {
                    hint = Some(
                        "the bytes received are not text: the speed may be wrong (?baud=), or it speaks the binary link (?link=cobs)",
                    );
                }
                _ => {}
            }
        }
        hint
    }
}

/// Drains standard error, whatever is written to it, and keeps the end of it.
async fn read_errors(shared: Arc<Shared>, mut stderr: Reader) {
    let mut chunk = vec![0; 8192];
    let mut line = Vec::new();
    loop {
        let read = match stderr.read(&mut chunk).await {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        for piece in chunk.get(..read).unwrap_or_default().split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            line.extend_from_slice(piece);
            if matches!(piece.last(), Some(b'\n' | b'\r')) || line.len() >= super::TEXT_LIMIT {
                shared.error_line(&line);
                line.clear();
            }
        }
        // A program that does nothing but print must not keep others from running.
        tokio::task::consume_budget().await;
    }
    shared.error_line(&line);
    shared.errors_read.send_replace(true);
}

impl Shared {
    fn error_line(&self, line: &[u8]) {
        let text = shown(line.trim_ascii_end());
        if text.is_empty() {
            return;
        }
        let mut state = self.lock();
        while state.stderr.len() >= self.options.stderr_lines.max(1) {
            state.stderr.pop_front();
        }
        state.stderr.push_back(text.clone());
        drop(state);
        self.tell(EventKind::Stderr(text));
    }
}

/// Ends the connection when the process has ended and its last lines are read, and ends the rest of its group.
async fn watch_child(shared: Arc<Shared>, child: Child) {
    let exit = child.ended().await;
    let mut output_read = shared.output_read.subscribe();
    let mut errors_read = shared.errors_read.subscribe();
    let read = async {
        let _ = output_read.wait_for(|read| *read).await;
        let _ = errors_read.wait_for(|read| *read).await;
    };
    let _ = timeout(LAST_LINES, pin!(read)).await;
    child.over();
    shared.end(End::Exited(exit));
}
