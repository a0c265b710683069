//! An extension behind HTTP, for hosts of Amplifier and namel3ss, and for clients of MCP.
//!
//! | protocol | requests that are answered |
//! |---|---|
//! | Amplifier | `POST /health`, `POST /describe`, `POST /invoke` (Amplifier's protocol text §2) |
//! | namel3ss | `POST` to the [`path`](Options::path) of the user's choice, and `POST /capabilities/handshake` |
//! | MCP | `POST /mcp`, and `DELETE /mcp` of a session (Streamable HTTP); its statuses are those of MCP |
//!
//! The body is one JSON text on any number of lines. For `/health` and `/describe` it may be empty.
//! The `Content-Type` does not matter, since real clients send none or that of a form (`curl -d`),
//! unless it names a character set other than UTF-8. Such a character set, or a `Content-Encoding`,
//! is refused with 415. The reply is one JSON text and a newline.
//!
//! # Statuses
//! A host does not read the body of a response unless its status is 2xx. Replies of a module or a
//! tool therefore have status 200, also for failures (`ok:false`).
//!
//! | status | when |
//! |---|---|
//! | 200 | the request was JSON: its reply, or an error reply if it is not a valid request |
//! | 400 | the body is not JSON, or was cut; `Content-Length` and `Transfer-Encoding` both; no `Host` in HTTP/1.1 |
//! | 401, 403 | no or another bearer token; another user of this machine; a request from a web page of another origin, or to a name that is not ours |
//! | 404, 405 | another path, another method |
//! | 408 | the body did not come within [`Options::read_timeout`] |
//! | 413, 415 | longer than [`Options::request_limit`]; an encoding that is not taken |
//! | 500 | the handler panicked; the server stops |
//! | 503 | the queue is full |
//!
//! # Who may ask
//! Web pages can make a browser send requests to any address, also to loopback ones, and can even
//! read the replies by DNS rebinding. A request whose `Origin` is not the server itself is
//! therefore refused. A request whose `Host` is a domain name is refused, unless the name is
//! `localhost`, has no dot (such a name cannot be registered), or was
//! [allowed](Options::allow_host). Programs of other users of this machine are refused if the
//! system reports the user of a connection, unless they are [allowed](Options::any_user). The
//! [token](Options::token) protects against all other programs.
//!
//! # Example
//! ```no_run
//! use rigline::{Context, Failure, Outcome};
//! use rigline_std::{http::{Options, HttpServer}, net::Token};
//!
//! struct Greeter;
//!
//! #[rigline::extension(name = "greeter", version = "1.0.0", description = "Says hello")]
//! impl Greeter {
//!     /// Say hello.
//!     #[operation]
//!     fn hello(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
//!         cx.done("hello")
//!     }
//! }
//!
//! fn main() -> std::io::Result<()> {
//!     let options = Options::amplifier().token(Token::from_file("token.txt")?).queue(64);
//!     let server = HttpServer::bind("127.0.0.1:0", options)?;
//!     println!("http://{}", server.address()?);
//!     server.run(|_| Greeter)
//! }
//! ```
//!
//! # How it runs
//! The extension stays on its own thread, and takes one request at a time from a queue of [bounded
//! length](Options::queue). Within a connection or session, requests run in their order;
//! connections and sessions take turns. Requests that run no operation are answered at once.
//!
//! A time limit counts from the arrival of the request, and the extension gets the rest of it. A
//! call whose limit has passed before its turn gets an answer that names the running call.
//!
//! If the client of a call disconnects before the call has begun, the call is not begun. A call
//! that runs is finished, unless MCP has it cancelled. On Linux, a client on this machine that has
//! closed only its sending half is known to wait for its answer. Elsewhere such a client counts as
//! disconnected if its call had to wait.
//!
//! When the server stops, it answers the requests that it has received first.

use std::future::{Future, ready};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension as Extend, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rigline::exchange::LEAST_REPLY;
use rigline::protocol::{self, Protocol};
use rigline::{Extension, Manifest};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use self::body::Fault;
use self::guard::{Guard, TurnedAway};
use crate::between::Between;
use crate::net::{Access, Arrival, Door, ListenAddress, Listeners};
use crate::queue::{Asker, Line, Queue, QueueClient, Received, RemoteExtension, Settings};
use crate::signals::Signals;
use crate::stderr::complain;

