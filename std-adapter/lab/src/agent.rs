//! The agent: the process that grants leases, and through which the holders reach their rigs. There
//! is one for each user and host, or one for a group of users.
//!
//! The first command that needs the agent starts it. It ends when nobody has needed it for a while.
//! It speaks JSON-RPC lines on a Unix socket. Its rules are in [`crate::book`].

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use rigline::frame::{Frame, HeapFramer};
use rigline::json::Json;
use rigline::json::write::Writer;
use rigline::rpc;
use rigline_host::ports::Roots;
use rigline_host::process;
use rigline_std::mutex::lock;
use rigline_std::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::book::{Effect, Heartbeats, Lab, LeaseReply, LeaseRequest, Refusal};
use crate::check::{self, RigCheck};
use crate::clock::{self, Alarm, BootTime};
use crate::folders::Folders;
use crate::frames::{self, PIECE, Piece};
pub use crate::handshake::PROTOCOL;
use crate::handshake::{Far, LINE_LIMIT};
use crate::processes::{self, Process};
use crate::records::{Holder, Lease};
use crate::rigs::{self, Selector, Spec};
use crate::store;
use crate::users;
use crate::wire::{self, ToClient, Unread, Wire};

/// The longest line of a client.
const REQUEST_LIMIT: usize = 64 << 10;
/// The room for answers that need no more.
const SHORT: usize = 8 << 10;

/// How many lines may wait for a client to read them. One that reads none of them is disconnected.
const UNREAD: usize = 256;
/// How many bytes of them may wait.
const UNREAD_BYTES: usize = 8 << 20;
/// How many of them may be news of its place, of which the last one counts.
const PLACES: usize = 64;
/// How many connections one user may have.
const CONNECTIONS: usize = 2000;
/// How many connections to rigs one lease may have.
const OPEN: usize = 64;
/// How many files the agent may have open: each who waits is one.
const FILES: u64 = 16_384;
/// How late the agent must wake up to have stood still.
const LATE: u64 = 500;
/// How long the holders of leases have to tell them when the books were lost.
const TOLD: u64 = 10_000;
/// How often it is tried to be the only agent: another command may be looking whether there is one.
const TRIES: u32 = 10;

/// The options of an agent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The time for which the agent stays although nobody needs it. `None` means for ever.
    pub idle: Option<Duration>,
    /// The users that the agent serves besides its own. `None` means that it serves only its own
    /// user.
    pub system: Option<System>,
}

/// The users that a system-wide agent serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// The id of the group whose members may use the rigs.
    pub group: u32,
    /// The id of the group whose members may end the leases of others. `None` allows only root.
    pub admins: Option<u32>,
}

impl Default for Options {
    /// It ends after ten minutes.
    fn default() -> Self {
        Self { idle: Some(Duration::from_secs(600)), system: None }
    }
}

/// How long a port that is closed may take.
const CLOSED: Duration = Duration::from_secs(2);

/// The code of an answer that refuses something (JSON-RPC 2.0 §5.1 leaves it to the server).
const REFUSED: i32 = -32000;

struct Agent {
    /// The jobs of the worker.
    jobs: std::sync::mpsc::Sender<Job>,
    /// The holders of leases are heard, and their bytes pass, without the worker.
    heartbeats: Heartbeats,
    clients: Mutex<HashMap<u64, AgentClient>>,
    /// The ports that are open, by the connections that use them.
    wires: Mutex<HashMap<u64, (Wire, JoinHandle<()>)>>,
    /// The ports that are being closed, by their leases: a rig is not checked before.
    closing: Mutex<HashMap<String, Closing>>,
    next: AtomicU64,
    /// A client has gone.
    changed: Notify,
    instance: String,
    /// The numbers of users who are known by their names only.
    numbers: Mutex<HashMap<u32, String>>,
    system: Option<System>,
    rigs: Mutex<Listed>,
    folders: Folders,
    roots: Roots,
}

struct AgentClient {
    uid: u32,
    lines: ToClient,
}

/// A thread of its own, the worker, has the lab, and does one thing after the other. It waits for the disk, and for the names of users and
/// of hosts, and nobody else waits for that. A job gets memory for its answer.
type Job = Box<dyn FnOnce(&mut Lab, &mut [u8]) -> Option<Reply> + Send>;

/// A line for a client. What it does not take at once is given back to who has asked.
struct Reply {
    conn: u64,
    line: Option<Vec<u8>>,
    done: oneshot::Sender<Option<Vec<u8>>>,
}

/// The outcome of a job, in the order of the jobs.
struct News {
    reply: Option<Reply>,
    /// Behind the reply goes what follows from it.
    effects: Vec<Effect>,
    /// When something is due.
    due: Option<BootTime>,
    is_idle: bool,
}

