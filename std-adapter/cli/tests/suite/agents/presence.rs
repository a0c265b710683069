//! A board that comes and goes, and that has other tools when it comes again.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::post;
use crate::agents::support::{Agent, Listening, PATIENCE, RIGLINE, ServerProcess, says};
use crate::servers::{LineClient, request};

/// A board that is a program behind a pty, whose name is a link where the port is looked for.
struct Board {
    child: std::process::Child,
}

impl Board {
    /// Pulls it out: the link is gone, and the port hangs up.
    fn pull(mut self, port: &Path) {
        fs::remove_file(port).unwrap();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn description(agent: &mut ServerProcess, tool: &str) -> String {
    let reply = agent.ask("tools/list", json!({}));
    let tools = reply["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|found| found["name"] == tool).unwrap_or_else(|| panic!("{reply}"));
    tool["description"].as_str().unwrap().to_owned()
}

/// Waits until the client is told that its tools are others.
fn wait_for_change(agent: &mut ServerProcess) {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < PATIENCE);
        if agent.line()["method"] == "notifications/tools/list_changed" {
            return;
        }
    }
}

// minhalvp/android-mcp-server#18, maximhq/bifrost#6885
#[test]
fn a_board_comes_goes_and_comes_back_with_other_tools() {
    let folder = tempfile::tempdir().unwrap();
    let port = folder.path().join("ttyACM0");
    let target = format!("serial:{}", port.display());
    let state = folder.path().join("state");
    let env = [("XDG_STATE_HOME", state.to_str().unwrap())];
    // It was never there: the server starts all the same.
    let mut agent = ServerProcess::start_with(&["mcp", &target], &env);
    let greeted = agent.initialize(json!({}));
    assert_eq!(greeted["capabilities"]["tools"]["listChanged"], true, "{greeted}");
    assert!(agent.tools().contains(&"find_board".to_owned()));
    let sought = agent.call("find_board", json!({}));
    assert!(sought["isError"] == true && says(&sought, "ttyACM0"), "it says what is missing: {sought}");

    let board = Board::plug_in(&port, &format!("exec {RIGLINE} rig"));
    wait_for_change(&mut agent);
    assert!(agent.tools().contains(&"measure".to_owned()) && !agent.tools().contains(&"find_board".to_owned()));
    let measured = agent.call("measure", json!({"channel": "3V3"}));
    assert!(measured["structuredContent"]["volts"].is_number(), "{measured}");
    assert!(!description(&mut agent, "measure").contains("Absent"));

    board.pull(&port);
    wait_for_change(&mut agent);
    assert!(description(&mut agent, "measure").starts_with("Absent"));
    let missing = agent.call("measure", json!({"channel": "3V3"}));
    assert!(missing["isError"] == true && says(&missing, "ttyACM0"), "{missing}");

    // The board's next firmware has other operations.
    let script = folder.path().join("other.py");
    fs::write(&script, OTHER).unwrap();
    let board = Board::plug_in(&port, &format!("exec python3 {}", script.display()));
    wait_for_change(&mut agent);
    let tools = agent.tools();
    assert!(tools.contains(&"blink".to_owned()) && !tools.contains(&"measure".to_owned()), "{tools:?}");
    assert!(says(&agent.call("blink", json!({})), "blinked"));
    drop(agent);

    // A server that starts without the board lists what it last had.
    board.pull(&port);
    let mut agent = ServerProcess::start_with(&["mcp", &target], &env);
    assert!(agent.tools().contains(&"blink".to_owned()));
    assert!(description(&mut agent, "blink").starts_with("Absent"));
    let missing = agent.call("blink", json!({}));
    assert!(missing["isError"] == true && says(&missing, "ttyACM0"), "{missing}");
}

impl Board {
    /// Plugs it in: its program runs behind a pty, and the link to that appears.
    fn plug_in(port: &Path, script: &str) -> Self {
        use rustix::fs::OFlags;
        let master = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, rustix::fs::Mode::empty()).unwrap();
        let mut mode = rustix::termios::tcgetattr(&slave).unwrap();
        mode.make_raw();
        rustix::termios::tcsetattr(&slave, rustix::termios::OptionalActions::Now, &mode).unwrap();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]);
        command.stdin(master.try_clone().unwrap()).stdout(master).stderr(std::process::Stdio::null());
        let child = command.spawn().unwrap();
        drop(command);
        std::os::unix::fs::symlink(name, port).unwrap();
        Self { child }
    }
}

