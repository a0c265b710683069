//! The host's side of a gevals session, without input and output. It writes request lines, matches
//! replies to calls, and separates logs and other text.
//!
//! A [`ClientSession`] gives each request an id, and remembers which requests are pending. Pass it each
//! line that a [`Framer`](crate::frame::Framer) returns. The result contains an [`Incoming`], which
//! is a view of the line. Real peers print banners into the stream, leave members out and break
//! lines. A line that is not a message of this protocol is therefore never an error: it is
//! [`NonProtocol`], to be shown to the user. A damaged reply that can be recognised ends its call
//! with a reason ([`Malformed`]).
//!
//! ```
//! use rigline::client::{ClientSession, Incoming, Request};
//! use rigline::json::write::Writer;
//!
//! let mut client = ClientSession::new(0);
//! let mut memory = [0; 128];
//! let mut out = Writer::new(&mut memory);
//! let id = client.start(&Request::Shutdown, &mut out)?;
//! assert_eq!(out.as_written(), b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shutdown\",\"params\":{}}\n");
//!
//! let banner = client.receive(b"Booting v1.2");
//! assert!(matches!(banner.incoming, Incoming::NonProtocol(_)));
//! let reply = client.receive(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
//! assert!(matches!(reply.incoming, Incoming::Reply(reply) if reply.id == id));
//! # Ok::<(), rigline::client::StartError>(())
//! ```
//!
//! # Ids
//!
//! Ids are integers that count up from a base. On a port that stays open longer than the process,
//! use a new base for each session. A late reply to an earlier session can then not be taken for
//! the reply to a new call.
//!
//! # Limits
//!
//! At most [`MAX_PENDING`] requests are pending at once. A line is checked once. A damaged line is
//! checked a fixed number of times more, whatever its content.

mod incoming;
mod log;
mod recover;
mod reply;
mod request;

use core::fmt;

use crate::json::check::{self, Span, SyntaxError, SyntaxErrorKind, WatchedMember};
use crate::json::write::{Message as _, TooLarge, Writer};
use crate::json::{Json, JsonKind};
use crate::message::Quoted;
use crate::rpc;

pub use incoming::{
    Anomalies, Incoming, Malformed, MalformedKind, NonProtocol, NonProtocolKind, PeerRequest, Received, UnknownId,
};
pub use log::Log;
pub use reply::{ExecuteResult, OutputsIter, Reply, ReplyBody, RpcError, Unquoted, member};
pub use request::{Request, RequestContext};

/// The greatest number of requests that may be pending at once.
pub const MAX_PENDING: usize = 8;

/// Ids stay below this, so that a peer that reads them as signed 32-bit integers returns them
/// unchanged.
const ID_END: u32 = 1 << 31;

/// The host's side of one gevals session.
#[derive(Debug, Clone)]
pub struct ClientSession {
    first: u32,
    next: u32,
    /// Ids of the requests that are out; 0 where there is none.
    pending: [u32; MAX_PENDING],
    strict: bool,
    /// The last lines look like the beginning of a message that is spread over several.
    open: bool,
}

impl ClientSession {
    /// A client whose ids begin at `base + 1`. Only the low 30 bits of `base` count.
    ///
    /// For a new child process, 0 suffices. For a port, use a random base.
    pub const fn new(base: u32) -> Self {
        let first = (base & 0x3FFF_FFFF) + 1;
        Self { first, next: first, pending: [0; MAX_PENDING], strict: false, open: false }
    }

    /// Makes calls fail if their reply lacks `"jsonrpc":"2.0"`. By default such replies are
    /// accepted.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Writes a request as one line with its newline, and returns its id. The request is pending
    /// until its reply comes.
    ///
    /// # Errors
    /// Too many requests are pending, or the line does not fit. Nothing is pending then; throw away
    /// what was written.
    pub fn start(&mut self, request: &Request<'_>, out: &mut Writer<'_>) -> Result<u32, StartError> {
        let id = self.next;
        let Some(free) = self.pending.iter_mut().find(|pending| **pending == 0) else {
            return Err(StartError::TooManyPending);
        };
        request.write(id, out);
        out.check().map_err(StartError::TooLarge)?;
        *free = id;
        self.next = if id >= ID_END - 1 { 1 } else { id.wrapping_add(1) };
        Ok(id)
    }

