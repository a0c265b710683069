//! The reason why a value could not be decoded, and the path to the value.

use core::fmt;

use serde::de::{self, Expected, Unexpected};

use super::{MAX_DEPTH, MAX_PATH};
use crate::json::write::Writer;

/// The reason why a value could not be decoded, and the path to the value.
///
/// It is displayed as `a[2].b: expected a string`. [`display_in`](Self::display_in) puts a name for
/// the whole value in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    pub(super) kind: DecodeErrorKind,
    /// The innermost segment first.
    pub(super) path: [Segment; MAX_PATH],
    pub(super) segments: u8,
    pub(super) cut: bool,
    pub(super) found: FoundText,
}

/// The greatest number of bytes that an error keeps of a wrong value, or of the name of an unknown
/// member. A longer text is cut, and ends with three dots.
pub const MAX_FOUND: usize = 32;

/// A text of up to [`MAX_FOUND`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundText {
    text: [u8; MAX_FOUND],
    length: u8,
    /// It is the text of a JSON string, between its quotes.
    is_string: bool,
}

impl FoundText {
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

/// The kind of a decoding error. It is small (three words), because every `Result` of every visitor
/// contains it. The path is kept in the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The text is not JSON, and was not checked before.
    NotJson,
    /// The value cannot be one of the expected type. The text describes that type, such as "an
    /// integer from 0 to 65535".
    Expected(&'static str),
    /// The value has the wrong JSON type. The text names the type of the value, such as "a string".
    Unexpected(&'static str),
    /// The type refuses the value for a reason of its own, whose text is not kept.
    Refused,
    /// A required field is missing. The text is its name.
    MissingField(&'static str),
    /// The object has a member that the type does not know and refuses. [`DecodeError::found`]
    /// returns its name.
    UnknownField {
        /// The names of the fields that the type knows.
        expected: &'static [&'static str],
    },
    /// The enum has no variant of that name.
    UnknownVariant {
        /// The names of the variants that the enum has.
        expected: &'static [&'static str],
    },
    /// The text is none of those that its field may have. [`DecodeError::found`] returns the text.
    NotOneOf {
        /// The allowed texts. A single allowed text is listed twice.
        expected: &'static [&'static str],
    },
    /// A field occurs more than once. The text is its name.
    DuplicateField(&'static str),
    /// A string contains one half of a surrogate pair, which is not a character.
    LoneSurrogate,
    /// The array must have this number of elements, and has another.
    Elements(u32),
    /// The value is too long or too short for its type. The number is its length as far as it was
    /// counted, or 0 if unknown. [`DecodeError::found`] returns the length as text.
    Length(u32),
    /// More than [`MAX_DEPTH`] arrays and objects are open at once.
    Depth,
    /// The value breaks a rule of its field. The text names the rule, such as "is below the minimum
    /// 1". [`DecodeError::found`] returns the value.
    Rule(&'static str),
}

/// One step of the path to a wrong value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Segment {
    /// A member of an object.
    Field(&'static str),
    /// An element of an array, counted from 0.
    Index(u32),
}

impl Segment {
    /// A member whose name is not known at compile time, as in a map. It is displayed as `*`.
    pub const ANY_KEY: Self = Self::Field("*");
}

impl DecodeError {
    /// An error that concerns the whole value. [`within`](Self::within) makes it concern a part.
    pub const fn new(kind: DecodeErrorKind) -> Self {
        Self { kind, path: [Segment::ANY_KEY; MAX_PATH], segments: 0, cut: false, found: FoundText::NONE }
    }

    /// An error for a value that breaks a rule of its field. `rule` follows the value in the
    /// sentence, such as "is below the minimum 1". `found` is the value as text, or its length such
    /// as `length 3`. It is cut to [`MAX_FOUND`] bytes.
    pub fn rule(rule: &'static str, found: &str) -> Self {
        Self { found: FoundText::new(found.as_bytes()), ..Self::new(DecodeErrorKind::Rule(rule)) }
    }

    /// Adds an outer step to the path: the value with the error is the part `segment` of another
    /// value.
    #[must_use]
    pub fn within(mut self, segment: Segment) -> Self {
        push_segment(&mut self.path, &mut self.segments, &mut self.cut, segment);
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> DecodeErrorKind {
        self.kind
    }

    /// The value that breaks a rule or is not of the expected type, or the name of the unknown
    /// member, as JSON without quotes. It is cut to [`MAX_FOUND`] bytes.
    pub fn found(&self) -> &str {
        self.found.as_str()
    }

    /// The path to the wrong value, from the outside in: its last [`MAX_PATH`] steps.
    pub fn path(&self) -> impl Iterator<Item = Segment> {
        self.path.iter().take(usize::from(self.segments)).rev().copied()
    }

    /// Displays the error with a name for the whole value, as in `args.samples: …`.
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

/// Makes an error for a `Deserialize` of your own that names the expected value, also without an
/// allocator. `expected` contains one description, such as "a duration like 1m30s".
///
/// Other constructors of serde's errors take texts that have to be formatted. This function passes
/// the text through the one that takes `&'static str`s.
pub fn expected<E: de::Error>(expected: &'static [&'static str]) -> E {
    E::unknown_variant(THIS_VALUE, expected)
}

/// Makes an error for a value that breaks a rule of its field. `rule` contains one text that
/// follows the value in the sentence, such as "is below the minimum 1". The decoder adds the value
/// that it has read last: the number, or the length of the string, array or object.
pub fn rule<E: de::Error>(rule: &'static [&'static str]) -> E {
    E::unknown_variant(THIS_RULE, rule)
}

/// As [`THIS_VALUE`], for [`rule`].
const THIS_RULE: &str = "(that value)";

/// The variant name under which [`expected`] passes a text through serde. No JSON key gets compared
/// with it.
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

impl core::error::Error for DecodeErrorKind {}

impl fmt::Display for DecodeErrorKind {
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
    /// Hands out the text that [`display_in`](Self::display_in) shows, in pieces: nothing of
    /// `core::fmt` is linked.
    pub(crate) fn pieces(&self, root: &str, put: &mut dyn FnMut(&str)) {
        // A field that is missing or given twice is the last step of the path itself.
        let mut last = match self.kind {
            DecodeErrorKind::MissingField(name) | DecodeErrorKind::DuplicateField(name) => Some(Segment::Field(name)),
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
            (DecodeErrorKind::Length(_), found) if !found.is_empty() => {
                put(found);
                return put(" does not fit");
            }
            (DecodeErrorKind::Rule(_), "") => put("the value "),
            (DecodeErrorKind::Rule(_), found) => {
                put(found);
                put(" ");
            }
            (DecodeErrorKind::NotOneOf { .. }, found) => {
                put("unknown ");
                if let (Some(Segment::Field(name)), true) = (self.path.first(), self.segments > 0) {
                    put(name);
                    put(" ");
                }
                put("`");
                put(found);
                put("`: ");
            }
            (DecodeErrorKind::UnknownField { .. }, found) if !found.is_empty() => {
                put(found);
                put(" is an ");
            }
            _ => {}
        }
        self.kind.pieces(put);
        if matches!(self.kind, DecodeErrorKind::Expected(_)) && (self.found.is_string || self.found.length > 0) {
            put(if self.found.is_string { "; got the text \"" } else { "; got " });
            put(self.found());
            if self.found.is_string {
                put("\"");
            }
        }
    }
}

impl DecodeErrorKind {
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
impl de::Error for DecodeErrorKind {
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
