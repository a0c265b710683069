//! The report in GitHub Actions: a summary of the step, and annotations.

use std::fmt::Write as _;

use super::super::model::{Mark, ReportCase, Results, Task, message, name};
use super::super::verdict::Class;
use rigline_host::terminal::one_line;

/// The limit on the size of a summary. GitHub refuses more than 1 MiB for all summaries of a step.
const SUMMARY: usize = 900 << 10;
/// GitHub shows 10 annotations of each kind a step.
const ANNOTATIONS: usize = 10;

/// Writes the summary of a step of GitHub Actions, as Markdown of at most `room` bytes. Results
/// that do not fit are left out, and counted.
pub fn summary(results: &Results, room: usize) -> String {
    let room = room.min(SUMMARY);
    let mut text = String::from("## rigline\n\n");
    let classes = [Class::Fail, Class::RigError, Class::Flaky, Class::Pass, Class::Skipped, Class::Cancelled];
    let counts = classes.map(|class| (class, results.count(class)));
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> =
        counts.map(|(class, count)| format!("{} {count} {}", sign(*class), class.label())).collect();
    let _ = writeln!(text, "{}\n", if counts.is_empty() { "no tasks".to_owned() } else { counts.join(" · ") });
    // The verdict of each eval, as far as there is room.
    for run in &results.runs {
        let line =
            format!("- {} {}: {}\n", sign(run.class()), plain(&name(&run.label())), plain(&name(&run.verdict_text())));
        if text.len() + line.len() < room / 3 {
            text += &line;
        }
    }
    if let Some(code) = results.exit_code {
        let _ = writeln!(text, "- exit code {code}");
    }
    text.push('\n');
    text.push_str("| | eval | task | trials | time | measurements | why |\n|---|---|---|---|---:|---|---|\n");
    // What is not good comes first, as the rest may not fit.
    let mut left_out = 0_usize;
    for class in classes {
        for case in results.cases().filter(|case| case.class == class) {
            let measured = case.task.iter().flat_map(|task| &task.measurements).take(8);
            let measured = measured.map(|it| {
                let parts = [name(&it.name), it.value_with_unit(), it.limits(), it.over_trials()];
                plain(&parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" "))
            });
            let measured: Vec<String> = measured.collect();
            let time = case.task.map(|task| format!("{} ms", task.duration_ms)).unwrap_or_default();
            let trials = case.task.map(Task::trials_text).unwrap_or_default();
            let row = format!(
                "| {} {} | {} | {} | {trials} | {time} | {} | {} |\n",
                sign(class),
                case.label(),
                plain(&name(&suite(&case))),
                plain(&name(case.name)),
                measured.join("<br>"),
                plain(&name(case.why)),
            );
            if text.len() + row.len() + 100 > room {
                left_out += 1;
            } else {
                text += &row;
            }
        }
    }
    if left_out > 0 {
        let _ = writeln!(text, "\n{left_out} more results do not fit here.");
    }
    text
}

fn suite(case: &ReportCase<'_>) -> String {
    case.run.map_or_else(|| case.suite.to_owned(), super::Run::label)
}

/// Writes workflow commands that mark results in GitHub Actions, one a line. Failures and errors
/// that fail the run are `::error`. Tolerated failures and flaky tasks are `::warning`.
pub fn annotations(results: &Results) -> String {
    let mut text = String::new();
    let kind = |case: &ReportCase<'_>| match case.mark {
        Mark::Error => Some(("error", 0)),
        Mark::Failed => Some(("error", 1)),
        Mark::Tolerated => Some(("warning", 2)),
        _ if case.class == Class::Flaky => Some(("warning", 2)),
        _ => None,
    };
    for rank in 0..3 {
        let of_rank = results.cases().filter_map(|case| Some((kind(&case)?, case))).filter(|((_, it), _)| *it == rank);
        for ((command, _), case) in of_rank.take(ANNOTATIONS) {
            let title = format!("{}: {}: {}", case.label(), name(&suite(&case)), name(case.name));
            let file = case.task.and_then(|task| task.file.as_deref()).or(case.run.map(|run| run.path.as_str()));
            let file = file.map(|file| format!("file={},", property(&one_line(file)))).unwrap_or_default();
            let why = if case.why.is_empty() { case.label() } else { case.why };
            let _ = writeln!(text, "::{command} {file}title={}::{}", property(&title), data(&message(why)));
        }
    }
    text
}

fn sign(class: Class) -> &'static str {
    match class {
        Class::Pass => "✅",
        Class::Fail => "❌",
        Class::RigError => "🔌",
        Class::Flaky => "⚠️",
        Class::Skipped | Class::Cancelled => "⏭️",
    }
}

/// A text that is neither Markdown nor HTML.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_ascii_punctuation() && !matches!(char, '.' | ',' | '%' | '/' | '(' | ')') {
            let _ = write!(plain, "&#{};", u32::from(char));
        } else if char.is_ascii_control() {
            plain.push(' ');
        } else {
            plain.push(char);
        }
    }
    plain
}

/// The text of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of one of its properties.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
