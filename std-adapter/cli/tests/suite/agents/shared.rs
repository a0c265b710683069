//! Agents that share a rig: what one of them gives up does not end what another has begun.

use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::presence::{connect, greeting};
use crate::agents::support::{Agent, Listening, RIGLINE, ServerProcess};

const FOREVER: &str = r#"{"channel": "AUX", "min": 9, "max": 10, "within_ms": 4000}"#;

// SpartanLabsXyz/simmer-sdk#296
#[test]
fn a_call_that_only_reads_is_given_up_without_switching_off_what_another_client_has_on() {
    for target in ["sim".to_owned(), format!("exec:{RIGLINE} rig")] {
        let words = ["serve", &target, "--http", "127.0.0.1:0", "--protocol", "mcp"];
        let server = Listening::start(&words, "listening on ");
        let mut one = Agent::begin(&server.address, "one", json!({}));
        one.call("power", json!({"rail": "3V3", "on": true}));
        let on = |agent: &mut Agent| agent.call("state", json!({}))["structuredContent"]["rails_on"].clone();
        assert_eq!(on(&mut one), json!(["3V3"]));
        let wait = json!({"name": "wait_for", "arguments": serde_json::from_str::<Value>(FOREVER).unwrap()});
        // In the modern era the end of the stream cancels, in the legacy era a message does.
        let mut modern = Agent::modern(&server.address, "other", json!({}));
        // A refused call does not make a client one that has changed something.
        assert_eq!(modern.call("power", json!({"rail": "3V3", "on": "maybe"}))["isError"], true);
        drop(modern.ask("tools/call", wait.clone()));
        assert_eq!(on(&mut one), json!(["3V3"]), "{target}");
        let mut legacy = Agent::begin(&server.address, "third", json!({}));
        let response = legacy.ask("tools/call", wait);
        legacy.tell(json!({"method": "notifications/cancelled", "params": {"requestId": 2}}));
        drop(response);
        assert_eq!(on(&mut one), json!(["3V3"]), "{target}");
        // When the last session ends, the outputs go off.
        assert_eq!(one.send("DELETE", &Value::Null, "*/*").status, 204);
        assert_eq!(on(&mut modern), json!(["3V3"]), "another session is open");
        assert_eq!(legacy.send("DELETE", &Value::Null, "*/*").status, 204);
        let started = Instant::now();
        while on(&mut modern) != json!([]) {
            assert!(started.elapsed() < Duration::from_secs(20), "{target}: the rail stays on");
        }
    }
}

#[test]
fn a_server_in_front_of_another_server_describes_the_extension_as_that_one_does() {
    let rig = format!("exec:{RIGLINE} rig");
    let limit = ["--limit", "power=1000/h"];
    for back in [
        &["serve", &rig, "--tcp", "127.0.0.1:0"][..],
        &["serve", &rig, "--http", "127.0.0.1:0", "--protocol", "mcp"],
        &[&["serve", &rig, "--tcp", "127.0.0.1:0"][..], &limit].concat(),
    ] {
        let back_server = Listening::start(back, "on ");
        let front = ["serve", &back_server.address, "--http", "127.0.0.1:0", "--protocol", "mcp"];
        let front_server = Listening::start(&front, "listening on ");
        let described = |target: &str| {
            let mut agent = ServerProcess::start(&["mcp", target]);
            let instructions = agent.initialize(json!({}))["instructions"].as_str().unwrap().to_owned();
            let mut tools = agent.ask("tools/list", json!({}))["result"]["tools"].clone();
            tools.as_array_mut().unwrap().retain(|tool| tool["name"] != "last_failure");
            (instructions.replace(" last_failure", ""), tools)
        };
        let (directly, through) = (described(&rig), described(&front_server.address));
        assert_eq!(directly, through, "{back:?}");
        assert!(directly.0.contains("switches all outputs off"), "{}", directly.0);
        // What one client gives up there switches nothing of another one's off.
        let mut one = Agent::begin(&front_server.address, "one", json!({}));
        one.call("power", json!({"rail": "3V3", "on": true}));
        let mut other = Agent::begin(&front_server.address, "other", json!({}));
        let wait = json!({"name": "wait_for", "arguments": serde_json::from_str::<Value>(FOREVER).unwrap()});
        let response = other.ask("tools/call", wait);
        other.tell(json!({"method": "notifications/cancelled", "params": {"requestId": 2}}));
        drop(response);
        let state = one.call("state", json!({}));
        assert_eq!(state["structuredContent"]["rails_on"], json!(["3V3"]), "{back:?}: {state}");
    }
}

