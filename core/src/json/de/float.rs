//! Decimal numbers to floats, to the nearest (IEEE 754-2019 §5.12.2).
//!
//! `core` does this fast and well, but with 20 KB of code and tables, and with panic paths. Where
//! that is too much, an estimate of 64 bits that knows its error does in nearly every case; where
//! the error leaves two floats to choose from, the digits are compared, one by one, with those of
//! the point half-way between them. Both read the same value.

use core::cmp::Ordering;

use crate::json::number::Digits;
use crate::json::ser::float::Big;

/// The differences between the two float types. A float is `mantissa * 2^exponent`.
struct Format {
    mantissa_bits: i32,
    least_exponent: i32,
    infinity: u64,
}

/// The nearest `f64`, or none if that is infinite.
pub(super) fn to_f64(digits: &Digits<'_>) -> Option<f64> {
    let format = Format { mantissa_bits: 53, least_exponent: -1074, infinity: f64::INFINITY.to_bits() };
    // 2^1075 times ten is below 2^1088.
    let value = f64::from_bits(read::<34>(digits, &format)?);
    Some(if digits.is_negative() { -value } else { value })
}

/// The nearest `f32`, or none if that is infinite.
pub(super) fn to_f32(digits: &Digits<'_>) -> Option<f32> {
    let format = Format { mantissa_bits: 24, least_exponent: -149, infinity: u64::from(f32::INFINITY.to_bits()) };
    // 2^150 times ten is below 2^160.
    let value = f32::from_bits(u32::try_from(read::<5>(digits, &format)?).ok()?);
    Some(if digits.is_negative() { -value } else { value })
}

/// The bits of the float, its sign apart.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn read<const LIMBS: usize>(digits: &Digits<'_>, format: &Format) -> Option<u64> {
    // The value is `0.whole fraction * 10^point`.
    let (whole, fraction, point) = digits.scientific();
    if whole.is_empty() && fraction.is_empty() {
        return Some(0);
    }
    // What is at a bound is 0 or infinite already.
    let point = point.clamp(-400, 400) as i32;
    let Estimate { mantissa, exponent, error } = Estimate::of(whole, fraction, point);

    let unit = (exponent + 64 - format.mantissa_bits).max(format.least_exponent);
    // 66 bits are more than the mantissa has: it is below a quarter of the least float.
    let dropped = (unit - exponent).min(66);
    let floor = (u128::from(mantissa) >> dropped) as u64;
    let half = 1 << (dropped - 1);
    let rest = u128::from(mantissa) & (2 * half - 1);
    let up = if rest.abs_diff(half) > u128::from(error) {
        rest & half != 0
    } else {
        match compare::<LIMBS>(whole, fraction, point, 2 * floor + 1, unit - 1) {
            Ordering::Less => false,
            Ordering::Equal => floor & 1 == 1,
            Ordering::Greater => true,
        }
    };
    // The hidden bit of a normal number, and the carry of a mantissa that was rounded up to the
    // next power of two, count the exponent up by one, as they must.
    let bits = ((unit - format.least_exponent) as u64) << (format.mantissa_bits - 1);
    let bits = bits.wrapping_add(floor).wrapping_add(u64::from(up));
    // Beyond the largest float, they are those of infinity or more.
    (bits < format.infinity).then_some(bits)
}

/// `mantissa * 2^exponent`, with the highest bit of the mantissa set, give or take
/// `error * 2^exponent`.
struct Estimate {
    mantissa: u64,
    exponent: i32,
    error: u64,
}

impl Estimate {
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    fn of(whole: &[u8], fraction: &[u8], point: i32) -> Self {
        /// As many digits fit 64 bits.
        const MOST: usize = 19;
        let mut head = 0_u64;
        let mut power = point;
        let mut digits = whole.iter().chain(fraction);
        for digit in digits.by_ref().take(MOST) {
            head = head.wrapping_mul(10).wrapping_add(u64::from(digit & 0x0f));
            power -= 1;
        }
        // What is left out is less than one of the 10^18 and more that `head` is.
        let error = if digits.next().is_some() { 20 } else { 0 };
        let zeros = head.leading_zeros();
        let mut estimate = Self { mantissa: head << zeros, exponent: -(zeros as i32), error };
        for (at, ((mantissa, exponent), error)) in POWERS.iter().zip(ERRORS).enumerate() {
            if power.unsigned_abs() >> at & 1 == 1 {
                estimate.scale(*mantissa, *exponent, u64::from(error), power.is_negative());
            }
        }
        estimate
    }

