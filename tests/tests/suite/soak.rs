//! Hostile traffic on both wires, from a seed. `RIGLINE_SOAK` is how many requests; a few, by default.

use std::cell::RefCell;
use std::io::Write;
use std::net::TcpStream;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{env, fmt};

use rigline::link::FrameKind;
use rigline_tests::emulator::{Emulator, assert_silent, read_line};
use rigline_tests::link::{LinkHost, frame};
use serde_json::{Value, json};

/// xorshift64*, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % limit
    }
}

/// Emulated time does not wait for this computer.
const QUIET: Duration = Duration::from_millis(20);

fn rounds(short: usize) -> usize {
    env::var("RIGLINE_SOAK").ok().and_then(|count| count.parse().ok()).unwrap_or(short)
}

fn count(id: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"count","args":{{}},"context":{{}}}}}}"#
    )
}

/// A valid request in addition to `count`, and what is wrong with its answer and the logs before that, if anything is.
struct Other {
    line: String,
    id: String,
    logs: usize,
    message: Option<String>,
}

impl Other {
    fn new(number: usize, random: &mut Random) -> Self {
        let id = format!("other {number}");
        let request = |operation: &str, args: &Value| {
            format!(
                r#"{{"jsonrpc":"2.0","id":"{id}","method":"execute","params":{{"operation":"{operation}","args":{args},"context":{{}}}}}}"#
            )
        };
        let (line, logs, message) = match random.below(6) {
            // Often a multiple of USB's packet.
            0 => {
                let without =
                    r#"{"jsonrpc":"2.0","id":"","result":{"success":true,"message":""}}"#.len() + 1 + id.len();
                let length = 64 * (2 + random.below(60)) - without + random.below(2);
                (request("say", &json!({"length": length})), 0, Some("x".repeat(length)))
            }
            1 => {
                let (count, length) = (random.below(20), random.below(300));
                let every = random.below(3);
                (
                    request("log", &json!({"count": count, "length": length, "every_ms": every})),
                    count,
                    Some("logged".into()),
                )
            }
            2 => (request("measure", &json!({"channel": "3V3", "samples": 4})), 0, None),
            3 => (request("gpio-write", &json!({"pin": "GP14", "high": random.below(2) == 0})), 0, None),
            4 => (request("nope", &json!({})), 0, None),
            _ => (format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"initialize","params":{{}}}}"#), 0, None),
        };
        Self { line, id, logs, message }
    }

    #[track_caller]
    fn check(&self, answer: &Value, logs: usize) {
        assert_eq!(logs, self.logs, "{}: {answer}", self.line);
        if let Some(message) = &self.message {
            assert_eq!(answer["result"]["message"], json!(message), "{}", self.line);
        }
    }
}

/// The number of log lines that a line counts for: itself, or those that it reports as dropped.
fn logs_in(log: &Value) -> usize {
    let message = log["params"]["message"].as_str().unwrap();
    let dropped = message.split_once(" log line").and_then(|(count, _)| count.parse().ok());
    dropped.unwrap_or(1)
}

/// The id of requests that are no more whole.
const HOSTILE: usize = 9_999_999;

/// A line that is answered with at most one error, or with nothing; never with an id of ours.
fn hostile(random: &mut Random) -> Vec<u8> {
    let whole = count(HOSTILE).into_bytes();
    let mut line = match random.below(8) {
        0 => whole[..random.below(whole.len() - 1)].to_vec(),
        1 => (0..random.below(300)).map(|_| u8::try_from(random.below(256)).unwrap()).collect(),
        2 => vec![b'['; random.below(400)],
        3 => [&b"{\"jsonrpc\":\"2.0\",\"x\":\""[..], &vec![b'A'; 4000 + random.below(6000)]].concat(),
        4 => br#"{"jsonrpc":"2.0","method":"nope"}"#.to_vec(),
        5 => br#"{"jsonrpc":"2.0","id":null,"method":1}"#.to_vec(),
        6 => b"AT+CGMI\r".to_vec(),
        _ => {
            let mut line = whole;
            let (at, by) = (random.below(line.len()), u8::try_from(1 + random.below(255)).unwrap());
            // A changed digit of the id, or a change outside the tokens that matter, is a valid request.
            line[at] ^= by;
            line.truncate(at + 1);
            line
        }
    };
    line.retain(|byte| *byte != b'\n');
    line
}

fn write_cut(port: &mut TcpStream, bytes: &[u8], random: &mut Random) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((1 + random.below(200)).min(rest.len()));
        port.write_all(piece).unwrap();
        rest = after;
    }
}

#[track_caller]
fn next(port: &mut TcpStream) -> Value {
    let line = read_line(port);
    serde_json::from_slice(&line).unwrap_or_else(|_| panic!("no JSON: {:?}", String::from_utf8_lossy(&line)))
}

