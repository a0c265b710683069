//! An extension on its process's standard input and output.
//!
//! # Streams
//! Requests come in on standard input, one a line. Replies and logs go out on standard output, one
//! write each, as soon as they are made. Standard error is for people.
//!
//! On Unix the two protocol streams are protected before the first handler runs. The adapter keeps
//! copies that no child process inherits, and points standard output at standard error and standard
//! input at the null device. A `println!` in a handler, or a program that it starts, can then
//! neither write into the protocol nor take requests away. **Other systems do not have this
//! protection.** There, print with `eprintln!`, and set the standard input and output of programs
//! that you start.
//!
//! # How it ends
//! | event | exit code |
//! |---|---|
//! | end of input: the calls in hand are finished first | 0 |
//! | `shutdown` was acknowledged; input may still be open | 0 |
//! | the reader of the output is gone (a broken pipe; a reset, on a socket), also while a handler waits; there is no message | 0 |
//! | reading or writing failed otherwise; standard error says how | 1 |
//! | a panic, in a handler or on any other thread; the call in hand is answered with -32603 first | 101 |
//! | the argument `--config` is unusable | 2 |
//! | SIGTERM | 143 |
//! | SIGINT (elsewhere Ctrl-C) | 130 |
//! | SIGHUP, unless the program was started with it ignored (`nohup`) | 129 |
//!
//! [`safe_state`](Extension::safe_state) has run before the process ends if a session that began
//! with `initialize` was open, or if a call was cancelled. There are three exceptions. A second
//! signal ends the process at once. A signal, or a panic on another thread, ends it after three
//! seconds in which the handler does not await. A program that was built with `panic = "abort"`
//! exits from its panic hook.
//!
//! If an MCP client has switched something on and sends nothing for [ten minutes](Stdio::idle), it
//! is switched off. The session continues.
//!
//! A line is never cut, unless its reader stops in the middle of it.
//!
//! # Handlers
//! Handlers run one at a time on the thread that called [`serve`], in a tokio runtime. They may
//! await futures of tokio and of everything built on it. While one awaits, later requests are read,
//! and faulty ones among them are answered. The time limit of a call counts from its arrival: a call
//! whose limit passes while it waits for its turn is answered, and never runs. The logs of a handler that does not await are sent when
//! `cx.log` returns, too. Only its time limit is noticed late.

use std::cell::Cell;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rigline::Extension;
use rigline::exchange::LEAST_REPLY;
use rigline::json::{Json, JsonKind};
use rigline::protocol::{self, Protocol};
use rigline::rpc;
use rigline::serve::{End, ServeError};
use tokio::runtime;
use tokio::sync::watch as watch_channel;

use self::between::Gate;
use self::idle::{Busy, Idle};
use self::input_end::Watched;
use self::output::{Lines, Output};
use self::stop::{PANICKED, Stop};
use crate::between::Between;
use crate::clock::TokioClock;
use crate::panics::CatchPanics;
use crate::requires::RequirePath;
use crate::server::{Pauses, ServerError, StreamServer};
use crate::stderr::complain;

mod between;
mod idle;
mod input_end;
mod output;
mod single_document;
mod stop;
#[cfg_attr(unix, path = "stdio/unix.rs")]
#[cfg_attr(not(unix), path = "stdio/other.rs")]
mod system;
mod watch;

#[doc(hidden)]
pub use self::system::take;

/// Serves `extension` on standard input and output until the session ends, with the limits of
/// [`Stdio::new`]. Return the exit code from `main`; see [the module](self) for the codes.
///
/// It makes the tokio runtime itself. `main` must therefore be an ordinary function, not a
/// `#[tokio::main]` one: in a runtime it panics.
///
/// ```no_run
/// # use rigline::{Call, Context, Extension, Failure, Manifest, Outcome};
/// # struct MyExtension;
/// # impl Extension for MyExtension {
/// #     fn manifest(&self) -> &'static Manifest { const M: Manifest = Manifest::new("m", "1.0.0"); &M }
/// #     async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> { cx.done("") }
/// # }
/// fn main() -> std::process::ExitCode {
///     rigline_std::stdio::serve(MyExtension)
/// }
/// ```
///
/// The program understands one argument, `--config JSON` (or `--config=JSON`), which is gevals's
/// one-shot form. The extension is configured with that object before the first request. The exit
/// code is 2 if the value is not an object, or if the extension refused it.
pub fn serve<E: Extension>(extension: E) -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mut stdio = Stdio::new();
    while let Some(arg) = args.next() {
        let Some(arg) = arg.to_str() else { continue };
        if arg == "--config" {
            let value = args.next().map(|value| value.to_string_lossy().into_owned());
            stdio = stdio.config(value.unwrap_or_default());
        } else if let Some(value) = arg.strip_prefix("--config=") {
            stdio = stdio.config(value);
        }
    }
    stdio.serve(extension)
}