/// An MCP server of one tool.
const OTHER: &str = r#"
import json, sys
for line in sys.stdin:
    try:
        request = json.loads(line)
    except ValueError:
        continue
    if "id" not in request:
        continue
    method, reply = request.get("method"), {"jsonrpc": "2.0", "id": request["id"]}
    if method == "initialize":
        reply["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "other", "version": "2.0.0"}}
    elif method == "tools/list":
        tool = {"name": "blink", "description": "Blinks once", "inputSchema": {"type": "object", "properties": {}}}
        tool["annotations"] = {"readOnlyHint": sys.argv[1:2] == ["reads"]}
        reply["result"] = {"tools": [tool]}
    elif method == "tools/call":
        for path in sys.argv[2:]:
            open(path, "a").write(f"{sys.argv[1]}\n")
        reply["result"] = {"content": [{"type": "text", "text": "blinked"}]}
    else:
        reply["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(reply), flush=True)
"#;

// maximhq/bifrost#6885: the target and what it has on are the same after it has said that its tools are others.
#[test]
fn a_target_whose_tools_change_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("changing.py");
    fs::write(&script, CHANGING).unwrap();
    let mut agent = ServerProcess::start(&["mcp", &format!("exec:python3 {}", script.display())]);
    agent.initialize(json!({}));
    let mut before = Value::Null;
    for count in 1..=3 {
        let called = agent.call("next", json!({}));
        let process = called["content"][0]["text"].clone();
        assert!(process.is_string() && (before.is_null() || before == process), "{before}: {called}");
        before = process;
        wait_for_change(&mut agent);
        assert_eq!(agent.tools().iter().filter(|tool| tool.starts_with("tool_")).count(), count);
    }
    // The session ends when the client goes, as it does without a change.
    drop(agent.stdin.take());
    agent.child.wait().unwrap();
}

/// An MCP server that has one more tool after each call. It says which process it is.
const CHANGING: &str = r#"
import json, os, sys
count = 0
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, reply = request.get("method"), {"jsonrpc": "2.0", "id": request["id"]}
    if method == "initialize":
        reply["result"] = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "changing", "version": "1.0.0"}}
    elif method == "tools/list":
        names = ["next"] + ["tool_%d" % number for number in range(count)]
        reply["result"] = {"tools": [{"name": name, "description": name, "inputSchema": {"type": "object", "properties": {}}} for name in names]}
    elif method == "tools/call":
        count += 1
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
        reply["result"] = {"content": [{"type": "text", "text": str(os.getpid())}]}
    else:
        reply["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(reply), flush=True)
"#;

// The same of a server on this machine that is started later.
#[test]
fn a_server_that_does_not_listen_yet_is_waited_for() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let state = tempfile::tempdir().unwrap();
    let env = [("XDG_STATE_HOME", state.path().to_str().unwrap())];
    let mut agent = ServerProcess::start_with(&["mcp", &format!("tcp:{address}")], &env);
    agent.initialize(json!({}));
    assert_eq!(agent.tools().first().map(String::as_str), Some("find_board"));
    let server = Listening::start(&["serve", "sim", "--tcp", &address.to_string()], "on tcp:");
    wait_for_change(&mut agent);
    assert!(agent.tools().contains(&"measure".to_owned()));
    drop(server);
    wait_for_change(&mut agent);
    assert!(description(&mut agent, "measure").starts_with("Absent"));
}

/// In the modern era a client subscribes, and names its subscription.
#[test]
fn a_subscription_of_the_modern_era_is_told_of_other_tools() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let state = tempfile::tempdir().unwrap();
    let env = [("XDG_STATE_HOME", state.path().to_str().unwrap())];
    let mut agent = ServerProcess::start_with(&["mcp", &format!("tcp:{address}")], &env);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    agent.send(&json!({"jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen", "params": params}));
    let acknowledged = agent.line();
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}), "{acknowledged}");
    let _server = Listening::start(&["serve", "sim", "--tcp", &address.to_string()], "on tcp:");
    let told: Value = agent.line();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub");
    // Nothing more comes when nothing changes.
    thread::sleep(Duration::from_millis(1500));
    let listed = agent.ask_seeing("tools/list", json!({"_meta": meta}), |_, line| panic!("{line}"));
    assert!(listed["result"]["tools"].as_array().unwrap().len() > 5);
}

