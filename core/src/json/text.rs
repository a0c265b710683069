//! The text of JSON below its grammar: strings, their escapes, and where a value ends.

use core::fmt::{self, Write as _};

use crate::bytes::{BY_WORDS, count_while};

/// A JSON string, as a view of its text. It compares, prints and iterates as the decoded string
/// does.
///
/// A `\u` escape of a lone surrogate (RFC 8259 §8.2) reads as U+FFFD.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub(super) raw: &'a [u8],
}

impl<'a> Text<'a> {
    /// Views the text between the quotes of a checked string.
    pub(crate) fn of_checked(raw: &'a [u8]) -> Self {
        Self { raw }
    }

    /// The text between the quotes, with its escapes. It can be written between quotes again
    /// unchanged.
    pub fn raw(&self) -> &'a str {
        core::str::from_utf8(self.raw).unwrap_or_default()
    }

    /// [`raw`](Self::raw) as bytes.
    pub(crate) fn raw_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// The string without a copy, if it has no escapes; otherwise none.
    pub fn as_str(&self) -> Option<&'a str> {
        if has_escapes(self.raw) { None } else { Some(self.raw()) }
    }

    /// Whether the text is `name`; cheaper than comparing with a `str` where the other side is
    /// bytes already.
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        if self.raw == name {
            // A decoded escape is never longer than its text.
            return !has_escapes(name);
        }
        has_escapes(self.raw) && self.is_mapped(name, |char| char)
    }

    /// Whether the text is `name` once each of its characters was mapped.
    pub(crate) fn is_mapped(&self, name: &[u8], map: fn(char) -> char) -> bool {
        let mut rest = name;
        for char in self.chars() {
            let (mut utf8, mut length) = ([0; 4], 0);
            put_utf8(&mut utf8, &mut length, u32::from(map(char)));
            match rest.strip_prefix(utf8.get(..length).unwrap_or_default()) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// Whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The characters of the string, with escapes decoded.
    pub fn chars(&self) -> Chars<'a> {
        Chars { rest: self.raw }
    }

    /// The string with escapes decoded. It is borrowed if there are no escapes.
    #[cfg(feature = "alloc")]
    pub fn to_cow(&self) -> alloc::borrow::Cow<'a, str> {
        match self.as_str() {
            Some(text) => alloc::borrow::Cow::Borrowed(text),
            None => alloc::borrow::Cow::Owned(self.chars().collect()),
        }
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.is(other.as_bytes())
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.chars().eq(other.chars())
    }
}

impl Eq for Text<'_> {}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chars().try_for_each(|char| f.write_char(char))
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.raw())
    }
}

/// An iterator over the decoded characters of a [`Text`].
#[derive(Debug, Clone)]
pub struct Chars<'a> {
    /// UTF-8 that was checked.
    rest: &'a [u8],
}

impl Iterator for Chars<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let (first, mut after) = self.rest.split_first()?;
        let code = match first {
            b'\\' => {
                let (code, length) = escape(self.rest)?;
                after = self.rest.get(length..)?;
                code
            }
            0..0x80 => u32::from(*first),
            // RFC 3629 §3: as many ones at the front as there are bytes. Each that follows has six
            // bits, and takes one of the first's.
            _ => {
                let (mut code, mut mask, mut ones) = (u32::from(*first), 0x3F, *first);
                while ones & 0x40 != 0 {
                    let next;
                    (next, after) = after.split_first()?;
                    code = code << 6 | u32::from(next & 0x3F);
                    mask = mask << 5 | 0x1F;
                    ones <<= 1;
                }
                code & mask
            }
        };
        self.rest = after;
        Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }
}

/// Whether a string has escapes in it. A loop: `contains` is made for long texts.
#[allow(clippy::manual_contains, reason = "it links what finds bytes by the word")]
pub(crate) fn has_escapes(raw: &[u8]) -> bool {
    raw.iter().any(|byte| *byte == b'\\')
}

/// Reads the escape that `text` starts with, its reverse solidus included; returns the code point
/// and the escape's length. Of a pair of surrogates it is one; half of one is given as it is.
///
/// ```text
/// escape (
///     %x22 / %x5C / %x2F /    ; "  \  /
///     %x62 / %x66 / %x6E /    ; b  f  n
///     %x72 / %x74 /           ; r  t
///     %x75 4HEXDIG )          ; uXXXX      (RFC 8259 §7)
/// ```
#[cold]
pub(super) fn escape(text: &[u8]) -> Option<(u32, usize)> {
    let letter = *text.get(1)?;
    let code = match letter {
        b'"' | b'\\' | b'/' => letter,
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => {
            let high = unit(text)?;
            if high & 0xFC00 == 0xD800
                && let Some(rest @ [b'\\', b'u', ..]) = text.get(6..)
                && let Some(low) = unit(rest)
                && low & 0xFC00 == 0xDC00
            {
                return Some((0x1_0000 + ((high & 0x3FF) << 10) + (low & 0x3FF), 12));
            }
            return Some((high, 6));
        }
        _ => return None,
    };
    Some((u32::from(code), 2))
}

