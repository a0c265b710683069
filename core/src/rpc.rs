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

pub use crate::answer::{Incoming, answer, answer_too_long};
use crate::json::check::{self, Key, Level, Span, SyntaxError};
use crate::json::view::{Json, Kind, Text};
use crate::json::write::{Message, Writer};
use crate::protocol::gevals;

/// Invalid JSON was received.
pub const PARSE_ERROR: i32 = -32700;
/// The JSON is not a valid request.
pub const INVALID_REQUEST: i32 = -32600;
/// There is no such method, or no such operation.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The method's parameters are invalid.
pub const INVALID_PARAMS: i32 = -32602;
/// Internal error.
pub const INTERNAL_ERROR: i32 = -32603;

/// The longest id, in bytes of its JSON text, quotes and escapes included. A request whose id is longer gets
/// [`INVALID_REQUEST`] with id null.
pub const MAX_ID: usize = 400;

/// The most members of a batch. One that has more gets one [`INVALID_REQUEST`], and none of it runs.
pub const MAX_BATCH: usize = 64;

pub(crate) const JSONRPC: usize = 0;
pub(crate) const ID: usize = 1;
pub(crate) const METHOD: usize = 2;
pub(crate) const PARAMS: usize = 3;
pub(crate) const RESULT: usize = 4;
pub(crate) const ERROR: usize = 5;
/// What tells the other protocols apart, see [`Protocol`](crate::protocol::Protocol).
pub(crate) const OP: usize = 6;
pub(crate) const PROTOCOL_VERSION: usize = 7;
/// What makes a message of the other protocols an answer, where it is not a request of theirs.
const OK: usize = 8;
const TOOL: usize = 9;
/// Slots from here on belong to a protocol's own members.
pub(crate) const FIRST_FREE: usize = 10;

/// The members of a message, in the order in which peers send them.
static ENVELOPE: Level = Level::of(&[
    Key::new("jsonrpc", JSONRPC, None),
    Key::new("id", ID, None),
    Key::new("method", METHOD, None),
    Key::new("params", PARAMS, Some(&gevals::PARAMS)),
    Key::new("result", RESULT, None),
    Key::new("error", ERROR, None),
    Key::new("op", OP, None),
    Key::new("protocol_version", PROTOCOL_VERSION, None),
    Key::new("ok", OK, None),
    Key::new("tool", TOOL, None),
    Key::new("tool_name", TOOL, None),
]);

/// Where the members of one message stand in its text.
pub(crate) type Spans = [Span; gevals::SLOTS];

/// No members at all.
pub(crate) const NO_SPANS: Spans = [Span { start: 0, end: 0 }; gevals::SLOTS];

/// Checks one message and finds its members.
pub(crate) fn scan(text: &[u8], spans: &mut Spans) -> Result<(), SyntaxError> {
    *spans = NO_SPANS;
    check::scan(text, &ENVELOPE, spans)
}

/// What a message is, by its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Envelope {
    /// A request, to be answered with its id.
    Request,
    /// A request without an id: run it, and say nothing (§4.1).
    Notification,
    /// A reply: it is nobody's to answer.
    Reply,
    /// -32600. The id is echoed where it is usable.
    Invalid { text: &'static str, id_is_usable: bool },
}

/// Whether a message is itself an answer, of any protocol: it gets silence, so that two endpoints, or a device on a line
/// that echoes, do not answer each other without end.
///
/// `result`, `error` or `ok` make an answer of what names neither a method nor an operation nor a tool; so does the whole
/// of what Amplifier's `health` and `describe` answer.
pub(crate) fn is_answer(text: &[u8], spans: &Spans) -> bool {
    let is_there = |slot: usize| spans.get(slot).is_some_and(|span| !span.is_absent());
    if [METHOD, OP, TOOL].into_iter().any(is_there) {
        return false;
    }
    if [RESULT, ERROR].into_iter().any(is_there) {
        return true;
    }
    if is_there(JSONRPC) {
        return false;
    }
    if is_there(OK) {
        return true;
    }
    if is_there(PROTOCOL_VERSION) {
        return false;
    }
    let json = Json::of_checked(text);
    json.get("status").and_then(|status| status.text()).is_some_and(|status| status == "ok")
        || json.get("capabilities").is_some_and(|list| list.kind() == Kind::Array)
}

