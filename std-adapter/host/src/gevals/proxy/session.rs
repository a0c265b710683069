//! One caller: its lines in, its lines out.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use rigline::json::{Json, Kind};
use rigline::rpc;
use rigline::serve::Transport;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::watch;

use super::{Calling, Proxy, Refusal, Seat, Ticket, deadline_of};
use crate::lines::{self, Event, Input, NOT_ALLOWED, Output, Request, on_one_line};
use crate::terminal::cut;
use rigline_std::log;
use rigline_std::net::{self, Access, Presence, Stream};

/// The number of requests of a caller that wait. Further ones are not read from the stream.
const MAX_WAITING: usize = 64;
/// How many bytes wait for a caller that does not read before it is dropped.
const MAX_UNREAD: usize = 16 << 20;

/// How serving a caller ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It ended its stream, and has got all its answers.
    Input,
    /// `shutdown` was acknowledged.
    Shutdown,
    /// The caller has disconnected, or has read nothing for too long.
    Lost,
    /// It may not ask, or spoke HTTP.
    Refused,
}

impl Proxy {
    /// Serves a caller until its end. See the [module](super) for what becomes of its session.
    ///
    /// [`Transport::Stdio`] is this process's own input and output: `shutdown` ends serving. With [`Transport::Stream`], a socket, the caller
    /// may begin a new session after it; telnet's negotiation is left out, and HTTP refused.
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
        reader: R,
        writer: W,
        transport: Transport,
        lost: impl Future<Output = ()> + Send,
    ) -> End
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        self.serve_as(None, reader, writer, transport, lost).await
    }

    /// As [`serve_until`](Self::serve_until), for a caller that is in the list of callers.
    pub async fn serve_as<R, W>(
        self: &Arc<Self>,
        ticket: Option<Arc<Ticket>>,
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
            Transport::Stdio => Input::of_process(self.limits.request),
            Transport::Stream => Input::of_socket(self.limits.request, None).with_telnet(),
        };
        let out = Output::of(writer, MAX_UNREAD, transport == Transport::Stream);
        let watched = out.clone();
        let losing = async {
            lost.await;
            watched.lose();
            std::future::pending().await
        };
        tokio::select! {
            end = self.serve_with(&mut reader, input, out, transport, Origin { stream: None, ticket }) => end,
            end = losing => end,
        }
    }

    /// Serves a caller that has connected, if it may ask.
    pub(super) async fn serve_stream(self: &Arc<Self>, stream: Stream, access: &Access) -> End {
        let mut reader = stream.clone();
        let out = Output::of(stream.clone(), MAX_UNREAD, true);
        let end = match access.refusal(stream.ends()) {
            Some(refusal) => {
                out.send(lines::error_line(NOT_ALLOWED, &refusal));
                out.finish().await;
                End::Refused
            }
            None => {
                let input = Input::of_socket(self.limits.request, access.token.clone()).with_telnet();
                {
                    let origin = Origin { stream: Some(stream), ticket: None };
                    self.serve_with(&mut reader, input, out, Transport::Stream, origin).await
                }
            }
        };
        if end == End::Refused {
            net::drain(&mut reader).await;
        }
        end
    }

    async fn serve_with<R: AsyncRead + Send + Unpin>(
        self: &Arc<Self>,
        reader: &mut R,
        input: Input,
        out: Output,
        transport: Transport,
        origin: Origin,
    ) -> End {
        let seat = Arc::new(Seat::new(self));
        let cancel = watch::Sender::new(false);
        let mut session = Session { proxy: self, out: &out, seat: &seat, cancel: &cancel, transport, origin };
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
    out: &'p Output,
    seat: &'p Arc<Seat>,
    /// Becomes true when the caller's call is to be cancelled.
    cancel: &'p watch::Sender<bool>,
    transport: Transport,
    origin: Origin,
}

/// Where a caller comes from.
struct Origin {
    /// The connection of the caller, if that can be asked.
    stream: Option<Stream>,
    ticket: Option<Arc<Ticket>>,
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
    arrived: Instant,
}

impl Asked {
    /// When the time limit of its call has passed, if it is one call.
    fn deadline(&self) -> Option<Instant> {
        match self.requests.as_slice() {
            [request] if request.method == "execute" => {
                deadline_of(Json::parse(request.params.as_bytes()).ok()?, self.arrived)
            }
            _ => None,
        }
    }
}

