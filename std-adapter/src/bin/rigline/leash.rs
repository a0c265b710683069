use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::connect::complain;

/// Run a program that ends, with all that it has started, when a process is gone
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Arguments {
    /// The process, which must be this one's parent
    parent: u32,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    words: Vec<OsString>,
}

/// How often it is looked whether the parent is there. Its end is seen on every Unix by who has become the new one.
const INTERVAL: Duration = Duration::from_millis(50);

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().map(OsString::as_os_str).unwrap_or_default());
        command.args(words);
        let parent = self.parent;
        // Before the program is there, so that it is never there alone.
        let watch = move || {
            while is_parent(parent) {
                thread::sleep(INTERVAL);
            }
            end_group();
        };
        let ended = thread::Builder::new().spawn(watch).and_then(|_| command.status());
        ended.map_or_else(|error| self.refused(&error), end_as)
    }

    fn refused(&self, error: &io::Error) -> ExitCode {
        let program = self.words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        complain(format_args!("rigline: `{program}` cannot be started: {error}"));
        ExitCode::from(127)
    }
}

/// Ends as the program did, by a signal too.
fn end_as(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt as _;
        if let Some(number) = status.signal() {
            // Twice: Rust's own handler of some only takes itself away.
            for signal in rustix::process::Signal::from_named_raw(number).into_iter().cycle().take(2) {
                let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
            }
            // As a shell has it, of one that is ignored here.
            return u8::try_from(number)
                .ok()
                .and_then(|number| number.checked_add(128))
                .map_or(ExitCode::FAILURE, ExitCode::from);
        }
    }
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(unix)]
fn is_parent(process: u32) -> bool {
    rustix::process::getppid().is_some_and(|parent| u32::try_from(parent.as_raw_nonzero().get()) == Ok(process))
}

/// Ends this process and its group, if it has one of its own.
#[cfg(unix)]
fn end_group() {
    if rustix::process::getpgrp() == rustix::process::getpid() {
        let _ = rustix::process::kill_current_process_group(rustix::process::Signal::KILL);
    }
    std::process::exit(1);
}

#[cfg(not(unix))]
fn is_parent(_: u32) -> bool {
    true
}

#[cfg(not(unix))]
fn end_group() {}
