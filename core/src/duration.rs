//! Go's durations, read as `time.ParseDuration` reads them, and printed as `Duration.String` prints
//! them.
//!
//! The gevals host is a Go program, and its durations (`context.timeout`) have Go's form:
//!
//! ```
//! use rigline::{GoDuration, ParseDurationError};
//!
//! let timeout: GoDuration = "1m30.5s".parse()?;
//! assert_eq!(timeout.as_nanos(), 90_500_000_000);
//! assert_eq!(GoDuration::parse("90500ms")?.to_string(), "1m30.5s");
//! assert_eq!(core::time::Duration::try_from(timeout), Ok(core::time::Duration::from_millis(90_500)));
//! assert_eq!(GoDuration::parse("30"), Err(ParseDurationError::MissingUnit));
//! # Ok::<(), ParseDurationError>(())
//! ```

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A signed time span in nanoseconds, as Go's `time.Duration`. The range is about 292 years in both
/// directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(i64);

/// The reason why a text is not a Go duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseDurationError {
    /// The text is empty.
    Empty,
    /// A number has no unit. Only a single `0` needs none.
    MissingUnit,
    /// A unit is none of `ns`, `us`, `µs`, `ms`, `s`, `m`, `h`.
    UnknownUnit,
    /// The duration is too long for 64 bits of nanoseconds.
    Overflow,
    /// A number is missing, as in `s`, `-` or `1m s`.
    Invalid,
}

/// The reason why a duration cannot be converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConvertDurationError {
    /// The duration is negative, and a [`core::time::Duration`] cannot be.
    Negative,
    /// The duration is longer than a [`GoDuration`] can be: 2,562,047 h 47 min 16.854775807 s.
    TooLong,
}

impl GoDuration {
    /// The duration of zero.
    pub const ZERO: Self = Self(0);

    /// A span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Parses a duration of the form `[-+]?([0-9]*(\.[0-9]*)?[a-z]+)+`: numbers with units (`ns`,
    /// `us` or `µs` with either of Unicode's two letters, `ms`, `s`, `m`, `h`). `0` needs no unit.
    ///
    /// It accepts and refuses the texts that Go's `time.ParseDuration` does, with the same
    /// nanoseconds: a fraction is rounded as Go's 64-bit floating point does, then cut to whole
    /// nanoseconds. There is one exception: for twice 2^63 ns, where Go's sum wraps to zero, this
    /// function returns [`Overflow`](ParseDurationError::Overflow).
    pub fn parse(text: &str) -> Result<Self, ParseDurationError> {
        Self::parse_bytes(text.as_bytes())
    }

    /// [`parse`](Self::parse) for bytes that may not be UTF-8, which are then an error.
    pub(crate) fn parse_bytes(bytes: &[u8]) -> Result<Self, ParseDurationError> {
        let (negative, mut rest) = match bytes {
            [] => return Err(ParseDurationError::Empty),
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, bytes),
        };
        match rest {
            [] => return Err(ParseDurationError::Invalid),
            b"0" => return Ok(Self::ZERO),
            _ => {}
        }
        let mut total = 0_u64;
        while !rest.is_empty() {
            let nanos;
            (nanos, rest) = component(rest)?;
            total = total.checked_add(nanos).filter(|&total| total <= MIN).ok_or(ParseDurationError::Overflow)?;
        }
        match i64::try_from(total) {
            Ok(total) => Ok(Self(if negative { total.wrapping_neg() } else { total })),
            // 2^63 exactly.
            Err(_) if negative => Ok(Self(i64::MIN)),
            Err(_) => Err(ParseDurationError::Overflow),
        }
    }

    fn text(self) -> Text {
        let mut text = Text { bytes: [0; TEXT_MAX], at: TEXT_MAX };
        let nanos = self.0.unsigned_abs();
        text.push(b's');
        // In the largest unit below a second, as one number; from a second on in hours, minutes and
        // seconds.
        let fraction_digits = match nanos {
            0 => 0,
            1..1_000 => {
                text.push(b'n');
                0
            }
            1_000..1_000_000 => {
                // U+00B5, from its end.
                text.push(0xB5);
                text.push(0xC2);
                3
            }
            1_000_000..1_000_000_000 => {
                text.push(b'm');
                6
            }
            _ => 9,
        };
        let mut rest = text.push_fraction(nanos, fraction_digits);
        if fraction_digits == 9 {
            for unit in *b"mh" {
                text.push_number(rest % 60);
                rest /= 60;
                if rest == 0 {
                    break;
                }
                text.push(unit);
            }
        }
        if rest > 0 || nanos == 0 {
            text.push_number(rest);
        }
        if self.0 < 0 {
            text.push(b'-');
        }
        text
    }
}

