//! Peers that write without end, and clients that do not read.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::program::{PATIENCE, Program, dial, post, status_of};
use super::{Attack, Outcome};

/// How much memory a flood may cost, in KiB: two queues of some MiB, what is being written, and what the allocator keeps of it.
const LIMIT: u64 = 64 << 10;
/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(2);

const INITIALIZE: &str = r#""method":"initialize","params":{"protocolVersion":"0.0.1"}"#;
const EXECUTE: &str = r#""method":"execute","params":{"operation":"op-0","args":{},"context":{}}"#;
const MCP: &str = r#""method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}"#;
const TOOL: &str = r#""method":"tools/call","params":{"name":"op_0","arguments":{}}"#;

pub(super) fn logs_between_calls(attack: &Attack) -> Outcome {
    on_every_path(attack, "between")
}

pub(super) fn logs_during_a_call(attack: &Attack) -> Outcome {
    on_every_path(attack, "during")
}

pub(super) fn noise(attack: &Attack) -> Outcome {
    let mut all = Vec::new();
    for peer in ["noise", "stderr", "replies", "requests"] {
        all.push(format!("{peer}: {}", on_lines(attack, &["mcp"], peer)?));
        all.push(format!("{peer}: {}", on_lines(attack, &["bridge"], peer)?));
    }
    // Nothing more can come from that one.
    let target = attack.target("endless");
    for args in [["mcp", &target], ["bridge", &target]] {
        let mut program = attack.start(&args)?;
        let is_mcp = args[0] == "mcp";
        program.ask(1, if is_mcp { MCP } else { INITIALIZE })?;
        let before = program.peak()?;
        thread::sleep(FLOOD);
        // The limit of a line is 16 MiB, and it is kept twice while it grows.
        all.push(format!("endless: {}", program.took(args[0], before, 2 * LIMIT)?));
    }
    Ok(all.join(", "))
}

fn on_every_path(attack: &Attack, peer: &str) -> Outcome {
    let mut all = vec![on_lines(attack, &["mcp"], peer)?, on_lines(attack, &["bridge"], peer)?];
    let target = attack.target(peer);
    all.push(on_tcp(attack, &target)?);
    all.push(on_http(attack, &target)?);
    all.push(on_command(attack, &["call", &target, "op-0", "--protocol", "gevals"])?);
    Ok(all.join(", "))
}

fn on_lines(attack: &Attack, command: &[&str], peer: &str) -> Outcome {
    let mut program = attack.start(&[command, &[&attack.target(peer)]].concat())?;
    let is_mcp = command == ["mcp"];
    program.ask(1, if is_mcp { MCP } else { INITIALIZE })?;
    if is_mcp {
        program.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
    }
    let before = program.peak()?;
    if peer != "during" {
        thread::sleep(FLOOD);
    }
    for id in 2..5 {
        let reply = program.ask(id, if is_mcp { TOOL } else { EXECUTE })?;
        if reply["result"].is_null() || reply["result"]["isError"] == true {
            return Err(format!("{}: {reply}", command[0]));
        }
    }
    program.took(command[0], before, LIMIT)
}

fn on_tcp(attack: &Attack, target: &str) -> Outcome {
    let (program, address, _) = attack.serve(&["serve", target, "--tcp", "127.0.0.1:0"])?;
    let mut stream = dial(address)?;
    let mut lines = BufReader::new(stream.try_clone().map_err(|error| error.to_string())?).lines();
    let mut before = 0;
    for (id, rest) in [(1, INITIALIZE), (2, EXECUTE), (3, EXECUTE)] {
        writeln!(stream, "{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}").map_err(|error| error.to_string())?;
        let is_reply =
            |line: &String| serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line["id"] == id);
        let reply = lines.by_ref().map_while(Result::ok).find(is_reply).ok_or("serve --tcp: no reply")?;
        if reply.contains("\"error\"") {
            return Err(format!("serve --tcp: {reply}"));
        }
        if id == 1 {
            before = program.peak()?;
            thread::sleep(FLOOD);
        }
    }
    program.took("serve --tcp", before, LIMIT)
}

