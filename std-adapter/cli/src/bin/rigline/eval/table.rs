//! The results of runs, for people.

use std::time::Duration;

use rigline_eval::report::{Results, Run, Task};
use rigline_host::terminal;

use super::time;
use crate::out::{self, Style, Table, Text, print, print_text};

pub(super) fn show(results: &Results) {
    let mut table = Table::new(&["eval", "task", "result", "trials", "time", "why"]);
    for run in &results.runs {
        for case in run.cases().filter(|case| case.task.is_some_and(|task| !task.is_not_run)) {
            let Some(task) = case.task else { continue };
            table.row([
                run.label(),
                task.name.clone(),
                case.label().to_owned(),
                task.trials_text(),
                time(Duration::from_millis(task.duration_ms)),
                why(task),
            ]);
        }
    }
    if !table.is_empty() {
        print(&table.to_string());
    }
    show_measurements(results);
    for run in &results.runs {
        let style = if run.passed { Style::Good } else { Style::Bad };
        print_text(&Text::new().styled(style, &verdict(run)).plain("\n"));
    }
}

/// Why a task did not pass at once.
fn why(task: &Task) -> String {
    let error = task.error.clone().unwrap_or_default();
    let earlier = || task.earlier().find_map(|(_, attempt)| attempt.error.clone()).unwrap_or_default();
    terminal::cut(&if error.is_empty() { earlier() } else { error }, 160)
}

/// Prints the measurements, a line for each name of each task.
fn show_measurements(results: &Results) {
    let mut table = Table::new(&["task", "measurement", "value", "limits", "verdict", "over trials"]);
    for task in results.runs.iter().flat_map(|run| &run.tasks) {
        for it in &task.measurements {
            table.row([
                task.name.clone(),
                it.name.clone(),
                it.value_with_unit(),
                it.limits(),
                it.verdict.clone(),
                it.over_trials(),
            ]);
        }
    }
    if !table.is_empty() {
        print(&table.to_string());
    }
}

fn verdict(run: &Run) -> String {
    let mut text = format!("{}: {}", run.label(), run.verdict_text());
    if !run.warnings.is_empty() {
        text += &format!(", {}", out::count(run.warnings.len(), "warning"));
    }
    for metric in &run.metrics {
        let word = if metric.passed { "reached" } else { "not reached" };
        text += &format!("\n  {}: {}, {} {word}", metric.name, percent(metric.share), percent(metric.threshold));
    }
    if let Some(score) = run.score {
        text += &format!("\n  weighted mean: {}", percent(score));
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
