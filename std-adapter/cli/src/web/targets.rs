//! The targets of pages: the server's own target, or one of those that are plugged in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, DuplexStream, ReadBuf, ReadHalf, duplex, split};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::socket::IN_FLIGHT;
use rigline_eval::session::{self, Connect, Hosts, OnLog, Pending, Session, SessionError};
use rigline_host::local::InProcess;
use rigline_host::ports::Roots;
use rigline_host::proxy::{Limits, Proxy, Transport};
use rigline_host::target::{Port, Serial, Target};
use rigline_host::wire::{self, Connecting, RawConnection, TransportTraits};
use rigline_host::{EventKind, JsonObject, Options};
use rigline_std::sync::lock;

pub(super) struct Targets {
    fixed: Option<Target>,
    options: Options,
    sim: Option<InProcess>,
    open: Mutex<Vec<Opened>>,
}

/// A target that clients talk to.
struct Opened {
    target: Target,
    proxy: Arc<Proxy>,
    /// Why the device is gone, each time that it is.
    gone: watch::Sender<String>,
    clients: usize,
}

/// A client's part in a target.
pub(super) struct Lease {
    targets: Arc<Targets>,
    proxy: Arc<Proxy>,
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
            (Some(fixed), None) => Ok(self.lease_of(fixed.clone()).await),
            (Some(fixed), Some(chosen)) if fixed.to_string() == chosen => Ok(self.lease_of(fixed.clone()).await),
            (Some(fixed), Some(_)) => Err(format!("this server serves only {fixed}")),
            (None, None) => Err("no target was chosen".to_owned()),
            (None, Some(chosen)) => {
                let target = chosen.parse::<Target>().map_err(|error| error.to_string())?;
                // Folders and links are examined.
                let plugged = tokio::task::spawn_blocking(move || plugged(target)).await;
                let target = plugged.map_err(|_| "the ports cannot be listed".to_owned())??;
                Ok(self.lease_of(target).await)
            }
        }
    }

    /// Lets a client talk to a target. A port that is called by several names is one target.
    async fn lease_of(self: &Arc<Self>, target: Target) -> Lease {
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
            return self.lease_in(opened);
        }
        let opened = self.open(target);
        let lease = self.lease_in(&opened);
        open.push(opened);
        lease
    }

    fn lease_in(self: &Arc<Self>, opened: &Opened) -> Lease {
        Lease { targets: Arc::clone(self), proxy: Arc::clone(&opened.proxy), gone: opened.gone.subscribe() }
    }

    fn open(&self, target: Target) -> Opened {
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
        let proxy = match (&target, &self.sim) {
            (Target::Sim, Some(sim)) => {
                let sim = sim.clone();
                Proxy::over(
                    move |options| Ok(wire::recorded(Box::new(sim.clone()), options)),
                    options,
                    Limits::default(),
                )
            }
            _ => Proxy::new(target.clone(), options, Limits::default()),
        };
        Opened { target, proxy, gone, clients: 1 }
    }

    /// Ends all sessions at once.
    pub(super) async fn abandon(&self) {
        let proxies: Vec<Arc<Proxy>> = self.lock().drain(..).map(|opened| opened.proxy).collect();
        for proxy in proxies {
            proxy.abandon().await;
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
    ) -> Pending<'a, Result<Box<dyn Session>, SessionError>> {
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
            let (stream, guard) = self.targets.lease_of(self.target.clone()).await.open("an eval");
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
        let ticket = Some(Arc::new(self.proxy.enter(name)));
        tokio::spawn(async move {
            let (reader, writer) = split(theirs);
            self.proxy.serve_as(ticket, reader, writer, Transport::Stream, lost.cancelled_owned()).await;
            self.end().await;
        });
        (ours, guard)
    }

    pub(super) fn proxy(&self) -> Arc<Proxy> {
        Arc::clone(&self.proxy)
    }

    /// Changes when the device is gone, to the reason.
    pub(super) fn gone(&self) -> watch::Receiver<String> {
        self.gone.clone()
    }

    /// The client is gone. The last one leaves the device to others: what it switched on stays on if it ended its session.
    pub(super) async fn end(self) {
        let count = |open: &mut Vec<Opened>, change: fn(usize) -> usize| {
            let opened = open.iter_mut().find(|opened| Arc::ptr_eq(&opened.proxy, &self.proxy));
            opened.map(|opened| {
                opened.clients = change(opened.clients);
                opened.clients
            })
        };
        let left = count(&mut self.targets.lock(), |clients| clients.saturating_sub(1));
        if left != Some(0) {
            return;
        }
        self.proxy.close_if_idle().await;
        // Unless a client has connected meanwhile.
        self.targets.lock().retain(|opened| opened.clients > 0 || !Arc::ptr_eq(&opened.proxy, &self.proxy));
    }
}
