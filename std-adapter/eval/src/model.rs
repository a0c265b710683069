//! The data of reports. `rigline eval run --json` is this model as JSON, and every other report is written from it.

use std::collections::BTreeMap;

use rigline::protocol::waza::{RunState, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::attach::Attachment;
use super::digits::Digits;
use super::records::{Class, EarlierAttempt, Grade, Measurement, StepRecord, TrialRecord};
use super::run::{MetricResult, RunOutcome, TaskRecord};
use super::spec::Spec;
use super::{measurement, session, verdict};
use rigline_host::terminal::{cut, one_line, printable};
use rigline_std::clock::to_millis;

/// The longest name that a report shows, in characters. A longer name is cut.
const NAME: usize = 200;
/// The longest message or reason that a report shows, in characters. A longer text is cut.
const MESSAGE: usize = 4000;

/// The results of one `rigline eval run`, with one or several runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Results {
    /// Whether the exit code of the command is 0.
    pub success: bool,
    /// The exit code of the command. `None` until it is known.
    #[serde(rename = "exit_code")]
    pub exit_code: Option<u8>,
    /// The time at which the first run began, in milliseconds since 1970 (UTC).
    pub started_at_ms: u64,
    /// The duration of all runs together, in milliseconds. It is measured by a clock that nobody
    /// can set.
    pub duration_ms: u64,
    /// Facts that the caller gave with `--meta`, such as the operator, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// The machine that ran the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// The runs, in the order in which the command listed them.
    pub runs: Vec<Run>,
    /// The evals that could not be run, with the reasons.
    pub errors: Vec<UnrunnableEval>,
    /// The folder of the recording that `--record` made. In an HTML page the path is relative to
    /// the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<String>,
}

/// The machine that ran the command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Host {
    /// The name of the machine.
    pub name: String,
    /// The operating system and the architecture of the machine, such as `linux x86_64`.
    pub system: String,
    /// The name of the user who ran the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The version of rigline that ran.
    pub rigline: String,
}

impl Host {
    /// Describes this machine. The caller gives its name and the user.
    pub fn this(name: String, user: Option<String>) -> Self {
        let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        Self { name, system, user, rigline: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// An eval that could not be run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnrunnableEval {
    /// The path of the eval file. `None` if the error is about no single file.
    pub path: Option<String>,
    /// The reason why the eval could not be run.
    pub error: String,
}

impl UnrunnableEval {
    /// An eval that could not be run, with its file and the reason.
    pub fn new(path: Option<String>, error: impl Into<String>) -> Self {
        Self { path, error: error.into() }
    }
}

/// A file with its hash, so that a reader can tell whether it has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Hashed {
    /// The path of the file.
    pub path: String,
    /// The size of the file, in bytes. `None` if the file could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The SHA-256 hash of the file's content, in hexadecimal digits. `None` if the file could not
    /// be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The reason why the file could not be read. `None` if it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Hashed {
    /// A file at `path`, with its hash and size, or with the reason why it could not be read.
    pub fn new(path: String, found: Result<(String, u64), String>) -> Self {
        match found {
            Ok((sha256, bytes)) => Self { path, bytes: Some(bytes), sha256: Some(sha256), error: None },
            Err(error) => Self { path, error: Some(error), ..Self::default() },
        }
    }
}

/// The results of one run of one eval.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Run {
    /// The id of the run in the run store.
    pub run_id: String,
    /// The name of the eval.
    pub eval: String,
    /// The path of the eval file.
    pub path: String,
    /// The skill that the eval tests.
    pub skill: Option<String>,
    /// The version of the eval, as its file has it.
    pub version: Option<String>,
    /// The state in which the run ended: `completed`, `failed` or `cancelled`.
    pub status: String,
    /// Whether the run passed: enough tasks passed, or each metric reached its threshold.
    pub passed: bool,
    /// The verdict: `pass`, `fail`, `rig_error` or `cancelled`.
    pub verdict: String,
    /// The reason why the run did not pass. In a run that passed: the failures that its threshold
    /// allows.
    pub reason: Option<String>,
    /// The error that ended the run as a whole. `None` if there was none.
    pub error: Option<String>,
    /// The rig that the run used. `None` if no session was opened.
    pub rig: Option<Rig>,
    /// The result of the preflight. `None` if the eval has no preflight.
    pub health: Option<Trial>,
    /// The numbers of tasks, by outcome.
    pub summary: Summary,
    /// Warnings about the eval file, which may have mistakes at these places.
    pub warnings: Vec<String>,
    /// The share of tasks that must pass, from 0 to 1.
    pub pass_threshold: f64,
    /// The results of the metrics. Empty if the eval lists no metrics.
    pub metrics: Vec<MetricResult>,
    /// The mean of the metrics by their weights, from 0 to 1. `None` if the eval lists no metrics.
    pub score: Option<f64>,
    /// The time after a step's limit in which an answer still counts, in milliseconds. It is always
    /// 0.
    pub grace_ms: u64,
    /// The time at which the run began, in milliseconds since 1970 (UTC).
    pub started_at_ms: u64,
    /// The duration of the run, in milliseconds.
    pub duration_ms: u64,
    /// The program that was the target, and the scripts among its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Hashed>,
    /// The files that the eval consists of: its own and those of its tasks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Hashed>,
    /// The results of the tasks. A task that did not run has no trials here, and JSON omits it.
    #[serde(serialize_with = "that_were_run")]
    pub tasks: Vec<Task>,
    /// The ids of the tasks that the run did not reach.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_run: Vec<String>,
    /// The last lines of the run's log.
    #[serde(skip)]
    pub logs: Logs,
    /// Earlier runs of the same eval, the oldest first.
    #[serde(skip)]
    pub earlier: Vec<Past>,
    /// The number of this run among the runs of evals of the same name, from 1.
    #[serde(skip)]
    pub place: usize,
    /// The number of steps that do not fit the operations of the target.
    #[serde(skip)]
    pub mistakes: usize,
}

