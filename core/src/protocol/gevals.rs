//! gevals Extension Protocol 0.0.1: `initialize`, `execute`, `log`, `shutdown` over JSON-RPC 2.0.
//!
//! | [`Failure`](crate::Failure) | reply |
//! |---|---|
//! | the operation's own logic failed | `result` with `success:false` |
//! | unknown operation | error -32601 |
//! | bad arguments | error -32602, naming the argument |
//! | could not be carried out, not allowed | error -32000 |
//! | timeout | error -32001 |
//! | requirement not met | error -32002 |
//! | does not fit a buffer, internal | error -32603 |
//!
//! `context.timeout` is the time limit of the call, in Go's form ([`GoDuration`]). Without it, where it is null and where it is
//! zero (as Go's own libraries have it) there is none; a negative one is -32602.

use crate::call::{Agent, CallContext, Phase};
use crate::context::Level as LogLevel;
use crate::duration::GoDuration;
use crate::failure::FailureKind;
use crate::json::check::{Key, Level, Parts, Span};
use crate::json::view::{Json, Text, has_escapes};
use crate::json::write::{Message, Writer};
use crate::manifest::Manifest;
use crate::phrases::{Codes, Failed, Head, Outputs, Phrases};
use crate::protocol::Request;
use crate::rpc::{self, Quoted, Spans};
use crate::schema::escaped_len;

/// The version of the protocol that is spoken here. A host that offers another gets -32602.
pub const VERSION: &str = "0.0.1";

/// [`FailureKind::Unreachable`] and [`FailureKind::Forbidden`].
pub const OPERATION_FAILED: i32 = -32000;
/// [`FailureKind::Timeout`].
pub const TIMEOUT: i32 = -32001;
/// [`FailureKind::RequirementNotMet`].
pub const REQUIREMENT_NOT_MET: i32 = -32002;

const OPERATION: usize = rpc::FIRST_FREE;
const ARGS: usize = OPERATION + 1;
const CONTEXT: usize = OPERATION + 2;
const WORKDIR: usize = OPERATION + 3;
const PHASE: usize = OPERATION + 4;
const ENV: usize = OPERATION + 5;
const TIMEOUT_MEMBER: usize = OPERATION + 6;
const AGENT: usize = OPERATION + 7;
const PROMPT: usize = OPERATION + 8;
const OUTPUT: usize = OPERATION + 9;
const PROTOCOL_VERSION: usize = OPERATION + 10;
const CONFIG: usize = OPERATION + 11;
const ENV_NO_STRING: usize = OPERATION + 12;
/// How many members are watched, JSON-RPC's own included.
pub(crate) const SLOTS: usize = OPERATION + 13;

/// The members of `params`, of all methods: no two methods give one name two meanings.
pub(crate) static PARAMS: Level = Level::of(&[
    Key::new("operation", OPERATION, None),
    Key::new("args", ARGS, None),
    Key::new("context", CONTEXT, Some(&CONTEXT_MEMBERS)),
    Key::new("protocolVersion", PROTOCOL_VERSION, None),
    Key::new("config", CONFIG, None),
]);

static CONTEXT_MEMBERS: Level = Level::of(&[
    Key::new("workdir", WORKDIR, None),
    Key::new("phase", PHASE, None),
    Key::new("env", ENV, Some(&ENVIRONMENT)),
    Key::new("timeout", TIMEOUT_MEMBER, None),
    Key::new("agent", AGENT, Some(&AGENT_MEMBERS)),
]);

static ENVIRONMENT: Level = Level::of_strings(ENV_NO_STRING);

static AGENT_MEMBERS: Level = Level::of(&[Key::new("prompt", PROMPT, None), Key::new("output", OUTPUT, None)]);

/// Why a request is answered with an error before anything runs. All of them are constants, and handed on by reference: a
/// result is then a word or two.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    UnknownMethod,
    UnknownOperation,
    /// -32602 on a member of `params`.
    Params {
        member: &'static str,
        fault: &'static str,
    },
    UnsupportedVersion,
    /// -32600: between `shutdown` and the next `initialize`.
    AfterShutdown,
}

