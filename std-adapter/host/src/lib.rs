//! The host's side of [`rigline`] extensions: find one, ask it, check it, record it.
//!
//! [`Host`] starts a program or opens a port, a socket or a recording, reads the manifest, calls operations, and leaves no process behind.
//! [`Target`](target::Target) names what it talks to.
//!
//! | module | contents |
//! |---|---|
//! | [`wire`], [`ports`], [`local`] | connections without a session, serial ports, extensions in this process |
//! | [`target`] | the forms of targets |
//! | [`amplifier`], [`namel3ss`], [`mcp`] | what the hosts of these protocols have: their files, their runners, their logs |
//! | [`check`] | conformance cases for any extension |
//! | [`record`] | recordings of calls, which can be played |
//! | [`relay`], [`tcp`] | a target that is served as an extension; an extension behind a TCP port, for several clients |
//! | [`guide`] | chapters on calling and recording |
//!
//! Extensions themselves are served by the package `rigline-std`.
#![forbid(unsafe_code)]

pub mod amplifier;
mod backlog;
pub mod check;
#[doc(hidden)]
pub mod choose;
#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod coerce;
#[doc(hidden)]
pub mod decode;
#[doc(hidden)]
pub mod files;
pub mod gevals;
pub mod guide;
mod host;
mod http_client;
mod http_sniff;
#[doc(hidden)]
pub mod lines;
pub mod mcp;
pub mod namel3ss;
#[doc(hidden)]
pub mod number;
#[doc(hidden)]
pub mod process;
#[doc(hidden)]
pub mod protocol;
#[doc(hidden)]
pub mod protocols;
pub mod record;
pub mod relay;
pub mod target;
pub mod tcp;
#[doc(hidden)]
pub mod terminal;
mod waza;

pub use host::*;
pub use http_client::{Credentials, HttpError};

/// The examples of the README, which are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
