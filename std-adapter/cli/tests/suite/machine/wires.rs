//! Peers at the other end of a wire that do what real ones do: glue, echo, flood, redirect, end early, or vanish.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rigline_host::{Host, Options};
use serde_json::Value;

use super::{LONG, RIGLINE, rigline, run, script, wait_until};

/// A server of MCP as a shell script: `WRITE` prints `$1`, which is a reply, and `STEPS` come when a tool is called.
const SERVER: &str = r#"#!/bin/sh
ask() {
    while read -r line; do
        case $line in *'"method":"notifications'*) continue ;; esac
        id=${line#*'"id":'}; id=${id%%[!0-9]*}
        return
    done
    exit 0
}
say() { WRITE; }
ask
say '{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}}'
ask
say '{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"go","inputSchema":{"type":"object"}}]}}'
ask
STEPS
"#;
const DONE: &str = r#"say '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"done"}]}}'"#;
/// Prints a reply with the request's id in it.
const PLAIN: &str = r#"printf '%s\n' "$1" | sed "s/ID/$id/""#;

fn server(folder: &tempfile::TempDir, write: &str, steps: &str) -> String {
    let text = SERVER.replace("WRITE", write).replace("STEPS", steps);
    format!("exec:{}", script(folder.path(), "server", &text).display())
}

fn called(target: &str) -> (Option<i32>, String, String) {
    run(&mut rigline(&["call", target, "go", "--protocol", "mcp", "--timeout", "10s"]))
}

