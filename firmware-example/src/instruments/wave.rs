//! The settings of a PWM output, from a frequency and a duty cycle.

use crate::division::rounded;

/// The settings of a PWM output, in counts of its clock.
///
/// The clock is divided by `divider`. A period has `period` of these counts, and the output is high
/// for the first `high` of them.
///
/// ```
/// use rigline_rig::instruments::Wave;
///
/// let wave = Wave::new(125_000_000, 1000, 25_000).unwrap();
/// assert_eq!(wave, Wave { divider: 2, period: 62_500, high: 15_625 });
/// assert_eq!((wave.millihertz(125_000_000), wave.duty()), (1_000_000, 25_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wave {
    /// The divider of the clock: 1 to 255.
    pub divider: u8,
    /// The length of a period: 1 to 65,535.
    pub period: u16,
    /// The part of the period for which the output is high: 0 to `period`.
    pub high: u16,
}

/// A duty cycle of 100 %, in thousandths of a percent.
const FULL: u32 = 100_000;

impl Wave {
    /// An output that stays low.
    pub const OFF: Self = Self { divider: 1, period: 1000, high: 0 };

    /// The settings nearest to this frequency and this duty cycle, from a clock in hertz. The duty
    /// cycle is in thousandths of a percent; more than 100 % is 100 %. None if the clock cannot be
    /// divided to that frequency.
    pub const fn new(clock: u32, hertz: u32, duty: u32) -> Option<Self> {
        // The smallest divider with which the period fits has the finest steps.
        let Some(counts) = clock.checked_div(hertz) else { return None };
        let divider = counts / 65_536 + 1;
        if divider > 255 || counts == 0 {
            return None;
        }
        // At most 65,535, since the divider is above what it would be for 65,536.
        let period = rounded(clock as u128, divider as u64 * hertz as u64);
        let duty = if duty > FULL { FULL } else { duty };
        let high = rounded(period as u128 * duty as u128, FULL as u64);
        #[allow(clippy::cast_possible_truncation, reason = "they are at most 255 and 65,535")]
        Some(Self { divider: divider as u8, period: period as u16, high: high as u16 })
    }

    /// The frequency in thousandths of a hertz, from a clock in hertz.
    pub const fn millihertz(self, clock: u32) -> u64 {
        rounded(clock as u128 * 1000, self.divider as u64 * self.period as u64)
    }

    /// The duty cycle in thousandths of a percent.
    pub const fn duty(self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "it is at most 100 %")]
        let duty = rounded(self.high as u128 * FULL as u128, self.period as u64) as u32;
        duty
    }
}

#[cfg(test)]
mod tests {
    use super::Wave;

    const CLOCK: u32 = 125_000_000;

    /// The frequencies whose settings are at a bound, and some between them.
    fn frequencies() -> impl Iterator<Item = u32> {
        (8..3000).chain((3000..1_000_000).step_by(997)).chain([999_999, 1_000_000, 1907, 1908, 3814, 3815])
    }

    #[test]
    fn settings_fit_their_registers_and_are_the_nearest() {
        for hertz in frequencies() {
            let wave = Wave::new(CLOCK, hertz, 50_000).unwrap();
            assert!(wave.divider >= 1 && wave.period >= 124, "{hertz} Hz: {wave:?}");
            let step = u128::from(wave.divider) * u128::from(hertz);
            let error = (u128::from(wave.period) * step).abs_diff(u128::from(CLOCK));
            assert!(2 * error <= step, "{hertz} Hz: {wave:?}");
        }
    }

    #[test]
    fn duty_cycles_are_the_nearest_and_the_ends_are_exact() {
        for hertz in frequencies().step_by(7) {
            for duty in (0..=100_000).step_by(499).chain([100_000, 1, 99_999]) {
                let wave = Wave::new(CLOCK, hertz, duty).unwrap();
                let exact = u128::from(wave.period) * u128::from(duty);
                assert!((u128::from(wave.high) * 100_000).abs_diff(exact) <= 50_000, "{hertz} Hz, {duty}: {wave:?}");
            }
            assert_eq!(Wave::new(CLOCK, hertz, 0).unwrap().high, 0);
            let full = Wave::new(CLOCK, hertz, 100_000).unwrap();
            assert_eq!((full.high, full.duty()), (full.period, 100_000));
        }
    }

    #[test]
    fn a_frequency_out_of_reach_has_no_settings() {
        for (clock, hertz) in [(CLOCK, 0), (CLOCK, 7), (CLOCK, CLOCK + 1), (0, 1), (u32::MAX, 1)] {
            assert_eq!(Wave::new(clock, hertz, 0), None, "{clock} Hz to {hertz} Hz");
        }
        assert!(Wave::new(CLOCK, 8, 0).is_some());
    }

    #[test]
    fn what_an_output_does_is_told_as_it_is() {
        let wave = Wave::new(CLOCK, 300_000, 33_333).unwrap();
        assert_eq!(wave, Wave { divider: 1, period: 417, high: 139 });
        assert_eq!((wave.millihertz(CLOCK), wave.duty()), (299_760_192, 33_333));
        assert_eq!((Wave::OFF.duty(), Wave::OFF.millihertz(0)), (0, 0));
        let wave = Wave { divider: 255, period: 65_535, high: 65_535 };
        assert_eq!((wave.millihertz(u32::MAX), wave.duty()), (257_008, 100_000));
    }
}
