use core::task::Waker;

use rigline::{Clock, Instant};

/// The clock of embassy, which starts at the reset. Its wakers must be those of embassy's executor.
///
/// Amplifier and namel3ss have no lines for logs. With feature `defmt`, the logs of their calls are
/// written by defmt. Without it they are dropped.
#[derive(Debug, Clone, Copy)]
pub struct EmbassyClock;

impl Clock for EmbassyClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(embassy_time::Instant::now().as_micros().wrapping_mul(1000))
    }

    fn wake_at(&self, at: Instant, waker: &Waker) {
        let at = embassy_time::Instant::from_micros(at.after_nanos(999).as_micros());
        embassy_time_driver::schedule_wake(at.as_ticks(), waker);
    }

    #[cfg(feature = "defmt")]
    fn log_out_of_band(&self, level: rigline::Level, text: &str) {
        use rigline::Level;

        match level {
            Level::Debug => defmt::debug!("{=str}", text),
            Level::Info => defmt::info!("{=str}", text),
            Level::Warn => defmt::warn!("{=str}", text),
            Level::Error => defmt::error!("{=str}", text),
        }
    }
}
