//! Newline framing, incremental, over memory that the caller owns.
//!
//! Every text protocol here is one JSON text a line. A [`Framer`] turns bytes, however they were cut on their way, into
//! lines: it gives out room to read into ([`space`](Framer::space)), is told what was read ([`commit`](Framer::commit)),
//! and returns the lines ([`next`](Framer::next), or [`take`](Framer::take) where reading must go on while a line is in a
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
//! assert_eq!(framer.next(), Some(Frame::Line(&mut b"{\"id\":1}"[..].to_vec()[..])));
//! assert_eq!(framer.next(), None);
//! framer.finish();
//! assert_eq!(framer.next(), Some(Frame::Line(&mut b"{\"id\":2}"[..].to_vec()[..])));
//! assert_eq!(framer.next(), None);
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

use core::fmt;

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

/// What [`Framer::next`] returns.
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

/// What [`Framer::take`] returns.
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
    /// Empty only while undelivered lines (or a [`TooLong`]) fill the memory: call [`next`](Self::next) until it gives
    /// `None` before each read; after [`finish`](Self::finish); and for an empty slice.
    pub fn space(&mut self) -> &mut [u8] {
        self.state.release();
        space(self.buf, &mut self.state)
    }

    /// `n` bytes were read into the beginning of [`space`](Self::space). More than there is room for counts as all of it.
    pub fn commit(&mut self, n: usize) {
        self.state.release();
        self.state.commit(self.buf.len(), n);
    }

    /// The next line, or the next event; `None` when more must be read first.
    #[allow(clippy::should_implement_trait, reason = "it lends: an Iterator's items cannot borrow from it")]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        next(self.buf, &mut self.state)
    }

    /// The next line as [`next`](Self::next) returns it, together with the memory behind it, so that reading can go on
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

    /// The line that [`take`](Self::take) returned last, without the memory behind it; an empty line if it is consumed.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn line(&self) -> &[u8] {
        self.buf.get(self.state.held_at..self.state.held).unwrap_or_default()
    }

    /// Whether lines wait that were looked at ahead of their turn.
    pub(crate) fn has_kept(&self) -> bool {
        self.state.start < self.state.kept
    }

    /// End of input: what is there of a last line without an end becomes a line, or a [`TooLong`].
    ///
    /// Then [`next`](Self::next) returns what is left and after that `None`, and nothing more can be read until
    /// [`reset`](Self::reset).
    pub fn finish(&mut self) {
        self.state.finished = true;
    }

    /// Forgets everything that is buffered, a partial line too, and starts again: for a new connection, or when DTR dropped.
    pub fn reset(&mut self) {
        self.state = State::new(self.state.ends);
    }
}

/// A [`Framer`] that owns its memory of `N` bytes; lines of up to `N - 1` bytes.
///
/// ```
/// use rigline::frame::{Frame, LineEnds, OwnedFramer};
///
/// let mut framer = OwnedFramer::<32>::new().with_mode(LineEnds::Serial);
/// framer.space()[..6].copy_from_slice(b"a\rb\r\nc");
/// framer.commit(6);
/// assert_eq!(framer.next(), Some(Frame::Line(&mut [b'a'])));
/// assert_eq!(framer.next(), Some(Frame::Line(&mut [b'b'])));
/// assert_eq!(framer.next(), None);
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

    /// As [`Framer::limit`]: `N - 1`.
    pub const fn limit(&self) -> usize {
        N.saturating_sub(1)
    }

    /// As [`Framer::space`].
    pub fn space(&mut self) -> &mut [u8] {
        self.state.release();
        space(&mut self.buf, &mut self.state)
    }

    /// As [`Framer::commit`].
    pub fn commit(&mut self, n: usize) {
        self.state.release();
        self.state.commit(N, n);
    }

    /// As [`Framer::next`].
    #[allow(clippy::should_implement_trait, reason = "it lends: an Iterator's items cannot borrow from it")]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        next(&mut self.buf, &mut self.state)
    }

    /// As [`Framer::take`].
    pub fn take(&mut self) -> Option<Taken<'_>> {
        take(&mut self.buf, &mut self.state)
    }

    /// As [`Framer::finish`].
    pub fn finish(&mut self) {
        self.state.finished = true;
    }

    /// As [`Framer::reset`].
    pub fn reset(&mut self) {
        self.state = State::new(self.state.ends);
    }
}

impl<const N: usize> Default for OwnedFramer<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`Framer`] whose memory grows with the line that it collects, up to a limit, and is given back when nothing is buffered: for
/// a server whose peers are many and mostly silent.
///
/// The memory for a line over 64 KiB is one large piece, which is used as far as the line goes: an allocator takes such a
/// piece from the system as it is, and gives it back.
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
///     assert_eq!(framer.next(), None);
/// }
/// framer.space()[0] = b'\n';
/// framer.commit(1);
/// assert!(matches!(framer.next(), Some(Frame::Line(line)) if line.len() > HeapFramer::START));
/// assert_eq!(framer.space().len(), HeapFramer::START);
/// ```
#[cfg(feature = "alloc")]
#[derive(Debug)]
pub struct HeapFramer {
    buf: alloc::vec::Vec<u8>,
    limit: usize,
    state: State,
}

#[cfg(feature = "alloc")]
impl HeapFramer {
    /// How many bytes it begins with, and goes back to.
    pub const START: usize = 4096;
    /// Up to here it grows twofold.
    const SMALL: usize = 64 << 10;
    /// glibc never keeps a piece of over 32 MiB.
    const LARGE: usize = 33 << 20;

