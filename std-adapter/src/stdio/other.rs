//! Standard input and output where descriptors cannot be polled: a thread reads, and the output's
//! thread writes.

use std::io::{self, Read as _, Write as _};
use std::thread;

use embedded_io_async::{ErrorType, Read};
use tokio::sync::mpsc;

const PIECE: usize = 64 * 1024;

/// Returns standard input and output. On this system they cannot be protected from other code of
/// the process.
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
pub fn take() -> io::Result<(Input, Output)> {
    Ok((Input, Output))
}

/// Standard input, before anything was read from it.
#[derive(Debug)]
pub struct Input;

impl Input {
    /// Starts a thread that reads standard input, and returns the reader of its pieces.
    #[allow(clippy::unused_self, reason = "as on Unix")]
    pub fn start(self) -> io::Result<Reader> {
        let (sender, pieces) = mpsc::channel(1);
        let read = move || {
            let mut memory = vec![0; PIECE];
            loop {
                let piece = match io::stdin().lock().read(&mut memory) {
                    Ok(count) => Ok(memory.get(..count).unwrap_or_default().to_vec()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_last = !matches!(&piece, Ok(piece) if !piece.is_empty());
                if sender.blocking_send(piece).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new().name("rigline-input".into()).spawn(read)?;
        Ok(Reader { pieces, rest: Vec::new(), taken: 0 })
    }
}

/// The reader of standard input.
#[derive(Debug)]
pub struct Reader {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// The last piece, and how much of it was taken.
    rest: Vec<u8>,
    taken: usize,
}

impl ErrorType for Reader {
    type Error = io::Error;
}

impl Read for Reader {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        tokio::task::coop::consume_budget().await;
        if self.taken == self.rest.len() {
            match self.pieces.recv().await {
                Some(piece) => self.rest = piece?,
                None => return Ok(0),
            }
            self.taken = 0;
        }
        let left = self.rest.get(self.taken..).unwrap_or_default();
        let count = left.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..count), left.get(..count)) {
            to.copy_from_slice(from);
        }
        self.taken += count;
        Ok(count)
    }
}

/// Standard output.
#[derive(Debug)]
pub struct Output;

impl Output {
    /// Nothing is known to go without waiting.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as on Unix")]
    pub(super) fn write_now(&self, _line: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    /// Writes all bytes, and waits as long as that takes.
    #[allow(clippy::unused_self, reason = "as on Unix")]
    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}
