//! `rigline mcp`, and the entries of `rigline install`: a target as tools for agents.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{ArgPredicate, PossibleValuesParser};
use clap::{Args, ValueHint};
use rigline::Extension;
use rigline_eval::Root;
use rigline_eval::session::Hosts;
use rigline_eval::tools::{Evals, Settings};
use rigline_host::mcp::config::{Edit, EditError, Header, McpProgram, Name, ServerEntry};
use rigline_host::protocol::Protocol;
use rigline_host::protocols;
use rigline_host::relay::{OnTargetNews, Relay, Remote, TargetNews};
use rigline_host::target::Target;
use rigline_host::wire;
#[cfg(target_os = "linux")]
use rigline_lab::dial::LEASED;
use rigline_rig::rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::TokioClock;
use rigline_std::between::Between;
use rigline_std::http::{HttpServer, ServerInfo};
use rigline_std::net::ListenAddress;
use rigline_std::stdio::{IDLE, Stdio};
use tokio::sync::watch;

use self::gate::{Gate, Parts};
use self::library::Library;
use super::shim::{anywhere, this};
use crate::choice::Choice;
use crate::connect::{self, Connection, Failure};
use crate::credentials::Credentials;
use crate::jsonrpc;
use crate::policy::{PolicyArguments, Rules};
use crate::protocol;
use crate::rig::{HttpArguments, announce};

mod gate;
mod last_seen;
mod library;
#[cfg(target_os = "linux")]
mod rigs;
#[cfg(not(target_os = "linux"))]
mod rigs {
    use rigline_host::client::Described;
    use rigline_host::relay::{OnTargetNews, Remote};

    /// There is no lab here.
    #[derive(Debug)]
    pub(crate) enum Rigs {}

    impl Rigs {
        pub(crate) fn set_relay(&self, _: Remote, _: OnTargetNews) {
            match *self {}
        }

        pub(crate) fn is_chosen(&self) -> bool {
            match *self {}
        }
    }

    pub(crate) fn nothing_chosen() -> Described {
        unreachable!("there is no lab here")
    }
}

/// The target of --lab: the rig that is leased at the time.
const CHOSEN: &str = "rig:*";

/// Serve an extension over MCP on standard input and output, for agents such as Claude Code, Cursor and VS Code
///
/// Each operation of the target is a tool. A call that the client cancels is cancelled at the target.
///
/// A target may answer several protocols. rigline tries them in this order, and asks the target by the first one that it answers: MCP, gevals, Amplifier.
/// By MCP, results keep their types, and progress and logs are passed on. If the target is a URL, its path decides.
///
/// With --evals DIR there are two more tools: `list_evals`, and `run_eval`, which runs an eval of that folder on the
/// target, reports each trial as progress, and returns the verdict and the results of all tasks. Calls that
/// come in during a run wait until it has ended. When the client cancels, or input ends, the run is cancelled and its
/// cleanup steps run.
///
/// Caution: the steps of an eval may call all operations, and may start any program. --allow,
/// --limit and --confirm apply to the tool `run_eval` itself, and not to these steps. Therefore
/// --read-only does not offer `run_eval`, and --allow offers it only if it is one of the names.
///
/// The command waits for a board that is not plugged in, and for a server that does not listen.
/// Until the target comes, the tools are those of its last visit, marked as absent, and each call
/// says what is missing. If it was never there, it has no tools until then. When it comes, or comes
/// back with other tools, the client is told, and lists them again.
///
/// A rig of the lab (rig:NAME) has three more tools: `lab_list`, `lease` and `release`. The rig is
/// not held from the start. The tool `lease` takes it, and can wait for it. A call of an operation
/// takes it too, but does not wait. The rig is given back by `release`, and when the client goes.
///
/// With --lab there is no target: the agent chooses the rig. The tool `lab_list` shows all rigs of
/// the lab. The tool `lease` takes the rig that its argument `rig` names. From then on the tools of
/// that rig are offered, until the tool `release` is called. The client is told of both changes,
/// and lists the tools again.
///
/// An owner can limit the calls of an agent by --limit and --confirm, or by a file with --policy.
/// The agent cannot change these limits. With --record DIR every call is kept with its time,
/// client, arguments and outcome. The tool `last_failure` tells why the last call failed.
///
/// `rigline install CLIENT TARGET` prints the configuration for a client.
#[derive(Debug, Args)]
#[command(
    mut_arg("target", |target| target
        .required(false)
        .required_unless_present("lab")
        .conflicts_with("lab")
        .default_value_if("lab", ArgPredicate::IsPresent, CHOSEN)),
    after_help = "Examples:\n  rigline mcp sim\n  rigline mcp --lab\n  rigline mcp serial:auto --read-only\n  rigline mcp serial:auto --allow identify measure\n  rigline mcp serial:auto --evals evals\n  rigline mcp serial:auto --limit power=20/h --confirm power --record runs/agent"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    selected: Tools,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    credentials: Credentials,
    /// Let the agent choose a rig of the lab, instead of a fixed target
    #[arg(long)]
    lab: bool,
    /// Leave the outputs on when the client goes or is idle. By default they are switched off then
    #[arg(long)]
    keep_outputs: bool,
    /// Switch the outputs off when the client has sent nothing for this time and no call runs, such
    /// as 90s or 1h [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, conflicts_with = "keep_outputs")]
    idle: Option<Duration>,
}

