//! The common parts of servers over TCP and HTTP: the addresses to listen on, and access
//! control.
//!
//! # Who may ask
//! Every user of the machine can reach a server on a loopback address. If the system reports the
//! user of a connection (Linux does), [`Access`] admits only the server's own user and root by
//! default. A [`Token`] can be required in addition. The user of a connection from another machine
//! cannot be checked.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

#[doc(hidden)]
pub use self::door::{Arrival, ConnectionPermit, Door, Told, Waiting};
pub use self::token::Token;

mod door;
#[cfg_attr(target_os = "linux", path = "net/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "net/other.rs")]
mod owner;
mod token;

/// How often a free port is tried that both loopback addresses have.
const FREE_PORT_TRIES: usize = 16;
/// How long what comes from a client that was refused is still read.
const DRAIN: Duration = Duration::from_millis(500);

/// An address to listen on: `HOST:PORT`, or a port alone. `localhost` and a port alone mean both
/// loopback addresses.
///
/// ```
/// use rigline_std::net::ListenAddress;
///
/// let address: ListenAddress = "localhost:7000".parse()?;
/// assert_eq!(address.addresses().len(), 2);
/// assert!(address.is_loopback());
/// assert!("127.0.0.1:99999".parse::<ListenAddress>().is_err());
/// # Ok::<(), rigline_std::net::AddressError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    text: String,
    addresses: Vec<SocketAddr>,
}

/// The error for a text that is not an address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

impl ListenAddress {
    /// All addresses that the text means. If one of them is IPv4, the first one is.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether all addresses are loopback ones, so that only programs on this machine can connect.
    pub fn is_loopback(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().to_canonical().is_loopback())
    }

    /// Listens on all addresses, at one port. An address that this machine does not have is
    /// omitted, such as IPv6 if it is switched off. With port 0, a free port is used.
    ///
    /// # Errors
    /// The port is in use, or this machine has none of the addresses.
    pub fn bind(&self) -> io::Result<Vec<std::net::TcpListener>> {
        let mut result = self.try_bind();
        for _ in 1..FREE_PORT_TRIES {
            match &result {
                // The port was free on the first address only.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && self.is_any_port() => {
                    result = self.try_bind();
                }
                _ => break,
            }
        }
        result
    }

    fn is_any_port(&self) -> bool {
        self.addresses.iter().any(|address| address.port() == 0)
    }

    fn try_bind(&self) -> io::Result<Vec<std::net::TcpListener>> {
        let mut listeners: Vec<std::net::TcpListener> = Vec::new();
        let mut failure = None;
        for mut address in self.addresses.iter().copied() {
            if let (0, Some(first)) = (address.port(), listeners.first()) {
                address.set_port(first.local_addr()?.port());
            }
            match std::net::TcpListener::bind(address) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    listeners.push(listener);
                }
                // Clients that try this address first would reach another server.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        if listeners.is_empty() {
            return Err(failure.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()));
        }
        Ok(listeners)
    }
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let expected = |why: &str| AddressError(format!("`{text}`: {why}; write 7000, localhost:7000 or 0.0.0.0:7000"));
        let is_port = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let (host, port) = match text.rsplit_once(':') {
            None if is_port(text) => ("", text),
            None => return Err(expected("the port is missing")),
            Some(parts) => parts,
        };
        let port: u16 = match port.parse() {
            Ok(port) if is_port(text.rsplit(':').next().unwrap_or_default()) => port,
            _ => return Err(expected(&format!("`{port}` is not a port number from 0 to 65535"))),
        };
        // Whatever the hosts file says: clients may try either.
        if host.is_empty() || host.eq_ignore_ascii_case("localhost") {
            let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            let addresses = both.map(|address| SocketAddr::new(address, port)).to_vec();
            return Ok(Self { text: text.to_owned(), addresses });
        }
        if let Ok(address) = text.parse() {
            return Ok(Self { text: text.to_owned(), addresses: vec![address] });
        }
        if host.contains(':') {
            return Err(expected("an IPv6 address needs brackets, as in [::1]:7000"));
        }
        let found = (host, port).to_socket_addrs().map_err(|error| expected(&format!("{host}: {error}")))?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses.sort_by_key(SocketAddr::is_ipv6);
        if addresses.is_empty() {
            return Err(expected(&format!("{host} has no address")));
        }
        Ok(Self { text: text.to_owned(), addresses })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The rules for who may send requests to a server.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Access {
    /// The token that every client must send, if there is one.
    pub token: Option<Token>,
    /// Whether other users of this machine may send requests, too.
    pub any_user: bool,
}

