//! `rigline lock` and `rigline lab`: one rig and many who want it.
#![cfg(target_os = "linux")]

use rigline_test_support as _;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

/// A lab of its own, whose agent ends with it.
struct Lab {
    folder: TempDir,
}

impl Lab {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn with_rigs(rigs: &str) -> Self {
        let lab = Self::new();
        fs::write(lab.path("rigs.toml"), rigs).unwrap();
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rigline"));
        command.args(args).env("RIGLINE_LAB_DIR", self.folder.path()).env("FOLDER", self.folder.path());
        command.env("RIGLINE", env!("CARGO_BIN_EXE_rigline"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The exit code and what was said.
    fn said(&self, args: &[&str]) -> (i32, String) {
        said(&self.run(args))
    }

    /// Locks `rig` for a script, and returns when the script has written the file `started`.
    fn holder(&self, rig: &str, script: &str) -> Child {
        let script = format!("touch $FOLDER/started; {script}");
        let child = self.command(&["lock", rig, "--wait", "20s", "--", "sh", "-c", &script]).spawn().unwrap();
        self.wait_for("started");
        fs::remove_file(self.path("started")).unwrap();
        child
    }

    fn wait_for(&self, name: &str) {
        until(&format!("{name} is written"), || self.path(name).exists());
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["lab", "status", "--json"]).stdout).unwrap()
    }

