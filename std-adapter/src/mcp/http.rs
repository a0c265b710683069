//! Streamable HTTP, of both eras (Base Protocol, Transports).
//!
//! One path answers `POST`, and `GET` and `DELETE` of a session. Other methods get status 405. A
//! request belongs to the modern era if its `_meta` or its header `MCP-Protocol-Version` says so.
//! `initialize` without such a `_meta` never does.
//!
//! In the legacy era, the answer to `initialize` names a session in `Mcp-Session-Id`. A request
//! with an unknown session gets status 404. A session is unknown after it has ended, or after
//! [`SESSIONS`] others were used since its last request. `DELETE` ends a session, and cancels its
//! running calls. No request needs a session. The modern era has none.
//!
//! `GET` of a session is a stream of messages to all clients: that the outputs were switched off,
//! because of another client or because there was no request for [`idle`](Options::idle).
//! `subscriptions/listen` is such a stream in the modern era, for clients that ask for logs. When
//! the last session ends that has switched something on, the safe state runs.
//!
//! Requests that run no tool are answered at once, also while a tool runs for another client.
//!
//! A reply without earlier messages is one JSON text. If progress or a log comes first, or there is
//! no reply after a second, the response is a stream of events that ends with the reply, with a
//! comment every 14 seconds. A client that does not accept events gets the head of the response
//! after a second, too, and white space in place of comments.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hyper::body::Frame;
use rigline::json::{Json, JsonKind};
use rigline::protocol::mcp;
use rigline::rpc;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval, sleep};

use self::course::{Begun, Course};
use crate::http::{Endpoint, Options, Pending, Route, Routes, Service, json as json_response};
#[cfg(doc)]
use crate::queue::SESSIONS;
use crate::queue::{Asker, Incoming, Line, Queue, QueueClient, Received, Replies};

mod course;

/// The path of MCP over HTTP: `/mcp`.
pub const ROUTES: Routes =
    Routes::new(rigline::protocol::MCP, &[Route::new(Some("/mcp"), Endpoint::Function(answer))], refusal);

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// The headers do not say what the body says.
const HEADER_MISMATCH: i32 = -32020;

/// How often a response looks for its client.
const WATCH: Duration = Duration::from_millis(100);
/// After how long a silent stream gets a comment, which keeps the connection alive: every 15
/// seconds at least.
const SILENCE: Duration = Duration::from_secs(14);
/// After how long the head of a response goes out that has no reply yet: middlemen and clients give
/// up on those that have said nothing.
const HEAD: Duration = Duration::from_secs(1);

impl Options {
    /// Options for a server for MCP's clients, at `/mcp`.
    pub fn mcp() -> Self {
        Self::new(&ROUTES)
    }
}

/// An error that has to do with HTTP.
fn refusal(status: u16, text: &str) -> String {
    let code = match status {
        400 => rpc::PARSE_ERROR,
        500 => rpc::INTERNAL_ERROR,
        _ => rpc::INVALID_REQUEST,
    };
    error(None, code, text).to_string()
}

fn error(id: Option<&str>, code: i32, text: &str) -> Value {
    let error = json!({ "code": code, "message": text });
    match id.and_then(|id| serde_json::from_str::<Value>(id).ok()) {
        Some(id) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        None => json!({ "jsonrpc": "2.0", "error": error }),
    }
}

