//! The host's side: calls modules over lines and over HTTP.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rigline::json::{Json, Kind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{EventLog, EventRecord, ModuleError, ModuleKind};
use crate::host::wire::{self, Dial, Reader, Writer};
use crate::host::{self as rigline_host, Child, HostError};
use crate::http_client::{self, Bounds, HttpError};
use crate::target::Target;

/// How soon `health` must be answered: 2 s.
pub const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// How much of standard error is kept, from its end.
const STDERR_KEPT: usize = 16 << 10;

/// How long a program that was asked to end may take.
const TERMINATION: Duration = Duration::from_millis(500);

/// How many lines that are no replies are passed over before a call is given up.
const NOISE: usize = 1000;

pub(super) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// A host of one module.
#[derive(Debug)]
pub struct Host {
    place: Place,
    /// How long an invocation may take: 30 s.
    pub timeout: Duration,
    /// What that is exceeded by before the host gives up, so that the module's own `timeout` wins: 2 s.
    pub grace: Duration,
    /// The longest reply that is taken, in bytes: 16 MiB.
    pub limit: usize,
    /// The session that invocations belong to, if they say any.
    pub session_id: Option<String>,
    /// Where events are written.
    pub events: Option<Arc<EventLog>>,
    module: Option<String>,
    is_device: bool,
    next: u64,
}

/// Where a module is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Place {
    /// At the other end of lines: a program, a port, a socket.
    Lines(Lines),
    /// At an address, with a token if it wants one.
    Http {
        /// The address, to which `/invoke` and so on are added.
        url: String,
        /// The bearer token.
        token: Option<String>,
    },
}

/// The lines to a module, and how to get new ones.
pub struct Lines {
    dialer: Box<dyn Dial>,
    open: Option<Open>,
    /// A request is out. If it still is when the next one comes, its caller has given it up.
    is_asked: bool,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("to", &self.dialer.name())
            .field("is_open", &self.open.is_some())
            .finish_non_exhaustive()
    }
}

struct Open {
    reader: BufReader<Reader>,
    writer: Writer,
    child: Option<Child>,
    stderr: Option<JoinHandle<()>>,
    /// Nothing that was said to others can be on it: half a line, or their replies.
    is_fresh: bool,
    /// The first line in the exchange that was no JSON.
    odd: Option<String>,
    said: Arc<std::sync::Mutex<Vec<u8>>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(task) = &self.stderr {
            task.abort();
        }
    }
}

/// What `describe` tells of a module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it is.
    pub kind: ModuleKind,
    /// The names of its operations.
    pub capabilities: Vec<String>,
    /// The schema of each operation's arguments.
    #[serde(default)]
    pub inputs: Map<String, Value>,
    /// The schema of each operation's result.
    #[serde(default)]
    pub outputs: Map<String, Value>,
}

/// What came of an invocation: the result's JSON text, digits and all, or the module's error.
pub type Invocation = Result<String, ModuleError>;

/// Why there is no usable answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No connection.
    #[error(transparent)]
    Connect(HostError),
    /// The HTTP server gave none.
    #[error(transparent)]
    Http(HttpError),
    /// None in time.
    #[error("no answer within {limit:?}{}{}", shown(odd.as_deref()), tail(stderr))]
    Timeout {
        /// The limit.
        limit: Duration,
        /// The first line that was no JSON, if there was one.
        odd: Option<String>,
        /// The end of the program's standard error.
        stderr: String,
    },
    /// The module is gone.
    #[error(
        "the module is gone{}{}{}",
        exit.as_deref().map(|exit| format!(": {exit}")).unwrap_or_default(),
        shown(odd.as_deref()),
        tail(stderr)
    )]
    Gone {
        /// The first line that was no JSON, if there was one.
        odd: Option<String>,
        /// How its process ended.
        exit: Option<String>,
        /// The end of its standard error.
        stderr: String,
    },
    /// It is longer than is taken.
    #[error("the answer is longer than the limit of {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// It is not of the form that it should be.
    #[error("a bad answer: {reason}: {text}")]
    Bad {
        /// What is wrong.
        reason: String,
        /// Its beginning.
        text: String,
    },
    /// What is to be sent is no JSON object.
    #[error("the arguments must be a JSON object")]
    Arguments,
    /// The connection failed.
    #[error("talking to the module failed: {0}")]
    Io(#[from] io::Error),
}

