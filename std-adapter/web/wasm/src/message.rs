//! The kind of a line: its protocol, and the members that matter to a reader of transcripts.

use rigline::json::check::{Span as FoundSpan, WatchedMember, WatchedMembers, scan};
use rigline::json::{Json, JsonKind, check::SyntaxError};

/// The kinds of lines. The numbers are part of the interface to JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum LineKind {
    /// The message is a request.
    Request = 0,
    /// The message tells something, and wants no answer.
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
    /// JSON that is not a message.
    #[default]
    Json = 7,
    /// No JSON, or a line that is too long.
    Fault = 8,
}

/// The protocol of a line. The numbers are part of the interface to JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Protocol {
    /// No protocol.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// The kind.
    pub kind: LineKind,
    /// The protocol.
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

/// Slots of the members that tell what an object is.
mod slot {
    pub(super) const JSONRPC: usize = 0;
    pub(super) const ID: usize = 1;
    pub(super) const METHOD: usize = 2;
    pub(super) const PARAMS: usize = 3;
    pub(super) const OPERATION: usize = 4;
    pub(super) const RESULT: usize = 5;
    pub(super) const SUCCESS: usize = 6;
    pub(super) const ERROR: usize = 7;
    pub(super) const OP: usize = 8;
    pub(super) const ARGS: usize = 9;
    pub(super) const PROTOCOL_VERSION: usize = 10;
    pub(super) const TOOL: usize = 11;
    pub(super) const OK: usize = 12;
    pub(super) const STATUS: usize = 13;
    pub(super) const CAPABILITIES: usize = 14;
    pub(super) const TS: usize = 15;
    pub(super) const EVENT: usize = 16;
    pub(super) const COMPONENT: usize = 17;
    pub(super) const COUNT: usize = 18;
}

static PARAMS: WatchedMembers = WatchedMembers::new(&[WatchedMember::new("operation", slot::OPERATION)]);
static RESULT: WatchedMembers = WatchedMembers::new(&[WatchedMember::new("success", slot::SUCCESS)]);
static MESSAGE: WatchedMembers = WatchedMembers::new(&[
    WatchedMember::new("jsonrpc", slot::JSONRPC),
    WatchedMember::new("id", slot::ID),
    WatchedMember::new("method", slot::METHOD),
    WatchedMember::new("params", slot::PARAMS).with_members(&PARAMS),
    WatchedMember::new("result", slot::RESULT).with_members(&RESULT),
    WatchedMember::new("error", slot::ERROR),
    WatchedMember::new("op", slot::OP),
    WatchedMember::new("args", slot::ARGS),
    WatchedMember::new("ok", slot::OK),
    WatchedMember::new("protocol_version", slot::PROTOCOL_VERSION),
    WatchedMember::new("tool", slot::TOOL),
    WatchedMember::new("tool_name", slot::TOOL),
    WatchedMember::new("ts", slot::TS),
    WatchedMember::new("event", slot::EVENT),
    WatchedMember::new("component", slot::COMPONENT),
    WatchedMember::new("status", slot::STATUS),
    WatchedMember::new("capabilities", slot::CAPABILITIES),
]);

/// A line that was checked, and where its members are.
struct Line<'t> {
    text: &'t [u8],
    slots: [FoundSpan; slot::COUNT],
}

impl<'t> Line<'t> {
    fn has(&self, slot: usize) -> bool {
        !self.slots[slot].is_absent()
    }

