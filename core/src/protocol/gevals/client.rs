//! The host's half of a session, without I/O: makes request lines, matches replies to calls, and separates logs and noise.
//!
//! A [`Client`] gives each request an id and remembers which are out. Lines go in as a [`Framer`](crate::frame::Framer)
//! cut them; what each of them is comes out as an [`Incoming`], a view over the line. Real peers print banners into the
//! stream, leave members out and break lines. So a line that is no message of ours is never an error: it is [`NonProtocol`],
//! to be shown; and a reply that can be recognised although it is damaged ends its call with a reason ([`Malformed`]).
//!
//! ```
//! use rigline::client::{Client, Incoming, Request};
//! use rigline::json::write::Writer;
//!
//! let mut client = Client::new(0);
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
//! Ids are whole numbers that count up from a base the session chooses. On a port that outlives the process, a base that
//! is new each time keeps a reply to an earlier session from satisfying a call of this one.
//!
//! # What is bounded
//!
//! At most [`MAX_PENDING`] requests are out at once. A line is checked once, and a damaged one a fixed number of times
//! more, however it is made.

use core::fmt;

use crate::duration::GoDuration;
use crate::json::check::{self, Member, Span, SyntaxError, SyntaxErrorKind};
use crate::json::raw::RawJson;
use crate::json::view::{Json, Kind, Members, Text};
use crate::json::write::{Message, TooLarge, Writer};
use crate::level::Level;
use crate::protocol::gevals::{self, Phase};
use crate::rpc;

/// The most requests that may be out at once.
pub const MAX_PENDING: usize = 8;

/// Ids stay below this, so that a peer that reads them into 32 bits with a sign gives back what it got.
const ID_END: u32 = 1 << 31;

/// The host's half of one session.
#[derive(Debug, Clone)]
pub struct Client {
    first: u32,
    next: u32,
    /// Ids of the requests that are out; 0 where there is none.
    pending: [u32; MAX_PENDING],
    strict: bool,
    /// The last lines look like the beginning of a message that is spread over several.
    open: bool,
}

impl Client {
    /// A client whose ids begin at `base + 1`; of `base` the low 30 bits count.
    ///
    /// For a child process, which is new itself, 0 will do. For a port use a random base.
    pub const fn new(base: u32) -> Self {
        let first = (base & 0x3FFF_FFFF) + 1;
        Self { first, next: first, pending: [0; MAX_PENDING], strict: false, open: false }
    }

    /// The same client, which fails calls whose reply lacks `"jsonrpc":"2.0"` instead of accepting it.
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Writes a request as one line, newline included, and waits for its reply from now on.
    ///
    /// On an error nothing is pending, and what was written is to be thrown away.
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

    /// No longer waits for a request's reply: its caller gave up. A reply that comes all the same is [`Incoming::UnknownId`].
    pub fn forget(&mut self, id: u32) {
        for pending in &mut self.pending {
            if *pending == id {
                *pending = 0;
            }
        }
    }

    /// No longer waits for any reply, and forgets what it saw of a damaged message: for a new connection.
    pub fn reset(&mut self) {
        self.pending = [0; MAX_PENDING];
        self.open = false;
    }

