//! The simulated instruments: two devices on I2C, one on SPI, the board's clock output, and a PWM
//! output that is filtered.

#[cfg(feature = "counter")]
use rigline::Instant;

#[cfg(feature = "i2c")]
use crate::instruments::BusFault;
#[cfg(feature = "spi")]
use crate::instruments::SpiSettings;
#[cfg(feature = "pwm")]
use crate::instruments::Wave;

/// The frequency of the clock output of a board under test that is up, in hertz.
pub const CLOCK_HERTZ: u32 = 1000;
/// The address of the simulated thermometer on I2C.
pub const THERMOMETER: u8 = 0x48;
/// The address of the simulated EEPROM of 256 bytes on I2C.
pub const EEPROM: u8 = 0x50;
/// The value of the thermometer's first register: 25 °C.
pub const THERMOMETER_READS: [u8; 2] = [0x19, 0x00];
/// The answer of the simulated flash memory on SPI to the command 9F.
pub const FLASH_ID: [u8; 3] = [0xef, 0x40, 0x15];
/// The least voltage at which the devices on the buses answer, in millivolts.
pub const DEVICES_MILLIVOLTS: i32 = 2700;

#[cfg(any(feature = "i2c", feature = "counter", feature = "pwm"))]
#[derive(Debug)]
pub(super) struct SimInstruments {
    #[cfg(feature = "i2c")]
    pub(super) i2c: I2cDevices,
    #[cfg(feature = "counter")]
    pub(super) clock: ClockOutput,
    #[cfg(feature = "pwm")]
    pub(super) wave: Wave,
}

#[cfg(any(feature = "i2c", feature = "counter", feature = "pwm"))]
impl SimInstruments {
    pub(super) const fn new() -> Self {
        Self {
            #[cfg(feature = "i2c")]
            i2c: I2cDevices { memory: [0xff; 256], pointer: 0, register: 0 },
            #[cfg(feature = "counter")]
            clock: ClockOutput { since: None, edges: 0 },
            #[cfg(feature = "pwm")]
            wave: Wave::OFF,
        }
    }
}

/// A thermometer (LM75) and an EEPROM (24C02, whose writes take no time).
#[cfg(feature = "i2c")]
#[derive(Debug)]
pub(super) struct I2cDevices {
    memory: [u8; 256],
    /// Where the EEPROM reads and writes next.
    pointer: u8,
    /// The register of the thermometer.
    register: u8,
}

#[cfg(feature = "i2c")]
impl I2cDevices {
    pub(super) fn transfer(&mut self, address: u8, write: &[u8], read: &mut [u8]) -> Result<(), BusFault> {
        match address {
            EEPROM => {
                if let Some((pointer, bytes)) = write.split_first() {
                    self.pointer = *pointer;
                    for byte in bytes {
                        *self.next() = *byte;
                    }
                }
                read.fill_with(|| *self.next());
            }
            THERMOMETER => {
                // Its only register with a value is the first one; what is written to others is lost.
                self.register = write.first().copied().unwrap_or(self.register);
                let value = if self.register == 0 { THERMOMETER_READS } else { [0; 2] };
                for (place, byte) in read.iter_mut().zip(value.into_iter().cycle()) {
                    *place = byte;
                }
            }
            _ => return Err(BusFault::NoDevice),
        }
        Ok(())
    }

    fn next(&mut self) -> &mut u8 {
        let at = usize::from(self.pointer);
        self.pointer = self.pointer.wrapping_add(1);
        &mut self.memory[at] // 256 bytes and a pointer of 8 bits
    }
}

/// A square wave that begins with a rising edge when the board is up.
#[cfg(feature = "counter")]
#[derive(Debug)]
pub(super) struct ClockOutput {
    since: Option<Instant>,
    /// The edges before that.
    edges: u32,
}

#[cfg(feature = "counter")]
impl ClockOutput {
    pub(super) fn start(&mut self, at: Instant) {
        self.stop(at);
        self.since = Some(at);
    }

    pub(super) fn stop(&mut self, at: Instant) {
        self.edges = self.edges(at);
        self.since = None;
    }

    /// The rising edges since power-on.
    pub(super) fn edges(&self, now: Instant) -> u32 {
        let Some(since) = self.since else { return self.edges };
        // Seconds and the rest by themselves: the product of both would overflow after five hours.
        let (seconds, rest) = (now.nanos_since(since) / 1_000_000_000, now.nanos_since(since) % 1_000_000_000);
        let periods = seconds * u64::from(CLOCK_HERTZ) + rest * u64::from(CLOCK_HERTZ) / 1_000_000_000;
        // The counter wraps, as one of a chip does.
        #[allow(clippy::cast_possible_truncation, reason = "it wraps")]
        self.edges.wrapping_add(periods as u32).wrapping_add(1)
    }
}

/// A flash memory (W25Q16) whose bytes are the low bytes of their addresses.
#[cfg(feature = "spi")]
pub(super) fn flash(settings: SpiSettings, bytes: &mut [u8]) {
    // It works with CPOL and CPHA both 0 or both 1.
    let works = settings.idle_high == settings.second_edge;
    let mut command = None;
    let mut address = 0u8;
    for (place, byte) in bytes.iter_mut().enumerate() {
        let written = core::mem::replace(byte, 0xff);
        match (command, place) {
            (None, _) => command = Some(written).filter(|_| works).or(Some(0)),
            (Some(0x9f), 1..) => *byte = FLASH_ID.get((place - 1) % FLASH_ID.len()).copied().unwrap_or_default(),
            (Some(0x03), 3) => address = written,
            (Some(0x03), 4..) => {
                *byte = address;
                address = address.wrapping_add(1);
            }
            _ => {}
        }
    }
}
