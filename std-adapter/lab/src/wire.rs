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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::book::Refusal;
use crate::check;
use crate::clock::{self, BootTime};
use crate::frames::{Back, PIECE, Piece, PieceKind, back};

/// How many bytes of one holder may wait for the rig to take them.
const WAITING: usize = 32 << 20;
/// How many pieces of one holder may.
const PIECES: usize = 64 << 10;
/// How long a port that is busy is waited for.
const CLOSING: Duration = Duration::from_secs(1);
/// How long a program that is the rig has to end.
const TERMINATION: Duration = Duration::from_millis(500);

/// Pieces for the rig, by which connection they come.
pub(crate) struct Wire {
    /// The lease.
    pub(crate) lease: String,
    next: u64,
    waiting: Arc<Waiting>,
    pieces: mpsc::UnboundedSender<Piece>,
    stop: Option<oneshot::Sender<String>>,
}

/// The pieces and bytes that wait for a rig to take them.
#[derive(Default)]
struct Waiting {
    pieces: AtomicUsize,
    bytes: AtomicUsize,
}

impl Waiting {
    /// Counts a piece.
    fn add(&self, length: usize) -> Result<(), Refusal> {
        let too_much = if self.bytes.fetch_add(length, Ordering::Relaxed) + length > WAITING {
            format!("{WAITING} bytes")
        } else if self.pieces.fetch_add(1, Ordering::Relaxed) >= PIECES {
            format!("{PIECES} pieces")
        } else {
            return Ok(());
        };
        Err(Refusal::refused(format!("more than {too_much} wait for the rig to take them")))
    }

    /// The rig has taken a piece, or needs it no more.
    fn remove(&self, length: usize) {
        self.bytes.fetch_sub(length, Ordering::Relaxed);
        self.pieces.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The lines and frames for one client of the agent, which wait while it does not read. They are
/// bounded in number and in bytes.
#[derive(Clone)]
pub(crate) struct ToClient {
    lines: mpsc::Sender<(Vec<u8>, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
    bytes: usize,
}

/// Where they are taken from. A line has its room until the permit is dropped.
pub(crate) type Unread = mpsc::Receiver<(Vec<u8>, OwnedSemaphorePermit)>;

impl ToClient {
    /// For at most so many lines and bytes; a single line may be longer.
    pub(crate) fn new(lines: usize, bytes: usize) -> (Self, Unread) {
        let (lines, unread) = mpsc::channel(lines);
        (Self { lines, room: Arc::new(Semaphore::new(bytes)), bytes }, unread)
    }

    /// How much room a line takes.
    fn measure(&self, line: &[u8]) -> u32 {
        u32::try_from(line.len().min(self.bytes)).unwrap_or(u32::MAX)
    }

    /// Sends a line when there is room for it. The line is lost if the client is gone.
    pub(crate) async fn send(&self, line: Vec<u8>) -> Result<(), ()> {
        let room = Arc::clone(&self.room).acquire_many_owned(self.measure(&line)).await.map_err(drop)?;
        self.lines.send((line, room)).await.map_err(drop)
    }

    /// Sends a line if there is room for it. Returns it if not.
    pub(crate) fn try_send(&self, line: Vec<u8>) -> Result<(), Vec<u8>> {
        match Arc::clone(&self.room).try_acquire_many_owned(self.measure(&line)) {
            Ok(room) => self.lines.try_send((line, room)).map_err(|error| error.into_inner().0),
            Err(_) => Err(line),
        }
    }

    /// For how many further lines there is room.
    pub(crate) fn capacity(&self) -> usize {
        self.lines.capacity()
    }
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
        self.waiting.add(piece.bytes.len())?;
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
    waiting: Arc<Waiting>,
    pieces: mpsc::UnboundedReceiver<Piece>,
    stop: oneshot::Receiver<String>,
}

/// Makes both halves.
pub(crate) fn pair(lease: &str) -> (Wire, Port) {
    let (send, pieces) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let waiting = Arc::<Waiting>::default();
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
pub(crate) async fn run(target: &str, board: Option<&str>, roots: &Roots, mut port: Port, out: ToClient) {
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
    waiting: Arc<Waiting>,
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
            (PieceKind::Bytes | PieceKind::End, _) => return self.pieces.push_back(piece),
        }
        self.waiting.remove(piece.bytes.len());
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
        self.waiting.remove(piece.bytes.len());
        self.written = 0;
        self.pieces.pop_front();
        Ok(())
    }
}

async fn pass_on(connection: RawConnection, mut port: Port, out: &ToClient) -> String {
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
        // Pieces without any bytes take memory, too.
        let (mut wire, port) = pair("lease");
        let sent = (1..=2 * PIECES as u64).take_while(|seq| wire.send(piece(*seq, now, 0), now).is_ok()).count();
        assert_eq!(sent, PIECES);
        drop(port);
    }

    #[tokio::test]
    async fn lines_for_a_client_that_does_not_read_are_bounded_in_number_and_bytes() {
        let (out, mut unread) = ToClient::new(3, 1000);
        assert!(out.try_send(vec![0; 5000]).is_ok(), "a single line may be longer");
        assert_eq!(out.try_send(vec![1]), Err(vec![1]));
        let slow = out.clone();
        let sending = tokio::spawn(async move { slow.send(vec![2; 600]).await });
        tokio::task::yield_now().await;
        assert!(!sending.is_finished());
        assert_eq!(unread.recv().await.unwrap().0.len(), 5000);
        sending.await.unwrap().unwrap();
        for byte in [3, 4] {
            out.try_send(vec![byte]).unwrap();
        }
        assert_eq!(out.try_send(vec![5]), Err(vec![5]), "three wait");
        drop(unread);
        assert!(out.send(vec![6]).await.is_err());
    }

    #[tokio::test]
    async fn changed_lines_of_a_port_leave_no_count_behind() {
        let (board, other) = tokio::io::duplex(64);
        let (reader, writer) = tokio::io::split(other);
        let connection = RawConnection::new(reader, writer, rigline_host::wire::TransportTraits::SERIAL);
        let (mut wire, port) = pair("lease");
        let waiting = Arc::clone(&wire.waiting);
        let (out, _unread) = ToClient::new(4, 1000);
        let passing = tokio::spawn(async move { pass_on(connection, port, &out).await });
        let until = clock::now() + 10_000;
        for (seq, kind, length) in [(1, PieceKind::Dtr, 1), (2, PieceKind::Discard, 0), (3, PieceKind::Bytes, 5)] {
            wire.send(Piece { kind, seq, until, bytes: vec![0; length] }, clock::now()).unwrap();
        }
        while waiting.pieces.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(waiting.bytes.load(Ordering::Relaxed), 0);
        drop(board);
        passing.await.unwrap();
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
        let (out, mut lines) = ToClient::new(4, 1 << 20);
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