/// The text by which an MCP client is told of a target that is not there.
fn told_to_agents(target: &str, env: &[(&str, &str)]) -> String {
    let mut agent = ServerProcess::start_with(&["mcp", target], env);
    agent.initialize(json!({}));
    let sought = agent.call("find_board", json!({}));
    assert_eq!(sought["isError"], true, "{sought}");
    sought["content"][0]["text"].as_str().unwrap().to_owned()
}

fn invoke(operation: &str) -> Value {
    json!({"op": operation, "args": {"channel": "3V3"}})
}

fn tool(operation: &str) -> Value {
    json!({"protocol_version": 1, "tool_name": operation, "payload": {"channel": "3V3"}})
}

/// Until something is known of the board, no client is told that an operation does not exist.
#[test]
fn clients_of_each_protocol_over_http_are_told_that_the_board_is_missing() {
    for more in [&[][..], &["--protocol", "amplifier"], &["--protocol", "namel3ss"], &["--read-only"]] {
        let folder = tempfile::tempdir().unwrap();
        let port = folder.path().join("ttyACM0");
        let target = format!("serial:{}", port.display());
        let state = folder.path().join("state");
        let env = [("XDG_STATE_HOME", state.to_str().unwrap())];
        let missing = told_to_agents(&target, &env);
        let words = [&["serve", &target, "--http", "127.0.0.1:0"], more].concat();
        let server = Listening::start_with(&words, &env, "listening on ");
        let is_served = |protocol| more.is_empty() || more == ["--read-only"] || more.contains(&protocol);
        if is_served("amplifier") {
            for body in [invoke("measure"), json!({"op": "describe"})] {
                let error = &post(&server.address, "/invoke", &body)["error"];
                assert!(error["code"] == "unreachable" && error["message"] == missing, "{more:?} {body}: {error}");
            }
            assert_eq!(post(&server.address, "/health", &json!({})), json!({"status": "ok"}));
        }
        if is_served("namel3ss") {
            for path in ["/tools", "/capabilities/handshake"] {
                let error = &post(&server.address, path, &tool("measure"))["error"];
                assert!(error["type"] == "OperationFailed" && error["message"] == missing, "{more:?} {path}: {error}");
            }
        }

        let board = Board::plug_in(&port, &format!("exec {RIGLINE} rig"));
        if is_served("amplifier") {
            let reply = post(&server.address, "/invoke", &invoke("measure"));
            assert!(reply["result"]["volts"].is_number(), "{more:?}: {reply}");
            let unknown = post(&server.address, "/invoke", &invoke("nope"));
            assert_eq!(unknown["error"]["code"], "unsupported_op", "{more:?}: {unknown}");
            // A choice of operations holds for a board that comes later.
            let power = post(&server.address, "/invoke", &json!({"op": "power", "args": {"rail": "3V3", "on": true}}));
            assert_eq!(power["error"]["code"] == "unsupported_op", more == ["--read-only"], "{more:?}: {power}");
        }
        if is_served("namel3ss") {
            let reply = post(&server.address, "/tools", &tool("measure"));
            assert_eq!(reply["ok"], true, "{more:?}: {reply}");
            assert_eq!(post(&server.address, "/capabilities/handshake", &tool("measure"))["ok"], true);
        }
        board.pull(&port);
    }
}

pub(super) fn connect(server: &Listening) -> LineClient {
    LineClient::new(TcpStream::connect(server.address.trim_start_matches("tcp:")).unwrap())
}

pub(super) fn greeting() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}})
}

fn tools_of(client: &mut LineClient) -> Vec<Value> {
    let listed = client.ask("tools/list", json!({}));
    listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
}

fn has(tools: &[Value], name: &str) -> bool {
    tools.iter().any(|tool| tool["name"] == name)
}

/// Waits for the word that the tools are others, and that there is one.
fn wait_for_word(client: &mut LineClient) -> Value {
    loop {
        let line = client.line();
        assert!(!line.is_null(), "the connection has ended");
        if line["method"] == "notifications/tools/list_changed" {
            return line;
        }
    }
}

