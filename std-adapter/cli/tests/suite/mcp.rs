//! MCP on a desktop: `rigline mcp`, Streamable HTTP in both eras, and `rigline mcp-config`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");
const MODERN: &str = "2026-07-28";
/// How many operations the simulated rig has.
const OPERATIONS: usize = 21;
/// Those that change nothing.
const READ_ONLY: [&str; 10] = [
    "identify",
    "state",
    "measure",
    "gpio_read",
    "wait_for",
    "wait_pin",
    "uart_expect",
    "uart_read",
    "measure_over_time",
    "count_pulses",
];
/// Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on standard input and output. Dropping it kills the process.
struct ServerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl ServerProcess {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(RIGLINE);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn send(&mut self, message: &Value) {
        self.stdin.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Reads until a log says this.
    fn wait_for_log(&mut self, text: &str) {
        loop {
            let line = self.line();
            assert!(line.get("id").is_none(), "{line}");
            if line.to_string().contains(text) {
                return;
            }
        }
    }

    /// The reply to a request; what comes before it is given too.
    fn ask(&mut self, method: &str, params: Value) -> (Value, Vec<Value>) {
        self.send(&json!({"jsonrpc": "2.0", "id": 77, "method": method, "params": params}));
        let mut before = Vec::new();
        loop {
            let line = self.line();
            if line["id"] == 77 {
                return (line, before);
            }
            before.push(line);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn names(reply: &Value) -> Vec<&str> {
    let tools = reply["result"]["tools"].as_array().unwrap_or_else(|| panic!("{reply}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn wait_for_end(child: &mut Child) {
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < PATIENCE, "it has not ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A small device gives its tools in pages. Several clients read the first page only.
#[test]
fn pages_of_a_device_are_merged() {
    let small = format!("exec:{RIGLINE} rig --reply-limit 1500");
    let mut device = ServerProcess::start(&["rig", "--reply-limit", "1500"]);
    let (page, _) = device.ask("tools/list", json!({}));
    assert!(page["result"]["nextCursor"].is_string(), "{page}");
    let mut bridge = ServerProcess::start(&["mcp", &small]);
    let (whole, _) = bridge.ask("tools/list", json!({}));
    assert!(whole["result"].get("nextCursor").is_none(), "{whole}");
    // One of them is of the command itself.
    assert_eq!(names(&whole).len(), OPERATIONS + 1);
    let tools = whole["result"]["tools"].as_array().unwrap();
    let identify = tools.iter().find(|tool| tool["name"] == "identify").unwrap();
    assert_eq!(identify["annotations"]["readOnlyHint"], true, "what the device says about its tools gets through");
    assert!(identify["description"].as_str().unwrap().contains("the rig's identity"));
}

/// Progress, logs and failures get through, and results keep their types.
#[test]
fn a_bridge_passes_everything_on() {
    for words in [vec!["mcp", "sim"], vec!["mcp", &*format!("exec:{RIGLINE} rig")]] {
        let mut server = ServerProcess::start(&words);
        let (_, before) = server.ask("tools/call", json!({"name": "self_test", "_meta": {"progressToken": "t"}}));
        let progress: Vec<_> = before.iter().filter(|line| line["method"] == "notifications/progress").collect();
        assert_eq!(progress.len(), 6, "{words:?}");
        assert!(progress.iter().all(|line| line["params"]["progressToken"] == "t" && line["params"]["total"] == 6));
        assert!(before.iter().any(|line| line["method"] == "notifications/message"), "{words:?}");
        let (measured, _) = server.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "3V3"}}));
        assert!(measured["result"]["structuredContent"]["volts"].is_number(), "{measured}");
        let (failed, _) = server.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "nope"}}));
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        assert!(failed["result"]["content"][0]["text"].as_str().unwrap().contains("nope"));
    }
}

/// A client that lists tools, or looks whether the server is there, does not wait for its own call.
#[test]
fn tools_are_listed_while_a_call_runs() {
    for target in ["sim", &*format!("exec:{RIGLINE} rig")] {
        let mut server = ServerProcess::start(&["mcp", target]);
        let wait =
            json!({"name": "wait_for", "arguments": {"channel": "AUX", "min": 9, "max": 10, "within_ms": 60_000}});
        server.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": wait}));
        server.wait_for_log("waiting for AUX");
        assert!(names(&server.ask("tools/list", json!({})).0).contains(&"wait_for"), "{target}");
        assert_eq!(server.ask("ping", json!({})).0["result"], json!({}), "{target}");
    }
}

#[test]
fn only_what_is_allowed_is_there() {
    let mut server = ServerProcess::start(&["mcp", "sim", "--read-only"]);
    let (tools, _) = server.ask("tools/list", json!({}));
    assert_eq!(names(&tools), READ_ONLY);
    let (refused, _) = server.ask("tools/call", json!({"name": "power", "arguments": {"rail": "3V3", "on": true}}));
    assert_eq!(refused["error"]["code"], -32602);
    let mut server = ServerProcess::start(&["mcp", "sim", "--allow", "measure", "self_test"]);
    let (tools, _) = server.ask("tools/list", json!({}));
    assert_eq!(names(&tools), ["measure", "self_test"]);
    let (measured, _) = server.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "5V0"}}));
    assert!(measured["result"]["structuredContent"]["volts"].is_number(), "each tool is its own operation: {measured}");
    let refused = Command::new(RIGLINE).args(["mcp", "sim", "--allow", "nope"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("nope"));
}

/// A cancelled call ends at the target too, is not answered, and the next one runs.
#[test]
fn a_cancelled_call_is_never_answered() {
    for words in [vec!["mcp", "sim"], vec!["mcp", &*format!("exec:{RIGLINE} rig")]] {
        let mut server = ServerProcess::start(&words);
        let forever =
            json!({"name": "wait_for", "arguments": {"channel": "AUX", "min": 9, "max": 10, "within_ms": 60_000}});
        server.send(&json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": forever}));
        // It runs when it logs.
        assert_eq!(server.line()["method"], "notifications/message");
        let (pong, _) = server.ask("ping", json!({}));
        assert_eq!(pong["result"], json!({}), "a ping is answered while a call runs");
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}));
        let (measured, before) = server.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "3V3"}}));
        assert!(measured["result"]["structuredContent"]["volts"].is_number(), "{words:?}: {measured}");
        assert!(before.iter().all(|line| line["id"] != 5), "{words:?}: {before:?}");
    }
}

