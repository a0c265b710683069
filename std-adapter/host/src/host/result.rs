//! The result of a call, as a host reads it.

use std::collections::HashSet;
use std::fmt;

use rigline::client::{self, ExecuteResult, ReplyBody, Unquoted};
use rigline::json::Json;
use serde::de::value::{MapDeserializer, StringDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde_json::Value;

use super::error::RpcFailure;
use super::manifest::value;
use crate::terminal::cut_and_counted;

/// The code by which an extension says that a call's time was over.
const TIMED_OUT: i32 = -32001;

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CallResult {
    /// The way in which the call ended.
    pub outcome: CallVerdict,
    /// The message of the operation. `None` if it sent none.
    pub message: Option<String>,
    /// The outputs as pairs of name and value, in their order. A value that is not a string is its
    /// JSON text. Outputs that are not an object are left out, and are a fault.
    pub outputs: Vec<(String, String)>,
    /// The deviations of the reply from the protocol. The reply was understood nevertheless.
    pub faults: Vec<String>,
    /// The member `result` or `error` of the reply, as JSON text.
    pub raw: String,
}

/// The way in which a call ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CallVerdict {
    /// The operation succeeded.
    Success,
    /// The operation ran and failed: `success` is false. The text is the message, or another text
    /// of the reply.
    Failed(String),
    /// The reply is a JSON-RPC error.
    Refused(RpcFailure),
    /// The reply is not a valid result, so the call did not succeed. The text says why.
    Invalid(String),
}

impl CallResult {
    /// Returns whether the operation succeeded.
    pub fn is_success(&self) -> bool {
        self.outcome == CallVerdict::Success
    }

    /// Returns the reason why the operation did not succeed. Returns `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        match &self.outcome {
            CallVerdict::Success => None,
            CallVerdict::Failed(text) => Some(text.clone()),
            CallVerdict::Refused(error) => Some(error.to_string()),
            CallVerdict::Invalid(why) => Some(match &self.message {
                Some(message) => format!("invalid result: {why} (its message: {message})"),
                None => format!("invalid result: {why}"),
            }),
        }
    }

    /// Whether the extension itself says that the call's time was over (-32001).
    pub(super) fn is_timeout(&self) -> bool {
        matches!(&self.outcome, CallVerdict::Refused(error) if error.code == Some(TIMED_OUT))
    }

    /// Returns the value of the output with this name.
    pub fn output(&self, name: &str) -> Option<&str> {
        self.outputs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the outputs as a value of type `T`. Each string is read as the type of its field:
    /// `"3300"` as a number, `"[1,2]"` as a list.
    pub fn outputs_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let members = self.outputs.iter().map(|(name, value)| (name.clone(), Written(value.clone())));
        T::deserialize(MapDeserializer::<_, serde_json::Error>::new(members))
    }

    fn of_result(json: Json<'_>) -> Self {
        // The Go kit sends null where an operation has returned nothing.
        let failed = Json::parse(br#"{"success":false}"#).ok().filter(|_| json.is_null());
        let result = ExecuteResult::new(failed.unwrap_or(json));
        let message = result.message().map(owned);
        let error = result.error().map(owned);
        let outcome = match result.success() {
            Ok(true) => CallVerdict::Success,
            Ok(false) => CallVerdict::Failed(
                error.or_else(|| message.clone()).unwrap_or_else(|| "the operation failed without a reason".to_owned()),
            ),
            Err(why) => CallVerdict::Invalid(match error {
                Some(error) => format!("{why} (its error: {error})"),
                None => why.to_owned(),
            }),
        };
        let outputs =
            last_of_each(result.outputs().map(|(name, value)| (name.to_cow().into_owned(), owned(value))).collect());
        let faults = result.outputs_error().zip(result.outputs_json());
        let faults =
            faults.map(|(why, outputs)| format!("{why}, and are left out: {}", cut_and_counted(outputs.as_str(), 500)));
        let faults = faults.into_iter().collect();
        Self { outcome, message, outputs, faults, raw: json.as_str().to_owned() }
    }

    pub(super) fn of_error(error: RpcFailure, raw: String) -> Self {
        Self { outcome: CallVerdict::Refused(error), message: None, outputs: Vec::new(), faults: Vec::new(), raw }
    }
}

impl fmt::Display for CallResult {
    /// One line: success or failure, and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.failure(), &self.message) {
            (Some(failure), _) => f.write_str(&failure),
            (None, Some(message)) => f.write_str(message),
            (None, None) => f.write_str("done"),
        }
    }
}

impl RpcFailure {
    pub(super) fn of(error: client::RpcError<'_>) -> Self {
        Self { code: error.code(), message: error.message().to_string(), data: value(error.data()) }
    }
}

/// Of several outputs with one name, the last one counts, as most JSON readers have it; so a grader and a report see the same one.
fn last_of_each(outputs: Vec<(String, String)>) -> Vec<(String, String)> {
    if outputs.len() < 2 {
        return outputs;
    }
    let mut names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if names.windows(2).all(|two| two.first() != two.last()) {
        return outputs;
    }
    let mut seen = HashSet::new();
    let mut last: Vec<_> = outputs.into_iter().rev().filter(|(name, _)| seen.insert(name.clone())).collect();
    last.reverse();
    last
}

/// A value as a person reads it: in one piece where it has no escapes.
fn owned(plain: Unquoted<'_>) -> String {
    plain.0.text().map_or_else(|| plain.to_string(), |text| text.to_cow().into_owned())
}

