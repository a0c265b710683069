//! Helpers of the tests that cross crates.

pub mod emulator;
pub mod link;
pub mod session;
