//! The web page of a rig, and the server behind it: what `rigline web` runs.
//!
//! | path | what it is |
//! |---|---|
//! | `GET /` and files beside it | the page, which is embedded in the program |
//! | `GET /api/info` | `{"version","target","evals","lab"}` |
//! | `GET /api/lab` | of a rig of the lab: who has it, for how long still, and who waits, each with whether it is this server |
//! | `GET /api/ports` | the serial ports, as `rigline ports --json` lists them, with the number of this server's own `sessions` on each |
//! | `GET /api/runs?limit=N` | earlier eval runs with the numbers that they measured |
//! | `GET /api/run?id=ID` | one run: its `trials` with their outputs, its `logs`, and the members of `/api/runs` |
//! | `POST /api/off?target=TARGET&name=NAME` | cancels all calls, and ends the session with the extension as a loss does, so that hardware goes into its safe state; then a new session begins: `{"ended":true,"error":null}`, or why none began |
//! | `POST /api/call?target=TARGET` | one call: the body is what `execute` takes, `{"operation","args","context"}`, and the answer its result |
//! | WebSocket `/ws?target=TARGET` | a gevals session: one text frame a line. With `clients=1`, notifications `rigline/clients` say who is connected and whose call waits or runs; `name=NAME` is what others see |
//! | WebSocket `/evals` | waza's JSON-RPC: one text frame a line |
//!
//! # Who may ask
//! Everything below `/api` and both WebSockets need the [token](Options::new): as the parameter `token`, or as a bearer token. The page
//! itself needs none. Requests from pages of other origins and for foreign names are refused with 403, as by [`http`](rigline_std::http), and so
//! are other users of this machine. Pages of an [allowed origin](Options::allow_origin) may read the answers. A client whose token is wrong gets a WebSocket that is closed at once with the code 4401, because a
//! browser hides the status of a handshake that fails.
//!
//! A page may choose a target if the server has none: a serial port that is plugged in, or `sim`. It never names a program,
//! and no address in the network.
//!
//! # A session
//! Sessions are those of any server of lines, with its limits ([`tcp`](rigline_host::tcp)): calls take turns, and a browser that is gone without
//! `shutdown` has its call cancelled and, if no other session is open, the outputs made safe. The server closes a connection with one of these codes:
//!
//! | code | why |
//! |---|---|
//! | 1001 | the server stops |
//! | 1002, 1003, 1007 | frames that break the WebSocket protocol; a binary frame; text that is not UTF-8 |
//! | 1008 | HTTP in a frame |
//! | 1009 | a frame over [`FRAME_LIMIT`] |
//! | 4401 | the token is missing or wrong |
//! | 4404 | there is no such target, it may not be chosen, or there are no evals |
//! | 4408 | the client took nothing for 10 s, or was silent for [`SILENCE`] |
//! | 4410 | the device is gone |
//! | 4429 | too many clients |

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use rigline::json::Json;
use rigline::json::check::check;
use rigline::serve::Transport;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::clients::{Told, name_of};
use self::socket::{Closing, Wants};
use self::targets::{SharedHosts, Targets};
use rigline_eval::Root;
use rigline_eval::history;
use rigline_eval::runs::Runs;
use rigline_eval::server::EvalServer;
use rigline_eval::session::Hosts;
use rigline_eval::store::Store;
use rigline_host as host;
use rigline_host::lines::{self, End};
use rigline_host::local::InProcess;
use rigline_host::ports::Roots;
use rigline_host::target::Target;
use rigline_std::http::HttpAcceptor;
use rigline_std::http::guard::{Guard, bearer};
use rigline_std::net::{ListenAddress, Listeners, Token};
use rigline_std::queue::{Asker, Line, Queue, QueueClient, Received, RemoteExtension as _};

mod clients;
mod page;
mod socket;
mod targets;

pub use self::socket::{FRAME_LIMIT, SILENCE};

