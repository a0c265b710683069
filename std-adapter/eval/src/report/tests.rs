//! Reports of hostile results.

use serde_json::{Value, json};

use super::super::model::class_of;
use super::super::verdict::Class;
use super::*;

/// Names and messages that try to get out of wherever they are put.
const HOSTILE: [&str; 12] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "</title></style></pre><svg onload=alert(1)>",
    "a\u{0}\u{7}\u{1b}[31mred\u{1b}]0;t\u{7}\u{9b}",
    "\u{202e}gnp.exe\u{2066}x\u{2069}",
    "line\nnot ok 9 - forged\n::error::forged\r\n| a | b |",
    "# SKIP all \\# TODO",
    "...\n---\n",
    "::stop-commands::x",
    "`code` *b* [l](javascript:1) | cell | @all <!-- -->",
    "%0A::error::x",
    "",
];

fn results(names: &[String]) -> Results {
    let verdicts = ["pass", "fail", "rig_error", "skipped", "flaky", "cancelled", "of another world"];
    let statuses = ["passed", "failed", "error", "skipped", "passed", "cancelled", "of another world"];
    let tasks: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(place, name)| {
            let measured = |value: Value| json!({ "measurement": { "name": name, "value": value, "unit": name, "low": "1", "high": 2, "verdict": "pass" } });
            json!({
                "id": format!("{place}{name}"), "name": name, "status": statuses[place % statuses.len()], "verdict": verdicts[place % verdicts.len()], "error": name,
                "durationMs": 5, "trialsPassed": 1, "attempts": 2, "file": name,
                "measurements": [{ "name": name, "unit": name, "low": "1", "high": 2, "value": name, "text": name, "verdict": "fail", "count": 2, "min": 1.0, "max": "1.50", "failed": [{ "trial": 1, "value": name }] }],
                "trials": [{
                    "task": format!("{place}{name}"), "trial": 1, "attempts": 2, "earlier": [{ "verdict": name, "error": name }], "status": "failed", "error": name, "durationMs": 1,
                    "steps": [{ "id": name, "operation": name, "phase": name, "status": "passed", "message": name, "outputs": { name: name }, "attachments": [{ "name": name, "contentType": name, "path": name, "sha256": name }, { "name": name, "error": name }] }],
                    "graders": [measured(json!("1.5")), measured(json!(name)), measured(json!(1.25)), measured(json!(null))],
                }],
            })
        })
        .collect();
    let runs: Vec<Value> = names
        .iter()
        .map(|name| {
            let hashed = json!([{ "path": name, "sha256": name }, { "path": name, "error": name }]);
            json!({
                "runId": name, "eval": name, "path": name, "version": name, "status": "failed", "error": name, "reason": name, "warnings": [name],
                "tasks": [], "programs": hashed, "files": hashed, "metrics": [{ "name": name, "share": 0.5 }],
            })
        })
        .collect();
    let mut all = vec![
        json!({ "runId": "a-1", "eval": "all", "path": "e.yaml", "status": "completed", "passed": false, "rig": { "name": names[0], "version": names[1], "target": names[4], "serialNumber": names[3] }, "tasks": tasks }),
    ];
    all.extend(runs);
    let mut results =
        Results::read(&json!({ "runs": all, "errors": [{ "path": null, "error": names.join("") }, { "path": names.join(""), "error": "x" }] }).to_string())
            .unwrap();
    (results.started_at_ms, results.duration_ms, results.exit_code) = (1_795_868_977_494, 1000, Some(2));
    results.meta = names.iter().map(|name| (name.clone(), name.clone())).collect();
    results.recording = Some(names.concat());
    results.host = Some(Host::this(names.concat(), Some(names.concat())));
    for name in names {
        results.runs[0].logs.add(3, "warn", name);
    }
    results.runs[0].earlier = vec![Past { id: "b".into(), started_ms: 5, passed: 1, total: 2, means: Vec::new() }];
    results
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = HOSTILE.iter().map(ToString::to_string).collect();
    names.push("long ".repeat(2048));
    names.push("\u{202e}".repeat(10_240));
    names.push("é".repeat(10_240));
    names
}

