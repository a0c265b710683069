//! A reply as it grows in the reply region: head first, outputs as they come, the end when the outcome is known.
//!
//! gevals: `{"jsonrpc":"2.0","id":ID` `,"result":{"success":true` `,"outputs":{…` `},"message":"…"` `}}`
//! the others: `{"id":ID,` `"ok":true,"result":{` `…` `,"message":"…"` `}}`

use crate::call::Outcome;
use crate::content::Content;
use crate::failure::{Detail, Failure, FailureKind, Origin};
use crate::json::Text;
use crate::json::check::{SyntaxError, SyntaxErrorKind, check};
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::manifest::Manifest;
use crate::message::Received;
use crate::protocol::define::Protocol;
use crate::protocol::format::{ReplyFacts, ReplyFormat};
use crate::rpc::writer;

/// The state of one reply; its memory is passed beside it.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact about the reply that is independent of the others")]
pub(crate) struct Reply {
    /// Where the reply starts: behind those of earlier members in a batch.
    start: usize,
    /// The first byte that it may not use.
    limit: usize,
    protocol: &'static Protocol,
    /// Behind the id.
    head: usize,
    /// Behind what says that it is a success, where outputs begin.
    body: usize,
    /// An output is called `message`, so that the message must not be.
    has_message: bool,
    /// Behind all that was written; beyond `limit` it only counts.
    end: usize,
    stage: Stage,
    /// Where the outputs ended when the message was written; 0 if there were none.
    outputs_end: usize,
    /// A bit for the name of each output there is, by a hash: a name whose bit is not set is new.
    names: u32,
    /// An output had no JSON form, or the name of another.
    fault: Option<Fault>,
    /// An output did not fit: what the reply needs is not known to the byte.
    at_least: bool,
    /// It ended as an error.
    is_error: bool,
    /// Where the text of a failure waits: behind all else, so that it is lost when more is written. It may end beyond
    /// `limit`, and is not there then.
    text: Option<(usize, usize)>,
    /// The least level of logs that are wanted besides; none are if there is none.
    pub(crate) least_log: Option<Level>,
    /// Whether something may be switched on.
    pub(crate) is_touched: bool,
}

/// The name of the output that says so.
const NOTICE: &str = "outputs_switched_off";

/// The message to callers when the safe state was brought about.
pub(crate) const MADE_SAFE: &str =
    "all outputs are off now: a call was cancelled or out of time, or a session ended or was idle";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The message is a notification: no reply is written.
    Silent,
    NoOutputs,
    InOutputs,
    /// Content was written, and no message.
    InContent,
    /// The message was written, and nothing can follow it.
    Closed,
}

/// Facts that the end of a reply may depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyContext<'c> {
    pub(crate) received: Option<Received<'c>>,
    pub(crate) manifest: &'c Manifest,
}

impl Reply {
    /// No reply yet.
    pub(crate) const fn new(protocol: &'static Protocol) -> Self {
        Self {
            start: 0,
            limit: 0,
            protocol,
            head: 0,
            body: 0,
            has_message: false,
            end: 0,
            stage: Stage::Silent,
            outputs_end: 0,
            names: 0,
            fault: None,
            at_least: false,
            is_error: false,
            text: None,
            least_log: None,
            is_touched: true,
        }
    }

