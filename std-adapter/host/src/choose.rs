//! The choice of the protocol by which a target is asked. All commands use it.
//!
//! If the caller names a protocol, it is used. For a URL, the path decides. Any other target is
//! asked once, over the connection that is then used: the answer to the first request tells gevals
//! and MCP apart. A target that answers neither is asked for its description by Amplifier's
//! protocol.
//!
//! A target may answer several protocols. The [need](ProtocolNeed) of the caller says which is
//! preferred. The registry says which parts of a call the chosen protocol can transport: [`Part`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rigline::json::{Json, JsonKind};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::amplifier;
use crate::client::{Client, ClientError, ClientOptions, Part};
use crate::gevals;
use crate::host::wire::{self, Connect};
use crate::host::{self, Connection, EventKind, HostError, Listener, Options, deadline};
use crate::mcp;
use crate::protocol::Protocol;
use crate::target::Target;

/// How long a target has to describe itself that has answered neither of the first protocols.
const DESCRIBE: Duration = Duration::from_secs(3);

/// The feature that a caller needs most. It decides between several protocols that a target speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProtocolNeed {
    /// The context of a call: a configuration, a phase, and time limits that the target keeps. The
    /// order of preference is gevals, MCP, Amplifier.
    #[default]
    Context,
    /// Typed results, descriptions, annotations and progress. The order of preference is MCP,
    /// gevals, Amplifier.
    Types,
    /// Events and an identifier of the session. The order of preference is Amplifier, MCP, gevals.
    Session,
}

/// A connected client, and the protocol that was chosen for it.
pub struct Chosen {
    /// The connected client.
    pub client: Box<dyn Client>,
    /// The chosen protocol.
    pub protocol: &'static Protocol,
}

impl Chosen {
    /// Returns whether calls and sessions can transport this part. It is known once the target has
    /// been described.
    pub fn carries(&self, part: Part) -> bool {
        (self.protocol.carries(part) || self.client.carries_more().contains(&part))
            && !self.client.carries_less().contains(&part)
    }
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chosen").field("protocol", self.protocol).finish_non_exhaustive()
    }
}

/// Connects to a target. `wanted` is the protocol that the caller named. If it is `None`, the
/// protocol is chosen by `need`.
pub async fn connect(
    target: &Target,
    options: ClientOptions,
    wanted: Option<&'static Protocol>,
    need: ProtocolNeed,
) -> Result<Chosen, ClientError> {
    match (wanted, target) {
        (Some(protocol), _) => by(protocol, target, options).await,
        (None, Target::Http(url)) => over_http(url, target, options).await,
        (None, _) => {
            // One dialer for both: it keeps what a connection needs beside the connection, such as the lease of a rig.
            let dialer: Arc<dyn Connect> = wire::dialer(target, &options.host)?.into();
            if need == ProtocolNeed::Session
                && options.host.config.is_none()
                && let Some(client) = try_amplifier(Box::new(Arc::clone(&dialer)), target, &options).await
            {
                return Ok(Chosen { client, protocol: &amplifier::PROTOCOL });
            }
            over(Box::new(dialer), target, options, need).await
        }
    }
}

async fn by(protocol: &'static Protocol, target: &Target, options: ClientOptions) -> Result<Chosen, ClientError> {
    let Some(connect) = protocol.client else {
        return Err(ClientError::usage(format!("{} is no protocol that targets are asked by", protocol.title)));
    };
    Ok(Chosen { client: connect(target, options).await?, protocol })
}

/// A client by Amplifier's protocol, if the target answers that. If something keeps it from answering, what is tried next reports it, and
/// waits for what can be waited for.
async fn try_amplifier(dialer: Box<dyn Connect>, target: &Target, options: &ClientOptions) -> Option<Box<dyn Client>> {
    let mut client = amplifier::client_of(dialer, target, options, None).ok()?;
    let limit = DESCRIBE.min(options.host.start_timeout);
    // A board may be booting when the first line comes.
    let tries = if matches!(target, Target::Serial(_) | Target::Tcp(_)) { 3 } else { 1 };
    for _ in 0..tries {
        match client.describe(None, limit / tries).await {
            Ok(_) => return Some(client),
            Err(error) if error.is_timeout() => {}
            Err(_) => break,
        }
    }
    client.cancel().await;
    None
}

