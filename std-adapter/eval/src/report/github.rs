//! What GitHub Actions shows of a run: a summary of the step, and annotations.

use std::fmt::Write as _;

use super::super::verdict::Class;
use super::model::{Results, Task, message, name, shown};
use rigline_host::terminal::one_line;

/// The limit on the size of a summary. GitHub refuses more than 1 MiB for all summaries of a step.
const SUMMARY: usize = 900 << 10;
/// GitHub shows 10 annotations of each kind a step.
const ANNOTATIONS: usize = 10;

/// The summary of a step, as Markdown of at most so many bytes.
pub fn summary(results: &Results, room: usize) -> String {
    let room = room.min(SUMMARY);
    let mut text = String::from("## rigline\n\n");
    let classes = [Class::Fail, Class::RigError, Class::Flaky, Class::Pass, Class::Skipped, Class::Cancelled];
    let counts = classes.map(|class| (class, results.count(class)));
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> =
        counts.map(|(class, count)| format!("{} {count} {}", sign(*class), class.label())).collect();
    let _ = writeln!(text, "{}\n", if counts.is_empty() { "no tasks".to_owned() } else { counts.join(" · ") });
    text.push_str("| | eval | task | time | measurements | why |\n|---|---|---|---:|---|---|\n");
    // What is not good comes first, as the rest may not fit.
    let mut left_out = 0_usize;
    for class in classes {
        for case in results.cases().filter(|case| case.class == class) {
            let measured = case.task.into_iter().flat_map(Task::measurements).take(8);
            let measured: Vec<String> = measured
                .map(|(_, it)| {
                    let limits = if it.low.is_null() && it.high.is_null() {
                        String::new()
                    } else {
                        format!(" [{} … {}]", shown(&it.low), shown(&it.high))
                    };
                    let unit = name(it.unit.as_deref().unwrap_or_default());
                    plain(&format!("{} {} {unit}{limits}", name(&it.name), shown(&it.value)))
                })
                .collect();
            let time = case.task.map(|task| format!("{} ms", task.duration_ms)).unwrap_or_default();
            let row = format!(
                "| {} {} | {} | {} | {time} | {} | {} |\n",
                sign(class),
                class.label(),
                plain(&name(case.suite)),
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

/// Workflow commands that mark errors and failures, one a line.
pub fn annotations(results: &Results) -> String {
    let mut text = String::new();
    for (class, command) in [(Class::RigError, "error"), (Class::Fail, "error"), (Class::Flaky, "warning")] {
        for case in results.cases().filter(|case| case.class == class).take(ANNOTATIONS) {
            let title = format!("{}: {}: {}", class.label(), name(case.suite), name(case.name));
            let file = case.task.and_then(|task| task.file.as_deref()).or(case.run.map(|run| run.path.as_str()));
            let file = file.map(|file| format!("file={},", property(&one_line(file)))).unwrap_or_default();
            let why = if case.why.is_empty() { class.label() } else { case.why };
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
