//! Writing JSON into memory of a fixed size that the caller owns.
//!
//! A [`Writer`] never writes beyond its buffer and never returns an error in the middle. When the
//! buffer is full, it only counts. At the end, [`Writer::finish`] says whether the whole text was
//! written, and how many bytes it needs if it was not.
//!
//! ```
//! use rigline::json::write::Writer;
//!
//! let mut buffer = [0; 64];
//! let mut out = Writer::new(&mut buffer);
//! out.raw(br#"{"message":"#);
//! out.str("rail \"3V3\" is up\n");
//! out.raw(br#","samples":"#);
//! out.u32(16);
//! out.byte(b'}');
//! assert_eq!(out.finish().unwrap(), br#"{"message":"rail \"3V3\" is up\n","samples":16}"#);
//!
//! let mut small = [0; 8];
//! let mut out = Writer::new(&mut small);
//! out.str("twelve bytes");
//! assert_eq!(out.finish().unwrap_err().needed, 14);
//! ```

use core::fmt;

use super::text::is_plain;

/// Writes JSON text into a buffer. When the buffer is full, it counts the bytes and writes nothing
/// more.
///
/// A piece that does not fit as a whole is not written. A piece is one call of [`raw`](Self::raw),
/// or one escape sequence. The caller writes brackets, commas and colons by [`raw`](Self::raw) and
/// [`byte`](Self::byte); the writer does not check the grammar.
#[derive(Debug)]
pub struct Writer<'b> {
    buf: &'b mut [u8],
    /// Bytes asked for so far. Beyond `buf.len()` the text is lost, and this is only a count.
    len: usize,
}