impl Manifest {
    /// The manifest as it is, if a gevals host can read it: its reply to `initialize`, with envelope and an id of 20
    /// digits, takes at most 65,535 bytes without its newline. `#[rigline::extension]` checks this; in a manifest written by
    /// hand, put it last.
    ///
    /// # Panics
    /// If it is longer: in a constant, where manifests belong, it does not compile.
    #[must_use]
    pub const fn fitting(self) -> Self {
        assert!(
            manifest_reply_len(&self, 20) <= HOST_LINE_LIMIT,
            "the manifest takes more than the 65,535 bytes of a line that a gevals host reads: shorten descriptions, or split the extension"
        );
        self
    }
}

/// The fixed parts of its replies.
pub(crate) static PHRASES: Phrases = Phrases {
    head: Head::JsonRpc,
    success: b",\"result\":{\"success\":true",
    outputs: Outputs::Strings(b",\"outputs\":{"),
    failed: Failed::Result(b",\"result\":{\"success\":false"),
    error: b",\"error\":{\"code\":",
    codes: Codes::Numbers(code),
    error_end: b"\"",
    forbidden_end: b"\"",
    parse_error: b",\"error\":{\"code\":-32700,\"message\":\"",
};

/// Reads a request whose envelope is in order; `timeout` is what it sets in nanoseconds, if anything.
pub(crate) fn request(
    text: &[u8],
    spans: &Spans,
    manifest: &Manifest,
    timeout: &mut Option<u64>,
) -> Result<Request, &'static Refusal> {
    let method = rpc::member(text, spans, rpc::METHOD);
    if is(method, "execute") {
        let request = execute(text, spans, manifest)?;
        check_context(text, spans)?;
        *timeout = read_timeout(text, spans)?;
        Ok(request)
    } else if is(method, "initialize") {
        initialize(text, spans)
    } else if is(method, "shutdown") {
        params_are_structured(text, spans)?;
        Ok(Request::Shutdown)
    } else {
        Err(&Refusal::UnknownMethod)
    }
}

/// Whether a request is one that starts a session.
pub(crate) fn is_initialize(text: &[u8], spans: &Spans) -> bool {
    is(rpc::member(text, spans, rpc::METHOD), "initialize")
}

/// Whether the JSON string `value` is `name`, which must have nothing to escape in it.
#[cfg_attr(target_pointer_width = "64", inline(always))]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn is(value: &[u8], name: &str) -> bool {
    match value {
        [b'"', raw @ .., b'"'] => raw == name.as_bytes() || Text::of_checked(raw) == *name,
        _ => false,
    }
}

/// JSON-RPC 2.0 §4.2: params must be structured; null stands for absent.
fn params_are_structured(text: &[u8], spans: &Spans) -> Result<(), &'static Refusal> {
    match rpc::member(text, spans, rpc::PARAMS) {
        [] | [b'{' | b'[' | b'n', ..] => Ok(()),
        _ => Err(&Refusal::Params { member: "params", fault: "expected an object" }),
    }
}

fn params_are_members(text: &[u8], spans: &Spans) -> Result<(), &'static Refusal> {
    match first(text, spans, rpc::PARAMS) {
        b'{' => Ok(()),
        0 | b'n' => Err(&Refusal::Params { member: "params", fault: "required, but missing" }),
        _ => Err(&Refusal::Params { member: "params", fault: "expected an object" }),
    }
}

fn initialize(text: &[u8], spans: &Spans) -> Result<Request, &'static Refusal> {
    params_are_members(text, spans)?;
    let config = spans.get(CONFIG).copied().unwrap_or_default();
    match rpc::string(rpc::member(text, spans, PROTOCOL_VERSION)) {
        Some(version) if version == VERSION => {}
        _ => return Err(&Refusal::UnsupportedVersion),
    }
    match config.of(text) {
        [] | [b'{', ..] => Ok(Request::Initialize { config }),
        [b'n', ..] => Ok(Request::Initialize { config: Span::default() }),
        _ => Err(&Refusal::Params { member: "config", fault: "expected an object" }),
    }
}

