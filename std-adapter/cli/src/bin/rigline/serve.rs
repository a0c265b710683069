use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use rigline::Extension;
use rigline_host::choose::ProtocolNeed;
use rigline_host::client::Part;
use rigline_host::protocol::Protocol;
use rigline_host::protocols;
use rigline_host::relay::{Relay, Remote, TargetNews};
use rigline_host::target::Target;
use rigline_host::{tcp, wire};
use rigline_rig::rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::TokioClock;
use rigline_std::net::ListenAddress;

use crate::connect::{self, Connection, Failure};
use crate::credentials::Credentials;
use crate::policy::{PolicyArguments, Rules};
use crate::protocol::{self, names};
use crate::protocols::{Offer, Tools, Way};
use crate::rig::HttpArguments;

/// Serve an extension to hosts: on standard input and output, over TCP, or over HTTP
///
/// Without --tcp and --http, the only client is the program that has started this one, on standard input and output. The short forms
/// below have further options, which `rigline help mcp` and the like list.
///
/// TCP clients send one JSON text a line, of any protocol that has lines: gevals hosts, agents (MCP) and Amplifier's hosts may use one server.
/// Their calls take turns, logs go to the client that called, and a client's shutdown ends only its own session. A client with a different config is
/// refused while another client has a session. The extension is started, or the port opened, when a client needs it, and stays until the server ends.
///
/// HTTP clients find MCP at /mcp, and Amplifier at /invoke, /describe and /health. namel3ss is at
/// the path that --path names. With --protocol, only that protocol is served.
///
/// A target may answer several protocols. rigline tries them in this order, and asks the target by the first one that it answers: MCP, gevals, Amplifier.
/// By MCP, agents get descriptions, annotations, progress, logs and content as the target gives them. --protocol is about the clients, but it
/// may change this order. On standard input and output without --protocol, and over TCP with --protocol gevals but without --limit, --confirm and
/// --record, it is gevals, MCP, Amplifier. With --protocol amplifier or namel3ss it is Amplifier, MCP, gevals. With --read-only or --allow it is
/// always MCP, gevals, Amplifier. If the target is a URL, its path decides.
///
/// With --tcp and --http the server also starts without the board. Until it comes, a request that needs it gets an error that says what is
/// missing. Clients of MCP have until then the tools that are known, or `find_board`, which says what is missing. They are told when the
/// board comes, goes, or has other operations, and when another target is started again with others. On standard input and output, a gevals host
/// waits for the board: see `rigline help bridge`.
///
/// On SIGTERM the running calls are finished.
///
/// A client can call every operation. The server therefore listens on the loopback addresses by default, and answers only programs of
/// your own user where the system reports the user of a connection (see --any-user). With --token-file it answers only clients that send
/// the token: over HTTP as a bearer token, over TCP as the first line,
/// {"jsonrpc":"2.0","id":0,"method":"authenticate","params":{"token":"TOKEN"}}
///
/// With --read-only or --allow, clients see only a part of the operations, and cannot call the
/// others. The target says which operations are read-only. It does so only by MCP, as rigline's own
/// extensions do. With these options the target is asked when the server starts, and a name in
/// --allow that it does not have is an error. If the target is not there then, the choice holds for
/// what comes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rigline serve serial:auto\n  rigline serve serial:auto --protocol mcp --read-only\n  rigline serve sim --tcp 7000\n  rigline serve serial:auto --tcp 0.0.0.0:7000 --token-file rig.token\n  rigline serve serial:auto --http 8080 --protocol amplifier\n\nShort forms:\n  bridge TARGET  serve TARGET, on standard input and output\n  mcp TARGET     serve TARGET --protocol mcp, on standard input and output\n  jsonrpc        serve --protocol waza: evals for IDEs, without a target\n  rig            serve sim, in one process instead of two\n\nExit codes: 0 success, and with --tcp or --http after Ctrl-C, SIGTERM or SIGHUP; 1 failed; 2 a wrong command line or an unusable file; 3 no usable response, the address cannot be listened on, or the program of the target does not exist; 128+n ended by signal n, without --tcp and --http."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Serve lines over TCP at this address: PORT or HOST:PORT; port 0 selects a free port, which is printed. A port alone and
    /// localhost mean both loopback addresses
    #[arg(long, value_name = "[HOST:]PORT", conflicts_with = "http")]
    tcp: Option<ListenAddress>,
    /// The protocol of the clients. Over HTTP only this one is served [default: all]. Over TCP, most lines show their protocol, and this one is for
    /// lines that do not [default: gevals]. It may also change in which order protocols are tried with the target (see above). `serve --protocol
    /// waza` serves evals instead of a target: see `rigline help jsonrpc`
    #[arg(long, value_parser = protocol::parser(|protocol| protocol.lines.is_some() || protocol.http.is_some()))]
    protocol: Option<&'static Protocol>,
    #[command(flatten)]
    tools: Tools,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    http: HttpArguments,
    /// How many TCP clients are served at the same time
    #[arg(long, value_name = "N", default_value_t = 64)]
    clients: usize,
}

