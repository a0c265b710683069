//! Lines in: replies, logs, and everything that is none of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rigline::client::{self, Incoming, PeerRequest, Received};
use rigline::frame::Frame;
use rigline::json::{Json, JsonKind, write};

use super::{Completion, Shared, State, Waiting};
use crate::host::error::RpcFailure;
use crate::host::event::{EventKind, Log};
use crate::host::manifest::value;
use crate::host::result::OwnedReply;
use crate::host::{Direction, shown};

/// How many skipped lines are shown between two messages; more are counted.
pub(super) const SHOWN_SKIPPED: u32 = 100;
/// How many skipped lines an error shows.
const KEPT_SKIPPED: usize = 5;

impl Shared {
    /// `is_told`: the line that is too long has failed its call already.
    pub(super) fn frame(self: &Arc<Self>, frame: Frame<'_>, is_told: &mut bool) {
        match frame {
            Frame::Line(line) => {
                if let Some(traffic) = &self.options.traffic {
                    traffic(Direction::Received, line);
                }
                self.line(line);
            }
            Frame::TooLong(too_long) => {
                let length = too_long.dropped as u64;
                self.tell(EventKind::TooLong { length, limit: too_long.limit });
                if !std::mem::take(is_told) {
                    self.too_long(length);
                }
            }
        }
    }

    /// A line over the limit has ended, or does not end: the call that is out alone must be the one that it answers.
    pub(super) fn too_long(&self, length: u64) {
        let mut state = self.lock();
        if !state.booting
            && let [Waiting { id, .. }] = *state.waiting
        {
            state.finish(id, Completion::TooLong(length));
        } else {
            let limit = self.options.line_limit;
            state.hint = Some(format!("a line of {length} bytes was dropped; the limit is {limit}"));
        }
    }

    fn line(self: &Arc<Self>, line: &[u8]) {
        match self.replies_in_array(line) {
            Some(replies) => {
                self.tell(EventKind::Anomaly("a reply came inside an array"));
                replies.elements().for_each(|reply| self.message(reply.as_bytes()));
            }
            None => self.message(line),
        }
    }

    /// The array that a line is, if it has a reply to one of the requests that are out. A reply to a request that was not in a batch must
    /// be an object (JSON-RPC 2.0 §6), but some programs answer every request so.
    fn replies_in_array<'l>(&self, line: &'l [u8]) -> Option<Json<'l>> {
        if line.trim_ascii_start().first() != Some(&b'[') || self.options.strict {
            return None;
        }
        let array = Json::parse(line).ok()?;
        let state = self.lock();
        let is_reply = |element: Json<'_>| {
            (element.get("result").is_some() || element.get("error").is_some())
                && element
                    .get("id")
                    .is_some_and(|id| state.waiting.iter().any(|waiting| id.as_str() == waiting.id.to_string()))
        };
        array.elements().any(is_reply).then_some(array)
    }

    fn message(self: &Arc<Self>, mut line: &[u8]) {
        loop {
            let mut state = self.lock();
            let received = state.client.receive(line);
            let skipped = std::mem::take(&mut state.more_skipped);
            let is_message = !matches!(received.incoming, Incoming::NonProtocol(_) | Incoming::Malformed(_));
            if matches!(received.incoming, Incoming::Reply(_) | Incoming::UnknownId(_)) {
                self.is_late.store(false, Ordering::Relaxed);
            }
            if is_message {
                state.budget = SHOWN_SKIPPED;
            } else {
                state.more_skipped = skipped;
            }
            let mut events = Vec::new();
            if is_message && skipped > 0 {
                events.push(EventKind::MoreSkipped(skipped));
            }
            if !received.before.is_empty() {
                let why = "it precedes a message".to_owned();
                state.skip(received.before, why, &mut events);
            }
            let request = state.take_in(&received, &mut events);
            drop(state);
            events.extend(received.anomalies.texts().map(EventKind::Anomaly));
            for event in events {
                self.tell(event);
            }
            if let Some(answer) = request {
                self.refuse(answer);
            }
            if received.rest.is_empty() {
                return;
            }
            line = received.rest;
        }
    }

    pub(super) fn error_line(&self, line: &[u8]) {
        let text = shown(line.trim_ascii_end());
        if text.is_empty() {
            return;
        }
        let mut state = self.lock();
        while state.stderr.len() >= self.options.stderr_lines.max(1) {
            state.stderr.pop_front();
        }
        state.stderr.push_back(text.clone());
        drop(state);
        self.tell(EventKind::Stderr(text));
    }
}