fn answer(service: Arc<Service>, client: QueueClient, request: Request) -> Pending<Response> {
    Box::pin(async move {
        let headers = request.headers().clone();
        if request.method() == Method::DELETE {
            return end_session(&service, &headers);
        }
        if request.method() == Method::GET {
            return listen(&service, &headers, client);
        }
        let (text, permit) = match service.body(request).await {
            Ok(body) => body,
            Err(fault) => return service.fault(&fault),
        };
        let text = String::from_utf8(text).unwrap_or_default();
        let queue = service.queue();
        let Ok(json) = Json::parse(text.as_bytes()) else {
            return service.refuse(StatusCode::BAD_REQUEST, "the body is not JSON");
        };
        let is_unknown = session(&headers).is_some_and(|name| queue.session(name).is_none());
        if json.kind() == JsonKind::Array {
            if is_unknown {
                return no_session(None);
            }
            match Course::of_session(&service, &client, session(&headers)).receive(text.as_bytes()) {
                Begun::Passes => {}
                Begun::Reply(reply) => return json_response(StatusCode::BAD_REQUEST, reply),
                _ => return StatusCode::ACCEPTED.into_response(),
            }
            let (service, headers) = (service.clone(), headers.clone());
            return in_time(Box::pin(async move {
                let _permit = permit;
                match Json::parse(text.as_bytes()) {
                    Ok(json) => batch(&service, &headers, &client, json).await,
                    Err(_) => service.refuse(StatusCode::BAD_REQUEST, "the body is not JSON"),
                }
            }))
            .await;
        }
        match Message::read(json, &headers) {
            Ok(Message::Request(request)) => {
                let begins = !request.is_modern && request.is("initialize");
                if !request.is_modern && !begins && is_unknown {
                    return no_session(Some(request.id));
                }
                let (is_modern, takes_events) = (request.is_modern, accepts_events(&headers));
                let begun = begins.then(Queue::session_name);
                let mut course = Course::of_request(&service, &request, &client, begun.as_deref(), takes_events);
                match course.begin(request.json.as_bytes()) {
                    Begun::Reply(reply) => {
                        let mut response = reply_response(reply, is_modern);
                        if let Some(name) = begun
                            && let Ok(value) = HeaderValue::from_str(&name)
                        {
                            queue.open_session(&name);
                            response.headers_mut().insert(SESSION, value);
                        }
                        response
                    }
                    Begun::StaysOpen(acknowledgement) => {
                        let first = Some(event(&acknowledgement));
                        let (listener, wants_logs) = (Some(queue.listen(None)), request.wants_logs);
                        let course = course.between_only();
                        events(Events { first, course, listener, wants_logs, ..Events::silent(client) })
                    }
                    Begun::Waits if takes_events => respond(&service, course, client, is_modern, true).await,
                    Begun::Waits => {
                        let service = service.clone();
                        in_time(Box::pin(async move {
                            let _permit = permit;
                            respond(&service, course, client, is_modern, false).await
                        }))
                        .await
                    }
                    Begun::Passes | Begun::Silent => StatusCode::ACCEPTED.into_response(),
                    Begun::Full => service.refuse_overload(),
                    Begun::Gone => service.refuse(StatusCode::INTERNAL_SERVER_ERROR, ENDED),
                }
            }
            Ok(Message::Cancel(_) | Message::Notification) if is_unknown => no_session(None),
            Ok(message @ (Message::Cancel(_) | Message::Notification)) => {
                let passed = Course::of_session(&service, &client, session(&headers)).receive(text.as_bytes());
                if let (Message::Cancel(id), Begun::Passes) = (message, passed) {
                    queue.cancel(id, session(&headers));
                }
                StatusCode::ACCEPTED.into_response()
            }
            Err(refused) => refused.response(),
        }
    })
}

const ENDED: &str = "the extension has ended without an answer";

fn reply_response(reply: Vec<u8>, is_modern: bool) -> Response {
    json_response(if is_modern { status_of(&reply) } else { StatusCode::OK }, reply)
}

/// The session that a client names (Session Management); what is not text names none that there is.
fn session(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION).map(|name| name.to_str().unwrap_or_default())
}

/// Session Management: 404 has the client begin another session.
fn no_session(id: Option<&str>) -> Response {
    let refused = Refused::new(id, rpc::INVALID_REQUEST, "unknown session: it has ended, or never began");
    Refused { status: StatusCode::NOT_FOUND, ..refused }.response()
}

/// Whether a request without a body is of the modern era.
fn is_modern(headers: &HeaderMap) -> bool {
    headers.get("mcp-protocol-version").is_some_and(|version| version.as_bytes() > mcp::LEGACY[0].as_bytes())
}

/// Listening for Messages from the Server: a stream for what concerns all clients.
fn listen(service: &Arc<Service>, headers: &HeaderMap, client: QueueClient) -> Response {
    match session(headers) {
        _ if is_modern(headers) || !accepts_events(headers) => service.not_allowed(),
        Some(name) if service.queue().session(name).is_none() => no_session(None),
        Some(name) => {
            let listener = Some(service.queue().listen(Some(name)));
            let course = Course::of_session(service, &client, Some(name)).listening();
            events(Events { first: Some(Bytes::from_static(COMMENT)), listener, course, ..Events::silent(client) })
        }
        None => service.not_allowed(),
    }
}

fn end_session(service: &Service, headers: &HeaderMap) -> Response {
    match session(headers) {
        Some(name) if !is_modern(headers) => {
            if service.queue().end_session(name) {
                service.between().into_iter().for_each(|between| between.session_ended(name));
                StatusCode::NO_CONTENT.into_response()
            } else {
                no_session(None)
            }
        }
        _ => service.not_allowed(),
    }
}

