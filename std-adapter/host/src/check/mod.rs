//! Conformance: whether an extension does what the specification of its protocol and the real hosts require.
//!
//! A [`Case`] is one fact about an extension, and [`run`] runs a table of them. Each protocol has its table in its own folder, and the
//! command `rigline check` runs it. There are two fixtures for cases: a [`Bench`] has a connection for each case and sends raw
//! bytes, also such as no host sends, so that what one case breaks does not fail the next; a [`Recorded`] host calls over lines, over
//! HTTP and in processes alike, and can write a transcript of each case.
//!
//! ```
//! # #[cfg(unix)]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rigline_host::check::{Bench, Case, Need, Outcome, Verdict, run};
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
//! assert_eq!(report.results[0].outcome, Outcome::Pass);
//! # Ok(())
//! # }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
//!
//! # What runs on hardware
//! Operations run only where the caller names them ([`Bench::calls`]). A case that needs more is skipped on a live target
//! (serial, TCP); in a program it may run an operation with arguments that its own schema refuses.

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
pub use recorded::{Plan, Recorded, Sample};
pub(crate) use recorded::{Unreached, fail, is_success, json, start};
#[doc(hidden)]
pub use suite::Settings;
pub(crate) use suite::{Suite, calls, names, own_names, run_on, run_on_bench};

use crate::host::{Direction, HostError};

/// How the text of a case begins that was skipped because no session can be had.
pub const NO_SESSION: &str = "there is no session";

/// One fact about an extension, which a function of a fixture checks: of a [`Bench`], for raw bytes, or of a [`Recorded`] host.
pub struct Case<F = Bench> {
    /// The name of the case, such as `handshake`.
    pub name: &'static str,
    /// The section of the specification that requires it.
    pub section: &'static str,
    /// The programs that need it.
    pub need: Need,
    /// Checks it.
    pub run: for<'a> fn(&'a mut F) -> Running<'a>,
}

/// A case that runs.
pub type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// The tools of a protocol's cases.
pub trait Fixture {
    /// The target, as reports name it.
    fn target(&self) -> String;

    /// Begins a case, and forgets the exchange of the last one.
    ///
    /// # Errors
    /// The case cannot be tried, since nothing was ever reached.
    fn begin(&mut self, case: &'static str) -> Result<(), CaseFailure>;

    /// The lines that the case sent and received, the first of them, shortened.
    fn exchange(&self) -> Vec<(Direction, String)>;

    /// Writes the transcript of the case, if there is to be one, and returns its path.
    ///
    /// # Errors
    /// It cannot be written.
    fn write_transcript(&self) -> io::Result<Option<PathBuf>> {
        Ok(None)
    }

    /// Why there was nothing to check, if no connection could be opened.
    fn unopened(&self) -> Option<Arc<HostError>> {
        None
    }

    /// Why there was nothing to check, if a server or a program for each call was never reached.
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

/// The programs that need a property of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The protocol's real host: if the case fails, calls or the host itself fail. If there is no real host, the
    /// specification counts instead.
    Host,
    /// A standard or the specification. The real host does not need it.
    Standard,
}

impl Need {
    /// `host` or `standard`.
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

/// A case's verdict: it passed, with a remark if there is one to make, or it did not.
pub type Verdict = Result<Option<String>, CaseFailure>;

/// Why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseFailure {
    /// The extension is at fault.
    Fail(String),
    /// The case cannot be determined here.
    Skip(String),
}

/// The outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The case passed.
    Pass,
    /// The case failed.
    Fail,
    /// The case was not tried.
    Skip,
}

impl Outcome {
    /// `pass`, `fail` or `skip`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// The outcome of a case, and what was exchanged.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CaseResult {
    /// The case's name.
    pub name: &'static str,
    /// The section of the text.
    pub section: &'static str,
    /// The programs that need it to pass.
    pub need: Need,
    /// The outcome of the case.
    pub outcome: Outcome,
    /// Why the case failed or was skipped, or a remark; empty if there is nothing to say.
    pub text: String,
    /// The lines that were sent and received, the first 40 of them, each cut at 400 bytes.
    pub exchange: Vec<(Direction, String)>,
    /// How long it took.
    pub took: Duration,
    /// Where the whole exchange was written to, as events.
    pub transcript: Option<PathBuf>,
}

/// The outcome of all cases.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The target.
    pub target: String,
    /// The cases in their order.
    pub results: Vec<CaseResult>,
    /// Why there was nothing to check, if no connection could be opened.
    pub unopened: Option<Arc<HostError>>,
    /// Why there was nothing to check, if a server or a program for each call was never reached.
    pub unreached: Option<String>,
}

impl Report {
    /// How many cases came out so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.results.iter().filter(|result| result.outcome == outcome).count()
    }

    /// The number of failed cases that are needed in this way.
    pub fn failed(&self, need: Need) -> usize {
        self.results.iter().filter(|result| result.outcome == Outcome::Fail && result.need == need).count()
    }

    /// The report as JSON: `target`, `passed`, `failed`, `failed_by_standard` (how many of the failed cases no real host needs),
    /// `skipped`, and `cases`, each with `name`, `section`, `needed_by` (`host` or `standard`), `outcome`, `text`, `seconds`, `exchange`, a list of `{"sent":…}` and `{"got":…}`, and `transcript`, the path of
    /// one, if there is one.
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
        json!({
            "target": self.target,
            "passed": self.count(Outcome::Pass),
            "failed": self.count(Outcome::Fail),
            "failed_by_standard": self.failed(Need::Standard),
            "skipped": self.count(Outcome::Skip),
            "cases": cases,
        })
    }
}

/// Runs the cases, one after the other. `report` gets each result as soon as it is there.
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
            Ok(remark) => (Outcome::Pass, remark.unwrap_or_default()),
            Err(CaseFailure::Fail(why)) => (Outcome::Fail, why),
            Err(CaseFailure::Skip(why)) => (Outcome::Skip, why),
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
    Ok(Report { target: fixture.target(), results, unopened, unreached })
}