fn execute(text: &[u8], spans: &Spans, manifest: &Manifest) -> Result<Request, &'static Refusal> {
    params_are_members(text, spans)?;
    let operation = match rpc::member(text, spans, OPERATION) {
        [b'"', raw @ .., b'"'] => raw,
        [] => return Err(&Refusal::Params { member: "operation", fault: "required, but missing" }),
        _ => return Err(&Refusal::Params { member: "operation", fault: "expected a string" }),
    };
    let index = manifest.position(Text::of_checked(operation)).ok_or(&Refusal::UnknownOperation)?;
    let args = spans.get(ARGS).copied().unwrap_or_default();
    if !matches!(args.first(text), 0 | b'{' | b'n') {
        return Err(&Refusal::Params { member: "args", fault: "expected an object" });
    }
    match first(text, spans, CONTEXT) {
        b'{' => Ok(Request::Execute { index, args }),
        0 => Err(&Refusal::Params { member: "context", fault: "required, but missing" }),
        _ => Err(&Refusal::Params { member: "context", fault: "expected an object" }),
    }
}

/// Writes a refusal behind the head of its reply.
pub(crate) fn write_refusal(out: &mut Writer<'_>, refusal: &Refusal, text: &[u8], spans: &Spans) {
    let (code, lead, fault, named) = match *refusal {
        Refusal::UnknownMethod => (rpc::METHOD_NOT_FOUND, "Unknown method: ", "", Some(rpc::METHOD)),
        Refusal::UnknownOperation => (rpc::METHOD_NOT_FOUND, "Unknown operation: ", "", Some(OPERATION)),
        Refusal::Params { member, fault } => (rpc::INVALID_PARAMS, member, fault, None),
        Refusal::UnsupportedVersion => (rpc::INVALID_PARAMS, "protocolVersion", "only 0.0.1 is supported", None),
        Refusal::AfterShutdown => {
            (rpc::INVALID_REQUEST, "Invalid Request", "the session was shut down; initialize starts another", None)
        }
    };
    rpc::begin_error(out, code);
    out.text_part(lead);
    if let Some(slot) = named {
        if let Some(name) = rpc::string(rpc::member(text, spans, slot)) {
            Quoted(name).write_escaped(out);
        }
    } else {
        out.raw(b": ");
        out.text_part(fault);
    }
    rpc::end_error(out);
}

/// A member of the context, and what is wrong with it.
const fn in_context(member: &'static str, fault: &'static str) -> Refusal {
    Refusal::Params { member, fault }
}

/// Reads the context's timeout: absent, null and zero set no limit.
fn read_timeout(text: &[u8], spans: &Spans) -> Result<Option<u64>, &'static Refusal> {
    /// Of a text with escapes in it, which has to be decoded somewhere; `µ` comes as one.
    const LONGEST: usize = 64;
    const NO_DURATION: &Refusal = &in_context("context.timeout", "expected a duration such as \"1m30s\"");
    const TOO_LONG: &Refusal = &in_context("context.timeout", "has escapes and is longer than 64 bytes");
    const NEGATIVE: &Refusal = &in_context("context.timeout", "must not be negative");
    let raw = match rpc::member(text, spans, TIMEOUT_MEMBER) {
        [] | [b'n', ..] => return Ok(None),
        [b'"', raw @ .., b'"'] => raw,
        _ => return Err(NO_DURATION),
    };
    let duration = if has_escapes(raw) {
        let mut decoded = [0; LONGEST];
        GoDuration::parse(Text::of_checked(raw).decode_into(&mut decoded).map_err(|_| TOO_LONG)?)
    } else {
        GoDuration::parse_bytes(raw)
    };
    match duration.map(|timeout| u64::try_from(timeout.as_nanos())) {
        Ok(Ok(0)) => Ok(None),
        Ok(Ok(nanos)) => Ok(Some(nanos)),
        Ok(Err(_)) => Err(NEGATIVE),
        Err(_) => Err(NO_DURATION),
    }
}

