//! Sessions, from the first request of a connection to `shutdown`, and the policy that decides who
//! may start one.

use super::answer::parse_error;
use super::state::{Done, Exchange, Opened, Stage, Turn};
use super::{Served, detect};
use crate::failure::Failure;
use crate::frame::TooLong;
use crate::json::check::{Span, SyntaxError};
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::protocol::define::Protocol;
use crate::protocol::format::{Log, Logs};
use crate::reply::MADE_SAFE;
use crate::rpc;

/// A policy that decides which connection may start a session, if several connections lead to one
/// extension.
///
/// It is asked only about `initialize`. It cannot refuse a call or a request outside of a session;
/// the extension can.
pub trait SessionPolicy {
    /// Decides whether a host that sends `initialize` may start a session.
    ///
    /// # Errors
    /// The reason why the host may not. The host gets it as the error of its `initialize`.
    fn open(&self) -> Result<(), Failure>;

    /// Takes note that the session was shut down, or did not start after all. The loss of a
    /// connection is not reported here, because the caller of the driver knows it.
    fn close(&self);
}

/// The state of one peer between its messages: its protocol, and whether it has started a session.
#[derive(Debug, Clone, Copy)]
pub struct Session {
    /// The protocol of the last message; what cannot be read is answered in it.
    pub(crate) protocol: &'static Protocol,
    /// The protocol of the last message that was inspected, which may be ahead of its turn.
    pub(crate) ahead: &'static Protocol,
    pub(super) state: State,
    /// The least level of logs that the peer wants.
    pub(super) least_log: Level,
    pub(super) safety: Safety,
}

/// Knowledge of the outputs that the peer has switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Safety {
    /// Something that can change it has run since the session began or the safe state was brought
    /// about.
    pub(super) is_touched: bool,
    /// The safe state was brought about, and no reply has said so.
    pub(super) owes_notice: bool,
}

/// A session runs from its first request to `shutdown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No `initialize` was seen: one-shot use.
    Fresh,
    Initialized,
    /// `shutdown` was taken; its acknowledgement is not out yet.
    ShuttingDown {
        /// The session that is shut down began with `initialize`.
        initialized: bool,
    },
    Ended,
}

/// The next step with a message. A length is that of the text at the start of the reply region, in
/// bytes without a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The message is finished and gets no reply.
    Nothing,
    /// The message is finished, and its reply has this length.
    Reply(usize),
    /// The message is acknowledged, and the acknowledgement has this length. The request stays
    /// open, and no reply comes later.
    StaysOpen(usize),
    /// The extension has to run. [`Exchange::run`] returns the work.
    Run {
        /// Whether a reply follows, as a message of its own or as a member of a batch.
        owes_reply: bool,
    },
    /// An acknowledgement of this length comes before the work. Send it, then call
    /// [`Session::settle`], which returns [`Next::Run`].
    ReplyThenRun(usize),
    /// The session was shut down. Send the acknowledgement of this length, if there is one, then
    /// call [`Session::settle`].
    Shutdown(Option<usize>),
}

impl Session {
    /// The state of a peer that has sent nothing yet.
    pub fn new(to: &Served<'_>) -> Self {
        Self {
            protocol: to.first,
            ahead: to.first,
            state: State::Fresh,
            least_log: Level::Debug,
            safety: Safety::default(),
        }
    }

