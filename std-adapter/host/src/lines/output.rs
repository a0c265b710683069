//! The lines that a server sends to a client: whole, in order, and limited in number. They wait in
//! a queue, so that a sender never waits for the client.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::STALLED;
use rigline_std::log::logs_in;
use rigline_std::mutex::lock;

/// The number of waiting bytes from which on log lines for a client are dropped. The dropped lines
/// are counted.
pub const LOG_BACKLOG: usize = 4 << 20;

/// So many bytes of lines that wait are written at once.
const JOINED: usize = 32 << 10;

/// The output to one client. A clone is the same output.
#[derive(Clone)]
pub struct Output {
    queue: mpsc::UnboundedSender<Option<Vec<u8>>>,
    state: Arc<State>,
}

/// The queue of lines that wait to be written. `None` marks the end.
pub type Queue = mpsc::UnboundedReceiver<Option<Vec<u8>>>;

struct State {
    /// More bytes than this do not wait for a client: it is lost.
    backlog: usize,
    /// The writer for lines that can be written at once.
    direct: Option<SharedWriter>,
    /// Held while a line is written or queued: part of a line, too, comes before the next one.
    order: Mutex<()>,
    waiting: AtomicUsize,
    fewer: Notify,
    /// Log lines that were dropped since that was reported.
    dropped_logs: AtomicU64,
    has_overflowed: AtomicBool,
    /// No more lines are accepted.
    gone: watch::Sender<bool>,
    /// The writer has ended.
    ended: watch::Sender<bool>,
}

type Writer = Box<dyn AsyncWrite + Send + Unpin>;
type SharedWriter = Arc<tokio::sync::Mutex<Writer>>;

impl Output {
    /// An output whose lines the caller takes from the returned queue and writes.
    pub fn queued(backlog: usize) -> (Self, Queue) {
        Self::new(backlog, None)
    }

    /// An output to `writer`, written by a task. If `is_direct` is set, a line that need not wait
    /// is written by its sender.
    pub fn of<W: AsyncWrite + Send + Unpin + 'static>(writer: W, backlog: usize, is_direct: bool) -> Self {
        let writer: SharedWriter = Arc::new(tokio::sync::Mutex::new(Box::new(writer)));
        let (output, queue) = Self::new(backlog, is_direct.then(|| writer.clone()));
        tokio::spawn(write(writer, queue, output.state.clone()));
        output
    }

    fn new(backlog: usize, direct: Option<SharedWriter>) -> (Self, Queue) {
        let (lines, queue) = mpsc::unbounded_channel();
        let state = State {
            backlog,
            direct,
            order: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            fewer: Notify::new(),
            dropped_logs: AtomicU64::new(0),
            has_overflowed: AtomicBool::new(false),
            gone: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        };
        (Self { queue: lines, state: Arc::new(state) }, queue)
    }

    /// Sends a line. If more than the allowed bytes wait, the client is given up as lost.
    pub fn send(&self, mut line: Vec<u8>) {
        let _order = lock(&self.state.order);
        if self.is_gone() || self.waiting() == 0 && self.state.write_now(&mut line) {
            return;
        }
        if self.state.waiting.fetch_add(line.len(), Ordering::AcqRel) > self.state.backlog {
            self.state.has_overflowed.store(true, Ordering::Release);
            self.lose();
        }
        let _ = self.queue.send(Some(line));
    }

    /// Sends a log line, unless more than [`LOG_BACKLOG`] bytes wait. If lines were dropped before,
    /// the line that `report` writes with their number goes first.
    pub fn log(&self, line: Vec<u8>, report: impl FnOnce(u64) -> Vec<u8>) {
        if self.waiting() > LOG_BACKLOG {
            return self.drop_logs(logs_in(&line));
        }
        self.report_dropped(report);
        self.send(line);
    }

    /// Counts log lines that are dropped.
    pub fn drop_logs(&self, count: u64) {
        self.state.dropped_logs.fetch_add(count, Ordering::AcqRel);
    }

    /// Sends the line that `report` writes if log lines were dropped since the last such line.
    pub fn report_dropped(&self, report: impl FnOnce(u64) -> Vec<u8>) {
        match self.state.dropped_logs.swap(0, Ordering::AcqRel) {
            0 => {}
            dropped => self.send(report(dropped)),
        }
    }

    /// Returns the number of waiting bytes.
    pub fn waiting(&self) -> usize {
        self.state.waiting.load(Ordering::Acquire)
    }

    /// Returns whether the client was given up because too many bytes waited.
    pub fn has_overflowed(&self) -> bool {
        self.state.has_overflowed.load(Ordering::Acquire)
    }

    /// Waits until at most `bytes` bytes wait, or the client is gone.
    pub async fn at_most(&self, bytes: usize) {
        loop {
            let mut fewer = std::pin::pin!(self.state.fewer.notified());
            fewer.as_mut().enable();
            if self.waiting() <= bytes {
                return;
            }
            tokio::select! {
                () = fewer => {}
                () = self.gone() => return,
            }
        }
    }

    /// Records that a line of the queue was written. `length` is its number of bytes.
    pub fn written(&self, length: usize) {
        self.state.written(length);
    }

    /// Returns whether the client is gone.
    pub fn is_gone(&self) -> bool {
        *self.state.gone.borrow()
    }

    /// Waits until the client is gone.
    pub async fn gone(&self) {
        self.state.gone().await;
    }

    /// Gives the client up as lost. No more lines are written.
    pub fn lose(&self) {
        self.state.gone.send_replace(true);
    }

    /// Waits until everything is written and the writer is closed. Returns whether the client got
    /// all lines.
    pub async fn finish(&self) -> bool {
        let _ = self.queue.send(None);
        let _ = self.state.ended.subscribe().wait_for(|ended| *ended).await;
        !self.is_gone()
    }
}

