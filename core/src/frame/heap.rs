//! A framer whose memory grows with the line.

use super::find::find;
use super::lines::{Excess, State, next, part, space};
use super::{Frame, LineEnds, TooLong};

/// A [`Framer`](super::Framer) whose memory grows with the current line, up to a limit. The memory
/// is freed when nothing is buffered. It is for a server with many clients that are silent most of
/// the time.
///
/// The memory for a line over 64 KiB is allocated as one large piece and used as far as the line
/// goes. An allocator takes such a piece directly from the system, and returns it.
///
/// ```
/// use rigline::frame::{Frame, HeapFramer};
///
/// let mut framer = HeapFramer::new(100_000);
/// for _ in 0..10 {
///     let space = framer.space();
///     let count = space.len().min(2000);
///     space[..count].fill(b'a');
///     framer.commit(count);
///     assert_eq!(framer.next_frame(), None);
/// }
/// framer.space()[0] = b'\n';
/// framer.commit(1);
/// assert!(matches!(framer.next_frame(), Some(Frame::Line(line)) if line.len() > HeapFramer::START));
/// assert_eq!(framer.space().len(), HeapFramer::START);
/// ```
#[derive(Debug)]
pub struct HeapFramer {
    buf: alloc::vec::Vec<u8>,
    limit: usize,
    state: State,
}

impl HeapFramer {
    /// The size of the memory while nothing is buffered, in bytes.
    pub const START: usize = 4096;
    /// Up to here it grows twofold.
    const SMALL: usize = 64 << 10;
    /// glibc never keeps a piece of over 32 MiB.
    const LARGE: usize = 33 << 20;

    /// A framer for lines of up to `limit` bytes that end at LF.
    pub fn new(limit: usize) -> Self {
        Self { buf: alloc::vec::Vec::new(), limit: limit.min(usize::MAX - 1), state: State::new(LineEnds::Lf) }
    }

    /// Sets the bytes that end a line.
    #[must_use]
    pub fn with_mode(mut self, ends: LineEnds) -> Self {
        self.state.ends = ends;
        self
    }

    /// The greatest length of a line's content, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The current size of the memory, in bytes.
    pub fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// The number of bytes that are buffered and not yet delivered.
    pub fn buffered(&self) -> usize {
        self.state.end.saturating_sub(self.state.look)
    }

    /// The memory to read input into, as [`Framer::space`](super::Framer::space).
    pub fn space(&mut self) -> &mut [u8] {
        self.state.release();
        // CRs that were counted instead of stored belong to what is stored.
        let is_unused = self.state.end == 0 && matches!(self.state.excess, Excess::None | Excess::Content);
        if self.buf.is_empty() || is_unused && self.buf.len() > Self::START {
            self.buf = alloc::vec![0; Self::START.min(self.limit.saturating_add(1))];
        }
        space(&mut self.buf, &mut self.state)
    }

    /// Takes the first `n` bytes of [`space`](Self::space) as input, as
    /// [`Framer::commit`](super::Framer::commit). If the line then fills the memory, the memory
    /// grows.
    pub fn commit(&mut self, n: usize) {
        self.state.release();
        self.state.commit(self.buf.len(), n);
        let State { scan, end, excess, ends, .. } = self.state;
        let may_grow = self.buf.len() <= self.limit && excess == Excess::None && end >= self.buf.len();
        if may_grow && find(part(&self.buf, scan, end), ends).is_none() {
            self.grow();
        }
    }

    fn grow(&mut self) {
        let most = self.limit.saturating_add(1);
        let (size, allocated) = match self.buf.len().saturating_mul(2) {
            size if size <= Self::SMALL => (size.min(most), size.min(most)),
            _ => (most, most.max(Self::LARGE)),
        };
        let mut larger = alloc::vec![0; allocated];
        larger.truncate(size);
        if let Some(beginning) = larger.get_mut(..self.buf.len()) {
            beginning.copy_from_slice(&self.buf);
        }
        self.buf = larger;
    }

    /// The next line, as [`Framer::next_frame`](super::Framer::next_frame).
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        let limit = self.limit;
        Some(match next(&mut self.buf, &mut self.state)? {
            // The memory may have shrunk since the line went over the limit.
            Frame::TooLong(event) => Frame::TooLong(TooLong { limit, ..event }),
            line @ Frame::Line(_) => line,
        })
    }

    /// Takes note of the end of input, as [`Framer::finish`](super::Framer::finish).
    pub fn finish(&mut self) {
        self.state.finished = true;
    }
}
