//! `rigline lock TARGET -- COMMAND`: a command that runs as long as its lease lasts, and no longer.
//!
//! Two processes stand between the user and the command. The first one was called by the user. It
//! waits in the queue and passes signals on. The second one, the keeper, has the lease and is the
//! command's parent, in a process group of its own. Descendants of the command that lose their
//! parent become children of the keeper.
//!
//! The keeper acts when the command ends, the first process ends, or the lease is lost. It ends
//! what is left of the command, and then gives the lease back. If the keeper itself is killed, the
//! agent does that.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::ExitStatus;
use std::time::Duration;

use rigline_std::signals::Signals;
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::book::Refusal;
use crate::client::{self, Want};
use crate::connection::{AgentLocation, Connection};
use crate::dial;
use crate::hosts::{self, Hosts};
use crate::processes::{self, LEASE};

/// The environment variable with the names of the lease's rigs, which the command gets.
pub const RIGS: &str = "RIGLINE_RIGS";

/// How long a command has after SIGTERM, if the user has ended it.
const POLITE: Duration = Duration::from_secs(5);
/// The same, if its lease is over or nobody waits for it any more.
const SOON: Duration = Duration::from_millis(400);

/// The parameters of `rigline lock`.
#[derive(Debug, Clone)]
pub struct Lock {
    /// The lab's hosts.
    pub hosts: Hosts,
    /// The hosts that the option `--lab` names, if it does.
    pub option: Option<String>,
    /// The request.
    pub want: Want,
    /// The command, followed by its arguments.
    pub command: Vec<OsString>,
}

/// Gets a lease, and runs the command. `tell` gets the place in the queue and the reason of the
/// wait. Returns the command's exit code.
///
/// # Errors
/// There is no lease, or the command cannot be started. The refusal has the exit code.
pub async fn run(lock: &Lock, tell: impl FnMut(u64, &str)) -> Result<u8, Refusal> {
    let failed = |what: &str, error: std::io::Error| Refusal { code: 1, why: format!("{what}: {error}") };
    if let Some(rig) = joined(lock).await? {
        // Nothing is left of this process: the lease's keeper looks after the command.
        let (program, args) = lock.command.split_first().ok_or_else(|| Refusal::usage("there is no command to run"))?;
        let error = std::process::Command::new(program).args(args).env(RIGS, rig).exec();
        return Err(Refusal::usage(format!("`{}` cannot be started: {error}", program.to_string_lossy())));
    }
    let mut signals = Signals::new().map_err(|error| failed("signals", error))?;
    let acquired = tokio::select! {
        acquired = lock.hosts.acquire(&lock.want, tell) => acquired?,
        code = signals.next() => return Err(Refusal { code, why: "interrupted while it waited; its place is given up".into() }),
    };
    let (place, connection, granted) = acquired;
    let named = place.named(&granted.lease.id);
    let has_terminal = has_terminal();
    let mut keeper = Command::new(&place.program);
    keeper.args(["lab", "keeper", &named, &std::process::id().to_string()]);
    if let Some(hosts) = &lock.option {
        // The keeper, and commands inside of it, have the same hosts.
        keeper.env(hosts::HOSTS, hosts);
    }
    if has_terminal {
        keeper.arg("--terminal");
    }
    keeper.arg("--").args(&lock.command).process_group(0);
    let mut keeper = match keeper.spawn() {
        Ok(keeper) => keeper,
        Err(error) => {
            let _ = client::release(&place, &granted.lease.id).await;
            return Err(failed("the keeper cannot be started", error));
        }
    };
    let group = keeper.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(group) = group.filter(|_| has_terminal) {
        let _ = rustix::termios::tcsetpgrp(std::io::stdin(), group);
    }
    loop {
        tokio::select! {
            status = keeper.wait() => {
                drop(connection);
                let status = status.map_err(|error| failed("the keeper", error))?;
                if place.remote.is_some() && status.code().is_none() {
                    // The agent is on another host, and ends no process here.
                    let uid = rustix::process::getuid().as_raw();
                    let of = named.clone();
                    processes::end(move || processes::of_lease(&of, uid), SOON).await;
                    let _ = client::release(&place, &granted.lease.id).await;
                }
                return Ok(code_of(status));
            }
            code = signals.next() => {
                let signal = Signal::from_named_raw(i32::from(code) - 128);
                if let (Some(group), Some(signal)) = (group, signal) {
                    let _ = rustix::process::kill_process_group(group, signal);
                }
            }
        }
    }
}

/// The rig, if this runs within a lease that has it.
async fn joined(lock: &Lock) -> Result<Option<String>, Refusal> {
    let ([rig], 1) = (lock.want.rigs.as_slice(), lock.want.count) else { return Ok(None) };
    let joined = dial::join(&lock.hosts, Some(rig)).await?;
    Ok(joined.and_then(|(place, _, rigs)| rigs.first().map(|rig| place.named(rig))))
}

