//! Extensions and servers that behave as badly as they can.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The peers, and what they do.
pub const PEERS: &[(&str, &str)] = &[
    ("between", "logs without end once it was asked for its operations"),
    ("during", "logs without end for two seconds of each call"),
    ("noise", "writes lines that are no messages, between calls"),
    ("stderr", "writes to standard error between calls"),
    ("replies", "answers what nobody asked, between calls"),
    ("requests", "asks the host without end, and does not read for two seconds"),
    ("endless", "writes a line without an end"),
    ("quiet", "behaves well"),
    ("many N", "has N operations"),
    ("wide N", "has an operation with N arguments, each by a reference"),
    ("events", "an MCP server over HTTP, whose calls stream events without end"),
];

static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Runs a peer, until its input ends.
pub fn run(args: &[String]) -> io::Result<()> {
    let name = args.first().map(String::as_str).unwrap_or_default();
    let number = args.get(1).and_then(|number| number.parse().ok()).unwrap_or(1);
    if name == "events" {
        return events();
    }
    let (operations, arguments) = match name {
        "many" => (number, 1),
        "wide" => (1, number),
        _ => (1, 1),
    };
    let (mut told, mut out) = (false, io::stdout());
    for line in io::stdin().lock().lines() {
        let line = line?;
        let request: Value = serde_json::from_str(&line).unwrap_or_default();
        let (method, id) = (request["method"].as_str().unwrap_or_default(), &request["id"]);
        if id.is_null() {
            continue;
        }
        if name == "during" && matches!(method, "execute" | "tools/call") {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(2) {
                out.write_all(&log(is_mcp(&request)).repeat(100))?;
            }
        }
        let result = answer(&request, operations, arguments);
        // The flood lets the answer in between.
        ANSWERS.store(true, Ordering::Release);
        writeln!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},{result}}}")?;
        out.flush()?;
        ANSWERS.store(false, Ordering::Release);
        // The list of operations is the last thing that is asked before a call.
        let is_listed = method == "tools/list" || method == "initialize" && !is_mcp(&request);
        if is_listed && !std::mem::replace(&mut told, true) {
            let text: Option<Vec<u8>> = match name {
                "between" => Some(log(is_mcp(&request))),
                "noise" => Some(b"Loading config ... 42 [1,2] and more of the same\n".to_vec()),
                "replies" => Some(b"{\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{\"success\":true}}\n".to_vec()),
                "requests" => Some(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\"}\n".to_vec()),
                "endless" => Some(vec![b'x'; 1000]),
                "stderr" => {
                    thread::spawn(|| {
                        let text = b"a warning that comes without end\n".repeat(100);
                        while io::stderr().write_all(&text).is_ok() {}
                    });
                    None
                }
                _ => None,
            };
            if let Some(text) = text {
                let is_deaf = name == "requests";
                thread::spawn(move || {
                    let text = text.repeat(100);
                    while io::stdout().write_all(&text).is_ok() {
                        while ANSWERS.load(Ordering::Acquire) {
                            thread::yield_now();
                        }
                    }
                });
                if is_deaf {
                    thread::sleep(Duration::from_secs(2));
                }
            }
        }
    }
    Ok(())
}

fn is_mcp(request: &Value) -> bool {
    request["params"]["clientInfo"].is_object()
        || request["method"].as_str().is_some_and(|method| method.starts_with("tools/"))
}

fn log(is_mcp: bool) -> Vec<u8> {
    let text = "x".repeat(200);
    let line = match is_mcp {
        true => {
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "warning", "data": text}})
        }
        false => json!({"jsonrpc": "2.0", "method": "log", "params": {"level": "warn", "message": text}}),
    };
    format!("{line}\n").into_bytes()
}

/// The members `result` or `error` of the reply.
fn answer(request: &Value, operations: usize, arguments: usize) -> String {
    let names = || (0..operations).map(|number| format!("op-{number}"));
    let argument = |_| json!({"type": "integer", "description": "An argument"});
    let mut params = json!({"type": "object", "properties": {"a0": argument(0)}, "required": []});
    if arguments > 1 {
        let members = |of: fn(usize) -> Value| (0..arguments).map(|n| (format!("a{n}"), of(n))).collect::<Value>();
        params = json!({
            "type": "object", "properties": members(|n| json!({"$ref": format!("#/$defs/a{n}")})),
            "required": (0..arguments).map(|n| format!("a{n}")).collect::<Vec<_>>(),
            "$defs": members(argument),
        });
    }
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" if is_mcp(request) => json!({
            "protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "peer", "version": "1.0.0"}}),
        "initialize" => {
            let operation = |name| (name, json!({"description": "Does something", "params": params}));
            let operations: serde_json::Map<String, Value> = names().map(operation).collect();
            json!({"name": "peer", "version": "1.0.0", "protocolVersion": "0.0.1", "operations": operations})
        }
        "tools/list" => {
            let tool = |name: String| json!({"name": name.replace('-', "_"), "description": "Does something", "inputSchema": params});
            json!({"tools": names().map(tool).collect::<Vec<_>>()})
        }
        "tools/call" => json!({"content": [{"type": "text", "text": "done"}]}),
        "execute" => json!({"success": true, "message": "done"}),
        "shutdown" | "ping" => json!({}),
        method => return format!("\"error\":{}", json!({"code": -32601, "message": format!("no method {method}")})),
    };
    format!("\"result\":{result}")
}

/// An MCP server over HTTP, which prints its address.
fn events() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}/mcp", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            let _ = serve(stream);
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some((_, value)) = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    if request["id"].is_null() {
        return stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    if request["method"] == "tools/call" {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
        let event = [b"data: ", &*log(true), b"\n"].concat().repeat(100);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            stream.write_all(&event)?;
        }
        let result = answer(&request, 1, 1);
        return write!(stream, "data: {{\"jsonrpc\":\"2.0\",\"id\":{},{result}}}\n\n", request["id"]);
    }
    let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{}}}", request["id"], answer(&request, 1, 1));
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}
