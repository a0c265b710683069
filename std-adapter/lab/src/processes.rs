//! Processes, identified by their id and the time of their start. The id alone may later belong to
//! another process.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::clock::BootTime;

/// The environment variable with the id of a lease. It marks the processes of the lease, and
/// commands that are run within join that lease.
pub const LEASE: &str = "RIGLINE_LEASE";

/// A process, identified so that no other process can be taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The time at which the process was started, in clock ticks since the start of the machine
    /// (proc(5), `starttime`).
    pub started: u64,
}

impl Process {
    /// Returns the living process with this id. Returns `None` if there is none.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = Stat::of(pid)?;
        (!stat.is_dead).then_some(Self { pid, started: stat.started })
    }

    /// Returns this process.
    pub fn this() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or(Self { pid, started: 0 })
    }

    /// A process of this number on another host. Nothing is known of it here but what it says itself.
    pub fn elsewhere(pid: u32) -> Self {
        Self { pid, started: u64::MAX }
    }

    /// Whether it is on another host.
    pub fn is_elsewhere(self) -> bool {
        self.started == u64::MAX
    }

    /// Returns whether the process is alive, as far as is known. A zombie, which has ended but was not
    /// waited for, is not alive. If the system does not tell, for example because no more files can be
    /// opened, the process counts as alive.
    pub fn is_alive(self) -> bool {
        if self.is_elsewhere() {
            return true;
        }
        match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => Stat::read(&stat).is_some_and(|stat| !stat.is_dead && stat.started == self.started),
            Err(error) => !is_gone(&error),
        }
    }

    /// Returns the time at which the process was started, in milliseconds since the start of the
    /// machine.
    pub fn since_boot(self) -> BootTime {
        // The system counts in hundredths of a second for all programs (time(7)).
        self.started.saturating_mul(10)
    }

    /// Returns the id of the user who runs the process. Returns `None` if the process has ended.
    pub fn uid(self) -> Option<u32> {
        if self.is_elsewhere() {
            return None;
        }
        let uid = owner(self.pid)?;
        self.is_alive().then_some(uid)
    }

    /// Sends a signal to the process. Nothing happens if it has ended.
    pub fn signal(self, signal: Signal) {
        if !self.is_elsewhere()
            && self.is_alive()
            && let Some(pid) = pid(self.pid)
        {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits at most `within` for the end of the process. Returns whether it has ended.
    pub async fn ended(self, within: Duration) -> bool {
        let until = Instant::now() + within;
        while self.is_alive() {
            if Instant::now() >= until {
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
        true
    }
}

/// Whether there is no such process.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

struct Stat {
    parent: u32,
    started: u64,
    is_dead: bool,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn read(stat: &str) -> Option<Self> {
        // The name, in parentheses, may have spaces and parentheses itself.
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let state = words.next()?;
        let parent = words.next()?.parse().ok()?;
        // The 22nd field; the state is the third.
        let started = words.nth(17)?.parse().ok()?;
        Some(Self { parent, started, is_dead: matches!(state, "Z" | "X" | "x") })
    }
}

fn all() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The effective user of a process.
fn owner(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Closes all descriptors that this process has inherited, except the three standard streams. It
/// must be called before the process opens anything.
pub fn close_inherited() {
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    // Of the list itself, which is closed by now, nothing is left when they are.
    let found: Vec<i32> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in found.into_iter().filter(|descriptor| *descriptor > 2) {
        let _ = nix::unistd::close(descriptor);
    }
}

/// Returns the living processes of a user that were started within this lease: their environment
/// has the variable [`LEASE`].
pub fn of_lease(lease: &str, uid: u32) -> Vec<Process> {
    let mark = format!("{LEASE}={lease}");
    let is_marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let is_own = |pid: &u32| *pid != std::process::id() && owner(*pid) == Some(uid);
    all().filter(is_own).filter(is_marked).filter_map(Process::of).collect()
}

/// Returns the ids of the leases that living processes were started within. Only processes that use
/// the same lab as this process count.
pub fn leases() -> BTreeSet<String> {
    let folders = ["RIGLINE_LAB_DIR", "RIGLINE_LAB_SYSTEM_DIR"];
    let own = folders.map(|name| std::env::var_os(name).map(OsString::into_vec));
    let lease_of = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let value = |name: &str| {
            let mut variables = environment.split(|byte| *byte == 0);
            variables
                .find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec))
        };
        let lease = String::from_utf8(value(LEASE)?).ok()?;
        (folders.map(value) == own && Process::of(pid).is_some()).then_some(lease)
    };
    all().filter_map(lease_of).collect()
}

/// Returns the living descendants of the process `of`, without the process `except` and its
/// descendants.
pub fn descendants(of: u32, except: Option<u32>) -> Vec<Process> {
    let parents: Vec<(u32, Stat)> = all().filter_map(|pid| Some((pid, Stat::of(pid)?))).collect();
    let mut family = BTreeSet::from([of]);
    loop {
        let before = family.len();
        family.extend(
            parents
                .iter()
                .filter(|(pid, stat)| family.contains(&stat.parent) && Some(*pid) != except)
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    family.remove(&of);
    parents
        .into_iter()
        .filter(|(pid, stat)| family.contains(pid) && !stat.is_dead)
        .map(|(pid, stat)| Process { pid, started: stat.started })
        .collect()
}

/// Ends processes. They are asked to end, and killed after `grace`. `find` is called again and
/// again until it returns none, since the processes may start others meanwhile. Returns the
/// processes that were still alive a second after `grace`.
pub async fn end(find: impl Fn() -> Vec<Process> + Send + Sync + 'static, grace: Duration) -> Vec<Process> {
    let find = Arc::new(find);
    let polite = Instant::now() + grace;
    let given_up = polite + Duration::from_secs(1);
    let mut asked: Vec<Process> = Vec::new();
    loop {
        // On a machine with many processes this takes its time, in which the agent answers others.
        let looked = Arc::clone(&find);
        let left = tokio::task::spawn_blocking(move || looked()).await.unwrap_or_default();
        let now = Instant::now();
        if left.is_empty() || now >= given_up {
            return left;
        }
        for process in left {
            if now >= polite {
                process.signal(Signal::KILL);
            } else if !asked.contains(&process) {
                process.signal(Signal::TERM);
                // One that is stopped would not hear it.
                process.signal(Signal::CONT);
                asked.push(process);
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_start_and_dead_before_its_parent_looks() {
        assert!(Process::this().is_alive());
        let later = Process { started: Process::this().started + 1, ..Process::this() };
        assert!(!later.is_alive());
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(descendants(std::process::id(), None).contains(&process));
        assert!(!descendants(std::process::id(), Some(child.id())).contains(&process));
        process.signal(Signal::KILL);
        while process.is_alive() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn the_processes_of_a_lease_are_ended_also_those_that_do_not_listen() {
        let lease = format!("test-{}", std::process::id());
        let script =
            "trap '' TERM; setsid sh -c \"trap '' TERM; while :; do sleep 0.05; done\" & while :; do sleep 0.05; done";
        let mut child = Command::new("sh").args(["-c", script]).env(LEASE, &lease).spawn().unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(of_lease(&lease, uid + 1), []);
        while of_lease(&lease, uid).len() < 3 {
            sleep(Duration::from_millis(5)).await;
        }
        let of = lease.clone();
        assert_eq!(end(move || of_lease(&of, uid), Duration::from_millis(100)).await, []);
        child.wait().unwrap();
        assert_eq!(of_lease(&lease, uid), []);
    }
}
