//! The drivers: they move bytes between a transport and an [`Engine`], and run the extension's
//! handlers.
//!
//! The driver [`blocking`] works over `embedded-io`. A log is sent when
//! [`Context::log`](crate::Context::log) returns, and nothing is read while a handler runs. While
//! it awaits, a caller that asked for progress hears that it goes on. The driver `asynch` (feature
//! `async`) works over `embedded-io-async`. While a handler awaits, it reads, sends logs, answers
//! faults, and ends calls that exceed their time limits. The driver [`whole`] runs requests that
//! arrive as whole messages.

#[cfg(feature = "async")]
pub mod asynch;
pub mod blocking;
pub mod whole;

use core::cell::Cell;
use core::fmt;
use core::time::Duration;

use crate::clock::{Clock, Instant};
use crate::context::{LogSink, ReplyBuffer};
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::message::Received;
use crate::protocol::format::{Log, Logs, Progress};

#[allow(unused_imports, reason = "for the docs")]
use crate::engine::Engine;

/// The kind of transport that a driver serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Transport {
    /// Standard input and output of the process. `shutdown` ends serving. At the end of input,
    /// running calls may end first.
    Stdio,
    /// A port or a socket. `shutdown` ends only the session. The end of input is the loss of the
    /// connection, and cancels the running call.
    Stream,
}

/// The reason why serving has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum End {
    /// The input has ended.
    Input,
    /// The session was shut down, and the acknowledgement was sent.
    Shutdown,
    /// The caller asked the driver to stop.
    Stopped,
}

/// The error of the transport that ended serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ServeError<E> {
    /// Reading returned this error.
    Read(E),
    /// Writing returned this error.
    Write(E),
    /// The transport accepted zero bytes of a line (`Ok(0)`).
    WriteZero,
}

impl<E: fmt::Debug> fmt::Display for ServeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "reading failed: {error:?}"),
            Self::Write(error) => write!(f, "writing failed: {error:?}"),
            Self::WriteZero => f.write_str("the transport accepted zero bytes"),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for ServeError<E> {}

/// After how long a caller that wants to hear of a call's progress hears that it goes on. It hears
/// so every five seconds at least.
const HEARTBEAT: Duration = Duration::from_secs(4);

/// How far a call has come, and how often that was reported again since.
type Beats = Cell<Option<(u32, u32)>>;

/// Notes that a call has come this far. Returns whether that is farther than what was reported.
fn progressed(beats: &Beats, done: u32) -> bool {
    let is_farther = beats.get().is_none_or(|(last, _)| done > last);
    if is_farther {
        beats.set(Some((done, 0)));
    }
    is_farther
}

/// Reports that a handler is still there, to callers who asked for progress.
struct Heartbeat<'c> {
    received: Option<Received<'c>>,
    write: Option<fn(&mut Writer<'_>, &Progress<'_>) -> bool>,
    /// When the heartbeat beats; none if it was not asked for.
    next: Option<Instant>,
}

impl<'c> Heartbeat<'c> {
    /// The heart of a call that begins.
    fn of(reply: &ReplyBuffer<'c>, clock: &dyn Clock) -> Self {
        let mut heartbeat = Self { received: reply.received, write: reply.reply.format().progress, next: None };
        heartbeat.rest(clock);
        heartbeat
    }

    fn rest(&mut self, clock: &dyn Clock) {
        self.next = self.write.map(|_| clock.now().after(HEARTBEAT));
    }

    /// Beats if it is time to; returns when to look again.
    fn beat(&mut self, clock: &dyn Clock, beats: &Beats, sink: &mut dyn LogSink) -> Option<Instant> {
        let (next, write) = (self.next?, self.write?);
        if clock.now() < next {
            return Some(next);
        }
        let (done, beat) = beats.get().unwrap_or_default();
        let beat = beat.saturating_add(1);
        let progress = Progress { done, beat, total: None, message: None, received: self.received };
        let mut out = Writer::new(sink.room());
        if write(&mut out, &progress) {
            out.byte(b'\n');
            match out.finish().map(|line| line.len()) {
                Ok(length) => sink.commit(length),
                Err(_) => sink.dropped(),
            }
            beats.set(Some((done, beat)));
            self.rest(clock);
        } else {
            sink.withdraw();
            self.next = None;
        }
        self.next
    }
}

/// The form of the logs that a driver writes for a call by itself; out of band if the caller takes no warnings.
fn logs_of_driver(reply: &ReplyBuffer<'_>) -> Logs {
    let format = reply.reply.format();
    let Logs::Line(write) = format.logs else { return format.logs };
    if reply.reply.least_log.is_none_or(|least| least > Level::Warn) {
        return Logs::OutOfBand;
    }
    // Without reports of progress, only logs that the caller takes are dropped.
    if format.progress.is_some() && !is_written(write, reply.received) { Logs::OutOfBand } else { format.logs }
}

/// Whether the caller of this request gets warnings.
#[inline(never)]
fn is_written(write: fn(&mut Writer<'_>, &Log<'_>), received: Option<Received<'_>>) -> bool {
    let mut out = Writer::new(&mut []);
    write(&mut out, &Log { level: Level::Warn, message: &"", data: None, received });
    out.finish().is_err()
}

/// Writes the log line that says how many were dropped; returns its length, or none if it does not
/// fit either.
fn write_dropped(memory: &mut [u8], dropped: usize, logs: Logs) -> Option<usize> {
    write_dropped_with(memory, dropped, logs, None)
}

#[inline(always)]
fn write_dropped_with(
    memory: &mut [u8],
    dropped: usize,
    logs: Logs,
    data: Option<&dyn Fn(&mut Writer<'_>)>,
) -> Option<usize> {
    struct Dropped(usize);
    impl Message for Dropped {
        fn write_escaped(&self, out: &mut Writer<'_>) {
            out.usize(self.0);
            out.text_part(if self.0 == 1 { " log line was dropped" } else { " log lines were dropped" });
            out.text_part(": no room in the log buffer");
        }
    }
    let Logs::Line(write) = logs else { return None };
    let mut out = Writer::new(memory);
    write(&mut out, &Log { level: Level::Warn, message: &Dropped(dropped), data, received: None });
    out.byte(b'\n');
    out.finish().ok().map(|line| line.len())
}