/// Nothing that drives a terminal or turns text around gets through, but line ends.
fn is_clean(text: &str) -> bool {
    text.chars().all(|char| char == '\n' || !rigline_host::terminal::is_control(char))
}

#[test]
fn a_page_holds_no_markup_but_its_own() {
    let page = html(&results(&names()));
    assert!(is_clean(&page));
    assert!(page.len() < 2 << 20, "{}", page.len());
    let tags = regex::Regex::new(r"<\s*/?([a-zA-Z!][^\s>/]*)([^>]*)>").unwrap();
    let quoted = regex::Regex::new(r#""[^"<>]*""#).unwrap();
    let active = regex::Regex::new(r#"\bon\w+\s*=|\bsrc\s*=|["<]"#).unwrap();
    let known = [
        "!DOCTYPE",
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "section",
        "a",
        "h1",
        "h2",
        "h3",
        "h4",
        "p",
        "span",
        "bdi",
        "code",
        "pre",
        "dl",
        "dt",
        "dd",
        "ul",
        "li",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "figure",
        "figcaption",
        "svg",
        "line",
        "polyline",
        "rect",
        "text",
        "circle",
    ];
    for tag in tags.captures_iter(&page) {
        assert!(known.contains(&&tag[1]), "{}", &tag[0]);
        // In quotes it is text: a quote in it would end the tag's match at once.
        let attributes = quoted.replace_all(&tag[2], "");
        assert!(!active.is_match(&attributes), "{}", &tag[0]);
    }
    assert!(page.contains("&lt;script&gt;alert(1)"), "it is shown");
    for own in ["default-src 'none'", "prefers-color-scheme: dark", "@media print", "width=device-width", "<svg"] {
        assert!(page.contains(own), "{own}");
    }
    assert!(!page.contains("http://") || page.matches("http://").all(|_| page.contains("http://www.w3.org/2000/svg")));
    assert_eq!(page.matches("https://").count(), 0, "nothing is loaded");
}

#[test]
fn tap_is_not_forged() {
    let results = results(&names());
    let tap = tap(&results);
    assert!(is_clean(&tap));
    let mut lines = tap.lines();
    assert_eq!(lines.next(), Some("TAP version 14"));
    let count = results.cases().count();
    assert_eq!(lines.next(), Some(format!("1..{count}").as_str()));
    let points: Vec<&str> = tap.lines().filter(|line| line.starts_with("ok ") || line.starts_with("not ok ")).collect();
    assert_eq!(points.len(), count, "each case has one line");
    for (place, point) in points.iter().enumerate() {
        assert_eq!(point.trim_start_matches("not ").split(' ').nth(1), Some((place + 1).to_string().as_str()));
        let directives = point.replace("\\\\", "").replace("\\#", "").matches('#').count();
        assert!(
            directives <= 1 && (directives == 0 || point.contains(" # SKIP") || point.contains(" # TODO")),
            "{point}"
        );
    }
    assert!(tap.lines().all(|line| line.len() < 20_000));
    let red = points.iter().filter(|point| point.starts_with("not ok") && !point.contains(" # TODO")).count();
    assert_eq!(red, results.cases().filter(|case| case.mark.is_red()).count());
}

#[test]
fn ctrf_has_the_members_that_its_schema_wants() {
    let results = results(&names());
    let text = ctrf(&results);
    assert!(is_clean(&text));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["reportFormat"], &report["specVersion"]), (&json!("CTRF"), &json!("0.0.0")));
    let (summary, tests) = (&report["results"]["summary"], report["results"]["tests"].as_array().unwrap());
    let count = |status: &str| tests.iter().filter(|test| test["status"] == status).count();
    for (name, expected) in [
        ("tests", tests.len()),
        ("passed", count("passed")),
        ("failed", count("failed")),
        ("skipped", count("skipped")),
        ("pending", count("pending")),
        ("other", count("other")),
        ("flaky", results.count(Class::Flaky)),
    ] {
        assert_eq!(summary[name], expected, "{name}");
    }
    assert_eq!(count("failed"), results.cases().filter(|case| case.mark.is_red()).count(), "a rig's error is no pass");
    let ids: std::collections::HashSet<_> = tests.iter().map(|test| test["testId"].to_string()).collect();
    assert!(ids.len() > tests.len() / 2);
    for test in tests {
        assert!(test["name"].as_str().is_some_and(|name| !name.is_empty()) && test["duration"].is_u64(), "{test}");
    }
}

