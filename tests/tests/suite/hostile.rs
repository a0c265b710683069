//! Every server of the command `rigline` under hostile traffic: valid, damaged, oversized, foreign and blank lines, mixed.
//!
//! What must hold: the server stays alive; all that it writes is lines of JSON; each request is answered once; its memory and its
//! descriptors stay flat. A small run is part of `cargo test`; `RIGLINE_HOSTILE=200000` sets the number of lines for all servers together.
//!
//! And two endpoints whose streams are connected to each other: whatever line starts it, they fall silent.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rigline_tests::hostile::{PATIENCE, Random, Request, Wire, damaged, flipped, gevals_batch, gevals_call};
use rigline_tests::session::rigline;
use serde_json::{Value, json};

/// Lines that are sent before their answers are awaited.
const CHUNK: usize = 200;
/// One byte more than every server takes, and the newline.
const OVERSIZED: usize = (8 << 20) + 1;
/// How much a server's memory may grow after its first quarter, in KiB: allocators keep some of what was freed.
const GROWTH: u64 = 24 << 10;

/// The servers that the lines are shared among.
const SERVERS: usize = 9;

fn lines_per_server() -> usize {
    let all: usize =
        env::var("RIGLINE_HOSTILE").map_or(18_000, |lines| lines.parse().expect("RIGLINE_HOSTILE is a number"));
    all / SERVERS
}

#[test]
fn the_rig_on_standard_input_and_output() {
    let (server, wire) = stdio(&["rig"]);
    on_lines(server, wire, &[gevals_call, gevals_batch]);
}

#[test]
fn the_rig_in_all_protocols_on_one_stream() {
    let (server, wire) = stdio(&["rig"]);
    in_order(server, wire, &[amplifier_call, namel3ss_call, amplifier_health]);
}

#[test]
fn a_bridge() {
    let (server, wire) = stdio(&["bridge", "sim"]);
    on_lines(server, wire, &[gevals_call]);
}

#[test]
fn a_tcp_server() {
    let (server, address) = listening(&["serve", "sim", "--tcp", "127.0.0.1:0"]);
    on_lines(server, tcp(&address), &[gevals_call]);
}

#[test]
fn the_eval_server_on_standard_input_and_output() {
    let runs = tempfile::tempdir().unwrap();
    let (server, wire) = stdio(&["jsonrpc", "--runs", runs.path().to_str().unwrap()]);
    on_lines(server, wire, &[waza_status, waza_unknown]);
}

#[test]
fn the_eval_server_over_tcp() {
    let runs = tempfile::tempdir().unwrap();
    let (server, address) = listening(&["jsonrpc", "--tcp", "127.0.0.1:0", "--runs", runs.path().to_str().unwrap()]);
    on_lines(server, tcp(&address), &[waza_status, waza_unknown]);
}

#[test]
fn an_http_server_for_amplifier() {
    let (server, address) = listening(&["serve", "sim", "--http", "127.0.0.1:0", "--protocol", "amplifier"]);
    over_http(server, &address, "/invoke", |number| amplifier_call(number).text);
}

#[test]
fn an_http_server_for_namel3ss() {
    let (server, address) = listening(&["serve", "sim", "--http", "127.0.0.1:0", "--protocol", "namel3ss"]);
    over_http(server, &address, "/tools", |number| {
        json!({"protocol_version": 1, "tool_name": "gpio-read", "payload": {"pin": "GP14"}, "trace": number})
            .to_string()
    });
}

#[test]
fn the_rigs_own_http_server() {
    let (server, address) = listening(&["rig", "--http", "127.0.0.1:0", "--protocol", "amplifier"]);
    over_http(server, &address, "/invoke", |number| amplifier_call(number).text);
}

/// Each endpoint has seen a request of its own protocol last, so that it answers faults in that one.
#[test]
fn two_endpoints_fall_silent_in_every_pair_of_protocols() {
    let first: &[fn(usize) -> Request] = &[gevals_call, amplifier_call, namel3ss_call];
    let seeds = [
        "garbage",
        r#"{"jsonrpc":"2.0","id":7,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"GP14"},"context":{}}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"success":true}}"#,
        r#"{"op":"gpio-read","args":{"pin":"GP14"}}"#,
        r#"{"ok":true,"result":{"high":false}}"#,
        r#"{"ok":false,"error":{"code":"bad_request","message":"no"}}"#,
        r#"{"status":"ok"}"#,
        r#"{"protocol_version":1,"tool":"gpio-read","payload":{"pin":"GP14"}}"#,
        r#"{"ok":true,"protocol_version":1,"result":{}}"#,
        r#"{"ok":false,"protocol_version":1,"error":{"type":"ProtocolError","message":"no"}}"#,
        r#"{"ok":"maybe"}"#,
        "[]",
        "{}",
        "3",
    ];
    for (index, left) in first.iter().enumerate() {
        for right in &first[index..] {
            let pair = Pair::connect(&left(1).text, &right(1).text);
            for seed in seeds {
                pair.assert_falls_silent_after(seed, &[left(1).text, right(1).text]);
            }
        }
    }
}

