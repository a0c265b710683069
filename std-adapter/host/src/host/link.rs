//! The host's half of the binary link ([`rigline::link`]): lines on one side, checked frames on the other.
//!
//! The session above sees a stream of lines, as from any other wire. A request goes as one frame, and again until it is
//! answered; the device runs it once all the same. Requests go one at a time.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use rigline::json::Json;
use rigline::link::{Collected, Collector, Frame, FrameKind, encode, encoded_size};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::transport::{Connect, Connecting, Reader, TransportTraits, Writer};
use rigline_std::mutex::lock;

/// How long the device is silent before a hello, or a request, is sent again.
const HELLO_AGAIN: Duration = Duration::from_millis(300);
const REQUEST_AGAIN: Duration = Duration::from_secs(1);
/// The time that an abandoned connection has to send its cancellation.
const LETTING_GO: Duration = Duration::from_millis(500);
/// The least time between two of the same: a wire that damages everything is not to be flooded.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// Opens another dialer's connections, and uses the binary link on them.
pub(super) struct LinkDialer {
    pub(super) inner: Box<dyn Connect>,
    /// The longest line from the device, in bytes.
    pub(super) line_limit: usize,
    /// How fast the wire is, in bytes a second.
    pub(super) speed: u32,
    /// The last connection: it lets go of the wire before another one is made.
    pub(super) last: Mutex<Option<JoinHandle<()>>>,
}

impl Connect for LinkDialer {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let last = lock(&self.last).take();
            if let Some(mut last) = last
                && timeout(LETTING_GO, &mut last).await.is_err()
            {
                last.abort();
            }
            let mut wire = self.inner.dial().await?;
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let (reader, writer) = tokio::io::split(ours);
            let (lines, out) = tokio::io::split(theirs);
            let link = Link {
                reader: std::mem::replace(&mut wire.reader, Box::new(reader)),
                writer: std::mem::replace(&mut wire.writer, Box::new(writer)),
                out: Box::new(out),
                line_limit: self.line_limit,
                speed: self.speed.max(1),
                session: 0,
                sequence: 0,
                waits: None,
            };
            let running = tokio::spawn(link.run(Box::new(lines)));
            *lock(&self.last) = Some(running);
            // The link repeats what is lost, and a new session number keeps old replies away.
            wire.traits = TransportTraits::CHILD;
            Ok(wire)
        })
    }
}

struct Link {
    reader: Reader,
    writer: Writer,
    /// Lines to the session above.
    out: Writer,
    line_limit: usize,
    speed: u32,
    session: u32,
    sequence: u32,
    /// The frame that is sent until it is answered; none while there is a session and nothing is out.
    waits: Option<Waits>,
}

struct Waits {
    /// The request's line; none for a hello.
    line: Option<Vec<u8>>,
    frame: Vec<u8>,
    sent: Instant,
    again: Instant,
}

/// How many requests, and how many bytes of them, wait for the one that is out. The host waits with further ones.
const QUEUE: usize = 1024;
const QUEUE_BYTES: usize = 16 << 20;

fn has_room(queue: &VecDeque<Vec<u8>>) -> bool {
    queue.len() < QUEUE && queue.iter().map(Vec::len).sum::<usize>() < QUEUE_BYTES
}

/// The link is over: the connection failed, or the session has ended.
struct Over;

impl Link {
    async fn run(mut self, lines: Reader) {
        let mut lines = BufReader::new(lines);
        let mut memory = vec![0; encoded_size(self.line_limit)];
        let mut collector = Collector::new(&mut memory);
        let mut chunk = vec![0; 4096];
        let (mut line, mut queue, mut ended) = (Vec::new(), VecDeque::new(), false);
        // What line noise left on the way is ended first.
        let mut result = self.write(&[0]).await;
        if result.is_ok() {
            result = self.hello().await;
        }
        while result.is_ok() {
            if self.waits.is_none() {
                match queue.pop_front() {
                    Some(line) => {
                        result = self.request(line).await;
                        continue;
                    }
                    None if ended => break,
                    None => {}
                }
            }
            let again = self.waits.as_ref().map(|waits| waits.again);
            tokio::select! {
                read = self.reader.read(&mut chunk) => match read {
                    Ok(read) if read > 0 => {
                        for byte in chunk.get(..read).unwrap_or_default() {
                            if let Some(collected) = collector.push(*byte) {
                                result = self.take(collected).await;
                                if result.is_err() {
                                    break;
                                }
                            }
                        }
                    }
                    _ => break,
                },
                read = lines.read_until(b'\n', &mut line), if !ended && has_room(&queue) => {
                    ended = !matches!(read, Ok(read) if read > 0);
                    let text = line.trim_ascii();
                    if !text.is_empty() {
                        queue.push_back(text.to_vec());
                    }
                    line.clear();
                    if ended && self.waits.as_ref().is_some_and(|waits| waits.line.is_some()) {
                        // Its caller does not wait any more.
                        let _ = timeout(LEAST_PAUSE * 10, self.send(FrameKind::Cancel, self.sequence, b"")).await;
                        break;
                    }
                }
                () = async { match again { Some(again) => sleep_until(again).await, None => std::future::pending().await } } => {
                    result = self.repeat().await;
                }
            }
        }
        let _ = self.out.shutdown().await;
    }

