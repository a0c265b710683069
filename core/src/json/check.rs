//! The checker of JSON text: one pass over a line, without recursion. It keeps nothing but the
//! spans of the members that the caller asks for.
//!
//! It accepts exactly the texts of RFC 8259 (in UTF-8, §8.1) whose nesting is within the depth
//! limit (§9 allows a limit). Lone surrogates in `\u` escapes are grammatical (§7, §8.2) and are
//! accepted. The decoder decides about them.

use core::fmt;

use super::text::{Text, plain};
use super::write::{Message, Writer};

/// The default of the number of arrays and objects that may be open at once. The envelope of a
/// request counts, too.
pub const DEPTH: usize = 32 * DEPTH_WORDS;
const DEPTH_WORDS: usize = 4;

/// Checks that `text` is one JSON text and nothing else, with at most [`DEPTH`] arrays and objects
/// open at once.
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

/// Checks as [`check`] does, with a depth limit of `32 * WORDS`. It uses `4 * WORDS` bytes of stack
/// for the depth, whatever the input.
pub fn check_to_depth<const WORDS: usize>(text: &[u8]) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::<WORDS>::new();
    scanner.length = text.len();
    let end = scanner.skip(text, Position::Value);
    scanner.end(text, end)
}

/// The reason why a text is not JSON, and the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SyntaxError {
    /// The kind of the error.
    pub kind: SyntaxErrorKind,
    /// The offset of the wrong byte from the start of the text, in bytes. For a text that ends too
    /// early it is the length of the text.
    pub offset: usize,
}

/// The kind of a syntax error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SyntaxErrorKind {
    /// A byte that must not stand at that place.
    UnexpectedByte,
    /// The text ended inside a value: it was cut off, or one message was spread over several lines.
    UnexpectedEnd,
    /// Something follows after the value.
    TrailingData,
    /// A raw control character (below U+0020) in a string. It must be escaped (RFC 8259 §7).
    ControlCharacter,
    /// An escape that RFC 8259 §7 does not allow.
    BadEscape,
    /// Bytes that are not UTF-8 (RFC 8259 §8.1).
    NotUtf8,
    /// A number of a form that RFC 8259 §6 does not allow, such as `01`, `1.`, `+1`, `NaN`.
    BadNumber,
    /// More arrays and objects are open at once than the depth limit.
    TooDeep {
        /// The depth limit.
        limit: usize,
    },
    /// The text is empty.
    Empty,
    /// The text is a header, as peers send it that frame messages by `Content-Length`.
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
    /// The sentence that describes the error, without the offset and other numbers.
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

/// The place of a member's value in its line: `start..end` in bytes. The default is the empty span
/// at 0, which stands for an absent member, since no value starts at offset 0 of a line that has
/// members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The greatest number of members of one message that can be watched, see [`WatchedMembers`].
pub const SLOTS: usize = 22;

/// Where the watched members of one message are in its text, by their slots.
pub(crate) type Spans = [Span; SLOTS];

/// No members at all.
pub(crate) const NO_SPANS: Spans = [Span { start: 0, end: 0 }; SLOTS];

impl Span {
    /// The span from `start` to `end`. No line is longer than 4 GiB.
    #[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
    pub(crate) const fn of_range(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// The offsets of the value's first byte and of the byte after its last one. Both are 0 for an
    /// absent member.
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

/// A message out of which one value may have been taken. What is left is found by its offsets in
/// the whole.
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

    /// The text before the value that was taken.
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
        match self.before.get(span.start as usize) {
            Some(byte) => *byte,
            None => self.of_after(span).first().copied().unwrap_or_default(),
        }
    }

    /// The text of another value; empty where there is none, or where it reached over the one that
    /// was taken.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn of(&self, span: Span) -> &'t [u8] {
        match self.before.get(span.start as usize..span.end as usize) {
            Some(part) => part,
            None => self.of_after(span),
        }
    }

    /// [`of`](Self::of) what comes behind the value that was taken.
    #[cold]
    fn of_after(&self, span: Span) -> &'t [u8] {
        // What comes before it wraps to where nothing is.
        let offset = |at: u32| (at as usize).wrapping_sub(self.end);
        self.after.get(offset(span.start)..offset(span.end)).unwrap_or_default()
    }
}

/// The members of one object that the checker watches, to record where their values are.
#[derive(Debug)]
pub struct WatchedMembers {
    /// How many tables there are one below the other, this one included.
    levels: u8,
    /// In the order in which a peer is likely to send them.
    keys: &'static [WatchedMember],
    /// Where the span of the last value of any other member goes, as in [`Level::slot`].
    others: u8,
}

