//! Typed values by the crate [serde-json-core](::serde_json_core), for firmware that links that
//! crate anyway and should not contain a second decoder.
//!
//! The crate gets text that [`check`](mod@super::check) has accepted. It therefore never sees text
//! that it would accept and RFC 8259 does not, and its recursion is limited by the checker's depth.
//! Escapes are decoded in place before it reads the text. It would refuse a surrogate pair, and
//! leave `
//! ` or `\u003c` undecoded in a `&str`. The escapes of the quotation mark and of the backslash
//! stay, because the crate finds the end of a string by them.
//!
//! ```
//! use rigline::json::serde_json_core::from_checked;
//!
//! #[derive(serde::Deserialize)]
//! struct Args<'a> {
//!     rail: &'a str,
//!     note: heapless::String<16>,
//! }
//!
//! let mut text = br#"{"rail":"5\u00b0 \ud83d\ude00\n","note":"say \"on\""}"#.to_vec();
//! let args: Args = from_checked(&mut text, &mut [0; 16])?;
//! assert_eq!((args.rail, args.note.as_str()), ("5° 😀\n", "say \"on\""));
//! # Ok::<(), serde_json_core::de::Error>(())
//! ```
//!
//! # Limits
//!
//! Compared with [`de`](super::de), the following are errors, never wrong values:
//!
//! - A string with a quotation mark or a backslash cannot be a `&str`. It is decoded in `scratch`,
//!   and only types that copy it, such as a `heapless::String`, can hold it. `scratch` must be as
//!   long as the longest such string.
//! - An integer with a point or an exponent, such as `1.0` and `1e3`.
//! - Types that look at the value first (`deserialize_any`: untagged enums,
//!   [`RawJson`](super::RawJson), [`Decimal`](super::Decimal)), and byte strings.
//! - Errors say what is wrong, but not where.
//!
//! Two values are accepted without an error: `null` is NaN where a float is expected, and a float
//! may be infinite.
//!
//! The crate is not used for writing, because it panics on types that it does not know. Pass text
//! that it has written elsewhere to an output or a log by
//! [`RawJson::from_checked_str`](super::RawJson::from_checked_str).

use serde::Deserialize;

use super::text::{escape, put, put_utf8};

/// Decodes one value from JSON text that has been checked. The text cannot be used again.
///
/// `scratch` must be as long as the longest string that contains a quotation mark or a backslash.
/// It may be empty if the type has no strings that copy their text.
///
/// # Errors
/// The text does not contain a value of the type, or serde-json-core cannot decode it, see
/// [above](self).
pub fn from_checked<'de, T: Deserialize<'de>>(
    text: &'de mut [u8],
    scratch: &mut [u8],
) -> Result<T, ::serde_json_core::de::Error> {
    let text: &'de [u8] = decode_escapes(text);
    ::serde_json_core::from_slice_escaped(text, scratch).map(|(value, _)| value)
}

/// An error's sentence, for a reply. Its own texts need `core::fmt`.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "with a feature of its own the error holds a text")]
pub(crate) fn text(error: &::serde_json_core::de::Error) -> &'static str {
    use ::serde_json_core::de::Error;
    match error {
        Error::InvalidType => "args: a value has another type than expected",
        Error::InvalidNumber => "args: a number is not of the kind expected, or out of range",
        Error::EscapedStringIsTooLong => "args: a string with a quotation mark or reverse solidus is too long",
        Error::InvalidEscapeSequence | Error::InvalidUnicodeCodePoint => "args: a string has half of a surrogate pair",
        Error::AnyIsUnsupported | Error::BytesIsUnsupported => "args: a value of a type that cannot be decoded here",
        Error::CustomError => "args: a member is missing, unknown, given twice or refused by its type",
        _ => "args: a value is not what was expected",
    }
}

