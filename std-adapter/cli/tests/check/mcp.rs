//! A server of Streamable HTTP that is right but for one fault, which has the name of the case that finds it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// Serves for as long as the process lives, and returns the address.
pub(crate) fn listen(fault: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sessions = Arc::new(Mutex::new((0, Vec::new())));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = ServerProcess { fault, sessions: Arc::clone(&sessions) };
            thread::spawn(move || server.serve(&stream));
        }
    });
    format!("http://{address}/mcp")
}

struct ServerProcess {
    fault: &'static str,
    /// How many there were, and those that there are.
    sessions: Arc<Mutex<(usize, Vec<String>)>>,
}

struct Request {
    method: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let method = line.split(' ').next()?.to_owned();
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = Self { method, headers, body: Vec::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        request.body = vec![0; length];
        reader.read_exact(&mut request.body).ok()?;
        Some(request)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn message(status: u16, body: &Value) -> Response {
    Response { status, headers: vec![("content-type", "application/json".to_owned())], body: body.to_string() }
}

fn result(result: &Value) -> Response {
    message(200, &json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}

fn error(status: u16, code: i32) -> Response {
    message(status, &json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": "m" } }))
}

fn empty(status: u16) -> Response {
    Response { status, headers: Vec::new(), body: String::new() }
}

/// The names that the cases send, as headers have them.
fn decoded(header: &str) -> &str {
    match header {
        "=?base64?cmlnbGluZV9ub19zdWNoX3Rvb2w=?=" => "rigline_no_such_tool",
        "=?base64?R3LDtsOfZQ==?=" => "Größe",
        "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=" => "=?base64?literal?=",
        "=?base64?YW5vdGhlcl90b29s?=" => "another_tool",
        other => other,
    }
}

impl ServerProcess {
    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn serve(&self, mut stream: &TcpStream) {
        let Some(request) = Request::read(stream) else { return };
        let Response { status, headers, body } = self.answer(&request);
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let text =
            format!("HTTP/1.1 {status} s\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
        let _ = stream.write_all(text.as_bytes());
    }

    fn answer(&self, request: &Request) -> Response {
        if request.header("origin").is_some() && !self.is("http.origin") {
            return empty(403);
        }
        let is_modern = request.header("mcp-protocol-version") == Some(MODERN);
        match request.method.as_str() {
            "POST" => {}
            "GET" | "DELETE" if is_modern => return empty(if self.is("http.modern.methods") { 200 } else { 405 }),
            "GET" => return empty(if self.is("http.get") { 200 } else { 405 }),
            _ => return self.end(request.header("mcp-session-id").unwrap_or_default()),
        }
        let Ok(json) = serde_json::from_slice::<Value>(&request.body) else {
            return if self.is("http.bad-json") { error(200, -32700) } else { error(400, -32700) };
        };
        let Some(method) = json["method"].as_str() else { return error(400, -32600) };
        if json.get("id").is_none() {
            return if self.is("http.notification") { message(200, &json!({})) } else { empty(202) };
        }
        match json["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str() {
            Some(version) => self.modern(request, version, method, &json["params"]),
            None => self.legacy(request, method),
        }
    }

    fn end(&self, name: &str) -> Response {
        let mut sessions = self.sessions.lock().unwrap();
        let before = sessions.1.len();
        sessions.1.retain(|known| known != name);
        empty(if sessions.1.len() < before { 204 } else { 404 })
    }

    fn modern(&self, request: &Request, version: &str, method: &str, params: &Value) -> Response {
        let name = params["name"].as_str().filter(|_| method == "tools/call");
        for (header, said) in
            [("mcp-protocol-version", Some(version)), ("mcp-method", Some(method)), ("mcp-name", name)]
        {
            let Some(said) = said else { continue };
            let is_wrong = match request.header(header) {
                None => !self.is("http.modern.missing-header"),
                Some(value) if self.is("http.modern.encoded-name") => value != said,
                Some(value) => decoded(value) != said && !self.is("http.modern.mismatch"),
            };
            if is_wrong {
                return error(400, -32020);
            }
        }
        if version != MODERN {
            return error(if self.is("http.modern.unsupported-version") { 200 } else { 400 }, -32022);
        }
        match method {
            "server/discover" => {
                let mut response = result(&json!({ "supportedVersions": [MODERN], "resultType": "complete" }));
                if self.is("http.modern.no-session") {
                    response.headers.push(("mcp-session-id", "s".to_owned()));
                }
                response
            }
            "tools/call" => error(200, -32602),
            "subscriptions/listen" if self.is("http.modern.events") => result(&json!({})),
            "subscriptions/listen" => Response {
                status: 200,
                headers: vec![("content-type", "text/event-stream".to_owned()), ("x-accel-buffering", "no".to_owned())],
                body: ": \n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\"}\n\n"
                    .to_owned(),
            },
            _ => error(if self.is("http.modern.unknown-method") { 200 } else { 404 }, -32601),
        }
    }

    fn legacy(&self, request: &Request, method: &str) -> Response {
        let mut sessions = self.sessions.lock().unwrap();
        if method == "initialize" {
            sessions.0 += 1;
            let name = format!("session-{}", sessions.0);
            sessions.1.push(name.clone());
            let mut response = result(&json!({ "protocolVersion": LEGACY, "capabilities": { "tools": {} } }));
            response.headers.push(("mcp-session-id", name));
            return response;
        }
        if request.header("mcp-protocol-version").is_some_and(|version| version != LEGACY) && !self.is("http.version") {
            return error(400, -32600);
        }
        let is_known = request.header("mcp-session-id").is_none_or(|name| sessions.1.iter().any(|known| known == name));
        if !is_known && !self.is("http.session") {
            return error(404, -32600);
        }
        if method != "tools/list" {
            return error(200, -32601);
        }
        let mut response = result(&json!({ "tools": [] }));
        if self.is("http.answer") {
            response.headers = vec![("content-type", "text/plain".to_owned())];
        }
        response
    }
}
