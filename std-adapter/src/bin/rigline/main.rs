//! The command `rigline`.
//!
//! Each subcommand is a module with its `clap::Args` and a `run` that gives the exit code, and has one line in [`Command`]
//! and one in [`Command::run`].

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bridge;
mod call;
mod check;
mod connect;
mod describe;
mod descriptor;
mod eval;
mod events;
mod exit;
mod jsonrpc;
mod leash;
mod monitor;
mod new;
mod peer;
mod ports;
mod replay;
mod rig;
mod serve;
mod shim;
mod transcript;

#[derive(Debug, Parser)]
#[command(name = "rigline", version, about = "Write an extension once; run it on a microcontroller or a desktop")]
#[command(
    after_help = format!("Without a command it describes the rig that is plugged in. `rigline describe sim` shows the built-in one.\n\n{}", exit::HELP)
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Describe(describe::Arguments),
    Call(Box<call::Arguments>),
    Check(check::Arguments),
    Bridge(bridge::Arguments),
    Descriptor(descriptor::Arguments),
    Events(events::Arguments),
    #[command(name = "namel3ss-shim")]
    Namel3ssShim(shim::Arguments),
    New(new::Arguments),
    Eval(eval::Arguments),
    Jsonrpc(jsonrpc::Arguments),
    Leash(leash::Arguments),
    Rig(rig::Arguments),
    Serve(serve::Arguments),
    Ports(ports::Arguments),
    Monitor(monitor::Arguments),
    Replay(replay::Arguments),
}

impl Command {
    fn run(self) -> ExitCode {
        match self {
            Self::Describe(arguments) => arguments.run(),
            Self::Call(arguments) => arguments.run(),
            Self::Check(arguments) => arguments.run(),
            Self::Bridge(arguments) => arguments.run(),
            Self::Descriptor(arguments) => arguments.run(),
            Self::Events(arguments) => arguments.run(),
            Self::Namel3ssShim(arguments) => arguments.run(),
            Self::New(arguments) => arguments.run(),
            Self::Eval(arguments) => arguments.run(),
            Self::Jsonrpc(arguments) => arguments.run(),
            Self::Leash(arguments) => arguments.run(),
            Self::Rig(arguments) => arguments.run(),
            Self::Serve(arguments) => arguments.run(),
            Self::Ports(arguments) => arguments.run(),
            Self::Monitor(arguments) => arguments.run(),
            Self::Replay(arguments) => arguments.run(),
        }
    }
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Some(command) => command.run(),
        None => describe::the_only_one(),
    }
}
