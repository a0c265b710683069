//! The driver over `embedded-io-async`.

use core::cell::Cell;
use core::fmt;
use core::future::{Future, Pending, pending, poll_fn};
use core::pin::{Pin, pin};
use core::task::{self, Poll};
use core::time::Duration;

use embedded_io_async::{Error as _, ErrorKind, Read, Write};

use super::{Beats, End, Heartbeat, ServeError, Transport, logs_of_driver, progressed, write_dropped};
use crate::Extension;
use crate::call::Outcome;
use crate::clock::{Clock, Instant};
use crate::context::{Context, LogSink, ReplyBuffer};
use crate::engine::arrivals::{Arrivals, Due};
use crate::engine::{Background, Engine, Next, Run};
use crate::exchange::{Late, Work};
use crate::failure::{Failure, FailureKind};
use crate::own_frame::own_frame;
use crate::protocol::format::Logs;

/// The async driver of one connection, with its settings. [`serve`](Self::serve) runs it.
///
/// ```
/// # use rigline::serve::{Transport, asynch::Server};
/// # use rigline::engine::Engine;
/// # use rigline::{Clock, Extension};
/// # async fn connection<E: Extension, T: embedded_io_async::Read + embedded_io_async::Write>(
/// #     extension: &mut E, engine: &mut Engine<'_>, clock: &dyn Clock, reader: &mut T, writer: &mut T, logs: &mut [u8],
/// # ) {
/// let server = Server::new(extension, engine, clock).transport(Transport::Stream).log_buffer(logs);
/// let end = server.serve(reader, writer).await;
/// # }
/// ```
pub struct Server<'a, 'm, E, S = Pending<()>> {
    extension: &'a mut E,
    engine: &'a mut Engine<'m>,
    clock: &'a dyn Clock,
    transport: Transport,
    log_buffer: &'a mut [u8],
    stop: S,
    send_log: &'a dyn Fn(&[u8]) -> bool,
    ends_calls: bool,
    keeps_outputs: bool,
}

impl<'a, 'm, E: Extension> Server<'a, 'm, E> {
    /// A driver that serves `extension`. `engine` has the protocols, the limits and the memory of
    /// requests and replies.
    pub fn new(extension: &'a mut E, engine: &'a mut Engine<'m>, clock: &'a dyn Clock) -> Self {
        let transport = Transport::Stdio;
        Self {
            extension,
            engine,
            clock,
            transport,
            log_buffer: &mut [],
            stop: pending(),
            send_log: &|_| false,
            ends_calls: true,
            keeps_outputs: false,
        }
    }
}

