//! Answers that are written at once.

use super::state::Turn;
use crate::failure::Failure;
use crate::json::check::{Span, Spans, SyntaxError};
use crate::json::write::Writer;
use crate::manifest::Manifest;
use crate::message::{Received, Refusal};
use crate::protocol::define::{Protocol, Respond};
use crate::reply::ReplyContext;
use crate::rpc;

/// An answer that is written at once.
#[derive(Clone, Copy)]
pub(super) enum DirectReply<'t> {
    Respond(Respond),
    Refusal(&'static Refusal),
    Failure(&'t Failure),
    Service,
}

impl Turn<'_, '_> {
    /// Writes an answer to the message at `message`.
    #[inline(never)]
    pub(super) fn answer(&mut self, message: Span, text: DirectReply<'_>) -> usize {
        let Self { to, x, line, out } = self;
        let server = to.server(x.is_closed);
        let protocol = x.reply.protocol();
        let about = about(line, message, &x.spans, to.manifest);
        if let DirectReply::Failure(failure) = text {
            return x.reply.refuse(out, failure, &about);
        }
        let Some(received) = &about.received else { return 0 };
        let mut write = |out: &mut Writer<'_>| match text {
            DirectReply::Respond(write) => write(out, received, &server),
            DirectReply::Refusal(refusal) => (protocol.refuse)(out, received, refusal, &server),
            DirectReply::Service | DirectReply::Failure(_) => {
                if let Some(service) = to.service
                    && let Some((method, params)) = rpc::method_and_params(received)
                {
                    service.answer(method, params, out);
                }
            }
        };
        if matches!(text, DirectReply::Service) && x.reply.is_silent() {
            // What a notification asks for is done all the same (JSON-RPC 2.0 §4.1).
            write(&mut Writer::new(&mut []));
        }
        x.reply.answer(out, &about, &mut write)
    }
}

/// Facts about the current message when its reply ends.
pub(super) fn about<'l>(line: &'l [u8], message: Span, spans: &'l Spans, manifest: &'l Manifest) -> ReplyContext<'l> {
    ReplyContext { received: Some(Received::whole(message.of(line), spans)), manifest }
}

/// Writes the error reply to a line that is not JSON.
pub(super) fn parse_error(out: &mut Writer<'_>, protocol: &Protocol, error: SyntaxError) -> usize {
    protocol.begin_parse_error(out);
    rpc::end_parse_error(out, error)
}