    /// The ids that are waited for.
    pub fn pending(&self) -> impl Iterator<Item = u32> + '_ {
        self.pending.iter().copied().filter(|id| *id != 0)
    }

    /// Whether the reply to `id` is waited for.
    pub fn is_pending(&self, id: u32) -> bool {
        id != 0 && self.pending.contains(&id)
    }

    /// Says what a line is. Whatever follows a complete message on the same line is [`Received::rest`]: give it in again.
    pub fn receive<'t>(&mut self, line: &'t [u8]) -> Received<'t> {
        let text = line.trim_ascii();
        let mut spans = Spans::default();
        match scan(text, &mut spans) {
            Ok(()) => {
                self.open = false;
                self.classify(text, &spans, Anomalies::NONE).unwrap_or_else(|why| non_protocol(text, why))
            }
            // Two messages on one line, or text behind one: the newline between them was forgotten.
            Err(SyntaxError { kind: SyntaxErrorKind::TrailingData, offset }) if text.first() == Some(&b'{') => {
                let (first, rest) = text.split_at_checked(offset).unwrap_or((text, &[]));
                let mut spans = Spans::default();
                let received = match scan(first, &mut spans) {
                    Ok(()) => self.classify(first, &spans, Anomalies::EXTRA_TEXT),
                    Err(error) => Err(NonProtocolKind::NotJson(error)),
                };
                Received { rest, ..received.unwrap_or_else(|why| non_protocol(first, why)) }
            }
            Err(error) => self.recover(text, error),
        }
    }

    /// Looks at a line that is not JSON.
    fn recover<'t>(&mut self, text: &'t [u8], error: SyntaxError) -> Received<'t> {
        let mut broken = (text, error);
        // A terminal's escape sequence, a banner without newline or the rest of a lost line may stand before the message.
        for at in objects(text).take(CANDIDATES) {
            let Some((before, message)) = text.split_at_checked(at) else { break };
            let mut spans = Spans::default();
            let (message, rest, error) = match scan(message, &mut spans) {
                Ok(()) => (message, &[][..], None),
                Err(SyntaxError { kind: SyntaxErrorKind::TrailingData, offset }) => {
                    let (first, rest) = message.split_at_checked(offset).unwrap_or((message, &[]));
                    // It is part of something larger.
                    if matches!(rest.first(), Some(b'}' | b']' | b',' | b'"')) {
                        continue;
                    }
                    spans = Spans::default();
                    (first, rest, scan(first, &mut spans).err())
                }
                Err(error) => (message, &[][..], Some(error)),
            };
            if let Some(error) = error {
                if broken.0.first() != Some(&b'{') && has_top_level(message, b"jsonrpc") {
                    broken = (message, error);
                }
            } else if rpc::is_version_2(spans.jsonrpc().of(message))
                && let Ok(received) = self.classify(message, &spans, Anomalies::EXTRA_TEXT)
            {
                self.open = false;
                return Received { before, rest, ..received };
            }
        }
        self.damaged(broken.0, broken.1).unwrap_or_else(|| non_protocol(text, NonProtocolKind::NotJson(error)))
    }

    /// A line that is not JSON but looks like a message.
    fn damaged<'t>(&mut self, text: &'t [u8], error: SyntaxError) -> Option<Received<'t>> {
        let broken = |id, fault| Some(Received::of(Incoming::Malformed(Malformed { id, fault, text })));
        if self.open {
            let key = text.strip_prefix(b"\"").and_then(|text| text.split(|byte| *byte == b'"').next());
            if key == Some(b"method") {
                self.open = false;
                return broken(None, MalformedKind::SeveralLines);
            }
            if key == Some(b"id") {
                let id = text.get(4..).and_then(value_of_key).filter(|id| self.is_pending(*id));
                if let Some(id) = id {
                    self.open = false;
                    self.forget(id);
                    return broken(Some(id), MalformedKind::SeveralLines);
                }
            }
        }
        if text.first() != Some(&b'{') {
            return None;
        }
        let several_lines =
            error.kind == SyntaxErrorKind::UnexpectedEnd && matches!(text.last(), Some(b'{' | b'[' | b',' | b':'));
        self.open = several_lines;
        let fault = if several_lines { MalformedKind::SeveralLines } else { MalformedKind::Syntax(error) };
        let mut id = None;
        for (key, value) in TopLevel::new(text) {
            match key {
                // A damaged notification or request fails no call.
                b"method" => return broken(None, fault),
                b"id" if id.is_none() => id = value_of_key(value).filter(|id| self.is_pending(*id)),
                _ => {}
            }
        }
        if let Some(id) = id {
            self.open = false;
            self.forget(id);
        } else if !has_top_level(text, b"jsonrpc") {
            return None;
        }
        broken(id, fault)
    }

    /// What a JSON text is by its members; `Err` if it is no message.
    fn classify<'t>(
        &mut self,
        text: &'t [u8],
        spans: &Spans,
        mut anomalies: Anomalies,
    ) -> Result<Received<'t>, NonProtocolKind> {
        if text.first() != Some(&b'{') {
            return Err(NonProtocolKind::NotAnObject);
        }
        let versioned = rpc::is_version_2(spans.jsonrpc().of(text));
        if !versioned {
            anomalies = anomalies.and(Anomalies::NO_JSONRPC);
        }
        let json = |span: Span| (!span.is_absent()).then(|| Json::of_checked(span.of(text)));
        let (id, result, error) = (json(spans.id()), json(spans.result()), json(spans.error()));
        let incoming = if let Some(method) = json(spans.method()) {
            let params = json(spans.params()).unwrap_or(Json::NULL);
            let Some(method) = method.text() else { return Err(NonProtocolKind::NotAMessage) };
            match id {
                Some(id) if versioned => {
                    if self.is_own(id) && ["initialize", "execute", "shutdown"].iter().any(|own| method == **own) {
                        Incoming::Echo
                    } else {
                        Incoming::Request(PeerRequest { id, method, params })
                    }
                }
                _ if method == "log" && (versioned || params.kind() == Kind::Object) => {
                    Incoming::Log(Log::of_params(params))
                }
                None if versioned => Incoming::Notification { method, params },
                _ => return Err(NonProtocolKind::NotAMessage),
            }
        } else {
            let error = error.filter(|error| !error.is_null());
            let body = match (result, error) {
                (_, Some(error)) => Body::Error(RpcError { error }),
                (Some(result), None) => Body::Result(result),
                (None, None) => Body::Invalid("the reply has neither a result nor an error"),
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
                        Body::Invalid("the reply lacks \"jsonrpc\":\"2.0\"")
                    };
                    Incoming::Reply(Reply { id: own, body })
                }
                (None, None, Body::Error(error)) if versioned || error.code().is_some() => {
                    Incoming::ErrorWithoutId { error, only: self.only_pending() }
                }
                (None, Some(id), Body::Error(error)) if id.is_null() && (versioned || error.code().is_some()) => {
                    Incoming::ErrorWithoutId { error, only: self.only_pending() }
                }
                (None, Some(id), Body::Result(_) | Body::Error(_)) if versioned || self.is_own(id) => {
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

/// Why a request was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// [`MAX_PENDING`] requests are out.
    TooManyPending,
    /// The request does not fit the writer.
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

/// A request to a gevals extension.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Opens a session: gevals "Initialize".
    Initialize {
        /// The extension's own settings, an object.
        config: Option<RawJson<'a>>,
    },
    /// Runs an operation: gevals "Execute".
    Execute {
        /// The operation's name, as the manifest has it.
        operation: &'a str,
        /// The arguments, an object.
        args: RawJson<'a>,
        /// The call's context.
        context: RequestContext<'a>,
    },
    /// Ends the session: gevals "Shutdown".
    Shutdown,
    /// Any other: to forward one as it came, or to see how a peer refuses one.
    Other {
        /// The method's name.
        method: &'a str,
        /// The parameters.
        params: RawJson<'a>,
    },
}

