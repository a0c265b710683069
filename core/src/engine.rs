//! The engine: bytes in, bytes out, and calls for somebody to run. It does no I/O and knows no time; blocking loops, async
//! loops and a browser are thin shells around it.

use core::fmt;

#[cfg(any(feature = "amplifier", feature = "namel3ss"))]
use crate::call::CallContext;
use crate::call::{Call, Config, Outcome, Value};
use crate::context::Scratch;
use crate::event::Event;
use crate::failure::Failure;
use crate::frame::{Framer, LineEnds, Tail, Taken, TooLong};
use crate::json::check::{Parts, Span, SyntaxError};
use crate::json::view::Json;
#[cfg(feature = "waza")]
use crate::json::view::Text;
use crate::json::write::{Message, Writer};
use crate::manifest::Manifest;
#[cfg(feature = "amplifier")]
use crate::protocol::amplifier;
use crate::protocol::gevals::{self, Refusal};
#[cfg(feature = "namel3ss")]
use crate::protocol::namel3ss;
#[cfg(feature = "waza")]
use crate::protocol::waza;
use crate::protocol::{Protocol, Request};
use crate::reply::{self, Reply};
use crate::rpc::{self, Envelope, Spans};

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
pub const LEAST_REPLY: usize = reply::LEAST + rpc::MAX_ID;

/// A region of [`Memory`] is too small to serve anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TooSmall {
    /// The request region is empty: nothing could be read into it.
    Request,
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
pub trait Gate: fmt::Debug {
    /// A host asks to start a session.
    ///
    /// # Errors
    /// It may not, for this reason. It is told so.
    fn open(&self) -> Result<(), Failure>;

