//! The served callers, and the one whose call runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// The state of a caller's newest call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallState {
    /// The caller has no call.
    Idle,
    /// The call waits for its turn.
    Waiting,
    /// The call has its turn.
    Running,
}

/// A caller with a [`Ticket`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Caller {
    /// The number of the caller, which no other caller of the process has.
    pub id: u64,
    /// The name.
    pub name: Arc<str>,
    /// How many calls it has made.
    pub calls: u64,
    /// The state of its newest call.
    pub state: CallState,
    /// The operation of a call that waits or runs.
    pub operation: Arc<str>,
    /// Since when `state` is as it is.
    pub since: Instant,
    /// How long the newest call has waited for its turn.
    pub waited: Duration,
}

/// The callers of a proxy, in the order in which they came.
#[derive(Debug)]
pub(super) struct Callers(watch::Sender<Vec<Caller>>);

impl Callers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Vec::new())))
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Vec<Caller>> {
        self.0.subscribe()
    }

    pub(super) fn enter(self: &Arc<Self>, name: &str) -> Ticket {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let caller = Caller {
            id,
            name: name.into(),
            calls: 0,
            state: CallState::Idle,
            operation: "".into(),
            since: Instant::now(),
            waited: Duration::ZERO,
        };
        self.0.send_modify(|callers| callers.push(caller));
        Ticket { callers: Arc::clone(self), id }
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Caller)) {
        self.0.send_if_modified(|callers| {
            let Some(caller) = callers.iter_mut().find(|caller| caller.id == id) else { return false };
            change(caller);
            true
        });
    }
}

/// A caller's entry in the list of a proxy's callers, which ends when the ticket is dropped.
#[derive(Debug)]
pub struct Ticket {
    callers: Arc<Callers>,
    id: u64,
}

impl Ticket {
    /// The caller's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The caller's name.
    pub(super) fn name(&self) -> Option<String> {
        self.callers.0.borrow().iter().find(|caller| caller.id == self.id).map(|caller| caller.name.to_string())
    }

    /// Notes a call, which waits for its turn until it [runs](InCall::runs), and has ended when the value is dropped.
    pub(super) fn begin(&self, operation: &str) -> InCall<'_> {
        let begun = Instant::now();
        self.callers.change(self.id, |caller| {
            caller.calls += 1;
            caller.state = CallState::Waiting;
            caller.operation = operation.into();
            caller.since = begun;
            caller.waited = Duration::ZERO;
        });
        InCall { ticket: self, begun }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.callers.0.send_modify(|callers| callers.retain(|caller| caller.id != self.id));
    }
}

/// A call that waits or runs.
pub(super) struct InCall<'t> {
    ticket: &'t Ticket,
    begun: Instant,
}

impl InCall<'_> {
    pub(super) fn runs(&self) {
        let now = Instant::now();
        self.ticket.callers.change(self.ticket.id, |caller| {
            caller.state = CallState::Running;
            caller.since = now;
            caller.waited = now - self.begun;
        });
    }
}

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        self.ticket.callers.change(self.ticket.id, |caller| {
            if caller.state == CallState::Waiting {
                caller.waited = now - self.begun;
            }
            caller.state = CallState::Idle;
            caller.operation = "".into();
            caller.since = now;
        });
    }
}
