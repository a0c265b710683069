use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use rigline::protocol::Protocol;
use rigline_rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::TokioClock;
use rigline_std::http::{Options, Server, Token};
use rigline_std::stdio::Stdio;

/// Serve a simulated hardware-test rig on standard input and output, or over HTTP
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What the board's identity and the noise on its readings come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u32,
    /// Take every line as one of this protocol; otherwise each line tells its own. For namel3ss, all of the input is one
    /// request
    #[arg(long, value_enum)]
    protocol: Option<ProtocolName>,
    #[command(flatten)]
    http: HttpArguments,
    /// Ignored: namel3ss starts its tools as `PROGRAM -c SOURCE`
    #[arg(short = 'c', value_name = "SOURCE", hide = true, allow_hyphen_values = true)]
    code: Option<String>,
}

/// The protocols, by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolName {
    Gevals,
    Amplifier,
    Namel3ss,
}

impl From<ProtocolName> for Protocol {
    fn from(name: ProtocolName) -> Self {
        match name {
            ProtocolName::Gevals => Self::Gevals,
            ProtocolName::Amplifier => Self::Amplifier,
            ProtocolName::Namel3ss => Self::Namel3ss,
        }
    }
}

/// How to serve over HTTP.
#[derive(Debug, Args)]
pub(crate) struct HttpArguments {
    /// Serve HTTP at this address (port 0 for a free one), for Amplifier or namel3ss hosts
    #[arg(long, value_name = "ADDRESS", requires = "protocol")]
    pub(crate) http: Option<SocketAddr>,
    /// Where namel3ss tools are called
    #[arg(long, value_name = "PATH", default_value = "/tools", requires = "http")]
    path: String,
    /// Answer only requests with the bearer token that stands in this file
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Answer to this name too, as in a `Host` of `rig.example.org`
    #[arg(long, value_name = "NAME", requires = "http")]
    allow_host: Vec<String>,
    /// Answer web pages of this origin too, such as `https://bench.example.org`
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
}

impl HttpArguments {
    /// Listens, and says where on standard output.
    pub(crate) fn bind(&self, address: SocketAddr, protocol: ProtocolName) -> Result<Server, String> {
        let mut options = match protocol {
            ProtocolName::Amplifier => Options::amplifier(),
            ProtocolName::Namel3ss => Options::namel3ss().path(&self.path),
            ProtocolName::Gevals => return Err("gevals is not spoken over HTTP".into()),
        };
        if let Some(path) = &self.token_file {
            options = options.token(Token::from_file(path).map_err(|error| format!("{}: {error}", path.display()))?);
        } else if !address.ip().is_loopback() {
            eprintln!("rigline: everybody who can reach {address} can drive it: see --token-file");
        }
        options = self.allow_host.iter().fold(options, Options::allow_host);
        options = self.allow_origin.iter().fold(options, Options::allow_origin);
        let server = Server::bind(address, options).map_err(|error| format!("{address}: {error}"))?;
        println!("listening on http://{}", server.address().map_err(|error| error.to_string())?);
        Ok(server)
    }
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        if let (Some(address), Some(protocol)) = (self.http.http, self.protocol) {
            return serve_http(&self.http, address, protocol, self.seed);
        }
        let clock = TokioClock::new();
        let mut stdio = Stdio::new().clock(clock.clone());
        if let Some(protocol) = self.protocol {
            stdio = stdio.protocol(protocol.into());
        }
        if self.protocol == Some(ProtocolName::Namel3ss) {
            stdio = stdio.one_text();
        }
        stdio.serve(Rig::new(SimBoard::new(clock, self.seed), stdio.limits()))
    }
}

/// Serves the simulated rig over HTTP.
pub(crate) fn serve_http(http: &HttpArguments, address: SocketAddr, protocol: ProtocolName, seed: u32) -> ExitCode {
    let result = http.bind(address, protocol).and_then(|server| {
        let make = move |surroundings: &rigline_std::http::Surroundings| {
            Rig::new(SimBoard::new(surroundings.clock.clone(), seed), surroundings.limits)
        };
        server.run(make).map_err(|error| error.to_string())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rigline: {error}");
            ExitCode::FAILURE
        }
    }
}
