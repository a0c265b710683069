//! One message: the action that it asks for, its answer if it can be given at once, and the work
//! that is run for it.

#[allow(unused_imports, reason = "for the docs")]
use super::Next;
use super::Served;
use super::answer::{DirectReply, about, parse_error};
use super::detect::{Detected, classify};
use super::session::{Session, State};
use super::state::{Done, Exchange, Opened, PendingWork, Stage, Turn, WorkKind};
use crate::call::{Call, CallContext, Config, Outcome};
use crate::context::{Context, ReplyBuffer};
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::json::Json;
use crate::json::check::{NO_SPANS, Parts, Span, check};
use crate::json::write::Message;
use crate::level::Level;
use crate::manifest::Operation;
use crate::message::{Envelope, Received, Refusal};
use crate::protocol::define::{Action, Nanos, Protocol, Respond};
use crate::reply::Reply;
use crate::rpc;
use crate::service::JobRun;

/// The work for one message, and the memory of its reply.
#[derive(Debug)]
pub struct Running<'s> {
    /// The work to run.
    pub work: Work<'s>,
    /// The memory of the reply, for [`Context::new`](crate::Context::new).
    pub reply: ReplyBuffer<'s>,
}

/// The work to run.
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and no heap to put it on")]
pub enum Work<'s> {
    /// Call an operation by [`Extension::call`](crate::Extension::call).
    Call(Call<'s>),
    /// Pass a session's configuration to [`Extension::configure`](crate::Extension::configure).
    Configure(Config<'s>),
    /// Pass an event to [`Extension::on_event`](crate::Extension::on_event).
    Event(Event<'s>),
    /// Run a job by [`Extension::run_job`](crate::Extension::run_job).
    Job(JobRun<'s>),
}

impl Work<'_> {
    /// Takes out of a call's arguments what the client has added itself, where clients of its
    /// protocol do. Where the work stays: what runs it would have a second copy.
    #[inline]
    pub(crate) fn prepare(&mut self, cx: &mut Context<'_>) {
        if let Self::Call(call) = self {
            cx.prepare(call);
        }
    }

    /// The time limit of the work in nanoseconds, if the host sets one.
    pub fn timeout_nanos(&self) -> Option<u64> {
        match self {
            Self::Call(call) => call.context.timeout_nanos,
            Self::Configure(_) | Self::Event(_) | Self::Job(_) => None,
        }
    }
}

impl Exchange {
    /// An exchange for a message that has not arrived yet.
    pub fn new(to: &Served<'_>) -> Self {
        Self {
            stage: Stage::Idle,
            batch: None,
            reply: Reply::new(to.first),
            is_deferred: false,
            is_cancelled: false,
            is_closed: false,
            owes_notice: false,
            is_touched: false,
            is_refused: false,
            least_log: Level::Debug,
            opened: Opened::NotAsked,
            running: PendingWork::NOTHING,
            spans: NO_SPANS,
        }
    }

    /// The JSON text of the id of the current message, which runs or waits for its turn. It is
    /// empty if the message has no id.
    pub fn id<'t>(&self, message: &'t [u8]) -> &'t [u8] {
        self.running.id.of(self.running.message.of(message))
    }

    /// The time limit of the current work in nanoseconds, if the host sets one.
    pub fn timeout_nanos(&self) -> Option<u64> {
        self.running.timeout.map(|Nanos(nanos)| nanos)
    }

    /// Sets the time limit of the current work, in nanoseconds. Use it after the work has waited
    /// for its turn, with the time that is left. Zero is taken as one nanosecond.
    pub fn set_timeout_nanos(&mut self, nanos: u64) {
        self.running.timeout = Some(Nanos(nanos.max(1)));
    }

    /// The position in the manifest of the operation that runs or waits for its turn. It is none if
    /// the work is not an operation.
    pub fn operation(&self) -> Option<usize> {
        (self.running.kind == WorkKind::Call).then_some(self.running.index)
    }

    /// Takes note that the caller has cancelled the call, so that it gets no reply.
    pub fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    /// Whether the current work can switch an output of the hardware on. This is false only for an
    /// operation that is declared to be [read-only](crate::manifest::Effects::read_only).
    pub fn can_change(&self, to: &Served<'_>) -> bool {
        let operation = self.operation().and_then(|index| to.manifest.operations.get(index));
        let is_read_only = operation.is_some_and(Operation::only_reads);
        !is_read_only || matches!(self.stage, Stage::OwnWork)
    }

    /// Sets whether an output may be switched on: work that [can switch one on](Self::can_change)
    /// has run, for any client, since [`safe_state`](crate::Extension::safe_state) ran last. The
    /// handler reads it by [`Context::may_be_on`](crate::Context::may_be_on).
    pub fn set_touched(&mut self, is_touched: bool) {
        self.is_touched = is_touched;
    }

    /// Lets the reply say that [`safe_state`](crate::Extension::safe_state) has run since the reply
    /// before, if its protocol has a place for that.
    pub fn set_notice(&mut self) {
        self.owes_notice = true;
    }

    /// Whether the reply has said that [`safe_state`](crate::Extension::safe_state) has run, after
    /// [`set_notice`](Self::set_notice). An error reply does not say it.
    pub fn has_given_notice(&self) -> bool {
        self.owes_notice && self.running.answer.is_none() && !self.reply.is_error() && !self.reply.is_silent()
    }

    /// Returns the work that [`Next::Run`] announced, when it is its turn. `out` is the memory for
    /// its reply. For a member of a batch, pass the memory that [`Session::receive`] got. Returns
    /// none if there is nothing to run.
    pub fn run<'s>(&'s mut self, to: &Served<'s>, message: &'s mut [u8], out: &'s mut [u8]) -> Option<Running<'s>> {
        if self.batch.is_none() && !self.reply.is_silent() {
            let id = self.running.id.of(self.running.message.of(message));
            let protocol = self.reply.protocol();
            self.reply.begin(out, 0, most(to, protocol, out), protocol, id);
        }
        self.start(to, message, out, || None, |work, reply, _| Some(Running { work, reply }))
    }

    /// Ends the work that [`Next::Run`] announced with a failure, in place of running it.
    pub fn refuse(
        &mut self,
        to: &Served<'_>,
        message: &mut [u8],
        out: &mut [u8],
        kind: FailureKind,
        why: &dyn Message,
    ) {
        let Some(Running { reply, .. }) = self.run(to, message, out) else { return };
        let failure = reply.reply.failure(reply.memory, kind, why);
        self.complete(to, message, out, &Err(failure.refused()));
    }

    /// Takes the result of the work that [`run`](Self::run) returned. Pass the same memory as to
    /// `run`.
    pub fn complete(&mut self, to: &Served<'_>, message: &[u8], out: &mut [u8], result: &Result<Outcome, Failure>) {
        let Stage::Running = self.stage else { return };
        let PendingWork { kind, answer, message: span, .. } = self.running;
        self.is_refused = result.as_ref().is_err_and(Failure::is_refusal);
        if core::mem::take(&mut self.is_cancelled) {
            let protocol = self.reply.protocol();
            self.reply.silent(protocol);
        }
        let text = match (kind, answer, result) {
            // The result of `initialize` is a manifest and nothing else.
            (WorkKind::Configure, _, Err(failure)) => Some(DirectReply::Failure(failure)),
            (_, Some(answer), _) => Some(DirectReply::Respond(answer)),
            (_, None, _) => None,
        };
        let end = if let Some(text) = text {
            let end = Turn { to, x: self, line: message, out }.answer(span, text);
            if kind == WorkKind::Configure {
                self.opened = if result.is_err() || self.reply.is_error() { Opened::No } else { Opened::Yes };
            }
            end
        } else {
            let about = about(message, span, &self.spans, to.manifest);
            self.reply.finish(out, result, &about)
        };
        self.stage = Stage::Completed(self.replied(end));
    }

    /// Forgets what it was used for before.
    pub(crate) fn reset(&mut self) {
        self.stage = Stage::Idle;
        self.batch = None;
        self.is_deferred = false;
        self.is_cancelled = false;
        self.owes_notice = false;
        self.is_refused = false;
        self.opened = Opened::NotAsked;
    }

    /// Ends work that was given out and not completed.
    #[cold]
    pub(crate) fn give_up(&mut self, to: &Served<'_>, message: &[u8], out: &mut [u8]) {
        self.complete(to, message, out, &Err(Failure::CANCELLED));
    }

    pub(super) fn replied(&self, end: usize) -> Done {
        if self.reply.is_silent() { Done::Nothing } else { Done::Reply(end) }
    }

    /// Whether the request that was answered stays open.
    pub(super) fn stays_open(&self, protocol: &Protocol, message: &[u8], start: usize) -> bool {
        let text = message.get(start..).unwrap_or_default();
        let received = Received::whole(text, &self.spans);
        // The members were found also where the end of the text was none.
        received.is_object() && (protocol.stays_open)(&received) && check(text).is_ok()
    }

    pub(crate) fn begin_own_work(&mut self, protocol: &'static Protocol) {
        self.reset();
        self.stage = Stage::OwnWork;
        self.reply.silent(protocol);
    }

    /// The work of [`Stage::Running`] or [`Stage::OwnWork`], as parts of the memory.
    // In line, its parts need not be written to be read again; and what `take` makes of them is not
    // copied.
    #[inline(always)]
    pub(crate) fn start<'s, T>(
        &'s mut self,
        to: &Served<'s>,
        line: &'s mut [u8],
        memory: &'s mut [u8],
        nothing: impl Fn() -> T,
        take: impl FnOnce(Work<'s>, ReplyBuffer<'s>, &'s [u8]) -> T,
    ) -> T {
        let PendingWork { kind, index, has_args, value, message, id, timeout, .. } = self.running;
        let (work, received) = match self.stage {
            Stage::Running => {
                let protocol = self.reply.protocol();
                let Some(text) = line.get_mut(message.start as usize..message.end as usize) else { return nothing() };
                let value = if has_args { Some(value) } else { empty_object(text, value) };
                let Some((value, parts)) = value.and_then(|value| Parts::take(text, value)) else { return nothing() };
                let received = Received { parts, spans: &self.spans };
                // A notification gets no logs; what was acknowledged has its own.
                let is_notification = self.reply.is_silent() && self.running.acknowledgement().is_none();
                self.reply.least_log = if is_notification { None } else { Some(self.least_log) };
                self.reply.is_touched = self.is_touched;
                if self.owes_notice && protocol.ends_safe {
                    self.reply.notice(memory);
                }
                let work = match kind {
                    WorkKind::Call => {
                        let Some(operation) = to.manifest.operations.get(index) else { return nothing() };
                        let timeout_nanos = timeout.map(|Nanos(nanos)| nanos);
                        let context = CallContext { timeout_nanos, protocol, received };
                        Work::Call(Call { index, operation, args: value, context })
                    }
                    WorkKind::Event => Work::Event(Event::of_checked(Json::of_checked(value))),
                    WorkKind::Configure => Work::Configure(Config(value)),
                };
                (work, Some(received))
            }
            Stage::OwnWork => {
                let Some((service, job)) = to.service.and_then(|service| Some((service, service.next_job()?))) else {
                    return nothing();
                };
                self.stage = Stage::Completed(Done::Nothing);
                self.reply.least_log = Some(self.least_log);
                (Work::Job(JobRun { service, job }), None)
            }
            _ => return nothing(),
        };
        let id = received.map_or(&b""[..], |received| received.of(id));
        take(work, ReplyBuffer { memory, reply: &mut self.reply, limits: to.limits, received }, id)
    }
}

