//! The common parts of starting programs: its process group, its limits, its end when this process is gone, and
//! an error that says why it cannot be started.

#[cfg(unix)]
mod lifeline;
#[cfg(unix)]
mod limits;
mod not_started;
mod running;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) use lifeline::Lifeline;
pub use limits::{ensure_descriptors, raise_open_files};
pub use not_started::NotStarted;
pub use running::{Pipes, Running};

use crate::target::Exec;

/// The name of the command that contains the built-in rig.
pub const SIM_COMMAND: &str = "rigline";

static SIM: OnceLock<PathBuf> = OnceLock::new();

/// Declares that this program is the command `rigline`. The target `sim` then starts this program
/// with the argument `rig`, even if its file was replaced since. In other programs the target `sim`
/// starts `rigline` from `PATH`.
pub fn is_rigline() {
    if let Ok(this) = restart_path() {
        let _ = SIM.set(this);
    }
}

/// Returns the program that the target `sim` starts with the argument `rig`.
pub fn sim_program() -> Result<PathBuf, String> {
    if let Some(program) = SIM.get() {
        return Ok(program.clone());
    }
    let found = which::which(SIM_COMMAND).map_err(|_| {
        "the target sim is the command rigline, which is not in PATH; install it, or name it in Options::sim_program"
            .to_owned()
    })?;
    let is_same = |this: PathBuf| {
        fs::canonicalize(this).is_ok_and(|this| fs::canonicalize(&found).is_ok_and(|found| found == this))
    };
    if std::env::current_exe().is_ok_and(is_same) {
        return Err(format!("the target sim is the command rigline, and {} is this program itself", found.display()));
    }
    Ok(found)
}

/// Returns a path by which this program can be started again, even if its file was replaced since.
///
/// # Errors
/// The system does not tell the path.
pub fn restart_path() -> io::Result<PathBuf> {
    let itself = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && itself.exists() { Ok(itself.into()) } else { std::env::current_exe() }
}

/// Returns the path of this program's file. It is for texts that outlive the process; after an
/// upgrade the path leads to the new program.
///
/// # Errors
/// The system does not tell the path.
pub fn executable_path() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    // What Linux says of a file that was replaced (proc(5), `exe`).
    let replaced = path.as_os_str().to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|replaced| !path.exists() && replaced.exists()).unwrap_or(path))
}

/// The variable with the targets that a program was started within, one per line.
const WITHIN: &str = "RIGLINE_WITHIN";

/// Returns the environment variable that marks the processes started for `exec`.
///
/// # Errors
/// This process was itself started for `exec`, so it would start itself without end.
pub fn recursion_mark(exec: &Exec, folder: Option<&Path>) -> Result<(String, String), String> {
    let folder = folder.map(Path::to_owned).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let this = Exec {
        program: located(exec.program.as_ref(), Some(&folder)).to_string_lossy().into_owned(),
        args: exec.args.clone(),
    };
    // The words of a target may contain newlines. One word must not look like two.
    let this = format!("{} {this}", folder.display()).replace('\n', " ");
    let outer = std::env::var(WITHIN).unwrap_or_default();
    if outer.lines().any(|line| line == this) {
        return Err(format!("`{exec}` starts itself: this program runs within that very target"));
    }
    Ok((WITHIN.to_owned(), format!("{outer}{this}\n")))
}

/// Prepares the start of a program. It becomes the leader of its own process group, and gets the
/// limits that this process was started with. A relative path of the program begins at `folder`.
pub fn command(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    folder: Option<&Path>,
) -> Command {
    let program = located(program.as_ref(), folder);
    let mut command = limits::command(&program);
    command.args(args);
    #[cfg(unix)]
    {
        let (name, value) = lifeline::mark();
        command.env(name, value);
    }
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

fn located(program: &OsStr, folder: Option<&Path>) -> OsString {
    match folder {
        Some(folder) if is_path(program) && Path::new(program).is_relative() => {
            // The system may look for it before or after it has changed to the folder.
            let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
            folder.join(program).into_os_string()
        }
        _ => program.to_owned(),
    }
}

/// Returns whether the program exists. A path may be relative to `folder`; a name without a
/// separator is searched in `PATH`.
pub fn is_found(program: impl AsRef<OsStr>, folder: Option<&Path>) -> bool {
    let program = program.as_ref();
    if is_path(program) { Path::new(&located(program, folder)).exists() } else { which::which(program).is_ok() }
}

/// Whether it is the path of a file, and not a name to be found in `PATH`.
fn is_path(program: &OsStr) -> bool {
    program.as_encoded_bytes().iter().any(|byte| *byte == b'/' || (cfg!(windows) && *byte == b'\\'))
}

/// Makes writes beyond the limit on file sizes (`ulimit -f`) fail with an error, instead of ending
/// this process by SIGXFSZ. Programs that are started later have the default action of that signal.
pub fn write_errors_instead_of_signals() {
    #[cfg(unix)]
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() {
        // A signal that has a handler does not end the process. tokio never removes the handler; execve(2) does.
        let kind = tokio::signal::unix::SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        drop(runtime.block_on(async { tokio::signal::unix::signal(kind) }));
    }
}

/// Returns the end of a program's standard error in the form in which errors show it.
pub fn last_words(stderr: &str) -> String {
    let stderr = stderr.trim_end();
    if stderr.is_empty() { String::new() } else { format!("; standard error:\n{stderr}") }
}

#[cfg(not(unix))]
mod limits {
    use std::ffi::OsStr;
    use std::process::Command;

    /// Does nothing, since this system has no such limit.
    pub fn raise_open_files(_: u64) {}

    /// Does nothing, since this system has no such limit.
    ///
    /// # Errors
    /// None.
    pub fn ensure_descriptors() -> Result<(), String> {
        Ok(())
    }

    pub(super) fn command(program: &OsStr) -> Command {
        Command::new(program)
    }
}

#[cfg(not(unix))]
mod lifeline {
    /// This system has no process groups.
    #[derive(Debug)]
    pub(crate) struct Lifeline;

    impl Lifeline {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn hold(self, _: u32) -> Self {
            self
        }
    }
}
