//! JSON numbers as exact integers, without floating-point code.
//!
//! JSON Schema calls `1.0`, `1e3` and `10e-1` integers (Draft 2020-12, validation §6.1.1: "any
//! number with a zero fractional part"). They are accepted where an integer is expected, without
//! rounding, and the digits and the exponent may be of any length. A number with a fraction and a
//! number that does not fit are different errors.
//!
//! ```
//! use rigline::json::{Digits, NumberError};
//!
//! let number = |text: &'static str| Digits::new(text.as_bytes()).unwrap();
//! assert_eq!(number("1.50e2").to_u32(), Ok(150));
//! assert_eq!(number("1000000000000000000000e-18").to_i64(), Ok(1000));
//! assert_eq!(number("0e999999999999").to_u64(), Ok(0));
//! assert_eq!(number("2.5").to_u64(), Err(NumberError::NotInteger));
//! assert_eq!(number("1e999999999999").to_u128(), Err(NumberError::OutOfRange));
//! ```

use core::fmt;

/// The reason why a number is not the integer that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NumberError {
    /// The number has a fractional part.
    NotInteger,
    /// The number is an integer that the type cannot hold.
    OutOfRange,
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotInteger => "the number is not an integer",
            Self::OutOfRange => "the number is out of range",
        })
    }
}

impl core::error::Error for NumberError {}

/// A JSON number (RFC 8259 §6) in its parts: the sign, the digits before and after the point, and a
/// power of ten.
#[derive(Clone, Copy, Debug)]
pub struct Digits<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: isize,
    plain: bool,
}

/// An exponent beyond this is kept as this. No text has so many digits that they could make up for
/// it: a slice of a quarter of the address space does not fit beside the program.
const EXPONENT_LIMIT: isize = isize::MAX / 4;

impl<'a> Digits<'a> {
    /// Splits the text of exactly one number, without white space around it, into its parts.
    /// Returns `None` if the text is not a number.
    ///
    /// ```text
    /// number = [ minus ] int [ frac ] [ exp ]        ; RFC 8259 §6
    /// int    = zero / ( digit1-9 *DIGIT )
    /// frac   = decimal-point 1*DIGIT
    /// exp    = e [ minus / plus ] 1*DIGIT
    /// ```
    pub fn new(text: &'a [u8]) -> Option<Self> {
        let (negative, text) = strip(text, b'-');
        let (whole, mut rest) = digits(text);
        match whole {
            [] | [b'0', _, ..] => return None,
            _ => {}
        }
        let plain = rest.is_empty();
        let mut fraction: &[u8] = &[];
        if let (true, after) = strip(rest, b'.') {
            (fraction, rest) = digits(after);
            if fraction.is_empty() {
                return None;
            }
        }
        let mut exponent = 0;
        if let [b'e' | b'E', after @ ..] = rest {
            let (down, after) = strip(after, b'-');
            let after = if down { after } else { strip(after, b'+').1 };
            let power;
            (power, rest) = digits(after);
            if power.is_empty() {
                return None;
            }
            for &digit in power {
                if exponent < EXPONENT_LIMIT / 16 {
                    exponent = exponent * 10 + isize::from(digit & 0x0f);
                } else {
                    exponent = EXPONENT_LIMIT;
                }
            }
            if down {
                exponent = -exponent;
            }
        }
        rest.is_empty().then_some(Self { negative, whole, fraction, exponent, plain })
    }

    /// The number times ten to the power of `places`.
    #[must_use]
    pub fn shifted(self, places: u8) -> Self {
        Self { exponent: self.exponent.saturating_add(isize::from(places)), ..self }
    }

    /// Whether the number has a minus sign, also if it is `-0`.
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    pub(crate) const ZERO: Self = Self { negative: false, whole: b"0", fraction: b"", exponent: 0, plain: true };

    /// Whether the number is an integer, of whatever size.
    pub(crate) fn is_integer(&self) -> bool {
        self.significant().is_ok()
    }

    /// Whether the number is written as an integer, with neither a decimal point nor an exponent.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The value as a `u32`. It is an error if the number has a fraction or is out of range.
    pub fn to_u32(&self) -> Result<u32, NumberError> {
        self.within(0, u32::MAX)
    }

    /// The value as an `i32`. It is an error if the number has a fraction or is out of range.
    pub fn to_i32(&self) -> Result<i32, NumberError> {
        self.within(1 << 31, i32::MAX.cast_unsigned()).map(u32::cast_signed)
    }

