//! The driver over `embedded-io-async`.

use core::cell::Cell;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{self, Poll};
use core::time::Duration;

use embedded_io_async::{Error as _, ErrorKind, Read, Write};

use super::{End, ServeError, Transport, run, write_dropped};
use crate::Extension;
use crate::call::Outcome;
use crate::clock::{Clock, Instant};
use crate::context::{Context, LogSink};
use crate::engine::{Background, Engine, Next, Run};
use crate::failure::Failure;
use crate::json::write::Writer;
use crate::phrases::{Logs, Progress};
use crate::received::Received;

/// Serves one connection until it ends, or until `stop` is ready ([`core::future::pending`] for never).
///
/// `log` holds the log lines that a handler has written and the transport has not taken yet, in two halves: one fills while
/// the other is sent. A line that does not fit is dropped whole, and the drop reported. If a half has at least
/// [`LEAST_REPLY`](crate::engine::LEAST_REPLY) bytes, faulty lines that come in during a call are answered at once, else after it.
///
/// The reader's `read` must be cancel safe: a read that is dropped before it is ready has taken nothing. The writer's calls
/// are never dropped half way. A reader that returns an error of the kind `Interrupted` has the writer flushed, and is asked
/// again.
///
/// # Errors
/// The transport failed. The call in hand was then cancelled, and
/// [`safe_state`](Extension::safe_state) has run if a session was open.
#[allow(clippy::too_many_arguments, reason = "each is a different part of the environment")]
pub fn serve<E: Extension, R: Read, W: Write<Error = R::Error>>(
    extension: &mut E,
    engine: &mut Engine<'_>,
    reader: &mut R,
    writer: &mut W,
    kind: Transport,
    log: &mut [u8],
    clock: &dyn Clock,
    stop: impl Future<Output = ()>,
) -> impl Future<Output = Result<End, ServeError<R::Error>>> {
    serve_with_logs(extension, engine, reader, writer, kind, log, clock, stop, &|_| false)
}

/// [`serve`] over a transport that can take a log line at once, so that a handler which does not await is heard too.
///
/// `send_log` is given a whole line, newline included, within [`Context::log`]. If it sends the line it returns true; false
/// leaves the line to the queue. It is asked only while no earlier log line waits, so that lines keep their order; a line
/// that the writer was given earlier is the transport's to keep in order.
///
/// # Errors
/// As [`serve`].
#[allow(clippy::too_many_arguments, reason = "each is a different part of the environment")]
pub async fn serve_with_logs<E: Extension, R: Read, W: Write<Error = R::Error>>(
    extension: &mut E,
    engine: &mut Engine<'_>,
    reader: &mut R,
    writer: &mut W,
    kind: Transport,
    log: &mut [u8],
    clock: &dyn Clock,
    stop: impl Future<Output = ()>,
    send_log: &dyn Fn(&[u8]) -> bool,
) -> Result<End, ServeError<R::Error>> {
    let mut driver = Driver {
        reader,
        writer,
        kind,
        clock,
        queue: Queue::new(log),
        stop: pin!(stop),
        send_log,
        safety: SafeState::Idle,
        carry: None,
    };
    let result = driver.serve(extension, engine).await;
    let safety = driver.safety;
    let is_lost = engine.disconnect() && !matches!(result, Ok(End::Shutdown));
    if safety == SafeState::Required || is_lost && safety == SafeState::Idle {
        extension.safe_state().await;
    }
    result
}

struct Driver<'a, R, W, S> {
    reader: &'a mut R,
    writer: &'a mut W,
    kind: Transport,
    clock: &'a dyn Clock,
    queue: Queue<'a>,
    stop: Pin<&'a mut S>,
    send_log: &'a dyn Fn(&[u8]) -> bool,
    safety: SafeState,
    /// A byte that was read while there was no room for it.
    carry: Option<u8>,
}

/// What is known of the extension's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SafeState {
    Idle,
    /// A call is in hand, or was cut off and the extension not asked for its safe state yet.
    Required,
    /// The last thing that ran was [`Extension::safe_state`], and nothing will run any more.
    Done,
}