impl WatchedMembers {
    /// Watches these members. The scan is fastest if they are in the order in which peers send
    /// them.
    ///
    /// # Panics
    /// If there are more than four tables one below the other. In a constant, where tables belong,
    /// that is an error of the compiler.
    pub const fn new(keys: &'static [WatchedMember]) -> Self {
        let (mut levels, mut rest) = (1, keys);
        while let [key, others @ ..] = rest {
            if let Some(child) = key.child
                && child.levels >= levels
            {
                levels = child.levels + 1;
            }
            rest = others;
        }
        assert!(levels as usize <= LEVELS, "a message has no room for so many levels of watched members");
        Self { levels, keys, others: NO_SLOT }
    }

    /// Watches for a value that is not a string in an object whose members should all be strings.
    /// `slot` gets the last such value, and stays absent if all are strings.
    #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
    pub const fn strings(slot: usize) -> Self {
        Self { levels: 1, keys: &[], others: slot as u8 | NO_STRING }
    }

    /// The same table, and `slot` holds the last member that is not in it.
    #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
    pub(crate) const fn with_others(self, slot: usize) -> Self {
        Self { others: slot as u8, ..self }
    }

    /// The slot of the member of this name.
    pub(crate) fn slot(&self, name: Text<'_>) -> Option<u8> {
        self.keys.iter().find(|key| name.is(key.name)).map(|key| key.slot)
    }
}

/// A watched member: its name, and the slot for the place of its value.
#[derive(Debug, Clone, Copy)]
pub struct WatchedMember {
    name: &'static [u8],
    /// The name, its closing quote and the colon behind it, as far as they fit, as two
    /// little-endian words, each with which of its bits count.
    #[cfg(target_pointer_width = "64")]
    words: [(u64, u64); 2],
    slot: u8,
    child: Option<&'static WatchedMembers>,
}

impl WatchedMember {
    /// A watched member. The span of its value goes to `slot`, which must be below [`SLOTS`].
    ///
    /// # Panics
    /// If `slot` is too large. In a constant, where tables belong, that is an error of the
    /// compiler.
    #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
    pub const fn new(name: &'static str, slot: usize) -> Self {
        assert!(slot < SLOTS, "a message has no room for so many watched members");
        Self {
            name: name.as_bytes(),
            #[cfg(target_pointer_width = "64")]
            words: Self::words(name.as_bytes()),
            slot: slot as u8,
            child: None,
        }
    }

    /// Watches the members of this member, too, if it is an object. No two tables of one message
    /// may share a slot.
    #[must_use]
    pub const fn with_members(self, members: &'static WatchedMembers) -> Self {
        // What watches nothing is skipped, which is faster.
        let watches = !members.keys.is_empty() || members.others != NO_SLOT;
        Self { child: if watches { Some(members) } else { None }, ..self }
    }

    #[cfg(target_pointer_width = "64")]
    #[allow(clippy::cast_possible_truncation, reason = "both halves are taken")]
    const fn words(name: &[u8]) -> [(u64, u64); 2] {
        let (mut word, mut shift, mut rest) = (0, 0, name);
        while let [first, others @ ..] = rest
            && shift < 128
        {
            word |= (*first as u128) << shift;
            shift += 8;
            rest = others;
        }
        if name.len() <= Self::WHOLE {
            word |= ((b'"' as u128) | (b':' as u128) << 8) << shift;
            shift += 16;
        }
        let mask = u128::MAX >> (128 - shift);
        [(word as u64, mask as u64), ((word >> 64) as u64, (mask >> 64) as u64)]
    }

    /// The length of the longest name that fits the words with its quote and colon.
    #[cfg(target_pointer_width = "64")]
    const WHOLE: usize = 14;

    /// The text after the name, its closing quote and a colon, if `rest` starts with them: no name
    /// is a prefix of another that way.
    #[inline(always)]
    fn strip<'t>(&self, rest: &'t [u8]) -> Option<&'t [u8]> {
        #[cfg(target_pointer_width = "64")]
        if let Some([a, b, c, d, e, f, g, h, others @ ..]) = rest.first_chunk::<16>() {
            let [(low, low_mask), (high, high_mask)] = self.words;
            let low = (u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) ^ low) & low_mask;
            let high = (u64::from_le_bytes(*others) ^ high) & high_mask;
            if low | high != 0 {
                return None;
            }
            if self.name.len() <= Self::WHOLE {
                return rest.get(self.name.len().wrapping_add(2)..);
            }
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

/// Checks a whole line, and records where its watched members are. If a name occurs twice, the last
/// one counts, as in [`Json`](super::Json). All `slots` must be absent before.
///
/// ```
/// use rigline::json::check::{WatchedMember, WatchedMembers, Span, scan};
///
/// static NAME: WatchedMembers = WatchedMembers::new(&[WatchedMember::new("name", 1)]);
/// static MESSAGE: WatchedMembers = WatchedMembers::new(&[WatchedMember::new("id", 0), WatchedMember::new("params", 2).with_members(&NAME)]);
///
/// let text = br#"{"id": 7, "params": {"name": "x"}}"#;
/// let mut slots = [Span::default(); 3];
/// scan(text, &MESSAGE, &mut slots)?;
/// assert_eq!(&text[slots[0].range()], b"7");
/// assert_eq!(&text[slots[1].range()], b"\"x\"");
/// # Ok::<(), rigline::json::check::SyntaxError>(())
/// ```
pub fn scan(text: &[u8], level: &'static WatchedMembers, slots: &mut [Span]) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::<DEPTH_WORDS>::new();
    scanner.length = text.len();
    let end = scanner.element(scanner.space(text), level, slots);
    scanner.end(text, end)
}

