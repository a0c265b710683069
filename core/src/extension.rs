//! The trait that an extension implements.

pub use crate::call::{Call, CallContext, Config, Outcome};
use crate::context::Context;
use crate::event::Event;
pub use crate::failure::{Failure, FailureKind, MAX_ERROR_TEXT};
use crate::manifest::Manifest;

/// An extension: a manifest, and a handler for the operations in it.
///
/// One extension lives on one thread; whoever serves it to many sends it one call at a time.
///
/// `#[rigline::extension]` (feature `macros`) writes it, from the methods of a type and their doc comments. By hand it
/// is no secret, and the way to go for an extension whose operations are known elsewhere, or which wraps another:
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
    /// What the extension is and offers. Known at compile time, so that it costs no memory but flash.
    fn manifest(&self) -> &'static Manifest;

    /// Runs one operation. Only operations of the manifest arrive here.
    ///
    /// The future is dropped at its next await when the call is cancelled, times out, or its session is lost;
    /// [`safe_state`](Self::safe_state) runs after that.
    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure>;

    /// Takes the configuration that a host sends when it starts a session. It is not
    /// called where a host sends none. What fails here fails the start of the session.
    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let _ = (config, cx);
        Ok(())
    }

    /// Takes note of an event, for modules of kind [`Hook`](crate::manifest::Kind::Hook). The
    /// acknowledgement is on the wire already when this runs, and requests that come in meanwhile wait their turn.
    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let _ = (event, cx);
    }

    /// Runs one task of a job that a [`Service`](crate::service::Service) has started: success is a pass. `group` is that of the
    /// [`Job`](crate::service::Job), `task` counts from 0.
    async fn run_task(&mut self, group: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _ = (group, task, cx);
        Err(Failure::new(FailureKind::Internal, "there is no such task"))
    }

    /// Brings what the extension drives into a state that is safe when nobody watches: a rig turns its rails off.
    ///
    /// It runs when a session that began with `initialize` is lost without `shutdown`, and when a call is cancelled or
    /// times out.
    async fn safe_state(&mut self) {}
}
