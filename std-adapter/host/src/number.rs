//! Exact comparison of decimal numbers of any size, in any notation.

use std::str::FromStr as _;

use bigdecimal::BigDecimal;

/// The longest number that is compared by value, in bytes.
pub const DIGIT_LIMIT: usize = 10_000;

/// The largest number of digits in the exponent of a number that is compared by value.
pub const EXPONENT_DIGITS: usize = 17;

/// Reads a decimal number: a number of JSON, or one such as `+1`, `.5`, `5.` and `007`. White space
/// of JSON at the ends is ignored.
///
/// Returns `None` if the text is not a number, is longer than [`DIGIT_LIMIT`], or has an exponent
/// of more than [`EXPONENT_DIGITS`] digits. The clients in Python, JavaScript and Go read the same
/// texts as numbers: `tests/vectors/numbers.json`.
pub fn decimal(text: &str) -> Option<BigDecimal> {
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    if text.len() > DIGIT_LIMIT {
        return None;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = is_digits(whole)
        && is_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| (1..=EXPONENT_DIGITS).contains(&exponent.len()) && is_digits(exponent));
    if !is_number {
        return None;
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    let exponent = text.split_once(['e', 'E']).map(|(_, exponent)| format!("e{exponent}")).unwrap_or_default();
    BigDecimal::from_str(&format!("{sign}{whole}{point}{fraction}{exponent}")).ok().map(|number| number.normalized())
}

/// Converts a number as YAML 1.2 and instruments write it to JSON. All digits stay. A plus sign and
/// leading zeros are removed, and `0x` and `0o` become decimal.
pub fn json(written: &str) -> Option<String> {
    let (sign, unsigned) = match written.strip_prefix(['+', '-']) {
        Some(rest) => (if written.starts_with('-') { "-" } else { "" }, rest),
        None => ("", written),
    };
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2)] {
        if let Some(digits) = unsigned.strip_prefix(prefix) {
            let is_digits =
                !digits.is_empty() && digits.len() <= 1000 && digits.chars().all(|digit| digit.is_digit(radix));
            let number =
                bigdecimal::num_bigint::BigUint::parse_bytes(digits.as_bytes(), radix).filter(|_| is_digits)?;
            return Some(format!("{sign}{number}"));
        }
    }
    decimal(unsigned).filter(|_| !unsigned.starts_with(['+', '-']))?;
    let (mantissa, exponent) = unsigned.find(['e', 'E']).map_or((unsigned, ""), |at| unsigned.split_at(at));
    let (whole, fraction) =
        mantissa.split_once('.').map_or((mantissa, None), |(whole, fraction)| (whole, Some(fraction)));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let fraction = match fraction {
        Some("") => ".0".to_owned(),
        Some(digits) => format!(".{digits}"),
        None => String::new(),
    };
    Some(format!("{sign}{whole}{fraction}{exponent}"))
}

/// Returns a whole number without exponent and fraction, such as `1000` for `1e3`. Returns `None`
/// if the value is not whole, or needs more than 40 digits.
pub fn whole(text: &str) -> Option<String> {
    let number = decimal(text)?;
    let (digits, scale) = number.as_bigint_and_exponent();
    // Normalized: a fraction has a scale above zero.
    if !(-40..=0).contains(&scale) {
        return None;
    }
    let plain = bigdecimal::BigDecimal::new(digits, scale).with_scale(0).to_string();
    (plain.len() <= 41).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_exactly_whatever_their_spelling() {
        for (a, b) in [
            ("1", "1.0"),
            ("1", "1e0"),
            ("1000", "1E+3"),
            ("0.1", "1e-1"),
            ("-0", "0"),
            ("0e999999999", "0"),
            ("100e-2", "1"),
            ("123456789012345678901234567890", "123456789012345678901234567890.000"),
            ("1e999999999", "10e999999998"),
            ("007", "7"),
            (".5", "0.5"),
            ("5.", "5"),
            ("+3", "3"),
        ] {
            assert_eq!(decimal(a).unwrap(), decimal(b).unwrap(), "{a} and {b}");
        }
        for (less, more) in [
            ("9007199254740992", "9007199254740993"),
            ("18446744073709551614", "18446744073709551615"),
            ("123456789012345678901234567890", "123456789012345678901234567891"),
            ("0.1", "0.10000000000000000001"),
            ("-1e999999999", "1"),
            ("1", "1e999999999"),
            ("1e999999998", "1e999999999"),
            ("1e-999999999", "1"),
            ("-1e-999999999", "0"),
            ("3.4649999999999999999", "3.465"),
        ] {
            let (less, more) = (decimal(less).unwrap(), decimal(more).unwrap());
            assert_eq!(less.cmp(&more), std::cmp::Ordering::Less, "{less:?} and {more:?}");
        }
        for not in
            ["", "-", ".", "e3", "1e", "1_000", "0x10", "NaN", "inf", "1 2", "1e9999999999999999999", "--1", "1.2.3"]
        {
            assert!(decimal(not).is_none(), "{not}");
        }
        let long = "1".repeat(DIGIT_LIMIT);
        assert!(decimal(&long).is_some() && decimal(&format!("{long}1")).is_none());
        for (text, plain) in [
            ("1e3", Some("1000")),
            ("3.0", Some("3")),
            ("-25e1", Some("-250")),
            ("0", Some("0")),
            ("1e40", Some("10000000000000000000000000000000000000000")),
            ("1.5", None),
            ("1e999999999", None),
        ] {
            assert_eq!(whole(text).as_deref(), plain, "{text}");
        }
    }
}
