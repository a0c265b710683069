//! The one queue before an extension: who has to wait, for whom, how long, and who never waits.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rigline::json::RawJson;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_std::http::{HttpServer, Options};
use rigline_std::queue::{Line, Queue, Settings};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The calls that have run, in order.
type Ran = Arc<Mutex<Vec<String>>>;

struct Bench(Ran);

impl Extension for Bench {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("bench", "1.0.0").operations(&[
            Operation::new("wait", Schema::OBJECT),
            Operation::new("long", Schema::OBJECT),
            Operation::new("report", Schema::OBJECT),
            Operation::new("chatter", Schema::OBJECT),
            Operation::new("left", Schema::OBJECT),
            Operation::new("raw", Schema::OBJECT),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let number =
            |name: &str| call.args_json().get(name).and_then(|value| value.number()?.to_u32().ok()).unwrap_or(0);
        let name = call.args_json().get("name").and_then(|name| name.text()).map(|name| name.to_string());
        self.0.lock().unwrap().push(format!("{} {}", call.operation(), name.unwrap_or_default()));
        match call.operation() {
            "wait" => {
                tokio::time::sleep(Duration::from_millis(number("ms").into())).await;
                cx.done("waited")
            }
            "long" => cx.done("x".repeat(number("bytes") as usize).as_str()),
            "report" => {
                cx.progress(1, Some(2), "half");
                tokio::time::sleep(Duration::from_millis(50)).await;
                cx.done("reported")
            }
            "chatter" => {
                for _ in 0..number("lines") {
                    cx.info("x".repeat(1000).as_str());
                }
                self.0.lock().unwrap().push("chattered".into());
                cx.done("enough")
            }
            "left" => {
                let left = cx.deadline().map(|deadline| (deadline.as_nanos() - cx.now().as_nanos()) / 1_000_000);
                cx.output("left", &left)?;
                Ok(Outcome::DONE)
            }
            _ => {
                let text = call.args_json().as_str().to_owned();
                cx.output("raw", &RawJson::from_checked_str(&text).map_err(|_| Failure::UNKNOWN_OPERATION)?)?;
                Ok(Outcome::DONE)
            }
        }
    }
}

struct Running {
    address: SocketAddr,
    ran: Ran,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    fn start(options: Options) -> Self {
        let server = HttpServer::bind("127.0.0.1:0", options).unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let ran = Ran::default();
        let for_bench = ran.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server.run_until(move |_| Bench(for_bench), async {
                let _ = stopped.await;
            }))
        });
        Self { address, ran, stop: Some(stop), thread: Some(thread) }
    }

    fn begin(&self, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json, text/event-stream\r\n{headers}"
        );
        stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> (String, String) {
        answer(self.begin(path, headers, body))
    }

    /// Begins a session of MCP, and returns the header that names it.
    fn session(&self) -> String {
        let (head, _) = self.post("/mcp", "", &mcp("0", "initialize", &json!({"protocolVersion": "2025-03-26"})));
        let name = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned();
        format!("Mcp-Session-Id: {name}\r\n")
    }

    fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }

    fn wait_until_runs(&self, what: &str) {
        let since = Instant::now();
        while !self.ran().iter().any(|ran| ran == what) {
            assert!(since.elapsed() < Duration::from_secs(20), "{what} does not run: {:?}", self.ran());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        let _ = self.thread.take().unwrap().join();
    }
}

/// Head and body of a response.
fn answer(mut stream: TcpStream) -> (String, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    (head.to_owned(), body.to_owned())
}

