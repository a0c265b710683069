//! `rigline web`: who may ask, sessions over WebSockets, and what becomes of them when the browser misbehaves or is gone.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::{Message, WebSocket};

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");
/// More than anything here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server in a separate folder.
pub(super) struct ServerProcess {
    child: Child,
    address: String,
    token: String,
    said: String,
    folder: TempDir,
}

impl ServerProcess {
    fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), arguments)
    }

    fn start_in(folder: TempDir, arguments: &[&str]) -> Self {
        let mut command = Command::new(RIGLINE);
        if folder.path().join("root").is_dir() {
            command.env("RIGLINE_ROOT", folder.path().join("root"));
        }
        command.arg("web").args(arguments);
        Self::run(command, folder)
    }

    /// By this command, in this folder.
    pub(super) fn run(mut command: Command, folder: TempDir) -> Self {
        let mut child = command
            .current_dir(folder.path())
            .env("XDG_STATE_HOME", folder.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let url = said.trim_end().rsplit(' ').next().unwrap();
        let (address, token) = url.strip_prefix("http://").unwrap().split_once("/#token=").unwrap();
        let (address, token) = (address.to_owned(), token.to_owned());
        Self { child, address, token, said, folder }
    }

    /// The answer to a request: its status, its head in lower case, and its body.
    fn ask(&self, request: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = if headers.iter().any(|(name, _)| *name == "Host") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(stream, "{request} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    /// The answer to a POST at a path that needs the token.
    fn ask_with_body(&self, path: &str, body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (host, token, length) = (&self.address, &self.token, body.len());
        let head = format!(
            "Host: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {length}"
        );
        write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    /// The JSON at a path that needs the token.
    pub(super) fn api(&self, path: &str) -> Value {
        let mark = if path.contains('?') { '&' } else { '?' };
        let (status, _, body) = self.ask(&format!("GET {path}{mark}token={}", self.token), &[]);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(super) fn page(&self) -> Page {
        self.page_at(&format!("/ws?token={}", self.token))
    }

    fn page_at(&self, path: &str) -> Page {
        Page::open(&self.address, path, &[("Origin", &format!("http://{}", self.address))]).unwrap()
    }

    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A browser's page, as far as the server sees it.
pub(super) struct Page {
    socket: WebSocket<TcpStream>,
    next: u32,
    logs: Vec<Value>,
}

impl Page {
    /// `Err` has the status of a handshake that was refused.
    fn open(address: &str, path: &str, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket, next: 0, logs: Vec::new() }),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response))) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) fn send(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).unwrap();
    }

    /// The next line.
    fn line(&mut self) -> Value {
        let since = Instant::now();
        loop {
            // Pings keep the socket's own time limit from passing.
            assert!(since.elapsed() < PATIENCE, "no line");
            match self.socket.read().unwrap() {
                Message::Text(text) => {
                    assert!(!text.contains('\n'), "{text}");
                    return serde_json::from_str(&text).unwrap();
                }
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next line that is not a log.
    fn reply(&mut self) -> Value {
        loop {
            let line = self.line();
            if line["method"] != "log" {
                return line;
            }
            self.logs.push(line);
        }
    }

    fn begin(&mut self, method: &str, params: Value) -> u32 {
        self.next += 1;
        self.send(json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }).to_string());
        self.next
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let reply = self.reply();
        assert_eq!(reply["id"], id, "{reply}");
        reply
    }

    fn initialize(&mut self) -> Value {
        self.ask("initialize", json!({ "protocolVersion": "0.0.1" }))
    }

    /// As `initialize`, for a page that is told of the other clients.
    fn initialize_among_clients(&mut self) {
        let id = self.begin("initialize", json!({ "protocolVersion": "0.0.1" }));
        while self.line()["id"] != id {}
    }

    fn execute(&mut self, operation: &str, args: Value) -> Value {
        self.ask("execute", json!({ "operation": operation, "args": args, "context": { "workdir": "", "phase": "" } }))
    }

    fn volts(&mut self) -> f64 {
        let reply = self.execute("measure", json!({ "channel": "3V3" }));
        reply["result"]["outputs"]["volts"].as_str().unwrap_or_else(|| panic!("{reply}")).parse().unwrap()
    }

    fn power_on(&mut self) {
        let reply = self.execute("power", json!({ "rail": "3V3", "on": true }));
        assert_eq!(reply["result"]["success"], true, "{reply}");
        assert!(self.volts() > 3.0);
    }

    /// A call that takes a minute if nobody ends it.
    fn begin_long_call(&mut self) {
        self.begin_wait(60_000, "90s");
    }

    /// A call that waits for what never comes.
    fn begin_wait(&mut self, ms: u64, timeout: &str) {
        let args = json!({ "channel": "3V3", "min": 9, "max": 10, "within_ms": ms });
        let context = json!({ "workdir": "", "phase": "", "timeout": timeout });
        self.begin("execute", json!({ "operation": "wait-for", "args": args, "context": context }));
    }

    /// The code and the reason with which the server closes, and the lines before that.
    fn closed(mut self) -> (u16, String, Vec<Value>) {
        let mut lines = Vec::new();
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < PATIENCE, "the server does not close the connection: {lines:?}");
            match self.socket.read() {
                Ok(Message::Text(text)) => lines.push(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(Some(frame))) => return (frame.code.into(), frame.reason.to_string(), lines),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?} after {lines:?}"),
            }
        }
    }

    fn vanish(self) {
        self.socket.get_ref().shutdown(Shutdown::Both).unwrap();
    }
}

/// Waits until it is so.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// An extension in the language of the shell: what it does at each `execute`.
fn shell_extension(folder: &Path, execute: &str) -> String {
    let script = format!(
        r#"
id() {{ printf '%s' "$1" | sed 's/.*"id":\([0-9]*\).*/\1/'; }}
while read -r line; do
  id=$(id "$line")
  case "$line" in
    *'"initialize"'*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"name\":\"shell\",\"version\":\"1.0.0\",\"protocolVersion\":\"0.0.1\",\"operations\":{{\"go\":{{\"params\":{{\"type\":\"object\"}}}}}}}}}}" ;;
    *'"shutdown"'*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{}}}}"; exit 0 ;;
    *) {execute} ;;
  esac
done
"#
    );
    fs::write(folder.join("extension.sh"), script).unwrap();
    format!("exec:sh {}", folder.join("extension.sh").display())
}

