//! The state of a message from its arrival to its reply.

use super::Served;
use crate::json::check::{Span, Spans};
use crate::json::write::Writer;
use crate::level::Level;
use crate::protocol::define::{CallAction, Nanos, Respond};
use crate::reply::Reply;

/// The state of one message, from its arrival to its reply.
#[derive(Debug)]
#[repr(C)]
pub struct Exchange {
    // A Cortex-M0+ reaches the first 124 bytes of a structure in one step: what is large comes
    // last.
    pub(crate) stage: Stage,
    pub(crate) batch: Option<Batch>,
    pub(crate) reply: Reply,
    /// Whether an acknowledgement goes before the work.
    pub(crate) is_deferred: bool,
    /// The caller has cancelled it, and gets no reply.
    pub(super) is_cancelled: bool,
    /// Its reply has to say that the safe state was brought about since the one before.
    pub(super) owes_notice: bool,
    /// Whether something may be switched on, before the work of this message.
    pub(super) is_touched: bool,
    /// The work was refused: it has changed nothing.
    pub(super) is_refused: bool,
    /// Whether the session was shut down when the message came.
    pub(super) is_closed: bool,
    pub(super) least_log: Level,
    pub(super) opened: Opened,
    /// The work that runs, or ran last. It stays where it is.
    pub(super) running: PendingWork,
    /// Where the members of the current message are.
    pub(crate) spans: Spans,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    Idle,
    /// A reply or an acknowledgement was handed out.
    Written,
    /// [`Exchange::running`] runs, or waits for its turn.
    Running,
    /// Work of the extension's own has its turn.
    OwnWork,
    /// The work has ended with this.
    Completed(Done),
}

/// The outcome of a message, or of a member of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Done {
    Nothing,
    /// A reply is in the reply region, up to here.
    Reply(usize),
    Run,
}

/// A message that is worked on: the line it is in, and the memory of its reply.
pub(crate) struct Turn<'t, 'm> {
    pub(crate) to: &'t Served<'m>,
    pub(crate) x: &'t mut Exchange,
    pub(crate) line: &'t [u8],
    pub(crate) out: &'t mut [u8],
}

/// Whether the configuration that ran has started a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opened {
    NotAsked,
    Yes,
    No,
}

/// The work that the extension is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingWork {
    pub(super) kind: WorkKind,
    /// The value is an object; if not, an empty object takes its place.
    pub(super) has_args: bool,
    /// The answer instead of the result of a call. All but configurations are acknowledged with it before they run.
    pub(super) answer: Option<Respond>,
    /// The operation's position in the manifest.
    pub(super) index: usize,
    /// The value for the extension: arguments, a configuration or an event.
    pub(super) value: Span,
    /// Where the message is in its line.
    pub(super) message: Span,
    pub(super) id: Span,
    pub(super) timeout: Option<Nanos>,
}

/// The running work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkKind {
    Call,
    Configure,
    Event,
}

impl PendingWork {
    pub(super) const NOTHING: Self = Self {
        kind: WorkKind::Call,
        has_args: true,
        answer: None,
        index: 0,
        value: Span { start: 0, end: 0 },
        message: Span { start: 0, end: 0 },
        id: Span { start: 0, end: 0 },
        timeout: None,
    };

    // Member by member, where it stays: the whole of it would be copied.

    pub(super) fn call(&mut self, call: CallAction, answer: Option<Respond>) {
        self.kind = WorkKind::Call;
        self.has_args = call.has_args;
        self.answer = answer;
        self.index = call.index;
        self.value = call.args;
        self.timeout = call.timeout;
    }

    pub(super) fn other(&mut self, kind: WorkKind, value: Span, answer: Respond) {
        self.kind = kind;
        self.has_args = true;
        self.answer = Some(answer);
        self.value = value;
        self.timeout = None;
    }

    /// The acknowledgement before it runs.
    pub(super) fn acknowledgement(&self) -> Option<Respond> {
        self.answer.filter(|_| self.kind != WorkKind::Configure)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    /// Behind the last member that was examined, in the line.
    pub(super) next: usize,
    /// Behind the replies so far, in the reply region.
    pub(super) end: usize,
    /// Bytes that are kept for the replies to members that were not looked at yet.
    pub(super) reserve: usize,
}

impl Turn<'_, '_> {
    /// A writer for a separate line.
    pub(crate) fn whole_writer(&mut self) -> Writer<'_> {
        let limit = self.out.len().saturating_sub(1);
        Writer::new(self.out.get_mut(..limit).unwrap_or_default())
    }
}
