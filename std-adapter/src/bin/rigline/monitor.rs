use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use rigline::json::Json;
use rigline_std::host::{Direction, EventKind, Exit, wire};
use rigline_std::protocols;
use rigline_std::stdio;
use rigline_std::target::Target;
use rigline_std::traffic::Decoder;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::connect::{self, Connection, Failure};
use crate::files;
use crate::out::{self, Style};
use crate::transcript;

/// Show the traffic with an extension, decoded
///
/// Passes every byte between its standard input and output and the target, and shows the lines of both directions on standard error,
/// with faults marked. The protocol of each line is detected. To watch a host, have it start `rigline monitor ./my-extension` instead
/// of `./my-extension`. On a terminal, type requests. The command ends with the program or the connection, and on Ctrl-C.
///
/// Exit codes: 0 the program ended with 0, or the server closed the connection after the end of input; 1 the program ended with another
/// code; 2 usage; 3 the device or the connection was lost, or could not be opened; 128+n ended by signal n.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rigline monitor serial:auto\n  rigline monitor --record session.jsonl sim < requests.jsonl\n  rigline replay session.jsonl sim"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Write a transcript, which `rigline replay` plays again
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        connect::run(self.monitor())
    }

    async fn monitor(self) -> Result<u8, Failure> {
        let options = self.connection.options();
        let dialer = wire::dialer(&self.connection.target, &options).map_err(|error| Failure::of(&error))?;
        let mut view = View::new(&self)?;
        let wire = wire::open(&*dialer, &options, options.wait).await;
        let mut wire = wire.map_err(|error| Failure::of(&error))?;
        let others = wire.control.as_ref().map(|control| control.others()).unwrap_or_default();
        if !others.is_empty() {
            view.fault(&EventKind::AlsoOpen(others).to_string());
        }
        let stderr = wire.stderr.take().map(|stderr| tokio::spawn(show_errors(stderr)));
        // On a terminal the view alone is enough.
        let passes = !std::io::stdout().is_terminal();
        let (mut input, mut output) = (tokio::io::stdin(), tokio::io::stdout());
        let (mut sent, mut got) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let (mut to, mut from) = (Lines::new(Direction::Sent), Lines::new(Direction::Received));
        let mut input_ended = false;
        let mut unread = pin!(stdio::unread());
        let mut code = connect::SUCCESS;
        loop {
            tokio::select! {
                read = input.read(&mut sent), if !input_ended => match read {
                    Ok(read) if read > 0 => {
                        let bytes = sent.get(..read).unwrap_or_default();
                        to.take(bytes, &mut view);
                        let passed = async {
                            wire.writer.write_all(bytes).await?;
                            wire.writer.flush().await
                        };
                        if let Err(error) = passed.await {
                            view.fault(&format!("nothing more can be sent: {error}"));
                            input_ended = true;
                        }
                    }
                    _ => {
                        to.end(&mut view);
                        input_ended = true;
                        if wire.child.is_some() {
                            wire.writer = Box::new(tokio::io::sink());
                        } else if !std::io::stdin().is_terminal() {
                            let _ = wire.writer.shutdown().await;
                        }
                    }
                },
                read = wire.reader.read(&mut got) => match read {
                    Ok(read) if read > 0 => {
                        let bytes = got.get(..read).unwrap_or_default();
                        from.take(bytes, &mut view);
                        if passes && (output.write_all(bytes).await.is_err() || output.flush().await.is_err()) {
                            break;
                        }
                    }
                    Ok(_) => {
                        // A server may close a connection on which nothing more will be asked.
                        let is_over = input_ended && matches!(self.connection.target, Target::Tcp(_));
                        if wire.child.is_none() && !is_over {
                            view.fault("device gone: the connection was closed");
                            code = connect::NO_ANSWER;
                        }
                        break;
                    }
                    Err(error) => {
                        view.fault(&format!("device gone: {error}"));
                        code = connect::NO_ANSWER;
                        break;
                    }
                },
                () = &mut unread, if passes => {
                    wire.writer = Box::new(tokio::io::sink());
                    break;
                }
            }
        }
        from.end(&mut view);
        if let Some(child) = &wire.child {
            match tokio::time::timeout(Duration::from_secs(2), child.ended()).await {
                Ok(exit) => {
                    view.say(&format!("ended: {exit}"));
                    code = match exit {
                        Exit::Code(0) => code,
                        Exit::Signal(signal) => {
                            u8::try_from(signal).ok().and_then(|it| it.checked_add(128)).unwrap_or(1)
                        }
                        _ => connect::FAILED,
                    };
                }
                Err(_) => {
                    view.fault("it closed its output, or its output is not read, and it is still running");
                    code = connect::FAILED;
                }
            }
        }
        if let Some(stderr) = stderr {
            let _ = tokio::time::timeout(Duration::from_millis(200), stderr).await;
        }
        Ok(code)
    }
}