#[test]
fn the_page_is_served_with_a_strict_policy_and_needs_no_token() {
    let server = ServerProcess::start(&["sim"]);
    assert!(server.said.starts_with("serving sim at http://127.0.0.1:"), "{}", server.said);
    assert_eq!(server.token.len(), 32);
    for (path, kind) in
        [("/rigline.js", "text/javascript"), ("/rigline_web.wasm", "application/wasm"), ("/", "text/html")]
    {
        let (status, head, _) = server.ask(&format!("GET {path}"), &[]);
        assert_eq!(status, 200, "{path}");
        assert!(head.contains(&format!("content-type: {kind}")), "{head}");
        assert!(
            head.contains("content-security-policy: default-src 'none'; script-src 'self' 'wasm-unsafe-eval';"),
            "{head}"
        );
        for part in [
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "serial=(self)",
        ] {
            assert!(head.contains(part), "{part}: {head}");
        }
    }
    for path in ["/nothing", "/../Cargo.toml", "/%2e%2e/Cargo.toml", "//etc/passwd", "/ws/x", "/api"] {
        assert_eq!(server.ask(&format!("GET {path}"), &[]).0, 404, "{path}");
    }
    let (status, head, _) = server.ask("POST /", &[("Content-Length", "0")]);
    assert!(status == 405 && head.contains("allow: get, head"), "{head}");
    // Without a handshake there is no WebSocket.
    assert_eq!(server.ask(&format!("GET /ws?token={}", server.token), &[]).0, 400);
}

#[test]
fn nothing_is_told_and_nothing_runs_without_the_token() {
    let server = ServerProcess::start(&["sim", "--evals", "."]);
    let right = server.token.clone();
    let longer = format!("{right}0");
    for path in ["/api/info", "/api/ports", "/api/runs"] {
        for token in ["", "x", &right[1..], &longer, &right.to_uppercase()] {
            let (status, head, body) = server.ask(&format!("GET {path}?token={token}"), &[]);
            assert!(status == 401 && head.contains("application/json"), "{path} {token}: {body}");
            let error: Value = serde_json::from_str(&body).unwrap();
            assert!(error["error"].as_str().unwrap().contains("token"), "{body}");
        }
        assert_eq!(server.ask(&format!("GET {path}"), &[]).0, 401);
        assert_eq!(server.ask(&format!("GET {path}"), &[("Authorization", &format!("Bearer {right}"))]).0, 200);
        // A wrong one in the URL is not made right by another.
        let both = format!("GET {path}?token=x");
        assert_eq!(server.ask(&both, &[("Authorization", &format!("Bearer {right}"))]).0, 401);
        assert_eq!(server.ask(&format!("GET {path}?token={right}&token=x"), &[]).0, 400);
    }
    for path in ["/ws", "/ws?token=", "/ws?token=x", "/evals", "/evals?token=x"] {
        let mut page = server.page_at(path);
        // Whatever is sent is dropped.
        let _ = page.socket.send(Message::text(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
        ));
        let (code, reason, lines) = page.closed();
        assert_eq!((code, lines.len()), (4401, 0), "{path}");
        assert!(reason.contains("token"), "{reason}");
    }
    assert_eq!(
        server.api("/api/info"),
        json!({ "version": env!("CARGO_PKG_VERSION"), "target": "sim", "evals": true, "lab": false })
    );
}

#[test]
fn pages_of_other_origins_and_foreign_names_are_refused() {
    let server = ServerProcess::start(&[
        "sim",
        "--allow-host",
        "rig.example.org",
        "--allow-origin",
        "https://bench.example.org",
    ]);
    let path = format!("/ws?token={}", server.token);
    let own = format!("http://{}", server.address);
    for (status, headers) in [
        (200, &[("Origin", own.as_str())][..]),
        (200, &[]),
        (200, &[("Origin", "https://bench.example.org")]),
        (200, &[("Host", "rig.example.org"), ("Origin", "http://rig.example.org")]),
        (403, &[("Origin", "http://evil.example")]),
        (403, &[("Origin", "null")]),
        (403, &[("Origin", "http://127.0.0.1:1")]),
        (403, &[("Host", "evil.example"), ("Origin", "http://evil.example")]),
        (403, &[("Host", "127.0.0.1.evil.example")]),
    ] {
        let opened = Page::open(&server.address, &path, headers);
        assert_eq!(opened.map_or_else(|status| status, |_| 200), status, "{headers:?}");
    }
    for (status, headers) in [
        (403, &[("Origin", "http://evil.example")][..]),
        (403, &[("Host", "evil.example")]),
        (403, &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "script")]),
        (403, &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")]),
        // A link to the page may be followed.
        (200, &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]),
    ] {
        let (found, head, _) = server.ask("GET /rigline.js", headers);
        assert_eq!(found, status, "{headers:?}");
        // Refusals have the policy too.
        assert!(head.contains("content-security-policy"), "{head}");
    }
}

#[test]
fn a_session_over_a_websocket() {
    let server = ServerProcess::start(&["sim"]);
    let mut page = server.page();
    let manifest = page.initialize();
    assert_eq!(manifest["result"]["name"], "rig");
    page.power_on();
    assert_eq!(page.execute("fly", json!({}))["error"]["code"], -32601);
    assert_eq!(page.execute("measure", json!({ "channel": "X" }))["error"]["code"], -32602);
    assert_eq!(page.ask("shutdown", json!({}))["result"], json!({}));
    assert_eq!(page.execute("measure", json!({ "channel": "3V3" }))["result"]["success"], true);
}

