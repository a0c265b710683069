//! The agent: the process that grants leases, and through which the holders reach their rigs. There
//! is one for each user and host, or one for a group of users.
//!
//! The first command that needs the agent starts it. It ends when nobody has needed it for a while.
//! It speaks JSON-RPC lines on a Unix socket. Its rules are in [`crate::book`].

use std::collections::HashMap;
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rigline::frame::{Frame, HeapFramer};
use rigline::json::write::Writer;
use rigline::rpc;
use rigline_host::ports::Roots;
use rigline_std::signals::Signals;
use rigline_std::sync::lock;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::book::{Ask, Asked, Effect, Lab, Refusal};
use crate::check::{self, Check};
use crate::client::Far;
use crate::clock::{self, Alarm, BootTime};
use crate::folders::Folders;
use crate::frames::{self, PIECE, Piece};
use crate::processes::Process;
use crate::records::{Holder, Lease};
use crate::rigs::{self, Selector, Spec};
use crate::store;
use crate::users;
use crate::wire::{self, Wire};

/// The version of the protocol between the agent and its clients. Both must have the same.
pub const PROTOCOL: u32 = 3;

/// The longest line.
pub(crate) const LINE_LIMIT: usize = 4 << 20;

/// How many lines may wait for a client to read them. One that reads none of them is disconnected.
const UNREAD: usize = 256;

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
    lab: Mutex<Lab>,
    clients: Mutex<HashMap<u64, mpsc::Sender<Vec<u8>>>>,
    /// The ports that are open, by the connections that use them.
    wires: Mutex<HashMap<u64, (Wire, JoinHandle<()>)>>,
    /// The ports that are being closed, by their leases: a rig is not checked before.
    closing: Mutex<HashMap<String, Closing>>,
    next: AtomicU64,
    changed: Notify,
    /// Until when the main loop sleeps, and whether it knows that nobody needs the agent.
    sleeps: Mutex<(Option<BootTime>, bool)>,
    /// Where answers are written; they are copied from here.
    memory: Mutex<Vec<u8>>,
    instance: String,
    /// The numbers of users who are known by their names only.
    numbers: Mutex<HashMap<u32, String>>,
    system: Option<System>,
    rigs: Mutex<Listed>,
    folders: Folders,
    roots: Roots,
}

type Closing = Arc<tokio::sync::Mutex<Vec<JoinHandle<()>>>>;

/// The list as it was read last.
#[derive(Default)]
struct Listed {
    seen: Option<(SystemTime, u64)>,
    fault: Option<String>,
}

