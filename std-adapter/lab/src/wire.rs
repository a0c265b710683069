//! A rig's port in the agent's hands: what a holder sends is written while its lease lasts, and what the rig says goes back.
//!
//! Each piece has a number and a time on the clock since the machine's start. One that comes late, out of order, or behind the end of the
//! lease is not written: whatever it was stuck in, the rig hears nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rigline_host::ports::Roots;
use rigline_host::target::Target;
use rigline_host::wire::{self, RawConnection, Reader};
use rigline_host::{HostError, Options};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};

use crate::book::Refusal;
use crate::clock::{self, BootTime};

/// How many bytes of one holder may wait for the rig to take them.
const WAITING: usize = 32 << 20;
/// How many bytes of the rig's are passed on at once.
const PIECE: usize = 32 << 10;
/// How long a port that is busy is waited for.
const CLOSING: Duration = Duration::from_secs(1);
/// How long a program that is the rig has to end.
const TERMINATION: Duration = Duration::from_millis(500);

/// A piece that a holder sends.
#[derive(Debug, Deserialize)]
pub(crate) struct Piece {
    seq: u64,
    until: BootTime,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    /// Bytes that are UTF-8.
    Text(String),
    /// Other bytes.
    Base64(String),
    /// The DTR line.
    Dtr(bool),
    /// To drop what is queued in the port.
    Discard(bool),
    /// The end of what is sent.
    End(bool),
}

/// Pieces for the rig, by which connection they come.
pub(crate) struct Wire {
    /// The lease.
    pub(crate) lease: String,
    next: u64,
    waiting: Arc<AtomicUsize>,
    pieces: mpsc::UnboundedSender<Piece>,
    stop: Option<oneshot::Sender<String>>,
}

impl Wire {
    /// Takes a piece for the rig.
    ///
    /// # Errors
    /// It must not be written, and the wire is to be closed.
    pub(crate) fn send(&mut self, piece: Piece, now: BootTime) -> Result<(), Refusal> {
        if piece.seq != self.next {
            return Err(Refusal::refused(format!("piece {} came where {} was next", piece.seq, self.next)));
        }
        if piece.until < now {
            return Err(Refusal::refused(format!("piece {} came {} ms too late", piece.seq, now - piece.until)));
        }
        let length = piece.what.length();
        if self.waiting.fetch_add(length, Ordering::Relaxed) + length > WAITING {
            return Err(Refusal::refused(format!("more than {WAITING} bytes wait for the rig to take them")));
        }
        self.next += 1;
        // One that has ended has told so itself.
        let _ = self.pieces.send(piece);
        Ok(())
    }

    /// Closes it.
    pub(crate) fn stop(&mut self, why: &str) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(why.to_owned());
        }
    }
}

impl What {
    fn length(&self) -> usize {
        match self {
            Self::Text(text) | Self::Base64(text) => text.len(),
            _ => 0,
        }
    }
}

/// The other half, which has the port.
pub(crate) struct Port {
    waiting: Arc<AtomicUsize>,
    pieces: mpsc::UnboundedReceiver<Piece>,
    stop: oneshot::Receiver<String>,
}

/// Makes both halves.
pub(crate) fn pair(lease: &str) -> (Wire, Port) {
    let (send, pieces) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    let wire = Wire { lease: lease.to_owned(), next: 1, waiting: Arc::clone(&waiting), pieces: send, stop: Some(stop) };
    (wire, Port { waiting, pieces, stop: stopped })
}

/// A line for the holder.
fn line(method: &str, params: &Value) -> Vec<u8> {
    format!("{}\n", json!({ "jsonrpc": "2.0", "method": method, "params": params })).into_bytes()
}

