//! Every example of Amplifier's protocol text and of the Python tool protocol (namel3ss), byte for byte, in both directions.
//!
//! The program is its own tool: an extension that answers as the texts' `greeter` does.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use libtest_mimic::{Failed, Trial};
use rigline::Guarantee;
use rigline::{Call, Context, Event, Extension, Failure, FailureKind, Manifest, Operation, Outcome, Params};
use rigline_host::amplifier::{Descriptor, EventRecord, ModuleError, Plan, RESERVED_CODES, SCHEMA};
use rigline_host::namel3ss::Reply;
use rigline_std::http::{HttpServer, Options};
use serde_json::{Value, json};

/// The greeter as a program: a tool of namel3ss, or on lines.
pub(crate) fn program(form: &str) -> Option<ExitCode> {
    match form {
        "namel3ss" => Some(rigline_std::namel3ss::main(Greeter)),
        "lines" => Some(rigline_std::stdio::serve(Greeter)),
        _ => None,
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("module_descriptor", module_descriptor),
        Trial::test("module_protocol", module_protocol),
        Trial::test("event_schema", event_schema),
        Trial::test("error_and_plan", error_and_plan),
        Trial::test("local_subprocess", local_subprocess),
        Trial::test("service_runner", service_runner),
        Trial::test("handshake", handshake),
    ]
}

/// The texts' tool: says hello, and misses its input.
struct Greeter;

#[derive(Params)]
struct Greet<'a> {
    /// The name to greet.
    name: Option<&'a str>,
}

