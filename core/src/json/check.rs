//! The checker: one pass over a line, no recursion, nothing kept but the spans that were asked for.
//!
//! It accepts exactly the texts of RFC 8259 (in UTF-8, §8.1) whose nesting stays within the depth limit (§9 allows one).
//! Lone surrogates in `\u` escapes are grammatical (§7, §8.2) and pass; what decodes them decides.

use core::fmt;

use super::text::{Text, plain};
use super::write::{Message, Writer};

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
    let end = scanner.value(text, 0);
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
    /// The text is a header, as of peers that frame messages by `Content-Length`.
    HeaderFraming,
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

/// The sentence of its `Display`, without formatting code.
impl Message for SyntaxErrorKind {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        out.text_part(self.text());
        if let Self::TooDeep { limit } = self {
            out.byte(b' ');
            out.usize(*limit);
        }
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
            Self::HeaderFraming => {
                "the line is a header; a message is one line of JSON, without Content-Length headers"
            }
        }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl core::error::Error for SyntaxError {}

/// Where a member's value is in its line: `start..end` in bytes. A value never starts at offset 0 of a line that has
/// members, so the empty span at 0, the default, is that of an absent member, and takes nothing from the line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The most members of one message that can be watched, see [`Members`].
pub const SLOTS: usize = 22;

/// Where the watched members of one message are in its text, by their slots.
pub(crate) type Spans = [Span; SLOTS];

/// No members at all.
pub(crate) const NO_SPANS: Spans = [Span { start: 0, end: 0 }; SLOTS];

impl Span {
    /// The offsets of the value's first byte and of the byte behind its last; both are 0 for an absent member.
    pub const fn range(self) -> core::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Whether the member is absent.
    pub const fn is_absent(self) -> bool {
        self.end == 0
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// A message out of which one value may have been taken. What is left is found by its offsets in the whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'t> {
    before: &'t [u8],
    after: &'t [u8],
    /// Where `after` begins.
    end: usize,
}

impl<'t> Parts<'t> {
    /// A message as it came.
    pub(crate) fn whole(text: &'t [u8]) -> Self {
        Self { before: text, after: &[], end: usize::MAX }
    }

    /// Takes the value at `taken` out of `text`.
    pub(crate) fn take(text: &'t mut [u8], taken: Span) -> Option<(&'t mut [u8], Self)> {
        let end = taken.end as usize;
        let (head, after) = text.split_at_mut_checked(end)?;
        let (before, value) = head.split_at_mut_checked(taken.start as usize)?;
        Some((value, Self { before, after, end }))
    }

    /// What comes before the value that was taken.
    pub(crate) fn start(&self) -> &'t [u8] {
        self.before
    }

    /// The whole, if nothing was taken.
    pub(crate) fn untaken(&self) -> &'t [u8] {
        if self.end == usize::MAX { self.before } else { &[] }
    }

    /// The first byte of another value, which says its type; 0 where there is none.
    #[inline]
    pub(crate) fn first(&self, span: Span) -> u8 {
        if span.is_absent() {
            return 0;
        }
        let start = span.start as usize;
        let byte = match start.checked_sub(self.end) {
            Some(start) => self.after.get(start),
            None => self.before.get(start),
        };
        byte.copied().unwrap_or_default()
    }

    /// The text of another value; empty where there is none, or where it reached over the one that was taken.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn of(&self, span: Span) -> &'t [u8] {
        let (start, end) = (span.start as usize, span.end as usize);
        let part = match start.checked_sub(self.end) {
            Some(start) => self.after.get(start..end.wrapping_sub(self.end)),
            None => self.before.get(start..end),
        };
        part.unwrap_or_default()
    }
}

/// The members of one object that the checker watches: it records where their values are.
#[derive(Debug)]
pub struct Members {
    /// In the order in which a peer is likely to send them.
    keys: &'static [Member],
    /// Where the last value of any other member goes.
    others: Option<u8>,
    /// Strings do not count as other members.
    strings: bool,
}

impl Members {
    /// Watches these members, best in the order in which peers send them.
    pub const fn of(keys: &'static [Member]) -> Self {
        Self { keys, others: None, strings: false }
    }

