//! Helpers of the tests that cross crates.

#[cfg(target_os = "linux")]
pub mod attack;
pub mod emulator;
pub mod link;
#[cfg(unix)]
pub mod pty;
pub mod session;
