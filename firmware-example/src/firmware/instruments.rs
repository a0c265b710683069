//! The buses, the counter and the PWM output of the rig, over embassy's HAL.

use embassy_rp::Peri;
#[cfg(any(feature = "spi", feature = "pwm"))]
use embassy_rp::gpio::{Level, Output};
use embassy_rp::peripherals;
#[cfg(any(feature = "counter", feature = "pwm"))]
use embassy_rp::pwm;
#[cfg(feature = "spi")]
use embassy_rp::{
    gpio,
    spi::{self, Spi},
};
#[cfg(feature = "i2c")]
use embassy_rp::{
    i2c::{self, I2c},
    pac,
};

use super::Interrupts;
use super::hal::WiredBoard;
use crate::board::{Board, Fault, Identity, Layout};
use crate::console::ConsoleUart;
use crate::instruments::Instruments;
#[cfg(feature = "spi")]
use crate::instruments::SpiSettings;
#[cfg(feature = "pwm")]
use crate::instruments::Wave;
#[cfg(feature = "i2c")]
use crate::instruments::{BusFault, I2C_LIMIT_MS};
use crate::pinmap::INSTRUMENTS;

/// The pins and the peripherals of the instruments. [`pinmap`](crate::pinmap) describes them.
#[allow(missing_docs, reason = "the names are the pin map's tables")]
pub struct Pins {
    /// The controller, SDA and SCL.
    #[cfg(feature = "i2c")]
    pub i2c: (Peri<'static, peripherals::I2C0>, Peri<'static, peripherals::PIN_20>, Peri<'static, peripherals::PIN_21>),
    /// The controller, and the pins in the order MISO, CS, SCK, MOSI.
    #[cfg(feature = "spi")]
    #[allow(clippy::type_complexity, reason = "each pin has a type of its own")]
    pub spi: (
        Peri<'static, peripherals::SPI0>,
        Peri<'static, peripherals::PIN_16>,
        Peri<'static, peripherals::PIN_17>,
        Peri<'static, peripherals::PIN_18>,
        Peri<'static, peripherals::PIN_19>,
    ),
    /// A PWM slice that counts the edges at its second pin.
    #[cfg(feature = "counter")]
    pub counter: (Peri<'static, peripherals::PWM_SLICE6>, Peri<'static, peripherals::PIN_13>),
    /// A PWM slice, and its first pin.
    #[cfg(feature = "pwm")]
    pub pwm: (Peri<'static, peripherals::PWM_SLICE4>, Peri<'static, peripherals::PIN_8>),
}

/// The rig's hardware on a Raspberry Pi Pico, with its instruments.
pub struct PicoBoard {
    wired: WiredBoard,
    #[cfg(feature = "i2c")]
    i2c: I2c<'static, peripherals::I2C0, i2c::Async>,
    #[cfg(feature = "spi")]
    spi: Spi<'static, peripherals::SPI0, spi::Blocking>,
    /// The chip select; low selects.
    #[cfg(feature = "spi")]
    select: Output<'static>,
    #[cfg(feature = "counter")]
    counter: pwm::Pwm<'static>,
    /// The edges that were counted when the counter was read last.
    #[cfg(feature = "counter")]
    edges: u32,
    #[cfg(feature = "pwm")]
    pwm: PwmOutput,
}

impl PicoBoard {
    pub(super) fn new(wired: WiredBoard, pins: Pins, interrupts: impl Interrupts) -> Self {
        #[cfg(not(feature = "i2c"))]
        let _ = interrupts;
        #[cfg(feature = "spi")]
        let (spi, miso, cs, sck, mosi) = pins.spi;
        Self {
            wired,
            #[cfg(feature = "i2c")]
            i2c: I2c::new_async(pins.i2c.0, pins.i2c.2, pins.i2c.1, interrupts, i2c::Config::default()),
            #[cfg(feature = "spi")]
            spi: Spi::new_blocking(spi, sck, mosi, miso, spi::Config::default()),
            #[cfg(feature = "spi")]
            select: Output::new(cs, Level::High),
            #[cfg(feature = "counter")]
            counter: pwm::Pwm::new_input(
                pins.counter.0,
                pins.counter.1,
                embassy_rp::gpio::Pull::Down,
                pwm::InputMode::RisingEdge,
                pwm::Config::default(),
            ),
            #[cfg(feature = "counter")]
            edges: 0,
            #[cfg(feature = "pwm")]
            pwm: PwmOutput::new(pins.pwm.0, pins.pwm.1),
        }
    }
}

impl Board for PicoBoard {
    fn layout(&self) -> &'static Layout {
        self.wired.layout()
    }

