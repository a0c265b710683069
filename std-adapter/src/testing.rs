//! A wire that changes, delays and loses bytes as real wires do, for tests of sessions.
//!
//! A [`Wire`] is one direction of a connection. It implements the traits of `embedded-io` and of
//! `embedded-io-async`, so that both drivers, and hosts, can be at either end. Its faults depend on
//! a seed, so that a test that fails fails again. It remembers the delivered bytes, so that a test
//! knows what the reader has really got.
//!
//! ```
//! use embedded_io::{Read, Write};
//! use rigline_std::testing::{Faults, Wire};
//!
//! let mut wire = Wire::new(Faults::none(7).pieces(3).duplicate(20));
//! wire.write_all(b"{\"op\":\"health\"}\n")?;
//! wire.close();
//! let mut read = Vec::new();
//! let mut buffer = [0; 64];
//! while let count @ 1.. = wire.read(&mut buffer)? {
//!     assert!(count <= 3);
//!     read.extend_from_slice(&buffer[..count]);
//! }
//! assert_eq!(read, wire.take_delivered());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use embedded_io_async::ErrorType;

/// The faults of a [`Wire`]. Their frequencies are in writes per thousand.
///
/// [`none`](Self::none) has no faults. Each method adds one kind.
#[derive(Debug, Clone)]
pub struct Faults {
    seed: u64,
    pieces: usize,
    delay: u32,
    duplicate: u32,
    flip: u32,
    stall: u32,
    cut: u32,
}

impl Faults {
    /// A wire without faults. `seed` decides where the faults occur that are added.
    pub fn none(seed: u64) -> Self {
        // A generator that stands at zero stays there.
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { seed, pieces: usize::MAX, delay: 0, duplicate: 0, flip: 0, stall: 0, cut: 0 }
    }

    /// Limits each read and write to a random number of bytes from 1 to `longest`.
    #[must_use]
    pub fn pieces(self, longest: usize) -> Self {
        Self { pieces: longest.max(1), ..self }
    }

    /// Delays this many of a thousand writes. The reader gets their bytes only after it has asked
    /// several times.
    #[must_use]
    pub fn delay(self, per_mille: u32) -> Self {
        Self { delay: per_mille, ..self }
    }

    /// Delivers this many of a thousand writes twice.
    #[must_use]
    pub fn duplicate(self, per_mille: u32) -> Self {
        Self { duplicate: per_mille, ..self }
    }

    /// Inverts one bit in this many of a thousand writes.
    #[must_use]
    pub fn flip(self, per_mille: u32) -> Self {
        Self { flip: per_mille, ..self }
    }

    /// Makes this many of a thousand writes wait before their bytes are accepted.
    #[must_use]
    pub fn stall(self, per_mille: u32) -> Self {
        Self { stall: per_mille, ..self }
    }

    /// Cuts the wire at this many of a thousand writes. That write and all later ones are lost. The
    /// reader gets the end of input after the bytes that have arrived. The writer does not notice
    /// it.
    #[must_use]
    pub fn cut(self, per_mille: u32) -> Self {
        Self { cut: per_mille, ..self }
    }
}

/// The numbers of writes and faults of a [`Wire`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// The number of writes that the wire has accepted.
    pub writes: u64,
    /// The number of writes that were delayed.
    pub delayed: u64,
    /// The number of writes that were delivered twice.
    pub duplicated: u64,
    /// The number of bits that were inverted.
    pub flipped: u64,
    /// The number of writes that had to wait.
    pub stalled: u64,
    /// Whether the wire was cut: 0 or 1.
    pub cut: u64,
}

/// One direction of a connection, with faults. Clones are the same wire: use one for each end.
#[derive(Debug, Clone)]
pub struct Wire(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    faults: Faults,
    /// Decides how much each read gets. The writes have the seed of the faults: how often a reader looks does not change them.
    reads: u64,
    counts: Counts,
    waiting: VecDeque<Chunk>,
    delivered: Vec<u8>,
    closed: bool,
    /// How often the writer is still turned away.
    stalled: u32,
    readers: Option<Waker>,
}

/// The bytes of one write.
#[derive(Debug)]
struct Chunk {
    bytes: VecDeque<u8>,
    /// How often the reader is still turned away.
    delay: u32,
}

