//! The binary link (feature `postcard`): lines over wires that lose bits, such as a UART.
//!
//! A line is sent as one frame. A damaged frame is always detected. A request may be sent again
//! without being run twice, so that a button is never pressed twice.
//!
//! # On the wire
//!
//! A frame is `COBS(body ++ crc) ++ 00`. An empty frame (a single `00`) has no meaning. One may be
//! sent to end whatever line noise began.
//!
//! | part | bytes |
//! |---|---|
//! | body | `kind`: 1 byte; `sequence`: varint; length of the payload: varint; the payload |
//! | crc | CRC-32 of the body (the one of zlib and Ethernet: polynomial 04C11DB7 reflected, start and final inversion), 4 bytes, least significant first |
//!
//! A varint is an unsigned number of up to 32 bits, seven bits a byte, least significant first, the
//! high bit set on all bytes but the last: 300 is `AC 02`. (The body is postcard's encoding of a
//! struct of a `u8`, a `u32` and bytes.) COBS (Cheshire and Baker, 1999) replaces the zeros: each
//! block is a code byte `n` and `n - 1` bytes other than zero, and means those bytes and a zero,
//! which is left out when `n` is 255 and at the end of the frame.
//!
//! | kind | name | sent by | sequence | payload |
//! |---|---|---|---|---|
//! | 1 | hello | host | a random session number, not 0 | none |
//! | 1 | hello | device | the session number of the hello it answers | none |
//! | 2 | request | host | 1 for the first of a session, then one more each | one line, without its newline |
//! | 3 | cancel | host | of the request that is meant | none |
//! | 4 | reply | device | of the request | one line, without its newline; none for a notification |
//! | 5 | log | device | of the request that runs | one line, without its newline |
//! | 6 | damaged | device | 0 | none: a frame arrived that fails its CRC. Send what waits for an answer again. |
//! | 7 | unknown | device | of the request or cancel | none: there is no session (the device was reset), the request was cancelled, or its sequence number is not the next one. Whether it ran is not known. |
//! | 8 | too long | device | the longest payload that fits, in bytes | none |
//!
//! # Exactly once
//!
//! The host sends one request at a time and sends it again, the same bytes, when it sees *damaged*
//! or nothing for a while. The device runs a sequence number once, keeps its reply, and sends that
//! reply again when the number comes again. A hello with another session number forgets the reply,
//! cancels what runs, and starts the sequence at 1; one with the same number is only answered
//! again. After a reset in mid-call the device has no session and answers *unknown*; it also does
//! for the request of a call that was cut off because the wire failed. A request that comes while
//! the one before it is not answered yet is ignored; so is a repeated one: its answer comes when it
//! is there. A request that comes before the last one in the sequence is ignored.
//!
//! Logs are sent once and may be lost.

#[cfg(feature = "async")]
use core::cell::Cell;

use crate::bytes::BY_WORDS;
#[cfg(feature = "async")]
use crate::exchange::owes_reply;
#[cfg(feature = "async")]
use crate::protocol::define::Protocol;

/// The algorithm of the CRC: CRC-32/ISO-HDLC.
const CRC: crc::Crc<u32, Table> = crc::Crc::<u32, Table>::new(&crc::CRC_32_ISO_HDLC);
type Table = <Processor<BY_WORDS> as HasTable>::Table;

struct Processor<const BY_WORDS: bool>;

/// The table of the CRC of each byte, or its absence: it would be a kilobyte of a microcontroller's flash.
trait HasTable {
    type Table;
}

impl HasTable for Processor<true> {
    type Table = crc::Table<1>;
}

impl HasTable for Processor<false> {
    type Table = crc::NoTable;
}

/// The largest number of bytes that a frame has beside its payload and the code bytes of COBS:
/// kind, sequence, length, CRC, the first code byte, and the end.
pub const OVERHEAD: usize = 1 + 5 + 5 + 4 + 1 + 1;