/// A call's context: gevals "Context Object".
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestContext<'a> {
    /// The task's directory.
    pub workdir: &'a str,
    /// The part of the task. [`Phase::Unknown`] is written as the empty string, as the real host does.
    pub phase: Phase,
    /// The task's environment variables; left out when there are none.
    pub env: &'a [(&'a str, &'a str)],
    /// The limit on the call's time.
    pub timeout: Option<GoDuration>,
    /// What the agent under test was asked, and what it answered.
    pub agent: Option<(&'a str, &'a str)>,
}

impl Request<'_> {
    /// The most bytes that the line can take, newline included, whatever its id.
    pub fn measure(&self) -> usize {
        let mut out = Writer::new(&mut []);
        self.write(ID_END, &mut out);
        out.needed()
    }

    /// Writes the request as one line, newline included.
    pub fn write(&self, id: u32, out: &mut Writer<'_>) {
        out.raw(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.u32(id);
        out.raw(b",\"method\":");
        match self {
            Self::Initialize { config } => {
                out.raw(b"\"initialize\",\"params\":{\"protocolVersion\":");
                out.str(gevals::VERSION);
                if let Some(config) = config {
                    out.raw(b",\"config\":");
                    out.raw(config.as_str().as_bytes());
                }
                out.byte(b'}');
            }
            Self::Execute { operation, args, context } => {
                out.raw(b"\"execute\",\"params\":{\"operation\":");
                out.str(operation);
                out.raw(b",\"args\":");
                out.raw(args.as_str().as_bytes());
                out.raw(b",\"context\":");
                context.write(out);
                out.byte(b'}');
            }
            Self::Shutdown => out.raw(b"\"shutdown\",\"params\":{}"),
            Self::Other { method, params } => {
                out.str(method);
                out.raw(b",\"params\":");
                out.raw(params.as_str().as_bytes());
            }
        }
        out.raw(b"}\n");
    }
}