fn waza_status(number: usize) -> Request {
    let id = format!("h-{number}");
    let text =
        json!({"jsonrpc": "2.0", "id": id, "method": "run.status", "params": {"run_id": format!("none-{number}")}})
            .to_string();
    Request { text, ids: vec![id] }
}

fn waza_unknown(number: usize) -> Request {
    let id = format!("h-{number}");
    let text = json!({"jsonrpc": "2.0", "id": id, "method": "eval.\u{1f980}", "params": [number]}).to_string();
    Request { text, ids: vec![id] }
}

fn amplifier_call(number: usize) -> Request {
    let args = [json!({"pin": "GP14"}), json!({"pin": number}), json!({})][number % 3].clone();
    Request { text: json!({"op": "gpio-read", "args": args}).to_string(), ids: Vec::new() }
}

fn amplifier_health(_: usize) -> Request {
    Request { text: json!({"op": "health"}).to_string(), ids: Vec::new() }
}

fn namel3ss_call(number: usize) -> Request {
    let tool = ["gpio-read", "no-such-tool"][number % 2];
    let request = json!({"protocol_version": 1, "tool": tool, "entry": "rig:run", "payload": {"pin": "GP14"}});
    Request { text: request.to_string(), ids: Vec::new() }
}

/// Protocols with ids: each id is answered once.
fn on_lines(server: ServerProcess, mut wire: Wire, requests: &[fn(usize) -> Request]) {
    let mut random = Random(0x5eed_0001 + requests.len() as u64);
    let lines = lines_per_server();
    let (mut number, mut warm) = (0, None);
    // What is largest comes first, so that the memory for it counts as the server's own.
    let mut oversized = 2;
    while number < lines {
        let (mut chunk, mut wanted, mut faults) = (Vec::new(), HashMap::new(), 0);
        for _ in 0..CHUNK.min(lines - number) {
            number += 1;
            let request = requests[random.below(requests.len())](number);
            match random.below(20) {
                0..=4 => {
                    chunk.extend(damaged(&request.text, &mut random));
                    faults += 1;
                }
                5..=7 => chunk.extend(flipped(&request.text, &mut random)),
                8 => chunk.extend_from_slice(b" \t \r"),
                9 => chunk.extend_from_slice(br#"{"jsonrpc":"2.0","method":"no-such-notification"}"#),
                10 if oversized > 0 || number % 5000 == 0 => {
                    oversized -= usize::from(oversized > 0);
                    chunk.extend(b"x".repeat(OVERSIZED));
                    faults += 1;
                }
                _ => {
                    chunk.extend_from_slice(request.text.as_bytes());
                    wanted.extend(request.ids.into_iter().map(|id| (id, false)));
                }
            }
            chunk.extend_from_slice(if random.below(3) == 0 { b"\r\n" } else { b"\n" });
        }
        // The last of a chunk is valid: what came before is answered by the time it is, or soon after.
        let last = requests[0](10_000_000 + number);
        chunk.extend_from_slice(format!("{}\n", last.text).as_bytes());
        wanted.extend(last.ids.into_iter().map(|id| (id, false)));
        wire.send(chunk);
        let mut nameless = 0;
        while nameless < faults || wanted.values().any(|seen| !seen) {
            let message =
                wire.next(|| format!("{faults} faults, {nameless} answered; unanswered: {:?}", unanswered(&wanted)));
            let members = message.as_array().cloned().unwrap_or_else(|| vec![message]);
            for member in members {
                if member.get("method").is_some() {
                    assert!(member.get("id").is_none(), "a request from a server: {member}");
                    continue;
                }
                assert!(member.get("result").is_some() != member.get("error").is_some(), "{member}");
                match member["id"].as_str() {
                    Some(id) if id.starts_with("h-") || id.starts_with("b-") => {
                        let seen = wanted.get_mut(id).unwrap_or_else(|| panic!("an answer to nothing: {member}"));
                        assert!(!*seen, "a second answer: {member}");
                        *seen = true;
                    }
                    _ => nameless += 1,
                }
            }
        }
        if warm.is_none() && number >= lines / 4 {
            warm = Some(server.resources());
        }
    }
    server.assert_flat(warm);
}

fn unanswered(wanted: &HashMap<String, bool>) -> Vec<&String> {
    wanted.iter().filter(|(_, seen)| !**seen).map(|(id, _)| id).take(5).collect()
}

/// Protocols without ids: each line is answered by one line, in order, faults included.
fn in_order(server: ServerProcess, mut wire: Wire, requests: &[fn(usize) -> Request]) {
    let mut random = Random(0x5eed_0002);
    let lines = lines_per_server();
    let (mut number, mut warm, mut oversized) = (0, None, 2);
    while number < lines {
        let (mut chunk, mut wanted) = (Vec::new(), Vec::new());
        for _ in 0..CHUNK.min(lines - number) {
            number += 1;
            let request = requests[random.below(requests.len())](number);
            match random.below(20) {
                0..=4 => {
                    chunk.extend(damaged(&request.text, &mut random));
                    wanted.push(Some(false));
                }
                5 => chunk.extend_from_slice(b"\r"),
                6 if oversized > 0 || number % 5000 == 0 => {
                    oversized -= usize::from(oversized > 0);
                    chunk.extend(b"x".repeat(OVERSIZED));
                    wanted.push(Some(false));
                }
                _ => {
                    chunk.extend_from_slice(request.text.as_bytes());
                    wanted.push(request.text.contains("health").then_some(true));
                }
            }
            chunk.push(b'\n');
        }
        wire.send(chunk);
        for (at, wanted) in wanted.iter().enumerate() {
            let reply = wire.next(|| format!("reply {at}"));
            let ok = reply["ok"] == true || reply["status"] == "ok";
            assert!(reply["ok"].is_boolean() || reply["status"].is_string(), "{reply}");
            if let Some(wanted) = wanted {
                assert_eq!(ok, *wanted, "reply {at}: {reply}");
            }
        }
        if warm.is_none() && number >= lines / 4 {
            warm = Some(server.resources());
        }
    }
    server.assert_flat(warm);
}

/// Requests over connections that are kept, cut, or filled with what is not HTTP.
fn over_http(server: ServerProcess, address: &str, path: &str, request: impl Fn(usize) -> String) {
    let mut random = Random(0x5eed_0003);
    let lines = lines_per_server();
    let mut connection = Http::connect(address);
    let (mut warm, mut oversized) = (None, 2);
    for number in 0..lines {
        let body = request(number);
        match random.below(40) {
            0..=7 => {
                let (status, _) = connection.post(path, &damaged(&body, &mut random));
                assert_eq!(status, 400);
            }
            8 | 9 => {
                let status = connection.post(path, &flipped(&body, &mut random)).0;
                assert!(matches!(status, 200 | 400), "{status}");
            }
            10 => assert_eq!(connection.post("/no/such/path", body.as_bytes()).0, 404),
            11 if oversized > 0 || number % 5000 == 0 => {
                oversized -= usize::from(oversized > 0);
                assert_eq!(connection.oversized(path), 413);
                // What was not read is in the way of the next request.
                connection = Http::connect(address);
            }
            12 => {
                let mut other = TcpStream::connect(address).unwrap();
                let _ = other.write_all(&damaged(&body, &mut random));
                let _ = other.write_all(b"\r\n\r\n");
            }
            13 => {
                // Cut within the body.
                let mut other = TcpStream::connect(address).unwrap();
                let _ = write!(other, "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n{body}");
            }
            _ => {
                let (status, reply) = connection.post(path, body.as_bytes());
                assert_eq!(status, 200, "{body}: {reply}");
                let reply: Value = serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{error}: {reply}"));
                assert!(reply["ok"].is_boolean(), "{reply}");
            }
        }
        if warm.is_none() && number >= lines / 4 {
            warm = Some(server.resources());
        }
    }
    drop(connection);
    // Connections that were cut are given up after their time limit at the latest.
    server.assert_flat(warm);
}

/// A running server, ended when this is dropped.
struct ServerProcess(Child);

#[derive(Debug, Clone, Copy)]
struct Resources {
    kib: u64,
    descriptors: usize,
}

impl ServerProcess {
    fn resources(&self) -> Resources {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("the server is alive");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the server is alive");
        let kib = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count();
        Resources { kib, descriptors }
    }

    #[track_caller]
    fn assert_flat(mut self, warm: Option<Resources>) {
        let warm = warm.expect("a quarter was sent");
        assert!(self.0.try_wait().unwrap().is_none(), "the server has ended");
        let begun = Instant::now();
        loop {
            let now = self.resources();
            if now.kib <= warm.kib + GROWTH && now.descriptors <= warm.descriptors + 4 {
                println!("after a quarter {warm:?}, in the end {now:?}");
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "not flat: after a quarter {warm:?}, in the end {now:?}"
            );
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command of `rigline`, without a token where it would ask for one.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(rigline());
    command.args(arguments);
    if arguments.iter().any(|argument| matches!(*argument, "--tcp" | "--http")) {
        let help = Command::new(rigline()).args([arguments[0], "--help"]).output().unwrap();
        if String::from_utf8_lossy(&help.stdout).contains("--no-token") {
            command.arg("--no-token");
        }
    }
    command
}

fn stdio(arguments: &[&str]) -> (ServerProcess, Wire) {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (ServerProcess(child), Wire::new(input, output))
}

/// A server that listens on a port which it prints.
fn listening(arguments: &[&str]) -> (ServerProcess, String) {
    let mut child = command(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (said, heard) = mpsc::channel();
    let streams: [Box<dyn Read + Send>; 2] =
        [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
    for stream in streams {
        let said = said.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
    }
    let server = ServerProcess(child);
    loop {
        let line = heard.recv_timeout(PATIENCE).expect("the server says where it listens");
        if let Some((_, port)) = line.split_once("127.0.0.1:") {
            let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
            return (server, format!("127.0.0.1:{digits}"));
        }
    }
}

fn tcp(address: &str) -> Wire {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).unwrap();
    Wire::new(stream.try_clone().unwrap(), stream)
}

/// One kept connection.
struct Http {
    address: String,
    stream: BufReader<TcpStream>,
}

impl Http {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { address: address.to_owned(), stream: BufReader::new(stream) }
    }

    fn post(&mut self, path: &str, body: &[u8]) -> (u16, String) {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        self.stream.get_mut().write_all(&[head.as_bytes(), body].concat()).expect("the server reads");
        let (status, length, closes) = self.head();
        let mut reply = vec![0; length];
        self.stream.read_exact(&mut reply).expect("the body comes whole");
        if closes {
            *self = Self::connect(&self.address.clone());
        }
        (status, String::from_utf8(reply).expect("a reply is UTF-8"))
    }

    /// A body of one byte too many, of which the server may leave any part.
    fn oversized(&mut self, path: &str) -> u16 {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {OVERSIZED}\r\n\r\n");
        let _ = self.stream.get_mut().write_all(&[head.into_bytes(), b"x".repeat(OVERSIZED)].concat());
        self.head().0
    }

    fn head(&mut self) -> (u16, usize, bool) {
        let (mut status, mut length, mut closes) = (0, 0, false);
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("an answer comes");
            assert!(!line.is_empty(), "the connection ends without an answer");
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                return (status, length, closes);
            } else if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length:") {
                length = rest.trim().parse().unwrap();
            } else if line == "connection: close" {
                closes = true;
            }
        }
    }
}