#[test]
fn the_end_of_input_is_the_end_of_the_server_and_of_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let (pid, script) = (folder.path().join("pid"), folder.path().join("rig.sh"));
    std::fs::write(&script, format!("echo $$ > {}; exec {RIGLINE} rig", pid.display())).unwrap();
    let mut server = ServerProcess::start(&["mcp", &format!("exec:sh {}", script.display())]);
    assert_eq!(names(&server.ask("tools/list", json!({})).0).len(), OPERATIONS + 1);
    server.stdin = None;
    wait_for_end(&mut server.child);
    let pid = std::fs::read_to_string(&pid).unwrap();
    let started = Instant::now();
    while std::path::Path::new(&format!("/proc/{}", pid.trim())).exists() && cfg!(target_os = "linux") {
        assert!(started.elapsed() < PATIENCE, "an orphan is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Messages that no client should send: each costs an answer at most, and the next request is answered.
#[test]
fn hostile_ids_tokens_and_metadata() {
    let mut server = ServerProcess::start(&["mcp", "sim"]);
    let long = "x".repeat(10_000);
    for (id, code) in [
        (json!(1.5), Some(-32600)),
        (json!(true), Some(-32600)),
        (json!([1]), Some(-32600)),
        (json!({"a": 1}), Some(-32600)),
        (json!(null), Some(-32600)),
        (json!(long), Some(-32600)),
        (json!("\u{7f}\u{1f600}\"\\\n"), None),
        (json!("x".repeat(290)), None),
        (json!(i64::MIN), None),
        (json!(u64::MAX), None),
    ] {
        server.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        let reply = server.line();
        match code {
            Some(code) => {
                assert_eq!(reply["error"]["code"], code, "{id}");
                assert!(reply.get("id").is_none_or(Value::is_null), "{reply}");
            }
            None => assert_eq!((&reply["id"], &reply["result"]), (&id, &json!({}))),
        }
    }
    for (token, count) in [
        (json!(long), 6),
        (json!("a\"\n\u{1f600}"), 6),
        (json!(-7), 6),
        (json!(1.5), 0),
        (json!(null), 0),
        (json!({"a": 1}), 0),
        (json!([]), 0),
        (json!(true), 0),
    ] {
        let (reply, before) = server.ask("tools/call", json!({"name": "self_test", "_meta": {"progressToken": token}}));
        assert_eq!(reply["result"]["structuredContent"]["passed"], 6, "{token}");
        let progress: Vec<_> = before.iter().filter(|line| line["method"] == "notifications/progress").collect();
        assert_eq!(progress.len(), count, "{token}");
        assert!(progress.iter().all(|line| line["params"]["progressToken"] == token), "{token}");
    }
    let huge: serde_json::Map<String, Value> =
        (0..5000).map(|place| (format!("com.example/{place}"), json!({"a": [long[..200], place]}))).collect();
    assert!(server.ask("tools/list", json!({"_meta": huge})).0["result"]["tools"].is_array());
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"ping\",\"params\":{{\"_meta\":{}{}}}}}\n",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    server.stdin.as_mut().unwrap().write_all(deep.as_bytes()).unwrap();
    assert!(server.line()["error"].is_object());
    assert_eq!(server.ask("ping", json!({})).0["result"], json!({}));
}

/// Cancellations in thousands, both eras on one stream, and a batch, while a call runs.
#[test]
fn a_storm_of_cancellations_and_mixed_eras() {
    let mut server = ServerProcess::start(&["mcp", "sim"]);
    let forever =
        json!({"name": "wait_for", "arguments": {"channel": "AUX", "min": 9, "max": 10, "within_ms": 60_000}});
    server.send(&json!({"jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": forever}));
    server.wait_for_log("waiting for AUX");
    for id in 0..5000 {
        let id = if id % 2 == 0 { json!(id) } else { json!(format!("no such call {id}")) };
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }
    for (place, strange) in
        [json!(null), json!({}), json!([]), json!({"requestId": null}), json!({"requestId": ["long"]})]
            .iter()
            .enumerate()
    {
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": strange}));
        let params = modern("server/discover", json!({}))["params"].clone();
        let method = if place % 2 == 0 { "server/discover" } else { "ping" };
        let (reply, _) = server.ask(method, if place % 2 == 0 { params } else { json!({}) });
        assert!(reply["result"].is_object(), "{reply}");
    }
    // It waits its turn, and is cancelled before that comes, as often as one likes.
    for id in 100..120 {
        server.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "identify"}}));
    }
    for id in (100..120).chain(100..120).map(|id| json!(id)).chain([json!("long"), json!("long")]) {
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }
    let (reply, before) = server.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "3V3"}}));
    assert!(reply["result"]["structuredContent"]["volts"].is_number(), "{reply}");
    assert!(before.iter().all(|line| line.get("id").is_none()), "{before:?}");
    // Batches, 2025-03-26: one line, in which a notification has no reply.
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "measure", "arguments": {"channel": "3V3"}}},
        {"jsonrpc": "2.0", "id": 3, "method": "nope"},
        7,
    ]);
    server.send(&batch);
    let reply = server.line();
    let reply = reply.as_array().unwrap();
    assert_eq!(reply.len(), 4, "{reply:?}");
    assert!(
        reply[1]["result"]["structuredContent"]["volts"].is_number() && reply[2]["error"]["code"] == -32601,
        "{reply:?}"
    );
}

/// A server of very many pages is read, up to a limit that is named.
#[test]
fn a_thousand_pages_of_tools() {
    let folder = tempfile::tempdir().unwrap();
    let describe = |pages: usize| {
        let script = folder.path().join(format!("pages-{pages}.sh"));
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "pages", "version": "1.0.0"}});
        let text = format!(
            r#"n=0
while read -r line; do
  id=${{line#*\"id\":}}; id=${{id%%,*}}
  case $line in
    *initialize\"*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{hello}}}" ;;
    *tools/list*)
      n=$((n + 1)); next=; if [ $n -lt {pages} ]; then next=",\"nextCursor\":\"$n\""; fi
      echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"tools\":[{{\"name\":\"t$n\",\"inputSchema\":{{\"type\":\"object\"}}}}]$next}}}}" ;;
  esac
done
"#,
            hello = hello.to_string().replace('"', "\\\""),
        );
        std::fs::write(&script, text).unwrap();
        let target = format!("exec:sh {}", script.display());
        let words = ["describe", &target, "--protocol", "mcp", "--json"];
        Command::new(RIGLINE).args(words).stdin(Stdio::null()).output().unwrap()
    };
    let whole = describe(1000);
    let text = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert!(whole.status.success() && text.contains("\"t1\"") && text.contains("\"t1000\""), "{:?}", whole.stderr);
    let refused = describe(1001);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.status.success() && text.contains("1000 pages"), "{text}");
}

/// A folder of evals, beside one for their runs.
struct Evals(tempfile::TempDir);

