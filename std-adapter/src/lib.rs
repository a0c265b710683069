//! Runs [`rigline`] extensions on a desktop, and talks to them.
#![forbid(unsafe_code)]

#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "host")]
pub mod target;

#[cfg(feature = "host")]
pub use host::Host;
