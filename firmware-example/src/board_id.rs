//! The board's identity: the unique number of its flash chip, which is also the USB serial number.

use core::ptr;

use embassy_rp::Peri;
use embassy_rp::flash::{Blocking, Flash};
use embassy_rp::peripherals::FLASH;

/// What stands in where the chip's number cannot be had: `EMULATED` in ASCII.
///
/// Reading the number calls the boot ROM, and an emulator may run without one.
pub const FALLBACK: [u8; 8] = *b"EMULATED";

/// The flash of a Raspberry Pi Pico, in bytes.
pub const FLASH_SIZE: usize = 2 * 1024 * 1024;

/// The 64-bit unique number of the flash chip, or [`FALLBACK`] where there is no boot ROM to read it with.
pub fn read(flash: Peri<'_, FLASH>) -> [u8; 8] {
    let mut id = [0; 8];
    if !boot_rom_present() || Flash::<_, Blocking, FLASH_SIZE>::new_blocking(flash).blocking_unique_id(&mut id).is_err()
    {
        return FALLBACK;
    }
    id
}

/// `id` as sixteen upper-case hexadecimal digits, as pico-sdk and picotool print it.
pub fn hex(id: [u8; 8], digits: &mut [u8; 16]) -> &str {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for (pair, byte) in digits.chunks_exact_mut(2).zip(id) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    core::str::from_utf8(digits).unwrap_or_default()
}

/// RP2040 datasheet §2.8.3: the ROM holds `M`, `u` and 1 from address 0x10 on.
fn boot_rom_present() -> bool {
    const MAGIC: *const u32 = ptr::without_provenance(0x10);
    // SAFETY: the address is always mapped on an RP2040, aligned, and read only.
    let word = unsafe { MAGIC.read_volatile() };
    word & 0x00ff_ffff == u32::from_le_bytes([b'M', b'u', 1, 0])
}
