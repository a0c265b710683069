//! The tools of a conformance case: connections that send any bytes and record the answers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rigline::client::member;
use rigline::json::{Json, JsonKind};
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::{CaseFailure, Fixture, Verdict};
use crate::host::wire::{self, Connect};
use crate::host::{
    Child, Connection, Direction, End, HostError, Options, ProcessExit, RawLine, RequestError, also_open,
};
use crate::http_client::Credentials;
use crate::target::Target;

/// The number of lines of an exchange that are kept, and the number of bytes of each.
const KEPT_LINES: usize = 40;
const KEPT_BYTES: usize = 400;
/// The longest line that is accepted from an extension.
const LINE_LIMIT: usize = 16 * 1024 * 1024;

/// A test bench. It opens connections to an extension that is checked.
pub struct Bench {
    target: Target,
    dialer: Box<dyn Connect>,
    options: Options,
    /// The time limit for each answer.
    pub timeout: Duration,
    /// The operations that the cases may run, with their arguments. If the list is empty,
    /// `identify` is called if the manifest has it.
    pub calls: Vec<(String, Value)>,
    /// The credentials for each request to an HTTP server.
    pub(crate) credentials: Credentials,
    notes: Rc<RefCell<Notes>>,
    manifest: Option<Result<String, CaseFailure>>,
    /// Why there is no session. If the first attempt failed, there is no further one.
    unreachable: RefCell<Option<String>>,
    reached: Cell<bool>,
    opened: Cell<bool>,
    /// Why nothing was ever opened.
    unopened: RefCell<Option<Arc<HostError>>>,
    /// A call that the caller named and that the extension does not have.
    pub(super) unknown_call: Rc<RefCell<Option<String>>>,
    /// Cases that are not about this extension, by the beginnings of their names, and why.
    pub(crate) left_out: Vec<(&'static str, &'static str)>,
}

/// The observed lines.
#[derive(Debug, Default)]
struct Notes {
    exchange: Vec<(Direction, String)>,
    /// Lines that are not messages, of all cases.
    noise: Vec<String>,
    /// Log notifications, of all cases: their text.
    logs: Vec<String>,
}

