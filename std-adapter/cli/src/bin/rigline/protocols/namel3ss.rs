//! `rigline install namel3ss`: a program that namel3ss's local runner can start, and that runs a
//! target.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rigline_host::target::Target;

use super::shim::{anywhere, program, put, this};
use crate::connect::Failure;

pub(super) const STARTER_FILES: &[(&str, &str)] =
    &[("hosts/app.ai", include_str!("../new/app.ai.in")), ("hosts/tools.yaml", include_str!("../new/tools.yaml.in"))];

/// Write a program that namel3ss's local runner can start as `PROGRAM -c SOURCE`, and that runs
/// TARGET
///
/// namel3ss looks for a project's interpreter at `.venv/bin/python`: write the program there.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// `exec:PROGRAM ARGS`, or the path of a program that supports namel3ss on standard input and
    /// output, as rigline's extensions do; or sim; or any other target, which is reached by
    /// `rigline bridge`
    target: Target,
    /// Reach TARGET by `rigline bridge`, although it is a program. Use this for a program that does
    /// not support namel3ss
    #[arg(long)]
    bridge: bool,
    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let bridge = |target: &Target| -> Result<_, Failure> {
            Ok(["bridge".to_owned(), anywhere(target)?.to_string(), "--protocol".to_owned(), "namel3ss".to_owned()]
                .into_iter()
                .fold(vec![this()?], |mut words, word| {
                    words.push(word);
                    words
                }))
        };
        let words = match &self.target {
            Target::Exec(exec) if !self.bridge => program(exec)?,
            Target::Sim if !self.bridge => {
                let words = ["rig", "--protocol", "namel3ss"].map(str::to_owned);
                [vec![this()?], words.to_vec()].concat()
            }
            target => bridge(target)?,
        };
        let comment =
            "Written by rigline install namel3ss. namel3ss starts this as `{this} -c SOURCE`; both are ignored.";
        put(&self.output, comment, &format!("exec {}", shell_words::join(words)))
    }
}