impl<'b> Writer<'b> {
    /// A writer at the start of `buf`. The length of `buf` is the limit. A writer with an empty
    /// `buf` only measures the text.
    #[inline]
    pub fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, len: 0 }
    }

    // Out of line on small processors: a call is a third of the code, and a reply is made of
    // dozens.
    /// A writer that goes on in `buf` after its first `len` bytes.
    #[inline]
    pub(crate) fn at(buf: &'b mut [u8], len: usize) -> Self {
        Self { buf, len }
    }

    /// Writes `bytes` unchanged: punctuation, constants, or text that is JSON already.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    #[cfg_attr(target_pointer_width = "64", inline)]
    pub fn raw(&mut self, bytes: &[u8]) {
        // A third of all pieces are a quote, a comma or an id of one digit.
        if cfg!(not(target_pointer_width = "64"))
            && let [byte] = bytes
        {
            return self.byte(*byte);
        }
        match self.room(bytes.len()) {
            Some(to) => {
                copy(to, bytes);
                self.len = self.len.wrapping_add(bytes.len());
            }
            None => self.count(bytes.len()),
        }
    }

    /// Writes one byte unchanged.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    #[cfg_attr(target_pointer_width = "64", inline)]
    pub fn byte(&mut self, byte: u8) {
        match self.buf.get_mut(self.len) {
            Some(to) => {
                *to = byte;
                self.len = self.len.wrapping_add(1);
            }
            None => self.count(1),
        }
    }

    /// Writes `text` as a JSON string, with quotes, and escaped as by
    /// [`text_part`](Self::text_part).
    pub fn str(&mut self, text: &str) {
        // Without a call in it: no register is saved.
        #[cfg(target_pointer_width = "64")]
        if let Some([open, content @ .., close]) = self.room(text.len().wrapping_add(2))
            && words::copy_short(content, text.as_bytes())
        {
            (*open, *close) = (b'"', b'"');
            self.len = self.len.wrapping_add(text.len()).wrapping_add(2);
            return;
        }
        self.long_str(text);
    }

    #[cfg_attr(target_pointer_width = "64", inline(never))]
    fn long_str(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        let whole = rest.len().wrapping_add(2);
        // The common case in one step: there is room, and nothing to escape.
        if let Some([open, content @ .., close]) = self.room(whole) {
            *open = b'"';
            let plain = copy_plain(content, rest);
            if plain == rest.len() {
                *close = b'"';
                self.len = self.len.wrapping_add(whole);
                return;
            }
            self.len = self.len.wrapping_add(plain).wrapping_add(1);
            rest = rest.get(plain..).unwrap_or_default();
        } else {
            self.byte(b'"');
        }
        self.content(rest);
        self.byte(b'"');
    }

    /// Writes the name of a member as a JSON string, and a colon.
    #[inline(never)]
    pub(crate) fn name(&mut self, name: &str) {
        #[cfg(target_pointer_width = "64")]
        if let Some([open, content @ .., close, colon]) = self.room(name.len().wrapping_add(3))
            && words::copy_short(content, name.as_bytes())
        {
            (*open, *close, *colon) = (b'"', b'"', b':');
            self.len = self.len.wrapping_add(name.len()).wrapping_add(3);
            return;
        }
        self.str(name);
        self.byte(b':');
    }

    /// Writes `text` as a part of a JSON string, without quotes.
    ///
    /// It escapes the quotation mark, the backslash and the control characters U+0000 to U+001F
    /// (RFC 8259 §7), in the short form if there is one. It also escapes U+2028 and U+2029, because
    /// some readers end a line there.
    pub fn text_part(&mut self, text: &str) {
        self.content(text.as_bytes());
    }

    /// Writes a character as a piece of a string's content.
    pub(crate) fn char(&mut self, char: char) {
        let (mut utf8, mut length) = ([0; 4], 0);
        super::text::put_utf8(&mut utf8, &mut length, u32::from(char));
        self.content(utf8.get(..length).unwrap_or_default());
    }

    /// Writes a [`Message`] of any kind as a JSON string, with quotes.
    #[inline]
    pub fn message<M: Message + ?Sized>(&mut self, text: &M) {
        self.byte(b'"');
        text.write_escaped(self);
        self.byte(b'"');
    }

    /// Writes a number in decimal. On 32-bit processors without a divider it uses no division.
    pub fn u32(&mut self, value: u32) {
        let mut digits = [b'0'; 10];
        let start = fill_digits(&mut digits, value, div10_u32);
        self.raw(digits.get(start..).unwrap_or_default());
    }

    /// Writes a number in decimal.
    pub fn i32(&mut self, value: i32) {
        if value < 0 {
            self.byte(b'-');
        }
        self.u32(value.unsigned_abs());
    }

    /// Writes a number in decimal, without a 64-bit division on processors of 32 bits.
    pub fn u64(&mut self, value: u64) {
        if let Ok(small) = u32::try_from(value) {
            return self.u32(small);
        }
        let mut digits = [b'0'; 20];
        let start = fill_digits(&mut digits, value, div10_u64);
        self.raw(digits.get(start..).unwrap_or_default());
    }

    /// Writes a number in decimal, without a 64-bit division on processors of 32 bits.
    pub fn i64(&mut self, value: i64) {
        if value < 0 {
            self.byte(b'-');
        }
        self.u64(value.unsigned_abs());
    }

    /// Writes a size in decimal.
    #[cfg(target_pointer_width = "64")]
    pub fn usize(&mut self, value: usize) {
        self.u64(value as u64);
    }

    /// Writes a size in decimal.
    #[cfg(not(target_pointer_width = "64"))]
    #[allow(clippy::cast_possible_truncation, reason = "a pointer has at most 32 bits here")]
    pub fn usize(&mut self, value: usize) {
        self.u32(value as u32);
    }

    /// Writes a number in decimal.
    pub fn u128(&mut self, value: u128) {
        if let Ok(small) = u64::try_from(value) {
            return self.u64(small);
        }
        let mut digits = [b'0'; 39];
        let start = fill_digits(&mut digits, value, div10_u128);
        self.raw(digits.get(start..).unwrap_or_default());
    }

    /// Writes a number in decimal.
    pub fn i128(&mut self, value: i128) {
        if value < 0 {
            self.byte(b'-');
        }
        self.u128(value.unsigned_abs());
    }

    /// Writes `true` or `false`.
    pub fn bool(&mut self, value: bool) {
        self.raw(if value { b"true" } else { b"false" });
    }

    /// The number of bytes of the text so far. It is more than [`capacity`](Self::capacity) if the
    /// text does not fit.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been written yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of bytes that the text needs so far, whether they fit or not. It is the same as
    /// [`len`](Self::len).
    #[inline]
    pub fn needed(&self) -> usize {
        self.len
    }

    /// The size of the buffer, in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.buf.len()
    }

    /// Whether the text so far fits into the buffer.
    #[inline]
    pub fn fits(&self) -> bool {
        self.len <= self.buf.len()
    }

    /// Removes everything after the first `len` bytes, where `len` is an earlier [`Writer::len`]. A
    /// greater `len` changes nothing.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The text so far. It is empty if the text did not fit.
    #[inline]
    pub fn as_written(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or_default()
    }

    /// Writes the bytes at `start..end` of the text so far once more, unchanged or escaped for a
    /// JSON string.
    pub fn repeat(&mut self, start: usize, end: usize, escaped: bool) {
        for at in start..end {
            match self.buf.get(at).copied() {
                Some(byte @ (b'"' | b'\\')) if escaped => self.raw(&[b'\\', byte]),
                Some(b'\t') if escaped => self.raw(b"\\t"),
                Some(byte) => self.byte(byte),
                // It did not fit, and neither does this.
                None => self.byte(0),
            }
        }
    }

    /// The text so far, to be changed in place. It is empty if the text did not fit.
    #[inline]
    pub fn as_written_mut(&mut self) -> &mut [u8] {
        self.buf.get_mut(..self.len).unwrap_or_default()
    }

    /// Returns the whole text.
    ///
    /// # Errors
    /// The text did not fit. [`TooLarge`] has the exact size that it needs.
    #[inline]
    pub fn finish(self) -> Result<&'b mut [u8], TooLarge> {
        let too_large = self.too_large();
        self.buf.get_mut(..self.len).ok_or(too_large)
    }

    /// Checks whether the text so far fits, without ending it.
    ///
    /// # Errors
    /// The text did not fit. [`TooLarge`] has the size that it needs so far.
    #[inline]
    pub fn check(&self) -> Result<(), TooLarge> {
        if self.fits() { Ok(()) } else { Err(self.too_large()) }
    }

    fn too_large(&self) -> TooLarge {
        TooLarge { needed: self.len, capacity: self.buf.len() }
    }

    /// The next bytes, if that many fit.
    #[inline(always)]
    fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.buf.get_mut(self.len..)?.get_mut(..bytes)
    }

    /// Counts what did not fit. From here on nothing does: only a piece that passes the end gets
    /// here.
    #[cold]
    fn count(&mut self, bytes: usize) {
        self.len = self.len.saturating_add(bytes);
    }

    /// Writes the rest of a text, or of one of its characters. What does not fit is counted by the
    /// character, which takes its time and no further code.
    #[cfg(not(target_pointer_width = "64"))]
    #[inline(never)]
    fn content(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let plain = copy_plain(self.buf.get_mut(self.len..).unwrap_or_default(), rest);
            self.len = self.len.wrapping_add(plain);
            if plain == rest.len() {
                return;
            }
            rest = self.escape_first(rest.get(plain..).unwrap_or_default());
        }
    }

    /// Writes the rest of a text, or of one of its characters.
    #[cfg(target_pointer_width = "64")]
    fn content(&mut self, text: &[u8]) {
        // Without a call in it: no register is saved.
        if self.room(text.len()).is_some_and(|room| words::copy_short(room, text)) {
            self.len = self.len.wrapping_add(text.len());
        } else {
            self.long_content(text);
        }
    }

    #[cfg(target_pointer_width = "64")]
    #[inline(never)]
    fn long_content(&mut self, text: &[u8]) {
        let mut rest = text;
        // There is room, and nothing to escape.
        if let Some(room) = self.room(text.len()) {
            let plain = copy_plain(room, text);
            self.len = self.len.wrapping_add(plain);
            if plain == text.len() {
                return;
            }
            rest = text.get(plain..).unwrap_or_default();
        }
        self.escaped(rest);
    }

    /// Writes a text in which there is something to escape, or that may not fit.
    #[cfg(target_pointer_width = "64")]
    #[inline(never)]
    fn escaped(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let Some(room) = self.buf.get_mut(self.len..) else {
                return self.count(escaped_len(rest));
            };
            let plain = copy_plain(room, rest);
            self.len = self.len.wrapping_add(plain);
            rest = self.escape_first(rest.get(plain..).unwrap_or_default());
        }
    }

    /// Writes the first character of `rest`, escaped if it must be, or all up to the next that may
    /// have to be if it is beyond ASCII; returns what follows.
    fn escape_first<'t>(&mut self, rest: &'t [u8]) -> &'t [u8] {
        match rest {
            [] => rest,
            [0xE2, 0x80, last @ (0xA8 | 0xA9), tail @ ..] => {
                self.raw(if *last == 0xA8 { b"\\u2028" } else { b"\\u2029" });
                tail
            }
            [0x80..=0xFF, tail @ ..] => {
                let more = tail.iter().take_while(|byte| !byte.is_ascii() && **byte != 0xE2).count();
                let (foreign, tail) = rest.split_at_checked(more.wrapping_add(1)).unwrap_or_default();
                self.raw(foreign);
                tail
            }
            [first, tail @ ..] => {
                match short_escape(*first) {
                    Some(letter) => self.raw(&[b'\\', letter]),
                    None if *first < 0x20 => {
                        let low = *first & 0xF;
                        let low = if low < 10 { b'0' | low } else { low.wrapping_add(b'a' - 10) };
                        self.raw(&[b'\\', b'u', b'0', b'0', b'0' | (*first >> 4), low]);
                    }
                    None => self.byte(*first),
                }
                tail
            }
        }
    }
}

