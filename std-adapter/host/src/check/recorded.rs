//! A fixture for cases that call through a host, over lines, over HTTP and in processes alike. The exchanges of each case can be
//! written to a transcript of `module:invoke` events ([`Plan::transcripts`]).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::{CaseFailure, Fixture, NO_SESSION, Verdict};
use crate::host::Direction;
use crate::terminal::cut_and_counted;
use rigline_std::clock::to_millis;

/// A call that cases may make. On live hardware cases make no other calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The name of the operation.
    pub operation: String,
    /// The arguments, as the text of a JSON object.
    pub args: String,
}

/// The calls that cases may make, and the folder for transcripts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The calls that cases may make. All of them are made. If there are none, cases that need a
    /// call are skipped.
    pub samples: Vec<Sample>,
    /// A call that takes longer than its time limit. `None` skips the cases that need one.
    pub slow: Option<Sample>,
    /// The folder for the transcript of each case. `None` writes no transcripts.
    pub transcripts: Option<PathBuf>,
}

/// A fixture that calls through a host and records its exchanges.
pub struct RecordingFixture<H> {
    pub(crate) host: H,
    pub(crate) plan: Plan,
    target: String,
    pub(crate) case: &'static str,
    exchanges: Vec<Exchange>,
    reach: Reach,
}

/// Whether the other end was ever there.
#[derive(Debug, Clone, Default)]
enum Reach {
    #[default]
    Untried,
    Unreached(String),
    Reached,
}

/// Whether an error means that nothing was there to answer.
pub(crate) trait MayBeUnreachable: fmt::Display {
    fn is_unreached(&self) -> bool;
}

/// A request and its answer.
#[derive(Debug, Clone)]
struct Exchange {
    at: SystemTime,
    took: Duration,
    op: String,
    sent: String,
    got: Result<String, String>,
}

impl<H> fmt::Debug for RecordingFixture<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingFixture")
            .field("target", &self.target)
            .field("case", &self.case)
            .finish_non_exhaustive()
    }
}

impl<H> Fixture for RecordingFixture<H> {
    fn target(&self) -> String {
        self.target.clone()
    }

    fn begin(&mut self, case: &'static str) -> Result<(), CaseFailure> {
        self.case = case;
        self.exchanges.clear();
        match &self.reach {
            Reach::Unreached(why) => Err(CaseFailure::Skip(format!("{NO_SESSION}: {why}"))),
            _ => Ok(()),
        }
    }

    fn exchange(&self) -> Vec<(Direction, String)> {
        self.exchanges.iter().flat_map(Exchange::lines).take(40).collect()
    }

    fn write_transcript(&self) -> io::Result<Option<PathBuf>> {
        let Some(folder) = &self.plan.transcripts else { return Ok(None) };
        let path = transcript(folder, self.case);
        let text: String = self.exchanges.iter().map(|exchange| exchange.event(&self.target)).collect();
        crate::files::write_private(&path, text.as_bytes())?;
        Ok(Some(path))
    }

    fn unreached(&self) -> Option<String> {
        match &self.reach {
            Reach::Unreached(why) => Some(why.clone()),
            _ => None,
        }
    }
}

/// Checks that the transcripts of all named cases can be written into `folder`.
///
/// # Errors
/// A transcript cannot be written.
pub fn ensure_transcripts<'c>(names: impl Iterator<Item = &'c str>, folder: &Path) -> io::Result<()> {
    for name in names {
        let path = transcript(folder, name);
        crate::files::ensure_writable(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

fn transcript(folder: &Path, case: &str) -> PathBuf {
    folder.join(format!("{case}.jsonl"))
}

impl Exchange {
    fn lines(&self) -> Vec<(Direction, String)> {
        let got = self.got.as_deref().unwrap_or("");
        let mut lines = vec![(Direction::Sent, cut_and_counted(&self.sent, 400))];
        if !got.is_empty() {
            lines.push((Direction::Received, cut_and_counted(got, 400)));
        }
        lines
    }

    /// The exchange as an event's line (Amplifier's protocol text §3), what was said in its data.
    fn event(&self, target: &str) -> String {
        let ts = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let is_ok = self.got.as_deref().is_ok_and(|got| {
            serde_json::from_str::<Value>(got)
                .is_ok_and(|got| got["ok"] == true || got["status"] == "ok" || got["name"].is_string())
        });
        let mut event = serde_json::json!({
            "id": uuid::Uuid::new_v4().to_string(),
            "ts": ts,
            "event": "module:invoke",
            "component": "rigline check",
            "module": target,
            "status": if is_ok { "ok" } else { "error" },
            "duration_ms": to_millis(self.took),
            "data": { "op": self.op, "sent": cut_and_counted(&self.sent, 4000) },
        });
        match &self.got {
            Ok(got) => event["data"]["got"] = cut_and_counted(got, 4000).into(),
            Err(why) => event["error"] = serde_json::json!({ "code": "unreachable", "message": why }),
        }
        format!("{event}\n")
    }
}

impl<H> RecordingFixture<H> {
    /// A fixture that calls through `host`. `target` is the name of the target in reports.
    pub fn new(host: H, target: impl Into<String>, plan: Plan) -> Self {
        let reach = Reach::default();
        Self { host, plan, target: target.into(), case: "", exchanges: Vec::new(), reach }
    }

    pub(crate) fn note<E: MayBeUnreachable>(
        &mut self,
        op: &str,
        sent: &str,
        start: (SystemTime, Instant),
        answer: Result<String, E>,
    ) -> Result<String, CaseFailure> {
        let is_unreached = answer.as_ref().is_err_and(E::is_unreached);
        let got = answer.map_err(|error| error.to_string());
        self.reach = match (&self.reach, &got) {
            (Reach::Untried, Err(why)) if is_unreached => Reach::Unreached(why.clone()),
            _ => Reach::Reached,
        };
        self.exchanges.push(Exchange {
            at: start.0,
            took: start.1.elapsed(),
            op: op.into(),
            sent: sent.into(),
            got: got.clone(),
        });
        got.map_err(CaseFailure::Fail)
    }

    /// The calls that may be made.
    pub(crate) fn samples(&self) -> Result<Vec<Sample>, CaseFailure> {
        if self.plan.samples.is_empty() {
            return Err(CaseFailure::Skip("no operation may be called: name one by --call".into()));
        }
        Ok(self.plan.samples.clone())
    }
}

pub(crate) fn start() -> (SystemTime, Instant) {
    (SystemTime::now(), Instant::now())
}

pub(crate) fn fail<T>(why: impl Into<String>) -> Result<T, CaseFailure> {
    Err(CaseFailure::Fail(why.into()))
}

pub(crate) fn json(text: &str) -> Result<Value, CaseFailure> {
    serde_json::from_str(text).map_err(|error| CaseFailure::Fail(format!("the answer is not JSON: {error}")))
}

pub(crate) fn is_success(json: &Value, operation: &str) -> Verdict {
    if json["ok"] == true && json.get("result").is_some() {
        return Ok(None);
    }
    fail(format!("{operation}: expected ok:true with a result"))
}
