//! Newline framing, incremental, over memory that the caller owns.
//!
//! Every text protocol here is one JSON text a line. A [`Framer`] turns bytes, however they were cut on their way, into
//! lines: it lends room to read into ([`space`](Framer::space)), takes what was read ([`commit`](Framer::commit)),
//! and returns the lines ([`next_frame`](Framer::next_frame), or [`take`](Framer::take) where reading must go on while a line is in a
//! handler's hands).
//!
//! ```
//! use rigline::frame::{Frame, Framer};
//!
//! let mut memory = [0; 64];
//! let mut framer = Framer::new(&mut memory);
//! for read in [&b"\xEF\xBB\xBF{\"id\""[..], b":1}\r", b"\n\r\n  \n{\"id\":2}"] {
//!     framer.space()[..read.len()].copy_from_slice(read);
//!     framer.commit(read.len());
//! }
//! assert_eq!(framer.next_frame(), Some(Frame::Line(&mut b"{\"id\":1}"[..].to_vec()[..])));
//! assert_eq!(framer.next_frame(), None);
//! framer.finish();
//! assert_eq!(framer.next_frame(), Some(Frame::Line(&mut b"{\"id\":2}"[..].to_vec()[..])));
//! assert_eq!(framer.next_frame(), None);
//! ```
//!
//! # What a line is
//!
//! - A line ends at LF; with [`LineEnds::Serial`] at a lone CR as well; and at the [end of input](Framer::finish).
//! - One UTF-8 byte-order mark at its start is removed (RFC 8259 §8.1 lets a parser ignore it).
//! - CRs before its end are removed, any number of them.
//! - What is left is the line's *content*. Nothing, or nothing but spaces, tabs and CRs, is skipped without a word.
//! - The limit counts content, and is exact: [`limit`](Framer::limit) bytes pass, one more is [`TooLong`].
//!   White space counts, so that a line of nothing but white space that is over the limit is [`TooLong`] too.
//!
//! What comes out never depends on how the bytes were cut into reads. Each byte is looked at once, so that reads of a
//! single byte cost no more than their number.

mod find;
#[cfg(feature = "alloc")]
mod heap;
mod lines;
mod owned;
mod tail;
#[cfg(test)]
mod tests;

use core::fmt;

#[cfg(feature = "alloc")]
pub use heap::HeapFramer;
pub use owned::OwnedFramer;
pub use tail::{Peeked, Tail};

use lines::{State, next, space, take, take_first, unframed};

const LF: u8 = b'\n';
const CR: u8 = b'\r';
const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// Which bytes end a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineEnds {
    /// LF, with any number of CRs before it. A CR elsewhere is content: it is white space to JSON (RFC 8259 §2).
    #[default]
    Lf,
    /// LF or CR: terminals on a serial line send a lone CR. CR LF still ends one line, as the LF gives only a blank one.
    /// No JSON text is cut inside a string by it (a raw CR cannot stand there, RFC 8259 §7), but one that uses CR as
    /// white space between its tokens is.
    Serial,
}

/// A result of [`Framer::next_frame`].
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'f> {
    /// A line's content, never empty, in the framer's own memory: it may be changed (decoded in place).
    Line(&'f mut [u8]),
    /// A line that was over the limit has ended. No part of it is ever given out.
    TooLong(TooLong),
}

/// A line was longer than the limit. There is one of these for each such line, at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TooLong {
    /// The most bytes of content a line may have, [`Framer::limit`].
    pub limit: usize,
    /// How many bytes of content the line had, all of them dropped: its byte-order mark, the CRs before its end
    /// and the newline are not counted. Stops at `usize::MAX`.
    pub dropped: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a line of {} bytes is over the limit of {} bytes", self.dropped, self.limit)
    }
}

impl core::error::Error for TooLong {}

/// A result of [`Framer::take`].
#[derive(Debug)]
pub enum Taken<'f> {
    /// A line's content, and what lies behind it.
    Line(&'f mut [u8], Tail<'f>),
    /// A line that was over the limit has ended.
    TooLong(TooLong),
}

/// Cuts bytes into lines, in a slice of the caller's.
///
/// The slice holds the line that is being collected and whatever was read behind it. A line must fit it as a whole, with
/// one byte to spare for its end: [`limit`](Self::limit) is the slice's length less one. CRs before the end and a
/// byte-order mark need no room. Small sessions touch only the beginning of a large slice.
///
/// A slice of one byte has a limit of 0: every line that is not blank is [`TooLong`]. An empty one cannot be read into.
#[derive(Debug)]
pub struct Framer<'b> {
    buf: &'b mut [u8],
    state: State,
}