/// Decodes all escapes (RFC 8259 §7) but those of the quotation mark and the reverse solidus, and
/// those of lone surrogates, which are not characters. The text is then not JSON any more: control
/// characters stand in its strings.
fn decode_escapes(text: &mut [u8]) -> &[u8] {
    let (mut read, mut written) = (0, 0);
    while let Some(&byte) = text.get(read) {
        // In checked text a reverse solidus stands in strings only.
        if byte != b'\\' {
            put(text, &mut written, byte);
            read += 1;
            continue;
        }
        let Some((code, length)) = text.get(read..).and_then(escape) else { break };
        match code {
            0x22 | 0x5C => {
                put(text, &mut written, b'\\');
                put_utf8(text, &mut written, code);
            }
            0xD800..0xE000 => {
                // As it came, for serde-json-core to refuse where it is decoded.
                for at in read..read + length {
                    let byte = text.get(at).copied().unwrap_or_default();
                    put(text, &mut written, byte);
                }
            }
            _ => put_utf8(text, &mut written, code),
        }
        read += length;
    }
    text.get(..written).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    fn decode<'a, T: Deserialize<'a>>(text: &'a mut [u8]) -> Result<T, ::serde_json_core::de::Error> {
        super::super::check::check(text).unwrap();
        from_checked(text, &mut [0; 64])
    }

    #[test]
    fn escapes_are_decoded() {
        for (text, expected) in [
            (r#""plain""#, "plain"),
            (r#""\b\f\n\r\t\/""#, "\u{8}\u{c}\n\r\t/"),
            (r#""\u0000\u00e9\u20ac\uD83d\ude00""#, "\0é€😀"),
            (r#" "" "#, ""),
        ] {
            assert_eq!(decode::<&str>(&mut text.as_bytes().to_vec()), Ok(expected), "{text}");
            assert_eq!(decode::<heapless::String<32>>(&mut text.as_bytes().to_vec()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_it_cannot_do_is_an_error() {
        use ::serde_json_core::de::Error;
        for text in [r#""\"""#, r#""\\""#, r#""\u0022""#, r#""a\u005c""#] {
            assert!(decode::<&str>(&mut text.as_bytes().to_vec()).is_err(), "{text}");
            let expected: String = serde_json::from_str(text).unwrap();
            assert_eq!(decode::<heapless::String<8>>(&mut text.as_bytes().to_vec()).unwrap(), *expected, "{text}");
        }
        for text in [r#""\ud800""#, r#""\udc00\ud800""#, r#""\ud800\u0041""#, r#""\ud800\n""#, r#""\ud800xxdc00""#] {
            for error in [
                decode::<&str>(&mut text.as_bytes().to_vec()).unwrap_err(),
                decode::<heapless::String<32>>(&mut text.as_bytes().to_vec()).unwrap_err(),
            ] {
                assert_eq!(error, Error::InvalidEscapeSequence, "{text}");
            }
        }
        let long = br#""0123456789\"""#;
        assert_eq!(
            from_checked::<heapless::String<32>>(&mut long.to_vec(), &mut [0; 10]).unwrap_err(),
            Error::EscapedStringIsTooLong
        );
        assert_eq!(from_checked::<heapless::String<32>>(&mut long.to_vec(), &mut [0; 11]).unwrap(), "0123456789\"");
        for text in ["1.0", "1e3", "-1", "256", "null", "\"1\""] {
            assert!(decode::<u8>(&mut text.as_bytes().to_vec()).is_err(), "{text}");
        }
        assert_eq!(decode::<crate::json::RawJson<'_>>(&mut b"1".to_vec()).err(), Some(Error::CustomError));
    }

    #[test]
    fn each_fault_of_arguments_has_its_sentence() {
        #[derive(serde::Deserialize)]
        struct Args {
            #[allow(dead_code, reason = "the test looks at the error alone")]
            samples: u8,
        }
        fn sentence<'a, T: Deserialize<'a>>(json: &'a mut [u8]) -> &'static str {
            text(&decode::<T>(json).err().unwrap())
        }
        let another_type = "args: a value has another type than expected";
        assert_eq!(sentence::<Args>(&mut br#"{"samples":"1"}"#.to_vec()), another_type);
        let no_such_number = "args: a number is not of the kind expected, or out of range";
        assert_eq!(sentence::<Args>(&mut br#"{"samples":256}"#.to_vec()), no_such_number);
        let half = "args: a string has half of a surrogate pair";
        assert_eq!(sentence::<&str>(&mut br#""\ud800""#.to_vec()), half);
        let cannot = "args: a value of a type that cannot be decoded here";
        assert_eq!(sentence::<crate::json::Decimal<3>>(&mut b"1".to_vec()), cannot);
        let of_a_member = "args: a member is missing, unknown, given twice or refused by its type";
        assert_eq!(sentence::<Args>(&mut b"{}".to_vec()), of_a_member);
        assert_eq!(sentence::<Args>(&mut br#"{"samples":1,"samples":1}"#.to_vec()), of_a_member);
        assert_eq!(sentence::<(u8,)>(&mut b"[1,2]".to_vec()), "args: a value is not what was expected");
        let long = "args: a string with a quotation mark or reverse solidus is too long";
        let mut json = br#""0123456789\"""#.to_vec();
        let error = from_checked::<heapless::String<32>>(&mut json, &mut [0; 10]).unwrap_err();
        assert_eq!(text(&error), long);
    }

    proptest! {
        /// Texts that it accepts have the value that they have in `serde_json`.
        #[test]
        fn agrees_with_serde_json(texts in prop::collection::vec(any::<String>(), 0..4), escaped: bool) {
            let mut json = serde_json::to_string(&texts).unwrap();
            if escaped {
                json = json.chars().map(|char| match char {
                    '\u{80}'.. => char.encode_utf16(&mut [0; 2]).iter().map(|unit| std::format!("\\u{unit:04x}")).collect::<std::vec::Vec<_>>().concat(),
                    _ => String::from(char),
                }).collect();
            }
            let ours = from_checked::<heapless::Vec<heapless::String<512>, 4>>(&mut json.into_bytes(), &mut [0; 512]).unwrap();
            prop_assert!(ours.iter().map(heapless::String::as_str).eq(texts.iter().map(String::as_str)));
        }
    }
}
