//! Model Context Protocol: an extension's operations as tools for agents, over JSON-RPC 2.0.
//!
//! Both eras of the protocol are spoken on one stream. Each request says to which era it belongs:
//!
//! | | legacy: 2024-11-05 to 2025-11-25 | modern: 2026-07-28 |
//! |---|---|---|
//! | recognised by | `initialize`, or a request without the members below | `io.modelcontextprotocol/…` in `params._meta` |
//! | methods | `initialize`, `ping`, `tools/list`, `tools/call`, `logging/setLevel` | `server/discover`, `tools/list`, `tools/call`, `subscriptions/listen` |
//! | results | as they are | with `resultType` and `serverInfo` |
//! | logs | `notifications/message` | the same, if the request's `_meta` asks for them |
//!
//! `notifications/cancelled` ends a call, which then gets no answer. A request that has a
//! `progressToken` gets `notifications/progress`.
//!
//! Each operation is a tool. A tool's name has only letters, digits and `_`, and at most 64
//! characters, since real clients accept no others. Every other character of an operation's name
//! becomes `_`, and both forms are accepted in calls. Outputs are the tool's `structuredContent`.
//! Their JSON is repeated as text, because clients of older revisions need it.
//!
//! A failed call has no structured content, because clients would check it against the schema of
//! outputs, or show it in place of the reason. Its outputs are in `incompleteOutputs`, and their
//! JSON is a text after the reason.
//!
//! Clients add members of their own to arguments. Members that begin with `_`, and `toolCallId`,
//! `sessionKey`, `user_context` and `tool_call_description`, are removed and logged, unless the
//! operation has an argument of that name. Strings are accepted as numbers and booleans.
//!
//! Outputs of the hardware that a client has switched on are switched off when its connection ends,
//! with or without `initialize`: [`safe_state`](crate::Extension::safe_state) runs if an operation
//! ran that is not declared to be read-only. A client that is still connected gets a log at once,
//! and the output `outputs_switched_off` in its next result.
//!
//! MCP has no place for some data of other protocols. It is in `_meta`, under names of rigline:
//! [`CONFIG_NAME`] in `initialize`, [`TIMEOUT_NAME`] and [`CONTEXT_NAME`] in calls,
//! [`KIND_NAME`](super::KIND_NAME) and [`CODE_NAME`](super::CODE_NAME) in results.
//!
//! Every [`Failure`](crate::Failure) is a result with `isError:true`, which an agent reads; errors
//! are for requests that are not valid: -32602 for an unknown tool, -32601 for an unknown method,
//! -32022 for a version that is not supported.

use core::iter;

use crate::call::CallContext;
use crate::failure::FailureKind;
use crate::json::check::{Span, WatchedMember, WatchedMembers};
use crate::json::text;
use crate::json::write::{Message, Writer};
use crate::json::{Json, JsonKind, Text};
use crate::level::Level;
use crate::manifest::{Manifest, Operation};
use crate::message::{Code, Envelope, Quoted, Received, Refusal};
use crate::protocol::define::{Action, Busy, CallAction, Protocol, ServerState};
use crate::protocol::format::{
    ContentPlace, Failed, Log, Logs, MessagePlace, OutputsPlace, Progress, ReplyFacts, ReplyFormat, write_fault,
};
use crate::rpc;
use crate::schema::Schema;

pub(super) static PROTOCOL: Protocol = Protocol {
    refuse,
    envelope,
    stays_open,
    prepare: Some(leave_out_additions),
    ..Protocol::json_rpc("mcp", &ENVELOPE, &FORMAT, read)
}
.recognise(recognise)
.busy(busy)
.with_numeric_strings()
.with_safe_end();

/// The revision of the modern era that is spoken here.
pub const MODERN: &str = "2026-07-28";
/// The revisions of the legacy era that are spoken here, the newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The error code for a request of the modern era that asks for an unknown revision.
pub const UNSUPPORTED_VERSION: i32 = -32022;

const NAME: usize = rpc::FIRST_FREE;
const ARGUMENTS: usize = NAME + 1;
const META: usize = NAME + 2;
const TOKEN: usize = NAME + 3;
const META_VERSION: usize = NAME + 4;
const META_CAPABILITIES: usize = NAME + 5;
const META_CLIENT: usize = NAME + 6;
const META_LOG_LEVEL: usize = NAME + 7;
const CURSOR: usize = NAME + 8;
const VERSION: usize = NAME + 9;
const REQUEST_ID: usize = NAME + 10;
const LEVEL: usize = NAME + 11;
const OWN_CONFIG: usize = NAME + 12;
const OWN_TIMEOUT: usize = NAME + 13;
const OWN_CONTEXT: usize = NAME + 14;

static ENVELOPE: [WatchedMember; rpc::FIRST_FREE] = rpc::members(&PARAMS);

