//! The settings of an owner: limits, confirmations, a file of these, a record of the calls, and why the last call failed.

use serde_json::{Value, json};

use crate::agents::support::{RIGLINE, ServerProcess, refused, run, says};

fn power(on: bool) -> Value {
    json!({"rail": "3V3", "on": on})
}

#[test]
fn calls_beyond_a_limit_are_refused_and_others_go_on() {
    for target in ["sim", &format!("exec:{RIGLINE} rig")] {
        let mut agent = ServerProcess::start(&["mcp", target, "--limit", "power=2/h", "--limit", "*=4/h"]);
        agent.initialize(json!({}));
        for _ in 0..2 {
            assert_ne!(agent.call("power", power(true))["isError"], true);
        }
        let third = agent.call("power", power(false));
        assert!(third["isError"] == true && says(&third, "limited to 2 calls in an hour"), "{target}: {third}");
        assert_ne!(agent.call("identify", json!({}))["isError"], true);
        assert_ne!(agent.call("identify", json!({}))["isError"], true);
        let beyond = agent.call("identify", json!({}));
        assert!(says(&beyond, "limited to 4 calls"), "{beyond}");
    }
    for (words, why) in [
        (&["--limit", "nope=1/h"][..], "nope"),
        (&["--limit", "power=1/y"], "1/y"),
        (&["--confirm", "nope"], "nope"),
        (&["--policy", "/nowhere.toml"], "/nowhere.toml"),
    ] {
        let (code, text) = refused(&[&["mcp", "sim"], words].concat(), &[]);
        assert!(code == Some(2) && text.contains(why), "{words:?}: {text}");
    }
}

#[test]
fn a_person_confirms_a_call_or_it_does_not_run() {
    let words = ["mcp", "sim", "--confirm", "power"];
    let asked = json!({"name": "power", "arguments": power(true)});
    // A client without elicitation, or with one that has no forms.
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let mut agent = ServerProcess::start(&words);
        agent.initialize(capabilities);
        let refused = agent.call("power", power(true));
        assert!(refused["isError"] == true && says(&refused, "confirmation"), "{refused}");
        assert_ne!(agent.call("identify", json!({}))["isError"], true, "nothing else is asked for");
    }
    let mut agent = ServerProcess::start(&words);
    agent.initialize(json!({"elicitation": {}}));
    for (answer, runs, text) in [
        (json!({"result": {"action": "accept", "content": {}}}), true, "3V3 is on"),
        (json!({"result": {"action": "decline"}}), false, "declined"),
        (json!({"result": {"action": "cancel"}}), false, "declined"),
        (json!({"error": {"code": -32601, "message": "no such thing"}}), false, "no such thing"),
    ] {
        let mut questions = 0;
        let reply = agent.ask_seeing("tools/call", asked.clone(), |agent, line| {
            if line["method"] == "elicitation/create" {
                questions += 1;
                let message = line["params"]["message"].as_str().unwrap();
                assert!(message.contains("power") && message.contains("3V3"), "{message}");
                assert_eq!(line["params"]["requestedSchema"]["type"], "object");
                // Other requests are answered while the person thinks.
                agent.send(&json!({"jsonrpc": "2.0", "id": "meanwhile", "method": "ping"}));
                while agent.line()["id"] != "meanwhile" {}
                let mut word = answer.clone();
                word["jsonrpc"] = "2.0".into();
                word["id"] = line["id"].clone();
                agent.send(&word);
                // A second word for the same question counts for nothing.
                word["result"] = json!({"action": "accept"});
                agent.send(&word);
            }
        });
        assert_eq!(questions, 1);
        let result = &reply["result"];
        assert!(says(result, text) && (result["isError"] == true) != runs, "{result}");
    }
    // A call that is cancelled before the word never runs.
    agent.send(&json!({"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": asked}));
    let question = agent.line();
    assert_eq!(question["method"], "elicitation/create");
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 900}}));
    let taken_back = agent.line();
    assert_eq!(taken_back["params"]["requestId"], question["id"], "{taken_back}");
    agent.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}));
    let pong = agent.ask_seeing("ping", json!({}), |_, line| panic!("{line}"));
    assert_eq!(pong["result"], json!({}));
    // Nothing passes in a batch.
    agent.send(&json!([{"jsonrpc": "2.0", "id": 901, "method": "tools/call", "params": asked}]));
    assert_eq!(agent.line()["error"]["code"], -32600);
}

