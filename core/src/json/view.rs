//! Views over checked JSON: nothing is copied and nothing decoded until it is asked for.

use core::fmt::{self, Write as _};

use super::check::{SyntaxError, check};
use super::de::put_utf8;

/// A JSON value, as a view over its text.
///
/// ```
/// use rigline::json::{Json, Kind};
/// let json = Json::parse(br#"{"rail": "3V3", "limits": [3.135, 3.465]}"#)?;
/// assert!(json.get("rail").and_then(|rail| rail.text()).is_some_and(|rail| rail == "3V3"));
/// let highest = json.get("limits").and_then(|limits| limits.elements().last());
/// assert_eq!(highest.map(|json| json.as_str()), Some("3.465"));
/// # Ok::<(), rigline::json::SyntaxError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Json<'a> {
    text: &'a [u8],
}

/// What a JSON value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl<'a> Json<'a> {
    /// `null`.
    pub const NULL: Json<'static> = Json { text: b"null" };

    /// Checks `text` (RFC 8259, at most [`DEPTH`](super::check::DEPTH) containers open at once) and views it.
    pub fn parse(text: &'a [u8]) -> Result<Self, SyntaxError> {
        check(text)?;
        Ok(Self::of_checked(text))
    }

    /// Views a text that [`check`] has passed, or a part of one.
    pub(crate) fn of_checked(text: &'a [u8]) -> Self {
        Self { text: text.trim_ascii() }
    }

    /// Views a value without the white space around it.
    pub(crate) fn of_value(text: &'a [u8]) -> Self {
        Self { text }
    }

    /// What the value is.
    pub fn kind(&self) -> Kind {
        match self.text.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// The text itself, digits and spaces as they came.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// The text itself.
    pub fn as_str(&self) -> &'a str {
        core::str::from_utf8(self.text).unwrap_or_default()
    }

    /// `true` or `false`, if it is one of them.
    pub fn bool(&self) -> Option<bool> {
        match self.text {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub fn text(&self) -> Option<Text<'a>> {
        match self.text {
            [b'"', inner @ .., b'"'] => Some(Text { raw: inner }),
            _ => None,
        }
    }

    /// The number, if it is one: exact, whatever its size.
    pub fn number(&self) -> Option<super::number::Digits<'a>> {
        super::number::Digits::new(self.text)
    }

    /// Where the next element stands in the array that `line` is, looking from `from` on.
    pub(crate) fn next_element(line: &[u8], from: usize) -> Option<(usize, usize)> {
        let mut rest = line.get(from..)?;
        let length = take_value(&mut rest)?.text.len();
        let end = line.len().checked_sub(rest.len())?;
        Some((end.checked_sub(length)?, end))
    }

    /// The last member called `name`, if this is an object that has one.
    pub fn get(&self, name: &str) -> Option<Json<'a>> {
        self.members().filter(|(key, _)| *key == *name).last().map(|(_, value)| value)
    }

    /// The members of an object in their order; none of anything else.
    pub fn members(&self) -> Members<'a> {
        match self.text.split_first() {
            Some((b'{', rest)) => Members { rest },
            _ => Members { rest: &[] },
        }
    }

    /// The elements of an array in their order; none of anything else.
    pub fn elements(&self) -> Elements<'a> {
        match self.text.split_first() {
            Some((b'[', rest)) => Elements { rest },
            _ => Elements { rest: &[] },
        }
    }
}

impl fmt::Debug for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The members of an object.
#[derive(Debug, Clone)]
pub struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Members<'a> {
    type Item = (Text<'a>, Json<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let name = take_value(&mut self.rest)?.text()?;
        let value = take_value(&mut self.rest)?;
        Some((name, value))
    }
}

/// The elements of an array.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = Json<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        take_value(&mut self.rest)
    }
}

/// Takes the next value of checked text off `rest`, past the commas, colons and spaces before it.
fn take_value<'a>(rest: &mut &'a [u8]) -> Option<Json<'a>> {
    while let [b' ' | b'\t' | b'\n' | b'\r' | b',' | b':', after @ ..] = *rest {
        *rest = after;
    }
    let (value, after) = rest.split_at_checked(super::de::value_length(rest)?)?;
    *rest = after;
    Some(Json { text: value })
}

/// A JSON string, as a view: it compares, prints and iterates as its decoded text does.
///
/// A `\u` escape of a lone surrogate (RFC 8259 §8.2) reads as U+FFFD.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    raw: &'a [u8],
}

