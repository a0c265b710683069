//! The guide's chapters on writing an extension. Every example compiles.
//!
//! | chapter | contents |
//! |---|---|
//! | [`arguments`] | the arguments that an operation can take |
//! | [`outputs`] | the values that it can return |
//! | [`errors`] | the ways in which it can fail |
//! | [`logs`] | progress, waiting, and deadlines |
//! | [`configuration`] | settings that a host sends |
//! | [`safe_state`] | the hardware after the host has disconnected |
//! | [`serving`] | standard input and output, TCP and HTTP |
//! | [`board`] | microcontrollers |
//! | [`port`] | other chips |
//!
//! Further chapters are in other packages:
//!
//! | module | chapters |
//! |---|---|
//! | `rigline_host::guide` | targets, hosts, protocols, servers and who may ask, agents, testing an extension, recordings, limits |
//! | `rigline_eval::guide` | evals, which are hardware tests, and their reports |
//! | `rigline_cli::guide` | the command and the web page |
//! | `rigline_lab::guide` | rigs that several users share |
//!
//! Start with the example of [this crate](crate), or with `rigline new NAME`, which writes a
//! project.

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/arguments.md")]
pub mod arguments {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/outputs.md")]
pub mod outputs {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/errors.md")]
pub mod errors {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/logs.md")]
pub mod logs {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/configuration.md")]
pub mod configuration {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/safe_state.md")]
pub mod safe_state {}

#[cfg(feature = "http")]
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/serving.md")]
pub mod serving {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/board.md")]
pub mod board {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/port.md")]
pub mod port {}
