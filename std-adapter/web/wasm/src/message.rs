//! What a line is: which protocol's message, and which of its members matter to who reads a transcript.

use rigline::json::{Json, Kind as JsonKind, SyntaxError};

/// What a line is. The numbers are part of the interface to JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// It asks for something.
    Request = 0,
    /// It tells something, and wants no answer.
    Notification = 1,
    /// A notification that is a log line.
    Log = 2,
    /// An answer that says yes.
    Reply = 3,
    /// An answer that says no.
    Error = 4,
    /// An entry of an Amplifier event log.
    Event = 5,
    /// Several JSON-RPC messages in an array.
    Batch = 6,
    /// JSON that is no message.
    Json = 7,
    /// No JSON, or a line that is too long.
    Fault = 8,
}

/// Whose message a line is. The numbers are part of the interface to JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Protocol {
    /// Nobody's.
    #[default]
    None = 0,
    /// gevals.
    Gevals = 1,
    /// Amplifier.
    Amplifier = 2,
    /// namel3ss.
    Namel3ss = 3,
    /// waza.
    Waza = 4,
    /// MCP.
    Mcp = 5,
}

/// Where the JSON text of a member's value stands in its line; empty for a member that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The offset in bytes.
    pub start: u32,
    /// The length in bytes.
    pub length: u32,
}

/// A line, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// What it is.
    pub kind: Kind,
    /// Whose.
    pub protocol: Protocol,
    /// A string: the method, `op`, the tool's member, or the event's name.
    pub method: Span,
    /// A string: what is called.
    pub operation: Span,
    /// The id.
    pub id: Span,
}

/// How many requests are remembered, for the protocol of their replies.
const REMEMBERED: usize = 64;

/// Reads lines in their order. Replies of JSON-RPC look alike in all its protocols: they belong to that of the request with their id.
#[derive(Debug, Clone)]
pub struct Reader {
    /// The last requests: their ids by a hash, and whose they were.
    asked: [(u32, Protocol); REMEMBERED],
    next: usize,
    /// The protocol of the last message of JSON-RPC, and of the last of the others.
    last: (Protocol, Protocol),
}

impl Default for Reader {
    fn default() -> Self {
        Self { asked: [(0, Protocol::None); REMEMBERED], next: 0, last: (Protocol::Gevals, Protocol::Amplifier) }
    }
}

/// The members that tell what an object is.
#[derive(Default)]
struct Members<'t> {
    jsonrpc: Option<Json<'t>>,
    id: Option<Json<'t>>,
    method: Option<Json<'t>>,
    params: Option<Json<'t>>,
    result: Option<Json<'t>>,
    error: Option<Json<'t>>,
    op: Option<Json<'t>>,
    args: Option<Json<'t>>,
    protocol_version: Option<Json<'t>>,
    tool: Option<Json<'t>>,
    ok: Option<Json<'t>>,
    status: Option<Json<'t>>,
    capabilities: Option<Json<'t>>,
    ts: Option<Json<'t>>,
    event: Option<Json<'t>>,
    component: Option<Json<'t>>,
}

impl<'t> Members<'t> {
    fn of(json: Json<'t>) -> Self {
        let mut found = Self::default();
        for (name, value) in json.members() {
            let decoded;
            let name = match name.as_str() {
                Some(name) => name,
                None => {
                    decoded = name.to_cow();
                    &*decoded
                }
            };
            let place = match name {
                "jsonrpc" => &mut found.jsonrpc,
                "id" => &mut found.id,
                "method" => &mut found.method,
                "params" => &mut found.params,
                "result" => &mut found.result,
                "error" => &mut found.error,
                "op" => &mut found.op,
                "args" => &mut found.args,
                "protocol_version" => &mut found.protocol_version,
                "tool" | "tool_name" => &mut found.tool,
                "ok" => &mut found.ok,
                "status" => &mut found.status,
                "capabilities" => &mut found.capabilities,
                "ts" => &mut found.ts,
                "event" => &mut found.event,
                "component" => &mut found.component,
                _ => continue,
            };
            // RFC 8259 §4: of a name that is there twice, the last one counts, as for everybody here.
            *place = Some(value);
        }
        found
    }
}

