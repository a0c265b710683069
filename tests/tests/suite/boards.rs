//! The rig on boards that QEMU runs: an STM32F405, a Cortex-M33 and a 32-bit RISC-V, each over a bare UART and blocking I/O. They are
//! put to what the emulated RP2040 is put to.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::{env, thread};

use rigline_tests::emulator::{Emulator, assert_silent, read_line};
use rigline_tests::hostile::{Random, Wire, damaged, flipped, gevals_batch, gevals_call};
use rigline_tests::qemu::{Board, MODELS};
use rigline_tests::session::{OF_FEATURES, SESSION, comparable, on_the_desktop, rigline, without};
use serde_json::{Value, json};

/// The longest request, in bytes without its newline.
const LIMIT: usize = 4095;
/// The longest reply, in bytes without its newline.
const REPLY_LIMIT: usize = 6143;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
const READ: &str = r#"{"jsonrpc":"2.0","id":8,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"GP15"},"context":{}}}"#;

/// Each board that can be run here, all at once.
fn on_each_board(test: impl Fn(&str, &Board) + Sync) {
    thread::scope(|scope| {
        for model in &MODELS {
            let Some(board) = Board::start(model) else { continue };
            let test = &test;
            scope.spawn(move || test(model.image, &board));
        }
    });
}

#[track_caller]
fn next(port: &mut TcpStream) -> Value {
    let line = read_line(port);
    serde_json::from_slice(&line).unwrap_or_else(|_| panic!("no JSON: {:?}", String::from_utf8_lossy(&line)))
}

#[track_caller]
fn ask(port: &mut TcpStream, line: &str) -> Value {
    port.write_all(format!("{line}\n").as_bytes()).unwrap();
    next(port)
}

