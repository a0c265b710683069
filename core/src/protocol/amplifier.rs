//! Amplifier Module Protocol v1: `health`, `describe`, `invoke`, and `on_event` for hooks.
//!
//! On lines, which the text does not define, each is an invoke input `{"op":…,"args":…,"session_id":…}`. The ops `health`
//! and `describe` answer as those operations do; `{"op":"invoke","args":{"op":…,"args":…}}` is the same call spelt out. A
//! member `id`, if there, comes back unchanged. One line in, one line out, in order; but while a call is out, an async shell
//! answers `health`, and what it cannot read, at once.

use core::time::Duration;

use super::{Request, gevals};
use crate::event::{Event, EventError};
use crate::failure::FailureKind;
use crate::json::check::{self, Key, Level, Parts, Span, SyntaxError};
use crate::json::view::{Json, Text};
use crate::json::write::{Message as _, Writer};
use crate::manifest::{Kind, Manifest};
use crate::phrases::{Codes, Failed, Head, Outputs, Phrases};
use crate::rpc::{self, MAX_ID, Quoted};

/// The fixed parts of its replies.
pub(crate) static PHRASES: Phrases = Phrases {
    head: Head::Plain,
    success: b"\"ok\":true,\"result\":{",
    outputs: Outputs::Json,
    failed: Failed::Error(b"\"ok\":false,\"error\":{\"details\":{"),
    error: b"\"ok\":false,\"error\":{\"code\":\"",
    codes: Codes::Names(code),
    error_end: b"\"",
    forbidden_end: b"\"",
    parse_error: b"\"ok\":false,\"error\":{\"code\":\"bad_request\",\"message\":\"",
};

/// How long an invoke may take, unless somebody says otherwise (the sibling texts' default).
pub const TIMEOUT: Duration = Duration::from_secs(30);

const OP: usize = 0;
const ARGS: usize = 1;
const SESSION: usize = 2;
const ID: usize = 3;
const INNER_OP: usize = 4;
const INNER_ARGS: usize = 5;
const INNER_SESSION: usize = 6;
const SLOTS: usize = 7;

static MEMBERS: Level = Level::of(&[
    Key::new("op", OP, None),
    Key::new("args", ARGS, Some(&INNER)),
    Key::new("session_id", SESSION, None),
    Key::new("id", ID, None),
]);

static INNER: Level = Level::of(&[
    Key::new("op", INNER_OP, None),
    Key::new("args", INNER_ARGS, None),
    Key::new("session_id", INNER_SESSION, None),
]);

const _: () = assert!(SLOTS <= gevals::SLOTS, "the engine has memory for so many");

/// Where the members of a request stand in its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spans<'s>(pub(crate) &'s rpc::Spans);

/// Checks a request and finds its members.
pub(crate) fn scan(text: &[u8], spans: &mut rpc::Spans) -> Result<(), SyntaxError> {
    *spans = rpc::NO_SPANS;
    check::scan(text, &MEMBERS, spans)
}

impl Spans<'_> {
    fn get(self, slot: usize) -> Span {
        self.0.get(slot).copied().unwrap_or_default()
    }

    fn of(self, text: &[u8], slot: usize) -> &[u8] {
        rpc::member(text, self.0, slot)
    }

    /// The id, if there is a usable one.
    pub(crate) fn id(self, text: &[u8]) -> &[u8] {
        let id = self.of(text, ID);
        if id.len() <= MAX_ID { id } else { &[] }
    }

    fn is_spelt_out(self, text: &[u8]) -> bool {
        rpc::string(self.of(text, OP)).is_some_and(|op| op == "invoke")
    }

    fn op(self, text: &[u8]) -> Option<Text<'_>> {
        rpc::string(self.of(text, if self.is_spelt_out(text) { INNER_OP } else { OP }))
    }

    /// Where the caller says its session.
    fn session(self, spelt_out: bool) -> Span {
        let inner = self.get(INNER_SESSION);
        if spelt_out && !inner.is_absent() { inner } else { self.get(SESSION) }
    }

    /// [`session`](Self::session), found by `part` in what is left of the request's text.
    pub(crate) fn session_in(self, line: &Parts<'_>) -> Span {
        self.session(rpc::string(line.of(self.get(OP))).is_some_and(|op| op == "invoke"))
    }

    /// A member that every call has and that is wanted no more once it runs: the operation's name.
    pub(crate) fn spent(self) -> Span {
        if self.get(INNER_OP).is_absent() { self.get(OP) } else { self.get(INNER_OP) }
    }
}

/// Why a request is refused before anything runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    UnsupportedOp,
    BadRequest(&'static str),
    /// The arguments of `on_event` are no event.
    Event(EventError),
}

