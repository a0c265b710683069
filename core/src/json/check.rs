//! The checker: one pass over a line, no recursion, nothing kept but the spans that were asked for.
//!
//! It accepts exactly the texts of RFC 8259 (in UTF-8, §8.1) whose nesting stays within the depth limit (§9 allows one).
//! Lone surrogates in `\u` escapes are grammatical (§7, §8.2) and pass; what decodes them decides.

use core::fmt;

/// How many containers may be open at once, unless said otherwise: the envelope's own count too.
pub const DEPTH: usize = 32 * DEPTH_WORDS;
const DEPTH_WORDS: usize = 4;

/// Checks that `text` is one JSON text and nothing else, with at most [`DEPTH`] containers open at once.
///
/// ```
/// use rigline::json::check::{check, SyntaxErrorKind};
/// assert!(check(br#"{"volts": [3.300, null]}"#).is_ok());
/// let error = check(b"[1, 2,]").unwrap_err();
/// assert_eq!((error.kind, error.offset), (SyntaxErrorKind::UnexpectedByte, 6));
/// ```
pub fn check(text: &[u8]) -> Result<(), SyntaxError> {
    check_to_depth::<DEPTH_WORDS>(text)
}

/// [`check`] with a depth limit of `32 * WORDS`; it costs `4 * WORDS` bytes of stack and no more at any input.
pub fn check_to_depth<const WORDS: usize>(text: &[u8]) -> Result<(), SyntaxError> {
    let mut stack = [0; WORDS];
    let mut scanner = Scanner::new(text, &mut stack);
    let end = scanner.value(0, 0)?;
    scanner.end(end)
}

/// Why a text is not JSON, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SyntaxError {
    /// What was wrong.
    pub kind: SyntaxErrorKind,
    /// Offset, in bytes from the start of the text, of the byte that could not stand there (the text's length at its end).
    pub offset: usize,
}

/// What was wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SyntaxErrorKind {
    /// A byte that cannot stand there.
    UnexpectedByte,
    /// The text ended inside a value: cut off, or one message spread over several lines.
    UnexpectedEnd,
    /// Something follows after the value.
    TrailingData,
    /// A raw control character (below U+0020) in a string; it must be escaped (RFC 8259 §7).
    ControlCharacter,
    /// An escape that RFC 8259 §7 does not have.
    BadEscape,
    /// Bytes that are not UTF-8 (RFC 8259 §8.1).
    NotUtf8,
    /// A number that RFC 8259 §6 does not have, such as `01`, `1.`, `+1`, `NaN`.
    BadNumber,
    /// More containers open at once than the depth limit.
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// An empty text.
    Empty,
}

impl fmt::Display for SyntaxErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        if let Self::TooDeep { limit } = self {
            write!(f, " {limit}")?;
        }
        Ok(())
    }
}

impl SyntaxErrorKind {
    /// The sentence that names the fault, without numbers.
    pub const fn text(&self) -> &'static str {
        match self {
            Self::UnexpectedByte => "unexpected byte",
            Self::UnexpectedEnd => "the line ends inside a value; a message must be complete and on one line",
            Self::TrailingData => "data after the value",
            Self::ControlCharacter => "unescaped control character in a string",
            Self::BadEscape => "invalid escape in a string",
            Self::NotUtf8 => "not UTF-8",
            Self::BadNumber => "invalid number",
            Self::TooDeep { .. } => "nesting deeper than",
            Self::Empty => "empty text",
        }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl core::error::Error for SyntaxError {}

/// Where a member's value stands in its line: `start..end` in bytes. A value never starts at offset 0 of a line that has
/// members, so the empty span at 0 stands for an absent member, and takes nothing from the line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn is_absent(self) -> bool {
        self.end == 0
    }

    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// The members of one object whose values are wanted, in the order a peer is likely to send them.
pub(crate) struct Level {
    pub(crate) keys: &'static [Key],
}

/// One wanted member.
pub(crate) struct Key {
    /// The name and its closing quote: no name is a prefix of another that way.
    quoted: &'static [u8],
    /// The first eight bytes of `quoted` as one little-endian word, and which of them count.
    head: u64,
    mask: u64,
    slot: u8,
    child: Option<&'static Level>,
}

