//! `rigline mcp` and `rigline mcp-config`: a target as tools for agents.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use rigline_eval::Root;
use rigline_eval::session::Hosts;
use rigline_eval::tools::{Evals, Settings};
use rigline_host::mcp::config::{Client, Edit, EditError, Name, Server};
use rigline_host::protocols;
use rigline_host::relay::Relay;
use rigline_host::target::Target;
use rigline_host::wire;
use rigline_rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::TokioClock;
use rigline_std::mcp::{Selected, Selection};
use rigline_std::stdio::Stdio;
use tokio::sync::watch;

use super::shim::{anywhere, this};
use crate::connect::{self, Connection, Failure};
use crate::{jsonrpc, serve};

/// Serve an extension over MCP on standard input and output, for agents such as Claude Code, Cursor and VS Code
///
/// Each operation of the target is a tool. If the target speaks MCP, rigline uses MCP, so that results keep their types, and progress and logs
/// are passed on. Otherwise it uses Amplifier's protocol or gevals. A call that the client cancels is cancelled at the target.
///
/// With --evals DIR there are two more tools: `list_evals`, and `run_eval`, which runs an eval of that folder on the
/// target, reports each trial as progress, and returns the verdict and the results of all tasks. An eval may start any
/// program, so --read-only does not offer `run_eval`, and with --allow it must be named. The steps of an eval may call
/// all operations, not only those that --allow names. Calls that come in during a run wait until it has ended. When the
/// client cancels, or input ends, the run is cancelled and its cleanup steps run.
///
/// `rigline mcp-config TARGET --client NAME` prints the configuration for a client.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rigline mcp sim\n  rigline mcp serial:auto --read-only\n  rigline mcp serial:auto --allow identify measure\n  rigline mcp serial:auto --evals evals"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    selected: Choice,
}

/// Which operations are tools.
#[derive(Debug, Clone, Args)]
pub(crate) struct Choice {
    /// Offer only operations that are marked as read-only
    #[arg(long)]
    read_only: bool,
    /// Offer only these operations
    #[arg(long, value_name = "OP", num_args = 1..)]
    allow: Vec<String>,
    /// Offer tools that list and run the evals in this folder, too
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    evals: Option<PathBuf>,
    /// The folder for the records of runs [default: the user's state folder]
    #[arg(long, value_name = "DIR", requires = "evals", value_hint = ValueHint::DirPath)]
    runs: Option<PathBuf>,
}

impl Choice {
    fn selection(&self) -> Selection {
        Selection { read_only: self.read_only, allowed: self.allow.clone() }
    }
}

impl Arguments {
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        let selection = self.selected.selection();
        if let Some(folder) = &self.selected.evals {
            self.connection.target = anywhere(&self.connection.target)?;
            let (input_end, ended) = watch::channel(false);
            let settings = self.evals(folder, ended)?;
            let evals = Evals::new(self.relay()?, settings).map_err(Failure::usage)?;
            let evals = Selected::new(evals, &selection).map_err(Failure::usage)?;
            return Ok(Stdio::new().input_end(input_end).serve(evals));
        }
        if self.connection.target == Target::Sim && self.connection.config.is_none() {
            let clock = TokioClock::new();
            let stdio = Stdio::new().clock(clock.clone());
            let rig = Rig::new(SimBoard::new(clock, 1), stdio.limits());
            return Ok(stdio.serve(Selected::new(rig, &selection).map_err(Failure::usage)?));
        }
        Ok(Stdio::new().serve(Selected::new(self.relay()?, &selection).map_err(Failure::usage)?))
    }

    fn relay(&self) -> Result<Relay, Failure> {
        Relay::connect_by(&self.connection.target, self.connection.options(), protocols::named("mcp"))
            .map_err(serve::relay_failure)
    }

    fn evals(&self, folder: &Path, ended: watch::Receiver<bool>) -> Result<Settings, Failure> {
        let root = Root::new(folder);
        let root = root.map_err(|error| Failure::usage(format!("--evals {}: {error}", folder.display())))?;
        let store = jsonrpc::store(self.selected.runs.clone())?;
        // Of a target that steps cannot be sent to, the user learns at once.
        if !matches!(self.connection.target, Target::Http(_)) {
            wire::dialer(&self.connection.target, &self.connection.options()).map_err(|error| Failure::of(&error))?;
        }
        let hosts = Hosts { wait: self.connection.wait, ..Hosts::default() };
        let (target, config) = (self.connection.target.to_string(), self.connection.config.clone());
        Ok(Settings { root, store, target, hosts, config, ended })
    }
}

/// Print the configuration of TARGET for an MCP client, or write it into the client's file
///
/// The client starts `rigline mcp TARGET`; a target that is a URL, such as http://127.0.0.1:8080/mcp, is a server that runs already.
///
/// With --write, everything else in the file stays as it is, and a copy of the old file is kept beside it. Links are not followed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rigline mcp-config serial:auto --client claude-code --write\n  rigline mcp-config sim --client cursor"
)]
pub(crate) struct ConfigArguments {
    /// The target, as for `rigline mcp`
    target: Target,
    /// The client
    #[arg(long, value_name = "CLIENT", value_parser = PossibleValuesParser::new(Client::ALL.map(Client::name)))]
    client: String,
    /// The name of the server in the client [default: from the target, with a number if another target has that name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    selected: Choice,
    /// Write it into the client's file
    #[arg(long)]
    write: bool,
    /// The file [default: the client's own, of the project in the current folder or of the user]
    #[arg(long, value_name = "FILE", requires = "write", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
}