impl Wire {
    /// An empty wire with these faults.
    pub fn new(faults: Faults) -> Self {
        let state = State {
            reads: faults.seed,
            faults,
            counts: Counts::default(),
            waiting: VecDeque::new(),
            delivered: Vec::new(),
            closed: false,
            stalled: 0,
            readers: None,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// Closes the wire. The reader gets the end of input after the bytes that are there.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        self.tell(state);
    }

    /// Replaces the faults from now on. A wire that was cut stays cut.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.state();
        state.reads = faults.seed;
        state.faults = faults;
    }

    /// Returns the bytes that the reader has read since the last call.
    pub fn take_delivered(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().delivered)
    }

    /// The numbers of writes and faults so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, mut state: MutexGuard<'_, State>) {
        let waker = state.readers.take();
        drop(state);
        self.0.changed.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll_read(&self, buf: &mut [u8], task: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.state();
        match state.read(buf) {
            Taken::Count(count) => return Poll::Ready(count),
            Taken::Nothing => state.readers = Some(task.waker().clone()),
            Taken::NotYet => task.waker().wake_by_ref(),
        }
        Poll::Pending
    }

    fn poll_write(&self, bytes: &[u8], task: &mut Context<'_>) -> Poll<usize> {
        let mut state = self.state();
        let Some(count) = state.write(bytes) else {
            task.waker().wake_by_ref();
            return Poll::Pending;
        };
        self.tell(state);
        Poll::Ready(count)
    }
}

enum Taken {
    Count(usize),
    /// There is nothing to read.
    Nothing,
    /// There is something to read, but it is delayed.
    NotYet,
}

fn below(seed: &mut u64, bound: usize) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    usize::try_from(*seed >> 33).unwrap_or_default() % bound.max(1)
}

fn piece(seed: &mut u64, longest: usize, most: usize) -> usize {
    if longest == usize::MAX { most } else { most.min(below(seed, longest) + 1) }
}

impl State {
    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < per_mille as usize
    }

    fn below(&mut self, bound: usize) -> usize {
        below(&mut self.faults.seed, bound)
    }

    fn read(&mut self, buf: &mut [u8]) -> Taken {
        if buf.is_empty() {
            return Taken::Count(0);
        }
        let Some(chunk) = self.waiting.front_mut() else {
            return if self.closed { Taken::Count(0) } else { Taken::Nothing };
        };
        if chunk.delay > 0 {
            chunk.delay -= 1;
            return Taken::NotYet;
        }
        let count = piece(&mut self.reads, self.faults.pieces, buf.len()).min(chunk.bytes.len());
        for (place, byte) in buf.iter_mut().zip(chunk.bytes.drain(..count)) {
            *place = byte;
        }
        if chunk.bytes.is_empty() {
            self.waiting.pop_front();
        }
        self.delivered.extend_from_slice(&buf[..count]);
        Taken::Count(count)
    }

    /// The count of bytes that were taken; none if the writer must wait.
    fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.stalled > 0 {
            self.stalled -= 1;
            return None;
        }
        if self.chance(self.faults.stall) {
            self.counts.stalled += 1;
            self.stalled = 1 + u32::try_from(self.below(5)).unwrap_or_default();
            return None;
        }
        let count = piece(&mut self.faults.seed, self.faults.pieces, bytes.len());
        self.counts.writes += 1;
        if count == 0 || self.closed {
            return Some(count);
        }
        if self.chance(self.faults.cut) {
            self.counts.cut = 1;
            self.closed = true;
            return Some(count);
        }
        let mut bytes: VecDeque<u8> = bytes[..count].iter().copied().collect();
        if self.chance(self.faults.flip) {
            self.counts.flipped += 1;
            let (place, bit) = (self.below(count), self.below(8));
            bytes[place] ^= 1 << bit;
        }
        let mut delay = 0;
        if self.chance(self.faults.delay) {
            self.counts.delayed += 1;
            delay = 1 + u32::try_from(self.below(5)).unwrap_or_default();
        }
        if self.chance(self.faults.duplicate) {
            self.counts.duplicated += 1;
            self.waiting.push_back(Chunk { bytes: bytes.clone(), delay });
        }
        self.waiting.push_back(Chunk { bytes, delay });
        Some(count)
    }
}

impl ErrorType for Wire {
    type Error = Infallible;
}