    /// The session was shut down, or did not start after all. Of the loss of a connection the shell's caller knows.
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
#[derive(Debug)]
pub struct Engine<'m> {
    manifest: &'static Manifest,
    framer: Framer<'m>,
    memory: &'m mut [u8],
    reply: Reply,
    state: State,
    session: Session,
    batch: Option<Batch>,
    finished: bool,
    /// The protocol of the last message; what cannot be read is answered in it.
    protocol: Protocol,
    /// The same of the last message that was inspected, which may wait its turn or have been answered already.
    ahead: Protocol,
    /// Whether every message is taken as one of `protocol`.
    pinned: bool,
    /// The longest line that is sent in JSON-RPC, in bytes without its newline.
    json_rpc_limit: usize,
    gate: Option<&'m dyn Gate>,
    #[cfg(feature = "amplifier")]
    event: Option<Running>,
    /// Where the members of the message in hand stand, in JSON-RPC.
    spans: Spans,
    #[cfg(feature = "waza")]
    evals: waza::Evals,
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
    pub scratch: Scratch<'s>,
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
    /// Tasks of an eval, one after the other: [`Extension::run_task`](crate::Extension::run_task). Feature `waza`.
    #[cfg(feature = "waza")]
    Eval(waza::Run<'s>),
}

impl Work<'_> {
    /// The limit on the work's time, in nanoseconds, if the host sets one.
    pub fn timeout_nanos(&self) -> Option<u64> {
        match self {
            Self::Call(call) => call.context.timeout_nanos,
            Self::Configure(_) | Self::Event(_) => None,
            #[cfg(feature = "waza")]
            Self::Eval(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    /// [`Step::Write`] was handed out.
    Writing,
    Running(Running),
    /// An eval's run has its turn.
    #[cfg(feature = "waza")]
    Eval,
    /// What ran has ended, with this.
    Completed(Done),
}

#[derive(Debug, Clone, Copy)]
struct Running {
    request: Request,
    /// Where the message stands in its line.
    message: Span,
    protocol: Protocol,
    timeout: Option<Nanos>,
}

/// Aligned as all else here: else a microcontroller's image has copying and clearing functions for this alignment besides.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
struct Nanos(u64);

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
    /// A reply stands in the reply region, up to here.
    Reply(usize),
    Run,
}

impl<'m> Engine<'m> {
    /// An engine for an extension with this manifest.
    // In line it would clear its memory by a function for the alignment that its caller happens to have.
    #[inline(never)]
    pub fn new(manifest: &'static Manifest, memory: Memory<'m>) -> Result<Self, TooSmall> {
        if memory.request.is_empty() {
            return Err(TooSmall::Request);
        }
        if memory.reply.len() < LEAST_REPLY {
            return Err(TooSmall::Reply { size: memory.reply.len() });
        }
        Ok(Self {
            manifest,
            framer: Framer::new(memory.request),
            memory: memory.reply,
            reply: Reply::default(),
            state: State::Idle,
            session: Session::Fresh,
            batch: None,
            finished: false,
            protocol: Protocol::default(),
            ahead: Protocol::default(),
            pinned: false,
            json_rpc_limit: usize::MAX,
            gate: None,
            spans: rpc::NO_SPANS,
            #[cfg(feature = "amplifier")]
            event: None,
            #[cfg(feature = "waza")]
            evals: waza::Evals::new(&[]),
        })
    }

    /// With evals that are part of the extension, whose tasks are run by
    /// [`Extension::run_task`](crate::Extension::run_task): waza's methods are answered from them, also while a call or a run
    /// is out. Feature `waza`.
    #[cfg(feature = "waza")]
    #[must_use]
    pub fn with_evals(self, evals: &'static [waza::BoardEval]) -> Self {
        Self { evals: waza::Evals::new(evals), ..self }
    }

    /// For one protocol only. Otherwise each message tells its own: by `jsonrpc` gevals, then by `op` Amplifier, then by
    /// `protocol_version` namel3ss; what tells none is taken as the last one seen on the connection, gevals at first.
    #[must_use]
    pub fn with_protocol(self, protocol: Protocol) -> Self {
        Self { protocol, ahead: protocol, pinned: true, ..self }
    }

    /// With a limit on the lines that are sent in JSON-RPC, in bytes without the newline, below that of the reply region:
    /// real gevals hosts read lines of 65,535 bytes, and other protocols have no such limit. It is at least that of
    /// [`LEAST_REPLY`].
    #[must_use]
    pub fn with_json_rpc_limit(self, bytes: usize) -> Self {
        Self { json_rpc_limit: bytes.max(LEAST_REPLY - 1), ..self }
    }

    /// With other line ends: on a serial line, a lone CR may end a line too.
    #[must_use]
    pub fn with_line_ends(self, ends: LineEnds) -> Self {
        Self { framer: self.framer.with_mode(ends), ..self }
    }

    /// With somebody to ask before a session starts, where several connections lead to one extension.
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
        #[cfg(feature = "amplifier")]
        if self.event.is_some() {
            return true;
        }
        self.batch.is_some()
    }

    /// End of input: a last line without a newline counts, and [`Step::End`] will come.
    pub fn finish(&mut self) {
        self.framer.finish();
        self.finished = true;
    }

    /// The connection is gone, or a new one is here: forgets a partial line and everything that waits.
    ///
    /// Gives whether a session was open that had begun with `initialize`, so that
    /// [`safe_state`](crate::Extension::safe_state) must run. The configuration is the extension's and survives.
    pub fn disconnect(&mut self) -> bool {
        let open = self.is_session_open();
        self.framer.reset();
        self.state = State::Idle;
        self.session = Session::Fresh;
        self.batch = None;
        self.finished = false;
        if !self.pinned {
            self.protocol = Protocol::default();
            self.ahead = self.protocol;
        }
        #[cfg(feature = "amplifier")]
        {
            self.event = None;
        }
        #[cfg(feature = "waza")]
        self.evals.abandon();
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
        (self.framer.limit(), self.memory.len().saturating_sub(1).min(self.json_rpc_limit))
    }

    /// Goes on as far as it can without anybody's help.
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

    /// [`step`](Self::step) for the shells: what is to be done, in a word. What a [`Run`] is made of is large, and made by
    /// [`run`](Self::run) where it stays.
    pub(crate) fn next(&mut self) -> Next {
        if let State::Running(_) = self.state {
            self.conclude(&Err(Failure::CANCELLED));
        }
        let mut done = match core::mem::replace(&mut self.state, State::Idle) {
            State::Completed(done) => Some(done),
            #[cfg(feature = "amplifier")]
            State::Writing if self.event.is_some() => {
                self.state = self.event.take().map_or(State::Idle, State::Running);
                self.reply.silent_in(Protocol::Amplifier);
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
                // A run that was started has its turn before what came after it.
                #[cfg(feature = "waza")]
                None if self.evals.waiting().is_some() => {
                    self.state = State::Eval;
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

    /// The line that [`Next::Write`] has told of.
    pub(crate) fn line(&mut self, end: usize) -> &[u8] {
        end_line(self.memory, end)
    }

    #[cfg(feature = "waza")]
    fn run_eval(&mut self) -> Option<Run<'_>> {
        // Its line is done with.
        let _ = self.framer.space();
        self.reply.silent(0);
        let (_, tail) = self.framer.held();
        let run = self.evals.waiting()?;
        self.state = State::Completed(Done::Nothing);
        let scratch = Scratch { memory: &mut *self.memory, reply: &mut self.reply };
        let background = Background {
            tail,
            protocol: &mut self.ahead,
            pinned: self.pinned,
            spans: &mut self.spans,
            evals: &self.evals,
        };
        Some(Run { work: Work::Eval(run), scratch, background })
    }

    /// Takes what came of [`Step::Run`].
    pub fn complete(&mut self, result: Result<Outcome, Failure>) {
        self.conclude(&result);
    }

    /// [`complete`](Self::complete) without a copy of what is large.
    pub(crate) fn conclude(&mut self, result: &Result<Outcome, Failure>) {
        let State::Running(Running { request, .. }) = &self.state else { return };
        let end = match (request, result) {
            (Request::Initialize { .. }, Ok(_)) => self.initialized(),
            // The result of `initialize` is a manifest and nothing else.
            (Request::Initialize { .. }, Err(failure)) => {
                self.not_initialized();
                self.reply.refuse(self.memory, failure)
            }
            _ => self.reply.finish(self.memory, result),
        };
        self.state = State::Completed(if self.reply.is_silent() { Done::Nothing } else { Done::Reply(end) });
    }

    fn initialized(&mut self) -> usize {
        let (manifest, limits) = (self.manifest, self.limits());
        let end = self.reply.answer(self.memory, &mut |out| gevals::write_manifest(out, manifest, limits));
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
        // The protocol that a line tells counts for the lines behind it, and for none before it: lines that were kept
        // stand before what was inspected last.
        let was_kept = self.framer.has_kept();
        if !was_kept {
            self.protocol = self.ahead;
        }
        let done = self.take_line();
        if !was_kept {
            self.ahead = self.protocol;
        }
        done
    }

    fn take_line(&mut self) -> Option<Done> {
        match self.framer.take()? {
            Taken::TooLong(fault) => {
                let protocol = self.protocol;
                Some(Done::Reply(too_long(&mut self.writer_for_line(), protocol, fault)))
            }
            Taken::Line(line, _) => {
                let length = line.len();
                let bracket = line.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or_default();
                let is_batch = line.get(bracket) == Some(&b'[') && (!self.pinned || self.protocol == Protocol::Gevals);
                Some(if is_batch { self.begin_batch(bracket) } else { self.message(0, length) })
            }
        }
    }

    /// A writer for a line of its own.
    fn writer_for_line(&mut self) -> Writer<'_> {
        let limit = self.memory.len().saturating_sub(1);
        Writer::new(self.memory.get_mut(..limit).unwrap_or_default())
    }

    /// JSON-RPC 2.0 §6. An array none of whose members tells JSON-RPC is taken as the last protocol seen, as all else that
    /// tells none.
    fn begin_batch(&mut self, bracket: usize) -> Done {
        let line = self.framer.line();
        let (length, protocol) = (line.len(), self.protocol.spoken());
        if let Err(error) = crate::json::check::check(line) {
            return Done::Reply(parse_error(&mut self.writer_for_line(), protocol, error));
        }
        if protocol != Protocol::Gevals && !tells_json_rpc(line, &mut self.spans) {
            return self.message(0, length);
        }
        self.protocol = Protocol::Gevals;
        let (mut members, mut reserve) = (0, 0);
        for member in Json::of_checked(line).elements() {
            members += 1;
            reserve += reserve_for(member.as_bytes(), &mut self.spans);
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
        Done::Reply(invalid_request(&mut self.writer_for_line(), b"", refusal))
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
        batch.reserve = batch.reserve.saturating_sub(reserve_for(text, &mut self.spans));
        self.batch = Some(batch);
        match self.message(start, end) {
            Done::Run => Done::Run,
            done => self.end_member(done),
        }
    }

    /// Notes a member's reply; gives that there is no line to send yet.
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

    /// Takes a message, which stands at `start..end` of the line that is held.
    fn message(&mut self, start: usize, end: usize) -> Done {
        let line = self.framer.line();
        let text = line.get(start..end).unwrap_or_default();
        // In a batch a reply stands behind a bracket or comma, and before a closing bracket and the end of the line.
        let (_, line_limit) = self.limits();
        let (reply_start, limit) = match self.batch {
            Some(batch) => (batch.end + 1, line_limit.saturating_sub(1 + batch.reserve)),
            None => (0, line_limit),
        };
        let protocol = self.protocol;
        if let Err(error) = rpc::scan(text, &mut self.spans) {
            return Done::Reply(parse_error(&mut self.writer_for_line(), protocol, error));
        }
        if self.batch.is_none() {
            if !self.pinned {
                self.protocol = told(&self.spans).unwrap_or(protocol);
            }
            if rpc::is_answer(text, &self.spans) {
                return Done::Nothing;
            }
        }
        match self.protocol {
            Protocol::Gevals => {}
            #[cfg(feature = "amplifier")]
            Protocol::Amplifier if self.batch.is_none() => return self.amplifier(),
            #[cfg(feature = "namel3ss")]
            Protocol::Namel3ss if self.batch.is_none() => return self.namel3ss(),
            _ => {}
        }
        let line = self.framer.line();
        let text = line.get(start..end).unwrap_or_default();
        let spans = &self.spans;
        let id = match rpc::classify(text, spans) {
            Envelope::Reply => return Done::Nothing,
            Envelope::Request => Some(rpc::id(text, spans)),
            Envelope::Notification => None,
            Envelope::Invalid { text: fault, id_is_usable } => {
                let id = if id_is_usable { rpc::id(text, spans) } else { b"" };
                return Done::Reply(invalid_request(&mut reply::writer(self.memory, reply_start, limit), id, fault));
            }
        };
        match id {
            Some(id) => self.reply.begin(self.memory, reply_start, limit, Protocol::Gevals, id),
            None => self.reply.silent(reply_start),
        }
        #[cfg(feature = "waza")]
        if !self.evals.is_empty()
            && let Some((method, params)) = waza_request(text, spans)
        {
            let evals = &self.evals;
            let end = self.reply.answer(self.memory, &mut |out| waza::answer_from(evals, method, params, out));
            return if self.reply.is_silent() { Done::Nothing } else { Done::Reply(end) };
        }
        let is_over = self.session.is_shutting_down() || self.session == Session::Ended;
        let mut timeout_nanos = None;
        let request = if is_over && !gevals::is_initialize(text, spans) {
            Err(&Refusal::AfterShutdown)
        } else {
            gevals::request(text, spans, self.manifest, &mut timeout_nanos)
        };
        let end = match request {
            Ok(request @ Request::Execute { .. }) => {
                return self.start(request, start, end, Protocol::Gevals, timeout_nanos);
            }
            Ok(request @ Request::Initialize { config }) => {
                if let Some(gate) = self.gate
                    && let Err(failure) = gate.open()
                {
                    self.reply.refuse(self.memory, &failure)
                } else if config.is_absent() {
                    self.initialized()
                } else {
                    return self.start(request, start, end, Protocol::Gevals, None);
                }
            }
            Ok(_) => {
                self.session = Session::ShuttingDown { initialized: self.session == Session::Initialized };
                if let Some(gate) = self.gate {
                    gate.close();
                }
                self.reply.answer(self.memory, &mut |out| out.raw(b",\"result\":{}}"))
            }
            Err(refusal) => self.reply.answer(self.memory, &mut |out| gevals::write_refusal(out, refusal, text, spans)),
        };
        if self.reply.is_silent() { Done::Nothing } else { Done::Reply(end) }
    }

    /// Takes the line that is held as an Amplifier request.
    #[cfg(feature = "amplifier")]
    fn amplifier(&mut self) -> Done {
        let limit = self.memory.len().saturating_sub(1);
        let line = self.framer.line();
        let (text, length) = (line, line.len());
        if amplifier::scan(text, &mut self.spans).is_err() {
            return Done::Nothing;
        }
        let spans = amplifier::Spans(&self.spans);
        self.reply.begin(self.memory, 0, limit, Protocol::Amplifier, spans.id(text));
        let end = match amplifier::request(text, spans, self.manifest) {
            Ok(request @ Request::Execute { .. }) => {
                let nanos = 1_000_000_000 * amplifier::TIMEOUT.as_secs();
                return self.start(request, 0, length, Protocol::Amplifier, Some(nanos));
            }
            Ok(Request::Health) => self.reply.answer(self.memory, &mut |out| out.raw(b"\"status\":\"ok\"}")),
            Ok(Request::Describe) => {
                let manifest = self.manifest;
                self.reply.answer(self.memory, &mut |out| amplifier::write_description(out, manifest))
            }
            Ok(request) => {
                let end = self.reply.answer(self.memory, &mut |out| out.raw(b"\"ok\":true,\"result\":{}}"));
                self.start(request, 0, length, Protocol::Amplifier, None);
                // The acknowledgement goes first.
                if let State::Running(running) = core::mem::replace(&mut self.state, State::Idle) {
                    self.event = Some(running);
                }
                end
            }
            Err(refusal) => {
                self.reply.answer(self.memory, &mut |out| amplifier::write_refusal(out, refusal, text, spans))
            }
        };
        Done::Reply(end)
    }

    /// Takes the line that is held as a namel3ss request.
    #[cfg(feature = "namel3ss")]
    fn namel3ss(&mut self) -> Done {
        let limit = self.memory.len().saturating_sub(1);
        let line = self.framer.line();
        let (text, length) = (line, line.len());
        if namel3ss::scan(text, &mut self.spans).is_err() {
            return Done::Nothing;
        }
        let spans = namel3ss::Spans(&self.spans);
        self.reply.begin(self.memory, 0, limit, Protocol::Namel3ss, b"");
        if spans.wants_checks(text) {
            self.reply.with_checks();
        }
        match namel3ss::request(text, spans, self.manifest) {
            Ok((request, timeout_nanos)) => self.start(request, 0, length, Protocol::Namel3ss, timeout_nanos),
            Err(refusal) => {
                let manifest = self.manifest;
                Done::Reply(self.reply.answer(self.memory, &mut |out| {
                    namel3ss::write_refusal(out, refusal, text, spans, manifest);
                }))
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
    fn start(
        &mut self,
        request: Request,
        start: usize,
        end: usize,
        protocol: Protocol,
        timeout_nanos: Option<u64>,
    ) -> Done {
        let message = Span { start: start as u32, end: end as u32 };
        self.state = State::Running(Running { request, message, protocol, timeout: timeout_nanos.map(Nanos) });
        Done::Run
    }

    /// What [`State::Running`] says, as parts of the memory.
    pub(crate) fn run(&mut self) -> Option<Run<'_>> {
        #[cfg(feature = "waza")]
        if let State::Eval = self.state {
            return self.run_eval();
        }
        let State::Running(Running { request, message, protocol, timeout }) = &self.state else { return None };
        let (request, message, protocol) = (*request, *message, *protocol);
        let (line, tail) = self.framer.held();
        let text = line.get_mut(message.start as usize..message.end as usize)?;
        let taken = match request {
            Request::Execute { args, .. } if args.of(text).first() == Some(&b'{') => args,
            Request::Initialize { config } => config,
            #[cfg(feature = "amplifier")]
            Request::Event { event } => event,
            _ => empty_object(text, protocol, &self.spans)?,
        };
        let (value, line) = Parts::take(text, taken)?;
        let work = match request {
            Request::Execute { index, .. } => {
                let mut context = match protocol.spoken() {
                    #[cfg(feature = "amplifier")]
                    Protocol::Amplifier => {
                        let session = amplifier::Spans(&self.spans).session_in(&line);
                        CallContext { session_id: rpc::string(line.of(session)), ..CallContext::default() }
                    }
                    #[cfg(feature = "namel3ss")]
                    Protocol::Namel3ss => {
                        let namel3ss = namel3ss::Spans(&self.spans).surroundings(&line);
                        CallContext { namel3ss, ..CallContext::default() }
                    }
                    _ => gevals::context(&self.spans, &line),
                };
                context.timeout_nanos = timeout.map(|Nanos(nanos)| nanos);
                // The real engine writes a flow's decimals as strings.
                let numeric_strings = protocol.spoken() == Protocol::Namel3ss;
                Work::Call(Call {
                    index,
                    operation: self.manifest.operations.get(index)?,
                    args: Value { text: value, numeric_strings },
                    context,
                })
            }
            #[cfg(feature = "amplifier")]
            Request::Event { .. } => Work::Event(Event::read(Json::of_checked(value)).ok()?),
            _ => Work::Configure(Config(Value { text: value, numeric_strings: false })),
        };
        let scratch = Scratch { memory: &mut *self.memory, reply: &mut self.reply };
        let background = Background {
            tail,
            protocol: &mut self.ahead,
            pinned: self.pinned,
            spans: &mut self.spans,
            #[cfg(feature = "waza")]
            evals: &self.evals,
        };
        Some(Run { work, scratch, background })
    }
}

/// Whether an array is JSON-RPC's: a member tells it.
fn tells_json_rpc(array: &[u8], spans: &mut Spans) -> bool {
    let mut members = Json::of_checked(array).elements();
    members.any(|member| rpc::scan(member.as_bytes(), spans).is_ok() && told(spans) == Some(Protocol::Gevals))
}

/// The method and the parameters of a request that is waza's.
#[cfg(feature = "waza")]
fn waza_request<'t>(text: &'t [u8], spans: &Spans) -> Option<(Text<'t>, Json<'t>)> {
    let method = rpc::string(spans.get(rpc::METHOD)?.of(text)).filter(|method| waza::is_method(*method))?;
    let params = match spans.get(rpc::PARAMS)?.of(text) {
        [] => Json::NULL,
        params => Json::of_checked(params),
    };
    Some((method, params))
}

/// The protocol that a message tells by its members.
fn told(spans: &Spans) -> Option<Protocol> {
    let is_there = |slot: usize| spans.get(slot).is_some_and(|span| !span.is_absent());
    if is_there(rpc::JSONRPC) {
        return Some(Protocol::Gevals);
    }
    #[cfg(feature = "amplifier")]
    if is_there(rpc::OP) {
        return Some(Protocol::Amplifier);
    }
    #[cfg(feature = "namel3ss")]
    if is_there(rpc::PROTOCOL_VERSION) {
        return Some(Protocol::Namel3ss);
    }
    None
}

/// No arguments are an empty object. It is written in the place of a member that every request has, that has been read
/// and is wanted no more.
fn empty_object(text: &mut [u8], protocol: Protocol, spans: &Spans) -> Option<Span> {
    let Span { start, end } = match protocol.spoken() {
        #[cfg(feature = "amplifier")]
        Protocol::Amplifier => amplifier::Spans(spans).spent(),
        #[cfg(feature = "namel3ss")]
        Protocol::Namel3ss => namel3ss::Spans(spans).spent(),
        _ => spans.first().copied().unwrap_or_default(),
    };
    let place = text.get_mut(start as usize..end as usize)?.first_chunk_mut::<2>()?;
    *place = *b"{}";
    Some(Span { start, end: start + 2 })
}

/// What goes on behind the line of a [`Run`]: later lines come in, and faults among them are answered at once. All else
/// waits its turn.
#[derive(Debug)]
pub struct Background<'s> {
    tail: Tail<'s>,
    /// As the engine's own, but of the lines that were looked at here.
    protocol: &'s mut Protocol,
    pinned: bool,
    /// The members of the line that is looked at; those of the running call are not needed any more.
    spans: &'s mut Spans,
    #[cfg(feature = "waza")]
    evals: &'s waza::Evals,
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

    /// Inspects the lines that have come in meanwhile. Writes the reply to the next one that need not wait into `memory`,
    /// which must have [`LEAST_REPLY`] bytes, and returns it as a whole line; `None` if all must wait their turn.
    ///
    /// In JSON-RPC, faults need not wait, nor what is asked of the extension's evals and their runs. Amplifier and namel3ss
    /// have no ids: there every reply comes in the order of its line, faults and `health` included.
    pub fn answer<'o>(&mut self, memory: &'o mut [u8]) -> Option<&'o [u8]> {
        if memory.len() < LEAST_REPLY {
            return None;
        }
        let limit = memory.len().saturating_sub(1);
        let pinned = self.pinned;
        let (spans, protocol) = (&mut *self.spans, &mut *self.protocol);
        let end = loop {
            let mut peeked = self.tail.peek()?;
            let text = &*peeked.line();
            let mut out = Writer::new(memory.get_mut(..limit).unwrap_or_default());
            if text.trim_ascii_start().first() == Some(&b'[') {
                match crate::json::check::check(text) {
                    Ok(()) => {
                        if !pinned && protocol.spoken() != Protocol::Gevals && tells_json_rpc(text, spans) {
                            *protocol = Protocol::Gevals;
                        }
                        peeked.keep();
                    }
                    Err(_) if protocol.spoken() != Protocol::Gevals => peeked.keep(),
                    Err(error) => {
                        let end = parse_error(&mut out, *protocol, error);
                        peeked.discard();
                        break end;
                    }
                }
                continue;
            }
            let checked = rpc::scan(text, spans);
            if checked.is_ok() && !pinned {
                *protocol = told(spans).unwrap_or(*protocol);
            }
            let end = match checked {
                _ if protocol.spoken() != Protocol::Gevals => None,
                Err(error) => Some(parse_error(&mut out, *protocol, error)),
                Ok(()) if rpc::is_answer(text, spans) => None,
                Ok(()) => match rpc::classify(text, spans) {
                    #[cfg(feature = "waza")]
                    Envelope::Request => {
                        waza_request(text, spans).filter(|_| !self.evals.is_empty()).map(|(method, params)| {
                            rpc::write_head(&mut out, rpc::id(text, spans));
                            let start = out.len();
                            waza::answer_from(self.evals, method, params, &mut out);
                            if !out.fits() {
                                out.truncate(start);
                                rpc::begin_error(&mut out, rpc::INTERNAL_ERROR);
                                out.raw(b"reply too large");
                                rpc::end_error(&mut out);
                            }
                            out.len()
                        })
                    }
                    Envelope::Invalid { text: fault, id_is_usable } => {
                        let id = if id_is_usable { rpc::id(text, spans) } else { b"" };
                        Some(invalid_request(&mut out, id, fault))
                    }
                    _ => None,
                },
            };
            match end {
                Some(end) => {
                    peeked.discard();
                    break end;
                }
                None => peeked.keep(),
            }
        };
        Some(end_line(memory, end))
    }
}

/// Room to keep for the reply to a batch's member, with the comma before it.
pub(crate) fn reserve_for(member: &[u8], spans: &mut Spans) -> usize {
    if rpc::scan(member, spans).is_err() {
        return 0;
    }
    match rpc::classify(member, spans) {
        Envelope::Request | Envelope::Invalid { id_is_usable: true, .. } => {
            reply::LEAST + 1 + rpc::id(member, spans).len()
        }
        Envelope::Invalid { .. } => reply::LEAST + 1,
        Envelope::Notification | Envelope::Reply => 0,
    }
}

pub(crate) fn too_long(out: &mut Writer<'_>, protocol: Protocol, TooLong { limit, dropped, .. }: TooLong) -> usize {
    protocol.phrases().begin_parse_error(out);
    out.raw(b"line too long: ");
    out.usize(dropped);
    out.raw(b" bytes, the limit is ");
    out.usize(limit);
    rpc::end_error(out);
    out.len()
}

pub(crate) fn parse_error(
    out: &mut Writer<'_>,
    protocol: Protocol,
    SyntaxError { kind, offset }: SyntaxError,
) -> usize {
    protocol.phrases().begin_parse_error(out);
    out.raw(b"Parse error: ");
    kind.write_escaped(out);
    out.raw(b" at byte ");
    out.usize(offset);
    rpc::end_error(out);
    out.len()
}

pub(crate) fn invalid_request(out: &mut Writer<'_>, id: &[u8], fault: &str) -> usize {
    rpc::write_head(out, id);
    rpc::begin_error(out, rpc::INVALID_REQUEST);
    out.raw(b"Invalid Request: ");
    out.text_part(fault);
    rpc::end_error(out);
    out.len()
}

/// Ends the line in `memory` that goes up to `end`.
pub(crate) fn end_line(memory: &mut [u8], end: usize) -> &[u8] {
    if let Some(place) = memory.get_mut(end) {
        *place = b'\n';
    }
    memory.get(..=end).unwrap_or_default()
}
