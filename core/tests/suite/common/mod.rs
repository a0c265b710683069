//! A rig that exists in memory only, and the worlds around it: a clock that jumps, transports that
//! take and give as they are told, and an executor that polls only what was woken.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

#[cfg(feature = "async")]
pub mod asynch;
pub mod ping_pong;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{self, Waker};
use std::time::Duration;

use embedded_io::{ErrorType, Read, Write};
use rigline::Effects;
use rigline::Level;
use rigline::engine::{Engine, Memory};
use rigline::exchange::{self, Exchange, Next, Session, Work};
use rigline::frame::LineEnds;
use rigline::json::RawJson;
use rigline::serve::{End, Transport, blocking};
use rigline::{
    Call, Clock, Config, Context, Extension, Failure, FailureKind, Instant, LogSink, Manifest, Operation, Outcome,
    Schema,
};

pub const MS: u64 = 1_000_000;

/// Long enough to be too long for a small reply region, and full of what must be escaped.
const ABOUT: &str = "A rig in memory: \"say\" says, \"work\" logs while it works, \"outputs\" measures,\n\"fail\" fails \
    and \"refuse\" refuses, \"swap\" does things in the wrong order, and \"stubborn\" does not await: \u{1}\u{2028}é😀\\.";

pub const MANIFEST: Manifest = Manifest::new("test-rig", "1.2.3").description(ABOUT).operations(&[
    Operation::new("say", Schema::OBJECT),
    Operation::new("work", Schema::OBJECT),
    Operation::new("outputs", Schema::OBJECT),
    Operation::new("fail", Schema::OBJECT),
    Operation::new("refuse", Schema::OBJECT),
    Operation::new("swap", Schema::OBJECT),
    Operation::new("stubborn", Schema::OBJECT),
    Operation::new("data", Schema::OBJECT),
    Operation::new("floats", Schema::OBJECT),
]);

/// The same with a safe state that switches something off, and with an operation that changes
/// nothing.
pub const WATCHED: Manifest = Manifest::new("test-rig", "1.2.3").safe_state(true).operations(&[
    Operation::new("work", Schema::OBJECT),
    Operation::new("watch", Schema::OBJECT).effects(Effects::READ_ONLY),
    Operation::new("fail", Schema::OBJECT),
]);

/// The rig's events, in order.
#[derive(Debug, Default, Clone)]
pub struct Events(Rc<RefCell<Vec<String>>>);

impl Events {
    pub fn push(&self, event: impl Into<String>) {
        self.0.borrow_mut().push(event.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub fn count(&self, event: &str) -> usize {
        self.0.borrow().iter().filter(|known| *known == event).count()
    }
}

#[derive(Debug, Default)]
pub struct Rig {
    pub events: Events,
    pub clock: Rc<FakeClock>,
}

impl Rig {
    pub fn new(clock: &Rc<FakeClock>) -> Self {
        Self { events: Events::default(), clock: clock.clone() }
    }
}

/// Notes when a handler's future goes away, and whether it had ended.
struct Guard(Events, bool);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.push(if self.1 { "ended" } else { "dropped" });
    }
}

#[derive(serde::Deserialize)]
#[serde(default)]
struct Args<'a> {
    text: &'a str,
    /// How often `text` is repeated.
    times: usize,
    logs: usize,
    ms: u64,
    kind: &'a str,
    quiet: bool,
    /// How many steps of progress it reports at the end, from 0 on.
    steps: u32,
}

impl Default for Args<'_> {
    fn default() -> Self {
        Self { text: "", times: 1, logs: 0, ms: 0, kind: "", quiet: false, steps: 0 }
    }
}

