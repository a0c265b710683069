//! Bytes to messages, however the bytes were cut.

use rigline::frame::{Frame, HeapFramer, LineEnds, TooLong};
use rigline::json::check::DEPTH;
use rigline::json::{Json, JsonKind, check::SyntaxErrorKind};

use crate::message::{LineKind, Reader, Reading, Span};

/// The longest line, in bytes, where nothing else is said: 16 MiB, as hosts have it.
pub const LIMIT: usize = 16 << 20;

/// How many words a record has:
///
/// | word | what |
/// |---|---|
/// | 0 | bits 0 to 7 the [`LineKind`]; 8 to 15 the protocol; 16: recorded as received; 17: recorded as sent; 18: the line stands in what was [spilled](Decoder::spilled) |
/// | 1 | the line's number, from 1 |
/// | 2, 3 | where the text begins in the bytes that were fed, or in what was spilled; its length |
/// | 4, 5 | the method, from the text's beginning: a JSON string, or nothing |
/// | 6, 7 | the operation |
/// | 8, 9 | the id |
/// | 10, 11 | the [`FaultKind`], 0 if there is none; its place, or the length of a line that is too long |
/// | 12, 13 | where the line's content stands in the stream: lower and upper half |
/// | 14 | the length of the line's content in the stream |
/// | 15 | the time of a recorded line, in milliseconds |
pub const FIELDS: usize = 16;

const RECEIVED: u32 = 1 << 16;
const SENT: u32 = 1 << 17;
const SPILLED: u32 = 1 << 18;

const LF: u8 = b'\n';
const CR: u8 = b'\r';

/// Decodes one stream.
#[derive(Debug)]
pub struct Decoder {
    framer: HeapFramer,
    ends: LineEnds,
    reader: Reader,
    records: Vec<u32>,
    spilled: Vec<u8>,
    /// Of the line that has begun.
    line: Line,
    after_cr: bool,
}

/// A line that has begun.
#[derive(Debug, Clone, Copy)]
struct Line {
    number: u32,
    /// Where the line begins in the stream.
    start: u64,
    /// How many of its bytes have come, and its first ones.
    length: usize,
    first: [u8; 3],
    /// Where the line begins in the bytes that are fed; nothing if it began before them.
    place: Option<usize>,
}

impl Line {
    fn begin(number: u32, start: u64, place: Option<usize>) -> Self {
        Self { number, start, length: 0, first: [0; 3], place }
    }

    /// How many bytes stand before its content.
    fn mark(&self) -> usize {
        if self.length >= 3 && self.first == [0xEF, 0xBB, 0xBF] { 3 } else { 0 }
    }
}

impl Decoder {
    /// For lines of up to `limit` bytes.
    pub fn new(limit: usize, ends: LineEnds) -> Self {
        Self {
            framer: HeapFramer::new(limit).with_mode(ends),
            ends,
            reader: Reader::default(),
            records: Vec::new(),
            spilled: Vec::new(),
            line: Line::begin(1, 0, None),
            after_cr: false,
        }
    }

    /// How many records there are of the last call.
    pub fn count(&self) -> usize {
        self.records.len() / FIELDS
    }

    /// The results of the last call, [`FIELDS`] words each.
    pub fn records(&self) -> &[u32] {
        &self.records
    }

    /// The texts of the last call that do not stand in the bytes that were fed.
    pub fn spilled(&self) -> &[u8] {
        &self.spilled
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.records.clear();
        self.spilled.clear();
        self.line.place = (self.line.length == 0).then_some(0);
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = match self.ends {
                LineEnds::Lf => rest.iter().position(|byte| *byte == LF),
                LineEnds::Serial => rest.iter().position(|byte| matches!(*byte, LF | CR)),
            };
            let (piece, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            self.push(piece);
            if end.is_some() {
                self.end_line(piece.last() == Some(&CR), bytes.len() - after.len());
            }
            rest = after;
        }
    }

    /// The input has ended.
    pub fn finish(&mut self) {
        self.records.clear();
        self.spilled.clear();
        self.line.place = None;
        self.framer.finish();
        self.take();
    }

