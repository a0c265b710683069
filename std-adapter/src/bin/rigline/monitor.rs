use std::collections::HashMap;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use rigline::client::Log;
use rigline::json::{Json, Kind};
use rigline_std::host::{Direction, wire};
use rigline_std::stdio::HOST_LINE_LIMIT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::connect::{self, Connection, Failure};
use crate::out::{self, Style};
use crate::transcript;

/// Show the traffic with an extension, decoded
///
/// Stands between whoever writes to its standard input and the target, and passes every byte both ways. What passes is shown on
/// standard error, with faults marked: put `rigline monitor ./my-extension` where a host starts `./my-extension`. On a
/// terminal it takes requests as they are typed. It ends with the program or the connection, and on Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rigline monitor serial:auto\n  rigline monitor --record session.jsonl sim < requests.jsonl\n  rigline replay session.jsonl sim"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Write a transcript, to be played again by `rigline replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        connect::run(self.monitor())
    }

    async fn monitor(self) -> Result<u8, Failure> {
        let dialer =
            wire::dialer(&self.connection.target, &self.connection.options()).map_err(|error| Failure::of(&error))?;
        let mut wire = dialer.dial().await.map_err(|error| Failure::of(&error))?;
        let mut view = View::new(&self)?;
        let stderr = wire.stderr.take().map(|mut stderr| {
            tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::stderr()).await })
        });
        // On a terminal the view alone is enough.
        let passes = !std::io::stdout().is_terminal();
        let (mut input, mut output) = (tokio::io::stdin(), tokio::io::stdout());
        let (mut sent, mut got) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let (mut to, mut from) = (Lines::new(Direction::Sent), Lines::new(Direction::Received));
        let mut input_ended = false;
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
                            view.fault(&format!("nothing can be sent any more: {error}"));
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
                    Ok(_) => break,
                    Err(error) => {
                        view.fault(&format!("device gone: {error}"));
                        break;
                    }
                },
            }
        }
        from.end(&mut view);
        if let Some(child) = &wire.child {
            match tokio::time::timeout(Duration::from_secs(2), child.ended()).await {
                Ok(exit) => view.say(&format!("ended: {exit}")),
                Err(_) => view.fault("it closed its output, and still runs"),
            }
        }
        if let Some(stderr) = stderr {
            let _ = tokio::time::timeout(Duration::from_millis(200), stderr).await;
        }
        Ok(connect::SUCCESS)
    }
}

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
    /// What is waited for: ids as JSON text, what was asked, and when.
    out: HashMap<String, (String, Instant)>,
}

impl View {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let record = match &arguments.record {
            None => None,
            Some(path) => {
                let failed = |error| Failure::usage(format!("{}: {error}", path.display()));
                let mut file = File::create(path).map_err(failed)?;
                file.write_all(transcript::header(&arguments.connection.target.to_string()).as_bytes())
                    .map_err(failed)?;
                Some(file)
            }
        };
        Ok(Self { started: Instant::now(), record, out: HashMap::new() })
    }

    fn line(&mut self, direction: Direction, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            let entry = transcript::line(self.started.elapsed().as_millis(), direction, bytes);
            if record.write_all(entry.as_bytes()).is_err() {
                self.record = None;
                self.fault("the transcript cannot be written any more");
            }
        }
        let (arrow, style) = match direction {
            Direction::Sent => ("→", Style::Sent),
            Direction::Received => ("←", Style::Received),
        };
        let (what, fault) = self.decode(direction, bytes);
        self.print(style, &format!("{arrow} {what}"));
        if let Some(fault) = fault {
            self.fault(&fault);
        }
        let text: String = String::from_utf8_lossy(bytes).chars().take(2000).collect();
        self.print(Style::Dim, &format!("    {text}"));
    }

    /// What a line is, and what is wrong with it.
    fn decode(&mut self, direction: Direction, bytes: &[u8]) -> (String, Option<String>) {
        if bytes.is_empty() {
            let fault =
                (direction == Direction::Received).then(|| "a blank line: the real host's reader dies of it".into());
            return ("(blank)".to_owned(), fault);
        }
        let json = match Json::parse(bytes) {
            Ok(json) => json,
            Err(error) => return ("(no message)".to_owned(), Some(format!("not JSON: {error}"))),
        };
        let mut fault = None;
        let mut wrong = |text: String| {
            fault.get_or_insert(text);
        };
        if bytes.len() > HOST_LINE_LIMIT && direction == Direction::Received {
            wrong(format!("{} bytes: real hosts read {HOST_LINE_LIMIT}", bytes.len()));
        }
        if json.kind() == Kind::Array {
            return (format!("batch of {}", json.elements().count()), fault);
        }
        if json.kind() != Kind::Object {
            wrong("JSON, but not an object".to_owned());
            return ("(no message)".to_owned(), fault);
        }
        if json.get("jsonrpc").and_then(|version| version.text()).is_none_or(|version| version != "2.0") {
            wrong("it lacks \"jsonrpc\":\"2.0\"".to_owned());
        }
        let id = json.get("id").map(|id| id.as_str().to_owned());
        let method = json.get("method").and_then(|method| method.text());
        let what = match (method, id) {
            (Some(method), Some(id)) => {
                let operation = json.get("params").and_then(|params| params.get("operation")?.text());
                let what = operation.map_or_else(|| method.to_string(), |operation| format!("{method} {operation}"));
                if self.out.insert(id.clone(), (what.clone(), Instant::now())).is_some() {
                    wrong(format!("the id {id} is in use"));
                }
                format!("request {id}: {what}")
            }
            (Some(method), None) if method == "log" => {
                let log = Log::of_params(json.get("params").unwrap_or(Json::NULL));
                let known = log.level_name().is_some_and(|name| name.to_string() == log.level().name());
                if !known {
                    wrong("a log's level must be debug, info, warn or error".to_owned());
                }
                let level = log.level_name().map(|name| name.to_string()).unwrap_or_default();
                format!("log {level}: {}", log.message())
            }
            (Some(method), None) => format!("notification {method}"),
            (None, id) => {
                let asked = id.as_ref().and_then(|id| self.out.remove(id));
                let name = id.unwrap_or_else(|| "without an id".to_owned());
                let (what, took) = if let Some((what, when)) = asked {
                    (what, format!(" after {:.1} ms", when.elapsed().as_secs_f64() * 1000.0))
                } else {
                    wrong("nothing that was asked has this id".to_owned());
                    ("?".to_owned(), String::new())
                };
                let how = match (json.get("error").filter(|error| !error.is_null()), json.get("result")) {
                    (Some(error), _) => format!("error {error}"),
                    (None, Some(result)) => match result.get("success").and_then(|success| success.bool()) {
                        Some(false) => "failed".to_owned(),
                        _ => "ok".to_owned(),
                    },
                    (None, None) => {
                        wrong("neither a result nor an error".to_owned());
                        String::new()
                    }
                };
                format!("reply {name} to {what}: {how}{took}")
            }
        };
        (what, fault)
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
