//! The definition of a protocol, as a value for the engine: tables, phrases and a few functions.

use core::fmt;

use crate::json::check::{Member, Members, SLOTS, Span};
use crate::json::view::Json;
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::manifest::{Manifest, Operation};
use crate::phrases::Phrases;
use crate::received::{Envelope, Received, Refusal};

/// A protocol that an engine speaks: how it recognises its messages, what they ask for, and how replies are written. It has
/// no state; a session, the order of replies and deferred work are the engine's.
///
/// The first member of its table, which must have slot 0, is its *marker*: a message that has this member is its own, see
/// [`Engine`](crate::engine::Engine).
///
/// [`protocol`](crate::protocol) has those that exist, and an example of one more.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact about the protocol that is independent of the others")]
pub struct Protocol {
    pub(crate) name: &'static str,
    pub(crate) members: Members,
    pub(crate) request: u8,
    pub(crate) phrases: &'static Phrases,
    pub(crate) read: Read,
    pub(crate) refuse: Refuse,
    pub(crate) envelope: fn(&Received<'_>) -> Envelope,
    pub(crate) recognise: Option<fn(&Received<'_>, bool) -> bool>,
    pub(crate) is_answer: fn(Json<'_>) -> bool,
    pub(crate) busy: Option<fn(&Received<'_>) -> Busy>,
    pub(crate) is_json_rpc: bool,
    pub(crate) has_line_limit: bool,
    pub(crate) numeric_strings: bool,
    /// Whether what its peers have switched on does not outlive them.
    pub(crate) ends_safe: bool,
    /// Takes members out of a call's arguments that are the client's own and no arguments.
    pub(crate) prepare: Option<Prepare>,
    /// Whether a sound request stays open: a notification acknowledges it, and no reply comes.
    pub(crate) stays_open: fn(&Received<'_>) -> bool,
}

/// Takes out of a call's arguments, a JSON object, what is none, and tells of that.
pub(crate) type Prepare = fn(&mut [u8], &Operation, &mut dyn FnMut(&dyn Message));
/// Reads a request.
pub type Read = fn(&Received<'_>, &Facts<'_>) -> Result<Action, &'static Refusal>;
/// Writes an answer behind the head of its reply, up to the end of the reply.
pub type Respond = fn(&mut Writer<'_>, &Received<'_>, &Facts<'_>);
/// Writes a refusal behind the head of its reply, up to the end of the reply.
pub type Refuse = fn(&mut Writer<'_>, &Received<'_>, &Refusal, &Facts<'_>);

impl Protocol {
    /// A protocol whose requests have these members, the marker among them with slot 0. `request` is the slot of the member
    /// that makes a message a request and not an answer.
    ///
    /// Every message is answered, in the order of the messages, and has no id; what the setters say otherwise.
    pub const fn new(
        name: &'static str,
        members: &'static [Member],
        request: usize,
        phrases: &'static Phrases,
        read: Read,
        refuse: Refuse,
    ) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
        let request = request as u8;
        Self {
            name,
            members: Members::of(members).with_others(SLOTS - 1),
            request,
            phrases,
            read,
            refuse,
            envelope: |_| Envelope::Request { id: Span { start: 0, end: 0 } },
            recognise: None,
            is_answer,
            busy: None,
            is_json_rpc: false,
            has_line_limit: false,
            numeric_strings: false,
            ends_safe: false,
            prepare: None,
            stays_open: |_| false,
        }
    }

    /// With ids, or with messages that are not requests.
    #[must_use]
    pub const fn envelope(self, envelope: fn(&Received<'_>) -> Envelope) -> Self {
        Self { envelope, ..self }
    }

    /// With a test that distinguishes its messages from those of other protocols over JSON-RPC. The test gets whether
    /// the message before was of this protocol. It may use the members of [`rpc::members`](crate::rpc::members) only, and what
    /// is below them as a view: the tables below `params` are those of the protocol before. A protocol without a test gets
    /// what no test claims.
    #[must_use]
    pub const fn recognise(self, test: fn(&Received<'_>, bool) -> bool) -> Self {
        Self { recognise: Some(test), ..self }
    }

    /// With a test for messages that are themselves answers, and get none. It is asked about messages without a request's
    /// members.
    #[must_use]
    pub const fn answers(self, test: fn(Json<'_>) -> bool) -> Self {
        Self { is_answer: test, ..self }
    }

    /// Requests have ids. While a call runs, unreadable messages are answered at once, and this function decides about
    /// the others.
    #[must_use]
    pub const fn busy(self, busy: fn(&Received<'_>) -> Busy) -> Self {
        Self { busy: Some(busy), ..self }
    }

    /// Its hosts read lines of a limited length, see [`Engine::with_json_rpc_limit`](crate::engine::Engine::with_json_rpc_limit).
    #[must_use]
    pub const fn with_line_limit(self) -> Self {
        Self { has_line_limit: true, ..self }
    }

    /// Its hosts write numbers and booleans as strings, see [`Call::has_numeric_strings`](crate::Call::has_numeric_strings).
    #[must_use]
    pub const fn with_numeric_strings(self) -> Self {
        Self { numeric_strings: true, ..self }
    }

    /// Outputs that a peer has switched on do not outlive it: when a connection ends in which an operation ran that is not
    /// [read-only](crate::manifest::Effects::read_only), the safe state is brought about, with or without a session. A peer whose
    /// outputs were switched off while it was there hears it in its next reply, as the output `outputs_switched_off`.
    #[must_use]
    pub const fn with_safe_end(self) -> Self {
        Self { ends_safe: true, ..self }
    }

    /// Whether what its peers have switched on does not outlive them: [`with_safe_end`](Self::with_safe_end).
    pub const fn has_safe_end(&self) -> bool {
        self.ends_safe
    }

    /// Whether its requests have ids, so that replies need not come in their order.
    pub const fn has_ids(&self) -> bool {
        self.busy.is_some()
    }

    /// Whether its results have [content](crate::Context::content) beside outputs.
    pub const fn has_content(&self) -> bool {
        self.phrases.content.is_some()
    }

    /// The name of the protocol.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether both have the same marker: over JSON-RPC all have.
    pub(crate) fn has_marker_of(&self, other: &Self) -> bool {
        self == other || self.is_json_rpc && other.is_json_rpc
    }

    /// Begins the reply to a line that is not JSON, up to where its text goes; `"}}` ends it.
    pub(crate) fn begin_parse_error(&self, out: &mut Writer<'_>) {
        (self.phrases.head)(out, b"");
        out.raw(self.phrases.parse_error);
    }
}

/// Whether an object without a request's members is an answer of JSON-RPC, or of a protocol that says `ok`.
pub(crate) fn is_answer(json: Json<'_>) -> bool {
    let has = |name| json.get(name).is_some();
    has("result") || has("error") || !has("jsonrpc") && has("ok")
}

/// By name.
impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A protocol is one value: it is the same at the same place only.
impl PartialEq for Protocol {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for Protocol {}

#[cfg(feature = "defmt")]
impl defmt::Format for Protocol {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{=str}", self.name);
    }
}

/// Facts beside the message that a protocol may need.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Facts<'f> {
    /// The extension.
    pub manifest: &'f Manifest,
    /// The longest line that is accepted and the longest that is sent, in bytes without their ends.
    pub limits: (usize, usize),
    /// Whether the session was shut down and no other has started.
    pub is_closed: bool,
    /// Whether another message runs, so that an answer that comes in pages is to be written whole or waits, see
    /// [`Busy::AnswerIfWhole`].
    pub is_ahead: bool,
}

/// A request's wish.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// To run an operation.
    Call(CallAction),
    /// To begin a session.
    OpenSession {
        /// The configuration: an object, or absent. The extension gets it before the answer is written.
        config: Span,
        /// The answer.
        answer: Respond,
    },
    /// To end the session.
    CloseSession {
        /// The answer.
        answer: Respond,
    },
    /// An answer without running anything.
    Answer(Respond),
    /// To leave out logs below a level until the connection ends.
    LimitLogs {
        /// The least level that is sent.
        least: Level,
        /// The answer.
        answer: Respond,
    },
    /// Record an event: the answer is sent first, then the work is done. Logs use their usual route.
    AckThenRun {
        /// The event, an object.
        event: Span,
        /// The answer.
        answer: Respond,
    },
    /// To run an operation whose request is acknowledged first: the answer is sent, then the operation runs. Nothing that it
    /// comes to is a reply; its logs use their usual route. A request that waits in a batch is answered in its place there.
    AckThenCall {
        /// The call.
        call: CallAction,
        /// The answer.
        answer: Respond,
    },
    /// Do nothing, and send no reply.
    Ignore,
}

/// A call of an operation.
#[derive(Debug, Clone, Copy)]
pub struct CallAction {
    pub(crate) index: usize,
    pub(crate) args: Span,
    pub(crate) has_args: bool,
    pub(crate) timeout: Option<Nanos>,
}

impl CallAction {
    /// The operation at `index` in the manifest with the arguments at `args`, an object. If `args` is absent or null,
    /// the arguments are an empty object, which is written over the member at `reusable`: a member of at least two
    /// bytes that every such request has, and that is not needed after it was read.
    #[inline(always)]
    pub fn new(received: &Received<'_>, index: usize, args: Span, reusable: Span) -> Self {
        let has_args = received.parts.first(args) == b'{';
        Self { index, args: if has_args { args } else { reusable }, has_args, timeout: None }
    }

    /// With a limit on the call's time, in nanoseconds: never zero.
    #[must_use]
    pub const fn timeout_nanos(self, nanos: Option<u64>) -> Self {
        let timeout = match nanos {
            Some(nanos) => Some(Nanos(nanos)),
            None => None,
        };
        Self { timeout, ..self }
    }
}

impl From<CallAction> for Action {
    fn from(call: CallAction) -> Self {
        Self::Call(call)
    }
}

/// Aligned as all else here: else a microcontroller's image has copying and clearing functions for this alignment as
/// well.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct Nanos(pub(crate) u64);

/// The treatment of a message that comes while a call is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// The message waits its turn.
    Wait,
    /// The message is answered at once. Reading it must return [`Action::Answer`], [`Action::Ignore`] or a refusal; any
    /// other action waits.
    Answer,
    /// As [`Answer`](Self::Answer) if the whole answer has room among what is said at once; else it waits. [`Facts::is_ahead`] is set.
    AnswerIfWhole,
    /// The message cancels the request with the id whose JSON text is at this span: the call that is out, or one that waits its
    /// turn. A cancelled request is not answered. The message itself is not answered either.
    Cancel(Span),
}
