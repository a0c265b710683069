//! The signals that ask a program to end properly: SIGTERM, SIGINT and SIGHUP; elsewhere Ctrl-C.

use std::io;

/// The signals that ask a program to end: SIGTERM, SIGINT and SIGHUP. As soon as this value exists,
/// none of them ends the process by itself.
///
/// SIGHUP is left alone if the process was started with SIGHUP ignored, as `nohup` does. This is
/// detected on Linux only.
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
    /// Begins to listen for the signals, in the current tokio runtime.
    ///
    /// # Errors
    /// The system accepts no handler for a signal.
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

    /// Waits for the next signal. Returns the exit code for it: 128 plus its number, as shells have
    /// it.
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

/// Whether this process ignores SIGHUP, as it was started (proc(5): `SigIgn`, a mask whose lowest
/// bit is signal 1).
#[cfg(unix)]
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

#[cfg(not(unix))]
impl Signals {
    /// Begins to listen for Ctrl-C, in a tokio runtime.
    ///
    /// # Errors
    /// None on this system.
    pub fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for Ctrl-C. Returns the exit code for it: 128 plus 2, as shells have it.
    pub async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 128 + 2,
            Err(_) => std::future::pending().await,
        }
    }
}
