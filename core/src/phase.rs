//! The phases of a task.

/// The phase of a task that a call belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Phase {
    /// The host did not send a phase, or sent an unknown word. The real gevals host always sends
    /// one.
    #[default]
    Unknown,
    /// The phase before the agent works.
    Setup,
    /// The phase after the agent has run.
    Verify,
    /// The phase at the end of the task, which runs also after a failure.
    Cleanup,
}
