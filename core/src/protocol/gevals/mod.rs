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
//! The member `context.timeout` is the time limit of the call, in Go's form ([`GoDuration`]). If it
//! is missing, null or zero, there is no limit, as in Go's own libraries. A negative limit is error
//! -32602.
//!
//! An operation that is [read-only](crate::manifest::Effects::read_only) has the member
//! `"annotations":{"readOnlyHint":true}`, as in MCP. Hosts that do not know it ignore it.
//!
//! A manifest that does not fit the reply region is sent without descriptions, of operations and in
//! their schemas, and without annotations. It then has `"abridged":true`.

use crate::call::CallContext;
use crate::duration::GoDuration;
use crate::failure::FailureKind;
use crate::json::check::{WatchedMember, WatchedMembers};
use crate::json::view::has_escapes;
use crate::json::write::Writer;
use crate::json::{Json, JsonKind, Members as JsonMembers, Text};
use crate::manifest::Manifest;
use crate::message::{Code, Received, Refusal};
use crate::phase::Phase;
use crate::protocol::define::{
    ABRIDGED, Action, CallAction, Protocol, ServerState, whole_or_abridged, write_arguments,
};
use crate::protocol::format::{Failed, Log, Logs, MessagePlace, OutputsPlace, ReplyFacts, ReplyFormat, write_fault};
use crate::rpc;
use crate::schema::escaped_len;

pub(super) static PROTOCOL: Protocol = Protocol::json_rpc("gevals", &ENVELOPE, &FORMAT, read).with_host_line_limit();

/// The version of the gevals protocol. A host that offers another version gets error -32602.
pub const VERSION: &str = "0.0.1";

/// The error code for [`FailureKind::Unreachable`], [`FailureKind::Forbidden`] and
/// [`FailureKind::NoAnswer`].
pub const OPERATION_FAILED: i32 = -32000;
/// The error code for [`FailureKind::Timeout`].
pub const TIMEOUT: i32 = -32001;
/// The error code for [`FailureKind::RequirementNotMet`].
pub const REQUIREMENT_NOT_MET: i32 = -32002;

const OPERATION: usize = rpc::FIRST_FREE;
const ARGS: usize = OPERATION + 1;
const CONTEXT: usize = OPERATION + 2;
const WORKDIR: usize = OPERATION + 3;
const PHASE: usize = OPERATION + 4;
const ENV: usize = OPERATION + 5;
const AGENT: usize = OPERATION + 6;
const PROMPT: usize = OPERATION + 7;
const OUTPUT: usize = OPERATION + 8;
const TIMEOUT_MEMBER: usize = OPERATION + 9;
const PROTOCOL_VERSION: usize = OPERATION + 10;
const CONFIG: usize = OPERATION + 11;
const ENV_NO_STRING: usize = OPERATION + 12;

static ENVELOPE: [WatchedMember; rpc::FIRST_FREE] = rpc::members(&PARAMS_MEMBERS);

/// The members of `params`, of all methods: no two methods give one name two meanings.
static PARAMS_MEMBERS: WatchedMembers = WatchedMembers::new(&[
    WatchedMember::new("operation", OPERATION),
    WatchedMember::new("args", ARGS),
    WatchedMember::new("context", CONTEXT).with_members(&CONTEXT_MEMBERS),
    WatchedMember::new("protocolVersion", PROTOCOL_VERSION),
    WatchedMember::new("config", CONFIG),
]);

static CONTEXT_MEMBERS: WatchedMembers = WatchedMembers::new(&[
    WatchedMember::new("workdir", WORKDIR),
    WatchedMember::new("phase", PHASE),
    WatchedMember::new("env", ENV).with_members(&ENVIRONMENT),
    WatchedMember::new("timeout", TIMEOUT_MEMBER),
    WatchedMember::new("agent", AGENT).with_members(&AGENT_MEMBERS),
]);

static ENVIRONMENT: WatchedMembers = WatchedMembers::strings(ENV_NO_STRING);

static AGENT_MEMBERS: WatchedMembers =
    WatchedMembers::new(&[WatchedMember::new("prompt", PROMPT), WatchedMember::new("output", OUTPUT)]);