/// One reader for all protocols: what the gevals host passes over, the host of MCP does, too.
#[test]
fn an_mcp_server_is_heard_through_what_else_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    for (what, write) in [
        ("a byte order mark", r"printf '\357\273\277'; PLAIN"),
        ("an escape sequence", r"printf '\033]0;title\007'; PLAIN"),
        ("a banner without its newline", "printf 'Loading...'; PLAIN"),
        ("CR LF", r#"printf '%s\r\n' "$1" | sed "s/ID/$id/""#),
        ("an id as a string", r#"printf '%s\n' "$1" | sed "s/ID/\"$id\"/""#),
        ("an id as a fraction", r#"printf '%s\n' "$1" | sed "s/ID/$id.0/""#),
        ("error null beside the result", r#"printf '%s\n' "$1" | sed "s/ID/$id,\"error\":null/""#),
        (
            "a log in the same line",
            r#"printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'; PLAIN"#,
        ),
        ("an echo", r#"printf '%s\n' "$line"; PLAIN"#),
        ("noise in JSON", r#"printf '{"status":200}\n42\n[1]\nnull\n\n'; PLAIN"#),
    ] {
        let (code, out, errors) = called(&server(&folder, &write.replace("PLAIN", PLAIN), DONE));
        assert_eq!((code, out.trim()), (Some(0), "done"), "{what}: {errors}");
    }
    let (code, out, errors) = called(&server(&folder, PLAIN, &format!(r"{DONE} | tr -d '\n'")));
    assert_eq!((code, out.trim()), (Some(0), "done"), "no newline at the end: {errors}");
}

/// The reason of a missing answer is told at once, and not after the time limit.
#[test]
fn why_an_mcp_server_does_not_answer_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (steps, code, text) in [
        ("echo boom >&2; exit 3", 3, "exit status 3"),
        ("echo boom >&2; exit 3", 3, "boom"),
        ("kill -9 $$", 3, "SIGKILL"),
        ("exec >&-; sleep 60", 3, "closed its standard output"),
        (
            r#"echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no such text"}}'; ask"#,
            1,
            "no such text",
        ),
        (r#"printf '{"jsonrpc":"2.0","id":%s,"res' $id"#, 3, "ends inside a value"),
        (r#"echo '{"jsonrpc":"2.0","id":'$id',"result":{"structuredContent":{"t":NaN}}}'; ask"#, 3, "NaN"),
        (r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"a":"\377"}}\n' $id; ask"#, 3, "not UTF-8"),
        (r#"echo '{"jsonrpc":"2.0","id":'$id'}'; ask"#, 3, "neither a result nor an error"),
        (r#"echo '{"jsonrpc":"2.0","id":'$id',"result":null}'; ask"#, 3, "is not an object"),
        (
            r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"a":"' $id; head -c 17000000 /dev/zero | tr '\0' x; echo '"}}'; ask"#,
            3,
            "too long",
        ),
    ] {
        let (ended, _, errors) = called(&server(&folder, PLAIN, steps));
        assert_eq!(ended, Some(code), "{steps}: {errors}");
        assert!(errors.contains(text), "{steps}: {errors}");
    }
}

/// A server may ask whether its client is there, and waits for the answer; other requests are refused.
#[test]
fn an_mcp_server_that_asks_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    for (method, answer) in [("ping", "\"result\":{}"), ("sampling/createMessage", "-32601")] {
        let own = format!(r#"{{"jsonrpc":"2.0","id":"s 1","method":"{method}","params":{{}}}}"#);
        let steps = format!(
            "call=$id; echo '{own}'; read -r answer; case $answer in *'\"id\":\"s 1\"'*'{answer}'*) id=$call; {DONE} ;; esac; ask"
        );
        let (code, out, errors) = called(&server(&folder, PLAIN, &steps));
        assert_eq!((code, out.trim()), (Some(0), "done"), "{method}: {errors}");
    }
}

/// A program that prints without a newline does not fill the memory, whatever the protocol.
#[test]
fn standard_error_without_newlines_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    const FLOOD: &str = "head -c 400000000 /dev/zero | tr '\\0' x >&2";
    let target = server(&folder, PLAIN, &format!("{FLOOD}; {DONE}; ask"));
    let amplifier = script(
        folder.path(),
        "module",
        &format!(
            "#!/bin/sh\nread -r a; echo '{{\"name\":\"n\",\"version\":\"1\",\"kind\":\"tool\",\"capabilities\":[\"go\"]}}'\nread -r b; {FLOOD}; echo '{{\"ok\":true,\"result\":{{}}}}'\nread -r c\n"
        ),
    );
    let tool = script(
        folder.path(),
        "tool",
        &format!("#!/bin/sh\ncat >/dev/null; {FLOOD}; echo '{{\"ok\":true,\"result\":{{}}}}'\n"),
    );
    for (protocol, target) in [
        ("mcp", target),
        ("amplifier", format!("exec:{}", amplifier.display())),
        ("namel3ss", format!("exec:{}", tool.display())),
    ] {
        let words = ["call", &target, "go", "--protocol", protocol, "--timeout", "5m"];
        let mut command = Command::new(RIGLINE);
        let mut child =
            command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut most = 0_u64;
        let code = loop {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let peak =
                text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok());
            most = most.max(peak.unwrap_or_default());
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            thread::sleep(std::time::Duration::from_millis(20));
        };
        assert_eq!(code, Some(0), "{protocol}");
        assert!(most < 150_000, "{protocol}: {most} KiB");
    }
}

/// A server over HTTP whose `answer` gets the head and the body of each request, and returns what is sent.
fn http(answer: impl Fn(&str, &Value) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let (mut head, mut line) = (String::new(), String::new());
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                head += &std::mem::take(&mut line);
            }
            let lower = head.to_ascii_lowercase();
            let length =
                lower.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            if head.is_empty() || reader.read_exact(&mut body).is_err() {
                continue;
            }
            let reply = answer(&head, &serde_json::from_slice(&body).unwrap_or_default());
            let _ = (&stream).write_all(reply.as_bytes());
        }
    });
    url
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n{body}")
}

/// The message of a good server to a request; empty if it needs none.
fn message(request: &Value) -> String {
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => {
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}"#
        }
        "tools/list" => r#"{"tools":[{"name":"go","inputSchema":{"type":"object"}}]}"#,
        "tools/call" => r#"{"content":[{"type":"text","text":"done"}]}"#,
        _ => return String::new(),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request["id"])
}