    /// Gives the framer bytes of one line.
    fn push(&mut self, mut piece: &[u8]) {
        for (place, byte) in self.line.first.iter_mut().skip(self.line.length).zip(piece) {
            *place = *byte;
        }
        self.line.length += piece.len();
        while !piece.is_empty() {
            let space = self.framer.space();
            let count = space.len().min(piece.len());
            let (now, later) = piece.split_at(count);
            if let Some(space) = space.get_mut(..count) {
                space.copy_from_slice(now);
            }
            self.framer.commit(count);
            piece = later;
        }
    }

    fn end_line(&mut self, is_cr: bool, place: usize) {
        self.take();
        let Line { number, start, length, .. } = self.line;
        // CR LF ends one line.
        let is_second_half = std::mem::replace(&mut self.after_cr, is_cr) && length == 1 && !is_cr;
        let number = if is_second_half { number } else { number.saturating_add(1) };
        self.line = Line::begin(number, start + length as u64, Some(place));
    }

    /// Reads the line that the framer has, if it has one.
    fn take(&mut self) {
        let Self { framer, reader, records, spilled, line, .. } = self;
        match framer.next_frame() {
            None => {}
            Some(Frame::TooLong(TooLong { dropped, .. })) => {
                let mut record = Record::of(line, dropped);
                record.0[0] = LineKind::Fault as u32 | SPILLED;
                record.fault(FaultKind::TooLong, dropped);
                record.0[2] = small(spilled.len());
                records.extend(record.0);
            }
            Some(Frame::Line(content)) => {
                let content = &*content;
                let mut record = Record::of(line, content.len());
                match unwrap(content) {
                    Some(Recorded { bytes, direction, milliseconds }) => {
                        record.place(spilled, &bytes);
                        record.0[15] = milliseconds;
                        record.read(reader, &bytes);
                        record.0[0] |= direction | SPILLED;
                    }
                    None => {
                        record.read(reader, content);
                        match line.place {
                            Some(place) => {
                                record.0[2] = small(place + line.mark());
                                record.0[3] = small(content.len());
                            }
                            None => {
                                record.place(spilled, content);
                                record.0[0] |= SPILLED;
                            }
                        }
                    }
                }
                records.extend(record.0);
            }
        }
    }
}

struct Record([u32; FIELDS]);

impl Record {
    fn of(line: &Line, length: usize) -> Self {
        let mut record = Self([0; FIELDS]);
        let start = line.start + line.mark() as u64;
        record.0[1] = line.number;
        record.0[12] = u32::try_from(start & 0xFFFF_FFFF).unwrap_or_default();
        record.0[13] = u32::try_from(start >> 32).unwrap_or_default();
        record.0[14] = small(length);
        record
    }

    fn place(&mut self, spilled: &mut Vec<u8>, bytes: &[u8]) {
        self.0[2] = small(spilled.len());
        self.0[3] = small(bytes.len());
        spilled.extend_from_slice(bytes);
    }

    fn read(&mut self, reader: &mut Reader, text: &[u8]) {
        match reader.read(text) {
            Ok(Reading { kind, protocol, method, operation, id }) => {
                self.0[0] = kind as u32 | (protocol as u32) << 8;
                for (at, Span { start, length }) in [(4, method), (6, operation), (8, id)] {
                    self.0[at] = start;
                    self.0[at + 1] = length;
                }
            }
            Err(error) => {
                self.0[0] = LineKind::Fault as u32;
                self.fault(FaultKind::of(error.kind), error.offset);
            }
        }
    }

    fn fault(&mut self, kind: FaultKind, place: usize) {
        self.0[10] = kind as u32;
        self.0[11] = small(place);
    }
}

/// An entry of a transcript.
struct Recorded {
    bytes: Vec<u8>,
    direction: u32,
    milliseconds: u32,
}

