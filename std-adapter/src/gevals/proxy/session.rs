//! One caller: its lines in, its lines out.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rigline::json::{Json, Kind};
use rigline::rpc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::{Calling, Proxy, Refusal, Seat, lock};
use crate::lines::{self, Event, Input, NOT_ALLOWED, Request, on_one_line};
use crate::log;
use crate::net::{Access, Presence, Stream};

/// How many requests of a caller wait; what it sends beyond is left in the stream.
const MAX_WAITING: usize = 64;
/// How many bytes wait for a caller that does not read before it is dropped.
const MAX_UNREAD: usize = 16 << 20;
/// How long a caller may take nothing of what is sent.
const STALLED: Duration = Duration::from_secs(10);
/// How long what comes from a caller that was refused is still read.
const DRAIN: Duration = Duration::from_millis(500);

/// What a caller's streams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// This process's own input and output: `shutdown` ends serving.
    Process,
    /// A socket: after `shutdown` the caller may begin a new session. Telnet's negotiation is left out, and HTTP refused.
    Socket,
}

/// How serving a caller ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It ended its stream, and has got all its answers.
    Input,
    /// `shutdown` was acknowledged.
    Shutdown,
    /// It is gone, or has taken nothing for too long.
    Lost,
    /// It may not ask, or spoke HTTP.
    Refused,
}

impl Proxy {
    /// Serves a caller until its end. See the [module](super) for what becomes of its session.
    pub async fn serve<R, W>(self: &Arc<Self>, reader: R, writer: W, transport: Transport) -> End
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_until(reader, writer, transport, std::future::pending()).await
    }

    /// As [`serve`](Self::serve), for streams on which a lost caller looks like one that has closed its sending half:
    /// `lost` is ready when the caller is lost.
    pub async fn serve_until<R, W>(
        self: &Arc<Self>,
        mut reader: R,
        writer: W,
        transport: Transport,
        lost: impl Future<Output = ()> + Send,
    ) -> End
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let input = match transport {
            Transport::Process => Input::of_process(self.limits.request),
            Transport::Socket => Input::of_socket(self.limits.request, None).with_telnet(),
        };
        let out = Out::new(writer, self.limits.reply, transport);
        let watched = out.clone();
        let losing = async {
            lost.await;
            watched.lose();
            std::future::pending().await
        };
        tokio::select! {
            end = self.serve_with(&mut reader, input, out, transport, None) => end,
            end = losing => end,
        }
    }

    /// Serves a caller that has connected, if it may ask.
    pub(super) async fn serve_stream(self: &Arc<Self>, stream: Stream, access: &Access) -> End {
        let mut reader = stream.clone();
        let out = Out::new(stream.clone(), self.limits.reply, Transport::Socket);
        let end = match access.refusal(stream.ends()) {
            Some(refusal) => {
                out.send(lines::error_line(NOT_ALLOWED, &refusal));
                out.finish().await;
                End::Refused
            }
            None => {
                let input = Input::of_socket(self.limits.request, access.token.clone()).with_telnet();
                self.serve_with(&mut reader, input, out, Transport::Socket, Some(stream)).await
            }
        };
        if end == End::Refused {
            // What is still on its way is read and dropped: a reset would take the refusal with it.
            let mut rest = [0; 4096];
            let _ = timeout(DRAIN, async { while let Ok(1..) = reader.read(&mut rest).await {} }).await;
        }
        end
    }

    async fn serve_with<R: AsyncRead + Send + Unpin>(
        self: &Arc<Self>,
        reader: &mut R,
        input: Input,
        out: Out,
        transport: Transport,
        stream: Option<Stream>,
    ) -> End {
        let seat = Arc::new(Seat::new(self));
        let cancel = watch::Sender::new(false);
        let mut session = Session { proxy: self, out: &out, seat: &seat, cancel: &cancel, transport, stream };
        let end = session.run(reader, input).await;
        let drained = out.finish().await;
        if seat.leave() {
            self.lose().await;
        }
        if drained { end } else { End::Lost }
    }
}

struct Session<'p> {
    proxy: &'p Arc<Proxy>,
    out: &'p Out,
    seat: &'p Arc<Seat>,
    /// Becomes true when what the caller asked for is to be given up.
    cancel: &'p watch::Sender<bool>,
    transport: Transport,
    stream: Option<Stream>,
}

/// The outcome of a line.
struct Done {
    reply: Option<Vec<u8>>,
    /// `shutdown` was among it.
    shut: bool,
}

type Working<'p> = Pin<Box<dyn Future<Output = Done> + Send + 'p>>;

/// A line with something to do.
struct Asked {
    line: Vec<u8>,
    requests: Vec<Request>,
}

