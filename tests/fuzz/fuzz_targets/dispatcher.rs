//! Whole connections: any bytes, cut in any way, through the engine and both shells, over memory of any size.
//!
//! Whatever comes in, what goes out is whole lines of JSON; no request gets two replies; each request that is in order gets
//! one, where the session lets it; and both shells say the same.
#![no_main]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use embedded_io::{ErrorKind, ErrorType};
use libfuzzer_sys::fuzz_target;
use rigline::exchange::{Exchange, Next, Running, Served, Session, Work};
use rigline::frame::LineEnds;
use rigline::json::{Json, JsonKind};
use rigline::protocol::gevals::TaskContext;
use rigline::protocol::{GEVALS, MCP, Protocol};
use rigline::rpc::MAX_ID;
use rigline::serve::{End, ServeError, Transport, asynch, blocking};
use rigline::{
    Call, Clock, Config, Content, Context, Extension, Failure, FailureKind, Instant, Level, LogSink, Manifest,
    Operation, Outcome, Schema,
};
use rigline::{
    engine::{Engine, Memory, TooSmall},
    exchange::LEAST_REPLY,
};
use rigline_fuzz::{Choices, Event, split};
use serde::de::IgnoredAny;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let [request, reply, log, flags, faults, seed, input @ ..] = data else { return };
    let setup = Setup {
        request: usize::from(*request) * 8 + 1,
        reply: usize::from(*reply) * 4 + LEAST_REPLY - 4,
        log: usize::from(*log) * 6,
        kind: if flags & 1 == 1 { Transport::Stdio } else { Transport::Stream },
        serial: flags & 2 == 2,
        moody: flags & 4 == 4,
        // Bytes until the writer fails, and polls until the driver is asked to stop.
        writes: if faults & 1 == 1 { usize::from(*faults) * 8 } else { usize::MAX },
        stop: if faults & 2 == 2 { usize::from(*faults) } else { usize::MAX },
        seed: *seed,
    };
    let blocking = setup.blocking(input);
    let asynch = setup.asynch(input);
    for output in [&blocking, &asynch] {
        setup.judge(input, output);
    }
    // Time passes differently in the two, a shutdown overtakes faults or not, and a lost connection loses calls.
    let quiet = !["timeout", "shutdown", "\\u", "cancelled"].into_iter().any(|word| holds(input, word));
    if setup.is_complete() && quiet {
        assert_eq!(replies(&blocking.bytes), replies(&asynch.bytes));
        // Whole messages have the outcomes of lines.
        if let Some(whole) = setup.whole(input) {
            assert_eq!(replies(&blocking.bytes), replies(&whole));
        }
    }
});

fn holds(input: &[u8], word: &str) -> bool {
    input.windows(word.len()).any(|window| window == word.as_bytes())
}

struct Setup {
    request: usize,
    reply: usize,
    log: usize,
    kind: Transport,
    serial: bool,
    moody: bool,
    writes: usize,
    stop: usize,
    seed: u8,
}

/// The output, and the end of the session.
struct Output {
    bytes: Vec<u8>,
    result: Result<End, ServeError<Lost>>,
    safe_states: usize,
}

impl Setup {
    fn is_complete(&self) -> bool {
        self.kind == Transport::Stdio && self.writes == usize::MAX && self.stop == usize::MAX
    }

