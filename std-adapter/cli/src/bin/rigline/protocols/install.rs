//! `rigline install`: what makes a host find a target.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::mcp::EntryArguments;
use super::{amplifier, gevals, namel3ss};
use crate::failure::Failure;

/// Let a host find an extension: write its program, its descriptor, or its entry in the host's file
///
/// gevals and namel3ss start programs, Amplifier reads a module descriptor, and clients of MCP have a file of servers. Without -o or
/// --write, the text is printed, and no file is changed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rigline install gevals serial:auto -o rig-extension\n  rigline install amplifier ./my-extension -o module.json\n  rigline install claude-code serial:auto --write"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    host: Host,
}

#[derive(Debug, Subcommand)]
enum Host {
    Gevals(gevals::Arguments),
    Amplifier(amplifier::descriptor::Arguments),
    Namel3ss(namel3ss::Arguments),
    #[command(about = "Print or write the entry of Claude Code")]
    ClaudeCode(Box<EntryArguments>),
    #[command(about = "Print or write the entry of Claude Desktop")]
    ClaudeDesktop(Box<EntryArguments>),
    #[command(about = "Print or write the entry of Codex")]
    Codex(Box<EntryArguments>),
    #[command(about = "Print or write the entry of Cursor")]
    Cursor(Box<EntryArguments>),
    #[command(about = "Print or write the entry of Gemini")]
    Gemini(Box<EntryArguments>),
    #[command(about = "Print or write the entry of Visual Studio Code")]
    Vscode(Box<EntryArguments>),
    #[command(about = "Print or write the entry of Windsurf")]
    Windsurf(Box<EntryArguments>),
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (client, entry) = match self.host {
            Host::Gevals(arguments) => return arguments.run(),
            Host::Amplifier(arguments) => return arguments.run(),
            Host::Namel3ss(arguments) => return arguments.run(),
            Host::ClaudeCode(entry) => ("claude-code", entry),
            Host::ClaudeDesktop(entry) => ("claude-desktop", entry),
            Host::Codex(entry) => ("codex", entry),
            Host::Cursor(entry) => ("cursor", entry),
            Host::Gemini(entry) => ("gemini", entry),
            Host::Vscode(entry) => ("vscode", entry),
            Host::Windsurf(entry) => ("windsurf", entry),
        };
        entry.run(client)
    }
}

#[cfg(test)]
mod tests {
    use rigline_host::mcp::config::McpProgram;

    /// Each client that an entry can be written for is a host of `install`.
    #[test]
    fn every_client_of_mcp_is_a_host() {
        let root = crate::command();
        let install = root.find_subcommand("install").unwrap();
        for client in McpProgram::ALL {
            assert!(install.find_subcommand(client.name()).is_some(), "{}", client.name());
        }
    }
}
