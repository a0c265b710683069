//! Attacks over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::program::{dial, post, status_of};
use super::{Attack, Outcome, floods};

/// How much memory an attack may cost, in KiB.
const LIMIT: u64 = 64 << 10;

const SERVE: &[&str] = &["serve", "sim", "--http", "127.0.0.1:0", "--protocol"];
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;

/// The servers over HTTP, and a path of each.
fn servers() -> [(Vec<&'static str>, &'static str); 4] {
    let serve = |protocol| [SERVE, &[protocol]].concat();
    [
        (serve("amplifier"), "/invoke"),
        (serve("namel3ss"), "/tools"),
        (serve("mcp"), "/mcp"),
        (vec!["web", "sim", "--port", "0"], "/api/call"),
    ]
}

pub(super) fn large(attack: &Attack) -> Outcome {
    let mut all = Vec::new();
    for (args, path) in servers() {
        let (program, address, _) = attack.serve(&args)?;
        let before = program.peak()?;
        let header = format!("X: {}\r\n", "h".repeat(1 << 20));
        let headers = "X: y\r\n".repeat(10_000);
        let deep = "[".repeat(4 << 20);
        let member = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"identify","arguments":{}}}"#;
        let batch = format!("[{}]", vec![member; (8 << 20) / (member.len() + 1) - 1].join(","));
        let id = format!(r#"{{"jsonrpc":"2.0","id":"{}","op":"health","method":"ping"}}"#, "i".repeat(1 << 20));
        for (what, request, allowed) in [
            ("a header of 1 MB", post(path, &header, "{}"), &[0, 400, 431][..]),
            ("10,000 headers", post(path, &headers, "{}"), &[0, 400, 431]),
            ("deep JSON", post(path, "", &deep), &[400, 401, 403]),
            ("an id of 1 MB", post(path, "", &id), &[200, 400, 401, 403, 404]),
            ("a batch of 8 MB", post(path, "", &batch), &[200, 400, 401, 403]),
            (
                "a length that is not sent",
                post(path, "Content-Length: 99999999999\r\n", "{}"),
                &[0, 400, 401, 403, 413],
            ),
        ] {
            let status = status_of(address, &request)?;
            if !allowed.contains(&status) {
                return Err(format!("{args:?}: {what}: status {status}"));
            }
        }
        chunks_without_an_end(address, path)?;
        all.push(program.took(path, before, LIMIT)?);
    }
    Ok(all.join(", "))
}

fn chunks_without_an_end(address: SocketAddr, path: &str) -> Result<(), String> {
    let mut stream = dial(address)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let chunk = format!("10000\r\n{}\r\n", "[".repeat(0x10000));
    let begun = Instant::now();
    let mut sent = stream.write_all(head.as_bytes());
    while sent.is_ok() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err(format!("{path}: chunks are read without an end"));
        }
        sent = stream.write_all(chunk.as_bytes());
        // The answer may be there, and the server goes on reading for a moment so that its client sees it.
    }
    Ok(())
}

