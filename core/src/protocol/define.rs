//! The definition of a protocol, as a value for the engine: a table of members, the forms of
//! replies, and a few functions.

use core::fmt;

use crate::json::Json;
use crate::json::check::{SLOTS, Span, WatchedMember, WatchedMembers};
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::manifest::{Manifest, Operation};
use crate::message::{Envelope, Received, Refusal};
use crate::protocol::format::ReplyFormat;

/// A protocol that an engine speaks: how messages are recognised, what they ask for, and how
/// replies are written. It has no state. The engine has the session, the order of replies and
/// deferred work.
///
/// The first member of its table is its *marker* and must have slot 0. A message that has this
/// member is a message of this protocol, see [`Engine`](crate::engine::Engine).
///
/// The module [`protocol`](crate::protocol) has the protocols of this crate, and an example of
/// another one.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact about the protocol that is independent of the others")]
pub struct Protocol {
    pub(crate) name: &'static str,
    pub(crate) members: WatchedMembers,
    pub(crate) request: u8,
    pub(crate) format: &'static ReplyFormat,
    pub(crate) read: Read,
    pub(crate) refuse: Refuse,
    pub(crate) envelope: fn(&Received<'_>) -> Envelope,
    pub(crate) recognise: Option<fn(&Received<'_>, bool) -> bool>,
    pub(crate) is_answer: fn(Json<'_>) -> bool,
    pub(crate) busy: Option<fn(&Received<'_>) -> Busy>,
    pub(crate) is_json_rpc: bool,
    pub(crate) has_host_line_limit: bool,
    pub(crate) numeric_strings: bool,
    /// Whether what its peers have switched on does not outlive them.
    pub(crate) ends_safe: bool,
    /// Whether time limits come from the extension's side, because hosts of this protocol set none.
    pub(crate) has_own_limit: bool,
    /// Takes members out of a call's arguments that are the client's own and no arguments.
    pub(crate) prepare: Option<Prepare>,
    /// Whether a sound request stays open: a notification acknowledges it, and no reply comes.
    pub(crate) stays_open: fn(&Received<'_>) -> bool,
}

/// Takes out of a call's arguments, a JSON object, what is none, and tells of that.
pub(crate) type Prepare = fn(&mut [u8], &Operation, &mut dyn FnMut(&dyn Message));
/// The function that reads a request, and returns the action that it asks for or a refusal.
pub type Read = fn(&Received<'_>, &ServerState<'_>) -> Result<Action, &'static Refusal>;
/// The function that writes the end of a successful reply. The head of the reply is written before.
pub type Respond = fn(&mut Writer<'_>, &Received<'_>, &ServerState<'_>);
/// The function that writes the end of an error reply. The head of the reply is written before.
pub type Refuse = fn(&mut Writer<'_>, &Received<'_>, &Refusal, &ServerState<'_>);

impl Protocol {
    /// A protocol with these members in its messages; the marker has slot 0. `request` is the slot
    /// of the member that distinguishes a request from an answer.
    ///
    /// By default, messages have no ids, and every message is answered, in the order of the
    /// messages. The setters below change that.
    pub const fn new(
        name: &'static str,
        members: &'static [WatchedMember],
        request: usize,
        format: &'static ReplyFormat,
        read: Read,
        refuse: Refuse,
    ) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "slots are few")]
        let request = request as u8;
        Self {
            name,
            members: WatchedMembers::new(members).with_others(SLOTS - 1),
            request,
            format,
            read,
            refuse,
            envelope: |_| Envelope::Request { id: Span { start: 0, end: 0 } },
            recognise: None,
            is_answer,
            busy: None,
            is_json_rpc: false,
            has_host_line_limit: false,
            numeric_strings: false,
            ends_safe: false,
            has_own_limit: false,
            prepare: None,
            stays_open: |_| false,
        }
    }

    /// Sets the function that finds the id of a message, and says whether the message is a request,
    /// a notification or an answer.
    #[must_use]
    pub const fn envelope(self, envelope: fn(&Received<'_>) -> Envelope) -> Self {
        Self { envelope, ..self }
    }

    /// Sets a test that distinguishes messages of this protocol from those of other protocols over
    /// JSON-RPC. Its second argument says whether the message before was of this protocol.
    ///
    /// The test may use the members of [`rpc::members`](crate::rpc::members) only, and views of
    /// what is below them, because the tables below `params` are those of the protocol of the
    /// message before. A protocol without a test gets the messages that no test claims.
    #[must_use]
    pub const fn recognise(self, test: fn(&Received<'_>, bool) -> bool) -> Self {
        Self { recognise: Some(test), ..self }
    }

    /// Sets a test that recognises answers, which get no reply. It is called for messages that do
    /// not have the member of a request.
    #[must_use]
    pub const fn answers(self, test: fn(Json<'_>) -> bool) -> Self {
        Self { is_answer: test, ..self }
    }

    /// Sets the function that decides what happens to a message while a call runs. The requests of
    /// such a protocol have ids. Messages that cannot be read are answered at once.
    #[must_use]
    pub const fn busy(self, busy: fn(&Received<'_>) -> Busy) -> Self {
        Self { busy: Some(busy), ..self }
    }

    /// Limits replies, because the hosts of this protocol read lines of a limited length, see
    /// [`Engine::with_host_line_limit`](crate::engine::Engine::with_host_line_limit).
    #[must_use]
    pub const fn with_host_line_limit(self) -> Self {
        Self { has_host_line_limit: true, ..self }
    }

    /// Accepts strings as numbers and booleans, because the hosts of this protocol write them so,
    /// see [`Call::has_numeric_strings`](crate::Call::has_numeric_strings).
    #[must_use]
    pub const fn with_numeric_strings(self) -> Self {
        Self { numeric_strings: true, ..self }
    }

    /// Switches the outputs of the hardware off at the end of a connection.
    /// [`safe_state`](crate::Extension::safe_state) runs if an operation ran over that connection
    /// that is not [read-only](crate::manifest::Effects::read_only), with or without a session. If
    /// the safe state runs while the peer is connected, the peer's next reply has the output
    /// `outputs_switched_off`.
    #[must_use]
    pub const fn with_safe_end(self) -> Self {
        Self { ends_safe: true, ..self }
    }

    /// Whether [`safe_state`](crate::Extension::safe_state) runs at the end of a connection, as
    /// [`with_safe_end`](Self::with_safe_end) sets.
    pub const fn has_safe_end(&self) -> bool {
        self.ends_safe
    }

    /// Marks a protocol whose hosts set no time limits. The extension's side sets the limit of a
    /// call, which counts from the call's turn and not from its arrival.
    #[must_use]
    pub const fn with_own_limit(self) -> Self {
        Self { has_own_limit: true, ..self }
    }

    /// Whether the extension's side sets time limits: [`with_own_limit`](Self::with_own_limit).
    pub const fn has_own_limit(&self) -> bool {
        self.has_own_limit
    }

    /// Whether requests have ids, so that replies may be sent in another order than their requests.
    pub const fn has_ids(&self) -> bool {
        self.busy.is_some()
    }

    /// Whether results have [content](crate::Context::content) beside outputs.
    pub const fn has_content(&self) -> bool {
        self.format.content.is_some()
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
        (self.format.head)(out, b"");
        out.raw(self.format.parse_error);
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

/// Facts beside the message that the functions of a protocol may need.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ServerState<'f> {
    /// The manifest of the extension.
    pub manifest: &'f Manifest,
    /// The length of the longest line that is accepted, and of the longest that is sent, in bytes
    /// without newlines.
    pub limits: (usize, usize),
    /// Whether the session was shut down, and no other one has started since.
    pub is_closed: bool,
    /// Whether another message runs. An answer that comes in pages must then be written whole or
    /// wait, see [`Busy::AnswerIfWhole`].
    pub is_ahead: bool,
}

/// A function that writes a list of all operations; an abridged one if the last argument says so.
pub(crate) type WriteListing = fn(&mut Writer<'_>, &ServerState<'_>, bool);

/// Writes a list of all operations. If the whole list does not fit the memory for the reply, it is
/// abridged: the names of the operations and the schemas of their arguments remain.
pub(crate) fn whole_or_abridged(out: &mut Writer<'_>, server: &ServerState<'_>, write: WriteListing) {
    let start = out.len();
    // The error of a list that does not fit at all names the size of the whole list.
    for is_abridged in [false, true, false] {
        out.truncate(start);
        write(out, server, is_abridged);
        if out.fits() {
            return;
        }
    }
}

/// The member of a reply that is abridged.
pub(crate) const ABRIDGED: &[u8] = b",\"abridged\":true";

/// Writes the schema of an operation's arguments.
pub(crate) fn write_arguments(out: &mut Writer<'_>, operation: &Operation, is_abridged: bool) {
    if is_abridged {
        operation.params.write_without_descriptions(out);
    } else {
        operation.params.write(out);
    }
}

/// The action that a request asks for.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// Run an operation.
    Call(CallAction),
    /// Begin a session.
    OpenSession {
        /// The configuration: an object, or absent. The extension gets it before `answer` is
        /// written.
        config: Span,
        /// The function that writes the answer.
        answer: Respond,
    },
    /// End the session.
    CloseSession {
        /// The function that writes the answer.
        answer: Respond,
    },
    /// Answer at once by this function, and run nothing.
    Answer(Respond),
    /// Send no logs below a level until the connection ends.
    LimitLogs {
        /// The lowest level of the logs that are sent.
        least: Level,
        /// The function that writes the answer.
        answer: Respond,
    },
    /// Pass an event to the extension. The answer is sent first, then the extension gets the event.
    /// Its logs are sent as usual.
    AckThenRun {
        /// The event, a JSON object.
        event: Span,
        /// The function that writes the answer.
        answer: Respond,
    },
    /// Run an operation whose request is acknowledged first: the answer is sent, then the operation
    /// runs. Its result is not sent, but its logs are. For a member of a batch, the answer is the
    /// member's reply.
    AckThenCall {
        /// The call that runs after the answer.
        call: CallAction,
        /// The function that writes the answer.
        answer: Respond,
    },
    /// Do nothing, and send no reply.
    Ignore,
}

/// A call of an operation, for [`Action::Call`].
#[derive(Debug, Clone, Copy)]
pub struct CallAction {
    pub(crate) index: usize,
    pub(crate) args: Span,
    pub(crate) has_args: bool,
    pub(crate) timeout: Option<Nanos>,
}

impl CallAction {
    /// Calls the operation at `index` in the manifest with the arguments at `args`, an object. If
    /// `args` is absent or null, the arguments are an empty object. It is written over the member
    /// at `reusable`. That member must be in every such request, be at least two bytes long, and
    /// not be needed after the request was read.
    pub fn new(received: &Received<'_>, index: usize, args: Span, reusable: Span) -> Self {
        let has_args = received.parts.first(args) == b'{';
        Self { index, args: if has_args { args } else { reusable }, has_args, timeout: None }
    }

    /// Sets the time limit of the call, in nanoseconds. It must not be zero.
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

/// The treatment of a message that arrives while a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// The message waits its turn.
    Wait,
    /// The message is answered at once. Reading it must return [`Action::Answer`], [`Action::Ignore`] or a refusal; any
    /// other action waits.
    Answer,
    /// The message is answered at once, as by [`Answer`](Self::Answer), if the whole answer fits
    /// into the memory for such answers. Otherwise it waits. [`ServerState::is_ahead`] is set.
    AnswerIfWhole,
    /// The message cancels the request whose id has the JSON text at this span: the call that runs,
    /// or a request that waits for its turn. Neither the cancelled request nor this message is
    /// answered.
    Cancel(Span),
}