/// How many WebSockets are served at once.
const CLIENTS: usize = 32;
/// How many connections are open at once. A browser opens several for one page.
const CONNECTIONS: usize = 128;
/// The longest body of a call, in bytes.
const BODY_LIMIT: usize = 8 << 20;
/// The time limit for a request's head or body, and for a client that reads nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time that clients have to read their last lines when the server stops.
const LAST_LINES: Duration = Duration::from_secs(3);
/// How often a call over HTTP looks for its client.
const WATCH: Duration = Duration::from_millis(200);
/// How long runs have for their cleanup steps when the server stops.
const CLEANUP: Duration = Duration::from_secs(30);

/// The sources from which the page may load: nothing from elsewhere, and no script or style in its markup.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The headers of every answer.
const HEADERS: [(HeaderName, HeaderValue); 7] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("serial=(self), camera=(), geolocation=(), hid=(), microphone=(), midi=(), usb=()"),
    ),
];

/// The options of a server of the web page: its target, and the access to it.
#[must_use]
pub struct Options {
    target: Option<Target>,
    host: host::Options,
    sim: Option<InProcess>,
    evals: Option<Evals>,
    lab: Option<Lab>,
    token: Token,
    guard: Guard,
}

/// A function that returns who has the rigs of the target, and who waits for them, as JSON.
pub type Lab = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send>> + Send + Sync>;

struct Evals {
    root: Root,
    store: Store,
    hosts: Hosts,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("target", &self.target).field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl Options {
    /// Options of a server for clients that send `token`. Without further options, a page may
    /// choose a serial port that is plugged in, or the built-in rig.
    pub fn new(token: Token) -> Self {
        let (host, guard) = (host::Options::default(), Guard::default());
        Self { target: None, host, sim: None, evals: None, lab: None, token, guard }
    }

    /// Serves only this target.
    pub fn target(self, target: Target) -> Self {
        Self { target: Some(target), ..self }
    }

    /// Sets the options of the connections to targets.
    pub fn host(self, host: host::Options) -> Self {
        Self { host, ..self }
    }

    /// Sets the extension in this process that stands for the target [`sim`](Target::Sim). By
    /// default a child process does.
    pub fn sim(self, sim: InProcess) -> Self {
        Self { sim: Some(sim), ..self }
    }

    /// Lets pages run the evals below the folder `root`. The records of runs are kept in `store`.
    ///
    /// Evals run on the server's target, if it has one. On a serial port they share the session
    /// that pages have open. The server needs a tokio runtime with several threads.
    pub fn evals(self, root: Root, store: Store, hosts: Hosts) -> Self {
        Self { evals: Some(Evals { root, store, hosts }), ..self }
    }

    /// Declares that the target is a rig of the lab. Pages then show what `lab` returns.
    pub fn lab(self, lab: Lab) -> Self {
        Self { lab: Some(lab), ..self }
    }

    /// Admits other users of this machine, if they have the token.
    pub fn any_user(mut self) -> Self {
        self.guard.access.any_user = true;
        self
    }

    /// Admits requests to this host name, as
    /// [`http::Options::allow_host`](rigline_std::http::Options::allow_host) does.
    pub fn allow_host(mut self, name: impl Into<String>) -> Self {
        self.guard.hosts.push(name.into().to_ascii_lowercase());
        self
    }

    /// Admits web pages of this origin, as
    /// [`http::Options::allow_origin`](rigline_std::http::Options::allow_origin) does.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.guard.origins.push(origin.into().to_ascii_lowercase());
        self
    }
}

/// A server of the web page. It listens already, and answers when it [runs](Self::run_until).
#[derive(Debug)]
pub struct WebServer {
    listeners: Vec<TcpListener>,
    options: Options,
}

impl WebServer {
    /// Listens on all addresses that `address` means.
    ///
    /// # Errors
    /// The port is in use, or this machine does not have the address.
    pub fn bind(address: &ListenAddress, options: Options) -> io::Result<Self> {
        Ok(Self { listeners: address.bind()?, options })
    }

