//! Rules of an owner over HTTP: they hold as they do on standard input and output, for each client.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::support::{Agent, Listening, PATIENCE, RIGLINE, refused, run, says};

fn power(on: bool) -> Value {
    json!({"rail": "3V3", "on": on})
}

fn serve(words: &[&str]) -> Listening {
    Listening::start(&[&["serve"], words].concat(), "listening on ")
}

const AGENTS: [&str; 4] = ["--http", "127.0.0.1:0", "--protocol", "mcp"];

/// Posts a body to a server that is not one of agents.
pub(super) fn post(url: &str, path: &str, body: &Value) -> Value {
    let address = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn limits_count_the_calls_of_all_clients_together() {
    for target in ["sim", &format!("exec:{RIGLINE} rig")] {
        let server = serve(&[&[target, "--limit", "power=2/h"], &AGENTS[..]].concat());
        let mut one = Agent::begin(&server.address, "one", json!({}));
        let mut other = Agent::modern(&server.address, "other", json!({}));
        assert_ne!(one.call("power", power(true))["isError"], true);
        assert_ne!(other.call("power", power(true))["isError"], true);
        for agent in [&mut one, &mut other] {
            let third = agent.call("power", power(false));
            assert!(third["isError"] == true && says(&third, "limited to 2 calls in an hour"), "{target}: {third}");
            assert_ne!(agent.call("identify", json!({}))["isError"], true);
        }
    }
    for words in [&["--limit", "nope=1/h"][..], &["--confirm", "nope"], &["--policy", "/nowhere.toml"]] {
        for target in ["sim", &format!("exec:{RIGLINE} rig")] {
            let (code, text) = refused(&[&["serve", target], words, &AGENTS[..]].concat(), &[]);
            assert!(code == Some(2) && text.contains("nope") || text.contains("nowhere"), "{words:?}: {text}");
        }
    }
}

// Hosts of other protocols are limited, too. None of them can ask a person.
#[test]
fn every_protocol_and_wire_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    for (number, target) in ["sim", &format!("exec:{RIGLINE} rig")].into_iter().enumerate() {
        for protocol in ["amplifier", "namel3ss"] {
            let record = folder.path().join(format!("{protocol}-{number}"));
            let record = record.to_str().unwrap();
            let words = ["--limit", "power=1/h", "--confirm", "press", "--record", record];
            let server = serve(&[&[target, "--http", "127.0.0.1:0", "--protocol", protocol], &words[..]].concat());
            let call = |name: &str, args: Value| match protocol {
                "amplifier" => post(&server.address, "/invoke", &json!({"op": name, "args": args})),
                _ => {
                    post(&server.address, "/tools", &json!({"protocol_version": 1, "tool_name": name, "payload": args}))
                }
            };
            assert_eq!(call("power", power(true))["ok"], true);
            let second = call("power", power(false));
            assert!(second["ok"] == false && second.to_string().contains("limited to 1 call"), "{second}");
            let asked = call("press", json!({"button": "RESET"}));
            assert!(asked.to_string().contains("confirmation"), "{asked}");
            let text = std::fs::read_to_string(format!("{record}/calls.jsonl")).unwrap();
            let calls: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let outcomes: Vec<_> =
                calls.iter().map(|call| (call["operation"].clone(), call["outcome"].clone())).collect();
            let pair = |name: &str, outcome: &str| (json!(name), json!(outcome));
            assert_eq!(outcomes, [pair("power", "ok"), pair("power", "refused"), pair("press", "refused")], "{text}");
            assert_eq!(calls[0]["arguments"], power(true));
        }
        let server = Listening::start(&["serve", target, "--tcp", "127.0.0.1:0", "--limit", "power=1/h"], "on tcp:");
        for protocol in ["gevals", "mcp"] {
            let target = format!("tcp:{}", server.address);
            let output = crate::agents::support::run(
                &["call", &target, "power", "rail=3V3", "on=true", "--protocol", protocol],
                &[],
            );
            assert_eq!(output.status.success(), protocol == "gevals", "{target} {protocol}: {output:?}");
        }
    }
    // Rules change nothing of what a host is told.
    let rig = format!("exec:{RIGLINE} rig");
    let described = |words: &[&str]| {
        let server = Listening::start(&[&["serve", &rig, "--tcp", "127.0.0.1:0"], words].concat(), "on tcp:");
        let target = format!("tcp:{}", server.address);
        ["gevals", "mcp"].map(|protocol| {
            let words = ["describe", &target, "--json", "--protocol", protocol];
            serde_json::from_slice::<Value>(&crate::agents::support::run(&words, &[]).stdout).unwrap()
        })
    };
    let record = folder.path().join("described");
    let plain = described(&[]);
    for rules in [&["--limit", "power=1/h"][..], &["--confirm", "press"], &["--record", record.to_str().unwrap()]] {
        assert_eq!(described(rules), plain, "{rules:?}");
    }
    let (code, text) = refused(&["serve", "sim", "--tcp", "127.0.0.1:0", "--evals", "."], &[]);
    assert!(code == Some(2) && text.contains("--evals"), "{text}");
}