impl Notes {
    fn note(&mut self, direction: Direction, text: &[u8]) {
        if self.exchange.len() < KEPT_LINES {
            self.exchange.push((direction, cut(text)));
        }
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("target", &self.target).field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Bench {
    /// A bench for the extension at `target`. Of the options it uses those of the connection: the
    /// deadlines of start and shutdown, `wait`, the working folder, the variables, the
    /// configuration, and where ports are looked for.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] if the target has no stream of bytes.
    pub fn new(target: &Target, options: &Options) -> Result<Self, HostError> {
        Ok(Self::over(wire::dialer(target, options)?, target, options))
    }

    /// A bench over connections of the caller's own.
    pub(crate) fn over(dialer: Box<dyn Connect>, target: &Target, options: &Options) -> Self {
        Self {
            target: target.clone(),
            dialer,
            options: options.clone(),
            timeout: Duration::from_secs(5),
            calls: Vec::new(),
            credentials: Credentials::default(),
            notes: Rc::default(),
            manifest: None,
            unreachable: RefCell::default(),
            reached: Cell::new(false),
            opened: Cell::new(false),
            unopened: RefCell::default(),
            unknown_call: Rc::default(),
            left_out: Vec::new(),
        }
    }

    /// That a connection can be opened, or could be before.
    pub(crate) async fn reach(&self) -> Result<(), CaseFailure> {
        if !self.opened.get() {
            self.connect().await?;
        }
        Ok(())
    }

    /// The address of a target that is reached by HTTP; empty of another.
    pub(crate) fn target_url(&self) -> &str {
        match &self.target {
            Target::Http(url) => url,
            _ => "",
        }
    }

    /// Notes what is exchanged beside the connections.
    pub(crate) fn note(&self, direction: Direction, text: &str) {
        self.notes.borrow_mut().note(direction, text.as_bytes());
    }

    /// Returns whether the extension may control hardware: it is neither a program nor the
    /// simulated rig. Then only the operations of [`calls`](Self::calls) run.
    pub fn is_live(&self) -> bool {
        !matches!(self.target, Target::Exec(_) | Target::Sim)
    }

    /// Returns the time limit of `shutdown`.
    pub fn shutdown_timeout(&self) -> Duration {
        self.options.shutdown_timeout
    }

    /// The verdict that the case failed because of the extension.
    pub fn fail(&self, why: impl Into<String>) -> Verdict {
        Err(CaseFailure::Fail(why.into()))
    }

    /// The verdict that the case cannot be checked here.
    pub fn skip(&self, why: impl Into<String>) -> Verdict {
        Err(CaseFailure::Skip(why.into()))
    }

    /// Returns whether the extension has answered `initialize` in a case so far.
    pub fn is_reached(&self) -> bool {
        self.reached.get()
    }

    /// Returns the lines that were not messages, in all cases so far.
    pub fn noise(&self) -> Vec<String> {
        self.notes.borrow().noise.clone()
    }

    /// Returns the log notifications of all cases so far, as they came.
    pub fn logs(&self) -> Vec<String> {
        self.notes.borrow().logs.clone()
    }

    /// Opens a new connection. A program is started again for it.
    pub async fn connect(&self) -> Result<Peer, CaseFailure> {
        if let Some(why) = &*self.unreachable.borrow() {
            return Err(CaseFailure::Skip(format!("{}: {why}", super::NO_SESSION)));
        }
        self.dial().await.map_err(|stop| self.give_up(stop))
    }

    fn give_up(&self, stop: CaseFailure) -> CaseFailure {
        if let (CaseFailure::Fail(why), false) = (&stop, self.reached.get()) {
            *self.unreachable.borrow_mut() = Some(why.clone());
        }
        stop
    }

    async fn dial(&self) -> Result<Peer, CaseFailure> {
        let began = Instant::now();
        // The last case's connection may not be quite gone.
        let grace = if self.reached.get() { self.options.start_timeout } else { Duration::ZERO };
        let (until, last) = (began + self.options.wait.max(grace), began + self.options.start_timeout);
        let wire = loop {
            let error = match timeout_at(until.max(last), self.dialer.dial()).await {
                Ok(Ok(wire)) => break wire,
                Ok(Err(error)) => error,
                Err(_) => HostError::Open { what: self.dialer.name(), source: std::io::ErrorKind::TimedOut.into() },
            };
            let is_passing =
                matches!(error, HostError::Busy { .. } | HostError::Open { .. } | HostError::NoDevice { .. });
            if !is_passing || !self.is_live() || Instant::now() >= until {
                let why = error.to_string();
                if !self.opened.get() {
                    *self.unopened.borrow_mut() = Some(Arc::new(error));
                }
                return Err(CaseFailure::Fail(why));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        self.opened.set(true);
        let options = Options { line_limit: LINE_LIMIT, ..Options::default() };
        let connection = Connection::open(wire, &self.dialer.name(), &Arc::new(options));
        Ok(Peer::new(connection, Rc::clone(&self.notes), self.timeout))
    }

    /// Opens a new connection, and a session on it.
    pub async fn session(&mut self) -> Result<Peer, CaseFailure> {
        let mut peer = self.connect().await?;
        let reply = self.initialize(&mut peer).await?;
        if self.manifest.is_none() {
            self.manifest = Some(Ok(reply.line));
        }
        Ok(peer)
    }

    /// Sends `initialize`, and returns its reply. On a wire that may lose it, `initialize` is
    /// repeated with new ids.
    pub async fn initialize(&self, peer: &mut Peer) -> Result<Reply, CaseFailure> {
        let config = self.options.config.as_ref().map(|config| format!(",\"config\":{config}")).unwrap_or_default();
        let params = format!("{{\"protocolVersion\":\"0.0.1\"{config}}}");
        let until = Instant::now() + self.options.start_timeout;
        if peer.traits.shared {
            peer.send(b"\n").await?;
        }
        loop {
            let id = peer.next_id();
            peer.request(&id, "initialize", &params).await.map_err(|stop| self.give_up(stop))?;
            let next = peer.traits.resend.map_or(until, |pause| until.min(Instant::now() + pause));
            match peer.reply_until(&id, next).await {
                Ok(Some(reply)) => {
                    self.reached.set(true);
                    return Ok(reply);
                }
                Ok(None) if Instant::now() < until => {}
                Ok(None) => {
                    let mut why = format!("no answer to initialize in {:?}", self.options.start_timeout);
                    why.extend(peer.other_readers().map(|others| format!("; {others}")));
                    return Err(self.give_up(CaseFailure::Fail(why)));
                }
                Err(stop) => return Err(self.give_up(stop)),
            }
        }
    }

    /// Returns the reply to `initialize`, as a line. A session is opened for it once.
    pub async fn manifest_line(&mut self) -> Result<String, CaseFailure> {
        if self.manifest.is_none() {
            let got = self.session().await;
            if let Err(stop) = got {
                self.manifest = Some(Err(stop));
            }
        }
        self.manifest.clone().unwrap_or_else(|| Err(CaseFailure::Skip("there is no manifest".to_owned())))
    }

    /// Returns the manifest as JSON.
    pub async fn manifest(&mut self) -> Result<Value, CaseFailure> {
        let reply = Reply { line: self.manifest_line().await? };
        reply.result().ok_or_else(|| CaseFailure::Skip("there is no manifest".to_owned()))
    }

    /// Finds out whether all calls that the caller named are of what the extension has. If not, the caller is at fault, and
    /// [`run_on`](super::run_on) says so at the end.
    pub(crate) fn ensure_known(&mut self, names: &[&str]) -> Result<(), CaseFailure> {
        let calls = self.calls.iter_mut().map(|(name, _)| name);
        let Err(why) = super::own_names(calls, names) else { return Ok(()) };
        self.unknown_call.borrow_mut().get_or_insert_with(|| why.clone());
        Err(CaseFailure::Skip(why))
    }

    /// Returns the calls that the cases may make, each with its arguments.
    pub async fn permitted_calls(&mut self) -> Result<Vec<(String, Value)>, CaseFailure> {
        if !self.calls.is_empty() {
            // Whether there is a manifest is judged elsewhere.
            if let Ok(manifest) = self.manifest().await
                && let Some(operations) = manifest["operations"].as_object()
            {
                self.ensure_known(&operations.keys().map(String::as_str).collect::<Vec<_>>())?;
            }
            return Ok(self.calls.clone());
        }
        let manifest = self.manifest().await?;
        if manifest["operations"].get("identify").is_some_and(Value::is_object) {
            return Ok(vec![("identify".to_owned(), Value::Object(serde_json::Map::new()))]);
        }
        Err(CaseFailure::Skip("no operation may run: name one by --call".to_owned()))
    }
}

impl Fixture for Bench {
    fn target(&self) -> String {
        self.target.to_string()
    }

    fn begin(&mut self, case: &'static str) -> Result<(), CaseFailure> {
        self.notes.borrow_mut().exchange.clear();
        if let Some((_, why)) = self.left_out.iter().find(|(beginning, _)| case.starts_with(beginning)) {
            return Err(CaseFailure::Skip((*why).to_owned()));
        }
        Ok(())
    }

    fn exchange(&self) -> Vec<(Direction, String)> {
        self.notes.borrow().exchange.clone()
    }

    fn unopened(&self) -> Option<Arc<HostError>> {
        self.unopened.borrow().clone()
    }
}

/// A reply, as it came.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) line: String,
}

impl Reply {
    /// Returns the line of the reply.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Returns the id as JSON text. Empty if the reply has none.
    pub fn id(&self) -> String {
        self.json().get("id").map(|id| id.as_str().to_owned()).unwrap_or_default()
    }

    /// Returns the member `result`, if the reply has it.
    pub fn result(&self) -> Option<Value> {
        serde_json::from_str(self.json().get("result")?.as_str()).ok()
    }

    /// Returns the member `error`, if the reply has it and it is not `null`.
    pub fn error(&self) -> Option<Value> {
        serde_json::from_str(member(self.json(), "error")?.as_str()).ok()
    }

    /// Returns the code of the error, if the reply has one.
    pub fn code(&self) -> Option<i64> {
        self.error()?.get("code")?.as_i64()
    }

    /// Returns whether the reply has `"jsonrpc":"2.0"`, as JSON-RPC 2.0 §5 requires.
    pub fn is_versioned(&self) -> bool {
        self.json().get("jsonrpc").and_then(|version| version.text()).is_some_and(|version| version == "2.0")
    }

    /// Checks that the reply is an error with one of the codes.
    ///
    /// # Errors
    /// [`CaseFailure::Fail`] if the reply has no error or another code.
    pub fn expect_error(&self, codes: &[i64]) -> Result<(), CaseFailure> {
        if self.code().is_some_and(|code| codes.contains(&code)) {
            return Ok(());
        }
        let wanted: Vec<String> = codes.iter().map(ToString::to_string).collect();
        Err(CaseFailure::Fail(format!("expected an error {}, got {}", wanted.join(" or "), cut(self.line.as_bytes()))))
    }

    fn json(&self) -> Json<'_> {
        Json::parse(self.line.as_bytes()).unwrap_or(Json::NULL)
    }
}

/// One connection to an extension.
pub struct Peer {
    connection: Connection,
    /// The properties of the wire that the host must respect.
    pub traits: wire::TransportTraits,
    notes: Rc<RefCell<Notes>>,
    timeout: Duration,
    next_id: u32,
    /// A message has come: later lines are not left over from an earlier session.
    greeted: bool,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("child", &self.connection.child()).finish_non_exhaustive()
    }
}

impl Peer {
    fn new(connection: Connection, notes: Rc<RefCell<Notes>>, timeout: Duration) -> Self {
        connection.take_lines();
        let traits = connection.traits();
        // Replies to another connection's requests must not fit this one's.
        let base = if traits.resend.is_some() { std::process::id() % 10_000 * 100_000 + stamp() } else { 0 };
        Self { connection, traits, notes, timeout, next_id: base, greeted: traits.resend.is_none() }
    }