    /// Watches for values that are not strings: the slot stays absent if all are.
    #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
    pub const fn strings(slot: usize) -> Self {
        Self { keys: &[], others: Some(slot as u8), strings: true }
    }

    /// The same table, and `slot` holds the last member that is not in it.
    #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
    pub(crate) const fn with_others(self, slot: usize) -> Self {
        Self { others: Some(slot as u8), ..self }
    }

    /// The slot of the member of this name.
    pub(crate) fn slot(&self, name: Text<'_>) -> Option<u8> {
        self.keys.iter().find(|key| name.is(key.name)).map(|key| key.slot)
    }
}

/// One watched member.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    name: &'static [u8],
    /// The name, its closing quote and the colon behind it as a little-endian word, and which of its bytes count: none if
    /// they do not fit.
    #[cfg(target_pointer_width = "64")]
    word: (u128, u128),
    slot: u8,
    child: Option<&'static Members>,
}

impl Member {
    /// `slot`, below [`SLOTS`], is where the span of the member's value goes.
    ///
    /// # Panics
    /// If `slot` is too large: in a constant, where tables belong, it does not compile.
    #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
    pub const fn new(name: &'static str, slot: usize) -> Self {
        assert!(slot < SLOTS, "a message has no room for so many watched members");
        Self {
            name: name.as_bytes(),
            #[cfg(target_pointer_width = "64")]
            word: Self::word(name.as_bytes()),
            slot: slot as u8,
            child: None,
        }
    }

    /// Watches the members of this member too, if it is an object. No two tables of one message may share a slot.
    #[must_use]
    pub const fn with(self, members: &'static Members) -> Self {
        Self { child: Some(members), ..self }
    }

    #[cfg(target_pointer_width = "64")]
    const fn word(name: &[u8]) -> (u128, u128) {
        let (mut word, mut shift, mut rest) = (0, 0, name);
        if name.len() > 14 {
            return (0, 0);
        }
        while let [first, others @ ..] = rest {
            word |= (*first as u128) << shift;
            shift += 8;
            rest = others;
        }
        word |= ((b'"' as u128) | (b':' as u128) << 8) << shift;
        (word, u128::MAX >> (112 - shift))
    }

    /// What follows the name, its closing quote and a colon, if `rest` starts with them: no name is a prefix of another
    /// that way.
    #[inline(always)]
    fn strip<'t>(&self, rest: &'t [u8]) -> Option<&'t [u8]> {
        #[cfg(target_pointer_width = "64")]
        if let ((word, mask @ 1..), Some(there)) = (self.word, rest.first_chunk::<16>()) {
            if (u128::from_le_bytes(*there) ^ word) & mask != 0 {
                return None;
            }
            return rest.get(self.name.len() + 2..);
        }
        match strip(rest, self.name) {
            Some([b'"', b':', after @ ..]) => Some(after),
            _ => None,
        }
    }
}

/// `strip_prefix` as a loop: on a Cortex-M0+ cheaper than the call it would become.
#[inline(always)]
fn strip<'t>(text: &'t [u8], prefix: &[u8]) -> Option<&'t [u8]> {
    let (head, after) = text.split_at_checked(prefix.len())?;
    if head.iter().zip(prefix).all(|(a, b)| a == b) { Some(after) } else { None }
}

/// Checks a whole line and records where its watched members are. Of a name that occurs twice the last counts, as in the views.
/// All `slots` must be absent before.
///
/// ```
/// use rigline::json::check::{Member, Members, Span, scan};
///
/// static NAME: Members = Members::of(&[Member::new("name", 1)]);
/// static MESSAGE: Members = Members::of(&[Member::new("id", 0), Member::new("params", 2).with(&NAME)]);
///
/// let text = br#"{"id": 7, "params": {"name": "x"}}"#;
/// let mut slots = [Span::default(); 3];
/// scan(text, &MESSAGE, &mut slots)?;
/// assert_eq!(&text[slots[0].range()], b"7");
/// assert_eq!(&text[slots[1].range()], b"\"x\"");
/// # Ok::<(), rigline::json::SyntaxError>(())
/// ```
pub fn scan(text: &[u8], level: &'static Members, slots: &mut [Span]) -> Result<(), SyntaxError> {
    let mut stack = [0; DEPTH_WORDS];
    let mut scanner = Scanner::new(text, &mut stack);
    let end = match scanner.space(text) {
        [b'{', rest @ ..] => scanner.object(rest, 1, level, slots),
        rest => scanner.value(rest, 0),
    };
    scanner.end(end)
}

