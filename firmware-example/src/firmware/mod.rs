//! The rig on a Raspberry Pi Pico: one rig on two wires, with a watchdog.
//!
//! | wire | speaks | |
//! |---|---|---|
//! | USB CDC, 16C0:27DD | lines of gevals, Amplifier or namel3ss | `
//! `, `\r
//! ` and a lone `\r` end a line |
//! | UART0 on GP0 (out) and GP1 (in), 115200 baud, 8N1 | the binary link, [`rigline::link`] | the same lines in frames with a CRC |
//!
//! UART1 on GP4 (out) and GP5 (in) is the console of the board under test, with feature `console`.
//!
//! The module [`wires`](crate::wires) decides which of the two wires holds the rig.
//!
//! # Memory
//! All memory is static. USB has [`REQUEST`], [`REPLY`] and [`LOGS`] bytes. The UART, which carries
//! 11 KB in a second, has 9 KB in all: [`UART_REQUEST`], [`UART_REPLY`] and [`UART_LOGS`] bytes,
//! [`FRAME`] bytes for the incoming frame, and [`KEPT_REPLY`] bytes for a reply that may be sent
//! again. `identify` and the manifest tell each wire its own limits.
//!
//! # Faults and recovery
//! - A panic or a hard fault resets the chip. Its message is kept, and `identify` reports it as
//!   `last_panic`.
//! - If a handler keeps the processor for [`WATCHDOG`] without awaiting, the watchdog resets the
//!   chip, and `identify` reports `watchdog` as `reset`. The same happens if anything else stops
//!   the executor.
//! - If a host does not read, a log line that cannot begin within [`LOG_LIMIT`] is dropped as a
//!   whole, see [`LogsMayBeLost`].

#[cfg(feature = "console")]
pub mod console;
pub mod crash;
pub mod hal;
#[cfg(feature = "instruments")]
pub mod instruments;

use core::future::pending;
use core::pin::pin;

use embassy_futures::join::join4;
use embassy_rp::adc;
use embassy_rp::interrupt::typelevel::Binding;
use embassy_rp::peripherals::{PIN_0, PIN_1, UART0, USB};
use embassy_rp::uart::{self, BufferedUart, BufferedUartRx, BufferedUartTx};
use embassy_rp::usb::{self, Driver};
use embassy_rp::watchdog::Watchdog;
use embassy_rp::{Peri, Peripherals, interrupt, peripherals};
use embassy_time::{Duration, Timer};
use embassy_usb::{Builder, UsbDevice};
use embedded_io_async::{Error as _, ErrorKind, ErrorType, Read, Write};
use rigline::frame::LineEnds;
use rigline::link;
use rigline::protocol::waza::Evals;
use rigline::serve::asynch::Server;
use rigline::serve::{End, ServeError, Transport};
use rigline::service::Service;
use rigline::{Extension, Manifest, own_frame};
use rigline::{
    engine::{Engine, Memory},
    exchange::SessionPolicy,
};
use rigline_embassy::rp2040::{self, Endpoints};
use rigline_embassy::usb_cdc::{self, Port};
use rigline_embassy::{EmbassyClock, LogsMayBeLost};
use static_cell::StaticCell;

use self::hal::PicoBoard;
use crate::board::Identity;
use crate::console::ConsoleUart;
use crate::pinmap;
use crate::wires::{HostPort, PortView, SharedExtension, UART_LOGS, UART_REPLY, UART_REQUEST};

/// The size of the region for requests over USB, in bytes. The longest request has 4095 bytes
/// without its newline.
pub const REQUEST: usize = 4096;
/// The size of the region for a reply over USB, in bytes, which is one more than the longest reply.
/// The manifest is the longest one of the rig: with the operations of optional features it is longer.
pub const REPLY: usize =
    if cfg!(any(feature = "console", feature = "statistics", feature = "instruments")) { 16_384 } else { 6144 };
