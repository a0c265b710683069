//! namel3ss tool protocol 1: one request, one reply, each one JSON text.
//!
//! The tool's name chooses the operation: matched exactly, then with `_` and space as `-`. `payload` is the arguments. Both
//! request forms are read: the local runner's (`tool`) and the service runner's (`tool_name`).
//!
//! `sandbox: true` is told to the handler and changes nothing else: it is the Python runner's own sandbox for Python code,
//! and a native program is not run in it. What an extension does keep, it declares in [`Manifest::guarantees`].
//!
//! `timeout_ms` is the time limit of the call; without it, and where it is null, there is none. It must be positive, as the real
//! host has it in its bindings: 0 is a `ProtocolError`, and nothing runs.

use super::{Request, gevals};
use crate::failure::FailureKind;
use crate::json::check::{self, Key, Level, Parts, Span, SyntaxError};
use crate::json::number::Digits;
use crate::json::view::{Json, Kind, Text};
use crate::json::write::{Message as _, Writer};
use crate::manifest::{Guarantee, Manifest};
use crate::phrases::{Codes, Failed, Head, Outputs, Phrases};
use crate::rpc::{self, Quoted};

/// The fixed parts of its replies.
pub(crate) static PHRASES: Phrases = Phrases {
    head: Head::Plain,
    success: b"\"ok\":true,\"protocol_version\":1,\"result\":{",
    outputs: Outputs::Json,
    failed: Failed::Dropped,
    error: b"\"ok\":false,\"protocol_version\":1,\"error\":{\"type\":\"",
    codes: Codes::Names(error_type),
    error_end: b"\"",
    forbidden_end: b"\",\"reason_code\":\"guarantee_blocked\"",
    parse_error: b"\"ok\":false,\"protocol_version\":1,\"error\":{\"type\":\"ProtocolError\",\"message\":\"",
};

/// The version of the protocol that is spoken here. A request of another gets a `ProtocolError`.
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
const SLOTS: usize = 12;

static MEMBERS: Level = Level::of(&[
    Key::new("protocol_version", PROTOCOL_VERSION, None),
    Key::new("tool", TOOL, None),
    Key::new("tool_name", TOOL, None),
    Key::new("kind", KIND, None),
    Key::new("entry", ENTRY, None),
    Key::new("payload", PAYLOAD, None),
    Key::new("capability_context", CAPABILITY_CONTEXT, Some(&CONTEXT)),
    Key::new("timeout_ms", TIMEOUT_MS, None),
    Key::new("sandbox", SANDBOX, None),
    Key::new("trace_id", TRACE_ID, None),
    Key::new("project", PROJECT, None),
]);

static CONTEXT: Level = Level::of(&[Key::new("guarantees", GUARANTEES, None), Key::new("sources", SOURCES, None)]);

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

    /// What the host says about a call's surroundings, found by `part` in what is left of the request's text.
    pub(crate) fn surroundings<'a>(self, line: &Parts<'a>) -> Surroundings<'a> {
        let part = |slot| line.of(self.get(slot));
        let string = |slot| rpc::string(part(slot));
        let object = |slot| match part(slot) {
            object @ [b'{', ..] => Some(Json::of_checked(object)),
            _ => None,
        };
        Surroundings {
            entry: string(ENTRY),
            trace_id: string(TRACE_ID),
            kind: string(KIND),
            sandbox: part(SANDBOX) == b"true",
            capability_context: object(CAPABILITY_CONTEXT),
            project: object(PROJECT),
        }
    }

    /// A member that every request has and that is wanted no more once it runs: the tool's name.
    pub(crate) fn spent(self) -> Span {
        self.get(TOOL)
    }

    /// Whether the reply tells of capability checks: where the request has something to check.
    pub(crate) fn wants_checks(self, text: &[u8]) -> bool {
        matches!(self.of(text, CAPABILITY_CONTEXT), [b'{', ..])
    }

    /// The version that the request says, to be echoed.
    fn version(self, text: &[u8]) -> &[u8] {
        match self.of(text, PROTOCOL_VERSION) {
            version @ [b'-' | b'0'..=b'9', ..] if version.len() <= 32 => version,
            _ => b"1",
        }
    }
}

