//! The clock that an adapter supplies to the core. It tells the time, and writes the logs that a
//! protocol has no lines for.

use core::future::Future;
use core::pin::Pin;
use core::task::{self, Poll, Waker};
use core::time::Duration;

use crate::level::Level;

/// A monotonic clock. `rigline_std` has one for desktops. For a board with embassy, see the crate
/// `rigline-embassy`.
pub trait Clock {
    /// The time since some fixed start. It never goes back.
    fn now(&self) -> Instant;

    /// Arranges that `waker` is woken at `at` or later, not earlier.
    ///
    /// The default wakes it at once. The task then polls again and again, which is correct but
    /// keeps the processor busy.
    fn wake_at(&self, at: Instant, waker: &Waker) {
        let _ = at;
        waker.wake_by_ref();
    }

    /// Writes a log of a protocol that has no lines for logs: in Amplifier and namel3ss the reply
    /// is the only line. Write it to standard error on a desktop, or to a board's RTT channel.
    /// `text` is one line, escaped as in a JSON string.
    ///
    /// The default drops it.
    fn log_out_of_band(&self, level: Level, text: &str) {
        let _ = (level, text);
    }

    /// Waits a little while a handler waits. The blocking driver calls it. It returns when the
    /// [`waker`](Self::waker) that was taken before has been woken, or a little later.
    ///
    /// The default returns at once. A clock that sleeps until an interrupt (`wfi`) must have a
    /// `waker` that ends that sleep. Otherwise a handler that wakes itself waits for the next
    /// interrupt.
    fn idle(&self) {
        core::hint::spin_loop();
    }

    /// The waker that the blocking driver polls handlers with. When a handler wakes it,
    /// [`idle`](Self::idle) must return.
    ///
    /// The default waker does nothing, which is right where `idle` returns by itself.
    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Instant {
        C::now(self)
    }

    fn wake_at(&self, at: Instant, waker: &Waker) {
        C::wake_at(self, at, waker);
    }

    fn log_out_of_band(&self, level: Level, text: &str) {
        C::log_out_of_band(self, level, text);
    }

    fn idle(&self) {
        C::idle(self);
    }

    fn waker(&self) -> Waker {
        C::waker(self)
    }
}

/// A point of time, in nanoseconds since the clock's start. The largest value is 584 years after
/// the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Instant(u64);

impl Instant {
    /// The point `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The whole microseconds since the clock's start.
    pub const fn as_micros(self) -> u64 {
        thousandth(self.0)
    }

    /// The whole milliseconds since the clock's start.
    pub const fn as_millis(self) -> u64 {
        thousandth(thousandth(self.0))
    }

    /// The point `nanos` nanoseconds later. If that overflows, the last point that the type can
    /// hold.
    #[must_use]
    pub const fn after_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// The point `duration` later. If that overflows, the last point that the type can hold.
    #[must_use]
    #[inline(never)]
    pub fn after(self, duration: Duration) -> Self {
        let nanos = duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()));
        self.after_nanos(nanos)
    }

    /// The nanoseconds from `earlier` to this point; 0 if `earlier` is later than this point.
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The thousandth of a number, rounded down: 16 bits at a time, since a 64-bit division takes a kilobyte of flash on a
/// microcontroller without one.
#[inline(never)]
const fn thousandth(value: u64) -> u64 {
    let (mut rest, mut quotient) = (0, 0);
    let mut left: &[u8] = &value.to_be_bytes();
    while let [high, low, tail @ ..] = left {
        let part = rest << 16 | (*high as u32) << 8 | *low as u32;
        quotient = quotient << 16 | (part / 1000) as u64;
        rest = part % 1000;
        left = tail;
    }
    quotient
}

/// A future that is ready at a point of time.
pub struct Sleep<'a> {
    clock: &'a dyn Clock,
    until: Instant,
}

