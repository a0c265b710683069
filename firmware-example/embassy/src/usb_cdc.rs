//! A USB serial port (CDC ACM) as `embedded-io-async` streams that do not block forever, lose or
//! repeat bytes.
//!
//! `embassy_usb::class::cdc_acm` moves packets. A line protocol needs more, which this module adds:
//!
//! - **Zero-length packets.** A host driver holds back a full 64-byte packet until a shorter one
//!   comes (USB 2.0 §5.8.3). The `flush` of [`Writer`] sends an empty packet if the last one was
//!   full. Call it after each line.
//! - **No zero read.** An empty packet from the host is not the end of input. [`Reader`] waits for
//!   the next packet.
//! - **Buffers of any size.** A packet is read as a whole and returned in pieces. A dropped `read`
//!   loses and repeats nothing.
//! - **Connections.** A connection lasts while the device is configured and not suspended, and the
//!   host holds DTR. When one of these conditions ends, every `read` and `write` in progress
//!   returns [`Error::ConnectionLost`]. Each later one does, too, until [`Port::connected`] has
//!   begun the next connection. A short drop of DTR is noticed even if nothing was read or written
//!   during it.
//! - **Nothing of the last connection.** Bytes that the host has sent in an earlier connection and
//!   nobody has read are dropped. A packet that the host has not taken is taken back from the
//!   hardware ([`Endpoints`]), since an operating system reads a port before it raises DTR.
//! - **A host that does not read.** `write` waits as long as the host holds DTR, because a line
//!   that has begun must be finished. [`Writer::write_within`] returns [`Error::Stalled`] if its
//!   first byte cannot be sent in time. Begin lines that may be lost (logs) with it, and drop the
//!   whole line after that error.
//! - **A control transfer that the host gives up.** [`run`] ends it. embassy-rp would wait for it
//!   forever.
//!
//! Run [`run`], the reader and the writer on one executor: the packet memory is shared without a
//! lock.
//!
//! A program makes a [`Port`], and runs the device beside a loop. The loop awaits
//! [`Port::connected`], and serves the reader and the writer that it returns until either fails.
//! The image `echo` of `rigline-rig` is a small complete example.

use core::cell::Cell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::task::Poll;

use embassy_futures::select::{Either, select};
use embassy_sync::blocking_mutex::CriticalSectionMutex;
use embassy_sync::waitqueue::AtomicWaker;
use embassy_time::{Duration, Timer, with_timeout};
use embassy_usb::class::cdc_acm::{self, CdcAcmClass};
use embassy_usb::control::{OutResponse, Recipient, Request, RequestType};
use embassy_usb::driver::{Driver, EndpointError};
use embassy_usb::{Builder, Config, Handler, UsbDevice};
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};

/// The USB vendor id for V-USB's shared product ids.
pub const VENDOR_ID: u16 = 0x16c0;
/// V-USB's shared product id for CDC ACM. Hosts tell its devices apart by the manufacturer, product
/// and serial strings.
pub const PRODUCT_ID: u16 = 0x27dd;
/// The largest bulk packet at full speed, in bytes.
pub const PACKET: usize = MAX_PACKET_SIZE as usize;
const MAX_PACKET_SIZE: u16 = 64;

/// Makes the USB identity of a rigline device: 16C0:27DD, manufacturer `rigline`, this product, and
/// the board's number as the serial number. Hosts find the device by its manufacturer
/// (`serial:auto`), and so does the udev rule that keeps ModemManager away.
pub fn config<'a>(product: &'a str, serial: &'a str) -> Config<'a> {
    let mut config = Config::new(VENDOR_ID, PRODUCT_ID);
    config.manufacturer = Some("rigline");
    config.product = Some(product);
    config.serial_number = Some(serial);
    config
}

/// The reason why a read or a write of the port failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// DTR dropped, the bus was reset or suspended, or the device was unplugged or deconfigured.
    ConnectionLost,
    /// The host took no packet within the limit of [`Writer::write_within`]. Nothing was sent.
    Stalled,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConnectionLost => "the host closed the USB port",
            Self::Stalled => "the host does not read the USB port",
        })
    }
}

impl core::error::Error for Error {}

impl embedded_io_async::Error for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::ConnectionLost => ErrorKind::NotConnected,
            Self::Stalled => ErrorKind::TimedOut,
        }
    }
}

