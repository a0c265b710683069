use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::connect;
#[cfg(not(target_os = "linux"))]
use crate::connect::Failure;

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "the lab is on Linux; elsewhere its commands only say so")
)]
mod results;

/// See who has which rig, and look after the rigs
///
/// The rigs of this host are in rigs.toml, in the folder rigline of the user's configuration. An
/// agent grants leases for them (see `rigline lock`). The first command that needs the agent starts
/// it. It ends when nobody has needed it for ten minutes.
///
/// Other hosts of the lab are in lab.toml, in the same folder, as in
/// `hosts = ["ssh:lab1", "nats://ann@server:4222"]`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The hosts of the lab, with commas between them, instead of those of RIGLINE_LAB or lab.toml
    #[arg(long, value_name = "HOST,…", global = true)]
    lab: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(Status),
    List(List),
    Scan(Scan),
    #[command(
        about = "Check the free rigs now, and show their state",
        long_about = "Check the free rigs now, and show their state\n\nEach rig that nobody has is brought to its safe state and asked what it is. A rig that somebody has is not touched. A rig with `check = false` in rigs.toml is only looked for. The agent's own records are checked too.",
        after_help = "Exit codes: 0 all rigs are usable; 1 failed; 2 a wrong command line; 3 a rig is not usable, or the agent's records are wrong; 128+n ended by signal n."
    )]
    Check(OfRig),
    Break(Break),
    Quarantine(Quarantine),
    #[command(
        about = "Show what happened in the lab, such as leases that were granted or ended",
        long_about = "Show what happened in the lab, such as leases that were granted or ended\n\nEach entry has its time, its rigs, the person and the reason. Rigs that came into quarantine or became free again are entries too."
    )]
    Log(OfRig),
    Results(results::Results),
    Agent(Box<Agent>),
    #[command(
        about = "Pass what other hosts ask on to the agent of this one: `ssh HOST rigline lab proxy`",
        long_about = "Pass what other hosts ask on to the agent of this one: `ssh HOST rigline lab proxy`\n\nCommands whose lab has the host ssh:HOST run it there. It reads and writes messages on standard input and output, and ends when its input does."
    )]
    Proxy,
    Key(Key),
    Keeper(Keeper),
}

/// Show who has which rig, until when, and who waits
#[derive(Debug, Args)]
struct Status {
    #[command(flatten)]
    of: OfRig,
    /// Print it again whenever it changes
    #[arg(long)]
    watch: bool,
}

/// List the rigs, with their targets, tags and states
#[derive(Debug, Args)]
struct List {
    /// List only the rigs of this name or with these tags: `rig:NAME`, `rig:HOST/NAME` or `rig:KEY=VALUE,…`
    #[arg(default_value = "", hide_default_value = true)]
    selector: String,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// Add the boards that are plugged in to rigs.toml
///
/// A board is known by its serial number, or else by its place in the USB tree. What is in the file stays as it is, byte by byte. No byte is written
/// to a board. Boards that share a serial number are not added.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 success; 1 failed; 2 a wrong command line or an unusable file; 3 boards share a serial number; 128+n ended by signal n."
)]
struct Scan {
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

/// One rig, or all of them
#[derive(Debug, Args)]
struct OfRig {
    /// The rig's name, HOST/NAME, or its target [default: all rigs]
    rig: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// End the lease of a rig
#[derive(Debug, Args)]
struct Break {
    /// The rig's name, HOST/NAME, or its target
    rig: String,
    /// The reason, which the holder of the lease is told
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Put a rig into quarantine, so that nobody gets it, or end its quarantine
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["reason", "clear"]))]
struct Quarantine {
    /// The rig's name, HOST/NAME, or its target
    rig: String,
    /// The reason, which everybody who asks for the rig is told
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// End the quarantine
    #[arg(long)]
    clear: bool,
}

