//! The rig's own image, run in the emulator: what users met, by its numbers.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rigline::link::FrameKind;
use rigline_rig::wires::{UART_REPLY, UART_REQUEST};
use rigline_tests::emulator::{Emulator, assert_silent, read_line};
use rigline_tests::link::LinkHost;
use rigline_tests::session::{SESSION, comparable, on_the_desktop, without};
use serde_json::{Value, json};

/// The firmware's longest request, in bytes without its newline.
const LIMIT: usize = 4095;
/// The longest reply, in bytes without its newline.
const REPLY_LIMIT: usize = 16_383;
/// The same over UART0.
const UART_LIMITS: (usize, usize) = (UART_REQUEST - 1, UART_REPLY - 1);

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
const SHUTDOWN: &str = r#"{"jsonrpc":"2.0","id":99,"method":"shutdown"}"#;

fn execute(id: u32, operation: &str, args: &Value) -> String {
    execute_within(id, operation, args, "0s")
}

fn execute_within(id: u32, operation: &str, args: &Value, timeout: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{operation}","args":{args},"context":{{"timeout":"{timeout}"}}}}}}"#
    )
}

fn send(port: &mut TcpStream, line: &str) {
    port.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[track_caller]
fn next(port: &mut TcpStream) -> Value {
    let line = read_line(port);
    serde_json::from_slice(&line).unwrap_or_else(|_| panic!("no JSON: {:?}", String::from_utf8_lossy(&line)))
}

/// The lines up to the next one that is not a log.
#[track_caller]
fn until_reply(port: &mut TcpStream) -> Vec<Value> {
    let mut lines = vec![next(port)];
    while lines[lines.len() - 1].get("method").is_some() {
        lines.push(next(port));
    }
    lines
}

#[track_caller]
fn reply(port: &mut TcpStream) -> Value {
    until_reply(port).pop().unwrap()
}

#[track_caller]
fn ask(port: &mut TcpStream, line: &str) -> Value {
    send(port, line);
    reply(port)
}

#[track_caller]
fn assert_alive(port: &mut TcpStream) {
    assert_eq!(ask(port, INITIALIZE)["result"]["name"], "rig");
}

fn sleep(emulator: &Emulator, ms: u32) {
    emulator.control(&json!({"cmd": "sleep", "ms": ms}));
}

fn millivolts(emulator: &Emulator, rail: &str) -> i64 {
    emulator.control(&json!({"cmd": "dut"}))["rails"][rail].as_i64().unwrap()
}

/// Sends bytes and waits until the device has them.
#[track_caller]
fn deliver(emulator: &Emulator, port: &mut TcpStream, bytes: &[u8]) {
    let delivered = || emulator.stats()["usb"]["outBytes"].as_u64().unwrap();
    let before = delivered();
    port.write_all(bytes).unwrap();
    while delivered() < before + bytes.len() as u64 {
        thread::sleep(Duration::from_millis(2));
    }
    sleep(emulator, 5);
}

#[track_caller]
fn wait_for_reset(emulator: &Emulator, count: u64) {
    let begun = Instant::now();
    while emulator.stats()["resets"].as_u64().unwrap() < count {
        assert!(begun.elapsed() < Duration::from_secs(60), "no reset");
        thread::sleep(Duration::from_millis(20));
    }
}

// The same rig.

#[track_caller]
fn assert_are_the_desktops(lines: &[String]) {
    assert_same(lines, &on_the_desktop(SESSION));
}

/// Over the link the same, but that the manifest, the first line, is abridged.
#[track_caller]
fn assert_are_the_desktops_over_the_link(lines: &[String]) {
    let (mut ours, mut desktops) = (lines.to_vec(), on_the_desktop(SESSION));
    assert!(ours[0].contains(r#""abridged":true"#), "{}", ours[0]);
    assert_eq!(ours[0].matches(r#""description":"#).count(), 1, "the rig's own: {}", ours[0]);
    ours[0] = without(&ours[0], &["abridged", "description"]);
    desktops[0] = without(&desktops[0], &["annotations", "description"]);
    assert_same(&ours, &desktops);
}

#[track_caller]
fn assert_same(ours: &[String], desktops: &[String]) {
    let (ours, desktops) = (comparable(ours), comparable(desktops));
    for (ours, desktops) in ours.iter().zip(&desktops) {
        assert_eq!(ours, desktops);
    }
    assert_eq!(ours.len(), desktops.len());
}

#[test]
fn a_session_over_usb_is_the_desktops_line_for_line() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    let mut lines = Vec::new();
    for line in SESSION {
        send(&mut port, line);
        loop {
            let line = String::from_utf8(read_line(&mut port)).unwrap();
            let is_log = line.contains(r#""method":"log""#);
            lines.push(line.trim_end_matches('\n').to_owned());
            if !is_log {
                break;
            }
        }
    }
    assert_are_the_desktops(&lines);
    assert_silent(&mut port);
}

#[test]
fn a_session_over_the_binary_link_is_the_desktops_line_for_line() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut link = LinkHost::open(emulator.uart(), 77);
    let lines: Vec<String> = SESSION.iter().flat_map(|line| link.ask(line)).collect();
    assert_are_the_desktops_over_the_link(&lines);
}

/// The core is not tied to embassy.
#[test]
fn the_rig_over_blocking_io_tests_itself_and_ends_its_packets() {
    let Some(emulator) = Emulator::start("rig-blocking") else { return };
    let mut port = emulator.usb();
    assert_alive(&mut port);
    let test = execute(2, "self-test", &json!({}));
    assert_eq!(ask(&mut port, &test)["result"]["message"], "all 6 checks passed");
    drop(port);
    // Reports: micropython/micropython#15960, ARMmbed/mbed-os#15384.
    for length in [63, 64, 65, 128] {
        let mut port = emulator.usb();
        send(&mut port, &format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"shutdown"}}"#, "i".repeat(length - 38)));
        assert_eq!(read_line(&mut port).len(), length);
    }
    assert_alive(&mut emulator.usb());
}

/// A peer that was written from the page of the link alone.
#[test]
fn a_python_program_speaks_the_link() {
    let Some(emulator) = Emulator::start("rig") else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        rigline_test_support::skipped("the link in Python", "there is no python3", "apt-get install python3");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/link.py");
    let run = Command::new("python3")
        .args([script, &emulator.uart_port().to_string(), "4711"])
        .args(SESSION)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let lines: Vec<String> = String::from_utf8(run.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_are_the_desktops_over_the_link(&lines);
}

#[test]
fn amplifier_and_namel3ss_lines_are_answered_in_their_own_words() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    for (line, wanted) in [
        (r#"{"op":"health"}"#, r#"{"status":"ok"}"#),
        (r#"{"op":"gpio-read","args":{"pin":"GP15"}}"#, r#""ok":true"#),
        (r#"{"op":"invoke","args":{"op":"power","rail":"3V3","on":true}}"#, r#""ok":"#),
        (r#"{"op":"gpio-read","args":{"pin":"GP99"}}"#, r#""code":"bad_request""#),
        (r#"{"op":"nope","args":{}}"#, r#""code":"unsupported_op""#),
        (r#"{"protocol_version":1,"tool":"gpio_read","entry":"rig:run","payload":{"pin":"GP15"}}"#, r#""ok":true"#),
        (
            r#"{"protocol_version":1,"tool":"gpio read","entry":"rig:run","payload":{"pin":"GP99"}}"#,
            r#""type":"ValueError""#,
        ),
        // What cannot be read is answered as the last protocol seen.
        ("{oops", r#""ok":false"#),
        (SHUTDOWN, r#""id":99,"result":{}"#),
        ("{oops", r#""code":-32700"#),
    ] {
        send(&mut port, line);
        let answer = String::from_utf8(read_line(&mut port)).unwrap();
        assert!(answer.contains(wanted), "{line}: {answer}");
    }
}

/// Amplifier's §2, "ack fast; work may be async": the acknowledgement is on the wire while the work is held at a gate.
#[test]
fn a_hook_acknowledges_before_its_work_is_done() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    let gate = |open: bool| emulator.control(&json!({"cmd": "gpio", "pin": 15, "value": open}));
    gate(false);
    let event = json!({"id": "e", "ts": 1, "event": "session:end", "component": "kernel"});
    send(&mut port, &json!({"op": "on_event", "args": event, "id": 9}).to_string());
    assert_eq!(next(&mut port), json!({"id": 9, "ok": true, "result": {}}));
    // It is held, and what comes behind it waits its turn: without ids, replies come in the order of their lines.
    send(&mut port, r#"{"op":"health"}"#);
    send(&mut port, r#"{"op":"events"}"#);
    sleep(&emulator, 100);
    assert_silent(&mut port);
    gate(true);
    assert_eq!(next(&mut port), json!({"status": "ok"}));
    assert_eq!(next(&mut port), json!({"ok": true, "result": {"events": 1}}));
}

// It never wedges.

/// Reports: micropython/micropython#15960, ARMmbed/mbed-os#15384, ARMmbed/mbed-os#15451.
#[test]
fn replies_of_every_length_arrive_without_further_traffic() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    let without = r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":""}}"#.len() + 1;
    for length in (without..200).chain([255, 256, 257, 319, 320, 321, 1023, 1024, 1025, 2048, LIMIT, LIMIT + 1]) {
        send(&mut port, &execute(1, "say", &json!({"length": length - without})));
        let line = read_line(&mut port);
        assert_eq!(line.len(), length);
    }
}

/// Reports: rust-mcp-stack/rust-mcp-sdk#151, theoriclabs/LeanDB#51, 7etsuo/tetsuo-pulse#3492, ESPresense/ESPresense#2428.
#[test]
fn limits_are_exact_both_ways() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    let limits = &ask(&mut port, INITIALIZE)["result"]["limits"];
    assert_eq!(limits, &json!({"request": LIMIT, "reply": REPLY_LIMIT}));
    let line = |length: usize, tail: &str| {
        let head = r#"{"jsonrpc":"2.0","id":5,"method":"shutdown","x":""#;
        let tail = format!(r#"{tail}"}}"#);
        format!("{head}{}{tail}", "A".repeat(length - head.len() - tail.len()))
    };
    let smuggled = r#"\"}} {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"shutdown\"}"#;
    for (length, fits) in [(LIMIT - 1, true), (LIMIT, true), (LIMIT + 1, false), (4 * LIMIT, false), (200_000, false)] {
        let answer = ask(&mut port, &line(length, if fits { "" } else { smuggled }));
        if fits {
            assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 5, "result": {}}), "{length}");
        } else {
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{length}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(&format!("{length} bytes, the limit is {LIMIT}")), "{message}");
        }
        assert_alive(&mut port);
    }
    let without = r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":""}}"#.len();
    for (fill, width) in [("x", 1), ("\"", 2), ("\u{1}", 6)] {
        let most = (REPLY_LIMIT - without) / width;
        for (length, fits) in [(most - 1, true), (most, true), (most + 1, false), (4 * most, false)] {
            let answer = ask(&mut port, &execute(1, "say", &json!({"length": length, "fill": fill})));
            if fits {
                assert_eq!(answer["result"]["message"].as_str().unwrap().len(), length);
            } else {
                assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)), "{length} {fill:?}");
            }
        }
        let answer =
            ask(&mut port, &execute(1, "say", &json!({"length": 2 * REPLY_LIMIT, "fill": fill, "fail": true})));
        assert_eq!(answer["error"]["code"], -32603, "an error text that does not fit: {answer}");
    }
    assert_silent(&mut port);
}

/// The line that garbage is glued to is lost; the next one is answered.
/// Reports: tbird20d/grabserial#55, sensiml/open-gateway#30, techomancer/iris#24, beroset/pico-puller#2, openmv/openmv#179, nordicsemi/nRF-Sniffer-for-802.15.4#15.
#[test]
fn probes_noise_and_telnet_cost_a_bounded_number_of_short_errors() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    let noises: &[&[u8]] = &[
        b"AT\r",
        b"ATE0\r",
        b"AT+CGMI\r\n",
        b"\x7e\x00\x78\xf0\x7e",
        b"\x00",
        b"\x00\x00\xf8 garbage",
        b"\xff\xfd\x03\xff\xfb\x18",
        b"\r\r\n\n\r",
        b"\xef\xbb\xbf",
        b"[[[[[[[[",
        b"\"\\u",
    ];
    for (i, noise) in noises.iter().enumerate() {
        for newline in ["\n", ""] {
            port.write_all(noise).unwrap();
            port.write_all(newline.as_bytes()).unwrap();
            send(&mut port, &execute(7, "gpio-read", &json!({"pin": "GP15"})));
            send(&mut port, &execute(8, "gpio-read", &json!({"pin": "GP15"})));
            let mut errors = 0;
            loop {
                let answer = next(&mut port);
                if answer["id"] == 8 {
                    break;
                }
                if answer["id"] != 7 {
                    assert_eq!(answer["error"]["code"], -32700);
                    assert!(answer.to_string().len() < 200, "{answer}");
                    errors += 1;
                }
            }
            assert!(errors <= 1, "{errors} errors after noise {i}");
        }
    }
    assert_silent(&mut port);
}

/// Reports: rust-mcp-stack/rust-mcp-sdk#151, theoriclabs/LeanDB#51, jamesmunns/ergot#189, arduino/serial-monitor#32.
#[test]
fn a_line_without_end_costs_one_error_and_is_forgotten_with_its_connection() {
    let Some(emulator) = Emulator::start_fast("rig") else { return };
    let mut port = emulator.usb();
    for byte in [b'x', b' ', b'[', 0, 0xff] {
        port.write_all(&vec![byte; 100_000]).unwrap();
        port.write_all(b"\n").unwrap();
        let answer = next(&mut port);
        assert!(answer["error"]["message"].as_str().unwrap().contains("100000 bytes"), "{answer}");
        assert_alive(&mut port);

        deliver(&emulator, &mut port, &vec![byte; 100_000]);
        emulator.control(&json!({"cmd": "dtr", "value": false}));
        emulator.control(&json!({"cmd": "dtr", "value": true}));
        assert_alive(&mut port);
    }
    assert_silent(&mut port);
}

/// Requests pile up while the host does not read. If it then continues to read, it gets all answers; if it
/// opens the port again, it gets none.
/// Reports: embassy-rs/embassy#3389, hathach/tinyusb#2309, wagiminator/CH552-DAPLink#2.
#[test]
fn what_nobody_read_waits_for_its_reader_and_for_nobody_else() {
    let Some(emulator) = Emulator::start_fast("rig-bench") else { return };
    let mut port = emulator.usb();
    let many: String = (0..40).map(|id| execute(id, "say", &json!({"length": 500})) + "\n").collect();
    emulator.control(&json!({"cmd": "reading", "value": false}));
    port.write_all(many.as_bytes()).unwrap();
    sleep(&emulator, 5000);
    emulator.control(&json!({"cmd": "reading", "value": true}));
    for id in 0..40 {
        let answer = reply(&mut port);
        assert_eq!((&answer["id"], answer["result"]["message"].as_str().unwrap().len()), (&json!(id), 500));
    }
    emulator.control(&json!({"cmd": "reading", "value": false}));
    port.write_all(many.as_bytes()).unwrap();
    sleep(&emulator, 100);
    drop(port);
    sleep(&emulator, 500);
    emulator.control(&json!({"cmd": "reading", "value": true}));
    let mut port = emulator.usb();
    assert_alive(&mut port);
    assert_silent(&mut port);
}

/// Reports: techomancer/iris#24, beroset/pico-puller#2, rstacruz/taskpaper.js#3.
#[test]
fn a_lone_carriage_return_ends_a_line() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    for id in 1..4 {
        port.write_all(format!("{}\r", execute(id, "gpio-read", &json!({"pin": "GP15"}))).as_bytes()).unwrap();
        assert_eq!(reply(&mut port)["id"], id);
        sleep(&emulator, 300);
    }
    assert_silent(&mut port);
}

/// Reports: jamesmunns/ergot#189, arduino/serial-monitor#32, crayzeewulf/libserial#172.
#[test]
fn a_partial_line_is_forgotten_when_dtr_drops() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    for partial in [&INITIALIZE[..30], &INITIALIZE[..64], &execute(1, "say", &json!("A".repeat(200)))] {
        port.write_all(partial.as_bytes()).unwrap();
        sleep(&emulator, 20);
        emulator.control(&json!({"cmd": "dtr", "value": false}));
        emulator.control(&json!({"cmd": "dtr", "value": true}));
        assert_alive(&mut port);
    }
    assert_silent(&mut port);
}

/// A call that logs every 10 ms, cut by each kind of loss; nothing of it reaches the next connection.
/// Reports: zephyrproject-rtos/zephyr#76064, raspberrypi/pico-sdk#663, raspberrypi/pico-sdk#927.
#[test]
fn the_rig_comes_back_from_resets_suspends_and_replugs_in_mid_call() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    for round in 0..20 {
        assert_alive(&mut port);
        ask(&mut port, &execute(2, "power", &json!({"rail": "3V3", "on": true})));
        assert!(millivolts(&emulator, "3v3") > 3000);
        send(&mut port, &execute(3, "log", &json!({"count": 1000, "every_ms": 10})));
        next(&mut port);
        let commands: &[&str] = [&["bus-reset"][..], &["suspend", "resume"], &["unplug", "plug"]][round % 3];
        for command in commands {
            emulator.control(&json!({"cmd": command}));
            sleep(&emulator, 15);
        }
        assert!(millivolts(&emulator, "3v3") < 100, "the safe state of a lost session");
        if commands.contains(&"unplug") {
            port = emulator.usb();
        }
        // What was on its way to this computer before the loss arrives, whole or not; then the answer.
        send(&mut port, INITIALIZE);
        while !String::from_utf8_lossy(&read_line(&mut port)).contains(r#""name":"rig""#) {}
    }
    assert_silent(&mut port);
}

#[test]
fn losing_a_session_is_safe_and_its_end_and_one_shot_use_change_nothing() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let on = execute(2, "power", &json!({"rail": "3V3", "on": true}));
    for (before, after, stays_on) in
        [(&[INITIALIZE, &on][..], &[][..], false), (&[INITIALIZE, &on], &[SHUTDOWN], true), (&[&on], &[], true)]
    {
        let mut port = emulator.usb();
        for line in before.iter().chain(after) {
            ask(&mut port, line);
        }
        drop(port);
        sleep(&emulator, 300);
        assert_eq!(millivolts(&emulator, "3v3") > 3000, stays_on, "{before:?} {after:?}");
        let mut port = emulator.usb();
        ask(&mut port, &execute(3, "power", &json!({"rail": "3V3", "on": false})));
    }
}

/// The rig goes on without a reader; logs that could not begin are dropped whole and counted; the reply is whole.
/// Reports: embassy-rs/embassy#3389, hathach/tinyusb#2309, wagiminator/CH552-DAPLink#2.
#[test]
fn a_host_that_does_not_read_does_not_hold_the_rig() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    assert_alive(&mut port);
    emulator.control(&json!({"cmd": "reading", "value": false}));
    send(&mut port, &execute(2, "power", &json!({"rail": "3V3", "on": true})));
    sleep(&emulator, 200);
    assert!(millivolts(&emulator, "3v3") > 3000, "the rail is on, though nobody reads");
    emulator.control(&json!({"cmd": "reading", "value": true}));
    assert_eq!(reply(&mut port)["id"], 2);

    // Short lines: the first waits in the hardware, the second cannot begin.
    emulator.control(&json!({"cmd": "reading", "value": false}));
    send(&mut port, &execute(3, "log", &json!({"count": 60, "every_ms": 20, "length": 100})));
    sleep(&emulator, 2500);
    emulator.control(&json!({"cmd": "reading", "value": true}));
    let lines = until_reply(&mut port);
    assert_eq!(lines.last().unwrap()["result"]["message"], "logged");
    let (mut seen, mut dropped) = (0, 0);
    for line in &lines[..lines.len() - 1] {
        let message = line["params"]["message"].as_str().unwrap();
        match message.split_once(" log line") {
            Some((count, _)) => dropped += count.parse::<u32>().unwrap(),
            None => seen += 1,
        }
    }
    assert_eq!(seen + dropped, 60, "{lines:?}");
    assert!(dropped > 0);
    assert_silent(&mut port);
}

