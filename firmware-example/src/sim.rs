//! A simulated board: the rig's hardware and a board under test, simulated from a seed and a clock.
//!
//! Its tables are those of [`pinmap::LAYOUT`]. With the same seed, and the same calls at the same
//! times, it returns the same values. It behaves as follows:
//!
//! - A rail ramps up to its voltage: `3V3` in 2 ms, `5V0` in 4 ms. When it is switched off, it
//!   falls to 0 V in 10 ms from full.
//! - A reading has an error of up to 2 steps of the converter in both directions. A step is 1.6 mV
//!   at a rail.
//! - The board under test boots from `3V3`: 300 ms after that rail is up, it lights `LED`. If
//!   `RESET` is held for 50 ms, the LED goes dark, and the board boots again when `RESET` is let
//!   go. If `USER` is let go after 20 ms or more, `LED2` of a booted board toggles.
//! - If `BOOT` is pressed when the board under test starts, it stays in its boot loader, and `LED` stays
//!   dark.
//! - The board under test has a console, whose script is in [`dut`](crate::dut).
//! - `GP15` follows `GP14`. `AUX` is at 0 V. `TEMP` is at 27 °C.
//!
//! With the features of [`instruments`](crate::instruments):
//!
//! - `AUX` is at the mean voltage of the PWM output `GP8`: 3.3 V times its duty cycle.
//! - While the board under test is up, `CLK` has 1000 pulses a second.
//! - While `3V3` is above 2.7 V, a thermometer (LM75, 25 °C) answers at 0x48 and an EEPROM of 256
//!   bytes (24C02) at 0x50 on `I2C0`, and a flash memory (W25Q16, whose bytes are the low bytes of
//!   their addresses) on `SPI0`, in modes 0 and 3.
//!
//! [`SimBoard::inject`] adds a defect, to test what the rig reports then.

#[cfg(feature = "instruments")]
mod instruments;

#[cfg(feature = "instruments")]
pub use instruments::{CLOCK_HERTZ, DEVICES_MILLIVOLTS, EEPROM, FLASH_ID, THERMOMETER, THERMOMETER_READS};

use rigline::{Clock, Instant};

use crate::board::{Board, Fault, Identity, Layout};
use crate::console::{Chunk, ConsoleUart, Counters, LineSettings};
use crate::dut::SimConsole;
#[cfg(feature = "i2c")]
use crate::instruments::BusFault;
#[cfg(feature = "instruments")]
use crate::instruments::Instruments;
#[cfg(feature = "spi")]
use crate::instruments::SpiSettings;
#[cfg(feature = "pwm")]
use crate::instruments::Wave;
use crate::pinmap::{self, DIVIDER, LAYOUT, REFERENCE_MILLIVOLTS, STEPS, TEMPERATURE, channel_value};

/// The time of each rail from 0 V to full, in milliseconds.
pub const RAMP_MS: [u64; 2] = [2, 4];
/// The time of a rail from full to 0 V, in milliseconds.
pub const FALL_MS: u64 = 10;
/// The boot time of the board under test, in milliseconds, from nine tenths of its rail's ramp or
/// from the end of a reset.
pub const BOOT_MS: u64 = 300;
/// The time for which `RESET` must be held to reset the board under test, in milliseconds.
pub const RESET_MS: u64 = 50;
/// The time for which `USER` must be held to have an effect, in milliseconds.
pub const DEBOUNCE_MS: u64 = 20;
/// The largest error of a reading in both directions, in steps of the converter.
pub const NOISE_STEPS: i32 = 2;

/// The simulated board.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a pin or a state of its own")]
pub struct SimBoard<C> {
    clock: C,
    seed: u32,
    id: [u8; 12],
    readings: u32,
    rails: [Rail; 2],
    loopback: bool,
    reset_pressed: Option<Instant>,
    user_pressed: Option<Instant>,
    boot_pressed: bool,
    /// When the board under test will start, after its rail was switched on or its reset ended.
    start_at: Option<Instant>,
    /// When the board under test will be up, while it boots.
    up_at: Option<Instant>,
    is_up: bool,
    led2: bool,
    defect: Option<Defect>,
    console: SimConsole,
    #[cfg(any(feature = "i2c", feature = "counter", feature = "pwm"))]
    instruments: instruments::SimInstruments,
}

