//! SIGTERM and SIGINT (elsewhere Ctrl-C), as exit codes.

use std::io;

#[cfg(unix)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The exit code that says which signal came: 128 and its number.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            Some(()) = self.terminate.recv() => 128 + 15,
            Some(()) = self.interrupt.recv() => 128 + 2,
            else => std::future::pending().await,
        }
    }
}

#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    #[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 128 + 2,
            Err(_) => std::future::pending().await,
        }
    }
}
