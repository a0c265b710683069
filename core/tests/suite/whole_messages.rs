//! The driver for whole messages: how a run ends, what is sent meanwhile, and when the outputs are
//! switched off.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::common::{FakeClock, MS, Rig, WATCHED, execute, execute_in};
use rigline::exchange::{Exchange, Next, Served, Session};
use rigline::protocol::{self, AMPLIFIER, GEVALS};
use rigline::serve::whole::{HandlerEnd, Runner, dropped_logs};
use rigline::{Clock, Instant};
use serde_json::{Value, json};

/// A run, with everything that decides how it goes.
#[derive(Clone, Copy)]
struct Setup {
    memory: usize,
    /// The clock's, in milliseconds.
    tick: u64,
    /// When it is stopped, in milliseconds, and whether the caller has cancelled it.
    stop: Option<(u64, bool)>,
    touched: Option<bool>,
}

const PLAIN: Setup = Setup { memory: 2000, tick: 0, stop: None, touched: Some(false) };

#[derive(Debug)]
struct Ran {
    end: HandlerEnd,
    /// The lines that were sent while the handler ran, each with its millisecond.
    lines: Vec<(u64, Value)>,
    reply: Option<Value>,
    events: Vec<String>,
    touched: Option<bool>,
    /// When it ended, in milliseconds.
    at: u64,
}

impl Setup {
    fn run(self, message: &str) -> Ran {
        let clock = Rc::new(FakeClock::with_tick(self.tick * MS));
        let mut rig = Rig::new(&clock);
        let to = Served::new(&WATCHED, protocol::ALL, (4096, 4096)).unwrap();
        let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
        let (mut message, mut out) = (message.as_bytes().to_vec(), vec![0; 4096]);
        let next = session.receive(&to, &message, &mut out, &mut exchange);
        assert_eq!(next, Next::Run { owes_reply: true });
        let sent = RefCell::new(Vec::new());
        let send = |line: &[u8]| {
            let line = line.strip_suffix(b"\n").expect("a whole line");
            sent.borrow_mut().push((clock.now().as_millis(), serde_json::from_slice(line).unwrap()));
        };
        let (touched, mut memory) = (Cell::new(self.touched.unwrap_or_default()), vec![0; self.memory]);
        let mut runner = Runner::new(&*clock, &send, &mut memory);
        if self.touched.is_some() {
            runner = runner.touched(&touched);
        }
        let stop = poll_fn(|task| match self.stop {
            Some((at, is_cancelled)) if clock.now().as_millis() >= at => Poll::Ready(is_cancelled),
            Some((at, _)) => {
                clock.wake_at(Instant::from_nanos(at * MS), task.waker());
                Poll::Pending
            }
            None => Poll::Pending,
        });
        let end = {
            let mut run = pin!(runner.run(&mut rig, &to, &mut exchange, &mut message, &mut out, stop));
            loop {
                match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(end) => break end,
                    Poll::Pending => assert!(clock.ring(), "it waits for nothing"),
                }
            }
        };
        let at = clock.now().as_millis();
        let reply = match session.settle(&to, &message, &mut out, &mut exchange) {
            Next::Reply(length) => Some(serde_json::from_slice(&out[..length]).unwrap()),
            next => {
                assert_eq!(next, Next::Nothing);
                None
            }
        };
        let touched = self.touched.map(|_| touched.get());
        Ran { end, lines: sent.take(), reply, events: rig.events.all(), touched, at }
    }
}

fn work(operation: &str, args: Value, timeout: &str) -> String {
    execute_in("1", operation, &args.to_string(), &json!({ "timeout": timeout }).to_string())
}

/// A heartbeat is farther than the first step.
#[test]
fn progress_is_reported_while_the_handler_runs() {
    for (ms, wanted) in [(3000, &[(3000, 0.0), (3000, 1.0)][..]), (5000, &[(4000, 0.000_001), (5000, 1.0)])] {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "work", "arguments": {"ms": ms, "steps": 2}, "_meta": {"progressToken": 4}}});
        let ran = PLAIN.run(&call.to_string());
        let done = ran.lines.iter().map(|(at, line)| (*at, line["params"]["progress"].as_f64().unwrap()));
        assert_eq!(done.collect::<Vec<_>>(), wanted);
    }
}

fn code(ran: &Ran) -> Option<i64> {
    ran.reply.as_ref().map(|reply| reply["error"]["code"].as_i64().unwrap_or_default())
}

