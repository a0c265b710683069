//! `rigline` with the rig's own image, in the emulator: behind a pty as `serial:`, and as `tcp:`.
#![cfg(unix)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rigline_tests::emulator::{Emulator, firmware_directory};
use rigline_tests::pty::Pty;
use rigline_tests::session::rigline;

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

/// All that issue D wants of a target.
fn everything_passes(target: &str) {
    passes(&["describe", target], &["measure", "limits: 4095 bytes a request"]);
    passes(&["call", target, "power", "rail=3V3", "on=true"], &["3V3 is on"]);
    passes(&["call", target, "measure", "channel=3V3", "samples=4"], &["volts"]);
    let calls = ["--call", "identify", "--call", "measure", r#"{"channel":"3V3"}"#, "--patience", "30s"];
    passes(&[&["check", target][..], &calls].concat(), &[" 0 failed"]);
}

#[test]
fn a_board_on_a_serial_port() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let pty = Pty::in_front_of(emulator.usb_port()).unwrap();
    everything_passes(&format!("serial:{}", pty.path()));
    let bridge = format!("exec:{} bridge serial:{}", rigline().display(), pty.path());
    passes(&["check", &bridge, "--patience", "30s"], &[" 0 failed"]);
}

#[test]
fn a_board_behind_tcp() {
    let Some(emulator) = Emulator::start("rig") else { return };
    everything_passes(&format!("tcp:127.0.0.1:{}", emulator.usb_port()));
    let bridge = format!("exec:{} bridge tcp:127.0.0.1:{}", rigline().display(), emulator.usb_port());
    passes(&["check", &bridge, "--patience", "30s"], &[" 0 failed"]);
}

#[test]
fn a_board_on_the_binary_link() {
    let Some(emulator) = Emulator::start("rig") else { return };
    everything_passes(&format!("tcp:127.0.0.1:{}?link=cobs", emulator.uart_port()));
}

/// `cargo emulator`.
#[test]
fn one_command_gives_a_board_with_serial_ports() {
    if Emulator::start("rig").is_none() {
        return;
    }
    let image = firmware_directory().join("rig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_emulator"));
    let mut emulator = command.arg(image).stdout(Stdio::piped()).spawn().unwrap();
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
    emulator.kill().unwrap();
    emulator.wait().unwrap();
}

/// What a terminal program does, and what it does not: opening raises DTR, closing drops it and forgets half a line.
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
