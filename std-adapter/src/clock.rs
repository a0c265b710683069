//! Time on a desktop.
//!
//! The core's [`Clock`] wakes wakers at given times, while timers of tokio are futures that are
//! polled. [`TokioClock`] keeps the wakers, and polls one tokio timer for the earliest of them. One
//! tokio timer for each sleep would have to be spawned or boxed for each call.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{self, Poll, Waker};
use std::time::{Duration, SystemTime};

use rigline::{Clock, Instant, Level};
use tokio::time;

/// The whole milliseconds of a duration, at most `u64::MAX`.
pub fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The milliseconds from 1970 (UTC) to this time; 0 for an earlier time.
pub fn unix_millis(time: SystemTime) -> u64 {
    to_millis(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// The core's clock over tokio's time. It starts when it is made. Its clones are the same clock,
/// and stay on one thread.
///
/// [`drive`](Self::drive) wakes the core's timers while it runs a future, and spawns nothing. Like
/// all timers of tokio, they are at most a millisecond late, and never early.
///
/// ```
/// use rigline::Clock;
/// use rigline_std::TokioClock;
/// use std::time::{Duration, SystemTime};
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// runtime.block_on(async {
///     let clock = TokioClock::new();
///     let until = clock.now().after(Duration::from_millis(5));
///     clock.drive(rigline::Sleep::until(&clock, until)).await;
///     assert!(clock.now() >= until);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct TokioClock {
    start: time::Instant,
    timers: Rc<RefCell<Timers>>,
}

/// The wakers and their times: one timer for each waker, since whatever is woken asks again for
/// what it still waits for. So the time limits of calls that are over do not pile up until they
/// would have been due.
#[derive(Default)]
struct Timers {
    by_time: BTreeMap<(Instant, Key), Waker>,
    by_waker: HashMap<Key, Instant>,
}

/// The identity of a waker while a clone of it is stored: its data and its functions.
type Key = (usize, usize);

impl Timers {
    fn add(&mut self, at: Instant, waker: &Waker) {
        // A clone is compared with clones: an executor's own waker may have the same functions at
        // another address.
        let waker = waker.clone();
        let key = (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr());
        match self.by_waker.get_mut(&key) {
            Some(earlier) if *earlier <= at => {}
            Some(later) => {
                self.by_time.remove(&(std::mem::replace(later, at), key));
                self.by_time.insert((at, key), waker);
            }
            None => {
                self.by_waker.insert(key, at);
                self.by_time.insert((at, key), waker);
            }
        }
    }

    /// The waker of the first timer, if it is due.
    fn take_due(&mut self, now: Instant) -> Option<Waker> {
        let first = self.by_time.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, key), waker) = first.remove_entry();
        self.by_waker.remove(&key);
        Some(waker)
    }

    fn next(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }
}

impl TokioClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { start: time::Instant::now(), timers: Rc::default() }
    }

    /// Runs `future` to its end. In the meantime it wakes the wakers that are registered with this
    /// clock.
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

    /// Wakes the timers that are due, and sees to it that `task` is polled again when the next one
    /// is.
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

    /// Wakes what is due; returns the time of the first timer that is not due.
    fn wake_due(&self) -> Option<Instant> {
        let mut timers = self.timers.borrow_mut();
        let now = if timers.by_time.is_empty() { return None } else { self.now() };
        let mut due = Vec::new();
        while let Some(waker) = timers.take_due(now) {
            due.push(waker);
        }
        let next = timers.next();
        drop(timers);
        // What a waker does is its own affair, such as to ask this clock.
        due.iter().for_each(Waker::wake_by_ref);
        next
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

    /// Writes the log to standard error.
    fn log_out_of_band(&self, level: Level, text: &str) {
        crate::stderr::log(level, text);
    }

    fn wake_at(&self, at: Instant, waker: &Waker) {
        self.timers.borrow_mut().add(at, waker);
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
    use rigline::Sleep;

    #[test]
    fn timers_end_in_order_and_far_ones_cost_nothing() {
        // Paused: of timers that a busy machine is late for, all are due at once, and which comes
        // first says nothing.
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
            assert!(clock.timers.borrow().by_time.len() <= 1, "a timer that is asked for again is kept once");
        });
    }

    /// Ten thousand calls with time limits of an hour, one after the other, leave one timer.
    #[test]
    fn the_limits_of_calls_that_are_over_do_not_pile_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = TokioClock::new();
            let calls = async {
                for _ in 0..10_000 {
                    tokio::select! {
                        () = Sleep::until(&clock, clock.now().after(Duration::from_secs(3600))) => unreachable!(),
                        () = Sleep::until(&clock, clock.now().after(Duration::from_millis(1))) => {}
                    }
                }
            };
            clock.drive(calls).await;
            let timers = clock.timers.borrow();
            assert!(timers.by_time.len() <= 1 && timers.by_waker.len() == timers.by_time.len());
        });
    }

    /// An earlier time replaces a later one, which is requested again afterwards.
    #[test]
    fn a_later_timer_of_the_same_task_still_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = TokioClock::new();
            let start = clock.now();
            let until = |millis: u64| Sleep::until(&clock, start.after(Duration::from_millis(millis)));
            clock.drive(async { tokio::join!(until(50), until(20), until(80), until(20)) }).await;
            assert_eq!(clock.now().nanos_since(start) / 1_000_000, 80);
        });
    }
}
