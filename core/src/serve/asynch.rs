//! The shell over `embedded-io-async`.

use core::cell::Cell;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::Poll;

use embedded_io_async::{Error as _, ErrorKind, Read, Write};

use super::{End, ServeError, Transport, run, write_dropped};
use crate::Extension;
use crate::clock::{Clock, Instant};
use crate::context::{Context, LogSink};
use crate::engine::{Background, Engine, Run, Step};
use crate::extension::{Failure, Outcome};

/// Serves one connection until it ends, or until `stop` is ready ([`core::future::pending`] for never).
///
/// `log` holds the log lines that a handler has written and the transport has not taken yet, in two halves: one fills while
/// the other is sent. A line that does not fit is dropped whole, and the drop reported. If a half has at least
/// [`LEAST_REPLY`](crate::engine::LEAST_REPLY) bytes, faulty lines that come in during a call are answered at once, else after it.
///
/// The reader's `read` must be cancel safe: a read that is dropped before it is ready has taken nothing. The writer's calls
/// are never dropped half way. A reader that gives an error of the kind `Interrupted` has the writer flushed, and is asked
/// again.
///
/// # Errors
/// The transport failed. The call in hand was then cancelled, and
/// [`safe_state`](Extension::safe_state) has run if a session was open.
#[allow(clippy::too_many_arguments, reason = "each is a different part of the surroundings")]
pub async fn serve<E: Extension, R: Read, W: Write<Error = R::Error>>(
    extension: &mut E,
    engine: &mut Engine<'_>,
    reader: &mut R,
    writer: &mut W,
    kind: Transport,
    log: &mut [u8],
    clock: &dyn Clock,
    stop: impl Future<Output = ()>,
) -> Result<End, ServeError<R::Error>> {
    serve_with_logs(extension, engine, reader, writer, kind, log, clock, stop, &|_| false).await
}

/// [`serve`] over a transport that can take a log line at once, so that a handler which does not await is heard too.
///
/// `send_log` is given a whole line, newline included, within [`Context::log`]. If it sends the line it gives true; false
/// leaves the line to the queue. It is asked only while no earlier log line waits, so that lines keep their order; a line
/// that the writer was given earlier is the transport's to keep in order.
///
/// # Errors
/// As [`serve`].
#[allow(clippy::too_many_arguments, reason = "each is a different part of the surroundings")]
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
    let mut shell = Shell {
        reader,
        writer,
        kind,
        clock,
        queue: Queue::new(log),
        stop: pin!(stop),
        send_log,
        safety: Safety::Unasked,
    };
    let result = shell.serve(extension, engine).await;
    let safety = shell.safety;
    let is_lost = engine.disconnect() && !matches!(result, Ok(End::Shutdown));
    if safety == Safety::Missing || is_lost && safety == Safety::Unasked {
        extension.safe_state().await;
    }
    result
}

struct Shell<'a, R, W, S> {
    reader: &'a mut R,
    writer: &'a mut W,
    kind: Transport,
    clock: &'a dyn Clock,
    queue: Queue<'a>,
    stop: Pin<&'a mut S>,
    send_log: &'a dyn Fn(&[u8]) -> bool,
    safety: Safety,
}

/// What is known of the extension's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Safety {
    Unasked,
    /// A call is in hand, or was cut off and the extension not asked for its safe state yet.
    Missing,
    /// The last thing that ran was [`Extension::safe_state`], and nothing will run any more.
    Given,
}

/// Why a call's run ended.
enum Ran {
    Ended(Result<Outcome, Failure>),
    Late,
    Stopped,
}

