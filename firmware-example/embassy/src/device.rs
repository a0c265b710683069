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

/// A USB device that is one serial port, with an extension behind it: for firmware that needs nothing else of USB.
///
/// A firmware that has more to do (a second function, a watchdog, another wire) is made of the same parts: see [`usb_cdc`].
#[derive(Debug)]
pub struct UsbDevice<'d, D, E = ()> {
    driver: D,
    config: Config<'d>,
    protocols: &'d [&'static Protocol],
    endpoints: E,
}

impl<'d, D: Driver<'d>> UsbDevice<'d, D> {
    /// A device with this USB identity ([`usb_cdc::config`] makes one) that speaks these protocols. Each needs flash; what is not
    /// listed is not linked.
    pub fn new(driver: D, config: Config<'d>, protocols: &'d [&'static Protocol]) -> Self {
        Self { driver, config, protocols, endpoints: () }
    }
}

impl<'d, D: Driver<'d>, E: Endpoints + Copy + 'd> UsbDevice<'d, D, E> {
    /// Access to the hardware's endpoints [default: none].
    #[must_use]
    pub fn endpoints<F>(self, endpoints: F) -> UsbDevice<'d, D, F> {
        let Self { driver, config, protocols, .. } = self;
        UsbDevice { driver, config, protocols, endpoints }
    }

    /// Serves the extension, one connection after the other, for ever. A log line that the host does not begin to read within
    /// 100 ms is dropped.
    ///
    /// # Errors
    /// A region is too small, before anything was done.
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

/// The memory of a [`UsbDevice`]; give it a static place. The regions for a request (the longest request is one byte shorter), for a
/// reply, which must hold the manifest, and for log lines that wait, in bytes; and what USB needs.
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
    /// Unused memory.
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
