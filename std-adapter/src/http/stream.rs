//! Facts about a request that the HTTP library does not hand on.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::net::Stream;

/// A connection's peer has sent a request whose length was said in two ways, or twice.
#[derive(Debug, Clone)]
pub(super) struct Ambiguous;

/// A connection whose heads are examined for `Content-Length` beside `Transfer-Encoding`: RFC 9112
/// §6.1 lets a server refuse that, as it may be an attempt at request smuggling; hyper drops the
/// one and goes on. It also goes on when the chunked coding is said to be applied twice, which is
/// not allowed (§7.1).
///
/// It inspects every line that comes in, of a head or of a body. A line of a head always begins
/// behind the end of another, so none is missed; a body with both lines in it is not JSON.
///
/// A peer that takes nothing of what it is sent for the given time is given up: it would keep its
/// place for good.
#[derive(Debug)]
pub(super) struct Watched {
    stream: Stream,
    patience: Duration,
    /// The time since which the client has read nothing.
    stuck: Option<Pin<Box<Sleep>>>,
    ambiguous: Arc<AtomicBool>,
    /// The beginning of the line, as far as it matters.
    line: [u8; 18],
    length: usize,
    has_length: bool,
    has_encoding: bool,
}

impl Watched {
    pub(super) fn new(stream: Stream, patience: Duration, ambiguous: Arc<AtomicBool>) -> Self {
        let line = [0; 18];
        Self { stream, patience, stuck: None, ambiguous, line, length: 0, has_length: false, has_encoding: false }
    }

    /// The result of a write, or an error if the peer has read nothing for too long.
    fn written<T>(&mut self, task: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stuck = None;
            return result;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        stuck.as_mut().poll(task).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn watch(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            // Of a line that cannot be one of those that matter, its first byte is enough.
            let part = match self.line.first().filter(|_| self.length > 0).or(part.first()) {
                Some(b'c' | b'C' | b't' | b'T' | b'\r') => part,
                _ => part.get(..1).unwrap_or_default(),
            };
            for byte in part {
                let Some(place) = self.line.get_mut(self.length) else { break };
                *place = byte.to_ascii_lowercase();
                self.length += 1;
            }
            bytes = rest.get(1..).unwrap_or_default();
            if end.is_some() {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let mut is_twice = false;
        match self.line.get(..self.length).unwrap_or_default() {
            [] | [b'\r'] => (self.has_length, self.has_encoding) = (false, false),
            line if line.starts_with(b"content-length:") => self.has_length = true,
            line if line.starts_with(b"transfer-encoding:") => {
                is_twice = std::mem::replace(&mut self.has_encoding, true);
            }
            _ => {}
        }
        self.length = 0;
        if is_twice || self.has_length && self.has_encoding {
            self.ambiguous.store(true, Ordering::Release);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(task, buf);
        this.watch(buf.filled().get(before..).unwrap_or_default());
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(task, bytes);
        this.written(task, result)
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(task)
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(task)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(task, parts);
        this.written(task, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
