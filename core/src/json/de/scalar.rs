//! Strings, characters and floats from their text.

use super::error::DecodeErrorKind;
use super::float;
use crate::bytes::BY_WORDS;
use crate::json::number;
use crate::json::text::{escape, put, put_utf8};

pub(super) const ONE_CHARACTER: &str = "a string of one character";

/// Reads the text of a number as the nearest float; none if that is infinite. On a desktop `core`'s
/// parser is the faster one.
macro_rules! float_readers {
    ($($name:ident $float:ident $small:ident)*) => {$(
        pub(super) fn $name(text: &[u8]) -> Option<$float> {
            if !BY_WORDS {
                return float::$small(&number::Digits::new(text)?);
            }
            str::from_utf8(text).ok()?.parse::<$float>().ok().filter(|value| value.is_finite())
        }
    )*};
}
float_readers! { read_f32 f32 to_f32 read_f64 f64 to_f64 }

pub(super) fn one_char(text: &[u8]) -> Result<char, DecodeErrorKind> {
    let text = str::from_utf8(text).map_err(|_| DecodeErrorKind::NotJson)?;
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(DecodeErrorKind::Expected(ONE_CHARACTER)),
    }
}

pub(super) fn is_white_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Decodes the escapes of a string (RFC 8259 §7) in place.
pub(super) fn unescape(body: &mut [u8], plain: usize) -> Result<&[u8], DecodeErrorKind> {
    let mut read = plain;
    let mut written = plain;
    while let Some(&byte) = body.get(read) {
        if byte != b'\\' {
            put(body, &mut written, byte);
            read += 1;
            continue;
        }
        let (code, length) = escape(body.get(read..).unwrap_or_default()).ok_or(DecodeErrorKind::NotJson)?;
        if code & !0x7FF == 0xD800 {
            return Err(DecodeErrorKind::LoneSurrogate);
        }
        read += length;
        put_utf8(body, &mut written, code);
    }
    body.get(..written).ok_or(DecodeErrorKind::NotJson)
}