/// A button is let go at the call's timeout, and the rails are off, though nobody takes the lines.
#[test]
fn a_timeout_is_safe_at_once_though_nobody_reads() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    assert_alive(&mut port);
    ask(&mut port, &execute(2, "power", &json!({"rail": "3V3", "on": true})));
    emulator.control(&json!({"cmd": "reading", "value": false}));
    send(&mut port, &execute_within(3, "log", &json!({"count": 9, "length": 500, "every_ms": 1000}), "100ms"));
    sleep(&emulator, 400);
    assert!(millivolts(&emulator, "3v3") < 100);
    emulator.control(&json!({"cmd": "reading", "value": true}));
    assert_eq!(reply(&mut port)["error"]["code"], -32001);
}

/// Reports: embassy-rs/embassy#3389, hathach/tinyusb#2309, rust-embedded-community/usbd-serial#32, raspberrypi/pico-sdk#995.
#[test]
fn long_replies_survive_a_stall() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    for round in 0..10 {
        emulator.control(&json!({"cmd": "reading", "value": false}));
        send(&mut port, &execute(round, "say", &json!({"length": 4000})));
        sleep(&emulator, 60);
        emulator.control(&json!({"cmd": "reading", "value": true}));
        let answer = reply(&mut port);
        assert_eq!(answer["id"], round);
        assert_eq!(answer["result"]["message"].as_str().unwrap(), "x".repeat(4000));
    }
}

