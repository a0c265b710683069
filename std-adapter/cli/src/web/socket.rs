//! A line server's streams, carried by a WebSocket: one text frame a line.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use rigline::json::check::check;
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_util::sync::CancellationToken;

use super::clients::Told;

/// The longest accepted frame, in bytes: 16 MiB. A longer frame ends the connection. A line that
/// exceeds only the limit of the line server gets an error reply.
pub const FRAME_LIMIT: usize = 16 << 20;
/// The time after which a silent client is given up as lost. In this time it is pinged three times.
pub const SILENCE: Duration = Duration::from_secs(30);

/// The most bytes on the way between socket and server.
pub(super) const IN_FLIGHT: usize = 64 << 10;
/// While this many bytes wait for the server, no more is read.
const AHEAD: usize = 1 << 20;
/// The time that a client has to read the frame that closes the connection.
const GOODBYE: Duration = Duration::from_secs(1);
/// A frame of several lines takes no further line beyond this, in bytes.
const JOINED: usize = 32 << 10;
/// The longest reason that fits a closing frame (RFC 6455 §5.5: 125 bytes, two of them the code).
const LONGEST_REASON: usize = 123;

/// A client's wishes beside its own lines.
#[derive(Default)]
pub(super) struct Wants {
    /// The state of the messages about other clients. `None` if the page does not want any.
    pub told: Option<Told>,
    /// Whether lines that wait already are sent in one frame, with a newline between them.
    pub joins_lines: bool,
}

/// Why a connection is closed.
#[derive(Debug, Clone)]
pub(super) struct Closing {
    code: u16,
    reason: String,
}

impl Closing {
    pub(super) fn new(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into().replace(['\r', '\n'], " ");
        if reason.len() > LONGEST_REASON {
            let most = LONGEST_REASON - '…'.len_utf8();
            let end = (0..=most).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or_default();
            reason.truncate(end);
            reason.push('…');
        }
        Self { code, reason }
    }
}

/// A handshake with our limits. A client that will be refused is not read from for long.
pub(super) fn limited(upgrade: WebSocketUpgrade, is_known: bool) -> WebSocketUpgrade {
    let limit = if is_known { FRAME_LIMIT } else { 4 << 10 };
    upgrade.max_message_size(limit).max_frame_size(limit).write_buffer_size(0)
}

/// Says why, and closes the connection.
pub(super) async fn close(mut socket: WebSocket, closing: &Closing) {
    let frame = CloseFrame { code: closing.code, reason: closing.reason.as_str().into() };
    let goodbye = async {
        if socket.send(Message::Close(Some(frame))).await.is_ok() {
            // What is still on its way is read and dropped: a reset would take the reason with it.
            while let Some(Ok(_)) = socket.recv().await {}
        }
    };
    let _ = timeout(GOODBYE, goodbye).await;
}

/// Has `serve` serve the client, with what it `wants` beside its own lines, until the client is gone, `gone` reports that the device is gone, or the server stops. `serve` gets a
/// pair of streams and a token that is cancelled when the client is lost, and gives why it has ended, if that needs saying.
pub(super) async fn carry<F>(
    socket: WebSocket,
    wants: Wants,
    gone: watch::Receiver<String>,
    stop: CancellationToken,
    serve: impl FnOnce(ReadHalf<DuplexStream>, WriteHalf<DuplexStream>, CancellationToken) -> F,
) where
    F: Future<Output = Option<Closing>>,
{
    let (ours, theirs) = duplex(IN_FLIGHT);
    let (reader, writer) = split(theirs);
    let (lost, ended) = (CancellationToken::new(), CancellationToken::new());
    let why = OnceLock::new();
    let served = async {
        if let Some(closing) = serve(reader, writer, lost.clone()).await {
            let _ = why.set(closing);
        }
        ended.cancel();
    };
    let carried = async {
        let mut carrier = Carrier::new(socket, ours);
        carrier.joins_lines = wants.joins_lines;
        let closing = carrier.run(wants.told, gone, stop, &ended, &why).await;
        lost.cancel();
        let Carrier { socket, .. } = carrier;
        if let Some(closing) = closing {
            close(socket, &closing).await;
        }
    };
    tokio::join!(served, carried);
}

