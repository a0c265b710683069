//! The lab when something about it is wrong: clients that stand still or are hostile, an agent that stands still, a full disk, stepped clocks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::{Value, json};

use crate::lab::{Lab, Raw, Talk, WAITS_FOR_GO, ended, extension, is_alive, pid, until, written};

const R1: &str = "[[rig]]\nname = 'r1'\ntarget = 'sim'\n";

#[test]
fn a_rig_that_is_offered_to_a_client_that_stands_still_goes_to_the_next_who_keeps_waiting() {
    // jumpstarter-dev/jumpstarter#237
    let lab = Lab::with_rigs(R1);
    let holder = lab.holder("rig:r1", WAITS_FOR_GO);
    let lock = |name: &str| {
        let script = format!("echo {name} >> $FOLDER/order");
        lab.command(&["lock", "rig:r1", "--wait", "2m", "--", "sh", "-c", &script]).spawn().unwrap()
    };
    let paused = lock("paused");
    until("it waits", || lab.waiting() == 1);
    let next = lock("next");
    until("both wait", || lab.waiting() == 2);
    kill_process(pid(&paused), Signal::STOP).unwrap();
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!((ended(holder).0, ended(next).0), (0, 0));
    kill_process(pid(&paused), Signal::CONT).unwrap();
    assert_eq!(ended(paused).0, 0);
    assert_eq!(fs::read_to_string(lab.path("order")).unwrap(), "next\npaused\n");
    lab.is_in_order();
}

#[test]
fn who_uses_a_lease_that_has_ended_is_told_by_whom_when_and_why_also_by_the_next_agent() {
    // jumpstarter-dev/jumpstarter#643
    let lab = Lab::with_rigs(R1);
    let holder = lab.holder("rig:r1", "echo $RIGLINE_LEASE > $FOLDER/lease; sleep 600");
    lab.wait_for("lease");
    until("it is written", || fs::read_to_string(lab.path("lease")).is_ok_and(|text| text.ends_with('\n')));
    let lease = fs::read_to_string(lab.path("lease")).unwrap().trim().to_owned();
    assert_eq!(lab.said(&["lab", "break", "r1", "--reason", "the fire alarm"]).0, 0);
    assert_eq!(ended(holder).0, 3);
    // Until then its processes are ended, and what says that it is of the lease is one of them.
    until("it is free", || lab.state("r1") == "free");
    let late = |lease: &str| {
        let output = lab.command(&["call", "rig:r1", "measure", "channel=3V3"]).env("RIGLINE_LEASE", lease).output();
        crate::lab::said(&output.unwrap())
    };
    for _ in 0..2 {
        let (code, said) = late(&lease);
        assert!(code == 3 && said.contains("the lease was ended by ") && said.contains("the fire alarm"), "{said}");
        kill_process(lab.agent(), Signal::KILL).unwrap();
    }
    let (code, said) = late("no-such-lease");
    assert!(code == 3 && said.contains("there is no such lease"), "{code}: {said}");
}

#[test]
fn an_agent_whose_whole_folder_was_emptied_goes_on_with_the_leases_that_its_holders_tell() {
    // labgrid-project/labgrid#947
    let lab = Lab::with_rigs(R1);
    let holder = lab.holder("rig:r1", &format!("{WAITS_FOR_GO}; exit 5"));
    let next = lab.command(&["lock", "rig:r1", "--wait", "5m", "--", "sh", "-c", "exit 6"]).spawn().unwrap();
    until("it waits", || lab.waiting() == 1);
    let before = lab.agent();
    for name in ["books.redb", "agent.lock", "starting.lock", "agent.log", "agent.sock"] {
        let _ = fs::remove_file(lab.path(name));
    }
    kill_process(before, Signal::KILL).unwrap();
    until("the next agent knows both", || {
        let status = lab.status();
        status["rigs"][0]["state"] == "leased" && lab.waiting() == 1
    });
    let (code, said) = lab.said(&["lock", "rig:r1", "--", "true"]);
    assert!(code == 3 && said.contains(" has r1 for "), "{code}: {said}");
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!((ended(holder).0, ended(next).0), (5, 6));
    lab.is_in_order();
}