/// Reports: FellouAI/eko#276, FellouAI/eko#286, embassy-rs/embassy#1588, embassy-rs/embassy#4963.
#[test]
fn requests_cut_anywhere_and_sent_at_once_are_answered_in_order() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    let line = format!("{}\n", execute(1, "count", &json!({})));
    for cut in (1..line.len()).step_by(7) {
        port.write_all(&line.as_bytes()[..cut]).unwrap();
        sleep(&emulator, 1);
        port.write_all(&line.as_bytes()[cut..]).unwrap();
        assert_eq!(reply(&mut port)["id"], 1);
    }
    let many: String = (0..200).map(|id| execute(id, "count", &json!({})) + "\n").collect();
    port.write_all(many.as_bytes()).unwrap();
    for id in 0..200 {
        assert_eq!(reply(&mut port)["id"], id);
    }
    assert_silent(&mut port);
}

#[test]
fn a_handler_that_waits_stops_neither_usb_nor_the_answers_to_faults() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    send(&mut port, &execute(1, "wait-pin", &json!({"pin": "GP15", "high": true, "within_ms": 700})));
    assert_eq!(next(&mut port)["method"], "log");
    send(&mut port, "{oops");
    let mut lines = until_reply(&mut port);
    assert_eq!(lines.pop().unwrap()["error"]["code"], -32700);
    send(&mut port, &execute(2, "gpio-read", &json!({"pin": "GP15"})));
    assert_eq!(reply(&mut port)["id"], 1);
    assert_eq!(reply(&mut port)["id"], 2);
}