    /// Returns which other processes have the port open, in words: one of them may have got the
    /// answer.
    pub fn other_readers(&self) -> Option<String> {
        self.connection.control().and_then(|control| also_open(&control.others()))
    }

    /// Returns an id that this connection has not used yet, as JSON text.
    pub fn next_id(&mut self) -> String {
        self.next_id += 1;
        self.next_id.to_string()
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), CaseFailure> {
        let text = bytes.trim_ascii_end();
        if !text.is_empty() {
            self.note(Direction::Sent, text);
        }
        match self.connection.send_raw(bytes.to_vec(), Instant::now() + self.timeout.saturating_mul(4)).await {
            Ok(()) => Ok(()),
            Err(RequestError::Late) => Err(CaseFailure::Fail("it does not read what it is sent".to_owned())),
            Err(error) => {
                // How it ended says more than the broken pipe.
                let exit = self.exit(Duration::from_millis(300)).await;
                let error = exit.map_or(error, |exit| RequestError::End(End::Exited(exit)));
                let error = self.connection.error(error, "", self.timeout);
                Err(CaseFailure::Fail(format!("it does not accept more input ({error})")))
            }
        }
    }

    /// Sends bytes one by one, a millisecond apart.
    pub async fn trickle(&mut self, bytes: &[u8]) -> Result<(), CaseFailure> {
        self.note(Direction::Sent, bytes.trim_ascii_end());
        for byte in bytes {
            match self.connection.send_raw(vec![*byte], Instant::now() + self.timeout).await {
                Ok(()) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(_) => return Err(CaseFailure::Fail("it does not read what it is sent".to_owned())),
            }
        }
        Ok(())
    }