/// Why a call's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEnd {
    Ended,
    Late,
    Cancelled,
    Stopped,
}

impl<R: Read, W: Write<Error = R::Error>, S: Future<Output = ()>> Driver<'_, R, W, S> {
    async fn serve<E: Extension>(
        &mut self,
        extension: &mut E,
        engine: &mut Engine<'_>,
    ) -> Result<End, ServeError<R::Error>> {
        let mut stopped = false;
        loop {
            match engine.next() {
                Next::Read if stopped => return Ok(End::Stopped),
                Next::Read if self.carry.is_some() => {
                    let byte = self.carry.take().unwrap_or_default();
                    if let Some(place) = engine.space().first_mut() {
                        *place = byte;
                        engine.commit(1);
                    }
                }
                Next::Read => match or_stopped(self.stop.as_mut(), self.reader.read(engine.space())).await {
                    None => return Ok(End::Stopped),
                    Some(Ok(0)) if self.kind == Transport::Stream => return Ok(End::Input),
                    Some(Ok(0)) => engine.finish(),
                    Some(Ok(count)) => engine.commit(count),
                    Some(Err(error)) => flush_if_interrupted(self.writer, error).await?,
                },
                Next::Write(end) => {
                    write_line(self.writer, engine.line(end)).await?;
                    if stopped {
                        return Ok(End::Stopped);
                    }
                }
                Next::Run => {
                    // Handlers that never await would hear of it only when the last of them has ended.
                    stopped = stopped || is_ready(self.stop.as_mut()).await;
                    if stopped {
                        if !engine.is_in_batch() {
                            return Ok(End::Stopped);
                        }
                        // The rest of a batch is cancelled too, so that its one line still goes out.
                        engine.complete(&Err(Failure::CANCELLED));
                        continue;
                    }
                    let mut input_ended = false;
                    let mut result = Err(Failure::CANCELLED);
                    self.safety = SafeState::Required;
                    stopped = self.run_call(extension, engine, &mut input_ended, &mut result).await?;
                    if input_ended {
                        if self.kind == Transport::Stream {
                            return Ok(End::Input);
                        }
                        engine.finish();
                    }
                    self.safety = if stopped { SafeState::Done } else { SafeState::Idle };
                    engine.complete(&result);
                }
                Next::Shutdown if self.kind == Transport::Stdio => return Ok(End::Shutdown),
                Next::Shutdown => {}
                Next::End => return Ok(End::Input),
            }
        }
    }

    /// Runs a call to its end, its deadline or the loss of the connection, and everything around it meanwhile. Returns whether
    /// it was asked to stop.
    async fn run_call<E: Extension>(
        &mut self,
        extension: &mut E,
        engine: &mut Engine<'_>,
        input_ended: &mut bool,
        result: &mut Result<Outcome, Failure>,
    ) -> Result<bool, ServeError<R::Error>> {
        let Some(Run { work, reply, background }) = engine.run() else { return Ok(false) };
        let Self { reader, writer, kind, clock, queue, stop, send_log, safety, carry } = self;
        let clock = *clock;
        let deadline = work.timeout_nanos().map(|nanos| clock.now().after_nanos(nanos));
        let is_late = || deadline.is_some_and(|deadline| clock.now() > deadline);
        queue.logs.set(reply.reply.phrases().logs);
        let mut heart = Heart { received: reply.received, write: reply.reply.phrases().progress, next: None };
        heart.rest(clock);
        queue.beats.set(None);
        let mut sink = QueueSink { queue, send_log: *send_log, held: None };
        let mut cx = Context::new(reply, &mut sink, clock, deadline);
        let alongside = Alongside {
            over: Cell::new(false),
            ended: Cell::new(false),
            nudged: Cell::new(false),
            cancelled: Cell::new(false),
            carry: Cell::new(*carry),
        };
        let mut ran = CallEnd::Stopped;
        let mut outside = pin!(alongside.call(background, *reader, *writer, queue, *kind));
        let mut lost = None;
        {
            let mut handler = pin!(run(&mut *extension, work, &mut cx));
            poll_fn(|task| {
                // A handler that slept past its deadline does not wake up.
                let polled = if is_late() { Poll::Pending } else { handler.as_mut().poll(task) };
                if is_late() {
                    *result = Err(Failure::TIMEOUT);
                    ran = CallEnd::Late;
                    return Poll::Ready(());
                }
                match polled {
                    Poll::Ready(ended) => {
                        *result = ended;
                        ran = CallEnd::Ended;
                        return Poll::Ready(());
                    }
                    Poll::Pending if stop.as_mut().poll(task).is_ready() => return Poll::Ready(()),
                    Poll::Pending => {
                        if let Some(deadline) = deadline {
                            clock.wake_at(Instant::after_nanos(deadline, 1), task.waker());
                        }
                        if let Some(next) = heart.beat(clock, queue, *send_log) {
                            clock.wake_at(next, task.waker());
                        }
                    }
                }
                let polled = alongside.poll(outside.as_mut(), task).map(|end| lost = Some(end));
                if polled.is_pending() && alongside.cancelled.get() {
                    ran = CallEnd::Cancelled;
                    return Poll::Ready(());
                }
                polled
            })
            .await;
        }
        // At once: a transport whose other end does not read may hold back the reply for any time.
        if lost.is_none() && ran != CallEnd::Ended {
            let mut safe_state = pin!(extension.safe_state());
            poll_fn(|task| {
                if safe_state.as_mut().poll(task).is_ready() {
                    *safety = SafeState::Done;
                    return Poll::Ready(());
                }
                alongside.poll(outside.as_mut(), task).map(|end| lost = Some(end))
            })
            .await;
        }
        alongside.over.set(true);
        let end = match lost {
            Some(end) => end,
            None => poll_fn(|task| alongside.poll(outside.as_mut(), task)).await,
        };
        end?;
        *carry = alongside.carry.get();
        *input_ended = alongside.ended.get();
        Ok(ran == CallEnd::Stopped)
    }
}

