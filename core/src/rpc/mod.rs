//! JSON-RPC 2.0: envelopes, codes, batches.
//!
//! | code | name | section |
//! |---|---|---|
//! | -32700 | Parse error | §5.1 |
//! | -32600 | Invalid Request | §5.1 |
//! | -32601 | Method not found | §5.1 |
//! | -32602 | Invalid params | §5.1 |
//! | -32603 | Internal error | §5.1 |
//! | -32099 to -32000 | Server error, each protocol's own | §5.1 |

mod answer;

pub use answer::{Incoming, answer, answer_too_long};

use crate::frame::TooLong;
use crate::json::check::{self, NO_SPANS, Span, Spans, SyntaxError, WatchedMember, WatchedMembers};
use crate::json::write::{Message as _, Writer};
use crate::json::{Json, Text};
use crate::message::{Code, Envelope, Received, Refusal};
use crate::protocol::define::{Busy, Protocol, Read, ServerState};
use crate::protocol::format::ReplyFormat;

/// The error code for a text that is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The error code for JSON that is not a valid request.
pub const INVALID_REQUEST: i32 = -32600;
/// The error code for an unknown method or operation.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The error code for invalid parameters of a method.
pub const INVALID_PARAMS: i32 = -32602;
/// The error code for a fault of the server itself, or a reply that does not fit.
pub const INTERNAL_ERROR: i32 = -32603;

/// The greatest length of an id, in bytes of its JSON text with quotes and escapes. A request with
/// a longer id gets [`INVALID_REQUEST`] with id null.
pub const MAX_ID: usize = 400;

/// The greatest number of members of a batch. A longer batch gets one [`INVALID_REQUEST`], and none
/// of it runs.
pub const MAX_BATCH: usize = 64;

/// The slot of the member `jsonrpc`.
pub const JSONRPC: usize = 0;
/// The slot of the member `id`.
pub const ID: usize = 1;
/// The slot of the member `method`.
pub const METHOD: usize = 2;
/// The slot of the member `params`.
pub const PARAMS: usize = 3;
pub(crate) const RESULT: usize = 4;
pub(crate) const ERROR: usize = 5;
/// The first slot for the members of `params`, and for other members of a protocol.
pub const FIRST_FREE: usize = 6;

/// The members of a JSON-RPC message in the order in which peers send them, with the given members
/// of a protocol below `params`.
pub const fn members(params: &'static WatchedMembers) -> [WatchedMember; FIRST_FREE] {
    [
        WatchedMember::new("jsonrpc", JSONRPC),
        WatchedMember::new("id", ID),
        WatchedMember::new("method", METHOD),
        WatchedMember::new("params", PARAMS).with_members(params),
        WatchedMember::new("result", RESULT),
        WatchedMember::new("error", ERROR),
    ]
}

static NO_MEMBERS: WatchedMembers = WatchedMembers::new(&[]);
static ENVELOPE: [WatchedMember; FIRST_FREE] = members(&NO_MEMBERS);
static MEMBERS: WatchedMembers = WatchedMembers::new(&ENVELOPE);

/// Checks one message and finds the members of its envelope.
pub(crate) fn scan(text: &[u8], spans: &mut Spans) -> Result<(), SyntaxError> {
    *spans = NO_SPANS;
    check::scan(text, &MEMBERS, spans)
}

impl Protocol {
    /// A protocol over JSON-RPC 2.0, with the members of [`rpc::members`](members). It has ids,
    /// notifications and batches. Faults are answered while a call runs.
    pub const fn json_rpc(
        name: &'static str,
        members: &'static [WatchedMember],
        format: &'static ReplyFormat,
        read: Read,
    ) -> Self {
        Self {
            envelope,
            busy: Some(|_| Busy::Wait),
            is_json_rpc: true,
            ..Self::new(name, members, METHOD, format, read, refuse)
        }
    }
}

/// Writes a refusal behind the head of its reply.
pub(crate) fn refuse(out: &mut Writer<'_>, received: &Received<'_>, refusal: &Refusal, _: &ServerState<'_>) {
    begin_error(out, if let Code::Number(code) = refusal.code { code } else { INTERNAL_ERROR });
    refusal.write_text(out, received);
    end_error(out);
}

/// Writes the whole error reply to a message that is not a request.
pub(crate) fn invalid_request(out: &mut Writer<'_>, id: &[u8], fault: &str) -> usize {
    write_head(out, id);
    begin_error(out, INVALID_REQUEST);
    out.raw(b"Invalid Request: ");
    out.text_part(fault);
    end_error(out);
    out.len()
}

/// Inspects the members that JSON-RPC itself defines (§4).
pub(crate) fn envelope(received: &Received<'_>) -> Envelope {
    let (method, id_span) = (received.span(METHOD), received.span(ID));
    let id = received.member(ID);
    let id_is_usable = match id {
        [b'"' | b'-' | b'0'..=b'9' | b'n', ..] => id.len() <= MAX_ID,
        _ => false,
    };
    let invalid = |text| Envelope::Invalid { text, id: if id_is_usable { id_span } else { Span::default() } };
    if method.is_absent() {
        // Only an object has members.
        if !received.is_object() {
            return invalid("a request must be an object");
        }
        if !received.span(RESULT).is_absent() || !received.span(ERROR).is_absent() {
            return Envelope::Reply;
        }
        return invalid("the member method is missing");
    }
    if !is_version_2(received.member(JSONRPC)) {
        return invalid("the member jsonrpc must be \"2.0\"");
    }
    if received.first(METHOD) != b'"' {
        return invalid("the member method must be a string");
    }
    match (id, id_is_usable) {
        ([], _) => Envelope::Notification,
        (_, true) => Envelope::Request { id: id_span },
        ([b'"' | b'-' | b'0'..=b'9', ..], false) => invalid("the id is longer than 400 bytes"),
        _ => invalid("the id must be a string, a number or null"),
    }
}

