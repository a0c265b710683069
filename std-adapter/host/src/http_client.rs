//! A small HTTP/1.1 client over hyper. It sends one `POST` of JSON over one connection, with limits
//! on time and size.
//!
//! hyper parses and writes HTTP. A client such as reqwest is not used, since it does things that
//! must not happen here: it follows redirects with the token, uses proxies of the environment,
//! keeps connections for later calls, and brings a TLS library.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::http::response::Parts;
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How much of an error's body is shown.
const SHOWN: usize = 512;

/// The reason why an HTTP request has no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The URL is not an address of the form `http://HOST[:PORT]/PATH`.
    #[error("{url} is not an address of the form http://HOST:PORT/PATH")]
    Address {
        /// The URL, as it was given.
        url: String,
    },
    /// TLS is not supported. A proxy on this machine can add it.
    #[error("{url}: https is not supported; use http, through a proxy if necessary")]
    Https {
        /// The URL, as it was given.
        url: String,
    },
    /// The connection to the server could not be opened.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// The host and the port.
        address: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The server did not answer completely within the time limit.
    #[error("no answer within {limit:?}")]
    Timeout {
        /// The time limit.
        limit: Duration,
    },
    /// The server redirects to another address, which is not followed.
    #[error("status {status}: the server sends us to {location:?}, which is not followed")]
    Redirect {
        /// The HTTP status.
        status: u16,
        /// The address that the server redirects to.
        location: String,
    },
    /// The HTTP status is not a success.
    #[error("status {status}: {body}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// The HTTP status is a success, but there is no body.
    #[error("status {status} without a body")]
    Empty {
        /// The HTTP status.
        status: u16,
    },
    /// The body is longer than the host accepts.
    #[error("the answer is longer than the limit of {limit} bytes")]
    TooLong {
        /// The longest accepted body, in bytes.
        limit: usize,
    },
    /// The answer is not HTTP, or ended early.
    #[error("the answer broke off: {reason}")]
    Broken {
        /// The fault of the answer.
        reason: String,
    },
}

/// The bounds of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) timeout: Duration,
    /// Of the answer's body, in bytes.
    pub(crate) limit: usize,
}

/// Sends `body` and returns the body of a 2xx answer.
pub(crate) async fn post(
    url: &str,
    credentials: Option<&Credentials>,
    body: Vec<u8>,
    bounds: Bounds,
) -> Result<Vec<u8>, HttpError> {
    let exchange = exchange(url, credentials, Some(body), bounds.limit);
    timeout(bounds.timeout, exchange).await.unwrap_or(Err(HttpError::Timeout { limit: bounds.timeout }))
}

/// Secret headers that each request to one server carries. No other server gets them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    headers: Vec<(String, String)>,
}

impl Credentials {
    /// Adds a bearer token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        self.with("authorization".to_owned(), format!("Bearer {token}"))
    }

    /// Adds a header, written as `NAME: VALUE`. It replaces a header of the same name.
    ///
    /// # Errors
    /// The text is not a header, or the connection or the protocol sets this header itself.
    pub fn with_header(self, text: &str) -> Result<Self, String> {
        let (name, value) = header(text)?;
        Ok(self.with(name.to_ascii_lowercase(), value))
    }

    fn with(mut self, name: String, value: String) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        self
    }

    /// Returns whether there are no secret headers.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// The headers, their names in small letters.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl std::fmt::Debug for Credentials {
    /// The names alone: the values are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.headers.iter().map(|(name, _)| name)).finish()
    }
}

/// Headers that only the HTTP client and the protocols may set.
const OURS: [&str; 8] =
    ["accept", "connection", "content-length", "content-type", "host", "te", "transfer-encoding", "upgrade"];