    /// Removes a request from the pending ones, because its caller has given up. A later reply to
    /// it is [`Incoming::UnknownId`].
    pub fn forget(&mut self, id: u32) {
        for pending in &mut self.pending {
            if *pending == id {
                *pending = 0;
            }
        }
    }

    /// Removes all pending requests, and forgets the beginning of a damaged message. Call it for a
    /// new connection.
    pub fn reset(&mut self) {
        self.pending = [0; MAX_PENDING];
        self.open = false;
    }

    /// The ids of the pending requests.
    pub fn pending(&self) -> impl Iterator<Item = u32> + '_ {
        self.pending.iter().copied().filter(|id| *id != 0)
    }

    /// Whether the request with this id is pending.
    pub fn is_pending(&self, id: u32) -> bool {
        id != 0 && self.pending.contains(&id)
    }

    /// Classifies a line. Text after a complete message on the same line is [`Received::rest`];
    /// pass it in again.
    pub fn receive<'t>(&mut self, line: &'t [u8]) -> Received<'t> {
        let text = line.trim_ascii();
        let mut spans = NO_SPANS;
        match scan(text, &mut spans) {
            Ok(()) => {
                self.open = false;
                self.classify(text, &spans, Anomalies::NONE).unwrap_or_else(|why| non_protocol(text, why))
            }
            // Two messages on one line, or text behind one: the newline between them was forgotten.
            Err(SyntaxError { kind: SyntaxErrorKind::TrailingData, offset }) if text.first() == Some(&b'{') => {
                let (first, rest) = text.split_at_checked(offset).unwrap_or((text, &[]));
                let mut spans = NO_SPANS;
                let received = match scan(first, &mut spans) {
                    Ok(()) => self.classify(first, &spans, Anomalies::EXTRA_TEXT),
                    Err(error) => Err(NonProtocolKind::NotJson(error)),
                };
                Received { rest, ..received.unwrap_or_else(|why| non_protocol(first, why)) }
            }
            Err(error) => self.recover(text, error),
        }
    }

    /// The kind of a JSON text by its members; `Err` if it is not a message.
    fn classify<'t>(
        &mut self,
        text: &'t [u8],
        spans: &Spans,
        mut anomalies: Anomalies,
    ) -> Result<Received<'t>, NonProtocolKind> {
        if text.first() != Some(&b'{') {
            return Err(NonProtocolKind::NotAnObject);
        }
        let versioned = rpc::is_version_2(spans[rpc::JSONRPC].of(text));
        if !versioned {
            anomalies = anomalies.and(Anomalies::NO_JSONRPC);
        }
        let json = |span: Span| (!span.is_absent()).then(|| Json::of_checked(span.of(text)));
        let (id, result, error) = (json(spans[rpc::ID]), json(spans[rpc::RESULT]), json(spans[rpc::ERROR]));
        let incoming = if let Some(method) = json(spans[rpc::METHOD]) {
            let params = json(spans[rpc::PARAMS]).unwrap_or(Json::NULL);
            let Some(method) = method.text() else { return Err(NonProtocolKind::NotAMessage) };
            match id {
                Some(id) if versioned => {
                    if self.is_own(id) && ["initialize", "execute", "shutdown"].iter().any(|own| method == **own) {
                        Incoming::Echo
                    } else {
                        Incoming::Request(PeerRequest { id, method, params })
                    }
                }
                _ if method == "log" && (versioned || params.kind() == JsonKind::Object) => {
                    Incoming::Log(Log::of_params(params))
                }
                None if versioned => Incoming::Notification { method, params },
                _ => return Err(NonProtocolKind::NotAMessage),
            }
        } else {
            let error = error.filter(|error| !error.is_null());
            let body = match (result, error) {
                (_, Some(error)) => ReplyBody::Error(RpcError(error)),
                (Some(result), None) => ReplyBody::Result(result),
                (None, None) => ReplyBody::Invalid("the reply has neither a result nor an error"),
            };
            let own = id.and_then(number).filter(|(own, _)| self.is_pending(*own));
            match (own, id, body) {
                (Some((own, as_sent)), ..) => {
                    if !as_sent {
                        anomalies = anomalies.and(Anomalies::ID_REFORMATTED);
                    }
                    self.forget(own);
                    let body = if versioned || !self.strict {
                        body
                    } else {
                        ReplyBody::Invalid("the reply lacks \"jsonrpc\":\"2.0\"")
                    };
                    Incoming::Reply(Reply { id: own, body })
                }
                (None, None, ReplyBody::Error(error)) if versioned || error.code().is_some() => {
                    Incoming::ErrorWithoutId { error, only: self.only_pending() }
                }
                (None, Some(id), ReplyBody::Error(error)) if id.is_null() && (versioned || error.code().is_some()) => {
                    Incoming::ErrorWithoutId { error, only: self.only_pending() }
                }
                (None, Some(id), ReplyBody::Result(_) | ReplyBody::Error(_)) if versioned || self.is_own(id) => {
                    Incoming::UnknownId(UnknownId { id, late: self.is_own(id), body })
                }
                _ => return Err(NonProtocolKind::NotAMessage),
            }
        };
        Ok(Received { anomalies, ..Received::of(incoming) })
    }

    /// Whether this session has given out the id, answered by now or not.
    fn is_own(&self, id: Json<'_>) -> bool {
        number(id).is_some_and(|(id, _)| (self.first..self.next).contains(&id))
    }

    fn only_pending(&self) -> Option<u32> {
        let mut pending = self.pending();
        pending.next().filter(|_| pending.next().is_none())
    }
}

