//! `rigline lock` and `rigline lab`: one rig and many who want it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agents::support::assert_taken;

/// The command: the one that the variable `RIGLINE_BINARY` names, such as a release that was built before, or this build's.
pub(crate) fn rigline() -> PathBuf {
    let named = std::env::var_os("RIGLINE_BINARY");
    named.map_or_else(|| env!("CARGO_BIN_EXE_rigline").into(), |named| std::path::absolute(named).unwrap())
}

/// A lab of its own, whose agent ends with it.
pub(crate) struct Lab {
    pub(crate) folder: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn with_rigs(rigs: &str) -> Self {
        let lab = Self::new();
        fs::write(lab.path("rigs.toml"), rigs).unwrap();
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(rigline());
        command.args(args).env("RIGLINE_LAB_DIR", self.folder.path()).env("FOLDER", self.folder.path());
        command.env("RIGLINE", rigline());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The exit code and what was said.
    pub(crate) fn said(&self, args: &[&str]) -> (i32, String) {
        said(&self.run(args))
    }

    /// Locks `rig` for a script, and returns when the script has written the file `started`.
    pub(crate) fn holder(&self, rig: &str, script: &str) -> Child {
        let script = format!("touch $FOLDER/started; {script}");
        let child = self.command(&["lock", rig, "--wait", "20s", "--", "sh", "-c", &script]).spawn().unwrap();
        self.wait_for("started");
        fs::remove_file(self.path("started")).unwrap();
        child
    }

    pub(crate) fn wait_for(&self, name: &str) {
        until(&format!("{name} is written"), || self.path(name).exists());
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_slice(&self.run(&["lab", "status", "--json"]).stdout).unwrap()
    }

    pub(crate) fn agent(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.status()["agent"]["pid"].as_i64().unwrap()).unwrap()).unwrap()
    }

    pub(crate) fn state(&self, rig: &str) -> Value {
        let status = self.status();
        let rigs = status["rigs"].as_array().unwrap();
        rigs.iter().find(|found| found["name"] == rig).map_or(Value::Null, |rig| rig["state"].clone())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.status()["queue"].as_array().unwrap().len()
    }

    pub(crate) fn is_in_order(&self) {
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

pub(crate) fn said(output: &Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn ended(child: Child) -> (i32, String) {
    said(&child.wait_with_output().unwrap())
}

#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let given_up = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < given_up, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The number that a script has written into a file.
pub(crate) fn written(lab: &Lab, name: &str) -> Pid {
    until(name, || fs::read_to_string(lab.path(name)).is_ok_and(|text| text.ends_with('\n')));
    Pid::from_raw(fs::read_to_string(lab.path(name)).unwrap().trim().parse().unwrap()).unwrap()
}

pub(crate) fn is_alive(pid: Pid) -> bool {
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
    // jumpstarter-dev/jumpstarter#860, zephyrproject-rtos/zephyr#45263: what nothing can match is said at once.
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
    // jumpstarter-dev/jumpstarter#120, concourse/pool-resource#20
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
pub(crate) fn call<'a>(rig: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["call", rig][..], rest, &["--json"]].concat()
}

/// A board: `rigline serve sim --tcp`, whose state outlives its clients.
pub(crate) struct Board {
    child: Child,
    pub(crate) target: String,
}

impl Board {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(rigline())
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
    let rigline = rigline().display().to_string();
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

/// Lines to and from a program.
pub(crate) struct Talk {
    pub(crate) child: Child,
    input: Option<std::process::ChildStdin>,
    lines: std::sync::mpsc::Receiver<Value>,
}

impl Talk {
    pub(crate) fn new(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for line in std::io::BufRead::lines(output).map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        use std::io::Write as _;
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    pub(crate) fn next(&self) -> Value {
        self.lines.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// The reply to a request, and what came before it.
    pub(crate) fn reply(&self, id: u64) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let message = self.next();
            if message["id"] == id {
                return (message, before);
            }
            before.push(message);
        }
    }

    pub(crate) fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.reply(id).0
    }

    pub(crate) fn tool(&mut self, id: u64, name: &str, arguments: Value) -> Value {
        self.ask(id, "tools/call", json!({ "name": name, "arguments": arguments }))["result"].clone()
    }

    pub(crate) fn initialize(&mut self) {
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        assert!(self.ask(0, "initialize", params)["result"].is_object());
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    pub(crate) fn end(mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

pub(crate) const WAITS_FOR_GO: &str = "while [ ! -e $FOLDER/go ]; do sleep 0.02; done";

#[test]
fn an_agent_takes_its_rig_when_it_needs_it_waits_for_it_and_gives_it_back() {
    let lab = Lab::with_rigs("[[rig]]\nname = 'r1'\ntarget = 'sim'\ntags = { board = 'sim' }\n");
    let state = tempfile::tempdir().unwrap();
    let mcp = || {
        let mut command = lab.command(&["mcp", "rig:board=sim"]);
        command.env("XDG_STATE_HOME", state.path());
        let mut mcp = Talk::new(command);
        mcp.initialize();
        mcp
    };
    let mut agent = mcp();
    let tools = agent.ask(1, "tools/list", json!({}));
    let names = assert_taken(&tools["result"]["tools"]);
    for name in ["measure", "lab_list", "lease", "release", "last_failure"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    // What was only asked for its tools is not held.
    until("it is free", || lab.state("r1") == "free");
    let listed = agent.tool(2, "lab_list", json!({}));
    assert_eq!(listed["structuredContent"]["rigs"][0]["name"], "r1", "{listed}");
    assert_eq!(agent.tool(3, "lab_list", json!({ "selector": "board=pico" }))["isError"], true);
    // The first call takes it.
    assert_ne!(agent.tool(4, "measure", json!({ "channel": "3V3" }))["isError"], true);
    assert_eq!(lab.state("r1"), "leased");
    let leased = agent.tool(5, "lease", json!({ "ttl_s": 60 }));
    assert_eq!(leased["structuredContent"]["rig"], "r1", "{leased}");
    assert_eq!(agent.tool(6, "lab_list", json!({}))["structuredContent"]["rigs"][0]["mine"], true);
    assert_eq!(agent.tool(7, "release", json!({}))["structuredContent"]["released"], true);
    until("it is free", || lab.state("r1") == "free");
    assert_eq!(agent.tool(8, "release", json!({}))["structuredContent"]["released"], false);

    let holder = lab.holder("rig:r1", WAITS_FOR_GO);
    let refused = agent.tool(9, "measure", json!({ "channel": "3V3" }));
    assert!(refused["isError"] == true && refused.to_string().contains(" has r1 for "), "{refused}");
    let refused = agent.tool(10, "lease", json!({}));
    assert!(refused["isError"] == true && refused.to_string().contains(" has r1 for "), "{refused}");
    let refused = agent.tool(11, "lease", json!({ "wait_s": -1 }));
    assert!(refused["isError"] == true && refused.to_string().contains("wait_s: -1"), "{refused}");
    // One that is cancelled loses its place, and its answer.
    let waits = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "lease", "arguments": { "wait_s": 600, "ttl_s": 600 }, "_meta": { "progressToken": "p" } } });
    agent.send(&waits(12));
    until("it waits", || lab.waiting() == 1);
    agent.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 12 } }));
    until("its place is gone", || lab.waiting() == 0);
    agent.send(&waits(13));
    until("it waits", || lab.waiting() == 1);
    fs::write(lab.path("go"), "").unwrap();
    let (reply, before) = agent.reply(13);
    assert_eq!(reply["result"]["structuredContent"]["rig"], "r1", "{reply}");
    assert!(
        before.iter().any(|told| told["method"] == "notifications/progress"
            && told["params"]["message"].as_str().unwrap().contains("place 1 in the queue")),
        "{before:?}"
    );
    assert!(before.iter().all(|told| told["id"] != 12), "{before:?}");
    assert_ne!(agent.tool(14, "measure", json!({ "channel": "3V3" }))["isError"], true);
    assert_eq!(ended(holder).0, 0);
    // A lease that was broken is told, and another one can be taken.
    assert_eq!(lab.said(&["lab", "break", "r1", "--reason", "the fire alarm"]).0, 0);
    until("it is free", || lab.state("r1") == "free");
    let told = agent.tool(15, "measure", json!({ "channel": "3V3" }));
    assert!(told["isError"] == true && told.to_string().contains("the fire alarm"), "{told}");
    assert_eq!(agent.tool(16, "lease", json!({ "wait_s": 20 }))["structuredContent"]["rig"], "r1");
    // The client goes.
    agent.end();
    until("it is free", || lab.state("r1") == "free");
    // The next one knows the tools, and does not take the rig for that.
    let holder = lab.holder("rig:r1", "rm $FOLDER/go; while [ ! -e $FOLDER/go ]; do sleep 0.02; done");
    let mut agent = mcp();
    assert!(agent.ask(1, "tools/list", json!({})).to_string().contains("\"measure\""));
    agent.end();
    until("it can end", || !lab.path("go").exists());
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!(ended(holder).0, 0);
    lab.is_in_order();
}