/// The greatest length of a line that real gevals hosts read, in bytes without the newline: the
/// default of Go's `bufio.Scanner`. It is the default limit of gevals lines on standard output.
pub const HOST_LINE_LIMIT: usize = 65_535;

/// The longest reply in protocols other than gevals, in bytes.
const REPLY_LIMIT: usize = 8 << 20;

/// A server on standard input and output, with its settings.
///
/// ```no_run
/// # use rigline::{Call, Context, Extension, Failure, Manifest, Outcome};
/// # struct MyExtension;
/// # impl Extension for MyExtension {
/// #     fn manifest(&self) -> &'static Manifest { const M: Manifest = Manifest::new("m", "1.0.0"); &M }
/// #     async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> { cx.done("") }
/// # }
/// use rigline_std::stdio::{HOST_LINE_LIMIT, Stdio};
///
/// fn main() -> std::process::ExitCode {
///     Stdio::new().request_limit(64 * 1024).reply_limit(HOST_LINE_LIMIT).serve(MyExtension)
/// }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Stdio {
    request_limit: usize,
    /// The requested limit; the default depends on the protocol.
    reply_limit: Option<usize>,
    log_region: usize,
    requires: bool,
    clock: TokioClock,
    protocols: &'static [&'static Protocol],
    protocol: Option<&'static Protocol>,
    is_single_document: bool,
    config: Option<String>,
    input_end: Option<watch_channel::Sender<bool>>,
    keeps_outputs: bool,
    idle: Option<Duration>,
    between: Option<Arc<dyn Between>>,
}

impl Stdio {
    /// The default settings: requests of up to 8 MiB, replies of up to 65,535 bytes in gevals and
    /// of 8 MiB in other protocols, and 8 MiB for logs that wait. The memory is allocated once at
    /// the start, and memory that is never used costs nothing.
    pub fn new() -> Self {
        Self {
            request_limit: 8 << 20,
            reply_limit: None,
            log_region: 8 << 20,
            requires: true,
            clock: TokioClock::new(),
            protocols: protocol::ALL,
            protocol: None,
            is_single_document: false,
            config: None,
            input_end: None,
            keeps_outputs: false,
            idle: Some(IDLE),
            between: None,
        }
    }

