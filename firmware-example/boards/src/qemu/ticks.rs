//! The clock of a Cortex-M: its SysTick timer, which ticks once a millisecond.

use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m::Peripherals;
use cortex_m::asm;
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m_rt::exception;
use rigline::{Clock, Instant};

/// Milliseconds since the start.
static NOW: AtomicU32 = AtomicU32::new(0);

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
        Instant::from_nanos(u64::from(NOW.load(Ordering::Relaxed)) * 1_000_000)
    }

    fn idle(&self) {
        asm::wfi();
    }
}

#[exception]
fn SysTick() {
    NOW.fetch_add(1, Ordering::Relaxed);
}
