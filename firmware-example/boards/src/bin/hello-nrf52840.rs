//! hello on an nRF52840 (nRF52840-DK), over USB serial.

#![no_std]
#![no_main]

use embassy_executor::Spawner;
use embassy_nrf::gpio::{Level, Output, OutputDrive};
use embassy_nrf::usb::vbus_detect::{self, HardwareVbusDetect};
use embassy_nrf::usb::{Driver, InterruptHandler};
use embassy_nrf::{bind_interrupts, config, pac, peripherals};
use panic_halt as _;
use rigline::protocol;
use rigline_boards::{Hello, Lamp};
use rigline_embassy::{UsbDevice, UsbMemory, hex, usb_cdc};
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    USBD => InterruptHandler<peripherals::USBD>;
    CLOCK_POWER => vbus_detect::InterruptHandler;
});

/// The LED of the board, which is on when the pin is low.
struct Pin(Output<'static>);

impl Lamp for Pin {
    fn set(&mut self, on: bool) {
        self.0.set_level((!on).into());
    }
}

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    static MEMORY: StaticCell<UsbMemory<'_, 4096, 4096, 1024>> = StaticCell::new();
    static SERIAL: StaticCell<[u8; 16]> = StaticCell::new();

    // USB needs the crystal.
    let mut clocks = config::Config::default();
    clocks.hfclk_source = config::HfclkSource::ExternalXtal;
    let p = embassy_nrf::init(clocks);
    let driver = Driver::new(p.USBD, Interrupts, HardwareVbusDetect::new(Interrupts));
    let lamp = Pin(Output::new(p.P0_13, Level::High, OutputDrive::Standard));
    let [high, low] = [1, 0].map(|half| u64::from(pac::FICR.deviceid(half).read()));
    let config = usb_cdc::config("hello", hex((high << 32 | low).to_be_bytes(), SERIAL.init([0; 16])));
    let device = UsbDevice::new(driver, config, protocol::ALL);
    let Err(error) = device.serve(&mut Hello { lamp }, MEMORY.init_with(UsbMemory::new)).await;
    panic!("{error}")
}
