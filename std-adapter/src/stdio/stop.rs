//! Stopping before the session's end: signals and panics.

use std::io;
use std::panic;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::watch;

use super::output::Output;
use super::{SAFE_STATE_AFTER_PANIC, complain};
use crate::signals::Signals;

/// The exit code of a Rust program that panicked.
pub(super) const PANICKED: u8 = 101;

/// That nobody reads the output any more is the end of a session like any other.
#[cfg(unix)]
pub(super) const UNREAD: u8 = 0;

/// How long a handler may go on without an await after it was told to stop.
const PATIENCE: Duration = Duration::from_secs(3);

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

    /// Says that stopping is under way.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Release);
    }
}

/// Makes every panic, on any thread, stop the process with [`PANICKED`] after its message was printed.
pub(super) fn on_panic(stop: &Arc<Stop>, output: &Arc<Output>) {
    let (stop, output) = (stop.clone(), output.clone());
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        if cfg!(panic = "abort") {
            output.close();
            process::exit(PANICKED.into());
        }
        stop.ask(PANICKED);
    }));
}

/// Stops when whoever read the output is gone. A handler that waits and says nothing would not notice, and keep its hardware.
#[cfg(unix)]
pub(super) fn on_unread(stop: &Arc<Stop>, output: &Arc<Output>) -> io::Result<()> {
    let (stop, output) = (stop.clone(), output.clone());
    let watch = move || {
        output.wait_until_unread();
        stop.ask(UNREAD);
    };
    thread::Builder::new().name("rigline-unread".into()).stack_size(64 << 10).spawn(watch)?;
    Ok(())
}

/// Elsewhere a write is what tells.
#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
pub(super) fn on_unread(_: &Arc<Stop>, _: &Arc<Output>) -> io::Result<()> {
    Ok(())
}

/// Listens for signals, on a thread of its own, since the handler's may be busy; and sees to it that the process ends.
pub(super) fn on_signal(stop: &Arc<Stop>, output: &Arc<Output>) -> io::Result<()> {
    let (stop, output) = (stop.clone(), output.clone());
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    // Here and not on the thread, so that no signal that comes from now on is missed.
    let signals = {
        let _context = runtime.enter();
        Signals::new()?
    };
    let watch = move || {
        let code = runtime.block_on(end_of_patience(&stop, signals));
        output.close();
        process::exit(code.into());
    };
    thread::Builder::new().name("rigline-signals".into()).spawn(watch)?;
    Ok(())
}

/// The code to exit with at once, when stopping in good order takes too long.
async fn end_of_patience(stop: &Stop, mut signals: Signals) -> u8 {
    tokio::select! {
        code = signals.next() => stop.ask(code),
        () = stop.asked() => {}
    }
    let code = stop.code().unwrap_or(PANICKED);
    let patience = async {
        tokio::time::sleep(PATIENCE).await;
        match code {
            _ if !stop.heard.load(Ordering::Acquire) => {
                complain(format_args!("the handler does not await: exit without bringing about its safe state"));
            }
            PANICKED => tokio::time::sleep(SAFE_STATE_AFTER_PANIC).await,
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        code = signals.next() => code,
        () = patience => code,
    }
}
