//! The extension's own thread, and the queue before it.
//!
//! The queue is not `tokio::sync::mpsc`, which wakes the other thread for each job: see [`Shared`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use embedded_io_async::{ErrorType, Read, Write};
use rigline::protocol;
use rigline::service::JobRun;
use rigline::{Call, Config, Context, Event, Extension, Failure, Manifest, Outcome};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use super::Options;
use super::exchange::Exchange;
use super::stream::Client;
use crate::clock::TokioClock;
use crate::requires::RequirePath;
use crate::server::Server;
use crate::sync::lock;

/// How long [`Extension::safe_state`] may take after a panic.
const SAFE_STATE_AFTER_PANIC: Duration = Duration::from_secs(10);

/// A request that has waited no longer is begun without looking for its client.
const NO_WAIT: Duration = Duration::from_millis(1);

/// The size of the reply buffer that is kept between calls, in bytes.
const KEPT: usize = 64 << 10;

/// The parameters for making an extension, on the thread on which it will run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The clock that its calls are timed with.
    pub clock: TokioClock,
    /// The longest request that is accepted and the longest reply that is sent, in bytes.
    pub limits: (usize, usize),
}

/// The other end of the queue.
#[derive(Debug)]
pub(super) struct Worker {
    manifest: &'static Manifest,
    exchange: Option<Arc<Exchange>>,
    shared: Arc<Shared>,
    _carriers: JoinSet<()>,
}

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum Refused {
    Full,
    /// The extension has ended.
    Gone,
    /// The client was gone when the request's turn came.
    Abandoned,
    /// The engine has nothing to say to it.
    Silent,
}

/// What a request gets.
type Answer = Result<Vec<u8>, Refused>;

#[derive(Debug)]
struct Job {
    line: Vec<u8>,
    reply: oneshot::Sender<Answer>,
    client: Client,
    since: Instant,
}

/// What the two threads have in common.
///
/// Waking the other thread costs more than many a call. So neither wakes the other for each job: a task of the server's
/// wakes the worker when all connections that had something to say have said it, and another one hands out all the replies
/// that there are by then.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    limit: usize,
    /// Jobs were put into the queue: for the server's task.
    filled: Notify,
    /// There are jobs: for the worker.
    ready: Notify,
    replies: Mutex<Vec<(oneshot::Sender<Answer>, Answer)>>,
    /// There are replies: for the server's task.
    replied: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// No more jobs are accepted.
    is_closed: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn replies(&self) -> MutexGuard<'_, Vec<(oneshot::Sender<Answer>, Answer)>> {
        lock(&self.replies)
    }

    async fn carry_jobs(&self) {
        loop {
            self.filled.notified().await;
            self.ready.notify_one();
        }
    }

    async fn carry_replies(&self) {
        loop {
            self.replied.notified().await;
            let replies = std::mem::take(&mut *self.replies());
            for (client, reply) in replies {
                let _ = client.send(reply);
            }
        }
    }

    /// The next job whose client is there; none when there will be no more.
    async fn next(&self) -> Option<Job> {
        loop {
            let next = {
                let mut queue = self.queue();
                let next = queue.jobs.pop_front();
                if next.is_none() && queue.is_closed {
                    return None;
                }
                next
            };
            match next {
                None => self.ready.notified().await,
                // A client does not give up that soon.
                Some(job) if job.since.elapsed() > NO_WAIT && (job.reply.is_closed() || job.client.is_gone()) => {
                    self.answer(job.reply, Err(Refused::Abandoned));
                }
                Some(job) => return Some(job),
            }
        }
    }

    fn answer(&self, client: oneshot::Sender<Answer>, reply: Answer) {
        let mut replies = self.replies();
        replies.push((client, reply));
        // Otherwise the one who carries them is on its way already.
        if replies.len() == 1 {
            drop(replies);
            self.replied.notify_one();
        }
    }

    fn close(&self) {
        self.queue().is_closed = true;
        self.ready.notify_one();
    }
}