/// A supply, as a straight line from a voltage at a time.
#[derive(Debug, Clone, Copy, Default)]
struct Rail {
    on: bool,
    since: Instant,
    /// In microvolts.
    from: i32,
}

/// A defect of the simulated board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// The rig's own hardware does not answer.
    NoAnswer,
    /// The rail at this position of the layout reaches only nine tenths of its voltage.
    WeakRail(usize),
    /// The rail at this position of the layout stays on.
    StuckRail(usize),
    /// The board under test never boots.
    NoBoot,
    /// `GP15` is not wired to `GP14`.
    NoLoopback,
    /// A device holds the data line of `I2C0` low.
    #[cfg(feature = "i2c")]
    I2cDataHeld,
    /// A device holds the clock line of `I2C0` low.
    #[cfg(feature = "i2c")]
    I2cClockHeld,
    /// A device stretches the clock of `I2C0` without end once it is addressed.
    #[cfg(feature = "i2c")]
    I2cStalled,
}

impl<C: Clock> SimBoard<C> {
    /// A board with everything switched off. `clock` must be the one that the rig is served with.
    pub fn new(clock: C, seed: u32) -> Self {
        Self {
            clock,
            seed,
            id: id(seed),
            readings: 0,
            rails: [Rail::default(); 2],
            loopback: false,
            reset_pressed: None,
            user_pressed: None,
            boot_pressed: false,
            start_at: None,
            up_at: None,
            is_up: false,
            led2: false,
            defect: None,
            console: SimConsole::new(),
            #[cfg(any(feature = "i2c", feature = "counter", feature = "pwm"))]
            instruments: instruments::SimInstruments::new(),
        }
    }

    /// Adds a defect, or repairs the board if it is none.
    pub fn inject(&mut self, defect: Option<Defect>) {
        self.update();
        self.defect = defect;
    }

    /// Whether the rail at this position is switched on.
    pub fn is_on(&self, rail: usize) -> bool {
        self.rails.get(rail).is_some_and(|rail| rail.on)
    }

    /// Whether the button at this position is pressed.
    pub fn is_pressed(&self, button: usize) -> bool {
        match button {
            RESET => self.reset_pressed.is_some(),
            USER => self.user_pressed.is_some(),
            BOOT => self.boot_pressed,
            _ => false,
        }
    }

    /// Whether the rig holds the console's line low.
    pub fn is_break(&self) -> bool {
        self.console.is_break()
    }

    /// The current voltage of a rail in millivolts, without noise.
    pub fn rail_millivolts(&self, rail: usize) -> i32 {
        (self.rail_microvolts(rail, self.clock.now()) + 500) / 1000
    }

    fn rail_microvolts(&self, place: usize, now: Instant) -> i32 {
        let (Some(rail), Some(info), Some(ramp_ms)) =
            (self.rails.get(place), LAYOUT.rails.get(place), RAMP_MS.get(place))
        else {
            return 0;
        };
        let full = i64::from(info.millivolts) * 1000;
        if self.defect == Some(Defect::StuckRail(place)) {
            return i32::try_from(full).unwrap_or(i32::MAX);
        }
        let top = if self.defect == Some(Defect::WeakRail(place)) { full / 10 * 9 } else { full };
        // A rail that is where it goes stays there; 50 ms are longer than any slope.
        let elapsed = i64::try_from(now.nanos_since(rail.since).min(50_000_000)).unwrap_or_default();
        let slope = |ms: u64| full * elapsed / i64::try_from(ms * 1_000_000).unwrap_or(i64::MAX).max(1);
        let microvolts = if rail.on {
            (i64::from(rail.from) + slope(*ramp_ms)).min(top)
        } else {
            (i64::from(rail.from) - slope(FALL_MS)).max(0)
        };
        i32::try_from(microvolts).unwrap_or(i32::MAX)
    }

