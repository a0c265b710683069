//! The engine: it takes bytes, returns bytes, and hands out calls that its caller runs. It does no
//! input or output, and has no clock. Blocking loops, async loops and a browser are thin drivers
//! around it.

pub(crate) mod arrivals;
mod background;
#[cfg(feature = "async")]
mod expiry;
mod memory;
mod step;

use core::fmt;

use crate::call::Outcome;
use crate::exchange::{Done, Exchange, LEAST_REPLY, Next as Outcomes, Served, Session, SessionPolicy, Stage, Turn};
use crate::failure::Failure;
use crate::frame::{Framer, LineEnds, Taken};
use crate::json::check::{LineScanner, Scanned, Span};
use crate::manifest::Manifest;
use crate::protocol;
use crate::protocol::define::Protocol;
use crate::rpc;
use crate::service::Service;
use background::Peer;

pub use background::Background;
pub use memory::{Memory, TooSmall};
pub(crate) use step::Next;
pub use step::{Run, Step};

/// A protocol engine for one connection at a time. A driver calls [`step`](Self::step) and does
/// what the [`Step`] says.
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
    // A Cortex-M0+ reaches the first 124 bytes of a structure in one step: what is large comes
    // last.
    peer: Peer,
    finished: bool,
    memory: &'m mut [u8],
    to: Served<'m>,
    framer: Framer<'m>,
    /// The message that is worked on, or was last.
    exchange: Exchange,
    /// Checks input as it comes.
    scanner: LineScanner,
}

impl fmt::Debug for Engine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("session", &self.peer.session).finish_non_exhaustive()
    }
}

impl<'m> Engine<'m> {
    /// An engine for an extension with this manifest, which speaks [all protocols](protocol::ALL).
    ///
    /// # Errors
    /// A region of `memory` is too small.
    pub fn new(manifest: &'static Manifest, memory: Memory<'m>) -> Result<Self, TooSmall> {
        Self::with_protocols(manifest, memory, protocol::ALL)
    }