    /// The value as a `u64`. It is an error if the number has a fraction or is out of range.
    pub fn to_u64(&self) -> Result<u64, NumberError> {
        signed(self.negative, self.magnitude_u64()?, 0, u64::MAX)
    }

    /// The value as an `i64`. It is an error if the number has a fraction or is out of range.
    pub fn to_i64(&self) -> Result<i64, NumberError> {
        signed(self.negative, self.magnitude_u64()?, 1 << 63, u64::MAX >> 1).map(u64::cast_signed)
    }

    /// The value as a `u128`. It is an error if the number has a fraction or is out of range.
    pub fn to_u128(&self) -> Result<u128, NumberError> {
        let magnitude = self.magnitude_u128()?;
        if self.negative && magnitude != 0 { Err(NumberError::OutOfRange) } else { Ok(magnitude) }
    }

    /// The value as an `i128`. It is an error if the number has a fraction or is out of range.
    pub fn to_i128(&self) -> Result<i128, NumberError> {
        let magnitude = self.magnitude_u128()?;
        if magnitude <= (u128::MAX >> 1) + u128::from(self.negative) {
            Ok((if self.negative { magnitude.wrapping_neg() } else { magnitude }).cast_signed())
        } else {
            Err(NumberError::OutOfRange)
        }
    }

    /// The value in two's complement, if it lies from `-below` to `above`: every integer type of up
    /// to 32 bits, in 32-bit arithmetic.
    pub(crate) fn within(&self, below: u32, above: u32) -> Result<u32, NumberError> {
        let magnitude = self.magnitude_u32()?;
        if magnitude > if self.negative { below } else { above } {
            return Err(NumberError::OutOfRange);
        }
        Ok(if self.negative { magnitude.wrapping_neg() } else { magnitude })
    }

    /// The digits in front of the point and behind it from the first that is not 0, and the power of ten that `0.` and these
    /// are to be multiplied by.
    pub(crate) fn scientific(&self) -> (&'a [u8], &'a [u8], isize) {
        let (mut whole, mut fraction, mut point) = (self.whole, self.fraction, self.exponent);
        while let [b'0', tail @ ..] = whole {
            whole = tail;
        }
        if whole.is_empty() {
            while let [b'0', tail @ ..] = fraction {
                fraction = tail;
                point = point.saturating_sub(1);
            }
        }
        (whole, fraction, point.saturating_add_unsigned(whole.len()))
    }

    /// The significant digits, in front of the point and behind it, and how many zeros follow them.
    fn significant(&self) -> Result<(&'a [u8], &'a [u8], usize), NumberError> {
        let (mut whole, mut fraction) = (self.whole, self.fraction);
        // Leading zeros: `0.05` has the digit 5 only.
        while let [b'0', tail @ ..] = whole {
            whole = tail;
        }
        let mut scale = self.exponent.saturating_sub_unsigned(fraction.len());
        if whole.is_empty() {
            while let [b'0', tail @ ..] = fraction {
                fraction = tail;
            }
        }
        // Trailing zeros: `1.50` has the digits 15, and so has `1500`.
        while let [head @ .., b'0'] = fraction {
            fraction = head;
            scale = scale.saturating_add(1);
        }
        if fraction.is_empty() {
            while let [head @ .., b'0'] = whole {
                whole = head;
                scale = scale.saturating_add(1);
            }
            if whole.is_empty() {
                return Ok((&[], &[], 0));
            }
        }
        match usize::try_from(scale) {
            Ok(zeros) => Ok((whole, fraction, zeros)),
            Err(_) => Err(NumberError::NotInteger),
        }
    }
}

/// The absolute value, by Horner's rule. The bound is compared before each step: `checked_mul` is a
/// call of the double width on a Cortex-M0+.
macro_rules! magnitude {
    ($($name:ident: $uint:ident),*) => {
        impl Digits<'_> {
            $(fn $name(&self) -> Result<$uint, NumberError> {
                fn push(value: $uint, digit: u8) -> Result<$uint, NumberError> {
                    if value > $uint::MAX / 10 {
                        return Err(NumberError::OutOfRange);
                    }
                    value.wrapping_mul(10).checked_add($uint::from(digit & 0x0f)).ok_or(NumberError::OutOfRange)
                }
                let (whole, fraction, zeros) = self.significant()?;
                let mut value = 0;
                for &digit in whole {
                    value = push(value, digit)?;
                }
                for &digit in fraction {
                    value = push(value, digit)?;
                }
                // Ends early: a value that is not 0 overflows within 39 steps.
                for _ in 0..zeros {
                    value = push(value, 0)?;
                }
                Ok(value)
            })*
        }
    };
}
magnitude!(magnitude_u32: u32, magnitude_u64: u64, magnitude_u128: u128);