fn that_were_run<S: serde::Serializer>(tasks: &[Task], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tasks.iter().filter(|task| !task.is_not_run))
}

/// The numbers of a run's tasks, by outcome.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Summary {
    /// The number of all tasks.
    pub total: u32,
    /// The number of tasks that passed.
    pub passed: u32,
    /// The number of tasks that failed, including those that the rig spoiled.
    pub failed: u32,
    /// The number of tasks that no grader could judge.
    pub skipped: u32,
    /// The share of tasks that passed, from 0 to 1. It is 0 if there are no tasks.
    pub pass_rate: f64,
}

/// The results of one task.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Task {
    /// The id of the task.
    pub id: String,
    /// The name of the task, for people. Programs use the id.
    pub name: String,
    /// The path of the task file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The way in which the task ended: `passed`, `failed`, `error`, `skipped` or `cancelled`.
    pub status: String,
    /// The verdict of the task: `pass`, `fail`, `rig_error`, `flaky`, `skipped` or `cancelled`.
    pub verdict: String,
    /// Whether the task did not pass, and the threshold of the eval allows that.
    pub tolerated: bool,
    /// The reason why the task did not pass. `None` if it passed.
    pub error: Option<String>,
    /// The number of trials that passed, if need be after further attempts.
    pub trials_passed: usize,
    /// The number of attempts in all trials of the task together.
    pub attempts: u64,
    /// The reliability of the task's trials, as
    /// [`Reliability::to_json`](crate::verdict::Reliability::to_json) writes it. Only the first
    /// attempt that the rig did not spoil counts.
    pub reliability: Value,
    /// The measurements of the task, over all trials.
    pub measurements: Vec<Statistic>,
    /// The duration of the task, in milliseconds.
    pub duration_ms: u64,
    /// The trials of the task.
    pub trials: Vec<Trial>,
    /// Whether the run did not reach the task.
    #[serde(skip)]
    pub is_not_run: bool,
}

/// The results of one trial of a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Trial {
    /// The id of the task.
    pub task: String,
    /// The number of the trial, from 1.
    pub trial: u32,
    /// The number of attempts at the trial, the last one included.
    pub attempts: u32,
    /// The target that the trial ran on. `None` unless the run is spread over several targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The way in which the trial ended: `passed`, `failed`, `error`, `skipped` or `cancelled`.
    pub status: String,
    /// The verdict of the trial: `pass`, `fail`, `rig_error`, `flaky`, `skipped` or `cancelled`.
    pub verdict: String,
    /// The attempts before the last one.
    pub earlier: Vec<Attempt>,
    /// The reason why the trial did not pass. `None` if it passed.
    pub error: Option<String>,
    /// The answer of the agent. `None` if the task has no prompt.
    pub output: Option<String>,
    /// The steps of the trial.
    pub steps: Vec<Step>,
    /// The results of the graders.
    pub graders: Vec<Grader>,
    /// The duration of the trial, in milliseconds.
    pub duration_ms: u64,
}

/// The result of one step of a trial.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Step {
    /// The id of the step.
    pub id: String,
    /// The operation that the step called.
    pub operation: String,
    /// The phase of the trial in which the step ran: `setup`, `verify` or `cleanup`.
    pub phase: String,
    /// The way in which the step ended: `passed`, `failed`, `error`, `skipped` or `cancelled`.
    pub status: String,
    /// The message of the operation, or the reason of its failure.
    pub message: String,
    /// The outputs of the operation, by their names.
    pub outputs: Map<String, Value>,
    /// The time limit of the step, in milliseconds. `None` if the step was not sent to a rig.
    pub limit_ms: Option<u64>,
    /// The duration of the step, in milliseconds.
    pub duration_ms: u64,
    /// The files that the step attached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

/// An attempt at a trial that was followed by another attempt.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Attempt {
    /// The verdict of the attempt, such as `fail` or `rig_error`.
    pub verdict: String,
    /// The reason why the attempt did not pass.
    pub error: Option<String>,
    /// The files that the steps of the attempt attached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

/// The result of one grader of a trial.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Grader {
    /// The name of the grader. If it has no name, its type.
    pub name: String,
    /// The type of the grader, as the eval file spells it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The weight of the grader in its metric.
    pub weight: f64,
    /// The result of the grader: `passed`, `failed` or `unsupported`.
    pub status: String,
    /// The reason for the result.
    pub message: String,
    /// The value that the grader measured. `None` if the grader measures nothing.
    pub measurement: Option<Measured>,
}