/// Reads a request.
pub(crate) fn request(text: &[u8], spans: Spans<'_>, manifest: &Manifest) -> Result<Request, Refusal> {
    let spelt_out = spans.is_spelt_out(text);
    if spans.of(text, ID).len() > MAX_ID {
        return Err(Refusal::BadRequest("id: longer than 400 bytes"));
    }
    if !matches!(spans.session(spelt_out).of(text), [] | [b'"' | b'n', ..]) {
        return Err(Refusal::BadRequest("session_id: expected a string"));
    }
    if spelt_out && !matches!(spans.of(text, ARGS), [b'{', ..]) {
        return Err(Refusal::BadRequest("args: expected an object with the member op"));
    }
    let op = match spans.op(text) {
        Some(op) => op,
        None if spans.get(if spelt_out { INNER_OP } else { OP }).is_absent() => {
            return Err(Refusal::BadRequest("op: required, but missing"));
        }
        None => return Err(Refusal::BadRequest("op: expected a string")),
    };
    let args = spans.get(if spelt_out { INNER_ARGS } else { ARGS });
    if !matches!(args.of(text), [] | [b'{' | b'n', ..]) {
        return Err(Refusal::BadRequest("args: expected an object"));
    }
    if !spelt_out && op == "health" {
        return Ok(Request::Health);
    }
    if !spelt_out && op == "describe" {
        return Ok(Request::Describe);
    }
    if let Some(index) = manifest.position(op) {
        return Ok(Request::Execute { index, args });
    }
    match (manifest.kind, args.of(text)) {
        (Kind::Hook, [b'{', ..]) if op == "on_event" => match Event::read(Json::of_checked(args.of(text))) {
            Ok(_) => Ok(Request::Event { event: args }),
            Err(error) => Err(Refusal::Event(error)),
        },
        (Kind::Hook, _) if op == "on_event" => Err(Refusal::BadRequest("args: expected an event")),
        _ => Err(Refusal::UnsupportedOp),
    }
}

/// Writes a refusal behind the head of its reply.
pub(crate) fn write_refusal(out: &mut Writer<'_>, refusal: Refusal, text: &[u8], spans: Spans<'_>) {
    out.raw(b"\"ok\":false,\"error\":{\"code\":\"");
    match refusal {
        Refusal::UnsupportedOp => {
            out.raw(b"unsupported_op\",\"message\":\"Unknown operation: ");
            if let Some(op) = spans.op(text) {
                Quoted(op).write_escaped(out);
            }
        }
        Refusal::BadRequest(fault) => {
            out.raw(b"bad_request\",\"message\":\"");
            out.text_part(fault);
        }
        Refusal::Event(error) => {
            out.raw(b"bad_request\",\"message\":\"");
            out.raw(b"args.");
            error.write_escaped(out);
        }
    }
    out.raw(b"\"}}");
}

/// Writes what `describe` answers, behind the head of its reply.
pub(crate) fn write_description(out: &mut Writer<'_>, manifest: &Manifest) {
    out.raw(b"\"name\":");
    out.str(manifest.name);
    out.raw(b",\"version\":");
    out.str(manifest.version);
    out.raw(b",\"kind\":\"");
    out.raw(manifest.kind.name().as_bytes());
    out.raw(b"\",\"capabilities\":[");
    for (place, operation) in manifest.operations.iter().enumerate() {
        if place > 0 {
            out.byte(b',');
        }
        out.str(operation.name);
    }
    out.raw(b"],\"inputs\":{");
    for (place, operation) in manifest.operations.iter().enumerate() {
        if place > 0 {
            out.byte(b',');
        }
        out.str(operation.name);
        out.byte(b':');
        operation.params.write(out);
    }
    out.raw(b"},\"outputs\":{");
    let known = manifest.operations.iter().filter_map(|operation| Some((operation.name, operation.outputs?)));
    for (place, (name, outputs)) in known.enumerate() {
        if place > 0 {
            out.byte(b',');
        }
        out.str(name);
        out.byte(b':');
        outputs.write(out);
    }
    out.raw(b"}}");
}

/// The reserved code (§4) for a failure.
pub(crate) fn code(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::UnknownOperation => "unsupported_op",
        FailureKind::BadArguments => "bad_request",
        FailureKind::Unreachable | FailureKind::RequirementNotMet => "unreachable",
        FailureKind::Timeout => "timeout",
        FailureKind::Forbidden => "forbidden",
        FailureKind::TooLarge => "oom",
        FailureKind::Failed | FailureKind::Internal => "internal",
    }
}
