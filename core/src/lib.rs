//! Write an extension once; run it on a microcontroller or a desktop.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::todo
    )
)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod answer;
#[cfg(any(test, not(target_pointer_width = "64")))]
mod bytes;
pub mod client;
pub mod clock;
pub mod context;
pub mod duration;
pub mod engine;
pub mod extension;
pub mod frame;
pub mod json;
#[cfg(feature = "postcard")]
pub mod link;
pub mod manifest;
pub mod params;
pub mod protocol;
mod reply;
pub mod rpc;
mod schema;
pub mod serve;

pub use clock::{Clock, Instant};
pub use context::{Context, Level};
pub use duration::GoDuration;
pub use extension::{Call, CallContext, Config, Extension, Failure, FailureKind, Outcome, Phase};
pub use manifest::{Manifest, Operation, Schema};
pub use params::{Outputs, Params};
#[cfg(feature = "macros")]
pub use rigline_macros::{Outputs, Params, extension};