impl State {
    pub(super) fn finish(&mut self, id: u32, completion: Completion) {
        self.client.forget(id);
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) {
            self.waiting.swap_remove(at).sender.tell(completion);
        }
    }

    pub(super) fn skip(&mut self, text: &[u8], why: String, events: &mut Vec<EventKind>) {
        let text = shown(text);
        if self.skipped.len() >= KEPT_SKIPPED {
            self.skipped.pop_front();
        }
        self.skipped.push_back(text.clone());
        if text.get(..15).is_some_and(|start| start.eq_ignore_ascii_case("Content-Length:")) {
            self.hint = Some(
                "it frames messages with Content-Length headers; here a message is one JSON text a line".to_owned(),
            );
        }
        match self.budget.checked_sub(1) {
            Some(budget) => {
                self.budget = budget;
                events.push(EventKind::Skipped { text, why });
            }
            None => self.more_skipped += 1,
        }
    }

    /// Whether a request of the peer's is one of our own that came back.
    fn is_own(&self, request: &PeerRequest<'_>) -> bool {
        self.waiting.iter().any(|waiting| {
            waiting.method.as_deref().is_some_and(|method| request.method == *method)
                && request.id.as_str() == waiting.id.to_string()
        })
    }

    fn echoes(&mut self, events: &mut Vec<EventKind>) {
        self.hint = Some("a request came back: the line echoes".to_owned());
        events.push(EventKind::Echo);
    }

    /// Gives the answer to a request, if the message was one.
    fn take_in(&mut self, received: &Received<'_>, events: &mut Vec<EventKind>) -> Option<Vec<u8>> {
        match received.incoming {
            Incoming::Reply(reply) => {
                let is_call = self.waiting.iter().any(|waiting| waiting.id == reply.id && waiting.is_call);
                self.finish(reply.id, Completion::Answer(OwnedReply::of(reply.body, is_call)));
            }
            Incoming::Malformed(broken) => {
                let why = broken.to_string();
                self.hint = Some(format!("a damaged message came: {why}"));
                match broken.id {
                    Some(id) => self.finish(id, Completion::Answer(OwnedReply::Bad(why.clone(), shown(broken.text)))),
                    None if self.budget == 0 => {
                        self.more_skipped += 1;
                        return None;
                    }
                    None => self.budget -= 1,
                }
                events.push(EventKind::Damaged { text: shown(broken.text), why });
            }
            Incoming::UnknownId(stray) => {
                if !stray.late {
                    self.hint = Some(format!("a reply came to an id that was never sent: {}", stray.id));
                }
                events.push(EventKind::UnknownId { id: shown(stray.id.as_bytes()), late: stray.late });
            }
            Incoming::ErrorWithoutId { error, only } => {
                let failure = RpcFailure::of(error);
                self.hint = Some(format!("an error came that names no request: {failure}"));
                events.push(EventKind::ErrorWithoutId(failure.clone()));
                if let Some(id) = only.filter(|_| !self.booting) {
                    self.finish(id, Completion::Answer(OwnedReply::Error(failure, error.json().as_str().to_owned())));
                }
            }
            Incoming::Log(log) => {
                let level = log.level();
                let name = log
                    .level_name()
                    .map(|name| name.to_string())
                    .filter(|name| !name.is_empty() && name != level.name());
                events.push(EventKind::Log(Log {
                    level,
                    level_name: name,
                    message: log.message().to_string(),
                    data: log.data().map(value),
                    data_text: log.data().map(|data| data.as_str().to_owned()),
                }));
            }
            Incoming::Notification { method, params } => {
                events.push(EventKind::Notification { method: method.to_string(), params: value(params) });
            }
            Incoming::Request(request) if self.is_own(&request) => self.echoes(events),
            Incoming::Request(request) => {
                if self.answers_ping
                    && request.method == "ping"
                    && matches!(request.id.kind(), JsonKind::String | JsonKind::Number)
                {
                    return Some(
                        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\n", request.id).into_bytes(),
                    );
                }
                events.push(EventKind::Refused { method: shown(request.method.to_string().as_bytes()) });
                let mut out = write::Writer::new(&mut []);
                client::write_refusal(&request, &mut out);
                let mut memory = vec![0; out.needed()];
                let mut out = write::Writer::new(&mut memory);
                client::write_refusal(&request, &mut out);
                return out.finish().ok().map(|line| line.to_vec());
            }
            Incoming::Echo => self.echoes(events),
            Incoming::NonProtocol(noise) => self.skip(noise.text, noise.why.to_string(), events),
            _ => {}
        }
        None
    }
}