/// The error for a text that did not fit into its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// The size that the whole text needs, in bytes.
    pub needed: usize,
    /// The size of the memory, in bytes.
    pub capacity: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the text needs {} bytes, and {} fit", self.needed, self.capacity)
    }
}

impl core::error::Error for TooLarge {}

/// A text for a log line, an error or an output.
///
/// A `&str` needs no formatting code, nor, as a rule, does a [`format_args!`] without arguments.
///
/// ```
/// use rigline::json::write::{Message, Writer};
///
/// let mut buffer = [0; 32];
/// let mut out = Writer::new(&mut buffer);
/// format_args!("{}: {:?}", 7, "seven").write_escaped(&mut out);
/// assert_eq!(out.as_written(), br#"7: \"seven\""#);
/// ```
pub trait Message {
    /// Writes the text as a part of a JSON string: escaped, without quotes.
    fn write_escaped(&self, out: &mut Writer<'_>);
}

impl Message for str {
    #[inline]
    fn write_escaped(&self, out: &mut Writer<'_>) {
        out.text_part(self);
    }
}

/// Writes the pieces one after the other, as [`format_args!`] does, but without formatting code.
///
/// ```
/// use rigline::json::write::Writer;
///
/// let (rail, mut buffer) = ("3V3", [0; 32]);
/// let mut out = Writer::new(&mut buffer);
/// out.message(&["rail ", rail, " is up"]);
/// assert_eq!(out.as_written(), br#""rail 3V3 is up""#);
/// ```
impl Message for [&str] {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        for piece in self {
            out.text_part(piece);
        }
    }
}