/// The route decides. One that is nobody's own is asked for a description first.
async fn over_http(url: &str, target: &Target, options: ClientOptions) -> Result<Chosen, ClientError> {
    let path = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let segments = path.split('/').skip(1).filter(|segment| !segment.is_empty());
    if segments.clone().any(|segment| segment.eq_ignore_ascii_case(mcp::PROTOCOL.name)) {
        return by(&mcp::PROTOCOL, target, options).await;
    }
    let mut chosen = by(&amplifier::PROTOCOL, target, options.clone()).await?;
    if segments.last() == Some("invoke") {
        return Ok(chosen);
    }
    let described = chosen.client.describe(None, options.host.start_timeout).await;
    let Err(error) = described else { return Ok(chosen) };
    if error.is_timeout() {
        return Err(error);
    }
    let mut other = by(&mcp::PROTOCOL, target, options.clone()).await?;
    match other.client.describe(None, options.host.start_timeout).await {
        Ok(_) => Ok(other),
        Err(_) => Err(error),
    }
}

/// Connects over a connection that `dialer` opens. `target` is the target that it leads to.
pub async fn over(
    dialer: Box<dyn Connect>,
    target: &Target,
    mut options: ClientOptions,
    need: ProtocolNeed,
) -> Result<Chosen, ClientError> {
    let other = Arc::new(Other::default());
    let has_changed = Arc::<AtomicBool>::default();
    let listener = options.host.listener.take().unwrap_or_else(|| Arc::new(|_| {}));
    let listener = mcp::with_logs(listener, Arc::clone(&has_changed));
    let asked = ClientOptions {
        host: Options { listener: Some(other.watch(listener.clone())), ..options.host.clone() },
        ..options.clone()
    };
    options.host.listener = Some(listener);
    let limits = Arc::new(asked.host.clone());
    let connection = host::dial(&*dialer, &limits).await?;
    let until = deadline(Instant::now(), limits.start_timeout);
    let answered = tokio::select! {
        biased;
        answered = begin(&connection, &limits, need, until) => answered,
        () = other.seen() => Err(Unknown::Other(None)),
    };
    other.is_asked.store(false, Ordering::Relaxed);
    match answered {
        Ok(Answered::Gevals(manifest)) => {
            let host = host::Host::on(dialer, limits, connection, *manifest);
            let client = gevals::client_of(host, &asked)?;
            Ok(Chosen { client, protocol: &gevals::PROTOCOL })
        }
        Ok(Answered::Mcp(server)) => {
            let client = mcp::client_of(dialer, limits, connection, server, has_changed).await?;
            Ok(Chosen { client, protocol: &mcp::PROTOCOL })
        }
        Err(Unknown::Other(error)) => {
            // It reads another protocol. All that it was asked has been refused, so that nothing is on the way that would be taken for a reply
            // of that; on a port that others use, too, there may be.
            let open = if connection.is_shared() {
                host::hang_up(connection).await;
                None
            } else {
                Some(connection)
            };
            let mut client = amplifier::client_of(dialer, target, &options, open)?;
            let limit = DESCRIBE.min(options.host.start_timeout);
            match (client.describe(None, limit).await, error) {
                (Ok(_), _) => Ok(Chosen { client, protocol: &amplifier::PROTOCOL }),
                (Err(error), None) => Err(error),
                (Err(_), Some(error)) => Err(error.into()),
            }
        }
        Err(Unknown::Error(error)) => {
            host::hang_up(connection).await;
            Err(gevals::connect_error(error, options.host.config.is_some()))
        }
    }
}

enum Answered {
    Gevals(Box<host::Manifest>),
    Mcp(String),
}

enum Unknown {
    /// The target speaks another protocol than the first ones tried. The error is its answer to the
    /// first request, if it was one.
    Other(Option<HostError>),
    Error(HostError),
}