fn shown(odd: Option<&str>) -> String {
    odd.map(|line| format!("; it wrote {line:?}, which is no reply: that is JSON, whole and on one line"))
        .unwrap_or_default()
}

fn tail(stderr: &str) -> String {
    let stderr = stderr.trim_end();
    if stderr.is_empty() { String::new() } else { format!("; standard error:\n{stderr}") }
}

fn bad(reason: impl Into<String>, text: &str) -> CallError {
    let text = text.chars().take(200).collect();
    CallError::Bad { reason: reason.into(), text }
}

impl Host {
    /// A host of the module at `target`. Nothing is opened before the first call.
    pub fn new(target: &Target, options: &rigline_host::Options) -> Result<Self, CallError> {
        let place = match target {
            Target::Http(url) => Place::Http { url: url.clone(), token: None },
            target => Place::Lines(Lines::new(wire::dialer(target, options).map_err(CallError::Connect)?)),
        };
        let is_device = matches!(target, Target::Serial(_) | Target::Tcp(_));
        Ok(Self { is_device, ..Self::at(place) })
    }

    /// A host of the module at a place.
    pub fn at(place: Place) -> Self {
        Self {
            place,
            timeout: super::host::default_timeout(),
            grace: Duration::from_secs(2),
            limit: 16 << 20,
            session_id: None,
            events: None,
            module: None,
            is_device: false,
            next: 1,
        }
    }

    /// Where the module is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether at the other end is a device, most likely, which has memory for messages of so many bytes and no more.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    /// Sends this bearer token, over HTTP.
    #[must_use]
    pub fn with_token(mut self, bearer: &str) -> Self {
        if let Place::Http { token, .. } = &mut self.place {
            *token = Some(bearer.into());
        }
        self
    }

    /// Asks whether the module is well; it has 2 s to say so.
    pub async fn health(&mut self) -> Result<(), CallError> {
        let answer = self.ask("health", None, HEALTH_TIMEOUT).await?;
        let json = object(&answer)?;
        match json.get("status").and_then(|status| status.text()) {
            Some(status) if status == "ok" => Ok(()),
            _ => Err(bad("health must answer {\"status\":\"ok\"}", &answer)),
        }
    }

    /// Asks the module what it is.
    pub async fn describe(&mut self) -> Result<Description, CallError> {
        let answer = self.ask("describe", None, self.timeout).await?;
        let description: Description =
            serde_json::from_str(&answer).map_err(|error| bad(error.to_string(), &answer))?;
        self.module = Some(description.name.clone());
        Ok(description)
    }

    /// Has the module run an operation; `args` is the JSON text of an object.
    ///
    /// It is written to [`events`](Self::events) as `module:invoke`, and as `policy:decision` if the module refuses it as
    /// forbidden.
    pub async fn invoke(&mut self, op: &str, args: &str) -> Result<Invocation, CallError> {
        if !Json::parse(args.as_bytes()).is_ok_and(|json| json.kind() == Kind::Object) {
            return Err(CallError::Arguments);
        }
        let start = Instant::now();
        let answer = self.ask(op, Some(args), self.timeout.saturating_add(self.grace)).await;
        let invocation = answer.and_then(|answer| read(&answer));
        self.tell(op, start, &invocation)?;
        invocation
    }

