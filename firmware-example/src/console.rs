//! The console: the UART of the board under test, as the rig reads and writes it.
//!
//! A [`ConsoleUart`] is the rig's end of the wire. It puts each byte that comes in into a [`Ring`],
//! which keeps the last [`RING`] bytes. Each byte has a position, which counts from the start of the
//! rig and never goes back. A reader therefore knows which bytes it missed.
//!
//! # Text
//! Operations show bytes in one of two [`Encoding`]s, and take the same.
//!
//! - `text` is UTF-8. Carriage return, newline and tab stand for themselves, `\\` is a backslash, and
//!   `\xNN` is a byte that is no text: another control character, or a part of no UTF-8 character. In
//!   arguments, `\n`, `\r`, `\t`, `\e` and `\0` are known besides.
//! - `hex` is two hexadecimal digits a byte. In arguments, spaces may be between bytes.
//!
//! Both say each byte exactly, so that what was read can be written again.

use core::fmt;

use crate::board::Fault;

/// The number of bytes that a rig keeps of what came in.
pub const RING: usize = 8192;
/// The speed of the console until an operation sets another, in baud.
pub const SPEED: u32 = 115_200;
/// The lowest speed, in baud.
pub const MIN_SPEED: u32 = 300;
/// The highest speed, in baud.
pub const MAX_SPEED: u32 = 3_000_000;
/// The most elements of a pattern, and the most bytes of a literal.
pub const MAX_PATTERN: usize = 63;

/// The framings that the console knows: data bits, parity (None, Even or Odd) and stop bits.
pub const FRAMINGS: &[&str] = &["8N1", "8E1", "8O1", "8N2", "7E1", "7O1", "7N2"];

/// The rig's end of the wire to the console of the board under test.
///
/// A UART receives all the time: its interrupt, or its simulation, puts each byte into a [`Ring`].
pub trait ConsoleUart {
    /// Sets speed and framing. What is being sent is sent first.
    fn configure(&mut self, line: LineSettings) -> Result<(), Fault>;

    /// Takes bytes to send, as many as there is room for, and returns their number.
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Fault>;

    /// Whether bytes that were taken are not on the wire yet.
    fn is_sending(&mut self) -> Result<bool, Fault>;

    /// Holds the line low, which is a break, or lets it go.
    fn set_break(&mut self, on: bool) -> Result<(), Fault>;

    /// The counts of what came in.
    fn counters(&mut self) -> Result<Counters, Fault>;

    /// Copies the bytes from position `from` on that were received by now, as many as fit.
    fn copy(&mut self, from: u64, into: &mut [u8]) -> Result<Chunk, Fault>;
}

/// Speed and framing of a UART.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineSettings {
    /// The speed in baud.
    pub speed: u32,
    /// The number of data bits, 7 or 8.
    pub data_bits: u8,
    /// The parity bit, if there is one.
    pub parity: Option<Parity>,
    /// The number of stop bits, 1 or 2.
    pub stop_bits: u8,
}

/// The parity bit of a byte on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    /// It makes the number of ones even.
    Even,
    /// It makes the number of ones odd.
    Odd,
}

impl LineSettings {
    /// 115200 baud, 8N1: what the console has at the start and after the safe state.
    pub const DEFAULT: Self = Self { speed: SPEED, data_bits: 8, parity: None, stop_bits: 1 };

    /// The framing of this name, which is one of [`FRAMINGS`], at the same speed.
    #[must_use]
    pub fn with_framing(self, name: &str) -> Option<Self> {
        let &[data, parity, stop] = name.as_bytes() else { return None };
        let parity = match parity {
            b'N' => None,
            b'E' => Some(Parity::Even),
            b'O' => Some(Parity::Odd),
            _ => return None,
        };
        FRAMINGS.contains(&name).then_some(Self {
            speed: self.speed,
            data_bits: data.wrapping_sub(b'0'),
            parity,
            stop_bits: stop.wrapping_sub(b'0'),
        })
    }

