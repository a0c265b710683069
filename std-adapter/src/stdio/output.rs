//! Lines out, whole and in order.
//!
//! A line that can go at once is written at once, by the thread that made it. Any other line waits
//! for a thread that may block, so that a host which does not read holds up neither the handler nor
//! a signal.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use embedded_io_async::{ErrorType, Write};
use tokio::sync::Notify;

use super::stop::Stop;
use super::{HOST_LINE_LIMIT, system};
use crate::between::{Between, Passing, Peer};
use crate::mutex::lock;
use crate::stderr::complain;

/// When the process is to end, a reader that takes nothing for this long is waited for no more.
const STALL_TIMEOUT: Duration = Duration::from_millis(250);

/// The most bytes that are written at once: what a pipe holds on Linux, by default. A longer line
/// cannot go into it in one piece anyway, and in pieces it can be seen whether the reader still
/// takes them.
const PIECE: usize = 64 * 1024;

/// Standard output. Any thread may use it.
#[derive(Debug)]
pub(super) struct Output {
    stream: system::Output,
    /// The longest log line, in bytes without its newline: a longer one is shortened.
    log_limit: usize,
    queue: Mutex<Queue>,
    /// The queue has changed.
    changed: Condvar,
    /// For those who await the same.
    drained: Notify,
    /// Bytes that the thread has written.
    written: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    /// Whole lines that wait for the thread.
    lines: Vec<u8>,
    /// The thread is writing lines that it took from here.
    is_writing: bool,
    has_thread: bool,
    /// Nothing is taken any more.
    is_closed: bool,
    /// The first error of writing, which stays.
    fault: Option<(io::ErrorKind, Option<i32>)>,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.lines.is_empty() && !self.is_writing
    }

    fn check(&self) -> io::Result<()> {
        match self.fault {
            Some((_, Some(code))) => Err(io::Error::from_raw_os_error(code)),
            Some((kind, None)) => Err(kind.into()),
            None if self.is_closed => Err(io::ErrorKind::BrokenPipe.into()),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.fault = Some((error.kind(), error.raw_os_error()));
        self.lines = Vec::new();
    }
}

/// The outcome of a line.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Written,
    /// The line waits behind others, or for room in the output.
    Waits,
    /// The line is not sent, because too many bytes wait already.
    NoRoom,
}

impl Output {
    pub(super) fn new(stream: system::Output, log_limit: usize) -> Self {
        Self {
            stream,
            log_limit,
            queue: Mutex::default(),
            changed: Condvar::new(),
            drained: Notify::new(),
            written: AtomicU64::new(0),
        }
    }

    /// Returns when the output can no longer be read.
    #[cfg(unix)]
    pub(super) fn wait_until_unread(&self) {
        self.stream.wait_until_unread();
    }

    /// Sends a log line without waiting for its reader; false if more than `most` bytes would wait
    /// then, or writing failed.
    pub(super) fn send_log(self: &Arc<Self>, line: &[u8], most: usize) -> bool {
        matches!(self.send(line, most), Ok(Sent::Written | Sent::Waits))
    }

    /// Sends a line that nobody waits for.
    pub(super) fn send_own(self: &Arc<Self>, line: &[u8]) {
        // A client that is gone is noticed elsewhere.
        let _ = self.send(line, usize::MAX);
    }

    /// Writes no more, once what waits is out. Gives up on a reader that takes nothing for a while.
    pub(super) fn close(&self) {
        let mut queue = self.lock();
        while !queue.is_idle() && queue.fault.is_none() {
            let before = self.written.load(Ordering::Acquire);
            let (guard, wait) = self.changed.wait_timeout(queue, STALL_TIMEOUT).unwrap_or_else(PoisonError::into_inner);
            queue = guard;
            if wait.timed_out() && self.written.load(Ordering::Acquire) == before {
                break;
            }
        }
        queue.is_closed = true;
    }