/// Runs the agent until nobody needs it any more, or until it gets a signal to end. Returns `false`
/// without running if another agent runs already.
///
/// # Errors
/// The agent cannot run. The text says why.
pub async fn run(folders: &Folders, options: &Options) -> Result<bool, String> {
    let named = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let had_folder = folders.make().map_err(|error| error.to_string())?;
    let path = folders.lock();
    let mut only = OpenOptions::new();
    only.read(true).write(true).create(true).truncate(false).mode(0o600);
    let only = only.open(&path).map_err(|error| named(&path, error))?;
    match only.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(named(&path, error)),
    }
    let boot = clock::boot_id().map_err(|error| format!("the name of the machine's last start: {error}"))?;
    let books = folders.books();
    let (books, kept) = store::File::open(&books).map_err(|error| named(&books, error))?;
    let lab = Lab::new(Box::new(books), kept, had_folder, &boot, clock::now());
    let agent = Arc::new(Agent {
        lab: Mutex::new(lab),
        clients: Mutex::default(),
        wires: Mutex::default(),
        closing: Mutex::default(),
        next: AtomicU64::new(0),
        changed: Notify::new(),
        sleeps: Mutex::default(),
        memory: Mutex::new(vec![0; LINE_LIMIT]),
        instance: uuid::Uuid::new_v4().simple().to_string(),
        numbers: Mutex::default(),
        system: options.system,
        rigs: Mutex::default(),
        folders: folders.clone(),
        roots: Roots::of_environment(),
    });
    // A wrong list is told to those who ask for its rigs.
    let _ = agent.read_rigs(clock::now());
    let socket = folders.socket();
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
    agent.settle();
    let mut signals = Signals::new().map_err(|error| format!("signals: {error}"))?;
    let alarm = Alarm::new().map_err(|error| format!("the timer: {error}"))?;
    let mut idle_since = clock::now();
    loop {
        let now = clock::now();
        let (due, is_idle) = agent.sleeps();
        *lock(&agent.sleeps) = (due, is_idle);
        if !is_idle {
            idle_since = now;
        }
        let end = options.idle.filter(|_| is_idle).map(|idle| idle_since.saturating_add(clock::millis(idle)));
        if end.is_some_and(|end| end <= now) {
            break;
        }
        let next = [due, end].into_iter().flatten().min();
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(Arc::clone(&agent).serve(stream))),
                // No descriptors are left, for example: some may be soon.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            () = alarm.at(next) => {
                lock(&agent.lab).tick(clock::now());
                agent.settle();
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
    async fn serve(self: Arc<Self>, stream: UnixStream) {
        let Some(mut peer) = self.peer(&stream) else { return };
        let (mut reader, mut writer) = stream.into_split();
        let (send, mut lines) = mpsc::channel::<Vec<u8>>(UNREAD);
        lock(&self.clients).insert(peer.conn, send.clone());
        self.changed.notify_one();
        let writing = tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if writer.write_all(&line).await.is_err() {
                    break;
                }
            }
        });
        let mut framer = HeapFramer::new(LINE_LIMIT);
        'connected: while let Ok(count) = reader.read(framer.space()).await {
            if count == 0 {
                break;
            }
            framer.commit(count);
            while let Some(frame) = framer.next_frame() {
                let (mut opens, mut far) = (None, None);
                let reply = {
                    let mut memory = lock(&self.memory);
                    let reply = match frame {
                        Frame::Line(line) => rpc::answer(line, &mut memory, &mut |incoming, out| {
                            let params = serde_json::from_str(incoming.params.as_str()).unwrap_or_default();
                            match incoming.method.to_string().as_str() {
                                "open" => opens = Some(params),
                                "hello" => write_answer(self.hello(&peer, params, &mut far), out),
                                method => write_answer(self.answer(&peer, method, params), out),
                            }
                        }),
                        Frame::TooLong(fault) => Some(rpc::answer_too_long(fault, &mut memory)),
                    };
                    reply.map(<[u8]>::to_vec)
                };
                if let Some((far, uid)) = far {
                    (peer.far, peer.uid) = (Some(far), uid);
                }
                if let Some(params) = opens {
                    drop(framer);
                    self.pass_on(&peer, params, reader, &send).await;
                    break 'connected;
                }
                if let Some(reply) = reply
                    && send.send(reply).await.is_err()
                {
                    break 'connected;
                }
                // Behind the reply goes what follows from it.
                self.settle();
                // It may have been disconnected, since it did not read.
                if !lock(&self.clients).contains_key(&peer.conn) {
                    break 'connected;
                }
            }
        }
        lock(&self.clients).remove(&peer.conn);
        drop(send);
        self.close(peer.conn, "");
        lock(&self.lab).disconnected(peer.conn, clock::now());
        self.settle();
        let _ = tokio::time::timeout(Duration::from_secs(1), writing).await;
    }

    fn peer(&self, stream: &UnixStream) -> Option<Peer> {
        let who = rustix::net::sockopt::socket_peercred(stream).ok()?;
        let pid = u32::try_from(who.pid.as_raw_nonzero().get()).ok()?;
        // Somebody whose process has ended does not listen any more.
        let process = Process::of(pid)?;
        let conn = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Peer { conn, uid: who.uid.as_raw(), process, far: None })
    }

    fn answer(&self, peer: &Peer, method: &str, params: Value) -> Result<Value, Refusal> {
        let now = clock::now();
        if self.system.is_none() && !peer.is_foreign() && peer.uid != rustix::process::getuid().as_raw() {
            return Err(Refusal::refused("this agent serves another user"));
        }
        if method == "quarantine" && peer.is_foreign() && !self.is_admin(peer) {
            return Err(Refusal::refused("only administrators of the lab put rigs into quarantine and end that"));
        }
        match method {
            "lock" => self.ask(peer, parse(params)?, now),
            "confirm" => {
                let Request { request } = parse(params)?;
                let lease = lock(&self.lab).confirm(peer.conn, &request, peer.uid, now)?;
                Ok(json!({ "lease": lease, "targets": self.targets(&lease) }))
            }
            "cancel" => {
                let Request { request } = parse(params)?;
                lock(&self.lab).cancel(&request, peer.uid, now);
                Ok(Value::Null)
            }
            "attach" => {
                let Attach { lease, keeps, told } = parse(params)?;
                // Nothing is known here of a keeper on another host.
                let keeper = keeps.then_some(peer.process).filter(|_| peer.far.is_none());
                // The agent ends the processes of a lease: they must be this user's.
                let is_own = |process: Process| process.uid().is_none_or(|uid| uid == peer.uid);
                let told = told.filter(|told| is_own(told.holder.process) && told.keeper.is_none_or(is_own));
                let lease = lock(&self.lab).attach(peer.conn, &lease, keeper, told, peer.uid, now)?;
                Ok(json!({ "lease": lease, "targets": self.targets(&lease) }))
            }
            "renew" => {
                let OfLease { lease } = parse(params)?;
                let until = lock(&self.lab).renew(&lease, peer.uid, now)?;
                Ok(json!({ "now": now, "until": until }))
            }
            "release" => {
                let OfLease { lease } = parse(params)?;
                let mut lab = lock(&self.lab);
                let by = lab.usable(&lease, peer.uid, now)?.holder.to_string();
                lab.end(&lease, "its holder has released it", &by, now);
                Ok(Value::Null)
            }
            "join" => {
                let Join { lease, selector } = parse(params)?;
                let selector = self.selector(peer, &selector)?;
                let lab = lock(&self.lab);
                let rigs = &lab.usable(&lease, peer.uid, now)?.rigs;
                let fitting = lab.specs().filter(|spec| rigs.contains(&spec.name) && selector.fits(spec));
                let fitting: Vec<&String> = fitting.map(|spec| &spec.name).collect();
                Ok(json!({ "rig": fitting.first(), "rigs": fitting }))
            }
            "status" => {
                let OfRig { rig, .. } = parse(params)?;
                self.read_rigs(now)?;
                let rig = self.rig(peer, rig)?;
                let mut status = lock(&self.lab).status(rig.as_deref(), now)?;
                status["agent"] = json!({ "pid": std::process::id(), "instance": self.instance });
                Ok(status)
            }
            "select" => {
                let Select { selector } = parse(params)?;
                self.read_rigs(now)?;
                self.select(peer, &selector)
            }
            "check" => {
                let OfRig { rig, .. } = parse(params)?;
                self.read_rigs(now)?;
                let rig = self.rig(peer, rig)?;
                lock(&self.lab).check_now(rig.as_deref())?;
                Ok(Value::Null)
            }
            "break" => {
                let (rig, reason) = named(self, peer, params)?;
                let reason =
                    reason.ok_or_else(|| Refusal::usage("a lease is broken for a reason; say it by --reason"))?;
                let uid = (!self.is_admin(peer)).then_some(peer.uid);
                lock(&self.lab).break_lease(&rig, &reason, &self.who(peer), uid, now)?;
                Ok(Value::Null)
            }
            "quarantine" => {
                let (rig, reason) = named(self, peer, params)?;
                lock(&self.lab).quarantine(&rig, reason.as_deref(), &self.who(peer), now)?;
                Ok(Value::Null)
            }
            "log" => {
                let OfRig { rig, .. } = parse(params)?;
                let rig = self.rig(peer, rig)?;
                lock(&self.lab).log(rig.as_deref())
            }
            _ => Err(Refusal::usage(format!("the agent has no method `{method}`"))),
        }
    }

    /// Answers who this agent is. If the peer speaks for somebody on another host, `speaks` gets who that is, with the number of the user.
    fn hello(&self, peer: &Peer, params: Value, speaks: &mut Option<(Far, u32)>) -> Result<Value, Refusal> {
        let Hello { protocol, far } = parse(params)?;
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
        let now = clock::now();
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

    fn who(&self, peer: &Peer) -> String {
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

    fn ask(&self, peer: &Peer, want: Want, now: BootTime) -> Result<Value, Refusal> {
        self.read_rigs(now)?;
        let mut selectors = Vec::new();
        for text in &want.rigs {
            selectors.push(self.selector(peer, text)?);
        }
        let holder = Holder {
            user: peer.user(),
            uid: peer.uid,
            process: peer.holder(),
            purpose: want.purpose.chars().filter(|char| !char.is_control()).take(200).collect(),
        };
        let ask = Ask {
            request: want.request,
            selectors,
            count: want.count,
            wait: want.wait,
            since: want.since,
            ttl: want.ttl,
            idle: want.idle,
            is_raw: want.is_raw,
            holder,
        };
        match lock(&self.lab).ask(peer.conn, ask, now)? {
            Asked::Granted(lease) => Ok(json!({ "lease": lease, "targets": self.targets(&lease) })),
            Asked::Waits => Ok(json!({ "lease": null })),
        }
    }

    /// Gives a connection to the port of a rig, until its holder or the port closes it. From here on it has frames and no lines.
    async fn pass_on(&self, peer: &Peer, params: Value, reader: OwnedReadHalf, out: &mpsc::Sender<Vec<u8>>) {
        let opened = parse(params).and_then(|Open { lease, rig }| self.open(peer, &lease, &rig, clock::now(), out));
        if let Err(Refusal { code, why }) = opened {
            let _ = out.send(wire::closed(code, &why)).await;
            return;
        }
        let mut reader = BufReader::with_capacity(PIECE, reader);
        loop {
            match frames::read(&mut reader).await {
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
    fn open(
        &self,
        peer: &Peer,
        lease: &str,
        rig: &str,
        now: BootTime,
        out: &mpsc::Sender<Vec<u8>>,
    ) -> Result<(), Refusal> {
        let (target, board) = {
            let lab = lock(&self.lab);
            if !lab.usable(lease, peer.uid, now)?.rigs.iter().any(|name| name == rig) {
                return Err(Refusal::usage(format!("the lease does not have {rig}")));
            }
            let target = lab.specs().find(|spec| spec.name == rig).map(|spec| spec.target.clone());
            (target.unwrap_or_default(), lab.board(rig))
        };
        let (wire, port) = wire::pair(lease);
        let (roots, out) = (self.roots.clone(), out.clone());
        let task = tokio::spawn(async move { wire::run(&target, board.as_deref(), &roots, port, out).await });
        lock(&self.wires).insert(peer.conn, (wire, task));
        Ok(())
    }

    /// Passes a piece on to the rig, if the lease lasts and the piece is not late.
    fn send(&self, peer: &Peer, piece: Piece, now: BootTime) {
        let mut wires = lock(&self.wires);
        let Some((wire, _)) = wires.get_mut(&peer.conn) else { return };
        let sent = {
            let mut lab = lock(&self.lab);
            let usable = lab.usable(&wire.lease, peer.uid, now).map(|_| ());
            lab.used(&wire.lease, now);
            usable
        };
        if let Err(refusal) = sent.and_then(|()| wire.send(piece, now)) {
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
    fn selector(&self, peer: &Peer, text: &str) -> Result<Selector, Refusal> {
        Ok(match text.parse::<Selector>().map_err(Refusal::usage)? {
            Selector::Target(target) => {
                let mut spec = Spec::unlisted(&target);
                spec.find_board(&self.roots);
                let mut lab = lock(&self.lab);
                // It would open, or run, what the user named with the agent's rights.
                if (self.system.is_some() || peer.is_foreign()) && !lab.is_listed(&spec) {
                    let whom = if peer.is_foreign() {
                        "users over NATS get no others"
                    } else {
                        "the system's agent serves no others"
                    };
                    return Err(Refusal::usage(format!(
                        "{target} is no rig of {}, and {whom}",
                        self.folders.rigs().display()
                    )));
                }
                Selector::Name(lab.name_of(spec))
            }
            selector => selector,
        })
    }

    /// The name of a rig that a person names by its name, by `rig:NAME` or by its target.
    fn rig(&self, peer: &Peer, text: Option<String>) -> Result<Option<String>, Refusal> {
        let Some(text) = text else { return Ok(None) };
        let is_known = lock(&self.lab).specs().any(|spec| spec.name == text);
        if is_known {
            return Ok(Some(text));
        }
        match text.strip_prefix("rig:").unwrap_or(&text) {
            name if !name.contains([':', '=']) && (name != "sim" || text != name) => Ok(Some(name.to_owned())),
            _ => match self.selector(peer, &text)? {
                Selector::Name(name) => Ok(Some(name)),
                selector => Err(Refusal::usage(format!("`{selector}` may mean several rigs; name one"))),
            },
        }
    }

    fn select(&self, peer: &Peer, text: &str) -> Result<Value, Refusal> {
        let selector = if text.is_empty() { None } else { Some(self.selector(peer, text)?) };
        let mut status = lock(&self.lab).status(None, clock::now())?;
        let Some(selector) = selector else { return Ok(status) };
        let lab = lock(&self.lab);
        let names: Vec<&str> = lab.specs().filter(|spec| selector.fits(spec)).map(|spec| spec.name.as_str()).collect();
        if names.is_empty() {
            return Err(Refusal::usage(selector.nothing(lab.specs())));
        }
        if let Some(rigs) = status.get_mut("rigs").and_then(Value::as_array_mut) {
            rigs.retain(|rig| rig.get("name").and_then(Value::as_str).is_some_and(|name| names.contains(&name)));
        }
        // Those who wait for one of these rigs.
        let mut waiting = std::collections::BTreeSet::new();
        for name in names {
            let of_rig = lab.status(Some(name), clock::now())?;
            let requests = of_rig.get("queue").and_then(Value::as_array).into_iter().flatten();
            waiting.extend(requests.filter_map(|one| Some(one.get("request")?.as_str()?.to_owned())));
        }
        if let Some(queue) = status.get_mut("queue").and_then(Value::as_array_mut) {
            queue.retain(|one| one.get("request").and_then(Value::as_str).is_some_and(|one| waiting.contains(one)));
        }
        Ok(status)
    }

    fn targets(&self, lease: &Lease) -> Value {
        let lab = lock(&self.lab);
        let target = |name: &String| lab.specs().find(|spec| spec.name == *name).map(|spec| spec.target.clone());
        lease.rigs.iter().map(|name| json!({ "name": name, "target": target(name) })).collect()
    }

    /// Reads the list, if it has changed.
    fn read_rigs(&self, now: BootTime) -> Result<(), Refusal> {
        let mut listed = lock(&self.rigs);
        let path = self.folders.rigs();
        let seen = fs::metadata(&path).ok().and_then(|about| Some((about.modified().ok()?, about.len())));
        if seen.is_none() || listed.seen != seen {
            listed.seen = seen;
            match rigs::read(&path) {
                Ok(mut specs) => {
                    specs.iter_mut().for_each(|spec| spec.find_board(&self.roots));
                    lock(&self.lab).list(specs, now);
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
    fn settle(self: &Arc<Self>) {
        loop {
            let effects = std::mem::take(&mut lock(&self.lab).effects);
            if effects.is_empty() {
                break;
            }
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
                            let what = Check { target: &target, asks, lease, recover, board };
                            let found = check::run(&what, &agent.roots).await;
                            let board = target.parse().ok().and_then(|target| check::board_at(&target, &agent.roots));
                            let mut lab = lock(&agent.lab);
                            if let (Ok(_), Some(board)) = (&found, board) {
                                lab.identified(&rig, board);
                            }
                            lab.checked(&rig, found, clock::now());
                            drop(lab);
                            agent.settle();
                        });
                    }
                }
            }
        }
        // The main loop has nothing to do with most of what happens.
        if self.sleeps() != *lock(&self.sleeps) {
            self.changed.notify_one();
        }
    }

    /// When something is due, and whether nobody needs the agent.
    fn sleeps(&self) -> (Option<BootTime>, bool) {
        let (due, is_idle) = {
            let lab = lock(&self.lab);
            (lab.due(), lab.is_idle())
        };
        (due, is_idle && lock(&self.clients).is_empty())
    }

    fn tell(&self, conn: u64, method: &str, params: &Value) {
        let line = format!("{}\n", json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        let mut clients = lock(&self.clients);
        if clients.get(&conn).is_some_and(|client| client.try_send(line.into_bytes()).is_err()) {
            clients.remove(&conn);
        }
    }
}

fn named(agent: &Agent, peer: &Peer, params: Value) -> Result<(String, Option<String>), Refusal> {
    let OfRig { rig, reason } = parse(params)?;
    let rig = agent.rig(peer, rig)?.ok_or_else(|| Refusal::usage("no rig is named"))?;
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
    selector: String,
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
    let text = match answer {
        Ok(result) => format!(",\"result\":{result}}}"),
        Err(Refusal { code, why }) => {
            format!(",\"error\":{}}}", json!({ "code": REFUSED, "message": why, "data": { "exit": code } }))
        }
    };
    out.raw(text.as_bytes());
}
