//! The JSON-RPC server: waza's methods on standard input and output, and over TCP.
//!
//! # Replies and notifications
//! The reply to a request, or to a batch, is sent before the first notification of a run that it
//! started. Each line is sent by one write. The notifications of a run go to the client that
//! started it. All clients may ask about all runs, and cancel them.
//!
//! # Who may ask
//! An eval may start any program, so a client can run programs as the server's user. Over TCP a
//! client must therefore belong to that user, where the system reports the user of a connection. If
//! [`Access`] has a token, the client must first send it as the line
//! `{"jsonrpc":"2.0","id":0,"method":"authenticate","params":{"token":TOKEN}}`. A client that sends
//! anything else first, or nothing for [`TOKEN_TIMEOUT`], is refused. In every transport, standard
//! input included, only evals below the [`Root`] are read.
//!
//! # How a connection ends
//! - The input ends, or the client closes its sending half: all requests are answered, the runs of
//!   the client are finished, and then the connection is closed.
//! - The client is gone: its accepted runs go on, and its other requests are dropped.
//! - The client does not read: its runs go on. Log lines for it are dropped and counted while more
//!   than [`LOG_BACKLOG`] bytes wait. If more than [`BACKLOG`] bytes wait, or the client reads
//!   nothing for [`PATIENCE`], the connection is closed.
//! - The client sends the beginning of an HTTP request: it is refused, and the connection is
//!   closed, since a web page could have sent it.
//!
//! # Limits
//! A request line may have [`REQUEST_LIMIT`] bytes, and a reply line [`REPLY_LIMIT`]. At most
//! [`CLIENT_LIMIT`] connections are open at a time, and at most [`READERS`] requests are handled at
//! a time. Memory for lines is taken as they arrive, and given back afterwards.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use embedded_io_adapters::tokio_1::FromTokio;
use embedded_io_async::Read;
use rigline::json::JsonKind;
use rigline::json::write::Writer;
use rigline::protocol::waza;
use rigline::rpc::{INVALID_PARAMS, Incoming};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::root::Root;
use super::run::{Event, OnEvent, Progress};
use super::runs::{Accepted, Runs};
use super::service::Service;
use super::spec::Spec;
use rigline_host::lines::{self, Entrance, Input, Output};
use rigline_std::mutex::lock;
use rigline_std::net::{self, Access, Listeners, Presence, Stream};

/// The longest request line, in bytes, without the newline. A longer one is refused.
pub const REQUEST_LIMIT: usize = 8 << 20;
/// The longest reply line, in bytes, without the newline.
pub const REPLY_LIMIT: usize = 16 << 20;
/// The largest number of bytes that wait for a client that does not read. If more wait, the
/// connection is closed.
pub const BACKLOG: usize = 32 << 20;
/// The number of waiting bytes from which on log lines for a client are dropped. The dropped lines
/// are counted.
pub const LOG_BACKLOG: usize = lines::LOG_BACKLOG;
/// While this many bytes wait for a client, no more of its requests are read.
const PAUSE: usize = 1 << 20;
/// The longest time for which a TCP client may read nothing while bytes wait for it. After that the
/// connection is closed.
pub const PATIENCE: Duration = lines::STALLED;
/// The longest time in which a TCP client must send the token.
pub const TOKEN_TIMEOUT: Duration = lines::STALLED;
/// The time limit for sending the last lines when the server is stopped.
const LAST_LINES: Duration = Duration::from_millis(250);
/// The largest number of TCP connections at a time. A further one is refused.
pub const CLIENT_LIMIT: usize = 256;
/// The number of requests that are handled at the same time. Each runs on a thread of its own,
/// since it reads files.
pub const READERS: usize = 4;
/// A size that is enough for most replies.
const USUAL_REPLY: usize = 4 << 10;

/// State that all clients share.
#[derive(Clone)]
struct Shared {
    runs: Runs,
    root: Root,
    readers: Arc<Semaphore>,
}

