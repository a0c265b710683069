//! What a call costs on a running session, beside the same bytes through a bare echo program.
//!
//! `cargo run --release -p rigline-std --example overhead` measures both, turn by turn, over pipes and over TCP, and fails
//! if the median of a call is more than 1.5 times that of the echo. The other side is this program too: a rigline extension in the
//! one case, a loop that reads a line and writes one in the other.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_std::host::{CallContext, Host, Options};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _};

const ROUNDS: usize = 3000;
const MOST: f64 = 1.5;

struct Echo;

impl Extension for Echo {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("echo", "1.0.0").operations(&[Operation::new("go", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.output("millivolts", &3301_u32)?;
        cx.done("3V3 is at 3.301 V")
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["extension"] => return rigline_std::stdio::serve(Echo),
        ["echo", reply] => {
            echo(std::io::stdin().lock(), std::io::stdout(), reply);
            return ExitCode::SUCCESS;
        }
        ["echo-tcp", reply] => {
            serve_tcp(|stream| echo(BufReader::new(stream.try_clone().unwrap()), stream, reply));
            return ExitCode::SUCCESS;
        }
        ["canned"] => {
            serve_tcp(|stream| canned(BufReader::new(stream.try_clone().unwrap()), stream));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(measure())
}

async fn measure() -> ExitCode {
    let program = std::env::current_exe().expect("a program has a path").display().to_string();
    let (request, reply) = the_bytes();
    let mut failed = false;
    // Pipes: a whole extension against a whole echo program.
    let host = Host::connect(&format!("exec:{program} extension").parse().expect("a target"), Options::default()).await;
    let host = host.expect("the extension starts");
    let mut bare = tokio::process::Command::new(&program)
        .args(["echo", &reply])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the echo starts");
    let (mut input, output) = (bare.stdin.take().expect("piped"), bare.stdout.take().expect("piped"));
    failed |= compare("stdio", &host, &mut input, &mut tokio::io::BufReader::new(output), &request).await;
    // TCP: what the host adds, against a server that answers without thinking.
    let (address, _server) = start(&program, &["canned"]);
    let host = Host::connect(&format!("tcp:{address}").parse().expect("a target"), Options::default()).await;
    let host = host.expect("the server answers");
    let (address, _echo) = start(&program, &["echo-tcp", &reply]);
    let stream = tokio::net::TcpStream::connect(address).await.expect("the echo listens");
    stream.set_nodelay(true).expect("a socket takes options");
    let (reader, mut writer) = stream.into_split();
    failed |= compare("tcp", &host, &mut writer, &mut tokio::io::BufReader::new(reader), &request).await;
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Both in turn, so that what else the machine does falls on both. Gives whether the call is too slow.
async fn compare(
    name: &str,
    host: &Host,
    writer: &mut (impl AsyncWrite + Unpin),
    reader: &mut (impl tokio::io::AsyncBufRead + Unpin),
    request: &str,
) -> bool {
    let args = json!({ "channel": "3V3" });
    let (mut calls, mut echoes) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    let mut line = String::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let context = CallContext { workdir: Some("/tmp".into()), ..CallContext::default() };
        let result = host.call("go", &args, context).await.expect("it answers");
        calls.push(started.elapsed());
        assert!(result.is_success());
        let started = Instant::now();
        writer.write_all(request.as_bytes()).await.expect("the echo reads");
        line.clear();
        reader.read_line(&mut line).await.expect("the echo writes");
        echoes.push(started.elapsed());
    }
    let (call, echo) = (median(&mut calls), median(&mut echoes));
    let ratio = call.as_secs_f64() / echo.as_secs_f64();
    println!("{name}: a call takes {call:?}, the bare echo {echo:?}: {ratio:.2}x (at most {MOST}x)");
    ratio > MOST
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A call's request and reply.
fn the_bytes() -> (String, String) {
    let request = r#"{"jsonrpc":"2.0","id":1000,"method":"execute","params":{"operation":"go","args":{"channel":"3V3"},"context":{"workdir":"/tmp","phase":""}}}"#;
    let reply = r#"{"jsonrpc":"2.0","id":1000,"result":{"success":true,"message":"3V3 is at 3.301 V","outputs":{"millivolts":"3301"}}}"#;
    (format!("{request}\n"), reply.to_owned())
}

fn echo(mut input: impl BufRead, mut output: impl Write, reply: &str) {
    let reply = format!("{reply}\n");
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        line.clear();
        if output.write_all(reply.as_bytes()).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

fn canned(mut input: impl BufRead, mut output: impl Write) {
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|read| read > 0) {
        let id: u64 = line.split("\"id\":").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0);
        let result = if line.contains("\"initialize\"") {
            r#"{"name":"echo","version":"1.0.0","protocolVersion":"0.0.1","operations":{"go":{"params":{}}}}"#
        } else {
            r#"{"success":true,"message":"3V3 is at 3.301 V","outputs":{"millivolts":"3301"}}"#
        };
        line.clear();
        if output.write_all(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n").as_bytes()).is_err() {
            return;
        }
    }
}

fn serve_tcp(serve: impl Fn(TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    println!("{}", listener.local_addr().expect("it listens"));
    if let Ok((stream, _)) = listener.accept() {
        stream.set_nodelay(true).expect("a socket takes options");
        serve(stream);
    }
}

/// Ends with its value.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, args: &[&str]) -> (String, Server) {
    let mut child = std::process::Command::new(program)
        .args(args)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it tells its address");
    (line.trim().to_owned(), Server(child))
}
