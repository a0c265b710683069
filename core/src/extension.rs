//! The trait that an extension implements.

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;

use crate::apart::apart;
use crate::call::{Call, Config, Outcome};
use crate::context::Context;
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::level::Level;
use crate::manifest::Manifest;
use crate::service::{JobRun, Step, TaskEnd};

/// An extension: a manifest, and a handler for the operations in it.
///
/// One extension lives on one thread; a server with many clients sends it one call at a time.
///
/// `#[rigline::extension]` (feature `macros`) writes it, from the methods of a type and their doc comments. By hand it
/// is possible too, and is right for an extension whose operations are known elsewhere, or which wraps another:
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
    /// Name, version and operations of the extension. Known at compile time, so that it costs no memory but flash.
    fn manifest(&self) -> &'static Manifest;

    /// Runs one operation. Only operations of the manifest arrive here.
    ///
    /// The future is dropped at its next await when the call is cancelled, times out, or its session is lost;
    /// [`safe_state`](Self::safe_state) runs after that.
    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure>;

    /// Receives the configuration that a host sends when it starts a session. It is not called if
    /// the host sends none. If it returns an error, the session does not start.
    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let _ = (config, cx);
        Ok(())
    }

    /// Receives an event, for modules of kind [`Hook`](crate::manifest::Kind::Hook). The acknowledgement is sent
    /// before this runs. Requests that arrive meanwhile wait their turn.
    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let _ = (event, cx);
    }

    /// Runs one task of a job that a [`Service`](crate::service::Service) has started: success is a pass. `group` is that of the
    /// [`Job`](crate::service::Job), `task` counts from 0.
    async fn run_task(&mut self, group: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _ = (group, task, cx);
        Err(Failure::new(FailureKind::Internal, "there is no such task"))
    }

    /// Runs a job that a [`Service`](crate::service::Service) has started. An extension that has
    /// [tasks](Self::run_task) says `job.run(self, cx).await` here; others refuse the job, as the default does, and their images do
    /// without the code that runs jobs.
    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        let _ = cx;
        job.refuse();
    }

    /// Brings the hardware into a state that is safe without supervision. For example, a rig switches its rails
    /// off.
    ///
    /// It runs when a session that began with `initialize` is lost without `shutdown`, and when a call is cancelled or
    /// times out.
    async fn safe_state(&mut self) {}
}

impl<'a> JobRun<'a> {
    /// Runs the tasks one after the other, each by [`Extension::run_task`], and reports them. A task that is cancelled is
    /// dropped at its next await, and the extension's safe state is made.
    pub async fn run<E: Extension + ?Sized>(self, extension: &mut E, cx: &mut Context<'a>) {
        apart(pin!(run_tasks(self, extension, cx))).await;
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
