//! Typed values from checked JSON text, by serde, without copies.
//!
//! The decoder owns the text for as long as the value lives, and decodes string escapes **in place**: decoded text is
//! never longer than its JSON form, so a `&str` field is right and free of copies even when the JSON had `\n`, `\u003c`
//! or a surrogate pair in it.
//!
//! ```
//! #[derive(serde::Deserialize)]
//! struct Args<'a> {
//!     #[serde(borrow)]
//!     label: &'a str,
//!     samples: u16,
//!     rail: Option<u8>,
//! }
//!
//! let mut text = br#"{"label":"5\u00b0 \ud83d\ude00\n","samples":1e3}"#.to_vec();
//! let args: Args = rigline::json::de::from_checked(&mut text)?;
//! assert_eq!((args.label, args.samples, args.rail), ("5° 😀\n", 1000, None));
//!
//! let mut text = br#"{"label":"","samples":65536}"#.to_vec();
//! let error = rigline::json::de::from_checked::<Args>(&mut text).err().unwrap();
//! assert_eq!(error.display_in("args").to_string(), "args.samples: expected an integer from 0 to 65535");
//! # Ok::<(), rigline::json::de::DecodeError>(())
//! ```
//!
//! # What is taken for what
//!
//! | Rust | JSON |
//! |---|---|
//! | `bool`, `()`, `Option` | `true`/`false`, `null`, `null` or the value |
//! | `u8` … `i128` | an integer in any spelling: `1000`, `1e3`, `1000.0`; see [`number`] |
//! | `f32`, `f64` | a number that is finite in that type, rounded to the nearest (on a microcontroller see [`Decimal`](super::decimal::Decimal)) |
//! | `char`, `&str` | a string; `char` takes exactly one character |
//! | `&[u8]` | a string, as UTF-8 |
//! | tuple, array, sequence | an array; a tuple's of exactly its length |
//! | struct | an object, or an array of its fields in order |
//! | map | an object; integer, `bool`, `char` and unit enum keys are read from the key's text |
//! | enum | `"Variant"` or `{"Variant": content}` |
//! | [`Decimal`](super::decimal::Decimal), [`RawJson`](super::raw::RawJson) | a number, any value |
//!
//! With the feature `alloc`, `String`, `Vec`, `Cow`, serde's other enum tags and `flatten` work too. These read
//! through serde's own buffer, in which a number is an integer only if it is written as one (as in `serde_json`).
//!
//! Names of struct fields and enum variants are handed to their visitor as bytes, which saves a UTF-8 check each;
//! derived visitors take them. A hand-written one should too (`visit_bytes`), or ask for `deserialize_str`.
//!
//! # Choices
//!
//! - A lone surrogate (`"\ud800"`) is grammatical JSON (RFC 8259 §8.2) but no text: decoding it is an error. In a member's name
//!   it makes a name that no struct has a field of, and that is passed by as unknown.
//! - A field given twice is an error; a map keeps what its type keeps.
//! - At most [`MAX_DEPTH`] containers may be open at once. Values that the type ignores do not count, and are skipped
//!   without recursion.

#[cfg(any(test, not(target_pointer_width = "64")))]
mod float;

use super::text::{
    NUMBER_TOKEN, RAW_TOKEN, drop_line_breaks, escape, is_delimiter, plain_length, put, put_utf8, scalar_length,
    string_length, value_length,
};
use super::{number, write::Writer};
use core::{fmt, mem};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, Expected, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

/// How many containers may be open at once in a value that is decoded.
pub const MAX_DEPTH: u8 = 128;

/// How many segments of the path to a wrong value an error keeps: the innermost ones.
pub const MAX_PATH: usize = 3;

/// Decodes one value from JSON text that has been checked (RFC 8259, UTF-8).
///
/// The text is consumed: string escapes are decoded in place. Text that was never checked is safe too (an
/// error or some value, never a panic), but not every fault in it is found.
pub fn from_checked<'de, T: Deserialize<'de>>(text: &'de mut [u8]) -> Result<T, DecodeError> {
    from_checked_or(text, false, |error| error)
}

/// [`from_checked`] with an error made of its own: in one place, whatever the type. A handler's stack need not hold what
/// decoding takes. With `numeric_strings`, a string whose text is a number is accepted where a number is expected.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(crate) fn from_checked_or<'de, T: Deserialize<'de>, E>(
    text: &'de mut [u8],
    numeric_strings: bool,
    otherwise: fn(DecodeError) -> E,
) -> Result<T, E> {
    let mut decoder = Decoder {
        rest: text,
        numeric_strings,
        depth: MAX_DEPTH,
        path: [Segment::ANY_KEY; MAX_PATH],
        segments: 0,
        cut: false,
        last: Last::None,
    };
    let value = T::deserialize(&mut decoder).and_then(|value| decoder.end().map(|()| value));
    value.map_err(|fault| otherwise(decoder.error(fault)))
}

/// Decodes a value that was not given: a struct or a map as from `{}`, an `Option` as `None`, `()` as itself.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Args {
///     samples: Option<u16>,
/// }
/// let args: Args = rigline::json::de::from_empty()?;
/// assert_eq!(args.samples, None);
/// # Ok::<(), rigline::json::de::DecodeError>(())
/// ```
pub fn from_empty<'de, T: Deserialize<'de>>() -> Result<T, DecodeError> {
    T::deserialize(Nothing).map_err(DecodeError::of)
}

/// Why a value could not be decoded, and where it is.
///
/// It is displayed as `a[2].b: expected a string`; [`display_in`](Self::display_in) puts the name of the whole in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    fault: Fault,
    /// The innermost segment first.
    path: [Segment; MAX_PATH],
    segments: u8,
    cut: bool,
    found: Found,
}

/// How many bytes of the value that breaks a rule, or of an unknown member's name, an error keeps; of a longer one none.
pub const MAX_FOUND: usize = 20;

/// A text of up to [`MAX_FOUND`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    text: [u8; MAX_FOUND],
    length: u8,
}

impl Found {
    const NONE: Self = Self { text: [0; MAX_FOUND], length: 0 };

    #[cold]
    fn new(text: &[u8]) -> Self {
        let mut found = Self::NONE;
        let mut out = Writer::new(&mut found.text);
        out.raw(text);
        if out.fits() {
            found.length = u8::try_from(text.len()).unwrap_or_default();
        }
        found
    }

