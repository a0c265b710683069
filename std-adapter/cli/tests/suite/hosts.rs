//! Rigs of other hosts: over SSH with a real `sshd`, which needs no port, and over NATS with a real server.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rigline_test_support::skipped;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::lab::{Lab, ended, is_alive, pid, rigline, said, until, written};
use super::web::ServerProcess;

/// Whether a program is found.
pub(super) fn is_there(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program} > /dev/null")])
        .status()
        .is_ok_and(|status| status.success())
}

pub(super) fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
}

/// Rigs whose logs tell what they heard: `exec:` targets of simulated rigs behind `tee`.
pub(super) fn sims(lab: &Lab, names: &[&str], tag: &str) -> String {
    let rig = |name: &&str| {
        let log = lab.path(&format!("heard-{name}"));
        format!(
            "[[rig]]\nname = '{name}'\ntarget = \"exec:sh -c 'tee -a {} | {} rig'\"\ntags = {{ kind = '{tag}' }}\n",
            log.display(),
            rigline().display()
        )
    };
    names.iter().map(rig).collect()
}

pub(super) fn heard(lab: &Lab, name: &str) -> String {
    fs::read_to_string(lab.path(&format!("heard-{name}"))).unwrap_or_default()
}

/// A user of the rigs of several hosts, and those hosts: labs of their own on this machine, each behind an `sshd` of its own.
struct Ssh {
    user: Lab,
    hosts: Vec<Lab>,
    folder: TempDir,
}

impl Ssh {
    /// With hosts `lab1`, `lab2` and so on, if there are the programs.
    fn with(count: usize) -> Option<Self> {
        let sshd = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].into_iter().find(|path| Path::new(path).exists());
        let (Some(sshd), true) = (sshd, is_there("ssh") && is_there("ssh-keygen")) else {
            skipped("rigs over SSH", "sshd, ssh or ssh-keygen is not installed", "apt-get install openssh-server");
            return None;
        };
        if rustix::process::getuid().is_root() {
            // The folder in which sshd keeps those who are not let in; its package makes it at the start of its service.
            let _ = fs::create_dir("/run/sshd");
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for key in ["key", "host_key"] {
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", at(key).to_str().unwrap()]);
        }
        fs::copy(at("key.pub"), at("authorized_keys")).unwrap();
        let program = rigline();
        let bin = program.parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let (mut hosts, mut config) = (Vec::new(), String::new());
        for number in 1..=count {
            let lab = Lab::new();
            let server = format!(
                "HostKey {0}/host_key\nAuthorizedKeysFile {0}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\nLogLevel ERROR\nSetEnv \"PATH={1}:{path}\" \"RIGLINE_LAB_DIR={2}\" \"FOLDER={2}\"\n",
                folder.path().display(),
                bin.display(),
                lab.path("").display(),
            );
            fs::write(at(&format!("sshd{number}")), server).unwrap();
            config += &format!(
                "Host lab{number}\n  ProxyCommand {sshd} -i -f {0}/sshd{number}\n  IdentityFile {0}/key\n  IdentitiesOnly yes\n  UserKnownHostsFile {0}/known\n  StrictHostKeyChecking no\n  LogLevel ERROR\n",
                folder.path().display(),
            );
            hosts.push(lab);
        }
        // Some that never answer.
        config += "Host dead1 dead2 dead3\n  ProxyCommand sleep 600\n";
        fs::write(at("config"), config).unwrap();
        Some(Self { user: Lab::new(), hosts, folder })
    }

    fn command(&self, hosts: &str, args: &[&str]) -> Command {
        let mut command = self.user.command(args);
        let config = self.folder.path().join("config");
        command.env("RIGLINE_SSH", format!("ssh -F {}", config.display())).env("RIGLINE_LAB", hosts);
        command
    }

    fn said(&self, hosts: &str, args: &[&str]) -> (i32, String) {
        said(&self.command(hosts, args).output().unwrap())
    }
}

