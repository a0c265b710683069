//! Somebody between the client and the extension, who sees each line, and may keep it or send others.

use std::fmt;
use std::io;
use std::sync::Arc;

use embedded_io_async::{ErrorType, Read};
use tokio::sync::mpsc;

/// The bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Somebody between the client and the extension: see [`Stdio::between`](super::Stdio::between).
pub trait Between: fmt::Debug + Send + Sync {
    /// The first call, before any line: how lines are sent.
    fn begin(&self, wires: Wires);

    /// A line of the client, without its end.
    fn received(&self, line: &[u8]) -> Passing;

    /// A reply for the client, with the end of its line. Logs and reports of progress go to the client as they are.
    fn sent(&self, line: &[u8]) -> Passing;

    /// Nothing comes from the client any more.
    fn input_ended(&self) {}
}

/// The treatment of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passing {
    /// The line goes on as it is.
    On,
    /// This goes on in its place, without the end of the line.
    Instead(Vec<u8>),
    /// The line goes no further.
    Kept,
}

/// Sends bytes to the client.
type Post = dyn Fn(&[u8]) + Send + Sync;

/// How lines are sent that nobody else has sent.
#[derive(Clone)]
pub struct Wires {
    output: Arc<Post>,
    input: mpsc::UnboundedSender<Own>,
}

impl fmt::Debug for Wires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wires").finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Own {
    Line(Vec<u8>),
    Renewal,
}

impl Wires {
    /// Sends a line, without its end, to the client. A client that is gone gets none.
    pub fn to_client(&self, line: &[u8]) {
        (self.output)(&[line, b"\n"].concat());
    }

    /// Sends a line, without its end, to the extension, as if the client had sent it.
    pub fn to_extension(&self, line: Vec<u8>) {
        let _ = self.input.send(Own::Line(line));
    }

    /// Has the extension served anew, since its manifest is another one. What was begun of its session is to be begun again.
    pub fn renew(&self) {
        let _ = self.input.send(Own::Renewal);
    }
}

/// The input, with what is between.
pub(super) struct Gate<R> {
    reader: R,
    between: Option<Arc<dyn Between>>,
    own: mpsc::UnboundedReceiver<Own>,
    chunk: Vec<u8>,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// The line is longer than any that is accepted: it is not looked at.
    is_too_long: bool,
    longest: usize,
    /// The bytes that the extension may read, up to `taken`.
    ready: Vec<u8>,
    taken: usize,
    has_ended: bool,
    is_renewing: bool,
}

impl<R> Gate<R> {
    pub(super) fn new(
        reader: R,
        between: Option<Arc<dyn Between>>,
        output: impl Fn(&[u8]) + Send + Sync + 'static,
        longest: usize,
    ) -> Self {
        let (input, own) = mpsc::unbounded_channel();
        if let Some(between) = &between {
            between.begin(Wires { output: Arc::new(output), input });
        }
        Self {
            reader,
            between,
            own,
            chunk: Vec::new(),
            begun: Vec::new(),
            is_too_long: false,
            longest,
            ready: Vec::new(),
            taken: 0,
            has_ended: false,
            is_renewing: false,
        }
    }

    /// Whether the extension read its end only to be served anew. It is asked once.
    pub(super) fn renews(&mut self) -> bool {
        std::mem::take(&mut self.is_renewing)
    }

    /// Looks at what was read.
    fn look(&mut self, count: usize) {
        let Some(between) = self.between.clone() else { return };
        let chunk = std::mem::take(&mut self.chunk);
        for part in chunk.get(..count).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            if self.is_too_long {
                self.ready.extend_from_slice(part);
                self.is_too_long = !part.ends_with(b"\n");
                continue;
            }
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.begun);
                self.pass(&*between, &line);
            } else if self.begun.len() > self.longest {
                self.ready.append(&mut self.begun);
                self.is_too_long = true;
            }
        }
        self.chunk = chunk;
    }

    fn pass(&mut self, between: &dyn Between, line: &[u8]) {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        match between.received(text) {
            Passing::On => self.ready.extend_from_slice(line),
            Passing::Instead(other) => {
                self.ready.extend_from_slice(&other);
                self.ready.push(b'\n');
            }
            Passing::Kept => {}
        }
    }

    fn end(&mut self) {
        self.has_ended = true;
        let Some(between) = self.between.clone() else { return };
        let line = std::mem::take(&mut self.begun);
        if !line.is_empty() {
            self.pass(&*between, &line);
        }
        between.input_ended();
    }

    fn take_own(&mut self, own: Own) {
        match own {
            Own::Line(line) => {
                self.ready.extend_from_slice(&line);
                self.ready.push(b'\n');
            }
            Own::Renewal => self.is_renewing = true,
        }
    }
}

