//! Errors between a host and an extension.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::port_info::{Holder, PortInfo};
use crate::terminal::printable;

/// The reason why a host has no answer from an extension.
///
/// A failed operation is not an error here. It is a [`CallResult`](super::CallResult) with a
/// [`failure`](super::CallResult::failure).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The program does not exist.
    #[error(
        "there is no program `{program}`{}{}",
        if program.contains(['/', '\\']) { "" } else { " in PATH" },
        hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default()
    )]
    NoProgram {
        /// The program, as the target names it.
        program: String,
        /// A suggestion how to correct the name.
        hint: Option<String>,
    },
    /// The program exists, but cannot be started.
    #[error("`{program}` cannot be started: {source}")]
    Start {
        /// The program, as the target names it.
        program: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The port or the server cannot be opened.
    #[error("{what} cannot be opened: {source}")]
    Open {
        /// The name of the port, or the address of the server.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process uses the port.
    #[error("{} is in use{}", port.display(), held_by(.holders))]
    Busy {
        /// The path of the port.
        port: PathBuf,
        /// The processes that have the port open, as far as this process can see them.
        holders: Vec<Holder>,
    },
    /// A rig that other processes use was not free in time.
    #[error("{what}: {why}")]
    Waited {
        /// The name of the target.
        what: String,
        /// The reason, with the process that uses the rig.
        why: String,
    },
    /// No port matches the target.
    #[error("no {wanted} is plugged in{}", listed("; there are", .ports))]
    NoDevice {
        /// The target that was not found.
        wanted: String,
        /// The USB serial ports that exist.
        ports: Vec<PortInfo>,
    },
    /// Several ports match the target.
    #[error("several rigline devices are plugged in; name one by serial:auto/SERIAL or serial:usb/PATH{}", listed("", .ports))]
    SeveralDevices {
        /// The ports that match.
        ports: Vec<PortInfo>,
    },
    /// The target cannot be used in this way. The text says why.
    #[error("{0}")]
    Unsupported(String),
    /// The extension did not answer `initialize` in time.
    #[error("{extension} did not answer within {after:?} of its start{details}")]
    StartTimeout {
        /// The name of the extension, or the target.
        extension: String,
        /// The time for which the host waited.
        after: Duration,
        /// Observations that may explain the error.
        details: Box<Details>,
    },
    /// The extension did not answer a call in time. The session continues, and a later answer is
    /// dropped.
    #[error("{extension} did not answer `{request}` within {after:?}{}{details}", and_grace(*limit, *after))]
    Timeout {
        /// The name of the extension.
        extension: String,
        /// The name of the operation.
        request: String,
        /// The time for which the host waited.
        after: Duration,
        /// The time limit of the call, if it had one. The host waits longer by
        /// [`Options::grace`](super::Options::grace).
        limit: Option<Duration>,
        /// Observations that may explain the error.
        details: Box<Details>,
    },
    /// The extension answered after the time limit of the call. Only the extension's own timeout
    /// error is accepted at that time, so the answer does not count.
    #[error("{extension} answered `{request}` after {took:.3?}, beyond the time limit of {limit:?}; it said: {answer}")]
    Late {
        /// The name of the extension.
        extension: String,
        /// The name of the operation.
        request: String,
        /// The time from the request to the answer.
        took: Duration,
        /// The time limit of the call.
        limit: Duration,
        /// The answer, shortened.
        answer: String,
    },
    /// The process of the extension has ended.
    #[error("{extension} has ended: {exit}{details}")]
    Exited {
        /// The name of the extension, or the target.
        extension: String,
        /// The way in which the process ended.
        exit: ProcessExit,
        /// Observations that may explain the error, such as the last lines of standard error.
        details: Box<Details>,
    },
    /// The connection was lost: a device was unplugged, a socket was closed, or a process closed
    /// its output.
    #[error("{extension}: {why}{details}")]
    Gone {
        /// The name of the extension, or the target.
        extension: String,
        /// The description of the loss.
        why: String,
        /// Observations that may explain the error.
        details: Box<Details>,
    },
    /// [`Host::cancel`](super::Host::cancel) cancelled the call.
    #[error("the call of {extension} was cancelled")]
    Cancelled {
        /// The name of the extension.
        extension: String,
    },
    /// The session had been shut down before the call.
    #[error("the session with {extension} was shut down")]
    ShutDown {
        /// The name of the extension.
        extension: String,
    },
    /// The extension sent a line that is longer than
    /// [`Options::line_limit`](super::Options::line_limit).
    #[error("{extension} wrote a line that is too long: {length} bytes or more, and the limit is {limit}{details}")]
    LineTooLong {
        /// The name of the extension, or the target.
        extension: String,
        /// The number of bytes of the line that were received.
        length: u64,
        /// The longest accepted line, in bytes.
        limit: usize,
        /// Observations that may explain the error.
        details: Box<Details>,
    },
    /// The extension sent a reply that cannot be used. It is damaged, spread over several lines, or
    /// not allowed by JSON-RPC.
    #[error("{extension} answered with something that cannot be used: {why}{details}")]
    BadReply {
        /// The name of the extension, or the target.
        extension: String,
        /// The fault of the reply.
        why: String,
        /// Observations that may explain the error, such as the line itself.
        details: Box<Details>,
    },
    /// The extension answered `initialize` with an error.
    #[error("{extension} refused to start a session: {error}")]
    Refused {
        /// The target.
        extension: String,
        /// The error in the answer.
        error: RpcFailure,
    },
    /// The request does not fit the memory of the extension. Nothing was sent.
    #[error("the request needs {size} bytes, and {extension} accepts at most {limit}")]
    RequestTooLarge {
        /// The name of the extension.
        extension: String,
        /// The size of the request, in bytes.
        size: usize,
        /// The largest request that the extension accepts, in bytes, from its manifest.
        limit: usize,
    },
    /// The arguments or the outputs do not fit the caller's types.
    #[error("{what}: {source}")]
    Types {
        /// The values in question: `the arguments` or `the outputs`.
        what: &'static str,
        /// The error of serde.
        source: serde_json::Error,
    },
    /// A value that must be a JSON object is none. The text names the value.
    #[error("{0} must be a JSON object")]
    NoObject(&'static str),
    /// Too many calls are pending. The number is the limit.
    #[error("{0} calls are in progress at once; wait for one to end")]
    TooManyCalls(usize),
}

impl HostError {
    /// Returns whether a time limit was exceeded.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Waited { .. } | Self::StartTimeout { .. } | Self::Timeout { .. } | Self::Late { .. })
    }

    /// Returns whether the host must connect again before the next call.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Exited { .. } | Self::Gone { .. } | Self::ShutDown { .. })
    }
}

/// Observations that may explain an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// The likely cause, if one is known.
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

/// The way in which a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessExit {
    /// The process ended with this exit status.
    Code(i32),
    /// A signal with this number ended the process.
    Signal(i32),
    /// The way in which the process ended is not known.
    Unknown,
}

impl ProcessExit {
    /// Returns whether the exit status is 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for ProcessExit {
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

/// A JSON-RPC error (JSON-RPC 2.0 §5.1), or the value that a peer sent in its place.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RpcFailure {
    /// The error code. `None` if there is no usable one.
    pub code: Option<i32>,
    /// The message of the error. If it has none, a text about the error.
    pub message: String,
    /// The member `data` of the error. It is null if the error has none.
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
        .filter(|limit| after > *limit)
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