/// Access to the packet memory of the bulk endpoints, which embassy's drivers do not provide.
///
/// `()` implements it for hardware without such access. Up to one packet in each direction may then
/// stay from one connection to the next.
pub trait Endpoints {
    /// Whether a packet from the host waits to be read.
    fn has_packet_from_host(&self) -> bool;

    /// Takes back a packet that the host has not fetched. The next packet is then sent in its place
    /// and with its data toggle.
    fn retract_in(&self);

    /// Whether a bus reset or a new control transfer waits for the device to handle it.
    fn control_waits(&self) -> bool {
        false
    }

    /// Ends the control transfer in progress, which the host has given up.
    fn abandon_control(&self) {}
}

impl Endpoints for () {
    fn has_packet_from_host(&self) -> bool {
        false
    }

    fn retract_in(&self) {}
}

/// Runs the USB device, as `UsbDevice::run` does, and ends control transfers that the host has
/// given up half way. embassy-rp's driver waits for such a transfer forever, so that it never sees
/// a bus reset. Here the transfer is ended after 20 to 40 ms.
pub async fn run<'d, D: Driver<'d>>(device: &mut UsbDevice<'d, D>, endpoints: impl Endpoints) {
    const LONG: Duration = Duration::from_millis(20);
    let watch = async {
        loop {
            Timer::after(LONG).await;
            if endpoints.control_waits() {
                Timer::after(LONG).await;
                if endpoints.control_waits() {
                    endpoints.abandon_control();
                }
            }
        }
    };
    // In this order: the device is polled after its transfer was ended.
    select(watch, device.run()).await;
}

/// The memory of a [`Port`], which belongs into a `static`.
pub struct State<'d, E: Endpoints = ()> {
    class: cdc_acm::State<'d>,
    line: Line,
    watch: Option<Watch<'d, E>>,
}

impl<E: Endpoints> State<'_, E> {
    /// Memory that is not in use yet.
    pub const fn new() -> Self {
        Self { class: cdc_acm::State::new(), line: Line::new(), watch: None }
    }
}

impl<E: Endpoints> Default for State<'_, E> {
    fn default() -> Self {
        Self::new()
    }
}

/// A USB serial port, connected or not.
pub struct Port<'d, D: Driver<'d>> {
    reader: Reader<'d, D>,
    writer: Writer<'d, D>,
}

impl<'d, D: Driver<'d>> Port<'d, D> {
    /// Adds the port to a device as its first function, with communication interface 0. For another
    /// function of a composite device, use [`at_interface`](Self::at_interface).
    ///
    /// # Panics
    /// As embassy's `Builder` does, if its handlers, interfaces or endpoints are used up.
    pub fn new<E: Endpoints>(builder: &mut Builder<'d, D>, state: &'d mut State<'d, E>, endpoints: E) -> Self {
        Self::at_interface(builder, 0, state, endpoints)
    }

    /// Adds the port to a device as a function whose first interface has the number `interface`.
    /// That is the number of interfaces of all functions before it. A CDC function has two
    /// interfaces, so that a second port has interface 2. The port takes DTR only from requests to
    /// its own interface.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn at_interface<E: Endpoints>(
        builder: &mut Builder<'d, D>,
        interface: u8,
        state: &'d mut State<'d, E>,
        endpoints: E,
    ) -> Self {
        let State { class, line, watch } = state;
        let line: &'d Line = line;
        // Before the class, whose own handler ends the search: a request goes to the handlers in
        // order until one answers.
        builder.handler(watch.insert(Watch { line, endpoints, interface: u16::from(interface) }));
        let (sender, receiver) = CdcAcmClass::new(builder, class, MAX_PACKET_SIZE).split();
        Self {
            reader: Reader { receiver, line, epoch: 0, packet: [0; PACKET], start: 0, end: 0 },
            writer: Writer { sender, line, epoch: 0, full: false },
        }
    }

    /// Waits until the host has opened the port, and begins the connection. Returns its reader and
    /// writer.
    pub async fn connected(&mut self) -> (&mut Reader<'d, D>, &mut Writer<'d, D>) {
        self.reader.connected().await;
        self.writer.connected().await;
        (&mut self.reader, &mut self.writer)
    }

    /// Returns an observer that notices the end of a connection without reading or writing.
    pub fn presence(&self) -> Presence<'d> {
        Presence { line: self.reader.line }
    }

    /// Splits the port into its two directions, for two tasks. Each has its own `connected`.
    pub fn split(self) -> (Reader<'d, D>, Writer<'d, D>) {
        (self.reader, self.writer)
    }
}