impl Manifest {
    /// Checks that a gevals host can read the manifest, and returns it unchanged. The host reads
    /// lines of at most 65,535 bytes: the reply to `initialize` must fit, with its envelope, an id
    /// of 20 digits and without its newline. `#[rigline::extension]` does this check. In a manifest
    /// that is written by hand, call it last.
    ///
    /// # Panics
    /// If the reply is longer. In a constant, where manifests belong, that is an error of the
    /// compiler.
    #[must_use]
    pub const fn with_gevals_line_limit(self) -> Self {
        assert!(
            manifest_reply_len(&self, 20) <= HOST_LINE_LIMIT,
            "the manifest is longer than the 65,535 bytes that a gevals host reads in a line: shorten descriptions, or split the extension"
        );
        self
    }
}

/// The fixed parts of its replies.
static FORMAT: ReplyFormat = ReplyFormat {
    head: rpc::write_head,
    success: b",\"result\":{\"success\":true",
    outputs: OutputsPlace { start: b",\"outputs\":{", end: b"}", as_strings: true },
    message: MessagePlace {
        after_outputs: b"},\"message\":\"",
        alone: b",\"message\":\"",
        end: b"\"",
        is_beside_outputs: false,
    },
    content: None,
    failed: Some(Failed {
        success: b",\"result\":{\"success\":false",
        outputs_start: b"",
        with_outputs_only: false,
        before_text: |out, has_outputs, _, _| {
            out.raw(if has_outputs { b"},\"error\":\"" } else { b",\"error\":\"" });
        },
        end: b"\"",
    }),
    error: |out, kind, _| rpc::begin_error(out, code(kind)),
    error_end: |out, _| out.byte(b'"'),
    parse_error: b",\"error\":{\"code\":-32700,\"message\":\"",
    close,
    logs: Logs::Line(write_log),
    progress: None,
};

/// Closes a result or an error, with what the specification has no place for: an operation's own
/// code, and with it the kind that the code does not tell; that there was no answer.
fn close(out: &mut Writer<'_>, closing: &ReplyFacts<'_>) {
    let is_told = |kind: &FailureKind| match kind {
        FailureKind::NoAnswer => true,
        FailureKind::Forbidden | FailureKind::TooLarge => closing.code.is_some(),
        _ => false,
    };
    write_fault(out, b",\"data\":{", closing.error.filter(is_told), closing.code, b"}");
    out.raw(b"}}");
}

const AFTER_SHUTDOWN: &Refusal = &Refusal::new(
    Code::Number(rpc::INVALID_REQUEST),
    "Invalid Request",
    "the session was shut down; initialize starts another",
);
const UNKNOWN_METHOD: &Refusal =
    &Refusal::quoting(Code::Number(rpc::METHOD_NOT_FOUND), "Unknown method: ", rpc::METHOD);
const UNKNOWN_OPERATION: &Refusal =
    &Refusal::quoting(Code::Number(rpc::METHOD_NOT_FOUND), "Unknown operation: ", OPERATION);
const REQUIRED: &str = "required, but missing";
const OBJECT: &str = "expected an object";
const STRING: &str = "expected a string";

/// -32602 on a member of `params`.
const fn invalid(member: &'static str, fault: &'static str) -> Refusal {
    Refusal::new(Code::Number(rpc::INVALID_PARAMS), member, fault)
}

/// Reads a request.
fn read(received: &Received<'_>, server: &ServerState<'_>) -> Result<Action, &'static Refusal> {
    let is_initialize = || received.is(rpc::METHOD, "initialize");
    if server.is_closed && !is_initialize() {
        return Err(AFTER_SHUTDOWN);
    }
    if received.is(rpc::METHOD, "execute") {
        let call = execute(received, server.manifest)?;
        check_context(received)?;
        Ok(Action::Call(call.timeout_nanos(read_timeout(received)?)))
    } else if is_initialize() {
        initialize(received)
    } else if received.is(rpc::METHOD, "shutdown") {
        // JSON-RPC 2.0 §4.2: params must be structured; null means absent.
        match received.first(rpc::PARAMS) {
            0 | b'{' | b'[' | b'n' => {}
            _ => return Err(const { &invalid("params", OBJECT) }),
        }
        Ok(Action::CloseSession { answer: |out, _, _| out.raw(b",\"result\":{}}") })
    } else {
        Err(UNKNOWN_METHOD)
    }
}

