//! The open port of a rig, in the agent. Bytes of the holder are written to the rig while its lease
//! lasts, and bytes of the rig go back to the holder.
//!
//! Each piece of bytes has a number and a time on the clock since the machine's start. A piece that
//! comes late, out of order or after the end of the lease is not written. So bytes that were
//! delayed anywhere never reach the rig.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rigline_host::ports::Roots;
use rigline_host::target::Target;
use rigline_host::wire::{self, Control, RawConnection, Reader, Writer};
use rigline_host::{HostError, Options};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};

use crate::book::Refusal;
use crate::check;
use crate::clock::{self, BootTime};
use crate::frames::{Back, PIECE, Piece, PieceKind, back};

/// How many bytes of one holder may wait for the rig to take them.
const WAITING: usize = 32 << 20;
/// How long a port that is busy is waited for.
const CLOSING: Duration = Duration::from_secs(1);
/// How long a program that is the rig has to end.
const TERMINATION: Duration = Duration::from_millis(500);

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
        let length = piece.bytes.len();
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

/// The frame that tells the holder that its port is closed.
pub(crate) fn closed(code: u8, why: &str) -> Vec<u8> {
    // A reason that fits a frame.
    let why: String = why.chars().take(PIECE / 16).collect();
    back(Back::Closed, json!({ "code": code, "why": why }).to_string().as_bytes())
}

/// Opens the target and passes bytes on, until either end closes or the wire is stopped. What happens is told to the holder, at last
/// that it is closed, with the reason.
/// `board` is the one that it must be, if that is known.
pub(crate) async fn run(target: &str, board: Option<&str>, roots: &Roots, mut port: Port, out: mpsc::Sender<Vec<u8>>) {
    let opened = tokio::select! {
        opened = open(target, board, roots) => opened,
        why = &mut port.stop => Err(why.unwrap_or_default()),
    };
    let why = match opened {
        Ok(connection) => {
            let traits = connection.traits;
            let params = json!({
                "resend_ms": traits.resend.map(clock::to_millis),
                "shared": traits.shared,
                "serial": traits.ends == rigline::frame::LineEnds::Serial,
                "control": connection.control.is_some(),
            });
            if out.send(back(Back::Opened, params.to_string().as_bytes())).await.is_err() {
                return;
            }
            pass_on(connection, port, &out).await
        }
        Err(why) => why,
    };
    let _ = out.send(closed(3, &why)).await;
}

async fn open(target: &str, board: Option<&str>, roots: &Roots) -> Result<RawConnection, String> {
    let target: Target = target.parse().map_err(|error| format!("its target is wrong: {error}"))?;
    check::ensure_board(&target, board, roots)?;
    let mut options = Options::default();
    options.roots = roots.clone();
    let opened = async {
        let dialer = wire::dialer(&target, &options)?;
        // The last connection of the same holder may still be closing.
        wire::open(&*dialer, &options, CLOSING).await
    };
    opened.await.map_err(|error: HostError| error.to_string())
}

/// The bytes that the rig has still to take.
struct Sending {
    writer: Option<Writer>,
    control: Option<Arc<dyn Control>>,
    waiting: Arc<AtomicUsize>,
    pieces: VecDeque<Piece>,
    /// How much of the first piece is written.
    written: usize,
}

impl Sending {
    fn has_work(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Takes a piece. The lines of a port go past the bytes that it has not taken, as they do where the port is opened directly.
    fn take(&mut self, piece: Piece) {
        match (piece.kind, &self.control) {
            (PieceKind::Dtr, Some(control)) => drop(control.set_dtr(piece.bytes.first().is_some_and(|on| *on > 0))),
            (PieceKind::Discard, Some(control)) => drop(control.discard()),
            (PieceKind::Dtr | PieceKind::Discard, None) => {}
            (PieceKind::Bytes | PieceKind::End, _) => self.pieces.push_back(piece),
        }
    }

    /// Writes some of what there is. What was written is not written again if this is dropped.
    async fn step(&mut self) -> Result<(), String> {
        let Some(piece) = self.pieces.front() else { return Ok(()) };
        if piece.until < clock::now() && self.written == 0 {
            return Err(format!("piece {} was too late when the rig could have taken it", piece.seq));
        }
        let failed = |error: io::Error| error.to_string();
        match &mut self.writer {
            None => {}
            Some(writer) if piece.kind == PieceKind::End => {
                let _ = writer.shutdown().await;
                self.writer = None;
            }
            Some(writer) => {
                while let Some(rest) = piece.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
                    match writer.write(rest).await.map_err(failed)? {
                        0 => return Err("the port takes no bytes any more".to_owned()),
                        count => self.written += count,
                    }
                }
                writer.flush().await.map_err(failed)?;
            }
        }
        self.waiting.fetch_sub(piece.bytes.len(), Ordering::Relaxed);
        self.written = 0;
        self.pieces.pop_front();
        Ok(())
    }
}