/// A message of a client.
enum Message<'t> {
    Request(CheckedRequest<'t>),
    /// A notification that cancels the request with this id.
    Cancel(&'t str),
    /// Any other notification, which needs no answer.
    Notification,
}

/// Why a message is refused.
struct Refused<'t> {
    id: Option<&'t str>,
    status: StatusCode,
    code: i32,
    text: String,
    data: Option<Value>,
}

impl<'t> Refused<'t> {
    fn new(id: Option<&'t str>, code: i32, text: impl Into<String>) -> Self {
        Self { id, status: StatusCode::BAD_REQUEST, code, text: text.into(), data: None }
    }

    fn body(&self) -> Value {
        let mut body = error(self.id, self.code, &self.text);
        if let (Some(error), Some(data)) = (body.get_mut("error"), &self.data) {
            error["data"] = data.clone();
        }
        body
    }

    fn response(&self) -> Response {
        json_response(self.status, self.body().to_string())
    }
}

impl<'t> Message<'t> {
    fn read(json: Json<'t>, headers: &'t HeaderMap) -> Result<Self, Refused<'t>> {
        let id = json.get("id").map(|id| id.as_str());
        let params = json.get("params").unwrap_or(Json::NULL);
        let meta = params.get("_meta").unwrap_or(Json::NULL);
        let Some(method) = json.get("method").and_then(|method| method.text()) else {
            if json.kind() == JsonKind::Object && (json.get("result").is_some() || json.get("error").is_some()) {
                // Nothing was asked of the client.
                return Ok(Self::Notification);
            }
            let text = "Invalid Request: expected an object with the member method";
            return Err(Refused::new(id, rpc::INVALID_REQUEST, text));
        };
        let Some(id) = id else {
            return Ok(match params.get("requestId") {
                Some(id) if method == "notifications/cancelled" => Self::Cancel(id.as_str()),
                _ => Self::Notification,
            });
        };
        if !matches!(json.get("id").map(|id| id.kind()), Some(JsonKind::String | JsonKind::Number)) {
            let text = "Invalid Request: the id must be a string or an integer";
            return Err(Refused::new(None, rpc::INVALID_REQUEST, text));
        }
        let version = header_text(headers, "mcp-protocol-version", id)?;
        let own = |name: &str| meta.get(&format!("io.modelcontextprotocol/{name}"));
        let says_modern =
            ["protocolVersion", "clientCapabilities", "clientInfo"].into_iter().any(|name| own(name).is_some());
        let is_initialize = method == "initialize";
        let is_modern =
            says_modern || !is_initialize && version.as_deref().is_some_and(|version| version > mcp::LEGACY[0]);
        if is_modern {
            check_modern(
                id,
                &method.to_string(),
                params,
                own("protocolVersion"),
                own("clientCapabilities"),
                version,
                headers,
            )?;
        } else if let Some(version) = version
            && !is_initialize
            && !mcp::LEGACY.contains(&version.as_str())
        {
            let text =
                format!("MCP-Protocol-Version: {version} is not supported; supported are {}", mcp::LEGACY.join(", "));
            return Err(Refused::new(Some(id), rpc::INVALID_REQUEST, text));
        }
        let level = own("logLevel").and_then(|level| level.text()).map(|level| level.to_string());
        let wants_logs =
            !is_modern || level.is_some_and(|level| ["debug", "info", "notice", "warning"].contains(&level.as_str()));
        let identity = own("clientInfo").map(|client| client.as_str());
        Ok(Self::Request(CheckedRequest {
            json,
            id,
            is_modern,
            wants_logs,
            identity,
            session: session(headers).filter(|_| !is_modern),
        }))
    }
}

/// A request whose headers agree with it.
struct CheckedRequest<'t> {
    json: Json<'t>,
    /// Its id's JSON text.
    id: &'t str,
    is_modern: bool,
    /// Its client hears of what is not its own.
    wants_logs: bool,
    /// The client's description of itself.
    identity: Option<&'t str>,
    /// The session that it is of.
    session: Option<&'t str>,
}

impl CheckedRequest<'_> {
    fn is(&self, method: &str) -> bool {
        self.json.get("method").and_then(|method| method.text()).is_some_and(|text| text == *method)
    }

    /// The request came at `arrived`, if it has waited since then.
    fn asker<'a>(&'a self, client: &'a QueueClient, arrived: Option<std::time::Instant>) -> Asker<'a> {
        Asker {
            client,
            session: self.session,
            cancels: self.is_modern,
            wants_logs: self.wants_logs,
            identity: Some(self.identity.unwrap_or_default()),
            arrived,
        }
    }
}

