//! Sessions: from the first request of a connection to `shutdown`, and who may start one.

use super::Engine;
use super::answer::Answer;
use crate::definition::Respond;
use crate::failure::Failure;
use crate::json::check::Span;

/// Who may start a session, where several connections lead to one extension.
///
/// It is asked about `initialize` only. A request in one-shot use, and any call, is the extension's to refuse.
pub trait SessionPolicy {
    /// A host asks to start a session.
    ///
    /// # Errors
    /// The reason why it may not. The host gets it as the error of its `initialize`.
    fn open(&self) -> Result<(), Failure>;

    /// The session was shut down, or did not start after all. The loss of a connection is known to the driver's caller.
    fn close(&self);
}

/// A session runs from its first request to `shutdown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Session {
    /// No `initialize` was seen: one-shot use.
    Fresh,
    Initialized,
    /// `shutdown` was taken; its acknowledgement is not out yet.
    ShuttingDown {
        /// What is shut down began with `initialize`.
        initialized: bool,
    },
    Ended,
}

impl Session {
    pub(super) fn is_shutting_down(self) -> bool {
        matches!(self, Self::ShuttingDown { .. })
    }
}

impl Engine<'_> {
    /// Whether a session is open that began with `initialize`. One is until the acknowledgement of its `shutdown` is out.
    pub fn is_session_open(&self) -> bool {
        matches!(self.session, Session::Initialized | Session::ShuttingDown { initialized: true })
    }

    pub(super) fn initialized(&mut self, message: Span, answer: Respond) -> usize {
        let end = self.answer(message, Answer::Respond(answer));
        if self.reply.is_error() {
            self.not_initialized();
        } else {
            self.session = Session::Initialized;
        }
        end
    }

    /// A session did not start. One that had started before goes on.
    pub(super) fn not_initialized(&self) {
        if let Some(policy) = self.policy
            && self.session != Session::Initialized
        {
            policy.close();
        }
    }

    /// Where the reply ends if no session may start.
    #[inline(never)]
    pub(super) fn refused_by_policy(&mut self, message: Span) -> Option<usize> {
        let failure = self.policy?.open().err()?;
        Some(self.answer(message, Answer::Failure(&failure)))
    }
}
