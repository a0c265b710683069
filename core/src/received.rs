//! One message as it was received, by its members; and what a protocol makes of it before anything runs.

use core::fmt;

use crate::json::check::{Parts, Span, Spans};
use crate::json::view::{Json, Text};
use crate::json::write::{Message, Writer};

/// A message that was checked, and whose watched members were found.
///
/// A protocol reads a request through it, and later what the request says about its call: all members but the arguments
/// stay as they came until the reply is written.
#[derive(Debug, Clone, Copy)]
pub struct Received<'t> {
    pub(crate) parts: Parts<'t>,
    pub(crate) spans: &'t Spans,
}

impl<'t> Received<'t> {
    pub(crate) fn whole(text: &'t [u8], spans: &'t Spans) -> Self {
        Self { parts: Parts::whole(text), spans }
    }

    /// Where the value of a member is.
    #[inline]
    pub fn span(&self, slot: usize) -> Span {
        self.spans.get(slot).copied().unwrap_or_default()
    }

    /// The JSON text of a member; empty if it is absent.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn member(&self, slot: usize) -> &'t [u8] {
        self.parts.of(self.span(slot))
    }

    /// The JSON text at a span; empty if the member is absent.
    pub fn of(&self, span: Span) -> &'t [u8] {
        self.parts.of(span)
    }

    /// The first byte of a member's JSON text, which says what type it has; 0 if it is absent.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn first(&self, slot: usize) -> u8 {
        self.parts.first(self.span(slot))
    }

    /// Whether a member is there.
    pub fn has(&self, slot: usize) -> bool {
        !self.span(slot).is_absent()
    }

    /// The text of a member, if it is a string.
    pub fn string(&self, slot: usize) -> Option<Text<'t>> {
        string(self.member(slot))
    }

    /// The value of a member, if it is there.
    pub fn json(&self, slot: usize) -> Option<Json<'t>> {
        match self.member(slot) {
            [] => None,
            value => Some(Json::of_value(value)),
        }
    }

    /// Whether a member is a string without escapes whose text is `name`, or one with escapes that decodes to it. `name`
    /// must have nothing to escape in it.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn is(&self, slot: usize, name: &str) -> bool {
        is(self.member(slot), name)
    }

    /// Whether the message is an object.
    pub fn is_object(&self) -> bool {
        self.parts.start().trim_ascii_start().first() == Some(&b'{')
    }

    /// The whole message. It is empty once a call has taken its arguments out of it.
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

/// The kind of a message, by its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    /// A request, to be answered.
    Request {
        /// The id of the request; absent where a protocol has none.
        id: Span,
    },
    /// A request that is not answered, whatever comes of it: JSON-RPC 2.0 §4.1.
    Notification,
    /// A reply: it is not answered.
    Reply,
    /// JSON-RPC's -32600.
    Invalid {
        /// The fault.
        text: &'static str,
        /// The id to echo; absent where it is not usable.
        id: Span,
    },
}

/// Why a request is answered with an error before anything runs. All of them are constants, and handed on by reference: a
/// result is then a word or two.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    pub(crate) code: Code,
    lead: &'static str,
    detail: Detail,
}

/// The text after the lead of a refusal.
#[derive(Debug, Clone, Copy)]
enum Detail {
    Fault(&'static str),
    /// The slot of a name that the peer sent, to be quoted.
    Quoted(u8),
}

/// A protocol's code for an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A number.
    Number(i32),
    /// A word.
    Name(&'static str),
}

impl Refusal {
    /// `member: fault`; one of them may be empty, and there is no colon then.
    pub const fn new(code: Code, member: &'static str, fault: &'static str) -> Self {
        Self { code, lead: member, detail: Detail::Fault(fault) }
    }

    /// `lead`, then the name that the string in a slot says, shortened where it is long.
    #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
    pub const fn quoting(code: Code, lead: &'static str, slot: usize) -> Self {
        Self { code, lead, detail: Detail::Quoted(slot as u8) }
    }

    /// The code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The text between the lead and the fault.
    fn colon(&self, fault: &str) -> &'static str {
        if self.lead.is_empty() || fault.is_empty() { "" } else { ": " }
    }

    /// Writes the text, escaped for a JSON string.
    pub fn write_text(&self, out: &mut Writer<'_>, received: &Received<'_>) {
        out.text_part(self.lead);
        match self.detail {
            Detail::Quoted(slot) => {
                if let Some(name) = received.string(usize::from(slot)) {
                    Quoted(name).write_escaped(out);
                }
            }
            Detail::Fault(fault) => {
                out.raw(self.colon(fault).as_bytes());
                out.text_part(fault);
            }
        }
    }
}

/// The text, without the name that the peer sent.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.lead)?;
        match self.detail {
            Detail::Quoted(_) => Ok(()),
            Detail::Fault(fault) => write!(f, "{}{fault}", self.colon(fault)),
        }
    }
}

impl core::error::Error for Refusal {}

/// A name that a peer sent, in an error text: shortened where it is long.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub Text<'a>);

impl Message for Quoted<'_> {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        const LONGEST: usize = 64;
        for (count, char) in self.0.chars().enumerate() {
            if count == LONGEST {
                return out.text_part("…");
            }
            out.char(char);
        }
    }
}
