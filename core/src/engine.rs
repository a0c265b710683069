//! The engine: bytes in, bytes out, and calls that its caller runs. It does no I/O and knows no time. Blocking loops, async
//! loops and a browser are thin drivers around it.

use core::fmt;

use crate::call::{Call, CallContext, Config, Outcome, Value};
use crate::context::ReplyBuffer;
use crate::definition::{Action, Busy, CallAction, Facts, Nanos, Protocol, Respond};
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::frame::{Framer, LineEnds, Tail, Taken, TooLong};
use crate::json::check::{self, NO_SPANS, Parts, SLOTS, Span, Spans, SyntaxError};
use crate::json::view::Json;
use crate::json::write::Writer;
use crate::level::Level;
use crate::manifest::Manifest;
use crate::phrases::Closing;
use crate::protocol;
use crate::received::{Envelope, Received, Refusal};
use crate::reply::{self, About, Reply};
use crate::rpc;
use crate::service::{JobRun, Service};

/// The memory of an engine. It is the caller's, is never asked for more, and each part has a name.
#[derive(Debug)]
pub struct Memory<'m> {
    /// Lines as they come in: at least one byte. A line may be one byte shorter than this, its end apart; a longer one is
    /// answered with an error that names the limit.
    pub request: &'m mut [u8],
    /// The reply as it grows: at least [`LEAST_REPLY`] bytes. A reply may be one byte shorter than this; in place of a
    /// longer one goes -32603 with the size it needs.
    pub reply: &'m mut [u8],
}

/// The least size of [`Memory::reply`], in bytes: an error reply to a request with the longest id.
pub const LEAST_REPLY: usize = rpc::ERROR_ROOM + rpc::MAX_ID;

/// A region of [`Memory`] is too small to serve anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TooSmall {
    /// The request region is empty: nothing could be read into it.
    Request,
    /// The list of protocols is empty: nothing could be answered.
    Protocols,
    /// The reply region is below [`LEAST_REPLY`].
    Reply {
        /// Its size, in bytes.
        size: usize,
    },
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => f.write_str("the request region is empty"),
            Self::Protocols => f.write_str("the list of protocols is empty"),
            Self::Reply { size } => {
                write!(f, "a reply region of {size} bytes is below the least size of {LEAST_REPLY}")
            }
        }
    }
}

impl core::error::Error for TooSmall {}

/// Who may start a session, where several connections lead to one extension.
///
/// It is asked about `initialize` only. A request in one-shot use, and any call, is the extension's to refuse.
pub trait Gate {
    /// A host asks to start a session.
    ///
    /// # Errors
    /// The reason why it may not. The host gets it as the error of its `initialize`.
    fn open(&self) -> Result<(), Failure>;

    /// The session was shut down, or did not start after all. The loss of a connection is known to the driver's caller.
    fn close(&self);
}

/// A protocol engine for one connection at a time.
///
/// ```
/// use rigline::engine::{Engine, Memory, Step};
/// use rigline::{Manifest, Operation, Schema};
///
/// const MANIFEST: Manifest = Manifest::new("greeter", "1.0.0").operations(&[Operation::new("greet", Schema::OBJECT)]);
/// let (mut request, mut reply) = ([0; 256], [0; 600]);
/// let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request, reply: &mut reply })?;
///
/// let line = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"shutdown\"}\n";
/// engine.space()[..line.len()].copy_from_slice(line);
/// engine.commit(line.len());
/// assert!(matches!(engine.step(), Step::Write(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n")));
/// assert!(matches!(engine.step(), Step::Shutdown));
/// # Ok::<(), rigline::engine::TooSmall>(())
/// ```
pub struct Engine<'m> {
    settings: Settings<'m>,
    framer: Framer<'m>,
    memory: &'m mut [u8],
    reply: Reply,
    state: State,
    session: Session,
    batch: Option<Batch>,
    finished: bool,
    /// The protocol of the last message; what cannot be read is answered in it.
    protocol: &'static Protocol,
    /// What was learnt from lines that wait their turn or have been answered already.
    ahead: Ahead,
    gate: Option<&'m dyn Gate>,
    /// The least level of logs that the connection's peer wants.
    least_log: Level,
    /// What runs once its acknowledgement is out.
    deferred: Option<Running>,
    /// Where the members of the message in hand are.
    spans: Spans,
}

/// What does not change while an engine runs.
struct Settings<'m> {
    manifest: &'static Manifest,
    /// The protocols, in the order in which they claim messages.
    protocols: &'m [&'static Protocol],
    /// Whether every message is taken as one of the protocol.
    pinned: bool,
    service: Option<&'m dyn Service>,
    /// The longest line that is accepted, and the longest that is sent to hosts that read lines of a limited length, in bytes
    /// without their newlines.
    limits: (usize, usize),
}

/// What was learnt from lines that were inspected before their turn.
struct Ahead {
    /// The protocol of the last of them.
    protocol: &'static Protocol,
    /// The call in hand was cancelled by its caller, who gets no reply.
    cancelled: bool,
}

/// What is to be done next.
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and no heap to put it on")]
pub enum Step<'s> {
    /// Read into [`Engine::space`] and [`Engine::commit`], or [`Engine::finish`] at end of input.
    Read,
    /// Send these bytes, one whole line, then go on.
    Write(&'s [u8]),
    /// Run this, then [`Engine::complete`].
    Run(Run<'s>),
    /// The session was shut down, and the acknowledgement, where there is one to give, is out. A program on stdio exits now; on a wire, go on.
    Shutdown,
    /// End of input was reached, and all that came before it is answered.
    End,
}

/// A [`Step`] without what is in it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next {
    Read,
    /// The reply region, up to here.
    Write(usize),
    Run,
    Shutdown,
    End,
}