    /// Sends a request with a new id, and returns its reply.
    pub async fn ask(&mut self, method: &str, params: &str) -> Result<Reply, CaseFailure> {
        let id = self.next_id();
        self.ask_as(&id, method, params).await
    }

    /// Sends a request with the given id, and returns its reply.
    pub async fn ask_as(&mut self, id: &str, method: &str, params: &str) -> Result<Reply, CaseFailure> {
        self.request(id, method, params).await?;
        self.reply(id).await
    }

    /// Sends a request with this id; it has no params if those are empty.
    pub(crate) async fn request(&mut self, id: &str, method: &str, params: &str) -> Result<(), CaseFailure> {
        let params = if params.is_empty() { String::new() } else { format!(",\"params\":{params}") };
        self.send_line(format_args!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"{params}}}")).await
    }

    /// Sends a line, with its end.
    pub(crate) async fn send_line(&mut self, line: impl fmt::Display) -> Result<(), CaseFailure> {
        self.send(format!("{line}\n").as_bytes()).await
    }

    /// Waits for the reply with the given id. Notifications and lines that are not messages are
    /// recorded. A reply with another id fails the case.
    pub async fn reply(&mut self, id: &str) -> Result<Reply, CaseFailure> {
        let until = Instant::now() + self.timeout;
        match self.reply_until(id, until).await? {
            Some(reply) => Ok(reply),
            None => Err(CaseFailure::Fail(format!("no answer to request {id} in {:?}", self.timeout))),
        }
    }

