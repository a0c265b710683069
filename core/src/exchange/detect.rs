//! Which protocol a message is of, and where its members are.

use crate::json::Json;
use crate::json::check::{self, NO_SPANS, SLOTS, Spans, SyntaxError};
#[cfg(all(feature = "postcard", feature = "async"))]
use crate::message::Envelope;
use crate::message::Received;
use crate::protocol::define::Protocol;
#[cfg(all(feature = "postcard", feature = "async"))]
use crate::rpc;

/// The kind of a message.
pub(super) enum Detected {
    /// An answer, which gets none.
    Answer(&'static Protocol),
    Message(&'static Protocol),
}

/// Checks a message, and finds its members and its protocol: one of `protocols`, or else `current`,
/// that of the message before. All of them recognise their own answers, also where `is_pinned` says
/// that no other than `current` is spoken.
pub(super) fn detect(
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
#[cfg_attr(target_pointer_width = "64", inline(always))]
pub(super) fn classify(
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
        // Most messages are requests of the same protocol as the one before, and no other member of
        // theirs may be a marker.
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
        // The members that protocols with one marker have in common are found by the table of any
        // of them.
        let mut scanned = current;
        if !found.has_marker_of(current) {
            scanned = found;
            scan(text, found, spans)?;
        }
        found = choose(&Received::whole(text, spans), current, protocols, found);
        if found != scanned {
            scan(text, found, spans)?;
        }
    }
    Ok(Detected::Message(found))
}

/// Chooses one of the protocols with the marker of `found`.
#[cfg_attr(target_pointer_width = "64", inline(always))]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn choose(
    received: &Received<'_>,
    current: &'static Protocol,
    protocols: &[&'static Protocol],
    found: &'static Protocol,
) -> &'static Protocol {
    let mut chosen = None;
    for protocol in protocols.iter().copied().filter(|protocol| protocol.has_marker_of(found)) {
        match protocol.recognise {
            Some(recognise) if recognise(received, protocol == current) => return protocol,
            None if chosen.is_none() => chosen = Some(protocol),
            _ => {}
        }
    }
    chosen.unwrap_or(found)
}

#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(super) fn scan(text: &[u8], protocol: &'static Protocol, spans: &mut Spans) -> Result<(), SyntaxError> {
    *spans = NO_SPANS;
    check::scan(text, &protocol.members, spans)
}

/// Inspects all members of a message: the first protocol whose marker is among them, and whether
/// the message is an answer.
#[inline(never)]
fn inspect(json: Json<'_>, protocols: &[&'static Protocol]) -> (Option<&'static Protocol>, bool) {
    let (mut marked, mut is_request) = (None::<usize>, false);
    for (name, _) in json.members() {
        for (rank, protocol) in protocols.iter().enumerate() {
            let slot = protocol.members.slot(name);
            if slot == Some(0) {
                marked = Some(rank.min(marked.unwrap_or(rank)));
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
pub(super) fn is_json_rpc(array: &[u8]) -> bool {
    Json::of_checked(array).elements().any(|member| member.get("jsonrpc").is_some())
}

/// Whether an engine that speaks these protocols answers a line. It takes a byte-order mark off,
/// and blanks for nothing, as the framer does; a batch that is too long is answered too.
#[cfg(all(feature = "postcard", feature = "async"))]
pub(crate) fn owes_reply(line: &[u8], protocols: &[&'static Protocol]) -> bool {
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
            let received = Received::whole(text, &spans);
            let envelope = (protocol.envelope)(&received);
            !matches!(envelope, Envelope::Notification | Envelope::Reply)
                && (in_batch || !(protocol.stays_open)(&received))
        }
    };
    let json = Json::of_checked(line);
    if json.kind() != crate::json::JsonKind::Array {
        return one(line, false);
    }
    let count = json.elements().count();
    count == 0 || count > rpc::MAX_BATCH || json.elements().any(|member| one(member.as_bytes(), true))
}
