//! The client's side of Streamable HTTP as a stream of lines: each line that is written is sent by `POST`, and the
//! messages of the answers are read.
//!
//! A request has the headers that its era requires. In the legacy era the session that `initialize` began is named in
//! all others, and ended by `DELETE`. Requests are not answered in the order of their lines, and what is open when the
//! stream is dropped is abandoned. An answer that is not a message, such as an error of a proxy, becomes an error for
//! the request.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::{HeaderMap, Method, StatusCode};
use rigline::json::{Json, JsonKind};
use rigline::protocol::mcp;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex, split};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::host::HostError;
use crate::host::wire::{Connect, Connecting, RawConnection, TransportTraits};
use crate::http_client::{self, Credentials, HttpError};
use rigline_std::mutex::lock;

/// The session's header.
pub(super) const SESSION: &str = "mcp-session-id";
const IN_FLIGHT: usize = 64 * 1024;
/// The most answers to the server's requests that are being sent. A server that asks faster than it accepts them gets no more.
const ANSWERS: usize = 16;
/// The time limit for the server to accept a notification or an answer.
const NOTICE: Duration = Duration::from_secs(10);
/// How often a server may send a request elsewhere.
const REDIRECTS: usize = 5;
/// The time limit for ending a session.
const FAREWELL: Duration = Duration::from_secs(2);

/// A server at an address.
pub(super) struct HttpDialer {
    pub(super) url: String,
    /// The credentials that go with each request.
    pub(super) credentials: Credentials,
    /// The longest message that is accepted, in bytes.
    pub(super) limit: usize,
    /// The ends of its sessions.
    pub(super) farewells: Farewells,
}

/// The tasks of connections, which end the sessions with the server.
#[derive(Clone, Default)]
pub(super) struct Farewells(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Farewells {
    /// Waits until the sessions of all connections that were closed have ended at the server.
    pub(super) async fn said(&self) {
        let tasks = std::mem::take(&mut *lock(&self.0));
        for task in tasks {
            let _ = timeout(FAREWELL, task).await;
        }
    }
}

impl Connect for HttpDialer {
    fn name(&self) -> String {
        self.url.clone()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let reached = http_client::reach(&self.url).await;
            reached.map_err(|error| HostError::Open { what: self.url.clone(), source: io::Error::other(error) })?;
            let (ours, theirs) = duplex(IN_FLIGHT);
            let server = RemoteServer {
                url: self.url.clone(),
                credentials: self.credentials.clone(),
                limit: self.limit,
                session: Mutex::default(),
            };
            let task = tokio::spawn(pass(Arc::new(server), theirs));
            let mut farewells = lock(&self.farewells.0);
            farewells.retain(|task| !task.is_finished());
            farewells.push(task);
            let (reader, writer) = split(ours);
            Ok(RawConnection::new(reader, writer, TransportTraits::CHILD))
        })
    }
}

struct RemoteServer {
    url: String,
    credentials: Credentials,
    limit: usize,
    session: Mutex<RemoteSession>,
}

/// The agreement of `initialize`.
#[derive(Default)]
struct RemoteSession {
    name: Option<String>,
    version: Option<String>,
    /// The server does not know it any more.
    is_lost: bool,
}

/// How many messages of a server's wait to be passed on. Its streams are not read meanwhile.
const MESSAGES: usize = 16;

async fn pass(server: Arc<RemoteServer>, stream: DuplexStream) {
    let (reader, mut writer) = split(stream);
    let (send, mut received) = mpsc::channel::<Vec<u8>>(MESSAGES);
    let mut lines = BufReader::new(reader).split(b'\n');
    let (mut open, mut answers) = (JoinSet::new(), JoinSet::new());
    let mut requests = Requests::default();
    let mut notice: Option<Notice> = None;
    loop {
        tokio::select! {
            // What follows waits for it, so that the server gets them in their order. Answers are passed on meanwhile.
            cancelled = async { match &mut notice { Some(notice) => notice.await, None => pending().await } } => {
                notice = None;
                if let Some(id) = cancelled {
                    requests.abandon(&id);
                }
            }
            line = lines.next_segment(), if notice.is_none() => {
                let Ok(Some(line)) = line else { break };
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let json = Json::parse(&line).unwrap_or(Json::NULL);
                let (has_method, id) = (json.get("method").is_some(), json.get("id").map(|id| id.as_str().to_owned()));
                let cancelled = cancelled(json);
                let posted = post(Arc::clone(&server), line, send.clone());
                if has_method && id.is_none() {
                    notice = Some(Box::pin(async move {
                        let _ = timeout(NOTICE, posted).await;
                        cancelled
                    }));
                } else if has_method || id.is_none() {
                    requests.add(id, open.spawn(posted));
                } else if answers.len() < ANSWERS {
                    answers.spawn(timeout(NOTICE, posted));
                }
            }
            Some(line) = received.recv() => {
                if writer.write_all(&line).await.is_err() {
                    break;
                }
            }
            // Another begins with `initialize`, on another connection.
            Some(_) = open.join_next(), if !open.is_empty() => if server.session().is_lost { break },
            Some(_) = answers.join_next(), if !answers.is_empty() => if server.session().is_lost { break },
        }
    }
    while let Ok(line) = received.try_recv() {
        let _ = writer.write_all(&line).await;
    }
    open.shutdown().await;
    answers.shutdown().await;
    let name = server.session().name.take();
    if let Some(name) = name {
        let headers = server.headers(&[(SESSION, &name)]);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let ended = http_client::request(&server.url, Method::DELETE, &headers, Vec::new(), |_, _| true);
        let _ = timeout(FAREWELL, ended).await;
    }
}

