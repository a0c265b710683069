//! rigline on boards besides the RP2040.
//!
//! The images `qemu-*` are the rig, with simulated hardware, over a bare UART and blocking I/O: QEMU runs them, and
//! `tests/tests/suite/boards.rs` puts them to the tests of the RP2040's.
//!
//! The images `hello-*` are [`Hello`] on five chips, over USB serial and embassy. They are linked, and not run. What `rigline new
//! --firmware CHIP` writes is made of them: there the project's own extension is in the place of [`Hello`].
//!
//! `.ci/boards.sh` builds all images for their targets.

#![no_std]

mod hello;
#[cfg(all(feature = "qemu", target_os = "none"))]
pub mod qemu;

pub use hello::{Hello, Lamp};