#[test]
fn depth_has_a_limit_and_the_stack_does_not_know() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"gpio-read","x":{open}{close},"args":{{"pin":"GP15"}},"context":{{}}}}}}"#
        )
    };
    assert_eq!(ask(&mut port, &nested(3))["id"], 1);
    let before = emulator.stats()["stack"]["peak"].clone();
    for (depth, fits) in [(128, true), (129, false), (1000, false)] {
        let answer = ask(&mut port, &nested(depth));
        assert_eq!(answer.get("result").is_some(), fits, "{depth}: {answer}");
    }
    let after = emulator.stats()["stack"]["peak"].clone();
    assert!(after.as_u64().unwrap() <= before.as_u64().unwrap() + 256, "{before} {after}");
}

// What outlives a reset.

#[test]
fn a_panic_and_a_hard_fault_are_told_after_the_reset() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut port = emulator.usb();
    let identify = execute(1, "identify", &json!({}));
    let outputs = |port: &mut TcpStream| ask(port, &identify)["result"]["outputs"].clone();
    assert_eq!(outputs(&mut port).get("last_panic"), None);
    for (count, operation, args, wanted) in [
        (1, "panic", json!({"text": "the \"rig\" is sad"}), "the \"rig\" is sad"),
        (2, "fault", json!({}), "hard fault at 0x10"),
    ] {
        ask(&mut port, &execute(2, "power", &json!({"rail": "5V0", "on": true})));
        send(&mut port, &execute(3, operation, &args));
        wait_for_reset(&emulator, count);
        for _ in 0..2 {
            let outputs = outputs(&mut port);
            let text = outputs["last_panic"].as_str().unwrap_or_default();
            assert!(text.contains(wanted), "{outputs}");
            assert_eq!(outputs["reset"], "panic");
        }
        sleep(&emulator, 20);
        assert!(millivolts(&emulator, "5v") < 100, "a reset lets go of the rails");
    }
    emulator.control(&json!({"cmd": "reset", "kind": "power"}));
    assert_eq!(outputs(&mut port).get("last_panic"), None);
}

