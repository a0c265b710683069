use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::Args;
use rigline_eval::Root;
use rigline_eval::runs::Runs;
use rigline_eval::server;
use rigline_eval::session::Hosts;
use rigline_eval::store::Store;
use rigline_std::net::{Access, ListenAddress, Token};
use rigline_std::signals::Signals;
use tokio_util::sync::CancellationToken;

use crate::connect::{self, Failure, complain};

/// Serve evals to IDEs by waza's protocol: JSON-RPC on standard input and output, or over TCP
///
/// A client can list, read and run the evals below one folder (--root). An eval may start any
/// program, so a client can run programs as you. Over TCP a client must therefore send a token as
/// its first line, and belong to your own user:
///
///   {"jsonrpc":"2.0","id":0,"method":"authenticate","params":{"token":"TOKEN"}}
///
/// The token is printed on standard error with the address, unless it is in a file that
/// --token-file names.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  rigline jsonrpc\n  rigline jsonrpc --tcp localhost:9000 --root evals --token-file ~/.rigline-token\n\nExit codes: 0 end of input, 1 standard input or output failed, 2 a wrong command line or an unusable file, 3 the address cannot be listened on, 128+n after signal n."
)]
pub(crate) struct Arguments {
    /// Listen on HOST:PORT, instead of standard input and output; a port alone and localhost mean
    /// both loopback addresses; port 0 selects a free port
    #[arg(long, value_name = "[HOST:]PORT")]
    tcp: Option<ListenAddress>,
    /// Accept only clients that send the token in this file. Without this option a new token is
    /// made
    #[arg(long, value_name = "FILE", requires = "tcp", conflicts_with = "no_token")]
    token_file: Option<PathBuf>,
    /// Accept clients without a token. Every client that is accepted can run programs as you. A
    /// client of another user of this machine is refused only if the system reports the user of the
    /// connection. On an address other than loopback, everyone in the network is accepted
    #[arg(long, requires = "tcp")]
    no_token: bool,
    /// Accept clients of other users of this machine too
    #[arg(long, requires = "tcp")]
    any_user: bool,
    /// The folder that evals are read from, and that relative paths begin at. Paths and links that
    /// lead out of it are refused
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// The folder for the records of runs [default: the user's state folder]
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// The target of all evals, instead of the one in their files
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let root = Root::new(&self.root);
        let root = root.map_err(|error| Failure::usage(format!("--root {}: {error}", self.root.display())))?;
        let access = self.access()?;
        let runs = Runs::with_connect(store(self.runs.clone())?, self.target.clone(), Arc::new(Hosts::default()));
        let listeners = self.tcp.as_ref().map(|address| {
            address.bind().map_err(|error| Failure::no_answer(format!("cannot listen on {address}: {error}")))
        });
        let listeners = listeners.transpose()?;
        connect::on_threads(async {
            let stop = CancellationToken::new();
            let code = Arc::new(AtomicU8::new(0));
            let mut signals = Signals::new().map_err(Failure::failed)?;
            let watch = {
                let (runs, stop, code) = (runs.clone(), stop.clone(), code.clone());
                async move {
                    code.store(signals.next().await, Ordering::Release);
                    // Cleanup steps run; a second signal ends at once.
                    runs.cancel_all();
                    stop.cancel();
                    std::process::exit(signals.next().await.into());
                }
            };
            tokio::spawn(watch);
            match listeners {
                None => {
                    let served = server::serve_stdio(runs, root, stop).await;
                    served.map_err(|error| Failure::failed(format!("standard input and output: {error}")))?;
                }
                Some(listeners) => {
                    announce(&listeners, &access, self.token_file.as_deref());
                    let served = server::serve_tcp(listeners, runs, root, access, stop).await;
                    served.map_err(Failure::failed)?;
                }
            }
            Ok(ExitCode::from(code.load(Ordering::Acquire)))
        })
    }

    fn access(&self) -> Result<Access, Failure> {
        let mut access = Access::same_user();
        if self.any_user {
            access = access.with_any_user();
        }
        Ok(match &self.token_file {
            Some(path) => access.with_token(connect::token(path)?),
            None if self.no_token => access,
            None => access.with_token(Token::random()),
        })
    }
}

/// Prints the addresses and the token on standard error.
fn announce(listeners: &[std::net::TcpListener], access: &Access, token_file: Option<&Path>) {
    for address in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
        complain(format_args!("rigline: listening on {address}"));
        if !address.ip().is_loopback() {
            let who = if access.token.is_some() { "who has the token" } else { "everybody who connects" };
            complain(format_args!("rigline: {address} is open to the network, and {who} can run programs as you"));
        }
    }
    match (&access.token, token_file) {
        (Some(_), Some(path)) => complain(format_args!("rigline: the token is in {}", path.display())),
        (Some(token), None) => complain(format_args!("rigline: token {}", token.reveal())),
        (None, _) => complain("rigline: no token is required: every client can run programs as you"),
    }
}

/// The runs in this folder, or those among the user's state.
pub(crate) fn store(folder: Option<PathBuf>) -> Result<Store, Failure> {
    let folder = match folder {
        Some(folder) => folder,
        None => Store::default_folder()
            .map_err(|error| Failure::usage(format!("no place for runs: {error}; name one by --runs DIR")))?,
    };
    Store::open(folder.clone()).map_err(|error| Failure::usage(format!("--runs {}: {error}", folder.display())))
}
