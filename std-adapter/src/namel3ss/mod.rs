//! namel3ss: an extension as a tool of its local runner; and, with the feature `namel3ss`, the host's side.
//!
//! The local runner starts a process for every call, as `PROGRAM -c SOURCE`, where `SOURCE` is Python meant for an
//! interpreter. A program built on [`main`] can stand in the interpreter's place, since it ignores its arguments. For any other
//! program `rigline namel3ss-shim` writes a wrapper.
//!
//! # What `sandbox: true` does
//! Nothing, except that the handler can read it (`call.context.namel3ss.sandbox`). The sandbox of namel3ss is one for Python code in
//! its own interpreter; no native program runs in it. What an extension does keep it says in
//! [`Manifest::guarantees`](rigline::Manifest::guarantees), and a call that requires more is refused before it runs
//! (`CapabilityViolation`, `guarantee_blocked`).

use std::process::ExitCode;

use rigline::Extension;
use rigline::protocol::NAMEL3SS;

#[cfg(feature = "namel3ss")]
use crate::client::{Command, Form, ProtocolOption};
#[cfg(feature = "namel3ss")]
use crate::protocol::Protocol;
use crate::stdio::Stdio;

#[cfg(feature = "namel3ss")]
mod bindings;
#[cfg(all(feature = "namel3ss", feature = "check"))]
pub mod check;
#[cfg(feature = "namel3ss")]
mod client;
#[cfg(feature = "http")]
mod handshake;
#[cfg(feature = "namel3ss")]
mod host;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "namel3ss")]
mod project;
#[cfg(feature = "namel3ss")]
mod redirects;
#[cfg(feature = "namel3ss")]
mod reply;
#[cfg(feature = "namel3ss")]
mod runners;
#[cfg(feature = "namel3ss")]
mod trace;
#[cfg(feature = "namel3ss")]
mod traffic;

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
    Stdio::new().protocol(NAMEL3SS).single_document().serve(extension)
}

/// The entry in the registry.
#[cfg(feature = "namel3ss")]
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(NAMEL3SS),
    is_single_document: true,
    client: Some(client::connect),
    reading: Some(&traffic::READING),
    #[cfg(feature = "http")]
    http: Some(&http::ROUTES),
    #[cfg(feature = "check")]
    check: Some(&check::SUITE),
    options: &[
        ProtocolOption::new(
            "trace",
            Form::Once,
            "FILE",
            "Append the trace record of the call to this file, as a JSON line",
        ),
        ProtocolOption {
            requires: Some("trace"),
            ..ProtocolOption::new(
                "trace-format",
                Form::OneOf(&["text", "namel3ss"]),
                "FORMAT",
                "The shape of the trace record: `text` as in the protocol's specification, `namel3ss` as in .namel3ss/run/last.json [default: text]",
            )
        },
        ProtocolOption::flag("handshake", "Require that the service first declares the guarantees that it enforces"),
        ProtocolOption::new(
            "require",
            Form::Repeated,
            "GUARANTEE",
            "A guarantee that the tool must keep, such as `no_network`; may be repeated",
        ),
        ProtocolOption::new("tool", Form::Once, "TOOL", "The tool of the service").of(&[Command::Describe]),
        ProtocolOption::new("entry", Form::Once, "MODULE:FUNCTION", "The tool's entry, as in its binding")
            .of(&[Command::Check]),
    ],
    ..Protocol::new("namel3ss", "namel3ss")
};