/// The largest size of a frame with a payload of `payload` bytes, in bytes.
pub const fn encoded_size(payload: usize) -> usize {
    let body = payload + OVERHEAD;
    body + body / 254
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
#[non_exhaustive]
pub enum FrameKind {
    /// Opens a session, or acknowledges that.
    Hello = 1,
    /// A line from the host for the device.
    Request = 2,
    /// Cancels a request.
    Cancel = 3,
    /// The reply to a request.
    Reply = 4,
    /// A line from the device that is not a reply.
    Log = 5,
    /// A frame arrived damaged. The host sends again what waits for an answer.
    Damaged = 6,
    /// The device cannot answer a request, and whether the request ran is not known.
    Unknown = 7,
    /// A frame did not fit into the device's buffer.
    TooLong = 8,
}

impl FrameKind {
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::Request,
            3 => Self::Cancel,
            4 => Self::Reply,
            5 => Self::Log,
            6 => Self::Damaged,
            7 => Self::Unknown,
            8 => Self::TooLong,
            _ => return None,
        })
    }
}

/// A decoded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind of the frame.
    pub kind: FrameKind,
    /// The sequence number of the request that the frame belongs to; for [`FrameKind::Hello`], the
    /// number of the session.
    pub sequence: u32,
    /// The line in the frame, without its newline. It is empty for kinds without a line.
    pub payload: &'a [u8],
}

/// Encodes a frame into `memory`, with its end. Returns the length, or none if the frame does not
/// fit. [`encoded_size`] bytes always suffice.
///
/// ```
/// use rigline::link::{Frame, FrameKind, encode};
/// let mut memory = [0; 32];
/// let hello = encode(&Frame { kind: FrameKind::Hello, sequence: 300, payload: b"" }, &mut memory).unwrap();
/// assert_eq!(memory[..hello], [0x04, 0x01, 0xAC, 0x02, 0x05, 0xFF, 0x7E, 0xAC, 0x7B, 0x00]);
/// ```
pub fn encode(frame: &Frame<'_>, memory: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    let mut blocks = Blocks::new();
    let mut put = |block: &[u8]| {
        let place = memory.get_mut(length..)?.get_mut(..block.len())?;
        for (to, from) in place.iter_mut().zip(block) {
            *to = *from;
        }
        length += block.len();
        Some(())
    };
    let head = Head::new(frame);
    for byte in head.bytes().chain(frame.payload.iter().copied()).chain(head.crc(frame.payload)) {
        if blocks.push(byte) {
            put(blocks.take())?;
        }
    }
    put(blocks.finish())?;
    Some(length)
}

/// Decodes a frame in place, from its bytes without the end. Returns none if the frame is damaged.
pub fn decode(frame: &mut [u8]) -> Option<Frame<'_>> {
    let length = unstuff(frame)?;
    let (body, crc) = frame.get(..length)?.split_last_chunk()?;
    if CRC.checksum(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (kind, sequence, payload): (u8, u32, &[u8]) = postcard::from_bytes(body).ok()?;
    let frame = Frame { kind: FrameKind::of(kind)?, sequence, payload };
    // The decoder takes what it needs; a body has nothing more than that.
    (body.len() == Head::new(&frame).length + payload.len()).then_some(frame)
}

/// A body's bytes before the payload.
struct Head {
    bytes: [u8; 11],
    length: usize,
}

impl Head {
    fn new(frame: &Frame<'_>) -> Self {
        let mut bytes = [0; 11];
        let size = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
        let length =
            postcard::to_slice(&(frame.kind as u8, frame.sequence, size), &mut bytes).map_or(0, |head| head.len());
        Self { bytes, length }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.bytes.into_iter().take(self.length)
    }

    fn crc(&self, payload: &[u8]) -> [u8; 4] {
        let mut digest = CRC.digest();
        digest.update(self.bytes.get(..self.length).unwrap_or_default());
        digest.update(payload);
        digest.finalize().to_le_bytes()
    }
}

/// COBS, a block at a time.
struct Blocks {
    /// The code byte, then up to 254 bytes.
    block: [u8; 256],
    /// How many bytes follow the code byte.
    length: u8,
    complete: usize,
}

impl Blocks {
    fn new() -> Self {
        Self { block: [0; 256], length: 0, complete: 0 }
    }

    /// Adds a byte of the body; returns whether a block is complete.
    fn push(&mut self, byte: u8) -> bool {
        if byte != 0 {
            self.length = self.length.wrapping_add(1);
            if let Some(place) = self.block.get_mut(usize::from(self.length)) {
                *place = byte;
            }
        }
        let complete = byte == 0 || self.length == 254;
        if complete {
            self.close();
        }
        complete
    }

    fn close(&mut self) {
        let code = self.length.wrapping_add(1);
        let [first, ..] = &mut self.block;
        *first = code;
        self.complete = usize::from(code);
        self.length = 0;
    }

