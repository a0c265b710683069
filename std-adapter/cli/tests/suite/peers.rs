//! Our hosts of Amplifier modules and namel3ss tools, over what other people's programs do.

use crate::executable;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rigline_host::Options;
use rigline_host::namel3ss::{Host, Project, RunError, ToolCall};
use rigline_host::{
    HttpError,
    amplifier::{self, CallError, Descriptor, EventLog, ModuleLocation},
};
use serde_json::{Value, json};

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

fn script(folder: &Path, name: &str, text: &str) -> String {
    executable::script(folder, name, &format!("#!/bin/sh\n{text}")).display().to_string()
}

/// A server that ends with the test.
struct ServerProcess {
    child: Child,
    url: String,
}

impl ServerProcess {
    fn start(arguments: &[&str]) -> Self {
        let mut child =
            Command::new(RIGLINE).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, url }
    }

    /// Asks it to end, and returns its exit code.
    fn stop(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where events go in a test.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_amplifier_module_on_stdio() {
    let target = format!("exec:{RIGLINE} rig --protocol amplifier").parse().unwrap();
    let mut host = amplifier::Host::new(&target, &Options::default()).unwrap();
    let log = Shared::default();
    host.events = Some(Arc::new(EventLog::new(log.clone())));
    host.session_id = Some("s-1".into());
    host.health().await.unwrap();
    let description = host.describe().await.unwrap();
    assert_eq!(description.name, "rig");
    assert!(description.inputs.contains_key("measure"));
    let result = host.invoke("measure", r#"{"channel": "3V3"}"#).await.unwrap().unwrap();
    assert!(result.contains("\"volts\":"), "{result}");
    let error = host.invoke("measure", r#"{"channel": "x"}"#).await.unwrap().unwrap_err();
    assert_eq!(error.code, "bad_request");
    assert_eq!(host.invoke("describe", "{}").await.unwrap().unwrap_err().code, "unsupported_op");
    assert!(matches!(host.invoke("measure", "[]").await, Err(CallError::Arguments)));
    host.close().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = events.iter().map(|event| (event["event"].as_str(), event["status"].as_str())).collect();
    assert_eq!(
        seen,
        [
            (Some("module:invoke"), Some("ok")),
            (Some("module:invoke"), Some("error")),
            (Some("module:invoke"), Some("error"))
        ]
    );
    assert!(events.iter().all(|event| event["module"] == "rig" && event["session_id"] == "s-1"));
}

#[tokio::test]
async fn amplifier_modules_that_misbehave() {
    let folder = tempfile::tempdir().unwrap();
    let answer = |text: &str| format!("read line; echo 'Loading...'; echo '[1]'; {text}");
    for (text, expected) in [
        (answer(r#"echo '{"ok":true,"result":{"n":9007199254740993}}'"#), r#"Ok(Ok("{\"n\":9007199254740993}"))"#),
        (answer(r#"printf '{"ok":true,"result":null}'"#), r#"Ok(Ok("null"))"#),
        (answer(r#"echo '{"ok":false,"error":{"code":"forbidden","message":"no","details":{"a":1}}}'"#), "forbidden"),
        (answer(r#"echo '{"ok":"yes"}'"#), "expected true or false"),
        // As this protocol has it (zonemaster/zonemaster-backend#431).
        (answer(r#"echo '{"ok":false,"error":"text"}'"#), r#"code: "internal", message: "text", details: None"#),
        (answer(r#"echo '{"ok":false}'"#), "failed without a reason"),
        (answer(r#"echo '{"ok":false,"error":null}'"#), "failed without a reason"),
        (answer(r#"echo '{"ok":false,"error":{"message":"m"}}'"#), r#"code: "internal", message: "m""#),
        (answer(r#"echo '{"ok":false,"error":{"code":5,"message":null,"details":[1]}}'"#), r#"code: "5", message: "{"#),
        (answer("echo 'panic: boom' >&2; exit 3"), "panic: boom"),
        ("exit 0".to_owned(), "Gone"),
        ("exec sleep 60".to_owned(), "Timeout"),
        // A reply over several lines is none, and the error says so (ndjson/ndjson-spec#1, BaseIntelligence/bounty-challenge#4400).
        (answer(r#"printf '{\n "ok": true,\n "result": 1\n}\n'; sleep 60"#), "odd: Some(\"{\")"),
        (answer("head -c 3000000 /dev/zero"), "TooLong"),
    ] {
        let program = script(folder.path(), "module", &text);
        let mut host = amplifier::Host::new(&program.parse().unwrap(), &Options::default()).unwrap();
        (host.timeout, host.grace, host.limit) = (Duration::from_millis(1500), Duration::ZERO, 2 << 20);
        let log = Shared::default();
        host.events = Some(Arc::new(EventLog::new(log.clone())));
        let start = Instant::now();
        let result = format!("{:?}", host.invoke("go", "{}").await);
        assert!(result.contains(expected), "{text}: {result}");
        assert!(start.elapsed() < Duration::from_secs(10), "{text}");
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.contains("policy:decision"), expected == "forbidden", "{log}");
        assert!(log.contains("module:invoke"));
    }
}

/// Other people's HTTP servers.
/// Reports: apoelstra/rust-jsonrpc#52, libbitcoin/libbitcoin-network#860, status-im/nim-json-rpc#36.
#[tokio::test]
async fn http_servers_of_all_kinds() {
    let body = r#"{"ok":true,"result":1}"#;
    let length = body.len();
    let large = format!("{{\"ok\":true,\"result\":\"{}\"}}", "x".repeat(2 << 20));
    for (response, expected) in [
        (
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
                &body[..5],
                length - 5,
                &body[5..]
            ),
            Ok("1"),
        ),
        (format!("HTTP/1.1 200 OK\r\n\r\n{body}"), Ok("1")),
        (format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"), Ok("1")),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: keep-alive\r\n\r\n{body}HANG"), Ok("1")),
        (format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"), Ok("1")),
        (format!("HTTP/1.1 200 OK\r\n\r\n{large}"), Err("limit")),
        ("HTTP/1.1 204 No Content\r\n\r\n".into(), Err("204")),
        (format!("HTTP/1.1 500 Oops\r\nContent-Length: {length}\r\n\r\n{body}"), Err("500")),
        ("HTTP/1.1 307 Away\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n".into(), Err("elsewhere")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{".into(), Err("broke off")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nHANG".into(), Err("no answer within")),
        ("nonsense\r\n\r\n".into(), Err("broke off")),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let text = response.clone();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(text.trim_end_matches("HANG").as_bytes());
            if text.ends_with("HANG") {
                thread::sleep(Duration::from_secs(5));
            }
        });
        let mut host =
            amplifier::Host::at(ModuleLocation::Http { url, credentials: rigline_host::Credentials::default() });
        (host.timeout, host.grace, host.limit) = (Duration::from_millis(1500), Duration::ZERO, 1 << 20);
        let start = Instant::now();
        let result = host.invoke("go", "{}").await;
        assert!(start.elapsed() < Duration::from_secs(4), "{response}");
        match (result, expected) {
            (Ok(result), Ok(text)) => assert_eq!(result.unwrap(), text),
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}: {text}"),
            (result, _) => panic!("{}: {result:?}", &response[..response.len().min(200)]),
        }
    }
    let mut host = amplifier::Host::at(ModuleLocation::Http {
        url: "https://x".into(),
        credentials: rigline_host::Credentials::default(),
    });
    assert!(matches!(host.health().await, Err(CallError::Http(HttpError::Https { .. }))));
}

fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn call(tool: &str) -> ToolCall {
    ToolCall { tool: tool.into(), payload: r#"{"name":"Ada"}"#.into(), ..ToolCall::default() }
}

/// The host's side: what a tool's process may do.
/// Reports: ANative-Lab/EvoAgentX#255, probelabs/probe#568.
#[tokio::test]
async fn local_tools_of_all_kinds() {
    let folder =
        project(&[("tools.yaml", "tools:\n  t:\n    kind: python\n    entry: a:b\n    timeout_seconds: 1.5\n")]);
    for (text, expected) in [
        (r#"cat > got; echo '{"ok":true,"result":{"a":1}}'"#, r#"{"a":1}"#),
        (r#"echo '{"ok":false,"error":{"type":"ValueError","message":"x"}}'; exit 1"#, "ValueError: x"),
        ("echo oops >&2; exit 1", "crashed"),
        ("exit 0", "no response"),
        (r#"printf '\357\273\277{"ok":true,"result":1.10}\r\n'"#, "1.10"),
        (r#"echo debug; echo '{"ok":true}'"#, "has printed \\\"debug\\\""),
        ("sleep 60 & sleep 60", "did not end within 1.5s"),
        (r#"(sleep 60 &) ; echo '{"ok":true,"result":7}'"#, "7"),
        ("kill -9 $$", "crashed"),
    ] {
        let mut host = Host::new(Project::load(folder.path(), &[]).unwrap());
        host.python = Some(script(folder.path(), "python", text).into());
        let start = Instant::now();
        let (result, trace) = host.call(&call("t")).await;
        let result = match result {
            Ok(result) => result.result.unwrap_or_else(|error| error.to_string()),
            Err(error) => format!("{:?}", error.to_string()),
        };
        assert!(result.contains(expected), "{text}: {result}");
        assert!(start.elapsed() < Duration::from_secs(5), "{text}");
        assert_eq!(trace.timeout_ms, 1500);
        let line: Value = serde_json::from_str(&trace.to_line()).unwrap();
        assert_eq!(line["type"], "tool_call");
    }
    let got: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("got")).unwrap()).unwrap();
    assert_eq!(
        (&got["protocol_version"], &got["tool"], &got["payload"]),
        (&json!(1), &json!("t"), &json!({"name": "Ada"}))
    );
    let host = Host::new(Project::load(folder.path(), &[]).unwrap());
    assert!(matches!(host.call(&call("T")).await.0, Err(RunError::UnknownTool { suggestion: Some(_), .. })));
}

const PACK: &str = r#"id: "acme.rig"
name: "Rig tools"
version: "1.0"
description: "d"
author: "a"
license: "MIT"
tools:
  - "measure"
runners:
  default: "local"
entrypoints:
  "measure":
    kind: "python"
    entry: "tools.rig:run"
"#;

/// The file that `n3 packs verify` of 0.1.0a15 writes for it.
const VERIFICATION: &str = r#"{"pack_id":"acme.rig","version":"1.0","digest":"sha256:c376a9d0c44691454266b5cec96da8a66570bc64bfe19fcfeb31250c5eb2d2d9","verified":true,"key_id":"k","verified_at":"never"}"#;

/// A pack's code runs only if the pack is verified, as it is now, and enabled.
#[tokio::test]
async fn a_pack_that_is_not_verified_and_enabled_is_refused() {
    let enabled = "[tool_packs]\nenabled_packs = [\"acme.rig\"]\n";
    let changed = PACK.replace("tools.rig:run", "tools.evil:run");
    let pack = ".namel3ss/packs/acme.rig/pack.yaml";
    let proof = ".namel3ss/packs/acme.rig/verification.json";
    let disabled = "[tool_packs]\nenabled_packs = [\"acme.rig\"]\ndisabled_packs = [\"acme.rig\"]\n";
    let unverified = VERIFICATION.replace("true", "false");
    let other_version = VERIFICATION.replace("1.0", "1.1");
    let crlf = PACK.replace('\n', "\r\n") + "\r\nsigner_id: k\r\n\r\n";
    let other_line = PACK.to_owned() + "# more\n";
    for (what, settings, text, proof_text, runs) in [
        ("verified and enabled", enabled, PACK, VERIFICATION, true),
        ("other line ends, signed", enabled, &crlf, VERIFICATION, true),
        ("empty enabled_packs", "[tool_packs]\nenabled_packs = []\n", PACK, VERIFICATION, false),
        ("no settings", "", PACK, VERIFICATION, false),
        ("disabled", disabled, PACK, VERIFICATION, false),
        ("changed since", enabled, &changed, VERIFICATION, false),
        ("a line more", enabled, &other_line, VERIFICATION, false),
        ("not verified", enabled, PACK, &unverified, false),
        ("verified for another version", enabled, PACK, &other_version, false),
        ("no JSON", enabled, PACK, "verified", false),
        ("no proof", enabled, PACK, "", false),
    ] {
        let folder = project(&[("namel3ss.toml", settings), (pack, text)]);
        if !proof_text.is_empty() {
            fs::write(folder.path().join(proof), proof_text).unwrap();
        }
        let mut host = Host::new(Project::load(folder.path(), &[]).unwrap());
        let python = script(folder.path(), "python", r#"touch ran; cat > got; echo '{"ok":true,"result":1}'"#);
        host.python = Some(python.into());
        let (result, _) = host.call(&call("measure")).await;
        assert_eq!((result.is_ok(), folder.path().join("ran").exists()), (runs, runs), "{what}: {result:?}");
        if let Err(error) = result {
            assert!(matches!(error, RunError::UnavailablePack { .. }), "{what}: {error}");
            let root = folder.path().display().to_string();
            let (code, _, errors) = rigline(&["call", &root, "measure", "--protocol", "namel3ss"], "");
            assert!(code == 2 && errors.contains("n3 packs verify acme.rig"), "{what}: {errors}");
        }
    }
}

/// Bindings of all kinds: what is not supported is said of the tool that is called, and the other tools of the project work.
#[test]
fn bindings_that_are_not_ours() {
    let tools = "tools:\n  good:\n    kind: python\n    entry: a:b\n  js:\n    kind: node\n    entry: a:b\n  run_js:\n    kind: python\n    entry: a:b\n    runner: node\n  bogus:\n    kind: python\n    entry: a:b\n    runner: warp\n";
    let folder = project(&[(".namel3ss/tools.yaml", tools), (".venv/bin/placeholder", "")]);
    script(&folder.path().join(".venv/bin"), "python", r#"cat > /dev/null; echo '{"ok":true,"result":1}'"#);
    let root = folder.path().display().to_string();
    for (tool, code, text) in [
        ("good", 0, ""),
        ("js", 2, "kind node, which is not supported"),
        ("run_js", 2, "not supported"),
        ("bogus", 2, "unknown runner; expected local, service or container"),
        ("slugify text", 2, "is a built-in tool of namel3ss"),
        ("no such", 2, "no tool is called"),
    ] {
        let (found, out, errors) = rigline(&["call", &root, tool, "--protocol", "namel3ss"], "");
        assert!(found == code && errors.contains(text), "{tool}: {found} {out}{errors}");
    }
    // As the real program leaves it.
    for empty in ["tools:\n", "tools: null\n", "tools: {}\n"] {
        fs::write(folder.path().join(".namel3ss/tools.yaml"), empty).unwrap();
        assert!(Project::load(folder.path(), &[]).unwrap().bindings.tools.is_empty(), "{empty:?}");
    }
}

/// A tool's own ValueError has run: exit code 1. A call of ours that is wrong is 2.
#[test]
fn exit_codes_of_tools() {
    let folder = tempfile::tempdir().unwrap();
    let tool = |name: &str, kind: &str| {
        let reply = format!(r#"cat > /dev/null; echo '{{"ok":false,"error":{{"type":"{kind}","message":"m"}}}}'"#);
        script(folder.path(), name, &reply)
    };
    let trace = folder.path().join("trace.jsonl").display().to_string();
    for (kind, wanted) in [
        ("ValueError", 1),
        ("TypeError", 1),
        ("KeyError", 1),
        ("UnknownTool", 2),
        ("ProtocolError", 2),
        ("TimeoutError", 124),
    ] {
        let program = tool(kind, kind);
        let (code, _, errors) = rigline(
            &["call", &program, "go", "n=1", "--protocol", "namel3ss", "--trace", &trace, "--trace-format", "namel3ss"],
            "",
        );
        assert_eq!(code, wanted, "{kind}: {errors}");
    }
    let records = fs::read_to_string(&trace).unwrap();
    let record: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!(record["input_summary"], json!({ "type": "object", "keys": ["n"], "count": 1 }));
    assert_eq!(
        (&record["result"], &record["decision"], &record["title"]),
        (&json!("error"), &json!("allowed"), &json!("Tool call: go"))
    );
    assert!(record.get("trace_id").is_none(), "{record}");
    let (code, _, errors) =
        rigline(&["call", "sim", "identify", "--protocol", "namel3ss", "--trace-format", "text"], "");
    assert!(code == 2 && errors.contains("--trace"), "{errors}");
}

/// The environment goes before the settings; the package root of the Python in PATH is on a .venv's path; redirects are followed; a
/// handshake that is not an object is exit code 3.
#[test]
fn environment_redirects_and_handshakes() {
    let folder = project(&[
        ("namel3ss.toml", "[python_tools]\ntimeout_seconds = 60\nservice_url = \"http://127.0.0.1:9/tools\"\n"),
        (
            ".namel3ss/tools.yaml",
            "tools:\n  far:\n    kind: python\n    entry: a:b\n    runner: service\n  near:\n    kind: python\n    entry: a:b\n  slow:\n    kind: python\n    entry: a:b\n",
        ),
        (".venv/bin/placeholder", ""),
        ("bin/placeholder", ""),
        ("root/namel3ss/__init__.py", ""),
    ]);
    let root = folder.path().display().to_string();
    let venv = folder.path().join(".venv/bin");
    script(
        &venv,
        "python",
        r#"case "$(cat)" in *'"slow"'*) sleep 60 ;; esac; printf '{"ok":true,"result":"%s"}' "$PYTHONPATH""#,
    );
    // The Python in PATH, which knows where its namel3ss is.
    script(&folder.path().join("bin"), "python3", &format!("echo '{root}/root'"));
    let path = format!("{root}/bin:{}", std::env::var("PATH").unwrap());
    let (url, seen) = service(|path| match path {
        "/moved" => {
            "HTTP/1.1 302 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
        }
        _ => ok(r#"{"ok":true,"result":{"n":1}}"#),
    });
    let moved = url.replace("/any/path", "/moved");
    let run = |tool: &str, variables: &[(&str, &str)], more: &[&str]| {
        let output = Command::new(RIGLINE)
            .args(["call", &root, tool, "--protocol", "namel3ss"])
            .args(more)
            .env("PATH", &path)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, errors) = run("far", &[], &[]);
    assert!(code == Some(3) && errors.contains("127.0.0.1:9"), "{errors}");
    let (code, out, errors) = run("far", &[("N3_TOOL_SERVICE_URL", &url)], &[]);
    assert!(code == Some(0) && out.contains('n'), "{errors}");
    let (code, out, errors) = run("far", &[("N3_TOOL_SERVICE_URL", &moved)], &[]);
    assert!(code == Some(0) && out.contains('n'), "{errors}");
    assert!(!seen.lock().unwrap().is_empty());
    let (code, out, errors) = run("near", &[], &[]);
    assert!(code == Some(0) && out.contains(&format!("{root}:{root}/root")), "{out}{errors}");
    let start = Instant::now();
    let (code, _, errors) = run("slow", &[("N3_PYTHON_TOOL_TIMEOUT_SECONDS", "0.5")], &[]);
    assert!(code == Some(124) && start.elapsed() < Duration::from_secs(30), "{errors}");
    let (code, _, errors) = run("near", &[("N3_PYTHON_TOOL_TIMEOUT_SECONDS", "soon")], &[]);
    assert!(code == Some(2) && errors.contains("N3_PYTHON_TOOL_TIMEOUT_SECONDS"), "{errors}");
    for answer in ["[]", "7", "\"ok\"", "null", "nonsense", ""] {
        let (url, _) = service(move |_| ok(answer));
        let (code, _, errors) = run("far", &[("N3_TOOL_SERVICE_URL", &url)], &["--handshake"]);
        assert!(code == Some(3) && errors.contains("handshake"), "{answer}: {code:?} {errors}");
    }
}

/// An extension that checks nothing, as the Go kit's: what breaks its schema is refused before it is sent, by all that pass calls on;
/// and a decimal of a flow, which namel3ss writes as a string, reaches it as a number.
#[test]
fn a_relay_goes_by_the_schema_of_the_other_end() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let schema = r#"{"type":"object","properties":{"max":{"type":"number"},"name":{"type":"string"},"list":{"type":"array","items":{"type":"integer"}}},"required":["max"]}"#;
    let text = GEVALS_ONLY
        .replace(
            "while read -r line; do",
            &format!("while read -r line; do printf '%s\\n' \"$line\" >> '{}'", seen.display()),
        )
        .replace(r#""look":{"params":{}}"#, &format!(r#""look":{{"params":{schema}}}"#));
    let kit = script(folder.path(), "kit", &text);
    let request =
        |args: &str| format!(r#"{{"protocol_version": 1, "tool": "look", "entry": "a:b", "payload": {args}}}"#);
    let sent = || {
        let text = fs::read_to_string(&seen).unwrap_or_default();
        let _ = fs::remove_file(&seen);
        text.lines().filter(|line| line.contains("\"execute\"")).map(str::to_owned).collect::<Vec<_>>()
    };
    let bridge = |protocol: &str, input: &str| rigline(&["bridge", &kit, "--protocol", protocol], input).1;
    let server = ServerProcess::start(&["serve", &kit, "--http", "127.0.0.1:0", "--protocol", "namel3ss"]);
    let tcp = ServerProcess::start(&["serve", &kit, "--tcp", "127.0.0.1:0"]);
    let post = |args: &str| rigline(&["call", &server.url, "look", "--args", args, "--protocol", "namel3ss"], "");
    // O 5: digits are kept, and what is to be a text stays one.
    let flow = r#"{"max": "3.4650", "name": "1.5", "list": ["1", 2]}"#;
    let wanted = r#"{"max":3.4650,"name":"1.5","list":[1,2]}"#;
    sent();
    let out = bridge("namel3ss", &request(flow));
    assert!(out.contains("\"ok\":true"), "{out}");
    assert!(sent()[0].contains(wanted), "bridge");
    assert_eq!(post(flow).0, 0);
    assert!(sent()[0].contains(wanted), "serve");
    // O 3.
    // At once: each bridge waits some seconds for whether this program knows Amplifier's protocol.
    let refused = |args: &str| {
        let out = bridge("namel3ss", &request(args));
        assert!(out.contains("\"type\":\"ValueError\"") && out.contains("look: "), "{args}: {out}");
        let out = bridge("amplifier", &format!("{{\"op\":\"look\",\"args\":{args}}}\n"));
        assert!(out.contains("\"code\":\"bad_request\"") && out.contains("look: "), "{args}: {out}");
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"look","args":{args},"context":{{}}}}}}"#
        );
        let out = bridge("gevals", &line);
        assert!(out.contains("\"code\":-32602") && out.contains("look: "), "{args}: {out}");
        assert_eq!(post(args).0, 1, "{args}");
        let mut stream = std::net::TcpStream::connect(tcp.url.trim_start_matches("tcp:")).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut reply = String::new();
        BufReader::new(&stream).read_line(&mut reply).unwrap();
        assert!(reply.contains("\"code\":-32602") && reply.contains("look: "), "{args}: {reply}");
    };
    std::thread::scope(|scope| {
        for args in [r#"{"name":"x"}"#, r#"{"max":"high"}"#, r#"{"max":1,"name":7}"#, r#"{"max":1,"list":["a"]}"#] {
            let refused = &refused;
            scope.spawn(move || refused(args));
        }
    });
    assert_eq!(sent(), Vec::<String>::new());
    // A number as a string is for namel3ss alone.
    let out = bridge("amplifier", "{\"op\":\"look\",\"args\":{\"max\":\"3.5\"}}\n");
    assert!(out.contains("bad_request") && sent().is_empty(), "{out}");
    // What has an odd level, and what gives null.
    let odd = script(folder.path(), "odd", &GEVALS_ONLY.replace(r#"*'"fail"'*) result='{"success":false,"error":"no power"}' ;;"#, r#"*'"fail"'*) result=null; for level in fatal '' notice; do echo '{"jsonrpc":"2.0","method":"log","params":{"level":"'$level'","message":"odd"}}'; done ;;"#));
    let (code, _, errors) = rigline(&["call", &odd, "fail"], "");
    assert!(code == 1 && errors.matches("odd").count() == 3 && errors.contains("fatal: odd"), "{code} {errors}");
    assert!(errors.contains("failed without a reason"), "{errors}");
}

#[tokio::test]
async fn packs_settings_and_traces() {
    let settings = "[python_tools]\ntimeout_seconds = 20\n\n[tool_packs]\nenabled_packs = [\"acme.rig\"]\n\n[capability_overrides.measure]\nno_network = true\n\n[capability_overrides.own]\nno_network = true\n\n[capability_overrides.risky]\nno_network = true\nallow_unsafe_execution = true\n";
    let tools = "tools:\n  own:\n    kind: python\n    entry: a:b\n  risky:\n    kind: python\n    entry: a:b\n";
    let folder = project(&[
        ("namel3ss.toml", settings),
        (".namel3ss/tools.yaml", tools),
        (".namel3ss/packs/acme.rig/pack.yaml", PACK),
        (".namel3ss/packs/acme.rig/verification.json", VERIFICATION),
        ("requirements.txt", ""),
    ]);
    let mut host = Host::new(Project::load(folder.path(), &[]).unwrap());
    host.python = Some(script(folder.path(), "python", r#"cat > got; echo '{"ok":true,"result":1}'"#).into());
    let (result, trace) = host.call(&call("measure")).await;
    assert!(result.unwrap().result.is_ok());
    let trace = serde_json::to_value(&trace).unwrap();
    for (member, value) in [
        ("runner", json!("local")),
        ("resolved_source", json!("installed_pack")),
        ("timeout_ms", json!(20_000)),
        ("protocol_version", json!(1)),
        ("python_env", json!("system")),
        ("deps_source", json!("requirements")),
        ("pack_id", json!("acme.rig")),
        ("pack_name", json!("Rig tools")),
        ("pack_version", json!("1.0")),
        ("sandbox", json!(true)),
        ("status", json!("ok")),
    ] {
        assert_eq!(trace[member], value, "{member}: {trace}");
    }
    let got: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("got")).unwrap()).unwrap();
    assert_eq!((&got["sandbox"], &got["capability_context"]["guarantees"]["no_network"]), (&json!(true), &json!(true)));
    assert_eq!(got["trace_id"], trace["trace_id"]);
    // Without a sandbox nothing keeps the guarantee.
    let (result, trace) = host.call(&call("own")).await;
    assert_eq!(result.unwrap().result.unwrap_err().error_type, "CapabilityViolation");
    assert_eq!(trace.capability_checks[0].reason, "coverage_missing");
    let (result, trace) = host.call(&call("risky")).await;
    assert!(result.unwrap().result.is_ok() && trace.unsafe_override);
    // A time limit is more than none, and has an end.
    for (seconds, is_right) in
        [("0", false), ("-1", false), ("nan", false), ("0.5", true), ("inf", true), ("9223372036854775807", true)]
    {
        let settings =
            format!("[python_tools]\ntimeout_seconds = {seconds}\n[tool_packs]\nenabled_packs = [\"acme.rig\"]\n");
        fs::write(folder.path().join("namel3ss.toml"), settings).unwrap();
        let project = Project::load(folder.path(), &[]);
        assert_eq!(project.is_ok(), is_right, "{seconds}");
        if let Ok(project) = project {
            let python = std::mem::take(&mut host.python);
            host = Host::new(project);
            host.python = python;
            assert!(host.call(&call("measure")).await.0.unwrap().result.is_ok(), "{seconds}");
        }
    }
    // One name, one meaning: at load, not at the call.
    fs::write(folder.path().join(".namel3ss/tools.yaml"), tools.replace("own", "measure")).unwrap();
    assert!(Project::load(folder.path(), &[]).unwrap_err().to_string().contains("is the project's too"));
    for broken in [
        "tools:\n  t:\n    kind: perl\n    entry: a:b\n",
        "tools:\n  t:\n    entry: a:b\n",
        "tools: [",
        "tools:\n  t:\n    kind: python\n    entry: a:b\n    entry: c:d\n",
    ] {
        fs::write(folder.path().join(".namel3ss/tools.yaml"), broken).unwrap();
        assert!(Project::load(folder.path(), &[]).is_err(), "{broken}");
    }
}

/// The commands, as a shell uses them; the tool's side: one text on any number of lines.
/// Reports: ANative-Lab/EvoAgentX#255, probelabs/probe#568.
#[test]
fn commands() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str], input: &str| {
        let mut child = Command::new(RIGLINE)
            .args(args)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text, _) = run(&["descriptor", &format!("exec:{RIGLINE} rig")], "");
    let descriptor = Descriptor::parse(&text).unwrap();
    assert!(code == 0 && descriptor.name == "rig" && descriptor.capabilities.contains(&"measure".to_owned()));
    fs::write(folder.path().join("module.json"), &text).unwrap();
    assert_eq!(run(&["descriptor", "--check", "module.json"], "").0, 0);
    fs::write(folder.path().join("module.json"), text.replace("\"tool\"", "\"robot\"")).unwrap();
    assert_eq!(run(&["descriptor", "--check", "module.json"], "").0, 1);

    let log = "{\"id\":\"1\",\"ts\":1,\"event\":\"session:start\",\"component\":\"k\",\"session_id\":\"s\",\"data\":{\"plan\":{}}}\n{\"id\":\"2\",\"ts\":2,\"event\":\"module:invoke\",\"component\":\"k\",\"module\":\"rig\"}\n";
    let (code, text, _) = run(&["events", "-"], log);
    assert!(code == 0 && text.lines().count() == 2 && text.starts_with("1 session:start k session_id=s"), "{text}");
    let (code, text, _) = run(&["events", "-", "--event", "module:*", "--json-lines"], log);
    assert!(code == 0 && log.ends_with(&text), "{text}");
    let (code, _, faults) = run(&["events", "-", "--taxonomy", "--check"], log);
    assert!(code == 1 && faults.contains("line 2: data.op: required in module:invoke, but missing"), "{faults}");
    assert_eq!(run(&["events", "-", "--check"], "nope\n").0, 1);

    let (code, text, _) = run(
        &["rig", "--protocol", "namel3ss", "-c", "import sys"],
        "{\n \"protocol_version\": 1,\n \"tool\": \"measure\", \"entry\": \"a:b\",\n \"payload\": {\"channel\": \"3V3\"}}",
    );
    assert!(code == 0 && text.starts_with(r#"{"ok":true,"protocol_version":1,"result":{"volts":"#), "{text}");
    for input in ["", "   \n", "{", "[]", "{\"protocol_version\": 1,\n \"tool\": \"mea\nsure\"}", "{} {}"] {
        let (code, text, _) = run(&["rig", "--protocol", "namel3ss"], input);
        assert!(code == 0 && text.contains("ProtocolError") && text.lines().count() == 1, "{input:?}: {text}");
    }
}

/// A gevals extension that knows no other protocol, and has an operation `look`.
const GEVALS_ONLY: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case "$line" in
    *'"initialize"'*) result='{"name":"old","version":"1.0","protocolVersion":"0.0.1","operations":{"look":{"params":{}},"fail":{"params":true}}}' ;;
    *'"fail"'*) result='{"success":false,"error":"no power"}' ;;
    *'"execute"'*) result='{"success":true,"message":"seen","outputs":{"volts":"3.30"}}' ;;
    *'"shutdown"'*) result='{}' ;;
    *) echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no request"}}'; continue ;;
    esac
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}"
    case "$line" in *shutdown*) exit 0 ;; esac
done
"#;

/// The result of a command: its exit code, standard output and standard error.
fn rigline(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = Command::new(RIGLINE)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Any target behind HTTP and on standard input and output, as a module and as a tool: what speaks Amplifier's protocol itself
/// keeps its types, what speaks gevals alone gives strings.
#[test]
fn any_target_behind_both_protocols() {
    let folder = tempfile::tempdir().unwrap();
    let old = script(folder.path(), "old", GEVALS_ONLY);
    let tcp = ServerProcess::start(&["serve", "sim", "--tcp", "127.0.0.1:0"]);
    let board = format!("exec:{RIGLINE} rig");
    for (target, operation, is_typed) in
        [("sim", "measure", true), (&board, "measure", true), (&tcp.url, "measure", true), (&old, "look", false)]
    {
        let argument = if operation == "measure" { "channel=3V3" } else { "x=1" };
        for protocol in ["amplifier", "namel3ss"] {
            let server = ServerProcess::start(&["serve", target, "--http", "127.0.0.1:0", "--protocol", protocol]);
            let (code, text, errors) =
                rigline(&["call", &server.url, operation, argument, "--protocol", protocol, "--json"], "");
            let result: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{target}: {errors}"));
            assert_eq!((code, result["outputs"]["volts"].is_number()), (0, is_typed), "{target} {protocol}: {text}");
            let (code, ..) = rigline(&["call", &server.url, "no-such", "--protocol", protocol], "");
            assert_eq!(code, 2, "{target} {protocol}");
            assert_eq!(server.stop(), Some(0), "{target} {protocol}");
        }
        let arguments = if operation == "measure" { r#"{"channel":"3V3"}"# } else { "{}" };
        let lines = format!(
            "{{\"op\":\"health\"}}\n{{\"op\":\"{operation}\",\"args\":{arguments},\"id\":7}}\n{{\"op\":\"no-such\"}}\n"
        );
        let (code, text, errors) = rigline(&["bridge", target, "--protocol", "amplifier"], &lines);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((code, lines.len(), lines[0]), (0, 3, r#"{"status":"ok"}"#), "{target}: {text}{errors}");
        assert!(lines[1].starts_with(r#"{"id":7,"ok":true,"result":{"volts":"#), "{target}: {text}");
        assert!(lines[2].contains(r#""code":"unsupported_op""#), "{target}: {text}");
        // As namel3ss's own runner starts it.
        let shim = folder.path().join("python").display().to_string();
        let more = if target == old { &["--bridge"][..] } else { &[] };
        assert_eq!(rigline(&[&["namel3ss-shim", target, "-o", &shim], more].concat(), "").0, 0);
        let mut child = Command::new(&shim)
            .args(["-c", "import sys"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let request =
            format!(r#"{{"protocol_version": 1, "tool": "{operation}", "entry": "a:b", "payload": {arguments}}}"#);
        child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.starts_with(r#"{"ok":true,"protocol_version":1,"result":{"volts":"#),
            "{text}"
        );
    }
    let server = ServerProcess::start(&["serve", &old, "--http", "127.0.0.1:0", "--protocol", "amplifier"]);
    let (code, _, errors) = rigline(&["call", &server.url, "fail", "--protocol", "amplifier"], "");
    assert_eq!((code, errors.trim()), (1, "rigline: fail failed: internal: no power"));
}

/// Numbers are not read on their way, they keep their digits.
/// Reports: erpc/erpc#869, erpc/erpc#851, rsksmart/rskj#169.
#[test]
fn a_relay_keeps_digits() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen").display().to_string();
    let keeping = format!("while read -r line; do printf '%s\\n' \"$line\" >> '{seen}'");
    let old = script(folder.path(), "old", &GEVALS_ONLY.replace("while read -r line; do", &keeping));
    let args = r#"{"n":12345678901234567890123,"f":1.10,"m":-0,"e":1e400}"#;
    let line = format!("{{\"op\":\"look\",\"args\":{args}}}\n");
    let (code, text, errors) = rigline(&["bridge", &old, "--protocol", "amplifier"], &line);
    assert!(code == 0 && text.starts_with(r#"{"ok":true"#), "{text}{errors}");
    let seen = fs::read_to_string(&seen).unwrap();
    assert!(seen.contains(&format!("\"args\":{args}")), "{seen}");
}

/// The guide's example and curl commands have the address with the path of a call; the host uses the same server.
#[test]
fn addresses_with_the_path_of_a_call_and_servers_of_another_protocol() {
    let server = ServerProcess::start(&["serve", "sim", "--http", "127.0.0.1:0", "--protocol", "amplifier"]);
    for path in ["", "/", "/invoke", "/invoke/"] {
        let url = format!("{}{path}", server.url);
        let (code, out, errors) = rigline(&["call", &url, "identify", "--protocol", "amplifier"], "");
        assert!(code == 0 && out.contains("board"), "{path}: {out}{errors}");
    }
    let (code, _, errors) =
        rigline(&["call", &format!("{}/nowhere", server.url), "identify", "--protocol", "amplifier"], "");
    let text = "there is nothing at /nowhere/describe; expected one of: /health, /describe, /invoke";
    assert!(code == 3 && errors.contains(text), "{errors}");
    // A program that answers in JSON-RPC only.
    let gevals = "exec:sh -c 'while read -r line; do echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":null,\\\"error\\\":{}}\"; done'";
    for gevals in [gevals.to_owned(), gevals.replace("null", "1")] {
        let (code, _, errors) =
            rigline(&["call", &gevals, "identify", "--protocol", "amplifier", "--start-timeout", "1s"], "");
        assert!(code != 0 && errors.contains("select another protocol with --protocol"), "{errors}");
    }
}

/// Parts of a call that pass a relay: codes and details, time limits and what comes after them, an end and a new start, events.
#[test]
fn what_a_relay_passes_on() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen").display().to_string();
    let module = format!(
        r#"while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    printf '%s\n' "$line" >> "{seen}"
    case "$line" in
    *'"describe"'*) echo "{{\"id\":$id,\"name\":\"m\",\"version\":\"x.1\",\"kind\":\"hook\",\"capabilities\":[\"go\",\"list\",\"hang\",\"end\"],\"inputs\":{{}},\"outputs\":{{}}}}" ;;
    *'"op":"go"'*) echo "{{\"id\":$id,\"ok\":false,\"error\":{{\"code\":\"E_POWER\",\"message\":\"no power\",\"details\":{{\"rail\":\"3V3\"}}}}}}" ;;
    *'"op":"hang"'*) sleep 60 ;;
    *'"op":"end"'*) echo "{{\"id\":$id,\"ok\":true,\"result\":null}}"; exit 0 ;;
    *) echo "{{\"id\":$id,\"ok\":true,\"result\":[9007199254740993]}}" ;;
    esac
done
"#
    );
    let module = script(folder.path(), "module", &module);
    let server = ServerProcess::start(&["serve", &module, "--http", "0", "--protocol", "amplifier"]);
    let call = |operation: &str, more: &[&str]| {
        rigline(&[&["call", &server.url, operation, "--protocol", "amplifier", "--json"], more].concat(), "")
    };
    let described = rigline(&["describe", &server.url, "--protocol", "amplifier", "--json"], "").1;
    let described: Value = serde_json::from_str(&described).unwrap();
    assert_eq!((&described["version"], &described["kind"]), (&json!("x.1"), &json!("hook")));
    let (code, text, _) = call("go", &["--session", "s-9"]);
    let failed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &failed["code"], &failed["outputs"]), (1, &json!("E_POWER"), &json!({"rail": "3V3"})));
    let (code, text, _) = call("list", &[]);
    assert!(code == 0 && text.contains("9007199254740993\n"), "{text}");
    for _ in 0..2 {
        assert_eq!(call("end", &[]).0, 0, "a program that has ended is started anew");
    }
    let event = json!({"op": "on_event", "args": {"id": "e", "ts": 1, "event": "session:end", "component": "k"}});
    let address = server.url.trim_start_matches("http://").to_owned();
    let post = |body: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST /invoke HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.rsplit("\r\n").next().unwrap().trim_end().to_owned()
    };
    assert_eq!(post(&event.to_string()), r#"{"ok":true,"result":{}}"#);
    assert_eq!(call("list", &[]).0, 0);
    let seen = fs::read_to_string(&seen).unwrap();
    assert!(seen.contains(r#""session_id":"s-9""#) && seen.contains(r#""op":"on_event""#), "{seen}");
    drop(server);
    // A tool whose time is up is ended, and there again for the next call.
    let server = ServerProcess::start(&["serve", &module, "--http", "0", "--protocol", "namel3ss"]);
    let start = Instant::now();
    let address = server.url.trim_start_matches("http://").trim_end_matches("/tools").to_owned();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    let body = r#"{"protocol_version":1,"tool_name":"hang","payload":{},"timeout_ms":400}"#;
    let length = body.len();
    write!(stream, "POST /tools HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("TimeoutError") && start.elapsed() < Duration::from_secs(5), "{text}");
    assert_eq!(rigline(&["call", &server.url, "list", "--protocol", "namel3ss"], "").0, 0);
}

/// A descriptor's command is one that a host can start, for what is not a program too.
#[test]
fn descriptors_of_devices() {
    let tcp = ServerProcess::start(&["serve", "sim", "--tcp", "127.0.0.1:0"]);
    let (code, text, errors) = rigline(&["descriptor", &tcp.url], "");
    assert_eq!(code, 0, "{errors}");
    let descriptor = Descriptor::parse(&text).unwrap();
    let amplifier::Transport::Stdio { command: Some(command) } = &descriptor.transport else { panic!("{text}") };
    assert_eq!(command[..2], ["rigline", "bridge"]);
    let arguments: Vec<&str> = command[1..].iter().map(String::as_str).collect();
    let (_, text, _) = rigline(&arguments, "{\"op\":\"describe\"}\n");
    let described: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(described["capabilities"], json!(descriptor.capabilities));
    let (_, text, _) = rigline(&["descriptor", "sim", "--protocol", "amplifier"], "");
    assert_eq!(Descriptor::parse(&text).unwrap().name, "rig");
    assert_ne!(rigline(&["descriptor", "sim", "--protocol", "namel3ss"], "").0, 0);
}

/// The exit codes of `call` and `describe`, by protocol.
#[test]
fn calls_and_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name).display().to_string();
    let module = |name: &str, answer: &str| {
        let text = format!(
            "read -r line; echo '{{\"name\":\"m\",\"version\":\"1.2.0\",\"kind\":\"tool\",\"capabilities\":[\"go\"],\"inputs\":{{}},\"outputs\":{{}}}}'\nread -r line; {answer}\n"
        );
        script(folder.path(), name, &text)
    };
    let forbidden = module("forbidden", r#"echo '{"ok":false,"error":{"code":"forbidden","message":"not you"}}'"#);
    let hangs = module("hangs", "sleep 60");
    let dies = module("dies", "echo gone >&2; exit 3");
    let list = module("list", r#"echo '{"ok":true,"result":[1,2]}'"#);
    let tool = script(
        folder.path(),
        "tool",
        r#"cat >/dev/null; echo '{"ok":0,"error":{"type":"KeyError","message":"x"}}'; exit 1"#,
    );
    let crash = script(folder.path(), "crash", "cat >/dev/null; echo boom >&2; exit 1");
    let sleeps = script(folder.path(), "sleeps", "exec sleep 60");
    let events = in_folder("events.jsonl");
    let project = folder.path().display().to_string();
    fs::write(folder.path().join("tools.yaml"), "tools:\n  t:\n    kind: python\n    entry: a:b\n").unwrap();
    for (arguments, code, said) in [
        (&["call", "sim", "identify", "--protocol", "amplifier"][..], 0, ""),
        (&["call", "sim", "measure", "samples=x", "--protocol", "amplifier"], 2, "samples"),
        (&["call", "sim", "mesure", "--protocol", "amplifier"], 2, "did you mean `measure`?"),
        (
            &["call", &forbidden, "go", "--protocol", "amplifier", "--events", &events, "--session", "s"],
            1,
            "forbidden: not you",
        ),
        (&["call", &hangs, "go", "--protocol", "amplifier", "--timeout", "300ms"], 124, "no answer within"),
        (&["call", &dies, "go", "--protocol", "amplifier"], 3, "gone"),
        (&["call", &list, "go", "--protocol", "amplifier", "--expect-version", ">=2"], 3, "version 1.2.0 is not in"),
        (&["call", &list, "go", "--protocol", "amplifier"], 0, ""),
        (&["call", "http://127.0.0.1:9/", "go", "--protocol", "amplifier"], 3, "cannot connect"),
        (&["call", "http://127.0.0.1:9/", "go", "--protocol", "gevals"], 2, "--protocol amplifier"),
        (&["call", "http://127.0.0.1:9/", "go"], 3, "cannot connect"),
        (&["describe", "http://127.0.0.1:9/"], 3, "cannot connect"),
        (&["call", "sim", "identify", "--protocol", "namel3ss"], 0, ""),
        (&["call", &tool, "go", "--protocol", "namel3ss"], 1, "KeyError: x"),
        (&["call", &crash, "go", "--protocol", "namel3ss"], 3, "boom"),
        (&["call", &sleeps, "go", "--protocol", "namel3ss", "--timeout", "300ms"], 124, "did not end within"),
        (
            &["call", "sim", "measure", "channel=3V3", "--protocol", "namel3ss", "--require", "no_env_read"],
            1,
            "CapabilityViolation",
        ),
        (
            &["call", "sim", "x", "--protocol", "namel3ss", "--require", "no_fun"],
            2,
            "expected one of no_filesystem_write",
        ),
        (&["describe", "sim", "--protocol", "amplifier"], 0, ""),
        (&["describe", "sim", "--protocol", "namel3ss"], 2, "cannot describe itself"),
        (&["describe", &project, "--protocol", "namel3ss"], 0, ""),
        (&["call", &project, "T", "--protocol", "namel3ss"], 2, "there is \"t\""),
        (&["call", "sim", "x", "--protocol", "gevals", "--events", &events], 2, "goes with --protocol amplifier"),
        (
            &["call", "sim", "identify", "--protocol", "amplifier", "--trace", "t"],
            2,
            "--trace goes with --protocol namel3ss",
        ),
        (
            &["call", "sim", "identify", "--protocol", "namel3ss", "--phase", "setup"],
            2,
            "--phase goes with --protocol gevals",
        ),
        (&["serve", "sim", "--clients", "3"], 2, "use --tcp [HOST:]PORT, or --http [HOST:]PORT"),
        (&["serve", "exec:false", "--tcp", "0", "--protocol", "namel3ss"], 2, "use --http"),
        (
            &["serve", "sim", "--http", "0", "--protocol", "gevals"],
            2,
            "gevals has no HTTP transport: use --protocol amplifier",
        ),
        (&["serve", "exec:false", "--http", "0", "--protocol", "amplifier"], 3, ""),
        (&["serve", "sim", "--http", "0", "--protocol", "namel3ss", "--path", "tools"], 2, "must begin with a slash"),
        (&["monitor", "sim", "--protocol", "amplifier"], 2, "--protocol"),
    ] {
        let (got, text, errors) = rigline(arguments, "");
        assert_eq!(got, code, "{arguments:?}: {text}{errors}");
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
    let events = fs::read_to_string(events).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [decision, invoke] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (&decision["event"], &decision["status"], &decision["data"]["capability"]),
        (&json!("policy:decision"), &json!("denied"), &json!("go"))
    );
    assert_eq!(
        (&invoke["event"], &invoke["status"], &invoke["data"]["op"], &invoke["session_id"], &invoke["error"]["code"]),
        (&json!("module:invoke"), &json!("error"), &json!("go"), &json!("s"), &json!("forbidden"))
    );
    assert!(
        invoke["duration_ms"].is_u64()
            && invoke["span_id"].is_string()
            && invoke["request_id"] == decision["request_id"]
    );
}

/// A server on its own: a bearer token, the warning, and SIGTERM while a call is running.
#[test]
fn a_server_that_people_start() {
    let folder = tempfile::tempdir().unwrap();
    let (token, other) = (folder.path().join("token"), folder.path().join("other"));
    fs::write(&token, "s3cret\n").unwrap();
    fs::write(&other, "s3creT\n").unwrap();
    let [token, other] = [token, other].map(|path| path.display().to_string());
    for protocol in ["amplifier", "namel3ss"] {
        let server =
            ServerProcess::start(&["serve", "sim", "--http", "0", "--protocol", protocol, "--token-file", &token]);
        let call = |file: &[&str]| {
            let arguments = ["call", &server.url, "identify", "--protocol", protocol];
            rigline(&[&arguments[..], file].concat(), "")
        };
        assert_eq!(call(&["--token-file", &token]).0, 0);
        for (code, _, errors) in [call(&["--token-file", &other]), call(&[])] {
            assert!(code == 3 && errors.contains("401"), "{errors}");
        }
        let check = ["check", &server.url, "--protocol", protocol, "--call", "identify", "--token-file", &token];
        assert_eq!(rigline(&check, "").0, 0);
    }
    // What is in hand is finished, on any way to the extension.
    for target in ["sim", &format!("exec:{RIGLINE} rig")] {
        let server = ServerProcess::start(&["serve", target, "--http", "0", "--protocol", "amplifier"]);
        let mut stream = std::net::TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
        let body = r#"{"op":"wait-for","args":{"channel":"3V3","min":3.0,"max":3.6,"within_ms":900}}"#;
        write!(stream, "POST /invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .unwrap();
        thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        let stopped = thread::spawn(move || server.stop());
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"waited_ms\":"), "{target}: {text}");
        assert_eq!(stopped.join().unwrap(), Some(0), "{target}");
        assert!(start.elapsed() < Duration::from_secs(5), "{target}");
    }
    let mut child = Command::new(RIGLINE)
        .args(["rig", "--http", "0.0.0.0:0", "--protocol", "amplifier"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.contains("can call every operation; --token-file restricts access"), "{line}");
}

/// Somebody's tool service: answers each request by its path, and keeps what it was sent.
fn service(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/any/path", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head += &line;
            }
            let mut body = vec![0; length];
            let _ = reader.read_exact(&mut body);
            kept.lock().unwrap().push(serde_json::from_slice(&body).unwrap_or_default());
            let _ = (&stream).write_all(answer(head.split(' ').nth(1).unwrap_or_default()).as_bytes());
        }
    });
    (url, seen)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

const ENFORCED: &str = r#"{"ok":true,"enforcement":"enforced","supported_guarantees":{"no_network":true,"secrets_allowed":["K"]},"service_version":"1.0.0"}"#;

/// The service runner's host: with and without handshake, and every shape of answer.
#[tokio::test]
async fn services_of_all_kinds() {
    let overrides = "[capability_overrides.t]\nno_network = true\nsecrets_allowed = [\"K\"]\n";
    let required = format!("[python_tools]\nservice_handshake_required = true\n{overrides}");
    let risky = format!("{required}allow_unsafe_execution = true\n");
    let text = r#"{ "ok": true, "result": { "message": "Hello Ada" } }"#;
    let unenforced = ENFORCED.replace("\"enforced\"", "\"declared\"");
    let unkept = ENFORCED.replace("\"no_network\":true", "\"no_network\":false");
    let secretless = ENFORCED.replace("[\"K\"]", "[]");
    let refused = r#"{"ok":false,"error":{"type":"X","message":"not today"}}"#;
    for (settings, handshake, answer, expected) in [
        ("", "", ok(text), r#"{ "message": "Hello Ada" }"#),
        (
            "",
            "",
            ok(r#"{ "ok": false, "error": { "type": "ValueError", "message": "Missing input" } }"#),
            "ValueError: Missing input",
        ),
        ("", "", ok(r#"{"ok":1,"output":[1]}"#), "[1]"),
        ("", "", ok(r#"{"ok":null,"error":"plain"}"#), "ToolError: plain"),
        ("", "", "HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\nno".into(), "status 500: no"),
        ("", "", ok("<html>"), "not JSON"),
        ("", "", ok("[]"), "must be an object"),
        ("", "", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".into(), "broke off"),
        (&required, ENFORCED, ok(text), "Hello Ada"),
        (&required, &unenforced, ok(text), "does not keep: network, secrets"),
        (&required, &unkept, ok(text), "does not keep: network"),
        (&required, &secretless, ok(text), "does not keep: secrets"),
        (&required, refused, ok(text), "not today"),
        (&required, "nonsense", ok(text), "handshake is unusable: it is not JSON"),
        (&required, "[]", ok(text), "handshake is unusable: expected a JSON object"),
        (&risky, &unenforced, ok(text), "Hello Ada"),
    ] {
        let handshake_answer = handshake.to_owned();
        let (url, seen) = service(move |path| match path {
            "/any/path" => answer.clone(),
            "/capabilities/handshake" => ok(&handshake_answer),
            _ => "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n".into(),
        });
        let tools = format!(
            "tools:\n  t:\n    kind: python\n    entry: m:f\n    runner: service\n    url: {url}\n    timeout_ms: 1500\n"
        );
        let folder = project(&[("namel3ss.toml", settings), ("tools.yaml", &tools)]);
        let host = Host::new(Project::load(folder.path(), &[]).unwrap());
        let (result, trace) = host.call(&call("t")).await;
        let result = match result {
            Ok(result) => result.result.unwrap_or_else(|error| error.to_string()),
            Err(error) => error.to_string(),
        };
        assert!(result.contains(expected), "{settings} {handshake}: {result}");
        let trace = serde_json::to_value(&trace).unwrap();
        assert_eq!((&trace["runner"], &trace["service_url"]), (&json!("service"), &json!(url)));
        assert_eq!((&trace["service_handshake"], &trace["timeout_ms"]), (&json!(!handshake.is_empty()), &json!(1500)));
        assert_eq!(trace["unsafe_override"] == true, settings == risky, "{trace}");
        if handshake == unenforced {
            assert_eq!(trace["enforcement_level"], "declared");
        }
        let seen = seen.lock().unwrap();
        if !handshake.is_empty() {
            assert_eq!(
                seen[0]["required_guarantees"],
                json!({"no_filesystem_write": false, "no_filesystem_read": false, "no_network": true, "no_subprocess": false,
                    "no_env_read": false, "no_env_write": false, "secrets_allowed": ["K"]})
            );
        }
        // A service that does not keep what it must is not called.
        let is_called = seen.iter().any(|request| request["payload"] == json!({"name": "Ada"}));
        assert_eq!(is_called, handshake.is_empty() || settings == risky || expected == "Hello Ada", "{handshake}");
        if let Some(request) = seen.iter().find(|request| request["payload"].is_object()) {
            assert_eq!((&request["project"]["flow"], &request["tool_name"]), (&Value::Null, &json!("t")));
            assert_eq!(request["trace_id"], trace["trace_id"]);
        }
    }
    let (url, _) = service(|_| {
        thread::sleep(Duration::from_secs(30));
        String::new()
    });
    let tools = format!(
        "tools:\n  t:\n    kind: python\n    entry: m:f\n    runner: service\n    url: {url}\n    timeout_ms: 200\n"
    );
    let folder = project(&[("tools.yaml", &tools)]);
    let host = Host::new(Project::load(folder.path(), &[]).unwrap());
    let start = Instant::now();
    let (result, trace) = host.call(&call("t")).await;
    assert!(result.is_err() && trace.error_type.as_deref() == Some("TimeoutError"), "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(4));
}

/// The container runner, with stand-ins for docker and podman.
#[test]
fn containers() {
    let folder = project(&[(
        "tools.yaml",
        "tools:\n  c:\n    kind: python\n    entry: a:b\n    runner: container\n    image: img:1\n    command: [\"run\", \"x y\"]\n    env: {\"B\": \"2\", \"A\": \"1\"}\n    enforcement: declared\n    timeout_ms: 800\n  plain:\n    kind: python\n    entry: a:b\n    runner: container\n    image: img:2\n  bare:\n    kind: python\n    entry: a:b\n    runner: container\n",
    )]);
    let path = |name: &str| folder.path().join(name);
    let trace = path("trace.jsonl");
    let call = |bin: &str, tool: &str| {
        let root = folder.path().display().to_string();
        let output = Command::new(RIGLINE)
            .args(["call", &root, tool, "name=Ada", "--protocol", "namel3ss", "--json", "--trace"])
            .arg(&trace)
            .env("PATH", path(bin))
            .env("STAND_IN", path("seen"))
            .output()
            .unwrap();
        let traces = fs::read_to_string(&trace).unwrap_or_default();
        let last: Value = serde_json::from_str(traces.lines().last().unwrap_or("null")).unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
            last,
        )
    };
    for name in ["docker", "podman", "late", "none"] {
        fs::create_dir(path(name)).unwrap();
    }
    // Nothing but the shell's own commands: the search path has nothing else.
    let answer = "printf '%s\\n' \"$@\" > \"$STAND_IN\"; IFS= read -r line; printf '%s' \"$line\" > \"$STAND_IN.in\"; echo '{\"ok\":true,\"result\":{\"n\":2}}'";
    script(&path("docker"), "docker", answer);
    script(&path("podman"), "podman", answer);
    script(
        &path("late"),
        "docker",
        "trap 'echo told > \"$STAND_IN\"; exit 143' TERM; echo starting >&2; while :; do :; done",
    );
    for runtime in ["docker", "podman"] {
        let (code, text, trace) = call(runtime, "c");
        assert_eq!(code, 0, "{text}");
        let args = fs::read_to_string(path("seen")).unwrap();
        assert_eq!(
            args.lines().collect::<Vec<_>>(),
            ["run", "--rm", "-i", "-e", "A=1", "-e", "B=2", "img:1", "run", "x y"]
        );
        let request: Value = serde_json::from_str(&fs::read_to_string(path("seen.in")).unwrap()).unwrap();
        assert_eq!((&request["tool"], &request["payload"]), (&json!("c"), &json!({"name": "Ada"})));
        assert_eq!(
            (
                &trace["container_runtime"],
                &trace["image"],
                &trace["command"],
                &trace["container_enforcement"],
                &trace["runner"]
            ),
            (&json!(runtime), &json!("img:1"), &json!("run x y"), &json!("declared"), &json!("container"))
        );
    }
    assert_eq!(call("docker", "plain").2["command"], "python -m namel3ss_tools.runner");
    // Its client is told to end, so that it can end the container.
    let start = Instant::now();
    let (code, text, trace) = call("late", "c");
    assert!(code == 124 && text.contains("did not end within 800ms") && text.contains("starting"), "{text}");
    assert_eq!((&trace["error_type"], &trace["timeout_ms"]), (&json!("TimeoutError"), &json!(800)));
    assert_eq!(fs::read_to_string(path("seen")).unwrap().trim(), "told");
    assert!(start.elapsed() < Duration::from_secs(5));
    let (code, text, _) = call("none", "c");
    assert!(code == 2 && text.contains("neither docker nor podman is in PATH"), "{text}");
    let (code, text, _) = call("docker", "bare");
    assert!(code == 2 && text.contains("has no image"), "{text}");
}

/// Our own rig passes every case, over both transports.
#[test]
fn the_rig_passes_its_checks() {
    for protocol in ["amplifier", "namel3ss"] {
        let server = ServerProcess::start(&["rig", "--protocol", protocol, "--http", "127.0.0.1:0"]);
        for (target, skipped) in [("sim", if protocol == "namel3ss" { 2 } else { 0 }), (server.url.as_str(), 0)] {
            let arguments = ["check", target, "--protocol", protocol, "--call", "identify", "--call", "measure"];
            let more = ["{\"channel\":\"3V3\"}", "--slow", "wait-for"];
            let slow = ["{\"channel\":\"3V3\",\"min\":3.0,\"max\":3.6,\"within_ms\":5000}"];
            // Amplifier has no limit but its 30 s, which is long for a test.
            let more = if protocol == "namel3ss" { [&more[..], &slow[..]].concat() } else { more[..1].to_vec() };
            let output = Command::new(RIGLINE).args(arguments).args(more).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{text}");
            assert!(text.trim_end().ends_with(&format!(" 0 failed, {skipped} skipped")), "{text}");
        }
    }
}

/// A program that the real gevals host starts without arguments, and today's text with `--config JSON`: a rig, a program with arguments, and
/// a board behind a bridge.
#[test]
fn a_gevals_host_starts_a_shim_without_arguments() {
    let Ok(python) = which::which("python3") else {
        rigline_test_support::skipped(
            "a gevals host that starts a shim",
            "there is no python3",
            "apt-get install python3",
        );
        return;
    };
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/gevals_host.py");
    let folder = tempfile::tempdir().unwrap();
    let served = ServerProcess::start(&["serve", "sim", "--tcp", "127.0.0.1:0"]);
    let program = format!("exec:{RIGLINE} rig --seed 7");
    for (name, target) in [("rig", "sim"), ("program", program.as_str()), ("board", served.url.as_str())] {
        // Its folders are made. A path with a space is one path (BANANASJIM/padctl#141).
        let shim = folder.path().join("a b").join(name).display().to_string();
        let (code, _, errors) = rigline(&["gevals-shim", target, "-o", &shim], "");
        assert_eq!(code, 0, "{target}: {errors}");
        let output = Command::new(&python)
            .arg(&host)
            .args(["power", r#"{"rail":"3V3","on":true}"#, "measure", r#"{"channel":"3V3"}"#, "--", &shim])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{target}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(told[0]["manifest"]["result"]["name"], "rig", "{target}");
        assert_eq!(told.last().unwrap()["exit"], 0, "{target}");
        // One shot, with a configuration: what is wrong in it is refused, and what is right in it counts.
        let request =
            r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"identify","args":{},"context":{}}}"#;
        for (config, is_right) in [(r#"{"settle_ms":1}"#, true), (r#"{"settle_ms":60000}"#, false), ("[1]", false)] {
            let mut child = Command::new(&shim)
                .args(["--config", config])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let _ = child.stdin.take().unwrap().write_all(request.as_bytes());
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text.contains("\"success\":true"), is_right, "{target} {config}: {text}");
        }
    }
}

/// Folders are made, and a link is replaced and not followed, by both shims.
/// Reports: BANANASJIM/padctl#141, astral-sh/uv#5152, atusy/kakehashi#800.
#[test]
fn shims_make_folders_and_replace_links() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared-interpreter");
    fs::write(&shared, "shared").unwrap();
    for command in ["namel3ss-shim", "gevals-shim"] {
        let bin = folder.path().join(command).join(".venv/bin");
        let shim = bin.join("python");
        let run = || rigline(&[command, "sim", "-o", &shim.display().to_string()], "");
        assert_eq!(run().0, 0, "{command}");
        fs::remove_file(&shim).unwrap();
        std::os::unix::fs::symlink(&shared, &shim).unwrap();
        let (code, _, errors) = run();
        assert_eq!(code, 0, "{command}: {errors}");
        assert_eq!(fs::read_to_string(&shared).unwrap(), "shared", "{command}");
        let about = fs::symlink_metadata(&shim).unwrap();
        assert!(about.is_file() && about.permissions().mode() & 0o111 != 0, "{command}");
        assert!(fs::read_to_string(&shim).unwrap().starts_with("#!"), "{command}");
        // Nothing else is left there.
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 1, "{command}");
    }
}