use crate::net::Token;
pub use crate::queue::ServerInfo;

mod body;
#[doc(hidden)]
pub mod guard;
#[doc(hidden)]
pub mod stream;

/// A protocol over HTTP: its paths, and the form of its errors.
///
/// ```
/// use rigline::protocol::AMPLIFIER;
/// use rigline_std::http::{Options, Route, Routes};
///
/// static ROUTES: Routes = Routes::new(
///     AMPLIFIER,
///     &[Route::fixed("/alive", "{}"), Route::request("/call")],
///     |status, text| format!("{{\"ok\":false,\"error\":{{\"code\":\"bad_request\",\"message\":\"{status}: {}\"}}}}", text.escape_default()),
/// );
/// let options = Options::new(&ROUTES);
/// ```
#[derive(Debug)]
pub struct Routes {
    protocol: &'static Protocol,
    routes: &'static [Route],
    refusal: fn(u16, &str) -> String,
}

/// A future that a connection's task runs.
pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Routes {
    /// The paths that answer `POST`, for requests in this protocol.
    ///
    /// `refusal` writes the body of an error of HTTP, such as status 413, as JSON text.
    pub const fn new(
        protocol: &'static Protocol,
        routes: &'static [Route],
        refusal: fn(status: u16, text: &str) -> String,
    ) -> Self {
        Self { protocol, routes, refusal }
    }

    /// The path of all requests, if there is only one path and it is fixed; otherwise none.
    pub fn only_path(&self) -> Option<&'static str> {
        match self.routes {
            [route] => route.path,
            _ => None,
        }
    }

    /// Whether the user chooses the path of requests ([`Options::path`]).
    pub fn has_free_path(&self) -> bool {
        self.routes.iter().any(|route| route.path.is_none())
    }
}

/// A path, and the way in which its requests are answered.
#[derive(Debug)]
pub struct Route {
    /// The path; none is [`Options::path`].
    path: Option<&'static str>,
    endpoint: Endpoint,
}

impl Route {
    /// A path whose requests the extension answers. The body is the request.
    pub const fn request(path: &'static str) -> Self {
        Self::new(Some(path), Endpoint::Request)
    }

    /// A path for which the extension answers this line, which has no newline. The body may be
    /// empty.
    pub const fn line(path: &'static str, line: &'static str) -> Self {
        Self::new(Some(path), Endpoint::Line(line))
    }

    /// A path that the server answers with this JSON text at once, even while a call runs, as long
    /// as the extension lives. The body may be empty.
    pub const fn fixed(path: &'static str, reply: &'static str) -> Self {
        Self::new(Some(path), Endpoint::Fixed(reply))
    }

    /// A path that the server answers with the result of a function. The body must be JSON.
    pub const fn answer(path: &'static str, answer: fn(body: &[u8], manifest: &Manifest) -> String) -> Self {
        Self::new(Some(path), Endpoint::Answer(answer))
    }

    pub(crate) const fn new(path: Option<&'static str>, endpoint: Endpoint) -> Self {
        Self { path, endpoint }
    }
}

/// How a path is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Endpoint {
    Fixed(&'static str),
    Line(&'static str),
    Request,
    Answer(fn(&[u8], &Manifest) -> String),
    /// By a function, over the [queue] before the extension.
    Function(fn(Arc<Service>, QueueClient, Request) -> Pending<Response>),
}

/// The options of a [`HttpServer`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    /// Those of the protocols that are served. The first is that of what no path says.
    routes: Vec<&'static Routes>,
    path: String,
    request_limit: usize,
    reply_limit: usize,
    queue: usize,
    memory: usize,
    connections: usize,
    read_timeout: Duration,
    stop_timeout: Duration,
    requires: bool,
    pub(crate) keeps_outputs: bool,
    pub(crate) idle: Option<Duration>,
    guard: Guard,
    between: Option<Arc<dyn Between>>,
    remote: Option<Arc<dyn RemoteExtension>>,
}

/// The default of [`Options::idle`]: ten minutes without a request, after which the outputs are
/// switched off, in protocols with [`with_safe_end`](Protocol::with_safe_end) (MCP).
pub const IDLE: Duration = Duration::from_secs(600);

