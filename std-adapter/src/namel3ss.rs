//! namel3ss: an extension as a tool of its local runner.
//!
//! The local runner starts a process for every call, as `PROGRAM -c SOURCE`. `SOURCE` is Python for
//! an interpreter. A program with [`main`] can take the place of the interpreter, since it ignores
//! its arguments. For any other program, `rigline install namel3ss` writes a wrapper.
//!
//! # `sandbox: true`
//! This request has no effect, except that the handler can read it as
//! `Invocation::of(&call.context).sandbox`. The sandbox of namel3ss is one for Python code in its
//! own interpreter. No native program runs in it. An extension declares in
//! [`Manifest::guarantees`](rigline::Manifest::guarantees) what it promises not to do. A call that
//! requires more is refused before it runs (`CapabilityViolation`, `guarantee_blocked`).

use std::process::ExitCode;

use rigline::Extension;
use rigline::protocol::NAMEL3SS;

use crate::stdio::Stdio;

#[cfg(feature = "http")]
mod handshake;
#[cfg(feature = "http")]
mod http;

#[cfg(feature = "http")]
#[doc(hidden)]
pub use http::ROUTES;

/// Serves `extension` as a tool. All of standard input is one request, on one line or several, and
/// its reply is all of standard output. The exit code is 0 if there is a reply; see
/// [`stdio`](crate::stdio) for the others.
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
    Stdio::new().protocol(NAMEL3SS).single_document().serve(extension)
}
