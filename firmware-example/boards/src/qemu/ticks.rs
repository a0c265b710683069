//! The clock of a Cortex-M: its SysTick timer, which ticks once a millisecond.

use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m::Peripherals;
use cortex_m::asm;
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m_rt::exception;
use rigline::{Clock, Instant};

/// Milliseconds since the start, the lower and the upper half: these processors have no atomic numbers of 64 bits.
static LOW: AtomicU32 = AtomicU32::new(0);
static HIGH: AtomicU32 = AtomicU32::new(0);

/// The running clock.
#[derive(Debug)]
pub struct Ticks(());

impl Ticks {
    /// Starts the clock. `processor` is the frequency of the processor, in hertz.
    ///
    /// # Panics
    /// If the clock was started before.
    pub fn start(processor: u32) -> Self {
        let Some(mut p) = Peripherals::take() else { panic!("the clock is started once") };
        p.SYST.set_clock_source(SystClkSource::Core);
        p.SYST.set_reload(processor / 1000 - 1);
        p.SYST.clear_current();
        p.SYST.enable_interrupt();
        p.SYST.enable_counter();
        Self(())
    }
}

impl Clock for Ticks {
    fn now(&self) -> Instant {
        loop {
            let high = HIGH.load(Ordering::Relaxed);
            let low = LOW.load(Ordering::Relaxed);
            // No tick came between the two that changed both.
            if high == HIGH.load(Ordering::Relaxed) {
                let millis = u64::from(high) << 32 | u64::from(low);
                return Instant::from_nanos(millis.wrapping_mul(1_000_000));
            }
        }
    }

    fn idle(&self) {
        asm::wfi();
    }
}

#[exception]
fn SysTick() {
    if LOW.fetch_add(1, Ordering::Relaxed) == u32::MAX {
        HIGH.fetch_add(1, Ordering::Relaxed);
    }
}