fn on_http(attack: &Attack, target: &str) -> Outcome {
    let (program, address, _) = attack.serve(&["serve", target, "--http", "127.0.0.1:0", "--protocol", "amplifier"])?;
    let before = program.peak()?;
    thread::sleep(FLOOD);
    for _ in 0..2 {
        let body = json!({"op": "op-0", "args": {}}).to_string();
        let status = status_of(address, &post("/invoke", "", &body))?;
        if status != 200 {
            return Err(format!("serve --http: status {status}"));
        }
    }
    program.took("serve --http", before, LIMIT)
}

/// A command that ends by itself.
fn on_command(attack: &Attack, args: &[&str]) -> Outcome {
    let mut program = attack.start(args)?;
    let mut peak = 0;
    let begun = Instant::now();
    while program.wait(Duration::from_millis(50)).is_err() {
        peak = peak.max(program.peak().unwrap_or(0));
        if begun.elapsed() > 4 * PATIENCE {
            return Err(format!("{}: it has not ended", args[0]));
        }
    }
    // A command begins with some 50 MiB in a debug build.
    if peak > 2 * LIMIT {
        Err(format!("{}: {peak} KiB", args[0]))
    } else {
        Ok(format!("{} {peak} KiB in all", args[0]))
    }
}

/// An eval whose only step calls the peer, in a folder of its own, which is removed behind `use_it`.
fn with_eval(attack: &Attack, use_it: impl FnOnce(&str, &str) -> Outcome) -> Outcome {
    let folder = std::env::temp_dir().join(format!("rigline-eval-{}", std::process::id()));
    let made = fs::create_dir_all(&folder).and_then(|()| {
        let target = json!(attack.target("during"));
        let text =
            format!("name: e\nconfig: {{ target: {target} }}\ntasks: [ {{id: t, steps: [ {{operation: op-0}} ]}} ]\n");
        fs::write(folder.join("e.yaml"), text)
    });
    let outcome = made.map_err(|error| error.to_string()).and_then(|()| {
        let (folder, runs) = (folder.to_string_lossy(), folder.join("runs"));
        use_it(&folder, &runs.to_string_lossy())
    });
    let _ = fs::remove_dir_all(&folder);
    outcome
}

pub(super) fn eval(attack: &Attack) -> Outcome {
    with_eval(attack, |folder, runs| {
        let file = format!("{folder}/e.yaml");
        let mut all = vec![on_command(attack, &["eval", "run", &file, "--runs", runs, "-v"])?];
        // An agent's tool, whose client does not read what comes before the result.
        let mut program = attack.start(&["mcp", &attack.target("during"), "--evals", folder, "--runs", runs])?;
        program.ask(1, MCP)?;
        let before = program.peak()?;
        let call = r#""method":"tools/call","params":{"name":"run_eval","arguments":{"id":"e.yaml"},"_meta":{"progressToken":"p"}}"#;
        let reply = program.ask(2, call)?;
        if reply["result"]["structuredContent"]["verdict"] != "pass" {
            return Err(format!("run_eval: {reply}"));
        }
        all.push(program.took("mcp --evals", before, LIMIT)?);
        let mut program = attack.start(&["jsonrpc", "--root", folder, "--runs", runs])?;
        let before = program.peak()?;
        program.ask(1, r#""method":"eval.run","params":{"path":"e.yaml"}"#)?;
        // Its notifications wait while nobody reads them.
        thread::sleep(2 * FLOOD);
        all.push(program.took("jsonrpc", before, LIMIT)?);
        Ok(all.join(", "))
    })
}

pub(super) fn recorder(attack: &Attack) -> Outcome {
    let folder = std::env::temp_dir().join(format!("rigline-recorded-{}", std::process::id()));
    let target = attack.target("during");
    let outcome =
        on_command(attack, &["call", &target, "op-0", "--protocol", "gevals", "--record", &folder.to_string_lossy()]);
    let _ = fs::remove_dir_all(&folder);
    outcome
}

pub(super) fn event_stream(attack: &Attack) -> Outcome {
    let mut server = Program::start(Command::new(&attack.peers).args(["peer", "events"]))?;
    let url = server.line(PATIENCE)?;
    let mut program = attack.start(&["mcp", &url])?;
    program.ask(1, MCP)?;
    let before = program.peak()?;
    let reply = program.ask(2, TOOL)?;
    if reply["result"].is_null() {
        return Err(reply.to_string());
    }
    program.took("mcp http", before, LIMIT)
}

pub(super) fn unread(attack: &Attack) -> Outcome {
    let mut all = Vec::new();
    for args in [&["serve", "sim", "--tcp", "127.0.0.1:0"][..], &["jsonrpc", "--tcp", "127.0.0.1:0"]] {
        let (program, address, _) = attack.serve(args)?;
        let before = program.peak()?;
        let mut deaf = dial(address)?;
        deaf.set_write_timeout(Some(Duration::from_secs(1))).map_err(|error| error.to_string())?;
        let line =
            r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"identify","args":{},"context":{}}}"#;
        let lines = format!("{line}\n").repeat(1000);
        let begun = Instant::now();
        while begun.elapsed() < FLOOD && deaf.write_all(lines.as_bytes()).is_ok() {}
        // Another client is answered meanwhile.
        let mut other = dial(address)?;
        writeln!(other, "{line}").map_err(|error| error.to_string())?;
        let mut reply = String::new();
        let read = BufReader::new(other).read_line(&mut reply);
        if !matches!(read, Ok(1..)) {
            return Err(format!("{}: another client is not answered", args[0]));
        }
        all.push(program.took(args[0], before, LIMIT)?);
    }
    Ok(all.join(", "))
}

