#![allow(clippy::used_underscore_binding, reason = "embassy's main passes the spawner on under its name")]

use core::fmt::Write as _;

use embassy_executor::Spawner;
use embassy_futures::join::join3;
use embassy_rp::adc::{self, Adc, Channel};
use embassy_rp::gpio::{Input, Level, Output, Pull};
use embassy_rp::peripherals::{UART0, USB};
use embassy_rp::uart::{self, BufferedUart};
use embassy_rp::usb::Driver;
use embassy_rp::watchdog::Watchdog;
use embassy_rp::{bind_interrupts, usb};
use embassy_time::{Duration, Instant, TimeoutError, Timer, with_timeout};
use embassy_usb::Builder;
use embedded_io_async::{Read, Write};
use heapless::String;
use panic_halt as _;
use rigline_embassy::rp2040::{self, Endpoints};
use rigline_embassy::usb_cdc::{self, Error, Port, Reader, State, Writer};
use static_cell::StaticCell;

bind_interrupts!(struct Interrupts {
    USBCTRL_IRQ => usb::InterruptHandler<USB>;
    UART0_IRQ => uart::BufferedInterruptHandler<UART0>;
    ADC_IRQ_FIFO => adc::InterruptHandler;
});

/// How long a log line waits for a host that does not read.
const LOG_LIMIT: Duration = Duration::from_millis(100);

const HURRY: Duration = Duration::from_micros(30);

/// A word of the RAM that memory.x keeps from everybody.
const KEPT: *mut u32 = core::ptr::without_provenance_mut(0x2004_1c00);

type Usb = Driver<'static, USB>;

