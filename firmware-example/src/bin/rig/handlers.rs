//! What runs when nothing else can.

use cortex_m_rt::{ExceptionFrame, exception};
use rigline_rig::firmware::crash;

#[cfg(feature = "stop-on-panic")]
use panic_probe as _;

#[cfg(not(feature = "stop-on-panic"))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crash::keep_and_reset(info)
}

// SAFETY: it does not return, and what it calls takes nothing but RAM of its own and the watchdog.
#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    crash::hard_fault(frame)
}