/// Looks at the members that JSON-RPC itself defines (§4).
pub(crate) fn classify(text: &[u8], spans: &Spans) -> Envelope {
    let [jsonrpc, id, method, _, result, error, ..] = *spans;
    let id = id.of(text);
    let id_is_usable = match id {
        [b'"' | b'-' | b'0'..=b'9' | b'n', ..] => id.len() <= MAX_ID,
        _ => false,
    };
    let invalid = |text| Envelope::Invalid { text, id_is_usable };
    if text.trim_ascii_start().first() != Some(&b'{') {
        return invalid("a request must be an object");
    }
    if method.is_absent() {
        if !result.is_absent() || !error.is_absent() {
            return Envelope::Reply;
        }
        return invalid("the member method is missing");
    }
    if !is_version_2(jsonrpc.of(text)) {
        return invalid("the member jsonrpc must be \"2.0\"");
    }
    match method.of(text) {
        [b'"', ..] => {}
        _ => return invalid("the member method must be a string"),
    }
    match (id, id_is_usable) {
        ([], _) => Envelope::Notification,
        (_, true) => Envelope::Request,
        ([b'"' | b'-' | b'0'..=b'9', ..], false) => invalid("the id is longer than 400 bytes"),
        _ => invalid("the id must be a string, a number or null"),
    }
}

/// The JSON text of a message's id; empty where there is none.
pub(crate) fn id<'t>(text: &'t [u8], spans: &Spans) -> &'t [u8] {
    member(text, spans, ID)
}

/// The JSON text of a member's value; empty where there is none.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(crate) fn member<'t>(text: &'t [u8], spans: &Spans, slot: usize) -> &'t [u8] {
    spans.get(slot).map_or(&[], |span| span.of(text))
}

/// [`is_answer`] for a line that is JSON and was not scanned yet.
#[cfg(all(feature = "postcard", feature = "async"))]
pub(crate) fn is_answer_line(line: &[u8]) -> bool {
    let mut spans = NO_SPANS;
    scan(line, &mut spans).is_ok() && is_answer(line, &spans)
}

/// Whether a line brings a reply, in whatever protocol: all do but notifications, replies, and batches of these.
#[cfg(all(feature = "postcard", feature = "async"))]
pub(crate) fn is_answered(line: &[u8]) -> bool {
    let mut spans = NO_SPANS;
    let mut one = |text: &[u8]| {
        scan(text, &mut spans).is_ok()
            && match spans {
                // No JSON-RPC: the other protocols answer everything.
                [jsonrpc, _, _, _, result, error, ..] if jsonrpc.is_absent() => result.is_absent() && error.is_absent(),
                _ => !matches!(classify(text, &spans), Envelope::Notification | Envelope::Reply),
            }
    };
    if line.iter().all(u8::is_ascii_whitespace) {
        return false;
    }
    if crate::json::check::check(line).is_err() {
        return true;
    }
    let json = crate::json::Json::of_checked(line);
    if json.kind() != crate::json::Kind::Array {
        return one(line);
    }
    json.elements().next().is_none() || json.elements().any(|member| one(member.as_bytes()))
}

/// Whether a line that an engine or its driver wrote is a log: a transport may drop it where nobody reads. Other
/// notifications, such as `eval.complete`, must arrive as replies must.
pub fn is_log_line(line: &[u8]) -> bool {
    let rest = line.strip_prefix(b"{\"jsonrpc\":\"2.0\",\"method\":\"").unwrap_or_default();
    rest.starts_with(b"log\"") || rest.starts_with(b"eval.log\"")
}

/// Whether a line that an engine or its driver wrote is a notification, and answers no request.
pub fn is_notification_line(line: &[u8]) -> bool {
    line.starts_with(b"{\"jsonrpc\":\"2.0\",\"method\":")
}

/// Whether the JSON text of the member `jsonrpc` is the one that §4 and §5 ask for.
pub(crate) fn is_version_2(value: &[u8]) -> bool {
    value == b"\"2.0\"" || string(value).is_some_and(|version| version == "2.0")
}

/// The string whose JSON text, quotes included, is `value`.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(crate) fn string(value: &[u8]) -> Option<Text<'_>> {
    match value {
        [b'"', raw @ .., b'"'] => Some(Text::of_checked(raw)),
        _ => None,
    }
}

/// `{"jsonrpc":"2.0","id":…`, without an end.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(crate) fn write_head(out: &mut Writer<'_>, id: &[u8]) {
    out.raw(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.raw(if id.is_empty() { b"null" } else { id });
}

/// `,"error":{"code":…,"message":"`: what makes an error reply of [`write_head`], up to where its text goes.
pub(crate) fn begin_error(out: &mut Writer<'_>, code: i32) {
    out.raw(b",\"error\":{\"code\":");
    out.i32(code);
    out.raw(b",\"message\":\"");
}

/// What closes an error reply behind its text.
pub(crate) fn end_error(out: &mut Writer<'_>) {
    out.raw(b"\"}}");
}

/// A name that a peer said, in an error text: shortened where it is long.
pub(crate) struct Quoted<'a>(pub(crate) Text<'a>);

impl Message for Quoted<'_> {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        const LONGEST: usize = 64;
        for (count, char) in self.0.chars().enumerate() {
            if count == LONGEST {
                return out.text_part("…");
            }
            out.char(char);
        }
    }
}
