//! Resources and prompts: what there is to read, and to begin with.

use std::path::Path;

use serde_json::{Value, json};

use crate::agents::support::{Agent, Listening, ServerProcess, says};

fn evals() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware-example/evals").display().to_string()
}

/// Tries the prompts and the reports of runs, by either way.
fn try_library(ask: &mut dyn FnMut(&str, Value) -> Value, is_modern: bool) {
    let listed = ask("prompts/list", json!({}));
    let prompts = listed["result"]["prompts"].as_array().unwrap_or_else(|| panic!("{listed}"));
    let rails = prompts.iter().find(|prompt| prompt["name"] == "rails/eval.yaml").unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(rails["title"], "rails", "{rails}");
    let prompt = ask("prompts/get", json!({"name": "rails/eval.yaml"}));
    let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap_or_else(|| panic!("{prompt}"));
    assert!(text.contains("run_eval") && text.contains("rails/eval.yaml"), "{text}");
    assert_eq!(prompt["result"]["messages"][0]["role"], "user");
    for name in ["nope", "", "../rails/eval.yaml", "/etc/passwd"] {
        let unknown = ask("prompts/get", json!({"name": name}));
        assert_eq!(unknown["error"]["code"], -32602, "{name}: {unknown}");
    }

    let uris = |ask: &mut dyn FnMut(&str, Value) -> Value| -> Vec<String> {
        let listed = ask("resources/list", json!({}));
        assert_eq!(listed["result"].get("ttlMs").is_some(), is_modern, "{listed}");
        let resources = listed["result"]["resources"].as_array().unwrap_or_else(|| panic!("{listed}"));
        resources.iter().map(|resource| resource["uri"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(uris(ask), ["rigline://manifest"], "no run has ended");
    let ran = ask("tools/call", json!({"name": "run_eval", "arguments": {"id": "rails/eval.yaml"}}));
    let run = ran["result"]["structuredContent"]["runId"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned();
    let report = format!("rigline://runs/{run}");
    assert_eq!(uris(ask), ["rigline://manifest".to_owned(), report.clone()]);
    let read = ask("resources/read", json!({"uri": report}));
    let contents = &read["result"]["contents"][0];
    assert_eq!((&contents["uri"], &contents["mimeType"]), (&json!(report), &json!("application/x-ndjson")), "{read}");
    let lines: Vec<Value> =
        contents["text"].as_str().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 3 && lines.iter().any(|line| line.to_string().contains("rail-3v3")), "{read}");

    let manifest = ask("resources/read", json!({"uri": "rigline://manifest"}));
    let text = manifest["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{manifest}"));
    let tools: Value = serde_json::from_str(text).unwrap();
    assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "run_eval"), "{text}");
    // What is not listed cannot be read.
    for uri in [
        "rigline://runs/",
        "rigline://runs/../../secret",
        "rigline://runs/%2e%2e",
        "rigline://calls",
        "rigline://",
        "file:///etc/passwd",
        "",
    ] {
        let missing = ask("resources/read", json!({"uri": uri}));
        assert_eq!(missing["error"]["code"], if is_modern { -32602 } else { -32002 }, "{uri}: {missing}");
    }
}

#[test]
fn evals_are_prompts_and_their_reports_are_resources() {
    let (runs, evals) = (tempfile::tempdir().unwrap(), evals());
    let words = ["sim", "--evals", &evals, "--runs"];
    let store = |name: &str| runs.path().join(name).display().to_string();
    let folder = store("stdio");
    let mut agent = ServerProcess::start(&[&["mcp"], &words[..], &[&folder]].concat());
    let greeted = agent.initialize(json!({}));
    assert!(greeted["capabilities"]["prompts"].is_object() && greeted["capabilities"]["resources"].is_object());
    try_library(&mut |method, params| agent.ask(method, params), false);
    for (name, is_modern) in [("legacy", false), ("modern", true)] {
        let http = ["--http", "127.0.0.1:0", "--protocol", "mcp"];
        let folder = store(name);
        let words = [&["serve"], &words[..], &[&folder], &http[..]].concat();
        let server = Listening::start(&words, "listening on ");
        let mut agent = match is_modern {
            true => Agent::modern(&server.address, name, json!({})),
            false => Agent::begin(&server.address, name, json!({})),
        };
        try_library(&mut |method, params| agent.ask(method, params).reply(), is_modern);
    }
}

#[test]
fn a_server_without_evals_has_no_prompts() {
    let mut agent = ServerProcess::start(&["mcp", "sim"]);
    let greeted = agent.initialize(json!({}));
    assert!(greeted["capabilities"].get("prompts").is_none(), "{greeted}");
    assert_eq!(agent.ask("prompts/list", json!({}))["error"]["code"], -32601);
    assert!(!says(&agent.call("state", json!({})), "prompt"));
}