impl Session {
    /// Takes the message at `message` of the line, whose members were found by the table of the
    /// protocol of the message before.
    #[inline(never)]
    pub(crate) fn message(&mut self, turn: &mut Turn<'_, '_>, message: Span) -> Done {
        self.message_in_line(turn, message)
    }

    /// [`message`](Self::message), for the one place that most messages come through.
    #[inline(always)]
    #[allow(clippy::too_many_lines, reason = "an arm for each kind of action")]
    pub(crate) fn message_in_line(&mut self, turn: &mut Turn<'_, '_>, message: Span) -> Done {
        let in_batch = turn.x.batch.is_some();
        let text = message.of(turn.line);
        let (protocols, pinned) = (turn.to.protocols, turn.to.pinned);
        match classify(text, &mut turn.x.spans, self.protocol, protocols, pinned, in_batch) {
            Err(error) => return Done::Reply(parse_error(&mut turn.whole_writer(), self.protocol, error)),
            Ok(Detected::Answer(protocol)) => {
                self.protocol = protocol;
                return Done::Nothing;
            }
            Ok(Detected::Message(protocol)) => self.protocol = protocol,
        }
        let protocol = self.protocol;
        let server = turn.to.server(self.is_closed());
        // In a batch a reply comes after a bracket or comma, and before a closing bracket and the end of the line.
        let most = most(turn.to, protocol, turn.out);
        let (reply_start, limit) = match turn.x.batch {
            Some(batch) => (batch.end + 1, most.saturating_sub(1 + batch.reserve)),
            None => (0, most),
        };
        let received = Received::whole(text, &turn.x.spans);
        let id = match (protocol.envelope)(&received) {
            Envelope::Reply => return Done::Nothing,
            Envelope::Request { id } => {
                turn.x.reply.begin(turn.out, reply_start, limit, protocol, received.of(id));
                id
            }
            Envelope::Notification => {
                turn.x.reply.silent(protocol);
                Span::default()
            }
            Envelope::Invalid { text, id } => {
                let mut out = rpc::writer(turn.out, reply_start, limit);
                return Done::Reply(rpc::invalid_request(&mut out, received.of(id), text));
            }
        };
        turn.x.is_closed = server.is_closed;
        turn.x.least_log = self.least_log;
        if protocol.is_json_rpc
            && let Some(service) = turn.to.service
            && received.string(rpc::METHOD).is_some_and(|method| service.owns(method))
        {
            let end = turn.answer(message, DirectReply::Service);
            return turn.x.replied(end);
        }
        let asked = &mut turn.x.running;
        match (protocol.read)(&received, &server) {
            Ok(Action::Call(call)) => asked.call(call, None),
            Ok(Action::AckThenCall { call, answer }) => asked.call(call, Some(answer)),
            Ok(Action::OpenSession { config, answer }) if received.of(config).first() == Some(&b'{') => {
                asked.other(WorkKind::Configure, config, answer);
                if let Some(end) = self.refused_by_policy(turn, message) {
                    return turn.x.replied(end);
                }
            }
            Ok(Action::AckThenRun { event, answer }) => asked.other(WorkKind::Event, event, answer),
            action => {
                let end = self.answer_action(turn, message, action);
                return turn.x.replied(end);
            }
        }
        (turn.x.running.message, turn.x.running.id) = (message, id);
        turn.x.is_touched = self.safety.is_touched;
        if !self.safety.is_touched {
            self.safety.is_touched = turn.x.can_change(turn.to);
        }
        turn.x.owes_notice = self.safety.owes_notice;
        if let Some(answer) = turn.x.running.acknowledgement()
            && !in_batch
            && !turn.x.reply.is_silent()
        {
            // The line with its acknowledgement goes first.
            turn.x.is_deferred = true;
            let end = turn.answer(message, DirectReply::Respond(answer));
            return turn.x.replied(end);
        }
        turn.x.stage = Stage::Running;
        Done::Run
    }

