//! The results of runs, for people.

use std::fmt::Write as _;

use rigline::protocol::waza::{RunState, Verdict};
use rigline_eval::Spec;
use rigline_eval::measurement::{self, Statistics};
use rigline_eval::report::class;
use rigline_eval::run::{Outcome, TaskRecord};
use rigline_eval::verdict::Class;
use rigline_host::terminal;

use super::{Done, time};
use crate::out::{self, Style, Table, Text, print, print_text};

pub(super) fn show(done: &[Done]) {
    let mut table = Table::new(&["eval", "task", "result", "trials", "time", "why"]);
    let runs = || done.iter().filter_map(|done| done.run.as_ref().ok());
    for (_, spec, outcome) in runs() {
        for record in &outcome.tasks {
            table.row(row(spec, record));
        }
    }
    if !table.is_empty() {
        print(&table.to_string());
    }
    show_measurements(done);
    for (_, spec, outcome) in runs() {
        let style = if outcome.passed { Style::Good } else { Style::Bad };
        print_text(&Text::new().styled(style, &verdict(spec, outcome)).plain("\n"));
    }
}

/// What was measured, a line for each name of each task.
fn show_measurements(done: &[Done]) {
    let mut table = Table::new(&["task", "measurement", "value", "limits", "verdict", "over trials"]);
    for (_, spec, outcome) in done.iter().filter_map(|done| done.run.as_ref().ok()) {
        for record in &outcome.tasks {
            let task = spec.tasks.get(record.task).map_or("", |task| task.name.as_str());
            for statistics in record.measurements() {
                let last = &statistics.last;
                let unit = last.unit.as_deref().unwrap_or_default();
                table.row([
                    task.to_owned(),
                    last.name.clone(),
                    format!("{} {unit}", last.value).trim_end().to_owned(),
                    measurement::limits(last.low.as_deref(), last.high.as_deref()),
                    if statistics.passed { "pass" } else { "fail" }.to_owned(),
                    over_trials(&statistics),
                ]);
            }
        }
    }
    if !table.is_empty() {
        print(&table.to_string());
    }
}

fn over_trials(statistics: &Statistics) -> String {
    let Some(deviation) = statistics.deviation else { return String::new() };
    let Statistics { min, max, .. } = statistics;
    let cpk = statistics.cpk.map_or_else(String::new, |cpk| format!(", Cpk {cpk:.2}"));
    // One digit more than the values have.
    let digits = |text: &str| text.split_once('.').map_or(0, |(_, fraction)| fraction.len()).min(12);
    let digits = digits(min).max(digits(max)) + 1;
    let mean = statistics.mean_to(digits).map_or_else(String::new, |mean| format!(", mean {mean}"));
    format!("{min} to {max}{mean}, s {deviation:.digits$}{cpk}")
}

fn row(spec: &Spec, record: &TaskRecord) -> [String; 6] {
    let name = spec.tasks.get(record.task).map_or("", |task| task.name.as_str());
    let passed = record.trials.iter().filter(|trial| trial.verdict == Verdict::Passed).count();
    [
        spec.name.clone(),
        name.to_owned(),
        record.class().label().to_owned(),
        format!("{passed}/{}", record.trials.len()),
        time(record.duration),
        terminal::cut(record.why().unwrap_or_default(), 160),
    ]
}

fn verdict(spec: &Spec, outcome: &Outcome) -> String {
    let summary = outcome.summary;
    let mut text = format!("{}: ", spec.name);
    match outcome.state {
        RunState::Completed => {
            let word = class(outcome).label();
            let _ = write!(text, "{word}, {} of {} tasks passed", summary.passed, summary.total);
            let count = |class: Class| outcome.tasks.iter().filter(|task| task.class() == class).count();
            for (class, plural) in [(Class::RigError, "rig errors"), (Class::Flaky, "flaky")] {
                match count(class) {
                    0 => {}
                    1 => drop(write!(text, ", 1 {}", class.label())),
                    many => drop(write!(text, ", {many} {plural}")),
                }
            }
            if outcome.skipped > 0 {
                let _ = write!(text, ", {} not judged", outcome.skipped);
            }
            if outcome.metrics.is_empty() {
                let _ = write!(text, ", {} needed", percent(spec.metrics.pass_threshold));
            }
        }
        // They are told in full before the table.
        _ if !outcome.mistakes.is_empty() => {
            let _ = write!(text, "not run, {} in its steps", out::count(outcome.mistakes.len(), "mistake"));
        }
        _ => text.push_str(outcome.error.as_deref().unwrap_or(outcome.state.as_str())),
    }
    if !spec.warnings.is_empty() {
        let _ = write!(text, ", {}", out::count(spec.warnings.len(), "warning"));
    }
    for metric in &outcome.metrics {
        let word = if metric.passed { "reached" } else { "not reached" };
        let _ = write!(text, "\n  {}: {}, {} {word}", metric.name, percent(metric.share), percent(metric.threshold));
    }
    if let Some(score) = outcome.score {
        let _ = write!(text, "\n  weighted mean: {}", percent(score));
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