/// Something to run, in parts that can be used side by side.
#[derive(Debug)]
pub struct Run<'s> {
    /// What is to be run.
    pub work: Work<'s>,
    /// The reply's memory, for [`Context::new`](crate::Context::new).
    pub reply: ReplyBuffer<'s>,
    /// The rest of the connection: what comes in while this runs.
    pub background: Background<'s>,
}

/// What is to be run.
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and no heap to put it on")]
pub enum Work<'s> {
    /// [`Extension::call`](crate::Extension::call).
    Call(Call<'s>),
    /// [`Extension::configure`](crate::Extension::configure).
    Configure(Config<'s>),
    /// [`Extension::on_event`](crate::Extension::on_event).
    Event(Event<'s>),
    /// [`Extension::run_job`](crate::Extension::run_job).
    Job(JobRun<'s>),
}

impl Work<'_> {
    /// The limit on the work's time, in nanoseconds, if the host sets one.
    pub fn timeout_nanos(&self) -> Option<u64> {
        match self {
            Self::Call(call) => call.context.timeout_nanos,
            Self::Configure(_) | Self::Event(_) | Self::Job(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    /// [`Step::Write`] was handed out.
    Writing,
    Running(Running),
    /// A job has its turn.
    Job,
    /// What ran has ended, with this.
    Completed(Done),
}

#[derive(Debug, Clone, Copy)]
struct Running {
    kind: Kind,
    /// What the extension gets: arguments, a configuration or an event.
    value: Span,
    /// Where the message is in its line.
    message: Span,
    id: Span,
    timeout: Option<Nanos>,
}

/// What runs, and how it is answered.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Call {
        index: usize,
        /// The value is an object; if not, an empty object takes its place.
        has_args: bool,
    },
    Configure {
        answer: Respond,
    },
    Event {
        answer: Respond,
    },
}

/// A session runs from its first request to `shutdown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    /// No `initialize` was seen: one-shot use.
    Fresh,
    Initialized,
    /// `shutdown` was taken; its acknowledgement is not out yet.
    ShuttingDown {
        /// What is shut down began with `initialize`.
        initialized: bool,
    },
    Ended,
}

impl Session {
    fn is_shutting_down(self) -> bool {
        matches!(self, Self::ShuttingDown { .. })
    }
}

#[derive(Debug, Clone, Copy)]
struct Batch {
    /// Behind the last member that was looked at, in the line.
    next: usize,
    /// Behind the replies so far, in the reply region.
    end: usize,
    /// Bytes that are kept for the replies to members that were not looked at yet.
    reserve: usize,
}

/// What came of a message.
#[derive(Debug, Clone, Copy)]
enum Done {
    Nothing,
    /// A reply is in the reply region, up to here.
    Reply(usize),
    Run,
}

impl fmt::Debug for Engine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("protocol", &self.protocol)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl<'m> Engine<'m> {
    /// An engine for an extension with this manifest, which speaks [all protocols](protocol::ALL).
    pub fn new(manifest: &'static Manifest, memory: Memory<'m>) -> Result<Self, TooSmall> {
        Self::with_protocols(manifest, memory, protocol::ALL)
    }

    /// An engine that speaks these protocols; what is not listed is not linked. Each message is of the first protocol in the
    /// list whose marker it has; see [`Protocol::recognise`] for those that share one. A message without a marker is taken as
    /// one of the protocol of the message before, and of the first in the list at the start of a connection.
    // In line it would clear its memory by a function for the alignment that its caller happens to have.
    #[inline(never)]
    pub fn with_protocols(
        manifest: &'static Manifest,
        memory: Memory<'m>,
        protocols: &'m [&'static Protocol],
    ) -> Result<Self, TooSmall> {
        if memory.request.is_empty() {
            return Err(TooSmall::Request);
        }
        if memory.reply.len() < LEAST_REPLY {
            return Err(TooSmall::Reply { size: memory.reply.len() });
        }
        let Some(protocol) = protocols.first().copied() else { return Err(TooSmall::Protocols) };
        let framer = Framer::new(memory.request);
        let limits = (framer.limit(), memory.reply.len().saturating_sub(1));
        Ok(Self {
            settings: Settings { manifest, protocols, pinned: false, service: None, limits },
            framer,
            memory: memory.reply,
            reply: Reply::new(protocol),
            state: State::Idle,
            session: Session::Fresh,
            batch: None,
            finished: false,
            protocol,
            ahead: Ahead { protocol, cancelled: false },
            gate: None,
            least_log: Level::Debug,
            spans: NO_SPANS,
            deferred: None,
        })
    }

    /// With a service that answers its requests beside the extension, also while a call is out.
    #[must_use]
    pub fn with_service(self, service: &'m dyn Service) -> Self {
        Self { settings: Settings { service: Some(service), ..self.settings }, ..self }
    }

    /// For one protocol only: every message is taken as one of it.
    #[must_use]
    pub fn with_protocol(self, protocol: &'static Protocol) -> Self {
        let ahead = Ahead { protocol, cancelled: false };
        Self { protocol, ahead, settings: Settings { pinned: true, ..self.settings }, ..self }
    }

    /// With a limit on the lines that are sent in JSON-RPC, in bytes without the newline, below that of the reply region:
    /// real gevals hosts read lines of 65,535 bytes, and other protocols have no such limit. It is at least that of
    /// [`LEAST_REPLY`].
    #[must_use]
    pub fn with_json_rpc_limit(self, bytes: usize) -> Self {
        let (request, reply) = self.settings.limits;
        let limits = (request, reply.min(bytes.max(LEAST_REPLY - 1)));
        Self { settings: Settings { limits, ..self.settings }, ..self }
    }

    /// With other line ends: on a serial line, a lone CR may end a line too.
    #[must_use]
    pub fn with_line_ends(self, ends: LineEnds) -> Self {
        Self { framer: self.framer.with_mode(ends), ..self }
    }

    /// With a policy that decides who may start a session, where several connections lead to one extension.
    #[must_use]
    pub fn with_gate(self, gate: &'m dyn Gate) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// Room to read into. It is empty only while lines wait to be stepped through.
    pub fn space(&mut self) -> &mut [u8] {
        if self.holds_line() { self.framer.held().1.into_space() } else { self.framer.space() }
    }

    /// Takes the first `count` bytes of [`space`](Self::space) as read.
    pub fn commit(&mut self, count: usize) {
        if self.holds_line() {
            self.framer.held().1.commit(count);
        } else {
            self.framer.commit(count);
        }
    }

    /// Whether the line in hand is needed again: a batch's until its last member, an acknowledged event's until it runs.
    fn holds_line(&self) -> bool {
        self.deferred.is_some() || self.batch.is_some()
    }

    /// End of input: a last line without a newline counts, and [`Step::End`] will come.
    pub fn finish(&mut self) {
        self.framer.finish();
        self.finished = true;
    }

    /// The connection is gone, or a new one is here: forgets a partial line and everything that waits.
    ///
    /// Returns whether a session was open that had begun with `initialize`, so that
    /// [`safe_state`](crate::Extension::safe_state) must run. The configuration is the extension's and survives.
    pub fn disconnect(&mut self) -> bool {
        let open = self.is_session_open();
        self.framer.reset();
        self.state = State::Idle;
        self.session = Session::Fresh;
        self.batch = None;
        self.finished = false;
        if !self.settings.pinned {
            self.protocol = self.settings.protocols.first().copied().unwrap_or(self.protocol);
            self.ahead.protocol = self.protocol;
        }
        self.deferred = None;
        self.least_log = Level::Debug;
        self.ahead.cancelled = false;
        if let Some(service) = self.settings.service {
            service.disconnected();
        }
        open
    }

    /// Whether a session is open that began with `initialize`. One is until the acknowledgement of its `shutdown` is out.
    pub fn is_session_open(&self) -> bool {
        matches!(self.session, Session::Initialized | Session::ShuttingDown { initialized: true })
    }

    /// Whether members of a batch are still to be answered.
    #[cfg(feature = "async")]
    pub(crate) fn is_in_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// The longest line that is accepted and the longest that is sent in JSON-RPC, in bytes without their ends.
    pub fn limits(&self) -> (usize, usize) {
        self.settings.limits
    }

    /// Advances the state machine until it needs the caller.
    ///
    /// What [`Step::Write`] gave out counts as written; what [`Step::Run`] gave out and was not completed, as cancelled.
    pub fn step(&mut self) -> Step<'_> {
        match self.next() {
            Next::Read => Step::Read,
            Next::Write(end) => Step::Write(self.line(end)),
            Next::Run => match self.run() {
                Some(run) => Step::Run(run),
                None => Step::Read,
            },
            Next::Shutdown => Step::Shutdown,
            Next::End => Step::End,
        }
    }

    /// [`step`](Self::step) for the drivers in this crate: only the kind of the step. What a [`Run`] is made of is large, and made by
    /// [`run`](Self::run) where it stays.
    pub(crate) fn next(&mut self) -> Next {
        if let State::Running(_) = self.state {
            self.conclude(&Err(Failure::CANCELLED));
        }
        let mut done = match core::mem::replace(&mut self.state, State::Idle) {
            State::Completed(done) => Some(done),
            State::Writing if self.deferred.is_some() => {
                self.state = self.deferred.take().map_or(State::Idle, State::Running);
                self.reply.silent(0, self.protocol);
                Some(Done::Run)
            }
            State::Writing if self.session.is_shutting_down() => {
                self.session = Session::Ended;
                return Next::Shutdown;
            }
            _ => None,
        };
        loop {
            let next = match done.take() {
                Some(done) if self.batch.is_some() => Some(self.end_member(done)),
                Some(done) => Some(done),
                None if self.batch.is_some() => Some(self.next_member()),
                // A job that was started has its turn before what came after it.
                None if self.settings.service.is_some_and(|service| service.next_job().is_some()) => {
                    self.state = State::Job;
                    return Next::Run;
                }
                None => self.next_line(),
            };
            match next {
                // `shutdown` came as a notification: there is no acknowledgement to wait for.
                Some(Done::Nothing) if self.batch.is_none() && self.session.is_shutting_down() => {
                    self.session = Session::Ended;
                    return Next::Shutdown;
                }
                None if self.finished => return Next::End,
                None => return Next::Read,
                Some(Done::Nothing) => {}
                Some(Done::Run) => return Next::Run,
                Some(Done::Reply(end)) => {
                    self.state = State::Writing;
                    return Next::Write(end);
                }
            }
        }
    }

    /// The line that ends at the position in [`Next::Write`].
    pub(crate) fn line(&mut self, end: usize) -> &[u8] {
        rpc::end_line(self.memory, end)
    }

    fn run_job(&mut self) -> Option<Run<'_>> {
        // Its line is done with.
        let _ = self.framer.space();
        self.reply.silent(0, self.json_rpc().unwrap_or(self.protocol));
        let (_, tail) = self.framer.held();
        let service = self.settings.service?;
        let job = service.next_job()?;
        self.state = State::Completed(Done::Nothing);
        let least_log = self.least_log;
        let reply = ReplyBuffer { memory: &mut *self.memory, reply: &mut self.reply, received: None, least_log };
        let background = Background { tail, ahead: &mut self.ahead, settings: &self.settings, id: b"" };
        Some(Run { work: Work::Job(JobRun { service, job }), reply, background })
    }

    /// The protocol of the list that speaks JSON-RPC, the last one spoken if it does.
    fn json_rpc(&self) -> Option<&'static Protocol> {
        core::iter::once(self.protocol)
            .chain(self.settings.protocols.iter().copied())
            .find(|protocol| protocol.is_json_rpc)
    }

    /// Takes what came of [`Step::Run`].
    pub fn complete(&mut self, result: Result<Outcome, Failure>) {
        self.conclude(&result);
    }

    /// [`complete`](Self::complete) without a copy of what is large.
    pub(crate) fn conclude(&mut self, result: &Result<Outcome, Failure>) {
        let State::Running(Running { kind, message, .. }) = self.state else { return };
        if core::mem::take(&mut self.ahead.cancelled) {
            self.reply.silent(0, self.protocol);
        }
        let end = match (kind, result) {
            (Kind::Configure { answer }, Ok(_)) => self.initialized(message, answer),
            (Kind::Event { answer }, _) => self.answer(message, Text::Answer(answer)),
            // The result of `initialize` is a manifest and nothing else.
            (Kind::Configure { .. }, Err(failure)) => {
                self.not_initialized();
                self.answer(message, Text::Failure(failure))
            }
            (Kind::Call { .. }, _) => {
                let about = about(self.framer.line(), message, &self.spans, self.settings.manifest);
                self.reply.finish(self.memory, result, &about)
            }
        };
        self.state = State::Completed(if self.reply.is_silent() { Done::Nothing } else { Done::Reply(end) });
    }

    /// Writes an answer to the message in hand.
    #[inline(never)]
    fn answer(&mut self, message: Span, text: Text<'_>) -> usize {
        let facts = self.facts();
        let protocol = self.protocol;
        let about = about(self.framer.line(), message, &self.spans, self.settings.manifest);
        if let Text::Failure(failure) = text {
            return self.reply.refuse(self.memory, failure, &about);
        }
        let service = self.settings.service;
        let Some(received) = &about.received else { return 0 };
        self.reply.answer(self.memory, &about, &mut |out| match text {
            Text::Answer(write) => write(out, received, &facts),
            Text::Refusal(refusal) => (protocol.refuse)(out, received, refusal, &facts),
            Text::Service | Text::Failure(_) => {
                if let Some(service) = service
                    && let Some((method, params)) = rpc::method_and_params(received)
                {
                    service.answer(method, params, out);
                }
            }
        })
    }

    fn facts(&self) -> Facts<'static> {
        let is_closed = self.session.is_shutting_down() || self.session == Session::Ended;
        Facts { manifest: self.settings.manifest, limits: self.settings.limits, is_closed }
    }

    fn initialized(&mut self, message: Span, answer: Respond) -> usize {
        let end = self.answer(message, Text::Answer(answer));
        if self.reply.is_error() {
            self.not_initialized();
        } else {
            self.session = Session::Initialized;
        }
        end
    }

    /// A session did not start. One that had started before goes on.
    fn not_initialized(&self) {
        if let Some(gate) = self.gate
            && self.session != Session::Initialized
        {
            gate.close();
        }
    }

    fn next_line(&mut self) -> Option<Done> {
        // The protocol of a line counts for the lines after it, and for none before it: lines that were kept
        // come before the line that was inspected last.
        let was_kept = self.framer.has_kept();
        if !was_kept {
            self.protocol = self.ahead.protocol;
        }
        let done = self.take_line();
        if !was_kept {
            self.ahead.protocol = self.protocol;
        }
        done
    }

    fn take_line(&mut self) -> Option<Done> {
        // Most lines are one object and were read to their end: its check finds that end too.
        if let Some(lines) = self.framer.unframed() {
            self.spans = NO_SPANS;
            if let Some((whole, length)) = check::scan_line(lines, &self.protocol.members, &mut self.spans) {
                self.framer.take_first(length, whole);
                return Some(self.message(0, length, true));
            }
        }
        match self.framer.take()? {
            Taken::TooLong(fault) => {
                let protocol = self.protocol;
                Some(Done::Reply(too_long(&mut self.writer_for_line(), protocol, fault)))
            }
            Taken::Line(line, _) => {
                let length = line.len();
                // A blank line is a request that was cancelled while it waited its turn.
                let Some(bracket) = line.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r')) else {
                    return Some(Done::Nothing);
                };
                let is_batch = line.get(bracket) == Some(&b'[') && (!self.settings.pinned || self.protocol.is_json_rpc);
                Some(if is_batch { self.begin_batch(bracket) } else { self.message(0, length, false) })
            }
        }
    }

    /// A writer for a separate line.
    fn writer_for_line(&mut self) -> Writer<'_> {
        let limit = self.memory.len().saturating_sub(1);
        Writer::new(self.memory.get_mut(..limit).unwrap_or_default())
    }

    /// JSON-RPC 2.0 §6. An array none of whose members has the marker of JSON-RPC is taken as the last protocol seen, as all
    /// else that has none.
    fn begin_batch(&mut self, bracket: usize) -> Done {
        let line = self.framer.line();
        let (length, protocol) = (line.len(), self.protocol);
        if let Err(error) = check::check(line) {
            return Done::Reply(parse_error(&mut self.writer_for_line(), protocol, error));
        }
        if !protocol.is_json_rpc {
            match self.json_rpc().filter(|_| is_json_rpc(line)) {
                Some(json_rpc) => self.protocol = json_rpc,
                None => return self.message(0, length, false),
            }
        }
        let line = self.framer.line();
        let (mut members, mut reserve) = (0, 0);
        for member in Json::of_checked(line).elements() {
            members += 1;
            reserve += rpc::reserve_for(member.as_bytes(), &mut self.spans);
        }
        let refusal = match members {
            0 => "an empty batch",
            1..=rpc::MAX_BATCH if reserve + 2 <= self.limits().1 => {
                self.batch = Some(Batch { next: bracket + 1, end: 0, reserve });
                return Done::Nothing;
            }
            1..=rpc::MAX_BATCH => "a batch whose replies may not fit the reply buffer",
            _ => "a batch of more than 64 members",
        };
        Done::Reply(rpc::invalid_request(&mut self.writer_for_line(), b"", refusal))
    }

    fn next_member(&mut self) -> Done {
        let Some(mut batch) = self.batch else { return Done::Nothing };
        let line = self.framer.line();
        let Some((start, end)) = Json::next_element(line, batch.next) else {
            self.batch = None;
            if batch.end == 0 {
                // All were notifications: not even an empty array (§6).
                return Done::Nothing;
            }
            if let Some(place) = self.memory.get_mut(batch.end) {
                *place = b']';
            }
            return Done::Reply(batch.end + 1);
        };
        batch.next = end;
        let text = line.get(start..end).unwrap_or_default();
        batch.reserve = batch.reserve.saturating_sub(rpc::reserve_for(text, &mut self.spans));
        self.batch = Some(batch);
        match self.message(start, end, false) {
            Done::Run => Done::Run,
            done => self.end_member(done),
        }
    }

    /// Records a member's reply. There is no line to send yet.
    fn end_member(&mut self, done: Done) -> Done {
        if let (Some(batch), Done::Reply(end)) = (&mut self.batch, done) {
            let separator = if batch.end == 0 { b'[' } else { b',' };
            if let Some(place) = self.memory.get_mut(batch.end) {
                *place = separator;
            }
            batch.end = end;
        }
        Done::Nothing
    }

    /// Takes the message at `start..end` of the line that is held. `is_scanned` says that its members were found already, by the
    /// table of the protocol of the message before.
    #[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
    #[allow(clippy::too_many_lines, reason = "an arm for each kind of action")]
    fn message(&mut self, start: usize, end: usize, is_scanned: bool) -> Done {
        let message = Span { start: start as u32, end: end as u32 };
        let in_batch = self.batch.is_some();
        let text = self.framer.line().get(start..end).unwrap_or_default();
        let (protocols, pinned) = (self.settings.protocols, self.settings.pinned);
        let scanned = if is_scanned { Ok(()) } else { scan(text, self.protocol, &mut self.spans) };
        match scanned.and_then(|()| classify(text, &mut self.spans, self.protocol, protocols, pinned, in_batch)) {
            Err(error) => {
                let protocol = self.protocol;
                return Done::Reply(parse_error(&mut self.writer_for_line(), protocol, error));
            }
            Ok(Detected::Answer(protocol)) => {
                self.protocol = protocol;
                return Done::Nothing;
            }
            Ok(Detected::Message(protocol)) => self.protocol = protocol,
        }
        let protocol = self.protocol;
        let facts = self.facts();
        // In a batch a reply comes after a bracket or comma, and before a closing bracket and the end of the line.
        let most = if protocol.has_line_limit { facts.limits.1 } else { self.memory.len().saturating_sub(1) };
        let (reply_start, limit) = match self.batch {
            Some(batch) => (batch.end + 1, most.saturating_sub(1 + batch.reserve)),
            None => (0, most),
        };
        let text = self.framer.line().get(start..end).unwrap_or_default();
        let received = Received::whole(text, &self.spans);
        let id = match (protocol.envelope)(&received) {
            Envelope::Reply => return Done::Nothing,
            Envelope::Request { id } => {
                self.reply.begin(self.memory, reply_start, limit, protocol, received.of(id));
                id
            }
            Envelope::Notification => {
                self.reply.silent(reply_start, protocol);
                Span::default()
            }
            Envelope::Invalid { text, id } => {
                let mut out = reply::writer(self.memory, reply_start, limit);
                return Done::Reply(rpc::invalid_request(&mut out, received.of(id), text));
            }
        };
        if protocol.is_json_rpc
            && let Some(service) = self.settings.service
            && received.string(rpc::METHOD).is_some_and(|method| service.owns(method))
        {
            let end = self.answer(message, Text::Service);
            return self.replied(end);
        }
        let (kind, value, timeout) = match (protocol.read)(&received, &facts) {
            Ok(Action::Call(CallAction { index, args, has_args, timeout })) => {
                (Kind::Call { index, has_args }, args, timeout)
            }
            Ok(Action::OpenSession { config, answer }) if received.of(config).first() == Some(&b'{') => {
                if let Some(end) = self.refused_by_gate(message) {
                    return self.replied(end);
                }
                (Kind::Configure { answer }, config, None)
            }
            Ok(Action::AckThenRun { event, answer }) => (Kind::Event { answer }, event, None),
            action => {
                let end = self.answer_action(message, action);
                return self.replied(end);
            }
        };
        let running = Running { kind, value, message, id, timeout };
        if let Kind::Event { answer } = kind
            && !in_batch
            && !self.reply.is_silent()
        {
            // The line with its acknowledgement goes first.
            self.deferred = Some(running);
            let end = self.answer(message, Text::Answer(answer));
            return self.replied(end);
        }
        self.state = State::Running(running);
        Done::Run
    }

    /// Answers a request that runs nothing.
    #[inline(never)]
    fn answer_action(&mut self, message: Span, action: Result<Action, &'static Refusal>) -> usize {
        match action {
            Err(refusal) => self.answer(message, Text::Refusal(refusal)),
            Ok(Action::Answer(answer)) => self.answer(message, Text::Answer(answer)),
            Ok(Action::OpenSession { answer, .. }) => match self.refused_by_gate(message) {
                Some(end) => end,
                None => self.initialized(message, answer),
            },
            Ok(Action::LimitLogs { least, answer }) => {
                self.least_log = least;
                self.answer(message, Text::Answer(answer))
            }
            Ok(Action::CloseSession { answer }) => {
                self.session = Session::ShuttingDown { initialized: self.session == Session::Initialized };
                if let Some(gate) = self.gate {
                    gate.close();
                }
                self.answer(message, Text::Answer(answer))
            }
            Ok(_) => {
                self.reply.silent(0, self.protocol);
                0
            }
        }
    }

    /// Where the reply ends if no session may start.
    #[inline(never)]
    fn refused_by_gate(&mut self, message: Span) -> Option<usize> {
        let failure = self.gate?.open().err()?;
        Some(self.answer(message, Text::Failure(&failure)))
    }

    fn replied(&self, end: usize) -> Done {
        if self.reply.is_silent() { Done::Nothing } else { Done::Reply(end) }
    }

    /// What [`State::Running`] says, as parts of the memory.
    pub(crate) fn run(&mut self) -> Option<Run<'_>> {
        if let State::Job = self.state {
            return self.run_job();
        }
        let State::Running(Running { kind, value, message, id, timeout }) = self.state else { return None };
        let protocol = self.protocol;
        let (line, tail) = self.framer.held();
        let text = line.get_mut(message.start as usize..message.end as usize)?;
        let value = if let Kind::Call { has_args: false, .. } = kind { empty_object(text, value)? } else { value };
        let (value, parts) = Parts::take(text, value)?;
        let received = Received { parts, spans: &self.spans };
        let work = match kind {
            Kind::Call { index, .. } => Work::Call(Call {
                index,
                operation: self.settings.manifest.operations.get(index)?,
                args: Value { text: value, numeric_strings: protocol.numeric_strings },
                context: CallContext { timeout_nanos: timeout.map(|Nanos(nanos)| nanos), protocol, received },
            }),
            Kind::Event { .. } => Work::Event(Event::of_checked(Json::of_checked(value))),
            Kind::Configure { .. } => Work::Configure(Config(Value { text: value, numeric_strings: false })),
        };
        let least_log = self.least_log;
        let reply =
            ReplyBuffer { memory: &mut *self.memory, reply: &mut self.reply, received: Some(received), least_log };
        let background = Background { tail, ahead: &mut self.ahead, settings: &self.settings, id: received.of(id) };
        Some(Run { work, reply, background })
    }
}