#[test]
fn the_watchdog_resets_a_rig_that_hangs_and_not_one_that_waits() {
    let Some(emulator) = Emulator::start_fast("rig-bench") else { return };
    let mut port = emulator.usb();
    let wait = execute(1, "wait-pin", &json!({"pin": "GP15", "high": true, "within_ms": 30_000}));
    assert_eq!(ask(&mut port, &wait)["result"]["success"], false);
    assert_eq!(emulator.stats()["resets"], 0);
    send(&mut port, &execute(2, "hang", &json!({})));
    wait_for_reset(&emulator, 1);
    let outputs = ask(&mut port, &execute(3, "identify", &json!({})))["result"]["outputs"].clone();
    assert_eq!((&outputs["reset"], outputs.get("last_panic")), (&json!("watchdog"), None));
}

// Two wires.

#[test]
fn the_first_session_holds_the_rig_and_the_other_wire_is_told() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    let mut link = LinkHost::open(emulator.uart(), 1);
    let read = execute(2, "gpio-read", &json!({"pin": "GP15"}));
    let over_link =
        |link: &mut LinkHost, line: &str| -> Value { serde_json::from_str(link.ask(line).last().unwrap()).unwrap() };
    // Without a session both are served.
    assert!(over_link(&mut link, &read).get("result").is_some());
    assert!(ask(&mut port, &read).get("result").is_some());

    assert_alive(&mut port);
    for line in [INITIALIZE, &read, &execute(3, "identify", &json!({}))] {
        let answer = over_link(&mut link, line);
        assert_eq!(answer["error"]["code"], -32000, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("in use over USB"), "{answer}");
    }
    assert_eq!(over_link(&mut link, r#"{"op":"health"}"#), json!({"status": "ok"}));
    assert_eq!(over_link(&mut link, r#"{"op":"gpio-read","args":{"pin":"GP15"}}"#)["error"]["code"], "unreachable");
    assert!(ask(&mut port, &read).get("result").is_some());

    ask(&mut port, SHUTDOWN);
    assert!(over_link(&mut link, INITIALIZE).get("result").is_some());
    let answer = ask(&mut port, INITIALIZE);
    assert!(answer["error"]["message"].as_str().unwrap().contains("in use over UART0"), "{answer}");

    // A new link session is the loss of the old one.
    link.hello(2);
    assert_alive(&mut port);
    // And so is the end of a connection.
    drop(port);
    sleep(&emulator, 300);
    assert!(over_link(&mut link, INITIALIZE).get("result").is_some());
}

/// UART0 has 9 KB of memory: each operation works over it, and its limits are exact.
#[test]
fn uart0_carries_every_operation_and_names_its_limits() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut link = LinkHost::open(emulator.uart(), 1);
    let mut ask =
        |line: &str| -> Vec<Value> { link.ask(line).iter().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let manifest = ask(INITIALIZE).pop().unwrap()["result"].take();
    assert_eq!(manifest["limits"], json!({"request": UART_LIMITS.0, "reply": UART_LIMITS.1}));
    assert!(manifest["operations"]["uart-expect"]["params"]["properties"]["within_ms"]["maximum"] == 60_000);

    let spaced = vec!["5a"; 256].join(" ");
    for (operation, args) in [
        ("power", json!({"rail": "3V3", "on": true})),
        ("uart-expect", json!({"text": "ready\r\n> "})),
        ("i2c-transfer", json!({"bus": "I2C0", "address": 80, "write": spaced, "read": 256})),
        ("spi-transfer", json!({"bus": "SPI0", "write": spaced})),
        ("uart-write", json!({"data": "garbage 2048\r"})),
        ("uart-expect", json!({"text": "> "})),
    ] {
        let answer = ask(&execute_within(2, operation, &args, "20s")).pop().unwrap();
        assert_eq!(answer["result"]["success"], true, "{operation}: {answer}");
    }

    let line = |length: usize| {
        let head = r#"{"jsonrpc":"2.0","id":5,"method":"shutdown","x":""#;
        format!("{head}{}\"}}", "A".repeat(length - head.len() - 2))
    };
    assert_eq!(ask(&line(UART_LIMITS.0)), [json!({"jsonrpc": "2.0", "id": 5, "result": {}})]);
    let answer = ask(&line(UART_LIMITS.0 + 1)).pop().unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("1024 bytes, the limit is 1023"), "{answer}");
    // What is longer than any frame of such a line is refused by the link.
    link.sequence += 1;
    link.send(FrameKind::Request, link.sequence, line(2 * UART_LIMITS.0).as_bytes());
    assert_eq!(link.next(), (FrameKind::TooLong, u32::try_from(UART_LIMITS.0).unwrap(), String::new()));
}

#[test]
fn noise_on_one_wire_does_not_reach_the_other() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let (mut port, mut uart) = (emulator.usb(), emulator.uart());
    let noise: [&[u8]; 5] =
        [&[0; 200], &[0xff; 200], &[1; 200], INITIALIZE.as_bytes(), b"\x05\x02\x01AT\r\x00\x03ab\x00"];
    for id in 0..30 {
        uart.write_all(noise[id % noise.len()]).unwrap();
        send(&mut port, &execute(u32::try_from(id).unwrap(), "measure", &json!({"channel": "TEMP", "samples": 2})));
        assert_eq!(reply(&mut port)["id"], id);
    }
    assert_silent(&mut port);
    drop(uart);
    sleep(&emulator, 20);
    let mut link = LinkHost::open(emulator.uart(), 9);
    assert!(link.ask(INITIALIZE)[0].contains(r#""result""#));
    assert_eq!(emulator.stats()["uart_overruns"], 0);
}

/// Both in a hurry: each call is answered by the rig or with who holds it, and each session that began runs to its end.
#[test]
fn two_hosts_at_once_take_turns() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let sessions = |ask: &mut dyn FnMut(&str) -> Value| {
        let (mut held, mut refused) = (0, 0);
        // A refusal is quick: it does not count, or one host could be refused until it has no round left.
        while held < 20 {
            let begun = ask(INITIALIZE);
            if begun.get("result").is_none() {
                assert!(begun["error"]["message"].as_str().unwrap().contains("in use over"), "{begun}");
                refused += 1;
                continue;
            }
            held += 1;
            let args = json!({"pin": "GP14", "high": held % 2 == 0});
            for (operation, args) in
                [("gpio-write", args), ("log", json!({"count": 3, "every_ms": 2})), ("count", json!({}))]
            {
                let answer = ask(&execute(2, operation, &args));
                assert_eq!(answer["result"]["success"], true, "{operation}: {answer}");
            }
            assert_eq!(ask(SHUTDOWN)["result"], json!({}));
        }
        (held, refused)
    };
    let (over_usb, over_uart) = thread::scope(|scope| {
        let usb = scope.spawn(|| {
            let mut port = emulator.usb();
            sessions(&mut |line| ask(&mut port, line))
        });
        let uart = scope.spawn(|| {
            let mut link = LinkHost::open(emulator.uart(), 3);
            sessions(&mut |line| serde_json::from_str(link.ask(line).last().unwrap()).unwrap())
        });
        (usb.join().unwrap(), uart.join().unwrap())
    });
    assert!(over_usb.1 + over_uart.1 > 0, "they never met");
    let calls = ask(&mut emulator.usb(), &execute(1, "count", &json!({})))["result"]["outputs"]["calls"].clone();
    assert_eq!(calls, (over_usb.0 + over_uart.0 + 1).to_string());
}

#[test]
fn thirty_seconds_of_silence_give_the_rig_to_the_other_wire() {
    let Some(emulator) = Emulator::start_fast("rig") else { return };
    let mut port = emulator.usb();
    assert_alive(&mut port);
    ask(&mut port, &execute(2, "power", &json!({"rail": "3V3", "on": true})));
    sleep(&emulator, 31_000);
    let mut link = LinkHost::open(emulator.uart(), 1);
    assert!(link.ask(INITIALIZE)[0].contains(r#""result""#));
    link.ask(&execute(3, "gpio-read", &json!({"pin": "GP15"})));
    sleep(&emulator, 20);
    assert!(millivolts(&emulator, "3v3") < 100, "the safe state of the session that was taken over");
}

#[test]
fn after_a_reset_a_request_of_the_old_link_session_is_unknown() {
    let Some(emulator) = Emulator::start("rig-bench") else { return };
    let mut link = LinkHost::open(emulator.uart(), 5);
    link.ask(&execute(1, "count", &json!({})));
    link.send(FrameKind::Request, 2, execute(2, "panic", &json!({})).as_bytes());
    wait_for_reset(&emulator, 1);
    sleep(&emulator, 100);
    // What was cut on the wire is ended by a lone zero.
    link.send_raw(&[0]);
    link.send(FrameKind::Request, 2, execute(2, "panic", &json!({})).as_bytes());
    loop {
        match link.next() {
            (FrameKind::Unknown, 2, _) => break,
            (FrameKind::Damaged, ..) => {}
            other => panic!("{other:?}"),
        }
    }
    link.hello(6);
    assert!(link.ask(&execute(3, "count", &json!({})))[0].contains(r#""calls":"1""#));
}
