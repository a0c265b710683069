//! The memory behind a line that a handler uses.

use super::LF;
use super::lines::{FoundLine, State, advance, move_down, space};

/// The memory behind a line that [`Framer::take`](super::Framer::take) returned. Further input is
/// read into it, and its lines can be examined before their turn.
///
/// The line that is in use takes memory that later lines would need. A later line that does not fit
/// for that reason alone is not [`TooLong`](super::TooLong): [`space`](Self::space) is empty, and
/// reading goes on when the first line is no longer in use.
#[derive(Debug)]
pub struct InputBehind<'f> {
    pub(super) buf: &'f mut [u8],
    pub(super) state: &'f mut State,
}

impl<'f> InputBehind<'f> {
    /// [`space`](Self::space) for as long as the framer is borrowed.
    pub(crate) fn into_space(self) -> &'f mut [u8] {
        space(self.buf, self.state)
    }

    /// The memory to read input into, behind all buffered bytes. It is empty when the memory is
    /// full (let the peer wait), and after [`finish`](Self::finish).
    pub fn space(&mut self) -> &mut [u8] {
        space(self.buf, self.state)
    }

    /// Takes the first `n` bytes of [`space`](Self::space) as input, as
    /// [`Framer::commit`](super::Framer::commit).
    pub fn commit(&mut self, n: usize) {
        self.state.commit(self.buf.len(), n);
    }

    /// Takes note of the end of input, as [`Framer::finish`](super::Framer::finish).
    pub fn finish(&mut self) {
        self.state.finished = true;
    }

    /// Whether there is anything that [`peek`](Self::peek) has not looked at.
    pub(crate) fn has_more(&self) -> bool {
        self.state.scan < self.state.end || self.state.finished
    }

    /// The kept line with this number, counted from 0.
    #[cfg(feature = "async")]
    pub(crate) fn kept(&mut self, nth: usize) -> Option<&mut [u8]> {
        let (start, end) = (self.state.start, self.state.kept);
        self.buf.get_mut(start..end)?.split_mut(|byte| *byte == LF).nth(nth)
    }

    /// The next complete line that was not examined before, behind this line or an earlier one.
    ///
    /// A line over the limit does not appear here, because it cannot be complete while another line
    /// is in use.
    pub fn peek(&mut self) -> Option<Peeked<'_>> {
        let Some(FoundLine::Line { at, len }) = advance(self.buf, self.state) else { return None };
        let state = &mut *self.state;
        // The kept lines stay one behind the other: this one is moved down to the last of them. The LF that parts it from
        // the next goes where its own end was, or in the gap; the last line of the input may have neither, and needs none.
        let to = state.kept;
        move_down(self.buf, at, to, len);
        let end = to.saturating_add(len);
        state.kept = state.look.min(end.saturating_add(1));
        if state.kept > end
            && let Some(byte) = self.buf.get_mut(end)
        {
            *byte = LF;
        }
        let (kept, line) = self.buf.split_at_mut_checked(to)?;
        let kept = kept.get_mut(state.start..).unwrap_or_default();
        Some(Peeked { line: line.get_mut(..len)?, kept, state, at: to })
    }
}

/// A line that [`InputBehind::peek`] returned before its turn. Dropping this value [keeps](Self::keep) the
/// line.
#[derive(Debug)]
pub struct Peeked<'t> {
    pub(crate) line: &'t mut [u8],
    /// The lines before it that wait their turn, with what parts them.
    pub(crate) kept: &'t mut [u8],
    state: &'t mut State,
    at: usize,
}

impl Peeked<'_> {
    /// The content of the line. If it is changed and kept, the changed line is delivered. An LF
    /// that is written into it would end the line there.
    pub fn line(&mut self) -> &mut [u8] {
        self.line
    }

    /// Keeps the line, so that it is delivered in its turn.
    pub fn keep(self) {}

    /// Removes the line, and frees its memory.
    pub fn discard(self) {
        self.state.kept = self.at;
        self.state.settle();
    }
}
