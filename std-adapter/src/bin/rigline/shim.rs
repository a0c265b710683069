//! `rigline gevals-shim` and `rigline namel3ss-shim`: programs that a host can start, and that run a target.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rigline_std::target::{Exec, Target};
use rigline_std::{files, process};

use crate::connect::{self, Failure};

/// Write a program that a gevals host can start without arguments, and that runs TARGET
///
/// An eval file of the real host names it as the extension's `package`:
///
///   extensions:
///     rig:
///       package: ./rig-extension
#[derive(Debug, Args)]
pub(crate) struct GevalsArguments {
    /// The extension: any target. `rigline bridge` goes to those that are not programs
    target: Target,
    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

impl GevalsArguments {
    pub(crate) fn run(&self) -> ExitCode {
        finish(self.write())
    }

    fn write(&self) -> Result<(), Failure> {
        let words = match &self.target {
            Target::Exec(exec) => program(exec)?,
            Target::Sim => vec![this()?, "rig".to_owned()],
            target => vec![this()?, "bridge".to_owned(), target.to_string()],
        };
        // The one-shot argument `--config JSON` is for the extension itself.
        let command = format!("exec {} \"$@\"", shell_words::join(words));
        put(&self.output, "Written by rigline gevals-shim. A gevals host starts this without arguments.", &command)
    }
}

/// Write a program that namel3ss's local runner can start as `PROGRAM -c SOURCE`, and that runs TARGET
///
/// Put it where the project's interpreter is looked for, `.venv/bin/python`.
#[derive(Debug, Args)]
pub(crate) struct Namel3ssArguments {
    /// `exec:PROGRAM ARGS` or a path, of a program that speaks namel3ss on standard input and output, as rigline's extensions do; or
    /// sim, or any other target, which `rigline bridge` goes to
    target: Target,
    /// The program does not speak namel3ss: go to it by `rigline bridge`, too
    #[arg(long)]
    bridge: bool,
    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

impl Namel3ssArguments {
    pub(crate) fn run(&self) -> ExitCode {
        finish(self.write())
    }

    fn write(&self) -> Result<(), Failure> {
        let bridge = |target: &Target| -> Result<_, Failure> {
            Ok(["bridge".to_owned(), target.to_string(), "--protocol".to_owned(), "namel3ss".to_owned()]
                .into_iter()
                .fold(vec![this()?], |mut words, word| {
                    words.push(word);
                    words
                }))
        };
        let words = match &self.target {
            Target::Exec(exec) if self.bridge => {
                let mut words = program(exec)?.into_iter();
                let program = words.next().unwrap_or_default();
                bridge(&Target::Exec(Exec { program, args: words.collect() }))?
            }
            Target::Exec(exec) => program(exec)?,
            Target::Sim if !self.bridge => {
                let words = ["rig", "--protocol", "namel3ss"].map(str::to_owned);
                [vec![this()?], words.to_vec()].concat()
            }
            target => bridge(target)?,
        };
        let comment = "Written by rigline namel3ss-shim. namel3ss starts this as `{this} -c SOURCE`; both are ignored.";
        put(&self.output, comment, &format!("exec {}", shell_words::join(words)))
    }
}

fn this() -> Result<String, Failure> {
    let this = process::this_path().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(this.to_string_lossy().into_owned())
}

/// A program, by its absolute path, and its arguments: a relative path means another file in another folder.
pub(crate) fn program(exec: &Exec) -> Result<Vec<String>, Failure> {
    let program = which::which(&exec.program).unwrap_or_else(|_| exec.program.clone().into());
    let program = fs::canonicalize(&program).unwrap_or(program);
    let Some(program) = program.to_str() else {
        return Err(Failure::usage(format!("{}: the path must be UTF-8", program.display())));
    };
    Ok([vec![program.to_owned()], exec.args.clone()].concat())
}

fn put(output: &Path, comment: &str, command: &str) -> Result<(), Failure> {
    let script = format!("#!/bin/sh\n# {comment}\n{command}\n");
    if output == Path::new("-") {
        connect::print(&script);
        return Ok(());
    }
    files::write_executable(output, script.as_bytes())
        .map_err(|error| Failure::usage(format!("{}: {error}", output.display())))
}

fn finish(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}