/// Writes as the slice does.
impl<const N: usize> Message for [&str; N] {
    #[inline]
    fn write_escaped(&self, out: &mut Writer<'_>) {
        self.as_slice().write_escaped(out);
    }
}

impl Message for char {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        out.char(*self);
    }
}

impl Message for fmt::Arguments<'_> {
    /// Keeps the text that was written before a `Display` in it returned an error, because a cut
    /// text says more than none.
    #[inline]
    fn write_escaped(&self, out: &mut Writer<'_>) {
        match self.as_str() {
            Some(text) => out.text_part(text),
            None => {
                let _ = fmt::write(&mut Escaped(out), *self);
            }
        }
    }
}

impl Message for TooLarge {
    /// Writes the sentence of `Display` without formatting code.
    fn write_escaped(&self, out: &mut Writer<'_>) {
        out.raw(b"the text needs ");
        out.u64(self.needed as u64);
        out.raw(b" bytes, and ");
        out.u64(self.capacity as u64);
        out.raw(b" fit");
    }
}

#[cfg(feature = "alloc")]
impl Message for alloc::string::String {
    #[inline]
    fn write_escaped(&self, out: &mut Writer<'_>) {
        out.text_part(self);
    }
}

#[cfg(feature = "alloc")]
impl Message for alloc::borrow::Cow<'_, str> {
    #[inline]
    fn write_escaped(&self, out: &mut Writer<'_>) {
        out.text_part(self);
    }
}

impl<M: Message + ?Sized> Message for &M {
    #[inline]
    fn write_escaped(&self, out: &mut Writer<'_>) {
        (**self).write_escaped(out);
    }
}

/// Writes formatted text as a part of a JSON string: escaped, without quotes. It never returns an
/// error.
///
/// ```
/// use core::fmt::Write;
/// use rigline::json::write::{Escaped, Writer};
///
/// let mut buffer = [0; 32];
/// let mut out = Writer::new(&mut buffer);
/// write!(Escaped(&mut out), "a\t{}", 1).unwrap();
/// assert_eq!(out.as_written(), br"a\t1");
/// ```
#[derive(Debug)]
pub struct Escaped<'w, 'b>(
    /// The writer that gets the text.
    pub &'w mut Writer<'b>,
);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.text_part(text);
        Ok(())
    }
}

/// Whether a string's byte may need an escape: the three bytes of RFC 8259 §7, and the lead of
/// U+2028 and U+2029.
#[cfg(target_pointer_width = "64")]
#[inline]
fn is_special(byte: u8) -> bool {
    // `^ 2` swaps the space with the quotation mark, and so puts the latter next to the control
    // characters.
    byte ^ 2 < 0x21 || byte == b'\\' || byte == 0xE2
}

fn short_escape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x09 => b't',
        0x0A => b'n',
        0x0C => b'f',
        0x0D => b'r',
        _ => return None,
    })
}

/// How many bytes `text` takes when it is escaped.
#[cfg(target_pointer_width = "64")]
fn escaped_len(text: &[u8]) -> usize {
    let mut len = text.len();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        if is_special(*first) {
            let more: usize = match rest {
                [0xE2, 0x80, 0xA8 | 0xA9, ..] => 3,
                [0xE2, ..] => 0,
                _ if short_escape(*first).is_some() => 1,
                _ => 5,
            };
            len = len.saturating_add(more);
        }
        rest = tail;
    }
    len
}