impl Evals {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "rails/eval.yaml",
                "name: rails\nconfig: { trials_per_task: 2 }\ninputs: { rail: 3V3 }\ntasks: [on.yaml, off.yaml]\n",
            ),
            (
                "rails/on.yaml",
                "id: on\nsteps:\n  - { id: power, phase: setup, operation: power, args: { rail: \"{{.Vars.rail}}\", on: true } }\n  - { id: read, operation: measure, args: { channel: \"{{.Vars.rail}}\" } }\n\
                 graders: [{ type: output_range, step: read, output: volts, min: 3.1, max: 3.5 }]\n",
            ),
            ("rails/off.yaml", "id: 'off'\nsteps: [{ operation: identify }]\n"),
            ("slow/eval.yaml", "name: slow\ntasks: [wait.yaml]\n"),
            (
                "slow/wait.yaml",
                "id: wait\nsteps:\n  - { operation: wait-for, args: { channel: AUX, min: 9, max: 10, within_ms: 60000 }, timeout: 120s }\n  - { id: tidy, phase: cleanup, operation: power, args: { rail: 3V3, on: false } }\n",
            ),
            ("twice/eval.yaml", "name: rails\ntasks: [{ id: t }]\n"),
        ] {
            let path = folder.path().join("evals").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn serve(&self, target: &str, words: &[&str]) -> ServerProcess {
        let (evals, runs) = (self.path("evals"), self.path("runs"));
        ServerProcess::start(&[&["mcp", target, "--evals", &evals, "--runs", &runs], words].concat())
    }

    /// The record of the only run: the lines of its file.
    fn record(&self) -> Vec<Value> {
        let files = std::fs::read_dir(self.path("runs")).unwrap();
        let mut files =
            files.map(|file| file.unwrap().path()).filter(|file| file.extension().is_some_and(|it| it == "jsonl"));
        let text = std::fs::read_to_string(files.next().unwrap()).unwrap();
        assert!(files.next().is_none());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// That the only run was cancelled, and its cleanup step ran.
    fn assert_cancelled(&self) {
        let record = self.record();
        let trial = record.iter().find_map(|line| line.get("trial")).unwrap_or_else(|| panic!("{record:?}"));
        let tidy = trial["steps"].as_array().unwrap().iter().find(|step| step["id"] == "tidy").unwrap();
        assert_eq!((&trial["status"], &tidy["status"]), (&json!("cancelled"), &json!("passed")), "{record:?}");
    }

    /// A script that starts the rig, and refuses while another one runs, or the file `denied` is there.
    fn sole_rig(&self) -> String {
        let (script, lock) = (self.path("rig.sh"), self.path("lock"));
        let denied = self.path("denied");
        let guard =
            if cfg!(target_os = "linux") { format!("exec 9>{lock}; flock -n 9 || exit 1;") } else { String::new() };
        let text = format!("[ -e {denied} ] && exit 1; {guard} exec {RIGLINE} rig");
        std::fs::write(&script, text).unwrap();
        format!("exec:sh {script}")
    }
}

/// The result of a tool, and that its text is the JSON of what is structured.
fn result(reply: &Value) -> &Value {
    let result = &reply["result"];
    let texts = result["content"].as_array().unwrap_or_else(|| panic!("{reply}"));
    if let Some(structured) = result.get("structuredContent") {
        let last = texts.last().unwrap()["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(last).unwrap(), *structured, "{reply}");
    }
    result
}

fn run_eval(arguments: Value) -> Value {
    json!({"name": "run_eval", "arguments": arguments, "_meta": {"progressToken": "run"}})
}

#[test]
fn evals_are_tools() {
    let evals = Evals::new();
    let mut server = evals.serve("sim", &[]);
    let (tools, _) = server.ask("tools/list", json!({}));
    let tool =
        |name: &str| tools["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(tool("list_evals")["annotations"]["readOnlyHint"], true);
    let hints = json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false});
    assert_eq!(tool("run_eval")["annotations"], hints);
    let fits = |name: &str, outputs: &Value| {
        let validator = jsonschema::validator_for(&tool(name)["outputSchema"]).unwrap();
        if let Err(error) = validator.validate(outputs) {
            panic!("{error}: {outputs}");
        }
    };
    let (listed, _) = server.ask("tools/call", json!({"name": "list_evals"}));
    let listed = &result(&listed)["structuredContent"];
    fits("list_evals", listed);
    let ids: Vec<&str> = listed["evals"].as_array().unwrap().iter().map(|eval| eval["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["rails/eval.yaml", "slow/eval.yaml", "twice/eval.yaml"]);

    // Each trial is progress, whatever the era.
    for is_modern in [false, true] {
        let mut params = run_eval(json!({"id": "rails/eval.yaml"}));
        if is_modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let (ran, before) = server.ask("tools/call", params);
        let outputs = &result(&ran)["structuredContent"];
        fits("run_eval", outputs);
        assert_eq!((&outputs["verdict"], &outputs["status"]), (&json!("pass"), &json!("completed")), "{ran}");
        assert_eq!(outputs["summary"], json!({"total": 2, "passed": 2, "failed": 0, "skipped": 0}));
        assert_eq!(outputs["tasks"][0]["trialsPassed"], 2);
        assert_eq!(ran["result"].get("isError"), None);
        let progress: Vec<_> = before.iter().filter(|line| line["method"] == "notifications/progress").collect();
        let done: Vec<_> = progress.iter().map(|line| &line["params"]["progress"]).collect();
        assert_eq!(done, [1, 2, 3, 4], "{before:?}");
        assert!(progress.iter().all(|line| line["params"]["total"] == 4 && line["params"]["progressToken"] == "run"));
        assert_eq!(progress[0]["params"]["message"], "on: trial 1 of 2 passed");
        assert_eq!(before.iter().any(|line| line["method"] == "notifications/message"), !is_modern);
    }

    // What the caller sets counts; a board that fails is a result, not an error.
    let (ran, before) = server.ask(
        "tools/call",
        run_eval(json!({"id": "rails/eval.yaml", "trials": 1, "set": {"rail": "5V0"}, "filter": "on"})),
    );
    let outputs = &result(&ran)["structuredContent"];
    fits("run_eval", outputs);
    assert_eq!((&outputs["verdict"], &outputs["tasks"][0]["verdict"]), (&json!("fail"), &json!("fail")), "{ran}");
    assert!(outputs["tasks"][0]["error"].as_str().unwrap().contains("outside 3.1 to 3.5"), "{ran}");
    assert_eq!((outputs["tasks"].as_array().unwrap().len(), ran["result"].get("isError")), (1, None));
    assert_eq!(before.iter().filter(|line| line["method"] == "notifications/progress").count(), 1);
}

#[test]
fn an_eval_that_cannot_be_run_is_a_result_that_says_why() {
    let evals = Evals::new();
    std::fs::create_dir(evals.0.path().join("evals/bad")).unwrap();
    std::fs::write(evals.0.path().join("evals/bad/eval.yaml"), "name: bad\ntasks: [missing.yaml]\n").unwrap();
    std::fs::write(evals.0.path().join("outside.yaml"), "name: outside\ntasks: [{ id: t }]\n").unwrap();
    std::os::unix::fs::symlink("../outside.yaml", evals.0.path().join("evals/eval-link.yaml")).unwrap();
    let mut server = evals.serve("sim", &[]);
    for (arguments, texts) in [
        (json!({"id": "nope"}), &["nope", "rails/eval.yaml"][..]),
        (json!({"id": "rails"}), &["2 evals", "rails/eval.yaml", "twice/eval.yaml"]),
        (json!({"id": "../outside.yaml"}), &["../outside.yaml"]),
        (json!({"id": "eval-link.yaml"}), &["eval-link.yaml"]),
        (json!({"id": "/etc/passwd"}), &["/etc/passwd"]),
        (json!({}), &["id"]),
        (json!({"id": 7}), &["id"]),
        (json!({"id": "slow", "trials": 0}), &["trials", "1"]),
        (json!({"id": "slow", "trials": 1001}), &["trials", "1000"]),
        (json!({"id": "slow", "trials": 1.5}), &["trials"]),
        (json!({"id": "slow", "target": "exec:sh"}), &["target"]),
        (json!({"id": "slow", "set": {"rail": ["x"]}}), &["set"]),
        (json!({"id": "slow", "set": {"nobody": "x"}}), &["nobody"]),
        (json!({"id": "slow", "filter": "nothing"}), &["nothing"]),
        (json!({"id": "bad"}), &["missing.yaml"]),
    ] {
        let (reply, _) = server.ask("tools/call", run_eval(arguments.clone()));
        assert_eq!(result(&reply)["isError"], true, "{arguments}: {reply}");
        let said = reply["result"]["content"][0]["text"].as_str().unwrap();
        for text in texts {
            assert!(said.contains(text), "{arguments}: {said}");
        }
    }
}

/// The target is let go for the run: a program that refuses to run twice at a time is such a target. Calls meanwhile wait.
#[test]
fn a_run_and_calls_share_one_target_by_turns() {
    let evals = Evals::new();
    let mut server = evals.serve(&evals.sole_rig(), &[]);
    let (measured, _) = server.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "3V3"}}));
    assert!(result(&measured)["structuredContent"]["volts"].is_number(), "{measured}");
    for (id, params) in [
        (1, run_eval(json!({"id": "rails/eval.yaml"}))),
        (2, json!({"name": "measure", "arguments": {"channel": "5V0"}})),
        (3, run_eval(json!({"id": "rails/eval.yaml", "trials": 1}))),
        (4, json!({"name": "identify"})),
    ] {
        server.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    let mut replies = Vec::new();
    while replies.len() < 4 {
        replies.extend(Some(server.line()).filter(|line| line.get("id").is_some()));
    }
    let ids: Vec<_> = replies.iter().map(|reply| &reply["id"]).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    assert_eq!(result(&replies[0])["structuredContent"]["verdict"], "pass", "{}", replies[0]);
    assert_eq!(result(&replies[2])["structuredContent"]["verdict"], "pass", "{}", replies[2]);
    for reply in [&replies[1], &replies[3]] {
        assert_eq!(result(reply).get("isError"), None, "{reply}");
    }
}

