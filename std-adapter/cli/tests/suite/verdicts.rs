//! Verdict classes of evals: what the rig does wrong is a rig error, and what the board under test does wrong is a failure.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs the eval in a folder; returns the exit code, the report and the run's part of it.
fn run(folder: &Path, more: &[&str]) -> (i32, Value, Value) {
    let output = Command::new(RIGLINE)
        .args(["eval", "run", "--json", "--quiet"])
        .arg(folder)
        .arg("--runs")
        .arg(folder.join("runs"))
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let run = report["runs"][0].clone();
    (output.status.code().unwrap(), report, run)
}

/// A rig on a pty: answers `initialize`, and lets `behave` answer each call, or unplug it by giving `None`.
///
/// It is named by a link that is its own and goes with it. The kernel gives the number of a pty that is closed to the next one, so that
/// a host which waits for a rig that was unplugged would find the rig of another test there, and take it away from that.
fn board(name: &'static str, behave: impl Fn(u32, &Value) -> Option<Vec<Value>> + Send + 'static) -> String {
    let pty = rustix_openpty::openpty(None, None).unwrap();
    let pts = rustix::pty::ptsname(&pty.controller, Vec::new()).unwrap().into_string().unwrap();
    // It may outlive the test program: then it stays below `target`.
    let links = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = links.path().join("port");
    std::os::unix::fs::symlink(pts, &path).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let mut settings = rustix::termios::tcgetattr(&pty.user).unwrap();
    settings.make_raw();
    rustix::termios::tcsetattr(&pty.user, rustix::termios::OptionalActions::Now, &settings).unwrap();
    thread::spawn(move || {
        // Held open, so that the controller does not see a hang-up between two hosts.
        let port = pty.user;
        let mut writer = fs::File::from(pty.controller);
        let reader = BufReader::new(writer.try_clone().unwrap());
        let mut calls = 0;
        for line in reader.lines() {
            let Ok(line) = line else { return };
            let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
            let id = &request["id"];
            let replies = match request["method"].as_str() {
                Some("initialize") => vec![serde_json::json!({ "jsonrpc": "2.0", "id": id, "result": {
                    "name": name, "version": "1.0.0", "protocolVersion": "0.0.1",
                    "operations": { "measure": { "params": {} }, "identify": { "params": {} } },
                } })],
                Some("execute") => {
                    calls += 1;
                    match behave(calls, &request) {
                        Some(replies) => replies,
                        None => break,
                    }
                }
                _ => vec![serde_json::json!({ "jsonrpc": "2.0", "id": id, "result": {} })],
            };
            for reply in replies {
                let _ = writeln!(writer, "{reply}");
            }
        }
        // First the name, then what it means.
        drop(links);
        drop((port, writer));
    });
    format!("serial:{path}")
}

fn success(request: &Value, outputs: &Value) -> Vec<Value> {
    vec![
        serde_json::json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "success": true, "outputs": outputs } }),
    ]
}

fn failure(request: &Value, error: &str) -> Vec<Value> {
    vec![serde_json::json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "success": false, "error": error } })]
}

fn refusal(request: &Value, code: i32, message: &str) -> Vec<Value> {
    vec![serde_json::json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": code, "message": message } })]
}

/// An eval with one task of one step.
fn eval(target: &str, config: &str, step: &str) -> TempDir {
    folder(&[(
        "eval.yaml",
        &format!(
            "name: e\nconfig: {{ executor: extension, target: \"{target}\"{config} }}\n\
             tasks:\n  - id: t\n    steps:\n      - {{ id: s, operation: measure{step} }}\n"
        ),
    )])
}

fn assert_rig_error(what: &str, (code, report, run): &(i32, Value, Value)) {
    assert_eq!(*code, 3, "{what}: {report:#}");
    assert_eq!(run["verdict"], "rig_error", "{what}: {report:#}");
    assert_eq!((&run["passed"], &report["success"]), (&false.into(), &false.into()), "{what}");
}

#[test]
fn a_board_that_is_unplugged_during_a_step_is_a_rig_error() {
    let target = board("rig", |_, _| None);
    let folder = eval(&target, "", "");
    let ran = run(folder.path(), &[]);
    assert_rig_error("unplugged", &ran);
    assert_eq!(ran.2["tasks"][0]["verdict"], "rig_error");
    // No threshold makes it green.
    let folder = eval(&board("rig", |_, _| None), "", "");
    let text = fs::read_to_string(folder.path().join("eval.yaml")).unwrap();
    fs::write(folder.path().join("eval.yaml"), format!("{text}metrics: {{ pass_threshold: 0 }}\n")).unwrap();
    assert_rig_error("unplugged, no threshold", &run(folder.path(), &[]));
}

#[test]
fn another_board_is_a_rig_error() {
    // It does not have the operation.
    let target = board("other", |_, request| Some(refusal(request, -32601, "Unknown operation: measure")));
    assert_rig_error("operation", &run(eval(&target, "", "").path(), &[]));
    // The preflight wants another one.
    let target = board("rig", |_, request| Some(success(request, &serde_json::json!({ "board": "rev-a" }))));
    let folder = eval(&target, "", "");
    let text = fs::read_to_string(folder.path().join("eval.yaml")).unwrap();
    let health = "health:\n  - { id: who, operation: identify, expect: { board: rev-b } }\n";
    fs::write(folder.path().join("eval.yaml"), format!("{text}{health}")).unwrap();
    let ran = run(folder.path(), &[]);
    assert_rig_error("preflight", &ran);
    assert!(ran.2["error"].as_str().unwrap().contains("preflight: "), "{:#}", ran.2);
    assert_eq!(ran.2["tasks"], serde_json::json!([]), "no task is run on it");
    // The one that it wants.
    fs::write(folder.path().join("eval.yaml"), format!("{text}{}", health.replace("rev-b", "rev-a"))).unwrap();
    let (code, report, run) = run(folder.path(), &[]);
    assert_eq!((code, &run["verdict"]), (0, &"pass".into()), "{report:#}");
    assert_eq!(run["health"]["steps"][0]["outputs"]["board"], "rev-a");
    assert_eq!(run["rig"]["name"], "rig");
}

#[test]
fn a_held_port_and_a_missing_one_are_rig_errors() {
    let target = board("rig", |_, request| Some(success(request, &serde_json::json!({}))));
    let path = target.strip_prefix("serial:").unwrap();
    let held = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    rustix::termios::ioctl_tiocexcl(&held).unwrap();
    assert_rig_error("held", &run(eval(&target, "", "").path(), &[]));
    rustix::termios::ioctl_tiocnxcl(&held).unwrap();
    assert_rig_error("missing", &run(eval("serial:/dev/no-such-port", "", "").path(), &[]));
}

#[test]
fn a_board_that_answers_late_or_not_what_it_should_is_a_rig_error() {
    for late in [0, 60] {
        let target = board("rig", move |_, request| {
            thread::sleep(Duration::from_secs(late));
            Some(if late == 0 { refusal(request, -32000, "the ADC does not answer") } else { Vec::new() })
        });
        assert_rig_error("late", &run(eval(&target, "", ", timeout: 300ms").path(), &[]));
    }
}

/// zephyrproject-rtos/zephyr#45904: a test that ran out of time was reported as passed.
#[test]
fn an_answer_after_the_limit_of_its_step_is_a_rig_error_and_the_session_goes_on() {
    type Replies = fn(&Value) -> Vec<Value>;
    let replies: [(&str, Replies); 3] = [
        ("success", |request| success(request, &serde_json::json!({ "volts": "3.3" }))),
        ("failure", |request| failure(request, "3V3 did not come up")),
        ("refusal", |request| refusal(request, -32000, "the ADC does not answer")),
    ];
    for (what, replies) in replies {
        let target = board("rig", move |calls, request| {
            // The second task's call is in time.
            thread::sleep(Duration::from_millis(if calls == 1 { 900 } else { 0 }));
            Some(if calls == 1 { replies(request) } else { success(request, &serde_json::json!({})) })
        });
        let folder = eval(&target, "", ", timeout: 300ms, measure: { name: 3V3, output: volts }");
        let path = folder.path().join("eval.yaml");
        let second = "  - { id: u, steps: [ { id: s, operation: measure, timeout: 30s } ] }\n";
        fs::write(&path, fs::read_to_string(&path).unwrap() + second).unwrap();
        let ran = run(folder.path(), &[]);
        assert_rig_error(what, &ran);
        let [late, in_time] = ran.2["tasks"].as_array().unwrap().as_slice() else { panic!("{what}: {:#}", ran.2) };
        let why = late["error"].as_str().unwrap();
        assert!(why.contains("beyond the time limit of 300ms"), "{what}: {why}");
        assert_eq!((&late["verdict"], &in_time["verdict"]), (&"rig_error".into(), &"pass".into()), "{what}");
        let step = &late["trials"][0]["steps"][0];
        assert_eq!(step["limitMs"], 300, "{what}: {step}");
        assert!(step["durationMs"].as_u64().unwrap() >= 900, "{what}: {step}");
        assert_eq!(ran.2["graceMs"], 0);
        assert_eq!(late["measurements"], serde_json::json!([]), "a late value is no measurement: {what}");
    }
    // Its own timeout error comes a little after the limit: that is what the host waits for.
    let target = board("rig", |_, request| {
        thread::sleep(Duration::from_millis(400));
        Some(refusal(request, -32001, "3V3 did not come up in time"))
    });
    let (code, report, run) = run(eval(&target, "", ", timeout: 300ms").path(), &[]);
    assert_eq!((code, &run["verdict"]), (1, &"fail".into()), "{report:#}");
}

#[test]
fn an_agent_that_uses_up_the_trials_time_is_a_failure_and_the_exit_code_is_that_of_a_time_limit() {
    let agent = |seconds: &str, steps: &str| {
        folder(&[(
            "eval.yaml",
            &format!(
                "name: e\nconfig: {{ executor: command, command: [sleep, \"{seconds}\"], timeout_seconds: 1{} }}\n\
                 tasks:\n  - id: t\n    prompt: do it\n{steps}    graders: [ {{ type: not_contains, value: x }} ]\n",
                if steps.is_empty() { "" } else { ", target: \"TARGET\"" },
            ),
        )])
    };
    let (code, report, one) = run(agent("30", "").path(), &[]);
    assert_eq!((code, &one["verdict"]), (124, &"fail".into()), "{report:#}");
    // It leaves the step that follows too little time. The rig is not to blame for that.
    let target = board("rig", |_, _| Some(Vec::new()));
    let folder = agent("0.8", "    steps: [ { id: s, operation: measure } ]\n");
    let path = folder.path().join("eval.yaml");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("TARGET", &target)).unwrap();
    let (code, report, one) = run(folder.path(), &[]);
    assert_eq!((code, &one["verdict"]), (124, &"fail".into()), "{report:#}");
    let why = one["tasks"][0]["error"].as_str().unwrap();
    assert!(why.contains("the agent has used "), "{why}");
}