fn worker(mut lab: Lab, jobs: &std::sync::mpsc::Receiver<Job>, news: &mpsc::UnboundedSender<News>) {
    // What is not used of it takes no memory.
    let mut memory = vec![0; LINE_LIMIT];
    for job in jobs {
        let reply = job(&mut lab, &mut memory);
        lab.freshen(clock::now());
        let effects = std::mem::take(&mut lab.effects);
        let told = News { reply, effects, due: lab.due(), is_idle: lab.is_idle() };
        if news.send(told).is_err() {
            break;
        }
    }
}

type Closing = Arc<tokio::sync::Mutex<Vec<JoinHandle<()>>>>;

/// The list as it was read last.
#[derive(Default)]
struct Listed {
    seen: Option<(SystemTime, u64)>,
    fault: Option<String>,
}

/// Makes this the only agent of its folder. There is none to be, if another one runs.
fn be_the_only(path: &Path) -> io::Result<Option<File>> {
    let mut only = OpenOptions::new();
    only.read(true).write(true).create(true).truncate(false).mode(0o600);
    let only = only.open(path)?;
    for _ in 0..TRIES {
        match only.try_lock() {
            Ok(()) => return Ok(Some(only)),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// Runs the agent until nobody needs it any more, or until it gets a signal to end. Returns `false`
/// without running if another agent runs already. It must be called in a tokio runtime with a
/// single thread.
///
/// # Errors
/// The agent cannot run. The text says why.
pub async fn run(folders: &Folders, options: &Options) -> Result<bool, String> {
    let named = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    folders.make().map_err(|error| error.to_string())?;
    let path = folders.lock_file();
    let has_run = path.exists();
    let Some(_only) = be_the_only(&path).map_err(|error| named(&path, error))? else { return Ok(false) };
    process::raise_open_files(FILES);
    let boot = clock::boot_id().map_err(|error| format!("the name of the machine's last start: {error}"))?;
    let books = folders.books_file();
    let (books, kept) = store::File::open(&books).map_err(|error| named(&books, error))?;
    // Books that are not there were lost, if anything of an earlier agent is.
    let left = if kept.is_none() { processes::leases() } else { BTreeSet::new() };
    let mut lab = Lab::new(Box::new(books), kept, has_run || !left.is_empty(), &boot, clock::now());
    lab.expect(left, clock::now() + TOLD);
    let (jobs, to_do) = std::sync::mpsc::channel();
    let agent = Arc::new(Agent {
        jobs,
        heartbeats: lab.heartbeats(),
        clients: Mutex::default(),
        wires: Mutex::default(),
        closing: Mutex::default(),
        next: AtomicU64::new(0),
        changed: Notify::new(),
        instance: uuid::Uuid::new_v4().simple().to_string(),
        numbers: Mutex::default(),
        system: options.system,
        rigs: Mutex::default(),
        folders: folders.clone(),
        roots: Roots::of_environment(),
    });
    let socket = folders.socket_path();
    // It is no living agent's: that one would have the lock.
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(|error| named(&socket, error))?;
    let mode = match options.system {
        None => 0o600,
        Some(System { group, .. }) => {
            rustix::fs::chown(&socket, None, Some(rustix::process::Gid::from_raw(group)))
                .map_err(|error| named(&socket, error.into()))?;
            0o660
        }
    };
    fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).map_err(|error| named(&socket, error))?;
    let mut signals = Signals::new().map_err(|error| format!("signals: {error}"))?;
    let alarm = Alarm::new().map_err(|error| format!("the timer: {error}"))?;
    let (tell, mut news) = mpsc::unbounded_channel();
    let started = thread::Builder::new().name("books".to_owned()).spawn(move || worker(lab, &to_do, &tell));
    started.map_err(|error| format!("no thread can be started: {error}"))?;
    let reader = Arc::clone(&agent);
    // A wrong list is told to those who ask for its rigs.
    agent.note(move |lab| drop(reader.read_rigs(lab, clock::now())));
    let (mut due, mut is_idle, mut idle_since) = (None, false, clock::now());
    loop {
        let now = clock::now();
        let is_needed = !is_idle || !lock(&agent.clients).is_empty();
        if is_needed {
            idle_since = now;
        }
        let end = options.idle.filter(|_| !is_needed).map(|idle| idle_since.saturating_add(clock::to_millis(idle)));
        if end.is_some_and(|end| end <= now) {
            break;
        }
        let next = [due, end].into_iter().flatten().min();
        tokio::select! {
            told = news.recv() => {
                let Some(told) = told else { return Err("the agent's thread with the books has ended".to_owned()) };
                (due, is_idle) = (told.due, told.is_idle);
                agent.pass(told.reply);
                agent.perform(told.effects);
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => agent.welcome(stream),
                // No descriptors are left, for example: some may be soon.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            () = alarm.at(next) => {
                let now = clock::now();
                let has_stood_still = next.is_some_and(|next| next + LATE < now);
                // Until the worker has done it, and says what is due then.
                due = None;
                agent.note(move |lab| {
                    if has_stood_still {
                        lab.spare(now);
                    }
                    lab.tick(now);
                });
            }
            () = agent.changed.notified() => {}
            _ = signals.next() => break,
        }
    }
    // The books have all leases: the next agent goes on with them.
    let _ = fs::remove_file(&socket);
    Ok(true)
}

/// The peer at the other end.
#[derive(Clone)]
struct Peer {
    conn: u64,
    uid: u32,
    process: Process,
    /// The user on another host for whom that process speaks.
    far: Option<Far>,
}

impl Peer {
    /// The process that has a lease, or waits for one.
    fn holder(&self) -> Process {
        self.far.as_ref().map_or(self.process, |far| Process::elsewhere(far.pid))
    }

    /// The user's name, with the host if it is another one.
    fn user(&self) -> String {
        match &self.far {
            None => users::name(self.uid),
            Some(Far { user, machine, is_vouched: true, .. }) => format!("{user} on {machine}"),
            Some(Far { machine, .. }) => format!("{} on {machine}", users::name(self.uid)),
        }
    }

    /// Whether the user is not one of this system.
    fn is_foreign(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.is_vouched)
    }
}

impl Agent {
    /// Has the worker do something.
    fn note(&self, job: impl FnOnce(&mut Lab) + Send + 'static) {
        let job: Job = Box::new(move |lab, _| {
            job(lab);
            None
        });
        // Without the worker the agent ends.
        let _ = self.jobs.send(job);
    }

    /// Has the worker do something, and waits for its outcome.
    async fn ask_worker<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Lab) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (tell, told) = oneshot::channel();
        self.note(move |lab| drop(tell.send(job(lab))));
        told.await.unwrap_or_else(|_| Err(Refusal::refused("the agent ends")))
    }

    fn welcome(self: &Arc<Self>, stream: UnixStream) {
        let Some(peer) = self.peer(&stream) else { return };
        let mut clients = lock(&self.clients);
        if clients.values().filter(|client| client.uid == peer.uid).count() >= CONNECTIONS {
            let why = format!("this user has {CONNECTIONS} connections to the agent, which is the limit");
            let mut line = Vec::from(b"{\"jsonrpc\":\"2.0\",\"id\":null");
            line.extend(answer_text(Err(Refusal::refused(why))).into_bytes());
            line.push(b'\n');
            let _ = stream.try_write(&line);
            return;
        }
        let (lines, unread) = ToClient::new(UNREAD, UNREAD_BYTES);
        clients.insert(peer.conn, AgentClient { uid: peer.uid, lines: lines.clone() });
        tokio::spawn(Arc::clone(self).serve(peer, stream, lines, unread));
    }

    async fn serve(self: Arc<Self>, mut peer: Peer, stream: UnixStream, send: ToClient, mut lines: Unread) {
        let (mut reader, mut writer) = stream.into_split();
        let writing = tokio::spawn(async move {
            while let Some((line, _room)) = lines.recv().await {
                if writer.write_all(&line).await.is_err() {
                    break;
                }
            }
        });
        let mut framer = HeapFramer::new(REQUEST_LIMIT);
        'connected: while let Ok(count) = reader.read(framer.space()).await {
            if count == 0 {
                break;
            }
            framer.commit(count);
            let now = clock::now();
            while let Some(frame) = framer.next_frame() {
                let reply = match frame {
                    Frame::TooLong(fault) => Some(rpc::answer_too_long(fault, &mut [0; SHORT]).to_vec()),
                    Frame::Line(line) => match self.at_once(&peer, line, now) {
                        Answered::Yes(reply) => reply,
                        Answered::Speaks(far, uid, reply) => {
                            (peer.far, peer.uid) = (Some(far), uid);
                            reply
                        }
                        Answered::Opens(params) => {
                            drop(framer);
                            self.pass_on(&peer, params, reader, &send).await;
                            break 'connected;
                        }
                        Answered::No => {
                            let line = line.to_vec();
                            self.by_worker(&peer, line, now).await
                        }
                    },
                };
                if let Some(reply) = reply
                    && send.send(reply).await.is_err()
                {
                    break 'connected;
                }
                // It may have been disconnected, since it did not read.
                if !lock(&self.clients).contains_key(&peer.conn) {
                    break 'connected;
                }
            }
        }
        lock(&self.clients).remove(&peer.conn);
        drop(send);
        self.close(peer.conn, "");
        let (conn, now) = (peer.conn, clock::now());
        self.note(move |lab| lab.disconnected(conn, now));
        self.changed.notify_one();
        let _ = tokio::time::timeout(Duration::from_secs(1), writing).await;
    }

    /// Answers what needs no books.
    fn at_once(&self, peer: &Peer, line: &[u8], now: BootTime) -> Answered {
        let method = Json::parse(line).ok().and_then(|json| Some(json.get("method")?.text()?.to_string()));
        if !matches!(method.as_deref(), Some("hello" | "renew" | "open")) {
            return Answered::No;
        }
        let (mut memory, mut opens, mut is_unknown, mut speaks) = ([0; SHORT], None, false, None);
        let reply = rpc::answer(line, &mut memory, &mut |incoming, out| {
            let params: Value = serde_json::from_str(incoming.params.as_str()).unwrap_or_default();
            let answer = self.ensure_served(peer).and_then(|()| match incoming.method.to_string().as_str() {
                "hello" => self.hello(peer, parse(params)?, now, &mut speaks),
                "renew" => {
                    let OfLease { lease } = parse(params)?;
                    is_unknown = !self.heartbeats.knows(&lease);
                    let until = self.heartbeats.renew(&lease, peer.uid, now)?;
                    Ok(json!({ "now": now, "until": until }))
                }
                _ => {
                    opens = Some(params);
                    Ok(Value::Null)
                }
            });
            write_answer(answer, out);
        });
        match opens {
            Some(params) => Answered::Opens(params),
            // Why it is unknown, the books may tell.
            None if is_unknown => Answered::No,
            None => {
                let reply = reply.map(<[u8]>::to_vec);
                match speaks {
                    Some((far, uid)) => Answered::Speaks(far, uid, reply),
                    None => Answered::Yes(reply),
                }
            }
        }
    }

    /// Has the worker answer a line. Returns what its client did not take at once.
    async fn by_worker(self: &Arc<Self>, peer: &Peer, line: Vec<u8>, now: BootTime) -> Option<Vec<u8>> {
        let (done, told) = oneshot::channel();
        let (agent, peer) = (Arc::clone(self), peer.clone());
        let job: Job = Box::new(move |lab, memory| {
            let reply = rpc::answer(&line, memory, &mut |incoming, out| {
                let params = serde_json::from_str(incoming.params.as_str()).unwrap_or_default();
                write_answer(agent.answer(lab, &peer, &incoming.method.to_string(), params, now), out);
            });
            Some(Reply { conn: peer.conn, line: reply.map(<[u8]>::to_vec), done })
        });
        let _ = self.jobs.send(job);
        told.await.unwrap_or_default()
    }

    /// Passes a reply to its client.
    fn pass(&self, reply: Option<Reply>) {
        let Some(Reply { conn, line, done }) = reply else { return };
        let rest = line.and_then(|line| match lock(&self.clients).get(&conn) {
            Some(client) => client.lines.try_send(line).err(),
            None => Some(line),
        });
        let _ = done.send(rest);
    }

    fn ensure_served(&self, peer: &Peer) -> Result<(), Refusal> {
        if self.system.is_none() && !peer.is_foreign() && peer.uid != rustix::process::getuid().as_raw() {
            return Err(Refusal::refused("this agent serves another user"));
        }
        Ok(())
    }

    fn peer(&self, stream: &UnixStream) -> Option<Peer> {
        let who = rustix::net::sockopt::socket_peercred(stream).ok()?;
        let pid = u32::try_from(who.pid.as_raw_nonzero().get()).ok()?;
        // Somebody whose process has ended does not listen any more.
        let process = Process::of(pid)?;
        let conn = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Peer { conn, uid: who.uid.as_raw(), process, far: None })
    }

    /// Answers a request that came at the time `now`.
    fn answer(&self, lab: &mut Lab, peer: &Peer, method: &str, params: Value, now: BootTime) -> Result<Value, Refusal> {
        self.ensure_served(peer)?;
        if method == "quarantine" && peer.is_foreign() && !self.is_admin(peer) {
            return Err(Refusal::refused("only administrators of the lab put rigs into quarantine and end that"));
        }
        match method {
            "lock" => self.ask(lab, peer, parse(params)?, now),
            "confirm" => {
                let Request { request } = parse(params)?;
                let lease = lab.confirm(peer.conn, &request, peer.uid, now)?;
                Ok(json!({ "lease": lease, "targets": targets(lab, &lease) }))
            }
            "cancel" => {
                let Request { request } = parse(params)?;
                lab.cancel(&request, peer.uid, now);
                Ok(Value::Null)
            }
            "attach" => {
                let Attach { lease, keeps, told } = parse(params)?;
                // Nothing is known here of a keeper on another host.
                let keeper = keeps.then_some(peer.process).filter(|_| peer.far.is_none());
                // The agent ends the processes of a lease: they must be this user's.
                let is_own = |process: Process| process.uid().is_none_or(|uid| uid == peer.uid);
                let told = told.filter(|told| is_own(told.holder.process) && told.keeper.is_none_or(is_own));
                let lease = lab.attach(peer.conn, &lease, keeper, told, peer.uid, now)?;
                Ok(json!({ "lease": lease, "targets": targets(lab, &lease) }))
            }
            "renew" => {
                let OfLease { lease } = parse(params)?;
                let until = lab.renew(&lease, peer.uid, now)?;
                Ok(json!({ "now": now, "until": until }))
            }
            "release" => {
                let OfLease { lease } = parse(params)?;
                let by = lab.usable(&lease, peer.uid, now)?.holder.to_string();
                lab.end(&lease, "its holder has released it", &by, now);
                Ok(Value::Null)
            }
            "join" => {
                let Join { lease, selector } = parse(params)?;
                let selector = selector.map(|selector| self.selector(lab, peer, &selector)).transpose()?;
                let rigs = &lab.usable(&lease, peer.uid, now)?.rigs;
                let fits = |spec: &&Spec| selector.as_ref().is_none_or(|selector| selector.fits(spec));
                let fitting = lab.specs().filter(|spec| rigs.contains(&spec.name)).filter(fits);
                let fitting: Vec<&String> = fitting.map(|spec| &spec.name).collect();
                Ok(json!({ "rig": fitting.first(), "rigs": fitting }))
            }
            "status" => {
                let OfRig { rig, .. } = parse(params)?;
                self.read_rigs(lab, now)?;
                let rig = self.rig(lab, peer, rig)?;
                let mut status = lab.status(rig.as_deref(), now)?;
                status["agent"] = json!({ "pid": std::process::id(), "instance": self.instance });
                Ok(status)
            }
            "select" => {
                let Select { selector } = parse(params)?;
                self.read_rigs(lab, now)?;
                self.list_matching(lab, peer, &selector, now)
            }
            "check" => {
                let OfRig { rig, .. } = parse(params)?;
                self.read_rigs(lab, now)?;
                let rig = self.rig(lab, peer, rig)?;
                lab.check_now(rig.as_deref())?;
                Ok(Value::Null)
            }
            "break" => {
                let (rig, reason) = named(self, lab, peer, params)?;
                let reason =
                    reason.ok_or_else(|| Refusal::usage("a lease is broken for a reason; say it by --reason"))?;
                let uid = (!self.is_admin(peer)).then_some(peer.uid);
                lab.break_lease(&rig, &reason, &Self::who(peer), uid, now)?;
                Ok(Value::Null)
            }
            "quarantine" => {
                let (rig, reason) = named(self, lab, peer, params)?;
                lab.quarantine(&rig, reason.as_deref(), &Self::who(peer), now)?;
                Ok(Value::Null)
            }
            "log" => {
                let OfRig { rig, .. } = parse(params)?;
                let rig = self.rig(lab, peer, rig)?;
                lab.log(rig.as_deref())
            }
            _ => Err(Refusal::usage(format!("the agent has no method `{method}`"))),
        }
    }

    /// Answers who this agent is. If the peer speaks for somebody on another host, `speaks` gets who that is, with the number of the user.
    fn hello(
        &self,
        peer: &Peer,
        hello: Hello,
        now: BootTime,
        speaks: &mut Option<(Far, u32)>,
    ) -> Result<Value, Refusal> {
        let Hello { protocol, far } = hello;
        if protocol != PROTOCOL {
            let pid = std::process::id();
            let how = match &far {
                None => format!("it ends by `kill {pid}`, and its leases go on"),
                Some(_) => "install the same version on both hosts".to_owned(),
            };
            return Err(Refusal::refused(format!(
                "the agent (process {pid}) is of another version of rigline: it speaks version {PROTOCOL} of its protocol, and this command {protocol}; {how}"
            )));
        }
        if let Some(far) = far {
            // What comes behind this is of the one on the other host.
            if peer.far.is_some() {
                return Err(Refusal::refused("who is on the other host is said already"));
            }
            let uid = match far.is_vouched {
                false => peer.uid,
                true if peer.uid == 0 || peer.uid == rustix::process::getuid().as_raw() => self.number(&far.user)?,
                true => return Err(Refusal::refused("only the agent's own user vouches for others")),
            };
            *speaks = Some((far, uid));
        }
        Ok(json!({ "protocol": PROTOCOL, "instance": self.instance, "pid": std::process::id(), "now": now }))
    }

    /// The number of a user who is known by the name only, which no user of the system has (those are below 2³¹).
    fn number(&self, name: &str) -> Result<u32, Refusal> {
        // FNV-1a: the same after a restart, for leases that are in the books.
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let number = hash | 0x8000_0000;
        let mut numbers = lock(&self.numbers);
        let known = numbers.entry(number).or_insert_with(|| name.to_owned());
        if known == name {
            return Ok(number);
        }
        Err(Refusal::refused(format!("the user {name} cannot be told from {known}; give one of them another name")))
    }

    fn who(peer: &Peer) -> String {
        format!("{} (process {})", peer.user(), peer.holder().pid)
    }

    /// Whether somebody may end the leases of others.
    fn is_admin(&self, peer: &Peer) -> bool {
        if let Some(far) = peer.far.as_ref().filter(|far| far.is_vouched) {
            return far.is_admin;
        }
        match self.system {
            None => true,
            Some(_) if peer.uid == 0 || peer.uid == rustix::process::getuid().as_raw() => true,
            Some(System { admins, .. }) => admins.is_some_and(|group| users::is_of_group(peer.process, group)),
        }
    }

    fn ask(&self, lab: &mut Lab, peer: &Peer, want: Want, now: BootTime) -> Result<Value, Refusal> {
        self.read_rigs(lab, now)?;
        let mut selectors = Vec::new();
        for text in &want.rigs {
            selectors.push(self.selector(lab, peer, text)?);
        }
        let holder = Holder {
            user: peer.user(),
            uid: peer.uid,
            process: peer.holder(),
            purpose: want.purpose.chars().filter(|char| !char.is_control()).take(200).collect(),
        };
        let ask = LeaseRequest {
            request: want.request,
            selectors,
            count: want.count,
            wait: want.wait,
            // Nobody has waited for longer than it lives.
            since: if peer.far.is_some() { want.since } else { want.since.max(peer.process.since_boot()) },
            ttl: want.ttl,
            idle: want.idle,
            is_raw: want.is_raw,
            holder,
        };
        match lab.ask(peer.conn, ask, now)? {
            LeaseReply::Granted(lease) => Ok(json!({ "lease": lease, "targets": targets(lab, &lease) })),
            LeaseReply::Waits => Ok(json!({ "lease": null })),
        }
    }

    /// Gives a connection to the port of a rig, until its holder or the port closes it. From here on it has frames and no lines.
    async fn pass_on(&self, peer: &Peer, params: Value, reader: OwnedReadHalf, out: &ToClient) {
        let opened = match parse(params) {
            Ok(open) => self.open(peer, open, out).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(Refusal { code, why }) = opened {
            let _ = out.send(wire::closed(code, &why)).await;
            return;
        }
        let mut reader = BufReader::with_capacity(PIECE, reader);
        loop {
            match frames::read(&mut reader).await {
                // Nobody waits any more for what this one wanted, and it may be long ago: the agent may have stood still.
                Ok(Some(_)) if is_gone(reader.get_ref()) => {
                    self.close(peer.conn, "its holder is gone");
                    break;
                }
                Ok(Some(piece)) => self.send(peer, piece, clock::now()),
                Ok(None) => break,
                Err(error) => {
                    self.close(peer.conn, &error.to_string());
                    break;
                }
            }
        }
    }

    /// Opens the port of a rig for a connection.
    async fn open(&self, peer: &Peer, open: Open, out: &ToClient) -> Result<(), Refusal> {
        let (Open { lease, rig }, uid) = (open, peer.uid);
        let id = lease.clone();
        let found = self.ask_worker(move |lab| {
            if !lab.usable(&id, uid, clock::now())?.rigs.contains(&rig) {
                return Err(Refusal::usage(format!("the lease does not have {rig}")));
            }
            let target = lab.specs().find(|spec| spec.name == rig).map(|spec| spec.target.clone());
            Ok((target.unwrap_or_default(), lab.board(&rig)))
        });
        let (target, board) = found.await?;
        // From here to the end nothing is waited for: either the lease has ended before, or what ends it finds this wire and closes it.
        self.heartbeats.usable(&lease, uid, clock::now())?;
        let mut wires = lock(&self.wires);
        if wires.values().filter(|(wire, _)| wire.lease == lease).count() >= OPEN {
            return Err(Refusal::refused(format!("the lease has {OPEN} connections to its rigs, which is the limit")));
        }
        let (wire, port) = wire::pair(&lease);
        let (roots, out) = (self.roots.clone(), out.clone());
        let task = tokio::spawn(async move { wire::run(&target, board.as_deref(), &roots, port, out).await });
        wires.insert(peer.conn, (wire, task));
        Ok(())
    }

    /// Passes a piece on to the rig, if the lease lasts and the piece is not late.
    fn send(&self, peer: &Peer, piece: Piece, now: BootTime) {
        let mut wires = lock(&self.wires);
        let Some((wire, _)) = wires.get_mut(&peer.conn) else { return };
        let used = self.heartbeats.record_use(&wire.lease, peer.uid, now);
        if let Err(refusal) = used.and_then(|()| wire.send(piece, now)) {
            wire.stop(&refusal.why);
        }
    }

    /// Closes what a connection has open.
    fn close(&self, conn: u64, why: &str) {
        let Some((mut wire, task)) = lock(&self.wires).remove(&conn) else { return };
        wire.stop(why);
        let mut closing = lock(&self.closing);
        let of_lease = closing.entry(wire.lease.clone()).or_default();
        if let Ok(mut tasks) = of_lease.try_lock() {
            tasks.retain(|task| !task.is_finished());
            tasks.push(task);
        }
    }

    /// Returns the meaning of a target. A target that is a rig of the list is that rig.
    fn selector(&self, lab: &mut Lab, peer: &Peer, text: &str) -> Result<Selector, Refusal> {
        Ok(match text.parse::<Selector>().map_err(Refusal::usage)? {
            Selector::Target(target) => {
                let mut spec = Spec::unlisted(&target);
                spec.find_board(&self.roots);
                // It would open, or run, what the user named with the agent's rights.
                if (self.system.is_some() || peer.is_foreign()) && !lab.is_listed(&spec) {
                    let whom = match peer.is_foreign() {
                        true => "users over NATS get no others",
                        false => "the system's agent serves no others",
                    };
                    return Err(Refusal::usage(format!(
                        "{target} is no rig of {}, and {whom}",
                        self.folders.rigs_file().display()
                    )));
                }
                Selector::Name(lab.name_of(spec))
            }
            selector => selector,
        })
    }

    /// The name of a rig that a person names by its name, by `rig:NAME` or by its target.
    fn rig(&self, lab: &mut Lab, peer: &Peer, text: Option<String>) -> Result<Option<String>, Refusal> {
        let Some(text) = text else { return Ok(None) };
        if lab.specs().any(|spec| spec.name == text) {
            return Ok(Some(text));
        }
        match text.strip_prefix("rig:").unwrap_or(&text) {
            name if !name.contains([':', '=']) && (name != "sim" || text != name) => Ok(Some(name.to_owned())),
            _ => match self.selector(lab, peer, &text)? {
                Selector::Name(name) => Ok(Some(name)),
                selector => Err(Refusal::usage(format!("`{selector}` may mean several rigs; name one"))),
            },
        }
    }

    fn list_matching(&self, lab: &mut Lab, peer: &Peer, text: &str, now: BootTime) -> Result<Value, Refusal> {
        let selector = if text.is_empty() { None } else { Some(self.selector(lab, peer, text)?) };
        let mut status = lab.status(None, now)?;
        let Some(selector) = selector else { return Ok(status) };
        let fitting = lab.specs().filter(|spec| selector.fits(spec));
        let names: BTreeSet<String> = fitting.map(|spec| spec.name.clone()).collect();
        if names.is_empty() {
            return Err(Refusal::usage(selector.nothing(lab.specs())));
        }
        if let Some(rigs) = status.get_mut("rigs").and_then(Value::as_array_mut) {
            rigs.retain(|rig| rig.get("name").and_then(Value::as_str).is_some_and(|name| names.contains(name)));
        }
        // Those who wait for one of these rigs.
        let waiting = lab.waiting_for(&names);
        if let Some(queue) = status.get_mut("queue").and_then(Value::as_array_mut) {
            queue.retain(|one| one.get("request").and_then(Value::as_str).is_some_and(|one| waiting.contains(one)));
        }
        Ok(status)
    }

    /// Reads the list, if it has changed.
    fn read_rigs(&self, lab: &mut Lab, now: BootTime) -> Result<(), Refusal> {
        let mut listed = lock(&self.rigs);
        let path = self.folders.rigs_file();
        let seen = fs::metadata(&path).ok().and_then(|about| Some((about.modified().ok()?, about.len())));
        if seen.is_none() || listed.seen != seen {
            listed.seen = seen;
            match rigs::read(&path) {
                Ok(mut specs) => {
                    specs.iter_mut().for_each(|spec| spec.find_board(&self.roots));
                    lab.set_rigs(specs, now);
                    listed.fault = None;
                }
                Err(error) => listed.fault = Some(error.to_string()),
            }
        }
        match &listed.fault {
            Some(fault) => Err(Refusal::usage(fault.clone())),
            None => Ok(()),
        }
    }

    /// Does what follows from what has happened.
    fn perform(self: &Arc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Tell { conn, method, params } => self.tell(conn, method, &params),
                Effect::Close { lease, why } => {
                    let wires = lock(&self.wires);
                    let conns: Vec<u64> =
                        wires.iter().filter(|(_, (wire, _))| wire.lease == lease).map(|(conn, _)| *conn).collect();
                    drop(wires);
                    conns.into_iter().for_each(|conn| self.close(conn, &why));
                }
                Effect::Check { rig, target, asks, recover, board, lease } => {
                    let agent = Arc::clone(self);
                    let id = lease.as_ref().map(|lease| lease.id.clone()).unwrap_or_default();
                    let closing = lock(&self.closing).get(&id).cloned();
                    tokio::spawn(async move {
                        if let Some(closing) = closing {
                            for task in closing.lock().await.drain(..) {
                                let stop = task.abort_handle();
                                if tokio::time::timeout(CLOSED, task).await.is_err() {
                                    stop.abort();
                                }
                            }
                            lock(&agent.closing).remove(&id);
                        }
                        let (lease, board, recover) = (lease.as_deref(), board.as_deref(), recover.as_slice());
                        let what = RigCheck { target: &target, asks, lease, recover, board };
                        let found = check::run(&what, &agent.roots).await;
                        let roots = agent.roots.clone();
                        agent.note(move |lab| {
                            let board = target.parse().ok().and_then(|target| check::board_at(&target, &roots));
                            if let (Ok(_), Some(board)) = (&found, board) {
                                lab.identified(&rig, board);
                            }
                            lab.record_check(&rig, found, clock::now());
                        });
                    });
                }
            }
        }
    }

    fn tell(&self, conn: u64, method: &str, params: &Value) {
        let line = format!("{}\n", json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        let mut clients = lock(&self.clients);
        let Some(AgentClient { lines, .. }) = clients.get(&conn) else { return };
        // Of its places, one that does not read needs the last only.
        if method == "place" && lines.capacity() <= UNREAD - PLACES {
            return;
        }
        if lines.try_send(line.into_bytes()).is_err() {
            clients.remove(&conn);
        }
    }
}

