//! The memory behind a line that is held.

use super::LF;
use super::lines::{Found, State, advance, move_down, space};

/// The memory behind a line that is held: further bytes are read into it, and lines looked at ahead of their turn.
///
/// The held line takes room that the lines behind it would need. A line that does not fit for that reason alone is no
/// [`TooLong`](super::TooLong): [`space`](Self::space) is empty, and reading goes on once the held line is gone.
#[derive(Debug)]
pub struct Tail<'f> {
    pub(super) buf: &'f mut [u8],
    pub(super) state: &'f mut State,
}

impl<'f> Tail<'f> {
    /// [`space`](Self::space) for as long as the framer is borrowed.
    pub(crate) fn into_space(self) -> &'f mut [u8] {
        space(self.buf, self.state)
    }

    /// Room to read into, behind everything that is buffered. Empty when the memory is full (let the peer wait) and
    /// after [`finish`](Self::finish).
    pub fn space(&mut self) -> &mut [u8] {
        space(self.buf, self.state)
    }

    /// As [`Framer::commit`](super::Framer::commit).
    pub fn commit(&mut self, n: usize) {
        self.state.commit(self.buf.len(), n);
    }

    /// As [`Framer::finish`](super::Framer::finish).
    pub fn finish(&mut self) {
        self.state.finished = true;
    }

    /// Whether there is anything that [`peek`](Self::peek) has not looked at.
    pub(crate) fn has_more(&self) -> bool {
        self.state.scan < self.state.end || self.state.finished
    }

    /// The line at this place among those that were kept.
    #[cfg(feature = "async")]
    pub(crate) fn kept(&mut self, nth: usize) -> Option<&mut [u8]> {
        let (start, end) = (self.state.start, self.state.kept);
        self.buf.get_mut(start..end)?.split_mut(|byte| *byte == LF).nth(nth)
    }

    /// The next complete line that was not looked at before, by this tail or by that of an earlier line.
    ///
    /// A line that is over the limit is not seen here: it cannot be complete while another line is held.
    pub fn peek(&mut self) -> Option<Peeked<'_>> {
        let Some(Found::Line { at, len }) = advance(self.buf, self.state) else { return None };
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

/// A line that [`Tail::peek`] looked at ahead of its turn. Dropping it is [`keep`](Self::keep).
#[derive(Debug)]
pub struct Peeked<'t> {
    pub(crate) line: &'t mut [u8],
    /// The lines before it that wait their turn, with what parts them.
    pub(crate) kept: &'t mut [u8],
    state: &'t mut State,
    at: usize,
}

impl Peeked<'_> {
    /// The line's content. If it is changed and kept, the change is what will be delivered; an LF written into it
    /// would end it there.
    pub fn line(&mut self) -> &mut [u8] {
        self.line
    }

    /// The line stays, and is delivered in its turn.
    pub fn keep(self) {}

    /// The line is consumed, and its room is free again.
    pub fn discard(self) {
        self.state.kept = self.at;
        self.state.settle();
    }
}
