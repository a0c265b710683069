//! The end of a long silence of the client, while nothing runs for it.
//!
//! The time is watched by the thread that waits for signals. With a timer of its own, the thread
//! that serves would set and cancel the timer for each line.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use rigline::service::JobRun;
use rigline::{Call, Config, Context, Event, Extension, Failure, Manifest, Outcome};
use tokio::time::{sleep, sleep_until};

use crate::mutex::lock;

/// Knowledge that the reader of the input and the extension share. Both are on one thread.
#[derive(Debug, Clone)]
pub(super) struct Idle {
    shared: Rc<Shared>,
    silence: Arc<Silence>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How much of the extension runs.
    running: Cell<usize>,
    is_pause: Cell<bool>,
    /// A line has begun that has not ended.
    is_within_line: Cell<bool>,
}

/// The silence of the client, for the thread that watches how long it lasts.
#[derive(Debug)]
pub(super) struct Silence {
    after: Duration,
    start: Instant,
    /// When the silence began, in nanoseconds since `start`, or [`NO_SILENCE`].
    since: AtomicU64,
    alarm: Mutex<Alarm>,
}

#[derive(Debug, Default)]
struct Alarm {
    /// The silence may have lasted for long enough.
    is_due: bool,
    waker: Option<Waker>,
}

/// Something came from the client, or ended, and nobody has waited for the client since.
const NO_SILENCE: u64 = u64::MAX;

/// After an alarm, the least and the greatest time to the next one.
const NEXT_ALARM: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

impl Silence {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(NO_SILENCE - 1)
    }

    fn sound_alarm(&self) {
        let mut alarm = lock(&self.alarm);
        alarm.is_due = true;
        let waker = alarm.waker.clone();
        drop(alarm);
        waker.iter().for_each(Waker::wake_by_ref);
    }

    /// Wakes the thread that serves each time a silence may have lasted for long enough.
    pub(super) async fn watch(self: Arc<Self>) {
        let [least, greatest] = NEXT_ALARM;
        loop {
            let since = self.since.load(Ordering::Relaxed);
            let began = if since == NO_SILENCE { self.now() } else { since };
            let due = self.start.checked_add(Duration::from_nanos(began)).and_then(|at| at.checked_add(self.after));
            match due {
                Some(due) => sleep_until(due.into()).await,
                None => pending().await,
            }
            if since != NO_SILENCE && self.since.load(Ordering::Relaxed) == since {
                self.sound_alarm();
                // A handler that does not await may keep it from being noticed.
                sleep(self.after.clamp(least, greatest)).await;
            }
        }
    }
}

impl Idle {
    pub(super) fn new(after: Duration) -> Self {
        let silence =
            Silence { after, start: Instant::now(), since: AtomicU64::new(NO_SILENCE), alarm: Mutex::default() };
        Self { shared: Rc::default(), silence: Arc::new(silence) }
    }

    /// Returns the silence, for the thread that watches it.
    pub(super) fn silence(&self) -> Arc<Silence> {
        self.silence.clone()
    }

    /// Something came from the client that ends with this byte.
    pub(super) fn has_read(&self, last: u8) {
        self.shared.is_within_line.set(last != b'\n');
        self.wake();
    }

    fn wake(&self) {
        self.silence.since.store(NO_SILENCE, Ordering::Relaxed);
    }

    /// Waits until the client has been silent for long, and nothing runs.
    pub(super) async fn wait(&self) {
        poll_fn(|task| self.poll_wait(task)).await;
    }

    /// Polls as [`wait`](Self::wait) does.
    pub(super) fn poll_wait(&self, task: &TaskContext<'_>) -> Poll<()> {
        let Silence { after, since, alarm, .. } = &*self.silence;
        let is_due = {
            let mut alarm = lock(alarm);
            match &mut alarm.waker {
                Some(waker) => waker.clone_from(task.waker()),
                None => alarm.waker = Some(task.waker().clone()),
            }
            std::mem::take(&mut alarm.is_due)
        };
        let began = since.load(Ordering::Relaxed);
        if began == NO_SILENCE {
            since.store(self.silence.now(), Ordering::Relaxed);
            return Poll::Pending;
        }
        if !is_due {
            return Poll::Pending;
        }
        let now = self.silence.now();
        if Duration::from_nanos(now.saturating_sub(began)) < *after {
            return Poll::Pending;
        }
        if self.shared.running.get() > 0 || self.shared.is_within_line.get() {
            since.store(now, Ordering::Relaxed);
            return Poll::Pending;
        }
        self.wake();
        self.shared.is_pause.set(true);
        Poll::Ready(())
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
struct Running<'i>(Option<&'i Idle>);

impl<'i> Running<'i> {
    fn begin(idle: Option<&'i Idle>) -> Self {
        if let Some(Idle { shared, .. }) = idle {
            shared.running.set(shared.running.get().saturating_add(1));
        }
        Self(idle)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(idle) = self.0 {
            idle.wake();
            idle.shared.running.set(idle.shared.running.get().saturating_sub(1));
        }
    }
}

impl<E> Busy<E> {
    pub(super) fn new(inner: E, idle: Option<Idle>) -> Self {
        Self { inner, idle }
    }
}

impl<E: Extension> Extension for Busy<E> {
    fn manifest(&self) -> &'static Manifest {
        self.inner.manifest()
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _running = Running::begin(self.idle.as_ref());
        self.inner.call(call, cx).await
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let _running = Running::begin(self.idle.as_ref());
        self.inner.configure(config, cx).await
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let _running = Running::begin(self.idle.as_ref());
        self.inner.on_event(event, cx).await;
    }

    async fn run_task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _running = Running::begin(self.idle.as_ref());
        self.inner.run_task(eval, task, cx).await
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        let _running = Running::begin(self.idle.as_ref());
        self.inner.run_job(job, cx).await;
    }

    async fn safe_state(&mut self) {
        self.inner.safe_state().await;
    }
}