#[test]
fn frames_of_every_kind() {
    let server = ServerProcess::start(&["sim"]);
    let mut page = server.page();
    page.initialize();
    // Several pieces are one line.
    let request = r#"{"jsonrpc":"2.0","id":"pieces","method":"shutdown"}"#;
    let (first, second) = request.split_at(20);
    page.socket.send(Message::Frame(Frame::message(first.to_owned(), OpCode::Data(Data::Text), false))).unwrap();
    page.socket.send(Message::Ping("between".into())).unwrap();
    page.socket.send(Message::Frame(Frame::message(second.to_owned(), OpCode::Data(Data::Continue), true))).unwrap();
    loop {
        match page.socket.read().unwrap() {
            Message::Pong(what) => assert_eq!(&*what, b"between"),
            Message::Text(text) => break assert!(text.contains(r#""id":"pieces","result":{}"#), "{text}"),
            _ => {}
        }
    }
    // A frame is one line, whatever stands in it.
    page.send("{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 7,\n  \"method\": \"shutdown\"\n}\n");
    assert_eq!(page.reply(), json!({ "jsonrpc": "2.0", "id": 7, "result": {} }));
    page.send("{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"shut\ndown\"}");
    assert_eq!(page.reply()["error"]["code"], -32700);
    page.send("{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"shutdown\"}\n{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"shutdown\"}");
    assert_eq!(page.reply()["error"]["code"], -32700);
    page.send("");
    page.send("GET / HTTP/1.1 is not a request here");
    let (code, reason, lines) = page.closed();
    assert!(lines.iter().any(|line| line["error"]["code"] == -32600), "{lines:?}");
    assert!(code == 1008 && reason.contains("HTTP"), "{code} {reason}");

    // A line over the limit of lines costs one error.
    let mut page = server.page();
    page.send("x".repeat(10 << 20));
    let reply = page.reply();
    assert!(reply["error"]["message"].as_str().unwrap().contains("10485760"), "{reply}");
    page.initialize();

    // And one over the limit of frames, the connection.
    let _ = page.socket.send(Message::text("x".repeat(17 << 20)));
    let (code, reason, _) = page.closed();
    assert!(code == 1009 && reason.contains("16777216"), "{code} {reason}");

    // Text that is not UTF-8, whole and as the end of a message; and a piece of nothing.
    for (frame, wanted) in [
        (Frame::message(vec![0x22, 0xFF, 0x22], OpCode::Data(Data::Text), true), 1007),
        (Frame::message("x", OpCode::Data(Data::Continue), true), 1002),
    ] {
        let mut page = server.page();
        page.socket.send(Message::Frame(frame)).unwrap();
        let (code, reason, _) = page.closed();
        assert!(code == wanted && !reason.is_empty(), "{code} {reason}");
    }

    let mut page = server.page();
    page.socket.send(Message::binary(request.as_bytes().to_vec())).unwrap();
    let (code, reason, _) = page.closed();
    assert!(code == 1003 && reason.contains("text frame"), "{code} {reason}");
}

#[test]
fn a_browser_that_is_gone_in_a_call_leaves_the_rails_off() {
    let server = ServerProcess::start(&["sim"]);
    // As a tab that is closed, and as a browser that has crashed.
    for is_clean in [true, false] {
        let mut page = server.page();
        page.initialize();
        page.power_on();
        page.begin_long_call();
        thread::sleep(Duration::from_millis(200));
        let since = Instant::now();
        if is_clean {
            page.socket.close(None).unwrap();
            let _ = page.socket.flush();
            drop(page);
        } else {
            page.vanish();
        }
        let mut second = server.page();
        second.initialize();
        assert!(second.volts() < 0.5);
        assert!(since.elapsed() < Duration::from_secs(30), "the call was not cancelled: {:?}", since.elapsed());
        second.ask("shutdown", json!({}));
    }
    // One that has asked for a lot more than is examined at a time.
    let mut page = server.page();
    page.initialize();
    page.power_on();
    page.begin_long_call();
    for _ in 0..2000 {
        page.begin("execute", json!({ "operation": "measure", "args": { "channel": "3V3" }, "context": {} }));
    }
    page.vanish();
    let since = Instant::now();
    let mut second = server.page();
    second.initialize();
    assert!(second.volts() < 0.5);
    assert!(since.elapsed() < Duration::from_secs(8), "the call was not cancelled: {:?}", since.elapsed());
    second.ask("shutdown", json!({}));
    // One that ended its session leaves the hardware as it is, while somebody else is there.
    let mut first = server.page();
    let mut second = server.page();
    first.initialize();
    second.initialize();
    first.power_on();
    first.ask("shutdown", json!({}));
    first.vanish();
    thread::sleep(Duration::from_millis(300));
    assert!(second.volts() > 3.0);
}

#[test]
fn two_pages_at_once() {
    let server = ServerProcess::start(&["sim"]);
    let (mut first, mut second) = (server.page(), server.page());
    assert_eq!(first.initialize()["result"], second.initialize()["result"]);
    first.power_on();
    for _ in 0..20 {
        let id = first.begin("execute", json!({ "operation": "measure", "args": { "channel": "3V3" }, "context": {} }));
        assert!(second.volts() > 3.0);
        assert_eq!(first.reply()["id"], id);
    }
    // What one of them breaks is its own. While its call runs, the others learn what there is. A call that only reads
    // goes on where its end would switch off what another page has on.
    second.begin_wait(5000, "90s");
    let started = Instant::now();
    assert_eq!(server.page().initialize()["result"], first.initialize()["result"]);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    second.vanish();
    assert!(first.volts() > 3.0);
    let mut late = server.page();
    late.initialize();
    late.begin_wait(5000, "300ms");
    let reply = late.reply();
    assert_eq!(reply["error"]["code"], -32001, "{reply}");
    assert!(first.volts() > 3.0);
    // A page that wants other settings has to wait its turn.
    let mut third = server.page();
    let refused = third.ask("initialize", json!({ "protocolVersion": "0.0.1", "config": { "other": true } }));
    assert!(refused["error"]["message"].as_str().unwrap().contains("another client"), "{refused}");
}

#[test]
fn only_so_many_clients() {
    let server = ServerProcess::start(&["sim"]);
    let mut pages: Vec<Page> = (0..32).map(|_| server.page()).collect();
    for page in &mut pages {
        page.initialize();
    }
    let (code, reason, _) = server.page().closed();
    assert!(code == 4429 && reason.contains("32"), "{code} {reason}");
    // The API answers all the same, and a place that is left can be taken.
    assert_eq!(server.api("/api/info")["target"], "sim");
    drop(pages.pop());
    eventually("a place is free again", || {
        let mut page = server.page();
        page.begin("initialize", json!({ "protocolVersion": "0.0.1" }));
        matches!(page.socket.read(), Ok(Message::Text(_)))
    });
}

#[test]
fn a_flood_of_logs_is_dropped_and_counted_and_the_result_arrives() {
    const LOGS: u64 = 40_000;
    let folder = tempfile::tempdir().unwrap();
    let log = json!({ "jsonrpc": "2.0", "method": "log", "params": { "level": "info", "message": "0".repeat(1000) } });
    // Quick also on a busy machine, so that the flood is over before the client reads.
    let flood = format!(
        r#"yes '{log}' | head -n {LOGS}; echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"success\":true,\"message\":\"flooded\"}}}}""#
    );
    let target = shell_extension(folder.path(), &flood);
    let server = ServerProcess::start_in(folder, &[&target]);
    let mut page = server.page();
    page.initialize();
    let before = server.memory();
    page.begin(
        "execute",
        json!({ "operation": "go", "args": {}, "context": { "workdir": "", "phase": "", "timeout": "120s" } }),
    );
    // It reads nothing for a while, but not for as long as a client that is given up.
    let mut most = before;
    for _ in 0..60 {
        thread::sleep(Duration::from_millis(100));
        most = most.max(server.memory());
    }
    assert!(most < before + (48 << 20), "{} MiB more", (most - before) >> 20);
    let reply = page.reply();
    assert_eq!(reply["result"]["message"], "flooded");
    let dropped: u64 = page.logs.iter().filter_map(|log| log["params"]["data"]["dropped"].as_u64()).sum();
    let came = page.logs.iter().filter(|log| log["params"]["data"]["dropped"].is_null()).count() as u64;
    assert!(dropped > 0 && came > 0, "{dropped} dropped, {came} came");
    assert_eq!(dropped + came, LOGS);
}

/// A page that reads 200,000 log lines stood still while each came in a frame of its own (woodpecker-ci/woodpecker#768).
#[test]
fn lines_that_wait_share_a_frame_where_the_client_says_that_it_takes_several() {
    let folder = tempfile::tempdir().unwrap();
    let log = r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"x"}}"#;
    let reply = r#"{"jsonrpc":"2.0","id":%s,"result":{"success":true,"outputs":{}}}\n"#;
    let target = shell_extension(folder.path(), &format!("yes '{log}' | head -n 300; printf '{reply}' $id"));
    let server = ServerProcess::start(&[&target]);
    let frames = |more: &str| {
        let mut page = server.page_at(&format!("/ws?token={}{more}", server.token));
        page.initialize();
        page.begin("execute", json!({ "operation": "go", "args": {}, "context": {} }));
        let mut frames = Vec::new();
        loop {
            let Message::Text(text) = page.socket.read().unwrap() else { continue };
            let is_last = text.lines().any(|line| serde_json::from_str::<Value>(line).unwrap().get("result").is_some());
            frames.push(text.lines().count());
            if is_last {
                return frames;
            }
        }
    };
    let single = frames("");
    assert!(single.iter().all(|lines| *lines == 1), "{single:?}");
    let joined = frames("&lines=many");
    assert!(joined.len() < single.len(), "{joined:?}");
    assert_eq!(joined.iter().sum::<usize>(), single.len(), "{joined:?}");
}