/// Prints the duration as Go's `Duration.String` does: `1h0m0s`, `1m30.5s`, `1.5ms`, `1.5µs`
/// (U+00B5), `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text().as_str())
    }
}

/// Parses as [`GoDuration::parse`] does.
impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<Duration> for GoDuration {
    type Error = ConvertDurationError;

    fn try_from(duration: Duration) -> Result<Self, Self::Error> {
        i64::try_from(duration.as_secs())
            .ok()
            .and_then(|secs| secs.checked_mul(1_000_000_000)?.checked_add(i64::from(duration.subsec_nanos())))
            .map(Self)
            .ok_or(ConvertDurationError::TooLong)
    }
}

impl TryFrom<GoDuration> for Duration {
    type Error = ConvertDurationError;

    fn try_from(duration: GoDuration) -> Result<Self, Self::Error> {
        u64::try_from(duration.0).map(Self::from_nanos).map_err(|_| ConvertDurationError::Negative)
    }
}

/// Serializes the duration as a string in Go's form.
impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text().as_str())
    }
}

/// Deserializes a string that [`GoDuration::parse`] accepts.
impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl Visitor<'_> for TextVisitor {
            type Value = GoDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"1m30s\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<GoDuration, E> {
                GoDuration::parse(text)
                    .map_err(|_| crate::json::de::expected(const { &["a duration such as \"1m30s\""] }))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

impl ParseDurationError {
    /// The error as a sentence.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "a duration must not be empty",
            Self::MissingUnit => "a duration needs a unit after each number (ns, us, ms, s, m or h)",
            Self::UnknownUnit => "a duration has a unit other than ns, us, ms, s, m and h",
            Self::Overflow => "a duration is beyond 2562047h47m16.854775807s",
            Self::Invalid => "a duration must be numbers with units, such as 1m30s",
        }
    }
}

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for ParseDurationError {}

impl fmt::Display for ConvertDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Negative => "a negative duration cannot be converted",
            Self::TooLong => "a duration is beyond 2562047h47m16.854775807s",
        })
    }
}

impl core::error::Error for ConvertDurationError {}

/// The nanoseconds of the least duration, without their sign.
const MIN: u64 = 1 << 63;

struct Unit {
    nanos: u64,
    /// The largest number of these that is within [`MIN`].
    most: u64,
}

impl Unit {
    const fn new(nanos: u64) -> Self {
        Self { nanos, most: MIN / nanos }
    }

    fn of(name: &[u8]) -> Option<&'static Self> {
        Some(match name {
            b"h" => const { &Self::new(3_600_000_000_000) },
            b"m" => const { &Self::new(60_000_000_000) },
            b"s" => const { &Self::new(1_000_000_000) },
            b"ms" => const { &Self::new(1_000_000) },
            // U+00B5 (micro sign) and U+03BC (Greek mu).
            b"us" | b"\xC2\xB5s" | b"\xCE\xBCs" => const { &Self::new(1_000) },
            b"ns" => const { &Self::new(1) },
            _ => return None,
        })
    }
}

/// One number with its unit, in nanoseconds of at most [`MIN`], and the text after it.
fn component(text: &[u8]) -> Result<(u64, &[u8]), ParseDurationError> {
    let whole = Digits::read(text);
    let (mut rest, mut has_digits) = (whole.rest, whole.rest.len() < text.len());
    if whole.overflow {
        return Err(ParseDurationError::Overflow);
    }
    let mut fraction = None;
    if let [b'.', behind @ ..] = rest {
        // Digits that no longer fit are read and change nothing.
        let digits = Digits::read(behind);
        rest = digits.rest;
        has_digits |= rest.len() < behind.len();
        fraction = Some(digits);
    }
    if !has_digits {
        return Err(ParseDurationError::Invalid);
    }
    let len = rest.iter().take_while(|&&byte| byte != b'.' && !byte.is_ascii_digit()).count();
    let (name, rest) = rest.split_at_checked(len).unwrap_or_default();
    if name.is_empty() {
        return Err(ParseDurationError::MissingUnit);
    }
    let unit = Unit::of(name).ok_or(ParseDurationError::UnknownUnit)?;
    if whole.value > unit.most {
        return Err(ParseDurationError::Overflow);
    }
    let nanos = whole.value.wrapping_mul(unit.nanos);
    let nanos = nanos.saturating_add(fraction.map_or(0, |fraction| fraction.as_fraction_of(unit)));
    if nanos > MIN {
        return Err(ParseDurationError::Overflow);
    }
    Ok((nanos, rest))
}

