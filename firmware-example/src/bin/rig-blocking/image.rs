use core::cell::RefCell;
use core::convert::Infallible;
use core::fmt;

use embedded_io::{ErrorKind, ErrorType, Read, Write};
use panic_halt as _;
use rigline::engine::{Engine, Memory};
use rigline::frame::LineEnds;
use rigline::serve::{Transport, blocking::Server};
use rigline::{Clock, Extension, Instant};
use rigline_rig::board::{Adc, Identity, Wired};
use rigline_rig::pinmap::{LAYOUT, TEMPERATURE, channel_value};
use rigline_rig::rig::Rig;
use rp2040_hal::adc::{AdcPin, TempSense};
use rp2040_hal::gpio::bank0::{Gpio26, Gpio27, Gpio28};
use rp2040_hal::gpio::{FunctionSioInput, Pin, PinState, Pins, PullNone};
use rp2040_hal::usb::UsbBus;
use rp2040_hal::{self as hal, Timer, pac};
use usb_device::UsbError;
use usb_device::bus::UsbBusAllocator;
use usb_device::device::{StringDescriptors, UsbDevice, UsbDeviceBuilder, UsbDeviceState, UsbVidPid};
use usbd_serial::{SerialPort, USB_CLASS_CDC};

#[unsafe(link_section = ".boot2")]
#[used]
static BOOT2: [u8; 256] = rp2040_boot2::BOOT_LOADER_W25Q080;

/// The crystal of a Raspberry Pi Pico, in hertz.
const CRYSTAL: u32 = 12_000_000;
const REQUEST: usize = 4096;
const REPLY: usize = 6144;

#[hal::entry]
fn main() -> ! {
    let Some(mut p) = pac::Peripherals::take() else { panic!("main runs once") };
    let mut watchdog = hal::Watchdog::new(p.WATCHDOG);
    let clocks = hal::clocks::init_clocks_and_plls(
        CRYSTAL,
        p.XOSC,
        p.CLOCKS,
        p.PLL_SYS,
        p.PLL_USB,
        &mut p.RESETS,
        &mut watchdog,
    );
    let Ok(clocks) = clocks else { panic!("the crystal does not swing") };
    let timer = Timer::new(p.TIMER, &mut p.RESETS, &clocks);
    let bus = UsbBus::new(p.USBCTRL_REGS, p.USBCTRL_DPRAM, clocks.usb_clock, true, &mut p.RESETS);
    let bus = UsbBusAllocator::new(bus);
    let serial = SerialPort::new(&bus);
    let names = StringDescriptors::default().manufacturer("rigline").product("rigline rig").serial_number("BLOCKING");
    let device = UsbDeviceBuilder::new(&bus, UsbVidPid(0x16c0, 0x27dd)).strings(&[names]);
    let Ok(device) = device.map(|device| device.device_class(USB_CLASS_CDC).build()) else { panic!("three names") };
    let usb = Usb { timer, parts: RefCell::new((device, serial)) };

    let pins = Pins::new(p.IO_BANK0, p.PADS_BANK0, hal::Sio::new(p.SIO).gpio_bank0, &mut p.RESETS);
    let mut converter = hal::Adc::new(p.ADC, &mut p.RESETS);
    let Some(temperature) = converter.take_temp_sensor() else { panic!("main runs once") };
    let (Ok(rail_3v3), Ok(rail_5v0), Ok(aux)) = (
        AdcPin::new(pins.gpio26.reconfigure()),
        AdcPin::new(pins.gpio27.reconfigure()),
        AdcPin::new(pins.gpio28.reconfigure()),
    ) else {
        panic!("they are the converter's pins")
    };
    let board = Wired {
        layout: &LAYOUT,
        identity: Identity { id: "BLOCKING", reset: None, last_panic: None },
        rails: [pins.gpio2.into_push_pull_output().into_dyn_pin(), pins.gpio3.into_push_pull_output().into_dyn_pin()],
        buttons: [
            pins.gpio6.into_push_pull_output().into_dyn_pin(),
            pins.gpio7.into_push_pull_output().into_dyn_pin(),
            // It is pressed when it is low.
            pins.gpio22.into_push_pull_output_in_state(PinState::High).into_dyn_pin(),
        ],
        outputs: [pins.gpio14.into_push_pull_output().into_dyn_pin()],
        inputs: [
            pins.gpio10.into_pull_down_input().into_dyn_pin(),
            pins.gpio11.into_pull_down_input().into_dyn_pin(),
            pins.gpio15.into_pull_down_input().into_dyn_pin(),
        ],
        adc: Channels { converter, rail_3v3, rail_5v0, aux, temperature },
        console: None,
    };
    let mut rig = Rig::new(board);
    let (mut request, mut reply, mut log) = ([0; REQUEST], [0; REPLY], [0; 512]);
    let engine = Engine::new(rig.manifest(), Memory { request: &mut request, reply: &mut reply });
    let Ok(engine) = engine else { panic!("the reply region is large enough") };
    let mut engine = engine.with_line_ends(LineEnds::Serial);
    loop {
        usb.poll();
        if usb.is_open() {
            let _ = Server::new(&mut rig, &mut engine, &usb)
                .transport(Transport::Stream)
                .log_buffer(&mut log)
                .serve(&mut &usb);
        }
    }
}