    fn take(&self) -> &[u8] {
        self.block.get(..self.complete).unwrap_or_default()
    }

    /// The last block and the frame's end.
    fn finish(&mut self) -> &[u8] {
        self.close();
        if let Some(end) = self.block.get_mut(self.complete) {
            *end = 0;
        }
        self.block.get(..=self.complete).unwrap_or_default()
    }
}

/// Undoes COBS in place; returns the length, none if the codes do not fit the frame.
fn unstuff(frame: &mut [u8]) -> Option<usize> {
    let (mut from, mut to) = (0, 0);
    while let Some(&code) = frame.get(from) {
        from += 1;
        if code == 0 {
            return None;
        }
        for _ in 1..code {
            let byte = *frame.get(from)?;
            *frame.get_mut(to)? = byte;
            from += 1;
            to += 1;
        }
        if code != 255 && from < frame.len() {
            *frame.get_mut(to)? = 0;
            to += 1;
        }
    }
    Some(to)
}

/// Collects bytes into frames, in memory that the caller owns.
#[derive(Debug)]
pub struct Collector<'m> {
    memory: &'m mut [u8],
    length: usize,
    over: bool,
    /// The frame in `memory` was handed out.
    taken: bool,
}

/// The result of adding a byte that completes a frame.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collected<'c> {
    /// A whole frame.
    Frame(Frame<'c>),
    /// A frame with a wrong CRC, or bytes that are not a frame.
    Damaged,
    /// A frame that does not fit into the memory.
    TooLong,
}

impl<'m> Collector<'m> {
    /// A collector for frames of up to `memory.len()` bytes without their end. [`encoded_size`]
    /// returns the size that a payload needs.
    pub fn new(memory: &'m mut [u8]) -> Self {
        Self { memory, length: 0, over: false, taken: false }
    }

    /// The length of the longest payload that always fits, in bytes: the longest one whose
    /// [`encoded_size`] is not above that of the memory.
    pub fn limit(&self) -> usize {
        // Of 255 bytes, 254 are the body's.
        self.memory.len().saturating_sub((self.memory.len() + 1) / 255 + OVERHEAD)
    }

    /// The payload of the frame that was returned last. It is empty after the next byte was pushed.
    #[cfg(feature = "async")]
    fn payload(&self) -> &[u8] {
        let body = self.memory.get(..self.length).unwrap_or_default();
        postcard::from_bytes::<(u8, u32, &[u8])>(body).map_or(&[], |(_, _, payload)| payload)
    }

    /// Adds a byte. Returns the frame or the error that this byte completes, if any.
    pub fn push(&mut self, byte: u8) -> Option<Collected<'_>> {
        if core::mem::take(&mut self.taken) {
            self.length = 0;
        }
        if byte != 0 {
            match self.memory.get_mut(self.length) {
                Some(place) => {
                    *place = byte;
                    self.length += 1;
                }
                None => self.over = true,
            }
            return None;
        }
        if core::mem::take(&mut self.over) {
            self.length = 0;
            return Some(Collected::TooLong);
        }
        if self.length == 0 {
            return None;
        }
        self.taken = true;
        match decode(self.memory.get_mut(..self.length).unwrap_or_default()) {
            Some(frame) => Some(Collected::Frame(frame)),
            None => Some(Collected::Damaged),
        }
    }
}

/// The state that the reader and the writer of a device's link share.
#[cfg(feature = "async")]
#[derive(Debug)]
pub struct Shared {
    session: Cell<Option<u32>>,
    /// The request that runs or ran last.
    last: Cell<u32>,
    replied: Cell<bool>,
    /// The last request is a notification: its reply is empty.
    silent: Cell<bool>,
    /// The last request was cut off, and whether it ran is not known.
    cut: Cell<bool>,
    /// A frame that waits to be sent when the driver writes next.
    hello: Cell<bool>,
    damaged: Cell<bool>,
    too_long: Cell<Option<u32>>,
    unknown: Cell<Option<u32>>,
    again: Cell<bool>,
    /// The protocols of the engine.
    protocols: &'static [&'static Protocol],
}

#[cfg(feature = "async")]
impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "async")]
impl Shared {
    /// State for one device whose engine speaks [all protocols](crate::protocol::ALL).
    pub const fn new() -> Self {
        Self::with_protocols(crate::protocol::ALL)
    }