impl Session<'_> {
    async fn run<R: AsyncRead + Unpin>(&mut self, reader: &mut R, mut input: Input) -> End {
        let mut waiting: VecDeque<Asked> = VecDeque::new();
        let mut working: Option<Working<'_>> = None;
        let mut input_ended = false;
        loop {
            if working.is_none() {
                match waiting.pop_front() {
                    Some(asked) => {
                        let limit = self.proxy.limits.reply;
                        let calling = self.calling(asked.arrived);
                        working = Some(Box::pin(work(Arc::clone(self.seat), asked, calling, limit)));
                    }
                    None if input_ended => return End::Input,
                    None => {}
                }
            }
            let is_full = self.out.waiting() >= MAX_UNREAD / 2;
            let may_read = !input_ended && waiting.len() < MAX_WAITING && !is_full;
            let deadline = input.deadline();
            let expiry = waiting.iter().filter_map(Asked::deadline).min();
            tokio::select! {
                biased;
                () = self.out.gone() => return self.give_up(working, End::Lost).await,
                done = async { match &mut working { Some(working) => working.await, None => std::future::pending().await } } => {
                    working = None;
                    if let Some(reply) = done.reply {
                        // Of logs that were dropped the caller learns with the result, at the latest.
                        self.out.report_dropped(dropped_logs);
                        self.out.send(reply);
                    }
                    if done.shut && self.transport == Transport::Stdio {
                        return End::Shutdown;
                    }
                    continue;
                }
                () = lines::at(expiry.map(Into::into)) => {
                    // It has waited behind the caller's own calls for too long.
                    let is_late = |asked: &Asked| asked.deadline().is_some_and(|deadline| deadline <= Instant::now());
                    while let Some(place) = waiting.iter().position(is_late)
                        && let Some(Asked { line, arrived, .. }) = waiting.remove(place)
                    {
                        let refusal = self.proxy.waited_too_long(arrived).body().into_bytes();
                        let reply = lines::assemble(&line, self.proxy.limits.reply, vec![refusal]);
                        reply.into_iter().for_each(|reply| self.out.send(reply));
                    }
                    continue;
                }
                () = self.out.at_most(MAX_UNREAD / 2 - 1), if !input_ended && is_full => continue,
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
                            if self.origin.stream.as_ref().is_some_and(|stream| stream.presence() == Presence::Gone) {
                                self.out.lose();
                            }
                        }
                        Ok(read) => input.commit(read),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => self.out.lose(),
                    }
                }
            }
            while let Some(event) = input.next_event() {
                match event {
                    // What needs no turn is answered at once.
                    Event::Line(line) => match lines::requests(line, self.proxy.limits.reply) {
                        Ok(requests) => {
                            waiting.push_back(Asked { line: line.to_vec(), requests, arrived: Instant::now() });
                        }
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

    /// Cancels the running call.
    async fn give_up(&self, working: Option<Working<'_>>, end: End) -> End {
        self.cancel.send_replace(true);
        if let Some(working) = working {
            working.await;
        }
        end
    }

    fn calling(&self, arrived: Instant) -> Calling {
        let (out, limit) = (self.out.clone(), self.proxy.limits.reply);
        Calling {
            log: Arc::new(move |line: &str| send_log(&out, line, limit)),
            gone: self.cancel.subscribe(),
            stream: self.origin.stream.clone(),
            ticket: self.origin.ticket.clone(),
            arrived,
        }
    }
}

/// Does what a line asks for.
async fn work(seat: Arc<Seat>, asked: Asked, calling: Calling, limit: usize) -> Done {
    let Asked { line, requests, .. } = asked;
    let mut bodies: Vec<Vec<u8>> = Vec::with_capacity(requests.len());
    let mut shut = false;
    for request in requests {
        if bodies.iter().map(Vec::len).sum::<usize>() > limit {
            // Nobody would hear what came of it.
            let text = format!("the replies to the batch are longer than {limit} bytes");
            bodies.push(lines::refusal_body(rpc::INTERNAL_ERROR, &text).into_bytes());
            continue;
        }
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
        return Err(refusal(rpc::METHOD_NOT_FOUND, format!("Unknown method: {}", cut(method, 64))));
    }
    // It is part of a line that was checked.
    let params = Json::parse(params.as_bytes()).map_err(|error| Refusal::internal(error.to_string()))?;
    // JSON-RPC 2.0 §4.2 also allows arrays. Only methods without parameters accept one.
    let fits =
        matches!(params.kind(), Kind::Object | Kind::Null) || params.kind() == Kind::Array && method == "shutdown";
    if !fits {
        return Err(refusal(rpc::INVALID_PARAMS, "params: expected an object".to_owned()));
    }
    match method.as_str() {
        "initialize" => seat.proxy.initialize(params, seat, calling).await.map(|manifest| manifest.to_string()),
        "execute" => seat.proxy.execute(params, seat, calling).await,
        _ => {
            seat.leave();
            *shut = true;
            Ok("{}".to_owned())
        }
    }
}

/// Sends a log line without its newline. A line that is too long is shortened. Lines that the caller does not read in
/// time are dropped and counted.
fn send_log(out: &Output, line: &str, limit: usize) {
    let mut line = format!("{line}\n").into_bytes();
    if line.len() > limit + 1
        && let Some(short) = log::shortened(&line, limit)
    {
        line = short;
    }
    if line.len() > limit + 1 { out.drop_log() } else { out.log(line, dropped_logs) }
}

fn dropped_logs(count: u64) -> Vec<u8> {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{{\"level\":\"warn\",\
         \"message\":\"{count} logs were dropped\",\"data\":{{\"dropped\":{count}}}}}}}\n"
    )
    .into_bytes()
}