    /// Multiplies by a power, or divides by it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    fn scale(&mut self, mantissa: u64, exponent: i32, error: u64, down: bool) {
        let wide = if down {
            self.exponent -= exponent + 127;
            (u128::from(self.mantissa) << 63).checked_div(u128::from(mantissa)).unwrap_or_default() << 64
        } else {
            self.exponent += exponent;
            u128::from(self.mantissa).wrapping_mul(u128::from(mantissa))
        };
        let zeros = wide.leading_zeros();
        self.mantissa = (wide << zeros >> 64) as u64;
        self.exponent += 64 - zeros as i32;
        self.error = (self.error + error + 2) << zeros;
    }
}

/// `10^1`, `10^2`, `10^4` … `10^256`, with the highest bit set.
static POWERS: [(u64, i32); 9] = {
    let mut powers = [(10 << 60, -60); 9];
    let mut at = 1;
    while at < powers.len() {
        #[allow(clippy::indexing_slicing, reason = "in bounds by the loop's condition")]
        let (mantissa, exponent) = powers[at - 1];
        let square = mantissa as u128 * mantissa as u128;
        let zeros = square.leading_zeros();
        #[allow(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
        {
            powers[at] = ((square << zeros >> 64) as u64, 2 * exponent + 64 - zeros as i32);
        }
        at += 1;
    }
    powers
};

/// How many units each of the [`POWERS`] may be wrong by: the first five are exact. Squaring at most
/// triples the error of the others, and dividing doubles it.
const ERRORS: [u8; 9] = [0, 0, 0, 0, 0, 2, 8, 24, 70];

