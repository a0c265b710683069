//! An extension behind HTTP, as clients of all kinds meet it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rigline::Guarantee;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_std::{
    http::{HttpServer, Options},
    net::Token,
};
use tokio::sync::oneshot;

struct Bench(Arc<AtomicUsize>);

impl Extension for Bench {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("bench", "1.2.0").guarantees(&[Guarantee::NoNetwork]).operations(&[
            Operation::new("greet", Schema::OBJECT),
            Operation::new("slow", Schema::OBJECT),
            Operation::new("fail", Schema::OBJECT),
            Operation::new("panic", Schema::OBJECT),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        match call.operation() {
            "greet" => {
                let name = call.args_json().get("name").and_then(|name| name.text());
                cx.done(format_args!("Hello {}", name.map(|name| name.to_string()).unwrap_or_default()))
            }
            "slow" => {
                let ms = call.args_json().get("ms").and_then(|ms| ms.number()?.to_u32().ok()).unwrap_or(100);
                tokio::time::sleep(Duration::from_millis(ms.into())).await;
                cx.done("done")
            }
            "fail" => cx.failed("no power"),
            _ => panic!("as it was told"),
        }
    }
}

struct Running {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    fn start(options: Options) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = calls.clone();
        Self { calls, ..Self::serve(options, move || Bench(count)) }
    }

    fn serve<E: Extension>(options: Options, make: impl FnOnce() -> E + Send + 'static) -> Self {
        let server = HttpServer::bind("127.0.0.1:0", options).unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server.run_until(move |_| make(), async {
                let _ = stopped.await;
            }))
        });
        Self { address, calls: Arc::default(), stop: Some(stop), thread: Some(thread) }
    }

    fn stop(mut self) -> std::io::Result<()> {
        let _ = self.stop.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// Sends pieces, each after a pause, and returns all that comes back until the end.
    fn send(&self, pieces: &[(u64, &str)]) -> String {
        let mut stream = self.connect();
        for (pause, piece) in pieces {
            thread::sleep(Duration::from_millis(*pause));
            stream.write_all(piece.as_bytes()).unwrap();
        }
        read_all(&mut stream)
    }

    fn post(&self, path: &str, body: &str) -> (u16, String) {
        answer(&self.send(&[(0, &post(path, "", body))]))
    }
}

fn read_all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&text)),
        }
    }
    String::from_utf8(text).unwrap()
}

fn post(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Status and body of one response.
fn answer(text: &str) -> (u16, String) {
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{text:?}"));
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.trim_end().to_owned()).unwrap_or_default())
}

const GREETED: &str = r#"{"ok":true,"result":{"message":"Hello Ada"}}"#;
const GREET: &str = r#"{"op":"greet","args":{"name":"Ada"}}"#;