/// An observer of the end of connections, see [`Port::presence`].
#[derive(Clone, Copy)]
pub struct Presence<'d> {
    line: &'d Line,
}

impl<'d> Presence<'d> {
    /// Waits until the current connection has ended. It is ready at once if there is none. Only one
    /// future may wait at a time.
    pub fn lost(&self) -> impl Future<Output = ()> + use<'d> {
        let line = self.line;
        let epoch = line.status().epoch;
        async move { line.lost(&line.presence, epoch).await }
    }
}

/// The reader of the bytes from the host.
pub struct Reader<'d, D: Driver<'d>> {
    receiver: cdc_acm::Receiver<'d, D>,
    line: &'d Line,
    epoch: u32,
    packet: [u8; PACKET],
    start: usize,
    end: usize,
}

impl<'d, D: Driver<'d>> Reader<'d, D> {
    /// Waits until the host has opened the port, forgets the bytes that it sent before, and begins
    /// the connection.
    pub async fn connected(&mut self) {
        (self.start, self.end) = (0, 0);
        self.epoch = self.line.connected(&self.line.reader).await;
        if self.line.take_stale() {
            // There at once: the endpoint was full when the flag was set, and only this reader
            // empties it.
            let _ = select(self.line.lost(&self.line.reader, self.epoch), self.receiver.read_packet(&mut self.packet))
                .await;
        }
    }

    /// Waits until the connection is lost. It is ready at once if the connection is lost already.
    pub async fn lost(&mut self) {
        self.line.lost(&self.line.reader, self.epoch).await;
    }
}

impl<'d, D: Driver<'d>> ErrorType for Reader<'d, D> {
    type Error = Error;
}

impl<'d, D: Driver<'d>> Read for Reader<'d, D> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.line.check(self.epoch)?;
        while self.start >= self.end {
            let lost = self.line.lost(&self.line.reader, self.epoch);
            let direct = buf.len() >= PACKET;
            let room = if direct { &mut *buf } else { &mut self.packet[..] };
            let length = match select(lost, self.receiver.read_packet(room)).await {
                Either::Second(Ok(length)) => length,
                Either::First(()) | Either::Second(Err(EndpointError::Disabled | EndpointError::BufferOverflow)) => {
                    return Err(Error::ConnectionLost);
                }
            };
            if direct && length > 0 {
                return Ok(length);
            }
            if !direct {
                (self.start, self.end) = (0, length);
            }
        }
        let packet = self.packet.get(self.start..self.end).unwrap_or_default();
        let length = packet.iter().zip(buf.iter_mut()).map(|(from, to)| *to = *from).count();
        self.start += length;
        Ok(length)
    }
}

/// The writer of the bytes to the host.
///
/// Each `write` sends one packet of up to 64 bytes, as soon as the one before was sent. It returns
/// when the packet is in the hardware, not when the host has read it. Call `flush` after each line.
pub struct Writer<'d, D: Driver<'d>> {
    sender: cdc_acm::Sender<'d, D>,
    line: &'d Line,
    epoch: u32,
    /// The last packet was a full one, and the host waits for more.
    full: bool,
}

impl<'d, D: Driver<'d>> Writer<'d, D> {
    /// Waits until the host has opened the port, and begins the connection.
    pub async fn connected(&mut self) {
        self.full = false;
        self.epoch = self.line.connected(&self.line.writer).await;
    }

    /// Writes as `write` does, but returns [`Error::Stalled`] if no byte could be sent within
    /// `limit`. No byte was sent then.
    pub async fn write_within(&mut self, buf: &[u8], limit: Duration) -> Result<usize, Error> {
        with_timeout(limit, self.write(buf)).await.unwrap_or(Err(Error::Stalled))
    }

    async fn packet(&mut self, data: &[u8]) -> Result<(), Error> {
        self.line.check(self.epoch)?;
        let lost = self.line.lost(&self.line.writer, self.epoch);
        match select(lost, self.sender.write_packet(data)).await {
            Either::Second(Ok(())) => {
                self.full = data.len() == PACKET;
                Ok(())
            }
            Either::First(()) | Either::Second(Err(_)) => Err(Error::ConnectionLost),
        }
    }
}

