//! An extension of one's own behind a TCP port.

use rigline_test_support as _;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_host::proxy::{Limits, Proxy, Transport};
use rigline_host::tcp::Server;
use rigline_std::net::Token;
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
        let mut server = Server::bind(&"localhost:0".parse().unwrap()).unwrap();
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
fn n_09_an_extension_behind_a_port() {
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
fn n_09_and_a_token() {
    let (address, _, stop) = start(Some("s3cret"));
    let stream = TcpStream::connect(address).unwrap();
    assert_eq!(ask(&stream, "execute", count())["error"]["code"], -32000);
    let stream = TcpStream::connect(address).unwrap();
    assert_eq!(ask(&stream, "authenticate", json!({ "token": "s3cret" }))["result"], json!({}));
    assert_eq!(ask(&stream, "execute", count())["result"]["success"], true);
    stop();
}

/// What a proxy writes reaches its caller through a buffer too.
#[tokio::test]
async fn g_16_buffered_writers_are_flushed() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
    let (dialer, running) =
        rigline_host::local::in_process_once("counter", Counter { calls: 0, made_safe: Arc::default() });
    let proxy = Proxy::over(move |_| Ok(Box::new(dialer.clone())), rigline_host::Options::default(), Limits::default());
    let (ours, theirs) = tokio::io::duplex(1024);
    let (reader, writer) = tokio::io::split(theirs);
    let serving = async {
        proxy.serve(reader, tokio::io::BufWriter::new(writer), Transport::Stream).await;
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
