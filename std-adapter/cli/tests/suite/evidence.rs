//! `--record`, the target `replay:DIR`, and the reports of `eval run`.

use crate::executable;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// A rig that is a shell script: it answers `initialize`, and then does as told. `$(cat)` is not used: each line is read as it comes.
const MANIFEST: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"name":"fake","version":"1.2.3","protocolVersion":"0.0.1","operations":{"go":{"params":{}}}}}"#;

fn rigline(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(RIGLINE);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env_remove("GITHUB_ACTIONS").env_remove("GITHUB_STEP_SUMMARY");
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn json(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn lines(path: impl AsRef<Path>) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn evals(name: &str) -> String {
    let evals: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware-example/evals").join(name);
    evals.to_str().unwrap().to_owned()
}

/// A script in the folder, and the target that starts it.
fn fake(folder: &Path, steps: &str) -> String {
    executable::script(folder, "fake.sh", &format!("#!/bin/sh\nread -r line\necho '{MANIFEST}'\n{steps}\n"));
    "exec:./fake.sh".to_owned()
}

fn said(id: u32, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"success":true,"message":"{message}"}}}}"#)
}

#[test]
fn a_recorded_rig_is_a_fake_rig() {
    let root = TempDir::new().unwrap();
    let recorded = rigline(root.path(), &["call", "sim", "measure", "channel=3V3", "--record", "run"]);
    assert_eq!(recorded.status.code(), Some(0), "{:?}", texts(&recorded));
    let run = json(root.path().join("run/run.json"));
    assert_eq!(
        (&run["rigline"], &run["state"], &run["exit_code"]),
        (&"recording".into(), &"complete".into(), &0.into())
    );
    let rig = &run["rigs"][0];
    assert_eq!((rig["name"].as_str(), rig["identity"]["board"].as_str()), (Some("rig"), Some("SIM-00000001")), "{run}");
    assert!(
        rig["identity"]["firmware"].is_string()
            && run["program"]["sha256"].as_str().is_some_and(|hash| hash.len() == 64)
    );
    let clock = &run["clocks"][0];
    assert!(clock["readings"] == 1 && clock["uncertainty_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{clock}");
    let session = lines(root.path().join("run/session.jsonl"));
    assert!(session.iter().any(|line| line["sent"].as_str().is_some_and(|sent| sent.contains("measure"))));
    assert!(session.iter().any(|line| line["device_ms"].is_number()));
    let times: Vec<f64> = session.iter().filter_map(|line| line["ms"].as_f64()).collect();
    assert!(times.is_sorted() && times.len() > 6, "{times:?}");
    let values = lines(root.path().join("run/values.jsonl"));
    assert!(values.iter().any(|value| value["output"] == "volts" && value["operation"] == "measure"), "{values:?}");
    assert_eq!(json(root.path().join("run/report.json"))["success"], true);

    // Twice, with the default spelt out, and by every command.
    for more in [None, Some("samples=16"), None] {
        let arguments: Vec<&str> = ["call", "replay:run", "measure", "channel=3V3"].into_iter().chain(more).collect();
        let played = rigline(root.path(), &arguments);
        assert_eq!((played.status.code(), texts(&played).0), (Some(0), texts(&recorded).0), "{:?}", texts(&played).1);
    }
    let described = rigline(root.path(), &["describe", "replay:run", "--json"]);
    assert_eq!(texts(&described).0, texts(&rigline(root.path(), &["describe", "sim", "--json"])).0);
    for (arguments, code, text) in [
        (
            &["call", "replay:run", "measure", "channel=5V0"][..],
            1,
            r#"no call `measure {"channel":"5V0"}`; it has measure {"channel":"3V3"}"#,
        ),
        (
            &["call", "replay:run", "power", "rail=3V3", "on=true"],
            1,
            "no call of `power`; it has initialize, identify, measure",
        ),
        (&["call", "replay:run", "fly"], 2, "no operation `fly`"),
        (&["call", "replay:run", "measure", "channel=3V3", "--protocol", "namel3ss"], 0, ""),
        (&["call", "replay:none", "measure"], 2, "rigline: none: "),
        (&["replay", "run"], 0, ""),
    ] {
        let output = rigline(root.path(), arguments);
        let (out, errors) = texts(&output);
        assert!(output.status.code() == Some(code) && errors.contains(text), "{arguments:?}: {out}{errors}");
    }
    // What it was recorded from still answers so.
    let played = rigline(root.path(), &["replay", "run", "sim", "--ignore", "uptime_ms"]);
    assert_eq!(played.status.code(), Some(0), "{:?}", texts(&played));
    // A bridge, and several clients of a server.
    let mut bridge =
        command(root.path(), &["bridge", "replay:run"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut requests =
        String::from(r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"0.0.1"}}"#);
    requests += "\n";
    requests += r#"{"jsonrpc":"2.0","id":"b","method":"execute","params":{"operation":"measure","args":{"channel":"3V3"},"context":{}}}"#;
    requests += "\n{\"jsonrpc\":\"2.0\",\"id\":\"c\",\"method\":\"shutdown\"}\n";
    bridge.stdin.take().unwrap().write_all(requests.as_bytes()).unwrap();
    let out = texts(&bridge.wait_with_output().unwrap()).0;
    assert!(
        out.lines().count() == 3 && out.contains(r#""id":"b","result":{"success":true,"outputs":{"volts":""#),
        "{out}"
    );
}

#[test]
fn a_recorded_eval_runs_again_in_turn_and_at_once() {
    let root = TempDir::new().unwrap();
    let eval = evals("rails");
    let run = |target: &str, more: &[&str]| {
        let mut arguments = vec!["eval", "run", &eval, "--target", target, "--runs", "runs", "--json"];
        arguments.extend(more);
        let output = rigline(root.path(), &arguments);
        let (out, errors) = texts(&output);
        let mut result: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{errors}"));
        let steps = result["runs"][0]["tasks"].take();
        let outputs: Vec<Value> = steps
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|task| task["trials"].as_array().unwrap().clone())
            .flat_map(|trial| trial["steps"].as_array().unwrap().clone())
            .map(|step| step["outputs"].clone())
            .collect();
        (output.status.code(), outputs)
    };
    let first = run("sim", &["--record", "one"]);
    assert_eq!(first.0, Some(0));
    let about = json(root.path().join("one/run.json"));
    let files: Vec<&str> = about["files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert!(files.len() == 4 && files[0].ends_with("rails/eval.yaml"), "{about}");
    assert!(
        about["files"]
            .as_array()
            .unwrap()
            .iter()
            .all(|file| file["sha256"].as_str().is_some_and(|hash| hash.len() == 64))
    );
    assert_eq!(json(root.path().join("one/report.json"))["success"], true);
    assert!(
        lines(root.path().join("one/values.jsonl"))
            .iter()
            .any(|value| value["task"] == "rail-3v3" && value["trial"] == 3)
    );
    let values = lines(root.path().join("one/values.jsonl"));
    let named = |name: &str| values.iter().filter(|value| value["measurement"]["name"] == name).count();
    assert_eq!(["volts", "fall-3v3.volts", "fall-5v0.volts"].map(named), [6, 3, 3], "{values:?}");
    for _ in 0..2 {
        assert_eq!(run("replay:one", &[]), first);
    }
    // A recording of a recording has the same values.
    assert_eq!(run("replay:one", &["--record", "two"]), first);
    assert_eq!(run("replay:two", &[]), first);
    // In parallel each worker has a rig of its own.
    fs::create_dir(root.path().join("tasks")).unwrap();
    fs::write(root.path().join("eval.yaml"), "name: many\nconfig: { target: sim, parallel: true, workers: 4, trials_per_task: 2 }\ntasks: [\"tasks/*.yaml\"]\n").unwrap();
    for number in 0..12 {
        let rail = if number % 2 == 0 { "3V3" } else { "5V0" };
        let text = format!(
            "id: t{number}\nsteps:\n  - {{ id: on, phase: setup, operation: power, args: {{ rail: \"{rail}\", on: true }} }}\n  - {{ id: m, operation: measure, args: {{ channel: \"{rail}\", samples: {} }} }}\n\
             graders:\n  - {{ type: output_range, step: m, output: volts, min: 3.1, max: 5.3 }}\n",
            number + 1
        );
        fs::write(root.path().join(format!("tasks/{number:02}.yaml")), text).unwrap();
    }
    let recorded = rigline(root.path(), &["eval", "run", ".", "--runs", "runs", "--record", "many", "-q"]);
    assert_eq!(recorded.status.code(), Some(0), "{:?}", texts(&recorded));
    let connections =
        lines(root.path().join("many/session.jsonl")).iter().filter(|line| line["event"] == "open").count();
    assert_eq!(connections, 4);
    for _ in 0..2 {
        let played = rigline(root.path(), &["eval", "run", ".", "--target", "replay:many", "--runs", "runs", "-q"]);
        assert_eq!(played.status.code(), Some(0), "{:?}", texts(&played));
    }
}

#[test]
fn losses_are_recorded_and_played() {
    let root = TempDir::new().unwrap();
    for (name, steps, code, text) in [
        ("half", "read -r line; printf '{\"jsonrpc\":\"2.0\",\"id\":2,\"resu'", 3, "fake"),
        ("silent", "read -r line; echo boom >&2", 3, "fake"),
        (
            "damaged",
            "read -r line; echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":tru}}'; read -r line",
            3,
            "cannot be used",
        ),
        ("noisy", &format!("read -r line; echo hello; echo '{}'; read -r line", said(2, "done")), 0, "hello"),
    ] {
        let target = fake(root.path(), steps);
        let first = rigline(root.path(), &["call", &target, "go", "--record", name, "--timeout", "20s"]);
        assert_eq!(first.status.code(), Some(code), "{name}: {:?}", texts(&first));
        let about = json(root.path().join(name).join("run.json"));
        assert_eq!((&about["exit_code"], &about["state"]), (&code.into(), &"complete".into()));
        let played = rigline(root.path(), &["call", &format!("replay:{name}"), "go", "--timeout", "20s"]);
        let (out, errors) = texts(&played);
        assert!(played.status.code() == Some(code) && errors.contains(text), "{name}: {out}{errors}");
    }
    assert!(lines(root.path().join("half/session.jsonl")).iter().any(|line| line["cut"] == true));
    assert!(lines(root.path().join("silent/session.jsonl")).iter().any(|line| line["stderr"] == "boom"));
    // A board that answers late is late again, and one that was never there is not there.
    let target = fake(root.path(), &format!("read -r line; sleep 4; echo '{}'; read -r line", said(2, "late")));
    for target in [target.as_str(), "replay:late"] {
        let mut arguments = vec!["call", target, "go", "--timeout", "500ms"];
        if !target.starts_with("replay") {
            arguments.extend(["--record", "late"]);
        }
        let output = rigline(root.path(), &arguments);
        assert_eq!(output.status.code(), Some(124), "{target}: {:?}", texts(&output));
    }
    let output = rigline(root.path(), &["call", "tcp:127.0.0.1:1", "go", "--record", "absent"]);
    assert_eq!(output.status.code(), Some(3));
    let output = rigline(root.path(), &["call", "replay:absent", "go"]);
    let errors = texts(&output).1;
    assert!(output.status.code() == Some(3) && errors.contains("in the recording it could not be opened"), "{errors}");
}

#[test]
fn the_clock_of_the_device_and_the_uart_of_the_board_are_recorded() {
    let root = TempDir::new().unwrap();
    let uart = |text: &str| {
        format!(
            r#"echo '{{"jsonrpc":"2.0","method":"log","params":{{"level":"info","message":"uart","data":{{"uart":"{text}","uptime_us":7500}}}}}}'"#
        )
    };
    let reply = r#"{"jsonrpc":"2.0","id":2,"result":{"success":true,"outputs":{"uptime_ms":"9"}}}"#;
    let steps =
        format!("read -r line\n{}\n{}\necho '{reply}'\nread -r line", uart("U-Boot 2026.01"), uart(r"\u001b[2J"));
    let target = fake(root.path(), &steps);
    let output = rigline(root.path(), &["call", &target, "go", "--record", "run"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
    let uart: Vec<Value> = lines(root.path().join("run/uart.jsonl"));
    assert_eq!(
        uart.iter().map(|line| line["text"].as_str().unwrap()).collect::<Vec<_>>(),
        ["U-Boot 2026.01", "\u{1b}[2J"]
    );
    let session = lines(root.path().join("run/session.jsonl"));
    let device: Vec<f64> = session.iter().filter_map(|line| line["device_ms"].as_f64()).collect();
    assert_eq!(device, [7.5, 7.5, 9.0]);
    let clock = &json(root.path().join("run/run.json"))["clocks"][0];
    let sent = session.iter().rfind(|line| line["sent"].as_str().is_some_and(|sent| sent.contains("\"go\""))).unwrap();
    let got = session.iter().rfind(|line| line["device_ms"] == 9.0).unwrap();
    let (sent, got) = (sent["ms"].as_f64().unwrap(), got["ms"].as_f64().unwrap());
    let (offset, uncertainty) = (clock["offset_ms"].as_f64().unwrap(), clock["uncertainty_ms"].as_f64().unwrap());
    assert!(
        (offset - (f64::midpoint(sent, got) - 9.5)).abs() < 0.01
            && (2.0 * uncertainty - (got - sent + 1.0)).abs() < 0.01,
        "{clock}"
    );
}

#[test]
fn a_recording_that_is_not_whole_says_so_and_hangs_nobody() {
    let root = TempDir::new().unwrap();
    assert_eq!(
        rigline(root.path(), &["call", "sim", "measure", "channel=3V3", "--record", "run"]).status.code(),
        Some(0)
    );
    let whole = fs::read(root.path().join("run/session.jsonl")).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let call = |target: &str| {
        let began = Instant::now();
        let output = rigline(
            root.path(),
            &["call", target, "measure", "channel=3V3", "--start-timeout", "5s", "--timeout", "5s"],
        );
        assert!(began.elapsed() < Duration::from_secs(20), "{target}");
        (output.status.code(), texts(&output).1)
    };
    for end in [0, 1, header - 1, header, header + 1, header + 60, whole.len() / 2, whole.len() - 700, whole.len() - 1]
    {
        fs::write(root.path().join("cut.jsonl"), &whole[..end]).unwrap();
        let (code, errors) = call("replay:cut.jsonl");
        assert!(
            matches!(code, Some(0..=3)) && (code == Some(0) || errors.contains("rigline: ")),
            "{end}: {code:?} {errors}"
        );
        let shown = rigline(root.path(), &["replay", "cut.jsonl"]);
        assert_eq!(shown.status.code(), Some(if end < header - 1 { 2 } else { 0 }), "{end}: {:?}", texts(&shown));
    }
    // The answer is missing: that is said at once, and not waited for.
    let text = String::from_utf8(whole).unwrap();
    let answer = text.find("\"got\":\"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":3").unwrap();
    fs::write(root.path().join("cut.jsonl"), &text[..answer]).unwrap();
    let (code, errors) = call("replay:cut.jsonl");
    assert!(code == Some(1) && errors.contains("the recording ends before the answer"), "{code:?} {errors}");
    for (name, content, why) in [
        ("newer", text.replace("\"version\":2", "\"version\":3"), "version 3; versions 1 to 2 are read"),
        ("damaged", text.replacen("{\"ms\"", "{ms", 3), "line 2: "),
        ("foreign", "hello\n".to_owned(), "not a transcript"),
        ("empty", String::new(), "not a transcript"),
    ] {
        fs::create_dir(root.path().join(name)).unwrap();
        fs::write(root.path().join(name).join("session.jsonl"), content).unwrap();
        let (code, errors) = call(&format!("replay:{name}"));
        assert!(code == Some(2) && errors.contains(why), "{name}: {code:?} {errors}");
        assert_eq!(rigline(root.path(), &["replay", name]).status.code(), Some(2));
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, root.path().join("fifo"), 0o600.into()).unwrap();
    assert_eq!(call("replay:fifo").0, Some(2));
    // A foreign file in the folder is nobody's business.
    fs::write(root.path().join("run/notes.txt"), "mine").unwrap();
    assert_eq!(call("replay:run").0, Some(0));
}

#[test]
fn the_folder_of_a_recording_must_be_ours() {
    let root = TempDir::new().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir(at("theirs")).unwrap();
    fs::write(at("theirs/notes"), "mine").unwrap();
    fs::write(at("file"), "x").unwrap();
    symlink("theirs", at("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into()).unwrap();
    let started = at("started");
    let target = fake(root.path(), &format!("touch {}", started.display()));
    for folder in ["theirs", "file", "link", "fifo", "/dev/full", "/dev/null/x", "file/x", "/proc/x"] {
        for arguments in [
            &["call", &target, "go", "--json", "--record", folder][..],
            &["eval", "run", &evals("rails"), "--target", &target, "--runs", "runs", "--record", folder],
        ] {
            let output = rigline(root.path(), arguments);
            let (out, errors) = texts(&output);
            assert!(output.status.code() == Some(2) && errors.contains("--record "), "{arguments:?}: {out}{errors}");
        }
    }
    assert!(!started.exists(), "nothing is started");
    assert_eq!(fs::read_dir(at("theirs")).unwrap().count(), 1);
    for (target, more) in
        [("http://127.0.0.1:1", &["--protocol", "amplifier"][..]), ("sim", &["--protocol", "namel3ss"])]
    {
        let mut arguments = vec!["call", target, "measure", "--record", "no"];
        arguments.extend(more);
        let output = rigline(root.path(), &arguments);
        assert!(output.status.code() == Some(2) && texts(&output).1.contains("is not recorded") && !at("no").exists());
    }
    // It is recorded over again, and what somebody put there stays.
    for _ in 0..2 {
        let output = rigline(root.path(), &["call", "sim", "identify", "--record", "new/run"]);
        assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
        fs::write(at("new/run/notes.txt"), "mine").unwrap();
    }
    assert_eq!(fs::read_to_string(at("new/run/notes.txt")).unwrap(), "mine");
}

#[test]
fn a_full_disk_makes_a_recording_incomplete_and_not_the_call() {
    let root = TempDir::new().unwrap();
    let script = format!("trap '' XFSZ; ulimit -f 4; exec {RIGLINE} call sim measure channel=3V3 --record run");
    let output = Command::new("sh").args(["-c", &script]).current_dir(root.path()).output().unwrap();
    let (out, errors) = texts(&output);
    assert!(out.contains("3V3 is at"), "{out}{errors}");
    assert!(output.status.code() == Some(1) && errors.contains("the recording is not complete"), "{errors}");
    assert_eq!(json(root.path().join("run/run.json"))["state"], "incomplete");
}

#[test]
fn a_full_disk_is_said_once_and_the_run_goes_on() {
    let root = TempDir::new().unwrap();
    let tasks: Vec<_> = (0..50).map(|number| format!("{{ id: t{number}, mock: {{ output: x }} }}")).collect();
    let eval = format!("name: x\nconfig: {{ executor: mock }}\ntasks: [{}]\n", tasks.join(", "));
    fs::write(root.path().join("eval.yaml"), eval).unwrap();
    let script = format!("trap '' XFSZ; ulimit -f 4; exec {RIGLINE} eval run --quiet --runs runs");
    let output = Command::new("sh").args(["-c", &script]).current_dir(root.path()).output().unwrap();
    let (out, errors) = texts(&output);
    assert!(out.contains("passed, 50 of 50 tasks passed"), "{out}{errors}");
    assert_eq!(errors.matches("the run's file cannot be written").count(), 1, "{errors}");
}

#[test]
fn no_file_has_a_character_that_drives_a_terminal() {
    let root = TempDir::new().unwrap();
    let hostile = "\\u202e \\u009b31m \\u001b]0;t\\u0007 \\uffff";
    let target = fake(root.path(), &format!("read -r line; printf '%s\\n' '{}'; read -r line", said(2, hostile)));
    let eval = format!(
        "name: \"x {hostile}\"\nconfig: {{ target: \"{target}\" }}\ntasks:\n  - id: t\n    name: \"{hostile}\"\n\
         \u{20}   steps: [{{ id: s, operation: go }}]\n\
         \u{20}   graders: [{{ type: output_contains, step: s, name: \"{hostile}\", value: \"not {hostile}\" }}]\n"
    );
    fs::write(root.path().join("eval.yaml"), eval).unwrap();
    let reports =
        ["--junit", "r.xml", "--ctrf", "r.ctrf.json", "--tap", "r.tap", "--html", "r.html", "--json-file", "r.json"];
    for (arguments, code) in [
        ([&["eval", "run", "--runs", "runs", "--record", "run"][..], &reports].concat(), 1),
        (vec!["call", &target, "go", "--record", "call"], 0),
        (vec!["check", &target, "--junit", "check.xml", "--json-file", "check.json", "--call", "go"], 1),
    ] {
        let output = rigline(root.path(), &arguments);
        assert_eq!(output.status.code(), Some(code), "{:?}", texts(&output));
    }
    let mut files: Vec<_> = ["r.xml", "r.ctrf.json", "r.tap", "r.html", "r.json", "check.xml", "check.json"]
        .map(|name| root.path().join(name))
        .into();
    for folder in ["run", "call"] {
        files.extend(fs::read_dir(root.path().join(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    assert_eq!(files.len(), 15, "{files:?}");
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let bad = |char: &char| !matches!(char, '\n' | '\t') && rigline_host::terminal::is_control(*char);
        assert_eq!(text.chars().find(bad), None, "{}: {text}", path.display());
    }
}

#[test]
fn a_recording_survives_what_ends_its_command() {
    let root = TempDir::new().unwrap();
    let target = fake(root.path(), "read -r line; sleep 60");
    for (name, signal, state, code) in
        [("interrupted", Signal::INT, "complete", Some(130)), ("killed", Signal::KILL, "recording", None)]
    {
        let mut child =
            command(root.path(), &["call", &target, "go", "--record", name]).stderr(Stdio::null()).spawn().unwrap();
        let session = root.path().join(name).join("session.jsonl");
        let began = Instant::now();
        while !fs::read_to_string(&session).is_ok_and(|text| text.contains("\\\"execute\\\"")) {
            assert!(began.elapsed() < Duration::from_secs(30));
            sleep(Duration::from_millis(20));
        }
        if signal == Signal::INT {
            // Meanwhile nobody else records there.
            let other = rigline(root.path(), &["call", "sim", "identify", "--record", name]);
            assert!(
                other.status.code() == Some(2) && texts(&other).1.contains("another process"),
                "{:?}",
                texts(&other)
            );
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), code);
        assert_eq!(json(root.path().join(name).join("run.json"))["state"], state);
        let shown = rigline(root.path(), &["replay", name]);
        assert!(shown.status.success() && texts(&shown).0.contains("execute go"), "{:?}", texts(&shown));
    }
}

#[test]
fn reports_that_cannot_be_written_are_refused_before_the_run() {
    let root = TempDir::new().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("file"), "x").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into()).unwrap();
    let eval = evals("rails");
    for option in ["--ctrf", "--tap", "--html"] {
        for file in ["folder", "fifo", "/dev/full", "file/x", "/proc/x"] {
            let output =
                rigline(root.path(), &["eval", "run", &eval, "--target", "sim", "--runs", "runs", option, file]);
            let (out, errors) = texts(&output);
            assert!(
                output.status.code() == Some(2) && errors.contains(option) && !errors.contains("Running"),
                "{option} {file}: {out}{errors}"
            );
        }
        for other in [&["--json"][..], &["--junit", "-"]] {
            let mut arguments = vec!["eval", "run", &eval, "--target", "sim", "--runs", "runs", option, "-"];
            arguments.extend(other);
            let output = rigline(root.path(), &arguments);
            assert!(
                output.status.code() == Some(2) && texts(&output).1.contains("standard output"),
                "{:?}",
                texts(&output)
            );
        }
    }
    let output = rigline(root.path(), &["eval", "run", &eval, "--runs", "runs", "--tap", "same", "--ctrf", "same"]);
    assert!(
        output.status.code() == Some(2) && texts(&output).1.contains("another report goes there"),
        "{:?}",
        texts(&output)
    );
    assert!(!at("runs").exists(), "nothing was run");
    // A link is replaced, and what it leads to stays.
    symlink("file", at("link")).unwrap();
    let output =
        rigline(root.path(), &["eval", "run", &eval, "--target", "sim", "--runs", "runs", "-q", "--html", "link"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "x");
    assert!(fs::read_to_string(at("link")).unwrap().starts_with("<!DOCTYPE html>"));
}

#[test]
fn all_reports_of_one_run_agree() {
    let root = TempDir::new().unwrap();
    let at = |name: &str| root.path().join(name);
    let (good, broken) = (evals("rails"), evals("broken"));
    let run = || {
        let output = command(
            root.path(),
            &[
                "eval",
                "run",
                &good,
                &broken,
                "missing.yaml",
                "--target",
                "sim",
                "--runs",
                "runs",
                "--ctrf",
                "ctrf.json",
                "--html",
                "new/page.html",
                "--tap",
                "-",
            ],
        )
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", at("summary.md"))
        .output()
        .unwrap();
        (output.status.code(), texts(&output))
    };
    run();
    let (code, (tap, errors)) = run();
    assert_eq!(code, Some(2), "one cannot be run: {errors}");
    let points: Vec<&str> = tap.lines().filter(|line| line.starts_with("ok ") || line.starts_with("not ok ")).collect();
    assert_eq!((points.len(), points.iter().filter(|line| line.starts_with("ok ")).count()), (7, 3), "{tap}");
    assert!(tap.starts_with("TAP version 14\n1..7\n") && points[6].contains("missing.yaml"), "{tap}");
    let report = json(at("ctrf.json"));
    let summary = &report["results"]["summary"];
    assert_eq!(
        (&summary["tests"], &summary["passed"], &summary["failed"]),
        (&7.into(), &3.into(), &4.into()),
        "{summary}"
    );
    assert!(summary["start"].as_u64() < summary["stop"].as_u64());
    let page = fs::read_to_string(at("new/page.html")).unwrap();
    for text in ["3V3 within 5 %", ">volts<", "output_range: ", "<svg", "Trend", "The last 2 runs", "Logs ("] {
        assert!(page.contains(text), "{text}");
    }
    let summary = fs::read_to_string(at("summary.md")).unwrap();
    assert_eq!(summary.matches("## rigline").count(), 2, "it is added to: {summary}");
    let commands: Vec<&str> = errors.lines().filter(|line| line.starts_with("::")).collect();
    let token = commands[0].strip_prefix("::stop-commands::").unwrap();
    assert_eq!(commands[1], format!("::{token}::"));
    assert!(commands.len() == 6 && commands[2..].iter().all(|line| line.starts_with("::error ")), "{commands:?}");
}