#[test]
fn three_who_want_one_of_three_rigs_at_once_get_three_different_ones() {
    // jenkinsci/lockable-resources-plugin#123
    let rigs: String = (1..=3)
        .map(|number| format!("[[rig]]\nname = 'r{number}'\ntarget = 'sim'\ntags = {{ board = 'sim' }}\n"))
        .collect();
    let lab = Lab::with_rigs(&rigs);
    let script = "echo \"<$RIGLINE_RIGS>\" >> $FOLDER/got; while [ ! -e $FOLDER/go ]; do sleep 0.02; done";
    let lock = || lab.command(&["lock", "rig:board=sim", "--wait", "1m", "--", "sh", "-c", script]).spawn().unwrap();
    let children = [lock(), lock(), lock()];
    let got = || fs::read_to_string(lab.path("got")).unwrap_or_default();
    until("all have one", || got().lines().count() == 3);
    let mut names: Vec<String> = got().lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["<r1>", "<r2>", "<r3>"]);
    fs::write(lab.path("go"), "").unwrap();
    for child in children {
        assert_eq!(ended(child).0, 0);
    }
}

/// The library that pretends another time of day.
fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    folders.into_iter().find(|path| path.exists())
}

#[test]
fn a_lease_lasts_as_long_as_it_should_although_the_time_of_day_steps_by_an_hour() {
    // etcd-io/etcd#12291, kubernetes/kubernetes#23731
    let Some(library) = faketime() else {
        let remedy = "apt-get install libfaketime";
        rigline_test_support::skipped("a time of day that steps", "there is no libfaketime", remedy);
        return;
    };
    for step in ["+1h", "-1h"] {
        let lab = Lab::with_rigs(R1);
        let time = lab.path("time");
        fs::write(&time, "+0").unwrap();
        let faked = |args: &[&str]| {
            let mut command = lab.command(args);
            command.env("LD_PRELOAD", &library).env("FAKETIME_TIMESTAMP_FILE", &time).env("FAKETIME_NO_CACHE", "1");
            command.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            command
        };
        let mut agent = faked(&["lab", "agent"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("it listens", || lab.path("agent.sock").exists());
        let long = format!("touch $FOLDER/started; {WAITS_FOR_GO}; exit 7");
        let long = faked(&["lock", "rig:r1", "--ttl", "10m", "--", "sh", "-c", &long]).spawn().unwrap();
        lab.wait_for("started");
        fs::write(&time, step).unwrap();
        // The agent looks at its clock, and at what is due.
        let other = faked(&["lock", "rig:r1", "--wait", "1s", "--", "true"]).output().unwrap();
        assert_eq!(crate::lab::said(&other).0, 124);
        assert_eq!(lab.state("r1"), "leased");
        fs::write(lab.path("go"), "").unwrap();
        assert_eq!(ended(long).0, 7, "{step}");
        // One that must end does so, whatever the time of day is.
        fs::write(&time, "+0").unwrap();
        let script = "touch $FOLDER/short; sleep 600";
        let short = ["lock", "rig:r1", "--wait", "30s", "--ttl", "2s", "--", "sh", "-c", script];
        let short = faked(&short).spawn().unwrap();
        lab.wait_for("short");
        fs::write(&time, step).unwrap();
        let (code, said) = ended(short);
        assert!(code == 3 && said.contains("its time is over"), "{step}: {code}: {said}");
        kill_process(pid(&agent), Signal::TERM).unwrap();
        agent.wait().unwrap();
    }
}

#[test]
fn what_a_client_has_sent_before_it_went_is_not_done_by_an_agent_that_wakes_up_later() {
    // nats-io/nats.rs#182
    let lab = Lab::new();
    let rig = extension(&lab, "r1", "0");
    fs::write(lab.path("rigs.toml"), rig).unwrap();
    let mut bridge = Talk::new(lab.command(&["bridge", "rig:r1"]));
    bridge.ask(1, "initialize", json!({ "protocolVersion": "0.0.1" }));
    let go = json!({ "operation": "go", "args": {}, "context": {} });
    assert_eq!(bridge.ask(2, "execute", go.clone())["result"]["success"], true);
    let agent = lab.agent();
    kill_process(agent, Signal::STOP).unwrap();
    bridge.send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "execute", "params": go }));
    // It is in the agent's socket by then.
    thread::sleep(Duration::from_millis(300));
    bridge.child.kill().unwrap();
    bridge.child.wait().unwrap();
    kill_process(agent, Signal::CONT).unwrap();
    until("it is free", || lab.state("r1") == "free");
    assert_eq!(fs::read_to_string(lab.path("done")).unwrap().lines().count(), 1);
}

