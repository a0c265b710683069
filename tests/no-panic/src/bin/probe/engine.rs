//! `rigline::engine`, driven by hand: without a driver of the crate.

use core::future::Future;
use core::hint::black_box;
use core::pin::pin;
use core::task::{self, Poll, Waker};

use rigline::Extension;
use rigline::frame::LineEnds;
use rigline::protocol::GEVALS;
use rigline::{Context, LogSink};
use rigline::{Failure, Outcome};
use rigline::{
    engine::{Background, Engine, Memory, Run, Step},
    exchange::{SessionPolicy, Work},
};

use crate::context::{MANIFEST, PROTOCOLS, Probe, Ticks, configure, handle};
use crate::program::{bytes, keep, show};

pub(crate) fn all() {
    let (mut request, mut reply) = (bytes::<512>(), bytes::<1024>());
    let size = black_box(1000);
    let memory = Memory { request: &mut request, reply: reply.get_mut(..size).unwrap_or_default() };
    #[cfg(feature = "protocols")]
    let evals = rigline::protocol::waza::Evals::new(crate::context::EVALS);
    match Engine::with_protocols(&MANIFEST, memory, PROTOCOLS) {
        Ok(engine) => {
            let mut engine = engine.with_line_ends(LineEnds::Serial);
            if black_box(true) {
                engine = engine.with_protocol(black_box(GEVALS));
            }
            #[cfg(feature = "protocols")]
            let engine = engine.with_service(&evals);
            drive(engine.with_session_policy(&Door));
        }
        Err(error) => show(&error),
    }
}

fn drive(mut engine: Engine<'_>) {
    keep((engine.limits(), engine.is_session_open()));
    loop {
        match engine.step() {
            Step::Read => {
                engine.space().fill(black_box(b'x'));
                if black_box(true) {
                    engine.commit(black_box(10));
                } else {
                    engine.finish();
                }
            }
            Step::Write(line) => keep(line),
            Step::Run(step) => {
                let result = run(step);
                engine.complete(&result);
            }
            Step::Shutdown => keep(engine.disconnect()),
            _ => break,
        }
    }
}

fn run(step: Run<'_>) -> Result<Outcome, Failure> {
    let Run { work, reply, background } = step;
    keep(work.timeout_nanos());
    behind(background);
    let (mut logs, mut probe) = (Logs(bytes()), Probe);
    let mut cx = Context::new(reply, &mut logs, &Ticks, black_box(None));
    match work {
        Work::Call(call) if cfg!(not(feature = "handlers")) => handle(call, &mut cx),
        Work::Configure(config) if cfg!(not(feature = "handlers")) => configure(config).map(|()| Outcome::DONE),
        Work::Call(call) => poll(probe.call(call, &mut cx)),
        Work::Configure(config) => poll(probe.configure(config, &mut cx)).map(|()| Outcome::DONE),
        Work::Event(event) if cfg!(not(feature = "handlers")) => {
            crate::event::seen(event);
            Ok(Outcome::DONE)
        }
        Work::Event(event) => poll(async {
            probe.on_event(event, &mut cx).await;
            Ok(Outcome::DONE)
        }),
        _ => Ok(Outcome::DONE),
    }
}

fn poll<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match pin!(future).poll(&mut task::Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Failure::UNKNOWN_OPERATION),
    }
}

fn behind(mut background: Background<'_>) {
    background.space().fill(black_box(b'x'));
    background.commit(black_box(10));
    let mut memory = bytes::<600>();
    while let Some(line) = background.answer(&mut memory) {
        keep(line);
    }
    background.finish();
}

/// A gate that the compiler knows nothing about.
#[derive(Debug)]
struct Door;

impl SessionPolicy for Door {
    fn open(&self) -> Result<(), Failure> {
        if black_box(true) { Ok(()) } else { Err(black_box(Failure::UNKNOWN_OPERATION)) }
    }

    fn close(&self) {
        keep(black_box(1));
    }
}

struct Logs([u8; 64]);

impl LogSink for Logs {
    fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn commit(&mut self, length: usize) {
        keep(length);
    }

    fn dropped(&mut self) {
        keep(&mut self.0);
    }
}
