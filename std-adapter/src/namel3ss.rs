//! namel3ss: an extension as a tool of its local runner; and, with the feature `namel3ss`, the host's side.
//!
//! The local runner starts a process for every call, as `PROGRAM -c SOURCE`, where `SOURCE` is Python meant for an
//! interpreter. A program built on [`main`] can stand in the interpreter's place, as it looks at no arguments. For any other
//! program `rigline namel3ss-shim` writes a wrapper.
//!
//! # What `sandbox: true` does
//! Nothing, but that the handler is told ([`Invocation::sandbox`](rigline::protocol::namel3ss::Invocation::sandbox)). The sandbox of namel3ss is one for Python code in
//! its own interpreter; no native program runs in it. What an extension does keep it says in
//! [`Manifest::guarantees`](rigline::Manifest::guarantees), and a call that requires more is refused before it runs
//! (`CapabilityViolation`, `guarantee_blocked`).

use std::process::ExitCode;

use rigline::Extension;
use rigline::protocol::NAMEL3SS;

use crate::stdio::Stdio;

#[cfg(feature = "namel3ss")]
mod bindings;
#[cfg(feature = "namel3ss")]
mod host;
#[cfg(feature = "namel3ss")]
mod project;
#[cfg(feature = "namel3ss")]
mod reply;
#[cfg(feature = "namel3ss")]
mod runners;
#[cfg(feature = "namel3ss")]
mod trace;

#[cfg(feature = "namel3ss")]
pub use crate::http_client::HttpError;
#[cfg(feature = "namel3ss")]
pub use bindings::{Binding, Bindings, BindingsError, Pack, Runner};
#[cfg(feature = "namel3ss")]
pub use host::{Host, ToolCall, ToolError, ToolResult};
#[cfg(feature = "namel3ss")]
pub use project::{Project, Resolved, Settings, Source};
#[cfg(feature = "namel3ss")]
pub use reply::{CapabilityCheck, Reply, ReplyError};
#[cfg(feature = "namel3ss")]
pub use runners::RunError;
#[cfg(feature = "namel3ss")]
pub use trace::Trace;

/// Serves `extension` as a tool: all of standard input is one request, on one line or many, and the reply to it is all of
/// standard output. The exit code is 0 once there is a reply; see [`stdio`](crate::stdio) for the others.
///
/// ```no_run
/// # use rigline::{Call, Context, Extension, Failure, Manifest, Outcome};
/// # struct Greeter;
/// # impl Extension for Greeter {
/// #     fn manifest(&self) -> &'static Manifest { const M: Manifest = Manifest::new("m", "1.0.0"); &M }
/// #     async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> { cx.done("") }
/// # }
/// fn main() -> std::process::ExitCode {
///     rigline_std::namel3ss::main(Greeter)
/// }
/// ```
pub fn main<E: Extension>(extension: E) -> ExitCode {
    Stdio::new().protocol(NAMEL3SS).one_text().serve(extension)
}