    /// `length 12`.
    #[cold]
    fn length(length: usize) -> Self {
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

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The text is not JSON: it was not checked.
    NotJson,
    /// The value is not what the type takes, which is named: "an integer from 0 to 65535".
    Expected(&'static str),
    /// The value has a JSON type that the type does not take, which is named: "a string".
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
    /// A field is given more than once.
    DuplicateField(&'static str),
    /// A string has half of a surrogate pair, which stands for no character.
    LoneSurrogate,
    /// The array does not have this number of elements.
    Elements(u32),
    /// The value is too long or too short for its type. [`DecodeError::found`] has its length, as far as it was looked at.
    Length,
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
        Self::of(Fault::of(kind))
    }

    const fn of(fault: Fault) -> Self {
        Self { fault, path: [Segment::ANY_KEY; MAX_PATH], segments: 0, cut: false, found: Found::NONE }
    }

    /// A value that breaks a rule of its field: `rule` goes on where the value ends, as "is below the minimum 1" does.
    /// `found` is the value as text, or `length 3`; one longer than [`MAX_FOUND`] bytes is not shown.
    pub fn rule(rule: &'static str, found: &str) -> Self {
        Self { found: Found::new(found.as_bytes()), ..Self::new(Kind::Rule(rule)) }
    }

    /// The same error of the whole in which this value is the part `segment`.
    #[must_use]
    pub fn within(mut self, segment: Segment) -> Self {
        push_segment(&mut self.path, &mut self.segments, &mut self.cut, segment);
        self
    }

    /// What is wrong.
    pub fn kind(&self) -> Kind {
        self.fault.into()
    }

    /// The value that breaks a rule, or the name of the unknown member; empty where it is longer than [`MAX_FOUND`] bytes.
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display(f, |put| Fault::of(*self).pieces(put))
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
        let mut last = match self.fault {
            Fault::MissingField(name) | Fault::DuplicateField(name) => Some(Segment::Field(name)),
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
        match (self.fault, self.found()) {
            (Fault::Length(_), found) if !found.is_empty() => {
                put(found);
                return put(" does not fit");
            }
            (Fault::Rule(_), "") => put("the value "),
            (Fault::Rule(_), found) => {
                put(found);
                put(" ");
            }
            (Fault::UnknownField(_), found) if !found.is_empty() => {
                put(found);
                put(" is an ");
            }
            _ => {}
        }
        self.fault.pieces(put);
    }
}

impl Fault {
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
            Self::UnknownField([]) => put("unknown member; none are expected here"),
            Self::UnknownField(expected) => list(put, "unknown member; known: ", expected),
            Self::UnknownVariant(expected) => list(put, "expected one of: ", expected),
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

fn push_segment(path: &mut [Segment; MAX_PATH], segments: &mut u8, cut: &mut bool, segment: Segment) {
    if let Some(place) = path.get_mut(usize::from(*segments)) {
        *place = segment;
        *segments += 1;
    } else {
        *cut = true;
    }
}

/// What goes up through serde: three words, since every `Result` of every visitor carries it. The path stays behind in
/// the decoder. serde's texts are dropped unformatted: they would link float formatting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    NotJson,
    Expected(&'static str),
    Unexpected(&'static str),
    Refused,
    MissingField(&'static str),
    UnknownField(&'static [&'static str]),
    UnknownVariant(&'static [&'static str]),
    DuplicateField(&'static str),
    LoneSurrogate,
    Elements(u32),
    /// The length that a type refuses, or 0 where it is not said.
    Length(u32),
    Depth,
    Rule(&'static str),
}

impl Fault {
    const fn of(kind: Kind) -> Self {
        match kind {
            Kind::NotJson => Self::NotJson,
            Kind::Expected(what) => Self::Expected(what),
            Kind::Unexpected(what) => Self::Unexpected(what),
            Kind::Refused => Self::Refused,
            Kind::MissingField(name) => Self::MissingField(name),
            Kind::UnknownField { expected } => Self::UnknownField(expected),
            Kind::UnknownVariant { expected } => Self::UnknownVariant(expected),
            Kind::DuplicateField(name) => Self::DuplicateField(name),
            Kind::LoneSurrogate => Self::LoneSurrogate,
            Kind::Elements(count) => Self::Elements(count),
            Kind::Length => Self::Length(0),
            Kind::Depth => Self::Depth,
            Kind::Rule(rule) => Self::Rule(rule),
        }
    }
}

impl From<Fault> for Kind {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotJson => Self::NotJson,
            Fault::Expected(what) => Self::Expected(what),
            Fault::Unexpected(what) => Self::Unexpected(what),
            Fault::Refused => Self::Refused,
            Fault::MissingField(name) => Self::MissingField(name),
            Fault::UnknownField(expected) => Self::UnknownField { expected },
            Fault::UnknownVariant(expected) => Self::UnknownVariant { expected },
            Fault::DuplicateField(name) => Self::DuplicateField(name),
            Fault::LoneSurrogate => Self::LoneSurrogate,
            Fault::Elements(count) => Self::Elements(count),
            Fault::Length(_) => Self::Length,
            Fault::Depth => Self::Depth,
            Fault::Rule(rule) => Self::Rule(rule),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Kind::from(*self).fmt(f)
    }
}

impl core::error::Error for Fault {}

impl de::Error for Fault {
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

    fn unknown_variant(name: &str, expected: &'static [&'static str]) -> Self {
        match expected {
            [what] if name == THIS_VALUE => Self::Expected(what),
            [rule] if name == THIS_RULE => Self::Rule(rule),
            _ => Self::UnknownVariant(expected),
        }
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::UnknownField(expected)
    }

    fn missing_field(name: &'static str) -> Self {
        Self::MissingField(name)
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::DuplicateField(name)
    }
}

/// What is left of the text, and where an error on its way up has come by.
///
/// Tokens are split off the front, so that each string is the only owner of its bytes and can be decoded in place.
struct Decoder<'de> {
    rest: &'de mut [u8],
    numeric_strings: bool,
    depth: u8,
    path: [Segment; MAX_PATH],
    segments: u8,
    cut: bool,
    last: Last<'de>,
}

/// The value that was read last, should it break a rule.
#[derive(Clone, Copy)]
enum Last<'de> {
    None,
    /// A number's text, or a member's name.
    Text(&'de [u8]),
    String(&'de str),
    /// An array or an object of so many elements.
    Count(u32),
}

impl Last<'_> {
    #[cold]
    fn found(self) -> Found {
        match self {
            Self::None => Found::NONE,
            Self::Text(text) => Found::new(text),
            // Characters, counted by the bytes that begin one: `chars().count()` is made for long texts.
            Self::String(text) => Found::length(text.bytes().filter(|byte| byte & 0xC0 != 0x80).count()),
            Self::Count(count) => Found::length(count as usize),
        }
    }
}

impl<'de> Decoder<'de> {
    /// The next byte that is not white space; it is not consumed.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        match self.rest.first() {
            Some(&byte) if byte > b' ' => Some(byte),
            _ => self.skip_white_space(),
        }
    }

    #[cold]
    #[inline(never)]
    fn skip_white_space(&mut self) -> Option<u8> {
        let blank = self.rest.iter().take_while(|byte| is_white_space(**byte)).count();
        self.take(blank)?;
        self.rest.first().copied()
    }

    /// What went wrong, and where.
    #[cold]
    #[inline(never)]
    fn error(&self, fault: Fault) -> DecodeError {
        DecodeError {
            fault,
            path: self.path,
            segments: self.segments,
            cut: self.cut,
            found: match fault {
                Fault::Rule(_) | Fault::UnknownField(_) => self.last.found(),
                Fault::Length(length @ 1..) => Found::length(length as usize),
                _ => Found::NONE,
            },
        }
    }