impl Shared {
    fn new(runs: Runs, root: Root) -> Self {
        Self { runs, root, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// Answers what comes next. The input comes back, so that a line need not be copied.
    async fn answer(
        &self,
        mut input: Input,
        is_gone: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<(Input, Answered)> {
        let _place = self.readers.acquire().await.map_err(io::Error::other)?;
        let mut service = Service::new(self.runs.clone(), self.root.clone());
        let answered = tokio::task::spawn_blocking(move || {
            let answered = match input.next_event() {
                None => Answered::Nothing,
                // For one that is gone nothing is begun.
                Some(lines::Event::Line(_)) if is_gone() => Answered::Gone,
                Some(lines::Event::Line(line)) => {
                    let reply = lines::answer(line, REPLY_LIMIT, &mut |incoming| body(&mut service, incoming));
                    Answered::Reply(reply, std::mem::take(&mut service.started))
                }
                Some(lines::Event::Answer(line)) => Answered::Reply(Some(line), Vec::new()),
                Some(lines::Event::Nothing) => Answered::Reply(None, Vec::new()),
                Some(lines::Event::Refusal(line)) => Answered::Refusal(line),
            };
            (input, answered)
        });
        answered.await.map_err(|_| io::Error::other("a request could not be answered: looking at it failed"))
    }
}

/// The answer to a line of input.
enum Answered {
    /// The line needs no answer.
    Nothing,
    /// The reply, if the line has one, and the runs that start when the reply has been sent.
    Reply(Option<Vec<u8>>, Vec<Accepted>),
    /// The request is refused with this line, and the connection is closed.
    Refusal(Vec<u8>),
    /// The client of the line is gone.
    Gone,
}

/// The text after the id of a request's reply.
fn body(service: &mut Service, incoming: Incoming<'_>) -> Vec<u8> {
    let mut memory = vec![0; USUAL_REPLY];
    loop {
        let mut out = Writer::new(&mut memory);
        serve(service, incoming, &mut out);
        let (needed, fits) = (out.needed(), out.fits());
        // A request that changes anything has a short reply: none runs twice.
        if fits || needed > REPLY_LIMIT || !service.started.is_empty() {
            memory.resize(needed, 0);
            return memory;
        }
        memory.resize(needed, 0);
    }
}

/// Serves standard input and output until the input ends or `stop` is cancelled. It returns when
/// all runs have ended. It needs a tokio runtime with several threads.
///
/// # Errors
/// Reading or writing failed, or nobody reads the output. A closed output is no error.
pub async fn serve_stdio(runs: Runs, root: Root, stop: CancellationToken) -> io::Result<()> {
    let (input, output) = rigline_std::stdio::take()?;
    let mut input = input.start()?;
    let (out, mut lines) = Output::queued(BACKLOG);
    let client = ConnectedClient::new(out);
    let failure = Arc::new(Mutex::new(None));
    let write = {
        let (client, failure) = (client.clone(), failure.clone());
        move || {
            while let Some(Some(line)) = lines.blocking_recv() {
                if let Err(error) = output.write_all(&line) {
                    if error.kind() != io::ErrorKind::BrokenPipe {
                        *lock(&failure) = Some(error);
                    }
                    client.out.lose();
                    return;
                }
                client.out.written(line.len());
            }
        }
    };
    thread::Builder::new().name("rigline-output".into()).spawn(write)?;
    let shared = Shared::new(runs.clone(), root);
    let ended = tokio::select! {
        ended = converse(&mut input, &client, &shared, Input::of_process(REQUEST_LIMIT), None) => ended,
        () = stop.cancelled() => Ok(End::Input),
    };
    runs.idle().await;
    if stop.is_cancelled() {
        // A client that does not read must not delay the end of the server.
        let _ = timeout(LAST_LINES, client.out.at_most(0)).await;
    } else {
        client.out.at_most(0).await;
    }
    if client.out.has_overflowed() {
        let text = format!("the client does not read: {} MiB of replies and results wait", BACKLOG >> 20);
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    }
    let failure = lock(&failure).take();
    failure.map_or(ended.map(|_| ()), Err)
}

/// Serves every TCP client that [may ask](Access), until `stop` is cancelled. It returns when all
/// runs have ended. It needs a tokio runtime with several threads.
///
/// # Errors
/// The listeners cannot be used in this runtime.
pub async fn serve_tcp(
    listeners: Vec<std::net::TcpListener>,
    runs: Runs,
    root: Root,
    access: Access,
    stop: CancellationToken,
) -> io::Result<()> {
    let listeners = Listeners::new(listeners)?;
    tokio::select! {
        () = accept(listeners, Shared::new(runs.clone(), root), Arc::new(access)) => {}
        () = stop.cancelled() => {
            runs.idle().await;
            tokio::time::sleep(LAST_LINES).await;
        }
    }
    Ok(())
}

/// A server for clients over streams that the caller has opened. The caller decides who may
/// connect.
#[derive(Clone)]
pub struct EvalServer {
    shared: Shared,
}

impl EvalServer {
    /// Makes a server of the runs `runs`, for evals below the folder `root`. It needs a tokio
    /// runtime with several threads.
    pub fn new(runs: Runs, root: Root) -> Self {
        Self { shared: Shared::new(runs, root) }
    }

    /// Serves one client over a pair of streams. It returns when the input has ended and the
    /// client's runs have ended, or when `lost` is ready. In the latter case the runs go on.
    pub async fn serve<R, W>(&self, reader: R, writer: W, lost: impl Future<Output = ()>)
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let client = ConnectedClient::new(Output::of(writer, BACKLOG, true));
        let mut reader = FromTokio::new(reader);
        let conversation = async {
            let input = Input::of_socket(REQUEST_LIMIT, None);
            if let Ok(End::Input) = converse(&mut reader, &client, &self.shared, input, None).await {
                client.runs_done().await;
            }
        };
        tokio::select! {
            () = conversation => {}
            () = lost => client.out.lose(),
        }
        client.out.finish().await;
        client.out.lose();
    }
}

async fn accept(listeners: Listeners, shared: Shared, access: Arc<Access>) {
    let mut entrance = Entrance::new(Access::clone(&access), CLIENT_LIMIT);
    loop {
        match listeners.accept().await {
            Ok(stream) => {
                let Some(place) = entrance.admit(&stream) else { continue };
                let (shared, access) = (shared.clone(), access.clone());
                tokio::spawn(async move {
                    serve_stream(stream, &shared, &access).await;
                    drop(place);
                });
            }
            // Too many open files, most likely.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve_stream(stream: Stream, shared: &Shared, access: &Access) {
    let client = ConnectedClient::new(Output::of(stream.clone(), BACKLOG, true));
    let mut read = FromTokio::new(stream.clone());
    let ended = match access.refusal(stream.ends()) {
        Some(refusal) => {
            client.out.send(lines::error_line(lines::NOT_ALLOWED, &refusal));
            Ok(End::Refused)
        }
        None => {
            let input = Input::of_socket(REQUEST_LIMIT, access.token.clone());
            converse(&mut read, &client, shared, input, Some(&stream)).await
        }
    };
    if let Ok(End::Input) = ended {
        client.runs_done().await;
    }
    client.out.finish().await;
    client.out.lose();
    if let Ok(End::Refused) = ended {
        net::drain(read.inner_mut()).await;
    }
}

/// A client: the output for its lines, and the runs that it has started.
struct ConnectedClient {
    out: Output,
    /// The runs of the client that have not ended.
    runs: watch::Sender<usize>,
}

impl ConnectedClient {
    fn new(out: Output) -> Arc<Self> {
        Arc::new(Self { out, runs: watch::Sender::new(0) })
    }

    /// Waits until its runs have ended, or it is gone.
    async fn runs_done(&self) {
        let mut runs = self.runs.subscribe();
        tokio::select! {
            _ = runs.wait_for(|runs| *runs == 0) => {}
            () = self.out.gone() => {}
        }
    }

    /// Lets a run go, whose reply is in the queue.
    fn launch(self: &Arc<Self>, accepted: Accepted) {
        let (id, spec) = (accepted.id().to_owned(), accepted.spec().clone());
        let on_event: OnEvent = {
            let client = self.clone();
            Arc::new(move |event| {
                let Some(line) = notification(&id, &spec, &event) else { return };
                match event {
                    Event::Log { .. } => client.out.log(line, |dropped| dropped_logs(&id, dropped)),
                    Event::Complete(_) => {
                        client.out.report_dropped(|dropped| dropped_logs(&id, dropped));
                        client.out.send(line);
                    }
                    _ => client.out.send(line),
                }
            })
        };
        self.runs.send_modify(|runs| *runs += 1);
        let client = self.clone();
        accepted.launch(&Handle::current(), on_event, move |_| client.runs.send_modify(|runs| *runs -= 1));
    }
}

/// The line that says how many log lines were dropped.
fn dropped_logs(run: &str, count: u64) -> Vec<u8> {
    log_line(
        run,
        rigline::Level::Warn,
        &format!("{count} log lines were dropped: they came faster than they were read"),
    )
}

fn log_line(run: &str, level: rigline::Level, message: &str) -> Vec<u8> {
    let (run_id, level, message) = (Some(run), Some(level.name()), Some(message));
    line("eval.log", &waza::Log { run_id, level, message, ..waza::Log::default() })
}

/// The way in which the connection to a client ended.
enum End {
    /// The client has closed its sending half.
    Input,
    /// The client may not ask, or spoke HTTP.
    Refused,
    /// The client is gone.
    Gone,
}

/// Answers a client's lines to the end of its input. `stream` is the connection, if it is one.
async fn converse<R: Read<Error = io::Error>>(
    reader: &mut R,
    client: &Arc<ConnectedClient>,
    shared: &Shared,
    mut input: Input,
    stream: Option<&Stream>,
) -> io::Result<End> {
    let is_gone = {
        let (client, stream) = (client.clone(), stream.cloned());
        move || {
            let stream = stream.as_ref();
            client.out.is_gone() || stream.is_some_and(|stream| stream.presence() == Presence::Gone)
        }
    };
    let mut has_ended = false;
    loop {
        loop {
            let (rest, answered) = shared.answer(input, is_gone.clone()).await?;
            input = rest;
            match answered {
                Answered::Nothing => break,
                Answered::Reply(reply, started) => {
                    if let Some(reply) = reply {
                        client.out.send(reply);
                    }
                    for accepted in started {
                        client.launch(accepted);
                    }
                }
                Answered::Refusal(line) => {
                    client.out.send(line);
                    return Ok(End::Refused);
                }
                Answered::Gone => return Ok(End::Gone),
            }
            client.out.at_most(PAUSE).await;
            if client.out.is_gone() {
                return Ok(End::Gone);
            }
            if input.is_empty() && !has_ended {
                break;
            }
        }
        if has_ended {
            return Ok(if is_gone() { End::Gone } else { End::Input });
        }
        let deadline = input.deadline();
        let count = tokio::select! {
            read = reader.read(input.space()) => read?,
            () = client.out.gone() => return Ok(End::Gone),
            () = lines::wait_until(deadline) => {
                client.out.send(input.stalled());
                return Ok(End::Refused);
            }
        };
        if count == 0 {
            input.finish();
            has_ended = true;
        }
        input.commit(count);
    }
}

fn serve(service: &mut Service, incoming: Incoming<'_>, out: &mut Writer<'_>) {
    if let Some(answer) = super::results::answer(service.runs(), incoming.method, incoming.params) {
        match answer {
            Ok(result) => out.raw(format!(",\"result\":{result}}}").as_bytes()),
            Err(error) => waza::write_error(out, &waza::Error::Internal(&error.to_string())),
        }
        return;
    }
    match waza::request(incoming.method, incoming.params) {
        Ok(_) if !matches!(incoming.params.kind(), JsonKind::Object | JsonKind::Null) => {
            out.raw(lines::refusal_body(INVALID_PARAMS, "params: expected an object").as_bytes());
        }
        Ok(request) => waza::answer(service, &request, out),
        Err(refusal) => waza::write_refusal(out, refusal, incoming.method),
    }
}

/// The line that reports an event, if it is reported.
fn notification(run: &str, spec: &Spec, event: &Event) -> Option<Vec<u8>> {
    Some(match event {
        Event::Trial { .. } => return None,
        Event::Progress(Progress { event, task, trial, verdict, duration }) => {
            let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
            let progress = waza::Progress {
                run_id: Some(run),
                event: Some(*event),
                task_name: task.and_then(|task| spec.tasks.get(task)).map(|task| task.id.as_str()),
                task_num: task.map(|task| number(task).saturating_add(1)),
                total_tasks: Some(number(spec.tasks.len())),
                trial_num: *trial,
                total_trials: trial.map(|_| spec.config.trials_per_task),
                status: *verdict,
                duration_ms: duration.map(|duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)),
                ..waza::Progress::default()
            };
            line("eval.progress", &progress)
        }
        Event::Log { level, message } => log_line(run, *level, message),
        Event::Complete(outcome) => {
            let summary = outcome.error.is_none().then_some(outcome.summary);
            let complete = waza::Complete {
                run_id: Some(run),
                summary,
                error: outcome.error.as_deref(),
                ..waza::Complete::default()
            };
            line("eval.complete", &complete)
        }
    })
}

fn line<T: serde::Serialize>(method: &str, params: &T) -> Vec<u8> {
    let mut memory = vec![0; 1024];
    loop {
        let mut out = Writer::new(&mut memory);
        waza::write_notification(&mut out, method, params);
        let (length, fits) = (out.len(), out.fits());
        memory.resize(length.saturating_add(1), 0);
        if fits {
            if let Some(end) = memory.last_mut() {
                *end = b'\n';
            }
            return memory;
        }
    }
}
