//! The request to stop serving.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use tokio::sync::watch;
use tokio::task::coop::unconstrained;

/// The exit code of a Rust program that panicked.
pub(super) const PANICKED: u8 = 101;

/// The wish that serving may stop, from whatever thread.
#[derive(Debug)]
pub(super) struct Stop {
    /// The exit code to stop with, if there is a wish.
    code: watch::Sender<Option<u8>>,
    /// Whether there is one, or will be at once.
    is_asked: AtomicBool,
    heard: AtomicBool,
}

impl Stop {
    pub(super) fn new() -> Self {
        Self { code: watch::Sender::new(None), is_asked: AtomicBool::new(false), heard: AtomicBool::new(false) }
    }

    /// Stops serving, to exit with `code`.
    pub(super) fn ask(&self, code: u8) {
        self.is_asked.store(true, Ordering::Release);
        self.code.send_modify(|current| {
            if current.is_none() || code == PANICKED {
                *current = Some(code);
            }
        });
    }

    pub(super) fn code(&self) -> Option<u8> {
        *self.code.borrow()
    }

    /// Ready when serving is to stop.
    pub(super) async fn asked(&self) {
        let mut code = self.code.subscribe();
        // The sender is this.
        let _ = code.wait_for(Option::is_some).await;
    }

    /// [`asked`](Self::asked), for the one who will stop. It is polled several times for each call,
    /// so that only the first poll of a task registers its waker.
    pub(super) async fn heard(&self) {
        // Not by the budget of the task: a poll that is refused for it registers nothing.
        let mut asked = pin!(unconstrained(self.asked()));
        let mut registered: Option<Waker> = None;
        poll_fn(|task| {
            let is_registered = registered.as_ref().is_some_and(|waker| waker.will_wake(task.waker()));
            if is_registered && !self.is_asked.load(Ordering::Acquire) {
                return Poll::Pending;
            }
            if !is_registered {
                registered = Some(task.waker().clone());
            }
            asked.as_mut().poll(task)
        })
        .await;
        self.hear();
    }

    /// Records that stopping is under way.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Release);
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }
}