/// An answer that is written at once.
#[derive(Clone, Copy)]
enum Text<'t> {
    Answer(Respond),
    Refusal(&'static Refusal),
    Failure(&'t Failure),
    Service,
}

/// What is known of the message in hand when its reply ends.
fn about<'l>(line: &'l [u8], message: Span, spans: &'l Spans, manifest: &'l Manifest) -> About<'l> {
    About { received: Some(Received::whole(message.of(line), spans)), manifest }
}

/// What a message is.
enum Detected {
    /// An answer, which gets none.
    Answer(&'static Protocol),
    Message(&'static Protocol),
}

/// Checks a message, and finds its members and its protocol: one of `protocols`, or else `current`, that of the message
/// before. All of them recognise their own answers, also where `is_pinned` says that no other than `current` is spoken.
fn detect(
    text: &[u8],
    spans: &mut Spans,
    current: &'static Protocol,
    protocols: &[&'static Protocol],
    is_pinned: bool,
    in_batch: bool,
) -> Result<Detected, SyntaxError> {
    scan(text, current, spans)?;
    classify(text, spans, current, protocols, is_pinned, in_batch)
}

/// Finds the protocol of a message whose members were found by the table of `current`.
fn classify(
    text: &[u8],
    spans: &mut Spans,
    current: &'static Protocol,
    protocols: &[&'static Protocol],
    is_pinned: bool,
    in_batch: bool,
) -> Result<Detected, SyntaxError> {
    let mut found = current;
    if !in_batch {
        let has = |slot: usize| spans.get(slot).is_some_and(|span| !span.is_absent());
        let is_first = || protocols.first().is_some_and(|first| first.has_marker_of(current));
        // Most messages are requests of the same protocol as the one before, and no other member of theirs may be a marker.
        let is_sure = has(0) && has(usize::from(current.request)) && (!has(SLOTS - 1) || is_first());
        if !is_sure {
            let (marked, is_answer) = inspect(Json::of_checked(text), protocols);
            if !is_pinned {
                found = marked.unwrap_or(current);
            }
            if is_answer {
                return Ok(Detected::Answer(found));
            }
            if marked.is_none() {
                return Ok(Detected::Message(current));
            }
        }
    }
    if !is_pinned && protocols.len() > 1 {
        found = detect_among(text, spans, current, protocols, found)?;
    }
    Ok(Detected::Message(found))
}

/// Finds which of the protocols with the marker of `found` a message is of, and its members by that protocol's table.
#[inline(never)]
fn detect_among(
    text: &[u8],
    spans: &mut Spans,
    current: &'static Protocol,
    protocols: &[&'static Protocol],
    found: &'static Protocol,
) -> Result<&'static Protocol, SyntaxError> {
    // The members that protocols with one marker have in common are found by the table of any of them.
    let mut scanned = current;
    if !found.has_marker_of(current) {
        scanned = found;
        scan(text, found, spans)?;
    }
    let received = Received::whole(text, spans);
    let (mut chosen, mut is_recognised) = (None, false);
    for protocol in protocols.iter().copied().filter(|protocol| protocol.has_marker_of(found)) {
        match protocol.recognise {
            Some(recognise) if !is_recognised && recognise(&received, protocol == current) => {
                is_recognised = true;
                chosen = Some(protocol);
            }
            None if chosen.is_none() => chosen = Some(protocol),
            _ => {}
        }
    }
    let chosen = chosen.unwrap_or(found);
    if chosen != scanned {
        scan(text, chosen, spans)?;
    }
    Ok(chosen)
}

#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn scan(text: &[u8], protocol: &'static Protocol, spans: &mut Spans) -> Result<(), SyntaxError> {
    *spans = NO_SPANS;
    check::scan(text, &protocol.members, spans)
}

/// Inspects all members of a message: the first protocol whose marker is among them, and whether the message is an answer.
#[inline(never)]
fn inspect(json: Json<'_>, protocols: &[&'static Protocol]) -> (Option<&'static Protocol>, bool) {
    let (mut marked, mut is_request) = (None, false);
    for (name, _) in json.members() {
        for (rank, protocol) in protocols.iter().enumerate() {
            let slot = protocol.members.slot(name);
            if slot == Some(0) && marked.is_none_or(|before| rank < before) {
                marked = Some(rank);
            }
            is_request |= slot == Some(protocol.request);
        }
    }
    let marked = marked.and_then(|rank| protocols.get(rank).copied());
    let is_answer = !is_request
        && match marked {
            Some(protocol) => (protocol.is_answer)(json),
            None => protocols.iter().any(|protocol| (protocol.is_answer)(json)),
        };
    (marked, is_answer)
}

/// Whether a member of an array is a message of JSON-RPC.
fn is_json_rpc(array: &[u8]) -> bool {
    Json::of_checked(array).elements().any(|member| member.get("jsonrpc").is_some())
}

/// No arguments are an empty object. It is written in the place of a member that every request has, that has been read
/// and is wanted no more.
fn empty_object(text: &mut [u8], Span { start, end }: Span) -> Option<Span> {
    let place = text.get_mut(start as usize..end as usize)?.first_chunk_mut::<2>()?;
    *place = *b"{}";
    Some(Span { start, end: start + 2 })
}

/// What goes on behind the line of a [`Run`]: later lines come in, and faults among them are answered at once. All else
/// waits its turn.
pub struct Background<'s> {
    tail: Tail<'s>,
    ahead: &'s mut Ahead,
    settings: &'s Settings<'s>,
    /// The id of the call that is out; empty if it has none.
    id: &'s [u8],
}

impl fmt::Debug for Background<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("cancelled", &self.ahead.cancelled).finish_non_exhaustive()
    }
}