    fn agent(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.status()["agent"]["pid"].as_i64().unwrap()).unwrap()).unwrap()
    }

    fn state(&self, rig: &str) -> Value {
        let status = self.status();
        let rigs = status["rigs"].as_array().unwrap();
        rigs.iter().find(|found| found["name"] == rig).map_or(Value::Null, |rig| rig["state"].clone())
    }

    fn waiting(&self) -> usize {
        self.status()["queue"].as_array().unwrap().len()
    }

    fn is_in_order(&self) {
        let (code, said) = self.said(&["lab", "check"]);
        assert_eq!(code, 0, "{said}");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let output = self.run(&["lab", "status", "--json"]);
        if let Ok(status) = serde_json::from_slice::<Value>(&output.stdout)
            && let Some(pid) = status["agent"]["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn said(output: &Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

fn ended(child: Child) -> (i32, String) {
    said(&child.wait_with_output().unwrap())
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let given_up = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < given_up, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The number that a script has written into a file.
fn written(lab: &Lab, name: &str) -> Pid {
    until(name, || fs::read_to_string(lab.path(name)).is_ok_and(|text| text.ends_with('\n')));
    Pid::from_raw(fs::read_to_string(lab.path(name)).unwrap().trim().parse().unwrap()).unwrap()
}

fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn eight_who_wait_get_the_rig_one_at_a_time_in_their_order() {
    let lab = Lab::new();
    let first = lab.holder("sim", "while [ ! -e $FOLDER/go ]; do sleep 0.02; done");
    let script = "echo begin $0 >> $FOLDER/log; sleep 0.05; echo end $0 >> $FOLDER/log";
    let mut others = Vec::new();
    for number in 0..8 {
        let args = ["lock", "sim", "--wait", "5m", "--", "sh", "-c", script, &number.to_string()];
        others.push(lab.command(&args).spawn().unwrap());
        until("it has its place", || lab.waiting() == number + 1);
    }
    fs::write(lab.path("go"), "").unwrap();
    for child in others.into_iter().chain([first]) {
        let (code, said) = ended(child);
        assert_eq!(code, 0, "{said}");
    }
    let expected: String = (0..8).map(|number| format!("begin {number}\nend {number}\n")).collect();
    assert_eq!(fs::read_to_string(lab.path("log")).unwrap(), expected);
    lab.is_in_order();
}

#[test]
fn the_exit_code_is_the_commands_or_says_why_there_was_none() {
    let lab = Lab::with_rigs("[[rig]]\nname = 'pico1'\ntarget = 'sim'\ntags = { board = 'pico' }\n");
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let (code, said) = lab.said(&["lock", "rig:pico1", "--wait", "20s", "--", "sh", "-c", script]);
        assert_eq!(code, expected, "{said}");
    }
    let holder = lab.holder("rig:board=pico", "echo $RIGLINE_RIGS; while [ ! -e $FOLDER/go ]; do sleep 0.02; done");
    for (args, expected, why) in [
        (&["lock", "rig:board=pixo"][..], 2, "the nearest tags: board=pico"),
        (&["lock", "rig:pico2"], 2, "the nearest rigs: pico1"),
        (&["lock", "rig:pico1", "--count", "2"], 2, "2 rigs are wanted, and 1 match"),
        (&["lock", "http://localhost/"], 2, "cannot be locked"),
        (&["lock", "rig:pico1"], 3, " has pico1 for 30 min more at most; --wait 10m waits for it"),
        (&["lock", "rig:pico1", "--wait", "100ms"], 124, "the wait for rig:pico1 is over: "),
    ] {
        let started = Instant::now();
        let (code, said) = lab.said(&[args, &["--", "touch", "/nowhere/never"]].concat());
        assert!(code == expected && said.contains(why), "{args:?}: {code}: {said}");
        assert!(started.elapsed() < Duration::from_secs(20), "{args:?}");
    }
    let (code, said) = lab.said(&["lock", "rig:pico1", "--", "no-such-program"]);
    assert!(code == 2 && said.contains("there is no program `no-such-program`"), "{said}");
    fs::write(lab.path("go"), "").unwrap();
    let output = holder.wait_with_output().unwrap();
    // Its standard error may say that the rig was being made safe at first.
    assert!(output.status.success() && output.stdout == b"pico1\n", "{output:?}");
}

#[test]
fn a_killed_wrapper_frees_the_rig_and_leaves_no_process() {
    // labgrid-project/labgrid#1739: a cancelled job of CI.
    let lab = Lab::new();
    for kills_group in [false, true] {
        let mut command = lab.command(&[
            "lock",
            "sim",
            "--",
            "sh",
            "-c",
            "echo $$ > $FOLDER/pid; trap '' TERM; sleep 600; sleep 600",
        ]);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut wrapper = command.spawn().unwrap();
        let inner = written(&lab, "pid");
        fs::remove_file(lab.path("pid")).unwrap();
        if kills_group {
            kill_process_group(pid(&wrapper), Signal::KILL).unwrap();
        } else {
            kill_process(pid(&wrapper), Signal::KILL).unwrap();
        }
        wrapper.wait().unwrap();
        let (code, said) = lab.said(&["lock", "sim", "--wait", "30s", "--", "true"]);
        assert_eq!(code, 0, "{said}");
        assert!(!is_alive(inner));
        lab.is_in_order();
    }
}

#[test]
fn ctrl_c_while_waiting_gives_the_place_up() {
    // jumpstarter-dev/jumpstarter#120
    let lab = Lab::new();
    let holder = lab.holder("sim", "while [ ! -e $FOLDER/go ]; do sleep 0.02; done");
    let lock = ["lock", "sim", "--wait", "5m", "--", "true"];
    let waits = lab.command(&lock).spawn().unwrap();
    until("it waits", || lab.waiting() == 1);
    let next = lab.command(&lock).spawn().unwrap();
    until("both wait", || lab.waiting() == 2);
    kill_process(pid(&waits), Signal::INT).unwrap();
    assert_eq!(ended(waits).0, 130);
    until("its place is gone", || lab.waiting() == 1);
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!((ended(next).0, ended(holder).0), (0, 0));
}

#[test]
fn what_a_command_leaves_running_is_ended_before_the_next_holder() {
    // zephyrproject-rtos/zephyr#32679: a daemon that holds the port.
    let lab = Lab::new();
    let script = "setsid env -u RIGLINE_LEASE sh -c 'echo $$ > $FOLDER/pid; trap \"\" TERM HUP; while :; do sleep 0.05; done' & while [ ! -e $FOLDER/pid ]; do sleep 0.02; done";
    let (code, said) = lab.said(&["lock", "sim", "--", "sh", "-c", script]);
    assert_eq!(code, 0, "{said}");
    assert!(!is_alive(written(&lab, "pid")));
    lab.is_in_order();
}

#[test]
fn a_killed_agent_loses_no_lease_and_no_place_and_ends_no_command() {
    // labgrid-project/labgrid#748, labgrid-project/labgrid#947
    let lab = Lab::new();
    let holder = lab.holder("sim", "while [ ! -e $FOLDER/go ]; do sleep 0.02; done; exit 5");
    let next = lab.command(&["lock", "sim", "--wait", "5m", "--", "sh", "-c", "exit 6"]).spawn().unwrap();
    until("it waits", || lab.waiting() == 1);
    for loses_books in [false, true] {
        let before = lab.agent();
        if loses_books {
            fs::remove_file(lab.path("books.redb")).unwrap();
        }
        kill_process(before, Signal::KILL).unwrap();
        until("the next agent knows both", || {
            let status = lab.status();
            lab.agent() != before && status["rigs"][0]["state"] == "leased" && lab.waiting() == 1
        });
        // It is still the holder's.
        let (code, said) = lab.said(&["lock", "sim", "--", "true"]);
        assert!(code == 3 && said.contains(" has sim for "), "{code}: {said}");
        lab.is_in_order();
    }
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!((ended(holder).0, ended(next).0), (5, 6));
    lab.is_in_order();
}

#[test]
fn a_killed_keeper_leaves_no_process_of_its_command() {
    let lab = Lab::new();
    let holder =
        lab.holder("sim", "echo $PPID > $FOLDER/keeper; echo $$ > $FOLDER/pid; trap '' TERM; sleep 600; sleep 600");
    let (keeper, inner) = (written(&lab, "keeper"), written(&lab, "pid"));
    kill_process(keeper, Signal::KILL).unwrap();
    assert_eq!(ended(holder).0, 137);
    let (code, said) = lab.said(&["lock", "sim", "--wait", "30s", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    assert!(!is_alive(inner));
    lab.is_in_order();
}

#[test]
fn all_of_a_holder_and_the_agent_killed_at_once_frees_the_rig() {
    let lab = Lab::new();
    let mut holder = lab.holder("sim", "echo $PPID > $FOLDER/keeper; echo $$ > $FOLDER/pid; sleep 600; sleep 600");
    let (keeper, inner, agent) = (written(&lab, "keeper"), written(&lab, "pid"), lab.agent());
    for process in [agent, keeper, pid(&holder)] {
        kill_process(process, Signal::KILL).unwrap();
    }
    holder.wait().unwrap();
    let (code, said) = lab.said(&["lock", "sim", "--wait", "30s", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    assert!(!is_alive(inner));
}

#[test]
fn a_broken_lease_ends_its_command_which_is_told_by_whom_and_why() {
    // labgrid-project/labgrid#449
    let lab = Lab::new();
    let holder = lab.holder("sim", "echo $$ > $FOLDER/pid; trap '' TERM; sleep 600; sleep 600");
    let inner = written(&lab, "pid");
    assert_eq!(lab.said(&["lab", "break", "sim"]).0, 2);
    let (code, said) = lab.said(&["lab", "break", "sim", "--reason", "the fire alarm"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = ended(holder);
    assert!(code == 3 && said.contains("the lease was ended by ") && said.contains("the fire alarm"), "{code}: {said}");
    assert!(!is_alive(inner));
    until("it is free", || lab.state("sim") == Value::Null || lab.state("sim") == "free");
    let (code, said) = lab.said(&["lab", "log", "sim"]);
    assert!(code == 0 && said.contains("the fire alarm"), "{said}");
}

#[test]
fn a_lease_is_over_when_its_time_is_also_for_a_stopped_command() {
    let lab = Lab::new();
    let script = "echo $PPID > $FOLDER/keeper; echo $$ > $FOLDER/pid; sleep 600; sleep 600";
    let wrapper = lab.command(&["lock", "sim", "--ttl", "1s", "--", "sh", "-c", script]).spawn().unwrap();
    let (keeper, inner) = (written(&lab, "keeper"), written(&lab, "pid"));
    // Not even its keeper can do anything.
    for process in [keeper, inner] {
        kill_process(process, Signal::STOP).unwrap();
    }
    let (code, said) = lab.said(&["lock", "sim", "--wait", "60s", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    assert!(!is_alive(inner) && !is_alive(keeper));
    assert_eq!(ended(wrapper).0, 137);
}

#[test]
fn a_rig_in_quarantine_is_refused_with_the_reason_until_it_is_cleared() {
    let lab =
        Lab::with_rigs("[[rig]]\nname = 'bad'\ntarget = 'exec:/bin/false'\n[[rig]]\nname = 'good'\ntarget = 'sim'\n");
    let (code, said) = lab.said(&["lock", "rig:bad", "--", "true"]);
    assert!(code == 3 && said.contains("bad is in quarantine") && said.contains("it is tried again in "), "{said}");
    let (code, said) = lab.said(&["lab", "check"]);
    assert!(code == 3 && said.contains("1 rig is not usable"), "{said}");
    assert_eq!(lab.said(&["lab", "quarantine", "good", "--reason", "the probe is bent"]).0, 0);
    let (code, said) = lab.said(&["lock", "rig:good", "--wait", "10m", "--", "true"]);
    assert!(code == 3 && said.contains("the probe is bent"), "{said}");
    assert_eq!(lab.said(&["lab", "quarantine", "good", "--clear"]).0, 0);
    let (code, said) = lab.said(&["lock", "rig:good", "--wait", "20s", "--", "true"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn several_rigs_are_locked_together_and_the_list_shows_them() {
    let rigs: String = (1..=3)
        .map(|number| format!("[[rig]]\nname = 'r{number}'\ntarget = 'sim'\ntags = {{ board = 'sim' }}\n"))
        .collect();
    let lab = Lab::with_rigs(&rigs);
    let (code, said) = lab.said(&["lock", "rig:board=sim", "--count", "3", "--", "sh", "-c", "echo $RIGLINE_RIGS"]);
    assert_eq!((code, said.as_str()), (0, "r1 r2 r3\n"));
    // Within a lock, a second one joins the first.
    let inner = "$RIGLINE lock rig:r2 -- sh -c 'echo $RIGLINE_RIGS; exit 4'";
    let (code, said) = lab.said(&["lock", "rig:r2", "--", "sh", "-c", inner]);
    assert_eq!((code, said.as_str()), (4, "r2\n"));
    let (code, said) = lab.said(&["lab", "list", "rig:board=sim", "--json"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap().as_array().unwrap().len(), 3);
    assert_eq!(lab.said(&["lab", "list", "rig:board=none"]).0, 2);
}

#[test]
fn an_agent_that_nobody_needs_ends_and_a_second_one_is_refused() {
    let lab = Lab::new();
    let mut agent = lab.command(&["lab", "agent", "--idle", "1s"]).spawn().unwrap();
    until("it listens", || lab.path("agent.sock").exists());
    let (code, said) = lab.said(&["lab", "agent"]);
    assert!(code == 1 && said.contains("another agent runs"), "{code}: {said}");
    assert!(agent.wait().unwrap().success());
    assert!(!lab.path("agent.sock").exists());
}

/// `rigline call` of the rig's `power`, or of another operation.
fn call<'a>(rig: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["call", rig][..], rest, &["--json"]].concat()
}

/// A board: `rigline serve sim --tcp`, whose state outlives its clients.
struct Board {
    child: Child,
    target: String,
}

impl Board {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rigline"))
            .args(["serve", "sim", "--tcp", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let address = line.trim().rsplit("tcp:").next().unwrap().to_owned();
        Self { child, target: format!("tcp:{address}") }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_command_takes_rigs_and_has_a_lease_for_its_own_time() {
    let lab = Lab::with_rigs("[[rig]]\nname = 'r1'\ntarget = 'sim'\ntags = { board = 'sim' }\n");
    let (code, said) = lab.said(&["describe", "rig:r1"]);
    assert!(code == 0 && said.contains("measure"), "{code}: {said}");
    let (code, said) = lab.said(&call("rig:board=sim", &["measure", "channel=3V3"]));
    assert!(code == 0 && said.contains("volts"), "{code}: {said}");
    // Other protocols go the same way.
    for protocol in ["amplifier", "mcp", "namel3ss"] {
        let (code, said) = lab.said(&call("rig:r1", &["measure", "channel=3V3", "--protocol", protocol]));
        assert!(code == 0 && said.contains("volts"), "{protocol}: {code}: {said}");
    }
    let (code, said) = lab.said(&["check", "rig:r1"]);
    assert!(code == 0 && said.contains(" 0 failed"), "{code}: {said}");
    for (rig, expected, why) in [
        ("rig:r2", 2, "the nearest rigs: r1"),
        ("rig:board=pico", 2, "the nearest tags: board=sim"),
        ("rig:", 2, "names no rig"),
    ] {
        let (code, said) = lab.said(&["call", rig, "measure", "channel=3V3"]);
        assert!(code == expected && said.contains(why), "{rig}: {code}: {said}");
    }
    until("the last lease has ended", || lab.state("r1") == "free");
    lab.is_in_order();
}

#[test]
fn a_command_that_connects_to_its_rig_several_times_is_not_in_its_own_way() {
    // It speaks gevals only, and is asked by other protocols first, each time over a connection of its own.
    let script = r#"#!/bin/sh
while read -r line; do
  id=${line#*'"id":'}; id=${id%%[!0-9]*}
  case $line in
    *initialize*) result='{"name":"one","version":"1.0.0","protocolVersion":"0.0.1","operations":{"go":{"params":{}}}}' ;;
    *shutdown*) result='{}' ;;
    *) result='{"success":true}' ;;
  esac
  printf '%s\n' "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}"
  case $line in *shutdown*) exit 0 ;; esac
done
"#;
    let lab = Lab::new();
    fs::write(lab.path("extension"), script).unwrap();
    let target = format!("exec:sh {}", lab.path("extension").display());
    fs::write(lab.path("rigs.toml"), format!("[[rig]]\nname = 'r1'\ntarget = '{target}'\n")).unwrap();
    for _ in 0..3 {
        let mut bridge = lab.command(&["bridge", "rig:r1", "--protocol", "amplifier"]);
        let mut bridge = bridge.stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut bridge.stdin.take().unwrap(), b"{\"op\":\"describe\"}\n").unwrap();
        let (code, said) = ended(bridge);
        assert!(code == 0 && said.contains(r#""capabilities":["go"]"#), "{code}: {said}");
    }
    until("the last lease has ended", || lab.state("r1") == "free");
    lab.is_in_order();
}

#[test]
fn a_rig_that_another_one_has_is_refused_or_waited_for() {
    let lab = Lab::with_rigs("[[rig]]\nname = 'r1'\ntarget = 'sim'\n");
    let holder = lab.holder("rig:r1", "while [ ! -e $FOLDER/go ]; do sleep 0.02; done");
    let (code, said) = lab.said(&["call", "rig:r1", "measure", "channel=3V3"]);
    assert!(code == 3 && said.contains(" has r1 for "), "{code}: {said}");
    let (code, said) = lab.said(&["call", "rig:r1", "measure", "channel=3V3", "--wait", "200ms"]);
    assert!(code == 124 && said.contains("is over"), "{code}: {said}");
    // Longer than the time in which an extension must start.
    let waits = ["call", "rig:r1", "measure", "channel=3V3", "--wait", "1m", "--start-timeout", "1s"];
    let waits = lab.command(&waits).spawn().unwrap();
    until("it waits", || lab.waiting() == 1);
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(lab.waiting(), 1);
    fs::write(lab.path("go"), "").unwrap();
    let (code, said) = ended(waits);
    assert_eq!(code, 0, "{said}");
    assert_eq!(ended(holder).0, 0);
}

#[test]
fn commands_within_a_lock_join_its_lease_and_the_next_holder_finds_the_safe_state() {
    let board = Board::start();
    let lab = Lab::with_rigs(&format!("[[rig]]\nname = 'r1'\ntarget = '{}'\n", board.target));
    let rigline = env!("CARGO_BIN_EXE_rigline");
    let on =
        format!("{rigline} call rig:r1 power rail=3V3 on=true && {rigline} call rig:r1 measure channel=3V3 --json");
    let (code, said) = lab.said(&["lock", "rig:r1", "--", "sh", "-c", &on]);
    assert!(code == 0 && said.contains("volts"), "{code}: {said}");
    let volts = |said: &str| {
        let json: Value = serde_json::from_str(said).unwrap();
        json["outputs"]["volts"]
            .as_str()
            .map_or_else(|| json["outputs"]["volts"].as_f64(), |text| text.parse().ok())
            .unwrap()
    };
    let json = said.lines().filter(|line| line.starts_with(['{', ' ', '}', '"'])).collect::<Vec<_>>().join("\n");
    assert!(volts(&json[json.find('{').unwrap()..]) > 3.0, "{said}");
    let output = lab.run(&call("rig:r1", &["measure", "channel=3V3", "--wait", "20s"]));
    assert!(output.status.success(), "{output:?}");
    assert!(volts(&String::from_utf8_lossy(&output.stdout)) < 0.5, "{output:?}");
}

#[test]
fn a_holder_that_was_stopped_beyond_its_lease_sends_nothing_to_the_rig_when_it_wakes() {
    // etcd-io/etcd#12291
    let board = Board::start();
    let lab = Lab::with_rigs(&format!("[[rig]]\nname = 'r1'\ntarget = '{}'\n", board.target));
    let mut bridge = lab.command(&["bridge", "rig:r1"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = bridge.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(bridge.stdout.take().unwrap());
    let mut line = String::new();
    use std::io::{BufRead as _, Write as _};
    writeln!(input, r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"0.0.1"}}}}"#)
        .unwrap();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("\"result\""), "{line}");
    kill_process(pid(&bridge), Signal::STOP).unwrap();
    writeln!(input, r#"{{"jsonrpc":"2.0","id":2,"method":"execute","params":{{"operation":"power","args":{{"rail":"3V3","on":true}},"context":{{}}}}}}"#).unwrap();
    assert_eq!(lab.said(&["lab", "break", "r1", "--reason", "it sleeps"]).0, 0);
    let next = lab
        .holder("rig:r1", "while [ ! -e $FOLDER/go ]; do sleep 0.02; done; $RIGLINE call rig:r1 measure channel=3V3");
    kill_process(pid(&bridge), Signal::CONT).unwrap();
    line.clear();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("error") && line.contains("it sleeps"), "{line}");
    fs::write(lab.path("go"), "").unwrap();
    let (code, said) = ended(next);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("volts") && !said.contains("3.3"), "{said}");
    drop(input);
    let _ = bridge.wait();
}

/// `clients` take `leases` of `rigs` in all, while the agent is killed again and again. Each holder writes into its rig's log: no two of them
/// at once, and none is lost or ended.
fn many(rigs: usize, clients: usize, leases: usize, kill_every: Duration) {
    let list: String = (1..=rigs)
        .map(|number| format!("[[rig]]\nname = 'r{number}'\ntarget = 'sim'\ntags = {{ board = 'sim' }}\n"))
        .collect();
    let lab = Lab::with_rigs(&list);
    let script = "echo begin $0 >> $FOLDER/log-$RIGLINE_RIGS; sleep 0.05; echo end $0 >> $FOLDER/log-$RIGLINE_RIGS";
    let started = Instant::now();
    let left = AtomicUsize::new(clients);
    let mut kills = 0;
    let faults = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for client in 0..clients {
            let (lab, left, faults) = (&lab, &left, &faults);
            scope.spawn(move || {
                for number in 0..leases / clients {
                    let name = format!("{client}.{number}");
                    let args = ["lock", "rig:board=sim", "--wait", "10m", "--", "sh", "-c", script, &name];
                    let (code, said) = lab.said(&args);
                    if code != 0 {
                        faults.lock().unwrap().push((code, said));
                    }
                }
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while left.load(Ordering::SeqCst) > 0 {
            thread::sleep(kill_every);
            let output = lab.run(&["lab", "status", "--json"]);
            if let Ok(status) = serde_json::from_slice::<Value>(&output.stdout)
                && let Some(agent) =
                    status["agent"]["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            {
                let _ = kill_process(agent, Signal::KILL);
                kills += 1;
            }
        }
    });
    assert_eq!(*faults.lock().unwrap(), []);
    let mut ended = 0;
    for number in 1..=rigs {
        let log = fs::read_to_string(lab.path(&format!("log-r{number}"))).unwrap_or_default();
        for pair in log.lines().collect::<Vec<_>>().chunks(2) {
            let names = [pair[0].strip_prefix("begin "), pair.get(1).and_then(|line| line.strip_prefix("end "))];
            assert!(names[0].is_some() && names[0] == names[1], "two holders of r{number}: {pair:?}");
            ended += 1;
        }
    }
    assert_eq!(ended, leases);
    until("all rigs are free", || lab.status()["rigs"].as_array().unwrap().iter().all(|rig| rig["state"] == "free"));
    lab.is_in_order();
    eprintln!("| {rigs} | {clients} | {leases} | {kills} | 0 | 0 | {:.1} s |", started.elapsed().as_secs_f64());
}

#[test]
fn no_rig_has_two_holders_and_no_lease_is_lost_while_the_agent_is_killed() {
    many(3, 6, 18, Duration::from_millis(2500));
}

#[test]
#[ignore = "minutes: .ci/long runs it"]
fn two_hundred_leases_while_the_agent_is_killed() {
    eprintln!(
        "| rigs | clients | leases | agents killed | two holders at once | leases lost | time |\n|---:|---:|---:|---:|---:|---:|---:|"
    );
    many(10, 20, 200, Duration::from_secs(10));
    many(10, 20, 200, Duration::from_secs(3));
}

#[test]
#[ignore = "a measurement: .ci/long runs it"]
fn what_the_agent_adds_to_a_call_and_costs_when_idle() {
    use std::io::{BufRead as _, Write as _};
    let board = Board::start();
    let lab = Lab::with_rigs(&format!("[[rig]]\nname = 'r1'\ntarget = '{}'\n", board.target));
    let measure = |target: &str| {
        let mut bridge = lab.command(&["bridge", target]).stdin(Stdio::piped()).spawn().unwrap();
        let (mut input, mut line) = (bridge.stdin.take().unwrap(), String::new());
        let mut output = std::io::BufReader::new(bridge.stdout.take().unwrap());
        let mut ask = |text: &str| {
            let started = Instant::now();
            writeln!(input, "{text}").unwrap();
            line.clear();
            output.read_line(&mut line).unwrap();
            assert!(line.contains("\"result\""), "{line}");
            started.elapsed()
        };
        ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#);
        let call = r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"measure","args":{"channel":"3V3","samples":1},"context":{}}}"#;
        let mut times: Vec<Duration> = (0..1000).map(|_| ask(call)).collect();
        ask(r#"{"jsonrpc":"2.0","id":3,"method":"shutdown"}"#);
        drop(input);
        let _ = bridge.wait();
        times.sort();
        times[times.len() / 2]
    };
    let (direct, through) = (measure(&board.target), measure("rig:r1"));
    let agent = lab.agent().as_raw_nonzero();
    let about = fs::read_to_string(format!("/proc/{agent}/status")).unwrap();
    let memory = about.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
    let switches = || {
        let about = fs::read_to_string(format!("/proc/{agent}/status")).unwrap();
        about
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
            .unwrap()
    };
    thread::sleep(Duration::from_secs(1));
    let before = switches();
    thread::sleep(Duration::from_secs(10));
    let wakes = switches() - before;
    eprintln!(
        "median of a call: {direct:?} direct, {through:?} through the agent; idle agent: {memory}, {wakes} wake-ups in 10 s"
    );
    assert_eq!(wakes, 0);
}
