use core::convert::Infallible;

use embassy_futures::join::join;
use embassy_time::Duration;
use embassy_usb::driver::Driver;
use embassy_usb::{Builder, Config};
use rigline::Extension;
use rigline::engine::{self, Engine, TooSmall};
use rigline::frame::LineEnds;
use rigline::protocol::Protocol;
use rigline::serve::{Transport, asynch::Server};

use crate::usb_cdc::{self, Endpoints, Port, State};
use crate::{EmbassyClock, LogsMayBeLost};

/// How long a log line waits for a host that does not read.
const LOG_LIMIT: Duration = Duration::from_millis(100);

/// A USB device that is one serial port, with an extension behind it. It is for firmware that does
/// nothing else with USB.
///
/// A firmware with more functions (a second USB function, a watchdog, another port) uses the parts
/// of [`usb_cdc`] directly.
#[derive(Debug)]
pub struct UsbDevice<'d, D, E = ()> {
    driver: D,
    config: Config<'d>,
    protocols: &'d [&'static Protocol],
    endpoints: E,
}

impl<'d, D: Driver<'d>> UsbDevice<'d, D> {
    /// A device that speaks these protocols, with this USB identity, which [`usb_cdc::config`]
    /// makes. Each protocol needs flash, and protocols that are not in the list are not linked.
    pub fn new(driver: D, config: Config<'d>, protocols: &'d [&'static Protocol]) -> Self {
        Self { driver, config, protocols, endpoints: () }
    }
}

impl<'d, D: Driver<'d>, E: Endpoints + Copy + 'd> UsbDevice<'d, D, E> {
    /// Sets the access to the packet memory of the hardware's endpoints [default: none].
    #[must_use]
    pub fn endpoints<F>(self, endpoints: F) -> UsbDevice<'d, D, F> {
        let Self { driver, config, protocols, .. } = self;
        UsbDevice { driver, config, protocols, endpoints }
    }

    /// Serves the extension forever, one connection after the other. A log line that the host does
    /// not begin to read within 100 ms is dropped.
    ///
    /// # Errors
    /// A memory region is too small. Nothing was started then.
    pub async fn serve<const REQUEST: usize, const REPLY: usize, const LOGS: usize>(
        self,
        extension: &mut impl Extension,
        memory: &'d mut UsbMemory<'d, REQUEST, REPLY, LOGS, E>,
    ) -> Result<Infallible, TooSmall> {
        let Self { driver, config, protocols, endpoints } = self;
        let UsbMemory { request, reply, logs, descriptors, bos, control, state } = memory;
        let engine = Engine::with_protocols(extension.manifest(), engine::Memory { request, reply }, protocols)?;
        let mut engine = engine.with_line_ends(LineEnds::Serial);
        let mut builder = Builder::new(driver, config, descriptors, bos, &mut [], control);
        let mut port = Port::new(&mut builder, state, endpoints);
        let mut device = builder.build();
        let presence = port.presence();
        let serving = async {
            loop {
                let (reader, writer) = port.connected().await;
                let mut writer = LogsMayBeLost::new(writer, LOG_LIMIT);
                // A session continues on the next connection, unless it was lost with its own.
                let _ = Server::new(extension, &mut engine, &EmbassyClock)
                    .transport(Transport::Stream)
                    .log_buffer(logs)
                    .stop(presence.lost())
                    .serve(reader, &mut writer)
                    .await;
            }
        };
        let (never, ()) = join(serving, usb_cdc::run(&mut device, endpoints)).await;
        never
    }
}

/// The memory of a [`UsbDevice`], which belongs into a `static`. It has regions of these sizes in
/// bytes: `REQUEST` for a request (the longest one is one byte shorter), `REPLY` for a reply, which
/// must be large enough for the manifest, and `LOGS` for log lines that wait.
pub struct UsbMemory<'d, const REQUEST: usize, const REPLY: usize, const LOGS: usize, E: Endpoints = ()> {
    request: [u8; REQUEST],
    reply: [u8; REPLY],
    logs: [u8; LOGS],
    descriptors: [u8; 128],
    bos: [u8; 16],
    control: [u8; 64],
    state: State<'d, E>,
}

impl<const REQUEST: usize, const REPLY: usize, const LOGS: usize, E: Endpoints> UsbMemory<'_, REQUEST, REPLY, LOGS, E> {
    /// Memory that is not in use yet.
    pub const fn new() -> Self {
        Self {
            request: [0; REQUEST],
            reply: [0; REPLY],
            logs: [0; LOGS],
            descriptors: [0; 128],
            bos: [0; 16],
            control: [0; 64],
            state: State::new(),
        }
    }
}

impl<const REQUEST: usize, const REPLY: usize, const LOGS: usize, E: Endpoints> Default
    for UsbMemory<'_, REQUEST, REPLY, LOGS, E>
{
    fn default() -> Self {
        Self::new()
    }
}
