//! MCP over HTTP: when outputs are switched off, who hears of it, and what a silent call sends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rigline::Effects;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_std::http::{HttpServer, Options};
use rigline_std::{amplifier, namel3ss};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The events, in order.
type Happened = Arc<Mutex<Vec<String>>>;

struct Rail(Happened);

#[derive(rigline::Params)]
#[allow(dead_code, reason = "it is only decoded")]
struct Level {
    /// How long it takes, in milliseconds.
    ms: u32,
}

impl Extension for Rail {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("rail", "1.0.0").safe_state(true).operations(&[
            Operation::new("on", Schema::OBJECT),
            Operation::new("watch", Schema::OBJECT).effects(Effects::READ_ONLY),
            Operation::new("set", Schema::OBJECT),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        if call.operation() == "set" {
            let _: Level = call.args()?;
        }
        let ms = call.args_json().get("ms").and_then(|ms| ms.number()?.to_u32().ok()).unwrap_or(0);
        self.0.lock().unwrap().push(call.operation().to_owned());
        tokio::time::sleep(Duration::from_millis(ms.into())).await;
        cx.done("done")
    }

    async fn safe_state(&mut self) {
        self.0.lock().unwrap().push("safe".to_owned());
    }
}

struct Running {
    address: SocketAddr,
    happened: Happened,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"warning"}"#;

impl Running {
    fn start(options: Options) -> Self {
        let server = HttpServer::bind("127.0.0.1:0", options).unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let happened = Happened::default();
        let for_rail = happened.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server.run_until(move |_| Rail(for_rail), async {
                let _ = stopped.await;
            }))
        });
        Self { address, happened, stop: Some(stop), thread: Some(thread) }
    }

    fn send(&self, method: &str, headers: &str, body: &str) -> TcpStream {
        self.send_to("/mcp", method, headers, body)
    }

    fn send_to(&self, path: &str, method: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
        stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn post(&self, session: &str, body: &str) -> String {
        whole(self.send("POST", &format!("{EVENTS}{session}"), body))
    }

    /// Begins a session, and returns the header that names it.
    fn session(&self) -> String {
        let head = self
            .post("", r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#);
        let name = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned();
        format!("Mcp-Session-Id: {name}\r\n")
    }

    fn happened(&self) -> Vec<String> {
        self.happened.lock().unwrap().clone()
    }

    fn wait_for(&self, what: &str, count: usize) {
        let since = Instant::now();
        while self.happened().iter().filter(|known| *known == what).count() < count {
            assert!(since.elapsed() < Duration::from_secs(20), "{what}: {:?}", self.happened());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Cancels a request.
    fn cancel(&self, session: &str, id: u64) {
        let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        self.post(session, &body.to_string());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        let _ = self.thread.take().unwrap().join();
    }
}

const EVENTS: &str = "Accept: application/json, text/event-stream\r\n";

fn whole(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn call(id: u64, tool: &str, ms: u64) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {"ms": ms}}})
        .to_string()
}

fn modern_call(tool: &str) -> (String, String) {
    let headers = format!("{EVENTS}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n");
    (headers, format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}",{MODERN}}}}}"#))
}

const SAYS: &str = "outputs_switched_off";
const WARNS: &str = "all outputs are off now";

