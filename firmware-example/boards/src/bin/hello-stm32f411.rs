//! hello on an STM32F411 ("Black Pill"), over USB serial.

#![no_std]
#![no_main]

use embassy_executor::Spawner;
use embassy_stm32::gpio::{Level, Output, Speed};
use embassy_stm32::peripherals::USB_OTG_FS;
use embassy_stm32::rcc::{Hse, HseMode, Pll, PllMul, PllPDiv, PllPreDiv, PllQDiv, PllSource, Sysclk};
use embassy_stm32::usb::{self, Driver, InterruptHandler};
use embassy_stm32::{bind_interrupts, rcc::APBPrescaler, time::Hertz, uid};
use panic_halt as _;
use rigline::protocol;
use rigline_boards::{Hello, Lamp};
use rigline_embassy::{UsbDevice, UsbMemory, usb_cdc};
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    OTG_FS => InterruptHandler<USB_OTG_FS>;
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
    static PACKETS: StaticCell<[u8; 256]> = StaticCell::new();

    // From the crystal of 25 MHz: 84 MHz for the processor, 48 MHz for USB.
    let mut clocks = embassy_stm32::Config::default();
    clocks.rcc.hse = Some(Hse { freq: Hertz(25_000_000), mode: HseMode::Oscillator });
    let (divp, divq) = (Some(PllPDiv::DIV4), Some(PllQDiv::DIV7));
    clocks.rcc.pll_src = PllSource::HSE;
    clocks.rcc.pll = Some(Pll { prediv: PllPreDiv::DIV25, mul: PllMul::MUL336, divp, divq, divr: None });
    clocks.rcc.sys = Sysclk::PLL1_P;
    clocks.rcc.apb1_pre = APBPrescaler::DIV2;
    let p = embassy_stm32::init(clocks);
    let packets = PACKETS.init([0; 256]);
    let driver = Driver::new_fs(p.USB_OTG_FS, Interrupts, p.PA12, p.PA11, packets, usb::Config::default());
    let lamp = Pin(Output::new(p.PC13, Level::High, Speed::Low));
    let device = UsbDevice::new(driver, usb_cdc::config("hello", uid::uid_hex()), protocol::ALL);
    let Err(error) = device.serve(&mut Hello { lamp }, MEMORY.init_with(UsbMemory::new)).await;
    panic!("{error}")
}