impl Arguments {
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        let protocol = self.protocol.unwrap_or(protocols::ALL[0]);
        let is_of_agents = protocols::of_agents() == Some(protocol);
        let has_evals = self.tools.evals.is_some();
        let is_offered = is_of_agents || self.protocol.is_none();
        if let Some(address) = self.http.http.as_ref().filter(|_| is_offered || !has_evals) {
            let way = Way::Http(&self.http, address, self.protocol);
            let credentials = Credentials::default();
            let offer = Offer {
                connection: self.connection.clone(),
                tools: &self.tools,
                policy: &self.policy,
                credentials: &credentials,
            };
            return offer.serve(&way);
        }
        if has_evals {
            let agents = names(|protocol| protocols::of_agents().is_some_and(|agents| agents == protocol));
            return Err(Failure::usage(format!(
                "--evals goes with --http, without --protocol or with --protocol {agents}"
            )));
        }
        let rules = Rules::read(&self.policy, &self.tools.choice, &self.connection.target)?;
        self.connection.recorder.clone_from(&rules.recorder);
        let served = self.serve(protocol, &rules);
        rules.finish();
        served
    }

    fn serve(self, protocol: &'static Protocol, rules: &Rules) -> Result<ExitCode, Failure> {
        // What is recorded is what comes from a program beside this one.
        let is_here = self.connection.target == Target::Sim && rules.recorder.is_none();
        match (self.tcp.clone(), self.http.http.clone(), protocol) {
            (Some(_), _, protocol) if protocol.lines.is_none() || protocol.is_single_document => {
                Err(Failure::usage(format!(
                    "{} is not served over TCP, only {} is: use --http",
                    protocol.title,
                    names(|protocol| protocol.lines.is_some() && !protocol.is_single_document)
                )))
            }
            (Some(_), ..) if self.http.keep_outputs => Err(Failure::usage(
                "--keep-outputs goes with --http: over TCP, shutdown leaves the outputs as they are",
            )),
            (Some(address), _, protocol) if is_here => {
                let clock = TokioClock::new();
                let rig = Rig::new(SimBoard::new(clock.clone(), 1));
                let rig = rules.over(rig, true, true)?;
                self.serve_lines(&address, protocol, clock, rig, None)
            }
            (Some(address), _, protocol) if rules.are_none() => {
                let options = self.connection.options();
                wire::ensure_program(&self.connection.target, &options).map_err(|error| Failure::of(&error))?;
                let need = match self.protocol {
                    Some(protocol) if protocol.carries(Part::Config) => ProtocolNeed::Context,
                    Some(protocol) if protocol.carries(Part::Session) => ProtocolNeed::Session,
                    _ => ProtocolNeed::Types,
                };
                let relay = Relay::watch_on_demand(self.connection.target.clone(), options, need, Arc::new(tell))?;
                let remote = relay.remote();
                self.serve_lines(&address, protocol, TokioClock::new(), relay, Some(remote))
            }
            (Some(address), _, protocol) => {
                let first = protocol::asked_first(self.protocol, rules.is_all);
                let options = self.connection.options();
                let relay = Relay::watch(&self.connection.target, options, first, None, Arc::new(tell))?;
                let (remote, is_there) = (relay.remote().partial(), relay.absence().is_none());
                let relay = rules.over(relay, is_there, true)?;
                self.serve_lines(&address, protocol, TokioClock::new(), relay, Some(remote))
            }
            (None, ..) => {
                Err(Failure::usage("the address to listen on is missing: use --tcp [HOST:]PORT, or --http [HOST:]PORT"))
            }
        }
    }

    /// Serves an extension of this process, to clients of any protocol. A message without a marker is one of this protocol.
    fn serve_lines<E: Extension>(
        &self,
        tcp: &ListenAddress,
        protocol: &Protocol,
        clock: TokioClock,
        extension: E,
        remote: Option<Remote>,
    ) -> Result<ExitCode, Failure> {
        let failed = |error: std::io::Error| Failure::no_answer(format!("{tcp}: {error}"));
        let mut server = tcp::TcpServer::bind(tcp).map_err(failed)?.clients(self.clients);
        if self.http.any_user {
            server = server.any_user();
        }
        if let Some(path) = &self.http.token_file {
            server = server.token(connect::token(path)?);
        }
        let is_sim = self.connection.target == Target::Sim && self.connection.recorder.is_none();
        // Any other target that was chosen from has got it already.
        if let Some(config) = self.connection.config.as_ref().filter(|_| is_sim || remote.is_some()) {
            server = server.config(config.as_str());
        }
        if let Some(remote) = remote {
            server = server.remote(Arc::new(remote));
        }
        self.announce(tcp, server.addresses().map_err(failed)?);
        let first = protocol.lines.into_iter();
        let protocols = first.chain(rigline::protocol::ALL.iter().copied()).collect();
        connect::run_alone(async {
            let stop = async { drop(connect::interrupted().await) };
            server.run_with(clock, protocols, extension, stop).await.map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidInput => Failure::usage(error),
                _ => failed(error),
            })?;
            Ok(connect::SUCCESS)
        })
    }

    /// Prints where clients connect.
    fn announce(&self, tcp: &ListenAddress, addresses: Vec<SocketAddr>) {
        for address in addresses {
            connect::print(&format!("serving {} on tcp:{address}\n", self.connection.target));
        }
        if !tcp.is_loopback() && self.http.token_file.is_none() {
            connect::complain(
                "rigline: anyone who can reach this address can call every operation; --token-file restricts access",
            );
        }
    }
}

/// Says what is missing.
fn tell(news: &TargetNews) {
    if let TargetNews::Absent(why) = news {
        connect::complain(format_args!("rigline: {why}; the next request looks for it"));
    }
}
