//! The real namel3ss from PyPI with our tools, and its tools under our host.
//!
//! It is looked for where `RIGLINE_NAMEL3SS_PYTHON` says, an interpreter that can import namel3ss 0.1.0a15 (`.ci/namel3ss.sh`
//! makes one); without it these tests say so and pass.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rigline_host::namel3ss::{Host, Project, RunError, ToolCall};
use serde_json::{Value, json};

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("RIGLINE_NAMEL3SS_PYTHON").map(PathBuf::from);
    if python.is_none() {
        let why = "RIGLINE_NAMEL3SS_PYTHON does not say where namel3ss is";
        rigline_test_support::skipped(
            "the real namel3ss",
            why,
            "export RIGLINE_NAMEL3SS_PYTHON=$(.ci/namel3ss.sh), which installs it",
        );
    }
    python
}

/// Runs Python and returns what it prints, one JSON text a line.
fn run(python: &Path, script: &str, args: &[&str]) -> Vec<Value> {
    let output = Command::new(python).arg("-c").arg(script).args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The rig as a program that namel3ss starts.
fn shim(folder: &Path) -> PathBuf {
    let path = folder.join("python");
    let status = Command::new(RIGLINE).args(["namel3ss-shim", "sim", "-o"]).arg(&path).status().unwrap();
    assert!(status.success());
    path
}

const SUBPROCESS: &str = r#"
import json, sys
from pathlib import Path
import namel3ss.ir.nodes
from namel3ss.runtime.tools.python_subprocess import run_tool_subprocess

def call(tool, payload, **more):
    try:
        result = run_tool_subprocess(python_path=Path(sys.argv[1]), tool_name=tool, entry="tools.rig:run", payload=payload,
                                     app_root=Path(sys.argv[2]), timeout_seconds=more.pop("timeout_seconds", 5), **more)
        print(json.dumps(result.__dict__))
    except Exception as error:
        print(json.dumps({"raised": str(error)}))

def context(**guarantees):
    return {"tool_name": "measure", "resolved_source": "binding", "runner": "local", "protocol_version": 1,
            "guarantees": guarantees, "sources": {name: "user" for name in guarantees}}

call("measure", {"channel": "3V3"})
call("gpio read", {"pin": "LED"}, trace_id="3fc648fd", sandbox=True)
call("measure", {"channel": "3V3"}, capability_context=context(no_network=True, no_subprocess=True, secrets_allowed=["K"]))
call("measure", {"channel": "nope"})
call("measure", {"channel": float("nan")})
call("measure", {"channel": "3V3"}, capability_context=context(no_env_write=True))
call("fly", {})
call("wait for", {"channel": "3V3", "min": 3.0, "max": 3.6, "within_ms": 30000}, timeout_seconds=1)
"#;

#[test]
fn its_subprocess_runner_calls_the_rig() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = shim(folder.path());
    let results = run(&python, SUBPROCESS, &[program.to_str().unwrap(), folder.path().to_str().unwrap()]);
    let [plain, gpio, kept, argument, nan, blocked, unknown, late] = &results[..] else { panic!("{results:?}") };
    assert_eq!(plain["ok"], true);
    assert!(plain["output"]["volts"].is_number() && plain["capability_checks"].is_null(), "{plain}");
    assert_eq!(gpio["ok"], true, "{gpio}");
    assert_eq!((&kept["ok"], &kept["capability_checks"]), (&json!(true), &json!([])), "{kept}");
    assert_eq!((&argument["ok"], &argument["error_type"]), (&json!(false), &json!("ValueError")), "{argument}");
    assert_eq!(nan["ok"], false, "{nan}");
    assert_eq!(blocked["error_type"], "CapabilityViolation");
    assert_eq!(
        blocked["capability_checks"],
        json!([{"capability": "env_write", "allowed": false, "guarantee_source": "user", "reason": "guarantee_blocked"}])
    );
    assert_eq!(unknown["error_type"], "UnknownTool");
    assert!(late["raised"].as_str().unwrap().contains("exceeded 1s timeout"), "{late}");
}

const SERVICE: &str = r#"
import json, sys
from pathlib import Path
import namel3ss.ir.nodes
from namel3ss.config.model import AppConfig
from namel3ss.runtime.tools.bindings_yaml import ToolBinding
from namel3ss.runtime.tools.runners.base import ToolRunnerRequest
from namel3ss.runtime.tools.runners.service_runner import ServiceRunner

config = AppConfig()
config.python_tools.service_handshake_required = True

