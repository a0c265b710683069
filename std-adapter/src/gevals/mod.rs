//! gevals: the protocol of the eval host's extensions. It is the default of this crate: `rigline_std::Host` is its host,
//! `proxy` its server.

#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "host")]
mod client;
pub mod path;
#[cfg(feature = "host")]
pub mod proxy;

#[cfg(feature = "host")]
use crate::client::{Command, Form, ProtocolOption};
#[cfg(feature = "host")]
use crate::protocol::{Protocol, Relaying};
#[cfg(feature = "host")]
use crate::traffic::JSON_RPC;

/// The entry in the registry.
#[cfg(feature = "host")]
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(rigline::protocol::GEVALS),
    has_config: true,
    has_manifest: true,
    client: Some(client::connect),
    relay: Relaying::Fallback,
    has_proxy: true,
    reading: Some(&JSON_RPC),
    #[cfg(feature = "check")]
    check: Some(&check::SUITE),
    options: &[
        ProtocolOption {
            name: "phase",
            commands: &[Command::Call],
            value: Some("PHASE"),
            help: "The part of the task",
            form: Form::OneOf(&["setup", "verify", "cleanup"]),
            requires: None,
        },
        ProtocolOption {
            name: "env",
            commands: &[Command::Call],
            value: Some("NAME=VALUE"),
            help: "A variable of the task; may be repeated",
            form: Form::Repeated,
            requires: None,
        },
        ProtocolOption {
            name: "workdir",
            commands: &[Command::Call],
            value: Some("DIR"),
            help: "The task's directory [default: the current one]",
            form: Form::Once,
            requires: None,
        },
        ProtocolOption {
            name: "agent-prompt",
            commands: &[Command::Call],
            value: Some("TEXT|@FILE"),
            help: "The prompt that the agent under test got",
            form: Form::TextOrFile,
            requires: None,
        },
        ProtocolOption {
            name: "agent-output",
            commands: &[Command::Call],
            value: Some("TEXT|@FILE"),
            help: "The answer that the agent under test gave",
            form: Form::TextOrFile,
            requires: None,
        },
    ],
    ..Protocol::new("gevals", "gevals")
};