impl Key {
    /// `quoted` is the name with its closing quote. `slot` is where its span goes.
    pub(crate) const fn new(quoted: &'static str, slot: usize, child: Option<&'static Level>) -> Self {
        let quoted = quoted.as_bytes();
        let (mut head, mut mask, mut i) = (0, 0, 0);
        while i < 8 && i < quoted.len() {
            #[allow(clippy::indexing_slicing, reason = "in bounds by the loop's condition")]
            let byte = quoted[i] as u64;
            head |= byte << (8 * i);
            mask |= 0xFF << (8 * i);
            i += 1;
        }
        #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
        Self { quoted, head, mask, slot: slot as u8, child }
    }

    #[inline(always)]
    fn stands_at(&self, rest: &[u8]) -> bool {
        if cfg!(target_pointer_width = "64")
            && let Some(word) = rest.first_chunk::<8>()
        {
            return (u64::from_le_bytes(*word) ^ self.head) & self.mask == 0
                && (self.quoted.len() <= 8 || rest.starts_with(self.quoted));
        }
        starts_with(rest, self.quoted)
    }

    fn name(&self) -> &'static [u8] {
        self.quoted.split_last().map_or(&[], |(_, name)| name)
    }
}

/// `starts_with` as a loop: on a Cortex-M0+ cheaper than the call it would become.
#[inline(always)]
fn starts_with(text: &[u8], prefix: &[u8]) -> bool {
    text.len() >= prefix.len() && text.iter().zip(prefix).all(|(a, b)| a == b)
}

/// Checks a whole line and notes where the members of `level`, and of the levels below it, stand. Of a name that occurs
/// twice the last counts, as in the views.
pub(crate) fn scan(text: &[u8], level: &'static Level, slots: &mut [Span]) -> Result<(), SyntaxError> {
    let mut stack = [0; DEPTH_WORDS];
    let mut scanner = Scanner::new(text, &mut stack);
    let start = scanner.space(0);
    let end = match text.get(start) {
        Some(b'{') => scanner.object(start + 1, 1, level, slots)?,
        _ => scanner.value(start, 0)?,
    };
    scanner.end(end)
}

struct Scanner<'t> {
    text: &'t [u8],
    /// One bit for each open container: whether the one around it is an object.
    stack: &'t mut [u32],
}

type Result<T, E = SyntaxError> = core::result::Result<T, E>;

impl<'t> Scanner<'t> {
    fn new(text: &'t [u8], stack: &'t mut [u32]) -> Self {
        Self { text, stack }
    }

    /// The members of a watched object whose brace ends just before `pos`; gives the position after its closing brace.
    /// Recursion goes as deep as the tables of levels do, whatever the input.
    fn object(&mut self, mut pos: usize, depth: usize, level: &'static Level, slots: &mut [Span]) -> Result<usize> {
        let mut expected = level.keys;
        pos = self.space(pos);
        if self.text.get(pos) == Some(&b'}') {
            return Ok(pos + 1);
        }
        loop {
            if self.text.get(pos) != Some(&b'"') {
                return self.unexpected(pos);
            }
            pos += 1;
            let (key, after_key) = self.key(pos, level, &mut expected)?;
            pos = self.colon(after_key)?;
            let start = pos;
            match key {
                Some(Key { child: Some(child), slot, .. }) if self.text.get(pos) == Some(&b'{') => {
                    if slots.get(usize::from(*slot)).is_some_and(|span| !span.is_absent()) {
                        clear(child, slots);
                    }
                    pos = self.object(pos + 1, depth + 1, child, slots)?;
                }
                _ => pos = self.value(pos, depth)?,
            }
            if let Some(key) = key {
                if let Some(span) = slots.get_mut(usize::from(key.slot))
                    && let (Some(child), false, true) =
                        (key.child, span.is_absent(), self.text.get(start) != Some(&b'{'))
                {
                    clear(child, slots);
                }
                if let Some(span) = slots.get_mut(usize::from(key.slot)) {
                    #[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
                    {
                        *span = Span { start: start as u32, end: pos as u32 };
                    }
                }
            }
            pos = self.space(pos);
            match self.text.get(pos) {
                Some(b',') => pos = self.space(pos + 1),
                Some(b'}') => return Ok(pos + 1),
                _ => return self.unexpected(pos),
            }
        }
    }