#[test]
fn an_agent_that_stands_still_for_a_while_costs_nobody_a_lease_or_a_place() {
    let lab = Lab::with_rigs(R1);
    let holder = lab.holder("rig:r1", &format!("{WAITS_FOR_GO}; exit 5"));
    let next = lab.command(&["lock", "rig:r1", "--wait", "5m", "--", "sh", "-c", "exit 6"]).spawn().unwrap();
    until("it waits", || lab.waiting() == 1);
    let agent = lab.agent();
    kill_process(agent, Signal::STOP).unwrap();
    // Longer than a heartbeat's answer is waited for.
    thread::sleep(Duration::from_secs(17));
    kill_process(agent, Signal::CONT).unwrap();
    assert_eq!(lab.agent(), agent);
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!((ended(holder).0, ended(next).0), (5, 6));
    lab.is_in_order();
}

#[test]
fn a_keeper_that_stands_still_for_a_while_keeps_its_lease_and_its_command() {
    let lab = Lab::with_rigs(R1);
    let script = format!("echo $PPID > $FOLDER/keeper; {WAITS_FOR_GO}; exit 5");
    let holder = lab.holder("rig:r1", &script);
    let keeper = written(&lab, "keeper");
    for process in [keeper, pid(&holder)] {
        kill_process(process, Signal::STOP).unwrap();
        thread::sleep(Duration::from_secs(7));
        kill_process(process, Signal::CONT).unwrap();
        let (code, said) = lab.said(&["lock", "rig:r1", "--", "true"]);
        assert!(code == 3 && said.contains(" has r1 for "), "{code}: {said}");
    }
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!(ended(holder).0, 5);
}

/// A file system of a few megabytes, which is full when it is.
struct Disk(PathBuf);