/// Opens a session by the protocol that is preferred, or else by the other one.
async fn begin(
    connection: &Connection,
    options: &Options,
    need: ProtocolNeed,
    until: Instant,
) -> Result<Answered, Unknown> {
    let first = match need {
        ProtocolNeed::Context => begin_gevals(connection, options, until).await,
        ProtocolNeed::Types | ProtocolNeed::Session => begin_mcp(connection, options, until).await,
    };
    let error = match first {
        Ok(answered) => return Ok(answered),
        Err(error) => error,
    };
    match &error {
        // Codes are words in Amplifier's protocol.
        HostError::Refused { error: refused, .. } if refused.code.is_none() => return Err(Unknown::Other(Some(error))),
        HostError::Refused { .. } if need == ProtocolNeed::Context && options.config.is_some() => {
            return Err(Unknown::Error(error));
        }
        // JSON-RPC's own codes: it does not know the request, or its parameters. To a server of gevals, the version of MCP is a wrong one,
        // for which it has a code of its own.
        HostError::Refused { error: refused, .. }
            if need != ProtocolNeed::Context || refused.code.is_some_and(|code| code <= -32600) => {}
        HostError::BadReply { .. } => {}
        _ => return Err(Unknown::Error(error)),
    }
    let second = match need {
        ProtocolNeed::Context => begin_mcp(connection, options, until).await,
        ProtocolNeed::Types | ProtocolNeed::Session => begin_gevals(connection, options, until).await,
    };
    match second {
        Ok(answered) => Ok(answered),
        Err(HostError::Refused { error: refused, .. }) if refused.code.is_none() => Err(Unknown::Other(Some(error))),
        // What the preferred one is answered says more, unless it was never meant for it.
        Err(other) => Err(Unknown::Error(if need == ProtocolNeed::Context { error } else { other })),
    }
}

async fn begin_gevals(connection: &Connection, options: &Options, until: Instant) -> Result<Answered, HostError> {
    let manifest = host::begin(connection, options, until).await?;
    match &manifest.raw {
        // A server of MCP that takes what it gets.
        raw if raw.get("serverInfo").is_none() => Ok(Answered::Gevals(Box::new(manifest))),
        raw if raw["protocolVersion"].as_str().is_some_and(|version| version.len() == 10) => {
            Ok(Answered::Mcp(manifest.text))
        }
        _ => Err(connection.bad_reply("a server's description in the answer to initialize")),
    }
}

async fn begin_mcp(connection: &Connection, options: &Options, until: Instant) -> Result<Answered, HostError> {
    let text = mcp::initialize(connection, options, until).await?;
    if mcp::describes_server(&text) {
        return Ok(Answered::Mcp(text));
    }
    // A server of gevals that takes any version: its session has begun, and it may not begin a second one. A configuration has not reached
    // it yet.
    let is_manifest = Json::parse(text.as_bytes())
        .is_ok_and(|json| json.get("operations").is_some_and(|operations| operations.kind() == JsonKind::Object));
    if is_manifest && options.config.is_none() {
        return connection.manifest(&text).map(|manifest| Answered::Gevals(Box::new(manifest)));
    }
    Err(connection.bad_reply("the answer to initialize is not valid MCP"))
}

/// Notices a reply of another protocol while the first request is out.
#[derive(Default)]
struct Other {
    seen: Notify,
    is_asked: AtomicBool,
}

impl Other {
    /// A listener that does not get such replies.
    fn watch(self: &Arc<Self>, listener: Listener) -> Listener {
        self.is_asked.store(true, Ordering::Relaxed);
        let this = Arc::clone(self);
        Arc::new(move |event| {
            if let EventKind::Skipped { text, .. } = &event.kind
                && this.is_asked.load(Ordering::Relaxed)
                && Json::parse(text.as_bytes())
                    .is_ok_and(|json| json.get("ok").is_some_and(|ok| ok.bool() == Some(false)))
            {
                return this.seen.notify_one();
            }
            listener(event);
        })
    }

    async fn seen(&self) {
        self.seen.notified().await;
    }
}