    /// Starts a reply at `start` of `memory` that ends before `limit`.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn begin(
        &mut self,
        memory: &mut [u8],
        start: usize,
        limit: usize,
        protocol: &'static Protocol,
        id: &[u8],
    ) {
        let mut out = writer(memory, start, limit);
        (protocol.format.head)(&mut out, id);
        let head = out.len();
        out.raw(protocol.format.success);
        let end = out.len();
        *self = Self { start, limit, head, body: end, end, stage: Stage::NoOutputs, ..Self::new(protocol) };
    }

    /// Stands in for the reply of a notification, or of what was answered already. Logs keep the route of its protocol.
    pub(crate) fn silent(&mut self, protocol: &'static Protocol) {
        *self = Self::new(protocol);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.stage == Stage::Silent
    }

    /// The protocol that it is written in.
    pub(crate) fn protocol(&self) -> &'static Protocol {
        self.protocol
    }

    pub(crate) fn is_error(&self) -> bool {
        self.is_error
    }

    pub(crate) fn format(&self) -> &'static ReplyFormat {
        self.protocol.format
    }

    /// Says, as the first output, that the safe state was brought about.
    #[cold]
    #[inline(never)]
    pub(crate) fn notice(&mut self, memory: &mut [u8]) {
        // One that does not fit is told by the reply's own error.
        let _ = self.output(memory, NOTICE, &|out| {
            out.str(MADE_SAFE);
            true
        });
    }

    /// Adds an output; `value` writes it, and returns whether it has a JSON form.
    pub(crate) fn output(
        &mut self,
        memory: &mut [u8],
        name: &str,
        value: &dyn Fn(&mut Writer<'_>) -> bool,
    ) -> Result<(), Failure> {
        match self.stage {
            Stage::Silent => return Ok(()),
            Stage::InContent | Stage::Closed => {
                return Err(Failure::new(FailureKind::Internal, "an output after the message or the content"));
            }
            Stage::NoOutputs | Stage::InOutputs => {}
        }
        self.text = None;
        let bit = bit_of(name);
        if self.names & bit != 0 && self.has_output(memory, name) {
            // Of one behind this one, which has said so too.
            if name == NOTICE {
                return Ok(());
            }
            self.fault = Some(Fault::NameTwice);
            return Err(NAME_TWICE);
        }
        self.names |= bit;
        let mut out = writer(memory, self.end, self.limit);
        match self.stage {
            Stage::NoOutputs => out.raw(self.format().outputs.start),
            _ => out.byte(b','),
        }
        out.name(name);
        let start = out.len();
        if !value(&mut out) {
            self.fault = Some(Fault::Unwritable);
            return Err(UNWRITABLE);
        }
        let end = out.len();
        self.stage = Stage::InOutputs;
        self.has_message |= name == "message";
        let as_string = end <= self.limit && self.format().outputs.as_strings;
        self.end = if as_string { stringify(memory, start, end, self.limit) } else { end };
        if self.end > self.limit {
            self.at_least = true;
            return Err(self.too_large(self.end));
        }
        Ok(())
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn message(&mut self, memory: &mut [u8], message: &dyn Message) {
        if matches!(self.stage, Stage::Silent | Stage::Closed) {
            return;
        }
        self.text = None;
        let before = self.before_text();
        let place = &self.format().message;
        if self.stage == Stage::InOutputs {
            self.outputs_end = self.end;
        }
        self.stage = Stage::Closed;
        if place.is_beside_outputs && self.has_message {
            return;
        }
        let mut out = writer(memory, self.end, self.limit);
        out.raw(before);
        message.write_escaped(&mut out);
        out.raw(place.end);
        self.end = out.len();
    }

    /// The text before the message.
    fn before_text(&self) -> &'static [u8] {
        let ReplyFormat { message, content, .. } = self.format();
        match (self.stage, content) {
            (Stage::InOutputs, _) => message.after_outputs,
            (Stage::InContent | Stage::Closed, Some(content)) => content.before_text,
            _ => message.alone,
        }
    }

    /// Adds a piece of content: in protocols that have none, an output of this name.
    pub(crate) fn content(&mut self, memory: &mut [u8], name: &str, content: &Content<'_>) -> Result<(), Failure> {
        let Some(place) = &self.format().content else {
            return self.output(memory, name, &|out| {
                content.write_as_output(out);
                true
            });
        };
        let before = match self.stage {
            Stage::Silent => return Ok(()),
            Stage::NoOutputs => place.alone,
            Stage::InOutputs => {
                self.outputs_end = self.end;
                place.after_outputs
            }
            Stage::InContent | Stage::Closed => b",",
        };
        if self.stage != Stage::Closed {
            self.stage = Stage::InContent;
        }
        self.text = None;
        let mut out = writer(memory, self.end, self.limit);
        out.raw(before);
        content.write_as_block(&mut out);
        self.end = out.len();
        if self.end > self.limit {
            self.at_least = true;
            return Err(self.too_large(self.end));
        }
        Ok(())
    }

    pub(crate) fn failure(&mut self, memory: &mut [u8], kind: FailureKind, text: &dyn Message) -> Failure {
        let failure = |detail| Failure { kind, detail, origin: Origin::Work, code: None };
        if self.is_silent() {
            return failure(Detail::Written);
        }
        let mut out = writer(memory, self.end, self.limit);
        text.write_escaped(&mut out);
        self.text = Some((self.end, out.len()));
        failure(Detail::Written)
    }

    /// Answers otherwise than with an outcome: `write` goes on behind the head.
    pub(crate) fn answer(
        &mut self,
        memory: &mut [u8],
        about: &ReplyContext<'_>,
        write: &mut dyn FnMut(&mut Writer<'_>),
    ) -> usize {
        if self.is_silent() {
            return self.start;
        }
        let mut out = writer(memory, self.head, self.limit);
        write(&mut out);
        self.end = out.len();
        self.or_too_large(memory, about)
    }

    /// In place of a reply that did not fit goes an error.
    #[inline]
    fn or_too_large(&mut self, memory: &mut [u8], about: &ReplyContext<'_>) -> usize {
        if self.end > self.limit {
            self.end = self.too_large_error(memory, about);
        }
        self.end
    }

    #[cold]
    fn too_large_error(&mut self, memory: &mut [u8], about: &ReplyContext<'_>) -> usize {
        let failure = self.too_large(self.end);
        self.error(memory, failure.kind, &failure, about)
    }

    /// Ends the reply; returns the end of what was written.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub(crate) fn finish(
        &mut self,
        memory: &mut [u8],
        result: &Result<Outcome, Failure>,
        about: &ReplyContext<'_>,
    ) -> usize {
        if self.is_silent() {
            return self.start;
        }
        self.end = match result {
            Err(failure) if failure.kind == FailureKind::Timeout => self.error(memory, failure.kind, failure, about),
            _ if self.fault == Some(Fault::Unwritable) => self.error(memory, UNWRITABLE.kind, &UNWRITABLE, about),
            _ if self.fault == Some(Fault::NameTwice) => self.error(memory, NAME_TWICE.kind, &NAME_TWICE, about),
            Ok(outcome) => {
                if let Some(message) = outcome.message {
                    self.message(memory, &message);
                }
                self.succeed(memory, about)
            }
            Err(failure) if failure.kind == FailureKind::Failed => self.fail(memory, failure, about),
            // Most likely it is the failure that `output` gave; what else was to come is not known.
            Err(_) if self.end > self.limit => self.succeed(memory, about),
            Err(failure) => self.error(memory, failure.kind, failure, about),
        };
        self.or_too_large(memory, about)
    }

    /// Ends the reply with an error, whatever kind of failure it was.
    pub(crate) fn refuse(&mut self, memory: &mut [u8], failure: &Failure, about: &ReplyContext<'_>) -> usize {
        if self.is_silent() {
            return self.start;
        }
        let kind = if failure.kind == FailureKind::Failed { FailureKind::Unreachable } else { failure.kind };
        self.end = self.error(memory, kind, failure, about);
        self.or_too_large(memory, about)
    }

    #[cfg_attr(target_pointer_width = "64", inline(always))]
    fn succeed(&mut self, memory: &mut [u8], about: &ReplyContext<'_>) -> usize {
        let outputs = self.outputs();
        let mut out = writer(memory, self.end, self.limit);
        if self.stage == Stage::InOutputs {
            out.raw(self.format().outputs.end);
        }
        self.close(&mut out, None, None, outputs, about);
        out.len()
    }

    /// Where the outputs are, without what is around them.
    fn outputs(&self) -> (usize, usize) {
        let start = self.body.saturating_add(self.format().outputs.start.len());
        match self.stage {
            Stage::InOutputs => (start, self.end),
            _ if self.outputs_end > 0 => (start, self.outputs_end),
            _ => (start, start),
        }
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn close(
        &self,
        out: &mut Writer<'_>,
        error: Option<FailureKind>,
        code: Option<&'static str>,
        outputs: (usize, usize),
        ReplyContext { received, manifest }: &ReplyContext<'_>,
    ) {
        let has_message = matches!(self.stage, Stage::InContent | Stage::Closed);
        let closing = ReplyFacts { received: *received, manifest, error, code, outputs, has_message };
        (self.format().close)(out, &closing);
    }

    /// The operation's own logic failed: what was written as a success becomes a failure that keeps the outputs.
    fn fail(&mut self, memory: &mut [u8], failure: &Failure, about: &ReplyContext<'_>) -> usize {
        let Some(failed) = self.format().failed.filter(|failed| !failed.with_outputs_only || self.body != self.end)
        else {
            return self.error(memory, failure.kind, failure, about);
        };
        // The text goes to its place first: what goes before it may be longer than what it was written behind.
        let shift = self.head.saturating_add(failed.success.len()).saturating_sub(self.body);
        let has_outputs = self.stage == Stage::InOutputs;
        let has_content = matches!(self.stage, Stage::InContent | Stage::Closed);
        let in_content = self.format().content.filter(|_| has_content).map(|content| content.before_text);
        let before_text = |out: &mut Writer<'_>| match in_content {
            Some(before) => out.raw(before),
            None => (failed.before_text)(out, has_outputs, failure.kind, failure.code),
        };
        let start = end_of(self.end.saturating_add(shift), before_text);
        let text_end = self.write_text(memory, start, failure);
        let end = move_up(memory, self.body, self.end, shift, self.limit);
        writer(memory, self.head, self.limit).raw(failed.success);
        before_text(&mut writer(memory, end, self.limit));
        let (from, to) = self.outputs();
        if to > from && !failed.outputs_start.is_empty() {
            let start = self.body.saturating_add(shift);
            writer(memory, start, self.limit).raw(failed.outputs_start);
        }
        let mut out = writer(memory, text_end, self.limit);
        out.raw(failed.end);
        let outputs = (from.saturating_add(shift), to.saturating_add(shift));
        self.close(&mut out, Some(failure.kind), failure.code, outputs, about);
        out.len()
    }

    /// An error reply in place of all that was written behind the id.
    fn error(&mut self, memory: &mut [u8], kind: FailureKind, failure: &Failure, about: &ReplyContext<'_>) -> usize {
        self.is_error = true;
        let ReplyFormat { error, error_end, .. } = self.format();
        let start = end_of(self.head, |out| error(out, kind, failure.code));
        let end = self.write_text(memory, start, failure);
        error(&mut writer(memory, self.head, self.limit), kind, failure.code);
        let mut out = writer(memory, end, self.limit);
        error_end(&mut out, kind);
        self.close(&mut out, Some(kind), failure.code, (0, 0), about);
        out.len()
    }

    fn write_text(&self, memory: &mut [u8], at: usize, failure: &Failure) -> usize {
        let mut out = writer(memory, at, self.limit);
        match &failure.detail {
            Detail::Static(_) | Detail::Error(_) | Detail::Decode(_) => failure.write_escaped(&mut out),
            Detail::Size(needed, capacity) => {
                out.raw(b"reply too large: it needs ");
                if self.at_least {
                    out.raw(b"at least ");
                }
                out.usize(*needed);
                out.raw(b" bytes, the limit is ");
                out.usize(*capacity);
            }
            Detail::Written => match self.text {
                Some((start, end)) if end > self.limit => return at.saturating_add(end.saturating_sub(start)).max(end),
                Some((start, end)) => return relocate(memory, start, end, at, self.limit),
                None => out.text_part("error text overwritten by later output"),
            },
        }
        out.len()
    }

    /// The next output has this name, which no other one has; only the notice may be there.
    #[cfg(feature = "std")]
    pub(crate) fn expect_new_name(&mut self, name: &str) {
        self.names = if name == NOTICE { u32::MAX } else { 0 };
    }

    /// Whether an output of this name is there already.
    #[cold]
    fn has_output(&self, memory: &[u8], name: &str) -> bool {
        let start = self.body.saturating_add(self.format().outputs.start.len());
        let mut rest = memory.get(start..self.end.min(self.limit)).unwrap_or_default();
        loop {
            let Ok((key, after)) = one_value(rest) else { return false };
            let raw = key.get(1..key.len().saturating_sub(1)).unwrap_or_default();
            if Text::of_checked(raw) == *name {
                return true;
            }
            let Ok((_, after)) = one_value(after.get(1..).unwrap_or_default()) else { return false };
            rest = after.get(1..).unwrap_or_default();
        }
    }

    fn too_large(&self, end: usize) -> Failure {
        Failure::too_large(end.saturating_sub(self.start), self.limit.saturating_sub(self.start))
    }
}

