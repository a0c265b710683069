//! Eval and task files: their content, and all their faults.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rigline::Phase;

use super::foreign;
use super::grade::Grader;
use super::redact::Redactor;
pub use super::root::FILE_LIMIT;
use super::yaml::Node;
pub use super::yaml::{DEPTH_LIMIT, VALUE_LIMIT};
use rigline_host::JsonObject;

mod config;
mod grader;
mod load;
mod members;
mod reader;
mod settings;
mod shared_graders;
pub(super) mod source;
mod step;
mod task;
mod tasks;
mod texts;

pub use load::load;

/// The largest number of tasks of an eval.
pub const TASK_LIMIT: usize = 10_000;
/// The largest size of an eval's task files together, in bytes: 64 MiB. A file that a table turns
/// into several tasks counts once for each task.
pub const SIZE_LIMIT: usize = 64 << 20;
/// The largest number of trials of a task.
pub const TRIAL_LIMIT: u32 = 1000;
/// The largest number of attempts at a trial.
pub const ATTEMPT_LIMIT: u32 = 100;
/// The largest number of tasks that run at the same time.
pub const WORKER_LIMIT: usize = 64;
/// The longest time that a file may set: a thousand days.
pub const TIME_LIMIT: Duration = Duration::from_secs(86_400_000);
/// The time limit of a trial if the file sets none: five minutes.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The executor of an eval. It decides what answers the steps and prompts of its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// Nothing runs. The answers of steps and agent are invented, in the same way each time. It is
    /// for trying out an eval.
    Mock,
    /// A program runs for each prompt, and gets the prompt on its standard input.
    Command,
    /// A rigline target runs the operations that the steps name.
    Extension,
}

impl Executor {
    /// The names of the executors that this runner has.
    pub const AVAILABLE: [&str; 3] = ["mock", "command", "extension"];
    /// The names of executors of other eval runners. They are valid in a file, but this runner
    /// cannot run them.
    pub const ELSEWHERE: [&str; 3] = foreign::EXECUTORS;

    /// Returns the executor with this name. Returns `None` if this runner does not have it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mock" => Some(Self::Mock),
            "command" => Some(Self::Command),
            "extension" => Some(Self::Extension),
            _ => None,
        }
    }

    /// Returns the name of the executor, as eval files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mock => "mock",
            Self::Command => "command",
            Self::Extension => "extension",
        }
    }

    /// Returns whether an executor of this or of another runner has this name.
    pub fn is_known(name: &str) -> bool {
        Self::named(name).is_some() || Self::ELSEWHERE.contains(&name)
    }

    /// Returns the names of all executors, those of other runners last.
    pub fn known() -> impl Iterator<Item = &'static str> {
        Self::AVAILABLE.into_iter().chain(Self::ELSEWHERE)
    }
}

/// An eval with its tasks, as its files have them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Spec {
    /// The path of the eval file.
    pub path: PathBuf,
    /// The name of the eval.
    pub name: String,
    /// The description of the eval.
    pub description: Option<String>,
    /// The skill that the eval tests.
    pub skill: Option<String>,
    /// The version of the eval, as the file spells it.
    pub version: Option<String>,
    /// The settings with which the eval is run.
    pub config: Config,
    /// The conditions under which the eval passes.
    pub metrics: Metrics,
    /// The preflight, which runs before the tasks. If it fails, the rig is at fault and no task
    /// runs. `None` if the eval has none.
    pub health: Option<Task>,
    /// The tasks of the eval.
    pub tasks: Vec<Task>,
    /// The warnings: member names that are nearly known ones, and members that only other runners
    /// support.
    pub warnings: Vec<Fault>,
    /// The environment variables that it has.
    pub(super) redactor: Redactor,
    /// `config`, `metrics` and all members that are not known here, as JSON text, in their order.
    pub(super) members: Vec<(String, String)>,
}

impl Spec {
    /// Replaces the values of the eval's environment variables in a text by `{{env.NAME}}`.
    pub fn hidden(&self, text: &str) -> String {
        self.redactor.hidden(text)
    }
}

/// The settings with which an eval is run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The name of the executor, which may be one of another runner. If the file names none, it
    /// follows from the content of the file.
    pub executor: String,
    /// The name of the model, for executors that use one.
    pub model: Option<String>,
    /// The rigline target that the steps call. `None` if neither the file nor the caller names one.
    pub target: Option<String>,
    /// The number of trials of each task.
    pub trials_per_task: u32,
    /// The time limit of a trial, without its cleanup steps.
    pub timeout: Duration,
    /// The largest number of tasks that run at the same time.
    pub workers: usize,
    /// The program of the executor `command`, followed by its arguments.
    pub command: Vec<String>,
    /// The environment variables of that program, which are also sent with calls.
    pub env: BTreeMap<String, String>,
    /// The configuration that the target gets at the beginning of a session: the member `config` of
    /// gevals' `initialize`.
    pub settings: Option<JsonObject>,
    /// The folder in which a program of the target is started. It is the folder of the eval if the
    /// eval names the target; otherwise `None`.
    pub target_dir: Option<PathBuf>,
    /// The largest number of attempts at a trial that does not pass. The last attempt counts.
    pub max_attempts: u32,
    /// The largest number of further attempts at a trial after a rig error.
    pub retries: u32,
    /// Whether [`retries`](Self::retries) also apply after a failure of the board.
    pub retries_failures: bool,
}