#[test]
fn an_error_of_the_rig_is_told_from_a_failure_of_the_board() {
    let evals = Evals::new();
    let mut server = evals.serve(&evals.sole_rig(), &[]);
    server.ask("ping", json!({}));
    std::fs::write(evals.path("denied"), "").unwrap();
    let (ran, _) = server.ask("tools/call", run_eval(json!({"id": "rails/eval.yaml"})));
    let outputs = &result(&ran)["incompleteOutputs"];
    assert_eq!((&outputs["verdict"], &outputs["status"]), (&json!("rig_error"), &json!("failed")), "{ran}");
    assert_eq!(ran["result"]["isError"], true);
    // The target is gone for calls, too, until it is there again.
    let (gone, _) = server.ask("tools/call", json!({"name": "identify"}));
    assert_eq!(result(&gone)["isError"], true);
    std::fs::remove_file(evals.path("denied")).unwrap();
    let (back, _) = server.ask("tools/call", json!({"name": "identify"}));
    assert_eq!(result(&back).get("isError"), None, "{back}");
}

#[test]
fn a_cancelled_run_is_never_answered_and_its_cleanup_steps_run() {
    let evals = Evals::new();
    let mut server = evals.serve(&evals.sole_rig(), &[]);
    server.send(&json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": run_eval(json!({"id": "slow"}))}));
    server.wait_for_log("waiting for AUX");
    assert_eq!(server.ask("ping", json!({})).0["result"], json!({}), "a ping is answered while a run goes on");
    // A call that waits, and one that does not wait any more.
    server.send(&json!({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "identify"}}));
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}}));
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}));
    let started = Instant::now();
    let (measured, before) = server.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "3V3"}}));
    assert!(started.elapsed() < PATIENCE / 2, "the run goes on");
    assert!(result(&measured)["structuredContent"]["volts"].is_number(), "{measured}");
    assert!(before.iter().all(|line| line.get("id").is_none()), "{before:?}");
    evals.assert_cancelled();
}

#[test]
fn the_end_of_input_and_a_signal_cancel_a_run() {
    for signal in [None, Some(rustix::process::Signal::TERM)] {
        let evals = Evals::new();
        let mut server = evals.serve("sim", &[]);
        server.send(
            &json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": run_eval(json!({"id": "slow"}))}),
        );
        server.wait_for_log("waiting for AUX");
        let started = Instant::now();
        match signal {
            None => server.stdin = None,
            Some(signal) => {
                let pid = rustix::process::Pid::from_child(&server.child);
                rustix::process::kill_process(pid, signal).unwrap();
            }
        }
        if signal.is_none() {
            // A client that still reads gets the result.
            let mut line = server.line();
            while line.get("id").is_none() {
                line = server.line();
            }
            let outputs = &result(&line)["incompleteOutputs"];
            assert_eq!(
                (&outputs["verdict"], &line["result"]["isError"]),
                (&json!("cancelled"), &json!(true)),
                "{line}"
            );
        }
        wait_for_end(&mut server.child);
        assert!(started.elapsed() < PATIENCE / 2, "{signal:?}: the run was not cancelled");
        evals.assert_cancelled();
    }
}