/// A fault of an output that makes an error of the reply, whatever the handler goes on to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Unwritable,
    NameTwice,
}

const NAME_TWICE: Failure = Failure::new(FailureKind::Internal, "two outputs have the same name");
const UNWRITABLE: Failure = Failure::new(
    FailureKind::Internal,
    "an output cannot be written as JSON (NaN, infinity, or a key that is not a string)",
);

/// One of 32 bits for a name.
fn bit_of(name: &str) -> u32 {
    let all = name.as_bytes();
    // On a small processor that loop would be another hundred bytes, and no faster.
    let (words, rest) = if cfg!(target_pointer_width = "64") { all.as_chunks::<4>() } else { (&[][..], all) };
    let add = |sum: u32, word: u32| sum.rotate_left(5) ^ word;
    let sum = words.iter().fold(0, |sum, word| add(sum, u32::from_le_bytes(*word)));
    let sum = rest.iter().fold(sum, |sum, byte| add(sum, u32::from(*byte)));
    // The high bits of the product depend on all of the sum's.
    1 << (sum.wrapping_mul(0x9E37_79B1) >> 27)
}

/// The JSON value that `text` begins with, and what follows it.
fn one_value(text: &[u8]) -> Result<(&[u8], &[u8]), SyntaxError> {
    match check(text) {
        Ok(()) => Ok((text, &[])),
        Err(SyntaxError { kind: SyntaxErrorKind::TrailingData, offset }) => {
            Ok(text.split_at_checked(offset).unwrap_or_default())
        }
        Err(error) => Err(error),
    }
}