fn params_are_members(received: &Received<'_>) -> Result<(), &'static Refusal> {
    match received.first(rpc::PARAMS) {
        b'{' => Ok(()),
        0 | b'n' => Err(const { &invalid("params", REQUIRED) }),
        _ => Err(const { &invalid("params", OBJECT) }),
    }
}

fn initialize(received: &Received<'_>) -> Result<Action, &'static Refusal> {
    params_are_members(received)?;
    if !received.is(PROTOCOL_VERSION, VERSION) {
        return Err(const { &invalid("protocolVersion", "only 0.0.1 is supported") });
    }
    match received.first(CONFIG) {
        0 | b'n' | b'{' => Ok(Action::OpenSession { config: received.span(CONFIG), answer: write_manifest }),
        _ => Err(const { &invalid("config", OBJECT) }),
    }
}

fn execute(received: &Received<'_>, manifest: &Manifest) -> Result<CallAction, &'static Refusal> {
    params_are_members(received)?;
    let operation = match received.member(OPERATION) {
        [b'"', raw @ .., b'"'] => raw,
        [] => return Err(const { &invalid("operation", REQUIRED) }),
        _ => return Err(const { &invalid("operation", STRING) }),
    };
    let index = manifest.position(Text::of_checked(operation)).ok_or(UNKNOWN_OPERATION)?;
    if !matches!(received.first(ARGS), 0 | b'{' | b'n') {
        return Err(const { &invalid("args", OBJECT) });
    }
    match received.first(CONTEXT) {
        b'{' => Ok(CallAction::new(received, index, received.span(ARGS), received.span(rpc::JSONRPC))),
        0 => Err(const { &invalid("context", REQUIRED) }),
        _ => Err(const { &invalid("context", OBJECT) }),
    }
}

/// Reads the context's timeout: absent, null and zero set no limit.
fn read_timeout(received: &Received<'_>) -> Result<Option<u64>, &'static Refusal> {
    match received.member(TIMEOUT_MEMBER) {
        [] | [b'n', ..] => Ok(None),
        [b'"', raw @ .., b'"'] => read_duration(raw),
        _ => Err(NO_DURATION),
    }
}

const NO_DURATION: &Refusal = &invalid("context.timeout", "expected a duration such as \"1m30s\"");

#[inline(never)]
fn read_duration(raw: &[u8]) -> Result<Option<u64>, &'static Refusal> {
    /// Of a text with escapes in it, which has to be decoded somewhere; `µ` comes as one.
    const LONGEST: usize = 64;
    const TOO_LONG: &Refusal = &invalid("context.timeout", "has escapes and is longer than 64 bytes");
    const NEGATIVE: &Refusal = &invalid("context.timeout", "must not be negative");
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
fn check_context(received: &Received<'_>) -> Result<(), &'static Refusal> {
    /// By their slots, from that of `workdir` on.
    static TYPES: [(u8, Refusal); AGENT + 3 - WORKDIR] = [
        (b'"', invalid("context.workdir", STRING)),
        (b'"', invalid("context.phase", STRING)),
        (b'{', invalid("context.env", OBJECT)),
        (b'{', invalid("context.agent", OBJECT)),
        (b'"', invalid("context.agent.prompt", STRING)),
        (b'"', invalid("context.agent.output", STRING)),
    ];
    for (slot, (wanted, refusal)) in (WORKDIR..).zip(&TYPES) {
        // Most are absent.
        if !received.has(slot) {
            continue;
        }
        let first = received.first(slot);
        if !(first == b'n' || first == *wanted) {
            return Err(refusal);
        }
    }
    if received.has(ENV_NO_STRING) {
        return Err(const { &invalid("context.env", "expected strings as values") });
    }
    Ok(())
}

/// The context of a call from a gevals host (gevals "Context Object"). Every member is optional,
/// since real hosts leave them out.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct TaskContext<'a> {
    /// The working directory of the task. Relative paths start from it.
    pub workdir: Option<Text<'a>>,
    /// The phase of the task that the call belongs to.
    pub phase: Phase,
    /// The prompt and the answer of the agent under test. Hosts send them only in the verify phase.
    pub agent: Option<Agent<'a>>,
    env: Option<Json<'a>>,
}

impl<'a> TaskContext<'a> {
    /// Reads the context of a call by gevals, or of a call by MCP that has
    /// [`mcp::CONTEXT_NAME`](super::mcp::CONTEXT_NAME). It is empty for calls by other protocols.
    pub fn of(context: &CallContext<'a>) -> Self {
        let Some(received) = context.received_by(&PROTOCOL) else {
            return super::mcp::context(context).map(Self::of_json).unwrap_or_default();
        };
        Self {
            workdir: received.string(WORKDIR),
            phase: phase(&received),
            agent: (received.first(AGENT) == b'{')
                .then(|| Agent { prompt: received.string(PROMPT), output: received.string(OUTPUT) }),
            env: received.json(ENV),
        }
    }

    fn of_json(json: Json<'a>) -> Self {
        let text = |json: Json<'a>, name: &str| json.get(name).and_then(|value| value.text());
        let agent = json.get("agent").filter(|agent| agent.kind() == JsonKind::Object);
        Self {
            workdir: text(json, "workdir"),
            phase: match text(json, "phase") {
                Some(phase) if phase == *"setup" => Phase::Setup,
                Some(phase) if phase == *"verify" => Phase::Verify,
                Some(phase) if phase == *"cleanup" => Phase::Cleanup,
                _ => Phase::Unknown,
            },
            agent: agent.map(|agent| Agent { prompt: text(agent, "prompt"), output: text(agent, "output") }),
            env: json.get("env").filter(|env| env.kind() == JsonKind::Object),
        }
    }

    /// The environment variables of the task.
    pub fn env(&self) -> Env<'a> {
        Env(self.env.unwrap_or(Json::NULL).members())
    }
}

/// An iterator over environment variables: names and values.
#[derive(Debug, Clone)]
pub struct Env<'a>(JsonMembers<'a>);

impl<'a> Iterator for Env<'a> {
    type Item = (Text<'a>, Text<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find_map(|(name, value)| Some((name, value.text()?)))
    }
}

/// The prompt and the answer of the agent under test (gevals "Agent Context Object").
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Agent<'a> {
    /// The prompt that the agent got.
    pub prompt: Option<Text<'a>>,
    /// The answer that the agent gave.
    pub output: Option<Text<'a>>,
}

fn phase(received: &Received<'_>) -> Phase {
    if received.is(PHASE, "setup") {
        Phase::Setup
    } else if received.is(PHASE, "verify") {
        Phase::Verify
    } else if received.is(PHASE, "cleanup") {
        Phase::Cleanup
    } else {
        Phase::Unknown
    }
}

/// The mark of an operation that changes nothing, in MCP's form: gevals has no word for it, and its
/// host ignores members that it does not know.
const READ_ONLY: &str = ",\"annotations\":{\"readOnlyHint\":true}";

/// Writes the reply to `initialize` behind its head: the manifest.
fn write_manifest(out: &mut Writer<'_>, _: &Received<'_>, server: &ServerState<'_>) {
    let ServerState { manifest, limits, .. } = *server;
    if cfg!(feature = "std") && !manifest.own_members.is_empty() {
        out.raw(b",\"result\":{");
        out.raw(manifest.own_members.as_bytes());
        return write_limits(out, limits);
    }
    whole_or_abridged(out, server, write_manifest_of);
}

fn write_manifest_of(out: &mut Writer<'_>, server: &ServerState<'_>, is_abridged: bool) {
    let ServerState { manifest, limits, .. } = *server;
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
        if !(is_abridged || operation.description.is_empty()) {
            out.raw(b"\"description\":");
            out.str(operation.description);
            out.byte(b',');
        }
        out.raw(b"\"params\":");
        write_arguments(out, operation, is_abridged);
        if !is_abridged && operation.only_reads() {
            out.raw(READ_ONLY.as_bytes());
        }
        out.byte(b'}');
    }
    out.byte(b'}');
    if manifest.has_safe_state {
        out.raw(b",\"safeState\":true");
    }
    if is_abridged {
        out.raw(ABRIDGED);
    }
    write_limits(out, limits);
}