/// SpartanLabsXyz/simmer-sdk#296.
#[test]
fn a_cancelled_call_changes_nothing_for_a_client_that_has_changed_nothing() {
    let server = Running::start(Options::mcp());
    let (one, other) = (server.session(), server.session());
    server.post(&one, &call(1, "on", 0));
    let waiting = server.send("POST", &format!("{EVENTS}{other}"), &call(2, "watch", 60_000));
    server.wait_for("watch", 1);
    server.cancel(&other, 2);
    whole(waiting);
    // One that waits its turn is not begun, so that it has changed nothing either.
    let waiting = server.send("POST", &format!("{EVENTS}{other}"), &call(3, "watch", 60_000));
    server.wait_for("watch", 2);
    let queued = server.send("POST", &format!("{EVENTS}{other}"), &call(4, "on", 0));
    while !server.post(&other, r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#).contains("\"id\":9") {}
    thread::sleep(Duration::from_millis(200));
    server.cancel(&other, 4);
    whole(queued);
    server.cancel(&other, 3);
    whole(waiting);
    assert!(!server.post(&other, &call(5, "watch", 0)).contains(SAYS));
    assert_eq!(server.happened(), ["on", "watch", "watch", "watch"]);

    // Who has switched something on answers for it, though the call only watched. Everybody hears
    // of it.
    let mut listening = BufReader::new(server.send("GET", &format!("{EVENTS}{other}"), ""));
    let waiting = server.send("POST", &format!("{EVENTS}{one}"), &call(6, "watch", 60_000));
    server.wait_for("watch", 4);
    let queued = server.send("POST", &format!("{EVENTS}{other}"), &call(7, "watch", 0));
    thread::sleep(Duration::from_millis(200));
    server.cancel(&one, 6);
    assert!(whole(waiting).contains(WARNS), "the client itself");
    assert!(whole(queued).contains(WARNS), "one that waits");
    let mut line = String::new();
    while !line.contains(WARNS) {
        line.clear();
        assert!(listening.read_line(&mut line).unwrap() > 0, "one that listens");
    }
    assert!(line.contains("\"level\":\"warning\""), "{line}");
    assert_eq!(server.happened().iter().filter(|event| *event == "safe").count(), 1);
    assert!(server.post(&one, &call(8, "watch", 0)).contains(SAYS), "its next reply says so");
    assert!(!server.post(&one, &call(9, "watch", 0)).contains(SAYS), "once");
    assert!(!server.post(&other, &call(9, "watch", 0)).contains(SAYS), "it had nothing on");
}

/// A call whose arguments are refused has changed nothing, and does not count for later ones.
#[test]
fn a_refused_call_changes_nothing_for_another_client() {
    let server = Running::start(Options::mcp());
    let (one, other) = (server.session(), server.session());
    let watch_and_cancel = |count: usize| {
        let waiting = server.send("POST", &format!("{EVENTS}{other}"), &call(4, "watch", 60_000));
        server.wait_for("watch", count);
        server.cancel(&other, 4);
        whole(waiting);
        server.post(&one, &call(5, "watch", 0));
        server.happened().contains(&"safe".to_owned())
    };
    server.post(&one, &call(1, "on", 0));
    let refused = server.post(&other, &call(2, "set", 0).replace("\"ms\":0", "\"x\":1"));
    assert!(refused.contains("\"isError\":true"), "{refused}");
    assert!(!watch_and_cancel(1));
    // It has changed something when it was not refused.
    server.post(&other, &call(3, "set", 0));
    assert!(watch_and_cancel(3));
}

/// Whoever says the same of itself is one client where there are no sessions.
#[test]
fn a_client_of_the_modern_era_is_known_by_its_name() {
    let server = Running::start(Options::mcp());
    let ask = |tool: &str, name: &str, ms: u64| {
        let (headers, body) = modern_call(tool);
        let meta = format!(
            r#""arguments":{{"ms":{ms}}},"_meta":{{"io.modelcontextprotocol/clientInfo":{{"name":"{name}","version":"1"}},"#
        );
        server.send("POST", &headers, &body.replace(r#""_meta":{"#, &meta))
    };
    whole(ask("on", "a", 0));
    drop(ask("watch", "b", 60_000));
    whole(ask("watch", "b", 0));
    assert!(!server.happened().contains(&"safe".to_owned()), "another client's");
    let waiting = ask("watch", "a", 60_000);
    let count = server.happened().iter().filter(|event| *event == "watch").count();
    server.wait_for("watch", count.max(2));
    thread::sleep(Duration::from_millis(200));
    drop(waiting);
    server.wait_for("safe", 1);
    assert!(!whole(ask("watch", "b", 0)).contains(SAYS));
    assert!(whole(ask("watch", "a", 0)).contains(SAYS));
}

#[test]
fn the_end_of_the_last_session_switches_off() {
    for (keeps, count) in [(false, 1), (true, 0)] {
        let server = Running::start(Options::mcp().keep_outputs(keeps));
        let (one, other) = (server.session(), server.session());
        server.post(&one, &call(1, "on", 0));
        assert!(whole(server.send("DELETE", &one, "")).starts_with("HTTP/1.1 204"));
        thread::sleep(Duration::from_millis(100));
        assert_eq!(server.happened(), ["on"], "another session is left");
        whole(server.send("DELETE", &other, ""));
        thread::sleep(Duration::from_millis(300));
        assert_eq!(server.happened().len(), 1 + count);
        // Nothing is on, so that there is nothing to do.
        let third = server.session();
        server.post(&third, &call(1, "watch", 0));
        whole(server.send("DELETE", &third, ""));
        thread::sleep(Duration::from_millis(100));
        assert_eq!(server.happened().iter().filter(|event| *event == "safe").count(), count);
    }
    // Of a session that ends while it runs something.
    let server = Running::start(Options::mcp());
    let one = server.session();
    let waiting = server.send("POST", &format!("{EVENTS}{one}"), &call(1, "on", 60_000));
    server.wait_for("on", 1);
    whole(server.send("DELETE", &one, ""));
    whole(waiting);
    server.wait_for("safe", 1);
}

/// Whatever an Amplifier client does, its protocol does not say that it is there, so that it does
/// not keep on what MCP clients have switched on.
#[test]
fn a_client_of_another_protocol_does_not_take_the_safe_end_from_the_mcp_clients() {
    const ON: &str = r#"{"op":"on","args":{}}"#;
    for ends in ["session", "silence", "server"] {
        for is_before in [true, false] {
            let options = Options::mcp().and(&amplifier::ROUTES).and(&namel3ss::ROUTES);
            let idle = Duration::from_millis(300);
            let server = Running::start(options.idle(Some(idle).filter(|_| ends == "silence")));
            let invoke = || whole(server.send_to("/invoke", "POST", "Content-Type: application/json\r\n", ON));
            let other = is_before.then(invoke);
            let session = server.session();
            server.post(&session, &call(1, "on", 0));
            let other = other.unwrap_or_else(invoke);
            assert!(other.starts_with("HTTP/1.1 200"), "{other}");
            let happened = server.happened.clone();
            match ends {
                "session" => assert!(whole(server.send("DELETE", &session, "")).starts_with("HTTP/1.1 204")),
                "silence" => {}
                _ => drop(server),
            }
            let since = Instant::now();
            while happened.lock().unwrap().last().unwrap() != "safe" {
                assert!(since.elapsed() < Duration::from_secs(5), "{ends}, {is_before}: {happened:?}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    // What only it has switched on stays on, as its protocol has it.
    let options = Options::mcp().and(&amplifier::ROUTES).idle(Some(Duration::from_millis(200)));
    let server = Running::start(options);
    let session = server.session();
    whole(server.send_to("/invoke", "POST", "Content-Type: application/json\r\n", ON));
    whole(server.send("DELETE", &session, ""));
    thread::sleep(Duration::from_millis(600));
    assert_eq!(server.happened(), ["on"]);
}

#[test]
fn silence_switches_off_in_either_era() {
    for (idle, keeps, count) in [(Some(300), false, 1), (Some(300), true, 0), (None, false, 0)] {
        for is_modern in [false, true] {
            let server = Running::start(Options::mcp().idle(idle.map(Duration::from_millis)).keep_outputs(keeps));
            let session = if is_modern { String::new() } else { server.session() };
            let ask = |tool: &str| {
                let (headers, body) = modern_call(tool);
                if is_modern {
                    whole(server.send("POST", &headers, &body))
                } else {
                    server.post(&session, &call(1, tool, 0))
                }
            };
            ask("watch");
            thread::sleep(Duration::from_millis(600));
            assert_eq!(server.happened(), ["watch"], "nothing was on");
            ask("on");
            // Not while a client is heard of.
            for _ in 0..5 {
                thread::sleep(Duration::from_millis(100));
                ask("watch");
            }
            assert!(!server.happened().contains(&"safe".to_owned()), "{:?}", server.happened());
            thread::sleep(Duration::from_millis(900));
            assert_eq!(server.happened().iter().filter(|event| *event == "safe").count(), count, "{is_modern}");
            assert_eq!(ask("watch").contains(SAYS), count > 0);
        }
    }
}

#[test]
fn the_end_of_the_server_switches_off() {
    for (keeps, last) in [(false, "safe"), (true, "on")] {
        let server = Running::start(Options::mcp().keep_outputs(keeps));
        let (headers, body) = modern_call("on");
        whole(server.send("POST", &headers, &body));
        let happened = server.happened.clone();
        // A client that listens does not hold up the end.
        let session = server.session();
        let _listening = server.send("GET", &format!("{EVENTS}{session}"), "");
        let since = Instant::now();
        drop(server);
        assert!(since.elapsed() < Duration::from_secs(10));
        assert_eq!(happened.lock().unwrap().last().unwrap(), last);
    }
}

/// modelcontextprotocol/typescript-sdk#2538.
#[test]
fn the_head_of_a_response_goes_out_after_a_second() {
    let watched = |accept: &str, kind: &str, filler: &str| {
        let server = Running::start(Options::mcp());
        for body in [call(1, "watch", 17_000), format!("[{}]", call(1, "watch", 1_600))] {
            let is_batch = body.starts_with('[');
            let since = Instant::now();
            let mut stream = server.send("POST", accept, &body);
            let mut head = [0; 1024];
            let count = stream.read(&mut head).unwrap();
            let (took, head) = (since.elapsed(), String::from_utf8_lossy(&head[..count]).into_owned());
            assert!(took >= Duration::from_millis(900) && took < Duration::from_millis(1_500), "{took:?}: {head}");
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            assert!(is_batch || head.contains(kind), "{head}");
            let rest = whole(stream);
            assert!(rest.contains("\"text\":\"done\""), "{rest}");
            let chunk = format!("\r\n{filler}");
            assert!(is_batch || rest.contains(&chunk) || head.contains(&chunk), "a word at least every 15 s: {rest:?}");
            if !is_batch && kind == "application/json" {
                let text: String = rest.lines().filter(|line| line.len() > 8 || *line == " ").collect();
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["id"], 1, "{text}");
            }
        }
    };
    // Each with a server of its own, whose calls come one after the other.
    thread::scope(|scope| {
        scope.spawn(|| watched(EVENTS, "text/event-stream", ":\n\n"));
        scope.spawn(|| watched("Accept: application/json\r\n", "application/json", " "));
    });
    let server = Running::start(Options::mcp());
    // What is refused before that keeps its status.
    let unknown = server.send("POST", &format!("{EVENTS}Mcp-Session-Id: nope\r\n"), &call(1, "watch", 5_000));
    assert!(whole(unknown).starts_with("HTTP/1.1 404"));
    let quick = server.send("POST", EVENTS, &call(1, "watch", 0));
    assert!(whole(quick).to_ascii_lowercase().contains("content-type: application/json"));
}

#[test]
fn a_session_that_is_not_known_cannot_listen() {
    let server = Running::start(Options::mcp());
    for (headers, status) in [
        (format!("{EVENTS}Mcp-Session-Id: nope\r\n"), "404"),
        (EVENTS.to_owned(), "405"),
        (server.session(), "405"),
        (format!("{EVENTS}MCP-Protocol-Version: 2026-07-28\r\n"), "405"),
    ] {
        let head = whole(server.send("GET", &headers, ""));
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{headers}: {head}");
    }
    // The end of the session ends what it hears.
    let session = server.session();
    let listening = server.send("GET", &format!("{EVENTS}{session}"), "");
    thread::sleep(Duration::from_millis(200));
    whole(server.send("DELETE", &session, ""));
    assert!(whole(listening).starts_with("HTTP/1.1 200"));
    let _ = Shutdown::Both;
}
