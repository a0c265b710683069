//! What runs came to, for people and for other programs: as JSON, CTRF, TAP, a page, and for GitHub Actions.

mod ctrf;
mod github;
mod html;
mod model;
mod plot;
mod tap;
mod trend;

pub use ctrf::ctrf;
pub use github::{annotations, summary};
pub use html::html;
pub use model::{Attempt, Case, Grader, Logs, Measured, Past, Results, Run, Step, Task, Trial, Unusable};
pub use tap::tap;
pub use trend::{EARLIER, earlier};

use rigline::protocol::waza::{RunState, Summary};
use serde_json::{Value, json};

use super::measurement::Statistics;
use super::run::Outcome;
use super::runs;
use super::session::Rig;
use super::spec::Spec;
use super::verdict::Class;
use rigline_std::clock::millis;

/// The result of a whole run.
pub fn class(outcome: &Outcome) -> Class {
    match () {
        () if outcome.state == RunState::Cancelled => Class::Cancelled,
        () if outcome.passed => Class::Pass,
        () if outcome.has_failure() => Class::Fail,
        () if outcome.has_rig_error() => Class::RigError,
        () => Class::Fail,
    }
}

fn rig(rig: &Rig) -> Value {
    json!({ "name": rig.name, "version": rig.version, "target": rig.target, "serialNumber": rig.serial_number })
}

/// The result of a run, as JSON for reports.
pub fn report(spec: &Spec, run: &str, outcome: &Outcome) -> Value {
    let Summary { total, passed, failed } = outcome.summary;
    let rate = if total == 0 { 0.0 } else { f64::from(passed) / f64::from(total) };
    let tasks = outcome.tasks.iter().map(|record| {
        let task = spec.tasks.get(record.task);
        json!({
            "id": task.map(|task| &task.id),
            "name": task.map(|task| &task.name),
            "status": record.verdict.as_str(),
            "verdict": record.class().name(),
            "error": record.why(),
            "reliability": record.reliability().to_json(),
            "measurements": record.measurements().iter().map(Statistics::to_json).collect::<Vec<_>>(),
            "durationMs": millis(record.duration),
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
        "verdict": class(outcome).name(),
        "error": outcome.error,
        "rig": outcome.rig.as_ref().map(rig),
        "health": outcome.health.as_ref().map(|health| runs::trial("health", health)),
        "summary": { "total": total, "passed": passed, "failed": failed, "skipped": outcome.skipped, "passRate": rate },
        "warnings": spec.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "passThreshold": spec.metrics.pass_threshold,
        "metrics": outcome.metrics,
        "score": outcome.score,
        // How far an answer may be beyond the `limitMs` of its step and pass.
        "graceMs": 0,
        "durationMs": millis(outcome.duration),
        "tasks": tasks.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
