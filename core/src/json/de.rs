//! Typed values from checked JSON text, by serde, without copies.
//!
//! The decoder owns the text for as long as the value lives, and decodes string escapes **in
//! place**. Decoded text is never longer than its JSON form. A `&str` field is therefore right and
//! free of copies, even if the JSON had `
//! `, `\u003c` or a surrogate pair in it.
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
//! # JSON values for Rust types
//!
//! | Rust | JSON |
//! |---|---|
//! | `bool`, `()`, `Option` | `true`/`false`, `null`, `null` or the value |
//! | `u8` … `i128` | an integer in any spelling: `1000`, `1e3`, `1000.0`; see [`Digits`](super::Digits) |
//! | `f32`, `f64` | a number that is finite in that type, rounded to the nearest (on a microcontroller see [`Decimal`](super::decimal::Decimal)) |
//! | `char`, `&str` | a string; `char` takes exactly one character |
//! | `&[u8]` | a string, as UTF-8 |
//! | tuple, array, sequence | an array; a tuple's of exactly its length |
//! | struct | an object, or an array of its fields in order |
//! | map | an object; integer, `bool`, `char` and unit enum keys are read from the key's text |
//! | enum | `"Variant"` or `{"Variant": content}` |
//! | [`Decimal`](super::decimal::Decimal), [`RawJson`](super::raw::RawJson) | a number, any value |
//!
//! With the feature `alloc`, `String`, `Vec`, `Cow`, serde's other enum tags and `flatten` work,
//! too. Enum tags and `flatten` read through serde's own buffer, in which a number is an integer
//! only if it is written as one, as in `serde_json`.
//!
//! Visitors get the names of struct fields and enum variants as bytes, which saves a UTF-8 check
//! each. Derived visitors accept them. A visitor that is written by hand should accept them by
//! `visit_bytes`, or ask for `deserialize_str`.
//!
//! # Special cases
//!
//! - A lone surrogate (`"\ud800"`) is grammatical JSON (RFC 8259 §8.2) but not text: decoding it is
//!   an error. A member whose name has one is treated as an unknown member.
//! - A field that occurs twice is an error. For a map, its type decides.
//! - At most [`MAX_DEPTH`] arrays and objects may be open at once. Values that the type ignores do
//!   not count, and are skipped without recursion.

mod decoder;
mod error;
mod float;
mod key;
mod missing;
mod scalar;
#[cfg(test)]
mod tests;

use serde::de::Deserialize;

pub use error::{DecodeError, DecodeErrorKind, MAX_FOUND, Segment, expected, rule};

use decoder::Decoder;
use missing::Nothing;

/// The greatest number of arrays and objects that may be open at once in a value that is decoded.
pub const MAX_DEPTH: u8 = 128;

/// The greatest number of steps that an error keeps of the path to the wrong value. The innermost
/// steps are kept.
pub const MAX_PATH: usize = 3;

/// The name of a struct with `#[derive(Params)]`. The decoder recognises by it that the struct is
/// never an array.
#[doc(hidden)]
pub const ARGUMENTS: &str = "an object by rigline";

/// The answer of `size_hint` of the members of a struct by `#[derive(Params)]` behind a name:
/// whether its value is null. It is the only question that serde lets a visitor ask ahead of a
/// value; another decoder has no such answers.
pub(crate) const NEXT_IS_VALUE: usize = usize::MAX - 1;
/// The same, where it is.
pub(crate) const NEXT_IS_NULL: usize = usize::MAX;

/// Decodes one value from JSON text that has been checked (RFC 8259, UTF-8).
///
/// String escapes are decoded in place, so the text cannot be used again. Text that was not checked
/// is safe, too: the result is an error or some value, never a panic, but not every fault in the
/// text is found.
pub fn from_checked<'de, T: Deserialize<'de>>(text: &'de mut [u8]) -> Result<T, DecodeError> {
    from_checked_or(text, Rules::default(), |error| error)
}

/// Values that are accepted beside those of every type.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules {
    /// A string whose text is a number is one where a number is expected; the same for `true` and
    /// `false`.
    pub(crate) numeric_strings: bool,
    /// A member that a struct with `#[derive(Params)]` does not know is refused.
    pub(crate) refuses_unknown: bool,
}

/// [`from_checked`] with an error made of its own: in one place, whatever the type. A handler's stack need not hold what
/// decoding takes.
#[inline(never)]
pub(crate) fn from_checked_or<'de, T: Deserialize<'de>, E>(
    text: &'de mut [u8],
    rules: Rules,
    otherwise: fn(DecodeError) -> E,
) -> Result<T, E> {
    let mut decoder = Decoder::new(text, rules);
    let fault = match T::deserialize(&mut decoder) {
        Ok(value) if decoder.is_at_end() => return Ok(value),
        Ok(_) => DecodeErrorKind::NotJson,
        Err(kind) => kind,
    };
    Err(decoder.fail(fault, otherwise))
}

/// Decodes a value that was not given: a struct or a map as from `{}`, an `Option` as `None`, and
/// `()` as itself.
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
    T::deserialize(Nothing).map_err(DecodeError::new)
}