/// Shows what a program writes to its standard error, a line at a time.
async fn show_errors(stderr: wire::Reader) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut stderr).take(SHOWN).read_until(b'\n', &mut line).await {
        connect::complain(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

/// The longest line of standard error that is shown as one, in bytes.
const SHOWN: u64 = 4096;

/// Cuts a direction's bytes into lines, however they are passed.
struct Lines {
    direction: Direction,
    line: Vec<u8>,
    /// The line is over the limit, and its length is counted only.
    dropped: usize,
}

/// The longest line that is kept.
const KEPT: usize = 16 << 20;

impl Lines {
    fn new(direction: Direction) -> Self {
        Self { direction, line: Vec::new(), dropped: 0 }
    }

    fn take(&mut self, bytes: &[u8], view: &mut View) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > KEPT {
                self.dropped += self.line.len() + piece.len();
                self.line.clear();
            } else {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                self.end(view);
            }
        }
    }

    fn end(&mut self, view: &mut View) {
        if self.dropped > 0 {
            view.fault(&format!("a line of {} bytes", self.dropped + self.line.len()));
        } else if !self.line.is_empty() {
            view.line(self.direction, self.line.trim_ascii_end());
        }
        self.line.clear();
        self.dropped = 0;
    }
}

/// What is shown, and recorded.
struct View {
    started: Instant,
    record: Option<File>,
    decoder: Decoder,
}

impl View {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let record = arguments.record.as_deref().map(|path| {
            let is_transcript = |json: Json<'_>| {
                json.get("rigline").and_then(|kind| kind.text()).is_some_and(|kind| kind == "transcript")
            };
            files::record(path, &transcript::header(&arguments.connection.target.to_string()), is_transcript)
        });
        let record = record.transpose()?;
        let decoder = Decoder::new(protocols::ALL.iter().filter_map(|protocol| protocol.reading));
        Ok(Self { started: Instant::now(), record, decoder })
    }

    fn line(&mut self, direction: Direction, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            let entry = transcript::line(self.started.elapsed().as_millis(), direction, bytes);
            if record.write_all(entry.as_bytes()).is_err() {
                self.record = None;
                self.fault("the transcript cannot be written to");
            }
        }
        let (arrow, style) = match direction {
            Direction::Sent => ("→", Style::Sent),
            Direction::Received => ("←", Style::Received),
        };
        let (what, fault) = self.decoder.decode(direction, bytes);
        self.print(style, &format!("{arrow} {what}"));
        if let Some(fault) = fault {
            self.fault(&fault);
        }
        let text: String = String::from_utf8_lossy(bytes).chars().take(2000).collect();
        self.print(Style::Dim, &format!("    {text}"));
    }

    fn say(&self, text: &str) {
        self.print(Style::Dim, text);
    }

    fn fault(&self, text: &str) {
        self.print(Style::Bad, &format!("  ! {text}"));
    }

    fn print(&self, style: Style, text: &str) {
        out::complain_in(style, format_args!("{} {text}", connect::clock_time(SystemTime::now())));
    }
}
