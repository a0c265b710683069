//! JUnit's XML, as both of Jenkins' readers accept it: `jenkins-junit.xsd`, and `junit-10.xsd` of its xUnit plugin.
//!
//! They leave little: properties belong to suites, `<skipped>` has a text only, the children of a case have a fixed order, and there is no
//! element for an attempt that another one followed. What is about a single case is in its `<system-out>`: a line a fact, and
//! `[[PROPERTY|NAME=VALUE]]` and `[[ATTACHMENT|PATH]]`, which several readers know.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use quick_xml::writer::Writer;

use super::super::model::{Mark, Results, Run, Task, time};
use rigline_host::terminal::{self, one_line};

/// A suite of test cases: the element `<testsuite>`.
#[derive(Debug, Clone, Default)]
pub struct Suite {
    /// The name of the suite.
    pub name: String,
    /// The duration of the suite.
    pub time: Duration,
    /// The time at which the suite began, in milliseconds since 1970 (UTC). `None` if it is not
    /// known.
    pub started_ms: Option<u64>,
    /// The name of the machine that the suite ran on.
    pub host: Option<String>,
    /// Facts about all cases of the suite, as pairs of name and value.
    pub properties: Vec<(String, String)>,
    /// The cases of the suite.
    pub cases: Vec<Case>,
}

/// A test case: the element `<testcase>`.
#[derive(Debug, Clone, Default)]
pub struct Case {
    /// The name of the case.
    pub name: String,
    /// The name of the group that the case belongs to: the attribute `classname`.
    pub class_name: String,
    /// The duration of the case.
    pub time: Duration,
    /// The result of the case.
    pub status: Status,
    /// Further lines about the case: the element `<system-out>`.
    pub output: String,
}

/// The result of a test case.
#[derive(Debug, Clone, Default)]
pub enum Status {
    /// The case passed.
    #[default]
    Passed,
    /// The case was not judged. The text is the reason.
    Skipped(String),
    /// The board under test is at fault. The texts are the kind of fault and the reason.
    Failure(String, String),
    /// The rig or the eval is at fault. The texts are the kind of fault and the reason.
    Error(String, String),
}

/// Writes suites as JUnit XML. `name` is that of the whole report.
pub fn xml(name: &str, suites: &[Suite]) -> String {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    // Memory takes everything.
    let _ = write(&mut writer, name, suites);
    let mut text = String::from_utf8(writer.into_inner()).unwrap_or_default();
    text.push('\n');
    text
}

type Xml = Writer<Vec<u8>>;

fn write(writer: &mut Xml, name: &str, suites: &[Suite]) -> io::Result<()> {
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let all = || suites.iter().flat_map(|suite| &suite.cases);
    let mut root = BytesStart::new("testsuites");
    attribute(&mut root, "name", name);
    counts(&mut root, all());
    attribute(&mut root, "time", &seconds(suites.iter().map(|suite| suite.time).sum()));
    element(writer, root, |writer| suites.iter().try_for_each(|suite| write_suite(writer, suite)))
}

fn write_suite(writer: &mut Xml, suite: &Suite) -> io::Result<()> {
    let mut start = BytesStart::new("testsuite");
    attribute(&mut start, "name", &suite.name);
    counts(&mut start, suite.cases.iter());
    let skipped = suite.cases.iter().filter(|case| matches!(case.status, Status::Skipped(_))).count();
    attribute(&mut start, "skipped", &skipped.to_string());
    attribute(&mut start, "time", &seconds(suite.time));
    if let Some(ms) = suite.started_ms {
        attribute(&mut start, "timestamp", time(ms).trim_end_matches('Z'));
    }
    if let Some(host) = &suite.host {
        attribute(&mut start, "hostname", host);
    }
    element(writer, start, |writer| {
        // An empty list is not allowed.
        if !suite.properties.is_empty() {
            element(writer, BytesStart::new("properties"), |writer| {
                suite.properties.iter().try_for_each(|(name, value)| {
                    let mut property = BytesStart::new("property");
                    attribute(&mut property, "name", name);
                    attribute(&mut property, "value", value);
                    writer.write_event(Event::Empty(property))
                })
            })?;
        }
        suite.cases.iter().try_for_each(|case| write_case(writer, case))
    })
}

