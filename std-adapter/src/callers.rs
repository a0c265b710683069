//! The list of the callers of an extension, with the states of their calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// The longest name of an operation in the list, in characters.
const LONGEST_NAME: usize = 100;

/// The state of a caller's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallState {
    /// The caller has no open call.
    Idle,
    /// A call waits for its turn, and none runs.
    Waiting,
    /// A call of the caller runs.
    Running,
}

/// A caller in the list of [`Callers`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Caller {
    /// The number of the caller, which no other caller of the process has.
    pub id: u64,
    /// The name of the caller.
    pub name: Arc<str>,
    /// The number of calls that the caller has made.
    pub calls: u64,
    /// The state of its calls.
    pub state: CallState,
    /// The operation of the call that waits or runs.
    pub operation: Arc<str>,
    /// The time since which `state` has not changed.
    pub since: Instant,
    /// The time that the last call waited for its turn. A call that was given up while it waited
    /// counts, too.
    pub waited: Duration,
    /// How many calls wait or run.
    open: usize,
}

/// The list of the callers of an extension, in the order in which they came.
#[derive(Clone)]
pub struct Callers(Arc<watch::Sender<Vec<Caller>>>);

impl Default for Callers {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Callers").field(&self.0.borrow().len()).finish()
    }
}

impl Callers {
    /// The list, as a channel that shows each change.
    pub fn subscribe(&self) -> watch::Receiver<Vec<Caller>> {
        self.0.subscribe()
    }

    /// Adds a caller to the list. It is removed when all clones of the ticket are dropped.
    pub fn enter(&self, name: &str) -> Arc<Ticket> {
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
            open: 0,
        };
        self.0.send_modify(|callers| callers.push(caller));
        Arc::new(Ticket { callers: self.clone(), id, name: name.to_owned() })
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Caller)) {
        self.0.send_if_modified(|callers| {
            let Some(caller) = callers.iter_mut().find(|caller| caller.id == id) else { return false };
            change(caller);
            true
        });
    }
}

/// The entry of a caller in the list. It is removed when the ticket is dropped.
#[derive(Debug)]
pub struct Ticket {
    callers: Callers,
    id: u64,
    name: String,
}

impl Ticket {
    /// The number of the caller.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name of the caller.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes a call, which waits for its turn until it [runs](InCall::runs), and has ended when the
    /// value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, operation: &str) -> InCall {
        let begun = Instant::now();
        let operation: Arc<str> = operation.chars().take(LONGEST_NAME).collect::<String>().into();
        self.callers.change(self.id, |caller| {
            caller.calls += 1;
            caller.open += 1;
            if caller.state == CallState::Idle {
                (caller.state, caller.operation, caller.since) = (CallState::Waiting, operation.clone(), begun);
                caller.waited = Duration::ZERO;
            }
        });
        InCall { ticket: Arc::clone(self), operation, begun, runs: false }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.callers.0.send_modify(|callers| callers.retain(|caller| caller.id != self.id));
    }
}

/// A call that waits or runs.
#[derive(Debug)]
pub(crate) struct InCall {
    ticket: Arc<Ticket>,
    operation: Arc<str>,
    begun: Instant,
    runs: bool,
}

impl InCall {
    /// It has its turn.
    pub(crate) fn runs(&mut self) {
        let now = Instant::now();
        self.runs = true;
        self.ticket.callers.change(self.ticket.id, |caller| {
            (caller.state, caller.operation, caller.since) = (CallState::Running, self.operation.clone(), now);
            caller.waited = now - self.begun;
        });
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        let now = Instant::now();
        self.ticket.callers.change(self.ticket.id, |caller| {
            if !self.runs && caller.state == CallState::Waiting {
                caller.waited = now - self.begun;
            }
            caller.open = caller.open.saturating_sub(1);
            if caller.open == 0 {
                (caller.state, caller.operation, caller.since) = (CallState::Idle, "".into(), now);
            } else if self.runs {
                (caller.state, caller.since) = (CallState::Waiting, now);
            }
        });
    }
}