/// The value of the four digits in `\uXXXX`.
fn unit(text: &[u8]) -> Option<u32> {
    let mut code = 0;
    for digit in text.get(2..6)? {
        // The low bits of a letter count from one; its bit 6 distinguishes it from a digit.
        let value = (digit & 0xF).wrapping_add((digit >> 6).wrapping_mul(9));
        code = code << 4 | u32::from(digit.is_ascii_hexdigit().then_some(value)?);
    }
    Some(code)
}

#[inline]
pub(super) fn put(body: &mut [u8], written: &mut usize, byte: u8) {
    if let Some(place) = body.get_mut(*written) {
        *place = byte;
    }
    *written += 1;
}

/// UTF-8 (RFC 3629 §3): at most three bytes for the six of `\uXXXX`, four for the twelve of a pair.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn put_utf8(body: &mut [u8], written: &mut usize, code: u32) {
    let low = |shift: u32| 0x80 | ((code >> shift) & 0x3f) as u8;
    match code {
        0..=0x7f => return put(body, written, code as u8),
        0x80..=0x7ff => put(body, written, 0xc0 | (code >> 6) as u8),
        0x800..=0xffff => put(body, written, 0xe0 | (code >> 12) as u8),
        _ => put(body, written, 0xf0 | (code >> 18) as u8),
    }
    if code > 0xffff {
        put(body, written, low(12));
    }
    if code > 0x7ff {
        put(body, written, low(6));
    }
    put(body, written, low(0));
}

/// The length of the value at the start of `text`, which is no white space; none if there is no
/// value, or no end of it. Containers are counted, not remembered: in checked text their brackets
/// are known to match.
pub(super) fn value_length(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'"' | b'{' | b'[' => {}
        _ => return Some(scalar_length(text)).filter(|length| *length > 0),
    }
    let mut rest = text;
    let mut depth = 0usize;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'"' => {
                let length = string_length(rest, plain_length(rest))?;
                rest = rest.get(length..)?.get(1..)?;
            }
            b'{' | b'[' => depth = depth.wrapping_add(1),
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => continue,
        }
        if depth == 0 {
            return text.len().checked_sub(rest.len());
        }
    }
    None
}

/// Where a member of an object is: its name without quotes, and the end of its value.
pub(crate) struct Member {
    pub(crate) name: (usize, usize),
    pub(crate) end: usize,
}

/// The next member of the object that is `text`, from `at` on, which is 0 for the first or the end
/// of another; none if there is none.
pub(crate) fn member(text: &[u8], at: usize) -> Option<Member> {
    let quote = at + text.get(at..)?.iter().position(|byte| *byte == b'"')?;
    let inside = text.get(quote + 1..)?;
    let name_end = quote + 1 + string_length(inside, plain_length(inside))?;
    let behind = text.get(name_end + 1..)?;
    let value = name_end + 1 + behind.iter().position(|byte| !matches!(byte, b':' | b' ' | b'\t' | b'\r' | b'\n'))?;
    Some(Member { name: (quote + 1, name_end), end: value + value_length(text.get(value..)?)? })
}

/// How many bytes come before the first quote or backslash.
pub(super) fn plain_length(text: &[u8]) -> usize {
    if BY_WORDS { plain_length_by_words(text) } else { plain_length_by_bytes(text) }
}

#[inline(always)]
fn plain_length_by_bytes(text: &[u8]) -> usize {
    count_while(text, |byte| !matches!(byte, b'"' | b'\\'))
}

/// A byte of `word ^ pattern` is 0 where `word` has the byte of the pattern, and the lowest zero byte is the lowest high bit of
/// `(x - 0x01…) & !x & 0x80…`.
#[inline(always)]
fn plain_length_by_words(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let mut rest = text;
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let hits = (zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5c))) & HIGH;
        if hits != 0 {
            return text.len() - rest.len() + (hits.trailing_zeros() / 8) as usize;
        }
        rest = tail;
    }
    text.len() - rest.len() + rest.iter().take_while(|byte| !matches!(**byte, b'"' | b'\\')).count()
}