fn write_case(writer: &mut Xml, case: &Case) -> io::Result<()> {
    let mut start = BytesStart::new("testcase");
    attribute(&mut start, "name", &case.name);
    attribute(&mut start, "classname", &case.class_name);
    attribute(&mut start, "time", &seconds(case.time));
    if matches!(case.status, Status::Passed) && case.output.is_empty() {
        return writer.write_event(Event::Empty(start));
    }
    element(writer, start, |writer| {
        let (name, kind, why) = match &case.status {
            Status::Passed => ("", "", ""),
            Status::Skipped(why) => ("skipped", "", why.as_str()),
            Status::Failure(kind, why) => ("failure", kind.as_str(), why.as_str()),
            Status::Error(kind, why) => ("error", kind.as_str(), why.as_str()),
        };
        if !name.is_empty() {
            let mut result = BytesStart::new(name);
            if name != "skipped" {
                attribute(&mut result, "type", kind);
                // A reader makes spaces of the line ends of an attribute. The text has them.
                attribute(&mut result, "message", &one_line(why));
            }
            if why.is_empty() {
                writer.write_event(Event::Empty(result))?;
            } else {
                with_text(writer, result, why)?;
            }
        }
        if case.output.is_empty() { Ok(()) } else { with_text(writer, BytesStart::new("system-out"), &case.output) }
    })
}

fn element(writer: &mut Xml, start: BytesStart<'_>, inside: impl FnOnce(&mut Xml) -> io::Result<()>) -> io::Result<()> {
    let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
    writer.write_event(Event::Start(start))?;
    inside(writer)?;
    writer.write_event(Event::End(BytesEnd::new(name)))
}

/// An element whose text stands in it as it is, without indentation.
fn with_text(writer: &mut Xml, start: BytesStart<'_>, content: &str) -> io::Result<()> {
    element(writer, start, |writer| writer.write_event(Event::Text(BytesText::new(&text(content)))))
}

fn attribute(start: &mut BytesStart<'_>, name: &str, value: &str) {
    start.push_attribute((name, text(value).as_str()));
}

fn counts<'c>(start: &mut BytesStart<'_>, cases: impl Iterator<Item = &'c Case> + Clone) {
    let count = |is: fn(&Status) -> bool| cases.clone().filter(|case| is(&case.status)).count().to_string();
    attribute(start, "tests", &count(|_| true));
    attribute(start, "failures", &count(|status| matches!(status, Status::Failure(..))));
    attribute(start, "errors", &count(|status| matches!(status, Status::Error(..))));
}

/// Seconds with three digits behind the point: the xUnit plugin's schema allows no more.
fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

/// Replaces the characters that XML 1.0 does not allow or that control a terminal by U+FFFD.
pub fn text(text: &str) -> String {
    let is_noncharacter = |char: char| u32::from(char) & 0xFFFE == 0xFFFE;
    terminal::printable(text).replace(is_noncharacter, "\u{fffd}")
}

/// Writes the JUnit report of runs. `attachments` has the files that belong to each run, by the id
/// of the run.
pub fn junit(results: &Results, attachments: &BTreeMap<String, Vec<PathBuf>>) -> String {
    let mut suites: Vec<Suite> = results
        .runs
        .iter()
        .map(|run| {
            let attached = attachments.get(&run.run_id).map(Vec::as_slice).unwrap_or_default();
            suite(results, run, attached)
        })
        .collect();
    for unusable in &results.errors {
        let name = unusable.path.clone().unwrap_or_else(|| "evals".to_owned());
        let case = Case {
            name: "the eval can be run".to_owned(),
            class_name: name.clone(),
            status: Status::Error("eval error".to_owned(), unusable.error.clone()),
            ..Case::default()
        };
        match suites.iter_mut().find(|suite| suite.name == name) {
            // Several texts without a file.
            Some(suite) => {
                let number = suite.cases.len() + 1;
                suite.cases.push(Case { name: format!("{} ({number})", case.name), ..case });
            }
            None => suites.push(Suite { name, cases: vec![case], ..Suite::default() }),
        }
    }
    xml("rigline", &suites)
}

fn suite(results: &Results, run: &Run, attached: &[PathBuf]) -> Suite {
    let label = run.label();
    let cases = run.cases().map(|case| {
        let class = case.class.label().to_owned();
        let status = match case.mark {
            Mark::Passed => Status::Passed,
            Mark::Skipped => Status::Skipped(case.why.to_owned()),
            Mark::NotRun => Status::Skipped(join(&["not run", case.why])),
            Mark::Tolerated => Status::Skipped(join(&[case.label(), &case.task.map_or_else(String::new, why)])),
            Mark::Failed => Status::Failure(class, case.task.map_or_else(|| case.why.to_owned(), why)),
            Mark::Error => {
                let is_of_eval = case.task.is_some() && class == "failed";
                let kind = if is_of_eval { "eval error".to_owned() } else { class };
                Status::Error(kind, case.task.map_or_else(|| case.why.to_owned(), why))
            }
        };
        let attached = if matches!(case.mark, Mark::Passed) { &[][..] } else { attached };
        Case {
            name: case.task.map_or(case.name, |task| &task.id).to_owned(),
            class_name: label.clone(),
            time: Duration::from_millis(case.task.map_or(0, |task| task.duration_ms)),
            status,
            output: case.task.map(|task| output(task, attached)).unwrap_or_default(),
        }
    });
    Suite {
        cases: cases.collect(),
        time: Duration::from_millis(run.duration_ms),
        started_ms: Some(run.started_at_ms),
        host: results.host.as_ref().map(|host| host.name.clone()),
        properties: properties(results, run),
        name: label,
    }
}

