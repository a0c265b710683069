//! The hardware behind the rig: the trait that it must implement, and an implementation for
//! `embedded-hal` pins.

use core::fmt;

use embedded_hal::digital::{InputPin, OutputPin, StatefulOutputPin};

use crate::console::ConsoleUart;
#[cfg(feature = "i2c")]
use crate::instruments::BusFault;
#[cfg(feature = "instruments")]
use crate::instruments::Instruments;
#[cfg(feature = "spi")]
use crate::instruments::SpiSettings;
#[cfg(feature = "pwm")]
use crate::instruments::Wave;

/// The hardware that a [`Rig`](crate::rig::Rig) drives.
///
/// The methods take rails, channels, pins and buttons by their positions in the tables of the
/// [`Layout`]. [`Wired`] implements the trait for `embedded-hal` pins, and
/// [`SimBoard`](crate::sim::SimBoard) simulates hardware.
#[allow(async_fn_in_trait, reason = "a rig lives on one thread, as an extension does")]
pub trait Board {
    /// The rails, channels, pins and buttons of the board, by name.
    fn layout(&self) -> &'static Layout;

    /// The identity of the board, and the reason of its last reset.
    fn identity(&self) -> Identity<'_>;

    /// Switches a supply of the board under test.
    fn set_rail(&mut self, rail: usize, on: bool) -> Result<(), Fault>;

    /// Whether a supply of the board under test is switched on.
    fn is_rail_on(&mut self, rail: usize) -> Result<bool, Fault>;

    /// Presses a button of the board under test, or lets it go.
    fn set_button(&mut self, button: usize, pressed: bool) -> Result<(), Fault>;

    /// Drives an output pin.
    fn set_output(&mut self, output: usize, high: bool) -> Result<(), Fault>;

    /// The level that an output pin was last driven to; true is high.
    fn output(&mut self, output: usize) -> Result<bool, Fault>;

    /// The level at an input pin; true is high.
    fn input(&mut self, input: usize) -> Result<bool, Fault>;

    /// Takes one reading of a channel, in thousandths of its unit: millivolts, or thousandths of a
    /// degree.
    async fn read(&mut self, channel: usize) -> Result<i32, Fault>;

    /// The rig's end of the wire to the console of the board under test, if there is one.
    fn console(&mut self) -> Option<&mut dyn ConsoleUart> {
        None
    }

    /// The buses, counters and PWM outputs of the board, by name; none by default.
    #[cfg(feature = "instruments")]
    fn instruments(&self) -> &'static Instruments {
        &Instruments::NONE
    }

    /// Writes bytes to a device on an I2C bus, and then reads bytes from it. Either may be empty, but
    /// not both. It ends within [`I2C_LIMIT_MS`](crate::instruments::I2C_LIMIT_MS), whatever the
    /// device does.
    #[cfg(feature = "i2c")]
    #[allow(unused_variables, reason = "the names are for whoever implements it")]
    async fn i2c(&mut self, bus: usize, address: u8, write: &[u8], read: &mut [u8]) -> Result<(), BusFault> {
        Err(BusFault::Rig(Fault::NotWired))
    }

    /// Selects the device on an SPI bus, and replaces bytes that are written by those that are read.
    #[cfg(feature = "spi")]
    #[allow(unused_variables, reason = "the names are for whoever implements it")]
    async fn spi(&mut self, bus: usize, settings: SpiSettings, bytes: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::NotWired)
    }

    /// The number of rising edges at an input since some time, which wraps. It is called at least
    /// every 30 ms while pulses are counted.
    #[cfg(feature = "counter")]
    #[allow(unused_variables, reason = "the names are for whoever implements it")]
    fn pulses(&mut self, counter: usize) -> Result<u32, Fault> {
        Err(Fault::NotWired)
    }

    /// Drives a PWM output.
    #[cfg(feature = "pwm")]
    #[allow(unused_variables, reason = "the names are for whoever implements it")]
    fn set_pwm(&mut self, output: usize, wave: Wave) -> Result<(), Fault> {
        Err(Fault::NotWired)
    }

    /// The settings that a PWM output was last driven with.
    #[cfg(feature = "pwm")]
    #[allow(unused_variables, reason = "the names are for whoever implements it")]
    fn pwm(&mut self, output: usize) -> Result<Wave, Fault> {
        Err(Fault::NotWired)
    }
}