/// The size of the memory for log lines that wait for USB, in bytes. It is used in two halves.
pub const LOGS: usize = 2048;
/// The size of the memory for an incoming frame of the binary link, in bytes: that of a frame with
/// the longest request.
pub const FRAME: usize = link::encoded_size(UART_REQUEST - 1);
/// The size of the memory for a reply that the link keeps while a call runs, in bytes. A reply that
/// is written during a call fits into half of [`UART_LOGS`].
pub const KEPT_REPLY: usize = UART_LOGS / 2;
/// The time that a log line waits for a host that does not read. Then the line is dropped.
pub const LOG_LIMIT: Duration = Duration::from_millis(100);
/// The time for which the executor may be blocked before the chip is reset. The watchdog's longest
/// time is 8.3 s.
pub const WATCHDOG: Duration = Duration::from_secs(8);
/// The product name of the rig on USB.
pub const PRODUCT: &str = "rigline rig";
/// The speed of UART0, in baud.
pub const BAUD: u32 = 115_200;

/// The interrupts that the rig's drivers need, bound by embassy's `bind_interrupts`.
pub trait Interrupts:
    Copy
    + Binding<interrupt::typelevel::USBCTRL_IRQ, usb::InterruptHandler<USB>>
    + Binding<interrupt::typelevel::UART0_IRQ, uart::BufferedInterruptHandler<UART0>>
    + Binding<interrupt::typelevel::ADC_IRQ_FIFO, adc::InterruptHandler>
    + ConsoleInterrupt
    + BusInterrupts
    + 'static
{
}

impl<I> Interrupts for I where
    I: Copy
        + Binding<interrupt::typelevel::USBCTRL_IRQ, usb::InterruptHandler<USB>>
        + Binding<interrupt::typelevel::UART0_IRQ, uart::BufferedInterruptHandler<UART0>>
        + Binding<interrupt::typelevel::ADC_IRQ_FIFO, adc::InterruptHandler>
        + ConsoleInterrupt
        + BusInterrupts
        + 'static
{
}

/// The interrupt of the console's UART.
#[cfg(feature = "console")]
pub trait ConsoleInterrupt: Binding<interrupt::typelevel::UART1_IRQ, console::InterruptHandler> {}

#[cfg(feature = "console")]
impl<I: Binding<interrupt::typelevel::UART1_IRQ, console::InterruptHandler>> ConsoleInterrupt for I {}

/// The interrupt of the console's UART: none, without feature `console`.
#[cfg(not(feature = "console"))]
pub trait ConsoleInterrupt {}

#[cfg(not(feature = "console"))]
impl<I> ConsoleInterrupt for I {}

/// The interrupts of the buses that are in the image.
#[cfg(feature = "i2c")]
pub trait BusInterrupts:
    Binding<interrupt::typelevel::I2C0_IRQ, embassy_rp::i2c::InterruptHandler<peripherals::I2C0>>
{
}

#[cfg(feature = "i2c")]
impl<I> BusInterrupts for I where
    I: Binding<interrupt::typelevel::I2C0_IRQ, embassy_rp::i2c::InterruptHandler<peripherals::I2C0>>
{
}

/// The interrupts of the buses that are in the image: none.
#[cfg(not(feature = "i2c"))]
pub trait BusInterrupts {}

#[cfg(not(feature = "i2c"))]
impl<I> BusInterrupts for I {}

