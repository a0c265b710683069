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
    /// The id of the user, as the system reports it for the socket.
    pub uid: u32,
    /// The process that asked.
    pub process: Process,
    /// The purpose, for people. Empty if none was given.
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

/// A lease: the right to use rigs for some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The id of the lease. It is no secret.
    pub id: String,
    /// The name of the request that got the lease. If the client repeats the request, it gets the
    /// same lease.
    pub request: String,
    /// The names of the rigs.
    pub rigs: Vec<String>,
    /// The person and process that asked for the lease.
    pub holder: Holder,
    /// The process that keeps the lease. `None` if it is the process that asked.
    pub keeper: Option<Process>,
    /// The time at which the lease was granted, in seconds since 1970 (UTC).
    pub since: u64,
    /// The id of the machine's start that the times of the lease count from.
    pub boot: String,
    /// The latest time at which the lease ends.
    pub deadline: BootTime,
    /// The longest time in which nothing is sent to the rigs, in milliseconds. Zero means no limit.
    /// The lease ends when it is exceeded.
    pub idle: u64,
    /// Whether other programs than the agent open the ports of the rigs.
    pub is_raw: bool,
}

impl Lease {
    /// Returns the process with whose end the lease ends.
    pub fn process(&self) -> Process {
        self.keeper.unwrap_or(self.holder.process)
    }
}

/// The health of a rig, as far as the agent knows it. It is kept in the books, since an idle agent
/// ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether the rig has ever answered.
    #[serde(default)]
    pub has_answered: bool,
    /// The manifest that the rig last reported. `None` if it has reported none.
    #[serde(default)]
    pub manifest: Option<String>,
    /// The identity of the board: its serial number or its place in the USB tree. It is recorded
    /// only for a port whose name another board may get.
    #[serde(default)]
    pub board: Option<String>,
    /// The reason why the rig is in quarantine. `None` if it is not.
    #[serde(default)]
    pub reason: Option<String>,
    /// The name of the person who put the rig into quarantine. `None` if the agent did.
    #[serde(default)]
    pub by: Option<String>,
    /// The time at which the rig is tried again, on the clock of [`boot`](Self::boot).
    #[serde(default)]
    pub due: BootTime,
    /// The id of the machine's start that [`due`](Self::due) counts from.
    #[serde(default)]
    pub boot: String,
    /// The number of failed checks in this quarantine.
    #[serde(default)]
    pub tries: usize,
    /// The number of times in a row that the rig has answered in this quarantine.
    #[serde(default)]
    pub goods: u32,
    /// The times at which the rig was put into quarantine in the last day, in seconds since 1970
    /// (UTC).
    #[serde(default)]
    pub times: Vec<u64>,
}

impl Health {
    /// Returns whether the rig was in quarantine so often in a day that only a person may take it
    /// out.
    pub fn is_flapping(&self) -> bool {
        self.times.len() > FLAPPING
    }

    /// Returns whether the rig can leave quarantine without a person.
    pub fn returns(&self) -> bool {
        self.by.is_none() && !self.is_flapping()
    }
}

/// An entry of the lab's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time of the event, in seconds since 1970 (UTC).
    pub at: u64,
    /// The kind of event: `granted`, `ended`, `quarantined` or `free`.
    pub what: String,
    /// The names of the rigs that the event is about.
    pub rigs: Vec<String>,
    /// The id of the lease that the event is about. `None` if it is about no lease.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lease: Option<String>,
    /// The name of the person, or `the agent`, who caused the event.
    pub who: String,
    /// The reason of the event. Empty if it needs none.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
}

/// A change of the books. Several of them may be written together.
#[derive(Debug, Clone)]
pub enum Change {
    /// A lease was granted, or has another keeper.
    Lease(Lease),
    /// The lease with this id has ended.
    End(String),
    /// The health of the rig with this name has changed.
    Rig(String, Health),
    /// An entry is added to the log.
    Log(Entry),
}

/// The store that keeps the agent's records.
pub trait Books: Send {
    /// Writes all changes or none of them. They are on the disk when the function returns.
    ///
    /// # Errors
    /// The disk is full, or does not work.
    fn write(&mut self, changes: &[Change]) -> io::Result<()>;

    /// Returns the last entries of the log, at most `most`, the oldest first.
    ///
    /// # Errors
    /// The log cannot be read.
    fn log(&self, most: usize) -> io::Result<Vec<Entry>>;
}

/// The content of the books, as an earlier agent left it.
#[derive(Debug, Default)]
pub struct Kept {
    /// The leases that had not ended.
    pub leases: Vec<Lease>,
    /// The health of each rig, with its name before it.
    pub rigs: Vec<(String, Health)>,
}