    /// A framer for lines of up to `limit` bytes, whose lines end at LF.
    pub fn new(limit: usize) -> Self {
        Self { buf: alloc::vec::Vec::new(), limit: limit.min(usize::MAX - 1), state: State::new(LineEnds::Lf) }
    }

    /// The same framer with other line ends.
    #[must_use]
    pub fn with_mode(mut self, ends: LineEnds) -> Self {
        self.state.ends = ends;
        self
    }

    /// The most bytes of content a line may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many bytes of memory it has at the moment.
    pub fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// How many bytes are buffered of lines that were not delivered.
    pub fn buffered(&self) -> usize {
        self.state.end.saturating_sub(self.state.look)
    }

    /// As [`Framer::space`].
    pub fn space(&mut self) -> &mut [u8] {
        self.state.release();
        // CRs that were counted instead of stored belong to what is stored.
        let is_unused = self.state.end == 0 && matches!(self.state.excess, Excess::None | Excess::Content);
        if self.buf.is_empty() || is_unused && self.buf.len() > Self::START {
            self.buf = alloc::vec![0; Self::START.min(self.limit.saturating_add(1))];
        }
        space(&mut self.buf, &mut self.state)
    }

    /// As [`Framer::commit`]. If the line fills the memory, there is more of it afterwards.
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
            _ if most <= Self::SMALL => (most, most),
            _ => (most, most.max(Self::LARGE)),
        };
        let mut larger = alloc::vec![0; allocated];
        larger.truncate(size);
        if let Some(beginning) = larger.get_mut(..self.buf.len()) {
            beginning.copy_from_slice(&self.buf);
        }
        self.buf = larger;
    }

    /// As [`Framer::next`].
    #[allow(clippy::should_implement_trait, reason = "it lends: an Iterator's items cannot borrow from it")]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        let limit = self.limit;
        Some(match next(&mut self.buf, &mut self.state)? {
            // The memory may have shrunk since the line went over the limit.
            Frame::TooLong(event) => Frame::TooLong(TooLong { limit, ..event }),
            line @ Frame::Line(_) => line,
        })
    }

    /// As [`Framer::finish`].
    pub fn finish(&mut self) {
        self.state.finished = true;
    }
}

/// The memory behind a line that is held: further bytes are read into it, and lines looked at ahead of their turn.
///
/// The held line takes room that the lines behind it would need. A line that does not fit for that reason alone is no
/// [`TooLong`]: [`space`](Self::space) is empty, and reading goes on once the held line is gone.
#[derive(Debug)]
pub struct Tail<'f> {
    buf: &'f mut [u8],
    state: &'f mut State,
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

    /// As [`Framer::commit`].
    pub fn commit(&mut self, n: usize) {
        self.state.commit(self.buf.len(), n);
    }

    /// As [`Framer::finish`].
    pub fn finish(&mut self) {
        self.state.finished = true;
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

/// Where everything is in the memory. While a line is held, all offsets count from that line's end (`held`).
///
/// ```text
///   | consumed | kept lines | gap | the next lines, the partial one last | free |
///   0        start        kept   look                   scan            end   len
/// ```
///
/// Without kept lines `start`, `kept` and `look` are one.
#[derive(Debug)]
struct State {
    start: usize,
    kept: usize,
    look: usize,
    /// Between `look` and `scan` there is no line end.
    scan: usize,
    end: usize,
    held: usize,
    /// Where the held line begins, in the memory.
    held_at: usize,
    excess: Excess,
    /// CRs counted instead of stored. They are content once something other than the line's end follows them.
    crs: usize,
    /// Content counted instead of stored.
    dropped: usize,
    /// At the start of a line, where a byte-order mark may stand.
    at_bom: bool,
    finished: bool,
    ends: LineEnds,
}

/// What there is of the partial line that does not fit the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excess {
    None,
    /// CRs behind what is stored. They may be the line's end.
    Crs,
    /// The first `dropped` bytes of a byte-order mark, in a memory of less than three bytes.
    Bom,
    /// The line is over the limit. Nothing of it is stored.
    Content,
}

enum Found {
    Line { at: usize, len: usize },
    TooLong(TooLong),
}

impl State {
    const fn new(ends: LineEnds) -> Self {
        Self {
            start: 0,
            kept: 0,
            look: 0,
            scan: 0,
            end: 0,
            held: 0,
            held_at: 0,
            excess: Excess::None,
            crs: 0,
            dropped: 0,
            at_bom: true,
            finished: false,
            ends,
        }
    }

    fn commit(&mut self, len: usize, n: usize) {
        if !self.finished {
            self.end = self.end.saturating_add(n).min(len);
        }
    }

    /// Counts from the end of the line at `at..cut` on.
    fn hold(&mut self, at: usize, cut: usize) {
        self.held = cut;
        self.held_at = at;
        if self.start >= self.kept && self.look == self.end {
            self.clear();
        } else {
            self.shift_down(cut);
            self.settle();
        }
    }

    /// The held line is consumed.
    fn release(&mut self) {
        let held = core::mem::take(&mut self.held);
        if held == 0 || self.end == 0 {
            return;
        }
        for offset in [&mut self.start, &mut self.kept, &mut self.look, &mut self.scan, &mut self.end] {
            *offset = offset.wrapping_add(held);
        }
    }