/// The rig that a run used.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Rig {
    /// The name of the extension on the rig.
    pub name: String,
    /// The version of the extension on the rig.
    pub version: String,
    /// The target, as the caller named it.
    pub target: String,
    /// The serial number of the device. `None` if it is not known.
    pub serial_number: Option<String>,
}

/// One measured value with its limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Measured {
    /// The name of the measurement.
    pub name: String,
    /// The measured value. In JSON it is a number, or a text if it is no number.
    pub value: Digits,
    /// The value as the device sent it. It is a text if the value is no number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The unit of the value.
    pub unit: Option<String>,
    /// The smallest value that passes. Empty if there is no lower limit.
    pub low: Digits,
    /// The largest value that passes. Empty if there is no upper limit.
    pub high: Digits,
    /// The verdict of the value: `pass`, `marginal` or `fail`.
    pub verdict: String,
}

/// The statistics of one measurement over the trials of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Statistic {
    /// The name of the measurement.
    pub name: String,
    /// The unit of the value.
    pub unit: Option<String>,
    /// The smallest value that passes. Empty if there is no lower limit.
    pub low: Digits,
    /// The largest value that passes. Empty if there is no upper limit.
    pub high: Digits,
    /// The value in the last trial.
    pub value: Digits,
    /// The value in the last trial, as the device sent it.
    pub text: String,
    /// The number of values that are numbers.
    pub count: usize,
    /// The smallest value.
    pub min: Digits,
    /// The largest value.
    pub max: Digits,
    /// The mean of the values.
    pub mean: Digits,
    /// The standard deviation of the values, as of a sample. `None` if there are fewer than two.
    pub standard_deviation: Option<f64>,
    /// The process capability Cpk: the distance from the mean to the nearer limit, divided by three
    /// standard deviations. `None` if it is not defined.
    pub cpk: Option<f64>,
    /// The verdict over all trials: `pass`, `marginal` or `fail`.
    pub verdict: String,
    /// The values that did not pass.
    pub failed: Vec<FailedValue>,
    /// The first value that passed and is marginal. Empty if there is none.
    #[serde(skip_serializing_if = "Digits::is_empty")]
    pub marginal: Digits,
}

/// A value that did not pass, because it is beyond its limits or no number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FailedValue {
    /// The number of the trial, from 1.
    pub trial: u32,
    /// The value that did not pass.
    pub value: Digits,
}

/// The last lines of a run's log.
#[derive(Debug, Clone, Default)]
pub struct Logs {
    /// The lines. Each has the milliseconds since the start of the run, the level and the text.
    pub lines: std::collections::VecDeque<(u64, &'static str, String)>,
    /// The number of older lines that were dropped.
    pub dropped: u64,
}

/// The summary of an earlier run of the same eval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Past {
    /// The id of the run.
    pub id: String,
    /// The time at which the run began, in milliseconds since 1970 (UTC).
    pub started_ms: u64,
    /// The number of tasks that passed.
    pub passed: u32,
    /// The number of all tasks of the run.
    pub total: u32,
    /// The mean of each measurement, with its name before it.
    pub means: Vec<(String, f64)>,
}

/// Returns the verdict of a whole run.
pub fn class(outcome: &RunOutcome) -> Class {
    match () {
        () if outcome.state == RunState::Cancelled => Class::Cancelled,
        () if outcome.passed => Class::Pass,
        () if outcome.has_failure() => Class::Fail,
        () if outcome.has_rig_error() => Class::RigError,
        () => Class::Fail,
    }
}

/// Reads a verdict or a status of the results. An unknown text is read as [`Class::RigError`],
/// which does not pass.
pub(super) fn class_of(text: &str) -> Class {
    match text {
        "pass" | "passed" => Class::Pass,
        "fail" | "failed" => Class::Fail,
        "flaky" => Class::Flaky,
        "skipped" => Class::Skipped,
        "cancelled" => Class::Cancelled,
        _ => Class::RigError,
    }
}

/// The way in which a report shows a result.
///
/// A report is red if one of its results is [`Failed`](Self::Failed) or [`Error`](Self::Error). It
/// is red exactly if the exit code of the command is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mark {
    /// The case passed.
    Passed,
    /// The case did not pass, and its eval did not pass either.
    Failed,
    /// The case did not pass, because of the rig or of the eval's own files.
    Error,
    /// The case did not pass, but its eval passed: the threshold allows the failure.
    Tolerated,
    /// The case could not be judged.
    Skipped,
    /// The run did not reach the case, or stopped before its end.
    NotRun,
}

impl Mark {
    /// Returns whether the mark makes a report red.
    pub fn is_red(self) -> bool {
        matches!(self, Self::Failed | Self::Error)
    }
}