/// After how long a caller that wants to hear of a call's progress hears that it goes on: callers give up after a minute.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// Reports that a handler is still there, to callers who asked for progress.
struct Heart<'c> {
    received: Option<Received<'c>>,
    write: Option<fn(&mut Writer<'_>, &Progress<'_>) -> bool>,
    /// When it beats; none if nobody asked.
    next: Option<Instant>,
}

impl Heart<'_> {
    fn rest(&mut self, clock: &dyn Clock) {
        self.next = self.write.map(|_| clock.now().after(HEARTBEAT));
    }

    /// Beats if it is time to; returns when to look again.
    fn beat(&mut self, clock: &dyn Clock, queue: &Queue<'_>, send_log: &dyn Fn(&[u8]) -> bool) -> Option<Instant> {
        let (next, write) = (self.next?, self.write?);
        if clock.now() < next {
            return Some(next);
        }
        let (done, beat) = queue.beats.get().unwrap_or_default();
        let beat = beat.saturating_add(1);
        let progress = Progress { done, beat, total: None, message: None, received: self.received };
        let mut sink = QueueSink { queue, send_log, held: None };
        let mut out = Writer::new(sink.room());
        if write(&mut out, &progress) {
            out.byte(b'\n');
            match out.finish().map(|line| line.len()) {
                Ok(length) => sink.commit(length),
                Err(_) => sink.dropped(),
            }
            queue.beats.set(Some((done, beat)));
            self.rest(clock);
        } else {
            sink.withdraw();
            self.next = None;
        }
        self.next
    }
}

/// What goes on around a call.
struct Alongside {
    /// The call is over.
    over: Cell<bool>,
    /// The input has ended.
    ended: Cell<bool>,
    /// Something was answered.
    nudged: Cell<bool>,
    /// The caller has cancelled the call.
    cancelled: Cell<bool>,
    /// A byte that was read while there was no room for it. Only a read notices the loss of a connection, so that one more
    /// byte is read when the request region is full.
    carry: Cell<Option<u8>>,
}

