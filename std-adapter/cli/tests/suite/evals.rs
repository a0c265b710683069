//! Evals on the desktop: the command `rigline eval`, and the JSON-RPC server with the clients that waza's text prints.

use crate::executable;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn rig_evals() -> PathBuf {
    repository().join("firmware-example/evals")
}

/// A folder with files in it.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// The eval of waza's text, for the executor mock.
fn azure() -> TempDir {
    folder(&[
        (
            "azure-functions/eval.yaml",
            "name: azure-functions-eval\nskill: azure-functions\nversion: \"1.0\"\n\
             config: { executor: mock, trials_per_task: 3, timeout_seconds: 300 }\nmetrics: { pass_threshold: 0.8 }\n\
             tasks: [\"tasks/*.yaml\"]\nowner: somebody\n",
        ),
        (
            "azure-functions/tasks/create-function.yaml",
            "id: create-function\nname: Create HTTP Function\ndescription: Create a basic HTTP-triggered function\n\
             inputs: { prompt: Create an Azure Function that responds to HTTP requests... }\n\
             graders:\n  - { type: contains, value: Azure }\n",
        ),
    ])
}

/// Three tasks, the second of which takes its time.
fn slow() -> TempDir {
    folder(&[
        ("eval.yaml", "name: slow\nconfig: { executor: mock }\ntasks: [\"*.task.yaml\"]\n"),
        ("1.task.yaml", "id: one\n"),
        ("2.task.yaml", "id: two\nmock: { delay: 60s }\n"),
        ("3.task.yaml", "id: three\n"),
    ])
}

/// An extension that tells in files what it does: `hang` writes a line every few milliseconds, for ever.
const TELLTALE: &str = r#"
import json, sys, time, os
folder = os.path.dirname(os.path.abspath(__file__))
def note(name, text):
    with open(os.path.join(folder, name), "a") as file:
        file.write(text + "\n")
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params") or {}
    result = {}
    if method == "initialize":
        result = {"name": "telltale", "version": "1", "protocolVersion": "0.0.1",
                  "operations": {name: {"params": True} for name in ("hang", "clean", "echo")}}
    elif method == "execute":
        note("calls", json.dumps(params))
        if params["operation"] == "hang":
            print(json.dumps({"jsonrpc": "2.0", "method": "log", "params": {"level": "info", "message": "hanging"}}), flush=True)
            while True:
                note("alive", str(time.time()))
                time.sleep(0.005)
        note(params["operation"], "done")
        result = {"success": True, "message": "done", "outputs": {"said": str((params.get("args") or {}).get("text", ""))}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
    if method == "shutdown":
        break
"#;

/// An eval that hangs in an extension, with a cleanup step.
fn hanging() -> TempDir {
    let folder = folder(&[
        ("telltale.py", TELLTALE),
        (
            "task.yaml",
            "id: hang\nname: Hangs\nsteps:\n  - { id: h, operation: hang }\n  - { id: c, phase: cleanup, operation: clean }\n",
        ),
    ]);
    let target = format!("exec:python3 '{}'", folder.path().join("telltale.py").display());
    fs::write(
        folder.path().join("eval.yaml"),
        format!("name: hanging\nconfig: {{ executor: extension, target: \"{target}\" }}\ntasks: [task.yaml]\n"),
    )
    .unwrap();
    folder
}

/// `rigline jsonrpc` on pipes.
struct ServerProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    runs: TempDir,
}

impl ServerProcess {
    fn start() -> Self {
        Self::with_runs(tempfile::tempdir().unwrap())
    }