impl RequestContext<'_> {
    fn write(&self, out: &mut Writer<'_>) {
        out.raw(b"{\"workdir\":");
        out.str(self.workdir);
        out.raw(b",\"phase\":");
        out.str(match self.phase {
            Phase::Unknown => "",
            Phase::Setup => "setup",
            Phase::Verify => "verify",
            Phase::Cleanup => "cleanup",
        });
        if !self.env.is_empty() {
            out.raw(b",\"env\":{");
            for (place, (name, value)) in self.env.iter().enumerate() {
                if place > 0 {
                    out.byte(b',');
                }
                out.str(name);
                out.byte(b':');
                out.str(value);
            }
            out.byte(b'}');
        }
        if let Some(timeout) = self.timeout {
            out.raw(b",\"timeout\":");
            out.message(&format_args!("{timeout}"));
        }
        if let Some((prompt, output)) = self.agent {
            out.raw(b",\"agent\":{\"prompt\":");
            out.str(prompt);
            out.raw(b",\"output\":");
            out.str(output);
            out.byte(b'}');
        }
        out.byte(b'}');
    }
}

/// Writes the reply to a request of the peer's, which a host has no method for: error -32601 (JSON-RPC 2.0 §5.1).
pub fn write_refusal(request: &PeerRequest<'_>, out: &mut Writer<'_>) {
    let id = request.id.as_bytes();
    rpc::write_head(out, if id.len() <= rpc::MAX_ID { id } else { b"null" });
    rpc::begin_error(out, rpc::METHOD_NOT_FOUND);
    out.raw(b"Unknown method: ");
    crate::received::Quoted(request.method).write_escaped(out);
    rpc::end_error(out);
    out.byte(b'\n');
}

/// What [`Client::receive`] made of a line.
#[derive(Debug, Clone, Copy)]
pub struct Received<'t> {
    /// The message, or what there is instead of one.
    pub incoming: Incoming<'t>,
    /// Text that stood on the line before the message: an escape sequence, a banner without newline.
    pub before: &'t [u8],
    /// What stands behind the message on the same line: to be given to [`Client::receive`] as the next line.
    pub rest: &'t [u8],
    /// In what the message was odd, and was understood all the same.
    pub anomalies: Anomalies,
}

impl<'t> Received<'t> {
    fn of(incoming: Incoming<'t>) -> Self {
        Self { incoming, before: &[], rest: &[], anomalies: Anomalies::NONE }
    }
}

