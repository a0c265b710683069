//! The drivers: they move bytes between a transport and an [`Engine`], and run the extension's
//! handlers.
//!
//! The driver [`blocking`] works over `embedded-io`. A log is sent when
//! [`Context::log`](crate::Context::log) returns, and nothing is read while a handler runs. The
//! driver `asynch` (feature `async`) works over `embedded-io-async`. While a handler awaits, it
//! reads, sends logs, answers faults, and ends calls that exceed their time limits. The driver
//! [`whole`] runs requests that arrive as whole messages.

#[cfg(feature = "async")]
pub mod asynch;
pub mod blocking;
pub mod whole;

use core::fmt;
use core::time::Duration;

use crate::clock::Clock;
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::protocol::format::{Log, Logs};
use crate::reply::MADE_SAFE;

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

/// Writes the log line that says that the safe state was brought about; returns its length, or none if there is none.
fn write_made_safe(memory: &mut [u8], logs: Logs, clock: &dyn Clock) -> Option<usize> {
    let Logs::Line(write) = logs else {
        clock.log_out_of_band(Level::Warn, MADE_SAFE);
        return None;
    };
    let mut out = Writer::new(memory);
    write(&mut out, &Log { level: Level::Warn, message: &MADE_SAFE, data: None, received: None });
    out.byte(b'\n');
    out.finish().ok().map(|line| line.len())
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