/// A reply's body, owned.
#[derive(Debug, Clone)]
pub(crate) enum OwnedReply {
    /// The result of a call. It is parsed at once, while its line is known to be valid.
    Called(Box<CallResult>),
    Result(String),
    /// The error, and its JSON text.
    Error(RpcFailure, String),
    /// The reply cannot be used. The texts are the reason and the line.
    Bad(String, String),
}

impl OwnedReply {
    /// `is_call`: to `execute` with this host's own request.
    pub(super) fn of(body: ReplyBody<'_>, is_call: bool) -> Self {
        match body {
            ReplyBody::Result(result) if is_call => Self::Called(Box::new(CallResult::of_result(result))),
            ReplyBody::Result(result) => Self::Result(result.as_str().to_owned()),
            ReplyBody::Error(error) => Self::Error(RpcFailure::of(error), error.json().as_str().to_owned()),
            ReplyBody::Invalid(why) => Self::Bad(why.to_owned(), String::new()),
            _ => Self::Bad("unknown".to_owned(), String::new()),
        }
    }
}

/// A string that was written in the place of a typed value.
struct Written(String);

impl IntoDeserializer<'_, serde_json::Error> for Written {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl Written {
    fn into_string(self) -> StringDeserializer<serde_json::Error> {
        self.0.into_deserializer()
    }
}

macro_rules! read_as_json {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
                let value: Value = serde_json::from_str(&self.0).map_err(|_| {
                    de::Error::invalid_value(de::Unexpected::Str(&self.0), &visitor)
                })?;
                value.$method(visitor)
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Written {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.into_string().deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.0.is_empty() || self.0 == "null" { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match serde_json::from_str::<Value>(&self.0) {
            Ok(value @ Value::Object(_)) => value.deserialize_enum(name, variants, visitor),
            _ => self.into_string().deserialize_enum(name, variants, visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Self::Error> {
        self.into_string().deserialize_unit_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Self::Error> {
        let value: Value = serde_json::from_str(&self.0)?;
        value.deserialize_tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let value: Value = serde_json::from_str(&self.0)?;
        value.deserialize_struct(name, fields, visitor)
    }

    read_as_json! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_unit deserialize_seq deserialize_map
    }

    serde::forward_to_deserialize_any! { char str string bytes byte_buf identifier ignored_any }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn of_text(text: &str) -> CallResult {
        CallResult::of_result(Json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn outputs_are_read_as_the_type_has_them() {
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum State {
            On,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Point(i8, i8);
        #[derive(Debug, PartialEq, Deserialize)]
        struct Outputs {
            volts: f32,
            count: u64,
            text: String,
            digits: String,
            ok: bool,
            list: Vec<u8>,
            state: State,
            point: Point,
            none: Option<u8>,
            some: Option<u8>,
            #[serde(default)]
            missing: u8,
        }
        let result = of_text(
            r#"{"success":true,"outputs":{"volts":"3.3","count":12,"text":"3V3 \"x\"","digits":"007","ok":"true","list":"[1, 2]","state":"on","point":"[1,-1]","none":null,"some":"4","more":"x"}}"#,
        );
        let outputs: Outputs = result.outputs_as().unwrap();
        assert_eq!(
            outputs,
            Outputs {
                volts: 3.3,
                count: 12,
                text: "3V3 \"x\"".into(),
                digits: "007".into(),
                ok: true,
                list: vec![1, 2],
                state: State::On,
                point: Point(1, -1),
                none: None,
                some: Some(4),
                missing: 0,
            }
        );
        #[derive(Debug, Deserialize)]
        struct Wrong {
            #[allow(dead_code)]
            text: u8,
        }
        let error = result.outputs_as::<Wrong>().unwrap_err().to_string();
        assert!(error.contains("u8"), "{error}");
    }

    #[test]
    fn outputs_that_are_no_object_are_a_fault() {
        for outputs in ["[1.50]", "7", "\"a\\n\"", "false"] {
            for success in [true, false] {
                let result = of_text(&format!(r#"{{"success":{success},"Outputs":{outputs}}}"#));
                assert_eq!((result.is_success(), result.outputs.len()), (success, 0), "{outputs}");
                let told = format!("the result's outputs are not an object, and are left out: {outputs}");
                assert_eq!(result.faults, [told]);
            }
        }
        for outputs in ["{}", "null", r#"{"value":[]}"#] {
            assert!(of_text(&format!(r#"{{"success":true,"outputs":{outputs}}}"#)).faults.is_empty(), "{outputs}");
        }
    }

    #[test]
    fn failures_have_the_best_text_there_is() {
        // Reports: zonemaster/zonemaster-backend#431.
        let table = [
            (r#"{"success":false,"error":"e","message":"m"}"#, "e"),
            (r#"{"success":false,"message":"m"}"#, "m"),
            (r#"{"success":false}"#, "the operation failed without a reason"),
            (r#"{"success":false,"error":""}"#, "the operation failed without a reason"),
            (r#"{"message":"m"}"#, "invalid result: the result has no success (its message: m)"),
            (r#"{"error":"e"}"#, "invalid result: the result has no success (its error: e)"),
            // O 3.
            ("null", "the operation failed without a reason"),
            ("[]", "invalid result: the result is not an object"),
        ];
        for (text, failure) in table {
            assert_eq!(of_text(text).failure().as_deref(), Some(failure), "{text}");
        }
    }
}