#[test]
fn a_fault_of_the_board_under_test_is_a_failure() {
    for (replies, step) in [
        (failure as fn(&Value, &str) -> Vec<Value>, ""),
        (|request: &Value, why: &str| refusal(request, -32001, why), ""),
        (
            |request: &Value, _: &str| success(request, &serde_json::json!({ "volts": "2.9" })),
            ", measure: { name: 3V3, output: volts, low: 3.1 }",
        ),
    ] {
        let target = board("rig", move |_, request| Some(replies(request, "3V3 did not come up")));
        let (code, report, run) = run(eval(&target, ", retries: 2", step).path(), &[]);
        assert_eq!((code, &run["verdict"]), (1, &"fail".into()), "{report:#}");
        // Failures are not tried again unless told.
        assert_eq!(run["tasks"][0]["trials"][0]["attempts"], 1, "{report:#}");
    }
}

/// google/openhtf#150: the error of the cleanup took the place of the failure.
#[test]
fn a_measurement_stands_whatever_the_cleanup_does() {
    for (low, graded, code, verdict) in [
        ("3.1", "s", 1, "fail"),
        // All is well but the cleanup, or what failed is about the cleanup itself.
        ("2.5", "s", 3, "rig_error"),
        ("3.1", "c", 3, "rig_error"),
    ] {
        let target = board("rig", |_, request| {
            Some(match request["params"]["context"]["phase"].as_str() {
                Some("cleanup") => refusal(request, -32000, "the relay does not answer"),
                _ => success(request, &serde_json::json!({ "volts": "2.9" })),
            })
        });
        let folder = eval(&target, ", retries: 1", "");
        let path = folder.path().join("eval.yaml");
        let more = format!(
            "      - {{ id: c, operation: measure, phase: cleanup }}\n\
             \u{20}   graders: [{{ type: output_range, step: {graded}, output: volts, min: {low} }}]\n"
        );
        fs::write(&path, fs::read_to_string(&path).unwrap() + &more).unwrap();
        let (found, report, run) = run(folder.path(), &[]);
        assert_eq!((found, &run["verdict"]), (code, &verdict.into()), "{low} {graded}: {report:#}");
        let attempts = if verdict == "fail" { 1 } else { 2 };
        assert_eq!(run["tasks"][0]["trials"][0]["attempts"], attempts, "{low} {graded}: {report:#}");
        let error = run["tasks"][0]["error"].to_string();
        assert!(error.contains("the relay does not answer"), "{report:#}");
        if verdict == "fail" {
            // Both are named, and the failure of the board comes first.
            assert!(
                error.find("2.9 is outside") < error.find("the relay") && error.contains("2.9 is outside"),
                "{error}"
            );
        }
    }
}

#[test]
fn retries_are_for_rig_errors_unless_told_otherwise() {
    // Twice the rig is at fault, then all is well: a pass.
    let target = board("rig", |calls, request| {
        Some(if calls < 3 { refusal(request, -32000, "busy") } else { success(request, &serde_json::json!({})) })
    });
    let (code, report, one) = run(eval(&target, ", retries: 2", "").path(), &[]);
    assert_eq!((code, &one["verdict"]), (0, &"pass".into()), "{report:#}");
    let trial = &one["tasks"][0]["trials"][0];
    assert_eq!((&trial["attempts"], &trial["verdict"]), (&3.into(), &"pass".into()));
    assert_eq!(trial["earlier"][0]["verdict"], "rig_error");

    // A failure that is tried again is flaky, and the report says so.
    let target = board("rig", |calls, request| {
        Some(if calls == 1 { failure(request, "no") } else { success(request, &serde_json::json!({})) })
    });
    let folder = eval(&target, ", retries: 1, retry_on: any", "");
    let junit = folder.path().join("junit.xml");
    let (code, report, one) = run(folder.path(), &["--junit", junit.to_str().unwrap()]);
    assert_eq!((code, &one["tasks"][0]["verdict"]), (0, &"flaky".into()), "{report:#}");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("an earlier attempt: failed: step s (measure): no"), "{xml}");
}

