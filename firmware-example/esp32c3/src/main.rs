//! hello on an ESP32-C3, over its built-in USB serial port and blocking I/O.

#![no_std]
#![no_main]

use esp_hal::gpio::{Level, Output, OutputConfig};
use esp_hal::usb_serial_jtag::UsbSerialJtag;
use panic_halt as _;
use rigline::engine::{Engine, Memory};
use rigline::frame::LineEnds;
use rigline::serve::{Transport, blocking::Server};
use rigline::{Clock, Extension as _, Instant};
use rigline_boards::{Hello, Lamp};

// The boot loader looks for it.
esp_bootloader_esp_idf::esp_app_desc!();

/// A LED at GPIO 8.
struct Pin(Output<'static>);

impl Lamp for Pin {
    fn set(&mut self, on: bool) {
        self.0.set_level(on.into());
    }
}

/// The chip's timer.
struct Timer;

impl Clock for Timer {
    fn now(&self) -> Instant {
        let micros = esp_hal::time::Instant::now().duration_since_epoch().as_micros();
        Instant::from_nanos(micros.saturating_mul(1000))
    }
}

#[esp_hal::main]
fn main() -> ! {
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 512]);
    let p = esp_hal::init(esp_hal::Config::default());
    let lamp = Pin(Output::new(p.GPIO8, Level::Low, OutputConfig::default()));
    let extension = &mut Hello { lamp };
    let engine = Engine::new(extension.manifest(), Memory { request: &mut request, reply: &mut reply });
    let Ok(engine) = engine else { panic!("the manifest does not fit the region for a reply") };
    let mut engine = engine.with_line_ends(LineEnds::Serial);
    let mut port = UsbSerialJtag::new(p.USB_DEVICE);
    loop {
        let server = Server::new(extension, &mut engine, &Timer);
        let _ = server.transport(Transport::Stream).log_buffer(&mut log).serve(&mut port);
    }
}
