//! Targets `rig:…` of all commands: a lease for as long as the target is used, and a connection through the agent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rigline::frame::LineEnds;
use rigline_host::wire::{Connect, Connecting, Control, RawConnection, Timed, TransportTraits};
use rigline_host::{HostError, Options};
use rigline_std::mutex::lock;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::book::Refusal;
use crate::client::{self, Want};
use crate::clock;
use crate::connection::{AgentError, AgentLocation, Connection, Reading, There, Writing};
use crate::frames::{self, Back, HEAD_BACK, PIECE, PieceKind};
use crate::hosts::{Hosts, split};
use crate::link::{Ending, Pieces, refusal_of};
use crate::processes::LEASE;

/// The longest time of a lease for one command.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How old what is sent may be when the rig gets it.
const FRESH: u64 = 5_000;
/// How long a lease that is being given back is waited for.
const GIVEN_BACK: Duration = Duration::from_secs(10);

/// A dialer of a rig of the lab. It gets a lease, and connects to the rig through the agent.
pub struct RigDialer {
    hosts: Hosts,
    selector: String,
    wait: Duration,
    state: tokio::sync::Mutex<State>,
}

enum State {
    Unknown,
    /// The request for the lease is in progress. It goes on while nobody waits for the connection,
    /// so that it keeps its place in the queue.
    Asking(JoinHandle<Result<Held, Refusal>>),
    Held(Box<Held>),
}

/// A lease of this process, or one that it has joined.
struct Held {
    place: AgentLocation,
    lease: String,
    rig: String,
    /// The reason of the loss.
    lost: Arc<Mutex<Option<String>>>,
    /// The lease is given back when this is dropped.
    _keeps: Option<Keeps>,
}

/// The leases that this process has for all its targets, each with its host in front if that is another one.
static OWN: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

/// Targets of this process join one of these leases from now on, if it has such a rig.
pub(crate) fn within(leases: Vec<String>) {
    *lock(&OWN) = leases;
}

/// The leases that targets of this process join: its own, or the one that it was started within.
pub(crate) fn joined() -> Vec<String> {
    let own = lock(&OWN).clone();
    if own.is_empty() { std::env::var(LEASE).ok().into_iter().collect() } else { own }
}

/// Of the leases that targets of this process join, the first with rigs that are meant: its agent, its id and those rigs.
pub(crate) async fn join(
    hosts: &Hosts,
    selector: Option<&str>,
) -> Result<Option<(AgentLocation, String, Vec<String>)>, Refusal> {
    let (host, rig) = selector.map(split).unzip();
    let host = host.flatten();
    for lease in joined() {
        let at = lease.split_once('/').map_or(crate::hosts::HERE, |(host, _)| host);
        if host.is_some_and(|host| host != at) {
            continue;
        }
        let (place, id) = hosts.of_lease(&lease).await?;
        // A port, or a program, is one of this host.
        if place.remote.is_some() && rig.as_ref().is_some_and(|rig| !rig.starts_with("rig:")) {
            continue;
        }
        let mut agent = Connection::open(&place).await?;
        let joined = agent.ask("join", json!({ "lease": id, "selector": rig })).await?;
        let rigs = joined.get("rigs").and_then(Value::as_array).into_iter().flatten();
        let rigs: Vec<String> = rigs.filter_map(Value::as_str).map(str::to_owned).collect();
        if !rigs.is_empty() {
            return Ok(Some((place, id.to_owned(), rigs)));
        }
    }
    Ok(None)
}

/// After which time without a call the leases of this process's targets end.
static IDLE: Mutex<Option<Duration>> = Mutex::new(None);

/// Limits the idle time of leases that targets of this process get from now on. A lease ends when
/// nothing was sent to its rigs for the time `after`. It is for processes that live on when they no
/// longer need their rig.
pub fn end_idle_leases(after: Duration) {
    *lock(&IDLE) = Some(after);
}

/// The lease that a target of this process has of its own, with its rig.
static LATEST: LazyLock<Mutex<Option<(String, String)>>> = LazyLock::new(Mutex::default);

/// Returns the id of the lease, and the name of the rig, that a target of this process holds. If
/// there are several, it is the latest.
pub fn current_lease() -> Option<(String, String)> {
    lock(&LATEST).clone()
}

/// How many leases of this process are being given back.
static GIVING_BACK: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Gives a lease back when it is dropped.
struct Keeps {
    keeps: Option<oneshot::Sender<GivingBack>>,
    /// Whether its agent is on another host, which does not see the end of this process.
    is_far: bool,
}

impl Drop for Keeps {
    fn drop(&mut self) {
        if let Some(keeps) = self.keeps.take() {
            // Nobody has it, if the lease is lost.
            let _ = keeps.send(GivingBack::new(self.is_far));
        }
    }
}