/// The choice of tools.
#[derive(Debug, Clone, Args)]
pub(crate) struct Tools {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Also offer tools that list and run the evals in this folder. The steps of an eval may call all operations, whatever --allow names
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) evals: Option<PathBuf>,
    /// The folder for the records of runs [default: the user's state folder]
    #[arg(long, value_name = "DIR", requires = "evals", value_hint = ValueHint::DirPath)]
    runs: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Self { connection, selected, policy, credentials, lab, keep_outputs, idle } = self;
        if lab {
            #[cfg(target_os = "linux")]
            crate::lab::choose();
            #[cfg(not(target_os = "linux"))]
            return Err(crate::lab::missing());
        }
        let way = Way::Stdio { keep_outputs, idle: idle.unwrap_or(IDLE) };
        Offer { connection, tools: &selected, policy: &policy, credentials: &credentials }.serve(&way)
    }
}

/// A target that agents are given.
pub(crate) struct Offer<'a> {
    pub(crate) connection: Connection,
    pub(crate) tools: &'a Tools,
    pub(crate) policy: &'a PolicyArguments,
    pub(crate) credentials: &'a Credentials,
}

/// How agents reach it.
pub(crate) enum Way<'a> {
    Stdio { keep_outputs: bool, idle: Duration },
    Http(&'a HttpArguments, &'a ListenAddress, Option<&'static Protocol>),
}

/// A way that is open.
enum Opened<'a> {
    Stdio(Stdio),
    Http(HttpServer, &'a HttpArguments, Option<&'static Protocol>),
}

impl Way<'_> {
    /// The protocol that the target is asked by first.
    fn asked_first(&self, rules: &Rules) -> Option<&'static Protocol> {
        match self {
            Self::Stdio { .. } => protocols::of_agents(),
            Self::Http(_, _, protocol) => protocol::asked_first(*protocol, rules.is_all),
        }
    }

    fn keeps_outputs(&self) -> bool {
        match self {
            Self::Stdio { keep_outputs, .. } => *keep_outputs,
            Self::Http(http, ..) => http.keep_outputs,
        }
    }

    fn open(&self, gate: &Arc<Gate>) -> Result<Opened<'_>, Failure> {
        Ok(match self {
            Self::Stdio { keep_outputs, idle } => {
                let stdio = Stdio::new().keep_outputs(*keep_outputs).idle(Some(*idle));
                Opened::Stdio(stdio.between(Arc::clone(gate) as Arc<dyn Between>))
            }
            Self::Http(http, address, protocol) => {
                let server = http.bind(address, *protocol, Some(Arc::clone(gate) as Arc<dyn Between>))?;
                Opened::Http(server, http, *protocol)
            }
        })
    }
}