impl<'a> Text<'a> {
    /// Views what stands between the quotes of a checked string.
    pub(crate) fn of_checked(raw: &'a [u8]) -> Self {
        Self { raw }
    }

    /// What stands between the quotes, escapes and all: it can stand between quotes again as it is.
    pub fn raw(&self) -> &'a str {
        core::str::from_utf8(self.raw).unwrap_or_default()
    }

    /// [`raw`](Self::raw) as bytes.
    pub(crate) fn raw_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// The text without a copy, if it has no escapes.
    pub fn as_str(&self) -> Option<&'a str> {
        if has_escapes(self.raw) { None } else { Some(self.raw()) }
    }

    /// Whether the text is `name`; cheaper than comparing with a `str` where the other side is bytes already.
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        if self.raw == name {
            // Escapes, if there are any, stand for less than what is written.
            return !has_escapes(name);
        }
        if !has_escapes(self.raw) {
            return false;
        }
        let mut rest = name;
        for char in self.chars() {
            let (mut utf8, mut length) = ([0; 4], 0);
            put_utf8(&mut utf8, &mut length, u32::from(char));
            match rest.strip_prefix(utf8.get(..length).unwrap_or_default()) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// Whether nothing stands between the quotes.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The decoded characters.
    pub fn chars(&self) -> Chars<'a> {
        Chars { rest: self.raw }
    }

    /// Decodes into `memory`; fails with nothing useful written if it has no room.
    ///
    /// The decoded text is never longer than [`raw`](Self::raw).
    pub fn decode_into<'m>(&self, memory: &'m mut [u8]) -> Result<&'m str, super::write::TooLarge> {
        let capacity = memory.len();
        let mut length = 0;
        for char in self.chars() {
            put_utf8(memory, &mut length, u32::from(char));
        }
        match memory.get(..length) {
            Some(text) => Ok(core::str::from_utf8(text).unwrap_or_default()),
            None => Err(super::write::TooLarge { needed: length, capacity }),
        }
    }

    /// The decoded text: borrowed where there is nothing to decode.
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

/// Whether a string has escapes in it. A loop: `contains` is made for long texts.
#[allow(clippy::manual_contains, reason = "it links what finds bytes by the word")]
pub(crate) fn has_escapes(raw: &[u8]) -> bool {
    raw.iter().any(|byte| *byte == b'\\')
}

/// The decoded characters of a [`Text`].
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
            // RFC 3629 §3: as many ones at the front as there are bytes. Each that follows has six bits, and takes one of
            // the first's.
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

/// Reads the escape that `text` starts with, its reverse solidus included; gives the code point and the escape's length. Of
/// a pair of surrogates it is one; half of one is given as it is.
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
        // The low bits of a letter count from one; its bit 6 tells it from a digit.
        let value = (digit & 0xF).wrapping_add((digit >> 6).wrapping_mul(9));
        code = code << 4 | u32::from(Some(value).filter(|_| digit.is_ascii_hexdigit())?);
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};

    /// By its decoded characters and by them only (RFC 8259 §8.3), whichever way the comparison goes.
    #[test]
    fn a_text_is_what_it_decodes_to() {
        let raws = [
            "",
            "a",
            "\\\\",
            "\\n",
            "\\\\n",
            "\\u0041",
            "\\\\u0041",
            "A",
            "\\u0000",
            "a\\/b",
            "a/b",
            "\\u00e9",
            "é",
            "e\u{301}",
            "\\ud83d\\ude00",
            "😀",
            "\\ud800",
            "\\udc00\\ud800",
            "\u{fffd}",
            "a\\\\b",
            "\\\"",
            "\\u0022",
            "ab",
            "a\\u0062",
        ];
        for raw in raws {
            let text = Text::of_checked(raw.as_bytes());
            let decoded: String = serde_json::from_str(&std::format!("\"{raw}\"")).unwrap_or_else(|_| text.to_string());
            assert_eq!(text.to_string(), decoded, "{raw}");
            for other in raws {
                let told = Text::of_checked(other.as_bytes());
                assert_eq!(told == *decoded, told.to_string() == decoded, "{other} is {decoded}");
                assert_eq!(told == text, told.to_string() == decoded, "{other} is {raw}");
                assert_eq!(text == *other, decoded == other, "{raw} is {other}");
            }
            let mut memory = [0; 16];
            assert_eq!(text.decode_into(&mut memory), Ok(&*decoded), "{raw}");
        }
    }
}
