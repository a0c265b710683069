//! The targets of pages: the server's own target, or one of those that are plugged in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, DuplexStream, ReadBuf, ReadHalf, duplex, split};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::socket::IN_FLIGHT;
use rigline::serve::Transport;
use rigline_eval::session::{self, Connect, EvalSession, Hosts, OnLog, Pending, SessionError};
use rigline_host::choose::ProtocolNeed;
use rigline_host::local::InProcess;
use rigline_host::ports::Roots;
use rigline_host::relay::{Dialer, Relay, Remote};
use rigline_host::target::{Port, Serial, Target};
use rigline_host::wire::{self, Connecting, RawConnection, TransportTraits};
use rigline_host::{EventKind, HostError, JsonObject, Options, lines};
use rigline_std::callers::{Callers, Ticket};
use rigline_std::mutex::lock;
use rigline_std::queue::{Queue, QueueClient, Settings};

/// The longest line, in bytes without its end.
const LINE: usize = 8 << 20;
/// How long a target has to bring about its safe state when the server stops.
const SAFE_STATE: Duration = Duration::from_secs(5);

pub(super) struct Targets {
    fixed: Option<Target>,
    options: Options,
    sim: Option<InProcess>,
    open: Mutex<Vec<Opened>>,
}

/// A target that clients talk to.
struct Opened {
    target: Target,
    place: OpenTarget,
    /// When its thread has ended.
    ended: oneshot::Receiver<io::Result<()>>,
    /// Why the device is gone, each time that it is.
    gone: watch::Sender<String>,
    clients: usize,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.place.queue.close();
    }
}

/// Where a target is asked.
#[derive(Clone)]
pub(super) struct OpenTarget {
    pub(super) queue: Arc<Queue>,
    pub(super) remote: Remote,
    pub(super) callers: Callers,
}

/// A client's part in a target.
pub(super) struct Lease {
    targets: Arc<Targets>,
    pub(super) place: OpenTarget,
    gone: watch::Receiver<String>,
}

impl Targets {
    pub(super) fn new(fixed: Option<Target>, options: Options, sim: Option<InProcess>) -> Arc<Self> {
        Arc::new(Self { fixed, options, sim, open: Mutex::default() })
    }

    /// The server's own target.
    pub(super) fn fixed(&self) -> Option<&Target> {
        self.fixed.as_ref()
    }

    /// The serial ports that clients talk to, one for each client.
    pub(super) fn sessions(&self) -> Vec<PathBuf> {
        let one = |opened: &Opened| match &opened.target {
            Target::Serial(Serial { port: Port::Path(path), .. }) => vec![path.clone(); opened.clients],
            _ => Vec::new(),
        };
        self.lock().iter().flat_map(one).collect()
    }

    /// Connects a client to the target that it has chosen, or returns why it may not.
    pub(super) async fn lease(self: &Arc<Self>, chosen: Option<&str>) -> Result<Lease, String> {
        match (&self.fixed, chosen) {
            (Some(fixed), None) => self.lease_of(fixed.clone()).await,
            (Some(fixed), Some(chosen)) if fixed.to_string() == chosen => self.lease_of(fixed.clone()).await,
            (Some(fixed), Some(_)) => Err(format!("this server serves only {fixed}")),
            (None, None) => Err("no target was chosen".to_owned()),
            (None, Some(chosen)) => {
                let target = chosen.parse::<Target>().map_err(|error| error.to_string())?;
                // Folders and links are examined.
                let plugged = tokio::task::spawn_blocking(move || plugged(target)).await;
                let target = plugged.map_err(|_| "the ports cannot be listed".to_owned())??;
                self.lease_of(target).await
            }
        }
    }

    /// Lets a client talk to a target. A port that is called by several names is one target.
    async fn lease_of(self: &Arc<Self>, target: Target) -> Result<Lease, String> {
        let target = match target {
            Target::Serial(serial) => {
                let port = serial.port.clone();
                let found = tokio::task::spawn_blocking(move || Roots::of_environment().find(&port)).await;
                // Of one that is not there, connecting says so.
                let port = match found {
                    Ok(Ok(found)) => Port::Path(fs::canonicalize(&found.path).unwrap_or(found.path)),
                    _ => serial.port.clone(),
                };
                Target::Serial(Serial { port, ..serial })
            }
            target => target,
        };
        let mut open = self.lock();
        if let Some(opened) = open.iter_mut().find(|opened| opened.target == target) {
            opened.clients += 1;
            return Ok(self.lease_in(opened));
        }
        let opened = self.open(target)?;
        let lease = self.lease_in(&opened);
        open.push(opened);
        Ok(lease)
    }

    fn lease_in(self: &Arc<Self>, opened: &Opened) -> Lease {
        Lease { targets: Arc::clone(self), place: opened.place.clone(), gone: opened.gone.subscribe() }
    }

