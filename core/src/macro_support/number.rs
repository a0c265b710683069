//! Numbers in attributes (bounds and defaults), compared in the type of the field.
#![allow(clippy::panic, reason = "in constants only, where a panic is an error of the compiler")]

use core::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize};

use super::decode::Rule;
use crate::json::Decimal;

/// A number in an attribute: a bound or a default.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Whole numbers, and the mantissas of decimals, in two's complement.
    whole: u128,
    float: f64,
}

/// The kind of a number type, with its range.
#[derive(Clone, Copy)]
pub enum NumberKind {
    Integer { minimum: i128, maximum: u128 },
    Decimal { places: u8 },
    Float { maximum: f64 },
}

impl NumberKind {
    /// Returns `rule` if this is a kind of integers; otherwise none.
    pub const fn if_integer(self, rule: Rule) -> Option<Rule> {
        if let Self::Integer { .. } = self { Some(rule) } else { None }
    }

    /// Returns `rule` if this is a kind of unsigned integers; otherwise none.
    pub const fn if_from_0(self, rule: Rule) -> Option<Rule> {
        if let Self::Integer { minimum: 0, .. } = self { Some(rule) } else { None }
    }
}

impl Limit {
    /// The number in `text`, which is a JSON number. `float` is the same number as the compiler
    /// reads it.
    ///
    /// # Panics
    /// If the type cannot hold the number. This is called in a constant, so that it is an error of
    /// the compiler.
    pub const fn new(text: &str, float: f64, kind: NumberKind) -> Self {
        let (places, minimum, maximum) = match kind {
            NumberKind::Integer { minimum, maximum } => (0, minimum, maximum),
            NumberKind::Decimal { places } => (places as i32, i32::MIN as i128, i32::MAX as u128),
            NumberKind::Float { maximum } => {
                assert!(float.abs() <= maximum, "the field's type cannot hold this number");
                return Self { whole: 0, float };
            }
        };
        let Some((negative, magnitude)) = scaled(text, places) else {
            panic!("the field's type cannot hold this number exactly");
        };
        // A minimum that is not negative is 0, or 1 for what is not zero.
        let fits = if negative && magnitude != 0 {
            minimum < 0 && magnitude <= minimum.unsigned_abs()
        } else {
            magnitude <= maximum && (minimum < 0 || magnitude >= minimum.unsigned_abs())
        };
        assert!(fits, "the field's type cannot hold this number");
        Self { whole: if negative { magnitude.wrapping_neg() } else { magnitude }, float }
    }

    /// Whether this number is less than or equal to `other`, compared in a type of this kind.
    pub const fn at_most(&self, other: &Self, kind: NumberKind) -> bool {
        match kind {
            NumberKind::Float { .. } => self.float <= other.float,
            NumberKind::Integer { minimum: 0.., .. } => self.whole <= other.whole,
            _ => self.whole.cast_signed() <= other.whole.cast_signed(),
        }
    }
}

/// A JSON number times ten to the power of `places`, if that is whole and has up to 38 digits.
const fn scaled(text: &str, places: i32) -> Option<(bool, u128)> {
    let (negative, mut rest) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (mut magnitude, mut scale) = (0u128, places);
    let mut behind_point = false;
    loop {
        rest = match rest {
            [digit @ b'0'..=b'9', tail @ ..] => {
                let Some(ten_times) = magnitude.checked_mul(10) else { return None };
                let Some(sum) = ten_times.checked_add((*digit - b'0') as u128) else { return None };
                magnitude = sum;
                scale -= behind_point as i32;
                tail
            }
            [b'.', tail @ ..] => {
                behind_point = true;
                tail
            }
            _ => break,
        };
    }
    if let [b'e' | b'E', tail @ ..] = rest {
        #[allow(clippy::match_same_arms, reason = "the plus sign is taken off")]
        let (down, mut rest) = match tail {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] | rest => (false, rest),
        };
        let mut exponent = 0i32;
        while let [digit @ b'0'..=b'9', tail @ ..] = rest {
            exponent = exponent.saturating_mul(10).saturating_add((*digit - b'0') as i32);
            rest = tail;
        }
        scale = scale.saturating_add(if down { -exponent } else { exponent });
    }
    while scale > 0 && magnitude != 0 {
        let Some(more) = magnitude.checked_mul(10) else { return None };
        magnitude = more;
        scale -= 1;
    }
    while scale < 0 && magnitude != 0 {
        if magnitude % 10 != 0 {
            return None;
        }
        magnitude /= 10;
        scale += 1;
    }
    Some((negative, magnitude))
}