#[test]
#[allow(clippy::too_many_lines, reason = "one session, in its order")]
fn every_valid_request_over_usb_is_answered_once_and_nothing_wedges() {
    let Some(emulator) = Emulator::start_fast("rig-bench") else { return };
    let mut random = Random(0x5eed_0f50_a4e5);
    let mut port = emulator.usb();
    // How often `count` ran: at least, and at most, since a request whose connection was lost may have run.
    let (mut least, mut most) = (0, 0);
    let mut early_peak = None;
    let rounds = rounds(150);
    let begun = Instant::now();
    let (mut requests, mut answered, mut hostiles, mut lost, mut stalled) = (0, 0, 0, 0, 0);
    for id in 1..=rounds {
        let (mut hostile_lines, mut bytes) = (0, Vec::new());
        for _ in 0..random.below(4) {
            hostiles += 1;
            let line = hostile(&mut random);
            // A lone CR ends a line too.
            hostile_lines += 1 + line.iter().filter(|byte| **byte == b'\r').count();
            bytes.extend(line);
            bytes.push(b'\n');
        }
        match random.below(20) {
            0 | 1 => {
                // Cut, and forgotten with its connection.
                bytes.extend(hostile(&mut random));
                write_cut(&mut port, &bytes, &mut random);
                lost += 1;
                lose(&emulator, &mut random);
                port = reopened(&emulator, port);
                continue;
            }
            2 => {
                // A request that may run or not.
                bytes.extend(count(8_888_888).into_bytes());
                bytes.push(b'\n');
                write_cut(&mut port, &bytes, &mut random);
                (requests, lost) = (requests + 1, lost + 1);
                lose(&emulator, &mut random);
                port = reopened(&emulator, port);
                most += 1;
                continue;
            }
            _ => {}
        }
        let stalls = random.below(6) == 0;
        if stalls {
            stalled += 1;
            emulator.control(&json!({"cmd": "reading", "value": false}));
        }
        let mut other = (random.below(3) == 0).then(|| Other::new(id, &mut random));
        if let Some(other) = &other {
            bytes.extend(other.line.as_bytes());
            bytes.push(b'\n');
            requests += 1;
        }
        bytes.extend(count(id).into_bytes());
        bytes.push(b'\n');
        requests += 1;
        write_cut(&mut port, &bytes, &mut random);
        if stalls {
            emulator.control(&json!({"cmd": "sleep", "ms": 1 + random.below(400)}));
            emulator.control(&json!({"cmd": "reading", "value": true}));
        }
        let mut logs = 0;
        loop {
            let answer = next(&mut port);
            if answer["method"] == "log" {
                logs += logs_in(&answer);
                continue;
            }
            if let Some(other) = other.take_if(|other| answer["id"] == other.id) {
                other.check(&answer, logs);
                answered += 1;
                continue;
            }
            if answer["id"] == json!(id) {
                assert!(other.is_none(), "out of order: {answer}");
                answered += 1;
                let calls = answer["result"]["outputs"]["calls"].as_str().and_then(|calls| calls.parse().ok());
                let calls: usize = calls.unwrap_or_else(|| panic!("{answer}"));
                (least, most) = (least + 1, most + 1);
                assert!((least..=most).contains(&calls), "{calls} calls, not {least} to {most}");
                (least, most) = (calls, calls);
                break;
            }
            // A changed byte may end the object early: then it has its id.
            assert!(answer["id"].is_null() || answer["id"] == json!(HOSTILE), "{answer}");
            assert!(answer.get("error").is_some(), "{answer}");
            assert!(hostile_lines > 0, "{answer}");
            hostile_lines -= 1;
        }
        if id >= rounds / 3 && early_peak.is_none() {
            early_peak = emulator.stats()["stack"]["peak"].as_u64();
        }
    }
    assert_silent(&mut port);
    let stats = emulator.stats();
    println!(
        "USB: {requests} valid requests, {answered} answered once each, {lost} connections lost, {stalled} stalls of the reader, \
         {hostiles} hostile lines, {:.0?}",
        begun.elapsed()
    );
    assert_eq!((&stats["resets"], &stats["faults"]), (&json!(0), &json!(0)));
    let peak = stats["stack"]["peak"].as_u64().unwrap();
    assert!(peak <= early_peak.unwrap_or(peak) + 512, "the stack grows: {early_peak:?}, {peak}");
    println!(
        "USB: peak stack {} B after a third, {peak} B in the end; all other RAM is static",
        early_peak.unwrap_or(peak)
    );
}

fn lose(emulator: &Emulator, random: &mut Random) {
    match random.below(3) {
        0 => drop(emulator.control(&json!({"cmd": "bus-reset"}))),
        1 => {
            emulator.control(&json!({"cmd": "unplug"}));
            emulator.control(&json!({"cmd": "plug"}));
        }
        _ => {
            emulator.control(&json!({"cmd": "dtr", "value": false}));
            emulator.control(&json!({"cmd": "dtr", "value": true}));
        }
    }
}