struct Carrier {
    socket: WebSocket,
    to_server: WriteHalf<DuplexStream>,
    from_server: BufReader<ReadHalf<DuplexStream>>,
    /// Lines that the server has not taken yet, and how many of their bytes it has.
    arrived: Vec<u8>,
    taken: usize,
    /// The part of a line to the client that was written.
    line: Vec<u8>,
    heard: Instant,
    has_answered: bool,
    joins_lines: bool,
}

impl Carrier {
    fn new(socket: WebSocket, stream: DuplexStream) -> Self {
        let (reader, to_server) = split(stream);
        Self {
            socket,
            to_server,
            from_server: BufReader::new(reader),
            arrived: Vec::new(),
            taken: 0,
            line: Vec::new(),
            heard: Instant::now(),
            has_answered: false,
            joins_lines: false,
        }
    }

    /// Forwards lines in both directions. Returns the reason for closing the connection, or nothing if
    /// it is closed already.
    async fn run(
        &mut self,
        mut told: Option<Told>,
        mut gone: watch::Receiver<String>,
        stop: CancellationToken,
        ended: &CancellationToken,
        why: &OnceLock<Closing>,
    ) -> Option<Closing> {
        let mut loss: Option<String> = None;
        let mut ticks = interval_at(Instant::now() + SILENCE / 3, SILENCE / 3);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let waiting = self.arrived.len() - self.taken;
            // That a client is gone is seen by reading only.
            let may_read = waiting < AHEAD;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Some(Closing::new(1001, "the server stops")),
                // Replies to pending calls, with their errors, are sent before the end. A client without a session gets
                // the reason when it asks for one.
                Ok(()) = gone.changed(), if loss.is_none() => {
                    if self.has_answered {
                        let _ = self.to_server.shutdown().await;
                        loss = Some(gone.borrow_and_update().clone());
                        self.arrived.clear();
                        self.taken = 0;
                    }
                }
                // Before the lines of the session: a call that has had its turn is reported before it is answered.
                line = async { match &mut told { Some(told) => told.next().await, None => std::future::pending().await } } => {
                    if timeout(SILENCE, self.socket.send(Message::Text(line.into()))).await.is_ok_and(|sent| sent.is_ok()) {
                        continue;
                    }
                    return None;
                }
                read = self.from_server.read_until(b'\n', &mut self.line) => {
                    if !matches!(read, Ok(1..)) {
                        if let Some(loss) = loss {
                            return Some(Closing::new(4410, loss));
                        }
                        // The server has closed its stream, and says why at once.
                        let _ = timeout(GOODBYE, ended.cancelled()).await;
                        let given_up = || Closing::new(4408, "the connection was closed: the client read nothing for 10 s");
                        return Some(why.get().cloned().unwrap_or_else(given_up));
                    }
                    if !self.pass_on(ended).await {
                        return None;
                    }
                }
                written = self.to_server.write(self.arrived.get(self.taken..).unwrap_or_default()), if waiting > 0 => {
                    match written {
                        Ok(count @ 1..) => self.taken += count,
                        // It takes no more.
                        _ => self.taken = self.arrived.len(),
                    }
                    if self.taken == self.arrived.len() {
                        (self.arrived, self.taken) = (Vec::new(), 0);
                    } else if self.taken > AHEAD {
                        self.arrived.drain(..std::mem::take(&mut self.taken));
                    }
                }
                frame = self.socket.recv(), if may_read => match self.take(frame, loss.is_some()) {
                    Ok(()) => {}
                    Err(closing) => return closing,
                },
                _ = ticks.tick() => {
                    // What waits for the server keeps frames from being read.
                    if !may_read {
                        self.heard = Instant::now();
                    } else if self.heard.elapsed() > SILENCE {
                        let text = format!("the connection was closed: the client sent nothing for {} s", SILENCE.as_secs());
                        return Some(Closing::new(4408, text));
                    }
                    if timeout(SILENCE, self.socket.send(Message::Ping(Vec::new().into()))).await.is_err() {
                        return None;
                    }
                }
            }
        }
    }

    /// Sends the client a line, with those that wait behind it if it takes several; returns whether more can be sent.
    async fn pass_on(&mut self, ended: &CancellationToken) -> bool {
        if self.line.pop_if(|byte| *byte == b'\n').is_none() && self.line.is_empty() {
            return true;
        }
        let mut text = match String::from_utf8(std::mem::take(&mut self.line)) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        while self.joins_lines && text.len() < JOINED {
            let waiting = self.from_server.buffer();
            let Some(end) = waiting.iter().position(|byte| *byte == b'\n') else { break };
            let (line, taken) = (&waiting[..end], end + 1);
            if !line.is_empty() {
                text.push('\n');
                text.push_str(&String::from_utf8_lossy(line));
            }
            self.from_server.consume(taken);
        }
        self.has_answered = true;
        tokio::select! {
            sent = self.socket.send(Message::Text(text.into())) => sent.is_ok(),
            // The server has given up on a client that does not read.
            () = async { ended.cancelled().await; tokio::time::sleep(GOODBYE).await } => false,
        }
    }

    /// Handles a frame. With `Err`, the connection is closed with this frame.
    fn take(&mut self, frame: Option<Result<Message, axum::Error>>, is_over: bool) -> Result<(), Option<Closing>> {
        self.heard = Instant::now();
        match frame {
            Some(Ok(Message::Text(_))) if is_over => Ok(()),
            Some(Ok(Message::Text(text))) => {
                self.arrived.extend_from_slice(&line_of(&text));
                Ok(())
            }
            Some(Ok(Message::Binary(_))) => {
                Err(Some(Closing::new(1003, "binary frames are not understood: send one line of JSON as a text frame")))
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            // RFC 6455 §7.4.1 has these codes.
            Some(Err(error)) => Err(match error.into_inner().downcast::<SocketError>().as_deref() {
                Ok(SocketError::Capacity(_)) => {
                    Some(Closing::new(1009, format!("the frame is too long: the limit is {FRAME_LIMIT} bytes")))
                }
                Ok(SocketError::Utf8(_)) => Some(Closing::new(1007, "the frame is not UTF-8")),
                Ok(SocketError::Protocol(fault)) => Some(Closing::new(1002, fault.to_string())),
                _ => None,
            }),
            Some(Ok(Message::Close(_))) | None => Err(None),
        }
    }
}

