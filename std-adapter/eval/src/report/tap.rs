//! TAP, the Test Anything Protocol, version 14: <https://testanything.org/tap-version-14-specification.html>.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::verdict::Class;
use super::model::{Case, Results, message, name, shown};
use rigline_host::terminal;

/// A report as TAP.
pub fn tap(results: &Results) -> String {
    let cases: Vec<Case<'_>> = results.cases().collect();
    let mut text = format!("TAP version 14\n1..{}\n", cases.len());
    for (place, case) in cases.iter().enumerate() {
        let ok = if case.passed || case.class == Class::Skipped { "ok" } else { "not ok" };
        let description = escaped(&format!("{}: {}", name(case.suite), name(case.name)));
        let _ = write!(text, "{ok} {} - {description}", place + 1);
        if case.class == Class::Skipped {
            let _ = write!(text, " # SKIP {}", escaped(&name(case.why)));
        }
        text.push('\n');
        diagnostics(&mut text, case);
    }
    text
}

/// The YAML block below a test point. Its values are JSON, which is YAML too.
fn diagnostics(text: &mut String, case: &Case<'_>) {
    let mut lines = vec![format!("class: {}", quoted(case.class.name()))];
    if !case.why.is_empty() {
        lines.push(format!("message: {}", quoted(&message(case.why))));
    }
    if let Some(task) = case.task {
        lines.push(format!("duration_ms: {}", task.duration_ms));
        if let Some(file) = &task.file {
            lines.push(format!("file: {}", quoted(&terminal::one_line(file))));
        }
        let mut measured = task.measurements().peekable();
        if measured.peek().is_some() {
            lines.push("measurements:".to_owned());
        }
        for (trial, it) in measured {
            lines.push(format!(
                "  - {{ name: {}, trial: {trial}, value: {}, unit: {}, low: {}, high: {}, verdict: {} }}",
                quoted(&name(&it.name)),
                quoted(&shown(&it.value)),
                quoted(&name(it.unit.as_deref().unwrap_or_default())),
                quoted(&shown(&it.low)),
                quoted(&shown(&it.high)),
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
