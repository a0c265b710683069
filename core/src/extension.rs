//! The trait that an extension implements.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;

use crate::call::{Call, Config, Outcome};
use crate::context::Context;
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::level::Level;
use crate::manifest::Manifest;
use crate::own_frame::own_frame;
use crate::service::{JobRun, Step, TaskEnd};

/// An extension: a manifest, and a handler for its operations.
///
/// An extension stays on one thread. A server with many clients sends it one call at a time.
///
/// `#[rigline::extension]` (feature `macros`) implements this trait from the methods of a type and
/// their doc comments. Implement it by hand for an extension whose operations are not known at
/// compile time as methods, or which wraps another extension:
///
/// ```
/// use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
///
/// struct Greeter;
///
/// impl Extension for Greeter {
///     fn manifest(&self) -> &'static Manifest {
///         const MANIFEST: Manifest =
///             Manifest::new("greeter", "1.0.0").operations(&[Operation::new("greet", Schema::OBJECT)]);
///         &MANIFEST
///     }
///
///     async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
///         match call.operation() {
///             "greet" => cx.done("hello"),
///             _ => Err(Failure::UNKNOWN_OPERATION),
///         }
///     }
/// }
/// ```
#[allow(async_fn_in_trait, reason = "an extension lives on one thread: a `Send` bound would keep boards out")]
pub trait Extension {
    /// The name, version and operations of the extension. They are known at compile time, so that
    /// they take flash but no memory.
    fn manifest(&self) -> &'static Manifest;

    /// Runs one operation of the manifest. Calls of other operations are refused before.
    ///
    /// When the call is cancelled, times out, or loses its session, the future is dropped at its
    /// next await, and [`safe_state`](Self::safe_state) runs.
    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure>;

    /// Receives the configuration that a host sends when it starts a session. If the host sends
    /// none, this is not called.
    ///
    /// # Errors
    /// The session does not start, and the host gets the failure.
    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let _ = (config, cx);
        Ok(())
    }

    /// Receives an event, for modules of kind [`Hook`](crate::manifest::ModuleKind::Hook). The
    /// acknowledgement is sent before this method runs. Requests that arrive in the meantime wait
    /// for their turn.
    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let _ = (event, cx);
    }

    /// Runs one task of a job that a [`Service`](crate::service::Service) has started. A success
    /// means that the task has passed. `group` is the group of the [`Job`](crate::service::Job),
    /// and `task` counts from 0.
    async fn run_task(&mut self, group: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _ = (group, task, cx);
        Err(Failure::new(FailureKind::Internal, "there is no such task"))
    }

    /// Runs a job that a [`Service`](crate::service::Service) has started. An extension that has
    /// [tasks](Self::run_task) calls `job.run(self, cx).await` here. The default refuses the job,
    /// so that the image of another extension does not contain the code that runs jobs.
    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        let _ = cx;
        job.refuse();
    }

    /// Brings the hardware into a state that is safe without supervision. For example, a rig
    /// switches its rails off.
    ///
    /// It runs when a call is cancelled or times out, and when a session that began with
    /// `initialize` is lost without `shutdown`.
    async fn safe_state(&mut self) {}
}

impl<'a> JobRun<'a> {
    /// Runs the tasks of the job one after the other by [`Extension::run_task`], and reports their
    /// results. A task that is cancelled is dropped at its next await, and
    /// [`Extension::safe_state`] runs.
    pub async fn run<E: Extension + ?Sized>(self, extension: &mut E, cx: &mut Context<'a>) {
        own_frame(pin!(run_tasks(self, extension, cx))).await;
    }
}

async fn run_tasks<'a, E: Extension + ?Sized>(run: JobRun<'a>, extension: &mut E, cx: &mut Context<'a>) {
    let JobRun { service, job } = run;
    cx.begin_job(service, job);
    let at = |step: &Step<'_>| service.advance(job, step);
    at(&Step::Start);
    cx.report(&Step::Start).await;
    for task in 0..job.tasks {
        if service.is_cancelled(job) {
            break;
        }
        cx.report(&Step::TaskStart(task)).await;
        let result = {
            let mut running = pin!(extension.run_task(job.group, task, cx));
            poll_fn(|waker| {
                if service.is_cancelled(job) {
                    return Poll::Ready(None);
                }
                running.as_mut().poll(waker).map(Some)
            })
            .await
        };
        let end = match &result {
            None => {
                extension.safe_state().await;
                TaskEnd::Cancelled
            }
            Some(Ok(_)) => TaskEnd::Passed,
            Some(Err(failure)) => {
                if !failure.is_logged() {
                    cx.log(Level::Error, failure);
                }
                TaskEnd::Failed(failure)
            }
        };
        let step = Step::TaskEnd(task, end);
        at(&step);
        cx.report(&step).await;
    }
    at(&Step::End);
    cx.report(&Step::End).await;
}
