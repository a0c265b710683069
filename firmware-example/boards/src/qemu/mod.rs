//! The rig with simulated hardware over a UART: the code that all boards in QEMU share.

mod register;
#[cfg(feature = "qemu-arm")]
mod ticks;
mod uart;

pub use register::Register;
#[cfg(feature = "qemu-arm")]
pub use ticks::Ticks;
pub use uart::{Port, Uart};

use panic_halt as _;
use rigline::engine::{Engine, Memory};
use rigline::frame::LineEnds;
use rigline::serve::{Transport, blocking::Server};
use rigline::{Clock, Extension as _};
use rigline_rig::rig::Rig;
use rigline_rig::sim::SimBoard;

/// The size of the region for a request, in bytes.
const REQUEST: usize = 4096;
/// The size of the region for a reply, in bytes. The manifest is the longest one.
const REPLY: usize = 6144;
/// The size of the region for a log line, in bytes.
const LOG: usize = 512;

/// Serves the rig forever. A UART has no connections: a session ends with its `shutdown`.
///
/// # Panics
/// Never: the region for a reply is large enough for the manifest.
pub fn serve(uart: impl Uart, clock: &dyn Clock) -> ! {
    let (mut request, mut reply, mut log) = ([0; REQUEST], [0; REPLY], [0; LOG]);
    let mut rig = Rig::new(SimBoard::new(clock, 1));
    let engine = Engine::new(rig.manifest(), Memory { request: &mut request, reply: &mut reply });
    let Ok(engine) = engine else { panic!("the reply region is large enough") };
    let mut engine = engine.with_line_ends(LineEnds::Serial);
    let mut port = Port(uart);
    loop {
        let server = Server::new(&mut rig, &mut engine, clock);
        let _ = server.transport(Transport::Stream).log_buffer(&mut log).serve(&mut port);
    }
}
