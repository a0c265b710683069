//! Eval and task files: what they say, and everything that is wrong with them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rigline::Phase;

use super::foreign;
use super::grade::Grader;
use super::mask::Mask;
use super::node::Node;
pub use super::node::{DEPTH_LIMIT, VALUE_LIMIT};
pub use super::root::FILE_LIMIT;
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

/// The most tasks of an eval.
pub const TASK_LIMIT: usize = 10_000;
/// The most bytes of an eval's task files; those that a table makes several tasks of count as often.
pub const SIZE_LIMIT: usize = 64 << 20;
/// The most trials of a task.
pub const TRIAL_LIMIT: u32 = 1000;
/// The most attempts at a trial.
pub const ATTEMPT_LIMIT: u32 = 100;
/// The most workers of a run.
pub const WORKER_LIMIT: usize = 64;
/// The longest time that anything in a file may set: a thousand days.
pub const TIME_LIMIT: Duration = Duration::from_secs(86_400_000);
/// A trial's time where the file sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The executor of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// Nothing: steps and agent are made up, always in the same way. For trying out.
    Mock,
    /// A program, which gets the prompt on its standard input.
    Command,
    /// Operations of a rigline target.
    Extension,
}

impl Executor {
    /// The executors that can run here.
    pub const AVAILABLE: [&str; 3] = ["mock", "command", "extension"];
    /// Executors of other eval runners: valid names that this runner does not support.
    pub const ELSEWHERE: [&str; 3] = foreign::EXECUTORS;

    /// The executor of that name, if it can run here.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mock" => Some(Self::Mock),
            "command" => Some(Self::Command),
            "extension" => Some(Self::Extension),
            _ => None,
        }
    }

    /// The name of the executor.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mock => "mock",
            Self::Command => "command",
            Self::Extension => "extension",
        }
    }

    /// Whether there is an executor of that name, here or elsewhere.
    pub fn is_known(name: &str) -> bool {
        Self::named(name).is_some() || Self::ELSEWHERE.contains(&name)
    }

    /// Returns the names of all executors.
    pub fn known() -> impl Iterator<Item = &'static str> {
        Self::AVAILABLE.into_iter().chain(Self::ELSEWHERE)
    }
}

/// An eval with its tasks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Spec {
    /// The file of the eval.
    pub path: PathBuf,
    /// The name of the eval.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// The skill it is about.
    pub skill: Option<String>,
    /// The version of the eval, as it was written.
    pub version: Option<String>,
    /// How the eval is run.
    pub config: Config,
    /// When the eval passes.
    pub metrics: Metrics,
    /// The preflight: what must hold before the tasks, or the rig is at fault.
    pub health: Option<Task>,
    /// The tasks of the eval.
    pub tasks: Vec<Task>,
    /// Warnings: members with names that are nearly known ones, and members that only other runners support.
    pub warnings: Vec<Fault>,
    /// The environment variables that it has.
    pub(super) mask: Mask,
    /// `config`, `metrics` and all members that are not known here, as JSON text, in their order.
    pub(super) members: Vec<(String, String)>,
}

impl Spec {
    /// A text with `{{env.NAME}}` in the place of the values of environment variables that the eval has.
    pub fn hidden(&self, text: &str) -> String {
        self.mask.hidden(text)
    }
}

/// How an eval is run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The executor's name, also of other runners. If the file has none, it is the one that the
    /// file needs.
    pub executor: String,
    /// The model, for executors that have one.
    pub model: Option<String>,
    /// The rigline target that steps call.
    pub target: Option<String>,
    /// How often each task is tried.
    pub trials_per_task: u32,
    /// The time limit of a trial, without its cleanup.
    pub timeout: Duration,
    /// How many tasks may run at a time.
    pub workers: usize,
    /// The program of the executor `command`, and its arguments.
    pub command: Vec<String>,
    /// Environment variables of the command, and of calls.
    pub env: BTreeMap<String, String>,
    /// The configuration of the target: gevals `config`.
    pub settings: Option<JsonObject>,
    /// The folder that a program of the target is started in: the eval's, where the eval names the target.
    pub target_dir: Option<PathBuf>,
    /// How often a trial that does not pass is tried; the last time counts.
    pub max_attempts: u32,
    /// How often a trial is tried again after a rig error.
    pub retries: u32,
    /// Whether [`retries`](Self::retries) are for failures too.
    pub retries_failures: bool,
}

/// When an eval passes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Metrics {
    /// The least share of tasks that must pass, 0 to 1.
    pub pass_threshold: f64,
    /// A list of metrics, each held against its threshold.
    pub list: Vec<Metric>,
}

/// A metric: the share of passed graders among those that count for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Metric {
    /// The name of the metric. Graders with this as their `metric`, name or type count; all of them, if there are none.
    pub name: String,
    /// The weight of the metric in the mean.
    pub weight: f64,
    /// The least share that must pass, 0 to 1.
    pub threshold: f64,
    /// The description.
    pub description: Option<String>,
}

/// A task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// The id of the task, unique in its eval.
    pub id: String,
    /// The name of the task; the id, if it has none.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// The prompt for an agent.
    pub prompt: Option<String>,
    /// The file of the task, from the eval's folder.
    pub file: String,
    /// The time limit of a trial, instead of the eval's.
    pub timeout: Option<Duration>,
    /// The steps of the task, by phase and then in their order.
    pub steps: Vec<Step>,
    /// The graders: its own, those of `expected`, and the eval's.
    pub graders: Vec<Grader>,
    /// The answers of the executor `mock`.
    pub mock: Mock,
    /// `prompt` without what environment variables held.
    pub(super) shown_prompt: Option<String>,
    /// `graders` as JSON text.
    pub(super) graders_json: String,
    /// Members that are not known here, as JSON text.
    pub(super) members: Vec<(String, String)>,
}

/// Answers that replace the default ones of the executor `mock`.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Mock {
    /// The agent's answer.
    pub output: Option<String>,
    /// The duration of a trial.
    pub delay: Duration,
    /// Whether the trial fails.
    pub fail: bool,
}

/// A call of an operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step {
    /// The id of the step, unique in its task.
    pub id: String,
    /// When the step is run. Steps of [`Phase::Cleanup`] always are.
    pub phase: Phase,
    /// The operation.
    pub operation: String,
    /// The arguments of the step, with placeholders.
    pub(super) args: Node,
    /// The line in its file.
    pub(super) line: u32,
    /// The time limit.
    pub timeout: Option<Duration>,
    /// The outputs that the executor `mock` makes up.
    pub mock: Vec<(String, String)>,
    /// The files below the workdir that are kept with the run, as patterns.
    pub attach: Vec<String>,
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The text.
    pub text: String,
    /// In which file.
    pub path: PathBuf,
    /// The file's name from the eval's folder; empty if the fault is in an option, and not in a file.
    pub file: String,
    /// In which line, from 1, if that is known.
    pub line: Option<u32>,
}

impl Fault {
    /// Whether an option of the command is wrong, and not a file.
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

/// Why there is nothing to look at.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file does not exist.
    #[error("Eval not found: {}", .0.display())]
    NotFound(PathBuf),
    /// It is not YAML, is not a map, or cannot be read.
    #[error("{0}")]
    Unreadable(Fault),
}

/// Settings of a run that replace those of the file.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Overrides {
    /// The executor.
    pub executor: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The target.
    pub target: Option<String>,
    /// Values for the eval's `inputs`, and for names of `matrix` and `for`.
    pub set: Vec<(String, String)>,
}
