//! The text that a protocol writes: the fixed parts of its replies, logs and progress, as data where data will do.

use crate::failure::FailureKind;
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::manifest::Manifest;
use crate::received::Received;

/// The parts that the replies of a protocol are made of, in the order in which they are written.
///
/// A success is `head` `success` [`Outputs`] `message` `close`; an error is `head` `error` text `error_end` `close`.
/// Outputs are written at once, before it is known whether the call will succeed: [`Failed`] defines what happens to
/// them if it fails.
#[derive(Debug)]
pub struct Phrases {
    /// Writes the beginning of every reply, up to behind its id; the id's JSON text is empty where there is none.
    pub head: fn(&mut Writer<'_>, &[u8]),
    /// The text after the head of a success, up to where its outputs go.
    pub success: &'static [u8],
    /// The form of outputs.
    pub outputs: Outputs,
    /// Where the message of a success goes.
    pub message: MessagePlace,
    /// Where [`Content`](crate::Content) goes; none where a piece of it is an output.
    pub content: Option<ContentPlace>,
    /// How outputs stay in the reply to a failure of the kind [`FailureKind::Failed`]; without it they are dropped, and the
    /// reply is an error like any other.
    pub failed: Option<Failed>,
    /// Writes what follows the head of an error reply, up to where its text goes. A handler's own code comes with it, see
    /// [`Failure::with_code`](crate::Failure::with_code).
    pub error: fn(&mut Writer<'_>, FailureKind, Option<&'static str>),
    /// Writes what follows the text of an error reply, up to what [`close`](Self::close) writes.
    pub error_end: fn(&mut Writer<'_>, FailureKind),
    /// The text after the head of an error reply to a line that is not JSON, up to its text. `"}}` ends it.
    pub parse_error: &'static [u8],
    /// Writes the end of a reply.
    pub close: fn(&mut Writer<'_>, &Closing<'_>),
    /// The destination of logs.
    pub logs: Logs,
    /// Writes a notification about a call's progress as a whole line without its newline, and returns whether it did:
    /// the caller may not have asked for progress. If it did not, the progress is logged.
    pub progress: Option<fn(&mut Writer<'_>, &Progress<'_>) -> bool>,
}

/// The form of outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outputs {
    /// The text before the first of them.
    pub start: &'static [u8],
    /// The text after the last of them, if no message follows.
    pub end: &'static [u8],
    /// Each is a JSON string: text as it is, anything else as its JSON text.
    pub as_strings: bool,
}

/// Where the message of a success goes: behind the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePlace {
    /// The text before a message that follows outputs.
    pub after_outputs: &'static [u8],
    /// The text before a message without outputs.
    pub alone: &'static [u8],
    /// The text after the message.
    pub end: &'static [u8],
    /// It is a member beside the outputs, so that there is none where an output is called `message`.
    pub is_beside_outputs: bool,
}

/// Where content goes: into a list of objects behind the outputs, which the message is a piece of.
#[derive(Debug, Clone, Copy)]
pub struct ContentPlace {
    /// The text before the first piece, if there are outputs.
    pub after_outputs: &'static [u8],
    /// The text before the first piece, if there are no outputs.
    pub alone: &'static [u8],
    /// The text before a message or an error that follows other pieces.
    pub before_text: &'static [u8],
}

/// How outputs stay in the reply to a call that failed.
#[derive(Debug, Clone, Copy)]
pub struct Failed {
    /// The replacement for [`Phrases::success`]. It must not be shorter than that.
    pub success: &'static [u8],
    /// The replacement for the [`start`](Outputs::start) of outputs, of the same length; empty if that stays.
    pub outputs_start: &'static [u8],
    /// A reply without outputs is an error like any other.
    pub with_outputs_only: bool,
    /// Writes what goes before the text: behind the outputs, if there are any. A handler's own code comes with it.
    pub before_text: fn(&mut Writer<'_>, bool, FailureKind, Option<&'static str>),
    /// The text after the message.
    pub end: &'static [u8],
}

/// Facts about a reply before its end is written.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Closing<'c> {
    /// The request; none where it could not be read any more.
    pub received: Option<Received<'c>>,
    /// The extension.
    pub manifest: &'c Manifest,
    /// The kind of failure that the reply reports as an error; none for a result.
    pub error: Option<FailureKind>,
    /// The operation's own code for it, if it has one.
    pub code: Option<&'static str>,
    /// Where the outputs are in what was written, without what is around them; both ends are the same if there are none. See
    /// [`Writer::repeat`].
    pub outputs: (usize, usize),
    /// Whether a message or [content](Phrases::content) was written.
    pub has_message: bool,
}

/// The member with a failed call's [kind](FailureKind::name), for protocols whose own code does not tell it. In gevals it is a member of `data`, in
/// MCP of `_meta`.
pub const KIND_NAME: &str = "rigline/kind";
/// The member with the operation's [own code](crate::Failure::with_code), for protocols that have no place for it.
pub const CODE_NAME: &str = "rigline/code";

/// Writes [`KIND_NAME`] and [`CODE_NAME`], those that there are, between `before` and `after`. Without either it writes nothing.
#[inline]
pub fn write_fault(
    out: &mut Writer<'_>,
    before: &[u8],
    kind: Option<FailureKind>,
    code: Option<&'static str>,
    after: &[u8],
) {
    if kind.is_some() || code.is_some() {
        write_kind_and_code(out, before, kind, code, after);
    }
}

// Apart from the success of a call, which is what most replies are.
#[cold]
#[inline(never)]
fn write_kind_and_code(
    out: &mut Writer<'_>,
    before: &[u8],
    kind: Option<FailureKind>,
    code: Option<&'static str>,
    after: &[u8],
) {
    let mut before = before;
    for (name, value) in [(KIND_NAME, kind.map(FailureKind::name)), (CODE_NAME, code)] {
        let Some(value) = value else { continue };
        out.raw(before);
        out.str(name);
        out.byte(b':');
        out.str(value);
        before = b",";
    }
    out.raw(after);
}

/// Writes `}}`, which closes a result or an error, and the reply.
pub fn close_two(out: &mut Writer<'_>, _: &Closing<'_>) {
    out.raw(b"}}");
}

/// Where the logs of a call go.
#[derive(Debug, Clone, Copy)]
pub enum Logs {
    /// Among the replies: writes one as a whole line without its newline. It may write nothing where the caller does not
    /// want it.
    Line(fn(&mut Writer<'_>, &Log<'_>)),
    /// Elsewhere, see [`Clock::log_out_of_band`](crate::Clock::log_out_of_band): the protocol's only lines are replies.
    OutOfBand,
}

/// A log line.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Log<'l> {
    /// How much it matters.
    pub level: Level,
    /// The text of the log.
    pub message: &'l dyn Message,
    /// Writes its data, a JSON object.
    pub data: Option<&'l dyn Fn(&mut Writer<'_>)>,
    /// The request that it is about.
    pub received: Option<Received<'l>>,
}

/// How far a call has come.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'p> {
    /// The amount that is done. It is more than last time, unless [`beat`](Self::beat) is set.
    pub done: u32,
    /// How often this progress was repeated while the handler waited. A repetition keeps a caller waiting that would
    /// otherwise end the call after a silence. It is added to `done` in millionths, so that each report is larger than
    /// the one before.
    pub beat: u32,
    /// The total, if it is known.
    pub total: Option<u32>,
    /// The current step, as a text.
    pub message: Option<&'p dyn Message>,
    /// The request.
    pub received: Option<Received<'p>>,
}