/// [`scan`] of a line that is an array, element by element: `each` gets where an element is, and
/// where its watched members are, counted from its beginning.
pub(crate) fn scan_array(
    text: &[u8],
    level: &'static WatchedMembers,
    spans: &mut Spans,
    each: &mut dyn FnMut(&[u8], &Spans),
) -> Result<(), SyntaxError> {
    let mut scanner = Scanner::<DEPTH_WORDS>::new();
    scanner.length = text.len();
    let end = match scanner.space(text) {
        [b'[', rest @ ..] => scanner.elements(rest, level, spans, each),
        rest => scanner.skip(rest, Position::Value),
    };
    scanner.end(text, end)
}

/// Where the next element is in an array that was checked, looking from `from` on, behind its
/// bracket or an element; and where the element's watched members are, counted from its beginning.
// In line, its scanner would be on the stack of every call.
#[inline(never)]
pub(crate) fn scan_next_element(
    array: &[u8],
    from: usize,
    level: &'static WatchedMembers,
    spans: &mut Spans,
) -> Option<core::ops::Range<usize>> {
    let mut rest = array.get(from..)?;
    while let [b' ' | b'\t' | b'\n' | b'\r' | b',', after @ ..] = rest {
        rest = after;
    }
    let mut scanner = Scanner::<DEPTH_WORDS>::new();
    scanner.length = rest.len();
    *spans = NO_SPANS;
    let after = scanner.element(rest, level, spans)?;
    Some(array.len().wrapping_sub(rest.len())..array.len().wrapping_sub(after.len()))
}

/// [`scan`] of a line while it comes in: each byte is looked at once, as soon as it is there. It
/// takes lines that are one object from their first byte to LF or CR LF; all else is for the framer
/// and [`scan`].
#[derive(Debug)]
pub(crate) struct LineScanner(Scanner<DEPTH_WORDS>);

/// The part of a line that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// The whole of it: its length with and without its end.
    Line { whole: usize, length: usize },
    /// The beginning of the line, which has no line end in it.
    Part,
    /// The line is none of those that are taken, or not known to be one.
    Other,
}

impl LineScanner {
    /// The longest part of a name, a number or a literal that is examined again when there is more
    /// of it.
    const LONGEST_PART: usize = 128;
    /// Where no line goes on.
    const NOWHERE: usize = usize::MAX;

    pub(crate) const fn new() -> Self {
        Self(Scanner { is_line: true, ..Scanner::new() })
    }

    /// The next bytes are those of another line.
    pub(crate) fn reset(&mut self) {
        self.0.at = 0;
    }

    /// Goes on with the line that `text` starts with: all that is there of it, and what was there
    /// when it was scanned before. The spans of its members are complete where it is a whole line,
    /// and must stay as they are until then.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn scan(&mut self, text: &[u8], level: &'static WatchedMembers, spans: &mut Spans) -> Scanned {
        let Self(scanner) = self;
        scanner.length = text.len();
        let end = if scanner.at == 0 {
            let members = match text {
                [b'{', members @ ..] => members,
                [] => return Scanned::Part,
                _ => return Scanned::Other,
            };
            *spans = NO_SPANS;
            scanner.open = 0;
            scanner.watch(level);
            scanner.members(members, Position::Open, spans)
        } else {
            let Some(rest) = text.get(scanner.at..) else { return Scanned::Other };
            if scanner.open == 0 { Some(rest) } else { scanner.members(rest, scanner.place, spans) }
        };
        let at = core::mem::replace(&mut scanner.at, Self::NOWHERE);
        match end {
            Some(rest) => {
                let length = text.len().wrapping_sub(rest.len());
                let end = match rest {
                    [b'\n', ..] => 1,
                    [b'\r', b'\n', ..] => 2,
                    [] => {
                        scanner.at = length;
                        return Scanned::Part;
                    }
                    _ => return Scanned::Other,
                };
                scanner.at = 0;
                Scanned::Line { whole: length.wrapping_add(end), length }
            }
            None if scanner.fault.kind == SyntaxErrorKind::UnexpectedEnd
                && text.len().wrapping_sub(at) <= Self::LONGEST_PART =>
            {
                scanner.at = at;
                Scanned::Part
            }
            None => Scanned::Other,
        }
    }
}

/// How many tables of watched members one message may have, one below the other.
const LEVELS: usize = 4;

