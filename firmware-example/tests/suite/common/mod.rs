//! A clock that jumps to the next thing to do, and sessions over pipes.
#![allow(dead_code, reason = "not every test file needs everything")]

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::task::Waker;

use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::End;
use rigline::serve::blocking::Server;
use rigline::{Clock, Extension as _, Instant};
use rigline_rig::sim::SimBoard;
use rigline_rig::{board::Board, rig::Rig};
use serde_json::Value;

/// Virtual time: nobody really waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeClock(Rc<Times>);

#[derive(Debug, Default)]
struct Times {
    now: Cell<u64>,
    wake: Cell<Option<u64>>,
}

impl FakeClock {
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.0.now.set(self.0.now.get() + ms * 1_000_000);
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.0.now.get() / 1_000_000
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.now.get())
    }

    fn wake_at(&self, at: Instant, _: &Waker) {
        let at = at.as_nanos();
        self.0.wake.set(Some(self.0.wake.get().map_or(at, |wake| wake.min(at))));
    }

    fn idle(&self) {
        let wake = self.0.wake.take().expect("a handler waits for nothing");
        self.0.now.set(wake.max(self.0.now.get()));
    }
}

pub(crate) type SimRig = Rig<SimBoard<FakeClock>>;

/// A rig on a simulated board, and its clock.
pub(crate) fn sim(seed: u32) -> (SimRig, FakeClock) {
    let clock = FakeClock::default();
    (Rig::new(SimBoard::new(clock.clone(), seed)), clock)
}

pub(crate) const LIMITS: (usize, usize) = (8191, 12_287);

struct Pipe<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl ErrorType for Pipe<'_> {
    type Error = Infallible;
}

impl Read for Pipe<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        self.input.read(buf)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        self.output.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// The lines that a session of these lines gives, and how it ended.
pub(crate) fn serve_lines<B: Board>(rig: &mut Rig<B>, clock: &FakeClock, lines: &[&str]) -> (Vec<String>, End) {
    serve_within(rig, clock, LIMITS, 512, lines)
}

/// The same over a wire with these limits, and with this much memory for logs.
pub(crate) fn serve_within<B: Board>(
    rig: &mut Rig<B>,
    clock: &FakeClock,
    limits: (usize, usize),
    logs: usize,
    lines: &[&str],
) -> (Vec<String>, End) {
    let (mut request, mut reply, mut log) = (vec![0; limits.0 + 1], vec![0; limits.1 + 1], vec![0; logs]);
    let mut engine = Engine::new(rig.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    assert_eq!(engine.limits(), limits);
    let input: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    let mut pipe = Pipe { input: input.as_bytes(), output: Vec::new() };
    let end = Server::new(rig, &mut engine, clock).log_buffer(&mut log).serve(&mut pipe).unwrap();
    let output = String::from_utf8(pipe.output).unwrap();
    (output.lines().map(str::to_owned).collect(), end)
}

/// The line that asks for a call.
pub(crate) fn execute(operation: &str, args: &str, timeout: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"{operation}","args":{args},"context":{{"timeout":"{timeout}"}}}}}}"#
    )
}

/// The lines that a call gives, the last of which is the reply.
pub(crate) fn call<B: Board>(rig: &mut Rig<B>, clock: &FakeClock, operation: &str, args: &str) -> Vec<Value> {
    call_within(rig, clock, operation, args, "0s")
}

/// The same with a timeout.
pub(crate) fn call_within<B: Board>(
    rig: &mut Rig<B>,
    clock: &FakeClock,
    operation: &str,
    args: &str,
    timeout: &str,
) -> Vec<Value> {
    let (lines, _) = serve_lines(rig, clock, &[&execute(operation, args, timeout)]);
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}
