//! The driver for whole messages: it runs the work of an [`Exchange`].

use core::cell::Cell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use super::blocking::run_work;
use super::{Beats, Heartbeat, logs_of_driver, progressed, write_dropped_with};
use crate::Extension;
use crate::clock::{Clock, Instant};
use crate::context::{Context, LogSink};
use crate::exchange::{Exchange, Served};
use crate::failure::Failure;
use crate::json::write::Writer;
use crate::protocol::define::Protocol;
use crate::protocol::format::Logs;

/// The driver for the work of an [`Exchange`], with its clock and the destination of logs and
/// progress.
pub struct Runner<'a> {
    clock: &'a dyn Clock,
    send: &'a dyn Fn(&[u8]),
    memory: &'a mut [u8],
    touched: Option<&'a Cell<bool>>,
}

/// The reason why a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerEnd {
    /// The handler has returned.
    Returned,
    /// The call exceeded its time limit. [`safe_state`](Extension::safe_state) has run if an output
    /// may have been on, see [`Runner::touched`].
    Late,
    /// The caller of [`Runner::run`] stopped it. [`safe_state`](Extension::safe_state) has run if
    /// an output may have been on, see [`Runner::touched`].
    Stopped,
}

impl<'a> Runner<'a> {
    /// A driver with this clock. `send` gets each line of a log or of progress, with its newline,
    /// while the handler runs. `memory` holds a line while it is written. A line longer than half
    /// of it is dropped, and the number of dropped lines is reported.
    pub fn new(clock: &'a dyn Clock, send: &'a dyn Fn(&[u8]), memory: &'a mut [u8]) -> Self {
        Self { clock, send, memory, touched: None }
    }

    /// Sets the cell that says whether an output of the hardware may be on: work that [can switch
    /// one on](Exchange::can_change) has run for the caller since
    /// [`safe_state`](Extension::safe_state) ran last [default: yes]. If not, a run that is stopped
    /// or late does not run [`safe_state`](Extension::safe_state), unless the work itself can
    /// switch an output on. The run updates the cell.
    #[must_use]
    pub fn touched(self, touched: &'a Cell<bool>) -> Self {
        Self { touched: Some(touched), ..self }
    }

    /// Runs the work of `exchange` until it ends, exceeds its time limit, or `stop` is ready.
    /// Passes the result to [`Exchange::complete`]. If `stop` returns true, the caller of the
    /// operation has cancelled it, and gets no reply.
    ///
    /// A caller that asked for progress gets a report every four seconds while the handler runs. A
    /// caller whose outputs are switched off gets a log at once.
    pub async fn run<E: Extension>(
        self,
        extension: &mut E,
        to: &Served<'_>,
        exchange: &mut Exchange,
        message: &mut [u8],
        out: &mut [u8],
        stop: impl Future<Output = bool>,
    ) -> HandlerEnd {
        let Self { clock, send, memory, touched } = self;
        let was_touched = touched.is_none_or(Cell::get);
        let is_touched = was_touched || exchange.can_change(to);
        if let Some(touched) = touched {
            touched.set(is_touched);
        }
        let (result, end, is_cancelled) = {
            let Some(mut run) = exchange.run(to, message, out) else { return HandlerEnd::Returned };
            let deadline = run.work.timeout_nanos().map(|nanos| clock.now().after_nanos(nanos));
            let logs = logs_of_driver(&run.reply);
            let (lines, rest) = memory.split_at_mut_checked(memory.len() / 2).unwrap_or_default();
            let beats = Beats::default();
            let mut sink = Sink { memory: lines, send, beats: &beats, dropped: 0 };
            let mut beat_sink = Sink { memory: rest, send, beats: &beats, dropped: 0 };
            let mut heartbeat = Heartbeat::of(&run.reply, clock);
            let mut cx = Context::new(run.reply, &mut sink, clock, deadline);
            run.work.prepare(&mut cx);
            let ended = {
                let mut handler = pin!(run_work(extension, run.work, &mut cx));
                let mut stop = pin!(stop);
                let is_late = || deadline.is_some_and(|deadline| clock.now() > deadline);
                poll_fn(|task| {
                    // A handler that slept past its deadline does not wake up.
                    let polled = if is_late() { Poll::Pending } else { handler.as_mut().poll(task) };
                    if is_late() {
                        return Poll::Ready((Err(Failure::TIMEOUT), HandlerEnd::Late, false));
                    }
                    if let Poll::Ready(result) = polled {
                        return Poll::Ready((result, HandlerEnd::Returned, false));
                    }
                    if let Poll::Ready(is_cancelled) = stop.as_mut().poll(task) {
                        return Poll::Ready((Err(Failure::CANCELLED), HandlerEnd::Stopped, is_cancelled));
                    }
                    if let Some(deadline) = deadline {
                        clock.wake_at(Instant::after_nanos(deadline, 1), task.waker());
                    }
                    if let Some(next) = heartbeat.beat(clock, &beats, &mut beat_sink) {
                        clock.wake_at(next, task.waker());
                    }
                    Poll::Pending
                })
                .await
            };
            if ended.1 != HandlerEnd::Returned && is_touched {
                extension.safe_state().await;
                if let Some(touched) = touched {
                    touched.set(false);
                }
                if to.manifest.has_safe_state {
                    cx.tell_made_safe();
                }
            }
            // What was refused has changed nothing.
            if let (Some(touched), Err(failure)) = (touched, &ended.0)
                && failure.is_refusal()
            {
                touched.set(was_touched);
            }
            if sink.dropped > 0
                && let Some(length) = write_count(sink.memory, sink.dropped, logs)
            {
                sink.commit(length);
            }
            ended
        };
        if is_cancelled {
            exchange.cancel();
        }
        exchange.complete(to, message, out, &result);
        end
    }
}

/// Writes the log that reports the number of dropped logs, with its newline, and returns its
/// length. Returns none if the protocol has no lines for logs, or if the log does not fit.
pub fn dropped_logs(protocol: &Protocol, count: usize, memory: &mut [u8]) -> Option<usize> {
    write_count(memory, count, protocol.format.logs)
}

/// The number is data too, `{"dropped":N}`: whoever drops this log adds it to what he has dropped himself.
fn write_count(memory: &mut [u8], count: usize, logs: Logs) -> Option<usize> {
    let data = |out: &mut Writer<'_>| {
        out.raw(b"{\"dropped\":");
        out.usize(count);
        out.byte(b'}');
    };
    write_dropped_with(memory, count, logs, Some(&data))
}

impl fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("memory", &self.memory.len()).finish_non_exhaustive()
    }
}

/// Sends lines as they come.
struct Sink<'s> {
    memory: &'s mut [u8],
    send: &'s dyn Fn(&[u8]),
    beats: &'s Beats,
    dropped: usize,
}

impl LogSink for Sink<'_> {
    fn room(&mut self) -> &mut [u8] {
        self.memory
    }

    fn commit(&mut self, length: usize) {
        (self.send)(self.memory.get(..length).unwrap_or_default());
    }

    fn progressed(&mut self, done: u32) -> bool {
        progressed(self.beats, done)
    }

    fn dropped(&mut self) {
        self.dropped = self.dropped.saturating_add(1);
    }
}
