//! The registry of protocols. The command, the relay and the servers read this one list.
//!
//! A protocol is a folder of this crate, with a constant [`Protocol`] in its `mod.rs`, and a line
//! in [`ALL`].

use rigline_std::queue::Changes;

pub(crate) use crate::gevals::passing;
use crate::protocol::Protocol;

/// All protocols. The default protocol is the first.
pub const ALL: &[&Protocol] = &[
    &crate::gevals::PROTOCOL,
    &crate::amplifier::PROTOCOL,
    &crate::namel3ss::PROTOCOL,
    &crate::waza::PROTOCOL,
    &crate::mcp::PROTOCOL,
];

/// Returns the protocol in which an extension tells agents the most: the types of its results, and
/// the effects of its operations. It is MCP.
pub fn of_agents() -> Option<&'static Protocol> {
    named("mcp")
}

/// Returns the protocol with this name.
pub fn named(name: &str) -> Option<&'static Protocol> {
    ALL.iter().find(|protocol| protocol.name == name).copied()
}

/// Returns the messages by which clients of this protocol are told that the operations are others.
pub(crate) fn changes_in(protocol: &rigline::protocol::Protocol) -> Option<&'static Changes> {
    ALL.iter().find(|known| known.lines.is_some_and(|lines| lines == protocol))?.changes
}
