//! `rigline` with the rig's own image, in the emulator: behind a pty as `serial:`, and as `tcp:`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rigline_tests::emulator::{Emulator, IMAGES, PATIENCE, firmware_directory};
use rigline_tests::pty::Pty;
use rigline_tests::session::rigline;
use serde_json::json;

fn run(arguments: &[&str]) -> Output {
    // The emulator is slower than a board.
    Command::new(rigline()).args(arguments).args(["--start-timeout", "40s"]).output().unwrap()
}

#[track_caller]
fn passes(arguments: &[&str], wanted: &[&str]) {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    for wanted in wanted {
        assert!(text.contains(wanted), "{arguments:?}: {text}");
    }
}

/// The limits of the ports of the rig.
const OVER_USB: &[&str] = &["limits: 4095 bytes a request, 16383 bytes a reply", "measure: Measure a channel"];
const OVER_UART: &[&str] = &["limits: 1023 bytes a request, 5119 bytes a reply", "without descriptions: ", "measure\n"];

/// All that issue D wants of a target.
fn everything_passes(target: &str, described: &[&str]) {
    passes(&["describe", target], described);
    passes(&["call", target, "power", "rail=3V3", "on=true"], &["3V3 is on"]);
    passes(&["call", target, "measure", "channel=3V3", "samples=4"], &["volts"]);
    let calls = ["--call", "identify", "--call", "measure", r#"{"channel":"3V3"}"#, "--patience", "30s"];
    passes(&[&["check", target][..], &calls].concat(), &[" 0 failed"]);
}

#[test]
fn a_board_on_a_serial_port() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let pty = Pty::in_front_of(emulator.usb_port()).unwrap();
    everything_passes(&format!("serial:{}", pty.path()), OVER_USB);
    let bridge = format!("exec:{} bridge serial:{}", rigline().display(), pty.path());
    passes(&["check", &bridge, "--patience", "30s"], &[" 0 failed"]);
}

#[test]
fn a_board_behind_tcp() {
    let Some(emulator) = Emulator::start("rig") else { return };
    everything_passes(&format!("tcp:127.0.0.1:{}", emulator.usb_port()), OVER_USB);
    let bridge = format!("exec:{} bridge tcp:127.0.0.1:{}", rigline().display(), emulator.usb_port());
    passes(&["check", &bridge, "--patience", "30s"], &[" 0 failed"]);
}

#[test]
fn a_board_on_the_binary_link() {
    let Some(emulator) = Emulator::start("rig") else { return };
    everything_passes(&format!("tcp:127.0.0.1:{}?link=cobs", emulator.uart_port()), OVER_UART);
}

/// `cargo emulator`.
#[test]
fn one_command_gives_a_board_with_serial_ports() {
    if Emulator::start("rig").is_none() {
        return;
    }
    let image = firmware_directory().join("rig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_emulator"));
    command.arg(image).arg("--until-eof").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut emulator = command.spawn().unwrap();
    let mut lines = BufReader::new(emulator.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut path = |wire: &str| {
        let line = lines.next().unwrap();
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some(wire), "{line}");
        words.next().unwrap().to_owned()
    };
    let (usb, uart) = (path("USB"), path("UART0"));
    passes(&["call", &format!("serial:{usb}"), "self-test"], &["all 6 checks passed"]);
    passes(&["call", &format!("serial:{uart}?link=cobs"), "self-test"], &["all 6 checks passed"]);
    // So it ends too when this test is killed.
    drop(emulator.stdin.take());
    let start = Instant::now();
    while emulator.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "it does not end with its standard input");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The actions of a terminal program: opening raises DTR, closing drops it and forgets half a line.
#[test]
fn a_pty_is_opened_and_closed_as_a_serial_port() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let pty = Pty::in_front_of(emulator.usb_port()).unwrap();
    let dtr_becomes = |up: bool| {
        for _ in 0..500 {
            if emulator.stats()["dtr"] == up {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("DTR does not become {up}");
    };
    for _ in 0..2 {
        dtr_becomes(false);
        let mut port = File::options().read(true).write(true).open(pty.path()).unwrap();
        dtr_becomes(true);
        port.write_all(b"{\"op\":\"health\"}\n{\"half").unwrap();
        let mut line = String::new();
        BufReader::new(&port).read_line(&mut line).unwrap();
        assert_eq!(line, "{\"status\":\"ok\"}\n");
    }
}

/// Pulling the cable ends what has the port open, so that a call in flight is not waited for; after plugging in, the path is back.
/// A call raises DTR before it sends anything (raspberrypi/pico-sdk#921, earlephilhower/arduino-pico#1620).
#[test]
fn an_unplugged_board_ends_the_call_in_flight() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let pty = Pty::in_front_of(emulator.usb_port()).unwrap();
    let begun = Instant::now();
    let target = format!("serial:{}", pty.path());
    let mut command = Command::new(rigline());
    command.args(["call", &target, "wait-for", "channel=AUX", "min=1", "max=2", "within_ms=60000"]);
    let call = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while emulator.stats()["dtr"] != true {
        assert!(begun.elapsed() < PATIENCE, "the port is not opened");
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(500));
    emulator.control(&json!({"cmd": "unplug"}));
    let ended = call.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    emulator.control(&json!({"cmd": "plug"}));
    passes(&["call", &format!("serial:{}", pty.path()), "self-test"], &["all 6 checks passed"]);
}

#[test]
fn help_needs_neither_node_nor_an_image() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_emulator"));
    let shown = command
        .arg("--help")
        .env("RIGLINE_NODE", "/no/such/node")
        .env("RIGLINE_FIRMWARE_DIR", "/no/such")
        .output()
        .unwrap();
    assert!(shown.status.success(), "{shown:?}");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("usage: cargo emulator"), "{shown:?}");
}

/// Each is refused before anything is installed or built: neither Node nor a folder of images is there.
#[test]
fn a_wrong_image_or_option_is_named_before_anything_is_built() {
    for (arguments, code, text) in [
        (
            &["no-such-image"][..],
            1,
            "unknown image no-such-image: expected the path of an image, or one of rig, rig-bench",
        ),
        (&["./no-such-image"], 1, "no image ./no-such-image: No such file"),
        (&["/"], 1, "/ is a folder, not an image"),
        (&["rig", "--slow"], 2, "unknown option --slow"),
        (&["rig", "echo"], 2, "expected one image, not both rig and echo"),
        (&["--usb-port"], 2, "--usb-port needs a value"),
        (&["rig"], 1, "the emulator needs Node.js"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_emulator"));
        let refused = command
            .args(arguments)
            .env("RIGLINE_NODE", "/no/such/node")
            .env("RIGLINE_FIRMWARE_DIR", "/no/such")
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(code), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(text), "{arguments:?}: {refused:?}");
    }
}

/// The names that `cargo emulator` knows are those of the firmware's programs.
#[test]
fn every_image_of_the_firmware_can_be_named() {
    let manifest = include_str!("../../../firmware-example/Cargo.toml");
    let names = manifest.split("[[bin]]").skip(1).map(|part| part.split('"').nth(1).unwrap());
    let known: Vec<&str> = IMAGES.iter().map(|(name, _)| *name).collect();
    let mut names: Vec<&str> = names.collect();
    let mut sorted = known.clone();
    names.sort_unstable();
    sorted.sort_unstable();
    assert_eq!(sorted, names);
}