/// The line that a frame is. A frame is one line whatever stands in it: line ends between the tokens of a JSON text become spaces, and
/// those in any other text become a byte that JSON has nowhere, so that the text gets one error.
fn line_of(text: &str) -> Vec<u8> {
    const NOWHERE: u8 = 0x0B;
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend_from_slice(text.as_bytes());
    if line.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let instead = if check(&line).is_ok() { b' ' } else { NOWHERE };
        for byte in &mut line {
            if matches!(byte, b'\n' | b'\r') {
                *byte = instead;
            }
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_line_whatever_stands_in_it() {
        for (text, line) in [
            ("{}", &b"{}\n"[..]),
            ("{\r\n  \"a\": 1\n}", b"{    \"a\": 1 }\n"),
            ("{\"a\": \"1\n2\"}", b"{\"a\": \"1\x0B2\"}\n"),
            ("{}\n{}", b"{}\x0B{}\n"),
            ("", b"\n"),
        ] {
            assert_eq!(line_of(text), line, "{text:?}");
        }
    }

    #[test]
    fn reasons_fit_a_frame() {
        assert_eq!(Closing::new(4410, "a\nb").reason, "a b");
        let long = Closing::new(4410, "ä".repeat(100)).reason;
        assert!(long.len() <= 123 && long.ends_with("ä…"), "{}", long.len());
    }
}
