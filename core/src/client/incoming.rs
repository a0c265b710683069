//! The kinds of lines that a host receives from an extension.

use core::fmt;

use super::log::Log;
use super::reply::{Reply, ReplyBody, RpcError};
use crate::json::check::{SyntaxError, SyntaxErrorKind};
use crate::json::{Json, Text};

/// The result of [`ClientSession::receive`](super::ClientSession::receive).
#[derive(Debug, Clone, Copy)]
pub struct Received<'t> {
    /// The message, or the kind of the line if it is not a message.
    pub incoming: Incoming<'t>,
    /// Text before the message on the same line, such as an escape sequence or a banner without a
    /// newline.
    pub before: &'t [u8],
    /// Text behind the message on the same line. Pass it to [`ClientSession::receive`](super::ClientSession::receive) as the next
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

/// The kind of a line that a host receives.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Incoming<'t> {
    /// The reply to a pending request, which is no longer pending then.
    Reply(Reply<'t>),
    /// A damaged message. If it is the reply to a pending request, that request is no longer
    /// pending.
    Malformed(Malformed<'t>),
    /// A reply to no pending request. It is too late, belongs to an earlier session, or has an id
    /// that the peer has invented.
    UnknownId(UnknownId<'t>),
    /// An error without an id or with id null: the peer could not read a request (JSON-RPC 2.0 §5).
    ErrorWithoutId {
        /// The error.
        error: RpcError<'t>,
        /// The pending request, if there is exactly one: the error must be about it. It stays
        /// pending until [`ClientSession::forget`](super::ClientSession::forget).
        only: Option<u32>,
    },
    /// A log of the extension (gevals "Log").
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
    /// A request of this client came back, because the line echoes. Do not answer it.
    Echo,
    /// A line that is not a message of this protocol. Do not answer it.
    NonProtocol(NonProtocol<'t>),
}

/// A reply to no pending request.
#[derive(Debug, Clone, Copy)]
pub struct UnknownId<'t> {
    /// The id of the reply.
    pub id: Json<'t>,
    /// Whether the id is one that this session has used. The reply is then late, or a second one.
    pub late: bool,
    /// The content of the reply.
    pub body: ReplyBody<'t>,
}

/// A request from the peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerRequest<'t> {
    /// The id of the request, which the reply must contain.
    pub id: Json<'t>,
    /// The method of the request.
    pub method: Text<'t>,
    /// The parameters of the request; null if there are none.
    pub params: Json<'t>,
}

/// A damaged message.
#[derive(Debug, Clone, Copy)]
pub struct Malformed<'t> {
    /// The id of the request that the message replies to, if it can be read.
    pub id: Option<u32>,
    /// The kind of damage.
    pub fault: MalformedKind,
    /// The line, as far as it was received.
    pub text: &'t [u8],
}

/// The kind of damage of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MalformedKind {
    /// The line is not JSON.
    Syntax(SyntaxError),
    /// The message is spread over several lines, because the peer prints indented JSON.
    SeveralLines,
}

impl Malformed<'_> {
    /// The word that JSON does not allow, such as `NaN`, if it is the reason of the damage.
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
    /// The text of the line.
    pub text: &'t [u8],
    /// The reason why the line is not a message.
    pub why: NonProtocolKind,
}

/// The reason why a line is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NonProtocolKind {
    /// The line is not JSON.
    NotJson(SyntaxError),
    /// The line is JSON, but not an object.
    NotAnObject,
    /// The line is an object, but without the members of a message.
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

/// A set of deviations of a message from the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies(u8);

impl Anomalies {
    /// No deviation.
    pub const NONE: Self = Self(0);
    /// The message lacks `"jsonrpc":"2.0"` (JSON-RPC 2.0 §5).
    pub const NO_JSONRPC: Self = Self(1);
    /// The id is equal to the one that was sent, but in another spelling: `"7"` or `7.0` for `7`.
    pub const ID_REFORMATTED: Self = Self(2);
    /// There was other text on the line of the message.
    pub const EXTRA_TEXT: Self = Self(4);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all deviations of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The descriptions of the deviations, one sentence each.
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
