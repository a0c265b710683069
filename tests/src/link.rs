//! A host's end of the binary link over a TCP stream, for tests.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rigline::link::{Collected, Collector, Frame, FrameKind, encode, encoded_size};

use crate::emulator::PATIENCE;

/// A frame as it was received.
pub type Received = (FrameKind, u32, String);

/// Does something to a frame on its way.
type Tamper = Box<dyn FnMut(&mut [u8])>;

/// One session on a link.
pub struct LinkHost {
    stream: TcpStream,
    collector: Collector<'static>,
    /// The number of the last request.
    pub sequence: u32,
    /// The frames that were not asked for yet.
    waiting: std::collections::VecDeque<Received>,
    /// Bytes of a frame that has not ended, and what is done to it when it has.
    incoming: Vec<u8>,
    through: Tamper,
}

impl fmt::Debug for LinkHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkHost").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl LinkHost {
    /// Opens a session.
    ///
    /// # Panics
    /// When the device does not say hello.
    #[track_caller]
    pub fn open(stream: TcpStream, session: u32) -> Self {
        let collector = Collector::new(Box::leak(vec![0; 16_384].into_boxed_slice()));
        let mut host = Self {
            stream,
            collector,
            sequence: 0,
            waiting: std::collections::VecDeque::new(),
            incoming: Vec::new(),
            through: Box::new(|_| {}),
        };
        host.hello(session);
        host
    }

    /// Opens another session.
    ///
    /// # Panics
    /// When the device does not say hello.
    #[track_caller]
    pub fn hello(&mut self, session: u32) {
        self.sequence = 0;
        // What line noise left is ended first.
        self.send_raw(&[0]);
        self.send(FrameKind::Hello, session, b"");
        while self.next().0 != FrameKind::Hello {}
    }

    /// Sends a request and returns the lines that come of it, its reply last.
    ///
    /// # Panics
    /// When it is not answered.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Vec<String> {
        self.sequence += 1;
        self.send(FrameKind::Request, self.sequence, line.as_bytes());
        let mut lines = Vec::new();
        loop {
            match self.next() {
                (FrameKind::Log, _, line) => lines.push(line),
                (FrameKind::Reply, number, line) if number == self.sequence => {
                    lines.push(line);
                    return lines;
                }
                other => panic!("{other:?} in answer to {line}"),
            }
        }
    }

    /// Sends a frame.
    ///
    /// # Panics
    /// When the wire is gone.
    pub fn send(&mut self, kind: FrameKind, sequence: u32, payload: &[u8]) {
        self.send_raw(&frame(kind, sequence, payload));
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// When the wire is gone.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the emulator takes what is sent");
    }

    /// The next frame that is whole.
    ///
    /// # Panics
    /// When none comes in time.
    #[track_caller]
    #[allow(clippy::should_implement_trait, reason = "it waits")]
    pub fn next(&mut self) -> Received {
        self.next_within(PATIENCE).expect("a frame comes")
    }

    /// The next frame that is whole, if one comes in time.
    ///
    /// # Panics
    /// When the wire is gone.
    pub fn next_within(&mut self, limit: Duration) -> Option<Received> {
        let end = Instant::now() + limit;
        while self.waiting.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.stream.set_read_timeout(Some(left)).expect("the limit is not zero");
            let mut bytes = [0; 512];
            match self.stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.take(&bytes[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                end => panic!("the wire is gone: {end:?}"),
            }
        }
        self.waiting.pop_front()
    }

    /// From now on each frame of the device, its end included, goes through this before it is examined.
    pub fn receive_through(&mut self, wire: impl FnMut(&mut [u8]) + 'static) {
        self.through = Box::new(wire);
    }

    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.incoming.push(byte);
            if byte == 0 {
                let mut frame = std::mem::take(&mut self.incoming);
                (self.through)(&mut frame);
                self.collect(&frame);
            }
        }
    }

    fn collect(&mut self, frame: &[u8]) {
        for &byte in frame {
            if let Some(Collected::Frame(Frame { kind, sequence, payload })) = self.collector.push(byte) {
                self.waiting.push_back((kind, sequence, String::from_utf8_lossy(payload).into_owned()));
            }
        }
    }
}

/// Whether a device answers a hello on this wire in time.
pub fn is_spoken_on(mut stream: TcpStream, limit: Duration) -> bool {
    let hello = [&[0], frame(FrameKind::Hello, 1, b"").as_slice()].concat();
    if stream.write_all(&hello).is_err() {
        return false;
    }
    let mut collector = Collector::new(Box::leak(vec![0; 512].into_boxed_slice()));
    let end = Instant::now() + limit;
    let mut bytes = [0; 64];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return false;
        }
        let Ok(count @ 1..) = stream.read(&mut bytes) else { return false };
        let is_hello =
            |byte| matches!(collector.push(byte), Some(Collected::Frame(Frame { kind: FrameKind::Hello, .. })));
        if bytes[..count].iter().copied().any(is_hello) {
            return true;
        }
    }
}

/// A frame's bytes.
///
/// # Panics
/// Never: the memory has the size that is needed.
pub fn frame(kind: FrameKind, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut memory = vec![0; encoded_size(payload.len())];
    let length = encode(&Frame { kind, sequence, payload }, &mut memory).expect("the memory is large enough");
    memory.truncate(length);
    memory
}