    fn open(&self, target: Target) -> Result<Opened, String> {
        let gone = watch::Sender::new(String::new());
        let mut options = self.options.clone();
        let (tell, listener) = (gone.clone(), options.listener.take());
        options.listener = Some(Arc::new(move |event| {
            match &event.kind {
                EventKind::Gone(why) => drop(tell.send_replace(format!("{}: {why}", event.extension))),
                EventKind::Exited(exit) => {
                    tell.send_replace(format!("{}: the program has ended: {exit}", event.extension));
                }
                _ => {}
            }
            if let Some(listener) = &listener {
                listener(event);
            }
        }));
        let config = options.config.as_ref().map(ToString::to_string);
        let dialer = match (&target, &self.sim) {
            (Target::Sim, Some(sim)) => {
                let sim = sim.clone();
                let dialer: Dialer = Arc::new(move |options| Ok(wire::recorded(Box::new(sim.clone()), options)));
                Some(dialer)
            }
            _ => None,
        };
        let relay = Relay::on_demand_over(target.clone(), dialer, options, ProtocolNeed::Context)
            .map_err(|error| error.to_string())?;
        let remote = relay.remote();
        let settings = Settings {
            config,
            remote: Some(Arc::new(remote.clone())),
            ..Settings::of_lines(rigline::protocol::ALL.to_vec(), (LINE, LINE))
        };
        let (queue, ended) = Queue::start_with(settings, relay).map_err(|error| error.to_string())?;
        let place = OpenTarget { queue: Arc::new(queue), remote, callers: Callers::default() };
        Ok(Opened { target, place, ended, gone, clients: 1 })
    }

    /// Ends all sessions at once.
    pub(super) async fn abandon(&self) {
        let all: Vec<Opened> = self.lock().drain(..).collect();
        for mut opened in all {
            opened.place.queue.close();
            let _ = tokio::time::timeout(SAFE_STATE, &mut opened.ended).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Opened>> {
        lock(&self.open)
    }
}

/// A target that a page may choose.
fn plugged(target: Target) -> Result<Target, String> {
    match &target {
        Target::Sim => Ok(target),
        Target::Serial(serial) => {
            let roots = Roots::of_environment();
            let found = roots.find(&serial.port).map_err(|error| error.to_string())?;
            let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let is_listed = roots.ports().iter().any(|port| real(&port.path) == real(&found.path));
            if is_listed { Ok(target) } else { Err("no such serial port is plugged in".to_owned()) }
        }
        _ => Err("a page may choose serial ports and sim only: start rigline web with this target".to_owned()),
    }
}

/// Sessions of evals. On a serial port they share the session of the pages, since only one program can hold a
/// port.
pub(super) struct SharedHosts {
    pub(super) targets: Arc<Targets>,
    pub(super) hosts: Hosts,
}

impl Connect for SharedHosts {
    fn connect<'a>(
        &'a self,
        target: &'a str,
        folder: Option<&'a Path>,
        settings: Option<JsonObject>,
        log: OnLog,
    ) -> Pending<'a, Result<Box<dyn EvalSession>, SessionError>> {
        match target.parse::<Target>() {
            Ok(target @ Target::Serial(_)) => {
                let dialer = Through { targets: Arc::clone(&self.targets), target: target.clone() };
                Box::pin(async move { session::over(Box::new(dialer), &target, settings, log).await })
            }
            _ => self.hosts.connect(target, folder, settings, log),
        }
    }
}

/// Dials a target by way of what is open already.
struct Through {
    targets: Arc<Targets>,
    target: Target,
}

impl wire::Connect for Through {
    fn name(&self) -> String {
        self.target.to_string()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let lease = self.targets.lease_of(self.target.clone()).await.map_err(HostError::Unsupported)?;
            let (stream, guard) = lease.open("an eval");
            let (reader, writer) = split(stream);
            Ok(RawConnection::new(Reading { reader, _guard: guard }, writer, TransportTraits::CHILD))
        })
    }
}

/// The reading half of a connection. When its host drops it, the host has ended its session, or has given up what runs.
struct Reading {
    reader: ReadHalf<DuplexStream>,
    _guard: DropGuard,
}

impl AsyncRead for Reading {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(task, buf)
    }
}

impl Lease {
    /// A session over a stream in this process. It is lost when the guard is dropped.
    pub(super) fn open(self, name: &str) -> (DuplexStream, DropGuard) {
        let (ours, theirs) = duplex(IN_FLIGHT);
        let lost = CancellationToken::new();
        let guard = lost.clone().drop_guard();
        let client = QueueClient::of_caller(self.enter(name));
        tokio::spawn(async move {
            let (reader, writer) = split(theirs);
            let lost = lost.cancelled_owned();
            lines::serve(&self.place.queue, client, reader, writer, Transport::Stream, lost).await;
            self.end().await;
        });
        (ours, guard)
    }

    /// Enters a client in the list of those that others see.
    pub(super) fn enter(&self, name: &str) -> Arc<Ticket> {
        self.place.callers.enter(name)
    }

    /// Changes when the device is gone, to the reason.
    pub(super) fn gone(&self) -> watch::Receiver<String> {
        self.gone.clone()
    }

    /// The client is gone. The last one leaves the device to others: what it switched on stays on if it ended its session.
    pub(super) async fn end(self) {
        let is_own = |opened: &Opened| Arc::ptr_eq(&opened.place.queue, &self.place.queue);
        let clients = |gone: usize| {
            let mut open = self.targets.lock();
            let opened = open.iter_mut().find(|opened| is_own(opened));
            opened.map(|opened| {
                opened.clients = opened.clients.saturating_sub(gone);
                opened.clients
            })
        };
        if clients(1) != Some(0) {
            return;
        }
        self.place.queue.settled().await;
        // Unless a client has connected meanwhile.
        if clients(0) == Some(0) {
            self.place.remote.release().await;
            self.targets.lock().retain(|opened| opened.clients > 0 || !is_own(opened));
        }
    }
}