#[test]
fn evals_are_subject_to_what_is_allowed() {
    let evals = Evals::new();
    let mut server = evals.serve("sim", &["--read-only"]);
    let (tools, _) = server.ask("tools/list", json!({}));
    assert_eq!(names(&tools), [&READ_ONLY[..], &["list_evals"]].concat());
    let (refused, _) = server.ask("tools/call", run_eval(json!({"id": "slow"})));
    assert_eq!(refused["error"]["code"], -32602);
    let mut server = evals.serve("sim", &["--allow", "run_eval", "identify"]);
    assert_eq!(names(&server.ask("tools/list", json!({})).0), ["identify", "run_eval"]);
    let (ran, _) = server.ask("tools/call", run_eval(json!({"id": "rails/eval.yaml"})));
    assert_eq!(result(&ran)["structuredContent"]["verdict"], "pass", "an eval calls what its file says: {ran}");
    let refusal = |words: &[&str]| {
        let output = Command::new(RIGLINE).args(words).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // Without evals the tools are not there.
    assert!(refusal(&["mcp", "sim", "--allow", "run_eval"]).contains("run_eval"));
    assert!(refusal(&["mcp", "sim", "--evals", "/nowhere/at/all"]).contains("--evals /nowhere/at/all"));
    // A target with a tool of that name: neither hides the other.
    let script = evals.path("clash.sh");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "clash", "version": "1.0.0"}}});
    let tools = json!({"jsonrpc": "2.0", "id": 2, "result": {"tools": [{"name": "run-eval", "inputSchema": {"type": "object"}}]}});
    std::fs::write(&script, format!("read a; echo '{hello}'; read a; read a; echo '{tools}'; cat >/dev/null")).unwrap();
    let refused = refusal(&["mcp", &format!("exec:sh {script}"), "--evals", &evals.path("evals")]);
    assert!(refused.contains("`run-eval`") && refused.contains("clash"), "{refused}");
}

/// A server over HTTP. Dropping it kills the process.
struct Http {
    child: Child,
    address: String,
}

/// A response: status, headers and body. Events are in the body as they came.
struct Response {
    status: u16,
    headers: String,
    body: String,
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("{}", self.body))
    }
}

impl Http {
    fn start() -> Self {
        Self::of("sim")
    }

    fn of(target: &str) -> Self {
        let words = ["serve", target, "--http", "127.0.0.1:0", "--protocol", "mcp"];
        let mut child = Command::new(RIGLINE).args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("listening on http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
        Self { child, address }
    }

    fn begin(&self, method: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!(
            "{method} /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\nAccept: application/json, text/event-stream\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn raw(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut text = String::new();
        self.begin(method, headers, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, headers: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn legacy(&self, method: &str, params: Value) -> Response {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.raw("POST", &[], &body.to_string())
    }

    fn modern(&self, method: &str, params: Value, headers: &[(&str, &str)]) -> Response {
        self.raw("POST", headers, &modern(method, params).to_string())
    }
}

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": "m", "method": method, "params": params})
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_legacy_era_over_http() {
    let http = Http::start();
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string();
    for header in ["2025-11-25", MODERN, "2099-01-01"] {
        let reply = http.raw("POST", &[("MCP-Protocol-Version", header)], &body);
        assert_eq!((reply.status, &reply.json()["result"]["protocolVersion"]), (200, &json!("2025-11-25")), "{header}");
    }
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(http.raw("POST", &[], &notification).status, 202);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    assert_eq!(http.raw("POST", &[("MCP-Protocol-Version", "2025-06-18")], &list).status, 200);
    assert_eq!(http.raw("POST", &[("MCP-Protocol-Version", "1.0")], &list).status, 400);
    for method in ["GET", "DELETE", "PUT"] {
        let reply = http.raw(method, &[], "");
        assert_eq!(reply.status, 405, "{method}");
        assert!(reply.headers.contains("allow: post"));
    }
    assert_eq!(http.legacy("nope", json!({})).code(), -32601);
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    assert_eq!(http.raw("POST", &[], &batch.to_string()).json(), json!([{"jsonrpc": "2.0", "id": 1, "result": {}}]));
    for (body, status) in
        [("", 400), ("{", 400), ("[]", 400), ("3", 400), ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 202)]
    {
        assert_eq!(http.raw("POST", &[], body).status, status, "{body}");
    }
    let tested = http.legacy("tools/call", json!({"name": "self_test", "_meta": {"progressToken": 7}}));
    assert!(tested.headers.contains("content-type: text/event-stream"), "{}", tested.headers);
    assert!(tested.body.contains("\"progressToken\":7") && tested.body.contains("\"passed\":6"), "{}", tested.body);
}

/// Session Management: named by `initialize`, 404 where it is not known, ended by `DELETE`.
#[test]
fn sessions_of_the_legacy_era() {
    let http = Http::start();
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let session = |headers: &[(&str, &str)]| {
        let reply = http.raw("POST", headers, &hello.to_string());
        assert_eq!(reply.status, 200);
        let line = reply.headers.lines().find_map(|line| line.strip_prefix("mcp-session-id: ").map(str::to_owned));
        line.unwrap_or_else(|| panic!("{}", reply.headers))
    };
    let (first, second) = (session(&[]), session(&[("Mcp-Session-Id", "old")]));
    assert!(first != second && first.len() >= 32 && first.bytes().all(|byte| byte.is_ascii_graphic()));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    let batch = format!("[{list}]");
    let status = |name: &str, body: &str| http.raw("POST", &[("Mcp-Session-Id", name)], body).status;
    for body in [&list, &batch] {
        assert_eq!((status(&first, body), status("nope", body), status("", body)), (200, 404, 404), "{body}");
    }
    assert_eq!((status(&first, &notification), status("nope", &notification)), (202, 404));
    // A request without one is answered, and the modern era has none.
    assert_eq!(http.raw("POST", &[], &list).status, 200);
    let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list"), ("Mcp-Session-Id", "nope")];
    let reply = http.modern("tools/list", json!({}), &headers);
    assert!(reply.status == 200 && !reply.headers.contains("mcp-session-id"), "{}", reply.headers);
    assert_eq!(http.raw("DELETE", &[("Mcp-Session-Id", &first), ("MCP-Protocol-Version", MODERN)], "").status, 405);

    // The level of logs is a session's own, in a batch too.
    let silence = |level: &str| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": level}}).to_string()
    };
    for (name, body) in [(&second, silence("warning")), (&second, format!("[{}]", silence("warning")))] {
        assert!(http.raw("POST", &[("Mcp-Session-Id", name)], &body).body.contains("\"result\":{}"), "{body}");
    }
    assert_eq!(http.raw("POST", &[], &silence("error")).status, 200);
    assert_eq!(http.raw("POST", &[], &silence("loud")).code(), -32602);
    let test = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "self_test"}}).to_string();
    for (headers, has_logs) in
        [(&[("Mcp-Session-Id", &*first)][..], true), (&[("Mcp-Session-Id", &*second)], false), (&[], true)]
    {
        let reply = http.raw("POST", headers, &test);
        assert_eq!(reply.body.contains("notifications/message"), has_logs, "{headers:?}: {}", reply.body);
    }

    // What runs of a session ends with it.
    let wait = json!({"name": "wait_for", "arguments": {"channel": "AUX", "min": 9, "max": 10, "within_ms": 60_000}});
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": wait}).to_string();
    let _running = http.begin("POST", &[("Mcp-Session-Id", &first)], &call);
    std::thread::sleep(Duration::from_millis(500));
    // Another session's id is not its own.
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}).to_string();
    assert_eq!(status(&second, &cancelled), 202);
    let started = Instant::now();
    for expected in [204, 404] {
        assert_eq!(http.raw("DELETE", &[("Mcp-Session-Id", &first)], "").status, expected);
    }
    assert_eq!((status(&first, &list), status(&second, &list)), (404, 200));
    assert_eq!(http.legacy("tools/call", json!({"name": "identify"})).status, 200);
    assert!(started.elapsed() < PATIENCE / 2, "the call goes on");
}

