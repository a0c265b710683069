//! A connection at work: lines out, lines in, and what ends it.

mod raw;
mod receive;
mod refusals;
mod send;
mod streams;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use rigline::client::{self, ClientSession, Request};
use rigline::rpc;
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use self::raw::Raw;
pub(crate) use self::raw::RawLine;
use self::receive::SHOWN_SKIPPED;
use self::refusals::{Refusal, write_refusals};
use self::send::watch_deadlines;
use self::streams::{read_errors, read_output, watch_child};
use super::child::Child;
use super::error::{Details, HostError, ProcessExit, also_open};
use super::event::{Event, EventKind};
use super::manifest::Manifest;
use super::reading::Reading;
use super::result::OwnedReply;
use super::transport::{Control, RawConnection, Timed, TransportTraits, Writer};
use super::{Options, random};
use rigline_std::mutex::lock;

/// The time that a child has to end after it closed its output or input. After that, the closing is
/// itself reported as a fault.
const ENDING: Duration = Duration::from_millis(500);

pub(crate) struct Connection {
    shared: Arc<Shared>,
    child: Option<Child>,
    traits: TransportTraits,
    reading: Arc<Reading>,
    /// The tasks that read and watch. They end with the connection.
    tasks: Mutex<JoinSet<()>>,
}

struct Shared {
    options: Arc<Options>,
    name: Mutex<Arc<str>>,
    state: Mutex<State>,
    writer: Arc<AsyncMutex<Writer>>,
    control: Mutex<Option<Arc<dyn Control>>>,
    timed: Option<Arc<dyn Timed>>,
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
    /// Lines for a reader of their own.
    raw: Raw,
}

struct State {
    client: ClientSession,
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
    /// The peer may ask with `ping` whether this side is there, as MCP has it.
    answers_ping: bool,
}

/// A request that is out.
struct Waiting {
    id: u32,
    /// It is an `execute` of the host's own.
    is_call: bool,
    /// The method of the request, if it is none of gevals': to know it by if it comes back.
    method: Option<Box<str>>,
    /// When the request is given up, unless its sender sees to that.
    due: Option<Instant>,
    sender: ResponseSender,
}

/// The receiver of a request's outcome.
enum ResponseSender {
    One(oneshot::Sender<Completion>),
    /// The sender has several pending requests, and uses the first answer.
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

/// The outcome of a request.
#[derive(Debug, Clone)]
pub(crate) enum Completion {
    Answer(OwnedReply),
    /// The reply was longer than the limit. The number is its length in bytes.
    TooLong(u64),
    /// The request was not answered within its time limit.
    Late,
    End(End),
}

/// The end of a connection.
#[derive(Debug, Clone)]
pub(crate) enum End {
    Exited(ProcessExit),
    Gone(String),
    Cancelled,
    ShutDown,
}

/// Why a request has no completion.
#[derive(Debug)]
pub(crate) enum RequestError {
    Late,
    End(End),
    InputClosed(io::Error),
    TooManyCalls,
}

impl Connection {
    /// Begins to read from a wire.
    pub(crate) fn open(wire: RawConnection, name: &str, options: &Arc<Options>) -> Self {
        // Another session on a wire that outlives sessions may still be answered: a UART may be behind TCP.
        let base = if wire.traits.resend.is_some() { random() } else { 0 };
        let client = ClientSession::new(base);
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
            answers_ping: false,
        };
        let (refusals, refused) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            options: Arc::clone(options),
            name: Mutex::new(name.into()),
            state: Mutex::new(state),
            writer: Arc::new(AsyncMutex::new(wire.writer)),
            control: Mutex::new(wire.control),
            timed: wire.timed,
            output_read: watch::channel(false).0,
            errors_read: watch::channel(wire.stderr.is_none()).0,
            ended: watch::channel(false).0,
            heard: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            refusals,
            refusals_waiting: watch::channel(0).0,
            sooner: Notify::new(),
            raw: Raw::default(),
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

    pub(crate) fn child(&self) -> Option<&Child> {
        self.child.as_ref()
    }

