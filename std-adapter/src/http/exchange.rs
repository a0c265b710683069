//! JSON-RPC requests of many clients on one stream of lines to the extension, each under an id of the server's own.
//!
//! Clients choose ids without knowing of each other. So each request gets an id that is unique here, also as its progress
//! token, and what the extension writes is brought to the request that it is about, with the client's own id and token. The
//! extension reads all the time: it answers what need not wait while a call runs, and can cancel one.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{self, Poll, ready};

use embedded_io_async::{ErrorType, Read, Write};
use tokio::sync::mpsc;

use super::body;
use crate::net::Token;
use crate::sync::lock;

/// How much of what comes before a reply waits for a client that does not read, in bytes. What is beyond it is dropped.
const BACKLOG: usize = 8 << 20;

/// The most sessions that are remembered. One more, and the one that was silent for longest is forgotten.
pub(crate) const SESSIONS: usize = 1000;

/// How a protocol of JSON-RPC writes what is not a reply.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// What a progress notification begins with, up to its token.
    pub(crate) progress: &'static str,
    /// The notification that cancels a request.
    pub(crate) cancel: fn(u64) -> String,
}

/// The stream, as requests see it.
#[derive(Debug)]
pub(crate) struct Exchange {
    dialect: &'static Dialect,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    input: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// For the extension's thread, once.
    output: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
    /// The requests that are not answered yet, the oldest first.
    open: BTreeMap<u64, Open>,
    last: u64,
    /// The sessions, the one that was silent for longest first.
    sessions: VecDeque<Session>,
    /// Whether the extension knows that a session has begun.
    has_begun: bool,
}

#[derive(Debug)]
struct Session {
    name: String,
    /// The least level of the logs that its client wants, as a number of the protocol's.
    least_level: usize,
}

#[derive(Debug)]
struct Open {
    lines: mpsc::UnboundedSender<Line>,
    /// How many bytes of notifications wait there.
    waiting: Arc<AtomicUsize>,
    /// The JSON texts of the client's own id and token.
    id: String,
    token: Option<String>,
    /// Whether logs while it is the oldest are about it.
    is_call: bool,
    /// The session that it is of.
    session: Option<String>,
}

/// A line for a request, without its end.
#[derive(Debug)]
pub(crate) enum Line {
    /// A notification about it.
    Notification(Vec<u8>),
    /// Its reply; nothing follows.
    Reply(Vec<u8>),
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Too many wait.
    Full,
    /// The extension has ended.
    Gone,
}

/// What a request is, and the parts of it that are replaced.
#[derive(Debug)]
pub(crate) struct Outgoing<'t> {
    /// The request's JSON text.
    pub(crate) text: &'t str,
    /// Its id in that text.
    pub(crate) id: &'t str,
    /// Its progress token in that text, if it has one.
    pub(crate) token: Option<&'t str>,
    /// Whether it runs an operation, so that logs are about it.
    pub(crate) is_call: bool,
    /// Whether it is cancelled when its [`Incoming`] is dropped before the reply.
    pub(crate) cancels: bool,
    /// The session that it is of, if its client is in one.
    pub(crate) session: Option<&'t str>,
}

