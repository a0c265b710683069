//! Replies of protocols that have no ids: each to the request that it answers, or to nobody.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rigline_host::Options;
use rigline_host::amplifier::{CallError, Host};
use serde_json::{Value, json};

use crate::machine::{Device, member, rigline, script, write_line};

const DESCRIPTION: &str =
    r#"{"name":"board","version":"1.0.0","kind":"tool","capabilities":["go"],"inputs":{"go":{"type":"object"}}}"#;

/// The answers of a module without ids, and their delays in milliseconds.
fn answer(line: &str) -> (String, u64) {
    match member(line, "/op").as_str() {
        Some("describe") => (DESCRIPTION.to_owned(), 0),
        Some("health") => (r#"{"status":"ok"}"#.to_owned(), 0),
        Some("go") => {
            let args = member(line, "/args");
            let wait = args["wait"].as_u64().unwrap_or_default();
            (json!({ "ok": true, "result": { "n": args["n"] } }).to_string(), wait)
        }
        Some(op) => (json!({ "ok": false, "error": { "code": "unsupported_op", "message": op } }).to_string(), 0),
        None => (json!({ "ok": false, "error": { "code": "bad_request", "message": "what?" } }).to_string(), 0),
    }
}

/// A board that answers one line after the other, and gives no id back.
fn board() -> Device {
    Device::new(|line, writer| {
        let (answer, wait) = answer(line);
        thread::sleep(Duration::from_millis(wait));
        write_line(writer, &answer);
    })
}

fn host(target: &str) -> Host {
    let mut host = Host::new(&target.parse().unwrap(), &Options::default()).unwrap();
    (host.timeout, host.grace) = (Duration::from_secs(20), Duration::ZERO);
    host
}

async fn go(host: &mut Host, n: u32, wait: u32) -> Result<String, CallError> {
    let invocation = host.invoke("go", &json!({ "n": n, "wait": wait }).to_string()).await?;
    Ok(invocation.unwrap_or_else(|error| format!("{}: {}", error.code, error.message)))
}

#[tokio::test]
async fn after_a_timeout_each_call_gets_its_own_result() {
    let device = board();
    let mut host = host(&device.target());
    for round in 0..3 {
        host.timeout = Duration::from_millis(300);
        let late = go(&mut host, round * 10, 2000).await.unwrap_err();
        assert!(matches!(late, CallError::Timeout { .. }), "{late}");
        if round == 1 {
            // A second one is given up while the board is still busy with the first.
            go(&mut host, 99, 0).await.unwrap_err();
        }
        host.timeout = Duration::from_secs(20);
        for n in 1..4 {
            assert_eq!(go(&mut host, round * 10 + n, 0).await.unwrap(), format!("{{\"n\":{}}}", round * 10 + n));
        }
        host.health().await.unwrap();
        assert_eq!(host.describe().await.unwrap().name, "board");
    }
}

#[tokio::test]
async fn children_of_another_process_are_left_alone() {
    let device = board();
    let mut first = host(&device.target());
    first.timeout = Duration::from_millis(300);
    go(&mut first, 1, 900).await.unwrap_err();
    drop(first);
    let mut second = host(&device.target());
    assert_eq!(go(&mut second, 2, 0).await.unwrap(), r#"{"n":2}"#);
}

#[tokio::test]
async fn a_call_that_is_dropped_is_answered_to_nobody() {
    let device = board();
    let mut host = host(&device.target());
    let dropped = tokio::time::timeout(Duration::from_millis(300), go(&mut host, 1, 900)).await;
    assert!(dropped.is_err());
    assert_eq!(go(&mut host, 2, 0).await.unwrap(), r#"{"n":2}"#);
}

#[tokio::test]
async fn echoes_noise_and_marks_are_no_replies() {
    // The line echoes, the board prints what it likes, and begins its replies with a mark or a prompt.
    for before in ["", "\u{feff}", "\u{1b}[0m> ", "\0\r"] {
        let device = Device::new(move |line, writer: &mut File| {
            write_line(writer, line);
            write_line(writer, r#"{"status":200}"#);
            write_line(writer, r#"{"level":"info","msg":"hello"}"#);
            write_line(writer, "[boot] ready");
            let (answer, _) = answer(line);
            write_line(writer, &format!("{before}{answer}"));
        });
        let mut host = host(&device.target());
        assert_eq!(host.describe().await.unwrap().name, "board", "{before:?}");
        host.health().await.unwrap();
        for n in 0..3 {
            assert_eq!(go(&mut host, n, 0).await.unwrap(), format!("{{\"n\":{n}}}"), "{before:?}");
        }
    }
}

#[tokio::test]
async fn lines_before_the_request_are_no_replies() {
    let folder = tempfile::tempdir().unwrap();
    // It answers each request twice.
    let text = r#"#!/bin/sh
n=0
while read -r line; do n=$((n+1)); printf '%s\n' "{\"ok\":true,\"result\":$n}" "{\"ok\":true,\"result\":$n}"; done
"#;
    let mut host = host(&format!("exec:{}", script(folder.path(), "twice", text).display()));
    for n in 1..5 {
        assert_eq!(go(&mut host, n, 0).await.unwrap(), n.to_string());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_module_that_gives_ids_back_is_told_apart_by_them() {
    // Its replies come in any order.
    let device = Device::new(|line, writer: &mut File| {
        let (answer, wait) = answer(line);
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        answer["id"] = member(line, "/id");
        let mut writer = writer.try_clone().unwrap();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(wait));
            write_line(&mut writer, &answer.to_string());
        });
    });
    let mut host = host(&device.target());
    host.describe().await.unwrap();
    host.timeout = Duration::from_millis(300);
    go(&mut host, 1, 800).await.unwrap_err();
    host.timeout = Duration::from_secs(20);
    assert_eq!(go(&mut host, 2, 1500).await.unwrap(), r#"{"n":2}"#);
}

#[tokio::test]
async fn a_board_that_does_not_describe_itself_can_be_called() {
    // It refuses to, or is silent.
    for refuses in [true, false] {
        let device = Device::new(move |line, writer: &mut File| match member(line, "/op").as_str() {
            Some("describe") if refuses => {
                write_line(writer, r#"{"ok":false,"error":{"code":"unsupported_op","message":"no"}}"#);
            }
            Some("describe") => {}
            _ => write_line(writer, &answer(line).0),
        });
        let mut host = host(&device.target());
        for n in 1..4 {
            assert_eq!(go(&mut host, n, 0).await.unwrap(), format!("{{\"n\":{n}}}"));
        }
    }
}

#[tokio::test]
async fn a_board_that_does_not_answer_gets_no_further_calls() {
    // It never describes itself once it was asked to go; what it owes may come at any time.
    let mut is_asked = false;
    let device = Device::new(move |line, writer: &mut File| {
        is_asked |= member(line, "/op") == "go";
        if !is_asked {
            write_line(writer, &answer(line).0);
        }
    });
    let mut host = host(&device.target());
    host.describe().await.unwrap();
    host.timeout = Duration::from_millis(500);
    go(&mut host, 1, 0).await.unwrap_err();
    let error = go(&mut host, 2, 0).await.unwrap_err().to_string();
    assert!(error.contains("it has not answered the request before"), "{error}");
    let calls = device.lines().iter().filter(|line| line.contains("\"go\"")).count();
    assert_eq!(calls, 1, "the second was not sent");
}

#[test]
fn a_server_gives_no_client_the_reply_of_another() {
    let device = board();
    let mut server = rigline(&["serve", &device.target(), "--http", "0", "--protocol", "namel3ss"]);
    let mut server = server.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("listening on http://").split('/').next().unwrap().to_owned();
    let post = |n: u32, wait: u32, limit: u32| {
        let body = json!({ "protocol_version": 1, "tool_name": "go", "payload": { "n": n, "wait": wait }, "timeout_ms": limit }).to_string();
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "POST /tools HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
        (member(&body, "/ok"), member(&body, "/result/n"), body)
    };
    let (ok, _, body) = post(1, 1200, 400);
    assert_eq!(ok, false, "{body}");
    for n in 2..5 {
        let (ok, found, body) = post(n, 0, 20_000);
        assert_eq!((ok, found), (true.into(), n.into()), "{body}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A reply that is damaged does not come again: that is said at once, and the next call gets its own.
#[tokio::test]
async fn a_damaged_reply_is_reported_at_once() {
    let mut is_first = true;
    let device = Device::new(move |line, writer| {
        let (mut answer, _) = answer(line);
        if member(line, "/op") == "go" && std::mem::take(&mut is_first) {
            answer.truncate(answer.len() - 1);
            // Noise is passed over.
            write_line(writer, "{debug} going");
        }
        write_line(writer, &answer);
    });
    let mut host = host(&device.target());
    host.timeout = Duration::from_secs(600);
    let error = go(&mut host, 1, 0).await.unwrap_err();
    assert!(matches!(&error, CallError::Bad { reason, .. } if reason.contains("damaged")), "{error}");
    assert!(error.to_string().contains(r#""n":1"#), "{error}");
    assert!(go(&mut host, 2, 0).await.unwrap().contains('2'));
}