    fn identity(&self) -> Identity<'_> {
        self.wired.identity()
    }

    fn set_rail(&mut self, rail: usize, on: bool) -> Result<(), Fault> {
        self.wired.set_rail(rail, on)
    }

    fn is_rail_on(&mut self, rail: usize) -> Result<bool, Fault> {
        self.wired.is_rail_on(rail)
    }

    fn set_button(&mut self, button: usize, pressed: bool) -> Result<(), Fault> {
        self.wired.set_button(button, pressed)
    }

    fn set_output(&mut self, output: usize, high: bool) -> Result<(), Fault> {
        self.wired.set_output(output, high)
    }

    fn output(&mut self, output: usize) -> Result<bool, Fault> {
        self.wired.output(output)
    }

    fn input(&mut self, input: usize) -> Result<bool, Fault> {
        self.wired.input(input)
    }

    async fn read(&mut self, channel: usize) -> Result<i32, Fault> {
        self.wired.read(channel).await
    }

    fn console(&mut self) -> Option<&mut dyn ConsoleUart> {
        self.wired.console()
    }

    fn instruments(&self) -> &'static Instruments {
        &INSTRUMENTS
    }

    #[cfg(feature = "i2c")]
    async fn i2c(&mut self, bus: usize, address: u8, write: &[u8], read: &mut [u8]) -> Result<(), BusFault> {
        if bus != 0 {
            return Err(BusFault::Rig(Fault::NotWired));
        }
        // A line that is low makes the controller wait without end.
        for (pin, fault) in [(SDA, BusFault::DataHeld), (SCL, BusFault::ClockHeld)] {
            if !pac::IO_BANK0.gpio(pin).status().read().infrompad() {
                return Err(fault);
            }
        }
        let mut transfer = Transfer { i2c: &mut self.i2c, ended: false };
        let limit = embassy_time::Duration::from_millis(u64::from(I2C_LIMIT_MS));
        let result = embassy_time::with_timeout(limit, transfer.run(address, write, read)).await;
        result.unwrap_or(Err(BusFault::Stalled))
    }

    #[cfg(feature = "spi")]
    async fn spi(&mut self, bus: usize, settings: SpiSettings, bytes: &mut [u8]) -> Result<(), Fault> {
        /// The bytes for which nothing else runs: 1.3 ms at the lowest frequency.
        const AT_ONCE: usize = 16;

        if bus != 0 {
            return Err(Fault::NotWired);
        }
        let mut config = spi::Config::default();
        config.frequency = settings.hertz;
        config.polarity = if settings.idle_high { spi::Polarity::IdleHigh } else { spi::Polarity::IdleLow };
        config.phase = if settings.second_edge {
            spi::Phase::CaptureOnSecondTransition
        } else {
            spi::Phase::CaptureOnFirstTransition
        };
        self.spi.set_config(&config);
        let _selected = Selected::new(&mut self.select);
        for part in bytes.chunks_mut(AT_ONCE) {
            self.spi.blocking_transfer_in_place(part).map_err(|_| Fault::Bus)?;
            embassy_futures::yield_now().await;
        }
        Ok(())
    }

    #[cfg(feature = "counter")]
    fn pulses(&mut self, counter: usize) -> Result<u32, Fault> {
        if counter != 0 {
            return Err(Fault::NotWired);
        }
        // The counter has the low 16 bits.
        #[allow(clippy::cast_possible_truncation, reason = "its low bits")]
        let new = self.counter.counter().wrapping_sub(self.edges as u16);
        self.edges = self.edges.wrapping_add(u32::from(new));
        Ok(self.edges)
    }

    #[cfg(feature = "pwm")]
    fn set_pwm(&mut self, output: usize, wave: Wave) -> Result<(), Fault> {
        if output != 0 {
            return Err(Fault::NotWired);
        }
        self.pwm.set(wave);
        Ok(())
    }

    #[cfg(feature = "pwm")]
    fn pwm(&mut self, output: usize) -> Result<Wave, Fault> {
        if output == 0 { Ok(self.pwm.wave) } else { Err(Fault::NotWired) }
    }
}

#[cfg(feature = "i2c")]
const SDA: usize = 20;
#[cfg(feature = "i2c")]
const SCL: usize = 21;

