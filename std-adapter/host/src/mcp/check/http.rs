//! The cases of Streamable HTTP itself: statuses, headers, sessions, events.

use hyper::http::response::Parts;
use hyper::{Method, StatusCode, header};
use rigline::json::Json;
use rigline::protocol::mcp::{LEGACY, MODERN};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{hello, modern};
use crate::check::{Bench, CaseFailure, Verdict};
use crate::host::Direction;
use crate::http_client;
use crate::mcp::stream::{ResponseBody, SESSION, is_stream, modern_headers, standard};

/// The longest body that is read, in bytes.
const BODY_LIMIT: usize = 16 << 20;
/// A page that no server knows.
const FOREIGN: &str = "http://rigline-check.invalid";
const VERSION: &str = "mcp-protocol-version";

/// An answer.
struct Response {
    head: Parts,
    /// The messages in it: those of events, or the body.
    messages: Vec<Value>,
    has_body: bool,
}

impl Response {
    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn code(&self) -> Option<i64> {
        self.messages.last()?["error"]["code"].as_i64()
    }

    fn session(&self) -> Option<String> {
        self.head.headers.get(SESSION).map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
    }

    /// That it has this status, and is an error with this code.
    fn expect(&self, what: &str, status: u16, code: i64) -> Result<(), CaseFailure> {
        if self.status() == status && self.code() == Some(code) {
            return Ok(());
        }
        let got = self.code().map_or_else(|| "no error".to_owned(), |code| format!("the error {code}"));
        fail(format!("{what}: expected {status} and the error {code}, got {} and {got}", self.status()))
    }
}

fn fail<T>(text: impl Into<String>) -> Result<T, CaseFailure> {
    Err(CaseFailure::Fail(text.into()))
}

/// Sends a request with the standard headers and these. One of the same name replaces a standard one, and an empty
/// value removes it.
async fn send(bench: &Bench, method: Method, own: &[(&str, &str)], body: &str) -> Result<Response, CaseFailure> {
    exchange(bench, method, own, body, |_| false).await
}

/// As [`send`]; it ends at the first message that is enough.
async fn exchange(
    bench: &Bench,
    method: Method,
    own: &[(&str, &str)],
    body: &str,
    is_enough: impl Fn(&Value) -> bool,
) -> Result<Response, CaseFailure> {
    bench.reach().await?;
    let mut headers = standard(&bench.credentials);
    headers.retain(|(name, _)| own.iter().all(|(other, _)| other != name));
    headers.extend(
        own.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| ((*name).into(), (*value).into())),
    );
    let said: String =
        own.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!(" {name}: {value};")).collect();
    bench.note(Direction::Sent, &format!("{method}{said} {body}"));
    let headers: Vec<_> =
        headers.iter().map(|(name, value): &(String, String)| (name.as_str(), value.as_str())).collect();
    let (mut answer, mut messages, mut text, mut head) = (ResponseBody::new(BODY_LIMIT), Vec::new(), Vec::new(), None);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let mut stop = Some(stop);
    let url = bench.target_url();
    let asked = http_client::request(url, method, &headers, body.as_bytes().to_vec(), |parts, bytes| {
        if head.is_none() {
            head = Some(parts.clone());
        }
        if text.len() < BODY_LIMIT {
            text.extend_from_slice(bytes);
        }
        answer.take(is_stream(&parts.headers), bytes, |message| {
            let message = serde_json::from_slice(message).unwrap_or(Value::Null);
            if is_enough(&message) {
                stop.take().map(|stop| stop.send(()));
            }
            messages.push(message);
        });
        true
    });
    let answered = timeout(bench.timeout, async {
        tokio::select! {
            head = asked => head.map(Some),
            Ok(()) = stopped => Ok(None),
        }
    });
    let head = match answered.await {
        Ok(Ok(whole)) => whole.or(head),
        Ok(Err(error)) => return fail(error.to_string()),
        Err(_) => return fail(format!("no whole answer in {:?}", bench.timeout)),
    };
    let Some(head) = head else { return fail("no answer") };
    if !is_stream(&head.headers) {
        messages.extend(serde_json::from_slice::<Value>(&text));
    }
    bench.note(Direction::Received, &format!("{} {}", head.status.as_u16(), String::from_utf8_lossy(&text).trim()));
    Ok(Response { head, messages, has_body: !text.is_empty() })
}

