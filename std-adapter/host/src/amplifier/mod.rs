//! Amplifier: its descriptors, events, errors and plans, and a host that calls its modules.

pub mod check;
mod client;
mod decode;
mod descriptor;
mod error;
mod events;
mod host;
mod lines;
mod plan;

pub(crate) use crate::http_client::HttpError;
pub(crate) use client::client_of;
pub use descriptor::{Descriptor, DescriptorError, SCHEMA, Transport};
pub use error::{CallError, ModuleError, RESERVED_CODES};
pub use events::{Entry, EventLog, EventRecord, Fault, LogReader, check_taxonomy};
pub use host::{Description, Host, InvocationResult, ModuleLocation};
pub use lines::Lines;
pub use plan::Plan;

use crate::client::{Form, Part, ProtocolOption};
use crate::protocol::Protocol;

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(rigline::protocol::AMPLIFIER),
    session_id: Some(|call| rigline::protocol::amplifier::session_id(call).map(|id| id.to_string())),
    has_manifest: true,
    carries: &[Part::Session, Part::Types, Part::FailureKinds, Part::OwnCodes, Part::Cancel],
    client: Some(client::connect),
    reading: Some(&decode::READING),
    http: Some(&rigline_std::amplifier::ROUTES),
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