/// One result that a report shows. It is a task, or the reason why a run or an eval has no results
/// of tasks.
#[derive(Debug, Clone, Copy)]
pub struct ReportCase<'r> {
    /// The run. `None` if the eval could not be run.
    pub run: Option<&'r Run>,
    /// The task. `None` if the result is about the whole run or eval.
    pub task: Option<&'r Task>,
    /// The name of the eval. If the eval could not be run, its file.
    pub suite: &'r str,
    /// The name of the task, or of the condition that was not met.
    pub name: &'r str,
    /// The verdict of the case.
    pub class: Class,
    /// The way in which a report shows the case.
    pub mark: Mark,
    /// The reason why the case did not pass. Empty if it passed.
    pub why: &'r str,
}

impl ReportCase<'_> {
    /// Returns the verdict in words, for people.
    pub fn label(&self) -> &'static str {
        match (self.mark, self.class) {
            (Mark::Tolerated, Class::Flaky) => "flaky, tolerated",
            (Mark::Tolerated, _) => "failed, tolerated",
            (Mark::NotRun, _) if self.task.is_some_and(|task| task.is_not_run) => "not run",
            _ => self.class.label(),
        }
    }

    /// Returns an id that no other case of the results has.
    pub fn id(&self) -> String {
        let run = self.run.map_or_else(|| self.suite.to_owned(), Run::label);
        match self.task {
            Some(task) => format!("{run}/{}", task.id),
            None => format!("{run}#{}", self.name),
        }
    }
}

impl Results {
    /// Reads the JSON text that `rigline eval run --json` writes.
    ///
    /// # Errors
    /// The text is not JSON, or does not have the form of results.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        let mut results: Self = serde_json::from_str(text)?;
        results.number();
        Ok(results)
    }

    /// Numbers the runs of evals of the same name from 1, in [`Run::place`], so that they can be
    /// told apart.
    pub fn number(&mut self) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for run in &mut self.runs {
            let count = seen.entry(run.eval.clone()).or_default();
            *count += 1;
            run.place = *count;
        }
    }

    /// Returns the time at which the last run ended, in milliseconds since 1970 (UTC). It is the
    /// start plus the duration, and so never before the start.
    pub fn ended_at_ms(&self) -> u64 {
        self.started_at_ms.saturating_add(self.duration_ms)
    }

    /// Makes the paths of attached files and of the recording relative to `folder`. A page in that
    /// folder can then be moved together with the files. A path that shares only the root with
    /// `folder` stays absolute.
    pub fn relative_to(&mut self, folder: &std::path::Path) {
        let trials = self.runs.iter_mut().flat_map(|run| run.tasks.iter_mut().flat_map(|task| &mut task.trials));
        let attached = trials.flat_map(|trial| {
            let earlier = trial.earlier.iter_mut().flat_map(|attempt| &mut attempt.attachments);
            earlier.chain(trial.steps.iter_mut().flat_map(|step| &mut step.attachments))
        });
        let paths = attached.filter_map(|it| it.path.as_mut()).chain(self.recording.as_mut());
        for path in paths {
            if let Some(relative) = relative(std::path::Path::new(path), folder) {
                *path = relative;
            }
        }
    }

    /// Returns the results as JSON text of several lines.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Returns all cases, in the order of the runs.
    pub fn cases(&self) -> impl Iterator<Item = ReportCase<'_>> {
        let unusable = self.errors.iter().map(|unusable| ReportCase {
            run: None,
            task: None,
            suite: unusable.path.as_deref().unwrap_or("evals"),
            name: "the eval can be run",
            class: Class::RigError,
            mark: Mark::Error,
            why: &unusable.error,
        });
        self.runs.iter().flat_map(Run::cases).chain(unusable)
    }

    /// Returns the number of cases with this verdict.
    pub fn count(&self, class: Class) -> usize {
        self.cases().filter(|case| case.class == class).count()
    }

    /// Returns whether a case makes the reports red.
    pub fn is_red(&self) -> bool {
        self.cases().any(|case| case.mark.is_red())
    }
}

impl Run {
    /// The results of the run `id` of `spec`.
    pub fn from_outcome(spec: &Spec, id: &str, outcome: &RunOutcome) -> Self {
        let waza = outcome.summary;
        let pass_rate = if waza.total == 0 { 0.0 } else { f64::from(waza.passed) / f64::from(waza.total) };
        let folder = spec.path.parent().unwrap_or(std::path::Path::new(""));
        let mut tasks: Vec<Task> = outcome.tasks.iter().map(|record| Task::of(spec, record)).collect();
        let is_done = |place: usize| outcome.tasks.iter().any(|task| task.task == place);
        let left = spec.tasks.iter().enumerate().filter(|(place, _)| !is_done(*place));
        tasks.extend(left.map(|(_, task)| Task::not_run(&task.id, &task.name)));
        for task in &mut tasks {
            let known = spec.tasks.iter().find(|known| known.id == task.id);
            task.file = known.map(|known| folder.join(&known.file).to_string_lossy().into_owned());
        }
        let mut run = Self {
            run_id: id.to_owned(),
            eval: spec.name.clone(),
            path: spec.path.to_string_lossy().into_owned(),
            skill: spec.skill.clone(),
            version: spec.version.clone(),
            status: outcome.state.as_str().to_owned(),
            passed: outcome.passed,
            verdict: class(outcome).name().to_owned(),
            error: outcome.error.clone(),
            rig: outcome.rig.as_ref().map(Rig::of),
            health: outcome.health.as_ref().map(|health| Trial::of("health", health)),
            summary: Summary {
                total: waza.total,
                passed: waza.passed,
                failed: waza.failed,
                skipped: outcome.skipped,
                pass_rate,
            },
            warnings: spec.warnings.iter().map(ToString::to_string).collect(),
            pass_threshold: spec.metrics.pass_threshold,
            metrics: outcome.metrics.clone(),
            score: outcome.score,
            duration_ms: to_millis(outcome.duration),
            not_run: tasks.iter().filter(|task| task.is_not_run).map(|task| task.id.clone()).collect(),
            tasks,
            place: 1,
            mistakes: outcome.mistakes.len(),
            ..Self::default()
        };
        let passed = run.passed;
        for task in &mut run.tasks {
            task.tolerated = passed && !task.is_not_run && matches!(task.mark(passed), Mark::Tolerated);
        }
        run.reason = run.why(outcome.state, None);
        run
    }

