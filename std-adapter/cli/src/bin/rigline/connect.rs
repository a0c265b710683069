//! Shared parts of the commands that use a target: options, events on standard error, exit codes.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rigline::{GoDuration, Level};
use rigline_host::record::Recorder;
use rigline_host::target::Target;
use rigline_host::{Event, EventKind, HostError, JsonObject, Options};
use rigline_std::net::Token;
use rigline_std::signals::Signals;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

pub(crate) use crate::exit::{FAILED, NO_ANSWER, SUCCESS, TIMED_OUT, USAGE};
pub(crate) use crate::failure::Failure;
use crate::files;
use crate::out::{self, Style};
pub(crate) use crate::out::{complain, print, print_json};

/// How to reach a target.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Connection {
    /// `exec:PROGRAM ARGS`, a path, serial:/dev/ttyACM0, serial:auto, tcp:HOST:PORT, http://HOST:PORT/PATH, replay:DIR for a
    /// recording, rig:NAME for a rig of the lab, or sim for the built-in rig
    pub(crate) target: Target,
    /// How long an attempt to connect waits for a busy port, or for a device that is not plugged in, such as 60s [default: not at all; `bridge` for
    /// gevals hosts: 60s]
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0s", hide_default_value = true)]
    pub(crate) wait: Duration,
    /// The time limit for starting the extension [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = time_limit, default_value = "10s", hide_default_value = true)]
    pub(crate) start_timeout: Duration,
    /// The extension's settings: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE", value_parser = config)]
    pub(crate) config: Option<JsonObject>,
    /// Show debug logs, standard error and skipped lines
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Show only logs of errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The recorder of the session.
    #[arg(skip)]
    pub(crate) recorder: Option<Arc<Recorder>>,
}

impl Connection {
    /// With the defaults of everything else.
    pub(crate) fn to(target: Target) -> Self {
        let start_timeout = Options::default().start_timeout;
        Self { target, wait: Duration::ZERO, start_timeout, config: None, verbose: false, quiet: false, recorder: None }
    }

    /// The host's options: events go to standard error as they come.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        options.wait = self.wait;
        options.start_timeout = self.start_timeout;
        options.config.clone_from(&self.config);
        options.recorder.clone_from(&self.recorder);
        let (verbose, quiet) = (self.verbose, self.quiet);
        options.listener = Some(Arc::new(move |event| show(event, verbose, quiet)));
        options
    }
}

/// Runs a command. Ctrl-C, SIGTERM and SIGHUP drop it, which ends the programs that it has started.
pub(crate) fn run<F: Future<Output = Result<u8, Failure>>>(command: F) -> Result<ExitCode, Failure> {
    run_alone(async {
        tokio::select! {
            biased;
            // First, so that signals are waited for before the command starts a program.
            interruption = interrupted() => Err(interruption),
            result = command => result,
        }
    })
}

/// As [`run`], for a command that takes care of interruptions itself.
pub(crate) fn run_alone<F: Future<Output = Result<u8, Failure>>>(command: F) -> Result<ExitCode, Failure> {
    on_one_thread(command).map(ExitCode::from)
}

pub(crate) fn on_one_thread<T, F: Future<Output = Result<T, Failure>>>(future: F) -> Result<T, Failure> {
    block_on(Builder::new_current_thread().enable_all().build(), future)
}

/// With as many open files as many runs and clients need.
pub(crate) fn on_threads<T, F: Future<Output = Result<T, Failure>>>(future: F) -> Result<T, Failure> {
    // The usual limit is meant for less. What there is has to do, if the system does not give more.
    rigline_host::process::raise_open_files(4096);
    // Nothing blocks on these threads.
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4);
    block_on(Builder::new_multi_thread().worker_threads(workers).enable_all().build(), future)
}

fn block_on<T, F: Future<Output = Result<T, Failure>>>(runtime: io::Result<Runtime>, future: F) -> Result<T, Failure> {
    let runtime = runtime.map_err(|error| Failure::failed(format!("no async runtime can be started: {error}")))?;
    let result = runtime.block_on(future);
    #[cfg(target_os = "linux")]
    runtime.block_on(rigline_lab::hosts::settle());
    // A read from standard input cannot be called off: it is left alone.
    runtime.shutdown_background();
    result
}