static PARAMS: WatchedMembers = WatchedMembers::new(&[
    WatchedMember::new("name", NAME),
    WatchedMember::new("arguments", ARGUMENTS),
    WatchedMember::new("_meta", META).with_members(&META_MEMBERS),
    WatchedMember::new("cursor", CURSOR),
    WatchedMember::new("protocolVersion", VERSION),
    WatchedMember::new("requestId", REQUEST_ID),
    WatchedMember::new("level", LEVEL),
]);

static META_MEMBERS: WatchedMembers = WatchedMembers::new(&[
    WatchedMember::new("progressToken", TOKEN),
    WatchedMember::new(VERSION_NAME, META_VERSION),
    WatchedMember::new("io.modelcontextprotocol/clientInfo", META_CLIENT),
    WatchedMember::new(CAPABILITIES_NAME, META_CAPABILITIES),
    WatchedMember::new("io.modelcontextprotocol/logLevel", META_LOG_LEVEL),
    WatchedMember::new(CONFIG_NAME, OWN_CONFIG),
    WatchedMember::new(TIMEOUT_NAME, OWN_TIMEOUT),
    WatchedMember::new(CONTEXT_NAME, OWN_CONTEXT),
]);

/// The name of the member in a tool's `_meta` with the operation's own name, if that cannot be the
/// name of a tool.
pub const OWN_NAME: &str = "rigline/name";
/// The name of the member in `_meta` of `initialize` with the extension's configuration, an object,
/// as in gevals. The answer then has [`CARRIES_NAME`].
pub const CONFIG_NAME: &str = "rigline/config";
/// The name of the member in `_meta` of `tools/call` with the call's time limit in milliseconds,
/// which the extension enforces. 0 means no limit.
pub const TIMEOUT_NAME: &str = "rigline/timeoutMs";
/// The name of the member in `_meta` of `tools/call` with gevals's "Context Object", without its
/// time limit. See [`context`].
pub const CONTEXT_NAME: &str = "rigline/context";
/// The name of the member in `_meta` of the answer to `initialize` that says whether configuration,
/// time limit and context reach the extension.
pub const CARRIES_NAME: &str = "rigline/carries";
/// The name of the member in `_meta` of the answer to `initialize` of a server in front of another
/// extension: `true` if that extension has a safe state.
pub const SAFE_STATE_NAME: &str = "rigline/safeState";

const VERSION_NAME: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_NAME: &str = "io.modelcontextprotocol/clientCapabilities";

/// The beginnings of methods, up to the slash.
const FAMILIES: [&[u8]; 12] = [
    b"tools",
    b"resources",
    b"prompts",
    b"notifications",
    b"logging",
    b"completion",
    b"sampling",
    b"roots",
    b"elicitation",
    b"server",
    b"subscriptions",
    b"tasks",
];

/// Whether a method belongs to MCP and to no other protocol. All such methods contain a slash,
/// except `ping`.
pub fn is_method(method: Text<'_>) -> bool {
    let raw = method.raw_bytes();
    // Not every method with a slash: an unknown method of a gevals session does not change the
    // protocol.
    raw == b"ping"
        || FAMILIES.iter().any(|family| raw.strip_prefix(*family).is_some_and(|rest| rest.first() == Some(&b'/')))
}

fn recognise(received: &Received<'_>, was_mine: bool) -> bool {
    let Some(method) = received.string(rpc::METHOD) else { return was_mine };
    let raw = method.raw_bytes();
    // Most messages are requests of another protocol, with a name of small letters: none has a
    // slash or an escape.
    if raw != b"initialize" && raw.iter().all(|byte| *byte > b'\\') {
        return raw == b"ping";
    }
    recognise_by_params(received, method, was_mine)
}

#[inline(never)]
#[allow(clippy::manual_contains, reason = "it links what finds bytes by the word")]
fn recognise_by_params(received: &Received<'_>, method: Text<'_>, was_mine: bool) -> bool {
    if method != *"initialize" {
        // What is not known is answered by the protocol of the session.
        let has_slash = method.raw_bytes().iter().any(|byte| *byte == b'/');
        return has_slash && (was_mine || is_method(method) || has_meta(received));
    }
    // Another protocol has an `initialize` too.
    let Some(params) = received.json(rpc::PARAMS) else { return false };
    params.get("clientInfo").is_some()
        || params.get("protocolVersion").and_then(|version| version.text()).is_some_and(is_date)
        || has_meta(received)
}

/// Whether a request says something about itself that only requests of the modern era say.
fn has_meta(received: &Received<'_>) -> bool {
    let meta = received.json(rpc::PARAMS).and_then(|params| params.get("_meta"));
    meta.is_some_and(|meta| meta.members().any(|(name, _)| name.raw_bytes().starts_with(b"io.modelcontextprotocol")))
}

/// Whether a version is a date, as those of this protocol are.
fn is_date(version: Text<'_>) -> bool {
    let raw = version.raw_bytes();
    raw.len() == 10 && raw.iter().zip(b"0000-00-00").all(|(byte, form)| byte.is_ascii_digit() == (*form == b'0'))
}

