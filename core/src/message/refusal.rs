//! The error that answers a request before anything runs.

use core::fmt;

use super::Received;
use crate::json::Text;
use crate::json::write::{Message, Writer};

/// The reason why a request is answered with an error before anything runs. Refusals are constants
/// and passed by reference, so that a result of reading is small.
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
    /// The slot of a member whose string is added to the text. A string of more than 64 characters
    /// is cut.
    Quoted(u8),
}

/// The error code of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A number, as in JSON-RPC.
    Number(i32),
    /// A word, as in Amplifier and namel3ss.
    Name(&'static str),
}

impl Refusal {
    /// A refusal with the text `member: fault`. If one of the two is empty, there is no colon.
    pub const fn new(code: Code, member: &'static str, fault: &'static str) -> Self {
        Self { code, lead: member, detail: Detail::Fault(fault) }
    }

    /// A refusal with the text `lead`, followed by the string in a slot. A string of more than 64
    /// characters is cut.
    #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
    pub const fn quoting(code: Code, lead: &'static str, slot: usize) -> Self {
        Self { code, lead, detail: Detail::Quoted(slot as u8) }
    }

    /// The error code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Whether the refusal is about the name in a slot, and that slot is not `except`.
    pub(crate) fn is_about_name(&self, except: Option<usize>) -> bool {
        matches!(self.detail, Detail::Quoted(slot) if Some(usize::from(slot)) != except)
    }

    /// The text between the lead and the fault.
    fn colon(&self, fault: &str) -> &'static str {
        if self.lead.is_empty() || fault.is_empty() { "" } else { ": " }
    }

    /// Writes the text of the refusal, escaped for a JSON string.
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

/// Displays the text without the string that the peer has sent.
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

/// A name that a peer has sent, for an error text. A name of more than 64 characters is cut.
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