/// A bridge to a rig, as a host of gevals has it.
pub(super) struct Bridge {
    pub(super) child: Child,
    input: Option<std::process::ChildStdin>,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Bridge {
    pub(super) fn new(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = std::io::BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for line in std::io::BufRead::lines(output) {
                let Ok(line) = line else { break };
                let _ = tell.send(line);
            }
        });
        let mut bridge = Self { input: child.stdin.take(), child, lines };
        bridge.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#);
        let line = bridge.line(Duration::from_secs(60)).unwrap();
        assert!(line.contains("\"result\""), "{line}");
        bridge
    }

    pub(super) fn send(&mut self, line: &str) {
        use std::io::Write as _;
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(super) fn execute(&mut self, id: u64, operation: &str, args: &str) {
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{operation}","args":{args},"context":{{}}}}}}"#
        ));
    }

    pub(super) fn line(&self, within: Duration) -> Option<String> {
        self.lines.recv_timeout(within).ok()
    }

    /// The answer to a request, behind what comes before it.
    pub(super) fn reply(&self, within: Duration) -> String {
        loop {
            let line = self.line(within).expect("an answer in time");
            if line.contains("\"id\":") {
                return line;
            }
        }
    }

    pub(super) fn end(mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) const ON: &str = r#"{"rail":"3V3","on":true}"#;

#[test]
fn a_rig_over_ssh_is_used_by_every_command_and_is_one_holders_at_a_time() {
    let Some(lab) = Ssh::with(1) else { return };
    let host = &lab.hosts[0];
    fs::write(host.path("rigs.toml"), sims(host, &["r1"], "sim")).unwrap();
    let (code, said) = lab.said("ssh:lab1", &["describe", "rig:lab1/r1"]);
    assert!(code == 0 && said.contains("measure"), "{code}: {said}");
    // By its name alone, and by its tag.
    for rig in ["rig:r1", "rig:kind=sim", "rig:lab1/kind=sim"] {
        let (code, said) = lab.said("ssh:lab1", &["call", rig, "measure", "channel=3V3", "--json", "--wait", "20s"]);
        assert!(code == 0 && said.contains("volts"), "{rig}: {code}: {said}");
    }
    for (rig, expected, why) in [
        ("rig:lab1/r2", 2, "the nearest rigs: r1"),
        ("rig:r2", 2, "lab1: rig:r2 is none of the 1 rigs"),
        ("rig:kind=pico", 2, "the nearest tags: kind=sim"),
        ("rig:lab9/r1", 2, "there is no host lab9"),
    ] {
        let (code, said) = lab.said("ssh:lab1", &["call", rig, "measure", "channel=3V3"]);
        assert!(code == expected && said.contains(why), "{rig}: {code}: {said}");
    }
    // In turn, in their order, with what is certain of a lease here.
    let hold = "touch $FOLDER/started; while [ ! -e $FOLDER/go ]; do sleep 0.02; done; echo $RIGLINE_RIGS > $FOLDER/mine; $RIGLINE call rig:$RIGLINE_RIGS measure channel=3V3; exit 7";
    let args = ["lock", "rig:lab1/r1", "--wait", "20s", "--", "sh", "-c", hold];
    let holder = lab.command("ssh:lab1", &args).spawn().unwrap();
    lab.user.wait_for("started");
    let (code, said) = lab.said("ssh:lab1", &["call", "rig:r1", "measure", "channel=3V3"]);
    assert!(code == 3 && said.contains(" has r1 for "), "{code}: {said}");
    let (code, said) = lab.said("ssh:lab1", &["lock", "rig:lab1/r1", "--wait", "300ms", "--", "true"]);
    assert!(code == 124 && said.contains("is over"), "{code}: {said}");
    let (code, said) = lab.said("ssh:lab1", &["lock", "rig:lab1/r1", "--raw", "--", "true"]);
    assert!(code == 2 && said.contains("--raw"), "{code}: {said}");
    let script = "echo begin $0 >> $FOLDER/log; sleep 0.05; echo end $0 >> $FOLDER/log";
    let mut others = Vec::new();
    for number in 0..3 {
        let args = ["lock", "rig:r1", "--wait", "5m", "--", "sh", "-c", script, &number.to_string()];
        others.push(lab.command("ssh:lab1", &args).spawn().unwrap());
        until("it has its place", || host.waiting() == number + 1);
    }
    // One that ends while it waits loses its place.
    let quitter = lab.command("ssh:lab1", &["lock", "rig:r1", "--wait", "5m", "--", "true"]).spawn().unwrap();
    until("it waits", || host.waiting() == 4);
    kill_process(pid(&quitter), Signal::INT).unwrap();
    assert_eq!(ended(quitter).0, 130);
    until("its place is gone", || host.waiting() == 3);
    fs::write(lab.user.path("go"), "").unwrap();
    assert_eq!(ended(holder).0, 7);
    assert_eq!(fs::read_to_string(lab.user.path("mine")).unwrap(), "lab1/r1\n");
    for other in others {
        let (code, said) = ended(other);
        assert_eq!(code, 0, "{said}");
    }
    let expected: String = (0..3).map(|number| format!("begin {number}\nend {number}\n")).collect();
    assert_eq!(fs::read_to_string(lab.user.path("log")).unwrap(), expected);
    host.is_in_order();
}

