//! An extension of one's own behind a TCP port.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rigline::Effects;
use rigline::serve::Transport;
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_host::tcp::TcpServer;
use rigline_host::{choose::ProtocolNeed, lines, relay::Relay, target::Target};
use rigline_std::net::Token;
use rigline_std::queue::{Queue, QueueClient, Settings};
use serde_json::{Value, json};
use tokio::sync::oneshot;

struct Counter {
    calls: u32,
    made_safe: Arc<AtomicUsize>,
}

impl Extension for Counter {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest =
            Manifest::new("counter", "1.0.0").operations(&[Operation::new("count", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.calls += 1;
        cx.output("calls", &self.calls)?;
        cx.done("counted")
    }

    async fn safe_state(&mut self) {
        self.made_safe.fetch_add(1, Ordering::SeqCst);
    }
}

fn start(token: Option<&str>) -> (SocketAddr, Arc<AtomicUsize>, impl FnOnce()) {
    let made_safe = Arc::new(AtomicUsize::new(0));
    let counter = Counter { calls: 0, made_safe: made_safe.clone() };
    let (tell, told) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let token = token.map(|token| Token::new(token).unwrap());
    let thread = thread::spawn(move || {
        let mut server = TcpServer::bind(&"localhost:0".parse().unwrap()).unwrap();
        if let Some(token) = token {
            server = server.token(token);
        }
        tell.send(server.addresses().unwrap()[0]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(server.run_until(counter, async {
            let _ = stopped.await;
        }))
    });
    let address = told.recv().unwrap();
    (address, made_safe, move || {
        let _ = stop.send(());
        thread.join().unwrap().unwrap();
    })
}

fn ask(stream: &TcpStream, method: &str, params: Value) -> Value {
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    (&*stream).write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    serde_json::from_str(&reply).unwrap_or_default()
}

fn count() -> Value {
    json!({ "operation": "count", "args": {}, "context": {} })
}

#[test]
fn an_extension_behind_a_port() {
    let (address, made_safe, stop) = start(None);
    let [first, second] = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    assert_eq!(ask(&first, "initialize", json!({ "protocolVersion": "0.0.1" }))["result"]["name"], "counter");
    for expected in ["1", "2"] {
        assert_eq!(ask(&first, "execute", count())["result"]["outputs"]["calls"], expected);
    }
    assert_eq!(ask(&second, "execute", count())["result"]["outputs"]["calls"], "3", "the same extension");
    // A session that is lost leaves a safe extension, and the next client finds the same one.
    drop(first);
    let start = Instant::now();
    while made_safe.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ask(&second, "execute", count())["result"]["outputs"]["calls"], "4");
    // So does a stop with a session open.
    ask(&second, "initialize", json!({ "protocolVersion": "0.0.1" }));
    stop();
    assert_eq!(made_safe.load(Ordering::SeqCst), 2);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_server_with_a_token_asks_for_it() {
    let (address, _, stop) = start(Some("s3cret"));
    let stream = TcpStream::connect(address).unwrap();
    assert_eq!(ask(&stream, "execute", count())["error"]["code"], -32000);
    let stream = TcpStream::connect(address).unwrap();
    assert_eq!(ask(&stream, "authenticate", json!({ "token": "s3cret" }))["result"], json!({}));
    assert_eq!(ask(&stream, "execute", count())["result"]["success"], true);
    stop();
}

/// Output for a client reaches it through a buffer too.
#[tokio::test]
async fn buffered_writers_are_flushed() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
    let (dialer, running) =
        rigline_host::local::in_process_once("counter", Counter { calls: 0, made_safe: Arc::default() });
    let dialer: rigline_host::relay::Dialer = Arc::new(move |_| Ok(Box::new(dialer.clone())));
    let relay =
        Relay::on_demand_over(Target::Sim, Some(dialer), rigline_host::Options::default(), ProtocolNeed::Context)
            .unwrap();
    let settings = Settings {
        remote: Some(Arc::new(relay.remote())),
        ..Settings::of_lines(rigline::protocol::ALL.to_vec(), (8 << 20, 8 << 20))
    };
    let (queue, _ended) = Queue::start_with(settings, relay).unwrap();
    let (queue, client) = (Arc::new(queue), QueueClient::of_process());
    let (ours, theirs) = tokio::io::duplex(1024);
    let (reader, writer) = tokio::io::split(theirs);
    let serving = async {
        let writer = tokio::io::BufWriter::new(writer);
        lines::serve(&queue, client, reader, writer, Transport::Stream, std::future::pending()).await;
    };
    let asking = async {
        let (reader, mut writer) = tokio::io::split(ours);
        let mut lines = tokio::io::BufReader::new(reader).lines();
        for line in [
            "nonsense".to_owned(),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "execute", "params": count() }).to_string(),
        ] {
            writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            let reply = tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await;
            assert!(reply.expect("it stays in the buffer").unwrap().is_some());
        }
    };
    tokio::select! {
        () = serving => unreachable!(),
        () = running => unreachable!(),
        () = asking => {}
    }
}