/// The length of a string, counted from behind its opening quote; the first `plain` bytes are known
/// to be plain.
pub(super) fn string_length(text: &[u8], plain: usize) -> Option<usize> {
    let mut length = plain;
    loop {
        match *text.get(length)? {
            b'"' => return Some(length),
            b'\\' => length = length.checked_add(2)?,
            _ => length = length.checked_add(1)?,
        }
    }
}

/// The length of the number or literal at the start of `text`: up to a delimiter.
pub(super) fn scalar_length(text: &[u8]) -> usize {
    text.iter().take_while(|byte| !is_delimiter(**byte)).count()
}

/// Skips the bytes of a string that need no second look.
#[inline(always)]
pub(super) fn plain(rest: &[u8]) -> &[u8] {
    if BY_WORDS { plain_by_words(rest) } else { plain_by_bytes(rest) }
}

#[inline(always)]
fn plain_by_words(mut rest: &[u8]) -> &[u8] {
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return rest.get((special.trailing_zeros() / 8) as usize..).unwrap_or_default();
        }
        rest = after;
    }
    while let [byte, after @ ..] = rest
        && is_plain(*byte)
    {
        rest = after;
    }
    rest
}

#[inline(never)]
fn plain_by_bytes(mut rest: &[u8]) -> &[u8] {
    // Four table look-ups a turn: what a Cortex-M0+ does fastest.
    while let Some(([a, b, c, d], after)) = rest.split_first_chunk::<4>() {
        if !is_plain(*a) {
            return rest;
        }
        if !is_plain(*b) {
            return rest.get(1..).unwrap_or_default();
        }
        if !is_plain(*c) {
            return rest.get(2..).unwrap_or_default();
        }
        if !is_plain(*d) {
            return rest.get(3..).unwrap_or_default();
        }
        rest = after;
    }
    while let [byte, after @ ..] = rest
        && is_plain(*byte)
    {
        rest = after;
    }
    rest
}

/// The high bit of each byte that is a quote, a backslash, a control character or beyond ASCII. Exact up to and including
/// the first of them, which is all that is asked (a borrow can only come from a byte that is one of them).
#[inline(always)]
fn special_bytes(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Exchanged with its neighbours, the quote (0x22) stands next to the control characters: one
    // comparison for both.
    let quotes = (word ^ (EACH * 2)).wrapping_sub(EACH * 0x21);
    let backslashes = (word ^ (EACH * u64::from(b'\\'))).wrapping_sub(EACH);
    (quotes | backslashes | word) & (EACH * 0x80)
}

/// Whether a byte needs no second look in a string.
#[inline(always)]
pub(super) fn is_plain(byte: u8) -> bool {
    PLAIN.get(usize::from(byte)).copied().unwrap_or_default()
}

static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x20;
    while byte < 0x80 {
        #[allow(clippy::indexing_slicing, reason = "in bounds by the loop's condition")]
        {
            table[byte] = byte != b'"' as usize && byte != b'\\' as usize;
        }
        byte += 1;
    }
    table
};

/// The name of the newtype by which this crate's serializer and deserializer know JSON text that is
/// meant as it is.
pub(crate) const RAW_TOKEN: &str = "$rigline::Raw";

/// The same for the text of a number.
pub(super) const NUMBER_TOKEN: &str = "$rigline::Number";

/// Closes the gaps that CR and LF leave.
pub(crate) fn drop_line_breaks(text: &mut [u8]) -> &[u8] {
    let mut kept = text.iter().take_while(|byte| !is_line_break(**byte)).count();
    let mut read = kept;
    while let Some(&byte) = text.get(read) {
        if !is_line_break(byte) {
            if let Some(place) = text.get_mut(kept) {
                *place = byte;
            }
            kept += 1;
        }
        read += 1;
    }
    text.get(..kept).unwrap_or_default()
}

pub(super) fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

pub(super) fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b',' | b']' | b'}' | b':' | b'"' | 0..=b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// Each processor has one of the two ways; here are both.
    #[test]
    fn words_and_bytes_end_at_the_same_byte() {
        for special in 0..=u8::MAX {
            let ends_plain = matches!(special, b'"' | b'\\' | 0..0x20 | 0x80..);
            let ends_string = matches!(special, b'"' | b'\\');
            for length in 0..21 {
                for at in 0..length {
                    let mut text = vec![b'#'; length];
                    text[at] = special;
                    let plain = if ends_plain { &text[at..] } else { &[] };
                    assert_eq!((plain_by_words(&text), plain_by_bytes(&text)), (plain, plain), "{special} at {at}");
                    let count = if ends_string { at } else { length };
                    let counts = (plain_length_by_words(&text), plain_length_by_bytes(&text));
                    assert_eq!(counts, (count, count), "{special} at {at} of {length}");
                }
            }
        }
    }
}