impl Extension for Rig {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let operation = call.operation();
        self.events.push(operation);
        if operation == "data" {
            #[derive(serde::Deserialize)]
            struct Data<'a> {
                #[serde(borrow)]
                value: RawJson<'a>,
            }
            let data: Data<'_> = call.args()?;
            cx.log_with(Level::Debug, "data", &data.value);
            cx.output("value", &data.value)?;
            return cx.done("passed on");
        }
        let args: Args<'_> = call.args()?;
        let mut guard = Guard(self.events.clone(), false);
        let text = args.text.repeat(args.times);
        let result = match operation {
            "say" => cx.done(text.as_str()),
            "work" | "watch" => {
                for i in 0..args.logs {
                    cx.log(Level::Info, format_args!("log {i} {text}"));
                    if !args.quiet {
                        cx.sleep(Duration::from_millis(args.ms)).await;
                    }
                }
                if args.logs == 0 || args.quiet {
                    cx.sleep(Duration::from_millis(args.ms)).await;
                }
                for done in 0..args.steps {
                    cx.progress(done, None, "on");
                }
                cx.output("logs", &args.logs)?;
                cx.done("worked")
            }
            "outputs" => {
                cx.output("text", &text)?;
                cx.output("number", &-17)?;
                cx.output("list", &[text.as_str(), "\\"])?;
                cx.output("none", &())?;
                Ok(Outcome::message("measured"))
            }
            "fail" => {
                cx.output("last", "1.5 V")?;
                cx.failed(text.as_str())
            }
            "refuse" => Err(cx.failure(
                match args.kind {
                    "unknown" => FailureKind::UnknownOperation,
                    "arguments" => FailureKind::BadArguments,
                    "timeout" => FailureKind::Timeout,
                    "requirement" => FailureKind::RequirementNotMet,
                    "forbidden" => FailureKind::Forbidden,
                    "large" => FailureKind::TooLarge,
                    "internal" => FailureKind::Internal,
                    "failed" => FailureKind::Failed,
                    _ => FailureKind::Unreachable,
                },
                text.as_str(),
            )),
            // A failure made early, and returned after more was written.
            "swap" => {
                let failure = cx.failure(FailureKind::Unreachable, text.as_str());
                cx.output("a\"b", &[text.as_str(); 3])?;
                if args.quiet {
                    let _ = cx.done("never mind");
                }
                Err(failure)
            }
            // Works without awaiting.
            "stubborn" => {
                cx.info("begun");
                self.clock.advance(args.ms * MS);
                cx.info("late");
                cx.output("late", &true)?;
                cx.done("done")
            }
            "floats" => {
                let float = args.kind.parse().unwrap_or(f64::NAN);
                cx.log_with(Level::Warn, "float", &float);
                cx.log_with(Level::Error, "floats", &std::collections::BTreeMap::from([("t", [0.5, float])]));
                let written = cx.output("float", &float);
                if !args.quiet {
                    written?;
                }
                cx.done("written")
            }
            _ => Err(Failure::UNKNOWN_OPERATION),
        };
        guard.1 = true;
        result
    }

    async fn configure(&mut self, mut config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        #[derive(serde::Deserialize)]
        struct Setup<'a> {
            rail: &'a str,
        }
        let setup: Setup<'_> = config.get()?;
        cx.info(format_args!("rail {}", setup.rail));
        self.events.push(format!("rail {}", setup.rail));
        match setup.rail {
            "broken" => cx.failed("the rail is broken").map(|_| ()),
            "absent" => Err(cx.failure(FailureKind::RequirementNotMet, "no such rail")),
            _ => Ok(()),
        }
    }

    async fn safe_state(&mut self) {
        self.events.push("safe");
    }
}

/// Time that stands still until somebody waits for it.
#[derive(Debug, Default)]
pub struct FakeClock {
    now: Cell<u64>,
    /// Alarms ring at multiples of this only.
    tick: Cell<u64>,
    alarms: RefCell<Vec<(u64, Waker)>>,
}

impl FakeClock {
    pub fn advance(&self, nanos: u64) {
        self.now.set(self.now.get() + nanos);
    }

    pub fn with_tick(nanos: u64) -> Self {
        Self { tick: Cell::new(nanos), ..Self::default() }
    }

    /// Jumps to the next alarm and rings it; false if there is none.
    pub fn ring(&self) -> bool {
        let Some(next) = self.alarms.borrow().iter().map(|(at, _)| *at).min() else { return false };
        let now = self.now.get().max(next.next_multiple_of(self.tick.get().max(1)));
        self.now.set(now);
        let due: Vec<_> = self.alarms.borrow_mut().extract_if(.., |(at, _)| *at <= now).collect();
        for (_, waker) in due {
            waker.wake();
        }
        true
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.get())
    }

    fn wake_at(&self, at: Instant, waker: &Waker) {
        self.alarms.borrow_mut().push((at.as_nanos(), waker.clone()));
    }

    fn idle(&self) {
        assert!(self.ring(), "a handler waits for nothing");
    }
}

