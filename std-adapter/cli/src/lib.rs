//! What the command `rigline` serves: [a page in a browser](web), by which a target's operations are called and evals are run.
//!
//! The command is the binary of this package: `cargo install rigline-cli`.
#![forbid(unsafe_code)]

pub mod web;
