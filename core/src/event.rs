//! Amplifier's events (§3 of its protocol text, Event Schema v1).

use core::fmt;

use crate::json::write::{Message, Writer};
use crate::json::{Digits, check::SyntaxError};
use crate::json::{Json, JsonKind, Text};

/// A checked event, as a view of its text. [`Extension::on_event`](crate::Extension::on_event) gets
/// it.
///
/// Members that the schema does not name are allowed, and so are names of events that the taxonomy
/// does not have. If a member occurs twice, the last one counts.
///
/// ```
/// use rigline::{Event, EventMember};
/// let event = Event::parse(br#"{"id":"1","ts":1.5,"event":"session:end","component":"kernel","module":null}"#)?;
/// assert!(event.event() == "session:end");
/// assert!(matches!((event.module(), event.status()), (EventMember::Null, EventMember::Absent)));
/// # Ok::<(), rigline::EventError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Event<'a>(Json<'a>);

/// The members of the schema, in the order in which they are checked.
static MEMBERS: [(&str, JsonKind, Presence, &str); 11] = [
    ("id", JsonKind::String, Presence::Required, "a string"),
    ("ts", JsonKind::Number, Presence::Required, "a number"),
    ("event", JsonKind::String, Presence::Required, "a string"),
    ("component", JsonKind::String, Presence::Required, "a string"),
    ("module", JsonKind::String, Presence::Optional, "a string or null"),
    ("status", JsonKind::String, Presence::Optional, "a string or null"),
    ("data", JsonKind::Object, Presence::Optional, "an object or null"),
    ("error", JsonKind::Object, Presence::Optional, "an object or null"),
    ("session_id", JsonKind::String, Presence::Optional, "a string or null"),
    ("request_id", JsonKind::String, Presence::Optional, "a string or null"),
    ("span_id", JsonKind::String, Presence::Optional, "a string or null"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

impl<'a> Event<'a> {
    /// Parses `text` as an event.
    ///
    /// # Errors
    /// The text is not JSON, or does not conform to the schema.
    pub fn parse(text: &'a [u8]) -> Result<Self, EventError> {
        Self::read(Json::parse(text).map_err(EventError::Syntax)?)
    }

    /// Reads a JSON value as an event.
    ///
    /// # Errors
    /// The value does not conform to the schema.
    pub fn read(json: Json<'a>) -> Result<Self, EventError> {
        const INTEGER: &str = "an integer or null";
        if json.kind() != JsonKind::Object {
            return Err(EventError::NotAnObject);
        }
        if json.get("ts").is_none() {
            return Err(EventError::Missing { member: "ts" });
        }
        for &(member, kind, presence, expected) in &MEMBERS {
            match json.get(member) {
                None if presence == Presence::Required => return Err(EventError::Missing { member }),
                None => {}
                Some(value) if value.kind() == kind => {}
                Some(value) if value.is_null() && presence == Presence::Optional => {}
                Some(_) => return Err(EventError::WrongType { member, expected }),
            }
        }
        // JSON Schema counts 1.0 as an integer (draft 2020-12, validation §6.1.1).
        match json.get("duration_ms").filter(|value| !value.is_null()) {
            Some(value) if !value.number().is_some_and(|digits| digits.is_integer()) => {
                Err(EventError::WrongType { member: "duration_ms", expected: INTEGER })
            }
            _ => Ok(Self(json)),
        }
    }

    /// A view over what [`read`](Self::read) has accepted.
    pub(crate) fn of_checked(json: Json<'a>) -> Self {
        Self(json)
    }

    /// The event's identifier.
    pub fn id(&self) -> Text<'a> {
        self.required("id")
    }

    /// The time of the event: a number, in the unit that its sender uses.
    pub fn ts(&self) -> Digits<'a> {
        self.0.get("ts").and_then(|value| value.number()).unwrap_or(Digits::ZERO)
    }

    /// The name of the event, such as `session:start`.
    pub fn event(&self) -> Text<'a> {
        self.required("event")
    }

    /// The component in which the event happened.
    pub fn component(&self) -> Text<'a> {
        self.required("component")
    }

    /// The module that the event is about.
    pub fn module(&self) -> EventMember<Text<'a>> {
        self.member("module").text()
    }

    /// The status of the event, such as `ok` or `error`.
    pub fn status(&self) -> EventMember<Text<'a>> {
        self.member("status").text()
    }

    /// The duration of the event, in milliseconds.
    pub fn duration_ms(&self) -> EventMember<Digits<'a>> {
        self.member("duration_ms").map(|value| value.number().unwrap_or(Digits::ZERO))
    }

    /// Further data of the event: an object.
    pub fn data(&self) -> EventMember<Json<'a>> {
        self.member("data")
    }

    /// The error that the event reports: an object.
    pub fn error(&self) -> EventMember<Json<'a>> {
        self.member("error")
    }

    /// The id of the session that the event belongs to.
    pub fn session_id(&self) -> EventMember<Text<'a>> {
        self.member("session_id").text()
    }

    /// The id of the request that the event belongs to.
    pub fn request_id(&self) -> EventMember<Text<'a>> {
        self.member("request_id").text()
    }

    /// The id of the span that the event belongs to.
    pub fn span_id(&self) -> EventMember<Text<'a>> {
        self.member("span_id").text()
    }

    /// The event as it was sent, with the members that the schema does not name.
    pub fn json(&self) -> Json<'a> {
        self.0
    }

    fn required(&self, name: &str) -> Text<'a> {
        self.0.get(name).and_then(|value| value.text()).unwrap_or(Text::of_checked(b""))
    }

    fn member(&self, name: &str) -> EventMember<Json<'a>> {
        match self.0.get(name) {
            None => EventMember::Absent,
            Some(value) if value.is_null() => EventMember::Null,
            Some(value) => EventMember::Value(value),
        }
    }
}

impl<'a> EventMember<Json<'a>> {
    fn text(self) -> EventMember<Text<'a>> {
        self.map(|value| value.text().unwrap_or(Text::of_checked(b"")))
    }
}

/// An optional member of an object. Absent and null are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum EventMember<T> {
    /// The member is not there.
    #[default]
    Absent,
    /// The member is there, and null.
    Null,
    /// The member has a value.
    Value(T),
}

impl<T> EventMember<T> {
    /// The value, if the member is neither absent nor null.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    fn map<U>(self, read: impl FnOnce(T) -> U) -> EventMember<U> {
        match self {
            Self::Absent => EventMember::Absent,
            Self::Null => EventMember::Null,
            Self::Value(value) => EventMember::Value(read(value)),
        }
    }
}

/// The reason why a text is not an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventError {
    /// The line is not JSON.
    Syntax(SyntaxError),
    /// The line is not an object.
    NotAnObject,
    /// A required member is not there.
    Missing {
        /// The name of the member.
        member: &'static str,
    },
    /// A member has a value of a wrong type.
    WrongType {
        /// The name of the member.
        member: &'static str,
        /// The type that the member must have, such as `a string or null`.
        expected: &'static str,
    },
}

impl EventError {
    /// The name of the member that is missing or has a wrong type; none for other errors.
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

/// Writes the sentence of `Display` without formatting code.
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
