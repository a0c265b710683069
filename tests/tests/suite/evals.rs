//! The rig's evals on the emulated RP2040: the firmware's image, over its USB serial port.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rigline::protocol::waza::{RunState, Verdict};
use rigline_eval::run::{Event, OnEvent, RunOutcome};
use rigline_eval::runs::{Request, Runs};
use rigline_eval::store::Store;
use rigline_tests::emulator::{Emulator, read_line};
use serde_json::{Value, json};

/// Runs an eval; cancels it in the operation after the one that logs this.
fn run(eval: &Path, target: &str, cancel_at: Option<&str>) -> (Arc<RunOutcome>, String) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let runs = Runs::new(Store::open(folder.path().to_owned()).unwrap(), None);
    let mut request = Request::default();
    request.path = eval.to_owned();
    request.overrides.target = Some(target.to_owned());
    request.verbose = true;
    let accepted = runs.accept(&request).unwrap();
    let id = accepted.id().to_owned();
    let (logger, logged) = mpsc::channel();
    let logger = Mutex::new(logger);
    let on_event: OnEvent = Arc::new(move |event| {
        if let Event::Log { message, .. } = event {
            let _ = logger.lock().unwrap().send(message);
        }
    });
    let (sender, done) = mpsc::channel();
    accepted.launch(runtime.handle(), on_event, move |outcome| drop(sender.send(outcome)));
    let mut logs = String::new();
    if let Some(sign) = cancel_at {
        while !logs.contains(sign) {
            logs += &(logged.recv_timeout(Duration::from_secs(60)).unwrap() + "\n");
        }
        // The reply to what has logged, and the next operation.
        thread::sleep(Duration::from_secs(2));
        assert_eq!(runs.cancel(&id).unwrap(), Some(RunState::Cancelled));
    }
    let outcome = done.recv_timeout(Duration::from_secs(180)).unwrap();
    logs.extend(logged.try_iter().map(|log| log + "\n"));
    (outcome, logs)
}

#[test]
fn the_rigs_evals_pass_on_the_emulated_board() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let target = format!("tcp:127.0.0.1:{}", emulator.usb_port());
    let evals = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-example/evals");
    for (eval, passed, total) in
        [("rails", 3, 3), ("boot", 3, 3), ("first-bench", 2, 2), ("values", 4, 4), ("broken", 0, 3)]
    {
        let (outcome, logs) = run(&evals.join(eval), &target, None);
        assert_eq!((outcome.summary.total, outcome.summary.passed), (total, passed), "{eval}: {logs}");
        assert_eq!(outcome.passed, passed > 0, "{eval}: {logs}");
    }
}

/// Whether a rail of the board under test has no voltage, soon.
fn falls(emulator: &Emulator, rail: &str) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        let state = emulator.control(&json!({ "cmd": "dut" }));
        if state["rails"][rail].as_f64().unwrap_or_else(|| panic!("{state}")) < 50.0 {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn a_run_on_the_emulated_board_is_cancelled_in_the_middle_of_an_operation() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let folder = tempfile::tempdir().unwrap();
    let eval = folder.path().join("eval.yaml");
    fs::write(
        &eval,
        "name: cancelled\ntasks:\n  - id: t\n    steps:\n\
        \x20     - { id: on, phase: setup, operation: power, args: { rail: 3V3, on: true } }\n\
        \x20     - { id: long, operation: wait-for, args: { channel: 5V0, min: 4.5, max: 5.5, within_ms: 60000 } }\n\
        \x20     - { id: never, operation: identify }\n\
        \x20     - { id: off, phase: cleanup, operation: power, args: { rail: 3V3, on: false } }\n",
    )
    .unwrap();
    let start = Instant::now();
    let (outcome, logs) = run(&eval, &format!("tcp:127.0.0.1:{}", emulator.usb_port()), Some("3V3 on"));
    assert_eq!(outcome.state, RunState::Cancelled, "{logs}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    let steps: Vec<_> = outcome.tasks[0].trials[0].steps.iter().map(|step| (step.id.as_str(), step.verdict)).collect();
    // Cleanup ran on the board, in a separate session.
    assert_eq!(steps[0], ("on", Verdict::Passed), "{logs}");
    assert_eq!(steps.last(), Some(&("off", Verdict::Passed)), "{steps:?} {logs}");
    assert!(!steps.iter().any(|(id, _)| *id == "never"), "{steps:?}");
    assert!(falls(&emulator, "3v3"));
}

#[test]
fn the_boards_own_eval_is_cancelled_in_the_middle_of_a_task() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut usb = emulator.usb();
    let next = |usb: &mut TcpStream| serde_json::from_slice::<Value>(&read_line(usb)).unwrap();
    let say = |usb: &mut TcpStream, id: u32, method: &str, params: Value| {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        usb.write_all((line + "\n").as_bytes()).unwrap();
    };
    say(&mut usb, 1, "eval.run", json!({ "path": "self-test" }));
    let run = next(&mut usb)["result"]["runId"].clone();
    assert!(run.is_string());
    // The one that takes its time: the board under test boots for 300 ms.
    let is_boot = |line: &Value| line["params"]["event"] == "trial_start" && line["params"]["taskName"] == "boot";
    while !is_boot(&next(&mut usb)) {}
    say(&mut usb, 2, "run.cancel", json!({ "runId": run }));
    let mut lines = vec![next(&mut usb)];
    while lines.last().unwrap()["method"] != "eval.complete" {
        lines.push(next(&mut usb));
    }
    let reply = lines.iter().position(|line| line["id"] == 2).unwrap();
    assert_eq!(lines[reply]["result"], json!({ "runId": run, "status": "cancelled" }));
    // Stopped within the task: that task is cancelled, and none comes after it.
    let ended = lines.iter().find(|line| line["params"]["event"] == "task_complete").unwrap();
    assert_eq!((&ended["params"]["taskName"], &ended["params"]["status"]), (&json!("boot"), &json!("cancelled")));
    assert!(!lines.iter().any(|line| line["params"]["event"] == "task_start"), "{lines:#?}");
    assert_eq!(lines.last().unwrap()["params"], json!({ "runId": run, "error": "the run was cancelled" }));
    assert!(falls(&emulator, "3v3"), "the board is in its safe state");
    say(&mut usb, 3, "run.status", json!({ "runId": run }));
    assert_eq!(next(&mut usb)["result"]["status"], "cancelled");
    // The board goes on as ever.
    say(&mut usb, 4, "execute", json!({ "operation": "identify", "context": {} }));
    while next(&mut usb)["id"] != 4 {}
}