pub(super) fn foreign(attack: &Attack) -> Outcome {
    let mut count = 0;
    for (args, path) in servers() {
        let (_program, address, line) = attack.serve(&args)?;
        let token = line.split_once("token=").map(|(_, token)| token.trim());
        let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let ask = |headers: &str| {
            let body = "{}";
            format!(
                "POST {path} HTTP/1.1\r\n{headers}{bearer}Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let port = address.port();
        for headers in [
            "Host: evil.example\r\n".to_owned(),
            format!("Host: 127.0.0.1.evil.example:{port}\r\n"),
            format!("Host: evil.example@127.0.0.1:{port}\r\n"),
            format!("Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"),
            format!("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example\r\n"),
            format!("Host: 127.0.0.1:{port}\r\nOrigin: null\r\n"),
            format!("Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1.evil.example\r\n"),
            format!("Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\nOrigin: http://evil.example\r\n"),
        ] {
            let status = status_of(address, ask(&headers).as_bytes())?;
            if !matches!(status, 0 | 400 | 401 | 403 | 421) {
                return Err(format!("{args:?}: {headers:?}: status {status}"));
            }
            count += 1;
        }
    }
    Ok(format!("{count} refused"))
}

pub(super) fn half_open(attack: &Attack) -> Outcome {
    let mut all = Vec::new();
    for (args, path) in servers() {
        let (_program, address, _) = attack.serve(&args)?;
        let halves: Vec<TcpStream> = (0..40)
            .filter_map(|number| {
                let mut stream = dial(address).ok()?;
                let half: &[u8] =
                    [&b""[..], b"P", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\n{"][number % 3];
                stream.write_all(half).ok()?;
                Some(stream)
            })
            .collect();
        let begun = Instant::now();
        let status = status_of(address, &post(path, "", "{}"))?;
        if status == 0 || begun.elapsed() > Duration::from_secs(5) {
            return Err(format!(
                "{args:?}: status {status} after {:?} beside {} halves",
                begun.elapsed(),
                halves.len()
            ));
        }
        all.push(format!("{path} {} ms", begun.elapsed().as_millis()));
    }
    Ok(all.join(", "))
}

pub(super) fn sessions(attack: &Attack) -> Outcome {
    let (program, address, _) = attack.serve(&[SERVE, &["mcp"]].concat())?;
    for _ in 0..200 {
        status_of(address, &post("/mcp", "", INITIALIZE))?;
    }
    let before = program.peak()?;
    for _ in 0..3000 {
        let status = status_of(address, &post("/mcp", "", INITIALIZE))?;
        if !matches!(status, 200 | 429 | 503) {
            return Err(format!("initialize: status {status}"));
        }
    }
    // An event stream that nobody reads.
    let mut streams = Vec::new();
    for _ in 0..30 {
        let mut stream = dial(address)?;
        let _ = stream.write_all(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n");
        streams.push(stream);
    }
    let status = status_of(address, &post("/mcp", "", INITIALIZE))?;
    if status != 200 {
        return Err(format!("beside streams that nobody reads: status {status}"));
    }
    program.took("3,000 sessions", before, LIMIT / 4)
}

pub(super) fn websocket(attack: &Attack) -> Outcome {
    let (program, address, line) = attack.serve(&["web", "sim", "--port", "0"])?;
    let token = line.split_once("token=").map(|(_, token)| token.trim().to_owned()).ok_or("no token")?;
    let open = || -> Result<TcpStream, String> {
        let mut stream = dial(address)?;
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let text = format!(
            "GET /ws?token={token} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).map_err(|error| error.to_string())?;
        let mut reader = BufReader::new(stream.try_clone().map_err(|error| error.to_string())?);
        let mut line = String::new();
        reader.read_line(&mut line).map_err(|error| error.to_string())?;
        if !line.contains(" 101 ") {
            return Err(format!("/ws: {line}"));
        }
        thread::spawn(move || floods::drain(reader));
        Ok(stream)
    };
    // RFC 6455 §5.2: a frame of a client's is masked; with zeros it is as it was.
    let frame = |first: u8, text: &[u8]| {
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes();
        [&[first, 0xfe][..], &length, &[0; 4], text].concat()
    };
    let _first = open()?;
    let before = program.peak()?;
    let piece = frame(0x00, &vec![b'['; 60_000]);
    let mut stream = open()?;
    stream.write_all(&frame(0x01, b"[")).map_err(|error| error.to_string())?;
    let mut sent = 0;
    while stream.write_all(&piece).is_ok() {
        sent += piece.len();
        if sent > 200 << 20 {
            return Err("fragments are taken without an end".into());
        }
    }
    let mut stream = open()?;
    for _ in 0..2000 {
        if stream.write_all(&frame(0x89, &[b'p'; 125])).is_err() {
            break;
        }
    }
    let line =
        br#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"identify","args":{},"context":{}}}"#;
    let mut deaf = open()?;
    deaf.set_write_timeout(Some(Duration::from_secs(1))).map_err(|error| error.to_string())?;
    let many = frame(0x81, line).repeat(100);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) && deaf.write_all(&many).is_ok() {}
    drop(deaf);
    open().map_err(|error| format!("afterwards: {error}"))?;
    program.took(&format!("given up after {} MB of fragments;", sent >> 20), before, LIMIT)
}