#[test]
fn an_agent_without_a_target_chooses_a_rig_and_has_its_tools_until_it_gives_it_back() {
    let lab = Lab::new();
    let other = extension(&lab, "r2", "0");
    fs::write(lab.path("rigs.toml"), format!("[[rig]]\nname = 'r1'\ntarget = 'sim'\n{other}")).unwrap();
    let mut agent = Talk::new(lab.command(&["mcp", "--lab"]));
    agent.initialize();
    fn tools(agent: &mut Talk, id: u64) -> Vec<String> {
        let listed = agent.ask(id, "tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
    fn is_change(message: &Value) -> bool {
        message["method"] == "notifications/tools/list_changed"
    }
    let own = ["lab_list", "lease", "release", "last_failure"];
    assert_eq!(tools(&mut agent, 1), own);
    let listed = agent.tool(2, "lab_list", json!({}));
    assert_eq!(listed["structuredContent"]["rigs"].as_array().unwrap().len(), 2, "{listed}");
    for (id, arguments, why) in [
        (3, json!({}), "rig: required"),
        (4, json!({ "rig": "r3" }), "the nearest rigs: "),
        (5, json!({ "rig": "board=pico" }), "the nearest tags: board=sh"),
        (6, json!({ "rig": "" }), "rig: required"),
    ] {
        let refused = agent.tool(id, "lease", arguments);
        assert!(refused["isError"] == true && refused.to_string().contains(why), "{refused}");
    }
    // One rig after the other, each with its own tools.
    for (id, rig, name, there, other) in [(10, "r1", "r1", "measure", "go"), (20, "board=sh", "r2", "go", "measure")] {
        let lease = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "lease", "arguments": { "rig": rig, "wait_s": 30 } } });
        agent.send(&lease);
        let (reply, before) = agent.reply(id);
        assert_eq!(reply["result"]["structuredContent"]["rig"], name, "{reply}");
        if !before.iter().any(is_change) {
            assert!(is_change(&agent.next()));
        }
        assert_eq!(lab.state(name), "leased");
        let found = tools(&mut agent, id + 1);
        assert!(found.iter().any(|tool| tool == there) && found.iter().all(|tool| tool != other), "{found:?}");
        let arguments = if there == "go" { json!({}) } else { json!({ "channel": "3V3" }) };
        assert_ne!(agent.tool(id + 2, there, arguments)["isError"], true);
        // The same again is no new lease, and another one needs the release of this one.
        assert_eq!(agent.tool(id + 3, "lease", json!({ "rig": rig }))["structuredContent"]["rig"], name);
        let another = if name == "r1" { "r2" } else { "r1" };
        let refused = agent.tool(id + 4, "lease", json!({ "rig": another }));
        assert!(refused.to_string().contains(&format!("this session has {name}, which is not {another}")), "{refused}");
        agent.send(&json!({ "jsonrpc": "2.0", "id": id + 5, "method": "tools/call", "params": { "name": "release", "arguments": {} } }));
        let (reply, before) = agent.reply(id + 5);
        assert_eq!(reply["result"]["structuredContent"], json!({ "released": true, "rig": name }));
        if !before.iter().any(is_change) {
            assert!(is_change(&agent.next()));
        }
        assert_eq!(tools(&mut agent, id + 6), own);
        until("it is free", || lab.state(name) == "free");
    }
    agent.end();
    for args in [&["mcp", "--lab", "sim"][..], &["mcp"]] {
        assert_eq!(lab.said(args).0, 2, "{args:?}");
    }
    assert_eq!(lab.said(&["call", "rig:*", "measure"]).0, 2);
    lab.is_in_order();
}

