//! The JSON-RPC server: waza's methods on standard input and output, and over TCP.
//!
//! # What is told to whom, and when
//! The reply to a request goes out before the first notification of a run that it started, the line of a batch too. Every
//! line is one write. A run's notifications go to the client that started it; all clients may ask about all runs, and cancel
//! them.
//!
//! # How a connection ends
//! - End of input, or of the client's sending half: all requests are answered, the client's runs are finished, and then the connection
//!   is closed.
//! - A client that is gone stops no run. Nor does one that does not read: when [`BACKLOG`] bytes wait for it, or nothing was taken
//!   for [`PATIENCE`], it is dropped.
//! - A line that is the beginning of an HTTP request is refused, and the connection closed: a web page could have sent it.
//!
//! # Limits
//! A request line may have [`REQUEST_LIMIT`] bytes, a reply [`REPLY_LIMIT`]. There may be [`CLIENT_LIMIT`] connections at a time.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use embedded_io_async::{ErrorType, Read};
use rigline::frame::{Frame, Framer};
use rigline::json::write::Writer;
use rigline::protocol::waza;
use rigline::rpc::{self, Incoming};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::run::{Event, OnEvent, Progress};
use super::runs::{Accepted, Runs};
use super::service::Service;
use super::spec::Spec;
use crate::not_http::{Opening, is_http};

/// The longest request line, in bytes without its end.
pub const REQUEST_LIMIT: usize = 8 << 20;
/// The longest reply line, in bytes without its end.
pub const REPLY_LIMIT: usize = 16 << 20;
/// The most bytes that wait for a client that does not read.
pub const BACKLOG: usize = 32 << 20;
/// While this many bytes wait for a client, no more of its requests are read.
const PAUSE: usize = 1 << 20;
/// How long a TCP client may take nothing of what waits for it.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long the last lines may take to be out when the server is stopped.
const LAST_LINES: Duration = Duration::from_millis(250);
/// The most TCP connections at a time.
pub const CLIENT_LIMIT: usize = 256;

