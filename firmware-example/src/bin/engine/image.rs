#![allow(clippy::used_underscore_binding, reason = "embassy's main passes the spawner on under its name")]

use core::pin::pin;

use embassy_executor::Spawner;
use embassy_futures::join::join;
use embassy_rp::peripherals::USB;
use embassy_rp::usb::{Driver, InterruptHandler};
use embassy_rp::{Peri, bind_interrupts};
use embassy_usb::{Builder, UsbDevice};
use panic_halt as _;
use rigline::engine::{Engine, Memory, TooSmall};
#[cfg(feature = "amplifier")]
use rigline::protocol::AMPLIFIER;
#[cfg(feature = "mcp")]
use rigline::protocol::MCP;
#[cfg(feature = "namel3ss")]
use rigline::protocol::NAMEL3SS;
#[cfg(feature = "waza")]
use rigline::protocol::waza::Evals;
use rigline::protocol::{GEVALS, Protocol};
use rigline::serve::Transport;
use rigline::serve::asynch::Server;
use rigline::{Clock, Extension, Instant, own_frame};
use rigline_embassy::rp2040::Endpoints;
use rigline_embassy::usb_cdc::{self, Port, State};
use rigline_rig::bench::Kubernetes;
#[cfg(feature = "waza")]
use static_cell::ConstStaticCell;
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    USBCTRL_IRQ => InterruptHandler<USB>;
});

/// As the echo's line.
const LINE: usize = 1024;

/// The memory of the engine and the driver; the figures name it.
const BUFFERS: usize = 2 * LINE + LOGS;
const LOGS: usize = 2 * rigline::exchange::LEAST_REPLY;

/// The linked protocols. One that is not listed is not linked.
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
    let peripherals = embassy_rp::init(embassy_rp::config::Config::default());
    let (device, port) = usb(peripherals.USB);
    let Some((engine, logs)) = engine() else { return };
    let running = pin!(usb_cdc::run(device, Endpoints::first()));
    let serving = pin!(async {
        loop {
            let (reader, writer) = port.connected().await;
            let _ = Server::new(&mut Kubernetes, engine, &Microseconds)
                .transport(Transport::Stream)
                .log_buffer(logs)
                .serve(reader, writer)
                .await;
        }
    });
    join(own_frame(running), own_frame(serving)).await;
}

type UsbPort = Port<'static, Driver<'static, USB>>;

// What makes the parts is not inlined: what it needs of the stack would be there as long as the
// image runs.

/// The engine, and the memory for logs.
#[inline(never)]
fn engine() -> Option<(&'static mut Engine<'static>, &'static mut [u8])> {
    static BUFFER: StaticCell<[u8; BUFFERS]> = StaticCell::new();
    static ENGINE: StaticCell<Result<Engine<'static>, TooSmall>> = StaticCell::new();

    let (request, rest) = BUFFER.init_with(|| [0; BUFFERS]).split_at_mut(LINE);
    let (reply, logs) = rest.split_at_mut(LINE);
    // Made in its place: on its way there it would be on the stack.
    let engine = ENGINE.init_with(|| {
        let engine = Engine::with_protocols(Kubernetes.manifest(), Memory { request, reply }, PROTOCOLS);
        #[cfg(feature = "waza")]
        let engine = {
            static EVALS: ConstStaticCell<Evals> = ConstStaticCell::new(Evals::new(rigline_rig::pinmap::EVALS));
            engine.map(|engine| engine.with_service(EVALS.take()))
        };
        engine
    });
    Some((engine.as_mut().ok()?, logs))
}

#[inline(never)]
fn usb(usb: Peri<'static, USB>) -> (&'static mut UsbDevice<'static, Driver<'static, USB>>, &'static mut UsbPort) {
    static CONFIG: StaticCell<[u8; 128]> = StaticCell::new();
    static BOS: StaticCell<[u8; 16]> = StaticCell::new();
    static CONTROL: StaticCell<[u8; 64]> = StaticCell::new();
    static STATE: StaticCell<State<'_, Endpoints>> = StaticCell::new();
    static PORT: StaticCell<UsbPort> = StaticCell::new();
    static DEVICE: StaticCell<UsbDevice<'_, Driver<'_, USB>>> = StaticCell::new();

    let mut builder = Builder::new(
        Driver::new(usb, Interrupts),
        usb_cdc::config("rigline rig", "ENGINE"),
        CONFIG.init_with(|| [0; 128]),
        BOS.init_with(|| [0; 16]),
        &mut [],
        CONTROL.init_with(|| [0; 64]),
    );
    let port = PORT.init(Port::new(&mut builder, STATE.init_with(State::new), Endpoints::first()));
    (DEVICE.init(builder.build()), port)
}
