//! A page that shows runs: one file, which loads nothing and runs nothing.
//!
//! Every text is escaped by `maud`, and has passed [`name`] or [`message`], which take away what turns text around or drives terminals.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::super::verdict::Class;
use super::model::{Logs, Measured, Past, Results, Run, Task, class_of, message, name, number, shown, time};
use super::plot::{Point, plot, shares};
use super::trend::{Means, key};
use rigline_host::number::decimal;

/// How many plots a page has at most.
const PLOTS: usize = 100;
/// How many values a plot shows at most.
const POINTS: usize = 500;
/// How many trials of a task, and steps of a trial, are shown in full.
const TRIALS: usize = 50;
const STEPS: usize = 50;
/// How many rows the table of a run has at most.
const ROWS: usize = 5000;

/// The page.
pub fn html(results: &Results) -> String {
    let title = match results.runs.as_slice() {
        [run] => format!("{}: {}", name(&run.eval), verdict(run)),
        runs => format!("{} evals", runs.len()),
    };
    let mut plots = PLOTS;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Whatever gets into the page, nothing is loaded or run.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { bdi { (title) } }
                    p.quiet {
                        "rigline " (env!("CARGO_PKG_VERSION")) " · began " (time(results.started_ms))
                        " · took " (took(results.ended_ms.saturating_sub(results.started_ms)))
                    }
                    p.counts {
                        @for class in [Class::Fail, Class::RigError, Class::Flaky, Class::Pass, Class::Skipped, Class::Cancelled] {
                            @let count = results.count(class);
                            @if count > 0 { span class={ "badge " (style(class)) } { (count) " " (class.label()) } " " }
                        }
                    }
                }
                main {
                    @for unusable in &results.errors {
                        section {
                            h2 { bdi { (name(unusable.path.as_deref().unwrap_or("evals"))) } }
                            p { (badge(Class::RigError)) " It could not be run." }
                            pre { (message(&unusable.error)) }
                        }
                    }
                    @for run in &results.runs { (section(run, &mut plots)) }
                }
            }
        }
    };
    page.into_string()
}

fn section(run: &Run, plots: &mut usize) -> Markup {
    // What is not good comes first.
    let rank = |task: &&Task| match task.class() {
        Class::Fail => 0,
        Class::RigError => 1,
        Class::Flaky => 2,
        Class::Cancelled => 3,
        Class::Skipped => 4,
        Class::Pass => 5,
    };
    let mut tasks: Vec<&Task> = run.tasks.iter().collect();
    tasks.sort_by_key(rank);
    html! {
        section {
            h2 { bdi { (name(&run.eval)) } }
            p.quiet { "run " code { (name(&run.run_id)) } " · " code { (name(&run.path)) } " · " (took(run.duration_ms)) }
            @if let Some(rig) = &run.rig {
                p.quiet {
                    "rig " bdi { (name(&rig.name)) } " " (name(&rig.version)) " at " code { (name(&rig.target)) }
                    @if let Some(number) = &rig.serial_number { ", serial number " code { (name(number)) } }
                }
            }
            p { (verdict(run)) }
            @if let Some(error) = &run.error { pre.bad { (message(error)) } }
            @if !run.warnings.is_empty() {
                ul { @for warning in run.warnings.iter().take(ROWS) { li { (message(warning)) } } }
            }
            @if !tasks.is_empty() {
                div.wide {
                    table {
                        thead { tr { th { "result" } th { "task" } th.number { "trials" } th.number { "time" } th { "why" } } }
                        tbody {
                            @for task in tasks.iter().take(ROWS) {
                                tr {
                                    td { (badge(task.class())) }
                                    td.text { bdi { (name(title(task))) } }
                                    td.number { (passed(task)) "/" (task.trials.len()) }
                                    td.number { (took(task.duration_ms)) }
                                    td.why { bdi { (name(task.error.as_deref().unwrap_or_default())) } }
                                }
                            }
                        }
                    }
                }
                @if tasks.len() > ROWS { p.quiet { (tasks.len() - ROWS) " more tasks are left out." } }
            }
            (trend(run, plots))
            (measurements(&tasks, plots))
            @for task in tasks.iter().filter(|task| !matches!(task.class(), Class::Pass)).take(TRIALS) { (details(task)) }
            (logs(&run.logs))
        }
    }
}