    /// Returns the addresses that the server listens on.
    ///
    /// # Errors
    /// The system does not tell an address.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Returns the address of the page on this machine. It contains the token.
    ///
    /// # Errors
    /// The system does not tell the address.
    pub fn url(&self) -> io::Result<String> {
        let address = *self.addresses()?.first().ok_or(io::ErrorKind::NotFound)?;
        let host =
            if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() };
        Ok(format!("http://{host}/#token={}", self.options.token.reveal()))
    }

    /// Serves clients until `stop` is ready. Open sessions are then lost, so that hardware goes
    /// into its safe state.
    ///
    /// # Errors
    /// The listeners cannot be used in this runtime.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Options { target, host, sim, evals, lab, token, guard } = self.options;
        let listeners = Listeners::new(self.listeners)?;
        let acceptor = HttpAcceptor { access: guard.access.clone(), read_timeout: PATIENCE, connections: CONNECTIONS };
        let of_evals = target.as_ref().map(ToString::to_string);
        let targets = Targets::new(target, host, sim);
        let (runs, evals) = match evals {
            Some(Evals { root, store, hosts }) => {
                let connect = SharedHosts { targets: Arc::clone(&targets), hosts };
                let runs = Runs::with_connect(store, of_evals, Arc::new(connect));
                (Some(runs.clone()), Some(EvalServer::new(runs, root)))
            }
            None => (None, None),
        };
        let service = Arc::new(Service {
            targets,
            evals,
            runs,
            lab,
            token,
            guard,
            places: Arc::new(Semaphore::new(CLIENTS)),
            stop: CancellationToken::new(),
        });
        let ((), finish) = acceptor.serve(listeners, router(&service), stop).await;
        service.stop.cancel();
        let last = async {
            finish.await;
            // All places are free when all clients are gone.
            let _ = service.places.acquire_many(u32::try_from(CLIENTS).unwrap_or(u32::MAX)).await;
        };
        let _ = tokio::time::timeout(LAST_LINES, last).await;
        if let Some(runs) = &service.runs {
            // Cleanup steps run.
            runs.cancel_all();
            let _ = tokio::time::timeout(CLEANUP, runs.idle()).await;
        }
        service.targets.abandon().await;
        Ok(())
    }
}

/// State that all connections share.
struct Service {
    targets: Arc<Targets>,
    evals: Option<EvalServer>,
    runs: Option<Runs>,
    lab: Option<Lab>,
    token: Token,
    guard: Guard,
    /// For clients over WebSockets.
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

/// The parameters of a request's URL.
#[derive(Debug, Default, Deserialize)]
struct Said {
    token: Option<String>,
    target: Option<String>,
    limit: Option<usize>,
    /// A run's id.
    id: Option<String>,
    /// The client's wished name.
    name: Option<String>,
    /// Whether the client is to be told of the other clients.
    clients: Option<String>,
    /// `many`: a frame may have several lines.
    lines: Option<String>,
}

type WebQuery = Result<Query<Said>, QueryRejection>;

fn router(service: &Arc<Service>) -> Router {
    Router::new()
        .route("/api/info", get(info))
        .route("/api/lab", get(lab))
        .route("/api/ports", get(ports))
        .route("/api/runs", get(runs))
        .route("/api/run", get(run))
        .route("/api/call", post(call))
        .route("/api/off", post(off))
        // Only the paths above need the token here. A WebSocket with a wrong token is opened, and closed with the
        // reason.
        .route_layer(middleware::from_fn_with_state(service.clone(), known))
        .route("/ws", get(session))
        .route("/evals", get(evals))
        .fallback(file)
        .layer(middleware::from_fn_with_state(service.clone(), guarded))
        .with_state(service.clone())
}

async fn guarded(State(service): State<Arc<Service>>, mut request: Request, next: Next) -> Response {
    // A link on another page may lead to ours: it says nothing but what the page is, which no other page can look into.
    let is_visit = request.method() == Method::GET
        && request.headers().get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
        && request.headers().get("sec-fetch-dest").is_some_and(|dest| dest == "document");
    if is_visit {
        request.headers_mut().remove("sec-fetch-site");
    }
    let mut response = service.guard.answer(request, |request| next.run(request), refuse).await;
    response.headers_mut().extend(HEADERS);
    response
}

/// Has a request answered if it carries the token.
async fn known(State(service): State<Arc<Service>>, said: WebQuery, request: Request, next: Next) -> Response {
    match said {
        Ok(said) if service.has_token(&said, request.headers()) => next.run(request).await,
        Ok(_) => {
            let text = "the token of this server is required: it is part of the URL that rigline web prints";
            ([(header::WWW_AUTHENTICATE, "Bearer")], refuse(StatusCode::UNAUTHORIZED, text)).into_response()
        }
        Err(rejection) => refuse(rejection.status(), &rejection.body_text()),
    }
}

async fn info(State(service): State<Arc<Service>>) -> Response {
    let info = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "target": service.targets.fixed().map(ToString::to_string),
        "evals": service.evals.is_some(),
        "lab": service.lab.is_some(),
    });
    json_response(StatusCode::OK, &info)
}