/// The reason why a request was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// [`MAX_PENDING`] requests are pending.
    TooManyPending,
    /// The request does not fit into the memory.
    TooLarge(TooLarge),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyPending => f.write_str("too many requests wait for their replies"),
            Self::TooLarge(too_large) => write!(f, "{too_large}"),
        }
    }
}

impl core::error::Error for StartError {}

/// Writes the reply to a request of the peer. It is error -32601, because a host has no methods
/// (JSON-RPC 2.0 §5.1).
pub fn write_refusal(request: &PeerRequest<'_>, out: &mut Writer<'_>) {
    let id = request.id.as_bytes();
    rpc::write_head(out, if id.len() <= rpc::MAX_ID { id } else { b"null" });
    rpc::begin_error(out, rpc::METHOD_NOT_FOUND);
    out.raw(b"Unknown method: ");
    Quoted(request.method).write_escaped(out);
    rpc::end_error(out);
    out.byte(b'\n');
}

type Spans = [Span; 6];
const NO_SPANS: Spans = [Span { start: 0, end: 0 }; 6];

/// In the order in which replies have them.
static ENVELOPE: check::WatchedMembers = check::WatchedMembers::new(&[
    WatchedMember::new("jsonrpc", rpc::JSONRPC),
    WatchedMember::new("id", rpc::ID),
    WatchedMember::new("result", rpc::RESULT),
    WatchedMember::new("method", rpc::METHOD),
    WatchedMember::new("params", rpc::PARAMS),
    WatchedMember::new("error", rpc::ERROR),
]);

fn scan(text: &[u8], spans: &mut Spans) -> Result<(), SyntaxError> {
    check::scan(text, &ENVELOPE, spans)
}

fn non_protocol(text: &[u8], why: NonProtocolKind) -> Received<'_> {
    Received::of(Incoming::NonProtocol(NonProtocol { text, why }))
}

/// The value of an id, and whether its text is as this client writes it.
fn number(id: Json<'_>) -> Option<(u32, bool)> {
    match id.text() {
        Some(text) => Some((crate::json::Digits::new(text.as_str()?.as_bytes())?.to_u32().ok()?, false)),
        None => Some((id.number()?.to_u32().ok()?, id.as_bytes().iter().all(u8::is_ascii_digit))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_before_two_to_the_31_is_the_last_before_they_start_again_at_one() {
        let mut client = ClientSession { next: (1 << 31) - 2, ..ClientSession::new(0) };
        for id in [(1 << 31) - 2, (1 << 31) - 1, 1, 2] {
            assert_eq!(client.start(&Request::Shutdown, &mut Writer::new(&mut [0; 100])), Ok(id));
        }
    }
}