#[test]
fn a_page_that_never_reads_is_given_up_and_the_rails_are_off() {
    let server = ServerProcess::start(&["sim"]);
    let mut page = server.page();
    page.initialize();
    page.power_on();
    let socket = page.socket.get_ref().try_clone().unwrap();
    // Replies fill what is between until nothing more can be sent; then the server closes the connection.
    socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let request = json!({ "jsonrpc": "2.0", "id": "x".repeat(390), "method": "nothing" }).to_string();
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < PATIENCE, "the server does not give the page up");
        match page.socket.send(Message::text(request.clone())) {
            Ok(()) => {}
            Err(tungstenite::Error::Io(error))
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let mut second = server.page();
    second.initialize();
    eventually("the rails are off", || second.volts() < 0.5);
}

#[test]
fn targets_that_are_not_there_or_may_not_be_chosen() {
    let server = ServerProcess::start(&["serial:/dev/rigline-is-not-here"]);
    let mut page = server.page();
    for _ in 0..2 {
        let refused = page.initialize();
        assert_eq!(refused["error"]["code"], -32000, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("/dev/rigline-is-not-here"), "{refused}");
    }
    let (code, reason, _) = server.page_at(&format!("/ws?token={}&target=sim", server.token)).closed();
    assert!(code == 4404 && reason.contains("only"), "{reason}");
    drop(server);

    let server = ServerProcess::start(&[]);
    assert!(server.said.starts_with("serving what is plugged in at "), "{}", server.said);
    assert_eq!(server.api("/api/info")["target"], Value::Null);
    assert!(server.api("/api/ports").is_array());
    for target in [
        "",
        "&target=",
        "&target=exec:touch%20owned",
        "&target=./owned",
        "&target=tcp:127.0.0.1:1",
        "&target=http://127.0.0.1:1/",
        "&target=serial:/dev/null",
        "&target=serial:/etc/passwd",
        "&target=serial:auto/none",
        "&target=nonsense:x",
        "&target=touch",
    ] {
        let (code, reason, _) = server.page_at(&format!("/ws?token={}{target}", server.token)).closed();
        assert_eq!(code, 4404, "{target}: {reason}");
        assert!(!reason.is_empty() && reason.len() <= 123, "{reason}");
    }
    let mut page = server.page_at(&format!("/ws?token={}&target=sim", server.token));
    assert_eq!(page.initialize()["result"]["name"], "rig");
    let (code, reason, _) = server.page_at(&format!("/evals?token={}", server.token)).closed();
    assert!(code == 4404 && reason.contains("--evals"), "{reason}");
    let (status, _, body) = server.ask(&format!("GET /api/runs?token={}", server.token), &[]);
    assert!(status == 404 && body.contains("--evals"), "{body}");
}

#[test]
fn a_device_that_is_gone_closes_the_connection_behind_its_last_replies() {
    let folder = tempfile::tempdir().unwrap();
    let target = shell_extension(folder.path(), "exit 3");
    let server = ServerProcess::start_in(folder, &[&target]);
    for _ in 0..2 {
        let mut page = server.page();
        page.initialize();
        let id = page.begin("execute", json!({ "operation": "go", "args": {}, "context": {} }));
        let (code, reason, lines) = page.closed();
        assert!(code == 4410 && reason.contains("exit status 3"), "{code} {reason}");
        let reply = lines.iter().find(|line| line["id"] == id).unwrap_or_else(|| panic!("{lines:?}"));
        assert_eq!(reply["error"]["code"], -32000, "{reply}");
    }
    // A page that has asked for nothing yet is not closed, however often that happens, and may begin a session later.
    let mut early = server.page();
    for _ in 0..2 {
        let mut page = server.page();
        page.initialize();
        page.begin("execute", json!({ "operation": "go", "args": {}, "context": {} }));
        assert_eq!(page.closed().0, 4410);
    }
    assert_eq!(early.initialize()["result"]["name"], "shell");
    drop(server);
    // A session that is idle is told as well.
    let folder = tempfile::tempdir().unwrap();
    let target = shell_extension(
        folder.path(),
        "(sleep 1; kill $$) & echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{\\\"success\\\":true}}\"",
    );
    let server = ServerProcess::start_in(folder, &[&target]);
    let mut page = server.page();
    page.initialize();
    assert_eq!(page.execute("go", json!({}))["result"]["success"], true);
    let (code, reason, _) = page.closed();
    assert!(code == 4410 && reason.contains("SIGTERM"), "{code} {reason}");
}

