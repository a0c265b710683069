//! The engine: bytes in, bytes out, and calls that its caller runs. It does no I/O and knows no time. Blocking loops, async
//! loops and a browser are thin drivers around it.

mod answer;
mod background;
mod batch;
mod detect;
mod memory;
mod message;
mod session;
mod step;

use core::fmt;

use crate::call::Outcome;
use crate::definition::{Facts, Protocol};
use crate::failure::Failure;
use crate::frame::{Framer, LineEnds, Taken, TooLong};
use crate::json::check::{LineScanner, NO_SPANS, Scanned, Spans, SyntaxError};
use crate::json::write::Writer;
use crate::level::Level;
use crate::manifest::Manifest;
use crate::protocol;
use crate::reply::Reply;
use crate::rpc;
use crate::service::Service;

pub use background::Background;
#[cfg(all(feature = "postcard", feature = "async"))]
pub(crate) use detect::is_answered;
pub use memory::{LEAST_REPLY, Memory, TooSmall};
pub use session::SessionPolicy;
pub(crate) use step::Next;
pub use step::{Run, Step, Work};

use answer::{Answer, about};
use background::Lookahead;
use batch::Batch;
use message::{Kind, Running};
use session::Session;

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
#[repr(C)]
pub struct Engine<'m> {
    // A Cortex-M0+ reaches the first 124 bytes of a structure in one step: what is large comes last.
    state: State,
    /// The protocol of the last message; what cannot be read is answered in it.
    protocol: &'static Protocol,
    session: Session,
    finished: bool,
    /// What is to run has an acknowledgement, which goes first.
    is_deferred: bool,
    /// The least level of logs that the connection's peer wants.
    least_log: Level,
    batch: Option<Batch>,
    memory: &'m mut [u8],
    settings: Settings<'m>,
    /// What was learnt from lines that wait their turn or have been answered already.
    lookahead: Lookahead,
    policy: Option<&'m dyn SessionPolicy>,
    framer: Framer<'m>,
    reply: Reply,
    /// What runs, or ran last: it stays where it is.
    running: Running,
    /// Where the members of the current message are.
    spans: Spans,
    /// What comes in next is checked as it comes.
    scanner: LineScanner,
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

#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    /// [`Step::Write`] was handed out.
    Writing,
    /// [`Engine::running`] runs.
    Running,
    /// A job has its turn.
    Job,
    /// What ran has ended, with this.
    Completed(Done),
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
            running: Running::NOTHING,
            session: Session::Fresh,
            batch: None,
            finished: false,
            protocol,
            lookahead: Lookahead { protocol, cancelled: false },
            policy: None,
            least_log: Level::Debug,
            spans: NO_SPANS,
            scanner: LineScanner::new(),
            is_deferred: false,
        })
    }

    /// With a service that answers its requests beside the extension, also while a call is out.
    #[must_use]
    pub fn with_service(mut self, service: &'m dyn Service) -> Self {
        self.settings.service = Some(service);
        self
    }

    /// For one protocol only: every message is taken as one of it.
    #[must_use]
    pub fn with_protocol(self, protocol: &'static Protocol) -> Self {
        let lookahead = Lookahead { protocol, cancelled: false };
        Self { protocol, lookahead, settings: Settings { pinned: true, ..self.settings }, ..self }
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
    pub fn with_line_ends(mut self, ends: LineEnds) -> Self {
        self.framer = self.framer.with_mode(ends);
        self
    }

    /// With a policy that decides who may start a session, where several connections lead to one extension.
    #[must_use]
    pub fn with_session_policy(mut self, policy: &'m dyn SessionPolicy) -> Self {
        self.policy = Some(policy);
        self
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

    /// Whether the current line is needed again: a batch's until its last member, an acknowledged event's until it
    /// runs.
    fn holds_line(&self) -> bool {
        self.is_deferred || self.batch.is_some()
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
        self.scanner.reset();
        self.state = State::Idle;
        self.session = Session::Fresh;
        self.batch = None;
        self.finished = false;
        if !self.settings.pinned {
            self.protocol = self.settings.protocols.first().copied().unwrap_or(self.protocol);
            self.lookahead.protocol = self.protocol;
        }
        self.is_deferred = false;
        self.least_log = Level::Debug;
        self.lookahead.cancelled = false;
        if let Some(service) = self.settings.service {
            service.disconnected();
        }
        open
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
        if let State::Running = self.state {
            self.complete(&Err(Failure::CANCELLED));
        }
        let mut done = match core::mem::replace(&mut self.state, State::Idle) {
            State::Completed(done) => Some(done),
            State::Writing if core::mem::take(&mut self.is_deferred) => {
                self.state = State::Running;
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
                done if self.batch.is_some() => Some(self.next_of_batch(done)),
                Some(done) => Some(done),
                // A job that was started has its turn before what came after it.
                None if self.settings.service.is_some_and(|service| service.next_job().is_some()) => {
                    // What comes in meanwhile is examined in the background.
                    self.scanner.reset();
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

    /// The protocol of the list that speaks JSON-RPC, the last one spoken if it does.
    fn json_rpc(&self) -> Option<&'static Protocol> {
        core::iter::once(self.protocol)
            .chain(self.settings.protocols.iter().copied())
            .find(|protocol| protocol.is_json_rpc)
    }

    /// Accepts the result of [`Step::Run`].
    pub fn complete(&mut self, result: &Result<Outcome, Failure>) {
        let State::Running = self.state else { return };
        let Running { kind, message, .. } = self.running;
        if core::mem::take(&mut self.lookahead.cancelled) {
            self.reply.silent(0, self.protocol);
        }
        let end = match (kind, result) {
            (Kind::Configure { answer }, Ok(_)) => self.initialized(message, answer),
            (Kind::Event { answer }, _) => self.answer(message, Answer::Respond(answer)),
            // The result of `initialize` is a manifest and nothing else.
            (Kind::Configure { .. }, Err(failure)) => {
                self.not_initialized();
                self.answer(message, Answer::Failure(failure))
            }
            (Kind::Call { .. }, _) => {
                let about = about(self.framer.line(), message, &self.spans, self.settings.manifest);
                self.reply.finish(self.memory, result, &about)
            }
        };
        self.state = State::Completed(if self.reply.is_silent() { Done::Nothing } else { Done::Reply(end) });
    }

    fn facts(&self) -> Facts<'static> {
        let is_closed = self.session.is_shutting_down() || self.session == Session::Ended;
        Facts { manifest: self.settings.manifest, limits: self.settings.limits, is_closed }
    }

    fn next_line(&mut self) -> Option<Done> {
        // The protocol of a line counts for the lines after it, and for none before it: lines that were kept
        // come before the line that was inspected last.
        let was_kept = self.framer.has_kept();
        if !was_kept {
            self.protocol = self.lookahead.protocol;
        }
        let done = self.take_line();
        if !was_kept {
            self.lookahead.protocol = self.protocol;
        }
        done
    }

    fn take_line(&mut self) -> Option<Done> {
        // Most lines are one object: they are checked as they come in, which finds their end too.
        if let Some(lines) = self.framer.unframed() {
            match self.scanner.scan(lines, &self.protocol.members, &mut self.spans) {
                Scanned::Line { whole, length } => {
                    self.framer.take_first(length, whole);
                    return Some(self.message(0, length, true));
                }
                Scanned::Part if !self.finished => return None,
                Scanned::Part | Scanned::Other => {}
            }
        }
        let taken = self.framer.take()?;
        self.scanner.reset();
        match taken {
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
