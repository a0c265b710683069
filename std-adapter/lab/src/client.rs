//! The client of the agent.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rigline::frame::{Frame, HeapFramer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::agent::{LINE_LIMIT, PROTOCOL};
use crate::book::{LATE, Refusal, SILENCE};
use crate::clock;
use crate::folders::Folders;
use crate::hosts::Remote;
use crate::link::There;
use crate::processes::LEASE;
use crate::records::Lease;

/// How long the agent has to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the agent has to start, on a busy machine too. One that cannot start is told at once.
const START: Duration = Duration::from_millis(SILENCE);
/// How long the holder of a lease waits for an agent that lives and does not answer: nobody else can get the rig meanwhile.
const SLOW: u64 = 120_000;
/// How often the holder of a lease tells that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How soon the agent is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// How often it is looked for while it starts: at first, and at last.
const LOOKS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// How soon another host that did not answer is asked again.
const AWAY: Duration = Duration::from_millis(250);

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

/// A holder on another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Far {
    /// The user's name.
    pub(crate) user: String,
    /// The name of the other host, as it says it.
    pub(crate) machine: String,
    /// The process there.
    pub(crate) pid: u32,
    /// The carrier.
    pub(crate) via: String,
    /// Whether the carrier vouches for the user's name, and the user need not be the one whom the agent serves.
    pub(crate) is_vouched: bool,
    /// Whether the user may end the leases of others.
    pub(crate) is_admin: bool,
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
            let (reading, sending) = (Box::new(session.reading), Box::new(session.sending));
            return Ok(Self { agent: session.agent, ..Self::over(reading, sending, session.there) });
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

/// The parameters of a request for rigs.
#[derive(Debug, Clone)]
pub struct Want {
    /// The selectors of the wanted rigs: `rig:NAME`, `rig:KEY=VALUE`, or a target.
    pub rigs: Vec<String>,
    /// The number of rigs. All of them are granted together, or none is.
    pub count: usize,
    /// The longest time in the queue. `None` means not to wait.
    pub wait: Option<Duration>,
    /// The longest duration of the lease.
    pub ttl: Duration,
    /// The time after which the lease ends if nothing is sent to its rigs. `None` means never.
    pub idle: Option<Duration>,
    /// Whether other programs than the agent open the ports.
    pub is_raw: bool,
    /// The purpose of the lease, for people.
    pub purpose: String,
}

/// A lease that was granted, with the targets of its rigs.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The granted lease.
    pub lease: Lease,
    /// The rigs of the lease, as pairs of name and target.
    pub targets: Vec<(String, String)>,
}

impl Granted {
    fn of(mut answer: Value) -> Option<Self> {
        let targets = answer.get("targets").and_then(Value::as_array).into_iter().flatten();
        let text = |target: &Value, name: &str| target.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let targets = targets.map(|target| (text(target, "name"), text(target, "target"))).collect();
        let lease = serde_json::from_value(answer.get_mut("lease")?.take()).ok()?;
        Some(Self { lease, targets })
    }
}

/// Gets a lease, and waits in the queue for it if need be. When its place changes, `tell` gets the
/// place in the queue, and the reason why the lease is not granted yet.
///
/// If the future is dropped, the place in the queue is lost.
///
/// # Errors
/// The request is refused, the longest time in the queue is over, or the agent does not answer.
pub async fn acquire(
    place: &AgentLocation,
    want: &Want,
    tell: impl FnMut(u64, &str),
) -> Result<(Connection, Granted), Refusal> {
    acquire_first(place, want, &First::default(), tell).await
}

/// Of several requests the one that is granted first: no other one confirms an offer.
#[derive(Debug, Default)]
pub(crate) struct First(tokio::sync::Mutex<bool>);

/// As [`acquire`], for one of several requests.
pub(crate) async fn acquire_first(
    place: &AgentLocation,
    want: &Want,
    first: &First,
    mut tell: impl FnMut(u64, &str),
) -> Result<(Connection, Granted), Refusal> {
    let request = uuid::Uuid::new_v4().simple().to_string();
    let started = Instant::now();
    let mut lost = String::new();
    loop {
        // What was waited for before a crash of the agent counts.
        if want.wait.is_some_and(|wait| !wait.is_zero() && wait <= started.elapsed()) {
            return Err(Refusal { code: 124, why: format!("the wait for {} is over{lost}", want.rigs.join(" ")) });
        }
        let wait = want.wait.map(|wait| clock::to_millis(wait.saturating_sub(started.elapsed())));
        let mut connection = match Connection::open(place).await {
            Ok(connection) => connection,
            // It lives, or the way to another host may be there again before the wait is over.
            Err(AgentError::Lost(error))
                if want.wait.is_some_and(|wait| !wait.is_zero())
                    && (place.remote.is_some() || error.kind() == io::ErrorKind::TimedOut) =>
            {
                lost = format!(": {error}");
                sleep(AWAY).await;
                continue;
            }
            Err(trouble) => return Err(trouble.into()),
        };
        let since = connection.there().now().saturating_sub(clock::to_millis(started.elapsed()));
        let ask = json!({
            "request": request, "rigs": want.rigs, "count": want.count, "wait": wait, "since": since,
            "ttl": clock::to_millis(want.ttl), "idle": want.idle.map_or(0, clock::to_millis),
            "is_raw": want.is_raw, "purpose": want.purpose,
        });
        match wait_for(&mut connection, &request, ask, first, &mut tell).await {
            Ok(granted) => return Ok((connection, granted)),
            Err(AgentError::Refused(refusal)) => return Err(refusal),
            // Its successor knows the request, or gives it its place again.
            Err(AgentError::Lost(_)) => sleep(AGAIN).await,
        }
    }
}