#[test]
fn evals_are_listed_and_run_and_their_values_kept() {
    let folder = tempfile::tempdir().unwrap();
    let evals = folder.path().join("evals/rails");
    fs::create_dir_all(evals.join("tasks")).unwrap();
    fs::write(
        evals.join("eval.yaml"),
        "name: rails\nskill: rig\nversion: \"1.0\"\nconfig:\n  executor: rigline\n  trials_per_task: 2\n  target: sim\ntasks:\n  - tasks/*.yaml\n",
    )
    .unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware-example/evals/rails");
    fs::copy(example.join("eval.yaml"), evals.join("eval.yaml")).unwrap();
    for task in fs::read_dir(example.join("tasks")).unwrap().flatten() {
        fs::copy(task.path(), evals.join("tasks").join(task.file_name())).unwrap();
    }
    let server = ServerProcess::start_in(folder, &["sim", "--evals", "evals", "--runs", "runs"]);
    let mut page = server.page_at(&format!("/evals?token={}", server.token));
    let list = page.ask("eval.list", json!({ "directory": "." }));
    let path = list["result"]["evals"][0]["path"].as_str().unwrap_or_else(|| panic!("{list}")).to_owned();
    let run = page.ask("eval.run", json!({ "path": path }));
    let id = run["result"]["run_id"]
        .as_str()
        .or_else(|| run["result"]["runId"].as_str())
        .unwrap_or_else(|| panic!("{run}"))
        .to_owned();
    loop {
        let line = page.line();
        if line["method"] == "eval.complete" {
            break assert!(line["params"]["error"].is_null(), "{line}");
        }
    }
    // Paths that lead out are refused.
    assert!(page.ask("eval.get", json!({ "path": "/etc/passwd" }))["error"]["code"].is_i64());
    let runs = server.api("/api/runs?limit=1");
    let kept = &runs["runs"][0];
    assert_eq!(kept["runId"], id.as_str(), "{runs}");
    let tasks = kept["tasks"].as_array().unwrap();
    assert!(!tasks.is_empty() && tasks.iter().all(|task| task["status"] == "passed"), "{runs}");
    let has_volts = |task: &Value| {
        task["values"]
            .as_object()
            .unwrap()
            .iter()
            .any(|(name, value)| name.split('.').nth(1) == Some("volts") && value.is_f64())
    };
    assert!(tasks.iter().any(has_volts), "{runs}");
    assert!(server.folder.path().join("runs").is_dir());
}

/// The simulated rig, on the other side of a pty.
struct Board {
    path: String,
    rig: Child,
    port: std::os::fd::OwnedFd,
}

impl Board {
    fn new() -> Self {
        let pty = rustix_openpty::openpty(None, None).unwrap();
        let mut settings = rustix::termios::tcgetattr(&pty.user).unwrap();
        settings.make_raw();
        rustix::termios::tcsetattr(&pty.user, rustix::termios::OptionalActions::Now, &settings).unwrap();
        let path = rustix::pty::ptsname(&pty.controller, Vec::new()).unwrap().into_string().unwrap();
        let rig = Command::new(RIGLINE)
            .arg("rig")
            .stdin(pty.controller.try_clone().unwrap())
            .stdout(pty.controller)
            .spawn()
            .unwrap();
        Self { path, rig, port: pty.user }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.rig.kill();
        let _ = self.rig.wait();
    }
}

#[test]
fn ports_that_are_plugged_in_can_be_chosen() {
    let board = Board::new();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let device = root.join("sys/devices/1-2");
    fs::create_dir_all(device.join("1-2:1.0")).unwrap();
    for (name, text) in [("idVendor", "2e8a"), ("idProduct", "000a"), ("product", "rigline rig"), ("serial", "E66")] {
        fs::write(device.join(name), text).unwrap();
    }
    fs::create_dir_all(root.join("sys/class/tty/ttyACM0")).unwrap();
    symlink(device.join("1-2:1.0"), root.join("sys/class/tty/ttyACM0/device")).unwrap();
    fs::create_dir_all(root.join("dev")).unwrap();
    symlink(&board.path, root.join("dev/ttyACM0")).unwrap();
    let server = ServerProcess::start_in(folder, &[]);
    let ports = server.api("/api/ports");
    assert_eq!(ports.as_array().unwrap().len(), 1, "{ports}");
    assert_eq!((&ports[0]["rigline"], &ports[0]["usb"]["serial_number"]), (&json!(true), &json!("E66")), "{ports}");
    let choose = |target: &str| server.page_at(&format!("/ws?token={}&target={target}", server.token));

    // Somebody else has it: that is said, and the page may try again.
    rustix::termios::ioctl_tiocexcl(&board.port).unwrap();
    let mut page = choose("serial:auto");
    let refused = page.initialize();
    let holder = format!("in use by process {}", std::process::id());
    assert!(refused["error"]["message"].as_str().unwrap().contains(&holder), "{refused}");
    rustix::termios::ioctl_tiocnxcl(&board.port).unwrap();
    assert_eq!(page.initialize()["result"]["name"], "rig");
    page.power_on();
    // By whatever name it is called, it is the same board.
    for name in
        ["serial:ttyACM0", "serial:/dev/ttyACM0", "serial:auto/E66", "serial:usb/1-2", "serial%3A%2Fdev%2FttyACM0"]
    {
        let mut other = choose(name);
        other.initialize();
        assert!(other.volts() > 3.0, "{name}");
        other.ask("shutdown", json!({}));
    }
    eventually("one session is left", || server.api("/api/ports")[0]["sessions"] == 1);
    // The last page that leaves gives the port back.
    page.ask("shutdown", json!({}));
    page.vanish();
    eventually("the port is free", || {
        let open = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().flatten();
        !open.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|path| path == Path::new(&board.path)))
    });
    assert_eq!(server.api("/api/ports")[0]["sessions"], 0);
    // The simulated board ends with its session. Another one is plugged in in its place, and unplugged in a session.
    drop(board);
    let board = Board::new();
    fs::remove_file(root.join("dev/ttyACM0")).unwrap();
    symlink(&board.path, root.join("dev/ttyACM0")).unwrap();
    let mut page = choose("serial:auto");
    assert_eq!(page.initialize()["result"]["name"], "rig");
    drop(board);
    let (code, reason, _) = page.closed();
    assert!(code == 4410 && !reason.is_empty(), "{code} {reason}");
}

#[test]
fn evals_and_pages_share_a_board() {
    let board = Board::new();
    let folder = tempfile::tempdir().unwrap();
    let tasks = folder.path().join("evals/tasks");
    fs::create_dir_all(&tasks).unwrap();
    fs::write(
        folder.path().join("evals/eval.yaml"),
        "name: shared\nconfig: { target: sim, trials_per_task: 1, timeout_seconds: 30 }\nmetrics: [{ name: m, weight: 1.0, threshold: 1.0 }]\ntasks: [\"tasks/*.yaml\"]\n",
    )
    .unwrap();
    // The rail is on by a page's call: only on the same board.
    fs::write(
        tasks.join("task.yaml"),
        "id: same\nname: The same board\nsteps:\n  - { id: read, phase: verify, operation: measure, args: { channel: \"3V3\" } }\ngraders:\n  - { type: output_range, step: read, output: volts, min: 3.135, max: 3.465 }\n",
    )
    .unwrap();
    let target = format!("serial:{}", board.path);
    let server = ServerProcess::start_in(folder, &[&target, "--evals", "evals", "--runs", "runs"]);
    let mut page = server.page();
    page.initialize();
    page.power_on();
    let mut evals = server.page_at(&format!("/evals?token={}", server.token));
    let run = evals.ask("eval.run", json!({ "path": "eval.yaml" }));
    assert!(run["error"].is_null(), "{run}");
    loop {
        let line = evals.line();
        if line["method"] == "eval.complete" {
            break;
        }
    }
    assert_eq!(server.api("/api/runs")["runs"][0]["tasks"][0]["status"], "passed", "{}", server.api("/api/runs"));
    // The run's session has ended, and the page's goes on.
    assert!(page.volts() > 3.0);
    // A run that is cancelled in a call leaves the page its session. (A pty has no DTR, which tells a board: this one finishes its call.)
    let long = "id: long\nname: Long\nsteps:\n  - { id: wait, phase: verify, operation: wait-for, args: { channel: \"3V3\", min: 9, max: 10, within_ms: 8000 }, timeout: 90s }\ngraders:\n  - { type: output_range, step: wait, output: volts, min: 0, max: 1 }\n";
    fs::write(server.folder.path().join("evals/tasks/task.yaml"), long).unwrap();
    let run = evals.ask("eval.run", json!({ "path": "eval.yaml" }));
    let id = run["result"]["run_id"]
        .as_str()
        .or_else(|| run["result"]["runId"].as_str())
        .unwrap_or_else(|| panic!("{run}"))
        .to_owned();
    thread::sleep(Duration::from_millis(1500));
    let since = Instant::now();
    evals.begin("run.cancel", json!({ "run_id": id, "runId": id }));
    loop {
        if evals.line()["method"] == "eval.complete" {
            break;
        }
    }
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    eventually("the board answers the page", || page.execute("identify", json!({}))["result"]["success"] == true);
}