    /// Adds the cause that ended the command early, such as a signal, to the reason of a run that
    /// was cancelled.
    #[must_use]
    pub fn interrupted_by(mut self, cause: &str) -> Self {
        if self.status == RunState::Cancelled.as_str() {
            self.reason = self.why(RunState::Cancelled, Some(cause));
        }
        self
    }

    /// Why it did not pass, or which failures its threshold allows.
    fn why(&self, state: RunState, interrupted: Option<&str>) -> Option<String> {
        let Summary { total, skipped, .. } = self.summary;
        let left = match self.not_run.len() {
            0 => String::new(),
            left => format!("; {left} of {total} tasks were not run"),
        };
        match state {
            RunState::Completed => {}
            RunState::Cancelled => {
                let by = interrupted.map(|by| format!(" by {by}")).unwrap_or_default();
                return Some(format!("{}{by}{left}", self.error.as_deref().unwrap_or("Eval execution cancelled")));
            }
            _ => {
                let error = self.error.as_deref().unwrap_or("Eval execution failed");
                return Some(format!("{error}{left}"));
            }
        }
        let tolerated = self.tasks.iter().filter(|task| task.tolerated).count();
        let mut text = match tolerated {
            0 if self.passed => return None,
            0 if total > 0 && skipped == total => "nothing was judged: ".to_owned(),
            0 => String::new(),
            1 => "1 task that did not pass is tolerated: ".to_owned(),
            many => format!("{many} tasks that did not pass are tolerated: "),
        };
        text += &self.counts();
        for metric in self.metrics.iter().filter(|metric| self.passed || !metric.passed) {
            let (share, threshold) = (percent(metric.share), percent(metric.threshold));
            text += &format!(", {}: {share}, {threshold} needed", metric.name);
        }
        Some(text)
    }

    /// How many of its tasks passed, and what became of others.
    fn counts(&self) -> String {
        let Summary { total, passed, skipped, .. } = self.summary;
        let mut text = format!("{passed} of {total} tasks passed");
        let count = |class: Class| self.tasks.iter().filter(|task| task.class() == class).count();
        for (class, plural) in [(Class::RigError, "rig errors"), (Class::Flaky, "flaky")] {
            match count(class) {
                0 => {}
                1 => text += &format!(", 1 {}", class.label()),
                many => text += &format!(", {many} {plural}"),
            }
        }
        match self.tasks.iter().filter(|task| task.has_mistake()).count() {
            0 => {}
            1 => text += ", 1 mistake of the eval",
            many => text += &format!(", {many} mistakes of the eval"),
        }
        if skipped > 0 {
            text += &format!(", {skipped} not judged");
        }
        if self.metrics.is_empty() {
            text += &format!(", {} needed", percent(self.pass_threshold));
        }
        text
    }

    /// Returns the verdict of the run in words, followed by the numbers of its tasks or by the
    /// reason.
    pub fn verdict_text(&self) -> String {
        let label = self.class().label();
        match &self.reason {
            _ if self.mistakes == 1 => format!("{label}, not run, 1 mistake in its steps"),
            _ if self.mistakes > 1 => format!("{label}, not run, {} mistakes in its steps", self.mistakes),
            Some(reason) if self.status != "completed" => format!("{label}: {reason}"),
            Some(reason) if reason.starts_with("nothing") => format!("{label}, {reason}"),
            _ => format!("{label}, {}", self.counts()),
        }
    }

    /// Returns the verdict of the run.
    pub fn class(&self) -> Class {
        match self.verdict.as_str() {
            "" if self.passed => Class::Pass,
            "" if self.status == "completed" => Class::Fail,
            "" => class_of(&self.status),
            verdict => class_of(verdict),
        }
    }

    /// Returns the name of the eval. The second and later runs of one name also have their number.
    pub fn label(&self) -> String {
        if self.place > 1 { format!("{} ({})", self.eval, self.place) } else { self.eval.clone() }
    }