fn mcp(id: &str, method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn call(id: &str, name: &str, arguments: &Value) -> String {
    mcp(id, "tools/call", &json!({ "name": name, "arguments": arguments }))
}

fn namel3ss(tool: &str, payload: &Value, timeout_ms: u32) -> String {
    json!({"protocol_version": 1, "tool": tool, "entry": "t", "payload": payload, "timeout_ms": timeout_ms}).to_string()
}

#[test]
fn a_time_limit_counts_from_arrival_and_the_answer_says_who_holds_the_extension() {
    let server = Running::start(Options::namel3ss());
    let held = server.begin("/tools", "", &namel3ss("wait", &json!({"ms": 1500}), 10_000));
    server.wait_until_runs("wait ");
    let since = Instant::now();
    let (head, body) = server.post("/tools", "", &namel3ss("left", &json!({}), 300));
    let waited = since.elapsed();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(waited >= Duration::from_millis(290) && waited < Duration::from_millis(1300), "{waited:?}");
    assert!(
        body.contains("TimeoutError") && body.contains("wait has run for") && body.contains("127.0.0.1:"),
        "{body}"
    );
    assert!(answer(held).1.contains("waited"));
    assert_eq!(server.ran(), ["wait "], "what has left the queue does not run later");
}

#[test]
fn what_is_left_of_a_time_limit_goes_to_the_extension() {
    let server = Running::start(Options::namel3ss());
    let left = |body: &str| {
        let reply: Value = serde_json::from_str(body).unwrap();
        reply["result"]["left"].as_u64().unwrap_or_else(|| panic!("{body}"))
    };
    let alone = left(&server.post("/tools", "", &namel3ss("left", &json!({}), 9000)).1);
    assert!((5000..=9000).contains(&alone), "{alone}");
    let held = server.begin("/tools", "", &namel3ss("wait", &json!({"ms": 700}), 10_000));
    server.wait_until_runs("wait ");
    thread::sleep(Duration::from_millis(50));
    let waited = left(&server.post("/tools", "", &namel3ss("left", &json!({}), 9000)).1);
    assert!(waited <= 8500, "{waited}");
    drop(held);
}

#[test]
fn clients_have_their_turns_one_after_the_other() {
    let server = Running::start(Options::mcp());
    let (one, other) = (server.session(), server.session());
    let mut open = vec![server.begin("/mcp", &one, &call("1", "wait", &json!({"ms": 600, "name": "first"})))];
    server.wait_until_runs("wait first");
    for name in ["a1", "a2", "a3"] {
        open.push(server.begin("/mcp", &one, &call("1", "wait", &json!({"name": name}))));
        thread::sleep(Duration::from_millis(60));
    }
    open.push(server.begin("/mcp", &other, &call("1", "wait", &json!({"name": "b1"}))));
    open.into_iter().for_each(|stream| assert!(answer(stream).1.contains("waited")));
    assert_eq!(server.ran(), ["wait first", "wait a1", "wait b1", "wait a2", "wait a3"]);
}

#[test]
fn what_needs_no_extension_never_waits_and_keeps_no_memory() {
    fn memory() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
    }
    const ROUNDS: usize = 5;
    // Ten thousand in the slow test of .ci/long; each took as many bytes as a reply may have.
    let count = std::env::var("RIGLINE_LISTS").ok().and_then(|count| count.parse().ok()).unwrap_or(500);
    let server = Running::start(Options::mcp().reply_limit(8 << 20).stop_timeout(Duration::from_millis(100)));
    let mut held = server.begin("/mcp", "", &call("1", "wait", &json!({"ms": 600_000})));
    server.wait_until_runs("wait ");
    let list = mcp("7", "tools/list", &json!({}));
    assert!(server.post("/mcp", "", &list).1.contains("\"name\":\"report\""));
    let since = Instant::now();
    let growths = [0; ROUNDS].map(|_| {
        let before = memory();
        for _ in 0..count / ROUNDS {
            assert!(server.post("/mcp", "", &list).1.contains("\"id\":7"));
        }
        memory().saturating_sub(before)
    });
    let took = since.elapsed();
    // Other tests of this process take memory meanwhile, but not in each round.
    assert!(growths.into_iter().min() < Some(20 << 20), "{growths:?} bytes for {} lists each", count / ROUNDS);
    println!("{count} lists in {took:?}, {growths:?} bytes");
    for method in ["ping", "initialize"] {
        assert!(
            server
                .post("/mcp", "", &mcp("8", method, &json!({"protocolVersion": "2025-03-26"})))
                .1
                .contains("\"id\":8")
        );
    }
    // Its response may have begun, since that takes more than a second on a busy machine.
    held.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut begun = Vec::new();
    assert!(held.read_to_end(&mut begun).is_err(), "the call is out all the time");
    assert!(!String::from_utf8_lossy(&begun).contains("\"result\""), "the call is out all the time");
}