/// Reads a header, `NAME: VALUE`.
///
/// # Errors
/// It has no colon, RFC 9110 §5 does not allow the name or the value, or the header is not the caller's to choose.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once(':') else {
        // It may be a secret by itself.
        return Err("a header is NAME: VALUE, such as X-Rig: bench-3".to_owned());
    };
    let (name, value) = (name.trim(), value.trim());
    header::HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{name}` is not the name of a header"))?;
    let lower = name.to_ascii_lowercase();
    if OURS.contains(&lower.as_str()) {
        return Err(format!("header {name}: it is set by the connection, and cannot be chosen"));
    }
    if header::HeaderValue::from_str(value).is_err() {
        return Err(format!("header {name}: its value has characters that a header cannot have"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn parse(url: &str) -> Result<Uri, HttpError> {
    let address = || HttpError::Address { url: url.into() };
    let uri: Uri = url.parse().map_err(|_| address())?;
    match uri.scheme_str() {
        Some("http") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        Some("https") => Err(HttpError::Https { url: url.into() }),
        _ => Err(address()),
    }
}

/// A `POST` of a body, or a `GET` where there is none.
pub(crate) async fn exchange(
    url: &str,
    credentials: Option<&Credentials>,
    body: Option<Vec<u8>>,
    limit: usize,
) -> Result<Vec<u8>, HttpError> {
    let (uri, mut sender, connection) = open(url).await?;
    let method = if body.is_some() { Method::POST } else { Method::GET };
    let own = [("accept", Some("application/json")), ("content-type", body.as_ref().map(|_| "application/json"))];
    let mut headers: Vec<(&str, &str)> = credentials.into_iter().flat_map(Credentials::headers).collect();
    headers.extend(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let request = head(&uri, method, &headers, body.unwrap_or_default())?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let (head, mut body) = response.into_parts();
        let limit = if head.status.is_success() { limit } else { SHOWN };
        let mut text = Vec::new();
        if head.status.is_success() && body.size_hint().lower() > limit as u64 {
            return Err(HttpError::TooLong { limit });
        }
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
            let room = limit.saturating_sub(text.len());
            text.extend_from_slice(data.get(..data.len().min(room)).unwrap_or_default());
            match data.len() > room {
                true if head.status.is_success() => return Err(HttpError::TooLong { limit }),
                true => break,
                false => {}
            }
        }
        judge(head.status, &head.headers, text)
    };
    beside(pin!(connection), &mut false, exchange).await
}

/// Sends a request with the caller's headers, and returns the head of the answer, whatever its status. `received` gets
/// each part of the body when it arrives, and returns whether it wants more.
pub(crate) async fn request(
    url: &str,
    method: Method,
    headers: &[(&str, &str)],
    body: Vec<u8>,
    mut received: impl FnMut(&Parts, &[u8]) -> bool,
) -> Result<Parts, HttpError> {
    let mut response = response(url, method, headers, body).await?;
    while let Some(data) = response.next().await? {
        if !received(&response.head, &data) {
            break;
        }
    }
    Ok(response.head)
}

/// Sends a request with the caller's headers, and waits for the head of the answer.
pub(crate) async fn response(
    url: &str,
    method: Method,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<Response, HttpError> {
    let (uri, mut sender, connection) = open(url).await?;
    let request = head(&uri, method, headers, body)?;
    let mut connection = Box::pin(connection);
    let mut is_over = false;
    let sent = async { sender.send_request(request).await.map_err(|error| broken(&error)) };
    let (head, body) = beside(connection.as_mut(), &mut is_over, sent).await?.into_parts();
    Ok(Response { head, body, connection, is_over })
}

/// An answer whose body is read as its reader wants it: what is not read waits with the server.
pub(crate) struct Response {
    pub(crate) head: Parts,
    body: Incoming,
    connection: Pin<Box<Moving>>,
    is_over: bool,
}

impl Response {
    /// The next part of the body; none at its end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        let Self { body, connection, is_over, .. } = self;
        let next = async {
            while let Some(frame) = body.frame().await {
                if let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() {
                    return Ok(Some(data));
                }
            }
            Ok(None)
        };
        beside(connection.as_mut(), is_over, next).await
    }
}

/// Where a redirect leads that keeps method and body, and stays with the server: the token is for that one.
///
/// # Errors
/// It leads elsewhere, or nowhere.
pub(crate) fn redirected(url: &str, head: &Parts) -> Result<String, HttpError> {
    let location = location(&head.headers);
    let refused = || HttpError::Redirect { status: head.status.as_u16(), location: location.clone() };
    if !matches!(head.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
        return Err(refused());
    }
    let from = parse(url)?;
    let authority = from.authority().map_or("", |authority| authority.as_str());
    if location.starts_with('/') && !location.starts_with("//") {
        return Ok(format!("http://{authority}{location}"));
    }
    match parse(&location) {
        Ok(to) if to.authority() == from.authority() => Ok(location),
        _ => Err(refused()),
    }
}

fn head(uri: &Uri, method: Method, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Request<Full<Bytes>>, HttpError> {
    let request = Request::builder()
        .method(method)
        .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, uri.authority().map_or("", |authority| authority.as_str()))
        .header(header::USER_AGENT, concat!("rigline/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::new(Bytes::from(body))).map_err(|error| HttpError::Broken { reason: error.to_string() })
}

/// The host and the port of a server.
pub(crate) fn place(url: &str) -> Result<(String, u16), HttpError> {
    let uri = parse(url)?;
    let (host, port) = place_of(&uri);
    Ok((host.to_owned(), port))
}

fn place_of(uri: &Uri) -> (&str, u16) {
    let host = uri.host().unwrap_or_default();
    (host.trim_start_matches('[').trim_end_matches(']'), uri.port_u16().unwrap_or(80))
}

/// Connects to where `url` says.
async fn open(url: &str) -> Result<(Uri, http1::SendRequest<Full<Bytes>>, Moving), HttpError> {
    let uri = parse(url)?;
    let (host, port) = place_of(&uri);
    let address = format!("{}:{port}", uri.host().unwrap_or_default());
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|error| HttpError::Connect { address, reason: error.to_string() })?;
    let _ = stream.set_nodelay(true);
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    Ok((uri, sender, connection))
}

/// Whether a server listens there.
pub(crate) async fn reach(url: &str) -> Result<(), HttpError> {
    open(url).await.map(|_| ())
}

/// The connection that moves the bytes.
type Moving = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// Does an exchange while its connection moves the bytes.
async fn beside<T>(
    mut connection: Pin<&mut Moving>,
    is_over: &mut bool,
    exchange: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    // When it has ended, what it has read may still wait.
    let mut exchange = pin!(exchange);
    poll_fn(|task| {
        if let Poll::Ready(result) = exchange.as_mut().poll(task) {
            return Poll::Ready(result);
        }
        if !*is_over && connection.as_mut().poll(task).is_ready() {
            *is_over = true;
        }
        exchange.as_mut().poll(task)
    })
    .await
}

fn judge(status: StatusCode, headers: &hyper::HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, HttpError> {
    match status {
        status if status.is_success() && body.is_empty() => Err(HttpError::Empty { status: status.as_u16() }),
        // RFC 8259 §8.1: a byte order mark may be passed over.
        status if status.is_success() => Ok(match body.strip_prefix(b"\xEF\xBB\xBF") {
            Some(text) => text.to_vec(),
            None => body,
        }),
        status if status.is_redirection() => {
            Err(HttpError::Redirect { status: status.as_u16(), location: location(headers) })
        }
        status => {
            Err(HttpError::Status { status: status.as_u16(), body: String::from_utf8_lossy(&body).trim().to_owned() })
        }
    }
}

fn location(headers: &hyper::HeaderMap) -> String {
    headers.get(header::LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned()).unwrap_or_default()
}

fn broken(error: &hyper::Error) -> HttpError {
    use std::error::Error as _;
    let reason = error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    HttpError::Broken { reason }
}