impl Opened<'_> {
    /// Is told whose target it serves, which comes and goes.
    fn before(self, remote: Remote) -> Self {
        match self {
            Self::Http(server, http, protocol) => Self::Http(server.remote(Arc::new(remote)), http, protocol),
            stdio @ Self::Stdio(_) => stdio,
        }
    }

    /// Serves the built-in rig in this process.
    fn serve_rig(self, rules: &Rules) -> Result<ExitCode, Failure> {
        let rules = rules.clone();
        let rig = move |clock: &TokioClock| rules.over(Rig::new(SimBoard::new(clock.clone(), 1)), true, false);
        match self {
            Self::Stdio(stdio) => {
                let clock = TokioClock::new();
                let stdio = stdio.clock(clock.clone());
                Ok(stdio.serve(rig(&clock)?))
            }
            Self::Http(server, http, protocol) => {
                // What is wrong with the rules is said before the server is there.
                rig(&TokioClock::new())?;
                announce(&server, http, protocol)?;
                let make = move |info: &ServerInfo| rig(&info.clock).unwrap_or_else(|_| unreachable!("checked"));
                server.run(make).map_err(Failure::failed)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    /// Serves an extension. `end` tells those of its calls that wait for it that no more will come.
    fn serve<E: Extension + Send + 'static>(
        self,
        extension: E,
        end: Option<watch::Sender<bool>>,
    ) -> Result<ExitCode, Failure> {
        match (self, end) {
            (Self::Stdio(stdio), None) => Ok(stdio.serve(extension)),
            (Self::Stdio(stdio), Some(end)) => Ok(stdio.input_end(end).serve(extension)),
            (Self::Http(server, http, protocol), end) => {
                announce(&server, http, protocol)?;
                connect::run_alone(async move {
                    let stop = async {
                        drop(connect::interrupted().await);
                        end.iter().for_each(|end| _ = end.send_replace(true));
                    };
                    let hurry = async {
                        drop(connect::interrupted().await);
                        drop(connect::interrupted().await);
                    };
                    tokio::select! {
                        result = server.run_until(move |_| extension, stop) => result.map_err(Failure::failed)?,
                        () = hurry => {}
                    }
                    Ok(connect::SUCCESS)
                })
            }
        }
    }
}

impl Offer<'_> {
    pub(crate) fn serve(mut self, way: &Way<'_>) -> Result<ExitCode, Failure> {
        let rules = Rules::read(self.policy, &self.tools.choice, &self.connection.target)?;
        self.connection.recorder.clone_from(&rules.recorder);
        let served = self.serve_by(way, &rules);
        rules.finish();
        served
    }

    /// Whether the outputs can stay on when the client goes.
    fn can_keep_outputs(&self) -> Result<(), Failure> {
        let why = match &self.connection.target {
            Target::Http(_) => "the server at that URL switches them off; start that one with --keep-outputs",
            Target::Rig(_) => "the lab switches the outputs of a rig off between two users",
            _ => return Ok(()),
        };
        Err(Failure::usage(format!("--keep-outputs: {why}")))
    }

    fn serve_by(mut self, way: &Way<'_>, rules: &Rules) -> Result<ExitCode, Failure> {
        if way.keeps_outputs() {
            self.can_keep_outputs()?;
        }
        let mut parts = Parts {
            own: None,
            policy: Arc::clone(&rules.policy),
            calls: rules.calls.clone(),
            library: Library { calls: rules.calls.clone(), evals: None },
            can_change: true,
            tells_failures: rules.is_all,
        };
        let (end, ended) = watch::channel(false);
        let evals = match &self.tools.evals {
            Some(folder) => {
                self.connection.target = anywhere(&self.connection.target)?;
                Some(self.evals(folder, ended)?)
            }
            None => None,
        };
        let is_own = self.connection.target == Target::Sim && self.connection.config.is_none();
        if is_own && evals.is_none() && self.connection.recorder.is_none() {
            parts.can_change = false;
            return way.open(&Gate::new(parts))?.serve_rig(rules);
        }
        parts.library.evals = evals.as_ref().map(|evals| (evals.root.clone(), evals.store.clone()));
        // Agents of several clients share one lease, which the server has.
        let own = match way {
            Way::Stdio { .. } => self.lab(&mut parts)?,
            Way::Http(..) => None,
        };
        let gate = Gate::new(parts);
        let opened = way.open(&gate)?;
        let relay = self.relay(&gate, own, way, rules)?;
        let opened = opened.before(relay.remote().partial());
        let is_there = relay.absence().is_none();
        match evals {
            Some(settings) => {
                let evals = Evals::new(relay, settings).map_err(Failure::usage)?;
                opened.serve(rules.over(evals, is_there, false)?, Some(end))
            }
            None => opened.serve(rules.over(relay, is_there, false)?, None),
        }
    }

    /// The lab's tools, for a rig of the lab.
    #[cfg(target_os = "linux")]
    fn lab(&self, parts: &mut Parts) -> Result<Option<Arc<rigs::Rigs>>, Failure> {
        let Target::Rig(selector) = &self.connection.target else { return Ok(None) };
        let own = rigs::Rigs::new(crate::lab::hosts()?, Some(selector.as_str()).filter(|name| *name != LEASED));
        let own = Arc::new(own.map_err(|error| Failure::failed(format!("no async runtime can be started: {error}")))?);
        let tools: Arc<dyn gate::OwnTools> = Arc::clone(&own) as _;
        parts.own = Some(tools);
        Ok(Some(own))
    }

    #[cfg(not(target_os = "linux"))]
    fn lab(&self, _: &mut Parts) -> Result<Option<Arc<rigs::Rigs>>, Failure> {
        Ok(None)
    }

    /// Reaches the target, or waits for it. The gate learns when it comes and goes.
    fn relay(
        &self,
        gate: &Arc<Gate>,
        own: Option<Arc<rigs::Rigs>>,
        way: &Way<'_>,
        rules: &Rules,
    ) -> Result<Relay, Failure> {
        let first = way.asked_first(rules);
        let mut options = self.connection.options();
        options.keep_outputs = way.keeps_outputs();
        options.credentials = self.credentials.read(&self.connection.target)?;
        let target = self.connection.target.clone();
        let (gate, known) = (Arc::downgrade(gate), target.clone());
        let is_chosen = own.as_ref().is_some_and(|own| own.is_chosen());
        // What it says of itself by another protocol is less than agents are told.
        let is_kept = first.is_some() && !is_chosen;
        let told: OnTargetNews = Arc::new(move |seen| {
            if let TargetNews::Present(described) = seen
                && is_kept
            {
                last_seen::keep(&known, described);
            }
            if let Some(gate) = gate.upgrade() {
                gate.changed();
            }
        });
        let last = if is_chosen { Some(rigs::nothing_chosen()) } else { last_seen::load(&target).filter(|_| is_kept) };
        let relay = Relay::watch(&target, options, first, last, Arc::clone(&told))?;
        if let Some(own) = own {
            own.set_relay(relay.remote(), told);
            if let Some(why) = relay.absence() {
                connect::complain(format_args!("rigline: {why}; the tool `lease` waits for it"));
            }
        } else if let Some(why) = relay.absence() {
            connect::complain(format_args!("rigline: {why}; it is looked for until it comes"));
        }
        Ok(relay)
    }

    fn evals(&self, folder: &Path, ended: watch::Receiver<bool>) -> Result<Settings, Failure> {
        let root = Root::new(folder);
        let root = root.map_err(|error| Failure::usage(format!("--evals {}: {error}", folder.display())))?;
        let store = jsonrpc::store(self.tools.runs.clone())?;
        // Of a target that steps cannot be sent to, the user learns at once.
        if !matches!(self.connection.target, Target::Http(_)) {
            wire::dialer(&self.connection.target, &self.connection.options()).map_err(|error| Failure::of(&error))?;
        }
        let credentials = self.credentials.read(&self.connection.target)?;
        let hosts = Hosts { wait: self.connection.wait, credentials, ..Hosts::default() };
        let (target, config) = (self.connection.target.to_string(), self.connection.config.clone());
        Ok(Settings { root, store, target, hosts, config, ended })
    }
}

