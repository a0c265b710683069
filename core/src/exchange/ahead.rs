//! Messages that come in while a call runs: faults and some requests are answered before the call
//! ends.

use super::answer::parse_error;
use super::detect::{Detected, detect, is_json_rpc, scan};
use super::{Served, Session};
use crate::failure::FailureKind;
use crate::json::check::{self, NO_SPANS, Span};
use crate::json::write::{Message, Writer};
use crate::message::{Envelope, Received};
use crate::protocol::define::{Action, Busy, CallAction, Nanos, Protocol, ServerState};
use crate::protocol::format::ReplyFacts;
use crate::rpc;
use crate::service::Service;

/// The treatment of a message that comes in while another one runs or waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// The message waits. Pass it to [`Session::receive`] in its turn.
    Wait,
    /// The message is answered. Its reply in the caller's memory has this length, in bytes.
    Reply(usize),
    /// The message needs no reply and nothing else.
    Nothing,
    /// The message cancels the call that runs. Call [`Exchange::cancel`](super::Exchange::cancel),
    /// and end the call at once.
    Cancel,
    /// The message cancels a request that waits for its turn. The span is the place of that
    /// request's id in the message. Remove the request: it is not run and not answered.
    Forget(Span),
}

/// The text of the failure for a call whose time limit passed before its turn.
#[derive(Debug, Clone, Copy)]
pub struct Late<'l> {
    /// How long the call has waited, in nanoseconds.
    pub waited: u64,
    /// The work that the call waited for, if that still runs.
    pub running: Option<&'l str>,
}

impl Message for Late<'_> {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        let tenths = usize::try_from(self.waited / 100_000_000).unwrap_or(usize::MAX);
        out.raw(b"the time limit passed after ");
        out.usize(tenths / 10);
        out.byte(b'.');
        out.usize(tenths % 10);
        out.raw(b" s in the queue");
        if let Some(running) = self.running {
            out.raw(b": ");
            out.text_part(running);
        }
    }
}

impl Session {
    /// The time limit of a call that waits for its turn, in nanoseconds. The second value says
    /// whether the call may be answered before its turn, as in protocols with ids. Returns none if
    /// the message is not a call, or if its host has set no limit.
    pub fn limit_ahead(&self, to: &Served<'_>, message: &[u8]) -> Option<(u64, bool)> {
        let mut spans = NO_SPANS;
        let found = detect(message, &mut spans, self.ahead, to.protocols, to.pinned, false);
        let Ok(Detected::Message(protocol)) = found else { return None };
        let received = Received::whole(message, &spans);
        if !matches!((protocol.envelope)(&received), Envelope::Request { .. } | Envelope::Notification) {
            return None;
        }
        match (protocol.read)(&received, &to.server(false)) {
            Ok(Action::Call(CallAction { timeout, .. })) if !protocol.has_own_limit => {
                timeout.map(|Nanos(nanos)| (nanos, protocol.has_ids()))
            }
            _ => None,
        }
    }

    /// Whether a message asks for an operation that the manifest does not have.
    pub fn asks_for_unknown_operation(&self, to: &Served<'_>, message: &[u8]) -> bool {
        let mut spans = NO_SPANS;
        let found = detect(message, &mut spans, self.protocol, to.protocols, to.pinned, false);
        let Ok(Detected::Message(protocol)) = found else { return false };
        let received = Received::whole(message, &spans);
        // A method is no operation.
        let except = protocol.is_json_rpc.then_some(rpc::METHOD);
        matches!((protocol.envelope)(&received), Envelope::Request { .. })
            && (protocol.read)(&received, &to.server(false)).is_err_and(|refusal| refusal.is_about_name(except))
    }

    /// Inspects a message that comes in while another one runs. `running` is the JSON text of the
    /// id of the message that runs. If the message need not wait, its reply is written into `out`,
    /// which must have at least [`LEAST_REPLY`](super::LEAST_REPLY) bytes.
    ///
    /// In protocols with ids, three kinds of messages need not wait: faults, requests that a
    /// [`Service`] answers, and messages that [`Protocol::busy`] names. In protocols without ids,
    /// every reply comes in the order of its message, also for faults.
    pub fn look_ahead(&mut self, to: &Served<'_>, message: &[u8], out: &mut [u8], running: &[u8]) -> Ahead {
        let limit = out.len().saturating_sub(1);
        let mut out = Writer::new(out.get_mut(..limit).unwrap_or_default());
        match self.inspect(to, message, &mut out, running) {
            None => Ahead::Wait,
            Some(Inspected::Answered(true)) => Ahead::Reply(out.len()),
            Some(Inspected::Answered(false)) => Ahead::Nothing,
            Some(Inspected::Cancels) => Ahead::Cancel,
            Some(Inspected::Forgets(span)) => Ahead::Forget(span),
        }
    }

