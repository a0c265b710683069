//! Runs [`rigline`] extensions on a desktop.
//!
//! A desktop extension is a program that reads requests from its standard input and writes replies and logs to its
//! standard output. [`stdio::serve`] is all that its `main` needs:
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
//! [`guide`] has a chapter for each further question, from arguments to boards.
//!
//! # Features
//! - `http`: [`http`](mod@http), an extension behind HTTP, for Amplifier and namel3ss hosts.
//! - `amplifier`, `namel3ss`: what the hosts of these protocols have: their files, their runners, their logs.
//! - `amplifier` also has [`relay`], by which an extension that is somewhere else is served as one that is here.
//! - `host`: [`Host`], which talks to extensions in programs, on serial ports and over TCP; and [`tcp`], an extension behind a
//!   TCP port.
//! - `check`: conformance cases for any extension ([`check`]).
//! - `web`: [`web`], a target's page in a browser, and the server behind it.
//! - `cli`, on by default: the command `rigline`. An extension turns it off, since it needs the library only:
//!   `rigline-std = { version = "0.1", default-features = false }`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "cli"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "what is used of the shared parts depends on the features"
    )
)]

#[cfg(any(feature = "amplifier", feature = "http"))]
pub mod amplifier;
#[cfg(feature = "schemas")]
mod by_schema;
#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "host")]
mod client;
mod clock;
#[cfg(feature = "eval")]
pub mod eval;
#[cfg(feature = "host")]
mod files;
pub mod gevals;
pub mod guide;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http-client")]
#[cfg_attr(not(any(feature = "amplifier", feature = "namel3ss")), allow(dead_code, reason = "MCP needs less of it"))]
mod http_client;
#[cfg(feature = "host")]
mod lines;
mod log;
#[cfg(feature = "host")]
pub mod mcp;
pub mod namel3ss;
#[cfg(any(feature = "host", feature = "http"))]
pub mod net;
#[cfg(feature = "host")]
mod not_http;
#[cfg(feature = "host")]
mod number;
mod panics;
#[cfg(feature = "host")]
mod process;
#[cfg(feature = "host")]
mod protocol;
#[cfg(feature = "host")]
mod protocols;
#[cfg(feature = "host")]
pub mod record;
#[cfg(feature = "schemas")]
pub mod relay;
mod requires;
pub mod server;
mod signals;
mod stderr;
pub mod stdio;
mod sync;
#[cfg(feature = "host")]
pub mod target;
#[cfg(feature = "host")]
pub mod tcp;
mod terminal;
#[cfg(feature = "host")]
mod traffic;
#[cfg(feature = "host")]
mod waza;
#[cfg(feature = "web")]
pub mod web;

pub use clock::TokioClock;
pub use gevals::path;
#[cfg(feature = "host")]
pub use gevals::proxy;
#[cfg(feature = "host")]
pub use host::Host;
pub use requires::RequirePath;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
