//! Support for the RP2040: its USB controller's endpoints for [`usb_cdc`], and the
//! board's number.

use core::ptr;

use embassy_rp::Peri;
use embassy_rp::flash::{Blocking, Flash};
use embassy_rp::peripherals::FLASH;

use crate::{hex, usb_cdc};

/// The bulk endpoints of an RP2040's USB device controller (datasheet §4.1.2.5 and §4.1.4).
#[derive(Debug, Clone, Copy)]
pub struct Endpoints {
    out_endpoint: usize,
    in_endpoint: usize,
}

impl Endpoints {
    /// The endpoints of a device's first CDC function. embassy uses IN 1 for its notifications, and
    /// OUT 1 and IN 2 for its data.
    pub const fn first() -> Self {
        Self { out_endpoint: 1, in_endpoint: 2 }
    }

    /// The endpoints with these numbers, which must be below 16.
    pub const fn new(out_endpoint: usize, in_endpoint: usize) -> Self {
        Self { out_endpoint, in_endpoint }
    }
}

impl usb_cdc::Endpoints for Endpoints {
    fn has_packet_from_host(&self) -> bool {
        let control = embassy_rp::pac::USB_DPRAM.ep_out_buffer_control(self.out_endpoint).read();
        control.full(0) && !control.available(0)
    }

    fn retract_in(&self) {
        let usb = embassy_rp::pac::USB;
        let control = embassy_rp::pac::USB_DPRAM.ep_in_buffer_control(self.in_endpoint);
        if !control.read().available(0) {
            return;
        }
        // Erratum RP2040-E2: on B0 and B1 silicon an abort never reports that it is done.
        let abortable = embassy_rp::pac::SYSINFO.chip_id().read().revision() >= 2;
        if abortable {
            usb.ep_abort().write(|w| w.0 = 1 << (2 * self.in_endpoint));
            while usb.ep_abort_done().read().0 & 1 << (2 * self.in_endpoint) == 0 {}
        }
        let waiting = control.read();
        if waiting.available(0) {
            // The driver turns the toggle over before each packet; turned back, the next one has
            // the toggle of this one.
            control.write(|w| w.set_pid(0, !waiting.pid(0)));
        }
        if abortable {
            usb.ep_abort_done().write(|w| w.0 = 1 << (2 * self.in_endpoint));
            usb.ep_abort().write(|w| w.0 = 0);
        }
    }

    fn control_waits(&self) -> bool {
        let status = embassy_rp::pac::USB.sie_status().read();
        status.bus_reset() || status.setup_rec()
    }

    fn abandon_control(&self) {
        embassy_rp::pac::USB_DPRAM.ep_in_buffer_control(0).modify(|w| w.set_available(0, false));
        embassy_rp::pac::USB_DPRAM.ep_out_buffer_control(0).modify(|w| w.set_available(0, false));
    }
}

/// The number that is used if the chip's number cannot be read: `EMULATED` in ASCII.
///
/// The number is read by the boot ROM, and an emulator may run without one.
pub const FALLBACK: [u8; 8] = *b"EMULATED";

/// The flash of a Raspberry Pi Pico, in bytes.
pub const FLASH_SIZE: usize = 2 * 1024 * 1024;

/// The 64-bit unique number of the flash chip, as sixteen upper-case hexadecimal digits, as
/// pico-sdk and picotool print it. It is [`FALLBACK`] if there is no boot ROM. It is suitable as
/// USB's serial number.
pub fn board_id<'d>(flash: Peri<'_, FLASH>, digits: &'d mut [u8; 16]) -> &'d str {
    let mut id = [0; 8];
    if !boot_rom_present() || Flash::<_, Blocking, FLASH_SIZE>::new_blocking(flash).blocking_unique_id(&mut id).is_err()
    {
        id = FALLBACK;
    }
    hex(id, digits)
}

/// RP2040 datasheet §2.8.3: the ROM holds `M`, `u` and 1 from address 0x10 on.
fn boot_rom_present() -> bool {
    const MAGIC: *const u32 = ptr::without_provenance(0x10);
    // SAFETY: the address is always mapped on an RP2040, aligned, and read only.
    let word = unsafe { MAGIC.read_volatile() };
    word & 0x00ff_ffff == u32::from_le_bytes([b'M', b'u', 1, 0])
}
