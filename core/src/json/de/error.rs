//! Why a value could not be decoded, and where it is.

use core::fmt;

use serde::de::{self, Expected, Unexpected};

use super::{MAX_DEPTH, MAX_PATH};
use crate::json::write::Writer;

/// Why a value could not be decoded, and where it is.
///
/// It is displayed as `a[2].b: expected a string`; [`display_in`](Self::display_in) puts the name of the whole in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    pub(super) kind: Kind,
    /// The innermost segment first.
    pub(super) path: [Segment; MAX_PATH],
    pub(super) segments: u8,
    pub(super) cut: bool,
    pub(super) found: Found,
}

/// How many bytes of the value that breaks a rule, or of an unknown member's name, an error keeps. A longer one is cut, and ends
/// with three dots.
pub const MAX_FOUND: usize = 32;

/// A text of up to [`MAX_FOUND`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    text: [u8; MAX_FOUND],
    length: u8,
    /// It is the text of a JSON string, between its quotes.
    is_string: bool,
}

impl Found {
    pub(super) const NONE: Self = Self { text: [0; MAX_FOUND], length: 0, is_string: false };

    #[cold]
    pub(super) fn new(text: &[u8]) -> Self {
        let mut found = Self::NONE;
        let mut out = Writer::new(&mut found.text);
        let mut most = text.len();
        if most > MAX_FOUND {
            most = MAX_FOUND - 3;
            // Not within a character.
            while most > 0 && text.get(most).is_some_and(|byte| byte & 0xC0 == 0x80) {
                most = most.saturating_sub(1);
            }
        }
        out.raw(text.get(..most).unwrap_or_default());
        if most < text.len() {
            out.raw(b"...");
        }
        found.length = u8::try_from(out.len()).unwrap_or_default();
        found
    }

    #[cold]
    pub(super) fn quoted(text: &[u8]) -> Self {
        Self { is_string: true, ..Self::new(text) }
    }

    /// `length 12`.
    #[cold]
    pub(super) fn length(length: usize) -> Self {
        let mut found = Self::NONE;
        let mut out = Writer::new(&mut found.text);
        out.raw(b"length ");
        out.usize(length);
        found.length = u8::try_from(out.len()).unwrap_or_default();
        found
    }

    fn as_str(&self) -> &str {
        self.text.get(..usize::from(self.length)).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
    }
}

/// The fault of a value. It is what goes up through serde: three words, since every `Result` of every visitor carries
/// it. The path stays behind in the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The text is not JSON: it was not checked.
    NotJson,
    /// The value is not one of the type, which is named: "an integer from 0 to 65535".
    Expected(&'static str),
    /// The value has the wrong JSON type. The expected one is named: "a string".
    Unexpected(&'static str),
    /// The type refuses the value for its own reason.
    Refused,
    /// A field that must be there is not.
    MissingField(&'static str),
    /// The object has a member that the type does not know, and refuses. [`DecodeError::found`] has its name.
    UnknownField {
        /// The fields it knows.
        expected: &'static [&'static str],
    },
    /// The enum has no such variant.
    UnknownVariant {
        /// The variants it has.
        expected: &'static [&'static str],
    },
    /// The text is none of those that its field may have. [`DecodeError::found`] has it.
    NotOneOf {
        /// The texts that there are. A single one stands here twice.
        expected: &'static [&'static str],
    },
    /// A field is given more than once.
    DuplicateField(&'static str),
    /// A string has half of a surrogate pair, which is not a character.
    LoneSurrogate,
    /// The array does not have this number of elements.
    Elements(u32),
    /// The value is too long or too short for its type: its length, as far as it was counted, or 0 where that is not known.
    /// [`DecodeError::found`] has it as text.
    Length(u32),
    /// More than [`MAX_DEPTH`] containers are open at once.
    Depth,
    /// The value breaks a rule of its field, which is named: "is below the minimum 1". [`DecodeError::found`] has the value.
    Rule(&'static str),
}

/// One step on the way to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Segment {
    /// A member of an object.
    Field(&'static str),
    /// An element of an array, counted from 0.
    Index(u32),
}

impl Segment {
    /// A member whose name is not known at compile time, as in a map: `*`.
    pub const ANY_KEY: Self = Self::Field("*");
}

impl DecodeError {
    /// An error of the whole value; [`within`](Self::within) moves it to a part.
    pub const fn new(kind: Kind) -> Self {
        Self { kind, path: [Segment::ANY_KEY; MAX_PATH], segments: 0, cut: false, found: Found::NONE }
    }

    /// A value that breaks a rule of its field: `rule` goes on where the value ends, as "is below the minimum 1" does.
    /// `found` is the value as text, or `length 3`; one longer than [`MAX_FOUND`] bytes is cut.
    pub fn rule(rule: &'static str, found: &str) -> Self {
        Self { found: Found::new(found.as_bytes()), ..Self::new(Kind::Rule(rule)) }
    }

    /// The same error of the whole in which this value is the part `segment`.
    #[must_use]
    pub fn within(mut self, segment: Segment) -> Self {
        push_segment(&mut self.path, &mut self.segments, &mut self.cut, segment);
        self
    }

    /// The fault.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The value that breaks a rule or is not of the expected type, or the name of the unknown member, as JSON without quotes. It is
    /// cut to [`MAX_FOUND`] bytes.
    pub fn found(&self) -> &str {
        self.found.as_str()
    }

    /// The way to the wrong value from the outside in: its last [`MAX_PATH`] steps.
    pub fn path(&self) -> impl Iterator<Item = Segment> {
        self.path.iter().take(usize::from(self.segments)).rev().copied()
    }

    /// Displays the error with a name for the whole value: `args.samples: …`.
    pub fn display_in<'a>(&'a self, root: &'a str) -> impl fmt::Display {
        InRoot { error: self, root }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display_in("").fmt(f)
    }
}