/// An operation that holds the extension until another one lets go, so that a test decides when a call ends.
struct Held {
    made_safe: Arc<AtomicUsize>,
    configured: Arc<AtomicUsize>,
    let_go: Arc<tokio::sync::Notify>,
}

impl Extension for Held {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("held", "1.0.0").operations(&[
            Operation::new("hold", Schema::OBJECT).effects(Effects::READ_ONLY),
            Operation::new("quick", Schema::OBJECT),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.info(format_args!("{} has begun", call.operation()));
        if call.operation() == "hold" {
            self.let_go.notified().await;
        }
        cx.output("done", call.operation())?;
        Ok(Outcome::DONE)
    }

    async fn configure(&mut self, _: rigline::Config<'_>, _: &mut Context<'_>) -> Result<(), Failure> {
        self.configured.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn safe_state(&mut self) {
        self.made_safe.fetch_add(1, Ordering::SeqCst);
    }
}

/// A server of that over TCP, which ends with the test.
struct Holding {
    address: SocketAddr,
    made_safe: Arc<AtomicUsize>,
    configured: Arc<AtomicUsize>,
    let_go: Arc<tokio::sync::Notify>,
}

impl Holding {
    fn start() -> Self {
        let (made_safe, configured) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let let_go = Arc::new(tokio::sync::Notify::new());
        let held = Held { made_safe: made_safe.clone(), configured: configured.clone(), let_go: let_go.clone() };
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let server = TcpServer::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
            tell.send(server.addresses().unwrap()[0]).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server.run_until(held, std::future::pending()))
        });
        Self { address: told.recv().unwrap(), made_safe, configured, let_go }
    }

    fn connect(&self) -> Line {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Line(BufReader::new(stream))
    }
}

struct Line(BufReader<TcpStream>);

impl Line {
    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The next line that is a reply.
    fn reply(&mut self) -> Value {
        loop {
            let line = self.next();
            if line["method"].is_null() {
                return line;
            }
        }
    }

    fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        self.reply()
    }

    /// Begins the call that holds the extension, and waits until it runs.
    fn hold(&mut self, id: &str) {
        self.send(&execute("hold", id, ""));
        assert!(self.next()["params"]["message"].as_str().unwrap().contains("hold has begun"));
    }
}

