//! `rigline install gevals`: a program that a gevals host can start, and that runs a target.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rigline_host::target::Target;

use super::shim::{anywhere, program, put, this};
use crate::connect::Failure;

pub(super) const STARTER_FILES: &[(&str, &str)] = &[
    ("hosts/gevals.yaml", include_str!("../new/gevals.yaml.in")),
    ("hosts/gevals-task.yaml", include_str!("../new/gevals-task.yaml.in")),
];

/// Write a program that runs TARGET, and that a gevals host can start without arguments
///
/// An eval file of the host names this program as the extension's `package`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  rigline install gevals serial:auto -o rig-extension\n\nIn the host's eval file:\n  extensions:\n    rig:\n      package: ./rig-extension"
)]
pub(crate) struct Arguments {
    /// The extension: any target. Targets that are not programs are reached by `rigline bridge`
    target: Target,
    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let words = match &self.target {
            Target::Exec(exec) => program(exec)?,
            Target::Sim => vec![this()?, "rig".to_owned()],
            target => vec![this()?, "bridge".to_owned(), anywhere(target)?.to_string()],
        };
        // The one-shot argument `--config JSON` is for the extension itself.
        let command = format!("exec {} \"$@\"", shell_words::join(words));
        put(&self.output, "Written by rigline install gevals. A gevals host starts this without arguments.", &command)
    }
}