impl core::error::Error for DecodeError {}

/// An error for a `Deserialize` of one's own that names what was expected, also without an allocator: `expected` holds
/// one sentence such as "a duration like 1m30s".
///
/// serde's constructors take texts that have to be formatted; this one alone takes `&'static str`s, in another role.
pub fn expected<E: de::Error>(expected: &'static [&'static str]) -> E {
    E::unknown_variant(THIS_VALUE, expected)
}

/// An error for a value that breaks a rule of its field: `rule` holds one sentence that goes on where the value ends, such
/// as "is below the minimum 1". The decoder adds the number, or the length of the string, array or object, that it has
/// read last.
pub fn rule<E: de::Error>(rule: &'static [&'static str]) -> E {
    E::unknown_variant(THIS_RULE, rule)
}

/// As [`THIS_VALUE`], for [`rule`].
const THIS_RULE: &str = "(that value)";

/// The variant name under which [`expected`] passes a text through serde. No JSON key gets compared with it.
const THIS_VALUE: &str = "(this value)";

struct InRoot<'a> {
    error: &'a DecodeError,
    root: &'a str,
}

impl fmt::Display for InRoot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(f, |put| self.error.pieces(self.root, put))
    }
}

impl core::error::Error for Kind {}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(f, |put| self.pieces(put))
    }
}

fn display(f: &mut fmt::Formatter<'_>, pieces: impl FnOnce(&mut dyn FnMut(&str))) -> fmt::Result {
    let mut result = Ok(());
    pieces(&mut |piece| result = result.and_then(|()| f.write_str(piece)));
    result
}

impl DecodeError {
    /// Hands out the text that [`display_in`](Self::display_in) shows, in pieces: nothing of `core::fmt` is linked.
    pub(crate) fn pieces(&self, root: &str, put: &mut dyn FnMut(&str)) {
        // A field that is missing or given twice is the last step of the path itself.
        let mut last = match self.kind {
            Kind::MissingField(name) | Kind::DuplicateField(name) => Some(Segment::Field(name)),
            _ => None,
        };
        put(root);
        let mut start = root.is_empty();
        if self.cut {
            put("...");
            start = true;
        }
        let mut left = usize::from(self.segments);
        loop {
            let segment = match left.checked_sub(1) {
                Some(place) => {
                    left = place;
                    self.path.get(place).copied()
                }
                None => last.take(),
            };
            let Some(segment) = segment else { break };
            match segment {
                Segment::Field(name) => {
                    if !start {
                        put(".");
                    }
                    put(name);
                }
                Segment::Index(index) => {
                    put("[");
                    put_number(index, put);
                    put("]");
                }
            }
            start = false;
        }
        if !start {
            put(": ");
        }
        match (self.kind, self.found()) {
            (Kind::Length(_), found) if !found.is_empty() => {
                put(found);
                return put(" does not fit");
            }
            (Kind::Rule(_), "") => put("the value "),
            (Kind::Rule(_), found) => {
                put(found);
                put(" ");
            }
            (Kind::NotOneOf { .. }, found) => {
                put("unknown ");
                if let (Some(Segment::Field(name)), true) = (self.path.first(), self.segments > 0) {
                    put(name);
                    put(" ");
                }
                put("`");
                put(found);
                put("`: ");
            }
            (Kind::UnknownField { .. }, found) if !found.is_empty() => {
                put(found);
                put(" is an ");
            }
            _ => {}
        }
        self.kind.pieces(put);
        if matches!(self.kind, Kind::Expected(_)) && (self.found.is_string || self.found.length > 0) {
            put(if self.found.is_string { "; got the text \"" } else { "; got " });
            put(self.found());
            if self.found.is_string {
                put("\"");
            }
        }
    }
}