impl Exchange {
    /// An exchange with at most `limit` open requests.
    pub(crate) fn new(dialect: &'static Dialect, limit: usize) -> Arc<Self> {
        let (input, output) = mpsc::unbounded_channel();
        let state = State {
            input: Some(input),
            output: Some(output),
            open: BTreeMap::new(),
            last: 0,
            sessions: VecDeque::new(),
            has_begun: false,
        };
        Arc::new(Self { dialect, limit, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sends a request.
    pub(crate) fn send(self: &Arc<Self>, request: &Outgoing<'_>) -> Result<Incoming, NotTaken> {
        let (lines, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        if state.open.len() >= self.limit {
            return Err(NotTaken::Full);
        }
        state.last += 1;
        let number = state.last;
        let own = number.to_string();
        let line = with_own_names(request, &own);
        let sent = state.input.as_ref().is_some_and(|input| input.send(line).is_ok());
        if !sent {
            return Err(NotTaken::Gone);
        }
        let waiting = Arc::<AtomicUsize>::default();
        let open = Open {
            lines,
            waiting: Arc::clone(&waiting),
            id: request.id.to_owned(),
            token: request.token.map(str::to_owned),
            is_call: request.is_call,
            session: request.session.map(str::to_owned),
        };
        state.open.insert(number, open);
        Ok(Incoming { exchange: self.clone(), number, lines: receiver, waiting, cancels: request.cancels })
    }

    /// Cancels the open request of this session that has this id of a client's, if there is exactly one.
    pub(crate) fn cancel(&self, id: &str, session: Option<&str>) {
        let mut state = self.state();
        let is_meant = |open: &Open| open.id == id && open.session.as_deref() == session;
        let mut found = state.open.iter().filter(|(_, open)| is_meant(open)).map(|(number, _)| *number);
        if let (Some(number), None) = (found.next(), found.next()) {
            self.cancel_number(&mut state, number);
        }
    }

    fn cancel_number(&self, state: &mut State, number: u64) {
        if state.open.remove(&number).is_some()
            && let Some(input) = &state.input
        {
            let mut line = (self.dialect.cancel)(number).into_bytes();
            line.push(b'\n');
            let _ = input.send(line);
        }
    }

    /// Whether this is the first session: the extension gets to know of that one only.
    pub(crate) fn begins(&self) -> bool {
        !std::mem::replace(&mut self.state().has_begun, true)
    }

    /// Begins a session, and returns its name.
    pub(crate) fn open_session(&self) -> String {
        let name = Token::random().reveal().to_owned();
        let mut state = self.state();
        if state.sessions.len() >= SESSIONS {
            state.sessions.pop_front();
        }
        state.sessions.push_back(Session { name: name.clone(), least_level: 0 });
        name
    }

    /// Whether there is a session of this name. It has not been silent now.
    pub(crate) fn knows_session(&self, name: &str) -> bool {
        let mut state = self.state();
        let Some(place) = state.place_of(name) else { return false };
        if let Some(session) = state.sessions.remove(place) {
            state.sessions.push_back(session);
        }
        true
    }

    /// The least level of the logs that a session's client wants; 0, which is all, without a session.
    pub(crate) fn least_level(&self, session: Option<&str>) -> usize {
        let state = self.state();
        let place = session.and_then(|name| state.place_of(name));
        place.and_then(|place| state.sessions.get(place)).map_or(0, |session| session.least_level)
    }

    /// Sets that level. Without a session there is nothing that it could be kept for.
    pub(crate) fn limit_logs(&self, session: Option<&str>, least_level: usize) {
        let mut state = self.state();
        if let Some(place) = session.and_then(|name| state.place_of(name))
            && let Some(session) = state.sessions.get_mut(place)
        {
            session.least_level = least_level;
        }
    }

    /// Ends a session: what is open of it is cancelled. Whether there was one.
    pub(crate) fn end_session(&self, name: &str) -> bool {
        let mut state = self.state();
        let Some(place) = state.place_of(name) else { return false };
        state.sessions.remove(place);
        let open = state.open.iter().filter(|(_, open)| open.session.as_deref() == Some(name));
        for number in open.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.cancel_number(&mut state, number);
        }
        true
    }

    /// Takes no more. What is open is still answered.
    pub(crate) fn close(&self) {
        self.state().input = None;
    }

    /// Whether there is an extension that answers.
    pub(crate) fn is_alive(&self) -> bool {
        self.state().input.as_ref().is_some_and(|input| !input.is_closed())
    }

    /// The extension's ends of the stream.
    pub(super) fn ends(self: &Arc<Self>) -> (Requests, Lines) {
        let output = self.state().output.take();
        (Requests { output, line: VecDeque::new() }, Lines { exchange: self.clone(), line: Vec::new() })
    }

    /// Brings a line that the extension wrote to the request that it is about.
    fn deliver(&self, line: &[u8]) {
        const REPLY: &str = "{\"jsonrpc\":\"2.0\",\"id\":";
        let mut state = self.state();
        if let Some((number, rest)) = number_behind(line, REPLY) {
            if let Some(open) = state.open.remove(&number) {
                let _ = open.lines.send(Line::Reply([REPLY.as_bytes(), open.id.as_bytes(), rest].concat()));
            }
        } else if let Some((number, rest)) = number_behind(line, self.dialect.progress) {
            if let Some(open @ Open { token: Some(token), .. }) = state.open.get(&number) {
                open.notify([self.dialect.progress.as_bytes(), token.as_bytes(), rest].concat());
            }
        } else if let Some(open) = state.open.values().find(|open| open.is_call) {
            open.notify(line.to_vec());
        }
    }
}

impl Open {
    fn notify(&self, line: Vec<u8>) {
        let length = line.len();
        if self.waiting.load(Ordering::Relaxed).saturating_add(length) <= BACKLOG {
            self.waiting.fetch_add(length, Ordering::Relaxed);
            let _ = self.lines.send(Line::Notification(line));
        }
    }
}

impl State {
    /// Whether a call waits for its turn: they are taken in their order.
    fn waits(&self, number: u64) -> bool {
        self.open.get(&number).is_some_and(|open| open.is_call)
            && self.open.range(..number).any(|(_, open)| open.is_call)
    }

    fn place_of(&self, session: &str) -> Option<usize> {
        self.sessions.iter().position(|known| known.name == session)
    }
}

/// The number behind `prefix`, and what follows it.
fn number_behind<'l>(line: &'l [u8], prefix: &str) -> Option<(u64, &'l [u8])> {
    let rest = line.strip_prefix(prefix.as_bytes())?;
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// The request as a line, with our own number in the place of its id and its token.
fn with_own_names(request: &Outgoing<'_>, own: &str) -> Vec<u8> {
    let place = |part: &str| {
        let start = (part.as_ptr() as usize).wrapping_sub(request.text.as_ptr() as usize);
        (start, start.wrapping_add(part.len()))
    };
    let mut places = vec![place(request.id)];
    places.extend(request.token.map(place));
    places.sort_unstable();
    let (mut line, mut copied) = (Vec::with_capacity(request.text.len() + 2 * own.len() + 1), 0);
    for (start, end) in places {
        line.extend_from_slice(request.text.get(copied..start).unwrap_or_default().as_bytes());
        line.extend_from_slice(own.as_bytes());
        copied = end;
    }
    line.extend_from_slice(request.text.get(copied..).unwrap_or_default().as_bytes());
    body::on_one_line(&mut line);
    line
}

/// What comes back for a request. When it is dropped before the reply came, the reply is dropped.
#[derive(Debug)]
pub(crate) struct Incoming {
    exchange: Arc<Exchange>,
    number: u64,
    lines: mpsc::UnboundedReceiver<Line>,
    waiting: Arc<AtomicUsize>,
    cancels: bool,
}

impl Incoming {
    /// Whether it is a call that was not begun, since an earlier one runs.
    pub(crate) fn waits(&self) -> bool {
        self.exchange.state().waits(self.number)
    }

    /// The next line; none if the request was cancelled, or the extension has ended.
    pub(crate) async fn line(&mut self) -> Option<Line> {
        poll_fn(|task| self.poll_line(task)).await
    }

    pub(crate) fn poll_line(&mut self, task: &mut task::Context<'_>) -> Poll<Option<Line>> {
        let line = ready!(self.lines.poll_recv(task));
        if let Some(Line::Notification(line)) = &line {
            self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
        }
        Poll::Ready(line)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut state = self.exchange.state();
        // No client waits for a call that has not begun yet.
        if self.cancels || state.waits(self.number) {
            self.exchange.cancel_number(&mut state, self.number);
        }
        // A legacy call that runs goes on, and its reply and logs go nowhere.
        if let Some(open) = state.open.get_mut(&self.number) {
            open.token = None;
        }
    }
}

/// What the extension reads.
#[derive(Debug)]
pub(super) struct Requests {
    output: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
    line: VecDeque<u8>,
}

impl ErrorType for Requests {
    type Error = Infallible;
}

impl Read for Requests {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        while self.line.is_empty() {
            let next = match &mut self.output {
                Some(output) => output.recv().await,
                None => None,
            };
            let Some(line) = next else { return Ok(0) };
            self.line = line.into();
        }
        self.line.read(buf).await
    }
}

/// What the extension writes.
#[derive(Debug)]
pub(super) struct Lines {
    exchange: Arc<Exchange>,
    line: Vec<u8>,
}

impl ErrorType for Lines {
    type Error = Infallible;
}

impl Write for Lines {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if let [line @ .., b'\n'] = self.line.as_slice() {
                self.exchange.deliver(line);
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // The extension has ended: everything that waits fails.
        let mut state = self.exchange.state();
        state.input = None;
        state.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static DIALECT: Dialect = Dialect {
        progress: "{\"jsonrpc\":\"2.0\",\"method\":\"progress\",\"params\":{\"token\":",
        cancel: |number| format!("cancel {number}"),
    };

    fn request<'t>(text: &'t str, id: &'t str, token: Option<&'t str>) -> Outgoing<'t> {
        let part = |name: &str| {
            let start = text.find(name).unwrap();
            &text[start..start + name.len()]
        };
        Outgoing { text, id: part(id), token: token.map(part), is_call: true, cancels: true, session: None }
    }

    #[test]
    fn each_request_gets_what_is_about_it_under_its_own_names() {
        let exchange = Exchange::new(&DIALECT, 2);
        let mut first = exchange.send(&request("{\"id\":7,\"t\":\"a\",\n\"x\":1.50}", "7", Some("\"a\""))).unwrap();
        let mut second = exchange.send(&request("{\"t\":77,\"id\":\"7\"}", "\"7\"", None)).unwrap();
        assert_eq!(exchange.send(&request("{\"id\":9}", "9", None)).unwrap_err(), NotTaken::Full);
        let mut sent = exchange.state().output.take().unwrap();
        assert_eq!(sent.try_recv().unwrap(), b"{\"id\":1,\"t\":1, \"x\":1.50}\n");
        assert_eq!(sent.try_recv().unwrap(), b"{\"t\":77,\"id\":2}\n");
        exchange.deliver(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
        exchange.deliver(b"{\"jsonrpc\":\"2.0\",\"method\":\"progress\",\"params\":{\"token\":1,\"x\":1}}");
        exchange.deliver(b"{\"jsonrpc\":\"2.0\",\"method\":\"log\"}");
        exchange.deliver(b"{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}");
        assert!(
            matches!(second.lines.try_recv(), Ok(Line::Reply(line)) if line == b"{\"jsonrpc\":\"2.0\",\"id\":\"7\",\"result\":{}}")
        );
        assert!(
            matches!(first.lines.try_recv(), Ok(Line::Notification(line)) if line == b"{\"jsonrpc\":\"2.0\",\"method\":\"progress\",\"params\":{\"token\":\"a\",\"x\":1}}")
        );
        assert!(matches!(first.lines.try_recv(), Ok(Line::Notification(line)) if line.ends_with(b"\"log\"}")));
        drop(second);
        assert!(sent.try_recv().is_err(), "what is answered is not cancelled");
        drop(first);
        assert_eq!(sent.try_recv().unwrap(), b"cancel 1\n");
    }

    #[test]
    fn a_client_cancels_by_its_own_id_unless_two_have_it() {
        let exchange = Exchange::new(&DIALECT, 9);
        let mut sent = exchange.state().output.take().unwrap();
        let _first = exchange.send(&request("{\"id\":7}", "7", None)).unwrap();
        let second = exchange.send(&request("{\"id\":7}", "7", None)).unwrap();
        while sent.try_recv().is_ok() {}
        exchange.cancel("7", None);
        assert!(sent.try_recv().is_err());
        drop(second);
        assert_eq!(sent.try_recv().unwrap(), b"cancel 2\n");
        exchange.cancel("7", None);
        assert_eq!(sent.try_recv().unwrap(), b"cancel 1\n");
        exchange.close();
        assert_eq!(exchange.send(&request("{\"id\":7}", "7", None)).unwrap_err(), NotTaken::Gone);
    }

    #[test]
    fn what_waits_for_a_client_that_does_not_read_is_bounded() {
        let exchange = Exchange::new(&DIALECT, 2);
        let mut incoming = exchange.send(&request("{\"id\":7,\"t\":8}", "7", Some("8"))).unwrap();
        let log = [b"{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"x\":\"".to_vec(), vec![b'x'; 1 << 20], b"\"}".to_vec()]
            .concat();
        for _ in 0..100 {
            exchange.deliver(&log);
        }
        exchange.deliver(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
        let mut task = task::Context::from_waker(task::Waker::noop());
        for _ in 0..7 {
            assert!(matches!(incoming.poll_line(&mut task), Poll::Ready(Some(Line::Notification(_)))));
        }
        assert!(
            matches!(incoming.poll_line(&mut task), Poll::Ready(Some(Line::Reply(_)))),
            "the reply comes all the same"
        );
        assert_eq!(incoming.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_session_is_remembered_until_it_ends_or_too_many_come_after_it() {
        let exchange = Exchange::new(&DIALECT, 9);
        let mut sent = exchange.state().output.take().unwrap();
        let (first, second) = (exchange.open_session(), exchange.open_session());
        let _others = exchange.send(&Outgoing { session: Some(&second), ..request("{\"id\":7}", "7", None) }).unwrap();
        let _own = exchange.send(&Outgoing { session: Some(&first), ..request("{\"id\":7}", "7", None) }).unwrap();
        while sent.try_recv().is_ok() {}
        exchange.cancel("7", None);
        assert!(sent.try_recv().is_err(), "nobody's is another's");
        assert!(exchange.end_session(&first) && !exchange.knows_session(&first) && !exchange.end_session(&first));
        assert_eq!(sent.try_recv().unwrap(), b"cancel 2\n");
        assert!(sent.try_recv().is_err());
        for _ in 1..SESSIONS {
            exchange.open_session();
        }
        assert!(exchange.knows_session(&second), "it was silent for longest, and now it is not");
        for _ in 1..SESSIONS {
            exchange.open_session();
        }
        assert!(exchange.knows_session(&second));
        for _ in 0..SESSIONS {
            exchange.open_session();
        }
        assert!(!exchange.knows_session(&second));
        assert_eq!(exchange.state().sessions.len(), SESSIONS);
    }
}
