//! The reasons to stop serving before the session's end: panics, signals, and the loss of the
//! reader of the output.

use std::io;
use std::panic;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime;

use super::SAFE_STATE_AFTER_PANIC;
use super::idle::Silence;
use super::output::Output;
use super::stop::{PANICKED, Stop};
use crate::signals::Signals;
use crate::stderr::complain;

/// The exit code when the output is no longer read: this is a normal end of a session.
#[cfg(unix)]
const UNREAD: u8 = 0;

/// How long a handler may run without an await after the request to stop.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(3);

/// Makes every panic, on any thread, stop the process with [`PANICKED`] after its message was
/// printed.
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

/// Stops when the reader of the output is gone. A handler that waits and writes nothing would not
/// notice it, and would keep its hardware.
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

/// On other systems a failed write shows it.
#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
pub(super) fn on_unread(_: &Arc<Stop>, _: &Arc<Output>) -> io::Result<()> {
    Ok(())
}

/// Listens for signals, on its own thread, since the handler's may be busy, and makes sure that the
/// process ends. The same thread watches the client's silence.
pub(super) fn on_signal(stop: &Arc<Stop>, output: &Arc<Output>, silence: Option<Arc<Silence>>) -> io::Result<()> {
    let (stop, output) = (stop.clone(), output.clone());
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    // Here and not on the thread, so that no signal that comes from now on is missed.
    let signals = {
        let _context = runtime.enter();
        Signals::new()?
    };
    let watch = move || {
        if let Some(silence) = silence {
            runtime.spawn(silence.watch());
        }
        let code = runtime.block_on(end_of_timeout(&stop, signals));
        output.close();
        process::exit(code.into());
    };
    thread::Builder::new().name("rigline-signals".into()).spawn(watch)?;
    Ok(())
}

/// The code to exit with at once, when stopping properly takes too long.
async fn end_of_timeout(stop: &Stop, mut signals: Signals) -> u8 {
    tokio::select! {
        code = signals.next() => stop.ask(code),
        () = stop.asked() => {}
    }
    let code = stop.code().unwrap_or(PANICKED);
    let timeout = async {
        tokio::time::sleep(HANDLER_TIMEOUT).await;
        match code {
            _ if !stop.is_under_way() => {
                complain(format_args!("the handler does not await: exit without bringing about its safe state"));
            }
            PANICKED => tokio::time::sleep(SAFE_STATE_AFTER_PANIC).await,
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        code = signals.next() => code,
        () = timeout => code,
    }
}
