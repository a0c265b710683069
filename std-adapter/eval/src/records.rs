//! The records of trials: steps, results of graders, measurements and verdicts.

use std::fmt::Write as _;
use std::time::Duration;

use rigline::Phase;
use rigline::protocol::waza::Verdict;

use super::attach::Attachment;

/// The record of one trial of a task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrialRecord {
    /// The number of the trial, from 1.
    pub number: u32,
    /// The way in which the trial ended.
    pub verdict: Verdict,
    /// The reason why the trial did not pass. `None` if it passed.
    pub error: Option<String>,
    /// The steps of the trial.
    pub steps: Vec<StepRecord>,
    /// The results of the graders.
    pub grades: Vec<Grade>,
    /// The answer of the agent. `None` if the task has no prompt.
    pub output: Option<String>,
    /// The duration of the trial.
    pub duration: Duration,
    /// The number of attempts at the trial. This record is that of the last one.
    pub attempts: u32,
    /// The cause, if the trial did not pass. It has no meaning if the trial passed.
    pub cause: Cause,
    /// The earlier attempts at the trial, the oldest first.
    pub earlier: Vec<EarlierAttempt>,
    /// The target that the trial ran on. `None` unless the run is spread over several targets.
    pub shard: Option<String>,
}

/// An attempt at a trial that was followed by another attempt.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EarlierAttempt {
    /// The verdict of the attempt.
    pub class: Class,
    /// The reason why the attempt did not pass.
    pub error: String,
    /// The files that the steps of the attempt attached.
    pub attachments: Vec<Attachment>,
}

impl EarlierAttempt {
    pub(super) fn new(class: Class, error: String, attachments: Vec<Attachment>) -> Self {
        Self { class, error, attachments }
    }
}

/// The record of one step of a trial.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepRecord {
    /// The id of the step.
    pub id: String,
    /// The operation that the step called.
    pub operation: String,
    /// The phase of the trial in which the step ran.
    pub phase: Phase,
    /// The way in which the step ended.
    pub verdict: Verdict,
    /// The message of the operation, or the reason of its failure.
    pub message: String,
    /// The outputs of the operation, as pairs of name and value.
    pub outputs: Vec<(String, String)>,
    /// The time limit of the step: its own, or the rest of the trial's. `None` if the step was not
    /// sent to a rig.
    pub limit: Option<Duration>,
    /// The duration of the step.
    pub duration: Duration,
    /// The files that the step attached.
    pub attachments: Vec<Attachment>,
}

impl StepRecord {
    /// Returns the value of the output with this name.
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
pub enum GradeVerdict {
    /// The condition of the grader is met.
    Passed,
    /// The condition of the grader is not met.
    Failed,
    /// This runner does not support the type of the grader. It counts neither way.
    Unsupported,
}

impl GradeVerdict {
    /// Returns `passed`, `failed` or `unsupported`, as reports have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
        }
    }
}

/// The result of a grader, with the reason.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Grade {
    /// The name of the grader. If it has no name, its type.
    pub grader: String,
    /// The type of the grader, as the eval file spells it.
    pub kind: String,
    /// The name of the metric that the grader counts for. `None` if it counts for no metric.
    pub metric: Option<String>,
    /// The weight of the grader in its metric.
    pub weight: f64,
    /// The result of the grader.
    pub judgement: GradeVerdict,
    /// The reason for the result.
    pub message: String,
    /// The value that was measured. `None` if the grader measures nothing.
    pub measurement: Option<Measurement>,
}

/// A measured value, and the limits that it must stay within.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measurement {
    /// The name of the measurement, unique in its task.
    pub name: String,
    /// The value. A number keeps all its digits. If there is no output, it is empty.
    pub value: String,
    /// The unit of the measurement.
    pub unit: Option<String>,
    /// The smallest value that passes, as JSON text. `None` means no lower limit.
    pub low: Option<String>,
    /// The largest value that passes, as JSON text. `None` means no upper limit.
    pub high: Option<String>,
    /// Whether the value passed: it is within its limits, both included.
    pub passed: bool,
    /// Whether the value passed, but is beyond the narrower limits that mark it as marginal.
    pub is_marginal: bool,
}

impl Measurement {
    /// Returns the verdict of the value: `pass`, `marginal` or `fail`.
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

/// The verdict of a trial or a task. It says whether the board under test or the rig is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The trial or the task passed.
    Pass,
    /// The trial or the task failed, and the rig is not the reason.
    Fail,
    /// The rig could not do its part. It was unplugged, busy or too late, or another rig answered.
    /// Nothing is known about the board under test.
    RigError,
    /// The task passed in some trials or attempts and failed in others.
    Flaky,
    /// No grader could judge the trial or the task.
    Skipped,
    /// The run was cancelled before it ended.
    Cancelled,
}

impl Class {
    /// Returns the name of the verdict in reports, such as `rig_error`.
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

    /// Returns the verdict in words, for people.
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

/// The cause of a trial that did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Cause {
    /// The board under test, or the agent, did not meet a condition.
    #[default]
    Board,
    /// The rig, or the connection to it, failed.
    Rig,
    /// The rig did not end its operation before the time of the trial was over.
    Late,
    /// The agent used up the time of the trial.
    Agent,
    /// The eval's files have a mistake: arguments do not fit the operation, or a placeholder has no
    /// value.
    Eval,
}

impl Cause {
    /// Returns whether the rig is the cause.
    pub const fn is_rig(self) -> bool {
        matches!(self, Self::Rig | Self::Late)
    }

    /// Returns whether the end of the trial's time is the cause.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Late | Self::Agent)
    }
}

impl TrialRecord {
    /// Returns whether the trial could not be carried out. Something other than the board under
    /// test is then the reason that it did not pass.
    pub fn is_error(&self) -> bool {
        self.verdict == Verdict::Error
    }

    /// Returns the verdict of the trial.
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