    fn send(self: &Arc<Self>, line: &[u8], most: usize) -> io::Result<Sent> {
        let shortened = crate::log::shortened(line, self.log_limit);
        let line = shortened.as_deref().unwrap_or(line);
        let mut queue = self.lock();
        queue.check()?;
        let mut rest = line;
        if queue.is_idle() {
            match self.stream.write_now(line) {
                Ok(count) => rest = line.get(count..).unwrap_or_default(),
                Err(error) => {
                    queue.fail(&error);
                    return Err(error);
                }
            }
        }
        let sent = match rest.len() {
            0 => Sent::Written,
            // What was begun must be ended.
            length if length == line.len() && queue.lines.len().saturating_add(length) > most => Sent::NoRoom,
            _ => {
                if !queue.has_thread {
                    let output = self.clone();
                    thread::Builder::new().name("rigline-output".into()).spawn(move || output.write_queue())?;
                    queue.has_thread = true;
                }
                queue.lines.extend_from_slice(rest);
                self.changed.notify_all();
                Sent::Waits
            }
        };
        drop(queue);
        if sent != Sent::NoRoom {
            warn_if_long(line);
        }
        Ok(sent)
    }

    /// Waits until all is written. If the process is to stop, it gives up on a reader that accepts
    /// nothing for a while.
    async fn drain(&self, stop: &Stop) -> io::Result<()> {
        loop {
            let mut drained = pin!(self.drained.notified());
            drained.as_mut().enable();
            {
                let queue = self.lock();
                queue.check()?;
                if queue.is_idle() {
                    return Ok(());
                }
            }
            if stop.code().is_none() {
                tokio::select! {
                    () = drained => {}
                    () = stop.asked() => {}
                }
                continue;
            }
            let before = self.written.load(Ordering::Acquire);
            let in_time = tokio::time::timeout(STALL_TIMEOUT, drained).await.is_ok();
            if !in_time && self.written.load(Ordering::Acquire) == before {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the reader has stalled"));
            }
        }
    }

    /// The thread: writes what waits, for as long as the process lives.
    fn write_queue(&self) {
        let mut lines = Vec::new();
        let mut queue = self.lock();
        while queue.fault.is_none() {
            if queue.lines.is_empty() {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            std::mem::swap(&mut lines, &mut queue.lines);
            queue.is_writing = true;
            drop(queue);
            let mut result = Ok(());
            for piece in lines.split_inclusive(|byte| *byte == b'\n').flat_map(|line| line.chunks(PIECE)) {
                result = self.stream.write_all(piece);
                if result.is_err() {
                    break;
                }
                self.written.fetch_add(piece.len() as u64, Ordering::AcqRel);
            }
            lines.clear();
            // A reply of many megabytes is the exception.
            lines.shrink_to(PIECE);
            queue = self.lock();
            queue.is_writing = false;
            if let Err(error) = result {
                queue.fail(&error);
            }
            self.changed.notify_all();
            self.drained.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

/// The core's output for lines: each write is one line.
#[derive(Debug)]
pub(super) struct Lines {
    output: Arc<Output>,
    stop: Arc<Stop>,
    between: Option<(Arc<dyn Between>, Peer)>,
}

impl Lines {
    pub(super) fn new(output: Arc<Output>, stop: Arc<Stop>, between: Option<(Arc<dyn Between>, Peer)>) -> Self {
        Self { output, stop, between }
    }
}

impl ErrorType for Lines {
    type Error = io::Error;
}

impl Write for Lines {
    async fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = line.len();
        let instead;
        let line = match self.between.as_ref().map_or(Passing::On, |(between, peer)| between.sent(peer, line)) {
            Passing::On => line,
            Passing::Instead(mut other) => {
                other.push(b'\n');
                instead = other;
                instead.as_slice()
            }
            Passing::Kept => return Ok(length),
        };
        if self.output.send(line, usize::MAX)? != Sent::Written {
            self.output.drain(&self.stop).await?;
        }
        Ok(length)
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn warn_if_long(line: &[u8]) {
    let length = line.len().saturating_sub(1);
    if length > HOST_LINE_LIMIT {
        complain(format_args!("a line of {length} bytes: hosts stop reading at lines over {HOST_LINE_LIMIT} bytes"));
    }
}
