//! The signals that ask a program to end properly: SIGTERM, SIGINT and SIGHUP; elsewhere Ctrl-C.

use std::io;

/// Waits for the signals that ask a program to end. From the moment it is made, none of them ends the process any more.
///
/// SIGHUP is left alone where the process was started with it ignored, as `nohup` does (on Linux, where that can be seen).
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    /// For use in the tokio runtime that this is called in.
    ///
    /// # Errors
    /// The system takes no handler.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or in one without I/O.
    pub fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: if hang_up_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    /// The exit code that says which signal came: 128 and its number, as shells have it.
    pub async fn next(&mut self) -> u8 {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => None,
            }
        };
        tokio::select! {
            Some(()) = self.terminate.recv() => 128 + 15,
            Some(()) = self.interrupt.recv() => 128 + 2,
            Some(()) = hang_up => 128 + 1,
            else => std::future::pending().await,
        }
    }
}

/// Whether this process ignores SIGHUP, as it was started (proc(5): `SigIgn`, a mask whose lowest bit is signal 1).
#[cfg(unix)]
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

#[cfg(not(unix))]
impl Signals {
    /// For use in a tokio runtime.
    ///
    /// # Errors
    /// None here.
    pub fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// The exit code that says which signal came: 128 and its number, as shells have it.
    pub async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 128 + 2,
            Err(_) => std::future::pending().await,
        }
    }
}