#[test]
fn a_person_confirms_a_call_over_http() {
    let server = serve(&[&["sim", "--confirm", "power"], &AGENTS[..]].concat());
    let can = || json!({"elicitation": {}});
    let mut agent = Agent::begin(&server.address, "one", can());
    let mut other = Agent::begin(&server.address, "other", can());
    let asked = json!({"name": "power", "arguments": power(true)});
    for (answer, runs, text) in [
        (json!({"result": {"action": "accept", "content": {}}}), true, "3V3 is on"),
        (json!({"result": {"action": "decline"}}), false, "declined"),
        (json!({"error": {"code": -32601, "message": "no such thing"}}), false, "no such thing"),
    ] {
        let mut response = agent.ask("tools/call", asked.clone());
        let question = response.message().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        assert!(question["params"]["message"].as_str().unwrap().contains("3V3"));
        // Whatever else is asked meanwhile is answered, and another session's word counts for nothing.
        assert_eq!(agent.result("ping", json!({})), json!({}));
        assert_eq!(other.tell(json!({"id": question["id"], "result": {"action": "accept"}})), 202);
        let mut word = answer.clone();
        word["id"] = question["id"].clone();
        assert_eq!(agent.tell(word), 202);
        assert_eq!(agent.tell(json!({"id": question["id"], "result": {"action": "accept"}})), 202);
        let result = response.reply()["result"].clone();
        assert!(says(&result, text) && (result["isError"] == true) != runs, "{result}");
        assert_eq!(agent.call("state", json!({}))["structuredContent"]["rails_on"], json!(["3V3"]), "{text}");
    }
    // A call that is cancelled before the word never runs, and neither does one whose session has ended.
    for ends in [false, true] {
        let mut response = other.ask("tools/call", json!({"name": "power", "arguments": power(false)}));
        let question = response.message().unwrap();
        assert_eq!(question["method"], "elicitation/create");
        if ends {
            assert_eq!(other.send("DELETE", &Value::Null, "*/*").status, 204);
        } else {
            let id = json!({"requestId": 2});
            assert_eq!(other.tell(json!({"method": "notifications/cancelled", "params": id})), 202);
        }
        let taken_back = response.message().unwrap();
        assert_eq!(taken_back["params"]["requestId"], question["id"], "{taken_back}");
        assert_eq!(response.message(), None);
        other.tell(json!({"id": question["id"], "result": {"action": "accept"}}));
        if !ends {
            other = Agent::begin(&server.address, "other", can());
        }
    }
    assert_eq!(agent.call("state", json!({}))["structuredContent"]["rails_on"], json!(["3V3"]));
    // A client that takes no events cannot be asked, and one without a session has not said what it can do.
    let message = json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": asked});
    let deaf = agent.send("POST", &message, "application/json").reply();
    assert!(says(&deaf["result"], "confirmation"), "{deaf}");
    assert!(says(&Agent::new(&server.address).call("power", power(true)), "confirmation"));
    // Nothing passes in a batch.
    let batch = agent.send("POST", &json!([message]), "application/json");
    assert_eq!((batch.status, &batch.reply()["error"]["code"]), (400, &json!(-32600)));
}