/// How `0.whole fraction * 10^point` compares with `mantissa * 2^exponent`, exactly.
fn compare<const LIMBS: usize>(whole: &[u8], fraction: &[u8], point: i32, mantissa: u64, exponent: i32) -> Ordering {
    let mut value = Big::<LIMBS>::from(mantissa);
    let mut unit = Big::<LIMBS>::from(1);
    let (scaled, power) = if exponent.is_negative() { (&mut unit, exponent) } else { (&mut value, exponent) };
    scaled.double(power.unsigned_abs());
    let (scaled, power) = if point.is_negative() { (&mut value, point) } else { (&mut unit, point) };
    scaled.multiply_by_power_of_ten(power.unsigned_abs());
    if value >= unit {
        return Ordering::Less;
    }
    for digit in whole.iter().chain(fraction) {
        value.multiply(10);
        let mut other = b'0';
        while value.subtract(&unit) {
            other = other.wrapping_add(1);
        }
        match digit.cmp(&other) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
    if value == Big::from(0) { Ordering::Equal } else { Ordering::Less }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{format, string::String};

    fn same_as_core(text: &str) {
        let digits = Digits::new(text.as_bytes()).unwrap();
        let wide = text.parse::<f64>().ok().filter(|value| value.is_finite());
        let narrow = text.parse::<f32>().ok().filter(|value| value.is_finite());
        assert_eq!(to_f64(&digits).map(f64::to_bits), wide.map(f64::to_bits), "{text}");
        assert_eq!(to_f32(&digits).map(f32::to_bits), narrow.map(f32::to_bits), "{text}");
    }

    #[test]
    fn the_ends_and_the_halves() {
        for text in [
            "0",
            "-0",
            "0.0e5",
            "1",
            "-1.5",
            "3.3",
            "0.1",
            "1e23",
            "8.5e-45",
            "9007199254740993",
            "9007199254740992.9",
            "9007199254740993.00000000000000000000000000000000000001",
            "16777217",
            "16777219",
            "33554433.000000001",
            "1.7976931348623157e308",
            "1.7976931348623158e308",
            "1.7976931348623159e308",
            "1e309",
            "-1e400",
            "1e99999999999",
            "3.4028234e38",
            "3.4028235e38",
            "3.4028236e38",
            "3.402823567797336616e38",
            "3.402823669209385e38",
            "2.2250738585072011e-308",
            "2.2250738585072014e-308",
            "5e-324",
            "4.9e-324",
            "2.5e-324",
            "2.4703282292062327e-324",
            "2.4703282292062328e-324",
            "2.4e-324",
            "1e-323",
            "1e-99999999999",
            "1.4e-45",
            "7.006492321624085e-46",
            "7.006492321624086e-46",
            "1.17549435e-38",
            "0.000000000000000000000000000000000000000000001",
            "1000000000000000000000000000000000000000000000000000000",
            "6.631236846766476e-316",
            "17976931348623157000000000000000000000e271",
            "100000000000000016777215",
            "100000000000000016777216",
        ] {
            same_as_core(text);
        }
        // Half-way between two floats, with all digits: exactly, and with something far behind.
        for bits in
            [1_u64, 2, 0x000F_FFFF_FFFF_FFFF, 0x3FF0_0000_0000_0000, 0x0123_4567_89AB_CDEF, 0x7FEF_FFFF_FFFF_FFFE]
        {
            let (low, high) = (f64::from_bits(bits), f64::from_bits(bits + 1));
            let exact = |value: f64| format!("{value:.1100}");
            let half = sum_halved(&exact(low), &exact(high));
            same_as_core(&half);
            same_as_core(&format!("{half}0000000000000000000000001"));
        }
    }

    /// A number of the first digits of the point half-way between two floats is very near to it: an estimate that is wrong by more than
    /// its error says takes the wrong side.
    #[test]
    fn the_first_digits_of_a_half_decide_its_side() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        for exponent in (0..0x7FE_u64).step_by(13) {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let bits = exponent << 52 | random >> 12;
            let exact = |bits: u64| format!("{:.1100}", f64::from_bits(bits));
            first_digits_are_same_as_core(&sum_halved(&exact(bits), &exact(bits + 1)));
            // Half-way between two floats of the smaller type is one of the larger.
            let bits = (exponent & 0xFF) << 23 | random >> 41;
            if bits + 1 < u64::from(f32::INFINITY.to_bits()) {
                let value = |bits: u64| f64::from(f32::from_bits(u32::try_from(bits).unwrap()));
                let half = f64::midpoint(value(bits), value(bits + 1));
                first_digits_are_same_as_core(&format!("{half:.200}"));
            }
        }
    }

    fn first_digits_are_same_as_core(decimal: &str) {
        let (whole, fraction) = decimal.split_once('.').unwrap();
        let all = [whole, fraction].concat();
        let digits = all.trim_start_matches('0');
        let point = (whole.len() + digits.len()).cast_signed() - all.len().cast_signed();
        for count in [15, 17, 18, 19, 20, 21, 22, 24, 38] {
            let Some(first) = digits.get(..count) else { continue };
            let power = point - count.cast_signed();
            same_as_core(&format!("{first}e{power}"));
            // The next one up.
            let next = first.parse::<u128>().unwrap() + 1;
            same_as_core(&format!("{next}e{power}"));
        }
    }

    /// The mean of two decimals of equal form, of more digits than its last needs.
    fn sum_halved(low: &str, high: &str) -> String {
        let width = low.len().max(high.len());
        let (low, high) = (format!("{low:0>width$}"), format!("{high:0>width$}"));
        let mut digits = std::vec::Vec::new();
        let mut carry = 0;
        for (a, b) in low.bytes().rev().zip(high.bytes().rev()) {
            if a == b'.' {
                digits.push(b'.');
                continue;
            }
            let sum = a - b'0' + b - b'0' + carry;
            digits.push(b'0' + sum % 10);
            carry = sum / 10;
        }
        digits.reverse();
        let mut rest = carry;
        for digit in digits.iter_mut().filter(|digit| **digit != b'.') {
            let twice = rest * 10 + *digit - b'0';
            *digit = b'0' + twice / 2;
            rest = twice % 2;
        }
        let text = String::from_utf8(digits).unwrap();
        let text = text.trim_start_matches('0');
        if text.starts_with('.') { format!("0{text}") } else { text.into() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn reads_what_core_reads(
            whole in "0|[1-9][0-9]{0,25}",
            fraction in "|\\.[0-9]{1,40}",
            exponent in prop_oneof![Just(0_i32), -30..30, -350..350],
            bits: u64,
            narrow: u32,
        ) {
            same_as_core(&format!("{whole}{fraction}e{exponent}"));
            for value in [f64::from_bits(bits), f64::from(f32::from_bits(narrow))] {
                if value.is_finite() {
                    same_as_core(&format!("{value:?}"));
                    same_as_core(&format!("{value:.17e}"));
                    same_as_core(&format!("{value:.8e}"));
                }
            }
        }
    }
}
