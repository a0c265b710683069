//! What a line is, and what is wrong with it. Each line is of the protocol that its members say, as servers take it; one that says
//! nothing is of the last protocol seen.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rigline::client::Log;
use rigline::json::{Json, Kind};
use rigline_std::host::Direction;
use rigline_std::stdio::HOST_LINE_LIMIT;

/// How many requests without an id are remembered.
const REMEMBERED: usize = 256;

/// Reads the lines of both directions, in their order.
#[derive(Default)]
pub(super) struct Decoder {
    protocol: Protocol,
    /// What is waited for: ids as JSON text, what was asked, and when.
    asked: HashMap<String, (String, Duration)>,
    /// The same of requests whose protocol has no ids: replies keep their order.
    in_order: VecDeque<Asked>,
    /// The time of the line in hand, since the beginning.
    now: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Protocol {
    #[default]
    JsonRpc,
    Amplifier,
    Namel3ss,
}

struct Asked {
    what: String,
    when: Duration,
    form: Form,
}

/// The form of an Amplifier reply; a tool's is that of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Health,
    Describe,
    Invoke,
}

/// What is wrong with a line, if anything is: the first thing.
#[derive(Default)]
struct Fault(Option<String>);

impl Fault {
    fn is(&mut self, text: impl Into<String>) {
        self.0.get_or_insert_with(|| text.into());
    }
}

impl Decoder {
    /// What a line is that passed so long after the beginning, and what is wrong with it.
    pub(super) fn decode(&mut self, now: Duration, direction: Direction, bytes: &[u8]) -> (String, Option<String>) {
        self.now = now;
        let mut fault = Fault::default();
        let what = self.line(direction, bytes, &mut fault);
        (what, fault.0)
    }

    fn line(&mut self, direction: Direction, bytes: &[u8], fault: &mut Fault) -> String {
        let is_received = direction == Direction::Received;
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        if bytes.is_empty() {
            if is_received && self.protocol == Protocol::JsonRpc {
                fault.is("a blank line: the real host's reader dies of it");
            }
            return "(blank)".to_owned();
        }
        let json = match Json::parse(bytes) {
            Ok(json) => json,
            Err(error) => {
                fault.is(format!("not JSON: {error}"));
                return "(no message)".to_owned();
            }
        };
        let has = |name: &str| json.get(name).is_some();
        if json.kind() == Kind::Array {
            self.protocol = Protocol::JsonRpc;
            return format!("batch of {}", json.elements().count());
        }
        if json.kind() != Kind::Object {
            fault.is("JSON, but not an object");
            return "(no message)".to_owned();
        }
        if has("jsonrpc") {
            self.protocol = Protocol::JsonRpc;
        } else if has("op") && !has("ok") {
            self.protocol = Protocol::Amplifier;
        } else if has("protocol_version") {
            self.protocol = Protocol::Namel3ss;
        }
        match self.protocol {
            Protocol::JsonRpc => {
                if bytes.len() > HOST_LINE_LIMIT && is_received {
                    fault.is(format!("{} bytes: real hosts read {HOST_LINE_LIMIT}", bytes.len()));
                }
                self.json_rpc(json, fault)
            }
            Protocol::Amplifier => self.amplifier(is_received, json, fault),
            Protocol::Namel3ss => self.namel3ss(is_received, json, fault),
        }
    }