async fn wait_for(
    connection: &mut Connection,
    request: &str,
    ask: Value,
    first: &First,
    tell: &mut impl FnMut(u64, &str),
) -> Result<Granted, AgentError> {
    let of =
        |answer| Granted::of(answer).ok_or_else(|| AgentError::Lost(io::Error::other("it answers without a lease")));
    let answer = connection.ask("lock", ask).await?;
    if !answer.get("lease").is_none_or(Value::is_null) {
        *first.0.lock().await = true;
        return of(answer);
    }
    loop {
        let (method, params) = connection.event().await.map_err(AgentError::Lost)?;
        if params.get("request").and_then(Value::as_str) != Some(request) {
            continue;
        }
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match method.as_str() {
            "place" => tell(params.get("place").and_then(Value::as_u64).unwrap_or_default(), &text("why")),
            "offer" => {
                let mut is_granted = first.0.lock().await;
                if *is_granted {
                    return Err(AgentError::Refused(Refusal::refused("another host has granted the rig")));
                }
                match connection.ask("confirm", json!({ "request": request })).await {
                    Ok(answer) => {
                        *is_granted = true;
                        return of(answer);
                    }
                    Err(AgentError::Refused(Refusal { code: LATE, .. })) => {}
                    Err(trouble) => return Err(trouble),
                }
            }
            "refused" => {
                let code = params.get("code").and_then(Value::as_u64).and_then(|code| u8::try_from(code).ok());
                return Err(AgentError::Refused(Refusal { code: code.unwrap_or(3), why: text("why") }));
            }
            _ => {}
        }
    }
}

/// Takes over or joins a lease of this user. If `keeps` is set, this process becomes its keeper,
/// and the lease ends with it. Otherwise the present keeper stays.
///
/// # Errors
/// The lease has ended, or the agent does not answer.
pub async fn attach(place: &AgentLocation, lease: &str, keeps: bool) -> Result<(Connection, Granted), Refusal> {
    let given_up = Instant::now() + Duration::from_millis(SILENCE);
    let (connection, answer) = loop {
        let asked = async {
            let mut connection = Connection::open(place).await?;
            let answer = connection.ask("attach", json!({ "lease": lease, "keeps": keeps, "told": null })).await?;
            Ok((connection, answer))
        };
        match asked.await {
            Ok(asked) => break asked,
            // The agent was killed meanwhile: its successor knows the lease.
            Err(AgentError::Lost(_)) if Instant::now() < given_up => sleep(AGAIN).await,
            Err(trouble) => return Err(trouble.into()),
        }
    };
    let granted = Granted::of(answer).ok_or_else(|| Refusal::refused("the agent answers without a lease"))?;
    Ok((connection, granted))
}

/// Keeps a lease alive by regular signs of life. It returns when the lease is lost, with the
/// reason.
pub async fn keep(place: &AgentLocation, connection: Connection, lease: &Lease, keeps: bool) -> Refusal {
    let mut connection = Some(connection);
    let mut lost_since = None;
    loop {
        match connection.take() {
            Some(mut open) => match beat(&mut open, lease).await {
                Ok(()) => connection = Some(open),
                Err(AgentError::Refused(refusal)) => return refusal,
                Err(AgentError::Lost(_)) => {}
            },
            None => {
                let since = *lost_since.get_or_insert_with(clock::now);
                let again = async {
                    let mut open = Connection::open(place).await?;
                    open.ask("attach", json!({ "lease": lease.id, "keeps": keeps, "told": lease })).await?;
                    Ok(open)
                };
                match again.await {
                    Ok(open) => (connection, lost_since) = (Some(open), None),
                    Err(AgentError::Refused(refusal)) => return refusal,
                    Err(AgentError::Lost(error)) => {
                        let patience = if error.kind() == io::ErrorKind::TimedOut { SLOW } else { SILENCE };
                        if clock::now() >= since.saturating_add(patience) {
                            return Refusal::refused(format!("the lease is lost, since no agent answers: {error}"));
                        }
                        sleep(AGAIN).await;
                    }
                }
            }
        }
    }
}

/// Listens for the lease's end, and then says that its holder lives.
async fn beat(open: &mut Connection, lease: &Lease) -> Result<(), AgentError> {
    let next = Instant::now() + HEARTBEAT;
    loop {
        match tokio::time::timeout_at(next, open.event()).await {
            Err(_) => break,
            Ok(Err(error)) => return Err(AgentError::Lost(error)),
            Ok(Ok((method, params))) if method == "ended" => {
                let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
                if text("lease") == lease.id {
                    let at = params.get("at").and_then(Value::as_u64).unwrap_or_default();
                    let at = crate::book::time_of_day(at);
                    let why = format!("the lease was ended by {} at {at}: {}", text("by"), text("why"));
                    return Err(AgentError::Refused(Refusal::refused(why)));
                }
            }
            Ok(Ok(_)) => {}
        }
    }
    open.ask("renew", json!({ "lease": lease.id })).await.map(drop)
}

/// Gives a lease back.
///
/// # Errors
/// The lease has ended already, or the agent does not answer.
pub async fn release(place: &AgentLocation, lease: &str) -> Result<(), Refusal> {
    let given_up = Instant::now() + Duration::from_millis(SILENCE);
    let mut was_lost = false;
    loop {
        let asked = async { Connection::open(place).await?.ask("release", json!({ "lease": lease })).await };
        match asked.await {
            Ok(_) => return Ok(()),
            // The agent was killed before it answered: it had ended the lease, or its successor does.
            Err(AgentError::Refused(_)) if was_lost => return Ok(()),
            Err(AgentError::Lost(_)) if Instant::now() < given_up => was_lost = true,
            Err(trouble) => return Err(trouble.into()),
        }
        sleep(AGAIN).await;
    }
}
