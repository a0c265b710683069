//! The guide: one chapter for each question, each with an example that compiles.
//!
//! | chapter | question |
//! |---|---|
//! | [`arguments`] | What arguments can an operation take? |
//! | [`outputs`] | What can it return? |
//! | [`errors`] | How does it fail? |
//! | [`logs`] | How does it report progress, wait, and end in time? |
//! | [`configuration`] | How does a host configure it? |
//! | [`safe_state`] | What happens to the hardware when the host disconnects? |
//! | [`serving`] | How is it served on stdio, over TCP and over HTTP? |
//! | [`board`] | How does it run on a microcontroller? |
//! | [`port`] | What changes for another chip, and what does not? |
//!
//! The package `rigline-host` has three more, on calling extensions, on testing them, and on tests without the rig.
//!
//! Start with the example of [this crate](crate), or with `rigline new NAME`, which writes a project.

#[doc = include_str!("guide/arguments.md")]
pub mod arguments {}
#[doc = include_str!("guide/outputs.md")]
pub mod outputs {}
#[doc = include_str!("guide/errors.md")]
pub mod errors {}
#[doc = include_str!("guide/logs.md")]
pub mod logs {}
#[doc = include_str!("guide/configuration.md")]
pub mod configuration {}
#[doc = include_str!("guide/safe_state.md")]
pub mod safe_state {}
#[cfg(feature = "http")]
#[doc = include_str!("guide/serving.md")]
pub mod serving {}
#[doc = include_str!("guide/board.md")]
pub mod board {}
#[doc = include_str!("guide/port.md")]
pub mod port {}