/// While it is there, this process asks for no lease: it would find the rig with itself.
struct GivingBack {
    /// This process does not end meanwhile.
    _ending: Option<Ending>,
}

impl GivingBack {
    fn new(is_far: bool) -> Self {
        GIVING_BACK.send_modify(|count| *count += 1);
        Self { _ending: is_far.then(Ending::new) }
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        GIVING_BACK.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Returns the dialer of the target `rig:SELECTOR`.
///
/// # Errors
/// The text is not a selector.
pub fn dialer(hosts: &Hosts, selector: &str, options: &Options) -> Result<Box<dyn Connect>, HostError> {
    let selector = format!("rig:{selector}");
    split(&selector).1.parse::<crate::rigs::Selector>().map_err(HostError::Unsupported)?;
    Ok(Box::new(RigDialer {
        hosts: hosts.clone(),
        selector,
        wait: options.wait,
        state: tokio::sync::Mutex::new(State::Unknown),
    }))
}

impl Connect for RigDialer {
    fn name(&self) -> String {
        self.selector.clone()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let failed = |refusal: Refusal| match refusal.code {
                2 => HostError::Unsupported(refusal.why),
                124 => HostError::Waited { what: self.selector.clone(), why: refusal.why },
                _ => self.unopened(io::Error::other(refusal.why)),
            };
            let mut state = self.state.lock().await;
            if let State::Unknown = &*state {
                *state = State::Asking(tokio::spawn(ask(self.hosts.clone(), self.selector.clone(), self.wait)));
            }
            if let State::Asking(asking) = &mut *state {
                let asked = asking.await.map_err(|error| self.unopened(io::Error::other(error)))?;
                *state = State::Unknown;
                *state = State::Held(Box::new(asked.map_err(failed)?));
            }
            let State::Held(held) = &*state else { return Err(self.unopened(io::ErrorKind::NotConnected.into())) };
            if let Some(why) = lock(&held.lost).clone() {
                return Err(self.unopened(io::Error::other(why)));
            }
            open(&held.place, &held.lease, &held.rig).await.map_err(|trouble| failed(trouble.into()))
        })
    }
}

/// The dialer of the rig that this process has leased at the time of the call.
struct LeasedDialer(Hosts);

/// The selector of the target `rig:*`: the rig that this process has leased.
pub const LEASED: &str = "*";

/// Returns the dialer of the rig that this process has leased. After another lease it connects to
/// the other rig.
pub fn leased(hosts: &Hosts) -> Box<dyn Connect> {
    Box::new(LeasedDialer(hosts.clone()))
}

impl Connect for LeasedDialer {
    fn name(&self) -> String {
        "the leased rig".to_owned()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let failed = |source: io::Error| HostError::Open { what: self.name(), source };
            let nothing = || failed(io::Error::new(io::ErrorKind::NotConnected, "no rig is leased"));
            let asked = async {
                let Some((place, lease, rigs)) = join(&self.0, None).await? else { return Ok(None) };
                let Some(rig) = rigs.first() else { return Ok(None) };
                open(&place, &lease, rig).await.map(Some).map_err(Refusal::from)
            };
            let opened: Result<_, Refusal> = asked.await;
            let opened = opened.map_err(|refusal| failed(io::Error::other(refusal.why)))?;
            opened.ok_or_else(nothing)
        })
    }
}

impl RigDialer {
    fn unopened(&self, source: io::Error) -> HostError {
        HostError::Open { what: self.selector.clone(), source }
    }
}

impl Drop for RigDialer {
    fn drop(&mut self) {
        if let State::Asking(asking) = self.state.get_mut() {
            asking.abort();
        }
    }
}

/// Joins the lease that this command runs within, if that has such a rig, and gets one otherwise.
async fn ask(hosts: Hosts, selector: String, wait: Duration) -> Result<Held, Refusal> {
    if let Some((place, lease, rigs)) = join(&hosts, Some(&selector)).await?
        && let Some(rig) = rigs.into_iter().next()
    {
        return Ok(Held { place, lease, rig, lost: Arc::default(), _keeps: None });
    }
    let want = Want {
        rigs: vec![selector],
        count: 1,
        wait: (!wait.is_zero()).then_some(wait),
        ttl: LONGEST,
        idle: *lock(&IDLE),
        is_raw: false,
        purpose: std::env::args().nth(1).unwrap_or_default(),
    };
    // An agent that does not answer is reported by what is asked next.
    let mut giving_back = GIVING_BACK.subscribe();
    let _ = tokio::time::timeout(GIVEN_BACK, giving_back.wait_for(|count| *count == 0)).await;
    let (place, connection, granted) = hosts.acquire(&want, |_, _| {}).await?;
    let rig = granted.lease.rigs.first().cloned().unwrap_or_default();
    let is_far = place.remote.is_some();
    let lost = Arc::new(Mutex::new(None));
    let (keeps, dropped) = oneshot::channel::<GivingBack>();
    let (told, lease, at) = (Arc::clone(&lost), granted.lease.clone(), place.clone());
    let named = place.named(&lease.id);
    *lock(&LATEST) = Some((named.clone(), place.named(&rig)));
    tokio::spawn(async move {
        let forget = || drop(lock(&LATEST).take_if(|(id, _)| *id == named));
        tokio::select! {
            why = client::keep(&at, connection, &lease, false) => {
                forget();
                *lock(&told) = Some(why.why);
            }
            giving_back = dropped => {
                forget();
                let _ = client::release(&at, &lease.id).await;
                drop(giving_back);
            }
        }
    });
    Ok(Held { place, lease: granted.lease.id, rig, lost, _keeps: Some(Keeps { keeps: Some(keeps), is_far }) })
}

