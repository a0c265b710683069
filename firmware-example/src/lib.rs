//! A hardware-test rig as a rigline extension.
//!
//! [`rig::Rig`] has the rig's logic. It uses no floats and no allocator, and knows nothing of its
//! hardware. The hardware is behind the trait [`board::Board`]: [`board::Wired`] makes one from
//! `embedded-hal` pins, and [`sim::SimBoard`] simulates one. The module [`pinmap`] describes the
//! wiring.
//!
//! ```
//! use rigline::{Clock, Instant};
//! use rigline_rig::{rig::Rig, sim::SimBoard};
//!
//! struct Stopped;
//!
//! impl Clock for Stopped {
//!     fn now(&self) -> Instant {
//!         Instant::default()
//!     }
//! }
//!
//! let rig = Rig::new(SimBoard::new(Stopped, 1));
//! assert_eq!(rig.checks().count(), 6);
//! ```
//!
//! [`console`] is the UART of the board under test. Feature `console` has the operations for it, and is
//! one of the defaults: a rig without that wire leaves it out.
//!
//! [`wires`] shares a rig between two wires.
//!
//! Each of the features `statistics`, `i2c`, `counter`, `pwm` and `spi` adds operations. Without it,
//! the code of these operations is not in the image. `instruments` has what the last four share.
//!
//! On bare metal with feature `firmware`, the crate also has `firmware`, the rig on a Raspberry Pi
//! Pico. The parts that other firmware can use are in the crate `rigline-embassy`.

#![no_std]

#[cfg(feature = "bench-images")]
pub mod bench;
pub mod board;
pub mod console;
#[cfg(any(feature = "counter", feature = "pwm", feature = "statistics"))]
mod division;
pub mod dut;
#[cfg(feature = "instruments")]
pub mod instruments;
pub mod pinmap;
pub mod rig;
pub mod sim;
#[cfg(feature = "console")]
mod uart;
pub mod wires;

#[cfg(all(target_os = "none", feature = "firmware"))]
pub mod firmware;

/// The examples of the README, which are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
