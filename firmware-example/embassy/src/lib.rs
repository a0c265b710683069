//! The parts of a rigline firmware on [embassy](https://embassy.dev) outside the core, for any extension:
//!
//! - [`usb_cdc`]: a USB serial port as `embedded-io-async` streams that do not wedge, lose or repeat bytes;
//! - [`LogsMayBeLost`]: a writer for it that drops whole log lines when nobody reads, so that the firmware goes on;
//! - [`EmbassyClock`]: embassy's time as the core's [`Clock`](rigline::Clock);
//! - [`UsbDevice`]: all of it in one call, for a firmware that has no more to do than to serve an extension over USB;
//! - [`hex`]: a chip's number as text, for USB's serial number;
//! - `rp2040` (feature of that name, bare metal only): what `usb_cdc` wants of an RP2040, and the board's number.
//!
//! `rigline new NAME --firmware rp2040` writes a firmware that uses all of it, and a test builds and runs that; the image
//! `engine` of `rigline-rig` is one without defmt and watchdog. In short: make a [`usb_cdc::Port`]; run [`usb_cdc::run`] beside a
//! loop that awaits [`connected`](usb_cdc::Port::connected), puts [`LogsMayBeLost`] over the writer, and serves both with
//! a [`Server`](rigline::serve::asynch::Server) until [`lost`](usb_cdc::Presence::lost).

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

/// A chip's number as sixteen upper-case hexadecimal digits.
pub fn hex(id: [u8; 8], digits: &mut [u8; 16]) -> &str {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for (pair, byte) in digits.chunks_exact_mut(2).zip(id) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    core::str::from_utf8(digits).unwrap_or_default()
}
