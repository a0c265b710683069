//! An HTML page that shows runs. It is a single file, which loads nothing and runs no script.
//!
//! Every text is escaped by `maud`. Before that, [`name`] or [`message`] removes the characters
//! that control a terminal or turn the direction of text.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::super::attach::Attachment;
use super::super::digits::Digits;
use super::super::model::{
    Logs, Mark, Measured, Past, ReportCase, Results, Run, Statistic, Task, Trial, class_of, message, name, output,
    percent, shown, time,
};
use super::super::verdict::Class;
use super::plot::{Point, plot, shares};
use super::trend::{Means, key};

/// How many plots a page has at most.
const PLOTS: usize = 100;
/// How many values a plot shows at most.
const POINTS: usize = 500;
/// How many trials of a task, and steps of a trial, are shown in full.
const TRIALS: usize = 50;
const STEPS: usize = 50;
/// How many rows the table of a run has at most.
const ROWS: usize = 5000;
/// How many tasks of a run are shown in full.
const TASKS: usize = 200;
/// The most bytes of a path that is a link: no system has longer ones.
const PATH: usize = 4096;

/// Writes the HTML page.
pub fn html(results: &Results) -> String {
    let title = match results.runs.as_slice() {
        [run] => format!("{}: {}", name(&run.eval), run.class().label()),
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
            body data-exit-code=(results.exit_code.map(|code| code.to_string()).unwrap_or_default()) {
                header {
                    h1 { bdi { (title) } }
                    p.quiet {
                        "rigline " (env!("CARGO_PKG_VERSION")) " · began " (time(results.started_at_ms))
                        " · took " (took(results.duration_ms))
                    }
                    p.counts {
                        @for class in [Class::Fail, Class::RigError, Class::Flaky, Class::Pass, Class::Skipped, Class::Cancelled] {
                            @let count = results.count(class);
                            @if count > 0 { span class={ "badge " (style(class)) } { (count) " " (class.label()) } " " }
                        }
                    }
                    (about(results))
                }
                main {
                    @if results.errors.len() + results.runs.len() > 1 { (overview(results)) }
                    @for run in &results.runs { (section(run, &mut plots)) }
                    @for (place, unusable) in results.errors.iter().enumerate() {
                        section {
                            h2 { bdi { (name(unusable.path.as_deref().unwrap_or("evals"))) } }
                            @let case = results.cases().filter(|case| case.run.is_none()).nth(place);
                            (cases(case.iter()))
                            pre.bad { (message(&unusable.error)) }
                        }
                    }
                    (signature())
                }
            }
        }
    };
    page.into_string()
}

/// The operator, the place and the version of the run.
fn about(results: &Results) -> Markup {
    let host = results.host.as_ref();
    let mut facts: Vec<(&str, &str)> = results.meta.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    if let Some(host) = host {
        facts.push(("host", &host.name));
        facts.push(("system", &host.system));
        facts.extend(host.user.as_deref().map(|user| ("user", user)));
    }
    let code = results.exit_code.map(|code| code.to_string());
    facts.extend(code.as_deref().map(|code| ("exit code", code)));
    html! {
        dl.facts { @for (key, value) in &facts { (fact(key, value)) } }
        @if let Some(folder) = &results.recording {
            p.quiet { "Recording of all that passed: " (linked(folder, folder)) }
        }
    }
}

fn fact(key: &str, value: &str) -> Markup {
    html! { div { dt { bdi { (name(key)) } } dd { bdi { (name(value)) } } } }
}

/// A path as a link with this text. Nothing but a path can come of it: what could begin another kind of address, or a script, is encoded.
fn linked(path: &str, text: &str) -> Markup {
    use std::fmt::Write as _;
    let mut address = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    let is_link = !address.is_empty() && !address.starts_with("//") && path.len() <= PATH;
    html! { @if is_link { a href=(address) { code { bdi { (name(text)) } } } } @else { code { bdi { (name(text)) } } } }
}

/// The files that a step attached.
fn attachments(of: &[Attachment]) -> Markup {
    html! {
        @for it in of.iter().take(STEPS) {
            div.attached {
                "attached "
                @match &it.path {
                    Some(path) => { (linked(path, &it.name)) }
                    None => { code { bdi { (name(&it.name)) } } }
                }
                @if let Some(bytes) = it.bytes { " " span.quiet { (bytes) " bytes" } }
                @if it.is_older { " " span.quiet { "older than the trial" } }
                @if let Some(hash) = &it.sha256 { " " span.quiet { "SHA-256 " (name(hash)) } }
                @if let Some(error) = &it.error { " " span.missing { (message(error)) } }
            }
        }
    }
}