def call(tool, payload, timeout_ms=5000, **guarantees):
    context = {"guarantees": guarantees, "sources": {name: "user" for name in guarantees}}
    try:
        result = ServiceRunner().execute(ToolRunnerRequest(
            tool_name=tool, kind="python", entry="m:f", payload=payload, timeout_ms=timeout_ms, trace_id="1111",
            app_root=Path("/tmp"), flow_name=None, config=config, capability_context=context,
            binding=ToolBinding(kind="python", entry="m:f", runner="service", url=sys.argv[1])))
        print(json.dumps(result.__dict__))
    except Exception as error:
        print(json.dumps({"raised": str(error)}))

call("measure", {"channel": "3V3"})
call("gpio_read", {"pin": "LED"}, no_network=True, secrets_allowed=["K"])
call("measure", {"channel": "nope"})
call("wait for", {"channel": "3V3", "min": 3.0, "max": 3.6, "within_ms": 30000}, timeout_ms=200)
call("measure", {"channel": "3V3"}, no_env_read=True)
call("fly", {})
"#;

/// A server that ends with the test.
struct ServerProcess(Child, String);

impl ServerProcess {
    fn start(protocol: &str) -> Self {
        let mut child = Command::new(RIGLINE)
            .args(["rig", "--protocol", protocol, "--http", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self(child, url)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn its_service_runner_calls_the_rig() {
    let Some(python) = python() else { return };
    let server = ServerProcess::start("namel3ss");
    let results = run(&python, SERVICE, &[&server.1]);
    let [plain, kept, argument, late, blocked, unknown] = &results[..] else { panic!("{results:?}") };
    assert_eq!((&plain["ok"], &plain["metadata"]["enforcement_level"]), (&json!(true), &json!("enforced")), "{plain}");
    assert!(plain["output"]["volts"].is_number(), "{plain}");
    assert_eq!(kept["ok"], true, "{kept}");
    assert_eq!(argument["error_type"], "ValueError", "{argument}");
    assert_eq!(late["error_type"], "TimeoutError", "{late}");
    assert_eq!(blocked["error_type"], "CapabilityViolation", "{blocked}");
    assert_eq!(blocked["capability_checks"][0]["capability"], "env_read", "{blocked}");
    assert_eq!(
        (&unknown["error_type"], &unknown["error_message"]),
        (&json!("CapabilityViolation"), &json!("Unknown tool: fly"))
    );
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

const TOOLS: &str = r#"tools:
  "greeter":
    kind: "python"
    entry: "tools.greeter:run"
  "sleeper":
    kind: "python"
    entry: "tools.greeter:sleep"
    timeout_ms: 300
"#;

const GREETER: &str = r#"import time

def run(payload):
    if "name" not in payload:
        raise ValueError("Missing input")
    print("this goes nowhere")
    return {"message": "Hello " + payload["name"], "ok": True}

def sleep(payload):
    time.sleep(60)
"#;

#[tokio::test]
async fn its_tool_side_runs_under_our_host() {
    let Some(python) = python() else { return };
    let folder = project(&[(".namel3ss/tools.yaml", TOOLS), ("tools/greeter.py", GREETER), ("tools/__init__.py", "")]);
    let mut host = Host::new(Project::load(folder.path(), &[]).unwrap());
    host.python = Some(python);
    let call =
        |tool: &str, payload: &str| ToolCall { tool: tool.into(), payload: payload.into(), ..ToolCall::default() };
    let (result, trace) = host.call(&call("greeter", r#"{"name": "Ada \u00e9"}"#)).await;
    let message: Value = serde_json::from_str(&result.unwrap().result.unwrap()).unwrap();
    assert_eq!(message, json!({"message": "Hello Ada é", "ok": true}));
    assert_eq!((trace.status, trace.runner, trace.resolved_source), ("ok", Some("local"), Some("binding")));
    let (result, trace) = host.call(&call("greeter", "{}")).await;
    assert_eq!(result.unwrap().result.unwrap_err().to_string(), "ValueError: Missing input");
    assert_eq!(trace.error_type.as_deref(), Some("ValueError"));
    let (result, trace) = host.call(&call("sleeper", "{}")).await;
    assert!(matches!(result, Err(RunError::Timeout { limit, .. }) if limit == Duration::from_millis(300)));
    assert_eq!((trace.error_type.as_deref(), trace.timeout_ms), (Some("TimeoutError"), 300));
}

const APP: &str = r#"spec is "1.0"

tool "measure":
  implemented using python

  input:
    channel is text

  output:
    volts is number
    min is number
    max is number
    samples is number
    message is text

flow "demo":
  let result is measure:
    channel is "3V3"
  return result
"#;

/// `n3` runs a small program with the rig as a tool: the shim stands in the place of the project's interpreter.
#[test]
fn its_command_runs_a_program_with_the_rig() {
    let Some(python) = python() else { return };
    let tools = "tools:\n  \"measure\":\n    kind: \"python\"\n    entry: \"tools.rig:run\"\n    runner: \"local\"\n";
    let folder = project(&[
        ("app.ai", APP),
        (".namel3ss/tools.yaml", tools),
        ("tools/__init__.py", ""),
        ("tools/rig.py", "def run(payload):\n    raise RuntimeError('the rig is no Python')\n"),
        (".venv/bin/placeholder", ""),
    ]);
    shim(&folder.path().join(".venv/bin"));
    let mode = fs::metadata(folder.path().join(".venv/bin/python")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111);
    let output = Command::new(python.with_file_name("n3"))
        .args(["app.ai", "flow", "demo"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("volts"), "{text}");
}

/// Runs `n3` in a project: whether it succeeded, and what it says.
fn n3(python: &Path, folder: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(python.with_file_name("n3"));
    let output = command.args(arguments).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

const FRACTIONS: &str = r#"spec is "1.0"

tool "wait for":
  implemented using python

  input:
    channel is text
    min is number
    max is number

  output:
    volts is NUMBER
    waited_ms is NUMBER
    message is text

flow "demo":
  let result is wait for:
    channel is "3V3"
    min is 0.0
    max is 0.465
  return result

flow "too high":
  let result is wait for:
    channel is "3V3"
    min is 3.135
    max is 3.465
  return result
"#;

/// The engine sends the decimals of a flow as strings. The rig takes them as numbers, and so does an extension that knows gevals alone,
/// behind a bridge: its outputs are texts.
#[test]
fn a_flow_with_fractions() {
    let Some(python) = python() else { return };
    let gevals_alone = format!("exec:{RIGLINE} rig --protocol gevals");
    let mut server =
        Command::new(RIGLINE).args(["serve", "sim", "--tcp", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = ServerProcess(server, line.trim().rsplit(' ').next().unwrap().to_owned());
    for (target, number) in [("sim", "number"), (server.1.as_str(), "number"), (gevals_alone.as_str(), "text")] {
        let tools = "tools:\n  \"wait for\":\n    kind: \"python\"\n    entry: \"tools.rig:run\"\n";
        let folder = project(&[
            ("app.ai", &FRACTIONS.replace("NUMBER", number)),
            (".namel3ss/tools.yaml", tools),
            ("tools/__init__.py", ""),
            ("tools/rig.py", "def run(payload):\n    raise RuntimeError('the rig is no Python')\n"),
        ]);
        // The folders are made (BANANASJIM/padctl#141).
        let shim = folder.path().join(".venv/bin/python");
        let bridge = (target == gevals_alone).then_some("--bridge");
        let arguments = ["namel3ss-shim", target, "-o"];
        let status = Command::new(RIGLINE).args(arguments).arg(&shim).args(bridge).status().unwrap();
        assert!(status.success());
        let (is_right, text) = n3(&python, folder.path(), &["app.ai", "flow", "demo"]);
        assert!(is_right && text.contains("volts"), "{target}: {text}");
        let (is_right, text) = n3(&python, folder.path(), &["app.ai", "flow", "too high"]);
        assert!(!is_right && text.contains("not from 3.135 to 3.465 V"), "{target}: {text}");
    }
}

const SIGNED_PACK: &str = r#"id: "acme.rig"
name: "Rig tools"
version: "1.0.0"
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
signer_id: "k"
"#;

const PACK_APP: &str = r#"spec is "1.0"

packs:
  "acme.rig"

tool "measure":
  implemented using python

  input:
    channel is text

  output:
    message is text

flow "demo":
  let result is measure:
    channel is "3V3"
  return result
"#;

/// Step by step, our host and the engine agree on whether a pack's code runs.
#[tokio::test]
async fn the_engine_and_our_host_refuse_the_same_pack() {
    let Some(python) = python() else { return };
    let pack = ".namel3ss/packs/acme.rig";
    let folder = project(&[
        ("app.ai", PACK_APP),
        (&format!("{pack}/pack.yaml"), SIGNED_PACK),
        (&format!("{pack}/tools/__init__.py"), ""),
        (&format!("{pack}/tools/rig.py"), "def run(payload):\n    return {\"message\": \"it ran\"}\n"),
        ("key", "secret\n"),
    ]);
    let steps: [(&[&str], bool); 7] = [
        (&[], false),
        (&["packs", "keys", "add", "--id", "k", "--public-key", "key"], false),
        (&["packs", "sign", pack, "--key-id", "k", "--private-key", "key"], false),
        (&["packs", "verify", "acme.rig"], false),
        (&["packs", "enable", "acme.rig"], true),
        (&["packs", "disable", "acme.rig"], false),
        (&["packs", "enable", "acme.rig"], true),
    ];
    for (step, runs) in steps {
        if !step.is_empty() {
            let (is_right, text) = n3(&python, folder.path(), step);
            assert!(is_right, "{step:?}: {text}");
        }
        let (theirs, text) = n3(&python, folder.path(), &["app.ai", "flow", "demo"]);
        let mut host = Host::new(Project::load(folder.path(), &[]).unwrap());
        host.python = Some(python.clone());
        let call = ToolCall { tool: "measure".into(), payload: r#"{"channel":"3V3"}"#.into(), ..ToolCall::default() };
        let (result, _) = host.call(&call).await;
        assert_eq!((theirs, result.is_ok()), (runs, runs), "{step:?}: {text} {result:?}");
        match result {
            Ok(result) => assert_eq!(result.result.unwrap(), r#"{"message": "it ran"}"#),
            Err(error) => assert!(matches!(error, RunError::UnavailablePack { .. }), "{error}"),
        }
    }
    // What has changed since is not what was verified.
    let path = folder.path().join(pack).join("pack.yaml");
    fs::write(&path, SIGNED_PACK.replace("tools.rig:run", "tools.rig:other")).unwrap();
    let (theirs, text) = n3(&python, folder.path(), &["app.ai", "flow", "demo"]);
    assert!(!theirs && !text.contains("it ran"), "{text}");
    let host = Host::new(Project::load(folder.path(), &[]).unwrap());
    let call = ToolCall { tool: "measure".into(), ..ToolCall::default() };
    assert!(matches!(host.call(&call).await.0, Err(RunError::UnavailablePack { .. })));
}

/// A flow calls the rig as a service, and its project's environment names the service.
#[test]
fn the_engine_calls_the_rig_as_a_service() {
    let Some(python) = python() else { return };
    let server = ServerProcess::start("namel3ss");
    for (url, service_url) in [(Some(server.1.as_str()), None), (None, Some(server.1.as_str()))] {
        let mut tools =
            "tools:\n  \"measure\":\n    kind: \"python\"\n    entry: \"tools.rig:run\"\n    runner: \"service\"\n"
                .to_owned();
        if let Some(url) = url {
            tools += &format!("    url: \"{url}\"\n");
        }
        let folder = project(&[("app.ai", APP), (".namel3ss/tools.yaml", &tools), ("tools/__init__.py", "")]);
        let run = |program: &Path, arguments: &[&str]| {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .current_dir(folder.path())
                .envs(service_url.map(|url| ("N3_TOOL_SERVICE_URL", url)));
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("volts"), "{text}");
        };
        run(&python.with_file_name("n3"), &["app.ai", "flow", "demo"]);
        // The same project under our host.
        run(Path::new(RIGLINE), &["call", ".", "measure", "channel=3V3", "--protocol", "namel3ss"]);
    }
}

/// The record of a call in the shape that the engine itself keeps.
#[test]
fn a_trace_has_the_engines_members() {
    let Some(python) = python() else { return };
    let tools = "tools:\n  \"measure\":\n    kind: \"python\"\n    entry: \"tools.rig:run\"\n    runner: \"local\"\n";
    let folder = project(&[
        ("app.ai", APP),
        (".namel3ss/tools.yaml", tools),
        ("tools/__init__.py", ""),
        ("tools/rig.py", "def run(payload):\n    raise RuntimeError('the rig is no Python')\n"),
        (".venv/bin/placeholder", ""),
    ]);
    shim(&folder.path().join(".venv/bin"));
    let (is_right, text) = n3(&python, folder.path(), &["app.ai", "flow", "demo"]);
    assert!(is_right, "{text}");
    let read =
        |path: &str| serde_json::from_str::<Value>(&fs::read_to_string(folder.path().join(path)).unwrap()).unwrap();
    let theirs = read(".namel3ss/run/last.json")["traces"][0].clone();
    let status = Command::new(RIGLINE)
        .args(["call", ".", "measure", "channel=3V3", "--protocol", "namel3ss"])
        .args(["--trace", "trace.jsonl", "--trace-format", "namel3ss"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let mut ours = read("trace.jsonl");
    // Its file leaves the duration out.
    ours.as_object_mut().unwrap().remove("duration_ms");
    // The folder may be known by another name.
    ours["python_path"] = theirs["python_path"].clone();
    assert_eq!(ours, theirs);
}
