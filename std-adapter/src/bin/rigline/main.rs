//! The command `rigline`.
//!
//! Each subcommand is a module with a `clap::Args` and a `run`, and has one line in each of [`Command`] and [`main`].

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "rigline", version, about, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

fn main() -> ExitCode {
    match Arguments::parse().command {}
}
