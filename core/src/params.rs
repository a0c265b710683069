//! The types of arguments and outputs. Each type has a schema for the manifest and a decoder that
//! enforces it.
//!
//! | Rust | JSON Schema | the schema accepts, and the decoder refuses |
//! |---|---|---|
//! | `bool` | `boolean` | |
//! | `u8` … `i128`, `usize`, `isize` | `integer` with `minimum` and `maximum` | |
//! | `NonZeroU8` … `NonZeroU128`, `NonZeroUsize` | the same, from 1 | |
//! | [`Decimal<P>`](crate::json::Decimal) | `number` with `minimum`, `maximum`, and the number of digits in its description | a number with more digits behind its point |
//! | `f32`, `f64` | `number` | a number that is not finite in the type |
//! | `char` | `string` of one character | |
//! | `&str`, `String`, `Cow<str>` | `string` | half a surrogate pair (`"\ud800"`), here and in every string |
//! | [`heapless::String<N>`] | `string` with `maxLength` N | a text of up to N characters that takes more than N **bytes** |
//! | `Option<T>` | that of `T`, or `null`; not required | |
//! | `[T; N]`, N up to 32 | `array` of N items | |
//! | `Vec<T>`, [`heapless::Vec<T, N>`] | `array`, with `maxItems` | |
//! | `BTreeMap<K, V>`, [`heapless::LinearMap<K, V, N>`] | `object` with `additionalProperties`; K is a string | as its key |
//! | [`GoDuration`](crate::GoDuration) | `string` with a `pattern` | a duration of more than 292 years |
//! | [`RawJson`](crate::json::RawJson) | anything | |
//! | a struct with `#[derive(Params)]` | `object` | a member given twice; in a call's arguments, a member that it does not know |
//! | an enum of names with `#[derive(Params)]` | `enum` | |
//! | any other type | what `#[param(schema = "…")]` says | as its `Deserialize` has it |
//!
//! In three cases the decoder accepts what the schema refuses. It takes null for an optional field,
//! as if the field were left out. It takes a field by one of its aliases. It takes a float that is
//! within its bounds after it was rounded to its type.
//!
//! Lengths in `min_length` and `max_length` are characters (Unicode scalar values), as JSON Schema counts them.

pub use crate::schema::{Choice, Field, Keywords, OneOf, SchemaNode};
pub use crate::values::{Ending, Key, OutputValue};
