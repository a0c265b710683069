//! The output of `#[rigline::extension]` and the derives.
#![allow(deprecated, reason = "the lint of what has no description")]

use core::hint::black_box;

use rigline::json::de;
use rigline::{Config, Context, Failure, Outcome, Outputs, Params};

use crate::program::{bytes, keep, text};

#[derive(Params)]
struct Args<'a> {
    /// A text.
    #[param(max_length = 16)]
    name: &'a str,
    #[param(minimum = 1, maximum = 10, default = 1)]
    times: u8,
    choice: Option<Choice>,
    point: Point,
    pair: [i32; 2],
}

#[derive(Params)]
struct Point {
    x: i16,
    y: Option<bool>,
}

#[derive(Params, Clone, Copy)]
enum Choice {
    One,
    Two,
}

#[derive(Outputs)]
struct Measured {
    /// The measurement.
    volts: u32,
    text: &'static str,
}

/// An extension as the macro writes it.
pub(crate) struct Written;

#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "every form of a method")]
#[rigline::extension(name = "written", version = "1.0.0", description = "All that the macro can do")]
impl Written {
    /// Waits.
    #[operation]
    async fn all(&mut self, args: Args<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.info(args.name);
        cx.sleep(core::time::Duration::from_nanos(args.times.into())).await;
        keep((args.choice.map(|choice| matches!(choice, Choice::One)), args.point.x, args.point.y, args.pair));
        cx.done(text())
    }

    /// Has outputs.
    #[operation]
    fn measure(&mut self) -> Result<Measured, Failure> {
        Ok(Measured { volts: black_box(1), text: text() })
    }

    /// Has nothing.
    #[operation(name = "other")]
    fn nothing() -> Result<(), Failure> {
        Ok(())
    }

    #[configure]
    fn set_up(&mut self, mut config: Config<'_>) -> Result<(), Failure> {
        keep(config.get::<u8>()?);
        Ok(())
    }

    #[safe_state]
    fn off(&mut self) {
        keep(bytes::<1>());
    }
}

pub(crate) fn all() {
    let mut text = bytes::<64>();
    keep(de::from_checked::<Args<'_>>(&mut text).map(|args| args.times));
}
