use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rigline_rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::host::local::in_process;
use rigline_std::proxy::{Limits, Proxy, Transport};
use rigline_std::target::Target;
use tokio::net::TcpListener;
use tokio::task::{JoinSet, LocalSet};

use crate::connect::{self, Connection, Failure};

/// How long the built-in rig has to bring about its safe state at the end.
const SAFE_STATE: Duration = Duration::from_secs(2);

/// Serve an extension to several TCP clients
///
/// Clients speak gevals, one JSON text a line. Their calls take turns, logs go to whoever called, and a client's shutdown ends its
/// own session only. The extension is started, or the port opened, when the first request comes, and lives as long as the server.
/// A client with another config is refused while somebody else has a session.
///
/// There is no password: whoever reaches the port may call every operation. So it listens on the loopback address unless
/// another one is named.
///
/// Exit codes: 0 after Ctrl-C, SIGTERM or SIGHUP, 2 usage, 3 the address cannot be listened on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  rigline serve sim --tcp 7000\n  rigline serve serial:auto --tcp 0.0.0.0:7000")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Where to listen: PORT or HOST:PORT; port 0 takes a free one, which is printed
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address)]
    tcp: SocketAddr,
    /// How many clients are served at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    clients: usize,
}

/// A port alone is one on the loopback address.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port));
    }
    let expected = || format!("`{text}` is no address; write 7000, localhost:7000 or 0.0.0.0:7000");
    let text = text.strip_prefix(':').map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.to_socket_addrs().map_err(|_| expected())?.next().ok_or_else(expected)
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        connect::run_alone(self.serve())
    }

    async fn serve(self) -> Result<u8, Failure> {
        let failed =
            |error: std::io::Error| Failure { code: connect::NO_ANSWER, text: format!("{}: {error}", self.tcp) };
        let listener = TcpListener::bind(self.tcp).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        connect::print(&format!("serving {} on tcp:{address}\n", self.connection.target));
        if !address.ip().is_loopback() {
            connect::complain("rigline: whoever reaches this address may call every operation");
        }
        // The built-in rig needs no process of its own.
        let (sim, rigs) = in_process("sim", |clock, limits| Rig::new(SimBoard::new(clock, 1), limits));
        let (target, options) = (self.connection.target.clone(), self.connection.options());
        let proxy = match target {
            Target::Sim => Proxy::over(move |_| Ok(Box::new(sim.clone())), options, Limits::default()),
            target => {
                drop(sim);
                Proxy::new(target, options, Limits::default())
            }
        };
        let local = LocalSet::new();
        local.spawn_local(rigs);
        let mut clients = JoinSet::new();
        let accept = async {
            loop {
                while clients.try_join_next().is_some() {}
                if clients.len() >= self.clients.max(1) {
                    clients.join_next().await;
                }
                let Ok((stream, _)) = listener.accept().await else {
                    // Out of file descriptors, most likely: some will be given back.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let proxy = Arc::clone(&proxy);
                let (reader, writer) = stream.into_split();
                clients.spawn(async move { proxy.serve(reader, writer, Transport::Socket).await });
            }
        };
        local
            .run_until(async {
                tokio::select! {
                    () = accept => {}
                    _ = connect::interrupted() => {}
                }
            })
            .await;
        local
            .run_until(async {
                clients.shutdown().await;
                proxy.abandon().await;
            })
            .await;
        // A rig that nobody can reach any more ends, in its safe state.
        drop(proxy);
        let _ = tokio::time::timeout(SAFE_STATE, local).await;
        Ok(connect::SUCCESS)
    }
}
