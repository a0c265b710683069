use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use rigline_host::protocol::Protocol;
use rigline_host::protocols;
use rigline_rig::rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::TokioClock;
use rigline_std::between::Between;
use rigline_std::http::{HttpServer, Options, Routes, ServerInfo};
use rigline_std::net::ListenAddress;
use rigline_std::stdio::Stdio;

use crate::connect::{self, Failure};
use crate::policy::Rules;
use crate::protocol::{self, names};

/// Serve a simulated hardware-test rig on standard input and output, or over HTTP
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A seed for the board's identity and for the noise on its readings
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u32,
    /// Read every line by this protocol [default: detected for each line]. For namel3ss, the whole input is one request
    #[arg(long, value_parser = protocol::parser(|protocol| protocol.lines.is_some()))]
    protocol: Option<&'static Protocol>,
    /// Configure the rig with this JSON object before the first request, as a gevals session's `config` does
    #[arg(long, value_name = "JSON", conflicts_with = "http")]
    config: Option<String>,
    /// The longest line that is sent, in bytes, in any protocol [default: 65535 in gevals, 8388608
    /// in other protocols]
    #[arg(long, value_name = "BYTES", conflicts_with = "http")]
    reply_limit: Option<usize>,
    #[command(flatten)]
    http: HttpArguments,
    /// Ignored: namel3ss starts its tools as `PROGRAM -c SOURCE`
    #[arg(short = 'c', value_name = "SOURCE", hide = true, allow_hyphen_values = true)]
    code: Option<String>,
}

/// How to serve over HTTP.
#[derive(Debug, Args)]
pub(crate) struct HttpArguments {
    /// Serve HTTP at this address, for Amplifier, namel3ss and MCP hosts, or those of --protocol alone; port 0 selects a free port, which is
    /// printed. A port alone and localhost mean both loopback addresses
    #[arg(long, value_name = "[HOST:]PORT")]
    pub(crate) http: Option<ListenAddress>,
    /// The path of namel3ss tools
    #[arg(long, value_name = "PATH", default_value = "/tools", requires = "http")]
    path: String,
    /// Answer only clients that send the token in this file. HTTP clients send it as a bearer token, TCP clients as their first line
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Also answer other users of this machine
    #[arg(long)]
    pub(crate) any_user: bool,
    /// Also answer requests to this host name, such as `rig.example.org`
    #[arg(long, value_name = "NAME", requires = "http")]
    allow_host: Vec<String>,
    /// Leave the outputs on. By default they are switched off when the last session of all MCP
    /// clients ends or is idle, and when the connection of another session is lost
    #[arg(long)]
    pub(crate) keep_outputs: bool,
    /// Over HTTP in MCP: switch the outputs off when no client has sent a request for this time,
    /// such as 90s or 1h [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, requires = "http", conflicts_with = "keep_outputs")]
    idle: Option<std::time::Duration>,
    /// Also answer web pages of this origin, such as `https://bench.example.org`
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
}

impl HttpArguments {
    /// Listens, for hosts of this protocol, or of all that have routes. `between` sees what passes between agents and the extension.
    pub(crate) fn bind(
        &self,
        address: &ListenAddress,
        protocol: Option<&Protocol>,
        between: Option<Arc<dyn Between>>,
    ) -> Result<HttpServer, Failure> {
        let all = served(protocol)?;
        let mut options = all.iter().skip(1).fold(Options::new(all[0]), |options, routes| options.and(routes));
        if all.iter().any(|routes| routes.has_free_path()) {
            options = options.path(&self.path);
        }
        if let Some(path) = &self.token_file {
            options = options.token(connect::token(path)?);
        } else if !address.is_loopback() {
            connect::complain(format_args!(
                "rigline: anyone who can reach {address} can call every operation; --token-file restricts access"
            ));
        }
        if self.any_user {
            options = options.any_user();
        }
        if let Some(between) = between {
            options = options.between(between);
        }
        options = options.keep_outputs(self.keep_outputs);
        if let Some(idle) = self.idle {
            options = options.idle(Some(idle));
        }
        options = self.allow_host.iter().fold(options, Options::allow_host);
        options = self.allow_origin.iter().fold(options, Options::allow_origin);
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::InvalidInput => Failure::usage(error),
            _ => Failure::no_answer(format!("{address}: {error}")),
        };
        HttpServer::bind_all(address, options).map_err(failed)
    }
}

/// The routes that are served: those of this protocol, or all, that of agents first.
fn served(protocol: Option<&Protocol>) -> Result<Vec<&'static Routes>, Failure> {
    let Some(protocol) = protocol else {
        let first = protocols::of_agents();
        let others = protocols::ALL.iter().copied().filter(|protocol| Some(*protocol) != first);
        return Ok(first.into_iter().chain(others).filter_map(|protocol| protocol.http).collect());
    };
    match protocol.http {
        Some(routes) => Ok(vec![routes]),
        None => {
            let others = names(|protocol| protocol.http.is_some());
            Err(Failure::usage(format!("{} has no HTTP transport: use --protocol {others}", protocol.title)))
        }
    }
}

/// Prints the address of a server on standard output.
pub(crate) fn announce(server: &HttpServer, http: &HttpArguments, protocol: Option<&Protocol>) -> Result<(), Failure> {
    let addresses = server.addresses().map_err(Failure::no_answer)?;
    let path = match served(protocol)?[..] {
        [routes] if routes.has_free_path() => http.path.as_str(),
        [routes] => routes.only_path().unwrap_or_default(),
        _ => "",
    };
    for address in addresses {
        connect::print(&format!("listening on http://{address}{path}\n"));
    }
    Ok(())
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if let Some(address) = &self.http.http {
            return serve_http(&self.http, address, self.protocol, self.seed, &Rules::default());
        }
        if self.http.token_file.is_some() || self.http.any_user {
            return Err(Failure::usage("--token-file and --any-user go with --http"));
        }
        let clock = TokioClock::new();
        let mut stdio = Stdio::new().clock(clock.clone()).keep_outputs(self.http.keep_outputs);
        if let Some(lines) = self.protocol.and_then(|protocol| protocol.lines) {
            stdio = stdio.protocol(lines);
        }
        if let Some(limit) = self.reply_limit {
            stdio = stdio.reply_limit(limit);
        }
        if let Some(config) = self.config {
            stdio = stdio.config(config);
        }
        if self.protocol.is_some_and(|protocol| protocol.is_single_document) {
            stdio = stdio.single_document();
        }
        Ok(stdio.serve(Rig::new(SimBoard::new(clock, self.seed))))
    }
}

/// Serves the simulated rig over HTTP.
pub(crate) fn serve_http(
    http: &HttpArguments,
    address: &ListenAddress,
    protocol: Option<&Protocol>,
    seed: u32,
    rules: &Rules,
) -> Result<ExitCode, Failure> {
    let server = http.bind(address, protocol, None)?;
    let rules = rules.clone();
    let rig = move |clock| rules.over(Rig::new(SimBoard::new(clock, seed)), true, true);
    // What cannot be chosen is said before the server is there.
    rig(TokioClock::new())?;
    announce(&server, http, protocol)?;
    let make = move |info: &ServerInfo| rig(info.clock.clone()).unwrap_or_else(|_| unreachable!("it was made"));
    server.run(make).map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}