/// But for what these boards have no wires for.
#[test]
fn a_session_is_the_desktops_line_for_line() {
    let desktops: Vec<String> = on_the_desktop(SESSION).iter().map(|line| without(line, OF_FEATURES)).collect();
    let desktops = comparable(&desktops);
    on_each_board(|name, board| {
        let mut port = board.uart();
        let mut lines = Vec::new();
        for line in SESSION {
            port.write_all(format!("{line}\n").as_bytes()).unwrap();
            loop {
                let line = String::from_utf8(read_line(&mut port)).unwrap();
                let is_log = line.contains(r#""method":"log""#);
                lines.push(line.trim_end_matches('\n').to_owned());
                if !is_log {
                    break;
                }
            }
        }
        assert_eq!(comparable(&lines), desktops, "{name}");
        assert_silent(&mut port);
    });
}

/// With `RIGLINE_BOARDS_LONG` also by the cases of Amplifier and namel3ss, which have a message of 1 MB: over a UART in QEMU it takes more
/// than a minute.
#[test]
fn check_passes() {
    let is_long = env::var_os("RIGLINE_BOARDS_LONG").is_some();
    on_each_board(|name, board| {
        let target = format!("tcp:127.0.0.1:{}", board.port());
        let protocols: &[&str] = if is_long { &["gevals", "mcp", "amplifier", "namel3ss"] } else { &["gevals", "mcp"] };
        for protocol in protocols {
            let mut command = Command::new(rigline());
            command.args(["check", &target, "--protocol", protocol, "--call", "identify"]);
            command.args(["--patience", if is_long { "400s" } else { "30s" }, "--start-timeout", "40s"]);
            let checked = command.output().unwrap();
            let text = String::from_utf8_lossy(&checked.stdout);
            let error = String::from_utf8_lossy(&checked.stderr);
            assert!(checked.status.success() && text.contains(" 0 failed"), "{name}, {protocol}: {text}{error}");
        }
    });
}

#[test]
fn amplifier_and_namel3ss_lines_are_answered_in_their_own_words() {
    on_each_board(|name, board| {
        let mut port = board.uart();
        for (line, wanted) in [
            (r#"{"op":"health"}"#, r#"{"status":"ok"}"#),
            (r#"{"op":"gpio-read","args":{"pin":"GP15"}}"#, r#""ok":true"#),
            (r#"{"op":"gpio-read","args":{"pin":"GP99"}}"#, r#""code":"bad_request""#),
            (r#"{"op":"nope","args":{}}"#, r#""code":"unsupported_op""#),
            (r#"{"protocol_version":1,"tool":"gpio_read","entry":"rig:run","payload":{"pin":"GP15"}}"#, r#""ok":true"#),
            (r#"{"protocol_version":1,"tool":"gpio read","payload":{"pin":"GP99"}}"#, r#""type":"ValueError""#),
            // What cannot be read is answered as the last protocol seen.
            ("{oops", r#""ok":false"#),
            (r#"{"jsonrpc":"2.0","id":99,"method":"shutdown"}"#, r#""id":99,"result":{}"#),
            ("{oops", r#""code":-32700"#),
        ] {
            port.write_all(format!("{line}\n").as_bytes()).unwrap();
            let answer = String::from_utf8(read_line(&mut port)).unwrap();
            assert!(answer.contains(wanted), "{name}: {line}: {answer}");
        }
    });
}

/// The same files on the simulated rig, on the emulated Pico and on the boards in QEMU.
#[test]
fn the_same_evals_pass_on_sim_on_the_emulated_pico_and_on_the_boards() {
    let evals = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware-example/evals");
    let verdicts = |target: &str| {
        let runs = tempfile::tempdir().unwrap();
        ["rails", "boot", "broken"].map(|eval| {
            let mut command = Command::new(rigline());
            command.args(["eval", "run", evals.join(eval).to_str().unwrap(), "--target", target, "--json", "--runs"]);
            let ran = command.arg(runs.path()).output().unwrap();
            let text = String::from_utf8_lossy(&ran.stdout);
            let report: Value = serde_json::from_str(&text)
                .unwrap_or_else(|_| panic!("{target}: {text}{}", String::from_utf8_lossy(&ran.stderr)));
            let tasks = report["runs"][0]["tasks"].as_array().unwrap_or_else(|| panic!("{target}: {report}"));
            let tasks: Vec<_> = tasks.iter().map(|task| (task["id"].clone(), task["verdict"].clone())).collect();
            (ran.status.code(), tasks)
        })
    };
    let on_sim = verdicts("sim");
    assert_eq!(on_sim.each_ref().map(|(code, tasks)| (*code, tasks.len())), [(Some(0), 3), (Some(0), 3), (Some(1), 3)]);
    if let Some(pico) = Emulator::start("rig") {
        assert_eq!(verdicts(&format!("tcp:127.0.0.1:{}", pico.usb_port())), on_sim, "the Pico");
    }
    on_each_board(|name, board| {
        assert_eq!(verdicts(&format!("tcp:127.0.0.1:{}", board.port())), on_sim, "{name}");
    });
}

#[test]
fn the_limit_of_a_request_is_exact() {
    on_each_board(|name, board| {
        let mut port = board.uart();
        let limits = &ask(&mut port, INITIALIZE)["result"]["limits"];
        assert_eq!(limits, &json!({"request": LIMIT, "reply": REPLY_LIMIT}), "{name}");
        for (length, fits) in [(LIMIT - 1, true), (LIMIT, true), (LIMIT + 1, false), (20_000, false)] {
            let head = r#"{"jsonrpc":"2.0","id":5,"method":"shutdown","x":""#;
            let answer = ask(&mut port, &format!("{head}{}\"}}", "A".repeat(length - head.len() - 2)));
            if fits {
                assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 5, "result": {}}), "{name}: {length}");
            } else {
                let message = answer["error"]["message"].as_str().unwrap();
                assert!(message.contains(&format!("{length} bytes, the limit is {LIMIT}")), "{name}: {message}");
            }
            assert_eq!(ask(&mut port, INITIALIZE)["result"]["name"], "rig", "{name}");
        }
        assert_silent(&mut port);
    });
}

/// The bytes on a serial port before a host opens it. The line that garbage is glued to is lost; the next one is answered.
#[test]
fn probes_noise_and_half_lines_cost_at_most_one_error_each() {
    let noises: &[&[u8]] = &[
        b"AT\r",
        b"AT+CGMI\r\n",
        b"\x7e\x00\x78\xf0\x7e",
        b"\x00\x00\xf8 garbage",
        b"\xff\xfd\x03\xff\xfb\x18",
        b"\r\r\n\n\r",
        b"\xef\xbb\xbf",
        b"[[[[[[[[",
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"meth",
        b"\"\\u",
    ];
    on_each_board(|name, board| {
        for noise in noises {
            for newline in [&b"\n"[..], b""] {
                // A port that is opened anew for each, as a UART knows no connections.
                let mut port = board.uart();
                port.write_all(&[noise, newline].concat()).unwrap();
                port.write_all(READ.replace(":8,", ":7,").as_bytes()).unwrap();
                port.write_all(format!("\n{READ}\n").as_bytes()).unwrap();
                let (mut errors, mut answer) = (0, next(&mut port));
                while answer["id"] != 8 {
                    errors += usize::from(answer["id"] != 7);
                    assert!(answer["id"] == 7 || answer["error"]["code"].as_i64() < Some(-32000), "{name}: {answer}");
                    answer = next(&mut port);
                }
                assert!(errors <= 1, "{name}: {errors} errors after {noise:?}");
            }
        }
    });
}

/// The stack of the board is a few kilobytes: depth has a limit, and what it costs does not grow with it.
#[test]
fn nesting_costs_an_error_and_not_the_board() {
    on_each_board(|name, board| {
        let mut port = board.uart();
        for depth in [64, 127, 128, 129, 4000] {
            let answer = ask(&mut port, &("[".repeat(depth) + &"]".repeat(depth.min(95))));
            assert!(answer.to_string().contains("error"), "{name}: {answer}");
            assert_eq!(ask(&mut port, INITIALIZE)["result"]["name"], "rig", "{name}");
        }
    });
}

/// Valid, damaged, flipped, blank and oversized lines, mixed: each request is answered once, each fault costs one error.
#[test]
fn hostile_lines_are_answered_once_each() {
    let all: usize = env::var("RIGLINE_HOSTILE").map_or(2_000, |lines| lines.parse().expect("it is a number"));
    let lines = (all / 3).min(20_000);
    on_each_board(|name, board| {
        let uart = board.uart();
        uart.set_read_timeout(None).unwrap();
        let mut wire = Wire::new(uart.try_clone().unwrap(), uart);
        let mut random = Random(0x5eed_0034);
        let mut number = 0;
        while number < lines {
            let (mut chunk, mut wanted, mut faults) = (Vec::new(), HashMap::new(), 0);
            for _ in 0..100 {
                number += 1;
                let request = if random.below(4) == 0 { gevals_batch(number) } else { gevals_call(number) };
                match random.below(20) {
                    0..=4 => {
                        chunk.extend(damaged(&request.text, &mut random));
                        faults += 1;
                    }
                    5..=7 => chunk.extend(flipped(&request.text, &mut random)),
                    8 => chunk.extend_from_slice(b" \t "),
                    9 => chunk.extend_from_slice(br#"{"jsonrpc":"2.0","method":"no-such-notification"}"#),
                    10 => {
                        chunk.extend(b"x".repeat(LIMIT + 1 + random.below(LIMIT)));
                        faults += 1;
                    }
                    _ => {
                        chunk.extend_from_slice(request.text.as_bytes());
                        wanted.extend(request.ids.into_iter().map(|id| (id, 0)));
                    }
                }
                chunk.extend_from_slice(if random.below(3) == 0 { b"\r\n" } else { b"\n" });
            }
            let last = gevals_call(10_000_000 + number);
            chunk.extend_from_slice(format!("{}\n", last.text).as_bytes());
            wanted.extend(last.ids.into_iter().map(|id| (id, 0)));
            wire.send(chunk);
            let mut nameless = 0;
            while nameless < faults || wanted.values().any(|seen| *seen == 0) {
                let message = wire.next(|| format!("{name}: {faults} faults, {nameless} answered"));
                for member in message.as_array().cloned().unwrap_or_else(|| vec![message]) {
                    if member.get("method").is_some() {
                        continue;
                    }
                    assert!(member.get("result").is_some() != member.get("error").is_some(), "{name}: {member}");
                    match member["id"].as_str() {
                        Some(id) if id.starts_with("h-") || id.starts_with("b-") => {
                            let seen = wanted.get_mut(id).unwrap_or_else(|| panic!("{name}, to nothing: {member}"));
                            *seen += 1;
                            assert_eq!(*seen, 1, "{name}, a second answer: {member}");
                        }
                        _ => nameless += 1,
                    }
                }
            }
        }
    });
}
