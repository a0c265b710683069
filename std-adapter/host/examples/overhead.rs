//! The cost of a call on a running session, beside the same bytes through a bare echo program.
//!
//! `cargo run --release -p rigline-host --example overhead [LIMIT]` measures both over pipes and over TCP, and fails if a call takes
//! more than LIMIT (1.5 by default) times as long as the echo, call by call.
//!
//! - *The call*: [`Host::call`] with its arguments as values and its result read, from an extension behind
//!   [`stdio::serve`](rigline_std::stdio::serve), or behind a [`TcpServer`] on a socket as `rigline serve sim` has it. All of it is
//!   what users run: ids, deadlines, checks on both sides.
//! - *The extension alone*: the same line as the call's, written and its reply read by the echo's client.
//! - *The echo*: a program that blocks on `read_until`, and writes a reply of the call's length. Its client is written on tokio,
//!   as the host is, and runs in the same runtime: write the line, await the next one. (A client that blocks its thread in
//!   `read` is faster, whatever it talks to.)
//!
//! The three take turns, call by call, so that what else the machine does falls on all of them; rows of twenty are told too.
//! The bytes are compared: a call's request and reply are as long as the echo's. Times are medians of blocks, ratios medians of
//! the blocks' ratios; and all of it is done five times with new processes, of which the median counts.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_host::target::Target;
use rigline_host::tcp::TcpServer;
use rigline_host::{CallContext, Host, Options, record::transcript::Direction};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// How often all programs are started again: on which processor the system puts them decides more than what they do.
const SEATINGS: usize = 5;
const BLOCKS: usize = 8;
/// Calls of each kind in a block.
const CALLS: usize = 200;
/// How many of a kind go in a row: in turn, which is what the limit is for; and as in a session that does nothing else, where
/// all that runs is warm, and the echo the more so the less it does.
const ROWS: [usize; 2] = [1, 20];
const LIMIT: f64 = 1.5;

/// A call's request and reply, with an id of four digits.
const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1000,"method":"execute","params":{"operation":"go","args":{"channel":"3V3"},"context":{"workdir":"/tmp","phase":""}}}"#;
const REPLY: &str = r#"{"jsonrpc":"2.0","id":1000,"result":{"success":true,"outputs":{"millivolts":"3301"},"message":"3V3 is at 3.301 V"}}"#;

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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let limit = match arguments.first().map(String::as_str) {
        Some("extension") => return rigline_std::stdio::serve(Echo),
        Some("serve") => return runtime().block_on(serve()),
        Some("echo") => return echo(std::io::stdin().lock(), std::io::stdout()),
        Some("echo-tcp") => {
            let stream = accept();
            return echo(BufReader::new(stream.try_clone().expect("a socket is copied")), stream);
        }
        Some(limit) => limit.parse().expect("a limit such as 1.5"),
        None => LIMIT,
    };
    let mut all: [Vec<Compared>; 2] = Default::default();
    for _ in 0..SEATINGS {
        let measured = runtime().block_on(measure());
        all.iter_mut().zip(measured).for_each(|(all, compared)| all.push(compared));
    }
    let [stdio, tcp] = all.map(|all| median(all, |one, other| one.ratio.total_cmp(&other.ratio)));
    let ratios = [stdio.ratio, tcp.ratio];
    println!("call by call, median of {SEATINGS}: stdio {:.2}x, tcp {:.2}x", ratios[0], ratios[1]);
    // As rows of tests/bench/README.md.
    for (wire, Compared { ratio, called, echoed }) in
        [("a child, beside the bare pipe", stdio), ("a TCP server, beside the bare socket", tcp)]
    {
        println!(
            "| a call through `rigline_host::Host` to {wire}, wall clock | echo: {:.1} µs | rigline: {:.1} µs | {ratio:.2}x | at most {LIMIT}x | at most {LIMIT}x |",
            echoed.as_secs_f64() * 1e6,
            called.as_secs_f64() * 1e6,
        );
    }
    if ratios.iter().all(|ratio| *ratio <= limit) {
        ExitCode::SUCCESS
    } else {
        println!("a call must not take more than {limit} times as long as the echo");
        ExitCode::FAILURE
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}

/// How long a call and an echo take, and how many times as long the call takes: each a median.
#[derive(Clone, Copy, Default)]
struct Compared {
    ratio: f64,
    called: Duration,
    echoed: Duration,
}

/// Over pipes and over TCP.
async fn measure() -> [Compared; 2] {
    let program = std::env::current_exe().expect("a program has a path").display().to_string();
    let extension = format!("exec:{program} extension").parse().expect("a target");
    same_bytes(&extension).await;

    let host = Host::connect(&extension, Options::default()).await.expect("the extension starts");
    let (_alone, mut alone) = pipes(&program, "extension");
    let (_bare, mut bare) = pipes(&program, "echo");
    let stdio = compare("stdio", &host, &mut alone, &mut bare).await;

    let (_server, address) = start(&program, "serve");
    let host = Host::connect(&format!("tcp:{address}").parse().expect("a target"), Options::default()).await;
    let host = host.expect("the server answers");
    let mut alone = socket(&address).await;
    let (_bare, address) = start(&program, "echo-tcp");
    let mut bare = socket(&address).await;
    [stdio, compare("tcp", &host, &mut alone, &mut bare).await]
}

async fn call(host: &Host, args: &Value) {
    let context = CallContext { workdir: Some("/tmp".into()), ..CallContext::default() };
    let result = host.call("go", args, context).await.expect("it answers");
    assert_eq!((result.is_success(), result.output("millivolts")), (true, Some("3301")));
}

