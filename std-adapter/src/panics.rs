//! A handler that panics answers its call before the process ends.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use rigline::service::JobRun;
use rigline::{Call, Config, Context, Event, Extension, Failure, FailureKind, Manifest, Outcome};

/// An extension whose panics are failures of the kind [`FailureKind::Internal`].
///
/// What a panic left behind may be odd: the server brings about the extension's safe state and ends
/// after the reply.
#[derive(Debug)]
pub(crate) struct CatchPanics<E> {
    inner: E,
    panicked: Arc<AtomicBool>,
}

impl<E: Extension> CatchPanics<E> {
    /// Sets `panicked` when a handler of `inner` panics.
    pub(crate) fn new(inner: E, panicked: Arc<AtomicBool>) -> Self {
        Self { inner, panicked }
    }

    fn failure(panicked: &AtomicBool, panic: &(dyn Any + Send), cx: &mut Context<'_>) -> Failure {
        panicked.store(true, Ordering::Release);
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
        cx.failure(FailureKind::Internal, format_args!("the operation panicked: {text}"))
    }
}

/// The future's output, or what it panicked with.
async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

impl<E: Extension> Extension for CatchPanics<E> {
    fn manifest(&self) -> &'static Manifest {
        self.inner.manifest()
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        match caught(self.inner.call(call, cx)).await {
            Ok(result) => result,
            Err(panic) => Err(Self::failure(&self.panicked, &*panic, cx)),
        }
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        match caught(self.inner.configure(config, cx)).await {
            Ok(result) => result,
            Err(panic) => Err(Self::failure(&self.panicked, &*panic, cx)),
        }
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        if let Err(panic) = caught(self.inner.on_event(event, cx)).await {
            let _ = Self::failure(&self.panicked, &*panic, cx);
        }
    }

    async fn run_task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        match caught(self.inner.run_task(eval, task, cx)).await {
            Ok(result) => result,
            Err(panic) => Err(Self::failure(&self.panicked, &*panic, cx)),
        }
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        job.run(self, cx).await;
    }

    async fn safe_state(&mut self) {
        self.inner.safe_state().await;
    }
}