/// The method and the parameters of a request; null where there are none.
pub(crate) fn method_and_params<'t>(received: &Received<'t>) -> Option<(Text<'t>, Json<'t>)> {
    Some((received.string(METHOD)?, received.json(PARAMS).unwrap_or(Json::NULL)))
}

/// Whether a line that an engine or its driver has written is a log. A transport may drop a log if
/// the other end does not read. Other notifications, such as `eval.complete`, must arrive, as
/// replies must.
pub fn is_log_line(line: &[u8]) -> bool {
    let rest = line.strip_prefix(b"{\"jsonrpc\":\"2.0\",\"method\":\"").unwrap_or_default();
    rest.starts_with(b"log\"") || rest.starts_with(b"eval.log\"")
}

/// Whether a line that an engine or its driver wrote is a notification, and answers no request.
#[cfg(all(feature = "postcard", feature = "async"))]
pub(crate) fn is_notification_line(line: &[u8]) -> bool {
    line.starts_with(b"{\"jsonrpc\":\"2.0\",\"method\":")
}

/// Whether the JSON text of the member `jsonrpc` is the one that §4 and §5 ask for.
pub(crate) fn is_version_2(value: &[u8]) -> bool {
    value == b"\"2.0\"" || crate::message::string(value).is_some_and(|version| version == "2.0")
}

/// Writes the beginning of a reply: `{"jsonrpc":"2.0","id":…`. An empty `id` is written as null.
#[inline(never)]
pub fn write_head(out: &mut Writer<'_>, id: &[u8]) {
    out.raw(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.raw(if id.is_empty() { b"null" } else { id });
}

/// Writes the beginning of an error, `,"error":{"code":…,"message":"`, after [`write_head`] and
/// before the error's text.
pub fn begin_error(out: &mut Writer<'_>, code: i32) {
    out.raw(b",\"error\":{\"code\":");
    out.i32(code);
    out.raw(b",\"message\":\"");
}

/// Writes the end of an error reply, after its text.
pub fn end_error(out: &mut Writer<'_>) {
    out.raw(b"\"}}");
}

/// Room that is kept for the error that stands in for a reply that does not fit, its id apart.
pub(crate) const ERROR_ROOM: usize = 160;

/// Room to keep for the reply to a batch's member, with the comma before it.
pub(crate) fn reserve(member: &Received<'_>) -> usize {
    match envelope(member) {
        Envelope::Request { id } | Envelope::Invalid { id, .. } => ERROR_ROOM + 1 + member.of(id).len(),
        Envelope::Notification | Envelope::Reply => 0,
    }
}

/// Checks a batch. Returns the room to keep for its replies, or why it is refused.
pub(crate) fn reserve_for_batch(
    batch: &[u8],
    limit: usize,
    spans: &mut Spans,
) -> Result<Result<usize, &'static str>, SyntaxError> {
    let (mut members, mut room) = (0, 0);
    check::scan_array(batch, &MEMBERS, spans, &mut |member, spans| {
        members += 1;
        room += reserve(&Received::whole(member, spans));
    })?;
    Ok(match members {
        0 => Err("an empty batch"),
        1..=MAX_BATCH if room + 2 <= limit => Ok(room),
        1..=MAX_BATCH => Err("a batch whose replies may not fit the reply buffer"),
        _ => Err("a batch of more than 64 members"),
    })
}

/// Where the next member of a batch is that was checked, and what is in it; see
/// [`check::scan_next_element`].
pub(crate) fn next_member(batch: &[u8], from: usize, spans: &mut Spans) -> Option<core::ops::Range<usize>> {
    check::scan_next_element(batch, from, &MEMBERS, spans)
}

/// A writer on `memory` before `limit`, at `start`.
pub(crate) fn writer(memory: &mut [u8], start: usize, limit: usize) -> Writer<'_> {
    let limit = limit.min(memory.len());
    Writer::at(memory.get_mut(..limit).unwrap_or_default(), start)
}

/// Writes the text of the error reply to a line that is too long, and ends the reply.
pub(crate) fn end_too_long(out: &mut Writer<'_>, TooLong { limit, dropped, .. }: TooLong) -> usize {
    out.raw(b"line too long: ");
    out.usize(dropped);
    out.raw(b" bytes, the limit is ");
    out.usize(limit);
    end_error(out);
    out.len()
}

/// Writes the text of the error reply to a line that is not JSON, and ends the reply.
pub(crate) fn end_parse_error(out: &mut Writer<'_>, SyntaxError { kind, offset }: SyntaxError) -> usize {
    out.raw(b"Parse error: ");
    kind.write_escaped(out);
    out.raw(b" at byte ");
    out.usize(offset);
    end_error(out);
    out.len()
}

/// Ends the line in `memory` that goes up to `end`.
pub(crate) fn end_line(memory: &mut [u8], end: usize) -> &[u8] {
    if let Some(place) = memory.get_mut(end) {
        *place = b'\n';
    }
    memory.get(..=end).unwrap_or_default()
}