#[test]
fn a_holder_on_another_host_that_is_killed_frees_the_rig_and_leaves_no_process() {
    // labgrid-project/labgrid#1739
    let Some(lab) = Ssh::with(1) else { return };
    let host = &lab.hosts[0];
    fs::write(host.path("rigs.toml"), sims(host, &["r1"], "sim")).unwrap();
    let script = "echo $PPID > $FOLDER/keeper; echo $$ > $FOLDER/pid; trap '' TERM; sleep 600; sleep 600";
    for kills_keeper in [false, true] {
        let args = ["lock", "rig:lab1/r1", "--wait", "30s", "--", "sh", "-c", script];
        let holder = lab.command("ssh:lab1", &args).spawn().unwrap();
        let (keeper, inner) = (written(&lab.user, "keeper"), written(&lab.user, "pid"));
        fs::remove_file(lab.user.path("keeper")).unwrap();
        fs::remove_file(lab.user.path("pid")).unwrap();
        kill_process(if kills_keeper { keeper } else { pid(&holder) }, Signal::KILL).unwrap();
        assert!([-1, 137].contains(&ended(holder).0));
        let (code, said) = lab.said("ssh:lab1", &["lock", "rig:lab1/r1", "--wait", "20s", "--", "true"]);
        assert_eq!(code, 0, "{said}");
        assert!(!is_alive(inner));
    }
    // A lease that is broken there ends the command here, which is told by whom and why.
    let args = ["lock", "rig:lab1/r1", "--wait", "30s", "--", "sh", "-c", script];
    let holder = lab.command("ssh:lab1", &args).spawn().unwrap();
    let inner = written(&lab.user, "pid");
    let (code, said) = lab.said("ssh:lab1", &["lab", "break", "lab1/r1", "--reason", "the fire alarm"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = ended(holder);
    assert!(code == 3 && said.contains("the fire alarm"), "{code}: {said}");
    assert!(!is_alive(inner));
    until("it is free", || host.state("r1") == "free");
    host.is_in_order();
}

#[test]
fn what_was_stuck_in_a_pipe_until_it_was_too_late_is_not_run() {
    // nats-io/nats.rs#182
    let Some(lab) = Ssh::with(1) else { return };
    let host = &lab.hosts[0];
    fs::write(host.path("rigs.toml"), sims(host, &["r1"], "sim")).unwrap();
    let mut bridge = Bridge::new(lab.command("ssh:lab1", &["bridge", "rig:lab1/r1"]));
    bridge.execute(2, "measure", r#"{"channel":"3V3"}"#);
    assert!(bridge.reply(Duration::from_secs(20)).contains("\"result\""));
    // The way there stands still, and goes on when the command is too old.
    let ssh = children(pid(&bridge.child)).into_iter().next().expect("ssh is a child of the command");
    kill_process(ssh, Signal::STOP).unwrap();
    bridge.execute(3, "power", ON);
    thread::sleep(Duration::from_secs(7));
    kill_process(ssh, Signal::CONT).unwrap();
    let line = bridge.reply(Duration::from_secs(20));
    assert!(line.contains("error") && line.contains("too late"), "{line}");
    bridge.end();
    until("it is free", || host.state("r1") == "free");
    assert!(!heard(host, "r1").contains("\"power\""), "{}", heard(host, "r1"));
}

pub(super) fn children(of: Pid) -> Vec<Pid> {
    let mut all: Vec<Pid> = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", of.as_raw_nonzero())).unwrap() {
        let text = fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
        all.extend(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    all
}

#[test]
fn a_list_of_all_hosts_takes_a_second_and_names_those_that_do_not_answer() {
    let Some(lab) = Ssh::with(1) else { return };
    let host = &lab.hosts[0];
    fs::write(host.path("rigs.toml"), sims(host, &["r1"], "far")).unwrap();
    fs::write(lab.user.path("rigs.toml"), sims(&lab.user, &["r0"], "near")).unwrap();
    // In a file.
    fs::write(lab.user.path("lab.toml"), "hosts = ['ssh:lab1', 'ssh:dead1', 'ssh:dead2', 'ssh:dead3']\n").unwrap();
    let command = |args: &[&str]| {
        let mut command = lab.command("", args);
        command.env_remove("RIGLINE_LAB");
        command
    };
    // Agents are there.
    assert_eq!(said(&command(&["lab", "list"]).output().unwrap()).0, 0);
    // The best of a few times counts, since other tests run meanwhile.
    let mut found = Vec::new();
    for _ in 0..8 {
        let plain = Instant::now();
        command(&["--version"]).output().unwrap();
        let plain = plain.elapsed();
        let started = Instant::now();
        let output = command(&["lab", "list", "--json"]).output().unwrap();
        // Beside a command that has nothing to do.
        let took = started.elapsed().saturating_sub(plain);
        let rigs: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(rigs[0]["name"], "r0", "{output:?}");
        let complaints = String::from_utf8_lossy(&output.stderr);
        for dead in ["dead1", "dead2", "dead3"] {
            assert!(complaints.contains(&format!("{dead}: no answer within")), "{complaints}");
        }
        found.push(took);
        if took < Duration::from_secs(1) {
            break;
        }
    }
    assert!(found.iter().any(|took| *took < Duration::from_secs(1)), "{found:?}");
    // One that is named has more time.
    let (code, said) = super::lab::said(&command(&["lab", "list", "rig:lab1/kind=far"]).output().unwrap());
    assert!(code == 0 && said.contains("lab1/r1"), "{code}: {said}");
    let output = command(&["lab", "status", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let hosts: Vec<(&str, bool)> = status["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| (host["name"].as_str().unwrap(), host["error"].is_null()))
        .collect();
    for (name, answers) in [("localhost", true), ("dead1", false), ("dead3", false)] {
        assert!(hosts.contains(&(name, answers)), "{hosts:?}");
    }
    // What only a dead one may have is no wrong name.
    let (code, said) = super::lab::said(&command(&["call", "rig:r7", "measure"]).output().unwrap());
    assert!(code == 3 && said.contains("on no host that answers") && said.contains("dead2"), "{code}: {said}");
    // What is here is found at once, and what is asked for by its host.
    let started = Instant::now();
    let (code, said) = super::lab::said(&command(&["call", "rig:r0", "measure", "channel=3V3"]).output().unwrap());
    assert!(code == 0, "{code}: {said}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let (code, said) = super::lab::said(&command(&["--lab", "ssh:lab1", "lab", "list"]).output().unwrap());
    assert!(code == 0 && !said.contains("dead"), "{code}: {said}");
}

#[test]
fn a_host_that_refuses_is_told_with_what_ssh_says() {
    let Some(lab) = Ssh::with(1) else { return };
    fs::write(lab.folder.path().join("authorized_keys"), "").unwrap();
    let (code, said) = lab.said("ssh:lab1", &["call", "rig:lab1/r1", "measure"]);
    assert!(code == 3 && said.contains("lab1: ssh: ") && said.contains("Permission denied"), "{code}: {said}");
    for (hosts, why) in [("lab1", "`lab1` is no host"), ("ssh:a,ssh:a", "two hosts have the name a")] {
        let (code, said) = lab.said(hosts, &["lab", "list"]);
        assert!(code == 2 && said.contains("RIGLINE_LAB: ") && said.contains(why), "{hosts}: {code}: {said}");
    }
}

#[test]
fn several_rigs_at_once_are_those_of_one_host() {
    let Some(lab) = Ssh::with(2) else { return };
    for (host, names) in lab.hosts.iter().zip([&["a1", "a2"][..], &["b1"]]) {
        fs::write(host.path("rigs.toml"), sims(host, names, "sim")).unwrap();
    }
    let hosts = "ssh:lab1,ssh:lab2";
    let args = |count: &'static str| {
        ["lock", "rig:kind=sim", "--count", count, "--wait", "30s", "--", "sh", "-c", "echo $RIGLINE_RIGS"]
    };
    let (code, said) = lab.said(hosts, &args("2"));
    assert!(code == 0 && said.contains("lab1/a1 lab1/a2"), "{code}: {said}");
    let (code, said) = lab.said(hosts, &args("3"));
    assert!(
        code == 2 && said.contains("one host must have all of them") && said.contains("2 on lab1, 1 on lab2"),
        "{code}: {said}"
    );
    // One name on two hosts is ambiguous.
    fs::write(lab.hosts[1].path("rigs.toml"), sims(&lab.hosts[1], &["a1"], "sim")).unwrap();
    let (code, said) = lab.said(hosts, &["call", "rig:a1", "measure"]);
    assert!(code == 2 && said.contains("rig:lab1/a1 or rig:lab2/a1"), "{code}: {said}");
}

/// An eval of so many tasks, each of which calls `go`.
fn eval(lab: &Lab, tasks: usize) {
    let tasks: Vec<String> =
        (1..=tasks).map(|task| format!("{{ id: t{task}, steps: [{{ operation: go }}] }}")).collect();
    let eval = format!("name: e\nconfig: {{ executor: extension, target: sim }}\ntasks: [{}]\n", tasks.join(", "));
    fs::write(lab.path("eval.yaml"), eval).unwrap();
}

fn shards(report: &Value) -> Vec<(String, String, usize)> {
    let tasks = report["runs"][0]["tasks"].as_array().unwrap().iter();
    tasks
        .map(|task| {
            let trial = &task["trials"][0];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&task["id"]), text(&trial["shard"]), trial["earlier"].as_array().map_or(0, Vec::len))
        })
        .collect()
}

/// A page over one host, the rig on another one: the processes of both have numbers of their own.
#[test]
fn a_page_tells_its_own_lease_of_a_rig_on_another_host_from_those_of_other_processes() {
    let Some(lab) = Ssh::with(1) else { return };
    let host = &lab.hosts[0];
    fs::write(host.path("rigs.toml"), sims(host, &["r1"], "sim")).unwrap();
    let page = lab.command("ssh:lab1", &["web", "rig:lab1/r1", "--wait", "60s"]);
    let server = ServerProcess::run(page, tempfile::tempdir().unwrap());
    let rig = || server.api("/api/lab")["rigs"][0].clone();
    let holder = "touch $FOLDER/held; while [ ! -e $FOLDER/go ]; do sleep 0.02; done";
    let other = lab.command("ssh:lab1", &["lock", "rig:lab1/r1", "--", "sh", "-c", holder]).spawn().unwrap();
    lab.user.wait_for("held");
    assert_eq!((&rig()["name"], &rig()["mine"]), (&json!("lab1/r1"), &json!(false)), "{}", rig());
    let mut page = server.page();
    page.send(r#"{"jsonrpc":"2.0","id":1,"method":"describe"}"#);
    until("the page waits", || server.api("/api/lab")["queue"][0]["mine"] == true);
    fs::write(lab.user.path("go"), "").unwrap();
    until("the page has the rig", || rig()["mine"] == true);
    assert_eq!(ended(other).0, 0);
}

/// Rigs that take a while for an operation.
fn slow_rigs(lab: &Lab, names: &[&str]) -> String {
    let rig = |name: &&str| {
        let script = format!(
            r#"#!/bin/sh
while read -r line; do
  id=${{line#*'"id":'}}; id=${{id%%[!0-9]*}}
  case $line in
    *initialize*) result='{{"name":"one","version":"1.0.0","protocolVersion":"0.0.1","operations":{{"go":{{"params":{{}}}}}}}}' ;;
    *shutdown*) result='{{}}' ;;
    *) sleep 0.3; echo {name} >> {0}/done; result='{{"success":true}}' ;;
  esac
  printf '%s\n' "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}}"
  case $line in *shutdown*) exit 0 ;; esac
done
"#,
            lab.path("").display()
        );
        fs::write(lab.path(name), script).unwrap();
        format!("[[rig]]\nname = '{name}'\ntarget = 'exec:sh {}'\ntags = {{ kind = 'sh' }}\n", lab.path(name).display())
    };
    names.iter().map(rig).collect()
}

#[test]
fn tasks_are_spread_over_the_rigs_of_several_hosts_and_run_elsewhere_when_a_host_goes_bad() {
    let Some(lab) = Ssh::with(2) else { return };
    for (host, names) in lab.hosts.iter().zip([&["a1", "a2"][..], &["b1"]]) {
        fs::write(host.path("rigs.toml"), slow_rigs(host, names)).unwrap();
    }
    let hosts = "ssh:lab1,ssh:lab2";
    eval(&lab.user, 9);
    let (eval, runs) = (lab.user.path("eval.yaml"), lab.user.path("runs"));
    let run = |shards: &str| {
        let (eval, runs) = (eval.to_str().unwrap(), runs.to_str().unwrap());
        lab.command(
            hosts,
            &[
                "eval", "run", eval, "--runs", runs, "--quiet", "--rig", "kind=sh", "--shards", shards, "--json",
                "--wait", "1m",
            ],
        )
    };
    let output = run("3").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(output.status.success(), "{report:#}");
    let spread = shards(&report);
    assert_eq!(spread.len(), 9);
    for rig in ["rig:lab1/a1", "rig:lab1/a2", "rig:lab2/b1"] {
        assert!(spread.iter().any(|(_, shard, _)| shard == rig), "{spread:?}");
    }
    for host in &lab.hosts {
        until("its rigs are free", || {
            host.status()["rigs"].as_array().unwrap().iter().all(|rig| rig["state"] == "free")
        });
        host.is_in_order();
    }
    let (code, said) = said(&run("4").output().unwrap());
    assert!(code == 2 && said.contains("4 rigs are wanted, and 3 match on the hosts that answer"), "{code}: {said}");
    // A host that goes away in the middle.
    let done = lab.hosts[1].path("done");
    fs::remove_file(&done).unwrap();
    let mut running = run("3");
    let running = running.spawn().unwrap();
    until("a task has run there", || done.exists());
    let config = lab.folder.path().join("config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("Host lab2\n", "Host lab2\n  ProxyCommand false\n")).unwrap();
    for ssh in children(pid(&running)) {
        let words = fs::read(format!("/proc/{}/cmdline", ssh.as_raw_nonzero())).unwrap_or_default();
        if String::from_utf8_lossy(&words).contains("lab2") {
            kill_process(ssh, Signal::KILL).unwrap();
        }
    }
    let output = running.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(output.status.success(), "{report:#}");
    let spread = shards(&report);
    assert_eq!(spread.len(), 9, "{spread:?}");
    let moved: Vec<_> = spread.iter().filter(|(.., earlier)| *earlier > 0).collect();
    assert!(moved.len() == 1 && moved[0].1.starts_with("rig:lab1/"), "{spread:?}");
    assert!(report.to_string().contains("on rig:lab2/b1, which was lost"), "{report:#}");
}