/// [`scan`] of the line that `text` starts with, whose end is not known yet: each byte is looked at once. It stops at the
/// line's end at the latest. Returns the line's length with and without its end, if it is one object from its first byte to
/// LF or CR LF; all else is for the framer and [`scan`].
pub(crate) fn scan_line(text: &[u8], level: &'static Members, slots: &mut [Span]) -> Option<(usize, usize)> {
    let [b'{', members @ ..] = text else { return None };
    let mut stack = [0; DEPTH_WORDS];
    let mut scanner = Scanner { in_line: true, ..Scanner::new(text, &mut stack) };
    let rest = scanner.object(members, 1, level, slots)?;
    let length = scanner.offset(rest);
    match rest {
        [b'\n', ..] => Some((length.wrapping_add(1), length)),
        [b'\r', b'\n', ..] => Some((length.wrapping_add(2), length)),
        _ => None,
    }
}

/// Walks a text. What is left of it is passed and returned in two registers; `None` says that [`Scanner::fault`] is set.
struct Scanner<'t> {
    text: &'t [u8],
    /// One bit for each open container: whether the one around it is an object.
    stack: &'t mut [u32],
    /// CR and LF are no white space.
    in_line: bool,
    fault: SyntaxError,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t [u8], stack: &'t mut [u32]) -> Self {
        Self { text, stack, in_line: false, fault: SyntaxError { kind: SyntaxErrorKind::Empty, offset: 0 } }
    }

    /// Where `rest` starts in the text.
    #[inline(always)]
    fn offset(&self, rest: &[u8]) -> usize {
        self.text.len().wrapping_sub(rest.len())
    }

    /// The members of a watched object whose brace ends just before `rest`; returns what follows its closing brace.
    /// Recursion goes as deep as the tables of levels do, whatever the input.
    fn object(
        &mut self,
        mut rest: &'t [u8],
        depth: usize,
        level: &'static Members,
        slots: &mut [Span],
    ) -> Option<&'t [u8]> {
        // The wanted members from the one on that is likely to come next.
        let mut expected = level.keys;
        let mut name = match self.space(rest) {
            [b'"', name @ ..] => name,
            [b'}', rest @ ..] => return Some(rest),
            rest => return self.unexpected(rest),
        };
        loop {
            let found;
            (found, rest) = match expected.first().and_then(|key| key.strip(name)) {
                Some(rest) => (expected, rest),
                None => self.other_key(name, level)?,
            };
            let value = self.space(rest);
            let (slot, child) = match found {
                [key, others @ ..] => {
                    expected = others;
                    (Some(key.slot), key.child)
                }
                [] => (level.others.filter(|_| !(level.strings && matches!(value, [b'"', ..]))), None),
            };
            rest = if let Some(child) = child {
                if slot.and_then(|slot| slots.get(usize::from(slot))).is_some_and(|span| !span.is_absent()) {
                    clear(child, slots);
                }
                match value {
                    [b'{', members @ ..] => self.object(members, depth.wrapping_add(1), child, slots)?,
                    _ => self.value(value, depth)?,
                }
            } else {
                self.short_value(value, depth)?
            };
            if let Some(slot) = slot
                && let Some(span) = slots.get_mut(usize::from(slot))
            {
                #[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
                {
                    *span = Span { start: self.offset(value) as u32, end: self.offset(rest) as u32 };
                }
            }
            if let [b',', b'"', next @ ..] = rest {
                name = next;
                continue;
            }
            rest = match self.space(rest) {
                [b',', rest @ ..] => self.space(rest),
                [b'}', rest @ ..] => return Some(rest),
                rest => return self.unexpected(rest),
            };
            match rest {
                [b'"', next @ ..] => name = next,
                _ => return self.unexpected(rest),
            }
        }
    }

    /// The level's members from the one on whose name `rest` starts with (none of them, if it is none of theirs), and what
    /// follows its colon.
    #[inline(never)]
    fn other_key(&mut self, rest: &'t [u8], level: &'static Members) -> Option<(&'static [Member], &'t [u8])> {
        let mut keys = level.keys;
        while let [key, others @ ..] = keys {
            if let Some(after) = key.strip(rest) {
                return Some((keys, after));
            }
            keys = others;
        }
        let end = plain(rest);
        if let [b'"', b':', after @ ..] = end {
            return Some((&[], after));
        }
        let after = self.close(end)?;
        let length = rest.len().wrapping_sub(after.len()).wrapping_sub(1);
        // RFC 8259 §8.3: names are compared after their escapes are decoded.
        let name = Text::of_checked(rest.get(..length).unwrap_or_default());
        keys = level.keys;
        while let [key, others @ ..] = keys
            && !name.is(key.name)
        {
            keys = others;
        }
        Some((keys, self.colon(after)?))
    }

    /// [`value`](Self::value) where it is likely to be no container.
    #[inline(always)]
    fn short_value(&mut self, rest: &'t [u8], outside: usize) -> Option<&'t [u8]> {
        match rest {
            [b'"', string @ ..] => self.close(plain(string)),
            [b'-' | b'0'..=b'9', ..] => self.number(rest),
            _ => self.value(rest, outside),
        }
    }

    /// Skips any value: the tight loop. `outside` containers are open around it.
    fn value(&mut self, mut rest: &'t [u8], outside: usize) -> Option<&'t [u8]> {
        let mut depth = outside;
        // What the innermost open container is, and those around it: the last 32 of them, one bit each. Never true outside.
        let mut in_object = false;
        let mut around = 0;
        rest = self.space(rest);
        loop {
            let ended = 'value: {
                if in_object {
                    let [b'"', name @ ..] = rest else { return self.unexpected(rest) };
                    // Members that are plain strings, one behind the other, get by without the tests further down.
                    let mut name = plain(name);
                    while let [b'"', b':', b'"', string @ ..] = name {
                        let string = plain(string);
                        let [b'"', b',', b'"', next @ ..] = string else {
                            rest = self.close(string)?;
                            break 'value true;
                        };
                        name = plain(next);
                    }
                    rest = self.close(name)?;
                    rest = self.colon(rest)?;
                }
                if let [b'"', string @ ..] = rest {
                    rest = self.close(plain(string))?;
                    break 'value true;
                }
                rest = match rest {
                    [open @ (b'{' | b'['), inside @ ..] => {
                        if depth.is_multiple_of(32) {
                            self.save(rest, depth, around)?;
                        }
                        around = around << 1 | u32::from(in_object);
                        depth = depth.wrapping_add(1);
                        in_object = *open == b'{';
                        rest = self.space(inside);
                        break 'value matches!((rest, in_object), ([b'}', ..], true) | ([b']', ..], false));
                    }
                    [b'-' | b'0'..=b'9', ..] => self.number(rest)?,
                    [b't', ..] => self.literal(rest, b"true")?,
                    [b'f', ..] => self.literal(rest, b"false")?,
                    [b'n', ..] => self.literal(rest, b"null")?,
                    [b'+' | b'.' | b'N' | b'I', ..] => return self.fault(SyntaxErrorKind::BadNumber, rest),
                    _ => return self.unexpected(rest),
                };
                true
            };
            if !ended {
                continue;
            }
            // A value has ended, or an empty container is about to.
            loop {
                if depth == outside {
                    return Some(rest);
                }
                rest = self.space(rest);
                match (rest, in_object) {
                    ([b',', after @ ..], _) => {
                        rest = self.space(after);
                        break;
                    }
                    ([b'}', after @ ..], true) | ([b']', after @ ..], false) => {
                        rest = after;
                        depth = depth.wrapping_sub(1);
                        in_object = around & 1 == 1;
                        around >>= 1;
                        if depth.is_multiple_of(32) {
                            around = self.stack.get(depth / 32).copied().unwrap_or_default();
                        }
                    }
                    _ => return self.unexpected(rest),
                }
            }
        }
    }

    /// Keeps what the 32 containers up to `depth` are; beyond the last that can be kept, it is too deep.
    #[inline(never)]
    fn save(&mut self, rest: &[u8], depth: usize, around: u32) -> Option<()> {
        let limit = self.stack.len() * 32;
        let Some(word) = self.stack.get_mut(depth / 32) else {
            return self.fault(SyntaxErrorKind::TooDeep { limit }, rest);
        };
        *word = around;
        Some(())
    }

    #[inline(always)]
    fn colon(&mut self, mut rest: &'t [u8]) -> Option<&'t [u8]> {
        if !matches!(rest, [b':', ..]) {
            rest = self.space(rest);
        }
        match rest {
            [b':', rest @ ..] => Some(self.space(rest)),
            _ => self.unexpected(rest),
        }
    }

    fn literal(&mut self, rest: &'t [u8], word: &'static [u8]) -> Option<&'t [u8]> {
        let mut rest = rest;
        for byte in word {
            match rest {
                [same, after @ ..] if same == byte => rest = after,
                _ => return self.unexpected(rest),
            }
        }
        Some(rest)
    }

    /// `number = [ "-" ] int [ "." 1*DIGIT ] [ ( "e" / "E" ) [ "-" / "+" ] 1*DIGIT ]`, `int = "0" / ( digit1-9 *DIGIT )`
    /// (RFC 8259 §6).
    #[inline(never)]
    fn number(&mut self, mut rest: &'t [u8]) -> Option<&'t [u8]> {
        if let [b'-', digits @ ..] = rest {
            rest = digits;
        }
        rest = match rest {
            [b'0', rest @ ..] => rest,
            _ => self.digits(rest)?,
        };
        match rest {
            [b'.', fraction @ ..] => rest = self.digits(fraction)?,
            [b'0'..=b'9' | b'x' | b'X', ..] => return self.fault(SyntaxErrorKind::BadNumber, rest),
            _ => {}
        }
        if let [b'e' | b'E', exponent @ ..] = rest {
            rest = exponent;
            if let [b'+' | b'-', digits @ ..] = rest {
                rest = digits;
            }
            rest = self.digits(rest)?;
        }
        Some(rest)
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn digits(&mut self, from: &'t [u8]) -> Option<&'t [u8]> {
        let mut rest = from;
        while let [b'0'..=b'9', after @ ..] = rest {
            rest = after;
        }
        if rest.len() != from.len() {
            return Some(rest);
        }
        self.fault(if rest.is_empty() { SyntaxErrorKind::UnexpectedEnd } else { SyntaxErrorKind::BadNumber }, rest)
    }

    /// The end of a string whose next byte is a quote, or needs a second look; returns what follows its closing quote.
    #[inline(always)]
    fn close(&mut self, rest: &'t [u8]) -> Option<&'t [u8]> {
        match rest {
            [b'"', rest @ ..] => Some(rest),
            _ => self.string(rest),
        }
    }

    #[inline(never)]
    fn string(&mut self, mut rest: &'t [u8]) -> Option<&'t [u8]> {
        loop {
            rest = plain(rest);
            match rest {
                [b'"', rest @ ..] => return Some(rest),
                _ => rest = self.special(rest)?,
            }
        }
    }

    /// An escape, a character beyond ASCII, or a fault, in a string; returns what follows it.
    #[inline(never)]
    fn special(&mut self, rest: &'t [u8]) -> Option<&'t [u8]> {
        match rest {
            [] => self.fault(SyntaxErrorKind::UnexpectedEnd, rest),
            [b'\\', escape @ ..] => self.escape(escape),
            [0x80..=0xFF, ..] => match foreign(rest) {
                Ok(rest) => Some(rest),
                Err(rest) => self.fault(SyntaxErrorKind::NotUtf8, rest),
            },
            _ => self.fault(SyntaxErrorKind::ControlCharacter, rest),
        }
    }

    /// `escape ( %x22 / %x5C / %x2F / %x62 / %x66 / %x6E / %x72 / %x74 / %x75 4HEXDIG )` (RFC 8259 §7).
    fn escape(&mut self, rest: &'t [u8]) -> Option<&'t [u8]> {
        match rest {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => Some(rest),
            [b'u', digits @ ..] => {
                let mut rest = digits;
                for _ in 0..4 {
                    rest = match rest {
                        [digit, rest @ ..] if digit.is_ascii_hexdigit() => rest,
                        [] => return self.fault(SyntaxErrorKind::UnexpectedEnd, rest),
                        _ => return self.fault(SyntaxErrorKind::BadEscape, rest),
                    };
                }
                Some(rest)
            }
            [] => self.fault(SyntaxErrorKind::UnexpectedEnd, rest),
            _ => self.fault(SyntaxErrorKind::BadEscape, rest),
        }
    }

    fn end(&mut self, rest: Option<&'t [u8]>) -> Result<(), SyntaxError> {
        match rest.map(|rest| self.space(rest)) {
            Some([]) => return Ok(()),
            Some(rest @ [0x80..=0xFF, ..]) => self.unexpected(rest).map(|_| ()),
            Some(rest) => self.fault(SyntaxErrorKind::TrailingData, rest),
            None => None::<()>,
        };
        Err(self.fault)
    }

    #[inline(never)]
    fn unexpected(&mut self, rest: &[u8]) -> Option<&'t [u8]> {
        let kind = match rest {
            [0x80..=0xFF, ..] if foreign(rest).is_err_and(|fault| fault.len() == rest.len()) => {
                SyntaxErrorKind::NotUtf8
            }
            [b'C' | b'c', ..] if is_header(self.text) => SyntaxErrorKind::HeaderFraming,
            [_, ..] => SyntaxErrorKind::UnexpectedByte,
            [] if self.text.is_empty() => SyntaxErrorKind::Empty,
            [] => SyntaxErrorKind::UnexpectedEnd,
        };
        self.fault(kind, rest)
    }

    /// Skips white space (RFC 8259 §2). Hosts send none, so that a look at the first byte is what it costs.
    #[inline(always)]
    fn space(&self, rest: &'t [u8]) -> &'t [u8] {
        match rest {
            [0..=b' ', ..] => self.some_space(rest),
            _ => rest,
        }
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn some_space(&self, mut rest: &'t [u8]) -> &'t [u8] {
        while let [byte @ (b' ' | b'\t' | b'\n' | b'\r'), after @ ..] = rest
            && !(self.in_line && matches!(byte, b'\n' | b'\r'))
        {
            rest = after;
        }
        rest
    }

    #[cold]
    fn fault<T>(&mut self, kind: SyntaxErrorKind, rest: &[u8]) -> Option<T> {
        self.fault = SyntaxError { kind, offset: self.offset(rest) };
        None
    }
}

/// Whether a text is the header of the framing that language servers use.
#[cold]
fn is_header(text: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length:";
    text.trim_ascii_start().get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME))
}

/// Forgets what an earlier member of the same name had below it.
#[cold]
fn clear(level: &'static Members, slots: &mut [Span]) {
    if let Some(span) = level.others.and_then(|slot| slots.get_mut(usize::from(slot))) {
        *span = Span::default();
    }
    for key in level.keys {
        if let Some(span) = slots.get_mut(usize::from(key.slot)) {
            *span = Span::default();
        }
        if let Some(child) = key.child {
            clear(child, slots);
        }
    }
}

/// What follows the bytes beyond ASCII that `text` starts with, if they are UTF-8 (Unicode 15, table 3-7); else what begins
/// with the first sequence that is none.
fn foreign(text: &[u8]) -> Result<&[u8], &[u8]> {
    let length = text.iter().take_while(|byte| **byte >= 0x80).count();
    match core::str::from_utf8(text.get(..length).unwrap_or_default()) {
        Ok(_) => Ok(text.get(length..).unwrap_or_default()),
        Err(error) => Err(text.get(error.valid_up_to()..).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
