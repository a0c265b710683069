//! The common parts of servers of JSON-RPC lines: reading lines, admitting clients, and answering.

use std::borrow::Cow;
use std::future::pending;
use std::time::Duration;

use rigline::frame::{Frame, HeapFramer};
use rigline::json::{Json, JsonKind};
use rigline::rpc;
use tokio::time::{Instant, sleep_until};

use crate::http_sniff::{Opening, is_http};
use rigline_std::net::Token;

mod entrance;
mod output;
mod serve;

pub use entrance::Entrance;
pub use output::LOG_BACKLOG;
pub use output::{Output, Queue};
pub use serve::{End, serve, serve_tcp};

/// How many bytes a client may send before its token is known.
const BEFORE_TOKEN: usize = 16 << 10;

/// The longest time in which a client must send its token, the next part of a long line, or read
/// the next part of a reply.
pub const STALLED: Duration = Duration::from_secs(10);

/// An incomplete line with fewer bytes than this has no time limit, since it occupies little memory.
const SMALL: usize = 64 << 10;

/// How large the replies are that are written where they are to be.
const USUAL_REPLY: usize = 8 << 10;

/// The answer to an HTTP request.
const NO_HTTP: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\
    \"message\":\"this is not an HTTP server, and nothing was run; send one JSON-RPC request per line\"}}\n";

/// The JSON-RPC error code for a client that may not ask, or may not name this file: -32000.
pub const NOT_ALLOWED: i32 = -32000;

/// The answer to a client without the token.
const TOKEN_REQUIRED: &str =
    "the token of this server is required: send the method `authenticate` with it as the first line";

/// Method of the line by which a client sends its token: `{"token":TOKEN}`.
const AUTHENTICATE: &str = "authenticate";

/// The lines that a client sends.
pub struct Input {
    framer: HeapFramer,
    /// Checks that only matter for clients on a socket, such as whether they send HTTP.
    is_socket: bool,
    has_telnet: bool,
    opening: Opening,
    token: Option<Token>,
    is_first: bool,
    received: usize,
    refused: Option<Vec<u8>>,
    since: Instant,
}

/// Waits until `deadline`. If there is none, it waits forever.
pub async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// The next thing that a server has to do for a client.
#[derive(Debug)]
pub enum Event<'a> {
    /// A line with a request. The server must handle it.
    Line(&'a [u8]),
    /// These bytes must be sent to the client. Nothing else is to be done.
    Answer(Vec<u8>),
    /// Nothing is to be done, and nothing is to be sent.
    Nothing,
    /// These bytes must be sent, and then the connection must be closed.
    Refusal(Vec<u8>),
}

impl Input {
    /// The lines of standard input. A line may have `limit` bytes.
    pub fn of_process(limit: usize) -> Self {
        Self {
            framer: HeapFramer::new(limit),
            is_socket: false,
            has_telnet: false,
            opening: Opening::default(),
            token: None,
            is_first: true,
            received: 0,
            refused: None,
            since: Instant::now(),
        }
    }

    /// The lines of a socket. A line may have `limit` bytes. If there is a token, the first line
    /// must send it.
    pub fn of_socket(limit: usize, token: Option<Token>) -> Self {
        Self { is_socket: true, token, ..Self::of_process(limit) }
    }

    /// Skips the negotiation that telnet sends before lines.
    #[must_use]
    pub fn with_telnet(self) -> Self {
        Self { has_telnet: true, ..self }
    }

    /// Returns free memory that the next bytes of the client can be read into.
    pub fn space(&mut self) -> &mut [u8] {
        self.framer.space()
    }

    /// Takes the first `count` bytes of [`space`](Self::space) as received.
    pub fn commit(&mut self, count: usize) {
        self.received = self.received.saturating_add(count);
        if self.is_socket && self.refused.is_none() {
            let read = self.framer.space().get(..count).unwrap_or_default();
            if self.opening.is_http(read) {
                self.refused = Some(NO_HTTP.to_vec());
            }
        }
        self.framer.commit(count);
    }

    /// Records the end of the input. A last line without a newline is then complete.
    pub fn finish(&mut self) {
        self.framer.finish();
    }

