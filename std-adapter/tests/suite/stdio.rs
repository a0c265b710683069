//! The stdio adapter as hosts meet it: a real child process behind real pipes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
const SHUTDOWN: &str = r#"{"jsonrpc":"2.0","id":9,"method":"shutdown","params":{}}"#;
/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// Reports: modelcontextprotocol/rust-sdk#825, modelcontextprotocol/go-sdk#1209,
/// Ataraxy-Labs/sem#168.
#[test]
fn a_bad_line_does_not_end_the_session() {
    let good = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    let ended = run(format!("{{oops\nx\n]\n{good}\n{{oops"));
    assert_eq!(ended.summary(), ["null -32700", "null -32700", "null -32700", "7 ok", "null -32700"]);
    assert!(ended.status.success());
}

/// Reports: modelcontextprotocol/go-sdk#1061, paiml/rust-mcp-sdk#328,
/// modelcontextprotocol/python-sdk#2678.
#[test]
fn one_shot_pipe_gets_all_logs_and_replies() {
    let ended = run(execute(1, "slow", json!({"millis": 500})) + "\n");
    assert_eq!(ended.summary(), ["log first", "log second", "1 ok"]);
    assert!(ended.status.success());
}

/// Reports: modelcontextprotocol/go-sdk#1061, paiml/rust-mcp-sdk#328,
/// modelcontextprotocol/python-sdk#2678.
#[test]
fn requests_from_a_file() {
    let mut file = File::from(memory_file());
    for id in 1..=5 {
        writeln!(file, "{}", execute(id, "echo", json!({"text": "t"}))).unwrap();
    }
    std::io::Seek::rewind(&mut file).unwrap();
    let output = extension().stdin(file).output().unwrap();
    assert_eq!(summary(&output.stdout), ["1 ok", "2 ok", "3 ok", "4 ok", "5 ok"]);
    assert!(output.status.success());
}

/// Reports: modelcontextprotocol/go-sdk#1061, paiml/rust-mcp-sdk#328,
/// modelcontextprotocol/python-sdk#2678.
#[test]
fn standard_input_that_is_empty_closed_or_null_ends_well() {
    for input in ["</dev/null", "0<&-", "< /dev/stdin"] {
        let ended = shell(&format!("\"$EXT\" {input}"));
        assert_eq!((ended.status.code(), &*ended.stdout, &*ended.stderr), (Some(0), "", ""), "{input}");
    }
}

/// Reports: yc-software/qm#1034, BYVoid/OpenCC#1201.
#[test]
fn a_last_message_without_newline() {
    assert_eq!(run(SHUTDOWN).summary(), ["9 ok"]);
    assert_eq!(run(execute(1, "echo", json!({}))).summary(), ["1 ok"]);
    assert_eq!(run(r#"{"jsonrpc":"2.0","id":1,"met"#).summary(), ["null -32700"]);
}

/// Reports: modelcontextprotocol/go-sdk#665, stackql/stackql#668, Taxuspt/garmin_mcp#162.
#[test]
fn lines_may_end_with_crlf() {
    for end in ["\r\n", "\r\r\n", "\n\r\n\n"] {
        assert_eq!(run(format!("{INITIALIZE}{end}{SHUTDOWN}{end}")).summary(), ["1 ok", "9 ok"], "{end:?}");
    }
    assert!(!run(format!("{INITIALIZE}\r\n")).stdout.contains('\r'));
}

/// Reports: FellouAI/eko#276, FellouAI/eko#286, yetone/cumora#28.
#[test]
fn a_client_that_writes_single_bytes() {
    let mut child = Session::start(extension());
    for byte in format!("{INITIALIZE}\r\n{}\n{SHUTDOWN}\n", execute(2, "echo", json!({"text": "é"}))).bytes() {
        child.send_bytes(&[byte]);
    }
    let ended = child.end();
    assert_eq!(ended.summary(), ["1 ok", "2 ok", "9 ok"]);
}

/// Reports: FellouAI/eko#276, FellouAI/eko#286, yetone/cumora#28.
#[test]
fn many_messages_in_one_write() {
    let requests: String = (1..=200).map(|id| execute(id, "echo", json!({})) + "\n").collect();
    let expected: Vec<_> = (1..=200).map(|id| format!("{id} ok")).collect();
    assert_eq!(run(requests).summary(), expected);
}

/// Reports: rust-mcp-stack/rust-mcp-sdk#151, theoriclabs/LeanDB#51,
/// WingedGuardian/GENesis-AGI#1625.
#[test]
fn the_line_limit_is_exact_and_nothing_behind_it_runs() {
    for (limit, set) in [(1000, true), (8 << 20, false)] {
        for (length, fits) in [(limit - 1, true), (limit, true), (limit + 1, false), (3 * limit, false)] {
            let tail = r#"\"}} {"jsonrpc":"2.0","id":9,"method":"shutdown"}"#;
            let line = if fits { padded(length, "") } else { padded(length, tail) };
            assert_eq!(line.len(), length);
            let mut command = extension();
            if set {
                command.env("REQUEST_LIMIT", limit.to_string());
            }
            let ended = run_with(command, format!("{line}\r\n{}\n", execute(2, "echo", json!({}))));
            let first = if fits { "1 ok" } else { "null -32700" };
            assert_eq!(ended.summary(), [first, "2 ok"], "{length} of {limit}");
            if !fits {
                let text = ended.replies()[0]["error"]["message"].as_str().unwrap().to_owned();
                assert!(text.contains(&limit.to_string()) && text.contains(&length.to_string()), "{text}");
            }
        }
    }
}

/// Reports: rust-mcp-stack/rust-mcp-sdk#151, theoriclabs/LeanDB#51,
/// WingedGuardian/GENesis-AGI#1625.
#[test]
fn an_over_long_last_line_without_newline() {
    let mut command = extension();
    command.env("REQUEST_LIMIT", "1000");
    assert_eq!(run_with(command, "x".repeat(5000)).summary(), ["null -32700"]);
}

/// Reports: mark3labs/mcp-go#588, mark3labs/mcp-go#155, mark3labs/mcp-go#603.
#[test]
fn large_requests_are_taken() {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "execute", "params": {
        "operation": "agent", "args": null,
        "context": {"workdir": "/tmp", "phase": "verify", "agent": {"prompt": "p", "output": "o".repeat(200 * 1024)}}}});
    let ended = run(request.to_string());
    assert_eq!(ended.replies()[0]["result"]["outputs"]["length"], "204800");
}