/// Checks the types of the context's members; absent and null ones are fine.
fn check_context(text: &[u8], spans: &Spans) -> Result<(), &'static Refusal> {
    const STRING: &str = "expected a string";
    const OBJECT: &str = "expected an object";
    static TYPES: [(usize, u8, Refusal); 6] = [
        (WORKDIR, b'"', in_context("context.workdir", STRING)),
        (PHASE, b'"', in_context("context.phase", STRING)),
        (ENV, b'{', in_context("context.env", OBJECT)),
        (AGENT, b'{', in_context("context.agent", OBJECT)),
        (PROMPT, b'"', in_context("context.agent.prompt", STRING)),
        (OUTPUT, b'"', in_context("context.agent.output", STRING)),
    ];
    for (slot, wanted, refusal) in &TYPES {
        let first = first(text, spans, *slot);
        if !(first == 0 || first == b'n' || first == *wanted) {
            return Err(refusal);
        }
    }
    if first(text, spans, ENV_NO_STRING) != 0 {
        return Err(&Refusal::Params { member: "context.env", fault: "expected strings as values" });
    }
    Ok(())
}

/// The first byte of a member's value; 0 if it is absent.
#[cfg_attr(target_pointer_width = "64", inline(always))]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn first(text: &[u8], spans: &Spans, slot: usize) -> u8 {
    spans.get(slot).map_or(0, |span| span.first(text))
}

/// The context of a call, whose members stand in what is left of the line.
pub(crate) fn context<'a>(spans: &Spans, line: &Parts<'a>) -> CallContext<'a> {
    let part = |slot: usize| line.of(spans.get(slot).copied().unwrap_or_default());
    let env = part(ENV);
    CallContext {
        workdir: rpc::string(part(WORKDIR)),
        phase: phase(part(PHASE)),
        timeout_nanos: None,
        env: (!env.is_empty()).then(|| Json::of_value(env)),
        agent: matches!(part(AGENT), [b'{', ..])
            .then(|| Agent { prompt: rpc::string(part(PROMPT)), output: rpc::string(part(OUTPUT)) }),
        ..CallContext::default()
    }
}

fn phase(value: &[u8]) -> Phase {
    if is(value, "setup") {
        Phase::Setup
    } else if is(value, "verify") {
        Phase::Verify
    } else if is(value, "cleanup") {
        Phase::Cleanup
    } else {
        Phase::Unknown
    }
}

/// Writes the reply to `initialize` behind its head: the manifest.
pub(crate) fn write_manifest(out: &mut Writer<'_>, manifest: &Manifest, limits: (usize, usize)) {
    out.raw(b",\"result\":{\"name\":");
    out.str(manifest.name);
    out.raw(b",\"version\":");
    out.str(manifest.version);
    out.raw(b",\"protocolVersion\":\"0.0.1\"");
    if !manifest.description.is_empty() {
        out.raw(b",\"description\":");
        out.str(manifest.description);
    }
    if !manifest.requires.is_empty() {
        out.raw(b",\"requires\":[");
        for (place, command) in manifest.requires.iter().enumerate() {
            out.raw(if place == 0 { b"{\"command\":" } else { b",{\"command\":" });
            out.str(command);
            out.byte(b'}');
        }
        out.byte(b']');
    }
    out.raw(b",\"operations\":{");
    for (place, operation) in manifest.operations.iter().enumerate() {
        if place > 0 {
            out.byte(b',');
        }
        out.str(operation.name);
        out.raw(b":{");
        if !operation.description.is_empty() {
            out.raw(b"\"description\":");
            out.str(operation.description);
            out.byte(b',');
        }
        out.raw(b"\"params\":");
        operation.params.write(out);
        out.byte(b'}');
    }
    let (request, reply) = limits;
    out.raw(b"},\"limits\":{\"request\":");
    out.usize(request);
    out.raw(b",\"reply\":");
    out.usize(reply);
    out.raw(b"}}}");
}

/// The longest line that the public gevals host reads, in bytes without the newline; at a longer one its reader gives up.
pub const HOST_LINE_LIMIT: usize = 65_535;

