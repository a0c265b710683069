use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rigline::serve::Transport;
use rigline_host::choose::ProtocolNeed;
use rigline_host::lines;
use rigline_host::protocol::Protocol;
use rigline_host::relay::Relay;
use rigline_host::target::Target;
use rigline_std::TokioClock;
use rigline_std::queue::{Queue, QueueClient, Settings};
use rigline_std::stdio::{self, HOST_LINE_LIMIT, Stdio};

use crate::connect::{self, Connection, Failure};
use crate::out;
use crate::protocol::{self, DEFAULT};
use crate::record::{self, RecordArguments};

/// Expose a device as an extension on standard input and output
///
/// A gevals host can only start programs. By the bridge it can use a board on a serial port, or a
/// TCP server. The bridge connects at the first request. It waits for a port that is in use, and for
/// a board that is not plugged in (60 s, or --wait), and says so by a log and on standard error. It
/// reconnects after a loss. A call that the loss interrupts is answered with error
/// -32000. Logs are forwarded at once. If a request is too long for the device, the bridge leaves
/// out the members `agent` and `env` of its `context`, and logs that. For gevals hosts outputs are
/// strings, whatever protocol the device speaks.
///
/// With --protocol amplifier or namel3ss the device is exposed as an Amplifier module or a namel3ss tool, and the command connects at once.
///
/// A device may answer several protocols. The bridge tries them in this order, and asks the device by the first one that it answers: gevals, MCP,
/// Amplifier. With --protocol amplifier or namel3ss the order is Amplifier, MCP, gevals. With --protocol mcp it is MCP, gevals, Amplifier. If the
/// target is a URL, its path decides.
///
/// The bridge refuses a call whose arguments break the operation's schema, and does not send it.
/// The command ends with 0 after shutdown, and at the end of input.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A gevals host starts an extension without arguments. Therefore it starts a shim, which starts the bridge:\n  rigline install gevals serial:auto -o rig-extension\n\nIn the host's eval file:\n  extensions:\n    rig:\n      package: ./rig-extension"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    record: RecordArguments,
    /// The protocol on standard input and output. For namel3ss, the whole input is one request
    #[arg(long, value_parser = protocol::parser(|protocol| protocol.lines.is_some()), default_value = DEFAULT)]
    protocol: &'static Protocol,
    /// The longest line that is sent to a gevals host, in bytes. Real gevals hosts stop reading at
    /// a line of more than 65535 bytes
    #[arg(long, alias = "line-limit", value_name = "BYTES", default_value_t = HOST_LINE_LIMIT)]
    reply_limit: usize,
    /// Ignored: namel3ss starts its tools as `PROGRAM -c SOURCE`
    #[arg(short = 'c', value_name = "SOURCE", hide = true, allow_hyphen_values = true)]
    code: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.protocol.name == DEFAULT {
            return connect::run_alone(self.recorded());
        }
        if self.record.is_wanted() {
            return Err(Failure::usage(format!("--record: --protocol {} is not recorded", self.protocol.name)));
        }
        self.relay()
    }

    async fn recorded(mut self) -> Result<u8, Failure> {
        if self.record.is_wanted() && matches!(self.connection.target, Target::Http(_)) {
            return Err(Failure::usage("--record: HTTP is not recorded"));
        }
        let recorder = self.record.begin(&self.connection.target.to_string())?;
        self.connection.recorder.clone_from(&recorder);
        let ended = self.bridge().await;
        let Some(recorder) = recorder else { return ended };
        let code = ended.as_ref().map_or_else(|failure| failure.code, |code| *code);
        let code = record::finish(&recorder, &[], code);
        ended.map(|_| code)
    }

    fn relay(self) -> Result<ExitCode, Failure> {
        // Where results have content, it passes as it is only if the target is asked by that protocol too.
        let first = self.protocol.lines.is_some_and(rigline::protocol::Protocol::has_content).then_some(self.protocol);
        let relay = Relay::connect_by(&self.connection.target, self.connection.options(), first)?;
        let mut stdio = Stdio::new();
        if let Some(lines) = self.protocol.lines {
            stdio = stdio.protocol(lines);
        }
        if self.protocol.is_single_document {
            stdio = stdio.single_document();
        }
        Ok(stdio.serve(relay))
    }

    async fn bridge(self) -> Result<u8, Failure> {
        let mut options = self.connection.options();
        if options.wait.is_zero() {
            options.wait = Duration::from_secs(60);
        }
        let config = options.config.as_ref().map(ToString::to_string);
        let relay = Relay::on_demand(self.connection.target, options, ProtocolNeed::Context)?;
        let protocols = self.protocol.lines.into_iter().chain(rigline::protocol::ALL.iter().copied()).collect();
        let settings = Settings {
            config,
            remote: Some(Arc::new(relay.remote())),
            ..Settings::of_lines(protocols, (REQUEST, self.reply_limit.max(LEAST_REPLY)))
        };
        let (queue, working) = Queue::over(relay, settings, TokioClock::new());
        let (queue, mut working) = (Arc::new(queue), pin!(working));
        let (input, output, client) = (tokio::io::stdin(), out::Bytes::new(), QueueClient::of_process());
        let ended = tokio::select! {
            _ = lines::serve(&queue, client, input, output, Transport::Stdio, std::future::pending()) => Ok(connect::SUCCESS),
            // The caller is gone: the running call is cancelled.
            () = stdio::unread() => Ok(connect::SUCCESS),
            interruption = connect::interrupted() => Err(interruption),
            failed = &mut working => return failed.map(|()| connect::SUCCESS).map_err(Failure::failed),
        };
        queue.close();
        let _ = tokio::time::timeout(SAFE_STATE, working).await;
        ended
    }
}

/// The longest request, in bytes.
const REQUEST: usize = 8 << 20;
/// The least limit of a reply, in bytes.
const LEAST_REPLY: usize = 600;
/// How long the device has to bring about its safe state at the end.
const SAFE_STATE: Duration = Duration::from_secs(5);
