//! Input while a call runs: faults and some requests are answered before the call ends.

use core::fmt;

use super::LEAST_REPLY;
use super::arrivals::Arrivals;
use crate::exchange::{Inspected, Served, Session, forget};
use crate::frame::InputBehind;
use crate::json::write::Writer;
use crate::rpc;

#[allow(unused_imports, reason = "for the docs")]
use crate::{protocol::Protocol, service::Service};

/// The peer's state, and its actions while something ran.
pub(super) struct Peer {
    pub(super) session: Session,
    /// The running call was cancelled by its caller, who gets no reply.
    pub(super) is_cancelled: bool,
    /// A service has done what a notification asked for, which may concern what runs.
    is_served: bool,
    pub(super) arrivals: Arrivals,
}

impl Peer {
    pub(super) const fn new(session: Session) -> Self {
        Self { session, is_cancelled: false, is_served: false, arrivals: Arrivals::new() }
    }
}

/// The input of a connection while a [`Run`](super::Run) is out. Later lines come in, and faults
/// among them are answered at once. All others wait for their turn.
pub struct Background<'s> {
    pub(super) tail: InputBehind<'s>,
    pub(super) peer: &'s mut Peer,
    pub(super) to: &'s Served<'s>,
    /// The id of the call that is out; empty if it has none.
    pub(super) id: &'s [u8],
}

impl fmt::Debug for Background<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("cancelled", &self.peer.is_cancelled).finish_non_exhaustive()
    }
}

impl Background<'_> {
    /// The memory to read input into. It is empty when no more input fits before the call has
    /// ended.
    pub fn space(&mut self) -> &mut [u8] {
        self.tail.space()
    }

    /// Takes the first `count` bytes of [`space`](Self::space) as input.
    pub fn commit(&mut self, count: usize) {
        self.tail.commit(count);
    }

    /// Takes note of the end of input.
    pub fn finish(&mut self) {
        self.tail.finish();
    }

    /// Whether the caller has cancelled the call that runs. The driver must end the call at once.
    /// It gets no reply.
    pub fn is_cancelled(&self) -> bool {
        self.peer.is_cancelled
    }

    /// Whether a notification was carried out since this was asked last.
    #[cfg(feature = "async")]
    pub(crate) fn has_served(&mut self) -> bool {
        core::mem::take(&mut self.peer.is_served)
    }

    /// Inspects the lines that have come in since the call began. Writes the reply to the next line
    /// that need not wait into `memory`, and returns it as a whole line. Returns `None` if all
    /// lines must wait for their turn, or if `memory` is shorter than [`LEAST_REPLY`] bytes.
    ///
    /// In protocols with ids, three kinds of lines need not wait: faults, requests that a
    /// [`Service`] answers, and messages that [`Protocol::busy`] names. In protocols without ids,
    /// every reply comes in the order of its line, also for faults.
    pub fn answer<'o>(&mut self, memory: &'o mut [u8]) -> Option<&'o [u8]> {
        // Mostly nothing came in meanwhile.
        if memory.len() < LEAST_REPLY || !self.tail.has_more() {
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
        let Self { tail, peer: Peer { session, is_cancelled, is_served, arrivals }, to, id } = self;
        let peeked = tail.peek()?;
        let answered = match session.inspect(to, peeked.line, out, id) {
            None => {
                if Arrivals::ARE_NOTED {
                    arrivals.keep(peeked.line, session.limit_ahead(to, peeked.line));
                }
                peeked.keep();
                return Some(false);
            }
            Some(Inspected::Answered(answered)) => {
                *is_served |= !answered;
                answered
            }
            Some(Inspected::Cancels) => {
                *is_cancelled = true;
                false
            }
            Some(Inspected::Forgets(span)) => {
                forget(peeked.kept, session.ahead, span.of(peeked.line));
                false
            }
        };
        peeked.discard();
        Some(answered)
    }
}