impl<'a, 'm, E: Extension, S: Future<Output = ()>> Server<'a, 'm, E, S> {
    /// Sets the kind of transport, which decides what the end of input and `shutdown` mean
    /// [default: [`Transport::Stdio`]].
    #[must_use]
    pub fn transport(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// Sets the memory for log lines that a handler has written and the transport has not accepted
    /// yet [default: none]. It is used in two halves: one fills while the other is sent. A line
    /// that does not fit is dropped as a whole, and the number of dropped lines is reported. If a
    /// half has at least [`LEAST_REPLY`](crate::exchange::LEAST_REPLY) bytes, faulty lines that
    /// arrive during a call are answered at once, otherwise after the call.
    #[must_use]
    pub fn log_buffer(self, log_buffer: &'a mut [u8]) -> Self {
        Self { log_buffer, ..self }
    }

    /// Sets a future that ends serving when it is ready [default: never]. The call that runs is
    /// cancelled, and [`safe_state`](Extension::safe_state) runs.
    pub fn stop<N: Future<Output = ()>>(self, stop: N) -> Server<'a, 'm, E, N> {
        let Self { extension, engine, clock, transport, log_buffer, send_log, ends_calls, keeps_outputs, .. } = self;
        Server { extension, engine, clock, transport, log_buffer, stop, send_log, ends_calls, keeps_outputs }
    }

    /// Sets whether, on [`Transport::Stdio`], a call of a session that began with `initialize` is
    /// cancelled four seconds after the end of input [default: yes].
    /// [`safe_state`](Extension::safe_state) then runs, and serving ends with the call's reply.
    /// Calls outside of a session run to their end.
    #[must_use]
    pub fn end_of_input_ends_calls(self, ends_calls: bool) -> Self {
        Self { ends_calls, ..self }
    }

    /// Sets whether the outputs of the hardware stay as they are when a session ends or is lost
    /// [default: no]. After a call that is cancelled or late, [`safe_state`](Extension::safe_state)
    /// runs nevertheless.
    #[must_use]
    pub fn keep_outputs(self, keeps_outputs: bool) -> Self {
        Self { keeps_outputs, ..self }
    }

    /// Sets a function that gets each log line first, with its newline, while the handler runs. It
    /// is for transports that can accept a line at once. If it returns false, the line goes through
    /// the [log buffer](Self::log_buffer). To keep the order of lines, it is called only if no
    /// earlier line waits in the log buffer. The transport must keep the order of these lines and
    /// of lines that the writer got earlier.
    #[must_use]
    pub fn send_log(self, send_log: &'a dyn Fn(&[u8]) -> bool) -> Self {
        Self { send_log, ..self }
    }

    /// Serves the connection until it ends.
    ///
    /// The reader's `read` must be cancel safe: a read that is dropped before it is ready must not
    /// have taken any bytes. Calls of the writer are never dropped before they are ready. If the
    /// reader returns an error of the kind `Interrupted`, the writer is flushed and the reader is
    /// called again. If the error has the kind `AlreadyExists`, as with a binary link, the last
    /// reply is written again before that, unless a call runs.
    ///
    /// # Errors
    /// The transport failed. The running call was then cancelled, and
    /// [`safe_state`](Extension::safe_state) has run if a session was open.
    pub fn serve<R: Read, W: Write<Error = R::Error>>(
        self,
        reader: &mut R,
        writer: &mut W,
    ) -> impl Future<Output = Result<End, ServeError<R::Error>>> {
        self.run::<false, R, W>(reader, writer)
    }

    /// Serves as [`serve`](Self::serve) does, but takes the end of input as a pause. The session
    /// stays as it was. The caller must then [disconnect](Engine::disconnect) the engine, or
    /// [resume](Engine::resume) it and serve on.
    #[doc(hidden)]
    pub fn serve_part<R: Read, W: Write<Error = R::Error>>(
        self,
        reader: &mut R,
        writer: &mut W,
    ) -> impl Future<Output = Result<End, ServeError<R::Error>>> {
        self.run::<true, R, W>(reader, writer)
    }

    async fn run<const PAUSES: bool, R: Read, W: Write<Error = R::Error>>(
        self,
        reader: &mut R,
        writer: &mut W,
    ) -> Result<End, ServeError<R::Error>> {
        let Self { extension, engine, clock, transport, log_buffer, stop, send_log, ends_calls, keeps_outputs } = self;
        let stop = pin!(stop);
        let driver = Driver {
            kind: transport,
            clock,
            queue: Queue::new(log_buffer),
            stop: Stop(Cell::new(Some(stop))),
            send_log,
            safety: Cell::new(SafeState::Idle),
            ends_calls,
            is_short_lived: Cell::new(false),
            carry: Cell::new(None),
            #[cfg(feature = "postcard")]
            last: Cell::new(None),
        };
        let result = own_frame(pin!(driver.serve(extension, engine, reader, writer))).await;
        let safety = driver.safety.get();
        if PAUSES && safety == SafeState::Idle && matches!(result, Ok(End::Input)) {
            return result;
        }
        let is_lost = engine.disconnect() && !matches!(result, Ok(End::Shutdown)) && !keeps_outputs;
        if safety == SafeState::Required || is_lost && safety == SafeState::Idle {
            own_frame(pin!(extension.safe_state())).await;
        }
        result
    }
}

impl<E, S> fmt::Debug for Server<'_, '_, E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// The parts for serving a connection, whatever its transport and its extension are. Only what must
/// know them is generic: an image with two transports has one copy of all else.
struct Driver<'a> {
    kind: Transport,
    clock: &'a dyn Clock,
    queue: Queue<'a>,
    stop: Stop<'a>,
    send_log: &'a dyn Fn(&[u8]) -> bool,
    safety: Cell<SafeState>,
    /// The end of input ends a call of a session.
    ends_calls: bool,
    /// The running call ends soon after the end of input.
    is_short_lived: Cell<bool>,
    /// A byte that was read while there was no room for it. Only a read notices the loss of a
    /// connection, so that one more byte is read when the request region is full.
    carry: Cell<Option<u8>>,
    /// Where the last reply ends in the engine's memory, which has it until the next one begins.
    #[cfg(feature = "postcard")]
    last: Cell<Option<usize>>,
}