    /// Nothing but white space may be left.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn end(&mut self) -> Result<(), Fault> {
        if self.rest.iter().all(|byte| is_white_space(*byte)) { Ok(()) } else { Err(Fault::NotJson) }
    }

    /// Splits off the first `length` bytes.
    #[inline]
    fn take(&mut self, length: usize) -> Option<&'de mut [u8]> {
        let (head, tail) = mem::take(&mut self.rest).split_at_mut_checked(length)?;
        self.rest = tail;
        Some(head)
    }

    /// Consumes the byte that `peek` has shown.
    #[inline]
    fn bump(&mut self) {
        if let Some((_, tail)) = mem::take(&mut self.rest).split_first_mut() {
            self.rest = tail;
        }
    }

    #[inline]
    fn consume(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        if is_there {
            self.bump();
        }
        is_there
    }

    /// A number or a literal: all up to the next delimiter.
    fn scalar(&mut self) -> Option<&'de [u8]> {
        let length = scalar_length(self.rest);
        Some(self.take(length)?)
    }

    /// What follows the literal is the next token's affair.
    fn literal(&mut self, literal: &[u8]) -> Result<(), Fault> {
        if self.take(literal.len()).is_some_and(|text| text == literal) { Ok(()) } else { Err(Fault::NotJson) }
    }

    /// The decoded bytes of the string at hand.
    fn string(&mut self, what: &'static str) -> Result<&'de [u8], Fault> {
        if self.peek() != Some(b'"') {
            return Err(Fault::Expected(what));
        }
        let text = mem::take(&mut self.rest).get_mut(1..).unwrap_or_default();
        let length = plain_length(text);
        if text.get(length) != Some(&b'"') {
            return self.string_with_escapes(text, length);
        }
        let (body, rest) = text.split_at_mut_checked(length).unwrap_or_default();
        self.rest = rest.get_mut(1..).unwrap_or_default();
        Ok(body)
    }

    #[cold]
    fn string_with_escapes(&mut self, text: &'de mut [u8], plain: usize) -> Result<&'de [u8], Fault> {
        let length = string_length(text, plain).ok_or(Fault::NotJson)?;
        let (body, rest) = text.split_at_mut_checked(length).ok_or(Fault::NotJson)?;
        self.rest = rest.get_mut(1..).unwrap_or_default();
        unescape(body, plain)
    }

    fn str(&mut self, what: &'static str) -> Result<&'de str, Fault> {
        str::from_utf8(self.string(what)?).map_err(|_| Fault::NotJson)
    }

    /// The name of a member and the colon behind it.
    fn key(&mut self) -> Result<&'de [u8], Fault> {
        let key = self.string(MEMBER_NAME)?;
        if self.consume(b':') { Ok(key) } else { Err(Fault::NotJson) }
    }

    /// [`key`](Self::key) of a struct. Half of a surrogate pair is in no field's name: it is as any other name that is not known.
    fn field(&mut self) -> Result<&'de [u8], Fault> {
        match self.key() {
            Err(Fault::LoneSurrogate) if self.consume(b':') => Ok(NO_NAME),
            key => key,
        }
    }

    fn number(&mut self, what: &'static str) -> Result<&'de [u8], Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b'-' | b'0'..=b'9' => {
                let text = self.scalar().ok_or(Fault::NotJson)?;
                self.last = Last::Text(text);
                Ok(text)
            }
            b'"' if self.numeric_strings => self.number_in_string(what),
            _ => Err(Fault::Expected(what)),
        }
    }

    /// The number that is the text of the string at hand.
    #[cold]
    #[inline(never)]
    fn number_in_string(&mut self, what: &'static str) -> Result<&'de [u8], Fault> {
        let inside = self.rest.get(1..).unwrap_or_default();
        let length = inside.iter().position(|byte| *byte == b'"').ok_or(Fault::NotJson)?;
        if number::Digits::new(inside.get(..length).unwrap_or_default()).is_none() {
            return Err(Fault::Expected(what));
        }
        let text = self.take(length.wrapping_add(2)).and_then(|text| text.get(1..=length)).ok_or(Fault::NotJson)?;
        self.last = Last::Text(text);
        Ok(text)
    }

    fn digits(&mut self, what: &'static str) -> Result<number::Digits<'de>, Fault> {
        number::Digits::new(self.number(what)?).ok_or(Fault::NotJson)
    }

    /// An integer of up to 32 bits, in two's complement: one copy of the code for all of them.
    ///
    /// Up to nine plain digits, which is nearly every integer there is, are read in one pass.
    fn small(&mut self, below: u32, above: u32, what: &'static str) -> Result<u32, Fault> {
        let first = self.peek().ok_or(Fault::NotJson)?;
        let mut value = 0u32;
        for (length, &byte) in self.rest.iter().take(10).enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                if length == 0 || (first == b'0' && length > 1) || !is_delimiter(byte) {
                    break;
                }
                self.last = Last::Text(self.take(length).ok_or(Fault::NotJson)?);
                return if value <= above { Ok(value) } else { Err(Fault::Expected(what)) };
            }
            value = value.wrapping_mul(10).wrapping_add(u32::from(digit));
        }
        self.digits(what)?.within(below, above).map_err(|_| Fault::Expected(what))
    }

    /// Steps over a value of any depth, without recursion, and returns its text.
    #[inline(never)]
    fn raw(&mut self) -> Option<&'de mut [u8]> {
        self.peek()?;
        let length = value_length(self.rest)?;
        self.take(length)
    }

    /// Whether another element or member follows, and the comma before it; at the container's end, which stays, it keeps how
    /// many there were.
    #[inline(always)]
    fn next(&mut self, close: u8, count: &mut u32) -> Option<bool> {
        match self.peek()? {
            byte if byte == close => {
                self.last = Last::Count(*count);
                return Some(false);
            }
            b',' if *count > 0 => self.bump(),
            _ if *count > 0 => return None,
            _ => {}
        }
        *count = count.saturating_add(1);
        Some(true)
    }

    /// Opens a container.
    fn enter(&mut self) -> Result<(), Fault> {
        self.bump();
        self.depth = self.depth.checked_sub(1).ok_or(Fault::Depth)?;
        Ok(())
    }

    fn leave(&mut self, close: u8, otherwise: Fault) -> Result<(), Fault> {
        self.depth = self.depth.saturating_add(1);
        if self.consume(close) { Ok(()) } else { Err(otherwise) }
    }

    #[cold]
    #[inline(never)]
    fn came_by_member(&mut self, fields: &'static [&'static str], key: &[u8]) {
        self.came_by(static_name(fields, key).map_or(Segment::ANY_KEY, Segment::Field));
    }

    #[cold]
    #[inline(never)]
    fn came_by(&mut self, segment: Segment) {
        push_segment(&mut self.path, &mut self.segments, &mut self.cut, segment);
    }

    fn sequence<V: Visitor<'de>>(&mut self, visitor: V, wrong_length: Fault) -> Result<V::Value, Fault> {
        self.enter()?;
        let segments = self.segments;
        match visitor.visit_seq(Elements { decoder: self, count: 0 }) {
            // A length of this array, not of something inside it.
            Err(Fault::Length(_)) if self.segments == segments && !matches!(wrong_length, Fault::Length(_)) => {
                Err(wrong_length)
            }
            Err(fault) => Err(fault),
            Ok(value) => {
                self.leave(b']', wrong_length)?;
                Ok(value)
            }
        }
    }

    fn members<V: Visitor<'de>>(
        &mut self,
        visitor: V,
        fields: Option<&'static [&'static str]>,
    ) -> Result<V::Value, Fault> {
        self.enter()?;
        let value = visitor.visit_map(Members { decoder: self, key: &[], fields, count: 0 })?;
        self.leave(b'}', Fault::Length(0))?;
        Ok(value)
    }

    fn structure<V: Visitor<'de>>(&mut self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b'{' => self.members(visitor, Some(fields)),
            b'[' => self.sequence(visitor, elements(fields.len())),
            _ => Err(Fault::Expected("an object")),
        }
    }

    fn tuple<V: Visitor<'de>>(&mut self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b'[' => self.sequence(visitor, elements(length)),
            _ => Err(elements(length)),
        }
    }
}

fn elements(count: usize) -> Fault {
    Fault::Elements(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The integers of up to 32 bits, which share [`Decoder::small`].
macro_rules! small_integers {
    ($($method:ident $visit:ident $int:ident $below:expr, $above:expr, $what:literal;)*) => {$(
        #[inline]
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_lossless)]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            visitor.$visit(self.small($below, $above, $what)? as $int)
        }
    )*};
}

macro_rules! large_integers {
    ($($method:ident $visit:ident $to:ident $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            visitor.$visit(self.digits($what)?.$to().map_err(|_| Fault::Expected($what))?)
        }
    )*};
}

macro_rules! floats {
    ($($method:ident $visit:ident $read:ident $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            visitor.$visit($read(self.number($what)?).ok_or(Fault::Expected($what))?)
        }
    )*};
}