impl State {
    /// Writes as much of a line as can be written at once, and keeps the rest of it. Returns whether all was written.
    fn write_now(&self, line: &mut Vec<u8>) -> bool {
        let Some(Ok(mut writer)) = self.direct.as_ref().map(|writer| writer.try_lock()) else { return false };
        let task = &mut Context::from_waker(Waker::noop());
        // The task sees a fault too.
        if let Poll::Ready(Ok(sent)) = Pin::new(&mut **writer).poll_write(task, line) {
            line.drain(..sent);
        }
        line.is_empty() && Pin::new(&mut **writer).poll_flush(task).is_ready()
    }

    fn written(&self, length: usize) {
        self.waiting.fetch_sub(length, Ordering::AcqRel);
        self.fewer.notify_waiters();
    }

    async fn gone(&self) {
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }
}

/// Writes the lines of a queue, until its end or until the client is gone.
async fn write(writer: SharedWriter, mut queue: Queue, state: Arc<State>) {
    let lines = async {
        let mut has_ended = false;
        while !has_ended && let Some(Some(mut line)) = queue.recv().await {
            // Many short lines are written at once: a write for each costs more than what is in it.
            while line.len() < JOINED {
                match queue.try_recv() {
                    Ok(Some(next)) => line.extend_from_slice(&next),
                    Ok(None) => {
                        has_ended = true;
                        break;
                    }
                    Err(_) => break,
                }
            }
            if !whole(&mut *writer.lock().await, &line).await {
                state.gone.send_replace(true);
                return;
            }
            state.written(line.len());
        }
    };
    tokio::select! {
        () = lines => {}
        () = state.gone() => {}
    }
    let _ = timeout(STALLED, async { writer.lock().await.shutdown().await }).await;
    state.ended.send_replace(true);
}

/// Writes a line, until its reader reads nothing for too long.
async fn whole(writer: &mut Writer, mut line: &[u8]) -> bool {
    while !line.is_empty() {
        match timeout(STALLED, writer.write(line)).await {
            Ok(Ok(written @ 1..)) => line = line.get(written..).unwrap_or_default(),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
    matches!(timeout(STALLED, writer.flush()).await, Ok(Ok(())))
}
