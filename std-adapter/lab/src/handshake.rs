//! The agreement of the agent and its clients before anything else: the version of their protocol, the longest line, and the user on
//! another host for whom a connection may speak.

use serde::{Deserialize, Serialize};

/// The version of the protocol between the agent and its clients. Both must have the same.
pub const PROTOCOL: u32 = 3;

/// The longest line of the agent.
pub(crate) const LINE_LIMIT: usize = 4 << 20;

/// A holder on another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Far {
    /// The user's name.
    pub(crate) user: String,
    /// The name of the other host, as it says it.
    pub(crate) machine: String,
    /// The process there.
    pub(crate) pid: u32,
    /// The carrier.
    pub(crate) via: String,
    /// Whether the carrier vouches for the user's name, and the user need not be the one whom the agent serves.
    pub(crate) is_vouched: bool,
    /// Whether the user may end the leases of others.
    pub(crate) is_admin: bool,
}
