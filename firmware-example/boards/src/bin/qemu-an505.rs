//! The rig on a Cortex-M33, over UART0: QEMU's `mps2-an505`, in the secure state that it starts in.

#![no_std]
#![no_main]

use cortex_m::peripheral::NVIC;
use cortex_m::{asm, interrupt};
use cortex_m_rt::{entry, exception};
use rigline_boards::qemu::{Register, Ticks, Uart, serve};

/// The clock of the processor (AN505 §3.2), in hertz.
const SYSTEM_CLOCK: u32 = 20_000_000;

// SAFETY: UART0 is there (AN505 §4.4, the secure alias), its registers are words, and it does not
// access memory.
const DATA: Register<u32> = unsafe { Register::at(0x5020_0000) };
// SAFETY: the same.
const STATE: Register<u32> = unsafe { Register::at(0x5020_0004) };
// SAFETY: the same.
const CONTROL: Register<u32> = unsafe { Register::at(0x5020_0008) };
// SAFETY: the same.
const INTERRUPTS: Register<u32> = unsafe { Register::at(0x5020_000c) };
// SAFETY: the same.
const DIVIDER: Register<u32> = unsafe { Register::at(0x5020_0010) };

// Cortex-M System Design Kit §4.3.
const FULL: u32 = 1;
const RECEIVED: u32 = 1 << 1;
/// The sender and the receiver are on, and it interrupts when it has received.
const ON: u32 = 1 | 1 << 1 | 1 << 3;

struct Uart0;

impl Uart for Uart0 {
    fn received(&mut self) -> Option<u8> {
        (STATE.read() & RECEIVED != 0).then(|| DATA.read().to_le_bytes()[0])
    }

    fn sleep(&mut self) {
        // An interrupt that waits ends the sleep though it is not taken: none is missed between the
        // look and the sleep.
        interrupt::free(|_| {
            // SAFETY: the handler may run at any time.
            unsafe { NVIC::unmask(Uart0Interrupt) };
            if STATE.read() & RECEIVED == 0 {
                asm::wfi();
            }
        });
    }

    fn send(&mut self, byte: u8) {
        while STATE.read() & FULL != 0 {}
        DATA.write(byte.into());
    }
}

/// The UART's: it has ended the sleep.
#[exception]
unsafe fn DefaultHandler(_: i16) {
    NVIC::mask(Uart0Interrupt);
    INTERRUPTS.write(RECEIVED);
}

#[entry]
fn main() -> ! {
    let clock = Ticks::start(SYSTEM_CLOCK);
    // 115200 baud.
    DIVIDER.write(SYSTEM_CLOCK / 115_200);
    CONTROL.write(ON);
    serve(Uart0, &clock)
}

/// That of what UART0 has received (AN505 §4.5).
#[derive(Clone, Copy)]
struct Uart0Interrupt;

// SAFETY: the number is always the same, and one that the chip has.
unsafe impl interrupt::InterruptNumber for Uart0Interrupt {
    fn number(self) -> u16 {
        32
    }
}