/// Waits for a signal to end. Returns the exit code for it: 128 plus the signal's number, as in a shell.
pub(crate) async fn interrupted() -> Failure {
    let code = match Signals::new() {
        Ok(mut signals) => signals.next().await,
        Err(_) => std::future::pending().await,
    };
    let text = match code {
        129 => "hung up",
        143 => "terminated",
        _ => "interrupted",
    };
    Failure { code, text: text.to_owned() }
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = GoDuration::parse(text).map_err(|error| format!("{error}; use a duration such as 1m30s"))?;
    Duration::try_from(duration).map_err(|error| error.to_string())
}

/// A limit on time, which there must be some of.
pub(crate) fn time_limit(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|limit| if limit.is_zero() { Err("must be more than 0s".to_owned()) } else { Ok(limit) })
}

/// Reads the token from a file, and warns if other users can read the file.
pub(crate) fn token(path: &Path) -> Result<Token, Failure> {
    // The shell may hand it over as a stream: `--token-file <(pass show rig)`.
    let token = files::read(path).and_then(|text| Token::new(text.trim()));
    let token = token.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.mode() & 0o044 != 0) {
            complain(format_args!("rigline: other users can read {} (chmod go-r)", path.display()));
        }
    }
    Ok(token)
}

/// Reads JSON from the argument itself, from `@FILE`, or from standard input (`-`).
pub(crate) fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(&json_text(text)?).map_err(|error| format!("not JSON: {error}"))
}

/// An extension's settings, which are an object.
pub(crate) fn config(text: &str) -> Result<JsonObject, String> {
    json_text(text)?.parse().map_err(|error: HostError| error.to_string())
}

/// As [`json`], and leaves the text as it is, the digits of its numbers too.
pub(crate) fn json_text(argument: &str) -> Result<String, String> {
    let text = text_of(argument)?;
    let text = text.trim_start_matches('\u{feff}').trim();
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|error| format!("not JSON: {error}{}", json_hint(argument)))?;
    Ok(text.to_owned())
}

/// A hint for an argument that is not JSON.
fn json_hint(argument: &str) -> String {
    if argument.starts_with('@') || argument == "-" {
        String::new()
    } else if argument.trim_start().starts_with(['{', '[']) {
        r#"; names and texts are in double quotes, and all of it is one word of the shell: '{"name":"text"}'"#
            .to_owned()
    } else if Path::new(argument).is_file() {
        format!("; write @{argument} to read the file")
    } else {
        "; write the JSON text itself, @FILE, or - for standard input".to_owned()
    }
}

/// The argument itself, the text of `@FILE`, or standard input (`-`).
pub(crate) fn text_of(argument: &str) -> Result<String, String> {
    match argument.strip_prefix('@') {
        Some(file) => crate::files::read(Path::new(file)).map_err(|error| format!("{file}: {error}")),
        None if argument == "-" => {
            std::io::read_to_string(std::io::stdin()).map_err(|error| format!("standard input: {error}"))
        }
        None => Ok(argument.to_owned()),
    }
}

pub(crate) fn show(event: &Event, verbose: bool, quiet: bool) {
    let (level, is_ours) = match &event.kind {
        EventKind::Log(log) => (log.level, false),
        EventKind::Stderr(_) | EventKind::Anomaly(_) | EventKind::Exited(_) => (Level::Debug, true),
        EventKind::Damaged { .. } | EventKind::TooLong { .. } | EventKind::ErrorWithoutId(_) => (Level::Error, true),
        _ => (Level::Warn, true),
    };
    let least = match (verbose, quiet) {
        (true, _) => Level::Debug,
        (_, true) => Level::Error,
        _ => Level::Info,
    };
    if level < least {
        return;
    }
    let style = match level {
        Level::Debug => Style::Dim,
        Level::Info => Style::Plain,
        Level::Warn => Style::Warning,
        Level::Error => Style::Bad,
    };
    let who = if is_ours { format!("[{}] ", event.extension) } else { String::new() };
    out::complain_in(style, format_args!("{} {who}{}", clock_time(event.time), event.kind));
}

/// The time of day in UTC, to milliseconds. humantime, which writes dates, panics after the year 9999.
pub(crate) fn clock_time(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60, since.subsec_millis())
}
