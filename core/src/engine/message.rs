//! One message: what it asks for, its answer where one can be given at once, and what is run for it.

use super::answer::Answer;
use super::background::Background;
use super::detect::{Detected, classify, scan};
use super::session::Session;
use super::step::{Run, Work};
use super::{Done, Engine, State, parse_error};
use crate::call::{Call, CallContext, Config, Value};
use crate::context::ReplyBuffer;
use crate::definition::{Action, CallAction, Nanos, Respond};
use crate::event::Event;
use crate::json::check::{Parts, Span};
use crate::json::view::Json;
use crate::received::{Envelope, Received, Refusal};
use crate::rpc;
use crate::service::JobRun;

#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) kind: Kind,
    /// What the extension gets: arguments, a configuration or an event.
    pub(super) value: Span,
    /// Where the message is in its line.
    pub(super) message: Span,
    pub(super) id: Span,
    pub(super) timeout: Option<Nanos>,
}

impl Running {
    pub(super) const NOTHING: Self = Self {
        kind: Kind::Call { index: 0, has_args: false },
        value: Span { start: 0, end: 0 },
        message: Span { start: 0, end: 0 },
        id: Span { start: 0, end: 0 },
        timeout: None,
    };
}

/// What runs, and how it is answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Call {
        index: usize,
        /// The value is an object; if not, an empty object takes its place.
        has_args: bool,
    },
    Configure {
        answer: Respond,
    },
    Event {
        answer: Respond,
    },
}