/// Knowledge of the extension's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SafeState {
    Idle,
    /// The safe state must run before anything else: a call runs that may switch outputs on, or
    /// such a call was cut off.
    Required,
    /// The safe state has run, and nothing will run after it.
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

/// A future whose type is not known.
type Dyn<'f, T> = Pin<&'f mut (dyn Future<Output = T> + 'f)>;

/// The future that ends serving; none once it was ready.
struct Stop<'s>(Cell<Option<Dyn<'s, ()>>>);

impl Stop<'_> {
    fn poll(&self, task: &mut task::Context<'_>) -> bool {
        let Some(mut stop) = self.0.take() else { return true };
        let is_ready = stop.as_mut().poll(task).is_ready();
        if !is_ready {
            self.0.set(Some(stop));
        }
        is_ready
    }
}

impl Driver<'_> {
    async fn serve<E: Extension, R: Read, W: Write<Error = R::Error>>(
        &self,
        extension: &mut E,
        engine: &mut Engine<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Result<End, ServeError<R::Error>> {
        let mut fault = None;
        let mut stopped = false;
        loop {
            let mut between = BetweenCalls { driver: self, engine: &mut *engine, stopped, wrote: false, end: None };
            let is_stopped = |task: Option<&mut task::Context<'_>>| task.is_some_and(|task| self.stop.poll(task));
            own_frame(pin!(exchange(reader, writer, &mut between, &is_stopped, &mut fault))).await;
            let end = between.end;
            if let Some(fault) = fault {
                return Err(fault);
            }
            if let Some(end) = end {
                return Ok(end);
            }
            // Handlers that never await would hear of it only when the last of them has ended.
            stopped = poll_fn(|task| Poll::Ready(self.stop.poll(task))).await;
            if stopped {
                if !engine.is_in_batch() {
                    return Ok(End::Stopped);
                }
                // The rest of a batch is cancelled too, so that its one line still goes out.
                engine.complete(&Err(Failure::CANCELLED.refused()));
                continue;
            }
            let called = own_frame(pin!(self.call(extension, engine, reader, writer, &mut fault))).await;
            match called {
                Some(was_stopped) => stopped = was_stopped,
                None => return fault.map_or(Ok(End::Input), Err),
            }
        }
    }

    /// Runs what is to be run, and what goes on alongside. Returns whether it was asked to stop;
    /// none if the connection is lost.
    async fn call<E: Extension, R: Read, W: Write<Error = R::Error>>(
        &self,
        extension: &mut E,
        engine: &mut Engine<'_>,
        reader: &mut R,
        writer: &mut W,
        fault: &mut Option<ServeError<R::Error>>,
    ) -> Option<bool> {
        let (is_touched, has_safe_state) = (engine.is_touched(), engine.has_safe_state());
        self.safety.set(if is_touched { SafeState::Required } else { SafeState::Idle });
        // A program that nobody hears any more has no time for what it was asked: one-shot use has.
        self.is_short_lived.set(self.kind == Transport::Stdio && self.ends_calls && engine.is_session_open());
        let since = engine.arrival(|| self.clock.now());
        let Some(Run { mut work, reply, mut background }) = engine.run() else { return Some(false) };
        if let Work::Call(call) = &mut work {
            background.set_running(call.operation.name);
            if let (Some(since), Some(nanos)) = (since, &mut call.context.timeout_nanos) {
                let waited = self.clock.now().nanos_since(since);
                *nanos = nanos.saturating_sub(waited);
                if *nanos == 0 {
                    let why = Late { waited, running: None };
                    let failure = reply.reply.failure(reply.memory, FailureKind::Timeout, &why);
                    self.safety.set(SafeState::Idle);
                    engine.complete(&Err(failure.refused()));
                    return Some(false);
                }
            }
        }
        let state = State::default();
        let mut result = Err(Failure::CANCELLED);
        let mut guard = self.guard(work.timeout_nanos(), &reply, &state, &mut result);
        let mut sink = QueueSink { queue: &self.queue, send_log: self.send_log, held: None };
        let mut cx = Context::new(reply, &mut sink, self.clock, guard.deadline);
        work.prepare(&mut cx);
        let mut alongside =
            Alongside { driver: self, state: &state, background, sending: None, extra: [0], is_full: false };
        let is_wanted = |task: Option<&mut task::Context<'_>>| {
            let is_due = || state.due.get().is_some_and(|due| self.clock.now() > due);
            task.is_none() && (state.over.get() || !self.queue.is_empty() || is_due())
        };
        {
            let mut outside = pin!(exchange(reader, writer, &mut alongside, &is_wanted, fault));
            {
                let mut handler = pin!(run(extension, work, &mut cx));
                poll_fn(|task| guard.poll_call(handler.as_mut(), outside.as_mut(), task)).await;
            }
            // At once: a transport whose other end does not read may hold back the reply for any
            // time.
            if !guard.lost && guard.ran != CallEnd::Ended && is_touched {
                {
                    let mut safe_state = pin!(extension.safe_state());
                    poll_fn(|task| guard.poll_safe_state(safe_state.as_mut(), outside.as_mut(), task)).await;
                }
                if has_safe_state {
                    cx.tell_made_safe();
                }
            }
            state.over.set(true);
            if !guard.lost {
                poll_fn(|task| guard.poll_alongside(outside.as_mut(), task)).await;
            }
        }
        let stopped = guard.ran == CallEnd::Stopped;
        let is_made_safe = is_touched && guard.ran != CallEnd::Ended;
        if engine.is_undone(&result) {
            self.safety.set(SafeState::Idle);
        }
        if fault.is_some() {
            return None;
        }
        if state.ended.get() {
            if self.kind == Transport::Stream {
                return None;
            }
            engine.finish();
        }
        self.safety.set(if stopped && is_touched { SafeState::Done } else { SafeState::Idle });
        if is_made_safe {
            engine.note_made_safe();
        }
        engine.complete(&result);
        Some(stopped)
    }
}

