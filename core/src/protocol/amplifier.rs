//! Amplifier Module Protocol v1: `health`, `describe`, `invoke`, and `on_event` for hooks.
//!
//! Amplifier's text does not define a form for lines. Here, each line is an invoke input
//! `{"op":…,"args":…,"session_id":…}`. The ops `health` and `describe` are answered as those
//! operations are. `{"op":"invoke","args":{"op":…,"args":…}}` is the same call, nested. A member
//! `id` is returned unchanged. Each line gets one reply line, in the order of the lines, also for
//! faults and `health`.
//!
//! If what `describe` answers does not fit the reply region, it is sent without descriptions and
//! without the schemas of outputs. It then has `"abridged":true`.

use core::time::Duration;

use crate::call::CallContext;
use crate::event::Event;
use crate::failure::FailureKind;
use crate::json::check::{Span, WatchedMember, WatchedMembers};
use crate::json::write::{Message as _, Writer};
use crate::json::{Json, JsonKind, Text};
use crate::manifest::ModuleKind;
use crate::message::{Code, Envelope, Received, Refusal};
use crate::protocol::define::{
    self, ABRIDGED, Action, CallAction, Protocol, ServerState, whole_or_abridged, write_arguments,
};
use crate::protocol::format::{Failed, Logs, MessagePlace, OutputsPlace, ReplyFacts, ReplyFormat, write_fault};
use crate::rpc::MAX_ID;

pub(super) static PROTOCOL: Protocol = Protocol::new("amplifier", &MEMBERS, OP, &FORMAT, read, refuse)
    .envelope(envelope)
    .answers(is_answer)
    .with_own_limit();

/// The fixed parts of its replies.
static FORMAT: ReplyFormat = ReplyFormat {
    head: write_head,
    success: b"\"ok\":true,\"result\":{",
    outputs: OutputsPlace { start: b"", end: b"", as_strings: false },
    message: MessagePlace {
        after_outputs: b",\"message\":\"",
        alone: b"\"message\":\"",
        end: b"\"",
        is_beside_outputs: true,
    },
    content: None,
    failed: Some(Failed {
        success: b"\"ok\":false,\"error\":{\"details\":{",
        outputs_start: b"",
        with_outputs_only: true,
        before_text: |out, _, kind, name| {
            out.raw(b"},\"code\":\"");
            write_code(out, kind, name);
        },
        end: b"\"",
    }),
    error: |out, kind, name| {
        out.raw(ERROR);
        write_code(out, kind, name);
    },
    error_end: |out, _| out.byte(b'"'),
    parse_error: b"\"ok\":false,\"error\":{\"code\":\"bad_request\",\"message\":\"",
    close,
    logs: Logs::OutOfBand,
    progress: None,
};

/// Closes a result or an error, with what the code of a failure does not say: `internal` is read as
/// a failure of the operation's own logic.
fn close(out: &mut Writer<'_>, closing: &ReplyFacts<'_>) {
    let is_said = |kind: &FailureKind| match kind {
        FailureKind::Failed => true,
        FailureKind::RequirementNotMet | FailureKind::Internal | FailureKind::NoAnswer => false,
        _ => closing.code.is_none(),
    };
    write_fault(out, b",", closing.error.filter(|kind| !is_said(kind)), None, b"");
    out.raw(b"}}");
}

const ERROR: &[u8] = b"\"ok\":false,\"error\":{\"code\":\"";

fn write_code(out: &mut Writer<'_>, kind: FailureKind, name: Option<&'static str>) {
    out.text_part(name.unwrap_or(code(kind)));
    out.raw(b"\",\"message\":\"");
}

/// The default time limit of an invoke, which is that of gevals and namel3ss.
pub const TIMEOUT: Duration = Duration::from_secs(30);

const OP: usize = 0;
const ARGS: usize = 1;
const SESSION: usize = 2;
const ID: usize = 3;
const INNER_OP: usize = 4;
const INNER_ARGS: usize = 5;
const INNER_SESSION: usize = 6;

