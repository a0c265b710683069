//! Errors between a host and an extension.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::port_info::{Holder, PortInfo};
use crate::terminal::printable;

/// Why there is no answer.
///
/// A failed operation is not an error here, but a [`CallResult`](super::CallResult) with a
/// [`failure`](super::CallResult::failure).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// There is no such program.
    #[error(
        "there is no program `{program}`{}{}",
        if program.contains(['/', '\\']) { "" } else { " in PATH" },
        hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default()
    )]
    NoProgram {
        /// As the target names it.
        program: String,
        /// A suggestion, if there is one.
        hint: Option<String>,
    },
    /// The program is there and cannot be started.
    #[error("`{program}` cannot be started: {source}")]
    Start {
        /// As the target names it.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The port or the server cannot be opened.
    #[error("{what} cannot be opened: {source}")]
    Open {
        /// The port or the server.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has the port.
    #[error("{} is in use{}", port.display(), held_by(.holders))]
    Busy {
        /// The port.
        port: PathBuf,
        /// The processes that hold it, as far as they are visible.
        holders: Vec<Holder>,
    },
    /// A rig that others use was not free in time.
    #[error("{what}: {why}")]
    Waited {
        /// The target.
        what: String,
        /// The process that has it.
        why: String,
    },
    /// No port fits the target.
    #[error("no {wanted} is plugged in{}", listed("; there are", .ports))]
    NoDevice {
        /// The target that was not found.
        wanted: String,
        /// The USB serial ports that there are.
        ports: Vec<PortInfo>,
    },
    /// Several ports fit the target.
    #[error("several rigline devices are plugged in; name one by serial:auto/SERIAL or serial:usb/PATH{}", listed("", .ports))]
    SeveralDevices {
        /// The ports that fit.
        ports: Vec<PortInfo>,
    },
    /// This target cannot be used this way.
    #[error("{0}")]
    Unsupported(String),
    /// The extension did not answer `initialize` in time.
    #[error("{extension} did not answer within {after:?} of its start{details}")]
    StartTimeout {
        /// The extension's name, or the target.
        extension: String,
        /// How long it was waited for.
        after: Duration,
        /// Further observations.
        details: Box<Details>,
    },
    /// The extension did not answer a call in time. The session continues; a later answer is dropped.
    #[error("{extension} did not answer `{request}` within {after:?}{}{details}", and_grace(*limit, *after))]
    Timeout {
        /// The extension's name.
        extension: String,
        /// The operation.
        request: String,
        /// How long it was waited for.
        after: Duration,
        /// The call's own time limit, if it had one. The host waits longer by
        /// [`Options::grace`](super::Options::grace).
        limit: Option<Duration>,
        /// Further observations.
        details: Box<Details>,
    },
    /// The extension answered a call after the call's own time limit. What such an answer says does not count: only an extension's own
    /// timeout error is accepted then.
    #[error("{extension} answered `{request}` after {took:.3?}, beyond the time limit of {limit:?}; it said: {answer}")]
    Late {
        /// The extension's name.
        extension: String,
        /// The operation.
        request: String,
        /// From the request to the answer.
        took: Duration,
        /// The call's own time limit.
        limit: Duration,
        /// The answer, in short.
        answer: String,
    },
    /// The process has ended.
    #[error("{extension} has ended: {exit}{details}")]
    Exited {
        /// The extension's name, or the target.
        extension: String,
        /// How the program ended.
        exit: Exit,
        /// Further observations, such as the last lines of its standard error.
        details: Box<Details>,
    },
    /// The connection is gone: an unplugged device, a closed socket, a process that closed its output.
    #[error("{extension}: {why}{details}")]
    Gone {
        /// The extension's name, or the target.
        extension: String,
        /// The event.
        why: String,
        /// Further observations.
        details: Box<Details>,
    },
    /// The call was cancelled by [`Host::cancel`](super::Host::cancel).
    #[error("the call of {extension} was cancelled")]
    Cancelled {
        /// The extension's name.
        extension: String,
    },
    /// The session was shut down before.
    #[error("the session with {extension} was shut down")]
    ShutDown {
        /// The extension's name.
        extension: String,
    },
    /// A line was longer than [`Options::line_limit`](super::Options::line_limit).
    #[error("{extension} wrote a line that is too long: {length} bytes or more, and the limit is {limit}{details}")]
    LineTooLong {
        /// The extension's name, or the target.
        extension: String,
        /// How much of it was seen.
        length: u64,
        /// The limit.
        limit: usize,
        /// Further observations.
        details: Box<Details>,
    },
    /// A reply came that cannot be used: damaged, undecodable, over several lines, or not what JSON-RPC allows.
    #[error("{extension} answered with something that cannot be used: {why}{details}")]
    BadReply {
        /// The extension's name, or the target.
        extension: String,
        /// The fault.
        why: String,
        /// Further observations, such as the line itself.
        details: Box<Details>,
    },
    /// `initialize` was answered with an error.
    #[error("{extension} refused to start a session: {error}")]
    Refused {
        /// The target.
        extension: String,
        /// The error.
        error: RpcFailure,
    },
    /// The request does not fit the peer's memory. Nothing was sent.
    #[error("the request needs {size} bytes, and {extension} accepts at most {limit}")]
    RequestTooLarge {
        /// The extension's name.
        extension: String,
        /// Bytes of the request.
        size: usize,
        /// The limit of the peer in bytes, from its manifest.
        limit: usize,
    },
    /// Arguments or outputs that cannot be written or read as the type that was asked for.
    #[error("{what}: {source}")]
    Types {
        /// The kind of the values.
        what: &'static str,
        /// The error of serde.
        source: serde_json::Error,
    },
    /// A value that must be a JSON object has another type.
    #[error("{0} must be a JSON object")]
    NoObject(&'static str),
    /// Too many calls are out at once.
    #[error("{0} calls are in progress at once; wait for one to end")]
    TooManyCalls(usize),
}

impl HostError {
    /// Whether it was a deadline.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Waited { .. } | Self::StartTimeout { .. } | Self::Timeout { .. } | Self::Late { .. })
    }

    /// Whether another connection is needed before the next call.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Exited { .. } | Self::Gone { .. } | Self::ShutDown { .. })
    }
}

