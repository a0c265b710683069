//! A board that comes and goes, and that has other tools when it comes again.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::support::{PATIENCE, RIGLINE, ServerProcess, says};

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
        reply["result"] = {"tools": [{"name": "blink", "description": "Blinks once", "inputSchema": {"type": "object", "properties": {}}}]}
    elif method == "tools/call":
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
    let server = crate::agents::support::Listening::start(&["serve", "sim", "--tcp", &address.to_string()], "on tcp:");
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
    let _server = crate::agents::support::Listening::start(&["serve", "sim", "--tcp", &address.to_string()], "on tcp:");
    let told: Value = agent.line();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "sub");
    // Nothing more comes when nothing changes.
    thread::sleep(Duration::from_millis(1500));
    let listed = agent.ask_seeing("tools/list", json!({"_meta": meta}), |_, line| panic!("{line}"));
    assert!(listed["result"]["tools"].as_array().unwrap().len() > 5);
}
