//! Calls whose time limit passes while they wait for their turn.

use super::arrivals::Expired;
use super::background::Peer;
use super::{Background, LEAST_REPLY};
use crate::clock::Instant;
use crate::exchange::{Exchange, Late, Next};
use crate::failure::FailureKind;
use crate::rpc;

impl Background<'_> {
    /// Whether there are lines that were not inspected.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.tail.has_more()
    }

    /// Sets the arrival time of the lines that are inspected from now on.
    #[inline(always)]
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.peer.arrivals.set_now(now);
    }

    /// Sets the name of the operation that runs.
    #[inline(always)]
    pub(crate) fn set_running(&mut self, operation: &'static str) {
        self.peer.arrivals.set_running(operation);
    }

    /// The earliest time at which the limit of a waiting call passes.
    #[inline(always)]
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.peer.arrivals.next_due()
    }

    /// Refuses a waiting call whose time limit has passed, so that it does not run. Writes the reply
    /// as a whole line and returns its length, which is 0 if no call was refused.
    #[inline(never)]
    pub(crate) fn expire(&mut self, now: Instant, memory: &mut [u8]) -> usize {
        let Self { tail, peer: Peer { session, arrivals, .. }, to, .. } = self;
        if memory.len() < LEAST_REPLY {
            arrivals.forget_due();
            return 0;
        }
        while let Some(Expired { nth, waited }) = arrivals.expire(now) {
            let Some(line) = tail.kept(nth) else { continue };
            let (mut session, mut exchange) = (*session, Exchange::new(to));
            let next = match session.receive(to, line, memory, &mut exchange) {
                Next::Run { .. } => {
                    let why = Late { waited, running: Some(arrivals.running()) };
                    exchange.refuse(to, line, memory, FailureKind::Timeout, &why);
                    session.settle(to, line, memory, &mut exchange)
                }
                _ => Next::Nothing,
            };
            line.fill(b' ');
            if let Next::Reply(end) = next {
                return rpc::end_line(memory, end).len();
            }
        }
        0
    }
}
