//! An Amplifier module and a namel3ss tool, on lines, as a process and over HTTP, which are right but for one fault, which has the
//! name of the case that finds it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// The answer: an HTTP status and a body; without one, nothing is ever answered.
type HttpAnswer = Option<(u16, Value)>;

/// An Amplifier module on standard input and output.
pub(crate) fn amplifier(fault: &str) -> ExitCode {
    let mut module = Module { fault: fault.into(), healths: 0 };
    for line in io::stdin().lines().map_while(Result::ok) {
        if let Some((_, answer)) = module.answer(None, &line) {
            println!("{answer}");
        }
    }
    ExitCode::SUCCESS
}

/// A namel3ss tool: one text, one answer.
pub(crate) fn namel3ss(fault: &str) -> ExitCode {
    let mut text = String::new();
    let _ = io::stdin().read_to_string(&mut text);
    match tool(fault, "/tools", &text) {
        Some((200 | 400, answer)) => {
            print!("{answer}");
            ExitCode::SUCCESS
        }
        Some(_) => ExitCode::from(3),
        None => {
            thread::sleep(Duration::from_secs(60));
            ExitCode::FAILURE
        }
    }
}

/// The same behind HTTP: gives the address.
pub(crate) fn listen(protocol: &str, fault: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let module = Arc::new(Mutex::new(Module { fault: fault.into(), healths: 0 }));
    let is_amplifier = protocol == "amplifier";
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let module = Arc::clone(&module);
            thread::spawn(move || {
                serve(&stream, |path, text| match is_amplifier {
                    true => module.lock().unwrap().answer(Some(path), text),
                    false => {
                        let fault = module.lock().unwrap().fault.clone();
                        tool(&fault, path, text)
                    }
                })
            });
        }
    });
    if is_amplifier { format!("http://{address}") } else { format!("http://{address}/tools") }
}

fn serve(stream: &TcpStream, answer: impl FnOnce(&str, &str) -> HttpAnswer) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    let Some((status, answer)) = answer(path, &String::from_utf8_lossy(&body)) else {
        thread::sleep(Duration::from_secs(60));
        return Ok(());
    };
    let answer = answer.to_string();
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}", answer.len())
}

struct Module {
    fault: String,
    healths: usize,
}

impl Module {
    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn answer(&mut self, path: Option<&str>, text: &str) -> HttpAnswer {
        let error = |code: &str| Some((200, json!({ "ok": false, "error": { "code": code, "message": "m" } })));
        let Ok(request) = serde_json::from_str::<Value>(text) else {
            return match self.is("malformed") {
                true => error("internal"),
                false => error("bad_request").map(|(_, body)| (400, body)),
            };
        };
        let op = match path {
            Some("/health") => "health",
            Some("/describe") => "describe",
            _ => match &request["op"] {
                Value::String(op) => op,
                Value::Null if self.is("bad-request.no-op") => return error("internal"),
                op if !op.is_null() && self.is("bad-request.op-type") => return error("unsupported_op"),
                _ => return error("bad_request"),
            },
        };
        let (args, session) = (&request["args"], request["session_id"].as_str().unwrap_or_default());
        match op {
            "health" => {
                self.healths += 1;
                let is_ill = self.is("health") && self.healths == 1 || self.is("health.busy") && self.healths == 5;
                Some((200, json!({ "status": if is_ill { "ill" } else { "ok" } })))
            }
            "describe" => Some((200, self.description())),
            "look-up" if args.is_array() => {
                error(if self.is("bad-request.args-type") { "internal" } else { "bad_request" })
            }
            "look-up" => match session {
                "" if self.is("invoke.success") && args.is_object() => Some((200, json!({ "ok": true }))),
                "" if self.is("invoke.args-null") && args.is_null() => error("bad_request"),
                "rigline-check" if self.is("invoke.session") => error("bad_request"),
                "rigline-check-timeout" if self.is("timeout") => None,
                _ => Some((200, json!({ "ok": true, "result": { "n": 1 } }))),
            },
            _ if text.len() > 1 << 20 && self.is("large") => error("oom"),
            _ if session == "rigline-check-recovery" && self.is("malformed.recovery") => error("internal"),
            _ if session == "rigline-check-shape" && self.is("errors.shape") => {
                error("unsupported_op").map(|(status, mut body)| {
                    body["error"]["details"] = json!("text");
                    (status, body)
                })
            }
            _ if request.get("x-rigline").is_some() && self.is("invoke.unknown-members") => error("bad_request"),
            _ if self.is("unsupported-op") && session.is_empty() && text.len() < 45 => error("bad_request"),
            _ => error("unsupported_op"),
        }
    }