/// Bodies and streams of events as real servers write them.
#[test]
fn answers_of_an_mcp_server_over_http() {
    const JSON: &str = "Content-Type: application/json\r\n";
    const EVENTS: &str = "Content-Type: text/event-stream; charset=utf-8\r\n";
    type Write = fn(&str) -> String;
    for (what, write) in [
        ("JSON", (|text| response("200 OK", JSON, text)) as Write),
        ("JSON with a byte order mark", |text| response("200 OK", JSON, &format!("\u{feff}{text}"))),
        ("events", |text| response("200 OK", EVENTS, &format!("event: message\nid: 1\ndata: {text}\n\n"))),
        ("events with a byte order mark", |text| response("200 OK", EVENTS, &format!("\u{feff}data: {text}\n\n"))),
        ("events with CR alone", |text| response("200 OK", EVENTS, &format!(": beat\r\rdata: {text}\r\r"))),
        ("events with CR LF", |text| response("200 OK", EVENTS, &format!("retry: 5\r\n\r\ndata:{text}\r\n\r\n"))),
        ("an event without the empty line", |text| response("200 OK", EVENTS, &format!("data: {text}\n"))),
        ("an event without its newline", |text| response("200 OK", EVENTS, &format!("data: {text}"))),
    ] {
        let url = http(move |_, request| match message(request) {
            text if text.is_empty() => response("202 Accepted", "Content-Length: 0\r\n", ""),
            text => write(&text),
        });
        let (code, out, errors) = called(&url);
        assert_eq!((code, out.trim()), (Some(0), "done"), "{what}: {errors}");
    }
}

/// Servers send clients from `/mcp` to `/mcp/`. The request goes there again, with its body and its token; to another server it does not.
#[test]
fn redirects_of_an_mcp_server() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "s3cret").unwrap();
    let called = |url: &str| {
        run(&mut rigline(&["call", url, "go", "--protocol", "mcp", "--token-file", token.to_str().unwrap()]))
    };
    for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        for is_absolute in [false, true] {
            let url = http(move |head, request| {
                if head.starts_with("POST /mcp/ ") {
                    assert!(head.to_ascii_lowercase().contains("authorization: bearer s3cret"), "{head}");
                    return response("200 OK", "Content-Type: application/json\r\n", &message(request));
                }
                let host =
                    head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("host: ").map(str::to_owned));
                let start = if is_absolute { format!("http://{}", host.unwrap()) } else { String::new() };
                response(status, &format!("Location: {start}/mcp/\r\nContent-Length: 0\r\n"), "")
            });
            let (code, out, errors) = called(&url);
            assert_eq!((code, out.trim()), (Some(0), "done"), "{status}: {errors}");
        }
    }
    let other = http(|_, _| panic!("the token has gone to another server"));
    let url = http(move |_, _| {
        response("307 Temporary Redirect", &format!("Location: {other}\r\nContent-Length: 0\r\n"), "")
    });
    let (code, _, errors) = called(&url);
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("which is not followed"), "{errors}");
    let (code, _, errors) =
        called(&http(|_, _| response("308 Permanent Redirect", "Location: /mcp\r\nContent-Length: 0\r\n", "")));
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("redirects"), "{errors}");
}

/// A server that ends when it is dropped.
struct ServerProcess {
    child: Child,
    port: u16,
    /// Kept, so that what it prints later finds a reader.
    _output: BufReader<ChildStdout>,
}

impl ServerProcess {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new("sh");
        child.args(["-c", "exec \"$0\" \"$@\" 2>&1", RIGLINE]).args(arguments);
        let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (mut line, mut port) = (String::new(), None);
        while port.is_none() {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "{arguments:?}: it has ended");
            port = line
                .split("127.0.0.1:")
                .nth(1)
                .and_then(|rest| rest.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok());
        }
        Self { child, port: port.unwrap(), _output: output }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the system asks the peer of an established connection, from this port to that one, if it is still there (proc(5),
/// `/proc/net/tcp`: the timer 2).
fn is_watched(from: u16, to: u16) -> bool {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap_or_default(), 16).ok();
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        words.len() > 5
            && (port(words[1]), port(words[2]), words[3]) == (Some(from), Some(to), "01")
            && words[5].starts_with("02:")
    })
}