/// The rails, channels, pins and buttons of a board, by name. Names are unique within each table.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The supplies of the board under test.
    pub rails: &'static [Rail],
    /// The channels that can be measured.
    pub channels: &'static [Channel],
    /// The names of the pins that the rig drives.
    pub outputs: &'static [&'static str],
    /// The names of the pins that the rig reads. No output has the same name.
    pub inputs: &'static [&'static str],
    /// The buttons of the board under test, and its lines for reset and boot mode.
    pub buttons: &'static [Button],
    /// The signal by which the board under test shows that it has booted, for the self-test; none
    /// if it has no such signal.
    pub boot: Option<Boot>,
    /// The outputs that are wired to inputs, for the self-test.
    pub loopbacks: &'static [Loopback],
}

/// A button of the board under test, or a line for its reset or boot mode.
#[derive(Debug, Clone, Copy)]
pub struct Button {
    /// The name of the button.
    pub name: &'static str,
    /// The level of its pin while it is pressed. At the other level it is released.
    pub pressed: Polarity,
}

/// The level of a pin that counts as on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// On is high.
    ActiveHigh,
    /// On is low.
    ActiveLow,
}

impl Polarity {
    /// The level of the pin; true is high.
    pub const fn level(self, on: bool) -> bool {
        on == matches!(self, Self::ActiveHigh)
    }
}

/// A supply of the board under test.
#[derive(Debug, Clone, Copy)]
pub struct Rail {
    /// The name of the rail.
    pub name: &'static str,
    /// The position in [`Layout::channels`] of the channel that measures the rail.
    pub channel: usize,
    /// The nominal voltage of the rail when it is on, in millivolts.
    pub millivolts: i32,
}

/// A quantity that can be measured: its name and unit.
#[derive(Debug, Clone, Copy)]
pub struct Channel {
    /// The name of the channel.
    pub name: &'static str,
    /// The unit of the channel.
    pub unit: Unit,
}

/// The unit of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Volts. [`Board::read`] returns millivolts.
    Volts,
    /// Degrees Celsius. [`Board::read`] returns thousandths of a degree.
    Celsius,
}

impl Unit {
    /// The name of the output that has a value in this unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volts => "volts",
            Self::Celsius => "celsius",
        }
    }

    /// The symbol of the unit, as it is written after a number.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Volts => "V",
            Self::Celsius => "°C",
        }
    }
}

/// The signal by which the board under test shows that it has booted: an LED.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    /// The position in [`Layout::rails`] of the rail that the board boots from.
    pub rail: usize,
    /// The position in [`Layout::inputs`] of the input that goes high when the board has booted.
    pub led: usize,
    /// The time limit for the boot, in milliseconds.
    pub within_ms: u32,
}

/// An output that is wired to an input.
#[derive(Debug, Clone, Copy)]
pub struct Loopback {
    /// The position of the output in [`Layout::outputs`].
    pub output: usize,
    /// The position of the input in [`Layout::inputs`].
    pub input: usize,
}

/// The identity of a board, and the reason of its last reset.
#[derive(Debug, Clone, Copy, Default)]
pub struct Identity<'a> {
    /// The unique id of the board. On USB it is also the serial number.
    pub id: &'a str,
    /// The reason of the last reset, if it is known.
    pub reset: Option<&'a str>,
    /// The message of the panic before that reset, if there was one.
    pub last_panic: Option<&'a str>,
}

/// The reason why the hardware did not do as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The layout has nothing at that position.
    NotWired,
    /// A pin could not be driven or read.
    Pin,
    /// The converter returned no reading.
    Adc,
    /// The UART of the console did not do as it was told.
    Uart,
    /// The controller of a bus did not do as it was told.
    #[cfg(feature = "instruments")]
    Bus,
}

