//! Amplifier: descriptors, events, errors and plans as PROTOCOLS.md has them, and the host's side of its protocol.

#[cfg(all(feature = "amplifier", feature = "check"))]
pub mod check;
#[cfg(feature = "amplifier")]
mod client;
#[cfg(feature = "amplifier")]
mod descriptor;
#[cfg(feature = "amplifier")]
mod error;
#[cfg(feature = "amplifier")]
mod events;
#[cfg(feature = "amplifier")]
mod host;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "amplifier")]
mod lines;
#[cfg(feature = "amplifier")]
mod plan;
#[cfg(feature = "amplifier")]
mod traffic;

#[cfg(feature = "amplifier")]
pub use crate::http_client::HttpError;
#[cfg(feature = "amplifier")]
pub use descriptor::{Descriptor, DescriptorError, ModuleKind, SCHEMA, Transport};
#[cfg(feature = "amplifier")]
pub use error::{CallError, ModuleError, RESERVED_CODES};
#[cfg(feature = "amplifier")]
pub use events::{Entry, EventLog, EventRecord, Fault, LogReader, check_taxonomy};
#[cfg(feature = "amplifier")]
pub use host::{Description, Host, Invocation, Place};
#[cfg(feature = "amplifier")]
pub use lines::Lines;
#[cfg(feature = "amplifier")]
pub use plan::Plan;

#[cfg(feature = "amplifier")]
use crate::client::{Form, ProtocolOption};
#[cfg(feature = "amplifier")]
use crate::protocol::{Protocol, Relaying};

/// The entry in the registry.
#[cfg(feature = "amplifier")]
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(rigline::protocol::AMPLIFIER),
    session_id: Some(|call| rigline::protocol::amplifier::session_id(call).map(|id| id.to_string())),
    has_manifest: true,
    client: Some(client::connect),
    relay: Relaying::First,
    reading: Some(&traffic::READING),
    #[cfg(feature = "http")]
    http: Some(&http::ROUTES),
    #[cfg(feature = "check")]
    check: Some(&check::SUITE),
    options: &[
        ProtocolOption::new("session", Form::Once, "ID", "The session that the call belongs to"),
        ProtocolOption::new(
            "events",
            Form::Once,
            "FILE",
            "Append the events of the call to this file, as JSON lines: `module:invoke`, and `policy:decision` if the \
                   call is forbidden",
        ),
    ],
    ..Protocol::new("amplifier", "Amplifier")
};
