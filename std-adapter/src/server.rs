//! Serves an extension over any pair of streams: for transports that this crate does not have.
//!
//! [`stdio`](crate::stdio), `http` and `tcp` are built on it.
//!
//! ```
//! use rigline::{Context, Failure, Outcome};
//! use rigline::protocol::{AMPLIFIER, GEVALS};
//! use rigline_std::server::StreamServer;
//!
//! struct Greeter;
//!
//! #[rigline::extension(name = "greeter", version = "1.0.0", description = "Says hello")]
//! impl Greeter {
//!     /// Say hello.
//!     #[operation]
//!     fn hello(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
//!         cx.done("hello")
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (requests, mut replies) = (&b"{\"op\":\"hello\",\"args\":{}}\n"[..], Vec::new());
//! StreamServer::new(&mut Greeter)
//!     .protocols(&[AMPLIFIER, GEVALS])
//!     .request_limit(64 << 10)
//!     .serve(requests, &mut replies)
//!     .await?;
//! assert_eq!(replies, b"{\"ok\":true,\"result\":{\"message\":\"hello\"}}\n");
//! # Ok(())
//! # }
//! ```

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::future::{Future, Pending, pending};
use std::io;
use std::pin::pin;

use embedded_io_adapters::tokio_1::FromTokio;
use embedded_io_async::{Read, Write};
use rigline::Extension;
use rigline::protocol::{self, Protocol};
use rigline::serve::{End, ServeError, Transport, asynch};
use rigline::{
    engine::{Engine, Memory, TooSmall},
    exchange::LEAST_REPLY,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::clock::TokioClock;

/// A server for one extension and one pair of streams, with its settings. See the [module](self).
#[must_use]
pub struct StreamServer<'a, E, S = Pending<()>> {
    extension: &'a mut E,
    protocols: &'a [&'static Protocol],
    protocol: Option<&'static Protocol>,
    transport: Transport,
    request_limit: usize,
    reply_limit: usize,
    host_line_limit: Option<usize>,
    log_buffer: usize,
    clock: TokioClock,
    stop: S,
    send_log: &'a dyn Fn(&[u8]) -> bool,
    keeps_outputs: bool,
    ends_calls: bool,
    pauses: Option<&'a Pauses<'a>>,
}

/// Whether the end of input was a pause, in which the safe state is brought about; and where the
/// log goes that says so.
pub(crate) struct Pauses<'a> {
    pub(crate) is_pause: &'a dyn Fn() -> bool,
    pub(crate) tell: &'a dyn Fn(&[u8]),
    /// Whether the input ended only for the same client to be served anew, and loses nothing.
    pub(crate) is_renewal: &'a dyn Fn() -> bool,
    /// Whether the client may have switched something on before it was served anew.
    pub(crate) is_touched_before: &'a Cell<bool>,
}

/// The reason why serving failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError<E> {
    /// A limit is too small for the extension.
    Limit(TooSmall),
    /// A stream returned an error.
    Transport(ServeError<E>),
}

impl<'a, E: Extension> StreamServer<'a, E> {
    /// A server for `extension` in all protocols, with requests and replies of up to 8 MiB, on
    /// streams that end with the session.
    pub fn new(extension: &'a mut E) -> Self {
        Self {
            extension,
            protocols: protocol::ALL,
            protocol: None,
            transport: Transport::Stdio,
            request_limit: 8 << 20,
            reply_limit: 8 << 20,
            host_line_limit: None,
            log_buffer: 8 << 20,
            clock: TokioClock::new(),
            stop: pending(),
            send_log: &|_| false,
            keeps_outputs: false,
            ends_calls: true,
            pauses: None,
        }
    }
}