    /// Ends a call that was given up: the program is asked to end, and then made to, or the connection closed. The next call
    /// starts or opens it anew.
    pub async fn cancel(&mut self) {
        if let Place::Lines(lines) = &mut self.place {
            lines.end().await;
        }
    }

    /// Ends the connection, and the program.
    pub async fn close(self) {
        let Place::Lines(Lines { open: Some(mut open), .. }) = self.place else { return };
        // A module on stdio ends at the end of its input.
        let _ = open.writer.shutdown().await;
        open.writer = Box::new(tokio::io::sink());
        if let Some(child) = &open.child
            && timeout(Duration::from_secs(2), child.ended()).await.is_err()
        {
            child.terminate();
            let _ = timeout(TERMINATION, child.ended()).await;
            child.kill();
        }
    }

    /// Sends one request text as it is, and gives what is answered: for checks.
    pub async fn raw(&mut self, path: &str, text: &str, limit: Duration) -> Result<String, CallError> {
        let most = self.limit;
        match &mut self.place {
            Place::Http { url, token } => {
                let url = format!("{}/{path}", url.trim_end_matches('/'));
                let bounds = Bounds { timeout: limit, limit: most };
                let answer = http_client::post(&url, token.as_deref(), text.as_bytes().to_vec(), bounds).await;
                match answer {
                    Ok(answer) => String::from_utf8(answer).map_err(|error| bad(error.to_string(), "")),
                    Err(HttpError::Timeout { limit }) => {
                        Err(CallError::Timeout { limit, odd: None, stderr: String::new() })
                    }
                    Err(error) => Err(CallError::Http(error)),
                }
            }
            Place::Lines(lines) => lines.ask(text, None, limit, most).await,
        }
    }

    async fn ask(&mut self, op: &str, args: Option<&str>, limit: Duration) -> Result<String, CallError> {
        let id = self.next;
        self.next += 1;
        let session = self.session_id.as_ref().map(|id| format!(",\"session_id\":{}", Value::from(id.as_str())));
        let session = session.unwrap_or_default();
        let invoked = args.map(|args| format!("\"op\":{},\"args\":{args}{session}", Value::from(op)));
        match &mut self.place {
            Place::Http { .. } => match invoked {
                Some(input) => self.raw("invoke", &format!("{{{input}}}"), limit).await,
                None => self.raw(op, "{}", limit).await,
            },
            Place::Lines(lines) => {
                let text = match invoked {
                    // Spelt out where the short form would be taken for the protocol's own operation.
                    Some(input) if matches!(op, "health" | "describe" | "invoke") => {
                        format!("{{\"op\":\"invoke\",\"args\":{{{input}}},\"id\":{id}}}")
                    }
                    Some(input) => format!("{{{input},\"id\":{id}}}"),
                    None => format!("{{\"op\":\"{op}\",\"id\":{id}}}"),
                };
                lines.ask(&text.replace(['\n', '\r'], " "), Some(id), limit, self.limit).await
            }
        }
    }

    fn tell(&self, op: &str, start: Instant, invocation: &Result<Invocation, CallError>) -> io::Result<()> {
        let Some(events) = &self.events else { return Ok(()) };
        let error = match invocation {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.clone()),
            Err(error) => Some(ModuleError {
                code: match error {
                    CallError::Timeout { .. } => "timeout",
                    CallError::Connect(_) | CallError::Gone { .. } | CallError::Http(_) => "unreachable",
                    CallError::TooLong { .. } => "oom",
                    CallError::Arguments => "bad_request",
                    CallError::Bad { .. } | CallError::Io(_) => "internal",
                }
                .into(),
                message: error.to_string(),
                details: None,
            }),
        };
        let data = |name: &str| Some([(name.to_owned(), Value::from(op))].into_iter().collect());
        let (request_id, span_id) = (Some(new_id()), Some(new_id()));
        let module = Some(self.module.clone().unwrap_or_else(|| self.place.name()));
        let is_forbidden = error.as_ref().is_some_and(|error| error.code == "forbidden");
        if is_forbidden {
            events.write(&EventRecord {
                module: module.clone(),
                status: Some("denied".into()),
                data: data("capability"),
                error: error.clone(),
                session_id: self.session_id.clone(),
                request_id: request_id.clone(),
                span_id: span_id.clone(),
                ..EventRecord::now("policy:decision", "rigline")
            })?;
        }
        events.write(&EventRecord {
            module,
            status: Some(if error.is_none() { "ok" } else { "error" }.into()),
            duration_ms: Some(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)),
            data: data("op"),
            error,
            session_id: self.session_id.clone(),
            request_id,
            span_id,
            ..EventRecord::now("module:invoke", "rigline")
        })
    }
}