impl Alongside {
    /// Reads, sends logs and answers what cannot wait while a handler runs, until it is over and all its logs are out, or the
    /// connection is lost.
    async fn call<R: Read, W: Write<Error = R::Error>>(
        &self,
        mut background: Background<'_>,
        reader: &mut R,
        writer: &mut W,
        queue: &Queue<'_>,
        kind: Transport,
    ) -> Result<(), ServeError<R::Error>> {
        loop {
            while let Some(mut filled) = self.lines(queue, &mut background) {
                while filled.length > 0 {
                    for line in filled.lines() {
                        write_line(writer, line).await?;
                    }
                    filled.length = queue.write_dropped(filled.memory);
                }
                queue.put_back(filled);
            }
            if self.ended.get() && kind == Transport::Stream || self.over.get() && queue.is_empty() {
                return Ok(());
            }
            let mut extra = [0];
            let (read, is_full) = {
                let mut space = background.space();
                if let (Some(byte), Some(place)) = (self.carry.get(), space.first_mut()) {
                    *place = byte;
                    self.carry.set(None);
                    background.commit(1);
                    continue;
                }
                let is_full = space.is_empty();
                if is_full {
                    space = &mut extra;
                }
                let may_read = !self.ended.get() && self.carry.get().is_none();
                let mut read = pin!(reader.read(space));
                let read = poll_fn(|task| match () {
                    () if self.over.get() || !queue.is_empty() => Poll::Ready(None),
                    () if may_read => read.as_mut().poll(task).map(Some),
                    () => Poll::Pending,
                })
                .await;
                (read, is_full)
            };
            match read {
                None => {}
                Some(Ok(0)) => {
                    self.ended.set(true);
                    background.finish();
                }
                Some(Ok(_)) if is_full => self.carry.set(extra.first().copied()),
                Some(Ok(count)) => background.commit(count),
                Some(Err(error)) => flush_if_interrupted(writer, error).await?,
            }
        }
    }

    /// Polls [`call`](Self::call).
    fn poll<F: Future>(&self, call: Pin<&mut F>, task: &mut task::Context<'_>) -> Poll<F::Output> {
        let polled = call.poll(task);
        if self.nudged.take() {
            // What was answered may concern the handler: a run of its may be cancelled.
            task.waker().wake_by_ref();
        }
        polled
    }

    /// Lines to be sent: logs, or else an answer to a line that need not wait; none if there is neither.
    fn lines<'m>(&self, queue: &Queue<'m>, background: &mut Background<'_>) -> Option<Buffer<'m>> {
        if let Some(mut filled) = queue.swap() {
            if filled.length == 0 {
                filled.length = queue.write_dropped(filled.memory);
            }
            return Some(filled);
        }
        let mut spare = queue.spare.take()?;
        spare.length = background.answer(spare.memory).map_or(0, <[u8]>::len);
        if background.is_cancelled() {
            self.cancelled.set(true);
            self.nudged.set(true);
        }
        if spare.length == 0 {
            queue.put_back(spare);
            return None;
        }
        self.nudged.set(true);
        Some(spare)
    }
}

/// Whether `future` is ready by now; if so, it must not be asked again.
async fn is_ready(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_ready())).await
}

/// `future`'s output, or none if `stop` is ready first.
async fn or_stopped<F: Future>(mut stop: Pin<&mut impl Future<Output = ()>>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|task| match future.as_mut().poll(task) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => stop.as_mut().poll(task).map(|()| None),
    })
    .await
}

/// `write_all`, but for its panic at `Ok(0)`; then a flush.
async fn write_line<W: Write>(writer: &mut W, mut line: &[u8]) -> Result<(), ServeError<W::Error>> {
    while !line.is_empty() {
        match writer.write(line).await {
            Ok(0) => return Err(ServeError::WriteZero),
            Ok(count) => line = line.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(ServeError::Write(error)),
        }
    }
    writer.flush().await.map_err(ServeError::Write)
}

/// A reader that returns an error of the kind `Interrupted` wants the writer flushed, and is asked again.
async fn flush_if_interrupted<W: Write>(writer: &mut W, error: W::Error) -> Result<(), ServeError<W::Error>> {
    if error.kind() != ErrorKind::Interrupted {
        return Err(ServeError::Read(error));
    }
    write_line(writer, &[]).await
}

