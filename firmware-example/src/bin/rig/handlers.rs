//! The functions that the processor calls: interrupts, and what runs when nothing else can.

use cortex_m_rt::{ExceptionFrame, exception};
use defmt_rtt as _;
use embassy_rp::peripherals::{UART0, USB};
use embassy_rp::{adc, bind_interrupts, uart, usb};
use rigline_rig::firmware::crash;

#[cfg(feature = "stop-on-panic")]
use panic_probe as _;

bind_interrupts!(pub(crate) struct Interrupts {
    USBCTRL_IRQ => usb::InterruptHandler<USB>;
    UART0_IRQ => uart::BufferedInterruptHandler<UART0>;
    ADC_IRQ_FIFO => adc::InterruptHandler;
    #[cfg(feature = "console")]
    UART1_IRQ => rigline_rig::firmware::console::InterruptHandler;
    #[cfg(feature = "i2c")]
    I2C0_IRQ => embassy_rp::i2c::InterruptHandler<embassy_rp::peripherals::I2C0>;
});

#[cfg(not(feature = "stop-on-panic"))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    crash::keep_and_reset(info)
}

// SAFETY: it does not return, and what it calls uses only separate RAM and the watchdog.
#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    crash::hard_fault(frame)
}