#[test]
fn trials_that_differ_are_flaky_and_no_mean_hides_it() {
    let target = board("rig", |calls, request| {
        Some(if calls == 2 { failure(request, "no") } else { success(request, &serde_json::json!({})) })
    });
    let folder = eval(&target, ", trials_per_task: 4", "");
    let junit = folder.path().join("junit.xml");
    let (code, report, one) = run(folder.path(), &["--junit", junit.to_str().unwrap()]);
    let task = &one["tasks"][0];
    assert_eq!((code, &task["verdict"], &one["verdict"]), (1, &"flaky".into(), &"fail".into()), "{report:#}");
    let reliability = &task["reliability"];
    assert_eq!((&reliability["trials"], &reliability["passed"]), (&4.into(), &3.into()));
    assert_eq!((&reliability["passAtK"]["2"], &reliability["passAllK"]["2"]), (&1.0.into(), &0.5.into()));
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("3 of 4 trials passed; "), "{xml}");
}

#[test]
fn junit_tells_the_rig_from_the_board() {
    let target = board("rig", |calls, request| {
        Some(match calls {
            1 => failure(request, "low"),
            2 => refusal(request, -32000, "no ADC\u{1b}[31m"),
            _ => success(request, &serde_json::json!({ "volts": "3.301" })),
        })
    });
    let step = |id: &str| {
        format!(
            "  - id: {id}\n    steps:\n      - {{ id: s, operation: measure, measure: {{ name: 3V3, output: volts, unit: V, low: 3.135, high: 3.465 }} }}\n"
        )
    };
    let text = format!(
        "name: e\nconfig: {{ executor: extension, target: \"{target}\" }}\ntasks:\n{}{}{}",
        step("a"),
        step("b"),
        step("c")
    );
    let folder = folder(&[("eval.yaml", &text)]);
    let junit = folder.path().join("junit.xml");
    let (code, report, _) = run(folder.path(), &["--junit", junit.to_str().unwrap()]);
    assert_eq!(code, 1, "{report:#}");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("<failure") && xml.contains("type=\"rig error\"") && xml.contains("<error"), "{xml}");
    assert!(xml.contains("name=\"measurement.3V3.value\" value=\"3.301\""), "{xml}");
    assert!(xml.contains("3V3: 3.301 V [3.135 … 3.465] pass"), "{xml}");
    assert!(xml.contains("[[ATTACHMENT|/") && xml.contains(".jsonl]]"), "{xml}");
    assert!(xml.contains("name=\"rig\" value=\"rig 1.0.0\"") && !xml.contains('\u{1b}'), "{xml}");
    assert_eq!(report["runs"][0]["tasks"][2]["measurements"][0]["value"], 3.301);
}

#[test]
fn measurements_are_read_strictly() {
    for (step, why) in [
        (", measure: { output: volts, low: 4, high: 3 }", "low is greater than high"),
        (", measure: { low: 4 }", "Missing required field: output"),
        (", measure: { output: volts, low: high }", "low: expected a number"),
        (", measure: { output: volts, unit: \"12345678901234567\" }", "at most 16 characters"),
        (", measure: [{ output: volts }, { output: volts }]", "Two measurements have the name"),
    ] {
        let (code, report, _) = run(eval("sim", "", step).path(), &[]);
        assert_eq!(code, 2, "{report:#}");
        assert!(report["errors"][0]["error"].as_str().unwrap().contains(why), "{why}: {report:#}");
    }
    // What is not a number fails; what has no limits is recorded.
    for (volts, code) in [("NaN", 1), ("off", 1), ("", 1), ("3.3", 0)] {
        let target = board("rig", move |_, request| Some(success(request, &serde_json::json!({ "volts": volts }))));
        let (found, report, _) = run(eval(&target, "", ", measure: { output: volts }").path(), &[]);
        assert_eq!(found, code, "{volts}: {report:#}");
    }
}

/// An eval with a matrix, rows with limits, an input and an environment variable.
const EXPANDED: &str = r#"
name: expanded
config: { executor: mock, allow_env: [RIGLINE_TEST_BENCH] }
inputs: { samples: 4 }
tasks:
  - id: rail
    name: Rail
    for:
      - { rail: "3V3", low: 3.135, high: 3.465 }
      - { rail: "5V0", low: 4.75, high: 5.25 }
    matrix: { n: [1, 16] }
    prompt: "{{env.RIGLINE_TEST_BENCH}}"
    steps:
      - { id: read, operation: measure, args: { channel: "{{for.rail}}", samples: "{{matrix.n}}", more: "{{inputs.samples}}" }, measure: { name: "{{for.rail}}", output: volts, low: "{{for.low}}", high: "{{for.high}}" } }
"#;

#[test]
fn cases_parameters_and_the_environment() {
    let folder = folder(&[("eval.yaml", EXPANDED)]);
    let run = |more: &[&str], bench: Option<&str>| {
        let mut command = Command::new(RIGLINE);
        command.args(["eval", "run", "--json", "--quiet", "--runs"]).arg(folder.path().join("runs")).arg(folder.path());
        command.args(more).env_remove("RIGLINE_TEST_BENCH").stdin(Stdio::null());
        if let Some(bench) = bench {
            command.env("RIGLINE_TEST_BENCH", bench);
        }
        let output = command.output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), report)
    };
    let ids = |report: &Value| {
        let tasks = report["runs"][0]["tasks"].as_array().unwrap();
        tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (code, report) = run(&[], Some("bench-7"));
    assert_eq!(code, 0, "{report:#}");
    let all = ids(&report);
    assert_eq!(all.len(), 4);
    assert_eq!(all[3], "rail[rail=5V0,low=4.75,high=5.25,n=16]");
    assert!(report["runs"][0]["tasks"][0]["trials"][0]["output"].as_str().unwrap().contains("bench-7"), "{report:#}");
    // One case by its values, and by its id.
    let (code, report) = run(&["--set", "rail=5V0", "--set", "n=2"], Some(""));
    assert_eq!((code, ids(&report)), (0, vec!["rail[rail=5V0,low=4.75,high=5.25,n=2]".to_owned()]), "{report:#}");
    let (code, report) = run(&["--filter", "[rail=3V3"], Some(""));
    assert_eq!((code, ids(&report).len()), (0, 2), "{report:#}");
    for (more, bench, why) in [
        (vec!["--set", "rial=5V0"], Some(""), "did you mean `rail`?"),
        (vec!["--set", "rail=1V8"], Some(""), "--set rail=1V8: no row of for has this value"),
        (vec![], None, "the environment variable RIGLINE_TEST_BENCH is not set"),
    ] {
        let (code, report) = run(&more, bench);
        assert_eq!(code, 2, "{report:#}");
        assert!(report["errors"][0]["error"].as_str().unwrap().contains(why), "{why}: {report:#}");
    }
    for (from, to, why) in [
        ("allow_env: [RIGLINE_TEST_BENCH]", "workers: 1", "add RIGLINE_TEST_BENCH to config.allow_env"),
        ("{{for.low}}", "{{for.lw}}", "did you mean `low`?"),
        ("{{matrix.n}}", "{{matrix.n n}}", "write {{matrix.NAME}}"),
    ] {
        fs::write(folder.path().join("eval.yaml"), EXPANDED.replace(from, to)).unwrap();
        let (code, report) = run(&[], Some("x"));
        assert_eq!(code, 2, "{report:#}");
        assert!(report["errors"][0]["error"].as_str().unwrap().contains(why), "{why}: {report:#}");
    }
    // Clients that ask for the eval or its tasks over JSON-RPC do not see what the environment held.
    fs::write(folder.path().join("eval.yaml"), EXPANDED).unwrap();
    let ask = |method: &str, params: Value| {
        let request = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut server = Command::new(RIGLINE)
            .arg("jsonrpc")
            .current_dir(folder.path())
            .env("RIGLINE_TEST_BENCH", "a-secret")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(server.stdin.take().unwrap(), "{request}").unwrap();
        String::from_utf8(server.wait_with_output().unwrap().stdout).unwrap()
    };
    let path = serde_json::json!({ "path": "eval.yaml" });
    let task = serde_json::json!({ "path": "eval.yaml", "task_id": "rail[rail=5V0,low=4.75,high=5.25,n=16]" });
    for (method, params, seen) in [
        ("eval.get", path.clone(), "expanded"),
        ("task.list", path.clone(), "rail[rail=5V0"),
        ("task.get", task, "{{env.RIGLINE_TEST_BENCH}}"),
    ] {
        let text = ask(method, params);
        assert!(text.contains(seen) && !text.contains("a-secret"), "{method}: {text}");
    }
    // Ids and names are in what clients see, so they must not have it.
    for member in ["id: rail", "name: Rail"] {
        let (name, _) = member.split_once(':').unwrap();
        let text = EXPANDED.replace(member, &format!("{name}: \"{{{{env.RIGLINE_TEST_BENCH}}}}\""));
        fs::write(folder.path().join("eval.yaml"), text).unwrap();
        let text = ask("eval.validate", path.clone());
        assert!(text.contains(&format!("{name}: clients see it")) && !text.contains("a-secret"), "{text}");
    }
}