impl Options {
    /// Options for a server for the hosts of one protocol.
    pub fn new(routes: &'static Routes) -> Self {
        Self {
            routes: vec![routes],
            path: "/tools".into(),
            request_limit: 8 << 20,
            reply_limit: 8 << 20,
            queue: 512,
            memory: 256 << 20,
            connections: 512,
            read_timeout: Duration::from_secs(10),
            stop_timeout: Duration::from_secs(35),
            requires: true,
            keeps_outputs: false,
            idle: Some(IDLE),
            guard: Guard::default(),
            between: None,
            remote: None,
        }
    }

    /// Adds another protocol, at its own paths. Begin with the protocol that has
    /// [`with_safe_end`](Protocol::with_safe_end) (MCP), because [`idle`](Self::idle) concerns only
    /// the first one.
    pub fn and(mut self, routes: &'static Routes) -> Self {
        self.routes.push(routes);
        self
    }

    /// Sets the path of requests, for protocols that leave it to the user [default: `/tools`].
    pub fn path(self, path: impl Into<String>) -> Self {
        Self { path: path.into(), ..self }
    }

    /// Sets the greatest length of a body, in bytes [default: 8 MiB].
    pub fn request_limit(self, bytes: usize) -> Self {
        Self { request_limit: bytes.min(u32::MAX as usize - 1), ..self }
    }

    /// Sets the greatest length of a reply, in bytes [default: 8 MiB]. It is at least that of
    /// [`LEAST_REPLY`]. A longer reply is replaced by an error of the protocol.
    pub fn reply_limit(self, bytes: usize) -> Self {
        Self { reply_limit: bytes.max(LEAST_REPLY - 1), ..self }
    }

    /// Sets the number of requests that may wait [default: 512, at least 1]. Further ones are
    /// refused with status 503. A connection has one request at a time, so this limit matters only
    /// if it is below that of [connections](Self::connections).
    pub fn queue(self, requests: usize) -> Self {
        Self { queue: requests.max(1), ..self }
    }

    /// Sets the limit on the memory of all bodies together, in bytes [default: 256 MiB]. Requests
    /// beyond it are refused with status 503.
    pub fn memory(self, bytes: usize) -> Self {
        Self { memory: bytes, ..self }
    }

    /// Sets the number of connections that may be open at once [default: 512]. Further ones wait
    /// for up to 10 s, and are then refused with status 503. Connections of users that may not ask
    /// do not count. Another machine, or another user of this one, may have at most half of the
    /// connections.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// Sets the time limit for the head of a request, for its body, for an idle connection, and for
    /// a client that does not read its reply [default: 10 s each].
    pub fn read_timeout(self, timeout: Duration) -> Self {
        Self { read_timeout: timeout, ..self }
    }

    /// Sets the time limit of running calls when the server stops [default: 35 s].
    pub fn stop_timeout(self, timeout: Duration) -> Self {
        Self { stop_timeout: timeout, ..self }
    }

    /// Sets whether to check before each call that the commands in the manifest's `requires` exist
    /// [default: yes].
    pub fn check_requires(self, check: bool) -> Self {
        Self { requires: check, ..self }
    }

    /// Sets whether outputs stay on when the last session ends, when no client has sent a request
    /// for long, and when the server stops [default: no]. After a call that is cancelled, the safe
    /// state runs nevertheless.
    pub fn keep_outputs(self, keep: bool) -> Self {
        Self { keeps_outputs: keep, ..self }
    }

    /// Sets the time without a request after which the safe state runs, in MCP [default: [`IDLE`]];
    /// with none it never runs for that reason. The next reply to a client that has switched
    /// something on says so.
    pub fn idle(self, idle: Option<Duration>) -> Self {
        Self { idle, ..self }
    }

    /// Answers only requests with `Authorization: Bearer TOKEN`.
    pub fn token(mut self, token: Token) -> Self {
        self.guard.access.token = Some(token);
        self
    }

    /// Adds an observer of each message between MCP's clients and the extension.
    #[doc(hidden)]
    pub fn between(self, between: Arc<dyn Between>) -> Self {
        Self { between: Some(between), ..self }
    }

    /// Also answers programs of other users of this machine.
    pub fn any_user(mut self) -> Self {
        self.guard.access.any_user = true;
        self
    }

    /// Also answers requests to this host name, without a port, such as `rig.example.org` in the
    /// header `Host`.
    pub fn allow_host(mut self, name: impl Into<String>) -> Self {
        self.guard.hosts.push(name.into().to_ascii_lowercase());
        self
    }