    async fn take(&mut self, collected: Collected<'_>) -> Result<(), Over> {
        let Frame { kind, sequence, payload } = match collected {
            Collected::Frame(frame) => frame,
            Collected::TooLong => {
                let limit = self.line_limit;
                return self.fail(-32603, &format!("the device's reply is longer than {limit} bytes")).await;
            }
            // It may have been the reply.
            _ => return self.hurry().await,
        };
        let hello_is_out = self.waits.as_ref().is_some_and(|waits| waits.line.is_none());
        match kind {
            FrameKind::Hello if hello_is_out && sequence == self.session => self.waits = None,
            // Until then everything is an earlier session's.
            _ if hello_is_out => {}
            FrameKind::Reply if sequence == self.sequence && self.waits.is_some() => {
                self.waits = None;
                if !payload.is_empty() {
                    self.up(payload).await?;
                }
            }
            FrameKind::Log => self.up(payload).await?,
            FrameKind::Damaged => self.hurry().await?,
            FrameKind::Unknown if sequence == self.sequence && self.waits.is_some() => {
                self.fail(-32000, "the device was reset; whether the request ran is not known").await?;
                self.hello().await?;
            }
            FrameKind::TooLong if self.waits.is_some() => {
                self.fail(-32603, &format!("request too large: the device accepts {sequence} bytes")).await?;
                // It never had it.
                self.sequence = self.sequence.wrapping_sub(1);
            }
            _ => {}
        }
        Ok(())
    }

    /// Opens a session of the link.
    async fn hello(&mut self) -> Result<(), Over> {
        let random = RandomState::new().hash_one(SystemTime::now());
        self.session = u32::try_from(random >> 32).unwrap_or_default().max(1);
        self.sequence = 0;
        let frame = frame(FrameKind::Hello, self.session, b"");
        self.begin(None, frame).await
    }

    async fn request(&mut self, line: Vec<u8>) -> Result<(), Over> {
        self.sequence = self.sequence.wrapping_add(1);
        let frame = frame(FrameKind::Request, self.sequence, &line);
        self.begin(Some(line), frame).await
    }

    async fn begin(&mut self, line: Option<Vec<u8>>, frame: Vec<u8>) -> Result<(), Over> {
        self.write(&frame).await?;
        let now = Instant::now();
        let again = now + self.pause(&frame, line.is_some());
        self.waits = Some(Waits { line, frame, sent: now, again });
        Ok(())
    }

    /// How long to wait before something is sent again: its own way takes time too.
    fn pause(&self, frame: &[u8], is_request: bool) -> Duration {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let way = Duration::from_secs_f64(2.0 * f64::from(length) / f64::from(self.speed));
        way + if is_request { REQUEST_AGAIN } else { HELLO_AGAIN }
    }

    async fn repeat(&mut self) -> Result<(), Over> {
        let Some(waits) = self.waits.take() else { return Ok(()) };
        self.begin(waits.line, waits.frame).await
    }

    /// Something was damaged: what is out is sent again soon.
    async fn hurry(&mut self) -> Result<(), Over> {
        match &self.waits {
            Some(waits) if waits.sent.elapsed() >= LEAST_PAUSE => self.repeat().await,
            _ => Ok(()),
        }
    }

    /// Answers the request that is out in the device's place.
    async fn fail(&mut self, code: i32, message: &str) -> Result<(), Over> {
        let Some(line) = self.waits.take_if(|waits| waits.line.is_some()).and_then(|waits| waits.line) else {
            return Ok(());
        };
        let id = Json::parse(&line).ok().and_then(|request| request.get("id")).map_or("null", |id| id.as_str());
        let error = json!({ "code": code, "message": message });
        self.up(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").as_bytes()).await
    }

    async fn up(&mut self, line: &[u8]) -> Result<(), Over> {
        let line = [line, b"\n"].concat();
        self.out.write_all(&line).await.map_err(|_| Over)
    }

    async fn send(&mut self, kind: FrameKind, sequence: u32, payload: &[u8]) -> Result<(), Over> {
        self.write(&frame(kind, sequence, payload)).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Over> {
        self.writer.write_all(bytes).await.map_err(|_| Over)?;
        self.writer.flush().await.map_err(|_| Over)
    }
}

fn frame(kind: FrameKind, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut memory = vec![0; encoded_size(payload.len())];
    let length = encode(&Frame { kind, sequence, payload }, &mut memory).unwrap_or_default();
    memory.truncate(length);
    memory
}
