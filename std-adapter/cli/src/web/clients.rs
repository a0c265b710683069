//! Messages to a page about the other clients of its target.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use rigline_host::terminal::cut;
use rigline_std::callers::{CallState, Caller};

/// The longest name of a client, in characters.
const LONGEST: usize = 60;
/// How often a page is told of what concerns only others.
const PAUSE: Duration = Duration::from_millis(200);

/// A client's name for others, from what it says of itself.
pub(super) fn name_of(said: Option<&str>, otherwise: &str) -> String {
    let name: String = said.unwrap_or_default().chars().filter(|char| !char.is_control()).collect();
    match name.trim() {
        "" => otherwise.to_owned(),
        name => cut(name, LONGEST),
    }
}

/// Tells one client of the list of clients.
pub(super) struct Told {
    /// The client's own number.
    id: u64,
    callers: watch::Receiver<Vec<Caller>>,
    is_due: bool,
    /// The facts that the client knows.
    known: Vec<(u64, u64, CallState)>,
    told: Option<Instant>,
}

impl Told {
    pub(super) fn new(id: u64, callers: watch::Receiver<Vec<Caller>>) -> Self {
        Self { id, callers, is_due: true, known: Vec::new(), told: None }
    }

    /// The next line for the client. It is safe to drop the future and to ask again.
    pub(super) async fn next(&mut self) -> String {
        loop {
            if !self.is_due {
                if self.callers.changed().await.is_err() {
                    return std::future::pending().await;
                }
                self.is_due = true;
            }
            let now: Vec<_> = self.callers.borrow_and_update().iter().map(state).collect();
            if now == self.known {
                self.is_due = false;
                continue;
            }
            let own = |states: &[(u64, u64, CallState)]| states.iter().find(|(id, ..)| *id == self.id).copied();
            let due = self.told.map(|told| told + PAUSE).filter(|due| *due > Instant::now());
            if let Some(due) = due
                && own(&now) == own(&self.known)
            {
                tokio::select! {
                    () = sleep_until(due) => {}
                    changed = self.callers.changed() => if changed.is_err() { return std::future::pending().await },
                }
                continue;
            }
            (self.is_due, self.known, self.told) = (false, now, Some(Instant::now()));
            return self.line();
        }
    }

    fn line(&self) -> String {
        let clients: Vec<_> = self.callers.borrow().iter().map(to_json).collect();
        json!({ "jsonrpc": "2.0", "method": "rigline/clients", "params": { "you": self.id, "clients": clients } })
            .to_string()
    }
}

fn state(caller: &Caller) -> (u64, u64, CallState) {
    (caller.id, caller.calls, caller.state)
}

fn to_json(caller: &Caller) -> serde_json::Value {
    let state = match caller.state {
        CallState::Waiting => "waiting",
        CallState::Running => "running",
        _ => "idle",
    };
    json!({
        "id": caller.id,
        "name": Arc::as_ref(&caller.name),
        "calls": caller.calls,
        "state": state,
        "operation": Arc::as_ref(&caller.operation),
        "forMs": milliseconds(caller.since.elapsed()),
        "waitedMs": milliseconds(caller.waited),
    })
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_name_is_one_short_line_of_what_it_says() {
        assert_eq!(name_of(Some("  Ada's\n laptop\u{1b} "), "a page"), "Ada's laptop");
        assert_eq!(name_of(Some("\u{7}"), "a page"), "a page");
        assert_eq!(name_of(None, "a page"), "a page");
        assert!(name_of(Some(&"ä".repeat(1000)), "").chars().count() <= LONGEST + 1);
    }
}
