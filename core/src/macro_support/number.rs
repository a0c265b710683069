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
        let fits = if negative {
            magnitude <= minimum.unsigned_abs() && (minimum < 0 || magnitude == 0)
        } else {
            magnitude <= maximum
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
            if exponent < 10_000 {
                exponent = exponent * 10 + (*digit - b'0') as i32;
            }
            rest = tail;
        }
        scale += if down { -exponent } else { exponent };
    }
    while magnitude != 0 && scale != 0 {
        if scale > 0 {
            let Some(more) = magnitude.checked_mul(10) else { return None };
            magnitude = more;
            scale -= 1;
        } else {
            if magnitude % 10 != 0 {
                return None;
            }
            magnitude /= 10;
            scale += 1;
        }
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