/// A byte-order mark, and the choice between a status and `ok:false`, among the rest.
/// Reports: modelcontextprotocol/kotlin-sdk#956, modelcontextprotocol/typescript-sdk#2790,
/// open-metadata/OpenMetadata#32213, czlonkowski/n8n-mcp#994.
#[test]
fn amplifier() {
    let server = Running::start(Options::amplifier());
    for (path, body, status, expected) in [
        ("/health", "", 200, r#"{"status":"ok"}"#),
        ("/health", "{}", 200, r#"{"status":"ok"}"#),
        ("/health", "{", 400, ""),
        ("/invoke", GREET, 200, GREETED),
        ("/invoke", "{\n  \"op\": \"greet\",\r\n  \"args\": {\"name\": \"Ada\"}\n}\n", 200, GREETED),
        ("/invoke", "\u{FEFF}{\"op\":\"greet\",\"args\":{\"name\":\"Ada\"}}", 200, GREETED),
        (
            "/invoke",
            r#"{"op":"greet","args":{"name":"Ada"},"session_id":"s","id":7}"#,
            200,
            r#"{"id":7,"ok":true,"result":{"message":"Hello Ada"}}"#,
        ),
        ("/invoke", r#"{"op":"fail"}"#, 200, r#"{"ok":false,"error":{"code":"internal","message":"no power"}}"#),
        (
            "/invoke",
            r#"{"op":"nope"}"#,
            200,
            r#"{"ok":false,"error":{"code":"unsupported_op","message":"Unknown operation: nope"}}"#,
        ),
        ("/invoke", "{}", 200, r#"{"ok":false,"error":{"code":"bad_request","message":"op: required, but missing"}}"#),
        ("/invoke", "[1]", 200, r#"{"ok":false,"error":{"code":"bad_request","message":"op: required, but missing"}}"#),
        (
            "/invoke",
            "null",
            200,
            r#"{"ok":false,"error":{"code":"bad_request","message":"op: required, but missing"}}"#,
        ),
        ("/invoke", r#"{"op":"greet"}{"op":"greet"}"#, 400, ""),
        ("/invoke", "{\"op\":\"gr\neet\"}", 400, ""),
        ("/invoke", r#"{"op":"greet","args":{"t":NaN}}"#, 400, ""),
        ("/invoke", "", 400, r#"{"ok":false,"error":{"code":"bad_request","message":"the body is empty"}}"#),
        ("/nope", "{}", 404, ""),
        ("/invoke/", "{}", 404, ""),
    ] {
        let (got, text) = server.post(path, body);
        assert_eq!(got, status, "{path} {body}: {text}");
        if !expected.is_empty() {
            assert_eq!(text, expected, "{path} {body}");
        }
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{path} {body}: {text}");
    }
    let (_, description) = server.post("/describe", "");
    let description: serde_json::Value = serde_json::from_str(&description).unwrap();
    assert_eq!(description["capabilities"], serde_json::json!(["greet", "slow", "fail", "panic"]));
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let text = server.send(&[(0, &format!("{method} /invoke HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))]);
        assert!(text.starts_with("HTTP/1.1 405"), "{text}");
        assert!(text.to_lowercase().contains("\r\nallow: post\r\n"), "{text}");
    }
    server.stop().unwrap();
}

#[test]
fn namel3ss() {
    let server = Running::start(Options::namel3ss().path("/my/tools"));
    let call = |tool: &str, payload: &str, more: &str| {
        let body = format!(
            r#"{{"protocol_version": 1, "tool_name": "{tool}", "kind": "python", "entry": "tools.sample_tool:greet", "payload": {payload}, {more}"trace_id": "uuid", "project": {{ "app_root": "/path/to/app", "flow": "demo" }} }}"#
        );
        let (status, text) = server.post("/my/tools", &body);
        assert_eq!(status, 200);
        text
    };
    let hello = r#"{"ok":true,"protocol_version":1,"result":{"message":"Hello Ada"}}"#;
    assert_eq!(call("greet", r#"{"name":"Ada"}"#, ""), hello);
    assert!(call("fail", "{}", "").contains(r#""error":{"type":"OperationFailed","message":"no power"}"#));
    assert!(call("slow", r#"{"ms":5000}"#, r#""timeout_ms": 50, "#).contains(r#""type":"TimeoutError""#));
    assert!(call("nope", "{}", "").contains(r#""type":"UnknownTool""#));
    assert_eq!(server.post("/tools", "{}").0, 404);
    assert_eq!(server.post("/my/tools", "{").0, 400);
    let handshake = |body: &str| server.post("/capabilities/handshake", body);
    let (status, text) = handshake(
        r#"{ "protocol_version": 1, "tool_name": "greet", "runner": "service", "required_guarantees": { "no_network": true, "secrets_allowed": ["K"] } }"#,
    );
    assert_eq!(status, 200);
    assert!(text.starts_with(r#"{"ok":true,"enforcement":"enforced","supported_guarantees":{"#), "{text}");
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["service_version"], "1.2.0");
    assert_eq!(
        answer["supported_guarantees"],
        serde_json::json!({"no_network": true, "no_filesystem_write": false, "no_filesystem_read": false,
            "no_subprocess": false, "no_env_read": false, "no_env_write": false, "secrets_allowed": ["K"]})
    );
    for body in
        ["{}", "[]", r#"{"protocol_version":2,"tool_name":"greet"}"#, r#"{"protocol_version":1,"tool_name":"x"}"#]
    {
        let (status, text) = handshake(body);
        assert!(status == 200 && text.starts_with(r#"{"ok":false,"#), "{body}: {text}");
    }
    for bad in ["tools", "", "/a b", "/a?b", "/{a}", "/é", "/capabilities/handshake"] {
        assert!(HttpServer::bind("127.0.0.1:0", Options::namel3ss().path(bad)).is_err(), "{bad}");
    }
    server.stop().unwrap();
    let server = Running::start(Options::namel3ss().path("/:my/*tools"));
    assert_eq!(server.post("/:my/*tools", "{}").0, 200);
    assert_eq!(server.post("/your/tools", "{}").0, 404);
    server.stop().unwrap();
}

/// Head and body come apart, byte by byte, or not at all.
/// Reports: logicog/RTLPlayground#375, logicog/RTLPlayground#110, DVMProject/dvmhost#54.
#[test]
fn a_body_in_pieces() {
    let server = Running::start(Options::amplifier());
    let body = r#"{"op":"greet"}        "#;
    let head = format!(
        "POST /invoke HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let greeted = (200, r#"{"ok":true,"result":{"message":"Hello "}}"#.to_owned());
    assert_eq!(answer(&server.send(&[(0, &head), (200, body)])), greeted);
    let whole = format!("{head}{body}");
    let bytes: Vec<(u64, &str)> = (0..whole.len()).map(|at| (1, &whole[at..=at])).collect();
    assert_eq!(answer(&server.send(&bytes)), greeted);
    let (before, after) = whole.split_at(head.len() - 2);
    assert_eq!(answer(&server.send(&[(0, before), (50, after)])), greeted);
    assert_eq!(server.calls.load(Ordering::SeqCst), 3);
    // Half a body, and the end: never a call.
    let mut stream = server.connect();
    stream.write_all(&whole.as_bytes()[..head.len() + 10]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let text = read_all(&mut stream);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    assert_eq!(server.calls.load(Ordering::SeqCst), 3);
    server.stop().unwrap();
}

/// Reports: yhirose/cpp-httplib#349, jbaldwin/liblifthttp#45, mirage/ocaml-cohttp#426.
#[test]
fn expect_100_continue() {
    let server = Running::start(Options::amplifier().request_limit(1000));
    let start = Instant::now();
    let mut stream = server.connect();
    let request = post("/invoke", "Expect: 100-continue\r\n", GREET);
    let (head, body) = request.split_at(request.len() - GREET.len());
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    assert_eq!(answer(&read_all(&mut stream)), (200, GREETED.to_owned()));
    assert!(start.elapsed() < Duration::from_millis(500));
    // Too large: told at once, without the body.
    let head =
        "POST /invoke HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n";
    assert_eq!(answer(&server.send(&[(0, head)])).0, 413);
    server.stop().unwrap();
}

/// Reports: Cyrax321/SNAGLINE#434, Sophomoresty/gemini-web2api#70, karlseguin/http.zig#170.
#[test]
fn chunked_bodies() {
    let server = Running::start(Options::amplifier().request_limit(200));
    let head = "POST /invoke HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n";
    let chunks: String = GREET.chars().map(|char| format!("1\r\n{char}\r\n")).collect();
    let extended = format!("{:x};a=b\r\n{GREET}\r\n", GREET.len());
    for body in [
        format!("\r\n{chunks}0\r\n\r\n"),
        format!("\r\n{extended}0\r\n\r\n"),
        format!("\r\n{extended}0\r\nTrailer: x\r\n\r\n"),
    ] {
        assert_eq!(answer(&server.send(&[(0, head), (20, &body)])), (200, GREETED.to_owned()), "{body}");
    }
    let long = "x".repeat(201);
    assert_eq!(answer(&server.send(&[(0, &format!("{head}\r\nc9\r\n{long}\r\n0\r\n\r\n"))])).0, 413);
    let calls = server.calls.load(Ordering::SeqCst);
    // RFC 9112 §6.1: two lengths are one too many, whichever goes first.
    for both in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "transfer-ENCODING: chunked\r\ncontent-length:5\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let request = format!("POST /invoke HTTP/1.1\r\nHost: x\r\n{both}\r\n{chunks}0\r\n\r\n");
        let text = server.send(&[(0, &request)]);
        assert!(text.starts_with("HTTP/1.1 400"), "{both}: {text}");
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "the connection is closed");
    }
    assert_eq!(server.calls.load(Ordering::SeqCst), calls);
    server.stop().unwrap();
}

#[test]
fn limits_are_exact() {
    let server = Running::start(Options::amplifier().request_limit(200));
    for (length, status) in [(199, 200), (200, 200), (201, 413), (100_000, 413)] {
        let body = format!("{GREET}{}", " ".repeat(length - GREET.len()));
        assert_eq!(server.post("/invoke", &body).0, status, "{length}");
    }
    // A megabyte at least (the sibling texts of Amplifier's protocol text).
    let server = Running::start(Options::amplifier());
    let body = format!(r#"{{"op":"greet","args":{{"name":"{}"}}}}"#, "x".repeat(1 << 20));
    let (status, text) = server.post("/invoke", &body);
    assert!(status == 200 && text.len() > 1 << 20, "{status}");
}

#[test]
fn old_and_odd_clients() {
    let server = Running::start(Options::amplifier());
    // HTTP/1.0, without a Host; header names in any case; one connection for two requests, sent at
    // once.
    let old = format!("POST /invoke HTTP/1.0\r\ncONTENT-lENGTH: {}\r\n\r\n{GREET}", GREET.len());
    assert_eq!(answer(&server.send(&[(0, &old)])), (200, GREETED.to_owned()));
    let one = format!("POST /invoke HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{GREET}", GREET.len());
    let health = post("/health", "", "");
    let text = server.send(&[(0, &format!("{one}{one}{health}"))]);
    assert_eq!(text.matches("HTTP/1.1 200").count(), 3, "{text}");
    assert_eq!(text.matches(GREETED).count(), 2);
    assert!(text.trim_end().ends_with(r#"{"status":"ok"}"#), "in order: {text}");
    // RFC 9112 §3.2.
    assert_eq!(
        answer(&server.send(&[(0, "POST /health HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")])).0,
        400
    );
    for (headers, status) in [
        ("", 200),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 200),
        ("Content-Type: application/json; charset=\"UTF-8\"\r\n", 200),
        ("Content-Type: application/json; charset=utf-16\r\n", 415),
        ("Content-Encoding: gzip\r\n", 415),
        ("Origin: http://localhost\r\n", 200),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        assert_eq!(answer(&server.send(&[(0, &post("/invoke", headers, GREET))])).0, status, "{headers}");
    }
    let rebound = post("/invoke", "", GREET).replace("localhost", "rebound.example:8080");
    assert_eq!(answer(&server.send(&[(0, &rebound)])).0, 403);
    assert!(!server.send(&[(0, "hello\r\n\r\n")]).contains(" 200 "), "what is no HTTP gets no answer of ours");
    server.stop().unwrap();
}

#[test]
fn tokens() {
    let server = Running::start(Options::amplifier().token(Token::new("s3cret").unwrap()));
    let with = |value: &str| server.send(&[(0, &post("/health", &format!("Authorization: {value}\r\n"), ""))]);
    assert_eq!(answer(&with("Bearer s3cret")).0, 200);
    let text = with("Bearer s3creT");
    assert!(text.starts_with("HTTP/1.1 401") && text.to_lowercase().contains("www-authenticate: bearer"), "{text}");
    assert_eq!(server.post("/health", "").0, 401);
}

#[test]
fn slow_clients_are_timed_out() {
    let server = Running::start(Options::amplifier().read_timeout(Duration::from_millis(300)));
    let start = Instant::now();
    let request = post("/invoke", "", GREET);
    let (most, _) = request.split_at(request.len() - 3);
    assert_eq!(answer(&server.send(&[(0, most)])).0, 408);
    let text = server.send(&[(0, "POST /invoke HTTP/1.1\r\nHos")]);
    assert!(!text.contains(" 200 "), "{text}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(server.calls.load(Ordering::SeqCst), 0);
}

/// A client that sends requests and takes no replies does not keep its place.
#[test]
fn clients_that_do_not_read_are_timed_out() {
    let server = Running::start(Options::amplifier().connections(1).read_timeout(Duration::from_millis(500)));
    let mut greedy = server.connect();
    let request = format!(r#"{{"op":"greet","args":{{"name":"{}"}}}}"#, "x".repeat(7 << 20));
    let head = format!("POST /invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", request.len());
    for _ in 0..2 {
        // What was sent before it was given up is enough.
        let _ = greedy.write_all(head.as_bytes()).and_then(|()| greedy.write_all(request.as_bytes()));
    }
    let start = Instant::now();
    assert_eq!(server.post("/health", "").0, 200);
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

/// A hook is acknowledged while its work is held at a gate, and whatever needs no handler is
/// answered.
#[test]
fn a_hook_acknowledges_first() {
    struct Hook(Arc<tokio::sync::Semaphore>, Arc<AtomicUsize>);
    impl Extension for Hook {
        fn manifest(&self) -> &'static Manifest {
            const MANIFEST: Manifest = Manifest::new("hook", "1.0.0").kind(rigline::ModuleKind::Hook);
            &MANIFEST
        }

        async fn call(&mut self, _: Call<'_>, _: &mut Context<'_>) -> Result<Outcome, Failure> {
            Err(Failure::UNKNOWN_OPERATION)
        }

        async fn on_event(&mut self, event: rigline::Event<'_>, _: &mut Context<'_>) {
            assert!(event.event() == "session:end");
            self.0.acquire().await.unwrap().forget();
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (gate, done) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let hook = Hook(gate.clone(), done.clone());
    let server = Running::serve(Options::amplifier(), move || hook);
    let event = r#"{"op":"on_event","args":{"id":"e","ts":1,"event":"session:end","component":"kernel"}}"#;
    assert_eq!(server.post("/invoke", event), (200, r#"{"ok":true,"result":{}}"#.to_owned()));
    assert_eq!(server.post("/health", "").0, 200);
    assert_eq!(done.load(Ordering::SeqCst), 0);
    gate.add_permits(1);
    // It is answered when the work before it is done.
    assert!(server.post("/invoke", r#"{"op":"nope"}"#).1.contains("unsupported_op"));
    let start = Instant::now();
    while done.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < Duration::from_secs(5));
        thread::yield_now();
    }
    server.stop().unwrap();
}

#[test]
fn a_full_queue_is_503() {
    let server = Running::start(Options::amplifier().queue(2));
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..6 {
            let (tell, server) = (tell.clone(), &server);
            scope.spawn(move || tell.send(server.post("/invoke", r#"{"op":"slow","args":{"ms":300}}"#)).unwrap());
        }
    });
    drop(tell);
    let mut statuses: Vec<u16> = told.iter().map(|(status, _)| status).collect();
    statuses.sort_unstable();
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert!((2..6).contains(&served) && statuses.iter().skip(served).all(|status| *status == 503), "{statuses:?}");
    assert_eq!(server.post("/health", "").0, 200);
}

#[test]
fn hundreds_of_connections() {
    let server = Running::start(Options::amplifier());
    let mut streams: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    let request = post("/invoke", "", GREET);
    for (place, stream) in streams.iter_mut().enumerate() {
        stream.write_all(request.as_bytes()).unwrap();
        // Some vanish.
        if place % 10 == 0 {
            stream.shutdown(Shutdown::Both).unwrap();
        }
    }
    for (place, stream) in streams.iter_mut().enumerate() {
        if place % 10 != 0 {
            assert_eq!(answer(&read_all(stream)), (200, GREETED.to_owned()), "{place}");
        }
    }
    server.stop().unwrap();
}

/// Running and waiting requests are finished, and idle connections do not hold the server up.
#[test]
fn a_graceful_stop() {
    let mut server = Running::start(Options::amplifier());
    let _idle = server.connect();
    let mut streams: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(post("/invoke", "", r#"{"op":"slow","args":{"ms":200}}"#).as_bytes()).unwrap();
    }
    thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    server.stop.take().unwrap().send(()).unwrap();
    for stream in &mut streams {
        assert_eq!(answer(&read_all(stream)), (200, r#"{"ok":true,"result":{"message":"done"}}"#.to_owned()));
    }
    server.thread.take().unwrap().join().unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn a_panic_ends_the_server() {
    let mut server = Running::start(Options::amplifier());
    assert_eq!(server.post("/invoke", r#"{"op":"panic"}"#).0, 500);
    let error = server.thread.take().unwrap().join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the handler panicked");
}

/// The extension's own failures have nothing to do with HTTP.
/// Reports: open-metadata/OpenMetadata#32213, czlonkowski/n8n-mcp#994.
#[test]
fn failures_are_200() {
    let server = Running::start(Options::amplifier().check_requires(false));
    assert_eq!(server.post("/invoke", r#"{"op":"fail","args":[]}"#).0, 200);
}

#[test]
fn a_call_whose_client_is_gone_is_not_begun() {
    let server = Running::start(Options::amplifier());
    thread::scope(|scope| {
        let slow = scope.spawn(|| server.post("/invoke", r#"{"op":"slow","args":{"ms":1500}}"#));
        while server.calls.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        // As `curl -m 0.5` does: the connection is closed, and all of it.
        for _ in 0..10 {
            let mut gone = server.connect();
            gone.write_all(post("/invoke", "", r#"{"op":"slow","args":{"ms":2000}}"#).as_bytes()).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        // One that closed its sending half only waits for its answer.
        let mut half = server.connect();
        half.write_all(post("/invoke", "", GREET).as_bytes()).unwrap();
        if cfg!(target_os = "linux") {
            half.shutdown(Shutdown::Write).unwrap();
        }
        assert_eq!(answer(&read_all(&mut half)), (200, GREETED.to_owned()));
        assert_eq!(slow.join().unwrap().0, 200);
    });
    assert_eq!(server.calls.load(Ordering::SeqCst), 2);
    server.stop().unwrap();
}

/// Each request has exactly one answer, whatever the engine makes of it: what is itself an answer,
/// and a refusal that does not fit.
#[test]
fn no_request_wedges_the_server() {
    let server = Running::start(Options::amplifier());
    for body in
        [r#"{"ok":true,"result":{}}"#, r#"{"ok":false,"error":{"code":"oom","message":"m"}}"#, "[]", "1", "null", "{}"]
    {
        let (status, text) = server.post("/invoke", body);
        assert!(status == 200 && text.starts_with(r#"{"ok":false,"#), "{body}: {text}");
        assert_eq!(server.post("/invoke", GREET), (200, GREETED.to_owned()), "after {body}");
    }
    server.stop().unwrap();
    let server = Running::start(Options::namel3ss().reply_limit(600));
    let source = "\\u0001".repeat(64);
    let blocked = format!(
        r#"{{"protocol_version":1,"tool_name":"greet","payload":{{}},"capability_context":{{"guarantees":{{"no_subprocess":true}},"sources":{{"no_subprocess":"{source}"}}}}}}"#
    );
    for body in [blocked.as_str(), r#"{"ok":true,"protocol_version":1,"result":{}}"#, "{}", "[]"] {
        let (status, text) = server.post("/tools", body);
        assert!(status == 200 && text.starts_with(r#"{"ok":false,"#), "{body}: {text}");
        let called = server.post("/tools", r#"{"protocol_version":1,"tool_name":"greet","payload":{"name":"Ada"}}"#);
        assert!(called.1.contains("Hello Ada"), "{called:?}");
    }
    server.stop().unwrap();
}

#[test]
fn refusals_for_namel3ss_have_the_protocols_version() {
    let server = Running::start(Options::namel3ss().token(Token::new("s3cret").unwrap()));
    let authorized = "Authorization: Bearer s3cret\r\n";
    for (status, text) in [
        (401, post("/tools", "", "{}")),
        (404, post("/other", authorized, "{}")),
        (405, post("/tools", authorized, "{}").replace("POST", "PUT")),
        (400, post("/tools", authorized, "{")),
        (400, post("/tools", authorized, "")),
        (403, post("/tools", &format!("{authorized}Origin: http://evil.example\r\n"), "{}")),
        (415, post("/tools", &format!("{authorized}Content-Encoding: gzip\r\n"), "{}")),
        (200, post("/capabilities/handshake", authorized, "{}")),
    ] {
        let (found, body) = answer(&server.send(&[(0, &text)]));
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((found, &body["ok"], &body["protocol_version"]), (status, &false.into(), &1.into()), "{body}");
        assert!(body["error"]["type"].is_string() && body["error"]["message"].is_string(), "{body}");
    }
    server.stop().unwrap();
}

#[test]
fn a_page_of_an_allowed_origin_calls_and_reads_the_answer() {
    let options = Options::amplifier().token(Token::new("s3cret").unwrap()).allow_origin("https://bench.example.org");
    let server = Running::start(options);
    let ask = |method: &str, headers: &str| {
        let body = r#"{"op":"greet","args":{"name":"Ada"}}"#;
        let length = if method == "POST" { body.len() } else { 0 };
        let head = format!(
            "{method} /invoke HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        server.send(&[(0, &format!("{head}{}", &body[..length]))]).to_ascii_lowercase()
    };
    let page = "Origin: https://bench.example.org\r\nSec-Fetch-Site: cross-site\r\n";
    // The browser asks first, without the token.
    let asks = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type\r\n";
    let text = ask("OPTIONS", &format!("{page}{asks}"));
    assert!(text.starts_with("http/1.1 204"), "{text}");
    assert!(text.contains("access-control-allow-headers: authorization,content-type\r\n"), "{text}");
    assert!(text.contains("access-control-allow-methods: get, post, delete, options\r\n"), "{text}");
    let of_mcp = "Access-Control-Request-Method: DELETE\r\nAccess-Control-Request-Headers: mcp-session-id,mcp-protocol-version\r\n";
    assert!(ask("OPTIONS", &format!("{page}{of_mcp}")).contains("mcp-session-id,mcp-protocol-version"));
    let asks_nothing = ask("OPTIONS", &format!("{page}Access-Control-Request-Method: DELETE\r\n"));
    assert!(asks_nothing.contains("access-control-allow-methods: get, post, delete, options\r\n"), "{asks_nothing}");
    let allowed = "access-control-allow-origin: https://bench.example.org\r\n";
    assert!(text.contains(allowed), "{text}");
    let text = ask("POST", &format!("{page}Authorization: Bearer s3cret\r\n"));
    assert!(text.starts_with("http/1.1 200") && text.contains(allowed) && text.contains("hello ada"), "{text}");
    let text = ask("POST", page);
    assert!(text.starts_with("http/1.1 401") && text.contains(allowed), "{text}");
    for method in ["OPTIONS", "POST"] {
        let text = ask(method, &format!("Origin: https://evil.example\r\nAuthorization: Bearer s3cret\r\n{asks}"));
        assert!(text.starts_with("http/1.1 403") && !text.contains("access-control"), "{text}");
    }
    server.stop().unwrap();
}
