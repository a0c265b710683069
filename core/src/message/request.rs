//! A message as it was received, by its members.

use crate::json::check::{Parts, Span, Spans};
use crate::json::{Json, Text};

/// A message that was checked, and whose watched members were found.
///
/// A protocol reads a request through it, and later the data that the request has about its call.
/// Until the reply is written, all members except the arguments stay as they came.
#[derive(Debug, Clone, Copy)]
pub struct Received<'t> {
    pub(crate) parts: Parts<'t>,
    pub(crate) spans: &'t Spans,
}

impl<'t> Received<'t> {
    pub(crate) fn whole(text: &'t [u8], spans: &'t Spans) -> Self {
        Self { parts: Parts::whole(text), spans }
    }

    /// The place of a member's value in the message.
    #[inline]
    pub fn span(&self, slot: usize) -> Span {
        self.spans.get(slot).copied().unwrap_or_default()
    }

    /// The JSON text of a member; empty if the member is absent.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn member(&self, slot: usize) -> &'t [u8] {
        self.parts.of(self.span(slot))
    }

    /// The JSON text at a span; empty if the span is that of an absent member.
    pub fn of(&self, span: Span) -> &'t [u8] {
        self.parts.of(span)
    }

    /// The first byte of a member's JSON text, which tells its type; 0 if the member is absent.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn first(&self, slot: usize) -> u8 {
        self.parts.first(self.span(slot))
    }

    /// Whether a member is present.
    pub fn has(&self, slot: usize) -> bool {
        !self.span(slot).is_absent()
    }

    /// The text of a member; none if the member is absent or not a string.
    pub fn string(&self, slot: usize) -> Option<Text<'t>> {
        string(self.member(slot))
    }

    /// The value of a member; none if the member is absent.
    pub fn json(&self, slot: usize) -> Option<Json<'t>> {
        match self.member(slot) {
            [] => None,
            value => Some(Json::of_value(value)),
        }
    }

    /// Whether a member is a string whose decoded text is `name`. `name` must not contain
    /// characters that JSON escapes.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn is(&self, slot: usize, name: &str) -> bool {
        is(self.member(slot), name)
    }

    /// Whether the message is an object.
    pub fn is_object(&self) -> bool {
        self.parts.start().trim_ascii_start().first() == Some(&b'{')
    }

    /// The text of the whole message. It is empty after a call has taken its arguments out of it.
    pub fn text(&self) -> &'t [u8] {
        self.parts.untaken()
    }
}

/// Whether the JSON string `value` is `name`, which must have nothing to escape in it.
#[cfg_attr(target_pointer_width = "64", inline(always))]
pub(crate) fn is(value: &[u8], name: &str) -> bool {
    match value {
        [b'"', raw @ .., b'"'] => raw == name.as_bytes() || Text::of_checked(raw) == *name,
        _ => false,
    }
}

/// The string whose JSON text, quotes included, is `value`.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(crate) fn string(value: &[u8]) -> Option<Text<'_>> {
    match value {
        [b'"', raw @ .., b'"'] => Some(Text::of_checked(raw)),
        _ => None,
    }
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    /// A request that must be answered.
    Request {
        /// The id of the request; absent if the protocol has none.
        id: Span,
    },
    /// A request that is never answered, not even with an error (JSON-RPC 2.0 §4.1).
    Notification,
    /// A reply. It is not answered.
    Reply,
    /// A message that is not valid: it is answered with error -32600 (JSON-RPC 2.0 §5.1).
    Invalid {
        /// A description of the fault.
        text: &'static str,
        /// The id for the error reply; absent if the message has no usable one.
        id: Span,
    },
}