/// Checks that a call's bytes are the echo's, but for the id.
async fn same_bytes(target: &Target) {
    let seen = Arc::<Mutex<Vec<(Direction, String)>>>::default();
    let mut options = Options::default();
    let traffic = Arc::clone(&seen);
    options.traffic = Some(Arc::new(move |direction, line| {
        let line = String::from_utf8_lossy(line).trim_end().replace("\"id\":2,", "\"id\":1000,");
        traffic.lock().expect("nobody panics").push((direction, line));
    }));
    let host = Host::connect(target, options).await.expect("the extension starts");
    call(&host, &json!({ "channel": "3V3" })).await;
    let seen = seen.lock().expect("nobody panics");
    let sent_and_received = [(Direction::Sent, REQUEST.to_owned()), (Direction::Received, REPLY.to_owned())];
    assert_eq!(seen.get(2..), Some(&sent_and_received[..]));
}

/// Compares a call with the echo, in turn.
async fn compare<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin>(
    name: &str,
    host: &Host,
    alone: &mut (R, W),
    bare: &mut (R, W),
) -> Compared {
    let mut compared = [Compared::default(); ROWS.len()];
    for (compared, row) in compared.iter_mut().zip(ROWS) {
        *compared = compare_in_rows(name, row, host, alone, bare).await;
    }
    compared[0]
}

async fn compare_in_rows<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin>(
    name: &str,
    row: usize,
    host: &Host,
    alone: &mut (R, W),
    bare: &mut (R, W),
) -> Compared {
    let (request, args) = (format!("{REQUEST}\n"), json!({ "channel": "3V3" }));
    let mut line = String::new();
    let mut blocks: [Vec<Duration>; 3] = Default::default();
    let mut ratios = [Vec::new(), Vec::new()];
    // The first is for warming up.
    for block in 0..=BLOCKS {
        let mut times: [Vec<Duration>; 3] = Default::default();
        for _ in 0..CALLS / row {
            for _ in 0..row {
                let started = Instant::now();
                call(host, &args).await;
                times[0].push(started.elapsed());
            }
            for (times, (reader, writer)) in times[1..].iter_mut().zip([&mut *alone, &mut *bare]) {
                for _ in 0..row {
                    let started = Instant::now();
                    writer.write_all(request.as_bytes()).await.expect("it reads");
                    line.clear();
                    reader.read_line(&mut line).await.expect("it writes");
                    times.push(started.elapsed());
                    assert_eq!(line.trim_end(), REPLY);
                }
            }
        }
        if block > 0 {
            let [called, alone, echoed] = times.map(|times| median(times, Duration::cmp));
            ratios[0].push(called.as_secs_f64() / echoed.as_secs_f64());
            ratios[1].push(alone.as_secs_f64() / echoed.as_secs_f64());
            blocks.iter_mut().zip([called, alone, echoed]).for_each(|(all, block)| all.push(block));
        }
    }
    let [called, alone, echoed] = blocks.map(|times| median(times, Duration::cmp));
    println!("{name}, {row} in a row: the bare echo takes {echoed:?}");
    let [ratio, _] = [("a call", called), ("the extension alone", alone)].map(|(what, time)| {
        let ratios = &mut ratios[usize::from(what != "a call")];
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let ratio = ratios[ratios.len() / 2];
        println!("  {what}: {time:?}, {ratio:.2}x (blocks {least:.2}x to {most:.2}x)");
        ratio
    });
    Compared { ratio, called, echoed }
}

fn median<T: Copy>(mut values: Vec<T>, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> T {
    values.sort_by(order);
    values[values.len() / 2]
}

fn echo(mut input: impl BufRead, mut output: impl Write) -> ExitCode {
    let reply = format!("{REPLY}\n");
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        line.clear();
        if output.write_all(reply.as_bytes()).and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// As `rigline serve sim` does.
async fn serve() -> ExitCode {
    let server = TcpServer::bind(&"127.0.0.1:0".parse().expect("an address")).expect("a port is free");
    println!("{}", server.addresses().expect("it listens")[0]);
    server.run_until(Echo, std::future::pending()).await.expect("it serves");
    ExitCode::SUCCESS
}

fn accept() -> TcpStream {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    println!("{}", listener.local_addr().expect("it listens"));
    let (stream, _) = listener.accept().expect("somebody comes");
    stream.set_nodelay(true).expect("a socket takes options");
    stream
}

/// Ends with its value.
struct Started(std::process::Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Pipes = (tokio::io::BufReader<tokio::process::ChildStdout>, tokio::process::ChildStdin);

fn pipes(program: &str, role: &str) -> (tokio::process::Child, Pipes) {
    let mut child = tokio::process::Command::new(program)
        .arg(role)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    (child, (tokio::io::BufReader::new(output), input))
}

type Socket = (tokio::io::BufReader<tokio::net::tcp::OwnedReadHalf>, tokio::net::tcp::OwnedWriteHalf);

async fn socket(address: &str) -> Socket {
    let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    stream.set_nodelay(true).expect("a socket takes options");
    let (reader, writer) = stream.into_split();
    (tokio::io::BufReader::new(reader), writer)
}

/// Gives what it listens at.
fn start(program: &str, role: &str) -> (Started, String) {
    let mut child = std::process::Command::new(program)
        .arg(role)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it tells its address");
    (Started(child), line.trim().to_owned())
}