impl<R: Read> ErrorType for Gate<R> {
    type Error = R::Error;
}

impl<R: Read<Error = io::Error>> Read for Gate<R> {
    /// A read that is dropped has taken nothing: what was read is kept here.
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.between.is_none() {
            return self.reader.read(buf).await;
        }
        loop {
            let rest = self.ready.get(self.taken..).unwrap_or_default();
            if !rest.is_empty() {
                let count = rest.len().min(buf.len());
                if let (Some(to), Some(from)) = (buf.get_mut(..count), rest.get(..count)) {
                    to.copy_from_slice(from);
                }
                self.taken += count;
                return Ok(count);
            }
            self.ready.clear();
            self.taken = 0;
            if self.is_renewing {
                return Ok(0);
            }
            if self.has_ended {
                match self.own.try_recv() {
                    Ok(own) => self.take_own(own),
                    Err(_) => return Ok(0),
                }
                continue;
            }
            self.chunk.resize(CHUNK, 0);
            tokio::select! {
                biased;
                Some(own) = self.own.recv() => self.take_own(own),
                count = self.reader.read(&mut self.chunk) => match count? {
                    0 => self.end(),
                    count => self.look(count),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Doubling;

    impl Between for Doubling {
        fn begin(&self, _: Wires) {}

        fn received(&self, line: &[u8]) -> Passing {
            match line {
                b"drop" => Passing::Kept,
                b"two" => Passing::Instead(b"2".to_vec()),
                _ => Passing::On,
            }
        }

        fn sent(&self, _: &[u8]) -> Passing {
            Passing::On
        }
    }

    /// Gives its parts one by one.
    struct Parts(Vec<Vec<u8>>);

    impl ErrorType for Parts {
        type Error = io::Error;
    }

    impl Read for Parts {
        async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let part = self.0.remove(0);
            buf[..part.len()].copy_from_slice(&part);
            Ok(part.len())
        }
    }

    #[test]
    fn each_line_is_looked_at_once_whatever_the_cuts() {
        let text = b"one\ntwo\ndrop\n\nlonger than that\ntwo";
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for size in 1..text.len() {
            let parts = Parts(text.chunks(size).map(<[u8]>::to_vec).collect());
            let (input, own) = mpsc::unbounded_channel();
            let mut gate = Gate {
                reader: parts,
                between: Some(Arc::new(Doubling)),
                own,
                chunk: Vec::new(),
                begun: Vec::new(),
                is_too_long: false,
                longest: 8,
                ready: Vec::new(),
                taken: 0,
                has_ended: false,
                is_renewing: false,
            };
            input.send(Own::Line(b"own".to_vec())).unwrap();
            let read = runtime.block_on(async {
                let (mut read, mut buf) = (Vec::new(), [0; 5]);
                loop {
                    match gate.read(&mut buf).await.unwrap() {
                        0 => break read,
                        count => read.extend_from_slice(&buf[..count]),
                    }
                }
            });
            assert_eq!(String::from_utf8(read).unwrap(), "own\none\n2\n\nlonger than that\n2\n", "{size}");
        }
    }

    #[test]
    fn a_renewal_is_an_end_that_is_followed_by_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (input, own) = mpsc::unbounded_channel();
        let mut gate = Gate {
            reader: Parts(vec![b"one\n".to_vec()]),
            between: Some(Arc::new(Doubling)),
            own,
            chunk: Vec::new(),
            begun: Vec::new(),
            is_too_long: false,
            longest: 8,
            ready: Vec::new(),
            taken: 0,
            has_ended: false,
            is_renewing: false,
        };
        input.send(Own::Renewal).unwrap();
        input.send(Own::Line(b"again".to_vec())).unwrap();
        let mut buf = [0; 16];
        let mut read = || runtime.block_on(gate.read(&mut buf)).unwrap();
        assert_eq!(read(), 0);
        assert_eq!(read(), 0, "as long as it is not served anew");
        assert!(gate.renews() && !gate.renews());
        let mut read = || runtime.block_on(gate.read(&mut buf)).unwrap();
        assert_eq!((read(), read(), read()), (6, 4, 0));
    }
}
