//! The wiring of the rig on a Raspberry Pi Pico, and of its simulations. These are the one on
//! desktops ([`sim`](crate::sim)), and the board under test beside the emulated RP2040
//! (`tests/emulator/dut.mjs`). All have the same figures.
//!
//! | name | table | GPIO | what it is |
//! |---|---|---|---|
//! | `3V3` | rails | 2, high is on | supply of the board under test, 3.3 V |
//! | `5V0` | rails | 3, high is on | supply of its USB side, 5 V |
//! | `3V3` | channels | 26 (ADC 0) | that rail, through two equal resistors |
//! | `5V0` | channels | 27 (ADC 1) | that rail, through two equal resistors |
//! | `AUX` | channels | 28 (ADC 2) | a free probe, through two equal resistors; near 0 V where nothing is wired |
//! | `TEMP` | channels | ADC 4 | the temperature of the RP2040 itself |
//! | `RESET` | buttons | 6, high is pressed | resets the board under test when held for 50 ms |
//! | `USER` | buttons | 7, high is pressed | toggles `LED2` of a board that is up, when let go |
//! | `BOOT` | buttons | 22, low is pressed | the board under test stays in its boot loader if it starts while this is pressed |
//! | `LED` | inputs | 10 | high while the board under test is up |
//! | `LED2` | inputs | 11 | the board's second LED |
//! | `GP15` | inputs | 15 | wired to `GP14` |
//! | `GP14` | outputs | 14 | wired to `GP15` |
//! | console | UART1 | 4 (out), 5 (in) | the UART of the board under test, with feature `console` |
//! | `I2C0` | I2C buses | 20 (SDA), 21 (SCL) | 100 kHz, with the chip's own pull-ups; a thermometer and an EEPROM |
//! | `CLK` | counters | 13 | the clock output of the board under test: 1000 Hz while it is up |
//! | `GP8` | PWM outputs | 8 | to `AUX`, through a low-pass filter |
//! | `SPI0` | SPI buses | 16 (MISO), 17 (CS), 18 (SCK), 19 (MOSI) | a flash memory |
//!
//! Each of the last four is there with the feature of its operations.
//!
//! The converter has 12 bits and a reference of 3.3 V: one step is 1.6 mV at a rail, and 0.47 °C of
//! `TEMP`.

#[cfg(feature = "waza")]
use rigline::protocol::waza::{BoardEval, BoardTask};

use rigline::params::Choice;

use crate::board::{Boot, Button, Channel, Layout, Loopback, Polarity, Rail, Unit};
#[cfg(feature = "instruments")]
use crate::instruments::Instruments;

/// The rails of [`LAYOUT`] with descriptions, for schemas.
pub const RAILS: &[Choice] =
    &[Choice::new("3V3", "3.3 V of the board under test"), Choice::new("5V0", "5 V of its USB side")];

/// The channels of [`LAYOUT`] with descriptions, for schemas.
pub const CHANNELS: &[Choice] = &[
    Choice::new("3V3", "that rail, V"),
    Choice::new("5V0", "that rail, V"),
    Choice::new("AUX", "a free probe, V"),
    Choice::new("TEMP", "the rig's chip, °C"),
];

/// The pins of [`LAYOUT`] that can be read, with descriptions, for schemas.
pub const PINS: &[Choice] = &[
    Choice::new("LED", "high while the board is up"),
    Choice::new("LED2", "its second LED"),
    Choice::new("GP15", "wired to GP14"),
    Choice::new("GP14", "the output"),
];

/// The pins of [`LAYOUT`] that can be driven, with descriptions, for schemas.
pub const OUTPUTS: &[Choice] = &[Choice::new("GP14", "wired to GP15")];

/// The buttons of [`LAYOUT`] with descriptions, for schemas.
pub const BUTTONS: &[Choice] = &[
    Choice::new("RESET", "resets the board when held for 50 ms"),
    Choice::new("USER", "toggles LED2 of a board that is up"),
    Choice::new("BOOT", "held while the board starts: its boot loader"),
];