    fn wire<'i>(&self, input: &'i [u8]) -> Wire<'i> {
        Wire {
            input: Cell::new(input),
            output: RefCell::default(),
            choices: RefCell::new(Choices::new(self.seed)),
            moody: self.moody,
            writes: self.writes,
        }
    }

    fn with_engine<T>(&self, serve: impl FnOnce(&mut Engine<'_>, &mut [u8]) -> T) -> Option<T> {
        // The regions lie between walls.
        let mut request = vec![0xA5; self.request];
        let mut reply = vec![0xA5; self.reply + 16];
        let mut log = vec![0xA5; self.log + 16];
        let memory = Memory { request: &mut request, reply: &mut reply[..self.reply] };
        let ends = if self.serial { LineEnds::Serial } else { LineEnds::Lf };
        let result = match Engine::with_protocols(&MANIFEST, memory, PROTOCOLS) {
            Err(TooSmall::Reply { size }) => {
                assert!(size < LEAST_REPLY);
                return None;
            }
            Err(error) => panic!("{error}"),
            Ok(engine) => serve(&mut engine.with_line_ends(ends), &mut log[..self.log]),
        };
        assert_eq!(reply[self.reply..], [0xA5; 16]);
        assert_eq!(log[self.log..], [0xA5; 16]);
        Some(result)
    }

    fn blocking(&self, input: &[u8]) -> Output {
        let mut wire = self.wire(input);
        let mut extension = Anything::default();
        let result = self.with_engine(|engine, log| {
            blocking::Server::new(&mut extension, engine, &Ticks::default())
                .transport(self.kind)
                .log_buffer(log)
                .serve(&mut &wire)
        });
        Output {
            bytes: std::mem::take(wire.output.get_mut()),
            result: result.unwrap_or(Ok(End::Input)),
            safe_states: extension.safe_states,
        }
    }

    fn asynch(&self, input: &[u8]) -> Output {
        let mut wire = self.wire(input);
        let mut extension = Anything::default();
        let result = self.with_engine(|engine, log| {
            let mut left = self.stop;
            let stop = std::future::poll_fn(|_| {
                left = left.saturating_sub(usize::from(left < usize::MAX));
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            });
            let (mut reader, mut writer, clock) = (&wire, &wire, Ticks::default());
            let mut serving = pin!(
                asynch::Server::new(&mut extension, engine, &clock)
                    .transport(self.kind)
                    .log_buffer(log)
                    .stop(stop)
                    .serve(&mut reader, &mut writer)
            );
            let mut task = Task::from_waker(Waker::noop());
            for _ in 0..1_000_000 {
                if let Poll::Ready(result) = serving.as_mut().poll(&mut task) {
                    return result;
                }
            }
            panic!("it hangs");
        });
        Output {
            bytes: std::mem::take(wire.output.get_mut()),
            result: result.unwrap_or(Ok(End::Input)),
            safe_states: extension.safe_states,
        }
    }

    /// The lines of the input as whole messages; none where a line does not fit, or where the engine refuses the reply
    /// region as too small.
    fn whole(&self, input: &[u8]) -> Option<Vec<u8>> {
        if self.reply < LEAST_REPLY {
            return None;
        }
        let to = Served::new(&MANIFEST, PROTOCOLS, (self.request - 1, self.reply - 1))?;
        let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
        let (mut extension, clock, mut all) = (Anything::default(), Ticks::default(), Vec::new());
        for event in split(input, self.request - 1, self.serial) {
            let Event::Line(line) = event else { return None };
            let (mut message, mut out) = (line.to_vec(), vec![0xA5; self.reply]);
            let mut next = session.receive(&to, &message, &mut out, &mut exchange);
            loop {
                next = match next {
                    Next::Nothing => break,
                    Next::Run { .. } => {
                        let result = extension.run(exchange.run(&to, &mut message, &mut out)?, &clock);
                        exchange.complete(&to, &message, &mut out, &result);
                        session.settle(&to, &message, &mut out, &mut exchange)
                    }
                    Next::Shutdown(None) => return Some(all),
                    Next::Reply(end) | Next::StaysOpen(end) | Next::ReplyThenRun(end) | Next::Shutdown(Some(end)) => {
                        all.extend_from_slice(&out[..end]);
                        all.push(b'\n');
                        session.settle(&to, &message, &mut out, &mut exchange)
                    }
                };
            }
        }
        Some(all)
    }

    fn judge(&self, input: &[u8], output: &Output) {
        let bytes = match output.result {
            Err(ServeError::Read(_)) => panic!("reading does not fail here"),
            // The line that could not be sent.
            Err(_) => &output.bytes[..output.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)],
            Ok(_) => &output.bytes[..],
        };
        assert!(bytes.is_empty() || bytes.ends_with(b"\n"), "half a line");
        let replies = replies(bytes);
        let events = split(input, self.request - 1, self.serial);
        assert!(replies.len() <= events.len(), "more replies than lines");

        let mut asked = Ids::default();
        let mut owed = Ids::default();
        let mut silences = false;
        for event in &events {
            let Event::Line(line) = event else { continue };
            let Ok(json) = Json::parse(line) else { continue };
            for message in std::iter::once(json).chain(json.elements()) {
                asked.note(message, 1);
                silences |= may_silence(message);
            }
            if is_request(json) {
                owed.note(json, 1);
            }
        }
        let mut left = asked.clone();
        for reply in &replies {
            let json = Json::parse(reply.as_bytes()).unwrap();
            for reply in std::iter::once(json).chain(json.elements()) {
                left.note(reply, -1);
                owed.note(reply, -1);
            }
        }
        assert!(left.0.values().all(|count| *count >= 0), "two replies for one request: {left:?}");
        let alive = !matches!(output.result, Ok(End::Shutdown));
        if self.is_complete() && alive && !silences && self.reply >= LEAST_REPLY && self.request > 1 {
            assert!(owed.0.values().all(|count| *count <= 0), "no reply: {owed:?}");
        }
        assert!(output.safe_states <= events.len() + 1);
    }
}

