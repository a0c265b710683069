//! A connection to the agent, on this host or on another one. An agent of this host that does not run is started.
//!
//! How another host is reached is the business of modules above, which implement [`Reach`].

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rigline::frame::{Frame, HeapFramer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::book::{Refusal, SILENCE};
use crate::clock::{self, BootTime};
use crate::folders::Folders;
use crate::handshake::{Far, LINE_LIMIT, PROTOCOL};
use crate::processes::LEASE;

/// How long the agent has to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the agent has to start, on a busy machine too. One that cannot start is told at once.
const START: Duration = Duration::from_millis(SILENCE);
/// The most messages of the agent that wait while it is asked.
const EVENTS: usize = 1000;
/// How often it is looked for while it starts: at first, and at last.
const LOOKS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// The arguments of the command `rigline` that start an agent on demand.
pub const ON_DEMAND: [&str; 3] = ["lab", "agent", "--on-demand"];

/// The place of the agent, and the program that starts it.
#[derive(Debug, Clone)]
pub struct AgentLocation {
    /// The folders of the lab on this host.
    pub folders: Folders,
    /// The command `rigline`. With the arguments `lab agent` it is the agent.
    pub program: PathBuf,
    /// The other host that the agent is on, if it is not on this one.
    pub remote: Option<Arc<Remote>>,
}

impl AgentLocation {
    /// The agent of this host.
    pub fn here(folders: Folders, program: PathBuf) -> Self {
        Self { folders, program, remote: None }
    }

    /// The name of the other host, if it is one.
    pub fn host(&self) -> Option<&str> {
        self.remote.as_ref().map(|remote| remote.name())
    }

    /// A name of this host with its host in front, if that is another one: `lab1/pico`.
    pub fn named(&self, name: &str) -> String {
        self.host().map_or_else(|| name.to_owned(), |host| format!("{host}/{name}"))
    }
}

pub(crate) type Reading = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type Writing = Box<dyn AsyncWrite + Send + Unpin>;

/// The reason why the agent gave no answer that can be used.
#[derive(Debug)]
pub enum AgentError {
    /// The agent refuses the request.
    Refused(Refusal),
    /// The agent does not answer.
    Lost(io::Error),
}

impl From<AgentError> for Refusal {
    fn from(trouble: AgentError) -> Self {
        match trouble {
            AgentError::Refused(refusal) => refusal,
            AgentError::Lost(error) => Self::refused(format!("the agent does not answer: {error}")),
        }
    }
}

/// The clock of the agent's host.
#[derive(Debug, Clone, Default)]
pub(crate) struct There(pub(crate) Option<Arc<AtomicI64>>);

impl There {
    /// The time there, or a little earlier.
    pub(crate) fn now(&self) -> BootTime {
        let offset = self.0.as_ref().map_or(0, |offset| offset.load(Ordering::Relaxed));
        clock::now().saturating_add_signed(offset)
    }
}

/// A session with the agent of another host, which has begun.
pub(crate) struct OpenSession {
    /// Bytes of the agent.
    pub(crate) reading: Reading,
    /// Bytes for it.
    pub(crate) sending: Writing,
    /// The clock there.
    pub(crate) there: There,
    /// The process id of the agent.
    pub(crate) agent: u32,
}

/// A session that is being begun.
pub(crate) type Opening<'r> = Pin<Box<dyn Future<Output = Result<OpenSession, AgentError>> + Send + 'r>>;

/// How the agent of another host is reached. The carriers are above this module.
pub(crate) trait Reach: fmt::Debug + Send + Sync {
    /// Begins a session with the agent of the host `name`.
    fn session<'r>(&'r self, name: &'r str) -> Opening<'r>;
}

/// Another host.
#[derive(Debug)]
pub struct Remote {
    name: String,
    reach: Box<dyn Reach>,
}

impl Remote {
    pub(crate) fn new(name: &str, reach: impl Reach + 'static) -> Self {
        Self { name: name.to_owned(), reach: Box::new(reach) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Begins a session with its agent.
    fn session(&self) -> Opening<'_> {
        self.reach.session(&self.name)
    }
}

/// A connection to the agent.
pub struct Connection {
    reader: Reading,
    writer: Writing,
    framer: HeapFramer,
    events: VecDeque<(String, Value)>,
    next: u64,
    there: There,
    /// The process id of the agent.
    pub agent: u32,
}

impl Connection {
    /// Connects to the running agent. Returns `None` if no agent runs.
    ///
    /// # Errors
    /// The agent has another version, or does not answer.
    pub async fn to_running(folders: &Folders) -> Result<Option<Self>, AgentError> {
        let hello = json!({ "protocol": PROTOCOL });
        Ok(Self::greet(folders, hello).await?.map(|(connection, _)| connection))
    }

    /// Connects to the agent that runs, and returns its answer too.
    async fn greet(folders: &Folders, hello: Value) -> Result<Option<(Self, Value)>, AgentError> {
        let stream = match UnixStream::connect(folders.socket_path()).await {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && folders.is_system() => {
                return Err(AgentError::Refused(Refusal::refused(not_of_group(folders))));
            }
            Err(error) => return Err(AgentError::Lost(error)),
        };
        let (reader, writer) = stream.into_split();
        let mut this = Self::over(Box::new(reader), Box::new(writer), There::default());
        let answer = this.ask("hello", hello).await?;
        this.agent =
            answer.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
        Ok(Some((this, answer)))
    }

    fn over(reader: Reading, writer: Writing, there: There) -> Self {
        let framer = HeapFramer::new(LINE_LIMIT);
        Self { reader, writer, framer, events: VecDeque::new(), next: 0, there, agent: 0 }
    }

    /// The clock of the agent.
    pub(crate) fn there(&self) -> &There {
        &self.there
    }

    /// Its two ends, before anything else is asked.
    pub(crate) fn into_halves(self) -> (Reading, Writing) {
        (self.reader, self.writer)
    }

    /// Connects to the agent. If it does not run, it is started.
    ///
    /// # Errors
    /// The agent cannot be started, has another version, or does not answer.
    pub async fn open(place: &AgentLocation) -> Result<Self, AgentError> {
        if let Some(remote) = &place.remote {
            let session = remote.session().await?;
            return Ok(Self { agent: session.agent, ..Self::over(session.reading, session.sending, session.there) });
        }
        Ok(Self::start(place, &json!({ "protocol": PROTOCOL })).await?.0)
    }

    /// Connects for a holder on another host, who speaks this version of the agent's protocol. Returns
    /// the agent's answer too.
    pub(crate) async fn open_for(place: &AgentLocation, far: &Far, protocol: u64) -> Result<(Self, Value), AgentError> {
        Self::start(place, &json!({ "protocol": protocol, "far": far })).await
    }

    async fn start(place: &AgentLocation, hello: &Value) -> Result<(Self, Value), AgentError> {
        let given_up = Instant::now() + if place.folders.is_system() { ANSWER } else { START };
        let [mut pause, longest] = LOOKS;
        let mut starting: Option<Starting> = None;
        loop {
            let error = match Self::greet(&place.folders, hello.clone()).await {
                Ok(Some(greeted)) => return Ok(greeted),
                Err(refused @ AgentError::Refused(_)) => return Err(refused),
                Ok(None) if place.folders.is_system() => {
                    let text = format!(
                        "the system's agent does not run ({}); an administrator starts it by `rigline lab agent --system`",
                        place.folders.socket_path().display()
                    );
                    io::Error::new(io::ErrorKind::NotFound, text)
                }
                Ok(None) => io::Error::new(io::ErrorKind::NotFound, last_message(&place.folders)),
                Err(AgentError::Lost(error)) => error,
            };
            if Instant::now() >= given_up {
                return Err(AgentError::Lost(error));
            }
            match starting.as_ref().map(Starting::ended) {
                Some(None) => {}
                Some(Some(status)) if !status.success() => {
                    return Err(AgentError::Lost(io::Error::other(last_message(&place.folders))));
                }
                // Another one runs, or has run in between.
                Some(Some(_)) => starting = None,
                None if place.folders.is_system() => {}
                None => starting = start(place).map_err(AgentError::Lost)?,
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Sends a request, and waits for its answer.
    ///
    /// # Errors
    /// The agent refuses the request, or does not answer.
    pub async fn ask(&mut self, method: &str, params: Value) -> Result<Value, AgentError> {
        self.next += 1;
        let id = self.next;
        let line = format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let answered = timeout(ANSWER, async {
            self.writer.write_all(line.as_bytes()).await?;
            loop {
                let mut message = self.line().await?;
                // An error without an id is about the connection.
                let is_answer = match message.get("id") {
                    Some(Value::Null) => message.get("error").is_some(),
                    other => other.and_then(Value::as_u64) == Some(id),
                };
                if is_answer {
                    return Ok(message);
                }
                if let Some(Value::String(method)) = message.get("method").cloned() {
                    if self.events.len() >= EVENTS {
                        return Err(io::Error::other(format!("the agent has sent {EVENTS} messages and no answer")));
                    }
                    self.events.push_back((method, message["params"].take()));
                }
            }
        });
        let mut message = match answered.await {
            Ok(answered) => answered.map_err(AgentError::Lost)?,
            Err(_) => return Err(AgentError::Lost(io::ErrorKind::TimedOut.into())),
        };
        match message.get("error") {
            None => Ok(message["result"].take()),
            Some(error) => {
                let code = error.pointer("/data/exit").and_then(Value::as_u64).and_then(|code| u8::try_from(code).ok());
                let why = error.get("message").and_then(Value::as_str).unwrap_or("no reason is given");
                Err(AgentError::Refused(Refusal { code: code.unwrap_or(3), why: why.to_owned() }))
            }
        }
    }

    /// Asks for a rig's port. From now on frames pass over the connection, and no lines.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) async fn into_wire(mut self, params: Value) -> io::Result<(Reading, Writing, There)> {
        let line = format!("{}\n", json!({ "jsonrpc": "2.0", "method": "open", "params": params }));
        self.writer.write_all(line.as_bytes()).await?;
        Ok((self.reader, self.writer, self.there))
    }

    /// Waits for the next notification. Returns its method and its parameters. If the future is
    /// dropped, no bytes are lost.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn event(&mut self) -> io::Result<(String, Value)> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let mut message = self.line().await?;
            if let Some(Value::String(method)) = message.get("method").cloned() {
                return Ok((method, message["params"].take()));
            }
        }
    }

    async fn line(&mut self) -> io::Result<Value> {
        loop {
            match self.framer.next_frame() {
                Some(Frame::Line(line)) => return serde_json::from_slice(line).map_err(io::Error::other),
                Some(Frame::TooLong(fault)) => return Err(io::Error::other(fault.to_string())),
                None => {}
            }
            let count = self.reader.read(self.framer.space()).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.framer.commit(count);
        }
    }
}

/// An agent that this process starts. Other commands do not start one meanwhile: on a busy machine they would be in its way.
struct Starting {
    ended: Arc<OnceLock<ExitStatus>>,
    _only: File,
}

impl Starting {
    /// How it has ended, if it has.
    fn ended(&self) -> Option<ExitStatus> {
        self.ended.get().copied()
    }
}

/// Starts the agent, which lives longer than this process; unless one lives, or another command starts it.
fn start(place: &AgentLocation) -> io::Result<Option<Starting>> {
    place.folders.make()?;
    let mut file = OpenOptions::new();
    file.read(true).write(true).create(true).truncate(false).mode(0o600);
    let only = file.open(place.folders.start_lock_file())?;
    match only.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // It is not made here: that it is there says that an agent has run.
    if let Ok(lock) = File::open(place.folders.lock_file())
        && let Err(TryLockError::WouldBlock) = lock.try_lock_shared()
    {
        return Ok(None);
    }
    let mut messages = OpenOptions::new();
    let messages = messages.create(true).append(true).mode(0o600).open(place.folders.log_file())?;
    let mut command = Command::new(&place.program);
    command.args(ON_DEMAND).env_remove(LEASE).current_dir("/").envs(place.folders.variable());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
    let mut child = command.spawn()?;
    let ended = Arc::new(OnceLock::new());
    let tells = Arc::clone(&ended);
    // It leaves this process's session itself. Who lives on must look at its end.
    std::thread::spawn(move || {
        if let Ok(status) = child.wait() {
            let _ = tells.set(status);
        }
    });
    Ok(Some(Starting { ended, _only: only }))
}

fn not_of_group(folders: &Folders) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let socket = folders.socket_path();
    let group = std::fs::metadata(&socket).map(|about| crate::users::group_name(about.gid()));
    format!("{} is for members of the group {}", socket.display(), group.unwrap_or_else(|_| "of the lab".to_owned()))
}

fn last_message(folders: &Folders) -> String {
    let messages = std::fs::read_to_string(folders.log_file()).unwrap_or_default();
    match messages.lines().last() {
        Some(last) => format!("it cannot be started; it said: {last}"),
        None => "it cannot be started".to_owned(),
    }
}