#[cfg(feature = "i2c")]
fn bus_fault(error: i2c::Error) -> BusFault {
    /// `ABRT_TXDATA_NOACK` of `IC_TX_ABRT_SOURCE` (RP2040 datasheet §4.3.17).
    const DATA_NOT_ACKNOWLEDGED: u32 = 1 << 3;

    match error {
        i2c::Error::Abort(i2c::AbortReason::NoAcknowledge) => BusFault::NoDevice,
        i2c::Error::Abort(i2c::AbortReason::ArbitrationLoss) => BusFault::ArbitrationLost,
        i2c::Error::Abort(i2c::AbortReason::Other(bits)) if bits & DATA_NOT_ACKNOWLEDGED != 0 => BusFault::Refused,
        _ => BusFault::Rig(Fault::Bus),
    }
}

/// A transfer. If it is dropped before it has ended, the controller forgets it.
#[cfg(feature = "i2c")]
struct Transfer<'a> {
    i2c: &'a mut I2c<'static, peripherals::I2C0, i2c::Async>,
    ended: bool,
}

#[cfg(feature = "i2c")]
impl Transfer<'_> {
    async fn run(&mut self, address: u8, write: &[u8], read: &mut [u8]) -> Result<(), BusFault> {
        let bytes = write.iter().copied();
        let result = match (write.len(), read.len()) {
            (_, 0) => self.i2c.write_async(address, bytes).await,
            (0, _) => self.i2c.read_async(address, read).await,
            _ => self.i2c.write_read_async(address, bytes, read).await,
        };
        self.ended = true;
        result.map_err(bus_fault)
    }
}

#[cfg(feature = "i2c")]
impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        pac::RESETS.reset().modify(|reset| reset.set_i2c0(true));
        pac::RESETS.reset().modify(|reset| reset.set_i2c0(false));
        while !pac::RESETS.reset_done().read().i2c0() {}
        // As the driver has it: it enables what it waits for.
        pac::I2C0.ic_intr_mask().write_value(pac::i2c::regs::IcIntrMask(0));
        let _ = embassy_embedded_hal::SetConfig::set_config(self.i2c, &i2c::Config::default());
    }
}

/// A device that is selected: until this is dropped, when the transfer ends or is cancelled.
#[cfg(feature = "spi")]
struct Selected<'a>(&'a mut gpio::Output<'static>);

#[cfg(feature = "spi")]
impl<'a> Selected<'a> {
    fn new(select: &'a mut gpio::Output<'static>) -> Self {
        select.set_low();
        Self(select)
    }
}

#[cfg(feature = "spi")]
impl Drop for Selected<'_> {
    fn drop(&mut self) {
        self.0.set_high();
    }
}

/// A pin that is low, or has the pulses of its slice.
#[cfg(feature = "pwm")]
struct PwmOutput {
    slice: pwm::Pwm<'static>,
    /// Low whenever the pin is not the slice's.
    _pin: Output<'static>,
    wave: Wave,
}

#[cfg(feature = "pwm")]
impl PwmOutput {
    const PIN: usize = 8;
    /// The pin's functions (RP2040 datasheet §2.19.2).
    const PWM: u8 = 4;
    const SIO: u8 = 5;

    fn new(slice: Peri<'static, peripherals::PWM_SLICE4>, pin: Peri<'static, peripherals::PIN_8>) -> Self {
        let pin = Output::new(pin, Level::Low);
        let mut config = pwm::Config::default();
        config.enable = false;
        Self { slice: pwm::Pwm::new_free(slice, config), _pin: pin, wave: Wave::OFF }
    }

    fn set(&mut self, wave: Wave) {
        self.wave = wave;
        let mut config = pwm::Config::default();
        config.enable = false;
        if wave.high == 0 {
            self.give_pin_to(Self::SIO);
            return self.slice.set_config(&config);
        }
        self.slice.set_config(&config);
        self.slice.set_counter(0);
        config.enable = true;
        config.divider = wave.divider.into();
        config.compare_a = wave.high;
        config.top = wave.period.saturating_sub(1);
        self.slice.set_config(&config);
        self.give_pin_to(Self::PWM);
    }

    fn give_pin_to(&self, function: u8) {
        embassy_rp::pac::IO_BANK0.gpio(Self::PIN).ctrl().modify(|control| control.set_funcsel(function));
    }
}
