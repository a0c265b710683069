//! The data of reports: results as `rigline eval run --json` prints them, and further data of the runs.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::verdict::Class;
use rigline_host::terminal::{cut, one_line, printable};

/// The number of characters of a name that are shown if there is no room for all of it.
const NAME: usize = 200;
/// How many characters of a reason or a message are shown.
const MESSAGE: usize = 4000;

/// The results of one or several runs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Results {
    /// The runs in their order.
    pub runs: Vec<Run>,
    /// Evals that could not be run.
    pub errors: Vec<Unusable>,
    /// When the first began, in milliseconds since 1970 (UTC).
    pub started_ms: u64,
    /// When the last ended.
    pub ended_ms: u64,
}

/// An eval that could not be run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Unusable {
    /// Its file.
    pub path: Option<String>,
    /// Why.
    pub error: String,
}

/// A run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Run {
    /// Its id in the run store.
    pub run_id: String,
    /// The eval's name.
    pub eval: String,
    /// The eval's file.
    pub path: String,
    /// What the eval is about.
    pub skill: Option<String>,
    /// `completed`, `failed` or `cancelled`.
    pub status: String,
    /// Whether enough passed.
    pub passed: bool,
    /// Why it failed as a whole.
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
    /// The rig.
    pub rig: Option<Rig>,
    /// What may be wrong with the eval.
    pub warnings: Vec<String>,
    /// What became of its tasks.
    pub tasks: Vec<Task>,
    /// The log.
    #[serde(skip)]
    pub logs: Logs,
    /// Earlier runs of the same eval, the oldest first.
    #[serde(skip)]
    pub earlier: Vec<Past>,
}

/// A task of a run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Task {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// How it ended.
    pub status: String,
    /// What that means.
    pub verdict: String,
    /// Why it did not pass.
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
    /// Its trials.
    pub trials: Vec<Trial>,
    /// Its file.
    #[serde(skip)]
    pub file: Option<String>,
}

/// A trial of a task.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Trial {
    /// The task's id.
    pub task: String,
    /// Its number, from 1.
    pub trial: u64,
    /// How often it was tried.
    pub attempts: u64,
    /// How it ended.
    pub status: String,
    /// What that means.
    pub verdict: String,
    /// Why it did not pass.
    pub error: Option<String>,
    /// The attempts before the last.
    pub earlier: Vec<Attempt>,
    /// Its steps.
    pub steps: Vec<Step>,
    /// Its graders.
    pub graders: Vec<Grader>,
    /// How long it took.
    pub duration_ms: u64,
}

/// A step of a trial.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Step {
    /// Its id.
    pub id: String,
    /// The operation that it called.
    pub operation: String,
    /// The part of the task.
    pub phase: String,
    /// How it ended.
    pub status: String,
    /// The message.
    pub message: String,
    /// Its outputs.
    pub outputs: Map<String, Value>,
    /// How long it took.
    pub duration_ms: u64,
}

/// An attempt that another one followed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Attempt {
    /// The result.
    pub verdict: String,
    /// Why.
    pub error: Option<String>,
}

/// A grader of a trial.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Grader {
    /// The number that it judged.
    pub measurement: Option<Measured>,
}

/// The rig of a run, as far as it is known.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Rig {
    /// The extension's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The target.
    pub target: String,
    /// The serial number of the device.
    pub serial_number: Option<String>,
}

/// One measured value.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Measured {
    /// The measurements.
    pub name: String,
    /// The value.
    pub value: Value,
    /// Its unit.
    pub unit: Option<String>,
    /// The least that is good.
    pub low: Value,
    /// The most that is good.
    pub high: Value,
    /// `pass` or `fail`.
    pub verdict: String,
}

/// The last lines of a run's log.
#[derive(Debug, Clone, Default)]
pub struct Logs {
    /// The lines, each with its milliseconds since the start and its level.
    pub lines: std::collections::VecDeque<(u64, &'static str, String)>,
    /// How many were dropped before them.
    pub dropped: u64,
}

/// An earlier run of the same eval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Past {
    /// Its id.
    pub id: String,
    /// When it began, in milliseconds since 1970 (UTC).
    pub started_ms: u64,
    /// How many tasks passed.
    pub passed: u32,
    /// How many it has.
    pub total: u32,
    /// The mean of each measurement, by its name.
    pub means: Vec<(String, f64)>,
}

