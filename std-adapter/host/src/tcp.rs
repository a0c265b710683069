//! An extension behind a TCP port. As on standard input and output, each message is a line of JSON,
//! in any protocol. The protocol of each line is detected.
//!
//! Several clients may be connected at once. Their calls take turns: the calls of one client run in
//! their order, and the clients are served in turn. A request that does not need the extension,
//! such as MCP's `tools/list`, is answered at once, whatever runs. The time limit of a call begins
//! when it arrives. If it ends before the call's turn comes, the answer says who holds the
//! extension.
//!
//! Logs go to the client that called. `shutdown` ends only the session of its client. A client with
//! a configuration is refused while another client has a session with a different one. When the
//! last session is lost, the extension is brought into its safe state.
//!
//! When the extension has other operations than before, as the relay of another one may, clients of
//! MCP are told.
//!
//! # Who may ask
//! A client can call every operation. Where the system reports the user of a connection (as Linux
//! does), [`serve`] answers only programs of its own user and of root. If a [token](TcpServer::token)
//! is set, clients must also send it as their first line. HTTP is refused, since a web page could
//! send it.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rigline::Extension;
use rigline::json::Json;
use rigline::protocol::{self, Protocol};

use crate::{lines, protocols};
use rigline_std::TokioClock;
use rigline_std::net::{Access, ListenAddress, Token};
use rigline_std::queue::{Asker, Line, Queue, QueueClient, Received, RemoteExtension, Settings};
use rigline_std::signals::Signals;

/// How many clients are served at once, if nothing else is said.
const CLIENTS: usize = 64;

/// The longest request and the longest reply, in bytes without the newline.
const LINE: usize = 8 << 20;

/// How long the extension has to bring about its safe state at the end.
const SAFE_STATE: Duration = Duration::from_secs(5);

/// Serves `extension` to hosts that connect to `address`, `HOST:PORT`, until SIGTERM or SIGINT (elsewhere
/// Ctrl-C). `localhost` means both loopback addresses. The addresses are printed on standard error.
///
/// It makes the tokio runtime itself, so `main` is an ordinary function, not a `#[tokio::main]` one: in a runtime it panics.
///
/// # Errors
/// `address` is not an address, or cannot be listened on.
///
/// ```no_run
/// # use rigline::{Call, Context, Extension, Failure, Manifest, Outcome};
/// # struct MyExtension;
/// # impl Extension for MyExtension {
/// #     fn manifest(&self) -> &'static Manifest { const M: Manifest = Manifest::new("m", "1.0.0"); &M }
/// #     async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> { cx.done("") }
/// # }
/// fn main() -> std::io::Result<()> {
///     rigline_host::tcp::serve(MyExtension, "localhost:7000")
/// }
/// ```
pub fn serve<E: Extension>(extension: E, address: &str) -> io::Result<()> {
    let address = address.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let server = TcpServer::bind(&address)?;
    let name = extension.manifest().name;
    for address in server.addresses()? {
        use std::io::Write as _;
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "{name}: listening on tcp:{address}");
    }
    server.run(extension)
}

/// A server that listens already, and answers when it [runs](Self::run).
///
/// ```no_run
/// # use rigline::{Call, Context, Extension, Failure, Manifest, Outcome};
/// # struct MyExtension;
/// # impl Extension for MyExtension {
/// #     fn manifest(&self) -> &'static Manifest { const M: Manifest = Manifest::new("m", "1.0.0"); &M }
/// #     async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> { cx.done("") }
/// # }
/// use rigline_std::net::Token;
/// use rigline_host::tcp::TcpServer;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let server = TcpServer::bind(&"0.0.0.0:7000".parse()?)?.token(Token::from_file("/etc/rig/token")?);
///     server.run(MyExtension)?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct TcpServer {
    listeners: Vec<TcpListener>,
    access: Access,
    clients: usize,
    config: Option<String>,
    remote: Option<Arc<dyn RemoteExtension>>,
}

impl TcpServer {
    /// Listens on all addresses that `address` means. Port 0 means a free port.
    ///
    /// # Errors
    /// The port is in use, or this machine does not have the address.
    pub fn bind(address: &ListenAddress) -> io::Result<Self> {
        Ok(Self {
            listeners: address.bind()?,
            access: Access::same_user(),
            clients: CLIENTS,
            config: None,
            remote: None,
        })
    }