    /// Which of the level's members the name at `pos` is, and the position after its closing quote. `expected` starts with
    /// the member that is likely to come next.
    #[inline(always)]
    fn key(
        &mut self,
        pos: usize,
        level: &'static Level,
        expected: &mut &'static [Key],
    ) -> Result<(Option<&'static Key>, usize)> {
        let rest = self.text.get(pos..).unwrap_or_default();
        if let Some((first, others)) = expected.split_first()
            && first.stands_at(rest)
        {
            *expected = others;
            return Ok((Some(first), pos + first.quoted.len()));
        }
        self.other_key(pos, rest, level, expected)
    }

    #[inline(never)]
    fn other_key(
        &mut self,
        pos: usize,
        rest: &[u8],
        level: &'static Level,
        expected: &mut &'static [Key],
    ) -> Result<(Option<&'static Key>, usize)> {
        let mut after = level.keys;
        while let Some((key, others)) = after.split_first() {
            if key.stands_at(rest) {
                *expected = others;
                return Ok((Some(key), pos + key.quoted.len()));
            }
            after = others;
        }
        let end = self.string(pos)?;
        let name = self.text.get(pos..end - 1).unwrap_or_default();
        if !name.contains(&b'\\') {
            return Ok((None, end));
        }
        // RFC 8259 §8.3: names are compared after their escapes are decoded.
        let name = super::view::Text::of_checked(name);
        Ok((level.keys.iter().find(|key| name.is(key.name())), end))
    }

    /// Skips any value: the tight loop. `depth` containers are open around it.
    fn value(&mut self, mut pos: usize, depth: usize) -> Result<usize> {
        let outside = depth;
        let mut depth = depth;
        let mut in_object = false;
        loop {
            // A value starts here.
            pos = self.space(pos);
            let opened = match self.text.get(pos) {
                Some(b'"') => {
                    pos = self.string(pos + 1)?;
                    false
                }
                Some(&open @ (b'{' | b'[')) => {
                    self.push(pos, depth, in_object)?;
                    depth += 1;
                    in_object = open == b'{';
                    pos = self.space(pos + 1);
                    !matches!((self.text.get(pos), in_object), (Some(b'}'), true) | (Some(b']'), false))
                }
                Some(b'-' | b'0'..=b'9') => {
                    pos = self.number(pos)?;
                    false
                }
                Some(b't') => {
                    pos = self.literal(pos, b"true")?;
                    false
                }
                Some(b'f') => {
                    pos = self.literal(pos, b"false")?;
                    false
                }
                Some(b'n') => {
                    pos = self.literal(pos, b"null")?;
                    false
                }
                Some(b'+' | b'.' | b'N' | b'I') => return fault(SyntaxErrorKind::BadNumber, pos),
                _ => return self.unexpected(pos),
            };
            if !opened {
                // A value has ended, or an empty container is about to.
                loop {
                    if depth == outside {
                        return Ok(pos);
                    }
                    pos = self.space(pos);
                    match (self.text.get(pos), in_object) {
                        (Some(b','), _) => {
                            pos = self.space(pos + 1);
                            break;
                        }
                        (Some(b'}'), true) | (Some(b']'), false) => {
                            pos += 1;
                            depth -= 1;
                            in_object = self.pop(depth);
                        }
                        _ => return self.unexpected(pos),
                    }
                }
            }
            if in_object {
                if self.text.get(pos) != Some(&b'"') {
                    return self.unexpected(pos);
                }
                pos = self.string(pos + 1)?;
                pos = self.colon(pos)?;
            }
        }
    }