/// Why a task did not pass, with the count of its trials if there are several.
fn why(task: &Task) -> String {
    let count = task.trials.len();
    let counted = (count > 1).then(|| format!("{} of {count} trials passed", task.trials_passed));
    join(&[counted.as_deref().unwrap_or_default(), task.error.as_deref().unwrap_or_default()])
}

fn join(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("; ")
}

/// Further facts of a task, a line each.
fn output(task: &Task, attached: &[PathBuf]) -> String {
    let mut lines = Vec::new();
    for (trial, attempt) in task.earlier() {
        let why = one_line(attempt.error.as_deref().unwrap_or_default());
        lines.push(format!("trial {trial}, an earlier attempt: {}: {why}", attempt.class().label()));
    }
    for statistic in &task.measurements {
        let parts = [&statistic.name, ":"].concat();
        let over = statistic.over_trials();
        let over = if over.is_empty() { over } else { format!("({over})") };
        let parts = [parts, statistic.value_with_unit(), statistic.limits(), statistic.verdict.clone(), over];
        lines.push(
            parts.iter().filter(|part| !part.is_empty()).map(|part| one_line(part)).collect::<Vec<_>>().join(" "),
        );
    }
    for statistic in &task.measurements {
        for (member, value) in statistic.members() {
            lines.push(format!("[[PROPERTY|measurement.{}.{member}={value}]]", one_line(&statistic.name)));
        }
    }
    for (trial, step, it) in task.attachments() {
        let what = format!("trial {trial}, step {}: attached {}", one_line(step), one_line(&it.name));
        match (&it.path, &it.error) {
            (Some(path), _) => {
                let older = if it.is_older { " (older than the trial)" } else { "" };
                lines.extend([format!("{what}{older}"), format!("[[ATTACHMENT|{}]]", one_line(path))]);
            }
            (None, why) => lines.push(format!("{what}: {}", one_line(why.as_deref().unwrap_or_default()))),
        }
    }
    lines.extend(attached.iter().map(|path| format!("[[ATTACHMENT|{}]]", path.display())));
    lines.join("\n")
}

/// Facts about a run: its verdict, who and where the rig is, and what was measured.
fn properties(results: &Results, run: &Run) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: &str| all.push((name.to_owned(), value.to_owned()));
    add("verdict", &run.verdict);
    if let Some(reason) = &run.reason {
        add("reason", reason);
    }
    if let Some(code) = results.exit_code {
        add("exit_code", &code.to_string());
    }
    let summary = &run.summary;
    for (name, count) in [
        ("tasks.total", summary.total),
        ("tasks.passed", summary.passed),
        ("tasks.failed", summary.failed),
        ("tasks.skipped", summary.skipped),
    ] {
        add(name, &count.to_string());
    }
    add("run_id", &run.run_id);
    add("eval_file", &run.path);
    for (name, value) in &results.meta {
        add(&format!("meta.{name}"), value);
    }
    if let Some(rig) = &run.rig {
        add("rig", &format!("{} {}", rig.name, rig.version));
        add("target", &rig.target);
        if let Some(number) = &rig.serial_number {
            add("serial_number", number);
        }
    }
    for step in run.health.iter().flat_map(|health| &health.steps) {
        for (name, value) in &step.outputs {
            add(&format!("health.{}.{name}", step.id), value.as_str().unwrap_or_default());
        }
    }
    for hashed in run.programs.iter().chain(&run.files) {
        if let Some(hash) = &hashed.sha256 {
            add(&format!("sha256.{}", hashed.path), hash);
        }
    }
    let mut tasks_of: HashMap<&str, usize> = HashMap::new();
    for statistic in run.tasks.iter().flat_map(|task| &task.measurements) {
        *tasks_of.entry(&statistic.name).or_default() += 1;
    }
    for task in &run.tasks {
        for statistic in &task.measurements {
            // The name alone, unless other tasks measure something of that name.
            let is_alone = tasks_of.get(statistic.name.as_str()).is_none_or(|count| *count == 1);
            let of_task = if is_alone { String::new() } else { format!("{}.", task.id) };
            for (member, value) in statistic.members() {
                add(&format!("measurement.{of_task}{}.{member}", statistic.name), &value);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_hold_only_what_xml_1_0_can_hold() {
        assert_eq!(text("a\tb\nc é \u{1f600} <&>"), "a\tb\nc é \u{1f600} <&>");
        for char in [
            "\u{0}",
            "\u{b}",
            "\u{1b}",
            "\u{7f}",
            "\u{85}",
            "\u{9b}",
            "\u{202e}",
            "\u{2066}",
            "\u{fffe}",
            "\u{ffff}",
            "\u{1ffff}",
        ] {
            assert_eq!(text(char), "\u{fffd}");
        }
    }
}