fn execute(operation: &str, id: &str, context: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{operation}","args":{{}},"context":{{{context}}}}}}}"#
    )
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_needs_no_extension_is_answered_while_another_client_has_it_in_every_protocol() {
    let server = Holding::start();
    let mut holder = server.connect();
    holder.hold("1");
    for (request, place, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
            "/result/name",
            "held",
        ),
        (r#"{"op":"describe"}"#, "/name", "held"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
            "/result/serverInfo/name",
            "held",
        ),
        (r#"{"jsonrpc":"2.0","id":"x","method":"tools/list"}"#, "/result/tools/0/name", "hold"),
        (r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#, "/id", "x"),
    ] {
        let reply = server.connect().ask(request);
        assert_eq!(reply.pointer(place), Some(&json!(expected)), "{request}: {reply}");
    }
    assert_eq!(server.connect().ask(r#"{"op":"health"}"#)["status"], "ok");
    server.let_go.notify_one();
    assert_eq!(holder.reply()["result"]["outputs"]["done"], "hold");
}

/// Also on one connection: an agent that lists tools, or pings, while its own call runs.
#[test]
fn tools_are_listed_while_a_call_of_the_same_connection_runs() {
    let server = Holding::start();
    let mut client = server.connect();
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold"}}"#);
    assert!(client.next().to_string().contains("hold has begun"));
    assert_eq!(client.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#)["id"], 2);
    assert_eq!(client.ask(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#)["id"], 3);
    // And a call is cancelled by its id, which another connection has too.
    let mut other = server.connect();
    other.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"quick"}}"#);
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(other.reply()["result"]["structuredContent"]["done"], "quick");
    assert_eq!(client.ask(r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#)["id"], 4, "a cancelled call has no reply");
}

#[test]
fn a_time_limit_counts_from_arrival_and_the_answer_says_who_holds_the_extension() {
    let server = Holding::start();
    let mut holder = server.connect();
    holder.hold("1");
    let mut other = server.connect();
    let start = Instant::now();
    let late = other.ask(&execute("quick", "7", r#""timeout":"300ms""#));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!((&late["id"], &late["error"]["code"]), (&json!(7), &json!(-32001)), "{late}");
    let text = late["error"]["message"].as_str().unwrap();
    let address = holder.0.get_ref().local_addr().unwrap().to_string();
    assert!(text.contains("hold") && text.contains(&address), "{text}");
    server.let_go.notify_one();
    assert_eq!(holder.reply()["id"], 1);
}

#[test]
fn other_clients_calls_come_between_the_members_of_a_batch() {
    let server = Holding::start();
    let (mut batcher, mut other) = (server.connect(), server.connect());
    let members: Vec<String> = (0..3).map(|id| execute("hold", &id.to_string(), "")).collect();
    batcher.send(&format!("[{}]", members.join(",")));
    assert!(batcher.next().to_string().contains("hold has begun"));
    other.send(&execute("quick", "9", ""));
    server.let_go.notify_one();
    assert_eq!(other.reply()["id"], 9, "its turn comes after the member that ran");
    for _ in 0..2 {
        assert!(batcher.next().to_string().contains("hold has begun"));
        server.let_go.notify_one();
    }
    let replies = batcher.reply();
    let ids: Vec<&Value> = replies.as_array().unwrap().iter().map(|reply| &reply["id"]).collect();
    assert_eq!(ids, [0, 1, 2], "one reply each, in their order");
}

#[test]
fn a_batch_is_bounded_and_ends_with_its_client() {
    let server = Holding::start();
    let mut client = server.connect();
    let many = vec![execute("quick", "1", ""); 65].join(",");
    assert_eq!(client.ask(&format!("[{many}]"))["error"]["code"], -32600);
    assert_eq!(client.ask("[]")["error"]["code"], -32600);
    let mixed = client.ask(&format!("[1,[{}],{}]", execute("quick", "2", ""), execute("quick", "3", "")));
    let codes: Vec<&Value> = mixed.as_array().unwrap().iter().map(|reply| &reply["error"]["code"]).collect();
    assert_eq!(codes, [&json!(-32600), &json!(-32600), &Value::Null], "{mixed}");
    // The client goes while the first of many runs: the rest does not begin.
    let mut gone = server.connect();
    let members = vec![execute("hold", "1", ""); 40].join(",");
    gone.send(&format!("[{members}]"));
    assert!(gone.next().to_string().contains("hold has begun"));
    drop(gone);
    assert_eq!(client.ask(&execute("quick", "4", ""))["id"], 4, "the extension is free at once");
}

#[test]
fn a_different_configuration_is_refused_while_another_session_is_open() {
    let server = Holding::start();
    let initialize = |config: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"0.0.1","config":{config}}}}}"#
        )
    };
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(first.ask(&initialize(r#"{"a":1}"#))["result"]["name"], "held");
    assert_eq!(second.ask(&initialize(r#"{"a":2}"#))["error"]["code"], -32000);
    assert_eq!(second.ask(&initialize(r#"{"a":1}"#))["result"]["name"], "held");
    assert_eq!(server.configured.load(Ordering::SeqCst), 1, "the same one is not set twice");
    assert_eq!(first.ask(r#"{"jsonrpc":"2.0","id":2,"method":"shutdown"}"#)["result"], json!({}));
    drop(second);
    wait_until("the last session is lost", || server.made_safe.load(Ordering::SeqCst) == 1);
    assert_eq!(first.ask(&initialize(r#"{"a":2}"#))["result"]["name"], "held");
    assert_eq!(server.configured.load(Ordering::SeqCst), 2);
    // A session that was shut down leaves the outputs as they are.
    assert_eq!(first.ask(r#"{"jsonrpc":"2.0","id":2,"method":"shutdown"}"#)["result"], json!({}));
    drop(first);
    let mut third = server.connect();
    assert_eq!(third.ask(&execute("quick", "1", ""))["id"], 1);
    assert_eq!(server.made_safe.load(Ordering::SeqCst), 1);
}

/// Many requests at once: each has one reply, those of a protocol without ids in their order, and a session ends after what came before it.
#[test]
fn what_is_sent_without_waiting_is_answered_once_each() {
    let server = Holding::start();
    let mut client = server.connect();
    let mut writer = client.0.get_ref().try_clone().unwrap();
    let sending = thread::spawn(move || {
        for id in 0..2000 {
            writer.write_all(format!("{}\n", execute("quick", &id.to_string(), "")).as_bytes()).unwrap();
        }
        writer.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"end\",\"method\":\"shutdown\"}\n").unwrap();
    });
    for id in 0..2000 {
        assert_eq!(client.reply()["id"], id);
    }
    assert_eq!(client.reply()["id"], "end");
    sending.join().unwrap();
    let lines: Vec<String> = (0..50)
        .map(|place| match place % 3 {
            0 => r#"{"op":"health"}"#.to_owned(),
            1 => r#"{"op":"quick","args":{}}"#.to_owned(),
            _ => r#"{"op":"none","args":{}}"#.to_owned(),
        })
        .collect();
    let mut client = server.connect();
    client.send(&lines.join("\n"));
    for place in 0..50 {
        let reply = client.reply();
        match place % 3 {
            0 => assert_eq!(reply["status"], "ok", "{place}: {reply}"),
            1 => assert_eq!(reply["result"]["done"], "quick", "{place}: {reply}"),
            _ => assert_eq!(reply["ok"], false, "{place}: {reply}"),
        }
    }
}

/// Some hosts send several calls as one batch, and cancel one of them.
#[test]
fn one_member_of_a_batch_is_cancelled_by_its_id() {
    let server = Holding::start();
    let mut client = server.connect();
    let call = |id: u32, name: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}"}}}}"#)
    };
    let cancel =
        |id: u32| format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    client.send(&format!("[{},{},{},{}]", call(1, "hold"), call(2, "quick"), call(3, "hold"), call(4, "quick")));
    assert!(client.next().to_string().contains("hold has begun"));
    // One that waits, and the one that runs.
    client.send(&cancel(3));
    client.send(&cancel(1));
    let replies = client.reply();
    let ids: Vec<&Value> = replies.as_array().unwrap().iter().map(|reply| &reply["id"]).collect();
    assert_eq!(ids, [2, 4], "a cancelled member has no reply: {replies}");
    assert_eq!(client.ask(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#)["id"], 5, "the connection goes on");
}