/// Two rigs, the output of each on the input of the other.
struct Pair {
    _servers: [ServerProcess; 2],
    into_left: Arc<Mutex<std::process::ChildStdin>>,
    lines: Arc<AtomicUsize>,
}

impl Pair {
    fn connect(first_left: &str, first_right: &str) -> Self {
        let mut rigs = [first_left, first_right].map(|first| {
            let mut child = command(&["rig"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            let mut input = child.stdin.take().unwrap();
            writeln!(input, "{first}").unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let mut answer = String::new();
            output.read_line(&mut answer).expect("it answers");
            (ServerProcess(child), Arc::new(Mutex::new(input)), Some(output))
        });
        let lines = Arc::new(AtomicUsize::new(0));
        let inputs = [Arc::clone(&rigs[0].1), Arc::clone(&rigs[1].1)];
        for (from, to) in [(0, 1), (1, 0)] {
            let (output, input, lines) = (rigs[from].2.take().unwrap(), Arc::clone(&inputs[to]), Arc::clone(&lines));
            thread::spawn(move || {
                for line in output.split(b'\n').map_while(Result::ok) {
                    lines.fetch_add(1, Ordering::SeqCst);
                    let mut input = input.lock().unwrap();
                    if input.write_all(&line).and_then(|()| input.write_all(b"\n")).is_err() {
                        return;
                    }
                }
            });
        }
        let [left, right] = rigs;
        Self { _servers: [left.0, right.0], into_left: left.1, lines }
    }

    #[track_caller]
    fn assert_falls_silent_after(&self, seed: &str, pair: &[String; 2]) {
        let before = self.lines.load(Ordering::SeqCst);
        writeln!(self.into_left.lock().unwrap(), "{seed}").unwrap();
        // Silent: nothing new for a while. A reply takes far less, and a loop makes thousands of lines in that time.
        let (mut seen, begun) = (before, Instant::now());
        loop {
            thread::sleep(Duration::from_millis(100));
            let now = self.lines.load(Ordering::SeqCst);
            if now == seen {
                break;
            }
            seen = now;
            assert!(
                now - before < 20 && begun.elapsed() < PATIENCE,
                "{} lines after {seed} between {pair:?}",
                now - before
            );
        }
    }
}