    /// Returns whether everything that was received has been handled.
    pub fn is_empty(&self) -> bool {
        self.framer.buffered() == 0 && self.refused.is_none()
    }

    /// Returns the time by which more bytes must come. A client that takes longer is
    /// [refused](Self::stalled). Returns `None` if there is no such time.
    pub fn deadline(&self) -> Option<Instant> {
        match (&self.token, self.is_socket) {
            (Some(_), true) => Some(self.since + STALLED),
            (None, true) if self.framer.buffered() > SMALL => Some(Instant::now() + STALLED),
            _ => None,
        }
    }

    /// Returns the answer to a client that exceeded the deadline.
    pub fn stalled(&self) -> Vec<u8> {
        if self.token.is_some() {
            return no_token();
        }
        error_line(rpc::INVALID_REQUEST, &format!("the rest of a line did not come within {STALLED:?}"))
    }

    /// Returns the next event. Returns `None` if no complete line has come.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        if let Some(refusal) = self.refused.take() {
            return Some(Event::Refusal(refusal));
        }
        let Some(frame) = self.framer.next_frame() else {
            let is_too_much = self.token.is_some() && self.received > BEFORE_TOKEN;
            return is_too_much.then(|| Event::Refusal(no_token()));
        };
        let line = match frame {
            Frame::Line(line) => &*line,
            Frame::TooLong(_) if self.token.is_some() => return Some(Event::Refusal(no_token())),
            Frame::TooLong(fault) => {
                self.is_first = false;
                return Some(Event::Answer(rpc::answer_too_long(fault, &mut [0; 512]).to_vec()));
            }
        };
        let line = if self.has_telnet { without_telnet(line) } else { line };
        if self.is_socket && is_http(line) {
            return Some(Event::Refusal(NO_HTTP.to_vec()));
        }
        if std::mem::take(&mut self.is_first)
            && self.is_socket
            && let Some(event) = authenticate(line, &mut self.token)
        {
            return Some(event);
        }
        Some(if is_answer(line) { Event::Nothing } else { Event::Line(line) })
    }
}

/// The outcome of a socket's first line; none if it is a request like any other.
fn authenticate(line: &[u8], token: &mut Option<Token>) -> Option<Event<'static>> {
    if line.trim_ascii_start().first() == Some(&b'[') {
        return token.is_some().then(|| Event::Refusal(no_token()));
    }
    let (mut asked, mut is_right) = (false, false);
    let mut memory = [0; 2048];
    let reply = rpc::answer(line, &mut memory, &mut |incoming, out| {
        asked = incoming.method == *AUTHENTICATE;
        let given = incoming.params.get("token").and_then(|token| token.text());
        let is_token = |token: &Token| given.is_some_and(|given| token.is(given.to_cow().as_bytes()));
        is_right = asked && token.as_ref().is_none_or(is_token);
        if is_right {
            out.raw(b",\"result\":{}}");
        } else {
            out.raw(refusal_body(NOT_ALLOWED, TOKEN_REQUIRED).as_bytes());
        }
    });
    let reply = reply.map(<[u8]>::to_vec);
    if is_right {
        *token = None;
        return Some(reply.map_or(Event::Nothing, Event::Answer));
    }
    token.is_some().then(|| Event::Refusal(reply.unwrap_or_else(no_token)))
}

/// Whether a line is an answer of a protocol other than JSON-RPC, whose answers are known by themselves: two endpoints that are
/// connected by mistake, or a line that echoes, would go on for ever if answers were answered.
fn is_answer(line: &[u8]) -> bool {
    // Requests, most of them, are not looked at any further.
    if !line.windows(4).any(|part| part == b"\"ok\"") {
        return false;
    }
    let Ok(json) = Json::parse(line) else { return false };
    json.kind() == JsonKind::Object
        && json.get("ok").is_some_and(|ok| matches!(ok.kind(), JsonKind::Bool))
        && ["jsonrpc", "method", "op", "protocol_version"].iter().all(|name| json.get(name).is_none())
}

/// Returns the part of an error reply that follows the id.
pub fn refusal_body(code: i32, message: &str) -> String {
    format!(",\"error\":{}}}", serde_json::json!({ "code": code, "message": message }))
}

