#![allow(clippy::used_underscore_binding, reason = "embassy's main passes the spawner on under its name")]

use embassy_executor::Spawner;
use embassy_futures::join::join;
use embassy_rp::bind_interrupts;
use embassy_rp::peripherals::USB;
use embassy_rp::usb::{Driver, InterruptHandler};
use embassy_usb::class::cdc_acm::{CdcAcmClass, State};
use embassy_usb::driver::EndpointError;
use embassy_usb::{Builder, Config};
use panic_halt as _;
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    USBCTRL_IRQ => InterruptHandler<USB>;
});

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    static STATE: StaticCell<State<'_>> = StaticCell::new();
    static CONFIG: StaticCell<[u8; 128]> = StaticCell::new();
    static BOS: StaticCell<[u8; 16]> = StaticCell::new();
    static CONTROL: StaticCell<[u8; 64]> = StaticCell::new();

    let peripherals = embassy_rp::init(embassy_rp::config::Config::default());
    let mut builder = Builder::new(
        Driver::new(peripherals.USB, Interrupts),
        Config::new(0x16c0, 0x27dd),
        CONFIG.init_with(|| [0; 128]),
        BOS.init_with(|| [0; 16]),
        &mut [],
        CONTROL.init_with(|| [0; 64]),
    );
    let mut class = CdcAcmClass::new(&mut builder, STATE.init_with(State::new), 64);
    let mut device = builder.build();
    join(device.run(), async {
        loop {
            class.wait_connection().await;
            let _ = echo(&mut class).await;
        }
    })
    .await;
}

async fn echo(class: &mut CdcAcmClass<'static, Driver<'static, USB>>) -> Result<(), EndpointError> {
    let mut packet = [0; 64];
    loop {
        let length = class.read_packet(&mut packet).await?;
        class.write_packet(packet.get(..length).unwrap_or_default()).await?;
    }
}