#[test]
fn the_modern_era_is_asked_by_a_result_that_wants_input() {
    let mut agent = ServerProcess::start(&["mcp", "sim", "--confirm", "power"]);
    let meta = |capabilities: Value| json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": capabilities});
    let call = |capabilities: Value, on: bool, more: Value| {
        let mut params = json!({"name": "power", "arguments": power(on), "_meta": meta(capabilities)});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let reply = agent.ask("tools/call", call(json!({}), true, json!({})));
    assert!(says(&reply["result"], "confirmation") && reply["result"]["resultType"] == "complete", "{reply}");
    let can = || json!({"elicitation": {"form": {}}});
    let ask = |agent: &mut ServerProcess| {
        let reply = agent.ask("tools/call", call(can(), true, json!({})));
        let result = &reply["result"];
        assert_eq!(result["resultType"], "input_required", "{reply}");
        assert_eq!(result["inputRequests"]["confirm"]["method"], "elicitation/create");
        result["requestState"].clone()
    };
    for (action, on, text) in
        [("accept", true, "3V3 is on"), ("decline", true, "declined"), ("accept", false, "another call")]
    {
        let state = ask(&mut agent);
        let word = json!({"inputResponses": {"confirm": {"action": action}}, "requestState": state});
        let reply = agent.ask("tools/call", call(can(), on, word.clone()));
        assert!(says(&reply["result"], text), "{action} {on}: {reply}");
        // A word counts once.
        let again = agent.ask("tools/call", call(can(), on, word));
        assert_eq!(again["result"]["isError"], true, "{again}");
    }
    let forged = json!({"inputResponses": {"confirm": {"action": "accept"}}, "requestState": "rigline-99"});
    assert_eq!(agent.ask("tools/call", call(can(), true, forged))["result"]["isError"], true);
}

#[test]
fn a_policy_file_is_kept_out_of_the_agents_reach() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let file = folder.path().join("rig.toml");
    let start = |path: &std::path::Path, text: &str, mode: u32| {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = std::process::Command::new(RIGLINE);
        command.args(["mcp", "sim", "--policy"]).arg(path).current_dir(&project).stdin(std::process::Stdio::null());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let text = "allow = [\"power\", \"identify\"]\nconfirm = [\"power\"]\n[limit]\nidentify = \"1/h\"\n";
    assert_eq!(start(&file, text, 0o600), (Some(0), String::new()));
    for (path, text, mode, why) in [
        (project.join("rig.toml"), text, 0o600, "in which the agent works"),
        (file.clone(), text, 0o622, "other users can write it"),
        (file.clone(), "alow = []", 0o600, "alow"),
        (file.clone(), "[limit]\npower = \"fast\"", 0o600, "fast"),
        (file.clone(), "confirm = [\"nope\"]", 0o600, "nope"),
    ] {
        let (code, said) = start(&path, text, mode);
        assert!(code == Some(2) && said.contains(why), "{text}: {said}");
    }
    // What leads to the file can be replaced as well as the file: links in the agent's folder, however many, and in folders that others can write.
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let links = [
        (project.join("link.toml"), file.clone()),
        (folder.path().join("through.toml"), "project/link.toml".into()),
        (folder.path().join("fine.toml"), "./project/../rig.toml".into()),
        (shared.join("open.toml"), "../rig.toml".into()),
        (folder.path().join("round.toml"), "round.toml".into()),
    ];
    for (link, to) in &links {
        std::os::unix::fs::symlink(to, link).unwrap();
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&file, text).unwrap();
    let start_as = |path: &str, mode: u32| {
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = std::process::Command::new(RIGLINE);
        command.args(["mcp", "sim", "--policy", path]).current_dir(&project).stdin(std::process::Stdio::null());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (path, mode, why) in [
        ("../fine.toml", 0o755, None),
        ("../rig.toml", 0o755, None),
        ("../shared/open.toml", 0o755, None),
        // Only who owns a file in such a folder can replace it.
        ("../shared/open.toml", 0o1777, None),
        ("link.toml", 0o755, Some("a link on the way to it is in the folder")),
        ("../through.toml", 0o755, Some("a link on the way to it is in the folder")),
        ("../shared/open.toml", 0o777, Some("other users can put another one in its place")),
        ("../round.toml", 0o755, Some("links")),
    ] {
        let (code, said) = start_as(path, mode);
        match why {
            None => assert_eq!((code, said.as_str()), (Some(0), ""), "{path}"),
            Some(why) => assert!(code == Some(2) && said.contains(why), "{path}: {code:?} {said}"),
        }
    }
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut agent = ServerProcess::start(&["mcp", "sim", "--policy", file.to_str().unwrap(), "--limit", "power=5/h"]);
    assert_eq!(agent.tools(), ["identify", "power"]);
    assert_eq!(agent.call("power", power(true))["isError"], true, "the client cannot ask");
    assert_ne!(agent.call("identify", json!({}))["isError"], true);
    assert!(says(&agent.call("identify", json!({})), "limited to 1 call in an hour"));
}

#[test]
fn a_record_has_every_call_and_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("agent");
    let record = record.to_str().unwrap();
    {
        let mut agent =
            ServerProcess::start(&["mcp", "sim", "--record", record, "--limit", "power=1/h", "--confirm", "press"]);
        agent.initialize(json!({}));
        agent.call("identify", json!({}));
        agent.call("measure", json!({"channel": "nope"}));
        agent.call("power", power(true));
        agent.call("power", power(false));
        agent.call("press", json!({"button": "RESET"}));
        drop(agent.stdin.take());
        assert!(agent.child.wait().unwrap().success());
    }
    let text = std::fs::read_to_string(format!("{record}/calls.jsonl")).unwrap();
    let calls: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<(&str, &str)> =
        calls.iter().map(|call| (call["operation"].as_str().unwrap(), call["outcome"].as_str().unwrap())).collect();
    assert_eq!(
        seen,
        [("identify", "ok"), ("measure", "failed"), ("power", "ok"), ("power", "failed"), ("press", "refused")],
        "{text}"
    );
    assert_eq!(calls[0]["client"]["name"], "tests");
    assert_eq!(calls[2]["arguments"], power(true));
    assert!(calls[1]["result"].to_string().contains("nope") && calls[3]["result"].to_string().contains("limited"));
    assert!(calls[0]["time"].as_str().unwrap().ends_with('Z') && calls[0]["seconds"].is_number());
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(format!("{record}/calls.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    // The recording answers as the rig did.
    let replayed = format!("replay:{record}");
    let output = run(&["call", &replayed, "identify", "--protocol", "mcp", "--json"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The time since its start is another one, so that not all lines are the same.
    let replay = run(&["replay", record, "sim"], &[]);
    let text = String::from_utf8_lossy(&replay.stdout);
    assert!(text.contains("lines the same"), "{text}{}", String::from_utf8_lossy(&replay.stderr));
}

#[test]
fn the_reason_of_the_last_failure_is_a_tools_answer() {
    let mut agent = ServerProcess::start(&["mcp", "sim"]);
    assert!(agent.tools().contains(&"last_failure".to_owned()));
    assert_eq!(agent.call("last_failure", json!({}))["structuredContent"], json!({"failed": false}));
    agent.call("measure", json!({"channel": "nope"}));
    agent.call("measure", json!({"channel": "3V3"}));
    let told = agent.call("last_failure", json!({}));
    assert!(says(&told, "measure failed") && says(&told, "nope"), "{told}");
    assert_eq!(told["structuredContent"]["arguments"], json!({"channel": "nope"}));
    assert_eq!(told["structuredContent"]["tool"], "measure");
    // It is no tool of the rig: what was chosen does not have it.
    let mut agent = ServerProcess::start(&["mcp", "sim", "--allow", "measure"]);
    assert_eq!(agent.tools(), ["measure"]);
}