    /// Waits for the next reply, whatever its id.
    pub async fn any_reply(&mut self) -> Result<Reply, CaseFailure> {
        let until = Instant::now() + self.timeout;
        match self.message(until).await? {
            Some(Some(reply)) => Ok(reply),
            Some(None) => Err(self.no_answer().await),
            None => Err(CaseFailure::Fail(format!("no answer in {:?}", self.timeout))),
        }
    }

    /// Waits for the next reply. Returns `None` if the connection ends first.
    pub async fn reply_or_end(&mut self) -> Result<Option<Reply>, CaseFailure> {
        let until = Instant::now() + self.timeout;
        self.message(until).await?.ok_or_else(|| CaseFailure::Fail(format!("no answer in {:?}", self.timeout)))
    }

    /// Returns all replies up to the end of the output.
    pub async fn rest(&mut self) -> Result<Vec<Reply>, CaseFailure> {
        let mut replies = Vec::new();
        while let Some(reply) = self.reply_or_end().await? {
            replies.push(reply);
        }
        Ok(replies)
    }

    async fn no_answer(&mut self) -> CaseFailure {
        self.exit(Duration::from_millis(300)).await;
        CaseFailure::Fail(format!("it ended without an answer{}", self.ending()))
    }

    async fn reply_until(&mut self, id: &str, until: Instant) -> Result<Option<Reply>, CaseFailure> {
        loop {
            match self.message(until).await? {
                None => return Ok(None),
                Some(None) => return Err(self.no_answer().await),
                Some(Some(reply)) if reply.id() == id => {
                    self.greeted = true;
                    return Ok(Some(reply));
                }
                // It is from before.
                Some(Some(_)) if !self.greeted => {}
                Some(Some(reply)) => {
                    let got = cut(reply.line.as_bytes());
                    return Err(CaseFailure::Fail(format!("expected a reply to {id}, got {got}")));
                }
            }
        }
    }

