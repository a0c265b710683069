//! Programs that stop, or that leave others behind.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::program::{PATIENCE, Program, processes_with, signal_to};
use super::{Attack, Outcome};

pub(super) fn stopped(attack: &Attack) -> Outcome {
    let target = attack.target("quiet");
    let mut program = attack.start(&["bridge", &target])?;
    program.ask(1, r#""method":"initialize","params":{"protocolVersion":"0.0.1"}"#)?;
    let mut id = 1;
    let mut call = |program: &mut Program| {
        id += 1;
        let call = r#""method":"execute","params":{"operation":"op-0","args":{},"context":{"timeout":"1s"}}"#;
        program.ask(id, call).map(|reply| reply["result"]["success"] == true)
    };
    if !call(&mut program)? {
        return Err("the first call fails".into());
    }
    let children = children_of(program.id());
    if children.is_empty() {
        return Err("the server has no child".into());
    }
    children.iter().for_each(|id| signal_to(*id, Signal::STOP));
    let begun = Instant::now();
    call(&mut program)?;
    let took = begun.elapsed();
    children.iter().for_each(|id| signal_to(*id, Signal::CONT));
    if took > Duration::from_secs(10) {
        return Err(format!("a call of a stopped extension is answered after {took:?}"));
    }
    if !call(&mut program)? {
        return Err("the call after it fails".into());
    }
    // The server itself is paused, and comes back.
    program.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(1));
    program.signal(Signal::CONT);
    match call(&mut program)? {
        true => Ok(format!("answered after {:.1} s", took.as_secs_f64())),
        false => Err("after the command was paused a call fails".into()),
    }
}

fn children_of(id: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children.flat_map(|line| line.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

pub(super) fn descendants(attack: &Attack) -> Outcome {
    // The length of the sleep is its name.
    let name = format!("sleep 86{:05}", std::process::id() % 100_000);
    let peer = format!("{} peer quiet", attack.peers.display());
    let mut all = Vec::new();
    for (what, script, stays) in [
        ("in the group: ended", format!("{name} & exec {peer}"), false),
        ("after setsid: ended", format!("setsid {name} & exec {peer}"), false),
        ("after setsid with one pipe: ended", format!("setsid {name} >/dev/null </dev/null & exec {peer}"), false),
        ("a daemon without our pipes: stays", format!("setsid {name} >/dev/null 2>&1 </dev/null & exec {peer}"), true),
    ] {
        let target = format!("exec:sh -c '{script}'");
        let mut program = attack.start(&["call", &target, "op-0", "--protocol", "gevals"])?;
        program.wait(PATIENCE)?;
        let begun = Instant::now();
        let mut left = processes_with(&name);
        // What is ended is ended within two seconds of the command's end.
        while begun.elapsed() < Duration::from_secs(4) && (stays || !left.is_empty()) {
            thread::sleep(Duration::from_millis(50));
            left = processes_with(&name);
        }
        left.iter().for_each(|id| signal_to(*id, Signal::KILL));
        if left.is_empty() == stays {
            return Err(format!("{what}? {} run", left.len()));
        }
        all.push(what);
    }
    Ok(all.join(", "))
}

pub(super) fn clock(attack: &Attack) -> Outcome {
    let Some(library) = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"]
        .iter()
        .map(|folder| format!("{folder}/faketime/libfaketimeMT.so.1"))
        .find(|path| Path::new(path).is_file())
    else {
        return Ok("not run: there is no libfaketime".into());
    };
    let file = std::env::temp_dir().join(format!("rigline-clock-{}", std::process::id()));
    let set = |time: &str| fs::write(&file, time).map_err(|error| error.to_string());
    set("+0")?;
    let mut command = attack.rigline(&["mcp", "sim"]);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &file);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let outcome = (|| {
        let mut program = Program::start(&mut command)?;
        program.ask(1, r#""method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}"#)?;
        let mut longest = Duration::ZERO;
        for (id, step) in [(2, "+1d"), (3, "-1d"), (4, "+0"), (5, "-400d"), (6, "+400d")] {
            set(step)?;
            let begun = Instant::now();
            let wait = r#""method":"tools/call","params":{"name":"wait_for","arguments":{"channel":"AUX","min":1,"max":2,"within_ms":300}}"#;
            let reply = program.ask(id, wait)?;
            longest = longest.max(begun.elapsed());
            if reply["result"]["isError"] != true {
                return Err(format!("{step}: {reply}"));
            }
        }
        if longest > Duration::from_secs(5) {
            return Err(format!("a wait of 0.3 s took {longest:?}"));
        }
        Ok(format!("a wait of 0.3 s took {:.1} s at most", longest.as_secs_f64()))
    })();
    let _ = fs::remove_file(&file);
    outcome
}
