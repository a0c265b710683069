//! An observer between the clients of a server and its extension. It sees each message, and may
//! keep it or send others.
//!
//! Standard input and output have one peer. Over HTTP, each request has a peer of its own, which
//! ends with its response and knows its session.

use std::fmt;
use std::sync::Arc;

/// An observer of the messages between clients and the extension, for
/// [`Stdio::between`](crate::stdio::Stdio::between) and `http::Options::between`.
pub trait Between: fmt::Debug + Send + Sync {
    /// Called once before any message, with the means to let the extension be served anew.
    fn begin(&self, renewal: Renewal);

    /// Called with each message of a peer, a line without its end. Returns how the message goes on.
    fn received(&self, from: &Peer, message: &[u8]) -> Passing;

    /// Called with each reply for a peer, and with each acknowledgement of a request that stays
    /// open. Returns how it goes on. Logs and reports of progress are not shown.
    fn sent(&self, to: &Peer, message: &[u8]) -> Passing;

    /// Called after [`Renewal::ask`], when the extension is served with its current manifest.
    fn renewed(&self) {}

    /// Called when a peer begins to listen for messages to all clients of its session.
    fn listens(&self, peer: &Peer) {
        let _ = peer;
    }

    /// Called when a peer has ended. If `is_cancelled`, its requests without a reply were
    /// cancelled. Otherwise they continue, and nobody waits for them.
    fn gone(&self, peer: &Peer, is_cancelled: bool) {
        let _ = (peer, is_cancelled);
    }

    /// Called when a session has ended.
    fn session_ended(&self, name: &str) {
        let _ = name;
    }
}

/// The way in which a message goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passing {
    /// The message goes on unchanged.
    On,
    /// This message goes on in place of the original one. It has no line end.
    Instead(Vec<u8>),
    /// The message goes no further.
    Kept,
}

/// A client of the server, as an observer sees it.
#[derive(Clone)]
pub struct Peer {
    /// The number of the peer, which no other peer of the server has.
    pub number: u64,
    /// The name of the peer's session, if the transport has names for sessions.
    pub session: Option<Arc<str>>,
    /// Whether the server can send requests to the peer before its reply.
    pub hears_requests: bool,
    wire: Arc<dyn Wire>,
}

impl Peer {
    /// Makes a peer with this number and session. `hears_requests` says whether the server can send
    /// it requests before its reply. `wire` sends the messages.
    pub fn new(number: u64, session: Option<Arc<str>>, hears_requests: bool, wire: Arc<dyn Wire>) -> Self {
        Self { number, session, hears_requests, wire }
    }

    /// Sends a message, without a line end, to the peer. If the peer has ended, the message is
    /// dropped.
    pub fn to_client(&self, message: &[u8]) {
        self.wire.to_client(message);
    }

    /// Sends a message, without a line end, to the extension, as if the peer had sent it.
    pub fn to_extension(&self, message: Vec<u8>) {
        self.wire.to_extension(message);
    }

    /// Ends the wait of the peer for a reply.
    pub fn end(&self) {
        self.wire.end();
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The means to send messages of an observer.
pub trait Wire: Send + Sync {
    /// Sends a message to the peer.
    fn to_client(&self, message: &[u8]);

    /// Sends a message to the extension.
    fn to_extension(&self, message: Vec<u8>);

    /// Ends the wait of the peer: no reply will come.
    fn end(&self) {}
}

/// The means to let an extension be served anew after its manifest has changed.
#[derive(Clone)]
pub struct Renewal {
    ask: Arc<dyn Fn() + Send + Sync>,
    is_awaited: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether the renewal ends the session. If so, no request may be open, and a session that was
    /// begun must be begun again.
    pub ends_session: bool,
}

impl Renewal {
    /// Makes a renewal. [`ask`](Self::ask) calls the function `ask`, which asks the server for it.
    pub fn new(ends_session: bool, ask: impl Fn() + Send + Sync + 'static) -> Self {
        Self { ask: Arc::new(ask), is_awaited: Arc::new(|| false), ends_session }
    }

    /// Sets the function that says whether a client wants to be told of a renewal.
    #[must_use]
    pub fn awaited(self, is_awaited: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { is_awaited: Arc::new(is_awaited), ..self }
    }

    /// Whether a client wants to be told of a renewal.
    pub fn is_awaited(&self) -> bool {
        (self.is_awaited)()
    }

    /// Asks for the renewal. [`Between::renewed`] is called when it is done.
    pub fn ask(&self) {
        (self.ask)();
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").field("ends_session", &self.ends_session).finish_non_exhaustive()
    }
}