    /// Requires that each client sends this token as its first line:
    /// `{"jsonrpc":"2.0","id":0,"method":"authenticate","params":{"token":TOKEN}}`.
    pub fn token(mut self, token: Token) -> Self {
        self.access.token = Some(token);
        self
    }

    /// Admits programs of other users of this machine.
    pub fn any_user(mut self) -> Self {
        self.access.any_user = true;
        self
    }

    /// Sets the largest number of clients at a time [default: 64]. Further clients are told so, and
    /// refused.
    pub fn clients(self, clients: usize) -> Self {
        Self { clients, ..self }
    }

    /// Sets the configuration that the extension has before the first client, as the text of a JSON
    /// object.
    pub fn config(self, config: impl Into<String>) -> Self {
        Self { config: Some(config.into()), ..self }
    }

    /// Declares that the extension is a relay to `remote`. The target behind it has its
    /// configuration already, and is reached when a client needs it.
    #[doc(hidden)]
    pub fn remote(self, remote: Arc<dyn RemoteExtension>) -> Self {
        Self { remote: Some(remote), ..self }
    }

    /// Returns the addresses that the server listens on.
    ///
    /// # Errors
    /// The system does not tell an address.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves `extension` until SIGTERM or SIGINT (elsewhere Ctrl-C). The function makes its own
    /// tokio runtime.
    ///
    /// # Errors
    /// The runtime cannot be started.
    pub fn run<E: Extension>(self, extension: E) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(async {
            let mut signals = Signals::new()?;
            self.run_until(extension, async {
                let _ = signals.next().await;
            })
            .await
        });
        runtime.shutdown_background();
        result
    }

    /// Serves `extension` in a tokio runtime, until `stop` is ready. Handlers run one at a time, on
    /// the thread that polls the future. When it ends, open sessions are lost, so that hardware
    /// goes into its safe state.
    ///
    /// # Errors
    /// The runtime cannot use the listeners.
    pub async fn run_until<E: Extension>(self, extension: E, stop: impl Future<Output = ()>) -> io::Result<()> {
        self.run_with(TokioClock::new(), protocol::ALL.to_vec(), extension, stop).await
    }

    /// Serves `extension` as [`run_until`](Self::run_until) does, with the given clock and for
    /// clients of the given protocols.
    #[doc(hidden)]
    pub async fn run_with<E: Extension>(
        self,
        clock: TokioClock,
        protocols: Vec<&'static Protocol>,
        extension: E,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let is_local = self.remote.is_none();
        let settings = Settings {
            config: self.config.clone(),
            remote: self.remote.clone(),
            changes: protocols::changes_in,
            ..Settings::of_lines(protocols, (LINE, LINE))
        };
        let (queue, working) = Queue::over(extension, settings, clock);
        let queue = Arc::new(queue);
        if let Some(remote) = self.remote {
            remote.begin(queue.renewal());
        }
        let mut working = pin!(working);
        if let Some(config) = self.config.as_ref().filter(|_| is_local) {
            tokio::select! {
                configured = configure(&queue, config) => configured?,
                ended = &mut working => return ended,
            }
        }
        let served = tokio::select! {
            served = lines::serve_tcp(&queue, self.listeners, self.access, self.clients) => served,
            () = stop => Ok(()),
            ended = &mut working => return ended,
        };
        // Its clients end here; their sessions are lost.
        queue.close();
        let _ = tokio::time::timeout(SAFE_STATE, working).await;
        served
    }
}

/// Configures the extension as a session does that begins with settings, and ends that session.
async fn configure(queue: &Queue, config: &str) -> io::Result<()> {
    let request = protocols::ALL.iter().find_map(|protocol| protocol.configuration);
    let request = request.map(|request| request(config)).unwrap_or_default();
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let asker = Asker {
        client: &QueueClient::of_process(),
        session: None,
        cancels: true,
        wants_logs: false,
        identity: None,
        arrived: None,
    };
    let reply = match queue.receive(request.into_bytes(), &asker) {
        Received::Reply(reply) => reply,
        Received::Waits(mut incoming) => loop {
            match incoming.line().await {
                Some(Line::Reply(reply)) => break reply,
                Some(Line::Notification(_)) => {}
                None => return Err(invalid("the configuration was not answered".into())),
            }
        },
        _ => return Err(invalid("the configuration was not answered".into())),
    };
    let error = Json::parse(&reply).ok().and_then(|reply| reply.get("error")?.get("message")?.text());
    error.map_or(Ok(()), |message| Err(invalid(format!("the configuration was refused: {message}"))))
}
