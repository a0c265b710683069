//! Whole sessions over wires with faults, against a model of what must hold: both drivers, every protocol.
//!
//! A step is a line that a host sends. The wire cuts it into pieces, delays it, sends it twice, turns bits over, stalls, or ends in its
//! middle. Then, for what the wire has really delivered:
//!
//! - all that comes back is whole lines of JSON;
//! - each request that arrived whole is answered as often as it arrived, with its own result, and its handler ran as often;
//! - what arrived damaged costs one answer at most;
//! - a session that was lost is made safe once, and the next connection works.
//!
//! A short run is part of `cargo test`; `RIGLINE_STEPS=1000000` sets the number of steps of all tests together.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::env;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use embedded_io::Write as _;
use rigline::engine::{Engine, Memory};
use rigline::frame::LineEnds;
use rigline::serve::blocking::{self, Halves};
use rigline::serve::{Transport, asynch};
use rigline::{Clock, Context, Extension as _, Failure, Instant, Outcome, Params};
use rigline_std::testing::{Counts, Faults, Wire};
use serde_json::Value;

/// The drivers times the families of protocols: each has its own test.
const TESTS: usize = 6;

fn steps() -> usize {
    env::var("RIGLINE_STEPS").map_or(18_000, |steps| steps.parse().expect("RIGLINE_STEPS is a number")) / TESTS
}

/// The events of the hardware.
#[derive(Debug, Default)]
struct Seen {
    /// How often the handler ran with this tag.
    runs: HashMap<String, usize>,
    safe: usize,
}

/// An extension with an operation that ends at once and one that waits.
struct Bench(Rc<RefCell<Seen>>);

#[derive(Params)]
struct Tagged<'a> {
    /// The answer.
    tag: &'a str,
    /// How long to wait first, in milliseconds.
    #[param(default = 0, maximum = 20)]
    ms: u32,
}

#[rigline::extension(name = "bench", version = "1.0.0", description = "Answers with its argument")]
impl Bench {
    /// Answer with the argument.
    #[operation]
    async fn echo(&mut self, args: Tagged<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        *self.0.borrow_mut().runs.entry(args.tag.to_owned()).or_default() += 1;
        if args.ms > 0 {
            cx.info("waiting");
            cx.sleep(Duration::from_millis(args.ms.into())).await;
        }
        cx.output("tag", args.tag)?;
        cx.done("echoed")
    }

    #[safe_state]
    fn safe(&mut self) {
        self.0.borrow_mut().safe += 1;
    }
}

/// A millisecond goes by with each look.
#[derive(Default)]
struct Steps(Cell<u64>);