#[test]
fn github_gets_commands_and_a_table_of_ours_only() {
    let results = results(&names());
    let commands = annotations(&results);
    assert!(is_clean(&commands));
    for line in commands.lines() {
        let rest = line.strip_prefix("::error ").or_else(|| line.strip_prefix("::warning ")).unwrap();
        let (properties, message) = rest.split_once("::").unwrap();
        assert!(
            !properties.contains(':')
                && properties.split(',').all(|one| one.starts_with("file=") || one.starts_with("title=")),
            "{line}"
        );
        assert!(!message.contains('\r'), "{line}");
    }
    for room in [400, 5000, 1 << 20] {
        let summary = summary(&results, room);
        assert!(is_clean(&summary) && summary.len() <= room + 200, "{} of {room}", summary.len());
        let rows = summary.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
        for row in rows {
            assert_eq!(row.matches('|').count(), 8, "{row}");
            assert!(!row.replace("<br>", "").contains(['<', '>', '`', '*', '[', '@']), "{row}");
        }
        assert!(summary.contains("do not fit here") == (room < 10_000), "{room}");
    }
}

#[test]
fn an_unknown_verdict_is_no_pass() {
    for (status, class) in [
        ("passed", Class::Pass),
        ("failed", Class::Fail),
        ("error", Class::RigError),
        ("", Class::RigError),
        ("PASSED", Class::RigError),
        ("skipped", Class::Skipped),
        ("cancelled", Class::Cancelled),
    ] {
        assert_eq!(class_of(status), class, "{status}");
    }
    assert!(Results::read("{\"runs\":5}").is_err());
    assert_eq!(Results::read("{}").unwrap().cases().count(), 0);
}

#[test]
fn results_are_read_back_as_they_were_written() {
    let results = results(&names());
    let text = results.to_json();
    let again = Results::read(&text).unwrap();
    assert_eq!(again.to_json(), text);
    assert_eq!(again.runs[0].tasks[0].measurements[0].max.as_str(), "1.50", "digits stay");
}

#[test]
fn junit_is_not_forged() {
    let results = results(&names());
    let xml = junit::junit(&results, &std::collections::BTreeMap::new());
    assert!(is_clean(&xml));
    let cases: usize = results.cases().count();
    assert_eq!(xml.matches("<testcase ").count(), cases);
    let red = results.cases().filter(|case| case.mark.is_red()).count();
    assert_eq!(xml.matches("<failure ").count() + xml.matches("<error ").count(), red);
}

#[test]
fn links_of_a_page_are_paths_whatever_a_file_is_called() {
    let mut names = names();
    names.extend(["javascript:alert(1)", "//example.org/x", "data:text/html,x", "a b/c#d?e%2F"].map(str::to_owned));
    let page = html(&results(&names));
    let links: Vec<&str> = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(links.contains(&"javascript%3Aalert%281%29") && links.contains(&"a%20b/c%23d%3Fe%252F"), "{links:?}");
    let is_safe = |link: &str| {
        !link.starts_with("//") && link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-~%".contains(&byte))
    };
    assert!(links.iter().all(|link| is_safe(link)), "{links:?}");
}

#[test]
fn paths_in_a_page_begin_at_its_folder() {
    for (path, folder, relative) in [
        ("/home/a/runs/1.files/1-x.png", "/home/a/reports", "../runs/1.files/1-x.png"),
        ("/home/a/rec", "/home/a", "rec"),
        ("/home/a", "/home/a", "."),
        ("/home/a/rec", "/home/a/b/c", "../../rec"),
        ("/var/rec", "/home/a", "/var/rec"),
        ("rec", "/home/a", "rec"),
    ] {
        let mut results = Results { recording: Some(path.to_owned()), ..Results::default() };
        results.relative_to(std::path::Path::new(folder));
        assert_eq!(results.recording.as_deref(), Some(relative), "{path} from {folder}");
    }
}