    /// An engine that speaks these protocols. Others are not linked. A message belongs to the first
    /// protocol in the list whose marker it has; see [`Protocol::recognise`] for protocols that
    /// share a marker. A message without a marker belongs to the protocol of the message before. At
    /// the start of a connection it belongs to the first protocol in the list.
    ///
    /// # Errors
    /// A region of `memory` is too small, or the list is empty.
    // In line it would clear its memory by a function for the alignment that its caller happens to
    // have.
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
        let framer = Framer::new(memory.request);
        let limits = (framer.limit(), memory.reply.len().saturating_sub(1));
        let Some(to) = Served::new(manifest, protocols, limits) else { return Err(TooSmall::Protocols) };
        Ok(Self {
            peer: Peer::new(Session::new(&to)),
            finished: false,
            memory: memory.reply,
            framer,
            exchange: Exchange::new(&to),
            scanner: LineScanner::new(),
            to,
        })
    }

    /// Adds a service that answers its own requests, also while a call of the extension runs.
    #[must_use]
    pub fn with_service(mut self, service: &'m dyn Service) -> Self {
        self.to.service = Some(service);
        self
    }

    /// Sets the only protocol. Every message is read as one of this protocol.
    #[must_use]
    pub fn with_protocol(mut self, protocol: &'static Protocol) -> Self {
        self.to.pin(protocol);
        self.peer = Peer::new(Session::new(&self.to));
        self
    }

    /// Limits replies to `bytes`, without the newline, in protocols whose [hosts read lines of a
    /// limited length](Protocol::with_host_line_limit). Of the protocols here that is gevals alone,
    /// whose hosts read lines of at most 65,535 bytes. Replies to batches keep to the limit in every
    /// protocol; all others are limited by the reply region alone. A limit below that of a reply
    /// region of [`LEAST_REPLY`] bytes is raised to it.
    #[must_use]
    pub fn with_host_line_limit(mut self, bytes: usize) -> Self {
        let (request, reply) = self.to.limits;
        self.to.limits = (request, reply.min(bytes.max(LEAST_REPLY - 1)));
        self
    }

    /// Sets the bytes that end a line. On a serial line, a CR alone may end a line, too.
    #[must_use]
    pub fn with_line_ends(mut self, ends: LineEnds) -> Self {
        self.framer = self.framer.with_mode(ends);
        self
    }

    /// Sets a policy that decides which connection may start a session, if several connections lead
    /// to one extension.
    #[must_use]
    pub fn with_session_policy(mut self, policy: &'m dyn SessionPolicy) -> Self {
        // In its place: an engine is large, and would be copied on the stack.
        self.to.policy = Some(policy);
        self
    }

    /// The memory to read input into. It is empty only while lines wait for calls of
    /// [`step`](Self::step).
    #[cfg_attr(target_pointer_width = "64", inline)]
    pub fn space(&mut self) -> &mut [u8] {
        if self.holds_line() { self.framer.held().1.into_space() } else { self.framer.space() }
    }

    /// Takes the first `count` bytes of [`space`](Self::space) as input.
    #[cfg_attr(target_pointer_width = "64", inline)]
    pub fn commit(&mut self, count: usize) {
        if self.holds_line() {
            self.framer.held().1.commit(count);
        } else {
            self.framer.commit(count);
        }
    }

    /// Whether the current line is needed again: a batch's until its last member, an acknowledged
    /// event's until it runs.
    fn holds_line(&self) -> bool {
        self.exchange.is_deferred || self.exchange.batch.is_some()
    }

    /// Takes note of the end of input. A last line without a newline is a line, too. After all
    /// lines, [`step`](Self::step) returns [`Step::End`].
    pub fn finish(&mut self) {
        self.framer.finish();
        self.finished = true;
    }

    /// Prepares for a new connection, or for the end of this one: forgets a partial line and
    /// everything that waits.
    ///
    /// Returns whether [`safe_state`](crate::Extension::safe_state) must run: a session that had
    /// begun with `initialize` was open. The extension keeps its configuration.
    pub fn disconnect(&mut self) -> bool {
        self.framer.reset();
        self.scanner.reset();
        self.exchange.reset();
        self.peer.is_cancelled = false;
        self.peer.arrivals.clear();
        self.finished = false;
        self.peer.session.lost(&self.to)
    }

    /// Continues after [`finish`](Self::finish): the end of input was a pause.
    #[doc(hidden)]
    pub fn resume(&mut self) {
        self.framer.reset();
        self.scanner.reset();
        self.peer.arrivals.clear();
        self.finished = false;
    }

    /// The state of the session with the peer.
    #[doc(hidden)]
    pub fn session(&self) -> &Session {
        &self.peer.session
    }

    /// Whether a session is open that began with `initialize`. It stays open until the
    /// acknowledgement of its `shutdown` was sent.
    pub fn is_session_open(&self) -> bool {
        self.peer.session.is_open()
    }

    /// Whether something has run for the peer that may have switched an output on, since
    /// [`safe_state`](crate::Extension::safe_state) ran last. See [`Session::is_touched`].
    pub fn is_touched(&self) -> bool {
        self.peer.session.is_touched()
    }

    /// Takes note that the caller has run [`safe_state`](crate::Extension::safe_state) without a
    /// [disconnect](Self::disconnect). The peer's next reply says so, if its protocol has a place
    /// for that.
    pub fn note_made_safe(&mut self) {
        self.peer.session.note_made_safe();
    }

    /// Whether the extension's safe state switches anything off.
    pub(crate) fn has_safe_state(&self) -> bool {
        self.to.manifest.has_safe_state
    }

    /// Whether members of a batch are still to be answered.
    #[cfg(feature = "async")]
    pub(crate) fn is_in_batch(&self) -> bool {
        self.exchange.batch.is_some()
    }

    /// The length of the longest line that is accepted, and of the longest that is sent in
    /// JSON-RPC, in bytes without newlines.
    pub fn limits(&self) -> (usize, usize) {
        self.to.limits
    }

    /// Advances the state machine until it needs the caller.
    ///
    /// The line of the last [`Step::Write`] counts as written. A [`Step::Run`] that was not
    /// [completed](Self::complete) counts as cancelled.
    pub fn step(&mut self) -> Step<'_> {
        match self.next() {
            Next::Read => Step::Read,
            Next::Write(end) => Step::Write(self.line(end)),
            Next::Run => self.run_as(|| Step::Read, Step::Run),
            Next::Shutdown => Step::Shutdown,
            Next::End => Step::End,
        }
    }

    /// [`step`](Self::step) for the drivers in this crate: only the kind of the step. What a
    /// [`Run`] is made of is large, and made by [`run`](Self::run) where it stays.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub(crate) fn next(&mut self) -> Next {
        if let Stage::Running = self.exchange.stage {
            self.give_up();
        }
        let mut done = self.peer.session.settled(&mut self.exchange);
        loop {
            let came = if self.exchange.batch.is_some() {
                let (session, mut turn) = self.turn();
                session.advance_batch(&mut turn, done)
            } else {
                done.unwrap_or(Done::Nothing)
            };
            match self.peer.session.conclude(&mut self.exchange, came) {
                Outcomes::Nothing => {}
                Outcomes::Reply(end)
                | Outcomes::StaysOpen(end)
                | Outcomes::ReplyThenRun(end)
                | Outcomes::Shutdown(Some(end)) => return Next::Write(end),
                Outcomes::Run { .. } => return Next::Run,
                Outcomes::Shutdown(None) => return Next::Shutdown,
            }
            // What is due has its turn before what came after it.
            if let Outcomes::Run { .. } = self.peer.session.own_work(&self.to, &mut self.exchange) {
                // What comes in meanwhile is examined in the background.
                self.scanner.reset();
                return Next::Run;
            }
            done = self.next_line();
            if done.is_none() {
                return if self.finished { Next::End } else { Next::Read };
            }
        }
    }

    /// The line that ends at the position in [`Next::Write`].
    pub(crate) fn line(&mut self, end: usize) -> &[u8] {
        rpc::end_line(self.memory, end)
    }

    /// Takes the result of the work that [`Step::Run`] handed out.
    pub fn complete(&mut self, result: &Result<Outcome, Failure>) {
        if self.peer.is_cancelled {
            self.peer.is_cancelled = false;
            self.exchange.cancel();
        }
        self.exchange.complete(&self.to, self.framer.line(), self.memory, result);
        self.peer.session.completed(&self.to, &mut self.exchange);
    }

    /// Takes note of how the work has ended, before [`complete`](Self::complete). Returns whether it
    /// was refused and no output may be on from before.
    pub(crate) fn is_undone(&mut self, result: &Result<Outcome, Failure>) -> bool {
        let is_refused = result.as_ref().is_err_and(Failure::is_refusal);
        if is_refused {
            self.peer.session.take_back(&self.exchange);
        }
        is_refused && !self.is_touched()
    }

    /// The arrival time of the line whose work is next. Returns none if the line has not waited.
    #[cfg(feature = "async")]
    #[inline]
    pub(crate) fn arrival(&mut self, now: impl FnOnce() -> crate::clock::Instant) -> Option<crate::clock::Instant> {
        self.peer.arrivals.arrival(self.exchange.batch.is_some(), now)
    }

    /// Ends work that was given out and not completed.
    #[cold]
    fn give_up(&mut self) {
        self.complete(&Err(Failure::CANCELLED));
    }

    /// The work that [`Next::Run`] announced, as parts of the memory.
    // In line, its parts need not be written to be read again.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub(crate) fn run(&mut self) -> Option<Run<'_>> {
        self.run_as(|| None, Some)
    }

    /// [`run`](Self::run), as a part of another value: what is made of a [`Run`] that was returned
    /// is a copy of it.
    #[inline(always)]
    fn run_as<'s, T>(&'s mut self, nothing: impl Fn() -> T, take: impl Fn(Run<'s>) -> T) -> T {
        if let Stage::OwnWork = self.exchange.stage {
            // The line before it is done with.
            let _ = self.framer.space();
        }
        let (line, tail) = self.framer.held();
        let (peer, to) = (&mut self.peer, &self.to);
        self.exchange.start(to, line, self.memory, nothing, |work, reply, id| {
            take(Run { work, reply, background: Background { tail, peer, to, id } })
        })
    }

    /// The message that is worked on.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn turn(&mut self) -> (&mut Session, Turn<'_, 'm>) {
        let turn = Turn { to: &self.to, x: &mut self.exchange, line: self.framer.line(), out: &mut *self.memory };
        (&mut self.peer.session, turn)
    }

    /// Takes the line that was scanned, of this length.
    // Not in the frame of what scans.
    #[inline(never)]
    fn message(&mut self, length: usize) -> Done {
        let (session, mut turn) = self.turn();
        let message = Span::of_range(0, length);
        if cfg!(target_pointer_width = "64") {
            session.message_in_line(&mut turn, message)
        } else {
            session.message(&mut turn, message)
        }
    }

    fn next_line(&mut self) -> Option<Done> {
        // The protocol of a line counts for the lines after it, and for none before it: lines that were kept
        // come before the line that was inspected last.
        let was_kept = self.framer.has_kept();
        self.peer.arrivals.take(was_kept);
        if !was_kept {
            self.peer.session.protocol = self.peer.session.ahead;
        }
        let done = self.take_line();
        if !was_kept {
            self.peer.session.ahead = self.peer.session.protocol;
        }
        done
    }

    fn take_line(&mut self) -> Option<Done> {
        // Most lines are one object: they are checked as they come in, which finds their end too.
        if let Some(lines) = self.framer.unframed() {
            match self.scanner.scan(lines, &self.peer.session.protocol.members, &mut self.exchange.spans) {
                Scanned::Line { whole, length } => {
                    self.framer.take_first(length, whole);
                    return Some(self.message(length));
                }
                Scanned::Part if !self.finished => return None,
                Scanned::Part | Scanned::Other => {}
            }
        }
        let taken = self.framer.take()?;
        self.scanner.reset();
        match taken {
            Taken::TooLong(fault) => Some(Done::Reply(self.peer.session.too_long(fault, self.memory))),
            Taken::Line(..) => {
                let (session, mut turn) = self.turn();
                Some(session.take(&mut turn, 0))
            }
        }
    }
}
