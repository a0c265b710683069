//! Conformance: whether an extension, anybody's, does what its protocol's text and its real hosts want.
//!
//! A [`Case`] is one fact about an extension. It runs over raw bytes, so that it may say what a host never says, and each
//! has a connection of its own: what one case breaks does not fail the next. [`gevals::CASES`] are those of the gevals
//! text, [`waza::CASES`] those of waza's, for servers; another protocol adds a table of its own.
//!
//! ```
//! # #[cfg(unix)]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rigline_std::check::{Bench, Case, Need, Outcome, Verdict, run};
//! use rigline_std::host::Options;
//!
//! async fn says_hello(bench: &mut Bench) -> Verdict {
//!     let mut peer = bench.connect().await?;
//!     let line = peer.line().await?;
//!     if line.as_deref() == Some("hello") { Ok(None) } else { bench.fail(format!("it said {line:?}")) }
//! }
//! const CASES: &[Case] = &[Case { name: "hello", section: "Greetings", need: Need::Host, run: |bench| Box::pin(says_hello(bench)) }];
//!
//! let bench = Bench::new(&"exec:echo hello".parse()?, &Options::default())?;
//! let report = run(CASES, bench, |_| {}).await;
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
pub mod gevals;
pub mod waza;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use bench::{Bench, Peer, Reply};

use crate::host::{Direction, HostError};

/// How the text of a case begins that was skipped because no session can be had.
pub const NO_SESSION: &str = "there is no session";

/// One fact about an extension.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, such as `handshake`.
    pub name: &'static str,
    /// The section of the text that wants it so.
    pub section: &'static str,
    /// Who needs it.
    pub need: Need,
    /// Finds out.
    pub run: Run,
}

/// Who needs an extension to be so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The protocol's real host: without it calls fail, or the host itself does. Where there is no real host, the text stands in its
    /// place.
    Host,
    /// A standard, or the text; the real host does without it.
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

/// What finds out about one fact.
pub type Run = for<'b> fn(&'b mut Bench) -> Pin<Box<dyn Future<Output = Verdict> + 'b>>;

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("section", &self.section).finish_non_exhaustive()
    }
}

/// A case's verdict: it passed, with a remark if there is one to make, or it did not.
pub type Verdict = Result<Option<String>, Stop>;

/// Why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The extension is at fault.
    Fail(String),
    /// It cannot be told here.
    Skip(String),
}

/// What came of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It holds.
    Pass,
    /// It does not.
    Fail,
    /// It was not tried.
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

/// What came of a case, and what was said meanwhile.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CaseResult {
    /// The case's name.
    pub name: &'static str,
    /// The section of the text.
    pub section: &'static str,
    /// Who needs it to pass.
    pub need: Need,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it failed or was skipped, or a remark; empty if there is nothing to say.
    pub text: String,
    /// The lines that were sent and received, the first 40 of them, each cut at 400 bytes.
    pub exchange: Vec<(Direction, String)>,
    /// How long it took.
    pub took: Duration,
    /// Where the whole exchange was written to, as events.
    pub transcript: Option<PathBuf>,
}

/// What came of all cases.
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

    /// How many of the failed cases somebody needs.
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

/// Runs the cases, one after the other. `told` gets each result as it is there.
pub async fn run(cases: &[Case], mut bench: Bench, mut told: impl FnMut(&CaseResult)) -> Report {
    let mut results = Vec::with_capacity(cases.len());
    for case in cases {
        bench.begin();
        let started = Instant::now();
        let verdict = (case.run)(&mut bench).await;
        let (outcome, text) = match verdict {
            Ok(remark) => (Outcome::Pass, remark.unwrap_or_default()),
            Err(Stop::Fail(why)) => (Outcome::Fail, why),
            Err(Stop::Skip(why)) => (Outcome::Skip, why),
        };
        let result = CaseResult {
            name: case.name,
            section: case.section,
            need: case.need,
            outcome,
            text,
            exchange: bench.exchange(),
            took: started.elapsed(),
            transcript: None,
        };
        told(&result);
        results.push(result);
    }
    Report { target: bench.target().to_string(), results, unopened: bench.unopened(), unreached: None }
}
