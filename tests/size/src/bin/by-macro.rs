//! Three operations by the macros.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![allow(clippy::unused_async, reason = "as the one function of the trait is")]

use rigline::json::Decimal;
use rigline::{Context, Failure, Outcome, Params};
use rigline_size::Board;

#[derive(Params)]
struct Measure<'a> {
    /// Channel to read, such as `3V3`.
    channel: &'a str,
    /// Number of samples to average.
    #[param(minimum = 1, maximum = 1000, default = 16)]
    samples: u16,
}

#[derive(Params)]
struct Power {
    /// Which rail.
    rail: Rail,
    /// Whether it is on.
    on: bool,
}

#[derive(Params)]
enum Rail {
    #[param(rename = "3V3")]
    Low,
    #[param(rename = "5V")]
    High,
}

struct Rig(Board);

#[rigline::extension(name = "rig", version = "0.1.0", description = "RP2040 hardware-test rig")]
impl Rig {
    /// Measure a rail's voltage.
    #[operation]
    async fn measure(&mut self, args: Measure<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let volts = self.0.millivolts(args.channel, args.samples);
        cx.output("volts", &Decimal::<3>::from_mantissa(volts))?;
        cx.done("measured")
    }

    /// Switch a rail.
    #[operation]
    async fn power(&mut self, args: Power) -> Result<(), Failure> {
        self.0.power(args.rail as u8, args.on);
        Ok(())
    }

    /// Say who this is.
    #[operation]
    async fn identify(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done("a rig")
    }
}

rigline_size::program!(Rig(Board));
