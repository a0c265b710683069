//! The records in the agent's books.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::clock::BootTime;
use crate::processes::Process;

/// How many quarantines a day are not *flapping* yet.
pub(crate) const FLAPPING: usize = 3;

/// The holder of a lease, or somebody who waits for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The user's name.
    pub user: String,
    /// The user's number, as the system tells it of the other end of the socket.
    pub uid: u32,
    /// The process.
    pub process: Process,
    /// The purpose; empty if none was given.
    #[serde(default)]
    pub purpose: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {}", self.user, self.process.pid)?;
        if !self.purpose.is_empty() {
            write!(f, ", {}", self.purpose)?;
        }
        f.write_str(")")
    }
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The id of the lease, which is public.
    pub id: String,
    /// The request that it was granted for: the same one gets the same lease.
    pub request: String,
    /// The rigs.
    pub rigs: Vec<String>,
    /// The person who asked for it.
    pub holder: Holder,
    /// The process that keeps it, if that is another than the one that asked.
    pub keeper: Option<Process>,
    /// When the lease was granted, for people.
    pub since: u64,
    /// The start of the machine that its times count from.
    pub boot: String,
    /// When the lease ends at the latest.
    pub deadline: BootTime,
    /// How long nothing may be sent to its rigs; no limit if zero.
    pub idle: u64,
    /// Whether its rigs' ports are opened by others than the agent.
    pub is_raw: bool,
}

impl Lease {
    /// The process with whose end it ends.
    pub fn process(&self) -> Process {
        self.keeper.unwrap_or(self.holder.process)
    }
}

/// Knowledge of a rig's health. It is in the books, since an idle agent ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether it has ever answered.
    #[serde(default)]
    pub has_answered: bool,
    /// The description that the rig gives of itself.
    #[serde(default)]
    pub manifest: Option<String>,
    /// Which board it is, by its serial number or its place, if it is at a port whose name may be given to another board.
    #[serde(default)]
    pub board: Option<String>,
    /// Why the rig is in quarantine, if it is.
    #[serde(default)]
    pub reason: Option<String>,
    /// The person who has put it there, if one has.
    #[serde(default)]
    pub by: Option<String>,
    /// When the rig is tried again.
    #[serde(default)]
    pub due: BootTime,
    /// The start of the machine that `due` counts from.
    #[serde(default)]
    pub boot: String,
    /// How often it was tried.
    #[serde(default)]
    pub tries: usize,
    /// How often it has answered since.
    #[serde(default)]
    pub goods: u32,
    /// The times of day of its last quarantines.
    #[serde(default)]
    pub times: Vec<u64>,
}

impl Health {
    /// Whether it was in quarantine so often that a person must decide.
    pub fn is_flapping(&self) -> bool {
        self.times.len() > FLAPPING
    }

    /// Whether it comes back by itself.
    pub fn returns(&self) -> bool {
        self.by.is_none() && !self.is_flapping()
    }
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time of day, in seconds since 1970, for people.
    pub at: u64,
    /// The event: `granted`, `ended`, `quarantined`, `free`.
    pub what: String,
    /// The rigs.
    pub rigs: Vec<String>,
    /// The lease, if it was about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lease: Option<String>,
    /// The person.
    pub who: String,
    /// Why; empty where it needs no reason.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
}

/// Changes that belong together.
#[derive(Debug, Clone)]
pub enum Change {
    /// A lease was granted or has another process.
    Lease(Lease),
    /// A lease has ended.
    End(String),
    /// Knowledge of a rig.
    Rig(String, Health),
    /// Something for people.
    Log(Entry),
}

/// The place that changes are written to.
pub trait Books: Send {
    /// Writes all of them or none. They are on the disk when it returns.
    ///
    /// # Errors
    /// The disk is full, or does not work.
    fn write(&mut self, changes: &[Change]) -> io::Result<()>;

    /// The last lines of the log, the oldest first.
    ///
    /// # Errors
    /// They cannot be read.
    fn log(&self, most: usize) -> io::Result<Vec<Entry>>;
}

/// The content of the books.
#[derive(Debug, Default)]
pub struct Kept {
    /// The leases that were not ended.
    pub leases: Vec<Lease>,
    /// Knowledge of the rigs.
    pub rigs: Vec<(String, Health)>,
}
