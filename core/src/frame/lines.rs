//! Where the lines are in the memory, and how room is made in it.

use super::find::{clear_length, find};
use super::{BOM, CR, Frame, InputBehind, LF, LineEnds, Taken, TooLong};
use crate::bytes::BY_WORDS;

/// Where everything is in the memory. While a line is held, all offsets count from that line's end (`held`).
///
/// ```text
///   | consumed | kept lines | gap | the next lines, the partial one last | free |
///   0        start        kept   look                   scan            end   len
/// ```
///
/// Without kept lines `start`, `kept` and `look` are one.
#[derive(Debug)]
pub(super) struct State {
    pub(super) start: usize,
    pub(super) kept: usize,
    pub(super) look: usize,
    /// Between `look` and `scan` there is no line end.
    pub(super) scan: usize,
    pub(super) held: usize,
    // Not behind `scan`: up to four words in a row are cleared without a call.
    pub(super) end: usize,
    /// Where the held line begins, in the memory.
    pub(super) held_at: usize,
    pub(super) excess: Excess,
    /// CRs counted instead of stored. They are content once something other than the line's end
    /// follows them.
    crs: usize,
    /// Content counted instead of stored.
    dropped: usize,
    /// At the start of a line, where a byte-order mark may stand.
    at_bom: bool,
    pub(super) finished: bool,
    pub(super) ends: LineEnds,
}

/// The part of a line that does not fit the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    None,
    /// CRs behind what is stored. They may be the line's end.
    Crs,
    /// The first `dropped` bytes of a byte-order mark, in a memory of less than three bytes.
    Bom,
    /// The line is over the limit. Nothing of it is stored.
    Content,
}

pub(super) enum FoundLine {
    Line { at: usize, len: usize },
    TooLong(TooLong),
}

impl State {
    pub(super) const fn new(ends: LineEnds) -> Self {
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

    pub(super) fn commit(&mut self, len: usize, n: usize) {
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

    /// Counts from `cut` on, the end of a line at the beginning of the memory, behind which nothing
    /// is buffered.
    #[inline]
    fn hold_all(&mut self, cut: usize) {
        self.clear();
        self.at_bom = true;
        self.held = cut;
        self.held_at = 0;
    }

    /// Whether nothing is buffered, as after most lines. The held line is consumed.
    #[inline]
    fn is_empty(&mut self) -> bool {
        self.release();
        self.end == 0 && !self.finished
    }

    /// The held line is consumed.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.held == 0 {
            return;
        }
        let held = core::mem::take(&mut self.held);
        if self.end == 0 {
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
    #[inline(never)]
    pub(super) fn settle(&mut self) {
        if self.start >= self.kept {
            self.start = self.look;
            self.kept = self.look;
            if self.look >= self.end {
                self.clear();
            }
        }
    }

    #[inline(never)]
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

#[inline]
pub(super) fn next<'f>(buf: &'f mut [u8], state: &mut State) -> Option<Frame<'f>> {
    if state.is_empty() { None } else { next_buffered(buf, state) }
}

#[inline(never)]
fn next_buffered<'f>(buf: &'f mut [u8], state: &mut State) -> Option<Frame<'f>> {
    if BY_WORDS && let Some(len) = only_line(buf, state) {
        state.hold_all(len);
        return buf.get_mut(..len).map(Frame::Line);
    }
    next_of_many(buf, state)
}

#[inline(never)]
fn next_of_many<'f>(buf: &'f mut [u8], state: &mut State) -> Option<Frame<'f>> {
    match locate(buf, state)? {
        FoundLine::TooLong(event) => Some(Frame::TooLong(event)),
        FoundLine::Line { at, len } => {
            let end = at.saturating_add(len);
            state.hold(at, end);
            buf.get_mut(at..end).map(Frame::Line)
        }
    }
}

pub(super) fn take<'f>(buf: &'f mut [u8], state: &'f mut State) -> Option<Taken<'f>> {
    if state.is_empty() {
        return None;
    }
    match locate(buf, state)? {
        FoundLine::TooLong(event) => Some(Taken::TooLong(event)),
        FoundLine::Line { at, len } => {
            let (at, end) = hold(buf, state, at, len);
            let (line, tail) = buf.split_at_mut_checked(end)?;
            Some(Taken::Line(line.get_mut(at..)?, InputBehind { buf: tail, state }))
        }
    }
}

/// Holds a line, and says where it is now.
fn hold(buf: &mut [u8], state: &mut State, mut at: usize, len: usize) -> (usize, usize) {
    // Room before the line is of no use while it is held. Moving no more than was consumed is paid
    // for by that.
    let n = state.end.saturating_sub(at);
    if n <= at {
        move_down(buf, at, 0, n);
        state.shift_down(at);
        at = 0;
    }
    let end = at.saturating_add(len);
    state.hold(at, end);
    (at, end)
}

/// The bytes that were not looked at, if they come next and are all in the memory.
pub(super) fn unframed<'f>(buf: &'f [u8], state: &mut State) -> Option<&'f [u8]> {
    state.release();
    (state.start >= state.kept && state.excess == Excess::None).then(|| part(buf, state.look, state.end))
}

pub(super) fn take_first(buf: &mut [u8], state: &mut State, length: usize, whole: usize) {
    let at = state.look;
    // Most often it is all there is.
    if at == 0 && whole == state.end {
        state.hold_all(length);
        return;
    }
    state.begin_line(at.saturating_add(whole).min(state.end));
    hold(buf, state, at, length);
}