    /// The time of one byte on the wire, in nanoseconds.
    pub const fn byte_nanos(self) -> u64 {
        let bits = 1 + self.data_bits as u64 + self.parity.is_some() as u64 + self.stop_bits as u64;
        bits * 1_000_000_000 / if self.speed == 0 { 1 } else { self.speed as u64 }
    }
}

/// The counts of a console since the start of the rig.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// The bytes that were received, which is also the position of the next one.
    pub received: u64,
    /// The bytes without a stop bit in its place.
    pub framing_errors: u32,
    /// The bytes with a wrong parity bit.
    pub parity_errors: u32,
    /// How often the UART lost bytes because nobody took them from it in time. Each time is one byte or
    /// more.
    pub overruns: u32,
    /// The breaks that were received.
    pub breaks: u32,
}

/// The bytes that [`ConsoleUart::copy`] gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The position of the first of them. It is beyond the one that was asked for if older bytes were
    /// overwritten.
    pub at: u64,
    /// Their number.
    pub count: usize,
}

/// The last `N` bytes that came in, and the counts. `N` is a power of two.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    bytes: [u8; N],
    /// The counts. Of them, only `received` is counted here.
    pub counters: Counters,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Ring<N> {
    const MASK: usize = {
        assert!(N.is_power_of_two(), "the size of a ring is a power of two");
        N - 1
    };

    /// An empty ring.
    pub const fn new() -> Self {
        let none = Counters { received: 0, framing_errors: 0, parity_errors: 0, overruns: 0, breaks: 0 };
        Self { bytes: [0; N], counters: none }
    }

    /// Takes in a byte. If the ring is full, the oldest one goes.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the mask needs the low bits only")]
    pub fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.counters.received as usize & Self::MASK) {
            *place = byte;
        }
        self.counters.received += 1;
    }

    /// Copies the bytes from position `from` on, as many as there are and fit.
    #[allow(clippy::cast_possible_truncation, reason = "the mask needs the low bits only")]
    pub fn copy(&self, from: u64, into: &mut [u8]) -> Chunk {
        let received = self.counters.received;
        let oldest = received.saturating_sub(N as u64);
        let at = from.clamp(oldest, received);
        let count = usize::try_from(received - at).unwrap_or(usize::MAX).min(into.len());
        for (offset, byte) in into.iter_mut().take(count).enumerate() {
            let place = (at as usize).wrapping_add(offset) & Self::MASK;
            *byte = self.bytes.get(place).copied().unwrap_or_default();
        }
        Chunk { at, count }
    }
}

/// How operations show bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8 with escapes.
    Text,
    /// Two hexadecimal digits a byte.
    Hex,
    /// Text on one line: carriage return, newline and tab are escaped, too. Logs and errors have it.
    Line,
}

/// The names of the [`Encoding`]s.
pub const ENCODINGS: &[&str] = &["text", "hex"];

impl Encoding {
    /// The encoding of this name, `text` for any that is not known.
    pub fn of(name: &str) -> Self {
        if name == "hex" { Self::Hex } else { Self::Text }
    }

    /// The name of the encoding.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text | Self::Line => "text",
            Self::Hex => "hex",
        }
    }
}

/// Bytes as operations show them. As a message or an output, it is a text in the encoding.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(pub &'a [u8], pub Encoding);

impl<'a> Shown<'a> {
    /// The first bytes of it that take at most `budget` bytes in a JSON string, and a bit less.
    #[must_use]
    pub fn head(self, budget: usize) -> Self {
        let Self(bytes, encoding) = self;
        let fits = fitting(bytes.iter(), encoding, budget);
        Self(bytes.get(..fits).unwrap_or(bytes), encoding)
    }

