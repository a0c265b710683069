//! Events: what a host receives in addition to replies.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rigline::Level;
use serde_json::Value;

use super::error::{Exit, RpcFailure, also_open};
use super::port_info::Holder;

/// An event of an extension, other than a reply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// When the event was seen.
    pub time: SystemTime,
    /// The extension's name; before the manifest is there, the target.
    pub extension: Arc<str>,
    /// The kind of event.
    pub kind: EventKind,
}

/// An event of an extension.
///
/// Texts of the peer's are cut at 1024 bytes, but for logs. What is not UTF-8 in them is
/// shown as U+FFFD.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventKind {
    /// gevals "Log".
    Log(Log),
    /// A line of standard error.
    Stderr(String),
    /// Text that is not a message was skipped: a banner, a print, text glued to a message.
    Skipped {
        /// The text.
        text: String,
        /// Why the line is not a message.
        why: String,
    },
    /// Further lines were skipped, too many to show each.
    MoreSkipped(u64),
    /// A message was damaged. A call that it names has failed with it.
    Damaged {
        /// The line.
        text: String,
        /// The fault.
        why: String,
    },
    /// A line over the limit was dropped.
    TooLong {
        /// The length of the line in bytes.
        length: u64,
        /// The limit.
        limit: usize,
    },
    /// A reply to no waiting request: late, repeated, or to another session. It was dropped.
    UnknownId {
        /// The id of the reply, as JSON text.
        id: String,
        /// Whether its id is one of this session's.
        late: bool,
    },
    /// An error that names no request.
    ErrorWithoutId(RpcFailure),
    /// A notification other than a log.
    Notification {
        /// The method of the notification.
        method: String,
        /// The parameters of the notification.
        params: Value,
    },
    /// A request from the peer. It was refused with -32601.
    Refused {
        /// The method of the request.
        method: String,
    },
    /// A request of ours came back: the line echoes.
    Echo,
    /// A message was odd, and was understood.
    Anomaly(&'static str),
    /// The process has ended.
    Exited(Exit),
    /// The connection is gone.
    Gone(String),
    /// Other processes have the port open too, and may get what the device writes.
    AlsoOpen(Vec<Holder>),
    /// Everything is new after a loss or a cancellation: process or connection, and session.
    Reconnected,
}

/// A log line.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Log {
    /// The level; `info` for levels that are not known.
    pub level: Level,
    /// The level in the extension's own word, if it is another.
    pub level_name: Option<String>,
    /// The message.
    pub message: String,
    /// Structured data, if there is any.
    pub data: Option<Value>,
    /// Its JSON text as it came, with all digits, where that is known.
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
            Self::Exited(exit) => write!(f, "ended: {exit}"),
            Self::Gone(why) => f.write_str(why),
            Self::AlsoOpen(holders) => f.write_str(&also_open(holders).unwrap_or_default()),
            Self::Reconnected => f.write_str("connected anew"),
        }
    }
}