    fn clear(&mut self) {
        self.start = 0;
        self.kept = 0;
        self.look = 0;
        self.scan = 0;
        self.end = 0;
    }

    /// Restores what holds without kept lines, and goes back to the beginning when nothing is buffered.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn settle(&mut self) {
        if self.start >= self.kept {
            self.start = self.look;
            self.kept = self.look;
            if self.look >= self.end {
                self.clear();
            }
        }
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn shift_down(&mut self, by: usize) {
        self.start = self.start.saturating_sub(by);
        self.kept = self.kept.saturating_sub(by);
        self.shift_next_down(by);
    }

    fn shift_next_down(&mut self, by: usize) {
        self.look = self.look.saturating_sub(by);
        self.scan = self.scan.saturating_sub(by);
        self.end = self.end.saturating_sub(by);
    }

    /// Whether there is anything of a line that has not ended.
    fn in_line(&self) -> bool {
        self.look < self.end || self.dropped > 0
    }

    fn skip(&mut self, dropped: usize) {
        self.excess = Excess::Content;
        self.dropped = dropped;
    }

    /// The line is over, and may have been too long.
    fn end_excess(&mut self, limit: usize) -> Option<TooLong> {
        // Part of a byte-order mark at the end of input was content after all.
        let dropped = core::mem::take(&mut self.dropped);
        self.excess = Excess::None;
        self.crs = 0;
        (dropped > limit).then_some(TooLong { limit, dropped })
    }

    /// The line that began at `look` is over; the next begins at `next`.
    fn begin_line(&mut self, next: usize) {
        self.look = next;
        self.scan = next;
        self.at_bom = true;
    }
}

fn next<'f>(buf: &'f mut [u8], state: &mut State) -> Option<Frame<'f>> {
    match locate(buf, state)? {
        Found::TooLong(event) => Some(Frame::TooLong(event)),
        Found::Line { at, len } => {
            let end = at.saturating_add(len);
            state.hold(at, end);
            buf.get_mut(at..end).map(Frame::Line)
        }
    }
}

fn take<'f>(buf: &'f mut [u8], state: &'f mut State) -> Option<Taken<'f>> {
    match locate(buf, state)? {
        Found::TooLong(event) => Some(Taken::TooLong(event)),
        Found::Line { mut at, len } => {
            // Room before the line is of no use while it is held. Moving no more than was consumed is paid for by that.
            let n = state.end.saturating_sub(at);
            if n <= at {
                move_down(buf, at, 0, n);
                state.shift_down(at);
                at = 0;
            }
            let end = at.saturating_add(len);
            state.hold(at, end);
            let (line, tail) = buf.split_at_mut_checked(end)?;
            Some(Taken::Line(line.get_mut(at..)?, Tail { buf: tail, state }))
        }
    }
}

fn locate(buf: &mut [u8], state: &mut State) -> Option<Found> {
    state.release();
    if state.start < state.kept { Some(next_kept(buf, state)) } else { advance(buf, state) }
}

/// The first of the kept lines. They are clean; an LF parts them, which the last may lack.
fn next_kept(buf: &[u8], state: &mut State) -> Found {
    let at = state.start;
    let kept = part(buf, at, state.kept);
    let len = find(kept, LineEnds::Lf).unwrap_or(kept.len());
    state.start = at.saturating_add(len).saturating_add(1).min(state.kept);
    Found::Line { at, len }
}

fn space<'f>(buf: &'f mut [u8], state: &mut State) -> &'f mut [u8] {
    if state.finished {
        return &mut [];
    }
    if state.look > 0 {
        make_room(buf, state);
    }
    if state.end >= buf.len() {
        // What cannot be delivered is dropped here too, so that a reader need not ask for lines to get room.
        digest(buf, state);
        make_room(buf, state);
    }
    buf.get_mut(state.end..).unwrap_or_default()
}

/// Closes what was consumed: when there is no other room, or when the bytes to be moved are no more than those consumed,
/// so that every byte is moved a bounded number of times.
fn make_room(buf: &mut [u8], state: &mut State) {
    state.settle();
    let full = state.end >= buf.len();
    let State { kept, look, end, .. } = *state;
    let (gap, n) = (look.saturating_sub(kept), end.saturating_sub(look));
    if gap > 0 && (n <= gap || full) {
        move_down(buf, look, kept, n);
        state.shift_next_down(gap);
    }
    let State { start, end, .. } = *state;
    let n = end.saturating_sub(start);
    if start > 0 && (n <= start || full) {
        move_down(buf, start, 0, n);
        state.shift_down(start);
    }
}

/// The next line, or over-long line, behind those looked at.
fn advance(buf: &mut [u8], state: &mut State) -> Option<Found> {
    while state.scan < state.end || state.finished {
        let (end, next) = match digest(buf, state) {
            Some(at) => (at, at.saturating_add(1)),
            None if state.finished && state.in_line() => (state.end, state.end),
            None => break,
        };
        let at = state.look;
        if state.excess != Excess::None
            && let Some(event) = state.end_excess(limit(buf, state))
        {
            state.begin_line(next);
            state.settle();
            return Some(Found::TooLong(event));
        }
        state.begin_line(next);
        let content = without_crs(part(buf, at, end));
        if !is_blank(content) {
            return Some(Found::Line { at, len: content.len() });
        }
    }
    state.settle();
    None
}

