//! Runs [`rigline`] extensions on a desktop.
//!
//! A desktop extension is a program that reads requests from its standard input and writes replies and logs to its
//! standard output. All that its `main` needs is [`stdio::serve`]:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
//!
//! struct Greeter;
//!
//! impl Extension for Greeter {
//!     fn manifest(&self) -> &'static Manifest {
//!         const MANIFEST: Manifest =
//!             Manifest::new("greeter", "1.0.0").operations(&[Operation::new("greet", Schema::OBJECT)]);
//!         &MANIFEST
//!     }
//!
//!     async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
//!         cx.info("thinking of a greeting");
//!         tokio::time::sleep(std::time::Duration::from_millis(20)).await;
//!         cx.done("hello")
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     rigline_std::stdio::serve(Greeter)
//! }
//! ```
//!
//! # Features
//! - `http`: [`http`](mod@http), an extension behind HTTP, for Amplifier and namel3ss hosts.
//! - `amplifier`, `namel3ss`: what the hosts of these protocols have: their files, their runners, their logs.
//! - `amplifier` also has [`relay`], by which an extension that is somewhere else is served as one that is here.
//! - `host`: [`Host`], which talks to extensions in programs, on serial ports and over TCP.
//! - `check`: conformance cases for anybody's extension ([`check`]).
//! - `cli`, on by default: the command `rigline`. An extension turns it off, since it needs the library only:
//!   `rigline-std = { version = "0.1", default-features = false }`.
#![forbid(unsafe_code)]

#[cfg(feature = "amplifier")]
pub mod amplifier;
#[cfg(feature = "eval")]
pub mod by_schema;
#[cfg(all(feature = "check", any(feature = "amplifier", feature = "namel3ss")))]
pub mod cases;
#[cfg(feature = "check")]
pub mod check;
pub mod clock;
#[cfg(feature = "eval")]
pub mod eval;
#[cfg(feature = "host")]
pub mod files;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "amplifier", feature = "namel3ss"))]
mod http_client;
pub mod namel3ss;
#[cfg(feature = "host")]
mod not_http;
#[cfg(feature = "eval")]
pub mod number;
pub mod path;
#[cfg(feature = "host")]
pub mod proxy;
#[cfg(feature = "amplifier")]
pub mod relay;
pub mod requires;
pub mod signals;
pub mod stdio;
#[cfg(feature = "host")]
pub mod target;
pub mod terminal;

pub use clock::TokioClock;
#[cfg(feature = "host")]
pub use host::Host;
pub use requires::RequirePath;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