async fn lab(State(service): State<Arc<Service>>) -> Response {
    let Some(lab) = service.lab.clone() else {
        return refuse(StatusCode::NOT_FOUND, "the target of this server is no rig of the lab");
    };
    match lab().await {
        Ok(told) => json_response(StatusCode::OK, &told),
        Err(why) => refuse(StatusCode::BAD_GATEWAY, &why),
    }
}

async fn ports(State(service): State<Arc<Service>>) -> Response {
    let sessions = service.targets.sessions();
    // Processes and their open files are examined.
    let listed = tokio::task::spawn_blocking(move || {
        let roots = Roots::of_environment();
        let one = |port: host::ports::PortInfo| {
            let mut json = port.to_json(&roots.holders(&port.path));
            let real = std::fs::canonicalize(&port.path).unwrap_or_else(|_| port.path.clone());
            json["sessions"] = sessions.iter().filter(|path| **path == real).count().into();
            json
        };
        roots.ports().into_iter().map(one).collect::<Vec<Value>>()
    });
    match listed.await {
        Ok(ports) => json_response(StatusCode::OK, &Value::from(ports)),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the ports cannot be listed"),
    }
}

async fn runs(State(service): State<Arc<Service>>, said: Query<Said>) -> Response {
    let Some(runs) = service.runs.clone() else { return refuse(StatusCode::NOT_FOUND, NO_EVALS) };
    let limit = said.limit.unwrap_or(history::LIMIT);
    match tokio::task::spawn_blocking(move || history::history(&runs, limit)).await {
        Ok(Ok(history)) => json_response(StatusCode::OK, &history),
        Ok(Err(error)) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("the runs cannot be read: {error}")),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the runs cannot be read"),
    }
}

async fn run(State(service): State<Arc<Service>>, said: Query<Said>) -> Response {
    let Some(runs) = service.runs.clone() else { return refuse(StatusCode::NOT_FOUND, NO_EVALS) };
    let id = said.id.clone().unwrap_or_default();
    match tokio::task::spawn_blocking(move || history::run(&runs, &id)).await {
        Ok(Ok(Some(run))) => json_response(StatusCode::OK, &run),
        Ok(Ok(None)) => refuse(StatusCode::NOT_FOUND, "there is no such run"),
        Ok(Err(error)) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("the run cannot be read: {error}")),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the run cannot be read"),
    }
}

/// Brings a target into its safe state, whoever uses it.
async fn off(State(service): State<Arc<Service>>, said: Query<Said>) -> Response {
    let lease = match service.targets.lease(said.target.as_deref()).await {
        Ok(lease) => lease,
        Err(why) => return refuse(StatusCode::NOT_FOUND, &why),
    };
    let name = name_of(said.name.as_deref(), "another client");
    // It goes on when its client is gone.
    let made = tokio::spawn(async move {
        let place = lease.place.clone();
        place.queue.halt(&format!("the call was cancelled: {name} switched everything off")).await;
        place.remote.abandon().await;
        let made = place.remote.reach(&|_| {}).await;
        lease.end().await;
        made
    });
    match made.await {
        Ok(Ok(())) => json_response(StatusCode::OK, &json!({ "ended": true, "error": null })),
        Ok(Err(absence)) => json_response(StatusCode::OK, &json!({ "ended": true, "error": absence.message })),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the session cannot be ended"),
    }
}

