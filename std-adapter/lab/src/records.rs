//! The records that the agent keeps in its books.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::clock::BootTime;
use crate::processes::Process;

/// How many quarantines a day are not *flapping* yet.
pub(crate) const FLAPPING: usize = 3;

/// The person and process that hold a lease, or wait for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The name of the user.
    pub user: String,
    /// The user's id, as the system reports it for the other end of the socket.
    pub uid: u32,
    /// The process that has the lease or waits for it.
    pub process: Process,
    /// The purpose of the lease, as a text for people; empty if none was given.
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

/// A lease: the right of one holder to use one or more rigs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The id of the lease. It is no secret.
    pub id: String,
    /// The name of the request that the lease was granted for. The same request gets the same
    /// lease.
    pub request: String,
    /// The names of the rigs.
    pub rigs: Vec<String>,
    /// The person and the process that asked for the lease.
    pub holder: Holder,
    /// The process that keeps the lease, if it is not the one that asked.
    pub keeper: Option<Process>,
    /// The time of day of the grant, in seconds since 1970, for people.
    pub since: u64,
    /// The id of the machine's start that `deadline` counts from.
    pub boot: String,
    /// The time at which the lease ends at the latest.
    pub deadline: BootTime,
    /// The time without use after which the lease ends, in milliseconds. Zero means no limit.
    pub idle: u64,
    /// Whether others than the agent open the rigs' ports.
    pub is_raw: bool,
}

impl Lease {
    /// The process whose end ends the lease: the keeper, or the one that asked.
    pub fn process(&self) -> Process {
        self.keeper.unwrap_or(self.holder.process)
    }
}

/// The health of a rig. It is kept in the books, since an idle agent ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether the rig has ever answered.
    #[serde(default)]
    pub has_answered: bool,
    /// The manifest that the rig has last answered with.
    #[serde(default)]
    pub manifest: Option<String>,
    /// The board of the rig, by its serial number or its place, if the rig is at a port whose name
    /// may be given to another board.
    #[serde(default)]
    pub board: Option<String>,
    /// The reason of the quarantine; none if the rig is not in quarantine.
    #[serde(default)]
    pub reason: Option<String>,
    /// The person who has put the rig into quarantine; none if the agent has.
    #[serde(default)]
    pub by: Option<String>,
    /// The time at which the rig in quarantine is tried again.
    #[serde(default)]
    pub due: BootTime,
    /// The id of the machine's start that `due` counts from.
    #[serde(default)]
    pub boot: String,
    /// The number of times that the rig was tried in this quarantine.
    #[serde(default)]
    pub tries: usize,
    /// The number of good answers in a row since then.
    #[serde(default)]
    pub goods: u32,
    /// The times at which the rig was put into quarantine in the last 24 hours, in seconds since
    /// 1970 (UTC).
    #[serde(default, rename = "times")]
    pub quarantined_at: Vec<u64>,
}

impl Health {
    /// Whether the rig was in quarantine so often in a day that a person must take it out.
    pub fn is_flapping(&self) -> bool {
        self.quarantined_at.len() > FLAPPING
    }

    /// Whether the rig is taken out of quarantine when it answers again. If a person has put it
    /// there or it is flapping, it is not.
    pub fn returns(&self) -> bool {
        self.by.is_none() && !self.is_flapping()
    }
}

/// An entry of the lab's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time of the event, in seconds since 1970 (UTC).
    pub at: u64,
    /// The event, such as `granted`, `ended`, `quarantined` or `free`.
    pub what: String,
    /// The names of the rigs that the event concerns.
    pub rigs: Vec<String>,
    /// The id of the lease, if the event concerns one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lease: Option<String>,
    /// The person or the part of the lab that has caused the event.
    pub who: String,
    /// The reason; empty if the event needs none.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
}

/// A change of the books.
#[derive(Debug, Clone)]
pub enum Change {
    /// A lease was granted, or has got another keeper.
    Lease(Lease),
    /// The lease with this id has ended.
    End(String),
    /// The rig of this name has this health now.
    Rig(String, Health),
    /// An event for people.
    Log(Entry),
}

/// The storage of the agent's records.
pub trait Books: Send {
    /// Writes all of these changes or none. They are on the disk when it returns.
    ///
    /// # Errors
    /// The disk is full, or does not work.
    fn write(&mut self, changes: &[Change]) -> io::Result<()>;

    /// The last `most` entries of the log, the oldest first.
    ///
    /// # Errors
    /// The log cannot be read.
    fn log(&self, most: usize) -> io::Result<Vec<Entry>>;
}

/// The content of the books when an agent starts.
#[derive(Debug, Default)]
pub struct Kept {
    /// The leases that have not ended.
    pub leases: Vec<Lease>,
    /// The rigs by their names, with their health.
    pub rigs: Vec<(String, Health)>,
}