/// Print the configuration of TARGET for an MCP client, or write it into the client's file
#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    /// The client
    #[arg(long, value_name = "CLIENT", value_parser = PossibleValuesParser::new(McpProgram::ALL.map(McpProgram::name)))]
    client: String,
    #[command(flatten)]
    entry: EntryArguments,
}

impl ConfigArguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        self.entry.run(&self.client)
    }
}

/// Print the configuration of TARGET for an MCP client, or write it into the client's file
///
/// The client starts `rigline mcp TARGET`; a target that is a URL, such as http://127.0.0.1:8080/mcp, is a server that runs already.
///
/// The token of such a server is best kept in an environment variable of the client (--token-env
/// NAME) or in a file (--token-file FILE). With a file, the entry starts `rigline mcp URL
/// --token-file FILE`. For Claude Desktop the entry always starts rigline, since that client's file
/// cannot have a URL. In --header, ${NAME} stands for an environment variable of the client. The
/// entry spells it in the way of that client.
///
/// With --write, every other byte of the file stays as it is, comments too. If the file has an entry of this target already, the members that
/// rigline does not write are kept. A copy of the old file is kept beside it. Links are not followed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rigline install claude-code serial:auto --write\n  rigline install cursor sim\n  rigline install vscode http://127.0.0.1:8080/mcp --token-env RIG_TOKEN --write"
)]
pub(crate) struct EntryArguments {
    /// The target, as for `rigline mcp`
    target: Target,
    /// The name of the server in the client [default: from the target, with a number if another target has that name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    selected: Tools,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    credentials: Credentials,
    /// Write it into the client's file
    #[arg(long)]
    write: bool,
    /// The file [default: the client's own, of the project in the current folder or of the user]
    #[arg(long, value_name = "FILE", requires = "write", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
}