impl<'d> Driver<'d> {
    /// Begins a call.
    fn guard<'g>(
        &'g self,
        timeout_nanos: Option<u64>,
        reply: &ReplyBuffer<'g>,
        state: &'g State,
        result: &'g mut Result<Outcome, Failure>,
    ) -> Guard<'g, 'd> {
        let deadline = timeout_nanos.map(|nanos| self.clock.now().after_nanos(nanos));
        self.queue.logs.set(logs_of_driver(reply));
        self.queue.beats.set(None);
        let heartbeat = Heartbeat::of(reply, self.clock);
        Guard { driver: self, deadline, heartbeat, state, result, last: None, ran: CallEnd::Stopped, lost: false }
    }
}

/// How long a call of a session goes on after the end of input.
const AFTER_INPUT: Duration = Duration::from_secs(4);

/// The next action on the transport.
enum Io<'i> {
    /// Read into this memory. If it is empty, wait until the driver is interrupted.
    Read(&'i mut [u8]),
    /// Write these bytes, which are one whole line.
    Write(&'i [u8]),
    End,
}

/// Decides what is done with the transport, and receives the result.
trait Source {
    fn next(&mut self) -> Io<'_>;

    /// So many bytes were read; none if the read was interrupted.
    fn has_read(&mut self, count: Option<usize>);

    /// The last reply; empty if there is none, or it is not at hand.
    #[cfg(feature = "postcard")]
    fn last_line(&mut self) -> &[u8] {
        &[]
    }
}

/// Runs what the engine hands out. All but calls are apart: their futures would be made and moved
/// in this frame, which is below every call. The blocking driver does without, as its image has no
/// panic for a future that is polled after its end.
async fn run<'a, E: Extension>(extension: &mut E, work: Work<'a>, cx: &mut Context<'a>) -> Result<Outcome, Failure> {
    match work {
        Work::Call(call) => extension.call(call, cx).await,
        Work::Event(event) => {
            own_frame(pin!(extension.on_event(event, cx))).await;
            Ok(Outcome::DONE)
        }
        Work::Job(job) => {
            own_frame(pin!(extension.run_job(job, cx))).await;
            Ok(Outcome::DONE)
        }
        Work::Configure(config) => own_frame(pin!(extension.configure(config, cx))).await.map(|()| Outcome::DONE),
    }
}

