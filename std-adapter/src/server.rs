//! Serves an extension over any pair of streams: for transports that this crate does not have.
//!
//! [`stdio`](crate::stdio), `http` and `tcp` are built on it.
//!
//! ```
//! use rigline::{Context, Failure, Outcome};
//! use rigline::protocol::{AMPLIFIER, GEVALS};
//! use rigline_std::server::Server;
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
//! Server::new(&mut Greeter)
//!     .protocols(&[AMPLIFIER, GEVALS])
//!     .request_limit(64 << 10)
//!     .serve(requests, &mut replies)
//!     .await?;
//! assert_eq!(replies, b"{\"ok\":true,\"result\":{\"message\":\"hello\"}}\n");
//! # Ok(())
//! # }
//! ```

use std::error::Error;
use std::fmt;
use std::future::{Future, Pending, pending};
use std::io;
use std::pin::pin;

use embedded_io_adapters::tokio_1::FromTokio;
use embedded_io_async::{Read, Write};
use rigline::Extension;
use rigline::engine::{Engine, LEAST_REPLY, Memory, TooSmall};
use rigline::protocol::{self, Protocol};
use rigline::serve::{End, ServeError, Transport, asynch};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::clock::TokioClock;

/// How an extension is served. See the [module](self).
#[must_use]
pub struct Server<'a, E, S = Pending<()>> {
    extension: &'a mut E,
    protocols: &'a [&'static Protocol],
    protocol: Option<&'static Protocol>,
    transport: Transport,
    request_limit: usize,
    reply_limit: usize,
    json_rpc_limit: Option<usize>,
    log_buffer: usize,
    clock: TokioClock,
    stop: S,
    send_log: &'a dyn Fn(&[u8]) -> bool,
    keeps_outputs: bool,
    ends_calls: bool,
    pauses: Option<&'a Pauses<'a>>,
}

/// Whether the end of input was a pause, in which the safe state is brought about; and where the log goes that says so.
pub(crate) struct Pauses<'a> {
    pub(crate) is_pause: &'a dyn Fn() -> bool,
    pub(crate) tell: &'a dyn Fn(&[u8]),
}

/// The reason why serving failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError<E> {
    /// A limit is too small for this extension.
    Limit(TooSmall),
    /// The transport failed.
    Transport(ServeError<E>),
}

impl<'a, E: Extension> Server<'a, E> {
    /// Serves `extension` in all protocols, with requests and replies of up to 8 MiB, on streams that end with the session.
    pub fn new(extension: &'a mut E) -> Self {
        Self {
            extension,
            protocols: protocol::ALL,
            protocol: None,
            transport: Transport::Stdio,
            request_limit: 8 << 20,
            reply_limit: 8 << 20,
            json_rpc_limit: None,
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

impl<'a, E: Extension, S: Future<Output = ()>> Server<'a, E, S> {
    /// The supported protocols. Each line selects one of them; a line that selects none belongs to the first.
    pub fn protocols(self, protocols: &'a [&'static Protocol]) -> Self {
        Self { protocols, ..self }
    }

    /// The one protocol of all lines, if there is to be one.
    pub fn protocol(self, protocol: Option<&'static Protocol>) -> Self {
        Self { protocol, ..self }
    }

    /// The meaning of the end of the streams [default: [`Transport::Stdio`]].
    pub fn transport(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// The longest request, in bytes without the end of its line [default: 8 MiB].
    pub fn request_limit(self, bytes: usize) -> Self {
        Self { request_limit: bytes, ..self }
    }

    /// The longest reply, in bytes without its newline [default: 8 MiB; at least that of [`LEAST_REPLY`]].
    pub fn reply_limit(self, bytes: usize) -> Self {
        Self { reply_limit: bytes.max(LEAST_REPLY - 1), ..self }
    }

    /// A lower limit on the lines of JSON-RPC protocols, which real hosts read up to a length only.
    pub fn json_rpc_limit(self, bytes: usize) -> Self {
        Self { json_rpc_limit: Some(bytes), ..self }
    }

    /// Memory for log lines that the transport has not accepted yet, in bytes [default: 8 MiB]. Lines that do not fit are dropped as
    /// a whole, and counted.
    pub fn log_buffer(self, bytes: usize) -> Self {
        Self { log_buffer: bytes, ..self }
    }

    /// The clock, for an extension that has one too.
    pub fn clock(self, clock: &TokioClock) -> Self {
        Self { clock: clock.clone(), ..self }
    }

    /// Ends serving when `stop` is ready: the call that runs is cancelled, and the safe state is brought about.
    pub fn stop<N: Future<Output = ()>>(self, stop: N) -> Server<'a, E, N> {
        let Self { extension, protocols, protocol, transport, request_limit, reply_limit, .. } = self;
        let Self { json_rpc_limit, log_buffer, clock, send_log, keeps_outputs, ends_calls, pauses, .. } = self;
        Server {
            extension,
            protocols,
            protocol,
            transport,
            request_limit,
            reply_limit,
            json_rpc_limit,
            log_buffer,
            clock,
            stop,
            send_log,
            keeps_outputs,
            ends_calls,
            pauses,
        }
    }

    /// Whether the end or the loss of a session leaves everything as it is [default: no]. A call that is cut off still has its safe
    /// state.
    pub fn keep_outputs(self, keep: bool) -> Self {
        Self { keeps_outputs: keep, ..self }
    }

    /// Whether a call of a session that began with `initialize` is cut off four seconds after the end of input, with its safe state
    /// [default: yes].
    pub fn end_of_input_ends_calls(self, ends: bool) -> Self {
        Self { ends_calls: ends, ..self }
    }

    /// How the end of input may be a pause [default: never].
    pub(crate) fn pauses(self, pauses: &'a Pauses<'a>) -> Self {
        Self { pauses: Some(pauses), ..self }
    }

    /// Passes each log line to this function first, so that the line is sent while the handler still runs. Lines for
    /// which it returns false go through the log buffer.
    pub fn send_log(self, send_log: &'a dyn Fn(&[u8]) -> bool) -> Self {
        Self { send_log, ..self }
    }

    /// As [`serve`](Self::serve), over streams of tokio, such as the halves of a `TcpStream`.
    ///
    /// Access is not restricted: see [`net`](crate::net) and `tcp` for servers that check who connects.
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

    /// Serves until the session or the streams end, in a tokio runtime.
    ///
    /// # Errors
    /// A limit is too small for this extension, or a stream failed.
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
        if let Some(limit) = self.json_rpc_limit {
            engine = engine.with_json_rpc_limit(limit);
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
                Ok(End::Input) => {
                    if engine.disconnect() && !self.keeps_outputs {
                        self.clock.drive(self.extension.safe_state()).await;
                    }
                    return Ok(End::Input);
                }
                end => return end.map_err(ServerError::Transport),
            }
            // The session goes on, and hears what was done: at once, and in its next reply.
            let session = *engine.session();
            if session.is_touched() && session.protocol().has_safe_end() {
                self.clock.drive(self.extension.safe_state()).await;
                engine.was_made_safe();
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

impl<E, S> fmt::Debug for Server<'_, E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
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