    /// The protocol of the last message.
    pub fn protocol(&self) -> &'static Protocol {
        self.protocol
    }

    /// Whether a session is open that began with `initialize`. It stays open until the
    /// acknowledgement of its `shutdown` was sent.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Initialized | State::ShuttingDown { initialized: true })
    }

    /// Whether the session was shut down, and no other one has begun since.
    pub fn has_ended(&self) -> bool {
        self.is_closed()
    }

    /// Whether work that [can switch an output on](Exchange::can_change) has run for this peer
    /// since [`safe_state`](crate::Extension::safe_state) ran last. If not, there is nothing to
    /// switch off when a call is cancelled or exceeds its time limit. Work that was
    /// [refused](Failure::refused) does not count.
    pub fn is_touched(&self) -> bool {
        self.safety.is_touched
    }

    /// Takes note that [`safe_state`](crate::Extension::safe_state) has run. The peer's next reply
    /// says so, if its protocol has a place for that.
    pub fn note_made_safe(&mut self) {
        self.safety = Safety { is_touched: false, owes_notice: true };
    }

    /// Whether the peer wants logs at level warning.
    pub fn wants_warnings(&self) -> bool {
        self.least_log <= Level::Warn
    }

    /// Writes the log that tells a peer between its calls that
    /// [`safe_state`](crate::Extension::safe_state) has run. Returns its length without a newline.
    /// Returns 0 if the peer does not want such logs, its protocol has no place for them, or `out`
    /// is too short.
    pub fn write_made_safe(&self, out: &mut [u8]) -> usize {
        self.write_warning(&MADE_SAFE, out)
    }

    /// Writes a log at level warning for a peer between its calls. Returns its length without a
    /// newline. Returns 0 if the peer does not want such logs, its protocol has no place for them,
    /// or `out` is too short.
    pub fn write_warning(&self, message: &dyn Message, out: &mut [u8]) -> usize {
        let Logs::Line(write) = self.protocol.format.logs else { return 0 };
        if !self.wants_warnings() {
            return 0;
        }
        let mut out = Writer::new(out);
        write(&mut out, &Log { level: Level::Warn, message, data: None, received: None });
        if out.fits() { out.len() } else { 0 }
    }

    /// Receives a message: one JSON text, which may have white space and a byte-order mark around
    /// it. `out` is the memory for an answer at once, and must have at least
    /// [`LEAST_REPLY`](super::LEAST_REPLY) bytes. `exchange` may have been used for another message
    /// before.
    ///
    /// For a batch, pass the same `out` until the batch is settled, because all its replies are
    /// collected there.
    pub fn receive(&mut self, to: &Served<'_>, message: &[u8], out: &mut [u8], exchange: &mut Exchange) -> Next {
        exchange.reset();
        if u32::try_from(message.len()).is_err() {
            let limit = u32::MAX as usize;
            return Next::Reply(self.too_long(TooLong { limit, dropped: message.len() }, out));
        }
        let start = if message.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        let mut turn = Turn { to, x: exchange, line: message, out };
        let done = self.take(&mut turn, start);
        self.ahead = self.protocol;
        match self.advance(&mut turn, Some(done)) {
            Next::Reply(end) if turn.x.stays_open(self.protocol, message, start) => Next::StaysOpen(end),
            next => next,
        }
    }

    /// Returns the next step. Call it after [`Exchange::complete`], or after the text of
    /// [`Next::ReplyThenRun`] or [`Next::Shutdown`] was sent.
    pub fn settle(&mut self, to: &Served<'_>, message: &[u8], out: &mut [u8], exchange: &mut Exchange) -> Next {
        if let Stage::Running = exchange.stage {
            exchange.give_up(to, message, out);
        }
        self.completed(to, exchange);
        let done = self.settled(exchange);
        self.advance(&mut Turn { to, x: exchange, line: message, out }, done)
    }

    /// Begins work that the extension does without a request, if some [is
    /// due](Served::is_own_work_due). [`Exchange::run`] returns the work. It has no message and no
    /// reply.
    pub fn own_work(&mut self, to: &Served<'_>, exchange: &mut Exchange) -> Next {
        if !to.is_own_work_due() {
            return Next::Nothing;
        }
        exchange.begin_own_work(to.json_rpc(self.protocol).unwrap_or(self.protocol));
        self.safety.is_touched = true;
        Next::Run { owes_reply: false }
    }

    /// Writes the error reply to a message that was too long to be received. Returns its length, in
    /// bytes.
    pub fn too_long(&self, fault: TooLong, out: &mut [u8]) -> usize {
        let mut out = Writer::new(out);
        self.protocol.begin_parse_error(&mut out);
        rpc::end_too_long(&mut out, fault)
    }

    /// Writes the reply to a text that is not JSON, and returns its length. A blank text needs this,
    /// because [`receive`](Self::receive) ignores it.
    pub fn unreadable(&self, error: SyntaxError, out: &mut [u8]) -> usize {
        parse_error(&mut Writer::new(out), self.protocol, error)
    }

    /// Takes note that the connection is lost, or that a new one begins: forgets what is known of
    /// the peer.
    ///
    /// Returns whether [`safe_state`](crate::Extension::safe_state) must run. It must if a session
    /// that had begun with `initialize` was open. It also must if the peer may have [switched an
    /// output on](Self::is_touched), and its protocol has
    /// [`with_safe_end`](crate::protocol::Protocol::with_safe_end). The extension keeps its
    /// configuration.
    pub fn lost(&mut self, to: &Served<'_>) -> bool {
        let was_open = self.is_open() || self.protocol.ends_safe && self.safety.is_touched;
        *self = Self::new(to);
        if let Some(service) = to.service {
            service.disconnected();
        }
        was_open
    }

    /// Takes the text that begins at `start`: a message or a batch of them.
    // Not in the frame of what calls it, which is below every message.
    #[inline(never)]
    pub(crate) fn take(&mut self, turn: &mut Turn<'_, '_>, start: usize) -> Done {
        let line = turn.line;
        let text = line.get(start..).unwrap_or_default();
        // What is blank is a request that was cancelled while it waited its turn.
        let Some(blanks) = text.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) else {
            return Done::Nothing;
        };
        if text.get(blanks) == Some(&b'[') && (!turn.to.pinned || self.protocol.is_json_rpc) {
            return self.begin_batch(turn, start, start + blanks);
        }
        self.unscanned(turn, start)
    }

    /// Takes the text that begins at `start` as one message.
    pub(super) fn unscanned(&mut self, turn: &mut Turn<'_, '_>, start: usize) -> Done {
        let text = turn.line.get(start..).unwrap_or_default();
        match detect::scan(text, self.protocol, &mut turn.x.spans) {
            Ok(()) => self.message(turn, Span::of_range(start, turn.line.len())),
            Err(error) => Done::Reply(parse_error(&mut turn.whole_writer(), self.protocol, error)),
        }
    }

    /// The outcome of the message, after the work that was handed out; none if no work was.
    #[inline]
    pub(crate) fn settled(&mut self, x: &mut Exchange) -> Option<Done> {
        match core::mem::replace(&mut x.stage, Stage::Idle) {
            Stage::Completed(done) => Some(done),
            Stage::Written if core::mem::take(&mut x.is_deferred) => {
                x.stage = Stage::Running;
                x.reply.silent(self.protocol);
                Some(Done::Run)
            }
            _ => None,
        }
    }

    /// Says what follows when a message, or a member of a batch, has come to this.
    #[inline]
    pub(crate) fn conclude(&mut self, x: &mut Exchange, done: Done) -> Next {
        match done {
            Done::Run => Next::Run { owes_reply: !x.reply.is_silent() },
            Done::Reply(end) => {
                x.stage = Stage::Written;
                if x.is_deferred {
                    Next::ReplyThenRun(end)
                } else if self.is_shutting_down() {
                    Next::Shutdown(Some(end))
                } else {
                    Next::Reply(end)
                }
            }
            Done::Nothing if self.is_shutting_down() => {
                // Where it came as a notification, there is no acknowledgement to wait for.
                self.state = State::Ended;
                Next::Shutdown(None)
            }
            Done::Nothing => Next::Nothing,
        }
    }

    /// Goes on with a batch, after a member that has come to this. Says what its next member that
    /// needs the caller has come to, or the batch as a whole.
    #[inline(never)]
    pub(crate) fn advance_batch(&mut self, turn: &mut Turn<'_, '_>, mut done: Option<Done>) -> Done {
        loop {
            match self.next_of_batch(turn, done.take()) {
                Done::Nothing if turn.x.batch.is_some() => {}
                next => return next,
            }
        }
    }

    fn advance(&mut self, turn: &mut Turn<'_, '_>, done: Option<Done>) -> Next {
        let done = if turn.x.batch.is_some() { self.advance_batch(turn, done) } else { done.unwrap_or(Done::Nothing) };
        self.conclude(turn.x, done)
    }

    fn is_shutting_down(&self) -> bool {
        matches!(self.state, State::ShuttingDown { .. })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_shutting_down() || self.state == State::Ended
    }

    /// Ends the requested work: a session has started, or has not.
    #[inline]
    pub(crate) fn completed(&mut self, to: &Served<'_>, exchange: &mut Exchange) {
        if core::mem::take(&mut exchange.is_refused) {
            self.take_back(exchange);
        }
        if self.safety.owes_notice && exchange.has_given_notice() {
            self.safety.owes_notice = false;
        }
        if exchange.opened != Opened::NotAsked {
            self.configured(to, exchange);
        }
    }

    /// The work of the message was refused: what the peer had switched on before is all there is.
    pub(crate) fn take_back(&mut self, exchange: &Exchange) {
        self.safety.is_touched = exchange.is_touched;
    }

    #[inline(never)]
    fn configured(&mut self, to: &Served<'_>, exchange: &mut Exchange) {
        match core::mem::replace(&mut exchange.opened, Opened::NotAsked) {
            Opened::Yes => self.begin(),
            Opened::No => self.not_initialized(to),
            Opened::NotAsked => {}
        }
    }
}