/// A line for each eval.
fn overview(results: &Results) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr { th { "verdict" } th { "eval" } th { "tasks" } } }
                tbody {
                    @for run in results.runs.iter().take(ROWS) {
                        tr { td { (badge(run.class())) } td.text { bdi { (name(&run.label())) } } td { bdi { (name(&run.verdict_text())) } } }
                    }
                    @for unusable in results.errors.iter().take(ROWS) {
                        tr {
                            td { (badge(Class::RigError)) }
                            td.text { bdi { (name(unusable.path.as_deref().unwrap_or("evals"))) } }
                            td { bdi { (name(&unusable.error)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Results, a line each.
fn cases<'c>(cases: impl Iterator<Item = &'c ReportCase<'c>>) -> Markup {
    html! {
        div.wide {
            table.results {
                thead { tr { th { "result" } th { "task" } th.number { "trials" } th.number { "time" } th { "why" } } }
                tbody {
                    @for case in cases {
                        tr data-class=(case.class.name()) data-mark=(mark(case.mark)) {
                            td { span class={ "badge " (style_of(case)) } { (case.label()) } }
                            td.text { bdi { (name(case.name)) } }
                            td.number { @if let Some(task) = case.task { (task.trials_text()) } }
                            td.number { @if let Some(task) = case.task { (took(task.duration_ms)) } }
                            td.why { bdi { (message(case.why)) } }
                        }
                    }
                }
            }
        }
    }
}

fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Passed => "passed",
        Mark::Failed => "failed",
        Mark::Error => "error",
        Mark::Tolerated => "tolerated",
        Mark::Skipped => "skipped",
        Mark::NotRun => "not_run",
    }
}

fn style_of(case: &ReportCase<'_>) -> &'static str {
    if case.mark == Mark::Tolerated { "flaky" } else { style(case.class) }
}

/// Lines for whoever takes responsibility for the results on paper.
fn signature() -> Markup {
    html! {
        div.signature {
            div { "Name" } div { "Date" } div { "Signature" }
        }
    }
}

fn section(run: &Run, plots: &mut usize) -> Markup {
    html! {
        section data-verdict=(run.class().name()) {
            h2 { (badge(run.class())) " " bdi { (name(&run.label())) } }
            p { (message(&run.verdict_text())) }
            @if let Some(reason) = &run.reason { pre class=(if run.passed { "note" } else { "bad" }) { (message(reason)) } }
            @if !run.warnings.is_empty() {
                ul { @for warning in run.warnings.iter().take(ROWS) { li { (message(warning)) } } }
            }
            (facts(run))
            @let all: Vec<ReportCase<'_>> = run.cases().collect();
            @if !all.is_empty() { (cases(all.iter().take(ROWS))) }
            @if all.len() > ROWS { p.quiet { (all.len() - ROWS) " more results are left out." } }
            (metrics(run))
            @let tasks: Vec<&Task> = run.tasks.iter().collect();
            (measurements(&tasks, plots))
            (trend(run, plots))
            @if let Some(health) = &run.health {
                h3 { "Preflight" }
                (trial(health))
            }
            @let shown = in_order(run);
            @if !shown.is_empty() { h3 { "Tasks" } }
            @for task in shown.iter().take(TASKS) { (details(task, run.passed)) }
            @if shown.len() > TASKS { p.quiet { "The details of " (shown.len() - TASKS) " more tasks are left out." } }
            (logs(&run.logs))
        }
    }
}

/// The tasks that were run. What is not good comes first.
fn in_order(run: &Run) -> Vec<&Task> {
    let rank = |task: &&Task| match task.class() {
        Class::Fail => 0,
        Class::RigError => 1,
        Class::Flaky => 2,
        Class::Cancelled => 3,
        Class::Skipped => 4,
        Class::Pass => 5,
    };
    let mut tasks: Vec<&Task> = run.tasks.iter().filter(|task| !task.is_not_run).collect();
    tasks.sort_by_key(rank);
    tasks
}

/// The tested board, and the rig.
fn facts(run: &Run) -> Markup {
    let began = time(run.started_at_ms);
    let took = took(run.duration_ms);
    let mut facts: Vec<(&str, &str)> = Vec::new();
    if let Some(rig) = &run.rig {
        facts.push(("serial number", rig.serial_number.as_deref().unwrap_or("not known")));
        facts.extend([("rig", rig.name.as_str()), ("rig version", &rig.version), ("target", &rig.target)]);
    }
    facts.push(("run", &run.run_id));
    facts.push(("eval file", &run.path));
    facts.extend(run.version.as_deref().map(|version| ("eval version", version)));
    facts.extend([("began", began.as_str()), ("took", &took)]);
    html! {
        dl.facts { @for (key, value) in facts.iter().filter(|(_, value)| !value.is_empty()) { (fact(key, value)) } }
        @if !run.programs.is_empty() || !run.files.is_empty() {
            details {
                summary { "Programs and files, with their SHA-256 hashes" }
                div.wide {
                    table {
                        thead { tr { th { "file" } th.number { "bytes" } th { "SHA-256" } } }
                        tbody {
                            @for it in run.programs.iter().chain(&run.files).take(ROWS) {
                                tr {
                                    td.text { bdi { (name(&it.path)) } }
                                    td.number { @if let Some(bytes) = it.bytes { (bytes) } }
                                    td { code { (it.sha256.as_deref().or(it.error.as_deref()).map(name).unwrap_or_default()) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn metrics(run: &Run) -> Markup {
    if run.metrics.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Metrics" }
        div.wide {
            table {
                thead { tr { th { "result" } th { "metric" } th.number { "share" } th.number { "needed" } th.number { "weight" } } }
                tbody {
                    @for metric in run.metrics.iter().take(ROWS) {
                        tr {
                            td { (badge(if metric.passed { Class::Pass } else { Class::Fail })) }
                            td.text { bdi { (name(&metric.name)) } }
                            td.number { (percent(metric.share)) }
                            td.number { (percent(metric.threshold)) }
                            td.number { (metric.weight) }
                        }
                    }
                }
            }
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
        let found = task.measurements.iter().find(|it| key(&task.id, &it.name) == wanted);
        found.map(|it| (it.low.as_f64(), it.high.as_f64()))
    };
    run.tasks.iter().find_map(of_task).unwrap_or_default()
}

/// The measurements of all tasks: their numbers, and a plot of those with several values.
fn measurements(tasks: &[&Task], plots: &mut usize) -> Markup {
    let all: Vec<(&Task, &Statistic)> =
        tasks.iter().flat_map(|task| task.measurements.iter().map(|it| (*task, it))).collect();
    if all.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Measurements" }
        div.wide {
            table {
                thead {
                    tr {
                        th { "result" } th { "measurement" } th { "task" } th.number { "value" } th { "unit" } th { "limits" } th.number { "n" }
                        th { "over trials" }
                    }
                }
                tbody {
                    @for (task, it) in all.iter().take(ROWS) {
                        tr {
                            td { (badge(class_of(&it.verdict))) }
                            td.text { bdi { (name(&it.name)) } }
                            td.text { bdi { (name(title(task))) } }
                            td.number { @if it.decisive().is_empty() { "no value" } @else { (shown(it.decisive())) } }
                            td { (name(it.unit.as_deref().unwrap_or_default())) }
                            td.limits { (it.limits()) }
                            td.number { (it.count) }
                            td.why { (it.over_trials()) }
                        }
                    }
                }
            }
        }
        div.plots {
            @for (task, it) in &all {
                @let values: Vec<Point> = points(task, it);
                @if values.len() > 1 {
                    @let svg = plot(&values, it.low.as_f64(), it.high.as_f64(), "value");
                    @let unit = it.unit.as_deref().map(|unit| format!(" in {}", name(unit))).unwrap_or_default();
                    (figure(&format!("{}: {}{unit}", name(title(task)), name(&it.name)), svg, plots))
                }
            }
        }
        @if *plots == 0 { p.quiet { "Further plots are left out." } }
    }
}

/// The last values of a measurement.
fn points(task: &Task, of: &Statistic) -> Vec<Point> {
    let values = task.values_by_trial().filter(|(_, it)| it.name == of.name);
    let points = values.filter_map(|(_, it)| Some(Point { value: it.value.as_f64()?, is_bad: it.is_bad() }));
    let points: Vec<Point> = points.collect();
    points.get(points.len().saturating_sub(POINTS)..).unwrap_or_default().to_vec()
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

/// The details of a task. Those of one that passed are closed on a screen, and open on paper.
fn details(task: &Task, run_has_passed: bool) -> Markup {
    let is_open = task.mark(run_has_passed).is_red() || task.class() != Class::Pass;
    html! {
        details.task open[is_open] {
            summary {
                (badge(task.class())) " " bdi { (name(title(task))) } " "
                span.quiet { (task.trials_text()) " trials, " (took(task.duration_ms)) }
            }
            @if title(task) != task.id { p.quiet { "id " code { bdi { (name(&task.id)) } } } }
            @if let Some(file) = &task.file { p.quiet { "file " code { bdi { (name(file)) } } } }
            @if let Some(error) = &task.error { pre.bad { (message(error)) } }
            @for of_trial in task.trials.iter().take(TRIALS) {
                h4 {
                    "Trial " (of_trial.trial) ": " (of_trial.class().label()) ", " (took(of_trial.duration_ms))
                    @if of_trial.attempts > 1 { ", " (of_trial.attempts) " attempts" }
                }
                @for (place, attempt) in of_trial.earlier.iter().enumerate().take(STEPS) {
                    p { "Attempt " (place + 1) ": " (badge(attempt.class())) " " bdi { (message(attempt.error.as_deref().unwrap_or_default())) } }
                    (attachments(&attempt.attachments))
                }
                @if let Some(error) = of_trial.error.as_ref().filter(|error| task.error.as_ref() != Some(*error)) { pre { (message(error)) } }
                (trial(of_trial))
            }
            @if task.trials.len() > TRIALS { p.quiet { (task.trials.len() - TRIALS) " more trials are left out." } }
        }
    }
}

/// The steps and graders of a trial.
fn trial(of: &Trial) -> Markup {
    html! {
        @if !of.steps.is_empty() {
            div.wide {
                table {
                    thead { tr { th { "step" } th { "operation" } th { "result" } th.number { "time" } th { "message and outputs" } } }
                    tbody {
                        @for step in of.steps.iter().take(STEPS) {
                            tr {
                                td { bdi { (name(&step.id)) } @if step.phase != "verify" { " " span.quiet { (name(&step.phase)) } } }
                                td { bdi { (name(&step.operation)) } }
                                td.status { (class_of(&step.status).label()) }
                                td.number { (took(step.duration_ms)) }
                                td.why {
                                    @if !step.message.is_empty() { div { bdi { (message(&step.message)) } } }
                                    @for (output_name, value) in step.outputs.iter().take(STEPS) {
                                        div { code { (name(output_name)) " = " (output(value)) } }
                                    }
                                    (attachments(&step.attachments))
                                }
                            }
                        }
                    }
                }
            }
            @if of.steps.len() > STEPS { p.quiet { (of.steps.len() - STEPS) " more steps are left out." } }
        }
        @if !of.graders.is_empty() {
            div.wide {
                table {
                    thead { tr { th { "grader" } th { "result" } th.number { "value" } th { "unit" } th { "limits" } th { "message" } } }
                    tbody {
                        @for grader in of.graders.iter().take(STEPS) {
                            tr {
                                td.text {
                                    bdi { (name(&grader.name)) }
                                    @if grader.kind != grader.name { " " span.quiet { (name(&grader.kind)) } }
                                }
                                td { @if grader.status == "unsupported" { "not judged" } @else { (class_of(&grader.status).label()) } }
                                @if let Some(measured) = &grader.measurement {
                                    td.number { @if measured.value.is_empty() { "no value" } @else { (shown(&measured.value)) } }
                                    td { (name(measured.unit.as_deref().unwrap_or_default())) }
                                    td.limits { (limits(measured)) }
                                } @else { td {} td {} td {} }
                                td.why { bdi { (message(&grader.message)) } }
                            }
                        }
                    }
                }
            }
            @if of.graders.len() > STEPS { p.quiet { (of.graders.len() - STEPS) " more graders are left out." } }
        }
        @if let Some(answer) = of.output.as_ref().filter(|answer| !answer.is_empty()) { pre { (message(answer)) } }
    }
}

fn limits(of: &Measured) -> String {
    let limit = |limit: &Digits| (!limit.is_empty()).then(|| shown(limit));
    super::super::measurement::limits(limit(&of.low).as_deref(), limit(&of.high).as_deref())
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

fn took(ms: u64) -> String {
    let seconds = std::time::Duration::from_millis(ms).as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.0} min {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

const STYLE: &str = include_str!("page.css");
