//! JSON (RFC 8259), complete: checked once, never recursive, without an allocator.
//!
//! - [`check`](mod@check): the checker, which everything else relies on.
//! - [`Json`], [`Text`], [`Digits`]: views over checked text.
//! - [`de`]: typed values by serde, with escapes decoded in place.
//! - [`write`](mod@write) and [`ser`]: bounded writing.
//! - `serde_json_core` (feature `serde-json-core`): typed values by that crate, for firmware that links it anyway.
//! - [`Decimal`] and [`RawJson`]: numbers without floats, and JSON that passes through.

pub mod check;
pub mod de;
pub mod decimal;
pub mod number;
pub mod raw;
pub mod ser;
#[cfg(feature = "serde-json-core")]
pub mod serde_json_core;
pub(crate) mod text;
pub mod view;
pub mod write;

pub use check::{SyntaxError, SyntaxErrorKind};
pub use de::DecodeError;
pub use decimal::Decimal;
pub use number::Digits;
pub use raw::RawJson;
pub use view::{Json, Kind, Text};