    /// Writes an error reply to a request whose extension cannot be reached, in the protocol of the
    /// request. `code` is the error code in JSON-RPC. Returns the length of the reply, which is 0
    /// for a notification. Returns none if the message is not a request: a fault, an answer or a
    /// batch.
    pub fn refuse(
        &mut self,
        to: &Served<'_>,
        message: &[u8],
        out: &mut [u8],
        (kind, code): (FailureKind, i32),
        why: &dyn Message,
    ) -> Option<usize> {
        let mut spans = NO_SPANS;
        if message.trim_ascii_start().first() == Some(&b'[') {
            return None;
        }
        let found = detect(message, &mut spans, self.protocol, to.protocols, to.pinned, false);
        let Ok(Detected::Message(protocol)) = found else { return None };
        let received = Received::whole(message, &spans);
        let id = match (protocol.envelope)(&received) {
            Envelope::Request { id } => received.of(id),
            Envelope::Notification => return Some(0),
            Envelope::Invalid { .. } | Envelope::Reply => return None,
        };
        (self.protocol, self.ahead) = (protocol, protocol);
        let (mut out, format) = (Writer::new(out), protocol.format);
        (format.head)(&mut out, id);
        if protocol.is_json_rpc {
            rpc::begin_error(&mut out, code);
            why.write_escaped(&mut out);
            rpc::end_error(&mut out);
        } else {
            (format.error)(&mut out, kind, None);
            why.write_escaped(&mut out);
            (format.error_end)(&mut out, kind);
            let (received, manifest) = (Some(received), to.manifest);
            let error = Some(kind);
            (format.close)(
                &mut out,
                &ReplyFacts { received, manifest, error, code: None, outputs: (0, 0), has_message: false },
            );
        }
        Some(if out.fits() { out.len() } else { 0 })
    }

    /// Inspects a message; none if it has to wait.
    pub(crate) fn inspect(
        &mut self,
        to: &Served<'_>,
        text: &[u8],
        out: &mut Writer<'_>,
        running: &[u8],
    ) -> Option<Inspected> {
        let protocol = &mut self.ahead;
        let Served { manifest, protocols, pinned, service, limits, .. } = to;
        let answered = |_: usize| Inspected::Answered(true);
        if text.trim_ascii_start().first() == Some(&b'[') {
            let json_rpc = protocol.is_json_rpc;
            if let Err(error) = check::check(text) {
                return json_rpc.then(|| answered(parse_error(out, protocol, error)));
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
                return protocol.busy.map(|_| answered(parse_error(out, protocol, error)));
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
                return Some(answered(rpc::invalid_request(out, received.of(id), text)));
            }
            Envelope::Reply => return None,
        };
        match busy(&received) {
            Busy::Cancel(span) => {
                let other = received.of(span);
                Some(if !other.is_empty() && other == running { Inspected::Cancels } else { Inspected::Forgets(span) })
            }
            busy => {
                let is_ahead = busy == Busy::AnswerIfWhole;
                let server = ServerState { manifest, limits: *limits, is_closed: false, is_ahead };
                answer_at_once(out, protocol, busy, request, &received, &server, *service).map(Inspected::Answered)
            }
        }
    }
}

/// The result of looking at a message that need not wait.
pub(crate) enum Inspected {
    /// The message is done with, and whether something was written.
    Answered(bool),
    Cancels,
    Forgets(Span),
}
/// Answers a request that need not wait, in `out`, and returns whether it wrote something; `None`
/// if it has to wait.
fn answer_at_once(
    out: &mut Writer<'_>,
    protocol: &Protocol,
    busy: Busy,
    id: Option<&[u8]>,
    received: &Received<'_>,
    server: &ServerState<'_>,
    service: Option<&dyn Service>,
) -> Option<bool> {
    let of_service = || {
        let (method, params) = rpc::method_and_params(received)?;
        service.filter(|service| service.owns(method)).map(|service| (service, method, params))
    };
    let format = protocol.format;
    if let Some((service, method, params)) = of_service().filter(|_| protocol.is_json_rpc) {
        let Some(id) = id else {
            // What a notification asks for is done all the same (JSON-RPC 2.0 §4.1).
            service.answer(method, params, &mut Writer::new(&mut []));
            return Some(false);
        };
        (format.head)(out, id);
        service.answer(method, params, out);
    } else if busy == Busy::Answer || server.is_ahead {
        let action = (protocol.read)(received, server);
        match (action, id) {
            (Ok(Action::Ignore), _) | (Ok(Action::Answer(_)) | Err(_), None) => return Some(false),
            (Ok(Action::Answer(answer)), Some(id)) => {
                (format.head)(out, id);
                answer(out, received, server);
            }
            (Err(refusal), Some(id)) => {
                (format.head)(out, id);
                (protocol.refuse)(out, received, refusal, server);
            }
            _ => return None,
        }
    } else {
        return None;
    }
    if !out.fits() || server.is_ahead && out.len() > server.limits.1 {
        out.truncate(0);
        if server.is_ahead {
            return None;
        }
        (format.head)(out, id.unwrap_or_default());
        (format.error)(out, FailureKind::TooLarge, None);
        out.raw(b"reply too large");
        (format.error_end)(out, FailureKind::TooLarge);
        let closing = ReplyFacts {
            received: Some(*received),
            manifest: server.manifest,
            error: Some(FailureKind::TooLarge),
            code: None,
            outputs: (0, 0),
            has_message: false,
        };
        (format.close)(out, &closing);
    }
    Some(true)
}

/// Makes the request with this id blank among lines that wait their turn: it neither runs nor is
/// answered.
#[inline(never)]
pub(crate) fn forget(kept: &mut [u8], protocol: &'static Protocol, id: &[u8]) {
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
