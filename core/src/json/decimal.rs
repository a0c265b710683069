//! Fixed-point decimal numbers, for volts and amperes without floating-point code.

use super::number::Digits;
use super::text::{NUMBER_TOKEN, RAW_TOKEN};
use super::write::div10_u32;
use core::{fmt, str::FromStr};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

/// A decimal number with exactly `PLACES` digits after the point (0 to 9). It is kept as an `i32`
/// in units of the last place: with three places, 3.3 V is 3300 mV.
///
/// It is read from any JSON number of that value (`3.3`, `3.300`, `33e-1`). A number that would
/// have to be rounded is an error. It is written with all places: `3.300`.
///
/// ```
/// use rigline::json::{de::from_checked, Decimal};
///
/// let volts: Decimal<3> = from_checked(&mut *b"33e-1".to_vec())?;
/// assert_eq!(volts.mantissa(), 3300);
/// assert_eq!(volts.to_string(), "3.300");
/// assert_eq!(Decimal::<3>::from_mantissa(-5).to_string(), "-0.005");
///
/// let error = from_checked::<Decimal<3>>(&mut *b"0.0001".to_vec()).unwrap_err();
/// assert_eq!(error.to_string(), "expected a number from -2147483.648 to 2147483.647 with at most 3 decimals");
/// # Ok::<(), rigline::json::de::DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal<const PLACES: u8>(i32);

/// The error for a text that is not a JSON number, or for a number that the [`Decimal`] cannot hold
/// exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimalError(());

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text is not a decimal number, or has too many digits")
    }
}

impl core::error::Error for DecimalError {}

impl<const PLACES: u8> Decimal<PLACES> {
    /// The smallest number of this type.
    pub const MIN: Self = Self(i32::MIN);
    /// The largest number of this type.
    pub const MAX: Self = Self(i32::MAX);
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// How many units of the last place make 1. More than nine places do not compile.
    const UNIT: u32 = {
        assert!(PLACES <= 9, "a Decimal has at most 9 places");
        10u32.pow(PLACES as u32)
    };

    const EXPECTED: &'static [&'static str] = &[match PLACES {
        0 => "an integer from -2147483648 to 2147483647",
        1 => "a number from -214748364.8 to 214748364.7 with at most 1 decimal",
        2 => "a number from -21474836.48 to 21474836.47 with at most 2 decimals",
        3 => "a number from -2147483.648 to 2147483.647 with at most 3 decimals",
        4 => "a number from -214748.3648 to 214748.3647 with at most 4 decimals",
        5 => "a number from -21474.83648 to 21474.83647 with at most 5 decimals",
        6 => "a number from -2147.483648 to 2147.483647 with at most 6 decimals",
        7 => "a number from -214.7483648 to 214.7483647 with at most 7 decimals",
        8 => "a number from -21.47483648 to 21.47483647 with at most 8 decimals",
        _ => "a number from -2.147483648 to 2.147483647 with at most 9 decimals",
    }];

    /// The number with this many units of the last place: with three places, 3300 is 3.300.
    pub const fn from_mantissa(mantissa: i32) -> Self {
        Self(mantissa)
    }

    /// The number in units of the last place: with three places, 3.300 is 3300.
    pub const fn mantissa(self) -> i32 {
        self.0
    }

    /// Parses the text of a JSON number.
    ///
    /// # Errors
    /// The text is not a JSON number, or the number is too large or has too many digits after the
    /// point.
    pub fn parse(text: &[u8]) -> Result<Self, DecimalError> {
        let digits = Digits::new(text).ok_or(DecimalError(()))?;
        digits.shifted(PLACES).to_i32().map(Self).map_err(|_| DecimalError(()))
    }

    /// The sum of both numbers, or none if it overflows.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The difference of both numbers, or none if it overflows.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// The number times an integer, or none if it overflows.
    #[must_use]
    pub const fn checked_mul(self, factor: i32) -> Option<Self> {
        match self.0.checked_mul(factor) {
            Some(product) => Some(Self(product)),
            None => None,
        }
    }

    /// The absolute value. For [`MIN`](Self::MIN) it is [`MAX`](Self::MAX).
    #[must_use]
    pub const fn saturating_abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// The text, for a serializer. A buffer of 12 bytes holds a sign, ten digits and a point.
    fn text(self, buffer: &mut [u8; 12]) -> &str {
        let mut magnitude = self.0.unsigned_abs();
        let mut length = 0u8;
        let mut start = buffer.len();
        let mut put = |byte: u8| {
            start = start.saturating_sub(1);
            if let Some(place) = buffer.get_mut(start) {
                *place = byte;
            }
        };
        while magnitude != 0 || length <= PLACES {
            if length == PLACES && PLACES != 0 {
                put(b'.');
            }
            let (rest, digit) = div10_u32(magnitude);
            put(b'0' | digit);
            magnitude = rest;
            length += 1;
        }
        if self.0 < 0 {
            put(b'-');
        }
        buffer.get(start..).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
    }
}

