//! The driver over blocking `embedded-io`.

use core::cell::Cell;
use core::fmt;
use core::future::Future;
use core::pin::pin;
use core::task::{self, Poll};

use embedded_io::{Error as _, ErrorKind, ErrorType, Read, Write};

use super::{Beats, End, Heartbeat, ServeError, Transport, logs_of_driver, progressed, write_dropped};
use crate::Extension;
use crate::call::Outcome;
use crate::clock::{Clock, Instant};
use crate::context::{Context, LogSink};
use crate::engine::{Engine, Next, Run};
use crate::exchange::Work;
use crate::failure::Failure;
use crate::protocol::format::Logs;

/// The blocking driver of one connection, with its settings. [`serve`](Self::serve) runs it.
pub struct Server<'a, 'm, E> {
    extension: &'a mut E,
    engine: &'a mut Engine<'m>,
    clock: &'a dyn Clock,
    transport: Transport,
    log_buffer: &'a mut [u8],
}

impl<'a, 'm, E: Extension> Server<'a, 'm, E> {
    /// A driver that serves `extension`. `engine` has the protocols, the limits and the memory of
    /// requests and replies.
    pub fn new(extension: &'a mut E, engine: &'a mut Engine<'m>, clock: &'a dyn Clock) -> Self {
        Self { extension, engine, clock, transport: Transport::Stdio, log_buffer: &mut [] }
    }

    /// Sets the kind of transport, which decides what the end of input and `shutdown` mean
    /// [default: [`Transport::Stdio`]].
    #[must_use]
    pub fn transport(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// Sets the memory for one log line [default: none]. A longer line is dropped, and the number
    /// of dropped lines is reported.
    #[must_use]
    pub fn log_buffer(self, log_buffer: &'a mut [u8]) -> Self {
        Self { log_buffer, ..self }
    }

    /// Serves the connection until it ends. Use [`Halves`] to make one stream of a reader and a
    /// writer.
    ///
    /// # Errors
    /// The transport returned an error. The running call was cancelled, and
    /// [`safe_state`](Extension::safe_state) has run if a session was open.
    pub fn serve<T: Read + Write>(self, stream: &mut T) -> Result<End, ServeError<T::Error>> {
        let Self { extension, engine, clock, transport, log_buffer } = self;
        let mut cut_off = false;
        let result = serve_connection(extension, engine, stream, transport, log_buffer, clock, &mut cut_off);
        if engine.disconnect() && !matches!(result, Ok(End::Shutdown)) || cut_off {
            block_on(extension.safe_state(), clock);
        }
        result
    }
}

impl<E> fmt::Debug for Server<'_, '_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("transport", &self.transport).finish_non_exhaustive()
    }
}

fn serve_connection<E: Extension, T: Read + Write>(
    extension: &mut E,
    engine: &mut Engine<'_>,
    transport: &mut T,
    kind: Transport,
    log: &mut [u8],
    clock: &dyn Clock,
    cut_off: &mut bool,
) -> Result<End, ServeError<T::Error>> {
    loop {
        match engine.next() {
            Next::Read => match transport.read(engine.space()) {
                Ok(0) if kind == Transport::Stream => return Ok(End::Input),
                Ok(0) => engine.finish(),
                Ok(count) => engine.commit(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ServeError::Read(error)),
            },
            Next::Write(end) => write_line(transport, engine.line(end))?,
            Next::Run => {
                let (is_touched, has_safe_state) = (engine.is_touched(), engine.has_safe_state());
                let Some(step) = engine.run() else { continue };
                let logs = logs_of_driver(&step.reply);
                let mut wire = Wire { memory: &mut *log, transport: &mut *transport, dropped: 0, result: Ok(()), logs };
                let (result, end) = {
                    let (wire, lost, beats) = (Cell::new(Some(&mut wire)), Cell::new(false), Beats::default());
                    let sink = || Sink { wire: &wire, held: None, lost: &lost, beats: &beats };
                    let sink_of_driver = &mut sink();
                    let call = Watched { lost: &lost, beats: &beats, sink: sink_of_driver, is_touched, has_safe_state };
                    run_call(extension, step, &mut sink(), call, clock)
                };
                wire.report_dropped();
                let is_made_safe = end == CallEnd::MadeSafe;
                // A call whose last log could not be written was cut off too.
                let is_touched = is_touched && !engine.is_undone(&result);
                *cut_off = is_touched && !is_made_safe && (end == CallEnd::CutOff || wire.result.is_err());
                wire.result?;
                if is_made_safe {
                    engine.note_made_safe();
                }
                engine.complete(&result);
            }
            Next::Shutdown if kind == Transport::Stdio => return Ok(End::Shutdown),
            Next::Shutdown => {}
            Next::End => return Ok(End::Input),
        }
    }
}

/// The driver's parts of a call.
struct Watched<'w> {
    /// The connection is lost.
    lost: &'w Cell<bool>,
    beats: &'w Beats,
    /// For what the driver reports while the handler waits.
    sink: &'w mut dyn LogSink,
    /// The extension's outputs may be on.
    is_touched: bool,
    has_safe_state: bool,
}

/// How a call's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEnd {
    Ended,
    CutOff,
    /// The call was cut off, and the safe state was brought about.
    MadeSafe,
}