    fn json_rpc(&mut self, json: Json<'_>, fault: &mut Fault) -> String {
        if json.get("jsonrpc").and_then(|version| version.text()).is_none_or(|version| version != "2.0") {
            fault.is("it lacks \"jsonrpc\":\"2.0\"");
        }
        let id = json.get("id").map(|id| id.as_str().to_owned());
        let method = json.get("method").and_then(|method| method.text());
        match (method, id) {
            (Some(method), Some(id)) => {
                let operation = json.get("params").and_then(|params| params.get("operation")?.text());
                let what = operation.map_or_else(|| method.to_string(), |operation| format!("{method} {operation}"));
                if self.asked.insert(id.clone(), (what.clone(), self.now)).is_some() {
                    fault.is(format!("the id {id} is in use"));
                }
                format!("request {id}: {what}")
            }
            (Some(method), None) if method == "log" => {
                let log = Log::of_params(json.get("params").unwrap_or(Json::NULL));
                let known = log.level_name().is_some_and(|name| name.to_string() == log.level().name());
                if !known {
                    fault.is("a log's level must be debug, info, warn or error");
                }
                let level = log.level_name().map(|name| name.to_string()).unwrap_or_default();
                format!("log {level}: {}", log.message())
            }
            (Some(method), None) => format!("notification {method}"),
            (None, id) => {
                let asked = id.as_ref().and_then(|id| self.asked.remove(id));
                let name = id.unwrap_or_else(|| "without an id".to_owned());
                let (what, took) = if let Some((what, when)) = asked {
                    (what, took(self.now.saturating_sub(when)))
                } else {
                    fault.is("nothing that was asked has this id");
                    ("?".to_owned(), String::new())
                };
                let how = match (json.get("error").filter(|error| !error.is_null()), json.get("result")) {
                    (Some(error), _) => format!("error {error}"),
                    (None, Some(result)) => match result.get("success").and_then(|success| success.bool()) {
                        Some(false) => "failed".to_owned(),
                        _ => "ok".to_owned(),
                    },
                    (None, None) => {
                        fault.is("neither a result nor an error");
                        String::new()
                    }
                };
                format!("reply {name} to {what}: {how}{took}")
            }
        }
    }

    fn amplifier(&mut self, is_received: bool, json: Json<'_>, fault: &mut Fault) -> String {
        if let Some(op) = json.get("op").filter(|_| json.get("ok").is_none()) {
            let Some(op) = op.text() else {
                fault.is("op: expected a string");
                return "request".to_owned();
            };
            if is_received {
                fault.is("a request came back: the line echoes");
                return format!("request: {op}");
            }
            let op = op.to_string();
            let args = json.get("args");
            if args.is_some_and(|args| args.kind() != Kind::Object) {
                fault.is("args: expected an object");
            }
            let (what, form) = match (&*op, args) {
                ("health", None) => (op, Form::Health),
                ("describe", None) => (op, Form::Describe),
                ("invoke", Some(args)) => match args.get("op").and_then(|op| op.text()) {
                    Some(inner) => (format!("invoke {inner}"), Form::Invoke),
                    None => (op, Form::Invoke),
                },
                _ => (op, Form::Invoke),
            };
            return self.asked_in_order(what, form);
        }
        let (what, form, took) = self.answered(fault);
        let is_text = |name: &str| json.get(name).is_some_and(|value| value.kind() == Kind::String);
        let how = match (json.get("ok").and_then(|ok| ok.bool()), form) {
            (Some(true), Some(Form::Invoke) | None) => {
                if json.get("result").is_none() {
                    fault.is("result: required, but missing");
                }
                "ok".to_owned()
            }
            (Some(false), _) => error(json, "code", fault),
            (None, Some(Form::Health)) if is_text("status") => {
                json.get("status").and_then(|status| status.text()).map(|status| status.to_string()).unwrap_or_default()
            }
            (None, Some(Form::Describe)) => {
                for name in ["name", "version", "kind"] {
                    if !is_text(name) {
                        fault.is(format!("{name}: expected a string"));
                    }
                }
                "ok".to_owned()
            }
            _ => {
                fault.is("this is not the form of the reply to it");
                "?".to_owned()
            }
        };
        format!("reply to {what}: {how}{took}")
    }

    fn namel3ss(&mut self, is_received: bool, json: Json<'_>, fault: &mut Fault) -> String {
        if json.get("ok").is_none() && !is_received {
            if json.get("protocol_version").is_none_or(|version| version.as_str() != "1") {
                fault.is("protocol_version: expected 1");
            }
            if json.get("payload").is_none_or(|payload| payload.kind() != Kind::Object) {
                fault.is("payload: expected an object");
            }
            // The service runner's requests have another name for it.
            let tool = json.get("tool").or_else(|| json.get("tool_name")).and_then(|tool| tool.text());
            if tool.is_none() {
                fault.is("tool: expected a string");
            }
            return self.asked_in_order(tool.map(|tool| tool.to_string()).unwrap_or_default(), Form::Invoke);
        }
        if json.get("ok").is_none() && (json.get("tool").is_some() || json.get("tool_name").is_some()) {
            fault.is("a request came back: the line echoes");
            return "request".to_owned();
        }
        let (what, _, took) = self.answered(fault);
        let how = match json.get("ok") {
            Some(ok) if ok.bool() == Some(true) => "ok".to_owned(),
            Some(ok) if ok.bool() == Some(false) => error(json, "type", fault),
            _ => {
                fault.is("ok: expected true or false");
                "?".to_owned()
            }
        };
        format!("reply to {what}: {how}{took}")
    }