/// JSON-RPC's envelope, but for ids: they are strings and integers, and never null (Base Protocol,
/// Requests).
fn envelope(received: &Received<'_>) -> Envelope {
    match rpc::envelope(received) {
        Envelope::Request { .. }
            if !matches!(received.member(rpc::ID), [b'"', ..]) && !is_integer(received.member(rpc::ID)) =>
        {
            Envelope::Invalid { text: "the id must be a string or an integer", id: Span::default() }
        }
        envelope => envelope,
    }
}

/// A subscription stays open, see [`write_acknowledgement`].
fn stays_open(received: &Received<'_>) -> bool {
    received.is(rpc::METHOD, "subscriptions/listen") && check_meta(received).is_ok()
}

fn is_integer(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Whether a request is of the modern era: it says things about itself that only those say.
fn is_modern(received: &Received<'_>) -> bool {
    [META_VERSION, META_CAPABILITIES, META_CLIENT].into_iter().any(|slot| received.has(slot))
}

/// Tells which requests are answered while a call is out: all except those that run tools. A list
/// of them is, if it needs no pages.
fn busy(received: &Received<'_>) -> Busy {
    if received.is(rpc::METHOD, "notifications/cancelled") && received.has(REQUEST_ID) {
        Busy::Cancel(received.span(REQUEST_ID))
    } else if received.is(rpc::METHOD, "tools/call") {
        Busy::Wait
    } else if received.is(rpc::METHOD, "tools/list") {
        Busy::AnswerIfWhole
    } else {
        Busy::Answer
    }
}

/// The progress token of a request, if it has a valid one.
fn token<'t>(received: &Received<'t>) -> Option<&'t [u8]> {
    let token = received.member(TOKEN);
    (matches!(token, [b'"', ..]) || is_integer(token)).then_some(token)
}

/// The beginning of a text after outputs, which has the beginnings of all other results in it.
static CONTENT: [u8; 36] = *b"},\"content\":[{\"type\":\"text\",\"text\":\"";
/// A text without outputs: the list begins with it.
static FIRST_TEXT: &[u8] = CONTENT.split_at(2).1;
static LIST: &[u8] = CONTENT.split_at(2).1.split_at(11).0;
/// A text in the list.
static TEXT: &[u8] = CONTENT.split_at(13).1;
static RESULT: &[u8] = b",\"result\":{";

/// The fixed parts of its replies.
static FORMAT: ReplyFormat = ReplyFormat {
    head: write_head,
    success: RESULT,
    outputs: OutputsPlace { start: b"\"structuredContent\":{", end: b"}", as_strings: false },
    message: MessagePlace { after_outputs: &CONTENT, alone: FIRST_TEXT, end: b"\"}", is_beside_outputs: false },
    content: Some(ContentPlace {
        after_outputs: CONTENT.split_at(13).0,
        alone: LIST,
        before_text: b",{\"type\":\"text\",\"text\":\"",
    }),
    failed: Some(Failed {
        success: RESULT,
        // Clients hold structured content against the schema of outputs, in failures too, and some
        // show nothing else.
        outputs_start: b"\"incompleteOutputs\":{",
        with_outputs_only: false,
        before_text: |out, has_outputs, _, _| {
            if has_outputs {
                out.raw(b"},");
            }
            out.raw(FIRST_TEXT);
        },
        end: b"\"}",
    }),
    error: |out, _, _| {
        out.raw(RESULT);
        out.raw(FIRST_TEXT);
    },
    error_end: |out, _| out.raw(b"\"}"),
    parse_error: b",\"error\":{\"code\":-32700,\"message\":\"",
    close,
    logs: Logs::Line(write_log),
    progress: Some(write_progress),
};

/// JSON-RPC's head, but that an id that could not be read is left out: null is none here.
fn write_head(out: &mut Writer<'_>, id: &[u8]) {
    if id.is_empty() {
        out.raw(b"{\"jsonrpc\":\"2.0\"");
    } else {
        rpc::write_head(out, id);
    }
}

const STRING: &str = "expected a string";
const OBJECT: &str = "expected an object";
const REQUIRED: &str = "required, but missing";
const UNSUPPORTED: &Refusal = &Refusal::new(Code::Number(UNSUPPORTED_VERSION), "Unsupported protocol version", "");
const UNKNOWN_METHOD: &Refusal =
    &Refusal::quoting(Code::Number(rpc::METHOD_NOT_FOUND), "Method not found: ", rpc::METHOD);
const UNKNOWN_TOOL: &Refusal = &Refusal::quoting(Code::Number(rpc::INVALID_PARAMS), "Unknown tool: ", NAME);

/// -32602 on a member of `params`.
const fn invalid(member: &'static str, fault: &'static str) -> Refusal {
    Refusal::new(Code::Number(rpc::INVALID_PARAMS), member, fault)
}

