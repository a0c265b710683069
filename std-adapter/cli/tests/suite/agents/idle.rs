//! A client that is silent for long leaves nothing on.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::agents::support::{Listening, RIGLINE, ServerProcess, refused, says};

#[test]
fn an_idle_client_on_standard_input_leaves_nothing_on() {
    for target in ["sim", &format!("exec:{RIGLINE} rig")] {
        let mut agent = ServerProcess::start(&["mcp", target, "--idle", "700ms"]);
        agent.initialize(json!({}));
        agent.ask("logging/setLevel", json!({"level": "warning"}));
        assert_ne!(agent.call("power", json!({"rail": "3V3", "on": true}))["isError"], true);
        // It hears so at once, and its next result says so.
        let told = agent.line();
        assert_eq!(told["method"], "notifications/message", "{told}");
        assert_eq!(told["params"]["level"], "warning", "{told}");
        let state = agent.call("state", json!({}));
        assert_eq!(state["structuredContent"]["rails_on"], json!([]), "{target}: {state}");
        assert!(state["structuredContent"].get("outputs_switched_off").is_some(), "{state}");
        // Its session goes on: what it has set still holds, and it is told once.
        let quiet = agent.ask_seeing("tools/call", json!({"name": "self_test", "arguments": {}}), |_, line| {
            assert_ne!(line["params"]["level"], "info", "{line}");
        });
        assert!(quiet["result"]["structuredContent"].get("outputs_switched_off").is_none(), "{quiet}");
        // A call that takes longer is not cut off.
        let wait = json!({"channel": "AUX", "min": 9, "max": 10, "within_ms": 2000});
        assert!(says(&agent.call("wait_for", wait), "not from 9.000 to 10.000 V"));
    }
}

/// Also while lines come more often than the time of silence is long.
#[test]
fn the_silence_of_a_client_counts_from_its_last_line_and_from_the_end_of_its_last_call() {
    let silence = Duration::from_millis(1500);
    let mut agent = ServerProcess::start(&["mcp", "sim", "--idle", "1500ms"]);
    agent.initialize(json!({}));
    agent.ask("logging/setLevel", json!({"level": "warning"}));
    agent.call("power", json!({"rail": "3V3", "on": true}));
    for _ in 0..8 {
        thread::sleep(silence / 5);
        agent.ask_seeing("ping", json!({}), |_, line| panic!("{line}"));
    }
    let wait = json!({"channel": "AUX", "min": 9, "max": 10, "within_ms": 2000});
    let waited = agent.ask_seeing("tools/call", json!({"name": "wait_for", "arguments": wait}), |_, line| {
        assert_ne!(line["params"]["level"], "warning", "{line}");
    });
    let ended = Instant::now();
    assert!(says(&waited["result"], "not from 9.000 to 10.000 V"), "{waited}");
    let told = agent.line();
    assert_eq!(told["params"]["level"], "warning", "{told}");
    let lasted = ended.elapsed();
    assert!(lasted + Duration::from_millis(300) > silence && lasted < silence * 2, "{lasted:?}");
    assert_eq!(agent.call("state", json!({}))["structuredContent"]["rails_on"], json!([]));
}

#[test]
fn nothing_is_switched_off_where_nothing_was_switched_on_or_the_owner_wants_it_to_stay() {
    let mut agent = ServerProcess::start(&["mcp", "sim", "--idle", "200ms"]);
    agent.initialize(json!({}));
    agent.call("measure", json!({"channel": "3V3"}));
    thread::sleep(Duration::from_millis(900));
    let next = agent.ask_seeing("tools/call", json!({"name": "state", "arguments": {}}), |_, line| panic!("{line}"));
    assert!(next["result"]["structuredContent"].get("outputs_switched_off").is_none(), "{next}");
    let mut agent = ServerProcess::start(&["mcp", "sim", "--keep-outputs"]);
    agent.call("power", json!({"rail": "3V3", "on": true}));
    assert_eq!(agent.call("state", json!({}))["structuredContent"]["rails_on"], json!(["3V3"]));
    // Half a line does not become a whole one.
    let mut agent = ServerProcess::start(&["mcp", "sim", "--idle", "200ms"]);
    use std::io::Write as _;
    agent.stdin.as_mut().unwrap().write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"half\",").unwrap();
    thread::sleep(Duration::from_millis(900));
    agent.stdin.as_mut().unwrap().write_all(b"\"method\":\"ping\"}\n").unwrap();
    assert_eq!(agent.line(), json!({"jsonrpc": "2.0", "id": "half", "result": {}}));
}

/// The target's own server, or board, must know that they stay.
#[test]
fn the_owner_may_want_outputs_to_stay_on_at_another_server() {
    let program = format!("exec:{RIGLINE} rig");
    for (target, protocol) in [("sim", None), (&program, Some("mcp"))] {
        let protocol: Vec<&str> = protocol.into_iter().flat_map(|protocol| ["--protocol", protocol]).collect();
        let words = ["serve", target, "--tcp", "127.0.0.1:0"];
        let server = Listening::start(&[&words[..], &protocol].concat(), " ");
        for (option, rails) in [(&[][..], json!([])), (&["--keep-outputs"], json!(["3V3"]))] {
            let mut agent = ServerProcess::start(&[&["mcp", &server.address], option].concat());
            assert_ne!(agent.call("power", json!({"rail": "3V3", "on": true}))["isError"], true);
            agent.end();
            let mut next = ServerProcess::start(&["mcp", &server.address]);
            assert_eq!(next.call("state", json!({}))["structuredContent"]["rails_on"], rails, "{target} {option:?}");
        }
    }
    let http = Listening::start(&["serve", "sim", "--http", "127.0.0.1:0", "--protocol", "mcp"], " ");
    for (target, why) in [
        (http.address.as_str(), "start that one with --keep-outputs"),
        ("rig:any", "the lab switches the outputs of a rig off between two users"),
    ] {
        for words in [&["mcp", target][..], &["serve", target, "--http", "127.0.0.1:0", "--protocol", "mcp"]] {
            let (code, text) = refused(&[words, &["--keep-outputs"]].concat(), &[]);
            assert!(code == Some(2) && text.contains(why), "{words:?}: {text}");
        }
    }
}