/// Loads an eval with these lines after its `config`; returns the ids of its tasks, or the first error.
fn cases(lines: &str, more: &[&str]) -> Result<Vec<String>, String> {
    let folder = folder(&[
        ("eval.yaml", &format!("name: cases\nconfig: {{ executor: mock }}\n{lines}")),
        ("rows.csv", "board,asked\nalpha,a\nbeta,b\n"),
    ]);
    let (code, report, _) = run(folder.path(), more);
    match report["errors"][0]["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => {
            assert!(code == 0 || code == 1, "{report:#}");
            let tasks = report["runs"][0]["tasks"].as_array().unwrap();
            Ok(tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect())
        }
    }
}

#[test]
fn ids_differ_by_what_they_do_not_mention() {
    let matrix = "matrix: { n: [1, 2] }";
    for (lines, ids) in [
        // An input is the same in all cases.
        (
            format!("inputs: {{ b: one }}\ntasks: [{{ id: \"{{{{inputs.b}}}}\", {matrix} }}]\n"),
            vec!["one[n=1]", "one[n=2]"],
        ),
        (format!("tasks: [{{ id: \"r{{{{matrix.n}}}}\", {matrix} }}]\n"), vec!["r1", "r2"]),
        (
            format!("tasks_from: rows.csv\ntasks: [{{ id: \"r{{{{matrix.n}}}}\", {matrix} }}]\n"),
            vec!["r1-row-1", "r2-row-1", "r1-row-2", "r2-row-2"],
        ),
        (
            format!("tasks_from: rows.csv\ntasks: [{{ id: \"{{{{vars.board}}}}\", {matrix} }}]\n"),
            vec!["alpha[n=1]", "alpha[n=2]", "beta[n=1]", "beta[n=2]"],
        ),
        // At the eval's level: for tasks that have none of their own, and for rows.
        (
            format!("{matrix}\ntasks: [{{ id: a }}, {{ id: b, matrix: {{ m: [x] }} }}]\n"),
            vec!["a[n=1]", "a[n=2]", "b[m=x]"],
        ),
        (format!("{matrix}\ntasks_from: rows.csv\n"), vec!["row-1[n=1]", "row-1[n=2]", "row-2[n=1]", "row-2[n=2]"]),
    ] {
        assert_eq!(cases(&lines, &[]).unwrap(), ids, "{lines}");
    }
}

#[test]
fn placeholders_have_kinds_and_types() {
    // A value that is the whole of a member has the type that the member wants.
    for member in [
        "mock: { fail: \"{{matrix.v}}\" }",
        "mock: { output: X }, graders: [{ type: output_contains, value: x, ignore_case: \"{{matrix.v}}\" }]",
    ] {
        let lines = format!("tasks: [{{ id: t, matrix: {{ v: [false, true] }}, {member} }}]\n");
        assert_eq!(cases(&lines, &[]).unwrap().len(), 2, "{member}");
    }
    let lines = "tasks: [{ id: t, matrix: { v: [1, 2.5, 3s] }, timeout: \"{{matrix.v}}\" }]\n";
    assert_eq!(cases(lines, &[]).unwrap().len(), 3);
    let error = cases("tasks: [{ id: t, matrix: { v: [1] }, mock: { fail: \"{{matrix.v}}\" } }]\n", &[]).unwrap_err();
    assert!(error.contains("mock.fail: expected true or false"), "{error}");
    let task = "inputs: { board: b }\ntasks: [{ id: t, for: [{ rail: 3V3 }], prompt: \"PROMPT\" }]\n";
    for (prompt, why) in [
        ("{{matrix.rail}}", "did you mean `{{for.rail}}`?"),
        ("{{inputs.rail}}", "did you mean `{{for.rail}}`?"),
        ("{{for.board}}", "did you mean `{{inputs.board}}`?"),
        ("{{for.rial}}", "did you mean `rail`?"),
    ] {
        let error = cases(&task.replace("PROMPT", prompt), &[]).unwrap_err();
        assert!(error.contains(why), "{prompt}: {error}");
    }
    for prompt in ["{{.Vars.rail}}", "{{vars.board}}", "{{ inputs.board }}", "{{for.rail}}"] {
        assert_eq!(cases(&task.replace("PROMPT", prompt), &[]).unwrap(), ["t[rail=3V3]"], "{prompt}");
    }
    let error = cases(&task.replace("PROMPT", "{{inputs.board}}"), &["--set", "board={{env.HOME}}"]).unwrap_err();
    assert!(error.contains("{{env.HOME}}"), "{error}");
}

#[test]
fn graders_of_the_eval_have_the_values_of_each_case() {
    let grader = "graders: [{ type: output_contains, value: \"V{{matrix.n}}\" }]\n";
    let mock = "mock: { output: \"V{{matrix.n}} of {{vars.board}}\" }";
    let matrix = "matrix: { n: [1, 2] }\n";
    let passed = |lines: &str| {
        let folder = folder(&[
            ("eval.yaml", &format!("name: cases\nconfig: {{ executor: mock }}\n{lines}")),
            ("rows.csv", "board,prompt\nalpha,a\nbeta,b\n"),
        ]);
        let (code, report, run) = run(folder.path(), &[]);
        assert!(report["errors"][0].is_null(), "{report:#}");
        (code, run["summary"]["passed"].as_u64().unwrap(), run["summary"]["total"].as_u64().unwrap())
    };
    let task = mock.replace(" of {{vars.board}}", "");
    assert_eq!(passed(&format!("{grader}{matrix}tasks: [{{ id: t, {task} }}]\n")), (0, 2, 2));
    // It is compared with the value of its own case.
    let other = task.replace("{{matrix.n}}", "1");
    assert_eq!(passed(&format!("{grader}{matrix}tasks: [{{ id: t, {other} }}]\n")), (1, 1, 2));
    // Columns of a table, with tasks and without.
    let column = grader.replace("V{{matrix.n}}", "{{.Vars.board}}");
    assert_eq!(passed(&format!("{column}{matrix}tasks_from: rows.csv\ntasks: [{{ id: t, {mock} }}]\n")), (0, 4, 4));
    assert_eq!(passed(&format!("{column}tasks_from: rows.csv\n")), (0, 2, 2));
    for (lines, why) in [
        (
            format!("{grader}tasks: [{{ id: a, {matrix}, {task} }}, {{ id: b }}, {{ id: c }}]\n").replace("\n,", ","),
            "{{matrix.n}}: there is no value of this name, of task b",
        ),
        (
            "graders: [{ type: output_range, step: s, output: v, min: 1 }]\ntasks: [{ id: a }, { id: b }]\n".into(),
            "Grader output_range refers to step s, which task a does not have",
        ),
        (
            "graders: [{ type: output_contains, value: \"{{steps.s.message}}\" }]\ntasks: [{ id: a }, { id: b }]\n"
                .into(),
            "{{steps.s.message}}: task a has no step s",
        ),
    ] {
        let error = cases(&lines, &[]).unwrap_err();
        assert_eq!(error.matches(why).count(), 1, "{error}");
        assert_eq!(error.lines().count(), 1, "said once: {error}");
    }
}