/// Copies the bytes of `from` that need no second look (they are ASCII, and need no escape), up to
/// the first that may or to the end of `to`; returns how many. What `to` holds after those is not
/// said.
#[cfg(any(target_pointer_width = "64", target_arch = "wasm32"))]
#[inline(always)]
fn copy_plain(to: &mut [u8], from: &[u8]) -> usize {
    match to.get_mut(..from.len()) {
        Some(to) => words::copy_plain(to, from),
        None => copy_plain_bytes(to, from),
    }
}

/// As above. A processor that loads a word from an odd address byte by byte gains nothing by words.
#[cfg(not(any(target_pointer_width = "64", target_arch = "wasm32")))]
#[inline(never)]
fn copy_plain(to: &mut [u8], from: &[u8]) -> usize {
    copy_plain_bytes(to, from)
}

fn copy_plain_bytes(to: &mut [u8], from: &[u8]) -> usize {
    let mut done = 0usize;
    for (slot, byte) in to.iter_mut().zip(from) {
        if !is_plain(*byte) {
            break;
        }
        *slot = *byte;
        done = done.wrapping_add(1);
    }
    done
}

/// Copies `from` to `to`, which is of the same length.
#[cfg(target_pointer_width = "64")]
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

/// Copies `from` to `to`, which is of the same length. A reply is made of short pieces, and
/// `memcpy` takes longer to begin than to copy one. Each byte is written out, since a loop would
/// become a call of it.
#[cfg(not(target_pointer_width = "64"))]
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    let (slots, slots_tail) = to.as_chunks_mut::<2>();
    let (pairs, tail) = from.as_chunks::<2>();
    for ([to_a, to_b], [a, b]) in slots.iter_mut().zip(pairs) {
        *to_a = *a;
        *to_b = *b;
    }
    if let ([to_a], [a]) = (slots_tail, tail) {
        *to_a = *a;
    }
}

/// Eight bytes at a time, in a general register.
#[cfg(any(target_pointer_width = "64", target_arch = "wasm32"))]
mod words {
    const ONES: u64 = u64::MAX / 0xFF;
    const HIGH: u64 = ONES << 7;
    /// Plain bytes in the place of those that a text of up to four does not have.
    const SPACES: u64 = 0x2020_2020 << 32;

    /// `to` and `from` are of the same length.
    #[inline(always)]
    pub(super) fn copy_plain(to: &mut [u8], from: &[u8]) -> usize {
        if copy_short(to, from) { from.len() } else { copy_words(to, from) }
    }

    #[inline(never)]
    fn copy_words(to: &mut [u8], from: &[u8]) -> usize {
        let (slots, _) = to.as_chunks_mut::<8>();
        let (words, from_tail) = from.as_chunks::<8>();
        let mut done = 0usize;
        for (slot, word) in slots.iter_mut().zip(words) {
            *slot = *word;
            let found = specials(u64::from_le_bytes(*word));
            if found != 0 {
                return done.wrapping_add(first(found));
            }
            done = done.wrapping_add(8);
        }
        if from_tail.is_empty() {
            return done;
        }
        // The last whole word overlaps one that has been copied, and whose bytes are plain.
        if let (Some(slot), Some(word)) = (to.last_chunk_mut::<8>(), from.last_chunk::<8>()) {
            *slot = *word;
            let found = specials(u64::from_le_bytes(*word));
            let plain = if found == 0 { 8 } else { first(found) };
            return from.len().wrapping_sub(8).wrapping_add(plain);
        }
        super::copy_plain_bytes(to, from)
    }

    /// Copies a plain text of 4 to 16 bytes, as most are: two words, which may overlap, hold it
    /// whole. Returns false for any other.
    #[inline(always)]
    pub(super) fn copy_short(to: &mut [u8], from: &[u8]) -> bool {
        match from.len() {
            8..=16 => {
                if let (Some(first), Some(last)) = (from.first_chunk::<8>(), from.last_chunk::<8>())
                    && specials(u64::from_le_bytes(*first)) | specials(u64::from_le_bytes(*last)) == 0
                {
                    if let Some(slot) = to.first_chunk_mut() {
                        *slot = *first;
                    }
                    if let Some(slot) = to.last_chunk_mut() {
                        *slot = *last;
                    }
                    return true;
                }
            }
            4..=7 => {
                if let (Some(first), Some(last)) = (from.first_chunk::<4>(), from.last_chunk::<4>())
                    && specials(u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32) == 0
                {
                    if let Some(slot) = to.first_chunk_mut() {
                        *slot = *first;
                    }
                    if let Some(slot) = to.last_chunk_mut() {
                        *slot = *last;
                    }
                    return true;
                }
            }
            2..=3 => {
                if let (Some(first), Some(last)) = (from.first_chunk::<2>(), from.last_chunk::<2>())
                    && specials(
                        u64::from(u16::from_le_bytes(*first)) | u64::from(u16::from_le_bytes(*last)) << 16 | SPACES,
                    ) == 0
                {
                    if let Some(slot) = to.first_chunk_mut() {
                        *slot = *first;
                    }
                    if let Some(slot) = to.last_chunk_mut() {
                        *slot = *last;
                    }
                    return true;
                }
            }
            _ => {}
        }
        false
    }