    /// The last bytes of it that take at most `budget` bytes in a JSON string, and a bit less.
    #[must_use]
    pub fn tail(self, budget: usize) -> Self {
        let Self(bytes, encoding) = self;
        let skipped = bytes.len() - fitting(bytes.iter().rev(), encoding, budget);
        Self(bytes.get(skipped..).unwrap_or(bytes), encoding)
    }

    /// The bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// How many bytes fit, each at its dearest.
fn fitting<'a>(bytes: impl Iterator<Item = &'a u8>, encoding: Encoding, budget: usize) -> usize {
    let mut left = budget;
    bytes
        .take_while(|byte| {
            let cost = match byte {
                _ if encoding == Encoding::Hex => 2,
                b'\t' | b'\n' | b'\r' if encoding == Encoding::Text => 2,
                b'"' => 2,
                b'\\' => 4,
                b' '..=b'~' => 1,
                _ => 5,
            };
            left.checked_sub(cost).map(|rest| left = rest).is_some()
        })
        .count()
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes, encoding) = *self;
        if encoding == Encoding::Hex {
            return bytes.iter().try_for_each(|byte| hex(f, "", *byte));
        }
        for chunk in bytes.utf8_chunks() {
            let mut text = chunk.valid();
            let is_line = encoding == Encoding::Line;
            while let Some(place) = text.find(|char: char| is_escaped(char) || (is_line && matches!(char, '\t'..='\r')))
            {
                let (before, rest) = text.split_at_checked(place).unwrap_or((text, ""));
                let mut chars = rest.chars();
                f.write_str(before)?;
                match chars.next() {
                    Some('\\') => f.write_str("\\\\")?,
                    Some('\n') => f.write_str("\\n")?,
                    Some('\r') => f.write_str("\\r")?,
                    Some('\t') => f.write_str("\\t")?,
                    Some(char) => char.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| hex(f, "\\x", byte))?,
                    None => break,
                }
                text = chars.as_str();
            }
            f.write_str(text)?;
            chunk.invalid().iter().try_for_each(|byte| hex(f, "\\x", *byte))?;
        }
        Ok(())
    }
}

/// Whether a character is not shown as itself: a backslash, or one that could command a terminal.
fn is_escaped(char: char) -> bool {
    matches!(char, '\\' | '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f'..='\u{9f}')
}

fn hex(f: &mut fmt::Formatter<'_>, prefix: &str, byte: u8) -> fmt::Result {
    f.write_str(prefix)?;
    for digit in [byte >> 4, byte & 15] {
        fmt::Write::write_char(f, char::from(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }))?;
    }
    Ok(())
}

impl serde::Serialize for Shown<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The bytes that an argument says, one by one.
#[derive(Debug, Clone)]
pub struct Spelt<'a> {
    text: &'a [u8],
    at: usize,
    encoding: Encoding,
}

/// A byte of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeltByte {
    /// The byte.
    pub byte: u8,
    /// Whether a backslash stands before it, so that it means itself in a pattern.
    pub is_escaped: bool,
}

/// Why an argument says no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpellingError {
    /// The backslash at this byte begins none of the known escapes.
    Escape(usize),
    /// At this byte there are no two hexadecimal digits.
    Digits(usize),
}

impl fmt::Display for SpellingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Escape(at) => write!(
                f,
                "the backslash at byte {at} begins no escape; known: \\\\ \\n \\r \\t \\e \\0 \\xNN, and \\* \\? \\# of a pattern"
            ),
            Self::Digits(at) => write!(f, "at byte {at} there are no two hexadecimal digits"),
        }
    }
}

impl core::error::Error for SpellingError {}

impl<'a> Spelt<'a> {
    /// The bytes that `text` says in this encoding.
    pub const fn new(text: &'a str, encoding: Encoding) -> Self {
        Self { text: text.as_bytes(), at: 0, encoding }
    }

    fn digits(&self, at: usize) -> Option<u8> {
        let [high, low] = *self.text.get(at..at.saturating_add(2))? else { return None };
        Some(digit(high)? << 4 | digit(low)?)
    }
}