    fn push(&mut self, pos: usize, depth: usize, in_object: bool) -> Result<()> {
        let limit = self.stack.len() * 32;
        let Some(word) = self.stack.get_mut(depth / 32) else {
            return fault(SyntaxErrorKind::TooDeep { limit }, pos);
        };
        let bit = 1 << (depth % 32);
        if in_object {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        Ok(())
    }

    fn pop(&self, depth: usize) -> bool {
        self.stack.get(depth / 32).is_some_and(|word| word >> (depth % 32) & 1 == 1)
    }

    /// White space (RFC 8259 §2).
    #[inline(always)]
    fn space(&self, mut pos: usize) -> usize {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(pos) {
            pos += 1;
        }
        pos
    }

    #[inline(always)]
    fn colon(&self, mut pos: usize) -> Result<usize> {
        if self.text.get(pos) != Some(&b':') {
            pos = self.space(pos);
            if self.text.get(pos) != Some(&b':') {
                return self.unexpected(pos);
            }
        }
        Ok(self.space(pos + 1))
    }

    fn literal(&self, pos: usize, word: &'static [u8]) -> Result<usize> {
        let rest = self.text.get(pos..).unwrap_or_default();
        if starts_with(rest, word) {
            return Ok(pos + word.len());
        }
        let same = rest.iter().zip(word).take_while(|(a, b)| a == b).count();
        self.unexpected(pos + same)
    }

    /// `number = [ "-" ] int [ "." 1*DIGIT ] [ ( "e" / "E" ) [ "-" / "+" ] 1*DIGIT ]`, `int = "0" / ( digit1-9 *DIGIT )`
    /// (RFC 8259 §6).
    fn number(&self, mut pos: usize) -> Result<usize> {
        if self.text.get(pos) == Some(&b'-') {
            pos += 1;
        }
        pos = match self.text.get(pos) {
            Some(b'0') => pos + 1,
            _ => self.digits(pos)?,
        };
        match self.text.get(pos) {
            Some(b'.') => pos = self.digits(pos + 1)?,
            Some(b'0'..=b'9' | b'x' | b'X') => return fault(SyntaxErrorKind::BadNumber, pos),
            _ => {}
        }
        if let Some(b'e' | b'E') = self.text.get(pos) {
            pos += 1;
            if let Some(b'+' | b'-') = self.text.get(pos) {
                pos += 1;
            }
            pos = self.digits(pos)?;
        }
        Ok(pos)
    }

    fn digits(&self, from: usize) -> Result<usize> {
        let mut pos = from;
        while let Some(b'0'..=b'9') = self.text.get(pos) {
            pos += 1;
        }
        if pos > from {
            return Ok(pos);
        }
        fault(if pos < self.text.len() { SyntaxErrorKind::BadNumber } else { SyntaxErrorKind::UnexpectedEnd }, pos)
    }

    /// The rest of a string whose opening quote ends just before `pos`; gives the position after its closing quote.
    #[inline(always)]
    fn string(&mut self, mut pos: usize) -> Result<usize> {
        loop {
            pos = self.plain(pos);
            match self.text.get(pos) {
                Some(b'"') => return Ok(pos + 1),
                _ => pos = self.special(pos)?,
            }
        }
    }

    /// Skips the bytes of a string that need no second look.
    #[cfg(target_pointer_width = "64")]
    #[inline(always)]
    fn plain(&self, mut pos: usize) -> usize {
        while let Some(word) = self.text.get(pos..).and_then(|rest| rest.first_chunk::<8>()) {
            let special = special_bytes(u64::from_le_bytes(*word));
            if special != 0 {
                return pos + (special.trailing_zeros() / 8) as usize;
            }
            pos += 8;
        }
        while let Some(&byte) = self.text.get(pos) {
            if !is_plain(byte) {
                break;
            }
            pos += 1;
        }
        pos
    }

    #[cfg(not(target_pointer_width = "64"))]
    #[inline(always)]
    fn plain(&self, mut pos: usize) -> usize {
        // Four table look-ups a turn: what a Cortex-M0+ does fastest.
        while let Some([a, b, c, d]) = self.text.get(pos..).and_then(|rest| rest.first_chunk::<4>()) {
            if !is_plain(*a) {
                return pos;
            }
            if !is_plain(*b) {
                return pos + 1;
            }
            if !is_plain(*c) {
                return pos + 2;
            }
            if !is_plain(*d) {
                return pos + 3;
            }
            pos += 4;
        }
        while let Some(&byte) = self.text.get(pos) {
            if !is_plain(byte) {
                break;
            }
            pos += 1;
        }
        pos
    }

    /// An escape, a character beyond ASCII, or a fault, at `pos` in a string; gives the position after it.
    #[inline(never)]
    fn special(&mut self, pos: usize) -> Result<usize> {
        match self.text.get(pos) {
            None => fault(SyntaxErrorKind::UnexpectedEnd, pos),
            Some(b'\\') => self.escape(pos + 1),
            Some(0x80..) => match utf8_length(self.text.get(pos..).unwrap_or_default()) {
                Some(length) => Ok(pos + length),
                None => fault(SyntaxErrorKind::NotUtf8, pos),
            },
            Some(_) => fault(SyntaxErrorKind::ControlCharacter, pos),
        }
    }

    /// `escape ( %x22 / %x5C / %x2F / %x62 / %x66 / %x6E / %x72 / %x74 / %x75 4HEXDIG )` (RFC 8259 §7).
    fn escape(&self, pos: usize) -> Result<usize> {
        match self.text.get(pos) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(pos + 1),
            Some(b'u') => {
                for at in pos + 1..pos + 5 {
                    match self.text.get(at) {
                        Some(byte) if byte.is_ascii_hexdigit() => {}
                        Some(_) => return fault(SyntaxErrorKind::BadEscape, at),
                        None => return fault(SyntaxErrorKind::UnexpectedEnd, at),
                    }
                }
                Ok(pos + 5)
            }
            Some(_) => fault(SyntaxErrorKind::BadEscape, pos),
            None => fault(SyntaxErrorKind::UnexpectedEnd, pos),
        }
    }