/// Calls, descriptions and bridges reach a server over HTTP, too; a session that the server has lost is begun again.
#[test]
fn a_server_over_http_is_a_target() {
    let http = Http::start();
    let url = format!("http://{}/mcp", http.address);
    let run = |words: &[&str]| {
        let output = Command::new(RIGLINE).args(words).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&["call", &url, "--protocol", "mcp", "measure", "channel=3V3"]).contains("volts"));
    assert!(run(&["describe", &url, "--protocol", "mcp"]).contains("self-test"));
    assert!(
        run(&["check", &url, "--protocol", "mcp", "--call", "self_test", "--strict"]).contains("0 failed, 0 skipped")
    );
    let mut bridge = ServerProcess::start(&["mcp", &url]);
    let (tested, before) = bridge.ask("tools/call", json!({"name": "self_test", "_meta": {"progressToken": "t"}}));
    assert_eq!(tested["result"]["structuredContent"]["passed"], 6, "{tested}");
    assert_eq!(before.iter().filter(|line| line["method"] == "notifications/progress").count(), 6);
    // A cancellation gets there.
    let forever =
        json!({"name": "wait_for", "arguments": {"channel": "AUX", "min": 9, "max": 10, "within_ms": 60_000}});
    bridge.send(&json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": forever}));
    bridge.wait_for_log("waiting for AUX");
    bridge.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}));
    let started = Instant::now();
    let (measured, _) = bridge.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "3V3"}}));
    assert!(measured["result"]["structuredContent"]["volts"].is_number(), "{measured}");
    assert!(started.elapsed() < PATIENCE / 2, "the call goes on");
}

/// A server of one connection over TCP, whose replies to these methods are these texts.
fn replies(results: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
                let Some((_, result)) = results.iter().find(|(method, _)| request["method"] == *method) else {
                    continue;
                };
                let reply = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n", request["id"]);
                let _ = (&stream).write_all(reply.as_bytes());
            }
        }
    });
    target
}