fn no_token() -> Vec<u8> {
    error_line(NOT_ALLOWED, TOKEN_REQUIRED)
}

/// Returns an error reply without an id, as a line.
pub fn error_line(code: i32, message: &str) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":null{}\n", refusal_body(code, message)).into_bytes()
}

/// Answers a line, which may be a batch. `serve` returns the part of each reply that follows the
/// id: `,"result":…}` or `,"error":…}`.
///
/// A reply of more than `limit` bytes is replaced by the error -32603, which names the needed size.
pub fn answer(line: &[u8], limit: usize, serve: &mut dyn FnMut(rpc::Incoming<'_>) -> Vec<u8>) -> Option<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    let mut memory = vec![0; limit.min(room_around(line).saturating_add(USUAL_REPLY)).saturating_add(1)];
    let reply = rpc::answer(line, &mut memory, &mut |incoming, out| {
        let body = serve(incoming);
        out.raw(&body);
        bodies.push(body);
    });
    let size = bodies.iter().map(Vec::len).sum::<usize>();
    if size <= USUAL_REPLY {
        return reply.map(<[u8]>::to_vec);
    }
    assemble(line, limit, bodies)
}

/// The reply to a line whose requests came to these bodies, one for each request and notification.
fn assemble(line: &[u8], limit: usize, bodies: Vec<Vec<u8>>) -> Option<Vec<u8>> {
    let size = bodies.iter().map(Vec::len).sum::<usize>();
    let needed = size.saturating_add(bodies.len().saturating_mul(1024)).saturating_add(room_around(line));
    let mut memory = vec![0; limit.min(needed).saturating_add(1)];
    let mut bodies = bodies.into_iter();
    let length = rpc::answer(line, &mut memory, &mut |_, writer| {
        writer.raw(&bodies.next().unwrap_or_default());
    })?
    .len();
    memory.truncate(length);
    Some(memory)
}

/// Replaces the line breaks between the tokens of a JSON text by spaces.
pub fn on_one_line(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| matches!(byte, b'\r' | b'\n')) {
        text.replace(['\r', '\n'], " ").into()
    } else {
        text.into()
    }
}

/// The room for the line's errors, and for what goes around its results.
fn room_around(line: &[u8]) -> usize {
    // A batch has up to 64 members.
    if line.trim_ascii_start().first() == Some(&b'[') { 64 * 1024 } else { 1024 }
}