/// A fresh connection, so that nothing of the lost one is read.
fn reopened(emulator: &Emulator, port: TcpStream) -> TcpStream {
    drop(port);
    emulator.control(&json!({"cmd": "sleep", "ms": 250}));
    emulator.usb()
}

#[test]
fn no_damaged_frame_runs_and_every_request_on_the_link_runs_once() {
    let Some(emulator) = Emulator::start_fast("rig-bench") else { return };
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut link = LinkHost::open(emulator.uart(), 7);
    let requests = u32::try_from(rounds(150)).unwrap();
    let begun = Instant::now();
    let mut flipped = Flipped::default();
    let mut sent = 0;
    // One reply in three is damaged on its way back.
    let back = Rc::new(RefCell::new((Random(0x0bad_c0de), Flipped::default())));
    let on_the_way_back = Rc::clone(&back);
    link.receive_through(move |bytes| {
        let (random, flipped) = &mut *on_the_way_back.borrow_mut();
        if random.below(3) == 0 {
            flipped.damage(bytes, 1 + random.below(2), random);
        }
    });
    for sequence in 1..=requests {
        let id = usize::try_from(sequence).unwrap();
        let request = frame(FrameKind::Request, sequence, count(id).as_bytes());
        let mut tries = 0;
        let reply = loop {
            tries += 1;
            assert!(tries < 100, "request {sequence} is never answered");
            let mut bytes = request.clone();
            // The first is always damaged, by one bit or two, anywhere in the frame: its end and COBS's codes included.
            let flips = if tries == 1 || random.below(3) == 0 { 1 + random.below(2) } else { 0 };
            flipped.damage(&mut bytes, flips, &mut random);
            bytes.push(0);
            // A peer in a hurry sends it more than once, and does not wait for what comes of the first.
            let copies = if random.below(4) == 0 { 2 + random.below(2) } else { 1 };
            for _ in 0..copies {
                link.send_raw(&bytes);
                sent += 1;
            }
            // When it is said to be damaged, or nothing comes, it is sent again. Answers to earlier requests may still come.
            let mut answer = None;
            while answer.is_none()
                && let Some((kind, number, payload)) = link.next_within(QUIET)
            {
                if kind == FrameKind::Reply && number == sequence {
                    answer = Some(payload);
                }
                if kind == FrameKind::Damaged {
                    break;
                }
                assert!(number <= sequence && kind != FrameKind::Unknown, "{kind:?} {number}");
            }
            if let Some(reply) = answer {
                break reply;
            }
        };
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(reply["result"]["outputs"]["calls"], json!(sequence.to_string()), "after {tries} tries");
    }
    assert!(flipped.frames >= requests);
    let stats = emulator.stats();
    assert_eq!((&stats["resets"], &stats["faults"]), (&json!(0), &json!(0)));
    println!(
        "UART: {requests} requests, each run once, in {sent} frames, of which damaged: {flipped}; on the way back: {}; {:.0?}",
        back.borrow().1,
        begun.elapsed()
    );
}

/// The damaged bytes.
#[derive(Default)]
struct Flipped {
    frames: u32,
    single: u32,
    double: u32,
    /// Flips in the zero at a frame's end, and in COBS's code bytes.
    ends: u32,
    codes: u32,
}

impl Flipped {
    /// Flips so many bits of a frame, no two of them the same.
    fn damage(&mut self, frame: &mut [u8], flips: usize, random: &mut Random) {
        let is_code = codes(frame);
        let bits = frame.len() * 8;
        let first = random.below(bits);
        let second = (first + 1 + random.below(bits - 1)) % bits;
        for bit in [first, second].into_iter().take(flips) {
            let place = bit / 8;
            self.ends += u32::from(place + 1 == frame.len());
            self.codes += u32::from(is_code[place]);
            frame[place] ^= 1 << (bit % 8);
        }
        self.frames += u32::from(flips > 0);
        self.single += u32::from(flips == 1);
        self.double += u32::from(flips == 2);
    }
}

/// By place: whether a code byte of COBS stands there. A frame ends with its zero.
fn codes(frame: &[u8]) -> Vec<bool> {
    let mut codes = vec![false; frame.len()];
    let mut place = 0;
    while place + 1 < frame.len() && frame[place] != 0 {
        codes[place] = true;
        place += usize::from(frame[place]);
    }
    codes
}

impl fmt::Display for Flipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, single, double, ends, codes } = self;
        write!(f, "{frames} ({single} by one bit, {double} by two; {ends} flips in delimiters, {codes} in COBS codes)")
    }
}
