//! A command under attack: its pipes, its memory, and its end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Attack;

/// How long an answer may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A program that runs until this is dropped.
pub(super) struct Program {
    child: Child,
    pub(super) stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Attack {
    /// The command with these arguments.
    pub(super) fn rigline(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.command);
        command.args(args);
        command
    }

    /// A hostile peer as a target.
    pub(super) fn target(&self, peer: &str) -> String {
        format!("exec:{} peer {peer}", self.peers.display())
    }

    pub(super) fn start(&self, args: &[&str]) -> Result<Program, String> {
        Program::start(&mut self.rigline(args))
    }

    /// Starts a server, and waits for the address that it prints.
    pub(super) fn serve(&self, args: &[&str]) -> Result<(Program, SocketAddr, String), String> {
        let mut program = Program::start_with(&mut self.rigline(args), true)?;
        program.stdin = None;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let line = program.line(PATIENCE)?;
            if let Some((_, rest)) = line.split_once("127.0.0.1:") {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                let port = digits.parse().map_err(|_| format!("no port: {line}"))?;
                return Ok((program, SocketAddr::from(([127, 0, 0, 1], port)), line));
            }
        }
        Err("the server does not say where it listens".into())
    }
}

impl Program {
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        Self::start_with(command, false)
    }

    /// `hears_errors`: the lines of standard error are heard, too.
    fn start_with(command: &mut Command, hears_errors: bool) -> Result<Self, String> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let (said, lines) = mpsc::sync_channel(1000);
        let stdin = child.stdin.take();
        if let Some(stdout) = child.stdout.take() {
            let said = said.clone();
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Who is not listened to any more goes on.
                    let _ = said.send(line);
                }
            });
        }
        if let Some(mut stderr) = child.stderr.take() {
            thread::spawn(move || {
                if hears_errors {
                    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                        // Whoever listens has heard enough, if this is full.
                        let _ = said.try_send(line);
                    }
                    return;
                }
                let mut sink = vec![0; 64 * 1024];
                while matches!(stderr.read(&mut sink), Ok(1..)) {}
            });
        }
        Ok(Self { child, stdin, lines })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn send(&mut self, line: &str) -> Result<(), String> {
        let stdin = self.stdin.as_mut().ok_or("its standard input is closed")?;
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).map_err(|error| format!("it does not read: {error}"))
    }

    pub(super) fn line(&mut self, limit: Duration) -> Result<String, String> {
        self.lines.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("no line within {limit:?}"),
            RecvTimeoutError::Disconnected => "it has ended".into(),
        })
    }

    /// Asks, and waits for the reply with the request's id. What comes in between is passed over.
    pub(super) fn ask(&mut self, id: u64, rest: &str) -> Result<Value, String> {
        self.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}"))?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let line = self.line(PATIENCE)?;
            let reply: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line:.200}"))?;
            if reply["id"] == id {
                return Ok(reply);
            }
        }
        Err(format!("no reply to {id} within {PATIENCE:?}"))
    }

    /// How much memory it has had at most, in KiB.
    pub(super) fn peak(&self) -> Result<u64, String> {
        status(self.id(), "VmHWM:")
    }

    /// Fails if it has taken more than `limit` KiB more than at `before`.
    pub(super) fn took(&self, what: &str, before: u64, limit: u64) -> Result<String, String> {
        let more = self.peak()?.saturating_sub(before);
        if more > limit {
            Err(format!("{what}: {more} KiB more, limit {limit}"))
        } else {
            Ok(format!("{what} {more} KiB"))
        }
    }

    /// Waits for its end, and returns its exit code and how much processor time it took.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Option<i32>, String> {
        self.stdin = None;
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Ok(status.code());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(format!("it has not ended within {limit:?}"))
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        signal_to(self.id(), signal);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stdin = None;
        self.signal(rustix::process::Signal::TERM);
        if self.wait(Duration::from_secs(3)).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

pub(super) fn signal_to(id: u32, signal: rustix::process::Signal) {
    if let Some(id) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(id, signal);
    }
}

/// A line of a process's status, in KiB.
fn status(id: u32, name: &str) -> Result<u64, String> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).map_err(|error| format!("it has ended: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("it has ended")?;
    line.split_whitespace().next().and_then(|number| number.parse().ok()).ok_or_else(|| format!("{name}{line}"))
}

/// The ids of all processes whose command line has this text.
pub(super) fn processes_with(text: &str) -> Vec<u32> {
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(text)
    })
    .collect()
}

/// A connection on which an answer that is late is a fault.
pub(super) fn dial(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).map_err(|error| format!("{address}: {error}"))?;
    let set = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    set.map(|()| stream).map_err(|error| error.to_string())
}

/// Sends a request, and returns the status of its answer; 0 if the connection ends without one.
pub(super) fn status_of(address: SocketAddr, request: &[u8]) -> Result<u16, String> {
    let mut stream = dial(address)?;
    // The server may refuse it before it has read all.
    let _ = stream.write_all(request);
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    Ok(line.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or(0))
}

/// A POST of JSON.
pub(super) fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
