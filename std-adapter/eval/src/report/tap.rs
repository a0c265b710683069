//! TAP, the Test Anything Protocol, version 14: <https://testanything.org/tap-version-14-specification.html>.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::digits::Digits;
use super::super::model::{Mark, ReportCase, Results, message, name, shown};
use rigline_host::terminal;

/// Writes the report in the Test Anything Protocol, version 14. A failure that a threshold allows
/// is `not ok … # TODO`, which does not count as a failure in TAP. A case that was not run is `ok …
/// # SKIP`.
pub fn tap(results: &Results) -> String {
    let cases: Vec<ReportCase<'_>> = results.cases().collect();
    let mut text = format!("TAP version 14\n1..{}\n", cases.len());
    for (place, case) in cases.iter().enumerate() {
        let ok = if matches!(case.mark, Mark::Passed | Mark::Skipped | Mark::NotRun) { "ok" } else { "not ok" };
        let suite = case.run.map_or_else(|| case.suite.to_owned(), super::Run::label);
        let description = escaped(&format!("{}: {}", name(&suite), name(case.name)));
        let _ = write!(text, "{ok} {} - {description}", place + 1);
        match case.mark {
            Mark::Skipped => drop(write!(text, " # SKIP {}", escaped(&name(case.why)))),
            Mark::NotRun => drop(write!(text, " # SKIP {}", escaped(case.label()))),
            Mark::Tolerated => drop(write!(text, " # TODO {}", escaped(&name(&tolerated(case))))),
            _ => {}
        }
        text.push('\n');
        diagnostics(&mut text, case);
    }
    for run in &results.runs {
        let _ = writeln!(text, "# {}: {}", name(&run.label()), name(&run.verdict_text()));
    }
    for (key, value) in &results.meta {
        let _ = writeln!(text, "# {}: {}", name(key), name(value));
    }
    if let Some(code) = results.exit_code {
        let _ = writeln!(text, "# exit code: {code}");
    }
    text
}

fn tolerated(case: &ReportCase<'_>) -> String {
    format!("{}: {}", case.label(), case.why)
}

/// The YAML block below a test point. Its values are JSON, which is YAML too.
fn diagnostics(text: &mut String, case: &ReportCase<'_>) {
    let mut lines = vec![format!("class: {}", quoted(case.class.name()))];
    if !case.why.is_empty() {
        lines.push(format!("message: {}", quoted(&message(case.why))));
    }
    if let Some(task) = case.task {
        lines.push(format!("duration_ms: {}", task.duration_ms));
        lines.push(format!("trials: {}", task.trials.len()));
        lines.push(format!("trials_passed: {}", task.trials_passed));
        lines.push(format!("attempts: {}", task.attempts));
        if let Some(file) = &task.file {
            lines.push(format!("file: {}", quoted(&message(&terminal::one_line(file)))));
        }
        let mut earlier = task.earlier().peekable();
        if earlier.peek().is_some() {
            lines.push("earlier_attempts:".to_owned());
        }
        for (trial, attempt) in earlier {
            let why = quoted(&message(attempt.error.as_deref().unwrap_or_default()));
            lines.push(format!("  - {{ trial: {trial}, class: {}, message: {why} }}", quoted(attempt.class().name())));
        }
        let mut values = task.values_by_trial().peekable();
        if values.peek().is_some() {
            lines.push("measurements:".to_owned());
        }
        for (trial, it) in values {
            lines.push(format!(
                "  - {{ name: {}, trial: {trial}, value: {}, unit: {}, low: {}, high: {}, verdict: {} }}",
                quoted(&name(&it.name)),
                digits(&it.value),
                quoted(&name(it.unit.as_deref().unwrap_or_default())),
                digits(&it.low),
                digits(&it.high),
                quoted(&name(&it.verdict)),
            ));
        }
    }
    text.push_str("  ---\n");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    text.push_str("  ...\n");
}

/// A description, in which `#` would begin a directive.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('#', "\\#")
}

fn quoted(text: &str) -> String {
    terminal::json(&Value::from(text).to_string()).into_owned()
}

/// A string: a reader of YAML would drop digits of a number.
fn digits(value: &Digits) -> String {
    quoted(&shown(value))
}
