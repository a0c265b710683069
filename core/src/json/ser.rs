//! Typed values as JSON by [serde], written into memory of a fixed size.
//!
//! All of serde's data model can be written, without an allocator: enums in all of serde's forms,
//! and maps whose keys are strings, characters, integers, booleans, unit variants or newtypes of
//! these. Floats are written in the shortest form that reads back equal. NaN and the infinities are
//! errors, since JSON has no form for them (RFC 8259 §6). The recursion is as deep as the value.
//!
//! ```
//! use rigline::json::ser::{SerError, to_slice};
//!
//! #[derive(serde::Serialize)]
//! struct Reading<'a> {
//!     rail: &'a str,
//!     millivolts: [u16; 2],
//!     limit: Option<u16>,
//! }
//!
//! let reading = Reading { rail: "3V3", millivolts: [3298, 3301], limit: None };
//! let mut buffer = [0; 64];
//! let len = to_slice(&reading, &mut buffer)?;
//! assert_eq!(&buffer[..len], br#"{"rail":"3V3","millivolts":[3298,3301],"limit":null}"#);
//!
//! let Err(SerError::TooLarge(fault)) = to_slice(&reading, &mut buffer[..20]) else { panic!() };
//! assert_eq!((fault.needed, fault.capacity), (len, 20));
//! # Ok::<(), SerError>(())
//! ```

pub(super) mod float;

use core::fmt::{self, Write as _};

use serde::ser::{self, Impossible, Serialize};

use super::text::RAW_TOKEN;
use super::write::{Escaped, Message, TooLarge, Writer};
use crate::bytes::BY_WORDS;

/// Writes `value` as JSON at the start of `buf`. Returns the length of the text in bytes.
///
/// # Errors
/// The value has no JSON form, or is larger than `buf`. The content of `buf` is then unspecified.
/// The error [`SerError::TooLarge`] has the size that is needed, so an empty `buf` can be used to
/// measure a value.
pub fn to_slice<T: Serialize + ?Sized>(value: &T, buf: &mut [u8]) -> Result<usize, SerError> {
    let mut out = Writer::new(buf);
    write(value, &mut out)?;
    Ok(out.len())
}

/// Writes `value` as JSON at the current position of `out`.
///
/// # Errors
/// The value has no JSON form, or `out` is too small. In the second case [`Writer::needed`] counts
/// this value, too, so that it becomes the size of the whole text. In the first case `out` is as it
/// was before.
pub fn write<T: Serialize + ?Sized>(value: &T, out: &mut Writer<'_>) -> Result<(), SerError> {
    let start = out.len();
    let result = value.serialize(Serializer { out: &mut *out });
    conclude(out, start, result)
}

/// [`write`], but that what was written before an error stays. Returns whether the value has a JSON
/// form; what is too large has one.
pub(crate) fn put<T: Serialize + ?Sized>(value: &T, out: &mut Writer<'_>) -> bool {
    value.serialize(Serializer { out }).is_ok()
}

/// Writes `value` as JSON into a vector of the size of the text.
///
/// # Errors
/// The value has no JSON form, or the memory cannot be allocated ([`SerError::TooLarge`]).
#[cfg(feature = "alloc")]
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<alloc::vec::Vec<u8>, SerError> {
    /// The first guess is most often enough, the second exact, unless the value is written
    /// otherwise each time.
    const TRIES: usize = 4;
    let mut text = alloc::vec::Vec::new();
    let mut fault = TooLarge { needed: 256, capacity: 0 };
    for _ in 0..TRIES {
        text.try_reserve_exact(fault.needed).map_err(|_| SerError::TooLarge(fault))?;
        text.resize(fault.needed, 0);
        match to_slice(value, &mut text) {
            Ok(len) => {
                text.truncate(len);
                return Ok(text);
            }
            Err(SerError::TooLarge(found)) => fault = found,
            Err(other) => return Err(other),
        }
        text.clear();
    }
    Err(SerError::TooLarge(fault))
}

/// Writes `value` as JSON into a string.
///
/// # Errors
/// As [`to_vec`].
#[cfg(feature = "alloc")]
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<alloc::string::String, SerError> {
    // All that is written came from a `str`, so this only says to the compiler what holds.
    alloc::string::String::from_utf8(to_vec(value)?).map_err(|_| SerError::Custom)
}