#[inline(always)]
fn write_limits(out: &mut Writer<'_>, (request, reply): (usize, usize)) {
    out.raw(b",\"limits\":{\"request\":");
    out.usize(request);
    out.raw(b",\"reply\":");
    out.usize(reply);
    out.raw(b"}}}");
}

/// The length of the longest line that the public gevals host reads, in bytes without the newline.
/// It cannot read a longer line.
pub const HOST_LINE_LIMIT: usize = 65_535;

/// How many bytes the reply to `initialize` takes at most, without its newline, for an id of
/// `id_len` bytes. Each of the engine's limits, which are in it, is counted with ten digits.
const fn manifest_reply_len(manifest: &Manifest, id_len: usize) -> usize {
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
    if manifest.has_safe_state {
        length += ",\"safeState\":true".len();
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
        if operation.only_reads() {
            length += READ_ONLY.len();
        }
        operations = rest;
    }
    length
}

/// Writes the notification `log`.
fn write_log(out: &mut Writer<'_>, log: &Log<'_>) {
    out.raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{\"level\":\"");
    out.raw(log.level.name().as_bytes());
    out.raw(b"\",\"message\":\"");
    log.message.write_escaped(out);
    out.byte(b'"');
    if let Some(write) = log.data {
        out.raw(b",\"data\":");
        write(out);
    }
    out.raw(b"}}");
}

