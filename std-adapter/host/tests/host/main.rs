//! Hosts against extensions that misbehave, each with a real process, a real pty or a real socket.
//!
//! The program is its own fake extension: see `fake.rs`.

use rigline_test_support as _;

#[cfg(unix)]
mod cases;
#[cfg(unix)]
mod examples;
#[cfg(unix)]
#[path = "../../../tests/common/executable.rs"]
mod executable;
#[cfg(unix)]
mod fake;
#[cfg(unix)]
mod processes;
#[cfg(unix)]
mod serial;
#[cfg(unix)]
mod wires;

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let form = args.next().unwrap_or_default();
    if form == "fake" {
        return match fake::main(&args.next().unwrap_or_default()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(9),
        };
    }
    if let Some(ended) = examples::program(&form) {
        return ended;
    }
    let trials = [cases::trials(), examples::trials(), processes::trials(), serial::trials(), wires::trials()];
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}

#[cfg(unix)]
mod common {
    use std::future::Future;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use libtest_mimic::Trial;
    use rigline_host::target::{Exec, Target};
    use rigline_host::{CallContext, CallResult, Event, EventKind, Host, HostError, Options};
    use serde_json::json;

    /// This program as a fake extension.
    pub(crate) fn fake(script: &str) -> Target {
        exec(&[&this(), "fake", script])
    }

    pub(crate) fn this() -> String {
        std::env::current_exe().unwrap().to_string_lossy().into_owned()
    }

    pub(crate) fn exec(words: &[&str]) -> Target {
        let mut words = words.iter().map(|&word| word.to_owned());
        Target::Exec(Exec { program: words.next().unwrap(), args: words.collect() })
    }

    /// Events that a host saw in addition to replies.
    #[derive(Clone, Default)]
    pub(crate) struct Seen(Arc<Mutex<Vec<Event>>>);

    impl Seen {
        pub(crate) fn events(&self) -> Vec<Event> {
            self.0.lock().unwrap().clone()
        }

        pub(crate) fn lines(&self) -> Vec<String> {
            self.events().iter().map(|event| event.kind.to_string()).collect()
        }

        pub(crate) fn count(&self, kind: impl Fn(&EventKind) -> bool) -> usize {
            self.events().iter().filter(|event| kind(&event.kind)).count()
        }

        pub(crate) fn has(&self, text: &str) -> bool {
            self.lines().iter().any(|line| line.contains(text))
        }
    }

    /// Deadlines that tests can wait for.
    pub(crate) fn options() -> (Options, Seen) {
        let seen = Seen::default();
        let mut options = Options::default();
        options.start_timeout = Duration::from_secs(4);
        options.call_timeout = Duration::from_millis(1500);
        options.grace = Duration::from_millis(200);
        options.shutdown_timeout = Duration::from_millis(700);
        let events = Arc::clone(&seen.0);
        options.listener = Some(Arc::new(move |event| events.lock().unwrap().push(event.clone())));
        (options, seen)
    }

    pub(crate) async fn go(host: &Host) -> Result<CallResult, HostError> {
        host.call("go", &json!({}), CallContext::default()).await
    }

    pub(crate) fn message(result: Result<CallResult, HostError>) -> String {
        match result {
            Ok(result) if result.is_success() => result.message.unwrap_or_default(),
            Ok(result) => format!("failed: {}", result.failure().unwrap()),
            Err(error) => format!("error: {error}"),
        }
    }

    pub(crate) fn trial<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F + Send + 'static) -> Trial {
        Trial::test(name.to_owned(), move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            // A host of ours never hangs: nor does a test of one.
            let test = async { tokio::time::timeout(Duration::from_secs(60), test()).await };
            runtime.block_on(test).map_err(|_| "it hangs".into())
        })
    }
}