impl Reader {
    /// Says what a line is.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn read(&mut self, text: &[u8]) -> Result<Reading, SyntaxError> {
        let json = Json::parse(text)?;
        let place = |value: Option<Json<'_>>| value.map_or(Span::default(), |value| span(text, value));
        let mut reading = Reading {
            kind: Kind::Json,
            protocol: Protocol::None,
            method: Span::default(),
            operation: Span::default(),
            id: Span::default(),
        };
        if json.kind() == JsonKind::Array {
            if json.elements().any(|element| element.kind() == JsonKind::Object && element.get("jsonrpc").is_some()) {
                (reading.kind, reading.protocol) = (Kind::Batch, self.last.0);
            }
            return Ok(reading);
        }
        let members = Members::of(json);
        let strings = |value: Option<Json<'_>>| place(value.filter(|value| value.kind() == JsonKind::String));
        reading.id = place(members.id);
        if members.jsonrpc.is_some() || members.method.is_some() && members.op.is_none() {
            self.read_json_rpc(&members, &mut reading, &strings);
        } else if members.op.is_some() && members.ok.is_none() {
            let op = members.op.unwrap_or(Json::NULL);
            let invoked = members.args.filter(|_| is(Some(op), "invoke")).and_then(|args| args.get("op"));
            let is_own = is(Some(op), "health") || is(Some(op), "describe") || is(Some(op), "event");
            (reading.kind, reading.protocol) = (Kind::Request, Protocol::Amplifier);
            reading.method = strings(members.op);
            reading.operation = if is_own { Span::default() } else { strings(invoked.or(Some(op))) };
        } else if members.ok.is_none() && (members.tool.is_some() || members.protocol_version.is_some()) {
            (reading.kind, reading.protocol) = (Kind::Request, Protocol::Namel3ss);
            reading.method = strings(members.tool);
            reading.operation = reading.method;
        } else if let Some(ok) = members.ok {
            reading.kind = if ok.bool() == Some(true) { Kind::Reply } else { Kind::Error };
            let says = |name| members.error.is_some_and(|error| error.get(name).is_some());
            reading.protocol = if members.protocol_version.is_some() || says("type") {
                Protocol::Namel3ss
            } else if says("code") {
                Protocol::Amplifier
            } else {
                self.last.1
            };
        } else if members.ts.is_some() && members.event.is_some() && members.component.is_some() {
            (reading.kind, reading.protocol) = (Kind::Event, Protocol::Amplifier);
            reading.method = strings(members.event);
        } else if is(members.status, "ok") || members.capabilities.is_some_and(|list| list.kind() == JsonKind::Array) {
            (reading.kind, reading.protocol) = (Kind::Reply, Protocol::Amplifier);
        } else if members.id.is_some() && (members.result.is_some() || members.error.is_some()) {
            self.read_json_rpc(&members, &mut reading, &strings);
        }
        if matches!(reading.protocol, Protocol::Amplifier | Protocol::Namel3ss) && reading.kind != Kind::Event {
            self.last.1 = reading.protocol;
        }
        Ok(reading)
    }

    fn read_json_rpc(
        &mut self,
        members: &Members<'_>,
        reading: &mut Reading,
        strings: &impl Fn(Option<Json<'_>>) -> Span,
    ) {
        let id = members.id.map(|id| hash(id.as_bytes()));
        let Some(method) = members.method else {
            let error = members.error.filter(|error| !error.is_null());
            let failed = members.result.and_then(|result| result.get("success")).and_then(|success| success.bool());
            reading.kind = if error.is_some() || failed == Some(false) { Kind::Error } else { Kind::Reply };
            let asked = self.asked.iter().find(|(known, protocol)| Some(*known) == id && *protocol != Protocol::None);
            reading.protocol = asked.map_or(self.last.0, |(_, protocol)| *protocol);
            return;
        };
        let Some(name) = method.text() else {
            (reading.kind, reading.protocol) = (Kind::Request, self.last.0);
            return;
        };
        let name = name.to_cow();
        let params = members.params.unwrap_or(Json::NULL);
        reading.protocol = protocol_of(&name, params, self.last.0);
        reading.method = strings(members.method);
        let called = match &*name {
            "execute" => params.get("operation"),
            "tools/call" => params.get("name"),
            "eval.run" | "eval.get" | "eval.validate" | "task.list" => params.get("path"),
            _ => None,
        };
        reading.operation = strings(called);
        let is_log = matches!(&*name, "log" | "eval.log" | "notifications/message");
        reading.kind = match id {
            Some(_) => Kind::Request,
            None if is_log => Kind::Log,
            None => Kind::Notification,
        };
        self.last.0 = reading.protocol;
        if let (Some(id), Some(place)) = (id, self.asked.get_mut(self.next)) {
            *place = (id, reading.protocol);
            self.next = (self.next + 1) % REMEMBERED;
        }
    }
}

/// Whose a method is, as servers tell them apart.
fn protocol_of(method: &str, params: Json<'_>, last: Protocol) -> Protocol {
    let family = method.split(['.', '/']).next().unwrap_or_default();
    let is_dotted = method.len() > family.len() && method.as_bytes().get(family.len()) == Some(&b'.');
    match (family, is_dotted) {
        ("eval" | "task" | "run" | "results", true) => Protocol::Waza,
        ("authenticate", false) if last == Protocol::Waza => Protocol::Waza,
        (
            "tools" | "resources" | "prompts" | "notifications" | "logging" | "completion" | "sampling" | "roots"
            | "elicitation" | "server",
            false,
        ) => Protocol::Mcp,
        ("ping", false) => Protocol::Mcp,
        ("initialize", false) => {
            let version = params.get("protocolVersion").and_then(|version| version.text());
            // MCP's versions are dates.
            let is_date =
                version.is_some_and(|version| matches!(version.raw().as_bytes(), [_, _, _, _, b'-', _, _, b'-', _, _]));
            if params.get("clientInfo").is_some() || is_date { Protocol::Mcp } else { Protocol::Gevals }
        }
        _ if params.get("_meta").is_some_and(has_mcp_names) => Protocol::Mcp,
        _ => Protocol::Gevals,
    }
}