/// A peer whose machine has lost its power says no goodbye: the system finds that out, for every server and every client of lines.
#[test]
fn connections_notice_that_the_peers_machine_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for arguments in [
        &["serve", "sim", "--tcp", "127.0.0.1:0"][..],
        &["serve", "sim", "--http", "127.0.0.1:0", "--protocol", "amplifier"],
        &["jsonrpc", "--tcp", "127.0.0.1:0", "--no-token", "--root", path, "--runs", path],
        &["web", "sim", "--listen", "127.0.0.1:0"],
    ] {
        let server = ServerProcess::start(arguments);
        let client = server.connect();
        let port = client.local_addr().unwrap().port();
        wait_until(&format!("{arguments:?} watches"), || is_watched(server.port, port));
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut monitor = rigline(&["monitor", &format!("tcp:127.0.0.1:{port}")]).stdin(Stdio::piped()).spawn().unwrap();
    let (_stream, client) = listener.accept().unwrap();
    wait_until("a client watches", || is_watched(client.port(), port));
    let _ = monitor.kill();
    let _ = monitor.wait();
}

/// One client too many learns why it is not served.
#[test]
fn a_client_beyond_the_limit_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let server =
        ServerProcess::start(&["jsonrpc", "--tcp", "127.0.0.1:0", "--no-token", "--root", path, "--runs", path]);
    const ASK: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eval.list\"}\n";
    let ask = |stream: &TcpStream| {
        let mut line = String::new();
        let _ = (&*stream).write_all(ASK);
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    };
    let clients: Vec<TcpStream> = (0..256).map(|_| server.connect()).collect();
    // All of them are served by now.
    assert!(ask(clients.last().unwrap()).contains("\"evals\""));
    let mut line = String::new();
    BufReader::new(server.connect()).read_line(&mut line).unwrap();
    assert!(line.contains("too many clients: 256 are connected already"), "{line}");
    drop(clients);
    wait_until("there is room again", || ask(&server.connect()).contains("\"evals\""));
}

/// A call of the legacy era that waits for another client's is not begun for a client that is gone.
#[test]
fn no_mcp_call_is_begun_for_a_client_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let steps = format!(
        "while :; do case $line in *shutdown*) say '{{}}'; exit 0 ;; *slow*) echo x >>'{}.slow'; sleep 2 ;; *go*) echo x >>'{}' ;; esac; say '{{\"success\":true}}'; ask; done",
        begun.display(),
        begun.display()
    );
    let manifest = super::EXTENSION.replace("\"go\":", "\"slow\":{\"params\":{}},\"go\":");
    let target = format!("exec:{}", script(folder.path(), "extension", &format!("{manifest}{steps}\n")).display());
    let server = ServerProcess::start(&["serve", &target, "--http", "127.0.0.1:0", "--protocol", "mcp"]);
    let post = |tool: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
        );
        let mut stream = server.connect();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n",
            server.port,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream
    };
    let whole = |mut stream: TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let slow = post("slow");
    wait_until("the first call runs", || folder.path().join("begun.slow").exists());
    let gone: Vec<TcpStream> = (0..10).map(|_| post("go")).collect();
    // They are received before their clients go.
    thread::sleep(std::time::Duration::from_millis(500));
    drop(gone);
    assert!(whole(slow).starts_with("HTTP/1.1 200"));
    assert!(whole(post("go")).contains("200 OK"));
    assert_eq!(fs::read_to_string(&begun).unwrap(), "x\n", "only the one that waits was begun");
}