/// Opens the target and passes bytes on, until either end closes or the wire is stopped. What happens is told to the holder, at last
/// `closed` with the reason.
pub(crate) async fn run(target: &str, roots: &Roots, mut port: Port, out: mpsc::Sender<Vec<u8>>) {
    let opened = tokio::select! {
        opened = open(target, roots) => opened,
        why = &mut port.stop => Err(why.unwrap_or_default()),
    };
    let why = match opened {
        Ok(connection) => {
            let traits = connection.traits;
            let params = json!({
                "resend_ms": traits.resend.map(clock::millis),
                "shared": traits.shared,
                "serial": traits.ends == rigline::frame::LineEnds::Serial,
                "control": connection.control.is_some(),
            });
            if out.send(line("opened", &params)).await.is_err() {
                return;
            }
            pass_on(connection, port, &out).await
        }
        Err(why) => why,
    };
    let _ = out.send(line("closed", &json!({ "why": why }))).await;
}

async fn open(target: &str, roots: &Roots) -> Result<RawConnection, String> {
    let target: Target = target.parse().map_err(|error| format!("its target is wrong: {error}"))?;
    let mut options = Options::default();
    options.roots = roots.clone();
    let opened = async {
        let dialer = wire::dialer(&target, &options)?;
        // The last connection of the same holder may still be closing.
        wire::open(&*dialer, &options, CLOSING).await
    };
    opened.await.map_err(|error: HostError| error.to_string())
}

async fn pass_on(connection: RawConnection, mut port: Port, out: &mpsc::Sender<Vec<u8>>) -> String {
    let RawConnection { mut reader, writer, mut stderr, child, control, .. } = connection;
    let mut writer = Some(writer);
    let (mut said, mut complained) = (vec![0; PIECE], vec![0; PIECE]);
    let why = loop {
        tokio::select! {
            why = &mut port.stop => break why.unwrap_or_default(),
            piece = port.pieces.recv() => {
                let Some(Piece { seq, until, what }) = piece else {
                    // A wire that is stopped loses its holder too.
                    break port.stop.try_recv().unwrap_or_else(|_| "its holder is gone".to_owned());
                };
                if until < clock::now() {
                    break format!("piece {seq} was too late when the rig could have taken it");
                }
                port.waiting.fetch_sub(what.length(), Ordering::Relaxed);
                let bytes = match what {
                    What::Text(text) => text.into_bytes(),
                    What::Base64(text) => match BASE64_STANDARD.decode(text) {
                        Ok(bytes) => bytes,
                        Err(error) => break format!("piece {seq} is not Base64: {error}"),
                    },
                    What::Dtr(on) => {
                        let _ = control.as_ref().map(|control| control.set_dtr(on));
                        continue;
                    }
                    What::Discard(does) => {
                        let _ = control.as_ref().filter(|_| does).map(|control| control.discard());
                        continue;
                    }
                    What::End(is_end) => {
                        if is_end && let Some(mut writer) = writer.take() {
                            let _ = writer.shutdown().await;
                        }
                        continue;
                    }
                };
                let Some(writer) = &mut writer else { continue };
                let written = async {
                    writer.write_all(&bytes).await?;
                    writer.flush().await
                };
                tokio::select! {
                    why = &mut port.stop => break why.unwrap_or_default(),
                    written = written => if let Err(error) = written { break error.to_string() },
                }
            }
            count = reader.read(&mut said) => match count {
                Ok(0) => break String::new(),
                Ok(count) => {
                    let piece = said.get(..count).unwrap_or_default();
                    let params = match std::str::from_utf8(piece) {
                        Ok(text) => json!({ "text": text }),
                        Err(_) => json!({ "base64": BASE64_STANDARD.encode(piece) }),
                    };
                    if out.send(line("said", &params)).await.is_err() {
                        break String::new();
                    }
                }
                Err(error) => break error.to_string(),
            },
            count = read_some(stderr.as_mut(), &mut complained) => match count {
                0 => stderr = None,
                count => {
                    let text = String::from_utf8_lossy(complained.get(..count).unwrap_or_default()).into_owned();
                    if out.send(line("stderr", &json!({ "text": text }))).await.is_err() {
                        break String::new();
                    }
                }
            },
        }
    };
    drop((reader, writer, control));
    if let Some(child) = child {
        child.terminate();
        let _ = tokio::time::timeout(TERMINATION, child.ended()).await;
        child.kill();
    }
    why
}

async fn read_some(reader: Option<&mut Reader>, into: &mut [u8]) -> usize {
    match reader {
        Some(reader) => reader.read(into).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}
