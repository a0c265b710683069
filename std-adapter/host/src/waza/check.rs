//! The cases of waza's JSON-RPC protocol, for anyone's server.
//!
//! They bring evals of their own, in the system's folder for temporary files, which a server on
//! this computer can read. What needs them is skipped with a server that does not see them. Nothing
//! but the executor `mock` is run.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::check::{Bench, Case, CaseFailure, Peer, Reply, Suite, Verdict, cases, cut, names, run_on_bench};

/// All cases, in the order in which they run.
#[rustfmt::skip]
pub(crate) const CASES: &[Case] = cases! {
    "eval.list", "waza: eval.list", Host, eval_list;
    "eval.list.dir", "peers: directory and dir", Host, eval_list_dir;
    "eval.get", "waza: eval.get", Host, eval_get;
    "eval.validate.valid", "waza: eval.validate", Host, valid;
    "eval.validate.invalid", "waza: eval.validate", Host, invalid;
    "task.list", "waza: task.list", Host, task_list;
    "task.get", "waza: task.get", Host, task_get;
    "run.events", "waza: eval.run, eval.progress", Host, run_events;
    "run.reply-first", "waza: Example Client", Host, reply_first;
    "run.status", "waza: run.status", Host, run_status;
    "run.cancel", "waza: run.cancel", Host, run_cancel;
    "run.end-of-input", "waza: Stdio", Host, end_of_input;
    "error.method", "waza: Error Codes", Host, |bench| refused(bench, "eval.no-such-method", json!({}), -32601);
    "error.params", "waza: Error Codes", Host, |bench| refused(bench, "eval.get", json!({}), -32602);
    "error.not-found", "waza: Error Codes", Host, |bench| refused(bench, "eval.get", json!({ "path": "/no/such/eval.yaml" }), -32000);
    "error.run-not-found", "waza: Error Codes", Host, |bench| refused(bench, "eval.run", json!({ "path": "/no/such/eval.yaml" }), -32000);
    "error.validation", "waza: Error Codes", Host, validation_failed;
    "error.run", "waza: Error Codes", Host, |bench| refused(bench, "run.status", json!({ "runId": "no-such-run" }), -32602);
    "bad-json", "waza: Error Codes", Host, bad_json;
    "invalid-request", "JSON-RPC 2.0 §5.1", Host, invalid_request;
    "notification.silence", "JSON-RPC 2.0 §4.1", Host, notification;
    "id.echo", "JSON-RPC 2.0 §5", Host, ids;
    "line.crlf", "waza: JetBrains Plugin", Host, crlf;
    "one-shot.no-newline", "waza: Testing", Host, no_newline;
};

/// The suite, for the registry of protocols.
pub(super) const SUITE: Suite = Suite {
    names: || names(CASES),
    has_transcripts: false,
    run: |settings, report| Box::pin(run_on_bench(CASES, settings, report)),
};

/// Evals to ask about. They go when this does.
struct Evals(TempDir);

impl Evals {
    fn new() -> Result<Self, CaseFailure> {
        let folder = tempfile::Builder::new().prefix("rigline-check-").tempdir();
        let folder = folder.map_err(|error| CaseFailure::Skip(error.to_string()))?;
        let files = [
            (
                "good/eval.yaml",
                "name: check-eval\nskill: check\nversion: \"1.0\"\nconfig:\n  executor: mock\n  trials_per_task: 1\n  timeout_seconds: 30\n\
                 metrics:\n  - name: task_completion\n    weight: 1.0\n    threshold: 0.5\ntasks:\n  - \"tasks/*.yaml\"\n",
            ),
            (
                "good/tasks/greet.yaml",
                "id: greet\nname: Greet\ndescription: Say hello\ninputs:\n  prompt: Say hello\nexpected:\n  output_contains: [\"hello\"]\n\
                 graders:\n  - type: file_exists\n    name: there\n    path: eval.yaml\n",
            ),
            ("bad/eval.yaml", "description: It has neither name nor tasks\n"),
        ];
        for (file, text) in files {
            let path = folder.path().join(file);
            let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            written.map_err(|error| CaseFailure::Skip(format!("{}: {error}", path.display())))?;
        }
        Ok(Self(folder))
    }

    fn path(&self, file: &str) -> String {
        self.0.path().join(file).to_string_lossy().into_owned()
    }
}

/// The result of a request about the evals that the check brings.
async fn about(bench: &Bench, peer: &mut Peer, method: &str, params: Value) -> Result<Value, CaseFailure> {
    let reply = peer.ask(method, &params.to_string()).await?;
    match (reply.result(), reply.code()) {
        (Some(result), _) if reply.is_versioned() => Ok(result),
        (Some(_), _) => Err(CaseFailure::Fail("the reply lacks \"jsonrpc\":\"2.0\"".into())),
        (None, Some(-32000)) if bench.is_live() => {
            Err(CaseFailure::Skip("the server does not see this computer's files".into()))
        }
        (None, _) => Err(CaseFailure::Fail(format!("{method} was refused: {}", cut(reply.line().as_bytes())))),
    }
}