/// How often each id that is not null occurs.
#[derive(Debug, Default, Clone)]
struct Ids(BTreeMap<String, i32>);

impl Ids {
    fn note(&mut self, message: Json<'_>, by: i32) {
        if let Some(id) = message.get("id").filter(|id| !id.is_null()) {
            *self.0.entry(id.as_str().to_owned()).or_default() += by;
        }
    }
}

/// Whether JSON-RPC 2.0 §4 calls it a request, with an id that is not beyond our limit.
fn is_request(message: Json<'_>) -> bool {
    let string = |name: &str| message.get(name).and_then(|value| value.text());
    string("jsonrpc").is_some_and(|version| version == "2.0")
        && string("method").is_some()
        && message
            .get("id")
            // MCP has no fractions as ids, and answers them with none.
            .is_some_and(|id| id.as_bytes().len() <= MAX_ID && (is_integer(id) || id.text().is_some()))
}

fn is_integer(id: Json<'_>) -> bool {
    id.number().is_some() && id.as_bytes().iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
}

/// The lines of MCP that are no replies.
const NOTIFICATIONS: &[&str] =
    &["notifications/message", "notifications/progress", "notifications/subscriptions/acknowledged"];

/// Whether a message may leave a request without a reply: it cancels one, or opens a stream.
fn may_silence(message: Json<'_>) -> bool {
    let method = message.get("method").and_then(|method| method.text());
    method.is_some_and(|method| method == "notifications/cancelled" || method == "subscriptions/listen")
}

/// The lines that are not logs, sorted: faults may overtake replies.
fn replies(bytes: &[u8]) -> Vec<&str> {
    let text = str::from_utf8(bytes).expect("UTF-8");
    let mut replies = Vec::new();
    for line in text.lines() {
        // Not as a `Value`: an id is echoed as it came, and may be a number or string that has no value.
        serde_json::from_str::<IgnoredAny>(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let json = Json::parse(line.as_bytes()).unwrap();
        let says = |json: Json<'_>, name: &str, value: &str| {
            json.get(name).and_then(|member| member.text()).is_some_and(|text| text == value)
        };
        let is_reply = |json: Json<'_>| {
            says(json, "jsonrpc", "2.0")
                && (json.get("result").is_some() != json.get("error").is_some())
                // MCP leaves out an id that could not be read.
                && (json.get("id").is_some() || json.get("error").is_some())
        };
        match json.kind() {
            JsonKind::Array => assert!(json.elements().count() > 0 && json.elements().all(is_reply), "{line}"),
            _ if says(json, "method", "log") => {
                let message = json.get("params").and_then(|params| params.get("message"));
                assert!(json.get("id").is_none() && message.is_some_and(|message| message.text().is_some()), "{line}");
                continue;
            }
            _ if NOTIFICATIONS.iter().any(|method| says(json, "method", method)) => {
                assert!(json.get("id").is_none() && json.get("params").is_some(), "{line}");
                continue;
            }
            _ => assert!(is_reply(json), "{line}"),
        }
        let outputs = json.get("result").and_then(|result| result.get("outputs"));
        let mut names: Vec<_> =
            outputs.iter().flat_map(rigline::json::Json::members).map(|(name, _)| name.to_cow().into_owned()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "an output name twice: {line}");
        replies.push(line);
    }
    replies.sort_unstable();
    replies
}

