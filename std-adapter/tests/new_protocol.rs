//! A protocol that neither crate has, defined as values, is served on standard input and output,
//! over TCP and over HTTP.
//!
//! The protocol is the one that the core's tests use; here are its routes over HTTP. This program
//! is its own extension.

use rigline_test_support as _;

#[allow(unreachable_pub, reason = "it is shared with another crate's tests")]
#[path = "../../core/tests/suite/common/ping_pong.rs"]
mod ping_pong;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use ping_pong::PING_PONG;
use rigline::protocol::{AMPLIFIER, GEVALS, Protocol};
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_std::http::{self, Options, Route, Routes};
use rigline_std::server::StreamServer;
use rigline_std::stdio;

static PROTOCOLS: &[&Protocol] = &[&PING_PONG, GEVALS, AMPLIFIER];

static ROUTES: Routes = Routes::new(
    &PING_PONG,
    &[
        Route::request("/ping"),
        Route::line("/measure", r#"{"ping":"measure","with":{"name":"all"}}"#),
        Route::fixed("/alive", r#"{"pong":"alive"}"#),
        Route::answer("/length", |body, manifest| format!(r#"{{"{}":{}}}"#, manifest.name, body.len())),
    ],
    |status, text| format!(r#"{{"pang":"{status}","why":"{}"}}"#, text.replace(['"', '\\'], "'")),
);

struct Rig;

impl Extension for Rig {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("rig", "1.0.0").operations(&[
            Operation::new("measure", Schema::OBJECT),
            Operation::new("fail", Schema::OBJECT),
            Operation::new("wait", Schema::OBJECT),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        #[derive(serde::Deserialize)]
        struct Args<'a> {
            #[serde(default)]
            name: &'a str,
        }
        let Args { name } = call.args()?;
        match call.operation() {
            "measure" => {
                cx.output("name", name)?;
                cx.output("volts", &3)?;
                cx.done("measured")
            }
            "fail" => cx.failed(format_args!("no {name}")),
            _ => {
                tokio::time::sleep(Duration::from_secs(20)).await;
                cx.done("waited")
            }
        }
    }
}

/// Serves as the argument says. A server prints its address on standard error.
fn extension(transport: &str) -> ExitCode {
    match transport {
        "stdio" => return stdio::Stdio::new().protocols(PROTOCOLS).serve(Rig),
        "stdio-alone" => return stdio::Stdio::new().protocol(&PING_PONG).single_document().serve(Rig),
        "http" => {
            let server = http::HttpServer::bind("127.0.0.1:0", Options::new(&ROUTES)).unwrap();
            eprintln!("{}", server.address().unwrap());
            server.run(|_| Rig).unwrap();
        }
        _ => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                eprintln!("{}", listener.local_addr().unwrap());
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (reader, writer) = stream.into_split();
                    StreamServer::new(&mut Rig).protocols(PROTOCOLS).serve_tokio(reader, writer).await.unwrap();
                }
            });
        }
    }
    ExitCode::SUCCESS
}

/// A request, and its answer, if it gets one.
const PINGS: [(&str, Option<&str>); 6] = [
    (r#"{"ping":"measure","with":{"name":"3V3"}}"#, Some(r#"{"pong":{"name":"3V3","volts":3,"message":"measured"}}"#)),
    (r#"{"ping":"measure"}"#, Some(r#"{"pong":{"name":"","volts":3,"message":"measured"}}"#)),
    (r#"{"ping":"fail","with":{"name":"x"}}"#, Some(r#"{"pang":"no x"}"#)),
    (r#"{"ping":"nope"}"#, Some(r#"{"pang":"nobody answers to nope"}"#)),
    (r#"{"pong":{}}"#, None),
    (r#"{"ping":"fail","with":{"name":"y"}}"#, Some(r#"{"pang":"no y"}"#)),
];

/// Lines of the other protocols on the same stream.
const OTHERS: [(&str, Option<&str>); 2] = [
    (r#"{"op":"health"}"#, Some(r#"{"status":"ok"}"#)),
    (r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#, Some(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)),
];

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(transport: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["serve", transport]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(transport: &str) -> (Running, SocketAddr) {
    let mut child = program(transport).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut address).unwrap();
    let running = Running(child);
    (running, address.trim().parse().unwrap())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn lines(pairs: impl Iterator<Item = (&'static str, Option<&'static str>)>) -> (String, Vec<&'static str>) {
    let (requests, answers): (Vec<_>, Vec<_>) = pairs.unzip();
    (requests.join("\n") + "\n", answers.into_iter().flatten().collect())
}

fn run(transport: &str, input: &str) -> String {
    let mut child = program(transport).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn on_stdio() {
    let (requests, answers) = lines(PINGS.into_iter().chain(OTHERS));
    assert_eq!(run("stdio", &requests).lines().collect::<Vec<_>>(), answers);
    // As the one protocol, whose request is all of the input.
    assert_eq!(run("stdio-alone", "{\"ping\":\n\"fail\",\n\"with\":{\"name\":\"z\"}}\n"), "{\"pang\":\"no z\"}\n");
    assert_eq!(run("stdio-alone", r#"{"op":"health"}"#), "{\"pang\":\"nobody answers to \"}\n");
}

fn over_tcp() {
    let (_running, address) = start("tcp");
    for _ in 0..2 {
        let (requests, answers) = lines(PINGS.into_iter().chain(OTHERS));
        let mut stream = connect(address);
        stream.write_all(requests.as_bytes()).unwrap();
        let received: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
        assert_eq!(received, answers);
    }
}

fn send(mut stream: &TcpStream, method: &str, path: &str, body: &str) {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
}

fn receive(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.trim_end().to_owned())
}

fn over_http() {
    let (_running, address) = start("http");
    let ask = |method: &str, path: &str, body: &str| {
        let stream = connect(address);
        send(&stream, method, path, body);
        receive(stream)
    };
    for (request, answer) in PINGS {
        // What is not a request gets an answer, too: each HTTP request has one.
        let answer = answer.unwrap_or(r#"{"pang":"200","why":"the body is not a request"}"#);
        assert_eq!(ask("POST", "/ping", request), (200, answer.to_owned()), "{request}");
    }
    let all = r#"{"pong":{"name":"all","volts":3,"message":"measured"}}"#;
    for (method, path, body, status, expected) in [
        ("POST", "/ping", "{\r\n\"ping\":\n\"measure\"}\n\n", 200, PINGS[1].1.unwrap()),
        ("POST", "/measure", "", 200, all),
        ("POST", "/measure", "{}", 200, all),
        ("POST", "/alive", "", 200, r#"{"pong":"alive"}"#),
        ("POST", "/length", "[1, 2]", 200, r#"{"rig":6}"#),
        // Only ping-pong is spoken here.
        ("POST", "/ping", r#"{"op":"health"}"#, 200, r#"{"pang":"nobody answers to "}"#),
        ("POST", "/ping", r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#, 200, r#"{"pang":"nobody answers to "}"#),
        ("POST", "/ping", "{\"ping\":", 400, r#"{"pang":"400""#),
        ("POST", "/length", "", 400, r#"{"pang":"400","why":"the body is empty"}"#),
        ("GET", "/ping", "", 405, r#"{"pang":"405","why":"only POST is allowed here"}"#),
        ("POST", "/", "{}", 404, r#"{"pang":"404","why":"there is nothing at /"#),
    ] {
        let (found, text) = ask(method, path, body);
        assert!(found == status && text.starts_with(expected), "{method} {path} {body}: {found} {text}");
    }
    // The fixed route answers while a call runs.
    let waiting = connect(address);
    send(&waiting, "POST", "/ping", r#"{"ping":"wait"}"#);
    assert_eq!(ask("POST", "/alive", "").0, 200);
    waiting.set_nonblocking(true).unwrap();
    assert!(waiting.peek(&mut [0]).is_err(), "the call ended before the other request was answered");
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, serve, transport] = args.as_slice()
        && serve == "serve"
    {
        return extension(transport);
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || -> Result<(), Failed> {
            test();
            Ok(())
        })
    };
    let trials = vec![
        trial("h_02_a_protocol_of_thirty_lines_on_stdio", on_stdio),
        trial("h_02_a_protocol_of_thirty_lines_over_tcp", over_tcp),
        trial("h_02_a_protocol_of_thirty_lines_over_http", over_http),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