    /// The JSON text of a member; empty where it is absent.
    fn raw(&self, slot: usize) -> &'t [u8] {
        self.text.get(self.slots[slot].range()).unwrap_or_default()
    }

    fn span(&self, slot: usize) -> Span {
        let range = self.slots[slot].range();
        Span { start: small(range.start), length: small(range.len()) }
    }

    /// Where the string is that a member is; nothing for a member that is none.
    fn string(&self, slot: usize) -> Span {
        if self.raw(slot).first() == Some(&b'"') { self.span(slot) } else { Span::default() }
    }

    /// A member, to be looked into.
    fn json(&self, slot: usize) -> Json<'t> {
        Json::parse(self.raw(slot)).unwrap_or(Json::NULL)
    }

    /// Where the string is that a member's own member is.
    fn string_in(&self, slot: usize, name: &str) -> Span {
        let Some(value) = self.json(slot).get(name).filter(|value| value.kind() == JsonKind::String) else {
            return Span::default();
        };
        let start = (value.as_bytes().as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        Span { start: small(start), length: small(value.as_bytes().len()) }
    }

    /// Whether a member is this string.
    fn is(&self, slot: usize, text: &str) -> bool {
        match self.raw(slot) {
            [b'"', raw @ .., b'"'] if raw == text.as_bytes() => true,
            raw => raw.contains(&b'\\') && self.json(slot).text().is_some_and(|value| value == *text),
        }
    }
}

impl Reader {
    /// Says what a line is.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn read(&mut self, text: &[u8]) -> Result<Reading, SyntaxError> {
        let mut line = Line { text, slots: [FoundSpan::default(); slot::COUNT] };
        scan(text, &MESSAGE, &mut line.slots)?;
        let mut reading = Reading { id: line.span(slot::ID), ..Reading::default() };
        if text.trim_ascii_start().first() == Some(&b'[') {
            let json = Json::parse(text)?;
            if json.elements().any(|element| element.get("jsonrpc").is_some()) {
                (reading.kind, reading.protocol) = (LineKind::Batch, self.last.0);
            }
            return Ok(reading);
        }
        if line.has(slot::JSONRPC) || line.has(slot::METHOD) && !line.has(slot::OP) {
            self.read_json_rpc(&line, &mut reading);
        } else if line.has(slot::OP) && !line.has(slot::OK) {
            let invoked = if line.is(slot::OP, "invoke") { line.string_in(slot::ARGS, "op") } else { Span::default() };
            let is_own = ["health", "describe", "event"].iter().any(|own| line.is(slot::OP, own));
            (reading.kind, reading.protocol) = (LineKind::Request, Protocol::Amplifier);
            reading.method = line.string(slot::OP);
            reading.operation = match invoked.length {
                _ if is_own => Span::default(),
                0 => reading.method,
                _ => invoked,
            };
        } else if !line.has(slot::OK) && (line.has(slot::TOOL) || line.has(slot::PROTOCOL_VERSION)) {
            (reading.kind, reading.protocol) = (LineKind::Request, Protocol::Namel3ss);
            reading.method = line.string(slot::TOOL);
            reading.operation = reading.method;
        } else if line.has(slot::OK) {
            reading.kind = if line.raw(slot::OK) == b"true" { LineKind::Reply } else { LineKind::Error };
            let error = if line.has(slot::ERROR) { line.json(slot::ERROR) } else { Json::NULL };
            reading.protocol = if line.has(slot::PROTOCOL_VERSION) || error.get("type").is_some() {
                Protocol::Namel3ss
            } else if error.get("code").is_some() {
                Protocol::Amplifier
            } else {
                self.last.1
            };
        } else if line.has(slot::TS) && line.has(slot::EVENT) && line.has(slot::COMPONENT) {
            (reading.kind, reading.protocol) = (LineKind::Event, Protocol::Amplifier);
            reading.method = line.string(slot::EVENT);
        } else if line.is(slot::STATUS, "ok") || line.raw(slot::CAPABILITIES).first() == Some(&b'[') {
            (reading.kind, reading.protocol) = (LineKind::Reply, Protocol::Amplifier);
        } else if line.has(slot::ID) && (line.has(slot::RESULT) || line.has(slot::ERROR)) {
            self.read_json_rpc(&line, &mut reading);
        }
        if matches!(reading.protocol, Protocol::Amplifier | Protocol::Namel3ss) && reading.kind != LineKind::Event {
            self.last.1 = reading.protocol;
        }
        Ok(reading)
    }

    fn read_json_rpc(&mut self, line: &Line<'_>, reading: &mut Reading) {
        let id = line.has(slot::ID).then(|| hash(line.raw(slot::ID)));
        if !line.has(slot::METHOD) {
            let is_error = line.has(slot::ERROR) && line.raw(slot::ERROR) != b"null";
            let has_failed = line.raw(slot::SUCCESS) == b"false";
            reading.kind = if is_error || has_failed { LineKind::Error } else { LineKind::Reply };
            let asked = self.asked.iter().find(|(known, protocol)| Some(*known) == id && *protocol != Protocol::None);
            reading.protocol = asked.map_or(self.last.0, |(_, protocol)| *protocol);
            return;
        }
        let [b'"', name @ .., b'"'] = line.raw(slot::METHOD) else {
            (reading.kind, reading.protocol) = (LineKind::Request, self.last.0);
            return;
        };
        let decoded;
        let name = if name.contains(&b'\\') {
            decoded = line.json(slot::METHOD).text().map(|text| text.to_cow().into_owned()).unwrap_or_default();
            decoded.as_bytes()
        } else {
            name
        };
        reading.protocol = protocol_of(name, line, self.last.0);
        reading.method = line.span(slot::METHOD);
        reading.operation = match name {
            b"execute" => line.string(slot::OPERATION),
            b"tools/call" => line.string_in(slot::PARAMS, "name"),
            b"eval.run" | b"eval.get" | b"eval.validate" | b"task.list" => line.string_in(slot::PARAMS, "path"),
            _ => Span::default(),
        };
        let is_log = matches!(name, b"log" | b"eval.log" | b"notifications/message");
        reading.kind = match id {
            Some(_) => LineKind::Request,
            None if is_log => LineKind::Log,
            None => LineKind::Notification,
        };
        self.last.0 = reading.protocol;
        if let (Some(id), Some(place)) = (id, self.asked.get_mut(self.next)) {
            *place = (id, reading.protocol);
            self.next = (self.next + 1) % REMEMBERED;
        }
    }
}