/// What a namel3ss host says about a call's surroundings.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Surroundings<'a> {
    /// The entry point that the tool's binding names, `module:function`. A native tool has no use for it.
    pub entry: Option<Text<'a>>,
    /// The trace that the call belongs to.
    pub trace_id: Option<Text<'a>>,
    /// The kind of tool, in a service request.
    pub kind: Option<Text<'a>>,
    /// Whether a sandbox was asked for. It is not made by us.
    pub sandbox: bool,
    /// Required guarantees and where they come from, as sent.
    pub capability_context: Option<Json<'a>>,
    /// `app_root` and `flow` of the project that calls, in a service request.
    pub project: Option<Json<'a>>,
}

/// Why a request is refused before anything runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    Malformed(&'static str),
    Version,
    UnknownTool,
    BadPayload,
    /// A required guarantee that the extension does not keep.
    Blocked(Guarantee),
    /// A secret that the extension makes use of, and that is not allowed.
    Secret(&'static str),
    /// No time limit that can be kept.
    Timeout,
}

/// Reads a request, and its time limit in nanoseconds.
pub(crate) fn request(text: &[u8], spans: Spans<'_>, manifest: &Manifest) -> Result<(Request, Option<u64>), Refusal> {
    let of = |slot: usize| spans.of(text, slot);
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::Malformed("a request must be an object"));
    }
    match Digits::new(of(PROTOCOL_VERSION)).map(|version| version.to_u32()) {
        Some(Ok(VERSION)) => {}
        Some(_) => return Err(Refusal::Version),
        None if of(PROTOCOL_VERSION).is_empty() => {
            return Err(Refusal::Malformed("protocol_version: required, but missing"));
        }
        None => return Err(Refusal::Malformed("protocol_version: expected a number")),
    }
    let tool = match rpc::string(of(TOOL)) {
        Some(tool) => tool,
        None if of(TOOL).is_empty() => return Err(Refusal::Malformed("tool: required, but missing")),
        None => return Err(Refusal::Malformed("tool: expected a string")),
    };
    for (slot, fault) in [(ENTRY, "entry: expected a string"), (TRACE_ID, "trace_id: expected a string")] {
        if !matches!(of(slot), [] | [b'"' | b'n', ..]) {
            return Err(Refusal::Malformed(fault));
        }
    }
    if !matches!(of(SANDBOX), [] | b"true" | b"false" | b"null") {
        return Err(Refusal::Malformed("sandbox: expected true or false"));
    }
    if !matches!(of(CAPABILITY_CONTEXT), [] | [b'{' | b'n', ..]) {
        return Err(Refusal::Malformed("capability_context: expected an object"));
    }
    let timeout_nanos = match of(TIMEOUT_MS) {
        [] | [b'n', ..] => None,
        text => match Digits::new(text).map(|timeout| timeout.to_u32()) {
            Some(Ok(millis @ 1..)) => Some(u64::from(millis) * 1_000_000),
            _ => return Err(Refusal::Timeout),
        },
    };
    let index = manifest
        .position(tool)
        .or_else(|| {
            manifest.operations.iter().position(|known| {
                let dashed = tool.chars().map(|char| if matches!(char, '_' | ' ') { '-' } else { char });
                dashed.eq(known.name.chars())
            })
        })
        .ok_or(Refusal::UnknownTool)?;
    let args = spans.get(PAYLOAD);
    if !matches!(args.of(text), [] | [b'{' | b'n', ..]) {
        return Err(Refusal::BadPayload);
    }
    if let Some(blocked) = required(of(GUARANTEES)).find(|guarantee| !manifest.guarantees.contains(guarantee)) {
        return Err(Refusal::Blocked(blocked));
    }
    let allowed = Json::of_checked(of(GUARANTEES)).get("secrets_allowed").unwrap_or(Json::NULL);
    let is_allowed = |secret: &&str| allowed.elements().any(|name| name.text().is_some_and(|name| name == **secret));
    if allowed.kind() == Kind::Array
        && let Some(secret) = manifest.secrets.iter().copied().find(|secret| !is_allowed(secret))
    {
        return Err(Refusal::Secret(secret));
    }
    Ok((Request::Execute { index, args }, timeout_nanos))
}

