//! Floats in decimal: the shortest digits that read back equal, and of those the nearest.
//!
//! `core` does this fast and well, but with 20 KB of code and tables, and with panic paths. Where
//! that is too much, the method of Steele and White ("How to Print Floating-Point Numbers
//! Accurately", 1990) with long integers does: slow (some ten thousand cycles a number, more at the
//! ends of the range), exact, small. Both write the same text.

use crate::json::write::Writer;

/// The differences between the two float types. The value is `mantissa * 2^exponent`, its sign
/// apart.
struct Parts {
    negative: bool,
    mantissa: u64,
    exponent: i32,
    /// The neighbour below is half as far as the one above: the mantissa is the smallest of its
    /// binade.
    closer_below: bool,
}

/// Writes a finite `value`.
pub(super) fn write_f32(out: &mut Writer<'_>, value: f32) {
    let bits = value.to_bits();
    let parts = Parts::new(bits >> 31 != 0, u64::from(bits & 0x7F_FFFF), bits >> 23 & 0xFF, 23, 150);
    // 2^149, twice doubled, times ten, is below 2^160.
    write_parts::<5>(out, &parts);
}

/// Writes a finite `value`.
pub(super) fn write_f64(out: &mut Writer<'_>, value: f64) {
    let bits = value.to_bits();
    #[allow(clippy::cast_possible_truncation)]
    let exponent = (bits >> 52) as u32 & 0x7FF;
    let parts = Parts::new(bits >> 63 != 0, bits & 0xF_FFFF_FFFF_FFFF, exponent, 52, 1075);
    // 2^1074, twice doubled, times ten, is below 2^1088.
    write_parts::<34>(out, &parts);
}

impl Parts {
    #[inline]
    fn new(negative: bool, fraction: u64, exponent: u32, fraction_bits: u32, bias: i32) -> Self {
        // The numbers with the least exponent have no hidden bit, and the next exponent's scale.
        let hidden = u64::from(exponent != 0) << fraction_bits;
        Self {
            negative,
            mantissa: fraction | hidden,
            exponent: exponent.max(1).cast_signed().wrapping_sub(bias),
            closer_below: fraction == 0 && exponent > 1,
        }
    }
}

fn write_parts<const LIMBS: usize>(out: &mut Writer<'_>, parts: &Parts) {
    if parts.negative {
        out.byte(b'-');
    }
    if parts.mantissa == 0 {
        return out.raw(b"0.0");
    }
    let mut digits = [0; 17];
    let (count, point) = shortest::<LIMBS>(&mut digits, parts);
    place_point(out, digits.get(..count).unwrap_or_default(), point);
}

/// Writes `0.digits * 10^point`, with an exponent below 10^-4 and from 10^16, as `core` does.
fn place_point(out: &mut Writer<'_>, digits: &[u8], point: i32) {
    let zeros = |out: &mut Writer<'_>, count: usize| (0..count).for_each(|_| out.byte(b'0'));
    let places = point.unsigned_abs() as usize;
    match point {
        -3..=0 => {
            out.raw(b"0.");
            zeros(out, places);
            out.raw(digits);
        }
        1..=16 => match digits.split_at_checked(places) {
            Some((whole, fraction)) if !fraction.is_empty() => {
                out.raw(whole);
                out.byte(b'.');
                out.raw(fraction);
            }
            _ => {
                out.raw(digits);
                zeros(out, places.saturating_sub(digits.len()));
                out.raw(b".0");
            }
        },
        _ => {
            let (first, rest) = digits.split_at_checked(1).unwrap_or_default();
            out.raw(first);
            if !rest.is_empty() {
                out.byte(b'.');
                out.raw(rest);
            }
            out.byte(b'e');
            out.i32(point.wrapping_sub(1));
        }
    }
}

/// Fills `digits`, and returns how many there are and where the point is: the value is
/// `0.digits * 10^point`.
fn shortest<const LIMBS: usize>(digits: &mut [u8; 17], parts: &Parts) -> (usize, i32) {
    // All is scaled so that half the distance to the neighbour below is a whole number, `gap`.
    let (shift, upper_gaps) = if parts.closer_below { (2, 2) } else { (1, 1) };
    let exponent = parts.exponent.wrapping_sub(shift);
    // What lies half-way to a neighbour reads back as the even one of the two.
    let inclusive = parts.mantissa & 1 == 0;
    let exceeds = |left: &Big<LIMBS>, right: &Big<LIMBS>| if inclusive { left >= right } else { left > right };

    let mut value = Big::<LIMBS>::from(parts.mantissa << shift);
    let mut gap = Big::<LIMBS>::from(1);
    let mut unit = Big::<LIMBS>::from(1);
    if exponent.is_negative() {
        unit.double(exponent.unsigned_abs());
    } else {
        value.double(exponent.unsigned_abs());
        gap.double(exponent.unsigned_abs());
    }
    // The power of ten at or above the value, or the one below that: its logarithm is at most one
    // too low.
    let last = 63i32.wrapping_sub(parts.mantissa.leading_zeros().cast_signed()).wrapping_add(parts.exponent);
    #[allow(clippy::cast_possible_truncation)]
    let mut point = (i64::from(last).wrapping_mul(1_292_913_986) >> 32) as i32;
    if point.is_negative() {
        value.multiply_by_power_of_ten(point.unsigned_abs());
        gap.multiply_by_power_of_ten(point.unsigned_abs());
    } else {
        unit.multiply_by_power_of_ten(point.unsigned_abs());
    }
    while exceeds(&value.plus(&gap, upper_gaps), &unit) {
        unit.multiply(10);
        point = point.wrapping_add(1);
    }

    let mut count = 0usize;
    for slot in digits.iter_mut() {
        value.multiply(10);
        gap.multiply(10);
        *slot = b'0';
        while value.subtract(&unit) {
            *slot = slot.wrapping_add(1);
        }
        count = count.wrapping_add(1);
        let low = exceeds(&gap, &value);
        let high = exceeds(&value.plus(&gap, upper_gaps), &unit);
        if low || high {
            // A nine is never rounded up: it would become the number that was in reach, and taken,
            // one digit before.
            if high && (!low || value.plus(&value, 1) >= unit) {
                *slot = slot.wrapping_add(1);
            }
            break;
        }
    }
    (count, point)
}