/// Reads a request.
fn read(received: &Received<'_>, server: &ServerState<'_>) -> Result<Action, &'static Refusal> {
    let is = |name| received.is(rpc::METHOD, name);
    if !received.has(rpc::ID) {
        // All notifications there are say something about a request, a session or what the client can do.
        return Ok(Action::Ignore);
    }
    let only_modern = is("server/discover") || is("subscriptions/listen");
    if only_modern || is_modern(received) {
        check_meta(received)?;
        if is("server/discover") {
            return Ok(Action::Answer(write_discovery));
        }
        if is("subscriptions/listen") {
            return Ok(Action::Answer(write_acknowledgement));
        }
    } else {
        if is("initialize") {
            // One that is elsewhere does not say that it carries a configuration, and gets none.
            let is_elsewhere = cfg!(feature = "std") && server.manifest.is_elsewhere;
            let config = if is_elsewhere { Span::of_range(0, 0) } else { received.span(OWN_CONFIG) };
            return Ok(Action::OpenSession { config, answer: write_initialized });
        }
        if is("ping") {
            return Ok(Action::Answer(|out, _, _| out.raw(b",\"result\":{}}")));
        }
        if is("logging/setLevel") {
            return match received.string(LEVEL).and_then(level) {
                Some(least) => Ok(Action::LimitLogs { least, answer: |out, _, _| out.raw(b",\"result\":{}}") }),
                None => Err(const {
                    &invalid("level", "expected one of debug, info, notice, warning, error, critical, alert, emergency")
                }),
            };
        }
    }
    if is("tools/list") {
        return match cursor(received) {
            Some(_) => Ok(Action::Answer(write_tools)),
            None => Err(const { &invalid("cursor", "not a cursor from this server") }),
        };
    }
    if is("tools/call") {
        return call(received, server.manifest);
    }
    Err(UNKNOWN_METHOD)
}

/// Checks what every request of the modern era must say about itself (Base Protocol, `_meta`).
fn check_meta(received: &Received<'_>) -> Result<(), &'static Refusal> {
    match received.first(META_VERSION) {
        b'"' if received.is(META_VERSION, MODERN) => {}
        b'"' => return Err(UNSUPPORTED),
        0 => return Err(const { &invalid(VERSION_NAME, REQUIRED) }),
        _ => return Err(const { &invalid(VERSION_NAME, STRING) }),
    }
    match received.first(META_CAPABILITIES) {
        b'{' => Ok(()),
        0 => Err(const { &invalid(CAPABILITIES_NAME, REQUIRED) }),
        _ => Err(const { &invalid(CAPABILITIES_NAME, OBJECT) }),
    }
}

fn call(received: &Received<'_>, manifest: &Manifest) -> Result<Action, &'static Refusal> {
    match received.first(NAME) {
        b'"' => {}
        0 => return Err(const { &invalid("name", REQUIRED) }),
        _ => return Err(const { &invalid("name", STRING) }),
    }
    let index = position(received, manifest).ok_or(UNKNOWN_TOOL)?;
    if !matches!(received.first(ARGUMENTS), 0 | b'{' | b'n') {
        return Err(const { &invalid("arguments", OBJECT) });
    }
    let call = CallAction::new(received, index, received.span(ARGUMENTS), received.span(rpc::JSONRPC));
    Ok(call.timeout_nanos(timeout(received)).into())
}

/// The time limit that the caller says in [`TIMEOUT_NAME`], in nanoseconds, if it is one.
fn timeout(received: &Received<'_>) -> Option<u64> {
    let digits = received.member(OWN_TIMEOUT);
    let millis = digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit & 0xf))?;
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    millis.checked_mul(1_000_000).filter(|nanos| *nanos > 0)
}

/// The value of [`CONTEXT_NAME`] in a call: the caller's context of the task. It is none if the
/// caller sent none.
pub fn context<'a>(call: &CallContext<'a>) -> Option<Json<'a>> {
    call.received_by(&PROTOCOL)?.json(OWN_CONTEXT).filter(|json| json.kind() == JsonKind::Object)
}

/// Members that clients add to the arguments of calls: n8n (n8n-io/n8n#21500), Neon's (neondatabase/mcp-server-neon#353), and others.
const ADDED: [&[u8]; 4] = [b"toolCallId", b"sessionKey", b"user_context", b"tool_call_description"];

/// How many bytes are looked at to see whether such a member may begin. The shortest one has no fewer, with its colon, value and brace.
const BEGINNING: usize = 5;

/// Whether a member that a client adds may begin with these bytes.
fn may_begin_addition(text: &[u8]) -> bool {
    let [b'"', name @ ..] = text else { return false };
    name.first() == Some(&b'_') || ADDED.iter().any(|added| added.starts_with(name))
}

