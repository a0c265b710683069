//! Conformance: whether an extension does what the specification of its protocol and the real hosts
//! require.
//!
//! A [`Case`] checks one fact about an extension, and [`run`] runs a table of cases. Each protocol
//! has its table in its own folder. The command `rigline check` runs them.
//!
//! There are two fixtures for cases. A [`Bench`] opens a connection for each case, so that a case
//! cannot break the next one, and can send any bytes. A [`RecordingFixture`] calls through a host,
//! over lines, over HTTP and in processes, and can write a transcript of each case.
//!
//! ```
//! # #[cfg(unix)]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rigline_host::check::{Bench, Case, Need, CaseOutcome, Verdict, run};
//! use rigline_host::Options;
//!
//! async fn says_hello(bench: &mut Bench) -> Verdict {
//!     let mut peer = bench.connect().await?;
//!     let line = peer.line().await?;
//!     if line.as_deref() == Some("hello") { Ok(None) } else { bench.fail(format!("it said {line:?}")) }
//! }
//! const CASES: &[Case] = &[Case { name: "hello", section: "Greetings", need: Need::Host, run: |bench| Box::pin(says_hello(bench)) }];
//!
//! let bench = Bench::new(&"exec:echo hello".parse()?, &Options::default())?;
//! let report = run(CASES, bench, |_| {}).await?;
//! assert_eq!(report.results[0].outcome, CaseOutcome::Pass);
//! # Ok(())
//! # }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
//!
//! # Operations that run on hardware
//! Operations run only if the caller names them in [`Bench::calls`]. On a live target (serial,
//! TCP), a case that needs another operation is skipped. In a program, such a case may call an
//! operation with arguments that its own schema refuses.

mod bench;
pub(crate) mod recorded;
pub(crate) mod suite;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) use bench::cut;
pub use bench::{Bench, Peer, Reply};
#[doc(hidden)]
pub use recorded::ensure_transcripts;
pub(crate) use recorded::{MayBeUnreachable, fail, is_success, json, start};
pub use recorded::{Plan, RecordingFixture, Sample};
#[doc(hidden)]
pub use suite::Settings;
pub(crate) use suite::{Suite, calls, names, own_names, run_on, run_on_bench};

use crate::host::{Direction, HostError};

/// The beginning of a case's text if the case was skipped because no session can be opened.
pub const NO_SESSION: &str = "there is no session";

/// A conformance case: one fact about an extension, and the function that checks it.
///
/// The function gets a fixture: a [`Bench`] for raw bytes, or a [`RecordingFixture`].
pub struct Case<F = Bench> {
    /// The name of the case, such as `handshake`.
    pub name: &'static str,
    /// The section of the specification that requires the fact.
    pub section: &'static str,
    /// Whether the real host needs the fact, or only a standard.
    pub need: Need,
    /// The function that checks the fact.
    pub run: for<'a> fn(&'a mut F) -> Running<'a>,
}

/// The future of a running case.
pub type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// A fixture: the tools that the cases of a protocol use.
pub trait Fixture {
    /// Returns the target, as reports name it.
    fn target(&self) -> String;

    /// Begins a case, and forgets the lines of the case before it.
    ///
    /// # Errors
    /// The case cannot be checked, since the target was never reached.
    fn begin(&mut self, case: &'static str) -> Result<(), CaseFailure>;

    /// Returns the first lines that the case sent and received, each shortened.
    fn exchange(&self) -> Vec<(Direction, String)>;

    /// Writes the transcript of the case and returns its path. Returns `None` if no transcript was
    /// asked for.
    ///
    /// # Errors
    /// The transcript cannot be written.
    fn write_transcript(&self) -> io::Result<Option<PathBuf>> {
        Ok(None)
    }

    /// Returns the error if no connection could be opened, so that nothing was checked.
    fn unopened(&self) -> Option<Arc<HostError>> {
        None
    }

    /// Returns the reason if a server, or a program that runs for each call, was never reached, so
    /// that nothing was checked.
    fn unreached(&self) -> Option<String> {
        None
    }
}

/// Writes a table of cases: name, section, who needs it, and the function.
macro_rules! cases {
    ($($name:literal, $section:literal, $need:ident, $run:expr;)*) => {
        &[$($crate::check::Case {
            name: $name,
            section: $section,
            need: $crate::check::Need::$need,
            run: |fixture| Box::pin($run(fixture)),
        }),*]
    };
}
pub(crate) use cases;

/// The program that needs the fact of a conformance case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The real host of the protocol. If the case fails, calls or the host itself fail. If there is
    /// no real host, this is what the specification requires.
    Host,
    /// Only a standard or the specification requires the fact. The real host works without it.
    Standard,
}

impl Need {
    /// Returns `host` or `standard`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Standard => "standard",
        }
    }
}

impl<F> fmt::Debug for Case<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("section", &self.section).finish_non_exhaustive()
    }
}

/// The verdict of a case. A case that passed may have a remark.
pub type Verdict = Result<Option<String>, CaseFailure>;

/// The reason why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseFailure {
    /// The extension is at fault. The text says why.
    Fail(String),
    /// The case cannot be checked here. The text says why.
    Skip(String),
}

/// The outcome of a conformance case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaseOutcome {
    /// The case passed.
    Pass,
    /// The case failed.
    Fail,
    /// The case was skipped.
    Skip,
}

