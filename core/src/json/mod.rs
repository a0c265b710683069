//! JSON (RFC 8259): text is checked once, without recursion and without an allocator.
//!
//! - [`check`](mod@check): the checker, which all other modules rely on.
//! - [`Json`], [`Text`], [`Digits`]: views of checked text.
//! - [`de`]: typed values by serde, with escapes decoded in place.
//! - [`write`](mod@write) and [`ser`]: writing into memory of a fixed size.
//! - `serde_json_core` (feature `serde-json-core`): typed values by the crate serde-json-core, for
//!   firmware that links it anyway.
//! - [`Decimal`] and [`RawJson`]: decimal numbers without floats, and JSON text that is passed on
//!   unchanged.

pub mod check;
pub mod de;
pub(crate) mod decimal;
pub(crate) mod number;
pub(crate) mod raw;
pub mod ser;
#[cfg(feature = "serde-json-core")]
pub mod serde_json_core;
pub(crate) mod text;
pub(crate) mod view;
pub mod write;

pub use decimal::{Decimal, DecimalError};
pub use number::{Digits, NumberError};
#[cfg(feature = "alloc")]
pub use raw::RawJsonBuf;
pub use raw::{RawError, RawJson};
pub use text::{Chars, Text};
pub use view::{Elements, Json, JsonKind, Members};