/// Go's `leadingInt` and `leadingFraction`: the digits that `text` starts with.
struct Digits<'t> {
    /// The number that the first of them make, as many as are within [`MIN`].
    value: u64,
    /// How many those are.
    count: usize,
    /// There are more.
    overflow: bool,
    rest: &'t [u8],
}

impl<'t> Digits<'t> {
    fn read(text: &'t [u8]) -> Self {
        // Nearly every number has few digits, for which 32 bits do: a small processor multiplies 64
        // by a call.
        let (mut few, mut count, mut rest) = (0_u32, 0_usize, text);
        while let [digit @ b'0'..=b'9', behind @ ..] = rest
            && count < 9
        {
            (few, count, rest) =
                (few.wrapping_mul(10).wrapping_add(u32::from(digit & 0xF)), count.wrapping_add(1), behind);
        }
        let mut this = Self { value: u64::from(few), count, overflow: false, rest };
        while let [digit @ b'0'..=b'9', rest @ ..] = this.rest {
            this.rest = rest;
            let next = this.value.wrapping_mul(10).wrapping_add(u64::from(digit & 0xF));
            this.overflow |= this.value > MIN / 10 || next > MIN;
            if !this.overflow {
                this.value = next;
                this.count = this.count.wrapping_add(1);
            }
        }
        this
    }

    /// Go's `uint64(float64(f) * (float64(unit) / scale))`, where the scale grew tenfold with each
    /// digit.
    #[cold]
    #[inline(never)]
    fn as_fraction_of(&self, unit: &Unit) -> u64 {
        if self.value == 0 {
            return 0;
        }
        let mut scale = Float::from_int(1);
        for _ in 0..self.count {
            scale = scale.times_ten();
        }
        Float::from_int(self.value).times(Float::from_int(unit.nanos).over(scale)).floor()
    }
}

/// As much of IEEE 754 binary64 as Go's fractions need, in integers, bit for bit: positive numbers,
/// rounded to nearest, ties to even. A microcontroller has no floating-point unit, and its
/// soft-float library would cost some kilobytes; for the same reason products and quotients are
/// made a bit a turn.
///
/// The value is `significand * 2^exponent`; the significand's highest bit is set, and its 11 lowest
/// are not, which leaves 53. Numbers too large or too small for binary64 do not turn into infinity
/// and zero here; they come from more than 300 leading zeros, and end as 0 ns either way.
#[derive(Clone, Copy)]
struct Float {
    significand: u64,
    exponent: i32,
}

const SIGNIFICAND_BITS: u32 = 53;

impl Float {
    /// For `value > 0`.
    fn from_int(value: u64) -> Self {
        Self::rounded(value, 0, false)
    }

    /// `(value + a little, if inexact) * 2^exponent`, rounded. Inexact values have more than 53 bits.
    #[inline(never)]
    fn rounded(mut value: u64, mut exponent: i32, inexact: bool) -> Self {
        const UNIT: u64 = 1 << (64 - SIGNIFICAND_BITS);
        while value & (1 << 63) == 0 && value != 0 {
            value <<= 1;
            exponent = exponent.wrapping_sub(1);
        }
        let behind = value & (UNIT - 1);
        let mut significand = value & !(UNIT - 1);
        if behind > UNIT / 2 || behind == UNIT / 2 && (inexact || significand & UNIT != 0) {
            significand = significand.wrapping_add(UNIT);
            if significand == 0 {
                significand = 1 << 63;
                exponent = exponent.wrapping_add(1);
            }
        }
        Self { significand, exponent }
    }

    fn times_ten(self) -> Self {
        Self::rounded((self.significand >> 11).wrapping_mul(10), self.exponent.wrapping_add(11), false)
    }