impl Access {
    /// Rules that admit the server's own user and root, without a token.
    pub fn same_user() -> Self {
        Self::default()
    }

    /// Requires that every client sends this token, in addition to the other rules.
    #[must_use]
    pub fn with_token(self, token: Token) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Also admits other users of this machine.
    #[must_use]
    pub fn with_any_user(self) -> Self {
        Self { any_user: true, ..self }
    }

    /// The reason why a connection is refused; none if it is admitted.
    #[doc(hidden)]
    pub fn refusal(&self, ends: Option<Ends>) -> Option<String> {
        if self.any_user { None } else { self.refusal_of(ends?.owner()) }
    }

    /// Why a connection of this user is refused, if it is.
    fn refusal_of(&self, user: Owner) -> Option<String> {
        if self.any_user {
            return None;
        }
        match user {
            Owner::User(user) if user == 0 || Some(user) == owner::own_user() => None,
            Owner::User(user) => Some(format!(
                "this server answers its own user only, not user {user} (it can be started with --any-user)"
            )),
            Owner::Nobody => Some("the connection's user is not known: its process has closed it".to_owned()),
            Owner::Unknown => None,
        }
    }
}

/// How long a connection may be silent until the system asks whether its peer is still there, and
/// how long it waits for an answer each time before it asks again. A machine that lost its power
/// says no goodbye.
const SILENCE: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Sets a connection to notice that its peer's machine is gone, and to send short lines at once.
#[doc(hidden)]
pub fn adjust(stream: &TcpStream) {
    // Lines are small, and a client waits for each.
    let _ = stream.set_nodelay(true);
    let keepalive = socket2::TcpKeepalive::new().with_time(SILENCE);
    #[cfg(any(target_os = "linux", target_os = "macos", windows))]
    let keepalive = keepalive.with_interval(ASK_AGAIN);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Several listeners that are used as one.
#[doc(hidden)]
#[derive(Debug)]
pub struct Listeners(Vec<TcpListener>);

impl Listeners {
    /// Takes listeners of the standard library.
    ///
    /// # Errors
    /// A listener cannot be used in the tokio runtime.
    pub fn new(listeners: Vec<std::net::TcpListener>) -> io::Result<Self> {
        listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for the next connection of any listener. It is cancel safe.
    pub async fn accept(&self) -> io::Result<Stream> {
        let accepted = std::future::poll_fn(|task| {
            let ready = self.0.iter().find_map(|listener| match listener.poll_accept(task) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        let (stream, _) = accepted.await?;
        adjust(&stream);
        Ok(Stream::new(stream))
    }
}

/// Reads and drops the rest of what a refused client has sent, for half a second at most. Without
/// this, a reset of the connection could destroy the refusal before the client has read it.
#[doc(hidden)]
pub async fn drain(reader: &mut (impl AsyncRead + Unpin)) {
    let mut rest = tokio::io::sink();
    let _ = timeout(DRAIN, tokio::io::copy(reader, &mut rest)).await;
}

/// The two addresses of an accepted connection.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The address on this machine.
    pub local: SocketAddr,
    /// The address of the client.
    pub peer: SocketAddr,
}

/// The user at the other end of a connection.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A process of this user id has the other end.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the system does not report it"))]
    User(u32),
    /// No process has the other end any more: it is closed.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the system does not report it"))]
    Nobody,
    /// The other end is on another machine, or the system does not report its user.
    Unknown,
}

impl Ends {
    /// Asks the system for the user who has the peer's end.
    pub fn owner(self) -> Owner {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        owner::of_peer(Self { local: canonical(self.local), peer: canonical(self.peer) })
    }
}

/// The state of a connection's peer.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The peer is connected, and may send more.
    Here,
    /// The peer has closed its sending half, but still reads.
    Reads,
    /// The peer has closed its sending half. Whether it still reads is not known.
    Unknown,
    /// The peer has closed the connection, or does not answer any more.
    Gone,
}

/// A connection that can be asked about its peer while it is read and written. Clones are the same
/// connection.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Stream(Arc<Accepted>);

#[derive(Debug)]
struct Accepted {
    socket: TcpStream,
    /// Both addresses of the connection; none if the peer was gone at once.
    ends: Option<Ends>,
}

impl Stream {
    /// Wraps a connection that was accepted.
    pub fn new(socket: TcpStream) -> Self {
        let ends = || Some(Ends { local: socket.local_addr().ok()?, peer: socket.peer_addr().ok()? });
        let ends = ends();
        Self(Arc::new(Accepted { socket, ends }))
    }

    /// A number that no other open connection has.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Both addresses of the connection; none if the peer was gone when it was accepted.
    pub fn ends(&self) -> Option<Ends> {
        self.0.ends
    }

    /// Asks the system for the state of the peer.
    pub fn presence(&self) -> Presence {
        let mut byte = [MaybeUninit::uninit()];
        match socket2::SockRef::from(&self.0.socket).peek(&mut byte) {
            Ok(0) => {}
            Ok(_) => return Presence::Here,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Presence::Here;
            }
            Err(_) => return Presence::Gone,
        }
        match self.0.socket.peer_addr().ok().and(self.ends()).map(Ends::owner) {
            Some(Owner::User(_)) => Presence::Reads,
            Some(Owner::Unknown) => Presence::Unknown,
            // Without a peer's address, the connection has ended.
            Some(Owner::Nobody) | None => Presence::Gone,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.socket.poll_read_ready(task))?;
            match self.0.socket.try_read_buf(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result.map(|_| ())),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.socket.poll_write_ready(task))?;
            match self.0.socket.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.socket.poll_write_ready(task))?;
            match self.0.socket.try_write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&self.0.socket).shutdown(std::net::Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports: getappmap/appmap-js#2075, UsefulSoftwareCo/executor#74.
    #[test]
    fn localhost_is_both_loopback_addresses() {
        for text in ["localhost:7000", "LocalHost:7000", "7000", ":7000"] {
            let address: ListenAddress = text.parse().unwrap();
            let texts: Vec<String> = address.addresses().iter().map(ToString::to_string).collect();
            assert_eq!(texts, ["127.0.0.1:7000", "[::1]:7000"], "{text}");
            assert!(address.is_loopback());
        }
        for (text, one) in [("0.0.0.0:1", "0.0.0.0:1"), ("[::1]:65535", "[::1]:65535"), ("127.0.0.2:0", "127.0.0.2:0")]
        {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.addresses(), [one.parse().unwrap()], "{text}");
        }
        assert!(!"0.0.0.0:1".parse::<ListenAddress>().unwrap().is_loopback());
        for (text, part) in [
            ("127.0.0.1:99999", "`99999` is not a port"),
            ("70000", "`70000` is not a port"),
            ("localhost:", "`` is not a port"),
            ("localhost", "the port is missing"),
            ("::1:80", "needs brackets"),
            ("127.0.0.1:+80", "`+80` is not a port"),
            ("", "the port is missing"),
        ] {
            let error = text.parse::<ListenAddress>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// Reports: getappmap/appmap-js#2075, UsefulSoftwareCo/executor#74.
    #[test]
    fn a_free_port_is_the_same_on_both() {
        let listeners = "localhost:0".parse::<ListenAddress>().unwrap().bind().unwrap();
        let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        assert!(ports.iter().all(|port| *port == ports[0] && *port != 0), "{ports:?}");
        // A taken port is an error, also if it is taken on one of them only.
        let taken: ListenAddress = format!("localhost:{}", ports[0]).parse().unwrap();
        assert_eq!(taken.bind().unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn a_peer_is_here_then_reads_only_then_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Stream::new(listener.accept().await.unwrap().0);
        assert_eq!(stream.presence(), Presence::Here);
        assert_eq!(Access::same_user().refusal(stream.ends()), None);
        let wait_for = async |wanted: &[Presence]| {
            for _ in 0..1000 {
                if wanted.contains(&stream.presence()) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            panic!("{:?} and not {wanted:?}", stream.presence());
        };
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let is_linux = cfg!(target_os = "linux");
        wait_for(if is_linux { &[Presence::Reads] } else { &[Presence::Unknown] }).await;
        drop(peer);
        wait_for(if is_linux { &[Presence::Gone] } else { &[Presence::Unknown, Presence::Gone] }).await;
    }
}
