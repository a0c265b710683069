//! Views of checked JSON text. Nothing is copied, and a part is decoded only when it is asked for.

use core::fmt;

use super::check::{SyntaxError, check};
use super::text::Text;
pub(crate) use super::text::has_escapes;
use super::text::{put_utf8, value_length};

/// A JSON value, as a view of its text.
///
/// ```
/// use rigline::json::{Json, JsonKind};
/// let json = Json::parse(br#"{"rail": "3V3", "limits": [3.135, 3.465]}"#)?;
/// assert!(json.get("rail").and_then(|rail| rail.text()).is_some_and(|rail| rail == "3V3"));
/// let highest = json.get("limits").and_then(|limits| limits.elements().last());
/// assert_eq!(highest.map(|json| json.as_str()), Some("3.465"));
/// # Ok::<(), rigline::json::check::SyntaxError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Json<'a> {
    text: &'a [u8],
}

/// The kind of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum JsonKind {
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
    /// The value `null`.
    pub const NULL: Json<'static> = Json { text: b"null" };

    /// Checks `text` (RFC 8259, with at most [`DEPTH`](super::check::DEPTH) arrays and objects open
    /// at once), and returns a view of it.
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

    /// The kind of the value.
    pub fn kind(&self) -> JsonKind {
        match self.text.first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't' | b'f') => JsonKind::Bool,
            Some(b'n') | None => JsonKind::Null,
            Some(_) => JsonKind::Number,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == JsonKind::Null
    }

    /// The JSON text of the value, with digits and spaces as they came.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// The JSON text of the value, with digits and spaces as they came.
    pub fn as_str(&self) -> &'a str {
        core::str::from_utf8(self.text).unwrap_or_default()
    }

    /// The boolean; none if the value is not `true` or `false`.
    pub fn bool(&self) -> Option<bool> {
        match self.text {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The string; none if the value is not a string.
    pub fn text(&self) -> Option<Text<'a>> {
        match self.text {
            [b'"', inner @ .., b'"'] => Some(Text { raw: inner }),
            _ => None,
        }
    }

    /// The number, exact at any size; none if the value is not a number.
    pub fn number(&self) -> Option<super::number::Digits<'a>> {
        super::number::Digits::new(self.text)
    }

    /// The value of the last member called `name`; none if there is no such member, or the value is
    /// not an object.
    pub fn get(&self, name: &str) -> Option<Json<'a>> {
        self.members().filter(|(key, _)| *key == *name).last().map(|(_, value)| value)
    }

    /// The members of an object, in their order; empty if the value is not an object.
    pub fn members(&self) -> Members<'a> {
        match self.text.split_first() {
            Some((b'{', rest)) => Members { rest },
            _ => Members { rest: &[] },
        }
    }

    /// The elements of an array, in their order; empty if the value is not an array.
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

/// An iterator over the members of an object.
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

/// An iterator over the elements of an array.
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
    let (value, after) = rest.split_at_checked(value_length(rest)?)?;
    *rest = after;
    Some(Json { text: value })
}

impl Text<'_> {
    /// Decodes the string into `memory`, which needs no more bytes than [`raw`](Self::raw) has.
    ///
    /// # Errors
    /// The decoded string does not fit. The content of `memory` is then unspecified.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};

    /// By its decoded characters and by them only (RFC 8259 §8.3), whichever way the comparison
    /// goes.
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