/// Runs an extension on the rig forever. `make` makes the extension from the board.
pub async fn run<E: Extension>(p: Peripherals, interrupts: impl Interrupts, make: impl FnOnce(PicoBoard) -> E) {
    let (mut watchdog, identity) = start(p.WATCHDOG, p.FLASH);
    let pins = hal::Pins {
        rails: (p.PIN_2, p.PIN_3),
        buttons: (p.PIN_6, p.PIN_7, p.PIN_22),
        output: p.PIN_14,
        inputs: (p.PIN_10, p.PIN_11, p.PIN_15),
        channels: (p.PIN_26, p.PIN_27, p.PIN_28),
        temperature: p.ADC_TEMP_SENSOR,
        #[cfg(feature = "instruments")]
        instruments: instruments::Pins {
            #[cfg(feature = "i2c")]
            i2c: (p.I2C0, p.PIN_20, p.PIN_21),
            #[cfg(feature = "spi")]
            spi: (p.SPI0, p.PIN_16, p.PIN_17, p.PIN_18, p.PIN_19),
            #[cfg(feature = "counter")]
            counter: (p.PWM_SLICE6, p.PIN_13),
            #[cfg(feature = "pwm")]
            pwm: (p.PWM_SLICE4, p.PIN_8),
        },
    };
    let adc = adc::Adc::new(p.ADC, interrupts, adc::Config::default());
    let (device, port) = usb(p.USB, interrupts, identity.id);
    #[cfg(feature = "console")]
    let console = Some(console(p.UART1, (p.PIN_4, p.PIN_5), interrupts));
    #[cfg(not(feature = "console"))]
    let console = None;
    let mut place = None;
    let extension = extension(&mut place, make, (pins, adc, console), identity, interrupts);
    let shared = SharedExtension::new(extension, &EmbassyClock);
    let uart = uart(p.UART0, (p.PIN_0, p.PIN_1), interrupts);

    let running_usb = pin!(usb_cdc::run(device, Endpoints::first()));
    let serving_usb = pin!(serve_usb(port, shared.for_port(HostPort::Usb)));
    let serving_uart = pin!(serve_uart(uart, shared.for_port(HostPort::Uart)));
    join4(own_frame(running_usb), own_frame(serving_usb), own_frame(serving_uart), async {
        loop {
            watchdog.feed(WATCHDOG);
            Timer::after_secs(1).await;
        }
    })
    .await;
}

// What makes the parts is not inlined: what it needs of the stack would be there as long as the rig
// runs.

/// Starts the watchdog, and finds out who the board is and how it was reset.
#[inline(never)]
fn start(
    watchdog: Peri<'static, peripherals::WATCHDOG>,
    flash: Peri<'static, peripherals::FLASH>,
) -> (Watchdog, Identity<'static>) {
    static SERIAL: StaticCell<[u8; 16]> = StaticCell::new();

    let mut watchdog = Watchdog::new(watchdog);
    let (reset, last_panic) = crash::take(&watchdog);
    watchdog.pause_on_debug(true);
    watchdog.start(WATCHDOG);

    let id = rp2040::board_id(flash, SERIAL.init([0; 16]));
    defmt::info!("rig {=str} on board {=str}, reset: {=str}", env!("CARGO_PKG_VERSION"), id, reset);
    if let Some(text) = last_panic {
        defmt::warn!("before the reset: {=str}", text);
    }
    (watchdog, Identity { id, reset: Some(reset), last_panic })
}

#[inline(never)]
fn extension<'e, E: Extension>(
    place: &'e mut Option<E>,
    make: impl FnOnce(PicoBoard) -> E,
    (pins, adc, console): (hal::Pins, adc::Adc<'static, adc::Async>, Option<&'static mut dyn ConsoleUart>),
    identity: Identity<'static>,
    interrupts: impl Interrupts,
) -> &'e mut E {
    place.insert(make(hal::board(pins, adc, console, identity, interrupts)))
}

#[cfg(feature = "console")]
#[inline(never)]
fn console(
    uart: Peri<'static, peripherals::UART1>,
    pins: (Peri<'static, peripherals::PIN_4>, Peri<'static, peripherals::PIN_5>),
    interrupts: impl Interrupts,
) -> &'static mut dyn ConsoleUart {
    static CONSOLE: StaticCell<console::PicoConsole> = StaticCell::new();
    CONSOLE.init(console::PicoConsole::new(uart, pins, interrupts))
}

type UsbDriver = Driver<'static, USB>;
type UsbPort = Port<'static, UsbDriver>;

#[inline(never)]
fn usb(
    usb: Peri<'static, USB>,
    interrupts: impl Interrupts,
    serial: &'static str,
) -> (&'static mut UsbDevice<'static, Driver<'static, USB>>, &'static mut UsbPort) {
    static CONFIG: StaticCell<[u8; 128]> = StaticCell::new();
    static BOS: StaticCell<[u8; 16]> = StaticCell::new();
    static CONTROL: StaticCell<[u8; 64]> = StaticCell::new();
    static STATE: StaticCell<usb_cdc::State<'_, Endpoints>> = StaticCell::new();
    static PORT: StaticCell<UsbPort> = StaticCell::new();
    static DEVICE: StaticCell<UsbDevice<'_, Driver<'_, USB>>> = StaticCell::new();

    let mut builder = Builder::new(
        Driver::new(usb, interrupts),
        usb_cdc::config(PRODUCT, serial),
        CONFIG.init_with(|| [0; 128]),
        BOS.init_with(|| [0; 16]),
        &mut [],
        CONTROL.init_with(|| [0; 64]),
    );
    let port = PORT.init(Port::new(&mut builder, STATE.init_with(usb_cdc::State::new), Endpoints::first()));
    (DEVICE.init(builder.build()), port)
}

