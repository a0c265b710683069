//! `rigline replay` of a log of Amplifier's events, also called `rigline events`: logs of Amplifier events.

use std::fmt::{Display, Write as _};
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rigline::Event;
use rigline::EventMember;
use rigline_host::amplifier::{Entry, LogReader, check_taxonomy};
use rigline_host::terminal;
use serde_json::{Value, json};

use crate::connect::{self, Failure};
use crate::exit;
use crate::files;
use crate::out;

/// The number of faults in the JSON value.
const FAULTS: usize = 10_000;

/// Read, filter, check and print a log of Amplifier events, of any size
///
/// The command exits with 1 if a line is not an event. With --taxonomy, it also exits with 1 if an
/// event lacks a required member. With --strict, it also exits with 1 if the taxonomy does not have
/// the name of an event.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
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
    /// Also check that each event has the members that Amplifier's taxonomy requires, and that each
    /// plan fits Amplifier's Plan Schema
    #[arg(long)]
    taxonomy: bool,
    /// Also count an event as faulty if the taxonomy does not have its name
    #[arg(long, requires = "taxonomy")]
    strict: bool,
    /// Print one JSON value: the events, the faults and `success`
    #[arg(long)]
    json: bool,
    /// Print the events as they are, one a line
    #[arg(long, conflicts_with_all = ["json", "check"])]
    json_lines: bool,
    /// Print only faults and a summary
    #[arg(long)]
    check: bool,
    /// The longest line that is read, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    line_limit: usize,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let unusable = |error: io::Error| Failure::usage(format!("{}: {error}", self.file.display()));
        let input: Box<dyn BufRead> = if self.file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(BufReader::with_capacity(64 << 10, files::open(&self.file).map_err(unusable)?))
        };
        let faults = self.read(LogReader::new(input, self.line_limit)).map_err(unusable)?;
        Ok(ExitCode::from(if faults == 0 { exit::SUCCESS } else { exit::FAILED }))
    }

    /// Returns the number of lines with faults.
    fn read(&self, mut log: LogReader<Box<dyn BufRead>>) -> io::Result<u64> {
        let mut page = Page::default();
        let (mut events, mut faulty) = (0_u64, 0_u64);
        let mut faults: Vec<Value> = Vec::new();
        if self.json {
            page.add("{\"events\":[");
        }
        while let Some(Entry { number, text, event, .. }) = log.next_entry()? {
            if out::has_failed() {
                break;
            }
            let mut tell = |page: &mut Page, fault: &dyn Display| {
                page.flush();
                connect::complain(format_args!("line {number}: {fault}"));
                // As many as a person reads; the log may be of any size.
                if self.json && faults.len() < FAULTS {
                    faults.push(json!({ "line": number, "fault": fault.to_string() }));
                }
            };
            let event = match event {
                Ok(event) => event,
                Err(fault) => {
                    faulty += 1;
                    tell(&mut page, &fault);
                    continue;
                }
            };
            if !self.is_wanted(&event) {
                continue;
            }
            events += 1;
            if self.taxonomy {
                let found = check_taxonomy(&event, self.strict);
                faulty += u64::from(!found.is_empty());
                found.iter().for_each(|fault| tell(&mut page, fault));
            }
            // It has been checked: an event is UTF-8.
            let text = String::from_utf8_lossy(text);
            if self.json_lines {
                page.add(&format!("{}\n", terminal::json(&text)));
            } else if self.json && !self.check {
                let comma = if events > 1 { "," } else { "" };
                page.add(&format!("{comma}\n{}", terminal::json(&text)));
            } else if !self.check {
                page.add(&format!("{}\n", pretty(&event)));
            }
        }
        if self.json {
            let end = json!({ "count": events, "faulty_lines": faulty, "faults": faults, "success": faulty == 0 });
            page.add(&format!("],{}\n", terminal::json(end.to_string().trim_start_matches('{'))));
        } else if self.check {
            page.add(&format!("{}, {} with faults\n", out::count(events, "event"), out::count(faulty, "line")));
        }
        page.flush();
        Ok(faulty)
    }

    fn is_wanted(&self, event: &Event<'_>) -> bool {
        let is = |member: EventMember<rigline::json::Text<'_>>, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| member.value().is_some_and(|value| value == wanted.as_str()))
        };
        let name = |wanted: &String| match wanted.strip_suffix('*') {
            Some(group) => event.event().to_string().starts_with(group),
            None => event.event() == wanted.as_str(),
        };
        (self.event.is_empty() || self.event.iter().any(name))
            && is(event.module(), &self.module)
            && is(event.session_id(), &self.session)
            && is(event.status(), &self.status)
    }
}

/// Output that is gathered, since a log may have many lines.
#[derive(Default)]
struct Page(String);

impl Page {
    fn add(&mut self, text: &str) {
        self.0.push_str(text);
        if self.0.len() > 64 << 10 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        out::write(self.0.as_bytes());
        self.0.clear();
    }
}

fn pretty(event: &Event<'_>) -> String {
    let ts = event.json().get("ts").map(|ts| ts.as_str()).unwrap_or_default();
    let mut line = format!("{ts} {} {}", event.event(), event.component());
    for (name, member) in [("module", event.module()), ("status", event.status())] {
        if let Some(value) = member.value() {
            let _ = write!(line, " {name}={value}");
        }
    }
    for name in ["duration_ms", "session_id", "request_id", "span_id", "data", "error"] {
        if let Some(value) = event.json().get(name).filter(|value| !value.is_null()) {
            let _ = write!(line, " {name}={}", value.as_str().trim_matches('"'));
        }
    }
    terminal::printable(&line).replace(['\n', '\t'], "\u{FFFD}")
}