/// Reads the text of a number as the nearest float; none if that is infinite. On a desktop `core`'s parser is the faster one.
macro_rules! float_readers {
    ($($name:ident $float:ident $small:ident)*) => {$(
        #[cfg(target_pointer_width = "64")]
        fn $name(text: &[u8]) -> Option<$float> {
            str::from_utf8(text).ok()?.parse::<$float>().ok().filter(|value| value.is_finite())
        }

        #[cfg(not(target_pointer_width = "64"))]
        fn $name(text: &[u8]) -> Option<$float> {
            float::$small(&number::Digits::new(text)?)
        }
    )*};
}
float_readers! { read_f32 f32 to_f32 read_f64 f64 to_f64 }

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = Fault;

    small_integers! {
        deserialize_u8 visit_u8 u8 0, 0xff, "an integer from 0 to 255";
        deserialize_u16 visit_u16 u16 0, 0xffff, "an integer from 0 to 65535";
        deserialize_u32 visit_u32 u32 0, u32::MAX, "an integer from 0 to 4294967295";
        deserialize_i8 visit_i8 i8 0x80, 0x7f, "an integer from -128 to 127";
        deserialize_i16 visit_i16 i16 0x8000, 0x7fff, "an integer from -32768 to 32767";
        deserialize_i32 visit_i32 i32 1 << 31, u32::MAX >> 1, "an integer from -2147483648 to 2147483647";
    }

    large_integers! {
        deserialize_u64 visit_u64 to_u64 "an integer from 0 to 18446744073709551615";
        deserialize_i64 visit_i64 to_i64 "an integer from -9223372036854775808 to 9223372036854775807";
        deserialize_u128 visit_u128 to_u128 "an integer from 0 to 340282366920938463463374607431768211455";
        deserialize_i128 visit_i128 to_i128 "an integer from -170141183460469231731687303715884105728 to 170141183460469231731687303715884105727";
    }

    floats! {
        deserialize_f32 visit_f32 read_f32 "a number from -3.4028235e38 to 3.4028235e38";
        deserialize_f64 visit_f64 read_f64 "a number from -1.7976931348623157e308 to 1.7976931348623157e308";
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b'{' => self.members(visitor, None),
            b'[' => self.sequence(visitor, Fault::Length(0)),
            b'"' => self.deserialize_str(visitor),
            b't' | b'f' => self.deserialize_bool(visitor),
            b'n' => self.deserialize_unit(visitor),
            b'-' | b'0'..=b'9' => {
                let text = self.rest.get(..scalar_length(self.rest)).unwrap_or_default();
                let digits = number::Digits::new(text).ok_or(Fault::NotJson)?;
                // As in `serde_json`: what is written as an integer is one, but `-0`, whose sign an integer would lose.
                if digits.is_plain() && text != b"-0" {
                    if let Ok(value) = digits.to_u64() {
                        self.scalar().ok_or(Fault::NotJson)?;
                        return visitor.visit_u64(value);
                    }
                    if let Ok(value) = digits.to_i64() {
                        self.scalar().ok_or(Fault::NotJson)?;
                        return visitor.visit_i64(value);
                    }
                }
                self.deserialize_f64(visitor)
            }
            _ => Err(Fault::NotJson),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b't' => {
                self.literal(b"true")?;
                visitor.visit_bool(true)
            }
            b'f' => {
                self.literal(b"false")?;
                visitor.visit_bool(false)
            }
            _ => Err(Fault::Expected("true or false")),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_char(one_char(self.string(ONE_CHARACTER)?)?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = self.str("a string")?;
        self.last = Last::String(text);
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b'[' => self.sequence(visitor, Fault::Length(0)),
            _ => visitor.visit_borrowed_bytes(self.string("a string")?),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.peek() == Some(b'n') {
            self.literal(b"null")?;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.peek() != Some(b'n') {
            return Err(Fault::Expected("null"));
        }
        self.literal(b"null")?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    // The name is a constant at the call: only one of the two ways is compiled into it.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        if name == RAW_TOKEN {
            let text = drop_line_breaks(self.raw().ok_or(Fault::NotJson)?);
            self.last = Last::Text(text);
            visitor.visit_borrowed_bytes(text)
        } else if name == NUMBER_TOKEN {
            let text = if self.peek() == Some(b'"') && self.numeric_strings {
                self.number("a number")?
            } else {
                self.raw().ok_or(Fault::NotJson)?
            };
            self.last = Last::Text(text);
            visitor.visit_borrowed_bytes(text)
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b'[' => self.sequence(visitor, Fault::Length(0)),
            _ => Err(Fault::Expected("an array")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b'{' => self.members(visitor, None),
            _ => Err(Fault::Expected("an object")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.structure(fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.peek().ok_or(Fault::NotJson)? {
            b'"' => visitor.visit_enum(Name { text: self.string("a string")?, as_bytes: true }),
            b'{' => {
                self.enter()?;
                if self.peek() != Some(b'"') {
                    return Err(Fault::Expected(ONE_MEMBER));
                }
                let name = self.key()?;
                let value = visitor.visit_enum(Tagged { decoder: self, name });
                if value.is_err()
                    && let Some(variant) = static_name(variants, name)
                {
                    self.came_by(Segment::Field(variant));
                }
                let value = value?;
                self.leave(b'}', Fault::Expected(ONE_MEMBER))?;
                Ok(value)
            }
            _ => Err(Fault::Expected("a string, or an object of one member")),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_borrowed_bytes(self.string("a string")?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.raw().ok_or(Fault::NotJson)?;
        visitor.visit_unit()
    }
}

const MEMBER_NAME: &str = "a member name";
/// Not UTF-8, which the names of fields are.
const NO_NAME: &[u8] = b"\xff";
const ONE_CHARACTER: &str = "a string of one character";
const ONE_MEMBER: &str = "an object of one member";

/// The elements of an array.
struct Elements<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    /// How many there were so far.
    count: u32,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        if !self.decoder.next(b']', &mut self.count).ok_or(Fault::NotJson)? {
            return Ok(None);
        }
        let value = seed.deserialize(&mut *self.decoder);
        if value.is_err() {
            self.decoder.came_by(Segment::Index(self.count.wrapping_sub(1)));
        }
        value.map(Some)
    }
}

/// The members of an object.
struct Members<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    key: &'de [u8],
    /// A struct's names; a map has none.
    fields: Option<&'static [&'static str]>,
    /// How many there were so far.
    count: u32,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        if !self.decoder.next(b'}', &mut self.count).ok_or(Fault::NotJson)? {
            return Ok(None);
        }
        self.key = if self.fields.is_some() { self.decoder.field()? } else { self.decoder.key()? };
        let key = seed.deserialize(Name { text: self.key, as_bytes: self.fields.is_some() });
        if key.is_err() {
            self.decoder.last = Last::Text(self.key);
            if self.fields.is_none() {
                self.decoder.came_by(Segment::ANY_KEY);
            }
        }
        key.map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let value = seed.deserialize(&mut *self.decoder);
        if value.is_err() {
            self.decoder.came_by_member(self.fields.unwrap_or_default(), self.key);
        }
        value
    }
}

/// The `'static` twin of a name in the text.
#[cold]
fn static_name(names: &'static [&'static str], name: &[u8]) -> Option<&'static str> {
    names.iter().copied().find(|known| known.as_bytes() == name)
}

/// `{"Variant": content}`, from the content on.
struct Tagged<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    name: &'de [u8],
}

impl<'de> EnumAccess<'de> for Tagged<'_, 'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        Ok((seed.deserialize(Name { text: self.name, as_bytes: true })?, self))
    }
}

impl<'de> VariantAccess<'de> for Tagged<'_, 'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        if self.decoder.peek() != Some(b'n') {
            return Err(Fault::Expected("null"));
        }
        self.decoder.literal(b"null")
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self.decoder)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.decoder.tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        self.decoder.structure(fields, visitor)
    }
}

