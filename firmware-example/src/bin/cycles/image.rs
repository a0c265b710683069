use core::future::Future;
use core::hint::black_box;
use core::pin::pin;
use core::task::{self, Poll, Waker};

use embassy_rp as _;
use panic_halt as _;
use rigline::LogSink;
use rigline::protocol::{self, GEVALS, Protocol};
use rigline::{Clock, Context, Extension, Instant};
use rigline::{
    engine::{Engine, Memory, Step},
    exchange::Work,
};
use rigline_rig::bench::Kubernetes;

const LINE: &[u8] = include_bytes!("../../../../tests/bench/execute.jsonl");
const REPLY: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":true,\"outputs\":{\"resourceVersion\":\"12345\",\"uid\":\"abc-123-def\"},\"message\":\"Applied deployment.yaml to namespace my-app\"}}\n";

/// The bytes that a full-speed USB endpoint delivers at once.
const PACKET: usize = 64;

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

struct NoLog;

impl LogSink for NoLog {
    fn room(&mut self) -> &mut [u8] {
        &mut []
    }

    fn commit(&mut self, _: usize) {}

    fn dropped(&mut self) {}
}

fn mark<const CODE: u8>() {
    // SAFETY: in the emulator it is counted and goes on.
    unsafe { core::arch::asm!("bkpt #{}", const CODE) };
}

/// With the rig's features all that the rig speaks, each of which may claim the line; else gevals
/// alone.
const PROTOCOLS: &[&Protocol] = if cfg!(feature = "firmware") { protocol::ALL } else { &[GEVALS] };

#[cortex_m_rt::entry]
fn main() -> ! {
    let (mut request, mut reply) = ([0; 1024], [0; 1024]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    if let Ok(mut engine) = Engine::with_protocols(Kubernetes.manifest(), memory, PROTOCOLS) {
        for _ in 0..3 {
            fill(&mut engine, LINE);
            mark::<1>();
            engine.commit(LINE.len());
            answer(&mut engine);
        }
        for _ in 0..3 {
            let (packets, last) = LINE.split_at(LINE.len() / PACKET * PACKET);
            for packet in packets.chunks(PACKET) {
                fill(&mut engine, packet);
                engine.commit(packet.len());
                if !matches!(engine.step(), Step::Read) {
                    mark::<3>();
                }
            }
            fill(&mut engine, last);
            mark::<4>();
            engine.commit(last.len());
            answer(&mut engine);
        }
    }
    loop {
        cortex_m::asm::wfi();
    }
}

/// Puts these bytes where the engine reads; they are still to be committed.
fn fill(engine: &mut Engine<'_>, bytes: &[u8]) {
    for (to, from) in engine.space().iter_mut().zip(black_box(bytes)) {
        *to = *from;
    }
}

fn answer(engine: &mut Engine<'_>) {
    let Step::Run(run) = engine.step() else { return mark::<3>() };
    let mut logs = NoLog;
    let mut cx = Context::new(run.reply, &mut logs, &Still, None);
    let Work::Call(call) = run.work else { return mark::<3>() };
    let mut extension = Kubernetes;
    let polled = pin!(extension.call(call, &mut cx)).poll(&mut task::Context::from_waker(Waker::noop()));
    let Poll::Ready(result) = polled else { return mark::<3>() };
    engine.complete(&result);
    let Step::Write(reply) = engine.step() else { return mark::<3>() };
    mark::<2>();
    if black_box(reply) != REPLY {
        mark::<3>();
    }
}