/// Run the agent, until nobody needs it any more
#[derive(Debug, Default, Args)]
struct Agent {
    /// End when nobody has needed the agent for this time. With 0s it never ends by itself. With --system this option has no effect
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, default_value = "10m")]
    idle: Duration,
    /// Serve all users of a group, with the rigs of /etc/rigline/rigs.toml. Such an agent never ends by itself, whatever --idle says
    #[arg(long, requires = "group")]
    system: bool,
    /// The group whose members may use the rigs of --system: its name or number
    #[arg(long, value_name = "GROUP", requires = "system")]
    group: Option<String>,
    /// The group whose members may end the leases of others [default: root alone]
    #[arg(long, value_name = "GROUP", requires = "system")]
    admins: Option<String>,
    /// Reach this host by a NATS server too: nats://[USER@]SERVER:4222, or tls://…. Such an agent does not end by itself
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// The file with the agent's credentials for the NATS server, or with the seed of its NKey
    #[arg(long, value_name = "FILE", requires = "nats")]
    creds: Option<PathBuf>,
    /// The certificates that the NATS server's is signed by [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "nats")]
    ca: Option<PathBuf>,
    /// The name of this host in the lab [default: the machine's]
    #[arg(long, value_name = "HOST", requires = "nats")]
    name: Option<String>,
    /// A user of the NATS server who may end the leases of others. May be repeated
    #[arg(long, value_name = "USER", requires = "nats")]
    nats_admin: Vec<String>,
    /// It was started by another command
    #[arg(long, hide = true, conflicts_with_all = ["system", "nats"])]
    on_demand: bool,
}

/// Make a key for a user or a host of a NATS server
///
/// The secret half is written to a new file, which only you can read. The public half is printed: it is for the server's configuration.
#[derive(Debug, Args)]
struct Key {
    /// The new file
    file: PathBuf,
}