    /// State for one device whose engine speaks these protocols.
    pub const fn with_protocols(protocols: &'static [&'static Protocol]) -> Self {
        Self {
            session: Cell::new(None),
            last: Cell::new(0),
            replied: Cell::new(false),
            silent: Cell::new(false),
            cut: Cell::new(false),
            hello: Cell::new(false),
            damaged: Cell::new(false),
            too_long: Cell::new(None),
            unknown: Cell::new(None),
            again: Cell::new(false),
            protocols,
        }
    }

    /// Whether the last reply, which is not empty, is to be sent again.
    fn repeats(&self) -> bool {
        self.again.get() && !self.silent.get()
    }

    /// Whether there is something to send that no handler asked for.
    fn has_word(&self) -> bool {
        self.hello.get()
            || self.damaged.get()
            || self.again.get()
            || self.too_long.get().is_some()
            || self.unknown.get().is_some()
    }

    /// Whether a request waits for its reply.
    fn is_running(&self) -> bool {
        self.last.get() != 0 && !self.replied.get() && !self.cut.get()
    }

    /// The wire is lost, and with it the call.
    fn lose(&self) {
        if self.is_running() {
            self.cut.set(true);
        }
    }

    /// The wire failed.
    fn fail<E>(&self, error: E) -> device::LinkError<E> {
        self.lose();
        device::LinkError::Wire(error)
    }

    /// The meaning of a frame for the device.
    fn take(&self, frame: &Frame<'_>) -> Taken {
        let Frame { kind, sequence, payload } = *frame;
        let is_last = sequence == self.last.get() && sequence != 0;
        match (kind, self.session.get()) {
            (FrameKind::Hello, session) if sequence != 0 => {
                self.hello.set(true);
                if session == Some(sequence) {
                    return Taken::Nothing;
                }
                self.session.set(Some(sequence));
                self.last.set(0);
                self.replied.set(false);
                self.cut.set(false);
                self.again.set(false);
                self.unknown.set(None);
                Taken::Reset
            }
            (FrameKind::Request | FrameKind::Cancel, None) => {
                self.unknown.set(Some(sequence));
                Taken::Nothing
            }
            (FrameKind::Request, Some(_)) if is_last && self.cut.get() => {
                self.unknown.set(Some(sequence));
                Taken::Nothing
            }
            (FrameKind::Request, Some(_)) if is_last => {
                self.again.set(self.replied.get());
                Taken::Nothing
            }
            (FrameKind::Request, Some(_)) if sequence == self.last.get().wrapping_add(1) => {
                if self.is_running() {
                    // The reply that comes next would be taken for its own.
                    return Taken::Nothing;
                }
                self.last.set(sequence);
                self.replied.set(false);
                self.silent.set(false);
                self.cut.set(false);
                if !owes_reply(payload, self.protocols) {
                    // It gets no reply: it is acknowledged now.
                    self.replied.set(true);
                    self.silent.set(true);
                    self.again.set(true);
                    return Taken::Notification;
                }
                Taken::Line
            }
            (FrameKind::Request, Some(_)) => {
                if sequence.wrapping_sub(self.last.get()) <= u32::MAX / 2 {
                    self.unknown.set(Some(sequence));
                }
                Taken::Nothing
            }
            (FrameKind::Cancel, Some(_)) if is_last && !self.replied.get() => {
                self.unknown.set(Some(sequence));
                if self.cut.replace(true) { Taken::Nothing } else { Taken::Reset }
            }
            (FrameKind::Cancel, Some(_)) if is_last => {
                self.again.set(true);
                Taken::Nothing
            }
            // The other kinds are a device's own words.
            _ => Taken::Nothing,
        }
    }
}

#[cfg(feature = "async")]
enum Taken {
    Nothing,
    /// The frame cancels the running call, or opens a new session.
    Reset,
    Line,
    Notification,
}

#[cfg(feature = "async")]
pub use device::{LinkError, LinkReader, LinkWriter, split};

#[cfg(feature = "async")]
mod device {
    use core::fmt;

    use embedded_io_async::{Error, ErrorKind, ErrorType, Read, Write};

    use super::{Blocks, Collected, Collector, Frame, FrameKind, Head, Shared, Taken};
    use crate::rpc;