/// A notification that is being sent. It gives the id of the request that it cancels.
type Notice = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// The request that a notification cancels.
fn cancelled(message: Json<'_>) -> Option<String> {
    let method = message.get("method")?.text()?;
    let id = message.get("params")?.get("requestId")?;
    (method == "notifications/cancelled").then(|| id.as_str().to_owned())
}

/// The requests whose answers are being received, by their ids.
#[derive(Default)]
struct Requests(Vec<(String, AbortHandle)>);

impl Requests {
    fn add(&mut self, id: Option<String>, task: AbortHandle) {
        self.0.retain(|(_, task)| !task.is_finished());
        self.0.extend(id.map(|id| (id, task)));
    }

    /// Nobody waits for its answer any more, which may never come.
    fn abandon(&mut self, id: &str) {
        self.0.iter().filter(|(known, _)| known == id).for_each(|(_, task)| task.abort());
    }
}

impl RemoteServer {
    fn session(&self) -> MutexGuard<'_, RemoteSession> {
        lock(&self.session)
    }

    fn headers(&self, own: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut headers = standard(&self.credentials);
        headers.extend(own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        headers
    }

    /// The headers that go with a message.
    fn headers_of(&self, message: &Json<'_>) -> Vec<(String, String)> {
        let modern = modern_headers(message);
        if !modern.is_empty() {
            let modern: Vec<_> = modern.iter().map(|(name, value)| (*name, value.as_str())).collect();
            return self.headers(&modern);
        }
        let session = self.session();
        let mut own = Vec::new();
        own.extend(session.version.as_deref().map(|version| ("mcp-protocol-version", version)));
        own.extend(session.name.as_deref().map(|name| (SESSION, name)));
        self.headers(&own)
    }
}

/// The headers of every message, as real clients send them.
pub(super) fn standard(credentials: &Credentials) -> Vec<(String, String)> {
    let mut headers = vec![
        ("accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ("content-type".to_owned(), "application/json".to_owned()),
    ];
    // The protocol's own are set where they are known.
    let given = credentials.headers().filter(|(name, _)| !name.starts_with("mcp-"));
    headers.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
    headers
}

/// Streamable HTTP, Request Metadata: the headers that repeat what a message of the modern era says; none for one of the legacy era.
pub(super) fn modern_headers(message: &Json<'_>) -> Vec<(&'static str, String)> {
    let text = |json: Option<Json<'_>>| json.and_then(|json| json.text()).map(|text| text.to_string());
    let params = message.get("params").unwrap_or(Json::NULL);
    let version = params.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion"));
    let Some(version) = text(version) else { return Vec::new() };
    let mut headers = vec![("mcp-protocol-version", encoded(&version))];
    let method = text(message.get("method")).unwrap_or_default();
    if method == "tools/call" {
        headers.extend(text(params.get("name")).map(|name| ("mcp-name", encoded(&name))));
    }
    headers.push(("mcp-method", encoded(&method)));
    headers
}

/// Streamable HTTP, Value Encoding.
fn encoded(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value;
    let is_sentinel = value.starts_with("=?base64?") && value.ends_with("?=");
    if is_plain && !is_sentinel { value.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(value)) }
}