impl<'a> Sleep<'a> {
    /// Returns a future that is ready when `clock` has reached `until`.
    pub fn until(clock: &'a dyn Clock, until: Instant) -> Self {
        Self { clock, until }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    #[inline(never)]
    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.until {
            return Poll::Ready(());
        }
        self.clock.wake_at(self.until, cx.waker());
        Poll::Pending
    }
}

impl core::fmt::Debug for Sleep<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sleep").field("until", &self.until).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use core::task::Waker;
    use core::time::Duration;
    use std::format;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{Clock, Instant, Sleep};
    use crate::level::Level;

    #[test]
    fn points_of_time_end_where_their_type_does() {
        let at = Instant::from_nanos(5);
        assert_eq!(at.after_nanos(7), Instant::from_nanos(12));
        assert_eq!(at.after_nanos(u64::MAX), Instant::from_nanos(u64::MAX));
        assert_eq!(at.after(Duration::new(3, 7)), Instant::from_nanos(3_000_000_012));
        assert_eq!(at.after(Duration::from_secs(u64::MAX / 1_000_000_000 + 1)), Instant::from_nanos(u64::MAX));
        assert_eq!(at.after(Duration::MAX), Instant::from_nanos(u64::MAX));
        assert_eq!((Instant::from_nanos(12).nanos_since(at), at.nanos_since(Instant::from_nanos(12))), (7, 0));
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes what it is asked for.
    struct Asked {
        waker: Waker,
        until: Cell<u64>,
        logs: Cell<usize>,
        idle: Cell<usize>,
    }

    impl Clock for Asked {
        fn now(&self) -> Instant {
            Instant::from_nanos(9)
        }

        fn wake_at(&self, at: Instant, _: &Waker) {
            self.until.set(at.as_nanos());
        }

        fn log_out_of_band(&self, _: Level, text: &str) {
            self.logs.set(text.len());
        }

        fn idle(&self) {
            self.idle.set(self.idle.get() + 1);
        }

        fn waker(&self) -> Waker {
            self.waker.clone()
        }
    }

    #[test]
    fn a_reference_to_a_clock_is_that_clock() {
        fn ask(clock: impl Clock) {
            assert_eq!(clock.now(), Instant::from_nanos(9));
            clock.wake_at(Instant::from_nanos(11), Waker::noop());
            clock.log_out_of_band(Level::Warn, "four");
            clock.idle();
            clock.waker().wake();
        }
        let wakes = Arc::new(Wakes::default());
        let clock = Asked { waker: wakes.clone().into(), until: Cell::new(0), logs: Cell::new(0), idle: Cell::new(0) };
        ask(&clock);
        assert_eq!((clock.until.get(), clock.logs.get(), clock.idle.get()), (11, 4, 1));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        let sleep = Sleep::until(&clock, Instant::from_nanos(11));
        assert_eq!(format!("{sleep:?}"), "Sleep { until: Instant(11), .. }");
    }

    /// A clock that cannot wake anybody later does so at once: its task polls again and again.
    #[test]
    fn a_clock_without_alarms_wakes_at_once() {
        struct Plain;
        impl Clock for Plain {
            fn now(&self) -> Instant {
                Instant::from_nanos(0)
            }
        }
        let wakes = Arc::new(Wakes::default());
        Plain.wake_at(Instant::from_nanos(u64::MAX), &wakes.clone().into());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        // The waker that it has for a driver wakes nobody.
        Plain.waker().wake();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn micros_and_millis_are_rounded_down() {
        for nanos in [0, 999, 1000, 1_999_999, 65_535_999, 65_536_000, 1 << 48, u64::MAX - 1, u64::MAX] {
            for nanos in [nanos, nanos.wrapping_mul(0x9E37_79B9_7F4A_7C15)] {
                let instant = Instant::from_nanos(nanos);
                assert_eq!((instant.as_micros(), instant.as_millis()), (nanos / 1000, nanos / 1_000_000));
            }
        }
    }
}