/// The answer to a line that needs no books.
enum Answered {
    /// It needs them.
    No,
    Yes(Option<Vec<u8>>),
    /// From now on the peer speaks for a user on another host, whose number this is.
    Speaks(Far, u32, Option<Vec<u8>>),
    /// A port is wanted, and frames follow.
    Opens(Value),
}

/// Whether the other end is closed, whatever of it is still to be read.
fn is_gone(reader: &OwnedReadHalf) -> bool {
    let stream: &UnixStream = reader.as_ref();
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled.iter().any(|polled| polled.revents().contains(PollFlags::HUP))
}

fn targets(lab: &Lab, lease: &Lease) -> Value {
    let target = |name: &String| lab.specs().find(|spec| spec.name == *name).map(|spec| spec.target.clone());
    lease.rigs.iter().map(|name| json!({ "name": name, "target": target(name) })).collect()
}

fn named(agent: &Agent, lab: &mut Lab, peer: &Peer, params: Value) -> Result<(String, Option<String>), Refusal> {
    let OfRig { rig, reason } = parse(params)?;
    let rig = agent.rig(lab, peer, rig)?.ok_or_else(|| Refusal::usage("no rig is named"))?;
    let reason = reason.map(|reason| reason.chars().filter(|char| !char.is_control()).take(500).collect());
    Ok((rig, reason))
}