/// Reports: mark3labs/mcp-go#588, mark3labs/mcp-go#155, mark3labs/mcp-go#603.
#[test]
fn lines_that_the_host_cannot_read_are_warned_about() {
    // {"jsonrpc":"2.0","id":1,"result":{"success":true,"message":""}}
    const FRAME: usize = 63;
    let permissive = || {
        let mut command = extension();
        command.env("REPLY_LIMIT", "8388608");
        command
    };
    for (length, warnings) in [(65_535, 0), (65_536, 1), (70 * 1024, 1), (5 << 20, 1)] {
        let ended = run_with(permissive(), execute(1, "big", json!({"size": length - FRAME})));
        assert_eq!(ended.stdout.len(), length + 1);
        assert_eq!(ended.summary(), ["1 ok"]);
        assert_eq!(ended.stderr.lines().count(), warnings, "{}", ended.stderr);
        if warnings > 0 {
            assert!(ended.stderr.contains(&length.to_string()) && ended.stderr.contains("65535"), "{}", ended.stderr);
        }
    }
    let ended = run_with(permissive(), execute(1, "big", json!({"size": 70_000, "log": 70_000})));
    assert_eq!(ended.stderr.lines().count(), 2, "once a line");
}

/// The real host stops reading for good at a line of more than 65,535 bytes: by default none is
/// sent.
#[test]
fn no_line_that_the_host_cannot_read_is_sent() {
    // {"jsonrpc":"2.0","id":1,"result":{"success":true,"message":""}}
    const FRAME: usize = 63;
    for (length, fits) in [(65_534, true), (65_535, true), (65_536, false), (5 << 20, false)] {
        let ended = run(execute(1, "big", json!({"size": length - FRAME})));
        assert_eq!(ended.stderr, "");
        if fits {
            assert_eq!((ended.stdout.len(), ended.summary()), (length + 1, vec!["1 ok".to_owned()]));
        } else {
            assert_eq!(ended.summary(), ["1 -32603"]);
            let text = ended.replies()[0]["error"]["message"].as_str().unwrap().to_owned();
            assert!(text.contains(&length.to_string()) && text.contains("65535"), "{text}");
        }
    }
    for log in [65_400, 65_536, 70_000, 1_500_000, 3_000_000] {
        let ended = run(execute(1, "big", json!({"size": 1, "log": log})));
        let lines: Vec<_> = ended.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{log}");
        assert!(lines.iter().all(|line| line.len() <= 65_535), "{log}");
        let json = parse(lines[0]);
        let message = json["params"]["message"].as_str().unwrap();
        assert_eq!(message.contains("(shortened: the log line had "), log > 65_470, "{log}");
        assert!(message.len() > 65_000);
    }
    // A batch is one line too, and the manifest says the limit.
    let batch =
        format!("[{},{}]", execute(1, "big", json!({"size": 40_000})), execute(2, "big", json!({"size": 40_000})));
    let ended = run(format!("{batch}\n{INITIALIZE}\n"));
    assert!(ended.stdout.lines().all(|line| line.len() <= 65_535));
    let replies = parse(ended.stdout.lines().next().unwrap());
    assert_eq!((&replies[0]["result"]["success"], &replies[1]["error"]["code"]), (&json!(true), &json!(-32603)));
    assert_eq!(parse(ended.stdout.lines().nth(1).unwrap())["result"]["limits"]["reply"], 65_535);
    // The other protocols have no such limit.
    for line in [
        json!({"op": "big", "args": {"size": 1 << 20}}),
        json!({"protocol_version": 1, "tool": "big", "payload": {"size": 1 << 20}}),
    ] {
        let ended = run(line.to_string());
        assert!(ended.stdout.len() > 1 << 20, "{}", ended.stdout);
    }
}

/// Reports: mark3labs/mcp-go#588, mark3labs/mcp-go#155, mark3labs/mcp-go#603.
#[test]
fn a_reply_over_the_limit_is_an_error_that_names_the_size() {
    let mut command = extension();
    command.env("REPLY_LIMIT", "2000");
    let ended = run_with(command, execute(1, "big", json!({"size": 3000})));
    assert_eq!(ended.summary(), ["1 -32603"]);
    assert!(ended.stdout.contains("2000"), "{}", ended.stdout);
}

