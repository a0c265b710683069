//! gevals, the protocol between an eval host and its extensions. It is the default protocol of this
//! crate: `rigline_host::Host` speaks it.

pub mod check;
mod client;
pub(crate) mod passing;

use crate::client::{Form, Part, ProtocolOption};
use crate::decode::JSON_RPC;
use crate::protocol::Protocol;
pub(crate) use client::{client_of, connect_error};

fn configuration(config: &str) -> String {
    let version = rigline::protocol::gevals::VERSION;
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","config":{config}}}}}"#
    )
}

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(rigline::protocol::GEVALS),
    configuration: Some(configuration),
    has_manifest: true,
    carries: &[Part::Config, Part::Context, Part::Env, Part::TimeLimit, Part::Logs, Part::FailureKinds, Part::Cancel],
    client: Some(client::connect),
    reading: Some(&JSON_RPC),
    check: Some(&check::SUITE),
    options: &[
        ProtocolOption::new("phase", Form::OneOf(&["setup", "verify", "cleanup"]), "PHASE", "The part of the task"),
        ProtocolOption::new("env", Form::Repeated, "NAME=VALUE", "A variable of the task; may be repeated"),
        ProtocolOption::new("workdir", Form::Once, "DIR", "The task's directory [default: the current one]"),
        ProtocolOption::new("agent-prompt", Form::TextOrFile, "TEXT|@FILE", "The prompt that the agent under test got"),
        ProtocolOption::new(
            "agent-output",
            Form::TextOrFile,
            "TEXT|@FILE",
            "The answer that the agent under test gave",
        ),
    ],
    ..Protocol::new("gevals", "gevals")
};