    /// Lets happen to the board under test what is due.
    fn update(&mut self) -> Instant {
        let now = self.clock.now();
        let reset = self.reset_pressed.map(|since| later(since, RESET_MS)).filter(|at| now >= *at);
        self.come_up(reset.unwrap_or(now));
        if let Some(at) = reset {
            self.go_down(at);
        }
        self.console.advance(now);
        if self.console.take_reset() {
            self.go_down(now);
            self.start_at = Some(now);
            self.up_at = Some(later(now, BOOT_MS));
            self.come_up(now);
        }
        now
    }

    /// Starts the board under test, and has it up, if that is due.
    fn come_up(&mut self, now: Instant) {
        if let Some(at) = self.start_at.filter(|at| now >= *at) {
            self.start_at = None;
            if self.console.start(at, self.boot_pressed) {
                self.up_at = None;
            }
        }
        if let Some(at) = self.up_at.filter(|at| now >= *at) {
            self.up_at = None;
            self.is_up = self.defect != Some(Defect::NoBoot);
            if self.is_up {
                self.console.up(at);
                #[cfg(feature = "counter")]
                self.instruments.clock.start(at);
            }
        }
    }

    fn go_down(&mut self, at: Instant) {
        (self.start_at, self.up_at) = (None, None);
        #[cfg(feature = "counter")]
        self.instruments.clock.stop(at);
        self.is_up = false;
        self.led2 = false;
        self.console.down(at);
    }

    fn wired_console(&mut self) -> Result<Instant, Fault> {
        self.answer(Fault::Uart)?;
        Ok(self.update())
    }

    /// Whether the devices on the buses of the board under test have power.
    #[cfg(any(feature = "i2c", feature = "spi"))]
    fn has_power(&self) -> bool {
        self.rail_millivolts(0) >= DEVICES_MILLIVOLTS
    }

    /// The voltage of the filtered PWM output, in microvolts.
    #[cfg(feature = "pwm")]
    fn filtered_microvolts(&self) -> i64 {
        let wave = self.instruments.wave;
        i64::from(REFERENCE_MILLIVOLTS) * 1000 * i64::from(wave.high) / i64::from(wave.period)
    }

    fn answer(&self, fault: Fault) -> Result<(), Fault> {
        if self.defect == Some(Defect::NoAnswer) { Err(fault) } else { Ok(()) }
    }

    /// The voltage at the converter's pin, in steps without noise.
    fn steps(&self, channel: usize, now: Instant) -> i32 {
        if channel == TEMPERATURE {
            // RP2040 datasheet §4.9.5: 0.706 V at 27 °C.
            return (706 * STEPS + REFERENCE_MILLIVOLTS / 2) / REFERENCE_MILLIVOLTS;
        }
        let full_scale = i64::from(REFERENCE_MILLIVOLTS * DIVIDER) * 1000;
        let microvolts = match LAYOUT.rails.iter().position(|rail| rail.channel == channel) {
            Some(rail) => i64::from(self.rail_microvolts(rail, now)),
            #[cfg(feature = "pwm")]
            None => self.filtered_microvolts(),
            #[cfg(not(feature = "pwm"))]
            None => return 0,
        };
        i32::try_from((microvolts * i64::from(STEPS) + full_scale / 2) / full_scale).unwrap_or_default()
    }

    /// The n-th reading of a board has the same noise in every run.
    fn noise(&mut self, channel: usize) -> i32 {
        self.readings = self.readings.wrapping_add(1);
        let place = u32::try_from(channel).unwrap_or_default().wrapping_add(1);
        let mut bits = self.readings.wrapping_mul(0x9e37_79b1) ^ place.wrapping_mul(0x85eb_ca6b) ^ self.seed;
        bits = (bits ^ (bits >> 15)).wrapping_mul(0x2c1b_3c6d);
        i32::try_from((bits >> 8) % (2 * NOISE_STEPS + 1).unsigned_abs()).unwrap_or_default() - NOISE_STEPS
    }
}