#[test]
fn a_server_that_stops_says_so() {
    let mut server = ServerProcess::start(&["sim"]);
    let mut page = server.page();
    page.initialize();
    page.power_on();
    page.begin_long_call();
    thread::sleep(Duration::from_millis(200));
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let (code, reason, _) = page.closed();
    assert!(code == 1001 && reason.contains("stops"), "{code} {reason}");
    eventually("it ends", || server.child.try_wait().unwrap().is_some());
}

#[test]
fn settings_of_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let say = "echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{\\\"success\\\":true}}\"";
    let target = shell_extension(folder.path(), say);
    let script = folder.path().join("extension.sh");
    let text = fs::read_to_string(&script)
        .unwrap()
        .replace("*'\"initialize\"'*)", "*'\"initialize\"'*) echo \"$line\" > seen;");
    fs::write(&script, text).unwrap();
    let server = ServerProcess::start_in(folder, &[&target, "--config", r#"{"volts":1.50}"#]);
    server.page().initialize();
    let seen = fs::read_to_string(server.folder.path().join("seen")).unwrap();
    assert!(seen.contains(r#""config":{"volts":1.50}"#), "{seen}");
}

#[test]
fn addresses_and_tokens_of_the_users_choice() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), "s3cret\n").unwrap();
    let server = ServerProcess::start_in(folder, &["sim", "--token-file", "token", "--listen", "localhost:0"]);
    assert_eq!(server.token, "s3cret");
    server.api("/api/info");
    for (arguments, what) in [
        (&["sim", "--listen", "nonsense"][..], "nonsense"),
        (&["sim", "--evals", "missing"], "missing"),
        (&["sim", "--runs", "x"], "--evals"),
        (&["sim", "--config", "[1]"], "object"),
        (&["http://127.0.0.1:1/x"], "http"),
        (&["sim", "--token-file", "missing"], "missing"),
    ] {
        let output = Command::new(RIGLINE).arg("web").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(what), "{output:?}");
    }
    let taken = Command::new(RIGLINE).args(["web", "sim", "--listen", &server.address]).output().unwrap();
    assert_eq!(taken.status.code(), Some(3));
}

#[test]
fn pages_of_an_allowed_origin_read_the_api_and_others_do_not() {
    let server = ServerProcess::start(&["sim", "--allow-origin", "https://bench.example.org"]);
    let bench = ("Origin", "https://bench.example.org");
    let ask = format!("GET /api/info?token={}", server.token);
    let (status, head, _) = server.ask(&ask, &[bench, ("Sec-Fetch-Site", "cross-site")]);
    assert_eq!(status, 200);
    assert!(head.contains("access-control-allow-origin: https://bench.example.org"), "{head}");
    assert!(head.contains("vary: origin"), "{head}");
    // A refusal can be read as well.
    let (status, head, _) = server.ask("GET /api/info", &[bench]);
    assert!(status == 401 && head.contains("access-control-allow-origin: https://bench.example.org"), "{head}");
    assert!(head.contains("www-authenticate: bearer"), "{head}");
    // A browser asks before it sends the token in a header.
    let asks = [("Access-Control-Request-Method", "GET"), ("Access-Control-Request-Headers", "authorization")];
    let (status, head, body) = server.ask("OPTIONS /api/info", &[bench, asks[0], asks[1]]);
    assert!(status == 204 && body.is_empty(), "{status} {body}");
    assert!(head.contains("access-control-allow-headers: authorization"), "{head}");
    assert!(head.contains("access-control-allow-methods: get"), "{head}");
    let own = format!("http://{}", server.address);
    for origin in ["https://evil.example", "http://bench.example.org", "null"] {
        for request in [&*ask, "OPTIONS /api/info"] {
            let (status, head, _) = server.ask(request, &[("Origin", origin), asks[0], asks[1]]);
            assert!(status == 403 && !head.contains("access-control"), "{origin}: {head}");
        }
    }
    for headers in [&[][..], &[("Origin", own.as_str())]] {
        let (status, head, _) = server.ask(&ask, headers);
        assert!(status == 200 && !head.contains("access-control"), "{head}");
    }
}

