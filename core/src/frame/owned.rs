//! A framer that owns its memory.

use super::lines::{State, next, space, take};
use super::{Frame, LineEnds, Taken};

/// A [`Framer`](super::Framer) that owns its memory of `N` bytes. The longest line has `N - 1`
/// bytes.
///
/// ```
/// use rigline::frame::{Frame, LineEnds, OwnedFramer};
///
/// let mut framer = OwnedFramer::<32>::new().with_mode(LineEnds::Serial);
/// framer.space()[..6].copy_from_slice(b"a\rb\r\nc");
/// framer.commit(6);
/// assert_eq!(framer.next_frame(), Some(Frame::Line(&mut [b'a'])));
/// assert_eq!(framer.next_frame(), Some(Frame::Line(&mut [b'b'])));
/// assert_eq!(framer.next_frame(), None);
/// ```
#[derive(Debug)]
pub struct OwnedFramer<const N: usize> {
    buf: [u8; N],
    state: State,
}

impl<const N: usize> OwnedFramer<N> {
    /// A framer whose lines end at LF. It can be the value of a `static`.
    pub const fn new() -> Self {
        Self { buf: [0; N], state: State::new(LineEnds::Lf) }
    }

    /// Sets the bytes that end a line.
    #[must_use]
    pub const fn with_mode(mut self, ends: LineEnds) -> Self {
        self.state.ends = ends;
        self
    }

    /// The greatest length of a line's content, in bytes: `N - 1`.
    pub const fn limit(&self) -> usize {
        N.saturating_sub(1)
    }

    /// The memory to read input into, as [`Framer::space`](super::Framer::space).
    pub fn space(&mut self) -> &mut [u8] {
        self.state.release();
        space(&mut self.buf, &mut self.state)
    }

    /// Takes the first `n` bytes of [`space`](Self::space) as input, as
    /// [`Framer::commit`](super::Framer::commit).
    pub fn commit(&mut self, n: usize) {
        self.state.release();
        self.state.commit(N, n);
    }

    /// The next line, as [`Framer::next_frame`](super::Framer::next_frame).
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        next(&mut self.buf, &mut self.state)
    }

    /// The next line and the memory behind it, as [`Framer::take`](super::Framer::take).
    pub fn take(&mut self) -> Option<Taken<'_>> {
        take(&mut self.buf, &mut self.state)
    }

    /// Takes note of the end of input, as [`Framer::finish`](super::Framer::finish).
    pub fn finish(&mut self) {
        self.state.finished = true;
    }

    /// Forgets all buffered bytes, as [`Framer::reset`](super::Framer::reset).
    pub fn reset(&mut self) {
        self.state = State::new(self.state.ends);
    }
}

impl<const N: usize> Default for OwnedFramer<N> {
    fn default() -> Self {
        Self::new()
    }
}
