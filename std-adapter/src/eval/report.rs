//! What runs came to, for people and for other programs: as JSON, CTRF, TAP, a page, and for GitHub Actions.

mod ctrf;
mod github;
mod html;
mod measured;
mod model;
mod plot;
mod tap;
mod trend;

pub use ctrf::ctrf;
pub use github::{annotations, summary};
pub use html::html;
pub use model::{Case, Class, Logs, Measured, Past, Results, Run, Step, Task, Trial, Unusable};
pub use tap::tap;
pub use trend::{EARLIER, earlier};

use rigline::protocol::waza::Summary;
use serde_json::{Value, json};

use super::run::Outcome;
use super::runs;
use super::spec::Spec;

/// What a run came to, as JSON for reports.
pub fn report(spec: &Spec, run: &str, outcome: &Outcome) -> Value {
    let Summary { total, passed, failed } = outcome.summary;
    let rate = if total == 0 { 0.0 } else { f64::from(passed) / f64::from(total) };
    let tasks = outcome.tasks.iter().map(|record| {
        let task = spec.tasks.get(record.task);
        json!({
            "id": task.map(|task| &task.id),
            "name": task.map(|task| &task.name),
            "status": record.verdict.as_str(),
            "error": record.why(),
            "durationMs": u64::try_from(record.duration.as_millis()).unwrap_or(u64::MAX),
            "trials": record.trials.iter().map(|trial| runs::trial(task.map_or("", |task| &task.id), trial)).collect::<Vec<_>>(),
        })
    });
    json!({
        "runId": run,
        "eval": spec.name,
        "path": spec.path.to_string_lossy(),
        "skill": spec.skill,
        "version": spec.version,
        "status": outcome.state.as_str(),
        "passed": outcome.passed,
        "error": outcome.error,
        "summary": { "total": total, "passed": passed, "failed": failed, "skipped": outcome.skipped, "passRate": rate },
        "warnings": spec.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "passThreshold": spec.metrics.pass_threshold,
        "metrics": outcome.metrics,
        "score": outcome.score,
        "durationMs": u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        "tasks": tasks.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