impl<'b> Framer<'b> {
    /// A framer that keeps what it reads in `buf`, whose lines end at LF.
    pub fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, state: State::new(LineEnds::Lf) }
    }

    /// The same framer with other line ends.
    #[must_use]
    pub fn with_mode(mut self, ends: LineEnds) -> Self {
        self.state.ends = ends;
        self
    }

    /// The most bytes of content a line may have: the memory's length less one.
    pub fn limit(&self) -> usize {
        self.buf.len().saturating_sub(1)
    }

    /// Room to read into, as much as there is in one piece; moves what is buffered where that makes room.
    ///
    /// Empty only while undelivered lines (or a [`TooLong`]) fill the memory: call [`next_frame`](Self::next_frame) until it gives
    /// `None` before each read; after [`finish`](Self::finish); and for an empty slice.
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        self.state.release();
        space(self.buf, &mut self.state)
    }

    /// `n` bytes were read into the beginning of [`space`](Self::space). More than there is room for counts as all of it.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        self.state.release();
        self.state.commit(self.buf.len(), n);
    }

    /// The next line, or the next event; `None` when more must be read first.
    #[inline]
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        next(self.buf, &mut self.state)
    }

    /// The next line as [`next_frame`](Self::next_frame) returns it, together with the memory behind it, so that reading can go on
    /// while the line is in a handler's hands.
    ///
    /// The line is consumed with the next call of any method of the framer.
    ///
    /// ```
    /// use rigline::frame::{Framer, Taken};
    ///
    /// let mut memory = [0; 64];
    /// let mut framer = Framer::new(&mut memory);
    /// framer.space()[..5].copy_from_slice(b"work\n");
    /// framer.commit(5);
    ///
    /// let Some(Taken::Line(line, mut tail)) = framer.take() else { unreachable!() };
    /// tail.space()[..12].copy_from_slice(b"status\nmore\n");
    /// tail.commit(12);
    /// let mut status = tail.peek().unwrap();
    /// assert_eq!(status.line(), b"status");
    /// status.discard(); // answered at once
    /// tail.peek().unwrap().keep(); // waits its turn
    /// assert_eq!(line, b"work");
    ///
    /// let Some(Taken::Line(line, _)) = framer.take() else { unreachable!() };
    /// assert_eq!(line, b"more");
    /// ```
    pub fn take(&mut self) -> Option<Taken<'_>> {
        take(self.buf, &mut self.state)
    }

    /// The line that [`take`](Self::take) returned last, and the memory behind it, once more; an empty line if it is
    /// consumed.
    pub fn held(&mut self) -> (&mut [u8], Tail<'_>) {
        let State { held, held_at, .. } = self.state;
        let (line, tail) = self.buf.split_at_mut_checked(held).unwrap_or_default();
        (line.get_mut(held_at..).unwrap_or_default(), Tail { buf: tail, state: &mut self.state })
    }

    /// The bytes that were read and not delivered, if none were dropped: it starts with the next line. For those who find the line's end
    /// themselves, and say so by [`take_first`](Self::take_first). The line that is held is consumed.
    pub(crate) fn unframed(&mut self) -> Option<&[u8]> {
        unframed(self.buf, &mut self.state)
    }

    /// Holds the first `length` bytes of [`unframed`](Self::unframed), which are a line's content, as [`take`](Self::take) does. `whole` is
    /// their number with the line's end.
    pub(crate) fn take_first(&mut self, length: usize, whole: usize) {
        take_first(self.buf, &mut self.state, length, whole);
    }

    /// The line that [`take`](Self::take) returned last, without the memory behind it; an empty line if it is consumed.
    #[inline(never)]
    pub(crate) fn line(&self) -> &[u8] {
        self.buf.get(self.state.held_at..self.state.held).unwrap_or_default()
    }

    /// Whether lines wait that were examined ahead of their turn.
    pub(crate) fn has_kept(&self) -> bool {
        self.state.start < self.state.kept
    }

    /// End of input: what is there of a last line without an end becomes a line, or a [`TooLong`].
    ///
    /// Then [`next_frame`](Self::next_frame) returns what is left and after that `None`, and nothing more can be read until
    /// [`reset`](Self::reset).
    pub fn finish(&mut self) {
        self.state.finished = true;
    }

    /// Forgets everything that is buffered, a partial line too, and starts again: for a new connection, or when DTR dropped.
    pub fn reset(&mut self) {
        self.state = State::new(self.state.ends);
    }
}