    /// Answers a request that runs nothing.
    #[inline(never)]
    fn answer_action(
        &mut self,
        turn: &mut Turn<'_, '_>,
        message: Span,
        action: Result<Action, &'static Refusal>,
    ) -> usize {
        match action {
            Err(refusal) => turn.answer(message, DirectReply::Refusal(refusal)),
            Ok(Action::Answer(answer)) => turn.answer(message, DirectReply::Respond(answer)),
            Ok(Action::OpenSession { answer, .. }) => match self.refused_by_policy(turn, message) {
                Some(end) => end,
                None => self.initialized(turn, message, answer),
            },
            Ok(Action::LimitLogs { least, answer }) => {
                self.least_log = least;
                turn.answer(message, DirectReply::Respond(answer))
            }
            Ok(Action::CloseSession { answer }) => {
                self.state = State::ShuttingDown { initialized: self.state == State::Initialized };
                self.least_log = Level::Debug;
                turn.x.is_closed = true;
                if let Some(policy) = turn.to.policy {
                    policy.close();
                }
                turn.answer(message, DirectReply::Respond(answer))
            }
            Ok(_) => {
                turn.x.reply.silent(self.protocol);
                0
            }
        }
    }

    fn initialized(&mut self, turn: &mut Turn<'_, '_>, message: Span, answer: Respond) -> usize {
        let end = turn.answer(message, DirectReply::Respond(answer));
        if turn.x.reply.is_error() {
            self.not_initialized(turn.to);
        } else {
            self.begin();
        }
        end
    }

