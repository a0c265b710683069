//! Connections whose traffic is recorded.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::shown;
use super::transport::{Connect, Connecting};
use crate::record::Direction;
use crate::record::Recorder;
use crate::record::transcript::What;

/// The longest line that is kept whole.
const KEPT: usize = 16 << 20;

/// Dials another dialer's connections, and records what passes.
pub(super) struct RecordingDialer {
    pub(super) inner: Box<dyn Connect>,
    pub(super) recorder: Arc<Recorder>,
}

impl Connect for RecordingDialer {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let mut wire = match self.inner.dial().await {
                Ok(wire) => wire,
                Err(error) => {
                    self.recorder.unopened(error.to_string());
                    return Err(error);
                }
            };
            let connection = Connection {
                number: self.recorder.open(),
                recorder: Arc::clone(&self.recorder),
                is_over: AtomicBool::new(false),
            };
            let connection = Arc::new(connection);
            let reader = std::mem::replace(&mut wire.reader, Box::new(tokio::io::empty()));
            wire.reader = Box::new(ReadTap::new(reader, &connection, StreamKind::Line(Direction::Received)));
            if let Some(stderr) = wire.stderr.take() {
                wire.stderr = Some(Box::new(ReadTap::new(stderr, &connection, StreamKind::Stderr)));
            }
            let writer = std::mem::replace(&mut wire.writer, Box::new(tokio::io::sink()));
            wire.writer =
                Box::new(WriteTap { inner: writer, lines: Lines::new(StreamKind::Line(Direction::Sent)), connection });
            Ok(wire)
        })
    }
}

/// One connection, until the last who has a part of it lets it go.
struct Connection {
    recorder: Arc<Recorder>,
    number: u32,
    is_over: AtomicBool,
}

impl Connection {
    fn note(&self, what: What) {
        self.recorder.note(self.number, what);
    }

    fn gone(&self, why: String) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            self.note(What::Gone(why));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !*self.is_over.get_mut() {
            self.note(What::Closed);
        }
    }
}

#[derive(Clone, Copy)]
enum StreamKind {
    Line(Direction),
    Stderr,
}

/// Cuts bytes into lines, however they come.
struct Lines {
    kind: StreamKind,
    line: Vec<u8>,
    dropped: u64,
}

impl Lines {
    fn new(kind: StreamKind) -> Self {
        Self { kind, line: Vec::new(), dropped: 0 }
    }

    fn take(&mut self, bytes: &[u8], note: &mut dyn FnMut(What)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            let room = KEPT.saturating_sub(self.line.len()).min(text.len());
            self.line.extend_from_slice(text.get(..room).unwrap_or_default());
            self.dropped += (text.len() - room) as u64;
            if ends {
                self.end(false, note);
            }
        }
    }

    fn end(&mut self, cut: bool, note: &mut dyn FnMut(What)) {
        let mut bytes = std::mem::take(&mut self.line);
        let dropped = std::mem::take(&mut self.dropped);
        if !cut && bytes.ends_with(b"\r") {
            bytes.pop();
        }
        if bytes.is_empty() {
            return;
        }
        note(match self.kind {
            StreamKind::Line(direction) => What::Line { direction, bytes, cut, dropped, device_ms: None },
            StreamKind::Stderr => What::Stderr(shown(&bytes)),
        });
    }
}

struct ReadTap<R> {
    inner: R,
    lines: Lines,
    connection: Arc<Connection>,
}

impl<R> ReadTap<R> {
    fn new(inner: R, connection: &Arc<Connection>, kind: StreamKind) -> Self {
        Self { inner, lines: Lines::new(kind), connection: Arc::clone(connection) }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ReadTap<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let (before, room) = (buf.filled().len(), buf.remaining());
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        let connection = &this.connection;
        let mut note = |what| connection.note(what);
        let is_line = matches!(this.lines.kind, StreamKind::Line(_));
        match &read {
            Poll::Ready(Ok(())) => {
                let bytes = buf.filled().get(before..).unwrap_or_default();
                this.lines.take(bytes, &mut note);
                if bytes.is_empty() && room > 0 {
                    this.lines.end(true, &mut note);
                    if is_line {
                        connection.gone("the other end has closed the connection".to_owned());
                    }
                }
            }
            Poll::Ready(Err(error)) if error.kind() != io::ErrorKind::Interrupted => {
                this.lines.end(true, &mut note);
                if is_line {
                    connection.gone(error.to_string());
                }
            }
            _ => {}
        }
        read
    }
}

impl<R> Drop for ReadTap<R> {
    fn drop(&mut self) {
        let connection = &self.connection;
        self.lines.end(true, &mut |what| connection.note(what));
    }
}

struct WriteTap<W> {
    inner: W,
    lines: Lines,
    connection: Arc<Connection>,
}

impl<W: AsyncWrite + Unpin> AsyncWrite for WriteTap<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let number = this.connection.number;
        let (inner, lines) = (&mut this.inner, &mut this.lines);
        this.connection.recorder.while_sending(|note| {
            let written = Pin::new(inner).poll_write(cx, bytes);
            if let Poll::Ready(Ok(count)) = written {
                lines.take(bytes.get(..count).unwrap_or_default(), &mut |what| note(number, what));
            }
            written
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<W> Drop for WriteTap<W> {
    fn drop(&mut self) {
        let connection = &self.connection;
        self.lines.end(true, &mut |what| connection.note(what));
    }
}