/// Looks at all bytes not looked at before up to the end of the line that is being collected, and says where that is.
/// Drops of them what will not be delivered. Changes nothing when called again at once.
fn digest(buf: &mut [u8], state: &mut State) -> Option<usize> {
    if state.excess != Excess::None {
        match state.excess {
            Excess::Bom => collect_bom(buf, state),
            Excess::Crs => collect_crs(buf, state),
            Excess::None | Excess::Content => {}
        }
        if state.excess == Excess::Content {
            return skip_content(buf, state);
        }
    }
    if state.at_bom {
        let line = part(buf, state.look, state.end);
        if line.first() != BOM.first() {
            state.at_bom = line.is_empty();
        } else if line.starts_with(&BOM) {
            state.look = state.look.saturating_add(BOM.len());
            state.scan = state.scan.max(state.look);
            state.at_bom = false;
        } else {
            state.at_bom = BOM.starts_with(line);
        }
    }
    if let Some(n) = find(part(buf, state.scan, state.end), state.ends) {
        state.scan = state.scan.saturating_add(n);
        return Some(state.scan);
    }
    if state.end.saturating_sub(state.look) > limit(buf, state) {
        overflow(buf, state);
    }
    state.scan = state.end;
    None
}

/// The partial line has one byte more than the limit.
fn overflow(buf: &[u8], state: &mut State) {
    let line = part(buf, state.look, state.end);
    let content = without_crs(line).len();
    if state.at_bom {
        state.excess = Excess::Bom;
        state.dropped = line.len();
        state.look = state.end;
    } else if content == line.len() {
        state.skip(content);
        state.look = state.end;
    } else {
        state.excess = Excess::Crs;
        state.crs = line.len().saturating_sub(content);
        state.end = state.look.saturating_add(content);
    }
}

/// Drops a stretch of an over-long line, up to its end if that is there.
fn skip_content(buf: &[u8], state: &mut State) -> Option<usize> {
    let line = part(buf, state.look, state.end);
    let end = find(line, state.ends);
    let line = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
    let content = without_crs(line).len();
    if content > 0 {
        // CRs count once something follows them.
        state.dropped = state.dropped.saturating_add(state.crs).saturating_add(content);
        state.crs = 0;
    }
    state.crs = state.crs.saturating_add(line.len().saturating_sub(content));
    state.look = state.look.saturating_add(line.len());
    state.scan = state.look;
    end.map(|_| state.look)
}

/// The rest of a byte-order mark whose first bytes did not fit the memory. Without a rest they are content, and too long.
fn collect_bom(buf: &[u8], state: &mut State) {
    while let Some(&byte) = part(buf, state.look, state.end).first() {
        state.at_bom = false;
        if BOM.get(state.dropped) != Some(&byte) {
            state.excess = Excess::Content;
            return;
        }
        state.look = state.look.saturating_add(1);
        state.scan = state.look;
        state.dropped = state.dropped.saturating_add(1);
        if state.dropped == BOM.len() {
            state.excess = Excess::None;
            state.dropped = 0;
            return;
        }
    }
}

/// More CRs behind a line that fills the memory with those counted before: any other byte but LF makes it too long.
fn collect_crs(buf: &mut [u8], state: &mut State) {
    let State { look, scan, end, .. } = *state;
    let rest = part(buf, scan, end);
    let n = rest.iter().take_while(|&&byte| byte == CR).count();
    let rest = rest.len().saturating_sub(n);
    move_down(buf, scan.saturating_add(n), scan, rest);
    state.crs = state.crs.saturating_add(n);
    state.end = end.saturating_sub(n);
    if rest > 0 && buf.get(scan) != Some(&LF) {
        state.skip(scan.saturating_sub(look));
        state.look = scan;
    }
}

/// `buf` is the whole memory, or what lies behind the held line.
fn limit(buf: &[u8], state: &State) -> usize {
    buf.len().saturating_add(state.held).saturating_sub(1)
}

#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn part(buf: &[u8], from: usize, to: usize) -> &[u8] {
    buf.get(from..to).unwrap_or_default()
}

#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn without_crs(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., CR] = bytes {
        bytes = rest;
    }
    bytes
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | &CR))
}

/// Moves `n` bytes at `from` down to `to`. Byte by byte: on a microcontroller a `memmove` for this alone would be a
/// kilobyte.
#[cfg(not(target_pointer_width = "64"))]
#[inline(never)]
fn move_down(buf: &mut [u8], from: usize, to: usize, n: usize) {
    if from <= to {
        return;
    }
    for offset in 0..n {
        let byte = buf.get(from.wrapping_add(offset)).copied().unwrap_or_default();
        if let Some(place) = buf.get_mut(to.wrapping_add(offset)) {
            *place = byte;
        }
    }
}

/// Moves `n` bytes at `from` down to `to`.
#[cfg(target_pointer_width = "64")]
fn move_down(buf: &mut [u8], from: usize, to: usize, n: usize) {
    let by = from.saturating_sub(to);
    if by > 0
        && n > 0
        && let Some(bytes) = buf.get_mut(to..from.saturating_add(n))
        && by <= bytes.len()
    {
        bytes.copy_within(by.., 0);
    }
}

/// Where the first line end is.
#[cfg(target_pointer_width = "64")]
fn find(bytes: &[u8], ends: LineEnds) -> Option<usize> {
    match ends {
        LineEnds::Lf => find_by_block::<false>(bytes),
        LineEnds::Serial => find_by_block::<true>(bytes),
    }
}

