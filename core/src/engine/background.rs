//! What comes in while something runs: faults, and what may be answered before its turn.

use core::fmt;

use super::detect::{Detected, detect, is_json_rpc, scan};
use super::{LEAST_REPLY, Settings, parse_error};
use crate::definition::{Action, Busy, Facts, Protocol};
use crate::failure::FailureKind;
use crate::frame::Tail;
use crate::json::check::{self, NO_SPANS};
use crate::json::write::Writer;
use crate::phrases::Closing;
use crate::received::{Envelope, Received};
use crate::rpc;
use crate::service::Service;

/// What was learnt from lines that were inspected before their turn.
pub(super) struct Lookahead {
    /// The protocol of the last of them.
    pub(super) protocol: &'static Protocol,
    /// The running call was cancelled by its caller, who gets no reply.
    pub(super) cancelled: bool,
    /// A service has done what a notification asked for, which may concern what runs.
    pub(super) served: bool,
}

/// What goes on behind the line of a [`Run`](super::Run): later lines come in, and faults among them are answered at once. All else
/// waits its turn.
pub struct Background<'s> {
    pub(super) tail: Tail<'s>,
    pub(super) lookahead: &'s mut Lookahead,
    pub(super) settings: &'s Settings<'s>,
    /// The id of the call that is out; empty if it has none.
    pub(super) id: &'s [u8],
}

impl fmt::Debug for Background<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("cancelled", &self.lookahead.cancelled).finish_non_exhaustive()
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
        self.lookahead.cancelled
    }

    /// Whether a notification was carried out since this was asked last.
    #[cfg(feature = "async")]
    pub(crate) fn has_served(&mut self) -> bool {
        core::mem::take(&mut self.lookahead.served)
    }

    /// Inspects the lines that have come in meanwhile. Writes the reply to the next one that need not wait into `memory`,
    /// which must have [`LEAST_REPLY`] bytes, and returns it as a whole line; `None` if all must wait their turn.
    ///
    /// In protocols with ids, faults need not wait, nor what a [`Service`] answers, nor what [`Protocol::busy`] says. Where there
    /// are no ids every reply comes in the order of its line, faults included.
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
        let Self { tail, lookahead: Lookahead { protocol, cancelled, served }, settings, id } = self;
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
                    *served |= request.is_none();
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
    if let Some((service, method, params)) = of_service().filter(|_| protocol.is_json_rpc) {
        let Some(id) = id else {
            // What a notification asks for is done all the same (JSON-RPC 2.0 §4.1).
            service.answer(method, params, &mut Writer::new(&mut []));
            return Some(false);
        };
        (phrases.head)(out, id);
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
