use std::process::ExitCode;
use std::time::Duration;

use rigline_std::protocol::Protocol;
use rigline_std::proxy::{End, Limits, Proxy, Transport};
use rigline_std::relay::Relay;
use rigline_std::stdio::{self, HOST_LINE_LIMIT, Stdio};

use crate::connect::{self, Connection, Failure};
use crate::protocol::{self, DEFAULT};
use crate::serve;

/// Stand on standard input and output as an extension, and forward to a device
///
/// A gevals host can only start programs: this one lets it drive a board on a serial port, or a TCP server. It connects when the
/// first request comes, waits its turn for a port that is in use (60 s if --wait says nothing else), and connects anew after a loss;
/// a call that the loss cuts off is answered with error -32000. Logs pass at once. What the device has no room for in a
/// request's context (agent, env) is left out, and a log says so.
///
/// With --protocol amplifier or namel3ss it stands there as an Amplifier module or a namel3ss tool instead, and connects at once; the
/// device is asked by Amplifier's protocol if it answers that, else by gevals.
///
/// A call whose arguments break the operation's schema is refused here, and not sent.
///
/// Exit codes: 0 after shutdown, and at the end of input.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A gevals host starts an extension without arguments. So let it start a shim that starts the bridge:\n  rigline gevals-shim serial:auto -o rig-extension\n\nIn the host's eval file:\n  extensions:\n    rig:\n      package: ./rig-extension"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// What is spoken on standard input and output. For namel3ss, all of the input is one request
    #[arg(long, value_parser = protocol::parser(|protocol| protocol.lines.is_some()), default_value = DEFAULT)]
    protocol: &'static Protocol,
    /// The longest gevals line that is sent, in bytes. Real gevals hosts stop reading for good at a line of more than 65535
    #[arg(long, alias = "line-limit", value_name = "BYTES", default_value_t = HOST_LINE_LIMIT)]
    reply_limit: usize,
    /// Ignored: namel3ss starts its tools as `PROGRAM -c SOURCE`
    #[arg(short = 'c', value_name = "SOURCE", hide = true, allow_hyphen_values = true)]
    code: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        if !self.protocol.has_proxy {
            return self.relay();
        }
        connect::run_alone(self.bridge())
    }

    fn relay(self) -> ExitCode {
        let relay = match Relay::connect(&self.connection.target, self.connection.options()) {
            Ok(relay) => relay,
            Err(error) => return serve::relay_failure(error).tell(),
        };
        let mut stdio = Stdio::new();
        if let Some(lines) = self.protocol.lines {
            stdio = stdio.protocol(lines);
        }
        if self.protocol.is_single_document { stdio.one_text().serve(relay) } else { stdio.serve(relay) }
    }

    async fn bridge(self) -> Result<u8, Failure> {
        let mut options = self.connection.options();
        if options.wait.is_zero() {
            options.wait = Duration::from_secs(60);
        }
        let limits = Limits { reply: self.reply_limit.max(600), ..Limits::default() };
        let proxy = Proxy::new(self.connection.target, options, limits);
        let serving = proxy.serve(tokio::io::stdin(), tokio::io::stdout(), Transport::Process);
        tokio::select! {
            end = serving => {
                // After a loss there is nothing left to close.
                if end != End::Lost {
                    proxy.close().await;
                }
                Ok(connect::SUCCESS)
            }
            // Whoever asked is gone: what is under way is cancelled.
            () = stdio::unread() => {
                proxy.abandon().await;
                Ok(connect::SUCCESS)
            }
            interruption = connect::interrupted() => {
                proxy.abandon().await;
                Err(interruption)
            }
        }
    }
}
