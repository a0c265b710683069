//! Helpers of the tests that cross crates.

#[cfg(target_os = "linux")]
pub mod attack;
pub mod emulator;
pub mod hostile;
pub mod link;
#[cfg(unix)]
pub mod pty;
#[cfg(unix)]
pub mod qemu;
pub mod session;
