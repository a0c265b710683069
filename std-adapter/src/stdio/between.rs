//! The input of a process with somebody [between](crate::between) the client and the extension.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use embedded_io_async::{ErrorType, Read};
use tokio::sync::mpsc;

use super::idle::Idle;
use crate::between::{Between, Passing, Peer, Renewal, Wire};

/// The bytes that are read at once.
pub(super) const CHUNK: usize = 64 * 1024;

/// How lines are sent that nobody else has sent.
struct Wires<F> {
    output: F,
    input: mpsc::UnboundedSender<Own>,
}

#[derive(Debug)]
enum Own {
    Line(Vec<u8>),
    Renewal,
}

impl<F: Fn(&[u8]) + Send + Sync> Wire for Wires<F> {
    fn to_client(&self, line: &[u8]) {
        (self.output)(&[line, b"\n"].concat());
    }

    fn to_extension(&self, line: Vec<u8>) {
        let _ = self.input.send(Own::Line(line));
    }
}

/// The input, with what is between.
pub(super) struct Gate<R> {
    reader: R,
    between: Option<(Arc<dyn Between>, Peer)>,
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
    is_renewing: Rc<Cell<bool>>,
    idle: Option<Idle>,
}

impl<R> Gate<R> {
    pub(super) fn new(
        reader: R,
        between: Option<Arc<dyn Between>>,
        output: impl Fn(&[u8]) + Send + Sync + 'static,
        longest: usize,
        idle: Option<Idle>,
    ) -> Self {
        let (input, own) = mpsc::unbounded_channel();
        let renewals = input.clone();
        let peer = Peer::new(0, None, true, Arc::new(Wires { output, input }));
        let between = between.map(|between| {
            between.begin(Renewal::new(true, move || drop(renewals.send(Own::Renewal))));
            (between, peer)
        });
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
            is_renewing: Rc::default(),
            idle,
        }
    }

    /// Something was read, which ends with this byte.
    fn has_read(&self, last: Option<u8>) {
        if let (Some(idle), Some(last)) = (&self.idle, last) {
            idle.has_read(last);
        }
    }

    /// Whether the extension read its end only to be served anew. It is asked once, and then that
    /// is told.
    pub(super) fn renews(&mut self) -> bool {
        let renews = self.is_renewing.take();
        if let Some((between, _)) = self.between.as_ref().filter(|_| renews) {
            between.renewed();
        }
        renews
    }

    /// Whether the input has ended only for a renewal.
    pub(super) fn renewing(&self) -> Rc<Cell<bool>> {
        self.is_renewing.clone()
    }

    /// The input without what is between.
    pub(super) fn into_reader(self) -> R {
        self.reader
    }

    /// Returns the observer, and its name for the client.
    pub(super) fn between(&self) -> Option<(Arc<dyn Between>, Peer)> {
        self.between.clone()
    }

    /// Looks at what was read.
    fn look(&mut self, count: usize) {
        let Some((between, peer)) = self.between.clone() else { return };
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
                self.pass(&*between, &peer, &line);
            } else if self.begun.len() > self.longest {
                self.ready.append(&mut self.begun);
                self.is_too_long = true;
            }
        }
        self.chunk = chunk;
    }

    fn pass(&mut self, between: &dyn Between, peer: &Peer, line: &[u8]) {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        match between.received(peer, text) {
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
        let Some((between, peer)) = self.between.clone() else { return };
        let line = std::mem::take(&mut self.begun);
        if !line.is_empty() {
            self.pass(&*between, &peer, &line);
        }
    }

    fn take_own(&mut self, own: Own) {
        match own {
            Own::Line(line) => {
                self.ready.extend_from_slice(&line);
                self.ready.push(b'\n');
            }
            Own::Renewal => self.is_renewing.set(true),
        }
    }
}

/// Waits until a client has been silent for long.
async fn silence(idle: Option<&Idle>) {
    match idle {
        Some(idle) => idle.wait().await,
        None => std::future::pending().await,
    }
}

impl<R: Read> ErrorType for Gate<R> {
    type Error = R::Error;
}

impl<R: Read<Error = io::Error>> Read for Gate<R> {
    /// A read that is dropped has taken nothing: what was read is kept here.
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.between.is_none() {
            let count = {
                let Self { reader, idle, .. } = &mut *self;
                let mut read = pin!(reader.read(buf));
                poll_fn(|task| match (read.as_mut().poll(task), &idle) {
                    (Poll::Pending, Some(idle)) => idle.poll_wait(task).map(|()| None),
                    (read, _) => read.map(Some),
                })
                .await
            };
            let Some(count) = count.transpose()? else { return Ok(0) };
            self.has_read(buf.get(..count).and_then(<[u8]>::last).copied());
            return Ok(count);
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
            if self.is_renewing.get() {
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
                    count => {
                        let last = self.chunk.get(..count).and_then(<[u8]>::last).copied();
                        self.has_read(last);
                        self.look(count);
                    }
                },
                () = silence(self.idle.as_ref()) => return Ok(0),
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
        fn begin(&self, _: Renewal) {}

        fn received(&self, _: &Peer, line: &[u8]) -> Passing {
            match line {
                b"drop" => Passing::Kept,
                b"two" => Passing::Instead(b"2".to_vec()),
                _ => Passing::On,
            }
        }

        fn sent(&self, _: &Peer, _: &[u8]) -> Passing {
            Passing::On
        }
    }

    struct Nowhere;

    impl Wire for Nowhere {
        fn to_client(&self, _: &[u8]) {}

        fn to_extension(&self, _: Vec<u8>) {}
    }

    fn doubling() -> (Arc<dyn Between>, Peer) {
        (Arc::new(Doubling), Peer::new(0, None, true, Arc::new(Nowhere)))
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
                between: Some(doubling()),
                own,
                chunk: Vec::new(),
                begun: Vec::new(),
                is_too_long: false,
                longest: 8,
                ready: Vec::new(),
                taken: 0,
                has_ended: false,
                is_renewing: Rc::default(),
                idle: None,
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
            between: Some(doubling()),
            own,
            chunk: Vec::new(),
            begun: Vec::new(),
            is_too_long: false,
            longest: 8,
            ready: Vec::new(),
            taken: 0,
            has_ended: false,
            is_renewing: Rc::default(),
            idle: None,
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
