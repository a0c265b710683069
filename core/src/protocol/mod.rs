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

pub mod amplifier;
pub mod gevals;
pub mod mcp;
pub mod namel3ss;
pub mod waza;

pub use amplifier::AMPLIFIER;
pub use gevals::GEVALS;
pub use mcp::MCP;
pub use namel3ss::NAMEL3SS;

pub use crate::definition::{Action, Busy, CallAction, Facts, Protocol, Read, Refuse, Respond};
pub use crate::json::check::{Member, Members, SLOTS, Span};
pub use crate::phrases::{Closing, ContentPlace, Failed, Log, Logs, MessagePlace, Outputs, Phrases, Progress, close_two};
pub use crate::received::{Code, Envelope, Quoted, Received, Refusal};

/// All protocols, in the order in which they claim a message that has the markers of several.
pub const ALL: &[&Protocol] = &[GEVALS, MCP, AMPLIFIER, NAMEL3SS];
