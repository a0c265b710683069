//! Two wires to one rig, without wires: who holds it when.

use std::task::{Context as Task, Poll, Waker};

use crate::common::FakeClock;
use rigline::{Context, Extension, LogSink};
use rigline::{
    engine::{Engine, Memory, Step},
    exchange::{SessionPolicy, Work},
};
use rigline_rig::rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_rig::wires::{HostPort, PortView, SharedExtension};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
const CONFIGURE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"settle_ms":-1}}}"#;
const SHUTDOWN: &str = r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"GP15"},"context":{}}}"#;
const READ: &str = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"GP14"},"context":{}}}"#;
const ON: &str = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"gpio-write","args":{"pin":"GP14","high":true},"context":{}}}"#;

struct NoLogs;

impl LogSink for NoLogs {
    fn room(&mut self) -> &mut [u8] {
        &mut []
    }

    fn commit(&mut self, _: usize) {}

    fn dropped(&mut self) {}
}

/// A wire's engine and what it leads to.
struct End<'e, 'w, 'a> {
    engine: Engine<'e>,
    rig: PortView<'w, 'a, Rig<SimBoard<FakeClock>>>,
    clock: FakeClock,
}

impl End<'_, '_, '_> {
    /// The answer to a line.
    fn say(&mut self, line: &str) -> String {
        self.rig.heard();
        let space = self.engine.space();
        space[..line.len()].copy_from_slice(line.as_bytes());
        space[line.len()] = b'\n';
        self.engine.commit(line.len() + 1);
        let mut answer = String::new();
        loop {
            let result = match self.engine.step() {
                Step::Write(line) => {
                    answer = String::from_utf8(line.to_vec()).unwrap();
                    continue;
                }
                Step::Run(run) => {
                    let mut logs = NoLogs;
                    let mut cx = Context::new(run.reply, &mut logs, &self.clock, None);
                    match run.work {
                        Work::Call(call) => at_once(self.rig.call(call, &mut cx)),
                        Work::Configure(config) => {
                            at_once(self.rig.configure(config, &mut cx)).map(|()| rigline::Outcome::DONE)
                        }
                        other => panic!("{other:?}"),
                    }
                }
                Step::Read => return answer,
                _ => continue,
            };
            self.engine.complete(&result);
        }
    }
}

fn at_once<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut Task::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Says each line over its wire, after a wait, and looks for a word in the answer.
fn play(steps: &[(u64, HostPort, &str, &str)]) {
    let clock = FakeClock::default();
    let mut rig = Rig::new(SimBoard::new(clock.clone(), 1));
    let manifest = rig.manifest();
    let shared = SharedExtension::new(&mut rig, &clock);
    let (usb, uart) = (shared.for_port(HostPort::Usb), shared.for_port(HostPort::Uart));
    let mut memory = [(); 4].map(|()| vec![0; 16_384]);
    let [a, b, c, d] = memory.each_mut().map(Vec::as_mut_slice);
    let engine = |request, reply| Engine::new(manifest, Memory { request, reply }).unwrap();
    let mut over_usb = End { engine: engine(a, b).with_session_policy(&usb), rig: usb, clock: clock.clone() };
    let mut over_uart = End { engine: engine(c, d).with_session_policy(&uart), rig: uart, clock: clock.clone() };
    for (place, (wait_ms, wire, line, word)) in steps.iter().enumerate() {
        clock.advance_ms(*wait_ms);
        let end = if *wire == HostPort::Usb { &mut over_usb } else { &mut over_uart };
        if *line == "lost" {
            if end.engine.disconnect() {
                at_once(end.rig.safe_state());
            }
            end.rig.lost();
            continue;
        }
        let answer = end.say(line);
        assert!(answer.contains(word), "step {place}: {answer}, not {word}");
    }
}

use HostPort::{Uart, Usb};

const OK: &str = r#""result""#;
const BUSY: &str = "-32000";

#[test]
fn without_a_session_both_are_served() {
    play(&[(0, Usb, CALL, OK), (0, Uart, CALL, OK), (0, Usb, SHUTDOWN, OK), (0, Uart, CALL, OK)]);
}

#[test]
fn a_session_holds_the_rig_until_shutdown_or_loss() {
    play(&[
        (0, Usb, INITIALIZE, OK),
        (0, Uart, CALL, BUSY),
        (0, Uart, INITIALIZE, BUSY),
        // That of a wire without a session ends nothing.
        (0, Uart, SHUTDOWN, OK),
        (0, Uart, "lost", ""),
        (0, Uart, CALL, BUSY),
        (0, Usb, INITIALIZE, OK),
        (0, Usb, SHUTDOWN, OK),
        (0, Uart, INITIALIZE, OK),
        (0, Usb, CALL, "-32600"),
        (0, Usb, INITIALIZE, "in use over UART0"),
        (0, Uart, "lost", ""),
        (0, Usb, INITIALIZE, OK),
    ]);
}

#[test]
fn a_session_that_does_not_start_holds_nothing() {
    play(&[(0, Usb, CONFIGURE, "-32602"), (0, Uart, INITIALIZE, OK)]);
}

