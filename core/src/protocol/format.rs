//! The text that a protocol writes: the fixed parts of its replies, logs and progress. They are
//! data where possible, and functions otherwise.

use crate::failure::FailureKind;
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::manifest::Manifest;
use crate::message::Received;

/// The parts of a protocol's replies, in the order in which they are written.
///
/// A success consists of `head`, `success`, [`OutputsPlace`], `message` and `close`. An error consists
/// of `head`, `error`, its text, `error_end` and `close`. Outputs are written before it is known
/// whether the call will succeed. [`Failed`] says what happens to them if it fails.
#[derive(Debug)]
pub struct ReplyFormat {
    /// Writes the beginning of a reply, up to the end of its id. The second argument is the JSON
    /// text of the id, or empty if there is no id.
    pub head: fn(&mut Writer<'_>, &[u8]),
    /// The text of a success between the head and the outputs.
    pub success: &'static [u8],
    /// The form of outputs.
    pub outputs: OutputsPlace,
    /// The place of a success's message.
    pub message: MessagePlace,
    /// The place of [`Content`](crate::Content). If it is none, a piece of content is written as an
    /// output.
    pub content: Option<ContentPlace>,
    /// The way in which outputs stay in the reply to a failure of the kind [`FailureKind::Failed`].
    /// If it is none, outputs are dropped, and the reply is an error like any other.
    pub failed: Option<Failed>,
    /// Writes the part of an error reply between its head and its text. The third argument is the
    /// extension's own error code, see [`Failure::with_code`](crate::Failure::with_code).
    pub error: fn(&mut Writer<'_>, FailureKind, Option<&'static str>),
    /// Writes the part of an error reply between its text and the part that [`close`](Self::close)
    /// writes.
    pub error_end: fn(&mut Writer<'_>, FailureKind),
    /// The part of the error reply to a line that is not JSON, between its head and its text. `"}}`
    /// ends that reply.
    pub parse_error: &'static [u8],
    /// Writes the end of a reply.
    pub close: fn(&mut Writer<'_>, &ReplyFacts<'_>),
    /// The destination of logs.
    pub logs: Logs,
    /// Writes a notification about a call's progress as a whole line without its newline. Returns
    /// false if it wrote none, because the caller did not ask for progress. The progress is then
    /// logged.
    pub progress: Option<fn(&mut Writer<'_>, &Progress<'_>) -> bool>,
}

/// The form of outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputsPlace {
    /// The text before the first output.
    pub start: &'static [u8],
    /// The text after the last output, if no message follows.
    pub end: &'static [u8],
    /// Whether each output is written as a JSON string: text as it is, and any other value as its
    /// JSON text.
    pub as_strings: bool,
}

/// The place of a success's message, after the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePlace {
    /// The text before a message that follows outputs.
    pub after_outputs: &'static [u8],
    /// The text before a message without outputs.
    pub alone: &'static [u8],
    /// The text after the message.
    pub end: &'static [u8],
    /// Whether the message is a member beside the outputs. It is then left out if an output is
    /// called `message`.
    pub is_beside_outputs: bool,
}

/// The place of content: a list of objects after the outputs. The message is an element of this
/// list.
#[derive(Debug, Clone, Copy)]
pub struct ContentPlace {
    /// The text before the first piece, if there are outputs.
    pub after_outputs: &'static [u8],
    /// The text before the first piece, if there are no outputs.
    pub alone: &'static [u8],
    /// The text before a message or an error that follows other content.
    pub before_text: &'static [u8],
}

/// The way in which outputs stay in the reply to a call that failed.
#[derive(Debug, Clone, Copy)]
pub struct Failed {
    /// The replacement for [`ReplyFormat::success`]. It must be at least as long.
    pub success: &'static [u8],
    /// The replacement for the [`start`](OutputsPlace::start) of outputs, of the same length. If it is
    /// empty, the start stays.
    pub outputs_start: &'static [u8],
    /// Whether this form is used only if there are outputs. A reply without outputs is then an
    /// error like any other.
    pub with_outputs_only: bool,
    /// Writes the part before the text of the failure. The second argument says whether there are
    /// outputs before it. The last argument is the extension's own error code.
    pub before_text: fn(&mut Writer<'_>, bool, FailureKind, Option<&'static str>),
    /// The text after the text of the failure.
    pub end: &'static [u8],
}

/// Facts about a reply, for the function that writes its end.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ReplyFacts<'c> {
    /// The request; none if it cannot be read any more.
    pub received: Option<Received<'c>>,
    /// The manifest of the extension.
    pub manifest: &'c Manifest,
    /// The kind of failure, if the reply is an error; none for a result.
    pub error: Option<FailureKind>,
    /// The extension's own error code, if the failure has one.
    pub code: Option<&'static str>,
    /// The span of the outputs in the text that was written, without their brackets. Both ends are
    /// equal if there are no outputs. See [`Writer::repeat`].
    pub outputs: (usize, usize),
    /// Whether a message or [content](ReplyFormat::content) was written.
    pub has_message: bool,
}

/// The name of the member with the [kind](FailureKind::name) of a failure, for protocols whose
/// error codes do not tell the kind. gevals has it in `data`, MCP in `_meta`.
pub const KIND_NAME: &str = "rigline/kind";
/// The name of the member with the extension's [own error code](crate::Failure::with_code), for
/// protocols that have no place for it.
pub const CODE_NAME: &str = "rigline/code";

/// Writes the members [`KIND_NAME`] and [`CODE_NAME`] between `before` and `after`. A member
/// without a value is left out. Without both values, nothing is written.
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

/// Writes `}}`, which closes a result or an error and then the reply.
pub fn close_two(out: &mut Writer<'_>, _: &ReplyFacts<'_>) {
    out.raw(b"}}");
}

/// The destination of the logs of a call.
#[derive(Debug, Clone, Copy)]
pub enum Logs {
    /// Logs are lines between the replies. The function writes one log as a whole line without its
    /// newline. It writes nothing if the caller does not want the log.
    Line(fn(&mut Writer<'_>, &Log<'_>)),
    /// The protocol has no lines for logs. They go to
    /// [`Clock::log_out_of_band`](crate::Clock::log_out_of_band).
    OutOfBand,
}

/// A log line, for the function that writes it.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Log<'l> {
    /// The importance of the log.
    pub level: Level,
    /// The text of the log.
    pub message: &'l dyn Message,
    /// Writes the data of the log, a JSON object, if there is any.
    pub data: Option<&'l dyn Fn(&mut Writer<'_>)>,
    /// The request that the log is about, if there is one.
    pub received: Option<Received<'l>>,
}

/// The progress of a call, for the function that writes it.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'p> {
    /// The amount that is done. It is greater than in the report before, unless
    /// [`beat`](Self::beat) is not zero.
    pub done: u32,
    /// The number of times that this progress was repeated while the handler waited. A repetition
    /// tells a caller that would otherwise end the call after a silence to wait on. It is added to
    /// `done` in millionths, so that each reported number is greater than the one before.
    pub beat: u32,
    /// The total amount, if it is known.
    pub total: Option<u32>,
    /// A description of the current step, if there is one.
    pub message: Option<&'p dyn Message>,
    /// The request whose progress this is.
    pub received: Option<Received<'p>>,
}
