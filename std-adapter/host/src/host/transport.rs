//! Open connections before anything is said over them: streams of bytes, and the controls of the
//! device or process.

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

/// A stream of the bytes that an extension sends.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// A stream of the bytes that go to an extension.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// An open connection to an extension, without a session.
pub struct RawConnection {
    /// The bytes that the extension sends.
    pub reader: Reader,
    /// The bytes that go to the extension.
    pub writer: Writer,
    /// The standard error of a child process. `None` if the extension is no child process.
    pub stderr: Option<Reader>,
    /// The child process. `None` if the extension is no child process. When the last clone of the
    /// [`Child`] is dropped, its whole process group is ended.
    pub child: Option<Child>,
    /// The control lines of a serial port. `None` if the connection is no serial port.
    pub control: Option<Arc<dyn Control>>,
    /// The receiver of the time limits of what is written. `None` if the way is short.
    pub timed: Option<Arc<dyn Timed>>,
    /// The properties of the connection that a host must respect.
    pub traits: TransportTraits,
}

/// The properties of a connection that a host must respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportTraits {
    /// The time after which `initialize` is repeated with a new id, since a board may have been
    /// booting when it came first. `None` means that it is not repeated. Otherwise ids begin at
    /// random, and `initialize` is repeated at once after the first parse error: half a line of
    /// another client may have been before it.
    pub resend: Option<Duration>,
    /// Whether the wire outlives sessions, so that it may hold half a line or old replies. If so, a
    /// newline is sent first, and an error without an id does not fail `initialize`.
    pub shared: bool,
    /// The bytes that end a received line.
    pub ends: LineEnds,
}

impl TransportTraits {
    /// The properties of a new process: no byte on its streams is old.
    pub const CHILD: Self = Self { resend: None, shared: false, ends: LineEnds::Lf };
    /// The properties of a TCP connection. `initialize` is repeated every 3 s, since a board at its
    /// other end may be booting.
    pub const TCP: Self = Self { resend: Some(Duration::from_secs(3)), shared: false, ends: LineEnds::Lf };
    /// The properties of a serial port. `initialize` is repeated every second.
    pub const SERIAL: Self = Self { resend: Some(Duration::from_secs(1)), shared: true, ends: LineEnds::Serial };
}

impl RawConnection {
    /// A connection over any pair of streams, without a process or control lines.
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

/// The control lines of a serial port, beside its data.
pub trait Control: Send + Sync {
    /// Sets the DTR line. A board takes its change to low as the end of the session.
    fn set_dtr(&self, on: bool) -> io::Result<()>;
    /// Drops the bytes that are queued in both directions.
    fn discard(&self) -> io::Result<()>;
    /// Returns the other processes that have the port open, as far as they are visible. Each byte
    /// from the device goes to only one of the processes.
    fn others(&self) -> Vec<Holder> {
        Vec::new()
    }
}

/// A connection over which bytes may be under way for long. Bytes that come too late are dropped at
/// its other end.
pub trait Timed: Send + Sync {
    /// Sets the time after which bytes that are written from now on are of no use. `None` ends the
    /// limit.
    fn until(&self, time: Option<tokio::time::Instant>);
}

/// The future that [`Connect::dial`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<RawConnection, HostError>> + Send + 'a>>;

/// A dialer, which opens connections to a target: the first one, and further ones after a loss or a
/// cancellation.
pub trait Connect: Send + Sync {
    /// Returns the target in words, for messages.
    fn name(&self) -> String;
    /// Opens a connection to the target.
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