impl EntryArguments {
    /// For the client of this name.
    pub(crate) fn run(self, client: &str) -> Result<ExitCode, Failure> {
        let Some(client) = McpProgram::ALL.into_iter().find(|known| known.name() == client) else {
            return Err(Failure::usage(format!("unknown client {client}")));
        };
        let server = self.server(client)?;
        let derived = name_of(&self.target);
        let name = self.name.as_deref().map_or(Name::Derived(&derived), Name::Given);
        if !self.write {
            let snippet = client.snippet(self.name.as_deref().unwrap_or(&derived), &server);
            connect::print(&snippet.map_err(Failure::usage)?);
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

    fn server(&self, client: McpProgram) -> Result<ServerEntry, Failure> {
        let mut own = Vec::new();
        if let Target::Http(url) = &self.target {
            if self.selected.evals.is_some() {
                return Err(Failure::usage("--evals: a server that runs already offers what it was started with"));
            }
            let is_plain = self.selected.choice.is_all() && self.policy.words()?.is_empty();
            if client.takes_urls() && self.credentials.token_file.is_none() && is_plain {
                return Ok(ServerEntry::Url { url: url.clone(), headers: self.headers()? });
            }
            own = self.words()?;
        } else {
            self.credentials.read(&self.target)?;
        }
        // A client starts it in another folder, perhaps.
        let target = anywhere(&self.target)?;
        let mut args = vec!["mcp".to_owned(), target.to_string()];
        // What is wrong with it is said now.
        self.policy.read(&mut self.selected.choice.clone())?;
        args.extend(self.selected.choice.words());
        args.extend(self.policy.words()?);
        for (option, folder) in [("--evals", &self.selected.evals), ("--runs", &self.selected.runs)] {
            let Some(folder) = folder else { continue };
            let path = std::path::absolute(folder);
            let path = path.map_err(|error| Failure::usage(format!("{option} {}: {error}", folder.display())))?;
            args.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
        }
        args.extend(own);
        Ok(ServerEntry::Program { command: this()?, args })
    }

    /// The headers that the client itself sends.
    fn headers(&self) -> Result<Vec<Header>, Failure> {
        let lines = self.credentials.lines()?;
        let headers = lines.iter().map(|line| line.parse::<Header>().map_err(|error| format!("--header: {error}")));
        let bearer = self
            .credentials
            .token_env
            .iter()
            .map(|name| Header::bearer(name).map_err(|error| format!("--token-env: {error}")));
        headers.chain(bearer).collect::<Result<_, _>>().map_err(Failure::usage)
    }

    /// The options for the command, which sends it instead of the client.
    fn words(&self) -> Result<Vec<String>, Failure> {
        // What is wrong with them is said now.
        self.headers()?;
        let mut words = Vec::new();
        let absolute = |option: &str, path: &Path| {
            let path = std::path::absolute(path);
            path.map_err(|error| Failure::usage(format!("{option}: {error}")))
        };
        if let Some(path) = &self.credentials.token_file {
            connect::token(path)?;
            words.extend(["--token-file".to_owned(), absolute("--token-file", path)?.to_string_lossy().into_owned()]);
        }
        words.extend(self.credentials.token_env.iter().flat_map(|name| ["--token-env".to_owned(), name.clone()]));
        for header in &self.credentials.headers {
            let header = match header.strip_prefix('@') {
                Some(file) => format!("@{}", absolute("--header", Path::new(file))?.display()),
                None if header.contains("${") => header.clone(),
                None => {
                    return Err(Failure::usage(
                        "--header: a client that starts a command would show this value to every user; use ${NAME}, or @FILE",
                    ));
                }
            };
            words.extend(["--header".to_owned(), header]);
        }
        Ok(words)
    }
}

/// The longest name that is made from a target. Clients call a tool `mcp__NAME__TOOL`, and cut or refuse what has more than 64 characters.
const NAME: usize = 24;

/// The name of a target in a client: letters, digits, `-` and `_`, since clients make the names of tools from it.
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
    let name: String = name.chars().map(plain).take(NAME).collect();
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
            ("serial:/dev/serial/by-id/usb-rigline_rig_E6614103E7-if00", "serial-by-id-usb-rigline"),
        ] {
            assert_eq!(name_of(&target.parse().unwrap()), name, "{target}");
        }
    }
}
