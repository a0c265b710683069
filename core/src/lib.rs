//! **Write an extension once; run it on a microcontroller or a desktop, and drive it from gevals,
//! Amplifier, namel3ss, waza and MCP hosts, unchanged.**
//!
//! ```
//! use rigline::{Context, Failure, Outcome, Params};
//!
//! #[derive(Params)]
//! struct Greet<'a> {
//!     /// The name to greet.
//!     name: &'a str,
//!     /// The number of greetings.
//!     #[param(minimum = 1, maximum = 10, default = 1)]
//!     times: u8,
//! }
//!
//! struct Greeter;
//!
//! #[rigline::extension(name = "greeter", version = "1.0.0", description = "Says hello")]
//! impl Greeter {
//!     /// Greet somebody.
//!     #[operation]
//!     async fn greet(&mut self, args: Greet<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
//!         for n in 1..=args.times {
//!             cx.info(format_args!("greeting {n} of {}", args.times));
//!         }
//!         cx.output("times", &args.times)?;
//!         cx.done(format_args!("Hello, {}!", args.name))
//!     }
//! }
//! ```
//!
//! On a desktop, `rigline_std::stdio::serve(Greeter)` is the whole `main`; the guide in the crate
//! `rigline-std` goes on from here. On a microcontroller, [`serve::blocking`] or the async driver
//! serves the same extension over any port.
//!
//! This crate is the protocol core: `no_std`, without an allocator, without unsafe code, and
//! without a panic path. It works in memory that the caller owns, over `embedded-io` or
//! `embedded-io-async`.
//!
//! # What you use
//! An extension uses eight names:
//!
//! | name | use |
//! |---|---|
//! | [`macro@extension`] | the attribute of the `impl` block; its methods have `#[operation]`, `#[configure]` and `#[safe_state]` |
//! | [`macro@Params`] | derives the arguments of an operation |
//! | [`macro@Outputs`] | derives the outputs of an operation |
//! | [`Context`] | writes outputs, logs and progress, and waits |
//! | [`Outcome`] | the success of an operation |
//! | [`Failure`] | the end of an operation that could not be carried out |
//! | [`FailureKind`] | the kind of a failure |
//! | [`json::Decimal`] | a number with a fixed number of decimals, without floats |
//!
//! A board uses twelve more:
//!
//! | name | use |
//! |---|---|
//! | [`Extension`] | the trait that the macro implements |
//! | [`engine::Engine`] | turns bytes into calls, and results into bytes |
//! | [`engine::Memory`] | the memory for a request and a reply |
//! | [`protocol::ALL`] | the protocols; a shorter list needs less flash |
//! | [`serve::blocking::Server`] | serves a port that blocks |
//! | `serve::asynch::Server` | serves an async port (feature `async`) |
//! | [`serve::Transport`] | the kind of the port: streams of a process, or a wire |
//! | [`frame::LineEnds`] | the line ends: LF, or CR too, as terminals send it |
//! | [`serve::End`] | the reason why serving has ended |
//! | [`serve::ServeError`] | an error of the port |
//! | [`Clock`] | the time |
//! | [`Instant`] | a point in time |
//!
//! # Modules
//! | module | contents |
//! |---|---|
//! | [`frame`] | incremental newline framing, in place |
//! | [`json`] | RFC 8259: checked once, viewed, decoded in place by serde, written into bounded memory |
//! | [`rpc`], [`protocol`] | JSON-RPC 2.0; gevals, Amplifier, namel3ss, waza, MCP |
//! | [`Extension`], [`Manifest`], [`Context`] | what an extension implements, says about itself, and talks to while it runs |
//! | [`params`] | the types that arguments and outputs are made of, and their JSON Schemas |
//! | [`exchange`] | whole messages: a message in, a reply or a call out |
//! | [`engine`] | bytes in, bytes out, calls to run; no input or output of its own |
//! | [`serve`] | the drivers around the engine, blocking and async |
//! | [`client`] | the host's half of gevals, without I/O |
//!
//! An extension is an `impl` block under [`macro@extension`], or the trait [`Extension`] by hand.
//!
//! An engine is given its protocols in a list. Protocols that are not in the list are not linked.
//!
//! # Features
//! - `macros`, on by default: [`macro@extension`], [`macro@Params`], [`macro@Outputs`].
//! - `async`: the driver over `embedded-io-async`.
//! - `alloc`: `String`, `Vec` and `Cow` in arguments and outputs, and serde's other enum tags and
//!   flatten.
//! - `std`, which brings `alloc`: `HashMap` in arguments and outputs, and operations are found with
//!   `-` and `_` taken for the same.
//! - `postcard`: the binary link, for wires that lose bits.
//! - `serde-json-core`: typed payloads through that crate, for firmware that links it anyway.
//! - `defmt`: `Format` on the public types.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::too_many_lines,
        clippy::type_complexity,
        clippy::struct_excessive_bools,
        clippy::match_same_arms
    )
)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

#[doc(hidden)]
#[path = "macro_support/mod.rs"]
pub mod __private;
mod bytes;
mod call;
pub mod client;
mod clock;
mod content;
mod context;
mod duration;
pub mod engine;
mod event;
pub mod exchange;
mod extension;
mod failure;
pub mod frame;
pub mod json;
mod level;
#[cfg(feature = "postcard")]
pub mod link;
mod manifest;
mod message;
mod own_frame;
pub mod params;
mod phase;
pub mod protocol;
mod reply;
pub mod rpc;
mod schema;
pub mod serve;
pub mod service;
mod values;

pub use call::{Call, CallContext, Config, Outcome};
pub use clock::{Clock, Instant, Sleep};
pub use content::Content;
pub use context::{Context, LogSink, ReplyBuffer};
pub use duration::{ConvertDurationError, GoDuration, ParseDurationError};
pub use event::{Event, EventError, EventMember};
pub use extension::Extension;
pub use failure::{Failure, FailureKind, MAX_ERROR_TEXT};
pub use level::Level;
pub use manifest::{Effects, Guarantee, MAX_IDENTIFIER, Manifest, ModuleKind, NotSemantic, Operation};
pub use own_frame::own_frame;
pub use phase::Phase;
#[cfg(feature = "macros")]
pub use rigline_macros::{Outputs, Params, extension};
#[cfg(feature = "macros")]
#[doc(hidden)]
pub use rigline_macros::{configure, on_event, operation, run_task, safe_state};
pub use schema::Schema;
pub use values::{Outputs, Params};

/// The examples of the README, which are compiled as tests.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../README.md")]
pub struct Readme;