#[test]
fn the_modern_era_confirms_by_a_result_that_wants_input() {
    let server = serve(&[&["sim", "--confirm", "power"], &AGENTS[..]].concat());
    let can = || json!({"elicitation": {"form": {}}});
    let mut agent = Agent::modern(&server.address, "one", can());
    let ask = |agent: &mut Agent| {
        let result = agent.call("power", power(true));
        assert_eq!(result["resultType"], "input_required", "{result}");
        result["requestState"].clone()
    };
    let answer = |agent: &mut Agent, state: &Value, action: &str, on: bool| {
        let word = json!({"confirm": {"action": action}});
        let params = json!({"name": "power", "arguments": power(on), "inputResponses": word, "requestState": state});
        agent.result("tools/call", params)
    };
    for (action, on, text) in
        [("accept", true, "3V3 is on"), ("decline", true, "declined"), ("accept", false, "another call")]
    {
        let state = ask(&mut agent);
        let result = answer(&mut agent, &state, action, on);
        assert!(says(&result, text), "{action} {on}: {result}");
        assert_eq!(answer(&mut agent, &state, action, on)["isError"], true, "a word counts once");
    }
    // What one client was asked another cannot answer.
    let state = ask(&mut agent);
    let mut other = Agent::modern(&server.address, "other", can());
    assert_eq!(answer(&mut other, &state, "accept", true)["isError"], true);
    let mut cannot = Agent::modern(&server.address, "cannot", json!({}));
    assert!(says(&cannot.call("power", power(true)), "confirmation"));
}

#[test]
fn a_record_and_the_last_failure_know_the_clients_apart() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("agents");
    let record = record.to_str().unwrap();
    let server = serve(&[&["sim", "--record", record], &AGENTS[..]].concat());
    let mut one = Agent::begin(&server.address, "one", json!({}));
    let mut other = Agent::modern(&server.address, "other", json!({}));
    one.call("measure", json!({"channel": "nope"}));
    let none = other.call("last_failure", json!({}));
    assert_eq!(none["structuredContent"], json!({"failed": false}), "it is another client's");
    other.call("identify", json!({}));
    other.call("wait_for", json!({"channel": "AUX", "min": 9, "max": 10, "within_ms": 10}));
    let told = one.call("last_failure", json!({}));
    assert!(says(&told, "measure failed") && says(&told, "nope"), "{told}");
    assert_eq!(other.call("last_failure", json!({}))["structuredContent"]["tool"], "wait_for");
    // A client that goes in the middle of a call is in the record, too.
    let message = json!({"name": "wait_for", "arguments": {"channel": "AUX", "min": 9, "max": 10, "within_ms": 60000}});
    drop(other.ask("tools/call", message));
    let started = std::time::Instant::now();
    let text = loop {
        let calls = one.result("resources/read", json!({"uri": "rigline://calls"}));
        let text = calls["contents"][0]["text"].as_str().unwrap().to_owned();
        if text.lines().count() == 4 {
            break text;
        }
        assert!(started.elapsed() < PATIENCE, "{text}");
    };
    let seen: Vec<(String, String, String)> = text
        .lines()
        .map(|line| {
            let call: Value = serde_json::from_str(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&call["client"]["name"]), text(&call["operation"]), text(&call["outcome"]))
        })
        .collect();
    let call = |client: &str, operation: &str, outcome: &str| (client.into(), operation.into(), outcome.into());
    let expected = [
        call("one", "measure", "failed"),
        call("other", "identify", "ok"),
        call("other", "wait_for", "failed"),
        call("other", "wait_for", "cancelled"),
    ];
    assert_eq!(seen, expected, "{text}");
}

// maximhq/bifrost#6885
#[test]
fn clients_over_http_are_told_of_other_tools() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let board = listener.local_addr().unwrap().to_string();
    drop(listener);
    let state = tempfile::tempdir().unwrap();
    let target = format!("tcp:{board}");
    let words = [&["serve", &target][..], &AGENTS[..]].concat();
    let env = [("XDG_STATE_HOME", state.path().to_str().unwrap())];
    let server = Listening::start_with(&words, &env, "listening on ");
    let mut legacy = Agent::begin(&server.address, "legacy", json!({}));
    let mut modern = Agent::modern(&server.address, "modern", json!({}));
    let names = |agent: &mut Agent| {
        let listed = agent.result("tools/list", json!({}));
        listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert!(names(&mut legacy).contains(&"find_board".to_owned()));
    let sought = modern.call("find_board", json!({}));
    assert_eq!(sought["isError"], true, "{sought}");
    let mut stream = legacy.send("GET", &Value::Null, "text/event-stream");
    let mut subscription = modern.ask("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let acknowledged = subscription.message().unwrap();
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}), "{acknowledged}");

    let target = Listening::start(&["serve", "sim", "--tcp", &board], "on tcp:");
    assert_eq!(stream.message().unwrap()["method"], "notifications/tools/list_changed");
    let told = subscription.message().unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
    );
    for agent in [&mut legacy, &mut modern] {
        let names = names(agent);
        assert!(names.contains(&"measure".to_owned()) && !names.contains(&"find_board".to_owned()), "{names:?}");
        assert!(agent.call("measure", json!({"channel": "3V3"}))["structuredContent"]["volts"].is_number());
    }
    drop(target);
    assert_eq!(stream.message().unwrap()["method"], "notifications/tools/list_changed");
    let listed = legacy.result("tools/list", json!({}));
    assert!(listed["tools"][0]["description"].as_str().unwrap().starts_with("Absent"), "{listed}");
}