#[test]
fn equal_ids_and_tokens_of_two_clients_are_not_mixed_up() {
    let server = Running::start(Options::mcp());
    let report = |id: &str, token: &str| {
        let params = json!({"name": "report", "arguments": {}, "_meta": {"progressToken": "TOKEN"}}).to_string();
        format!(
            r#"{{"params":{},"method":"tools/call","id":{id},"jsonrpc":"2.0"}}"#,
            params.replace("\"TOKEN\"", token)
        )
    };
    let pairs =
        [(r#""a\u0062""#, r#""t\u0031""#), (r#""a\u0062""#, r#""t\u0031""#), ("-7", "7"), ("9007199254740993", "0")];
    let open: Vec<_> = pairs.map(|(id, token)| server.begin("/mcp", "", &report(id, token))).into_iter().collect();
    for ((id, token), stream) in pairs.into_iter().zip(open) {
        let (head, body) = answer(stream);
        assert!(head.contains("text/event-stream"), "{head}");
        assert_eq!(body.matches(&format!("\"progressToken\":{token},")).count(), 1, "as it came: {body}");
        assert_eq!(
            body.matches(&format!("\"jsonrpc\":\"2.0\",\"id\":{id},\"result\"")).count(),
            1,
            "as it came: {body}"
        );
        assert_eq!(body.matches("event: message").count(), 2, "{body}");
    }
}

#[test]
fn a_batch_is_bounded_in_members_and_in_bytes() {
    let server = Running::start(Options::mcp().reply_limit(10_000));
    let batch = |members: Vec<String>| format!("[{}]", members.join(","));
    let (_, body) =
        server.post("/mcp", "", &batch((0..65).map(|id| call(&id.to_string(), "wait", &json!({}))).collect()));
    assert!(body.contains("more than 64 members"), "{body}");
    assert_eq!(server.ran(), [""; 0]);
    let long: Vec<_> = (0..9).map(|id| call(&id.to_string(), "long", &json!({"bytes": 4000}))).collect();
    let (_, body) = server.post("/mcp", "", &batch(long));
    let replies: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let replies = replies.as_array().unwrap();
    assert!(body.len() < 13_000, "{}", body.len());
    assert_eq!(
        replies.iter().map(|reply| reply["id"].as_u64().unwrap()).collect::<Vec<_>>(),
        (0..9).collect::<Vec<_>>()
    );
    assert!(replies[0].get("result").is_some() && replies[8]["error"]["message"].to_string().contains("10000 bytes"));
    assert!(server.ran().len() < 9, "what cannot be answered is not run: {:?}", server.ran());
}

#[test]
fn other_clients_come_between_a_batchs_members_and_it_ends_with_its_client() {
    let server = Running::start(Options::mcp());
    let member = |name: &str| call("1", "wait", &json!({"ms": 300, "name": name}));
    let batch = format!("[{},{},{}]", member("b1"), member("b2"), member("b3"));
    let sent = server.begin("/mcp", "", &batch);
    server.wait_until_runs("wait b1");
    let other = server.begin("/mcp", "", &call("1", "wait", &json!({"name": "other"})));
    assert!(answer(other).1.contains("waited"));
    server.wait_until_runs("wait b2");
    drop(sent);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(server.ran(), ["wait b1", "wait other", "wait b2"]);
}

#[test]
fn the_time_limits_of_a_batchs_members_count_from_its_arrival() {
    let server = Running::start(Options::mcp());
    let limited = |id: &str, limit: u32| {
        let meta = json!({"rigline/timeoutMs": limit});
        mcp(id, "tools/call", &json!({"name": "left", "arguments": {}, "_meta": meta}))
    };
    let batch = format!("[{},{},{}]", call("1", "wait", &json!({"ms": 400})), limited("2", 200), limited("3", 20_000));
    let (_, body) = server.post("/mcp", "", &batch);
    let replies: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    assert_eq!(replies[1]["result"]["_meta"]["rigline/kind"], "timeout", "{body}");
    assert!(replies[1].to_string().contains("the time limit passed"), "{body}");
    let left = replies[2]["result"]["structuredContent"]["left"].as_u64().unwrap();
    assert!((1..=19_600).contains(&left), "{body}");
    assert_eq!(server.ran(), ["wait ", "left "], "what is late does not run");
}

#[test]
fn a_batchs_member_that_waits_can_be_cancelled() {
    let server = Running::start(Options::mcp());
    let session = server.session();
    let other = server.session();
    let member = |id: &str, name: &str| call(id, "wait", &json!({"ms": 400, "name": name}));
    let batch = format!("[{},{},{}]", member("1", "b1"), member("2", "b2"), member("3", "b3"));
    let sent = server.begin("/mcp", &session, &batch);
    server.wait_until_runs("wait b1");
    let cancel = |id: u32| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    server.post("/mcp", &other, &cancel(3).to_string());
    server.post("/mcp", &session, &cancel(2).to_string());
    let (_, body) = answer(sent);
    let replies: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let ids: Vec<_> = replies.as_array().unwrap().iter().map(|reply| reply["id"].clone()).collect();
    assert_eq!(ids, [1, 3], "{body}");
    assert_eq!(server.ran(), ["wait b1", "wait b3"]);
}

#[test]
fn each_member_of_a_batch_has_a_reply_though_the_queue_is_full() {
    let server = Running::start(Options::mcp().queue(1).stop_timeout(Duration::from_millis(100)));
    let _held = server.begin("/mcp", "", &call("9", "wait", &json!({"ms": 600_000})));
    server.wait_until_runs("wait ");
    let member = call("2", "report", &json!({}));
    let list = |id: &str| mcp(id, "tools/list", &json!({}));
    let (_, body) = server.post("/mcp", "", &format!("[{},{member},{}]", list("1"), list("3")));
    let replies: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let ids: Vec<_> = replies.as_array().unwrap().iter().map(|reply| reply["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3], "{body}");
    assert!(replies[1]["error"]["message"].to_string().contains("too many requests"), "{body}");
    // Where nothing has run, the client may send all of it again.
    let (head, _) = server.post("/mcp", "", &format!("[{member}]"));
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_eq!(server.ran(), ["wait "]);
}

/// An extension that has a safe state.
struct Safe;

impl Extension for Safe {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("safe", "1.0.0").safe_state(true);
        &MANIFEST
    }

    async fn call(&mut self, _call: Call<'_>, _cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        Ok(Outcome::DONE)
    }
}

#[tokio::test]
async fn lines_for_a_client_that_only_listens_are_bounded_and_counted() {
    let settings = Settings::of_lines(vec![&rigline::protocol::MCP], (1000, 1000));
    let (queue, _ended) = Queue::start_with(settings, Safe).unwrap();
    let mut listener = queue.listen(None);
    let switch_off = async |times: usize| {
        for _ in 0..times {
            queue.session_opened();
            queue.session_closed(true);
            queue.settled().await;
        }
    };
    switch_off(70).await;
    let text = |line: Option<Line>| match line {
        Some(Line::Notification(line) | Line::Reply(line)) => String::from_utf8(line).unwrap(),
        None => String::new(),
    };
    for place in 0..64 {
        let line = text(listener.recv().await);
        assert!(line.contains("all outputs are off"), "{place}: {line}");
    }
    assert!(listener.try_recv().is_err());
    switch_off(1).await;
    let (count, line) = (text(listener.recv().await), text(listener.recv().await));
    assert!(count.contains("6 ") && count.contains("dropped"), "{count}");
    assert!(line.contains("all outputs are off"), "{line}");
}

/// White space between tokens is a line break wherever JSON allows one.
#[test]
fn line_breaks_in_a_request_break_no_line() {
    let spaced = |text: &str| {
        let mut spread = String::new();
        let (mut in_string, mut escaped) = (false, false);
        for char in text.chars() {
            let is_token = !in_string && "{}[]:,".contains(char);
            if is_token {
                spread.push_str("\r\n");
            }
            spread.push(char);
            if is_token {
                spread.push('\n');
            }
            (in_string, escaped) = (in_string != (char == '"' && !escaped), in_string && char == '\\' && !escaped);
        }
        spread
    };
    let amplifier = Running::start(Options::amplifier());
    let (_, body) =
        amplifier.post("/invoke", "", &spaced(r#"{"op":"raw","args":{"a":[1,{"b\"":2}]},"id":{"x":[1,2]}}"#));
    assert_eq!(body.matches('\n').count(), 1, "{body:?}");
    let reply: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&reply["id"], &reply["result"]["raw"]),
        (&json!({"x": [1, 2]}), &json!({"a": [1, {"b\"": 2}]})),
        "{body}"
    );
    let mcp_server = Running::start(Options::mcp());
    let (_, body) = mcp_server.post("/mcp", "", &spaced(&call("1", "raw", &json!({"a": [1, {"b": 2}]}))));
    assert!(!body.contains('\n'), "{body:?}");
    let namel3ss_server = Running::start(Options::namel3ss());
    let (_, body) = namel3ss_server.post("/tools", "", &spaced(&namel3ss("raw", &json!({"a": [1, {"b": 2}]}), 5000)));
    assert_eq!(body.matches('\n').count(), 1, "{body:?}");
}

/// The output for a client that does not read is bounded, and the client hears how much it has
/// missed before it gets its reply.
#[test]
fn logs_for_a_client_that_does_not_read_are_dropped_and_counted() {
    const LINES: usize = 30_000;
    let running = Running::start(Options::mcp());
    let chatter = call("1", "chatter", &json!({ "lines": LINES }));
    let stream = running.begin("/mcp", "", &chatter);
    running.wait_until_runs("chattered");
    let (_, body) = answer(stream);
    let came = body.matches("xxxx\"").count();
    // As data, too, for programs.
    let end = body.get(body.len().saturating_sub(500)..).unwrap_or_default();
    let (_, dropped) = body.rsplit_once("\"dropped\":").unwrap_or_else(|| panic!("{came} lines, and at last {end}"));
    let dropped = dropped.split(|char: char| !char.is_ascii_digit()).next().unwrap().parse::<usize>().unwrap();
    assert!(body.contains(&format!("{dropped} log lines were dropped")), "{dropped}");
    assert!(came < LINES / 2, "{came} lines waited");
    assert_eq!(came + dropped, LINES);
    assert!(body.contains("enough"), "the reply is not dropped");
}