/// Runs one call, for programs such as curl.
async fn call(
    State(service): State<Arc<Service>>,
    said: Query<Said>,
    client: Extension<QueueClient>,
    request: Request,
) -> Response {
    let body = tokio::time::timeout(PATIENCE, axum::body::to_bytes(request.into_body(), BODY_LIMIT));
    let mut params = match body.await {
        Ok(Ok(body)) => body.to_vec(),
        Ok(Err(_)) => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, &format!("the limit of a body is {BODY_LIMIT} bytes"));
        }
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come within 10 s"),
    };
    if let Err(error) = check(&params) {
        return refuse(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {error}"));
    }
    // Line ends occur only between tokens.
    params.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    let Ok(place) = service.places.clone().try_acquire_owned() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &too_many());
    };
    let lease = match service.targets.lease(said.target.as_deref()).await {
        Ok(lease) => lease,
        Err(why) => return refuse(StatusCode::NOT_FOUND, &why),
    };
    let caller = QueueClient::of_caller(lease.enter(&name_of(said.name.as_deref(), "a program over HTTP")));
    let stop = service.stop.clone();
    // What was begun ends in good order when its client is gone.
    let called = tokio::spawn(async move {
        let gone = async {
            while !client.is_gone() {
                tokio::time::sleep(WATCH).await;
            }
        };
        let reply = tokio::select! {
            reply = one_call(&lease.place.queue, &caller, &params) => reply,
            () = gone => None,
            () = stop.cancelled() => {
                let text = "the server stops, and the call was cancelled";
                return json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": text, "code": null }));
            }
        };
        drop((caller, place));
        lease.end().await;
        reply.as_deref().and_then(answer_in).unwrap_or_else(|| {
            json_response(StatusCode::BAD_GATEWAY, &json!({ "error": "the extension has ended", "code": null }))
        })
    });
    called.await.unwrap_or_else(|_| refuse(StatusCode::INTERNAL_SERVER_ERROR, "the call has failed"))
}

/// Runs a call, in no session: outputs stay as they are. It is cancelled when this is dropped. Returns the reply, as a gevals host gets it.
async fn one_call(queue: &Queue, caller: &QueueClient, params: &[u8]) -> Option<Vec<u8>> {
    let line = [b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"execute\",\"params\":", params, b"}"].concat();
    let mut session = queue.new_session()?;
    if let Err(reply) = queue.reach(&mut session, &line, &|_| {}).await {
        return Some(reply);
    }
    let asker =
        Asker { client: caller, session: None, cancels: true, wants_logs: false, identity: None, arrived: None };
    match queue.receive_in(&mut session, line, &asker, true) {
        Ok(Received::Reply(reply)) => Some(reply),
        Ok(Received::Waits(mut incoming)) => loop {
            match incoming.line().await? {
                Line::Reply(reply) => return Some(reply),
                Line::Notification(_) => {}
            }
        },
        _ => None,
    }
}