/// Numbers keep all the digits that the server wrote, also those that no `f64` holds; operations keep the server's order.
/// Reports: wong2/mcp-cli#1.
#[test]
fn numbers_of_an_mcp_server_keep_their_digits() {
    const NUMBERS: &str = r#"{"a":0.000,"b":123456789012345678901234567890,"c":1e400,"d":-0}"#;
    let target = replies(&[
        ("initialize", r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#),
        (
            "tools/list",
            r#"{"tools":[{"name":"z","inputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":123456789012345678901234567890}}}},{"name":"a","inputSchema":{"type":"object"}}]}"#,
        ),
        (
            "tools/call",
            r#"{"structuredContent":{"a":0.000,"b":123456789012345678901234567890,"c":1e400,"d":-0},"content":[{"type":"text","text":"{\"a\":0.000,\"b\":123456789012345678901234567890,\"c\":1e400,\"d\":-0}"},{"type":"image","data":"AA==","mimeType":"image/png"}]}"#,
        ),
    ]);
    let run = |words: &[&str]| {
        let output =
            Command::new(RIGLINE).args(words).args(["--protocol", "mcp"]).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let called: String = run(&["call", &target, "z", "--json"]).split_whitespace().collect();
    assert!(called.contains(&format!("{},\"content\":[", NUMBERS.trim_end_matches('}'))), "{called}");
    assert_eq!(called.matches("1e400").count(), 1, "the text is the structured content: {called}");
    let printed = run(&["call", &target, "z"]);
    for number in ["0.000", "123456789012345678901234567890", "1e400"] {
        assert!(printed.contains(number), "{number}: {printed}");
    }
    let described = run(&["describe", &target, "--json"]);
    assert!(described.contains("123456789012345678901234567890"), "{described}");
    assert!(described.find("\"z\"") < described.find("\"a\""), "{described}");
}

/// Images and the like are one more output, which has another name than the tool's own.
#[test]
fn content_is_not_lost_if_an_output_has_its_name() {
    const IMAGE: &str = r#"[{"type":"image","data":"AA==","mimeType":"image/png"}]"#;
    let folder = tempfile::tempdir().unwrap();
    let eval = folder.path().join("eval.yaml");
    let task = "name: images\ntasks:\n  - id: t\n    steps:\n      - { id: s, operation: show }\n";
    std::fs::write(&eval, task).unwrap();
    for (structured, name, members) in [
        (r#"{"n":1.50}"#, "content", r#"{"n":1.50,"content":"#),
        (r#"{"content":{"a":{}}}"#, "content-2", r#"{"content":{"a":{}},"content-2":"#),
        (r#"{"content":1,"content-2":2}"#, "content-3", r#"{"content":1,"content-2":2,"content-3":"#),
        ("[1.50,{}]", "content", r#"{"value":[1.50,{}],"content":"#),
        ("{}", "content", r#"{"content":"#),
    ] {
        let target = replies(Vec::leak(vec![
            (
                "initialize",
                r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#,
            ),
            ("tools/list", r#"{"tools":[{"name":"show","inputSchema":{"type":"object"}}]}"#),
            ("tools/call", format!(r#"{{"structuredContent":{structured},"content":{IMAGE}}}"#).leak()),
        ]));
        let run = |words: &[&str]| {
            let output = Command::new(RIGLINE).args(words).stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let called: String = run(&["call", &target, "show", "--json"]).split_whitespace().collect();
        assert!(called.contains(&format!("\"outputs\":{members}{IMAGE}}}")), "{structured}: {called}");
        let printed = run(&["call", &target, "show"]);
        assert!(printed.contains("image/png") && printed.contains(name), "{structured}: {printed}");
        let runs = folder.path().join("runs").display().to_string();
        let report = run(&["eval", "run", eval.to_str().unwrap(), "--target", &target, "--json", "--runs", &runs]);
        let report: Value = serde_json::from_str(&report).unwrap();
        let step = &report["runs"][0]["tasks"][0]["trials"][0]["steps"][0];
        assert_eq!(step["outputs"][name], IMAGE, "{structured}: {step:#}");
    }
}

/// An agent that is served another server's tools gets what that server says: smart-mcp-proxy/mcpproxy-go#368, IBM/mcp-context-forge#774,
/// danny-avila/LibreChat#10855.
#[test]
fn tools_and_content_of_another_server_reach_agents_as_they_are_on_every_way() {
    const CONTENT: &str = r#"[{"type":"text","text":"first"},{"type":"image","data":"AA==","mimeType":"image/png","annotations":{"audience":["user"]}},{"type":"audio","data":"AQ==","mimeType":"audio/wav"},{"type":"resource","resource":{"uri":"a:b","mimeType":"text/x","text":"in it"}},{"type":"resource_link","uri":"c:d","name":"n"},{"type":"text","text":"last"}]"#;
    const TOOL: &str = r#"{"name":"show","title":"Show it","description":"Shows","inputSchema":{"type":"object","properties":{}},"outputSchema":{"type":"object","properties":{"n":{"type":"number"}}},"annotations":{"title":"T","readOnlyHint":true,"openWorldHint":false},"icons":[{"src":"i:j"}],"_meta":{"a/b":[1.50]}}"#;
    let result = format!(r#"{{"structuredContent":{{"n":1.50}},"content":{CONTENT}}}"#);
    let tools = format!(r#"{{"tools":[{TOOL}]}}"#);
    let target = replies(Vec::leak(vec![
        (
            "initialize",
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"},"instructions":"how"}"#,
        ),
        ("tools/list", tools.leak()),
        ("tools/call", result.leak()),
    ]));
    let call = json!({"name": "show", "arguments": {}});
    // The target has one connection at a time.
    let bridged = {
        let mut bridge = ServerProcess::start(&["mcp", &target]);
        ("mcp", bridge.ask("tools/list", json!({})).0, bridge.ask("tools/call", call.clone()).0)
    };
    let served = {
        let http = Http::of(&target);
        ("serve", http.legacy("tools/list", json!({})).json(), http.legacy("tools/call", call).json())
    };
    for (way, listed, called) in [bridged, served] {
        let tool: Value = serde_json::from_str(TOOL).unwrap();
        assert_eq!(listed["result"]["tools"][0], tool, "{way}");
        // The outputs are repeated as a text behind it, for clients of older revisions.
        let content = called["result"]["content"].as_array().unwrap();
        assert_eq!(json!(content[..6]), serde_json::from_str::<Value>(CONTENT).unwrap(), "{way}: {called}");
        assert_eq!(called["result"]["structuredContent"].to_string(), r#"{"n":1.5}"#, "{way}: {called}");
    }
}

/// Progress that is counted in fractions, as many servers do, is not lost on the way: each report is more than the one before.
#[test]
fn progress_in_fractions_and_logs_pass_a_server_of_another_target() {
    let script = "import sys,json\n\
        def put(m): print(json.dumps(m),flush=True)\n\
        for line in sys.stdin:\n\
        \x20r=json.loads(line); i=r.get('id'); m=r['method']\n\
        \x20if m=='initialize': put({'jsonrpc':'2.0','id':i,'result':{'protocolVersion':'2025-11-25','capabilities':{},'serverInfo':{'name':'s','version':'1'}}})\n\
        \x20elif m=='tools/list': put({'jsonrpc':'2.0','id':i,'result':{'tools':[{'name':'work','inputSchema':{'type':'object'}}]}})\n\
        \x20elif m=='tools/call':\n\
        \x20\x20t=r['params']['_meta']['progressToken']\n\
        \x20\x20for p in (0.25,0.5,1.0): put({'jsonrpc':'2.0','method':'notifications/progress','params':{'progressToken':t,'progress':p,'total':1.0,'message':str(p)}})\n\
        \x20\x20put({'jsonrpc':'2.0','method':'notifications/message','params':{'level':'warning','data':'hot'}})\n\
        \x20\x20put({'jsonrpc':'2.0','id':i,'result':{'content':[{'type':'text','text':'done'}]}})\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.py");
    std::fs::write(&path, script).unwrap();
    let http = Http::of(&format!("exec:python3 {}", path.display()));
    let call = json!({"name": "work", "arguments": {}, "_meta": {"progressToken": "p"}});
    let events = http.legacy("tools/call", call).body;
    for (place, text) in ["0.25", "0.5", "1.0"].into_iter().enumerate() {
        let done = [250, 500, 1000][place];
        assert!(events.contains(&format!("\"progress\":{done},\"total\":1000,\"message\":\"{text}\"")), "{events}");
    }
    assert!(events.contains(r#""level":"warning","data":"hot""#), "{events}");
    assert!(events.contains("done"), "{events}");
}

/// A server of lines speaks MCP too: what `rigline mcp tcp:` shows to agents has types and annotations, and it can be limited to what reads.
#[test]
fn tools_of_a_server_of_lines_have_types_and_annotations() {
    let program = format!("exec:{RIGLINE} rig");
    for words in [
        &["serve", "sim", "--tcp", "127.0.0.1:0"][..],
        &["serve", &program, "--tcp", "127.0.0.1:0", "--protocol", "mcp"],
    ] {
        let mut child = Command::new(RIGLINE).args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let target = line.trim().rsplit(' ').next().unwrap().to_owned();
        let mut bridge = ServerProcess::start(&["mcp", &target, "--read-only"]);
        let (listed, _) = bridge.ask("tools/list", json!({}));
        assert_eq!(names(&listed), READ_ONLY, "{words:?}");
        // Null for an optional argument means that it is absent: rossoctl/examples#175.
        let arguments = json!({"channel": "3V3", "samples": null});
        let (measured, _) = bridge.ask("tools/call", json!({"name": "measure", "arguments": arguments}));
        assert!(measured["result"]["structuredContent"]["volts"].is_number(), "{words:?}: {measured}");
        drop(bridge);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Streamable HTTP, Request Metadata and Server Validation.
#[test]
fn the_modern_era_over_http() {
    let http = Http::start();
    let version = ("MCP-Protocol-Version", MODERN);
    let list = |headers: &[(&str, &str)]| http.modern("tools/list", json!({}), headers);
    assert_eq!(list(&[version, ("Mcp-Method", "tools/list")]).status, 200);
    assert_eq!(list(&[("mcp-protocol-version", MODERN), ("MCP-METHOD", "  tools/list  ")]).status, 200);
    for headers in [
        &[][..],
        &[version],
        &[("Mcp-Method", "tools/list")],
        &[("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Method", "tools/list")],
        &[version, ("Mcp-Method", "TOOLS/LIST")],
        &[version, ("Mcp-Method", "tools/call")],
        &[version, ("Mcp-Method", "tools/list"), ("Mcp-Method", "tools/list")],
    ] {
        let reply = list(headers);
        assert_eq!((reply.status, reply.code()), (400, -32020), "{headers:?}");
        assert_eq!(reply.json()["id"], "m");
    }
    let call = |name: &str| {
        let headers = [version, ("Mcp-Method", "tools/call"), ("Mcp-Name", name)];
        http.modern("tools/call", json!({"name": "identify", "arguments": {}}), &headers)
    };
    for name in ["identify", " identify ", "=?base64?aWRlbnRpZnk=?=", "=?base64?aWRlbnRpZnk?="] {
        assert_eq!(call(name).status, 200, "{name}");
    }
    for name in ["Identify", "measure", "=?base64?bWVhc3VyZQ==?=", "=?base64?!!!?=", "=?base64?aWRlbnRpZnk="] {
        let reply = call(name);
        assert_eq!((reply.status, reply.code()), (400, -32020), "{name}");
    }
    let unknown = http.modern("nope/nope", json!({}), &[version, ("Mcp-Method", "nope/nope")]);
    assert_eq!((unknown.status, unknown.code()), (404, -32601));
    let unknown = http.modern(
        "tools/call",
        json!({"name": "nope"}),
        &[version, ("Mcp-Method", "tools/call"), ("Mcp-Name", "nope")],
    );
    assert_eq!((unknown.status, unknown.code()), (200, -32602));
    let bare = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": {}}).to_string();
    let reply = http.raw("POST", &[version, ("Mcp-Method", "tools/list")], &bare);
    assert_eq!((reply.status, reply.code()), (400, -32602), "a modern header without `_meta`");
    let mut old = modern("server/discover", json!({}));
    old["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("1900-01-01");
    let headers = [("MCP-Protocol-Version", "1900-01-01"), ("Mcp-Method", "server/discover")];
    let reply = http.raw("POST", &headers, &old.to_string());
    assert_eq!((reply.status, reply.code()), (400, -32022));
    assert_eq!(reply.json()["error"]["data"]["requested"], "1900-01-01");
    let foreign = list(&[version, ("Mcp-Method", "tools/list"), ("Origin", "http://evil.example")]);
    assert_eq!(foreign.status, 403);
}

/// Cancellation: closing the stream is the signal in the modern era, and means nothing in the legacy one.
#[test]
fn a_client_that_goes_away_cancels_in_the_modern_era_only() {
    let http = Http::start();
    let wait =
        |ms: u64| json!({"name": "wait_for", "arguments": {"channel": "AUX", "min": 9, "max": 10, "within_ms": ms}});
    let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "wait_for")];
    let gone = http.begin("POST", &headers, &modern("tools/call", wait(60_000)).to_string());
    std::thread::sleep(Duration::from_millis(500));
    drop(gone);
    let started = Instant::now();
    assert_eq!(http.legacy("tools/call", json!({"name": "identify"})).status, 200);
    assert!(started.elapsed() < PATIENCE / 2, "the call was not cancelled");
    let legacy = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": wait(3000)}).to_string();
    let gone = http.begin("POST", &[], &legacy);
    std::thread::sleep(Duration::from_millis(500));
    drop(gone);
    let started = Instant::now();
    assert_eq!(http.legacy("tools/call", json!({"name": "identify"})).status, 200);
    assert!(started.elapsed() > Duration::from_secs(1), "the call was cancelled");
}

/// Another client's call may take long: what needs no call does not wait for it.
#[test]
fn clients_learn_what_there_is_while_a_call_runs() {
    let http = Http::start();
    let wait = json!({"name": "wait_for", "arguments": {"channel": "AUX", "min": 9, "max": 10, "within_ms": 120_000}});
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": wait}).to_string();
    let _running = http.begin("POST", &[], &call);
    std::thread::sleep(Duration::from_millis(500));
    let started = Instant::now();
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    assert_eq!(http.legacy("initialize", hello).json()["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(names(&http.legacy("tools/list", json!({})).json()).len(), OPERATIONS + 1);
    assert_eq!(http.legacy("ping", json!({})).json()["result"], json!({}));
    let list = http.modern("tools/list", json!({}), &[("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")]);
    assert_eq!(list.json()["result"]["tools"].as_array().unwrap().len(), OPERATIONS + 1);
    for params in [json!({"name": "no_such"}), json!({"name": 5}), json!({})] {
        assert_eq!(http.legacy("tools/call", params.clone()).json()["error"]["code"], -32602, "{params}");
    }
    let batch = "[{\"jsonrpc\":\"2.0\",\"id\":1,\r\n\"method\":\"tools/list\"}]";
    assert_eq!(names(&http.raw("POST", &[], batch).json()[0]).len(), OPERATIONS);
    assert!(started.elapsed() < PATIENCE / 2, "it waited for the call");
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    assert_eq!(http.raw("POST", &[], &cancelled.to_string()).status, 202);
}

/// Two clients choose the same ids and tokens, and each gets what is its own.
#[test]
fn clients_are_told_apart() {
    let http = Http::start();
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| http.legacy("tools/call", json!({"name": "self_test", "_meta": {"progressToken": 1}})))
            })
            .collect();
        for asked in asked {
            let reply = asked.join().unwrap();
            assert_eq!(reply.body.matches("notifications/progress").count(), 6, "{}", reply.body);
            assert_eq!(reply.body.matches("\"id\":1,\"result\"").count(), 1, "{}", reply.body);
        }
    });
}

#[test]
fn mcp_config_prints_what_a_client_needs_and_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        Command::new(RIGLINE).args(words).current_dir(&folder).env("HOME", folder.path()).output().unwrap()
    };
    let printed = run(&["mcp-config", "sim", "--client", "claude-code", "--name", "rig", "--read-only"]);
    let snippet: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let args = &snippet["mcpServers"]["rig"]["args"];
    assert_eq!(args, &json!(["mcp", "sim", "--read-only"]));
    // What is printed works.
    let command = snippet["mcpServers"]["rig"]["command"].as_str().unwrap();
    let works = Command::new(command).args(["mcp", "sim", "--read-only"]).stdin(Stdio::null()).output().unwrap();
    assert!(works.status.success());
    std::fs::create_dir(folder.path().join(".vscode")).unwrap();
    std::fs::write(folder.path().join(".vscode/mcp.json"), "{\"inputs\":[1]}").unwrap();
    let written = run(&["mcp-config", "serial:auto", "--client", "vscode", "--write"]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let file: Value = serde_json::from_slice(&std::fs::read(folder.path().join(".vscode/mcp.json")).unwrap()).unwrap();
    assert_eq!(
        (&file["inputs"], &file["servers"]["serial-auto"]["args"]),
        (&json!([1]), &json!(["mcp", "serial:auto"]))
    );
    assert_eq!(std::fs::read_to_string(folder.path().join(".vscode/mcp.json.bak")).unwrap(), "{\"inputs\":[1]}");
    let again = run(&["mcp-config", "serial:auto", "--client", "vscode", "--write"]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("already"));
    let printed = run(&["mcp-config", "sim", "--client", "cursor", "--evals", "evals", "--allow", "run_eval"]);
    let snippet: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let evals = folder.path().canonicalize().unwrap().join("evals");
    let words = json!(["mcp", "sim", "--allow", "run_eval", "--evals", evals]);
    assert_eq!(snippet["mcpServers"]["sim"]["args"], words);
    let url = run(&["mcp-config", "http://127.0.0.1:8080/mcp", "--client", "cursor"]);
    assert!(String::from_utf8_lossy(&url.stdout).contains("\"url\": \"http://127.0.0.1:8080/mcp\""));
    assert_eq!(run(&["mcp-config", "sim", "--client", "nobody"]).status.code(), Some(2));
}
