//! hello on an STM32F072 (128 KB of flash, 16 KB of RAM), over USB serial, without a crystal.

#![no_std]
#![no_main]

use embassy_executor::Spawner;
use embassy_stm32::gpio::{Level, Output, Speed};
use embassy_stm32::peripherals::USB;
use embassy_stm32::rcc::{Hsi48Config, Sysclk, mux::Usbsw};
use embassy_stm32::usb::{Driver, InterruptHandler};
use embassy_stm32::{bind_interrupts, uid};
use panic_halt as _;
use rigline::protocol;
use rigline_boards::{Hello, Lamp};
use rigline_embassy::{UsbDevice, UsbMemory, usb_cdc};
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    USB => InterruptHandler<USB>;
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
    static MEMORY: StaticCell<UsbMemory<'_, 2048, 2048, 512>> = StaticCell::new();

    // The internal oscillator of 48 MHz, kept in step with the host's frames.
    let mut clocks = embassy_stm32::Config::default();
    clocks.rcc.hsi48 = Some(Hsi48Config { sync_from_usb: true });
    clocks.rcc.sys = Sysclk::HSI48;
    clocks.rcc.mux.usbsw = Usbsw::HSI48;
    let p = embassy_stm32::init(clocks);
    let driver = Driver::new(p.USB, Interrupts, p.PA12, p.PA11);
    let lamp = Pin(Output::new(p.PC6, Level::Low, Speed::Low));
    let config = usb_cdc::config("hello", uid::uid_hex());
    let device = UsbDevice::new(driver, config, protocol::ALL);
    let Err(error) = device.serve(&mut Hello { lamp }, MEMORY.init_with(UsbMemory::new)).await;
    panic!("{error}")
}