    pub(crate) fn traits(&self) -> TransportTraits {
        self.traits
    }

    /// Whether other processes may write to it and read from it, too.
    pub(crate) fn is_shared(&self) -> bool {
        self.traits.shared
    }

    pub(crate) fn ended(&self) -> Option<End> {
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
    pub(crate) fn close(&self, end: End) {
        self.give_up(end, Child::kill);
    }

    /// The same, for a connection that nobody waits for: a child is asked to end before it is made to.
    pub(super) fn abandon(&self) {
        self.give_up(End::ShutDown, Child::abandon);
    }

    /// Fails every call that is out. The child goes on, and so does the reading.
    pub(super) fn cancel(&self) {
        self.shared.end(End::Cancelled);
    }

    fn give_up(&self, end: End, end_child: fn(&Child)) {
        self.shared.end(end);
        if let Some(child) = &self.child {
            end_child(child);
        }
        lock(&self.tasks).abort_all();
        self.reading.close();
        self.shared.release();
    }

    pub(crate) fn control(&self) -> Option<Arc<dyn Control>> {
        lock(&self.shared.control).clone()
    }

    /// No more requests: a child that waits for the end of its input sees it.
    pub(crate) async fn close_input(&self) {
        // A peer that reads nothing may keep a line from being written for ever, and with it the writer.
        let Ok(mut writer) = timeout(ENDING, self.shared.writer.lock()).await else { return };
        let _ = timeout(ENDING, writer.shutdown()).await;
        *writer = Box::new(tokio::io::sink());
    }

    /// Answers `ping`, which is MCP's, instead of refusing it as every other request of the peer's.
    pub(crate) fn answer_ping(&self) {
        self.shared.lock().answers_ping = true;
    }

    /// Opens a session of gevals.
    pub(super) async fn initialize(&self, request: &Request<'_>, deadline: Instant) -> Result<Manifest, HostError> {
        let result = self.begin(request, deadline).await?;
        self.manifest(&result)
    }

    /// Reads the manifest that the first request was answered with. The extension has its name from then on.
    pub(crate) fn manifest(&self, text: &str) -> Result<Manifest, HostError> {
        let manifest = Manifest::read(text).map_err(|why| self.bad_reply(why))?;
        if !manifest.name.is_empty() {
            *lock(&self.shared.name) = manifest.name.as_str().into();
        }
        Ok(manifest)
    }

    /// Sends the first request of a session, again if it may have been lost; returns the text of its result.
    pub(crate) async fn begin(&self, request: &Request<'_>, deadline: Instant) -> Result<String, HostError> {
        let after = self.shared.options.start_timeout;
        let (sender, mut completions) = mpsc::unbounded_channel();
        let mut out = VecDeque::new();
        let mut may_be_behind_half_a_line = self.traits.resend.is_some();
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
            let (id, line) = started.map_err(|error| self.error(error, "", after))?;
            out.push_back(id);
            if let Err(error) = self.shared.send(line, deadline).await {
                // Its last words may say more than the broken pipe.
                let error = self.after_all(error).await;
                return Err(self.start_error(error, after));
            }
            let next = self.traits.resend.map_or(deadline, |pause| deadline.min(Instant::now() + pause));
            let result = match timeout_at(next, completions.recv()).await {
                Ok(Some(Completion::Answer(OwnedReply::Result(text)))) => Ok(text),
                Ok(Some(Completion::Answer(OwnedReply::Error(error, _)))) => {
                    // A client before has left half a line, which this one has ended.
                    if may_be_behind_half_a_line && error.code == Some(rpc::PARSE_ERROR) {
                        may_be_behind_half_a_line = false;
                        continue;
                    }
                    Err(HostError::Refused { extension: self.name(), error })
                }
                // Damage on a wire that is just being opened: the next try may get through.
                Ok(Some(Completion::Answer(OwnedReply::Bad(..)) | Completion::TooLong(_))) if self.traits.shared => {
                    continue;
                }
                Ok(Some(completion)) => Err(self.completion_error(completion, after)),
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
        self.request_as(request, size, deadline, |_| {}).await
    }

    /// The same. `begun` gets the id of the request before it is sent, to cancel it by.
    pub(crate) async fn request_as(
        &self,
        request: &Request<'_>,
        size: usize,
        deadline: Instant,
        begun: impl FnOnce(u32),
    ) -> Result<Completion, RequestError> {
        let (sender, completion) = oneshot::channel();
        let (id, line) = self.shared.begin(request, size, b"", Some(deadline), ResponseSender::One(sender))?;
        begun(id);
        let forget = Forget(&self.shared, id);
        if let Err(error) = self.shared.send(line, deadline).await {
            return Err(self.after_all(error).await);
        }
        let completion = self.reading.until(completion).await;
        // The request was forgotten when its completion was sent.
        std::mem::forget(forget);
        match completion {
            Ok(Completion::End(end)) => Err(RequestError::End(end)),
            Ok(Completion::Late) => Err(RequestError::Late),
            Ok(completion) => Ok(completion),
            Err(_) => Err(RequestError::End(End::Gone("the connection is closed".into()))),
        }
    }

    /// Sends a notification, whole.
    pub(crate) async fn notify(&self, line: Vec<u8>, deadline: Instant) -> Result<(), RequestError> {
        match self.shared.send(line, deadline).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.after_all(error).await),
        }
    }

