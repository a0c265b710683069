//! namel3ss tool protocol 1: one request and one reply, each one JSON text.
//!
//! The tool's name selects the operation. It is compared exactly first, then with `_` and spaces
//! read as `-`. `payload` contains the arguments. Both forms of requests are read: that of the
//! local runner (`tool`) and that of the service runner (`tool_name`).
//!
//! The handler can read `sandbox: true`, which changes nothing else: it asks for the Python
//! runner's own sandbox for Python code, and a native program is not run in it. An extension
//! declares in [`Manifest::guarantees`] what it promises not to do.
//!
//! `timeout_ms` is the time limit of the call. If it is missing or null, there is none. It must be
//! positive, as in the bindings of the real host: 0 is a `ProtocolError`, and nothing runs.

use crate::call::CallContext;
use crate::failure::FailureKind;
use crate::json::check::{WatchedMember, WatchedMembers};
use crate::json::number::Digits;
use crate::json::write::{Message as _, Writer};
use crate::json::{Json, JsonKind, Text};
use crate::manifest::{Guarantee, Manifest};
use crate::message::{Code, Quoted, Received, Refusal};
use crate::protocol::define::{Action, CallAction, Protocol, ServerState};
use crate::protocol::format::{Logs, MessagePlace, OutputsPlace, ReplyFacts, ReplyFormat, write_fault};

pub(super) static PROTOCOL: Protocol =
    Protocol::new("namel3ss", &MEMBERS, TOOL, &FORMAT, read, refuse).with_numeric_strings();

/// The fixed parts of its replies.
static FORMAT: ReplyFormat = ReplyFormat {
    head: |out, _| out.byte(b'{'),
    success: b"\"ok\":true,\"protocol_version\":1,\"result\":{",
    outputs: OutputsPlace { start: b"", end: b"", as_strings: false },
    message: MessagePlace {
        after_outputs: b",\"message\":\"",
        alone: b"\"message\":\"",
        end: b"\"",
        is_beside_outputs: true,
    },
    content: None,
    failed: None,
    error: |out, kind, name| {
        out.raw(b"\"ok\":false,\"protocol_version\":1,\"error\":{\"type\":\"");
        out.text_part(name.unwrap_or(error_type(kind)));
        out.raw(b"\",\"message\":\"");
    },
    error_end: |out, kind| {
        out.raw(if kind == FailureKind::Forbidden { b"\",\"reason_code\":\"guarantee_blocked\"" } else { b"\"" });
    },
    parse_error: b"\"ok\":false,\"protocol_version\":1,\"error\":{\"type\":\"ProtocolError\",\"message\":\"",
    close,
    logs: Logs::OutOfBand,
    progress: None,
};

/// With what the type of a failure does not say, and an empty list of capability checks where the
/// request has something to check, as its own tools do.
fn close(out: &mut Writer<'_>, closing: &ReplyFacts<'_>) {
    let wants_checks = closing.received.is_some_and(|received| wants_checks(&received));
    let is_said = |kind: &FailureKind| match kind {
        FailureKind::Failed => true,
        FailureKind::Unreachable | FailureKind::NoAnswer => false,
        // Of bad arguments the specification has the whole error, without a further member.
        _ => closing.code.is_none(),
    };
    write_fault(out, b",", closing.error.filter(|kind| !is_said(kind)), None, b"");
    out.raw(if wants_checks { b"},\"capability_checks\":[]}" } else { b"}}" });
}

/// The version of the namel3ss protocol. A request with another version gets a `ProtocolError`.
pub const VERSION: u32 = 1;

const PROTOCOL_VERSION: usize = 0;
const TOOL: usize = 1;
const ENTRY: usize = 2;
const PAYLOAD: usize = 3;
const SANDBOX: usize = 4;
const TRACE_ID: usize = 5;
const CAPABILITY_CONTEXT: usize = 6;
const GUARANTEES: usize = 7;
const SOURCES: usize = 8;
const TIMEOUT_MS: usize = 9;
const PROJECT: usize = 10;
const KIND: usize = 11;

static MEMBERS: [WatchedMember; 11] = [
    WatchedMember::new("protocol_version", PROTOCOL_VERSION),
    WatchedMember::new("tool", TOOL),
    WatchedMember::new("tool_name", TOOL),
    WatchedMember::new("kind", KIND),
    WatchedMember::new("entry", ENTRY),
    WatchedMember::new("payload", PAYLOAD),
    WatchedMember::new("capability_context", CAPABILITY_CONTEXT).with_members(&CONTEXT),
    WatchedMember::new("timeout_ms", TIMEOUT_MS),
    WatchedMember::new("sandbox", SANDBOX),
    WatchedMember::new("trace_id", TRACE_ID),
    WatchedMember::new("project", PROJECT),
];

static CONTEXT: WatchedMembers =
    WatchedMembers::new(&[WatchedMember::new("guarantees", GUARANTEES), WatchedMember::new("sources", SOURCES)]);