impl Clock for Steps {
    fn now(&self) -> Instant {
        self.0.set(self.0.get() + 1_000_000);
        Instant::from_nanos(self.0.get())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Driver {
    Blocking,
    Async,
}

/// Protocols that can share a connection: those with ids, in which answers are found by them, and the two without, where the n-th
/// answer is the n-th line's.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Family {
    WithIds,
    Amplifier,
    Namel3ss,
}

/// A request, and the mark that nothing else has.
struct Request {
    line: String,
    mark: String,
    calls: bool,
}

/// One bit that is turned over makes no other mark of a mark: its second half follows from the first.
fn mark(number: u32) -> String {
    format!("m{number:06x}{:08x}", (number ^ 0x005a_5a5a).wrapping_mul(0x9e37_79b1))
}

fn request(family: Family, number: u32, chance: &mut dyn FnMut(usize) -> usize) -> Request {
    let mark = mark(number);
    let ms = if chance(8) == 0 { 5 } else { 0 };
    let kind = match family {
        Family::WithIds => chance(8),
        Family::Amplifier => 8 + chance(2),
        Family::Namel3ss => 10,
    };
    let line = match kind {
        0..=2 => format!(
            r#"{{"jsonrpc":"2.0","id":"{mark}","method":"execute","params":{{"operation":"echo","args":{{"tag":"{mark}","ms":{ms}}},"context":{{}}}}}}"#
        ),
        3 | 4 => format!(
            r#"{{"jsonrpc":"2.0","id":"{mark}","method":"tools/call","params":{{"name":"echo","arguments":{{"tag":"{mark}","ms":{ms}}}}}}}"#
        ),
        5 => format!(r#"{{"jsonrpc":"2.0","id":"{mark}","method":"tools/list","params":{{}}}}"#),
        6 => format!(r#"{{"jsonrpc":"2.0","id":"{mark}","method":"run.status","params":{{"runId":"{mark}"}}}}"#),
        7 => format!(
            r#"[{{"jsonrpc":"2.0","id":"{mark}","method":"execute","params":{{"operation":"echo","args":{{"tag":"{mark}"}},"context":{{}}}}}}]"#
        ),
        8 => format!(r#"{{"op":"echo","args":{{"tag":"{mark}","ms":{ms}}}}}"#),
        9 => format!(r#"{{"op":"invoke","args":{{"op":"echo","args":{{"tag":"{mark}"}}}}}}"#),
        _ => {
            format!(r#"{{"protocol_version":1,"tool":"echo","entry":"m:run","payload":{{"tag":"{mark}","ms":{ms}}}}}"#)
        }
    };
    Request { line, mark, calls: !matches!(kind, 5 | 6) }
}

const LAST: &str = r#"{"jsonrpc":"2.0","id":"last","method":"none"}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"begin","method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;

/// Runs connection after connection, each with some steps and its own faults, over one engine.
fn model(driver: Driver, family: Family) {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let mut bench = Bench(seen.clone());
    let (mut memory, mut reply, mut logs) = ([0; 1024], [0; 2048], [0; 1024]);
    let regions = Memory { request: &mut memory, reply: &mut reply };
    let mut engine = Engine::new(bench.manifest(), regions).unwrap().with_line_ends(LineEnds::Serial);
    let clock = Steps::default();
    let mut random = 0x5eed_0034_u64 + family as u64;
    let mut chance = move |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).unwrap() % bound
    };
    let (mut number, mut total) = (0, Counts::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    while number < steps() {
        let seed = number as u64;
        let faults = match chance(5) {
            0 => Faults::none(seed).pieces(40).delay(100),
            1 => Faults::none(seed).duplicate(100).stall(50),
            2 => Faults::none(seed).pieces(30).flip(30),
            3 => Faults::none(seed).cut(30),
            _ => Faults::none(seed).pieces(60).delay(50).duplicate(20).flip(20).stall(50).cut(3),
        };
        let mut input = Wire::new(faults);
        // What the board writes is cut and delayed, and otherwise as it was.
        let output = Wire::new(Faults::none(seed).pieces(100).stall(50));
        let opens = family == Family::WithIds && chance(2) == 0;
        if opens {
            writeln!(input, "{INITIALIZE}").unwrap();
        }
        let mut sent = Vec::new();
        for _ in 0..=chance(40) {
            number += 1;
            let request = request(family, u32::try_from(number).unwrap(), &mut chance);
            input.write_all(format!("{}\n", request.line).as_bytes()).unwrap();
            sent.push(request);
        }
        // The last line of a connection that was not cut arrives: when it is answered, so is what came before it.
        input.set_faults(Faults::none(seed));
        input.write_all(format!("\n{LAST}\n").as_bytes()).unwrap();
        *seen.borrow_mut() = Seen::default();
        let mut port = Halves { reader: input.clone(), writer: output.clone() };
        let mut written = Vec::new();
        match driver {
            Driver::Blocking => {
                input.close();
                let server = blocking::Server::new(&mut bench, &mut engine, &clock).transport(Transport::Stream);
                server.log_buffer(&mut logs).serve(&mut port).unwrap();
            }
            Driver::Async => {
                let server = asynch::Server::new(&mut bench, &mut engine, &clock).transport(Transport::Stream);
                let serving = server.log_buffer(&mut logs).serve(&mut port.reader, &mut port.writer);
                // The host hangs up when it has its last answer.
                let host = async {
                    let (mut output, mut buffer) = (output.clone(), [0; 256]);
                    while !written.ends_with(b"\n") || !written.windows(6).any(|part| part == b"\"last\"") {
                        let count = embedded_io_async::Read::read(&mut output, &mut buffer).await.unwrap();
                        written.extend_from_slice(&buffer[..count]);
                    }
                    input.close();
                    pending::<()>().await;
                };
                runtime.block_on(async {
                    tokio::select! { served = serving => served.unwrap(), () = host => unreachable!() }
                });
            }
        }
        let counts = input.counts();
        let context = format!("{driver:?}, {family:?}, step {number}: {counts:?}");
        written.extend(read_all(output));
        check((driver, family, counts.cut > 0), &input.take_delivered(), &written, &sent, &seen.borrow(), &context);
        for (total, now) in [
            (&mut total.delayed, counts.delayed),
            (&mut total.duplicated, counts.duplicated),
            (&mut total.flipped, counts.flipped),
            (&mut total.stalled, counts.stalled),
            (&mut total.cut, counts.cut),
        ] {
            *total += now;
        }
    }
    // Each kind of fault was there.
    assert!(
        [total.delayed, total.duplicated, total.flipped, total.stalled, total.cut].iter().all(|n| *n > 10),
        "{total:?}"
    );
}

fn read_all(mut wire: Wire) -> Vec<u8> {
    use embedded_io::Read as _;
    wire.close();
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while let count @ 1.. = wire.read(&mut buffer).unwrap() {
        all.extend_from_slice(&buffer[..count]);
    }
    all
}

/// The properties that must hold after a connection.
fn check(
    (driver, family, cut): (Driver, Family, bool),
    delivered: &[u8],
    written: &[u8],
    sent: &[Request],
    seen: &Seen,
    context: &str,
) {
    // A line without its end is none: the connection was lost in it.
    let whole = delivered.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map_or(0, |end| end + 1);
    let lines: Vec<&[u8]> = delivered[..whole].split(|byte| matches!(byte, b'\n' | b'\r')).collect();
    let text = std::str::from_utf8(written).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(text.is_empty() || text.ends_with('\n'), "{context}: half a line: {text}");
    let mut replies = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{context}: {error}: {line}"));
        replies.extend(value.as_array().cloned().unwrap_or_else(|| vec![value]));
    }
    replies.retain(|reply| reply.get("method").is_none());
    assert!(replies.len() <= lines.len(), "{context}: {} replies to {} lines", replies.len(), lines.len());
    // The async driver reads ahead: a connection that is cut takes what waits with it.
    let mut unanswered = 0;
    for request in sent {
        let mark = request.mark.as_str();
        let exact = lines.iter().filter(|line| **line == request.line.as_bytes()).count();
        let about = lines.iter().filter(|line| line.windows(mark.len()).any(|part| part == mark.as_bytes())).count();
        let answered = replies.iter().filter(|reply| is_answer(family, reply, request)).count();
        let runs = seen.runs.get(mark).copied().unwrap_or_default();
        assert!(
            answered <= about && runs <= about,
            "{context}: {mark}: {about} lines, {answered} replies, {runs} runs"
        );
        let missing = exact.saturating_sub(answered);
        unanswered += missing;
        if request.calls {
            assert!(exact <= runs + missing, "{context}: {mark}: {exact} lines, {runs} runs, {answered} replies");
        }
    }
    let may_be_lost = driver == Driver::Async && cut;
    assert!(unanswered == 0 || may_be_lost, "{context}: {unanswered} requests were not answered: {text}");
    // Opened, and lost without `shutdown`; or cancelled in its last call.
    let opened = lines.iter().any(|line| *line == INITIALIZE.as_bytes());
    assert!(seen.safe <= 1 && (!opened || seen.safe == 1), "{context}: opened {opened}, made safe {} times", seen.safe);
}

fn is_answer(family: Family, reply: &Value, request: &Request) -> bool {
    if family == Family::WithIds { reply["id"] == *request.mark } else { reply["result"]["tag"] == *request.mark }
}

#[test]
fn blocking_with_ids() {
    model(Driver::Blocking, Family::WithIds);
}

#[test]
fn blocking_amplifier() {
    model(Driver::Blocking, Family::Amplifier);
}

#[test]
fn blocking_namel3ss() {
    model(Driver::Blocking, Family::Namel3ss);
}

#[test]
fn async_with_ids() {
    model(Driver::Async, Family::WithIds);
}

#[test]
fn async_amplifier() {
    model(Driver::Async, Family::Amplifier);
}

#[test]
fn async_namel3ss() {
    model(Driver::Async, Family::Namel3ss);
}
