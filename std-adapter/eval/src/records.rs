//! The records of trials: their steps, grades, measurements and results.

use std::fmt::Write as _;
use std::time::Duration;

use rigline::Phase;
use rigline::protocol::waza::Verdict;

use super::attach::Attachment;

/// The outcome of a trial.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrialRecord {
    /// The number of the trial, from 1.
    pub number: u32,
    /// How the trial ended.
    pub verdict: Verdict,
    /// Why the trial did not pass.
    pub error: Option<String>,
    /// The steps of the trial.
    pub steps: Vec<StepRecord>,
    /// The graders of the trial.
    pub grades: Vec<Grade>,
    /// The answer of the agent, if there was one.
    pub output: Option<String>,
    /// How long it took.
    pub duration: Duration,
    /// How often it was tried: this is the last time.
    pub attempts: u32,
    /// Why the trial did not pass, if it did not.
    pub cause: Cause,
    /// The results of the earlier attempts.
    pub earlier: Vec<EarlierAttempt>,
    /// The target that it was sent to, in a run that has several.
    pub shard: Option<String>,
}

/// An attempt at a trial that was tried again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EarlierAttempt {
    /// The result.
    pub class: Class,
    /// Why the attempt did not pass.
    pub error: String,
    /// The files that its steps attached.
    pub attachments: Vec<Attachment>,
}

impl EarlierAttempt {
    pub(super) fn new(class: Class, error: String, attachments: Vec<Attachment>) -> Self {
        Self { class, error, attachments }
    }
}

/// The outcome of a step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepRecord {
    /// The id of the step.
    pub id: String,
    /// The operation of the step.
    pub operation: String,
    /// The phase of the step.
    pub phase: Phase,
    /// How the step ended.
    pub verdict: Verdict,
    /// The message of the step, or the reason of its failure.
    pub message: String,
    /// The outputs of the step.
    pub outputs: Vec<(String, String)>,
    /// The time limit that it was given: its own, or what was left of the trial's. `None` for a step that was not sent to a rig.
    pub limit: Option<Duration>,
    /// How long it took.
    pub duration: Duration,
    /// The files that it attached.
    pub attachments: Vec<Attachment>,
}

impl StepRecord {
    /// The output of that name.
    pub fn output(&self, name: &str) -> Option<&str> {
        self.outputs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All it said: its message, and a line for each output.
    pub(super) fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.outputs {
            let _ = write!(text, "\n{name}: {value}");
        }
        text
    }

    pub(super) fn no_output(&self, name: &str) -> String {
        let there: Vec<&str> = self.outputs.iter().map(|(name, _)| name.as_str()).collect();
        match there.as_slice() {
            [] => format!("step {} has no output {name}; it has no outputs", self.id),
            there => format!("step {} has no output {name}; known outputs: {}", self.id, there.join(", ")),
        }
    }

    #[cfg(test)]
    pub(super) fn done(id: &str, message: &str, outputs: &[(&str, &str)]) -> Self {
        Self {
            id: id.into(),
            operation: id.into(),
            phase: Phase::Verify,
            verdict: Verdict::Passed,
            message: message.into(),
            outputs: outputs.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
            limit: None,
            duration: Duration::from_millis(1),
            attachments: Vec::new(),
        }
    }
}

/// The result of a grader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The grader was satisfied.
    Passed,
    /// The grader was not satisfied.
    Failed,
    /// This runner does not have its kind. It counts neither way.
    Unsupported,
}

impl Judgement {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
        }
    }
}

/// The grader's message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Grade {
    /// The grader, by its name, or its type.
    pub grader: String,
    /// The type of the grader.
    pub kind: String,
    /// The metric it names.
    pub metric: Option<String>,
    /// How much it counts for a metric.
    pub weight: f64,
    /// The result.
    pub judgement: Judgement,
    /// The reason.
    pub message: String,
    /// The number that was judged, if it was one.
    pub measurement: Option<Measurement>,
}

/// A number that was measured, and the limits it is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measurement {
    /// The name of the measurement, unique in its task.
    pub name: String,
    /// The number, with all its digits; another text, if it is none; empty, if there is no output.
    pub value: String,
    /// The unit of the measurement.
    pub unit: Option<String>,
    /// The least that passes.
    pub low: Option<String>,
    /// The most that passes.
    pub high: Option<String>,
    /// Whether it is within the limits, its ends included.
    pub passed: bool,
    /// Whether it passed, and is beyond the limits within the others.
    pub is_marginal: bool,
}

impl Measurement {
    /// `pass`, `marginal` or `fail`.
    pub fn verdict(&self) -> &'static str {
        match (self.passed, self.is_marginal) {
            (false, _) => "fail",
            (true, true) => "marginal",
            (true, false) => "pass",
        }
    }

    pub(super) fn new(
        name: String,
        value: String,
        unit: Option<String>,
        low: Option<String>,
        high: Option<String>,
        passed: bool,
    ) -> Self {
        Self { name, value, unit, low, high, passed, is_marginal: false }
    }
}

/// The result of a trial or a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The trial or the task passed.
    Pass,
    /// The trial or the task failed, and the rig is not the reason.
    Fail,
    /// The rig could not do its part: it was unplugged, another rig, busy, or too late. Nothing is known of the board under test.
    RigError,
    /// The task passed in some trials or attempts, and failed in others.
    Flaky,
    /// The trial or the task was not judged.
    Skipped,
    /// The run was cancelled before it ended.
    Cancelled,
}

impl Class {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::RigError => "rig_error",
            Self::Flaky => "flaky",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// The word for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pass => "passed",
            Self::Fail => "failed",
            Self::RigError => "rig error",
            Self::Flaky => "flaky",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why something did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Cause {
    /// The board under test, or the agent.
    #[default]
    Board,
    /// The rig, or the way to it.
    Rig,
    /// The rig did not end its part before the trial's time was over.
    Late,
    /// The agent used up the trial's time.
    Agent,
    /// The eval's files: arguments that do not fit, or a placeholder without a value.
    Eval,
}

impl Cause {
    /// Whether the rig is the reason.
    pub const fn is_rig(self) -> bool {
        matches!(self, Self::Rig | Self::Late)
    }

    /// Whether the trial's time was over.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Late | Self::Agent)
    }
}

impl TrialRecord {
    /// Whether something other than the board under test is the reason that it did not pass.
    pub fn is_error(&self) -> bool {
        self.verdict == Verdict::Error
    }

    /// The result of the trial.
    pub fn class(&self) -> Class {
        let has_failed = self.earlier.iter().any(|attempt| attempt.class == Class::Fail);
        match self.verdict {
            Verdict::Passed if has_failed => Class::Flaky,
            Verdict::Passed => Class::Pass,
            Verdict::Skipped => Class::Skipped,
            Verdict::Cancelled => Class::Cancelled,
            Verdict::Failed | Verdict::Error if self.cause.is_rig() => Class::RigError,
            Verdict::Failed | Verdict::Error => Class::Fail,
        }
    }
}