impl<'a, E: Extension, S: Future<Output = ()>> StreamServer<'a, E, S> {
    /// Sets the protocols. Each line selects one of them by its members. A line that selects none
    /// belongs to the first one.
    pub fn protocols(self, protocols: &'a [&'static Protocol]) -> Self {
        Self { protocols, ..self }
    }

    /// Sets the only protocol of all lines. With none, it is detected for each line.
    pub fn protocol(self, protocol: Option<&'static Protocol>) -> Self {
        Self { protocol, ..self }
    }

    /// Sets the kind of streams, which decides what the end of input and `shutdown` mean [default:
    /// [`Transport::Stdio`]].
    pub fn transport(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// Sets the greatest length of a request, in bytes without its line end [default: 8 MiB].
    pub fn request_limit(self, bytes: usize) -> Self {
        Self { request_limit: bytes, ..self }
    }

    /// Sets the greatest length of a reply, in bytes without its newline [default: 8 MiB]. It is at
    /// least that of [`LEAST_REPLY`].
    pub fn reply_limit(self, bytes: usize) -> Self {
        Self { reply_limit: bytes.max(LEAST_REPLY - 1), ..self }
    }

    /// Sets a lower limit on replies in gevals, in bytes without the newline, because its hosts read
    /// lines of at most 65,535 bytes. See
    /// [`Engine::with_host_line_limit`](rigline::engine::Engine::with_host_line_limit). Replies to
    /// batches keep to it in every protocol; all others have only the
    /// [`reply_limit`](Self::reply_limit).
    pub fn host_line_limit(self, bytes: usize) -> Self {
        Self { host_line_limit: Some(bytes), ..self }
    }

    /// Sets the memory for log lines that the transport has not accepted yet, in bytes [default: 8
    /// MiB]. Lines that do not fit are dropped as a whole, and their number is reported.
    pub fn log_buffer(self, bytes: usize) -> Self {
        Self { log_buffer: bytes, ..self }
    }

    /// Sets the clock, for an extension that uses the same one.
    pub fn clock(self, clock: &TokioClock) -> Self {
        Self { clock: clock.clone(), ..self }
    }

    /// Sets a future that ends serving when it is ready. The call that runs is cancelled, and the
    /// safe state runs.
    pub fn stop<N: Future<Output = ()>>(self, stop: N) -> StreamServer<'a, E, N> {
        let Self { extension, protocols, protocol, transport, request_limit, reply_limit, .. } = self;
        let Self { host_line_limit, log_buffer, clock, send_log, keeps_outputs, ends_calls, pauses, .. } = self;
        StreamServer {
            extension,
            protocols,
            protocol,
            transport,
            request_limit,
            reply_limit,
            host_line_limit,
            log_buffer,
            clock,
            stop,
            send_log,
            keeps_outputs,
            ends_calls,
            pauses,
        }
    }

    /// Sets whether the outputs of the hardware stay as they are when a session ends or is lost
    /// [default: no]. After a call that is cancelled or late, the safe state runs nevertheless.
    pub fn keep_outputs(self, keep: bool) -> Self {
        Self { keeps_outputs: keep, ..self }
    }

    /// Sets whether a call of a session that began with `initialize` is cancelled four seconds
    /// after the end of input [default: yes]. The safe state then runs.
    pub fn end_of_input_ends_calls(self, ends: bool) -> Self {
        Self { ends_calls: ends, ..self }
    }

    /// How the end of input may be a pause [default: never].
    pub(crate) fn pauses(self, pauses: &'a Pauses<'a>) -> Self {
        Self { pauses: Some(pauses), ..self }
    }

    /// Sets a function that gets each log line first, so that the line is sent while the handler
    /// still runs. If it returns false, the line goes through the log buffer.
    pub fn send_log(self, send_log: &'a dyn Fn(&[u8]) -> bool) -> Self {
        Self { send_log, ..self }
    }

    /// Serves as [`serve`](Self::serve) does, over streams of tokio, such as the halves of a
    /// `TcpStream`.
    ///
    /// Access is not restricted. See [`net`](crate::net) and `tcp` for servers that check who
    /// connects.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub async fn serve_tokio(
        self,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
    ) -> Result<End, ServerError<io::Error>> {
        self.serve(FromTokio::new(reader), FromTokio::new(writer)).await
    }

    /// Serves until the session or the streams end. Call it in a tokio runtime.
    ///
    /// # Errors
    /// A limit is too small for the extension, or a stream returned an error.
    pub async fn serve<R: Read, W: Write<Error = R::Error>>(
        self,
        mut reader: R,
        mut writer: W,
    ) -> Result<End, ServerError<R::Error>> {
        let mut request = vec![0; self.request_limit.saturating_add(1)];
        let mut reply = vec![0; self.reply_limit.saturating_add(1)];
        let mut log = vec![0; self.log_buffer];
        let memory = Memory { request: &mut request, reply: &mut reply };
        let engine = Engine::with_protocols(self.extension.manifest(), memory, self.protocols);
        let mut engine = engine.map_err(ServerError::Limit)?;
        if let Some(limit) = self.host_line_limit {
            engine = engine.with_host_line_limit(limit);
        }
        if let Some(protocol) = self.protocol {
            engine = engine.with_protocol(protocol);
        }
        let mut stop = pin!(self.stop);
        loop {
            let serving = asynch::Server::new(&mut *self.extension, &mut engine, &self.clock)
                .transport(self.transport)
                .log_buffer(&mut log)
                .stop(stop.as_mut())
                .send_log(self.send_log)
                .keep_outputs(self.keeps_outputs)
                .end_of_input_ends_calls(self.ends_calls);
            let Some(pauses) = self.pauses else {
                let serving = serving.serve(&mut reader, &mut writer);
                return self.clock.drive(serving).await.map_err(ServerError::Transport);
            };
            let end = self.clock.drive(serving.serve_part(&mut reader, &mut writer)).await;
            match end {
                Ok(End::Input) if (pauses.is_pause)() => {}
                end => {
                    let is_touched = engine.is_touched() && engine.session().protocol().has_safe_end();
                    let is_input = matches!(end, Ok(End::Input));
                    if is_input && (pauses.is_renewal)() {
                        pauses.is_touched_before.set(is_touched || pauses.is_touched_before.get());
                        return Ok(End::Input);
                    }
                    // The engine is disconnected already at another end.
                    let is_lost = pauses.is_touched_before.take() | (is_input && engine.disconnect());
                    if is_lost && !self.keeps_outputs && !matches!(end, Ok(End::Shutdown)) {
                        self.clock.drive(self.extension.safe_state()).await;
                    }
                    return end.map_err(ServerError::Transport);
                }
            }
            // The session goes on, and hears what was done: at once, and in its next reply.
            let session = *engine.session();
            let is_touched = session.is_touched() | pauses.is_touched_before.take();
            if is_touched && session.protocol().has_safe_end() {
                self.clock.drive(self.extension.safe_state()).await;
                engine.note_made_safe();
                let mut line = vec![0; LEAST_REPLY];
                let length = session.write_made_safe(&mut line);
                if self.extension.manifest().has_safe_state && length > 0 {
                    line.truncate(length);
                    line.push(b'\n');
                    (pauses.tell)(&line);
                }
            }
            engine.resume();
        }
    }
}

impl<E, S> fmt::Debug for StreamServer<'_, E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamServer")
            .field("request_limit", &self.request_limit)
            .field("reply_limit", &self.reply_limit)
            .finish_non_exhaustive()
    }
}

impl<E: fmt::Debug> fmt::Display for ServerError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(error) => error.fmt(f),
            Self::Transport(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> Error for ServerError<E> {}