    /// The high bit of the first byte that needs a second look is set, if there is one; those of
    /// later bytes may be wrong.
    #[inline]
    fn specials(word: u64) -> u64 {
        // A byte below the one subtracted borrows; no other byte does, so nothing before the first
        // hit is a false one.
        let quote_or_control = (word ^ (ONES * 2)).wrapping_sub(ONES * 0x21);
        let backslash = (word ^ (ONES * 0x5C)).wrapping_sub(ONES);
        (quote_or_control | backslash | word) & HIGH
    }

    #[inline]
    fn first(found: u64) -> usize {
        (found.trailing_zeros() / 8) as usize
    }
}

/// Fills `digits` from its end and returns where the number starts. `digits` has room for every
/// number of the type, and holds zeros (the digit).
#[inline]
fn fill_digits<T: Copy + PartialEq + Default>(digits: &mut [u8], value: T, div10: fn(T) -> (T, u8)) -> usize {
    let mut start = digits.len();
    let mut left = value;
    for slot in digits.iter_mut().rev() {
        let (quotient, digit) = div10(left);
        *slot = b'0' | digit;
        start = start.wrapping_sub(1);
        left = quotient;
        if left == T::default() {
            break;
        }
    }
    start
}

/// Division by ten: by the compiler's multiplication where the product of two registers is one
/// instruction.
#[cfg(target_pointer_width = "64")]
macro_rules! div10_by_multiplying {
    ($name:ident, $int:ty) => {
        #[inline]
        #[allow(clippy::cast_possible_truncation)]
        pub(super) fn $name(value: $int) -> ($int, u8) {
            (value / 10, (value % 10) as u8)
        }
    };
}

/// Division by ten by shifts: four fifths are 0.75 (1 + 2^-4) (1 + 2^-8) (1 + 2^-16) ..., cut short
/// by less than eight, so that the eighth of it is the quotient or one less (Hacker's Delight,
/// 10-17).
macro_rules! div10_by_shifting {
    ($name:ident, $int:ty, $($more:literal)*) => {
        #[inline]
        #[allow(clippy::cast_possible_truncation)]
        pub(super) fn $name(value: $int) -> ($int, u8) {
            let mut fifths = (value >> 1).wrapping_add(value >> 2);
            fifths = fifths.wrapping_add(fifths >> 4);
            fifths = fifths.wrapping_add(fifths >> 8);
            fifths = fifths.wrapping_add(fifths >> 16);
            $(fifths = fifths.wrapping_add(fifths >> $more);)*
            let quotient = fifths >> 3;
            // The difference is below 20, so its low byte is all of it.
            let rest = (value as u8).wrapping_sub((quotient as u8).wrapping_mul(10));
            if rest < 10 { (quotient, rest) } else { (quotient.wrapping_add(1), rest.wrapping_sub(10)) }
        }
    };
}

