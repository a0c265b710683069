//! Answers that are written at once.

use super::{Done, Engine};
use crate::definition::Respond;
use crate::failure::Failure;
use crate::json::check::{Span, Spans};
use crate::json::write::Writer;
use crate::manifest::Manifest;
use crate::received::{Received, Refusal};
use crate::reply::About;
use crate::rpc;

/// An answer that is written at once.
#[derive(Clone, Copy)]
pub(super) enum Answer<'t> {
    Respond(Respond),
    Refusal(&'static Refusal),
    Failure(&'t Failure),
    Service,
}

impl Engine<'_> {
    /// Writes an answer to the current message.
    #[inline(never)]
    pub(super) fn answer(&mut self, message: Span, text: Answer<'_>) -> usize {
        let facts = self.facts();
        let protocol = self.protocol;
        let about = about(self.framer.line(), message, &self.spans, self.settings.manifest);
        if let Answer::Failure(failure) = text {
            return self.reply.refuse(self.memory, failure, &about);
        }
        let service = self.settings.service;
        let Some(received) = &about.received else { return 0 };
        let mut write = |out: &mut Writer<'_>| match text {
            Answer::Respond(write) => write(out, received, &facts),
            Answer::Refusal(refusal) => (protocol.refuse)(out, received, refusal, &facts),
            Answer::Service | Answer::Failure(_) => {
                if let Some(service) = service
                    && let Some((method, params)) = rpc::method_and_params(received)
                {
                    service.answer(method, params, out);
                }
            }
        };
        if matches!(text, Answer::Service) && self.reply.is_silent() {
            // What a notification asks for is done all the same (JSON-RPC 2.0 §4.1).
            write(&mut Writer::new(&mut []));
        }
        self.reply.answer(self.memory, &about, &mut write)
    }

    pub(super) fn replied(&self, end: usize) -> Done {
        if self.reply.is_silent() { Done::Nothing } else { Done::Reply(end) }
    }
}

/// What is known of the current message when its reply ends.
pub(super) fn about<'l>(line: &'l [u8], message: Span, spans: &'l Spans, manifest: &'l Manifest) -> About<'l> {
    About { received: Some(Received::whole(message.of(line), spans)), manifest }
}