/// A client begins with it.
#[derive(Deserialize)]
struct Hello {
    protocol: u32,
    #[serde(default)]
    far: Option<Far>,
}

/// A client's request.
#[derive(Deserialize)]
struct Want {
    request: String,
    rigs: Vec<String>,
    count: usize,
    wait: Option<u64>,
    since: BootTime,
    ttl: u64,
    idle: u64,
    is_raw: bool,
    purpose: String,
}

#[derive(Deserialize)]
struct Request {
    request: String,
}

#[derive(Deserialize)]
struct OfLease {
    lease: String,
}

#[derive(Deserialize)]
struct Attach {
    lease: String,
    keeps: bool,
    told: Option<Lease>,
}

#[derive(Deserialize)]
struct Join {
    lease: String,
    /// All rigs of the lease, if none.
    #[serde(default)]
    selector: Option<String>,
}

#[derive(Deserialize)]
struct Open {
    lease: String,
    rig: String,
}

#[derive(Deserialize)]
struct OfRig {
    #[serde(default)]
    rig: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Select {
    selector: String,
}

fn parse<T: DeserializeOwned>(params: Value) -> Result<T, Refusal> {
    let params = if params.is_null() { json!({}) } else { params };
    serde_json::from_value(params).map_err(|error| Refusal::usage(format!("the parameters are wrong: {error}")))
}

fn write_answer(answer: Result<Value, Refusal>, out: &mut Writer<'_>) {
    out.raw(answer_text(answer).as_bytes());
}

/// The text of an answer behind its head.
fn answer_text(answer: Result<Value, Refusal>) -> String {
    match answer {
        Ok(result) => format!(",\"result\":{result}}}"),
        Err(Refusal { code, why }) => {
            format!(",\"error\":{}}}", json!({ "code": REFUSED, "message": why, "data": { "exit": code } }))
        }
    }
}
