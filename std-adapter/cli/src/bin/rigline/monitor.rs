use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rigline_host::decode::Decoder;
use rigline_host::protocols;
use rigline_host::record::Recorder;
use rigline_host::target::Target;
use rigline_host::{Child, EventKind, ProcessExit, record::transcript::Direction, wire};
use rigline_std::stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::connect::{self, Connection, Failure};
use crate::out::{self, Style};

/// Show the traffic with an extension, decoded
///
/// The monitor passes every byte between its standard input and output and the target, and shows the lines of both directions on standard error,
/// with faults marked. The protocol of each line is detected. To watch a host, have it start `rigline monitor ./my-extension` instead
/// of `./my-extension`. On a terminal, type requests. The command ends with the program or the connection, and on Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rigline monitor serial:auto\n  rigline monitor --record session.jsonl sim < requests.jsonl\n  rigline replay session.jsonl sim\n\nExit codes: 0 the program ended with 0, or the server closed the connection after the end of input; 1 the program ended with another code; 2 a wrong command line or an unusable file; 3 the device or the connection was lost, or could not be opened; 128+n ended by signal n."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Write all lines with their times into this file. `rigline replay FILE` shows it, and sends it again
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        connect::run(self.monitor())
    }

    async fn monitor(self) -> Result<u8, Failure> {
        let mut options = self.connection.options();
        options.recorder = self.begin_recording()?;
        let dialer = wire::dialer(&self.connection.target, &options).map_err(|error| Failure::of(&error))?;
        let mut view = View::live();
        let wire = wire::open(&*dialer, &options, options.wait).await;
        let mut wire = wire.map_err(|error| Failure::of(&error))?;
        let others = wire.control.as_ref().map(|control| control.others()).unwrap_or_default();
        if !others.is_empty() {
            view.fault(&EventKind::AlsoOpen(others).to_string());
        }
        let stderr = wire.stderr.take().map(|stderr| tokio::spawn(show_errors(stderr)));
        // On a terminal the view alone is enough.
        let passes = !std::io::stdout().is_terminal();
        let (mut input, mut output) = (tokio::io::stdin(), out::Bytes::new());
        let (mut sent, mut chunk, mut got) = (vec![0; 64 * 1024], vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let (mut to, mut from) = (Lines::new(Direction::Sent), Lines::new(Direction::Received));
        // What was read from standard input and the target has not taken yet. The target is read meanwhile: it may take no more
        // before its output is read.
        let mut untaken = 0..0;
        let mut input_ended = false;
        let mut unread = pin!(stdio::unread());
        let mut code = connect::SUCCESS;
        loop {
            tokio::select! {
                written = async {
                    match wire.writer.write(sent.get(untaken.clone()).unwrap_or_default()).await {
                        Ok(0) => Err(std::io::ErrorKind::WriteZero.into()),
                        written => written,
                    }
                }, if !untaken.is_empty() => {
                    let flushed = match written {
                        Ok(written) => {
                            untaken.start += written;
                            wire.writer.flush().await
                        }
                        Err(error) => Err(error),
                    };
                    if let Err(error) = flushed {
                        view.fault(&format!("nothing more can be sent: {error}"));
                        (untaken, input_ended) = (0..0, true);
                    }
                }
                read = input.read(&mut chunk), if !input_ended && untaken.is_empty() => match read {
                    Ok(read) if read > 0 => {
                        std::mem::swap(&mut sent, &mut chunk);
                        to.take(sent.get(..read).unwrap_or_default(), &mut view);
                        untaken = 0..read;
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
                            view.fault("device disconnected: the connection was closed");
                            code = connect::NO_ANSWER;
                        }
                        break;
                    }
                    Err(error) => {
                        view.fault(&format!("device disconnected: {error}"));
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
            code = code_of(child, &mut view, code).await;
        }
        if let Some(stderr) = stderr {
            let _ = tokio::time::timeout(Duration::from_millis(200), stderr).await;
        }
        Ok(options.recorder.map_or(code, |recorder| crate::record::finish(&recorder, &[], code)))
    }

    fn begin_recording(&self) -> Result<Option<Arc<Recorder>>, Failure> {
        let Some(path) = &self.record else { return Ok(None) };
        let recorder = Recorder::file(path, &self.connection.target.to_string());
        recorder.map(|recorder| Some(Arc::new(recorder))).map_err(|error| crate::files::failed(path, &error))
    }
}

/// The exit code of a program that has closed its output; `code` where it ended well.
async fn code_of(child: &Child, view: &mut View, code: u8) -> u8 {
    let Ok(exit) = tokio::time::timeout(Duration::from_secs(2), child.ended()).await else {
        view.fault("it closed its output, or its output is not read, and it is still running");
        return connect::FAILED;
    };
    view.say(&format!("ended: {exit}"));
    match exit {
        ProcessExit::Code(0) => code,
        ProcessExit::Signal(signal) => u8::try_from(signal).ok().and_then(|it| it.checked_add(128)).unwrap_or(1),
        _ => connect::FAILED,
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

/// The longest line that is stored.
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

/// The shown parts.
pub(crate) struct View {
    decoder: Decoder,
    began: SystemTime,
    /// The time of the current line or event since the beginning; the present time if there is
    /// none.
    at: Option<Duration>,
}

impl View {
    /// Shows what happens, on standard error.
    fn live() -> Self {
        let decoder = Decoder::new(protocols::ALL.iter().filter_map(|protocol| protocol.reading));
        Self { decoder, began: SystemTime::now(), at: None }
    }

    /// Shows a recording that began then, on standard output.
    pub(crate) fn recorded(began: SystemTime) -> Self {
        Self { began, at: Some(Duration::ZERO), ..Self::live() }
    }

    /// Advances to an event that was recorded this long after the beginning.
    pub(crate) fn go_to(&mut self, at: Duration) {
        self.at = Some(at);
        self.decoder.go_to(at);
    }

    pub(crate) fn line(&mut self, direction: Direction, bytes: &[u8]) {
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

    pub(crate) fn say(&self, text: &str) {
        self.print(Style::Dim, text);
    }

    pub(crate) fn fault(&self, text: &str) {
        self.print(Style::Bad, &format!("  ! {text}"));
    }

    fn print(&self, style: Style, text: &str) {
        let Some(at) = self.at else {
            out::complain_in(style, format_args!("{} {text}", connect::clock_time(SystemTime::now())));
            return;
        };
        let time = connect::clock_time(self.began.checked_add(at).unwrap_or(self.began));
        out::print_text(&out::Text::new().styled(style, &format!("{time} {text}")).plain("\n"));
    }
}
