//! A hardware-test rig as a rigline extension.
//!
//! On bare metal with feature `firmware` the crate also holds what the RP2040 images share: `usb_cdc`, a USB serial
//! port as `embedded-io-async` streams, and `board_id`.

#![no_std]

#[cfg(all(target_os = "none", feature = "firmware"))]
pub mod board_id;
#[cfg(all(target_os = "none", feature = "firmware"))]
pub mod usb_cdc;
