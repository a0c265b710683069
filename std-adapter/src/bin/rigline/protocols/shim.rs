//! Shared part of the shims: a script that runs a program.

use std::path::Path;
use std::process::ExitCode;

use rigline_std::cli::process;
use rigline_std::target::Exec;

use crate::connect::Failure;
use crate::{files, out};

pub(super) fn this() -> Result<String, Failure> {
    let this = process::this_path().map_err(Failure::usage)?;
    Ok(this.to_string_lossy().into_owned())
}

/// A program, by its absolute path, and its arguments: a relative path means another file in another folder.
pub(super) fn program(exec: &Exec) -> Result<Vec<String>, Failure> {
    let program = which::which(&exec.program).unwrap_or_else(|_| exec.program.clone().into());
    // A link stays: a program may go by the name that it is started with, as Python does in a virtual environment.
    let program = std::path::absolute(&program).unwrap_or(program);
    let Some(program) = program.to_str() else {
        return Err(Failure::usage(format!("{}: the path must be UTF-8", program.display())));
    };
    Ok([vec![program.to_owned()], exec.args.clone()].concat())
}

pub(super) fn put(output: &Path, comment: &str, command: &str) -> Result<ExitCode, Failure> {
    let script = format!("#!/bin/sh\n# {comment}\n{command}\n");
    if output == Path::new("-") {
        out::print_file(&script);
    } else {
        let written = rigline_std::cli::files::write_executable(output, script.as_bytes());
        written.map_err(|error| files::failed(output, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}