/// A type that can have a minimum, a maximum and a number as its default.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number",
    label = "no minimum, maximum or number as default here",
    note = "numbers are the integers, `rigline::json::Decimal`, `f32`, `f64`, and an `Option` of these",
    note = "the default of another type can be written as an expression: `default = Type::new(1)`"
)]
pub trait Number: Sized {
    const KIND: NumberKind;

    fn is_below(&self, limit: Limit) -> bool;
    fn is_above(&self, limit: Limit) -> bool;
    fn from_limit(limit: Limit) -> Self;
}

/// Implements [`Number`]: for each type its kind, a limit as its value, its value, and the type
/// from a limit.
macro_rules! numbers {
    ($([$($generics:tt)*] $type:ty, $kind:expr, |$limit:ident| $bound:expr, |$self:ident| $value:expr, $from:expr;)*) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "Limit::new has checked the range")]
        impl<$($generics)*> Number for $type {
            const KIND: NumberKind = $kind;

            #[inline(always)]
            fn is_below(&$self, $limit: Limit) -> bool {
                $value < $bound
            }

            #[inline(always)]
            fn is_above(&$self, $limit: Limit) -> bool {
                $value > $bound
            }

            #[inline(always)]
            fn from_limit($limit: Limit) -> Self {
                $from
            }
        }
    )*};
}

macro_rules! integers {
    ($($type:ident)*) => {
        numbers! {$(
            [] $type, NumberKind::Integer { minimum: $type::MIN as i128, maximum: $type::MAX as u128 },
                |limit| limit.whole as $type, |self| *self, limit.whole as $type;
        )*}
    };
}

integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

macro_rules! non_zero {
    ($($type:ident $inner:ident)*) => {
        numbers! {$(
            [] $type, NumberKind::Integer { minimum: 1, maximum: $inner::MAX as u128 },
                |limit| limit.whole as $inner, |self| self.get(),
                Self::MIN.saturating_add((limit.whole as $inner).saturating_sub(1));
        )*}
    };
}

non_zero! { NonZeroU8 u8 NonZeroU16 u16 NonZeroU32 u32 NonZeroU64 u64 NonZeroU128 u128 NonZeroUsize usize }

numbers! {
    // A bound is rounded as a value is.
    [] f32, NumberKind::Float { maximum: f32::MAX as f64 }, |limit| limit.float as f32, |self| *self, limit.float as f32;
    [] f64, NumberKind::Float { maximum: f64::MAX }, |limit| limit.float, |self| *self, limit.float;
    [const PLACES: u8] Decimal<PLACES>, NumberKind::Decimal { places: PLACES },
        |limit| limit.whole as i32, |self| self.mantissa(), Self::from_mantissa(limit.whole as i32);
}

impl<T: Number> Number for Option<T> {
    const KIND: NumberKind = T::KIND;

    #[inline(always)]
    fn is_below(&self, limit: Limit) -> bool {
        self.as_ref().is_some_and(|value| value.is_below(limit))
    }

    #[inline(always)]
    fn is_above(&self, limit: Limit) -> bool {
        self.as_ref().is_some_and(|value| value.is_above(limit))
    }