impl Session<'_> {
    async fn run<R: AsyncRead + Unpin>(&mut self, reader: &mut R, mut input: Input) -> End {
        let mut waiting: VecDeque<Asked> = VecDeque::new();
        let mut working: Option<Working<'_>> = None;
        let mut gone = self.out.gone();
        let mut input_ended = false;
        loop {
            if working.is_none() {
                match waiting.pop_front() {
                    Some(asked) => {
                        let limit = self.proxy.limits.reply;
                        working = Some(Box::pin(work(Arc::clone(self.seat), asked, self.calling(), limit)));
                    }
                    None if input_ended => return End::Input,
                    None => {}
                }
            }
            let may_read = !input_ended && waiting.len() < MAX_WAITING && self.out.unread() < MAX_UNREAD / 2;
            let deadline = input.deadline();
            tokio::select! {
                biased;
                () = async { drop(gone.wait_for(|gone| *gone).await) } => return self.give_up(working, End::Lost).await,
                done = async { match &mut working { Some(working) => working.await, None => std::future::pending().await } } => {
                    working = None;
                    if let Some(reply) = done.reply {
                        // Of logs that were dropped the caller learns with the result, at the latest.
                        self.out.tell_dropped();
                        self.out.send(reply);
                    }
                    if done.shut && self.transport == Transport::Process {
                        return End::Shutdown;
                    }
                    continue;
                }
                () = self.out.changed(), if !may_read && !input_ended => continue,
                () = lines::at(deadline), if may_read => {
                    self.out.send(input.stalled());
                    return self.give_up(working, End::Refused).await;
                }
                read = reader.read(input.space()), if may_read => {
                    match read {
                        Ok(0) => {
                            input.finish();
                            input_ended = true;
                            // One that closed its sending half only still reads.
                            if self.stream.as_ref().is_some_and(|stream| stream.presence() == Presence::Gone) {
                                self.out.lose();
                            }
                        }
                        Ok(read) => input.commit(read),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => self.out.lose(),
                    }
                }
            }
            while let Some(event) = input.next() {
                match event {
                    // What needs no turn is answered at once.
                    Event::Line(line) => match lines::requests(line, self.proxy.limits.reply) {
                        Ok(requests) => waiting.push_back(Asked { line: line.to_vec(), requests }),
                        Err(Some(reply)) => self.out.send(reply),
                        Err(None) => {}
                    },
                    Event::Answer(line) => self.out.send(line),
                    Event::Nothing => {}
                    Event::Refusal(line) => {
                        self.out.send(line);
                        return self.give_up(working, End::Refused).await;
                    }
                }
            }
        }
    }

    /// Has the call in hand cancelled.
    async fn give_up(&self, working: Option<Working<'_>>, end: End) -> End {
        self.cancel.send_replace(true);
        if let Some(working) = working {
            working.await;
        }
        end
    }

    fn calling(&self) -> Calling {
        let out = self.out.clone();
        Calling {
            log: Arc::new(move |line: &str| out.log(line)),
            gone: self.cancel.subscribe(),
            stream: self.stream.clone(),
        }
    }
}

/// Does what a line asks for.
async fn work(seat: Arc<Seat>, asked: Asked, calling: Calling, limit: usize) -> Done {
    let Asked { line, requests } = asked;
    let mut bodies = Vec::with_capacity(requests.len());
    let mut shut = false;
    for request in requests {
        let body = match serve(&seat, &request, &calling, &mut shut).await {
            Ok(result) => format!(",\"result\":{}}}", on_one_line(&result)),
            Err(refusal) => refusal.body(),
        };
        bodies.push(body.into_bytes());
    }
    Done { reply: lines::assemble(&line, limit, bodies), shut }
}

/// Serves a request; returns its result's JSON text.
async fn serve(seat: &Seat, request: &Request, calling: &Calling, shut: &mut bool) -> Result<String, Refusal> {
    let Request { method, params, is_notification } = request;
    let refusal = |code, message: String| Refusal { code, message, data: serde_json::Value::Null };
    let is_known = matches!((method.as_str(), is_notification), ("execute", _) | ("initialize" | "shutdown", false));
    if !is_known {
        return Err(refusal(rpc::METHOD_NOT_FOUND, format!("Unknown method: {}", short(method))));
    }
    // It is part of a line that was checked.
    let params = Json::parse(params.as_bytes()).map_err(|error| Refusal::internal(error.to_string()))?;
    // JSON-RPC 2.0 §4.2 has arrays too; only a method without parameters of its own is content with one.
    let fits =
        matches!(params.kind(), Kind::Object | Kind::Null) || params.kind() == Kind::Array && method == "shutdown";
    if !fits {
        return Err(refusal(rpc::INVALID_PARAMS, "params: expected an object".to_owned()));
    }
    match method.as_str() {
        "initialize" => seat.proxy.initialize(params, seat, calling).await.map(|manifest| manifest.to_string()),
        "execute" => seat.proxy.execute(params, calling).await,
        _ => {
            seat.leave();
            *shut = true;
            Ok("{}".to_owned())
        }
    }
}

fn short(name: &str) -> String {
    let cut: String = name.chars().take(64).collect();
    if cut.len() < name.len() { cut + "…" } else { cut }
}