    /// Returns the tasks of the run as cases. If no task says why the run did not pass, a case
    /// about the whole run follows.
    pub fn cases(&self) -> impl Iterator<Item = ReportCase<'_>> {
        let tasks = self.tasks.iter().map(move |task| ReportCase {
            run: Some(self),
            task: Some(task),
            suite: &self.eval,
            name: if task.name.is_empty() { &task.id } else { &task.name },
            class: task.class(),
            mark: task.mark(self.passed),
            why: task.error.as_deref().unwrap_or_default(),
        });
        let is_red = self.tasks.iter().any(|task| task.mark(self.passed).is_red());
        let is_complete = self.error.is_none() && self.status == "completed";
        let is_whole = !self.passed && (!is_complete || !is_red);
        let (name, class, mark) = match self.class() {
            _ if is_complete => ("the eval passes", Class::Fail, Mark::Failed),
            Class::Cancelled => ("the run as a whole", Class::Cancelled, Mark::Error),
            class => ("the run as a whole", class, Mark::Error),
        };
        let why = self.reason.as_deref().or(self.error.as_deref()).unwrap_or("it did not pass");
        let whole = ReportCase { run: Some(self), task: None, suite: &self.eval, name, class, mark, why };
        tasks.chain(is_whole.then_some(whole))
    }
}

/// A share of 1, in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

impl Rig {
    fn of(rig: &session::RigIdentity) -> Self {
        let session::RigIdentity { name, version, target, serial_number } = rig.clone();
        Self { name, version, target, serial_number }
    }
}

impl Trial {
    /// The results of one trial of the task with the id `task`.
    pub fn of(task: &str, record: &TrialRecord) -> Self {
        Self {
            task: task.to_owned(),
            trial: record.number,
            attempts: record.attempts,
            status: record.verdict.as_str().to_owned(),
            verdict: record.class().name().to_owned(),
            shard: record.shard.clone(),
            earlier: record.earlier.iter().map(Attempt::of).collect(),
            error: record.error.clone(),
            output: record.output.clone(),
            steps: record.steps.iter().map(Step::of).collect(),
            graders: record.grades.iter().map(Grader::of).collect(),
            duration_ms: to_millis(record.duration),
        }
    }

    /// Returns the verdict of the trial.
    pub fn class(&self) -> Class {
        class_of(if self.verdict.is_empty() { &self.status } else { &self.verdict })
    }

    /// Returns whether the trial passed, if need be after further attempts.
    pub fn has_passed(&self) -> bool {
        class_of(&self.status) == Class::Pass
    }

    /// Returns the measured values of the trial.
    pub fn values(&self) -> impl Iterator<Item = &Measured> {
        self.graders.iter().filter_map(|grader| grader.measurement.as_ref())
    }
}

impl Attempt {
    /// Returns the verdict of the attempt.
    pub fn class(&self) -> Class {
        class_of(&self.verdict)
    }

    fn of(attempt: &EarlierAttempt) -> Self {
        Self {
            verdict: attempt.class.name().to_owned(),
            error: Some(attempt.error.clone()),
            attachments: attempt.attachments.clone(),
        }
    }
}

impl Step {
    fn of(step: &StepRecord) -> Self {
        use rigline::Phase;
        let phase = match step.phase {
            Phase::Setup => "setup",
            Phase::Cleanup => "cleanup",
            _ => "verify",
        };
        Self {
            id: step.id.clone(),
            operation: step.operation.clone(),
            phase: phase.to_owned(),
            status: step.verdict.as_str().to_owned(),
            message: step.message.clone(),
            outputs: step.outputs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect(),
            limit_ms: step.limit.map(to_millis),
            duration_ms: to_millis(step.duration),
            attachments: step.attachments.clone(),
        }
    }
}

impl Grader {
    fn of(grade: &Grade) -> Self {
        Self {
            name: grade.grader.clone(),
            kind: grade.kind.clone(),
            weight: grade.weight,
            status: grade.judgement.as_str().to_owned(),
            message: grade.message.clone(),
            measurement: grade.measurement.as_ref().map(Measured::of),
        }
    }
}

impl Measured {
    /// The measured value of a grader or a step.
    pub fn of(measurement: &Measurement) -> Self {
        let limit = |limit: &Option<String>| limit.as_deref().map(Digits::new).unwrap_or_default();
        Self {
            name: measurement.name.clone(),
            value: Digits::new(&measurement.value),
            text: measurement.value.clone(),
            unit: measurement.unit.clone(),
            low: limit(&measurement.low),
            high: limit(&measurement.high),
            verdict: measurement.verdict().to_owned(),
        }
    }

    /// Returns whether the value is beyond its limits, or no number.
    pub fn is_bad(&self) -> bool {
        self.verdict != "marginal" && class_of(&self.verdict) != Class::Pass
    }
}