impl CaseOutcome {
    /// Returns `pass`, `fail` or `skip`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// The result of a conformance case.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CaseResult {
    /// The name of the case.
    pub name: &'static str,
    /// The section of the specification that requires the fact.
    pub section: &'static str,
    /// Whether the real host needs the fact, or only a standard.
    pub need: Need,
    /// The outcome of the case.
    pub outcome: CaseOutcome,
    /// The reason why the case failed or was skipped, or a remark. Empty if there is neither.
    pub text: String,
    /// The first 40 lines that were sent and received, each cut at 400 bytes.
    pub exchange: Vec<(Direction, String)>,
    /// The duration of the case.
    pub took: Duration,
    /// The path of the case's transcript. `None` if none was written.
    pub transcript: Option<PathBuf>,
}

/// The results of all cases that were run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The target, as the caller named it.
    pub target: String,
    /// The results, in the order in which the cases ran.
    pub results: Vec<CaseResult>,
    /// The error if no connection could be opened, so that nothing was checked.
    pub unopened: Option<Arc<HostError>>,
    /// The reason if a server, or a program that runs for each call, was never reached, so that
    /// nothing was checked.
    pub unreached: Option<String>,
    /// The reason why the check ended before its last case. `None` if all cases were run.
    pub unfinished: Option<String>,
}

impl Report {
    /// A report of a check that ended before its last case, with the cases that were run and the
    /// reason.
    pub fn unfinished(target: String, results: Vec<CaseResult>, why: String) -> Self {
        Self { target, results, unopened: None, unreached: None, unfinished: Some(why) }
    }

    /// Returns the number of cases with this outcome.
    pub fn count(&self, outcome: CaseOutcome) -> usize {
        self.results.iter().filter(|result| result.outcome == outcome).count()
    }

    /// Returns the number of failed cases that have this need.
    pub fn failed(&self, need: Need) -> usize {
        self.results.iter().filter(|result| result.outcome == CaseOutcome::Fail && result.need == need).count()
    }

    /// Returns the report as a JSON object.
    ///
    /// Its members are `target`, `passed`, `failed`, `failed_by_standard` (the number of failed
    /// cases that no real host needs), `skipped` and `cases`. A case has `name`, `section`,
    /// `needed_by` (`host` or `standard`), `outcome`, `text`, `seconds` and `exchange`, a list of
    /// `{"sent":…}` and `{"got":…}`. If there is a transcript, `transcript` is its path. If the
    /// check did not come to its end, or to its target, the member `error` says why.
    pub fn to_json(&self) -> Value {
        let exchange = |result: &CaseResult| -> Vec<Value> {
            result
                .exchange
                .iter()
                .map(|(direction, line)| match direction {
                    Direction::Sent => json!({ "sent": line }),
                    Direction::Received => json!({ "got": line }),
                })
                .collect()
        };
        let cases: Vec<Value> = self
            .results
            .iter()
            .map(|result| {
                let mut case = json!({
                    "name": result.name,
                    "section": result.section,
                    "needed_by": result.need.name(),
                    "outcome": result.outcome.name(),
                    "text": result.text,
                    "seconds": result.took.as_secs_f64(),
                    "exchange": exchange(result),
                });
                if let Some(transcript) = &result.transcript {
                    case["transcript"] = json!(transcript);
                }
                case
            })
            .collect();
        let mut report = json!({
            "target": self.target,
            "passed": self.count(CaseOutcome::Pass),
            "failed": self.count(CaseOutcome::Fail),
            "failed_by_standard": self.failed(Need::Standard),
            "skipped": self.count(CaseOutcome::Skip),
            "cases": cases,
        });
        let unopened = self.unopened.as_ref().map(ToString::to_string);
        if let Some(error) = unopened.or_else(|| self.unreached.clone()).or_else(|| self.unfinished.clone()) {
            report["error"] = error.into();
        }
        report
    }
}

/// Runs cases one after another. `report` gets each result as soon as the case has ended.
///
/// # Errors
/// A transcript cannot be written.
pub async fn run<'c, F: Fixture + 'c>(
    cases: impl IntoIterator<Item = &'c Case<F>>,
    mut fixture: F,
    mut report: impl FnMut(&CaseResult),
) -> io::Result<Report> {
    let mut results = Vec::new();
    for case in cases {
        let started = Instant::now();
        let verdict = match fixture.begin(case.name) {
            Ok(()) => (case.run)(&mut fixture).await,
            Err(stop) => Err(stop),
        };
        let (outcome, text) = match verdict {
            Ok(remark) => (CaseOutcome::Pass, remark.unwrap_or_default()),
            Err(CaseFailure::Fail(why)) => (CaseOutcome::Fail, why),
            Err(CaseFailure::Skip(why)) => (CaseOutcome::Skip, why),
        };
        let result = CaseResult {
            name: case.name,
            section: case.section,
            need: case.need,
            outcome,
            text,
            exchange: fixture.exchange(),
            took: started.elapsed(),
            transcript: fixture.write_transcript()?,
        };
        report(&result);
        results.push(result);
    }
    let (unopened, unreached) = (fixture.unopened(), fixture.unreached());
    Ok(Report { target: fixture.target(), results, unopened, unreached, unfinished: None })
}