#[cfg(target_pointer_width = "64")]
div10_by_multiplying!(div10_u32, u32);
#[cfg(target_pointer_width = "64")]
div10_by_multiplying!(div10_u64, u64);
#[cfg(not(target_pointer_width = "64"))]
div10_by_shifting!(div10_u32, u32,);
#[cfg(not(target_pointer_width = "64"))]
div10_by_shifting!(div10_u64, u64, 32);
div10_by_shifting!(div10_u128, u128, 32 64);

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};
    use std::vec::Vec;
    use std::{format, vec};

    fn written(write: impl Fn(&mut Writer<'_>)) -> String {
        let mut measure = Writer::new(&mut []);
        write(&mut measure);
        let mut buffer = vec![0; measure.needed()];
        let mut out = Writer::new(&mut buffer);
        write(&mut out);
        String::from_utf8(out.finish().unwrap().to_vec()).unwrap()
    }

    /// The output of `serde_json`, with the two line separators escaped.
    fn reference(text: &str) -> String {
        serde_json::to_string(text).unwrap().replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
    }

    #[test]
    fn escapes_what_rfc_8259_says_and_the_two_line_separators() {
        for (text, json) in [
            ("", r#""""#),
            ("plain", r#""plain""#),
            ("\"\\/", r#""\"\\/""#),
            ("\u{8}\u{c}\n\r\t", r#""\b\f\n\r\t""#),
            ("\0\u{1}\u{b}\u{f}\u{10}\u{1a}\u{1f} ", r#""\u0000\u0001\u000b\u000f\u0010\u001a\u001f ""#),
            ("\u{7f}\u{80}\u{a8}", "\"\u{7f}\u{80}\u{a8}\""),
            ("\u{2027}\u{2028}\u{2029}\u{202a}", "\"\u{2027}\\u2028\\u2029\u{202a}\""),
            ("€ ’…→ é 🚀 \u{20a8}\u{2428}", "\"€ ’…→ é 🚀 \u{20a8}\u{2428}\""),
        ] {
            assert_eq!(written(|out| out.str(text)), json, "{text:?}");
        }
    }

    #[test]
    fn each_special_character_is_found_at_each_place() {
        for special in ['"', '\\', '\n', '\0', '\u{1f}', '\u{2028}', '\u{2029}', '€', '\u{7f}', 'é', '!', ' '] {
            for len in 0..40 {
                for at in 0..=len {
                    let mut text: String = "#".repeat(len);
                    text.insert(at, special);
                    assert_eq!(written(|out| out.str(&text)), reference(&text), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn each_limit_is_exact() {
        let text = "a \"quoted\" line\n\u{1}\u{2028} and some more plain text €";
        let whole = reference(text);
        for capacity in 0..whole.len() + 9 {
            let mut buffer = vec![b'#'; whole.len() + 16];
            let (room, beyond) = buffer.split_at_mut(capacity);
            let mut out = Writer::new(room);
            out.str(text);
            assert_eq!(out.needed(), whole.len());
            assert_eq!(out.fits(), capacity >= whole.len());
            assert!(beyond.iter().all(|byte| *byte == b'#'), "wrote beyond {capacity}");
            match out.finish() {
                Ok(json) => assert_eq!(json, whole.as_bytes()),
                Err(fault) => assert_eq!(fault, TooLarge { needed: whole.len(), capacity }),
            }
        }
    }

    #[test]
    fn after_a_piece_that_does_not_fit_no_smaller_one_is_written() {
        let mut buffer = *b"....";
        let mut out = Writer::new(&mut buffer);
        out.raw(b"ab");
        out.raw(b"cde");
        out.byte(b'f');
        out.str("");
        assert_eq!((out.needed(), out.fits(), out.as_written()), (8, false, &b""[..]));
        assert_eq!(out.check(), Err(TooLarge { needed: 8, capacity: 4 }));
        out.truncate(2);
        assert_eq!(out.as_written(), b"ab");
        out.truncate(3);
        assert_eq!(out.len(), 2);
        out.as_written_mut()[0] = b'A';
        assert_eq!(buffer, *b"Ab..");
    }

    #[test]
    fn a_writer_says_how_much_it_has_written_and_can_write() {
        let mut buffer = [0; 3];
        let mut out = Writer::new(&mut buffer);
        assert_eq!((out.is_empty(), out.len(), out.capacity(), out.fits(), out.check()), (true, 0, 3, true, Ok(())));
        out.raw(b"abc");
        assert_eq!((out.is_empty(), out.len(), out.capacity(), out.fits(), out.check()), (false, 3, 3, true, Ok(())));
        out.byte(b'd');
        assert_eq!((out.is_empty(), out.len(), out.capacity(), out.fits()), (false, 4, 3, false));
        assert_eq!(out.check(), Err(TooLarge { needed: 4, capacity: 3 }));
    }

    #[test]
    fn what_is_written_once_more_is_escaped_if_it_becomes_a_part_of_a_string() {
        let twice = |escaped: bool| {
            let mut buffer = [0; 40];
            let mut out = Writer::new(&mut buffer);
            out.raw(b"{\"a\":\t\"\\n\"}");
            out.repeat(1, 10, escaped);
            String::from_utf8(out.finish().unwrap().to_vec()).unwrap()
        };
        assert_eq!(twice(false), "{\"a\":\t\"\\n\"}\"a\":\t\"\\n\"");
        assert_eq!(twice(true), "{\"a\":\t\"\\n\"}\\\"a\\\":\\t\\\"\\\\n\\\"");
        // What did not fit is counted.
        let mut out = Writer::new(&mut []);
        out.raw(b"abc");
        out.repeat(0, 3, true);
        assert_eq!((out.needed(), out.fits()), (6, false));
    }

    #[test]
    fn a_count_beyond_all_memory_stays_at_the_top() {
        let mut out = Writer::new(&mut []);
        out.count(usize::MAX);
        out.byte(b'x');
        out.raw(b"xyz");
        out.str("\n");
        assert_eq!((out.needed(), out.fits()), (usize::MAX, false));
    }

    #[test]
    fn numbers_at_the_ends_of_their_types() {
        assert_eq!(written(|out| out.u32(0)), "0");
        assert_eq!(written(|out| out.u32(u32::MAX)), u32::MAX.to_string());
        assert_eq!(written(|out| out.i32(i32::MIN)), i32::MIN.to_string());
        assert_eq!(written(|out| out.u64(u64::MAX)), u64::MAX.to_string());
        assert_eq!(written(|out| out.i64(i64::MIN)), i64::MIN.to_string());
        assert_eq!(written(|out| out.u128(u128::MAX)), u128::MAX.to_string());
        assert_eq!(written(|out| out.i128(i128::MIN)), i128::MIN.to_string());
        assert_eq!(written(|out| out.bool(true)) + &written(|out| out.bool(false)), "truefalse");
    }

    // The forms that this machine does not choose by itself.
    div10_by_shifting!(shifted_u32, u32,);
    div10_by_shifting!(shifted_u64, u64, 32);

    #[test]
    fn dividing_by_shifts_is_right_around_every_power_of_two_and_of_ten() {
        let powers = (0..128).map(|bit| 1u128 << bit).chain((0..39).map(|digits| 10u128.pow(digits)));
        for power in powers.chain([u128::MAX - 300, u128::from(u64::MAX) - 300, u128::from(u32::MAX) - 300]) {
            for value in power.saturating_sub(300)..power.saturating_add(300) {
                assert_eq!(div10_u128(value), (value / 10, (value % 10) as u8));
                let low = value as u64;
                assert_eq!(shifted_u64(low), (low / 10, (low % 10) as u8));
                let low = value as u32;
                assert_eq!(shifted_u32(low), (low / 10, (low % 10) as u8));
            }
        }
    }

    #[test]
    fn messages_of_every_kind() {
        let message = |text: &dyn Message| written(|out| out.message(text));
        assert_eq!(message(&"a\"b"), r#""a\"b""#);
        assert_eq!(message(&&"a\nb"), r#""a\nb""#);
        assert_eq!(message(&'"'), r#""\"""#);
        assert_eq!(message(&'\u{2028}'), r#""\u2028""#);
        assert_eq!(message(&format_args!("plain\t")), r#""plain\t""#);
        assert_eq!(message(&format_args!("{:>3}|{:?}", 7, "x\n")), r#""  7|\"x\\n\"""#);
        let fault = TooLarge { needed: 100, capacity: 64 };
        assert_eq!(message(&fault), "\"the text needs 100 bytes, and 64 fit\"");
        assert_eq!(message(&fault), format!("\"{fault}\""));
        #[cfg(feature = "alloc")]
        {
            assert_eq!(message(&String::from("a\\b")), r#""a\\b""#);
            assert_eq!(message(&alloc::borrow::Cow::Borrowed("é")), "\"é\"");
        }
    }

    proptest! {
        #[test]
        fn any_text_reads_back_equal(text: String) {
            let json = written(|out| out.str(&text));
            prop_assert_eq!(&json, &reference(&text));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }

        #[test]
        fn words_and_bytes_find_the_same(text in "[ -~]{0,20}[\u{0}-\u{3000}]{0,3}[ -~]{0,20}") {
            let (mut by_bytes, mut chosen) = (vec![0; text.len()], vec![0; text.len()]);
            let plain = copy_plain_bytes(&mut by_bytes, text.as_bytes());
            prop_assert_eq!(copy_plain(&mut chosen, text.as_bytes()), plain);
            prop_assert_eq!(&by_bytes[..plain], &chosen[..plain]);
            prop_assert_eq!(&chosen[..plain], &text.as_bytes()[..plain]);
        }

        #[test]
        fn any_number_is_written_in_decimal(wide: u128, shift in 0u32..128) {
            let value = wide >> shift;
            prop_assert_eq!(written(|out| out.u128(value)), value.to_string());
            prop_assert_eq!(written(|out| out.i128(value as i128)), (value as i128).to_string());
            prop_assert_eq!(written(|out| out.u64(value as u64)), (value as u64).to_string());
            prop_assert_eq!(written(|out| out.i64(value as i64)), (value as i64).to_string());
            prop_assert_eq!(written(|out| out.u32(value as u32)), (value as u32).to_string());
            prop_assert_eq!(written(|out| out.i32(value as i32)), (value as i32).to_string());
            let low = value as u32;
            prop_assert_eq!(shifted_u32(low), (low / 10, (low % 10) as u8));
        }

        #[test]
        fn a_measure_is_the_size(pieces: Vec<String>, capacity in 0usize..80) {
            let whole = written(|out| pieces.iter().for_each(|piece| out.str(piece)));
            let mut buffer = vec![0; capacity];
            let mut out = Writer::new(&mut buffer);
            for piece in &pieces {
                out.str(piece);
            }
            prop_assert_eq!(out.needed(), whole.len());
            prop_assert_eq!(out.finish().is_ok(), whole.len() <= capacity);
        }
    }
}