/// The guarantees that the JSON object `guarantees` requires. The real tools ask whether a value is true to Python; what is neither
/// that nor false must not be taken for false.
fn required(guarantees: &[u8]) -> impl Iterator<Item = Guarantee> {
    let guarantees = Json::of_checked(guarantees);
    Guarantee::ALL.into_iter().filter(move |guarantee| {
        guarantees.get(guarantee.name()).is_some_and(|required| !required.is_null() && required.bool() != Some(false))
    })
}

/// Writes a refusal behind the head of its reply.
pub(crate) fn write_refusal(
    out: &mut Writer<'_>,
    refusal: Refusal,
    text: &[u8],
    spans: Spans<'_>,
    manifest: &Manifest,
) {
    out.raw(b"\"ok\":false,\"protocol_version\":");
    out.raw(spans.version(text));
    out.raw(b",\"error\":{\"type\":\"");
    out.raw(match refusal {
        Refusal::Malformed(_) | Refusal::Version | Refusal::Timeout => b"ProtocolError".as_slice(),
        Refusal::UnknownTool => b"UnknownTool",
        Refusal::BadPayload => b"ValueError",
        Refusal::Blocked(_) | Refusal::Secret(_) => b"CapabilityViolation",
    });
    out.raw(b"\",\"message\":\"");
    match refusal {
        Refusal::Malformed(fault) => out.text_part(fault),
        Refusal::Version => out.text_part("protocol_version: only 1 is supported"),
        Refusal::Timeout => out.text_part("timeout_ms: expected an integer from 1 to 4294967295"),
        Refusal::BadPayload => out.text_part("payload: expected an object"),
        Refusal::UnknownTool => {
            out.text_part("Unknown tool: ");
            if let Some(tool) = rpc::string(spans.of(text, TOOL)) {
                Quoted(tool).write_escaped(out);
            }
        }
        Refusal::Blocked(guarantee) => {
            out.text_part("the guarantee ");
            out.text_part(guarantee.name());
            out.text_part(" is required, and ");
            out.text_part(manifest.name);
            out.text_part(" does not keep it");
        }
        Refusal::Secret(secret) => {
            out.text_part(manifest.name);
            out.text_part(" needs the secret ");
            out.text_part(secret);
            out.text_part(", which is not allowed");
        }
    }
    // The reasons are those that the real host knows (its module `capabilities.gates.base`).
    let (name, capability, reason) = match refusal {
        Refusal::Blocked(guarantee) => (guarantee.name(), guarantee.capability(), "guarantee_blocked"),
        Refusal::Secret(_) => ("secrets_allowed", "secrets", "secrets_blocked"),
        _ if spans.wants_checks(text) => return out.raw(b"\"},\"capability_checks\":[]}"),
        _ => return out.raw(b"\"}}"),
    };
    let source = Json::of_checked(spans.of(text, SOURCES)).get(name).and_then(|source| source.text());
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

/// The error type for a failure: Python's names where it has them.
pub(crate) fn error_type(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Failed | FailureKind::Unreachable => "OperationFailed",
        FailureKind::UnknownOperation => "UnknownTool",
        FailureKind::BadArguments => "ValueError",
        FailureKind::Timeout => "TimeoutError",
        FailureKind::RequirementNotMet => "RequirementNotMet",
        FailureKind::Forbidden => "CapabilityViolation",
        FailureKind::TooLarge => "MemoryError",
        FailureKind::Internal => "InternalError",
    }
}
