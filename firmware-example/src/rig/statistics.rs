//! The operation `measure-over-time`: statistics of many readings, exact and without floats.

use rigline::{Context, Failure, Outcome, Outputs, Params};

use super::outputs::Plain;
use super::{Decimal, Instant, Names, Quantity, Rig, bad_argument, decimal, find, unit, unreachable};
use crate::board::Board;
use crate::division::{divided, root, rounded};
use crate::pinmap;

#[derive(Debug, Params)]
pub(crate) struct MeasureOverTime<'a> {
    /// The channel
    #[param(one_of = pinmap::CHANNELS)]
    channel: &'a str,
    /// How many readings to take
    #[param(minimum = 1, maximum = 10000, default = 1000)]
    samples: u32,
    /// The time from one reading to the next, in microseconds; 0 is as fast as the rig can
    #[param(maximum = 1000000, default = 1000)]
    every_us: u32,
}

/// The longest time that the readings may take by themselves, in microseconds.
const LIMIT_US: u64 = 60_000_000;

#[derive(Outputs)]
#[allow(dead_code, reason = "for the schema")]
#[allow(deprecated, reason = "of what has no description: their names are plain, and a board's flash is small")]
pub(crate) struct MeasuredOverTime {
    volts: Option<Plain<Decimal<3>>>,
    celsius: Option<Plain<Decimal<3>>>,
    min: Plain<Decimal<3>>,
    max: Plain<Decimal<3>>,
    rms: Plain<Decimal<3>>,
    samples: Plain<u32>,
    took_us: Plain<u64>,
}

pub(crate) async fn measure_over_time<B: Board>(
    rig: &mut Rig<B>,
    args: MeasureOverTime<'_>,
    cx: &mut Context<'_>,
) -> Result<Outcome, Failure> {
    let MeasureOverTime { channel: name, samples, every_us } = args;
    let channels = rig.board.layout().channels;
    let channel = find("channel", name, Names::Channels(channels), cx)?;
    let unit = unit(channels, channel);
    let planned_us = u64::from(samples.saturating_sub(1)) * u64::from(every_us);
    if planned_us > LIMIT_US {
        return Err(bad_argument(
            cx,
            format_args!(
                "args.every_us: {samples} readings every {every_us} us take {planned_us} us; the limit is {LIMIT_US} us"
            ),
        ));
    }
    let mut statistics = Statistics::default();
    let begin = cx.now();
    for number in 0..samples {
        // A reading that is late does not make the next one late.
        let due = begin.after_nanos(u64::from(number) * u64::from(every_us) * 1000);
        let ahead = due.nanos_since(cx.now());
        if ahead > 0 {
            cx.sleep(core::time::Duration::from_nanos(ahead)).await;
        }
        let value = rig.board.read(channel).await.map_err(|fault| unreachable("channel", name, fault, cx))?;
        statistics.add(value);
    }
    let took = Instant::from_nanos(cx.now().nanos_since(begin)).as_micros();
    let (mean, rms) = (statistics.mean(), i32::try_from(statistics.rms()).unwrap_or(i32::MAX));
    cx.output(unit.name(), &decimal(mean))?;
    cx.output("min", &decimal(statistics.min))?;
    cx.output("max", &decimal(statistics.max))?;
    cx.output("rms", &decimal(rms))?;
    cx.output("samples", &samples)?;
    cx.output("took_us", &took)?;
    cx.done(format_args!(
        "{name} is at {}, from {} to {}, rms {}",
        Quantity(mean, unit),
        decimal(statistics.min),
        decimal(statistics.max),
        decimal(rms)
    ))
}

/// Statistics of readings. All results are exact but for one rounding, half away from zero.
#[derive(Debug, Clone, Copy, Default)]
struct Statistics {
    count: u32,
    min: i32,
    max: i32,
    sum: i64,
    /// The sum of the squares. 64 bits hold those of four readings at the bounds of `i32`.
    squares: u128,
}

impl Statistics {
    fn add(&mut self, value: i32) {
        (self.min, self.max) =
            if self.count == 0 { (value, value) } else { (self.min.min(value), self.max.max(value)) };
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(i64::from(value));
        let magnitude = u64::from(value.unsigned_abs());
        self.squares = self.squares.saturating_add(u128::from(magnitude * magnitude));
    }