impl Statistic {
    /// The statistics of a measurement, as reports have them.
    pub fn of(of: &measurement::Statistics) -> Self {
        let Measured { name, value, text, unit, low, high, .. } = Measured::of(&of.last);
        let failed = of.failed.iter().map(|(trial, value)| FailedValue { trial: *trial, value: Digits::new(value) });
        Self {
            name,
            unit,
            low,
            high,
            value,
            text,
            count: of.count,
            min: Digits::new(&of.min),
            max: Digits::new(&of.max),
            mean: Digits::new(&of.mean),
            standard_deviation: of.deviation,
            cpk: of.cpk,
            verdict: match (of.passed, &of.marginal) {
                (false, _) => "fail",
                (true, Some(_)) => "marginal",
                (true, None) => "pass",
            }
            .to_owned(),
            failed: failed.collect(),
            marginal: of.marginal.as_deref().map(Digits::new).unwrap_or_default(),
        }
    }

    /// Returns whether at least one value is beyond its limits, or no number.
    pub fn is_bad(&self) -> bool {
        self.verdict != "marginal" && class_of(&self.verdict) != Class::Pass
    }

    /// Returns the value that decides the verdict: the first that did not pass. If all passed,
    /// returns the first one that is marginal. If none is, returns the last value.
    pub fn decisive(&self) -> &Digits {
        let passed = if self.marginal.is_empty() { &self.value } else { &self.marginal };
        self.failed.first().map_or(passed, |failed| &failed.value)
    }

    /// Returns the limits as text, such as `[3.135 … 3.465]`. Returns an empty text if there are
    /// none.
    pub fn limits(&self) -> String {
        let limit = |limit: &'_ Digits| (!limit.is_empty()).then(|| shown(limit));
        measurement::limits(limit(&self.low).as_deref(), limit(&self.high).as_deref())
    }

    /// Returns the value that decides the verdict, with its unit. If the output is missing, the
    /// text says so.
    pub fn value_with_unit(&self) -> String {
        with_unit(self.decisive(), self.unit.as_deref())
    }

    /// Returns the smallest and the largest value, the mean, the standard deviation and the
    /// capability as text. The trials that failed are named. The text is empty for a single value
    /// that passed.
    pub fn over_trials(&self) -> String {
        let mut parts = Vec::new();
        if self.count > 1 {
            parts.push(format!("{} to {}", shown(&self.min), shown(&self.max)));
            let rounding = measurement::Rounding::of(&[self.min.as_str(), self.max.as_str()]);
            parts.extend(rounding.of_text(self.mean.as_str()).map(|mean| format!("mean {mean}")));
            let deviation = self.standard_deviation.and_then(|deviation| rounding.of_float(deviation));
            parts.extend(deviation.map(|deviation| format!("s {deviation}")));
            parts.extend(self.cpk.map(|cpk| format!("Cpk {cpk:.2}")));
        }
        if self.count > 1 || self.failed.len() > 1 {
            let failed = self.failed.iter().take(5).map(|it| format!("{} in trial {}", missing(&it.value), it.trial));
            let failed = failed.collect::<Vec<_>>().join(", ");
            match self.failed.len() {
                0 => {}
                1..=5 => parts.push(format!("failed: {failed}")),
                many => parts.push(format!("{many} failed: {failed} …")),
            }
        }
        parts.join(", ")
    }

    /// Returns the names and values of the members that reports for machines have.
    pub fn members(&self) -> Vec<(&'static str, String)> {
        let mut members = vec![("value", shown(self.decisive()))];
        members.extend(self.unit.as_ref().map(|unit| ("unit", name(unit))));
        for (member, digits) in [("low", &self.low), ("high", &self.high)] {
            members.extend((!digits.is_empty()).then(|| (member, shown(digits))));
        }
        members.push(("verdict", name(&self.verdict)));
        if self.count > 1 {
            members.push(("count", self.count.to_string()));
            for (member, digits) in [("min", &self.min), ("mean", &self.mean), ("max", &self.max)] {
                members.extend((!digits.is_empty()).then(|| (member, shown(digits))));
            }
            members.extend(self.standard_deviation.map(|deviation| ("standard_deviation", deviation.to_string())));
            members.extend(self.cpk.map(|cpk| ("cpk", cpk.to_string())));
        }
        members
    }
}

/// A value with its unit.
pub(super) fn with_unit(value: &Digits, unit: Option<&str>) -> String {
    format!("{} {}", missing(value), name(unit.unwrap_or_default())).trim_end().to_owned()
}

fn missing(value: &Digits) -> String {
    if value.is_empty() { "no value".to_owned() } else { shown(value) }
}

impl Task {
    fn of(spec: &Spec, record: &TaskRecord) -> Self {
        let task = spec.tasks.get(record.task);
        let id = task.map(|task| task.id.clone()).unwrap_or_default();
        Self {
            name: task.map(|task| task.name.clone()).unwrap_or_default(),
            file: None,
            status: record.verdict.as_str().to_owned(),
            verdict: record.class().name().to_owned(),
            tolerated: false,
            error: record.why().map(str::to_owned),
            trials_passed: record.trials.iter().filter(|trial| trial.verdict == Verdict::Passed).count(),
            attempts: record.trials.iter().map(|trial| u64::from(trial.attempts)).sum(),
            reliability: verdict::Reliability::of(&record.trials).to_json(),
            measurements: record.measurements().iter().map(Statistic::of).collect(),
            duration_ms: to_millis(record.duration),
            trials: record.trials.iter().map(|trial| Trial::of(&id, trial)).collect(),
            is_not_run: false,
            id,
        }
    }

