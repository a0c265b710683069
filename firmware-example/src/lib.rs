//! A hardware-test rig as a rigline extension.
//!
//! [`Rig`] is the rig's logic, without floats, an allocator or a word about its hardware, which stands behind the trait
//! [`Board`]: [`board::Wired`] makes one from `embedded-hal` pins, [`sim::SimBoard`] simulates one. [`pinmap`] is the wiring.
//!
//! ```
//! use rigline::{Clock, Instant};
//! use rigline_rig::{Rig, sim::SimBoard};
//!
//! struct Stopped;
//!
//! impl Clock for Stopped {
//!     fn now(&self) -> Instant {
//!         Instant::default()
//!     }
//! }
//!
//! let rig = Rig::new(SimBoard::new(Stopped, 1), (8 << 20, 65_535));
//! assert_eq!(rig.checks().count(), 6);
//! ```
//!
//! [`wires`] shares a rig between two wires.
//!
//! On bare metal with feature `firmware` the crate also holds `firmware`, the rig on a Raspberry Pi Pico. What other firmware
//! can use of it is the crate `rigline-embassy`.

#![no_std]

#[cfg(feature = "bench-images")]
pub mod bench;
pub mod board;
pub mod pinmap;
pub mod rig;
pub mod sim;
pub mod wires;

pub use board::Board;
pub use rig::Rig;

#[cfg(all(target_os = "none", feature = "firmware"))]
pub mod firmware;