static MEMBERS: [WatchedMember; 4] = [
    WatchedMember::new("op", OP),
    WatchedMember::new("args", ARGS).with_members(&INNER),
    WatchedMember::new("session_id", SESSION),
    WatchedMember::new("id", ID),
];

static INNER: WatchedMembers = WatchedMembers::new(&[
    WatchedMember::new("op", INNER_OP),
    WatchedMember::new("args", INNER_ARGS),
    WatchedMember::new("session_id", INNER_SESSION),
]);

/// The id comes back if it is usable.
fn envelope(received: &Received<'_>) -> Envelope {
    let id = received.span(ID);
    Envelope::Request { id: if received.of(id).len() <= MAX_ID { id } else { Span::default() } }
}

/// Recognises the answers of `health` and `describe`, which have no `ok`.
fn is_answer(json: Json<'_>) -> bool {
    define::is_answer(json)
        || json.get("status").and_then(|status| status.text()).is_some_and(|status| status == "ok")
        || json.get("capabilities").is_some_and(|list| list.kind() == JsonKind::Array)
}

/// Writes the beginning of a reply that has the id alone, where there is one.
pub(crate) fn write_head(out: &mut Writer<'_>, id: &[u8]) {
    out.byte(b'{');
    if !id.is_empty() {
        out.raw(b"\"id\":");
        // Any JSON may be an id here. A CR between its tokens would end the line for a reader on a
        // serial line.
        for piece in id.split(|byte| *byte == b'\r') {
            out.raw(piece);
        }
        out.byte(b',');
    }
}

/// Whether the call is nested: `{"op":"invoke","args":{"op":…}}`.
fn is_nested(received: &Received<'_>) -> bool {
    received.is(OP, "invoke")
}

/// The id of the session that the call belongs to. It is none if the host sent none, or if the call
/// came by another protocol.
pub fn session_id<'a>(context: &CallContext<'a>) -> Option<Text<'a>> {
    let received = context.received_by(&PROTOCOL)?;
    received.string(session(&received))
}

/// The slot in which the caller says its session.
fn session(received: &Received<'_>) -> usize {
    if is_nested(received) && received.has(INNER_SESSION) { INNER_SESSION } else { SESSION }
}

const fn bad_request(member: &'static str, fault: &'static str) -> Refusal {
    Refusal::new(Code::Name("bad_request"), member, fault)
}

const fn unsupported(slot: usize) -> Refusal {
    Refusal::quoting(Code::Name("unsupported_op"), "Unknown operation: ", slot)
}

/// Reads a request.
fn read(received: &Received<'_>, server: &ServerState<'_>) -> Result<Action, &'static Refusal> {
    let is_nested = is_nested(received);
    if received.member(ID).len() > MAX_ID {
        return Err(const { &bad_request("id", "longer than 400 bytes") });
    }
    if !matches!(received.first(session(received)), 0 | b'"' | b'n') {
        return Err(const { &bad_request("session_id", "expected a string") });
    }
    if is_nested && received.first(ARGS) != b'{' {
        return Err(const { &bad_request("args", "expected an object with the member op") });
    }
    let (op_slot, args_slot) = if is_nested { (INNER_OP, INNER_ARGS) } else { (OP, ARGS) };
    let op = match received.string(op_slot) {
        Some(op) => op,
        None if received.first(op_slot) == 0 => return Err(const { &bad_request("op", "required, but missing") }),
        None => return Err(const { &bad_request("op", "expected a string") }),
    };
    let args = received.span(args_slot);
    if !matches!(received.first(args_slot), 0 | b'{' | b'n') {
        return Err(const { &bad_request("args", "expected an object") });
    }
    if !is_nested && op == "health" {
        return Ok(Action::Answer(|out, _, _| out.raw(b"\"status\":\"ok\"}")));
    }
    if !is_nested && op == "describe" {
        return Ok(Action::Answer(write_description));
    }
    if let Some(index) = server.manifest.position(op) {
        let call = CallAction::new(received, index, args, received.span(op_slot));
        return Ok(Action::Call(call.timeout_nanos(Some(1_000_000_000 * TIMEOUT.as_secs()))));
    }
    if server.manifest.kind == ModuleKind::Hook && op == "on_event" {
        if received.first(args_slot) != b'{' {
            return Err(const { &bad_request("args", "expected an event") });
        }
        return Ok(match Event::read(Json::of_checked(received.of(args))) {
            Ok(_) => Action::AckThenRun { event: args, answer: |out, _, _| out.raw(b"\"ok\":true,\"result\":{}}") },
            Err(_) => Action::Answer(refuse_event),
        });
    }
    Err(if is_nested { const { &unsupported(INNER_OP) } } else { const { &unsupported(OP) } })
}

