//! Events as Amplifier has them: PROTOCOLS.md §3, Event Schema v1.

use core::fmt;

use crate::json::view::{Json, Kind, Text};
use crate::json::write::{Message, Writer};
use crate::json::{Digits, check::SyntaxError};

/// An event, checked, as a view over its text: what [`Extension::on_event`](crate::Extension::on_event) gets.
///
/// Members that the schema does not name are left alone, and names of events that the taxonomy does not have are as good as
/// those that it has. Of a member that is there twice, the last counts.
///
/// ```
/// use rigline::event::{Event, Member};
/// let event = Event::parse(br#"{"id":"1","ts":1.5,"event":"session:end","component":"kernel","module":null}"#)?;
/// assert!(event.event == "session:end");
/// assert!(matches!((event.module, event.status), (Member::Null, Member::Absent)));
/// # Ok::<(), rigline::event::EventError>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The event's identifier.
    pub id: Text<'a>,
    /// When it happened: a number, in whatever unit its sender counts.
    pub ts: Digits<'a>,
    /// What happened, such as `session:start`.
    pub event: Text<'a>,
    /// Where it happened.
    pub component: Text<'a>,
    /// The module that it is about.
    pub module: Member<Text<'a>>,
    /// How it ended, such as `ok` or `error`.
    pub status: Member<Text<'a>>,
    /// How long it took, in milliseconds.
    pub duration_ms: Member<Digits<'a>>,
    /// What else there is to say: an object.
    pub data: Member<Json<'a>>,
    /// What went wrong: an object.
    pub error: Member<Json<'a>>,
    /// The session that it belongs to.
    pub session_id: Member<Text<'a>>,
    /// The request that it belongs to.
    pub request_id: Member<Text<'a>>,
    /// The span that it belongs to.
    pub span_id: Member<Text<'a>>,
    json: Json<'a>,
}

impl<'a> Event<'a> {
    /// Checks `text`, and reads it as an event.
    pub fn parse(text: &'a [u8]) -> Result<Self, EventError> {
        Self::read(Json::parse(text).map_err(EventError::Syntax)?)
    }

    /// Reads a JSON value as an event.
    pub fn read(json: Json<'a>) -> Result<Self, EventError> {
        if json.kind() != Kind::Object {
            return Err(EventError::NotAnObject);
        }
        let members = Members(json);
        if json.get("ts").is_none() {
            return Err(EventError::Missing { member: "ts" });
        }
        let optional_text = |name| Ok(members.optional(name, Kind::String, "a string or null")?.map(text));
        Ok(Self {
            id: text(members.required("id", Kind::String, "a string")?),
            ts: digits(members.required("ts", Kind::Number, "a number")?),
            event: text(members.required("event", Kind::String, "a string")?),
            component: text(members.required("component", Kind::String, "a string")?),
            module: optional_text("module")?,
            status: optional_text("status")?,
            duration_ms: match members.optional("duration_ms", Kind::Number, INTEGER)?.map(digits) {
                // JSON Schema counts 1.0 as an integer (draft 2020-12, validation §6.1.1).
                Member::Value(digits) if !digits.is_integer() => return Err(wrong("duration_ms", INTEGER)),
                duration => duration,
            },
            data: members.optional("data", Kind::Object, "an object or null")?,
            error: members.optional("error", Kind::Object, "an object or null")?,
            session_id: optional_text("session_id")?,
            request_id: optional_text("request_id")?,
            span_id: optional_text("span_id")?,
            json,
        })
    }

    /// The event as it was sent, members that the schema does not name included.
    pub fn json(&self) -> Json<'a> {
        self.json
    }
}

const INTEGER: &str = "an integer or null";

/// An object, by its members.
struct Members<'a>(Json<'a>);

impl<'a> Members<'a> {
    fn required(&self, name: &'static str, kind: Kind, expected: &'static str) -> Result<Json<'a>, EventError> {
        match self.0.get(name) {
            None => Err(EventError::Missing { member: name }),
            Some(value) if value.kind() == kind => Ok(value),
            Some(_) => Err(wrong(name, expected)),
        }
    }

    fn optional(&self, name: &'static str, kind: Kind, expected: &'static str) -> Result<Member<Json<'a>>, EventError> {
        match self.0.get(name) {
            None => Ok(Member::Absent),
            Some(value) if value.is_null() => Ok(Member::Null),
            Some(value) if value.kind() == kind => Ok(Member::Value(value)),
            Some(_) => Err(wrong(name, expected)),
        }
    }
}

/// Of a string.
fn text(json: Json<'_>) -> Text<'_> {
    json.text().unwrap_or(Text::of_checked(b""))
}

/// Of a number.
fn digits(json: Json<'_>) -> Digits<'_> {
    json.number().unwrap_or(Digits::ZERO)
}

fn wrong(member: &'static str, expected: &'static str) -> EventError {
    EventError::WrongType { member, expected }
}

/// A member that may be absent or null, which are not the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Member<T> {
    /// It is not there.
    #[default]
    Absent,
    /// It is there, and null.
    Null,
    /// It has a value.
    Value(T),
}

impl<T> Member<T> {
    /// The value, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    fn map<U>(self, read: impl FnOnce(T) -> U) -> Member<U> {
        match self {
            Self::Absent => Member::Absent,
            Self::Null => Member::Null,
            Self::Value(value) => Member::Value(read(value)),
        }
    }
}

/// Why a text is no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventError {
    /// It is not JSON.
    Syntax(SyntaxError),
    /// It is not an object.
    NotAnObject,
    /// A required member is not there.
    Missing {
        /// Its name.
        member: &'static str,
    },
    /// A member has a value of a type that it must not have.
    WrongType {
        /// Its name.
        member: &'static str,
        /// What was expected.
        expected: &'static str,
    },
}

impl EventError {
    /// The member at fault, if one is.
    pub fn member(&self) -> Option<&'static str> {
        match self {
            Self::Missing { member } | Self::WrongType { member, .. } => Some(member),
            Self::Syntax(_) | Self::NotAnObject => None,
        }
    }
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => write!(f, "not JSON: {error}"),
            Self::NotAnObject => f.write_str("an event must be an object"),
            Self::Missing { member } => write!(f, "{member}: required, but missing"),
            Self::WrongType { member, expected } => write!(f, "{member}: expected {expected}"),
        }
    }
}

impl core::error::Error for EventError {}

/// The sentence of its `Display`, without formatting code.
impl Message for EventError {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        match self {
            Self::Syntax(SyntaxError { kind, offset }) => {
                out.raw(b"not JSON: ");
                kind.write_escaped(out);
                out.raw(b" at byte ");
                out.usize(*offset);
            }
            Self::NotAnObject => out.raw(b"an event must be an object"),
            Self::Missing { member } => {
                out.text_part(member);
                out.raw(b": required, but missing");
            }
            Self::WrongType { member, expected } => {
                out.text_part(member);
                out.raw(b": expected ");
                out.text_part(expected);
            }
        }
    }
}
