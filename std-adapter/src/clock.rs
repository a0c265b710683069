//! Time on a desktop.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use rigline::{Clock, Instant, Level};
use tokio::time;

/// The core's clock over tokio's time. Its start is the moment it was made; its clones are the same clock, for one thread.
///
/// The core's timers are woken by [`drive`](Self::drive), which runs them beside a future; nothing is spawned. Like all
/// of tokio's timers they are a millisecond late at most, and never early.
///
/// ```
/// use rigline::Clock;
/// use rigline_std::TokioClock;
/// use std::time::Duration;
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// runtime.block_on(async {
///     let clock = TokioClock::new();
///     let until = clock.now().after(Duration::from_millis(5));
///     clock.drive(rigline::clock::Sleep::until(&clock, until)).await;
///     assert!(clock.now() >= until);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct TokioClock {
    start: time::Instant,
    timers: Rc<RefCell<Vec<Timer>>>,
}

struct Timer {
    at: Instant,
    waker: Waker,
}

impl TokioClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { start: time::Instant::now(), timers: Rc::default() }
    }

    /// Runs `future` to its end, and meanwhile wakes what it has asked this clock to wake.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or in one without time.
    pub async fn drive<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut sleep: Option<Pin<Box<time::Sleep>>> = None;
        poll_fn(|task| match future.as_mut().poll(task) {
            Poll::Ready(output) => Poll::Ready(output),
            Poll::Pending => {
                self.poll_timers(&mut sleep, task);
                Poll::Pending
            }
        })
        .await
    }

    /// Wakes the timers that are due, and sees to it that `task` is polled again when the next one is.
    fn poll_timers(&self, sleep: &mut Option<Pin<Box<time::Sleep>>>, task: &mut task::Context<'_>) {
        loop {
            let Some(at) = self.wake_due() else { return };
            let deadline = self.start + Duration::from_nanos(at.as_nanos());
            let sleep = match sleep {
                Some(sleep) => {
                    if sleep.deadline() != deadline {
                        sleep.as_mut().reset(deadline);
                    }
                    sleep
                }
                None => sleep.insert(Box::pin(time::sleep_until(deadline))),
            };
            if sleep.as_mut().poll(task).is_pending() {
                return;
            }
        }
    }

    /// Gives the point of time of the first timer that is not due yet.
    fn wake_due(&self) -> Option<Instant> {
        let mut timers = self.timers.borrow_mut();
        if timers.is_empty() {
            return None;
        }
        let now = self.now();
        timers.retain(|timer| {
            let is_due = timer.at <= now;
            if is_due {
                timer.waker.wake_by_ref();
            }
            !is_due
        });
        timers.iter().map(|timer| timer.at).min()
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::default().after(self.start.elapsed())
    }

    /// To standard error.
    fn aside(&self, level: Level, text: &str) {
        crate::stdio::aside(level, text);
    }

    fn wake_at(&self, at: Instant, waker: &Waker) {
        let mut timers = self.timers.borrow_mut();
        // A clone is compared with clones: an executor's own waker may have the same table at another address.
        let waker = waker.clone();
        // A future asks again each time it is polled.
        if !timers.iter().any(|timer| timer.at == at && timer.waker.will_wake(&waker)) {
            timers.push(Timer { at, waker });
        }
    }

    fn idle(&self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl fmt::Debug for TokioClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioClock").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rigline::clock::Sleep;

    #[test]
    fn timers_end_in_order_and_far_ones_cost_nothing() {
        // Paused: of timers that a busy machine is late for, all are due at once, and which comes first says nothing.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = TokioClock::new();
            let after = |nanos| Sleep::until(&clock, clock.now().after_nanos(nanos));
            let order = RefCell::new(Vec::new());
            let wait = async |name, nanos| {
                after(nanos).await;
                order.borrow_mut().push(name);
            };
            let all = async {
                tokio::join!(wait("third", 30_000_000), wait("first", 10_000_000), wait("second", 20_000_000));
            };
            let never = after(u64::MAX);
            clock
                .drive(async {
                    tokio::select! {
                        () = never => unreachable!(),
                        () = all => {}
                    }
                })
                .await;
            assert_eq!(*order.borrow(), ["first", "second", "third"]);
            clock.wake_due();
            assert_eq!(clock.timers.borrow().len(), 1, "a timer that is asked for again is kept once");
        });
    }
}
