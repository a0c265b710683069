//! Shared part of the shims: a script that runs a program, and targets that mean the same in every
//! folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rigline_host::process;
use rigline_host::target::{Exec, Target};

use crate::connect::Failure;
use crate::{files, out};

pub(super) fn this() -> Result<String, Failure> {
    let this = process::executable_path().map_err(Failure::usage)?;
    Ok(this.to_string_lossy().into_owned())
}

/// A program, by its absolute path, and its arguments: a relative path means another file in
/// another folder.
pub(super) fn program(exec: &Exec) -> Result<Vec<String>, Failure> {
    let program = which::which(&exec.program).unwrap_or_else(|_| exec.program.clone().into());
    // A link stays: a program may go by the name that it is started with, as Python does in a
    // virtual environment.
    let program = std::path::absolute(&program).unwrap_or(program);
    let Some(program) = program.to_str() else {
        return Err(Failure::usage(format!("{}: the path must be UTF-8", program.display())));
    };
    Ok(std::iter::once(program.to_owned()).chain(exec.args.iter().map(|arg| argument(arg))).collect())
}

/// The target, as it is called in any folder.
pub(crate) fn anywhere(target: &Target) -> Result<Target, Failure> {
    let mut target = target.clone();
    match &mut target {
        Target::Exec(exec) => {
            let mut words = program(exec)?.into_iter();
            *exec = Exec { program: words.next().unwrap_or_default(), args: words.collect() };
        }
        Target::Replay(replay) => make_absolute(&mut replay.path),
        Target::Tcp(tcp) => tcp.token_file.iter_mut().for_each(make_absolute),
        _ => {}
    }
    Ok(target)
}

/// An argument of a program, by its absolute path if it names a file, as in `python3 extension.py`.
pub(crate) fn argument(text: &str) -> String {
    let mut path = PathBuf::from(text);
    if text.contains(['/', '.']) && path.is_file() {
        make_absolute(&mut path);
    }
    path.to_str().unwrap_or(text).to_owned()
}

fn make_absolute(path: &mut PathBuf) {
    if let Ok(absolute) = std::path::absolute(&*path) {
        *path = absolute;
    }
}

pub(super) fn put(output: &Path, comment: &str, command: &str) -> Result<ExitCode, Failure> {
    let script = format!("#!/bin/sh\n# {comment}\n{command}\n");
    if output == Path::new("-") {
        out::print_file(&script);
    } else {
        let written = rigline_host::files::write_executable(output, script.as_bytes());
        written.map_err(|error| files::failed(output, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}