/// How runs of this eval have gone.
fn trend(run: &Run, plots: &mut usize) -> Markup {
    if run.earlier.is_empty() {
        return html! {};
    }
    let total = u32::try_from(run.tasks.len()).unwrap_or(u32::MAX);
    let good = run.tasks.iter().filter(|task| task.class() == Class::Pass).count();
    let mut means = Means::default();
    run.tasks.iter().flat_map(|task| &task.trials).for_each(|trial| means.trial(trial));
    let now = Past {
        id: run.run_id.clone(),
        started_ms: 0,
        passed: u32::try_from(good).unwrap_or(u32::MAX),
        total: total.max(1),
        means: means.finish(),
    };
    let all: Vec<&Past> = run.earlier.iter().chain([&now]).collect();
    let share = |past: &&Past| {
        let value = 100.0 * f64::from(past.passed) / f64::from(past.total.max(1));
        Point { value, is_bad: past.passed < past.total }
    };
    let passed: Vec<Point> = all.iter().map(share).collect();
    let first = run.earlier.first().map_or(0, |past| past.started_ms);
    html! {
        h3 { "Trend" }
        p.quiet { "The last " (all.len()) " runs of this eval, since " (time(first)) ". The last one is this run." }
        div.plots {
            (figure("tasks passed, in percent", shares(&passed, "run"), plots))
            @for (name_of_it, _) in &now.means {
                @let points: Vec<Point> = all.iter().filter_map(|past| mean(past, name_of_it)).map(|value| Point { value, is_bad: false }).collect();
                @if points.len() > 1 {
                    @let (low, high) = limits_of(run, name_of_it);
                    (figure(&format!("{}, mean of each run", name(name_of_it)), plot(&points, low, high, "run"), plots))
                }
        }
        }
    }
}

fn mean(past: &Past, name: &str) -> Option<f64> {
    past.means.iter().find(|(found, _)| found == name).map(|(_, value)| *value)
}

fn limits_of(run: &Run, wanted: &str) -> (Option<f64>, Option<f64>) {
    let of_task = |task: &Task| {
        let mut all = task.measurements().map(|(_, it)| it);
        all.find(|it| key(&task.id, &it.name) == wanted).map(|it| (number(&it.low), number(&it.high)))
    };
    run.tasks.iter().find_map(of_task).unwrap_or_default()
}

/// The measurements of all tasks: their numbers, and a plot of those with several values.
fn measurements(tasks: &[&Task], plots: &mut usize) -> Markup {
    let mut all: Vec<(&Task, &str, Vec<&Measured>)> = Vec::new();
    for task in tasks {
        let mut of_task: BTreeMap<&str, Vec<&Measured>> = BTreeMap::new();
        for (_, measured) in task.measurements() {
            of_task.entry(&measured.name).or_default().push(measured);
        }
        all.extend(of_task.into_iter().map(|(name, values)| (*task, name, values)));
    }
    if all.is_empty() {
        return html! {};
    }
    let limit = |value: &serde_json::Value| if value.is_null() { "…".to_owned() } else { shown(value) };
    html! {
        h3 { "Measurements" }
        div.wide {
            table {
                thead {
                    tr {
                        th { "result" } th { "measurement" } th { "task" } th.number { "n" } th.number { "least" } th.number { "mean" }
                        th.number { "most" } th { "unit" } th { "limits" }
                    }
                }
                tbody {
                    @for (task, name_of_it, values) in all.iter().take(ROWS) {
                        @let numbers: Vec<f64> = values.iter().filter_map(|it| number(&it.value)).collect();
                        @let last = values.last();
                        tr {
                            td { (badge(if values.iter().any(|it| it.is_bad()) { Class::Fail } else { Class::Pass })) }
                            td.text { bdi { (name(name_of_it)) } }
                            td.text { bdi { (name(title(task))) } }
                            td.number { (values.len()) }
                            @if numbers.is_empty() {
                                td.number colspan="3" { (last.map(|it| shown(&it.value)).unwrap_or_default()) }
                            } @else {
                                @let (least, most) = extremes(values);
                                td.number { (least) }
                                td.number { (short(average(&numbers))) }
                                td.number { (most) }
                            }
                            td { (name(last.and_then(|it| it.unit.as_deref()).unwrap_or_default())) }
                            td { "[" (last.map(|it| limit(&it.low)).unwrap_or_default()) " … " (last.map(|it| limit(&it.high)).unwrap_or_default()) "]" }
                        }
                    }
                }
            }
        }
        div.plots {
            @for (task, name_of_it, values) in all.iter().filter(|(_, _, values)| values.len() > 1) {
                @let points: Vec<Point> = values.iter().filter_map(|it| Some(Point { value: number(&it.value)?, is_bad: it.is_bad() })).collect();
                @let points = points.get(points.len().saturating_sub(POINTS)..).unwrap_or_default();
                @let last = values.last();
                @let svg = plot(points, last.and_then(|it| number(&it.low)), last.and_then(|it| number(&it.high)), "value");
                @let unit = last.and_then(|it| it.unit.as_deref()).map(|unit| format!(" in {}", name(unit))).unwrap_or_default();
                (figure(&format!("{}: {}{unit}", name(title(task)), name(name_of_it)), svg, plots))
            }
        }
        @if *plots == 0 { p.quiet { "Further plots are left out." } }
    }
}

