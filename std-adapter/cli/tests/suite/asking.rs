//! How a target is asked: the same decision in every command, and the same outcome by every protocol.

use crate::executable;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// The common parts of the programs below. Each speaks one protocol only, and writes into the file `log` beside it that it was started and what it
/// was called with.
const COMMON: &str = r#"#!/usr/bin/env python3
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
def note(text):
    with open(os.path.join(folder, "log"), "a") as file:
        file.write(text + "\n")
def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
note("start")
VALUES = '{"volts":3.30000000000000000001,"on":true,"rail":"3V3","list":[1,2]}'
"#;

/// An MCP server that takes `initialize` as MCP has it only.
const MCP: &str = r#"
for line in sys.stdin:
    request = json.loads(line)
    method, params, number = request.get("method"), request.get("params") or {}, request.get("id")
    if number is None:
        continue
    head = '{"jsonrpc":"2.0","id":%s,' % json.dumps(number)
    if method == "initialize" and ("clientInfo" in params or LENIENT):
        say(head + '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"mcp-only","version":"1.0.0"}}}')
    elif method == "tools/list":
        say(head + '"result":{"tools":[{"name":"measure","inputSchema":{"type":"object","properties":{}}},{"name":"fail","inputSchema":{"type":"object","properties":{}}}]}}')
    elif method == "tools/call":
        note("call " + json.dumps(params))
        if params["name"] == "fail":
            say(head + '"result":{"content":[{"type":"text","text":"no board"}],"isError":true}}')
        else:
            say(head + '"result":{"content":[{"type":"text","text":"measured"},{"type":"image","data":"AAEC","mimeType":"image/png"}],"structuredContent":' + VALUES + '}}')
    else:
        say(head + '"error":{"code":-32602,"message":"Invalid request parameters"}}')
"#;

/// One that takes any `initialize`.
const LENIENT: &str = "LENIENT = True\n";
const STRICT: &str = "LENIENT = False\n";

/// A gevals extension.
const GEVALS: &str = r#"
for line in sys.stdin:
    request = json.loads(line)
    method, params, number = request.get("method"), request.get("params") or {}, request.get("id")
    head = '{"jsonrpc":"2.0","id":%s,' % json.dumps(number)
    if method == "initialize":
        say(head + '"result":{"name":"gevals-only","version":"1.0.0","protocolVersion":"0.0.1","operations":{"measure":{"params":{"type":"object"}},"fail":{"params":{"type":"object"}}}}}')
    elif method == "execute":
        note("call " + json.dumps(params))
        if params["operation"] == "fail":
            say(head + '"result":{"success":false,"error":"no board"}}')
        else:
            outputs = {name: value if isinstance(value, str) else json.dumps(value) for name, value in json.loads(VALUES).items()}
            outputs["volts"] = "3.30000000000000000001"
            say(head + '"result":{"success":true,"message":"measured","outputs":' + json.dumps(outputs) + '}}')
    elif method == "shutdown":
        say(head + '"result":null}')
        break
    else:
        say(head + '"error":{"code":-32601,"message":"Method not found"}}')
"#;

/// A module of Amplifier, which returns no ids.
const AMPLIFIER: &str = r#"
say("Loading config...")
for line in sys.stdin:
    request = json.loads(line)
    op = request.get("op")
    if op == "describe":
        say('{"name":"amplifier-only","version":"1.0.0","kind":"tool","capabilities":["measure","fail"]}')
    elif op == "measure":
        note("call " + line.strip())
        say("[1,2]")
        say("42")
        say('{"ok":true,"result":' + VALUES + '}')
    elif op == "fail":
        say('{"ok":false,"error":{"code":"internal","message":"no board"}}')
    else:
        say('{"ok":false,"error":{"code":"bad_request","message":"there is no op"}}')
"#;

/// A folder with one of the programs.
struct Peer(TempDir);

impl Peer {
    fn new(program: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        executable::script(folder.path(), "peer.py", &format!("{COMMON}{STRICT}{program}"));
        Self(folder)
    }