#[test]
fn two_braces_that_begin_no_placeholder_are_escaped() {
    let folder = folder(&[(
        "eval.yaml",
        r#"
name: braces
config: { executor: command, command: [sh, -c, 'cat; printf %s "$B"'], env: { B: '[{{"{{"}}env.HOME}}]' } }
tasks:
  - id: t
    name: '${{"{{"}} matrix.os }}'
    matrix: { os: [linux] }
    prompt: 'on: ${{"{{"}} matrix.os }}, {{`{{`}}steps.a.message}}, {{ "{{" }}x {{matrix.os}}'
    graders:
      - { type: output_contains, value: '${{"{{"}} matrix.os }}, {{"{{"}}steps.a.message}}, {{"{{"}}x linux' }
      - { type: output_contains, value: '[{{"{{"}}env.HOME}}]' }
      - { type: regex, pattern: '\{\{ matrix\.os \}\}' }
"#,
    )]);
    let (code, report, run) = run(folder.path(), &[]);
    assert_eq!(code, 0, "{report:#}");
    let task = &run["tasks"][0];
    assert_eq!((&task["id"], &task["name"]), (&"t[os=linux]".into(), &"${{ matrix.os }} (os=linux)".into()));
    // The executor `mock` makes up what its graders look for.
    let lines = "tasks: [{ id: t, graders: [{ type: output_contains, value: '{{\"{{\"}}steps.a.message}}' }] }]\n";
    assert_eq!(cases(lines, &[]).unwrap(), ["t"]);
}

#[test]
fn ids_have_no_characters_that_drive_a_terminal() {
    let lines = r#"tasks: [{ id: t, name: n, matrix: { v: ["a\nb", "\e[31m", "\u202Ex", "a/b", ""] } }]"#;
    assert_eq!(
        cases(&format!("{lines}\n"), &[]).unwrap(),
        ["t[v=a\\nb]", "t[v=\\u{1b}[31m]", "t[v=\\u{202e}x]", "t[v=a/b]", "t[v=]"]
    );
    for lines in [
        r#"tasks: [{ id: "a\nb" }]"#,
        r#"tasks: [{ id: "\u202E" }]"#,
        r#"tasks: [{ id: "t-{{matrix.v}}", matrix: { v: ["a\tb"] } }]"#,
        r#"tasks: [{ id: t, steps: [{ id: "\e[31m", operation: o }] }]"#,
    ] {
        let error = cases(&format!("{lines}\n"), &[]).unwrap_err();
        assert!(error.contains("id: must not have control characters"), "{lines}: {error}");
    }
}

#[test]
fn values_of_the_environment_are_in_no_report_log_or_record() {
    let folder = folder(&[(
        "eval.yaml",
        r#"
name: hidden
config: { executor: command, command: [sh, -c, 'cat; echo "$K" >&2'], allow_env: [RIGLINE_TEST_KEY], env: { K: "{{env.RIGLINE_TEST_KEY}}" } }
tasks:
  - id: t
    prompt: "key {{env.RIGLINE_TEST_KEY}}"
    graders:
      - { type: output_contains, value: "key {{env.RIGLINE_TEST_KEY}}" }
      - { type: output_contains, value: "other {{env.RIGLINE_TEST_KEY}}" }
      - { type: output_contains, name: "{{env.RIGLINE_TEST_KEY}}", value: nothing }
"#,
    )]);
    let key = "correct-horse-battery-staple".repeat(8);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = Command::new(RIGLINE)
        .args(["eval", "run", "--verbose", "--runs", &at("runs"), "--html", &at("r.html"), "--junit", &at("r.xml")])
        .args(["--ctrf", &at("r.ctrf.json"), "--tap", &at("r.tap"), "--json-file", &at("r.json")])
        .arg(folder.path())
        .env("RIGLINE_TEST_KEY", &key)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let mut texts: Vec<(String, String)> = ["r.html", "r.xml", "r.ctrf.json", "r.tap", "r.json"]
        .map(|name| (name.to_owned(), fs::read_to_string(at(name)).unwrap()))
        .into();
    for entry in fs::read_dir(at("runs")).unwrap() {
        texts.push(("the run store".into(), fs::read_to_string(entry.unwrap().path()).unwrap()));
    }
    texts.push(("stdout".into(), String::from_utf8(output.stdout).unwrap()));
    texts.push(("stderr".into(), String::from_utf8(output.stderr).unwrap()));
    assert_eq!(texts.len(), 8);
    for (name, text) in texts {
        assert!(!text.contains("correct-horse"), "{name}: {text}");
        assert!(text.contains("{{env.RIGLINE_TEST_KEY}}"), "{name}: {text}");
    }
}

#[test]
fn values_of_the_environment_are_hidden_in_targets_and_faults() {
    const EVAL: &str = r#"
name: hidden
config: { allow_env: [RIGLINE_TEST_TARGET], target: "{{env.RIGLINE_TEST_TARGET}}", model: "m {{env.RIGLINE_TEST_TARGET}}" }
tasks:
  - id: t
    steps: [{ id: read, operation: measure, args: { channel: 3V3 } }]
"#;
    let folder = folder(&[("eval.yaml", EVAL)]);
    let target = format!("exec:{RIGLINE} rig");
    let run = || {
        let mut command = Command::new(RIGLINE);
        command.args(["eval", "run", "--json", "--runs"]).arg(folder.path().join("runs")).arg(folder.path());
        command.env("RIGLINE_TEST_TARGET", &target).stdin(Stdio::null()).output().unwrap()
    };
    let output = run();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["runs"][0]["rig"]["target"], "{{env.RIGLINE_TEST_TARGET}}", "{report:#}");
    for entry in fs::read_dir(folder.path().join("runs")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(text.contains("{{env.RIGLINE_TEST_TARGET}}") && !text.contains(&target), "{text}");
    }
    let graders = "    graders: [{ type: regex, pattern: \"{{env.RIGLINE_TEST_TARGET}}(\" }]\n";
    fs::write(folder.path().join("eval.yaml"), format!("{EVAL}{graders}")).unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(text.contains("{{env.RIGLINE_TEST_TARGET}}(` is not a regular expression"), "{text}");
    assert!(!text.contains(&target), "{text}");
}