/// A plot; `caption` has been made safe.
fn figure(caption: &str, svg: Option<String>, plots: &mut usize) -> Markup {
    let Some(svg) = svg.filter(|_| *plots > 0) else { return html! {} };
    *plots -= 1;
    html! {
        figure role="img" aria-label=(caption) {
            figcaption { bdi { (caption) } }
            // It holds numbers only.
            (PreEscaped(svg))
        }
    }
}

/// The details of a task that did not pass.
fn details(task: &Task) -> Markup {
    html! {
        details open {
            summary { (badge(task.class())) " " bdi { (name(title(task))) } }
            @if let Some(error) = &task.error { pre.bad { (message(error)) } }
            @for trial in task.trials.iter().take(TRIALS) {
                h4 { "Trial " (trial.trial) ": " (trial.class().label()) ", " (took(trial.duration_ms)) }
                @if let Some(error) = trial.error.as_ref().filter(|error| task.error.as_ref() != Some(*error)) { pre { (message(error)) } }
                div.wide {
                    table {
                        thead { tr { th { "step" } th { "operation" } th { "result" } th.number { "time" } th { "outputs" } } }
                        tbody {
                            @for step in trial.steps.iter().take(STEPS) {
                                tr {
                                    td { bdi { (name(&step.id)) } }
                                    td { bdi { (name(&step.operation)) } }
                                    td { (class_of(&step.status).label()) }
                                    td.number { (took(step.duration_ms)) }
                                    td.why {
                                        @if !step.message.is_empty() { div { (message(&step.message)) } }
                                        @for (output, value) in step.outputs.iter().take(STEPS) {
                                            div { code { (name(output)) " = " (shown(value)) } }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn logs(logs: &Logs) -> Markup {
    if logs.lines.is_empty() {
        return html! {};
    }
    html! {
        details {
            summary { "Logs (" (logs.lines.len()) " lines" @if logs.dropped > 0 { ", after " (logs.dropped) " that were not kept" } ")" }
            pre.log {
                @for (ms, level, text) in &logs.lines {
                    span class=(level) { (format!("{:>9.3} s {level:5} ", std::time::Duration::from_millis(*ms).as_secs_f64())) (text) "\n" }
                }
            }
        }
    }
}

fn title(task: &Task) -> &str {
    if task.name.is_empty() { &task.id } else { &task.name }
}

fn passed(task: &Task) -> usize {
    task.trials.iter().filter(|trial| trial.class() == Class::Pass).count()
}

fn verdict(run: &Run) -> &'static str {
    match run.status.as_str() {
        "completed" if run.passed => "passed",
        "completed" => "not passed",
        "cancelled" => "cancelled",
        _ => "could not be done",
    }
}

fn badge(class: Class) -> Markup {
    html! { span class={ "badge " (style(class)) } { (class.label()) } }
}

fn style(class: Class) -> &'static str {
    match class {
        Class::Pass => "good",
        Class::Fail => "bad",
        Class::RigError => "rig",
        Class::Flaky => "flaky",
        Class::Skipped | Class::Cancelled => "none",
    }
}

fn average(numbers: &[f64]) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = numbers.len().max(1) as f64;
    numbers.iter().sum::<f64>() / count
}

/// The least and the greatest value, each with its digits: rounded, one beyond a limit would be shown as within it.
fn extremes(values: &[&Measured]) -> (String, String) {
    let mut sorted: Vec<_> =
        values.iter().filter_map(|it| Some((decimal(&shown(&it.value))?, shown(&it.value)))).collect();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    let text = |found: Option<&(_, String)>| found.map(|(_, text)| text.clone()).unwrap_or_default();
    (text(sorted.first()), text(sorted.last()))
}

/// A number, rounded to a readable number of digits.
fn short(number: f64) -> String {
    let text = format!("{number:.6}");
    if number != 0.0 && !(1e-3..1e9).contains(&number.abs()) {
        return format!("{number:.4e}");
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn took(ms: u64) -> String {
    let seconds = std::time::Duration::from_millis(ms).as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.0} min {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

const STYLE: &str = include_str!("page.css");
