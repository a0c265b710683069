//! Names and schemas of tools, as clients and the APIs behind them take them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::agents::support::{Agent, Listening, ServerProcess, assert_taken, says};

/// An extension of gevals alone, whose operations have these names. Each says its own.
fn odd(folder: &Path, names: &Value) -> String {
    let script = folder.join("odd.py");
    let program = r#"
import json, sys
names = json.loads(sys.argv[1])
for line in sys.stdin:
    try:
        request = json.loads(line)
    except ValueError:
        continue
    method, reply = request.get("method"), {"jsonrpc": "2.0", "id": request.get("id")}
    if method == "initialize" and request["params"].get("protocolVersion") == "0.0.1":
        operations = {name: {"description": name, "params": {"type": "object", "properties": {}}} for name in names}
        reply["result"] = {"name": "odd", "version": "1.0.0", "operations": operations}
    elif method == "execute":
        reply["result"] = {"success": True, "message": "ran <%s>" % request["params"]["operation"], "outputs": {}}
    elif method == "shutdown":
        reply["result"] = {}
    else:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(reply), flush=True)
"#;
    fs::write(&script, program).unwrap();
    format!("exec:python3 '{}' '{names}'", script.display())
}

/// Reports: openai/openai-agents-python#449, microsoft/vscode#251723, decolua/9router#2309.
#[test]
fn the_tools_of_every_server_are_taken_by_clients() {
    let evals = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware-example/evals").display().to_string();
    for (words, own) in [
        (&["mcp", "sim", "--evals", &evals][..], &["measure", "all_off", "last_failure", "list_evals", "run_eval"][..]),
        (&["mcp", "tcp:127.0.0.1:9"], &["find_board", "last_failure"]),
    ] {
        let state = tempfile::tempdir().unwrap();
        let mut agent = ServerProcess::start_with(words, &[("XDG_STATE_HOME", state.path().to_str().unwrap())]);
        agent.initialize(json!({}));
        let listed = agent.ask("tools/list", json!({}));
        let names = assert_taken(&listed["result"]["tools"]);
        assert!(own.iter().all(|own| names.contains(&(*own).to_owned())), "{names:?}");
    }
}

/// A foreign program may have any names. What clients make of them must tell its operations apart.
#[test]
fn operations_whose_tools_would_have_one_name_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(64);
    let names = json!([
        "set-rail",
        "set_rail",
        "set.rail",
        "set_rail_2",
        "größe",
        "gr____e",
        format!("{long}-a"),
        format!("{long}-b")
    ]);
    let target = odd(folder.path(), &names);
    let mut agent = ServerProcess::start(&["mcp", &target]);
    agent.initialize(json!({}));
    let listed = agent.ask("tools/list", json!({}));
    let mut tools = assert_taken(&listed["result"]["tools"]);
    tools.retain(|tool| tool != "last_failure");
    assert_eq!(tools.len(), names.as_array().unwrap().len(), "{tools:?}");
    for (tool, operation) in tools.iter().zip(names.as_array().unwrap()) {
        let result = agent.call(tool, json!({}));
        assert!(says(&result, &format!("ran <{}>", operation.as_str().unwrap())), "{tool}: {result}");
    }
    drop(agent);
    let server = Listening::start(&["serve", &target, "--http", "127.0.0.1:0", "--protocol", "mcp"], "listening on ");
    let mut agent = Agent::begin(&server.address, "one", json!({}));
    assert_eq!(assert_taken(&agent.result("tools/list", json!({}))["tools"]).len(), tools.len() + 1);
}

/// An agent may call a tool by the name of its operation, too, and write a name in JSON in more than one way.
#[test]
fn a_confirmed_operation_is_confirmed_by_every_name() {
    let folder = tempfile::tempdir().unwrap();
    let long = "y".repeat(70);
    let target = odd(folder.path(), &json!(["set.rail", "measure", long]));
    let mut agent = ServerProcess::start(&["mcp", &target, "--confirm", "set.rail", "--confirm", &long]);
    agent.initialize(json!({}));
    for tool in ["set.rail", "set_rail", &long, &long[..64]] {
        let refused = agent.call(tool, json!({}));
        assert!(refused["isError"] == true && says(&refused, "confirmation"), "{tool}: {refused}");
    }
    for params in [
        r#"{"name":"set\u005frail"}"#,
        r#"{"name":"measure","name":"set_rail"}"#,
        r#"{"name":"set_rail","name":"measure"}"#,
        r#"{"name":"measure"},"params":{"name":"set_rail"}"#,
        r#"{"name":"set_rail"},"params":{"name":"measure"}"#,
        r#"{"name":"measure","n\u0061me":"set_rail"}"#,
        r#"{"n\u0061me":"set_rail","name":"measure"}"#,
    ] {
        use std::io::Write as _;
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"tools/call\",\"params\":{params}}}\n");
        agent.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let reply = agent.line();
        assert!(!reply.to_string().contains("ran <set.rail>"), "{params}: {reply}");
    }
    assert!(says(&agent.call("measure", json!({})), "ran <measure>"));
}

#[test]
fn a_tool_of_the_target_is_not_hidden_by_one_of_the_servers() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = ServerProcess::start(&["mcp", &odd(folder.path(), &json!(["last-failure", "other"]))]);
    agent.initialize(json!({}));
    let listed = agent.ask("tools/list", json!({}));
    assert_eq!(assert_taken(&listed["result"]["tools"]), ["last_failure", "other"]);
    let result = agent.call("last_failure", json!({}));
    assert!(says(&result, "ran <last-failure>"), "{result}");
}
