//! The hardware behind the rig: what it must be able to do, and how it is made from `embedded-hal` pins.

use core::fmt;

use embedded_hal::digital::{InputPin, OutputPin, StatefulOutputPin};

/// The hardware that a [`Rig`](crate::Rig) drives.
///
/// Rails, channels, pins and buttons are known by their place in the [`Layout`]'s tables. [`Wired`] implements it over
/// `embedded-hal`, [`SimBoard`](crate::sim::SimBoard) over nothing at all.
#[allow(async_fn_in_trait, reason = "a rig lives on one thread, as an extension does")]
pub trait Board {
    /// The layout: rails, channels, pins and buttons, by name.
    fn layout(&self) -> &'static Layout;

    /// The identity of the board, and the reason of its last reset.
    fn identity(&self) -> Identity<'_>;

    /// Switches a supply of the board under test.
    fn set_rail(&mut self, rail: usize, on: bool) -> Result<(), Fault>;

    /// Whether a supply of the board under test is switched on.
    fn is_rail_on(&mut self, rail: usize) -> Result<bool, Fault>;

    /// Holds or lets go a button of the board under test.
    fn set_button(&mut self, button: usize, pressed: bool) -> Result<(), Fault>;

    /// Drives an output pin.
    fn set_output(&mut self, output: usize, high: bool) -> Result<(), Fault>;

    /// The level an output pin was driven to.
    fn output(&mut self, output: usize) -> Result<bool, Fault>;

    /// The level at an input pin.
    fn input(&mut self, input: usize) -> Result<bool, Fault>;

    /// One reading of a channel, in thousandths of its unit: millivolts, or thousandths of a degree.
    async fn read(&mut self, channel: usize) -> Result<i32, Fault>;
}

/// The rails, channels, pins and buttons of a board, by name. Names are unique within their table.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The supplies of the board under test.
    pub rails: &'static [Rail],
    /// The channels that can be measured.
    pub channels: &'static [Channel],
    /// The pins that the rig drives.
    pub outputs: &'static [&'static str],
    /// The pins that the rig reads. No output has the same name.
    pub inputs: &'static [&'static str],
    /// The buttons of the board under test.
    pub buttons: &'static [&'static str],
    /// How the board under test shows that it is up; for the self-test.
    pub boot: Option<Boot>,
    /// Outputs that are wired to inputs; for the self-test.
    pub loopbacks: &'static [Loopback],
}

/// A supply of the board under test.
#[derive(Debug, Clone, Copy)]
pub struct Rail {
    /// The name of the rail.
    pub name: &'static str,
    /// The channel that measures it, as a place in [`Layout::channels`].
    pub channel: usize,
    /// The nominal voltage when it is on, in millivolts.
    pub millivolts: i32,
}

/// Something that can be measured.
#[derive(Debug, Clone, Copy)]
pub struct Channel {
    /// The name of the channel.
    pub name: &'static str,
    /// The unit.
    pub unit: Unit,
}

/// The unit of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Volts; [`Board::read`] gives millivolts.
    Volts,
    /// Degrees Celsius; [`Board::read`] gives thousandths.
    Celsius,
}

impl Unit {
    /// The name of an output in this unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volts => "volts",
            Self::Celsius => "celsius",
        }
    }

    /// The symbol after a number.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Volts => "V",
            Self::Celsius => "°C",
        }
    }
}

/// How the board under test shows that it is up.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    /// The rail that it boots from, as a place in [`Layout::rails`].
    pub rail: usize,
    /// The input that goes high when it is up, as a place in [`Layout::inputs`].
    pub led: usize,
    /// How long it may take, in milliseconds.
    pub within_ms: u32,
}

/// An output that is wired to an input.
#[derive(Debug, Clone, Copy)]
pub struct Loopback {
    /// The place of the loopback in [`Layout::outputs`].
    pub output: usize,
    /// The place of the loopback in [`Layout::inputs`].
    pub input: usize,
}

/// The identity of a board, and the reason of its last reset.
#[derive(Debug, Clone, Copy, Default)]
pub struct Identity<'a> {
    /// The unique id of the board; on USB the serial number too.
    pub id: &'a str,
    /// Why the board was last reset, if that is known.
    pub reset: Option<&'a str>,
    /// The message of the panic before that reset, if there was one.
    pub last_panic: Option<&'a str>,
}

/// Why the hardware did not do as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing is wired at that place of the layout.
    NotWired,
    /// A pin could not be driven or read.
    Pin,
    /// The converter gave no reading.
    Adc,
}

impl Fault {
    /// The fault in a sentence's second half.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotWired => "nothing is wired there",
            Self::Pin => "its pin does not answer",
            Self::Adc => "the converter does not answer",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Fault {}

/// Measures channels. `embedded-hal` 1.0 has no trait for converters.
#[allow(async_fn_in_trait, reason = "as for Board")]
pub trait Adc {
    /// The reason why a reading failed.
    type Error;

    /// One reading of a channel of the [`Layout`], in thousandths of its unit: millivolts at the rail, not at the pin of
    /// a divider.
    async fn read(&mut self, channel: usize) -> Result<i32, Self::Error>;
}

/// A board made of `embedded-hal` pins: one type for all pins that are driven, one for all that are read (HALs call that
/// erased or dynamic pins).
///
/// A rail is on, and a button pressed, while its pin is high. The arrays stand in the order of the layout's tables.
#[derive(Debug)]
pub struct Wired<'a, O, I, A, const RAILS: usize, const BUTTONS: usize, const OUTPUTS: usize, const INPUTS: usize> {
    /// The layout: rails, channels, pins and buttons, by name.
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
        drive(&mut self.buttons, button, pressed)
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
}

fn drive(pins: &mut [impl OutputPin], place: usize, high: bool) -> Result<(), Fault> {
    pins.get_mut(place).ok_or(Fault::NotWired)?.set_state(high.into()).map_err(|_| Fault::Pin)
}
