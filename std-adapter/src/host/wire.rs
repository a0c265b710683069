//! Connections before anything is said over them: bytes in, bytes out, and what belongs to them.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rigline::frame::LineEnds;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::child::{self, Child};
use super::error::{Holder, HostError};
use super::link::LinkDialer;
use super::replay::ReplayDialer;
use super::serial::SerialDialer;
use super::tap::TapDialer;
use super::{Options, deadline};
use crate::net::Token;
use crate::process;
use crate::target::{Exec, Link, Target, Tcp};

/// Bytes from an extension.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// Bytes to an extension.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// One open connection.
pub struct Wire {
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
    /// How to behave on it.
    pub manners: Manners,
}

/// How a host behaves on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manners {
    /// `initialize` is repeated with a new id after this time, for a board that was booting when the first came.
    pub resend: Option<Duration>,
    /// The wire outlives sessions: it may hold half a line and old replies. So ids start at random, a newline goes first,
    /// and an error that names no request does not fail `initialize`.
    pub shared: bool,
    /// What ends a line.
    pub ends: LineEnds,
}

impl Manners {
    /// A new process: nothing on it is old.
    pub const CHILD: Self = Self { resend: None, shared: false, ends: LineEnds::Lf };
    /// A TCP connection, which a board may be behind.
    pub const TCP: Self = Self { resend: Some(Duration::from_secs(3)), shared: false, ends: LineEnds::Lf };
    /// A serial port.
    pub const SERIAL: Self = Self { resend: Some(Duration::from_secs(1)), shared: true, ends: LineEnds::Serial };
}

impl Wire {
    /// A wire over any pair of streams.
    pub fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        manners: Manners,
    ) -> Self {
        Self { reader: Box::new(reader), writer: Box::new(writer), stderr: None, child: None, control: None, manners }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("child", &self.child).field("manners", &self.manners).finish_non_exhaustive()
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

/// A future that [`Dial::dial`] gives.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Wire, HostError>> + Send + 'a>>;

/// Opens a connection, as often as one is needed: at first, after a loss and after a cancellation.
pub trait Dial: Send + Sync {
    /// What is dialled, in words.
    fn name(&self) -> String;
    /// Opens a connection.
    fn dial(&self) -> Dialing<'_>;
}

/// What dials a target.
///
/// # Errors
/// [`HostError::Unsupported`] for targets that gevals hosts cannot use.
pub fn dialer(target: &Target, options: &Options) -> Result<Box<dyn Dial>, HostError> {
    // Over the binary link, at so many bytes a second.
    let link = match target {
        Target::Serial(serial) if serial.link == Link::Cobs => Some(serial.baud / 10),
        Target::Tcp(tcp) if tcp.link == Link::Cobs => Some(1 << 20),
        _ => None,
    };
    let inner: Box<dyn Dial> = match target {
        Target::Exec(exec) => Box::new(ExecDialer::new(exec.clone(), options)),
        Target::Sim => {
            let program = match &options.sim_program {
                Some(program) => program.clone(),
                None => process::sim_program().map_err(HostError::Unsupported)?,
            };
            let exec = Exec { program: program.to_string_lossy().into_owned(), args: vec!["rig".into()] };
            Box::new(ExecDialer { name: "sim".into(), ..ExecDialer::new(exec, options) })
        }
        Target::Serial(serial) => Box::new(SerialDialer::new(serial.clone(), options.roots.clone())),
        Target::Tcp(tcp) => Box::new(TcpDialer(tcp.clone())),
        Target::Replay(replay) => Box::new(ReplayDialer::new(replay)?),
        Target::Http(url) => {
            return Err(HostError::Unsupported(format!(
                "gevals is not spoken over HTTP: {url} (--protocol amplifier or namel3ss is)"
            )));
        }
    };
    let inner = match link {
        Some(speed) => {
            Box::new(LinkDialer { inner, line_limit: options.line_limit, speed, last: std::sync::Mutex::default() })
        }
        None => inner,
    };
    Ok(match &options.recorder {
        Some(recorder) => Box::new(TapDialer { inner, recorder: Arc::clone(recorder) }),
        None => inner,
    })
}

/// Opens a connection, and waits for a port that is busy, or a device that is not there, no longer than `wait`.
///
/// # Errors
/// What kept the last try from one.
pub async fn open(dialer: &dyn Dial, options: &Options, wait: Duration) -> Result<Wire, HostError> {
    let given_up = deadline(Instant::now(), wait);
    loop {
        let start = deadline(Instant::now(), options.start_timeout);
        let error = match timeout_at(start, dialer.dial()).await {
            Ok(Ok(wire)) => return Ok(wire),
            Ok(Err(error)) => error,
            Err(_) => HostError::Open { what: dialer.name(), source: io::ErrorKind::TimedOut.into() },
        };
        let is_passing = match &error {
            HostError::Busy { .. } | HostError::NoDevice { .. } => true,
            HostError::Open { source, .. } => {
                use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied, TimedOut};
                // A device that was just plugged in has the right permissions a moment later.
                matches!(source.kind(), NotFound | ConnectionRefused | PermissionDenied | TimedOut)
            }
            _ => false,
        };
        if !is_passing || Instant::now() >= given_up {
            return Err(error);
        }
        sleep_until(given_up.min(Instant::now() + RETRY)).await;
    }
}

/// How often it is tried again.
const RETRY: Duration = Duration::from_millis(100);

struct ExecDialer {
    name: String,
    exec: Exec,
    working_dir: Option<std::path::PathBuf>,
    env: Vec<(String, String)>,
}

impl ExecDialer {
    fn new(exec: Exec, options: &Options) -> Self {
        Self { name: exec.to_string(), exec, working_dir: options.working_dir.clone(), env: options.env.clone() }
    }
}

impl Dial for ExecDialer {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn dial(&self) -> Dialing<'_> {
        Box::pin(async {
            let mut env = self.env.clone();
            env.push(process::within(&self.exec, self.working_dir.as_deref())?);
            child::start(&self.exec, self.working_dir.as_deref(), &env)
        })
    }
}

struct TcpDialer(Tcp);

impl Dial for TcpDialer {
    fn name(&self) -> String {
        Target::Tcp(self.0.clone()).to_string()
    }

    fn dial(&self) -> Dialing<'_> {
        Box::pin(async {
            let open = |source| HostError::Open { what: self.name(), source };
            let stream = tokio::net::TcpStream::connect((self.0.host.as_str(), self.0.port)).await.map_err(open)?;
            stream.set_nodelay(true).map_err(open)?;
            let (reader, mut writer) = stream.into_split();
            if let Some(path) = &self.0.token_file {
                let in_file = |error| io::Error::other(format!("{}: {error}", path.display()));
                let token = Token::from_file(path).map_err(|error| open(in_file(error)))?;
                // A notification: a server that asks for no token has nothing to say to it.
                let params = serde_json::json!({ "token": token.reveal() });
                let line = serde_json::json!({ "jsonrpc": "2.0", "method": "authenticate", "params": params });
                writer.write_all(format!("{line}\n").as_bytes()).await.map_err(open)?;
            }
            Ok(Wire::new(reader, writer, Manners::TCP))
        })
    }
}