/// The protocol of a method, as servers tell them apart.
fn protocol_of(method: &[u8], line: &Line<'_>, last: Protocol) -> Protocol {
    let end = method.iter().position(|byte| matches!(byte, b'.' | b'/')).unwrap_or(method.len());
    let (family, rest) = method.split_at(end);
    match (family, rest.first()) {
        (b"eval" | b"task" | b"run" | b"results", Some(b'.')) => Protocol::Waza,
        (b"authenticate", None) if last == Protocol::Waza => Protocol::Waza,
        (
            b"tools" | b"resources" | b"prompts" | b"notifications" | b"logging" | b"completion" | b"sampling"
            | b"roots" | b"elicitation" | b"server",
            Some(b'/'),
        )
        | (b"ping", None) => Protocol::Mcp,
        (b"initialize", None) => {
            let params = line.json(slot::PARAMS);
            let version = params.get("protocolVersion").and_then(|version| version.text());
            // MCP's versions are dates.
            let is_date =
                version.is_some_and(|version| matches!(version.raw().as_bytes(), [_, _, _, _, b'-', _, _, b'-', _, _]));
            if params.get("clientInfo").is_some() || is_date { Protocol::Mcp } else { Protocol::Gevals }
        }
        (b"execute" | b"shutdown" | b"log", None) => Protocol::Gevals,
        _ if line.json(slot::PARAMS).get("_meta").is_some_and(has_mcp_names) => Protocol::Mcp,
        _ => Protocol::Gevals,
    }
}

fn has_mcp_names(meta: Json<'_>) -> bool {
    // Names with a prefix are `io.modelcontextprotocol/…`, or a domain that ends so.
    const ITS: &[u8] = b"modelcontextprotocol";
    let is_its = |name: &[u8]| name.windows(ITS.len()).any(|part| part == ITS);
    meta.members().any(|(name, _)| name == "progressToken" || is_its(name.raw().as_bytes()))
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
fn small(number: usize) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocols_lines_are_told_apart() {
        use LineKind::{Batch, Error, Event, Json as Plain, Log, Notification, Reply, Request};
        use Protocol::{Amplifier, Gevals, Mcp, Namel3ss, None as Nobody, Waza};
        let table: &[(&str, LineKind, Protocol, &str, &str, &str)] = &[
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