/// Reads a line as an entry of a recording, if it is one with a line: `{"ms":N,"sent":LINE}`, `"got"`, `"sent_hex"` or `"got_hex"`.
fn unwrap(content: &[u8]) -> Option<Recorded> {
    if !content.starts_with(b"{\"ms\":") {
        return None;
    }
    let json = Json::parse(content).ok()?;
    let (_, time) = json.members().next()?;
    if time.kind() != JsonKind::Number {
        return None;
    }
    // Besides the line there may be the connection's number, the device's clock, and what is missing of the line.
    let mut lines = json
        .members()
        .filter(|(name, _)| ["sent", "got", "sent_hex", "got_hex"].into_iter().any(|known| *name == known));
    let (name, value) = lines.next()?;
    let is_known = |name: &str| ["ms", "connection", "device_ms", "cut", "dropped"].contains(&name);
    let others = json.members().filter(|(other, _)| other.to_cow() != name.to_cow());
    if others.into_iter().any(|(other, _)| !is_known(&other.to_cow())) {
        return None;
    }
    let text = value.text()?.to_cow();
    let direction = if name == "sent" || name == "sent_hex" { SENT } else { RECEIVED };
    let is_hex = name == "sent_hex" || name == "got_hex";
    let bytes = if is_hex { bytes_of(&text)? } else { text.into_owned().into_bytes() };
    // Whole milliseconds: an entry may have a fraction.
    let whole = time.as_str().split('.').next().unwrap_or_default();
    let milliseconds = whole.parse::<u64>().map_or(u32::MAX, |time| u32::try_from(time).unwrap_or(u32::MAX));
    Some(Recorded { bytes, direction, milliseconds })
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    // The standard library also reads a sign, and half a byte.
    let is_hex = hex.len().is_multiple_of(2) && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pairs = is_hex.then(|| hex.as_bytes().chunks(2))?;
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The fault of a line. The numbers are part of the interface to JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FaultKind {
    /// As [`SyntaxErrorKind::UnexpectedByte`].
    UnexpectedByte = 1,
    /// As [`SyntaxErrorKind::UnexpectedEnd`].
    UnexpectedEnd = 2,
    /// As [`SyntaxErrorKind::TrailingData`].
    TrailingData = 3,
    /// As [`SyntaxErrorKind::ControlCharacter`].
    ControlCharacter = 4,
    /// As [`SyntaxErrorKind::BadEscape`].
    BadEscape = 5,
    /// As [`SyntaxErrorKind::NotUtf8`].
    NotUtf8 = 6,
    /// As [`SyntaxErrorKind::BadNumber`].
    BadNumber = 7,
    /// As [`SyntaxErrorKind::TooDeep`].
    TooDeep = 8,
    /// As [`SyntaxErrorKind::Empty`].
    Empty = 9,
    /// As [`SyntaxErrorKind::HeaderFraming`].
    HeaderFraming = 10,
    /// The line is longer than the limit.
    TooLong = 11,
    /// One that this version does not know.
    Other = 12,
}

const ALL: [(FaultKind, SyntaxErrorKind, &str); 10] = [
    (FaultKind::UnexpectedByte, SyntaxErrorKind::UnexpectedByte, "unexpected-byte"),
    (FaultKind::UnexpectedEnd, SyntaxErrorKind::UnexpectedEnd, "unexpected-end"),
    (FaultKind::TrailingData, SyntaxErrorKind::TrailingData, "trailing-data"),
    (FaultKind::ControlCharacter, SyntaxErrorKind::ControlCharacter, "control-character"),
    (FaultKind::BadEscape, SyntaxErrorKind::BadEscape, "bad-escape"),
    (FaultKind::NotUtf8, SyntaxErrorKind::NotUtf8, "not-utf8"),
    (FaultKind::BadNumber, SyntaxErrorKind::BadNumber, "bad-number"),
    (FaultKind::TooDeep, SyntaxErrorKind::TooDeep { limit: DEPTH }, "too-deep"),
    (FaultKind::Empty, SyntaxErrorKind::Empty, "empty"),
    (FaultKind::HeaderFraming, SyntaxErrorKind::HeaderFraming, "header-framing"),
];

impl FaultKind {
    /// The kind of a syntax error.
    pub fn of(kind: SyntaxErrorKind) -> Self {
        ALL.iter().find(|(_, known, _)| *known == kind).map_or(Self::Other, |(own, ..)| *own)
    }

    /// The kind of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        let mut all = ALL.iter().map(|(kind, ..)| *kind).chain([Self::TooLong, Self::Other]);
        all.find(|kind| *kind as u32 == number)
    }

    /// The name of the fault kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too-long",
            _ => ALL.iter().find(|(own, ..)| *own == self).map_or("other", |(.., name)| name),
        }
    }

    /// The fault in words. The numbers are those of a line that is too long.
    pub fn reason(self, dropped: usize, limit: usize) -> String {
        match self {
            Self::TooLong => TooLong { limit, dropped }.to_string(),
            _ => ALL
                .iter()
                .find(|(own, ..)| *own == self)
                .map_or_else(|| "not JSON".into(), |(_, kind, _)| kind.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of a stream that is cut after every `step` bytes, with number, offset and length of each.
    fn lines(stream: &[u8], step: usize, ends: LineEnds) -> Vec<(u32, u64, u32, Vec<u8>)> {
        let mut decoder = Decoder::new(30, ends);
        let mut found = Vec::new();
        let mut take = |decoder: &Decoder, fed: &[u8]| {
            for record in decoder.records().chunks(FIELDS) {
                let source = if record[0] & SPILLED == 0 { fed } else { decoder.spilled() };
                let text = &source[record[2] as usize..(record[2] + record[3]) as usize];
                let start = u64::from(record[12]) | u64::from(record[13]) << 32;
                found.push((record[1], start, record[14], text.to_vec()));
            }
        };
        for part in stream.chunks(step) {
            decoder.feed(part);
            take(&decoder, part);
        }
        decoder.finish();
        take(&decoder, &[]);
        found
    }

    #[test]
    fn places_do_not_depend_on_how_the_bytes_were_cut() {
        let stream =
            b"\xEF\xBB\xBF{\"a\":1}\r\n\n  \n{\"b\":\"a line that is longer than thirty\"}\n[1,\r2]\r\n\xEF\xBB\xBF[3]";
        for step in 1..=stream.len() {
            let found = lines(stream, step, LineEnds::Lf);
            let wanted: [(u32, u64, u32, &[u8]); 4] =
                [(1, 3, 7, b"{\"a\":1}"), (4, 16, 41, b""), (5, 58, 6, b"[1,\r2]"), (6, 69, 3, b"[3]")];
            let wanted: Vec<_> = wanted.iter().map(|(a, b, c, text)| (*a, *b, *c, text.to_vec())).collect();
            assert_eq!(found, wanted, "{step}");
        }
        for step in 1..10 {
            let found = lines(b"[1]\r[2]\r\n[3]\n\r[4]", step, LineEnds::Serial);
            let wanted = [(1, 0, 3, b"[1]"), (2, 4, 3, b"[2]"), (3, 9, 3, b"[3]"), (5, 14, 3, b"[4]")];
            assert_eq!(found, wanted.map(|(a, b, c, text)| (a, b, c, text.to_vec())), "{step}");
        }
    }

    #[test]
    fn transcripts_are_unwrapped() {
        let mut decoder = Decoder::new(1000, LineEnds::Lf);
        decoder.feed(b"{\"rigline\":\"transcript\",\"version\":1,\"target\":\"sim\"}\n{\"ms\":12,\"sent\":\"{\\\"op\\\":\\\"health\\\"}\"}\n{\"ms\":13,\"got_hex\":\"ff41\"}\n{\"ms\":1}\n");
        let records: Vec<&[u32]> = decoder.records().chunks(FIELDS).collect();
        let flags = |record: &[u32]| (record[0] & 0xFF, record[0] & (SENT | RECEIVED), record[15]);
        assert_eq!(flags(records[0]), (LineKind::Json as u32, 0, 0));
        assert_eq!(flags(records[1]), (LineKind::Request as u32, SENT, 12));
        assert_eq!(flags(records[2]), (LineKind::Fault as u32, RECEIVED, 13));
        assert_eq!(flags(records[3]), (LineKind::Json as u32, 0, 0));
        assert_eq!(decoder.spilled(), b"{\"op\":\"health\"}\xFFA");
        for hex in ["+1+2", "f", "fff", "-1", "0x", "\u{e4}"] {
            decoder.feed(format!("{{\"ms\":1,\"got_hex\":\"{hex}\"}}\n").as_bytes());
            assert_eq!(flags(decoder.records()), (LineKind::Json as u32, 0, 0), "{hex}");
        }
    }

    #[test]
    fn every_fault_has_a_name_and_a_reason() {
        for number in 1..=12 {
            let kind = FaultKind::from_number(number).unwrap();
            assert!(!kind.name().is_empty() && !kind.reason(40, 30).is_empty());
        }
        assert_eq!(FaultKind::TooLong.reason(40, 30), "a line of 40 bytes is over the limit of 30 bytes");
        assert_eq!(FaultKind::of(SyntaxErrorKind::TooDeep { limit: DEPTH }).reason(0, 0), "nesting deeper than 128");
    }
}
