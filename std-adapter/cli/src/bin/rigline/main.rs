//! The command `rigline`.
//!
//! Each subcommand is a module with its `clap::Args` and a `run` that returns the exit code or why it fails, and has one line in
//! [`Command`] and one in [`Command::run`].

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rigline_host::process;

mod arguments;
mod bridge;
mod call;
mod check;
mod choice;
mod complete;
mod connect;
mod credentials;
mod describe;
mod eval;
mod exit;
mod failure;
mod files;
mod groups;
mod jsonrpc;
mod lab;
mod lock;
mod monitor;
mod new;
mod out;
mod policy;
mod ports;
mod protocol;
mod protocols;
mod record;
mod replay;
mod reports;
mod rig;
mod serve;
mod tips;
mod web;

use failure::Failure;
use protocols::spelling;

#[derive(Debug, Parser)]
#[command(name = "rigline", version, about = "Write an extension once; run it on a microcontroller or a desktop")]
#[command(
    after_help = "Without a command, and so without a target, rigline describes the rig that is plugged in, if there is only one. `rigline describe sim` describes the built-in rig.\n\n`rigline help targets` explains targets, and `rigline help serve` the short forms of serve (bridge, mcp, jsonrpc, rig). `rigline man DIR` writes manual pages. Older names of commands still work: `gevals-shim`, `namel3ss-shim`, `descriptor` and `mcp-config` for install, and `events` for replay."
)]
struct Arguments {
    /// The hosts whose rigs `rig:` targets mean, with commas between them: ssh:HOST, or nats://USER@SERVER:4222 [default: those of
    /// RIGLINE_LAB, or of lab.toml]
    #[arg(long, value_name = "HOST,…")]
    lab: Option<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Describe(describe::Arguments),
    Call(Box<call::Arguments>),
    Check(check::Arguments),
    #[command(hide = true)]
    Bridge(bridge::Arguments),
    #[command(flatten)]
    OfProtocol(protocols::Command),
    New(new::Arguments),
    Eval(eval::Arguments),
    Install(protocols::install::Arguments),
    #[command(hide = true)]
    Jsonrpc(jsonrpc::Arguments),
    #[command(hide = true)]
    Rig(rig::Arguments),
    Serve(serve::Arguments),
    Web(Box<web::Arguments>),
    Ports(ports::Arguments),
    Lock(lock::Arguments),
    Lab(lab::Arguments),
    Monitor(monitor::Arguments),
    Replay(replay::Arguments),
    #[command(hide = true)]
    Targets(complete::Targets),
    Completions(complete::Completions),
    #[command(hide = true)]
    Man(complete::Man),
}

impl Command {
    fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Describe(arguments) => arguments.run(),
            Self::Call(arguments) => arguments.run(),
            Self::Check(arguments) => arguments.run(),
            Self::Bridge(arguments) => arguments.run(),
            Self::OfProtocol(command) => command.run(),
            Self::New(arguments) => Ok(arguments.run()),
            Self::Eval(arguments) => arguments.run(),
            Self::Install(arguments) => arguments.run(),
            Self::Jsonrpc(arguments) => arguments.run(),
            Self::Rig(arguments) => arguments.run(),
            Self::Serve(arguments) => arguments.run(),
            Self::Web(arguments) => arguments.run(),
            Self::Ports(arguments) => arguments.run(),
            Self::Lock(arguments) => arguments.run(),
            Self::Lab(arguments) => arguments.run(),
            Self::Monitor(arguments) => arguments.run(),
            Self::Replay(arguments) => arguments.run(),
            Self::Targets(_) => {
                complete::Targets::run();
                Ok(ExitCode::SUCCESS)
            }
            Self::Completions(arguments) => arguments.run(),
            Self::Man(arguments) => arguments.run(),
        }
    }
}

fn main() -> ExitCode {
    lab::close_inherited();
    process::is_rigline();
    lab::reach_rigs();
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("unknown");
        let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
        out::complain_of_failure(&format!("internal error{place}: {text}"));
    }));
    if let Err(why) = process::ensure_descriptors() {
        return out::finish(Failure::usage(why).tell());
    }
    process::write_errors_instead_of_signals();
    complete::answer();
    let words: Vec<OsString> = std::env::args_os().collect();
    out::expect_json(words.iter().map(OsString::as_os_str));
    let code = std::panic::catch_unwind(|| run(words)).unwrap_or(ExitCode::from(exit::FAILED));
    out::finish(code)
}

fn run(words: Vec<OsString>) -> ExitCode {
    if let Some(ended) = lab::run_on_demand(&words) {
        return ended;
    }
    let mut error = match parse(&words) {
        Ok(Arguments { command: Some(command), lab }) => {
            lab::use_hosts(lab);
            return command.run().unwrap_or_else(|failure| failure.tell());
        }
        Ok(Arguments { command: None, .. }) => {
            return describe::the_only_one().unwrap_or_else(|failure| failure.tell());
        }
        Err(error) => error,
    };
    let is_plain = !words.iter().any(|word| word.to_string_lossy().contains(rigline_host::terminal::is_control));
    if error.kind() == ErrorKind::DisplayHelp
        && let Some(call) = call_with_help(&words)
    {
        return call.describe().unwrap_or_else(|failure| failure.tell());
    }
    tips::add(&mut error, &command(), &words);
    refuse(&error, is_plain)
}

fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let as_written = || Arguments::from_arg_matches(&command().try_get_matches_from_mut(words)?);
    let Some(meant) = spelling::meant(words) else { return as_written() };
    let parsed = command().try_get_matches_from_mut(meant).and_then(|matches| Arguments::from_arg_matches(&matches));
    match parsed {
        // An option of the command that was written: that one says what is missing.
        Err(error) if error.kind() == ErrorKind::UnknownArgument => as_written().or(Err(error)),
        parsed => parsed,
    }
}

/// The command line, with help as wide as the terminal.
fn command() -> clap::Command {
    let columns = out::columns().map(|columns| columns.min(100));
    let command = groups::in_groups(with_exit_codes(Arguments::command()), columns);
    match columns {
        Some(columns) => command.term_width(columns),
        None => command,
    }
}

/// Ends the help of every command with the exit codes of all commands, unless it has a list of its own.
fn with_exit_codes(command: clap::Command) -> clap::Command {
    let help = match command.get_after_help() {
        Some(more) if more.to_string().contains(exit::HEADING) => more.to_string(),
        Some(more) => format!("{more}\n\n{}", exit::HELP),
        None => exit::HELP.to_owned(),
    };
    command.after_help(help).mut_subcommands(with_exit_codes)
}

/// `rigline call TARGET OPERATION --help`, which is about that operation.
fn call_with_help(words: &[OsString]) -> Option<call::Arguments> {
    let words: Vec<OsString> = words.iter().filter(|word| *word != "--help" && *word != "-h").cloned().collect();
    match parse(&words).ok()?.command {
        Some(Command::Call(call)) => Some(*call),
        _ => None,
    }
}

/// Prints the requested help, or the error of the command line: in clap's colours, unless it may repeat a word with
/// control characters.
fn refuse(error: &clap::Error, is_plain: bool) -> ExitCode {
    let text = error.render();
    if error.use_stderr() {
        out::refuse(&text.to_string(), is_plain.then(|| text.ansi().to_string()));
        return ExitCode::from(exit::USAGE);
    }
    let has_colour = out::has_colour(&std::io::stdout());
    out::write(if has_colour { text.ansi().to_string() } else { text.to_string() }.as_bytes());
    ExitCode::SUCCESS
}
