//! namel3ss: the host that runs tools, with its runners, bindings, packs and traces.

use rigline::protocol::NAMEL3SS;

use crate::client::{Command, Form, Part, ProtocolOption};
use crate::protocol::Protocol;

mod bindings;
pub mod check;
mod client;
mod decode;
mod host;
mod project;
mod redirects;
mod reply;
mod runners;
mod trace;

pub(crate) use crate::http_client::HttpError;
pub use bindings::{Binding, Bindings, BindingsError, Pack, Runner};
pub use host::{Host, ToolCall, ToolError, ToolOutcome};
pub use project::{Project, Resolved, Settings, Source};
pub use reply::{CapabilityCheck, Reply, ReplyError};
pub use runners::RunError;
pub use trace::Trace;

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(NAMEL3SS),
    is_single_document: true,
    carries: &[Part::TimeLimit, Part::Types, Part::FailureKinds, Part::OwnCodes, Part::Cancel],
    client: Some(client::connect),
    reading: Some(&decode::READING),
    http: Some(&rigline_std::namel3ss::ROUTES),
    check: Some(&check::SUITE),
    options: &[
        ProtocolOption::new(
            "trace",
            Form::Once,
            "FILE",
            "Append the trace record of the call to this file, as a JSON line",
        ),
        ProtocolOption {
            requires: Some("trace"),
            ..ProtocolOption::new(
                "trace-format",
                Form::OneOf(&["text", "namel3ss"]),
                "FORMAT",
                "The members of the trace record, which is a JSON line in both cases: `text` has those of the protocol's text, `namel3ss` those of .namel3ss/run/last.json [default: text]",
            )
        },
        ProtocolOption::flag(
            "handshake",
            "Ask the service before the call which guarantees it enforces. The call fails if the service does not answer, refuses, or does not enforce a required guarantee",
        ),
        ProtocolOption::new(
            "require",
            Form::Repeated,
            "GUARANTEE",
            "A guarantee that the tool must keep, such as `no_network`; may be repeated",
        ),
        ProtocolOption::new("tool", Form::Once, "TOOL", "The tool of the service").of(&[Command::Describe]),
        ProtocolOption::new("entry", Form::Once, "MODULE:FUNCTION", "The tool's entry, as in its binding")
            .of(&[Command::Check]),
    ],
    ..Protocol::new("namel3ss", "namel3ss")
};