/// Reports: HatriGt/hana-mcp-server#22, shaun0927/openchrome#144, jershell/simple-jsonrpc-js#6.
#[test]
fn notifications_get_silence() {
    let ended = run(concat!(
        r#"{"jsonrpc":"2.0","method":"nope"}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"bad"}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"initialize","params":17}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":5,"method":"shutdown"}"#,
        "\n",
    ));
    assert_eq!(ended.summary(), ["5 ok"]);
}

/// Reports: neandertech/jsonrpclib#104, diem/diem#7208, neo-project/neo-modules#742.
#[test]
fn params_in_all_forms() {
    for params in ["", r#","params":null"#, r#","params":{}"#, r#","params":[]"#] {
        assert_eq!(run(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"shutdown"{params}}}"#)).summary(), ["1 ok"]);
    }
    for (method, params, code) in [
        ("initialize", "", -32602),
        ("execute", "", -32602),
        ("execute", r#","params":["echo",{}]"#, -32602),
        ("execute", r#","params":3"#, -32600),
        ("shutdown", r#","params":"x""#, -32600),
    ] {
        let ended = run(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#));
        let reply = &ended.replies()[0];
        assert_eq!(reply["id"], 1);
        let given = reply["error"]["code"].as_i64().unwrap();
        assert!(given == code || params.ends_with(['3', '"']) && given == -32602, "{method} {params}: {given}");
    }
}

#[test]
fn the_lines_of_the_real_host_are_answered() {
    let mut child = Session::start(extension());
    for (request, reply) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"namespace":"a\u003cb"}}}"#,
            "1 ok",
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"echo","args":null,"context":{"workdir":"/tmp/task","phase":""}}}"#,
            "2 ok",
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"echo","args":{"text":"A\u003cb\u003e\u0026é\u2028"},"context":{"workdir":"/tmp/task","phase":"","agent":{"prompt":"p","output":"o"}}}}"#,
            "3 ok",
        ),
        (
            r#"{"jsonrpc":"2.0","id":4,"method":"execute","params":{"operation":"echo","args":{"path":"a/b.yaml"},"context":{"workdir":"/tmp/task","phase":"verify","new":{"member":[1]}}}}"#,
            "4 ok",
        ),
    ] {
        child.send(request);
        let line = child.next_reply();
        assert_eq!(summary(line.as_bytes()), [reply]);
        if reply == "3 ok" {
            assert_eq!(parse(&line)["result"]["message"], "A<b>&é\u{2028}");
        }
        if reply == "4 ok" {
            assert_eq!(parse(&line)["result"]["outputs"]["path"], "/tmp/task/a/b.yaml");
        }
    }
    // The host waits for the exit without closing the input.
    child.send(r#"{"jsonrpc":"2.0","id":7,"method":"shutdown","params":{}}"#);
    assert_eq!(child.next_line(), r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert!(child.wait().success());
}

/// Reports: DeusData/codebase-memory-mcp#513, awslabs/AutoCorrode#171, ChimeHQ/JSONRPC#14.
#[test]
fn every_line_is_visible_at_once() {
    for operation in ["slow", "busy"] {
        let mut child = Session::start(extension());
        child.send(INITIALIZE);
        child.next_reply();
        let start = Instant::now();
        child.send(&execute(2, operation, json!({"millis": 3000})));
        for (log, from, to) in [("log first", 0, 1300), ("log second", 1400, 2800)] {
            assert_eq!(summary(child.next_line().as_bytes()), [log]);
            let at = start.elapsed().as_millis();
            assert!((from..to).contains(&at), "{operation}: {log} after {at} ms");
        }
        assert_eq!(summary(child.next_line().as_bytes()), ["2 ok"]);
        assert!(start.elapsed() >= Duration::from_millis(2900));
    }
}

/// Reports: DeusData/codebase-memory-mcp#513, awslabs/AutoCorrode#171, ChimeHQ/JSONRPC#14.
#[test]
fn faults_are_answered_while_a_handler_runs() {
    let mut child = Session::start(extension());
    child.send(&execute(1, "slow", json!({"millis": 1500})));
    assert_eq!(summary(child.next_line().as_bytes()), ["log first"]);
    child.send("{oops");
    assert_eq!(summary(child.next_line().as_bytes()), ["null -32700"]);
    assert_eq!(child.end().summary(), ["log second", "1 ok"]);
}

/// Reports: modelcontextprotocol/kotlin-sdk#956, modelcontextprotocol/typescript-sdk#2790,
/// modelcontextprotocol/rust-sdk#825.
#[test]
fn byte_order_marks() {
    let mut input = Vec::new();
    for line in [INITIALIZE, SHUTDOWN] {
        input.extend(b"\xEF\xBB\xBF");
        input.extend(line.as_bytes());
        input.push(b'\n');
    }
    let ended = run(input);
    assert_eq!(ended.summary(), ["1 ok", "9 ok"]);
    assert!(!ended.stdout.contains('\u{FEFF}'));
}

/// Reports: modelcontextprotocol/kotlin-sdk#956, modelcontextprotocol/typescript-sdk#2790,
/// modelcontextprotocol/rust-sdk#825.
#[test]
fn utf_16_is_refused() {
    let mut input = b"\xFF\xFE".to_vec();
    input.extend(SHUTDOWN.encode_utf16().flat_map(u16::to_le_bytes));
    input.extend(b"\n\0\n");
    input.extend(SHUTDOWN.as_bytes());
    let ended = run(input);
    assert_eq!(ended.summary().last().map(|line| &**line), Some("9 ok"));
    assert!(ended.summary().iter().rev().skip(1).all(|line| line == "null -32700"), "{:?}", ended.summary());
}

/// Reports: justrach/devswarm#387, rust-lang/rls#61, machbase/neo-server#285.
#[test]
fn shutdown_behind_a_running_call() {
    let ended = run(execute(1, "slow", json!({"millis": 400})) + "\n" + SHUTDOWN);
    assert_eq!(ended.summary(), ["log first", "log second", "1 ok", "9 ok"]);
    assert!(ended.status.success());
}

/// Reports: justrach/devswarm#387, rust-lang/rls#61, machbase/neo-server#285.
#[test]
fn a_session_without_shutdown_ends_in_its_safe_state() {
    for (input, is_safe) in [
        (INITIALIZE.to_owned(), true),
        (format!("{INITIALIZE}\n{SHUTDOWN}\n"), false),
        (execute(1, "echo", json!({})), false),
    ] {
        let ended = run(input);
        assert_eq!(ended.stderr.contains("safe state"), is_safe);
        assert_eq!(ended.status.code(), Some(0));
    }
}

/// Reports: can1357/oh-my-pi#1710, anomalyco/opencode#43258, openclaw/openclaw#75602.
#[test]
fn a_reader_that_is_gone() {
    let requests = (execute(1, "echo", json!({"text": "t"})) + "\n").repeat(2000);
    let ended = shell_with("\"$EXT\" | head -n1; echo \"${PIPESTATUS[0]}\"", &requests);
    let (first, code) = ended.stdout.split_once('\n').unwrap();
    assert_eq!(summary(first.as_bytes()), ["1 ok"]);
    assert_eq!((code.trim(), &*ended.stderr), ("0", ""));
}

/// Reports: can1357/oh-my-pi#1710, anomalyco/opencode#43258, openclaw/openclaw#75602.
#[test]
fn a_reader_that_goes_during_a_call_ends_a_session_in_its_safe_state() {
    for operation in ["slow", "big"] {
        let mut command = extension();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{INITIALIZE}").unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        writeln!(input, "{}", execute(2, operation, json!({"millis": 200, "size": 50_000}))).unwrap();
        drop(output);
        // The input stays open.
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), &*stderr), (Some(0), "safe state\n"), "{operation}");
    }
}

