//! Explanations of recorded lines: the kind of each line, and its fault. A line belongs to the
//! protocol whose members it has. If it has none, it belongs to the protocol of the line before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use rigline::client::Log;
use rigline::json::{Json, JsonKind};

use crate::host::Direction;
use rigline_std::stdio::HOST_LINE_LIMIT;

/// How many requests without an id are remembered.
const REMEMBERED: usize = 256;
/// How many requests with an id are remembered. A reply to an earlier one is one to no request.
const REMEMBERED_IDS: usize = 65_536;
/// The longest id that is remembered, and how much of what was asked, in bytes.
const LONGEST_ID: usize = 256;

/// The functions that explain the lines of one protocol. They are part of the protocol's entry in
/// the registry.
#[derive(Debug)]
pub struct Reading {
    /// Returns whether a line belongs to this protocol.
    pub claims: fn(Json<'_>) -> bool,
    /// Describes an object in words. It may record a fault.
    pub describe: fn(&mut Requests, Line<'_>, &mut Fault) -> String,
    /// Whether the protocol is JSON-RPC. It then has batches, and its hosts accept no blank lines
    /// and only lines of a limited length.
    pub is_json_rpc: bool,
}

/// A line that was sent or received, as an object.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// The object as JSON.
    pub json: Json<'a>,
    /// Whether the line went from the extension to the host.
    pub is_received: bool,
}

/// The explanations of JSON-RPC 2.0, which several protocols share.
pub const JSON_RPC: Reading =
    Reading { claims: |json| json.get("jsonrpc").is_some(), describe: json_rpc, is_json_rpc: true };

/// A decoder, which explains the lines of both directions in their order.
#[derive(Debug)]
pub struct Decoder {
    readings: Vec<&'static Reading>,
    current: &'static Reading,
    requests: Requests,
}

/// The requests that have no reply yet.
#[derive(Debug)]
pub struct Requests {
    began: Instant,
    /// The time of the current line, if it is one of a recording.
    at: Option<Duration>,
    /// By their ids, as JSON text: what was asked, and when.
    by_id: HashMap<String, (String, Duration)>,
    /// These ids, in their order, and some that were answered.
    ids: VecDeque<String>,
    /// Of protocols that have no ids: replies keep the order of the requests.
    in_order: VecDeque<OpenRequest>,
}

#[derive(Debug)]
struct OpenRequest {
    what: String,
    when: Duration,
    form: &'static str,
}

/// The first fault of a line, if it has one.
#[derive(Default)]
pub struct Fault(Option<String>);

impl Fault {
    /// Records a fault of the line, unless it has one already.
    pub fn record(&mut self, text: impl Into<String>) {
        self.0.get_or_insert_with(|| text.into());
    }
}

impl Decoder {
    /// A decoder of lines of the protocols that `readings` explain. Each protocol in the
    /// [registry](crate::protocols) has one.
    pub fn new(readings: impl IntoIterator<Item = &'static Reading>) -> Self {
        let readings: Vec<_> = readings.into_iter().collect();
        let current = readings.first().copied().unwrap_or(&JSON_RPC);
        Self { readings, current, requests: Requests::new() }
    }

    /// Sets the time of the next lines, as the duration since the beginning of the recording.
    /// Without this call the lines count as of now.
    pub fn go_to(&mut self, at: Duration) {
        self.requests.at = Some(at);
    }

    /// Returns the kind of a line in words, and its fault if it has one.
    pub fn decode(&mut self, direction: Direction, bytes: &[u8]) -> (String, Option<String>) {
        let mut fault = Fault::default();
        let what = self.line(direction, bytes, &mut fault);
        (what, fault.0)
    }

    fn line(&mut self, direction: Direction, bytes: &[u8], fault: &mut Fault) -> String {
        let is_received = direction == Direction::Received;
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        if bytes.is_empty() {
            if is_received && self.current.is_json_rpc {
                fault.record("a blank line, at which the real host stops reading");
            }
            return "(blank)".to_owned();
        }
        let json = match Json::parse(bytes) {
            Ok(json) => json,
            Err(error) => {
                fault.record(format!("not JSON: {error}"));
                return "(no message)".to_owned();
            }
        };
        if json.kind() == JsonKind::Array {
            self.current = self.readings.iter().find(|reading| reading.is_json_rpc).copied().unwrap_or(&JSON_RPC);
            return format!("batch of {}", json.elements().count());
        }
        if json.kind() != JsonKind::Object {
            fault.record("JSON, but not an object");
            return "(no message)".to_owned();
        }
        if let Some(reading) = self.readings.iter().find(|reading| (reading.claims)(json)) {
            self.current = reading;
        }
        if self.current.is_json_rpc && is_received && bytes.len() > HOST_LINE_LIMIT {
            fault.record(format!("{} bytes: real hosts read {HOST_LINE_LIMIT}", bytes.len()));
        }
        (self.current.describe)(&mut self.requests, Line { json, is_received }, fault)
    }
}

impl Requests {
    fn new() -> Self {
        Self { began: Instant::now(), at: None, by_id: HashMap::new(), ids: VecDeque::new(), in_order: VecDeque::new() }
    }

