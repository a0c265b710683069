//! Somebody between the clients of a server and its extension, who sees each message, and may keep it or send others.
//!
//! Standard input and output have one peer. Over HTTP each request is of a peer of its own, which ends with its response, and knows its session.

use std::fmt;
use std::sync::Arc;

/// An observer of the messages between clients and the extension: see [`Stdio::between`](crate::stdio::Stdio::between) and `http::Options::between`.
pub trait Between: fmt::Debug + Send + Sync {
    /// The first call, before any message: how the extension is served anew.
    fn begin(&self, renewal: Renewal);

    /// A message of a peer: a line without its end.
    fn received(&self, from: &Peer, message: &[u8]) -> Passing;

    /// A reply for a peer, or the acknowledgement of a request that stays open. Logs and reports of progress go to the peer as they are.
    fn sent(&self, to: &Peer, message: &[u8]) -> Passing;

    /// The extension is served with its manifest as it is now, as [`Renewal::ask`] has asked for.
    fn renewed(&self) {}

    /// A peer listens for what concerns all clients of its session.
    fn listens(&self, peer: &Peer) {
        let _ = peer;
    }

    /// A peer has ended. What it has asked for and has no reply was cancelled with it, or goes on without anybody who waits for it.
    fn gone(&self, peer: &Peer, is_cancelled: bool) {
        let _ = (peer, is_cancelled);
    }

    /// A session has ended.
    fn session_ended(&self, name: &str) {
        let _ = name;
    }
}

/// The treatment of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passing {
    /// It goes on as it is.
    On,
    /// This goes on in its place, without the end of the line.
    Instead(Vec<u8>),
    /// It goes no further.
    Kept,
}

/// The other end of a wire.
#[derive(Clone)]
pub struct Peer {
    /// Distinguishes it from all other peers of the server.
    pub number: u64,
    /// The name of its session, where the transport has names for them.
    pub session: Option<Arc<str>>,
    /// Whether it can be sent requests before its reply.
    pub hears_requests: bool,
    wire: Arc<dyn Wire>,
}

impl Peer {
    /// A peer that is reached in this way.
    pub fn new(number: u64, session: Option<Arc<str>>, hears_requests: bool, wire: Arc<dyn Wire>) -> Self {
        Self { number, session, hears_requests, wire }
    }

    /// Sends a message, without the end of a line, to the peer. One that is gone gets none.
    pub fn to_client(&self, message: &[u8]) {
        self.wire.to_client(message);
    }

    /// Sends a message, without the end of a line, to the extension, as if the peer had sent it.
    pub fn to_extension(&self, message: Vec<u8>) {
        self.wire.to_extension(message);
    }

    /// Lets the peer go without a reply.
    pub fn end(&self) {
        self.wire.end();
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("number", &self.number).finish_non_exhaustive()
    }
}

/// How messages are sent that nobody else has sent.
pub trait Wire: Send + Sync {
    /// To the peer.
    fn to_client(&self, message: &[u8]);

    /// To the extension.
    fn to_extension(&self, message: Vec<u8>);

    /// No reply will come.
    fn end(&self) {}
}

/// How an extension is served anew whose manifest is another one.
#[derive(Clone)]
pub struct Renewal {
    ask: Arc<dyn Fn() + Send + Sync>,
    /// Whether it ends the session: then no request may be open, and what was begun of the session is to be begun again.
    pub ends_session: bool,
}

impl Renewal {
    /// A renewal that is asked for in this way.
    pub fn new(ends_session: bool, ask: impl Fn() + Send + Sync + 'static) -> Self {
        Self { ask: Arc::new(ask), ends_session }
    }

    /// Asks for it. [`Between::renewed`] says that it is done.
    pub fn ask(&self) {
        (self.ask)();
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").field("ends_session", &self.ends_session).finish_non_exhaustive()
    }
}