    fn all_routes(&self) -> impl Iterator<Item = &'static Route> {
        self.routes.iter().flat_map(|routes| routes.routes)
    }

    fn path_of<'o>(&'o self, route: &Route) -> &'o str {
        route.path.unwrap_or(&self.path)
    }

    /// Also answers web pages of this origin, such as `https://bench.example.org`, and lets them
    /// read the answers.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.guard.origins.push(origin.into().to_ascii_lowercase());
        self
    }
}

/// A server that listens already, and answers when it [runs](Self::run).
#[derive(Debug)]
pub struct HttpServer {
    listeners: Vec<TcpListener>,
    options: Options,
}

impl HttpServer {
    /// Listens at `address`. With port 0 it uses a free port, which [`address`](Self::address)
    /// returns. If `address` means several addresses, it listens on the first that it can use. To
    /// listen on both loopback addresses, use [`bind_all`](Self::bind_all).
    ///
    /// # Errors
    /// No address can be used, or [`Options::path`] is not a possible path.
    pub fn bind(address: impl ToSocketAddrs, options: Options) -> io::Result<Self> {
        check_path(&options)?;
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listeners: vec![listener], options })
    }

    /// Listens on all addresses of `address`. `localhost` means both loopback addresses.
    ///
    /// # Errors
    /// The addresses cannot be used, or [`Options::path`] is not a possible path.
    pub fn bind_all(address: &ListenAddress, options: Options) -> io::Result<Self> {
        check_path(&options)?;
        Ok(Self { listeners: address.bind()?, options })
    }

    /// Declares that the extension stands in for one that comes and goes: `remote` is looked for
    /// when a request asks for an operation that is not known.
    #[doc(hidden)]
    #[must_use]
    pub fn remote(mut self, remote: Arc<dyn RemoteExtension>) -> Self {
        self.options.remote = Some(remote);
        self
    }

    /// The address that the server listens on; the first one if there are several.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listeners.first().ok_or(io::ErrorKind::NotFound)?.local_addr()
    }

    /// All addresses that the server listens on.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves the extension that `make` returns, until SIGTERM, SIGINT or SIGHUP (elsewhere
    /// Ctrl-C). Running calls are then finished, unless a second signal comes.
    ///
    /// # Errors
    /// The handler panicked, or no thread or runtime can be started.
    pub fn run<E: Extension>(self, make: impl FnOnce(&ServerInfo) -> E + Send + 'static) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut signals = Signals::new()?;
            let (count, mut counted) = watch::channel(0);
            tokio::spawn(async move {
                for number in 1..=2 {
                    signals.next().await;
                    count.send_replace(number);
                }
                std::future::pending::<()>().await;
            });
            let mut again = counted.clone();
            let stop = async move { drop(counted.wait_for(|count| *count >= 1).await) };
            let hurry = async move { drop(again.wait_for(|count| *count >= 2).await) };
            tokio::select! {
                result = self.run_until(make, stop) => result,
                () = hurry => Ok(()),
            }
        })
    }

    /// Serves the extension that `make` returns, on its own thread, until `stop` is ready. Call it
    /// in a tokio runtime.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until<E: Extension>(
        self,
        make: impl FnOnce(&ServerInfo) -> E + Send + 'static,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let Self { listeners, options } = self;
        let listeners = Listeners::new(listeners)?;
        let settings = Settings {
            protocols: options
                .routes
                .iter()
                .map(|routes| routes.protocol)
                .chain(protocol::ALL.iter().copied())
                .collect(),
            is_pinned: true,
            limits: (options.request_limit, options.reply_limit),
            most: options.queue,
            keeps_outputs: options.keeps_outputs,
            idle: options.idle,
            config: None,
            remote: options.remote.clone(),
            changes: |_| None,
        };
        let (queue, mut ended) = Queue::start(settings, options.requires, make).await?;
        if let Some(between) = &options.between {
            queue.stand_between(between.clone());
        }
        let (queue, options) = (Arc::new(queue), Arc::new(options));
        let memory = Arc::new(Semaphore::new(options.memory >> 10));
        let services = options.routes.iter().map(|routes| {
            let (queue, options, memory) = (Arc::clone(&queue), Arc::clone(&options), Arc::clone(&memory));
            Arc::new(Service { options, routes, queue, memory })
        });
        let services: Vec<Arc<Service>> = services.collect();
        let acceptor = HttpAcceptor {
            access: options.guard.access.clone(),
            read_timeout: options.read_timeout,
            connections: options.connections,
        };
        let ending = async {
            tokio::select! {
                () = stop => Ok(()),
                result = &mut ended => result.unwrap_or(Ok(())),
            }
        };
        let (result, finish) = acceptor.serve(listeners, router(&services), ending).await;
        queue.end_listeners();
        let _ = tokio::time::timeout(options.stop_timeout, finish).await;
        queue.close();
        if result.is_ok() {
            return tokio::time::timeout(options.stop_timeout, ended)
                .await
                .map_or(Ok(()), |ended| ended.unwrap_or(Ok(())));
        }
        result
    }
}

