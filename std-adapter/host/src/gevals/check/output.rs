//! Logs, and everything else on standard output.

use serde_json::Value;

use super::common::execute;
use crate::check::{Bench, CaseFailure, Verdict, cut};
use rigline_std::stdio::HOST_LINE_LIMIT;

/// The logs of all cases so far; without any, those of the calls that may be made.
async fn logs(bench: &mut Bench) -> Result<Vec<String>, CaseFailure> {
    if bench.logs().is_empty()
        && let Ok(calls) = bench.permitted_calls().await
    {
        let mut peer = bench.session().await?;
        for (name, args) in calls {
            peer.ask("execute", &execute(&name, &args.to_string())).await?;
        }
    }
    let logs = bench.logs();
    if logs.is_empty() {
        return Err(CaseFailure::Skip("nothing was logged; name an operation that logs by --call".to_owned()));
    }
    Ok(logs)
}

pub(super) async fn log_level(bench: &mut Bench) -> Verdict {
    for line in logs(bench).await? {
        let log: Value = serde_json::from_str(&line).unwrap_or_default();
        if !matches!(log["params"]["level"].as_str(), Some("debug" | "info" | "warn" | "error")) {
            return bench.fail(format!("a log's level must be debug, info, warn or error: {}", cut(line.as_bytes())));
        }
    }
    Ok(None)
}

pub(super) async fn log_form(bench: &mut Bench) -> Verdict {
    let logs = logs(bench).await?;
    for line in &logs {
        let log: Value = serde_json::from_str(line).unwrap_or_default();
        let params = &log["params"];
        let shown = cut(line.as_bytes());
        if log.get("id").is_some() {
            return bench.fail(format!("a log is a notification, and has no id: {shown}"));
        }
        if log["jsonrpc"] != "2.0" {
            return bench.fail(format!("a log lacks \"jsonrpc\":\"2.0\": {shown}"));
        }
        if !matches!(params["level"], Value::String(_) | Value::Null) {
            return bench.fail(format!("a log's level must be a string, or the real host drops the log: {shown}"));
        }
        if !params["message"].is_string() {
            return bench.fail(format!("a log's message must be a string: {shown}"));
        }
        if params.get("data").is_some_and(|data| !data.is_object()) {
            return bench.fail(format!("a log's data must be an object, or the real host drops the log: {shown}"));
        }
        if line.len() > HOST_LINE_LIMIT {
            return bench
                .fail(format!("a log has {} bytes, and the real host reads at most {HOST_LINE_LIMIT}", line.len()));
        }
    }
    Ok(Some(format!("{} logs", logs.len())))
}

pub(super) async fn clean(bench: &mut Bench) -> Verdict {
    if !bench.is_reached() {
        bench.session().await?;
    }
    match bench.noise().as_slice() {
        [] => Ok(None),
        [first, rest @ ..] => bench.fail(format!(
            "{} lines are not messages, and the real host stops reading at the first: {first:?}",
            rest.len() + 1
        )),
    }
}
