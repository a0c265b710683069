//! The commands and starter files that only one protocol has: the command's own registry of
//! protocols.

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

mod amplifier;
mod gevals;
pub(crate) mod install;
mod mcp;
mod namel3ss;
pub(crate) mod shim;
pub(crate) mod spelling;

pub(crate) use mcp::{Offer, Tools, Way};

/// The commands of single protocols. They are forms of `serve`, `install` and `replay`, and are not
/// in the list of commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(hide = true)]
    Descriptor(amplifier::descriptor::Arguments),
    #[command(hide = true)]
    Events(amplifier::events::Arguments),
    #[command(name = "gevals-shim", hide = true)]
    GevalsShim(gevals::Arguments),
    #[command(hide = true)]
    Mcp(Box<mcp::Arguments>),
    #[command(hide = true)]
    McpConfig(Box<mcp::ConfigArguments>),
    #[command(name = "namel3ss-shim", hide = true)]
    Namel3ssShim(namel3ss::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Descriptor(arguments) => arguments.run(),
            Self::Events(arguments) => arguments.run(),
            Self::GevalsShim(arguments) => arguments.run(),
            Self::Mcp(arguments) => arguments.run(),
            Self::McpConfig(arguments) => arguments.run(),
            Self::Namel3ssShim(arguments) => arguments.run(),
        }
    }
}

/// Files of a starter extension, for the hosts of each protocol: where they go, and their text.
pub(crate) const STARTER_FILES: &[&[(&str, &str)]] =
    &[gevals::STARTER_FILES, namel3ss::STARTER_FILES, amplifier::STARTER_FILES];