/// The reason why a value could not be written as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SerError {
    /// The text does not fit into the memory.
    TooLarge(TooLarge),
    /// A float is NaN or infinite. JSON has no such numbers (RFC 8259 §6).
    NotFinite,
    /// The key of a map cannot be written as a JSON string (RFC 8259 §4).
    KeyNotString,
    /// The value's own `Serialize` or `Display` returned an error. Its text is not kept.
    Custom,
}

impl SerError {
    fn fixed_text(self) -> Option<&'static str> {
        match self {
            Self::TooLarge(_) => None,
            Self::NotFinite => Some("NaN and infinite numbers cannot be written as JSON"),
            Self::KeyNotString => Some("a map's key is not a string"),
            Self::Custom => Some("the value cannot be written"),
        }
    }
}

impl From<TooLarge> for SerError {
    fn from(fault: TooLarge) -> Self {
        Self::TooLarge(fault)
    }
}

impl fmt::Display for SerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.fixed_text()) {
            (Self::TooLarge(fault), _) => fault.fmt(f),
            (_, text) => f.write_str(text.unwrap_or_default()),
        }
    }
}

impl core::error::Error for SerError {}

impl Message for SerError {
    /// The sentence of its `Display`, without formatting code.
    fn write_escaped(&self, out: &mut Writer<'_>) {
        match (self, self.fixed_text()) {
            (Self::TooLarge(fault), _) => fault.write_escaped(out),
            (_, text) => out.text_part(text.unwrap_or_default()),
        }
    }
}

fn conclude(out: &mut Writer<'_>, start: usize, result: Result<(), Fault>) -> Result<(), SerError> {
    match result {
        Ok(()) => return Ok(out.check()?),
        Err(_) => out.truncate(start),
    }
    Err(match result {
        Err(Fault::NotFinite) => SerError::NotFinite,
        Err(Fault::KeyNotString) => SerError::KeyNotString,
        _ => SerError::Custom,
    })
}

/// A fault that stops the writing of a value. Too little room is none. One byte, so that a `Result`
/// of it is a register.
#[derive(Debug, Clone, Copy)]
enum Fault {
    NotFinite,
    KeyNotString,
    Custom,
}

impl fmt::Display for Fault {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl core::error::Error for Fault {}

impl ser::Error for Fault {
    /// The text would cost its formatting code, and a place to keep it.
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Custom
    }
}

type Done = Result<(), Fault>;

// What needs no type of the value's is here, so that it is compiled once.

fn display(out: &mut Writer<'_>, text: fmt::Arguments<'_>) -> Done {
    Escaped(out).write_fmt(text).map_err(|_| Fault::Custom)
}

fn quoted(out: &mut Writer<'_>, text: fmt::Arguments<'_>) -> Done {
    out.byte(b'"');
    display(out, text)?;
    out.byte(b'"');
    Ok(())
}

fn character(out: &mut Writer<'_>, value: char) {
    out.str(value.encode_utf8(&mut [0; 4]));
}

/// `{"name":` before what a variant holds.
fn variant(out: &mut Writer<'_>, name: &str) {
    out.byte(b'{');
    out.name(name);
}

fn bytes_as_numbers(out: &mut Writer<'_>, bytes: &[u8]) {
    let mut before = b'[';
    for byte in bytes {
        out.byte(before);
        out.u32(u32::from(*byte));
        before = b',';
    }
    out.raw(if bytes.is_empty() { b"[]" } else { b"]" });
}

struct Serializer<'w, 'b> {
    out: &'w mut Writer<'b>,
}

/// The methods that write an integer, each by the writer's narrowest.
macro_rules! integers {
    ($($method:ident($int:ty) $write:ident;)*) => {$(
        fn $method(self, value: $int) -> Done {
            self.out.$write(value.into());
            Ok(())
        }
    )*};
}

