//! Lines from a stream of bytes, found step by step in memory that the caller owns.
//!
//! In all text protocols of this crate, a message is one JSON text on one line. A [`Framer`] turns
//! bytes that arrive in pieces into lines. Its [`space`](Framer::space) is the memory to read into,
//! [`commit`](Framer::commit) takes what was read, and [`next_frame`](Framer::next_frame) returns
//! the next line. [`take`](Framer::take) returns the next line, too, and lets reading continue
//! while a handler uses the line.
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
//! # The definition of a line
//!
//! - A line ends at LF; with [`LineEnds::Serial`] at a lone CR as well; and at the [end of
//!   input](Framer::finish).
//! - One UTF-8 byte-order mark at its start is removed (RFC 8259 §8.1 lets a parser ignore it).
//! - CRs before its end are removed, any number of them.
//! - The rest is the line's *content*. A line with no content, or with nothing but spaces, tabs and
//!   CRs, is skipped without an error.
//! - The limit counts content and is exact: a line of [`limit`](Framer::limit) bytes is accepted,
//!   and a line with one byte more is [`TooLong`].
//!   White space counts, so that a line of nothing but white space that is over the limit is
//!   [`TooLong`] too.
//!
//! The lines do not depend on how the bytes were cut into reads. Each byte is examined once, so
//! that many small reads cost no more than one large one.

mod behind;
mod find;
#[cfg(feature = "alloc")]
mod heap;
mod lines;
mod owned;
#[cfg(test)]
mod tests;

use core::fmt;

pub use behind::{InputBehind, Peeked};
#[cfg(feature = "alloc")]
pub use heap::HeapFramer;
pub use owned::OwnedFramer;

use lines::{State, next, space, take, take_first, unframed};

const LF: u8 = b'\n';
const CR: u8 = b'\r';
const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// The bytes that end a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineEnds {
    /// LF, with any number of CRs before it. A CR elsewhere is content, because it is white space
    /// in JSON (RFC 8259 §2).
    #[default]
    Lf,
    /// LF or CR, because terminals on a serial line send a CR alone. CR LF ends one line: the LF
    /// only adds a blank line, which is skipped. A JSON text that uses CR as white space between
    /// its tokens is cut there. A string is never cut, because a raw CR cannot stand in it (RFC
    /// 8259 §7).
    Serial,
}

/// The result of [`Framer::next_frame`].
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'f> {
    /// The content of a line, which is never empty. It is in the framer's memory and may be
    /// changed, for example decoded in place.
    Line(&'f mut [u8]),
    /// A line over the limit has ended. No part of it is delivered.
    TooLong(TooLong),
}

/// The error for a line that is longer than the limit. It is reported once, at the end of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TooLong {
    /// The greatest length of a line's content in bytes, [`Framer::limit`].
    pub limit: usize,
    /// The length of the line's content in bytes, all of which was dropped. The byte-order mark,
    /// the CRs before the end and the newline do not count. The number stops at `usize::MAX`.
    pub dropped: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a line of {} bytes is over the limit of {} bytes", self.dropped, self.limit)
    }
}

impl core::error::Error for TooLong {}

/// The result of [`Framer::take`].
#[derive(Debug)]
pub enum Taken<'f> {
    /// The content of a line, and the memory behind it for further input.
    Line(&'f mut [u8], InputBehind<'f>),
    /// A line over the limit has ended. No part of it is delivered.
    TooLong(TooLong),
}

/// Cuts a stream of bytes into lines, in a slice of the caller.
///
/// The slice holds the current line and the bytes that were read behind it. The longest line is one
/// byte shorter than the slice, see [`limit`](Self::limit). CRs before the line's end and a
/// byte-order mark need no memory. Short lines touch only the beginning of a large slice.
///
/// A slice of one byte has a limit of 0: every line that is not blank is [`TooLong`]. An empty
/// slice cannot be read into.
#[derive(Debug)]
pub struct Framer<'b> {
    buf: &'b mut [u8],
    state: State,
}

impl<'b> Framer<'b> {
    /// A framer that buffers input in `buf`. Its lines end at LF.
    pub fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, state: State::new(LineEnds::Lf) }
    }

    /// Sets the bytes that end a line.
    #[must_use]
    pub fn with_mode(mut self, ends: LineEnds) -> Self {
        self.state.ends = ends;
        self
    }

    /// The greatest length of a line's content, in bytes: the length of the memory less one.
    pub fn limit(&self) -> usize {
        self.buf.len().saturating_sub(1)
    }

    /// The memory to read input into, in one piece. Buffered bytes are moved if that makes more
    /// room.
    ///
    /// It is empty in three cases: undelivered lines fill the memory, [`finish`](Self::finish) was
    /// called, or the slice is empty. Call [`next_frame`](Self::next_frame) until it returns `None`
    /// before each read, so that the first case does not occur.
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        self.state.release();
        space(self.buf, &mut self.state)
    }

    /// Takes the first `n` bytes of [`space`](Self::space) as input. A greater number counts as the
    /// length of the space.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        self.state.release();
        self.state.commit(self.buf.len(), n);
    }

    /// The next line or the next [`TooLong`]. It is `None` if more input is needed.
    #[inline]
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        next(self.buf, &mut self.state)
    }

    /// The next line, as [`next_frame`](Self::next_frame) returns it, together with the memory
    /// behind it. Reading can go on in that memory while a handler uses the line.
    ///
    /// The next call of any method of the framer ends the use of the line.
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

    /// The line that [`take`](Self::take) returned last, and the memory behind it, once more. The
    /// line is empty if another method was called since.
    pub fn held(&mut self) -> (&mut [u8], InputBehind<'_>) {
        let State { held, held_at, .. } = self.state;
        let (line, tail) = self.buf.split_at_mut_checked(held).unwrap_or_default();
        (line.get_mut(held_at..).unwrap_or_default(), InputBehind { buf: tail, state: &mut self.state })
    }

    /// The bytes that were read and not delivered, if none were dropped: it starts with the next
    /// line. For those who find the line's end themselves, and say so by
    /// [`take_first`](Self::take_first). The line that is held is consumed.
    pub(crate) fn unframed(&mut self) -> Option<&[u8]> {
        unframed(self.buf, &mut self.state)
    }

    /// Holds the first `length` bytes of [`unframed`](Self::unframed), which are a line's content,
    /// as [`take`](Self::take) does. `whole` is their number with the line's end.
    pub(crate) fn take_first(&mut self, length: usize, whole: usize) {
        take_first(self.buf, &mut self.state, length, whole);
    }

    /// The line that [`take`](Self::take) returned last, without the memory behind it; an empty line if it is consumed.
    pub(crate) fn line(&self) -> &[u8] {
        lines::part(self.buf, self.state.held_at, self.state.held)
    }

    /// Whether lines wait that were examined ahead of their turn.
    pub(crate) fn has_kept(&self) -> bool {
        self.state.start < self.state.kept
    }

    /// Takes note of the end of input. The beginning of a line without an end becomes a line, or a
    /// [`TooLong`].
    ///
    /// Afterwards [`next_frame`](Self::next_frame) returns the remaining lines and then `None`.
    /// Nothing more can be read until [`reset`](Self::reset).
    pub fn finish(&mut self) {
        self.state.finished = true;
    }

    /// Forgets all buffered bytes, also a partial line. Call it for a new connection, or when the
    /// DTR signal of a serial port drops.
    pub fn reset(&mut self) {
        self.state = State::new(self.state.ends);
    }
}