/// Where the first line end is.
#[cfg(not(target_pointer_width = "64"))]
fn find(bytes: &[u8], ends: LineEnds) -> Option<usize> {
    find_by_byte(bytes, ends)
}

/// Whole blocks by a test that the compiler turns into vector instructions, then words, then bytes.
#[cfg(target_pointer_width = "64")]
fn find_by_block<const SERIAL: bool>(bytes: &[u8]) -> Option<usize> {
    let is_end = |byte: u8| byte == LF || (SERIAL && byte == CR);
    let (blocks, _) = bytes.as_chunks::<32>();
    let clear = blocks.iter().take_while(|block| !block.iter().fold(false, |any, &byte| any | is_end(byte))).count();
    let mut at = clear.saturating_mul(32);
    let (words, rest) = bytes.get(at..).unwrap_or_default().as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word);
        let mut ends = zero_bytes(word ^ (u64::from(LF) * EACH_BYTE));
        if SERIAL {
            ends |= zero_bytes(word ^ (u64::from(CR) * EACH_BYTE));
        }
        if ends != 0 {
            return Some(at.saturating_add((ends.trailing_zeros() / 8) as usize));
        }
        at = at.saturating_add(8);
    }
    rest.iter().position(|&byte| is_end(byte)).map(|n| at.saturating_add(n))
}

#[cfg(target_pointer_width = "64")]
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// The top bit of the lowest byte that is zero; those above it may be wrong.
#[cfg(target_pointer_width = "64")]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(EACH_BYTE) & !word & (EACH_BYTE << 7)
}

/// One comparison a byte: nearly all bytes are above CR. A microcontroller has no unaligned words.
#[cfg(any(test, not(target_pointer_width = "64")))]
fn find_by_byte(bytes: &[u8], ends: LineEnds) -> Option<usize> {
    let mut rest = bytes;
    loop {
        rest = rest.get(crate::bytes::count_while(rest, |byte| byte > CR)..).unwrap_or_default();
        match rest {
            [] => return None,
            [byte, ..] if is_end(*byte, ends) => return Some(bytes.len().wrapping_sub(rest.len())),
            [_, after @ ..] => rest = after,
        }
    }
}