/// A program that speaks gevals only may give any answer to requests of other protocols.
#[test]
fn a_gevals_extension_is_found_whatever_it_answers_to_other_protocols() {
    const GEVALS: &str = r#"initialize*'"0.0.1"'"#;
    let manifest =
        r#""result":{"name":"one","version":"1.0.0","protocolVersion":"0.0.1","operations":{"go":{"params":{}}}}"#;
    let error = |code: i32| format!(r#""error":{{"code":{code},"message":"no"}}"#);
    let folder = tempfile::tempdir().unwrap();
    // To MCP's initialize, to what is no request of gevals, and to a second initialize.
    for (number, (to_mcp, to_others, to_second)) in [
        (manifest.to_owned(), error(-32601), error(-32600)),
        (manifest.to_owned(), r#""result":{"success":true}"#.to_owned(), r#""result":null"#.to_owned()),
        (r#""result":{"success":true}"#.to_owned(), r#""result":{"success":true}"#.to_owned(), error(-32600)),
        (r#""result":{}"#.to_owned(), r#""result":{}"#.to_owned(), error(-32600)),
        (r#""result":null"#.to_owned(), r#""result":null"#.to_owned(), error(-32600)),
        (error(-32602), error(-32601), error(-32600)),
        (error(-32000), error(-32000), error(-32600)),
        (error(1), error(1), error(-32600)),
    ]
    .into_iter()
    .enumerate()
    {
        let text = format!(
            r#"#!/bin/sh
begun=
while read -r line; do
  id=${{line#*'"id":'}}; id=${{id%%[!0-9]*}}
  case $begun$line in
    begun*initialize*) reply='{to_second}' ;;
    *{GEVALS}*) reply='{manifest}'; begun=begun ;;
    *initialize*) reply='{to_mcp}'; case $reply in *operations*) begun=begun ;; esac ;;
    *shutdown*) reply='"result":{{}}' ;;
    *execute*) reply='"result":{{"success":true,"message":"done"}}' ;;
    *) reply='{to_others}' ;;
  esac
  printf '%s\n' "{{\"jsonrpc\":\"2.0\",\"id\":$id,$reply}}"
  case $line in *shutdown*) exit 0 ;; esac
done
"#
        );
        let path = script(folder.path(), &format!("extension{number}"), &text);
        let path = path.to_str().unwrap();
        for (protocol, lines, expected) in
            [("amplifier", "{\"op\":\"describe\"}\n", r#""capabilities":["go"]"#), ("mcp", MCP_LIST, r#""name":"go""#)]
        {
            let mut relay = rigline(&["bridge", path, "--protocol", protocol]).stdin(Stdio::piped()).spawn().unwrap();
            relay.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
            let Output { stdout, stderr, .. } = relay.wait_with_output().unwrap();
            let (out, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
            assert!(out.contains(expected), "{number} by {protocol}: {out} {errors}");
        }
    }
}

const MCP_LIST: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    "\n"
);

/// Nothing that is read keeps a command waiting, and nothing is read without a bound.
#[test]
fn tokens_and_projects_are_read_from_files_that_are_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("project/.namel3ss")).unwrap();
    fs::write(at("project/app.ai"), "").unwrap();
    let project = at("project").to_str().unwrap().to_owned();
    let limited = |words: &[&str]| {
        let mut command = Command::new("timeout");
        run(command.args(["-k", "1", "20", RIGLINE]).args(words).stdin(Stdio::null()))
    };
    for name in ["project/namel3ss.toml", "project/.namel3ss/tools.yaml"] {
        rustix::fs::mkfifoat(rustix::fs::CWD, at(name), 0o600.into()).unwrap();
        let (code, _, errors) = limited(&["call", &project, "tool", "--protocol", "namel3ss"]);
        assert_eq!(code, Some(2), "{name}: {errors}");
        assert!(errors.contains("not a regular file"), "{name}: {errors}");
        fs::remove_file(at(name)).unwrap();
        symlink("/dev/zero", at(name)).unwrap();
        let (code, _, errors) = limited(&["call", &project, "tool", "--protocol", "namel3ss"]);
        assert!(code == Some(2) && errors.contains("not a regular file"), "{name}: {errors}");
        fs::remove_file(at(name)).unwrap();
        fs::write(at(name), vec![b'#'; (4 << 20) + 1]).unwrap();
        let (code, _, errors) = limited(&["call", &project, "tool", "--protocol", "namel3ss"]);
        assert!(code == Some(2) && errors.contains("4194304"), "{name}: {errors}");
        fs::remove_file(at(name)).unwrap();
    }
    // A regular file that waits for what it will say; root alone may open it.
    if fs::File::open("/proc/kmsg").is_ok() {
        for words in [
            &["serve", "sim", "--tcp", "127.0.0.1:0", "--token-file", "/proc/kmsg"][..],
            &["jsonrpc", "--tcp", "127.0.0.1:0", "--token-file", "/proc/kmsg"],
            &["call", "http://127.0.0.1:9", "go", "--protocol", "mcp", "--token-file", "/proc/kmsg"],
        ] {
            let (code, _, errors) = limited(words);
            assert!(code == Some(2) && errors.contains("/proc/kmsg"), "{words:?}: {code:?} {errors}");
        }
    }
    // What a shell hands over as a file is taken.
    let mut command = Command::new("bash");
    let text = "exec \"$0\" call http://127.0.0.1:9 go --protocol mcp --token-file <(echo s3cret)";
    let (code, _, errors) = run(command.args(["-c", text, RIGLINE]).stdin(Stdio::null()));
    assert!(code == Some(3) && !errors.contains("regular"), "{code:?} {errors}");
}