/// An extension in the shell, which takes `seconds` for an operation. It ends in the middle of one when the file `bad-NAME` is there, and does
/// not start again.
pub(crate) fn extension(lab: &Lab, name: &str, seconds: &str) -> String {
    let script = format!(
        r#"#!/bin/sh
[ -e $FOLDER/lost-{name} ] && exit 1
while read -r line; do
  id=${{line#*'"id":'}}; id=${{id%%[!0-9]*}}
  case $line in
    *initialize*) result='{{"name":"one","version":"1.0.0","protocolVersion":"0.0.1","operations":{{"go":{{"params":{{}}}}}}}}' ;;
    *shutdown*) result='{{}}' ;;
    *) [ -e $FOLDER/bad-{name} ] && touch $FOLDER/lost-{name} && exit 1
       sleep {seconds}; echo {name} >> $FOLDER/done; result='{{"success":true}}' ;;
  esac
  printf '%s\n' "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}}"
  case $line in *shutdown*) exit 0 ;; esac
done
"#
    );
    fs::write(lab.path(name), script).unwrap();
    format!("[[rig]]\nname = '{name}'\ntarget = 'exec:sh {}'\ntags = {{ board = 'sh' }}\n", lab.path(name).display())
}

/// A lab with the rigs r1, r2 and r3 of the tag `board=sh`, and an eval of so many tasks.
fn shards(tasks: usize, seconds: &str) -> Lab {
    let lab = Lab::new();
    let rigs: String = ["r1", "r2", "r3"].iter().map(|name| extension(&lab, name, seconds)).collect();
    fs::write(lab.path("rigs.toml"), rigs).unwrap();
    let tasks: Vec<String> =
        (1..=tasks).map(|task| format!("{{ id: t{task}, steps: [{{ operation: go }}] }}")).collect();
    let eval = format!("name: e\nconfig: {{ executor: extension, target: sim }}\ntasks: [{}]\n", tasks.join(", "));
    fs::write(lab.path("eval.yaml"), eval).unwrap();
    lab
}

