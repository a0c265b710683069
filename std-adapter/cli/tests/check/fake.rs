//! An extension that is right but for one fault, which has the name of the case that finds it.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

const LIMIT: usize = 100_000;

pub(crate) fn main(fault: &str) -> ExitCode {
    let mut fake = Fake { fault: fault.to_owned(), initialized: false, lookout: None, answered: 0 };
    if fault == "stdout.clean" {
        println!("Loading config...");
    }
    let (mut input, mut out) = (io::stdin(), io::stdout());
    let code = fake.serve(&mut input, &mut out);
    if fault == "end-of-input" && code.is_none() && fake.initialized {
        thread::sleep(Duration::from_secs(60));
    }
    ExitCode::from(code.unwrap_or(0))
}

/// Names of operations that were to run.
type Seen = Arc<Mutex<Vec<String>>>;

/// A right one behind a TCP port, which tells what it was to run.
pub(crate) fn listen() -> (u16, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Seen::default();
    let lookout = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lookout = Some(Arc::clone(&lookout));
            let mut fake = Fake { fault: "tcp".into(), initialized: false, lookout, answered: 0 };
            thread::spawn(move || fake.serve(&mut stream.try_clone().unwrap(), &mut &stream));
        }
    });
    (port, seen)
}

struct Fake {
    fault: String,
    initialized: bool,
    lookout: Option<Seen>,
    answered: usize,
}

