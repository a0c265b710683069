//! JSON objects that are stored as text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rigline::json::Json;
use rigline_std::queue::is_same;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::error::HostError;

/// A JSON object, stored as text. Its numbers keep all their digits. A [`Value`], in contrast,
/// rounds numbers that fit neither 64 bits nor an `f64`.
///
/// Two objects are equal if they have the same members in any order. White space is ignored.
/// Numbers are equal if their texts are equal.
#[derive(Debug, Clone)]
pub struct JsonObject(Arc<str>);

impl JsonObject {
    /// Returns the JSON text, on one line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JsonObject {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        serde_json::from_str::<IgnoredAny>(text).map_err(|source| HostError::Types { what: "the config", source })?;
        if !text.trim_start().starts_with('{') {
            return Err(HostError::NoObject("the config"));
        }
        // In a valid text these occur only between tokens.
        Ok(Self(text.trim().replace(['\n', '\r'], " ").into()))
    }
}

impl TryFrom<Value> for JsonObject {
    type Error = HostError;

    fn try_from(value: Value) -> Result<Self, HostError> {
        if value.is_object() { Ok(Self(value.to_string().into())) } else { Err(HostError::NoObject("the config")) }
    }
}

impl fmt::Display for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq for JsonObject {
    fn eq(&self, other: &Self) -> bool {
        if self.0 == other.0 {
            return true;
        }
        match (Json::parse(self.0.as_bytes()), Json::parse(other.0.as_bytes())) {
            (Ok(one), Ok(other)) => is_same(one, other),
            _ => false,
        }
    }
}

impl Eq for JsonObject {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_keep_their_digits() {
        let object = |text: &str| text.parse::<JsonObject>().unwrap();
        let long = object("{\"n\":\n123456789012345678901234567890,\"s\":[1.10,\"\\u0061\"]}");
        assert_eq!(long.as_str(), "{\"n\": 123456789012345678901234567890,\"s\":[1.10,\"\\u0061\"]}");
        assert_eq!(long, object("{\"s\":[1.10,\"a\"],\"n\":123456789012345678901234567890}"));
        for other in [
            "{\"s\":[1.10,\"a\"],\"n\":123456789012345678901234567891}",
            "{\"s\":[1.10],\"n\":123456789012345678901234567890}",
            "{\"n\":123456789012345678901234567890}",
        ] {
            assert_ne!(long, object(other));
        }
        for text in ["[1]", "7", "{", ""] {
            assert!(text.parse::<JsonObject>().is_err(), "{text}");
        }
        assert!(JsonObject::try_from(Value::from(7)).is_err());
    }
}