/// Writes a refusal behind the head of its reply.
fn refuse(out: &mut Writer<'_>, received: &Received<'_>, refusal: &Refusal, _: &ServerState<'_>) {
    out.raw(ERROR);
    if let Code::Name(name) = refusal.code() {
        out.raw(name.as_bytes());
    }
    out.raw(b"\",\"message\":\"");
    refusal.write_text(out, received);
    out.raw(b"\"}}");
}

/// Writes that the arguments of `on_event` are not an event, and why.
fn refuse_event(out: &mut Writer<'_>, received: &Received<'_>, _: &ServerState<'_>) {
    out.raw(ERROR);
    out.raw(b"bad_request\",\"message\":\"args.");
    let args = if is_nested(received) { INNER_ARGS } else { ARGS };
    if let Err(error) = Event::read(Json::of_checked(received.member(args))) {
        error.write_escaped(out);
    }
    out.raw(b"\"}}");
}

/// Writes what `describe` answers, behind the head of its reply.
fn write_description(out: &mut Writer<'_>, _: &Received<'_>, server: &ServerState<'_>) {
    whole_or_abridged(out, server, write_description_of);
}

fn write_description_of(out: &mut Writer<'_>, server: &ServerState<'_>, is_abridged: bool) {
    let manifest = server.manifest;
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
        out.name(operation.name);
        write_arguments(out, operation, is_abridged);
    }
    out.raw(b"},\"outputs\":{");
    let known = manifest.operations.iter().filter_map(|operation| Some((operation.name, operation.outputs?)));
    for (place, (name, outputs)) in known.filter(|_| !is_abridged).enumerate() {
        if place > 0 {
            out.byte(b',');
        }
        out.name(name);
        outputs.write(out);
    }
    out.byte(b'}');
    if is_abridged {
        out.raw(ABRIDGED);
    }
    out.byte(b'}');
}

/// The kind of failure for an error code that Amplifier reserves (§4). It is none for other codes,
/// which are the extension's own.
pub fn failure_kind(code: &str) -> Option<FailureKind> {
    Some(match code {
        "unsupported_op" => FailureKind::UnknownOperation,
        "bad_request" => FailureKind::BadArguments,
        "unreachable" => FailureKind::Unreachable,
        "timeout" => FailureKind::Timeout,
        "forbidden" => FailureKind::Forbidden,
        "oom" => FailureKind::TooLarge,
        // The module's own failure or the operation's. Callers can use the second.
        "internal" => FailureKind::Failed,
        _ => return None,
    })
}

/// The reserved code (§4) for a failure.
fn code(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::UnknownOperation => "unsupported_op",
        FailureKind::BadArguments => "bad_request",
        FailureKind::Unreachable | FailureKind::RequirementNotMet | FailureKind::NoAnswer => "unreachable",
        FailureKind::Timeout => "timeout",
        FailureKind::Forbidden => "forbidden",
        FailureKind::TooLarge => "oom",
        FailureKind::Failed | FailureKind::Internal => "internal",
    }
}