/// What a line is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Incoming<'t> {
    /// The reply to a request that was out. It no longer is.
    Reply(Reply<'t>),
    /// The reply to a request that is out came damaged, or a damaged message that is nobody's. A request that it names
    /// is no longer out.
    Malformed(Malformed<'t>),
    /// A reply to no call that is out: too late, to an earlier session, or to an id of the peer's own making.
    UnknownId(UnknownId<'t>),
    /// An error with id null or without id: the peer could not read a request (JSON-RPC 2.0 §5).
    ErrorWithoutId {
        /// The error.
        error: RpcError<'t>,
        /// The request that it must be about, if exactly one is out. It stays out: [`Client::forget`] ends it.
        only: Option<u32>,
    },
    /// gevals "Log".
    Log(Log<'t>),
    /// A notification that is no log: not to be answered (JSON-RPC 2.0 §4.1).
    Notification {
        /// Its method.
        method: Text<'t>,
        /// Its parameters; null if there are none.
        params: Json<'t>,
    },
    /// A request to the host. [`write_refusal`] answers it.
    Request(PeerRequest<'t>),
    /// A request of our own came back: the line echoes. Not to be answered.
    Echo,
    /// No message of ours. Not to be answered.
    NonProtocol(NonProtocol<'t>),
}

/// The reply to a request.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'t> {
    /// The request's id.
    pub id: u32,
    /// What it says.
    pub body: Body<'t>,
}

/// What a reply says.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Body<'t> {
    /// The member `result`.
    Result(Json<'t>),
    /// The member `error`; it counts where there are both, unless it is null.
    Error(RpcError<'t>),
    /// It is no reply that JSON-RPC allows.
    Invalid(&'static str),
}

/// A reply's `error`, whatever its shape (JSON-RPC 2.0 §5.1 has an object).
#[derive(Debug, Clone, Copy)]
pub struct RpcError<'t> {
    error: Json<'t>,
}

impl<'t> RpcError<'t> {
    /// The code, from a number or from a string that holds one.
    pub fn code(&self) -> Option<i32> {
        let code = if self.error.kind() == Kind::Object { self.error.get("code")? } else { self.error };
        match code.text() {
            Some(text) => crate::json::Digits::new(text.raw().as_bytes())?.to_i32().ok(),
            None => code.number()?.to_i32().ok(),
        }
    }

    /// The best text there is: the message, else the data, else the error itself.
    pub fn message(&self) -> Plain<'t> {
        let member = |name| self.error.get(name).filter(|json| !Plain(*json).is_empty());
        Plain(member("message").or_else(|| member("data")).unwrap_or(self.error))
    }

    /// The data; null if there is none.
    pub fn data(&self) -> Json<'t> {
        self.error.get("data").unwrap_or(Json::NULL)
    }

    /// The error as it came.
    pub fn json(&self) -> Json<'t> {
        self.error
    }
}

/// A value as a person reads it: a string decoded and without its quotes, null as nothing, any other as its JSON text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Plain<'t>(pub Json<'t>);

impl Plain<'_> {
    /// Whether nothing would be printed.
    pub fn is_empty(&self) -> bool {
        self.0.is_null() || self.0.text().is_some_and(|text| text.is_empty())
    }
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.kind(), self.0.text()) {
            (Kind::Null, _) => Ok(()),
            (_, Some(text)) => fmt::Display::fmt(&text, f),
            _ => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl fmt::Debug for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The result of `execute`: gevals "Result Fields". Null means absent everywhere.
///
/// Names are found in any case where they are not there as the text spells them, since the real host finds them so.
#[derive(Debug, Clone, Copy)]
pub struct ExecuteResult<'t> {
    kind: Kind,
    /// In the order of [`RESULT_MEMBERS`].
    members: [Option<Json<'t>>; 4],
}

const RESULT_MEMBERS: [&str; 4] = ["success", "message", "error", "outputs"];

impl<'t> ExecuteResult<'t> {
    /// Reads a reply's `result`, in one pass.
    pub fn new(result: Json<'t>) -> Self {
        let (mut members, mut in_any_case) = ([None; 4], [None; 4]);
        for (key, value) in result.members() {
            let plain = key.as_str();
            for ((name, exact), other) in RESULT_MEMBERS.iter().zip(&mut members).zip(&mut in_any_case) {
                let (is_exact, is_alike) = match plain {
                    Some(key) => (key == *name, key.eq_ignore_ascii_case(name)),
                    None => (key == **name, is_in_any_case(key, name)),
                };
                if is_alike {
                    *(if is_exact { exact } else { other }) = Some(value);
                    break;
                }
            }
        }
        for (exact, other) in members.iter_mut().zip(in_any_case) {
            *exact = exact.or(other).filter(|value| !value.is_null());
        }
        Self { kind: result.kind(), members }
    }

    /// Whether the operation succeeded; the error says why that is not known; the call did not succeed then.
    pub fn success(&self) -> Result<bool, &'static str> {
        let [success, ..] = self.members;
        match (self.kind, success) {
            (Kind::Object, Some(success)) => success.bool().ok_or("the result's success is not a boolean"),
            (Kind::Object, None) => Err("the result has no success"),
            _ => Err("the result is not an object"),
        }
    }

    /// The summary, if there is one.
    pub fn message(&self) -> Option<Plain<'t>> {
        let [_, message, ..] = self.members;
        message.map(Plain).filter(|plain| !plain.is_empty())
    }

    /// The error's details, if there are any.
    pub fn error(&self) -> Option<Plain<'t>> {
        let [_, _, error, _] = self.members;
        error.map(Plain).filter(|plain| !plain.is_empty())
    }

    /// The outputs in their order. Values that are not strings come as their JSON text, null as the empty string.
    pub fn outputs(&self) -> Outputs<'t> {
        let [.., outputs] = self.members;
        Outputs(outputs.unwrap_or(Json::NULL).members())
    }

    /// What is wrong with the outputs: they are not an object.
    pub fn outputs_error(&self) -> Option<&'static str> {
        let [.., outputs] = self.members;
        (outputs?.kind() != Kind::Object).then_some("the result's outputs are not an object")
    }
}