    fn mean(&self) -> i32 {
        let magnitude = i64::try_from(rounded(self.sum.unsigned_abs().into(), self.count.into())).unwrap_or_default();
        i32::try_from(if self.sum < 0 { -magnitude } else { magnitude }).unwrap_or_default()
    }

    /// The root of the mean of the squares.
    fn rms(&self) -> u32 {
        let (mean, rest) = divided(self.squares, self.count.into());
        let root = root(mean);
        // It is rounded up from (root + 1/2)², which is root² + root + 1/4.
        let up = match mean.checked_sub(root * root + root) {
            Some(0) => self.count > 0 && rest * 4 >= u64::from(self.count),
            Some(_) => true,
            None => false,
        };
        u32::try_from(root + u64::from(up)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::Statistics;

    fn of(values: &[i32]) -> Statistics {
        let mut statistics = Statistics::default();
        values.iter().for_each(|value| statistics.add(*value));
        statistics
    }

    /// Whether this is the root of `squares / count`, rounded half up, by integers without a bound.
    fn is_root(rms: u32, squares: u128, count: u128) -> bool {
        let (rms, four) = (u128::from(rms), 4 * squares);
        // (rms - 1/2)² <= squares / count < (rms + 1/2)², times four times the count.
        let below = rms == 0 || (2 * rms - 1).pow(2) * count <= four;
        below && four < (2 * rms + 1).pow(2) * count
    }

    /// Pseudorandom readings (a linear congruential generator's high bits) of so many bits.
    fn readings(seed: u64, bits: u32) -> impl Iterator<Item = i32> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i32::try_from((state.cast_signed() >> 32) >> (32 - bits)).unwrap()
        })
    }

    #[test]
    fn mean_and_rms_are_those_of_big_arithmetic_for_all_sizes_of_readings() {
        for bits in 1..=32 {
            for count in [1, 2, 3, 4, 5, 7, 16, 100, 1000, 10_000] {
                let values: Vec<i32> =
                    readings(u64::from(bits) * 10_007 + count, bits).take(usize::try_from(count).unwrap()).collect();
                let statistics = of(&values);
                let squares: u128 = values.iter().map(|value| u128::from(value.unsigned_abs()).pow(2)).sum();
                let rms = statistics.rms();
                assert!(is_root(rms, squares, count.into()), "{bits} bits, {count} readings: {rms}");
                let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
                // |mean · count - sum| <= count / 2
                let error = (i128::from(statistics.mean()) * i128::from(count) - sum).abs();
                assert!(2 * error <= i128::from(count), "{bits} bits, {count} readings: {}", statistics.mean());
                assert_eq!(Some(&statistics.min), values.iter().min());
                assert_eq!(Some(&statistics.max), values.iter().max());
            }
        }
    }

    #[test]
    fn values_at_the_bounds_do_not_overflow() {
        for (value, rms) in [(i32::MIN, 1 << 31), (i32::MAX, (1 << 31) - 1), (0, 0), (-1, 1), (1, 1)] {
            let statistics = of(&std::vec![value; 10_000]);
            assert_eq!((statistics.mean(), statistics.rms()), (value, rms));
        }
        let statistics = Statistics {
            count: u32::MAX,
            sum: i64::from(i32::MIN) * i64::from(u32::MAX),
            squares: (1 << 62) * u128::from(u32::MAX),
            ..of(&[i32::MIN])
        };
        assert_eq!((statistics.mean(), statistics.rms()), (i32::MIN, 1 << 31));
        assert_eq!((of(&[]).mean(), of(&[]).rms()), (0, 0));
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        assert_eq!((of(&[0, 1]).mean(), of(&[0, -1]).mean()), (1, -1));
        // The mean of the squares is 1/4, whose root is 1/2; just below it the root is rounded down.
        assert_eq!((of(&[1, 0, 0, 0]).rms(), of(&[1, 0, 0, 0, 0]).rms()), (1, 0));
        // 9/4, 2.25, is the square of 3/2.
        assert_eq!((of(&[3, 0, 0, 0]).rms(), of(&[3, 0, 0, 0, 0]).rms()), (2, 1));
    }
}
