//! How time grows with size. Processor time of the command is compared between a size and a larger one, so that other programs hardly
//! change the result.

use std::fmt::Write as _;
use std::fs;
use std::process::Stdio;

use super::program::{post, status_of};
use super::{Attack, Outcome};

/// The larger size is so many times the smaller.
const FACTOR: usize = 8;
/// Quadratic work would take 64 times as long.
const LIMIT: f64 = 20.0;

pub(super) fn operations(attack: &Attack) -> Outcome {
    let mut all = Vec::new();
    let large = attack.operations.max(FACTOR);
    type Words = fn(&str, usize) -> Vec<String>;
    let paths: [(&str, &str, Words); 7] = [
        ("describe", "many", |target, _| words(&["describe", target, "--protocol", "gevals"])),
        ("describe --json", "many", |target, _| words(&["describe", target, "--protocol", "gevals", "--json"])),
        ("call", "many", |target, _| words(&["call", target, "op-0", "--protocol", "gevals"])),
        ("check", "many", |target, _| words(&["check", target, "--protocol", "gevals"])),
        ("mcp", "many", |target, _| words(&["mcp", target])),
        ("describe an operation of as many arguments", "wide", |target, _| {
            words(&["describe", target, "op-0", "--protocol", "gevals"])
        }),
        ("call with as many arguments", "wide", |target, count| {
            let values = (0..count).map(|number| format!("a{number}=1"));
            words(&["call", target, "op-0", "--protocol", "gevals"]).into_iter().chain(values).collect()
        }),
    ];
    // Of a few operations, the check's waits and its own cases are most of its time.
    let is_long = |name: &str| name == "check" && large < 20_000;
    for (name, peer, args) in paths.into_iter().filter(|(name, ..)| !is_long(name)) {
        let time = |count: usize| {
            let args = args(&attack.target(&format!("{peer} {count}")), count);
            processor_time(attack, &args.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let (small, large) = (time(large / FACTOR)?, time(large)?);
        all.push(compare(name, small, large)?);
    }
    let (small, server) = (of_page(attack, large / FACTOR)?, of_page(attack, large)?);
    all.push(compare("web", small, server)?);
    Ok(all.join(", "))
}

/// The seconds of processor time of the page's server until it has answered a call of one of so many operations.
fn of_page(attack: &Attack, count: usize) -> Result<f64, String> {
    let target = attack.target(&format!("many {count}"));
    let (program, address, line) = attack.serve(&["web", &target, "--port", "0"])?;
    let token = line.split_once("token=").map(|(_, token)| token.trim()).ok_or("no token")?;
    let body = r#"{"operation":"op-0","args":{},"context":{}}"#;
    let status = status_of(address, &post("/api/call", &format!("Authorization: Bearer {token}\r\n"), body))?;
    if status != 200 {
        return Err(format!("web: status {status}"));
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.id())).map_err(|error| error.to_string())?;
    Ok(seconds(&stat))
}

pub(super) fn transcript(attack: &Attack) -> Outcome {
    let folder = std::env::temp_dir().join(format!("rigline-attack-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let large = if attack.operations < 20_000 { 5 * attack.operations } else { 50 * attack.operations };
    let time = |lines: usize| {
        let path = folder.join(format!("{lines}.jsonl"));
        fs::write(&path, recording(lines)).map_err(|error| error.to_string())?;
        processor_time(attack, &["replay", &path.to_string_lossy()])
    };
    let outcome = time(large / FACTOR)
        .and_then(|small| Ok((small, time(large)?)))
        .and_then(|(small, large)| compare("replay", small, large))
        .map(|text| format!("{large} lines: {text}"));
    let _ = fs::remove_dir_all(&folder);
    outcome
}

/// A transcript of so many lines.
fn recording(lines: usize) -> String {
    let mut text =
        String::from("{\"rigline\":\"transcript\",\"version\":2,\"target\":\"x\",\"started_ms\":1795941516930}\n");
    for number in 0..lines / 2 {
        let call = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"execute","params":{{"operation":"op"}}}}"#);
        let reply = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"success":true}}}}"#);
        for (name, line) in [("sent", call), ("got", reply)] {
            let _ = writeln!(text, "{{\"ms\":{number},\"{name}\":{}}}", serde_json::Value::from(line));
        }
    }
    text
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn compare(name: &str, small: f64, large: f64) -> Outcome {
    let ratio = large / small.max(0.01);
    let text = format!("{name}: {FACTOR} times as much takes {ratio:.1} times as long ({large:.2} s)");
    if ratio > LIMIT { Err(text) } else { Ok(text) }
}

/// Runs the command to its end, and returns the seconds of processor time that it took itself, without the programs that it started.
fn processor_time(attack: &Attack, args: &[&str]) -> Result<f64, String> {
    let mut command = attack.rigline(args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| error.to_string())?;
    let id = child.id();
    // A process that has ended and was not waited for is still in /proc, with its times.
    let stat = loop {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).map_err(|error| error.to_string())?;
        if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) {
            break stat;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let ended = { child }.wait().map_err(|error| error.to_string())?;
    // A hostile extension does not pass each case of a check.
    let is_judged = args[0] == "check" && ended.code() == Some(1);
    if !ended.success() && !is_judged {
        return Err(format!("{}: {ended}", args.join(" ")));
    }
    Ok(seconds(&stat))
}

/// The processor time of a process so far.
fn seconds(stat: &str) -> f64 {
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    // proc(5): utime and stime are the fields 14 and 15, in hundredths of a second.
    let ticks: f64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}