/// The decoded text of a member's name, or of a variant without content.
struct Name<'de> {
    text: &'de [u8],
    /// Whether an identifier is handed out as bytes. Not in a map: serde's `flatten` keeps the keys that it sees.
    as_bytes: bool,
}

impl<'de> Name<'de> {
    fn str(&self) -> Result<&'de str, Fault> {
        str::from_utf8(self.text).map_err(|_| Fault::NotJson)
    }

    /// The digits of an integer in its plain form: `"1.0"` and `"1e0"` would be further names for the key `1`.
    fn digits(&self, what: &'static str) -> Result<number::Digits<'de>, Fault> {
        number::Digits::new(self.text).filter(number::Digits::is_plain).ok_or(Fault::Expected(what))
    }
}

macro_rules! integer_keys {
    ($($method:ident $visit:ident $int:ident $to:ident $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let value = self.digits($what)?.$to().ok().and_then(|value| $int::try_from(value).ok());
            visitor.$visit(value.ok_or(Fault::Expected($what))?)
        }
    )*};
}

macro_rules! float_keys {
    ($($method:ident $visit:ident $read:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let value = number::Digits::new(self.text).and_then(|_| $read(self.text));
            visitor.$visit(value.ok_or(Fault::Expected("a number as the member name"))?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = Fault;

    integer_keys! {
        deserialize_u8 visit_u8 u8 to_u32 "an integer from 0 to 255 as the member name";
        deserialize_u16 visit_u16 u16 to_u32 "an integer from 0 to 65535 as the member name";
        deserialize_u32 visit_u32 u32 to_u32 "an integer of 32 bits without sign as the member name";
        deserialize_u64 visit_u64 u64 to_u64 "an integer of 64 bits without sign as the member name";
        deserialize_u128 visit_u128 u128 to_u128 "an integer of 128 bits without sign as the member name";
        deserialize_i8 visit_i8 i8 to_i32 "an integer from -128 to 127 as the member name";
        deserialize_i16 visit_i16 i16 to_i32 "an integer from -32768 to 32767 as the member name";
        deserialize_i32 visit_i32 i32 to_i32 "an integer of 32 bits as the member name";
        deserialize_i64 visit_i64 i64 to_i64 "an integer of 64 bits as the member name";
        deserialize_i128 visit_i128 i128 to_i128 "an integer of 128 bits as the member name";
    }

    float_keys! { deserialize_f32 visit_f32 read_f32 deserialize_f64 visit_f64 read_f64 }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_borrowed_str(self.str()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.text {
            b"true" => visitor.visit_bool(true),
            b"false" => visitor.visit_bool(false),
            _ => Err(Fault::Expected("true or false as the member name")),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_char(one_char(self.text)?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_borrowed_bytes(self.text)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_borrowed_bytes(self.text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    #[allow(clippy::inline_always)] // As above.
    #[inline(always)]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        if name == RAW_TOKEN || name == NUMBER_TOKEN {
            Err(Fault::Unexpected("a member name"))
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_enum(self)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.as_bytes { visitor.visit_borrowed_bytes(self.text) } else { self.deserialize_any(visitor) }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        str string unit unit_struct seq tuple tuple_struct map struct
    }
}

impl<'de> EnumAccess<'de> for Name<'de> {
    type Error = Fault;
    type Variant = NoContent;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, NoContent), Fault> {
        Ok((seed.deserialize(Name { as_bytes: true, ..self })?, NoContent))
    }
}

/// The content of a variant that is a mere name.
struct NoContent;

impl<'de> VariantAccess<'de> for NoContent {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Fault> {
        Err(Fault::Expected(ONE_MEMBER))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Fault> {
        Err(Fault::Expected(ONE_MEMBER))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Fault> {
        Err(Fault::Expected(ONE_MEMBER))
    }
}

/// A value that was not given, and an object without members.
struct Nothing;

impl<'de> Deserializer<'de> for Nothing {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_none()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    #[allow(clippy::inline_always)] // As above.
    #[inline(always)]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        if name == RAW_TOKEN || name == NUMBER_TOKEN {
            visitor.visit_borrowed_bytes(b"{}")
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fault> {
        Err(Fault::Expected(ONE_MEMBER))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        seq tuple tuple_struct map struct identifier
    }
}

impl<'de> MapAccess<'de> for Nothing {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, _: K) -> Result<Option<K::Value>, Fault> {
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, _: V) -> Result<V::Value, Fault> {
        Err(Fault::NotJson)
    }
}

fn one_char(text: &[u8]) -> Result<char, Fault> {
    let text = str::from_utf8(text).map_err(|_| Fault::NotJson)?;
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(Fault::Expected(ONE_CHARACTER)),
    }
}

fn is_white_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Decodes the escapes of a string (RFC 8259 §7) in place.
fn unescape(body: &mut [u8], plain: usize) -> Result<&[u8], Fault> {
    let mut read = plain;
    let mut written = plain;
    while let Some(&byte) = body.get(read) {
        if byte != b'\\' {
            put(body, &mut written, byte);
            read += 1;
            continue;
        }
        let (code, length) = escape(body.get(read..).unwrap_or_default()).ok_or(Fault::NotJson)?;
        if code & !0x7FF == 0xD800 {
            return Err(Fault::LoneSurrogate);
        }
        read += length;
        put_utf8(body, &mut written, code);
    }
    body.get(..written).ok_or(Fault::NotJson)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::{Deserialize, de::DeserializeOwned};
    use serde_json::{Value, json};
    use std::{
        borrow::{Cow, ToOwned},
        boxed::Box,
        collections::BTreeMap,
        fmt::Debug,
        format,
        string::{String, ToString},
        vec,
        vec::Vec,
    };

    fn decode<T: DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
        from_checked(&mut Vec::from(text))
    }

    /// Both this decoder and `serde_json` take the text, for the same value.
    #[track_caller]
    fn same<T: DeserializeOwned + PartialEq + Debug>(texts: &[&str]) {
        for text in texts {
            let expected: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(decode::<T>(text), Ok(expected), "{text}");
        }
    }

    /// Both refuse it.
    #[track_caller]
    fn refused<T: DeserializeOwned + Debug>(texts: &[&str]) {
        for text in texts {
            serde_json::from_str::<T>(text).expect_err(text);
            decode::<T>(text).expect_err(text);
        }
    }

    #[derive(Deserialize, Debug, PartialEq)]
    struct Unit;
    #[derive(Deserialize, Debug, PartialEq)]
    struct Newtype(u16);
    #[derive(Deserialize, Debug, PartialEq)]
    struct Pair(u8, String);
    #[derive(Deserialize, Debug, PartialEq)]
    struct Inner {
        b: i8,
        #[serde(default)]
        name: String,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    struct Outer {
        a: Vec<Inner>,
        o: Option<Box<Outer>>,
        #[serde(rename = "sch\u{f6}n \"quoted\"", default)]
        odd: Option<f64>,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "kebab-case")]
    enum Mode {
        Off,
        VeryFast,
        Level(u8),
        Range(u8, u8),
        Custom { speed: u16, label: String },
        Nested(Box<Mode>),
    }
    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        x: u8,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(tag = "type")]
    enum Internal {
        Point { x: f32, y: i64 },
        Name { name: String },
    }
    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(tag = "t", content = "c")]
    enum Adjacent {
        One(u8),
        Two { a: String },
        Unit,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(untagged)]
    enum Untagged {
        Integer(i64),
        Float(f64),
        Text(String),
        List(Vec<Untagged>),
        Object { k: Box<Untagged> },
        Nothing,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    struct Flat {
        id: u32,
        #[serde(flatten)]
        inner: Inner,
        #[serde(flatten)]
        others: BTreeMap<String, Value>,
    }

    #[test]
    fn values_are_those_of_serde_json() {
        same::<bool>(&["true", " false\n"]);
        same::<()>(&["null"]);
        same::<Unit>(&["null"]);
        same::<Newtype>(&["7"]);
        same::<Pair>(&["[1,\"x\"]", " [ 1 , \"\\n\" ] "]);
        same::<(u8, (), [bool; 2])>(&["[255,null,[true,false]]"]);
        same::<Option<Option<u8>>>(&["null", "3"]);
        same::<char>(&["\"x\"", "\"\\u20ac\"", "\"\\ud83d\\ude00\"", "\"\u{1f600}\""]);
        same::<f32>(&["0", "-0.0", "1.5", "3.4e38", "1e-46", "16777217"]);
        same::<f64>(&[
            "0",
            "-0",
            "1.5E+3",
            "1e-400",
            "0.1",
            "123456789012345678901234567890",
            "1.7976931348623157e308",
        ]);
        same::<Vec<i16>>(&["[]", "[ ]", "[1]", "[ 1 , -2,\t3 ]"]);
        same::<Outer>(&[
            r#"{"a":[],"o":null}"#,
            r#" { "o" : { "a" : [ ] } , "a" : [ { "b" : -1 , "name" : "\u003c\"\\\/\b\f\n\r\t" } ] } "#,
            r#"{"sch\u00f6n \"quoted\"":1.25,"\u0061":[{"b":1,"x":[{"y":"]}"},[[]],"\\",null,-1e5]}]}"#,
            "[[],null,2.5]",
        ]);
        same::<Mode>(&[
            r#""off""#,
            r#""very-f\u0061st""#,
            r#"{"off":null}"#,
            r#"{"level":3}"#,
            r#"{ "range" : [1,2] }"#,
            r#"{"custom":{"label":"\"","speed":9,"ignored":{}}}"#,
            r#"{"custom":[9,"x"]}"#,
            r#"{"nested":{"nested":"off"}}"#,
        ]);
        same::<BTreeMap<i8, Mode>>(&[r#"{"-128":"off","127":{"level":1}}"#, "{}"]);
        same::<BTreeMap<u64, bool>>(&[r#"{"18446744073709551615":true,"0":false}"#]);
        same::<BTreeMap<i128, Newtype>>(&[r#"{"-170141183460469231731687303715884105728":1}"#]);
        same::<BTreeMap<bool, u8>>(&[r#"{"true":1,"false":2}"#]);
        same::<BTreeMap<char, u8>>(&[r#"{"\n":1}"#]);
        same::<BTreeMap<String, u8>>(&[r#"{"a\tb":1,"":2,"a\u0009b":3}"#]);
        same::<Result<u8, String>>(&[r#"{"Ok":1}"#, r#"{"Err":"e"}"#]);
        same::<core::time::Duration>(&[r#"{"secs":1,"nanos":2}"#]);
        same::<core::ops::Range<u8>>(&[r#"{"start":1,"end":2}"#]);
        same::<core::net::IpAddr>(&[r#""::1""#]);
        same::<Cow<'static, str>>(&[r#""\u0000""#]);
        same::<serde::de::IgnoredAny>(&["[[[{\"a\":[1,\"]\"]}]]]"]);
    }

    #[test]
    fn serdes_other_tags_work_with_an_allocator() {
        same::<Internal>(&[
            r#"{"type":"Point","x":1.5,"y":-3}"#,
            r#"{"y":2,"x":1,"type":"Point"}"#,
            r#"{"name":"\n","t\u0079pe":"Name"}"#,
        ]);
        same::<Adjacent>(&[r#"{"t":"One","c":3}"#, r#"{"c":{"a":"\""},"t":"Two"}"#, r#"{"t":"Unit"}"#]);
        same::<Untagged>(&["1", "-1", "1.0", "1e2", "\"\\n\"", "[1,[\"x\"]]", r#"{"k":{"k":2.5}}"#, "null"]);
        same::<Flat>(&[r#"{"more":[1,{"x":null}],"id":7,"name":"a\\b","b":2,"z":-0}"#]);
    }

    #[test]
    fn what_serde_json_refuses_is_refused() {
        refused::<bool>(&["1", "null", "\"true\"", "tru", "truex", ""]);
        refused::<()>(&["0", "[]", "nul", "{}"]);
        refused::<char>(&["\"\"", "\"ab\"", "1"]);
        refused::<f64>(&["1e400", "-1e400", "\"1\"", "null", "[]"]);
        refused::<u8>(&["\"1\"", "null", "true", "[1]", "{}", "-1", "256"]);
        refused::<Pair>(&["[1]", "[1,\"x\",2]", "{}", "[]", "1"]);
        refused::<Vec<u8>>(&["{}", "1", "\"\"", "[1,]", "[,1]", "[1 2]", "[1", "["]);
        refused::<Mode>(&[
            "{}",
            "\"level\"",
            "\"none\"",
            r#"{"off":1}"#,
            r#"{"off":null,"level":1}"#,
            "1",
            "null",
            "[]",
        ]);
        refused::<BTreeMap<u8, bool>>(&[
            r#"{"256":true}"#,
            r#"{"1.0":true}"#,
            r#"{"":true}"#,
            r#"{"-":true}"#,
            r#"{"01":true}"#,
        ]);
        refused::<Strict>(&[
            r#"{"x":1,"y":2}"#,
            r#"{"x":1,"x":2}"#,
            "{}",
            r#"{"x":1 "y":2}"#,
            r#"{"x":1"#,
            r#"{"x" 1}"#,
        ]);
        refused::<String>(&["\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u123g\"", "1", "\"a\" 1"]);
    }

    #[test]
    fn a_borrowed_str_is_decoded_where_it_stood() {
        #[derive(Deserialize)]
        struct Borrowed<'a> {
            s: &'a str,
            #[serde(with = "bytes")]
            b: &'a [u8],
            o: Option<&'a str>,
            #[serde(borrow)]
            c: Cow<'a, str>,
            #[serde(borrow)]
            m: BTreeMap<&'a str, &'a str>,
        }
        mod bytes {
            pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<&'de [u8], D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }
        }
        let mut text = r#"{"s":"a\n\u003c\ud83d\ude00\u20ac\u00e9z","b":"\"\u0000","o":"pl\u0061in","c":"\t","m":{"\\":"\/","k":""}}"#
            .to_owned()
            .into_bytes();
        let within = text.as_ptr_range();
        let value: Borrowed<'_> = from_checked(&mut text).unwrap();
        assert_eq!(value.s, "a\n<\u{1f600}\u{20ac}\u{e9}z");
        assert_eq!(value.b, b"\"\0");
        assert_eq!(value.o, Some("plain"));
        assert!(matches!(value.c, Cow::Borrowed("\t")));
        assert_eq!(value.m, BTreeMap::from([("\\", "/"), ("k", "")]));
        assert!(within.contains(&value.s.as_ptr()) && within.contains(&value.b.as_ptr()));
    }

    #[test]
    fn a_lone_surrogate_is_no_text() {
        for text in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""x\ud800\n""#,
            r#""\ud800\ud800""#,
            r#""\udc00\ud800""#,
            r#""\uD800x""#,
            r#""\ud800\u0041""#,
        ] {
            assert_eq!(decode::<String>(text).map_err(|error| error.kind()), Err(Kind::LoneSurrogate), "{text}");
        }
        // Ignored, it harms nobody.
        assert_eq!(decode::<Inner>(r#"{"b":1,"x":"\ud800"}"#).unwrap().b, 1);
        // Nor does a name, which is no field's; where there are no others than the known ones, it is one too many.
        for text in
            [r#"{"\ud800":2,"b":1}"#, r#"{"b":1,"b\udc00":{"\ud800":[]}}"#, r#"{"\ud800" : 0, "\ud800":0,"b":1}"#]
        {
            assert_eq!(decode::<Inner>(text).unwrap().b, 1, "{text}");
        }
        #[derive(Deserialize, Debug)]
        #[serde(deny_unknown_fields)]
        struct Strict {
            #[allow(dead_code, reason = "what counts is what is refused")]
            b: Option<u8>,
        }
        let error = decode::<Strict>(r#"{"\ud800":2}"#).unwrap_err();
        assert_eq!(error.to_string(), "unknown member; known: b");
        assert_eq!(
            decode::<BTreeMap<String, u8>>(r#"{"\ud800":2}"#).map_err(|error| error.kind()),
            Err(Kind::LoneSurrogate),
            "a map has to keep it"
        );
    }

    macro_rules! width {
        ($($int:ident)*) => {$(
            for value in [$int::MIN, $int::MAX, 0, 1, 100] {
                // `-0` is checked elsewhere; `value / 10` with a digit behind the point spells the same number.
                let mut spellings = vec![format!("{value}"), format!("{value}.0"), format!("{value}.000e+0"), format!("{value}E0")];
                if value % 10 == 0 {
                    spellings.push(format!("{}e1", value / 10));
                }
                for text in spellings {
                    assert_eq!(decode::<$int>(&text), Ok(value), "{text}");
                }
            }
            assert_eq!(decode::<$int>("1000e-3"), Ok(1));
            assert_eq!(decode::<$int>("-0"), Ok(0));
            let named = format!("expected an integer from {} to {}", $int::MIN, $int::MAX);
            // No bound of a type ends in 9.
            let beyond = |text: String| format!("{}{}", &text[..text.len() - 1], text[text.len() - 1..].parse::<u8>().unwrap() + 1);
            let low = if $int::MIN == 0 { "-1".to_owned() } else { beyond($int::MIN.to_string()) };
            for text in [low, beyond($int::MAX.to_string()), "1e999999999999".into(), "1.5".into(), "\"1\"".into(), "null".into(), "true".into()] {
                assert_eq!(decode::<$int>(&text).unwrap_err().to_string(), named, "{text}");
            }
        )*};
    }

    #[test]
    fn every_integer_width_is_exact_and_names_its_bounds() {
        width!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 usize isize);
    }

    #[test]
    fn errors_name_the_place_and_what_is_expected_there() {
        #[derive(Deserialize, Debug)]
        #[allow(dead_code)]
        struct Args {
            #[serde(default)]
            samples: Option<core::num::NonZeroU16>,
            #[serde(default)]
            a: Vec<Inner>,
            #[serde(default)]
            m: BTreeMap<String, Vec<u8>>,
            #[serde(default)]
            k: BTreeMap<u8, u8>,
            #[serde(default)]
            mode: Option<Mode>,
            #[serde(default)]
            three: Option<[u8; 3]>,
            #[serde(default)]
            strict: Option<Strict>,
            #[serde(default)]
            flag: bool,
            #[serde(default)]
            unit: (),
            #[serde(default)]
            letter: char,
            #[serde(default)]
            small: f32,
        }
        for (text, error) in [
            (r#"{"samples":65536}"#, "args.samples: expected an integer from 0 to 65535"),
            (r#"{"samples":0}"#, "args.samples: this value is not accepted here"),
            (r#"{"\u0073amples":"1"}"#, "args.samples: expected an integer from 0 to 65535"),
            (r#"{"a":[{"b":1},{"b":2},{"b":200}]}"#, "args.a[2].b: expected an integer from -128 to 127"),
            (r#"{"a":[{"b":1,"name":null}]}"#, "args.a[0].name: expected a string"),
            (r#"{"a":[{}]}"#, "args.a[0].b: required, but missing"),
            (r#"{"a":[3]}"#, "args.a[0]: expected an object"),
            (r#"{"a":{}}"#, "args.a: expected an array"),
            (r#"{"a":[],"a":[]}"#, "args.a: given more than once"),
            (r#"{"a":[[1,"x",3]]}"#, "args.a[0]: expected an array of 2 elements"),
            (r#"{"m":{"x":[1,256]}}"#, "args.m.*[1]: expected an integer from 0 to 255"),
            (r#"{"k":{"x":1}}"#, "args.k.*: expected an integer from 0 to 255 as the member name"),
            (r#"{"mode":"fast"}"#, "args.mode: expected one of: off, very-fast, level, range, custom, nested"),
            (r#"{"mode":{"custom":{"speed":-1}}}"#, "args.mode.custom.speed: expected an integer from 0 to 65535"),
            (r#"{"mode":{"range":[1]}}"#, "args.mode.range: expected an array of 2 elements"),
            (r#"{"mode":{"range":[1,-1]}}"#, "args.mode.range[1]: expected an integer from 0 to 255"),
            (r#"{"mode":"level"}"#, "args.mode: expected an object of one member"),
            (r#"{"mode":{}}"#, "args.mode: expected an object of one member"),
            (r#"{"three":[1,2]}"#, "args.three: expected an array of 3 elements"),
            (r#"{"three":[1,2,3,4]}"#, "args.three: expected an array of 3 elements"),
            (r#"{"three":[1,2,[]]}"#, "args.three[2]: expected an integer from 0 to 255"),
            (r#"{"strict":{"x":1,"y":1}}"#, "args.strict: y is an unknown member; known: x"),
            (r#"{"flag":1}"#, "args.flag: expected true or false"),
            (r#"{"unit":1}"#, "args.unit: expected null"),
            (r#"{"letter":"ab"}"#, "args.letter: expected a string of one character"),
            (r#"{"small":1e39}"#, "args.small: expected a number from -3.4028235e38 to 3.4028235e38"),
            (r#"{"a":[{"b":1,"name":"\ud800"}]}"#, "args.a[0].name: a lone surrogate"),
            ("3", "args: expected an object"),
            ("null", "args: expected an object"),
            (r#"{"flag":tru}"#, "args.flag: the text is not JSON"),
        ] {
            assert_eq!(decode::<Args>(text).unwrap_err().display_in("args").to_string(), error, "{text}");
        }
        assert_eq!(decode::<Args>("3").unwrap_err().to_string(), "expected an object");
        assert_eq!(decode::<Args>(r#"{"a":[7]}"#).unwrap_err().to_string(), "a[0]: expected an object");
        assert_eq!(decode::<Internal>(r#"{"type":"X"}"#).unwrap_err().to_string(), "*: expected one of: Point, Name");
        assert_eq!(decode::<Internal>(r#"{"x":1}"#).unwrap_err().to_string(), "type: required, but missing");
        assert_eq!(decode::<Untagged>("true").unwrap_err().kind(), Kind::Refused);
    }

    #[test]
    fn what_was_not_given_is_empty() {
        assert_eq!(from_empty(), Ok(()));
        assert_eq!(from_empty(), Ok(Unit));
        assert_eq!(from_empty(), Ok(None::<Strict>));
        assert_eq!(from_empty(), Ok(BTreeMap::<String, u8>::new()));
        assert_eq!(from_empty(), Ok(json!({})));
        assert_eq!(from_empty::<super::super::raw::RawJson<'_>>().map(|raw| raw.as_str()), Ok("{}"));
        let missing = from_empty::<Strict>().unwrap_err();
        assert_eq!(missing.display_in("args").to_string(), "args.x: required, but missing");
        assert!(from_empty::<u8>().is_err() && from_empty::<String>().is_err() && from_empty::<Mode>().is_err());
    }

    #[test]
    fn a_long_path_keeps_its_inner_end() {
        let error = decode::<Vec<Vec<Vec<Vec<Vec<Vec<Vec<u8>>>>>>>>("[[],[[[[[[0,\"\"]]]]]]]").unwrap_err();
        assert_eq!(error.display_in("args").to_string(), "args...[0][0][1]: expected an integer from 0 to 255");
        assert_eq!(error.path().count(), MAX_PATH);
    }

    #[test]
    fn rules_name_the_value_and_the_bound() {
        struct Ruled<T>(T);
        impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ruled<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                T::deserialize(deserializer).map(Self).and_then(|_| Err(rule(const { &["is wrong"] })))
            }
        }
        fn broken<T: DeserializeOwned>(value: &str) -> String {
            decode::<BTreeMap<String, Ruled<T>>>(&format!("{{\"\":{value}}}")).err().unwrap().to_string()
        }
        for (error, text) in [
            (broken::<u8>("0"), "*: 0 is wrong"),
            (broken::<u8>(" 1e2 "), "*: 1e2 is wrong"),
            (broken::<i16>("-0"), "*: -0 is wrong"),
            (broken::<u64>("18446744073709551615"), "*: 18446744073709551615 is wrong"),
            (broken::<i64>("-9223372036854775808"), "*: -9223372036854775808 is wrong"),
            (broken::<u128>("340282366920938463463374607431768211455"), "*: the value is wrong"),
            (broken::<f64>("0.10"), "*: 0.10 is wrong"),
            (broken::<super::super::decimal::Decimal<3>>("3.3"), "*: 3.3 is wrong"),
            (broken::<String>("\"\\u00e9x\""), "*: length 2 is wrong"),
            (broken::<String>("\"\""), "*: length 0 is wrong"),
            (broken::<Vec<u8>>("[1,2,3]"), "*: length 3 is wrong"),
            (broken::<Vec<Vec<u8>>>("[[1,2,3]]"), "*: length 1 is wrong"),
            (broken::<BTreeMap<String, u8>>("{\"a\":1,\"b\":2}"), "*: length 2 is wrong"),
        ] {
            assert_eq!(error, text);
        }
        let by_hand = DecodeError::rule("is below the minimum 1", "0").within(Segment::Field("samples"));
        assert_eq!(by_hand.display_in("args").to_string(), "args.samples: 0 is below the minimum 1");
        assert_eq!((by_hand.kind(), by_hand.found()), (Kind::Rule("is below the minimum 1"), "0"));
        assert!(size_of::<DecodeError>() < 120);
    }

    #[test]
    fn a_text_of_ones_own_goes_through_serde() {
        #[derive(Debug)]
        struct Picky;
        impl<'de> Deserialize<'de> for Picky {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <&str>::deserialize(deserializer)?;
                Err(expected(const { &["a duration like 1m30s"] }))
            }
        }
        assert_eq!(decode::<[Picky; 1]>("[\"x\"]").unwrap_err().to_string(), "[0]: expected a duration like 1m30s");
    }

    #[test]
    fn depth_is_limited_exactly_and_skipping_is_not() {
        #[derive(Deserialize, Debug)]
        #[allow(dead_code)]
        struct Nest(Vec<Nest>);
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for depth in [1, 127, 128] {
            assert!(decode::<Nest>(&nested(depth)).is_ok(), "{depth}");
            assert!(decode::<Value>(&nested(depth)).is_ok(), "{depth}");
        }
        for depth in [129, 200_000] {
            assert_eq!(decode::<Nest>(&nested(depth)).unwrap_err().kind(), Kind::Depth, "{depth}");
            assert_eq!(decode::<Value>(&nested(depth)).unwrap_err().kind(), Kind::Depth, "{depth}");
        }
        // Containers that are closed again do not count.
        assert!(decode::<Value>(&format!("[{}[]]", "[],{},".repeat(300))).is_ok());
        let text = format!("{{\"x\":{},\"b\":1}}", nested(200_000));
        assert_eq!(decode::<Inner>(&text).unwrap().b, 1);
    }

    #[test]
    fn strings_end_where_they_end_at_any_length() {
        for length in 0..40 {
            for (written, read) in
                [("", ""), ("\\\"", "\""), ("\\\\", "\\"), ("\\u00e9", "\u{e9}"), ("\u{e9}", "\u{e9}")]
            {
                let text = format!("[\"{0}{written}{0}\",1]", "x".repeat(length));
                let expected = format!("{0}{read}{0}", "x".repeat(length));
                assert_eq!(decode::<(String, u8)>(&text), Ok((expected, 1)), "{text}");
            }
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter("finite", |float| float.is_finite()).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Writes every UTF-16 unit as `\uXXXX`, in either case.
    fn escaped(text: &str) -> String {
        let unit = |(at, unit)| if at % 2 == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
        format!("\"{}\"", text.encode_utf16().enumerate().map(unit).collect::<String>())
    }

    proptest! {
        #[test]
        fn any_value_survives(value in value()) {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                // As serde_json reads it: it may round the last digit of a float.
                let expected: Value = serde_json::from_str(&text).unwrap();
                assert_floats_close(&decode::<Value>(&text).unwrap(), &expected);
            }
        }

        #[test]
        fn any_string_survives(text in any::<String>()) {
            prop_assert_eq!(decode::<String>(&serde_json::to_string(&text).unwrap()), Ok(text.clone()));
            prop_assert_eq!(decode::<String>(&escaped(&text)), Ok(text.clone()));
            let object = format!("{{{}:{}}}", escaped(&text), json!(text));
            prop_assert_eq!(decode::<BTreeMap<String, String>>(&object), Ok(BTreeMap::from([(text.clone(), text)])));
        }

        #[test]
        fn no_bytes_panic(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            "[\\[\\]{}\",:0-9eE.+\\-ntfabox\\\\u ]{0,48}".prop_map(String::into_bytes),
        ]) {
            anything_goes(&bytes);
        }

        #[test]
        fn no_damage_panics(value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
            let mut bytes = value.to_string().into_bytes();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            anything_goes(&bytes);
        }
    }

    fn anything_goes(bytes: &[u8]) {
        fn attempt<T: DeserializeOwned>(bytes: &[u8]) {
            let _ = from_checked::<T>(&mut bytes.to_vec()).map_err(|error| error.to_string());
        }
        attempt::<Value>(bytes);
        attempt::<Outer>(bytes);
        attempt::<Mode>(bytes);
        attempt::<Flat>(bytes);
        attempt::<(u8, i64, u128, f32, char)>(bytes);
        attempt::<BTreeMap<u8, String>>(bytes);
        attempt::<Vec<Untagged>>(bytes);
        attempt::<de::IgnoredAny>(bytes);
        attempt::<super::super::decimal::Decimal<3>>(bytes);
        let _ = from_checked::<Vec<super::super::raw::RawJson<'_>>>(&mut bytes.to_vec());
        // What serde_json takes, this decoder takes too.
        if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
            assert_floats_close(&from_checked::<Value>(&mut bytes.to_vec()).unwrap(), &value);
        }
    }

    /// Equal, but for the last digit of a float: `serde_json` is exact only with its feature `float_roundtrip`.
    fn assert_floats_close(ours: &Value, theirs: &Value) {
        match (ours, theirs) {
            (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
                ours.iter().zip(theirs).for_each(|(ours, theirs)| assert_floats_close(ours, theirs));
            }
            (Value::Object(ours), Value::Object(theirs)) if ours.keys().eq(theirs.keys()) => {
                ours.values().zip(theirs.values()).for_each(|(ours, theirs)| assert_floats_close(ours, theirs));
            }
            (Value::Number(ours), Value::Number(theirs)) if ours.is_f64() && theirs.is_f64() => {
                let (ours, theirs) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
                assert!(
                    (ours - theirs).abs() <= ours.abs() * 1e-15 || (ours - theirs).abs() < 1e-300,
                    "{ours} {theirs}"
                );
            }
            _ => assert_eq!(ours, theirs),
        }
    }
}