/// The kind of failure for an error code of gevals; none for other codes.
pub const fn failure_kind(code: i32) -> Option<FailureKind> {
    Some(match code {
        rpc::METHOD_NOT_FOUND => FailureKind::UnknownOperation,
        rpc::INVALID_PARAMS => FailureKind::BadArguments,
        OPERATION_FAILED => FailureKind::Unreachable,
        TIMEOUT => FailureKind::Timeout,
        REQUIREMENT_NOT_MET => FailureKind::RequirementNotMet,
        rpc::INTERNAL_ERROR => FailureKind::Internal,
        _ => return None,
    })
}

/// The code of a failure that is answered with an error.
fn code(kind: FailureKind) -> i32 {
    match kind {
        FailureKind::UnknownOperation => rpc::METHOD_NOT_FOUND,
        FailureKind::BadArguments => rpc::INVALID_PARAMS,
        FailureKind::Failed | FailureKind::Unreachable | FailureKind::Forbidden | FailureKind::NoAnswer => {
            OPERATION_FAILED
        }
        FailureKind::Timeout => TIMEOUT,
        FailureKind::RequirementNotMet => REQUIREMENT_NOT_MET,
        FailureKind::TooLarge | FailureKind::Internal => rpc::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Effects, Operation};
    use crate::schema::Schema;

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
            let line = std::format!(
                "{{\"params\":{{\"context\":{{\"phase\":{}}}}}}}",
                if value.is_empty() { "1" } else { value }
            );
            let mut spans = crate::json::check::NO_SPANS;
            crate::json::check::scan(line.as_bytes(), &PROTOCOL.members, &mut spans).unwrap();
            assert_eq!(phase(&Received::whole(line.as_bytes(), &spans)), expected, "{value}");
        }
    }

    #[test]
    fn the_manifests_length_is_known_beforehand() {
        const ODD: &str = "a \"b\" \\ \u{2028}\t\u{1}é";
        static TWO: [Operation; 2] =
            [Operation::new("a", Schema::ANY), Operation::new("b\"", Schema::OBJECT).description(ODD)];
        static EFFECTS: [Operation; 2] = [
            Operation::new("a", Schema::ANY).effects(Effects::READ_ONLY),
            Operation::new("b", Schema::ANY).effects(Effects::changes(true, true)),
        ];
        let bare = Manifest::new("n", "1.0.0");
        for manifest in [
            bare,
            bare.description(ODD),
            bare.requires(&["kubectl"]).operations(&TWO),
            bare.requires(&["a\"", "b"]).description("d").operations(TWO.split_at(1).0),
            bare.safe_state(true),
            bare.safe_state(true).operations(&TWO),
            bare.operations(&EFFECTS),
        ] {
            let mut memory = [0; 1000];
            let mut out = Writer::new(&mut memory);
            rpc::write_head(&mut out, b"12345");
            let limits = (u32::MAX as usize, u32::MAX as usize);
            let spans = crate::json::check::NO_SPANS;
            let server = ServerState { manifest: &manifest, limits, is_closed: false, is_ahead: false };
            write_manifest(&mut out, &Received::whole(b"", &spans), &server);
            assert_eq!(manifest_reply_len(&manifest, 5), out.len(), "{manifest:?}");
        }
    }
}
