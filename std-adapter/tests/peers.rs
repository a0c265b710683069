//! Our hosts of Amplifier modules and namel3ss tools, over what other people's programs do.
#![cfg(unix)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rigline_std::amplifier::{self, CallError, Descriptor, EventLog, HttpError, Place};
use rigline_std::host::Options;
use rigline_std::namel3ss::{Host, Project, RunError, ToolCall};
use serde_json::{Value, json};

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

fn script(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
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
        (answer(r#"echo '{"ok":false,"error":"text"}'"#), "error: "),
        (answer("echo 'panic: boom' >&2; exit 3"), "panic: boom"),
        ("exit 0".to_owned(), "Gone"),
        ("exec sleep 60".to_owned(), "Timeout"),
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

/// FC-70: other people's HTTP servers.
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
        let mut host = amplifier::Host::at(Place::Http { url, token: None });
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
    let mut host = amplifier::Host::at(Place::Http { url: "https://x".into(), token: None });
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

/// FC-80, the host's side: what a tool's process may do.
#[tokio::test]
async fn local_tools_of_all_kinds() {
    let folder =
        project(&[("tools.yaml", "tools:\n  t:\n    kind: python\n    entry: a:b\n    timeout_seconds: 1.5\n")]);
    for (text, expected) in [
        (r#"cat > got; echo '{"ok":true,"result":{"a":1}}'"#, r#"{"a":1}"#),
        (r#"echo '{"ok":false,"error":{"type":"ValueError","message":"x"}}'; exit 1"#, "ValueError: x"),
        ("echo oops >&2; exit 1", "crashed"),
        ("exit 0", "no response"),
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

#[tokio::test]
async fn packs_settings_and_traces() {
    let settings = "[python_tools]\ntimeout_seconds = 20\n\n[capability_overrides.measure]\nno_network = true\n\n[capability_overrides.own]\nno_network = true\n\n[capability_overrides.risky]\nno_network = true\nallow_unsafe_execution = true\n";
    let tools = "tools:\n  own:\n    kind: python\n    entry: a:b\n  risky:\n    kind: python\n    entry: a:b\n";
    let folder = project(&[
        ("namel3ss.toml", settings),
        (".namel3ss/tools.yaml", tools),
        (".namel3ss/packs/acme.rig/pack.yaml", PACK),
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

/// The commands, as a shell uses them.
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
    let (code, text, _) = run(&["events", "-", "--event", "module:*", "--json"], log);
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

/// The container runner, with a stand-in for docker.
#[tokio::test]
async fn containers() {
    let folder = project(&[(
        "tools.yaml",
        "tools:\n  c:\n    kind: python\n    entry: a:b\n    runner: container\n    image: img:1\n    command: [\"run\", \"x y\"]\n    env: {\"B\": \"2\", \"A\": \"1\"}\n    enforcement: declared\n",
    )]);
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    script(
        &bin,
        "docker",
        "printf '%s\\n' \"$@\" > \"$STAND_IN\"; cat > \"$STAND_IN.in\"; echo '{\"ok\":true,\"result\":2}'",
    );
    let probe = script(folder.path(), "probe", "exec \"$@\"");
    let stand_in = folder.path().join("args");
    // The search path is the process's own: the host runs in a child that has another.
    let output = Command::new(probe)
        .args([
            std::env::current_exe().unwrap().to_str().unwrap(),
            "--exact",
            "containers_child",
            "--ignored",
            "--nocapture",
        ])
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env("STAND_IN", &stand_in)
        .env("PROJECT", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let args = fs::read_to_string(&stand_in).unwrap();
    assert_eq!(
        args.lines().collect::<Vec<_>>(),
        ["run", "--rm", "-i", "-e", "A=1", "-e", "B=2", "img:1", "run", "x y"]
    );
}

#[tokio::test]
#[ignore = "run by `containers`, in an environment of its own"]
async fn containers_child() {
    let Some(folder) = std::env::var_os("PROJECT") else { return };
    let host = Host::new(Project::load(Path::new(&folder), &[]).unwrap());
    let (result, trace) = host.call(&call("c")).await;
    assert_eq!(result.unwrap().result.unwrap(), "2");
    let trace = serde_json::to_value(&trace).unwrap();
    assert_eq!(
        (&trace["container_runtime"], &trace["image"], &trace["command"], &trace["container_enforcement"]),
        (&json!("docker"), &json!("img:1"), &json!("run x y"), &json!("declared"))
    );
}

/// Our own rig passes every case, over both transports.
#[tokio::test]
async fn the_rig_passes_its_checks() {
    use rigline_std::cases::{self, Sample, Verdict};
    let sample = Sample { operation: Some("identify".into()), args: "{}".into() };
    for protocol in ["amplifier", "namel3ss"] {
        let mut server = Command::new(RIGLINE)
            .args(["rig", "--protocol", protocol, "--http", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        for target in [format!("exec:{RIGLINE} rig --protocol {protocol}"), url] {
            let options = Options::default();
            if protocol == "amplifier" {
                let mut host = amplifier::Host::new(&target.parse().unwrap(), &options).unwrap();
                for case in cases::amplifier::CASES {
                    assert_eq!((case.run)(&mut host, &sample).await, Verdict::Pass, "{target}: {}", case.name);
                }
                continue;
            }
            let target = if target.starts_with("http") { format!("{target}/tools") } else { target };
            let mut host = Host::of_target(&target.parse().unwrap()).unwrap();
            for case in cases::namel3ss::CASES {
                let verdict = (case.run)(&mut host, &sample).await;
                let is_skip = case.name == "handshake" && target.starts_with("exec");
                assert_eq!(matches!(verdict, Verdict::Skip(_)), is_skip, "{target}: {}: {verdict:?}", case.name);
                assert!(!matches!(verdict, Verdict::Fail { .. }), "{target}: {}: {verdict:?}", case.name);
            }
        }
        server.kill().unwrap();
        server.wait().unwrap();
    }
}