/// Runs a call to its end, its deadline or the loss of the connection. Outputs that a late call may have left on are
/// switched off, and its caller hears of it.
fn run_call<E: Extension>(
    extension: &mut E,
    mut step: Run<'_>,
    logs: &mut dyn LogSink,
    call: Watched<'_>,
    clock: &dyn Clock,
) -> (Result<Outcome, Failure>, CallEnd) {
    let deadline = step.work.timeout_nanos().map(|nanos| clock.now().after_nanos(nanos));
    let is_late = || deadline.is_some_and(|deadline| clock.now() > deadline);
    let mut heartbeat = Heartbeat::of(&step.reply, clock);
    let mut cx = Context::new(step.reply, logs, clock, deadline);
    step.work.prepare(&mut cx);
    let failure = {
        let mut handler = pin!(run_work(&mut *extension, step.work, &mut cx));
        let waker = clock.waker();
        let mut task = task::Context::from_waker(&waker);
        loop {
            let polled = handler.as_mut().poll(&mut task);
            if is_late() {
                break Failure::TIMEOUT;
            }
            match polled {
                Poll::Ready(result) => return (result, CallEnd::Ended),
                Poll::Pending if call.lost.get() => break Failure::CANCELLED,
                Poll::Pending => {
                    if let Some(deadline) = deadline {
                        clock.wake_at(Instant::after_nanos(deadline, 1), task.waker());
                    }
                    if let Some(next) = heartbeat.beat(clock, call.beats, call.sink) {
                        clock.wake_at(next, task.waker());
                    }
                    clock.idle();
                }
            }
            // A handler that slept past its deadline does not wake up.
            if is_late() {
                break Failure::TIMEOUT;
            }
        }
    };
    if !call.is_touched || call.lost.get() {
        return (Err(failure), CallEnd::CutOff);
    }
    block_on(extension.safe_state(), clock);
    if call.has_safe_state {
        cx.tell_made_safe();
    }
    (Err(failure), CallEnd::MadeSafe)
}

/// Runs what the engine hands out.
pub(super) async fn run_work<'a, E: Extension>(
    extension: &mut E,
    work: Work<'a>,
    cx: &mut Context<'a>,
) -> Result<Outcome, Failure> {
    match work {
        Work::Call(call) => extension.call(call, cx).await,
        Work::Event(event) => {
            extension.on_event(event, cx).await;
            Ok(Outcome::DONE)
        }
        Work::Job(job) => {
            extension.run_job(job, cx).await;
            Ok(Outcome::DONE)
        }
        Work::Configure(config) => extension.configure(config, cx).await.map(|()| Outcome::DONE),
    }
}

fn block_on<F: Future>(future: F, clock: &dyn Clock) -> F::Output {
    let mut future = pin!(future);
    let waker = clock.waker();
    let mut task = task::Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut task) {
            Poll::Ready(output) => return output,
            Poll::Pending => clock.idle(),
        }
    }
}

/// The transport while a call runs, and the memory for a line that is sent meanwhile.
struct Wire<'a, T: ErrorType> {
    memory: &'a mut [u8],
    transport: &'a mut T,
    dropped: usize,
    /// The first fault; nothing is written after it.
    result: Result<(), ServeError<T::Error>>,
    logs: Logs,
}

impl<T: Write> Wire<'_, T> {
    fn send(&mut self, length: usize) {
        if self.result.is_ok() {
            self.result = write_line(self.transport, self.memory.get(..length).unwrap_or_default());
        }
    }

    fn report_dropped(&mut self) {
        if self.dropped > 0
            && let Some(length) = write_dropped(self.memory, self.dropped, self.logs)
        {
            self.send(length);
        }
    }
}

/// Writes logs as they come. The handler has one, and the driver another; each has the wire only while it writes a line.
struct Sink<'s, 'w, 'a, T: ErrorType> {
    wire: &'s Cell<Option<&'w mut Wire<'a, T>>>,
    held: Option<&'w mut Wire<'a, T>>,
    /// Whether there was a fault.
    lost: &'s Cell<bool>,
    beats: &'s Beats,
}

impl<T: Write> LogSink for Sink<'_, '_, '_, T> {
    fn room(&mut self) -> &mut [u8] {
        self.withdraw();
        self.held = self.wire.take();
        self.held.as_mut().map(|wire| &mut *wire.memory).unwrap_or_default()
    }

    fn commit(&mut self, length: usize) {
        if let Some(wire) = &mut self.held {
            wire.send(length);
            self.lost.set(wire.result.is_err());
        }
        self.withdraw();
    }

    fn withdraw(&mut self) {
        if let Some(wire) = self.held.take() {
            self.wire.set(Some(wire));
        }
    }

    fn progressed(&mut self, done: u32) -> bool {
        progressed(self.beats, done)
    }

    fn dropped(&mut self) {
        if let Some(wire) = &mut self.held {
            wire.dropped = wire.dropped.saturating_add(1);
        }
        self.withdraw();
    }
}

/// `write_all`, but for its panic at `Ok(0)`; then a flush.
fn write_line<T: Write>(transport: &mut T, mut line: &[u8]) -> Result<(), ServeError<T::Error>> {
    while !line.is_empty() {
        match transport.write(line) {
            Ok(0) => return Err(ServeError::WriteZero),
            Ok(count) => line = line.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(ServeError::Write(error)),
        }
    }
    transport.flush().map_err(ServeError::Write)
}

/// A reader and a writer as one stream.
#[derive(Debug)]
pub struct Halves<R, W> {
    /// The reader.
    pub reader: R,
    /// The writer.
    pub writer: W,
}

impl<R: ErrorType, W: ErrorType<Error = R::Error>> ErrorType for Halves<R, W> {
    type Error = R::Error;
}

impl<R: Read, W: ErrorType<Error = R::Error>> Read for Halves<R, W> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Self::Error> {
        self.reader.read(buf)
    }
}

impl<R: ErrorType, W: Write<Error = R::Error>> Write for Halves<R, W> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Self::Error> {
        self.writer.write(buf)
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        self.writer.flush()
    }
}