impl<'d, D: Driver<'d>> ErrorType for Writer<'d, D> {
    type Error = Error;
}

impl<'d, D: Driver<'d>> Write for Writer<'d, D> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Error> {
        let data = buf.get(..PACKET).unwrap_or(buf);
        if !data.is_empty() {
            self.packet(data).await?;
        }
        Ok(data.len())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.line.check(self.epoch)?;
        if self.full {
            self.packet(&[]).await?;
        }
        Ok(())
    }
}

/// The state of the host, as the USB task saw it last: four independent facts, each from a request
/// or event of its own.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy)]
struct Status {
    configured: bool,
    suspended: bool,
    dtr: bool,
    /// Counts lost connections.
    epoch: u32,
    /// A packet that the host sent outside this connection waits in the OUT endpoint.
    stale: bool,
}

impl Status {
    fn connected(self) -> bool {
        self.configured && !self.suspended && self.dtr
    }
}

struct Line {
    status: CriticalSectionMutex<Cell<Status>>,
    reader: AtomicWaker,
    writer: AtomicWaker,
    presence: AtomicWaker,
}

impl Line {
    const fn new() -> Self {
        let status = Status { configured: false, suspended: false, dtr: false, epoch: 0, stale: false };
        Self {
            status: CriticalSectionMutex::new(Cell::new(status)),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
            presence: AtomicWaker::new(),
        }
    }

    fn status(&self) -> Status {
        self.status.lock(Cell::get)
    }

    fn take_stale(&self) -> bool {
        self.status.lock(|status| {
            let before = status.get();
            status.set(Status { stale: false, ..before });
            before.stale
        })
    }

    fn check(&self, epoch: u32) -> Result<(), Error> {
        let status = self.status();
        if status.connected() && status.epoch == epoch { Ok(()) } else { Err(Error::ConnectionLost) }
    }

    async fn connected(&self, waker: &AtomicWaker) -> u32 {
        poll_fn(|cx| {
            waker.register(cx.waker());
            let status = self.status();
            if status.connected() { Poll::Ready(status.epoch) } else { Poll::Pending }
        })
        .await
    }

    async fn lost(&self, waker: &AtomicWaker, epoch: u32) {
        poll_fn(|cx| {
            waker.register(cx.waker());
            if self.check(epoch).is_err() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Sees the port's control requests before embassy's class does, each of them and in order.
struct Watch<'d, E: Endpoints> {
    line: &'d Line,
    endpoints: E,
    interface: u16,
}

impl<E: Endpoints> Watch<'_, E> {
    // One copy: the handlers below are small, and each would inline it.
    #[inline(never)]
    fn change(&mut self, configured: Option<bool>, suspended: Option<bool>, dtr: Option<bool>) {
        let before = self.line.status();
        let mut after = Status {
            configured: configured.unwrap_or(before.configured),
            suspended: suspended.unwrap_or(before.suspended),
            dtr: dtr.unwrap_or(before.dtr),
            ..before
        };
        if before.connected() != after.connected() {
            // What lies in the endpoints at either edge belongs to no connection, or to the lost
            // one.
            after.stale = self.endpoints.has_packet_from_host();
            if before.connected() {
                after.epoch = after.epoch.wrapping_add(1);
            }
            self.endpoints.retract_in();
        }
        self.line.status.lock(|status| status.set(after));
        self.line.reader.wake();
        self.line.writer.wake();
        self.line.presence.wake();
    }
}

impl<E: Endpoints> Handler for Watch<'_, E> {
    fn enabled(&mut self, _enabled: bool) {
        self.reset();
    }

    fn reset(&mut self) {
        self.change(Some(false), Some(false), Some(false));
    }

    fn configured(&mut self, configured: bool) {
        self.change(Some(configured), None, None);
    }

    fn suspended(&mut self, suspended: bool) {
        self.change(None, Some(suspended), None);
    }

    fn control_out(&mut self, request: Request, _data: &[u8]) -> Option<OutResponse> {
        /// CDC PSTN 1.2 §6.3.12; bit 0 of the value is DTR.
        const SET_CONTROL_LINE_STATE: u8 = 0x22;
        if (request.request_type, request.recipient, request.request, request.index)
            == (RequestType::Class, Recipient::Interface, SET_CONTROL_LINE_STATE, self.interface)
        {
            self.change(None, None, Some(request.value & 1 != 0));
        }
        None
    }
}