/// Reads and writes what `source` asks for, until its end or a fault.
///
/// A read is given up when `interrupt` returns true. It is called without a context before the
/// reader is polled, and with one if the reader was not ready.
///
/// This is the only code that knows the transport. It has one place each that reads, writes and
/// flushes, since each is a copy of the transport's code.
async fn exchange<R: Read, W: Write<Error = R::Error>>(
    reader: &mut R,
    writer: &mut W,
    source: &mut dyn Source,
    interrupt: &dyn Fn(Option<&mut task::Context<'_>>) -> bool,
    fault: &mut Option<ServeError<R::Error>>,
) {
    loop {
        let mut line: &[u8] = match source.next() {
            Io::End => return,
            Io::Write(line) => line,
            Io::Read(space) => {
                let may_read = !space.is_empty();
                let result = {
                    let mut read = pin!(reader.read(space));
                    poll_fn(|task| {
                        if interrupt(None) {
                            return Poll::Ready(None);
                        }
                        let polled = if may_read { read.as_mut().poll(task) } else { Poll::Pending };
                        if polled.is_pending() && interrupt(Some(task)) {
                            return Poll::Ready(None);
                        }
                        polled.map(Some)
                    })
                    .await
                };
                match result {
                    Some(Err(error)) if error.kind() == ErrorKind::Interrupted => &[],
                    #[cfg(feature = "postcard")]
                    Some(Err(error)) if error.kind() == ErrorKind::AlreadyExists => source.last_line(),
                    Some(Err(error)) => {
                        *fault = Some(ServeError::Read(error));
                        return;
                    }
                    Some(Ok(count)) => {
                        source.has_read(Some(count));
                        continue;
                    }
                    None => {
                        source.has_read(None);
                        continue;
                    }
                }
            }
        };
        // `write_all`, but for its panic at `Ok(0)`.
        while !line.is_empty() {
            match writer.write(line).await {
                Ok(0) => *fault = Some(ServeError::WriteZero),
                Ok(count) => line = line.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => *fault = Some(ServeError::Write(error)),
            }
            if fault.is_some() {
                return;
            }
        }
        if let Err(error) = writer.flush().await {
            *fault = Some(ServeError::Write(error));
            return;
        }
    }
}

/// The work while no handler runs.
struct BetweenCalls<'r, 'd, 'm> {
    driver: &'r Driver<'d>,
    engine: &'r mut Engine<'m>,
    /// Serving ends once the reply is out that waits.
    stopped: bool,
    wrote: bool,
    /// How serving has ended; none when something is to be run.
    end: Option<End>,
}

impl Source for BetweenCalls<'_, '_, '_> {
    fn next(&mut self) -> Io<'_> {
        let kind = self.driver.kind;
        if self.stopped && self.wrote {
            self.end = Some(End::Stopped);
        }
        while self.end.is_none() {
            match self.engine.next() {
                Next::Read if self.stopped => self.end = Some(End::Stopped),
                Next::Read => {
                    let Some(byte) = self.driver.carry.take() else { return Io::Read(self.engine.space()) };
                    if let Some(place) = self.engine.space().first_mut() {
                        *place = byte;
                        self.engine.commit(1);
                    }
                }
                Next::Write(end) => {
                    self.wrote = true;
                    #[cfg(feature = "postcard")]
                    self.driver.last.set(Some(end));
                    return Io::Write(self.engine.line(end));
                }
                Next::Run => break,
                Next::Shutdown if kind == Transport::Stdio => self.end = Some(End::Shutdown),
                Next::Shutdown => {}
                Next::End => self.end = Some(End::Input),
            }
        }
        Io::End
    }

    fn has_read(&mut self, count: Option<usize>) {
        match count {
            None => self.end = Some(End::Stopped),
            Some(0) if self.driver.kind == Transport::Stream => self.end = Some(End::Input),
            Some(0) => self.engine.finish(),
            Some(count) => self.engine.commit(count),
        }
    }

    #[cfg(feature = "postcard")]
    fn last_line(&mut self) -> &[u8] {
        self.driver.last.get().map(|end| self.engine.line(end)).unwrap_or_default()
    }
}