impl Background<'_> {
    /// Free room to read into; empty when no more can be taken before the call has ended.
    pub fn space(&mut self) -> &mut [u8] {
        self.tail.space()
    }

    /// Takes the first `count` bytes of [`space`](Self::space) as read.
    pub fn commit(&mut self, count: usize) {
        self.tail.commit(count);
    }

    /// End of input.
    pub fn finish(&mut self) {
        self.tail.finish();
    }

    /// Whether the caller has cancelled the call that is out. The driver ends it at once; it gets no reply.
    pub fn is_cancelled(&self) -> bool {
        self.ahead.cancelled
    }

    /// Inspects the lines that have come in meanwhile. Writes the reply to the next one that need not wait into `memory`,
    /// which must have [`LEAST_REPLY`] bytes, and returns it as a whole line; `None` if all must wait their turn.
    ///
    /// In protocols with ids, faults need not wait, nor what a [`Service`] answers, nor what [`Protocol::busy`] says. Where there
    /// are no ids every reply comes in the order of its line, faults included.
    pub fn answer<'o>(&mut self, memory: &'o mut [u8]) -> Option<&'o [u8]> {
        if memory.len() < LEAST_REPLY {
            return None;
        }
        let limit = memory.len().saturating_sub(1);
        let end = loop {
            let mut out = Writer::new(memory.get_mut(..limit).unwrap_or_default());
            if self.answer_next(&mut out)? {
                break out.len();
            }
        };
        Some(rpc::end_line(memory, end))
    }

    /// Inspects one line; `None` if there is none, else whether it was answered in `out`.
    #[inline(never)]
    fn answer_next(&mut self, out: &mut Writer<'_>) -> Option<bool> {
        let Self { tail, ahead: Ahead { protocol, cancelled }, settings, id } = self;
        let Settings { manifest, protocols, pinned, service, limits } = settings;
        let peeked = tail.peek()?;
        let mut look = || {
            let text = &*peeked.line;
            if text.trim_ascii_start().first() == Some(&b'[') {
                let json_rpc = protocol.is_json_rpc;
                if let Err(error) = check::check(text) {
                    return json_rpc.then(|| parse_error(out, protocol, error) > 0);
                }
                if !json_rpc
                    && !*pinned
                    && let Some(found) = protocols.iter().find(|protocol| protocol.is_json_rpc)
                    && is_json_rpc(text)
                {
                    *protocol = found;
                }
                return None;
            }
            let mut spans = NO_SPANS;
            let is_message = match detect(text, &mut spans, protocol, protocols, *pinned, false) {
                Err(error) => {
                    return protocol.busy.map(|_| parse_error(out, protocol, error) > 0);
                }
                Ok(Detected::Answer(found)) => {
                    *protocol = found;
                    false
                }
                Ok(Detected::Message(found)) => {
                    *protocol = found;
                    true
                }
            };
            let busy = protocol.busy.filter(|_| is_message)?;
            let received = Received::whole(text, &spans);
            let request = match (protocol.envelope)(&received) {
                Envelope::Request { id } => Some(received.of(id)),
                Envelope::Notification => None,
                Envelope::Invalid { text, id } => {
                    return Some(rpc::invalid_request(out, received.of(id), text) > 0);
                }
                Envelope::Reply => return None,
            };
            match busy(&received) {
                Busy::Cancel(span) => {
                    let other = received.of(span);
                    if !other.is_empty() && other == *id {
                        *cancelled = true;
                    } else {
                        forget(peeked.kept, protocol, other);
                    }
                    Some(false)
                }
                busy => {
                    let facts = Facts { manifest, limits: *limits, is_closed: false };
                    answer_at_once(out, protocol, busy, request, &received, &facts, *service)
                }
            }
        };
        let answered = look();
        if answered.is_some() {
            peeked.discard();
        } else {
            peeked.keep();
        }
        Some(answered.unwrap_or(false))
    }
}