/// How many bytes the reply to `initialize` takes at most, without its newline, for an id of `id_len` bytes. Each of the
/// engine's limits, which are in it, is counted with ten digits.
pub const fn manifest_reply_len(manifest: &Manifest, id_len: usize) -> usize {
    const fn quoted(text: &str) -> usize {
        escaped_len(text) + 2
    }
    const ENVELOPE: &str =
        "{\"jsonrpc\":\"2.0\",\"id\":,\"result\":{\"name\":,\"version\":,\"protocolVersion\":\"0.0.1\"";
    const END: &str = ",\"operations\":{},\"limits\":{\"request\":4294967295,\"reply\":4294967295}}}";
    let mut length = ENVELOPE.len() + END.len() + id_len + quoted(manifest.name) + quoted(manifest.version);
    if !manifest.description.is_empty() {
        length += ",\"description\":".len() + quoted(manifest.description);
    }
    let mut commands = manifest.requires;
    if !commands.is_empty() {
        length += ",\"requires\":[]".len() - 1;
    }
    while let [command, rest @ ..] = commands {
        length += ",{\"command\":}".len() + quoted(command);
        commands = rest;
    }
    let mut operations = manifest.operations;
    if !operations.is_empty() {
        length -= 1;
    }
    while let [operation, rest @ ..] = operations {
        length += ",:{\"params\":}".len() + quoted(operation.name) + operation.params.len();
        if !operation.description.is_empty() {
            length += "\"description\":,".len() + quoted(operation.description);
        }
        operations = rest;
    }
    length
}

/// Writes the notification `log`, up to where `data` or the end goes.
pub(crate) fn write_log(out: &mut Writer<'_>, level: LogLevel, message: &dyn Message) {
    out.raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{\"level\":\"");
    out.raw(level.name().as_bytes());
    out.raw(b"\",\"message\":\"");
    message.write_escaped(out);
    out.byte(b'"');
}

/// The code of a failure that is answered with an error.
pub(crate) fn code(kind: FailureKind) -> i32 {
    match kind {
        FailureKind::UnknownOperation => rpc::METHOD_NOT_FOUND,
        FailureKind::BadArguments => rpc::INVALID_PARAMS,
        FailureKind::Failed | FailureKind::Unreachable | FailureKind::Forbidden => OPERATION_FAILED,
        FailureKind::Timeout => TIMEOUT,
        FailureKind::RequirementNotMet => REQUIREMENT_NOT_MET,
        FailureKind::TooLarge | FailureKind::Internal => rpc::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Operation, Schema};

    #[test]
    fn a_phase_is_told_by_its_text_however_it_is_spelt() {
        for (value, expected) in [
            (r#""setup""#, Phase::Setup),
            (r#""v\u0065rify""#, Phase::Verify),
            (r#""\u0063leanup""#, Phase::Cleanup),
            (r#""""#, Phase::Unknown),
            (r#""Setup""#, Phase::Unknown),
            (r#""setup\u0000""#, Phase::Unknown),
            ("null", Phase::Unknown),
            ("", Phase::Unknown),
        ] {
            assert_eq!(phase(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn the_manifests_length_is_known_beforehand() {
        const ODD: &str = "a \"b\" \\ \u{2028}\t\u{1}é";
        static TWO: [Operation; 2] =
            [Operation::new("a", Schema::ANY), Operation::new("b\"", Schema::OBJECT).description(ODD)];
        let bare = Manifest::new("n", "1.0.0");
        for manifest in [
            bare,
            bare.description(ODD),
            bare.requires(&["kubectl"]).operations(&TWO),
            bare.requires(&["a\"", "b"]).description("d").operations(TWO.split_at(1).0),
        ] {
            let mut memory = [0; 1000];
            let mut out = Writer::new(&mut memory);
            rpc::write_head(&mut out, b"12345");
            write_manifest(&mut out, &manifest, (u32::MAX as usize, u32::MAX as usize));
            assert_eq!(manifest_reply_len(&manifest, 5), out.len(), "{manifest:?}");
        }
    }
}