#[test]
fn a_reader_that_goes_while_a_handler_waits_silently_ends_it() {
    // A pipe, a pair of sockets and a terminal; in a session and without one. The input stays open.
    for way in ["pipe", "socket", "terminal"] {
        for session in [true, false] {
            let (ours, theirs): (OwnedFd, OwnedFd) = match way {
                "pipe" => std::io::pipe().map(|(ours, theirs)| (ours.into(), theirs.into())).unwrap(),
                "socket" => UnixStream::pair().map(|(ours, theirs)| (ours.into(), theirs.into())).unwrap(),
                _ => {
                    let pty = rustix_openpty::openpty(None, None).unwrap();
                    (pty.controller, pty.user)
                }
            };
            let mut command = extension();
            let mut child = command.stdin(Stdio::piped()).stdout(theirs).stderr(Stdio::piped()).spawn().unwrap();
            drop(command);
            let mut input = child.stdin.take().unwrap();
            let mut output = BufReader::new(File::from(ours));
            if session {
                writeln!(input, "{INITIALIZE}").unwrap();
                output.read_line(&mut String::new()).unwrap();
            }
            writeln!(input, "{}", execute(2, "slow", json!({"millis": 600_000}))).unwrap();
            // Its first log: the handler waits from now on.
            output.read_line(&mut String::new()).unwrap();
            let start = Instant::now();
            drop(output);
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if start.elapsed() > LONG {
                    child.kill().unwrap();
                }
                thread::sleep(Duration::from_millis(5));
            };
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            assert_eq!((status.code(), &*stderr), (Some(0), "safe state\n"), "{way} {session}");
            assert!(start.elapsed() < Duration::from_secs(5), "{way}");
            drop(input);
        }
    }
}

/// Node.js starts programs with socket pairs, which tell of a peer that is gone by a reset.
/// Reports: can1357/oh-my-pi#1710, anomalyco/opencode#43258, openclaw/openclaw#75602.
#[test]
fn a_host_that_is_gone_from_a_socket() {
    for operation in ["slow", "big"] {
        let (mut host, socket) = UnixStream::pair().unwrap();
        let mut command = extension();
        command.stdin(OwnedFd::from(socket.try_clone().unwrap())).stdout(OwnedFd::from(socket)).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // The command has the other end still.
        drop(command);
        write!(host, "{INITIALIZE}\n{}\n", execute(2, operation, json!({"millis": 1000, "size": 50_000}))).unwrap();
        host.read_exact(&mut [0]).unwrap();
        drop(host);
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), &*stderr), (Some(0), "safe state\n"), "{operation}");
    }
}

