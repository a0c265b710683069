//! Losses between the protocol of a server's clients and the protocol of its target.
//!
//! Each loss is reported once for each protocol of clients, on standard error and by a log to the client.

use std::collections::BTreeSet;
use std::sync::Mutex;

use rigline::Context;
use rigline::json::{Json, JsonKind};
use rigline_std::mutex::lock;
use rigline_std::stderr::complain;

use super::{RelayedOutcome, is_text_block};
use crate::choose::Chosen;
use crate::client::{CallRequest, Part};
use crate::protocol::Protocol;
use crate::protocols;
use crate::target::Target;

/// The protocol that the target is asked by, and the parts that it carries over this connection.
#[derive(Debug, Clone)]
pub(super) struct AskedBy {
    title: &'static str,
    carries: Vec<Part>,
}

impl AskedBy {
    /// Of a client that has described its target.
    pub(super) fn of(chosen: &Chosen) -> Self {
        let carries = Part::ALL.into_iter().filter(|part| chosen.carries(*part)).collect();
        Self { title: chosen.protocol.title, carries }
    }

    pub(super) fn carries(&self, part: Part) -> bool {
        self.carries.contains(&part)
    }

    /// The sentence for a part that does not reach the target.
    pub(super) fn lacks(&self, part: Part, instead: &str) -> String {
        format!("{}, by which the target is asked, does not carry {}: {instead}", self.title, part.name())
    }
}

/// The losses that were reported on standard error, with their targets. A server may have one relay after the other for a target.
static REPORTED: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());

/// The losses that were reported to clients.
#[derive(Debug)]
pub(super) struct Losses {
    target: String,
    said: Vec<(&'static str, Part)>,
}

impl Losses {
    /// Of a relay to this target.
    pub(super) fn new(target: &Target) -> Self {
        Self { target: target.to_string(), said: Vec::new() }
    }

    /// Reports the parts of a request that do not reach the target.
    pub(super) fn of_request(&mut self, request: &CallRequest, target: Option<&AskedBy>, cx: &mut Context<'_>) {
        let Some((client, target)) = client_of(cx).zip(target) else { return };
        let context = request.context.as_deref();
        let is_context = context.is_some_and(|context| {
            context.workdir.is_some() || context.agent.is_some() || context.phase != rigline::Phase::default()
        });
        let asked = [
            (Part::Context, is_context),
            (Part::Env, context.is_some_and(|context| !context.env.is_empty())),
            (Part::Session, request.session_id.is_some()),
        ];
        for (part, _) in asked.into_iter().filter(|(part, is_asked)| *is_asked && !target.carries(*part)) {
            self.say(client, part, cx, || target.lacks(part, "the target does not get that"));
        }
    }

    /// Reports the parts of an answer that do not reach the client. `has_logs` says whether there were logs.
    pub(super) fn of_answer(&mut self, answer: &RelayedOutcome, has_logs: bool, cx: &mut Context<'_>) {
        let Some(client) = client_of(cx) else { return };
        let is_typed = |(_, value): &(String, String)| {
            Json::parse(value.as_bytes()).is_ok_and(|value| value.kind() != JsonKind::String)
        };
        let is_block = |block: &String| !is_text_block(Json::parse(block.as_bytes()).unwrap_or(Json::NULL));
        let came = [
            (Part::Types, answer.outputs.iter().any(is_typed), "each output arrives as a string"),
            (Part::Blocks, answer.content.iter().any(is_block), "each arrives as an output"),
            (Part::Logs, has_logs, "they go to standard error"),
        ];
        for (part, _, instead) in came.into_iter().filter(|(part, has_come, _)| *has_come && !client.carries(*part)) {
            let text = || format!("{} does not carry {}: {instead}", client.title, part.name());
            self.say(client, part, cx, text);
        }
    }

    fn say(&mut self, client: &Protocol, part: Part, cx: &mut Context<'_>, text: impl Fn() -> String) {
        if self.said.contains(&(client.name, part)) {
            return;
        }
        self.said.push((client.name, part));
        let text = text();
        if lock(&REPORTED).insert((self.target.clone(), text.clone())) {
            complain(format_args!("warning: {text}"));
        }
        if client.carries(Part::Logs) {
            cx.warn(text.as_str());
        }
    }
}

/// The protocol of the caller.
fn client_of(cx: &Context<'_>) -> Option<&'static Protocol> {
    protocols::named(cx.protocol().name())
}