/// Closes the queue when the worker's thread ends for any reason: waiting clients get an error.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.0.queue();
            queue.is_closed = true;
            std::mem::take(&mut queue.jobs)
        };
        drop(left);
    }
}

impl Worker {
    /// Starts the thread; returns a receiver of its end.
    pub(super) async fn start<E: Extension>(
        options: &Options,
        make: impl FnOnce(&ServerInfo) -> E + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<io::Result<()>>)> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            limit: options.queue,
            filled: Notify::new(),
            ready: Notify::new(),
            replies: Mutex::default(),
            replied: Notify::new(),
        });
        let jobs = End(shared.clone());
        let exchange = options.routes.dialect.map(|dialect| Exchange::new(dialect, options.queue));
        let for_extension = exchange.clone();
        let (tell_manifest, manifest) = oneshot::channel();
        let (tell_end, ended) = oneshot::channel();
        let options = options.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("rigline-extension".into()).spawn(move || {
            let jobs = jobs;
            let limits = (options.request_limit, options.reply_limit);
            let info = ServerInfo { clock: TokioClock::new(), limits };
            let made = panic::catch_unwind(AssertUnwindSafe(|| {
                let _context = runtime.enter();
                make(&info)
            }));
            let result = match made {
                Ok(extension) => {
                    let _ = tell_manifest.send(extension.manifest());
                    if options.requires {
                        run(&runtime, &options, &info.clock, RequirePath::new(extension), &jobs.0, for_extension)
                    } else {
                        run(&runtime, &options, &info.clock, extension, &jobs.0, for_extension)
                    }
                }
                Err(_) => Err(io::Error::other("making the extension panicked")),
            };
            runtime.shutdown_background();
            drop(jobs);
            let _ = tell_end.send(result);
        })?;
        match manifest.await {
            Ok(manifest) => {
                let mut carriers = JoinSet::new();
                let (for_jobs, for_replies) = (shared.clone(), shared.clone());
                carriers.spawn(async move { for_jobs.carry_jobs().await });
                carriers.spawn(async move { for_replies.carry_replies().await });
                Ok((Self { manifest, exchange, shared, _carriers: carriers }, ended))
            }
            Err(_) => Err(io::Error::other("making the extension panicked")),
        }
    }

    pub(super) fn manifest(&self) -> &'static Manifest {
        self.manifest
    }

    /// The stream to the extension, for protocols that have one.
    pub(super) fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.exchange.as_ref()
    }

    /// Waits for the reply to a line, newline and all.
    pub(super) async fn ask(&self, line: Vec<u8>, client: Client) -> Answer {
        let (reply, answer) = oneshot::channel();
        {
            let mut queue = self.shared.queue();
            if queue.is_closed {
                return Err(Refused::Gone);
            }
            if queue.jobs.len() >= self.shared.limit {
                return Err(Refused::Full);
            }
            queue.jobs.push_back(Job { line, reply, client, since: Instant::now() });
        }
        self.shared.filled.notify_one();
        answer.await.unwrap_or(Err(Refused::Gone))
    }

    /// Whether the extension is alive.
    pub(super) fn is_alive(&self) -> bool {
        !self.shared.queue().is_closed
    }

    /// Accepts no more jobs. Those in the queue are still answered.
    pub(super) fn close(&self) {
        self.shared.close();
        if let Some(exchange) = &self.exchange {
            exchange.close();
        }
    }
}

fn run<E: Extension>(
    runtime: &tokio::runtime::Runtime,
    options: &Options,
    clock: &TokioClock,
    extension: E,
    shared: &Arc<Shared>,
    exchange: Option<Arc<Exchange>>,
) -> io::Result<()> {
    if let Some(exchange) = exchange {
        let (reader, writer) = exchange.ends();
        return serve(runtime, options, clock, extension, reader, writer);
    }
    let pending = Rc::new(Pending::default());
    let extension = Observed { inner: extension, pending: pending.clone() };
    let reader = Lines { shared, line: VecDeque::new(), pending: pending.clone() };
    let writer = Replies { shared, pending, reply: Vec::new() };
    serve(runtime, options, clock, extension, reader, writer)
}