/// The meaning of a verdict or a status of the results. An unknown one does not pass.
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

/// A result that reports show: a task, or the reason why a run or an eval did not reach its tasks.
#[derive(Debug, Clone, Copy)]
pub struct Case<'r> {
    /// The run, if there was one.
    pub run: Option<&'r Run>,
    /// The task; none if this is about the whole.
    pub task: Option<&'r Task>,
    /// The eval's name, or its file.
    pub suite: &'r str,
    /// The task's name.
    pub name: &'r str,
    /// What became of it.
    pub class: Class,
    /// Whether it counts as passed. A flaky task may have passed in the end.
    pub passed: bool,
    /// Why.
    pub why: &'r str,
}

impl Results {
    /// Reads the results of `rigline eval run --json`.
    ///
    /// # Errors
    /// They are of another form.
    pub fn read(value: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(value)
    }

    /// All cases, in the order of the runs.
    pub fn cases(&self) -> impl Iterator<Item = Case<'_>> {
        let of_runs = self.runs.iter().flat_map(|run| {
            let tasks = run.tasks.iter().map(move |task| Case {
                run: Some(run),
                task: Some(task),
                suite: &run.eval,
                name: if task.name.is_empty() { &task.id } else { &task.name },
                class: task.class(),
                passed: class_of(&task.status) == Class::Pass,
                why: task.error.as_deref().unwrap_or_default(),
            });
            let whole = run.error.iter().map(move |error| Case {
                run: Some(run),
                task: None,
                suite: &run.eval,
                name: "the run as a whole",
                class: if run.status == "cancelled" { Class::Cancelled } else { Class::RigError },
                passed: false,
                why: error,
            });
            tasks.chain(whole)
        });
        let unusable = self.errors.iter().map(|unusable| Case {
            run: None,
            task: None,
            suite: unusable.path.as_deref().unwrap_or("evals"),
            name: "the eval can be run",
            class: Class::RigError,
            passed: false,
            why: &unusable.error,
        });
        of_runs.chain(unusable)
    }

    /// How many cases are of a class.
    pub fn count(&self, class: Class) -> usize {
        self.cases().filter(|case| case.class == class).count()
    }
}

impl Trial {
    /// What became of it.
    pub fn class(&self) -> Class {
        class_of(if self.verdict.is_empty() { &self.status } else { &self.verdict })
    }

    /// The measurements.
    pub fn measurements(&self) -> impl Iterator<Item = &Measured> {
        self.graders.iter().filter_map(|grader| grader.measurement.as_ref())
    }
}

impl Task {
    /// What became of it.
    pub fn class(&self) -> Class {
        class_of(if self.verdict.is_empty() { &self.status } else { &self.verdict })
    }

    /// The measurements, each with the number of its trial.
    pub fn measurements(&self) -> impl Iterator<Item = (u64, &Measured)> {
        self.trials.iter().flat_map(|trial| trial.measurements().map(move |measured| (trial.trial, measured)))
    }

    /// A task that was not come to.
    pub fn not_run(id: &str, name: &str, file: Option<String>) -> Self {
        let (id, name, status) = (id.to_owned(), name.to_owned(), "cancelled".to_owned());
        Self { id, name, status, file, ..Self::default() }
    }
}

impl Logs {
    /// The number of lines that are kept.
    pub const KEPT: usize = 1000;

    /// Adds a line.
    pub fn add(&mut self, ms: u64, level: &'static str, text: &str) {
        if self.lines.len() >= Self::KEPT {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back((ms, level, message(text)));
    }
}

impl Measured {
    /// Whether it is out of its limits.
    pub fn is_bad(&self) -> bool {
        class_of(&self.verdict) != Class::Pass
    }
}

/// A number, also one that is a string.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    number.is_finite().then_some(number)
}

/// A value as it is shown.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => name(text),
        Value::Null => String::new(),
        other => name(&other.to_string()),
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