/// A line without telnet's negotiation before it (RFC 854): 255 begins it, a byte that UTF-8 does not have.
#[allow(clippy::match_same_arms, reason = "an arm for each command of the RFC")]
fn without_telnet(mut line: &[u8]) -> &[u8] {
    loop {
        line = match line {
            // Will, won't, do, don't: and what.
            [255, 251..=254, _, rest @ ..] => rest,
            // Subnegotiation, up to its end.
            [255, 250, rest @ ..] => match rest.windows(2).position(|pair| pair == [255, 240]) {
                Some(end) => rest.get(end + 2..).unwrap_or_default(),
                None => return line,
            },
            [255, 241..=249, rest @ ..] => rest,
            _ => return line,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telnets_negotiation_is_left_out() {
        let table: &[(&[u8], &[u8])] = &[
            (b"{}", b"{}"),
            (b"\xFF\xFD\x03\xFF\xFB\x18{}", b"{}"),
            (b"\xFF\xFA\x18\x01\xFF\xF0{}", b"{}"),
            (b"\xFF\xF1{}", b"{}"),
            (b"\xFF\xFE", b"\xFF\xFE"),
        ];
        for (line, left) in table {
            assert_eq!(without_telnet(line), *left);
        }
    }

    /// The outcome of bytes: `line`, the answer, or `! ` and the refusal.
    fn events(token: Option<&str>, bytes: &str) -> Vec<String> {
        let mut input = Input::of_socket(1000, token.map(|token| Token::new(token).unwrap()));
        let mut events = Vec::new();
        let mut bytes = bytes.as_bytes();
        while !bytes.is_empty() {
            let space = input.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            input.commit(count);
            bytes = &bytes[count..];
            while let Some(event) = input.next_event() {
                let is_over = matches!(event, Event::Refusal(_));
                events.push(match event {
                    Event::Line(line) => String::from_utf8_lossy(line).into_owned(),
                    Event::Answer(line) => format!("= {}", String::from_utf8_lossy(&line).trim_end()),
                    Event::Nothing => "-".to_owned(),
                    Event::Refusal(line) => format!("! {}", String::from_utf8_lossy(&line).trim_end()),
                });
                if is_over {
                    return events;
                }
            }
        }
        events
    }

    #[test]
    fn nothing_is_asked_before_the_token_is_known() {
        const ASK: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eval.list"}"#;
        let with = |id: &str, token: &str| {
            format!(r#"{{"jsonrpc":"2.0",{id}"method":"authenticate","params":{{"token":{token}}}}}"#)
        };
        let right = with(r#""id":7,"#, r#""s3cret""#);
        assert_eq!(
            events(Some("s3cret"), &format!("{right}\n{ASK}\n")),
            [r#"= {"jsonrpc":"2.0","id":7,"result":{}}"#, ASK]
        );
        assert_eq!(events(Some("s3cret"), &format!("{}\n{ASK}\n", with("", r#""s3cret""#))), ["-", ASK]);
        assert_eq!(events(Some("s3cret"), &format!("{}\n{ASK}\n", with("", r#""s3\u0063ret""#))), ["-", ASK]);
        for first in [
            ASK.to_owned(),
            with(r#""id":7,"#, r#""s3crets""#),
            with(r#""id":7,"#, r#""""#),
            with(r#""id":7,"#, "null"),
            with("", r#""wrong""#),
            r#"{"jsonrpc":"2.0","id":7,"method":"authenticate"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":7,"method":"authenticate","params":["s3cret"]}"#.to_owned(),
            format!("[{right},{ASK}]"),
            "nonsense".to_owned(),
            r#"{"ok":true}"#.to_owned(),
            "x".repeat(2000),
            "GET / HTTP/1.1".to_owned(),
        ] {
            let seen = events(Some("s3cret"), &format!("{first}\n{right}\n{ASK}\n"));
            assert!(seen.len() == 1 && seen[0].starts_with("! {\"jsonrpc\":\"2.0\","), "{first}: {seen:?}");
        }
        // Without an end, too.
        assert_eq!(events(Some("s3cret"), &"x".repeat(40_000)).len(), 1);
        // A client that sends one to a server that asks for none is answered.
        assert_eq!(events(None, &format!("{right}\n{ASK}\n")).last().unwrap(), ASK);
        assert_eq!(events(None, &format!("{ASK}\n{right}\n")), [ASK, &right]);
    }

    #[test]
    fn answers_of_other_protocols_get_silence() {
        for line in [
            r#"{"ok":true,"result":{}}"#,
            r#"{"ok":false,"error":{"code":"bad_request","message":"m"}}"#,
            r#"{"ok":false,"protocol_version_":1,"error":{}}"#,
        ] {
            assert_eq!(events(None, &format!("{line}\n")), ["-"], "{line}");
        }
        for line in
            [r#"{"ok":1}"#, r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"ok":true},"ok":true}"#, "[\"ok\"]"]
        {
            assert_eq!(events(None, &format!("{line}\n")), [line]);
        }
    }

    #[test]
    fn replies_of_any_size_up_to_the_limit() {
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
        let whole = |limit: usize, size: usize| {
            let mut calls = 0;
            let reply = answer(line, limit, &mut |_| {
                calls += 1;
                format!(",\"result\":\"{}\"}}", "x".repeat(size)).into_bytes()
            });
            assert_eq!(calls, 1);
            reply.unwrap()
        };
        let around = br#"{"jsonrpc":"2.0","id":1,"result":""}"#.len();
        for size in [0, 1, USUAL_REPLY - 20, USUAL_REPLY, USUAL_REPLY + 1, 100_000] {
            assert_eq!(whole(1 << 20, size).len(), around + size + 1, "{size}");
            assert_eq!(whole((around + size).max(600), size).len(), around + size + 1, "{size}: at the limit");
        }
        let beyond = String::from_utf8(whole(around + 99_999, 100_000)).unwrap();
        assert!(beyond.contains("-32603") && beyond.contains(&(around + 100_000).to_string()), "{beyond}");
    }
}
