use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rigline_eval::report::junit::{self, Case, Status, Suite};
use rigline_host::check::{self, CaseOutcome, CaseResult, Need, Plan, Report, Sample};
use rigline_host::check::{Settings, ensure_transcripts};
use rigline_host::client::Command;
use rigline_host::protocol::Protocol;
use rigline_host::record::transcript::Direction;
use rigline_host::target::Target;
use rigline_host::terminal;
use serde_json::{Map, Value};

use crate::connect::{self, Connection, Failure};
use crate::credentials::Credentials;
use crate::files;
use crate::out::{self, Style, Text};
use crate::protocol::{self, DEFAULT, HasOptions, OwnOptions};

/// `check`'s options of single protocols.
#[derive(Debug)]
pub(crate) struct OfCheck;

impl HasOptions for OfCheck {
    const COMMAND: Command = Command::Check;
}

/// Check whether an extension or a server conforms to its protocol and works with its real hosts
///
/// Each case uses a new connection. A failed case is shown with the lines that were sent and received.
///
/// On a device or a server (serial, TCP, HTTP), only the operations that --call names are called. If --call names none, only `identify` is called.
/// Cases that need other operations are skipped.
///
/// In a program, any operation may be called, with arguments that its schema refuses. A program that conforms refuses them before it does anything.
/// The check does not know whether a program drives hardware: one that does not check its arguments may switch something on.
///
/// Some cases are needed by the real hosts of the protocol, and others only by a standard. Each failed case says which.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  rigline check sim\n  rigline check ./my-extension --call greet '{\"name\":\"Ada\"}' --junit report.xml\n  rigline check serial:auto --call identify --call measure '{\"channel\":\"3V3\"}'\n  rigline check http://127.0.0.1:8080 --protocol amplifier --json --transcripts transcripts\n\nExit codes: 0 all cases passed that a real host needs (with --strict: all cases); 1 such a case failed; 2 a wrong command line or an unusable file; 3 the target cannot be started, opened or connected to; 128+n ended by signal n."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The protocol of the target. With waza, the check first writes the evals that it needs to the
    /// folder for temporary files
    #[arg(long, value_parser = protocol::parser(|protocol| protocol.check.is_some()), default_value = DEFAULT)]
    protocol: &'static Protocol,
    /// An operation that may run, and its arguments as a JSON object; may be repeated
    #[arg(long, value_names = ["OPERATION", "ARGS"], num_args = 1..=2, action = clap::ArgAction::Append)]
    call: Vec<String>,
    /// Amplifier, and namel3ss services: an operation that exceeds its time limit, and its arguments as a JSON object
    #[arg(long, value_names = ["OPERATION", "ARGS"], num_args = 1..=2)]
    slow: Vec<String>,
    /// Amplifier and namel3ss: write a transcript of each case to this folder, as `module:invoke` events [default with --json: a new
    /// folder in the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    transcripts: Option<PathBuf>,
    #[command(flatten)]
    credentials: Credentials,
    /// How long to wait for each answer
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, default_value = "5s")]
    patience: std::time::Duration,
    #[command(flatten)]
    own: OwnOptions<OfCheck>,
    /// Exit with 1 after any failed case, also one that only a standard needs
    #[arg(long)]
    strict: bool,
    /// Run only the cases whose name begins with this; may be repeated
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Write the report as JUnit XML; `-` is standard output
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let are_writable = files::ensure_reports(&self.files(), self.json.then_some("--json"));
        let is_stdout_free = are_writable.is_ok();
        let results = RefCell::new(Vec::new());
        let has_reported = Cell::new(false);
        let ended = are_writable.and_then(|()| {
            // In the place of an earlier report, in case that this command is killed.
            let unended = "the check has not ended: it still runs, or it was killed".to_owned();
            self.write_unfinished(&Report::unfinished(self.connection.target.to_string(), Vec::new(), unended), false);
            connect::run(self.check(&results, &has_reported))
        });
        if let Err(failure) = &ended
            && !has_reported.get()
        {
            let is_signal = failure.code > 128;
            let why = if is_signal { format!("the check was cut off: {}", failure.text) } else { failure.text.clone() };
            let target = self.connection.target.to_string();
            self.write_unfinished(&Report::unfinished(target, results.take(), why), is_stdout_free);
        }
        ended
    }

    /// The options of reports, with their files.
    fn files(&self) -> [(&'static str, Option<&Path>); 2] {
        [("--json-file", self.json_file.as_deref()), ("--junit", self.junit.as_deref())]
    }

    /// Writes a report of a check that did not come to its end. The command fails in any case.
    fn write_unfinished(&self, report: &Report, has_stdout: bool) {
        let texts = [format!("{:#}\n", report.to_json()), junit(report, self.strict)];
        for ((_, path), text) in self.files().into_iter().zip(texts) {
            if let Some(path) = path.filter(|path| has_stdout || !files::is_stdout(path)) {
                let _ = files::write(path, &text);
            }
        }
    }

    async fn check(&self, results: &RefCell<Vec<CaseResult>>, has_reported: &Cell<bool>) -> Result<u8, Failure> {
        self.own.check(Some(self.protocol))?;
        let Some(suite) = self.protocol.check else {
            return Err(Failure::usage(format!("--protocol {}: there are no cases for it", self.protocol.name)));
        };
        if let Some(folder) = &self.transcripts {
            if !suite.has_transcripts {
                let names = protocol::names(|protocol| protocol.check.is_some_and(|suite| suite.has_transcripts));
                return Err(Failure::usage(format!("--transcripts goes with --protocol {names}")));
            }
            ensure_transcripts((suite.names)().into_iter(), folder)
                .map_err(|error| Failure::usage(format!("--transcripts {error}")))?;
        }
        let mut options = self.connection.options();
        options.credentials = self.credentials.read(&self.connection.target)?;
        let settings = Settings {
            target: self.connection.target.clone(),
            options,
            timeout: self.patience,
            plan: self.plan()?,
            own: self.own.values.clone(),
            prefixes: self.case.clone(),
        };
        let mut tell = |result: &CaseResult| {
            results.borrow_mut().push(result.clone());
            self.tell(result);
        };
        let report = (suite.run)(settings, &mut tell).await?;
        has_reported.set(true);
        self.report(&report)
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let sample = |(operation, args): (String, Value)| Sample { operation, args: args.to_string() };
        let transcripts = match &self.transcripts {
            None if self.json => Some(std::env::temp_dir().join(format!("rigline-check-{}", own_name()))),
            transcripts => transcripts.clone(),
        };
        Ok(Plan {
            samples: self.calls()?.into_iter().map(sample).collect(),
            slow: pairs("--slow", &self.slow)?.into_iter().next().map(sample),
            transcripts,
        })
    }

    fn tell(&self, result: &CaseResult) {
        // The one reason for all of them was printed already.
        let is_hopeless = result.outcome == CaseOutcome::Skip && result.text.starts_with(check::NO_SESSION);
        let is_left_out =
            self.connection.quiet && result.outcome != CaseOutcome::Fail || is_hopeless && !self.connection.verbose;
        if !(self.is_quiet() || is_left_out) {
            let style = match result.outcome {
                CaseOutcome::Pass => Style::Good,
                CaseOutcome::Fail => Style::Bad,
                _ => Style::Dim,
            };
            let text = as_text(result, self.connection.verbose);
            let name = result.outcome.name();
            let rest = text.strip_prefix(name).unwrap_or_default();
            out::print_text(&Text::new().styled(style, name).plain(rest));
        }
    }

    /// Whether standard output is reserved for a report.
    fn is_quiet(&self) -> bool {
        let is_output = |file: &Option<PathBuf>| file.as_deref().is_some_and(files::is_stdout);
        self.json || is_output(&self.json_file) || is_output(&self.junit)
    }

    fn report(&self, report: &Report) -> Result<u8, Failure> {
        if self.json {
            connect::print_json(&format!("{:#}\n", report.to_json()));
        } else if !self.is_quiet() {
            let failed = report.count(CaseOutcome::Fail);
            let by_standard = match report.failed(Need::Standard) {
                0 => String::new(),
                count if count == failed => " (which no real host needs)".to_owned(),
                count => format!(" ({count} of them no real host needs)"),
            };
            connect::print(&format!(
                "{}: {} passed, {failed} failed{by_standard}, {} skipped\n",
                report.target,
                report.count(CaseOutcome::Pass),
                report.count(CaseOutcome::Skip)
            ));
        }
        // One that cannot be written does not take the other.
        let mut written = Ok(());
        if let Some(file) = &self.json_file {
            written = files::write(file, &terminal::json(&format!("{:#}\n", report.to_json())));
        }
        if let Some(file) = &self.junit {
            written = written.and(files::write(file, &junit(report, self.strict)));
        }
        written?;
        if let Some(error) = &report.unopened {
            let failure = Failure::of(error);
            // A port that stays busy is not a timeout of a case.
            let code = if failure.code == connect::USAGE { connect::USAGE } else { connect::NO_ANSWER };
            return Err(Failure { code, ..failure });
        }
        if let Some(why) = &report.unreached {
            return Err(Failure::no_answer(why));
        }
        let counts = if self.strict { report.count(CaseOutcome::Fail) } else { report.failed(Need::Host) };
        Ok(if counts == 0 { connect::SUCCESS } else { connect::FAILED })
    }

    fn calls(&self) -> Result<Vec<(String, Value)>, Failure> {
        let mut calls = pairs("--call", &self.call)?;
        // The built-in rig has nothing that could break.
        if calls.is_empty() && self.connection.target == Target::Sim {
            let none = Value::Object(Map::new());
            calls = vec![("identify".into(), none.clone()), ("self-test".into(), none)];
        }
        Ok(calls)
    }
}