impl Kind {
    fn pieces(&self, put: &mut dyn FnMut(&str)) {
        match *self {
            Self::NotJson => put("the text is not JSON"),
            Self::Expected(what) => {
                put("expected ");
                put(what);
            }
            Self::Unexpected(what) => {
                put(what);
                put(" is not accepted here");
            }
            Self::Refused => put("value refused"),
            Self::MissingField(_) => put("required, but missing"),
            Self::UnknownField { expected: [] } => put("unknown member; none are expected here"),
            Self::UnknownField { expected } => list(put, "unknown member; known: ", expected),
            Self::UnknownVariant { expected } => list(put, "expected one of: ", expected),
            Self::NotOneOf { expected: [one, other] } if one == other => list(put, "expected ", &[one]),
            Self::NotOneOf { expected } => list(put, "expected one of ", expected),
            Self::DuplicateField(_) => put("given more than once"),
            Self::LoneSurrogate => put("a lone surrogate"),
            Self::Elements(count) => {
                put("expected an array of ");
                put_number(count, put);
                put(" elements");
            }
            Self::Length(_) => put("the wrong length"),
            Self::Depth => {
                put("nested deeper than ");
                put_number(u32::from(MAX_DEPTH), put);
            }
            Self::Rule(rule) => put(rule),
        }
    }
}

fn put_number(number: u32, put: &mut dyn FnMut(&str)) {
    let mut digits = [0; 10];
    let mut out = Writer::new(&mut digits);
    out.u32(number);
    put(str::from_utf8(out.as_written()).unwrap_or_default());
}

fn list(put: &mut dyn FnMut(&str), lead: &str, names: &[&str]) {
    put(lead);
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            put(", ");
        }
        put(name);
    }
}

pub(super) fn push_segment(path: &mut [Segment; MAX_PATH], segments: &mut u8, cut: &mut bool, segment: Segment) {
    if let Some(place) = path.get_mut(usize::from(*segments)) {
        *place = segment;
        *segments += 1;
    } else {
        *cut = true;
    }
}

/// serde's texts are dropped unformatted: they would link float formatting.
impl de::Error for Kind {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Refused
    }

    fn invalid_type(found: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self::Unexpected(match found {
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "such a number",
            Unexpected::Char(_) | Unexpected::Str(_) | Unexpected::Bytes(_) => "a string",
            Unexpected::Unit | Unexpected::Option => "null",
            Unexpected::Seq => "an array",
            Unexpected::Map => "an object",
            _ => "this value",
        })
    }

    fn invalid_value(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self::Unexpected("this value")
    }

    fn invalid_length(length: usize, _: &dyn Expected) -> Self {
        Self::Length(u32::try_from(length).unwrap_or(u32::MAX))
    }

    // The names are constants where it is called.
    #[inline(always)]
    fn unknown_variant(name: &str, expected: &'static [&'static str]) -> Self {
        match expected {
            [what] if name == THIS_VALUE => Self::Expected(what),
            [rule] if name == THIS_RULE => Self::Rule(rule),
            _ if name == THIS_RULE => Self::NotOneOf { expected },
            _ => Self::UnknownVariant { expected },
        }
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::UnknownField { expected }
    }

    fn missing_field(name: &'static str) -> Self {
        Self::MissingField(name)
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::DuplicateField(name)
    }
}
