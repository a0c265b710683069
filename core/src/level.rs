//! The importance of a log line.

/// The importance of a log line, as in gevals "Log (Notification)".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Level {
    /// A log for somebody who debugs the extension.
    Debug,
    /// A report of normal progress.
    Info,
    /// Something unusual that is not an error.
    Warn,
    /// An error.
    Error,
}

impl Level {
    /// The name of the level in protocols: `debug`, `info`, `warn` or `error`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}