/// Operations and their arguments: what begins with `{` belongs to the operation before it.
fn pairs(option: &str, texts: &[String]) -> Result<Vec<(String, Value)>, Failure> {
    let mut calls: Vec<(String, Value)> = Vec::new();
    for text in texts {
        if !text.starts_with(['{', '@']) {
            calls.push((text.clone(), Value::Object(Map::new())));
            continue;
        }
        let args = connect::json(text).map_err(|error| Failure::usage(format!("{option}: {text}: {error}")))?;
        match calls.last_mut() {
            Some((_, place)) if args.is_object() => *place = args,
            _ => return Err(Failure::usage(format!("{option}: {text}: expected OPERATION and a JSON object"))),
        }
    }
    Ok(calls)
}

/// A unique name for a folder.
fn own_name() -> String {
    let time = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), time.as_nanos())
}

fn as_text(result: &CaseResult, verbose: bool) -> String {
    let mut text = format!("{}  {}", result.outcome.name(), result.name);
    if !result.text.is_empty() {
        let _ = write!(text, ": {}", result.text);
    }
    if result.outcome == CaseOutcome::Fail {
        text.push_str(match result.need {
            Need::Host => " [needed by the real host]",
            Need::Standard => " [needed by a standard; not by the real host]",
        });
    }
    text.push('\n');
    if result.outcome == CaseOutcome::Fail || verbose {
        let _ = writeln!(text, "      {}", result.section);
        for (direction, line) in &result.exchange {
            let _ = writeln!(text, "      {} {line}", arrow(*direction));
        }
    }
    text
}

fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::Sent => "→",
        Direction::Received => "←",
    }
}

/// The report as JUnit's XML. It is red if and only if the command does not exit with 0.
fn junit(report: &Report, is_strict: bool) -> String {
    let name = format!("rigline check {}", report.target);
    let kind = |result: &CaseResult| format!("needed by {}", result.need.name());
    let mut cases: Vec<Case> = report
        .results
        .iter()
        .map(|result| {
            let exchange: Vec<String> =
                result.exchange.iter().map(|(direction, line)| format!("{} {line}", arrow(*direction))).collect();
            let status = match (result.outcome, result.need) {
                (CaseOutcome::Fail, Need::Standard) if !is_strict => {
                    Status::Skipped(format!("failed, and no real host needs it: {}", result.text))
                }
                (CaseOutcome::Fail, _) => Status::Failure(kind(result), result.text.clone()),
                (CaseOutcome::Skip, _) => Status::Skipped(result.text.clone()),
                _ => Status::Passed,
            };
            Case {
                name: result.name.to_owned(),
                class_name: result.section.to_owned(),
                time: result.took,
                status,
                output: exchange.join("\n"),
            }
        })
        .collect();
    let unopened = report.unopened.as_ref().map(ToString::to_string);
    if let Some(why) = unopened.or_else(|| report.unreached.clone()) {
        let status = Status::Error("no answer".to_owned(), why);
        cases.push(Case { name: "the target answers".to_owned(), class_name: name.clone(), status, ..Case::default() });
    }
    if let Some(why) = report.unfinished.clone() {
        let status = Status::Error("not ended".to_owned(), why);
        cases.push(Case {
            name: "the check as a whole".to_owned(),
            class_name: name.clone(),
            status,
            ..Case::default()
        });
    }
    let time = cases.iter().map(|case| case.time).sum();
    junit::xml("rigline check", &[Suite { name, time, cases, ..Suite::default() }])
}
