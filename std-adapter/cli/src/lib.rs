//! The server of the command's [web page](web), and the [guide] to the command.
//!
//! The command `rigline` is the binary of this package: `cargo install rigline-cli`.
#![forbid(unsafe_code)]

pub mod guide;
pub mod web;