impl Lab {
    fn eval(&self, args: &[&str]) -> Command {
        let (eval, runs) = (self.path("eval.yaml"), self.path("runs"));
        let all =
            [&["eval", "run", eval.to_str().unwrap(), "--runs", runs.to_str().unwrap(), "--quiet"], args].concat();
        self.command(&all)
    }

    fn results(&self) -> (i32, Value) {
        let runs = self.path("runs");
        let output = self.run(&["lab", "results", "last", "--runs", runs.to_str().unwrap(), "--json"]);
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }
}

/// Which task ran on which rig, with the reasons of the attempts before.
fn spread(report: &Value) -> Vec<(String, String, Vec<String>)> {
    let tasks = report["runs"][0]["tasks"].as_array().unwrap().iter();
    tasks
        .map(|task| {
            let trial = &task["trials"][0];
            let earlier = trial["earlier"].as_array().unwrap().iter();
            let earlier = earlier.map(|attempt| attempt["error"].as_str().unwrap().to_owned()).collect();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&task["id"]), text(&trial["shard"]), earlier)
        })
        .collect()
}

#[test]
fn tasks_are_spread_over_several_rigs_in_one_report() {
    let lab = shards(9, "0.2");
    let output = lab.eval(&["--rig", "board=sh", "--shards", "3", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{report:#}");
    let spread = spread(&report);
    let ids: Vec<&str> = spread.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, ["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"]);
    for rig in ["rig:r1", "rig:r2", "rig:r3"] {
        assert!(spread.iter().any(|(_, shard, _)| shard == rig), "{spread:?}");
    }
    assert_eq!(fs::read_to_string(lab.path("done")).unwrap().lines().count(), 9);
    until("all are free", || ["r1", "r2", "r3"].iter().all(|rig| lab.state(rig) == "free"));
    let (code, results) = lab.results();
    assert_eq!((code, results["tasks"].as_array().unwrap().len(), &results["state"]), (0, 9, &json!("completed")));
    lab.is_in_order();
}

#[test]
fn several_rigs_are_taken_all_or_none_and_those_of_a_lock_are_joined() {
    let lab = shards(3, "0");
    for (args, code, why) in [
        (&["--rig", "board=sh", "--shards", "4"][..], 2, "4 rigs are wanted, and 3 match"),
        (&["--rig", "board=pico"], 2, "the nearest tags: board=sh"),
        (&["--rig", "r1", "--target", "sim"], 2, "cannot be used with"),
        (&["--shards", "2"], 2, "--rig"),
    ] {
        let (found, said) = said(&lab.eval(args).output().unwrap());
        assert!(found == code && said.contains(why), "{args:?}: {found}: {said}");
    }
    let holder = lab.holder("rig:r2", WAITS_FOR_GO);
    let (code, said) = said(&lab.eval(&["--rig", "board=sh", "--shards", "3"]).output().unwrap());
    assert!(code == 3 && said.contains(" has r2 for "), "{code}: {said}");
    assert_eq!((lab.state("r1"), lab.state("r3")), (json!("free"), json!("free")));
    let waits = lab.eval(&["--rig", "board=sh", "--shards", "3", "--wait", "1m", "--json"]).spawn().unwrap();
    until("it waits", || lab.waiting() == 1);
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!((ended(holder).0, ended(waits).0), (0, 0));
    // Within a lock that has two rigs, its rigs are used.
    let inner = "echo $RIGLINE_RIGS > $FOLDER/mine; $RIGLINE eval run $FOLDER/eval.yaml --runs $FOLDER/runs --rig board=sh --shards 2 --json > $FOLDER/report";
    let (code, text) = lab.said(&["lock", "rig:board=sh", "--count", "2", "--wait", "20s", "--", "sh", "-c", inner]);
    assert_eq!(code, 0, "{text}");
    let report: Value = serde_json::from_str(&fs::read_to_string(lab.path("report")).unwrap()).unwrap();
    let mine = fs::read_to_string(lab.path("mine")).unwrap();
    let is_mine = |shard: &str| mine.split_whitespace().any(|rig| shard == format!("rig:{rig}"));
    assert!(spread(&report).iter().all(|(_, shard, _)| is_mine(shard)), "{mine}: {report:#}");
    lab.is_in_order();
}

#[test]
fn a_task_whose_rig_goes_bad_runs_on_another_one_and_is_marked() {
    let lab = shards(9, "0.2");
    fs::write(lab.path("bad-r2"), "").unwrap();
    let output = lab.eval(&["--rig", "board=sh", "--shards", "3", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{report:#}");
    let spread = spread(&report);
    assert!(spread.iter().all(|(_, shard, _)| shard != "rig:r2"), "{spread:?}");
    let moved: Vec<_> = spread.iter().filter(|(.., earlier)| !earlier.is_empty()).collect();
    assert!(
        matches!(moved.as_slice(), [(.., earlier)] if earlier[0].contains("on rig:r2, which was lost")),
        "{spread:?}"
    );
    assert_eq!(report["runs"][0]["tasks"].as_array().unwrap().len(), 9);
    // It is out of service afterwards.
    until("it is in quarantine", || lab.state("r2") == "quarantine");
    let (code, results) = lab.results();
    assert_eq!((code, results["tasks"].as_array().unwrap().len()), (0, 9));
    // A task that loses two rigs is not given to a third, and a rig that is bad from the start keeps nobody.
    for rig in ["r1", "r2", "r3"] {
        let _ = fs::remove_file(lab.path(&format!("lost-{rig}")));
    }
    fs::remove_file(lab.path("bad-r2")).unwrap();
    assert_eq!(lab.said(&["lab", "quarantine", "r2", "--clear"]).0, 0);
    until("it is free", || lab.state("r2") == "free");
    for rig in ["r1", "r2", "r3"] {
        fs::write(lab.path(&format!("bad-{rig}")), "").unwrap();
    }
    let output = lab.eval(&["--rig", "board=sh", "--shards", "3", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{report:#}");
    let tasks = report["runs"][0]["tasks"].as_array().unwrap();
    // Each has its result, once.
    assert!(tasks.len() == 9 && tasks.iter().all(|task| task["verdict"] == "rig_error"), "{report:#}");
    assert!(report.to_string().contains("no rig is left that could run it"), "{report:#}");
}

#[test]
fn a_killed_run_leaves_each_result_once_and_says_what_is_missing() {
    // nats-io/nats-server#7564, actions/runner#1546
    let lab = shards(9, "0.3");
    let mut run = lab.eval(&["--rig", "board=sh", "--shards", "3"]).spawn().unwrap();
    until("some are done", || fs::read_to_string(lab.path("done")).is_ok_and(|done| done.lines().count() >= 4));
    kill_process(pid(&run), Signal::KILL).unwrap();
    run.wait().unwrap();
    let (code, results) = lab.results();
    let tasks = results["tasks"].as_array().unwrap();
    assert_eq!((code, tasks.len()), (3, 9), "{results:#}");
    let done = tasks.iter().filter(|task| task["status"] == "passed").count();
    assert!((3..9).contains(&done), "{results:#}");
    assert!(tasks.iter().all(|task| task["status"] == "passed" || task["status"].is_null()), "{results:#}");
    let seqs: Vec<u64> = tasks.iter().map(|task| task["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=9).collect::<Vec<_>>());
    until("all are free", || ["r1", "r2", "r3"].iter().all(|rig| lab.state(rig) == "free"));
    assert_eq!(lab.said(&["lab", "results", "no-such-run", "--runs", lab.path("runs").to_str().unwrap()]).0, 2);
}

#[test]
fn an_agent_that_is_killed_in_the_middle_of_a_call_leaves_its_outcome_unknown_and_repeats_nothing() {
    let lab = Lab::new();
    let rig = extension(&lab, "r1", "2");
    fs::write(lab.path("rigs.toml"), rig).unwrap();
    let mut bridge = Talk::new(lab.command(&["bridge", "rig:r1"]));
    bridge.ask(1, "initialize", json!({ "protocolVersion": "0.0.1" }));
    let go = json!({ "operation": "go", "args": {}, "context": {} });
    bridge.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "execute", "params": go }));
    thread::sleep(Duration::from_millis(500));
    kill_process(lab.agent(), Signal::KILL).unwrap();
    let (reply, _) = bridge.reply(2);
    assert!(reply.to_string().contains("it is not known what the rig has done"), "{reply}");
    // The lease goes on with the next agent, and so do calls.
    assert_eq!(bridge.ask(3, "execute", go)["result"]["success"], true);
    bridge.end();
    // The first call was cut off with the rig that the agent had started, and nobody has sent it again.
    assert!(fs::read_to_string(lab.path("done")).unwrap().lines().count() <= 2);
    until("it is free", || lab.state("r1") == "free");
    lab.is_in_order();
}

#[test]
fn an_agent_that_a_command_starts_has_nothing_open_of_that_commands() {
    let lab = Lab::new();
    let script = "exec 7> $FOLDER/mine; $RIGLINE lab status > /dev/null";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("RIGLINE_LAB_DIR", lab.folder.path()).env("FOLDER", lab.folder.path());
    assert!(shell.env("RIGLINE", rigline()).status().unwrap().success());
    let agent = lab.agent().as_raw_nonzero();
    let mine = fs::canonicalize(lab.path("mine")).unwrap();
    let open: Vec<PathBuf> = fs::read_dir(format!("/proc/{agent}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .collect();
    assert!(!open.is_empty() && !open.contains(&mine), "{open:?}");
}

#[test]
fn a_rig_is_brought_back_by_what_its_entry_names_and_then_checked() {
    let lab = Lab::new();
    let rig = extension(&lab, "r1", "0");
    fs::write(lab.path("rigs.toml"), format!("{rig}recover = ['rm', '{}']\n", lab.path("lost-r1").display())).unwrap();
    fs::write(lab.path("lost-r1"), "").unwrap();
    let (code, said) = lab.said(&["lab", "check"]);
    assert!(code == 3 && said.contains("1 rig is not usable"), "{said}");
    assert!(lab.path("lost-r1").exists());
    // It is tried again, and brought back before that; two good answers in a row make it free.
    assert_eq!(lab.said(&["lab", "check"]).0, 3);
    assert!(!lab.path("lost-r1").exists());
    let (code, said) = lab.said(&["lab", "check"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(lab.state("r1"), "free");
}

/// A client of the agent's protocol.
pub(crate) struct Raw {
    pub(crate) stream: std::os::unix::net::UnixStream,
    next: u64,
}

impl Raw {
    pub(crate) fn open(lab: &Lab) -> Self {
        lab.status();
        let stream = std::os::unix::net::UnixStream::connect(lab.path("agent.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut raw = Self { stream, next: 0 };
        assert!(raw.ask("hello", json!({ "protocol": 2 })).is_some());
        raw
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        use std::io::Write as _;
        self.next += 1;
        let line = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        let _ = writeln!(self.stream, "{line}");
        self.next
    }

    /// The next message; none if the agent is gone.
    pub(crate) fn line(&mut self) -> Option<Value> {
        use std::io::Read as _;
        let (mut line, mut byte) = (Vec::new(), [0]);
        while self.stream.read_exact(&mut byte).is_ok() {
            if byte == [b'\n'] {
                return serde_json::from_slice(&line).ok();
            }
            line.push(byte[0]);
        }
        None
    }

    pub(crate) fn reply(&mut self, id: u64) -> Option<Value> {
        loop {
            let message = self.line()?;
            if message["id"] == id {
                return Some(message);
            }
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Option<Value> {
        let id = self.send(method, &params);
        self.reply(id)
    }

    /// Asks for the rig, and waits for the offer.
    pub(crate) fn offered(&mut self, request: &str) {
        let want = json!({
            "request": request, "rigs": ["rig:r1"], "count": 1, "wait": 60_000, "since": 0, "ttl": 600_000, "idle": 0,
            "is_raw": false, "purpose": "",
        });
        self.ask("lock", want).unwrap();
        while self.line().unwrap()["method"] != "offer" {}
    }
}

/// Kills the agent `times` at each step of a lease: a lease lives on with its holder, who lives, or was never granted, and the rig is free or
/// has one holder.
fn killed_at_each_step(times: u64) {
    // labgrid-project/labgrid#748
    let lab = Lab::with_rigs("[[rig]]\nname = 'r1'\ntarget = 'sim'\n");
    for step in ["offer", "confirm", "granted", "renew", "release", "released"] {
        for time in 0..times {
            // From before it is read until after it is answered.
            let pause = Duration::from_micros(time * 250);
            let request = format!("{step}-{time}");
            let mut holder = Raw::open(&lab);
            holder.offered(&request);
            let agent = lab.agent();
            let kill = || {
                thread::sleep(pause);
                let _ = kill_process(agent, Signal::KILL);
            };
            let named = json!({ "request": request });
            let mut lease = None;
            if step == "offer" {
                kill();
            } else if step == "confirm" {
                let id = holder.send("confirm", &named);
                kill();
                lease = holder.reply(id).map(|reply| reply["result"]["lease"].clone());
            } else {
                let granted = holder.ask("confirm", named).unwrap()["result"]["lease"].clone();
                let of_lease = json!({ "lease": granted["id"] });
                match step {
                    "granted" => kill(),
                    "renew" => {
                        holder.send("renew", &of_lease);
                        kill();
                    }
                    "release" => {
                        let id = holder.send("release", &of_lease);
                        kill();
                        holder.reply(id);
                    }
                    _ => {
                        holder.ask("release", of_lease).unwrap();
                        kill();
                    }
                }
                lease = Some(granted);
            }
            drop(holder);
            until("the agent is gone", || !is_alive(agent));
            // The books are in order at once: nobody has to tell the next agent anything.
            lab.is_in_order_again();
            let mut holder = Raw::open(&lab);
            if let Some(lease) = lease {
                let attach = json!({ "lease": lease["id"], "keeps": false, "told": lease });
                let attached = holder.ask("attach", attach).unwrap();
                match step {
                    // What was answered is true.
                    "confirm" | "granted" | "renew" => {
                        assert!(attached["result"].is_object(), "{step} {time}: {attached}");
                    }
                    "released" => assert!(attached["error"].is_object(), "{step} {time}: {attached}"),
                    _ => {}
                }
                holder.ask("release", json!({ "lease": lease["id"] })).unwrap();
            } else if lab.state("r1") == "leased" {
                // It was granted, and the answer was lost: the same request gets the same lease.
                let id = lab.status()["rigs"][0]["lease"]["id"].clone();
                holder.ask("release", json!({ "lease": id })).unwrap();
            }
            until("it is free", || lab.state("r1") == "free");
        }
    }
}

impl Lab {
    /// As [`is_in_order`](Self::is_in_order), for a lab whose rigs may be in use.
    fn is_in_order_again(&self) {
        until("its books are in order", || {
            let status = self.status();
            assert_eq!(status["faults"], json!([]), "{status:#}");
            status["rigs"][0]["state"] == "leased" || self.said(&["lab", "check"]).0 == 0
        });
    }
}

#[test]
fn an_agent_that_is_killed_at_any_step_of_a_lease_leaves_its_books_in_order() {
    killed_at_each_step(2);
}

#[test]
#[ignore = "minutes: .ci/long runs it"]
fn an_agent_that_is_killed_twenty_times_at_each_step_of_a_lease_leaves_its_books_in_order() {
    killed_at_each_step(20);
}

/// The agent of the system, which serves a group of users.
struct System {
    folder: TempDir,
    program: PathBuf,
    agent: Option<Child>,
}

/// Numbers of users and groups that need no accounts: the system knows processes by numbers.
const ANN: u32 = 61_001;
const BOB: u32 = 61_002;
const CAROL: u32 = 61_003;
const STRANGER: u32 = 61_004;
const GROUP: u32 = 61_100;
const ADMINS: u32 = 61_101;

impl System {
    fn new(rigs: &str) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("rigline");
        // Others may not be able to reach the folder where it was built.
        fs::copy(rigline(), &program).unwrap();
        for (name, mode) in [("", 0o755), ("lab", 0o755), ("work", 0o777)] {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(folder.path().join("lab/rigs.toml"), rigs).unwrap();
        let mut system = Self { folder, program, agent: None };
        system.start();
        system
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn start(&mut self) {
        let mut agent = self.command(0, 0);
        let (group, admins) = (GROUP.to_string(), ADMINS.to_string());
        agent.args(["lab", "agent", "--system", "--group", &group, "--admins", &admins]);
        agent.stdout(Stdio::null()).stderr(Stdio::null());
        let mut agent = agent.spawn().unwrap();
        until("it listens", || {
            assert_eq!(agent.try_wait().unwrap(), None);
            self.said(0, 0, &["lab", "status"]).0 == 0
        });
        self.agent = Some(agent);
    }

    fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    fn command(&self, uid: u32, gid: u32) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(&self.program);
        command.uid(uid).gid(gid).current_dir("/").env_remove("RIGLINE_LAB_DIR").env("HOME", self.path("nobody"));
        command
            .env("RIGLINE_LAB_SYSTEM_DIR", self.folder.path().join("lab"))
            .env("FOLDER", self.folder.path().join("work"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn said(&self, uid: u32, gid: u32, args: &[&str]) -> (i32, String) {
        said(&self.command(uid, gid).args(args).output().unwrap())
    }

    fn holder(&self, uid: u32, script: &str) -> Child {
        let script = format!("touch $FOLDER/started; {script}");
        let mut command = self.command(uid, GROUP);
        let child = command.args(["lock", "rig:r1", "--wait", "20s", "--", "sh", "-c", &script]).spawn().unwrap();
        until("it has started", || self.path("started").exists());
        fs::remove_file(self.path("started")).unwrap();
        child
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.command(BOB, GROUP).args(["lab", "status", "--json"]).output().unwrap().stdout)
            .unwrap()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn two_users_share_one_queue_and_only_administrators_end_anothers_lease() {
    // labgrid-project/labgrid#449, jumpstarter-dev/jumpstarter#237
    if !rustix::process::geteuid().is_root() {
        let remedy = "sudo -E env PATH=$PATH cargo test -p rigline-cli --test suite two_users";
        rigline_test_support::skipped("the lab of several users", "only root can be several users", remedy);
        return;
    }
    let mut system = System::new("[[rig]]\nname = 'r1'\ntarget = 'sim'\n");
    let go = "while [ ! -e $FOLDER/go ]; do sleep 0.02; done";
    let ann = system.holder(ANN, &format!("id -u; {go}"));
    let (code, said) = system.said(BOB, GROUP, &["lock", "rig:r1", "--", "true"]);
    assert!(code == 3 && said.contains("uid 61001 (process ") && said.contains(" has r1 for "), "{code}: {said}");
    for (args, code, why) in [
        (&["lab", "break", "r1", "--reason", "mine now"][..], 3, "only administrators"),
        // What the agent opens, it opens with its own rights.
        (&["lock", "exec:/bin/cat", "--", "true"], 2, "is no rig of"),
        (&["lock", "tcp:localhost:1?token-file=/etc/shadow", "--", "true"], 2, "is no rig of"),
        (&["call", "rig:r2", "measure"], 2, "the nearest rigs: r1"),
    ] {
        let (found, said) = system.said(BOB, GROUP, args);
        assert!(found == code && said.contains(why), "{args:?}: {found}: {said}");
    }
    let (code, said) = system.said(STRANGER, STRANGER, &["lab", "status"]);
    assert!(code == 3 && said.contains("is for members of the group gid 61100"), "{code}: {said}");
    // One queue, also after a crash of the agent.
    let bob = system.command(BOB, GROUP).args(["lock", "rig:r1", "--wait", "1m", "--", "id", "-u"]).spawn().unwrap();
    let waiting = |system: &System| system.status()["queue"].as_array().unwrap().len();
    until("it waits", || waiting(&system) == 1);
    system.kill();
    system.start();
    until("both are known again", || {
        let status = system.status();
        status["rigs"][0]["state"] == "leased" && waiting(&system) == 1
    });
    fs::write(system.path("go"), "").unwrap();
    let (code, said) = ended(ann);
    assert!(code == 0 && said.contains("61001\n"), "{code}: {said}");
    let (code, said) = ended(bob);
    assert!(code == 0 && said.contains("61002\n"), "{code}: {said}");
    // An administrator's word, which needs a reason; then no process of the last holder is left.
    let ann = system.holder(ANN, "echo $$ > $FOLDER/pid; trap '' TERM; setsid sh -c \"trap '' TERM; echo \\$\\$ > $FOLDER/other; sleep 600; sleep 600\" & sleep 600; sleep 600");
    let pids = ["pid", "other"].map(|name| {
        until(name, || fs::read_to_string(system.path(name)).is_ok_and(|text| text.ends_with('\n')));
        Pid::from_raw(fs::read_to_string(system.path(name)).unwrap().trim().parse().unwrap()).unwrap()
    });
    let mut carol = Command::new("setpriv");
    carol.args(["--reuid", &CAROL.to_string(), "--regid", &GROUP.to_string(), "--groups", &ADMINS.to_string(), "--"]);
    carol.arg(&system.program).args(["lab", "break", "r1", "--reason", "the fire alarm"]);
    carol.env("RIGLINE_LAB_SYSTEM_DIR", system.folder.path().join("lab")).env("HOME", "/");
    assert!(carol.status().unwrap().success());
    let (code, said) = ended(ann);
    assert!(code == 3 && said.contains("by uid 61003 (process ") && said.contains("the fire alarm"), "{code}: {said}");
    let (code, said) = system.said(BOB, GROUP, &["lock", "rig:r1", "--wait", "30s", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    // One's own lease needs no administrator.
    let ann = system.holder(ANN, "sleep 600");
    assert_eq!(system.said(ANN, GROUP, &["lab", "break", "r1", "--reason", "I am done"]).0, 0);
    assert_eq!(ended(ann).0, 3);
    until("it is in order", || system.said(BOB, GROUP, &["lab", "check"]).0 == 0);
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
    // In turns, so that what else the machine does is the same for both.
    let (mut direct, mut through): (Vec<_>, Vec<_>) =
        (0..3).map(|_| (measure(&board.target), measure("rig:r1"))).unzip();
    direct.sort();
    through.sort();
    let (direct, through) = (direct[1], through[1]);
    let agent = lab.agent().as_raw_nonzero();
    let about = fs::read_to_string(format!("/proc/{agent}/status")).unwrap();
    let kib = |name: &str| {
        let line = about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let (all, own) = (kib("VmRSS"), kib("RssAnon"));
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
    let added = through.saturating_sub(direct);
    eprintln!(
        "\n| a call, median | through the agent | added | ratio | idle agent | its own memory | wake-ups in 10 s |"
    );
    eprintln!("|---:|---:|---:|---:|---:|---:|---:|");
    let ratio = through.as_secs_f64() / direct.as_secs_f64();
    eprintln!("| {direct:.0?} | {through:.0?} | {added:.0?} | {ratio:.2} | {all} KiB | {own} KiB | {wakes} |");
    assert_eq!(wakes, 0);
    // A build for debugging is four times as large, and the limits are those of the program that users have.
    if std::env::var_os("RIGLINE_BINARY").is_some() || !cfg!(debug_assertions) {
        assert!(added < Duration::from_micros(300), "{added:?} more for a call");
        assert!(all <= 15 * 1024, "{all} KiB");
    }
}