/// Walks a text. What is left of it is passed and returned in two registers; `None` says that
/// [`Scanner::fault`] is set, and where it stopped: with more of the text it can go on from there.
///
/// In the order of its members: a Cortex-M0+ reaches the first 124 bytes of a structure in one
/// step.
#[derive(Debug)]
#[repr(C)]
struct Scanner<const WORDS: usize> {
    /// How much of the text is there.
    length: usize,
    /// The text is a line whose end is not known: CR and LF are not white space, and a number ends
    /// with what follows it.
    is_line: bool,
    /// Where the scanner stopped, in the text and in the grammar.
    at: usize,
    place: Position,
    /// How many containers are open around the current member or value.
    open: usize,
    /// How many of them are in `outer`: the watched objects around the innermost.
    outside: usize,
    nest: Nest,
    inner: Level,
    fault: SyntaxError,
    /// One bit for each open container: whether the one around it is an object.
    stack: [u32; WORDS],
    outer: [Outer; LEVELS - 1],
}

/// A place in the grammar, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Position {
    /// The place behind the bracket that opens an array or object.
    Open,
    /// The place before a member of an object.
    Member,
    /// The place behind the quote that opens a member's name. The scanner does not stop there.
    Name,
    /// The place before a value.
    Value,
    /// A place in a value that is a string.
    Text,
    /// The place behind a value.
    Next,
}

/// The containers in a value that is skipped.
#[derive(Debug, Clone, Copy)]
struct Nest {
    /// How many containers are open; 0 if no value is being skipped.
    depth: usize,
    /// The kinds of the innermost container and those around it: the last 32 of them, one bit each.
    /// Never true outside.
    in_object: bool,
    around: u32,
}

impl Nest {
    const NONE: Self = Self { depth: 0, in_object: false, around: 0 };
}

/// A watched object, and its current member.
#[derive(Debug, Clone, Copy)]
struct Level {
    members: &'static WatchedMembers,
    /// The watched members from the one on that is likely to come next.
    expected: &'static [WatchedMember],
    /// The table of the current member.
    child: Option<&'static WatchedMembers>,
    /// Where the span of its value goes: beyond all slots if nowhere. With [`NO_STRING`] if there
    /// only where it is not a string.
    slot: u8,
    /// Where its value begins.
    start: usize,
}

impl Level {
    const fn of(members: &'static WatchedMembers) -> Self {
        Self { members, expected: members.keys, child: None, slot: NO_SLOT, start: 0 }
    }

    /// The next member by its table, if `rest` starts with its name; returns what follows its
    /// colon.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn expected<'t>(&mut self, rest: &'t [u8]) -> Option<&'t [u8]> {
        let key = self.expected.first()?;
        let after = key.strip(rest)?;
        self.expected = self.expected.get(1..).unwrap_or_default();
        self.slot = key.slot;
        self.child = key.child;
        Some(after)
    }

    /// The current member is the first of these; if there is none, it is none of the table.
    #[inline(always)]
    fn found(&mut self, members: &'static [WatchedMember]) {
        (self.slot, self.child) = match members {
            [key, others @ ..] => {
                self.expected = others;
                (key.slot, key.child)
            }
            [] => (self.members.others, None),
        };
    }

    /// The object around an object that has ended.
    #[inline(always)]
    fn back_to(&mut self, outer: &Outer) {
        self.members = outer.members;
        self.expected = outer.expected;
        self.slot = outer.slot;
        self.start = outer.start as usize;
    }
}

/// A watched object around the innermost, as its [`Level`].
#[derive(Debug, Clone, Copy)]
struct Outer {
    members: &'static WatchedMembers,
    expected: &'static [WatchedMember],
    start: u32,
    slot: u8,
}

impl Outer {
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
    fn of(Level { members, expected, slot, start, .. }: &Level) -> Self {
        Self { members, expected, start: *start as u32, slot: *slot }
    }
}

static NO_MEMBERS: WatchedMembers = WatchedMembers::new(&[]);
const NO_STRING: u8 = 0x80;
const NO_SLOT: u8 = !NO_STRING;

impl<const WORDS: usize> Scanner<WORDS> {
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    const fn new() -> Self {
        Self {
            length: 0,
            is_line: false,
            at: 0,
            place: Position::Value,
            open: 0,
            outside: 0,
            nest: Nest::NONE,
            inner: Level::of(&NO_MEMBERS),
            fault: SyntaxError { kind: SyntaxErrorKind::Empty, offset: 0 },
            stack: [0; WORDS],
            outer: [Outer { members: &NO_MEMBERS, expected: &[], start: 0, slot: 0 }; LEVELS - 1],
        }
    }

    /// Where `rest` starts in the text.
    #[inline(always)]
    fn offset(&self, rest: &[u8]) -> usize {
        self.length.wrapping_sub(rest.len())
    }