/// That a member is there and is this.
fn member(value: &Value, name: &str, wanted: &Value) -> Result<(), CaseFailure> {
    if value[name] == *wanted {
        return Ok(());
    }
    Err(CaseFailure::Fail(format!("{name} must be {wanted}, and is {}", value[name])))
}

async fn eval_list(bench: &mut Bench) -> Verdict {
    list(bench, "directory").await
}

async fn eval_list_dir(bench: &mut Bench) -> Verdict {
    match list(bench, "dir").await {
        Err(CaseFailure::Fail(why)) => Ok(Some(format!("only `directory` is understood: {why}"))),
        verdict => verdict,
    }
}

async fn list(bench: &mut Bench, spelling: &str) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let result = about(bench, &mut peer, "eval.list", json!({ spelling: evals.path("good") })).await?;
    let Some(eval) = result["evals"].as_array().and_then(|evals| evals.first()) else {
        return bench.fail(format!("evals must list the one there is: {result}"));
    };
    member(eval, "name", &json!("check-eval"))?;
    member(eval, "skill", &json!("check"))?;
    member(eval, "version", &json!("1.0"))?;
    if eval["path"].as_str().is_some_and(|path| path.ends_with("eval.yaml")) {
        return Ok(None);
    }
    bench.fail(format!("path must be the eval's file, and is {}", eval["path"]))
}

async fn eval_get(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let eval = about(bench, &mut peer, "eval.get", json!({ "path": evals.path("good/eval.yaml") })).await?;
    member(&eval, "name", &json!("check-eval"))?;
    member(&eval, "skill", &json!("check"))?;
    member(&eval["config"], "executor", &json!("mock"))?;
    member(&eval["config"], "trials_per_task", &json!(1))?;
    if eval["metrics"].is_null() { bench.fail("metrics is missing") } else { Ok(None) }
}

async fn valid(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let result = about(bench, &mut peer, "eval.validate", json!({ "path": evals.path("good/eval.yaml") })).await?;
    member(&result, "valid", &json!(true))?;
    member(&result, "name", &json!("check-eval"))?;
    Ok(None)
}

async fn invalid(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let result = about(bench, &mut peer, "eval.validate", json!({ "path": evals.path("bad/eval.yaml") })).await?;
    member(&result, "valid", &json!(false))?;
    match result["errors"].as_array() {
        Some(errors) if !errors.is_empty() && errors.iter().all(Value::is_string) => Ok(None),
        _ => bench.fail(format!("errors must be a list of texts, and is {}", result["errors"])),
    }
}

async fn task_list(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let result = about(bench, &mut peer, "task.list", json!({ "path": evals.path("good/eval.yaml") })).await?;
    let Some(task) = result["tasks"].as_array().and_then(|tasks| tasks.first()) else {
        return bench.fail(format!("tasks must list the one there is: {result}"));
    };
    member(task, "id", &json!("greet"))?;
    member(task, "name", &json!("Greet"))?;
    member(task, "description", &json!("Say hello"))?;
    Ok(None)
}

async fn task_get(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let params = json!({ "path": evals.path("good/eval.yaml"), "taskId": "greet" });
    let task = about(bench, &mut peer, "task.get", params).await?;
    member(&task, "id", &json!("greet"))?;
    member(&task, "prompt", &json!("Say hello"))?;
    member(&task["graders"][0], "type", &json!("file_exists"))?;
    Ok(None)
}

/// Starts a run. Returns its id, and all lines up to its `eval.complete`.
async fn complete(bench: &Bench, peer: &mut Peer, evals: &Evals) -> Result<(String, Vec<Value>), CaseFailure> {
    let params = json!({ "path": evals.path("good/eval.yaml"), "executor": "mock" });
    let started = about(bench, peer, "eval.run", params).await?;
    member(&started, "status", &json!("running"))?;
    let Some(run) = started["runId"].as_str().map(str::to_owned) else {
        return Err(CaseFailure::Fail(format!("runId is missing: {started}")));
    };
    let mut lines = Vec::new();
    loop {
        let Some(line) = peer.line().await? else {
            return Err(CaseFailure::Fail("it ended before eval.complete".into()));
        };
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        let is_last = line["method"] == "eval.complete" && line["params"]["runId"] == json!(run);
        lines.push(line);
        if is_last {
            return Ok((run, lines));
        }
    }
}

async fn run_events(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let (_, lines) = complete(bench, &mut peer, &evals).await?;
    let events: Vec<&str> = lines
        .iter()
        .filter(|line| line["method"] == "eval.progress")
        .filter_map(|line| line["params"]["event"].as_str())
        .collect();
    let wanted = ["run_start", "task_start", "trial_start", "trial_complete", "task_complete", "run_complete"];
    if events != wanted {
        return bench.fail(format!("the events must be {}, and are {}", wanted.join(", "), events.join(", ")));
    }
    let summary = lines.last().map_or(&Value::Null, |line| &line["params"]["summary"]);
    member(summary, "total", &json!(1))?;
    if ["passed", "failed", "passRate"].iter().all(|name| summary[*name].is_number()) {
        return Ok(None);
    }
    bench.fail(format!("summary must have passed, failed and passRate, and is {summary}"))
}