    /// A session begins: what one before has asked for does not hold in it.
    pub(super) fn begin(&mut self) {
        self.state = State::Initialized;
        self.least_log = Level::Debug;
    }

    /// A session did not start. One that had started before goes on.
    pub(super) fn not_initialized(&self, to: &Served<'_>) {
        if let Some(policy) = to.policy
            && self.state != State::Initialized
        {
            policy.close();
        }
    }

    /// Where the reply ends if no session may start.
    #[inline(never)]
    fn refused_by_policy(&mut self, turn: &mut Turn<'_, '_>, message: Span) -> Option<usize> {
        let failure = turn.to.policy?.open().err()?;
        Some(turn.answer(message, DirectReply::Failure(&failure)))
    }
}

/// The longest reply, in bytes: the end of its line has room behind it.
fn most(to: &Served<'_>, protocol: &Protocol, out: &[u8]) -> usize {
    let most = out.len().saturating_sub(1);
    if protocol.has_host_line_limit { most.min(to.limits.1) } else { most }
}

/// No arguments are an empty object. It is written in the place of a member that every request has,
/// that has been read and is wanted no more.
fn empty_object(text: &mut [u8], Span { start, end }: Span) -> Option<Span> {
    let place = text.get_mut(start as usize..end as usize)?.first_chunk_mut::<2>()?;
    *place = *b"{}";
    Some(Span { start, end: start + 2 })
}
