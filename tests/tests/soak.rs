//! Hostile traffic on both wires, from a seed. `RIGLINE_SOAK` is how many requests; a few, if unsaid.

use std::env;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use rigline::link::Kind;
use rigline_tests::emulator::{Emulator, read_line};
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

/// A line that is answered with at most one error, or with nothing; never with an id of ours.
fn hostile(random: &mut Random) -> Vec<u8> {
    let whole = count(9_999_999).into_bytes();
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
fn every_valid_request_over_usb_is_answered_once_and_nothing_wedges() {
    let Some(emulator) = Emulator::start_fast("rig-bench") else { return };
    let mut random = Random(0x5eed_0f50_a4e5);
    let mut port = emulator.usb();
    // How often `count` ran: at least, and at most, since a request whose connection was lost may have run.
    let (mut least, mut most) = (0, 0);
    let mut early_peak = None;
    let rounds = rounds(150);
    for id in 1..=rounds {
        let (mut hostile_lines, mut bytes) = (0, Vec::new());
        for _ in 0..random.below(4) {
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
                lose(&emulator, &mut random);
                port = reopened(&emulator, port);
                continue;
            }
            2 => {
                // A request that may run or not.
                bytes.extend(count(8_888_888).into_bytes());
                bytes.push(b'\n');
                write_cut(&mut port, &bytes, &mut random);
                lose(&emulator, &mut random);
                port = reopened(&emulator, port);
                most += 1;
                continue;
            }
            _ => {}
        }
        let stalls = random.below(6) == 0;
        if stalls {
            emulator.control(&json!({"cmd": "reading", "value": false}));
        }
        bytes.extend(count(id).into_bytes());
        bytes.push(b'\n');
        write_cut(&mut port, &bytes, &mut random);
        if stalls {
            emulator.control(&json!({"cmd": "sleep", "ms": 1 + random.below(400)}));
            emulator.control(&json!({"cmd": "reading", "value": true}));
        }
        loop {
            let answer = next(&mut port);
            if answer["id"] == json!(id) {
                let calls = answer["result"]["outputs"]["calls"].as_str().and_then(|calls| calls.parse().ok());
                let calls: usize = calls.unwrap_or_else(|| panic!("{answer}"));
                (least, most) = (least + 1, most + 1);
                assert!((least..=most).contains(&calls), "{calls} calls, not {least} to {most}");
                (least, most) = (calls, calls);
                break;
            }
            assert_eq!(answer["id"], Value::Null, "{answer}");
            assert!(hostile_lines > 0, "{answer}");
            hostile_lines -= 1;
        }
        if id == rounds / 3 {
            early_peak = emulator.stats()["stack"]["peak"].as_u64();
        }
    }
    let stats = emulator.stats();
    assert_eq!((&stats["resets"], &stats["faults"]), (&json!(0), &json!(0)));
    let peak = stats["stack"]["peak"].as_u64().unwrap();
    assert!(peak <= early_peak.unwrap_or(peak) + 512, "the stack grows: {early_peak:?}, {peak}");
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
    let mut damaged = 0;
    for sequence in 1..=requests {
        let id = usize::try_from(sequence).unwrap();
        let request = frame(Kind::Request, sequence, count(id).as_bytes());
        let mut tries = 0;
        let reply = loop {
            tries += 1;
            assert!(tries < 100, "request {sequence} is never answered");
            let mut bytes = request.clone();
            // The first is always damaged, by one bit or two, anywhere in the frame: its end and COBS's codes included.
            let flips = if tries == 1 { 1 + random.below(2) } else { random.below(3) };
            for _ in 0..flips {
                let bit = random.below(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            damaged += u32::from(bytes != request);
            bytes.push(0);
            link.send_raw(&bytes);
            // All that comes of it; without an answer it is sent again.
            let mut answer = None;
            while let Some((kind, number, payload)) = link.next_within(QUIET) {
                // A third of the replies is lost on the way back.
                if kind == Kind::Reply && number == sequence && random.below(3) > 0 {
                    answer = Some(payload);
                }
            }
            if let Some(reply) = answer {
                break reply;
            }
        };
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(reply["result"]["outputs"]["calls"], json!(sequence.to_string()), "after {tries} tries");
    }
    assert!(damaged >= requests);
}