async fn reply_first(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let request = json!({ "jsonrpc": "2.0", "id": "first", "method": "eval.run",
        "params": { "path": evals.path("good/eval.yaml"), "executor": "mock" } });
    peer.send_line(request).await?;
    let line = peer.line().await?.unwrap_or_default();
    let reply: Value = serde_json::from_str(&line).unwrap_or_default();
    match reply["error"]["code"].as_i64() {
        Some(-32000) if bench.is_live() => bench.skip("the server does not see this computer's files"),
        _ if reply["id"] == "first" => Ok(None),
        _ => bench.fail("the next line after a request must be its reply, since clients read it as that"),
    }
}

async fn run_status(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let (run, _) = complete(bench, &mut peer, &evals).await?;
    let status = about(bench, &mut peer, "run.status", json!({ "runId": run })).await?;
    member(&status, "runId", &json!(run))?;
    match status["status"].as_str() {
        Some("completed") => {}
        Some("complete") => return Ok(Some("status is `complete`; most clients know `completed`".into())),
        _ => return bench.fail(format!("status must be \"completed\", and is {}", status["status"])),
    }
    if status["result"].is_object() { Ok(None) } else { bench.fail("a finished run keeps its result") }
}

async fn run_cancel(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let (run, _) = complete(bench, &mut peer, &evals).await?;
    let reply = peer.ask("run.cancel", &json!({ "runId": run }).to_string()).await?;
    // Whether it was done by then is the server's affair; that it answers is not.
    match reply.result() {
        Some(result) => member(&result, "runId", &json!(run)).map(|()| None),
        None if reply.code().is_some() => Ok(Some("cancelling a finished run is an error here".into())),
        None => bench.fail("neither a result nor an error"),
    }
}

async fn end_of_input(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let params = json!({ "path": evals.path("good/eval.yaml"), "executor": "mock" });
    about(bench, &mut peer, "eval.run", params).await?;
    peer.close_input().await;
    while let Some(line) = peer.line().await? {
        if line.contains("\"eval.complete\"") {
            return Ok(None);
        }
    }
    bench.fail("it ended during a run")
}

async fn refused(bench: &mut Bench, method: &str, params: Value, code: i64) -> Verdict {
    let mut peer = bench.connect().await?;
    peer.ask(method, &params.to_string()).await?.expect_error(&[code])?;
    Ok(None)
}

async fn validation_failed(bench: &mut Bench) -> Verdict {
    let (evals, mut peer) = (Evals::new()?, bench.connect().await?);
    let reply =
        peer.ask("eval.run", &json!({ "path": evals.path("bad/eval.yaml"), "executor": "mock" }).to_string()).await?;
    if reply.code() == Some(-32000) && bench.is_live() {
        return bench.skip("the server does not see this computer's files");
    }
    reply.expect_error(&[-32001])?;
    Ok(None)
}

/// That a line gets this error with a null id, and that the next request is answered all the same.
async fn fault(bench: &Bench, lines: &[&str], code: i64) -> Verdict {
    let mut peer = bench.connect().await?;
    let mut remark = None;
    for line in lines {
        peer.send_line(line).await?;
        let reply: Reply = peer.any_reply().await?;
        reply.expect_error(&[code])?;
        match reply.id().as_str() {
            "null" => {}
            "" => remark = Some("the error reply has no id; it should be null (JSON-RPC 2.0 §5)".to_owned()),
            id => return bench.fail(format!("the id must be null, and is {id}")),
        }
    }
    peer.ask("eval.no-such-method", "{}").await?.expect_error(&[-32601])?;
    Ok(remark)
}

async fn bad_json(bench: &mut Bench) -> Verdict {
    fault(bench, &["{oops", "{\"jsonrpc\":\"2.0\",", "nonsense"], -32700).await
}

async fn invalid_request(bench: &mut Bench) -> Verdict {
    fault(bench, &["{}", "1", "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":1}"], -32600).await
}

async fn notification(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    peer.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"eval.validate\",\"params\":{\"path\":\"/no/such/eval.yaml\"}}\n")
        .await?;
    // Another reply than this one's is a fault.
    peer.ask("eval.no-such-method", "{}").await?.expect_error(&[-32601])?;
    Ok(None)
}

async fn ids(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    for id in ["7", "\"abc\"", "\"7\"", "\"a\\\"b\"", "0"] {
        peer.ask_as(id, "eval.no-such-method", "{}").await?.expect_error(&[-32601])?;
    }
    Ok(None)
}

async fn crlf(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let id = peer.next_id();
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"eval.no-such-method\"}}\r\n");
    peer.send(line.as_bytes()).await?;
    peer.reply(&id).await?.expect_error(&[-32601])?;
    Ok(None)
}

async fn no_newline(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let id = peer.next_id();
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"eval.no-such-method\"}}");
    peer.send(line.as_bytes()).await?;
    peer.close_input().await;
    peer.reply(&id).await?.expect_error(&[-32601])?;
    Ok(None)
}
