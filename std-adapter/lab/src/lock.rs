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
use serde_json::{Value, json};
use tokio::io::unix::AsyncFd;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::book::Refusal;
use crate::client::{self, AgentLocation, Connection, Want};
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
    /// The folders of the agent, and the program that starts it.
    pub place: AgentLocation,
    /// The request for the rig.
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
        acquired = client::acquire(&lock.place, &lock.want, tell) => acquired?,
        code = signals.next() => return Err(Refusal { code, why: "interrupted while it waited; its place is given up".into() }),
    };
    let (connection, granted) = acquired;
    let has_terminal = has_terminal();
    let mut keeper = Command::new(&lock.place.program);
    keeper.args(["lab", "keeper", &granted.lease.id, &std::process::id().to_string()]);
    if has_terminal {
        keeper.arg("--terminal");
    }
    keeper.arg("--").args(&lock.command).process_group(0);
    let mut keeper = match keeper.spawn() {
        Ok(keeper) => keeper,
        Err(error) => {
            let _ = client::release(&lock.place, &granted.lease.id).await;
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
    let (Ok(lease), [rig], 1) = (std::env::var(LEASE), lock.want.rigs.as_slice(), lock.want.count) else {
        return Ok(None);
    };
    let mut agent = Connection::open(&lock.place).await?;
    let joined = agent.ask("join", json!({ "lease": lease, "selector": rig })).await?;
    Ok(joined.get("rig").and_then(Value::as_str).map(str::to_owned))
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
    /// The folders of the agent, and the program that starts it.
    pub place: AgentLocation,
    /// The id of the lease.
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
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| failed("descendants cannot be kept", error.into()))?;
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| failed("signals", error))?;
    // The command decides what they mean; the keeper outlives it.
    let others = [SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup()].map(signal);
    let parent = Pid::from_raw(i32::try_from(keeper.parent).unwrap_or_default());
    let watched = parent.and_then(|parent| rustix::process::pidfd_open(parent, PidfdFlags::NONBLOCK).ok());
    let is_parent_there = rustix::process::getppid() == parent;
    let (Some(watched), true) = (watched, is_parent_there) else {
        return Err(give_back(keeper, Refusal::refused("the process that has started the keeper is gone")).await);
    };
    #[allow(deprecated, reason = "its successor is unsafe; this one owns the descriptor, which is never another one")]
    let watched = AsyncFd::new(watched).map_err(|error| failed("the process that has started the keeper", error))?;
    let (connection, granted) = client::attach(&keeper.place, &keeper.lease, true).await?;
    if keeper.has_terminal {
        wait_for_terminal().await;
    }
    let Some((program, args)) = keeper.command.split_first() else {
        return Err(give_back(keeper, Refusal::usage("there is no command to run")).await);
    };
    let rigs: Vec<&str> = granted.targets.iter().map(|(name, _)| name.as_str()).collect();
    let mut command = std::process::Command::new(program);
    command.args(args).env(LEASE, &keeper.lease).env(RIGS, rigs.join(" ")).envs(keeper.place.folders.variable());
    command.process_group(rustix::process::getpgrp().as_raw_nonzero().get());
    let mut child = match Command::from(command).spawn() {
        Ok(child) => child,
        Err(error) => {
            let why = format!("`{}` cannot be started: {error}", program.to_string_lossy());
            return Err(give_back(keeper, Refusal::usage(why)).await);
        }
    };
    let over = tokio::select! {
        status = child.wait() => Over::Ended(status.map_err(|error| failed("the command", error))?),
        _ = terminated.recv() => Over::Signalled,
        _ = watched.readable() => Over::Abandoned,
        why = client::keep(&keeper.place, connection, &granted.lease, true) => Over::Lost(why),
    };
    let grace = if matches!(over, Over::Signalled) { POLITE } else { SOON };
    // An agent that was started from within the command lives longer than it.
    let agent = Connection::to_running(&keeper.place.folders).await.ok().flatten().map(|connection| connection.agent);
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
        _ => client::release(&keeper.place, &keeper.lease).await.err(),
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

async fn give_back(keeper: &Keeper, why: Refusal) -> Refusal {
    let _ = client::release(&keeper.place, &keeper.lease).await;
    why
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