#[test]
fn measurements_without_names_are_told_apart_by_their_steps() {
    let target = board("rig", |calls, request| {
        Some(success(request, &serde_json::json!({ "volts": if calls % 2 == 1 { "3.3" } else { "5.0" } })))
    });
    let folder = folder(&[(
        "eval.yaml",
        &format!(
            "name: e\nconfig: {{ executor: extension, target: \"{target}\", trials_per_task: 2 }}\n\
             tasks:\n  - id: t\n    steps:\n      - {{ id: a, operation: measure }}\n      - {{ id: b, operation: measure }}\n\
             \u{20}   graders:\n      - {{ type: output_range, step: a, output: volts, min: 3.2, max: 3.4 }}\n\
             \u{20}     - {{ type: output_range, step: b, output: volts, min: 4.8 }}\n\
             \u{20}     - {{ type: output_range, name: fine, step: b, output: volts, max: 5.2 }}\n"
        ),
    )]);
    let (code, report, run) = run(folder.path(), &[]);
    assert_eq!(code, 0, "{report:#}");
    let all = run["tasks"][0]["measurements"].as_array().unwrap();
    let all: Vec<_> = all.iter().map(|it| (&it["name"], it["mean"].as_f64().unwrap(), &it["count"])).collect();
    let two = Value::from(2);
    assert_eq!(
        all,
        [(&"a.volts".into(), 3.3, &two), (&"b.volts".into(), 5.0, &two), (&"fine".into(), 5.0, &two)],
        "{report:#}"
    );
}

#[test]
fn members_of_another_kind_are_refused_and_not_passed_over() {
    let grader =
        |more: &str| format!("tasks: [{{ id: t, graders: [{{ type: output_contains, value: x, {more} }}] }}]\n");
    for (lines, why) in [
        // The first of a list was taken, and of an empty list nothing: the grader looked at all steps.
        (grader("step: [a, b]"), "step: expected a string, found a list"),
        (grader("step: []"), "step: expected a string, found a list"),
        (grader("metric: [m]"), "metric: expected a string, found a list"),
        (grader("output: [v]"), "output: expected a string, found a list"),
        ("inputs: [1]\ntasks: [{ id: t }]\n".into(), "inputs: expected a map, found a list"),
        ("inputs: \"{{matrix.a}}\"\ntasks: [{ id: t }]\n".into(), "inputs: expected a map, found a string"),
        ("tasks: [{ id: \"\", matrix: { a: [1, 2] } }]\n".into(), "id: must not be empty"),
        ("tasks: [{ id: t, steps: [{ id: \" \", operation: o }] }]\n".into(), "id: must not be empty"),
    ] {
        let error = cases(&lines, &[]).unwrap_err();
        assert!(error.contains(why), "{lines}: {error}");
    }
    let folder = folder(&[(
        "eval.yaml",
        "name: \"{{inputs.a}}\"\nconfig: { executor: mock }\ninputs: { a: 1 }\ntasks: [{ id: t }]\n",
    )]);
    let (_, _, run) = run(folder.path(), &[]);
    assert!(run["warnings"][0].as_str().unwrap().contains("name: placeholders have no effect here"), "{run:#}");
}

#[test]
fn limits_of_cases_are_told_at_once() {
    let tens = "matrix: { a: &l [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], b: *l, c: *l, d: *l }";
    let error =
        cases(&format!("tasks: [{{ id: a, matrix: {{ n: [1, 2] }} }}, {{ id: b, {tens} }}]\n"), &[]).unwrap_err();
    assert!(error.contains("matrix: 10000 cases after 2 tasks, and an eval has at most 10000 tasks"), "{error}");
    // One list of nearly all the values that a file may have, which took a minute.
    let values = (0..99_000).map(|value| value.to_string()).collect::<Vec<_>>().join(",");
    let began = std::time::Instant::now();
    let error = cases(&format!("tasks: [{{ id: a, matrix: {{ n: [{values}] }} }}]\n"), &[]).unwrap_err();
    assert!(error.contains("matrix: 99000 cases, and an eval has at most 10000 tasks"), "{error}");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    // What is wrong for every row is said once.
    let error = cases("tasks_from: rows.csv\ntasks: [{ id: a, matrix: { n: [] } }]\n", &[]).unwrap_err();
    assert_eq!(error.matches("matrix.n: there are no values").count(), 1, "{error}");
}

#[test]
fn validate_takes_values_too() {
    let folder = folder(&[(
        "eval.yaml",
        "name: x\nconfig: { executor: mock }\ntasks: [{ id: t, for: [{ rail: 3V3, low: 1 }, { rail: 5V0, low: 2 }] }]\n",
    )]);
    for (set, code, why) in [
        ("rail=5V0", 0, "valid"),
        ("rail=1V8", 2, "no row of for has this value"),
        ("rial=1", 2, "did you mean `rail`?"),
    ] {
        let output =
            Command::new(RIGLINE).args(["eval", "validate", "--set", set]).arg(folder.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.code() == Some(code) && text.contains(why), "{set}: {text}");
    }
}

#[test]
fn a_value_of_the_command_line_that_nothing_takes_is_refused() {
    for tasks in ["tasks_from: t.csv\n", "tasks_from: t.csv\ntasks: [{ id: a }]\n", "tasks: [{ id: a }]\n"] {
        let text = format!("name: x\nconfig: {{ executor: mock }}\ninputs: {{ rail: 3V3 }}\n{tasks}");
        let folder = folder(&[("eval.yaml", &text), ("t.csv", "id,prompt\nx,y\n")]);
        for (set, code) in [("rail=5V0", 0), ("rial=5V0", 2)] {
            let (found, report, _) = run(folder.path(), &["--set", set]);
            assert_eq!(found, code, "{tasks}{set}: {report:#}");
            let error = report["errors"][0]["error"].to_string();
            assert!(code == 0 || error.contains("did you mean `rail`?"), "{tasks}{set}: {report:#}");
        }
    }
}