    fn times(self, other: Self) -> Self {
        // The upper 64 bits of the product, from the lowest bit of the other on.
        let (mut product, mut bits, mut inexact) = (0_u64, other.significand, false);
        for _ in 0..64 {
            inexact |= product & 1 == 1;
            product >>= 1;
            if bits & 1 == 1 {
                product = product.wrapping_add(self.significand >> 1);
            }
            bits >>= 1;
        }
        Self::rounded(product, self.exponent.wrapping_add(other.exponent).wrapping_add(64), inexact)
    }

    fn over(self, other: Self) -> Self {
        // 55 bits behind the point.
        const BITS: i32 = 55;
        let (mut quotient, mut rest, divisor) = (0_u64, self.significand >> 1, other.significand >> 1);
        for _ in 0..=BITS {
            quotient <<= 1;
            if let Some(less) = rest.checked_sub(divisor) {
                rest = less;
                quotient |= 1;
            }
            rest <<= 1;
        }
        Self::rounded(quotient, self.exponent.wrapping_sub(other.exponent).wrapping_sub(BITS), rest != 0)
    }

    /// For values below 2^53.
    fn floor(self) -> u64 {
        let Self { mut significand, mut exponent } = self;
        while exponent < 0 && significand != 0 {
            significand >>= 1;
            exponent = exponent.wrapping_add(1);
        }
        significand
    }
}

/// The longest text is `-2562047h47m16.854775808s`.
const TEXT_MAX: usize = 32;

/// A text that is written from its end.
struct Text {
    bytes: [u8; TEXT_MAX],
    at: usize,
}

impl Text {
    fn as_str(&self) -> &str {
        self.bytes.get(self.at..).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        self.at = self.at.saturating_sub(1);
        if let Some(place) = self.bytes.get_mut(self.at) {
            *place = byte;
        }
    }

    fn push_number(&mut self, mut value: u64) {
        loop {
            self.push(digit(value));
            value /= 10;
            if value == 0 {
                break;
            }
        }
    }

    /// Writes the last `digits` digits behind a point, without zeros at the end; returns the number
    /// before the point.
    fn push_fraction(&mut self, mut value: u64, digits: u32) -> u64 {
        let mut any = false;
        for _ in 0..digits {
            any |= !value.is_multiple_of(10);
            if any {
                self.push(digit(value));
            }
            value /= 10;
        }
        if any {
            self.push(b'.');
        }
        value
    }
}

