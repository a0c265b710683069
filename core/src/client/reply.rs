//! The content of a reply, in all forms that real peers send.

use core::fmt;

use crate::json::{Json, JsonKind, Members, Text};

/// The reply to a request.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'t> {
    /// The id of the request.
    pub id: u32,
    /// The content of the reply.
    pub body: ReplyBody<'t>,
}

/// The content of a reply.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum ReplyBody<'t> {
    /// The member `result` of the reply.
    Result(Json<'t>),
    /// The member `error` of the reply. If it is not null, it counts even if there is a `result`.
    Error(RpcError<'t>),
    /// The reply is one that JSON-RPC does not allow. The text is the reason.
    Invalid(&'static str),
}

/// The `error` of a reply, of any JSON type. By JSON-RPC 2.0 §5.1 it should be an object.
#[derive(Debug, Clone, Copy)]
pub struct RpcError<'t>(pub(super) Json<'t>);

impl<'t> RpcError<'t> {
    /// The error code, from a number or from a string that contains one; none if there is none.
    pub fn code(&self) -> Option<i32> {
        let code = if self.0.kind() == JsonKind::Object { self.0.get("code")? } else { self.0 };
        match code.text() {
            Some(text) => crate::json::Digits::new(text.raw().as_bytes())?.to_i32().ok(),
            None => code.number()?.to_i32().ok(),
        }
    }

    /// The text of the error: its message, or else its data, or else the error itself. Control
    /// characters stay in it. Make it printable before you write it to a terminal.
    pub fn message(&self) -> Unquoted<'t> {
        let member = |name| self.0.get(name).filter(|json| !Unquoted(*json).is_empty());
        Unquoted(member("message").or_else(|| member("data")).unwrap_or(self.0))
    }

    /// The data of the error; null if there is none.
    pub fn data(&self) -> Json<'t> {
        self.0.get("data").unwrap_or(Json::NULL)
    }

    /// The error as JSON, as it came.
    pub fn json(&self) -> Json<'t> {
        self.0
    }
}

/// Displays the message of the error.
impl fmt::Display for RpcError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message().fmt(f)
    }
}

impl core::error::Error for RpcError<'_> {}

/// A JSON value in the form in which a person reads it. A string is decoded and without quotes,
/// null is the empty text, and any other value is its JSON text. Control characters stay as they
/// are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Unquoted<'t>(pub Json<'t>);

impl Unquoted<'_> {
    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_null() || self.0.text().is_some_and(|text| text.is_empty())
    }
}

impl fmt::Display for Unquoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.kind(), self.0.text()) {
            (JsonKind::Null, _) => Ok(()),
            (_, Some(text)) => fmt::Display::fmt(&text, f),
            _ => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl fmt::Debug for Unquoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The result of `execute` (gevals "Result Fields"). A member that is null counts as absent.
///
/// If a member of the exact name is missing, a member whose name differs only in upper and lower
/// case is used, as the real host does.
#[derive(Debug, Clone, Copy)]
pub struct ExecuteResult<'t> {
    kind: JsonKind,
    /// In the order of [`RESULT_MEMBERS`].
    members: [Option<Json<'t>>; 4],
}

const RESULT_MEMBERS: [&str; 4] = ["success", "message", "error", "outputs"];

impl<'t> ExecuteResult<'t> {
    /// Reads the `result` of a reply, in one pass.
    pub fn new(result: Json<'t>) -> Self {
        let (mut members, mut in_any_case) = ([None; 4], [None; 4]);
        for (key, value) in result.members() {
            let plain = key.as_str();
            for ((name, exact), other) in RESULT_MEMBERS.iter().zip(&mut members).zip(&mut in_any_case) {
                let (is_exact, is_alike) = match plain {
                    Some(key) => (key == *name, key.eq_ignore_ascii_case(name)),
                    None => (key == **name, is_in_any_case(key, name)),
                };
                if is_alike {
                    *(if is_exact { exact } else { other }) = Some(value);
                    break;
                }
            }
        }
        for (exact, other) in members.iter_mut().zip(in_any_case) {
            *exact = exact.or(other).filter(|value| !value.is_null());
        }
        Self { kind: result.kind(), members }
    }

    /// Whether the operation succeeded. It is an error if the result does not say; the call has
    /// then not succeeded.
    pub fn success(&self) -> Result<bool, &'static str> {
        let [success, ..] = self.members;
        match (self.kind, success) {
            (JsonKind::Object, Some(success)) => success.bool().ok_or("the result's success is not a boolean"),
            (JsonKind::Object, None) => Err("the result has no success"),
            _ => Err("the result is not an object"),
        }
    }

    /// The message of the result; none if it is missing or empty.
    pub fn message(&self) -> Option<Unquoted<'t>> {
        let [_, message, ..] = self.members;
        message.map(Unquoted).filter(|plain| !plain.is_empty())
    }

    /// The error text of the result; none if it is missing or empty.
    pub fn error(&self) -> Option<Unquoted<'t>> {
        let [_, _, error, _] = self.members;
        error.map(Unquoted).filter(|plain| !plain.is_empty())
    }

    /// The outputs, in their order. A value that is not a string is its JSON text, and null is the
    /// empty string.
    pub fn outputs(&self) -> OutputsIter<'t> {
        let [.., outputs] = self.members;
        OutputsIter(outputs.unwrap_or(Json::NULL).members())
    }

    /// The outputs as JSON, whatever they are.
    pub fn outputs_json(&self) -> Option<Json<'t>> {
        let [.., outputs] = self.members;
        outputs
    }

    /// The reason why the outputs cannot be read: they are not an object.
    pub fn outputs_error(&self) -> Option<&'static str> {
        let [.., outputs] = self.members;
        (outputs?.kind() != JsonKind::Object).then_some("the result's outputs are not an object")
    }
}

/// An iterator over the outputs of a call: names and values.
#[derive(Debug, Clone)]
pub struct OutputsIter<'t>(Members<'t>);

impl<'t> Iterator for OutputsIter<'t> {
    type Item = (Text<'t>, Unquoted<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (name, Unquoted(value)))
    }
}

/// Finds the member called `name` of an object. If there is none, a name that differs only in upper
/// and lower case is accepted. A member that is null counts as absent.
pub fn member<'t>(object: Json<'t>, name: &str) -> Option<Json<'t>> {
    object
        .get(name)
        .or_else(|| object.members().filter(|(key, _)| is_in_any_case(*key, name)).last().map(|(_, value)| value))
        .filter(|value| !value.is_null())
}

fn is_in_any_case(key: Text<'_>, name: &str) -> bool {
    key.chars().map(|char| char.to_ascii_lowercase()).eq(name.chars().map(|char| char.to_ascii_lowercase()))
}