    /// Returns the verdict of the task.
    pub fn class(&self) -> Class {
        class_of(if self.verdict.is_empty() { &self.status } else { &self.verdict })
    }

    /// Returns whether the task counts as passed. A flaky task may count as passed.
    pub fn has_passed(&self) -> bool {
        class_of(&self.status) == Class::Pass
    }

    /// Returns whether a mistake in the eval's files is the reason why the task did not pass.
    pub fn has_mistake(&self) -> bool {
        self.class() == Class::Fail && self.trials.iter().any(|trial| trial.status == "error")
    }

    /// Returns the way in which a report shows the task. It depends on whether the whole run has
    /// passed.
    pub fn mark(&self, run_has_passed: bool) -> Mark {
        match self.class() {
            Class::Pass => Mark::Passed,
            Class::Flaky if self.has_passed() => Mark::Passed,
            Class::Skipped => Mark::Skipped,
            Class::Cancelled => Mark::NotRun,
            Class::RigError => Mark::Error,
            // The eval's files are at fault, which no threshold allows.
            Class::Fail if self.has_mistake() => Mark::Error,
            _ if run_has_passed => Mark::Tolerated,
            _ => Mark::Failed,
        }
    }

    /// Returns the number of trials that passed, and of all trials, such as `2/3`. Further attempts
    /// are named.
    pub fn trials_text(&self) -> String {
        let count = self.trials.len();
        let again = self.attempts.saturating_sub(count as u64);
        let again = if again == 0 { String::new() } else { format!(" ({} attempts)", self.attempts) };
        format!("{}/{count}{again}", self.trials_passed)
    }

    /// Returns the earlier attempts of all trials. Each has the number of its trial before it.
    pub fn earlier(&self) -> impl Iterator<Item = (u32, &Attempt)> {
        self.trials.iter().flat_map(|trial| trial.earlier.iter().map(|attempt| (trial.trial, attempt)))
    }

    /// Returns the measured values of all trials. Each has the number of its trial before it.
    pub fn values_by_trial(&self) -> impl Iterator<Item = (u32, &Measured)> {
        self.trials.iter().flat_map(|trial| trial.values().map(move |measured| (trial.trial, measured)))
    }

    /// Returns the attached files of all attempts. Each has the number of its trial and the id of
    /// its step before it.
    pub fn attachments(&self) -> impl Iterator<Item = (u32, &str, &Attachment)> {
        self.trials.iter().flat_map(|trial| {
            let earlier =
                trial.earlier.iter().flat_map(|attempt| &attempt.attachments).map(|it| ("earlier attempt", it));
            let steps = trial.steps.iter().flat_map(|step| step.attachments.iter().map(|it| (step.id.as_str(), it)));
            earlier.chain(steps).map(|(step, it)| (trial.trial, step, it))
        })
    }

    /// A task that was not come to.
    fn not_run(id: &str, name: &str) -> Self {
        let (id, name, status) = (id.to_owned(), name.to_owned(), "cancelled".to_owned());
        Self { id, name, status, is_not_run: true, ..Self::default() }
    }
}

impl Logs {
    /// The largest number of lines that are kept.
    pub const KEPT: usize = 1000;

    /// Adds a line. If there are [`KEPT`](Self::KEPT) lines already, the oldest is dropped.
    pub fn add(&mut self, ms: u64, level: &'static str, text: &str) {
        if self.lines.len() >= Self::KEPT {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back((ms, level, message(text)));
    }
}

/// A path from a folder, if both are absolute and share more than the root.
fn relative(path: &std::path::Path, folder: &std::path::Path) -> Option<String> {
    use std::path::Component;
    let common = path
        .components()
        .zip(folder.components())
        .take_while(|(a, b)| a == b)
        .map(|(part, _)| part)
        .collect::<Vec<_>>();
    if !common.iter().any(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    let up = folder.components().skip(common.len()).map(|_| "..".to_owned());
    let down = path.components().skip(common.len()).map(|part| part.as_os_str().to_string_lossy().into_owned());
    let parts: Vec<String> = up.chain(down).collect();
    Some(if parts.is_empty() { ".".to_owned() } else { parts.join("/") })
}

/// A value as it is shown.
pub(super) fn shown(value: &Digits) -> String {
    name(value.as_str())
}

/// An output as it is shown.
pub(super) fn output(value: &Value) -> String {
    match value {
        Value::String(text) => message(text),
        Value::Null => String::new(),
        other => message(&other.to_string()),
    }
}

/// A name on one line, without what drives a terminal or turns text around, and cut if it is very long.
pub(super) fn name(text: &str) -> String {
    cut(&one_line(text), NAME)
}

/// A message, cut if it is very long.
pub(super) fn message(text: &str) -> String {
    cut(&printable(text), MESSAGE)
}

/// A time since 1970 (UTC), in the format of RFC 3339.
pub(super) fn time(ms: u64) -> String {
    let time = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_millis(ms));
    // The crate ends at the year 9999.
    let time = time.filter(|_| ms < 253_402_300_800_000).unwrap_or(std::time::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}