/// Posts a line, and brings what comes back.
async fn post(server: Arc<RemoteServer>, line: Vec<u8>, send: mpsc::Sender<Vec<u8>>) {
    let json = Json::parse(&line).unwrap_or(Json::NULL);
    // An answer to a request of the server's gets none.
    let id = json.get("method").and_then(|_| json.get("id")).map(|id| id.as_str().to_owned());
    let is_initialize =
        json.get("method").and_then(|method| method.text()).is_some_and(|method| method == "initialize");
    let headers = server.headers_of(&json);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let (mut url, mut redirects) = (server.url.clone(), 0);
    let (answered, body) = loop {
        let mut body = ResponseBody::new(server.limit);
        let answered = async {
            let mut response = http_client::response(&url, Method::POST, &headers, line.clone()).await?;
            let is_stream = is_stream(&response.head.headers);
            // The rest of an answer that is too long may never end.
            while !body.is_too_long
                && let Some(bytes) = response.next().await?
            {
                let mut messages = Vec::new();
                body.take(is_stream, &bytes, |message| messages.push([message, b"\n"].concat()));
                for message in messages {
                    // The server waits for the one who reads.
                    let _ = send.send(message).await;
                }
                // A server that never pauses leaves time for timeouts and signals.
                tokio::task::yield_now().await;
            }
            Ok::<_, http_client::HttpError>(response.head)
        };
        match answered.await {
            // Servers have `/mcp/` where `/mcp` was asked for.
            Ok(head) if head.status.is_redirection() => match http_client::redirected(&url, &head) {
                Ok(next) if redirects < REDIRECTS => (url, redirects) = (next, redirects + 1),
                Ok(_) => break (Err(format!("more than {REDIRECTS} redirects")), body),
                Err(error) => break (Err(error.to_string()), body),
            },
            answered => break (answered.map_err(|error| error.to_string()), body),
        }
    };
    let fault = match answered {
        Ok(head) => {
            if is_initialize && head.status.is_success() {
                let name = head.headers.get(SESSION).and_then(|name| name.to_str().ok()).map(str::to_owned);
                *server.session() = RemoteSession { name, version: body.version(), is_lost: false };
            }
            let is_lost = head.status == StatusCode::NOT_FOUND && headers.iter().any(|(name, _)| *name == SESSION);
            server.session().is_lost |= is_lost && !body.is_error_of(id.as_deref());
            body.end(head.status, is_stream(&head.headers), id.as_deref())
        }
        Err(text) => Err(text),
    };
    let message = match (fault, id) {
        (Ok(None), _) | (Err(_), None) => return,
        (Ok(Some(message)), _) => message,
        (Err(text), Some(id)) => {
            let id = serde_json::from_str::<Value>(&id).unwrap_or_default();
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32000, "message": text } }).to_string().into_bytes()
        }
    };
    let _ = send.send([&*message, b"\n"].concat()).await;
}

pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(hyper::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

/// A body as it comes: one message, or events.
pub(super) struct ResponseBody {
    limit: usize,
    bytes: Vec<u8>,
    /// How many of the bytes are known to have no end of a line.
    searched: usize,
    /// The data of the event that is not whole yet.
    data: Vec<u8>,
    is_too_long: bool,
    /// The last whole message.
    last: Vec<u8>,
    /// A line of a stream has ended, which was the first.
    has_begun: bool,
    /// The last line ended with a CR.
    is_after_cr: bool,
}

impl ResponseBody {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: Vec::new(),
            searched: 0,
            data: Vec::new(),
            is_too_long: false,
            last: Vec::new(),
            has_begun: false,
            is_after_cr: false,
        }
    }

    /// Takes bytes. Messages in events are given as soon as they are whole.
    pub(super) fn take(&mut self, is_stream: bool, bytes: &[u8], mut give: impl FnMut(&[u8])) {
        if self.is_too_long {
            // Nothing of it is taken for a message.
            return;
        }
        if self.bytes.len() + self.data.len() + bytes.len() > self.limit {
            self.is_too_long = true;
            (self.bytes, self.searched, self.data) = (Vec::new(), 0, Vec::new());
            return;
        }
        self.bytes.extend_from_slice(bytes);
        if !is_stream {
            return;
        }
        let (mut taken, mut searched) = (0, self.searched);
        // A CR ends a line, too, and the LF that may follow it then ends an empty one.
        let is_end = |byte: &u8| matches!(*byte, b'\n' | b'\r');
        while let Some(length) = self.bytes.get(searched..).and_then(|rest| rest.iter().position(is_end)) {
            let end = searched + length;
            let is_crlf = self.is_after_cr && end == taken && self.bytes.get(end) == Some(&b'\n');
            self.is_after_cr = self.bytes.get(end) == Some(&b'\r');
            let mut line = self.bytes.get(taken..end).unwrap_or_default();
            (taken, searched) = (end + 1, end + 1);
            if is_crlf {
                continue;
            }
            if !std::mem::replace(&mut self.has_begun, true) {
                line = without_bom(line);
            }
            if let Some(data) = line.strip_prefix(b"data:") {
                self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
                self.data.push(b' ');
            } else if line.is_empty()
                && let Some(message) = self.event()
            {
                give(&message);
                self.last = message;
            }
        }
        self.bytes.drain(..taken);
        self.searched = self.bytes.len();
    }

    /// The data of the event that has ended.
    fn event(&mut self) -> Option<Vec<u8>> {
        let data = std::mem::take(&mut self.data);
        let message = data.trim_ascii();
        (!message.is_empty()).then(|| message.to_vec())
    }

    /// The version that the answer to `initialize` has.
    fn version(&self) -> Option<String> {
        let message = if self.last.is_empty() { without_bom(&self.bytes) } else { &self.last };
        let version = Json::parse(message).ok()?.get("result")?.get("protocolVersion")?.text()?.to_string();
        mcp::LEGACY.contains(&version.as_str()).then_some(version)
    }

    /// Whether it is an error that names the request: then the status is about that.
    fn is_error_of(&self, id: Option<&str>) -> bool {
        let Ok(json) = Json::parse(&self.bytes) else { return false };
        let code = json.get("error").and_then(|error| error.get("code")?.number()?.to_i64().ok());
        code == Some(-32601) && json.get("id").map(|id| id.as_str()) == id
    }

    /// The message that is left at the end, or why there is none for the request.
    fn end(mut self, status: StatusCode, is_stream: bool, id: Option<&str>) -> Result<Option<Vec<u8>>, String> {
        if self.is_too_long {
            return Err(HttpError::TooLong { limit: self.limit }.to_string());
        }
        if is_stream {
            let is_answer =
                |text: &[u8]| Json::parse(text).is_ok_and(|json| json.get("id").map(|id| id.as_str()) == id);
            if is_answer(&self.last) || id.is_none() {
                return Ok(None);
            }
            // Some servers close the stream without the empty line that ends an event.
            let mut last = None;
            self.take(true, b"\n\n", |message| last = Some(message.to_vec()));
            return match last.filter(|message| is_answer(message)) {
                Some(message) => Ok(Some(message)),
                None => Err("the stream of events ended without an answer".to_owned()),
            };
        }
        let bytes = without_bom(&self.bytes).to_vec();
        self.bytes = bytes;
        let is_message = Json::parse(&self.bytes).is_ok_and(|json| {
            json.kind() == JsonKind::Array || json.get("result").is_some() || json.get("error").is_some()
        });
        if is_message {
            let mut line = self.bytes;
            line.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
            return Ok(Some(line));
        }
        let text = String::from_utf8_lossy(self.bytes.get(..200).unwrap_or(&self.bytes)).into_owned();
        Err(format!("status {}: {}", status.as_u16(), text.trim()))
    }
}

/// RFC 8259 §8.1, and the format of event streams: a byte order mark may be passed over.
fn without_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_into_headers_as_they_can() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("", ""),
        ] {
            assert_eq!(encoded(value), header);
        }
    }

    #[test]
    fn events_are_put_together_whatever_the_cuts() {
        let text =
            b"event: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n: beat\n\nid: 7\ndata:\n\ndata:{\"b\":2}\n\ndata: {";
        for size in 1..text.len() {
            let (mut answer, mut messages) = (ResponseBody::new(1000), Vec::new());
            for part in text.chunks(size) {
                answer.take(true, part, |message| messages.push(String::from_utf8(message.to_vec()).unwrap()));
            }
            assert_eq!(messages, ["{\"a\": 1}", "{\"b\":2}"], "{size}");
        }
        let mut answer = ResponseBody::new(10);
        answer.take(false, &[b' '; 11], |_| {});
        assert!(answer.end(StatusCode::OK, false, Some("1")).unwrap_err().contains("10"));
    }

    /// The end of what is too long is not taken for a message, wherever it was cut.
    /// Reports: rust-mcp-stack/rust-mcp-sdk#151, theoriclabs/LeanDB#51, WingedGuardian/GENesis-AGI#1625.
    #[test]
    fn no_part_of_an_event_that_is_too_long_is_a_message() {
        let text = format!("data: {}data: {{\"id\":1}}\n\n", "x".repeat(40));
        for cut in 1..text.len() {
            let (mut answer, mut count) = (ResponseBody::new(30), 0);
            answer.take(true, &text.as_bytes()[..cut], |_| count += 1);
            answer.take(true, &text.as_bytes()[cut..], |_| count += 1);
            assert_eq!(count, 0, "{cut}");
            assert!(answer.end(StatusCode::OK, true, Some("1")).unwrap_err().contains("30"));
        }
    }
}
