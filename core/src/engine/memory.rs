//! The memory of an engine, and its least sizes.

use core::fmt;

use crate::exchange::LEAST_REPLY;

/// The memory of an engine. It is the caller's, is never asked for more, and each part has a name.
#[derive(Debug)]
pub struct Memory<'m> {
    /// Lines as they come in: at least one byte. A line may be one byte shorter than this, its end apart; a longer one is
    /// answered with an error that names the limit.
    pub request: &'m mut [u8],
    /// The reply as it grows: at least [`LEAST_REPLY`] bytes. A reply may be one byte shorter than this; in place of a
    /// longer one goes -32603 with the size it needs.
    pub reply: &'m mut [u8],
}

/// A region of [`Memory`] is too small to serve anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TooSmall {
    /// The request region is empty: nothing could be read into it.
    Request,
    /// The list of protocols is empty: nothing could be answered.
    Protocols,
    /// The reply region is below [`LEAST_REPLY`].
    Reply {
        /// The size of the reply, in bytes.
        size: usize,
    },
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => f.write_str("the request region is empty"),
            Self::Protocols => f.write_str("the list of protocols is empty"),
            Self::Reply { size } => {
                write!(f, "a reply region of {size} bytes is below the least size of {LEAST_REPLY}")
            }
        }
    }
}

impl core::error::Error for TooSmall {}