impl Disk {
    fn at(path: &Path) -> Option<Self> {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(path).output().ok()?;
        mount.status.success().then(|| Self(path.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_grants_nothing_takes_nothing_away_and_when_there_is_room_again_all_goes_on() {
    let lab = Lab::new();
    let Some(_disk) = Disk::at(lab.folder.path()) else {
        let remedy = "sudo -E env PATH=$PATH cargo test -p rigline-cli --test suite a_full_disk";
        rigline_test_support::skipped("a full disk", "only root can mount one", remedy);
        return;
    };
    let rigs = "[[rig]]\nname = 'r1'\ntarget = 'sim'\n[[rig]]\nname = 'r2'\ntarget = 'sim'\n";
    fs::write(lab.path("rigs.toml"), rigs).unwrap();
    let holder = lab.holder("rig:r1", WAITS_FOR_GO);
    let fill = || {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(lab.path("fill")).unwrap();
        while file.write_all(&[b'x'; 4096]).is_ok() {}
    };
    fill();
    // What the books have room for in their own file is granted still; then nothing is.
    let mut refused = String::new();
    until("nothing is granted", || {
        fill();
        let (code, said) = lab.said(&["lock", "rig:r2", "--wait", "30s", "--", "true"]);
        refused = said;
        code == 3
    });
    assert!(refused.contains("cannot write its books"), "{refused}");
    // Who has a rig keeps it.
    let (code, said) = lab.said(&["lock", "rig:r1", "--", "true"]);
    assert!(code == 3 && said.contains(" has r1 for "), "{code}: {said}");
    fs::remove_file(lab.path("fill")).unwrap();
    let (code, said) = lab.said(&["lock", "rig:r2", "--wait", "30s", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!(ended(holder).0, 0);
    kill_process(lab.agent(), Signal::KILL).unwrap();
    let (code, said) = lab.said(&["lock", "rig:r1", "--wait", "30s", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    lab.is_in_order();
}

#[test]
fn torn_books_are_put_aside_and_the_holders_tell_their_leases() {
    let lab = Lab::with_rigs(R1);
    let holder = lab.holder("rig:r1", &format!("{WAITS_FOR_GO}; exit 5"));
    let before = lab.agent();
    kill_process(before, Signal::STOP).unwrap();
    let length = fs::metadata(lab.path("books.redb")).unwrap().len();
    let mut torn = fs::read(lab.path("books.redb")).unwrap();
    // The half of it, and of that the pages behind the head are something else.
    torn.truncate(usize::try_from(length / 2).unwrap());
    torn.iter_mut().skip(512).for_each(|byte| *byte ^= 0x5a);
    fs::write(lab.path("books.redb"), torn).unwrap();
    kill_process(before, Signal::KILL).unwrap();
    until("the next agent knows the lease", || lab.state("r1") == "leased" && lab.agent() != before);
    let aside = fs::read_dir(lab.folder.path()).unwrap().flatten();
    assert!(aside.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("damaged")));
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!(ended(holder).0, 5);
    lab.is_in_order();
}

#[test]
fn hostile_bytes_on_the_socket_cost_their_sender_an_error_and_nobody_else_anything() {
    let lab = Lab::with_rigs(R1);
    let holder = lab.holder("rig:r1", &format!("{WAITS_FOR_GO}; exit 5"));
    let agent = lab.agent();
    let lines: Vec<Vec<u8>> = vec![
        vec![0xff; 3000],
        vec![b'['; 60_000],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\"".to_vec(),
        vec![b'x'; 3 << 20],
        json!({ "jsonrpc": "2.0", "id": 1, "method": "no_such", "params": {} }).to_string().into_bytes(),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "renew", "params": [1, 2] }).to_string().into_bytes(),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "attach", "params": { "lease": "x", "keeps": true, "told": {} } })
            .to_string()
            .into_bytes(),
        json!([{ "jsonrpc": "2.0", "id": 1, "method": "open", "params": {} }]).to_string().into_bytes(),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "lock", "params": {
            "request": "r", "rigs": ["rig:r1"], "count": u64::MAX, "wait": u64::MAX, "since": u64::MAX, "ttl": u64::MAX,
            "idle": u64::MAX, "is_raw": false, "purpose": "\u{1b}[2J".repeat(1000),
        } })
        .to_string()
        .into_bytes(),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "break", "params": { "rig": "r1" } }).to_string().into_bytes(),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "release", "params": { "lease": "x".repeat(60_000) } })
            .to_string()
            .into_bytes(),
    ];
    for line in lines {
        let mut stream = UnixStream::connect(lab.path("agent.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.write_all(&line);
        let _ = stream.write_all(b"\n");
        let mut said = [0; 4096];
        let count = stream.read(&mut said).unwrap_or(0);
        let said = String::from_utf8_lossy(&said[..count]);
        let what = String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned();
        assert!(said.contains("\"error\""), "{what}: {said}");
    }
    // Frames where a port is open, or is not.
    for frame in [&[9_u8; 30][..], &[0; 21], &[0, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let mut raw = Raw::open(&lab);
        raw.send("open", &json!({ "lease": "none", "rig": "r1" }));
        let _ = raw.stream.write_all(frame);
        let mut said = Vec::new();
        let _ = raw.stream.read_to_end(&mut said);
        assert!(String::from_utf8_lossy(&said).contains("no such lease"), "{said:?}");
    }
    // One that never reads is disconnected in the end, and one that sends half a line waits for nobody.
    let mut deaf = UnixStream::connect(lab.path("agent.sock")).unwrap();
    let status = format!("{}\n", json!({ "jsonrpc": "2.0", "id": 1, "method": "log", "params": {} }));
    deaf.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    for _ in 0..2000 {
        if deaf.write_all(status.as_bytes()).is_err() {
            break;
        }
    }
    let mut half = UnixStream::connect(lab.path("agent.sock")).unwrap();
    half.write_all(b"{\"jsonrpc\"").unwrap();
    assert_eq!((lab.agent(), lab.state("r1")), (agent, json!("leased")));
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!(ended(holder).0, 5);
    lab.is_in_order();
}

#[test]
fn with_a_thousand_who_wait_the_agent_answers_and_nobody_loses_a_lease() {
    // Both ends of each connection are files of this machine, and one is of this process.
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < 4096) {
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: Some(maximum.map_or(4096, |most| most.min(4096))), maximum });
    }
    let lab = Lab::with_rigs("[[rig]]\nname = 'r1'\ntarget = 'sim'\n[[rig]]\nname = 'r2'\ntarget = 'sim'\n");
    let holder = lab.holder("rig:r1", &format!("{WAITS_FOR_GO}; exit 5"));
    let agent = lab.agent();
    let mut waiting = Vec::new();
    for number in 0..1000 {
        let mut stream = UnixStream::connect(lab.path("agent.sock")).unwrap();
        let want = json!({ "jsonrpc": "2.0", "id": 1, "method": "lock", "params": {
            "request": format!("r{number}"), "rigs": ["rig:r1"], "count": 1, "wait": 600_000, "since": 0, "ttl": 600_000,
            "idle": 0, "is_raw": false, "purpose": "",
        } });
        stream.write_all(format!("{want}\n").as_bytes()).unwrap();
        waiting.push(stream);
    }
    until("all wait", || lab.waiting() == 1000);
    let started = Instant::now();
    let (code, said) = lab.said(&["lock", "rig:r1", "--wait", "1m", "--", "true"]);
    assert!(code == 3 && said.contains("1000 requests of ") && said.contains(" wait already"), "{code}: {said}");
    assert_eq!(lab.said(&["call", "rig:r2", "measure", "channel=3V3"]).0, 3, "its user's limit is for all rigs");
    // Others use their rigs meanwhile, and a command is not slow for it.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    drop(waiting.split_off(500));
    until("those that have gone have no place", || lab.waiting() == 500);
    let (code, said) = lab.said(&["call", "rig:r2", "measure", "channel=3V3"]);
    assert_eq!(code, 0, "{said}");
    drop(waiting);
    fs::write(lab.path("go"), "").unwrap();
    assert_eq!(ended(holder).0, 5);
    assert!(is_alive(agent));
    let (code, said) = lab.said(&["lock", "rig:r1", "--wait", "1m", "--", "true"]);
    assert_eq!(code, 0, "{said}");
    lab.is_in_order();
}

#[test]
fn many_commands_without_an_agent_start_one() {
    let lab = Lab::with_rigs(R1);
    let commands: Vec<_> = (0..12).map(|_| lab.command(&["lab", "status", "--json"]).spawn().unwrap()).collect();
    let agents: Vec<Value> = commands
        .into_iter()
        .map(|command| serde_json::from_slice(&command.wait_with_output().unwrap().stdout).unwrap())
        .map(|status: Value| status["agent"]["pid"].clone())
        .collect();
    assert!(agents.iter().all(|agent| *agent == agents[0]), "{agents:?}");
}

#[test]
fn an_agent_that_cannot_start_is_told_at_once_with_the_reason() {
    let lab = Lab::new();
    fs::create_dir(lab.path("books.redb")).unwrap();
    let started = Instant::now();
    let (code, said) = lab.said(&["lock", "sim", "--", "true"]);
    assert!(code == 3 && said.contains("books.redb"), "{code}: {said}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}