fn signed(negative: bool, magnitude: u64, below: u64, above: u64) -> Result<u64, NumberError> {
    if magnitude > if negative { below } else { above } {
        return Err(NumberError::OutOfRange);
    }
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

fn strip(text: &[u8], byte: u8) -> (bool, &[u8]) {
    match text {
        [first, rest @ ..] if *first == byte => (true, rest),
        _ => (false, text),
    }
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at_checked(length).unwrap_or((text, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use NumberError::{NotInteger, OutOfRange};
    use std::{format, string::String, string::ToString};

    fn number(text: &str) -> Digits<'_> {
        Digits::new(text.as_bytes()).unwrap_or_else(|| panic!("{text} is a number"))
    }

    #[test]
    fn integers_are_exact_however_they_are_spelt() {
        let zeros = "0".repeat(5000);
        for (text, value) in [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("-0.000e-77", Ok(0)),
            ("0e999999999999999999999", Ok(0)),
            ("0e-999999999999999999999", Ok(0)),
            ("1.0", Ok(1)),
            ("1e3", Ok(1000)),
            ("1E+3", Ok(1000)),
            ("10e-1", Ok(1)),
            ("1.50e2", Ok(150)),
            ("-1.50e2", Ok(-150)),
            ("0.005e3", Ok(5)),
            ("100200e-2", Ok(1002)),
            ("1000000000000000000000e-18", Ok(1000)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("-9223372036854775808.000", Ok(i64::MIN)),
            ("9223372036854775808", Err(OutOfRange)),
            ("-9223372036854775809", Err(OutOfRange)),
            ("1e999999999999", Err(OutOfRange)),
            ("1e-999999999999", Err(NotInteger)),
            ("1.5", Err(NotInteger)),
            ("15e-1", Err(NotInteger)),
            ("0.1", Err(NotInteger)),
            ("99999999999999999999999999.5", Err(NotInteger)),
        ] {
            assert_eq!(number(text).to_i64(), value, "{text}");
        }
        assert_eq!(number(&format!("1{zeros}e-5000")).to_u32(), Ok(1));
        assert_eq!(number(&format!("0.{zeros}1e5001")).to_u32(), Ok(1));
        assert_eq!(number(&format!("1.{zeros}")).to_u32(), Ok(1));
        assert_eq!(number(&format!("1.{zeros}1")).to_u32(), Err(NotInteger));
    }

    #[test]
    fn only_numbers_are_numbers() {
        for text in [
            "", "-", "+1", "01", "-01", "00", ".5", "1.", "1.e2", "1e", "1e+", "1ee2", "1 ", " 1", "0x1", "1.2.3",
            "inf", "1e2.5",
        ] {
            assert!(Digits::new(text.as_bytes()).is_none(), "{text}");
        }
    }

    macro_rules! bounds {
        ($($method:ident: $int:ident),*) => {$(
            // Each bound is taken in several spellings; one beyond it is not.
            for bound in [$int::MIN, $int::MAX] {
                for spelling in spellings(&bound.to_string()) {
                    assert_eq!(number(&spelling).$method(), Ok(bound), "{spelling}");
                }
            }
            for beyond in [next(&$int::MAX.to_string()), next(&format!("-{}", $int::MIN.to_string().trim_start_matches('-')))] {
                assert_eq!(number(&beyond).$method(), Err(OutOfRange), "{beyond}");
            }
        )*};
    }

    fn spellings(text: &str) -> [String; 4] {
        let (head, tail) = text.split_at(text.len() - 1);
        // The point one to the left: `25.5e1`.
        let moved = if matches!(head, "" | "-") { format!("{text}e0") } else { format!("{head}.{tail}00E+1") };
        [text.into(), format!("{text}.00"), moved, format!("{text}.0e-0")]
    }

    /// The number one further from 0. (No bound ends in 9.)
    fn next(text: &str) -> String {
        let (head, last) = text.split_at(text.len() - 1);
        format!("{head}{}", last.parse::<u8>().unwrap() + 1)
    }

    #[test]
    fn every_width_ends_exactly_at_its_bounds() {
        bounds!(to_u32: u32, to_i32: i32, to_u64: u64, to_i64: i64, to_u128: u128, to_i128: i128);
    }
}
