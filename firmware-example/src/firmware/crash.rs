//! Data that is kept over a reset: the message of a panic or a hard fault, in RAM that a reset does
//! not clear (`PANDUMP` of memory.x).
//!
//! An image calls [`keep_and_reset`] in its panic handler, and [`hard_fault`] in its `HardFault`
//! exception.

use core::panic::PanicInfo;

use cortex_m_rt::ExceptionFrame;
use embassy_rp::pac;
use embassy_rp::watchdog::{ResetReason, Watchdog};

/// How the chip came to be running, and what was said before that. A message is given once.
pub(super) fn take(watchdog: &Watchdog) -> (&'static str, Option<&'static str>) {
    let message = panic_persist::get_panic_message_utf8().map(str::trim_ascii_end);
    let reset = match (watchdog.reset_reason(), message) {
        (Some(ResetReason::TimedOut), _) => "watchdog",
        (Some(ResetReason::Forced), Some(_)) => "panic",
        (Some(ResetReason::Forced), None) => "forced",
        // RP2040 datasheet §2.12.7: why the chip was reset, if the watchdog did not do it.
        (None, _) => {
            let reason = pac::VREG_AND_CHIP_RESET.chip_reset().read();
            if reason.had_run() {
                "run pin"
            } else if reason.had_psm_restart() {
                "debugger"
            } else {
                "power on"
            }
        }
    };
    (reset, message)
}

/// Keeps the message of a panic, sends it over RTT, and resets the chip by its watchdog.
///
/// With feature `stop-on-panic` the image has the handler of panic-probe instead, which stops for a
/// debugger.
pub fn keep_and_reset(info: &PanicInfo<'_>) -> ! {
    cortex_m::interrupt::disable();
    panic_persist::report_panic_info(info);
    defmt::error!("{}", defmt::Display2Format(info));
    reset();
}

/// Turns a hard fault into a panic, whose message has the address of the fault and the address that
/// it was called from.
///
/// # Panics
/// Always.
pub fn hard_fault(frame: &ExceptionFrame) -> ! {
    panic!("hard fault at {:#010x}, called from {:#010x}", frame.pc(), frame.lr());
}

fn reset() -> ! {
    // Everything but the two oscillators, as `Watchdog::trigger_reset` does; that one needs the
    // peripheral.
    pac::PSM.wdsel().write_value(pac::psm::regs::Wdsel(0x0001_ffff & !0b11));
    pac::WATCHDOG.ctrl().write(|w| w.set_trigger(true));
    loop {
        cortex_m::asm::nop();
    }
}
