//! hello on a Raspberry Pi Pico (RP2040), over USB serial.

#![no_std]
#![no_main]

use embassy_executor::Spawner;
use embassy_rp::bind_interrupts;
use embassy_rp::gpio::{Level, Output};
use embassy_rp::peripherals::USB;
use embassy_rp::usb::{Driver, InterruptHandler};
use panic_halt as _;
use rigline::protocol;
use rigline_boards::{Hello, Lamp};
use rigline_embassy::rp2040::{Endpoints, board_id};
use rigline_embassy::{UsbDevice, UsbMemory, usb_cdc};
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    USBCTRL_IRQ => InterruptHandler<USB>;
});

/// The LED of the board.
struct Pin(Output<'static>);

impl Lamp for Pin {
    fn set(&mut self, on: bool) {
        self.0.set_level(on.into());
    }
}

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    static MEMORY: StaticCell<UsbMemory<'_, 4096, 4096, 1024, Endpoints>> = StaticCell::new();
    static SERIAL: StaticCell<[u8; 16]> = StaticCell::new();

    let p = embassy_rp::init(embassy_rp::config::Config::default());
    let driver = Driver::new(p.USB, Interrupts);
    let lamp = Pin(Output::new(p.PIN_25, Level::Low));
    let config = usb_cdc::config("hello", board_id(p.FLASH, SERIAL.init([0; 16])));
    let device = UsbDevice::new(driver, config, protocol::ALL).endpoints(Endpoints::first());
    let Err(error) = device.serve(&mut Hello { lamp }, MEMORY.init_with(UsbMemory::new)).await;
    panic!("{error}")
}