    /// The outermost object is a watched one.
    fn watch(&mut self, members: &'static WatchedMembers) {
        self.open = self.open.wrapping_add(1);
        self.outside = 0;
        self.nest = Nest::NONE;
        self.inner = Level::of(members);
    }

    /// Any value; what is watched is an object's members.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn element<'t>(&mut self, rest: &'t [u8], level: &'static WatchedMembers, slots: &mut [Span]) -> Option<&'t [u8]> {
        match rest {
            [b'{', members @ ..] => {
                self.watch(level);
                self.members(members, Position::Open, slots)
            }
            _ => self.skip(rest, Position::Value),
        }
    }

    /// The elements of an array whose bracket ends just before `rest`; returns what follows its
    /// closing bracket.
    fn elements<'t>(
        &mut self,
        rest: &'t [u8],
        level: &'static WatchedMembers,
        spans: &mut Spans,
        each: &mut dyn FnMut(&[u8], &Spans),
    ) -> Option<&'t [u8]> {
        self.open = 1;
        let mut rest = self.space(rest);
        if let [b']', after @ ..] = rest {
            return Some(after);
        }
        let length = self.length;
        loop {
            if rest.is_empty() {
                return self.unexpected(Position::Value, rest);
            }
            *spans = NO_SPANS;
            // Spans count from the beginning of their element, and faults from that of the line.
            self.length = rest.len();
            let after = self.element(rest, level, spans);
            let (start, faulty_at) = (length.wrapping_sub(rest.len()), self.fault.offset);
            self.length = length;
            let Some(after) = after else {
                self.fault.offset = start.wrapping_add(faulty_at);
                return None;
            };
            each(rest.get(..rest.len().wrapping_sub(after.len())).unwrap_or_default(), spans);
            rest = match self.space(after) {
                [b',', after @ ..] => self.space(after),
                [b']', after @ ..] => return Some(after),
                other => return self.unexpected(Position::Next, other),
            };
        }
    }

    /// The members of watched objects from `place` on; returns what follows the closing brace of the outermost.
    fn members<'t>(&mut self, rest: &'t [u8], place: Position, slots: &mut [Span]) -> Option<&'t [u8]> {
        let mut inner = self.inner;
        let end = self.members_in(&mut inner, rest, place, slots);
        if end.is_none() {
            self.inner = inner;
        }
        end
    }

    #[inline(always)]
    fn members_in<'t>(
        &mut self,
        inner: &mut Level,
        mut rest: &'t [u8],
        mut place: Position,
        slots: &mut [Span],
    ) -> Option<&'t [u8]> {
        // What was begun with less of the text.
        let begun = if self.nest.depth > 0 {
            Some(self.skip(rest, place)?)
        } else if place == Position::Text {
            Some(self.string(rest)?)
        } else {
            None
        };
        if let Some(after) = begun {
            rest = after;
            self.record(inner, slots, rest);
            place = Position::Next;
        }
        'places: loop {
            if place <= Position::Member {
                rest = match self.space(rest) {
                    [b'"', name @ ..] => name,
                    end @ [b'}', ..] if place == Position::Open => {
                        rest = end;
                        place = Position::Next;
                        continue;
                    }
                    other => return self.unexpected(place, other),
                };
            }
            // Members, one behind the other.
            while place != Position::Next {
                if place != Position::Value {
                    rest = match inner.expected(rest) {
                        Some(after) => after,
                        None => match self.find_key(rest, inner.members) {
                            Some((after, members)) => {
                                inner.found(members);
                                after
                            }
                            None => return self.stop_in_name(rest),
                        },
                    };
                }
                rest = self.space(rest);
                inner.start = self.offset(rest);
                if let Some(child) = inner.child {
                    if slots.get(usize::from(inner.slot)).is_some_and(|span| !span.is_absent()) {
                        clear(child, slots);
                    }
                    if let [b'{', inside @ ..] = rest
                        && let Some(outer) = self.outer.get_mut(self.outside)
                    {
                        *outer = Outer::of(inner);
                        *inner = Level::of(child);
                        self.outside = self.outside.wrapping_add(1);
                        self.open = self.open.wrapping_add(1);
                        rest = inside;
                        place = Position::Open;
                        continue 'places;
                    }
                }
                rest = match rest {
                    [b'"', string @ ..] => self.close(plain(string))?,
                    // It may yet be a string.
                    [] => return self.unexpected(Position::Value, rest),
                    _ => {
                        inner.slot &= !NO_STRING;
                        match rest {
                            [b'-' | b'0'..=b'9', ..] => self.number(rest)?,
                            _ => self.skip(rest, Position::Value)?,
                        }
                    }
                };
                self.record(inner, slots, rest);
                place = Position::Next;
                if let [b',', b'"', name @ ..] = rest {
                    rest = name;
                    place = Position::Name;
                }
            }
            // Behind a value.
            match self.space(rest) {
                [b',', after @ ..] => {
                    rest = after;
                    place = Position::Member;
                }
                [b'}', after @ ..] => {
                    rest = after;
                    self.open = self.open.wrapping_sub(1);
                    self.outside = self.outside.wrapping_sub(1);
                    let Some(outer) = self.outer.get(self.outside) else { return Some(rest) };
                    inner.back_to(outer);
                    self.record(inner, slots, rest);
                    place = Position::Next;
                }
                other => return self.unexpected(Position::Next, other),
            }
        }
    }

    /// The current value ends just before `rest`.
    #[inline(always)]
    fn record(&self, level: &Level, slots: &mut [Span], rest: &[u8]) {
        if let Some(span) = slots.get_mut(usize::from(level.slot)) {
            #[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
            {
                *span = Span { start: level.start as u32, end: self.offset(rest) as u32 };
            }
        }
    }

    /// The text after the colon of the member whose name `rest` starts with, and the table from the
    /// member on.
    #[inline(never)]
    fn find_key<'t>(
        &mut self,
        rest: &'t [u8],
        members: &'static WatchedMembers,
    ) -> Option<(&'t [u8], &'static [WatchedMember])> {
        let mut keys = members.keys;
        while let [key, others @ ..] = keys {
            if let Some(after) = key.strip(rest) {
                return Some((after, keys));
            }
            keys = others;
        }
        let end = plain(rest);
        if let [b'"', b':', after @ ..] = end {
            return Some((after, keys));
        }
        let after = self.close(end)?;
        let length = rest.len().wrapping_sub(after.len()).wrapping_sub(1);
        // RFC 8259 §8.3: names are compared after their escapes are decoded.
        let name = Text::of_checked(rest.get(..length).unwrap_or_default());
        keys = members.keys;
        while let [key, others @ ..] = keys
            && !name.is(key.name)
        {
            keys = others;
        }
        Some((self.colon(after)?, keys))
    }

    /// The end of a name, its colon and white space; returns what follows.
    #[inline(always)]
    fn rest_of_name<'t>(&mut self, end: &'t [u8]) -> Option<&'t [u8]> {
        match end {
            [b'"', b':', after @ ..] => Some(self.space(after)),
            _ => {
                let after = self.close(end)?;
                self.colon(after)
            }
        }
    }

    /// Skips any value, or the rest of one from `place` in its innermost container on.
    #[inline(never)]
    fn skip<'t>(&mut self, rest: &'t [u8], place: Position) -> Option<&'t [u8]> {
        let mut nest = Nest { depth: self.open, in_object: false, around: 0 };
        if self.nest.depth > 0 {
            nest = core::mem::replace(&mut self.nest, Nest::NONE);
        }
        let end = self.skip_in(&mut nest, rest, place);
        // What is no container is not gone on with here.
        if end.is_none() && nest.depth > self.open {
            self.nest = nest;
        }
        end
    }

    /// The tight loop.
    #[inline(always)]
    fn skip_in<'t>(&mut self, nest: &mut Nest, mut rest: &'t [u8], mut place: Position) -> Option<&'t [u8]> {
        let outside = self.open;
        if place == Position::Text {
            rest = self.string(rest)?;
            place = Position::Next;
        }
        loop {
            let mut ended = place == Position::Next;
            if !ended {
                rest = self.space(rest);
                if place == Position::Open {
                    ended = self.is_empty(rest, nest.in_object)?;
                }
            }
            if !ended {
                let is_member = nest.in_object && place != Position::Value;
                match self.skip_one(nest, rest, is_member)? {
                    (after, true) => rest = after,
                    (inside, false) => {
                        rest = inside;
                        place = Position::Open;
                        continue;
                    }
                }
            }
            // A value has ended, or an empty container is about to.
            loop {
                if nest.depth == outside {
                    return Some(rest);
                }
                rest = self.space(rest);
                match (rest, nest.in_object) {
                    ([b',', after @ ..], _) => {
                        rest = after;
                        place = Position::Member;
                        break;
                    }
                    ([b'}', after @ ..], true) | ([b']', after @ ..], false) => {
                        rest = after;
                        nest.depth = nest.depth.wrapping_sub(1);
                        nest.in_object = nest.around & 1 == 1;
                        nest.around >>= 1;
                        if nest.depth.is_multiple_of(32) {
                            nest.around = self.stack.get(nest.depth / 32).copied().unwrap_or_default();
                        }
                    }
                    _ => return self.unexpected(Position::Next, rest),
                }
            }
        }
    }

    /// A member or a value; a container up to behind the bracket that opens it. Returns what
    /// follows, and whether the value has ended.
    #[inline(always)]
    fn skip_one<'t>(&mut self, nest: &mut Nest, mut rest: &'t [u8], is_member: bool) -> Option<(&'t [u8], bool)> {
        if is_member {
            let [b'"', name @ ..] = rest else { return self.unexpected(Position::Member, rest) };
            // Members that are plain strings, one behind the other, get by without the tests further down.
            let mut name = name;
            let mut end = plain(name);
            while let [b'"', b':', b'"', string @ ..] = end {
                let string = plain(string);
                let [b'"', b',', b'"', next @ ..] = string else {
                    return Some((self.close(string)?, true));
                };
                name = next;
                end = plain(next);
            }
            rest = match self.rest_of_name(end) {
                Some(after) => after,
                None => return self.stop_in_name(name),
            };
        }
        let after = match rest {
            [b'"', string @ ..] => self.close(plain(string))?,
            [open @ (b'{' | b'['), inside @ ..] => {
                if nest.depth.is_multiple_of(32) {
                    self.save(rest, nest.depth, nest.around)?;
                }
                nest.around = nest.around << 1 | u32::from(nest.in_object);
                nest.depth = nest.depth.wrapping_add(1);
                nest.in_object = *open == b'{';
                return Some((inside, false));
            }
            [b'-' | b'0'..=b'9', ..] => self.number(rest)?,
            [b't', ..] => self.literal(rest, b"true")?,
            [b'f', ..] => self.literal(rest, b"false")?,
            [b'n', ..] => self.literal(rest, b"null")?,
            [b'+' | b'.' | b'N' | b'I', ..] => return self.fault(SyntaxErrorKind::BadNumber, rest),
            _ => return self.unexpected(Position::Value, rest),
        };
        Some((after, true))
    }

    /// Whether a container is empty whose inside begins with `rest`.
    #[inline(always)]
    fn is_empty(&mut self, rest: &[u8], in_object: bool) -> Option<bool> {
        match (rest, in_object) {
            ([], _) => self.unexpected(Position::Open, rest),
            ([b'}', ..], true) | ([b']', ..], false) => Some(true),
            _ => Some(false),
        }
    }

    /// Keeps what the 32 containers up to `depth` are; beyond the last that can be kept, it is too
    /// deep.
    #[inline(never)]
    fn save(&mut self, rest: &[u8], depth: usize, around: u32) -> Option<()> {
        let Some(word) = self.stack.get_mut(depth / 32) else {
            return self.fault(SyntaxErrorKind::TooDeep { limit: WORDS * 32 }, rest);
        };
        *word = around;
        Some(())
    }

    /// The colon behind a name, with white space around it.
    #[inline(never)]
    fn colon<'t>(&mut self, rest: &'t [u8]) -> Option<&'t [u8]> {
        match self.space(rest) {
            [b':', rest @ ..] => Some(self.space(rest)),
            other => self.unexpected(Position::Member, other),
        }
    }

    fn literal<'t>(&mut self, from: &'t [u8], word: &'static [u8]) -> Option<&'t [u8]> {
        let mut rest = from;
        for byte in word {
            match rest {
                [same, after @ ..] if same == byte => rest = after,
                _ => {
                    self.note_unexpected(Position::Value, rest);
                    return self.stop(Position::Value, from);
                }
            }
        }
        Some(rest)
    }

    /// A number that may begin with a minus sign.
    #[inline(never)]
    fn number<'t>(&mut self, from: &'t [u8]) -> Option<&'t [u8]> {
        match self.digits_of_number(from) {
            // There may be more of it.
            Some([]) if self.is_line => self.note_unexpected(Position::Value, &[]),
            Some(rest) => return Some(rest),
            None => {}
        }
        self.stop(Position::Value, from)
    }

    /// `number = [ "-" ] int [ "." 1*DIGIT ] [ ( "e" / "E" ) [ "-" / "+" ] 1*DIGIT ]`, `int = "0" / ( digit1-9 *DIGIT )`
    /// (RFC 8259 §6).
    #[inline(always)]
    fn digits_of_number<'t>(&mut self, mut rest: &'t [u8]) -> Option<&'t [u8]> {
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
    fn digits<'t>(&mut self, from: &'t [u8]) -> Option<&'t [u8]> {
        let mut rest = from;
        while let [b'0'..=b'9', after @ ..] = rest {
            rest = after;
        }
        if rest.len() != from.len() {
            return Some(rest);
        }
        self.fault(if rest.is_empty() { SyntaxErrorKind::UnexpectedEnd } else { SyntaxErrorKind::BadNumber }, rest)
    }

    /// The end of a string whose next byte is a quote, or needs a second look; returns what follows
    /// its closing quote.
    #[inline(always)]
    fn close<'t>(&mut self, rest: &'t [u8]) -> Option<&'t [u8]> {
        match rest {
            [b'"', rest @ ..] => Some(rest),
            _ => self.string(rest),
        }
    }

    #[inline(never)]
    fn string<'t>(&mut self, mut rest: &'t [u8]) -> Option<&'t [u8]> {
        loop {
            rest = plain(rest);
            rest = match rest {
                [b'"', rest @ ..] => return Some(rest),
                _ => match self.special(rest) {
                    Some(after) => after,
                    None => return self.stop(Position::Text, rest),
                },
            }
        }
    }

    /// An escape, characters beyond ASCII, or a fault, in a string; returns what follows them.
    #[inline(never)]
    fn special<'t>(&mut self, rest: &'t [u8]) -> Option<&'t [u8]> {
        match rest {
            [] => self.fault(SyntaxErrorKind::UnexpectedEnd, rest),
            [b'\\', escape @ ..] => self.escape(escape),
            [0x80..=0xFF, ..] => match foreign(rest) {
                Ok(after) => Some(after),
                // Those before are right.
                Err(fault) if fault.len() < rest.len() => Some(fault),
                // There may be more of a character.
                Err(fault) if self.is_line && fault.len() < 4 && fault.iter().all(|byte| *byte >= 0x80) => {
                    self.fault(SyntaxErrorKind::UnexpectedEnd, fault)
                }
                Err(fault) => self.fault(SyntaxErrorKind::NotUtf8, fault),
            },
            _ => self.fault(SyntaxErrorKind::ControlCharacter, rest),
        }
    }

    /// `escape ( %x22 / %x5C / %x2F / %x62 / %x66 / %x6E / %x72 / %x74 / %x75 4HEXDIG )` (RFC 8259
    /// §7).
    fn escape<'t>(&mut self, rest: &'t [u8]) -> Option<&'t [u8]> {
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

    /// The end of the whole `text`.
    fn end(&mut self, text: &[u8], rest: Option<&[u8]>) -> Result<(), SyntaxError> {
        match rest.map(|rest| self.space(rest)) {
            Some([]) => return Ok(()),
            Some(rest @ [0x80..=0xFF, ..]) => self.unexpected(Position::Next, rest),
            Some(rest) => self.fault(SyntaxErrorKind::TrailingData, rest),
            None => None::<()>,
        };
        let SyntaxError { mut kind, offset } = self.fault;
        if is_header(text) {
            kind = SyntaxErrorKind::HeaderFraming;
        }
        Err(SyntaxError { kind, offset })
    }

    /// `rest` starts with what cannot stand at `place`.
    #[inline(always)]
    fn unexpected<T>(&mut self, place: Position, rest: &[u8]) -> Option<T> {
        self.note_unexpected(place, rest);
        None
    }

    #[inline(never)]
    fn note_unexpected(&mut self, place: Position, rest: &[u8]) {
        let kind = match rest {
            [0x80..=0xFF, ..] if foreign(rest).is_err_and(|fault| fault.len() == rest.len()) => {
                SyntaxErrorKind::NotUtf8
            }
            [_, ..] => SyntaxErrorKind::UnexpectedByte,
            [] if self.length == 0 => SyntaxErrorKind::Empty,
            [] => SyntaxErrorKind::UnexpectedEnd,
        };
        self.fault::<()>(kind, rest);
        self.stop::<()>(place, rest);
    }

    /// Skips white space (RFC 8259 §2). Hosts send none, so that a look at the first byte is what
    /// it costs.
    #[inline(always)]
    fn space<'t>(&self, rest: &'t [u8]) -> &'t [u8] {
        match rest {
            [0..=b' ', ..] => self.some_space(rest),
            _ => rest,
        }
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn some_space<'t>(&self, mut rest: &'t [u8]) -> &'t [u8] {
        while let [byte @ (b' ' | b'\t' | b'\n' | b'\r'), after @ ..] = rest
            && !(self.is_line && matches!(byte, b'\n' | b'\r'))
        {
            rest = after;
        }
        rest
    }

    /// It goes on here, should there be more of the text.
    #[cold]
    fn stop<T>(&mut self, place: Position, rest: &[u8]) -> Option<T> {
        self.place = place;
        self.at = self.offset(rest);
        None
    }

    /// It goes on with the name that begins at `rest`, which has its opening quote before it.
    #[cold]
    fn stop_in_name<T>(&mut self, rest: &[u8]) -> Option<T> {
        self.place = Position::Member;
        self.at = self.offset(rest).wrapping_sub(1);
        None
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
fn clear(level: &'static WatchedMembers, slots: &mut [Span]) {
    if let Some(span) = slots.get_mut(usize::from(level.others & !NO_STRING)) {
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

/// The text after the bytes beyond ASCII that `text` starts with, if they are UTF-8 (Unicode 15,
/// table 3-7); else what begins with the first sequence that is none.
fn foreign(text: &[u8]) -> Result<&[u8], &[u8]> {
    let length = text.iter().take_while(|byte| **byte >= 0x80).count();
    match core::str::from_utf8(text.get(..length).unwrap_or_default()) {
        Ok(_) => Ok(text.get(length..).unwrap_or_default()),
        Err(error) => Err(text.get(error.valid_up_to()..).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