/// A call, until it ends, its time is up, or it is cut off.
struct Guard<'g, 'd> {
    driver: &'g Driver<'d>,
    deadline: Option<Instant>,
    heartbeat: Heartbeat<'g>,
    state: &'g State,
    result: &'g mut Result<Outcome, Failure>,
    /// When the call is cut off, since the input has ended.
    last: Option<Instant>,
    ran: CallEnd,
    /// The work beside the call has ended: the connection is lost.
    lost: bool,
}

impl Guard<'_, '_> {
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.driver.clock.now() > deadline)
    }

    /// Polls the handler, and what goes on alongside.
    fn poll_call(
        &mut self,
        handler: Dyn<'_, Result<Outcome, Failure>>,
        alongside: Dyn<'_, ()>,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        // A handler that slept past its deadline does not wake up.
        let polled = if self.is_late() { Poll::Pending } else { handler.poll(task) };
        if self.is_late() {
            *self.result = Err(Failure::TIMEOUT);
            self.ran = CallEnd::Late;
            return Poll::Ready(());
        }
        if let Poll::Ready(result) = polled {
            *self.result = result;
            self.ran = CallEnd::Ended;
            return Poll::Ready(());
        }
        if self.driver.stop.poll(task) {
            return Poll::Ready(());
        }
        let clock = self.driver.clock;
        if self.state.ended.get() && self.driver.is_short_lived.get() {
            let end = *self.last.get_or_insert_with(|| clock.now().after(AFTER_INPUT));
            if clock.now() >= end {
                return Poll::Ready(());
            }
            clock.wake_at(end, task.waker());
        }
        if let Some(deadline) = self.deadline {
            clock.wake_at(Instant::after_nanos(deadline, 1), task.waker());
        }
        if let Some(next) = self.beat() {
            clock.wake_at(next, task.waker());
        }
        let polled = self.poll_alongside(alongside, task);
        if polled.is_pending() && self.state.cancelled.get() {
            self.ran = CallEnd::Cancelled;
            return Poll::Ready(());
        }
        polled
    }

    /// Lets the heartbeat beat. It is apart, for the stack.
    #[inline(never)]
    fn beat(&mut self) -> Option<Instant> {
        let Driver { clock, queue, send_log, .. } = self.driver;
        self.heartbeat.beat(*clock, &queue.beats, &mut QueueSink { queue, send_log: *send_log, held: None })
    }

    /// Polls the extension's safe state, and what goes on alongside.
    fn poll_safe_state(
        &mut self,
        safe_state: Dyn<'_, ()>,
        alongside: Dyn<'_, ()>,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        if safe_state.poll(task).is_ready() {
            self.driver.safety.set(SafeState::Done);
            return Poll::Ready(());
        }
        self.poll_alongside(alongside, task)
    }

    fn poll_alongside(&mut self, alongside: Dyn<'_, ()>, task: &mut task::Context<'_>) -> Poll<()> {
        let polled = alongside.poll(task);
        if let Some(due) = self.state.due.get() {
            self.driver.clock.wake_at(due.after_nanos(1), task.waker());
        }
        self.lost = polled.is_ready();
        if self.state.nudged.take() {
            // What was answered may concern the handler: a run of its may be cancelled.
            task.waker().wake_by_ref();
        }
        polled
    }
}

/// State that a call shares with the work beside it.
#[derive(Default)]
struct State {
    /// The call is over.
    over: Cell<bool>,
    /// The input has ended.
    ended: Cell<bool>,
    /// Something was answered.
    nudged: Cell<bool>,
    /// The caller has cancelled the call.
    cancelled: Cell<bool>,
    /// When the time of a call is up that waits.
    due: Due,
}

