//! The hardware of the rig, over embassy's HAL. [`pinmap`](crate::pinmap) describes the wiring.

use embassy_rp::Peri;
use embassy_rp::adc::{self, Async, Channel};
use embassy_rp::gpio::{Input, Level, Output, Pull};
use embassy_rp::peripherals::{
    ADC_TEMP_SENSOR, PIN_2, PIN_3, PIN_6, PIN_7, PIN_10, PIN_11, PIN_14, PIN_15, PIN_22, PIN_26, PIN_27, PIN_28,
};

use crate::board::{Adc, Identity, Wired};
use crate::console::ConsoleUart;
use crate::pinmap::{LAYOUT, channel_value};

/// The rig's hardware on a Raspberry Pi Pico.
#[cfg(not(feature = "instruments"))]
pub type PicoBoard = WiredBoard;

#[cfg(feature = "instruments")]
pub use super::instruments::PicoBoard;

/// The pins of the rig and its converter: two rails, three buttons, one output, three inputs, four
/// channels.
pub type WiredBoard = Wired<'static, Output<'static>, Input<'static>, PicoAdc, 2, 3, 1, 3>;

/// The pins of the Raspberry Pi Pico that the rig uses.
#[allow(missing_docs, reason = "the names are the pin map's tables")]
pub struct Pins {
    /// The outputs that switch the rails `3V3` and `5V0`.
    pub rails: (Peri<'static, PIN_2>, Peri<'static, PIN_3>),
    /// The outputs that press the buttons `RESET`, `USER` and `BOOT`.
    pub buttons: (Peri<'static, PIN_6>, Peri<'static, PIN_7>, Peri<'static, PIN_22>),
    /// The output `GP14`.
    pub output: Peri<'static, PIN_14>,
    /// The inputs `LED`, `LED2` and `GP15`.
    pub inputs: (Peri<'static, PIN_10>, Peri<'static, PIN_11>, Peri<'static, PIN_15>),
    /// The inputs of the converter for the channels `3V3`, `5V0` and `AUX`.
    pub channels: (Peri<'static, PIN_26>, Peri<'static, PIN_27>, Peri<'static, PIN_28>),
    /// The input of the converter for the temperature of the chip.
    pub temperature: Peri<'static, ADC_TEMP_SENSOR>,
    /// The buses, the counter and the PWM output.
    #[cfg(feature = "instruments")]
    pub instruments: super::instruments::Pins,
}

/// Makes the board from its pins, its converter and its console. All outputs are off.
pub fn board(
    pins: Pins,
    adc: adc::Adc<'static, Async>,
    console: Option<&'static mut dyn ConsoleUart>,
    identity: Identity<'static>,
    interrupts: impl super::Interrupts,
) -> PicoBoard {
    let (rails, buttons, inputs, channels) = (pins.rails, pins.buttons, pins.inputs, pins.channels);
    let released = |button: usize| {
        let is_high = LAYOUT.buttons.get(button).is_some_and(|button| button.pressed.level(false));
        if is_high { Level::High } else { Level::Low }
    };
    let wired = Wired {
        layout: &LAYOUT,
        identity,
        rails: [Output::new(rails.0, Level::Low), Output::new(rails.1, Level::Low)],
        buttons: [
            Output::new(buttons.0, released(0)),
            Output::new(buttons.1, released(1)),
            Output::new(buttons.2, released(2)),
        ],
        outputs: [Output::new(pins.output, Level::Low)],
        inputs: [
            // Without a board under test they read low.
            Input::new(inputs.0, Pull::Down),
            Input::new(inputs.1, Pull::Down),
            Input::new(inputs.2, Pull::Down),
        ],
        adc: PicoAdc {
            adc,
            channels: [
                Channel::new_pin(channels.0, Pull::None),
                Channel::new_pin(channels.1, Pull::None),
                Channel::new_pin(channels.2, Pull::None),
                Channel::new_temp_sensor(pins.temperature),
            ],
        },
        console,
    };
    #[cfg(feature = "instruments")]
    return PicoBoard::new(wired, pins.instruments, interrupts);
    #[cfg(not(feature = "instruments"))]
    {
        let _ = interrupts;
        wired
    }
}

/// The analog-to-digital converter of the chip: 12 bits, with a reference of 3.3 V.
pub struct PicoAdc {
    adc: adc::Adc<'static, Async>,
    channels: [Channel<'static>; 4],
}

impl Adc for PicoAdc {
    type Error = adc::Error;

    async fn read(&mut self, channel: usize) -> Result<i32, adc::Error> {
        let Some(input) = self.channels.get_mut(channel) else { return Err(adc::Error::ConversionFailed) };
        Ok(channel_value(channel, self.adc.read(input).await?))
    }
}