impl<const PLACES: u8> fmt::Display for Decimal<PLACES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text(&mut [0; 12]))
    }
}

impl<const PLACES: u8> FromStr for Decimal<PLACES> {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        Self::parse(text.as_bytes())
    }
}

/// Serializes as a JSON number by this crate's serializer, as a string by other human-readable
/// ones, and as the mantissa by binary ones.
impl<const PLACES: u8> Serialize for Decimal<PLACES> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_newtype_struct(RAW_TOKEN, self.text(&mut [0; 12]))
        } else {
            serializer.serialize_i32(self.0)
        }
    }
}

/// Deserializes a JSON number by this crate's deserializer. By others, it accepts a number (a float
/// is rounded) or a string.
impl<'de, const PLACES: u8> Deserialize<'de> for Decimal<PLACES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_newtype_struct(NUMBER_TOKEN, Number::<PLACES>)
        } else {
            i32::deserialize(deserializer).map(Self)
        }
    }
}

struct Number<const PLACES: u8>;

impl<const PLACES: u8> Number<PLACES> {
    fn refuse<T, E: de::Error>() -> Result<T, E> {
        Err(super::de::expected(Decimal::<PLACES>::EXPECTED))
    }
}

impl<'de, const PLACES: u8> Visitor<'de> for Number<PLACES> {
    type Value = Decimal<PLACES>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Decimal::<PLACES>::EXPECTED.iter().try_for_each(|text| f.write_str(text))
    }

    /// The text of a value, from this crate's deserializer.
    fn visit_bytes<E: de::Error>(self, text: &[u8]) -> Result<Self::Value, E> {
        Decimal::parse(text).or_else(|_| Self::refuse())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        self.visit_bytes(text.as_bytes())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        let mantissa =
            value.checked_mul(i64::from(Decimal::<PLACES>::UNIT)).and_then(|value| i32::try_from(value).ok());
        mantissa.map_or_else(Self::refuse, |mantissa| Ok(Decimal(mantissa)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        i64::try_from(value).map_or_else(|_| Self::refuse(), |value| self.visit_i64(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        let scaled = value * f64::from(Decimal::<PLACES>::UNIT);
        // Rounded half away from zero; `f64::round` needs std.
        let rounded = scaled + 0.5_f64.copysign(scaled);
        if rounded > f64::from(i32::MIN) - 1.0 && rounded < f64::from(i32::MAX) + 1.0 {
            #[allow(clippy::cast_possible_truncation)] // Within the range, and cut off towards zero as meant.
            Ok(Decimal(rounded as i32))
        } else {
            Self::refuse()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::de::from_checked;
    use std::{format, string::ToString, vec::Vec};

    fn read<const PLACES: u8>(text: &str) -> Option<i32> {
        let parsed = Decimal::<PLACES>::parse(text.as_bytes()).ok();
        let mut bytes = Vec::from(text);
        assert_eq!(from_checked::<Decimal<PLACES>>(&mut bytes).ok(), parsed, "{text}");
        parsed.map(Decimal::mantissa)
    }

    #[test]
    fn any_spelling_of_an_exact_value_is_read() {
        for (text, mantissa) in [
            ("3.3", Some(3300)),
            ("3.300", Some(3300)),
            ("3.3000000000000000000000", Some(3300)),
            ("33e-1", Some(3300)),
            ("0.0033E3", Some(3300)),
            ("-0.005", Some(-5)),
            ("-0", Some(0)),
            ("0e9999999999999999999", Some(0)),
            ("7", Some(7000)),
            ("2147483.647", Some(i32::MAX)),
            ("-2147483.648", Some(i32::MIN)),
            ("2147483.648", None),
            ("-2147483.649", None),
            ("3.3001", None),
            ("1e-4", None),
            ("1e999999999999", None),
            ("01", None),
            ("\"3.3\"", None),
            ("null", None),
            ("true", None),
            ("[3]", None),
        ] {
            assert_eq!(read::<3>(text), mantissa, "{text}");
        }
        assert_eq!(read::<0>("1e3"), Some(1000));
        assert_eq!(read::<0>("0.1"), None);
        assert_eq!(read::<9>("-2.147483648"), Some(i32::MIN));
    }

    #[test]
    fn every_place_is_printed() {
        fn text<const PLACES: u8>(mantissa: i32) -> std::string::String {
            Decimal::<PLACES>::from_mantissa(mantissa).to_string()
        }
        for (printed, expected) in [
            (text::<3>(3300), "3.300"),
            (text::<3>(-5), "-0.005"),
            (text::<3>(0), "0.000"),
            (text::<3>(i32::MIN), "-2147483.648"),
            (text::<0>(i32::MIN), "-2147483648"),
            (text::<0>(0), "0"),
            (text::<0>(10), "10"),
            (text::<1>(10), "1.0"),
            (text::<9>(i32::MIN), "-2.147483648"),
            (text::<9>(7), "0.000000007"),
        ] {
            assert_eq!(printed, expected);
        }
        assert_eq!(format!("{:>8}|", Decimal::<1>::from_mantissa(15)), "     1.5|");
    }

    #[test]
    fn other_formats_work_too() {
        let value = Decimal::<3>::from_mantissa(-3300);
        assert_eq!(serde_json::to_string(&value).unwrap(), "\"-3.300\"");
        for text in ["\"-3.300\"", "-3.3", "-3.3001", "-3.2999"] {
            assert_eq!(serde_json::from_str::<Decimal<3>>(text).unwrap(), value, "{text}");
        }
        for text in ["1e300", "-1e300", "2147483.6476", "9223372036854775807", "18446744073709551615", "\"x\"", "null"]
        {
            assert!(serde_json::from_str::<Decimal<3>>(text).is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<Decimal<3>>("-2147483.648").unwrap(), Decimal::MIN);
    }

    #[test]
    fn a_float_is_rounded_to_the_nearest_half_away_from_zero_up_to_the_bounds() {
        for (text, mantissa) in [
            ("0.0", Some(0)),
            ("-0.0", Some(0)),
            ("0.4", Some(0)),
            ("-0.4", Some(0)),
            ("0.5", Some(1)),
            ("-0.5", Some(-1)),
            ("1.5", Some(2)),
            ("-2.5", Some(-3)),
            ("2147483647.0", Some(i32::MAX)),
            ("2147483647.25", Some(i32::MAX)),
            ("2147483647.5", None),
            ("-2147483648.0", Some(i32::MIN)),
            ("-2147483648.25", Some(i32::MIN)),
            ("-2147483648.5", None),
        ] {
            assert_eq!(serde_json::from_str::<Decimal<0>>(text).ok().map(Decimal::mantissa), mantissa, "{text}");
        }
    }

    #[test]
    fn each_type_names_its_bounds_and_its_places() {
        fn named<const PLACES: u8>() {
            let numbers = if PLACES == 0 { "an integer" } else { "a number" };
            let places = match PLACES {
                0 => std::string::String::new(),
                1 => " with at most 1 decimal".into(),
                _ => format!(" with at most {PLACES} decimals"),
            };
            let (least, most) = (Decimal::<PLACES>::MIN, Decimal::<PLACES>::MAX);
            let expected = format!("{numbers} from {least} to {most}{places}");
            let error = from_checked::<Decimal<PLACES>>(&mut b"1e10".to_vec()).unwrap_err();
            assert_eq!(error.to_string(), format!("expected {expected}"));
            let error = serde_json::from_str::<Decimal<PLACES>>("true").unwrap_err().to_string();
            assert!(error.contains(&format!("expected {expected}")), "{error}");
        }
        named::<0>();
        named::<1>();
        named::<2>();
        named::<3>();
        named::<4>();
        named::<5>();
        named::<6>();
        named::<7>();
        named::<8>();
        named::<9>();
    }

    #[test]
    fn sums_that_do_not_fit_are_none() {
        let one = Decimal::<2>::from_mantissa(1);
        assert_eq!(Decimal::MAX.checked_add(one), None);
        assert_eq!(Decimal::MIN.checked_sub(one), None);
        assert_eq!(one.checked_mul(5).map(Decimal::mantissa), Some(5));
        assert!(Decimal::<2>::MIN < Decimal::ZERO && Decimal::<2>::MIN.saturating_abs() == Decimal::MAX);
    }
}
