//! Every report says the same of a run: verdicts, counts, reasons and the exit code, for each of the outcomes in `tests/outcomes`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quick_xml::events::{BytesStart, Event};
use regex::Regex;
use serde_json::Value;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// The folder with the outcomes.
fn outcomes() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|folder| folder.join("tests/outcomes")).find(|folder| folder.is_dir()).unwrap()
}

/// How a report shows a case, in the words of `expected.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    /// Its name in the report.
    name: String,
    mark: &'static str,
    why: String,
}

/// The output of a command.
struct Written {
    folder: tempfile::TempDir,
    code: i32,
    table: String,
    errors: String,
}

impl Written {
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }
}

/// Ends a command by a signal when it waits in its step.
fn interrupt(child: &Child, runs: &Path, signal: &str) {
    let started = Instant::now();
    // The trial before the one that waits is over, or there is none, and the eval has begun.
    while started.elapsed() < Duration::from_secs(30) {
        let begun = fs::read_dir(runs).into_iter().flatten().flatten().any(|file| {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            let wants_a_trial = fs::read_to_string(runs.with_file_name("wants-a-trial")).is_ok();
            text.starts_with("{\"run\"") && (!wants_a_trial || text.contains("{\"task\""))
        });
        if begun {
            std::thread::sleep(Duration::from_millis(500));
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let signal = if signal == "SIGINT" { rustix::process::Signal::INT } else { rustix::process::Signal::TERM };
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, signal).unwrap();
}

fn run(outcome: &Path, expected: &Value) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    if expected["cases"].as_array().unwrap().iter().any(|case| case["mark"] == "passed" || case["mark"] == "failed") {
        fs::write(folder.path().join("wants-a-trial"), "").unwrap();
    }
    let at = |name: &str| folder.path().join(name);
    let child = Command::new(RIGLINE)
        .args(["eval", "run", "--quiet", "--meta", "operator=Ada", "--runs"])
        .arg(&runs)
        .arg("--json-file")
        .arg(at("r.json"))
        .arg("--junit")
        .arg(at("r.xml"))
        .arg("--ctrf")
        .arg(at("r.ctrf.json"))
        .arg("--tap")
        .arg(at("r.tap"))
        .arg("--html")
        .arg(at("r.html"))
        .arg("--record")
        .arg(at("record"))
        .arg(outcome)
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", at("summary.md"))
        .env("COLUMNS", "400")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(signal) = expected["signal"].as_str() {
        interrupt(&child, &runs, signal);
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().unwrap();
    Written { code, table: text(&output.stdout), errors: text(&output.stderr), folder }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = element.try_get_attribute(name).unwrap()?;
    Some(quick_xml::escape::unescape(std::str::from_utf8(&found.value).unwrap()).unwrap().into_owned())
}

/// The cases of a JUnit report, and the properties of its suites. The order of elements and the attributes are those that both of Jenkins'
/// schemas allow: `.ci/reports.sh` validates against the schemas themselves.
fn junit(text: &str) -> (Vec<Shown>, Vec<BTreeMap<String, String>>) {
    let mut reader = quick_xml::Reader::from_str(text);
    let (mut cases, mut suites): (Vec<Shown>, Vec<BTreeMap<String, String>>) = Default::default();
    let (mut within, mut children, mut text_of, mut message): (Vec<String>, Vec<String>, String, Option<String>) =
        Default::default();
    let mut counts = [0_usize; 4];
    let mut ids = std::collections::HashSet::new();
    loop {
        let event = reader.read_event().unwrap();
        let is_empty = matches!(event, Event::Empty(_));
        match event {
            Event::Start(element) | Event::Empty(element) => {
                let name = String::from_utf8(element.name().as_ref().to_vec()).unwrap();
                let attributes: Vec<String> = element
                    .attributes()
                    .map(|it| String::from_utf8(it.unwrap().key.as_ref().to_vec()).unwrap())
                    .collect();
                let (parent, known): (&str, &[&str]) = match name.as_str() {
                    "testsuites" => ("", &["name", "tests", "failures", "errors", "time"]),
                    "testsuite" => (
                        "testsuites",
                        &["name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"],
                    ),
                    "properties" => ("testsuite", &[]),
                    "property" => ("properties", &["name", "value"]),
                    "testcase" => ("testsuite", &["name", "classname", "time"]),
                    "skipped" | "system-out" => ("testcase", &[]),
                    "failure" | "error" => ("testcase", &["type", "message"]),
                    other => panic!("{other} in {text}"),
                };
                assert_eq!(within.last().map_or("", String::as_str), parent, "{text}");
                assert!(attributes.iter().all(|it| known.contains(&it.as_str())), "{name}: {attributes:?}");
                if ["testsuites", "testsuite"].contains(&name.as_str()) {
                    let time = attribute(&element, "time").unwrap();
                    let digits = time.split_once('.').map(|(_, fraction)| fraction.len());
                    assert!(time.parse::<f64>().is_ok() && digits == Some(3), "{time}");
                    let count = |name| attribute(&element, name).unwrap().parse::<usize>().unwrap();
                    if name == "testsuites" {
                        counts = [count("tests"), count("failures"), count("errors"), 0];
                    } else {
                        suites.push(BTreeMap::new());
                        counts[3] += count("skipped");
                    }
                }
                match name.as_str() {
                    "property" => {
                        let of = |name| attribute(&element, name).unwrap();
                        let earlier = suites.last_mut().unwrap().insert(of("name"), of("value"));
                        assert_eq!(earlier, None, "{} twice", of("name"));
                    }
                    "testcase" => {
                        let name = attribute(&element, "name").unwrap();
                        let id = format!("{}/{name}", attribute(&element, "classname").unwrap());
                        assert!(ids.insert(id.clone()), "two cases are {id}");
                        cases.push(Shown { name, mark: "passed", why: String::new() });
                        children.clear();
                    }
                    "skipped" | "failure" | "error" => message = attribute(&element, "message"),
                    _ => {}
                }
                if parent == "testcase" {
                    children.push(name.clone());
                    let rank =
                        |name: &str| ["skipped", "error", "failure", "system-out"].iter().position(|it| *it == name);
                    assert!(children.is_sorted_by_key(|name| rank(name)), "{children:?}");
                }
                text_of.clear();
                if !is_empty {
                    within.push(name);
                }
            }
            Event::Text(content) => {
                text_of += &content.decode().unwrap();
            }
            Event::GeneralRef(reference) => {
                text_of += &quick_xml::escape::unescape(&format!("&{};", reference.decode().unwrap())).unwrap();
            }
            Event::End(_) => {
                let name = within.pop().unwrap();
                let mark = match name.as_str() {
                    "skipped" => "skipped",
                    "failure" => "failed",
                    "error" => "error",
                    _ => continue,
                };
                let case = cases.last_mut().unwrap();
                (case.mark, case.why) = (mark, text_of.clone());
                if mark != "skipped" {
                    // Readers that show only one of them show the reason.
                    assert_eq!(message.as_deref().unwrap(), text_of.replace('\n', " "), "message and text");
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let count = |mark: &str| cases.iter().filter(|case| case.mark == mark).count();
    assert_eq!(counts, [cases.len(), count("failed"), count("error"), count("skipped")], "{text}");
    (cases, suites)
}

fn tap(text: &str) -> Vec<Shown> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("TAP version 14"));
    let plan: usize = lines.next().unwrap().strip_prefix("1..").unwrap().parse().unwrap();
    let point = Regex::new(r"^(not ok|ok) (\d+) - (.*?)( # (SKIP|TODO) ?(.*))?$").unwrap();
    let mut cases: Vec<Shown> = Vec::new();
    let mut is_in_block = false;
    for line in lines {
        if let Some(message) = line.strip_prefix("  message: ") {
            let message: String = serde_json::from_str(message).unwrap();
            cases.last_mut().unwrap().why = message;
        }
        match line {
            "  ---" => is_in_block = true,
            "  ..." => is_in_block = false,
            _ if is_in_block => assert!(line.starts_with("  ")),
            _ if line.starts_with('#') => {}
            _ => {
                let found = point.captures(line).unwrap_or_else(|| panic!("{line}"));
                assert_eq!(found[2].parse::<usize>().unwrap(), cases.len() + 1);
                let mark = match (&found[1], found.get(5).map(|directive| directive.as_str())) {
                    ("ok", None) => "passed",
                    ("ok", Some("SKIP")) => "skipped",
                    ("not ok", Some("TODO")) => "tolerated",
                    ("not ok", None) => "failed",
                    other => panic!("{other:?}"),
                };
                cases.push(Shown { name: found[3].to_owned(), mark, why: String::new() });
            }
        }
    }
    assert_eq!(plan, cases.len());
    cases
}

fn ctrf(report: &Value) -> Vec<Shown> {
    let tests = report["results"]["tests"].as_array().unwrap();
    let summary = &report["results"]["summary"];
    let count = |status: &str| tests.iter().filter(|test| test["status"] == status).count();
    for status in ["passed", "failed", "skipped", "pending", "other"] {
        assert_eq!(summary[status], count(status), "{status}");
    }
    let number = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!(number("stop") - number("start"), number("duration"));
    let ids: std::collections::HashSet<_> = tests.iter().map(|test| test["testId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), tests.len(), "ids are unique");
    let case = |test: &Value| Shown {
        name: test["name"].as_str().unwrap().to_owned(),
        mark: match test["status"].as_str().unwrap() {
            "passed" => "passed",
            "failed" => "failed",
            "skipped" => "skipped",
            "pending" => "not_run",
            "other" => "tolerated",
            other => panic!("{other}"),
        },
        why: test["message"].as_str().unwrap_or_default().to_owned(),
    };
    tests.iter().map(case).collect()
}

fn unescaped(html: &str) -> String {
    html.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The rows of the page's tables of results.
fn html(page: &str) -> Vec<(String, Shown)> {
    let row = Regex::new(r#"(?s)<tr data-class="(\w+)" data-mark="(\w+)">(.*?)</tr>"#).unwrap();
    let tag = Regex::new("<[^>]*>").unwrap();
    let rows = row.captures_iter(page).map(|row| {
        let mark = ["passed", "failed", "error", "tolerated", "skipped", "not_run"];
        let mark = mark.into_iter().find(|mark| *mark == &row[2]).unwrap();
        let text = unescaped(&tag.replace_all(&row[3], " "));
        (row[1].to_owned(), Shown { name: text.clone(), mark, why: text })
    });
    rows.collect()
}

/// Whether a report without kinds of its own shows a mark as this one.
fn fits(mark: &str, shown: &str, of: &str) -> bool {
    let plain = match (of, mark) {
        ("junit", "tolerated" | "not_run") | ("tap", "not_run") => "skipped",
        ("tap" | "ctrf", "error") => "failed",
        (_, mark) => mark,
    };
    plain == shown
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap()).collect()
}

fn check(name: &str, expected: &Value, written: &Written) {
    let code = expected["exit_code"].as_i64().unwrap();
    assert_eq!(i64::from(written.code), code, "{name}: {}{}", written.table, written.errors);
    let (json, report, page) = (written.json("r.json"), written.json("r.ctrf.json"), written.text("r.html"));
    let (tap_text, summary) = (written.text("r.tap"), written.text("summary.md"));
    let (junit_cases, suites) = junit(&written.text("r.xml"));
    let cases = expected["cases"].as_array().unwrap();

    // The exit code can be read in every report, and a report is red if and only if it is not 0.
    assert_eq!((&json["exit_code"], &json["success"]), (&code.into(), &(code == 0).into()), "{name}");
    assert_eq!(report["results"]["extra"]["exitCode"], code, "{name}");
    assert!(tap_text.contains(&format!("# exit code: {code}\n")), "{name}: {tap_text}");
    assert!(summary.contains(&format!("exit code {code}\n")), "{name}: {summary}");
    assert!(page.contains(&format!("data-exit-code=\"{code}\"")), "{name}");
    let is_red = code != 0;
    let junit_is_red = junit_cases.iter().any(|case| case.mark == "failed" || case.mark == "error");
    assert_eq!(junit_is_red, is_red, "{name}: {}", written.text("r.xml"));
    assert_eq!(report["results"]["summary"]["failed"].as_u64().unwrap() > 0, is_red, "{name}: {report:#}");
    let tap_cases = tap(&tap_text);
    assert_eq!(tap_cases.iter().any(|case| case.mark == "failed"), is_red, "{name}: {tap_text}");
    assert_eq!(written.errors.contains("::error "), is_red, "{name}: {}", written.errors);

    // Each run's verdict, counts and reason.
    let runs = expected["runs"].as_array().unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), runs.len(), "{name}: {json:#}");
    for (place, run) in runs.iter().enumerate() {
        let (found, extra) = (&json["runs"][place], &report["results"]["extra"]["runs"][place]);
        let properties = &suites[place];
        let verdict = run["verdict"].as_str().unwrap();
        for (member, text) in [("verdict", verdict), ("passed", "")] {
            assert_eq!(found[member], run[member], "{name}, {member}: {found:#}");
            assert_eq!(extra[member], run[member], "{name}, {member}: {extra:#}");
            assert!(text.is_empty() || properties[member] == text, "{name}: {properties:?}");
        }
        assert!(page.contains(&format!("data-verdict=\"{verdict}\"")), "{name}");
        for (count, value) in run["summary"].as_object().unwrap() {
            assert_eq!(found["summary"][count], *value, "{name}, {count}: {found:#}");
            assert_eq!(extra["summary"][count], *value, "{name}, {count}");
            assert_eq!(properties[&format!("tasks.{count}")], value.to_string(), "{name}, {count}");
        }
        let reason = found["reason"].as_str().unwrap_or_default();
        assert_eq!(reason, extra["reason"].as_str().unwrap_or_default(), "{name}");
        assert_eq!(reason, properties.get("reason").map_or("", String::as_str), "{name}");
        assert_eq!(
            reason.is_empty(),
            verdict == "pass" && cases.iter().all(|case| case["mark"] != "tolerated"),
            "{name}: {reason}"
        );
        for text in texts(&run["reason"]) {
            assert!(reason.contains(text), "{name}: {text} in {reason}");
        }
        assert!(unescaped(&page).contains(reason), "{name}: {reason}");
        // What the page of `rigline web` and `results.runs` read. The record does not know which signal ended the command.
        let kept = written.text(&format!("runs/{}.jsonl", found["runId"].as_str().unwrap()));
        let end: Value = serde_json::from_str(kept.lines().last().unwrap()).unwrap();
        let without_signal = reason.replace(" by SIGTERM", "").replace(" by SIGINT", "");
        assert_eq!(end["end"]["verdict"], verdict, "{name}: {end}");
        assert_eq!(end["end"]["reason"].as_str().unwrap_or_default(), without_signal, "{name}: {end}");
        // The sentence of people's reports.
        let label = verdict.replace('_', " ").replace("pass", "passed").replace("fail", "failed");
        for (of, text) in [("table", &written.table), ("TAP", &tap_text), ("GitHub", &summary)] {
            assert!(text.contains(&label), "{name}, {of}: {label} in {text}");
        }
        assert!(properties["meta.operator"] == "Ada" && tap_text.contains("# operator: Ada"), "{name}");
    }
    assert_eq!(
        (&json["meta"]["operator"], &report["results"]["extra"]["meta"]["operator"]),
        (&"Ada".into(), &"Ada".into())
    );

    // Each case.
    let (ctrf_cases, rows) = (ctrf(&report), html(&page));
    let classes: Vec<&Value> =
        report["results"]["tests"].as_array().unwrap().iter().map(|test| &test["rawStatus"]).collect();
    for (of, count) in
        [("junit", junit_cases.len()), ("tap", tap_cases.len()), ("ctrf", ctrf_cases.len()), ("html", rows.len())]
    {
        assert_eq!(count, cases.len(), "{name}, {of}");
    }
    for (place, case) in cases.iter().enumerate() {
        let mark = case["mark"].as_str().unwrap();
        let class = case["class"].as_str().unwrap();
        assert_eq!((classes[place].as_str().unwrap(), rows[place].0.as_str()), (class, class), "{name}");
        for (of, shown) in [
            ("junit", &junit_cases[place]),
            ("tap", &tap_cases[place]),
            ("ctrf", &ctrf_cases[place]),
            ("html", &rows[place].1),
        ] {
            assert!(fits(mark, shown.mark, of), "{name}, {of}: {shown:?} is not {mark}");
            if let Some(task) = case["task"].as_str() {
                assert!(shown.name.contains(task), "{name}, {of}: {shown:?}");
            }
            let mut from = 0;
            for text in texts(&case["why"]) {
                let at = shown.why.get(from..).and_then(|rest| rest.find(text));
                // In this order: what the board did wrong comes first.
                from += at.unwrap_or_else(|| panic!("{name}, {of}: {text} in {shown:?} from {from}")) + text.len();
            }
        }
        if let Some(trials) = case["trials"].as_str() {
            assert!(written.table.contains(trials), "{name}: {trials} in {}", written.table);
            assert!(rows[place].1.name.contains(trials) && summary.contains(trials), "{name}: {trials} in {summary}");
        }
    }
    check_measurement(name, &expected["measured"], written, &suites);
}

/// The measurements, in the digits of the device.
fn check_measurement(name: &str, expected: &Value, written: &Written, suites: &[BTreeMap<String, String>]) {
    let Some(of) = expected["name"].as_str() else { return };
    let json = written.json("r.json");
    let found = &json["runs"][0]["tasks"][0]["measurements"][0];
    let value = expected["value"].as_str().unwrap();
    assert_eq!((found["name"].as_str(), &found["verdict"]), (Some(of), &expected["verdict"]), "{name}: {found:#}");
    for (member, text) in expected.as_object().unwrap().iter().filter(|(member, _)| *member != "name") {
        assert_eq!(suites[0][&format!("measurement.{of}.{member}")], text.as_str().unwrap(), "{name}, {member}");
    }
    if expected["verdict"] == "pass" {
        // As numbers of JSON, with their digits.
        for file in ["r.json", "r.ctrf.json", "record/values.jsonl", "record/report.json"] {
            let text = written.text(file).replace(": ", ":");
            assert!(text.contains(&format!("\"value\":{value}")), "{name}, {file}: {text}");
        }
    } else {
        assert_eq!(found["failed"].as_array().unwrap().len(), 1, "{name}: {found:#}");
    }
    let shown = if value.is_empty() { "no value" } else { value };
    for (of, text) in [
        ("table", written.table.clone()),
        ("TAP", written.text("r.tap")),
        ("HTML", written.text("r.html")),
        ("GitHub", written.text("summary.md")),
        ("JUnit", written.text("r.xml")),
    ] {
        assert!(text.contains(if of == "TAP" { value } else { shown }), "{name}, {of}: {shown} in {text}");
    }
    for member in ["min", "max"] {
        if let Some(text) = expected[member].as_str() {
            assert!(written.table.contains(text) && written.text("r.html").contains(text), "{name}, {member}");
        }
    }
}

/// microsoft/testfx#10269: a failure had no text. kyrus/python-junit-xml#32: Jenkins' schemas refused every report.
#[test]
fn every_report_says_the_same_of_every_outcome() {
    let all = outcomes();
    let mut names: Vec<PathBuf> =
        fs::read_dir(&all).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    names.sort();
    assert!(names.len() >= 30, "{names:?}");
    // A few at a time: most of their time they wait.
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(path) = names.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    let text = fs::read_to_string(path.join("expected.json")).unwrap();
                    let expected: Value = serde_json::from_str(&text).unwrap();
                    check(&name, &expected, &run(path, &expected));
                }
            });
        }
    });
}

