use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rigline_cli::web::{Options, WebServer};
use rigline_eval::Root;
use rigline_eval::session::Hosts;
use rigline_eval::store::Store;
use rigline_host::local::in_process;
use rigline_host::record::Recorder;
use rigline_host::target::Target;
use rigline_host::{JsonObject, wire};
use rigline_rig::rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::net::{ListenAddress, Token};
use tokio::task::LocalSet;

use crate::connect::{self, Connection, Failure, complain};
use crate::jsonrpc;

/// How long the rig has to bring about its safe state at the end.
const SAFE_STATE: Duration = Duration::from_secs(2);

/// Serve a web page for a rig: call operations, plot outputs, read transcripts, run evals
///
/// Open the URL that it prints in a browser. The URL contains a token: everyone who has it can call every operation of
/// the target. Without a target, the page offers the serial ports that are plugged in, and the built-in rig (`sim`).
///
/// When the browser is closed, the running call is cancelled and the rig switches its outputs off.
///
/// With --evals DIR, the page also runs the evals in that folder. An eval may start any program.
///
/// With --port and --keep-token, the page's address stays the same. A page that is open in a
/// browser then reconnects when the server is started again.
///
/// With --record DIR, all lines between the server and the target are kept there, even if the
/// server runs for days. --record-limit limits their size. `rigline replay FILE` shows a file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rigline web sim\n  rigline web serial:auto --evals evals\n  rigline web serial:auto --port 7080 --keep-token --record ~/rig-days"
)]
pub(crate) struct Arguments {
    /// The target of the page: serial:auto, `exec:PROGRAM ARGS`, a path, tcp:HOST:PORT, or sim for the built-in rig
    target: Option<Target>,
    /// How long an attempt to connect waits for a busy port, or for a device that is not plugged in, such as 60s [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, default_value = "0s", hide_default_value = true)]
    wait: Duration,
    /// The extension's settings: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE", value_parser = connect::config)]
    config: Option<JsonObject>,
    /// Listen on HOST:PORT; a port alone and localhost mean both loopback addresses; port 0 selects a free port
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:0")]
    listen: ListenAddress,
    /// Listen on this port of both loopback addresses: the same as --listen PORT
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    port: Option<u16>,
    /// Keep what passes between the server and the target in this folder, as transcripts: one or more files for each day (UTC). The
    /// folder is made for you only, and so are the files
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// The largest size of all files of --record together, in megabytes. When it is exceeded, the
    /// oldest files are removed
    #[arg(long, value_name = "MB", requires = "record", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    record_limit: u64,
    /// Let the page run the evals in this folder
    #[arg(long, value_name = "DIR")]
    evals: Option<PathBuf>,
    /// The folder for the records of runs [default: the user's state folder]
    #[arg(long, value_name = "DIR", requires = "evals")]
    runs: Option<PathBuf>,
    /// Take the token of the page's address from this file, instead of making a new one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Use the same token each time. It is kept in the user's state folder, in a file that only this user can read
    #[arg(long, conflicts_with = "token_file")]
    keep_token: bool,
    /// Also answer other users of this machine, if they have the token
    #[arg(long)]
    any_user: bool,
    /// Also answer requests to this host name, such as `rig.example.org`
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Also answer web pages of this origin, such as `https://bench.example.org`
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Show debug logs, standard error and skipped lines
    #[arg(short, long)]
    verbose: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        connect::on_threads(self.serve()).map(|()| ExitCode::SUCCESS)
    }

    async fn serve(self) -> Result<(), Failure> {
        let token = match &self.token_file {
            Some(path) => connect::token(path)?,
            None if self.keep_token => kept_token()?,
            None => Token::random(),
        };
        let listen = match self.port {
            Some(port) => {
                port.to_string().parse().map_err(|error| Failure::usage(format!("--port {port}: {error}")))?
            }
            None => self.listen.clone(),
        };
        // The built-in rig needs no other process.
        let (sim, rigs) = in_process("sim", |clock, _| Rig::new(SimBoard::new(clock, 1)));
        let mut connection = Connection::to(self.target.clone().unwrap_or(Target::Sim));
        (connection.verbose, connection.quiet) = (self.verbose, !self.verbose);
        (connection.wait, connection.config) = (self.wait, self.config.clone());
        connection.recorder = self.begin_recording()?;
        let recorder = connection.recorder.clone();
        let mut options = Options::new(token).host(connection.options()).sim(sim);
        if let Some(target) = self.target.clone() {
            if target != Target::Sim {
                // The user learns at once of a target that no page can reach.
                let checked = wire::dialer(&target, &connection.options());
                let checked = checked.and_then(|_| wire::ensure_program(&target, &connection.options()));
                checked.map_err(|error| Failure::of(&error))?;
            }
            #[cfg(target_os = "linux")]
            if let Target::Rig(selector) = &target {
                options = options.lab(crate::lab::told(selector));
            }
            options = options.target(target);
        }
        if self.any_user {
            options = options.any_user();
        }
        options = self.allow_host.iter().fold(options, Options::allow_host);
        options = self.allow_origin.iter().fold(options, Options::allow_origin);
        if let Some(folder) = &self.evals {
            let root = Root::new(folder);
            let root = root.map_err(|error| Failure::usage(format!("--evals {}: {error}", folder.display())))?;
            let store = jsonrpc::store(self.runs.clone())?;
            options = options.evals(root, store, Hosts::default());
        }
        let address = &listen;
        let failed = |error: std::io::Error| Failure::no_answer(format!("cannot listen on {address}: {error}"));
        let server = WebServer::bind(address, options).map_err(failed)?;
        let what = self.target.as_ref().map_or_else(|| "what is plugged in".to_owned(), ToString::to_string);
        connect::print(&format!("serving {what} at {}\n", server.url().map_err(failed)?));
        if !address.is_loopback() {
            complain(format_args!(
                "rigline: {address} is open to the network, and the token crosses it in the clear; Web Serial works on localhost and over https only"
            ));
        }
        let local = LocalSet::new();
        local.spawn_local(rigs);
        let served = local
            .run_until(server.run_until(async {
                connect::interrupted().await;
                // Evals may have cleanup steps to run. A second signal ends at once.
                tokio::spawn(async { std::process::exit(connect::interrupted().await.code.into()) });
            }))
            .await;
        // A rig without connections ends, in its safe state.
        let _ = tokio::time::timeout(SAFE_STATE, local).await;
        if let Some(recorder) = recorder {
            let _ = recorder.finish(0);
        }
        served.map_err(failed)
    }

    fn begin_recording(&self) -> Result<Option<Arc<Recorder>>, Failure> {
        let Some(folder) = &self.record else { return Ok(None) };
        let target = self.target.as_ref().map_or_else(String::new, ToString::to_string);
        let recorder = Recorder::days(folder, &target, self.record_limit.saturating_mul(1_000_000));
        let failed = |error| Failure::usage(format!("--record {}: {error}", folder.display()));
        recorder.map(|recorder| Some(Arc::new(recorder))).map_err(failed)
    }
}

/// The token that is the same each time.
fn kept_token() -> Result<Token, Failure> {
    let runs = Store::default_folder();
    let runs = runs.map_err(|error| Failure::usage(format!("--keep-token: no place for the token: {error}")))?;
    let path = runs.with_file_name("web-token");
    Token::kept(&path).map_err(|error| Failure::usage(format!("--keep-token {}: {error}", path.display())))
}
