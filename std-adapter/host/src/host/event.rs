//! Events: the things that a host receives besides replies.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rigline::Level;
use serde_json::Value;

use super::error::{ProcessExit, RpcFailure, also_open};
use super::port_info::Holder;

/// An event of an extension, such as a log line or the end of its process.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// The time at which the host saw the event.
    pub time: SystemTime,
    /// The name of the extension. Before the manifest has arrived it is the target.
    pub extension: Arc<str>,
    /// The kind of event.
    pub kind: EventKind,
}

/// The kind of an event.
///
/// Texts of the extension are cut at 1024 bytes, except in logs. Bytes that are not UTF-8 become
/// U+FFFD.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventKind {
    /// The extension sent a log line: gevals "Log".
    Log(Log),
    /// The extension wrote this line to standard error.
    Stderr(String),
    /// The extension wrote text that is not a message, such as a banner. It was skipped.
    Skipped {
        /// The skipped text.
        text: String,
        /// The reason why the text is not a message.
        why: String,
    },
    /// This number of further lines was skipped. They were too many for an event each.
    MoreSkipped(u64),
    /// A message was damaged. If it names a call, that call has failed.
    Damaged {
        /// The damaged line.
        text: String,
        /// The damage.
        why: String,
    },
    /// The extension sent a line that is longer than the limit. It was dropped.
    TooLong {
        /// The length of the line, in bytes.
        length: u64,
        /// The longest accepted line, in bytes.
        limit: usize,
    },
    /// A reply belongs to no pending request. It is late, repeated, or of another session. It was
    /// dropped.
    UnknownId {
        /// The id of the reply, as JSON text.
        id: String,
        /// Whether the id belongs to a request of this session, so that the reply is late.
        late: bool,
    },
    /// The extension sent an error that names no request.
    ErrorWithoutId(RpcFailure),
    /// The extension sent a notification that is no log.
    Notification {
        /// The method of the notification.
        method: String,
        /// The parameters of the notification.
        params: Value,
    },
    /// The extension sent a request. It was refused with the error -32601.
    Refused {
        /// The method of the request.
        method: String,
    },
    /// The host received its own request, so the line echoes.
    Echo,
    /// A message was irregular, but could be understood. The text says why.
    Anomaly(&'static str),
    /// The result of a call deviates from the protocol, but could be understood. The text says how.
    Fault(String),
    /// The process has ended in this way.
    Exited(ProcessExit),
    /// The connection was lost. The text says why.
    Gone(String),
    /// These other processes have the port open too. They may get bytes that the device sends.
    AlsoOpen(Vec<Holder>),
    /// The host has connected again after a loss or a cancellation, and has opened a new session.
    Reconnected,
}

/// A log line of an extension.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Log {
    /// The level of the line. An unknown level becomes `info`.
    pub level: Level,
    /// The level, as the extension spells it. `None` if it is a known name.
    pub level_name: Option<String>,
    /// The text of the line.
    pub message: String,
    /// The structured data of the line. `None` if it has none.
    pub data: Option<Value>,
    /// The structured data as JSON text with all its digits. `None` if it is not known.
    pub data_text: Option<String>,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(log) => {
                write!(f, "{}: {}", log.level_name.as_deref().unwrap_or(log.level.name()), log.message)?;
                log.data.iter().try_for_each(|data| write!(f, " {data}"))
            }
            Self::Stderr(line) => f.write_str(line),
            Self::Skipped { text, why } => write!(f, "skipped: {text} ({why})"),
            Self::MoreSkipped(lines) => write!(f, "skipped {lines} more lines"),
            Self::Damaged { text, why } => write!(f, "a damaged message: {why}: {text}"),
            Self::TooLong { length, limit } => write!(f, "a line of {length} bytes was dropped; the limit is {limit}"),
            Self::UnknownId { id, late: true } => write!(f, "a late reply to request {id} was dropped"),
            Self::UnknownId { id, late: false } => {
                write!(f, "a reply to a request that was never sent was dropped: id {id}")
            }
            Self::ErrorWithoutId(error) => write!(f, "an error that names no request: {error}"),
            Self::Notification { method, params } => write!(f, "notification {method} {params}"),
            Self::Refused { method } => write!(f, "a request was refused: {method}"),
            Self::Echo => f.write_str("a request came back: the line echoes"),
            Self::Anomaly(what) => f.write_str(what),
            Self::Fault(what) => f.write_str(what),
            Self::Exited(exit) => write!(f, "ended: {exit}"),
            Self::Gone(why) => f.write_str(why),
            Self::AlsoOpen(holders) => f.write_str(&also_open(holders).unwrap_or_default()),
            Self::Reconnected => f.write_str("connected anew"),
        }
    }
}