pub(super) const fn default_timeout() -> Duration {
    rigline::protocol::amplifier::TIMEOUT
}

impl Place {
    fn name(&self) -> String {
        match self {
            Self::Lines(lines) => lines.dialer.name(),
            Self::Http { url, .. } => url.clone(),
        }
    }
}

impl Lines {
    /// Lines over what `dialer` opens.
    pub fn new(dialer: Box<dyn Dial>) -> Self {
        Self { dialer, open: None, is_asked: false }
    }

    async fn ask(&mut self, line: &str, id: Option<u64>, limit: Duration, most: usize) -> Result<String, CallError> {
        // A program that has ended since is started anew; so is what somebody gave up.
        let has_ended = |open: &Open| open.child.as_ref().is_some_and(|child| child.exit().is_some());
        if self.is_asked || self.open.as_ref().is_some_and(has_ended) {
            self.end().await;
        }
        if self.open.is_none() {
            let wire = match timeout(limit, self.dialer.dial()).await {
                Ok(wire) => wire.map_err(CallError::Connect)?,
                Err(_) => return Err(CallError::Timeout { limit, odd: None, stderr: String::new() }),
            };
            let said = Arc::new(std::sync::Mutex::new(Vec::new()));
            let stderr = wire.stderr.map(|stderr| tokio::spawn(keep_tail(stderr, said.clone())));
            let (reader, writer) = (BufReader::new(wire.reader), wire.writer);
            let is_fresh = !wire.manners.shared;
            self.open = Some(Open { reader, writer, child: wire.child, stderr, said, is_fresh, odd: None });
        }
        let Some(open) = &mut self.open else { return Err(CallError::Arguments) };
        self.is_asked = true;
        let result = timeout(limit, open.exchange(line, id, most)).await;
        let result = match result {
            Ok(result) => result,
            Err(_) => Err(CallError::Timeout { limit, odd: open.odd.take(), stderr: open.stderr() }),
        };
        // A reply that is late, or the rest of one, must not be taken for that to a later call.
        if result.is_err() {
            self.end().await;
        }
        self.is_asked = false;
        result
    }

    async fn end(&mut self) {
        self.is_asked = false;
        let Some(open) = self.open.take() else { return };
        if let Some(child) = &open.child {
            // It may drive hardware, and have something to put in order.
            child.terminate();
            let _ = timeout(TERMINATION, child.ended()).await;
            child.kill();
        }
    }
}