#[test]
fn a_request_without_the_token_starts_no_work() {
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("root/sys/devices/1-2");
    fs::create_dir_all(device.join("1-2:1.0")).unwrap();
    // Reading this file waits for somebody who writes to it.
    rustix::fs::mkfifoat(rustix::fs::CWD, device.join("idVendor"), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    let port = folder.path().join("root/sys/class/tty/ttyACM0");
    fs::create_dir_all(&port).unwrap();
    symlink(device.join("1-2:1.0"), port.join("device")).unwrap();
    let server = ServerProcess::start_in(folder, &[]);
    for _ in 0..20 {
        assert_eq!(server.ask("GET /api/ports?token=x", &[]).0, 401);
    }
    thread::sleep(Duration::from_millis(300));
    let writer = fs::OpenOptions::new()
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(device.join("idVendor"));
    assert!(writer.is_err(), "the ports are listed for nobody");
}

#[test]
fn a_query_that_cannot_be_read_is_an_error_in_json() {
    let server = ServerProcess::start(&["sim", "--evals", "."]);
    let (status, head, body) = server.ask(&format!("GET /api/runs?token={}&limit=many", server.token), &[]);
    assert!(status == 400 && head.contains("application/json"), "{head}");
    let error: Value = serde_json::from_str(&body).unwrap();
    assert!(error["error"].as_str().unwrap().contains("limit"), "{body}");
}

#[test]
fn one_call_over_http_beside_a_page() {
    let server = ServerProcess::start(&["sim"]);
    let token = format!("Bearer {}", server.token);
    let post = |query: &str, body: &str, authorization: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("POST /api/call{query} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", server.address);
        write!(stream, "{head}Authorization: {authorization}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let value: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
        (head[9..12].parse::<u16>().unwrap(), value)
    };
    let mut page = server.page();
    page.initialize();
    let (status, answer) = post(
        "",
        "{\n \"operation\": \"power\",\r\n \"args\": {\"rail\":\"3V3\",\"on\":true}, \"context\": {} }",
        &token,
    );
    assert!(status == 200 && answer["success"] == true, "{answer}");
    // It is the page's board, and what the call has switched on stays on.
    assert!(page.volts() > 3.0);
    let measure = r#"{"operation":"measure","args":{"channel":"3V3"},"context":{}}"#;
    let (status, answer) = post("", measure, &token);
    assert!(status == 200 && answer["outputs"]["volts"].is_string(), "{answer}");
    for (status, query, body, authorization, why) in [
        (401, "", measure, "Bearer x", "token"),
        (404, "?target=exec:true", measure, &*token, "only sim"),
        (400, "", "{", &*token, "not JSON"),
        (400, "", "", &*token, "not JSON"),
        (400, "", "[]", &*token, "params"),
        (400, "", r#"{"operation":"fly","args":{},"context":{}}"#, &*token, "fly"),
        (400, "", r#"{"operation":"measure","args":{"channel":"X"},"context":{}}"#, &*token, "channel"),
        (
            504,
            "",
            r#"{"operation":"wait-for","args":{"channel":"3V3","min":9,"max":10,"within_ms":60000},"context":{"timeout":"100ms"}}"#,
            &*token,
            "",
        ),
    ] {
        let (found, answer) = post(query, body, authorization);
        assert_eq!(found, status, "{body}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(why), "{body}: {answer}");
    }
    let (status, _, _) = server.ask(&format!("GET /api/call?token={}", server.token), &[]);
    assert_eq!(status, 405);
    // A client that is gone has its call cancelled: another one's is not held up.
    let mut gone = TcpStream::connect(&server.address).unwrap();
    let body = r#"{"operation":"wait-for","args":{"channel":"3V3","min":9,"max":10,"within_ms":60000},"context":{}}"#;
    write!(
        gone,
        "POST /api/call HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    thread::sleep(Duration::from_millis(500));
    drop(gone);
    let since = Instant::now();
    assert_eq!(page.execute("identify", json!({}))["result"]["success"], true);
    assert!(since.elapsed() < Duration::from_secs(30), "the call was not cancelled: {:?}", since.elapsed());
}

/// Sends a call, whose answer is read later.
fn begin_post(server: &ServerProcess) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = r#"{"operation":"go","args":{},"context":{}}"#;
    let head = format!("POST /api/call HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", server.address);
    let token = &server.token;
    write!(stream, "{head}Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream
}

/// When the server stops, a call over HTTP is cancelled, its client is told, and the program has the time for its safe state, before the
/// server has ended. It is not started again for that.
#[test]
fn a_server_that_stops_cancels_a_call_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let [starts, runs, safe] = ["starts", "runs", "safe"].map(|name| folder.path().join(name));
    let execute = format!(
        "trap 'sleep 1; echo x >{}; exit' TERM; echo x >{}; while :; do sleep 0.05; done",
        safe.display(),
        runs.display()
    );
    let target = shell_extension(folder.path(), &execute);
    let text = fs::read_to_string(folder.path().join("extension.sh")).unwrap();
    fs::write(folder.path().join("extension.sh"), format!("echo x >>{}\n{text}", starts.display())).unwrap();
    let mut server = ServerProcess::start(&[&target]);
    let mut post = begin_post(&server);
    eventually("the call runs", || runs.exists());
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut answer = String::new();
    post.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("the server stops"), "{answer}");
    eventually("it ends", || server.child.try_wait().unwrap().is_some());
    assert!(safe.exists(), "the program had no time for its safe state");
    assert_eq!(fs::read_to_string(starts).unwrap(), "x\n");
}

/// A call that is reported as failed, since its session did not begin, is not run by a session that does.
#[test]
fn a_call_without_a_session_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let [started, runs] = ["started", "runs"].map(|name| folder.path().join(name));
    let execute = format!(
        r#"echo x >{}; echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"success\":true}}}}""#,
        runs.display()
    );
    let target = shell_extension(folder.path(), &execute);
    let text = fs::read_to_string(folder.path().join("extension.sh")).unwrap();
    let first = format!("[ -e {0} ] || {{ echo x >{0}; exit 3; }}\n", started.display());
    fs::write(folder.path().join("extension.sh"), first + &text).unwrap();
    let server = ServerProcess::start(&[&target]);
    let ask = || {
        let mut answer = String::new();
        begin_post(&server).read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask();
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("exit status 3"), "{answer}");
    assert!(!runs.exists(), "it was run all the same");
    let answer = ask();
    assert!(answer.starts_with("HTTP/1.1 200 ") && runs.exists(), "{answer}");
}

/// The parameters of the next notification about the clients that fits.
fn clients(page: &mut Page, fits: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < PATIENCE, "no such notification");
        let line = page.line();
        if line["method"] == "rigline/clients" && fits(&line["params"]) {
            return line["params"].clone();
        }
    }
}

/// The entry of the client itself.
fn own(params: &Value) -> &Value {
    params["clients"].as_array().unwrap().iter().find(|client| client["id"] == params["you"]).unwrap()
}

/// The page could not tell a call that waits from one that runs.
#[test]
fn a_page_learns_who_is_connected_whose_call_runs_and_how_long_its_own_has_waited() {
    let server = ServerProcess::start(&["sim"]);
    let at = |name: &str| format!("/ws?token={}&clients=1&name={name}", server.token);
    let mut first = server.page_at(&at("Ada"));
    let alone = clients(&mut first, |_| true);
    first.initialize_among_clients();
    assert_eq!((own(&alone)["name"].as_str(), own(&alone)["state"].as_str()), (Some("Ada"), Some("idle")));
    let mut second = server.page_at(&at("Bob%0A%1b"));
    second.initialize_among_clients();
    let both = clients(&mut first, |params| params["clients"].as_array().unwrap().len() == 2);
    assert_eq!(both["clients"][1]["name"], "Bob", "{both}");

    first.begin_long_call();
    clients(&mut second, |params| params["clients"][0]["state"] == "running");
    let id = second.begin("execute", json!({ "operation": "identify", "args": {}, "context": {} }));
    let waiting = clients(&mut second, |params| own(params)["state"] == "waiting");
    let holder = &waiting["clients"][0];
    assert_eq!((holder["name"].as_str(), holder["operation"].as_str()), (Some("Ada"), Some("wait-for")), "{waiting}");
    thread::sleep(Duration::from_millis(300));
    first.vanish();
    let since = Instant::now();
    // It is told before the answer comes.
    let (mut waited, mut is_answered, mut is_alone) = (None, false, false);
    while !(is_answered && is_alone) {
        let line = second.line();
        if line["method"] == "rigline/clients" {
            if !is_answered && own(&line["params"])["state"] != "waiting" {
                waited = own(&line["params"])["waitedMs"].as_f64();
            }
            is_alone = line["params"]["clients"].as_array().unwrap().len() == 1;
        }
        is_answered |= line["id"] == id;
    }
    assert!(waited.is_some_and(|waited| waited >= 300.0), "{waited:?}");
    assert!(
        since.elapsed() < Duration::from_secs(30),
        "the call of a page that is gone was not cancelled: nothing is on"
    );

    // A page that does not ask for it gets nothing but the session's own lines.
    let mut plain = server.page();
    assert_eq!(plain.initialize()["result"]["name"], "rig");
}