fn request(method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}")
}

/// Begins a session of the legacy era, and returns the headers for its requests.
async fn greet(bench: &Bench) -> Result<(Response, Vec<(&'static str, String)>), CaseFailure> {
    let reply = send(bench, Method::POST, &[], &request("initialize", &hello(LEGACY[0]).to_string())).await?;
    let Some(version) = reply.messages.last().and_then(|message| message["result"]["protocolVersion"].as_str()) else {
        return fail(format!("initialize was answered with {}", reply.status()));
    };
    let mut headers = vec![(VERSION, version.to_owned())];
    headers.extend(reply.session().map(|name| (SESSION, name)));
    Ok((reply, headers))
}

fn borrowed<'h>(headers: &'h [(&'static str, String)]) -> Vec<(&'h str, &'h str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A request of the modern era with the headers that it must have, but for those that are named.
async fn ask_modern(bench: &Bench, method: &str, params: Value, own: &[(&str, &str)]) -> Result<Response, CaseFailure> {
    let body = request(method, &modern(params));
    let standard = modern_headers(&Json::parse(body.as_bytes()).unwrap_or(Json::NULL));
    let is_kept = |name: &str| own.iter().all(|(other, _)| !other.eq_ignore_ascii_case(name));
    let mut headers: Vec<(&str, &str)> =
        standard.iter().map(|(name, value)| (*name, value.as_str())).filter(|(name, _)| is_kept(name)).collect();
    headers.extend(own);
    send(bench, Method::POST, &headers, &body).await
}

pub(super) async fn origin(bench: &mut Bench) -> Verdict {
    let hello = request("initialize", &hello(LEGACY[0]).to_string());
    let reply = send(bench, Method::POST, &[("origin", FOREIGN)], &hello).await?;
    match reply.status() {
        403 => Ok(None),
        status => fail(format!("a page of another origin must be refused with 403, and gets {status}")),
    }
}

pub(super) async fn notification(bench: &mut Bench) -> Verdict {
    let (_, headers) = greet(bench).await?;
    let body = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
    let reply = send(bench, Method::POST, &borrowed(&headers), body).await?;
    if reply.status() != 202 || reply.has_body {
        return fail(format!("a notification must be answered with 202 and no body, and gets {}", reply.status()));
    }
    Ok(None)
}

pub(super) async fn bad_json(bench: &mut Bench) -> Verdict {
    let (_, headers) = greet(bench).await?;
    for body in ["{\"jsonrpc\":\"2.0\",\"id\":", ""] {
        let reply = send(bench, Method::POST, &borrowed(&headers), body).await?;
        if !reply.head.status.is_client_error() {
            return fail(format!("what is not JSON must be an error, as 400 is, and gets {}", reply.status()));
        }
    }
    Ok(None)
}

/// A request gets one JSON object, or a stream of events that ends with it.
pub(super) async fn answer(bench: &mut Bench) -> Verdict {
    let (_, headers) = greet(bench).await?;
    let (name, arguments) = bench.calls.first().cloned().unwrap_or_default();
    let (method, params) = if name.is_empty() {
        ("tools/list", json!({ "_meta": { "progressToken": "rigline" } }))
    } else {
        ("tools/call", json!({ "name": name, "arguments": arguments, "_meta": { "progressToken": "rigline" } }))
    };
    let reply = send(bench, Method::POST, &borrowed(&headers), &request(method, &params.to_string())).await?;
    let kind =
        reply.head.headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    let kind = kind.unwrap_or_default();
    if !is_stream(&reply.head.headers) && !kind.starts_with("application/json") {
        return fail(format!(
            "a request must be answered with application/json or text/event-stream, and gets {kind:?}"
        ));
    }
    let Some((last, before)) = reply.messages.split_last() else { return fail(format!("{method} has no answer")) };
    if last["id"] != 1 || last.get("result").is_none() {
        return fail(format!("the last message must be the answer, and is {last}"));
    }
    match before.iter().find(|message| !message["method"].is_string() || message.get("id").is_some()) {
        Some(odd) => fail(format!("before the answer there may be notifications only, and there is {odd}")),
        None => Ok(None),
    }
}

/// It is a stream of events, or 405.
pub(super) async fn get(bench: &mut Bench) -> Verdict {
    let (_, headers) = greet(bench).await?;
    let mut headers = borrowed(&headers);
    headers.push(("accept", "text/event-stream"));
    let began = exchange(bench, Method::GET, &headers, "", |_| true);
    // Such a stream may have nothing to say for ever.
    let Ok(reply) = timeout(bench.timeout / 2, began).await else { return Ok(None) };
    let reply = reply?;
    let is_events = reply.head.status == StatusCode::OK && is_stream(&reply.head.headers);
    if is_events || reply.status() == 405 {
        return Ok(None);
    }
    fail(format!("GET must open a stream of events, or be refused with 405, and gets {}", reply.status()))
}

pub(super) async fn version(bench: &mut Bench) -> Verdict {
    let (_, mut headers) = greet(bench).await?;
    headers.retain(|(name, _)| *name != VERSION);
    headers.push((VERSION, "1.0".to_owned()));
    let reply = send(bench, Method::POST, &borrowed(&headers), &request("tools/list", "{}")).await?;
    match reply.status() {
        400 => Ok(None),
        status => fail(format!("an unsupported {VERSION} must be refused with 400, and gets {status}")),
    }
}

/// A session has a name of visible ASCII, is unknown after its end, and unknown ones are 404.
pub(super) async fn session(bench: &mut Bench) -> Verdict {
    let (reply, headers) = greet(bench).await?;
    let Some(name) = reply.session() else { return bench.skip("it names no session") };
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return fail(format!("the name of a session must be of visible ASCII characters, and is {name:?}"));
    }
    let (other, _) = greet(bench).await?;
    if other.session().as_ref() == Some(&name) {
        return fail("two sessions have one name");
    }
    let list = request("tools/list", "{}");
    let known = send(bench, Method::POST, &borrowed(&headers), &list).await?;
    if known.status() != 200 {
        return fail(format!("a request of a session gets {}", known.status()));
    }
    let unknown = [(VERSION, LEGACY[0]), (SESSION, "rigline-check-no-such-session")];
    let unknown = send(bench, Method::POST, &unknown, &list).await?;
    if unknown.status() != 404 {
        return fail(format!("an unknown session must be 404, and is {}", unknown.status()));
    }
    let ended = send(bench, Method::DELETE, &borrowed(&headers), "").await?;
    if ended.status() == 405 {
        return Ok(Some("clients cannot end a session".to_owned()));
    }
    if !ended.head.status.is_success() {
        return fail(format!("DELETE of a session gets {}", ended.status()));
    }
    match send(bench, Method::POST, &borrowed(&headers), &list).await?.status() {
        404 => Ok(None),
        status => fail(format!("a session that has ended must be 404, and is {status}")),
    }
}

pub(super) async fn modern_methods(bench: &mut Bench) -> Verdict {
    for method in [Method::GET, Method::DELETE] {
        let asked = send(bench, method.clone(), &[(VERSION, MODERN)], "");
        let status = match timeout(bench.timeout / 2, asked).await {
            Ok(reply) => reply?.status(),
            Err(_) => return fail(format!("{method} must be refused with 405, and opens a stream")),
        };
        if status != 405 {
            return fail(format!("{method} must be refused with 405, and gets {status}"));
        }
    }
    Ok(None)
}

pub(super) async fn modern_no_session(bench: &mut Bench) -> Verdict {
    let reply = ask_modern(bench, "server/discover", json!({}), &[(SESSION, "rigline-check-no-such-session")]).await?;
    if reply.status() != 200 {
        return fail(format!("a session's name must be ignored, and gets {}", reply.status()));
    }
    match reply.session() {
        None => Ok(None),
        Some(name) => fail(format!("no session may be named, and {name} is")),
    }
}

pub(super) async fn missing_header(bench: &mut Bench) -> Verdict {
    let unknown = json!({ "name": "rigline_no_such_tool", "arguments": {} });
    for name in [VERSION, "mcp-method", "mcp-name"] {
        let reply = ask_modern(bench, "tools/call", unknown.clone(), &[(name, "")]).await?;
        reply.expect(&format!("without {name}"), 400, -32020)?;
    }
    Ok(None)
}

pub(super) async fn mismatch(bench: &mut Bench) -> Verdict {
    let unknown = json!({ "name": "rigline_no_such_tool", "arguments": {} });
    for (name, value) in [
        (VERSION, LEGACY[0]),
        ("mcp-method", "tools/list"),
        ("mcp-method", "TOOLS/CALL"),
        ("mcp-name", "another_tool"),
        ("mcp-name", "=?base64?YW5vdGhlcl90b29s?="),
    ] {
        let reply = ask_modern(bench, "tools/call", unknown.clone(), &[(name, value)]).await?;
        reply.expect(&format!("{name}: {value}"), 400, -32020)?;
    }
    Ok(None)
}

pub(super) async fn encoded_name(bench: &mut Bench) -> Verdict {
    // The names agree, but there is no such tool.
    for (name, header) in [
        ("rigline_no_such_tool", "=?base64?cmlnbGluZV9ub19zdWNoX3Rvb2w=?="),
        ("Größe", "=?base64?R3LDtsOfZQ==?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ] {
        let reply =
            ask_modern(bench, "tools/call", json!({ "name": name, "arguments": {} }), &[("mcp-name", header)]).await?;
        if reply.code() == Some(-32020) || !matches!(reply.status(), 200 | 400 | 404) {
            return fail(format!("Mcp-Name: {header} is {name:?}, and is refused with {}", reply.status()));
        }
    }
    Ok(None)
}

pub(super) async fn unknown_method(bench: &mut Bench) -> Verdict {
    let reply = ask_modern(bench, "rigline/no-such-method", json!({}), &[]).await?;
    reply.expect("an unknown method", 404, -32601).map(|()| None)
}

pub(super) async fn unsupported_version(bench: &mut Bench) -> Verdict {
    let body = request("server/discover", &modern(json!({})).replace(MODERN, "2001-01-01"));
    let headers = [(VERSION, "2001-01-01"), ("mcp-method", "server/discover")];
    let reply = send(bench, Method::POST, &headers, &body).await?;
    reply.expect("an unsupported version", 400, -32022).map(|()| None)
}

/// `subscriptions/listen` is a stream of events, which acknowledges first.
pub(super) async fn events(bench: &mut Bench) -> Verdict {
    let body = request("subscriptions/listen", &modern(json!({ "notifications": {} })));
    let headers = [(VERSION, MODERN), ("mcp-method", "subscriptions/listen")];
    let reply = exchange(bench, Method::POST, &headers, &body, |_| true).await?;
    if reply.code() == Some(-32601) {
        return bench.skip("it has no subscriptions");
    }
    if !is_stream(&reply.head.headers) {
        return fail("subscriptions/listen must be answered with text/event-stream");
    }
    let method = reply.messages.first().map(|message| message["method"].clone()).unwrap_or_default();
    if method != "notifications/subscriptions/acknowledged" {
        return fail(format!("the first event must be the acknowledgement, and is {method}"));
    }
    let is_buffered = reply.head.headers.get("x-accel-buffering").is_none_or(|value| value != "no");
    Ok(is_buffered.then(|| "a stream should have X-Accel-Buffering: no, or proxies hold it back".to_owned()))
}