/// A request that stays open has no reply that the end of the server would wait for.
#[cfg(unix)]
#[test]
fn a_signal_ends_a_server_with_subscriptions() {
    for (wants_logs, words) in [(false, &AGENTS[..2]), (true, &AGENTS[..2]), (false, &AGENTS), (true, &AGENTS)] {
        let mut server = serve(&[&["sim"], words].concat());
        let url = format!("{}/mcp", server.address.trim_end_matches("/mcp"));
        let mut modern = Agent::modern(&url, "one", json!({}));
        let mut params = json!({"notifications": {}});
        if wants_logs {
            params["_meta"] = json!({"io.modelcontextprotocol/logLevel": "debug"});
        }
        let mut subscription = modern.ask("subscriptions/listen", params);
        assert!(subscription.message().is_some());
        let pid = rustix::process::Pid::from_child(&server.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let since = Instant::now();
        assert_eq!(subscription.message(), None, "{wants_logs}");
        assert!(server.child.wait().unwrap().success(), "{wants_logs}");
        assert!(since.elapsed() < Duration::from_secs(20), "{wants_logs}: {:?}", since.elapsed());
    }
}

/// At the target all clients of a relay are one: the time limit of a call that only reads is kept before it.
#[test]
fn the_time_limit_of_a_call_that_only_reads_switches_nothing_of_another_client_off() {
    for target in [&format!("exec:{RIGLINE} rig"), &format!("exec:{RIGLINE} mcp sim"), "sim"] {
        let server = serve(&[target, "--http", "127.0.0.1:0"]);
        let address = server.address.strip_prefix("http://").unwrap().split(['/', ' ']).next().unwrap();
        let url = format!("http://{address}/mcp");
        let mut one = Agent::begin(&url, "one", json!({}));
        one.call("power", power(true));
        let wait = json!({"channel": "AUX", "min": 9, "max": 10, "within_ms": 4000});
        let body = json!({"protocol_version": 1, "tool_name": "wait-for", "payload": wait, "timeout_ms": 400});
        let reply = post(&url, "/tools", &body);
        assert!(reply.to_string().contains("TimeoutError"), "{target}: {reply}");
        let state = one.call("state", json!({}));
        assert_eq!(state["structuredContent"]["rails_on"], json!(["3V3"]), "{target}: {state}");
    }
}

/// A command that has begun a session ends it before it ends itself.
#[test]
fn the_session_of_a_command_ends_with_it() {
    let server = serve(&[&["sim"], &AGENTS[..]].concat());
    let behind = server.address.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = heads.clone();
    // Between the command and the server, to see the requests.
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&behind).unwrap());
            let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut answers, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Both);
            });
            let mut first = vec![0; 64 << 10];
            let count = client.read(&mut first).unwrap_or_default();
            seen.lock().unwrap().push(String::from_utf8_lossy(&first[..count]).into_owned());
            let _ = server.write_all(&first[..count]);
            thread::spawn(move || std::io::copy(&mut client, &mut server));
        }
    });
    for words in [&["call", &url, "state"][..], &["describe", &url]] {
        heads.lock().unwrap().clear();
        let output = run(words, &[]);
        assert!(output.status.success(), "{words:?}: {output:?}");
        let heads = heads.lock().unwrap();
        let begun = heads.iter().filter(|head| head.contains("\"initialize\"")).count();
        let ended = heads.iter().filter(|head| head.starts_with("DELETE ")).count();
        assert_eq!((begun, ended), (1, 1), "{words:?}: {heads:#?}");
    }
}