fn digit(char: u8) -> Option<u8> {
    match char {
        b'0'..=b'9' => Some(char - b'0'),
        b'a'..=b'f' => Some(char - b'a' + 10),
        b'A'..=b'F' => Some(char - b'A' + 10),
        _ => None,
    }
}

impl Iterator for Spelt<'_> {
    type Item = Result<SpeltByte, SpellingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.encoding == Encoding::Hex {
            while self.text.get(self.at) == Some(&b' ') {
                self.at += 1;
            }
            self.text.get(self.at)?;
            let Some(byte) = self.digits(self.at) else {
                let error = SpellingError::Digits(self.at);
                self.at = self.text.len();
                return Some(Err(error));
            };
            self.at += 2;
            return Some(Ok(SpeltByte { byte, is_escaped: true }));
        }
        let start = self.at;
        let byte = *self.text.get(start)?;
        self.at += 1;
        if byte != b'\\' {
            return Some(Ok(SpeltByte { byte, is_escaped: false }));
        }
        let escape = self.text.get(self.at).copied();
        self.at += 1;
        let byte = match escape {
            Some(byte @ (b'\\' | b'*' | b'?' | b'#')) => Some(byte),
            Some(b'n') => Some(b'\n'),
            Some(b'r') => Some(b'\r'),
            Some(b't') => Some(b'\t'),
            Some(b'e') => Some(0x1b),
            Some(b'0') => Some(0),
            Some(b'x') => {
                let byte = self.digits(self.at);
                self.at += 2;
                byte
            }
            _ => None,
        };
        let Some(byte) = byte else {
            self.at = self.text.len();
            return Some(Err(SpellingError::Escape(start)));
        };
        Some(Ok(SpeltByte { byte, is_escaped: true }))
    }
}

/// The text that `uart-expect` waits for: a literal, or a pattern.
///
/// In a pattern, `?` is any byte of a line, `*` is any number of them, and `#` is one digit or more. A
/// match ends as early as possible, and is then as short as possible. A backslash before them makes them
/// mean themselves.
///
/// A pattern is stepped through byte by byte, and looks at none twice.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    elements: [u16; MAX_PATTERN],
    count: usize,
}

/// The elements of a [`Pattern`] that are no byte.
const ONE: u16 = 256;
const MANY: u16 = 257;
const NUMBER: u16 = 258;

/// Why a text is no pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// The text says no bytes.
    Spelling(SpellingError),
    /// The text has more than [`MAX_PATTERN`] elements.
    TooLong,
    /// Nothing at all would match.
    Empty,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spelling(error) => error.fmt(f),
            Self::TooLong => write!(f, "it has more than {MAX_PATTERN} bytes"),
            Self::Empty => f.write_str("it would match where nothing is"),
        }
    }
}

impl core::error::Error for PatternError {}

impl Pattern {
    /// The pattern of this text, or the literal if `is_literal`.
    pub fn new(text: &str, encoding: Encoding, is_literal: bool) -> Result<Self, PatternError> {
        let mut this = Self { elements: [0; MAX_PATTERN], count: 0 };
        for spelt in Spelt::new(text, encoding) {
            let SpeltByte { byte, is_escaped } = spelt.map_err(PatternError::Spelling)?;
            let element = match byte {
                b'?' if !is_escaped && !is_literal => ONE,
                b'*' if !is_escaped && !is_literal => MANY,
                b'#' if !is_escaped && !is_literal => NUMBER,
                _ => u16::from(byte),
            };
            *this.elements.get_mut(this.count).ok_or(PatternError::TooLong)? = element;
            this.count += 1;
        }
        if this.is_end(this.skip_many(1, false)) {
            return Err(PatternError::Empty);
        }
        Ok(this)
    }

    /// The states in which nothing has matched yet.
    pub fn start(&self) -> u64 {
        self.skip_many(1, false)
    }

