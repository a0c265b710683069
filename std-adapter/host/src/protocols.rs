//! The registry of protocols: the one list that the command, the relay and the servers read.
//!
//! A protocol is a folder of this crate, with a constant [`Protocol`] in its `mod.rs`, and a line in [`ALL`].

pub(crate) use crate::gevals::passing;
use crate::protocol::Protocol;

/// All protocols, the default one first.
pub const ALL: &[&Protocol] = &[
    &crate::gevals::PROTOCOL,
    &crate::amplifier::PROTOCOL,
    &crate::namel3ss::PROTOCOL,
    &crate::waza::PROTOCOL,
    &crate::mcp::PROTOCOL,
];

/// The protocol in which an extension tells most of itself: the types of its results, and what its operations change.
pub fn of_agents() -> Option<&'static Protocol> {
    named("mcp")
}

/// The protocol of that name.
pub fn named(name: &str) -> Option<&'static Protocol> {
    ALL.iter().find(|protocol| protocol.name == name).copied()
}