/// A link that has taken the place of a recording's file was not written by a recording: that is found before the run, not after it.
#[test]
fn a_link_in_a_recording_is_found_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let recording = at("recording");
    let record = || run(&mut rigline(&["call", "sim", "identify", "--record", recording.to_str().unwrap()]));
    assert_eq!(record().0, Some(0));
    fs::write(at("theirs"), "theirs").unwrap();
    for name in ["report.json", "session.jsonl"] {
        fs::remove_file(recording.join(name)).unwrap();
        symlink("../theirs", recording.join(name)).unwrap();
        let (code, out, errors) = record();
        assert_eq!((code, out.as_str()), (Some(2), ""), "{errors}");
        assert!(errors.contains(name) && errors.contains("nothing was changed"), "{errors}");
        assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs");
        assert!(fs::symlink_metadata(recording.join(name)).unwrap().is_symlink());
        fs::remove_file(recording.join(name)).unwrap();
    }
    assert_eq!(record().0, Some(0));
}

/// A serial port outlives processes: what a board still answers to an earlier one is not a reply to this one, which has
/// ids of its own.
#[test]
fn late_replies_of_an_mcp_board_are_nobodys() {
    let device = super::Device::new(|line, writer| {
        for id in 0..20 {
            let late = r#"{"content":[{"type":"text","text":"another's"}],"protocolVersion":"2025-11-25","tools":[]}"#;
            super::write_line(writer, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{late}}}"#));
        }
        let request: Value = serde_json::from_str(line).unwrap_or_default();
        super::write_line(writer, &message(&request));
    });
    for _ in 0..2 {
        let (code, out, errors) = called(&device.target());
        assert_eq!((code, out.trim()), (Some(0), "done"), "{errors}");
    }
}

/// However a command ends, the program that it runs is asked to end, and can put its hardware in order.
#[test]
fn a_signal_to_a_command_gives_its_program_time_for_the_safe_state() {
    use rustix::process::{Pid, Signal, kill_process};
    let requests = concat!(
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"0.0.1\"}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"execute\",\"params\":{\"operation\":\"go\",\"args\":{},\"context\":{}}}\n",
    );
    for (name, signal) in [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP)] {
        for command in ["call", "bridge", "monitor", "check", "eval"] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            let go = format!(
                "exec 2>/dev/null; trap 'touch {}; exit 0' TERM; touch {}; while :; do sleep 0.1; done",
                at("safe").display(),
                at("ready").display()
            );
            let (head, rest) = super::EXTENSION.split_once("ask\nsay").unwrap();
            let manifest = rest.split("\nask").next().unwrap();
            let text = format!(
                "{head}while ask; do\ncase $line in\n*execute*) {go} ;;\n*initialize*) say{manifest} ;;\n*) say '{{}}' ;;\nesac\ndone\n"
            );
            let target = format!("exec:{}", script(folder.path(), "ext", &text).display());
            let eval = format!(
                "name: e\nconfig: {{ target: '{target}' }}\ntasks: [ {{id: t, steps: [ {{operation: go}} ]}} ]\n"
            );
            fs::write(at("e.yaml"), eval).unwrap();
            let (eval, runs) = (at("e.yaml"), at("runs"));
            let words = match command {
                "check" => vec!["check", &target, "--call", "go"],
                "eval" => vec!["eval", "run", eval.to_str().unwrap(), "--runs", runs.to_str().unwrap()],
                "call" => vec!["call", &target, "go"],
                _ => vec![command, &target],
            };
            let mut child = rigline(&words).stdin(Stdio::piped()).spawn().unwrap();
            // It may have ended already, where it reads nothing.
            let _ = child.stdin.as_mut().unwrap().write_all(requests.as_bytes());
            wait_until(&format!("{command} runs"), || at("ready").exists());
            kill_process(Pid::from_child(&child), signal).unwrap();
            wait_until(&format!("{command} ends on SIG{name}"), || child.try_wait().unwrap().is_some());
            wait_until(&format!("{command}, SIG{name}: the safe state"), || at("safe").exists());
        }
    }
}