impl<C: Clock> Board for SimBoard<C> {
    fn layout(&self) -> &'static Layout {
        &pinmap::LAYOUT
    }

    fn identity(&self) -> Identity<'_> {
        Identity { id: str::from_utf8(&self.id).unwrap_or_default(), reset: None, last_panic: None }
    }

    fn set_rail(&mut self, rail: usize, on: bool) -> Result<(), Fault> {
        self.answer(Fault::Pin)?;
        let now = self.update();
        let from = self.rail_microvolts(rail, now);
        let state = self.rails.get_mut(rail).ok_or(Fault::NotWired)?;
        if state.on != on {
            *state = Rail { on, since: now, from };
            if LAYOUT.boot.is_some_and(|boot| boot.rail == rail) {
                self.go_down(now);
                let ramp = RAMP_MS.get(rail).copied().unwrap_or_default() * 900_000;
                self.start_at = on.then_some(now.after_nanos(ramp));
                self.up_at = on.then_some(later(now, BOOT_MS).after_nanos(ramp));
            }
        }
        Ok(())
    }

    fn is_rail_on(&mut self, rail: usize) -> Result<bool, Fault> {
        self.answer(Fault::Pin)?;
        self.rails.get(rail).map(|rail| rail.on).ok_or(Fault::NotWired)
    }

    fn set_button(&mut self, button: usize, pressed: bool) -> Result<(), Fault> {
        self.answer(Fault::Pin)?;
        let now = self.update();
        let since = match button {
            RESET => &mut self.reset_pressed,
            USER => &mut self.user_pressed,
            BOOT => {
                self.boot_pressed = pressed;
                return Ok(());
            }
            _ => return Err(Fault::NotWired),
        };
        let held_since = match (*since, pressed) {
            (None, true) => {
                *since = Some(now);
                return Ok(());
            }
            (Some(_), true) | (None, false) => return Ok(()),
            (Some(held_since), false) => held_since,
        };
        *since = None;
        let held_for = |ms| now >= later(held_since, ms);
        match button {
            RESET if held_for(RESET_MS) && LAYOUT.boot.is_some_and(|boot| self.is_on(boot.rail)) => {
                self.start_at = Some(now);
                self.up_at = Some(later(now, BOOT_MS));
            }
            USER if held_for(DEBOUNCE_MS) && self.is_up => self.led2 = !self.led2,
            _ => {}
        }
        Ok(())
    }

    fn set_output(&mut self, output: usize, high: bool) -> Result<(), Fault> {
        self.answer(Fault::Pin)?;
        if output != 0 {
            return Err(Fault::NotWired);
        }
        self.loopback = high;
        Ok(())
    }

    fn output(&mut self, output: usize) -> Result<bool, Fault> {
        self.answer(Fault::Pin)?;
        if output == 0 { Ok(self.loopback) } else { Err(Fault::NotWired) }
    }

    fn input(&mut self, input: usize) -> Result<bool, Fault> {
        self.answer(Fault::Pin)?;
        self.update();
        match input {
            0 => Ok(self.is_up),
            1 => Ok(self.led2),
            2 => Ok(self.loopback && self.defect != Some(Defect::NoLoopback)),
            _ => Err(Fault::NotWired),
        }
    }

    async fn read(&mut self, channel: usize) -> Result<i32, Fault> {
        self.answer(Fault::Adc)?;
        if channel >= LAYOUT.channels.len() {
            return Err(Fault::NotWired);
        }
        let now = self.update();
        let steps = (self.steps(channel, now) + self.noise(channel)).clamp(0, STEPS - 1);
        Ok(channel_value(channel, u16::try_from(steps).unwrap_or_default()))
    }

    fn console(&mut self) -> Option<&mut dyn ConsoleUart> {
        Some(self)
    }

    #[cfg(feature = "instruments")]
    fn instruments(&self) -> &'static Instruments {
        &pinmap::INSTRUMENTS
    }

    #[cfg(feature = "i2c")]
    async fn i2c(&mut self, bus: usize, address: u8, write: &[u8], read: &mut [u8]) -> Result<(), BusFault> {
        self.answer(Fault::Bus).map_err(BusFault::Rig)?;
        self.update();
        match self.defect {
            _ if bus != 0 => Err(BusFault::Rig(Fault::NotWired)),
            Some(Defect::I2cDataHeld) => Err(BusFault::DataHeld),
            Some(Defect::I2cClockHeld) => Err(BusFault::ClockHeld),
            _ if !self.has_power() => Err(BusFault::NoDevice),
            Some(Defect::I2cStalled) if [THERMOMETER, EEPROM].contains(&address) => Err(BusFault::Stalled),
            _ => self.instruments.i2c.transfer(address, write, read),
        }
    }

    #[cfg(feature = "spi")]
    async fn spi(&mut self, bus: usize, settings: SpiSettings, bytes: &mut [u8]) -> Result<(), Fault> {
        self.answer(Fault::Bus)?;
        self.update();
        if bus != 0 {
            return Err(Fault::NotWired);
        }
        if self.has_power() {
            instruments::flash(settings, bytes);
        } else {
            bytes.fill(0);
        }
        Ok(())
    }

    #[cfg(feature = "counter")]
    fn pulses(&mut self, counter: usize) -> Result<u32, Fault> {
        self.answer(Fault::Pin)?;
        let now = self.update();
        if counter == 0 { Ok(self.instruments.clock.edges(now)) } else { Err(Fault::NotWired) }
    }

    #[cfg(feature = "pwm")]
    fn set_pwm(&mut self, output: usize, wave: Wave) -> Result<(), Fault> {
        self.answer(Fault::Pin)?;
        if output != 0 {
            return Err(Fault::NotWired);
        }
        self.instruments.wave = wave;
        Ok(())
    }

    #[cfg(feature = "pwm")]
    fn pwm(&mut self, output: usize) -> Result<Wave, Fault> {
        self.answer(Fault::Pin)?;
        if output == 0 { Ok(self.instruments.wave) } else { Err(Fault::NotWired) }
    }
}

