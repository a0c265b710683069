//! One caller: its lines in, its lines out.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rigline::frame::{Frame, Framer, LineEnds};
use rigline::json::Json;
use rigline::rpc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::{Proxy, Refusal, lock, on_one_line};
use crate::not_http::{Opening, is_http};

/// How many requests of a caller wait; what it sends beyond is left in the stream.
const MAX_WAITING: usize = 64;
/// How many bytes wait for a caller that does not read before it is dropped.
const MAX_UNREAD: usize = 16 << 20;
/// How long a caller may take nothing of what is sent.
const STALLED: Duration = Duration::from_secs(10);

/// What an HTTP request is answered with.
const NO_HTTP: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\
    \"message\":\"this is no HTTP server; nothing was run\"}}\n";

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
    /// It spoke HTTP.
    Http,
}

impl Proxy {
    /// Serves a caller until its end. See the [module](super) for what becomes of its session.
    pub async fn serve<R, W>(self: &Arc<Self>, reader: R, writer: W, transport: Transport) -> End
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let out = Out::new(writer, self.limits.reply, transport);
        let mut session = Session { proxy: self, out: &out, is_open: false, transport };
        let end = session.run(reader).await;
        let is_open = session.is_open;
        let drained = out.finish().await;
        let end = if drained { end } else { End::Lost };
        if self.leave(is_open) {
            self.lose().await;
        }
        end
    }
}

struct Session<'p> {
    proxy: &'p Arc<Proxy>,
    out: &'p Out,
    is_open: bool,
    transport: Transport,
}

/// What came of a line.
struct Done {
    reply: Option<Vec<u8>>,
    is_open: bool,
    /// `shutdown` was among it.
    shut: bool,
}

type Working<'p> = Pin<Box<dyn Future<Output = Done> + Send + 'p>>;

impl Session<'_> {
    async fn run<R: AsyncRead + Unpin>(&mut self, mut reader: R) -> End {
        let mut memory = vec![0; self.proxy.limits.request.saturating_add(1)];
        let ends = LineEnds::Lf;
        let mut framer = Framer::new(&mut memory).with_mode(ends);
        let mut waiting: VecDeque<Asked> = VecDeque::new();
        let mut working: Option<Working<'_>> = None;
        let mut gone = self.out.gone();
        let mut opening = Opening::default();
        let mut input_ended = false;
        loop {
            if working.is_none() {
                match waiting.pop_front() {
                    Some(asked) => {
                        working = Some(Box::pin(work(Arc::clone(self.proxy), asked, self.is_open, self.out.clone())));
                    }
                    None if input_ended => return End::Input,
                    None => {}
                }
            }
            let may_read = !input_ended && waiting.len() < MAX_WAITING && self.out.unread() < MAX_UNREAD / 2;
            tokio::select! {
                biased;
                () = async { drop(gone.wait_for(|gone| *gone).await) } => {
                    // A call that runs sees it too, and cancels itself.
                    if let Some(working) = working.take() {
                        self.is_open = working.await.is_open;
                    }
                    return End::Lost;
                }
                done = async { match &mut working { Some(working) => working.await, None => std::future::pending().await } } => {
                    working = None;
                    self.is_open = done.is_open;
                    if let Some(reply) = done.reply {
                        self.out.send(reply);
                    }
                    if done.shut && self.transport == Transport::Process {
                        return End::Shutdown;
                    }
                }
                () = self.out.changed(), if !may_read && !input_ended => {}
                read = reader.read(framer.space()), if may_read => {
                    match read {
                        Ok(0) => {
                            framer.finish();
                            input_ended = true;
                        }
                        Ok(read) => {
                            let read_now = framer.space().get(..read).unwrap_or_default();
                            if self.transport == Transport::Socket && opening.is_http(read_now) {
                                self.out.send(NO_HTTP.to_vec());
                                return End::Http;
                            }
                            framer.commit(read);
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => self.out.lose(),
                    }
                    while let Some(frame) = framer.next() {
                        let line = match frame {
                            Frame::Line(line) => line,
                            Frame::TooLong(fault) => {
                                let mut memory = [0; 512];
                                self.out.send(rpc::answer_too_long(fault, &mut memory).to_vec());
                                continue;
                            }
                        };
                        let mut line = &*line;
                        if self.transport == Transport::Socket {
                            line = without_telnet(line);
                            if is_http(line) {
                                self.out.send(NO_HTTP.to_vec());
                                return End::Http;
                            }
                        }
                        // What needs no turn is answered at once.
                        let (requests, reply) = look(line, self.proxy.limits.reply);
                        if !requests.is_empty() {
                            waiting.push_back(Asked { line: line.to_vec(), requests });
                        } else if let Some(reply) = reply {
                            self.out.send(reply);
                        }
                    }
                }
            }
        }
    }
}

/// A line with something to do.
struct Asked {
    line: Vec<u8>,
    requests: Vec<Request>,
}

/// A request or a notification.
struct Request {
    method: String,
    params: String,
    is_notification: bool,
}