#[inline(never)]
fn uart(
    uart: Peri<'static, UART0>,
    pins: (Peri<'static, PIN_0>, Peri<'static, PIN_1>),
    interrupts: impl Interrupts,
) -> (BufferedUartTx, BufferedUartRx) {
    static BUFFERS: StaticCell<([u8; 64], [u8; 256])> = StaticCell::new();
    let (out, into) = BUFFERS.init_with(|| ([0; 64], [0; 256]));
    let mut config = uart::Config::default();
    config.baudrate = BAUD;
    BufferedUart::new(uart, pins.0, pins.1, interrupts, out, into, config).split()
}

#[inline(never)]
fn evals(place: &mut Option<Evals>) -> &Evals {
    place.insert(Evals::new(pinmap::EVALS))
}

/// A wire's engine, which speaks all protocols; none if its memory is too small.
#[inline(never)]
fn engine<'e, 'm>(
    place: &'e mut Option<Engine<'m>>,
    manifest: &'static Manifest,
    memory: Memory<'m>,
    ends: LineEnds,
    gate: &'m dyn SessionPolicy,
    evals: &'m dyn Service,
) -> Option<&'e mut Engine<'m>> {
    let engine = Engine::new(manifest, memory).ok()?;
    Some(place.insert(engine.with_line_ends(ends).with_session_policy(gate).with_service(evals)))
}

/// The memory of a wire's engine and driver.
struct Regions<const REQUEST: usize, const REPLY: usize, const LOGS: usize> {
    request: [u8; REQUEST],
    reply: [u8; REPLY],
    logs: [u8; LOGS],
}

impl<const REQUEST: usize, const REPLY: usize, const LOGS: usize> Regions<REQUEST, REPLY, LOGS> {
    const fn new() -> Self {
        Self { request: [0; REQUEST], reply: [0; REPLY], logs: [0; LOGS] }
    }
}

/// One connection after the other. A session lasts from one to the next, unless it is lost with its
/// connection.
async fn serve_usb<E: Extension>(port: &'static mut UsbPort, mut rig: PortView<'_, '_, E>) {
    static REGIONS: StaticCell<Regions<REQUEST, REPLY, LOGS>> = StaticCell::new();
    let Regions { request, reply, logs } = REGIONS.init_with(Regions::new);
    let gate = rig;
    let mut place = None;
    let evals = evals(&mut place);
    let memory = Memory { request, reply };
    let mut place = None;
    let Some(engine) = engine(&mut place, rig.manifest(), memory, LineEnds::Serial, &gate, evals) else { return };
    let presence = port.presence();
    loop {
        let (reader, writer) = port.connected().await;
        defmt::debug!("USB: opened");
        let mut writer = LogsMayBeLost::new(writer, LOG_LIMIT);
        let wires = (OneOf::Usb(reader), OneOf::Usb(&mut writer));
        let _ = own_frame(pin!(serve(wires, &mut rig, engine, logs, Some(&presence)))).await;
        gate.lost();
        defmt::debug!("USB: closed");
    }
}