impl embedded_io::Read for Wire {
    /// Blocks this thread until another one has written bytes, or the wire is closed.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        let mut state = self.state();
        loop {
            match state.read(buf) {
                Taken::Count(count) => return Ok(count),
                Taken::NotYet => {}
                Taken::Nothing => state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl embedded_io::Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        loop {
            let mut state = self.state();
            if let Some(count) = state.write(bytes) {
                self.tell(state);
                return Ok(count);
            }
        }
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl embedded_io_async::Read for Wire {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        Ok(poll_fn(|task| self.poll_read(buf, task)).await)
    }
}

impl embedded_io_async::Write for Wire {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        Ok(poll_fn(|task| self.poll_write(bytes, task)).await)
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use embedded_io::{Read as _, Write as _};

    use super::{Counts, Faults, Wire};

    const TEXT: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

    /// Writes the text many times, and reads what arrives.
    fn through(faults: Faults) -> (Vec<u8>, Counts) {
        let mut wire = Wire::new(faults);
        for _ in 0..500 {
            wire.write_all(TEXT).unwrap();
        }
        wire.close();
        let (mut read, mut buffer) = (Vec::new(), [0; 50]);
        while let count @ 1.. = wire.read(&mut buffer).unwrap() {
            read.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(read, wire.take_delivered());
        (read, wire.counts())
    }

    #[test]
    fn without_faults_what_is_written_arrives() {
        let (read, counts) = through(Faults::none(0));
        assert_eq!(read, TEXT.repeat(500));
        assert_eq!(counts, Counts { writes: 500, ..Counts::default() });
    }

    #[test]
    fn pieces_delays_and_stalls_change_no_byte() {
        let (read, counts) = through(Faults::none(3).pieces(7).delay(100).stall(100));
        assert_eq!(read, TEXT.repeat(500));
        assert!(counts.delayed > 100 && counts.stalled > 100, "{counts:?}");
    }

    #[test]
    fn a_flip_turns_one_bit_over() {
        let (read, counts) = through(Faults::none(4).flip(500));
        let wrong: u32 = read.iter().zip(TEXT.repeat(500)).map(|(read, sent)| (read ^ sent).count_ones()).sum();
        assert!((150..350).contains(&wrong) && counts.flipped == u64::from(wrong), "{wrong}, {counts:?}");
    }

    #[test]
    fn a_duplicate_is_the_whole_write_again() {
        let (read, counts) = through(Faults::none(5).duplicate(200));
        assert_eq!(read.len(), TEXT.len() * (500 + usize::try_from(counts.duplicated).unwrap()));
        assert!(counts.duplicated > 50 && read.chunks(TEXT.len()).all(|chunk| chunk == TEXT));
    }

    #[test]
    fn a_cut_ends_the_input_between_two_writes() {
        let (read, counts) = through(Faults::none(6).cut(20));
        assert!(counts.cut == 1 && read.len() < TEXT.len() * 500 && read.len() % TEXT.len() == 0, "{}", read.len());
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let faults = |seed| Faults::none(seed).pieces(9).flip(50).duplicate(50).delay(50).stall(50).cut(1);
        assert_eq!(through(faults(8)), through(faults(8)));
        assert_ne!(through(faults(8)).0, through(faults(9)).0);
    }

    #[test]
    fn how_often_a_reader_looks_changes_no_fault() {
        let delivered = |looks: usize| {
            let wire = Wire::new(Faults::none(8).pieces(9).flip(200));
            let (mut reader, mut writer) = (wire.clone(), wire.clone());
            let mut task = Context::from_waker(Waker::noop());
            for _ in 0..20 {
                for _ in 0..looks {
                    let mut buffer = [0; 50];
                    let read = pin!(embedded_io_async::Read::read(&mut reader, &mut buffer));
                    let _: Poll<_> = read.poll(&mut task);
                }
                writer.write_all(TEXT).unwrap();
            }
            wire.close();
            while reader.read(&mut [0; 50]).unwrap() > 0 {}
            (wire.take_delivered(), wire.counts())
        };
        assert!(delivered(0).1.flipped > 5);
        assert_eq!(delivered(0), delivered(1));
        assert_eq!(delivered(0), delivered(7));
    }

    #[test]
    fn a_reader_waits_for_a_writer_on_another_thread() {
        let mut wire = Wire::new(Faults::none(1));
        let mut writer = wire.clone();
        let writing = thread::spawn(move || {
            writer.write_all(TEXT).unwrap();
            writer.close();
        });
        let mut read = Vec::new();
        let mut buffer = [0; 8];
        while let count @ 1.. = wire.read(&mut buffer).unwrap() {
            read.extend_from_slice(&buffer[..count]);
        }
        writing.join().unwrap();
        assert_eq!(read, TEXT);
    }
}