fn has_mcp_names(meta: Json<'_>) -> bool {
    // Names with a prefix are `io.modelcontextprotocol/…`, or a domain that ends so.
    const ITS: &[u8] = b"modelcontextprotocol";
    meta.members()
        .any(|(name, _)| name == "progressToken" || name.raw().as_bytes().windows(ITS.len()).any(|part| part == ITS))
}

fn is(value: Option<Json<'_>>, text: &str) -> bool {
    value.and_then(|value| value.text()).is_some_and(|value| value == *text)
}

/// Where a part of a line stands in it.
#[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
fn span(line: &[u8], part: Json<'_>) -> Span {
    let part = part.as_bytes();
    let start = (part.as_ptr() as usize).wrapping_sub(line.as_ptr() as usize);
    Span { start: start as u32, length: part.len() as u32 }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocols_lines_are_told_apart() {
        use Kind::{Batch, Error, Event, Json as Plain, Log, Notification, Reply, Request};
        use Protocol::{Amplifier, Gevals, Mcp, Namel3ss, None as Nobody, Waza};
        let table: &[(&str, Kind, Protocol, &str, &str, &str)] = &[
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"go","args":{}}}"#,
                Request,
                Gevals,
                r#""execute""#,
                r#""go""#,
                "1",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m"}}"#,
                Log,
                Gevals,
                r#""log""#,
                "",
                "",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"success":false}}"#, Error, Gevals, "", "", "1"),
            (r#"{"jsonrpc":"2.0","id":"a","method":"eval.list"}"#, Request, Waza, r#""eval.list""#, "", r#""a""#),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}"#,
                Request,
                Mcp,
                r#""tools/call""#,
                r#""t""#,
                "2",
            ),
            (r#"{"jsonrpc":"2.0","id":"a","result":{"evals":[]}}"#, Reply, Waza, "", "", r#""a""#),
            (r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"m"}}"#, Error, Mcp, "", "", "2"),
            (
                r#"{"jsonrpc":"2.0","method":"eval.progress","params":{}}"#,
                Notification,
                Waza,
                r#""eval.progress""#,
                "",
                "",
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
                Request,
                Gevals,
                r#""initialize""#,
                "",
                "3",
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
                Request,
                Mcp,
                r#""initialize""#,
                "",
                "4",
            ),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, Batch, Mcp, "", "", ""),
            (r#"{"op":"health"}"#, Request, Amplifier, r#""health""#, "", ""),
            (r#"{"op":"invoke","args":{"op":"go"}}"#, Request, Amplifier, r#""invoke""#, r#""go""#, ""),
            (r#"{"op":"go","args":{}}"#, Request, Amplifier, r#""go""#, r#""go""#, ""),
            (r#"{"status":"ok"}"#, Reply, Amplifier, "", "", ""),
            (r#"{"ok":true,"result":1}"#, Reply, Amplifier, "", "", ""),
            (r#"{"protocol_version":1,"tool":"t","payload":{}}"#, Request, Namel3ss, r#""t""#, r#""t""#, ""),
            (r#"{"ok":true,"result":1}"#, Reply, Namel3ss, "", "", ""),
            (r#"{"ok":false,"error":{"code":"oom","message":"m"}}"#, Error, Amplifier, "", "", ""),
            (
                r#"{"id":"1","ts":1,"event":"session:end","component":"k"}"#,
                Event,
                Amplifier,
                r#""session:end""#,
                "",
                r#""1""#,
            ),
            (r#"{"\u006dethod":"execute","jsonrpc":"2.0","id":1,"id":9}"#, Request, Gevals, r#""execute""#, "", "9"),
            ("7", Plain, Nobody, "", "", ""),
            ("{}", Plain, Nobody, "", "", ""),
            ("[1]", Plain, Nobody, "", "", ""),
        ];
        let mut reader = Reader::default();
        for (line, kind, protocol, method, operation, id) in table {
            let found = reader.read(line.as_bytes()).unwrap();
            let text = |span: Span| &line[span.start as usize..(span.start + span.length) as usize];
            let texts = (text(found.method), text(found.operation), text(found.id));
            assert_eq!((found.kind, found.protocol, texts), (*kind, *protocol, (*method, *operation, *id)), "{line}");
        }
        assert!(reader.read(b"nonsense").is_err());
    }
}