#[test]
fn silence_gives_the_rig_away_when_the_other_asks() {
    play(&[
        (0, Usb, INITIALIZE, OK),
        (0, Usb, ON, OK),
        (29_999, Uart, CALL, BUSY),
        (1, Uart, CALL, r#""high":"false""#),
        (0, Usb, CALL, "send initialize again"),
        (0, Usb, INITIALIZE, OK),
        (0, Usb, CALL, OK),
        // Nobody asks: the session goes on.
        (3_600_000, Usb, CALL, OK),
        (29_000, Usb, r#"{"op":"health"}"#, ""),
        (29_000, Uart, INITIALIZE, BUSY),
    ]);
}

#[test]
fn a_session_that_was_taken_over_does_not_touch_the_rig_when_it_is_lost() {
    play(&[
        (0, Usb, INITIALIZE, OK),
        (30_000, Uart, INITIALIZE, OK),
        (0, Uart, ON, OK),
        (0, Usb, "lost", ""),
        (0, Uart, CALL, r#""high":"true""#),
        (0, Usb, CALL, BUSY),
    ]);
}

/// After its shutdown, and where it had no session, the hardware stays as the other wire has left
/// it.
#[test]
fn a_session_that_was_taken_over_does_not_touch_the_rig_after_the_other_has_left() {
    play(&[
        (0, Usb, INITIALIZE, OK),
        (30_000, Uart, INITIALIZE, OK),
        (0, Uart, ON, OK),
        (0, Uart, SHUTDOWN, OK),
        (0, Usb, "lost", ""),
        (0, Usb, CALL, r#""high":"true""#),
    ]);
    play(&[
        (0, Usb, INITIALIZE, OK),
        (30_000, Uart, ON, OK),
        (0, Usb, "lost", ""),
        (0, Uart, CALL, r#""high":"true""#),
    ]);
}

/// An agent whose call was refused has switched nothing on: what the other wire has left stays when it goes.
#[test]
fn a_wire_whose_calls_were_refused_does_not_touch_the_rig_when_it_is_lost() {
    let tool = |name: &str, arguments: &str| {
        let params = format!(r#"{{"name":"{name}","arguments":{{{arguments}}}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    let on = tool("gpio_write", r#""pin":"GP14","high":true"#);
    for (after, word, high) in [
        (tool("gpio_read", r#""pin":"GP14""#), r#""high":true"#, "true"),
        (tool("gpio_write", r#""pin":"GP99","high":true"#), "unknown pin", "true"),
        (tool("uart_write", r#""data":"zz","encoding":"hex""#), "args.data", "true"),
        (on.clone(), "is high", "false"),
    ] {
        play(&[
            (0, Usb, INITIALIZE, OK),
            (0, Usb, ON, OK),
            (0, Uart, &on, "in use over USB"),
            (0, Usb, SHUTDOWN, OK),
            (0, Uart, &after, word),
            (0, Uart, "lost", ""),
            (0, Uart, READ, &format!(r#""high":"{high}""#)),
        ]);
    }
}

#[test]
fn a_wire_that_may_not_is_told_by_its_gate() {
    let clock = FakeClock::default();
    let mut rig = Rig::new(SimBoard::new(clock.clone(), 1));
    let shared = SharedExtension::new(&mut rig, &clock);
    assert!(shared.for_port(Usb).open().is_ok());
    assert!(shared.for_port(Uart).open().is_err());
    shared.for_port(Uart).close();
    assert!(shared.for_port(Uart).open().is_err());
    shared.for_port(Usb).close();
    assert!(shared.for_port(Uart).open().is_ok());
}

/// A sink after whose lines the driver has its turn.
struct Queued([u8; 600]);

impl LogSink for Queued {
    fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn commit(&mut self, _: usize) {}

    fn is_queue(&self) -> bool {
        true
    }

    fn dropped(&mut self) {}
}

/// Between two of its tasks, no call of the other wire comes in.
#[test]
#[cfg(feature = "waza")]
fn an_eval_holds_the_rig_from_its_first_task_to_its_last() {
    use rigline::protocol::waza::Evals;

    let clock = FakeClock::default();
    let mut rig = Rig::new(SimBoard::new(clock.clone(), 1));
    let manifest = rig.manifest();
    let shared = SharedExtension::new(&mut rig, &clock);
    let (mut usb, uart) = (shared.for_port(HostPort::Usb), shared.for_port(HostPort::Uart));
    let mut memory = [(); 4].map(|()| vec![0; 16_384]);
    let [a, b, c, d] = memory.each_mut().map(Vec::as_mut_slice);
    let evals = Evals::new(rigline_rig::pinmap::EVALS);
    let mut engine = Engine::new(manifest, Memory { request: a, reply: b }).unwrap().with_service(&evals);
    let other = Engine::new(manifest, Memory { request: c, reply: d }).unwrap();
    let mut over_uart = End { engine: other, rig: uart, clock: clock.clone() };
    assert!(over_uart.say(CALL).contains(OK));

    let line = concat!(r#"{"jsonrpc":"2.0","id":1,"method":"eval.run","params":{"path":"self-test"}}"#, "\n");
    engine.space()[..line.len()].copy_from_slice(line.as_bytes());
    engine.commit(line.len());
    let mut polls = 0;
    loop {
        match engine.step() {
            Step::Run(run) => {
                let mut logs = Queued([0; 600]);
                let mut cx = Context::new(run.reply, &mut logs, &clock, None);
                let Work::Job(job) = run.work else { panic!("{:?}", run.work) };
                let mut running = std::pin::pin!(usb.run_job(job, &mut cx));
                while running.as_mut().poll(&mut Task::from_waker(Waker::noop())).is_pending() {
                    polls += 1;
                    assert!(over_uart.say(CALL).contains("in use over USB"), "at poll {polls}");
                    clock.advance_ms(1);
                }
                break;
            }
            Step::Read => panic!("nothing runs"),
            _ => {}
        }
    }
    assert!(polls > 10, "{polls}");
    assert!(over_uart.say(CALL).contains(OK), "it is free again");
}