#[test]
fn a_run_ends_by_itself_at_its_limit_or_when_it_is_stopped() {
    use HandlerEnd::{Late, Returned, Stopped};
    // How long it works, its limit, when it is stopped, the clock's tick; the end, its time, the code.
    type Case = (u64, &'static str, Option<(u64, bool)>, u64, HandlerEnd, u64, Option<i64>);
    let table: &[Case] = &[
        (20, "0s", None, 0, Returned, 20, Some(0)),
        (20, "20ms", None, 0, Returned, 20, Some(0)),
        (21, "20ms", None, 0, Late, 20, Some(-32001)),
        (9000, "20ms", None, 0, Late, 20, Some(-32001)),
        // A handler that sleeps past its limit does not wake up.
        (30, "20ms", None, 50, Late, 50, Some(-32001)),
        (20, "0s", Some((19, false)), 0, Stopped, 19, Some(-32000)),
        (20, "0s", Some((19, true)), 0, Stopped, 19, None),
        (20, "19ms", Some((19, true)), 0, Stopped, 19, None),
        (20, "0s", Some((20, true)), 0, Returned, 20, Some(0)),
        (20, "18ms", Some((19, true)), 0, Late, 18, Some(-32001)),
    ];
    for case @ (ms, timeout, stop, tick, end, at, wanted) in table {
        let ran = Setup { stop: *stop, tick: *tick, ..PLAIN }.run(&work("work", json!({ "ms": ms }), timeout));
        assert_eq!((ran.end, ran.at, code(&ran)), (*end, *at, *wanted), "{case:?}");
        let is_whole = *end == HandlerEnd::Returned;
        assert_eq!(ran.events[..2], ["work", if is_whole { "ended" } else { "dropped" }], "{case:?}");
    }
}

/// `safe_state` runs after a run that was cut off, unless nothing can be switched on: neither work before it, nor its own work, has done so.
#[test]
fn a_run_that_is_cut_off_switches_off_what_may_be_on() {
    // The operation, what may be on before; whether the safe state runs, and what may be on after it: at the limit, and at the end.
    for (operation, before, is_made_safe, after, after_whole) in [
        ("work", Some(false), true, Some(false), Some(true)),
        ("work", Some(true), true, Some(false), Some(true)),
        ("work", None, true, None, None),
        ("watch", Some(false), false, Some(false), Some(false)),
        ("watch", Some(true), true, Some(false), Some(true)),
        ("watch", None, true, None, None),
    ] {
        for stop in [None, Some((20, false)), Some((20, true))] {
            let ran = Setup { touched: before, stop, ..PLAIN }.run(&work(operation, json!({"ms": 50}), "20ms"));
            assert_eq!(ran.events.iter().filter(|event| *event == "safe").count(), usize::from(is_made_safe));
            assert_eq!(ran.touched, after, "{operation} {before:?}");
            let told = ran.lines.iter().filter(|(_, line)| line.to_string().contains("outputs are off")).count();
            assert_eq!(told, usize::from(is_made_safe), "{:?}", ran.lines);
        }
        let ran = Setup { touched: before, ..PLAIN }.run(&work(operation, json!({"ms": 20}), "20ms"));
        assert_eq!((&ran.events[..], ran.touched), (&[operation, "ended"].map(str::to_owned)[..], after_whole));
        assert_eq!(ran.lines, []);
    }
}

#[test]
fn logs_are_sent_as_they_come_and_reports_of_progress_every_four_seconds() {
    let ran = PLAIN.run(&execute("1", "work", r#"{"ms":10,"logs":2,"text":"é"}"#));
    let logs: Vec<_> = ran.lines.iter().map(|(at, line)| (*at, line["params"]["message"].as_str().unwrap())).collect();
    assert_eq!(logs, [(0, "log 0 é"), (10, "log 1 é")]);
    let call = |meta: Value| {
        let params = json!({"name": "work", "arguments": {"ms": 13_000}, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
    };
    let ran = PLAIN.run(&call(json!({"progressToken": "t"})));
    let reports: Vec<_> = ran
        .lines
        .iter()
        .map(|(at, line)| (*at, line["params"]["progressToken"].as_str(), line["params"]["progress"].as_f64()))
        .collect();
    let token = Some("t");
    assert_eq!(
        reports,
        [(4000, token, Some(0.000_001)), (8000, token, Some(0.000_002)), (12_000, token, Some(0.000_003))]
    );
    assert_eq!(PLAIN.run(&call(json!({}))).lines, [], "nobody asked");
}

/// A line may take half of the memory; how many did not fit is told at the end, if that fits.
#[test]
fn logs_without_room_are_counted() {
    let text = "x".repeat(300);
    let line =
        json!({"jsonrpc": "2.0", "method": "log", "params": {"level": "info", "message": format!("log 0 {text}")}});
    let length = line.to_string().len() + 1;
    let args = |logs: u64| json!({"logs": logs, "text": text, "quiet": true}).to_string();
    let told = |memory: usize, logs: u64| {
        let ran = Setup { memory, ..PLAIN }.run(&execute("1", "work", &args(logs)));
        assert_eq!(code(&ran), Some(0));
        ran.lines.into_iter().map(|(_, line)| line["params"].clone()).collect::<Vec<_>>()
    };
    let report = |text: &str, count: u64| {
        let message = format!("{count} log {text} dropped: no room in the log buffer");
        json!({"level": "warn", "message": message, "data": {"dropped": count}})
    };
    assert_eq!(told(2 * length, 2).len(), 2);
    assert_eq!(told(2 * length - 1, 2), [report("lines were", 2)]);
    assert_eq!(told(2 * length - 2, 1), [report("line was", 1)]);
    assert_eq!(told(100, 1), [] as [Value; 0]);
    assert_eq!(told(0, 1), [] as [Value; 0]);
}

#[test]
fn the_report_of_dropped_logs_is_a_line_of_the_protocol() {
    let mut memory = [0; 300];
    let length = dropped_logs(GEVALS, 12, &mut memory).unwrap();
    let line: Value = serde_json::from_slice(memory[..length].strip_suffix(b"\n").unwrap()).unwrap();
    assert_eq!((&line["params"]["level"], &line["params"]["data"]), (&json!("warn"), &json!({"dropped": 12})));
    assert_eq!(line["params"]["message"], "12 log lines were dropped: no room in the log buffer");
    // It fits exactly, or not at all.
    assert_eq!(dropped_logs(GEVALS, 12, &mut memory[..length]), Some(length));
    assert_eq!(dropped_logs(GEVALS, 12, &mut memory[..length - 1]), None);
    assert_eq!(dropped_logs(AMPLIFIER, 12, &mut memory), None, "it has no lines for logs");
}
