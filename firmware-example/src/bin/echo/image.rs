#![allow(clippy::used_underscore_binding, reason = "embassy's main passes the spawner on under its name")]

use embassy_executor::Spawner;
use embassy_futures::join::join;
use embassy_rp::bind_interrupts;
use embassy_rp::peripherals::USB;
use embassy_rp::usb::{Driver, InterruptHandler};
use embassy_usb::Builder;
use embedded_io_async::{Read, Write};
use panic_halt as _;
use rigline_embassy::rp2040::Endpoints;
use rigline_embassy::usb_cdc::{self, Port, State};
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    USBCTRL_IRQ => InterruptHandler<USB>;
});

/// The longest line that is echoed, its newline included; what is longer is echoed in pieces.
const LINE: usize = 1024;

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    static STATE: StaticCell<State<'_, Endpoints>> = StaticCell::new();
    static CONFIG: StaticCell<[u8; 128]> = StaticCell::new();
    static BOS: StaticCell<[u8; 16]> = StaticCell::new();
    static CONTROL: StaticCell<[u8; 64]> = StaticCell::new();
    static BUFFER: StaticCell<[u8; LINE]> = StaticCell::new();

    let peripherals = embassy_rp::init(embassy_rp::config::Config::default());
    let mut builder = Builder::new(
        Driver::new(peripherals.USB, Interrupts),
        usb_cdc::config("rigline rig", "ECHO"),
        CONFIG.init_with(|| [0; 128]),
        BOS.init_with(|| [0; 16]),
        &mut [],
        CONTROL.init_with(|| [0; 64]),
    );
    let mut port = Port::new(&mut builder, STATE.init_with(State::new), Endpoints::first());
    let mut device = builder.build();
    let line = BUFFER.init_with(|| [0; LINE]);
    join(usb_cdc::run(&mut device, Endpoints::first()), async {
        loop {
            let (reader, writer) = port.connected().await;
            let _ = echo(line, reader, writer).await;
        }
    })
    .await;
}

/// Echoes whole lines until the connection is lost, and forgets the one that it cut.
async fn echo<R: Read, W: Write<Error = R::Error>>(
    line: &mut [u8],
    reader: &mut R,
    writer: &mut W,
) -> Result<(), R::Error> {
    let mut packet = [0; usb_cdc::PACKET];
    let mut held = 0;
    loop {
        let length = reader.read(&mut packet).await?;
        for &byte in packet.iter().take(length) {
            if let Some(slot) = line.get_mut(held) {
                *slot = byte;
                held += 1;
            }
            if byte == b'\n' || held == line.len() {
                send(writer, line.get(..held).unwrap_or_default()).await?;
                held = 0;
            }
        }
    }
}

async fn send<W: Write>(writer: &mut W, line: &[u8]) -> Result<(), W::Error> {
    writer.write_all(line).await?;
    writer.flush().await
}