/// Serves standard input and output to the end of input, or until `stop`, and then to the end of all runs. It needs a
/// runtime of several threads, as [`serve_tcp`] does.
///
/// # Errors
/// Reading or writing failed, other than by the reader's being gone.
pub async fn serve_stdio(runs: Runs, stop: CancellationToken) -> io::Result<()> {
    let (input, output) = crate::stdio::take()?;
    let mut input = input.start()?;
    let (client, mut lines) = Client::new();
    let failure = Arc::new(Mutex::new(None));
    let write = {
        let (client, failure) = (client.clone(), failure.clone());
        move || {
            while let Some(line) = lines.blocking_recv() {
                if let Err(error) = output.write_all(&line) {
                    if error.kind() != io::ErrorKind::BrokenPipe {
                        *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                    client.gone.cancel();
                    return;
                }
                client.written(line.len());
            }
        }
    };
    thread::Builder::new().name("rigline-output".into()).spawn(write)?;
    let ended = tokio::select! {
        ended = converse(&mut input, &client, &runs, false) => ended,
        () = stop.cancelled() => Ok(End::Input),
    };
    runs.idle().await;
    if stop.is_cancelled() {
        // Whoever stopped it will not wait for one that does not read.
        let _ = timeout(LAST_LINES, client.drained()).await;
    } else {
        client.drained().await;
    }
    let failure = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    failure.map_or(ended.map(|_| ()), Err)
}

/// Listens on `address`, `HOST:PORT`: on all that it stands for, such as both loopback addresses of `localhost`. A port alone, `:9000`,
/// is on loopback.
///
/// # Errors
/// There is no such address, or none can be listened on.
pub async fn listen(address: &str) -> io::Result<Vec<TcpListener>> {
    let address = match address.rsplit_once(':') {
        Some(("", port)) => format!("localhost:{port}"),
        None if address.bytes().all(|byte| byte.is_ascii_digit()) => format!("localhost:{address}"),
        _ => address.to_owned(),
    };
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut failure = None;
    for mut each in lookup_host(&address).await? {
        // Port 0 is any; the same for all.
        if let (0, Some(Ok(first))) = (each.port(), listeners.first().map(TcpListener::local_addr)) {
            each.set_port(first.port());
        }
        match TcpListener::bind(each).await {
            Ok(listener) => listeners.push(listener),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        // IPv6 may be switched off; but a port that somebody has is somebody's on one address only, and clients would meet them.
        Some(error) if listeners.is_empty() || error.kind() == io::ErrorKind::AddrInUse => Err(error),
        _ if listeners.is_empty() => Err(io::ErrorKind::AddrNotAvailable.into()),
        _ => Ok(listeners),
    }
}

/// Serves everybody who connects, until `stop`, and then to the end of all runs.
pub async fn serve_tcp(listeners: Vec<TcpListener>, runs: Runs, stop: CancellationToken) {
    let serving = accept(listeners, runs.clone());
    tokio::select! {
        () = serving => {}
        () = stop.cancelled() => {
            runs.idle().await;
            tokio::time::sleep(LAST_LINES).await;
        }
    }
}

async fn accept(listeners: Vec<TcpListener>, runs: Runs) {
    let clients = Arc::new(AtomicUsize::new(0));
    let serving = listeners.into_iter().map(|listener| {
        let (clients, runs) = (clients.clone(), runs.clone());
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        if clients.fetch_add(1, Ordering::AcqRel) >= CLIENT_LIMIT {
                            clients.fetch_sub(1, Ordering::AcqRel);
                            drop(stream);
                            continue;
                        }
                        let (clients, runs) = (clients.clone(), runs.clone());
                        tokio::spawn(async move {
                            let _one = Counted(clients);
                            serve_stream(stream, &runs).await;
                        });
                    }
                    // Too many open files, most likely.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        })
    });
    for task in serving.collect::<Vec<_>>() {
        let _ = task.await;
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn serve_stream(stream: TcpStream, runs: &Runs) {
    // Lines are small, and somebody waits for each.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    let (client, lines) = Client::new();
    let writer = tokio::spawn(write_lines(write, lines, client.clone()));
    let mut read = Stream(read);
    let ended = converse(&mut read, &client, runs, true).await;
    if let Ok(End::Input) = ended {
        client.runs_done().await;
    }
    // What waits is written, then the end.
    client.close();
    let _ = writer.await;
    client.gone.cancel();
    if let Ok(End::Refused) = ended {
        // What is still on its way is read and dropped: a reset would take the refusal with it.
        let mut rest = [0; 4096];
        let _ = timeout(Duration::from_millis(500), async { while let Ok(1..) = read.read(&mut rest).await {} }).await;
    }
}

async fn write_lines(mut stream: OwnedWriteHalf, mut lines: mpsc::UnboundedReceiver<Vec<u8>>, client: Arc<Client>) {
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            () = client.gone.cancelled() => None,
        };
        let Some(line) = line else { break };
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            let written = tokio::select! {
                written = timeout(PATIENCE, stream.write(rest)) => written,
                // Too much waits behind this line.
                () = client.gone.cancelled() => return,
            };
            match written {
                Ok(Ok(count @ 1..)) => rest = rest.get(count..).unwrap_or_default(),
                _ => return client.gone.cancel(),
            }
        }
        client.written(line.len());
    }
    let _ = stream.shutdown().await;
}

/// Reading, as `embedded-io` has it.
struct Stream(OwnedReadHalf);

impl ErrorType for Stream {
    type Error = io::Error;
}

impl Read for Stream {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).await
    }
}

/// Where a client's lines go. They wait in a queue, which never makes anybody wait.
struct Client {
    lines: Mutex<Option<mpsc::UnboundedSender<Vec<u8>>>>,
    /// Bytes in the queue.
    waiting: AtomicUsize,
    fewer: Notify,
    /// Nobody takes lines any more.
    gone: CancellationToken,
    /// Its runs that have not ended.
    runs: watch::Sender<usize>,
}

