//! The protocols: one file each, the only place that knows its member names and codes.
//!
//! How each of them encodes a [`Failure`](crate::Failure):
//!
//! | [`FailureKind`](crate::FailureKind) | gevals | Amplifier `error.code` | namel3ss `error.type` |
//! |---|---|---|---|
//! | `Failed`: the operation's own logic | `result` with `success:false` | the handler's code, else `internal` | the handler's code, else `OperationFailed` |
//! | `UnknownOperation` | -32601 | `unsupported_op` | `UnknownTool` |
//! | `BadArguments` | -32602, naming the argument | `bad_request` | `ValueError` |
//! | `Unreachable`: could not be carried out | -32000 | `unreachable` | `OperationFailed` |
//! | `Timeout` | -32001 | `timeout` | `TimeoutError` |
//! | `RequirementNotMet` | -32002 | `unreachable` | `RequirementNotMet` |
//! | `Forbidden` | -32000 | `forbidden` | `CapabilityViolation`, `reason_code: guarantee_blocked` |
//! | `TooLarge`: does not fit a buffer | -32603, with the size needed | `oom` | `MemoryError` |
//! | `Internal` | -32603 | `internal` | `InternalError` |

#[cfg(feature = "amplifier")]
pub mod amplifier;
pub mod gevals;
#[cfg(feature = "namel3ss")]
pub mod namel3ss;
#[cfg(feature = "waza")]
pub mod waza;

use crate::json::check::Span;
use crate::phrases::Phrases;

/// A protocol that an engine speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Protocol {
    /// gevals 0.0.1, over JSON-RPC 2.0.
    #[default]
    Gevals,
    /// Amplifier Module Protocol v1. Feature `amplifier`.
    Amplifier,
    /// namel3ss tool protocol 1. Feature `namel3ss`.
    Namel3ss,
}

/// What a request asks for, in whatever words.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    /// To begin a session, with a configuration if there is one.
    Initialize { config: Span },
    /// To run an operation.
    Execute { index: usize, args: Span },
    /// To end the session.
    Shutdown,
    /// Whether anybody is there.
    #[cfg(feature = "amplifier")]
    Health,
    /// What there is.
    #[cfg(feature = "amplifier")]
    Describe,
    /// To take note of an event: acknowledged first, worked on then.
    #[cfg(feature = "amplifier")]
    Event { event: Span },
}

impl Protocol {
    /// The protocol itself if it is compiled in, else gevals: the compiler sees by it that the words of the others are not
    /// needed.
    #[inline(always)]
    pub(crate) fn spoken(self) -> Self {
        match self {
            #[cfg(feature = "amplifier")]
            Self::Amplifier => self,
            #[cfg(feature = "namel3ss")]
            Self::Namel3ss => self,
            _ => Self::Gevals,
        }
    }

    /// The fixed parts of its replies.
    #[inline(always)]
    pub(crate) fn phrases(self) -> &'static Phrases {
        match self.spoken() {
            #[cfg(feature = "amplifier")]
            Self::Amplifier => &amplifier::PHRASES,
            #[cfg(feature = "namel3ss")]
            Self::Namel3ss => &namel3ss::PHRASES,
            _ => &gevals::PHRASES,
        }
    }
}
