//! Limits that this process has raised for itself are not its children's.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit on open files that this process was started with, if it has raised it.
static OPEN_FILES: OnceLock<u64> = OnceLock::new();

/// Raises the limit on open files of this process to `wanted`, or as far as the system allows. A
/// server of many clients needs it. Programs that are started later get the former limit, since
/// some close all descriptors up to the limit, or use select(2).
pub fn raise_open_files(wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if let Some(current) = current.filter(|current| *current < wanted)
        && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok()
    {
        let _ = OPEN_FILES.set(current);
    }
}

/// The number of open files that a command needs in addition to those it was started with: pipes of a program, and
/// those of the runtime.
const NEEDED: usize = 16;

/// Checks that this process can open the few files that every command needs.
///
/// # Errors
/// The limit on open files is too low, or too many are open.
pub fn ensure_descriptors() -> Result<(), String> {
    let opened: Result<Vec<_>, _> = (0..NEEDED).map(|_| std::fs::File::open("/dev/null")).collect();
    match opened {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            Err(format!("the limit on open files is {limit} (ulimit -n), and {NEEDED} more are needed: {error}"))
        }
        // Anything else shows where it matters.
        _ => Ok(()),
    }
}

/// Nothing but a process itself can set its limit before its program runs: a shell does so, and becomes the program.
pub(super) fn command(program: &OsStr) -> Command {
    let Some(limit) = OPEN_FILES.get() else { return Command::new(program) };
    // What cannot be started is started directly, for the system's own error.
    let Ok(path) = which::which(program) else { return Command::new(program) };
    if super::not_started::interpreter(&path).is_some_and(|interpreter| !std::path::Path::new(&interpreter).exists()) {
        return Command::new(program);
    }
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -S -n \"$0\"; exec \"$@\"", &limit.to_string()]).arg(path);
    command
}