    /// The next reply: `None` when the time is up, `Some(None)` at the end.
    async fn message(&mut self, until: Instant) -> Result<Option<Option<Reply>>, CaseFailure> {
        loop {
            let line = match timeout_at(until, self.raw_line()).await {
                Err(_) => return Ok(None),
                Ok(line) => match line? {
                    None => return Ok(Some(None)),
                    Some(line) => line,
                },
            };
            self.note(Direction::Received, &line);
            let Ok(text) = String::from_utf8(line) else {
                self.noise("bytes that are not UTF-8".to_owned());
                continue;
            };
            let json = Json::parse(text.as_bytes()).unwrap_or(Json::NULL);
            match json.kind() {
                JsonKind::Array if json.elements().next().is_some() => return Ok(Some(Some(Reply { line: text }))),
                JsonKind::Object if json.get("method").is_some() => {
                    if json.get("method").and_then(|method| method.text()).is_some_and(|method| method == "log") {
                        self.notes.borrow_mut().logs.push(text);
                    }
                }
                JsonKind::Object if json.get("result").is_some() || json.get("error").is_some() => {
                    return Ok(Some(Some(Reply { line: text })));
                }
                _ => self.noise(cut(text.as_bytes())),
            }
        }
    }

    /// Waits for the next line, whether or not it is a message. Returns `None` at the end of the
    /// output.
    pub async fn line(&mut self) -> Result<Option<String>, CaseFailure> {
        match timeout(self.timeout, self.raw_line()).await {
            Ok(line) => {
                let line = line?.map(|line| String::from_utf8_lossy(&line).into_owned());
                if let Some(line) = &line {
                    self.note(Direction::Received, line.as_bytes());
                }
                Ok(line)
            }
            Err(_) => Err(CaseFailure::Fail(format!("no line in {:?}", self.timeout))),
        }
    }

    /// The next line. Nothing is lost if this is dropped. Blank lines and byte-order marks, which the line client removes, count as noise.
    async fn raw_line(&mut self) -> Result<Option<Vec<u8>>, CaseFailure> {
        let line = self.connection.next_line().await;
        for oddity in self.connection.take_oddities() {
            self.noise(oddity.to_owned());
        }
        match line {
            Some(RawLine::Line(line, _)) => Ok(Some(line)),
            Some(RawLine::TooLong) => {
                Err(CaseFailure::Fail(format!("it wrote a line of more than {LINE_LIMIT} bytes")))
            }
            None => Ok(None),
        }
    }

    /// Closes the sending half: a program sees the end of its input, and a TCP server the end of
    /// the stream.
    pub async fn close_input(&mut self) {
        self.connection.close_input().await;
    }

    /// Waits at most `within` for the program to end, and returns how it ended. Returns `None` if
    /// it goes on, or if there is no program.
    pub async fn exit(&mut self, within: Duration) -> Option<ProcessExit> {
        timeout(within, self.connection.child()?.ended()).await.ok()
    }

    fn ending(&self) -> String {
        self.connection.child().and_then(Child::exit).map(|exit| format!(": {exit}")).unwrap_or_default()
    }

    fn noise(&self, text: String) {
        // A board's greeting, and the rest of its replies to another process, are not faults of this session.
        if self.greeted {
            self.notes.borrow_mut().noise.push(text);
        }
    }

    fn note(&self, direction: Direction, text: &[u8]) {
        self.notes.borrow_mut().note(direction, text);
    }
}

/// A text as a report shows it: cut, and what is not UTF-8 replaced.
pub(crate) fn cut(text: &[u8]) -> String {
    let shown = String::from_utf8_lossy(text.get(..KEPT_BYTES).unwrap_or(text)).into_owned();
    if text.len() > KEPT_BYTES { format!("{shown}… ({} bytes)", text.len()) } else { shown }
}

/// A number that is another one a moment later.
fn stamp() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_millis() % 1000).unwrap_or_default() * 100
}