    fn end(&self, pos: usize) -> Result<()> {
        match self.space(pos) {
            end if end == self.text.len() => Ok(()),
            end if self.text.get(end).is_some_and(|byte| *byte >= 0x80) => self.unexpected(end),
            end => fault(SyntaxErrorKind::TrailingData, end),
        }
    }

    #[inline(never)]
    fn unexpected<T>(&self, pos: usize) -> Result<T> {
        let kind = match self.text.get(pos..) {
            Some(rest @ [0x80..=0xFF, ..]) if utf8_length(rest).is_none() => SyntaxErrorKind::NotUtf8,
            Some([_, ..]) => SyntaxErrorKind::UnexpectedByte,
            _ if self.text.is_empty() => SyntaxErrorKind::Empty,
            _ => SyntaxErrorKind::UnexpectedEnd,
        };
        fault(kind, pos)
    }
}

/// Forgets what an earlier member of the same name had below it.
#[inline(never)]
fn clear(level: &'static Level, slots: &mut [Span]) {
    for key in level.keys {
        if let Some(span) = slots.get_mut(usize::from(key.slot)) {
            *span = Span::default();
        }
        if let Some(child) = key.child {
            clear(child, slots);
        }
    }
}

#[inline(always)]
fn fault<T>(kind: SyntaxErrorKind, offset: usize) -> Result<T> {
    Err(SyntaxError { kind, offset })
}

/// The high bit of each byte that is a quote, a backslash, a control character or beyond ASCII. Exact up to and including
/// the first of them, which is all that is asked (a borrow can only come from a byte that is one of them).
#[cfg(target_pointer_width = "64")]
#[inline(always)]
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quotes = word ^ (ONES * u64::from(b'"'));
    let backslashes = word ^ (ONES * u64::from(b'\\'));
    let zeros = quotes.wrapping_sub(ONES) | backslashes.wrapping_sub(ONES) | word.wrapping_sub(ONES * 0x20);
    (zeros | word) & (ONES * 0x80)
}

/// Whether a byte needs no second look in a string.
#[inline(always)]
fn is_plain(byte: u8) -> bool {
    PLAIN.get(usize::from(byte)).copied().unwrap_or_default()
}

static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x20;
    while byte < 0x80 {
        #[allow(clippy::indexing_slicing, reason = "in bounds by the loop's condition")]
        {
            table[byte] = byte != b'"' as usize && byte != b'\\' as usize;
        }
        byte += 1;
    }
    table
};

/// The length of the well-formed UTF-8 sequence beyond ASCII that `bytes` starts with (Unicode 15, table 3-7).
pub(crate) fn utf8_length(bytes: &[u8]) -> Option<usize> {
    let continues = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    match (first, second) {
        (0xC2..=0xDF, 0x80..=0xBF) => Some(2),
        (0xE0, 0xA0..=0xBF) | (0xE1..=0xEC | 0xEE..=0xEF, 0x80..=0xBF) | (0xED, 0x80..=0x9F) if continues(2) => Some(3),
        (0xF0, 0x90..=0xBF) | (0xF1..=0xF3, 0x80..=0xBF) | (0xF4, 0x80..=0x8F) if continues(2) && continues(3) => {
            Some(4)
        }
        _ => None,
    }
}
