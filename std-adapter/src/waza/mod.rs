//! waza: evals over JSON-RPC. Its files, its runner and its server are [`eval`](crate::eval).

#[cfg(feature = "check")]
pub(crate) mod check;

use crate::protocol::Protocol;

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol {
    #[cfg(feature = "check")]
    check: Some(&check::SUITE),
    ..Protocol::new("waza", "waza")
};