    /// A broken pipe is most often the first sign of an end: the end itself says more.
    async fn after_all(&self, error: RequestError) -> RequestError {
        if let RequestError::InputClosed(_) = error {
            let _ = timeout(ENDING, self.wait_for_end()).await;
            if let Some(end) = self.ended() {
                return RequestError::End(end);
            }
        }
        error
    }

    pub(crate) fn name(&self) -> String {
        // The peer says its name, and errors are printed.
        crate::terminal::one_line(&lock(&self.shared.name)).into_owned()
    }

    pub(super) fn tell(&self, kind: EventKind) {
        self.shared.tell(kind);
    }

    #[allow(clippy::unnecessary_box_returns, reason = "every error has it boxed")]
    pub(super) fn details(&self, hint: Option<String>) -> Box<Details> {
        // Another process may have got the reply.
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

    /// A reply that cannot be used.
    pub(crate) fn bad_reply(&self, why: impl Into<String>) -> HostError {
        HostError::BadReply { extension: self.name(), why: why.into(), details: self.details(None) }
    }

    fn start_error(&self, error: RequestError, after: Duration) -> HostError {
        match error {
            RequestError::Late => {
                let silent = !self.shared.heard.load(Ordering::Relaxed);
                let hint = silent.then(|| "it has written nothing at all".to_owned());
                let hint = self.shared.lock().hint.clone().or(hint);
                HostError::StartTimeout { extension: self.name(), after, details: self.details(hint) }
            }
            error => self.error(error, "initialize", after),
        }
    }

    /// The error of a `request` without a completion.
    pub(crate) fn error(&self, error: RequestError, request: &str, after: Duration) -> HostError {
        let extension = self.name();
        match error {
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
    pub(crate) fn completion_error(&self, completion: Completion, after: Duration) -> HostError {
        let extension = self.name();
        match completion {
            Completion::Answer(OwnedReply::Bad(why, line)) => {
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
        self.abandon();
    }
}

/// Forgets a request when it is dropped: it was answered, or its caller gave up.
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
        self.raw.end();
    }

    /// Releases a port at once, so that it can be opened again, and the kernel can assign its name to the next device.
    fn release(&self) {
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = Box::new(tokio::io::sink());
        } else if let Ok(runtime) = Handle::try_current() {
            // A task is writing, and will soon see that the device is gone.
            let writer = Arc::clone(&self.writer);
            runtime.spawn(async move { *writer.lock().await = Box::new(tokio::io::sink()) });
        }
        if let Some(control) = lock(&self.control).take() {
            let _ = control.discard();
        }
    }
}
