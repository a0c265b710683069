//! CTRF, the Common Test Report Format: <https://ctrf.io>.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::super::model::{Mark, Measured, ReportCase, Results, Rig, Run, Statistic, time};
use super::super::run::MetricResult;
use super::super::verdict::Class;
use rigline_host::terminal;

/// The version of the format.
const VERSION: &str = "0.0.0";

/// Writes the report in the Common Test Report Format, as JSON text.
pub fn ctrf(results: &Results) -> String {
    let runs: Vec<&str> = results.runs.iter().map(|run| run.run_id.as_str()).collect();
    let report = Report {
        report_format: "CTRF",
        spec_version: VERSION,
        generated_by: "rigline",
        timestamp: time(results.ended_at_ms()),
        run_id: (!runs.is_empty()).then(|| runs.join(" ")),
        results: Body {
            tool: json!({ "name": "rigline", "version": env!("CARGO_PKG_VERSION") }),
            summary: summary(results),
            tests: results.cases().map(|case| test(&case)).collect(),
            extra: Extra {
                exit_code: results.exit_code,
                meta: &results.meta,
                host: results.host.as_ref(),
                runs: results.runs.iter().map(extra).collect(),
            },
        },
    };
    let text = serde_json::to_string_pretty(&report).unwrap_or_default();
    terminal::json(&(text + "\n")).into_owned()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'r> {
    report_format: &'static str,
    spec_version: &'static str,
    generated_by: &'static str,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    results: Body<'r>,
}

#[derive(Serialize)]
struct Body<'r> {
    tool: Value,
    summary: Value,
    tests: Vec<Test<'r>>,
    extra: Extra<'r>,
}

/// Facts for which CTRF has no members: the command, and its runs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Extra<'r> {
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    meta: &'r BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'r super::Host>,
    runs: Vec<RunExtra<'r>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunExtra<'r> {
    run_id: &'r str,
    eval: String,
    verdict: &'static str,
    passed: bool,
    reason: Option<&'r str>,
    summary: super::Summary,
    metrics: &'r [MetricResult],
    rig: Option<&'r Rig>,
    duration_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Test<'r> {
    name: String,
    status: &'static str,
    raw_status: &'static str,
    duration: u64,
    suite: [String; 1],
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'r str,
    test_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flaky: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_path: Option<&'r str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retry_attempts: Vec<Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'static str, &'r str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<Value>,
    extra: TestExtra<'r>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TestExtra<'r> {
    class: &'static str,
    tolerated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trials_passed: Option<usize>,
    measurements: &'r [Statistic],
    trials: Vec<TrialExtra<'r>>,
}

#[derive(Serialize)]
struct TrialExtra<'r> {
    trial: u32,
    status: &'static str,
    duration: u64,
    attempts: u32,
    message: Option<&'r str>,
    measurements: Vec<&'r Measured>,
}

fn summary(results: &Results) -> Value {
    let count = |wanted: &str| results.cases().filter(|case| status(case) == wanted).count();
    json!({
        "tests": results.cases().count(),
        "passed": count("passed"),
        "failed": count("failed"),
        "skipped": count("skipped"),
        "pending": count("pending"),
        "other": count("other"),
        "flaky": results.count(Class::Flaky),
        "suites": results.runs.len() + results.errors.len(),
        "start": results.started_at_ms,
        "stop": results.ended_at_ms(),
        "duration": results.duration_ms,
    })
}

fn extra(run: &Run) -> RunExtra<'_> {
    RunExtra {
        run_id: &run.run_id,
        eval: run.label(),
        verdict: run.class().name(),
        passed: run.passed,
        reason: run.reason.as_deref(),
        summary: run.summary,
        metrics: &run.metrics,
        rig: run.rig.as_ref(),
        duration_ms: run.duration_ms,
    }
}

/// Errors of the rig are also `failed`, since some readers check no other number. What the eval tolerates is not.
fn status(case: &ReportCase<'_>) -> &'static str {
    match case.mark {
        Mark::Passed => "passed",
        Mark::Skipped => "skipped",
        Mark::NotRun => "pending",
        Mark::Tolerated => "other",
        Mark::Failed | Mark::Error => "failed",
    }
}

fn test<'r>(case: &ReportCase<'r>) -> Test<'r> {
    let not_empty = |text: &str| if text.is_empty() { "?".to_owned() } else { text.to_owned() };
    let task = case.task;
    let rig = task.and(case.run).and_then(|run| run.rig.as_ref());
    let labels = rig.into_iter().flat_map(|rig| {
        let serial = rig.serial_number.as_deref().unwrap_or_default();
        [("rig", rig.name.as_str()), ("version", &rig.version), ("target", &rig.target), ("serial", serial)]
    });
    let attempts = task.into_iter().flat_map(super::Task::earlier).enumerate().map(|(place, (trial, attempt))| {
        let status = if attempt.class() == Class::Pass { "passed" } else { "failed" };
        let message = attempt.error.as_deref().unwrap_or_default();
        json!({ "attempt": place + 1, "status": status, "message": message, "extra": { "trial": trial, "class": attempt.class().name() } })
    });
    let trials = task.iter().flat_map(|task| &task.trials).map(|trial| TrialExtra {
        trial: trial.trial,
        status: trial.class().name(),
        duration: trial.duration_ms,
        attempts: trial.attempts,
        message: trial.error.as_deref(),
        measurements: trial.values().collect(),
    });
    Test {
        name: not_empty(case.name),
        status: status(case),
        raw_status: case.class.name(),
        duration: task.map_or(0, |task| task.duration_ms),
        suite: [not_empty(&case.run.map_or_else(|| case.suite.to_owned(), Run::label))],
        message: case.why,
        test_id: case.id(),
        retries: task.map(|task| task.attempts.saturating_sub(task.trials.len() as u64)),
        flaky: task.map(|_| case.class == Class::Flaky),
        file_path: task.and_then(|task| task.file.as_deref()),
        retry_attempts: attempts.collect(),
        attachments: task.map(attachments).unwrap_or_default(),
        labels: labels.filter(|(_, text)| !text.is_empty()).collect(),
        extra: TestExtra {
            class: case.class.name(),
            tolerated: case.mark == Mark::Tolerated,
            trials_passed: task.map(|task| task.trials_passed),
            measurements: task.map(|task| task.measurements.as_slice()).unwrap_or_default(),
            trials: trials.collect(),
        },
    }
}

/// The files that a task's steps attached.
fn attachments(task: &super::Task) -> Vec<Value> {
    let attachment = |(trial, step, it): (u32, &str, &super::Attachment)| {
        let path = it.path.as_ref()?;
        Some(json!({
            "name": it.name,
            "contentType": it.content_type,
            "path": path,
            "extra": { "trial": trial, "step": step, "bytes": it.bytes, "sha256": it.sha256, "isOlder": it.is_older },
        }))
    };
    task.attachments().filter_map(attachment).collect()
}
