//! The memory of an engine, and its smallest sizes.

use core::fmt;

use crate::exchange::LEAST_REPLY;

/// The memory of an engine. The caller owns it, and the engine never needs more.
#[derive(Debug)]
pub struct Memory<'m> {
    /// Memory for input: at least one byte. The longest line is one byte shorter than this region,
    /// without its line end. A longer line is answered with an error that names the limit.
    pub request: &'m mut [u8],
    /// Memory for the reply: at least [`LEAST_REPLY`] bytes. The longest reply is one byte shorter
    /// than this region. In place of a longer one the caller gets error -32603 with the size that
    /// is needed.
    pub reply: &'m mut [u8],
}

/// The reason why an engine cannot be made: a region of [`Memory`] is too small, or there is no
/// protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TooSmall {
    /// The request region is empty, so nothing could be read.
    Request,
    /// The list of protocols is empty, so nothing could be answered.
    Protocols,
    /// The reply region is shorter than [`LEAST_REPLY`].
    Reply {
        /// The size of the given reply region, in bytes.
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