/// Over TCP, too: a client of MCP is served until the board comes, and is told of that. Others get the reason as an error.
#[test]
fn clients_over_tcp_are_told_when_a_board_comes_goes_and_has_other_tools() {
    for more in [&[][..], &["--read-only"], &["--limit", "power=9/h"]] {
        let folder = tempfile::tempdir().unwrap();
        let port = folder.path().join("ttyACM0");
        let target = format!("serial:{}", port.display());
        let missing = told_to_agents(&target, &[("XDG_STATE_HOME", folder.path().to_str().unwrap())]);
        let words = [&["serve", &target, "--tcp", "127.0.0.1:0"], more].concat();
        let server = Listening::start(&words, "on ");
        let mut other = connect(&server);
        let execute = json!({"operation": "measure", "args": {"channel": "3V3"}, "context": {}});
        for (method, params) in [("initialize", json!({"protocolVersion": "0.0.1"})), ("execute", execute.clone())] {
            let error = &other.ask(method, params)["error"];
            assert!(error["code"] == -32000 && error["message"] == missing, "{more:?} {method}: {error}");
        }
        for (line, code) in [(invoke("measure"), "unreachable"), (tool("measure"), "OperationFailed")] {
            other.send(&line.to_string());
            let error = &other.line()["error"];
            let found = error.get("code").or_else(|| error.get("type"));
            assert!(found.is_some_and(|found| found == code) && error["message"] == missing, "{more:?}: {error}");
        }
        let mut agent = connect(&server);
        let greeted = agent.ask("initialize", greeting());
        assert_eq!(greeted["result"]["capabilities"]["tools"]["listChanged"], true, "{greeted}");
        assert!(has(&tools_of(&mut agent), "find_board"));
        let sought = agent.ask("tools/call", json!({"name": "find_board", "arguments": {}}));
        assert!(sought["result"]["isError"] == true && says(&sought["result"], &missing), "{sought}");
        let called = agent.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "3V3"}}));
        assert_eq!(called["error"]["message"], missing.as_str(), "{called}");
        let unknown = agent.ask("prompts/list", json!({}));
        assert_eq!(unknown["error"]["code"], -32601, "{unknown}");

        let board = Board::plug_in(&port, &format!("exec {RIGLINE} rig"));
        wait_for_word(&mut agent);
        let tools = tools_of(&mut agent);
        assert!(has(&tools, "measure") && !has(&tools, "find_board"), "{more:?}: {tools:?}");
        // A choice of operations holds for a board that comes later.
        assert_eq!(has(&tools, "power"), more != ["--read-only"], "{more:?}: {tools:?}");
        assert_eq!(other.ask("execute", execute.clone())["result"]["success"], true);

        board.pull(&port);
        wait_for_word(&mut agent);
        let tools = tools_of(&mut agent);
        assert!(tools.iter().all(|tool| tool["description"].as_str().unwrap().starts_with("Absent")), "{tools:?}");
        let called = agent.ask("tools/call", json!({"name": "measure", "arguments": {"channel": "3V3"}}));
        assert!(called["result"]["isError"] == true && says(&called["result"], "ttyACM0"), "{called}");

        let script = folder.path().join("other.py");
        fs::write(&script, OTHER).unwrap();
        let board = Board::plug_in(&port, &format!("exec python3 {}", script.display()));
        wait_for_word(&mut agent);
        let tools = tools_of(&mut agent);
        assert!(!has(&tools, "measure") && has(&tools, "blink") == (more != ["--read-only"]), "{more:?}: {tools:?}");
        board.pull(&port);
    }
}