/// Opens the rig's port by the agent.
async fn open(place: &AgentLocation, lease: &str, rig: &str) -> Result<RawConnection, AgentError> {
    let agent = Connection::open(place).await?;
    let params = json!({ "lease": lease, "rig": rig });
    let (mut reader, writer, there) = agent.into_wire(params).await.map_err(AgentError::Lost)?;
    let traits = loop {
        let mut head = [0; HEAD_BACK];
        reader.read_exact(&mut head).await.map_err(AgentError::Lost)?;
        let (kind, length) = frames::head_back(head).map_err(AgentError::Lost)?;
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).await.map_err(AgentError::Lost)?;
        match kind {
            Back::Opened => break serde_json::from_slice::<Value>(&bytes).unwrap_or_default(),
            Back::Closed => return Err(AgentError::Refused(refusal_of(&bytes))),
            Back::Bytes | Back::Errors => {}
        }
    };
    let is = |name: &str| traits.get(name).and_then(Value::as_bool).unwrap_or_default();
    let mut found = TransportTraits::CHILD;
    found.resend = traits.get("resend_ms").and_then(Value::as_u64).map(Duration::from_millis);
    found.shared = is("shared");
    found.ends = if is("serial") { LineEnds::Serial } else { LineEnds::Lf };
    let out = Out { half: writer, frames: Vec::new(), written: 0, seq: 0, there, until: None, waiting: Vec::new() };
    let out = Arc::new(Mutex::new(out));
    let (complained, stderr) = mpsc::channel(64);
    let reader =
        FromRig { half: reader, bytes: vec![0; PIECE], read: 0, filled: 0, head: None, complained, is_over: false };
    let mut connection = RawConnection::new(reader, ToRig(Arc::clone(&out)), found);
    connection.stderr = Some(Box::new(Pieces::new(stderr)));
    connection.timed = Some(Arc::new(Lines(Arc::clone(&out))));
    if is("control") {
        connection.control = Some(Arc::new(Lines(out)));
    }
    Ok(connection)
}

/// Frames on their way to the agent.
struct Out {
    half: Writing,
    frames: Vec<u8>,
    written: usize,
    seq: u64,
    there: There,
    /// After which time bytes are of no use.
    until: Option<Instant>,
    /// Those who wait for the frames to be written.
    waiting: Vec<Waker>,
}

impl Out {
    fn add(&mut self, kind: PieceKind, bytes: &[u8]) {
        self.seq += 1;
        let left = self.until.filter(|_| kind == PieceKind::Bytes).map(|until| until.duration_since(Instant::now()));
        let left = left.map_or(FRESH, |left| clock::to_millis(left).min(FRESH));
        frames::write(&mut self.frames, kind, self.seq, self.there.now() + left, bytes);
    }

    /// Writes as much as goes at once. Returns whether that is all.
    fn try_write(&mut self) -> io::Result<bool> {
        match self.poll_written(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(written) => written.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = self.poll_all(cx);
        if written.is_pending() {
            // Only the last one who asked is woken by the connection.
            if !self.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                self.waiting.push(cx.waker().clone());
            }
        } else {
            self.waiting.drain(..).for_each(Waker::wake);
        }
        written
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.frames.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.half).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.frames.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

/// Bytes for the rig.
struct ToRig(Arc<Mutex<Out>>);

impl AsyncWrite for ToRig {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut out = lock(&self.0);
        // One frame at a time: its time begins when the one before it is on its way.
        ready!(out.poll_written(cx))?;
        let bytes = bytes.get(..bytes.len().min(PIECE)).unwrap_or_default();
        out.add(PieceKind::Bytes, bytes);
        match out.poll_written(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.0).poll_written(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut out = lock(&self.0);
        ready!(out.poll_written(cx))?;
        out.add(PieceKind::End, &[]);
        out.poll_written(cx)
    }
}

impl Drop for ToRig {
    fn drop(&mut self) {
        let mut out = lock(&self.0);
        out.add(PieceKind::End, &[]);
        // One that cannot be told learns it when the connection ends.
        let _ = out.try_write();
    }
}

/// The lines of a port that the agent has.
struct Lines(Arc<Mutex<Out>>);

impl Lines {
    fn send(&self, kind: PieceKind, bytes: &[u8]) -> io::Result<()> {
        let mut out = lock(&self.0);
        out.add(kind, bytes);
        if !out.try_write()? {
            // Whoever writes next goes on with it; and if nobody does, this.
            let rest = Arc::clone(&self.0);
            tokio::spawn(std::future::poll_fn(move |cx| lock(&rest).poll_written(cx)));
        }
        Ok(())
    }
}

impl Timed for Lines {
    fn until(&self, time: Option<Instant>) {
        lock(&self.0).until = time;
    }
}

impl Control for Lines {
    fn set_dtr(&self, on: bool) -> io::Result<()> {
        self.send(PieceKind::Dtr, &[u8::from(on)])
    }