/// The port as blocking streams, and the rig's clock: while a handler waits, the bus is polled.
struct Usb<'b> {
    timer: Timer,
    parts: RefCell<(UsbDevice<'b, UsbBus>, SerialPort<'b, UsbBus>)>,
}

impl Usb<'_> {
    fn poll(&self) {
        let (device, serial) = &mut *self.parts.borrow_mut();
        device.poll(&mut [serial]);
    }

    /// Whether a host holds the port open.
    fn is_open(&self) -> bool {
        let (device, serial) = &*self.parts.borrow();
        device.state() == UsbDeviceState::Configured && serial.dtr()
    }

    /// Tries again and again, for as long as the host holds the port open.
    fn until<T>(
        &self,
        mut attempt: impl FnMut(&mut SerialPort<'_, UsbBus>) -> Result<T, UsbError>,
    ) -> Result<T, PortClosed> {
        loop {
            self.poll();
            if !self.is_open() {
                return Err(PortClosed);
            }
            if let Ok(done) = attempt(&mut self.parts.borrow_mut().1) {
                return Ok(done);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct PortClosed;

impl fmt::Display for PortClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host closed the port")
    }
}

impl core::error::Error for PortClosed {}

impl embedded_io::Error for PortClosed {
    fn kind(&self) -> ErrorKind {
        ErrorKind::NotConnected
    }
}

impl ErrorType for &Usb<'_> {
    type Error = PortClosed;
}

impl Read for &Usb<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, PortClosed> {
        // An empty packet is not the end of input.
        self.until(|serial| match serial.read(buf) {
            Ok(0) if !buf.is_empty() => Err(UsbError::WouldBlock),
            result => result,
        })
    }
}

impl Write for &Usb<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, PortClosed> {
        self.until(|serial| match serial.write(buf) {
            Ok(0) if !buf.is_empty() => Err(UsbError::WouldBlock),
            result => result,
        })
    }

    fn flush(&mut self) -> Result<(), PortClosed> {
        // A method's path would name the port's memory, which is long.
        #[allow(clippy::redundant_closure_for_method_calls)]
        self.until(|serial| serial.flush())
    }
}

impl Clock for Usb<'_> {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.timer.get_counter().ticks().wrapping_mul(1000))
    }

    fn idle(&self) {
        self.poll();
    }
}

type Analog<I> = AdcPin<Pin<I, FunctionSioInput, PullNone>>;

struct Channels {
    converter: hal::Adc,
    rail_3v3: Analog<Gpio26>,
    rail_5v0: Analog<Gpio27>,
    aux: Analog<Gpio28>,
    temperature: TempSense,
}

impl Adc for Channels {
    type Error = Infallible;

    async fn read(&mut self, channel: usize) -> Result<i32, Infallible> {
        let steps: Result<u16, _> = match channel {
            0 => self.converter.read(&mut self.rail_3v3),
            1 => self.converter.read(&mut self.rail_5v0),
            TEMPERATURE => self.converter.read(&mut self.temperature),
            _ => self.converter.read(&mut self.aux),
        };
        Ok(channel_value(channel, steps.unwrap_or_default()))
    }
}