/// Streamable HTTP, Request Metadata: headers repeat what the body says.
fn check_modern<'t>(
    id: &'t str,
    method: &str,
    params: Json<'_>,
    version: Option<Json<'_>>,
    capabilities: Option<Json<'_>>,
    header: Option<String>,
    headers: &HeaderMap,
) -> Result<(), Refused<'t>> {
    let invalid = |name: &str, why: &str| {
        Refused::new(Some(id), rpc::INVALID_PARAMS, format!("_meta: io.modelcontextprotocol/{name}: {why}"))
    };
    let missing = |name: &str| invalid(name, "required in every request, but missing");
    let mismatch = |text: String| Refused::new(Some(id), HEADER_MISMATCH, text);
    let version = version.ok_or_else(|| missing("protocolVersion"))?;
    let Some(version) = version.text().map(|version| version.to_string()) else {
        return Err(invalid("protocolVersion", "expected a string"));
    };
    if capabilities.ok_or_else(|| missing("clientCapabilities"))?.kind() != JsonKind::Object {
        return Err(invalid("clientCapabilities", "expected an object"));
    }
    let compare = |name: &str, header: Option<String>, body: &str| match header {
        None => Err(mismatch(format!("Header mismatch: {name} is missing"))),
        Some(header) if header != body => {
            Err(mismatch(format!("Header mismatch: {name} is {header:?}, but the body has {body:?}")))
        }
        Some(_) => Ok(()),
    };
    compare("MCP-Protocol-Version", header, &version)?;
    if version != mcp::MODERN {
        let supported: Vec<&str> = [mcp::MODERN].into_iter().chain(mcp::LEGACY).collect();
        let data = json!({ "supported": supported, "requested": version });
        let refused = Refused::new(Some(id), mcp::UNSUPPORTED_VERSION, "Unsupported protocol version");
        return Err(Refused { data: Some(data), ..refused });
    }
    compare("Mcp-Method", header_text(headers, "mcp-method", id)?, method)?;
    let named = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        _ => None,
    };
    if let Some(name) = named.and_then(|name| name.text()) {
        let header = match header_text(headers, "mcp-name", id)? {
            Some(header) => Some(decoded(&header).ok_or_else(|| {
                mismatch(format!("Header mismatch: Mcp-Name is not the base64 of UTF-8 text: {header:?}"))
            })?),
            None => None,
        };
        compare("Mcp-Name", header, &name.to_string())?;
    }
    Ok(())
}

/// The text of a header that may occur once.
fn header_text<'t>(headers: &HeaderMap, name: &str, id: &'t str) -> Result<Option<String>, Refused<'t>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(text) if values.next().is_none() => Ok(Some(text.trim().to_owned())),
        Ok(_) => Err(Refused::new(Some(id), HEADER_MISMATCH, format!("Header mismatch: {name} occurs twice"))),
        Err(_) => {
            Err(Refused::new(Some(id), HEADER_MISMATCH, format!("Header mismatch: {name} has invalid characters")))
        }
    }
}

/// Base64 without its padding, which real clients leave out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// A header's value out of `=?base64?…?=` (Value Encoding); anything else is itself.
fn decoded(value: &str) -> Option<String> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    String::from_utf8(BASE64.decode(encoded.trim_end_matches('=')).ok()?).ok()
}