/// A call that was accepted because it only reads is not passed on to a target where it does more.
#[test]
fn a_choice_of_what_only_reads_holds_for_the_target_that_gets_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let (script, log) = (folder.path().join("other.py"), folder.path().join("log"));
    fs::write(&script, OTHER).unwrap();
    let target = |kind: &str, address: &str| {
        let program = format!("exec:python3 {} {kind} {}", script.display(), log.display());
        Listening::start(&["serve", &program, "--protocol", "mcp", "--tcp", address], "on tcp:")
    };
    let runs = || fs::read_to_string(&log).unwrap_or_default();
    for way in ["--tcp", "--http"] {
        let first = target("reads", "127.0.0.1:0");
        let address = first.address.clone();
        let server = Listening::start(&["serve", &format!("tcp:{address}"), way, "127.0.0.1:0", "--read-only"], "on ");
        let (mut lines, mut agent) = if way == "--tcp" {
            let mut client = connect(&server);
            client.ask("initialize", greeting());
            (Some(client), None)
        } else {
            (None, Some(Agent::begin(&format!("{}/mcp", server.address.trim_end_matches("/mcp")), "one", json!({}))))
        };
        let mut call = || match (&mut lines, &mut agent) {
            (Some(client), _) => client.ask("tools/call", json!({"name": "blink", "arguments": {}})),
            (_, Some(agent)) => agent.ask("tools/call", json!({"name": "blink", "arguments": {}})).reply(),
            _ => Value::Null,
        };
        let called = call();
        assert_eq!((says(&called["result"], "blinked"), runs().as_str()), (true, "reads\n"), "{way}: {called}");
        drop(first);
        let _again = target("writes", &address);
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            let called = call();
            assert!(!says(&called["result"], "blinked"), "{way}: {called}");
        }
        assert_eq!(runs(), "reads\n", "{way}");
        fs::remove_file(&log).unwrap();
    }
}

/// A server that is started again with other tools, to the clients of another one in front of it.
#[test]
fn clients_over_tcp_are_told_that_a_target_was_started_again_with_other_tools() {
    let first = Listening::start(&["serve", "sim", "--tcp", "127.0.0.1:0"], "on tcp:");
    let address = first.address.clone();
    let server = Listening::start(&["serve", &format!("tcp:{address}"), "--tcp", "127.0.0.1:0"], "on ");
    let mut session = connect(&server);
    session.ask("initialize", greeting());
    assert!(has(&tools_of(&mut session), "power"));
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let subscribe = |client: &mut LineClient, id: &str, wanted: Value| {
        let params = json!({"notifications": wanted, "_meta": meta});
        let line = json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params});
        client.send(&line.to_string());
        let acknowledged = client.line();
        assert_eq!(acknowledged["params"]["notifications"], wanted, "{acknowledged}");
    };
    let [mut modern, mut quiet, mut many] = [(); 3].map(|()| connect(&server));
    subscribe(&mut modern, "called off", json!({"toolsListChanged": true}));
    subscribe(&mut modern, "sub", json!({"toolsListChanged": true}));
    let cancelled = json!({"requestId": "called off", "_meta": meta});
    modern.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}).to_string());
    subscribe(&mut quiet, "nothing", json!({}));
    for number in 0..65 {
        subscribe(&mut many, &format!("{number}"), json!({"toolsListChanged": true}));
    }
    let mut gevals = connect(&server);
    assert!(gevals.ask("initialize", json!({"protocolVersion": "0.0.1"}))["result"]["operations"]["power"].is_object());

    drop(first);
    let _again = Listening::start(&["serve", "sim", "--tcp", &address, "--read-only"], "on tcp:");
    let deadline = Instant::now() + PATIENCE;
    // It may be seen to be away before.
    loop {
        wait_for_word(&mut session);
        let tools = tools_of(&mut session);
        if !tools[0]["description"].as_str().unwrap().starts_with("Absent") {
            assert!(has(&tools, "measure") && !has(&tools, "power"), "{tools:?}");
            break;
        }
        assert!(Instant::now() < deadline);
    }
    let told = wait_for_word(&mut modern);
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub", "{told}");
    for number in 1..65 {
        let told = wait_for_word(&mut many);
        let id = &told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
        assert_eq!(*id, number.to_string(), "the oldest of more than 64 has ended");
    }
    // A client of a protocol without such a word gets the new operations when it begins again.
    let refused =
        gevals.ask("execute", json!({"operation": "power", "args": {"rail": "3V3", "on": true}, "context": {}}));
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    let greeted = connect(&server).ask("initialize", json!({"protocolVersion": "0.0.1"}));
    assert!(greeted["result"]["operations"]["measure"].is_object(), "{greeted}");
    assert!(greeted["result"]["operations"]["power"].is_null(), "{greeted}");
    quiet.send(&request("ping", json!({})));
    assert_eq!(quiet.line()["result"], json!({}), "it has not asked to be told");
}
