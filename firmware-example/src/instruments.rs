//! I2C and SPI buses, pulse counters and PWM outputs, which a rig may have besides rails, channels,
//! pins and buttons. The features `i2c`, `spi`, `counter` and `pwm` add the operations that use them.

#[cfg(feature = "pwm")]
mod wave;

#[cfg(feature = "pwm")]
pub use wave::Wave;

use core::fmt;

use crate::board::Fault;

/// The buses, counters and PWM outputs of a board, by name. Names are unique within each table.
#[derive(Debug, Clone, Copy)]
pub struct Instruments {
    /// The names of the I2C buses.
    #[cfg(feature = "i2c")]
    pub i2c: &'static [&'static str],
    /// The names of the SPI buses. Each has one chip select.
    #[cfg(feature = "spi")]
    pub spi: &'static [&'static str],
    /// The names of the inputs whose pulses are counted.
    #[cfg(feature = "counter")]
    pub counters: &'static [&'static str],
    /// The names of the PWM outputs.
    #[cfg(feature = "pwm")]
    pub pwm: &'static [&'static str],
    /// The frequency that the PWM outputs divide, in hertz.
    #[cfg(feature = "pwm")]
    pub pwm_clock: u32,
}

impl Instruments {
    /// The instruments of a board that has none.
    pub const NONE: Self = Self {
        #[cfg(feature = "i2c")]
        i2c: &[],
        #[cfg(feature = "spi")]
        spi: &[],
        #[cfg(feature = "counter")]
        counters: &[],
        #[cfg(feature = "pwm")]
        pwm: &[],
        #[cfg(feature = "pwm")]
        pwm_clock: 1,
    };
}

/// The longest transfer on a bus, in bytes in each direction.
pub const TRANSFER_LIMIT: usize = 256;

/// The time limit of a transfer on an I2C bus, in milliseconds. The longest transfer takes 47 ms at
/// 100 kHz if no device stretches the clock.
pub const I2C_LIMIT_MS: u32 = 250;

/// The reason why a transfer on an I2C bus failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusFault {
    /// No device acknowledged the address.
    NoDevice,
    /// The device did not acknowledge a byte that was written to it.
    Refused,
    /// The data line is low while no transfer runs.
    DataHeld,
    /// The clock line is low while no transfer runs.
    ClockHeld,
    /// The transfer did not end within [`I2C_LIMIT_MS`].
    Stalled,
    /// Another controller used the bus at the same time.
    ArbitrationLost,
    /// The rig's own hardware did not do as it was told.
    Rig(Fault),
}

impl fmt::Display for BusFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => f.write_str("no device acknowledges the address"),
            Self::Refused => f.write_str("the device does not acknowledge a byte that was written to it"),
            Self::DataHeld => f.write_str("SDA is held low, so that no transfer can begin"),
            Self::ClockHeld => f.write_str("SCL is held low, so that no transfer can begin"),
            Self::Stalled => {
                write!(f, "the transfer did not end within {I2C_LIMIT_MS} ms: a device holds the clock")
            }
            Self::ArbitrationLost => f.write_str("another controller uses the bus"),
            Self::Rig(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for BusFault {}

/// How an SPI bus transfers bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpiSettings {
    /// The highest frequency of the clock, in hertz.
    pub hertz: u32,
    /// Whether the clock is high while no transfer runs (CPOL 1).
    pub idle_high: bool,
    /// Whether data is valid at the second edge of the clock (CPHA 1).
    pub second_edge: bool,
}