    fn asked_in_order(&mut self, what: String, form: Form) -> String {
        let said = format!("request: {what}");
        if self.in_order.len() >= REMEMBERED {
            self.in_order.pop_front();
        }
        self.in_order.push_back(Asked { what, when: self.now, form });
        said
    }

    /// The request that a reply without an id answers.
    fn answered(&mut self, fault: &mut Fault) -> (String, Option<Form>, String) {
        match self.in_order.pop_front() {
            Some(asked) => (asked.what, Some(asked.form), took(self.now.saturating_sub(asked.when))),
            None => {
                fault.is("nothing was asked that this could answer");
                ("?".to_owned(), None, String::new())
            }
        }
    }
}

fn took(time: Duration) -> String {
    format!(" after {:.1} ms", time.as_secs_f64() * 1000.0)
}

/// The error of a reply that has `ok:false`.
fn error(json: Json<'_>, kind: &str, fault: &mut Fault) -> String {
    let error = json.get("error").unwrap_or(Json::NULL);
    let member = |name: &str| error.get(name).and_then(|value| value.text()).map(|text| text.to_string());
    match (member(kind), member("message")) {
        (Some(kind), Some(message)) => format!("error {kind}: {message}"),
        _ => {
            fault.is(format!("error: expected an object with {kind} and message"));
            format!("error {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a session, each with its direction, what it is, and the beginning of what is wrong with it.
    fn session(lines: &[(char, &str, &str, &str)]) {
        let mut decoder = Decoder::default();
        for (arrow, line, what, wrong) in lines {
            let direction = if *arrow == '>' { Direction::Sent } else { Direction::Received };
            let (found, fault) = decoder.decode(Duration::ZERO, direction, line.as_bytes());
            assert!(found.starts_with(what), "{line}: {found}");
            let fault = fault.unwrap_or_default();
            assert!(if wrong.is_empty() { fault.is_empty() } else { fault.starts_with(wrong) }, "{line}: {fault}");
        }
    }

    #[test]
    fn n_05_correct_traffic_has_no_faults() {
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

    #[test]
    fn n_05_faults_are_found_in_every_protocol() {
        session(&[
            ('>', r#"{"op":"go","args":[1]}"#, "request: go", "args: expected an object"),
            ('<', r#"{"op":"go","args":[1]}"#, "request: go", "a request came back"),
            ('<', r#"{"status":200}"#, "reply to go: ?", "this is not the form"),
            ('<', r#"{"ok":true,"result":1}"#, "reply to ?: ok", "nothing was asked"),
            ('>', r#"{"op":"go"}"#, "request: go", ""),
            ('<', r#"{"ok":true}"#, "reply to go: ok", "result: required"),
            ('>', r#"{"op":"go"}"#, "request: go", ""),
            ('<', r#"{"ok":false,"error":"text"}"#, "reply to go: error", "error: expected an object with code"),
            ('>', r#"{"protocol_version":2,"tool":"t","payload":{}}"#, "request: t", "protocol_version: expected 1"),
            ('<', "x", "(no message)", "not JSON"),
            ('<', r#"{"result":1,"protocol_version":1}"#, "reply to t: ?", "ok: expected"),
            ('>', r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, "request 1: m", "it lacks"),
            ('<', r#"{"id":1,"result":{}}"#, "reply 1 to m: ok", "it lacks"),
            ('<', r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "reply 1 to ?", "nothing that was asked"),
            ('<', "", "(blank)", "a blank line"),
            ('<', "7", "(no message)", "JSON, but"),
        ]);
    }
}
