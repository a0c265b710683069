//! The rig on an STM32F405, over USART1: QEMU's `olimex-stm32-h405`, or `netduinoplus2` where QEMU
//! is older.

#![no_std]
#![no_main]

use cortex_m::peripheral::NVIC;
use cortex_m::{asm, interrupt};
use cortex_m_rt::{entry, exception};
use rigline_boards::qemu::{Register, Ticks, Uart, serve};

/// QEMU's clock of the processor, in hertz.
const SYSTEM_CLOCK: u32 = 168_000_000;

// SAFETY: USART1 is there (RM0090 §2.3), its registers are words, and it does not access memory.
const STATUS: Register<u32> = unsafe { Register::at(0x4001_1000) };
// SAFETY: the same.
const DATA: Register<u32> = unsafe { Register::at(0x4001_1004) };
// SAFETY: the same.
const CONTROL: Register<u32> = unsafe { Register::at(0x4001_100c) };
// SAFETY: the clocks of the devices on APB2 (RM0090 §7.3.14).
const CLOCKS: Register<u32> = unsafe { Register::at(0x4002_3844) };

// RM0090 §30.6.
const RECEIVED: u32 = 1 << 5;
const ROOM: u32 = 1 << 7;
/// The USART, its sender and its receiver are on, and it interrupts when it has received.
const ON: u32 = 1 << 13 | 1 << 3 | 1 << 2 | 1 << 5;

struct Usart1;

impl Uart for Usart1 {
    fn received(&mut self) -> Option<u8> {
        (STATUS.read() & RECEIVED != 0).then(|| DATA.read().to_le_bytes()[0])
    }

    fn sleep(&mut self) {
        // An interrupt that waits ends the sleep though it is not taken: none is missed between the
        // look and the sleep.
        interrupt::free(|_| {
            // SAFETY: the handler may run at any time.
            unsafe { NVIC::unmask(Usart1Interrupt) };
            if STATUS.read() & RECEIVED == 0 {
                asm::wfi();
            }
        });
    }

    fn send(&mut self, byte: u8) {
        while STATUS.read() & ROOM == 0 {}
        DATA.write(byte.into());
    }
}

/// The USART's: it has ended the sleep.
#[exception]
unsafe fn DefaultHandler(_: i16) {
    NVIC::mask(Usart1Interrupt);
}

#[entry]
fn main() -> ! {
    let clock = Ticks::start(SYSTEM_CLOCK);
    CLOCKS.write(CLOCKS.read() | 1 << 4);
    CONTROL.write(ON);
    serve(Usart1, &clock)
}

/// RM0090 table 61.
#[derive(Clone, Copy)]
struct Usart1Interrupt;

// SAFETY: the number is always the same, and one that the chip has.
unsafe impl interrupt::InterruptNumber for Usart1Interrupt {
    fn number(self) -> u16 {
        37
    }
}