impl ConfigArguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Some(client) = Client::ALL.into_iter().find(|client| client.name() == self.client) else {
            return Err(Failure::usage(format!("unknown client {}", self.client)));
        };
        let server = self.server()?;
        let derived = name_of(&self.target);
        let name = self.name.as_deref().map_or(Name::Derived(&derived), Name::Given);
        if !self.write {
            connect::print(&client.snippet(self.name.as_deref().unwrap_or(&derived), &server));
            return Ok(ExitCode::SUCCESS);
        }
        let path = match &self.file {
            Some(path) => path.clone(),
            None => {
                let home =
                    std::env::home_dir().ok_or_else(|| Failure::usage("your home folder is not known: use --file"))?;
                let here =
                    std::env::current_dir().map_err(|error| Failure::usage(format!("the current folder: {error}")))?;
                client.file(&here, &home)
            }
        };
        let edit = client.write(&path, name, &server).map_err(|error| match error {
            EditError::Io(error) if error.kind() == std::io::ErrorKind::IsADirectory => Failure::usage(error),
            EditError::Io(error) => Failure::failed(error),
            error => Failure::usage(error),
        })?;
        let path = path.display();
        connect::print(&match edit {
            Edit::Unchanged => format!("{path} has this entry already\n"),
            Edit::Changed { backup } => format!("{path} was changed; a copy of the old file is {}\n", backup.display()),
            _ => format!("{path} is written\n"),
        });
        Ok(ExitCode::SUCCESS)
    }

    fn server(&self) -> Result<Server, Failure> {
        if let Target::Http(url) = &self.target {
            return match &self.selected.evals {
                Some(_) => Err(Failure::usage("--evals: a server that runs already offers what it was started with")),
                None => Ok(Server::Url(url.clone())),
            };
        }
        // A client starts it in another folder, perhaps.
        let target = anywhere(&self.target)?;
        let mut args = vec!["mcp".to_owned(), target.to_string()];
        if self.selected.read_only {
            args.push("--read-only".to_owned());
        }
        if !self.selected.allow.is_empty() {
            args.push("--allow".to_owned());
            args.extend(self.selected.allow.iter().cloned());
        }
        for (option, folder) in [("--evals", &self.selected.evals), ("--runs", &self.selected.runs)] {
            let Some(folder) = folder else { continue };
            let path = std::path::absolute(folder);
            let path = path.map_err(|error| Failure::usage(format!("{option} {}: {error}", folder.display())))?;
            args.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
        }
        Ok(Server::Program { command: this()?, args })
    }
}

/// What a target is called in a client: letters, digits, `-` and `_`, since clients make the names of tools from it.
fn name_of(target: &Target) -> String {
    let stem = |path: &str| Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = match target {
        Target::Sim => "sim".to_owned(),
        Target::Exec(exec) => {
            let program = stem(&exec.program);
            // Of an interpreter, its script says more.
            let is_interpreter =
                ["python", "node", "sh", "bash", "ruby", "perl"].iter().any(|known| program.starts_with(known));
            let script = exec.args.iter().find(|arg| !arg.starts_with('-')).filter(|_| is_interpreter);
            script.map_or(program, |script| stem(script))
        }
        Target::Replay(replay) => stem(&replay.path.to_string_lossy()),
        Target::Http(url) => {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            rest.split(['/', '?']).next().unwrap_or_default().to_owned()
        }
        other => {
            let text = other.to_string();
            let text = text.split('?').next().unwrap_or_default();
            text.strip_prefix("serial:/dev/").or_else(|| text.strip_prefix("tcp:")).unwrap_or(text).to_owned()
        }
    };
    let plain = |char: char| if char.is_ascii_alphanumeric() || char == '_' { char } else { '-' };
    let name: String = name.chars().map(plain).take(40).collect();
    match name.trim_matches('-') {
        "" => "rigline".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_server_is_named_by_its_target() {
        for (target, name) in [
            ("sim", "sim"),
            ("exec:./my-greeter --flag", "my-greeter"),
            ("exec:python3 -u 'tools/power meter.py'", "power-meter"),
            ("./greeter.exe", "greeter"),
            ("serial:auto", "serial-auto"),
            ("serial:auto/E66", "serial-auto-E66"),
            ("serial:/dev/ttyACM0?baud=9600", "ttyACM0"),
            ("tcp:localhost:7000?token-file=t", "localhost-7000"),
            ("tcp:[::1]:7000", "1--7000"),
            ("http://127.0.0.1:8080/mcp", "127-0-0-1-8080"),
            ("replay:runs/first", "first"),
        ] {
            assert_eq!(name_of(&target.parse().unwrap()), name, "{target}");
        }
    }
}
