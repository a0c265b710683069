//! Messages for people on standard error. A message is dropped if standard error is full, because a
//! full pipe would block the caller.

use std::fmt;
use std::io::{self, Write as _};

use rigline::Level;

/// Writes a log of a handler, in protocols that have no lines for logs.
pub fn log(level: Level, text: &str) {
    write(format_args!("{}: {text}\n", level.name()));
}

/// Writes a message of this library.
pub fn complain(text: fmt::Arguments<'_>) {
    write(format_args!("rigline: {text}\n"));
}

fn write(line: fmt::Arguments<'_>) {
    if has_room() {
        // One write, so that the lines of two processes do not mix. A failure cannot be reported
        // anywhere else.
        let _ = io::stderr().write_all(line.to_string().as_bytes());
    }
}

#[cfg(unix)]
fn has_room() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let (stderr, at_once) = (io::stderr(), Timespec { tv_sec: 0, tv_nsec: 0 });
    let ready = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&at_once)));
    matches!(ready, Ok(1..))
}

#[cfg(not(unix))]
fn has_room() -> bool {
    true
}