    #[inline(always)]
    fn from_limit(limit: Limit) -> Self {
        Some(T::from_limit(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::panic::catch_unwind;

    #[test]
    fn a_number_in_an_attribute_is_exact() {
        let most = u128::MAX;
        for (text, places, expected) in [
            ("0", 0, Some((false, 0))),
            ("-0", 0, Some((true, 0))),
            ("12", 0, Some((false, 12))),
            ("-12", 0, Some((true, 12))),
            ("1.5", 0, None),
            ("1.5", 1, Some((false, 15))),
            ("-1.50", 1, Some((true, 15))),
            ("1.05", 2, Some((false, 105))),
            ("1.05", 1, None),
            ("0.001", 3, Some((false, 1))),
            ("7", 9, Some((false, 7_000_000_000))),
            ("30", 0, Some((false, 30))),
            ("1.5e1", 0, Some((false, 15))),
            ("1.5E+1", 0, Some((false, 15))),
            ("15e-1", 1, Some((false, 15))),
            ("150e-1", 0, Some((false, 15))),
            ("1500e-2", 0, Some((false, 15))),
            ("151e-1", 0, None),
            ("25e-12", 12, Some((false, 25))),
            ("1e12", 0, Some((false, 1_000_000_000_000))),
            ("1e38", 0, Some((false, 10u128.pow(38)))),
            ("1e39", 0, None),
            ("1e4294967296", 0, None),
            ("1e-4294967296", 0, None),
            ("0e4294967296", 0, Some((false, 0))),
            ("0.0e-4294967296", 0, Some((false, 0))),
            (&format!("{most}"), 0, Some((false, most))),
            (&format!("{most}0e-1"), 0, None),
            ("340282366920938463463374607431768211456", 0, None),
        ] {
            assert_eq!(scaled(text, places), expected, "{text} with {places} places");
        }
    }

    #[test]
    fn a_number_that_the_type_cannot_hold_is_refused() {
        const U8: NumberKind = <u8 as Number>::KIND;
        const I8: NumberKind = <i8 as Number>::KIND;
        const NON_ZERO: NumberKind = <NonZeroU8 as Number>::KIND;
        const DECIMAL: NumberKind = <Decimal<3> as Number>::KIND;
        const SINGLE: NumberKind = <f32 as Number>::KIND;
        for (kind, good, bad) in [
            (U8, &["0", "-0", "255", "2.55e2"][..], &["-1", "256", "0.5"][..]),
            (I8, &["-128", "-1", "0", "127"], &["-129", "128", "-0.5"]),
            (NON_ZERO, &["1", "255"], &["0", "-0", "-1", "256"]),
            (<u128 as Number>::KIND, &["340282366920938463463374607431768211455"], &["-1"]),
            (
                <i128 as Number>::KIND,
                &["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"],
                &["-170141183460469231731687303715884105729", "170141183460469231731687303715884105728"],
            ),
            (DECIMAL, &["-2147483.648", "2147483.647"], &["-2147483.649", "2147483.648", "0.0005"]),
            (SINGLE, &["3.4e38", "-3.4e38", "1e-50"], &["3.5e38", "-3.5e38"]),
        ] {
            let holds = |text: &str| catch_unwind(|| Limit::new(text, text.parse().unwrap(), kind)).is_ok();
            for text in good {
                assert!(holds(text), "{text}");
            }
            for text in bad {
                assert!(!holds(text), "{text}");
            }
        }
    }

    /// The derive refuses a minimum above the maximum by this.
    #[test]
    fn numbers_in_attributes_are_compared_in_the_type_of_the_field() {
        for (kind, rising) in [
            (<u8 as Number>::KIND, &["0", "1", "2e1", "255"][..]),
            (
                <u128 as Number>::KIND,
                &["0", "170141183460469231731687303715884105727", "340282366920938463463374607431768211455"],
            ),
            (<i8 as Number>::KIND, &["-128", "-1", "0", "1", "127"]),
            (<Decimal<3> as Number>::KIND, &["-2147483.648", "-0.001", "0", "0.001", "2147483.647"]),
            (<f64 as Number>::KIND, &["-1e300", "-0.5", "0", "0.25", "1e300"]),
        ] {
            let limit = |text: &str| Limit::new(text, text.parse().unwrap(), kind);
            for (at, one) in rising.iter().enumerate() {
                for (place, other) in rising.iter().enumerate() {
                    assert_eq!(limit(one).at_most(&limit(other), kind), at <= place, "{one} {other}");
                }
            }
        }
    }

    #[test]
    fn bounds_replace_the_types_own_in_errors_about_integers() {
        const RULE: Rule = &["an integer from 0 to 9"];
        for (kind, is_integer, is_unsigned) in [
            (<u8 as Number>::KIND, true, true),
            (<i8 as Number>::KIND, true, false),
            (<NonZeroU8 as Number>::KIND, true, false),
            (<Decimal<3> as Number>::KIND, false, false),
            (<f32 as Number>::KIND, false, false),
        ] {
            assert_eq!(kind.if_integer(RULE), is_integer.then_some(RULE));
            assert_eq!(kind.if_from_0(RULE), is_unsigned.then_some(RULE));
        }
    }
}
