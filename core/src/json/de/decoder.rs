//! The decoder: tokens of checked text, as serde asks for them.

use core::mem;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::error::{DecodeError, DecodeErrorKind, FoundText, Segment, push_segment};
use super::key::{Name, ONE_MEMBER};
use super::scalar::{ONE_CHARACTER, is_white_space, one_char, read_f32, read_f64, unescape};
use super::{MAX_DEPTH, MAX_PATH, NEXT_IS_NULL, NEXT_IS_VALUE, Rules};
use crate::json::number;
use crate::json::text::{
    NUMBER_TOKEN, RAW_TOKEN, drop_line_breaks, is_delimiter, plain, plain_length, scalar_length, string_length,
    value_length,
};

/// The rest of the text, and the path of an error on its way up.
///
/// Tokens are split off the front, so that each string is the only owner of its bytes and can be
/// decoded in place.
pub(super) struct Decoder<'de> {
    rest: &'de mut [u8],
    rules: Rules,
    depth: u8,
    path: [Segment; MAX_PATH],
    segments: u8,
    cut: bool,
    last: Last<'de>,
}

/// The byte at the end of the text: a byte that no token begins with.
const END: u8 = 0;

/// The value that was read last, should it break a rule.
#[derive(Clone, Copy)]
enum Last<'de> {
    None,
    /// The text of a number, or the name of a member.
    Text(&'de [u8]),
    String(&'de str),
    /// The number of elements of an array or members of an object.
    Count(u32),
}

impl Last<'_> {
    #[cold]
    fn found(self) -> FoundText {
        match self {
            Self::None => FoundText::NONE,
            Self::Text(text) => FoundText::new(text),
            // Characters, counted by the bytes that begin one: `chars().count()` is made for long texts.
            Self::String(text) => FoundText::length(text.bytes().filter(|byte| byte & 0xC0 != 0x80).count()),
            Self::Count(count) => FoundText::length(count as usize),
        }
    }
}

