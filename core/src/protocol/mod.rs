//! The protocols: one file each, the only place that knows its member names and codes.
//!
//! How each of them spells a [`Failure`]:
//!
//! | [`FailureKind`] | gevals | Amplifier `error.code` | namel3ss `error.type` |
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

use crate::failure::{Failure, FailureKind};
use crate::json::check::Span;
use crate::json::write::Writer;
use crate::rpc;

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

    /// Writes a reply's beginning, up to behind the id.
    pub(crate) fn write_head(self, out: &mut Writer<'_>, id: &[u8]) {
        if self.spoken() == Self::Gevals {
            rpc::write_head(out, id);
        } else {
            out.byte(b'{');
            if !id.is_empty() {
                out.raw(b"\"id\":");
                // Any JSON may be an id here. A CR between its tokens would end the line for a reader on a serial line.
                for piece in id.split(|byte| *byte == b'\r') {
                    out.raw(piece);
                }
                out.byte(b',');
            }
        }
    }

    /// What follows the head of a success, up to where its outputs go.
    pub(crate) fn success(self) -> &'static [u8] {
        match self.spoken() {
            Self::Gevals => b",\"result\":{\"success\":true",
            Self::Amplifier => b"\"ok\":true,\"result\":{",
            Self::Namel3ss => b"\"ok\":true,\"protocol_version\":1,\"result\":{",
        }
    }

    pub(crate) fn first_output(self) -> &'static [u8] {
        if self.spoken() == Self::Gevals { b",\"outputs\":{" } else { b"" }
    }

    /// What follows the head of a failure that keeps its outputs, up to where they go.
    pub(crate) fn failure_with_outputs(self) -> &'static [u8] {
        match self.spoken() {
            Self::Gevals => b",\"result\":{\"success\":false",
            Self::Amplifier | Self::Namel3ss => b"\"ok\":false,\"error\":{\"details\":{",
        }
    }

    /// The protocol's own name for a failure, where it has names for them.
    pub(crate) fn name_of(self, kind: FailureKind, code: Option<&'static str>) -> &'static str {
        let _ = kind;
        match (self.spoken(), code) {
            #[cfg(feature = "amplifier")]
            (Self::Amplifier, code) => code.unwrap_or(amplifier::code(kind)),
            #[cfg(feature = "namel3ss")]
            (Self::Namel3ss, code) => code.unwrap_or(namel3ss::error_type(kind)),
            _ => "",
        }
    }

    /// Writes what follows the head of an error reply, up to where its text goes.
    pub(crate) fn write_error_start(self, out: &mut Writer<'_>, kind: FailureKind, failure: &Failure) {
        match self.spoken() {
            Self::Gevals => return rpc::begin_error(out, gevals::code(kind)),
            Self::Amplifier => {
                out.raw(b"\"ok\":false,\"error\":{\"code\":\"");
                out.text_part(self.name_of(kind, failure.code));
                out.byte(b'"');
            }
            Self::Namel3ss => {
                out.raw(b"\"ok\":false,\"protocol_version\":1,\"error\":{\"type\":\"");
                out.text_part(self.name_of(kind, failure.code));
                out.byte(b'"');
            }
        }
        out.raw(b",\"message\":\"");
    }

    /// Writes what follows the text of an error reply, up to the brackets that close it.
    pub(crate) fn write_error_end(self, out: &mut Writer<'_>, kind: FailureKind) {
        out.raw(match (self.spoken(), kind) {
            (Self::Namel3ss, FailureKind::Forbidden) => b"\",\"reason_code\":\"guarantee_blocked\"".as_slice(),
            _ => b"\"",
        });
    }

    /// Begins an error reply to what could not be read as a request at all, up to where its text goes;
    /// [`rpc::end_error`] ends it.
    pub(crate) fn begin_fault(self, out: &mut Writer<'_>, id: &[u8], code: i32) {
        self.write_head(out, id);
        match self.spoken() {
            Self::Gevals => rpc::begin_error(out, code),
            Self::Amplifier => out.raw(b"\"ok\":false,\"error\":{\"code\":\"bad_request\",\"message\":\""),
            Self::Namel3ss => {
                out.raw(b"\"ok\":false,\"protocol_version\":1,\"error\":{\"type\":\"ProtocolError\",\"message\":\"");
            }
        }
    }
}