/// How long a connection waits for a place, before it is told that there is none.
const WAIT: Duration = Duration::from_secs(10);
/// How long a connection that may not ask, or has no place, is open to be told so.
const TELL: Duration = Duration::from_secs(2);

/// An acceptor of HTTP connections, with its limits.
#[doc(hidden)]
pub struct HttpAcceptor {
    /// The rules for who may connect.
    pub access: Access,
    /// The time limit for the head of a request, for an idle connection, and for a client that does
    /// not read its reply: [`Options::read_timeout`].
    pub read_timeout: Duration,
    /// The number of connections of [`Options::connections`].
    pub connections: usize,
}

impl HttpAcceptor {
    /// Answers every client that connects, until `stop` is ready. Returns the output of `stop`, and
    /// a future that ends the connections that are left.
    pub async fn serve<T>(
        &self,
        listeners: Listeners,
        router: Router,
        stop: impl Future<Output = T>,
    ) -> (T, impl Future<Output = ()>) {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.read_timeout).max_header_size(64 << 10);
        builder.half_close(true);
        let (open, _) = watch::channel(true);
        let door = Door::new(self.access.clone(), self.connections);
        let mut is_full = false;
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listeners.accept() => accepted,
                end = &mut stop => {
                    let finish = async move {
                        open.send_replace(false);
                        open.closed().await;
                    };
                    return (end, finish);
                }
            };
            let Ok(stream) = accepted else {
                // No descriptors left, or a peer that is gone already: others will go too.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let arrival = door.arrive(&stream, true);
            if !std::mem::replace(&mut is_full, matches!(arrival, Arrival::Waits(_))) && is_full {
                complain(format_args!("{} connections are open already; others wait", self.connections));
            }
            if matches!(arrival, Arrival::Dropped) {
                continue;
            }
            let (builder, router, read_timeout) = (builder.clone(), router.clone(), self.read_timeout);
            let mut is_open = open.subscribe();
            tokio::spawn(async move {
                let (place, turned_away) = match arrival {
                    Arrival::Waits(waiting) => tokio::select! {
                        place = timeout(WAIT, waiting.place()) => match place {
                            Ok(Ok(place)) => (Some(Arrival::Admitted(place)), None),
                            _ => (None, Some(TurnedAway::too_many("all connections are in use".to_owned()))),
                        },
                        _ = is_open.wait_for(|is_open| !is_open) => return,
                    },
                    Arrival::Refused(ref text, _) => {
                        let turned_away = TurnedAway::refused(text.clone());
                        (Some(arrival), Some(turned_away))
                    }
                    Arrival::Full(ref text, _) => {
                        let turned_away = TurnedAway::too_many(text.clone());
                        (Some(arrival), Some(turned_away))
                    }
                    admitted => (Some(admitted), None),
                };
                let longest = if turned_away.is_some() { TELL } else { Duration::MAX };
                let ambiguous = Arc::new(AtomicBool::new(false));
                let io = TokioIo::new(stream::Watched::new(stream.clone(), read_timeout, ambiguous.clone()));
                let (router, client) = (TowerToHyperService::new(router), QueueClient::of(stream));
                // Put into each request here: a layer of the router for each would cost several times as much.
                let service = service_fn(move |mut request: hyper::Request<Incoming>| {
                    let facts = request.extensions_mut();
                    facts.insert(client.clone());
                    if ambiguous.load(Ordering::Acquire) {
                        facts.insert(stream::Ambiguous);
                    }
                    if let Some(turned_away) = &turned_away {
                        facts.insert(turned_away.clone());
                    }
                    router.call(request)
                });
                let connection = builder.serve_connection(io, service).with_upgrades();
                let mut connection = pin!(connection);
                // What goes wrong with a connection is its peer's to see.
                tokio::select! {
                    _ = connection.as_mut() => {}
                    () = tokio::time::sleep(longest) => {}
                    () = async { drop(is_open.wait_for(|is_open| !is_open).await) } => {
                        connection.as_mut().graceful_shutdown();
                        let _ = connection.await;
                    }
                }
                drop(place);
                drop(is_open);
            });
        }
    }
}