/// Log lines between a handler and its transport: one buffer fills while the other is sent. Both are moved, not shared.
struct Queue<'m> {
    filling: Cell<Option<Buffer<'m>>>,
    spare: Cell<Option<Buffer<'m>>>,
    length: Cell<usize>,
    dropped: Cell<usize>,
    /// Lines that were queued are being sent.
    sending: Cell<bool>,
    /// The size of each buffer.
    half: usize,
    /// How the call in hand writes logs.
    logs: Cell<Logs>,
    /// How far the call has come, and how often that was reported again since.
    beats: Cell<Option<(u32, u32)>>,
}

struct Buffer<'m> {
    memory: &'m mut [u8],
    length: usize,
}

impl Buffer<'_> {
    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.memory.get(..self.length).unwrap_or_default().split_inclusive(|byte| *byte == b'\n')
    }
}

impl<'m> Queue<'m> {
    fn new(memory: &'m mut [u8]) -> Self {
        let half = memory.len() / 2;
        let (one, other) = memory.split_at_mut_checked(half).unwrap_or_default();
        let buffer = |memory| Cell::new(Some(Buffer { memory, length: 0 }));
        Self {
            filling: buffer(one),
            spare: buffer(other),
            length: Cell::new(0),
            dropped: Cell::new(0),
            sending: Cell::new(false),
            half,
            logs: Cell::new(Logs::OutOfBand),
            beats: Cell::new(None),
        }
    }

    fn is_empty(&self) -> bool {
        self.length.get() == 0 && self.dropped.get() == 0
    }

    /// The filled buffer, the spare one taking its place; none if there is nothing to send.
    fn swap(&self) -> Option<Buffer<'m>> {
        if self.is_empty() {
            return None;
        }
        let spare = self.spare.take()?;
        self.length.set(0);
        self.sending.set(true);
        self.filling.replace(Some(spare))
    }

    /// What was sent is done with.
    fn put_back(&self, mut sent: Buffer<'m>) {
        sent.length = 0;
        self.spare.set(Some(sent));
        self.sending.set(false);
    }

    /// Writes how many lines were dropped since the last report; returns the length of that line, or 0.
    fn write_dropped(&self, memory: &mut [u8]) -> usize {
        match self.dropped.take() {
            0 => 0,
            dropped => write_dropped(memory, dropped, self.logs.get()).unwrap_or_default(),
        }
    }
}

struct QueueSink<'q, 'm> {
    queue: &'q Queue<'m>,
    send_log: &'q dyn Fn(&[u8]) -> bool,
    held: Option<Buffer<'m>>,
}

impl QueueSink<'_, '_> {
    fn put_back(&mut self) {
        if let Some(buffer) = self.held.take() {
            self.queue.length.set(buffer.length);
            self.queue.filling.set(Some(buffer));
        }
    }
}

impl LogSink for QueueSink<'_, '_> {
    fn room(&mut self) -> &mut [u8] {
        self.put_back();
        self.held = self.queue.filling.take();
        match &mut self.held {
            Some(buffer) => buffer.memory.get_mut(buffer.length..).unwrap_or_default(),
            None => &mut [],
        }
    }

    fn commit(&mut self, length: usize) {
        if let Some(buffer) = &mut self.held {
            let end = buffer.length.saturating_add(length);
            let may_overtake = !self.queue.is_empty() || self.queue.sending.get();
            let line = buffer.memory.get(buffer.length..end).unwrap_or_default();
            if may_overtake || !(self.send_log)(line) {
                buffer.length = end;
            }
        }
        self.put_back();
    }

    fn withdraw(&mut self) {
        self.put_back();
    }

    fn progressed(&mut self, done: u32) -> bool {
        let is_farther = self.queue.beats.get().is_none_or(|(last, _)| done > last);
        if is_farther {
            self.queue.beats.set(Some((done, 0)));
        }
        is_farther
    }

    fn is_queue(&self) -> bool {
        true
    }

    fn capacity(&self) -> usize {
        self.queue.half
    }

    fn dropped(&mut self) {
        self.put_back();
        self.queue.dropped.set(self.queue.dropped.get().saturating_add(1));
    }
}