/// "Everything off" in any page: what runs ends, whose ever it is, and other pages' sessions go on.
#[test]
fn everything_off_cancels_all_calls_and_the_rails_are_off_and_sessions_go_on() {
    let server = ServerProcess::start(&["sim"]);
    let (mut first, mut second) = (server.page(), server.page());
    first.initialize();
    second.initialize();
    first.power_on();
    first.begin_long_call();
    thread::sleep(Duration::from_millis(300));
    let waiting = second.begin("execute", json!({ "operation": "identify", "args": {}, "context": {} }));
    thread::sleep(Duration::from_millis(100));
    let since = Instant::now();
    let (status, _, body) = server.ask(&format!("POST /api/off?name=Ada&token={}", server.token), &[]);
    assert_eq!((status, body.trim()), (200, r#"{"ended":true,"error":null}"#));
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    let cancelled = first.reply();
    assert_eq!(cancelled["error"]["message"], "the call was cancelled: Ada switched everything off", "{cancelled}");
    let refused = second.reply();
    assert_eq!((&refused["id"], refused["error"]["code"].as_i64()), (&json!(waiting), Some(-32000)), "{refused}");
    assert!(second.volts() < 0.5, "the rail is off");
    first.power_on();
}

#[test]
fn everything_off_needs_the_token_and_a_target() {
    let server = ServerProcess::start(&["sim"]);
    let (status, _, _) = server.ask("POST /api/off", &[]);
    assert_eq!(status, 401);
    let (status, _, _) = server.ask(&format!("GET /api/off?token={}", server.token), &[]);
    assert_eq!(status, 405, "opening an address does nothing");
    let stranger = [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")];
    let (status, _, _) = server.ask(&format!("POST /api/off?token={}", server.token), &stranger);
    assert_eq!(status, 403);
    let choosing = ServerProcess::start(&[]);
    let (status, _, body) = choosing.ask(&format!("POST /api/off?token={}", choosing.token), &[]);
    assert_eq!((status, body.contains("no target was chosen")), (404, true), "{body}");
}

#[test]
fn the_token_that_is_kept_is_the_same_each_time_and_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let first = ServerProcess::start_in(folder, &["sim", "--keep-token"]);
    let token = first.token.clone();
    let path = first.folder.path().join("state/rigline/web-token");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let rest = Command::new(RIGLINE)
        .args(["web", "sim", "--keep-token", "--port", "0"])
        .env("XDG_STATE_HOME", first.folder.path().join("state"))
        .stdout(Stdio::piped())
        .spawn();
    let mut second = rest.unwrap();
    let mut said = String::new();
    BufReader::new(second.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.trim_end().ends_with(&format!("/#token={token}")), "{said}");
    second.kill().unwrap();
    second.wait().unwrap();
    // Not from a file that others can read, and not by way of a link.
    let refusal = || {
        let output = Command::new(RIGLINE)
            .args(["web", "sim", "--keep-token"])
            .env("XDG_STATE_HOME", first.folder.path().join("state"))
            .output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refusal().contains("other users may use the file"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&path, path.with_extension("real")).unwrap();
    symlink(path.with_extension("real"), &path).unwrap();
    assert!(refusal().contains("not a regular file"));
}

#[test]
fn what_passes_is_recorded_for_days_and_can_be_replayed() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = ServerProcess::start(&["sim", "--record", "days"]);
    let mut page = server.page();
    page.initialize();
    page.power_on();
    let (status, _, _) = server.ask_with_body("/api/call", r#"{"operation":"identify","args":{},"context":{}}"#);
    assert_eq!(status, 200);
    let folder = server.folder.path().join("days");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let shown = Command::new(RIGLINE).arg("replay").arg(&files[0]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(0));
    for part in ["power", "3V3", "measure", "identify"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let again = Command::new(RIGLINE)
        .arg("replay")
        .arg(&files[0])
        .args(["sim", "--ignore", "outputs", "--ignore", "message", "--ignore", "limits"])
        .output();
    assert_eq!(again.unwrap().status.code(), Some(0), "the recorded requests can be sent again");
}

#[test]
fn a_run_is_found_by_its_id_with_its_outputs_and_logs() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("evals/tasks")).unwrap();
    fs::write(
        folder.path().join("evals/eval.yaml"),
        "name: rails\nconfig: { target: sim }\nmetrics: [{ name: rails, weight: 1.0, threshold: 1.0 }]\ntasks: [\"tasks/*.yaml\"]\n",
    )
    .unwrap();
    fs::write(
        folder.path().join("evals/tasks/one.yaml"),
        "id: one\nname: One\nsteps:\n  - { id: read, phase: verify, operation: measure, args: { channel: \"3V3\" } }\ngraders:\n  - { type: output_range, step: read, output: volts, min: -1, max: 1 }\n",
    )
    .unwrap();
    let server = ServerProcess::start_in(folder, &["sim", "--evals", "evals"]);
    let mut evals = server.page_at(&format!("/evals?token={}", server.token));
    let run = evals.ask("eval.run", json!({ "path": "eval.yaml" }));
    let id = run["result"]["runId"].as_str().unwrap().to_owned();
    // Another client finds it, as a page does that was loaded anew.
    eventually("the run is done", || server.api(&format!("/api/run?id={id}"))["status"] == "completed");
    let found = server.api(&format!("/api/run?id={id}"));
    assert_eq!((found["name"].as_str(), found["totalTasks"].as_u64()), (Some("rails"), Some(1)), "{found}");
    let step = &found["trials"][0]["steps"][0];
    assert_eq!(step["operation"], "measure");
    assert!(step["outputs"]["volts"].is_string(), "{step}");
    assert!(found["logs"].as_array().unwrap().iter().any(|log| log["message"] == "Running task: one"), "{found}");
    for id in ["nothing", "..%2F..%2Fetc%2Fpasswd", ""] {
        let (status, _, _) = server.ask(&format!("GET /api/run?id={id}&token={}", server.token), &[]);
        assert_eq!(status, 404, "{id}");
    }
}