/// The rails, channels, pins and buttons of the rig on a Raspberry Pi Pico.
pub static LAYOUT: Layout = Layout {
    rails: &[Rail { name: "3V3", channel: 0, millivolts: 3300 }, Rail { name: "5V0", channel: 1, millivolts: 5000 }],
    channels: &[
        Channel { name: "3V3", unit: Unit::Volts },
        Channel { name: "5V0", unit: Unit::Volts },
        Channel { name: "AUX", unit: Unit::Volts },
        Channel { name: "TEMP", unit: Unit::Celsius },
    ],
    outputs: &["GP14"],
    inputs: &["LED", "LED2", "GP15"],
    buttons: &[
        Button { name: "RESET", pressed: Polarity::ActiveHigh },
        Button { name: "USER", pressed: Polarity::ActiveHigh },
        Button { name: "BOOT", pressed: Polarity::ActiveLow },
    ],
    boot: Some(Boot { rail: 0, led: 0, within_ms: 1000 }),
    loopbacks: &[Loopback { output: 0, input: 2 }],
};

/// The I2C buses of [`INSTRUMENTS`] with descriptions, for schemas.
#[cfg(feature = "i2c")]
pub const I2C_BUSES: &[Choice] = &[Choice::new("I2C0", "100 kHz")];

/// The SPI buses of [`INSTRUMENTS`] with descriptions, for schemas.
#[cfg(feature = "spi")]
pub const SPI_BUSES: &[Choice] = &[Choice::new("SPI0", "one device")];

/// The counters of [`INSTRUMENTS`] with descriptions, for schemas.
#[cfg(feature = "counter")]
pub const COUNTERS: &[Choice] = &[Choice::new("CLK", "the board's clock output")];

/// The PWM outputs of [`INSTRUMENTS`] with descriptions, for schemas.
#[cfg(feature = "pwm")]
pub const PWM_OUTPUTS: &[Choice] = &[Choice::new("GP8", "filtered, to AUX")];

/// The buses, counters and PWM outputs of the rig on a Raspberry Pi Pico.
#[cfg(feature = "instruments")]
pub static INSTRUMENTS: Instruments = Instruments {
    #[cfg(feature = "i2c")]
    i2c: &["I2C0"],
    #[cfg(feature = "spi")]
    spi: &["SPI0"],
    #[cfg(feature = "counter")]
    counters: &["CLK"],
    #[cfg(feature = "pwm")]
    pwm: &["GP8"],
    #[cfg(feature = "pwm")]
    pwm_clock: 125_000_000,
};

/// The position in [`LAYOUT`] of the channel with the chip's temperature. All other channels are
/// voltages.
pub const TEMPERATURE: usize = 3;

/// The reference voltage of the converter, in millivolts.
pub const REFERENCE_MILLIVOLTS: i32 = 3300;
/// The ratio of a channel's voltage to the voltage at the converter's pin.
pub const DIVIDER: i32 = 2;
/// The number of steps of the converter, which has 12 bits.
pub const STEPS: i32 = 4096;

/// Computes the value of a channel from a reading of the converter (0 to 4095), in thousandths of
/// the channel's unit.
///
/// ```
/// use rigline_rig::pinmap::{TEMPERATURE, channel_value};
/// assert_eq!(channel_value(0, 2048), 3300);
/// assert_eq!(channel_value(TEMPERATURE, 876), 27_138);
/// ```
pub fn channel_value(channel: usize, steps: u16) -> i32 {
    let steps = i32::from(steps).min(STEPS - 1);
    if channel == TEMPERATURE {
        // RP2040 datasheet §4.9.5: T = 27 - (V - 0.706) / 0.001721. A step is 805.66 µV, a
        // microvolt 0.581 thousandths.
        let microvolts = steps * REFERENCE_MILLIVOLTS * 125 / (STEPS / 8);
        27_000 - (microvolts - 706_000) * 581 / 1000
    } else {
        (steps * (REFERENCE_MILLIVOLTS * DIVIDER) + STEPS / 2) / STEPS
    }
}