    /// The states after this byte. A match may begin at each byte.
    pub fn step(&self, states: u64, byte: u8) -> u64 {
        self.advance(states, byte, false) | self.start()
    }

    /// Whether a match ends here.
    pub const fn is_end(&self, states: u64) -> bool {
        states >> self.count & 1 == 1
    }

    /// The length of the shortest match at the end of these bytes; 0 if there is none.
    pub fn length_at_end(&self, bytes: &[u8]) -> usize {
        let mut states = self.skip_many(1, true);
        for (place, byte) in bytes.iter().rev().enumerate() {
            states = self.advance(states, *byte, true);
            if self.is_end(states) {
                return place + 1;
            }
        }
        0
    }

    /// The element behind a state, from the front or from the back.
    fn element(&self, state: usize, backwards: bool) -> Option<u16> {
        let place = if backwards { self.count.checked_sub(state + 1)? } else { state };
        (place < self.count).then(|| self.elements.get(place).copied()).flatten()
    }

    /// A state is how many elements have matched: a bit each.
    fn advance(&self, states: u64, byte: u8, backwards: bool) -> u64 {
        let (mut left, mut next) = (states, 0);
        while left != 0 {
            let state = left.trailing_zeros();
            left &= left - 1;
            let (here, behind) = (1 << state, 1 << ((state + 1) % 64));
            next |= match self.element(state as usize, backwards) {
                Some(ONE) if !is_line_end(byte) => behind,
                Some(MANY) if !is_line_end(byte) => here,
                Some(NUMBER) if byte.is_ascii_digit() => here | behind,
                Some(literal) if literal == u16::from(byte) => behind,
                _ => 0,
            };
        }
        self.skip_many(next, backwards)
    }

    /// Adds the states behind each `*`, since it may match nothing.
    fn skip_many(&self, mut states: u64, backwards: bool) -> u64 {
        let mut left = states;
        while left != 0 {
            let state = left.trailing_zeros();
            left &= left - 1;
            let behind = 1 << ((state + 1) % 64);
            if self.element(state as usize, backwards) == Some(MANY) && states & behind == 0 {
                states |= behind;
                left |= behind;
            }
        }
        states
    }
}

const fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;

    use super::*;

    fn bytes(text: &str, encoding: Encoding) -> Result<Vec<u8>, SpellingError> {
        Spelt::new(text, encoding).map(|spelt| spelt.map(|spelt| spelt.byte)).collect()
    }

    #[test]
    fn what_is_shown_says_each_byte_exactly() {
        let all: Vec<u8> = (0..=255).collect();
        for sample in [
            &all[..],
            b"login: \r\n\ttab \\ \"quoted\" \x1b[31mred\x1b[0m",
            "Grüße, 世界 \u{9b}\u{7f}".as_bytes(),
            b"\xe4\xb8",
            b"\xf0\x9f\x98\x80\xff\xc0\x80",
            b"",
        ] {
            for encoding in [Encoding::Text, Encoding::Hex, Encoding::Line] {
                let shown = format!("{}", Shown(sample, encoding));
                let may_be = |char| encoding == Encoding::Text && "\r\n\t".contains(char);
                assert!(!shown.chars().any(|char| char.is_control() && !may_be(char)), "{shown:?}");
                assert_eq!(bytes(&shown, encoding).as_deref(), Ok(sample), "{shown:?}");
                let json = serde_json::to_string(&shown).unwrap();
                for budget in [0, 1, 2, 4, 5, 7, json.len() - 2, 4096] {
                    let (head, tail) = (Shown(sample, encoding).head(budget), Shown(sample, encoding).tail(budget));
                    assert!(sample.starts_with(head.bytes()) && sample.ends_with(tail.bytes()));
                    for part in [head, tail] {
                        assert!(serde_json::to_string(&part.to_string()).unwrap().len() - 2 <= budget, "{part}");
                    }
                }
            }
        }
        assert_eq!(Shown(b"a\\b\x1b\xff\r\n", Encoding::Text).to_string(), "a\\\\b\\x1b\\xff\r\n");
        assert_eq!(Shown(b"a\xff", Encoding::Hex).to_string(), "61ff");
    }

    #[test]
    fn escapes_are_read_and_others_refused_with_their_place() {
        assert_eq!(bytes(r"a\\\n\r\t\e\0\x7F\*\?\#", Encoding::Text).unwrap(), b"a\\\n\r\t\x1b\0\x7f*?#");
        assert_eq!(bytes("00 fF  7f", Encoding::Hex).unwrap(), [0, 255, 127]);
        for (text, encoding, error) in [
            (r"ab\q", Encoding::Text, SpellingError::Escape(2)),
            ("ab\\", Encoding::Text, SpellingError::Escape(2)),
            (r"\x4", Encoding::Text, SpellingError::Escape(0)),
            (r"\xg0", Encoding::Text, SpellingError::Escape(0)),
            ("00 f", Encoding::Hex, SpellingError::Digits(3)),
            ("0g", Encoding::Hex, SpellingError::Digits(0)),
            ("é", Encoding::Hex, SpellingError::Digits(0)),
        ] {
            assert_eq!(bytes(text, encoding), Err(error), "{text}");
        }
    }

    /// The first match in the text, and its place.
    fn find(pattern: Pattern, text: &[u8]) -> Option<(usize, &[u8])> {
        let mut states = pattern.start();
        for (place, byte) in text.iter().enumerate() {
            states = pattern.step(states, *byte);
            if pattern.is_end(states) {
                let seen = &text[..=place];
                let length = pattern.length_at_end(seen);
                return Some((place + 1 - length, &seen[place + 1 - length..]));
            }
        }
        None
    }

    #[test]
    fn a_pattern_finds_its_first_and_shortest_match() {
        for (pattern, text, found) in [
            ("> ", "ver\r\n1.2\r\n> ", Some("> ")),
            ("aab", "aaaab", Some("aab")),
            ("abab", "abacabab", Some("abab")),
            ("3V3 = #.# V", "3V3 = x\r\n3V3 = 3.301 V", Some("3V3 = 3.301 V")),
            ("#", "abc 42", Some("4")),
            ("<*>", "a <b\r\n<c><d>", Some("<c>")),
            ("a*b", "a x a y b b", Some("a y b")),
            ("a**b", "ab", Some("ab")),
            ("a?c", "a\nc abc", Some("abc")),
            (r"\*\#\?", "*x *#?", Some("*#?")),
            ("*x", "abx", Some("x")),
            ("ready", "read", None),
            ("a*b", "a\r\nb", None),
        ] {
            let pattern = Pattern::new(pattern, Encoding::Text, false).unwrap();
            assert_eq!(find(pattern, text.as_bytes()).map(|(_, found)| found), found.map(str::as_bytes), "{pattern:?}");
        }
        let literal = Pattern::new("a*b", Encoding::Text, true).unwrap();
        assert_eq!(find(literal, b"axb a*b"), Some((4, &b"a*b"[..])));
        let binary = Pattern::new("00ff", Encoding::Hex, true).unwrap();
        assert_eq!(find(binary, &[1, 0, 0, 255]), Some((2, &[0, 255][..])));
    }

    /// The slow way: each place for the end, then each place for the start.
    fn find_slowly(pattern: &[u8], text: &[u8]) -> Option<(usize, usize)> {
        fn matches(pattern: &[u8], text: &[u8]) -> bool {
            match (pattern, text) {
                ([], []) => true,
                ([b'*', rest @ ..], _) => {
                    matches(rest, text)
                        || matches!(text, [byte, after @ ..] if !is_line_end(*byte) && matches(pattern, after))
                }
                ([b'#', rest @ ..], [byte, after @ ..]) => {
                    byte.is_ascii_digit() && (matches(rest, after) || matches(pattern, after))
                }
                ([b'?', rest @ ..], [byte, after @ ..]) => !is_line_end(*byte) && matches(rest, after),
                ([literal, rest @ ..], [byte, after @ ..]) => literal == byte && matches(rest, after),
                _ => false,
            }
        }
        (1..=text.len())
            .find_map(|end| (0..end).rev().find(|start| matches(pattern, &text[*start..end])).map(|start| (start, end)))
    }

    #[test]
    fn patterns_of_all_kinds_match_as_the_slow_way_does() {
        let mut seed = 1_u32;
        let mut draw = |of: &[u8], most: usize| -> String {
            let mut next = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 16) as usize
            };
            let count = next() % most + 1;
            (0..count).map(|_| char::from(of[next() % of.len()])).collect()
        };
        let mut tried = 0;
        for _ in 0..20_000 {
            let (pattern, text) = (draw(b"ab1*?#", 6), draw(b"aab12\n", 12));
            let Ok(compiled) = Pattern::new(&pattern, Encoding::Text, false) else { continue };
            let found = find(compiled, text.as_bytes()).map(|(start, found)| (start, start + found.len()));
            assert_eq!(found, find_slowly(pattern.as_bytes(), text.as_bytes()), "{pattern:?} in {text:?}");
            tried += 1;
        }
        assert!(tried > 15_000, "{tried}");
    }

    #[test]
    fn a_pattern_has_limits() {
        let longest = "a".repeat(MAX_PATTERN);
        let pattern = Pattern::new(&longest, Encoding::Text, true).unwrap();
        assert_eq!(find(pattern, format!("b{longest}").as_bytes()), Some((1, longest.as_bytes())));
        let longer = "a".repeat(MAX_PATTERN + 1);
        assert_eq!(Pattern::new(&longer, Encoding::Text, true).unwrap_err(), PatternError::TooLong);
        for empty in ["", "*", "**"] {
            assert_eq!(Pattern::new(empty, Encoding::Text, false).unwrap_err(), PatternError::Empty);
        }
        assert!(Pattern::new("*", Encoding::Text, true).is_ok());
        let error = Pattern::new(r"\y", Encoding::Text, true).unwrap_err();
        assert_eq!(error, PatternError::Spelling(SpellingError::Escape(0)));
    }

    #[test]
    fn a_ring_keeps_the_last_bytes_and_says_which() {
        let mut ring = Ring::<8>::new();
        assert_eq!(ring.copy(0, &mut [0; 4]), Chunk { at: 0, count: 0 });
        for byte in 0..20 {
            ring.push(byte);
        }
        let mut into = [0; 8];
        assert_eq!((ring.copy(0, &mut into), into), (Chunk { at: 12, count: 8 }, [12, 13, 14, 15, 16, 17, 18, 19]));
        let mut into = [0; 3];
        assert_eq!((ring.copy(14, &mut into), into), (Chunk { at: 14, count: 3 }, [14, 15, 16]));
        assert_eq!(ring.copy(19, &mut into).count, 1);
        assert_eq!(ring.copy(99, &mut into), Chunk { at: 20, count: 0 });
        assert_eq!(ring.counters.received, 20);
    }

    #[test]
    fn framings_have_names() {
        for name in FRAMINGS {
            let line = LineSettings::DEFAULT.with_framing(name).unwrap();
            let parity = line.parity.map_or("N", |parity| if parity == Parity::Even { "E" } else { "O" });
            assert_eq!(format!("{}{parity}{}", line.data_bits, line.stop_bits), *name);
        }
        for name in ["", "8n1", "9N1", "8N3", "8N", "8N11"] {
            assert_eq!(LineSettings::DEFAULT.with_framing(name), None);
        }
        assert_eq!(LineSettings { speed: 3_000_000, ..LineSettings::DEFAULT }.byte_nanos(), 3333);
        assert_eq!(LineSettings::DEFAULT.with_framing("8E1").unwrap().byte_nanos(), 11 * 1_000_000_000 / 115_200);
    }
}
