//! The console over UART1. Its interrupt takes each byte at once, so that none is lost uncounted, and at
//! 3 Mbaud is served every 53 µs.

use core::cell::RefCell;

use cortex_m::interrupt::Mutex;
use embassy_rp::interrupt::typelevel::{self, Binding, Interrupt, UART1_IRQ};
use embassy_rp::pac::{self, PADS_BANK0};
use embassy_rp::peripherals::{PIN_4, PIN_5, UART1};
use embassy_rp::uart::{Blocking, Config, Uart};
use embassy_rp::{Peri, clocks};

use crate::board::Fault;
use crate::console::{Chunk, ConsoleUart, Counters, LineSettings, Parity, RING, Ring};

static RECEIVED: Mutex<RefCell<Ring<RING>>> = Mutex::new(RefCell::new(Ring::new()));

/// How many bytes are copied with interrupts off: a third of what the UART's FIFO bears at 3 Mbaud.
const AT_ONCE: usize = 64;

/// UART1 on GP4 (out) and GP5 (in).
pub struct PicoConsole {
    /// Its pins and its clock are set up as long as this is here.
    _uart: Uart<'static, Blocking>,
}

impl PicoConsole {
    /// Starts to receive.
    pub fn new(
        uart: Peri<'static, UART1>,
        (out, into): (Peri<'static, PIN_4>, Peri<'static, PIN_5>),
        _: impl Binding<UART1_IRQ, InterruptHandler>,
    ) -> Self {
        let uart = Uart::new_blocking(uart, out, into, Config::default());
        // A wire that nothing drives is idle.
        PADS_BANK0.gpio(5).modify(|pad| pad.set_pue(true));
        // At half of the FIFO, and when bytes wait in it.
        pac::UART1.uartifls().write(|levels| levels.set_rxiflsel(0b010));
        pac::UART1.uartimsc().write(|mask| {
            mask.set_rxim(true);
            mask.set_rtim(true);
        });
        UART1_IRQ::unpend();
        // SAFETY: the handler is bound, and shares nothing outside of critical sections.
        unsafe { UART1_IRQ::enable() };
        Self { _uart: uart }
    }
}

/// The handler of UART1's interrupt.
pub struct InterruptHandler;

impl typelevel::Handler<UART1_IRQ> for InterruptHandler {
    unsafe fn on_interrupt() {
        cortex_m::interrupt::free(|section| {
            let Ok(mut ring) = RECEIVED.borrow(section).try_borrow_mut() else { return };
            while !pac::UART1.uartfr().read().rxfe() {
                let received = pac::UART1.uartdr().read();
                ring.counters.overruns += u32::from(received.oe());
                // A break comes as a byte of zeros without a stop bit.
                if received.be() {
                    ring.counters.breaks += 1;
                    continue;
                }
                ring.counters.framing_errors += u32::from(received.fe());
                ring.counters.parity_errors += u32::from(received.pe());
                ring.push(received.data());
            }
        });
    }
}

fn with_ring<T: Default>(look: impl FnOnce(&Ring<RING>) -> T) -> T {
    cortex_m::interrupt::free(|section| {
        RECEIVED.borrow(section).try_borrow().map(|ring| look(&ring)).unwrap_or_default()
    })
}

impl ConsoleUart for PicoConsole {
    fn configure(&mut self, line: LineSettings) -> Result<(), Fault> {
        while self.is_sending()? {}
        let uart = pac::UART1;
        let control = uart.uartcr().read();
        uart.uartcr().modify(|control| control.set_uarten(false));
        // RP2040 datasheet §4.2.7.1: the divisor has 6 bits behind its point.
        let divisor = (clocks::clk_peri_freq() * 4 + line.speed / 2).checked_div(line.speed).unwrap_or(64);
        uart.uartibrd().write(|integer| integer.0 = divisor >> 6);
        uart.uartfbrd().write(|fraction| fraction.0 = divisor & 63);
        // A write of this register takes over the divisor, too.
        uart.uartlcr_h().modify(|format| {
            format.set_wlen(line.data_bits.wrapping_sub(5) & 3);
            format.set_pen(line.parity.is_some());
            format.set_eps(line.parity == Some(Parity::Even));
            format.set_stp2(line.stop_bits == 2);
        });
        uart.uartcr().write_value(control);
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut count = 0;
        for byte in bytes {
            if pac::UART1.uartfr().read().txff() {
                break;
            }
            pac::UART1.uartdr().write(|data| data.set_data(*byte));
            count += 1;
        }
        Ok(count)
    }

    fn is_sending(&mut self) -> Result<bool, Fault> {
        Ok(pac::UART1.uartfr().read().busy())
    }

    fn set_break(&mut self, on: bool) -> Result<(), Fault> {
        pac::UART1.uartlcr_h().modify(|format| format.set_brk(on));
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, Fault> {
        Ok(with_ring(|ring| ring.counters))
    }

    fn copy(&mut self, from: u64, into: &mut [u8]) -> Result<Chunk, Fault> {
        let (mut start, mut count) = (from, 0);
        while let Some(rest) = into.get_mut(count..).filter(|rest| !rest.is_empty()) {
            let most = rest.len().min(AT_ONCE);
            let wanted = start + count as u64;
            let (at, got) = with_ring(|ring| {
                let Chunk { at, count } = ring.copy(wanted, rest.get_mut(..most).unwrap_or_default());
                (at, count)
            });
            if at != wanted && count > 0 {
                // What follows was overwritten in the meantime: only newer bytes hang together.
                (start, count) = (at, 0);
                continue;
            }
            if count == 0 {
                start = at;
            }
            count += got;
            if got < most {
                break;
            }
        }
        Ok(Chunk { at: start, count })
    }
}
