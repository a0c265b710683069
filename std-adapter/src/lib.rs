//! Runs [`rigline`] extensions on a desktop.
//!
//! A desktop extension is a program that reads requests from its standard input and writes replies
//! and logs to its standard output. [`stdio::serve`] is all that its `main` needs:
//!
//! ```no_run
//! use rigline::{Context, Failure, Outcome, Params};
//!
//! #[derive(Params)]
//! struct Greet<'a> {
//!     /// The name to greet.
//!     name: &'a str,
//! }
//!
//! struct Greeter;
//!
//! #[rigline::extension(name = "greeter", version = "1.0.0", description = "Says hello")]
//! impl Greeter {
//!     /// Greet somebody.
//!     #[operation]
//!     async fn greet(&mut self, args: Greet<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
//!         cx.info("thinking of a greeting");
//!         tokio::time::sleep(std::time::Duration::from_millis(20)).await;
//!         cx.done(format_args!("Hello, {}!", args.name))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     rigline_std::stdio::serve(Greeter)
//! }
//! ```
//!
//! The module [`testing`] has a wire with faults, for tests of sessions. The module [`guide`] has
//! chapters on everything else, from arguments to boards.
//!
//! # Features
//! - `http`: [`http`](mod@http), an extension behind HTTP, for hosts of Amplifier and namel3ss and
//!   for clients of MCP.
//!
//! # Other packages
//! Programs that call extensions depend on the package `rigline-host`, which also has an extension
//! behind a TCP port. Evals are in `rigline-eval`. The command `rigline` is in `rigline-cli`:
//! `cargo install rigline-cli`.
#![forbid(unsafe_code)]

#[cfg(feature = "http")]
#[doc(hidden)]
pub mod amplifier;
#[doc(hidden)]
pub mod between;
#[cfg(feature = "http")]
#[doc(hidden)]
pub mod callers;
#[doc(hidden)]
pub mod clock;
pub mod guide;
#[cfg(feature = "http")]
pub mod http;
#[doc(hidden)]
pub mod log;
pub mod mcp;
#[doc(hidden)]
pub mod mutex;
pub mod namel3ss;
#[cfg(feature = "http")]
pub mod net;
mod panics;
pub mod path;
#[cfg(feature = "http")]
#[doc(hidden)]
pub mod queue;
mod requires;
mod selection;
pub mod server;
#[doc(hidden)]
pub mod signals;
#[doc(hidden)]
pub mod stderr;
pub mod stdio;
pub mod testing;
mod text;

pub use clock::TokioClock;
pub use requires::RequirePath;
pub use selection::{OperationSelection, Selected};

/// The examples of the repository's README, which are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct RepositoryReadme;

/// The examples of the package's own README, which are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