/// A whole number, its highest 32 bits first, so that the order derived is the numbers' order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::json) struct Big<const LIMBS: usize>([u32; LIMBS]);

#[allow(clippy::cast_possible_truncation)]
impl<const LIMBS: usize> Big<LIMBS> {
    #[inline(never)]
    pub(in crate::json) fn from(value: u64) -> Self {
        let mut limbs = [0; LIMBS];
        let mut left = value;
        for limb in limbs.iter_mut().rev().take(2) {
            *limb = left as u32;
            left >>= 32;
        }
        Self(limbs)
    }

    #[inline(never)]
    pub(in crate::json) fn multiply(&mut self, factor: u32) {
        let mut carry = 0;
        for limb in self.0.iter_mut().rev() {
            let product = u64::from(*limb).wrapping_mul(u64::from(factor)).wrapping_add(carry);
            *limb = product as u32;
            carry = product >> 32;
        }
    }

    pub(in crate::json) fn double(&mut self, times: u32) {
        for _ in 0..times / 16 {
            self.multiply(1 << 16);
        }
        self.multiply(1 << (times % 16));
    }

    pub(in crate::json) fn multiply_by_power_of_ten(&mut self, power: u32) {
        for _ in 0..power / 8 {
            self.multiply(100_000_000);
        }
        for _ in 0..power % 8 {
            self.multiply(10);
        }
    }

    /// The sum with so many times `other`.
    #[inline(never)]
    fn plus(&self, other: &Self, times: u32) -> Self {
        let mut sum = self.clone();
        let mut carry = 0;
        for (limb, more) in sum.0.iter_mut().rev().zip(other.0.iter().rev()) {
            let total =
                u64::from(*more).wrapping_mul(u64::from(times)).wrapping_add(u64::from(*limb)).wrapping_add(carry);
            *limb = total as u32;
            carry = total >> 32;
        }
        sum
    }

    /// Subtracts `other` if it is not larger; returns whether it did.
    #[inline(never)]
    pub(in crate::json) fn subtract(&mut self, other: &Self) -> bool {
        if *self < *other {
            return false;
        }
        let mut borrow = false;
        for (limb, less) in self.0.iter_mut().rev().zip(other.0.iter().rev()) {
            let (difference, first) = limb.overflowing_sub(*less);
            let (difference, second) = difference.overflowing_sub(u32::from(borrow));
            *limb = difference;
            borrow = first | second;
        }
        true
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::String;

    fn written(write: impl Fn(&mut Writer<'_>)) -> String {
        let mut buffer = [0; 40];
        let mut out = Writer::new(&mut buffer);
        write(&mut out);
        String::from_utf8(out.finish().unwrap().to_vec()).unwrap()
    }

    fn same_as_core(wide: u64, narrow: u32) {
        let (wide, narrow) = (f64::from_bits(wide), f32::from_bits(narrow));
        if wide.is_finite() {
            assert_eq!(written(|out| write_f64(out, wide)), format!("{wide:?}"));
        }
        if narrow.is_finite() {
            assert_eq!(written(|out| write_f32(out, narrow)), format!("{narrow:?}"));
        }
    }

    #[test]
    fn the_ends_and_every_power_of_two_and_their_neighbours_are_as_core_has_them() {
        for exponent in 0..0x7FFu64 {
            for near in [-2i64, -1, 0, 1, 2] {
                let wide = (exponent << 52).wrapping_add_signed(near);
                let narrow = ((exponent & 0xFF) << 23).wrapping_add_signed(near) as u32;
                same_as_core(wide, narrow);
                same_as_core(wide | 1 << 63, narrow | 1 << 31);
            }
        }
        same_as_core(f64::MAX.to_bits(), f32::MAX.to_bits());
    }

    #[test]
    fn every_power_of_ten_and_its_neighbours_are_as_core_has_them() {
        for power in -330..310 {
            for digits in ["1", "9", "5", "3.3", "9.995", "9007199254740993"] {
                let text = format!("{digits}e{power}");
                let (wide, narrow) = (text.parse::<f64>().unwrap().to_bits(), text.parse::<f32>().unwrap().to_bits());
                for near in [-1, 0, 1] {
                    same_as_core(wide.wrapping_add_signed(near), narrow.wrapping_add_signed(near as i32));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_float_is_as_core_has_it(wide: u64, narrow: u32, whole: i32, thousandths in 0u16..1000) {
            same_as_core(wide, narrow);
            let common = f64::from(whole) + f64::from(thousandths) / 1000.0;
            same_as_core(common.to_bits(), (common as f32).to_bits());
        }
    }
}