/// Observations before an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// The likely cause, if there is one to name.
    pub hint: Option<String>,
    /// The last lines of standard error.
    pub stderr: Vec<String>,
    /// The last lines that were not messages.
    pub skipped: Vec<String>,
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hint) = &self.hint {
            write!(f, " ({})", printable(hint))?;
        }
        for (title, lines) in
            [("its standard error ends with", &self.stderr), ("lines that were skipped", &self.skipped)]
        {
            if !lines.is_empty() {
                write!(f, "\n{title}:")?;
                lines.iter().try_for_each(|line| write!(f, "\n  {}", printable(line)))?;
            }
        }
        Ok(())
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// A signal ended the program.
    Signal(i32),
    /// The end of the program is not known.
    Unknown,
}

impl Exit {
    /// Whether it ended with status 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "killed by signal {signal} ({name})"),
                None => write!(f, "killed by signal {signal}"),
            },
            Self::Unknown => f.write_str("its exit status is not known"),
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    // The numbers that are the same on every Unix we run on.
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}

/// A JSON-RPC error as it came (JSON-RPC 2.0 §5.1), or what a peer sent in its place.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RpcFailure {
    /// The code, if there is a usable one.
    pub code: Option<i32>,
    /// The best text there is.
    pub message: String,
    /// The data; null if there is none.
    pub data: Value,
}

impl fmt::Display for RpcFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{} ({code})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

fn and_grace(limit: Option<Duration>, after: Duration) -> String {
    limit
        .map(|limit| format!(": its time limit of {limit:?}, and {:?} of grace", after.saturating_sub(limit)))
        .unwrap_or_default()
}

/// That others have a port open too.
pub(crate) fn also_open(holders: &[Holder]) -> Option<String> {
    (!holders.is_empty()).then(|| format!("the port is also open{}", held_by(holders)))
}

fn held_by(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return " by another program".to_owned();
    }
    let names: Vec<String> = holders.iter().map(Holder::to_string).collect();
    let is_manager = holders.iter().any(|holder| holder.command.contains("ModemManager"));
    // It lets go by itself after some seconds.
    let advice = if is_manager {
        "; a udev rule with ENV{ID_MM_DEVICE_IGNORE}=\"1\" prevents ModemManager from probing the device as a modem"
    } else {
        ""
    };
    format!(" by {}{advice}", names.join(", "))
}

fn listed(title: &str, ports: &[PortInfo]) -> String {
    if ports.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = ports.iter().map(|port| format!("\n  {port}")).collect();
    format!("{title}:{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_in_an_error_does_not_drive_the_terminal() {
        let details = Details {
            hint: Some("a\x1b[2J".into()),
            stderr: vec!["b\u{9b}2J".into()],
            skipped: vec!["c\u{202e}".into()],
        };
        let text = details.to_string();
        assert!(!text.contains(['\x1b', '\u{9b}', '\u{202e}']) && text.contains("a\u{FFFD}[2J"), "{text:?}");
    }

    #[test]
    fn a_busy_port_tells_who_has_it() {
        let busy = |commands: &[&str]| {
            let holders = commands.iter().map(|&command| Holder { pid: 7, command: command.into() }).collect();
            HostError::Busy { port: "/dev/ttyACM0".into(), holders }.to_string()
        };
        assert_eq!(busy(&[]), "/dev/ttyACM0 is in use by another program");
        assert_eq!(busy(&["cat x", "sh"]), "/dev/ttyACM0 is in use by process 7 (cat x), process 7 (sh)");
        assert!(busy(&["/usr/sbin/ModemManager"]).contains("ID_MM_DEVICE_IGNORE"));
    }
}
