//! The parts of a rigline firmware on [embassy](https://embassy.dev) outside the core, for any
//! extension:
//!
//! - [`usb_cdc`]: a USB serial port as `embedded-io-async` streams that do not block forever, lose
//!   or repeat bytes;
//! - [`LogsMayBeLost`]: a writer for that port that drops whole log lines when nobody reads, so
//!   that the firmware continues;
//! - [`EmbassyClock`]: embassy's time as the core's [`Clock`](rigline::Clock);
//! - [`UsbDevice`]: all of these in one call, for a firmware that only serves an extension over
//!   USB;
//! - [`hex`]: the number of a chip as text, for USB's serial number;
//! - `rp2040` (feature of that name, bare metal only): the parts of `usb_cdc` for an RP2040, and
//!   the number of the board.
//!
//! `rigline new NAME --firmware rp2040` writes a firmware that uses all of this, and a test builds
//! and runs it. The image `engine` of `rigline-rig` is one without defmt and watchdog.
//!
//! A firmware does the following. It makes a [`usb_cdc::Port`]. It runs [`usb_cdc::run`] beside a
//! loop. The loop awaits [`connected`](usb_cdc::Port::connected), wraps the writer in
//! [`LogsMayBeLost`], and serves reader and writer with a
//! [`Server`](rigline::serve::asynch::Server) until [`lost`](usb_cdc::Presence::lost).

#![no_std]

mod clock;
mod device;
mod logs;
#[cfg(all(target_os = "none", feature = "rp2040"))]
pub mod rp2040;
pub mod usb_cdc;

pub use clock::EmbassyClock;
pub use device::{UsbDevice, UsbMemory};
pub use logs::LogsMayBeLost;

/// Writes the number of a chip as sixteen upper-case hexadecimal digits.
pub fn hex(id: [u8; 8], digits: &mut [u8; 16]) -> &str {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for (pair, byte) in digits.chunks_exact_mut(2).zip(id) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    core::str::from_utf8(digits).unwrap_or_default()
}