/// Answers a request that need not wait, in `out`, and returns whether it wrote something; `None` if it has to wait.
fn answer_at_once(
    out: &mut Writer<'_>,
    protocol: &Protocol,
    busy: Busy,
    id: Option<&[u8]>,
    received: &Received<'_>,
    facts: &Facts<'_>,
    service: Option<&dyn Service>,
) -> Option<bool> {
    let of_service = || {
        let (method, params) = rpc::method_and_params(received)?;
        service.filter(|service| service.owns(method)).map(|service| (service, method, params))
    };
    let phrases = protocol.phrases;
    if let Some((service, method, params)) = of_service().filter(|_| protocol.is_json_rpc && id.is_some()) {
        (phrases.head)(out, id?);
        service.answer(method, params, out);
    } else if busy == Busy::Answer {
        let action = (protocol.read)(received, facts);
        match (action, id) {
            (Ok(Action::Ignore), _) | (Ok(Action::Answer(_)) | Err(_), None) => return Some(false),
            (Ok(Action::Answer(answer)), Some(id)) => {
                (phrases.head)(out, id);
                answer(out, received, facts);
            }
            (Err(refusal), Some(id)) => {
                (phrases.head)(out, id);
                (protocol.refuse)(out, received, refusal, facts);
            }
            _ => return None,
        }
    } else {
        return None;
    }
    if !out.fits() {
        out.truncate(0);
        (phrases.head)(out, id.unwrap_or_default());
        (phrases.error)(out, FailureKind::TooLarge, None);
        out.raw(b"reply too large");
        (phrases.error_end)(out, FailureKind::TooLarge);
        let closing = Closing {
            received: Some(*received),
            manifest: facts.manifest,
            error: Some(FailureKind::TooLarge),
            outputs: (0, 0),
            has_message: false,
        };
        (phrases.close)(out, &closing);
    }
    Some(true)
}