    /// Makes a device's link from a reader and a writer of bytes. The results read and write lines,
    /// for a [`Server`](crate::serve::asynch::Server).
    ///
    /// `frames` holds the incoming frame: it needs [`encoded_size`](super::encoded_size) of the
    /// longest line. `reply` keeps the last reply, so that it can be sent again while a call runs.
    /// Make it half the size of the log buffer, which limits the replies that are written during a
    /// call. A longer reply is sent again from the engine's memory when no call runs. Until then a
    /// repeated request is not answered.
    ///
    /// A new session and a cancelled call end serving with [`LinkError::Reset`]. Serve again after
    /// it.
    pub fn split<'s, 'm, R: Read, W: Write>(
        shared: &'s Shared,
        reader: R,
        writer: W,
        frames: &'m mut [u8],
        reply: &'m mut [u8],
    ) -> (LinkReader<'s, 'm, R>, LinkWriter<'s, 'm, W>) {
        (
            LinkReader {
                shared,
                reader,
                collector: Collector::new(frames),
                bytes: [0; 64],
                at: 0,
                end: 0,
                given: None,
            },
            LinkWriter { shared, writer, reply, length: 0 },
        )
    }

    /// The reason why a link stopped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[cfg_attr(feature = "defmt", derive(defmt::Format))]
    #[non_exhaustive]
    pub enum LinkError<E> {
        /// The wire returned an error.
        Wire(E),
        /// The host opened a new session, or cancelled the call. Serve again.
        Reset,
        /// The writer must flush before the reader reads on. The driver handles this.
        Interrupted,
        /// The last reply must be written again before the reader reads on. The driver handles
        /// this.
        Repeated,
    }