/// Those of JSON-RPC, whose replies are judged here.
const PROTOCOLS: &[&Protocol] = &[GEVALS, MCP];

static MANIFEST: Manifest =
    Manifest::new("anything", "0.0.1").description("\"\u{2028}").requires(&["true"]).operations(&[
        Operation::new("log", Schema::ANY),
        Operation::new("echo", Schema::OBJECT),
        Operation::new("fail", Schema::OBJECT),
        Operation::new("wait", Schema::OBJECT),
        Operation::new("fill", Schema::OBJECT),
        Operation::new("nan", Schema::OBJECT),
    ]);

#[derive(Default)]
struct Anything {
    safe_states: usize,
}

impl Anything {
    fn run(&mut self, run: Running<'_>, clock: &Ticks) -> Result<Outcome, Failure> {
        let mut logs = NoLogs;
        let mut cx = Context::new(run.reply, &mut logs, clock, None);
        let mut running = pin!(async {
            match run.work {
                Work::Call(call) => self.call(call, &mut cx).await,
                Work::Configure(config) => self.configure(config, &mut cx).await.map(|()| Outcome::DONE),
                _ => panic!("these protocols have no other work"),
            }
        });
        loop {
            if let Poll::Ready(result) = running.as_mut().poll(&mut Task::from_waker(Waker::noop())) {
                return result;
            }
        }
    }
}

struct NoLogs;

impl LogSink for NoLogs {
    fn room(&mut self) -> &mut [u8] {
        &mut []
    }

    fn commit(&mut self, _: usize) {}

    fn dropped(&mut self) {}
}

impl Extension for Anything {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        #[derive(serde::Deserialize)]
        struct Args<'a> {
            #[serde(default)]
            text: &'a str,
            #[serde(default)]
            count: u8,
        }
        let context = TaskContext::of(&call.context);
        let text = format!("{} {:?}", call.args_json(), context.phase);
        let variables = context.env().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        if let Some(workdir) = context.workdir {
            cx.info(workdir.to_cow());
        }
        let operation = call.operation();
        if operation == "echo" {
            cx.output("args", &text)?;
            cx.output("env", &variables)?;
        }
        let Args { text, count } = call.args()?;
        match operation {
            "log" => {
                for number in 0..count {
                    cx.log_with(Level::Warn, text, &number);
                }
                cx.log_with(Level::Debug, format_args!("{text}\n"), &[text]);
                cx.log_with(Level::Debug, "no number", &f32::NAN);
                Ok(Outcome::DONE)
            }
            "echo" => {
                cx.output(text, &(text, count))?;
                cx.done(text)
            }
            "fail" => match count {
                0 => cx.failed(text),
                1 => {
                    cx.output("before", text)?;
                    cx.failed(format_args!("{text}\u{0}{count}"))
                }
                2 => Err(cx.failure(FailureKind::Unreachable, text)),
                3 => Err(Failure::new(FailureKind::RequirementNotMet, "needs \"true\"")),
                4 => {
                    let _ = cx.done(text)?;
                    Err(cx.failure(FailureKind::Forbidden, text))
                }
                _ => Err(cx.failure(FailureKind::Timeout, text)),
            },
            "wait" => {
                cx.info("before");
                cx.progress(count.into(), None, text);
                cx.sleep(Duration::from_nanos(count.into())).await;
                cx.progress(u32::from(count) + 1, Some(300), text);
                cx.info("after");
                cx.done("waited")
            }
            "fill" => {
                let _ = cx.content(text, &Content::Image { mime_type: text, data: text.as_bytes() });
                for number in 0..count {
                    // Whether it fits or not.
                    let _ = cx.output(text, &number);
                }
                cx.done(text)
            }
            _ => {
                let _ = cx.output("nan", &f64::NAN);
                cx.done(text)
            }
        }
    }

    async fn configure(&mut self, mut config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let _ = config.json().members().count();
        let config: BTreeMap<String, Value> = config.get()?;
        cx.info(format_args!("{}", config.len()));
        cx.sleep(Duration::from_nanos(2)).await;
        if config.contains_key("fail") { Err(cx.failure(FailureKind::Unreachable, "as told")) } else { Ok(()) }
    }

    async fn safe_state(&mut self) {
        self.safe_states += 1;
    }
}