impl<'w, 'b> ser::Serializer for Serializer<'w, 'b> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Compound<'w, 'b>;
    type SerializeTuple = Compound<'w, 'b>;
    type SerializeTupleStruct = Compound<'w, 'b>;
    type SerializeTupleVariant = Compound<'w, 'b>;
    type SerializeMap = Compound<'w, 'b>;
    type SerializeStruct = Compound<'w, 'b>;
    type SerializeStructVariant = Compound<'w, 'b>;

    fn serialize_bool(self, value: bool) -> Done {
        self.out.bool(value);
        Ok(())
    }

    integers! {
        serialize_i8(i8) i32;
        serialize_i16(i16) i32;
        serialize_i32(i32) i32;
        serialize_i64(i64) i64;
        serialize_i128(i128) i128;
        serialize_u8(u8) u32;
        serialize_u16(u16) u32;
        serialize_u32(u32) u32;
        serialize_u64(u64) u64;
        serialize_u128(u128) u128;
    }

    fn serialize_f32(self, value: f32) -> Done {
        if !value.is_finite() {
            return Err(Fault::NotFinite);
        }
        // `Debug` is the shortest form that reads back equal, always with a point or an exponent, as in 1.0 and 1e16.
        if BY_WORDS {
            return display(self.out, format_args!("{value:?}"));
        }
        float::write_f32(self.out, value);
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Done {
        if !value.is_finite() {
            return Err(Fault::NotFinite);
        }
        if BY_WORDS {
            return display(self.out, format_args!("{value:?}"));
        }
        float::write_f64(self.out, value);
        Ok(())
    }

    fn serialize_char(self, value: char) -> Done {
        character(self.out, value);
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Done {
        self.out.str(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Done {
        bytes_as_numbers(self.out, value);
        Ok(())
    }

    fn serialize_none(self) -> Done {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        self.out.raw(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.serialize_str(variant)
    }

    // Always inlined: `name` is a constant of the caller's, and all but one of the arms goes away.
    #[inline(always)]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Done {
        if name == RAW_TOKEN { value.serialize(Only::<VERBATIM> { out: self.out }) } else { value.serialize(self) }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Done {
        variant(self.out, name);
        value.serialize(Serializer { out: &mut *self.out })?;
        self.out.byte(b'}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Fault> {
        Ok(Compound::open(self.out, b'[', b"]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Fault> {
        Ok(Compound::open(self.out, b'[', b"]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Fault> {
        Ok(Compound::open(self.out, b'[', b"]"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Fault> {
        variant(self.out, name);
        Ok(Compound::open(self.out, b'[', b"]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Fault> {
        Ok(Compound::open(self.out, b'{', b"}"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Fault> {
        Ok(Compound::open(self.out, b'{', b"}"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Fault> {
        variant(self.out, name);
        Ok(Compound::open(self.out, b'{', b"}}"))
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Done {
        quoted(self.out, format_args!("{value}"))
    }
}

/// An array or object that has been opened.
struct Compound<'w, 'b> {
    out: &'w mut Writer<'b>,
    any: bool,
    close: &'static [u8],
}

impl<'w, 'b> Compound<'w, 'b> {
    fn open(out: &'w mut Writer<'b>, bracket: u8, close: &'static [u8]) -> Self {
        out.byte(bracket);
        Self { out, any: false, close }
    }

    fn comma(&mut self) {
        if self.any {
            self.out.byte(b',');
        }
        self.any = true;
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.comma();
        value.serialize(Serializer { out: &mut *self.out })
    }

    fn name(&mut self, name: &str) {
        self.comma();
        self.out.name(name);
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
        self.name(name);
        value.serialize(Serializer { out: &mut *self.out })
    }

    fn finish(self) {
        self.out.raw(self.close);
    }
}

/// The traits that differ in nothing but the names of their methods.
macro_rules! compounds {
    ($($name:ident: $method:ident($($key:ident: $key_type:ty)?) by $by:ident;)*) => {$(
        impl ser::$name for Compound<'_, '_> {
            type Ok = ();
            type Error = Fault;

            fn $method<T: Serialize + ?Sized>(&mut self, $($key: $key_type,)? value: &T) -> Done {
                self.$by($($key,)? value)
            }

            fn end(self) -> Done {
                self.finish();
                Ok(())
            }
        }
    )*};
}

compounds! {
    SerializeSeq: serialize_element() by element;
    SerializeTuple: serialize_element() by element;
    SerializeTupleStruct: serialize_field() by element;
    SerializeTupleVariant: serialize_field() by element;
    SerializeStruct: serialize_field(name: &'static str) by field;
    SerializeStructVariant: serialize_field(name: &'static str) by field;
}

impl ser::SerializeMap for Compound<'_, '_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.comma();
        key.serialize(Only::<KEY> { out: &mut *self.out })
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.out.byte(b':');
        value.serialize(Serializer { out: &mut *self.out })
    }

    fn end(self) -> Done {
        self.finish();
        Ok(())
    }
}

/// Takes only what can be the key of a map, and makes a string of it.
const KEY: bool = false;
/// Takes only a string, and writes it as it is.
const VERBATIM: bool = true;

/// A serializer for the two places where not every value can stand.
struct Only<'w, 'b, const WHICH: bool> {
    out: &'w mut Writer<'b>,
}

impl<const WHICH: bool> Only<'_, '_, WHICH> {
    fn refuse<T>() -> Result<T, Fault> {
        Err(if WHICH == KEY { Fault::KeyNotString } else { Fault::Custom })
    }
}

macro_rules! quoted_integers {
    ($($method:ident($int:ty) $write:ident;)*) => {$(
        fn $method(self, value: $int) -> Done {
            if WHICH == VERBATIM {
                return Self::refuse();
            }
            self.out.byte(b'"');
            self.out.$write(value.into());
            self.out.byte(b'"');
            Ok(())
        }
    )*};
}

impl<const WHICH: bool> ser::Serializer for Only<'_, '_, WHICH> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Impossible<(), Fault>;
    type SerializeTuple = Impossible<(), Fault>;
    type SerializeTupleStruct = Impossible<(), Fault>;
    type SerializeTupleVariant = Impossible<(), Fault>;
    type SerializeMap = Impossible<(), Fault>;
    type SerializeStruct = Impossible<(), Fault>;
    type SerializeStructVariant = Impossible<(), Fault>;

    quoted_integers! {
        serialize_i8(i8) i32;
        serialize_i16(i16) i32;
        serialize_i32(i32) i32;
        serialize_i64(i64) i64;
        serialize_i128(i128) i128;
        serialize_u8(u8) u32;
        serialize_u16(u16) u32;
        serialize_u32(u32) u32;
        serialize_u64(u64) u64;
        serialize_u128(u128) u128;
    }

    fn serialize_str(self, value: &str) -> Done {
        if WHICH == VERBATIM {
            self.out.raw(value.as_bytes());
        } else {
            self.out.str(value);
        }
        Ok(())
    }

    fn serialize_bool(self, value: bool) -> Done {
        if WHICH == VERBATIM {
            return Self::refuse();
        }
        self.out.str(if value { "true" } else { "false" });
        Ok(())
    }

    fn serialize_char(self, value: char) -> Done {
        if WHICH == VERBATIM {
            return Self::refuse();
        }
        character(self.out, value);
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        if WHICH == VERBATIM {
            return Self::refuse();
        }
        self.out.str(variant);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Done {
        if name == RAW_TOKEN {
            return Self::refuse();
        }
        value.serialize(self)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Done {
        if WHICH == VERBATIM {
            return Self::refuse();
        }
        quoted(self.out, format_args!("{value}"))
    }

    fn serialize_f32(self, _: f32) -> Done {
        Self::refuse()
    }

    fn serialize_f64(self, _: f64) -> Done {
        Self::refuse()
    }

    fn serialize_bytes(self, _: &[u8]) -> Done {
        Self::refuse()
    }

    fn serialize_none(self) -> Done {
        Self::refuse()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Done {
        Self::refuse()
    }

    fn serialize_unit(self) -> Done {
        Self::refuse()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        Self::refuse()
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(self, _: &'static str, _: u32, _: &'static str, _: &T) -> Done {
        Self::refuse()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Fault> {
        Self::refuse()
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Fault> {
        Self::refuse()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Fault> {
        Self::refuse()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Fault> {
        Self::refuse()
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Fault> {
        Self::refuse()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Fault> {
        Self::refuse()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Fault> {
        Self::refuse()
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Serialize;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::string::{String, ToString};
    use std::vec::Vec;
    use std::{format, vec};

    /// The text, each limit near its size tried on the way.
    fn written<T: Serialize + ?Sized>(value: &T) -> Result<String, SerError> {
        let needed = match to_slice(value, &mut []) {
            Err(SerError::TooLarge(fault)) => fault.needed,
            other => return other.map(|_| String::new()),
        };
        for less in 1..=needed.min(40) {
            let capacity = needed - less;
            let fault = to_slice(value, &mut vec![0; capacity]);
            assert_eq!(fault, Err(SerError::TooLarge(TooLarge { needed, capacity })));
        }
        let mut larger = vec![b'#'; needed + 1];
        assert_eq!(to_slice(value, &mut larger), Ok(needed));
        assert_eq!(larger.pop(), Some(b'#'));
        let mut exact = vec![0; needed];
        assert_eq!(to_slice(value, &mut exact), Ok(needed));
        assert_eq!(exact, larger);
        #[cfg(feature = "alloc")]
        assert_eq!(to_vec(value).unwrap(), exact);
        Ok(String::from_utf8(exact).unwrap())
    }

    fn same_as_serde_json<T: Serialize + ?Sized>(value: &T) {
        assert_eq!(written(value).unwrap(), serde_json::to_string(value).unwrap());
    }

    #[derive(Serialize)]
    struct Unit;
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Newtype<T>(T);
    #[derive(Serialize)]
    struct Tuple(u8, &'static str);
    #[derive(Serialize)]
    struct Empty {}
    #[derive(Serialize)]
    struct Named<T> {
        first: T,
        #[serde(rename = "se\"cond\n")]
        second: Option<Unit>,
        #[serde(skip_serializing_if = "Option::is_none")]
        third: Option<u8>,
    }
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Kinds {
        Unit,
        #[serde(rename = "new\ttype")]
        Newtype(i8),
        Tuple(bool, char),
        NoTuple(),
        Struct {
            value: Option<String>,
            more: (),
        },
        NoStruct {},
    }
    struct Bytes<'a>(&'a [u8]);
    impl Serialize for Bytes<'_> {
        fn serialize<S: ser::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_bytes(self.0)
        }
    }
    struct Shown<'a>(fmt::Arguments<'a>);
    impl Serialize for Shown<'_> {
        fn serialize<S: ser::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_str(&self.0)
        }
    }
    struct RawText<T>(T);
    impl<T: Serialize> Serialize for RawText<T> {
        fn serialize<S: ser::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_newtype_struct(RAW_TOKEN, &self.0)
        }
    }
    struct Refuses;
    impl Serialize for Refuses {
        fn serialize<S: ser::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(ser::Error::custom("its own reason"))
        }
    }
    struct NoDisplay;
    impl fmt::Display for NoDisplay {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a part")?;
            Err(fmt::Error)
        }
    }
    impl Serialize for NoDisplay {
        fn serialize<S: ser::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_str(self)
        }
    }
    /// A map of one pair.
    struct Pair<K, V>(K, V);
    impl<K: Serialize, V: Serialize> Serialize for Pair<K, V> {
        fn serialize<S: ser::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_map([(&self.0, &self.1)])
        }
    }

    #[test]
    fn writes_what_serde_json_writes() {
        same_as_serde_json(&(true, false, (), None::<u8>, Some(7)));
        same_as_serde_json(&(i8::MIN, i8::MAX, u8::MAX, i16::MIN, u16::MAX));
        same_as_serde_json(&(i32::MIN, u32::MAX, i64::MIN, u64::MAX, i128::MIN, u128::MAX));
        same_as_serde_json(&('a', '"', '\0', 'é', '🚀', "", "text", "\u{1f}\\\"/\u{7f}"));
        same_as_serde_json(&(Unit, Newtype(1), Tuple(2, "b"), Empty {}, Newtype(Newtype("x"))));
        same_as_serde_json(&(Bytes(b""), Bytes(b"\0"), Bytes(b"\xFFab")));
        same_as_serde_json(&(Vec::<u8>::new(), vec![1], vec![vec![1, 2], vec![], vec![3]], [[(); 0]; 2]));
        same_as_serde_json(&Named { first: vec![Some(1), None], second: None, third: None });
        same_as_serde_json(&Named { first: BTreeMap::<u8, u8>::new(), second: Some(Unit), third: Some(3) });
        same_as_serde_json(&[
            Kinds::Unit,
            Kinds::Newtype(-1),
            Kinds::Tuple(true, '\n'),
            Kinds::NoTuple(),
            Kinds::Struct { value: Some("v".into()), more: () },
            Kinds::Struct { value: None, more: () },
            Kinds::NoStruct {},
        ]);
        same_as_serde_json(&(Shown(format_args!("{:?} {}", "a\n", 1)), Shown(format_args!(""))));
        same_as_serde_json(&BTreeMap::from([("a", 1), ("\"", 2), ("", 3)]));
        same_as_serde_json(&BTreeMap::from([('a', Kinds::Unit), ('\t', Kinds::Newtype(1))]));
        same_as_serde_json(&BTreeMap::from([(i64::MIN, 0), (0, 1)]));
        same_as_serde_json(&(Pair(u8::MAX, 1), Pair(i8::MIN, 1), Pair(u16::MAX, 1), Pair(i16::MIN, 1), Pair(1u32, 1)));
        same_as_serde_json(&(Pair(i32::MIN, 1), Pair(u64::MAX, 1), Pair(u128::MAX, 1), Pair(i128::MIN, 1)));
        same_as_serde_json(&(Pair(true, 1), Pair(false, Pair(Kinds::Unit, Newtype(Pair("x", Unit))))));
        same_as_serde_json(&(Pair(Newtype(Newtype("k")), 1), Pair(Newtype(5), 1), Pair(Shown(format_args!("\"")), 1)));
        same_as_serde_json("a str by itself");
        same_as_serde_json(&[1, 2, 3][..]);
    }

    #[test]
    fn line_separators_are_escaped_in_values_names_and_display() {
        assert_eq!(written("\u{2028}\u{2029}").unwrap(), r#""\u2028\u2029""#);
        assert_eq!(written(&Pair("\u{2028}", '\u{2029}')).unwrap(), r#"{"\u2028":"\u2029"}"#);
        assert_eq!(written(&Shown(format_args!("{}", '\u{2028}'))).unwrap(), r#""\u2028""#);
    }

    #[test]
    fn floats_are_the_shortest_that_read_back_equal() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (3.3, "3.3"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e16"),
            (1.5e300, "1.5e300"),
            (1e-7, "1e-7"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::MIN, "-1.7976931348623157e308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(written(&value).unwrap(), text);
        }
        assert_eq!(
            written(&(0.1f32, f32::MAX, 1e-45f32, 16_777_216f32)).unwrap(),
            "[0.1,3.4028235e38,1e-45,16777216.0]"
        );
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(written(&value), Err(SerError::NotFinite));
            assert_eq!(written(&[Some(1.0), Some(value)]), Err(SerError::NotFinite));
            assert_eq!(written(&(value as f32)), Err(SerError::NotFinite));
        }
    }

    #[test]
    fn what_is_no_string_is_refused_as_a_key() {
        fn refused(key: impl Serialize) {
            assert_eq!(written(&Pair(key, 1)), Err(SerError::KeyNotString));
        }
        refused(());
        refused(1.5f32);
        refused(f64::NAN);
        refused(None::<&str>);
        refused(Some("key"));
        refused(Unit);
        refused(Bytes(b"key"));
        refused(["key"]);
        refused(("key",));
        refused(Tuple(1, "key"));
        refused(Kinds::Newtype(1));
        refused(Kinds::Tuple(true, 'k'));
        refused(Kinds::Struct { value: None, more: () });
        refused(Empty {});
        refused(Pair("k", "v"));
        refused(Newtype(()));
        refused(RawText("\"key\""));
    }

    #[test]
    fn json_text_passes_through() {
        let text = r#"{ "a" : [1e3, "\u2028"] }"#;
        assert_eq!(written(&RawText(text)).unwrap(), text);
        assert_eq!(written(&[Some(RawText("1")), None]).unwrap(), "[1,null]");
        assert_eq!(written(&Pair("raw", Newtype(RawText(text)))).unwrap(), format!(r#"{{"raw":{text}}}"#));
        assert_eq!(written(&RawText(1)), Err(SerError::Custom));
        assert_eq!(written(&RawText(Some("1"))), Err(SerError::Custom));
        assert_eq!(written(&RawText(Shown(format_args!("1")))), Err(SerError::Custom));
    }

    #[test]
    fn a_fault_takes_back_the_value_and_nothing_else() {
        let mut buffer = [0; 32];
        let mut out = Writer::new(&mut buffer);
        out.raw(br#"{"a":"#);
        assert_eq!(write(&(1, "two", Refuses), &mut out), Err(SerError::Custom));
        assert_eq!(write(&NoDisplay, &mut out), Err(SerError::Custom));
        assert_eq!(write(&[1.0, f32::NAN], &mut out), Err(SerError::NotFinite));
        // Too long and at fault: the fault counts, and the room is there again.
        assert_eq!(write(&("a text that is longer than the buffer is", Refuses), &mut out), Err(SerError::Custom));
        assert_eq!(write(&[7], &mut out), Ok(()));
        out.byte(b'}');
        assert_eq!(out.as_written(), br#"{"a":[7]}"#);
    }

    #[test]
    fn want_of_room_goes_on_counting() {
        let mut buffer = [0; 8];
        let mut out = Writer::new(&mut buffer);
        out.byte(b'[');
        assert_eq!(write("12345678", &mut out), Err(TooLarge { needed: 11, capacity: 8 }.into()));
        out.byte(b',');
        assert_eq!(write(&1, &mut out), Err(TooLarge { needed: 13, capacity: 8 }.into()));
        assert_eq!(write(&f64::NAN, &mut out), Err(SerError::NotFinite));
        out.byte(b']');
        assert_eq!(out.needed(), 14);
    }

    #[test]
    fn an_error_says_the_same_in_both_ways() {
        for (error, text) in [
            (SerError::NotFinite, "NaN and infinite numbers cannot be written as JSON"),
            (SerError::KeyNotString, "a map's key is not a string"),
            (SerError::Custom, "the value cannot be written"),
            (TooLarge { needed: 9, capacity: 8 }.into(), "the text needs 9 bytes, and 8 fit"),
        ] {
            assert_eq!(error.to_string(), text);
            let mut buffer = [0; 64];
            let mut out = Writer::new(&mut buffer);
            error.write_escaped(&mut out);
            assert_eq!(out.as_written(), text.as_bytes());
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn a_vector_grows_to_what_is_needed() {
        for len in [0, 1, 253, 254, 255, 256, 10_000] {
            let text = "x".repeat(len);
            assert_eq!(to_string(&text).unwrap(), format!("\"{text}\""));
        }
        assert_eq!(to_vec(&f64::NAN), Err(SerError::NotFinite));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn a_value_that_never_stops_growing_is_given_up() {
        struct Growing(core::cell::Cell<usize>);
        impl Serialize for Growing {
            fn serialize<S: ser::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                self.0.set(self.0.get() * 2);
                to.serialize_str(&"x".repeat(self.0.get()))
            }
        }
        assert!(matches!(to_vec(&Growing(256.into())), Err(SerError::TooLarge(_))));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            // serde_json reads these exactly; any float to the bit is a property of its own below.
            any::<i32>().prop_map(|value| Value::from(f64::from(value) / 8.0)),
            any::<String>().prop_map(Value::from),
            "[\u{0}-\u{30}\\\\\u{2026}-\u{202a}]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..8).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_reads_back_equal(value in any_value()) {
            let text = written(&value).unwrap();
            let splits_a_line = |c| c < ' ' || c == '\u{2028}' || c == '\u{2029}';
            prop_assert!(!text.contains(splits_a_line));
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }

        #[test]
        fn any_float_reads_back_to_the_bit(wide: u64, narrow: u32) {
            let (wide, narrow) = (f64::from_bits(wide), f32::from_bits(narrow));
            match written(&wide) {
                Ok(text) => {
                    prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), wide.to_bits());
                    prop_assert!(serde_json::from_str::<f64>(&text).is_ok());
                }
                Err(fault) => prop_assert!(fault == SerError::NotFinite && !wide.is_finite()),
            }
            match written(&narrow) {
                Ok(text) => {
                    prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), narrow.to_bits());
                    prop_assert!(serde_json::from_str::<f32>(&text).is_ok());
                }
                Err(fault) => prop_assert!(fault == SerError::NotFinite && !narrow.is_finite()),
            }
        }
    }
}