    fn with_runs(runs: TempDir) -> Self {
        let mut child = Command::new(RIGLINE)
            .args(["jsonrpc", "--root", "/"])
            .arg("--runs")
            .arg(runs.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { input: child.stdin.take(), output: BufReader::new(child.stdout.take().unwrap()), child, runs }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn line(&mut self) -> Value {
        message(&mut self.output).expect("a line")
    }

    /// Sends a request and takes the next line for the reply, as the text's client does.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&request(1, method, &params));
        self.line()
    }

    /// Closes the input; returns all that comes then.
    fn end(mut self) -> Vec<Value> {
        drop(self.input.take());
        let lines = std::iter::from_fn(|| message(&mut self.output)).collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(id: u32, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// The next line, which must be JSON-RPC.
fn message(output: &mut impl BufRead) -> Option<Value> {
    let mut line = String::new();
    (output.read_line(&mut line).unwrap() > 0).then(|| {
        assert!(line.ends_with('\n'), "half a line: {line}");
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let first = value.as_array().map_or(&value, |batch| &batch[0]);
        assert_eq!(first["jsonrpc"], "2.0", "{line}");
        value
    })
}

/// `rigline jsonrpc --tcp`, on a free port.
struct TcpServer {
    child: Child,
    port: u16,
    runs: TempDir,
}

impl TcpServer {
    fn start() -> Self {
        let runs = tempfile::tempdir().unwrap();
        let mut child = Command::new(RIGLINE)
            .args(["jsonrpc", "--tcp", "localhost:0", "--no-token", "--root", "/", "--runs"])
            .arg(runs.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        errors.read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap_or_else(|_| panic!("no port in {line}"));
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self { child, port, runs }
    }

    fn connect(&self) -> LineClient {
        let stream = TcpStream::connect(("localhost", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        LineClient { output: BufReader::new(stream.try_clone().unwrap()), stream }
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct LineClient {
    stream: TcpStream,
    output: BufReader<TcpStream>,
}

impl LineClient {
    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(&(request(1, method, params) + "\n"));
        message(&mut self.output).expect("a line")
    }

    fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| message(&mut self.output)).collect()
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(RIGLINE);
    command.args(args).stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_example_of_the_text_is_answered_in_its_shape() {
    let folder = azure();
    let path = folder.path().join("azure-functions/eval.yaml");
    let mut server = ServerProcess::start();
    let answers = [
        (
            "eval.list",
            json!({ "directory": folder.path() }),
            json!({ "evals": [{ "path": path, "name": "azure-functions-eval", "skill": "azure-functions", "version": "1.0" }] }),
        ),
        (
            "eval.get",
            json!({ "path": path }),
            json!({
                "path": path, "name": "azure-functions-eval", "skill": "azure-functions", "version": "1.0",
                "config": { "executor": "mock", "trials_per_task": 3, "timeout_seconds": 300 },
                "metrics": { "pass_threshold": 0.8 }, "owner": "somebody",
            }),
        ),
        (
            "eval.validate",
            json!({ "path": path }),
            json!({ "valid": true, "name": "azure-functions-eval", "skill": "azure-functions" }),
        ),
        (
            "task.list",
            json!({ "path": path }),
            json!({ "tasks": [{
                "id": "create-function", "name": "Create HTTP Function",
                "description": "Create a basic HTTP-triggered function", "file": "tasks/create-function.yaml",
            }] }),
        ),
    ];
    for (method, params, result) in answers {
        assert_eq!(server.ask(method, params), json!({ "jsonrpc": "2.0", "id": 1, "result": result }), "{method}");
    }
    let task = server.ask("task.get", json!({ "path": path, "taskId": "create-function" }))["result"].clone();
    assert_eq!(task["prompt"], "Create an Azure Function that responds to HTTP requests...");
    assert_eq!(task["graders"], json!([{ "type": "contains", "value": "Azure" }]));

    let params = json!({ "path": path, "executor": "mock", "model": "claude-sonnet-4-20250514", "verbose": true, "context_dir": folder.path() });
    let started = server.ask("eval.run", params)["result"].clone();
    let id = started["runId"].as_str().unwrap().to_owned();
    assert_eq!(started, json!({ "runId": id, "status": "running" }));
    let mut lines = Vec::new();
    while lines.last().is_none_or(|last: &Value| last["method"] != "eval.complete") {
        lines.push(server.line());
    }
    let progress: Vec<_> =
        lines.iter().filter(|line| line["method"] == "eval.progress").map(|line| &line["params"]).collect();
    let events: Vec<_> = progress.iter().map(|progress| progress["event"].as_str().unwrap()).collect();
    let trial = ["trial_start", "trial_complete"];
    let expected =
        [&["run_start", "task_start"], &trial[..], &trial, &trial, &["task_complete", "run_complete"]].concat();
    assert_eq!(events, expected);
    let task = progress.iter().find(|progress| progress["event"] == "task_complete").unwrap();
    for (name, value) in [
        ("runId", json!(id)),
        ("taskName", json!("create-function")),
        ("taskNum", json!(1)),
        ("totalTasks", json!(1)),
        ("status", json!("passed")),
    ] {
        assert_eq!(task[name], value, "{name}");
    }
    let log = lines.iter().find(|line| line["method"] == "eval.log").unwrap();
    assert_eq!(log["params"], json!({ "runId": id, "level": "info", "message": "Running task: create-function" }));
    let summary = json!({ "total": 1, "passed": 1, "failed": 0, "passRate": 1.0 });
    assert_eq!(lines.last().unwrap()["params"], json!({ "runId": id, "summary": summary }));

    let ended = json!({ "runId": id, "status": "completed", "result": summary, "error": null });
    assert_eq!(server.ask("run.status", json!({ "runId": id }))["result"], ended);
    assert_eq!(
        server.ask("run.cancel", json!({ "run_id": id }))["result"],
        json!({ "runId": id, "status": "completed" })
    );
    // Another process knows of it too.
    let runs = std::mem::replace(&mut server.runs, tempfile::tempdir().unwrap());
    assert!(server.end().is_empty());
    let mut other = ServerProcess::with_runs(runs);
    assert_eq!(other.ask("run.status", json!({ "runId": id }))["result"], ended);
}

#[test]
fn every_error_has_its_code() {
    let folder = azure();
    let path = folder.path().join("azure-functions/eval.yaml");
    fs::write(folder.path().join("bad.yaml"), "config: { executor: invalid }\ntasks: [x.yaml]\n").unwrap();
    fs::write(folder.path().join("text.yaml"), "name: [\n").unwrap();
    let (bad, text) = (folder.path().join("bad.yaml"), folder.path().join("text.yaml"));
    let line = |method: &str, params: Value| request(1, method, &params);
    let mut server = ServerProcess::start();
    let table = [
        ("{oops".to_owned(), -32700, "Parse error"),
        ("{}".to_owned(), -32600, "Invalid Request"),
        (r#"{"id":1,"method":"eval.list"}"#.to_owned(), -32600, "jsonrpc"),
        (line("eval.nope", json!({})), -32601, "eval.nope"),
        (line("initialize", json!({})), -32601, "initialize"),
        (line("eval.get", json!({})), -32602, "path"),
        (line("eval.get", json!([])), -32602, "path"),
        (line("eval.get", json!([path])), -32602, "object"),
        (line("eval.run", json!({ "path": 1 })), -32602, "path"),
        (line("run.status", json!({ "runId": "nope" })), -32602, "nope"),
        (line("run.cancel", json!({ "runId": "../nope" })), -32602, "../nope"),
        (line("task.get", json!({ "path": path, "taskId": "nope" })), -32602, "nope"),
        (line("eval.run", json!({ "path": path, "executor": "gpt" })), -32602, "gpt"),
        (line("eval.run", json!({ "path": path, "executor": "copilot-sdk" })), -32002, "copilot-sdk"),
        (line("eval.run", json!({ "path": path, "context_dir": "/no/such/folder" })), -32002, "/no/such/folder"),
        (line("eval.run", json!({ "path": "/no/such/eval.yaml" })), -32000, "Eval not found"),
        (line("eval.list", json!({ "directory": "/no/such/folder" })), -32000, "/no/such/folder"),
        (line("eval.validate", json!({ "path": "/no/such/eval.yaml" })), -32000, "Eval not found"),
        // No file has such a name.
        (line("eval.get", json!({ "path": path.join("x") })), -32000, "Eval not found"),
        (line("eval.get", json!({ "path": "a".repeat(5000) })), -32000, "Eval not found"),
        (line("eval.run", json!({ "path": "a\0b" })), -32000, "Eval not found"),
        (line("task.list", json!({ "path": "" })), -32000, "Eval not found"),
        (line("eval.run", json!({ "path": bad })), -32001, "Validation failed"),
        (line("eval.get", json!({ "path": text })), -32001, "Validation failed"),
    ];
    for (line, code, text) in table {
        server.send(&line);
        let reply = server.line();
        assert_eq!(reply["error"]["code"], code, "{line}: {reply}");
        // The details stand in the message, or in the data of an error whose message is the text's own.
        assert!(reply["error"].to_string().contains(text), "{line}: {reply}");
        if let Some(exact) =
            [(-32000, "Eval not found"), (-32601, "Method not found")].iter().find(|(known, _)| *known == code)
        {
            assert_eq!(reply["error"]["message"], exact.1, "O 9: {line}");
        }
    }
    let known = server.ask("eval.run", json!({ "path": path, "executor": "gpt" }))["error"]["data"]["known"].clone();
    assert!(known.as_array().unwrap().contains(&json!("extension")), "{known}");
    assert_eq!(
        server.ask("eval.run", json!({ "path": "/x/eval.yaml" }))["error"]["data"],
        json!({ "path": "/x/eval.yaml" })
    );
    let errors = json!([
        "Missing required field: name (bad.yaml:1)",
        "Invalid executor type: invalid (there are mock, command, extension, copilot-sdk, copilot-cli, claude-code) (bad.yaml:1)",
        "No task file matches x.yaml (bad.yaml:2)",
    ]);
    assert_eq!(server.ask("eval.run", json!({ "path": bad }))["error"]["data"], json!({ "errors": errors }));
    assert_eq!(
        server.ask("eval.validate", json!({ "path": bad }))["result"],
        json!({ "valid": false, "errors": errors })
    );
    assert!(server.end().is_empty());
}

#[test]
fn validation_finds_everything_at_once_and_says_where() {
    let folder = folder(&[
        (
            "eval.yaml",
            "name: x\nconfig:\n  executor: extension\n  target: sim\n  trials_per_task: 0\n  timeout_seconds: soon\n  parallel: maybe\n\
             metrics:\n  - { weight: 2 }\n  - { name: m, threshold: 80 }\ntasks: [\"t/*.yaml\", 7]\n\
             graders: [{ type: output_range, step: a, max: 1 }]\n",
        ),
        (
            "t/a.yaml",
            "id: same\nsteps:\n  - { id: a, operation: power, phase: sometime, timeout: long }\n  - { id: a }\n\
             \x20 - { id: b, operation: measure, args: { x: \"{{steps.c.outputs.v}}\", y: \"{{steps.zz.outputs.v}}\", z: \"{{steps.a.out}}\" } }\n\
             \x20 - { id: c, operation: measure, args: { x: \"{{steps.a.outputs.v}}\" } }\n\
             graders:\n  - { type: regex, config: { must_match: [\"(\"] } }\n  - { type: output_range, step: nope, output: v }\n\
             \x20 - { type: magic }\n  - { type: code, config: { assertions: [x] } }\n  - { name: none }\n\
             \x20 - { type: contains, value: \"{{steps.a.outputs.v}} {{steps.gone.message}}\", case_sensitive: 1 }\n\
             \x20 - { type: regex, pattern: '[{]{2}steps.b' }\n  - { type: file_exists, config: [x] }\n\
             expected: { output_contains: [\"{{ steps.b.outputs }}\"] }\n\
             prompt: \"{{steps.b.message}} {{steps.zz.message}} {{steps.a.message} {{other}}\"\n\
             timeout: 1e19\nmock: { fail: perhaps, delay: 9999h }\n",
        ),
        ("t/b.yaml", "id: same\nsteps: [{ operation: identify }]\n"),
        ("t/c.yaml", "id: c\nsteps: [\n"),
        ("t/d.yaml", "- a list\n"),
    ]);
    let mut server = ServerProcess::start();
    let result = server.ask("eval.validate", json!({ "path": folder.path().join("eval.yaml") }))["result"].clone();
    let errors: Vec<&str> = result["errors"].as_array().unwrap().iter().map(|error| error.as_str().unwrap()).collect();
    for expected in [
        "trials_per_task: must be from 1 to 1000, is 0 (eval.yaml:5)",
        "timeout_seconds: expected a number, found a string (eval.yaml:6)",
        "parallel: expected true, false or a number of workers (eval.yaml:7)",
        "Missing required field: name (eval.yaml:9)",
        "threshold: must be from 0 to 1, is 80 (eval.yaml:10)",
        "tasks: expected a file's name or pattern, found a number (eval.yaml:11)",
        "Invalid phase: sometime (there are setup, verify, cleanup) (t/a.yaml:3)",
        "timeout: expected a duration such as 2s, 1m30s or 500ms (t/a.yaml:3)",
        "Two steps have the id a (t/a.yaml:4)",
        "Missing required field: operation (t/a.yaml:4)",
        "{{steps.c.outputs.v}}: step c does not run before step b (t/a.yaml:5)",
        "{{steps.zz.outputs.v}}: there is no step zz (t/a.yaml:5)",
        "{{steps.a.out}}: write {{steps.ID.outputs.KEY}} (t/a.yaml:5)",
        "must_match: `(` is not a regular expression: unclosed group (t/a.yaml:8)",
        "output_range: Missing required field: min or max (t/a.yaml:9)",
        "Grader output_range refers to step nope, which task same does not have (t/a.yaml:9)",
        "Unknown grader type: magic",
        "Missing required field: type (t/a.yaml:12)",
        "case_sensitive: expected true or false, found a number (t/a.yaml:13)",
        "{{steps.gone.message}}: there is no step gone (t/a.yaml:13)",
        "config: expected a map, found a list (t/a.yaml:15)",
        "file_exists: Missing required field: path (t/a.yaml:15)",
        "{{ steps.b.outputs }}: write {{steps.ID.outputs.KEY}} (t/a.yaml:16)",
        "{{steps.b.message}}: step b does not run before the prompt is given, as those of setup do (t/a.yaml:17)",
        "{{steps.zz.message}}: there is no step zz (t/a.yaml:17)",
        "{{steps.a.message}: write {{steps.ID.outputs.KEY}} (t/a.yaml:17)",
        "timeout: must be at most 24000 hours (t/a.yaml:18)",
        "mock.fail: expected true or false, found a string (t/a.yaml:19)",
        "Grader output_range refers to step a, which task same does not have (eval.yaml:12)",
        "Two tasks have the id same (t/b.yaml:1)",
        "Not valid YAML",
        "A task is a map, found a list (t/d.yaml:1)",
    ] {
        assert!(errors.iter().any(|error| error.starts_with(expected)), "{expected} in {errors:#?}");
    }
    assert_eq!(errors.len(), 32, "{errors:#?}");
}

#[test]
fn what_is_no_eval_says_why_and_keeps_nobody_waiting() {
    let bomb: String = (b'b'..=b'j')
        .map(|letter| {
            let alias = format!("*{}", char::from(letter - 1));
            format!("{0}: &{0} [{1}]\n", char::from(letter), [alias.as_str(); 10].join(","))
        })
        .collect();
    let bomb = format!("a: &a [x,x,x,x,x,x,x,x,x,x]\n{bomb}name: n\ntasks: [t.yaml]\n");
    let deep = format!("name: n\nx: {}1{}\ntasks: [t.yaml]\n", "[".repeat(33), "]".repeat(33));
    let deeper = format!("x: {}", "{a: ".repeat(50_000));
    let long = format!("name: n\n#{}", "x".repeat(4 << 20));
    let table: [(&[u8], &str); 18] = [
        (b"", "An eval is a map, found nothing (eval.yaml:1)"),
        (b"# nothing\n", "An eval is a map, found nothing"),
        (b"hello\n", "An eval is a map, found a string (eval.yaml:1)"),
        (b"\n- a\n- b\n", "An eval is a map, found a list (eval.yaml:2)"),
        (b"name: a\nname: b\n", "Not valid YAML: duplicate mapping key `name` is not allowed here (eval.yaml:2)"),
        (b"a: {b: 1,\n b: 2}\n", "Not valid YAML: duplicate mapping key `b` is not allowed here (eval.yaml:2)"),
        (b"name: a\n---\nname: b\n", "Not valid YAML: only single YAML document expected but multiple found"),
        (b"name: a\n\tskill: b\n", "Not valid YAML: "),
        (b"tasks:\n\t- a\n", "Not valid YAML: tabs disallowed within this context (block indentation) (eval.yaml:2)"),
        (b"name: 'a\n", "Not valid YAML: unclosed quote (eval.yaml:1)"),
        (b"name: *b\n", "Not valid YAML: "),
        (b"name: &a [*a]\n", "Not valid YAML: Recursive reference not allowed here (eval.yaml:1)"),
        (b"name: \xe9\n", "Cannot be read: not UTF-8 (eval.yaml)"),
        (b"\xff\xfen\0a\0", "Cannot be read: not UTF-8 (eval.yaml)"),
        (long.as_bytes(), "Cannot be read: over 4194304 bytes (eval.yaml)"),
        (bomb.as_bytes(), "Not valid YAML: more than 100000 values, with those of aliases (eval.yaml:"),
        (deep.as_bytes(), "Not valid YAML: nested deeper than 32 (eval.yaml:2)"),
        (deeper.as_bytes(), "Not valid YAML: nested deeper than 32 (eval.yaml:1)"),
    ];
    let folder = folder(&[]);
    let path = folder.path().join("eval.yaml");
    let mut server = ServerProcess::start();
    for (text, error) in table {
        fs::write(&path, text).unwrap();
        let shown = String::from_utf8_lossy(text.get(..40).unwrap_or(text)).into_owned();
        let valid = server.ask("eval.validate", json!({ "path": path }));
        assert_eq!(valid["result"]["valid"], false, "{shown}: {valid}");
        let errors = valid["result"]["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 1, "{valid}");
        assert!(errors[0].as_str().unwrap().starts_with(error), "{shown}: {valid}");
        let got = server.ask("eval.get", json!({ "path": folder.path() }));
        assert_eq!(
            (&got["error"]["code"], &got["error"]["data"]["errors"]),
            (&json!(-32001), &valid["result"]["errors"])
        );
    }
    // What is not a file at all is not waited for.
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let valid = server.ask("eval.validate", json!({ "path": path }));
    assert_eq!(valid["result"]["errors"], json!(["Cannot be read: not a regular file (eval.yaml)"]));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(server.ask("eval.get", json!({ "path": path }))["error"]["code"], -32000);
    std::os::unix::fs::symlink(folder.path(), path.join("eval.yaml")).unwrap();
    let listed = server.ask("eval.list", json!({ "directory": folder.path() }));
    assert_eq!(listed["result"]["evals"], json!([]), "{listed}");
}

#[test]
fn what_editors_leave_in_files_does_no_harm() {
    let folder = folder(&[
        (
            "eval.yaml",
            "\u{feff}%YAML 1.2\r\n---\r\npath: ours\r\nname: é\r\nversion: 1.10\r\nskill: yes\r\n\
             base: &b { trials_per_task: 2 }\r\nconfig: { <<: *b, executor: mock }\r\ntasks: [\"*.yaml\"]\r\n...\r\n",
        ),
        ("task.yaml", "\u{feff}id: t\r\nprompt: |\r\n  one\r\n  two\r\n"),
        ("suite.yaml", "\u{feff}tasks: [task.yaml]\nname: s\n"),
    ]);
    // Of a pattern that takes in the eval itself, that is not a task.
    fs::remove_file(folder.path().join("suite.yaml")).unwrap();
    let mut server = ServerProcess::start();
    let path = folder.path().join("eval.yaml");
    let got = server.ask("eval.get", json!({ "path": path }))["result"].clone();
    assert_eq!(
        (&got["path"], &got["name"], &got["version"], &got["skill"]),
        (&json!(path), &json!("é"), &json!("1.10"), &json!("yes")),
        "{got}"
    );
    assert_eq!(got["config"], json!({ "trials_per_task": 2, "executor": "mock", "timeout_seconds": 300 }));
    assert_eq!(server.ask("eval.validate", json!({ "path": path }))["result"]["valid"], true);
    let task = server.ask("task.get", json!({ "path": path, "taskId": "t" }))["result"].clone();
    assert_eq!(task["prompt"], "one\ntwo\n");
    fs::write(folder.path().join("suite.yaml"), "\u{feff}tasks: [task.yaml]\nname: s\n").unwrap();
    let listed = server.ask("eval.list", json!({ "directory": folder.path() }))["result"]["evals"].clone();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|eval| eval["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["é", "s"]);
}

#[test]
fn the_rigs_evals_pass_on_the_simulated_rig_and_the_one_that_is_to_fail_fails() {
    let out = tempfile::tempdir().unwrap();
    let (junit, json) = (out.path().join("junit.xml"), out.path().join("run.json"));
    for (eval, code, passed, total) in
        [("rails", 0, 3, 3), ("boot", 0, 3, 3), ("first-bench", 0, 2, 2), ("values", 0, 4, 4), ("broken", 1, 0, 3)]
    {
        let path = rig_evals().join(eval);
        let (exit, stdout, stderr) = run(command(&["eval", "run", "--target", "sim"])
            .arg(&path)
            .arg("--runs")
            .arg(out.path())
            .arg("--junit")
            .arg(&junit)
            .arg("--json-file")
            .arg(&json));
        assert_eq!(exit, Some(code), "{eval}: {stdout}{stderr}");
        assert!(stdout.contains(&format!("{passed} of {total} tasks passed")), "{stdout}");
        assert!(!stderr.contains('\u{1b}'), "plain lines where there is no terminal: {stderr}");
        let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(report["runs"][0]["summary"]["passed"], passed);
        assert_eq!(fs::read_to_string(&junit).unwrap().matches("<testcase").count(), total);
    }
    let (exit, stdout, _) =
        run(command(&["eval", "run", "--filter", "3v3", "--runs"]).arg(out.path()).arg(rig_evals().join("rails")));
    assert_eq!((exit, stdout.contains("1 of 1 tasks passed")), (Some(0), true), "{stdout}");
    let (exit, stdout, _) = run(command(&["eval", "list", "--json"]).arg(rig_evals()));
    let listed: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((exit, listed["evals"].as_array().unwrap().len()), (Some(0), 5));
    assert_eq!(run(command(&["eval", "validate"]).arg(rig_evals())).0, Some(0));
    assert_eq!(run(&mut command(&["eval", "validate", "/no/such/eval.yaml"])).0, Some(2));
    assert_eq!(run(&mut command(&["eval", "run", "/no/such/eval.yaml"])).0, Some(2));
}

#[test]
fn the_shipped_schemas_take_what_is_valid_and_refuse_what_is_not() {
    let schema = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../eval/schemas").join(name);
        serde_json::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let task_schema = schema("task.schema.json");
    let task = jsonschema::validator_for(&task_schema).unwrap();
    let mut eval_schema = schema("eval.schema.json");
    // As an editor would, by the folder that both stand in.
    let text = eval_schema.to_string().replace("task.schema.json", "#/$defs/task");
    let text = text.replace("#/$defs/task#/$defs/", "#/$defs/");
    eval_schema = serde_json::from_str(&text).unwrap();
    eval_schema["$defs"] = task_schema["$defs"].clone();
    eval_schema["$defs"]["task"] = task_schema.clone();
    let eval = jsonschema::validator_for(&eval_schema).unwrap();
    let options = || serde_saphyr::options! { strict_booleans: true };
    let yaml = |text: &str| serde_saphyr::from_str_with_options::<Value>(text, options()).unwrap();
    let mut seen = 0;
    for folder in ["rails", "boot", "first-bench", "values", "broken"] {
        let path = rig_evals().join(folder);
        assert!(eval.is_valid(&yaml(&fs::read_to_string(path.join("eval.yaml")).unwrap())), "{folder}");
        for entry in fs::read_dir(path.join("tasks")).unwrap() {
            let path = entry.unwrap().path();
            let text = yaml(&fs::read_to_string(&path).unwrap());
            let errors: Vec<_> = task.iter_errors(&text).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", path.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 15);
    for bad in [
        "name: x",
        "tasks: [a]",
        "name: x\ntasks: []",
        "name: x\ntasks: [a]\nconfig: { executor: nope }",
        "name: x\ntasks: [a]\nmetrics: 1",
    ] {
        assert!(!eval.is_valid(&yaml(bad)), "{bad}");
    }
    // Placeholders that are the whole of a value stand where numbers, truth values and durations do.
    for good in [
        "id: x\nfor: [{ low: 1 }]\nsteps: [{ operation: a, measure: { output: v, low: \"{{for.low}}\", high: \"{{inputs.high}}\" } }]",
        "id: x\nmatrix: { v: [true] }\nmock: { fail: \"{{matrix.v}}\" }\ntimeout: \"{{vars.v}}\"",
        "id: x\ngraders: [{ type: output_range, min: \"{{ for.low }}\", max: \"{{.Vars.max}}\", weight: \"{{env.W}}\" }]",
    ] {
        let text = yaml(good);
        let errors: Vec<_> = task.iter_errors(&text).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{good}: {errors:?}");
    }
    assert!(eval.is_valid(&yaml("name: x\ntasks: [a]\nmatrix: { n: [1] }\nfor: [{ a: 1 }]")));
    assert!(!eval.is_valid(&yaml("name: x\ntasks: [a]\nmatrix: { n: [] }")));
    for bad in [
        "id: x\nmock: { fail: \"{{steps.a.message}}\" }",
        "name: x",
        "id: x\nsteps: [{ id: a }]",
        "id: x\ngraders: [{ type: magic }]",
        "id: x\nsteps: [{ operation: a, phase: b }]",
    ] {
        assert!(!task.is_valid(&yaml(bad)), "{bad}");
    }
}

#[test]
fn steps_hand_on_outputs_and_the_extension_is_told_the_context() {
    let folder = folder(&[
        ("telltale.py", TELLTALE),
        (
            "task.yaml",
            "id: t\ninputs: { prompt: \"say {{steps.first.outputs.said}}\" }\nsteps:\n\
             \x20 - { id: last, phase: cleanup, operation: clean, args: { text: \"{{steps.second.message}}\" } }\n\
             \x20 - { id: first, phase: setup, operation: echo, args: { text: 3V3 } }\n\
             \x20 - { id: second, phase: verify, operation: echo, args: { text: \"rail {{steps.first.outputs.said}}\", n: 1 }, timeout: 2s }\n\
             graders:\n  - { type: output_equals, step: second, output: said, value: rail 3V3 }\n\
             \x20 - { type: output_contains, config: { value: SAY 3V3, ignore_case: true } }\n\
             \x20 - { type: file_exists, path: telltale.py }\n  - { type: code, config: { assertions: [\"True\"] } }\n",
        ),
    ]);
    let script = folder.path().join("telltale.py");
    fs::write(
        folder.path().join("eval.yaml"),
        format!(
            "name: context\nconfig: {{ executor: command, command: [cat], target: \"exec:python3 '{}'\", env: {{ RAIL: 3V3 }} }}\ntasks: [task.yaml]\n",
            script.display()
        ),
    )
    .unwrap();
    let runs = tempfile::tempdir().unwrap();
    let (exit, stdout, stderr) =
        run(command(&["eval", "run", "--runs"]).arg(runs.path()).arg(folder.path().join("eval.yaml")));
    assert_eq!(exit, Some(0), "{stdout}{stderr}");
    assert!(stderr.contains("grader code: graders of type code are not supported here"), "{stderr}");
    let calls: Vec<Value> = fs::read_to_string(folder.path().join("calls"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let phases: Vec<_> = calls.iter().map(|call| call["context"]["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["setup", "verify", "cleanup"]);
    let second = &calls[1];
    assert_eq!(second["args"], json!({ "text": "rail 3V3", "n": 1 }));
    assert_eq!(second["context"]["timeout"], "2s");
    assert_eq!(second["context"]["env"], json!({ "RAIL": "3V3" }));
    assert_eq!(second["context"]["workdir"], json!(folder.path()));
    assert_eq!(second["context"]["agent"]["output"], "say 3V3");
    assert_eq!(calls[2]["args"]["text"], "done");
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_it_started() {
    let folder = folder(&[
        (
            "eval.yaml",
            "name: c\nconfig: { executor: command, command: [sh, -c, 'sleep 60 & echo $! > pid; wait'], timeout_seconds: 0.5 }\ntasks: [t.yaml]\n",
        ),
        ("t.yaml", "id: t\nprompt: x\n"),
        (
            "fails.yaml",
            "name: f\nconfig: { executor: command, command: 'sh -c \"echo oops >&2; exit 3\"' }\ntasks: [t.yaml]\n",
        ),
    ]);
    let runs = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let (exit, stdout, _) =
        run(command(&["eval", "run", "--runs"]).arg(runs.path()).arg(folder.path().join("eval.yaml")));
    assert_eq!(exit, Some(124));
    assert!(stdout.contains("timeout") && start.elapsed() < Duration::from_secs(20), "{stdout}");
    let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
    let is_there = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "));
    wait_until("the command's child is gone", || !is_there());
    let (exit, stdout, stderr) =
        run(command(&["eval", "run", "--runs"]).arg(runs.path()).arg(folder.path().join("fails.yaml")));
    assert_eq!(exit, Some(1));
    assert!(stdout.contains("exit status: 3") && stderr.contains("oops"), "{stdout}{stderr}");
}

/// Whether a process is there and alive.
fn is_alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
#[cfg(target_os = "linux")]
fn a_command_ends_with_a_server_that_is_killed() {
    let folder = folder(&[
        (
            "eval.yaml",
            "name: c\nconfig: { executor: command, command: [sh, -c, 'sleep 60 & echo $! $$ > new; mv new pids; wait'] }\ntasks: [t.yaml]\n",
        ),
        ("t.yaml", "id: t\nprompt: x\n"),
    ]);
    let mut server = ServerProcess::start();
    server.ask("eval.run", json!({ "path": folder.path() }));
    let pids = folder.path().join("pids");
    wait_until("it runs", || pids.exists());
    let pids = fs::read_to_string(pids).unwrap();
    assert!(pids.split_whitespace().all(is_alive));
    server.child.kill().unwrap();
    wait_until("it has ended, and what it has started too", || !pids.split_whitespace().any(is_alive));
}

#[test]
fn a_command_ends_as_it_does_without_a_leash() {
    let table = [
        ("[cat]", "", 0, ""),
        // What it leaves behind keeps its output open.
        ("[sh, -c, 'cat; sleep 60 &']", "", 0, ""),
        ("[sh, -c, 'cat > file; cat file']", "", 0, ""),
        ("[./tool.sh]", "", 0, ""),
        ("[sh, -c, 'exit 3']", "", 1, "`sh` ended with exit status: 3"),
        ("[sh, -c, 'kill -SEGV $$']", "", 1, "`sh` ended with signal: 11 (SIGSEGV)"),
        ("[sh, -c, 'kill -KILL $$']", "", 1, "`sh` ended with signal: 9 (SIGKILL)"),
        ("[/no/such/program, x]", "", 1, "`/no/such/program` cannot be started"),
        ("[no-such-program]", "", 1, "`no-such-program` cannot be started"),
        ("['']", "", 1, "`` cannot be started"),
        ("[sh]", ", env: { PATH: /no/such }", 1, "`sh` cannot be started"),
    ];
    let runs = tempfile::tempdir().unwrap();
    for (words, env, code, why) in table {
        let eval = format!(
            "name: c\nconfig: {{ executor: command, command: {words}, timeout_seconds: 20{env} }}\ntasks: [t.yaml]\n"
        );
        let tool = if words.contains("tool") { "#!/bin/sh\ncat\n" } else { "" };
        let task = "id: t\nprompt: hello\ngraders: [{ type: output_equals, value: hello }]\n";
        let folder = folder(&[("eval.yaml", &eval), ("t.yaml", task)]);
        executable::script(folder.path(), "tool.sh", tool);
        let start = Instant::now();
        let (exit, stdout, stderr) = run(command(&["eval", "run", "--runs"]).arg(runs.path()).arg(folder.path()));
        assert_eq!(exit, Some(code), "{words}: {stdout}{stderr}");
        assert!(stderr.contains(why), "{words}: {stderr}");
        assert!(start.elapsed() < Duration::from_secs(15), "{words}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_goes_on_when_nobody_reads_what_is_said_of_it() {
    let folder = hanging();
    fs::write(
        folder.path().join("task.yaml"),
        "id: t\nsteps:\n  - { operation: echo }\n  - { phase: cleanup, operation: clean }\n",
    )
    .unwrap();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let runs = tempfile::tempdir().unwrap();
    let mut run = command(&["eval", "run", "--runs"]);
    run.arg(runs.path()).arg(folder.path()).stdout(full()).stderr(full());
    // The run goes on, and that its results could not be written is a failure (uutils/coreutils#9782, uutils/coreutils#9877).
    assert_eq!(run.status().unwrap().code(), Some(1));
    assert!(folder.path().join("clean").exists());
    for args in [["eval", "list"], ["eval", "validate"]] {
        assert_eq!(command(&args).arg(folder.path()).stdout(full()).status().unwrap().code(), Some(1), "{args:?}");
    }
}

#[test]
fn tasks_run_side_by_side_where_each_worker_has_a_process() {
    let folder = folder(&[
        ("eval.yaml", "name: p\nconfig: { executor: extension, target: sim, parallel: 4 }\ntasks: [\"t*.yaml\"]\n"),
        ("t1.yaml", "id: a\nsteps: [{ id: w, operation: press, args: { button: USER, ms: 2000 } }]\n"),
        ("t2.yaml", "id: b\nsteps: [{ id: w, operation: press, args: { button: USER, ms: 2000 } }]\n"),
        ("t3.yaml", "id: c\nsteps: [{ id: w, operation: press, args: { button: USER, ms: 2000 } }]\n"),
        ("t4.yaml", "id: d\nsteps: [{ id: w, operation: press, args: { button: USER, ms: 2000 } }]\n"),
    ]);
    let runs = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let (exit, stdout, stderr) = run(command(&["eval", "run", "--runs"]).arg(runs.path()).arg(folder.path()));
    assert_eq!(exit, Some(0), "{stdout}{stderr}");
    assert!(start.elapsed() < Duration::from_secs(7), "{:?}", start.elapsed());
}

#[test]
fn a_cancel_is_answered_and_the_operation_stopped_within_100_ms_then_cleanup_then_complete() {
    let folder = hanging();
    let mut server = ServerProcess::start();
    let id = server.ask("eval.run", json!({ "path": folder.path() }))["result"]["runId"].as_str().unwrap().to_owned();
    while server.line()["params"]["message"] != "hanging" {}
    let alive = || fs::read_to_string(folder.path().join("alive")).unwrap_or_default();
    wait_until("it hangs", || !alive().is_empty());

    server.send(&request(9, "run.cancel", &json!({ "runId": id })));
    let asked = Instant::now();
    let mut lines = vec![server.line()];
    while lines.last().unwrap()["id"] != 9 {
        lines.push(server.line());
    }
    let answered = asked.elapsed();
    assert_eq!(lines.last().unwrap()["result"], json!({ "runId": id, "status": "cancelled" }));
    assert!(answered < Duration::from_millis(100), "answered after {answered:?}");
    thread::sleep(Duration::from_millis(100).saturating_sub(asked.elapsed()));
    let stopped = alive();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(alive().len(), stopped.len(), "it goes on after 100 ms");

    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &Value| line["method"] != "eval.complete") {
        lines.push(server.line());
    }
    assert!(folder.path().join("clean").exists(), "cleanup comes before eval.complete");
    assert_eq!(lines.last().unwrap()["params"], json!({ "runId": id, "error": "Eval execution cancelled" }));
    let again = server.ask("run.cancel", json!({ "runId": id }));
    assert_eq!(again["result"], json!({ "runId": id, "status": "cancelled" }));
    assert!(server.end().is_empty(), "nothing comes for a run that is complete");
}

#[test]
fn ctrl_c_cancels_a_run_at_the_shell_and_cleans_up() {
    let folder = hanging();
    let runs = tempfile::tempdir().unwrap();
    let child = command(&["eval", "run", "--runs"])
        .arg(runs.path())
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it hangs", || folder.path().join("alive").exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let Output { status, stdout, .. } = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(folder.path().join("clean").exists());
    assert!(String::from_utf8_lossy(&stdout).contains("Eval execution cancelled"));
}

#[test]
fn a_run_whose_process_was_killed_has_failed_with_what_was_done() {
    let folder = slow();
    let mut server = ServerProcess::start();
    let id = server.ask("eval.run", json!({ "path": folder.path() }))["result"]["runId"].clone();
    while server.line()["params"]["event"] != "task_complete" {}
    // Another process leaves a run alone whose owner lives.
    let mut other = Command::new(RIGLINE)
        .arg("jsonrpc")
        .arg("--runs")
        .arg(server.runs.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = other.stdin.take().unwrap();
    writeln!(input, "{}", request(1, "run.status", &json!({ "runId": id }))).unwrap();
    drop(input);
    let said = message(&mut BufReader::new(other.stdout.take().unwrap())).unwrap();
    assert_eq!(said["result"]["status"], "running");
    other.wait().unwrap();

    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let runs = std::mem::replace(&mut server.runs, tempfile::tempdir().unwrap());
    let mut server = ServerProcess::with_runs(runs);
    let status = server.ask("run.status", json!({ "runId": id }))["result"].clone();
    assert_eq!(status["status"], "failed");
    assert_eq!(
        (&status["result"]["total"], &status["result"]["passed"], &status["result"]["failed"]),
        (&json!(3), &json!(1), &json!(0))
    );
    assert!(status["error"].as_str().unwrap().contains("1 of 3 tasks"), "{status}");
}

#[test]
fn a_reply_comes_before_the_first_notification_of_its_run_in_a_batch_too() {
    let folder = azure();
    let path = folder.path().join("azure-functions/eval.yaml");
    let mut server = ServerProcess::start();
    let run = |id| json!({ "jsonrpc": "2.0", "id": id, "method": "eval.run", "params": { "path": path } });
    let unread = json!({ "jsonrpc": "2.0", "method": "eval.run", "params": { "path": path } });
    server.send(&json!([run(1), run(2), { "jsonrpc": "2.0", "id": 3, "method": "nope" }, unread]).to_string());
    let batch = server.line();
    let ids: Vec<_> = batch.as_array().unwrap().iter().map(|reply| reply["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3]);
    // End of input with runs in hand: they are finished.
    let lines = server.end();
    let complete = lines.iter().filter(|line| line["method"] == "eval.complete").count();
    assert_eq!(complete, 3, "the run that a notification started too");
}

#[test]
fn twenty_clients_have_a_hundred_runs_and_each_hears_of_its_own_only() {
    let folder = folder(&[
        ("eval.yaml", "name: q\nconfig: { executor: mock }\ntasks: [t.yaml, u.yaml]\n"),
        ("t.yaml", "id: t\nmock: { delay: 20ms }\n"),
        ("u.yaml", "id: u\nmock: { delay: 20ms }\n"),
    ]);
    let server = TcpServer::start();
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = server.connect();
                for id in 1..=5 {
                    client.send(&(request(id, "eval.run", &json!({ "path": folder.path() })) + "\n"));
                }
                let (mut own, mut events, mut complete) =
                    (HashSet::new(), HashMap::<String, Vec<String>>::new(), HashSet::new());
                while complete.len() < 5 {
                    let line = message(&mut client.output).unwrap();
                    if let Some(id) = line["result"]["runId"].as_str() {
                        assert_eq!(line["result"]["status"], "running");
                        own.insert(id.to_owned());
                        continue;
                    }
                    let run = line["params"]["runId"].as_str().unwrap().to_owned();
                    assert!(own.contains(&run), "before its reply, or somebody else's");
                    assert!(!complete.contains(&run), "after its end");
                    if line["method"] == "eval.complete" {
                        assert_eq!(line["params"]["summary"]["passed"], 2);
                        complete.insert(run);
                        done.fetch_add(1, Ordering::Relaxed);
                    } else if let Some(event) = line["params"]["event"].as_str() {
                        events.entry(run).or_default().push(event.to_owned());
                    }
                }
                let task = ["task_start", "trial_start", "trial_complete", "task_complete"];
                let expected = [&["run_start"], &task[..], &task, &["run_complete"]].concat();
                assert!(events.values().all(|events| *events == expected), "{events:?}");
            });
        }
    });
    assert_eq!(done.into_inner(), 100);
    assert_eq!(fs::read_dir(server.runs.path()).unwrap().count(), 100);
}

#[test]
fn connections_end_as_they_should() {
    let folder = azure();
    let path = folder.path().join("azure-functions/eval.yaml");
    let sleeper = slow();
    let server = TcpServer::start();

    // One that closes its sending half gets all replies, its run's end too, and then the end.
    let mut client = server.connect();
    for id in 1..=3 {
        client.send(&(request(id, "eval.validate", &json!({ "path": path })) + "\n"));
    }
    client.send(&request(4, "eval.run", &json!({ "path": path })));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let lines = client.rest();
    assert_eq!(lines.iter().filter(|line| line["result"]["valid"] == true).count(), 3);
    assert_eq!(lines.last().unwrap()["method"], "eval.complete");

    // One that goes away stops no run, and others may ask about it and cancel it.
    let mut client = server.connect();
    let id = client.ask("eval.run", &json!({ "path": sleeper.path() }))["result"]["runId"].clone();
    drop(client);
    let mut other = server.connect();
    assert_eq!(other.ask("run.status", &json!({ "runId": id }))["result"]["status"], "running");
    assert_eq!(other.ask("run.cancel", &json!({ "runId": id }))["result"]["status"], "cancelled");

    // HTTP is refused, and nothing behind it is executed.
    let before = fs::read_dir(server.runs.path()).unwrap().count();
    let heads = [
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "\r\nPOST\t/\tHTTP/1.1\r\n\r\n",
        "get / http/1.1\n\n",
        "M-SEARCH * HTTP/1.1\r\n\r\n",
        // One whose first line is too long to be examined as a whole.
        &format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(9 << 20)),
    ];
    for head in heads {
        let mut client = server.connect();
        client.send(&(head.to_owned() + &request(1, "eval.run", &json!({ "path": path })) + "\n"));
        let lines = client.rest();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!((&lines[0]["error"]["code"], &lines[0]["id"]), (&json!(-32600), &Value::Null));
    }
    assert_eq!(fs::read_dir(server.runs.path()).unwrap().count(), before);

    // A bad line costs one error, and telnet's greeting no more.
    let mut client = server.connect();
    client.stream.write_all(b"\xff\xfd\x03\xff\xfb\x18{\"jsonrpc\":\"2.0\"}\r\n").unwrap();
    assert_eq!(message(&mut client.output).unwrap()["error"]["code"], -32700);
    assert_eq!(client.ask("eval.validate", &json!({ "path": path }))["result"]["valid"], true);
}

#[test]
#[ignore = "takes as long as the server's patience"]
fn one_that_does_not_read_is_dropped() {
    let folder = azure();
    let server = TcpServer::start();
    let mut client = server.connect();
    let line = request(1, "eval.list", &json!({ "directory": folder.path() })) + "\n";
    client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let start = Instant::now();
    // Until the server reads no more, and then until it closes.
    loop {
        match client.stream.write_all(line.repeat(100).as_bytes()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        assert!(start.elapsed() < Duration::from_secs(60), "still there");
    }
    assert!(server.connect().ask("eval.list", &json!({ "directory": folder.path() }))["result"]["evals"].is_array());
}

/// A folder with `waza` in it, which is this program; and `examples`, the rig's evals.
fn waza() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(RIGLINE, folder.path().join("waza")).unwrap();
    copy(&rig_evals(), &folder.path().join("examples"));
    folder
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// Runs a program as if it stood in the text: `waza` is in PATH, and the current folder has `examples`.
fn as_printed(folder: &Path, program: &str, args: &[&str]) -> Option<(String, String)> {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let child = Command::new(program)
        .args(args)
        .current_dir(folder)
        .env("PATH", path)
        .env("XDG_STATE_HOME", folder.join("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let remedy = if program == "nc" { "apt-get install netcat-openbsd" } else { "install it" };
            rigline_test_support::skipped("examples of waza's text", &format!("there is no {program}"), remedy);
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    Some((String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap()))
}

/// A client of the text, for this eval and executor.
fn client(name: &str, eval: &Path) -> String {
    let text = fs::read_to_string(repository().join("tests/peers/waza").join(name)).unwrap();
    text.replace("/path/to/eval.yaml", &eval.to_string_lossy()).replace("copilot-sdk", "extension")
}

#[test]
fn the_texts_python_client_runs_an_eval() {
    let folder = waza();
    let script = folder.path().join("client.py");
    fs::write(&script, client("client.py", &folder.path().join("examples/rails/eval.yaml"))).unwrap();
    let Some((stdout, stderr)) = as_printed(folder.path(), "python3", &["client.py"]) else { return };
    assert!(stdout.starts_with("Started run: "), "{stdout}{stderr}");
    assert!(stdout.contains("'summary': {'total': 3, 'passed': 3, 'failed': 0, 'passRate': 1.0}"), "{stdout}{stderr}");
    let runs = folder.path().join("state/rigline/runs");
    assert_eq!(fs::read_dir(runs).unwrap().count(), 1, "kept among the user's state");
}

#[test]
fn the_texts_typescript_client_gets_single_replies_and_with_a_line_splitter_runs() {
    let folder = waza();
    let eval = folder.path().join("examples/rails/eval.yaml");
    // As printed, but that it says what it got, and comes to an end.
    let single = client("client.mjs", &eval).replace("'eval.run'", "'eval.get'").replace(
        "  if (message.method",
        "  console.log(JSON.stringify(message)); waza.stdin.end();\n  if (message.method",
    );
    fs::write(folder.path().join("single.mjs"), single).unwrap();
    let Some((stdout, stderr)) = as_printed(folder.path(), "node", &["single.mjs"]) else { return };
    let reply: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    assert_eq!((&reply["id"], &reply["result"]["name"]), (&json!(1), &json!("rails")));

    fs::write(folder.path().join("run.mjs"), client("client-run.mjs", &eval)).unwrap();
    let (stdout, stderr) = as_printed(folder.path(), "node", &["run.mjs"]).unwrap();
    assert!(stdout.starts_with("running\neval.progress\n"), "{stdout}{stderr}");
    assert!(
        stdout.trim_end().ends_with(r#""summary":{"total":3,"passed":3,"failed":0,"passRate":1}}"#),
        "{stdout}{stderr}"
    );
}

#[test]
fn the_texts_pipe_and_nc_lines_list_the_rigs_evals() {
    const LINE: &str = r#"echo '{"jsonrpc":"2.0","id":1,"method":"eval.list","params":{"directory":"./examples"}}' | "#;
    let folder = waza();
    let names = |stdout: &str| {
        let reply: Value = serde_json::from_str(stdout).unwrap_or_else(|_| panic!("{stdout}"));
        let evals = reply["result"]["evals"].as_array().unwrap().clone();
        evals
            .iter()
            .map(|eval| (eval["name"].as_str().unwrap().to_owned(), eval["path"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let expected = [
        ("boot-and-button", "./examples/boot/eval.yaml"),
        ("built-to-fail", "./examples/broken/eval.yaml"),
        ("first-bench", "./examples/first-bench/eval.yaml"),
        ("rails", "./examples/rails/eval.yaml"),
        ("values", "./examples/values/eval.yaml"),
    ]
    .map(|(name, path)| (name.to_owned(), path.to_owned()));
    let (stdout, _) = as_printed(folder.path(), "sh", &["-c", &format!("{LINE}waza jsonrpc")]).unwrap();
    assert_eq!(names(&stdout), expected);

    let mut server = Command::new(RIGLINE)
        .args(["jsonrpc", "--tcp", "localhost:0", "--no-token"])
        .current_dir(folder.path())
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().rsplit(':').next().unwrap().to_owned();
    if as_printed(folder.path(), "nc", &["-h"]).is_some() {
        let (stdout, stderr) =
            as_printed(folder.path(), "sh", &["-c", &format!("{LINE}timeout 5 nc localhost {port}")]).unwrap();
        assert!(!stdout.is_empty(), "{stderr}");
        assert_eq!(names(&stdout), expected);
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn our_own_server_passes_the_check_for_anyones() {
    let runs = tempfile::tempdir().unwrap();
    let target = format!("exec:{RIGLINE} jsonrpc --root / --runs '{}'", runs.path().display());
    let (exit, stdout, stderr) = run(&mut command(&["check", "--protocol", "waza", &target]));
    assert_eq!(exit, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("24 passed, 0 failed, 0 skipped"), "{stdout}");

    let server = TcpServer::start();
    let (exit, stdout, stderr) =
        run(&mut command(&["check", "--protocol", "waza", &format!("tcp:localhost:{}", server.port)]));
    assert_eq!(exit, Some(0), "{stdout}{stderr}");
    // One that is none fails.
    let (exit, stdout, _) =
        run(&mut command(&["check", "--protocol", "waza", "--patience", "1s", "--case", "eval.list", "exec:cat"]));
    assert_eq!(exit, Some(1), "{stdout}");
}

#[test]
fn what_cannot_be_read_from_the_input_is_answered_and_the_rest_goes_on() {
    // CR LF, a byte-order mark, escapes beyond ASCII, and a last line without its end.
    let folder = azure();
    let mut server = ServerProcess::start();
    let escaped = request(7, "eval.list", &json!({ "directory": "ä\u{1F600}" }))
        .replace('ä', "\\u00e4")
        .replace('\u{1F600}', "\\ud83d\\ude00");
    let input = server.input.as_mut().unwrap();
    write!(input, "\u{feff}{}\r\n\r\n{escaped}\r\n", request(6, "eval.list", &json!({ "dir": folder.path() })))
        .unwrap();
    write!(input, "{}", request(8, "eval.list", &json!({ "directory": folder.path() }))).unwrap();
    let lines = server.end();
    let ids: Vec<_> = lines.iter().map(|line| line["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [6, 7, 8]);
    assert_eq!(lines[1]["error"]["data"]["path"], "ä\u{1F600}");
}

#[test]
fn output_goes_nowhere_when_nobody_reads_it_and_the_run_is_finished() {
    let folder = azure();
    let mut server = ServerProcess::start();
    let id =
        server.ask("eval.run", json!({ "path": folder.path().join("azure-functions/eval.yaml") }))["result"]["runId"]
            .as_str()
            .unwrap()
            .to_owned();
    let ServerProcess { child, input, output, runs } = &mut server;
    // The reader is gone.
    let gone = std::mem::replace(
        output,
        BufReader::new(Command::new("true").stdout(Stdio::piped()).spawn().unwrap().stdout.take().unwrap()),
    );
    drop(gone);
    drop(input.take());
    assert!(child.wait().unwrap().success());
    let mut text = String::new();
    fs::File::open(runs.path().join(format!("{id}.jsonl"))).unwrap().read_to_string(&mut text).unwrap();
    assert!(text.lines().last().unwrap().starts_with("{\"end\":{\"state\":\"completed\""), "{text}");
}

/// An extension whose operation `op` answers with its arguments as outputs, texts as they are and the rest as JSON, and notes what it got.
const ECHO: &str = r#"#!/usr/bin/env python3
import json, os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
schema = json.load(open(os.path.join(folder, "schema.json"))) if os.path.exists(os.path.join(folder, "schema.json")) else True
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params") or {}
    result = {}
    if method == "initialize":
        result = {"name": "echo", "version": "1", "protocolVersion": "0.0.1", "operations": {"op": {"params": schema}, "slow": {"params": True}, "bad": {"params": True}}}
    elif method == "execute":
        with open(os.path.join(folder, "got"), "a") as file:
            file.write(line)
        if params["operation"] == "slow":
            time.sleep(60)
        args = params.get("args") or {}
        outputs = {name: value if isinstance(value, str) else json.dumps(value) for name, value in args.items()}
        result = {"success": params["operation"] != "bad", "message": "done", "outputs": outputs}
        if params["operation"] == "bad":
            result["error"] = "no\uffff\u001b[31m\u0000\u007f\u0085\ufffe&<"
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
    if method == "shutdown":
        break
"#;

/// An eval with one task over [`ECHO`], whose rest is this.
fn echo(task: &str, more: &[(&str, &str)]) -> TempDir {
    let folder = folder(more);
    executable::script(folder.path(), "echo.py", ECHO);
    let eval = format!("name: x\nconfig: {{ target: \"exec:./echo.py\" }}\ntasks:\n  - id: t\n{task}");
    if !folder.path().join("eval.yaml").exists() {
        fs::write(folder.path().join("eval.yaml"), eval).unwrap();
    }
    folder
}

/// The outcome of `eval run` of a folder's eval: its exit code, the JSON value, standard error.
fn outcome(folder: &Path, args: &[&str]) -> (Option<i32>, Value, String) {
    let runs = tempfile::tempdir().unwrap();
    let (code, stdout, stderr) =
        run(command(&["eval", "run", "--json", "--runs"]).arg(runs.path()).arg(folder).args(args).current_dir("/"));
    let value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    (code, value, stderr)
}

/// Reports: karatelabs/karate#2974, skyscreamer/JSONassert#107, MRPT/mrpt#1401, mikefarah/yq#2792, wong2/mcp-cli#1, hyperware-ai/kit#232, TracerBench/tracerbench#42.
#[test]
fn values_reach_the_extension_and_the_graders_digit_by_digit() {
    let schema = r##"{"properties":{"s":{"type":"string"},"n":{"type":"integer"},"maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]},
        "ref":{"$ref":"#/$defs/n"},"mode":{"enum":[0,5]},"one":{"const":5},"list":{"type":"array","items":{"type":"integer"}}},"$defs":{"n":{"type":"integer"}}}"##;
    let task = "    steps:
      - { id: a, operation: op, args: { s: 00123, n: 010, big: 123456789012345678901234567890, v: 9007199254740993, c: '5' } }
      - { id: b, operation: op, args: { maybe: '{{steps.a.outputs.c}}', ref: '{{steps.a.outputs.c}}', mode: '{{steps.a.outputs.c}}', one: '{{steps.a.outputs.c}}', s: '{{steps.a.outputs.c}}', list: ['{{steps.a.outputs.c}}', 2] } }
    graders:
      - { type: output_equals, step: a, output: s, value: '00123' }
      - { type: output_equals, step: a, output: big, value: 123456789012345678901234567890 }
      - { type: output_equals, name: other, step: a, output: v, value: 9007199254740992 }
      - { type: output_range, name: below, step: a, output: v, max: 9007199254740992 }
";
    let folder = echo(task, &[("schema.json", schema)]);
    let (code, report, stderr) = outcome(folder.path(), &[]);
    let got = fs::read_to_string(folder.path().join("got")).unwrap();
    for part in [
        r#""args":{"s":"00123","n":10,"big":123456789012345678901234567890,"v":9007199254740993,"c":"5"}"#,
        r#""args":{"maybe":5,"ref":5,"mode":5,"one":5,"s":"5","list":[5,2]}"#,
    ] {
        assert!(got.contains(part), "{part} in {got}{stderr}");
    }
    let graders = report["runs"][0]["tasks"][0]["trials"][0]["graders"].as_array().unwrap();
    let status: Vec<_> = graders.iter().map(|grader| grader["status"].as_str().unwrap()).collect();
    assert_eq!((code, status), (Some(1), vec!["passed", "passed", "failed", "failed"]), "{report:#}");
}

/// Reports: EntityProcess/agentv#870, EntityProcess/agentv#871, Mnexa-AI/e2a#823.
#[test]
fn a_member_that_is_nearly_a_known_one_is_said_and_counted() {
    let task = "    step: []
    steps: [ { id: a, operation: op, arg: { v: 1 } } ]
    grader: [ { type: output_range, step: a, output: v, min: 99 } ]
    graders: [ { type: output_range, step: a, output: v, minimum: 1, max: 5, valu: 3 } ]
";
    let task = task.replace("arg: { v: 1 }", "args: { v: 1 }, timout: 5s");
    let eval = format!(
        "name: x\nconfig: {{ target: \"exec:./echo.py\", trials_per_tasks: 2, environmnt: {{}}, hooks: [] }}\nmetrics: {{ pass_treshold: 0.1 }}\nowner: me\ngrader: []\ntasks:\n  - id: t\n{task}"
    );
    let folder = echo("", &[("eval.yaml", &eval)]);
    let (code, report, stderr) = outcome(folder.path(), &[]);
    let warnings = report["runs"][0]["warnings"].as_array().unwrap();
    let text = warnings.iter().map(|text| text.as_str().unwrap()).collect::<Vec<_>>().join("\n");
    for (name, meant) in [
        ("trials_per_tasks", "trials_per_task"),
        ("environmnt", "env"),
        ("pass_treshold", "pass_threshold"),
        ("grader", "graders"),
        ("timout", "timeout"),
        ("minimum", "min"),
        ("valu", "value"),
    ] {
        if name != "environmnt" {
            assert!(
                text.contains(&format!("{name}: ")) && text.contains(&format!("did you mean `{meant}`?")),
                "{name} in {text}"
            );
        }
    }
    assert!(text.contains("hooks: not supported here") && !text.contains("owner"), "{text}");
    assert!(stderr.contains("eval.yaml:2: warning: trials_per_tasks"), "{stderr}");
    assert_eq!(code, Some(0), "{report:#}");
    // Strict reading takes them as errors.
    let (code, report, _) = outcome(folder.path(), &["--strict"]);
    assert_eq!((code, report["runs"].as_array().unwrap().len()), (Some(2), 0));
    let validate = |args: &[&str]| run(command(&["eval", "validate"]).arg(folder.path()).args(args));
    let (code, stdout, _) = validate(&[]);
    assert!(
        code == Some(0) && stdout.contains("warning: minimum") && stdout.contains(": valid, 10 warnings"),
        "{stdout}"
    );
    assert_eq!(validate(&["--strict"]).0, Some(1));
    // `arg` where there are no `args`.
    let folder = echo("    steps: [ { operation: op, arg: { v: 1 } } ]\n", &[]);
    let (_, stdout, _) = run(command(&["eval", "validate"]).arg(folder.path()));
    assert!(stdout.contains("arg: a step has no such member; did you mean `args`?"), "{stdout}");
}

#[test]
fn a_grader_that_can_never_fail_is_refused() {
    for (grader, is_valid) in [
        ("{ type: contains, value: \"\" }", false),
        ("{ type: contains, values: [a, \"\"] }", false),
        ("{ type: contains, values: [] }", false),
        ("{ type: not_contains, value: \"\" }", false),
        ("{ type: output_contains_any, values: [a, \"\"] }", false),
        ("{ type: text, config: { contains: [\"\"] } }", false),
        ("{ type: text }", false),
        ("{ type: regex, pattern: \"\" }", false),
        ("{ type: regex, must_match: [\"a*\"] }", false),
        ("{ type: regex, must_match: [\"(?s).*\"] }", false),
        ("{ type: regex, must_match: [\"x|\"] }", false),
        ("{ type: regex, must_match: [\"^\"] }", false),
        ("{ type: regex, must_not_match: [\".*\"] }", false),
        ("{ type: regex, must_match: [] }", false),
        ("{ type: output_range, output: v }", false),
        ("{ type: output_range, output: v, min: .inf }", false),
        ("{ type: output_equals, output: v }", false),
        ("{ type: max_duration }", false),
        ("{ type: file_exists, path: \".\" }", false),
        ("{ type: file_exists, path: \"\" }", false),
        ("{ type: file_exists, paths: [] }", false),
        ("{ type: file, must_exist: [] }", false),
        ("{ type: contains, value: a }", true),
        ("{ type: regex, must_match: [\"^$\"] }", true),
        ("{ type: regex, must_match: [\"a+\"] }", true),
        ("{ type: regex, must_not_match: [\"error\"] }", true),
        ("{ type: regex, must_match: [\"^[^@]*$\"] }", true),
        ("{ type: output_equals, output: v, value: \"\" }", true),
        ("{ type: file, must_not_exist: [gone] }", true),
    ] {
        let folder = folder(&[(
            "eval.yaml",
            &format!(
                "name: x\nconfig: {{ executor: mock }}\ntasks:\n  - id: t\n    prompt: p\n    graders: [ {grader} ]\n"
            ),
        )]);
        let (code, stdout, _) = run(command(&["eval", "validate"]).arg(folder.path()));
        assert_eq!(code == Some(0), is_valid, "{grader}: {stdout}");
    }
    for expected in ["output_contains: \"\"", "output_contains_any: [\"\"]", "output_contains: []"] {
        let text = format!(
            "name: x\nconfig: {{ executor: mock }}\ntasks: [ {{ id: t, prompt: p, expected: {{ {expected} }} }} ]\n"
        );
        let folder = folder(&[("eval.yaml", &text)]);
        assert_eq!(run(command(&["eval", "validate"]).arg(folder.path())).0, Some(1), "{expected}");
    }
}

#[test]
fn a_task_that_cannot_be_judged_is_skipped_and_never_passed() {
    let task = "    steps: [ { operation: op } ]\n    graders: [ { type: prompt, name: judge }, { type: diff } ]\n";
    let folder = echo(task, &[]);
    let junit = folder.path().join("made/j.xml");
    let (code, report, stderr) = outcome(folder.path(), &["--junit", junit.to_str().unwrap()]);
    let task = &report["runs"][0]["tasks"][0];
    assert_eq!((code, &task["status"], &report["runs"][0]["passed"]), (Some(1), &json!("skipped"), &json!(false)));
    assert!(task["error"].as_str().unwrap().starts_with("not judged: judge: graders of type prompt"), "{report:#}");
    assert_eq!(report["runs"][0]["summary"], json!({"total":1,"passed":0,"failed":0,"skipped":1,"passRate":0.0}));
    assert!(stderr.contains("skipped  t"), "{stderr}");
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("<skipped") && junit.contains("not judged"), "{junit}");
    let (code, stdout, _) = run(command(&["eval", "run", "--runs"]).arg(folder.path().join("runs")).arg(folder.path()));
    assert!(code == Some(1) && stdout.contains("0 of 1 tasks passed, 1 not judged"), "{stdout}");
    // A step that fails has failed, whatever the graders are.
    let folder = echo("    steps: [ { operation: bad } ]\n    graders: [ { type: prompt } ]\n", &[]);
    assert_eq!(outcome(folder.path(), &[]).1["runs"][0]["tasks"][0]["status"], "failed");
}

#[test]
fn text_and_file_graders_inputs_tables_and_task_entries() {
    let eval = r#"
name: x
inputs: { rail: 3V3, least: "3" }
config: { target: "exec:./echo.py", max_attempts: 2 }
tasks_from: rails.csv
range: [1, 2]
tasks:
  - file: tasks/one.yaml
    name: "{{.Vars.rail}} of {{.Vars.volts}}"
  - id: two
    steps: [ { id: a, operation: op, args: { rail: "{{.Vars.rail}}", volts: "{{.Vars.volts}}" } } ]
    graders:
      - { type: output_range, step: a, output: volts, min: "{{.Vars.least}}" }
"#;
    let one = r#"
id: one
steps: [ { id: a, operation: op, args: { rail: "{{.Vars.rail}}", volts: "{{.Vars.volts}}" } } ]
graders:
  - { type: text, config: { contains: ["RAIL: {{.Vars.rail}}", "DONE"], not_contains: [error], contains_cs: [done], not_contains_cs: [DONE], regex_match: ["volts: [0-9.]+"], regex_not_match: ["fail"] } }
  - { type: file, config: { must_exist: [notes.txt], must_not_exist: [gone.txt], content_patterns: [ { path: notes.txt, must_match: ["^hello"], must_not_match: [bye] } ] } }
  - { type: file, path: notes.txt, contains: [hello], not_contains: [bye] }
"#;
    let schema = r#"{"properties":{"rail":{"type":"string"},"volts":{"type":"number"}}}"#;
    let files = [
        ("eval.yaml", eval),
        ("tasks/one.yaml", one),
        ("schema.json", schema),
        ("notes.txt", "hello\n"),
        ("rails.csv", "rail,volts\n3V3,3.30\n\"5,0\",5.0\nnone,0\n"),
    ];
    let folder = echo("", &files);
    let (code, report, stderr) = outcome(folder.path(), &[]);
    assert_eq!(code, Some(0), "{report:#}{stderr}");
    let tasks: Vec<_> =
        report["runs"][0]["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect();
    assert_eq!(tasks, ["one-row-1", "two-row-1", "one-row-2", "two-row-2"]);
    assert_eq!(report["runs"][0]["tasks"][2]["name"], "5,0 of 5.0");
    let got = fs::read_to_string(folder.path().join("got")).unwrap();
    assert!(
        got.contains(r#""args":{"rail":"5,0","volts":5.0}"#) && got.contains(r#"{"rail":"3V3","volts":3.30}"#),
        "{got}"
    );
    // Another text in the file, and the graders see it; a FIFO keeps nobody waiting.
    fs::write(folder.path().join("notes.txt"), "hello, bye\n").unwrap();
    let (code, report, _) = outcome(folder.path(), &[]);
    let trial = &report["runs"][0]["tasks"][0]["trials"][0];
    assert_eq!((code, &trial["attempts"], &trial["graders"][1]["status"]), (Some(1), &json!(2), &json!("failed")));
    fs::remove_file(folder.path().join("notes.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("notes.txt")).status().unwrap().success());
    let (code, report, _) = outcome(folder.path(), &[]);
    assert!(code == Some(1) && report.to_string().contains("notes.txt: not a regular file"), "{report:#}");
}

#[test]
fn files_of_others_are_named_and_not_listed() {
    let table = [
        ("gevals/eval.yaml", "kind: Eval\nmetadata: { name: x }\nconfig: { taskSets: [] }\n", "an eval of gevals"),
        ("ci/eval.yml", "name: eval\non: [push]\njobs: { a: { steps: [] } }\n", "a CI workflow"),
        (
            "foo/promptfoo-eval.yaml",
            "description: x\nproviders: [a]\nprompts: [b]\ntests: []\n",
            "an eval of promptfoo",
        ),
        ("inspect/eval.yaml", "dataset: a.csv\nsolver: generate\nscorer: match\n", "an eval of Inspect"),
    ];
    let folder = folder(&table.map(|(path, text, _)| (path, text)));
    fs::create_dir(folder.path().join("ours")).unwrap();
    fs::write(
        folder.path().join("ours/eval.yaml"),
        "name: ours\nconfig: { executor: mock }\ntasks: [ { id: t, prompt: p } ]\n",
    )
    .unwrap();
    let (code, stdout, stderr) = run(command(&["eval", "list", "--json"]).arg(folder.path()));
    let listed: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, listed["evals"].as_array().unwrap().len()), (Some(0), 1), "{stdout}{stderr}");
    for (path, _, whose) in table {
        let (code, stdout, _) = run(command(&["eval", "validate"]).arg(folder.path().join(path)));
        assert!(
            code == Some(1) && stdout.contains("Not an eval of rigline: it is ") && stdout.contains(whose),
            "{stdout}"
        );
        let (code, _, stderr) =
            run(command(&["eval", "run", "--runs"]).arg(folder.path().join("r")).arg(folder.path().join(path)));
        assert!(code == Some(2) && stderr.contains(whose), "{stderr}");
    }
}

/// Reports: rust-lang/glob#62, python/cpython#88041, dduan/tre#141, olson-sean-k/wax#26.
#[test]
fn walks_end_and_odd_names_are_found() {
    use std::os::unix::ffi::OsStrExt as _;
    let root = folder(&[
        ("l/eval.yaml", "name: x\nconfig: { executor: mock }\ntasks: ['**/task-*.yaml']\n"),
        ("l/t/task-1.yaml", "id: a\nprompt: p\n"),
    ]);
    for link in ["a", "b"] {
        std::os::unix::fs::symlink("..", root.path().join("l/t").join(link)).unwrap();
    }
    let start = Instant::now();
    let (code, report, stderr) = outcome(&root.path().join("l"), &[]);
    assert_eq!((code, report["runs"][0]["summary"]["total"].as_u64()), (Some(0), Some(1)), "{stderr}");
    assert!(start.elapsed() < Duration::from_secs(20));
    // Names that are not UTF-8.
    let bad = root.path().join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    fs::create_dir_all(bad.join("t")).unwrap();
    fs::write(bad.join("eval.yaml"), "name: x\nconfig: { executor: mock }\ntasks: ['t/*.yaml']\n").unwrap();
    fs::write(bad.join("t").join(std::ffi::OsStr::from_bytes(b"\xfe.yaml")), "id: a\nprompt: p\n").unwrap();
    let (code, report, stderr) = outcome(&bad, &[]);
    assert_eq!((code, report["runs"][0]["summary"]["passed"].as_u64()), (Some(0), Some(1)), "{stderr}");
    // One link that leads nowhere is a warning.
    std::os::unix::fs::symlink("nowhere", root.path().join("l/dangling.yaml")).unwrap();
    let (code, stdout, stderr) = run(command(&["eval", "list"]).arg(root.path().join("l")));
    assert!(
        code == Some(0) && stdout.contains('x') && stderr.contains("warning: ") && stderr.contains("dangling.yaml"),
        "{stderr}"
    );
}

/// Reports: oven-sh/bun#41466, web-infra-dev/rstest#927.
#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let folder = echo("    steps: [ { operation: op } ]\n", &[("file", "x")]);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (code, report, _) = outcome(folder.path(), &["--json-file", &at("no/r.json"), "--junit", &at("no/more/j.xml")]);
    assert_eq!(code, Some(0), "{report:#}");
    assert!(
        fs::read_to_string(at("no/r.json")).unwrap().contains("runs")
            && fs::read_to_string(at("no/more/j.xml")).unwrap().contains("<testsuites")
    );
    fs::remove_file(at("got")).unwrap();
    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    for bad in [at("file/r.json"), at("fifo"), "/dev/null".to_owned(), at("no"), "/proc/x.json".to_owned()] {
        let (code, report, stderr) = outcome(folder.path(), &["--json-file", &bad, "--junit", &at("j.xml")]);
        assert_eq!(
            (code, report["exit_code"].as_u64(), report["success"].as_bool()),
            (Some(2), Some(2), Some(false)),
            "{bad}: {stderr}"
        );
        assert!(stderr.contains("cannot be written"), "{stderr}");
    }
    assert!(!Path::new(&at("got")).exists(), "nothing was run");
    // A link is replaced, and what it points to stays.
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    assert_eq!(outcome(folder.path(), &["--junit", &at("link")]).0, Some(0));
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "x");
    // `-` is standard output, for one of them.
    let (code, stdout, _) = run(command(&["eval", "run", "--junit", "-", "--runs"]).arg(at("r")).arg(folder.path()));
    assert!(code == Some(0) && stdout.starts_with("<?xml") && !stdout.contains('┌'), "{stdout}");
    assert_eq!(outcome(folder.path(), &["--junit", "-"]).0, Some(2));
}

/// Reports: oven-sh/bun#38249.
#[test]
fn a_report_is_xml_whatever_an_extension_says() {
    let folder = echo("    steps: [ { operation: bad } ]\n", &[]);
    let junit = folder.path().join("j.xml");
    assert_eq!(outcome(folder.path(), &["--junit", junit.to_str().unwrap()]).0, Some(1));
    let parse = "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])";
    assert!(Command::new("python3").args(["-c", parse]).arg(&junit).status().unwrap().success());
    let text = fs::read_to_string(&junit).unwrap();
    assert!(
        text.contains("&amp;&lt;") && !text.contains(['\u{ffff}', '\u{fffe}', '\u{1b}', '\u{7f}', '\u{85}', '\0']),
        "{text}"
    );
}

/// Reports: hpi-swa/smalltalkCI#603, istio/istio#9859, onsi/ginkgo#668.
#[test]
fn exit_codes_say_what_happened() {
    let passing =
        "name: x\nconfig: { target: \"exec:./echo.py\" }\ntasks: [ { id: t, steps: [ { operation: op } ] } ]\n";
    let folder = echo("", &[("eval.yaml", passing)]);
    for (target, code) in [
        ("serial:/dev/ttyNOPE", 3),
        ("exec:/no/such/program", 3),
        ("tcp:127.0.0.1:1", 3),
        ("exec:true", 3),
        ("nokind:x", 2),
    ] {
        let (found, report, stderr) = outcome(folder.path(), &["--target", target]);
        assert_eq!(found, Some(code), "{target}: {report}{stderr}");
        assert_eq!(report["exit_code"], code);
    }
    let failing = echo("    steps: [ { operation: bad } ]\n", &[]);
    assert_eq!(outcome(failing.path(), &[]).0, Some(1));
    assert_eq!(outcome(folder.path(), &[]).0, Some(0));
    assert_eq!(outcome(folder.path(), &["--filter", "nothing"]).0, Some(2));
    assert_eq!(outcome(folder.path(), &["--executor", "claude-code"]).0, Some(2));
}

#[test]
fn a_steps_time_limit_names_limit_grace_and_elapsed_time() {
    let folder = echo("    steps: [ { operation: slow, timeout: 500ms } ]\n", &[]);
    let (_, report, _) = outcome(folder.path(), &[]);
    let why = report["runs"][0]["tasks"][0]["error"].as_str().unwrap();
    assert!(why.contains("within 500ms (waited 2.") && why.contains("limit 500ms + grace 2s)"), "{why}");
}

#[test]
fn arguments_that_break_the_schema_are_not_sent_and_a_schema_nobody_knows_keeps_nothing_back() {
    let folder = echo(
        "    steps: [ { operation: op, args: { n: [1] } } ]\n",
        &[("schema.json", r#"{"properties":{"n":{"type":"integer"}}}"#)],
    );
    let (code, report, _) = outcome(folder.path(), &[]);
    let why = report["runs"][0]["error"].as_str().unwrap();
    assert!(code == Some(2) && why.contains("n: [1] is not of type \"integer\""), "{why}");
    assert!(!folder.path().join("got").exists());
    let schema = r#"{"$schema":"https://spec.openapis.org/oas/3.1/dialect/base","properties":{"n":{"type":"integer"},"s":{"type":"string","pattern":"a\\Z"}}}"#;
    let folder = echo("    steps: [ { operation: op, args: { n: 5, s: 007 } } ]\n", &[("schema.json", schema)]);
    let (code, _, stderr) = outcome(folder.path(), &[]);
    assert!(code == Some(0) && stderr.contains("not known here; it is sent as it is"), "{stderr}");
    assert!(fs::read_to_string(folder.path().join("got")).unwrap().contains(r#""args":{"n":5,"s":"007"}"#));
}

/// An eval of one task over [`ECHO`], whose operation `op` has this schema: what the run comes to, and the calls that the extension got.
fn over_echo(schema: &str, task: &str, args: &[&str]) -> (Option<i32>, Value, String, Vec<Value>) {
    let folder = echo(task, &[("schema.json", schema)]);
    let (code, report, stderr) = outcome(folder.path(), args);
    let got = fs::read_to_string(folder.path().join("got")).unwrap_or_default();
    (code, report, stderr, got.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

const RAIL: &str = r#"{"type":"object","properties":{"rail":{"enum":["3V3","5V0"]},"on":{"type":"boolean"},"ms":{"type":"integer","minimum":1,"maximum":100},
    "at":{"type":"object","properties":{"place":{"type":"string"}},"additionalProperties":false}},"required":["rail"]}"#;

#[test]
fn a_step_that_does_not_fit_the_targets_description_is_the_authors_mistake_and_nothing_runs() {
    for (step, why) in [
        ("operation: opp, args: { rail: 3V3 }", "the target has no operation opp; did you mean `op`?"),
        ("operation: nowhere", "the target has no operation nowhere; expected one of: op, slow, bad"),
        ("operation: op, args: { rial: 3V3 }", "op: there is no argument `rial`; did you mean `rail`?"),
        ("operation: op, args: { rail: 3V3, om: true }", "op: there is no argument `om`; did you mean `on`?"),
        (
            "operation: op, args: { rail: 3v3 }",
            "op: rail: \"3v3\" is not one of \"3V3\" or \"5V0\"; did you mean `3V3`?",
        ),
        ("operation: op, args: { rail: 12V }", "op: rail: \"12V\" is not one of \"3V3\" or \"5V0\""),
        ("operation: op, args: { on: true }", "op: \"rail\" is a required property"),
        ("operation: op", "op: \"rail\" is a required property"),
        ("operation: op, args: { rail: 3V3, on: maybe }", "op: on: `maybe` is neither true nor false"),
        ("operation: op, args: { rail: 3V3, ms: soon }", "op: ms: \"soon\" is not of type \"integer\""),
        ("operation: op, args: { rail: 3V3, ms: 0 }", "op: ms: 0 is less than the minimum of 1"),
        ("operation: op, args: { rail: 3V3, ms: 101 }", "op: ms: 101 is greater than the maximum of 100"),
        (
            "operation: op, args: { rail: 3V3, at: { plaze: x } }",
            "op: there is no argument `at.plaze`; did you mean `place`?",
        ),
        ("operation: op, args: { rail: 3V3, at: { x: 1 } }", "op: there is no argument `at.x`; expected one of: place"),
    ] {
        for phase in ["setup", "verify", "cleanup"] {
            let task = format!(
                "    steps:\n      - {{ id: fine, phase: setup, operation: op, args: {{ rail: 3V3 }} }}\n      - {{ id: s, phase: {phase}, {step} }}\n"
            );
            let (code, report, stderr, calls) = over_echo(RAIL, &task, &[]);
            assert!(code == Some(2) && calls.is_empty(), "{step}, {phase}: {code:?} {calls:?} {stderr}");
            assert!(stderr.contains(&format!("Task t, step s: {why} (eval.yaml:7)")), "{step}: {stderr}");
            let run = &report["runs"][0];
            assert!(
                run["error"].as_str().unwrap().contains(why) && run["verdict"] != "rig_error",
                "{step}: {report:#}"
            );
            assert_eq!((&run["passed"], &run["tasks"]), (&json!(false), &json!([])), "{step}");
        }
        // `validate` finds the same.
        let folder = echo(&format!("    steps: [ {{ id: s, {step} }} ]\n"), &[("schema.json", RAIL)]);
        let target = format!("exec:{}", folder.path().join("echo.py").display());
        let (code, stdout, _) = run(command(&["eval", "validate", "--target", &target]).arg(folder.path()));
        assert!(code == Some(1) && stdout.contains(&format!("Task t, step s: {why}")), "{step}: {stdout}");
    }
}

#[test]
fn every_mistake_of_an_eval_is_told_at_once_and_one_of_many_cases_once() {
    let task = "    matrix: { n: [101, 102, 103] }
    steps:
      - { operation: op, args: { rial: 3V3 } }
      - { operation: opp }
      - { operation: op, args: { rail: 3V3, ms: '{{matrix.n}}' } }
";
    let (code, _, stderr, calls) = over_echo(RAIL, task, &[]);
    assert!(code == Some(2) && calls.is_empty(), "{stderr}");
    let count = |text: &str| stderr.matches(text).count();
    assert_eq!((count("`rial`"), count("operation opp"), count("than the maximum of 100")), (1, 1, 3), "{stderr}");
}

#[test]
fn nothing_is_refused_that_the_target_has_not_described() {
    // A schema that says nothing, one that is open, one of a dialect that nobody knows.
    for schema in [
        "true",
        "{}",
        r#"{"type":"object"}"#,
        r#"{"$schema":"https://example.com/own","properties":{"rail":{"enum":["5V0"]}}}"#,
    ] {
        let (code, _, stderr, calls) =
            over_echo(schema, "    steps: [ { operation: op, args: { rial: 3V3 } } ]\n", &[]);
        assert!(code == Some(0) && calls[0]["params"]["args"] == json!({ "rial": "3V3" }), "{schema}: {stderr}");
    }
    // An open schema takes a name of its own; that is told, and `--strict` refuses it.
    let task = "    steps: [ { operation: op, args: { rail: 3V3, volts: 5 } } ]\n";
    let (code, _, stderr, calls) = over_echo(RAIL, task, &[]);
    assert!(
        code == Some(0) && calls.len() == 1 && stderr.contains("op does not declare the argument `volts`"),
        "{stderr}"
    );
    let (code, _, stderr, calls) = over_echo(RAIL, task, &["--strict"]);
    assert!(
        code == Some(2) && calls.is_empty() && stderr.contains("op does not declare the argument `volts`"),
        "{stderr}"
    );
    // An extension that lists no operations.
    let folder = echo("    steps: [ { operation: anything, args: { x: 1 } } ]\n", &[]);
    let text = fs::read_to_string(folder.path().join("echo.py")).unwrap();
    let (before, after) = text.split_once("\"operations\": {").unwrap();
    let text = format!("{before}\"operations\": {{}}}}\n#{after}");
    fs::write(folder.path().join("echo.py"), text).unwrap();
    let (code, _, stderr) = outcome(folder.path(), &[]);
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn a_value_that_is_filled_in_during_the_run_is_checked_then_and_cleanup_runs() {
    for (value, why) in [
        ("{{steps.a.outputs.ms}}", "ms: 500 is greater than the maximum of 100"),
        ("{{steps.a.outputs.text}}", "ms: \"soon\" is not of type \"integer\""),
        ("{{steps.a.outputs.none}}", "step a has no output none; known outputs:"),
    ] {
        let task = format!(
            "    steps:
      - {{ id: a, operation: open, phase: setup, args: {{ ms: 500, text: soon }} }}
      - {{ id: b, operation: op, args: {{ rail: 3V3, ms: '{value}' }} }}
      - {{ id: c, operation: op, phase: cleanup, args: {{ rail: 5V0 }} }}
"
        );
        let task = task.replace("operation: open", "operation: slow");
        let folder = echo(&task, &[("schema.json", RAIL)]);
        let text = fs::read_to_string(folder.path().join("echo.py")).unwrap();
        fs::write(folder.path().join("echo.py"), text.replace("time.sleep(60)", "pass")).unwrap();
        let (code, report, stderr) = outcome(folder.path(), &[]);
        let got = fs::read_to_string(folder.path().join("got")).unwrap();
        let rails: Vec<Value> = got
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["params"]["args"]["rail"].clone())
            .collect();
        assert!(code == Some(2) && report["exit_code"] == 2, "{value}: {stderr}");
        assert_eq!(rails, [Value::Null, json!("5V0")], "{value}: the step is not sent, and cleanup runs");
        assert!(report["runs"][0]["tasks"][0]["error"].as_str().unwrap().contains(why), "{value}: {report:#}");
    }
}

#[test]
fn no_step_of_several_evals_runs_where_one_of_them_does_not_fit_its_target() {
    let folder = echo("", &[("schema.json", RAIL)]);
    for (name, args) in [("first", "rail: 3V3"), ("second", "rail: 5V0"), ("third", "rial: 3V3")] {
        let text = format!(
            "name: {name}\nconfig: {{ target: \"exec:../echo.py\" }}\ntasks: [ {{ id: t, steps: [ {{ operation: op, args: {{ {args} }} }} ] }} ]\n"
        );
        fs::create_dir_all(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("eval.yaml"), text).unwrap();
    }
    fs::remove_file(folder.path().join("eval.yaml")).unwrap();
    let (code, report, stderr) = outcome(folder.path(), &[]);
    assert!(code == Some(2) && !folder.path().join("got").exists(), "{report:#}{stderr}");
    assert!(stderr.contains("there is no argument `rial`; did you mean `rail`?"), "{stderr}");
    assert!(report["errors"].to_string().contains("not run, since another eval does not fit its target"), "{report:#}");
    // Each of the others alone is run.
    let runs = folder.path().join("runs");
    let (code, _, stderr) = run(command(&["eval", "run", "-q", "--runs"]).arg(runs).arg(folder.path().join("first")));
    assert!(code == Some(0) && folder.path().join("got").exists(), "{stderr}");
}

#[test]
fn another_rig_fails_the_preflight_before_its_operations_are_the_evals_mistake() {
    let eval = |health: &str| {
        format!(
            "name: x\nconfig: {{ target: \"exec:./echo.py\" }}\nhealth: [ {{ id: who, operation: op, {health} }} ]\n\
             tasks: [ {{ id: t, steps: [ {{ operation: measure }} ] }} ]\n"
        )
    };
    for (health, expected, why) in [
        ("args: { rail: 3V3 }, expect: { rail: 5V0 }", 3, "preflight: "),
        ("args: { rail: 3V3 }, expect: { rail: 3V3 }", 2, "the target has no operation measure"),
        ("args: { rial: 3V3 }, expect: { rail: 5V0 }", 2, "Task health, step who: op: there is no argument `rial`"),
    ] {
        let folder = echo("", &[("schema.json", RAIL), ("eval.yaml", &eval(health))]);
        let (code, report, stderr) = outcome(folder.path(), &[]);
        let error = report["runs"][0]["error"].as_str().unwrap();
        assert!(code == Some(expected) && error.contains(why), "{health}: {code:?} {error} {stderr}");
        assert_eq!(report["runs"][0]["tasks"], json!([]), "{health}");
    }
}

#[test]
fn a_member_that_nothing_reads_is_told_with_the_known_ones() {
    let head = "name: x\nowner: me\nconfig: { target: \"exec:./echo.py\", color: red, x-own: 1, $note: 2 }\nmetrics: { colour: red }\n\
        health: [ { operation: op, colour: red } ]\n";
    let task = "tasks:
  - id: t
    owner: me
    mock: { colour: red }
    expected: { colour: red }
    steps:
      - { id: s, operation: op, args: { v: 1 }, colour: red, measure: { output: v, colour: red } }
    graders:
      - { type: output_range, step: s, output: v, min: 0, max: 5, colour: red, x-own: 1 }
      - { type: file_exists, path: eval.yaml, config: { colour: red } }
      - { type: file, content_patterns: [ { path: eval.yaml, must_match: name, colour: red } ] }
";
    let folder = echo("", &[("eval.yaml", &format!("{head}{task}"))]);
    let (code, stdout, stderr) = run(command(&["eval", "validate"]).arg(folder.path()));
    let has = |name: &str, what: &str, known: &str| {
        stdout.lines().any(|line| {
            line.contains(&format!("warning: {name}: {what} has no such"))
                && line.contains("it has no effect; expected one of: ")
                && line.contains(known)
        })
    };
    for (name, what, known) in [
        ("color", "config", "trials_per_task"),
        ("colour", "metrics", "pass_threshold"),
        ("colour", "a step of the preflight", "expect"),
        ("colour", "mock", "delay"),
        ("colour", "expected", "output_contains"),
        ("colour", "a step", "phase"),
        ("colour", "measure", "low"),
        ("colour", "a grader of type output_range", "max"),
        ("colour", "a grader of type file_exists", "must_not_exist"),
        ("colour", "content_patterns", "must_not_match"),
    ] {
        assert!(has(name, what, known), "{name} of {what}: {stdout}{stderr}");
    }
    assert!(
        code == Some(0) && !stdout.contains("owner") && !stdout.contains("x-own") && !stdout.contains("$note"),
        "{stdout}"
    );
    assert_eq!(run(command(&["eval", "validate", "--strict"]).arg(folder.path())).0, Some(1));
}

/// Reports: retigra/ZabbixCI#23.
#[test]
fn a_runs_folder_may_hold_anything() {
    let folder = echo("    steps: [ { operation: op } ]\n", &[("runs/config.new", "x"), ("runs/notes.jsonl", "{}\n")]);
    let runs = folder.path().join("runs");
    let past = std::time::SystemTime::now() - Duration::from_secs(300);
    fs::File::options().append(true).open(runs.join("config.new")).unwrap().set_modified(past).unwrap();
    for fifo in ["a.jsonl", "18c-1.jsonl"] {
        assert!(Command::new("mkfifo").arg(runs.join(fifo)).status().unwrap().success());
    }
    let (code, _, stderr) = run(command(&["eval", "run", "--runs"]).arg(&runs).arg(folder.path()));
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(fs::read_to_string(runs.join("config.new")).unwrap(), "x");
    assert_eq!(fs::read_to_string(runs.join("notes.jsonl")).unwrap(), "{}\n");
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 5);
}

#[test]
fn this_folder_one_task_file_a_new_eval_and_an_empty_folder() {
    let folder = folder(&[]);
    let here = |args: &[&str]| {
        run(command(args).current_dir(folder.path()).env("XDG_STATE_HOME", folder.path().join("state")))
    };
    fs::create_dir(folder.path().join("empty")).unwrap();
    for verb in ["run", "list", "validate"] {
        let (code, _, stderr) = here(&["eval", verb, "empty"]);
        assert!(code == Some(2) && stderr.contains("empty: there are no evals"), "{verb}: {stderr}");
        let (code, stdout, _) = here(&["eval", verb, "empty", "--json"]);
        assert_eq!(
            (code, serde_json::from_str::<Value>(&stdout).unwrap()["success"].as_bool()),
            (Some(2), Some(false))
        );
    }
    fs::remove_dir(folder.path().join("empty")).unwrap();
    let (code, stdout, stderr) = here(&["eval", "new", "mine"]);
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "mine/eval.yaml\nmine/tasks/first.yaml\nnext: rigline eval run mine\n"),
        "{stderr}"
    );
    let (code, _, stderr) = here(&["eval", "run", "nowhere"]);
    assert_eq!((code, stderr.as_str()), (Some(2), "rigline: nowhere: there is no such file or folder\n"));
    assert_eq!(here(&["eval", "new", "mine"]).0, Some(2), "what is there stays");
    let (code, stdout, stderr) = here(&["eval", "run"]);
    assert!(code == Some(0) && stdout.contains("1 of 1 tasks passed"), "{stdout}{stderr}");
    assert!(here(&["eval", "validate", "mine", "--target", "sim"]).1.contains(": valid"));
    fs::write(folder.path().join("mine/tasks/second.yaml"), "id: second\nsteps: [ { operation: self-test } ]\n")
        .unwrap();
    let (code, stdout, stderr) = here(&["eval", "run", "-q", "mine/tasks/second.yaml"]);
    assert!(code == Some(0) && stdout.contains("1 of 1 tasks passed") && stderr.is_empty(), "{stdout}{stderr}");
    assert!(here(&["eval", "run", "mine"]).1.contains("2 of 2 tasks passed"));
    fs::write(folder.path().join("lone.yaml"), "id: lone\nsteps: [ { operation: self-test } ]\n").unwrap();
    assert!(here(&["eval", "run", "lone.yaml"]).2.contains("is a task, and no eval.yaml"));
    // Operations and arguments are held against what the target has.
    fs::write(
        folder.path().join("mine/tasks/second.yaml"),
        "id: second\nsteps:\n  - { operation: mesure, args: { channel: 3V3 } }\n  - { operation: measure, args: { chanel: 3V3 } }\n  - { operation: measure, args: { channel: 3V3, samples: many } }\n  - { operation: measure, args: { channel: '{{steps.step-1.message}}' } }\n",
    )
    .unwrap();
    let (code, stdout, _) = here(&["eval", "validate", "mine", "--target", "sim"]);
    for part in [
        "second.yaml:3: Task second, step step-1: the target has no operation mesure; did you mean `measure`?",
        "Task second, step step-2: measure: there is no argument `chanel`; did you mean `channel`?",
        "step step-3: measure: samples: \"many\" is not",
    ] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    assert!(code == Some(1) && !stdout.contains("step step-4"), "{stdout}");
}

#[test]
fn results_are_those_of_the_runs_that_are_kept() {
    let folder = azure();
    let path = folder.path().join("azure-functions/eval.yaml");
    let mut server = ServerProcess::start();
    assert_eq!(server.ask("results.runs", json!({}))["result"], json!({ "runs": [] }));
    let mut ids = Vec::new();
    for _ in 0..2 {
        let started = server.ask("eval.run", json!({ "path": path }));
        let id = started["result"]["runId"].as_str().unwrap().to_owned();
        loop {
            let line = server.line();
            if line["method"] == "eval.complete" {
                break;
            }
        }
        ids.insert(0, id);
    }
    // Another file there is no run.
    fs::write(server.runs.path().join("18c-1.jsonl"), "{\"run\":{}}\n").unwrap();
    let runs = server.ask("results.runs", json!({}))["result"]["runs"].clone();
    let found: Vec<_> = runs.as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(found, ids, "the newest first: {runs}");
    assert_eq!(
        (&runs[0]["name"], &runs[0]["status"], &runs[0]["passed"]),
        (&json!("azure-functions-eval"), &json!("completed"), &json!(1))
    );
    assert_eq!(server.ask("results.runs", json!({ "limit": 1 }))["result"]["runs"].as_array().unwrap().len(), 1);
    let summary = server.ask("results.summary", json!({}))["result"].clone();
    assert_eq!(
        summary,
        json!({ "totalRuns": 2, "completed": 2, "failed": 0, "cancelled": 0, "running": 0, "totalTasks": 2, "passedTasks": 2, "failedTasks": 0, "passRate": 1.0 })
    );
    assert_eq!(server.ask("results.other", json!({}))["error"]["message"], "Method not found");
    assert!(server.end().is_empty());
}
