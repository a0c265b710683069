//! Shared parts of the tests of this program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");
/// Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The command, with this environment in addition to the tests' own.
pub(crate) fn command(words: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(RIGLINE);
    command.args(words).envs(env.iter().copied()).stdin(Stdio::null());
    command
}

pub(crate) fn run(words: &[&str], env: &[(&str, &str)]) -> Output {
    command(words, env).output().unwrap()
}

/// The standard error of a command that fails, and its exit code.
pub(crate) fn refused(words: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = run(words, env);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// An MCP server on standard input and output. Dropping it kills the process.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    pub(crate) fn start(words: &[&str]) -> Self {
        Self::start_with(words, &[])
    }

    pub(crate) fn start_with(words: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = command(words, env);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout, next: 1 }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.stdin.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The reply to a request. What comes before it goes to `seen`.
    pub(crate) fn ask_seeing(&mut self, method: &str, params: Value, mut seen: impl FnMut(&mut Self, &Value)) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let line = self.line();
            if line["id"] == id && line.get("method").is_none() {
                return line;
            }
            seen(self, &line);
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.ask_seeing(method, params, |_, _| {})
    }

    /// Begins a session of the legacy era with these capabilities.
    pub(crate) fn initialize(&mut self, capabilities: Value) -> Value {
        let client = json!({"name": "tests", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client});
        let reply = self.ask("initialize", params);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        reply["result"].clone()
    }

    /// The result of a tool.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    pub(crate) fn tools(&mut self) -> Vec<String> {
        let reply = self.ask("tools/list", json!({}));
        let tools = reply["result"]["tools"].as_array().unwrap_or_else(|| panic!("{reply}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that says where it listens on standard output. Dropping it kills the process.
pub(crate) struct Listening {
    child: Child,
    pub(crate) address: String,
}

impl Listening {
    /// `mark` is what the address stands behind.
    pub(crate) fn start(words: &[&str], mark: &str) -> Self {
        let mut child = command(words, &[]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once(mark).unwrap_or_else(|| panic!("{line:?}")).1.to_owned();
        Self { child, address }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a result's text has this in it.
pub(crate) fn says(result: &Value, text: &str) -> bool {
    result["content"].as_array().is_some_and(|blocks| {
        blocks.iter().any(|block| block["text"].as_str().is_some_and(|found| found.contains(text)))
    })
}
