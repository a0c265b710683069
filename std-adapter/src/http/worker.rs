//! The extension's own thread, and the queue before it.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use embedded_io_async::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::{Transport, asynch};
use rigline::{Extension, Manifest};
use tokio::sync::{Notify, mpsc, oneshot};

use super::Options;
use crate::clock::TokioClock;
use crate::requires::RequirePath;

/// How long [`Extension::safe_state`] may take after a panic.
const SAFE_STATE_AFTER_PANIC: Duration = Duration::from_secs(10);

/// How many bytes of reply buffer are kept between calls.
const KEPT: usize = 64 << 10;

/// What an extension is made with, on the thread that it will live on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Surroundings {
    /// The clock that its calls are timed with.
    pub clock: TokioClock,
    /// The longest request that is taken and the longest reply that is sent, in bytes.
    pub limits: (usize, usize),
}

/// The other end of the queue.
#[derive(Debug)]
pub(super) struct Worker {
    manifest: &'static Manifest,
    queue: Mutex<Option<mpsc::Sender<Job>>>,
}

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum Refused {
    Full,
    Gone,
}

#[derive(Debug)]
struct Job {
    line: Vec<u8>,
    reply: oneshot::Sender<Vec<u8>>,
}

impl Worker {
    /// Starts the thread; gives what tells of its end.
    pub(super) async fn start<E: Extension>(
        options: &Options,
        make: impl FnOnce(&Surroundings) -> E + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<io::Result<()>>)> {
        let (queue, jobs) = mpsc::channel(options.queue);
        let (tell_manifest, manifest) = oneshot::channel();
        let (tell_end, ended) = oneshot::channel();
        let options = options.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("rigline-extension".into()).spawn(move || {
            let limits = (options.request_limit, options.reply_limit);
            let surroundings = Surroundings { clock: TokioClock::new(), limits };
            let made = panic::catch_unwind(AssertUnwindSafe(|| {
                let _context = runtime.enter();
                make(&surroundings)
            }));
            let result = match made {
                Ok(extension) => {
                    let _ = tell_manifest.send(extension.manifest());
                    if options.requires {
                        run(&runtime, &options, &surroundings.clock, RequirePath::new(extension), jobs)
                    } else {
                        run(&runtime, &options, &surroundings.clock, extension, jobs)
                    }
                }
                Err(_) => Err(io::Error::other("making the extension panicked")),
            };
            runtime.shutdown_background();
            let _ = tell_end.send(result);
        })?;
        match manifest.await {
            Ok(manifest) => Ok((Self { manifest, queue: Mutex::new(Some(queue)) }, ended)),
            Err(_) => Err(io::Error::other("making the extension panicked")),
        }
    }

    pub(super) fn manifest(&self) -> &'static Manifest {
        self.manifest
    }

    /// Waits for the reply to a line, newline and all.
    pub(super) async fn ask(&self, line: Vec<u8>) -> Result<Vec<u8>, Refused> {
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match queue.ok_or(Refused::Gone)?.try_send(Job { line, reply }) {
            Ok(()) => answer.await.map_err(|_| Refused::Gone),
            Err(mpsc::error::TrySendError::Full(_)) => Err(Refused::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Refused::Gone),
        }
    }

    /// Whether there is somebody to ask.
    pub(super) fn is_alive(&self) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_ref().is_some_and(|queue| !queue.is_closed())
    }

    /// Takes no more; what is in the queue is still answered.
    pub(super) fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn run<E: Extension>(
    runtime: &tokio::runtime::Runtime,
    options: &Options,
    clock: &TokioClock,
    mut extension: E,
    jobs: mpsc::Receiver<Job>,
) -> io::Result<()> {
    let mut request = vec![0; options.request_limit + 1];
    let mut reply = vec![0; options.reply_limit.saturating_add(1)];
    let memory = Memory { request: &mut request, reply: &mut reply };
    let engine = Engine::new(extension.manifest(), memory).map_err(io::Error::other)?;
    let mut engine = engine.with_protocol(options.protocol);
    let pending = Rc::new(Pending::default());
    let mut reader = Lines { jobs, line: Vec::new(), given: 0, pending: pending.clone() };
    let mut writer = Replies { pending, reply: Vec::new() };
    let mut log = [0; 16 << 10];
    let serving = asynch::serve(
        &mut extension,
        &mut engine,
        &mut reader,
        &mut writer,
        Transport::Process,
        &mut log,
        clock,
        std::future::pending(),
    );
    let result = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(clock.drive(serving))));
    match result {
        Ok(result) => result.map(|_| ()).map_err(io::Error::other),
        Err(_) => {
            // That the rails go off matters more than a state that may be odd.
            let safe_state = async { tokio::time::timeout(SAFE_STATE_AFTER_PANIC, extension.safe_state()).await };
            let _ = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(safe_state)));
            Err(io::Error::other("the handler panicked"))
        }
    }
}

/// Whom the next reply is for.
#[derive(Debug, Default)]
struct Pending {
    reply: RefCell<Option<oneshot::Sender<Vec<u8>>>>,
    answered: Notify,
}

/// Requests, one at a time: the next is not looked at before the last is answered.
struct Lines {
    jobs: mpsc::Receiver<Job>,
    line: Vec<u8>,
    given: usize,
    pending: Rc<Pending>,
}

impl ErrorType for Lines {
    type Error = Infallible;
}

impl Read for Lines {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        loop {
            let rest = self.line.get(self.given..).unwrap_or_default();
            if !rest.is_empty() {
                let count = rest.len().min(buf.len());
                if let (Some(place), Some(bytes)) = (buf.get_mut(..count), rest.get(..count)) {
                    place.copy_from_slice(bytes);
                }
                self.given += count;
                return Ok(count);
            }
            if self.pending.reply.borrow().is_some() {
                self.pending.answered.notified().await;
                continue;
            }
            let Some(job) = self.jobs.recv().await else { return Ok(0) };
            // Its client may be gone.
            if !job.reply.is_closed() {
                (self.line, self.given) = (job.line, 0);
                *self.pending.reply.borrow_mut() = Some(job.reply);
            }
        }
    }
}

struct Replies {
    pending: Rc<Pending>,
    reply: Vec<u8>,
}

impl ErrorType for Replies {
    type Error = Infallible;
}

impl Write for Replies {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        self.reply.extend_from_slice(bytes);
        if self.reply.ends_with(b"\n") {
            let reply = if self.reply.len() > KEPT { std::mem::take(&mut self.reply) } else { self.reply.clone() };
            self.reply.clear();
            if let Some(client) = self.pending.reply.borrow_mut().take() {
                let _ = client.send(reply);
            }
            self.pending.answered.notify_one();
        }
        Ok(bytes.len())
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
