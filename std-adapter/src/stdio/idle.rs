//! The end of a long silence of the client, while nothing runs for it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rigline::service::JobRun;
use rigline::{Call, Config, Context, Event, Extension, Failure, Manifest, Outcome};
use tokio::time::Instant;

/// Knowledge that the reader of the input and the extension share. Both are on one thread.
#[derive(Debug, Clone)]
pub(super) struct Idle {
    after: Duration,
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// How much of the extension runs.
    running: Cell<usize>,
    /// When something came from the client, or ended, last.
    since: Cell<Option<Instant>>,
    is_pause: Cell<bool>,
    /// A line has begun that has not ended.
    is_within_line: Cell<bool>,
}

impl Idle {
    pub(super) fn new(after: Duration) -> Self {
        let shared = Shared {
            running: Cell::new(0),
            since: Cell::new(None),
            is_pause: Cell::new(false),
            is_within_line: Cell::new(false),
        };
        Self { after, shared: Rc::new(shared) }
    }

    /// Something came from the client that ends with this byte.
    pub(super) fn has_read(&self, last: u8) {
        self.shared.is_within_line.set(last != b'\n');
        self.wake();
    }

    fn wake(&self) {
        self.shared.since.set(Some(Instant::now()));
    }

    /// Waits until the client has been silent for long, and nothing runs.
    pub(super) async fn wait(&self) {
        loop {
            let since = self.shared.since.get().unwrap_or_else(Instant::now);
            self.shared.since.set(Some(since));
            let at = since.checked_add(self.after);
            match at {
                Some(at) if at > Instant::now() => tokio::time::sleep_until(at).await,
                Some(_) if self.shared.running.get() == 0 && !self.shared.is_within_line.get() => break,
                Some(_) => self.wake(),
                None => std::future::pending().await,
            }
        }
        self.wake();
        self.shared.is_pause.set(true);
    }

    /// Whether the input ended only for this. It is asked once.
    pub(super) fn was_pause(&self) -> bool {
        self.shared.is_pause.take()
    }
}

/// An extension that says when it runs.
#[derive(Debug)]
pub(super) struct Busy<E> {
    inner: E,
    idle: Option<Idle>,
}

/// Something runs as long as this is there.
struct Running(Option<Idle>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(idle) = &self.0 {
            idle.wake();
            idle.shared.running.set(idle.shared.running.get().saturating_sub(1));
        }
    }
}

impl<E> Busy<E> {
    pub(super) fn new(inner: E, idle: Option<Idle>) -> Self {
        Self { inner, idle }
    }

    fn begin(&self) -> Running {
        if let Some(idle) = &self.idle {
            idle.shared.running.set(idle.shared.running.get().saturating_add(1));
        }
        Running(self.idle.clone())
    }
}

impl<E: Extension> Extension for Busy<E> {
    fn manifest(&self) -> &'static Manifest {
        self.inner.manifest()
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _running = self.begin();
        self.inner.call(call, cx).await
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let _running = self.begin();
        self.inner.configure(config, cx).await
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let _running = self.begin();
        self.inner.on_event(event, cx).await;
    }

    async fn run_task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _running = self.begin();
        self.inner.run_task(eval, task, cx).await
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        let _running = self.begin();
        self.inner.run_job(job, cx).await;
    }

    async fn safe_state(&mut self) {
        self.inner.safe_state().await;
    }
}