impl<'de> Decoder<'de> {
    // Out of line on small processors, since each type of arguments has a copy of what calls it.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn new(text: &'de mut [u8], rules: Rules) -> Self {
        let path = [Segment::ANY_KEY; MAX_PATH];
        Self { rest: text, rules, depth: MAX_DEPTH, path, segments: 0, cut: false, last: Last::None }
    }

    /// The next byte that is not white space, or [`END`]; it is not consumed.
    #[inline]
    fn peek(&mut self) -> u8 {
        match self.rest.first() {
            Some(&byte) if byte > b' ' => byte,
            _ => self.skip_white_space(),
        }
    }

    #[cold]
    #[inline(never)]
    fn skip_white_space(&mut self) -> u8 {
        let blank = self.rest.iter().take_while(|byte| is_white_space(**byte)).count();
        let _ = self.take(blank);
        self.rest.first().copied().unwrap_or(END)
    }

    /// The fault and its place.
    #[cold]
    #[inline(never)]
    pub(super) fn fail<E>(&self, kind: DecodeErrorKind, otherwise: fn(DecodeError) -> E) -> E {
        otherwise(DecodeError {
            kind,
            path: self.path,
            segments: self.segments,
            cut: self.cut,
            found: match kind {
                DecodeErrorKind::NotOneOf { .. } => match self.last {
                    Last::String(text) => FoundText::new(text.as_bytes()),
                    last => last.found(),
                },
                DecodeErrorKind::Rule(_) | DecodeErrorKind::UnknownField { .. } => self.last.found(),
                DecodeErrorKind::Length(length @ 1..) => FoundText::length(length as usize),
                // Behind a name is its value, which has no fault.
                DecodeErrorKind::Expected(what) if !what.as_bytes().ends_with(b"name") => self.came(),
                _ => FoundText::NONE,
            },
        })
    }

    /// The value of another type than the expected one, where it was not consumed.
    #[cold]
    pub(super) fn came(&self) -> FoundText {
        match self.rest.trim_ascii_start() {
            [b'"', inside @ ..] => {
                let length = string_length(inside, plain_length(inside)).unwrap_or_default();
                FoundText::quoted(inside.get(..length).unwrap_or_default())
            }
            [b'[', ..] => FoundText::new(b"an array"),
            [b'{', ..] => FoundText::new(b"an object"),
            rest => FoundText::new(rest.get(..scalar_length(rest)).unwrap_or_default()),
        }
    }

    /// Nothing but white space may be left.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.iter().all(|byte| is_white_space(*byte))
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
        if let [_, rest @ ..] = mem::take(&mut self.rest) {
            self.rest = rest;
        }
    }

    #[inline]
    fn consume(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == byte;
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

    /// The next token checks what follows the literal.
    fn literal(&mut self, literal: &[u8]) -> Result<(), DecodeErrorKind> {
        if self.take(literal.len()).is_some_and(|text| text == literal) {
            Ok(())
        } else {
            Err(DecodeErrorKind::NotJson)
        }
    }

    /// The decoded bytes of the current string.
    #[cfg_attr(target_pointer_width = "64", inline)]
    fn string(&mut self, what: &'static str) -> Result<&'de [u8], DecodeErrorKind> {
        if self.peek() != b'"' {
            return Err(DecodeErrorKind::Expected(what));
        }
        let inside = self.rest.get(1..).unwrap_or_default();
        let [b'"', after @ ..] = plain(inside) else { return self.other_string() };
        let left = after.len();
        let text = mem::take(&mut self.rest);
        let (text, rest) = text.split_at_mut_checked(text.len().wrapping_sub(left)).unwrap_or_default();
        self.rest = rest;
        Ok(text.get(1..text.len().wrapping_sub(1)).unwrap_or_default())
    }

    /// A string with characters beyond ASCII, or with escapes.
    #[inline(never)]
    fn other_string(&mut self) -> Result<&'de [u8], DecodeErrorKind> {
        let text = mem::take(&mut self.rest).get_mut(1..).unwrap_or_default();
        let plain = plain_length(text);
        let length = string_length(text, plain).ok_or(DecodeErrorKind::NotJson)?;
        let (body, rest) = text.split_at_mut_checked(length).ok_or(DecodeErrorKind::NotJson)?;
        self.rest = rest.get_mut(1..).unwrap_or_default();
        if length == plain { Ok(body) } else { unescape(body, plain) }
    }

    fn str(&mut self, what: &'static str) -> Result<&'de str, DecodeErrorKind> {
        str::from_utf8(self.string(what)?).map_err(|_| DecodeErrorKind::NotJson)
    }

    /// The name of the next member with the comma before it and the colon behind it, which it consumes, if they are written in the shortest
    /// way, as nearly always.
    fn plain_key(&mut self, count: &mut u32) -> Option<&'de [u8]> {
        let name = match &*self.rest {
            [b',', b'"', name @ ..] if *count > 0 => name,
            [b'"', name @ ..] if *count == 0 => name,
            _ => return None,
        };
        let [b'"', b':', after @ ..] = plain(name) else { return None };
        let (length, left) = (name.len(), after.len());
        *count = count.saturating_add(1);
        let text = mem::take(&mut self.rest);
        let (text, rest) = text.split_at_mut_checked(text.len().wrapping_sub(left))?;
        self.rest = rest;
        let text = text.get(text.len().wrapping_sub(length.wrapping_sub(left))..)?;
        text.get(..text.len().wrapping_sub(2))
    }

    /// The name of a member and the colon behind it.
    fn key(&mut self) -> Result<&'de [u8], DecodeErrorKind> {
        let key = self.string(MEMBER_NAME)?;
        if self.consume(b':') { Ok(key) } else { Err(DecodeErrorKind::NotJson) }
    }

    /// [`key`](Self::key) of a struct. Half of a surrogate pair is in no field's name: it is as any other name that is not known.
    fn field(&mut self) -> Result<&'de [u8], DecodeErrorKind> {
        let name = match self.string(MEMBER_NAME) {
            Err(DecodeErrorKind::LoneSurrogate) => NO_NAME,
            name => name?,
        };
        if self.consume(b':') { Ok(name) } else { Err(DecodeErrorKind::NotJson) }
    }

    fn number(&mut self, what: &'static str) -> Result<&'de [u8], DecodeErrorKind> {
        match self.peek() {
            END => Err(DecodeErrorKind::NotJson),
            b'-' | b'0'..=b'9' => {
                let text = self.scalar().ok_or(DecodeErrorKind::NotJson)?;
                self.last = Last::Text(text);
                Ok(text)
            }
            b'"' if self.rules.numeric_strings => self.number_in_string(what),
            _ => Err(DecodeErrorKind::Expected(what)),
        }
    }

    /// The number that is the text of the current string.
    #[cold]
    #[inline(never)]
    fn number_in_string(&mut self, what: &'static str) -> Result<&'de [u8], DecodeErrorKind> {
        let inside = self.rest.get(1..).unwrap_or_default();
        let length = inside.iter().position(|byte| *byte == b'"').ok_or(DecodeErrorKind::NotJson)?;
        if number::Digits::new(inside.get(..length).unwrap_or_default()).is_none() {
            return Err(DecodeErrorKind::Expected(what));
        }
        let text =
            self.take(length.wrapping_add(2)).and_then(|text| text.get(1..=length)).ok_or(DecodeErrorKind::NotJson)?;
        self.last = Last::Text(text);
        Ok(text)
    }

    fn digits(&mut self, what: &'static str) -> Result<number::Digits<'de>, DecodeErrorKind> {
        number::Digits::new(self.number(what)?).ok_or(DecodeErrorKind::NotJson)
    }

    /// An integer of up to 32 bits, in two's complement: one copy of the code for all of them.
    ///
    /// Up to nine plain digits, which is nearly every integer there is, are read in one pass.
    fn small(&mut self, below: u32, above: u32, what: &'static str) -> Result<u32, DecodeErrorKind> {
        let first = self.peek();
        let mut value = 0u32;
        for (length, &byte) in self.rest.iter().take(10).enumerate() {
            if byte.is_ascii_digit() {
                value = value.wrapping_mul(10).wrapping_add(u32::from(byte.wrapping_sub(b'0')));
                continue;
            }
            if length == 0 || (first == b'0' && length > 1) || !is_delimiter(byte) {
                break;
            }
            self.last = Last::Text(self.take(length).ok_or(DecodeErrorKind::NotJson)?);
            return if value <= above { Ok(value) } else { Err(DecodeErrorKind::Expected(what)) };
        }
        self.digits(what)?.within(below, above).map_err(|_| DecodeErrorKind::Expected(what))
    }

    /// Steps over a value of any depth, without recursion, and returns its text.
    #[inline(never)]
    fn raw(&mut self) -> Option<&'de mut [u8]> {
        self.peek();
        let length = value_length(self.rest)?;
        self.take(length)
    }

    /// Whether another element or member follows, and the comma before it; at the container's end,
    /// which stays, it keeps how many there were.
    #[inline(always)]
    fn next(&mut self, close: u8, count: &mut u32) -> Option<bool> {
        match self.peek() {
            END => return None,
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

    /// Opens a container, unless too many are open.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn enter(&mut self) -> bool {
        let Some(depth) = self.depth.checked_sub(1) else { return false };
        self.depth = depth;
        self.bump();
        true
    }

    /// Closes a container, if it ends here.
    fn leave(&mut self, close: u8) -> bool {
        self.depth = self.depth.saturating_add(1);
        self.consume(close)
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

    /// Opens a struct's object, if there is one.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn open_struct(&mut self) -> bool {
        self.peek() == b'{' && self.enter()
    }

    /// Why [`open_struct`](Self::open_struct) has found none.
    #[cold]
    #[inline(never)]
    fn no_object(&self) -> DecodeErrorKind {
        match self.rest.first() {
            None => DecodeErrorKind::NotJson,
            Some(b'{') => DecodeErrorKind::Depth,
            Some(_) => DecodeErrorKind::Expected("an object"),
        }
    }

    fn sequence<V: Visitor<'de>>(
        &mut self,
        visitor: V,
        wrong_length: DecodeErrorKind,
    ) -> Result<V::Value, DecodeErrorKind> {
        if !self.enter() {
            return Err(DecodeErrorKind::Depth);
        }
        let segments = self.segments;
        match visitor.visit_seq(Elements { decoder: self, count: 0 }) {
            // A length of this array, not of something inside it.
            Err(DecodeErrorKind::Length(_))
                if self.segments == segments && !matches!(wrong_length, DecodeErrorKind::Length(_)) =>
            {
                Err(wrong_length)
            }
            Err(kind) => Err(kind),
            Ok(value) if self.leave(b']') => Ok(value),
            Ok(_) => Err(wrong_length),
        }
    }

    fn map<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        if !self.enter() {
            return Err(DecodeErrorKind::Depth);
        }
        let value = visitor.visit_map(Members { decoder: self, count: 0 })?;
        if self.leave(b'}') { Ok(value) } else { Err(DecodeErrorKind::Length(0)) }
    }

    /// Arguments are never an array: each type of them has no code for one.
    // In line, only one of the two ways is compiled into it: what the arguments are is a constant
    // at the call.
    #[inline(always)]
    fn structure<V: Visitor<'de>>(
        &mut self,
        are_arguments: bool,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        if are_arguments {
            return visitor.visit_map(Fields::<true> { decoder: self, key: &[], fields, count: 0, is_open: false });
        }
        if self.open_struct() {
            let members = Fields::<false> { decoder: &mut *self, key: &[], fields, count: 0, is_open: true };
            let value = visitor.visit_map(members)?;
            return if self.leave(b'}') { Ok(value) } else { Err(DecodeErrorKind::Length(0)) };
        }
        match self.rest.first() {
            Some(b'[') => self.sequence(visitor, elements(fields.len())),
            _ => Err(self.no_object()),
        }
    }

    fn tuple<V: Visitor<'de>>(&mut self, length: usize, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        match self.peek() {
            END => Err(DecodeErrorKind::NotJson),
            b'[' => self.sequence(visitor, elements(length)),
            _ => Err(elements(length)),
        }
    }
}

