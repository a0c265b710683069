//! JSON text that is passed on unchanged.
//!
//! Digits, spelling and order stay: `1.0e5` does not become `100000.0`. Only CR and LF are removed,
//! so that a value over several lines does not split the line that it is written to. In JSON text,
//! both stand outside of strings only and are white space there (RFC 8259 §2 and §7).
//!
//! ```
//! use rigline::json::{de::from_checked, RawJson};
//!
//! #[derive(serde::Deserialize)]
//! struct Args<'a> {
//!     #[serde(borrow)]
//!     data: RawJson<'a>,
//! }
//!
//! let mut text = b"{\"data\": {\"gain\" : 1.0e5,\r\n \"name\": \"\\n\"} }".to_vec();
//! let args: Args = from_checked(&mut text)?;
//! assert_eq!(args.data.as_str(), r#"{"gain" : 1.0e5, "name": "\n"}"#);
//! # Ok::<(), rigline::json::de::DecodeError>(())
//! ```

use core::fmt;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

pub(crate) use super::text::RAW_TOKEN;
use super::text::{drop_line_breaks, is_line_break};

/// One JSON value as text on one line.
///
/// This crate's serializer writes the text unchanged, and its deserializer borrows the text
/// unchanged. Other serializers write it as a string. Other deserializers get an error, because
/// they do not check the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawJson<'a>(&'a str);

/// The reason why a text cannot become a [`RawJson`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawError {
    /// The text is not UTF-8.
    NotUtf8,
    /// The text contains a CR or LF, and is not mutable, so that they cannot be removed.
    LineBreak,
}

impl fmt::Display for RawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUtf8 => "the text is not UTF-8",
            Self::LineBreak => "the text has a line break",
        })
    }
}

impl core::error::Error for RawError {}

impl<'a> RawJson<'a> {
    /// The value `null`.
    pub const NULL: RawJson<'static> = RawJson("null");

    /// Takes text that was checked to be exactly one JSON value. Removes CR and LF from it in
    /// place.
    ///
    /// # Errors
    /// The text is not UTF-8.
    pub fn from_checked(text: &'a mut [u8]) -> Result<Self, RawError> {
        str::from_utf8(drop_line_breaks(text)).map(Self).map_err(|_| RawError::NotUtf8)
    }

    /// Takes text that was checked to be exactly one JSON value without CR and LF.
    ///
    /// # Errors
    /// The text contains a CR or LF.
    pub fn from_checked_str(text: &'a str) -> Result<Self, RawError> {
        if text.bytes().any(is_line_break) { Err(RawError::LineBreak) } else { Ok(Self(text)) }
    }

    /// The JSON text.
    pub const fn as_str(&self) -> &'a str {
        self.0
    }
}

impl fmt::Display for RawJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for RawJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(RAW_TOKEN, self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawJson<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;

        impl<'de> Visitor<'de> for Borrow {
            type Value = RawJson<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON text of rigline's own decoder")
            }

            fn visit_borrowed_bytes<E: de::Error>(self, text: &'de [u8]) -> Result<Self::Value, E> {
                str::from_utf8(text).map(RawJson).map_err(|_| super::de::expected(const { &["JSON text in UTF-8"] }))
            }
        }

        deserializer.deserialize_newtype_struct(RAW_TOKEN, Borrow)
    }
}

/// A [`RawJson`] that owns its text.
#[cfg(feature = "alloc")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawJsonBuf(alloc::string::String);

#[cfg(feature = "alloc")]
impl RawJsonBuf {
    /// The value as a [`RawJson`] that borrows the text.
    pub fn as_raw(&self) -> RawJson<'_> {
        RawJson(&self.0)
    }
}

#[cfg(feature = "alloc")]
impl From<RawJson<'_>> for RawJsonBuf {
    fn from(raw: RawJson<'_>) -> Self {
        Self(raw.0.into())
    }
}

#[cfg(feature = "alloc")]
impl Serialize for RawJsonBuf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_raw().serialize(serializer)
    }
}

#[cfg(feature = "alloc")]
impl<'de> Deserialize<'de> for RawJsonBuf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawJson::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::de::from_checked;
    use std::{string::ToString, vec::Vec};

    #[test]
    fn only_line_breaks_are_dropped() {
        for (text, kept) in [
            ("1.0e5", "1.0e5"),
            ("{\r\n  \"a\": [1,\n\t2],\r\"b\":\"\\r\\n\"\n}\n", "{  \"a\": [1,\t2],\"b\":\"\\r\\n\"}"),
            ("\n\n[]", "[]"),
            ("\"\u{2028}é\"", "\"\u{2028}é\""),
        ] {
            let mut bytes = Vec::from(text);
            assert_eq!(RawJson::from_checked(&mut bytes).map(|raw| raw.as_str()), Ok(kept));
            let borrowed = RawJson::from_checked_str(text);
            assert_eq!(borrowed.is_ok(), text == kept, "{text}");
        }
        assert_eq!(RawJson::from_checked(&mut [b'"', 0xff, b'"']), Err(RawError::NotUtf8));
    }

    #[test]
    fn every_kind_of_value_is_read_verbatim() {
        for value in
            ["null", "-0.0E+00", "true", "\"\\u00e9\\/\"", "[ 1 , [2] ]", "{\"a\":{\"b\":\"]}\\\"\"}}", "\"\\ud800\""]
        {
            let mut text = std::format!(" [ {value} ,{value}]");
            let text = std::mem::take(&mut text);
            let mut text = text.into_bytes();
            let raw: [RawJson<'_>; 2] = from_checked(&mut text).unwrap();
            assert_eq!(raw.map(|raw| raw.as_str()), [value; 2]);
        }
    }

    #[test]
    fn unchecked_sources_are_refused() {
        let refused = serde_json::from_str::<RawJson<'_>>("\"1\"").unwrap_err().to_string();
        assert!(refused.contains("expected JSON text of rigline's own decoder"), "{refused}");
        assert_eq!(serde_json::to_string(&RawJson::NULL).unwrap(), "\"null\"");
        assert_eq!(RawJson::NULL.to_string(), "null");
    }
}
