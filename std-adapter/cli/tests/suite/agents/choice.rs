//! `--read-only` and `--allow` of the servers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::agents::support::{Listening, PATIENCE, RIGLINE, ServerProcess, refused};

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

#[test]
fn serve_offers_what_was_chosen_over_http_and_over_tcp() {
    let rig = format!("exec:{RIGLINE} rig");
    for target in ["sim", &rig] {
        let serve = ["serve", target, "--http", "127.0.0.1:0", "--protocol", "mcp", "--read-only"];
        let server = Listening::start(&serve, "on ");
        let mut agent = ServerProcess::start(&["mcp", &server.address]);
        let mut tools = agent.tools();
        // Of the command itself.
        tools.retain(|tool| tool != "last_failure");
        assert_eq!(tools, READ_ONLY, "{target}");
        let refused = agent.ask("tools/call", json!({"name": "power", "arguments": {"rail": "3V3", "on": true}}));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");

        let server =
            Listening::start(&["serve", target, "--tcp", "127.0.0.1:0", "--allow", "measure", "self_test"], "on tcp:");
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut ask = |method: &str, params: Value| {
            let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            stream.write_all(format!("{request}\n").as_bytes()).unwrap();
            loop {
                let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
                if line.get("id").is_some() {
                    return line;
                }
            }
        };
        let manifest = ask("initialize", json!({"protocolVersion": "0.0.1"}));
        // A target that is asked by MCP has the names of tools.
        let names = manifest["result"]["operations"].as_object().unwrap().keys().map(|name| name.replace('-', "_"));
        assert_eq!(names.collect::<Vec<_>>(), ["measure", "self_test"], "{target}");
        let measured = ask("execute", json!({"operation": "measure", "args": {"channel": "3V3"}, "context": {}}));
        assert_eq!(measured["result"]["success"], true, "{measured}");
        let refused = ask("execute", json!({"operation": "power", "args": {"rail": "3V3", "on": true}, "context": {}}));
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }
}

#[test]
fn a_choice_that_leaves_nothing_is_told_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    // A gevals extension, which cannot say what is read-only.
    let script = folder.path().join("plain.py");
    std::fs::write(
        &script,
        r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        result = {"name": "plain", "version": "1.0.0", "operations": {"burn": {"params": {"type": "object"}}}}
    elif request.get("method") == "shutdown":
        result = {}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#,
    )
    .unwrap();
    let plain = format!("exec:python3 {}", script.display());
    for words in [
        vec!["mcp", &plain, "--read-only"],
        vec!["serve", &plain, "--tcp", "127.0.0.1:0", "--read-only"],
        vec!["serve", &plain, "--http", "127.0.0.1:0", "--protocol", "mcp", "--read-only"],
        vec!["mcp", "sim", "--read-only", "--allow", "power"],
        vec!["serve", "sim", "--tcp", "127.0.0.1:0", "--read-only", "--allow", "power"],
        vec!["serve", "sim", "--http", "127.0.0.1:0", "--protocol", "mcp", "--read-only", "--allow", "power"],
    ] {
        let (code, text) = refused(&words, &[]);
        assert!(code == Some(2) && text.contains("read-only"), "{words:?}: {code:?} {text}");
    }
    for protocol in [&["--tcp", "127.0.0.1:0"][..], &["--http", "127.0.0.1:0", "--protocol", "mcp"]] {
        let (code, text) = refused(&[&["serve", "sim", "--allow", "nope"], protocol].concat(), &[]);
        assert!(code == Some(2) && text.contains("nope"), "{text}");
    }
}