    fn description(&self) -> Value {
        let capability = if self.is("describe.capabilities") { "other" } else { "look-up" };
        let schema = if self.is("describe.schemas") { "nonsense" } else { "object" };
        let kind = if self.is("describe") { "robot" } else { "tool" };
        json!({
            "name": "fake", "version": "1.0.0", "kind": kind, "capabilities": [capability],
            "inputs": { "look-up": { "type": schema } }, "outputs": {},
        })
    }
}

fn tool(fault: &str, path: &str, text: &str) -> HttpAnswer {
    let error = |error_type: &str| Some((200, json!({ "ok": false, "error": { "type": error_type, "message": "m" } })));
    let crash = Some((500, Value::Null));
    let Ok(request) = serde_json::from_str::<Value>(text) else {
        return if fault == "malformed" { crash } else { error("ProtocolError").map(|(_, body)| (400, body)) };
    };
    if path == "/capabilities/handshake" {
        let names = ["filesystem_write", "filesystem_read", "network", "subprocess", "env_read", "env_write"];
        let mut kept: serde_json::Map<_, _> = names.iter().map(|name| (format!("no_{name}"), json!(false))).collect();
        kept.insert("secrets_allowed".into(), json!([]));
        if fault == "handshake.guarantees" {
            kept.remove("no_env_write");
        }
        let enforcement = if fault == "handshake" { "declared" } else { "enforced" };
        return Some((200, json!({ "ok": true, "enforcement": enforcement, "supported_guarantees": kept })));
    }
    let case = request["trace_id"].as_str().and_then(|trace| trace.strip_prefix("rigline-check/")).unwrap_or_default();
    let name = if path == "/tools" && request["tool"].is_null() { "tool_name" } else { "tool" };
    let tool = request[name].as_str();
    match fault {
        "success.lines" if text.contains('\n') => return error("ProtocolError"),
        "success.escapes" if text.contains("\\u002d") => return error("UnknownTool"),
        "unknown-members" if !request["x_rigline"].is_null() => return error("ProtocolError"),
        "malformed.members" if tool.is_none() => return crash,
        "large" if text.len() > 1 << 20 => return crash,
        "unknown-tool" if case == fault => return Some((200, json!({ "ok": true, "result": null }))),
        "success" if case == fault => return Some((200, json!({ "ok": true }))),
        "flow-null" if case == fault => return error("TypeError"),
        "timeout" if case == fault => return None,
        "entry" if request["entry"] != "tools.rig:look_up" => return error("ImportError"),
        _ => {}
    }
    let is_guarded = request["capability_context"]["guarantees"]["no_network"] == true;
    match tool {
        None => error("ProtocolError"),
        _ if request["protocol_version"] != 1 && fault != "protocol-version" => error("ProtocolError"),
        Some("look-up") if is_guarded && fault == "guarantee" => error("CapabilityViolation"),
        Some("look-up") if is_guarded => error("CapabilityViolation").map(|(status, mut body)| {
            body["error"]["reason_code"] = json!("guarantee_blocked");
            (status, body)
        }),
        Some("look-up") => Some((200, json!({ "ok": true, "result": { "n": 1 }, "protocol_version": 1 }))),
        Some(_) => error("UnknownTool"),
    }
}