/// Refuses paths for tools that cannot be.
fn check_path(options: &Options) -> io::Result<()> {
    let path = &options.path;
    let is_of_url = path.is_ascii() && path.parse::<PathAndQuery>().is_ok();
    let is_taken = options.all_routes().any(|route| route.path == Some(path));
    if !path.starts_with('/') || path.contains(['{', '}', '?', '#']) || !is_of_url || is_taken {
        let text = format!(
            "{path:?} cannot be the path of tools: it must begin with a slash, be a valid path of a URL, and differ from the handshake's"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// State that all connections share, for one protocol.
pub(crate) struct Service {
    options: Arc<Options>,
    routes: &'static Routes,
    queue: Arc<Queue>,
    /// The memory that is left for bodies, in KiB.
    memory: Arc<Semaphore>,
}

fn router(services: &[Arc<Service>]) -> Router {
    // A `*` or `:` in a path of the user's choice means nothing else.
    let router = services.iter().map(routes_of).fold(Router::new().without_v07_checks(), Router::merge);
    let Some(first) = services.first() else { return router };
    // What is behind no path is answered by the first protocol.
    router.fallback_service(Router::new().fallback(not_found).with_state(first.clone()))
}

/// The paths of one protocol. Each handler asks the guard itself: a layer of the router costs as much as all of the queue.
fn routes_of(service: &Arc<Service>) -> Router {
    let mut router = Router::new().without_v07_checks();
    for route in service.routes.routes {
        let endpoint = route.endpoint;
        let answer = move |State(service): State<Arc<Service>>, client: Extend<QueueClient>, request: Request| async move {
            let answered = |request| service.answer(endpoint, client.0, request);
            service.options.guard.answer(request, answered, |status, text| service.refuse(status, text)).await
        };
        let methods = match endpoint {
            // Only it knows what can be deleted.
            Endpoint::Function(_) => post(answer).delete(answer).get(answer),
            _ => post(answer),
        };
        router = router.route(service.options.path_of(route), methods.fallback(not_allowed));
    }
    router.with_state(service.clone())
}

async fn not_found(State(service): State<Arc<Service>>, request: Request) -> Response {
    let options = &service.options;
    let answered = |request: Request| {
        let paths: Vec<&str> = options.all_routes().map(|route| options.path_of(route)).collect();
        let (path, paths) = (request.uri().path(), paths.join(", "));
        ready(service.refuse(StatusCode::NOT_FOUND, &format!("there is nothing at {path}; expected one of: {paths}")))
    };
    options.guard.answer(request, answered, |status, text| service.refuse(status, text)).await
}

async fn not_allowed(State(service): State<Arc<Service>>, request: Request) -> Response {
    let answered = |_| ready(service.not_allowed());
    service.options.guard.answer(request, answered, |status, text| service.refuse(status, text)).await
}

impl Service {
    pub(crate) fn not_allowed(&self) -> Response {
        let refusal = self.refuse(StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed here");
        ([(header::ALLOW, "POST")], refusal).into_response()
    }

    /// As [`Options::reply_limit`].
    pub(crate) fn reply_limit(&self) -> usize {
        self.options.reply_limit
    }

    /// Returns the observer between the clients and the extension.
    pub(crate) fn between(&self) -> Option<&Arc<dyn Between>> {
        self.options.between.as_ref()
    }

    /// The queue before the extension.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    async fn answer(self: &Arc<Self>, endpoint: Endpoint, client: QueueClient, request: Request) -> Response {
        match endpoint {
            Endpoint::Function(answer) => answer(self.clone(), client, request).await,
            Endpoint::Fixed(reply) => self.fixed(reply, request).await,
            Endpoint::Line(line) => self.line(line, client, request).await,
            Endpoint::Request => match self.body(request).await {
                Ok((text, _permit)) => self.ask(text, client).await,
                Err(fault) => self.fault(&fault),
            },
            Endpoint::Answer(answer) => match self.body(request).await {
                Ok((text, _permit)) => match self.queue.reach_by(self.routes.protocol, &text).await {
                    Ok(()) => json(StatusCode::OK, answer(&text, self.queue.manifest())),
                    Err(refusal) => answered(refusal),
                },
                Err(fault) => self.fault(&fault),
            },
        }
    }

    /// Answers at once, even while a call runs.
    async fn fixed(&self, reply: &'static str, request: Request) -> Response {
        match self.optional_body(request).await {
            Ok(()) if self.queue.is_alive() => json(StatusCode::OK, format!("{reply}\n")),
            Ok(()) => self.refuse(StatusCode::INTERNAL_SERVER_ERROR, "the extension has ended"),
            Err(fault) => self.fault(&fault),
        }
    }

    pub(crate) async fn body(&self, request: Request) -> Result<(Vec<u8>, body::Permit), Fault> {
        let text = body::read(request, &self.options, &self.memory).await?;
        if text.0.is_empty() {
            return Err(Fault::NotJson("the body is empty".into()));
        }
        body::check(&text.0)?;
        Ok(text)
    }

    /// The extension answers a request whose path says everything.
    async fn line(&self, line: &str, client: QueueClient, request: Request) -> Response {
        match self.optional_body(request).await {
            Ok(()) => self.ask(line.into(), client).await,
            Err(fault) => self.fault(&fault),
        }
    }

    /// Reads a body that says nothing.
    async fn optional_body(&self, request: Request) -> Result<(), Fault> {
        let (text, _) = body::read(request, &self.options, &self.memory).await?;
        if text.is_empty() { Ok(()) } else { body::check(&text) }
    }

    async fn ask(&self, message: Vec<u8>, client: QueueClient) -> Response {
        let asker =
            Asker { client: &client, session: None, cancels: false, wants_logs: false, identity: None, arrived: None };
        if let Err(refusal) = self.queue.reach_by(self.routes.protocol, &message).await {
            return answered(refusal);
        }
        let reply = match self.queue.receive_by(Some(self.routes.protocol), message, &asker) {
            Received::Reply(reply) | Received::StaysOpen(reply) => reply,
            Received::Full => return self.refuse_overload(),
            // It was JSON, and no request: an answer, such as a mirror would send.
            Received::Silent => return self.refuse(StatusCode::OK, "the body is not a request"),
            Received::Gone => return self.ended(),
            Received::Waits(mut incoming) => loop {
                match incoming.line().await {
                    Some(Line::Reply(reply)) => break reply,
                    Some(Line::Notification(_)) => {}
                    None if self.queue.is_alive() => {
                        let text = "the connection was closed while the request waited: it was not begun";
                        return self.refuse(StatusCode::REQUEST_TIMEOUT, text);
                    }
                    None => return self.ended(),
                }
            },
        };
        answered(reply)
    }

    fn ended(&self) -> Response {
        self.refuse(StatusCode::INTERNAL_SERVER_ERROR, "the extension has ended without an answer")
    }

    pub(crate) fn refuse_overload(&self) -> Response {
        let refusal = self.refuse(StatusCode::SERVICE_UNAVAILABLE, "too many requests wait already");
        ([(header::RETRY_AFTER, "1")], refusal).into_response()
    }

    pub(crate) fn fault(&self, fault: &Fault) -> Response {
        let refusal = self.refuse(fault.status(), &fault.to_string());
        if fault.ends_connection() { ([(header::CONNECTION, "close")], refusal).into_response() } else { refusal }
    }

    /// An error that has to do with HTTP, in the protocol's own form.
    pub(crate) fn refuse(&self, status: StatusCode, text: &str) -> Response {
        json(status, format!("{}\n", (self.routes.refusal)(status.as_u16(), text)))
    }
}

/// The response with a reply of the protocol.
fn answered(mut reply: Vec<u8>) -> Response {
    reply.push(b'\n');
    json(StatusCode::OK, reply)
}

/// A response whose body is JSON.
#[doc(hidden)]
pub fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}