const A_BOOLEAN: &str = "true or false";

fn elements(count: usize) -> DecodeErrorKind {
    DecodeErrorKind::Elements(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The integers of up to 32 bits, which share [`Decoder::small`].
macro_rules! small_integers {
    ($($method:ident $visit:ident $int:ident $below:expr, $above:expr, $what:literal;)*) => {$(
        #[inline]
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_lossless)]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
            visitor.$visit(self.small($below, $above, $what)? as $int)
        }
    )*};
}

macro_rules! large_integers {
    ($($method:ident $visit:ident $to:ident $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
            visitor.$visit(self.digits($what)?.$to().map_err(|_| DecodeErrorKind::Expected($what))?)
        }
    )*};
}

macro_rules! floats {
    ($($method:ident $visit:ident $read:ident $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
            visitor.$visit($read(self.number($what)?).ok_or(DecodeErrorKind::Expected($what))?)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = DecodeErrorKind;

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

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        match self.peek() {
            b'{' => self.map(visitor),
            b'[' => self.sequence(visitor, DecodeErrorKind::Length(0)),
            b'"' => self.deserialize_str(visitor),
            b't' | b'f' => self.deserialize_bool(visitor),
            b'n' => self.deserialize_unit(visitor),
            b'-' | b'0'..=b'9' => {
                let text = self.rest.get(..scalar_length(self.rest)).unwrap_or_default();
                let digits = number::Digits::new(text).ok_or(DecodeErrorKind::NotJson)?;
                // As in `serde_json`: what is written as an integer is one, but `-0`, whose sign an integer would lose.
                if digits.is_plain() && text != b"-0" {
                    if let Ok(value) = digits.to_u64() {
                        self.scalar().ok_or(DecodeErrorKind::NotJson)?;
                        return visitor.visit_u64(value);
                    }
                    if let Ok(value) = digits.to_i64() {
                        self.scalar().ok_or(DecodeErrorKind::NotJson)?;
                        return visitor.visit_i64(value);
                    }
                }
                self.deserialize_f64(visitor)
            }
            _ => Err(DecodeErrorKind::NotJson),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        match self.peek() {
            END => Err(DecodeErrorKind::NotJson),
            b't' => {
                self.literal(b"true")?;
                visitor.visit_bool(true)
            }
            b'f' => {
                self.literal(b"false")?;
                visitor.visit_bool(false)
            }
            b'"' if self.rules.numeric_strings => {
                let value = match &*self.rest {
                    [b'"', b't', b'r', b'u', b'e', b'"', ..] => true,
                    [b'"', b'f', b'a', b'l', b's', b'e', b'"', ..] => false,
                    _ => return Err(DecodeErrorKind::Expected(A_BOOLEAN)),
                };
                let _ = self.string(A_BOOLEAN)?;
                visitor.visit_bool(value)
            }
            _ => Err(DecodeErrorKind::Expected(A_BOOLEAN)),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_char(one_char(self.string(ONE_CHARACTER)?)?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        let text = self.str("a string")?;
        self.last = Last::String(text);
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        match self.peek() {
            END => Err(DecodeErrorKind::NotJson),
            b'[' => self.sequence(visitor, DecodeErrorKind::Length(0)),
            _ => visitor.visit_borrowed_bytes(self.string("a string")?),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        if self.peek() == b'n' {
            self.literal(b"null")?;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        if self.peek() != b'n' {
            return Err(DecodeErrorKind::Expected("null"));
        }
        self.literal(b"null")?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        self.deserialize_unit(visitor)
    }

    // The name is a constant at the call: only one of the two ways is compiled into it.
    #[inline(always)]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        if name == RAW_TOKEN {
            let text = drop_line_breaks(self.raw().ok_or(DecodeErrorKind::NotJson)?);
            self.last = Last::Text(text);
            visitor.visit_borrowed_bytes(text)
        } else if name == NUMBER_TOKEN {
            // What is no number is refused by the visitor, in its words, and is not consumed.
            visitor.visit_borrowed_bytes(self.number("a number").unwrap_or_default())
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        match self.peek() {
            END => Err(DecodeErrorKind::NotJson),
            b'[' => self.sequence(visitor, DecodeErrorKind::Length(0)),
            _ => Err(DecodeErrorKind::Expected("an array")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        self.tuple(length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        self.tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        match self.peek() {
            END => Err(DecodeErrorKind::NotJson),
            b'{' => self.map(visitor),
            _ => Err(DecodeErrorKind::Expected("an object")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        self.structure(name == super::ARGUMENTS, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        match self.peek() {
            END => Err(DecodeErrorKind::NotJson),
            b'"' => visitor.visit_enum(Name { text: self.string("a string")?, as_bytes: true, is_strict: false }),
            b'{' => {
                if !self.enter() {
                    return Err(DecodeErrorKind::Depth);
                }
                if self.peek() != b'"' {
                    return Err(DecodeErrorKind::Expected(ONE_MEMBER));
                }
                let name = self.key()?;
                let value = visitor.visit_enum(Tagged { decoder: self, name });
                if value.is_err()
                    && let Some(variant) = static_name(variants, name)
                {
                    self.came_by(Segment::Field(variant));
                }
                let value = value?;
                if self.leave(b'}') { Ok(value) } else { Err(DecodeErrorKind::Expected(ONE_MEMBER)) }
            }
            _ => Err(DecodeErrorKind::Expected("a string, or an object of one member")),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_borrowed_bytes(self.string("a string")?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        self.raw().ok_or(DecodeErrorKind::NotJson)?;
        visitor.visit_unit()
    }
}

const MEMBER_NAME: &str = "a member name";
/// Not UTF-8, which the names of fields are.
const NO_NAME: &[u8] = b"\xff";

/// The elements of an array.
struct Elements<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    /// How many there were so far.
    count: u32,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = DecodeErrorKind;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeErrorKind> {
        if !self.decoder.next(b']', &mut self.count).ok_or(DecodeErrorKind::NotJson)? {
            return Ok(None);
        }
        let value = seed.deserialize(&mut *self.decoder);
        if value.is_err() {
            self.decoder.came_by(Segment::Index(self.count.wrapping_sub(1)));
        }
        value.map(Some)
    }
}

/// The members of a map.
struct Members<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    /// How many there were so far.
    count: u32,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = DecodeErrorKind;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeErrorKind> {
        let name = match self.decoder.plain_key(&mut self.count) {
            Some(name) => name,
            None if self.decoder.next(b'}', &mut self.count).ok_or(DecodeErrorKind::NotJson)? => self.decoder.key()?,
            None => return Ok(None),
        };
        let key = seed.deserialize(Name { text: name, as_bytes: false, is_strict: false });
        if key.is_err() {
            self.decoder.last = Last::Text(name);
            self.decoder.came_by(Segment::ANY_KEY);
        }
        key.map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeErrorKind> {
        let value = seed.deserialize(&mut *self.decoder);
        if value.is_err() {
            self.decoder.came_by(Segment::ANY_KEY);
        }
        value
    }
}

/// The members of a struct; of one with `#[derive(Params)]`, if `PARAMS`. Its visitor takes all of
/// them: they open and close their object themselves, in one piece of code for all such structs.
struct Fields<'a, 'de, const PARAMS: bool> {
    decoder: &'a mut Decoder<'de>,
    key: &'de [u8],
    fields: &'static [&'static str],
    /// How many there were so far.
    count: u32,
    /// The brace was consumed.
    is_open: bool,
}

impl<'de, const PARAMS: bool> Fields<'_, 'de, PARAMS> {
    /// The next name, where it is not written in the shortest way.
    fn other_key(&mut self) -> Result<Option<&'de [u8]>, DecodeErrorKind> {
        if self.decoder.next(b'}', &mut self.count).ok_or(DecodeErrorKind::NotJson)? {
            return self.decoder.field().map(Some);
        }
        if PARAMS {
            self.decoder.leave(b'}');
        }
        Ok(None)
    }
}

impl<'de, const PARAMS: bool> MapAccess<'de> for Fields<'_, 'de, PARAMS> {
    type Error = DecodeErrorKind;

    /// Not a size: see [`NEXT_IS_VALUE`].
    #[inline(always)]
    fn size_hint(&self) -> Option<usize> {
        if !PARAMS {
            return None;
        }
        Some(if self.decoder.rest.first() == Some(&b'n') { NEXT_IS_NULL } else { NEXT_IS_VALUE })
    }

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeErrorKind> {
        if PARAMS && !self.is_open {
            if !self.decoder.open_struct() {
                return Err(self.decoder.no_object());
            }
            self.is_open = true;
        }
        self.key = match self.decoder.plain_key(&mut self.count) {
            Some(name) => name,
            None => match self.other_key()? {
                Some(name) => name,
                None => return Ok(None),
            },
        };
        if PARAMS {
            // The blanks before the value, so that its first byte can be looked at.
            self.decoder.peek();
        }
        let is_strict = PARAMS && self.decoder.rules.refuses_unknown;
        let key = seed.deserialize(Name { text: self.key, as_bytes: true, is_strict });
        if key.is_err() {
            self.decoder.last = Last::Text(self.key);
        }
        key.map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeErrorKind> {
        let value = seed.deserialize(&mut *self.decoder);
        if value.is_err() {
            self.decoder.came_by_member(self.fields, self.key);
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
    type Error = DecodeErrorKind;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DecodeErrorKind> {
        Ok((seed.deserialize(Name { text: self.name, as_bytes: true, is_strict: false })?, self))
    }
}

impl<'de> VariantAccess<'de> for Tagged<'_, 'de> {
    type Error = DecodeErrorKind;

    fn unit_variant(self) -> Result<(), DecodeErrorKind> {
        if self.decoder.peek() != b'n' {
            return Err(DecodeErrorKind::Expected("null"));
        }
        self.decoder.literal(b"null")
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeErrorKind> {
        seed.deserialize(self.decoder)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        self.decoder.tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        self.decoder.structure(false, fields, visitor)
    }
}