impl<R: Read, W: Write<Error = R::Error>, S: Future<Output = ()>> Shell<'_, R, W, S> {
    async fn serve<E: Extension>(
        &mut self,
        extension: &mut E,
        engine: &mut Engine<'_>,
    ) -> Result<End, ServeError<R::Error>> {
        let mut stopped = false;
        loop {
            match engine.step() {
                Step::Read if stopped => return Ok(End::Stopped),
                Step::Read => match unless(self.stop.as_mut(), self.reader.read(engine.space())).await {
                    None => return Ok(End::Stopped),
                    Some(Ok(0)) if self.kind == Transport::Wire => return Ok(End::Input),
                    Some(Ok(0)) => engine.finish(),
                    Some(Ok(count)) => engine.commit(count),
                    Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {
                        self.writer.flush().await.map_err(ServeError::Write)?;
                    }
                    Some(Err(error)) => return Err(ServeError::Read(error)),
                },
                Step::Write(line) => {
                    write_line(self.writer, line).await?;
                    if stopped {
                        return Ok(End::Stopped);
                    }
                }
                Step::Run(step) => {
                    // Handlers that never await would hear of it only when the last of them has ended.
                    stopped = stopped || is_ready(self.stop.as_mut()).await;
                    if stopped {
                        if !engine.is_in_batch() {
                            return Ok(End::Stopped);
                        }
                        // The rest of a batch is cancelled too, so that its one line still goes out.
                        engine.complete(Err(Failure::CANCELLED));
                        continue;
                    }
                    let mut input_ended = false;
                    self.safety = Safety::Missing;
                    let ran = self.run_call(extension, step, &mut input_ended).await?;
                    if input_ended {
                        if self.kind == Transport::Wire {
                            return Ok(End::Input);
                        }
                        engine.finish();
                    }
                    let result = match ran {
                        Ran::Ended(result) => result,
                        Ran::Late => Err(Failure::TIMEOUT),
                        Ran::Stopped => Err(Failure::CANCELLED),
                    };
                    stopped = matches!(ran, Ran::Stopped);
                    self.safety = if stopped { Safety::Given } else { Safety::Unasked };
                    engine.complete(result);
                }
                Step::Shutdown if self.kind == Transport::Process => return Ok(End::Shutdown),
                Step::Shutdown => {}
                Step::End => return Ok(End::Input),
            }
        }
    }

    /// Runs a call to its end, its deadline or the loss of the connection, and everything around it meanwhile.
    async fn run_call<E: Extension>(
        &mut self,
        extension: &mut E,
        step: Run<'_>,
        input_ended: &mut bool,
    ) -> Result<Ran, ServeError<R::Error>> {
        let Run { work, scratch, background } = step;
        let Self { reader, writer, kind, clock, queue, stop, send_log, .. } = self;
        let clock = *clock;
        let deadline = work.timeout_nanos().map(|nanos| clock.now().after_nanos(nanos));
        let is_late = || deadline.is_some_and(|deadline| clock.now() > deadline);
        let mut sink = QueueSink { queue, send_log: *send_log, held: None };
        let mut cx = Context::new(scratch, &mut sink, clock, deadline);
        let (over, ended, nudged) = (Cell::new(false), Cell::new(false), Cell::new(false));
        let safety = Cell::new(Safety::Missing);
        let mut ran = None;
        let result = {
            let mut work = pin!(async {
                let ran = {
                    let mut handler = pin!(run(&mut *extension, work, &mut cx));
                    poll_fn(|task| {
                        // A handler that slept past its deadline does not wake up.
                        if is_late() {
                            return Poll::Ready(Ran::Late);
                        }
                        match handler.as_mut().poll(task) {
                            _ if is_late() => Poll::Ready(Ran::Late),
                            Poll::Ready(result) => Poll::Ready(Ran::Ended(result)),
                            Poll::Pending if stop.as_mut().poll(task).is_ready() => Poll::Ready(Ran::Stopped),
                            Poll::Pending => {
                                if let Some(deadline) = deadline {
                                    clock.wake_at(Instant::after_nanos(deadline, 1), task.waker());
                                }
                                Poll::Pending
                            }
                        }
                    })
                    .await
                };
                // At once: a transport that nobody reads may hold back the reply for as long as it likes.
                if !matches!(ran, Ran::Ended(_)) {
                    extension.safe_state().await;
                    safety.set(Safety::Given);
                }
                ran
            });
            let mut around = pin!(around_call(background, *reader, *writer, queue, *kind, &over, &ended, &nudged));
            poll_fn(|task| {
                if ran.is_none()
                    && let Poll::Ready(end) = work.as_mut().poll(task)
                {
                    ran = Some(end);
                    over.set(true);
                }
                let around = around.as_mut().poll(task);
                if nudged.take() {
                    // What was answered may concern the handler: a run of its may be cancelled.
                    task.waker().wake_by_ref();
                }
                around
            })
            .await
        };
        self.safety = safety.get();
        result?;
        *input_ended = ended.get();
        Ok(ran.unwrap_or(Ran::Stopped))
    }
}

#[allow(clippy::too_many_arguments, reason = "each is a different part of the surroundings")]
/// Reads, sends logs and answers what cannot wait while a handler runs, until it is `over` and all its logs are out, or the
/// connection is lost.
async fn around_call<R: Read, W: Write<Error = R::Error>>(
    mut background: Background<'_>,
    reader: &mut R,
    writer: &mut W,
    queue: &Queue<'_>,
    kind: Transport,
    over: &Cell<bool>,
    ended: &Cell<bool>,
    nudged: &Cell<bool>,
) -> Result<(), ServeError<R::Error>> {
    loop {
        while let Some(mut filled) = queue.swap() {
            for line in filled.lines() {
                write_line(writer, line).await?;
            }
            let dropped = queue.dropped.take();
            if dropped > 0
                && let Some(length) = write_dropped(filled.memory, dropped)
            {
                write_line(writer, filled.memory.get(..length).unwrap_or_default()).await?;
            }
            filled.length = 0;
            queue.spare.set(Some(filled));
            queue.sending.set(false);
        }
        if let Some(spare) = queue.spare.take() {
            while let Some(line) = background.answer(spare.memory) {
                write_line(writer, line).await?;
                nudged.set(true);
            }
            queue.spare.set(Some(spare));
        }
        if ended.get() && kind == Transport::Wire || over.get() && queue.is_empty() {
            return Ok(());
        }
        let read = {
            let space = background.space();
            let has_space = !space.is_empty() && !ended.get();
            let mut read = pin!(reader.read(space));
            poll_fn(|task| match () {
                () if over.get() || !queue.is_empty() => Poll::Ready(None),
                () if has_space => read.as_mut().poll(task).map(Some),
                () => Poll::Pending,
            })
            .await
        };
        match read {
            None => {}
            Some(Ok(0)) => {
                ended.set(true);
                background.finish();
            }
            Some(Ok(count)) => background.commit(count),
            Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {
                writer.flush().await.map_err(ServeError::Write)?;
            }
            Some(Err(error)) => return Err(ServeError::Read(error)),
        }
    }
}

/// Whether `future` is ready by now; if so, it must not be asked again.
async fn is_ready(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_ready())).await
}

/// `future`'s output, or none if `stop` is ready first.
async fn unless<F: Future>(mut stop: Pin<&mut impl Future<Output = ()>>, future: F) -> Option<F::Output> {
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

    fn capacity(&self) -> usize {
        self.queue.half
    }

    fn dropped(&mut self) {
        self.put_back();
        self.queue.dropped.set(self.queue.dropped.get().saturating_add(1));
    }
}