/// The outputs of a call: names and values.
#[derive(Debug, Clone)]
pub struct Outputs<'t>(Members<'t>);

impl<'t> Iterator for Outputs<'t> {
    type Item = (Text<'t>, Plain<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (name, Plain(value)))
    }
}

/// An object's member that is not null: called `name`, or else so in another case.
pub fn member<'t>(object: Json<'t>, name: &str) -> Option<Json<'t>> {
    object
        .get(name)
        .or_else(|| object.members().filter(|(key, _)| is_in_any_case(*key, name)).last().map(|(_, value)| value))
        .filter(|value| !value.is_null())
}

fn is_in_any_case(key: Text<'_>, name: &str) -> bool {
    key.chars().map(|char| char.to_ascii_lowercase()).eq(name.chars().map(|char| char.to_ascii_lowercase()))
}

/// A reply that came damaged.
#[derive(Debug, Clone, Copy)]
pub struct Malformed<'t> {
    /// The request it belongs to, as far as that can be read from it.
    pub id: Option<u32>,
    /// What is wrong.
    pub fault: MalformedKind,
    /// The line, or what there is of it. It may be anything but a message.
    pub text: &'t [u8],
}

/// What is wrong with a damaged message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MalformedKind {
    /// It is not JSON.
    Syntax(SyntaxError),
    /// It is spread over several lines (multi-line JSON): the peer prints it indented.
    SeveralLines,
}

impl Malformed<'_> {
    /// The word that stands where JSON allows none, such as `NaN`, if it is one.
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

/// A reply to no call that is out.
#[derive(Debug, Clone, Copy)]
pub struct UnknownId<'t> {
    /// Its id.
    pub id: Json<'t>,
    /// Whether the id is one of this session's: the reply is late, or the second one.
    pub late: bool,
    /// What it says.
    pub body: Body<'t>,
}

/// A request from the peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerRequest<'t> {
    /// Its id, to be echoed.
    pub id: Json<'t>,
    /// Its method.
    pub method: Text<'t>,
    /// Its parameters; null if there are none.
    pub params: Json<'t>,
}

/// A log line: gevals "Log".
#[derive(Debug, Clone, Copy)]
pub struct Log<'t> {
    params: Json<'t>,
}

impl<'t> Log<'t> {
    /// Reads the notification's `params`.
    pub fn of_params(params: Json<'t>) -> Self {
        Self { params }
    }

    /// The level; words that other loggers use count as the nearest, and what is unknown or missing as `info`.
    pub fn level(&self) -> Level {
        let Some(name) = self.level_name().and_then(|name| name.0.text()) else { return Level::Info };
        let is = |known: &str| name.chars().map(|char| char.to_ascii_lowercase()).eq(known.chars());
        LEVELS.iter().find(|(known, _)| is(known)).map_or(Level::Info, |(_, level)| *level)
    }

    /// The level as the peer said it.
    pub fn level_name(&self) -> Option<Plain<'t>> {
        member(self.params, "level").map(Plain)
    }

    /// The message. Params that are no object are the message themselves.
    pub fn message(&self) -> Plain<'t> {
        match self.params.kind() {
            Kind::Object => Plain(member(self.params, "message").unwrap_or(Json::NULL)),
            _ => Plain(self.params),
        }
    }

    /// The data, whatever it is.
    pub fn data(&self) -> Option<Json<'t>> {
        member(self.params, "data")
    }
}

/// A line that is no message of ours.
#[derive(Debug, Clone, Copy)]
pub struct NonProtocol<'t> {
    /// The line.
    pub text: &'t [u8],
    /// Why it is none.
    pub why: NonProtocolKind,
}

/// Why a line is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NonProtocolKind {
    /// It is not JSON.
    NotJson(SyntaxError),
    /// It is JSON, and not an object.
    NotAnObject,
    /// It is an object without the members of a message.
    NotAMessage,
}

