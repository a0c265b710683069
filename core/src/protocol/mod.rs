//! The protocols of this crate, one file each. Only that file knows the names, codes and words of
//! its protocol.
//!
//! A protocol is a value of type [`Protocol`]. An engine gets a list of them. To write one:
//!
//! 1. Give each member that matters a slot, and list the members in the order in which peers send
//!    them. The marker, by which a message is recognised, has slot 0. A protocol over JSON-RPC
//!    lists the members below `params`, from [`rpc::FIRST_FREE`](crate::rpc::FIRST_FREE) on, and
//!    [`rpc::members`](crate::rpc::members) adds the envelope.
//! 2. Write the [`ReplyFormat`]: the text between the head, outputs, message and end of a reply, the
//!    beginning of an error, and the form of logs and progress. Most of it is data.
//! 3. Write the function that reads a request. It turns a [`Received`] message into an [`Action`],
//!    or into a constant [`Refusal`]. It runs nothing and keeps nothing. If a call needs something
//!    later, such as a progress token, read it again from the [`Received`]. Logs, progress, the end
//!    of the reply and the handler's [`CallContext`](crate::CallContext) get it.
//! 4. Set by the setters of [`Protocol`] what differs from the default: ids, the test that
//!    distinguishes the protocol from others with the same marker, and what is answered or
//!    cancelled while a call runs.
//!
//! ```
//! use rigline::json::check::WatchedMember;
//! use rigline::protocol::{
//!     Action, CallAction, Code, ServerState, GEVALS, Logs, MessagePlace, OutputsPlace, ReplyFormat, Protocol, Received,
//!     Refusal,
//! };
//!
//! // {"ping":"OPERATION","with":{…}} is answered with {"pong":{…}} or {"pang":"…"}.
//! const PING: usize = 0;
//! const WITH: usize = 1;
//! static MEMBERS: [WatchedMember; 2] = [WatchedMember::new("ping", PING), WatchedMember::new("with", WITH)];
//! static FORMAT: ReplyFormat = ReplyFormat {
//!     head: |out, _id| out.byte(b'{'),
//!     success: b"\"pong\":{",
//!     outputs: OutputsPlace { start: b"", end: b"", as_strings: false },
//!     message: MessagePlace {
//!         after_outputs: b",\"message\":\"",
//!         alone: b"\"message\":\"",
//!         end: b"\"",
//!         is_beside_outputs: true,
//!     },
//!     content: None,
//!     failed: None,
//!     error: |out, _kind, _code| out.raw(b"\"pang\":\""),
//!     error_end: |_, _| {},
//!     parse_error: b"\"pang\":{\"unreadable\":\"",
//!     close: |out, closing| out.raw(if closing.error.is_some() { b"\"}" } else { b"}}" }),
//!     logs: Logs::OutOfBand,
//!     progress: None,
//! };
//!
//! fn read(received: &Received<'_>, server: &ServerState<'_>) -> Result<Action, &'static Refusal> {
//!     const UNKNOWN: &Refusal = &Refusal::quoting(Code::Name(""), "no operation answers to ", PING);
//!     let known = server.manifest.operations.iter().position(|known| received.is(PING, known.name));
//!     let index = known.ok_or(UNKNOWN)?;
//!     Ok(CallAction::new(received, index, received.span(WITH), received.span(PING)).into())
//! }
//!
//! static PING_PONG: Protocol = Protocol::new("ping-pong", &MEMBERS, PING, &FORMAT, read, |out, received, refusal, _| {
//!     out.raw(b"\"pang\":\"");
//!     refusal.write_text(out, received);
//!     out.raw(b"\"}");
//! });
//!
//! static PROTOCOLS: &[&Protocol] = &[&PING_PONG, GEVALS];
//! ```
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
//! | `NoAnswer`: the program behind the extension gave no answer | -32000 | `unreachable` | `OperationFailed` |
//!
//! The handler's own code takes the place of Amplifier's and namel3ss's code for every kind. A
//! reply has the kind in a member of rigline, [`KIND_NAME`], if its code does not tell the kind. It
//! has the own code in [`CODE_NAME`], if the protocol has no place for it. In gevals these members
//! are in `data`, beside the other members of an `error` or a `result`; in Amplifier and namel3ss
//! among the members of `error`; in MCP in the result's `_meta`. Three kinds are told by their code
//! alone, unless the handler has its own code: gevals' `Forbidden` and `TooLarge`, and namel3ss's
//! `BadArguments`. Each protocol's `failure_kind` turns a code into a kind.
//! `tests/vectors/failures.json` has all of this as data.

pub mod amplifier;
pub(crate) mod define;
pub(crate) mod format;
pub mod gevals;
pub mod mcp;
pub mod namel3ss;
pub mod waza;

pub use crate::message::{Code, Envelope, Quoted, Received, Refusal};
pub use define::{Action, Busy, CallAction, Protocol, Read, Refuse, Respond, ServerState};
pub use format::{
    CODE_NAME, ContentPlace, Failed, KIND_NAME, Log, Logs, MessagePlace, OutputsPlace, Progress, ReplyFacts,
    ReplyFormat, close_two, write_fault,
};

/// Amplifier Module Protocol v1, for an engine's list of protocols.
pub const AMPLIFIER: &Protocol = &amplifier::PROTOCOL;

/// The gevals Extension Protocol 0.0.1 over JSON-RPC 2.0, for an engine's list of protocols.
pub const GEVALS: &Protocol = &gevals::PROTOCOL;

/// The Model Context Protocol (both eras), for an engine's list of protocols.
pub const MCP: &Protocol = &mcp::PROTOCOL;

/// The namel3ss tool protocol 1, for an engine's list of protocols.
pub const NAMEL3SS: &Protocol = &namel3ss::PROTOCOL;

/// All protocols. A message with the markers of several belongs to the first of them in this order.
pub const ALL: &[&Protocol] = &[GEVALS, MCP, AMPLIFIER, NAMEL3SS];