/// A report of an earlier run that passed would be taken for this one's (scalatest/scalatest#1801: a run that was ended had no red test).
#[test]
fn a_command_that_is_killed_leaves_red_reports() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let begin = |outcome: &str| {
        let mut command = Command::new(RIGLINE);
        command.args(["eval", "run", "--quiet", "--runs"]).arg(at("runs")).arg(outcomes().join(outcome));
        command.arg("--junit").arg(at("r.xml")).arg("--ctrf").arg(at("r.ctrf.json")).arg("--tap").arg(at("r.tap"));
        command.arg("--html").arg(at("r.html")).arg("--json-file").arg(at("r.json"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    assert!(begin("pass").wait().unwrap().success());
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    assert!(junit(&read("r.xml")).0.iter().all(|case| case.mark == "passed"));
    let mut child = begin("cut-off-sigterm");
    let started = Instant::now();
    while read("r.html").contains("data-exit-code=\"0\"") && started.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // The page is the last of them.
    std::thread::sleep(Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    let (cases, _) = junit(&read("r.xml"));
    assert!(cases.len() == 1 && cases[0].mark == "error" && cases[0].why.contains("has not ended"), "{cases:?}");
    let report: Value = serde_json::from_str(&read("r.ctrf.json")).unwrap();
    assert_eq!(report["results"]["summary"]["failed"], 1);
    assert_eq!(tap(&read("r.tap"))[0].mark, "failed");
    let json: Value = serde_json::from_str(&read("r.json")).unwrap();
    assert_eq!((&json["success"], &json["exit_code"]), (&false.into(), &Value::Null));
    assert!(read("r.html").contains("has not ended"));
}

/// A command that fails before its runs is in every report, in the place of an earlier run that passed. (scalatest/scalatest#1801)
#[test]
fn a_command_that_fails_without_runs_leaves_red_reports_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "").unwrap();
    let outcome = outcomes().join("pass");
    let pass = outcome.to_str().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(RIGLINE);
        command.args(["eval", "run", "--quiet"]).args(args).current_dir(folder.path());
        command.args(["--junit", "r.xml", "--ctrf", "r.ctrf.json", "--html", "r.html", "--json-file", "r.json"]);
        command.env("XDG_STATE_HOME", at("state")).stdin(Stdio::null()).output().unwrap()
    };
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    for (args, why) in [
        (&[pass, "--rig", "nosuch", "--tap", "-"] as &[&str], "nosuch"),
        (&["empty", "--tap", "-"], "there are no evals in this folder"),
        (&[pass, "empty", "--tap", "-"], "there are no evals in this folder"),
        (&[pass, "--runs", "file/runs", "--tap", "-"], "file"),
        (&[pass, "--token-file", "nosuch", "--tap", "-"], "nosuch"),
        (&[pass, "--record", "file", "--tap", "-"], "--record"),
        (&[pass, "--target", "foo:bar", "--tap", "-"], "foo"),
        (&[pass, "--meta", "a=1", "--meta", "a=2", "--tap", "-"], "--meta a"),
        // Another report cannot be written, or would take the place of an eval.
        (&[pass, "--tap", "file/r.tap"], "--tap"),
        (&["file", "--tap", "file"], "this is an eval"),
    ] {
        assert!(run(&[pass, "--tap", "green.tap"]).status.success());
        assert!(junit(&read("r.xml")).0.iter().all(|case| case.mark == "passed"));
        let output = run(args);
        let code = output.status.code().unwrap();
        assert!(code != 0 && code != 1, "{args:?}: {output:?}");
        let (cases, _) = junit(&read("r.xml"));
        let [case] = cases.as_slice() else { panic!("{args:?}: {cases:?}") };
        assert!(case.mark == "error" && case.why.contains(why), "{args:?}: {case:?}");
        let report: Value = serde_json::from_str(&read("r.ctrf.json")).unwrap();
        assert_eq!(report["results"]["summary"]["failed"], 1, "{args:?}");
        let json: Value = serde_json::from_str(&read("r.json")).unwrap();
        assert_eq!((&json["success"], &json["exit_code"]), (&false.into(), &code.into()), "{args:?}");
        assert!(json["errors"][0]["error"].as_str().unwrap().contains(why), "{args:?}: {json:#}");
        assert!(read("r.html").contains(&format!("data-exit-code=\"{code}\"")), "{args:?}");
        if args.ends_with(&["-"]) {
            let text = String::from_utf8(output.stdout).unwrap();
            let cases = tap(&text);
            assert!(cases.len() == 1 && cases[0].mark == "failed" && cases[0].why.contains(why), "{args:?}: {text}");
        }
    }
    assert_eq!(read("file"), "", "what might be an eval is not written over");
}

