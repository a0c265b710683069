//! The command `rigline`.
//!
//! Each subcommand is a module with its `clap::Args` and a `run` that gives the exit code, and has one line in [`Command`]
//! and one in [`Command::run`].

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

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
mod junit;
mod leash;
mod monitor;
mod new;
mod out;
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
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("unknown");
        let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
        out::complain_of_failure(&format!("internal error{place}: {text}"));
    }));
    let words: Vec<OsString> = std::env::args_os().collect();
    out::expect_json(words.iter().map(OsString::as_os_str));
    let code = std::panic::catch_unwind(|| run(words)).unwrap_or(ExitCode::from(exit::FAILED));
    out::finish(code)
}

fn run(words: Vec<OsString>) -> ExitCode {
    let mut command = Arguments::command();
    if let Some(columns) = out::columns() {
        command = command.term_width(columns.min(100));
    }
    let parsed = command.try_get_matches_from_mut(words).and_then(|matches| Arguments::from_arg_matches(&matches));
    match parsed {
        Ok(Arguments { command: Some(command) }) => command.run(),
        Ok(Arguments { command: None }) => describe::the_only_one(),
        Err(error) => refuse(&error),
    }
}

/// Prints the help that was asked for, or what is wrong with the command line. It may repeat words of the command line.
fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.render();
    if !error.use_stderr() {
        let has_colour = out::has_colour(&std::io::stdout());
        out::write(if has_colour { text.ansi().to_string() } else { text.to_string() }.as_bytes());
        return ExitCode::SUCCESS;
    }
    let plain = text.to_string();
    out::refuse(&plain, &text.ansi().to_string());
    ExitCode::from(exit::USAGE)
}