/// Whether the reply has a list of capability checks: where the request has something to check.
fn wants_checks(received: &Received<'_>) -> bool {
    received.first(CAPABILITY_CONTEXT) == b'{'
}

/// The context of a call from a namel3ss host.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Invocation<'a> {
    /// The entry point in the tool's binding, `module:function`. A native tool does not use it.
    pub entry: Option<Text<'a>>,
    /// The id of the trace that the call belongs to.
    pub trace_id: Option<Text<'a>>,
    /// The kind of the tool. Only service requests have it.
    pub kind: Option<Text<'a>>,
    /// Whether the host asked for a sandbox. rigline does not provide one.
    pub sandbox: bool,
    /// The required guarantees and their sources, as the host has sent them.
    pub capability_context: Option<Json<'a>>,
    /// The members `app_root` and `flow` of the calling project. Only service requests have them.
    pub project: Option<Json<'a>>,
}

impl<'a> Invocation<'a> {
    /// Reads the context of a call by namel3ss. It is empty for calls by other protocols.
    pub fn of(context: &CallContext<'a>) -> Self {
        let Some(received) = context.received_by(&PROTOCOL) else { return Self::default() };
        let object = |slot| received.json(slot).filter(|json| json.kind() == JsonKind::Object);
        Self {
            entry: received.string(ENTRY),
            trace_id: received.string(TRACE_ID),
            kind: received.string(KIND),
            sandbox: received.member(SANDBOX) == b"true",
            capability_context: object(CAPABILITY_CONTEXT),
            project: object(PROJECT),
        }
    }
}

const fn malformed(member: &'static str, fault: &'static str) -> Refusal {
    Refusal::new(Code::Name("ProtocolError"), member, fault)
}

/// Reads a request.
fn read(received: &Received<'_>, server: &ServerState<'_>) -> Result<Action, &'static Refusal> {
    let manifest = server.manifest;
    if !received.is_object() {
        return Err(const { &malformed("", "a request must be an object") });
    }
    let version = received.member(PROTOCOL_VERSION);
    match Digits::new(version).map(|version| version.to_u32()) {
        Some(Ok(VERSION)) => {}
        Some(_) => return Err(const { &malformed("protocol_version", "only 1 is supported") }),
        None if version.is_empty() => return Err(const { &malformed("protocol_version", "required, but missing") }),
        None => return Err(const { &malformed("protocol_version", "expected a number") }),
    }
    let tool = match received.string(TOOL) {
        Some(tool) => tool,
        None if !received.has(TOOL) => return Err(const { &malformed("tool", "required, but missing") }),
        None => return Err(const { &malformed("tool", "expected a string") }),
    };
    static STRINGS: [(usize, Refusal); 2] =
        [(ENTRY, malformed("entry", "expected a string")), (TRACE_ID, malformed("trace_id", "expected a string"))];
    for (slot, refusal) in &STRINGS {
        if !matches!(received.first(*slot), 0 | b'"' | b'n') {
            return Err(refusal);
        }
    }
    if !matches!(received.member(SANDBOX), [] | b"true" | b"false" | b"null") {
        return Err(const { &malformed("sandbox", "expected true or false") });
    }
    if !matches!(received.first(CAPABILITY_CONTEXT), 0 | b'{' | b'n') {
        return Err(const { &malformed("capability_context", "expected an object") });
    }
    let timeout_nanos = match received.member(TIMEOUT_MS) {
        [] | [b'n', ..] => None,
        text => match Digits::new(text).map(|timeout| timeout.to_u32()) {
            Some(Ok(millis @ 1..)) => Some(u64::from(millis) * 1_000_000),
            _ => return Err(const { &malformed("timeout_ms", "expected an integer from 1 to 4294967295") }),
        },
    };
    const UNKNOWN_TOOL: &Refusal = &Refusal::quoting(Code::Name("UnknownTool"), "Unknown tool: ", TOOL);
    let index = manifest
        .position(tool)
        .or_else(|| {
            let dashed = |char| if matches!(char, '_' | ' ') { '-' } else { char };
            manifest.operations.iter().position(|known| tool.is_mapped(known.name.as_bytes(), dashed))
        })
        .ok_or(UNKNOWN_TOOL)?;
    if !matches!(received.first(PAYLOAD), 0 | b'{' | b'n') {
        return Err(const { &Refusal::new(Code::Name("ValueError"), "payload", "expected an object") });
    }
    if violation(received, manifest).is_some() {
        return Ok(Action::Answer(refuse_violation));
    }
    let call = CallAction::new(received, index, received.span(PAYLOAD), received.span(TOOL));
    Ok(Action::Call(call.timeout_nanos(timeout_nanos)))
}

