//! waza: evals over JSON-RPC. The package [`rigline_eval`](rigline_eval) has its eval files, its
//! runner and its server.

pub(crate) mod check;

use crate::protocol::Protocol;

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol { check: Some(&check::SUITE), ..Protocol::new("waza", "waza") };