/// The work beside a call: reads, sends logs and answers what cannot wait, until the call is over and all its logs are
/// out, or the connection is lost.
struct Alongside<'r, 'd> {
    driver: &'r Driver<'d>,
    state: &'r State,
    background: Background<'r>,
    /// Lines that are being sent, and how much of them was handed out.
    sending: Option<(Buffer<'d>, usize)>,
    extra: [u8; 1],
    /// The request region is full: `extra` is read into.
    is_full: bool,
}

impl Source for Alongside<'_, '_> {
    fn next(&mut self) -> Io<'_> {
        let Driver { queue, carry, kind, .. } = self.driver;
        if let Some((start, end)) = self.next_line() {
            let memory = self.sending.as_ref().map(|(lines, _)| &*lines.memory).unwrap_or_default();
            return Io::Write(memory.get(start..end).unwrap_or_default());
        }
        if self.state.ended.get() && *kind == Transport::Stream || self.state.over.get() && queue.is_empty() {
            return Io::End;
        }
        if let (Some(byte), Some(place)) = (carry.get(), self.background.space().first_mut()) {
            *place = byte;
            carry.set(None);
            self.background.commit(1);
            return self.next();
        }
        if self.state.ended.get() || carry.get().is_some() {
            return Io::Read(&mut []);
        }
        self.is_full = self.background.space().is_empty();
        Io::Read(if self.is_full { &mut self.extra } else { self.background.space() })
    }

    fn has_read(&mut self, count: Option<usize>) {
        match count {
            None => {}
            Some(0) => {
                self.state.ended.set(true);
                // When it ends now, is to be found out.
                self.state.nudged.set(true);
                self.background.finish();
            }
            Some(_) if self.is_full => self.driver.carry.set(self.extra.first().copied()),
            Some(count) => self.background.commit(count),
        }
    }
}

impl<'d> Alongside<'_, 'd> {
    /// Where the next line is that is to be sent.
    fn next_line(&mut self) -> Option<(usize, usize)> {
        let queue = &self.driver.queue;
        loop {
            let (mut lines, start) = match self.sending.take() {
                Some(sending) => sending,
                None => (self.lines()?, 0),
            };
            let rest = lines.memory.get(start..lines.length).unwrap_or_default();
            if !rest.is_empty() {
                let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |newline| newline + 1);
                let end = start.saturating_add(length);
                self.sending = Some((lines, end));
                return Some((start, end));
            }
            lines.length = queue.write_dropped(lines.memory);
            if lines.length == 0 {
                queue.put_back(lines);
            } else {
                self.sending = Some((lines, 0));
            }
        }
    }

    /// Lines to be sent: logs, or else an answer to a line that need not wait; none if there is
    /// neither.
    fn lines(&mut self) -> Option<Buffer<'d>> {
        let queue = &self.driver.queue;
        if let Some(filled) = queue.swap() {
            return Some(filled);
        }
        let mut spare = queue.spare.take()?;
        if Arrivals::ARE_NOTED && self.background.has_more() {
            self.background.set_now(self.driver.clock.now());
        }
        spare.length = self.background.answer(spare.memory).map_or(0, <[u8]>::len);
        if Arrivals::ARE_NOTED && spare.length == 0 && self.background.next_due().is_some() {
            spare.length = self.background.expire(self.driver.clock.now(), spare.memory);
        }
        self.state.due.set(self.background.next_due());
        if self.background.is_cancelled() {
            self.state.cancelled.set(true);
            self.state.nudged.set(true);
        }
        if self.background.has_served() {
            self.state.nudged.set(true);
        }
        if spare.length == 0 {
            queue.put_back(spare);
            return None;
        }
        self.state.nudged.set(true);
        Some(spare)
    }
}

/// Log lines between a handler and its transport: one buffer fills while the other is sent. Both
/// are moved, not shared.
struct Queue<'m> {
    filling: Cell<Option<Buffer<'m>>>,
    spare: Cell<Option<Buffer<'m>>>,
    length: Cell<usize>,
    dropped: Cell<usize>,
    /// Lines that were queued are being sent.
    sending: Cell<bool>,
    /// The size of each buffer.
    half: usize,
    /// How the running call writes logs.
    logs: Cell<Logs>,
    beats: Beats,
}

struct Buffer<'m> {
    memory: &'m mut [u8],
    length: usize,
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

    /// Takes back a buffer that was sent.
    fn put_back(&self, mut sent: Buffer<'m>) {
        sent.length = 0;
        self.spare.set(Some(sent));
        self.sending.set(false);
    }

    /// Writes how many lines were dropped since the last report; returns the length of that line,
    /// or 0.
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
        progressed(&self.queue.beats, done)
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
