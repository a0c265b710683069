#![allow(clippy::used_underscore_binding, reason = "embassy's main passes the spawner on under its name")]

use core::future::pending;

use embassy_executor::Spawner;
use embassy_futures::join::join;
use embassy_rp::bind_interrupts;
use embassy_rp::peripherals::USB;
use embassy_rp::usb::{Driver, InterruptHandler};
use embassy_usb::Builder;
use panic_halt as _;
use rigline::engine::{Engine, Memory};
#[cfg(feature = "amplifier")]
use rigline::protocol::AMPLIFIER;
#[cfg(feature = "mcp")]
use rigline::protocol::MCP;
#[cfg(feature = "namel3ss")]
use rigline::protocol::NAMEL3SS;
use rigline::protocol::{GEVALS, Protocol};
use rigline::serve::Transport;
use rigline::serve::asynch::serve;
use rigline::{Clock, Extension, Instant};
use rigline_embassy::rp2040::Endpoints;
use rigline_embassy::usb_cdc::{self, Port, State};
use rigline_rig::bench::Kubernetes;
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    USBCTRL_IRQ => InterruptHandler<USB>;
});

/// As the echo's line.
const LINE: usize = 1024;

/// What the engine and the shell work in; the figures name it.
const BUFFERS: usize = 2 * LINE + LOGS;
const LOGS: usize = 2 * rigline::engine::LEAST_REPLY;

/// What is not listed is not linked.
const PROTOCOLS: &[&Protocol] = &[
    GEVALS,
    #[cfg(feature = "amplifier")]
    AMPLIFIER,
    #[cfg(feature = "namel3ss")]
    NAMEL3SS,
    #[cfg(feature = "mcp")]
    MCP,
];

struct Microseconds;

impl Clock for Microseconds {
    fn now(&self) -> Instant {
        Instant::from_nanos(embassy_time::Instant::now().as_micros().wrapping_mul(1000))
    }
}

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    static STATE: StaticCell<State<'_, Endpoints>> = StaticCell::new();
    static CONFIG: StaticCell<[u8; 128]> = StaticCell::new();
    static BOS: StaticCell<[u8; 16]> = StaticCell::new();
    static CONTROL: StaticCell<[u8; 64]> = StaticCell::new();
    static BUFFER: StaticCell<[u8; BUFFERS]> = StaticCell::new();

    let peripherals = embassy_rp::init(embassy_rp::config::Config::default());
    let mut builder = Builder::new(
        Driver::new(peripherals.USB, Interrupts),
        usb_cdc::config("rigline rig", "ENGINE"),
        CONFIG.init_with(|| [0; 128]),
        BOS.init_with(|| [0; 16]),
        &mut [],
        CONTROL.init_with(|| [0; 64]),
    );
    let mut port = Port::new(&mut builder, STATE.init_with(State::new), Endpoints::first());
    let mut device = builder.build();
    let (request, rest) = BUFFER.init_with(|| [0; BUFFERS]).split_at_mut(LINE);
    let (reply, logs) = rest.split_at_mut(LINE);
    let memory = Memory { request, reply };
    let Ok(mut engine) = Engine::with_protocols(Kubernetes.manifest(), memory, PROTOCOLS) else { return };
    #[cfg(feature = "waza")]
    let evals = rigline::protocol::waza::Evals::new(rigline_rig::pinmap::EVALS);
    #[cfg(feature = "waza")]
    {
        engine = engine.with_service(&evals);
    }
    join(usb_cdc::run(&mut device, Endpoints::first()), async {
        loop {
            let (reader, writer) = port.connected().await;
            let (transport, never) = (Transport::Stream, pending());
            let _ = serve(&mut Kubernetes, &mut engine, reader, writer, transport, logs, &Microseconds, never).await;
        }
    })
    .await;
}
