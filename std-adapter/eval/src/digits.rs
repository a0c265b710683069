//! A number with the digits that the device sent.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

use rigline_host::number;

/// A number as the device wrote it: `3.300` keeps its zeros.
///
/// In JSON it is a number if a 64-bit integer or float can hold it without a loss. Any other text
/// is a JSON string. An empty text is `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digits(String);

impl Digits {
    /// Keeps a text as it is, without the white space at its ends.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Returns the text as the device wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text is empty, so that there is no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text as a float. `None` if it is no decimal number, or too large for a float.
    pub fn as_f64(&self) -> Option<f64> {
        number::decimal(&self.0)?;
        self.0.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// As a number of JSON, if a 64-bit number is the same number.
    fn json(&self) -> Option<String> {
        let decimal = number::decimal(&self.0)?;
        let json = number::json(&self.0)?;
        let is_integer = self.0.parse::<i64>().is_ok() || self.0.parse::<u64>().is_ok();
        let is_float = || {
            let float = self.0.parse::<f64>().ok().filter(|float| float.is_finite())?;
            Some(number::decimal(&float.to_string())? == decimal)
        };
        (is_integer || is_float() == Some(true)).then_some(json)
    }
}

impl Serialize for Digits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_empty() {
            return serializer.serialize_none();
        }
        match self.json() {
            Some(json) => RawValue::from_string(json).map_err(S::Error::custom)?.serialize(serializer),
            None => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Digits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(match raw.get() {
            "null" => String::new(),
            text if text.starts_with('"') => serde_json::from_str(text).map_err(D::Error::custom)?,
            other => other.to_owned(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stay_as_they_were_written() {
        for (written, json) in [
            ("3.300", "3.300"),
            (" 0.1000 ", "0.1000"),
            ("+3.30E+00", "3.30E+00"),
            ("7", "7"),
            ("-0.0", "-0.0"),
            ("007", "7"),
            (".5", "0.5"),
            ("9007199254740993", "9007199254740993"),
            ("123456789012345678901234567890", "\"123456789012345678901234567890\""),
            ("0.1000000000000000000001", "\"0.1000000000000000000001\""),
            ("1e999999", "\"1e999999\""),
            ("1.0.0", "\"1.0.0\""),
            ("NaN", "\"NaN\""),
            ("say \"x\"", "\"say \\\"x\\\"\""),
            ("", "null"),
        ] {
            let digits = Digits::new(written);
            let text = serde_json::to_string(&digits).unwrap();
            assert_eq!(text, json, "{written}");
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{written}");
            let read: Digits = serde_json::from_str(&text).unwrap();
            assert_eq!(read.as_f64(), digits.as_f64(), "{written}");
            assert!(read == digits || written.starts_with(['+', '.', '0']), "{written}");
        }
    }
}
