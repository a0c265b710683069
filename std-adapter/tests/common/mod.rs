//! What several of the tests of programs need.

use tokio::signal::unix::{SignalKind, signal};

/// Programs that are started afterwards do not ignore SIGHUP, even where these tests do for having been started by `nohup`:
/// a signal that is caught is back at its default after exec(2).
pub(crate) fn catch_hang_ups() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    drop(signal(SignalKind::hangup()).unwrap());
}
