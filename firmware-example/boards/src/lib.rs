//! rigline on boards besides the RP2040.
//!
//! The images `qemu-*` are the rig with simulated hardware, over a UART and blocking input and
//! output. QEMU runs them, and `tests/tests/suite/boards.rs` runs the tests of the RP2040's image
//! with them.
//!
//! The images `hello-*` are [`Hello`] on five chips, over USB serial and embassy. They are linked,
//! and not run. `rigline new --firmware CHIP` writes a copy of them with the project's own
//! extension in the place of [`Hello`].
//!
//! `.ci/boards.sh` builds all images for their targets.

#![no_std]

mod hello;
#[cfg(all(feature = "qemu", target_os = "none"))]
pub mod qemu;

pub use hello::{Hello, Lamp};