impl Open {
    async fn exchange(&mut self, line: &str, id: Option<u64>, most: usize) -> Result<String, CallError> {
        let sent = async {
            let first = if std::mem::replace(&mut self.is_fresh, true) { "" } else { "\n" };
            self.writer.write_all(format!("{first}{line}\n").as_bytes()).await?;
            self.writer.flush().await
        };
        if sent.await.is_err() {
            return Err(self.gone().await);
        }
        self.odd = None;
        for _ in 0..NOISE {
            let Some(line) = self.line(most).await? else { return Err(self.gone().await) };
            // People's programs print other things as well; only objects can be replies, and only ours if they say whose.
            let Ok(json) = Json::parse(&line) else {
                // Most likely the beginning of a reply on several lines, if one is an opening brace.
                let has_brace = |odd: &String| odd.starts_with('{');
                let is_telling =
                    self.odd.is_none() || line.starts_with(b"{") && !self.odd.as_ref().is_some_and(has_brace);
                if is_telling && !line.trim_ascii().is_empty() {
                    let text = String::from_utf8_lossy(line.get(..200).unwrap_or(&line)).trim_end().to_owned();
                    self.odd = Some(text);
                }
                continue;
            };
            let is_other = id.is_some_and(|id| json.get("id").is_some_and(|given| given.as_str() != id.to_string()));
            if json.kind() == Kind::Object && !is_other {
                return Ok(json.as_str().to_owned());
            }
        }
        Err(bad("nothing but lines that are no replies", ""))
    }

    /// The next line; none at the end.
    async fn line(&mut self, most: usize) -> Result<Option<Vec<u8>>, CallError> {
        let mut line = Vec::new();
        loop {
            let piece = self.reader.fill_buf().await?;
            if piece.is_empty() {
                return Ok((!line.is_empty()).then_some(line));
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let part = piece.get(..end.unwrap_or(piece.len())).unwrap_or_default();
            if line.len() + part.len() > most {
                return Err(CallError::TooLong { limit: most });
            }
            line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(line));
            }
        }
    }

    async fn gone(&mut self) -> CallError {
        let exit = match &self.child {
            Some(child) => timeout(Duration::from_millis(500), child.ended()).await.ok().map(|exit| exit.to_string()),
            None => None,
        };
        if let Some(task) = &mut self.stderr {
            let _ = timeout(Duration::from_millis(200), task).await;
        }
        CallError::Gone { exit, odd: self.odd.take(), stderr: self.stderr() }
    }

    fn stderr(&self) -> String {
        let said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        String::from_utf8_lossy(&said).into_owned()
    }
}

async fn keep_tail(mut stderr: Reader, said: Arc<std::sync::Mutex<Vec<u8>>>) {
    let mut piece = vec![0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut piece).await {
        let mut said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        said.extend_from_slice(piece.get(..count).unwrap_or_default());
        let over = said.len().saturating_sub(STDERR_KEPT);
        said.drain(..over);
    }
}

fn object(answer: &str) -> Result<Json<'_>, CallError> {
    let json = Json::parse(answer.as_bytes()).map_err(|error| bad(error.to_string(), answer))?;
    if json.kind() == Kind::Object { Ok(json) } else { Err(bad("expected an object", answer)) }
}

/// Reads what an invocation answers.
fn read(answer: &str) -> Result<Invocation, CallError> {
    let json = object(answer)?;
    match json.get("ok").and_then(|ok| ok.bool()) {
        Some(true) => match json.get("result") {
            Some(result) => Ok(Ok(result.as_str().to_owned())),
            None => Err(bad("result: required, but missing", answer)),
        },
        Some(false) => Ok(Err(failure(json.get("error").unwrap_or(Json::NULL)))),
        None => Err(bad("ok: expected true or false", answer)),
    }
}

/// What a module says of its failure; one in another shape than §4's is a failure all the same, with the best text there is.
fn failure(error: Json<'_>) -> ModuleError {
    if let Ok(error) = ModuleError::parse(error.as_bytes()) {
        return error;
    }
    let plain = |value: Json<'_>| value.text().map_or_else(|| value.as_str().to_owned(), |text| text.to_string());
    let member = |name: &str| error.get(name).filter(|value| !value.is_null()).map(plain);
    let message = match error.is_null() {
        true => "it failed, and gave no reason".to_owned(),
        false => member("message").unwrap_or_else(|| plain(error)),
    };
    let details = error.get("details").and_then(|details| serde_json::from_str(details.as_str()).ok());
    ModuleError { code: member("code").unwrap_or_else(|| "internal".to_owned()), message, details }
}
