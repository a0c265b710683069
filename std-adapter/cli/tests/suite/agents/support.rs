//! Shared parts of the tests of this program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
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
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
    next: u64,
}

impl ServerProcess {
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

    /// The client goes, and the process ends.
    pub(crate) fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn tools(&mut self) -> Vec<String> {
        let reply = self.ask("tools/list", json!({}));
        let tools = reply["result"]["tools"].as_array().unwrap_or_else(|| panic!("{reply}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that says where it listens on standard output. Dropping it kills the process.
pub(crate) struct Listening {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Listening {
    /// `mark` is what the address stands behind.
    pub(crate) fn start(words: &[&str], mark: &str) -> Self {
        Self::start_with(words, &[], mark)
    }

    pub(crate) fn start_with(words: &[&str], env: &[(&str, &str)], mark: &str) -> Self {
        Self::spawn(command(words, env), mark)
    }

    /// Another program.
    pub(crate) fn of(program: &str, words: &[&str], mark: &str) -> Self {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null());
        Self::spawn(command, mark)
    }

    fn spawn(mut command: Command, mark: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
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

/// An MCP client over HTTP.
pub(crate) struct Agent {
    address: String,
    pub(crate) session: Option<String>,
    /// Of the modern era: what it says of itself, and what it can do.
    modern: Option<(String, Value)>,
    next: u64,
}

/// A response: its messages come one by one.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    is_stream: bool,
    body: BufReader<TcpStream>,
}

impl Response {
    /// The next message; none at the end.
    pub(crate) fn message(&mut self) -> Option<Value> {
        let mut line = String::new();
        if !self.is_stream {
            self.body.read_to_string(&mut line).unwrap();
            return (!line.trim().is_empty()).then(|| serde_json::from_str(&line).unwrap());
        }
        loop {
            line.clear();
            if self.body.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The reply, which is the last message.
    pub(crate) fn reply(mut self) -> Value {
        let mut last = Value::Null;
        while let Some(message) = self.message() {
            last = message;
        }
        last
    }
}

impl Agent {
    /// One that has said nothing yet.
    pub(crate) fn new(url: &str) -> Self {
        let address = url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
        Self { address, session: None, modern: None, next: 1 }
    }

    /// One that has begun a session of the legacy era.
    pub(crate) fn begin(url: &str, name: &str, capabilities: Value) -> Self {
        let mut agent = Self::new(url);
        let client = json!({"name": name, "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client});
        let response = agent.ask("initialize", params);
        agent.session.clone_from(&response.session);
        assert!(agent.session.is_some() && response.reply()["result"].is_object());
        agent
    }

    /// One of the modern era.
    pub(crate) fn modern(url: &str, name: &str, capabilities: Value) -> Self {
        Self { modern: Some((name.to_owned(), capabilities)), ..Self::new(url) }
    }

    pub(crate) fn send(&self, method: &str, message: &Value, accept: &str) -> Response {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = if message.is_null() { String::new() } else { message.to_string() };
        let mut head = format!("{method} /mcp HTTP/1.0\r\nHost: {}\r\nAccept: {accept}\r\n", self.address);
        if let Some(session) = &self.session {
            head += &format!("Mcp-Session-Id: {session}\r\n");
        }
        if self.modern.is_some() {
            let (name, params) = (message["method"].as_str().unwrap(), &message["params"]);
            head += &format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {name}\r\n");
            let named = params["name"].as_str().or_else(|| params["uri"].as_str());
            head += &named.map(|named| format!("Mcp-Name: {named}\r\n")).unwrap_or_default();
        }
        head += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        let (mut body, mut line) = (BufReader::new(stream), String::new());
        body.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        let (mut session, mut is_stream) = (None, false);
        loop {
            line.clear();
            body.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            match name {
                "mcp-session-id" => session = Some(value.to_owned()),
                "content-type" => is_stream = value == "text/event-stream",
                _ => {}
            }
        }
        Response { status, session, is_stream, body }
    }

    /// Sends a request.
    pub(crate) fn ask(&mut self, method: &str, mut params: Value) -> Response {
        let id = self.next;
        self.next += 1;
        if let Some((name, capabilities)) = &self.modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": capabilities,
                "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
            });
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send("POST", &message, "application/json, text/event-stream")
    }

    /// Sends what has no reply.
    pub(crate) fn tell(&self, message: Value) -> u16 {
        let mut message = message;
        message["jsonrpc"] = "2.0".into();
        self.send("POST", &message, "application/json, text/event-stream").status
    }

    /// The result of a request.
    pub(crate) fn result(&mut self, method: &str, params: Value) -> Value {
        let reply = self.ask(method, params).reply();
        assert!(reply["result"].is_object(), "{method}: {reply}");
        reply["result"].clone()
    }

    /// The result of a tool.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": arguments}))
    }
}

/// Asserts that clients and the APIs behind them take a list of tools, and returns the names. A name
/// has at most 64 characters, and is there once. A schema is an object with `properties`, and has no
/// keyword that an API refuses.
#[track_caller]
pub(crate) fn assert_taken(tools: &Value) -> Vec<String> {
    fn assert_schema(schema: &Value, is_input: bool, tool: &Value) {
        for name in ["$ref", "$defs", "multipleOf", "patternProperties", "prefixItems"] {
            assert!(schema.get(name).is_none(), "{name}: {tool}");
        }
        if is_input && schema["type"] == "object" && schema.get("additionalProperties").is_none_or(Value::is_boolean) {
            assert!(schema["properties"].is_object(), "{schema}: {tool}");
        }
        let properties = schema["properties"].as_object().into_iter().flatten().map(|(_, schema)| schema);
        let lists = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten();
        properties.chain(lists).chain(schema.get("items")).for_each(|schema| assert_schema(schema, is_input, tool));
    }
    let tools = tools.as_array().unwrap_or_else(|| panic!("{tools}"));
    let mut names: Vec<String> = Vec::new();
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '_';
        assert!((1..=64).contains(&name.len()) && name.chars().all(is_plain), "{name}");
        assert!(!names.iter().any(|known| known == name), "{name} is there twice");
        names.push(name.to_owned());
        let input = &tool["inputSchema"];
        assert_eq!(input["type"], "object", "{tool}");
        for (schema, is_input) in [Some(input), tool.get("outputSchema")].into_iter().flatten().zip([true, false]) {
            assert!(schema["properties"].is_object(), "{tool}");
            assert!(["anyOf", "oneOf", "allOf"].iter().all(|name| schema.get(name).is_none()), "{tool}");
            assert_schema(schema, is_input, tool);
        }
    }
    names
}

/// Whether a result's text has this in it.
pub(crate) fn says(result: &Value, text: &str) -> bool {
    result["content"].as_array().is_some_and(|blocks| {
        blocks.iter().any(|block| block["text"].as_str().is_some_and(|found| found.contains(text)))
    })
}
