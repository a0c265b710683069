//! Helpers of the tests that cross crates.

pub mod emulator;
pub mod link;
#[cfg(unix)]
pub mod pty;
pub mod session;
