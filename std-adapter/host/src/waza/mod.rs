//! waza: evals over JSON-RPC. Its files, its runner and its server are [`eval`](rigline_eval).

pub(crate) mod check;

use crate::protocol::Protocol;

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol { check: Some(&check::SUITE), ..Protocol::new("waza", "waza") };