/// A clock that stands still.
pub struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

/// Small numbers without end.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound.max(1)
    }
}

/// Blocking input and output: reads and writes are cut by chance, or not at all.
#[derive(Debug)]
pub struct Pipe {
    pub input: VecDeque<u8>,
    pub output: Vec<u8>,
    /// Chance, and the longest read or write.
    pub cuts: Option<(Random, usize)>,
}

impl Pipe {
    pub fn new(input: &[u8]) -> Self {
        Self { input: input.iter().copied().collect(), output: Vec::new(), cuts: None }
    }

    fn cut(&mut self, most: usize) -> usize {
        match &mut self.cuts {
            Some((random, longest)) => most.min(random.below(*longest) + 1),
            None => most,
        }
    }
}

impl ErrorType for Pipe {
    type Error = Infallible;
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        let count = self.cut(buf.len().min(self.input.len()));
        for (place, byte) in buf.iter_mut().zip(self.input.drain(..count)) {
            *place = byte;
        }
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        let count = self.cut(buf.len());
        self.output.extend_from_slice(&buf[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// How a session is served.
#[derive(Debug, Clone)]
pub struct Setup {
    pub request: usize,
    pub reply: usize,
    pub log: usize,
    pub ends: LineEnds,
    pub kind: Transport,
    /// The clock's, in milliseconds.
    pub tick: u64,
    /// The longest read or write, cut by chance from this seed.
    pub cuts: Option<(u64, usize)>,
}

pub const PLAIN: Setup =
    Setup { request: 4096, reply: 4096, log: 4096, ends: LineEnds::Lf, kind: Transport::Stdio, tick: 0, cuts: None };

#[derive(Debug)]
pub struct Served {
    pub output: Vec<u8>,
    pub events: Vec<String>,
    pub end: End,
}

impl Served {
    pub fn lines(&self) -> Vec<&str> {
        let text = std::str::from_utf8(&self.output).expect("UTF-8 comes out");
        assert!(text.is_empty() || text.ends_with('\n'), "half a line: {text}");
        text.lines().collect()
    }
}

impl Setup {
    pub fn serve(&self, input: impl AsRef<[u8]>) -> Served {
        let clock = Rc::new(FakeClock::with_tick(self.tick * MS));
        let mut rig = Rig::new(&clock);
        let (mut request, mut reply, mut log) = (vec![0; self.request], vec![0; self.reply], vec![0; self.log]);
        let memory = Memory { request: &mut request, reply: &mut reply };
        let mut engine = Engine::new(&MANIFEST, memory).unwrap().with_line_ends(self.ends);
        let mut pipe = Pipe::new(input.as_ref());
        pipe.cuts = self.cuts.map(|(seed, longest)| (Random(seed | 1), longest));
        let end = blocking::Server::new(&mut rig, &mut engine, &*clock)
            .transport(self.kind)
            .log_buffer(&mut log)
            .serve(&mut pipe)
            .unwrap();
        Served { output: pipe.output, events: rig.events.all(), end }
    }
}

/// Collects what is logged.
#[derive(Debug)]
struct Logged {
    memory: Vec<u8>,
    lines: Vec<String>,
}

impl LogSink for Logged {
    fn room(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    fn commit(&mut self, length: usize) {
        self.lines.push(String::from_utf8_lossy(&self.memory[..length]).trim_end().to_owned());
    }

    fn dropped(&mut self) {
        panic!("a log is dropped");
    }
}

/// Runs what an exchange hands out to its end, or to its time limit. Returns the lines that it
/// logs.
pub fn run<E: Extension>(
    extension: &mut E,
    to: &exchange::Served<'_>,
    message: &mut [u8],
    out: &mut [u8],
    exchange: &mut Exchange,
) -> Vec<String> {
    let clock = FakeClock::default();
    let mut logged = Logged { memory: vec![0; 4096], lines: Vec::new() };
    let run = exchange.run(to, message, out).expect("something to run");
    let result = {
        let mut cx = Context::new(run.reply, &mut logged, &clock, None);
        let mut handler = pin!(async {
            match run.work {
                Work::Call(call) => extension.call(call, &mut cx).await,
                Work::Configure(config) => extension.configure(config, &mut cx).await.map(|()| Outcome::DONE),
                Work::Event(event) => {
                    extension.on_event(event, &mut cx).await;
                    Ok(Outcome::DONE)
                }
                Work::Job(job) => {
                    extension.run_job(job, &mut cx).await;
                    Ok(Outcome::DONE)
                }
                _ => panic!("no other work"),
            }
        });
        loop {
            match handler.as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
                task::Poll::Ready(result) => break result,
                task::Poll::Pending => clock.idle(),
            }
        }
    };
    exchange.complete(to, message, out, &result);
    logged.lines
}

/// Runs an exchange to its end.
pub fn finish<E: Extension>(
    extension: &mut E,
    to: &exchange::Served<'_>,
    session: &mut Session,
    message: &mut [u8],
    out: &mut [u8],
    exchange: &mut Exchange,
) -> Next {
    loop {
        run(extension, to, message, out, exchange);
        match session.settle(to, message, out, exchange) {
            Next::Run { .. } => {}
            next => return next,
        }
    }
}

/// The answers to these messages, handed over whole.
pub fn exchanged(messages: &[&[u8]]) -> Vec<String> {
    let to = exchange::Served::new(&MANIFEST, rigline::protocol::ALL, (PLAIN.request - 1, PLAIN.reply - 1)).unwrap();
    let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
    let mut rig = Rig::default();
    let mut replies = Vec::new();
    for message in messages {
        let (mut message, mut out) = (message.to_vec(), vec![0; PLAIN.reply]);
        let mut next = session.receive(&to, &message, &mut out, &mut exchange);
        loop {
            next = match next {
                Next::Nothing => break,
                Next::Run { .. } => finish(&mut rig, &to, &mut session, &mut message, &mut out, &mut exchange),
                Next::Shutdown(None) => return replies,
                Next::Reply(length)
                | Next::StaysOpen(length)
                | Next::ReplyThenRun(length)
                | Next::Shutdown(Some(length)) => {
                    replies.push(String::from_utf8(out[..length].to_vec()).expect("UTF-8 comes out"));
                    session.settle(&to, &message, &mut out, &mut exchange)
                }
            };
        }
    }
    replies
}

/// The lines that come out when `lines`, each with an LF behind it, go in.
pub fn talk(lines: &[impl AsRef<[u8]>]) -> Vec<String> {
    let served = PLAIN.serve(joined(lines));
    served.lines().into_iter().map(str::to_owned).collect()
}

pub fn joined(lines: &[impl AsRef<[u8]>]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_ref(), b"\n"].concat()).collect()
}

/// The one line that comes out when `line` goes in.
pub fn ask(line: impl AsRef<[u8]>) -> String {
    let [reply] = <[String; 1]>::try_from(talk(&[line])).expect("one line");
    reply
}

pub fn execute(id: &str, operation: &str, args: &str) -> String {
    execute_in(id, operation, args, "{}")
}

pub fn execute_in(id: &str, operation: &str, args: &str, context: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{operation}","args":{args},"context":{context}}}}}"#
    )
}