    fn target(&self) -> String {
        format!("exec:{}", self.0.path().join("peer.py").display())
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn starts(&self) -> usize {
        self.log().iter().filter(|line| *line == "start").count()
    }
}

/// A server that ends with the test.
struct ServerProcess {
    child: Child,
    address: String,
}

impl ServerProcess {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(RIGLINE).args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rigline(words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(RIGLINE).args(words).stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn write_eval(folder: &Path, config: &str) {
    let task = "name: asked
config: { CONFIG }
tasks:
  - id: t
    steps:
      - { id: m, operation: measure }
    graders:
      - { type: output_range, step: m, output: volts, min: 3.30000000000000000001, max: 3.30000000000000000001 }
      - { type: output_equals, step: m, output: on, value: true }
      - { type: output_equals, step: m, output: rail, value: 3V3 }
      - { type: output_equals, step: m, output: list, value: [1, 2] }
      - { type: output_contains, step: m, value: measured }
";
    let task = if config.contains("amplifier") {
        task.replace("      - { type: output_contains, step: m, value: measured }\n", "")
    } else {
        task.to_owned()
    };
    fs::write(folder.join("eval.yaml"), task.replace("CONFIG", config)).unwrap();
}

fn run_eval(folder: &Path, target: &str, more: &[&str]) -> (Option<i32>, Value, String) {
    let (eval, runs) = (folder.join("eval.yaml"), folder.join("runs"));
    let words = ["eval", "run", eval.to_str().unwrap(), "--target", target, "--json", "--runs", runs.to_str().unwrap()];
    let (code, stdout, stderr) = rigline(&[&words[..], more].concat());
    (code, serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")), stderr)
}

#[test]
fn call_and_describe_find_out_which_protocol_a_program_speaks_and_start_it_once() {
    for (program, name, volts) in [
        (GEVALS, "gevals-only", "\"3.30000000000000000001\""),
        (MCP, "mcp-only", "3.30000000000000000001"),
        (&format!("{LENIENT}{MCP}"), "mcp-only", "3.30000000000000000001"),
        (AMPLIFIER, "amplifier-only", "3.30000000000000000001"),
    ] {
        let peer = Peer::new(program);
        let (code, described, errors) = rigline(&["describe", &peer.target()]);
        assert_eq!(code, Some(0), "{name}: {errors}");
        assert!(described.contains(name) && described.contains("measure"), "{name}: {described}");
        assert_eq!(peer.starts(), 1, "{name}");
        let (code, called, errors) = rigline(&["call", &peer.target(), "measure", "--json"]);
        assert_eq!(code, Some(0), "{name}: {called}{errors}");
        assert!(called.contains(&format!("\"volts\": {volts}")), "{name}: {called}");
        assert_eq!(peer.starts(), 2, "{name}");
        let (code, failed, _) = rigline(&["call", &peer.target(), "fail", "--json"]);
        assert_eq!(code, Some(1), "{name}: {failed}");
        assert!(failed.contains("no board"), "{name}: {failed}");
    }
}

#[test]
fn options_of_one_protocol_decide_if_none_is_named() {
    let peer = Peer::new(AMPLIFIER);
    let (code, called, errors) = rigline(&["call", &peer.target(), "measure", "--session", "s-1"]);
    assert_eq!(code, Some(0), "{called}{errors}");
    assert_eq!(peer.starts(), 1);
    assert!(
        peer.log()
            .iter()
            .any(|line| line.contains("\"session_id\": \"s-1\"") || line.contains("\"session_id\":\"s-1\""))
    );
    let (code, _, errors) = rigline(&["call", &peer.target(), "measure", "--session", "s", "--phase", "setup"]);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("--session goes with --protocol amplifier"), "{errors}");
    assert!(errors.contains("--phase goes with --protocol gevals"), "{errors}");
}

#[test]
fn over_http_the_route_decides() {
    let peer = Peer::new(AMPLIFIER);
    for protocol in ["mcp", "amplifier"] {
        let server = ServerProcess::start(&["serve", &peer.target(), "--http", "0", "--protocol", protocol]);
        let (code, called, errors) = rigline(&["call", &server.address, "measure", "--json"]);
        assert_eq!(code, Some(0), "{protocol}: {called}{errors}");
        let called: Value = serde_json::from_str(&called).unwrap();
        assert_eq!(called["outputs"]["on"], json!(true), "{protocol}");
        let (code, described, _) = rigline(&["describe", &server.address]);
        assert!(code == Some(0) && described.contains("measure"), "{protocol}: {described}");
    }
    // One that has another path is asked.
    let server = ServerProcess::start(&["serve", &peer.target(), "--http", "0", "--protocol", "amplifier"]);
    let base = server.address.trim_end_matches("/invoke");
    assert_eq!(rigline(&["call", base, "measure"]).0, Some(0));
}

#[test]
fn an_eval_has_the_same_verdict_by_every_protocol_and_wire() {
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in [("gevals", GEVALS), ("mcp", MCP), ("amplifier", AMPLIFIER)] {
        let peer = Peer::new(program);
        let tcp = ServerProcess::start(&["serve", &peer.target(), "--tcp", "0"]);
        let mcp = ServerProcess::start(&["serve", &peer.target(), "--http", "0", "--protocol", "mcp"]);
        let amplifier = ServerProcess::start(&["serve", &peer.target(), "--http", "0", "--protocol", "amplifier"]);
        let mut targets =
            vec![(name, peer.target()), ("mcp", mcp.address.clone()), ("amplifier", amplifier.address.clone())];
        if name == "gevals" {
            targets.push(("tcp", tcp.address.clone()));
        }
        for (way, target) in targets {
            // An Amplifier result has no message of its own.
            let is_silent = name == "amplifier" || way == "amplifier";
            write_eval(
                folder.path(),
                if is_silent { "executor: extension, model: amplifier" } else { "executor: extension" },
            );
            let (code, report, errors) = run_eval(folder.path(), &target, &[]);
            assert_eq!(code, Some(0), "{name} by {way}: {report:#}{errors}");
            let outputs = &report["runs"][0]["tasks"][0]["trials"][0]["steps"][0]["outputs"];
            assert_eq!(outputs["volts"], "3.30000000000000000001", "{name} by {way}: {outputs}");
            assert_eq!(
                outputs["list"].as_str().map(|list| list.replace(' ', "")),
                Some("[1,2]".into()),
                "{name} by {way}"
            );
        }
    }
}

#[test]
fn what_an_eval_needs_and_the_protocol_has_not_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let peer = Peer::new(AMPLIFIER);
    let mcp = ServerProcess::start(&["serve", &peer.target(), "--http", "0", "--protocol", "mcp"]);
    let amplifier = ServerProcess::start(&["serve", &peer.target(), "--http", "0", "--protocol", "amplifier"]);
    for target in [&peer.target(), &mcp.address, &amplifier.address] {
        for (config, named) in [
            ("settings: { port: 7 }", "the extension's configuration"),
            ("env: { RAIL: 3V3 }", "environment variables"),
        ] {
            write_eval(folder.path(), config);
            let (code, report, errors) = run_eval(folder.path(), target, &[]);
            assert_eq!(code, Some(2), "{target} {config}: {report:#}{errors}");
            assert!(report.to_string().contains(named), "{target} {config}: {report:#}{errors}");
        }
    }
    assert!(!peer.log().iter().any(|line| line.starts_with("call")), "{:?}", peer.log());
    // The phase is said by a warning: the operation runs all the same.
    write_eval(folder.path(), "executor: extension, model: amplifier");
    let text = fs::read_to_string(folder.path().join("eval.yaml")).unwrap();
    fs::write(
        folder.path().join("eval.yaml"),
        text.replace("operation: measure }", "operation: measure, phase: setup }"),
    )
    .unwrap();
    let (code, report, errors) = run_eval(folder.path(), &mcp.address, &[]);
    assert_eq!(code, Some(0), "{report:#}{errors}");
    assert!(errors.contains("does not carry the phase"), "{errors}");
    let (code, ..) = run_eval(folder.path(), &mcp.address, &["--strict"]);
    assert_eq!(code, Some(2));
}

#[test]
fn skipped_lines_are_shown_in_every_protocol() {
    let peer = Peer::new(AMPLIFIER);
    for protocol in [&[][..], &["--protocol", "amplifier"]] {
        let target = peer.target();
        let (code, _, errors) = rigline(&[&["call", &target, "measure", "-v"], protocol].concat());
        assert_eq!(code, Some(0), "{errors}");
        for line in ["Loading config...", "[1,2]", "42"] {
            assert!(errors.contains(&format!("skipped: {line} (")), "{protocol:?}: {line}: {errors}");
        }
    }
    // A module that prints without end is counted.
    let noisy = Peer::new(&AMPLIFIER.replace("say(\"[1,2]\")", "[say(\"noise\") for _ in range(500)]"));
    let (code, _, errors) = rigline(&["call", &noisy.target(), "measure", "-v", "--protocol", "amplifier"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.matches("skipped: noise").count() <= 100, "{errors}");
    assert!(errors.contains("400") || errors.contains("401") || errors.contains("402"), "{errors}");
}

/// rigline's own server carries over MCP what the protocol has no place for, over any wire.
#[test]
fn a_server_of_riglines_tells_kinds_of_failures_and_keeps_time_limits_over_mcp() {
    let server = ServerProcess::start(&["rig", "--http", "0", "--protocol", "mcp"]);
    let (code, failed, errors) = rigline(&["call", &server.address, "measure", "channel=nope", "--json"]);
    assert_eq!(code, Some(2), "{failed}{errors}");
    let waiting = ["wait-for", "channel=3V3", "min=100", "max=200", "--timeout", "300ms"];
    let (code, failed, errors) = rigline(&[&["call", &server.address][..], &waiting].concat());
    assert_eq!(code, Some(124), "{failed}{errors}");
}

/// Values of every type that an output may have, and the text of each where outputs are strings.
const TYPES: &[(&str, &str, &str)] = &[
    ("number", "3", "3"),
    ("digits", "123456789012345678901234567890.10", "123456789012345678901234567890.10"),
    ("yes", "true", "true"),
    ("nothing", "null", "null"),
    ("list", r#"[1,"a",null]"#, r#"[1,"a",null]"#),
    ("object", r#"{"a":{"b":1.50}}"#, r#"{"a":{"b":1.50}}"#),
    ("text", r#""3.30 \u00b5V \"quoted\"""#, "3.30 µV \"quoted\""),
    ("empty", r#""""#, ""),
];

/// The answers of a server to lines, until its input ends.
fn exchange(words: &[&str], lines: &[Value]) -> Vec<Value> {
    let mut child = Command::new(RIGLINE).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        std::io::Write::write_all(&mut input, format!("{line}\n").as_bytes()).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}"))).collect()
}

fn gevals(id: u32, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn execute(id: u32, operation: &str, context: Value) -> Value {
    gevals(id, "execute", json!({ "operation": operation, "args": {}, "context": context }))
}

/// The real gevals host decodes outputs as a map of strings, and cannot decode the whole result otherwise.
#[test]
fn outputs_are_strings_for_a_gevals_host_whatever_the_target_gives_by_whatever_protocol() {
    let values = TYPES.iter().map(|(name, json, _)| format!("\"{name}\":{json}")).collect::<Vec<_>>().join(",");
    let values = format!("VALUES = r'''{{{values}}}'''");
    let odd = GEVALS.replace("json.dumps(outputs)", "VALUES");
    for (protocol, program) in [("gevals", odd.as_str()), ("mcp", MCP), ("amplifier", AMPLIFIER)] {
        let peer = Peer::new(&format!("{values}\n{program}"));
        let server = ServerProcess::start(&["serve", &peer.target(), "--tcp", "0"]);
        for target in [peer.target(), server.address.clone()] {
            let lines = [execute(1, "measure", json!({})), execute(2, "fail", json!({}))];
            let replies = exchange(&["bridge", &target], &lines);
            let reply =
                |id: u32| replies.iter().find(|reply| reply["id"] == id).unwrap_or_else(|| panic!("{replies:?}"));
            let result = &reply(1)["result"];
            assert_eq!(result["success"], true, "{protocol} {target}: {replies:?}");
            for (name, _, text) in TYPES {
                // What a real gevals host reads for null.
                let text = if (protocol, *name) == ("gevals", "nothing") { &"" } else { text };
                assert_eq!(result["outputs"][name], *text, "{protocol} {target}: {name}: {result}");
            }
            let outputs = result["outputs"].as_object().unwrap();
            assert!(outputs.values().all(Value::is_string), "{protocol} {target}: {result}");
            // An image, which outputs have no place for, is a text too.
            assert_eq!(outputs.get("image").is_some(), protocol == "mcp", "{protocol} {target}: {result}");
            assert!(result.get("message").is_none_or(Value::is_string), "{protocol} {target}: {result}");
            assert!(reply(2).to_string().contains("no board"), "{protocol} {target}: {replies:?}");
        }
    }
    // What has no outputs, or something else in their place, is a result without outputs, or an error.
    for outputs in ["null", "{}", "[]", "\"text\""] {
        let peer = Peer::new(&GEVALS.replace("json.dumps(outputs)", &format!("'{outputs}'")));
        let replies = exchange(&["bridge", &peer.target()], &[execute(1, "measure", json!({}))]);
        let found = replies[0]["result"].get("outputs");
        let is_map =
            |outputs: &Value| outputs.as_object().is_some_and(|outputs| outputs.values().all(Value::is_string));
        assert!(found.is_none_or(is_map), "{outputs}: {replies:?}");
    }
}

/// The call was made, so its outcome counts; what came in place of outputs is told.
#[test]
fn outputs_that_are_no_object_are_told_to_everybody() {
    let folder = tempfile::tempdir().unwrap();
    let task = "name: odd\ntasks:\n  - id: t\n    steps:\n      - { id: m, operation: measure }\n";
    fs::write(folder.path().join("eval.yaml"), task).unwrap();
    for outputs in ["[1.50,2]", "7.10", "\"text\"", "true"] {
        let told = format!("measure: the result's outputs are not an object, and are left out: {outputs}");
        let peer = Peer::new(&GEVALS.replace("json.dumps(outputs)", &format!("'{outputs}'")));
        let (code, called, errors) = rigline(&["call", &peer.target(), "measure", "--json"]);
        assert!(code == Some(0) && errors.contains(&told), "{outputs}: {called}{errors}");
        let (code, checked, _) = rigline(&["check", &peer.target(), "--call", "measure"]);
        let failed = "measure: outputs must be an object, and is ";
        assert!(code == Some(1) && checked.contains(failed), "{outputs}: {checked}");
        let (code, report, errors) = run_eval(folder.path(), &peer.target(), &[]);
        assert!(code == Some(0) && errors.contains(&told), "{outputs}: {report:#}{errors}");
        let replies = exchange(&["bridge", &peer.target()], &[execute(1, "measure", json!({}))]);
        let is_told = |line: &Value| line["params"]["message"] == told && line["params"]["level"] == "warn";
        assert!(replies.iter().any(is_told), "{outputs}: {replies:?}");
    }
}

/// A server of another target without `--protocol` is one for agents and for gevals hosts at once.
#[test]
fn clients_of_every_protocol_get_what_theirs_has_from_one_server_of_another_target() {
    let server = ServerProcess::start(&["serve", &format!("exec:{RIGLINE} rig"), "--tcp", "0"]);
    let target = &server.address;
    let described = |protocol: &str| {
        let (code, out, errors) = rigline(&["describe", target, "--protocol", protocol, "--json"]);
        assert_eq!(code, Some(0), "{protocol}: {out}{errors}");
        out
    };
    let mcp: Value = serde_json::from_str(&described("mcp")).unwrap();
    let tools = mcp["tools"].as_array().unwrap();
    let measure = tools.iter().find(|tool| tool["name"] == "measure").unwrap();
    assert_eq!(measure["annotations"]["readOnlyHint"], true, "{measure}");
    assert_eq!(measure["outputSchema"]["properties"]["volts"]["type"], "number", "{measure}");
    assert!(tools.iter().any(|tool| tool["name"] == "wait_for"), "{mcp}");
    // Operations have their own names where names are not restricted.
    assert!(described("gevals").contains("\"wait-for\""));
    let call = |protocol: &str| -> Value {
        let words = ["call", target, "measure", "channel=3V3", "--protocol", protocol, "--json"];
        let (code, out, errors) = rigline(&words);
        assert_eq!(code, Some(0), "{protocol}: {out}{errors}");
        serde_json::from_str(&out).unwrap()
    };
    assert!(call("mcp")["outputs"]["volts"].is_number());
    assert!(call("amplifier")["outputs"]["volts"].is_number());
    assert!(call("gevals")["outputs"]["volts"].is_string());
    let (code, _, errors) = rigline(&["serve", "sim", "--tcp", "0", "--protocol", "namel3ss"]);
    assert_eq!(code, Some(2), "a single document has no place on a connection: {errors}");
}

/// The program is started when it is first needed, once, with the settings that its first client brings, and is told the phase, the folder and the
/// environment of each call.
#[test]
fn a_client_that_asks_whether_the_server_is_there_does_not_wait_until_the_target_is() {
    let waits = "import time\nwhile not os.path.exists(os.path.join(folder, 'go')):\n    time.sleep(0.02)\n";
    let peer = Peer::new(&format!("{waits}{MCP}"));
    let server = ServerProcess::start(&["serve", &peer.target(), "--tcp", "0", "--start-timeout", "120s"]);
    let connect = || {
        let stream = TcpStream::connect(server.address.strip_prefix("tcp:").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    let ask = |stream: &TcpStream, request: &str| {
        let mut writer = stream;
        writer.write_all(format!("{request}\n").as_bytes()).unwrap();
    };
    let reply = |stream: &TcpStream| {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let caller = connect();
    ask(&caller, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"measure","arguments":{}}}"#);
    let begun = Instant::now();
    while peer.starts() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program is not started");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (agent, module) = (connect(), connect());
    ask(&agent, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#);
    assert_eq!(reply(&agent)["result"], json!({}));
    ask(&module, r#"{"op":"health"}"#);
    assert_eq!(reply(&module)["status"], "ok");
    // What there is to call is known when the target is.
    ask(&agent, r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#);
    std::thread::sleep(Duration::from_millis(300));
    fs::write(peer.0.path().join("go"), "").unwrap();
    assert_eq!(reply(&agent)["result"]["tools"][0]["name"], "measure");
    assert_eq!(reply(&caller)["result"]["content"][0]["text"], "measured");
    assert_eq!(peer.starts(), 1);
}

#[test]
fn settings_and_context_of_a_gevals_host_reach_a_program_behind_a_bridge_and_a_server() {
    let begin = "    if method == \"initialize\":";
    let seeing = GEVALS.replace(begin, &format!("{begin}\n        note(line.strip())"));
    let initialize = gevals(1, "initialize", json!({ "protocolVersion": "0.0.1", "config": { "port": 7 } }));
    let context = json!({
        "workdir": "/w", "phase": "verify", "env": { "RAIL": "3V3" }, "agent": { "prompt": "p", "output": "o" }, "timeout": "5s",
    });
    let lines = [initialize, execute(2, "measure", context), gevals(3, "shutdown", json!({}))];
    for through_a_server in [false, true] {
        let peer = Peer::new(&seeing);
        let server = through_a_server.then(|| ServerProcess::start(&["serve", &peer.target(), "--tcp", "0"]));
        assert_eq!(peer.starts(), 0, "nothing was asked of it");
        let target = server.as_ref().map_or_else(|| peer.target(), |server| server.address.clone());
        let replies = exchange(&["bridge", &target], &lines);
        assert_eq!(replies.len(), 3, "{replies:?}");
        assert_eq!(replies[0]["result"]["name"], "gevals-only", "{replies:?}");
        assert_eq!(replies[1]["result"]["success"], true, "{replies:?}");
        let log = peer.log().join("\n");
        for part in [
            r#""config":{"port":7}"#,
            r#""workdir": "/w""#,
            r#""phase": "verify""#,
            r#""RAIL": "3V3""#,
            r#""prompt": "p""#,
            r#""output": "o""#,
        ] {
            assert!(log.contains(part), "{part}: {log}");
        }
        assert_eq!(peer.starts(), 1, "{log}");
    }
}

/// The body of the answer to a request over HTTP, and its status.
fn post(url: &str, path: &str, body: &str) -> (u16, Value) {
    let address = url.trim_start_matches("http://").split('/').next().unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: application/json, text/event-stream\r\n"
    );
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}")))
}

#[test]
fn one_address_serves_the_hosts_of_every_protocol_over_http() {
    for target in ["sim".to_owned(), format!("exec:{RIGLINE} rig")] {
        let server = ServerProcess::start(&["serve", &target, "--http", "0"]);
        let url = &server.address;
        for (route, protocol) in [("/mcp", "mcp"), ("", "amplifier"), ("/tools", "namel3ss")] {
            let address = format!("{url}{route}");
            let words = ["call", &address, "measure", "channel=3V3", "--protocol", protocol, "--json"];
            let (code, out, errors) = rigline(&words);
            assert_eq!(code, Some(0), "{target} {protocol}: {out}{errors}");
            let out: Value = serde_json::from_str(&out).unwrap();
            assert!(out["outputs"]["volts"].is_number(), "{target} {protocol}: {out}");
            // One that is read from the path alone.
            let (code, out, errors) = rigline(&["call", &address, "no-such", "--protocol", protocol]);
            assert_eq!(code, Some(2), "{target} {protocol}: {out}{errors}");
        }
        // Each path takes its own protocol alone, and refuses in its form.
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        assert!(post(url, "/mcp", list).1["result"]["tools"].is_array(), "{target}");
        assert_eq!(post(url, "/invoke", list).1["ok"], false, "{target}");
        assert_eq!(post(url, "/tools", list).1["protocol_version"], 1, "{target}");
        assert!(post(url, "/mcp", r#"{"op":"measure","args":{"channel":"3V3"}}"#).1["error"]["code"].is_number());
        assert_eq!(post(url, "/invoke", "{").1["error"]["code"], "bad_request", "{target}");
        let (status, lost) = post(url, "/nowhere", "{}");
        assert_eq!(status, 404, "{lost}");
        for path in ["/mcp", "/invoke", "/describe", "/health", "/tools"] {
            assert!(lost.to_string().contains(path), "{path}: {lost}");
        }
    }
}

/// Each command says what the protocol does not carry by the table: as a usage error, or as a warning where this end does it in its place.
#[test]
fn what_a_protocol_does_not_carry_is_said_by_each_command() {
    use rigline_host::client::Part;
    use rigline_host::protocols;
    let folder = tempfile::tempdir().unwrap();
    for (name, program) in [("gevals", GEVALS), ("mcp", MCP), ("amplifier", AMPLIFIER)] {
        let peer = Peer::new(program);
        let (protocol, target) = (protocols::named(name).unwrap(), peer.target());
        for part in Part::ALL {
            let is_carried = protocol.carries(part);
            let said = |errors: &str| errors.contains(&format!("does not carry {}", part.name()));
            let what = format!("{name}: {}", part.name());
            // How `call` asks for it, and whether this end can do it instead.
            let asked = match part {
                Part::Config => Some((&["--config", "{}"][..], false)),
                Part::Context => Some((&["--phase", "setup"][..], false)),
                Part::Env => Some((&["--env", "A=b"][..], false)),
                Part::Session => Some((&["--session", "s-1"][..], false)),
                Part::TimeLimit => Some((&["--timeout", "20s"][..], true)),
                Part::Logs => Some((&["--verbose"][..], true)),
                // What comes back is shown as it is.
                _ => None,
            };
            if let Some((option, has_substitute)) = asked {
                let call = [&["call", &target, "measure", "--protocol", name][..], option].concat();
                let before = peer.log().len();
                let (code, _, errors) = rigline(&call);
                let is_refused = !is_carried && !has_substitute;
                assert_eq!(code, Some(if is_refused { 2 } else { 0 }), "call, {what}: {errors}");
                assert_eq!(
                    said(&errors),
                    !is_carried && (has_substitute || part == Part::Config),
                    "call, {what}: {errors}"
                );
                if is_refused && part != Part::Config {
                    assert!(errors.contains("goes with --protocol"), "call, {what}: {errors}");
                }
                let log = peer.log().split_off(before);
                assert_eq!(log.iter().any(|line| line.starts_with("call")), !is_refused, "call, {what}: {log:?}");
            }
            if part == Part::Config {
                let (code, _, errors) = rigline(&["describe", &peer.target(), "--protocol", name, "--config", "{}"]);
                assert_eq!(
                    (code, said(&errors)),
                    (Some(if is_carried { 0 } else { 2 }), !is_carried),
                    "describe, {what}: {errors}"
                );
            }
            // How an eval asks for it, and whether it runs all the same.
            let asked = match part {
                Part::Config => Some(("settings: { port: 7 }", "", false)),
                Part::Env => Some(("env: { RAIL: 3V3 }", "", false)),
                Part::Context => Some(("executor: extension", "phase: setup, ", true)),
                Part::TimeLimit => Some(("executor: extension", "timeout: 20s, ", true)),
                _ => None,
            };
            // A program of gevals alone refuses a configuration that is not for it by itself.
            if let Some((config, step, runs)) = asked.filter(|_| !(name == "mcp" && part == Part::Config)) {
                write_eval(
                    folder.path(),
                    if name == "amplifier" { "executor: extension, model: amplifier" } else { config },
                );
                let path = folder.path().join("eval.yaml");
                let text = fs::read_to_string(&path).unwrap();
                let text =
                    text.replace("executor: extension, model: amplifier", &format!("{config}, model: amplifier"));
                fs::write(&path, text.replace("operation: measure", &format!("{step}operation: measure"))).unwrap();
                let (code, report, errors) = run_eval(folder.path(), &peer.target(), &[]);
                let is_run = is_carried || runs;
                assert_eq!(code, Some(if is_run { 0 } else { 2 }), "eval, {what}: {report:#}{errors}");
                assert_eq!(said(&format!("{errors}{report}")), !is_carried, "eval, {what}: {report:#}{errors}");
            }
        }
    }
}

/// The output of a server whose client has called it.
struct Said {
    /// Lines to the client.
    lines: String,
    errors: String,
}

/// Two calls of `measure` by a client of this protocol.
fn calls_by(protocol: &str) -> Vec<Value> {
    let calls = |call: &dyn Fn(u32) -> Value| vec![call(1), call(2)];
    match protocol {
        "gevals" => {
            let context = json!({ "workdir": "/w", "phase": "verify", "env": { "RAIL": "3V3" }, "timeout": "20s" });
            calls(&|id| execute(id, "measure", context.clone()))
        }
        "amplifier" => calls(&|_| json!({ "op": "measure", "args": {}, "session_id": "s-1" })),
        _ => {
            let client = json!({
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" },
            });
            let call = |id| gevals(id, "tools/call", json!({ "name": "measure", "arguments": {} }));
            vec![gevals(9, "initialize", client), call(1), call(2)]
        }
    }
}

/// Calls a command on standard input and output.
fn said_on_stdio(words: &[&str], protocol: &str) -> Said {
    let mut child = Command::new(RIGLINE);
    let child = child.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = calls_by(protocol).iter().map(|call| format!("{call}\n")).collect();
    std::io::Write::write_all(&mut input, text.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { lines: text(output.stdout), errors: text(output.stderr) }
}

/// Calls a server. `ask` gets its address, and returns the replies.
fn said_by_server(words: &[&str], ask: impl FnOnce(&str) -> String) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let (path, errors) = (folder.path().join("errors"), fs::File::create(folder.path().join("errors")).unwrap());
    let mut child = Command::new(RIGLINE);
    let child = child.args(words).current_dir(folder.path()).stdout(Stdio::piped()).stderr(errors);
    let mut child = child.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = ServerProcess { child, address: line.trim().rsplit(' ').next().unwrap().to_owned() };
    let lines = ask(&server.address);
    drop(server);
    Said { lines, errors: fs::read_to_string(path).unwrap() }
}

fn ask_over_tcp(address: &str, protocol: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address.trim_start_matches("tcp:")).unwrap();
    let calls = calls_by(protocol);
    let text: String = calls.iter().map(|call| format!("{call}\n")).collect();
    std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
    let (mut lines, mut replies) = (String::new(), 0);
    let mut reader = BufReader::new(stream);
    while replies < calls.len() {
        let start = lines.len();
        assert!(reader.read_line(&mut lines).unwrap() > 0, "{lines}");
        replies += usize::from(!lines[start..].contains("\"method\""));
    }
    lines
}

/// Calls by the page's interface for programs.
fn ask_the_page(address: &str) -> String {
    let (url, token) = address.split_once("/#token=").unwrap();
    let address = url.trim_start_matches("http://");
    let mut answers = String::new();
    for call in calls_by("gevals") {
        let body = call["params"].to_string();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = format!(
            "POST /api/call HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let start = answers.len();
        std::io::Read::read_to_string(&mut stream, &mut answers).unwrap();
        assert!(answers[start..].contains(" 200 "), "{answers}");
    }
    answers
}

/// Each server says once, for each protocol of its clients, what of a call or its result the one side carries and the other does not: on standard
/// error, and by a log where the client's protocol has logs.
#[test]
fn a_server_says_once_what_its_clients_and_its_target_do_not_both_carry() {
    use rigline_host::client::Part;
    use rigline_host::protocols;
    let gevals_log = r#"say('{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"a log"}}')"#;
    let mcp_log =
        r#"say('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"a log"}}')"#;
    let noting = "note(\"call \" + json.dumps(params))";
    let logging = |program: &str, log: &str| program.replace(noting, &format!("{noting}\n        {log}"));
    for (name, program, came) in [
        ("gevals", logging(GEVALS, gevals_log), &[Part::Logs][..]),
        ("mcp", logging(MCP, mcp_log), &[Part::Types, Part::Blocks, Part::Logs]),
        ("amplifier", AMPLIFIER.to_owned(), &[Part::Types]),
    ] {
        let asked_by = protocols::named(name).unwrap();
        let peer = Peer::new(&program);
        let target = &peer.target();
        let mut ways = vec![
            ("mcp", "mcp", said_on_stdio(&["mcp", target], "mcp")),
            ("gevals", "web", said_by_server(&["web", target], ask_the_page)),
        ];
        for client in ["gevals", "amplifier", "mcp"] {
            ways.push((client, "bridge", said_on_stdio(&["bridge", target, "--protocol", client], client)));
            let ask = |address: &str| ask_over_tcp(address, client);
            ways.push((client, "serve", said_by_server(&["serve", target, "--tcp", "0"], ask)));
        }
        for (client, command, Said { lines, errors }) in ways {
            let of_client = protocols::named(client).unwrap();
            for part in Part::ALL {
                let sends = match part {
                    Part::Context | Part::Env => client == "gevals",
                    Part::Session => client == "amplifier",
                    // A server keeps time limits itself, and has a place for kinds and codes in every protocol.
                    _ => false,
                };
                let is_lost = sends && !asked_by.carries(part) || came.contains(&part) && !of_client.carries(part);
                let sentence = format!("does not carry {}: ", part.name());
                let what = format!("{command} of a target by {name}, a client by {client}: {}", part.name());
                let count = errors.lines().filter(|line| line.contains(&sentence)).count();
                assert_eq!(count, usize::from(is_lost), "{what}: {errors}{lines}");
                // The page's interface for programs returns no logs.
                let has_logs = of_client.carries(Part::Logs) && command != "web";
                assert_eq!(lines.matches(&sentence).count(), usize::from(is_lost && has_logs), "{what}: {lines}");
            }
        }
    }
}

#[test]
fn an_eval_sends_the_token_of_an_http_server() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let token = token.to_str().unwrap();
    #[cfg(unix)]
    fs::set_permissions(token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let peer = Peer::new(MCP);
    let server =
        ServerProcess::start(&["serve", &peer.target(), "--http", "0", "--protocol", "mcp", "--token-file", token]);
    write_eval(folder.path(), "executor: extension");
    let (code, report, errors) = run_eval(folder.path(), &server.address, &[]);
    assert_eq!(code, Some(3), "{report:#}{errors}");
    let (code, report, errors) = run_eval(folder.path(), &server.address, &["--token-file", token]);
    assert_eq!(code, Some(0), "{report:#}{errors}");
    let header = format!("Authorization: Bearer {}", fs::read_to_string(token).unwrap().trim());
    let (code, report, errors) = run_eval(folder.path(), &server.address, &["--header", &header]);
    assert_eq!(code, Some(0), "{report:#}{errors}");
    let eval = folder.path().join("eval.yaml");
    let validate = ["eval", "validate", eval.to_str().unwrap(), "--target", &server.address];
    assert_ne!(rigline(&validate).0, Some(0));
    let (code, text, errors) = rigline(&[&validate[..], &["--token-file", token]].concat());
    assert_eq!(code, Some(0), "{text}{errors}");
    // It is for HTTP.
    let (code, report, errors) =
        run_eval(folder.path(), &peer.target().replace("exec:", "serial:"), &["--token-file", token]);
    assert_eq!(code, Some(2), "{report:#}{errors}");
    assert!(format!("{errors}{report}").contains("--token-file"), "{report:#}{errors}");
}