    fn discard(&self) -> io::Result<()> {
        self.send(PieceKind::Discard, &[])
    }
}

/// Bytes of the rig, as they come in the agent's frames.
struct FromRig {
    half: Reading,
    bytes: Vec<u8>,
    read: usize,
    filled: usize,
    /// The frame that has begun, with how many of its bytes are still to come.
    head: Option<(Back, usize)>,
    complained: mpsc::Sender<io::Result<Vec<u8>>>,
    is_over: bool,
}

impl FromRig {
    /// Waits until at least `count` bytes were read and not used.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, count: usize) -> Poll<io::Result<()>> {
        while self.filled - self.read < count {
            if self.read == self.filled {
                (self.read, self.filled) = (0, 0);
            } else if self.filled == self.bytes.len() {
                self.bytes.copy_within(self.read..self.filled, 0);
                (self.read, self.filled) = (0, self.filled - self.read);
            }
            let mut into = ReadBuf::new(self.bytes.get_mut(self.filled..).unwrap_or_default());
            ready!(Pin::new(&mut self.half).poll_read(cx, &mut into))?;
            match into.filled().len() {
                0 => {
                    // What was sent last may have been done or not.
                    let text = "the lab's agent is gone: it is not known what the rig has done";
                    return Poll::Ready(Err(io::Error::other(text)));
                }
                count => self.filled += count,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next bytes, at most so many.
    fn take(&mut self, most: usize) -> &[u8] {
        let from = self.read;
        self.read = self.filled.min(from + most);
        self.bytes.get(from..self.read).unwrap_or_default()
    }
}

impl AsyncRead for FromRig {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while !this.is_over {
            match this.head {
                None => {
                    ready!(this.poll_bytes(cx, HEAD_BACK))?;
                    let head = <[u8; HEAD_BACK]>::try_from(this.take(HEAD_BACK)).map_err(io::Error::other)?;
                    this.head = Some(frames::head_back(head)?);
                }
                Some((Back::Bytes, 0)) => this.head = None,
                Some((Back::Bytes, left)) => {
                    ready!(this.poll_bytes(cx, 1))?;
                    let bytes = this.take(left.min(into.remaining()));
                    let count = bytes.len();
                    into.put_slice(bytes);
                    this.head = Some((Back::Bytes, left - count));
                    return Poll::Ready(Ok(()));
                }
                Some((kind, length)) => {
                    ready!(this.poll_bytes(cx, length))?;
                    let bytes = this.take(length).to_vec();
                    this.head = None;
                    match kind {
                        // One that does not read it, loses it.
                        Back::Errors => drop(this.complained.try_send(Ok(bytes))),
                        Back::Closed => {
                            this.is_over = true;
                            let Refusal { why, .. } = refusal_of(&bytes);
                            if !why.is_empty() {
                                return Poll::Ready(Err(io::Error::other(why)));
                            }
                        }
                        Back::Opened | Back::Bytes => {}
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folders::Folders;

    #[tokio::test]
    async fn no_lease_is_asked_for_while_another_one_of_this_process_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let place = AgentLocation::here(Folders::all_in(folder.path().into()), "/bin/false".into());
        let agent = tokio::net::UnixListener::bind(place.folders.socket_path()).unwrap();
        let (keeps, dropped) = oneshot::channel();
        drop(Keeps { keeps: Some(keeps), is_far: false });
        let asking = tokio::spawn(ask(Hosts::alone(place), "rig:r1".into(), Duration::ZERO));
        assert!(tokio::time::timeout(Duration::from_millis(200), agent.accept()).await.is_err());
        drop(dropped.await.unwrap());
        tokio::time::timeout(Duration::from_secs(5), agent.accept()).await.unwrap().unwrap();
        asking.abort();
    }
}