/// A requirement of a call that the extension does not fulfil.
enum Violation {
    /// The host requires this guarantee, and the extension does not give it.
    Guarantee(Guarantee),
    /// The extension uses this secret, and the host does not allow it.
    Secret(&'static str),
}

fn violation(received: &Received<'_>, manifest: &Manifest) -> Option<Violation> {
    let guarantees = received.member(GUARANTEES);
    if let Some(missing) = required(guarantees).find(|guarantee| !manifest.guarantees.contains(guarantee)) {
        return Some(Violation::Guarantee(missing));
    }
    let allowed = Json::of_checked(guarantees).get("secrets_allowed").unwrap_or(Json::NULL);
    let is_allowed = |secret: &&str| allowed.elements().any(|name| name.text().is_some_and(|name| name == **secret));
    if allowed.kind() == JsonKind::Array
        && let Some(secret) = manifest.secrets.iter().copied().find(|secret| !is_allowed(secret))
    {
        return Some(Violation::Secret(secret));
    }
    None
}

/// The guarantees that the JSON object `guarantees` requires. The real tools ask whether a value is
/// true to Python; what is neither that nor false must not be taken for false.
fn required(guarantees: &[u8]) -> impl Iterator<Item = Guarantee> {
    let guarantees = Json::of_checked(guarantees);
    Guarantee::ALL.into_iter().filter(move |guarantee| {
        guarantees.get(guarantee.name()).is_some_and(|required| !required.is_null() && required.bool() != Some(false))
    })
}

/// Writes what follows the head of a refusal, up to where its text goes.
fn begin_refusal(out: &mut Writer<'_>, received: &Received<'_>, name: &str) {
    out.raw(b"\"ok\":false,\"protocol_version\":");
    // The version that the request says is echoed.
    out.raw(match received.member(PROTOCOL_VERSION) {
        version @ [b'-' | b'0'..=b'9', ..] if version.len() <= 32 => version,
        _ => b"1",
    });
    out.raw(b",\"error\":{\"type\":\"");
    out.raw(name.as_bytes());
    out.raw(b"\",\"message\":\"");
}

/// Writes a refusal behind the head of its reply.
fn refuse(out: &mut Writer<'_>, received: &Received<'_>, refusal: &Refusal, _: &ServerState<'_>) {
    begin_refusal(out, received, if let Code::Name(name) = refusal.code() { name } else { "" });
    refusal.write_text(out, received);
    out.raw(if wants_checks(received) { b"\"},\"capability_checks\":[]}" } else { b"\"}}" });
}

/// Writes that the extension does not keep to what is required.
fn refuse_violation(out: &mut Writer<'_>, received: &Received<'_>, server: &ServerState<'_>) {
    let manifest = server.manifest;
    let Some(violation) = violation(received, manifest) else { return };
    begin_refusal(out, received, "CapabilityViolation");
    // The reasons are those that the real host knows (its module `capabilities.gates.base`).
    let (name, capability, reason) = match violation {
        Violation::Guarantee(guarantee) => {
            out.text_part("the guarantee ");
            out.text_part(guarantee.name());
            out.text_part(" is required, and ");
            out.text_part(manifest.name);
            out.text_part(" does not keep it");
            (guarantee.name(), guarantee.capability(), "guarantee_blocked")
        }
        Violation::Secret(secret) => {
            out.text_part(manifest.name);
            out.text_part(" needs the secret ");
            out.text_part(secret);
            out.text_part(", which is not allowed");
            ("secrets_allowed", "secrets", "secrets_blocked")
        }
    };
    let source = received.json(SOURCES).and_then(|sources| sources.get(name)).and_then(|source| source.text());
    out.raw(b"\",\"reason_code\":\"guarantee_blocked\"},\"capability_checks\":[{\"capability\":\"");
    out.raw(capability.as_bytes());
    out.raw(b"\",\"allowed\":false,\"guarantee_source\":\"");
    match source {
        Some(source) => Quoted(source).write_escaped(out),
        None => out.raw(b"tool"),
    }
    out.raw(b"\",\"reason\":\"");
    out.raw(reason.as_bytes());
    out.raw(b"\"}]}");
}

/// The kind of failure for an error type that namel3ss defines. It is none for other types, which
/// are the tool's own.
pub fn failure_kind(error_type: &str) -> Option<FailureKind> {
    Some(match error_type {
        "UnknownTool" => FailureKind::UnknownOperation,
        "ProtocolError" => FailureKind::BadArguments,
        "TimeoutError" => FailureKind::Timeout,
        "RequirementNotMet" => FailureKind::RequirementNotMet,
        "CapabilityViolation" => FailureKind::Forbidden,
        "MemoryError" => FailureKind::TooLarge,
        "InternalError" => FailureKind::Internal,
        // A ValueError may be the tool's own: it ran.
        "OperationFailed" | "ValueError" | "ToolError" => FailureKind::Failed,
        _ => return None,
    })
}

/// The error type for a failure: Python's names where it has them.
fn error_type(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Failed | FailureKind::Unreachable | FailureKind::NoAnswer => "OperationFailed",
        FailureKind::UnknownOperation => "UnknownTool",
        FailureKind::BadArguments => "ValueError",
        FailureKind::Timeout => "TimeoutError",
        FailureKind::RequirementNotMet => "RequirementNotMet",
        FailureKind::Forbidden => "CapabilityViolation",
        FailureKind::TooLarge => "MemoryError",
        FailureKind::Internal => "InternalError",
    }
}