pub(super) fn pipelined(attack: &Attack) -> Outcome {
    const COUNT: usize = 10_000;
    let mut all = Vec::new();
    for args in [&["monitor", "sim"][..], &["rig"], &["bridge", "sim"]] {
        let mut child = attack.rigline(args);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|error| error.to_string())?;
        let (mut stdin, stdout) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        let begun = Instant::now();
        thread::spawn(move || {
            for id in 0..COUNT {
                let params = r#"{"operation":"gpio-read","args":{"pin":"LED"},"context":{}}"#;
                let _ = writeln!(stdin, r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{params}}}"#);
            }
            // `monitor` ends with its input; its target may not have answered by then.
            thread::sleep(4 * PATIENCE);
        });
        let (told, answered) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok).take(COUNT).count();
            let _ = told.send(lines);
        });
        let lines = answered.recv_timeout(2 * PATIENCE);
        let _ = child.kill();
        let _ = child.wait();
        if lines != Ok(COUNT) {
            return Err(format!("{}: {lines:?} of {COUNT} within {:?}", args[0], 2 * PATIENCE));
        }
        all.push(format!("{} {:.1} s", args[0], begun.elapsed().as_secs_f64()));
    }
    Ok(all.join(", "))
}

pub(super) fn large(attack: &Attack) -> Outcome {
    let call = r#""method":"execute","params":{"operation":"identify","args":{},"context":{}}"#;
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let batch = format!("[{}]", vec![format!("{{\"jsonrpc\":\"2.0\",\"id\":1,{call}}}"); 50_000].join(","));
    let long_id = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",{call}}}", "i".repeat(1_000_000));
    let long_name = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}", "m".repeat(1_000_000));
    let too_long = "x".repeat(9 << 20);
    let mut all = Vec::new();
    for args in [&["rig"][..], &["bridge", "sim"], &["mcp", "sim"], &["jsonrpc"]] {
        let mut program = attack.start(args)?;
        program.ask(1, if args[0] == "mcp" { MCP } else { INITIALIZE })?;
        let before = program.peak()?;
        for (what, line) in
            [("deep", &deep), ("batch", &batch), ("id", &long_id), ("name", &long_name), ("line", &too_long)]
        {
            program.send(line)?;
            let reply = program.line(PATIENCE).map_err(|error| format!("{} {what}: {error}", args[0]))?;
            if !reply.contains("\"error\"") || reply.len() > 100_000 {
                return Err(format!("{} {what}: {reply:.300}", args[0]));
            }
        }
        // It works as before.
        program.ask(7, r#""method":"ping""#)?;
        all.push(program.took(args[0], before, LIMIT)?);
    }
    Ok(all.join(", "))
}

/// Reads all that comes, and counts it.
pub(super) fn drain(mut stream: impl Read) -> usize {
    let (mut buffer, mut count) = (vec![0; 64 * 1024], 0);
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        count += read;
    }
    count
}
