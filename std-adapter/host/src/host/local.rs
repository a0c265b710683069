//! Extensions in this process, for servers that contain their own: no child process, no pipes.

use std::future::Future;
use std::io;

use rigline::Extension;
use rigline::serve::Transport;
use tokio::io::{DuplexStream, duplex, split};
use tokio::sync::mpsc;

use super::error::HostError;
use super::transport::{Connect, Connecting, RawConnection, TransportTraits};
use rigline_std::RequirePath;
use rigline_std::TokioClock;
use rigline_std::server::StreamServer;

/// The longest request and reply, in bytes without the newline.
const LINE: usize = 8 << 20;
/// Logs that wait, in bytes.
const LOGS: usize = 2 << 20;
/// The most bytes on the way in each direction.
const IN_FLIGHT: usize = 64 * 1024;

/// A dialer that connects to an extension in this process. [`in_process`] makes it.
#[derive(Debug, Clone)]
pub struct InProcess {
    name: String,
    connections: mpsc::UnboundedSender<DuplexStream>,
}

/// Prepares an extension that runs in this process. Returns the dialer that connects to it, and the
/// future that runs it.
///
/// Each connection gets a new extension from `make`. Its arguments are the clock of the extension,
/// and the longest request and reply, as in [`Stdio::limits`](rigline_std::stdio::Stdio::limits).
/// Connections are served one after another. If one is dropped during a session, the extension
/// brings about its safe state. If a handler panics, the future ends with it.
///
/// The future ends when all dialers and their connections are dropped. It stays on the thread that
/// polls it.
pub fn in_process<E: Extension>(
    name: impl Into<String>,
    mut make: impl FnMut(TokioClock, (usize, usize)) -> E,
) -> (InProcess, impl Future<Output = ()>) {
    let (connections, mut dialled) = mpsc::unbounded_channel();
    let running = async move {
        while let Some(stream) = dialled.recv().await {
            let clock = TokioClock::new();
            let mut extension = RequirePath::new(make(clock.clone(), (LINE, LINE)));
            serve(&mut extension, &clock, stream).await;
        }
    };
    (InProcess { name: name.into(), connections }, running)
}

/// Prepares an extension as [`in_process`] does, but uses the one given extension for all
/// connections.
pub fn in_process_once<E: Extension>(name: impl Into<String>, extension: E) -> (InProcess, impl Future<Output = ()>) {
    let (connections, mut dialled) = mpsc::unbounded_channel();
    let running = async move {
        let clock = TokioClock::new();
        let mut extension = RequirePath::new(extension);
        while let Some(stream) = dialled.recv().await {
            serve(&mut extension, &clock, stream).await;
        }
    };
    (InProcess { name: name.into(), connections }, running)
}

impl Connect for InProcess {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let (ours, theirs) = duplex(IN_FLIGHT);
            if self.connections.send(theirs).is_err() {
                return Err(HostError::Open { what: self.name(), source: io::ErrorKind::ConnectionRefused.into() });
            }
            let (reader, writer) = split(ours);
            Ok(RawConnection::new(reader, writer, TransportTraits::CHILD))
        })
    }
}

async fn serve<E: Extension>(extension: &mut E, clock: &TokioClock, stream: DuplexStream) {
    let (reader, writer) = split(stream);
    let server = StreamServer::new(extension).transport(Transport::Stream).request_limit(LINE).reply_limit(LINE);
    // The loss of the host is how this ends. If the manifest does not fit, the connection closes.
    let _ = server.log_buffer(LOGS).clock(clock).serve_tokio(reader, writer).await;
}
