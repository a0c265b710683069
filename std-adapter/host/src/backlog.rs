//! A queue between one that must not wait and one that may be slow: bounded in entries and bytes,
//! and it counts what it dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc;

/// A queue of at most so many entries and bytes.
pub(crate) fn backlog<T>(entries: usize, bytes: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel(entries);
    let state = Arc::new(State { limit: bytes, bytes: AtomicUsize::new(0), dropped: AtomicU64::new(0) });
    (Sender { entries: sender, state: state.clone() }, Receiver { entries: receiver, state })
}

struct State {
    limit: usize,
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// Where entries come from. The clones are the same queue.
pub(crate) struct Sender<T> {
    entries: mpsc::Sender<(T, usize)>,
    state: Arc<State>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), state: self.state.clone() }
    }
}

impl<T> Sender<T> {
    /// Adds an entry of so many bytes. If the queue is full, it is dropped and counted.
    pub(crate) fn send(&self, entry: T, bytes: usize) {
        let before = self.state.bytes.fetch_add(bytes, Ordering::AcqRel);
        let has_room = before.saturating_add(bytes) <= self.state.limit;
        if !has_room || self.entries.try_send((entry, bytes)).is_err() {
            self.state.bytes.fetch_sub(bytes, Ordering::AcqRel);
            self.state.dropped.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The end from which entries are taken.
pub(crate) struct Receiver<T> {
    entries: mpsc::Receiver<(T, usize)>,
    state: Arc<State>,
}

impl<T> Receiver<T> {
    /// Waits for the next entry; none when all senders are gone.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        let (entry, bytes) = self.entries.recv().await?;
        self.state.bytes.fetch_sub(bytes, Ordering::AcqRel);
        Some(entry)
    }

    /// The next entry, if there is one.
    pub(crate) fn try_recv(&mut self) -> Option<T> {
        let (entry, bytes) = self.entries.try_recv().ok()?;
        self.state.bytes.fetch_sub(bytes, Ordering::AcqRel);
        Some(entry)
    }

    /// Drops what waits, and forgets what was dropped.
    pub(crate) fn clear(&mut self) {
        while self.try_recv().is_some() {}
        self.take_dropped();
    }

    /// How many entries were dropped since this was asked last.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.state.dropped.swap(0, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_backlog_is_bounded_in_entries_and_bytes_and_counts_what_it_dropped() {
        let (sender, mut receiver) = backlog(3, 1000);
        for (number, bytes) in [(1, 10), (2, 10), (3, 10), (4, 10)] {
            sender.send(number, bytes);
        }
        assert_eq!((receiver.recv().await, receiver.take_dropped()), (Some(1), 1));
        // There is room for one more entry, and for 980 bytes.
        sender.send(5, 981);
        assert_eq!(receiver.take_dropped(), 1);
        sender.send(6, 980);
        assert_eq!(receiver.take_dropped(), 0);
        receiver.clear();
        sender.send(7, 1000);
        assert_eq!((receiver.recv().await, receiver.take_dropped()), (Some(7), 0));
    }
}