/// Whether standard input is a terminal, and this process is in front on it.
fn has_terminal() -> bool {
    let stdin = std::io::stdin();
    stdin.is_terminal() && rustix::termios::tcgetpgrp(&stdin).is_ok_and(|front| front == rustix::process::getpgrp())
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The parameters of the keeper, from the process that starts it.
#[derive(Debug, Clone)]
pub struct Keeper {
    /// The lab's hosts.
    pub hosts: Hosts,
    /// The lease, with its host in front if that is another one.
    pub lease: String,
    /// The id of the process that has started the keeper.
    pub parent: u32,
    /// Whether the keeper's process group gets the terminal.
    pub has_terminal: bool,
    /// The command, followed by its arguments.
    pub command: Vec<OsString>,
}

enum Over {
    Ended(ExitStatus),
    Signalled,
    Abandoned,
    Lost(Refusal),
}

/// Keeps the lease and runs the command, as the keeper. Returns the command's exit code.
///
/// # Errors
/// The lease has ended or was lost, or the command cannot be started.
pub async fn keep(keeper: &Keeper) -> Result<u8, Refusal> {
    let failed = |what: &str, error: std::io::Error| Refusal { code: 1, why: format!("{what}: {error}") };
    let (place, id) = keeper.hosts.of_lease(&keeper.lease).await?;
    let keep = Kept { place: &place, lease: id };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| failed("descendants cannot be kept", error.into()))?;
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| failed("signals", error))?;
    // The command decides what they mean; the keeper outlives it.
    let others = [SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup()].map(signal);
    let parent = Pid::from_raw(i32::try_from(keeper.parent).unwrap_or_default());
    let watched = parent.and_then(|parent| rustix::process::pidfd_open(parent, PidfdFlags::NONBLOCK).ok());
    let is_parent_there = rustix::process::getppid() == parent;
    let (Some(watched), true) = (watched, is_parent_there) else {
        return Err(keep.give_back(Refusal::refused("the process that has started the keeper is gone")).await);
    };
    #[allow(deprecated, reason = "its successor is unsafe; this one owns the descriptor, which is never another one")]
    let watched = AsyncFd::new(watched).map_err(|error| failed("the process that has started the keeper", error))?;
    let (connection, granted) = client::attach(&place, id, true).await?;
    if keeper.has_terminal {
        wait_for_terminal().await;
    }
    let Some((program, args)) = keeper.command.split_first() else {
        return Err(keep.give_back(Refusal::usage("there is no command to run")).await);
    };
    let rigs: Vec<String> = granted.targets.iter().map(|(name, _)| place.named(name)).collect();
    let mut command = std::process::Command::new(program);
    command.args(args).env(LEASE, &keeper.lease).env(RIGS, rigs.join(" ")).envs(place.folders.variable());
    command.process_group(rustix::process::getpgrp().as_raw_nonzero().get());
    let mut child = match Command::from(command).spawn() {
        Ok(child) => child,
        Err(error) => {
            let why = format!("`{}` cannot be started: {error}", program.to_string_lossy());
            return Err(keep.give_back(Refusal::usage(why)).await);
        }
    };
    let over = tokio::select! {
        status = child.wait() => Over::Ended(status.map_err(|error| failed("the command", error))?),
        _ = terminated.recv() => Over::Signalled,
        _ = watched.readable() => Over::Abandoned,
        why = client::keep(&place, connection, &granted.lease, true) => Over::Lost(why),
    };
    let grace = if matches!(over, Over::Signalled) { POLITE } else { SOON };
    // An agent that was started from within the command lives longer than it.
    let agent = Connection::to_running(&place.folders).await.ok().flatten().map(|connection| connection.agent);
    let (this, lease) = (std::process::id(), keeper.lease.clone());
    let left = processes::end(
        move || {
            let mut found = processes::descendants(this, agent);
            found.extend(processes::of_lease(&lease, rustix::process::getuid().as_raw()));
            found
        },
        grace,
    )
    .await;
    for process in left {
        eprintln!("rigline: process {} of the command cannot be ended", process.pid);
    }
    let status = match over {
        Over::Ended(status) => Ok(status),
        _ => child.wait().await,
    };
    let lost = match over {
        Over::Lost(why) => Some(why),
        _ => client::release(&place, id).await.err(),
    };
    if keeper.has_terminal
        && let Ok(group) = rustix::process::getpgid(parent)
    {
        let _ = rustix::termios::tcsetpgrp(std::io::stdin(), group);
    }
    drop(others);
    match lost {
        Some(why) => Err(why),
        None => Ok(code_of(status.map_err(|error| failed("the command", error))?)),
    }
}

/// The lease of a keeper.
struct Kept<'a> {
    place: &'a AgentLocation,
    lease: &'a str,
}

impl Kept<'_> {
    async fn give_back(&self, why: Refusal) -> Refusal {
        let _ = client::release(self.place, self.lease).await;
        why
    }
}

/// Waits until the terminal is this group's: a command that reads from it earlier would be stopped.
async fn wait_for_terminal() {
    for _ in 0..200 {
        if rustix::termios::tcgetpgrp(std::io::stdin()).is_ok_and(|front| front == rustix::process::getpgrp()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