#[test]
fn validate_takes_the_target_checks_the_preflight_and_hides_the_environment() {
    let step = |args: &str| format!("    steps: [{{ id: s, operation: measure, args: {{ {args} }} }}]\n");
    let validate = |head: &str, args: &str| {
        let text = format!("name: x\n{head}tasks:\n  - id: t\n{}", step(args));
        let folder = folder(&[("eval.yaml", &text)]);
        let mut command = Command::new(RIGLINE);
        command.args(["eval", "validate", "--target", "sim"]).arg(folder.path());
        let output = command.env("RIGLINE_TEST_RAIL", "hunter2secret").stdin(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let fine = "channel: 3V3";
    let (code, text) = validate("", fine);
    assert_eq!(code, 0, "{text}");
    let (code, text) = validate("health: [{ operation: nowhere }]\n", fine);
    assert!(code == 1 && text.contains("Task health, step step-1: the target has no operation nowhere"), "{text}");
    let head = "config: { allow_env: [RIGLINE_TEST_RAIL] }\n";
    let (code, text) = validate(head, "channel: 3V3, samples: \"{{env.RIGLINE_TEST_RAIL}}\"");
    assert!(code == 1 && text.contains("{{env.RIGLINE_TEST_RAIL}}") && !text.contains("hunter2secret"), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn two_thousand_cases_take_what_their_records_need() {
    let peak = |cases: usize| {
        let values = (0..cases).map(|case| case.to_string()).collect::<Vec<_>>().join(",");
        let text = format!(
            "name: many\nconfig: {{ executor: mock }}\ntasks:\n  - id: t\n    matrix: {{ n: [{values}] }}\n    steps:\n      - {{ id: s, operation: measure, args: {{ n: \"{{{{matrix.n}}}}\" }}, measure: {{ output: volts, low: 1 }} }}\n"
        );
        let folder = folder(&[("eval.yaml", &text)]);
        // The peak as the system counts it, by the shell's child.
        let script = format!(
            "import resource, subprocess, sys\n\
             code = subprocess.call([{RIGLINE:?}, 'eval', 'run', '--quiet', '--runs', 'runs', '.'], stdout=subprocess.DEVNULL)\n\
             print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        );
        let output = Command::new("python3").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (code, kib) = text.trim().split_once(' ').unwrap();
        assert_eq!(code, "0", "{}", String::from_utf8_lossy(&output.stderr));
        kib.parse::<usize>().unwrap()
    };
    let (few, many) = (peak(500), peak(2000));
    // 1,500 cases more, with their steps, grades and reports. The model of the reports is made twice: for the record of the run, by
    // the thread that ran it, and for the reports.
    assert!(many - few.min(many) < 1500 * 20, "500 cases: {few} KiB, 2,000 cases: {many} KiB");
}

/// An extension that answers each call after 0.8 s, in the protocol of the request.
const SLOW: &str = r#"
import json, sys, time
def say(message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize" and "clientInfo" in request["params"]:
        say({"jsonrpc": "2.0", "id": request["id"], "result": {"protocolVersion": request["params"]["protocolVersion"],
             "capabilities": {"tools": {}}, "serverInfo": {"name": "slow", "version": "1"}}})
    elif method == "initialize":
        say({"jsonrpc": "2.0", "id": request["id"], "result": {"name": "slow", "version": "1.0.0", "protocolVersion": "0.0.1",
             "operations": {"op": {"params": {}}}}})
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": request["id"], "result": {"tools": [{"name": "op", "inputSchema": {"type": "object"}}]}})
    elif method in ("execute", "tools/call"):
        time.sleep(0.8)
        say({"jsonrpc": "2.0", "id": request["id"], "result": {"success": True, "message": "done", "outputs": {}}
             if method == "execute" else {"content": [{"type": "text", "text": "done"}]}})
    elif request.get("op") == "describe":
        say({"name": "slow", "version": "1.0.0", "capabilities": ["op"], "kind": "tool"})
    elif request.get("op") == "health":
        say({"status": "ok"})
    elif "op" in request:
        time.sleep(0.8)
        say({"ok": True, "result": {}})
    elif method is not None and "id" in request:
        say({"jsonrpc": "2.0", "id": request["id"], "result": {}})
"#;

#[test]
fn a_call_whose_answer_comes_after_its_limit_ends_with_124_in_each_protocol() {
    let folder = folder(&[("slow.py", SLOW)]);
    let target = format!("exec:python3 -u {}", folder.path().join("slow.py").display());
    for protocol in ["gevals", "amplifier", "mcp"] {
        let call = |timeout: &str| {
            let output = Command::new(RIGLINE)
                .args(["call", &target, "op", "--protocol", protocol, "--json", "--timeout", timeout])
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let report: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{protocol}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
            (output.status.code().unwrap(), report)
        };
        let (code, report) = call("300ms");
        assert_eq!((code, &report["success"]), (124, &false.into()), "{protocol}: {report}");
        assert!(report["error"].to_string().contains("300ms"), "{protocol}: {report}");
        let (code, report) = call("30s");
        assert_eq!(code, 0, "{protocol}: {report}");
    }
}

/// `rigline serve sim` on 127.0.0.1; it ends with its owner.
struct Served(std::process::Child, u16);

impl Served {
    /// `way` is `--tcp` or `--http`.
    fn new(way: &str) -> Self {
        let mut server = Command::new(RIGLINE)
            .args(["serve", "sim", way, "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let port = line.split("127.0.0.1:").nth(1).unwrap().split(|char: char| !char.is_ascii_digit()).next().unwrap();
        Self(server, port.parse().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rigline(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(RIGLINE).args(args).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

/// pyserial/pyserial#206: two programs opened one port, and each got a part of the answers.
#[test]
fn a_run_has_its_rig_alone_whatever_the_rig_is_called() {
    let served = Served::new("--tcp");
    assert_alone(&["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"].map(|host| format!("tcp:{host}:{}", served.1)));
    let served = Served::new("--http");
    let places = ["localhost:PORT/mcp", "127.0.0.1:PORT/mcp", "127.0.0.1:PORT/invoke"];
    assert_alone(&places.map(|place| format!("http://{}", place.replace("PORT", &served.1.to_string()))));
}

/// Asserts that a run has a server alone, which has these names.
fn assert_alone(names: &[String; 3]) {
    let [localhost, address, other] = names;
    let slow = folder(&[(
        "eval.yaml",
        "name: slow\nconfig: { target: TARGET }\ntasks:\n  - id: t\n    steps:\n      - { id: w, operation: wait-for, args: { channel: 3V3, min: 9, max: 10, within_ms: 15000 }, timeout: 30s }\n",
    )]);
    let quick = folder(&[(
        "eval.yaml",
        "name: quick\nconfig: { target: TARGET }\ntasks: [ { id: t, steps: [ { id: m, operation: measure, args: { channel: 3V3 } } ] } ]\n",
    )]);
    // Sessions that are not runs share a server.
    for name in names {
        assert_eq!(rigline(&["call", name, "measure", "channel=3V3"]).0, Some(0), "{name}");
    }
    let mut first = Command::new(RIGLINE)
        // A call that asks whether it has begun is in its way for a moment.
        .args(["eval", "run", "--target", localhost, "--wait", "60s", "--runs"])
        .arg(slow.path().join("runs"))
        .arg(slow.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let has_begun = || rigline(&["call", localhost, "measure", "channel=3V3"]).0 == Some(3);
    assert!((0..300).any(|_| {
        thread::sleep(Duration::from_millis(200));
        has_begun()
    }));
    for name in [address, other, localhost] {
        let ran = run(quick.path(), &["--target", name]);
        assert_rig_error(name, &ran);
        let why = ran.2["error"].as_str().unwrap();
        assert!(why.contains(&format!(" is in use by process {} (", first.id())), "{name}: {why}");
        let (code, text) = rigline(&["call", name, "measure", "channel=3V3"]);
        assert_eq!(code, Some(3), "{name}: {text}");
        assert!(text.contains("is in use by process"), "{name}: {text}");
    }
    // The lock goes with its holder, however that ends.
    first.kill().unwrap();
    first.wait().unwrap();
    let (code, report, _) = run(quick.path(), &["--target", address, "--wait", "20s"]);
    assert_eq!(code, 0, "{report:#}");
}

#[test]
fn measurements_have_marginal_limits_and_may_be_lists_and_texts() {
    for (output, limits, judged, verdict) in [
        ("3.3", "low: 3.1, high: 3.5, marginal_low: 3.2, marginal_high: 3.4", "pass", "pass"),
        ("3.2", "low: 3.1, high: 3.5, marginal_low: 3.2, marginal_high: 3.4", "pass", "pass"),
        ("3.1999", "low: 3.1, high: 3.5, marginal_low: 3.2, marginal_high: 3.4", "pass", "marginal"),
        ("3.45", "high: 3.5, marginal_high: 3.4", "pass", "marginal"),
        ("3.6", "high: 3.5, marginal_high: 3.4", "fail", "fail"),
        ("[3.3, 3.31]", "low: 3.1, high: 3.5", "pass", "pass"),
        ("[3.3, 9]", "low: 3.1, high: 3.5", "fail", "fail"),
        ("[3.3, 3.45]", "high: 3.5, marginal_high: 3.4", "pass", "marginal"),
        ("[]", "high: 3.5", "fail", "fail"),
        ("[3.3, \"x\"]", "high: 3.5", "fail", "fail"),
        ("rev-b", "equals: rev-b", "pass", "pass"),
        ("rev-b", "equals: rev-a", "fail", "fail"),
        ("1.2.3", "matches: '\\d+\\.\\d+\\.\\d+'", "pass", "pass"),
        ("v1.2.3 and more", "matches: '\\d+\\.\\d+\\.\\d+'", "fail", "fail"),
        ("on", "one_of: [on, off]", "pass", "pass"),
        ("maybe", "one_of: [on, off]", "fail", "fail"),
    ] {
        let target =
            board("rig", move |_, request| Some(success(request, &serde_json::json!({ "v": output, "other": "1" }))));
        // Each is judged, whatever became of the others: a measurement never stops a task.
        let folder =
            eval(&target, "", &format!(", measure: [{{ output: v, {limits} }}, {{ output: other, high: 5 }}]"));
        let (_, report, one) = run(folder.path(), &[]);
        assert_eq!(one["verdict"], judged, "{output} {limits}: {report:#}");
        let graders = one["tasks"][0]["trials"][0]["graders"].as_array().unwrap();
        assert_eq!(graders[0]["measurement"]["verdict"], verdict, "{output} {limits}: {graders:#?}");
        assert_eq!(graders[1]["measurement"]["verdict"], "pass", "{output} {limits}");
    }
    for (limits, fault) in [
        ("low: 1, marginal_low: 0", "low is greater than marginal_low"),
        ("marginal_low: 2, marginal_high: 1", "marginal_low is greater than marginal_high"),
        ("marginal_high: 2, high: 1", "marginal_high is greater than high"),
        ("equals: x, low: 1", "has neither limits nor a unit"),
        ("one_of: []", "this can never pass"),
        ("matches: '('", "matches"),
        ("marginal_lo: 1", "marginal_low"),
    ] {
        let folder = eval("sim", "", &format!(", measure: {{ output: v, {limits} }}"));
        let (code, text) = rigline(&["eval", "validate", "--strict", folder.path().to_str().unwrap()]);
        assert!(code == Some(2) || code == Some(1), "{limits}: {text}");
        assert!(text.contains(fault), "{limits}: {text}");
    }
}

/// zephyrproject-rtos/zephyr#45904: the reason names the limit of the step, and what was waited.
#[test]
fn the_reason_of_a_step_without_an_answer_names_its_limit_and_no_grace_that_there_was_not() {
    // Each speaks one protocol, and refuses what it does not know.
    let slow = SLOW.replace("time.sleep(0.8)", "time.sleep(60)");
    let gevals = slow.replace("\"clientInfo\" in request[\"params\"]", "False");
    let mcp = slow.replace("elif method == \"initialize\":", "elif False:").replace(
        "say({\"jsonrpc\": \"2.0\", \"id\": request[\"id\"], \"result\": {}})",
        "say({\"jsonrpc\": \"2.0\", \"id\": request[\"id\"], \"error\": {\"code\": -32601, \"message\": \"Method not found\"}})",
    );
    let amplifier = slow.replace(
        "    method = request.get(\"method\")\n",
        "    method = None\n    if \"op\" not in request:\n        say({\"ok\": False, \"error\": {\"code\": \"bad_request\", \"message\": \"no op\"}})\n",
    );
    let files = folder(&[("gevals.py", &gevals), ("mcp.py", &mcp), ("amplifier.py", &amplifier)]);
    let why = |protocol: &str| {
        let program = files.path().join(protocol).with_extension("py");
        let folder = eval(&format!("exec:python3 -u {}", program.display()), "", ", timeout: 300ms");
        let path = folder.path().join("eval.yaml");
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("operation: measure", "operation: op")).unwrap();
        let ran = run(folder.path(), &[]);
        assert_rig_error(protocol, &ran);
        ran.2["tasks"][0]["error"].as_str().unwrap_or_else(|| panic!("{protocol}: {:#}", ran.1)).to_owned()
    };
    let gevals = why("gevals");
    assert!(gevals.contains("within 300ms (waited 2.") && gevals.contains("limit 300ms + grace 2s)"), "{gevals}");
    let mcp = why("mcp");
    assert!(mcp.contains("within 300ms (waited 0.") && !mcp.contains("grace"), "{mcp}");
    let amplifier = why("amplifier");
    assert!(amplifier.contains("no answer within 300ms (waited 2."), "{amplifier}");
}

#[test]
fn a_marginal_verdict_stands_beside_the_value_that_is_marginal() {
    let target = board("rig", |calls, request| {
        let value = ["1.5", "3", "4.000"][calls as usize - 1];
        Some(success(request, &serde_json::json!({ "v": value })))
    });
    let limits = ", measure: { output: v, low: 1, marginal_low: 2, marginal_high: 4, high: 5 }";
    let folder = eval(&target, ", trials_per_task: 3", limits);
    let junit = folder.path().join("r.xml");
    let (_, report, run) = run(folder.path(), &["--junit", junit.to_str().unwrap()]);
    let measured = &run["tasks"][0]["measurements"][0];
    assert_eq!((&measured["verdict"], &measured["marginal"]), (&"marginal".into(), &1.5.into()), "{report:#}");
    let text = fs::read_to_string(junit).unwrap();
    assert!(text.contains("v: 1.5 [1 … 5] marginal (1.5 to 4.000"), "{text}");
    assert!(text.contains("[[PROPERTY|measurement.v.value=1.5]]"), "{text}");
}

#[test]
fn each_grader_of_an_output_has_statistics_of_its_own_and_each_number_of_a_list_counts() {
    for (measured, graders, expected) in [
        (
            "",
            "[{ type: output_range, step: s, output: v, min: 50 }, { type: output_range, step: s, output: v, max: 85 }]",
            serde_json::json!([["v", 50, null, 3, "pass"], ["v (2)", null, 85, 3, "pass"]]),
        ),
        (
            "",
            "[{ type: output_range, name: a, step: s, output: v, min: 50 }, { type: output_range, name: a, step: s, output: v, max: 62 }]",
            serde_json::json!([["a", 50, null, 3, "pass"], ["a (2)", null, 62, 3, "fail"]]),
        ),
        (", measure: { output: l, low: 3, high: 4 }", "[]", serde_json::json!([["l", 3, 4, 6, "pass"]])),
        ("", "[{ type: output_range, step: s, output: l, min: 3 }]", serde_json::json!([["l", 3, null, 0, "fail"]])),
    ] {
        let target = board("rig", |calls, request| {
            Some(success(request, &serde_json::json!({ "v": (60 + calls).to_string(), "l": "[3.3, 3.30]" })))
        });
        let folder = eval(&target, ", trials_per_task: 3", measured);
        let path = folder.path().join("eval.yaml");
        fs::write(&path, fs::read_to_string(&path).unwrap() + "    graders: " + graders + "\n").unwrap();
        let (_, report, run) = run(folder.path(), &[]);
        let found = run["tasks"][0]["measurements"].as_array().unwrap();
        let found = found.iter().map(|it| ["name", "low", "high", "count", "verdict"].map(|member| it[member].clone()));
        assert_eq!(serde_json::json!(found.collect::<Vec<_>>()), expected, "{graders}: {report:#}");
    }
}
