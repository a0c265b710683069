//! How much a log line matters.

/// How much a log line matters: gevals "Log (Notification)".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Level {
    /// For debugging.
    Debug,
    /// Progress.
    Info,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

impl Level {
    /// The level's name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}
