//! The request to stop serving.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// The exit code of a Rust program that panicked.
pub(super) const PANICKED: u8 = 101;

/// The wish that serving may stop, from whatever thread.
#[derive(Debug)]
pub(super) struct Stop {
    /// The exit code to stop with, if there is a wish.
    code: watch::Sender<Option<u8>>,
    heard: AtomicBool,
}

impl Stop {
    pub(super) fn new() -> Self {
        Self { code: watch::Sender::new(None), heard: AtomicBool::new(false) }
    }

    /// Stops serving, to exit with `code`.
    pub(super) fn ask(&self, code: u8) {
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

    /// [`asked`](Self::asked), for the one who will stop.
    pub(super) async fn heard(&self) {
        self.asked().await;
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