/// Reports: can1357/oh-my-pi#1710, anomalyco/opencode#43258, openclaw/openclaw#75602.
#[test]
fn a_closed_output_ends_the_process() {
    let requests = (execute(1, "slow", json!({"millis": 1})) + "\n").repeat(20);
    for output in ["1>&-", ">/dev/null"] {
        let ended = shell_with(&format!("\"$EXT\" {output}"), &requests);
        assert_eq!((ended.status.code(), &*ended.stdout, &*ended.stderr), (Some(0), "", ""), "{output}");
    }
    if Path::new("/dev/full").exists() {
        let ended = shell_with("\"$EXT\" >/dev/full", &requests);
        assert_eq!(ended.status.code(), Some(1));
        // The first log failed, and cut the call off.
        let expected = "rigline: cannot serve on standard input and output: No space left on device (os error 28)";
        assert_eq!(ended.stderr.lines().collect::<Vec<_>>(), ["safe state", expected]);
    }
}

/// Reports: smart-mcp-proxy/mcpproxy-go#953, kubescape/kubescape#3505,
/// github/github-mcp-server#193.
#[test]
fn outputs_are_strings_and_nothing_is_null() {
    let ended = run(format!("{INITIALIZE}\n{}", execute(2, "agent", json!({}))));
    let [manifest, reply] = &ended.replies()[..] else { panic!("two replies: {}", ended.stdout) };
    assert_eq!(reply["result"]["outputs"], json!({"length": "0"}));
    assert!(manifest["result"]["operations"]["echo"]["params"].is_object());
    assert!(!ended.stdout.contains("null"), "{}", ended.stdout);
}

/// Reports: theoriclabs/LeanDB#57, sysprog21/zhtw-mcp#7, DeusData/codebase-memory-mcp#511.
#[test]
fn bytes_that_are_not_utf_8() {
    for bytes in
        [&b"\xC4\xE3"[..], b"\xFF\xFE", b"\xC0\xAF", b"\xED\xA0\x80", b"\xF4\x90\x80\x80", b"\xBD", b"\xE2\x82"]
    {
        let mut input = br#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":""#.to_vec();
        input.extend(bytes);
        input.extend(b"\"}}\n");
        input.extend(bytes);
        input.extend(b"\n");
        input.extend(SHUTDOWN.as_bytes());
        assert_eq!(run(input).summary(), ["null -32700", "null -32700", "9 ok"], "{bytes:x?}");
    }
}

/// Reports: ndjson/ndjson-spec#1, BaseIntelligence/bounty-challenge#4400, minio/mc#1008.
#[test]
fn a_pasted_example_does_not_end_the_session() {
    let example = serde_json::to_string_pretty(&parse(INITIALIZE)).unwrap();
    let lines = example.lines().count();
    let ended = run(format!("{example}\n{SHUTDOWN}\n"));
    let summary = ended.summary();
    assert_eq!(summary.last().map(|line| &**line), Some("9 ok"));
    assert!(summary.len() - 1 <= lines, "an error a line at most");
    assert!(summary.iter().rev().skip(1).all(|line| line.starts_with("null -32")));
}