fn digit(value: u64) -> u8 {
    b'0' | u8::try_from(value % 10).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::ParseDurationError::{Empty, Invalid, MissingUnit, Overflow, UnknownUnit};
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::{String, ToString};

    const US: i64 = 1_000;
    const MS: i64 = 1_000 * US;
    const S: i64 = 1_000 * MS;
    const M: i64 = 60 * S;
    const H: i64 = 60 * M;

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table of inputs")]
    fn texts_read_as_go_reads_them() {
        let table: &[(&str, Result<i64, ParseDurationError>)] = &[
            ("0", Ok(0)),
            ("+0", Ok(0)),
            ("-0", Ok(0)),
            ("0s", Ok(0)),
            ("-0s", Ok(0)),
            ("00s", Ok(0)),
            ("0h0m0s", Ok(0)),
            ("0.0s", Ok(0)),
            ("5s", Ok(5 * S)),
            ("+5s", Ok(5 * S)),
            ("-5s", Ok(-5 * S)),
            ("30s", Ok(30 * S)),
            ("007s", Ok(7 * S)),
            ("1478s", Ok(1478 * S)),
            ("5.0s", Ok(5 * S)),
            ("5.6s", Ok(5 * S + 600 * MS)),
            ("5.s", Ok(5 * S)),
            (".5s", Ok(500 * MS)),
            ("-.5s", Ok(-500 * MS)),
            ("+.5s", Ok(500 * MS)),
            ("1.0s", Ok(S)),
            ("1.00s", Ok(S)),
            ("1.004s", Ok(S + 4 * MS)),
            ("1.0040s", Ok(S + 4 * MS)),
            ("100.00100s", Ok(100 * S + MS)),
            ("10ns", Ok(10)),
            ("11us", Ok(11 * US)),
            ("12µs", Ok(12 * US)),
            ("12μs", Ok(12 * US)),
            ("13ms", Ok(13 * MS)),
            ("14s", Ok(14 * S)),
            ("15m", Ok(15 * M)),
            ("16h", Ok(16 * H)),
            ("3h30m", Ok(3 * H + 30 * M)),
            ("10.5s4m", Ok(4 * M + 10 * S + 500 * MS)),
            ("-2m3.4s", Ok(-(2 * M + 3 * S + 400 * MS))),
            ("-1.5h", Ok(-(H + 30 * M))),
            ("1h2m3s4ms5us6ns", Ok(H + 2 * M + 3 * S + 4 * MS + 5 * US + 6)),
            ("39h9m14.425s", Ok(39 * H + 9 * M + 14 * S + 425 * MS)),
            ("1s1s1s", Ok(3 * S)),
            ("1ns1h", Ok(H + 1)),
            (".5m.5m", Ok(M)),
            ("1.s.5s", Ok(S + 500 * MS)),
            ("0.5ns", Ok(0)),
            ("1.9ns", Ok(1)),
            ("0.0005us", Ok(0)),
            ("0.0015us", Ok(1)),
            ("52763797000ns", Ok(52_763_797_000)),
            ("0.000000000001h", Ok(3)),
            // The fraction in Go's floating point: whole nanoseconds in integers would be one less.
            ("0.3333333333333333333h", Ok(20 * M)),
            ("0.9999999999999999999s", Ok(S)),
            ("0.100000000000000000000h", Ok(6 * M)),
            ("0.9223372036854775807h", Ok(3_320_413_933_267)),
            ("0.0000000000009223372036854775807h", Ok(3)),
            // Digits of a fraction that no longer fit are ignored.
            ("0.830103483285477580700h", Ok(49 * M + 48 * S + 372_539_827)),
            ("1.00000000000000000000000000000000000000000000000009s", Ok(S)),
            ("0.99999999999999999999999999999999999999999999999999ns", Ok(1)),
            // The ends.
            ("9007199254740993ns", Ok((1 << 53) + 1)),
            ("9223372036854775807ns", Ok(i64::MAX)),
            ("9223372036854775.807us", Ok(i64::MAX)),
            ("9223372036s854ms775us807ns", Ok(i64::MAX)),
            ("-9223372036854775807ns", Ok(-i64::MAX)),
            ("-9223372036854775808ns", Ok(i64::MIN)),
            ("-9223372036854775.808us", Ok(i64::MIN)),
            ("-9223372036s854ms775us808ns", Ok(i64::MIN)),
            ("-2562047h47m16.854775808s", Ok(i64::MIN)),
            ("2562047h47m16.854775807s", Ok(i64::MAX)),
            ("9223372036854775808ns", Err(Overflow)),
            ("-9223372036854775809ns", Err(Overflow)),
            ("9223372036854775.808us", Err(Overflow)),
            ("9223372036854ms775us808ns", Err(Overflow)),
            ("-9223372036854ms775us809ns", Err(Overflow)),
            ("2562047h47m16.854775808s", Err(Overflow)),
            ("9223372036854775810ns", Err(Overflow)),
            ("18446744073709551616ns", Err(Overflow)),
            ("99999999999999999999999ns", Err(Overflow)),
            ("9223372036854776us", Err(Overflow)),
            ("3000000h", Err(Overflow)),
            ("2562048h", Err(Overflow)),
            ("-2562048h", Err(Overflow)),
            ("2562047h2562047h", Err(Overflow)),
            ("9223372036854775808ns9223372036854775808ns", Err(Overflow)),
            ("-9223372036854775808ns1ns", Err(Overflow)),
            ("", Err(Empty)),
            ("-", Err(Invalid)),
            ("+", Err(Invalid)),
            ("--5s", Err(Invalid)),
            ("+-5s", Err(Invalid)),
            ("s", Err(Invalid)),
            ("-s", Err(Invalid)),
            (".", Err(Invalid)),
            ("-.", Err(Invalid)),
            (".s", Err(Invalid)),
            ("+.s", Err(Invalid)),
            ("1s.s", Err(Invalid)),
            (" 5s", Err(Invalid)),
            ("\u{FF15}s", Err(Invalid)),
            ("s5", Err(Invalid)),
            ("1", Err(MissingUnit)),
            ("00", Err(MissingUnit)),
            ("0.", Err(MissingUnit)),
            (".0", Err(MissingUnit)),
            ("30", Err(MissingUnit)),
            ("-30", Err(MissingUnit)),
            ("1.5", Err(MissingUnit)),
            ("3h30", Err(MissingUnit)),
            ("1..5s", Err(MissingUnit)),
            ("1.2.3s", Err(MissingUnit)),
            ("5s ", Err(UnknownUnit)),
            ("5 s", Err(UnknownUnit)),
            ("5s 5s", Err(UnknownUnit)),
            ("5s-5s", Err(UnknownUnit)),
            ("5S", Err(UnknownUnit)),
            ("5d", Err(UnknownUnit)),
            ("5w", Err(UnknownUnit)),
            ("5sec", Err(UnknownUnit)),
            ("5e3s", Err(UnknownUnit)),
            ("1,5s", Err(UnknownUnit)),
            ("0x5s", Err(UnknownUnit)),
            ("5µ", Err(UnknownUnit)),
            ("5s\n", Err(UnknownUnit)),
            ("5s\0", Err(UnknownUnit)),
            ("1_000s", Err(UnknownUnit)),
            ("hello", Err(Invalid)),
        ];
        for (text, expected) in table {
            assert_eq!(GoDuration::parse(text).map(GoDuration::as_nanos), *expected, "{text:?}");
            assert_eq!(text.parse::<GoDuration>().map(GoDuration::as_nanos), *expected, "{text:?}");
            assert_eq!(go::parse(text), expected.ok(), "the oracle, {text:?}");
        }
    }

    #[test]
    fn durations_print_as_go_prints_them() {
        let table: &[(i64, &str)] = &[
            (0, "0s"),
            (1, "1ns"),
            (-1, "-1ns"),
            (999, "999ns"),
            (1_000, "1µs"),
            (1_100, "1.1µs"),
            (1_500, "1.5µs"),
            (999_999, "999.999µs"),
            (MS, "1ms"),
            (2_200 * US, "2.2ms"),
            (100 * MS, "100ms"),
            (S - 1, "999.999999ms"),
            (S, "1s"),
            (1_500 * MS, "1.5s"),
            (-1_500 * MS, "-1.5s"),
            (3_300 * MS, "3.3s"),
            (10 * S + 1, "10.000000001s"),
            (M, "1m0s"),
            (90 * S, "1m30s"),
            (4 * M + 5 * S, "4m5s"),
            (4 * M + 5 * S + MS, "4m5.001s"),
            (H, "1h0m0s"),
            (5 * H + 6 * M + 7 * S + MS, "5h6m7.001s"),
            (8 * M + 1, "8m0.000000001s"),
            (100 * H, "100h0m0s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ];
        for (nanos, expected) in table {
            let duration = GoDuration::from_nanos(*nanos);
            assert_eq!(duration.to_string(), *expected);
            assert_eq!(GoDuration::parse(expected), Ok(duration));
            let json = serde_json::to_string(&duration).unwrap();
            assert_eq!(json, format!("\"{expected}\""));
            assert_eq!(serde_json::from_str::<GoDuration>(&json).unwrap(), duration);
        }
        assert_eq!(format!("{:>6}|{:<6}|", GoDuration::from_nanos(1_000), GoDuration::ZERO), "   1µs|0s    |");
    }

    #[test]
    fn other_json_is_refused_by_name() {
        let message = |json| serde_json::from_str::<GoDuration>(json).unwrap_err().to_string();
        assert!(message("\"5\"").contains("expected `a duration such as \"1m30s\"`"));
        assert!(message("5").starts_with("invalid type: integer `5`, expected a duration such as \"1m30s\""));
    }

    #[test]
    fn converts_to_and_from_the_standard_duration() {
        let table = [
            (Duration::ZERO, Ok(0)),
            (Duration::from_nanos(1), Ok(1)),
            (Duration::new(1, 500_000_000), Ok(1_500_000_000)),
            (Duration::new(9_223_372_036, 854_775_807), Ok(i64::MAX)),
            (Duration::new(9_223_372_036, 854_775_808), Err(ConvertDurationError::TooLong)),
            (Duration::new(9_223_372_037, 0), Err(ConvertDurationError::TooLong)),
            (Duration::MAX, Err(ConvertDurationError::TooLong)),
        ];
        for (duration, expected) in table {
            assert_eq!(GoDuration::try_from(duration).map(GoDuration::as_nanos), expected);
            if let Ok(nanos) = expected {
                assert_eq!(Duration::try_from(GoDuration::from_nanos(nanos)), Ok(duration));
            }
        }
        for nanos in [-1, i64::MIN] {
            assert_eq!(Duration::try_from(GoDuration::from_nanos(nanos)), Err(ConvertDurationError::Negative));
        }
    }

    /// Go's own functions, with floating point, line by line.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    #[allow(clippy::many_single_char_names, reason = "the names are Go's")]
    mod go {
        pub(super) fn parse(text: &str) -> Option<i64> {
            let mut s = text;
            let mut d = 0_u64;
            let negative = s.starts_with('-');
            s = s.strip_prefix(['-', '+']).unwrap_or(s);
            if s == "0" {
                return Some(0);
            }
            if s.is_empty() {
                return None;
            }
            while !s.is_empty() {
                if !s.starts_with(|c: char| c == '.' || c.is_ascii_digit()) {
                    return None;
                }
                let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
                let n = digits(s);
                let mut v = if n == 0 { 0 } else { s[..n].parse::<u64>().ok().filter(|v| *v <= 1 << 63)? };
                s = &s[n..];
                let (mut f, mut scale, mut post) = (0_u64, 1_f64, 0);
                if let Some(rest) = s.strip_prefix('.') {
                    post = digits(rest);
                    for c in rest[..post].bytes() {
                        if f > ((1 << 63) - 1) / 10 {
                            break;
                        }
                        let y = f * 10 + u64::from(c - b'0');
                        if y > 1 << 63 {
                            break;
                        }
                        f = y;
                        scale *= 10.0;
                    }
                    s = &rest[post..];
                }
                if n == 0 && post == 0 {
                    return None;
                }
                let i = s.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(s.len());
                let unit = match &s[..i] {
                    "ns" => 1_u64,
                    "us" | "\u{B5}s" | "\u{3BC}s" => 1_000,
                    "ms" => 1_000_000,
                    "s" => 1_000_000_000,
                    "m" => 60_000_000_000,
                    "h" => 3_600_000_000_000,
                    _ => return None,
                };
                s = &s[i..];
                if v > (1 << 63) / unit {
                    return None;
                }
                v *= unit;
                if f > 0 {
                    v += (f as f64 * (unit as f64 / scale)) as u64;
                    if v > 1 << 63 {
                        return None;
                    }
                }
                d = d.checked_add(v).filter(|d| *d <= 1 << 63)?;
            }
            if negative {
                return Some(d.cast_signed().wrapping_neg());
            }
            i64::try_from(d).ok()
        }
    }

    fn unit() -> impl Strategy<Value = &'static str> {
        prop::sample::select(&["ns", "us", "µs", "μs", "ms", "s", "m", "h"][..])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn fractions_are_gos(whole in "(0{0,3}[0-9]{0,6})?", zeros in 0..20_usize, digits in "[0-9]{1,25}", unit in unit()) {
            let text = format!("{whole}.{}{digits}{unit}", "0".repeat(zeros));
            prop_assert_eq!(GoDuration::parse(&text).ok().map(GoDuration::as_nanos), go::parse(&text), "{}", text);
        }

        #[test]
        fn texts_near_the_grammar_are_gos(text in "[-+]?([0-9]{0,20}\\.?[0-9]{0,3}(ns|us|µs|ms|s|m|h|x)?){0,3}") {
            prop_assert_eq!(GoDuration::parse(&text).ok().map(GoDuration::as_nanos), go::parse(&text));
        }

        #[test]
        fn any_text_is_gos(text in any::<String>()) {
            prop_assert_eq!(GoDuration::parse(&text).ok().map(GoDuration::as_nanos), go::parse(&text));
        }

        #[test]
        fn what_is_printed_reads_back(nanos in any::<i64>(), shift in 0..63_u32) {
            let duration = GoDuration::from_nanos(nanos >> shift);
            prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
        }

        #[test]
        fn soft_floats_are_floats(a in 1..=u64::MAX, b in 1..=u64::MAX, shifts in (0..63_u32, 0..63_u32)) {
            let (a, b) = (a >> shifts.0 | 1, b >> shifts.1 | 1);
            #[allow(clippy::cast_precision_loss)]
            let (x, y) = (a as f64, b as f64);
            let (a, b) = (Float::from_int(a), Float::from_int(b));
            for (ours, theirs) in [(a, x), (b, y), (a.times(b), x * y), (a.over(b), x / y), (a.times_ten(), x * 10.0)] {
                let bits = theirs.to_bits();
                prop_assert_eq!(ours.significand, (bits & ((1 << 52) - 1) | 1 << 52) << 11);
                prop_assert_eq!(i64::from(ours.exponent), i64::try_from(bits >> 52).unwrap() - 1075 - 11);
            }
        }
    }
}
