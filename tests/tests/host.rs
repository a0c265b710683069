//! `rigline` with the rig's own image, in the emulator: behind a pty as `serial:`, and as `tcp:`.
#![cfg(unix)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;

use rigline_tests::emulator::Emulator;

/// A pty with the board's USB serial port behind it.
struct Pty {
    path: String,
    /// Keeps the pty from hanging up while nobody has it open.
    _user: std::os::fd::OwnedFd,
}

impl Pty {
    fn of(board: &TcpStream) -> Self {
        let pty = rustix_openpty::openpty(None, None).expect("there are ptys");
        let path = rustix::pty::ptsname(&pty.controller, Vec::new()).unwrap().into_string().unwrap();
        let controller = File::from(pty.controller);
        let pump = |mut from: Box<dyn Read + Send>, mut to: Box<dyn Write + Send>| {
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(read) = from.read(&mut bytes) {
                    if read == 0 || to.write_all(&bytes[..read]).is_err() {
                        break;
                    }
                }
            });
        };
        board.set_read_timeout(None).unwrap();
        pump(Box::new(controller.try_clone().unwrap()), Box::new(board.try_clone().unwrap()));
        pump(Box::new(board.try_clone().unwrap()), Box::new(controller));
        Self { path, _user: pty.user }
    }
}

/// The command, built if it is not there yet.
fn rigline() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let program = test.ancestors().nth(2).expect("it is in target/debug/deps").join("rigline");
    if !program.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "rigline-std", "--bin", "rigline"]).status();
        assert!(built.is_ok_and(|status| status.success()) && program.is_file(), "no {}", program.display());
    }
    program
}

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
    let board = emulator.usb();
    let pty = Pty::of(&board);
    everything_passes(&format!("serial:{}", pty.path));
    let bridge = format!("exec:{} bridge serial:{}", rigline().display(), pty.path);
    passes(&["check", &bridge, "--patience", "30s"], &[" 0 failed"]);
}

#[test]
fn a_board_behind_tcp() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let board = emulator.usb();
    let address = board.peer_addr().unwrap();
    drop(board);
    everything_passes(&format!("tcp:{address}"));
    let bridge = format!("exec:{} bridge tcp:{address}", rigline().display());
    passes(&["check", &bridge, "--patience", "30s"], &[" 0 failed"]);
}

#[test]
fn a_board_on_the_binary_link() {
    let Some(emulator) = Emulator::start("rig") else { return };
    everything_passes(&format!("tcp:127.0.0.1:{}?link=cobs", emulator.uart_port()));
}