#[cfg(any(test, not(target_pointer_width = "64")))]
fn is_end(byte: u8, ends: LineEnds) -> bool {
    byte == LF || (byte == CR && ends == LineEnds::Serial)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::string::{String, ToString};
    use std::vec::Vec;
    use std::{format, vec};

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Event {
        Line(Vec<u8>),
        TooLong(usize),
    }

    /// The module's rules, written down without regard to memory.
    fn naive(bytes: &[u8], limit: usize, ends: LineEnds, finish: bool) -> Vec<Event> {
        let mut lines: Vec<&[u8]> =
            bytes.split(|&byte| byte == LF || (byte == CR && ends == LineEnds::Serial)).collect();
        if !finish {
            lines.pop();
        }
        let events = lines.into_iter().filter_map(|line| {
            let mut line = line.strip_prefix(&BOM).unwrap_or(line);
            while let Some(rest) = line.strip_suffix(b"\r") {
                line = rest;
            }
            match line.len() {
                n if n > limit => Some(Event::TooLong(n)),
                _ if line.iter().all(|byte| b" \t\r".contains(byte)) => None,
                _ => Some(Event::Line(line.to_vec())),
            }
        });
        events.collect()
    }

    fn event(frame: Frame<'_>, limit: usize) -> Event {
        match frame {
            Frame::Line(line) => {
                let event = Event::Line(line.to_vec());
                line.fill(LF); // whoever has the line may write anything into it
                event
            }
            Frame::TooLong(event) => {
                assert_eq!(event.limit, limit);
                Event::TooLong(event.dropped)
            }
        }
    }

    /// Feeds `bytes` in reads of `cuts` bytes, in turn, and drains the framer after each.
    fn framed(bytes: &[u8], len: usize, ends: LineEnds, cuts: &[usize]) -> Vec<Event> {
        let mut memory = vec![0; len];
        let mut framer = Framer::new(&mut memory).with_mode(ends);
        let limit = framer.limit();
        let (mut events, mut at) = (Vec::new(), 0);
        for cut in cuts.iter().cycle() {
            if at == bytes.len() {
                break;
            }
            let space = framer.space();
            assert!(!space.is_empty());
            let n = (*cut).min(space.len()).min(bytes.len() - at);
            space[..n].copy_from_slice(&bytes[at..at + n]);
            framer.commit(n);
            at += n;
            while let Some(frame) = framer.next() {
                events.push(event(frame, limit));
            }
            assert_eq!(events, naive(&bytes[..at], limit, ends, false), "after {at} bytes");
        }
        framer.finish();
        while let Some(frame) = framer.next() {
            events.push(event(frame, limit));
        }
        assert!(framer.space().is_empty());
        events
    }

    fn text(events: &[Event]) -> String {
        let show = |event: &Event| match event {
            Event::Line(line) => String::from_utf8_lossy(line).to_string(),
            Event::TooLong(n) => format!("!{n}"),
        };
        events.iter().map(show).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn lines_are_what_the_module_says() {
        use LineEnds::{Lf, Serial};
        // Memory of 6 bytes: a limit of 5.
        let table: &[(&[u8], LineEnds, &str)] = &[
            (b"", Lf, ""),
            (b"\n", Lf, ""),
            (b"a\n", Lf, "a"),
            (b"a", Lf, "a"),
            (b"a\r", Lf, "a"),
            (b"a\nb\n", Lf, "a|b"),
            (b"a\r\nb\r\r\r\n", Lf, "a|b"),
            (b"\n\r\n \n\t \r\n\r\r\n \ta\n", Lf, " \ta"),
            (b"a\rb\n", Lf, "a\rb"),
            (b"a\rb\n", Serial, "a|b"),
            (b"a\r\nb\r\n\r\n", Serial, "a|b"),
            (b"a\rb", Serial, "a|b"),
            (b"\ra \r \r", Serial, "a "),
            // The limit, one less, one more.
            (b"1234\n", Lf, "1234"),
            (b"12345\n", Lf, "12345"),
            (b"123456\n", Lf, "!6"),
            (b"12345", Lf, "12345"),
            (b"123456", Lf, "!6"),
            (b"123456\r", Lf, "!6"),
            (b"12345\r", Serial, "12345"),
            (b"123456\r", Serial, "!6"),
            (b"12345\r\n", Lf, "12345"),
            (b"12345\r\r\r\r\r\r\r\r\r\n1\n", Lf, "12345|1"),
            (b"123\r\r\r\r\r\r\r\r\r\n1\n", Lf, "123|1"),
            (b"12345\r\r\r\r", Lf, "12345"),
            (b"\r\r\r\r\r\r\r\r\r\n1\n", Lf, "1"),
            (b"123\r4\n", Lf, "123\r4"),
            (b"123\r\r4\n", Lf, "!6"),
            (b"123\r\r\r\r\r\r\r4\r\r\n5\n", Lf, "!11|5"),
            (b"\r\r\r\r\r\r1\n", Lf, "!7"),
            // One event a line, nothing of it delivered, a clean restart.
            (b"a\n123456789012345678901234567890\nb\n", Lf, "a|!30|b"),
            (b"123456789\n123456789\n1\n123456789", Lf, "!9|!9|1|!9"),
            (b"123456\xEF\xBB\xBF\n1", Lf, "!9|1"),
            (b"      \n1", Lf, "!6|1"),
            (b"     \n1", Lf, "1"),
            // Byte-order marks.
            (b"\xEF\xBB\xBFa\n\xEF\xBB\xBFb\n", Lf, "a|b"),
            (b"\xEF\xBB\xBF12345\n\xEF\xBB\xBF12345\r\r\n1", Lf, "12345|12345|1"),
            (b"\xEF\xBB\xBF123456\n", Lf, "!6"),
            (b"\xEF\xBB\xBF\n\xEF\xBB\xBF \r\n\xEF\xBB\xBF", Lf, ""),
            (b"\xEF\xBB\xBF\xEF\xBB\xBFa\n", Lf, "\u{FEFF}a"),
            (b"a\xEF\xBB\xBF\n", Lf, "a\u{FEFF}"),
            (b"\r\xEF\xBB\xBF\n", Lf, "\r\u{FEFF}"),
            (b"\r\xEF\xBB\xBFa", Serial, "a"),
        ];
        for (bytes, ends, expected) in table {
            for cut in 1..=7 {
                let events = framed(bytes, 6, *ends, &[cut]);
                assert_eq!(text(&events), *expected, "{} in reads of {cut}", bytes.escape_ascii());
                assert_eq!(events, naive(bytes, 5, *ends, true), "{}", bytes.escape_ascii());
            }
        }
    }

    #[test]
    fn tiny_memory_has_exact_limits_too() {
        let bytes = b"a\nbb\n\xEF\xBB\xBF\n\xEF\xBB\xBFb\n\xEF\xBB\r\r\n\xEF\xBBb\n \n\xEF";
        // White space is over a limit of 0.
        for (len, expected) in [(1, "!1|!2|!1|!2|!3|!1|!1"), (2, "a|!2|b|!2|!3|\u{FFFD}")] {
            for cuts in [&[1][..], &[2], &[1, 2]] {
                assert_eq!(text(&framed(bytes, len, LineEnds::Lf, cuts)), expected);
            }
        }
        let mut framer = Framer::new(&mut []);
        assert_eq!((framer.limit(), framer.space().len()), (0, 0));
        framer.commit(3);
        framer.finish();
        assert_eq!(framer.next(), None);
        assert!(framer.take().is_none());
    }

    #[test]
    fn reset_forgets_everything() {
        for start in [&b"a\nb"[..], b"123456789", b"123456789\n1\n", b"1\r\r\r\r\r", b"\xEF"] {
            let mut framer = OwnedFramer::<6>::default();
            for &byte in start {
                framer.space()[0] = byte;
                framer.commit(1);
            }
            framer.reset();
            framer.space()[..2].copy_from_slice(b"c\n");
            framer.commit(2);
            assert_eq!(framer.next(), Some(Frame::Line(&mut b"c".to_vec())));
            assert_eq!(framer.next(), None);
            framer.finish();
            framer.reset();
            assert_eq!(framer.space().len(), 6);
        }
    }

    #[test]
    fn small_sessions_touch_only_the_beginning() {
        let mut memory = vec![0; 1 << 20];
        let mut framer = Framer::new(&mut memory);
        for i in 0..10_000 {
            for part in [&b"{\"a\":1}\r\n\n{\"b"[..], b"\":2}\n"] {
                framer.space()[..part.len()].copy_from_slice(part);
                framer.commit(part.len());
                while let Some(frame) = framer.next() {
                    assert!(matches!(frame, Frame::Line(_)), "{i}");
                }
            }
        }
        assert!(memory[64..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn more_than_the_room_is_all_of_it() {
        let mut framer = OwnedFramer::<4>::new();
        framer.space().copy_from_slice(b"abc\n");
        framer.commit(usize::MAX);
        assert_eq!(framer.next(), Some(Frame::Line(&mut b"abc".to_vec())));
    }

    #[test]
    fn a_held_line_is_back_pressure_not_an_over_long_line() {
        let mut framer = OwnedFramer::<9>::new();
        framer.space()[..6].copy_from_slice(b"1234\n1");
        framer.commit(6);
        let Some(Taken::Line(line, mut tail)) = framer.take() else { panic!() };
        assert_eq!(tail.space().len(), 4, "the held line's newline is free too");
        tail.space().copy_from_slice(b"2345");
        tail.commit(4);
        assert!(tail.space().is_empty());
        assert!(tail.peek().is_none());
        assert_eq!(line, b"1234");
        framer.space()[..4].copy_from_slice(b"678\n");
        framer.commit(4);
        assert_eq!(framer.next(), Some(Frame::Line(&mut b"12345678".to_vec())));
    }

    #[test]
    fn discarded_lines_give_their_room_back() {
        let mut framer = OwnedFramer::<10>::new();
        framer.space().copy_from_slice(b"a\nbb\ncc\ndd");
        framer.commit(10);
        let Some(Taken::Line(_, mut tail)) = framer.take() else { panic!() };
        tail.peek().unwrap().keep();
        tail.peek().unwrap().discard();
        assert!(tail.peek().is_none());
        assert_eq!(tail.space().len(), 4, "three of cc, one of the held line's newline");
        tail.space()[..2].copy_from_slice(b"d\n");
        tail.commit(2);
        assert_eq!(tail.peek().unwrap().line(), b"ddd");
        assert!(tail.peek().is_none());
        tail.finish();
        assert!(tail.space().is_empty());
        for expected in [&b"bb"[..], b"ddd"] {
            assert_eq!(framer.next(), Some(Frame::Line(&mut expected.to_vec())));
        }
        assert_eq!(framer.next(), None);
    }

    #[test]
    fn every_line_end_is_found_wherever_it_stands() {
        for len in 0..100 {
            for at in 0..len {
                for (byte, ends) in [(LF, LineEnds::Lf), (LF, LineEnds::Serial), (CR, LineEnds::Serial)] {
                    for other in [0_u8, 9, 11, 12, 14, 0x7F, 0x80, 0x8A, 0x8D, 0xFF] {
                        let mut bytes = vec![other; len];
                        assert_eq!((find(&bytes, ends), find_by_byte(&bytes, ends)), (None, None));
                        bytes[at..].fill(byte);
                        assert_eq!((find(&bytes, ends), find_by_byte(&bytes, ends)), (Some(at), Some(at)));
                    }
                }
            }
        }
    }

    /// Lines of lengths around all sizes that its memory may have, then a short one: the memory is small again.
    #[cfg(feature = "alloc")]
    #[test]
    fn g_07_the_heap_framer_grows_to_its_limit_and_shrinks() {
        for limit in [0, 10, 4094, 4095, 4096, 5000, 65_535, 65_536, 100_000] {
            let sizes = [0, 1, 2, 4093, 4094, 4095, 4096, 4097, 8191, 8192, 65_534, 65_535, 65_536, 65_537];
            let around = [limit.max(1) - 1, limit, limit + 1, limit + 2, limit * 3];
            for size in sizes.into_iter().chain(around) {
                let a = |count: usize| "a".repeat(count);
                for line in [
                    format!("{}\nb\r\n", a(size)),
                    format!("b\n\u{feff}{}\r\r\n\nc\n", a(size)),
                    format!("{}\r\r{}\n{}\nd", a(size / 2), a(size - size / 2), a(size)),
                    format!("{}\n{}", "\r".repeat(size), a(size)),
                ] {
                    for cut in [1000, 4095, 4096, 70_000] {
                        let mut framer = HeapFramer::new(limit);
                        let (mut events, mut at) = (Vec::new(), 0);
                        while at < line.len() {
                            let space = framer.space();
                            let count = cut.min(space.len()).min(line.len() - at);
                            assert!(count > 0, "limit {limit}, size {size}, cut {cut}");
                            space[..count].copy_from_slice(&line.as_bytes()[at..at + count]);
                            framer.commit(count);
                            at += count;
                            while let Some(frame) = framer.next() {
                                events.push(event(frame, limit));
                            }
                        }
                        framer.finish();
                        while let Some(frame) = framer.next() {
                            events.push(event(frame, limit));
                        }
                        let expected = naive(line.as_bytes(), limit, LineEnds::Lf, true);
                        assert_eq!(text(&events), text(&expected), "limit {limit}, size {size}, cut {cut}");
                        assert_eq!(framer.buffered(), 0);
                    }
                }
            }
        }
        let mut framer = HeapFramer::new(8 << 20);
        while framer.capacity() <= 4 << 20 {
            let space = framer.space();
            space.fill(b'a');
            let count = space.len();
            framer.commit(count);
            assert_eq!(framer.next(), None);
        }
        framer.space()[0] = LF;
        framer.commit(1);
        assert!(framer.next().is_some());
        framer.space();
        assert_eq!(framer.capacity(), HeapFramer::START);
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![&b"\n"[..], b"\r\n", b"\r", b"\r\r\r\r", b"\xEF\xBB\xBF", b"\xEF", b"\xBB", b"\xBF", b" ", b"\t"])
                .prop_map(<[u8]>::to_vec),
            3 => prop::collection::vec(b'a'..=b'z', 1..12),
            1 => prop::collection::vec(any::<u8>(), 1..4),
            1 => prop::collection::vec(b'a'..=b'z', 30..90),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    fn ends() -> impl Strategy<Value = LineEnds> {
        prop::sample::select(vec![LineEnds::Lf, LineEnds::Serial])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn cuts_do_not_matter(
            bytes in stream(), len in prop_oneof![1..24_usize, 24..100_usize], ends in ends(),
            cuts in prop::collection::vec(1..40_usize, 1..20),
        ) {
            prop_assert_eq!(framed(&bytes, len, ends, &cuts), naive(&bytes, len - 1, ends, true));
        }

        /// Reads, lines, held lines, looks ahead in any order: everything comes once, in order, and unharmed.
        #[test]
        fn looking_ahead_does_not_matter(
            bytes in stream(), len in prop_oneof![1..24_usize, 24..100_usize], ends in ends(),
            choices in prop::collection::vec((0..8_u8, 1..40_usize), 1..200),
        ) {
            let expected = naive(&bytes, len - 1, ends, true);
            let mut memory = vec![0; len];
            let mut framer = Framer::new(&mut memory).with_mode(ends);
            let mut choices = choices.into_iter();
            let (mut at, mut looked, mut kept) = (0, 0, VecDeque::new());
            let read = |space: &mut [u8], at: &mut usize, n: usize| {
                let n = n.min(space.len()).min(bytes.len() - *at);
                space[..n].copy_from_slice(&bytes[*at..*at + n]);
                *at += n;
                n
            };
            loop {
                // When the choices are used up, the rest is plain reading.
                let chosen = choices.next();
                let (choice, n) = chosen.unwrap_or((0, 40));
                let turn = |kept: &mut VecDeque<usize>, looked: &mut usize| {
                    kept.pop_front().unwrap_or_else(|| { *looked += 1; *looked - 1 })
                };
                match choice {
                    0 | 1 => {
                        let n = read(framer.space(), &mut at, n);
                        framer.commit(n);
                    }
                    2 if at == bytes.len() => framer.finish(),
                    2 | 3 => if let Some(frame) = framer.next() {
                        prop_assert_eq!(&event(frame, len - 1), &expected[turn(&mut kept, &mut looked)]);
                    },
                    _ => match framer.take() {
                        None => {}
                        Some(Taken::TooLong(event)) => {
                            prop_assert_eq!(&Event::TooLong(event.dropped), &expected[turn(&mut kept, &mut looked)]);
                        }
                        Some(Taken::Line(line, mut tail)) => {
                            prop_assert_eq!(&Event::Line(line.to_vec()), &expected[turn(&mut kept, &mut looked)]);
                            line.fill(LF);
                            for (choice, n) in choices.by_ref().take(n) {
                                if choice < 4 {
                                    let n = read(tail.space(), &mut at, n);
                                    tail.commit(n);
                                } else if choice == 4 && at == bytes.len() {
                                    tail.finish();
                                } else if let Some(mut peeked) = tail.peek() {
                                    prop_assert_eq!(&Event::Line(peeked.line().to_vec()), &expected[looked]);
                                    match choice {
                                        5 => { peeked.keep(); kept.push_back(looked); }
                                        6 => { peeked.line().fill(LF); peeked.discard(); }
                                        _ => kept.push_back(looked),
                                    }
                                    looked += 1;
                                }
                            }
                            prop_assert!(line.iter().all(|&byte| byte == LF), "a held line was written over");
                        }
                    },
                }
                if chosen.is_none() {
                    let done = at == bytes.len();
                    if done {
                        framer.finish();
                    }
                    while let Some(frame) = framer.next() {
                        prop_assert_eq!(&event(frame, len - 1), &expected[turn(&mut kept, &mut looked)]);
                    }
                    if done {
                        break;
                    }
                }
            }
            prop_assert_eq!((at, looked, kept.len()), (bytes.len(), expected.len(), 0));
        }

        #[test]
        fn the_owned_framer_is_no_different(bytes in stream(), ends in ends(), cut in 1..20_usize) {
            let mut framer = OwnedFramer::<16>::new().with_mode(ends);
            prop_assert_eq!(framer.limit(), 15);
            let (mut events, mut rest) = (Vec::new(), &bytes[..]);
            while !rest.is_empty() {
                let space = framer.space();
                let n = cut.min(space.len()).min(rest.len());
                space[..n].copy_from_slice(&rest[..n]);
                framer.commit(n);
                rest = &rest[n..];
                loop {
                    match framer.take() {
                        None => break,
                        Some(Taken::Line(line, _)) => events.push(Event::Line(line.to_vec())),
                        Some(Taken::TooLong(event)) => events.push(Event::TooLong(event.dropped)),
                    }
                }
            }
            framer.finish();
            while let Some(frame) = framer.next() {
                events.push(event(frame, 15));
            }
            prop_assert_eq!(events, naive(&bytes, 15, ends, true));
        }
    }
}