/// The response for a reply.
fn answer_in(reply: &[u8]) -> Option<Response> {
    let reply = Json::parse(reply).ok()?;
    let Some(error) = reply.get("error") else {
        return Some(json_text(StatusCode::OK, reply.get("result")?.as_str().to_owned()));
    };
    let error: Value = serde_json::from_slice(error.as_bytes()).unwrap_or_default();
    let status = match error["code"].as_i64() {
        Some(-32_602..=-32_600) => StatusCode::BAD_REQUEST,
        Some(-32_001) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    Some(json_response(status, &json!({ "error": error["message"], "code": error["code"] })))
}

fn too_many() -> String {
    format!("too many clients: {CLIENTS} are connected already")
}

const NO_EVALS: &str = "this server has no evals: see --evals";

async fn session(
    State(service): State<Arc<Service>>,
    said: Query<Said>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let is_known = service.has_token(&said, &headers);
    socket::limited(upgrade, is_known).on_upgrade(async move |socket| service.session(socket, &said, is_known).await)
}

async fn evals(
    State(service): State<Arc<Service>>,
    said: Query<Said>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let is_known = service.has_token(&said, &headers);
    socket::limited(upgrade, is_known).on_upgrade(async move |socket| service.evals(socket, is_known).await)
}

async fn file(method: Method, uri: Uri) -> Response {
    if method != Method::GET && method != Method::HEAD {
        let refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed here");
        return ([(header::ALLOW, "GET, HEAD")], refusal).into_response();
    }
    if matches!(uri.path(), "/" | "/index.html") {
        return ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page::index()).into_response();
    }
    match page::file(uri.path()) {
        Some((kind, bytes)) => ([(header::CONTENT_TYPE, kind)], Body::from(bytes)).into_response(),
        None => refuse(StatusCode::NOT_FOUND, "there is nothing at this path"),
    }
}

impl Service {
    fn has_token(&self, said: &Said, headers: &HeaderMap) -> bool {
        self.token.is(said.token.as_ref().map_or_else(|| bearer(headers), String::as_bytes))
    }

    async fn session(&self, socket: WebSocket, said: &Said, is_known: bool) {
        let Some((socket, _place)) = self.admit(socket, is_known).await else { return };
        let lease = match self.targets.lease(said.target.as_deref()).await {
            Ok(lease) => lease,
            Err(why) => return socket::close(socket, &Closing::new(4404, why)).await,
        };
        let ticket = lease.enter(&name_of(said.name.as_deref(), "another page"));
        let told = said.clients.as_deref().is_some_and(|wanted| wanted == "1");
        let told = told.then(|| Told::new(ticket.id(), lease.place.callers.subscribe()));
        let joins_lines = said.lines.as_deref().is_some_and(|wanted| wanted == "many");
        let wants = Wants { told, joins_lines };
        let (queue, client) = (Arc::clone(&lease.place.queue), QueueClient::of_caller(ticket));
        socket::carry(socket, wants, lease.gone(), self.stop.clone(), async move |reader, writer, lost| {
            let lost = lost.cancelled_owned();
            let end = lines::serve(&queue, client, reader, writer, Transport::Stream, lost).await;
            (end == End::Refused)
                .then(|| Closing::new(1008, "HTTP is not understood here: send one line of JSON as a text frame"))
        })
        .await;
        lease.end().await;
    }

    async fn evals(&self, socket: WebSocket, is_known: bool) {
        let Some((socket, _place)) = self.admit(socket, is_known).await else { return };
        let Some(server) = self.evals.clone() else {
            return socket::close(socket, &Closing::new(4404, NO_EVALS)).await;
        };
        // Each run reaches its own target.
        let nothing_to_lose = watch::Sender::new(String::new());
        socket::carry(
            socket,
            Wants::default(),
            nothing_to_lose.subscribe(),
            self.stop.clone(),
            async move |reader, writer, lost| {
                server.serve(reader, writer, lost.cancelled_owned()).await;
                None
            },
        )
        .await;
    }

    /// Gives the client a place, if it may ask and there is one.
    async fn admit(&self, socket: WebSocket, is_known: bool) -> Option<(WebSocket, OwnedSemaphorePermit)> {
        let closing = if is_known {
            match self.places.clone().try_acquire_owned() {
                Ok(place) => return Some((socket, place)),
                Err(_) => Closing::new(4429, too_many()),
            }
        } else {
            Closing::new(4401, "the token is missing or wrong: open the URL that rigline web printed last")
        };
        socket::close(socket, &closing).await;
        None
    }
}

fn refuse(status: StatusCode, text: &str) -> Response {
    json_response(status, &json!({ "error": text }))
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    json_text(status, body.to_string())
}

fn json_text(status: StatusCode, body: String) -> Response {
    rigline_std::http::json(status, body + "\n")
}