/// Makes those arguments blank that a client adds itself, and tells their names. What the operation
/// knows stays.
fn leave_out_additions(args: &mut [u8], operation: &Operation, tell: &mut dyn FnMut(&dyn Message)) {
    // Most calls have none, which is seen without reading each argument.
    if cfg!(target_pointer_width = "64") && !args.windows(BEGINNING).any(may_begin_addition) {
        return;
    }
    let mut at = 0;
    // The comma behind the last argument that stays.
    let mut comma = None;
    while let Some(text::Member { name: (start, end), end: behind }) = text::member(args, at) {
        let next = args.len().wrapping_sub(args.get(behind..).unwrap_or_default().trim_ascii_start().len());
        let has_comma = args.get(next) == Some(&b',');
        at = if has_comma { next.wrapping_add(1) } else { behind };
        let name = args.get(start..end).unwrap_or_default();
        let is_added = matches!(name, [b'_', ..]) || ADDED.contains(&name);
        if is_added && !operation.params.has_name(name) {
            let name = str::from_utf8(name).unwrap_or_default();
            tell(&["left out the argument ", name, ", which the client adds itself"]);
            // With the comma behind it, or else the one before it.
            let quote = start.wrapping_sub(1);
            let start = if has_comma { quote } else { comma.unwrap_or(quote) };
            // Not `fill`, for which the image would have a function.
            args.get_mut(start..at)
                .unwrap_or_default()
                .iter_mut()
                .filter(|byte| **byte > b' ')
                .for_each(|byte| *byte = b' ');
        } else if has_comma {
            comma = Some(next);
        }
    }
}

/// The place of the operation that a request's tool is.
fn position(received: &Received<'_>, manifest: &Manifest) -> Option<usize> {
    let name = received.string(NAME)?;
    manifest.position(name).or_else(|| tool(manifest, name.raw_bytes()))
}

/// The place of the operation whose tool has this name.
#[inline(never)]
fn tool(manifest: &Manifest, name: &[u8]) -> Option<usize> {
    manifest.operations.iter().position(|operation| operation.is_identified_by(name))
}

#[inline(never)]
fn write_tool_name(out: &mut Writer<'_>, operation: &Operation) {
    operation.identifier().for_each(|byte| out.byte(byte));
}

/// The place of the first tool of the page that is asked for: none if the cursor is not one of
/// [`write_tools`].
fn cursor(received: &Received<'_>) -> Option<usize> {
    match received.member(CURSOR) {
        [] | [b'n', ..] => Some(0),
        [b'"', digits @ .., b'"'] if !digits.is_empty() && digits.len() < 6 => {
            digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + usize::from(digit & 0xf)))
        }
        _ => None,
    }
}

/// Writes a page of tools: as many as fit the reply region, one at least, so that the cursor advances.
fn write_tools(out: &mut Writer<'_>, received: &Received<'_>, server: &ServerState<'_>) {
    let ServerState { manifest, is_ahead, .. } = *server;
    let is_modern = is_modern(received);
    out.raw(b",\"result\":{\"tools\":[");
    let first = out.len();
    let mut measure = Writer::new(&mut []);
    write_page_end(&mut measure, manifest, usize::MAX, is_modern);
    let limit = if is_ahead { usize::MAX } else { out.capacity().saturating_sub(measure.len()) };
    let mut next = cursor(received).unwrap_or_default();
    let mut detail = Detail::All;
    while let Some(operation) = manifest.operations.get(next) {
        let start = out.len();
        if start > first {
            out.byte(b',');
        }
        write_tool(out, operation, detail);
        if out.len() > limit {
            out.truncate(start);
            if start > first {
                break;
            }
            // Alone it is too long for a page.
            if let Some(less) = detail.less() {
                detail = less;
                continue;
            }
        }
        detail = Detail::All;
        next += 1;
    }
    let next = if next < manifest.operations.len() { next } else { 0 };
    write_page_end(out, manifest, next, is_modern);
}

/// `next` is where the next page begins; 0 if there is none.
fn write_page_end(out: &mut Writer<'_>, manifest: &Manifest, next: usize, is_modern: bool) {
    out.byte(b']');
    if next > 0 {
        out.raw(b",\"nextCursor\":\"");
        out.usize(next);
        out.byte(b'"');
    }
    write_end(out, manifest, is_modern, true, None);
}

/// How much of a tool is written.
#[derive(Clone, Copy)]
enum Detail {
    All,
    /// The tool without the schema of its outputs.
    Arguments,
    /// Only the name of the tool, and the members that the protocol requires.
    Name,
}

impl Detail {
    fn less(self) -> Option<Self> {
        match self {
            Self::All => Some(Self::Arguments),
            Self::Arguments => Some(Self::Name),
            Self::Name => None,
        }
    }
}