impl Engine<'_> {
    /// Takes the message at `start..end` of the line that is held. `is_scanned` says that its members were found already, by the
    /// table of the protocol of the message before.
    #[allow(clippy::cast_possible_truncation, reason = "no line is longer than 4 GiB")]
    #[allow(clippy::too_many_lines, reason = "an arm for each kind of action")]
    pub(super) fn message(&mut self, start: usize, end: usize, is_scanned: bool) -> Done {
        let message = Span { start: start as u32, end: end as u32 };
        let in_batch = self.batch.is_some();
        let text = self.framer.line().get(start..end).unwrap_or_default();
        let (protocols, pinned) = (self.settings.protocols, self.settings.pinned);
        let scanned = if is_scanned { Ok(()) } else { scan(text, self.protocol, &mut self.spans) };
        match scanned.and_then(|()| classify(text, &mut self.spans, self.protocol, protocols, pinned, in_batch)) {
            Err(error) => {
                let protocol = self.protocol;
                return Done::Reply(parse_error(&mut self.writer_for_line(), protocol, error));
            }
            Ok(Detected::Answer(protocol)) => {
                self.protocol = protocol;
                return Done::Nothing;
            }
            Ok(Detected::Message(protocol)) => self.protocol = protocol,
        }
        let protocol = self.protocol;
        let facts = self.facts();
        // In a batch a reply comes after a bracket or comma, and before a closing bracket and the end of the line.
        let most = if protocol.has_line_limit { facts.limits.1 } else { self.memory.len().saturating_sub(1) };
        let (reply_start, limit) = match self.batch {
            Some(batch) => (batch.end + 1, most.saturating_sub(1 + batch.reserve)),
            None => (0, most),
        };
        let received = Received::whole(text, &self.spans);
        let id = match (protocol.envelope)(&received) {
            Envelope::Reply => return Done::Nothing,
            Envelope::Request { id } => {
                self.reply.begin(self.memory, reply_start, limit, protocol, received.of(id));
                id
            }
            Envelope::Notification => {
                self.reply.silent(reply_start, protocol);
                Span::default()
            }
            Envelope::Invalid { text, id } => {
                let mut out = rpc::writer(self.memory, reply_start, limit);
                return Done::Reply(rpc::invalid_request(&mut out, received.of(id), text));
            }
        };
        if protocol.is_json_rpc
            && let Some(service) = self.settings.service
            && received.string(rpc::METHOD).is_some_and(|method| service.owns(method))
        {
            let end = self.answer(message, Answer::Service);
            return self.replied(end);
        }
        let (kind, value, timeout) = match (protocol.read)(&received, &facts) {
            Ok(Action::Call(CallAction { index, args, has_args, timeout })) => {
                (Kind::Call { index, has_args }, args, timeout)
            }
            Ok(Action::OpenSession { config, answer }) if received.of(config).first() == Some(&b'{') => {
                if let Some(end) = self.refused_by_policy(message) {
                    return self.replied(end);
                }
                (Kind::Configure { answer }, config, None)
            }
            Ok(Action::AckThenRun { event, answer }) => (Kind::Event { answer }, event, None),
            action => {
                let end = self.answer_action(message, action);
                return self.replied(end);
            }
        };
        self.running = Running { kind, value, message, id, timeout };
        if let Kind::Event { answer } = kind
            && !in_batch
            && !self.reply.is_silent()
        {
            // The line with its acknowledgement goes first.
            self.is_deferred = true;
            let end = self.answer(message, Answer::Respond(answer));
            return self.replied(end);
        }
        self.state = State::Running;
        Done::Run
    }

    /// Answers a request that runs nothing.
    #[inline(never)]
    fn answer_action(&mut self, message: Span, action: Result<Action, &'static Refusal>) -> usize {
        match action {
            Err(refusal) => self.answer(message, Answer::Refusal(refusal)),
            Ok(Action::Answer(answer)) => self.answer(message, Answer::Respond(answer)),
            Ok(Action::OpenSession { answer, .. }) => match self.refused_by_policy(message) {
                Some(end) => end,
                None => self.initialized(message, answer),
            },
            Ok(Action::LimitLogs { least, answer }) => {
                self.least_log = least;
                self.answer(message, Answer::Respond(answer))
            }
            Ok(Action::CloseSession { answer }) => {
                self.session = Session::ShuttingDown { initialized: self.session == Session::Initialized };
                if let Some(policy) = self.policy {
                    policy.close();
                }
                self.answer(message, Answer::Respond(answer))
            }
            Ok(_) => {
                self.reply.silent(0, self.protocol);
                0
            }
        }
    }

    /// What [`State::Running`] says, as parts of the memory.
    pub(crate) fn run(&mut self) -> Option<Run<'_>> {
        if let State::Job = self.state {
            return self.run_job();
        }
        let State::Running = self.state else { return None };
        let Running { kind, value, message, id, timeout } = self.running;
        let protocol = self.protocol;
        let (line, tail) = self.framer.held();
        let text = line.get_mut(message.start as usize..message.end as usize)?;
        let value = if let Kind::Call { has_args: false, .. } = kind { empty_object(text, value)? } else { value };
        let (value, parts) = Parts::take(text, value)?;
        let received = Received { parts, spans: &self.spans };
        let work = match kind {
            Kind::Call { index, .. } => Work::Call(Call {
                index,
                operation: self.settings.manifest.operations.get(index)?,
                args: Value { text: value, numeric_strings: protocol.numeric_strings },
                context: CallContext { timeout_nanos: timeout.map(|Nanos(nanos)| nanos), protocol, received },
            }),
            Kind::Event { .. } => Work::Event(Event::of_checked(Json::of_checked(value))),
            Kind::Configure { .. } => Work::Configure(Config(Value { text: value, numeric_strings: false })),
        };
        let least_log = self.least_log;
        let reply =
            ReplyBuffer { memory: &mut *self.memory, reply: &mut self.reply, received: Some(received), least_log };
        let background =
            Background { tail, lookahead: &mut self.lookahead, settings: &self.settings, id: received.of(id) };
        Some(Run { work, reply, background })
    }

    fn run_job(&mut self) -> Option<Run<'_>> {
        // Its line is done with.
        let _ = self.framer.space();
        self.reply.silent(0, self.json_rpc().unwrap_or(self.protocol));
        let (_, tail) = self.framer.held();
        let service = self.settings.service?;
        let job = service.next_job()?;
        self.state = State::Completed(Done::Nothing);
        let least_log = self.least_log;
        let reply = ReplyBuffer { memory: &mut *self.memory, reply: &mut self.reply, received: None, least_log };
        let background = Background { tail, lookahead: &mut self.lookahead, settings: &self.settings, id: b"" };
        Some(Run { work: Work::Job(JobRun { service, job }), reply, background })
    }
}

/// No arguments are an empty object. It is written in the place of a member that every request has, that has been read
/// and is wanted no more.
fn empty_object(text: &mut [u8], Span { start, end }: Span) -> Option<Span> {
    let place = text.get_mut(start as usize..end as usize)?.first_chunk_mut::<2>()?;
    *place = *b"{}";
    Some(Span { start, end: start + 2 })
}