/// What is room enough for the line's errors, and for what goes around its results.
fn room_around(line: &[u8]) -> usize {
    // A batch has up to 64 members.
    if line.trim_ascii_start().first() == Some(&b'[') { 64 * 1024 } else { 1024 }
}

/// What a line asks for, and the reply if that is nothing.
fn look(line: &[u8], limit: usize) -> (Vec<Request>, Option<Vec<u8>>) {
    let mut requests = Vec::new();
    let mut memory = vec![0; limit.min(room_around(line)) + 1];
    let reply = rpc::answer(line, &mut memory, &mut |incoming, _| {
        requests.push(Request {
            method: incoming.method.to_cow().into_owned(),
            params: incoming.params.as_str().to_owned(),
            is_notification: incoming.is_notification,
        });
    });
    let reply = reply.filter(|_| requests.is_empty()).map(<[u8]>::to_vec);
    (requests, reply)
}

/// Does what a line asks for.
async fn work(proxy: Arc<Proxy>, asked: Asked, mut is_open: bool, out: Out) -> Done {
    let Asked { line, requests } = asked;
    let mut bodies = Vec::with_capacity(requests.len());
    let mut shut = false;
    for Request { method, params, is_notification } in requests {
        let params = Json::parse(params.as_bytes()).unwrap_or(Json::NULL);
        let body = match method.as_str() {
            "initialize" if !is_notification => proxy.initialize(params, is_open).await.map(|manifest| {
                is_open = true;
                manifest.to_string()
            }),
            "execute" => {
                let caller = out.clone();
                let caller = Arc::new(move |line: &str| caller.log(line));
                proxy.execute(params, caller, out.gone()).await
            }
            "shutdown" if !is_notification => {
                if std::mem::take(&mut is_open) {
                    lock(&proxy.shared).sessions -= 1;
                }
                shut = true;
                Ok("{}".to_owned())
            }
            _ => Err(Refusal {
                code: rpc::METHOD_NOT_FOUND,
                message: format!("Unknown method: {}", short(&method)),
                data: serde_json::Value::Null,
            }),
        };
        bodies.push(match body {
            Ok(result) => format!(",\"result\":{}}}", on_one_line(&result)),
            Err(refusal) => refusal.body(),
        });
    }
    let limit = proxy.limits.reply;
    let needed = bodies.iter().map(|body| body.len() + 1024).sum::<usize>().saturating_add(room_around(&line));
    let mut memory = vec![0; limit.min(needed).saturating_add(1)];
    let mut bodies = bodies.into_iter();
    let reply = rpc::answer(&line, &mut memory, &mut |_, writer| {
        writer.raw(bodies.next().unwrap_or_default().as_bytes());
    });
    Done { reply: reply.map(<[u8]>::to_vec), is_open, shut }
}

fn short(name: &str) -> String {
    let cut: String = name.chars().take(64).collect();
    if cut.len() < name.len() { cut + "…" } else { cut }
}

/// A line without telnet's negotiation before it (RFC 854): 255 begins it, which is no byte of UTF-8.
fn without_telnet(mut line: &[u8]) -> &[u8] {
    loop {
        line = match line {
            // Will, won't, do, don't: and what.
            [255, 251..=254, _, rest @ ..] => rest,
            // Subnegotiation, up to its end.
            [255, 250, rest @ ..] => match rest.windows(2).position(|pair| pair == [255, 240]) {
                Some(end) => rest.get(end + 2..).unwrap_or_default(),
                None => return line,
            },
            [255, 241..=249, rest @ ..] => rest,
            _ => return line,
        };
    }
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
        // Behind lines that wait there is no overtaking.
        if self.is_direct
            && self.unread() == 0
            && let Ok(mut writer) = self.writer.try_lock()
        {
            match Pin::new(&mut **writer).poll_write(&mut Context::from_waker(Waker::noop()), &line) {
                Poll::Ready(Ok(sent)) if sent == line.len() => return,
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

    /// A log, without its newline: one that does not fit is left out, and counted.
    fn log(&self, line: &str) {
        let mut dropped = lock(&self.state.dropped_logs);
        if line.len() > self.limit || self.unread() > MAX_UNREAD / 4 {
            *dropped += 1;
            return;
        }
        if *dropped > 0 {
            let text = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{{\"level\":\"warn\",\"message\":\"{} logs were dropped\"}}}}\n",
                std::mem::take(&mut *dropped)
            );
            self.send(text.into_bytes());
        }
        drop(dropped);
        self.send(format!("{line}\n").into_bytes());
    }

    /// Waits until everything is out; gives whether it is.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telnets_negotiation_is_left_out() {
        let table: &[(&[u8], &[u8])] = &[
            (b"{}", b"{}"),
            (b"\xFF\xFD\x03\xFF\xFB\x18{}", b"{}"),
            (b"\xFF\xFA\x18\x01\xFF\xF0{}", b"{}"),
            (b"\xFF\xF1{}", b"{}"),
            (b"\xFF\xFE", b"\xFF\xFE"),
        ];
        for (line, left) in table {
            assert_eq!(without_telnet(line), *left);
        }
    }
}
