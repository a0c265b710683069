//! A framer with memory of its own.

use super::lines::{State, next, space, take};
use super::{Frame, LineEnds, Taken};

/// A [`Framer`](super::Framer) that owns its memory of `N` bytes; lines of up to `N - 1` bytes.
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
    /// A framer whose lines end at LF. Can stand in a `static`.
    pub const fn new() -> Self {
        Self { buf: [0; N], state: State::new(LineEnds::Lf) }
    }

    /// The same framer with other line ends.
    #[must_use]
    pub const fn with_mode(mut self, ends: LineEnds) -> Self {
        self.state.ends = ends;
        self
    }

    /// As [`Framer::limit`](super::Framer::limit): `N - 1`.
    pub const fn limit(&self) -> usize {
        N.saturating_sub(1)
    }

    /// As [`Framer::space`](super::Framer::space).
    pub fn space(&mut self) -> &mut [u8] {
        self.state.release();
        space(&mut self.buf, &mut self.state)
    }

    /// As [`Framer::commit`](super::Framer::commit).
    pub fn commit(&mut self, n: usize) {
        self.state.release();
        self.state.commit(N, n);
    }

    /// As [`Framer::next_frame`](super::Framer::next_frame).
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        next(&mut self.buf, &mut self.state)
    }

    /// As [`Framer::take`](super::Framer::take).
    pub fn take(&mut self) -> Option<Taken<'_>> {
        take(&mut self.buf, &mut self.state)
    }

    /// As [`Framer::finish`](super::Framer::finish).
    pub fn finish(&mut self) {
        self.state.finished = true;
    }

    /// As [`Framer::reset`](super::Framer::reset).
    pub fn reset(&mut self) {
        self.state = State::new(self.state.ends);
    }
}

impl<const N: usize> Default for OwnedFramer<N> {
    fn default() -> Self {
        Self::new()
    }
}