/// The conditions under which an eval passes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Metrics {
    /// The share of tasks that must pass, from 0 to 1. It is not used if [`list`](Self::list) has
    /// metrics.
    pub pass_threshold: f64,
    /// The metrics. Each must reach its threshold.
    pub list: Vec<Metric>,
}

/// A metric: the share of graders that passed, among those that count for the metric.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Metric {
    /// The name of the metric. The graders with this text as their `metric`, name or type count. If
    /// there are none, all graders count.
    pub name: String,
    /// The weight of the metric in the mean of all metrics.
    pub weight: f64,
    /// The share of graders that must pass, from 0 to 1.
    pub threshold: f64,
    /// The description of the metric.
    pub description: Option<String>,
}

/// A task of an eval.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// The id of the task, unique in its eval.
    pub id: String,
    /// The name of the task. If the file has none, it is the id.
    pub name: String,
    /// The description of the task.
    pub description: Option<String>,
    /// The tags of the task. A filter finds the task by them.
    pub tags: Vec<String>,
    /// The prompt for the agent. `None` if the task has no agent.
    pub prompt: Option<String>,
    /// The path of the task file, from the folder of the eval.
    pub file: String,
    /// The time limit of a trial of this task. `None` means the limit of the eval.
    pub timeout: Option<Duration>,
    /// The steps of the task, sorted by phase, and in each phase in the order of the file.
    pub steps: Vec<Step>,
    /// The graders of the task: its own, those of `expected`, and those of the eval.
    pub graders: Vec<Grader>,
    /// The answers that the executor `mock` gives for this task.
    pub mock: Mock,
    /// `prompt` without what environment variables held.
    pub(super) shown_prompt: Option<String>,
    /// `graders` as JSON text.
    pub(super) graders_json: String,
    /// Members that are not known here, as JSON text.
    pub(super) members: Vec<(String, String)>,
}

/// The answers that the executor `mock` gives in place of its defaults.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Mock {
    /// The answer of the agent. `None` means the default.
    pub output: Option<String>,
    /// The duration of the agent's answer.
    pub delay: Duration,
    /// Whether the agent fails.
    pub fail: bool,
}

/// A step of a task: a call of an operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step {
    /// The id of the step, unique in its task.
    pub id: String,
    /// The phase in which the step runs. Steps of [`Phase::Cleanup`] run whatever happened before.
    pub phase: Phase,
    /// The name of the operation that the step calls.
    pub operation: String,
    /// The arguments of the step, with placeholders.
    pub(super) args: Node,
    /// The line in its file.
    pub(super) line: u32,
    /// The time limit of the step. `None` means the rest of the trial's time.
    pub timeout: Option<Duration>,
    /// The outputs that the executor `mock` invents, as pairs of name and value.
    pub mock: Vec<(String, String)>,
    /// The patterns of files below the working folder. Matching files are kept with the run.
    pub attach: Vec<String>,
}

/// A fault in an eval or task file, or in an option of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The description of the fault.
    pub text: String,
    /// The path of the file that has the fault.
    pub path: PathBuf,
    /// The path of the file from the folder of the eval. Empty if the fault is in an option of the
    /// command.
    pub file: String,
    /// The line of the fault, from 1. `None` if it is not known.
    pub line: Option<u32>,
}

impl Fault {
    /// Returns whether the fault is in an option of the command, and not in a file.
    pub fn is_of_option(&self) -> bool {
        self.file.is_empty()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            None if self.is_of_option() => f.write_str(&self.text),
            Some(line) => write!(f, "{} ({}:{line})", self.text, self.file),
            None => write!(f, "{} ({})", self.text, self.file),
        }
    }
}

/// The error for an eval file that could not be read at all.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file does not exist.
    #[error("Eval not found: {}", .0.display())]
    NotFound(PathBuf),
    /// The file cannot be read, is not YAML, or is not a map.
    #[error("{0}")]
    Unreadable(Fault),
}

/// The settings that replace those of an eval file for one run.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Overrides {
    /// The name of the executor. `None` keeps that of the file.
    pub executor: Option<String>,
    /// The name of the model. `None` keeps that of the file.
    pub model: Option<String>,
    /// The target. `None` keeps that of the file.
    pub target: Option<String>,
    /// The values of the eval's `inputs` and of names in `matrix` and `for`, as pairs of name and
    /// value. If a name occurs twice, the last value counts.
    pub set: Vec<(String, String)>,
}