fn serve<E: Extension, R: Read, W: Write<Error = R::Error>>(
    runtime: &tokio::runtime::Runtime,
    options: &Options,
    clock: &TokioClock,
    mut extension: E,
    reader: R,
    writer: W,
) -> io::Result<()> {
    let protocol = options.routes.protocol;
    // Only this protocol is served. Answers of the others are recognised, and not answered.
    let protocols = [&[protocol], protocol::ALL].concat();
    let serving = Server::new(&mut extension)
        .protocols(&protocols)
        .protocol(Some(protocol))
        .request_limit(options.request_limit)
        .reply_limit(options.reply_limit)
        .log_buffer(16 << 10)
        .clock(clock)
        .serve(reader, writer);
    let result = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(serving)));
    match result {
        Ok(result) => result.map(|_| ()).map_err(|error| io::Error::other(error.to_string())),
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
    reply: RefCell<Option<oneshot::Sender<Answer>>>,
    answered: Notify,
    /// The extension is at work.
    is_working: Cell<bool>,
}

impl Pending {
    fn answer(&self, shared: &Shared, answer: Answer) {
        if let Some(client) = self.reply.borrow_mut().take() {
            shared.answer(client, answer);
        }
        self.answered.notify_one();
    }
}

/// An extension that is seen to be at work.
struct Observed<E> {
    inner: E,
    pending: Rc<Pending>,
}

/// Says that the extension is at work, until it is dropped.
struct Working<'p>(&'p Pending);

impl<'p> Working<'p> {
    fn new(pending: &'p Pending) -> Self {
        pending.is_working.set(true);
        Self(pending)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.is_working.set(false);
    }
}

impl<E: Extension> Extension for Observed<E> {
    fn manifest(&self) -> &'static Manifest {
        self.inner.manifest()
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _working = Working::new(&self.pending);
        self.inner.call(call, cx).await
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let _working = Working::new(&self.pending);
        self.inner.configure(config, cx).await
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let _working = Working::new(&self.pending);
        self.inner.on_event(event, cx).await;
    }

    async fn run_task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _working = Working::new(&self.pending);
        self.inner.run_task(eval, task, cx).await
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        job.run(self, cx).await;
    }

    async fn safe_state(&mut self) {
        let _working = Working::new(&self.pending);
        self.inner.safe_state().await;
    }
}

/// Requests, one at a time: the next is not looked at before the last is answered.
///
/// Each gets exactly one answer. The engine is silent on some lines, such as one that is itself an answer: when it has taken all
/// of a line, asks for more, and the extension is not at work, there will be no reply.
struct Lines<'a> {
    shared: &'a Shared,
    line: VecDeque<u8>,
    pending: Rc<Pending>,
}

impl ErrorType for Lines<'_> {
    type Error = Infallible;
}

impl Read for Lines<'_> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        while self.line.is_empty() {
            if self.pending.reply.borrow().is_some() {
                if self.pending.is_working.get() {
                    self.pending.answered.notified().await;
                } else {
                    self.pending.answer(self.shared, Err(Refused::Silent));
                }
                continue;
            }
            let Some(job) = self.shared.next().await else { return Ok(0) };
            self.line = job.line.into();
            *self.pending.reply.borrow_mut() = Some(job.reply);
        }
        self.line.read(buf).await
    }
}

struct Replies<'a> {
    shared: &'a Shared,
    pending: Rc<Pending>,
    reply: Vec<u8>,
}

impl ErrorType for Replies<'_> {
    type Error = Infallible;
}

impl Write for Replies<'_> {
    async fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        self.reply.extend_from_slice(bytes);
        if self.reply.ends_with(b"\n") {
            let reply = if self.reply.len() > KEPT { std::mem::take(&mut self.reply) } else { self.reply.clone() };
            self.reply.clear();
            self.pending.answer(self.shared, Ok(reply));
        }
        Ok(bytes.len())
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