/// Reports: NVIDIA/NeMo-Retriever#2161, yakew7/Fair-Code#385, NatLabRockies/openstudio-mcp#44.
#[test]
fn prints_and_children_reach_neither_stream() {
    let ended = run(format!("{}\n{SHUTDOWN}\n", execute(1, "print", json!({}))));
    assert_eq!(ended.summary(), ["1 ok", "9 ok"]);
    for text in ["printed by the handler", r#""result":{}"#, "hello"] {
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
}

/// Reports: proffesor-for-testing/agentic-qe#527, pathintegral-institute/mcpm.sh#264.
#[test]
fn sessions_out_of_order() {
    let initialize =
        |version: &str| format!(r#"{{"jsonrpc":"2.0","id":2,"method":"initialize","params":{{{version}}}}}"#);
    let ended = run([
        execute(1, "echo", json!({})),
        INITIALIZE.to_owned(),
        INITIALIZE.to_owned(),
        initialize(r#""protocolVersion":"0.0.2""#),
        initialize(r#""protocolVersion":"1.0.0""#),
        initialize(""),
        initialize(r#""protocolVersion":1"#),
        SHUTDOWN.to_owned(),
        execute(3, "echo", json!({})),
    ]
    .join("\n"));
    let refused = "2 -32602";
    assert_eq!(ended.summary(), ["1 ok", "1 ok", "1 ok", refused, refused, refused, refused, "9 ok"]);
    assert!(ended.status.success());
}

#[test]
fn signals_cancel_bring_about_the_safe_state_and_exit() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut child = Session::start(extension());
        child.send(INITIALIZE);
        child.next_reply();
        child.send(&execute(1, "slow", json!({"millis": 60_000})));
        assert_eq!(summary(child.next_line().as_bytes()), ["log first"]);
        child.signal(signal);
        let ended = child.wait_ended();
        assert_eq!(ended.status.code(), Some(code));
        assert_eq!(ended.summary(), ["1 -32000"]);
        assert_eq!(ended.stderr, "safe state\n");

        // While it waits for requests; only a session that began with initialize has something to
        // lose.
        for (request, is_safe) in [(INITIALIZE.to_owned(), true), (execute(1, "echo", json!({})), false)] {
            let mut child = Session::start(extension());
            child.send(&request);
            child.next_reply();
            child.signal(signal);
            let ended = child.wait_ended();
            assert_eq!((ended.status.code(), ended.stderr.contains("safe state")), (Some(code), is_safe));
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_program_started_by_nohup_outlives_its_terminal() {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\""]).arg(extension_path());
    let mut child = Session::start(command);
    child.send(INITIALIZE);
    child.next_reply();
    child.signal(Signal::HUP);
    child.send(&execute(2, "echo", json!({"text": "still here"})));
    assert!(child.next_reply().contains("still here"));
    assert!(child.end().status.success());
}

#[test]
fn a_signal_ends_a_program_whose_output_nobody_reads() {
    for size in [100_000, 4000] {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = extension();
        let mut child = command.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop(command);
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{INITIALIZE}").unwrap();
        for id in 0..40 {
            writeln!(input, "{}", execute(id, "big", json!({"size": size}))).unwrap();
        }
        thread::sleep(Duration::from_millis(500));
        let start = Instant::now();
        kill(&child, Signal::TERM);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(143));
        assert!(start.elapsed() < Duration::from_secs(3));
        assert!(String::from_utf8_lossy(&output.stderr).contains("safe state"));
        drop(reader);
    }
}

#[test]
fn a_signal_ends_a_handler_that_does_not_await() {
    let mut child = Session::start(extension());
    child.send(&execute(1, "busy", json!({"millis": 60_000})));
    assert_eq!(summary(child.next_line().as_bytes()), ["log first"]);
    child.signal(Signal::TERM);
    child.signal(Signal::TERM);
    let start = Instant::now();
    let ended = child.wait_ended();
    assert!(start.elapsed() < Duration::from_secs(8));
    assert_eq!(ended.status.code(), Some(143));
}

#[test]
fn a_panic_anywhere_exits_with_101_and_whole_lines() {
    for place in ["", "thread", "task", "blocking", "later"] {
        let mut child = Session::start(extension());
        child.send(&execute(1, "panic", json!({"place": place})));
        let ended = child.wait_ended();
        assert_eq!(ended.status.code(), Some(101), "{place}");
        assert!(ended.stderr.contains("boom"), "{place}: {}", ended.stderr);
        assert_eq!(ended.summary()[0], "log about to panic", "{place}");
        assert!(ended.stdout.ends_with('\n'), "{place}");
        assert!(!place.is_empty() || ended.stderr.contains("safe state"), "{}", ended.stderr);
        if place.is_empty() {
            // O 3: the call is answered before the process ends.
            assert_eq!(ended.summary(), ["log about to panic", "1 -32603"]);
            let text = ended.replies()[0]["error"]["message"].as_str().unwrap().to_owned();
            assert_eq!(text, "the operation panicked: boom");
        }
    }
}

#[test]
fn a_panic_does_not_cut_a_long_line_that_its_reader_takes_slowly() {
    let mut command = extension();
    command.env("REPLY_LIMIT", "8388608");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", execute(1, "panic", json!({"place": "later"}))).unwrap();
    writeln!(input, "{}", execute(2, "big", json!({"size": 3 << 20}))).unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (mut all, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = stdout.read(&mut piece) {
        all.extend_from_slice(&piece[..count]);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(child.wait().unwrap().code(), Some(101));
    assert_eq!(summary(&all), ["log about to panic", "1 ok", "2 ok"]);
}

#[test]
fn a_missing_requirement_is_named_until_it_is_there() {
    let directory = std::env::temp_dir().join(format!("rigline-requires-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let command_file = directory.join("rigline-no-such-command");
    let path = format!("{}:{}", std::env::var("PATH").unwrap(), directory.display());
    let mut command = extension();
    command.env("REQUIRES", "1").env("PATH", path);
    let mut child = Session::start(command);
    child.send(INITIALIZE);
    child.next_reply();
    let call = |child: &mut Session| {
        child.send(&execute(2, "echo", json!({})));
        parse(&child.next_reply())
    };
    let missing = |reply: Value| {
        assert_eq!(reply["error"]["code"], -32002);
        assert!(reply["error"]["message"].as_str().unwrap().contains("rigline-no-such-command"));
    };
    missing(call(&mut child));
    std::fs::write(&command_file, "#!/bin/sh\n").unwrap();
    missing(call(&mut child));
    std::fs::set_permissions(&command_file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(call(&mut child)["result"]["success"], true);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(call(&mut child)["result"]["success"], true, "found once is found");
}

#[test]
fn descriptors_that_others_made_non_blocking() {
    use rustix::fs::{OFlags, fcntl_setfl};
    let (to_child, mut input) = std::os::unix::net::UnixStream::pair().unwrap();
    to_child.set_nonblocking(true).unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut command = extension();
    let mut child = command.stdin(OwnedFd::from(to_child)).stdout(writer).spawn().unwrap();
    drop(command);
    for id in 0..30 {
        writeln!(input, "{}", execute(id, "big", json!({"size": 30_000, "log": 3000}))).unwrap();
    }
    input.shutdown(std::net::Shutdown::Write).unwrap();
    thread::sleep(Duration::from_millis(300));
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert!(child.wait().unwrap().success());
    let lines = summary(&all);
    assert_eq!(lines.len(), 60);
    assert!(
        lines.chunks(2).enumerate().all(|(id, pair)| pair[0].starts_with("log lll") && pair[1] == format!("{id} ok"))
    );
}

#[test]
fn logs_of_a_handler_that_never_awaits_keep_their_order_before_its_reply() {
    let count = 3000;
    let mut child = Session::start(extension());
    child.send(&execute(1, "chatter", json!({"count": count, "text": "x".repeat(200)})));
    // The pipe is full long before the last line.
    thread::sleep(Duration::from_millis(300));
    let lines = child.end().summary();
    assert_eq!(lines.len(), count + 1);
    for (number, line) in lines.iter().take(count).enumerate() {
        assert!(line.starts_with(&format!("log line {number} ")), "{line}");
    }
    assert_eq!(lines[count], "1 ok");
}

#[test]
fn logs_that_no_memory_is_left_for_are_dropped_whole_and_counted() {
    let count = 60_000;
    let mut child = Session::start_later(extension(), Duration::from_secs(2));
    child.send(&execute(1, "chatter", json!({"count": count, "text": "x".repeat(200)})));
    let lines = child.end().summary();
    assert_eq!(lines.last().map(|line| &**line), Some("1 ok"));
    let dropped: Vec<_> =
        lines.iter().filter_map(|line| line.strip_prefix("log ")?.split_once(" log line")?.0.parse().ok()).collect();
    assert!(!dropped.is_empty());
    let whole = lines.iter().filter(|line| line.starts_with("log line ")).count();
    assert_eq!(whole + dropped.iter().sum::<usize>(), count);
}

#[test]
fn a_terminal_and_several_lines_at_once() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let path = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(path).unwrap();
    let mut child = extension().stdin(terminal).stdout(Stdio::piped()).spawn().unwrap();
    let mut controller = File::from(controller);
    // A terminal gives one line a read; 4 is its end of input.
    let three: String = (1..=3).map(|id| execute(id, "echo", json!({})) + "\n").collect();
    controller.write_all(three.as_bytes()).unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for id in 1..=3 {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(summary(line.as_bytes()), [format!("{id} ok")]);
    }
    controller.write_all(&[4]).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_timeout_that_passes_while_awaiting() {
    let mut request = parse(&execute(1, "slow", json!({"millis": 60_000})));
    request["params"]["context"]["timeout"] = json!("300ms");
    let ended = run(request.to_string());
    assert_eq!(ended.summary(), ["log first", "1 -32001"]);
    assert!(ended.stderr.contains("safe state"));
}

/// A call of `operation` that may take so long.
fn limited(id: u32, operation: &str, args: Value, timeout: &str) -> String {
    let mut request = parse(&execute(id, operation, args));
    request["params"]["context"]["timeout"] = json!(timeout);
    request.to_string()
}

#[test]
fn a_call_whose_time_is_up_while_it_waits_is_answered_and_never_runs() {
    let mut child = Session::start(extension());
    child.send(&execute(1, "slow", json!({"millis": 3000})));
    assert!(child.next_line().contains("first"));
    let lines = [
        limited(2, "slow", json!({"millis": 100}), "300ms"),
        limited(3, "big", json!({"size": 10, "log": 9}), "200ms"),
        limited(4, "echo", json!({}), "60s"),
        execute(5, "echo", json!({})),
    ];
    for line in lines {
        child.send(&line);
    }
    let replies: Vec<Value> = (0..2).map(|_| parse(&child.next_line())).collect();
    for (reply, id, waited) in [(&replies[0], 3, "0.2 s"), (&replies[1], 2, "0.3 s")] {
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(id), &json!(-32001)), "{reply}");
        let text = reply["error"]["message"].as_str().unwrap();
        assert!(text.contains("in the queue: slow"), "{text} after {waited}");
    }
    // They came before the call that they waited for has logged again, and none of them has logged.
    assert_eq!(child.end().summary(), ["log second", "1 ok", "4 ok", "5 ok"]);
}

#[test]
fn a_call_that_has_waited_gets_what_is_left_of_its_time() {
    let mut child = Session::start(extension());
    child.send(&execute(1, "slow", json!({"millis": 1500})));
    assert!(child.next_line().contains("first"));
    child.send(&limited(2, "slow", json!({"millis": 2500}), "3000ms"));
    let lines = child.end().summary();
    assert_eq!(lines.get(..3), Some(&["log second", "1 ok", "log first"].map(str::to_owned)[..]), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("2 -32001"), "{lines:?}");
}

#[test]
fn the_time_limits_of_a_batch_count_from_its_arrival() {
    let members = [
        execute(1, "slow", json!({"millis": 800})),
        limited(2, "slow", json!({"millis": 10}), "300ms"),
        limited(3, "echo", json!({}), "60s"),
    ];
    for before in [None, Some(execute(9, "slow", json!({"millis": 100})))] {
        let mut child = Session::start(extension());
        if let Some(before) = &before {
            child.send(before);
        }
        child.send(&format!("[{}]", members.join(",")));
        let ended = child.end();
        let lines: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with('[')).collect();
        let replies: Value = parse(lines[0]);
        assert_eq!(replies[1]["error"]["code"], -32001, "{replies}");
        assert!(replies[1]["error"]["message"].as_str().unwrap().contains("in the queue"), "{replies}");
        assert_eq!((&replies[0]["result"]["success"], &replies[2]["result"]["success"]), (&json!(true), &json!(true)));
        let ran = ended.stdout.matches("\"first\"").count();
        assert_eq!(ran, 1 + usize::from(before.is_some()), "the second member has not begun: {}", ended.stdout);
    }
}

#[test]
fn a_late_call_that_waited_leaves_everything_as_it_is() {
    let mut child = Session::start(extension());
    child.send(&execute(1, "slow", json!({"millis": 600})));
    assert!(child.next_line().contains("first"));
    child.send(&limited(2, "echo", json!({}), "50ms"));
    let ended = child.end();
    assert_eq!(ended.summary(), ["2 -32001", "log second", "1 ok"]);
    assert!(!ended.stderr.contains("safe state"), "{}", ended.stderr);
}

/// The extension under test: `examples/bench_bed.rs`, which `cargo test` builds beside this.
fn extension() -> Command {
    let mut command = Command::new(extension_path());
    command.env("RUST_BACKTRACE", "0");
    command
}

fn extension_path() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let path = me.parent().and_then(Path::parent).unwrap().join("examples/bench_bed");
    assert!(path.exists(), "run `cargo build -p rigline-std --examples` first");
    path
}

fn execute(id: u32, operation: &str, args: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "execute",
        "params": {"operation": operation, "args": args, "context": {"workdir": "/tmp", "phase": "setup"}}})
    .to_string()
}

/// A request with id 1 of exactly this many bytes, that ends in `tail`.
fn padded(length: usize, tail: &str) -> String {
    let (start, end) = (
        r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"echo","context":{},"x":""#,
        if tail.is_empty() { r#""}}"# } else { tail },
    );
    format!("{start}{}{end}", "A".repeat(length - start.len() - end.len()))
}

struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn summary(&self) -> Vec<String> {
        summary(self.stdout.as_bytes())
    }

    fn replies(&self) -> Vec<Value> {
        self.stdout.lines().map(parse).filter(|line| line.get("id").is_some()).collect()
    }
}

/// Each line as `ID ok`, `ID CODE` or `log MESSAGE`; all that is not a whole line of JSON-RPC
/// fails.
fn summary(output: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(output).unwrap();
    text.lines()
        .map(|line| {
            let line = parse(line);
            assert_eq!(line["jsonrpc"], "2.0");
            if line["method"] == "log" {
                return format!("log {}", line["params"]["message"].as_str().unwrap());
            }
            match line.get("error") {
                Some(error) => format!("{} {}", line["id"], error["code"]),
                None => format!("{} {}", line["id"], if line["result"]["success"] == false { "failed" } else { "ok" }),
            }
        })
        .collect()
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Gives the extension this input, its end, and all the time it wants.
fn run(input: impl Into<Vec<u8>>) -> Ended {
    run_with(extension(), input)
}

fn run_with(mut command: Command, input: impl Into<Vec<u8>>) -> Ended {
    let input = input.into();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may end before it has read everything.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn shell(script: &str) -> Ended {
    shell_with(script, "")
}

/// Runs a script that knows the extension as `$EXT`.
fn shell_with(script: &str, input: &str) -> Ended {
    let mut command = Command::new("bash");
    command.args(["-c", script]).env("EXT", extension_path()).env("RUST_BACKTRACE", "0");
    run_with(command, input)
}

/// A conversation with a child.
struct Session {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: thread::JoinHandle<String>,
}

impl Session {
    fn start(command: Command) -> Self {
        Self::start_later(command, Duration::ZERO)
    }

    /// A conversation with one who does not read for a while.
    fn start_later(mut command: Command, pause: Duration) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            thread::sleep(pause);
            let mut line = String::new();
            loop {
                let at_end = !matches!(stdout.read_line(&mut line), Ok(1..));
                if at_end || sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let mut errors = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = Vec::new();
            errors.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { input: child.stdin.take(), child, lines, stderr }
    }

    fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn next_line(&mut self) -> String {
        let line = self.lines.recv_timeout(LONG).expect("a line in time");
        line.strip_suffix('\n').expect("whole lines only").to_owned()
    }

    /// The next line that is not a log.
    fn next_reply(&mut self) -> String {
        loop {
            let line = self.next_line();
            if parse(&line).get("id").is_some() {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill(&self.child, signal);
    }

    /// Closes its input, and returns what it has written since the last line that was read.
    fn end(mut self) -> Ended {
        self.input = None;
        self.wait_ended()
    }

    /// The same with its input open.
    fn wait_ended(mut self) -> Ended {
        let status = self.wait();
        let mut stdout = String::new();
        loop {
            match self.lines.recv_timeout(LONG) {
                Ok(line) => stdout += &line,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("its output stays open"),
            }
        }
        Ended { status, stdout, stderr: self.stderr.join().unwrap() }
    }

    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if start.elapsed() > LONG {
                let _ = self.child.kill();
                panic!("it does not end");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn kill(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A file that is nowhere.
fn memory_file() -> OwnedFd {
    rustix::fs::memfd_create("requests", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}