/// An extension of gevals alone. It says how many sessions it has had.
const GEVALS: &str = r#"
import json, socket, sys, threading, time
sessions = 0
def client(connection):
    global sessions
    lock = threading.Lock()
    def send(value):
        with lock:
            connection.sendall((json.dumps(value) + "\n").encode())
    for line in connection.makefile():
        try:
            request = json.loads(line)
        except ValueError:
            continue
        method, reply = request.get("method"), {"jsonrpc": "2.0", "id": request.get("id")}
        if method == "initialize" and request["params"].get("protocolVersion") == "0.0.1":
            sessions += 1
            hint = {"annotations": {"readOnlyHint": True}, "params": {"type": "object", "properties": {}}}
            operations = {name: {"description": name} | hint for name in ["slow", "sessions"]}
            operations["change"] = {"description": "changes", "params": {"type": "object", "properties": {}}}
            send(reply | {"result": {"name": "old", "version": "1.0.0", "operations": operations}})
        elif method == "execute":
            operation = request["params"]["operation"]
            if operation != "sessions":
                time.sleep(1.5)
            send(reply | {"result": {"success": True, "outputs": {"sessions": str(sessions)}}})
        elif method == "shutdown":
            send(reply | {"result": {}})
        else:
            send(reply | {"error": {"code": -32601, "message": "Method not found"}})
listener = socket.create_server(("127.0.0.1", 0))
print("on tcp:127.0.0.1:%d" % listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=client, args=(listener.accept()[0],), daemon=True).start()
"#;

// gevals has no word for cancelling but the end of the connection.
#[test]
fn a_call_that_only_reads_is_given_up_without_the_end_of_a_gevals_session() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("old.py");
    fs::write(&script, GEVALS).unwrap();
    let target = Listening::of("python3", &[script.to_str().unwrap()], "on ");
    let mut agent = ServerProcess::start(&["mcp", &target.address]);
    agent.initialize(json!({}));
    let sessions = |agent: &mut ServerProcess| {
        let text = agent.call("sessions", json!({}))["structuredContent"]["sessions"].clone();
        text.as_str().unwrap_or_else(|| panic!("{text}")).parse::<u32>().unwrap()
    };
    let first = sessions(&mut agent);
    let give_up = |agent: &mut ServerProcess, id: u64, tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        agent.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
        std::thread::sleep(Duration::from_millis(300));
        agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    };
    give_up(&mut agent, 901, "slow");
    assert_eq!(sessions(&mut agent), first, "the session went on");
    // What may change something is cut off, whatever that costs.
    give_up(&mut agent, 902, "change");
    assert_eq!(sessions(&mut agent), first + 1);
    drop(TcpStream::connect(target.address.strip_prefix("tcp:").unwrap()).unwrap());
}

/// A rule of the owner refuses a call before it changes anything.
#[test]
fn a_call_that_a_rule_refuses_switches_nothing_of_another_client_off() {
    let wait = json!({"name": "wait_for", "arguments": serde_json::from_str::<Value>(FOREVER).unwrap()});
    let power = json!({"name": "power", "arguments": {"rail": "3V3", "on": true}});
    let high = json!({"name": "gpio_write", "arguments": {"pin": "GP14", "high": true}});
    for (rule, first) in [(["--limit", "power=1/h"], &power), (["--confirm", "power"], &high)] {
        let server = Listening::start(&[&["serve", "sim", "--tcp", "127.0.0.1:0"][..], &rule].concat(), "on ");
        let [mut one, mut other] = [(); 2].map(|()| connect(&server));
        for client in [&mut one, &mut other] {
            client.ask("initialize", greeting());
        }
        let done = one.ask("tools/call", first.clone());
        assert_ne!(done["result"]["isError"], true, "{done}");
        let mut is_on = || {
            let state = one.ask("tools/call", json!({"name": "state", "arguments": {}}))["result"].clone();
            let has =
                |list: &str, name: &str| state["structuredContent"][list].as_array().unwrap().contains(&json!(name));
            has("rails_on", "3V3") || has("pins_high", "GP14")
        };
        assert!(is_on());
        let refused = other.ask("tools/call", power.clone());
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        let waiting = json!({"jsonrpc": "2.0", "id": "wait", "method": "tools/call", "params": wait});
        other.send(&waiting.to_string());
        std::thread::sleep(Duration::from_millis(200));
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "wait"}});
        other.send(&cancelled.to_string());
        other.ask("ping", json!({}));
        assert!(is_on(), "{rule:?}");
    }
}
