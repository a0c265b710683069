use std::process::ExitCode;
use std::time::Duration;

use rigline_host::local::{in_process, in_process_once};
use rigline_host::protocol::Protocol;
use rigline_host::protocols;
use rigline_host::proxy::{Limits, Proxy};
use rigline_host::relay::{Relay, RelayError};
use rigline_host::target::Target;
use rigline_host::wire;
use rigline_rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::net::{Access, ListenAddress};
use rigline_std::{Selected, TokioClock};
use tokio::task::LocalSet;

use crate::choice::Choice;
use crate::connect::{self, Connection, Failure};
use crate::protocol::{self, names};
use crate::rig::{self, HttpArguments};

/// How long the built-in rig has to bring about its safe state at the end.
const SAFE_STATE: Duration = Duration::from_secs(2);

/// Serve an extension to several clients, over TCP or HTTP
///
/// TCP clients speak gevals, one JSON text a line. Their calls take turns, logs go to the client that called, and a client's shutdown
/// ends only its own session. The extension is started, or the port opened, at the first request, and stays until the server ends.
/// A client with a different config is refused while another client has a session.
///
/// HTTP clients speak the protocol that --protocol selects. The extension is asked by Amplifier's protocol, in which results keep their
/// types, and by gevals, whose outputs are strings, if it does not answer that. On SIGTERM the running calls are finished.
///
/// A client can call every operation. The server therefore listens on the loopback addresses by default, and answers only programs of
/// your own user where the system reports the user of a connection (see --any-user). With --token-file it answers only clients that send
/// the token: over HTTP as a bearer token, over TCP as the first line,
/// {"jsonrpc":"2.0","id":0,"method":"authenticate","params":{"token":"TOKEN"}}
///
/// With --read-only or --allow, clients are offered a part of the operations, and cannot call the others. A target says which operations are
/// read-only if it speaks MCP, as rigline's own do; it is asked at the start then, so that a wrong name is told at once.
///
/// Exit codes: 0 after Ctrl-C, SIGTERM or SIGHUP, 2 usage, 3 cannot listen on the address, or the program of the target does not exist.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rigline serve sim --tcp 7000\n  rigline serve serial:auto --tcp 0.0.0.0:7000\n  rigline serve serial:auto --http 8080 --protocol amplifier"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Serve lines over TCP at this address: PORT or HOST:PORT; port 0 selects a free port, which is printed. A port alone and
    /// localhost mean both loopback addresses
    #[arg(long, value_name = "[HOST:]PORT", conflicts_with = "http")]
    tcp: Option<ListenAddress>,
    /// The protocol of the clients: gevals over TCP, the others over HTTP
    #[arg(long, value_parser = protocol::parser(|protocol| protocol.has_proxy || protocol.http.is_some()))]
    protocol: Option<&'static Protocol>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    http: HttpArguments,
    /// How many TCP clients are served at the same time
    #[arg(long, value_name = "N", default_value_t = 64)]
    clients: usize,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let protocol = self.protocol.unwrap_or(protocols::ALL[0]);
        match (self.tcp.clone(), self.http.http.clone(), protocol) {
            (Some(address), _, protocol) if protocol.has_proxy => {
                // It blocks until the target has answered.
                let is_all = self.choice.is_all() || self.connection.target == Target::Sim;
                let selected = if is_all { None } else { Some(self.selected()?) };
                connect::run_alone(self.serve_tcp(address, selected))
            }
            (Some(_), ..) => Err(Failure::usage(format!(
                "{} is not served over TCP, only {} is: use --http",
                protocol.title,
                names(|protocol| protocol.has_proxy)
            ))),
            (None, Some(address), protocol) => self.serve_http(&address, protocol),
            (None, None, _) => Err(Failure::usage(
                "the address to listen on is missing: use --tcp [HOST:]PORT, or --http [HOST:]PORT with --protocol",
            )),
        }
    }

    fn serve_http(self, address: &ListenAddress, protocol: &Protocol) -> Result<ExitCode, Failure> {
        // It needs no program beside this one.
        if self.connection.target == Target::Sim && self.connection.config.is_none() {
            return rig::serve_http(&self.http, address, protocol, 1, &self.choice.selection());
        }
        let server = self.http.bind(address, protocol)?;
        if !self.choice.is_all() {
            let selected = self.selected()?;
            rig::announce(&server, &self.http, protocol)?;
            server.run(move |_| selected).map_err(Failure::failed)?;
            return Ok(ExitCode::SUCCESS);
        }
        let relay = Relay::connect(&self.connection.target, self.connection.options()).map_err(relay_failure)?;
        rig::announce(&server, &self.http, protocol)?;
        server.run(move |_| relay).map_err(Failure::failed)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The chosen operations of the target, which is asked for what it has.
    fn selected(&self) -> Result<Selected<Relay>, Failure> {
        let relay = Relay::connect_by(&self.connection.target, self.connection.options(), protocols::of_agents())
            .map_err(relay_failure)?;
        Selected::new(relay, &self.choice.selection()).map_err(Failure::usage)
    }

    async fn serve_tcp(self, tcp: ListenAddress, selected: Option<Selected<Relay>>) -> Result<u8, Failure> {
        let mut access = Access::same_user();
        if self.http.any_user {
            access = access.with_any_user();
        }
        if let Some(path) = &self.http.token_file {
            access = access.with_token(connect::token(path)?);
        }
        wire::ensure_program(&self.connection.target, &self.connection.options())
            .map_err(|error| Failure::of(&error))?;
        let failed = |error: std::io::Error| Failure::no_answer(format!("{tcp}: {error}"));
        let listeners = tcp.bind().map_err(failed)?;
        for listener in &listeners {
            let address = listener.local_addr().map_err(failed)?;
            connect::print(&format!("serving {} on tcp:{address}\n", self.connection.target));
        }
        if !tcp.is_loopback() && access.token.is_none() {
            connect::complain(
                "rigline: anyone who can reach this address can call every operation; --token-file restricts access",
            );
        }
        // The built-in rig needs no other process.
        let selection = self.choice.selection();
        let rig = move |clock: TokioClock, limits| Selected::new(Rig::new(SimBoard::new(clock, 1), limits), &selection);
        let (target, options) = (self.connection.target.clone(), self.connection.options());
        let local = LocalSet::new();
        let proxy = match (target, selected) {
            (Target::Sim, _) => {
                rig(TokioClock::new(), (usize::MAX, usize::MAX)).map_err(Failure::usage)?;
                // The same choice was possible just now.
                let make = move |clock, limits| rig(clock, limits).unwrap_or_else(|why| unreachable!("{why}"));
                let (sim, rigs) = in_process("sim", make);
                local.spawn_local(rigs);
                Proxy::over(move |_| Ok(Box::new(sim.clone())), options, Limits::default())
            }
            (target, Some(selected)) => {
                let (served, calls) = in_process_once(target.to_string(), selected);
                local.spawn_local(calls);
                Proxy::over(move |_| Ok(Box::new(served.clone())), options, Limits::default())
            }
            (target, None) => Proxy::new(target, options, Limits::default()),
        };
        let serving = local
            .run_until(async {
                // Its clients end with it.
                tokio::select! {
                    served = proxy.serve_tcp(listeners, access, self.clients) => served,
                    _ = connect::interrupted() => Ok(()),
                }
            })
            .await;
        local.run_until(proxy.abandon()).await;
        // A rig without connections ends, in its safe state.
        drop(proxy);
        let _ = tokio::time::timeout(SAFE_STATE, local).await;
        serving.map_err(failed)?;
        Ok(connect::SUCCESS)
    }
}

pub(crate) fn relay_failure(error: RelayError) -> Failure {
    match error {
        RelayError::Client(error) => error.into(),
        error => Failure::no_answer(error),
    }
}