impl Fake {
    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    /// The exit code; none at the end of input.
    fn serve(&mut self, input: &mut dyn Read, out: &mut dyn Write) -> Option<u8> {
        let (mut buffer, mut chunk) = (Vec::new(), vec![0; 256 * 1024]);
        loop {
            let read = input.read(&mut chunk).unwrap_or(0);
            if read == 0 {
                if !buffer.is_empty() && !self.is("one-shot.no-newline") {
                    self.line(&buffer, out);
                }
                return None;
            }
            let part = &chunk[..read];
            if self.is("line.split") && part.len() < 20 && !part.contains(&b'\n') {
                say(out, &error(Value::Null, -32700, "half a message"));
                continue;
            }
            buffer.extend_from_slice(part);
            // Replies count for nothing here.
            let lines = part.iter().filter(|byte| **byte == b'\n').count() - usize::from(has(part, "\"id\":98"));
            let mut first = true;
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let rest = buffer.split_off(end + 1);
                let line = std::mem::replace(&mut buffer, rest);
                if self.is("line.merged") && lines == 3 && !first && has(&line, "\"id\"") && has(&line, "\"method\"") {
                    continue;
                }
                first = false;
                if self.is("one-shot") && !self.initialized && line.len() > 80 && has(&line, "\"identify\"") {
                    let _ = input.read(&mut chunk);
                    return None;
                }
                if let Some(code) = self.line(&line[..line.len() - 1], out) {
                    return Some(code);
                }
            }
        }
    }

    fn line(&mut self, line: &[u8], out: &mut dyn Write) -> Option<u8> {
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            if self.is("line.blank") && line.is_empty() {
                say(out, &error(Value::Null, -32700, "blank"));
            }
            return None;
        }
        if self.is("line.crlf") && line.ends_with(b"\r") {
            say(out, &error(Value::Null, -32700, "a carriage return"));
            return None;
        }
        let has_mark = trimmed.starts_with(b"\xEF\xBB\xBF");
        if self.is("line.byte-order-mark") && has_mark {
            say(out, &error(Value::Null, -32603, "a byte-order mark"));
            return None;
        }
        let text = if has_mark { &trimmed[3..] } else { trimmed };
        let limit = if self.is("line.at-the-limit") { LIMIT - 1 } else { LIMIT };
        if text.len() > limit {
            say(out, &error(Value::Null, -32700, "too long"));
            if self.is("line.over-long") {
                say(out, &error(Value::Null, -32700, "too long"));
            }
            return None;
        }
        let lossy = String::from_utf8_lossy(text).into_owned();
        let parsed = match std::str::from_utf8(text) {
            Err(_) if !self.is("bad-utf8") => Err(-32700),
            _ => serde_json::from_str::<Value>(&lossy).map_err(|_| if self.is("bad-json") { -32603 } else { -32700 }),
        };
        let message = match parsed {
            Ok(message) => message,
            Err(_) if self.is("nesting") && has(text, "[[[[") => return Some(4),
            Err(_) if self.is("bad-json.recovery") && text == b"]" => return Some(1),
            Err(code) => {
                say(out, &error(Value::Null, code, "not JSON"));
                return None;
            }
        };
        if let Value::Array(batch) = &message
            && !batch.is_empty()
        {
            let mut replies = Vec::new();
            for message in batch {
                let mut reply = Vec::new();
                self.message(message, &id_text(message), &mut reply);
                replies.extend(serde_json::from_slice::<Value>(&reply));
            }
            if self.is("batch") {
                for reply in &replies {
                    say(out, reply);
                }
            } else {
                say(out, &Value::Array(replies));
            }
            return None;
        }
        // serde_json rounds large numbers: the id is taken as it stands.
        let id = if text.starts_with(b"{\"jsonrpc\":\"2.0\",\"id\":") { raw_id(&lossy) } else { id_text(&message) };
        self.message(&message, &id, out)
    }

    fn message(&mut self, message: &Value, id: &str, out: &mut dyn Write) -> Option<u8> {
        let mut id = id.to_owned();
        match id.as_str() {
            "0" if self.is("id.integer") => id = "null".into(),
            text if text.starts_with('"') && self.is("id.string") => id = "0".into(),
            "9007199254740993" if self.is("id.large") => id = "9007199254740992".into(),
            "1.5" if self.is("id.fraction") => id = "1".into(),
            "null" if self.is("id.null") && message["jsonrpc"] == "2.0" && message["method"].is_string() => {
                return None;
            }
            _ => {}
        }
        let mut reply = |body: Value| say_raw(out, &id, &body);
        let fail = |code: i32, text: &str| json!({ "error": { "code": code, "message": text } });
        let Some(object) = message.as_object() else {
            say(out, &error(Value::Null, -32600, "not an object"));
            return None;
        };
        if !object.contains_key("method") && (object.contains_key("result") || object.contains_key("error")) {
            if self.is("reply.silence") {
                say(out, &error(Value::Null, -32600, "a reply"));
            }
            return None;
        }
        let usable = matches!(object.get("id"), Some(Value::String(_) | Value::Number(_) | Value::Null));
        if message["jsonrpc"] != "2.0" || !message["method"].is_string() || object.contains_key("id") && !usable {
            if self.is("id.invalid") && message["id"].is_object() {
                reply(fail(-32601, "no such method"));
                return None;
            }
            let code = if self.is("invalid-request") && object.is_empty() { -32603 } else { -32600 };
            say_raw(out, if usable { &id } else { "null" }, &fail(code, "not a request"));
            return None;
        }
        if !object.contains_key("id") {
            if self.is("notification.silence") && message["method"] == "rigline/no-such-method" {
                say(out, &error(Value::Null, -32601, "a notification"));
            }
            return None;
        }
        self.answered += 1;
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                if params["protocolVersion"].is_null() {
                    reply(fail(if self.is("initialize.no-version") { -1 } else { -32602 }, "no version"));
                    return None;
                }
                if self.is("initialize.twice") && self.initialized {
                    return Some(5);
                }
                self.initialized = true;
                let manifest = json!({ "result": self.manifest() });
                if self.is("handshake") {
                    let mut line = json!({ "id": message["id"] });
                    line["result"] = manifest["result"].clone();
                    say(out, &line);
                } else {
                    reply(manifest);
                }
            }
            "shutdown" => {
                if self.is("shutdown.params") && params.is_null() && object.contains_key("params") {
                    reply(fail(-32602, "params"));
                } else {
                    say_raw(out, if self.is("shutdown.reply") { "12345" } else { &id }, &json!({ "result": {} }));
                }
                self.initialized = false;
                if !self.is("tcp") {
                    return Some(if self.is("shutdown.exit") { 3 } else { 0 });
                }
            }
            "execute" => {
                let body = self.execute(params, out);
                say_raw(out, &id, &body);
            }
            _ if self.is("method.unknown") => reply(json!({ "result": {} })),
            _ => reply(fail(-32601, "no such method")),
        }
        None
    }

    fn execute(&self, params: &Value, out: &mut dyn Write) -> Value {
        let fail = |code: i32, text: &str| json!({ "error": { "code": code, "message": text } });
        let Some(name) = params["operation"].as_str() else {
            return fail(if self.is("operation.missing") { -32603 } else { -32602 }, "operation");
        };
        if let Some(lookout) = &self.lookout {
            lookout.lock().unwrap().push(name.to_owned());
        }
        let args = &params["args"];
        match name {
            "identify" if self.is("execute.as-the-host-sends") && args.is_null() => fail(-32602, "args"),
            "identify" if self.is("execute.unknown-members") && !params["context"]["x"].is_null() => fail(-32602, "x"),
            "identify" | "look" => {
                let level = if self.is("log.level") { "notice" } else { "info" };
                let data = if self.is("log.form") { json!([1]) } else { json!({}) };
                let params = json!({ "level": level, "message": "m", "data": data });
                say(out, &json!({ "jsonrpc": "2.0", "method": "log", "params": params }));
                let count = if self.is("execute.result") { json!(5) } else { json!("5") };
                json!({ "result": { "success": true, "message": "done", "outputs": { "count": count } } })
            }
            "set" => match args.get("name") {
                None if self.is("arguments.missing") => json!({ "result": { "success": true } }),
                Some(name) if !name.is_string() && self.is("arguments.wrong-type") => {
                    json!({ "result": { "success": true } })
                }
                Some(Value::String(_)) => json!({ "result": { "success": true } }),
                _ => fail(-32602, "args.name must be a string"),
            },
            _ if self.is("execute.before-initialize") && !self.initialized => fail(-32600, "no session"),
            _ if self.is("unknown-as-the-go-kit") => {
                json!({ "result": { "success": false, "error": "unknown operation" } })
            }
            _ => fail(if self.is("operation.unknown") { -32602 } else { -32601 }, "no such operation"),
        }
    }

    fn manifest(&self) -> Value {
        let mut manifest = json!({
            "name": "fake", "version": "1.0.0", "protocolVersion": "0.0.1", "description": "d",
            "requires": [{ "command": "sh" }],
            "operations": {
                "identify": { "params": { "type": "object" } },
                "set": { "params": {
                    "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"],
                } },
            },
            "limits": { "request": LIMIT, "reply": LIMIT },
        });
        let mut put = |place: &str, value: Value| manifest[place] = value;
        match self.fault.as_str() {
            "unknown-as-the-go-kit" => put("requires", Value::Null),
            "tcp" => put("operations", json!({ "look": { "params": true }, "set": { "params": true } })),
            "manifest.name" => put("name", json!("")),
            "manifest.version" => put("version", json!("1.0")),
            "manifest.protocol-version" => put("protocolVersion", json!("0.0.2")),
            "manifest.description" => put("description", json!(5)),
            "manifest.requires" => put("requires", json!(["sh"])),
            "manifest.operations" => manifest["operations"]["none"] = Value::Null,
            "manifest.schemas" => manifest["operations"]["none"] = json!({ "params": null }),
            "manifest.size" => put("description", json!("x".repeat(70_000))),
            _ => {}
        }
        manifest
    }
}

fn has(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

fn raw_id(text: &str) -> String {
    let rest = &text["{\"jsonrpc\":\"2.0\",\"id\":".len()..];
    let end = if rest.starts_with(['"', '{', '[']) { 0 } else { rest.find([',', '}']).unwrap_or(0) };
    if end > 0 { rest[..end].to_owned() } else { id_text(&serde_json::from_str(text).unwrap_or_default()) }
}

fn id_text(message: &Value) -> String {
    message.get("id").unwrap_or(&Value::Null).to_string()
}

fn error(id: Value, code: i32, text: &str) -> Value {
    let mut reply = Map::new();
    reply.insert("jsonrpc".into(), "2.0".into());
    reply.insert("id".into(), id);
    reply.insert("error".into(), json!({ "code": code, "message": text }));
    Value::Object(reply)
}

fn say(out: &mut dyn Write, message: &Value) {
    let _ = out.write_all(format!("{message}\n").as_bytes()).and_then(|()| out.flush());
}

/// A reply whose id is this JSON text.
fn say_raw(out: &mut dyn Write, id: &str, body: &Value) {
    let body = body.to_string();
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{}\n", &body[1..]);
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
