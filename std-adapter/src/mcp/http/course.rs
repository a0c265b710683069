//! The course of a request: through what stands between, to the extension, and back.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use rigline::json::{Json, JsonKind};
use rigline::rpc;
use tokio::sync::mpsc;

use super::{CheckedRequest, error};
use crate::between::{Between, Passing, Peer, Wire};
use crate::http::Service;
use crate::queue::{Asker, Incoming, Line, QueueClient, Received};

/// The number of the next peer.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The first outcome of a message.
pub(super) enum Begun {
    /// Nobody between has kept it.
    Passes,
    /// It is answered.
    Reply(Vec<u8>),
    /// It is acknowledged, and no reply will come.
    StaysOpen(Vec<u8>),
    /// It is no request, and gets no answer.
    Silent,
    /// Something will come of it.
    Waits,
    /// Too many wait.
    Full,
    /// The extension has ended.
    Gone,
}

/// A request on its way, and the messages that come back for it.
pub(super) struct Course {
    service: Arc<Service>,
    asker: Whose,
    /// Its id, as JSON text.
    id: String,
    gate: Option<Gate>,
    incoming: Option<Incoming>,
}

/// An [`Asker`] that lasts.
struct Whose {
    client: QueueClient,
    session: Option<String>,
    cancels: bool,
    wants_logs: bool,
    identity: Option<String>,
}

/// The place between the client and the extension.
struct Gate {
    between: Arc<dyn Between>,
    peer: Peer,
    own: mpsc::UnboundedReceiver<Own>,
    /// How many bytes of it wait.
    waiting: Arc<AtomicUsize>,
    /// Whether a request is cancelled with its response.
    cancels: bool,
}

/// A message that neither the client nor the extension has sent.
enum Own {
    ToClient(Vec<u8>),
    ToExtension(Vec<u8>),
    End,
}

struct Response {
    own: mpsc::UnboundedSender<Own>,
    waiting: Arc<AtomicUsize>,
}

/// How many bytes of messages that need no answer may wait for a client. Further ones are dropped.
const WAITING: usize = 1 << 20;

impl Wire for Response {
    fn to_client(&self, message: &[u8]) {
        if self.waiting.fetch_add(message.len(), Ordering::Relaxed) > WAITING && !has_id(message) {
            self.waiting.fetch_sub(message.len(), Ordering::Relaxed);
            return;
        }
        let _ = self.own.send(Own::ToClient(message.to_vec()));
    }

    fn to_extension(&self, message: Vec<u8>) {
        let _ = self.own.send(Own::ToExtension(message));
    }

    fn end(&self) {
        let _ = self.own.send(Own::End);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.between.gone(&self.peer, self.cancels);
    }
}

impl Course {
    /// Of a request, which begins the session `begun`.
    pub(super) fn of_request(
        service: &Arc<Service>,
        request: &CheckedRequest<'_>,
        client: &QueueClient,
        begun: Option<&str>,
        takes_events: bool,
    ) -> Self {
        let Asker { session, cancels, wants_logs, identity, .. } = request.asker(client, None);
        let (session, identity) = (session.map(str::to_owned), identity.map(str::to_owned));
        let named = begun.or(session.as_deref()).map(Arc::from);
        let gate = Gate::new(service, named, takes_events, cancels);
        let asker = Whose { client: client.clone(), session, cancels, wants_logs, identity };
        Self { service: service.clone(), asker, id: request.id.to_owned(), gate, incoming: None }
    }

    /// Of what has no reply of its own.
    pub(super) fn of_session(service: &Arc<Service>, client: &QueueClient, session: Option<&str>) -> Self {
        let gate = Gate::new(service, session.map(Arc::from), false, false);
        let session = session.map(str::to_owned);
        let asker = Whose { client: client.clone(), session, cancels: false, wants_logs: false, identity: None };
        Self { service: service.clone(), asker, id: "null".to_owned(), gate, incoming: None }
    }

    /// Shows a message to what stands between.
    pub(super) fn receive(&mut self, message: &[u8]) -> Begun {
        match self.pass(message) {
            Passing::Kept => self.kept(),
            Passing::On | Passing::Instead(_) => Begun::Passes,
        }
    }

    /// Has the request on its way.
    pub(super) fn begin(&mut self, message: &[u8]) -> Begun {
        match self.pass(message) {
            Passing::On => self.forward(message.to_vec()),
            Passing::Instead(other) => self.forward(other),
            Passing::Kept => self.kept(),
        }
    }

    fn pass(&self, message: &[u8]) -> Passing {
        self.gate.as_ref().map_or(Passing::On, |gate| gate.between.received(&gate.peer, message))
    }

    /// Takes the answer that is there already.
    fn kept(&mut self) -> Begun {
        let Some(gate) = &mut self.gate else { return Begun::Silent };
        match gate.own.try_recv().inspect(|own| gate.has_taken(own)) {
            Ok(Own::ToClient(message)) if is_reply(&message) => Begun::Reply(message),
            // It is sent again, to come in its order.
            Ok(Own::ToClient(message)) => {
                gate.peer.to_client(&message);
                Begun::Waits
            }
            Ok(Own::ToExtension(message)) => self.forward(message),
            Ok(Own::End) => Begun::Silent,
            Err(_) => Begun::Waits,
        }
    }

