//! The command `rigline`.
//!
//! Each subcommand is a module with its `clap::Args` and a `run` that gives the exit code, and has one line in [`Command`]
//! and one in [`Command::run`].
#![allow(unreachable_code, reason = "there is no subcommand yet")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "rigline", version, about = "Write an extension once; run it on a microcontroller or a desktop")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

impl Command {
    fn run(self) -> ExitCode {
        match self {}
    }
}

fn main() -> ExitCode {
    Arguments::parse().command.run()
}