/// The evals of the board: its self-test, with a task for each of
/// [`Rig::checks`](crate::rig::Rig::checks), in their order.
#[cfg(feature = "waza")]
pub const EVALS: &[BoardEval] = &[BoardEval::new(
    "self-test",
    "rig",
    env!("CARGO_PKG_VERSION"),
    &[
        BoardTask::new("3v3-off", "3V3 off", "A rail that is off is near 0 V"),
        BoardTask::new("3v3-on", "3V3 on", "A rail that is on is within 5 % of what it should be"),
        BoardTask::new("5v0-off", "5V0 off", "A rail that is off is near 0 V"),
        BoardTask::new("5v0-on", "5V0 on", "A rail that is on is within 5 % of what it should be"),
        BoardTask::new("boot", "boot", "The LED is dark without power, and lit in time with it"),
        BoardTask::new("loopback", "GP14 to GP15", "An input follows the output it is wired to"),
    ],
)];

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    #[cfg(feature = "waza")]
    fn the_evals_tasks_are_the_checks() {
        let rig = crate::rig::Rig::new(crate::sim::SimBoard::new(NoTime, 0));
        let checks: std::vec::Vec<_> = rig.checks().map(|check| std::format!("{}", check.in_layout(&LAYOUT))).collect();
        let names: std::vec::Vec<_> = EVALS[0].tasks.iter().map(|task| task.name).collect();
        assert_eq!(checks, names);
    }

    #[test]
    fn the_choices_are_the_tables() {
        let names = |choices: &[Choice]| choices.iter().map(|choice| choice.name).collect::<std::vec::Vec<_>>();
        assert_eq!(names(RAILS), LAYOUT.rails.iter().map(|rail| rail.name).collect::<std::vec::Vec<_>>());
        assert_eq!(names(CHANNELS), LAYOUT.channels.iter().map(|channel| channel.name).collect::<std::vec::Vec<_>>());
        assert_eq!(names(PINS), [LAYOUT.inputs, LAYOUT.outputs].concat());
        assert_eq!(names(BUTTONS), LAYOUT.buttons.iter().map(|button| button.name).collect::<std::vec::Vec<_>>());
        assert_eq!(names(OUTPUTS), LAYOUT.outputs.to_vec());
        #[cfg(feature = "i2c")]
        assert_eq!(names(I2C_BUSES), INSTRUMENTS.i2c);
        #[cfg(feature = "spi")]
        assert_eq!(names(SPI_BUSES), INSTRUMENTS.spi);
        #[cfg(feature = "counter")]
        assert_eq!(names(COUNTERS), INSTRUMENTS.counters);
        #[cfg(feature = "pwm")]
        assert_eq!(names(PWM_OUTPUTS), INSTRUMENTS.pwm);
    }

    struct NoTime;

    impl rigline::Clock for NoTime {
        fn now(&self) -> rigline::Instant {
            rigline::Instant::default()
        }
    }

    #[test]
    fn readings_in_units() {
        for (channel, steps, value) in [
            (0, 0, 0),
            (0, 1, 2),
            (1, 3103, 5000),
            (2, 4095, 6598),
            (2, u16::MAX, 6598),
            (TEMPERATURE, 0, 437_186),
            (TEMPERATURE, 876, 27_138),
            (TEMPERATURE, 877, 26_671),
            (TEMPERATURE, 4095, -1_479_645),
            (TEMPERATURE, u16::MAX, -1_479_645),
        ] {
            assert_eq!(channel_value(channel, steps), value, "channel {channel}, {steps} steps");
        }
    }
}