/// Where what `write` writes at `start` ends.
fn end_of(start: usize, write: impl FnOnce(&mut Writer<'_>)) -> usize {
    let mut out = Writer::at(&mut [], start);
    write(&mut out);
    out.len()
}

/// Makes a string of the JSON text at `start..end`: what is a string stays, anything else is quoted. Returns the new end;
/// beyond `limit` nothing was changed.
fn stringify(memory: &mut [u8], start: usize, end: usize, limit: usize) -> usize {
    // JSON text has no control characters in strings; a tab can be between its tokens.
    let escape = |byte| match byte {
        b'"' | b'\\' => Some(byte),
        b'\t' => Some(b't'),
        _ => None,
    };
    let Some(json) = memory.get(start..end) else { return end };
    if json.first() == Some(&b'"') {
        return end;
    }
    let escapes = json.iter().filter(|byte| escape(**byte).is_some()).count();
    let new_end = end + escapes + 2;
    let limit = limit.min(memory.len());
    let Some(room) = memory.get_mut(..limit).and_then(|within| within.get_mut(start..new_end)) else { return new_end };
    // From the end, so that nothing is overwritten before it was moved.
    let (mut from, mut to) = (end - start, room.len());
    let mut put = |room: &mut [u8], byte| {
        to = to.wrapping_sub(1);
        if let Some(place) = room.get_mut(to) {
            *place = byte;
        }
    };
    put(room, b'"');
    while from > 0 {
        from -= 1;
        let byte = room.get(from).copied().unwrap_or_default();
        match escape(byte) {
            Some(letter) => {
                put(room, letter);
                put(room, b'\\');
            }
            None => put(room, byte),
        }
    }
    put(room, b'"');
    new_end
}

/// Moves `start..end` up by some bytes; returns the new end, which may be beyond the limit (then nothing was moved).
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn move_up(memory: &mut [u8], start: usize, end: usize, by: usize, limit: usize) -> usize {
    let new_end = end.saturating_add(by);
    if new_end <= limit {
        for from in (start..end).rev() {
            let byte = memory.get(from).copied().unwrap_or_default();
            if let Some(place) = memory.get_mut(from.wrapping_add(by)) {
                *place = byte;
            }
        }
    }
    new_end
}

/// Moves `start..end` to `at`; returns the new end, which may be beyond the limit (then nothing was moved).
fn relocate(memory: &mut [u8], start: usize, end: usize, at: usize, limit: usize) -> usize {
    if at > start {
        return move_up(memory, start, end, at - start, limit);
    }
    let length = end.saturating_sub(start);
    for offset in 0..length {
        let byte = memory.get(start + offset).copied().unwrap_or_default();
        if let Some(place) = memory.get_mut(at + offset) {
            *place = byte;
        }
    }
    at + length
}