/// Whether a client accepts a stream of events.
fn accepts_events(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/event-stream") || value.contains("*/*"))
}

/// Answers the members of a batch, which only 2025-03-26 has, one after the other. Other clients' calls may come between. It ends with
/// its client, and when its replies are longer than one reply may be. The time limit of each member counts from now, when the batch came.
async fn batch(service: &Service, headers: &HeaderMap, client: &QueueClient, json: Json<'_>) -> Response {
    let refused = |text: &str| Refused::new(None, rpc::INVALID_REQUEST, text).response();
    match json.elements().count() {
        0 => return refused("Invalid Request: an empty batch"),
        1..=rpc::MAX_BATCH => {}
        _ => return refused("Invalid Request: a batch of more than 64 members"),
    }
    let arrived = std::time::Instant::now();
    let ids = json.elements().filter_map(|member| member.get("id")).map(|id| id.as_bytes().into()).collect();
    let members = service.queue().batch_members(session(headers), ids);
    let (mut replies, mut has_begun) = (Replies::new(service.reply_limit()), false);
    for member in json.elements() {
        match Message::read(member, headers) {
            Ok(Message::Request(request)) if request.is_modern => {
                let text = "batches are part of 2025-03-26 only";
                replies.push(Refused::new(Some(request.id), rpc::INVALID_REQUEST, text).body().to_string().as_bytes());
            }
            Ok(Message::Request(request)) if replies.is_full() => replies.add_too_large(request.id),
            // It was cancelled.
            Ok(Message::Request(request)) if !members.begin(request.id) => {}
            Ok(Message::Request(request)) => {
                let asker = request.asker(client, Some(arrived));
                let reply = match service.queue().receive(member.as_bytes().to_vec(), &asker) {
                    Received::Reply(reply) => Some(reply),
                    Received::Waits(mut incoming) => match reply_to(&mut incoming, client).await {
                        Ok(reply) => reply,
                        Err(Abandoned) => return StatusCode::REQUEST_TIMEOUT.into_response(),
                    },
                    // Those before it may have run, and have their replies.
                    Received::Full if has_begun => {
                        let text = "too many requests wait already";
                        Some(error(Some(request.id), rpc::INTERNAL_ERROR, text).to_string().into_bytes())
                    }
                    Received::Full => return service.refuse_overload(),
                    Received::Gone => return service.refuse(StatusCode::INTERNAL_SERVER_ERROR, ENDED),
                    Received::StaysOpen(_) | Received::Silent => None,
                };
                has_begun = true;
                if let Some(reply) = reply {
                    replies.add(request.id, &reply);
                }
            }
            Ok(Message::Cancel(id)) => service.queue().cancel(id, session(headers)),
            Ok(Message::Notification) => {}
            Err(refused) => replies.push(refused.body().to_string().as_bytes()),
        }
    }
    match replies.end() {
        Some(text) => json_response(StatusCode::OK, text),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

/// The client was gone.
struct Abandoned;

/// Waits for the reply to a member of a batch; none if it was cancelled.
async fn reply_to(incoming: &mut Incoming, client: &QueueClient) -> Result<Option<Vec<u8>>, Abandoned> {
    let mut watch = ticks();
    loop {
        tokio::select! {
            line = incoming.line() => match line {
                Some(Line::Reply(reply)) => return Ok(Some(reply)),
                Some(Line::Notification(_)) => {}
                None => return Ok(None),
            },
            _ = watch.tick() => if client.is_gone() {
                incoming.cancel();
                return Err(Abandoned);
            }
        }
    }
}

/// Waits for the first line: a reply is the whole response, a notification begins a stream if the
/// client accepts one.
async fn respond(
    service: &Service,
    mut course: Course,
    client: QueueClient,
    is_modern: bool,
    takes_events: bool,
) -> Response {
    let mut watch = ticks();
    let begin = Instant::now() + HEAD;
    loop {
        let line = tokio::select! {
            line = course.line() => line,
            () = tokio::time::sleep_until(begin), if takes_events => {
                return events(Events { first: Some(Bytes::from_static(COMMENT)), ..Events::new(course, client, is_modern) });
            }
            _ = watch.tick() => {
                // Dropping what comes in cancels the request. In the legacy era a call that runs
                // goes on, and one that waits for its turn is not begun.
                if (is_modern || course.waits()) && client.is_gone() {
                    return StatusCode::REQUEST_TIMEOUT.into_response();
                }
                continue;
            }
        };
        return match line {
            Some(Line::Notification(line)) if takes_events => {
                events(Events { first: Some(event(&line)), ..Events::new(course, client, is_modern) })
            }
            Some(Line::Notification(_)) => continue,
            Some(Line::Reply(reply)) => reply_response(reply, is_modern),
            // It was cancelled, or the extension has ended.
            None if service.queue().is_alive() => StatusCode::ACCEPTED.into_response(),
            None => service.refuse(StatusCode::INTERNAL_SERVER_ERROR, ENDED),
        };
    }
}

/// The response, if it is there in a second; else its head, with what comes later as the body.
async fn in_time(mut response: Pin<Box<dyn Future<Output = Response> + Send>>) -> Response {
    if let Ok(response) = tokio::time::timeout(HEAD, response.as_mut()).await {
        return response;
    }
    let response = async move {
        let bytes = axum::body::to_bytes(response.await.into_body(), usize::MAX).await;
        bytes.unwrap_or_default()
    };
    json_response(
        StatusCode::OK,
        Body::new(Later { response: Box::pin(response), next: Box::pin(sleep(SILENCE)), is_over: false }),
    )
}

/// A body that is not there yet: white space, which JSON may begin with, until it is.
struct Later {
    response: Pin<Box<dyn Future<Output = Bytes> + Send>>,
    next: Pin<Box<Sleep>>,
    is_over: bool,
}

impl hyper::body::Body for Later {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(bytes) = this.response.as_mut().poll(task) {
            this.is_over = true;
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if this.next.as_mut().poll(task).is_ready() {
            this.next.as_mut().reset(Instant::now() + SILENCE);
            let _ = this.next.as_mut().poll(task);
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b" ")))));
        }
        Poll::Pending
    }
}

/// The status that goes with an error of the modern era.
fn status_of(reply: &[u8]) -> StatusCode {
    let code = Json::parse(reply).ok().and_then(|reply| reply.get("error")?.get("code")?.number()?.to_i64().ok());
    match code {
        Some(code) if code == i64::from(rpc::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code) if code == i64::from(mcp::UNSUPPORTED_VERSION) || code == i64::from(rpc::INVALID_REQUEST) => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}

fn events(events: Events) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::new(events)).into_response()
}

fn event(line: &[u8]) -> Bytes {
    [b"event: message\ndata: ", line, b"\n\n"].concat().into()
}

fn ticks() -> Interval {
    let mut ticks = interval(WATCH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// A comment that keeps a stream of events alive.
const COMMENT: &[u8] = b":\n\n";

/// A stream of events that ends with the reply, or when the client of a modern request is gone.
struct Events {
    first: Option<Bytes>,
    course: Option<Course>,
    /// Messages for all clients, which follow no request. It ends with the server.
    listener: Option<mpsc::Receiver<Line>>,
    /// Whether the client gets these messages.
    wants_logs: bool,
    is_over: bool,
    /// Whether the end of the stream cancels the request.
    watches: bool,
    client: QueueClient,
    ticks: Interval,
    /// When something was sent last.
    spoke: Instant,
}

impl Events {
    fn new(course: Course, client: QueueClient, watches: bool) -> Self {
        Self { course: Some(course), watches, ..Self::silent(client) }
    }

    fn silent(client: QueueClient) -> Self {
        let spoke = Instant::now();
        Self {
            first: None,
            course: None,
            listener: None,
            wants_logs: true,
            is_over: false,
            watches: true,
            client,
            ticks: ticks(),
            spoke,
        }
    }
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Some(course) = &mut this.course
            && let Poll::Ready(line) = course.poll_line(task)
        {
            this.spoke = Instant::now();
            return Poll::Ready(match line {
                Some(Line::Notification(line)) => Some(Ok(Frame::data(event(&line)))),
                Some(Line::Reply(line)) => {
                    this.is_over = true;
                    Some(Ok(Frame::data(event(&line))))
                }
                None => None,
            });
        }
        while let Some(listener) = &mut this.listener
            && let Poll::Ready(line) = listener.poll_recv(task)
        {
            if line.is_some() && !this.wants_logs {
                continue;
            }
            this.spoke = Instant::now();
            this.is_over = line.is_none();
            return Poll::Ready(match line {
                Some(Line::Notification(line) | Line::Reply(line)) => Some(Ok(Frame::data(event(&line)))),
                None => None,
            });
        }
        while this.ticks.poll_tick(task).is_ready() {
            if this.watches && this.client.is_gone() {
                this.is_over = true;
                this.course = None;
                return Poll::Ready(None);
            }
            if this.spoke.elapsed() >= SILENCE {
                this.spoke = Instant::now();
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))));
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_headers_are_decoded() {
        for (value, text) in [
            ("us-west1", Some("us-west1")),
            ("=?base64?SGVsbG8sIOS4lueVjA==?=", Some("Hello, 世界")),
            ("=?base64?IHBhZGRlZCA=?=", Some(" padded ")),
            ("=?base64?SGVsbG8?=", Some("Hello")),
            ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", Some("=?base64?literal?=")),
            ("=?BASE64?SGVsbG8?=", Some("=?BASE64?SGVsbG8?=")),
            ("=?base64?SGVs!!!bG8=?=", None),
            ("=?base64?/w==?=", None),
            ("=?base64?A?=", None),
            ("=?base64??=", Some("")),
        ] {
            assert_eq!(decoded(value).as_deref(), text, "{value}");
        }
    }
}
