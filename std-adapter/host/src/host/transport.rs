//! Connections before anything is said over them: bytes in, bytes out, and what belongs to them.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rigline::frame::LineEnds;
use tokio::io::{AsyncRead, AsyncWrite};

use super::child::Child;
use super::error::HostError;
use super::port_info::Holder;

/// Bytes from an extension.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// Bytes to an extension.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// An open connection.
pub struct RawConnection {
    /// Bytes from the extension.
    pub reader: Reader,
    /// Bytes to it.
    pub writer: Writer,
    /// The standard error of a child.
    pub stderr: Option<Reader>,
    /// The process, if there is one. It is ended, with its whole group, when the last of these is dropped.
    pub child: Option<Child>,
    /// A serial port's lines.
    pub control: Option<Arc<dyn Control>>,
    /// Who is told until when what is written is of use.
    pub timed: Option<Arc<dyn Timed>>,
    /// How to behave on it.
    pub traits: TransportTraits,
}

/// How a host behaves on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportTraits {
    /// `initialize` is repeated with a new id after this time, for a board that was booting when the first came.
    pub resend: Option<Duration>,
    /// The wire outlives sessions: it may hold half a line and old replies. So ids start at random, a newline goes first,
    /// and an error that names no request does not fail `initialize`.
    pub shared: bool,
    /// The bytes that end a received line.
    pub ends: LineEnds,
}

impl TransportTraits {
    /// A new process: nothing on it is old.
    pub const CHILD: Self = Self { resend: None, shared: false, ends: LineEnds::Lf };
    /// A TCP connection. `initialize` is repeated, because there may be a board at its other end that is booting.
    pub const TCP: Self = Self { resend: Some(Duration::from_secs(3)), shared: false, ends: LineEnds::Lf };
    /// A serial port.
    pub const SERIAL: Self = Self { resend: Some(Duration::from_secs(1)), shared: true, ends: LineEnds::Serial };
}

impl RawConnection {
    /// A wire over any pair of streams.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        traits: TransportTraits,
    ) -> Self {
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Self { reader, writer, stderr: None, child: None, control: None, timed: None, traits }
    }
}

impl fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConnection")
            .field("child", &self.child)
            .field("traits", &self.traits)
            .finish_non_exhaustive()
    }
}

/// The lines of a serial port beside its data.
pub trait Control: Send + Sync {
    /// Sets DTR. Boards take a change to low as the end of a session.
    fn set_dtr(&self, on: bool) -> io::Result<()>;
    /// Drops what is queued in both directions.
    fn discard(&self) -> io::Result<()>;
    /// The other processes that have the port open, as far as can be seen: each byte from the device goes to one of them only.
    fn others(&self) -> Vec<Holder> {
        Vec::new()
    }
}

/// A way that may be long: what comes to its end too late is dropped there.
pub trait Timed: Send + Sync {
    /// What is written from now on is of no use after this time; for no time in particular, if there is none.
    fn until(&self, time: Option<tokio::time::Instant>);
}

/// The future of [`Connect`].
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<RawConnection, HostError>> + Send + 'a>>;

/// Opens a connection, as often as one is needed: at first, after a loss and after a cancellation.
pub trait Connect: Send + Sync {
    /// The dialled target, in words.
    fn name(&self) -> String;
    /// Opens a connection.
    fn dial(&self) -> Connecting<'_>;
}

/// One dialer of several clients, which use it one after the other: a rig's lease, for example, is the same for all of them.
impl Connect for std::sync::Arc<dyn Connect> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn dial(&self) -> Connecting<'_> {
        (**self).dial()
    }
}