    /// Sets the protocols that lines may select [default: those of this crate]. A line that selects
    /// none belongs to the first one.
    pub fn protocols(self, protocols: &'static [&'static Protocol]) -> Self {
        Self { protocols, ..self }
    }

    /// Sets the only protocol of all lines. By default the protocol is detected for each line: a
    /// member `jsonrpc` selects gevals, `op` selects Amplifier, and `protocol_version` selects
    /// namel3ss.
    pub fn protocol(self, protocol: &'static Protocol) -> Self {
        Self { protocol: Some(protocol), ..self }
    }

    /// Reads the whole input as one JSON text on any number of lines, as namel3ss's local runner
    /// sends it.
    pub fn single_document(self) -> Self {
        Self { is_single_document: true, ..self }
    }

    /// Sets the greatest length of a request, in bytes without its line end, below 4 GiB [default:
    /// 8 MiB]. A longer request gets error -32700, which names the limit, and none of it runs.
    pub fn request_limit(self, bytes: usize) -> Self {
        Self { request_limit: bytes.min(u32::MAX as usize - 1), ..self }
    }

    /// Sets the greatest length of a line that is sent, in bytes without its newline. It is at
    /// least the room for an error reply ([`LEAST_REPLY`]). A longer reply is replaced by an error
    /// with the size that is needed, and a longer log is shortened.
    ///
    /// The default is [`HOST_LINE_LIMIT`] in gevals, since the real host cannot continue after a
    /// longer line, and 8 MiB in other protocols. Each gevals line beyond [`HOST_LINE_LIMIT`]
    /// causes a warning on standard error.
    pub fn reply_limit(self, bytes: usize) -> Self {
        Self { reply_limit: Some(bytes.max(LEAST_REPLY - 1)), ..self }
    }

    /// Sets the memory for logs that wait because the host does not read, in bytes [default: 8
    /// MiB]. A single log line longer than half of it is shortened. Lines that do not fit are
    /// dropped, and a log reports their number.
    pub fn log_region(self, bytes: usize) -> Self {
        Self { log_region: bytes, ..self }
    }

    /// Sets whether [`RequirePath`] checks before each call that the commands in the manifest's
    /// `requires` exist [default: yes].
    pub fn check_requires(self, check: bool) -> Self {
        Self { requires: check, ..self }
    }

    /// Configures the extension with this JSON object before the first request, as gevals's
    /// one-shot argument `--config` does.
    pub fn config(self, json: impl Into<String>) -> Self {
        Self { config: Some(json.into()), ..self }
    }

    /// Sets whether the outputs of the hardware stay as they are when a session ends without
    /// `shutdown` [default: no]. After a call that is cancelled, the safe state runs nevertheless.
    pub fn keep_outputs(self, keep: bool) -> Self {
        Self { keeps_outputs: keep, ..self }
    }

    /// Sets the time without a line and without a running call after which the safe state runs, in
    /// MCP [default: [`IDLE`]]; with none it never runs for that reason. The client gets a log at
    /// once, and its next result says so.
    pub fn idle(self, idle: Option<Duration>) -> Self {
        Self { idle, ..self }
    }

    /// Sends `true` on this channel at the end of input, for handlers that end then. Their calls
    /// are finished. By default, handlers do not notice the end of input: a call of a session that
    /// began with `initialize` is cancelled four seconds later, and other calls are finished.
    pub fn input_end(self, told: watch_channel::Sender<bool>) -> Self {
        Self { input_end: Some(told), ..self }
    }

    /// Adds an observer of each line between the client and the extension.
    #[doc(hidden)]
    pub fn between(self, between: Arc<dyn Between>) -> Self {
        Self { between: Some(between), ..self }
    }

    /// Sets the clock, for an extension that uses the same one.
    pub fn clock(self, clock: TokioClock) -> Self {
        Self { clock, ..self }
    }

    /// The greatest lengths of a request and of a gevals line that is sent, in bytes without line
    /// ends.
    pub fn limits(&self) -> (usize, usize) {
        (self.request_limit, self.reply_limit.unwrap_or(HOST_LINE_LIMIT))
    }

    /// Serves `extension` until the session ends; see [`serve`].
    pub fn serve<E: Extension>(&self, extension: E) -> ExitCode {
        let panicked = Arc::new(AtomicBool::new(false));
        let idle = self.idle.filter(|_| !self.keeps_outputs && !self.is_single_document).map(Idle::new);
        let extension = Busy::new(CatchPanics::new(extension, panicked.clone()), idle.clone());
        let code = match self.requires {
            true => self.run(RequirePath::new(extension), &panicked, idle),
            false => self.run(extension, &panicked, idle),
        };
        match code {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                complain(format_args!("cannot serve on standard input and output: {error}"));
                ExitCode::FAILURE
            }
        }
    }

    fn run<E: Extension>(&self, mut extension: E, panicked: &AtomicBool, idle: Option<Idle>) -> io::Result<u8> {
        let (input, output) = system::take()?;
        let output = Arc::new(Output::new(output, self.limits().1));
        let stop = Arc::new(Stop::new());
        watch::on_panic(&stop, &output);
        watch::on_signal(&stop, &output, idle.as_ref().map(Idle::silence))?;
        watch::on_unread(&stop, &output)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;

        if let Some(config) = &self.config
            && let Err(error) = runtime.block_on(self.configure(&mut extension, config, &output))
        {
            complain(format_args!("--config: {error}"));
            output.close();
            return Ok(BAD_CONFIG);
        }
        let session = self.session(&mut extension, input, &output, &stop, idle);
        let result = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(session)));
        if result.is_err() || panicked.load(Ordering::Acquire) {
            stop.hear();
            // The panic has dropped the call. That the rails go off matters more than a state that
            // may be odd.
            let safe_state = async { tokio::time::timeout(SAFE_STATE_AFTER_PANIC, extension.safe_state()).await };
            let _ = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(safe_state)));
        }
        output.close();
        // Handlers may have left threads that block forever.
        runtime.shutdown_background();
        match (stop.code(), result) {
            (Some(code), _) => Ok(code),
            (None, Err(_)) => Ok(PANICKED),
            (None, Ok(result)) => result.map(|()| 0),
        }
    }

    /// Configures the extension in a separate session, which is shut down: the hardware stays as it
    /// is.
    async fn configure<E: Extension>(
        &self,
        extension: &mut E,
        config: &str,
        output: &Arc<Output>,
    ) -> Result<(), String> {
        let json = Json::parse(config.as_bytes()).map_err(|error| format!("not JSON: {error}"))?;
        if json.kind() != JsonKind::Object {
            return Err("expected a JSON object".to_owned());
        }
        let config: String = config.chars().map(|char| if matches!(char, '\n' | '\r') { ' ' } else { char }).collect();
        let input = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"0.0.1\",\"config\":{config}}}}}\n{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"shutdown\"}}\n"
        );
        let mut lines = Vec::new();
        StreamServer::new(extension)
            .request_limit(input.len())
            .reply_limit(1 << 20)
            .log_buffer(1 << 20)
            .clock(&self.clock)
            .serve(input.as_bytes(), &mut lines)
            .await
            .map_err(|error| error.to_string())?;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if rpc::is_log_line(line) {
                output.send_log(line, self.log_region);
            } else if let Some(error) = Json::parse(line).ok().and_then(|reply| reply.get("error")) {
                let message = error.get("message").and_then(|message| message.text());
                return Err(message.map_or_else(|| error.to_string(), |message| message.to_string()));
            }
        }
        Ok(())
    }

    async fn session<E: Extension>(
        &self,
        extension: &mut E,
        input: system::Input,
        output: &Arc<Output>,
        stop: &Arc<Stop>,
        idle: Option<Idle>,
    ) -> io::Result<()> {
        let (_, line_limit) = self.limits();
        let send_log = |line: &[u8]| output.send_log(line, self.log_region);
        let input = Watched::new(input.start()?, self.input_end.clone());
        let wire = output.clone();
        let own = move |line: &[u8]| wire.send_own(line);
        let mut input = Gate::new(input, self.between.clone(), own, self.request_limit, idle.clone());
        let between = input.between();
        if self.is_single_document {
            let serving = self.serve_document(extension, input.into_reader(), output, stop, between);
            return self.clock.drive(serving).await.or_else(end_of_peer);
        }
        let is_pause = || idle.as_ref().is_some_and(Idle::was_pause);
        let tell = |line: &[u8]| output.send_own(line);
        let (renewing, is_touched_before) = (input.renewing(), Cell::new(false));
        let is_renewal = || renewing.get();
        let pauses =
            Pauses { is_pause: &is_pause, tell: &tell, is_renewal: &is_renewal, is_touched_before: &is_touched_before };
        loop {
            let serving = StreamServer::new(&mut *extension)
                .protocols(self.protocols)
                .protocol(self.protocol)
                .request_limit(self.request_limit)
                .reply_limit(self.reply_limit.unwrap_or(REPLY_LIMIT))
                .host_line_limit(line_limit)
                .log_buffer(self.log_region)
                .clock(&self.clock)
                .stop(stop.heard())
                .send_log(&send_log)
                .keep_outputs(self.keeps_outputs)
                .end_of_input_ends_calls(self.input_end.is_none())
                .pauses(&pauses)
                .serve(&mut input, Lines::new(output.clone(), stop.clone(), between.clone()));
            match serving.await {
                // Where it is to end, the next part ends at once, and as the last one.
                Ok(End::Input) if input.renews() => {}
                Ok(_) => return Ok(()),
                Err(ServerError::Transport(ServeError::Read(error) | ServeError::Write(error))) => {
                    return end_of_peer(error);
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

/// Waits until standard output is no longer read, for programs that forward output. On systems
/// other than Unix it never returns.
pub async fn unread() {
    #[cfg(unix)]
    {
        let (tell, told) = tokio::sync::oneshot::channel();
        let watch = move || {
            system::wait_until_unread(io::stdout());
            let _ = tell.send(());
        };
        let started = std::thread::Builder::new().name("rigline-unread".into()).stack_size(64 << 10).spawn(watch);
        if started.is_ok() && told.await.is_ok() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// The loss of the peer is an end. Some hosts, such as Node.js, use socket pairs instead of pipes. A socket whose peer has left something
/// unread is reset.
fn end_of_peer(error: io::Error) -> io::Result<()> {
    if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) { Ok(()) } else { Err(error) }
}

impl Default for Stdio {
    fn default() -> Self {
        Self::new()
    }
}

/// The exit code where the argument `--config` is unusable.
const BAD_CONFIG: u8 = 2;

/// The default of [`Stdio::idle`]: ten minutes without a line, after which the outputs are switched
/// off, in MCP.
pub const IDLE: Duration = Duration::from_secs(600);

/// How long [`Extension::safe_state`] may take after a panic.
const SAFE_STATE_AFTER_PANIC: Duration = Duration::from_secs(10);
