//! The content of a reply, whatever its shape.

use core::fmt;

use crate::json::view::{Json, Kind, Members, Text};

/// The reply to a request.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'t> {
    /// The request's id.
    pub id: u32,
    /// The content.
    pub body: Body<'t>,
}

/// The content of a reply.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Body<'t> {
    /// The member `result`.
    Result(Json<'t>),
    /// The member `error`; it counts where there are both, unless it is null.
    Error(RpcError<'t>),
    /// JSON-RPC does not allow such a reply.
    Invalid(&'static str),
}

/// A reply's `error`, whatever its shape (JSON-RPC 2.0 §5.1 has an object).
#[derive(Debug, Clone, Copy)]
pub struct RpcError<'t>(pub(super) Json<'t>);

impl<'t> RpcError<'t> {
    /// The code, from a number or from a string that holds one.
    pub fn code(&self) -> Option<i32> {
        let code = if self.0.kind() == Kind::Object { self.0.get("code")? } else { self.0 };
        match code.text() {
            Some(text) => crate::json::Digits::new(text.raw().as_bytes())?.to_i32().ok(),
            None => code.number()?.to_i32().ok(),
        }
    }

    /// The best text there is: the message, else the data, else the error itself.
    pub fn message(&self) -> Plain<'t> {
        let member = |name| self.0.get(name).filter(|json| !Plain(*json).is_empty());
        Plain(member("message").or_else(|| member("data")).unwrap_or(self.0))
    }

    /// The data; null if there is none.
    pub fn data(&self) -> Json<'t> {
        self.0.get("data").unwrap_or(Json::NULL)
    }

    /// The error as it came.
    pub fn json(&self) -> Json<'t> {
        self.0
    }
}

/// Its message.
impl fmt::Display for RpcError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message().fmt(f)
    }
}

impl core::error::Error for RpcError<'_> {}

/// A value as a person reads it: a string decoded and without its quotes, null as nothing, any other as its JSON text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Plain<'t>(pub Json<'t>);

impl Plain<'_> {
    /// Whether nothing would be printed.
    pub fn is_empty(&self) -> bool {
        self.0.is_null() || self.0.text().is_some_and(|text| text.is_empty())
    }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.kind(), self.0.text()) {
            (Kind::Null, _) => Ok(()),
            (_, Some(text)) => fmt::Display::fmt(&text, f),
            _ => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl fmt::Debug for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The result of `execute`: gevals "Result Fields". Null means absent everywhere.
///
/// Names are found in any case where they are not there as the text spells them, since the real host finds them so.
#[derive(Debug, Clone, Copy)]
pub struct ExecuteResult<'t> {
    kind: Kind,
    /// In the order of [`RESULT_MEMBERS`].
    members: [Option<Json<'t>>; 4],
}

const RESULT_MEMBERS: [&str; 4] = ["success", "message", "error", "outputs"];

impl<'t> ExecuteResult<'t> {
    /// Reads a reply's `result`, in one pass.
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

    /// Whether the operation succeeded; the error says why that is not known; the call did not succeed then.
    pub fn success(&self) -> Result<bool, &'static str> {
        let [success, ..] = self.members;
        match (self.kind, success) {
            (Kind::Object, Some(success)) => success.bool().ok_or("the result's success is not a boolean"),
            (Kind::Object, None) => Err("the result has no success"),
            _ => Err("the result is not an object"),
        }
    }

    /// The summary, if there is one.
    pub fn message(&self) -> Option<Plain<'t>> {
        let [_, message, ..] = self.members;
        message.map(Plain).filter(|plain| !plain.is_empty())
    }

    /// The error's details, if there are any.
    pub fn error(&self) -> Option<Plain<'t>> {
        let [_, _, error, _] = self.members;
        error.map(Plain).filter(|plain| !plain.is_empty())
    }

    /// The outputs in their order. Values that are not strings come as their JSON text, null as the empty string.
    pub fn outputs(&self) -> Outputs<'t> {
        let [.., outputs] = self.members;
        Outputs(outputs.unwrap_or(Json::NULL).members())
    }

    /// The fault of the outputs: they are not an object.
    pub fn outputs_error(&self) -> Option<&'static str> {
        let [.., outputs] = self.members;
        (outputs?.kind() != Kind::Object).then_some("the result's outputs are not an object")
    }
}

/// The outputs of a call: names and values.
#[derive(Debug, Clone)]
pub struct Outputs<'t>(Members<'t>);

impl<'t> Iterator for Outputs<'t> {
    type Item = (Text<'t>, Plain<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (name, Plain(value)))
    }
}

/// An object's member that is not null: called `name`, or else so in another case.
pub fn member<'t>(object: Json<'t>, name: &str) -> Option<Json<'t>> {
    object
        .get(name)
        .or_else(|| object.members().filter(|(key, _)| is_in_any_case(*key, name)).last().map(|(_, value)| value))
        .filter(|value| !value.is_null())
}

fn is_in_any_case(key: Text<'_>, name: &str) -> bool {
    key.chars().map(|char| char.to_ascii_lowercase()).eq(name.chars().map(|char| char.to_ascii_lowercase()))
}