impl<C: Clock> ConsoleUart for SimBoard<C> {
    fn configure(&mut self, line: LineSettings) -> Result<(), Fault> {
        self.wired_console()?;
        self.console.configure(line);
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let now = self.wired_console()?;
        Ok(self.console.send(bytes, now))
    }

    fn is_sending(&mut self) -> Result<bool, Fault> {
        self.wired_console()?;
        Ok(self.console.is_sending())
    }

    fn set_break(&mut self, on: bool) -> Result<(), Fault> {
        let now = self.wired_console()?;
        self.console.set_break(on, now);
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, Fault> {
        self.wired_console()?;
        Ok(self.console.ring().counters)
    }

    fn copy(&mut self, from: u64, into: &mut [u8]) -> Result<Chunk, Fault> {
        self.wired_console()?;
        Ok(self.console.ring().copy(from, into))
    }
}

/// The buttons of [`LAYOUT`], by place.
const RESET: usize = 0;
const USER: usize = 1;
const BOOT: usize = 2;

fn later(time: Instant, ms: u64) -> Instant {
    time.after_nanos(ms.saturating_mul(1_000_000))
}

/// `SIM-` and the seed in hexadecimal.
fn id(seed: u32) -> [u8; 12] {
    let mut id = *b"SIM-00000000";
    let digits = seed.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, digit) in id.iter_mut().skip(4).zip(digits) {
        *place = if digit < 10 { b'0' + digit } else { b'A' + digit - 10 };
    }
    id
}