    impl<E: fmt::Debug> fmt::Display for LinkError<E> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Wire(error) => write!(f, "the wire failed: {error:?}"),
                Self::Reset => f.write_str("the host opened a new session or cancelled the call"),
                Self::Interrupted => f.write_str("there is something to be flushed first"),
                Self::Repeated => f.write_str("the last reply is to be written again first"),
            }
        }
    }

    impl<E: fmt::Debug> core::error::Error for LinkError<E> {}

    impl<E: Error> Error for LinkError<E> {
        fn kind(&self) -> ErrorKind {
            match self {
                Self::Wire(error) => error.kind(),
                Self::Reset => ErrorKind::ConnectionReset,
                Self::Interrupted => ErrorKind::Interrupted,
                Self::Repeated => ErrorKind::AlreadyExists,
            }
        }
    }

    /// The reader of a link: it turns frames into lines.
    #[derive(Debug)]
    pub struct LinkReader<'s, 'm, R> {
        shared: &'s Shared,
        reader: R,
        collector: Collector<'m>,
        bytes: [u8; 64],
        at: usize,
        end: usize,
        /// How much of the collected line was returned already.
        given: Option<usize>,
    }

    impl<R: ErrorType> ErrorType for LinkReader<'_, '_, R> {
        type Error = LinkError<R::Error>;
    }

    impl<R: Read> Read for LinkReader<'_, '_, R> {
        /// Reads a part of a line. It is cancel safe if the inner reader is.
        async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Self::Error> {
            loop {
                if let Some(given) = self.given {
                    return Ok(self.give(given, buf));
                }
                if self.shared.repeats() {
                    return Err(LinkError::Repeated);
                }
                if self.shared.has_word() {
                    return Err(LinkError::Interrupted);
                }
                while let Some(&byte) = self.bytes.get(self.at..self.end).and_then(<[u8]>::first) {
                    self.at += 1;
                    if self.take(byte)? {
                        break;
                    }
                }
                if self.given.is_none() && !self.shared.has_word() && self.at >= self.end {
                    let count = self.reader.read(&mut self.bytes).await.map_err(|error| self.shared.fail(error))?;
                    if count == 0 {
                        self.shared.lose();
                        return Ok(0);
                    }
                    (self.at, self.end) = (0, count);
                }
            }
        }
    }

    impl<R: Read> LinkReader<'_, '_, R> {
        /// Returns more of the collected line, with a newline at its end.
        fn give(&mut self, given: usize, buf: &mut [u8]) -> usize {
            let payload = self.collector.payload();
            let rest = payload.get(given..).unwrap_or_default();
            let mut count = 0;
            // A newline in a payload would split it into two lines. JSON strings contain none.
            for (to, from) in buf.iter_mut().zip(rest.iter().chain(b"\n")) {
                *to = if count < rest.len() && matches!(from, b'\n' | b'\r') { b' ' } else { *from };
                count += 1;
            }
            self.given = if count > rest.len() { None } else { Some(given + count) };
            count
        }

        /// Adds a byte; returns whether there is something to do.
        fn take(&mut self, byte: u8) -> Result<bool, LinkError<R::Error>> {
            let limit = u32::try_from(self.collector.limit()).unwrap_or(u32::MAX);
            match self.collector.push(byte) {
                None => return Ok(false),
                Some(Collected::Damaged) => self.shared.damaged.set(true),
                Some(Collected::TooLong) => self.shared.too_long.set(Some(limit)),
                Some(Collected::Frame(frame)) => match self.shared.take(&frame) {
                    Taken::Nothing => {}
                    Taken::Reset => return Err(LinkError::Reset),
                    Taken::Line | Taken::Notification => self.given = Some(0),
                },
            }
            Ok(true)
        }
    }

    /// The writer of a link: it turns lines into frames. Each call of [`write`](Write::write) must
    /// be one whole line.
    #[derive(Debug)]
    pub struct LinkWriter<'s, 'm, W> {
        shared: &'s Shared,
        writer: W,
        reply: &'m mut [u8],
        /// The length of the last reply; 0 if it was too long to be kept.
        length: usize,
    }

    impl<W: ErrorType> ErrorType for LinkWriter<'_, '_, W> {
        type Error = LinkError<W::Error>;
    }

    impl<W: Write> Write for LinkWriter<'_, '_, W> {
        async fn write(&mut self, line: &[u8]) -> Result<usize, Self::Error> {
            let payload = line.strip_suffix(b"\n").unwrap_or(line);
            let sequence = self.shared.last.get();
            let kind = if rpc::is_notification_line(payload) { FrameKind::Log } else { FrameKind::Reply };
            if kind == FrameKind::Reply {
                if self.shared.silent.get() {
                    // It was answered as a notification, and each request is answered once.
                    return Ok(line.len());
                }
                // Nothing is read before the reply was sent again: it is the one that was sent
                // before.
                if !self.shared.again.take() {
                    self.shared.replied.set(true);
                    self.length = 0;
                    if let Some(kept) = self.reply.get_mut(..payload.len()) {
                        kept.copy_from_slice(payload);
                        self.length = payload.len();
                    }
                }
            }
            send(&mut self.writer, self.shared, &Frame { kind, sequence, payload }).await?;
            Ok(line.len())
        }

        async fn flush(&mut self) -> Result<(), Self::Error> {
            let word = |kind, sequence| Frame { kind, sequence, payload: b"" };
            let Shared { session, last, hello, damaged, too_long, unknown, again, silent, .. } = self.shared;
            if let (true, Some(session)) = (hello.take(), session.get()) {
                send(&mut self.writer, self.shared, &word(FrameKind::Hello, session)).await?;
            }
            if damaged.take() {
                send(&mut self.writer, self.shared, &word(FrameKind::Damaged, 0)).await?;
            }
            if let Some(limit) = too_long.take() {
                send(&mut self.writer, self.shared, &word(FrameKind::TooLong, limit)).await?;
            }
            if let Some(sequence) = unknown.take() {
                send(&mut self.writer, self.shared, &word(FrameKind::Unknown, sequence)).await?;
            }
            if again.take() && (silent.get() || self.length > 0) {
                let length = if silent.get() { 0 } else { self.length };
                let payload = self.reply.get(..length).unwrap_or_default();
                send(&mut self.writer, self.shared, &Frame { kind: FrameKind::Reply, sequence: last.get(), payload })
                    .await?;
            }
            self.writer.flush().await.map_err(|error| self.shared.fail(error))
        }
    }

    async fn send<W: Write>(writer: &mut W, shared: &Shared, frame: &Frame<'_>) -> Result<(), LinkError<W::Error>> {
        let mut blocks = Blocks::new();
        let head = Head::new(frame);
        for byte in head.bytes().chain(frame.payload.iter().copied()).chain(head.crc(frame.payload)) {
            if blocks.push(byte) {
                write_all(writer, shared, blocks.take()).await?;
            }
        }
        write_all(writer, shared, blocks.finish()).await
    }

    async fn write_all<W: Write>(writer: &mut W, shared: &Shared, mut bytes: &[u8]) -> Result<(), LinkError<W::Error>> {
        while !bytes.is_empty() {
            match writer.write(bytes).await {
                Ok(count) => bytes = bytes.get(count.max(1)..).unwrap_or_default(),
                Err(error) => return Err(shared.fail(error)),
            }
        }
        Ok(())
    }
}