impl Fault {
    /// The fault as the second half of a sentence, such as "its pin does not answer".
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotWired => "nothing is wired there",
            Self::Pin => "its pin does not answer",
            Self::Adc => "the converter does not answer",
            Self::Uart => "its UART does not answer",
            #[cfg(feature = "instruments")]
            Self::Bus => "its controller does not answer",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Fault {}

/// A converter that measures channels. `embedded-hal` 1.0 has no trait for converters.
#[allow(async_fn_in_trait, reason = "as for Board")]
pub trait Adc {
    /// The reason why a reading failed.
    type Error;

    /// Takes one reading of a channel of the [`Layout`], in thousandths of its unit. For a rail it
    /// is the millivolts at the rail, not at the converter's pin behind a divider.
    async fn read(&mut self, channel: usize) -> Result<i32, Self::Error>;
}

/// A board made of `embedded-hal` pins. All output pins have one type and all input pins another
/// one; HALs call such pins erased or dynamic.
///
/// A rail is on while its pin is high, and a button is pressed while its pin has the level that the
/// layout says. The arrays have the order of the layout's tables.
pub struct Wired<'a, O, I, A, const RAILS: usize, const BUTTONS: usize, const OUTPUTS: usize, const INPUTS: usize> {
    /// The rails, channels, pins and buttons of the board, by name.
    pub layout: &'static Layout,
    /// The identity of the board.
    pub identity: Identity<'a>,
    /// The pins that switch rails.
    pub rails: [O; RAILS],
    /// The pins that press buttons.
    pub buttons: [O; BUTTONS],
    /// The pins that `gpio-write` drives.
    pub outputs: [O; OUTPUTS],
    /// The pins that `gpio-read` reads.
    pub inputs: [I; INPUTS],
    /// The converter that measures the channels.
    pub adc: A,
    /// The UART that is wired to the console of the board under test, if there is one.
    pub console: Option<&'a mut dyn ConsoleUart>,
}

impl<O, I, A, const RAILS: usize, const BUTTONS: usize, const OUTPUTS: usize, const INPUTS: usize> fmt::Debug
    for Wired<'_, O, I, A, RAILS, BUTTONS, OUTPUTS, INPUTS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wired").field("layout", &self.layout).field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl<O, I, A, const RAILS: usize, const BUTTONS: usize, const OUTPUTS: usize, const INPUTS: usize> Board
    for Wired<'_, O, I, A, RAILS, BUTTONS, OUTPUTS, INPUTS>
where
    O: StatefulOutputPin,
    I: InputPin,
    A: Adc,
{
    fn layout(&self) -> &'static Layout {
        self.layout
    }

    fn identity(&self) -> Identity<'_> {
        self.identity
    }

    fn set_rail(&mut self, rail: usize, on: bool) -> Result<(), Fault> {
        drive(&mut self.rails, rail, on)
    }

    fn is_rail_on(&mut self, rail: usize) -> Result<bool, Fault> {
        self.rails.get_mut(rail).ok_or(Fault::NotWired)?.is_set_high().map_err(|_| Fault::Pin)
    }

    fn set_button(&mut self, button: usize, pressed: bool) -> Result<(), Fault> {
        let wired = self.layout.buttons.get(button).ok_or(Fault::NotWired)?;
        drive(&mut self.buttons, button, wired.pressed.level(pressed))
    }

    fn set_output(&mut self, output: usize, high: bool) -> Result<(), Fault> {
        drive(&mut self.outputs, output, high)
    }

    fn output(&mut self, output: usize) -> Result<bool, Fault> {
        self.outputs.get_mut(output).ok_or(Fault::NotWired)?.is_set_high().map_err(|_| Fault::Pin)
    }

    fn input(&mut self, input: usize) -> Result<bool, Fault> {
        self.inputs.get_mut(input).ok_or(Fault::NotWired)?.is_high().map_err(|_| Fault::Pin)
    }

    async fn read(&mut self, channel: usize) -> Result<i32, Fault> {
        self.adc.read(channel).await.map_err(|_| Fault::Adc)
    }

    fn console(&mut self) -> Option<&mut dyn ConsoleUart> {
        match &mut self.console {
            Some(uart) => Some(&mut **uart),
            None => None,
        }
    }
}

fn drive(pins: &mut [impl OutputPin], place: usize, high: bool) -> Result<(), Fault> {
    pins.get_mut(place).ok_or(Fault::NotWired)?.set_state(high.into()).map_err(|_| Fault::Pin)
}
