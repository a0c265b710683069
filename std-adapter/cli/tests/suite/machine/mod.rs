//! The command on a real machine: programs that hang, ports that others hold, binaries that are replaced. Every program is a real
//! process, and every port a real pty.

mod limits;
mod ports;
mod programs;
mod replies;
mod wires;

use crate::executable;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use executable::script;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// The beginning of a shell script that is a gevals extension with the operation `go`; `$id` is then the id of a call of it.
const EXTENSION: &str = r#"#!/bin/sh
ask() { read -r line || exit 0; id=${line#*'"id":'}; id=${id%%[!0-9]*}; }
say() { printf '%s\n' "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
ask
say '{"name":"fake","version":"1.0.0","protocolVersion":"0.0.1","operations":{"go":{"params":{}}}}'
ask
"#;

fn rigline(arguments: &[&str]) -> Command {
    let mut command = Command::new(RIGLINE);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end: its exit code, standard output and standard error.
fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
}

/// A copy of the command. Another process makes it, for the reason that [`script`] gives.
fn copy_command(to: &Path) {
    // Whoever built it may have kept it for itself, by the umask.
    let copied = Command::new("sh").args(["-c", "cp \"$0\" \"$1\" && chmod 755 \"$1\""]).arg(RIGLINE).arg(to).status();
    assert!(copied.unwrap().success());
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A device at the other side of a pty.
struct Device {
    path: String,
    /// The device's side; taken away, the device is unplugged.
    controller: Option<File>,
    lines: Arc<Mutex<Vec<String>>>,
    /// Whether the device's thread is to end at the next line.
    stop: Arc<AtomicBool>,
    /// Keeps the port there while nobody has it open.
    port: OwnedFd,
}

impl Device {
    /// A device whose `behave` gets each line that comes, and what to write to.
    fn new(mut behave: impl FnMut(&str, &mut File) + Send + 'static) -> Self {
        let device = Self::silent();
        let mut reader = device.controller.as_ref().unwrap().try_clone().unwrap();
        let mut writer = reader.try_clone().unwrap();
        let (seen, stop) = (Arc::clone(&device.lines), Arc::clone(&device.stop));
        thread::spawn(move || {
            let (mut line, mut byte) = (Vec::new(), [0]);
            while reader.read(&mut byte).is_ok_and(|read| read == 1) {
                if byte[0] != b'\n' {
                    line.push(byte[0]);
                    continue;
                }
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let text = String::from_utf8_lossy(&std::mem::take(&mut line)).trim().to_owned();
                seen.lock().unwrap().push(text.clone());
                if !text.is_empty() {
                    behave(&text, &mut writer);
                }
            }
        });
        device
    }

    /// A device that reads nothing and says nothing.
    fn silent() -> Self {
        let pty = rustix_openpty::openpty(None, None).unwrap();
        let path = rustix::pty::ptsname(&pty.controller, Vec::new()).unwrap();
        // As raw as a serial port: no echo before a host has opened it.
        let mut settings = rustix::termios::tcgetattr(&pty.user).unwrap();
        settings.make_raw();
        rustix::termios::tcsetattr(&pty.user, rustix::termios::OptionalActions::Now, &settings).unwrap();
        Self {
            path: path.into_string().unwrap(),
            controller: Some(File::from(pty.controller)),
            lines: Arc::default(),
            stop: Arc::default(),
            port: pty.user,
        }
    }

    fn target(&self) -> String {
        format!("serial:{}", self.path)
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

/// The value of a member of a line's JSON.
fn member(line: &str, path: &str) -> serde_json::Value {
    let json: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    json.pointer(path).cloned().unwrap_or_default()
}

fn write_line(writer: &mut File, line: &str) {
    let _ = writer.write_all(format!("{line}\r\n").as_bytes());
}