impl Extension for Greeter {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("greeter", "1.0.0")
            .guarantees(&[Guarantee::NoNetwork])
            .operations(&[Operation::new("greeter", rigline::Schema::text(r#"{"type":"object"}"#))]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let Greet { name } = call.args()?;
        let Some(name) = name else { return Err(Failure::new(FailureKind::BadArguments, "Missing input")) };
        cx.output("message", &format!("Hello {name}"))?;
        cx.output("ok", &true)?;
        Ok(Outcome::DONE)
    }
}

/// Runs this program with some input; returns its output.
fn run(mode: &str, input: &str) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        // As the real runner has it, which `main` ignores.
        .args([mode, "-c", "import sys"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "exit code 0 with a reply");
    String::from_utf8(output.stdout).unwrap()
}

/// Posts some bodies to a server of the greeter; returns its answers.
fn post(options: Options, requests: &[(&str, &str)]) -> Vec<(u16, String)> {
    let server = HttpServer::bind("127.0.0.1:0", options).unwrap();
    let address = server.address().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stopped = async { drop(stopped.await) };
        runtime.block_on(server.run_until(|_| Greeter, stopped)).unwrap();
    });
    let answers = requests
        .iter()
        .map(|(path, body)| {
            let mut stream = TcpStream::connect(address).unwrap();
            let length = body.len();
            write!(
                stream,
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            let status = text.split(' ').nth(1).unwrap().parse().unwrap();
            (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
        })
        .collect();
    drop(stop);
    running.join().unwrap();
    answers
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

// Amplifier

/// §1: the schema as it stands there, and what it lets through.
fn module_descriptor() -> Result<(), Failed> {
    let schema = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Module Descriptor v1",
  "type": "object",
  "required": ["name", "kind", "transport", "capabilities"],
  "properties": {
    "name": {"type": "string"},
    "kind": {"type": "string", "enum": ["provider", "tool", "agent", "hook", "orchestrator", "context"]},
    "transport": {
      "type": "object",
      "required": ["type"],
      "properties": {
        "type": {"type": "string", "enum": ["stdio", "http"]},
        "command": {"type": "array", "items": {"type": "string"}},
        "url": {"type": "string"}
      }
    },
    "capabilities": {"type": "array", "items": {"type": "string"}},
    "version": {"type": "string"}
  }
}"#;
    assert_eq!(SCHEMA, schema);
    let validator = jsonschema::validator_for(&value(schema))?;
    for descriptor in [
        json!({"name": "m", "kind": "tool", "transport": {"type": "stdio"}, "capabilities": []}),
        json!({"name": "m", "kind": "hook", "transport": {"type": "http", "url": "http://x"}, "capabilities": ["a"], "version": "1"}),
    ] {
        let written = Descriptor::from_value(descriptor)?.to_json();
        assert!(validator.is_valid(&value(&written)), "{written}");
    }
    Ok(())
}

/// §2, on lines and over HTTP: the members of each shape, and no others.
fn module_protocol() -> Result<(), Failed> {
    let invoke = r#"{"op":"greeter","args":{"name":"Ada"},"session_id":"s-1"}"#;
    let missing = r#"{"op":"greeter","args":{}}"#;
    let unknown = r#"{"op":"fly"}"#;
    let lines =
        run("lines", &format!("{{\"op\":\"health\"}}\n{{\"op\":\"describe\"}}\n{invoke}\n{missing}\n{unknown}\n"));
    let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    let requests =
        [("/health", ""), ("/describe", ""), ("/invoke", invoke), ("/invoke", missing), ("/invoke", unknown)];
    let answers = post(Options::amplifier(), &requests);
    assert!(answers.iter().all(|(status, _)| *status == 200));
    let over_http: Vec<String> = answers.iter().map(|(_, text)| text.trim_end().to_owned()).collect();
    assert_eq!(lines, over_http, "all transports share the same semantics");
    assert_eq!(value(&lines[0]), value(r#"{ "status": "ok" }"#));
    let description = value(&lines[1]);
    let names: Vec<_> = description.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["name", "version", "kind", "capabilities", "inputs", "outputs"]);
    assert_eq!(lines[2], r#"{"ok":true,"result":{"message":"Hello Ada","ok":true}}"#);
    assert_eq!(lines[3], r#"{"ok":false,"error":{"code":"bad_request","message":"Missing input"}}"#);
    assert_eq!(lines[4], r#"{"ok":false,"error":{"code":"unsupported_op","message":"Unknown operation: fly"}}"#);
    Ok(())
}

/// §3: what is written keeps to the schema, and what keeps to the schema is read.
fn event_schema() -> Result<(), Failed> {
    let schema = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Amplifier Event v1",
  "type": "object",
  "required": ["id", "ts", "event", "component"],
  "properties": {
    "id": {"type": "string"},
    "ts": {"type": "number"},
    "event": {"type": "string"},
    "component": {"type": "string"},
    "module": {"type": ["string", "null"]},
    "status": {"type": ["string", "null"]},
    "duration_ms": {"type": ["integer", "null"]},
    "data": {"type": ["object", "null"]},
    "error": {"type": ["object", "null"]},
    "session_id": {"type": ["string", "null"]},
    "request_id": {"type": ["string", "null"]},
    "span_id": {"type": ["string", "null"]}
  }
}"#;
    let validator = jsonschema::validator_for(&value(schema))?;
    let error =
        ModuleError { code: "timeout".into(), message: "m".into(), details: None, details_text: None, kind: None };
    for record in [
        EventRecord::now("session:start", "k"),
        EventRecord {
            module: Some("m".into()),
            status: Some("error".into()),
            duration_ms: Some(u64::MAX),
            error: Some(error),
            ..EventRecord::now("module:invoke", "k")
        },
    ] {
        assert!(validator.is_valid(&value(&record.to_line())), "{}", record.to_line());
    }
    // Every member, absent, null, right and wrong: the reader and the schema agree.
    let least = json!({"id": "1", "ts": 1.5, "event": "x", "component": "c"});
    let values = [json!(null), json!("s"), json!(7), json!(1.0), json!(1.5), json!({}), json!([]), json!(true)];
    for name in value(schema)["properties"].as_object().unwrap().keys() {
        let mut without = least.clone();
        without.as_object_mut().unwrap().remove(name);
        let with = values.iter().map(|value| {
            let mut event = least.clone();
            event[name] = value.clone();
            event
        });
        for event in with.chain([without]) {
            let text = event.to_string();
            assert_eq!(Event::parse(text.as_bytes()).is_ok(), validator.is_valid(&event), "{text}");
        }
    }
    Ok(())
}

/// §4 and §5.
fn error_and_plan() -> Result<(), Failed> {
    let error = ModuleError::parse(
        br#"{
  "code": "string",
  "message": "human-readable",
  "details": { "optional": "object" }
}"#,
    )?;
    assert_eq!((error.code.as_str(), error.message.as_str()), ("string", "human-readable"));
    assert_eq!(Value::from(error.details.unwrap()), json!({"optional": "object"}));
    assert_eq!(
        RESERVED_CODES,
        ["timeout", "oom", "unreachable", "bad_request", "forbidden", "internal", "unsupported_op"]
    );
    let plan = Plan::parse(br#"{ "goal": "string", "inputs": { "type": "object" } }"#)?;
    assert_eq!((plan.goal.as_str(), Value::from(plan.inputs)), ("string", json!({"type": "object"})));
    Ok(())
}

// namel3ss

const LOCAL: &str = r#"{
  "protocol_version": 1,
  "tool": "greeter",
  "entry": "tools.sample_tool:greet",
  "payload": { "name": "Ada" },
  "sandbox": true,
  "trace_id": "uuid",
  "capability_context": { "guarantees": { "no_network": true } }
}"#;

const SUCCESS: &str = r#"{
  "ok": true,
  "protocol_version": 1,
  "result": { "message": "Hello Ada", "ok": true }
}"#;

const ERROR: &str = r#"{
  "ok": false,
  "protocol_version": 1,
  "error": { "type": "ValueError", "message": "Missing input", "reason_code": "guarantee_blocked" }
}"#;

/// "Local subprocess schema": the request as it stands there, on several lines, with and without a newline at its end, and what is known of (ndjson/ndjson-spec#1, BaseIntelligence/bounty-challenge#4400).
/// the real runner.
fn local_subprocess() -> Result<(), Failed> {
    let reply = r#"{"ok":true,"protocol_version":1,"result":{"message":"Hello Ada","ok":true},"capability_checks":[]}"#;
    let real = r#"{"protocol_version": 1, "tool": "greeter", "entry": "tools.greeter:run", "payload": {"name": "Ada"}, "capability_context": {"tool_name": "greeter", "resolved_source": "binding", "runner": "local", "protocol_version": 1, "guarantees": {"no_filesystem_write": false, "no_filesystem_read": false, "no_network": true, "no_subprocess": false, "no_env_read": false, "no_env_write": false, "secrets_allowed": ["K"]}, "sources": {"no_network": "user", "secrets_allowed": "user"}}, "sandbox": true, "trace_id": "3fc648fd-25e2-446d-90e8-943e80d4f304"}"#;
    for request in
        [LOCAL.to_owned(), format!("{LOCAL}\n"), LOCAL.replace('\n', "\r\n"), format!("\u{FEFF}{LOCAL}"), real.into()]
    {
        assert_eq!(run("namel3ss", &request).trim_end(), reply, "{request}");
    }
    // The text's reply is ours but for the checks, which the real tools send too.
    let mut ours = value(reply);
    ours.as_object_mut().unwrap().remove("capability_checks");
    assert_eq!(ours, value(SUCCESS));
    let without = LOCAL.replace("\"Ada\"", "null");
    let error = value(&run("namel3ss", &without));
    assert_eq!(error["error"], json!({"type": "ValueError", "message": "Missing input"}));
    let blocked = value(&run("namel3ss", &LOCAL.replace("no_network", "no_subprocess")));
    assert_eq!(blocked["error"]["reason_code"], value(ERROR)["error"]["reason_code"]);
    // And as a host reads them.
    assert_eq!(Reply::parse(SUCCESS.as_bytes())?.result.unwrap(), r#"{ "message": "Hello Ada", "ok": true }"#);
    let error = Reply::parse(ERROR.as_bytes())?.result.unwrap_err();
    assert_eq!((error.error_type.as_str(), error.message.as_str()), ("ValueError", "Missing input"));
    assert_eq!(error.reason_code.as_deref(), Some("guarantee_blocked"));
    let own = r#"{"ok": true, "result": {"message": "Hello Ada"}, "protocol_version": 1, "capability_checks": []}"#;
    assert_eq!(Reply::parse(own.as_bytes())?.result.unwrap(), r#"{"message": "Hello Ada"}"#);
    Ok(())
}

/// "Service runner schema".
fn service_runner() -> Result<(), Failed> {
    let request = r#"{
  "protocol_version": 1,
  "tool_name": "greeter",
  "kind": "python",
  "entry": "tools.sample_tool:greet",
  "payload": { "name": "Ada" },
  "timeout_ms": 10000,
  "trace_id": "uuid",
  "project": { "app_root": "/path/to/app", "flow": "demo" }
}"#;
    let real = r#"{"protocol_version": 1, "tool_name": "greeter", "kind": "python", "entry": "tools.sample_tool:greet", "payload": {"name": "Ada \u00e9"}, "timeout_ms": 1500, "trace_id": "1111", "project": {"app_root": "/tmp/app", "flow": null}}"#;
    let missing = request.replace("\"Ada\"", "null");
    let answers = post(Options::namel3ss(), &[("/tools", request), ("/tools", real), ("/tools", &missing)]);
    let [greeted, escaped, error] = &answers[..] else { panic!("{answers:?}") };
    let greeting = |name: &str| {
        let reply =
            format!("{{\"ok\":true,\"protocol_version\":1,\"result\":{{\"message\":\"Hello {name}\",\"ok\":true}}}}\n");
        (200, reply)
    };
    assert_eq!(*greeted, greeting("Ada"));
    assert_eq!(*escaped, greeting("Ada é"));
    let text = r#"{ "ok": false, "error": { "type": "ValueError", "message": "Missing input" } }"#;
    assert_eq!((error.0, &value(&error.1)["error"]), (200, &value(text)["error"]));
    assert!(Reply::parse(text.as_bytes())?.result.is_err());
    let success = r#"{ "ok": true, "result": { "message": "Hello Ada" } }"#;
    assert_eq!(Reply::parse(success.as_bytes())?.result.unwrap(), r#"{ "message": "Hello Ada" }"#);
    Ok(())
}

/// "Service capability handshake".
fn handshake() -> Result<(), Failed> {
    let request = r#"{
  "protocol_version": 1,
  "tool_name": "greeter",
  "runner": "service",
  "required_guarantees": { "no_network": true }
}"#;
    let real = r#"{"protocol_version": 1, "tool_name": "greeter", "runner": "service", "required_guarantees": {"no_filesystem_write": true, "no_filesystem_read": false, "no_network": false, "no_subprocess": false, "no_env_read": false, "no_env_write": false}}"#;
    let wanted = r#"{
  "ok": true,
  "enforcement": "enforced",
  "supported_guarantees": { "no_network": true },
  "service_version": "1.0.0"
}"#;
    for (status, text) in
        post(Options::namel3ss(), &[("/capabilities/handshake", request), ("/capabilities/handshake", real)])
    {
        let answer = value(&text);
        let names: Vec<_> = answer.as_object().unwrap().keys().collect();
        let wanted = value(wanted);
        assert_eq!((status, names), (200, wanted.as_object().unwrap().keys().collect::<Vec<_>>()));
        for name in ["ok", "enforcement", "service_version"] {
            assert_eq!(answer[name], wanted[name]);
        }
        assert_eq!(answer["supported_guarantees"]["no_network"], true);
    }
    Ok(())
}
