//! The connections to targets, without a session.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::child;
use super::error::HostError;
use super::link::LinkDialer;
use super::ports::Roots;
use super::recorded::RecordingDialer;
use super::replay::ReplayDialer;
use super::rig_lock;
pub(crate) use super::rig_lock::InUse;
use super::serial::SerialDialer;
pub use super::transport::{Connect, Connecting, Control, RawConnection, Reader, Timed, TransportTraits, Writer};
use super::{Options, deadline};
use crate::http_client;
use crate::process;
use crate::target::{Exec, Link, Target, Tcp};
use rigline_std::mutex::lock;
use rigline_std::net::{self, Token};

/// Returns the dialer of a target.
///
/// # Errors
/// [`HostError::Unsupported`] for an HTTP target, since a dialer opens streams of bytes.
pub fn dialer(target: &Target, options: &Options) -> Result<Box<dyn Connect>, HostError> {
    // Over the binary link, at so many bytes a second.
    let link = match target {
        Target::Serial(serial) if serial.link == Link::Cobs => Some(serial.baud / 10),
        Target::Tcp(tcp) if tcp.link == Link::Cobs => Some(1 << 20),
        _ => None,
    };
    let inner: Box<dyn Connect> = match target {
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
        Target::Tcp(tcp) => Box::new(TcpDialer {
            tcp: tcp.clone(),
            roots: options.roots.clone(),
            is_alone: options.is_alone,
            in_use: Mutex::default(),
        }),
        Target::Replay(replay) => Box::new(ReplayDialer::new(replay)?),
        Target::Rig(rig) => match RIGS.get() {
            Some(dialer) => dialer(rig, options)?,
            None => {
                let text = format!(
                    "{target}: rigs of the lab are reached by the command rigline only; `rigline bridge {target}` is one as a program"
                );
                return Err(HostError::Unsupported(text));
            }
        },
        Target::Http(url) => {
            return Err(HostError::Unsupported(format!("{url}: the protocol has no HTTP transport")));
        }
    };
    let inner = match link {
        Some(speed) => {
            Box::new(LinkDialer { inner, line_limit: options.line_limit, speed, last: std::sync::Mutex::default() })
        }
        None => inner,
    };
    Ok(recorded(inner, options))
}

/// A function that returns the dialer of a rig of the lab. The package of the lab depends on this
/// one, and sets it.
pub type RigDialer = fn(&str, &Options) -> Result<Box<dyn Connect>, HostError>;

static RIGS: OnceLock<RigDialer> = OnceLock::new();

/// Sets the function that dials targets `rig:…` in this process. Only the first call has an effect.
pub fn set_rig_dialer(dialer: RigDialer) {
    let _ = RIGS.set(dialer);
}

/// Adds a recorder to a dialer if the options have one. [`dialer`] does this itself.
pub fn recorded(inner: Box<dyn Connect>, options: &Options) -> Box<dyn Connect> {
    match &options.recorder {
        Some(recorder) => Box::new(RecordingDialer { inner, recorder: Arc::clone(recorder) }),
        None => inner,
    }
}

/// Checks that the program that a target names exists. A server does so before it listens, since
/// otherwise its first client would learn it. Devices and servers are not checked, since they may
/// appear later.
///
/// # Errors
/// [`HostError::NoProgram`], or [`HostError::Start`] if the working folder does not exist.
pub fn ensure_program(target: &Target, options: &Options) -> Result<(), HostError> {
    match target {
        Target::Exec(exec) => child::ensure_found(exec, options.working_dir.as_deref()),
        _ => Ok(()),
    }
}

/// Opens a connection. If the port is busy or the device is missing, it waits for at most `wait`.
///
/// # Errors
/// The error of the last attempt.
pub async fn open(dialer: &dyn Connect, options: &Options, wait: Duration) -> Result<RawConnection, HostError> {
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

/// Takes the server at a URL, alone or with others, as the dialers of other targets do; none for those. It waits as [`open`] does.
///
/// # Errors
/// [`HostError::Busy`] if another process has it.
pub(crate) async fn in_use(target: &Target, options: &Options) -> Result<Option<InUse>, HostError> {
    let Target::Http(url) = target else { return Ok(None) };
    // If there is no such server, the first request says so.
    let Ok((host, port)) = http_client::place(url) else { return Ok(None) };
    let Ok(addresses) = tokio::net::lookup_host((host.as_str(), port)).await else { return Ok(None) };
    let names = rig_lock::of_addresses(addresses);
    let given_up = deadline(Instant::now(), options.wait);
    loop {
        match InUse::new(names.clone(), options.is_alone, url, &options.roots) {
            Err(HostError::Busy { .. }) if Instant::now() < given_up => {
                sleep_until(given_up.min(Instant::now() + RETRY)).await;
            }
            taken => return taken.map(Some),
        }
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

impl Connect for ExecDialer {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let mut env = self.env.clone();
            env.push(process::recursion_mark(&self.exec, self.working_dir.as_deref()).map_err(HostError::Unsupported)?);
            let child::Started { child, stdin, stdout, stderr } =
                child::start(&self.exec, self.working_dir.as_deref(), &env)?;
            Ok(RawConnection {
                stderr: Some(Box::new(stderr)),
                child: Some(child),
                ..RawConnection::new(stdout, stdin, TransportTraits::CHILD)
            })
        })
    }
}

struct TcpDialer {
    tcp: Tcp,
    roots: Roots,
    is_alone: bool,
    /// The rig is this session's, also between two connections.
    in_use: Mutex<Option<InUse>>,
}

impl Connect for TcpDialer {
    fn name(&self) -> String {
        Target::Tcp(self.tcp.clone()).to_string()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let open = |source| HostError::Open { what: self.name(), source };
            let found = tokio::net::lookup_host((self.tcp.host.as_str(), self.tcp.port)).await.map_err(open)?;
            let addresses: Vec<SocketAddr> = found.collect();
            if lock(&self.in_use).is_none() {
                let names = rig_lock::of_addresses(addresses.iter().copied());
                let in_use = InUse::new(names, self.is_alone, &self.name(), &self.roots)?;
                *lock(&self.in_use) = Some(in_use);
            }
            let stream = tokio::net::TcpStream::connect(addresses.as_slice()).await.map_err(open)?;
            net::adjust(&stream);
            let (reader, mut writer) = stream.into_split();
            if let Some(path) = &self.tcp.token_file {
                let in_file = |error| io::Error::other(format!("{}: {error}", path.display()));
                let token = Token::from_file(path).map_err(|error| open(in_file(error)))?;
                // A notification: a server that asks for no token has nothing to say to it.
                let params = serde_json::json!({ "token": token.reveal() });
                let line = serde_json::json!({ "jsonrpc": "2.0", "method": "authenticate", "params": params });
                writer.write_all(format!("{line}\n").as_bytes()).await.map_err(open)?;
            }
            Ok(RawConnection::new(reader, writer, TransportTraits::TCP))
        })
    }
}