    /// The time of the current line, since the beginning.
    fn now(&self) -> Duration {
        self.at.unwrap_or_else(|| self.began.elapsed())
    }

    fn took(&self, since: Duration) -> String {
        format!(" after {:.1} ms", self.now().saturating_sub(since).as_secs_f64() * 1000.0)
    }

    /// A request with an id. Returns false if the id is in use.
    fn asked(&mut self, id: &str, what: &str) -> bool {
        if id.len() > LONGEST_ID {
            return true;
        }
        if self.by_id.len() >= REMEMBERED_IDS {
            while let Some(oldest) = self.ids.pop_front() {
                if self.by_id.remove(&oldest).is_some() {
                    break;
                }
            }
        }
        if self.ids.len() >= 2 * REMEMBERED_IDS {
            let Self { ids, by_id, .. } = self;
            let mut seen = HashSet::new();
            ids.retain(|id| by_id.contains_key(id) && seen.insert(id.clone()));
        }
        let asked = (what.chars().take(LONGEST_ID).collect(), self.now());
        let is_new = self.by_id.insert(id.to_owned(), asked).is_none();
        if is_new {
            self.ids.push_back(id.to_owned());
        }
        is_new
    }

    /// Records a request that has no id, and returns its description. `form` is the form that its
    /// reply must have.
    pub fn asked_in_order(&mut self, what: String, form: &'static str) -> String {
        let said = format!("request: {what}");
        if self.in_order.len() >= REMEMBERED {
            self.in_order.pop_front();
        }
        let when = self.now();
        self.in_order.push_back(OpenRequest { what, when, form });
        said
    }