/// Lines to a caller, whole and in order.
#[derive(Clone)]
struct Out {
    writer: Arc<tokio::sync::Mutex<Writer>>,
    /// Lines go at once where they can. Standard output takes them by way of a thread in any case.
    is_direct: bool,
    lines: mpsc::UnboundedSender<Option<Vec<u8>>>,
    state: Arc<OutState>,
    limit: usize,
}

struct OutState {
    unread: AtomicUsize,
    changed: Notify,
    gone: watch::Sender<bool>,
    drained: watch::Sender<bool>,
    dropped_logs: Mutex<u64>,
}

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

impl Out {
    fn new<W: AsyncWrite + Send + Unpin + 'static>(writer: W, limit: usize, transport: Transport) -> Self {
        let writer: Arc<tokio::sync::Mutex<Writer>> = Arc::new(tokio::sync::Mutex::new(Box::new(writer)));
        let task_writer = Arc::clone(&writer);
        let (lines, mut waiting) = mpsc::unbounded_channel::<Option<Vec<u8>>>();
        let state = Arc::new(OutState {
            unread: AtomicUsize::new(0),
            changed: Notify::new(),
            gone: watch::channel(false).0,
            drained: watch::channel(false).0,
            dropped_logs: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Some(Some(line)) = waiting.recv().await {
                if !whole(&mut *task_writer.lock().await, &line).await {
                    shared.gone.send_replace(true);
                    break;
                }
                shared.unread.fetch_sub(line.len(), Ordering::Relaxed);
                shared.changed.notify_one();
            }
            let _ = timeout(STALLED, task_writer.lock().await.shutdown()).await;
            shared.drained.send_replace(true);
        });
        Self { writer, is_direct: transport == Transport::Socket, lines, state, limit }
    }

    fn gone(&self) -> watch::Receiver<bool> {
        self.state.gone.subscribe()
    }

    fn lose(&self) {
        self.state.gone.send_replace(true);
    }

    fn unread(&self) -> usize {
        self.state.unread.load(Ordering::Relaxed)
    }

    async fn changed(&self) {
        self.state.changed.notified().await;
    }

    /// A reply: it is never left out.
    fn send(&self, mut line: Vec<u8>) {
        let mut held = None;
        // A line must not overtake lines that wait.
        if self.is_direct
            && self.unread() == 0
            && let Ok(mut writer) = self.writer.try_lock()
        {
            let task = &mut Context::from_waker(Waker::noop());
            match Pin::new(&mut **writer).poll_write(task, &line) {
                Poll::Ready(Ok(sent)) if sent == line.len() => {
                    if Pin::new(&mut **writer).poll_flush(task).is_ready() {
                        return;
                    }
                    // The task goes on with that.
                    line.clear();
                }
                // The rest is to be the next that is written.
                Poll::Ready(Ok(sent)) => drop(line.drain(..sent)),
                // The task sees the fault too.
                Poll::Ready(Err(_)) | Poll::Pending => {}
            }
            held = Some(writer);
        }
        if self.state.unread.fetch_add(line.len(), Ordering::Relaxed) > MAX_UNREAD {
            self.lose();
        }
        let _ = self.lines.send(Some(line));
        drop(held);
    }

    /// A log, without its newline: one that is too long is shortened. What its caller does not read in time is left out, and counted.
    fn log(&self, line: &str) {
        let mut dropped = lock(&self.state.dropped_logs);
        let mut line = format!("{line}\n").into_bytes();
        if line.len() > self.limit + 1
            && let Some(short) = log::shortened(&line, self.limit)
        {
            line = short;
        }
        if line.len() > self.limit + 1 || self.unread() > MAX_UNREAD / 4 {
            *dropped += 1;
            return;
        }
        self.send_dropped(std::mem::take(&mut *dropped));
        drop(dropped);
        self.send(line);
    }

    /// Says how many logs were dropped since it was said last.
    fn tell_dropped(&self) {
        let count = std::mem::take(&mut *lock(&self.state.dropped_logs));
        self.send_dropped(count);
    }

    fn send_dropped(&self, count: u64) {
        if count > 0 {
            let text = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{{\"level\":\"warn\",\
                 \"message\":\"{count} logs were dropped\",\"data\":{{\"dropped\":{count}}}}}}}\n"
            );
            self.send(text.into_bytes());
        }
    }

    /// Waits until everything is sent; returns whether it is.
    async fn finish(&self) -> bool {
        let _ = self.lines.send(None);
        let _ = self.state.drained.subscribe().wait_for(|drained| *drained).await;
        !*self.state.gone.borrow()
    }
}

/// Writes a line, as long as its reader takes anything of it.
async fn whole<W: AsyncWrite + Unpin>(writer: &mut W, mut line: &[u8]) -> bool {
    while !line.is_empty() {
        match timeout(STALLED, writer.write(line)).await {
            Ok(Ok(written)) if written > 0 => line = line.get(written..).unwrap_or_default(),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
    matches!(timeout(STALLED, writer.flush()).await, Ok(Ok(())))
}