/// Makes the request with this id blank among lines that wait their turn: it neither runs nor is answered.
#[inline(never)]
fn forget(kept: &mut [u8], protocol: &'static Protocol, id: &[u8]) {
    for line in kept.split_mut(|byte| *byte == b'\n') {
        let mut spans = NO_SPANS;
        if scan(line, protocol, &mut spans).is_err() {
            continue;
        }
        let received = Received::whole(line, &spans);
        if let Envelope::Request { id: found } = (protocol.envelope)(&received)
            && received.of(found) == id
        {
            for byte in line {
                // A plain fill would link a function for it.
                *byte = if *byte == b'\n' { b'\n' } else { b' ' };
            }
        }
    }
}
/// Whether an engine that speaks these protocols answers a line. It takes a byte-order mark off, and blanks for nothing, as
/// the framer does; a batch that is too long is answered too.
#[cfg(all(feature = "postcard", feature = "async"))]
pub(crate) fn is_answered(line: &[u8], protocols: &[&'static Protocol]) -> bool {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
        return false;
    }
    if check::check(line).is_err() {
        return true;
    }
    let Some(first) = protocols.first().copied() else { return true };
    let mut spans = NO_SPANS;
    let mut one = |text: &[u8], in_batch| match detect(text, &mut spans, first, protocols, false, in_batch) {
        Err(_) => true,
        Ok(Detected::Answer(_)) => false,
        Ok(Detected::Message(protocol)) => {
            let envelope = (protocol.envelope)(&Received::whole(text, &spans));
            !matches!(envelope, Envelope::Notification | Envelope::Reply)
        }
    };
    let json = Json::of_checked(line);
    if json.kind() != crate::json::Kind::Array {
        return one(line, false);
    }
    let count = json.elements().count();
    count == 0 || count > rpc::MAX_BATCH || json.elements().any(|member| one(member.as_bytes(), true))
}

/// Writes the error reply to a line that is too long.
fn too_long(out: &mut Writer<'_>, protocol: &Protocol, fault: TooLong) -> usize {
    protocol.begin_parse_error(out);
    rpc::end_too_long(out, fault)
}

/// Writes the error reply to a line that is not JSON.
fn parse_error(out: &mut Writer<'_>, protocol: &Protocol, error: SyntaxError) -> usize {
    protocol.begin_parse_error(out);
    rpc::end_parse_error(out, error)
}