/// Run a locked command for the agent
#[derive(Debug, Args)]
#[command(hide = true)]
struct Keeper {
    lease: String,
    parent: u32,
    #[arg(long)]
    terminal: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn missing() -> Failure {
    Failure::usage(rigline_lab::MISSING.unwrap_or("there is no lab on this system"))
}

#[cfg(not(target_os = "linux"))]
impl Arguments {
    pub(crate) fn run(self) -> Result<std::process::ExitCode, Failure> {
        let _ = format!("{:?}", self.command);
        Err(missing())
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{Rigs, choose, failure, hosts, reach_rigs, select, told};

/// The option `--lab`.
static HOSTS: OnceLock<String> = OnceLock::new();

/// Rigs are searched on these hosts, if the option is there.
pub(crate) fn use_hosts(option: Option<String>) {
    if let Some(option) = option {
        let _ = HOSTS.set(option);
    }
}

/// The option `--lab`, if it is there.
#[cfg(target_os = "linux")]
pub(crate) fn option() -> Option<String> {
    HOSTS.get().cloned()
}

/// No rigs of the lab.
#[cfg(not(target_os = "linux"))]
pub(crate) struct Rigs;

#[cfg(not(target_os = "linux"))]
impl Rigs {
    pub(crate) async fn take(_: &str, _: usize, _: Duration) -> Result<Self, Failure> {
        Err(missing())
    }

    pub(crate) fn none() -> Self {
        Self
    }

    pub(crate) fn targets(&self) -> &[String] {
        &[]
    }

    pub(crate) async fn give_back(self) {}
}

/// Runs an agent that another command has started. The command line of all commands, which needs some megabytes, is not read for it.
pub(crate) fn run_on_demand(words: &[OsString]) -> Option<std::process::ExitCode> {
    #[cfg(target_os = "linux")]
    if words.iter().skip(1).eq(rigline_lab::client::ON_DEMAND.iter()) {
        let idle = Duration::from_secs(600);
        let agent = Agent { idle, on_demand: true, ..Agent::default() };
        return Some(agent.run().unwrap_or_else(|failure| failure.tell()));
    }
    let _ = words;
    None
}

/// An agent that another command has started lives on, and has nothing open of that one's. First of all: nothing of its own is open yet.
pub(crate) fn close_inherited() {
    #[cfg(target_os = "linux")]
    if std::env::args_os().skip(1).take(3).eq(rigline_lab::client::ON_DEMAND) {
        rigline_lab::processes::close_inherited();
    }
}

/// There are no rigs of a lab here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn reach_rigs() {
    rigline_host::wire::set_rig_dialer(|_, _| {
        Err(rigline_host::HostError::Unsupported(rigline_lab::MISSING.unwrap_or_default().to_owned()))
    });
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::ExitCode;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rigline_host::ports::Roots;
    use rigline_host::{HostError, process};
    use rigline_lab::agent::{self, Options, System};
    use rigline_lab::book::{Refusal, seconds, time_of_day};
    use rigline_lab::client::{AgentLocation, Connection};
    use rigline_lab::folders::Folders;
    use rigline_lab::hosts::{HostAnswer, Hosts, split};
    use rigline_lab::nats::{NatsServer, Serving};
    use rigline_lab::shards::{LONGEST, RigRequest, Shards};
    use rigline_lab::{dial, lock, nats, scan, ssh, users};
    use serde_json::{Value, json};

    use super::{Agent, Arguments, Command, Keeper, List, OfRig, Scan, Status};
    use crate::connect::{self, Failure};
    use crate::out::Table;

    /// How long a check of rigs may take: the agent bounds each, and does them at once.
    const CHECKED: Duration = Duration::from_secs(15);

    /// The agent's folders.
    pub(crate) fn place() -> Result<AgentLocation, Failure> {
        let folders = Folders::of_user().map_err(|error| Failure::usage(format!("the lab's folder: {error}")))?;
        let program =
            process::restart_path().map_err(|error| Failure::failed(format!("this program's file: {error}")))?;
        Ok(AgentLocation::here(folders, program))
    }

    /// The hosts of the lab: the same for all of this process, since they have their connections.
    pub(crate) fn hosts() -> Result<Hosts, Failure> {
        static KNOWN: OnceLock<Hosts> = OnceLock::new();
        if let Some(hosts) = KNOWN.get() {
            return Ok(hosts.clone());
        }
        let AgentLocation { folders, program, .. } = place()?;
        let hosts = Hosts::of_user(folders, program, super::option().as_deref()).map_err(Failure::usage)?;
        Ok(KNOWN.get_or_init(|| hosts).clone())
    }

    static CHOOSES: AtomicBool = AtomicBool::new(false);

    /// The target `rig:*` of this process is the rig that it has a lease of.
    pub(crate) fn choose() {
        CHOOSES.store(true, Ordering::Relaxed);
    }

    fn is_choosing() -> bool {
        CHOOSES.load(Ordering::Relaxed)
    }

    /// Targets `rig:…` of all commands are rigs of the lab.
    pub(crate) fn reach_rigs() {
        rigline_host::wire::set_rig_dialer(|selector, options| {
            let hosts = hosts().map_err(|failure| HostError::Unsupported(failure.text))?;
            match selector {
                dial::LEASED if is_choosing() => Ok(dial::leased(&hosts)),
                _ => dial::dialer(&hosts, selector, options),
            }
        });
    }

    /// Tells a page who has the rigs that are meant, and who waits for them: `mine` is this process.
    pub(crate) fn told(selector: &str) -> rigline_cli::web::Lab {
        let selector = format!("rig:{selector}");
        std::sync::Arc::new(move || {
            let selector = selector.clone();
            Box::pin(async move {
                let found = select(&selector).await.map_err(|failure| failure.text)?;
                let rigs = found["rigs"].as_array().into_iter().flatten().map(|rig| {
                    let lease = &rig["lease"];
                    json!({
                        "name": rig["name"],
                        "state": rig["state"],
                        "reason": rig["reason"],
                        "holder": lease["holder"],
                        "mine": is_own(lease, &rig["host"]),
                        "endsInMs": lease["ends_in_ms"],
                    })
                });
                let queue = found["queue"].as_array().into_iter().flatten();
                let queue =
                    queue.map(|waiting| json!({ "who": waiting["who"], "mine": is_own(waiting, &waiting["host"]) }));
                Ok(json!({ "rigs": rigs.collect::<Vec<_>>(), "queue": queue.collect::<Vec<_>>() }))
            })
        })
    }

    /// Whether a lease, or a place in a queue, is this process's. `host` is the other host that it is on, or null.
    fn is_own(of: &Value, host: &Value) -> bool {
        // Over there another host's process has its machine after its user's name, and a process of that host has none.
        let machine = users::machine();
        let user = of["user"].as_str().unwrap_or_default();
        let its_machine = user.rsplit_once(" on ").map(|(_, machine)| machine);
        of["pid"] == std::process::id() && its_machine == (!host.is_null()).then_some(machine.as_str())
    }

    /// Rigs of the lab that this command has for its own time, or none.
    pub(crate) struct Rigs(Option<Shards>);

    impl Rigs {
        pub(crate) async fn take(selector: &str, count: usize, wait: Duration) -> Result<Self, Failure> {
            let tell = |place, why: &str| {
                if !wait.is_zero() {
                    connect::complain(format_args!("place {place} in the queue: {why}"));
                }
            };
            let asked = RigRequest { selector, count, wait, ttl: LONGEST, purpose: "eval run" };
            Shards::take(&hosts()?, &asked, tell).await.map(Some).map(Self).map_err(failure)
        }

        pub(crate) fn none() -> Self {
            Self(None)
        }

        pub(crate) fn targets(&self) -> &[String] {
            self.0.as_ref().map_or(&[], Shards::targets)
        }

        /// Gives them back, and says why they were lost, if they were.
        pub(crate) async fn give_back(self) {
            if let Some(shards) = self.0
                && let Some(why) = shards.give_back().await
            {
                connect::complain(format_args!("rigline: {why}"));
            }
        }
    }

    pub(crate) fn failure(refusal: Refusal) -> Failure {
        Failure { code: refusal.code, text: refusal.why }
    }

    impl Arguments {
        pub(crate) fn run(self) -> Result<ExitCode, Failure> {
            super::use_hosts(self.lab);
            match self.command {
                Command::Status(status) => connect::run(status.run()),
                Command::List(list) => connect::run(list.run()),
                Command::Scan(scan) => scan.run(),
                Command::Check(of) => connect::run(of.check()),
                Command::Break(arguments) => connect::run(async move {
                    ask_of("break", Some(arguments.rig), json!({ "reason": arguments.reason }))
                        .await
                        .map(|_| connect::SUCCESS)
                }),
                Command::Quarantine(arguments) => connect::run(async move {
                    let params = json!({ "reason": arguments.reason });
                    ask_of("quarantine", Some(arguments.rig), params).await.map(|_| connect::SUCCESS)
                }),
                Command::Log(of) => connect::run(of.log()),
                Command::Results(results) => results.run(),
                Command::Agent(agent) => agent.run(),
                Command::Key(key) => {
                    let public = nats::new_key(&key.file).map_err(|error| Failure::usage(error.to_string()))?;
                    connect::print(&format!("{public}\n"));
                    Ok(ExitCode::SUCCESS)
                }
                Command::Proxy => connect::run_alone(async {
                    let served = ssh::proxy(&place()?).await;
                    served.map(|()| connect::SUCCESS).map_err(|error| Failure::failed(error.to_string()))
                }),
                Command::Keeper(keeper) => keeper.run(),
            }
        }
    }

    /// The host that a person names in front of a rig, as `HOST/NAME` or `rig:HOST/NAME`, and the rig.
    fn named(rig: &str) -> (Option<String>, String) {
        let is_plain = !rig.contains(':') && !rig.starts_with(['.', '/']);
        let whole = if is_plain { format!("rig:{rig}") } else { rig.to_owned() };
        match split(&whole) {
            (Some(host), rest) => (Some(host.to_owned()), rest),
            (None, _) => (None, rig.to_owned()),
        }
    }

    /// Asks the agent of the host that is named in front of the rig, or this host's.
    async fn ask_of(method: &'static str, rig: Option<String>, mut params: Value) -> Result<Value, Failure> {
        let (host, rig) = rig.as_deref().map(named).unzip();
        params["rig"] = rig.into();
        let hosts = hosts()?;
        let place = match host.flatten() {
            Some(host) => hosts.named(&host).await.map_err(failure)?,
            None => hosts.here().clone(),
        };
        let mut connection = Connection::open(&place).await.map_err(|trouble| failure(trouble.into()))?;
        connection.ask(method, params).await.map_err(|trouble| failure(trouble.into()))
    }

    /// Asks all hosts of the lab, or the one that is named, and puts together what they say. Rigs of other hosts have those in front of their
    /// names. Hosts that do not answer are in `hosts`.
    ///
    /// # Errors
    /// None answers.
    async fn ask_all(host: Option<&str>, method: &'static str, params: Value) -> Result<Value, Failure> {
        let hosts = hosts()?;
        let mut answers = hosts.ask_all(host, method, &params).await;
        if hosts.is_alone() || host.is_some() {
            let Some(HostAnswer { place, answer, .. }) = answers.pop() else {
                return Err(Failure::no_answer("no agent answers".to_owned()));
            };
            let mut answer = answer.map_err(failure)?;
            if let Some(place) = place {
                put_host(&mut answer, &place);
            }
            return Ok(answer);
        }
        let mut whole = json!({ "rigs": [], "queue": [], "faults": [], "hosts": [] });
        let (mut refused, mut count) = (Vec::new(), 0);
        for answer in answers {
            let name = answer.name().to_owned();
            let mut about = json!({ "name": name, "error": null });
            match answer {
                HostAnswer { answer: Ok(mut found), place: Some(place), .. } => {
                    count += 1;
                    put_host(&mut found, &place);
                    for list in ["rigs", "queue", "faults"] {
                        let more = found[list].as_array_mut().map(std::mem::take).unwrap_or_default();
                        if let Some(list) = whole[list].as_array_mut() {
                            list.extend(more);
                        }
                    }
                    about["agent"] = found["agent"].take();
                    if place.remote.is_none() {
                        whole["agent"] = about["agent"].clone();
                    }
                }
                // It has no such rig.
                HostAnswer { answer: Err(Refusal { code: 2, why }), .. } => refused.push(format!("{name}: {why}")),
                HostAnswer { answer: Err(Refusal { why, .. }), .. } => about["error"] = why.into(),
                HostAnswer { answer: Ok(_), place: None, .. } => {}
            }
            if let Some(list) = whole["hosts"].as_array_mut() {
                list.push(about);
            }
        }
        let errors: Vec<&str> =
            whole["hosts"].as_array().into_iter().flatten().filter_map(|host| host["error"].as_str()).collect();
        if count > 0 {
            return Ok(whole);
        }
        match errors.is_empty() {
            true => Err(Failure::usage(refused.join("; "))),
            false => Err(Failure::no_answer(format!(
                "no host that answers has it: {}",
                [refused, errors.iter().map(|error| (*error).to_owned()).collect()].concat().join("; ")
            ))),
        }
    }

    /// Puts the host in front of the names of its rigs, if it is another one.
    fn put_host(found: &mut Value, place: &AgentLocation) {
        let Some(host) = place.host() else { return };
        for rig in found.get_mut("rigs").and_then(Value::as_array_mut).into_iter().flatten() {
            rig["name"] = place.named(rig["name"].as_str().unwrap_or_default()).into();
            rig["host"] = host.into();
        }
        for waiting in found.get_mut("queue").and_then(Value::as_array_mut).into_iter().flatten() {
            waiting["host"] = host.into();
        }
        for fault in found.get_mut("faults").and_then(Value::as_array_mut).into_iter().flatten() {
            *fault = format!("{host}: {}", fault.as_str().unwrap_or_default()).into();
        }
    }

    /// The rigs that a selector means, on all hosts.
    pub(crate) async fn select(selector: &str) -> Result<Value, Failure> {
        let (host, selector) = split(selector);
        ask_all(host, "select", json!({ "selector": selector })).await
    }

    /// Says which hosts do not answer.
    fn complain_of_silent(found: &Value) {
        for host in found["hosts"].as_array().into_iter().flatten() {
            if let Some(error) = host["error"].as_str() {
                connect::complain(format_args!("rigline: {error}"));
            }
        }
    }

    impl Status {
        async fn run(self) -> Result<u8, Failure> {
            let mut shown = String::new();
            loop {
                let (host, rig) = self.of.rig.as_deref().map(named).unzip();
                let status = ask_all(host.flatten().as_deref(), "status", json!({ "rig": rig })).await?;
                let text = if self.of.json { format!("{status:#}\n") } else { as_text(&status) };
                // What is left of a lease's time changes always.
                let key = as_text(&without_times(status.clone()));
                if key != shown {
                    if self.of.json {
                        connect::print_json(&text);
                    } else {
                        connect::print(&text);
                    }
                    complain_of_silent(&status);
                    shown = key;
                }
                if !self.watch || crate::out::has_failed() {
                    return Ok(connect::SUCCESS);
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }

    fn without_times(mut status: Value) -> Value {
        for rig in status.get_mut("rigs").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(ends) = rig.pointer_mut("/lease/ends_in_ms") {
                *ends = 0.into();
            }
            if let Some(due) = rig.get_mut("next_check_in_ms").filter(|due| !due.is_null()) {
                *due = 0.into();
            }
        }
        status
    }

    impl List {
        async fn run(self) -> Result<u8, Failure> {
            let found = select(&self.selector).await?;
            complain_of_silent(&found);
            let rigs = &found["rigs"];
            if self.json {
                connect::print_json(&format!("{rigs:#}\n"));
            } else if rigs.as_array().is_none_or(Vec::is_empty) {
                connect::print("No rigs: rigs.toml has none, and nobody has locked another one.\n");
            } else {
                let mut table = Table::new(&["rig", "target", "tags", "shares", "state"]);
                for rig in rigs.as_array().into_iter().flatten() {
                    let tags = rig["tags"].as_object().into_iter().flatten();
                    let tags: Vec<String> = tags.map(|(key, value)| format!("{key}={}", text(value))).collect();
                    let shares = rig["shares"].as_array().into_iter().flatten();
                    let shares: Vec<String> = shares.map(text).collect();
                    table.row([
                        text(&rig["name"]),
                        text(&rig["target"]),
                        tags.join(","),
                        shares.join(","),
                        text(&rig["state"]),
                    ]);
                }
                connect::print(&table.to_string());
            }
            Ok(connect::SUCCESS)
        }
    }

    impl Scan {
        fn run(self) -> Result<ExitCode, Failure> {
            let list = place()?.folders.rigs_file();
            let roots = Roots::of_environment();
            roots.check().map_err(|error| Failure::of(&error))?;
            let found = scan::scan(&list, &roots).map_err(Failure::usage)?;
            if self.json {
                connect::print_json(&format!("{:#}\n", json!(found)));
            } else {
                let mut table = Table::new(&["rig", "target", "port", ""]);
                for (rigs, word) in [(&found.added, "added"), (&found.known, "known")] {
                    for rig in rigs {
                        table.row([rig.name.clone(), rig.target.clone(), rig.port.clone(), word.to_owned()]);
                    }
                }
                let is_empty = found.added.is_empty() && found.known.is_empty();
                connect::print(&if is_empty {
                    "No boards that can be told apart.\n".to_owned()
                } else {
                    table.to_string()
                });
            }
            match found.ambiguous.first() {
                None => Ok(ExitCode::SUCCESS),
                Some(twins) => Err(Failure::no_answer(format!(
                    "ambiguous: the boards at the USB ports {} have one serial number, {}; write an entry with serial:usb/PLACE for each",
                    twins.places.join(" and "),
                    twins.serial_number
                ))),
            }
        }
    }

    impl OfRig {
        /// Checks the free rigs, and the agent's own books.
        async fn check(self) -> Result<u8, Failure> {
            ask_of("check", self.rig.clone(), json!({})).await?;
            let given_up = tokio::time::Instant::now() + CHECKED;
            let status = loop {
                let status = ask_of("status", self.rig.clone(), json!({})).await?;
                let is_checked = |rig: &Value| rig["state"] == "checked";
                if !status["rigs"].as_array().into_iter().flatten().any(is_checked)
                    || tokio::time::Instant::now() >= given_up
                {
                    break status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            if self.json {
                connect::print_json(&format!("{status:#}\n"));
            } else {
                connect::print(&as_text(&status));
            }
            let is_bad = |rig: &&Value| !rig["reason"].is_null() || rig["state"] == "checked";
            let bad = status["rigs"].as_array().into_iter().flatten().filter(is_bad).count();
            let faults: Vec<String> = status["faults"].as_array().into_iter().flatten().map(text).collect();
            if !faults.is_empty() {
                return Err(Failure::no_answer(format!("the agent's books are wrong: {}", faults.join("; "))));
            }
            match bad {
                0 => Ok(connect::SUCCESS),
                bad => Err(Failure::no_answer(format!(
                    "{bad} {} not usable",
                    if bad == 1 { "rig is" } else { "rigs are" }
                ))),
            }
        }

        async fn log(self) -> Result<u8, Failure> {
            let log = ask_of("log", self.rig, json!({})).await?;
            if self.json {
                connect::print_json(&format!("{log:#}\n"));
                return Ok(connect::SUCCESS);
            }
            let mut table = Table::new(&["time", "what", "rigs", "who", "why"]);
            for entry in log.as_array().into_iter().flatten() {
                let rigs: Vec<String> = entry["rigs"].as_array().into_iter().flatten().map(text).collect();
                let at = time_of_day(entry["at"].as_u64().unwrap_or_default());
                table.row([at, text(&entry["what"]), rigs.join(" "), text(&entry["who"]), text(&entry["why"])]);
            }
            connect::print(&table.to_string());
            Ok(connect::SUCCESS)
        }
    }

    fn text(value: &Value) -> String {
        value.as_str().unwrap_or_default().to_owned()
    }

    fn as_text(status: &Value) -> String {
        let rigs: Vec<&Value> = status["rigs"].as_array().into_iter().flatten().collect();
        let mut shown = if rigs.is_empty() {
            "No rigs: rigs.toml has none, and nobody has locked another one.\n".to_owned()
        } else {
            let mut table = Table::new(&["rig", "state", "who", "until", "manifest"]);
            for rig in rigs {
                let lease = &rig["lease"];
                let until = match (lease["ends_in_ms"].as_u64(), rig["next_check_in_ms"].as_u64()) {
                    (Some(left), _) => format!("{} more", seconds(left)),
                    (None, Some(next)) => format!("next check in {}", seconds(next)),
                    (None, None) => String::new(),
                };
                let who = match rig["reason"].as_str() {
                    Some(reason) => {
                        format!("{}{reason}", rig["by"].as_str().map(|by| format!("{by}: ")).unwrap_or_default())
                    }
                    None => text(&lease["holder"]),
                };
                table.row([text(&rig["name"]), text(&rig["state"]), who, until, text(&rig["manifest"])]);
            }
            table.to_string()
        };
        let queue: Vec<&Value> = status["queue"].as_array().into_iter().flatten().collect();
        if !queue.is_empty() {
            let mut table = Table::new(&["place", "who waits", "for", "count"]);
            for waiting in queue {
                let wants: Vec<String> = waiting["wants"].as_array().into_iter().flatten().map(text).collect();
                table.row([
                    waiting["place"].to_string(),
                    text(&waiting["who"]),
                    wants.join(" "),
                    waiting["count"].to_string(),
                ]);
            }
            shown.push_str(&table.to_string());
        }
        shown
    }

    impl Agent {
        pub(super) fn run(self) -> Result<ExitCode, Failure> {
            if self.on_demand {
                // A Ctrl-C in the terminal where it was started is not meant for it.
                let _ = rustix::process::setsid();
            }
            let mut options = Options::default();
            options.idle = (!self.idle.is_zero()).then_some(self.idle);
            let folders = match &self.group {
                None => place()?.folders,
                Some(group) => {
                    let number = |option: &str, group: &str| {
                        users::group(group).map_err(|why| Failure::usage(format!("{option}: {why}")))
                    };
                    let admins = self.admins.as_deref().map(|admins| number("--admins", admins)).transpose()?;
                    options.system = Some(System { group: number("--group", group)?, admins });
                    options.idle = None;
                    Folders::of_system()
                }
            };
            let serving = match &self.nats {
                None => None,
                Some(url) => {
                    options.idle = None;
                    let server = NatsServer::new(url, self.creds, self.ca)
                        .map_err(|why| Failure::usage(format!("--nats: {why}")))?;
                    let serving = Serving::new(server, self.name.as_deref(), self.nats_admin);
                    Some(serving.map_err(|why| Failure::usage(format!("--name, --nats-admin: {why}")))?)
                }
            };
            let place = AgentLocation { folders: folders.clone(), ..place()? };
            connect::run_alone(async {
                let served = async {
                    match &serving {
                        Some(serving) => nats::serve(&place, serving).await,
                        None => std::future::pending().await,
                    }
                };
                let runs = async {
                    match agent::run(&folders, &options).await {
                        // Another one serves the rigs already; this process lets others reach it.
                        Ok(false) if serving.is_some() => std::future::pending().await,
                        ran => ran,
                    }
                };
                tokio::select! {
                    ran = runs => match ran {
                        Ok(true) => Ok(connect::SUCCESS),
                        Ok(false) if self.on_demand => Ok(connect::SUCCESS),
                        Ok(false) => Err(Failure::failed(format!("another agent runs on {}", folders.socket_path().display()))),
                        Err(error) => Err(Failure::failed(error)),
                    },
                    ended = served => match ended {
                        Ok(()) => Ok(connect::SUCCESS),
                        Err(why) => Err(Failure::no_answer(why)),
                    },
                }
            })
        }
    }

    impl Keeper {
        fn run(self) -> Result<ExitCode, Failure> {
            let keeper = lock::Keeper {
                hosts: hosts()?,
                lease: self.lease,
                parent: self.parent,
                has_terminal: self.terminal,
                command: self.command,
            };
            connect::run_alone(async { lock::keep(&keeper).await.map_err(failure) })
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_process_of_another_host_with_the_number_of_this_one_is_another_one() {
            let pid = std::process::id();
            let here = format!("ann on {}", users::machine());
            for (pid, user, host, is_own_one) in [
                (pid, "ann", Value::Null, true),
                (pid + 1, "ann", Value::Null, false),
                (pid, "ann on another-desk", Value::Null, false),
                (pid, here.as_str(), "lab1".into(), true),
                (pid + 1, here.as_str(), "lab1".into(), false),
                (pid, "ann", "lab1".into(), false),
                (pid, "ann on another-desk", "lab1".into(), false),
            ] {
                let of = json!({ "pid": pid, "user": user });
                assert_eq!(is_own(&of, &host), is_own_one, "{of} on {host}");
            }
        }
    }
}