    /// Finds the request that a reply without an id answers. Returns its description, the form of
    /// the reply, and the time that the reply took.
    pub fn answered(&mut self, fault: &mut Fault) -> (String, Option<&'static str>, String) {
        match self.in_order.pop_front() {
            Some(asked) => {
                let took = self.took(asked.when);
                (asked.what, Some(asked.form), took)
            }
            None => {
                fault.record("no request is pending");
                ("?".to_owned(), None, String::new())
            }
        }
    }
}

fn json_rpc(requests: &mut Requests, line: Line<'_>, fault: &mut Fault) -> String {
    let json = line.json;
    if json.get("jsonrpc").and_then(|version| version.text()).is_none_or(|version| version != "2.0") {
        fault.record("it lacks \"jsonrpc\":\"2.0\"");
    }
    let id = json.get("id").map(|id| id.as_str().to_owned());
    let method = json.get("method").and_then(|method| method.text());
    match (method, id) {
        (Some(method), Some(id)) => {
            let operation = json.get("params").and_then(|params| params.get("operation")?.text());
            let what = operation.map_or_else(|| method.to_string(), |operation| format!("{method} {operation}"));
            if !requests.asked(&id, &what) {
                fault.record(format!("the id {id} is in use"));
            }
            format!("request {id}: {what}")
        }
        (Some(method), None) if method == "log" => {
            let log = Log::of_params(json.get("params").unwrap_or(Json::NULL));
            let known = log.level_name().is_some_and(|name| name.to_string() == log.level().name());
            if !known {
                fault.record("a log's level must be debug, info, warn or error");
            }
            let level = log.level_name().map(|name| name.to_string()).unwrap_or_default();
            format!("log {level}: {}", log.message())
        }
        (Some(method), None) => format!("notification {method}"),
        (None, id) => {
            let asked = id.as_ref().and_then(|id| requests.by_id.remove(id));
            let is_known = asked.is_some() || id.as_ref().is_some_and(|id| id.len() > LONGEST_ID);
            let name = id.unwrap_or_else(|| "without an id".to_owned());
            let (what, took) = if let Some((what, when)) = asked {
                (what, requests.took(when))
            } else {
                if !is_known {
                    fault.record("no pending request has this id");
                }
                ("?".to_owned(), String::new())
            };
            let how = match (json.get("error").filter(|error| !error.is_null()), json.get("result")) {
                (Some(error), _) => format!("error {error}"),
                (None, Some(result)) => match result.get("success").and_then(|success| success.bool()) {
                    Some(false) => "failed".to_owned(),
                    _ => "ok".to_owned(),
                },
                (None, None) => {
                    fault.record("neither a result nor an error");
                    String::new()
                }
            };
            format!("reply {name} to {what}: {how}{took}")
        }
    }
}

/// Returns the description of the error in a reply whose `ok` is false.
pub fn error(json: Json<'_>, kind: &str, fault: &mut Fault) -> String {
    let error = json.get("error").unwrap_or(Json::NULL);
    let member = |name: &str| error.get(name).and_then(|value| value.text()).map(|text| text.to_string());
    match (member(kind), member("message")) {
        (Some(kind), Some(message)) => format!("error {kind}: {message}"),
        _ => {
            fault.record(format!("error: expected an object with {kind} and message"));
            format!("error {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols;

    /// Lines of a session, each with its direction, what it is, and the beginning of what is wrong
    /// with it.
    fn session(lines: &[(char, &str, &str, &str)]) {
        let mut decoder = Decoder::new(protocols::ALL.iter().filter_map(|protocol| protocol.reading));
        for (arrow, line, what, wrong) in lines {
            let direction = if *arrow == '>' { Direction::Sent } else { Direction::Received };
            let (found, fault) = decoder.decode(direction, line.as_bytes());
            assert!(found.starts_with(what), "{line}: {found}");
            let fault = fault.unwrap_or_default();
            assert!(if wrong.is_empty() { fault.is_empty() } else { fault.starts_with(wrong) }, "{line}: {fault}");
        }
    }

    #[test]
    fn correct_traffic_has_no_faults() {
        session(&[
            (
                '>',
                r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"go"}}"#,
                "request 1: execute go",
                "",
            ),
            ('<', r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m"}}"#, "log info: m", ""),
            ('<', r#"{"jsonrpc":"2.0","id":1,"result":{"success":true}}"#, "reply 1 to execute go: ok", ""),
            ('>', r#"{"jsonrpc":"2.0","id":"a","method":"eval.list","params":{}}"#, "request \"a\": eval.list", ""),
            ('<', r#"{"jsonrpc":"2.0","id":"a","result":{"evals":[]}}"#, "reply \"a\" to eval.list: ok", ""),
            ('>', r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#, "request 2: tools/list", ""),
            ('<', r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#, "reply 2 to tools/list: ok", ""),
            ('>', r#"{"op":"health"}"#, "request: health", ""),
            ('>', r#"{"op":"describe","id":7}"#, "request: describe", ""),
            ('>', r#"{"op":"measure","args":{}}"#, "request: measure", ""),
            ('>', r#"{"op":"invoke","args":{"op":"health","args":{}}}"#, "request: invoke health", ""),
            ('<', r#"{"status":"ok"}"#, "reply to health: ok after", ""),
            ('<', r#"{"name":"n","version":"1","kind":"tool","capabilities":[],"id":7}"#, "reply to describe: ok", ""),
            ('<', r#"{"ok":true,"result":{"volts":3.3}}"#, "reply to measure: ok", ""),
            ('<', r#"{"ok":false,"error":{"code":"oom","message":"m"}}"#, "reply to invoke health: error oom: m", ""),
            ('>', r#"{"protocol_version":1,"tool":"t","payload":{}}"#, "request: t", ""),
            ('<', r#"{"ok":true,"result":null,"protocol_version":1}"#, "reply to t: ok", ""),
            ('>', r#"{"protocol_version":1,"tool_name":"s","payload":{}}"#, "request: s", ""),
            ('<', r#"{"ok":false,"error":{"type":"ValueError","message":"m"}}"#, "reply to s: error ValueError: m", ""),
            ('>', "\u{feff}{\"op\":\"health\"}", "request: health", ""),
            ('<', r#"{"status":"ok"}"#, "reply to health: ok", ""),
        ]);
    }

    /// SC-3: an id that a peer uses again and again.
    #[test]
    fn requests_with_the_same_ids_take_the_room_of_each_id_once() {
        let mut requests = Requests::new();
        for _ in 0..3 * REMEMBERED_IDS {
            requests.asked("1", "ping");
        }
        assert_eq!((requests.ids.len(), requests.by_id.len()), (1, 1));
        for number in 0..3 * REMEMBERED_IDS {
            let id = (number % 2).to_string();
            requests.asked(&id, "ping");
            requests.by_id.remove(&id);
        }
        assert!(requests.ids.len() <= 2 * REMEMBERED_IDS, "{}", requests.ids.len());
    }

    #[test]
    fn faults_are_found_in_every_protocol() {
        session(&[
            ('>', r#"{"op":"go","args":[1]}"#, "request: go", "args: expected an object"),
            ('<', r#"{"op":"go","args":[1]}"#, "request: go", "a request came back"),
            ('<', r#"{"status":200}"#, "reply to go: ?", "this is not the form"),
            ('<', r#"{"ok":true,"result":1}"#, "reply to ?: ok", "no request is pending"),
            ('>', r#"{"op":"go"}"#, "request: go", ""),
            ('<', r#"{"ok":true}"#, "reply to go: ok", "result: required"),
            ('>', r#"{"op":"go"}"#, "request: go", ""),
            ('<', r#"{"ok":false,"error":"text"}"#, "reply to go: error", "error: expected an object with code"),
            ('>', r#"{"protocol_version":2,"tool":"t","payload":{}}"#, "request: t", "protocol_version: expected 1"),
            ('<', "x", "(no message)", "not JSON"),
            ('<', r#"{"result":1,"protocol_version":1}"#, "reply to t: ?", "ok: expected"),
            ('>', r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "request 1: m", "it lacks"),
            ('<', r#"{"id":1,"result":{}}"#, "reply 1 to m: ok", "it lacks"),
            ('<', r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "reply 1 to ?", "no pending request"),
            ('<', "", "(blank)", "a blank line"),
            ('<', "7", "(no message)", "JSON, but"),
        ]);
    }
}
