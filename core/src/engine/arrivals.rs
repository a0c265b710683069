//! When the lines came that wait for their turn: a call's time limit counts from there.
//!
//! With feature `std` only. Without it nothing is noted and nothing of this is linked: a limit counts from the call's turn.

#![cfg_attr(not(feature = "async"), allow(dead_code, unused_imports, reason = "the async driver uses it"))]

#[cfg(not(feature = "std"))]
pub(crate) use not_noted::{Arrivals, Due};
#[cfg(feature = "std")]
pub(crate) use noted::{Arrivals, Due};

/// A line whose time is up before its turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expired {
    /// How many of the waiting lines come before it.
    pub(crate) nth: usize,
    /// For how long it has waited, in nanoseconds.
    pub(crate) waited: u64,
}

#[cfg(feature = "std")]
mod noted {
    use alloc::collections::{BTreeSet, VecDeque};
    use core::cell::Cell;

    use super::Expired;
    use crate::clock::Instant;

    /// The arrivals of waiting lines. It has entries only for calls with a time limit and for batches, so that it takes no more memory than
    /// the lines do.
    #[derive(Debug)]
    pub(crate) struct Arrivals {
        now: Instant,
        /// How many lines have had to wait, and how many of them have had their turn.
        kept: u64,
        taken: u64,
        waiting: VecDeque<Waiting>,
        /// When the time of those is up that can be answered before their turn, with their numbers.
        due: BTreeSet<(Instant, u64)>,
        /// When the line came whose turn it is, if it is known.
        current: Option<Instant>,
        /// The operation that runs.
        running: &'static str,
    }

    /// When the time of a waiting line is up next, for those who cannot ask for it.
    #[derive(Debug, Default)]
    pub(crate) struct Due(Cell<Option<Instant>>);

    impl Due {
        pub(crate) fn set(&self, due: Option<Instant>) {
            self.0.set(due);
        }

        pub(crate) fn get(&self) -> Option<Instant> {
            self.0.get()
        }
    }

    #[derive(Debug)]
    struct Waiting {
        number: u64,
        since: Instant,
        due: Option<Instant>,
    }

    impl Arrivals {
        /// Whether anything is noted.
        pub(crate) const ARE_NOTED: bool = true;
        /// The shortest batch that is noted, in bytes. A shorter one has no room for a call with a time limit.
        const BATCH: usize = 64;

        pub(crate) const fn new() -> Self {
            Self {
                now: Instant::from_nanos(0),
                kept: 0,
                taken: 0,
                waiting: VecDeque::new(),
                due: BTreeSet::new(),
                current: None,
                running: "",
            }
        }

        /// Lines that are seen from now on come now.
        pub(crate) fn set_now(&mut self, now: Instant) {
            self.now = now;
        }

        /// This operation runs.
        pub(crate) fn set_running(&mut self, operation: &'static str) {
            self.running = operation;
        }

        pub(crate) fn running(&self) -> &'static str {
            self.running
        }

        /// A line has to wait. `limit` is that of the time of a call, in nanoseconds, and whether it can be answered before its turn.
        pub(crate) fn keep(&mut self, line: &[u8], limit: Option<(u64, bool)>) {
            let number = self.kept;
            self.kept += 1;
            let is_batch = line.len() >= Self::BATCH && line.trim_ascii_start().first() == Some(&b'[');
            if limit.is_none() && !is_batch {
                return;
            }
            let due = limit.and_then(|(nanos, is_early)| is_early.then(|| self.now.after_nanos(nanos)));
            self.due.extend(due.map(|due| (due, number)));
            self.waiting.push_back(Waiting { number, since: self.now, due });
        }

        /// The next line has its turn: one that has waited, or one that has not.
        pub(crate) fn take(&mut self, has_waited: bool) {
            self.current = None;
            if !has_waited {
                return;
            }
            if self.waiting.front().is_some_and(|first| first.number == self.taken)
                && let Some(first) = self.waiting.pop_front()
            {
                self.current = Some(first.since);
                if let Some(due) = first.due {
                    self.due.remove(&(due, first.number));
                }
            }
            self.taken += 1;
        }

        /// When the line came whose turn it is; none if it has not waited. A batch's first member notes when the batch came.
        pub(crate) fn arrival(&mut self, in_batch: bool, now: impl FnOnce() -> Instant) -> Option<Instant> {
            if in_batch && self.current.is_none() {
                self.current = Some(now());
            }
            self.current
        }

        /// When the time of a waiting line is up next.
        pub(crate) fn next_due(&self) -> Option<Instant> {
            self.due.first().map(|(due, _)| *due)
        }

        /// Takes out a line whose time is up.
        pub(crate) fn expire(&mut self, now: Instant) -> Option<Expired> {
            let (due, number) = *self.due.first().filter(|(due, _)| now > *due)?;
            self.due.remove(&(due, number));
            let place = self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
            let waiting = self.waiting.get_mut(place)?;
            waiting.due = None;
            let nth = usize::try_from(number.checked_sub(self.taken)?).ok()?;
            Some(Expired { nth, waited: now.nanos_since(waiting.since) })
        }

        /// Lines are answered in their turn only.
        pub(crate) fn forget_due(&mut self) {
            self.due.clear();
        }

        /// No line waits any more.
        pub(crate) fn clear(&mut self) {
            *self = Self::new();
        }
    }
}

#[cfg(not(feature = "std"))]
mod not_noted {
    use super::Expired;
    use crate::clock::Instant;

    /// Nothing is noted.
    #[derive(Debug)]
    pub(crate) struct Arrivals;

    #[derive(Debug, Default)]
    pub(crate) struct Due;

    #[allow(clippy::unused_self, reason = "as where it is noted")]
    impl Due {
        #[inline(always)]
        pub(crate) fn set(&self, _: Option<Instant>) {}

        #[inline(always)]
        pub(crate) fn get(&self) -> Option<Instant> {
            None
        }
    }

    #[allow(clippy::unused_self, reason = "as where it is noted")]
    impl Arrivals {
        pub(crate) const ARE_NOTED: bool = false;

        pub(crate) const fn new() -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn set_now(&mut self, _: Instant) {}

        #[inline(always)]
        pub(crate) fn set_running(&mut self, _: &'static str) {}

        #[inline(always)]
        pub(crate) fn running(&self) -> &'static str {
            ""
        }

        #[inline(always)]
        pub(crate) fn keep(&mut self, _: &[u8], _: Option<(u64, bool)>) {}

        #[inline(always)]
        pub(crate) fn take(&mut self, _: bool) {}

        #[inline(always)]
        pub(crate) fn arrival(&mut self, _: bool, _: impl FnOnce() -> Instant) -> Option<Instant> {
            None
        }

        #[inline(always)]
        pub(crate) fn next_due(&self) -> Option<Instant> {
            None
        }

        #[inline(always)]
        pub(crate) fn expire(&mut self, _: Instant) -> Option<Expired> {
            None
        }

        #[inline(always)]
        pub(crate) fn forget_due(&mut self) {}

        #[inline(always)]
        pub(crate) fn clear(&mut self) {}
    }
}
