//! What pages talk to: the server's own target, or one of those that are plugged in.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::host::local::InProcess;
use crate::host::ports::Roots;
use crate::host::wire::Dial;
use crate::host::{EventKind, Options};
use crate::proxy::{Limits, Proxy};
use crate::target::{Port, Serial, Target};

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

    /// Lets a client talk to what it has chosen, or says why not.
    pub(super) async fn lease(self: &Arc<Self>, chosen: Option<&str>) -> Result<Lease, String> {
        let target = match (&self.fixed, chosen) {
            (Some(fixed), None) => fixed.clone(),
            (Some(fixed), Some(chosen)) if fixed.to_string() == chosen => fixed.clone(),
            (Some(fixed), Some(_)) => return Err(format!("this server serves {fixed} only")),
            (None, None) => return Err("no target was chosen".to_owned()),
            (None, Some(chosen)) => {
                let target = chosen.parse::<Target>().map_err(|error| error.to_string())?;
                // Folders and links are looked at.
                let plugged = tokio::task::spawn_blocking(move || plugged(target)).await;
                plugged.map_err(|_| "the ports cannot be listed".to_owned())??
            }
        };
        let mut open = self.lock();
        let place = match open.iter().position(|opened| opened.target == target) {
            Some(place) => place,
            None => {
                open.push(self.open(target));
                open.len() - 1
            }
        };
        let Some(opened) = open.get_mut(place) else { return Err("no target was chosen".to_owned()) };
        opened.clients += 1;
        let (proxy, gone) = (Arc::clone(&opened.proxy), opened.gone.subscribe());
        Ok(Lease { targets: Arc::clone(self), proxy, gone })
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
                Proxy::over(move |_| Ok(Box::new(sim.clone()) as Box<dyn Dial>), options, Limits::default())
            }
            _ => Proxy::new(target.clone(), options, Limits::default()),
        };
        Opened { target, proxy, gone, clients: 0 }
    }

    /// Ends all sessions at once.
    pub(super) async fn abandon(&self) {
        let proxies: Vec<Arc<Proxy>> = self.lock().drain(..).map(|opened| opened.proxy).collect();
        for proxy in proxies {
            proxy.abandon().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Opened>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A target that a page may choose, a port by its path, so that one that is called by several names is one target.
fn plugged(target: Target) -> Result<Target, String> {
    match target {
        Target::Sim => Ok(target),
        Target::Serial(serial) => {
            let roots = Roots::of_environment();
            let found = roots.find(&serial.port).map_err(|error| error.to_string())?;
            let ports = roots.ports();
            let is_listed = |path: &PathBuf| ports.iter().any(|port| port.path == *path);
            let real = std::fs::canonicalize(&found.path).unwrap_or_else(|_| found.path.clone());
            let path = [found.path, real].into_iter().find(is_listed);
            let path = path.ok_or("no such serial port is plugged in")?;
            Ok(Target::Serial(Serial { port: Port::Path(path), ..serial }))
        }
        _ => Err("a page may choose serial ports and sim only: start rigline web with this target".to_owned()),
    }
}

impl Lease {
    pub(super) fn proxy(&self) -> Arc<Proxy> {
        Arc::clone(&self.proxy)
    }

    /// Ready when the device is gone, with the reason.
    pub(super) fn gone(&self) -> impl Future<Output = String> + use<> {
        let mut gone = self.gone.clone();
        async move {
            match gone.changed().await {
                Ok(()) => gone.borrow().clone(),
                Err(_) => std::future::pending().await,
            }
        }
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
        // Unless somebody came meanwhile.
        self.targets.lock().retain(|opened| opened.clients > 0 || !Arc::ptr_eq(&opened.proxy, &self.proxy));
    }
}