/// A process that waits for its end may go: the program still has its time.
#[tokio::test]
async fn a_program_that_was_asked_to_end_has_time_for_the_safe_state() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = format!(
        "{}exec 2>/dev/null; trap 'sleep 0.2; touch {}; exit 0' TERM; touch {}; while :; do sleep 0.1; done",
        super::EXTENSION.strip_suffix("ask\n").unwrap(),
        at("safe").display(),
        at("ready").display()
    );
    let target = format!("exec:{}", script(folder.path(), "ext", &text).display());
    let host = Host::connect(&target.parse().unwrap(), Options::default()).await.unwrap();
    wait_until("it runs", || at("ready").exists());
    host.child().unwrap().terminate();
    drop(host);
    wait_until("the safe state", || at("safe").exists());
}

/// The first signal lets running calls end; the second one does not wait for them.
#[test]
fn a_second_signal_ends_a_server_at_once() {
    use rustix::process::{Pid, Signal, kill_process};
    let mut server = ServerProcess::start(&["serve", "sim", "--http", "127.0.0.1:0", "--protocol", "amplifier"]);
    let mut client = server.connect();
    let body = r#"{"op":"wait-for","args":{"channel":"AUX","min":9,"max":10,"within_ms":25000}}"#;
    let head = format!("POST /invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(format!("{head}{body}").as_bytes()).unwrap();
    thread::sleep(std::time::Duration::from_secs(1));
    let started = std::time::Instant::now();
    let pid = Pid::from_child(&server.child);
    kill_process(pid, Signal::INT).unwrap();
    thread::sleep(std::time::Duration::from_millis(500));
    assert!(server.child.try_wait().unwrap().is_none(), "it finishes what runs");
    kill_process(pid, Signal::INT).unwrap();
    wait_until("it ends", || server.child.try_wait().unwrap().is_some());
    assert!(started.elapsed() < std::time::Duration::from_secs(15));
}

/// A tool that prints without end is ended when its output is over the limit, and not at its time limit.
#[test]
fn a_namel3ss_tool_that_prints_without_end_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let tool = script(folder.path(), "tool", "#!/bin/sh\ncat >/dev/null\nhead -c 17000000 /dev/zero\nexec sleep 600\n");
    let target = format!("exec:{}", tool.display());
    let words = ["call", &target, "go", "--protocol", "namel3ss", "--timeout", "5m"];
    let started = std::time::Instant::now();
    let (code, _, errors) = run(&mut rigline(&words));
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("longer than the limit of 16777216"), "{errors}");
    assert!(started.elapsed() < LONG * 2, "{:?}", started.elapsed());
}

/// Some programs answer every request in an array, as if it had been in a batch.
#[test]
fn a_reply_inside_an_array_is_a_reply() {
    let folder = tempfile::tempdir().unwrap();
    let array = r#"printf '[%s]\n' "$1" | sed "s/ID/$id/""#;
    let (code, out, errors) = called(&server(&folder, array, DONE));
    assert_eq!((code, out.trim()), (Some(0), "done"), "{errors}");
    let text = super::EXTENSION.replace("\"{\\\"jsonrpc", "\"[{\\\"jsonrpc").replace("$1}\"", "$1}]\"");
    let text = format!("{text}echo '[1]'; say '{{\"success\":true,\"message\":\"done\"}}'\nask; say '{{}}'\n");
    let target = format!("exec:{}", script(folder.path(), "array", &text).display());
    let (code, out, errors) = run(&mut rigline(&["call", &target, "go", "--timeout", "10s"]));
    assert_eq!((code, out.trim()), (Some(0), "done"), "{errors}");
}