pub fn request(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
}

pub const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
pub const SHUTDOWN: &str = r#"{"jsonrpc":"2.0","id":"end","method":"shutdown"}"#;
pub const SHUT: &str = r#"{"jsonrpc":"2.0","id":"end","result":{}}"#;

/// A reply's id as its raw text, and its error's code (0 for a result).
pub fn id_and_code(reply: &str) -> (String, i64) {
    #[derive(serde::Deserialize)]
    struct Reply<'a> {
        #[serde(borrow)]
        id: &'a serde_json::value::RawValue,
        error: Option<Error>,
    }
    #[derive(serde::Deserialize)]
    struct Error {
        code: i64,
    }
    let Reply { id, error } = serde_json::from_str(reply).unwrap_or_else(|error| panic!("{error}: {reply}"));
    (id.get().to_owned(), error.map_or(0, |error| error.code))
}

/// Where the vectors are that are not the project's own; tells so when they are missing.
pub fn shared(part: &str) -> Option<std::path::PathBuf> {
    let root = std::env::var_os("RIGLINE_SHARED").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        std::path::PathBuf::from,
    );
    let path = root.join(part);
    if path.is_dir() {
        return Some(path);
    }
    rigline_test_support::skipped(
        part,
        "the files of another project are not there",
        "set RIGLINE_SHARED to the directory that has them",
    );
    None
}
