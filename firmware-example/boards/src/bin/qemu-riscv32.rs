//! The rig on a 32-bit RISC-V, over a 16550: QEMU's `virt`. It stands for the core of an ESP32-C3.

#![no_std]
#![no_main]

use rigline::{Clock, Instant};
use rigline_boards::qemu::{Register, Uart, serve};
use riscv::register::mie;

/// The timer counts at this rate, in hertz.
const TIMER: u64 = 10_000_000;
/// How long the processor sleeps at most, in steps of the timer: a millisecond.
const NAP: u64 = TIMER / 1000;

// SAFETY: QEMU's `virt` has a 16550 here, its registers are bytes, and it does not access memory.
const DATA: Register<u8> = unsafe { Register::at(0x1000_0000) };
// SAFETY: the same.
const INTERRUPTS: Register<u8> = unsafe { Register::at(0x1000_0001) };
// SAFETY: the same.
const FIFO: Register<u8> = unsafe { Register::at(0x1000_0002) };
// SAFETY: the same.
const STATUS: Register<u8> = unsafe { Register::at(0x1000_0005) };
// SAFETY: its timer (CLINT), which any access of a word reads and writes.
const TIME: [Register<u32>; 2] = unsafe { [Register::at(0x0200_bff8), Register::at(0x0200_bffc)] };
// SAFETY: the same.
const ALARM: [Register<u32>; 2] = unsafe { [Register::at(0x0200_4000), Register::at(0x0200_4004)] };
// SAFETY: its interrupt controller (PLIC): the priority of the UART's interrupt.
const PRIORITY: Register<u32> = unsafe { Register::at(0x0c00_0000 + 4 * UART) };
// SAFETY: the same: the interrupts that are on.
const ENABLE: Register<u32> = unsafe { Register::at(0x0c00_2000) };
// SAFETY: the same: which one there is, and that it has been seen to.
const CLAIM: Register<u32> = unsafe { Register::at(0x0c20_0004) };

/// The number of the UART's interrupt.
const UART: usize = 10;
const RECEIVED: u8 = 1;
const ROOM: u8 = 1 << 5;

struct Ns16550;

impl Uart for Ns16550 {
    fn received(&mut self) -> Option<u8> {
        (STATUS.read() & RECEIVED != 0).then(|| DATA.read())
    }

    fn sleep(&mut self) {
        nap();
    }

    fn send(&mut self, byte: u8) {
        while STATUS.read() & ROOM == 0 {}
        DATA.write(byte);
    }
}

/// Sleeps until a byte comes in, a millisecond at most. Interrupts end the sleep and are never
/// taken, so that there is no handler.
fn nap() {
    let until = time() + NAP;
    let (low, high) = (until & u64::from(u32::MAX), until >> 32);
    // The alarm is never earlier than it was asked for.
    ALARM[1].write(u32::MAX);
    ALARM[0].write(u32::try_from(low).unwrap_or_default());
    ALARM[1].write(u32::try_from(high).unwrap_or_default());
    riscv::asm::wfi();
    CLAIM.write(CLAIM.read());
}

fn time() -> u64 {
    loop {
        let high = TIME[1].read();
        let low = TIME[0].read();
        if high == TIME[1].read() {
            return u64::from(high) << 32 | u64::from(low);
        }
    }
}

struct Timer;

impl Clock for Timer {
    fn now(&self) -> Instant {
        Instant::from_nanos(time().wrapping_mul(1_000_000_000 / TIMER))
    }

    fn idle(&self) {
        nap();
    }
}

#[riscv_rt::entry]
fn main() -> ! {
    FIFO.write(1);
    INTERRUPTS.write(RECEIVED);
    PRIORITY.write(1);
    ENABLE.write(1 << UART);
    // SAFETY: they are off as a whole (`mstatus`), and only end the processor's sleep.
    unsafe {
        mie::set_mtimer();
        mie::set_mext();
    }
    serve(Ns16550, &Timer)
}