async fn pass_on(connection: RawConnection, mut port: Port, out: &mpsc::Sender<Vec<u8>>) -> String {
    let RawConnection { mut reader, writer, mut stderr, child, control, .. } = connection;
    let waiting = Arc::clone(&port.waiting);
    let mut sending = Sending { writer: Some(writer), control, waiting, pieces: VecDeque::new(), written: 0 };
    let (mut said, mut complained) = (vec![0; PIECE], if stderr.is_some() { vec![0; PIECE] } else { Vec::new() });
    let why = loop {
        tokio::select! {
            why = &mut port.stop => break why.unwrap_or_default(),
            piece = port.pieces.recv() => match piece {
                Some(piece) => sending.take(piece),
                // A wire that is stopped loses its holder too.
                None => break port.stop.try_recv().unwrap_or_else(|_| "its holder is gone".to_owned()),
            },
            written = sending.step(), if sending.has_work() => if let Err(why) = written { break why },
            count = reader.read(&mut said) => match count {
                Ok(0) => break String::new(),
                Ok(count) => {
                    if out.send(back(Back::Bytes, said.get(..count).unwrap_or_default())).await.is_err() {
                        break String::new();
                    }
                }
                Err(error) => break error.to_string(),
            },
            count = read_some(stderr.as_mut(), &mut complained) => match count {
                0 => stderr = None,
                count => {
                    let piece = back(Back::Errors, complained.get(..count).unwrap_or_default());
                    if out.send(piece).await.is_err() {
                        break String::new();
                    }
                }
            },
        }
    };
    drop((reader, sending));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(seq: u64, until: BootTime, length: usize) -> Piece {
        Piece { kind: PieceKind::Bytes, seq, until, bytes: vec![b'x'; length] }
    }

    #[test]
    fn late_pieces_those_out_of_order_and_too_many_are_refused() {
        let now = clock::now();
        let (mut wire, port) = pair("lease");
        assert!(wire.send(piece(2, now, 1), now).unwrap_err().why.contains("piece 2 came where 1 was next"));
        assert!(wire.send(piece(1, now - 1, 1), now).unwrap_err().why.contains("1 ms too late"));
        wire.send(piece(1, now, WAITING), now).unwrap();
        assert!(wire.send(piece(2, now, 1), now).unwrap_err().why.contains("33554432 bytes wait"));
        drop(port);
    }

    #[tokio::test]
    async fn what_a_stuck_rig_has_not_begun_in_time_is_not_written_and_its_lines_are_set_meanwhile() {
        struct Dtr(std::sync::Mutex<Vec<bool>>);
        impl Control for Dtr {
            fn set_dtr(&self, on: bool) -> io::Result<()> {
                rigline_std::mutex::lock(&self.0).push(on);
                Ok(())
            }
            fn discard(&self) -> io::Result<()> {
                Ok(())
            }
        }
        let (board, other) = tokio::io::duplex(8);
        let (reader, writer) = tokio::io::split(other);
        let dtr = Arc::new(Dtr(std::sync::Mutex::default()));
        let mut connection = RawConnection::new(reader, writer, rigline_host::wire::TransportTraits::SERIAL);
        connection.control = Some(Arc::clone(&dtr) as Arc<dyn Control>);
        let (mut wire, port) = pair("lease");
        let (out, mut lines) = mpsc::channel(4);
        let passing = tokio::spawn(async move { pass_on(connection, port, &out).await });
        let now = clock::now();
        // The board takes 8 bytes, and then nothing for a while.
        wire.send(piece(1, now + 10_000, 100), now).unwrap();
        wire.send(piece(2, now + 50, 1), now).unwrap();
        wire.send(Piece { kind: PieceKind::Dtr, seq: 3, until: now + 10_000, bytes: vec![0] }, now).unwrap();
        while rigline_std::mutex::lock(&dtr.0).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(60)).await;
        let (mut taken, mut board) = (Vec::new(), board);
        board.read_to_end(&mut taken).await.unwrap();
        assert_eq!(taken.len(), 100);
        assert!(passing.await.unwrap().contains("piece 2 was too late"));
        assert!(lines.recv().await.is_none());
    }
}
