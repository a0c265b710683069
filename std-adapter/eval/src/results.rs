//! The stored runs: the methods `results.runs` and `results.summary`. The protocol's specification
//! does not have them, but waza's own server does.

use std::io;

use rigline::json::Json;
use rigline::json::Text;
use rigline::protocol::waza::{RunState, Summary};
use serde_json::{Value, json};

use super::runs::Runs;
use super::store::Stored;

/// The largest number of runs that `results.runs` returns. It is also the number if the member
/// `limit` is absent.
const LIMIT: usize = 1000;

/// Answers one of the two methods. Returns `None` for any other method.
pub(super) fn answer(runs: &Runs, method: Text<'_>, params: Json<'_>) -> Option<io::Result<Value>> {
    if method == "results.runs" {
        let limit = params.get("limit").and_then(|limit| limit.as_str().parse().ok());
        Some(list(runs, limit.unwrap_or(LIMIT).min(LIMIT)))
    } else if method == "results.summary" {
        Some(summary(runs))
    } else {
        None
    }
}

fn list(runs: &Runs, limit: usize) -> io::Result<Value> {
    Ok(json!({ "runs": runs.all()?.iter().take(limit).map(row).collect::<Vec<_>>() }))
}

/// A run, without its tasks.
pub(super) fn row((id, head, Stored { state, summary, error, result }): &(String, Value, Stored)) -> Value {
    json!({
            "runId": id,
            "name": head["name"],
            "skill": head["skill"],
            "path": head["path"],
            "model": head["model"],
            "startedAtMs": head["startedAtMs"],
            "status": state.as_str(),
            "total": summary.total,
            "passed": summary.passed,
            "failed": summary.failed,
            "error": error,
            "verdict": result.as_ref().map(|result| &result.verdict),
            "reason": result.as_ref().and_then(|result| result.reason.as_ref()),
    })
}

fn summary(runs: &Runs) -> io::Result<Value> {
    let all = runs.all()?;
    let count = |state| all.iter().filter(|(_, _, stored)| stored.state == state).count();
    let sum =
        |part: fn(&Summary) -> u32| all.iter().map(|(_, _, stored)| u64::from(part(&stored.summary))).sum::<u64>();
    let (total, passed) = (sum(|summary| summary.total), sum(|summary| summary.passed));
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = if total == 0 { 0.0 } else { passed as f64 / total as f64 };
    Ok(json!({
        "totalRuns": all.len(),
        "completed": count(RunState::Completed),
        "failed": count(RunState::Failed),
        "cancelled": count(RunState::Cancelled),
        "running": count(RunState::Running),
        "totalTasks": total,
        "passedTasks": passed,
        "failedTasks": sum(|summary| summary.failed),
        "passRate": rate,
    }))
}