/// A server over HTTP whose answer to a call never ends: the connection is closed when that is too long, or the call is cancelled.
#[test]
fn an_endless_answer_of_an_mcp_server_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                let (mut length, mut line) = (0, String::new());
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    let lower = std::mem::take(&mut line).to_ascii_lowercase();
                    length = lower.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap());
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let request: Value = serde_json::from_slice(&body).unwrap_or_default();
                let is_endless = request["params"]["arguments"]["endless"] == true;
                if request["method"] == "tools/call" {
                    let head = response("200 OK", "Content-Type: text/event-stream\r\n", "data: ");
                    let mut sent = (&stream).write_all(head.as_bytes());
                    while is_endless && sent.is_ok() {
                        sent = (&stream).write_all(&vec![b'x'; 1 << 16]);
                    }
                    let _ = tell.send(reader.read_to_end(&mut Vec::new()).is_ok() || is_endless);
                    return;
                }
                let reply = match message(&request) {
                    text if text.is_empty() => response("202 Accepted", "Content-Length: 0\r\n", ""),
                    text => response("200 OK", "Content-Type: application/json\r\n", &text),
                };
                let _ = (&stream).write_all(reply.as_bytes());
            });
        }
    });
    let words = ["call", &url, "go", "endless=true", "--protocol", "mcp", "--timeout", "10m"];
    let (code, _, errors) = run(&mut rigline(&words));
    assert!(code != Some(0) && errors.contains("longer than the limit"), "{code:?} {errors}");
    assert_eq!(told.recv_timeout(LONG), Ok(true));
    // One that is silent, and cancelled.
    let mut bridge = rigline(&["mcp", &url]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = bridge.stdin.take().unwrap();
    let mut lines = BufReader::new(bridge.stdout.take().unwrap()).lines();
    let start = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    writeln!(stdin, "{start}").unwrap();
    lines.next().unwrap().unwrap();
    writeln!(stdin, r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"go","arguments":{{}}}}}}"#)
        .unwrap();
    thread::sleep(Duration::from_secs(2));
    writeln!(stdin, r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":2}}}}"#).unwrap();
    let closed = told.recv_timeout(LONG);
    drop(stdin);
    let _ = bridge.wait();
    assert!(closed.is_ok(), "the connection stays open for an answer that nobody waits for");
}

/// A caller that is gone while its server is being started again leaves no half session to the next one.
#[test]
fn a_session_of_mcp_that_was_not_begun_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let text = format!(
        r#"#!/bin/sh
log={log}
echo start >>$log
count=$(grep -c start $log)
while read -r line; do
    id=${{line#*'"id":'}}; id=${{id%%[!0-9]*}}
    say() {{ printf '%s\n' "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}}"; }}
    case $line in
    *'"initialize"'*)
        echo initialize >>$log
        [ $count != 2 ] || sleep 2
        say '{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"fake","version":"1"}}}}' ;;
    *'notifications/initialized'*) echo initialized >>$log ;;
    *'tools/list'*) say '{{"tools":[{{"name":"go","inputSchema":{{"type":"object"}}}}]}}' ;;
    *'tools/call'*)
        echo call >>$log
        say '{{"content":[{{"type":"text","text":"done"}}]}}'
        [ $count != 1 ] || exit 0 ;;
    esac
done
"#,
        log = log.display()
    );
    let target = format!("exec:{}", script(folder.path(), "server", &text).display());
    let mut bridge = rigline(&["mcp", &target]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = bridge.stdin.take().unwrap();
    let mut lines = BufReader::new(bridge.stdout.take().unwrap()).lines();
    let mut ask = |id: u32, method: &str, params: &str| {
        writeln!(stdin, r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#).unwrap();
    };
    let mut reply = |id: u32| loop {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if line["id"] == id {
            return line;
        }
    };
    ask(
        1,
        "initialize",
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#,
    );
    reply(1);
    ask(2, "tools/call", r#"{"name":"go"}"#);
    assert!(reply(2)["result"].is_object());
    let seen = |word: &str| fs::read_to_string(&log).unwrap().lines().filter(|line| *line == word).count();
    // It has ended; the next call starts it again, and is cancelled before it answers.
    thread::sleep(Duration::from_millis(500));
    ask(3, "tools/call", r#"{"name":"go"}"#);
    wait_until("it is started again", || seen("initialize") == 2);
    writeln!(stdin, r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":3}}}}"#).unwrap();
    writeln!(stdin, r#"{{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{{"name":"go"}}}}"#).unwrap();
    assert!(reply(4)["result"].is_object());
    drop(stdin);
    let _ = bridge.wait();
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.ends_with("start\ninitialize\ninitialized\ncall\n"), "{log}");
}