fn write_tool(out: &mut Writer<'_>, operation: &Operation, detail: Detail) {
    let whole = !matches!(detail, Detail::Name);
    out.raw(b"{\"name\":\"");
    write_tool_name(out, operation);
    if whole && operation.tool_members.is_empty() {
        out.raw(b"\",\"title\":\"");
        let start = out.len();
        out.text_part(operation.name);
        let title = out.as_written_mut().get_mut(start..).unwrap_or_default();
        if let Some(first) = title.first_mut() {
            *first = first.to_ascii_uppercase();
        }
        // Escapes have none of these.
        title.iter_mut().filter(|byte| matches!(byte, b'-' | b'_')).for_each(|byte| *byte = b' ');
    }
    if whole {
        out.raw(b"\",\"description\":\"");
        out.text_part(operation.description);
    }
    out.raw(b"\",\"inputSchema\":");
    write_schema(out, &operation.params, whole);
    if let (Some(outputs), Detail::All) = (&operation.outputs, detail) {
        out.raw(b",\"outputSchema\":");
        write_schema(out, outputs, true);
    }
    if !operation.tool_members.is_empty() {
        if whole {
            out.byte(b',');
            out.raw(operation.tool_members.as_bytes());
        }
    } else if let Some(effects) = operation.effects {
        out.raw(b",\"annotations\":{\"readOnlyHint\":");
        out.bool(effects.read_only);
        out.raw(b",\"destructiveHint\":");
        out.bool(effects.destructive);
        out.raw(b",\"idempotentHint\":");
        out.bool(effects.idempotent);
        out.byte(b'}');
    }
    let is_renamed = || !operation.identifier().eq(operation.name.bytes());
    if cfg!(feature = "std") && whole && operation.tool_members.is_empty() && is_renamed() {
        out.raw(b",\"_meta\":{\"");
        out.raw(OWN_NAME.as_bytes());
        out.raw(b"\":");
        out.str(operation.name);
        out.byte(b'}');
    }
    out.byte(b'}');
}

/// Writes a schema as it is if it says that it is one of objects, which it must; else that much,
/// and no more. It has properties, if only empty ones: clients' interfaces refuse one without.
fn write_schema(out: &mut Writer<'_>, schema: &Schema, whole: bool) {
    const OF_OBJECTS: &[u8] = b"{\"type\":\"object\",\"properties\":{";
    let start = out.len();
    if whole {
        schema.write(out);
        if !out.fits() {
            return;
        }
        let written = out.as_written().get(start..).unwrap_or_default();
        if written.starts_with(OF_OBJECTS) {
            return;
        }
        let json = Json::of_checked(written);
        if json.kind() == JsonKind::Object
            && json.get("type").and_then(|kind| kind.text()).is_some_and(|kind| kind == "object")
        {
            match json.get("properties").map(|properties| properties.kind()) {
                None => {
                    let end = out.len();
                    out.truncate(end.saturating_sub(1));
                    out.raw(b",\"properties\":{}}");
                    return;
                }
                Some(JsonKind::Object) => return,
                // Other languages write a table that was never made as null.
                Some(_) => {}
            }
        }
        out.truncate(start);
    }
    out.raw(OF_OBJECTS);
    out.raw(b"}}");
}