/// As the reports of `eval run`: those of a check that was cut off are red, and have the cases before that.
#[test]
fn a_check_that_is_cut_off_leaves_red_reports() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    // It answers until the file is there.
    let script = "#!/bin/sh\n[ -e silent ] && exec sleep 60\nexec \"$RIGLINE\" rig\n";
    let path = at("rig.sh");
    fs::write(&path, script).unwrap();
    let begin = |more: &[&str]| {
        let mut command = Command::new(RIGLINE);
        command.args(["check", "exec:sh rig.sh", "--patience", "30s", "--start-timeout", "30s"]).args(more);
        command.args(["--json-file", "c.json", "--junit", "c.xml"]).current_dir(folder.path()).env("RIGLINE", RIGLINE);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        let _ = fs::remove_file(at("silent"));
        assert!(begin(&["--case", "handshake"]).wait().unwrap().success());
        assert!(!read("c.xml").contains("<error"));
        fs::write(at("silent"), "").unwrap();
        let mut child = begin(&[]);
        let started = Instant::now();
        while !read("c.xml").contains("<error") && started.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        // JUnit is the last of them, and then signals are waited for.
        std::thread::sleep(Duration::from_millis(500));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let code = child.wait().unwrap().code();
        let why = match signal {
            rustix::process::Signal::TERM => "the check was cut off: terminated",
            _ => "the check has not ended",
        };
        assert_eq!(code, (signal == rustix::process::Signal::TERM).then_some(143));
        let (cases, _) = junit(&read("c.xml"));
        let last = cases.last().unwrap();
        assert!(last.mark == "error" && last.why.contains(why), "{cases:?}");
        let json: Value = serde_json::from_str(&read("c.json")).unwrap();
        assert!(json["error"].as_str().unwrap().contains(why), "{json:#}");
    }
    // What is wrong with the command line is in the reports, too.
    let _ = fs::remove_file(at("silent"));
    assert!(begin(&["--case", "handshake"]).wait().unwrap().success());
    assert_eq!(begin(&["--call", "{"]).wait().unwrap().code(), Some(2));
    assert!(read("c.xml").contains("<error"), "{}", read("c.xml"));
}

#[test]
fn log_lines_of_parallel_tasks_name_their_task() {
    let folder = tempfile::tempdir().unwrap();
    let task = |id: &str| format!("  - id: {id}\n    steps: [{{ id: all, operation: self-test }}]\n");
    for (config, prefixes) in
        [(", parallel: true, max_workers: 2", ["  info: a: ", "  info: b: "]), ("", ["  info: ", "  info: "])]
    {
        let text = format!("name: e\nconfig: {{ target: sim{config} }}\ntasks:\n{}{}", task("a"), task("b"));
        fs::write(folder.path().join("eval.yaml"), text).unwrap();
        let output = Command::new(RIGLINE)
            .args(["eval", "run", "--runs"])
            .arg(folder.path().join("runs"))
            .arg(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<&str> =
            errors.lines().filter(|line| line.starts_with("  info: ") && !line.contains("Running task")).collect();
        assert!(lines.len() >= 2, "{errors}");
        for prefix in prefixes {
            assert!(lines.iter().any(|line| line.starts_with(prefix)), "{prefix}: {errors}");
        }
        let has_names = lines.iter().all(|line| prefixes.iter().any(|prefix| line.starts_with(prefix)));
        assert!(has_names, "{errors}");
    }
}