impl Client {
    fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Vec<u8>>) {
        let (lines, queue) = mpsc::unbounded_channel();
        let client = Self {
            lines: Mutex::new(Some(lines)),
            waiting: AtomicUsize::new(0),
            fewer: Notify::new(),
            gone: CancellationToken::new(),
            runs: watch::Sender::new(0),
        };
        (Arc::new(client), queue)
    }

    fn send(&self, line: Vec<u8>) {
        if self.gone.is_cancelled() {
            return;
        }
        let length = line.len();
        if self.waiting.fetch_add(length, Ordering::AcqRel).saturating_add(length) > BACKLOG.max(length) {
            return self.gone.cancel();
        }
        if let Some(lines) = &*self.lines.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = lines.send(line);
        }
    }

    fn written(&self, length: usize) {
        self.waiting.fetch_sub(length, Ordering::AcqRel);
        self.fewer.notify_waiters();
    }

    /// Waits until at most this many bytes wait, or the client is gone.
    async fn at_most(&self, bytes: usize) {
        loop {
            let mut fewer = std::pin::pin!(self.fewer.notified());
            fewer.as_mut().enable();
            if self.waiting.load(Ordering::Acquire) <= bytes {
                return;
            }
            tokio::select! {
                () = fewer => {}
                () = self.gone.cancelled() => return,
            }
        }
    }

    async fn drained(&self) {
        self.at_most(0).await;
    }

    /// Waits until its runs have ended, or it is gone.
    async fn runs_done(&self) {
        let mut runs = self.runs.subscribe();
        tokio::select! {
            _ = runs.wait_for(|runs| *runs == 0) => {}
            () = self.gone.cancelled() => {}
        }
    }

    /// Takes no more lines; those that wait still go out.
    fn close(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Lets a run go, whose reply is in the queue.
    fn launch(self: &Arc<Self>, accepted: Accepted) {
        let (id, spec) = (accepted.id().to_owned(), accepted.spec().clone());
        let on_event: OnEvent = {
            let client = self.clone();
            Arc::new(move |event| {
                if let Some(line) = notification(&id, &spec, &event) {
                    client.send(line);
                }
            })
        };
        self.runs.send_modify(|runs| *runs += 1);
        let client = self.clone();
        accepted.launch(&Handle::current(), on_event, move |_| client.runs.send_modify(|runs| *runs -= 1));
    }
}

/// What an HTTP request is answered with.
const NO_HTTP: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\
    \"message\":\"Invalid Request: HTTP is not spoken here; send one JSON-RPC request a line\"}}\n";

/// How a conversation ended.
enum End {
    /// The client has said all it had to say.
    Input,
    /// It spoke HTTP.
    Refused,
    /// It is gone.
    Gone,
}

/// Answers a client's lines to the end of its input.
async fn converse<R: Read<Error = io::Error>>(
    input: &mut R,
    client: &Arc<Client>,
    runs: &Runs,
    is_open: bool,
) -> io::Result<End> {
    // Asked for at once, and taken from the system only as far as it is touched.
    let (mut request, mut reply) = (vec![0; REQUEST_LIMIT + 1], vec![0; REPLY_LIMIT + 1]);
    let mut framer = Framer::new(&mut request);
    let mut opening = Opening::default();
    let mut has_ended = false;
    loop {
        while let Some(frame) = framer.next() {
            let line = match frame {
                Frame::Line(line) if is_open && is_http(line) => {
                    client.send(NO_HTTP.to_vec());
                    return Ok(End::Refused);
                }
                Frame::Line(line) => line,
                Frame::TooLong(fault) => {
                    client.send(rpc::answer_too_long(fault, &mut reply).to_vec());
                    continue;
                }
            };
            let mut service = Service::new(runs.clone());
            // Files are read here.
            let answered = tokio::task::block_in_place(|| {
                rpc::answer(line, &mut reply, &mut |incoming, out| serve(&mut service, incoming, out))
                    .map(<[u8]>::to_vec)
            });
            if let Some(answered) = answered {
                client.send(answered);
            }
            for accepted in service.started {
                client.launch(accepted);
            }
            client.at_most(PAUSE).await;
            if client.gone.is_cancelled() {
                return Ok(End::Gone);
            }
        }
        if has_ended {
            return Ok(End::Input);
        }
        let count = tokio::select! {
            read = input.read(framer.space()) => read?,
            () = client.gone.cancelled() => return Ok(End::Gone),
        };
        if is_open && opening.is_http(framer.space().get(..count).unwrap_or_default()) {
            client.send(NO_HTTP.to_vec());
            return Ok(End::Refused);
        }
        if count == 0 {
            framer.finish();
            has_ended = true;
        }
        framer.commit(count);
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
        Ok(request) => waza::answer(service, &request, out),
        Err(refusal) => waza::write_refusal(out, refusal, incoming.method),
    }
}

/// The line that tells of an event, if it is told.
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
        Event::Log { level, message } => {
            let log = waza::Log {
                run_id: Some(run),
                level: Some(level.name()),
                message: Some(message),
                ..waza::Log::default()
            };
            line("eval.log", &log)
        }
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