fn locate(buf: &mut [u8], state: &mut State) -> Option<FoundLine> {
    if state.start < state.kept {
        return Some(next_kept(buf, state));
    }
    advance(buf, state)
}

/// The length of the line if it is all that is buffered, as after most reads, and if nothing about it is special: it starts with a character
/// of ASCII other than white space, so that it is not blank and has no byte-order mark, and ends with one LF.
#[inline(always)]
fn only_line(buf: &[u8], state: &mut State) -> Option<usize> {
    let State { look, scan, end, excess, ends, .. } = *state;
    if look > 0 || excess != Excess::None || ends != LineEnds::Lf {
        return None;
    }
    let [unseen @ .., LF] = buf.get(scan..end)? else { return None };
    let clear = clear_length(unseen);
    state.scan = scan.wrapping_add(clear);
    let line @ [b'!'..=0x7F, ..] = buf.get(..state.scan)? else { return None };
    (clear == unseen.len() && line.last() != Some(&CR)).then_some(line.len())
}

/// The first of the kept lines. They are clean; an LF parts them, which the last may lack.
fn next_kept(buf: &[u8], state: &mut State) -> FoundLine {
    let at = state.start;
    let kept = part(buf, at, state.kept);
    let len = find(kept, LineEnds::Lf).unwrap_or(kept.len());
    state.start = at.saturating_add(len).saturating_add(1).min(state.kept);
    FoundLine::Line { at, len }
}

#[inline]
pub(super) fn space<'f>(buf: &'f mut [u8], state: &mut State) -> &'f mut [u8] {
    if state.look > 0 || state.end >= buf.len() || state.finished {
        return other_space(buf, state);
    }
    buf.get_mut(state.end..).unwrap_or_default()
}

#[inline(never)]
fn other_space<'f>(buf: &'f mut [u8], state: &mut State) -> &'f mut [u8] {
    if state.finished {
        return &mut [];
    }
    if state.look > 0 {
        make_room(buf, state);
    }
    if state.end >= buf.len() {
        // What cannot be delivered is dropped here too, so that a reader need not ask for lines to
        // get room.
        digest(buf, state);
        make_room(buf, state);
    }
    buf.get_mut(state.end..).unwrap_or_default()
}

/// Closes what was consumed: when there is no other room, or when the bytes to be moved are no more
/// than those consumed, so that every byte is moved a bounded number of times.
fn make_room(buf: &mut [u8], state: &mut State) {
    state.settle();
    let full = state.end >= buf.len();
    let State { kept, look, end, .. } = *state;
    let (gap, n) = (look.saturating_sub(kept), end.saturating_sub(look));
    if n <= gap || full {
        move_down(buf, look, kept, n);
        state.shift_next_down(gap);
    }
    let State { start, end, .. } = *state;
    let n = end.saturating_sub(start);
    if n <= start || full {
        move_down(buf, start, 0, n);
        state.shift_down(start);
    }
}

/// The next line, or over-long line, behind those looked at.
pub(super) fn advance(buf: &mut [u8], state: &mut State) -> Option<FoundLine> {
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
            return Some(FoundLine::TooLong(event));
        }
        state.begin_line(next);
        let content = without_crs(part(buf, at, end));
        if !is_blank(content) {
            return Some(FoundLine::Line { at, len: content.len() });
        }
    }
    state.settle();
    None
}

/// Looks at all bytes not looked at before up to the end of the line that is being collected, and
/// says where that is. Drops of them what will not be delivered. Changes nothing when called again
/// at once.
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

/// The rest of a byte-order mark whose first bytes did not fit the memory. Without a rest they are
/// content, and too long.
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

/// More CRs behind a line that fills the memory with those counted before: any other byte but LF
/// makes it too long.
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

#[inline(always)]
pub(super) fn part(buf: &[u8], from: usize, to: usize) -> &[u8] {
    if BY_WORDS { buf.get(from..to).unwrap_or_default() } else { called::part(buf, from, to) }
}

#[inline(always)]
fn without_crs(bytes: &[u8]) -> &[u8] {
    if !BY_WORDS {
        return called::without_crs(bytes);
    }
    let mut bytes = bytes;
    while let [rest @ .., CR] = bytes {
        bytes = rest;
    }
    bytes
}

/// The same out of line, which is smaller.
mod called {
    use super::CR;

    #[inline(never)]
    pub(super) fn part(buf: &[u8], from: usize, to: usize) -> &[u8] {
        buf.get(from..to).unwrap_or_default()
    }

    #[inline(never)]
    pub(super) fn without_crs(mut bytes: &[u8]) -> &[u8] {
        while let [rest @ .., CR] = bytes {
            bytes = rest;
        }
        bytes
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | &CR))
}

/// Moves `n` bytes at `from` down to `to`. On a microcontroller byte by byte: a `memmove` for this alone would be a kilobyte.
#[inline(never)]
pub(super) fn move_down(buf: &mut [u8], from: usize, to: usize, n: usize) {
    if from <= to {
        return;
    }
    if BY_WORDS {
        if let Some(bytes) = buf.get_mut(to..from.saturating_add(n))
            && let by = from.wrapping_sub(to)
            && by <= bytes.len()
        {
            bytes.copy_within(by.., 0);
        }
        return;
    }
    for offset in 0..n {
        let byte = buf.get(from.wrapping_add(offset)).copied().unwrap_or_default();
        if let Some(place) = buf.get_mut(to.wrapping_add(offset)) {
            *place = byte;
        }
    }
}