async fn serve_uart<E: Extension>((writer, reader): (BufferedUartTx, BufferedUartRx), mut rig: PortView<'_, '_, E>) {
    static REGIONS: StaticCell<Regions<UART_REQUEST, UART_REPLY, UART_LOGS>> = StaticCell::new();
    static FRAMES: StaticCell<[u8; FRAME]> = StaticCell::new();
    static KEPT: StaticCell<[u8; KEPT_REPLY]> = StaticCell::new();
    let Regions { request, reply, logs } = REGIONS.init_with(Regions::new);
    let (frames, kept) = (FRAMES.init_with(|| [0; FRAME]), KEPT.init_with(|| [0; KEPT_REPLY]));
    let gate = rig;
    let mut place = None;
    let evals = evals(&mut place);
    let memory = Memory { request, reply };
    let mut place = None;
    let Some(engine) = engine(&mut place, rig.manifest(), memory, LineEnds::default(), &gate, evals) else { return };
    let shared = link::Shared::new();
    let (mut reader, mut writer) = link::split(&shared, Undamaged(reader), writer, frames, kept);
    loop {
        let wires = (OneOf::Uart(&mut reader), OneOf::Uart(&mut writer));
        let end = own_frame(pin!(serve(wires, &mut rig, engine, logs, None))).await;
        gate.lost();
        if end.is_err() {
            defmt::debug!("UART0: a new session, or a call was cancelled");
        }
    }
}

type Reader<'r, 'm> = OneOf<&'r mut usb_cdc::Reader<'static, UsbDriver>, &'r mut link::LinkReader<'m, 'm, Undamaged>>;
type Writer<'w, 'm> =
    OneOf<&'w mut LogsMayBeLost<'m, 'static, UsbDriver>, &'w mut link::LinkWriter<'m, 'm, BufferedUartTx>>;

/// Serves one connection, of whichever wire.
async fn serve<E: Extension>(
    (reader, mut writer): (Reader<'_, '_>, Writer<'_, '_>),
    rig: &mut PortView<'_, '_, E>,
    engine: &mut Engine<'_>,
    logs: &mut [u8],
    presence: Option<&usb_cdc::Presence<'static>>,
) -> Result<End, ServeError<ErrorKind>> {
    let mut reader = Heard { reader, rig: *rig };
    let lost = presence.map(usb_cdc::Presence::lost);
    let lost = async {
        match lost {
            Some(lost) => lost.await,
            None => pending().await,
        }
    };
    let server = Server::new(rig, engine, &EmbassyClock).transport(Transport::Stream).log_buffer(logs).stop(lost);
    server.serve(&mut reader, &mut writer).await
}

/// The reader or the writer of one of the wires: one type for both, so that the driver is in flash
/// once.
enum OneOf<A, B> {
    Usb(A),
    Uart(B),
}

impl<A, B> ErrorType for OneOf<A, B> {
    type Error = ErrorKind;
}

impl<A: Read, B: Read> Read for OneOf<A, B> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        match self {
            Self::Usb(usb) => usb.read(buf).await.map_err(|error| error.kind()),
            Self::Uart(uart) => uart.read(buf).await.map_err(|error| error.kind()),
        }
    }
}

impl<A: Write, B: Write> Write for OneOf<A, B> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        match self {
            Self::Usb(usb) => usb.write(buf).await.map_err(|error| error.kind()),
            Self::Uart(uart) => uart.write(buf).await.map_err(|error| error.kind()),
        }
    }

    async fn flush(&mut self) -> Result<(), ErrorKind> {
        match self {
            Self::Usb(usb) => usb.flush().await.map_err(|error| error.kind()),
            Self::Uart(uart) => uart.flush().await.map_err(|error| error.kind()),
        }
    }
}

/// A reader whose lines keep a session from being silent.
struct Heard<'w, 'a, E, R> {
    reader: R,
    rig: PortView<'w, 'a, E>,
}

impl<E, R: ErrorType> ErrorType for Heard<'_, '_, E, R> {
    type Error = R::Error;
}

impl<E, R: Read> Read for Heard<'_, '_, E, R> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, R::Error> {
        let result = self.reader.read(buf).await;
        if result.is_ok() {
            self.rig.heard();
        }
        result
    }
}

/// A UART whose noise is not an error: what it destroys, the link's CRC finds.
struct Undamaged(BufferedUartRx);

impl ErrorType for Undamaged {
    type Error = uart::Error;
}

impl Read for Undamaged {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, uart::Error> {
        loop {
            match self.0.read(buf).await {
                Ok(0) | Err(_) => {}
                Ok(count) => return Ok(count),
            }
        }
    }
}
