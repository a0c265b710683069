//! The fixed parts of a protocol's replies, as data. Each protocol has its own in its file.

#![cfg_attr(
    not(all(feature = "amplifier", feature = "namel3ss")),
    allow(dead_code, reason = "what only some protocols have")
)]

use crate::failure::{Failure, FailureKind};
use crate::json::write::Writer;
use crate::rpc;

/// The parts that the replies of a protocol are made of, in the order in which they are written.
#[derive(Debug)]
pub(crate) struct Phrases {
    /// Where the id stands.
    pub(crate) head: Head,
    /// What follows the head of a success, up to where its outputs go.
    pub(crate) success: &'static [u8],
    /// What form outputs have, and where the message goes.
    pub(crate) outputs: Outputs,
    /// What becomes of the outputs of a failure of the kind [`FailureKind::Failed`].
    pub(crate) failed: Failed,
    /// What follows the head of an error reply, up to its code.
    pub(crate) error: &'static [u8],
    /// The codes.
    pub(crate) codes: Codes,
    /// What follows the text of an error reply, up to the brackets that close it.
    pub(crate) error_end: &'static [u8],
    /// The same of the kind [`FailureKind::Forbidden`].
    pub(crate) forbidden_end: &'static [u8],
    /// What follows the head of an error reply to a line that is not JSON, up to its text. `"}}` ends it.
    pub(crate) parse_error: &'static [u8],
}

/// How a reply begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// With JSON-RPC's members; the id is null where there is none.
    JsonRpc,
    /// With the id alone, where there is one.
    Plain,
}

/// What form outputs have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outputs {
    /// Strings, in an object of their own that the message follows. This begins it.
    Strings(&'static [u8]),
    /// JSON, among the members of the result, where the message stands too.
    Json,
}

/// What becomes of the outputs of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The reply is a result in any case. This takes the place of [`Phrases::success`].
    Result(&'static [u8]),
    /// They go into the error, if there are any, and the code follows them. This begins it.
    Error(&'static [u8]),
    /// They are dropped.
    Dropped,
}

/// The codes of failures.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Codes {
    /// Numbers.
    Numbers(fn(FailureKind) -> i32),
    /// Names, in whose place a handler's own may stand.
    Names(fn(FailureKind) -> &'static str),
}

impl Phrases {
    /// Writes a reply's beginning, up to behind the id.
    pub(crate) fn write_head(&self, out: &mut Writer<'_>, id: &[u8]) {
        match self.head {
            Head::JsonRpc => rpc::write_head(out, id),
            Head::Plain => {
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
    }

    /// What goes before the first output.
    pub(crate) fn first_output(&self) -> &'static [u8] {
        match self.outputs {
            Outputs::Strings(start) => start,
            Outputs::Json => b"",
        }
    }

    /// Whether outputs are strings, in an object of their own.
    pub(crate) fn has_strings(&self) -> bool {
        matches!(self.outputs, Outputs::Strings(_))
    }

    /// Writes what follows the head of an error reply, up to where its text goes.
    pub(crate) fn write_error_start(&self, out: &mut Writer<'_>, kind: FailureKind, failure: &Failure) {
        out.raw(self.error);
        match self.codes {
            Codes::Numbers(code) => {
                out.i32(code(kind));
                out.raw(b",\"message\":\"");
            }
            Codes::Names(_) => {
                self.write_name(out, kind, failure);
                out.raw(b"\",\"message\":\"");
            }
        }
    }

    /// Writes the name of a failure, where there are names.
    pub(crate) fn write_name(&self, out: &mut Writer<'_>, kind: FailureKind, failure: &Failure) {
        if let Codes::Names(name) = self.codes {
            out.text_part(failure.code.unwrap_or(name(kind)));
        }
    }

    /// Writes what follows the text of an error reply, up to the brackets that close it.
    pub(crate) fn write_error_end(&self, out: &mut Writer<'_>, kind: FailureKind) {
        out.raw(if kind == FailureKind::Forbidden { self.forbidden_end } else { self.error_end });
    }

    /// Begins the reply to a line that is not JSON, up to where its text goes; [`rpc::end_error`] ends it.
    pub(crate) fn begin_parse_error(&self, out: &mut Writer<'_>) {
        self.write_head(out, b"");
        out.raw(self.parse_error);
    }
}