impl fmt::Display for NonProtocolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(error) => write!(f, "not JSON: {error}"),
            Self::NotAnObject => f.write_str("JSON, but not an object"),
            Self::NotAMessage => f.write_str("JSON, but not a JSON-RPC message"),
        }
    }
}

/// In what a message was odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies(u8);

impl Anomalies {
    /// In nothing.
    pub const NONE: Self = Self(0);
    /// It lacks `"jsonrpc":"2.0"` (JSON-RPC 2.0 §5).
    pub const NO_JSONRPC: Self = Self(1);
    /// Its id has the value of ours in another spelling: `"7"` or `7.0` for `7`.
    pub const ID_REFORMATTED: Self = Self(2);
    /// Something else stood on its line.
    pub const EXTRA_TEXT: Self = Self(4);

    /// Both sets.
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
            (Self::EXTRA_TEXT, "something else stands on the message's line"),
        ]
        .into_iter()
        .filter(move |(anomaly, _)| self.contains(*anomaly))
        .map(|(_, text)| text)
    }
}

/// Levels by name.
const LEVELS: [(&str, Level); 11] = [
    ("debug", Level::Debug),
    ("trace", Level::Debug),
    ("verbose", Level::Debug),
    ("info", Level::Info),
    ("warn", Level::Warn),
    ("warning", Level::Warn),
    ("error", Level::Error),
    ("err", Level::Error),
    ("fatal", Level::Error),
    ("critical", Level::Error),
    ("panic", Level::Error),
];

/// How many places of a damaged line are tried as the beginning of a message.
const CANDIDATES: usize = 8;

#[derive(Default)]
struct Spans([Span; 6]);

static ENVELOPE: check::Members = check::Members::of(&[
    Member::new("jsonrpc", 0),
    Member::new("id", 1),
    Member::new("result", 2),
    Member::new("method", 3),
    Member::new("params", 4),
    Member::new("error", 5),
]);

impl Spans {
    fn jsonrpc(&self) -> Span {
        self.0[0]
    }

    fn id(&self) -> Span {
        self.0[1]
    }

    fn result(&self) -> Span {
        self.0[2]
    }

    fn method(&self) -> Span {
        self.0[3]
    }

    fn params(&self) -> Span {
        self.0[4]
    }

    fn error(&self) -> Span {
        self.0[5]
    }
}

fn scan(text: &[u8], spans: &mut Spans) -> Result<(), SyntaxError> {
    check::scan(text, &ENVELOPE, &mut spans.0)
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

/// Where in a text an object with members may begin.
fn objects(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let begins = |at: usize| {
        let rest = text.get(at.wrapping_add(1)..).unwrap_or_default();
        rest.trim_ascii_start().first() == Some(&b'"')
    };
    text.iter().enumerate().filter(|(_, byte)| **byte == b'{').map(|(at, _)| at).filter(move |at| begins(*at))
}

fn has_top_level(text: &[u8], name: &[u8]) -> bool {
    TopLevel::new(text).any(|(key, _)| key == name)
}

/// The number behind a key, a colon before it.
fn value_of_key(text: &[u8]) -> Option<u32> {
    let value = text.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let length = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    str::from_utf8(value.get(..length)?).ok()?.parse().ok()
}

/// The members of the outermost object of a damaged text: what stands between a name's quotes, and everything behind it.
/// Up to the fault this is exact, and a guess from there on.
struct TopLevel<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl<'t> TopLevel<'t> {
    fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied();
        self.at = self.at.wrapping_add(1);
        byte
    }
}

impl<'t> Iterator for TopLevel<'t> {
    type Item = (&'t [u8], &'t [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.take()? {
                b'{' | b'[' => self.depth = self.depth.wrapping_add(1),
                b'}' | b']' if self.depth <= 1 => return None,
                b'}' | b']' => self.depth = self.depth.wrapping_sub(1),
                b'"' => {
                    let start = self.at;
                    loop {
                        match self.take()? {
                            b'\\' => {
                                self.take();
                            }
                            b'"' => break,
                            _ => {}
                        }
                    }
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    if self.depth == 1 && rest.trim_ascii_start().first() == Some(&b':') {
                        return Some((self.text.get(start..self.at.wrapping_sub(1)).unwrap_or_default(), rest));
                    }
                }
                _ => {}
            }
        }
    }
}
