//! Helpers of the tests that cross crates.

pub mod emulator;
pub mod hostile;
pub mod link;
#[cfg(unix)]
pub mod pty;
#[cfg(unix)]
pub mod qemu;
pub mod session;