/// A failure as the end of a result says it: its kind, and a code of the operation's own.
type Fault = (FailureKind, Option<&'static str>);

/// Writes the end of a result, up to the end of the reply.
fn write_end(out: &mut Writer<'_>, manifest: &Manifest, is_modern: bool, is_cacheable: bool, fault: Option<Fault>) {
    if is_modern {
        if is_cacheable {
            // It changes when the program or the firmware does.
            out.raw(b",\"ttlMs\":300000,\"cacheScope\":\"public\"");
        }
        out.raw(b",\"resultType\":\"complete\",");
        begin_meta(out, b"serverInfo");
        write_server(out, manifest);
    }
    if let Some((kind, code)) = fault {
        let before: &[u8] = if is_modern { b"," } else { b",\"_meta\":{" };
        write_fault(out, before, Some(kind), code, b"");
    }
    if is_modern || fault.is_some() {
        out.byte(b'}');
    }
    out.raw(b"}}");
}

fn write_server(out: &mut Writer<'_>, manifest: &Manifest) {
    out.raw(b"{\"name\":");
    out.str(manifest.name);
    out.raw(b",\"version\":");
    out.str(manifest.version);
    out.byte(b'}');
}

/// Writes the members that the answers to `initialize` and `server/discover` have in common.
fn write_capabilities(out: &mut Writer<'_>, manifest: &Manifest) {
    out.raw(b",\"capabilities\":{\"tools\":{");
    if cfg!(feature = "std") && manifest.can_change {
        out.raw(b"\"listChanged\":true");
    }
    out.raw(b"},\"logging\":{}},\"instructions\":\"");
    write_instructions(out, manifest);
    out.byte(b'"');
}

/// The facts that an agent has to know before its first call. A line is written if there is a tool
/// of its name, where it has one, and a safe state, where it needs one.
static INSTRUCTIONS: [(&str, bool, &str); 8] = [
    ("identify", false, "Call identify first: it says what there is."),
    ("", false, "Use the names and units of the tools' schemas. Unknown names and arguments are refused."),
    ("", false, "Calls run one at a time, in order."),
    (
        "",
        true,
        "Cancelling a call, or its time limit, switches all outputs off if you have changed any since they were off.",
    ),
    ("", true, "The same happens when the last session ends or is idle."),
    ("", true, "A warning says so at once, and your next result has outputs_switched_off."),
    ("state", true, "state says what is on."),
    ("all_off", true, "Call all_off when you are done."),
];

/// The extension's description in the `instructions` of a rigline server, where it comes before the
/// facts about the tools.
#[doc(hidden)]
pub fn description_in(instructions: &str) -> &str {
    let facts = INSTRUCTIONS.iter().filter_map(|(_, _, fact)| instructions.find(fact));
    facts.min().and_then(|end| instructions.get(..end)).unwrap_or(instructions).trim_end()
}

/// Writes the facts that an agent has to know before its first call: a line each.
fn write_instructions(out: &mut Writer<'_>, manifest: &Manifest) {
    let description = ("", false, manifest.description);
    for (name, with_safe_state, text) in iter::once(&description).chain(&INSTRUCTIONS) {
        let is_true = name.is_empty() || tool(manifest, name.as_bytes()).is_some();
        if is_true && !text.is_empty() && (!with_safe_state || manifest.has_safe_state) {
            out.text_part(text);
            out.raw(b"\\n");
        }
    }
    for (lead, reads) in [("Tools that change nothing:", true), ("Tools that change something:", false)] {
        let is_listed = |operation: &&Operation| operation.only_reads() == reads;
        let mut listed = manifest.operations.iter().filter(is_listed).peekable();
        // Many make a line that nobody reads, and a reply too long for a board.
        if listed.peek().is_none() || manifest.operations.len() > MOST_NAMED {
            continue;
        }
        out.text_part(lead);
        for operation in listed {
            out.byte(b' ');
            write_tool_name(out, operation);
        }
        out.raw(b".\\n");
    }
}

/// The most tools that instructions name.
const MOST_NAMED: usize = 24;

/// Lifecycle, Version Negotiation: the client's version if it is known here, else the newest, and never an error.
fn write_initialized(out: &mut Writer<'_>, received: &Received<'_>, server: &ServerState<'_>) {
    let [newest, ..] = LEGACY;
    let version = LEGACY.into_iter().find(|known| received.is(VERSION, known)).unwrap_or(newest);
    out.raw(b",\"result\":{\"protocolVersion\":\"");
    out.raw(version.as_bytes());
    out.byte(b'"');
    write_capabilities(out, server.manifest);
    out.raw(b",\"serverInfo\":");
    write_server(out, server.manifest);
    out.raw(b",\"_meta\":{\"");
    out.raw(CARRIES_NAME.as_bytes());
    out.raw(b"\":");
    out.bool(!server.manifest.is_elsewhere);
    if cfg!(feature = "std") && server.manifest.is_elsewhere && server.manifest.has_safe_state {
        out.raw(b",\"");
        out.raw(SAFE_STATE_NAME.as_bytes());
        out.raw(b"\":true");
    }
    out.raw(b"}}}");
}

fn write_discovery(out: &mut Writer<'_>, _: &Received<'_>, server: &ServerState<'_>) {
    out.raw(b",\"result\":{\"supportedVersions\":");
    write_versions(out);
    write_capabilities(out, server.manifest);
    write_end(out, server.manifest, true, true, None);
}

fn write_versions(out: &mut Writer<'_>) {
    out.raw(b"[\"");
    out.raw(MODERN.as_bytes());
    for version in LEGACY {
        out.raw(b"\",\"");
        out.raw(version.as_bytes());
    }
    out.raw(b"\"]");
}

/// Answers `subscriptions/listen` with the notification that acknowledges it: the request stays open until the client
/// cancels it. Only the list of tools may ever change here, and only on a desktop, where a server tells of that.
fn write_acknowledgement(out: &mut Writer<'_>, received: &Received<'_>, server: &ServerState<'_>) {
    if !out.as_written().starts_with(b"{") {
        // In a batch, which the modern era does not have.
        rpc::begin_error(out, rpc::INVALID_REQUEST);
        out.raw(b"subscriptions/listen cannot be in a batch");
        return rpc::end_error(out);
    }
    // A notification has no id: the reply's head, which has one, makes room for it.
    out.truncate(0);
    begin_notification(out, b"subscriptions/acknowledged");
    begin_meta(out, b"subscriptionId");
    out.raw(received.member(rpc::ID));
    if cfg!(feature = "std") && server.manifest.can_change && wants_changes(received) {
        out.raw(b"},\"notifications\":{\"toolsListChanged\":true}}}");
    } else {
        out.raw(b"},\"notifications\":{}}}");
    }
}

/// Whether a subscription is for changes of the list of tools.
fn wants_changes(received: &Received<'_>) -> bool {
    let wanted = received.json(rpc::PARAMS).and_then(|params| params.get("notifications")?.get("toolsListChanged"));
    wanted.and_then(|wanted| wanted.bool()).unwrap_or_default()
}

/// Writes the end of a call's result: what is not there yet of its content, and what its era adds.
fn close(out: &mut Writer<'_>, closing: &ReplyFacts<'_>) {
    let (start, end) = closing.outputs;
    let is_error = closing.error.is_some();
    let has_text = closing.has_message || is_error;
    if end > start {
        // Tools, Structured Content: the serialized JSON goes into a text block too.
        out.byte(b',');
        if !has_text {
            out.raw(LIST);
        }
        out.raw(TEXT);
        out.byte(b'{');
        out.repeat(start, end, true);
        out.raw(b"}\"}");
    } else if !has_text {
        out.raw(LIST);
    }
    out.byte(b']');
    let received = closing.received.as_ref();
    if is_error {
        out.raw(b",\"isError\":true");
    } else if end == start
        && let Some(place) = received.and_then(|received| position(received, closing.manifest))
        && closing.manifest.operations.get(place).is_some_and(|operation| operation.outputs.is_some())
    {
        // Tools, Output Schema: a tool that has one must give structured content.
        out.raw(b",\"structuredContent\":{}");
    }
    let fault = closing.error.map(|kind| (kind, closing.code));
    write_end(out, closing.manifest, received.is_some_and(is_modern), false, fault);
}

/// Writes a refusal behind the head of its reply.
fn refuse(out: &mut Writer<'_>, received: &Received<'_>, refusal: &Refusal, server: &ServerState<'_>) {
    if refusal.code() != Code::Number(UNSUPPORTED_VERSION) {
        return rpc::refuse(out, received, refusal, server);
    }
    rpc::begin_error(out, UNSUPPORTED_VERSION);
    refusal.write_text(out, received);
    out.raw(b"\",\"data\":{\"supported\":");
    write_versions(out);
    out.raw(b",\"requested\":");
    if let Some(version) = received.string(META_VERSION) {
        out.message(&Quoted(version));
    }
    out.raw(b"}}}");
}

/// The level of this name, in syslog's order: what is between two of ours is the lower.
fn level(name: Text<'_>) -> Option<Level> {
    static NAMES: [(&str, Level); 8] = [
        ("debug", Level::Debug),
        ("info", Level::Info),
        ("notice", Level::Warn),
        ("warning", Level::Warn),
        ("error", Level::Error),
        ("critical", Level::Error),
        ("alert", Level::Error),
        ("emergency", Level::Error),
    ];
    NAMES.iter().find(|(known, _)| name == *known).map(|(_, level)| *level)
}

/// Writes a log, unless the request is of the modern era and does not ask for it.
fn write_log(out: &mut Writer<'_>, log: &Log<'_>) {
    if let Some(received) = log.received.as_ref().filter(|received| is_modern(received))
        && received.string(META_LOG_LEVEL).and_then(level).is_none_or(|least| log.level < least)
    {
        return;
    }
    begin_notification(out, b"message");
    out.raw(b"\"level\":\"");
    out.raw(if log.level == Level::Warn { b"warning" } else { log.level.name().as_bytes() });
    out.raw(b"\",\"data\":");
    if let Some(write) = log.data {
        out.raw(b"{\"message\":\"");
        log.message.write_escaped(out);
        out.raw(b"\",\"data\":");
        write(out);
        out.raw(b"}}}");
    } else {
        out.byte(b'"');
        log.message.write_escaped(out);
        out.raw(b"\"}}");
    }
}

#[inline(never)]
fn begin_notification(out: &mut Writer<'_>, name: &[u8]) {
    out.raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/");
    out.raw(name);
    out.raw(b"\",\"params\":{");
}

#[inline(never)]
fn begin_meta(out: &mut Writer<'_>, name: &[u8]) {
    out.raw(b"\"_meta\":{\"io.modelcontextprotocol/");
    out.raw(name);
    out.raw(b"\":");
}

/// Writes a progress notification, if the request has a token for it.
fn write_progress(out: &mut Writer<'_>, progress: &Progress<'_>) -> bool {
    let Some(token) = progress.received.as_ref().and_then(token) else { return false };
    begin_notification(out, b"progress");
    out.raw(b"\"progressToken\":");
    out.raw(token);
    out.raw(b",\"progress\":");
    out.u32(progress.done);
    if progress.beat > 0 {
        // Progress must increase with each notification: six digits behind the point.
        let point = out.len();
        out.u32(progress.beat.min(999_999) + 1_000_000);
        if let Some(place) = out.as_written_mut().get_mut(point) {
            *place = b'.';
        }
    }
    if let Some(total) = progress.total {
        out.raw(b",\"total\":");
        out.u32(total);
    }
    if let Some(message) = progress.message {
        out.raw(b",\"message\":\"");
        message.write_escaped(out);
        out.byte(b'"');
    }
    out.raw(b"}}");
    true
}