/// Time passes with each look at the clock.
#[derive(Default)]
struct Ticks(Cell<u64>);

impl Clock for Ticks {
    fn now(&self) -> Instant {
        self.0.set(self.0.get() + 1);
        Instant::from_nanos(self.0.get())
    }
}

/// Takes and gives any number of bytes at a time, after any number of refusals.
struct Wire<'i> {
    input: Cell<&'i [u8]>,
    output: RefCell<Vec<u8>>,
    choices: RefCell<Choices>,
    moody: bool,
    writes: usize,
}

#[derive(Debug, Clone, Copy)]
enum Lost {
    Interrupted,
    Broken,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Lost {}

impl embedded_io::Error for Lost {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Broken => ErrorKind::BrokenPipe,
        }
    }
}

impl Wire<'_> {
    fn count(&self, most: usize) -> Result<usize, Lost> {
        let mut choices = self.choices.borrow_mut();
        if self.moody && choices.once_in(8) {
            return Err(Lost::Interrupted);
        }
        Ok(most.min(1 + choices.up_to(most)))
    }

    fn is_pending(&self) -> bool {
        self.moody && self.choices.borrow_mut().once_in(3)
    }

    fn take(&self, buf: &mut [u8]) -> Result<usize, Lost> {
        let input = self.input.get();
        let (now, later) = input.split_at(self.count(buf.len().min(input.len()))?);
        buf[..now.len()].copy_from_slice(now);
        self.input.set(later);
        Ok(now.len())
    }

    fn put(&self, buf: &[u8]) -> Result<usize, Lost> {
        assert!(!buf.is_empty(), "an empty write");
        let count = self.count(buf.len())?;
        let mut output = self.output.borrow_mut();
        if output.len() + count > self.writes {
            return if self.moody { Err(Lost::Broken) } else { Ok(0) };
        }
        output.extend_from_slice(&buf[..count]);
        Ok(count)
    }
}

impl ErrorType for &Wire<'_> {
    type Error = Lost;
}

impl embedded_io::Read for &Wire<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Lost> {
        self.take(buf)
    }
}

impl embedded_io::Write for &Wire<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Lost> {
        self.put(buf)
    }

    fn flush(&mut self) -> Result<(), Lost> {
        Ok(())
    }
}

impl embedded_io_async::Read for &Wire<'_> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Lost> {
        self.pause().await;
        self.take(buf)
    }
}

impl embedded_io_async::Write for &Wire<'_> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Lost> {
        self.pause().await;
        self.put(buf)
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        self.pause().await;
        Ok(())
    }
}

impl Wire<'_> {
    async fn pause(&self) {
        std::future::poll_fn(|task| {
            if self.is_pending() {
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}