    fn forward(&mut self, message: Vec<u8>) -> Begun {
        let Whose { client, session, cancels, wants_logs, identity } = &self.asker;
        let (session, identity) = (session.as_deref(), identity.as_deref());
        let asker = Asker { client, session, cancels: *cancels, wants_logs: *wants_logs, identity, arrived: None };
        match self.service.queue().receive(message, &asker) {
            Received::Reply(reply) => self.sent(reply).map_or(Begun::Waits, Begun::Reply),
            Received::StaysOpen(first) => self.sent(first).map_or(Begun::Waits, Begun::StaysOpen),
            Received::Waits(incoming) => {
                self.incoming = Some(incoming);
                Begun::Waits
            }
            Received::Silent => Begun::Silent,
            Received::Full => Begun::Full,
            Received::Gone => Begun::Gone,
        }
    }

    /// Shows a message of the extension to what stands between, and returns the message that goes
    /// on.
    fn sent(&self, message: Vec<u8>) -> Option<Vec<u8>> {
        match self.gate.as_ref().map_or(Passing::On, |gate| gate.between.sent(&gate.peer, &message)) {
            Passing::On => Some(message),
            Passing::Instead(other) => Some(other),
            Passing::Kept => None,
        }
    }

    /// Listens for what concerns all clients of its session; none if nobody says anything.
    pub(super) fn listening(self) -> Option<Self> {
        let this = self.between_only()?;
        if let Some(gate) = &this.gate {
            gate.between.listens(&gate.peer);
        }
        Some(this)
    }

    /// For what comes from between only; none if nothing stands there.
    pub(super) fn between_only(self) -> Option<Self> {
        self.gate.is_some().then_some(self)
    }

    /// Whether the extension has not begun with it.
    pub(super) fn waits(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::waits)
    }

    /// The next line; none if the request was cancelled, or the extension has ended.
    pub(super) async fn line(&mut self) -> Option<Line> {
        poll_fn(|task| self.poll_line(task)).await
    }

    /// As [`line`](Self::line), for a task.
    pub(super) fn poll_line(&mut self, task: &mut Context<'_>) -> Poll<Option<Line>> {
        loop {
            if let Some(gate) = &mut self.gate
                && let Poll::Ready(Some(own)) = gate.own.poll_recv(task)
            {
                gate.has_taken(&own);
                let begun = match own {
                    Own::ToClient(message) if is_reply(&message) => return Poll::Ready(Some(Line::Reply(message))),
                    Own::ToClient(message) => return Poll::Ready(Some(Line::Notification(message))),
                    Own::End => return Poll::Ready(None),
                    Own::ToExtension(message) => self.forward(message),
                };
                match begun {
                    Begun::Waits | Begun::Passes => continue,
                    Begun::Reply(reply) | Begun::StaysOpen(reply) => return Poll::Ready(Some(Line::Reply(reply))),
                    Begun::Full => {
                        let text = "too many requests wait already";
                        let refusal = error(Some(&self.id), rpc::INTERNAL_ERROR, text).to_string();
                        return Poll::Ready(Some(Line::Reply(refusal.into_bytes())));
                    }
                    Begun::Silent | Begun::Gone => return Poll::Ready(None),
                }
            }
            let Some(incoming) = &mut self.incoming else {
                return if self.gate.is_some() { Poll::Pending } else { Poll::Ready(None) };
            };
            match incoming.poll_line(task) {
                Poll::Ready(Some(Line::Reply(reply))) => {
                    self.incoming = None;
                    if let Some(reply) = self.sent(reply) {
                        return Poll::Ready(Some(Line::Reply(reply)));
                    }
                }
                other => return other,
            }
        }
    }
}

impl Gate {
    fn new(service: &Service, session: Option<Arc<str>>, hears_requests: bool, cancels: bool) -> Option<Self> {
        let between = service.between()?.clone();
        let (response, own) = mpsc::unbounded_channel();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let waiting = Arc::<AtomicUsize>::default();
        let response = Response { own: response, waiting: Arc::clone(&waiting) };
        let peer = Peer::new(number, session, hears_requests, Arc::new(response));
        Some(Self { between, peer, own, waiting, cancels })
    }

    fn has_taken(&self, own: &Own) {
        if let Own::ToClient(message) = own {
            self.waiting.fetch_sub(message.len(), Ordering::Relaxed);
        }
    }
}

/// Whether a message is a reply or wants one.
fn has_id(message: &[u8]) -> bool {
    Json::parse(message).is_ok_and(|message| message.kind() == JsonKind::Object && message.get("id").is_some())
}

/// Whether nothing follows a message.
fn is_reply(message: &[u8]) -> bool {
    let message = Json::parse(message).unwrap_or(Json::NULL);
    message.kind() == JsonKind::Object && message.get("id").is_some() && message.get("method").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_answer_is_bounded_for_a_client_that_does_not_read_and_a_question_is_kept() {
        let (own, mut taken) = mpsc::unbounded_channel();
        let response = Response { own, waiting: Arc::default() };
        let text = "x".repeat(1000);
        for _ in 0..5000 {
            response.to_client(format!("{{\"method\":\"notifications/message\",\"params\":\"{text}\"}}").as_bytes());
        }
        response.to_client(b"{\"id\":1,\"method\":\"elicitation/create\"}");
        let mut lengths = Vec::new();
        while let Ok(Own::ToClient(message)) = taken.try_recv() {
            lengths.push(message.len());
        }
        assert!(lengths.iter().sum::<usize>() < WAITING + 2000, "{}", lengths.len());
        assert!(lengths.len() > 900 && lengths.last() < Some(&100), "the question is the last one");
    }
}
