//! The kinds of lines.

use core::fmt;

use super::log::Log;
use super::reply::{Body, Reply, RpcError};
use crate::json::check::{SyntaxError, SyntaxErrorKind};
use crate::json::view::{Json, Text};

/// A line that [`Client::receive`](super::Client::receive) has read.
#[derive(Debug, Clone, Copy)]
pub struct Received<'t> {
    /// The message, or the kind of line if it is not a message.
    pub incoming: Incoming<'t>,
    /// Text before the message on the same line, such as an escape sequence or a banner without a
    /// newline.
    pub before: &'t [u8],
    /// Text behind the message on the same line. Pass it to [`Client::receive`](super::Client::receive) as the next
    /// line.
    pub rest: &'t [u8],
    /// The deviations from the protocol in a message that was understood nevertheless.
    pub anomalies: Anomalies,
}

impl<'t> Received<'t> {
    pub(super) fn of(incoming: Incoming<'t>) -> Self {
        Self { incoming, before: &[], rest: &[], anomalies: Anomalies::NONE }
    }
}

/// The kinds of lines.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Incoming<'t> {
    /// The reply to a request that was out. It no longer is.
    Reply(Reply<'t>),
    /// A damaged reply to a pending request, or a damaged message that belongs to no request. The request that it names
    /// is no longer pending.
    Malformed(Malformed<'t>),
    /// A reply to no call that is out: too late, to an earlier session, or to an id of the peer's own making.
    UnknownId(UnknownId<'t>),
    /// An error with id null or without id: the peer could not read a request (JSON-RPC 2.0 §5).
    ErrorWithoutId {
        /// The error.
        error: RpcError<'t>,
        /// The request that it must be about, if exactly one is out. It stays out: [`Client::forget`](super::Client::forget) ends it.
        only: Option<u32>,
    },
    /// gevals "Log".
    Log(Log<'t>),
    /// A notification other than a log. It must not be answered (JSON-RPC 2.0 §4.1).
    Notification {
        /// The method of the notification.
        method: Text<'t>,
        /// The parameters of the notification; null if there are none.
        params: Json<'t>,
    },
    /// A request to the host. [`write_refusal`](super::write_refusal) answers it.
    Request(PeerRequest<'t>),
    /// A request of our own came back: the line echoes. Not to be answered.
    Echo,
    /// No message of ours. Not to be answered.
    NonProtocol(NonProtocol<'t>),
}

/// A reply to no call that is out.
#[derive(Debug, Clone, Copy)]
pub struct UnknownId<'t> {
    /// The id of the reply.
    pub id: Json<'t>,
    /// Whether the id is one of this session's: the reply is late, or the second one.
    pub late: bool,
    /// The content.
    pub body: Body<'t>,
}

/// A request from the peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerRequest<'t> {
    /// The id of the request, to be echoed.
    pub id: Json<'t>,
    /// The method of the request.
    pub method: Text<'t>,
    /// The parameters of the request; null if there are none.
    pub params: Json<'t>,
}

/// A reply that came damaged.
#[derive(Debug, Clone, Copy)]
pub struct Malformed<'t> {
    /// The request it belongs to, as far as that can be read from it.
    pub id: Option<u32>,
    /// The fault.
    pub fault: MalformedKind,
    /// The line, or as much of it as there is. It is not a message.
    pub text: &'t [u8],
}

/// The fault of a damaged message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MalformedKind {
    /// The line is not JSON.
    Syntax(SyntaxError),
    /// The message is spread over several lines (multi-line JSON): the peer prints it indented.
    SeveralLines,
}

impl Malformed<'_> {
    /// The word that is not allowed in JSON, such as `NaN`, if that is the fault.
    pub fn token(&self) -> Option<&str> {
        let MalformedKind::Syntax(error) = self.fault else { return None };
        if !matches!(error.kind, SyntaxErrorKind::UnexpectedByte | SyntaxErrorKind::BadNumber) {
            return None;
        }
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b'_' | b'\'');
        let (before, after) = self.text.split_at_checked(error.offset)?;
        let start = before.len().wrapping_sub(before.iter().rev().take(16).take_while(|byte| is_word(byte)).count());
        let end = before.len().wrapping_add(after.iter().take(16).take_while(|byte| is_word(byte)).count());
        self.text.get(start..end).and_then(|word| str::from_utf8(word).ok()).filter(|word| !word.is_empty())
    }
}

impl core::error::Error for Malformed<'_> {}

impl fmt::Display for Malformed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            MalformedKind::SeveralLines => f.write_str("multi-line JSON: a message must be on one line"),
            MalformedKind::Syntax(error) => {
                write!(f, "not JSON: {error}")?;
                match self.token() {
                    Some(token) => write!(f, " ({token})"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// A line that is not a message of this protocol.
#[derive(Debug, Clone, Copy)]
pub struct NonProtocol<'t> {
    /// The line.
    pub text: &'t [u8],
    /// The reason why the line is no message.
    pub why: NonProtocolKind,
}

/// Why a line is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NonProtocolKind {
    /// The line is not JSON.
    NotJson(SyntaxError),
    /// The line is JSON, and not an object.
    NotAnObject,
    /// The line is an object without the members of a message.
    NotAMessage,
}

impl core::error::Error for NonProtocolKind {}

impl fmt::Display for NonProtocolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(error) => write!(f, "not JSON: {error}"),
            Self::NotAnObject => f.write_str("JSON, but not an object"),
            Self::NotAMessage => f.write_str("JSON, but not a JSON-RPC message"),
        }
    }
}

/// How a message deviated from the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies(u8);

impl Anomalies {
    /// In nothing.
    pub const NONE: Self = Self(0);
    /// It lacks `"jsonrpc":"2.0"` (JSON-RPC 2.0 §5).
    pub const NO_JSONRPC: Self = Self(1);
    /// Its id has the value of ours in another spelling: `"7"` or `7.0` for `7`.
    pub const ID_REFORMATTED: Self = Self(2);
    /// There was other text on its line.
    pub const EXTRA_TEXT: Self = Self(4);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// A sentence for each.
    pub fn texts(self) -> impl Iterator<Item = &'static str> {
        [
            (Self::NO_JSONRPC, "the message lacks \"jsonrpc\":\"2.0\""),
            (Self::ID_REFORMATTED, "the reply's id is not the JSON value that was sent"),
            (Self::EXTRA_TEXT, "there is other text on the message's line"),
        ]
        .into_iter()
        .filter(move |(anomaly, _)| self.contains(*anomaly))
        .map(|(_, text)| text)
    }
}
