//! CTRF, the Common Test Report Format: <https://ctrf.io>.

use serde_json::{Map, Value, json};

use super::super::verdict::Class;
use super::model::{Case, Results, class_of};
use rigline_host::terminal;

/// The version of the format.
const VERSION: &str = "0.0.0";

/// A report as JSON text.
pub fn ctrf(results: &Results) -> String {
    let tests: Vec<Value> = results.cases().map(test).collect();
    let count = |status: &str| tests.iter().filter(|test| test["status"] == status).count();
    let summary = json!({
        "tests": tests.len(),
        "passed": count("passed"),
        "failed": count("failed"),
        "skipped": count("skipped"),
        "pending": count("pending"),
        "other": count("other"),
        "flaky": results.count(Class::Flaky),
        "suites": results.runs.len() + results.errors.len(),
        "start": results.started_ms,
        "stop": results.ended_ms,
        "duration": results.ended_ms.saturating_sub(results.started_ms),
    });
    let runs: Vec<&str> = results.runs.iter().map(|run| run.run_id.as_str()).collect();
    let mut report = json!({
        "reportFormat": "CTRF",
        "specVersion": VERSION,
        "generatedBy": "rigline",
        "timestamp": super::model::time(results.ended_ms),
        "results": {
            "tool": { "name": "rigline", "version": env!("CARGO_PKG_VERSION") },
            "summary": summary,
            "tests": tests,
        },
    });
    if !runs.is_empty() {
        report["runId"] = runs.join(" ").into();
    }
    terminal::json(&format!("{report:#}\n")).into_owned()
}

/// Errors of the rig are also `failed`, since some readers check no other number.
fn status(case: &Case<'_>) -> &'static str {
    match case.class {
        Class::Pass => "passed",
        Class::Flaky if case.passed => "passed",
        Class::Skipped => "skipped",
        Class::Cancelled => "pending",
        _ => "failed",
    }
}

fn test(case: Case<'_>) -> Value {
    let not_empty = |text: &str| if text.is_empty() { "?".to_owned() } else { text.to_owned() };
    let mut test = Map::new();
    test.insert("name".into(), not_empty(case.name).into());
    test.insert("status".into(), status(&case).into());
    test.insert("rawStatus".into(), case.class.name().into());
    test.insert("duration".into(), case.task.map_or(0, |task| task.duration_ms).into());
    test.insert("suite".into(), json!([not_empty(case.suite)]));
    if !case.why.is_empty() {
        test.insert("message".into(), case.why.into());
    }
    let Some(task) = case.task else { return Value::Object(test) };
    let attempts: u64 = task.trials.iter().map(|trial| trial.attempts.saturating_sub(1)).sum();
    test.insert("testId".into(), format!("{}/{}", case.suite, task.id).into());
    test.insert("retries".into(), attempts.into());
    test.insert("flaky".into(), (case.class == Class::Flaky).into());
    if let Some(file) = &task.file {
        test.insert("filePath".into(), file.as_str().into());
    }
    let trials: Vec<Value> = task
        .trials
        .iter()
        .map(|trial| {
            let measurements: Vec<Value> = trial
                .measurements()
                .map(|it| {
                    json!({
                        "name": it.name, "value": it.value, "unit": it.unit, "low": it.low, "high": it.high, "verdict": it.verdict,
                    })
                })
                .collect();
            json!({
                "trial": trial.trial, "status": trial.class().name(), "duration": trial.duration_ms,
                "attempts": trial.attempts, "message": trial.error, "measurements": measurements,
            })
        })
        .collect();
    let earlier = task.trials.iter().flat_map(|trial| &trial.earlier);
    let attempts: Vec<Value> = earlier
        .enumerate()
        .map(|(place, attempt)| {
            let status = if class_of(&attempt.verdict) == Class::Pass { "passed" } else { "failed" };
            json!({ "attempt": place + 1, "status": status, "message": attempt.error.as_deref().unwrap_or_default() })
        })
        .collect();
    if !attempts.is_empty() {
        test.insert("retryAttempts".into(), attempts.into());
    }
    if let Some(rig) = case.run.and_then(|run| run.rig.as_ref()) {
        let serial = rig.serial_number.as_deref().unwrap_or_default();
        let labels =
            [("rig", rig.name.as_str()), ("version", &rig.version), ("target", &rig.target), ("serial", serial)];
        let labels = labels.into_iter().filter(|(_, text)| !text.is_empty());
        test.insert(
            "labels".into(),
            labels.map(|(name, text)| (name.to_owned(), text.into())).collect::<Map<_, Value>>().into(),
        );
    }
    test.insert("extra".into(), json!({ "class": case.class.name(), "trials": trials }));
    Value::Object(test)
}