struct Hardware {
    adc: Adc<'static, adc::Async>,
    channels: [Channel<'static>; 4],
    rails: [Output<'static>; 2],
    button: Output<'static>,
    led: Input<'static>,
    loop_out: Output<'static>,
    loop_in: Input<'static>,
    watchdog: Watchdog,
}

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    static STATE: StaticCell<State<'_, Endpoints>> = StaticCell::new();
    static CONFIG: StaticCell<[u8; 128]> = StaticCell::new();
    static BOS: StaticCell<[u8; 16]> = StaticCell::new();
    static CONTROL: StaticCell<[u8; 64]> = StaticCell::new();
    static SERIAL: StaticCell<[u8; 16]> = StaticCell::new();
    static UART: StaticCell<([u8; 64], [u8; 64])> = StaticCell::new();

    let p = embassy_rp::init(embassy_rp::config::Config::default());
    let serial = rp2040::board_id(p.FLASH, SERIAL.init([0; 16]));
    let mut builder = Builder::new(
        Driver::new(p.USB, Interrupts),
        usb_cdc::config("rigline rig", serial),
        CONFIG.init_with(|| [0; 128]),
        BOS.init_with(|| [0; 16]),
        &mut [],
        CONTROL.init_with(|| [0; 64]),
    );
    let mut port = Port::new(&mut builder, STATE.init_with(State::new), Endpoints::first());
    let mut device = builder.build();
    let (tx, rx) = UART.init(([0; 64], [0; 64]));
    let mut uart = BufferedUart::new(p.UART0, p.PIN_0, p.PIN_1, Interrupts, tx, rx, uart::Config::default());
    let mut hardware = Hardware {
        adc: Adc::new(p.ADC, Interrupts, adc::Config::default()),
        channels: [
            Channel::new_pin(p.PIN_26, Pull::None),
            Channel::new_pin(p.PIN_27, Pull::None),
            Channel::new_pin(p.PIN_28, Pull::None),
            Channel::new_temp_sensor(p.ADC_TEMP_SENSOR),
        ],
        rails: [Output::new(p.PIN_2, Level::Low), Output::new(p.PIN_3, Level::Low)],
        button: Output::new(p.PIN_6, Level::Low),
        led: Input::new(p.PIN_10, Pull::Down),
        loop_out: Output::new(p.PIN_14, Level::Low),
        loop_in: Input::new(p.PIN_15, Pull::Down),
        watchdog: Watchdog::new(p.WATCHDOG),
    };
    let usb = async {
        loop {
            let (reader, writer) = port.connected().await;
            let _ = serve(&mut hardware, reader, writer).await;
        }
    };
    let echo = async {
        let mut bytes = [0; 16];
        loop {
            if let Ok(length) = uart.read(&mut bytes).await {
                let _ = uart.write_all(bytes.get(..length).unwrap_or_default()).await;
            }
        }
    };
    join3(usb_cdc::run(&mut device, Endpoints::first()), usb, echo).await;
}

async fn serve(
    hardware: &mut Hardware,
    reader: &mut Reader<'static, Usb>,
    writer: &mut Writer<'static, Usb>,
) -> Result<(), Error> {
    let mut line = String::<80>::new();
    let mut bytes = [0; 2 * usb_cdc::PACKET];
    // Smaller than a packet, if not said otherwise: the reader hands out the rest.
    let mut size = 8;
    // So many reads are given up when nothing comes at once, and begun again.
    let mut hurried = 0;
    loop {
        let room = bytes.get_mut(..size).unwrap_or_default();
        let length = if hurried > 0 {
            hurried -= 1;
            match with_timeout(HURRY, reader.read(room)).await {
                Ok(read) => read?,
                Err(TimeoutError) => continue,
            }
        } else {
            reader.read(room).await?
        };
        for &byte in bytes.iter().take(length) {
            if byte != b'\n' {
                let _ = line.push(char::from(byte));
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            let command = words.next().unwrap_or_default();
            let mut number = || words.next().and_then(|word| word.parse::<u32>().ok()).unwrap_or_default();
            let (first, second) = (number(), number());
            let mut reply = String::<80>::new();
            match command {
                "hurry" => hurried = first,
                "buffer" => size = usize::try_from(first).unwrap_or_default().clamp(1, 2 * usb_cdc::PACKET),
                _ => {}
            }
            answer(hardware, writer, command, first, second, &mut reply).await?;
            let _ = reply.push('\n');
            writer.write_all(reply.as_bytes()).await?;
            writer.flush().await?;
            line.clear();
        }
    }
}

async fn answer(
    hardware: &mut Hardware,
    writer: &mut Writer<'static, Usb>,
    command: &str,
    first: u32,
    second: u32,
    reply: &mut String<80>,
) -> Result<(), Error> {
    let index = usize::try_from(first).unwrap_or_default();
    let level = |on: u32| if on == 0 { Level::Low } else { Level::High };
    let number = match command {
        "ms" => u32::try_from(Instant::now().as_millis()).unwrap_or(u32::MAX),
        "sleep" => {
            Timer::after_millis(u64::from(first)).await;
            first
        }
        "adc" => match hardware.channels.get_mut(index) {
            Some(channel) => hardware.adc.read(channel).await.map_or(u32::MAX, u32::from),
            None => u32::MAX,
        },
        "rail" => {
            if let Some(rail) = hardware.rails.get_mut(index) {
                rail.set_level(level(second));
            }
            second
        }
        // Milliseconds until the board under test is up, from the rail or from the release of the
        // button; 0 if it never went down.
        "boot" => boot_time(hardware, |hardware| hardware.rails[0].set_high()).await,
        "press" => {
            hardware.button.set_high();
            Timer::after_millis(u64::from(first)).await;
            boot_time(hardware, |hardware| hardware.button.set_low()).await
        }
        "led" => u32::from(hardware.led.is_high()),
        "loop" => {
            hardware.loop_out.set_level(level(first));
            u32::from(hardware.loop_in.is_high())
        }
        // SAFETY: the word is RAM that nothing else uses.
        "keep" => unsafe {
            KEPT.write_volatile(first);
            first
        },
        // SAFETY: as above.
        "kept" => unsafe { KEPT.read_volatile() },
        "hang" => {
            hardware.watchdog.start(Duration::from_millis(50));
            loop {
                cortex_m::asm::nop();
            }
        }
        "fault" => cortex_m::asm::udf(),
        "buffer" | "echo" | "hurry" => first,
        "log" => log(writer, first).await?,
        _ => u32::MAX,
    };
    let _ = write!(reply, "{command} {number}");
    Ok(())
}

async fn boot_time(hardware: &mut Hardware, begin: impl FnOnce(&mut Hardware)) -> u32 {
    begin(hardware);
    let begun = Instant::now();
    hardware.led.wait_for_high().await;
    u32::try_from(begun.elapsed().as_millis()).unwrap_or(u32::MAX)
}

/// Logs so many numbered lines of 60 bytes, each dropped whole when the host does not read; the
/// number of those dropped.
async fn log(writer: &mut Writer<'static, Usb>, lines: u32) -> Result<u32, Error> {
    let mut dropped = 0;
    for number in 1..=lines {
        let mut text = String::<64>::new();
        let _ = writeln!(text, "log {number:055}");
        match writer.write_within(text.as_bytes(), LOG_LIMIT).await {
            Err(Error::Stalled) => {
                dropped += 1;
                continue;
            }
            sent => writer.write_all(text.as_bytes().get(sent?..).unwrap_or_default()).await?,
        }
        writer.flush().await?;
    }
    Ok(dropped)
}
