//! The operation `count-pulses`: the pulses at an input in a time, and their frequency.

use rigline::{Context, Failure, Outcome, Outputs, Params};

use super::outputs::Plain;
use super::{Decimal, Instant, Names, Rig, decimal, find, ms, unreachable};
use crate::board::Board;
use crate::division::rounded;
use crate::pinmap;

#[derive(Debug, Params)]
pub(crate) struct CountPulses<'a> {
    /// The input
    #[param(one_of = pinmap::COUNTERS)]
    pin: &'a str,
    /// How long to count, in milliseconds
    #[param(minimum = 1, maximum = 60000, default = 1000)]
    ms: u32,
}

#[derive(Outputs)]
#[allow(dead_code, reason = "for the schema")]
#[allow(deprecated, reason = "of what has no description: their names are plain, and a board's flash is small")]
pub(crate) struct Counted {
    pulses: Plain<u32>,
    hertz: Plain<Decimal<3>>,
    took_us: Plain<u64>,
}

/// The highest frequency that can be told, in hertz.
const LIMIT_HERTZ: u32 = 2_100_000;
/// How often the counter is read, in milliseconds. One of 16 bits overflows after 31 ms at
/// [`LIMIT_HERTZ`].
const POLL_MS: u32 = 1;

pub(crate) async fn count_pulses<B: Board>(
    rig: &mut Rig<B>,
    args: CountPulses<'_>,
    cx: &mut Context<'_>,
) -> Result<Outcome, Failure> {
    let CountPulses { pin: name, ms: gate } = args;
    let counter = find("pin", name, Names::Plain(rig.board.instruments().counters), cx)?;
    let mut pulses = || rig.board.pulses(counter);
    let first = pulses().map_err(|fault| unreachable("pin", name, fault, cx))?;
    let begin = cx.now();
    let end = begin.after(ms(gate));
    let (count, took) = loop {
        let left = end.nanos_since(cx.now());
        cx.sleep(core::time::Duration::from_nanos(left).min(ms(POLL_MS))).await;
        let last = pulses().map_err(|fault| unreachable("pin", name, fault, cx))?;
        let now = cx.now();
        if now >= end {
            break (last.wrapping_sub(first), Instant::from_nanos(now.nanos_since(begin)).as_micros());
        }
    };
    let millihertz = rounded(u128::from(count) * 1_000_000_000, took);
    if millihertz > u64::from(LIMIT_HERTZ) * 1000 {
        return cx.failed(format_args!("{name} has more than {LIMIT_HERTZ} pulses a second, which is the limit"));
    }
    let hertz = decimal(i32::try_from(millihertz).unwrap_or(i32::MAX));
    cx.output("pulses", &count)?;
    cx.output("hertz", &hertz)?;
    cx.output("took_us", &took)?;
    cx.done(format_args!("{name} has {count} pulses in {gate} ms: {hertz} Hz"))
}
