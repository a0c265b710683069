//! `rigline events`: logs of Amplifier events.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rigline::Event;
use rigline::event::Member;
use rigline_std::amplifier::{Entry, LogReader, check_taxonomy};

use crate::connect;

/// Read, filter, check and print a log of Amplifier events, of any size
///
/// Exit code 1 if a line is no event, or, with --taxonomy, lacks what its name asks for.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The log, one event a line; - for standard input
    file: PathBuf,
    /// Only events of this name, or of this group such as `session:*`
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,
    /// Only events about this module
    #[arg(long, value_name = "NAME")]
    module: Option<String>,
    /// Only events of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only events of this status, such as `error`
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Check what each event of the taxonomy must say, too
    #[arg(long)]
    taxonomy: bool,
    /// Refuse names that the taxonomy does not have
    #[arg(long, requires = "taxonomy")]
    strict: bool,
    /// Print the events as they are, as JSON lines
    #[arg(long)]
    json: bool,
    /// Print nothing but faults and a summary
    #[arg(long, conflicts_with = "json")]
    check: bool,
    /// The longest line that is read, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    line_limit: usize,
}

impl Arguments {
    pub(crate) fn run(&self) -> ExitCode {
        let input: Box<dyn BufRead> = if self.file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            match File::open(&self.file) {
                Ok(file) => Box::new(BufReader::with_capacity(64 << 10, file)),
                Err(error) => {
                    connect::complain(format_args!("rigline events: {}: {error}", self.file.display()));
                    return ExitCode::from(2);
                }
            }
        };
        match self.read(LogReader::new(input, self.line_limit)) {
            Ok(0) => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            // Whoever read is satisfied.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => {
                connect::complain(format_args!("rigline events: {}: {error}", self.file.display()));
                ExitCode::from(3)
            }
        }
    }

    /// Gives the number of lines with faults.
    fn read(&self, mut log: LogReader<Box<dyn BufRead>>) -> io::Result<u64> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let (mut events, mut faulty) = (0_u64, 0_u64);
        while let Some(Entry { number, text, event, .. }) = log.next_entry()? {
            let event = match event {
                Ok(event) => event,
                Err(fault) => {
                    faulty += 1;
                    out.flush()?;
                    connect::complain(format_args!("line {number}: {fault}"));
                    continue;
                }
            };
            if !self.is_wanted(&event) {
                continue;
            }
            events += 1;
            if self.taxonomy {
                let faults = check_taxonomy(&event, self.strict);
                faulty += u64::from(!faults.is_empty());
                if !faults.is_empty() {
                    out.flush()?;
                }
                faults.iter().for_each(|fault| connect::complain(format_args!("line {number}: {fault}")));
            }
            if self.json {
                out.write_all(text)?;
                out.write_all(b"\n")?;
            } else if !self.check {
                writeln!(out, "{}", pretty(&event))?;
            }
        }
        if self.check {
            writeln!(out, "{events} events, {faulty} lines with faults")?;
        }
        out.flush()?;
        Ok(faulty)
    }

    fn is_wanted(&self, event: &Event<'_>) -> bool {
        let is = |member: Member<rigline::json::Text<'_>>, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| member.value().is_some_and(|value| value == wanted.as_str()))
        };
        let name = |wanted: &String| match wanted.strip_suffix('*') {
            Some(group) => event.event.to_string().starts_with(group),
            None => event.event == wanted.as_str(),
        };
        (self.event.is_empty() || self.event.iter().any(name))
            && is(event.module, &self.module)
            && is(event.session_id, &self.session)
            && is(event.status, &self.status)
    }
}

fn pretty(event: &Event<'_>) -> String {
    let ts = event.json().get("ts").map(|ts| ts.as_str()).unwrap_or_default();
    let mut line = format!("{ts} {} {}", event.event, event.component);
    for (name, member) in [("module", event.module), ("status", event.status)] {
        if let Some(value) = member.value() {
            let _ = write!(line, " {name}={value}");
        }
    }
    for name in ["duration_ms", "session_id", "request_id", "span_id", "data", "error"] {
        if let Some(value) = event.json().get(name).filter(|value| !value.is_null()) {
            let _ = write!(line, " {name}={}", value.as_str().trim_matches('"'));
        }
    }
    // What a log holds must not drive the terminal.
    connect::printable(&line).replace(['\n', '\t'], "\u{FFFD}")
}
