use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::Args;
use rigline_std::eval::runs::Runs;
use rigline_std::eval::server;
use rigline_std::eval::session::Hosts;
use rigline_std::eval::store::Store;
use rigline_std::signals::Signals;
use tokio::runtime;
use tokio_util::sync::CancellationToken;

use crate::connect::complain;

/// Serve evals to IDEs: JSON-RPC on standard input and output, or over TCP
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Listen on HOST:PORT instead; a port alone is on loopback
    #[arg(long, value_name = "ADDR")]
    tcp: Option<String>,
    /// Where runs are kept; among this user's state if unsaid
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// The target of evals, whatever their files say
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        match self.serve() {
            Ok(code) => code,
            Err(error) => {
                complain(format_args!("rigline: {error}"));
                ExitCode::FAILURE
            }
        }
    }

    fn serve(self) -> Result<ExitCode, String> {
        let runs = runs(self.runs, self.target)?;
        // Files are read on the threads that serve; there is one more at least for who asks meanwhile.
        let runtime = runtime().map_err(|error| error.to_string())?;
        let code = runtime.block_on(async {
            let stop = CancellationToken::new();
            let code = Arc::new(AtomicU8::new(0));
            let mut signals = Signals::new().map_err(|error| error.to_string())?;
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
            match &self.tcp {
                None => {
                    let served = server::serve_stdio(runs, stop).await;
                    served.map_err(|error| format!("standard input and output: {error}"))?;
                }
                Some(address) => {
                    let listeners = server::listen(address).await;
                    let listeners = listeners.map_err(|error| format!("cannot listen on {address}: {error}"))?;
                    for address in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
                        complain(format_args!("rigline: listening on {address}"));
                        if !address.ip().is_loopback() {
                            complain(format_args!(
                                "rigline: {address} is open to the network, and whoever connects can run evals"
                            ));
                        }
                    }
                    server::serve_tcp(listeners, runs, stop).await;
                }
            }
            Ok(ExitCode::from(code.load(Ordering::Acquire)))
        });
        runtime.shutdown_background();
        code
    }
}

/// Runs that are kept in this folder, or among the user's state.
pub(crate) fn runs(folder: Option<PathBuf>, target: Option<String>) -> Result<Runs, String> {
    let hosts = Hosts::default();
    let folder = match folder {
        Some(folder) => folder,
        None => {
            Store::default_folder().map_err(|error| format!("no place for runs: {error}; name one by --runs DIR"))?
        }
    };
    let store = Store::open(folder.clone()).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(Runs::with_connect(store, target, Arc::new(hosts)))
}

pub(crate) fn runtime() -> std::io::Result<runtime::Runtime> {
    more_files();
    let workers = std::thread::available_parallelism().map_or(4, usize::from).max(4);
    runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

/// Asks for as many open files as many runs and clients need; the usual limit is meant for less. What there is has to do, if the
/// system does not give more.
fn more_files() {
    rigline_std::process::raise_open_files(4096);
}
