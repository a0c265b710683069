//! Evals: waza's files, a runner for them, and the JSON-RPC server that IDEs drive.
//!
//! An eval is an `eval.yaml` with task files. A task has steps, which are calls of a rigline target's operations; or a prompt, for a
//! program; or both; and graders, which judge what came of it.
//!
//! ```yaml
//! # eval.yaml
//! name: rails
//! skill: rig
//! version: "1.0"
//! config: { executor: extension, target: sim, trials_per_task: 3, timeout_seconds: 30 }
//! metrics: { pass_threshold: 0.8 }
//! tasks: ["tasks/*.yaml"]
//!
//! # tasks/rail-3v3.yaml
//! id: rail-3v3
//! name: 3V3 within 5 %
//! steps:
//!   - { id: on,   phase: setup,   operation: power,   args: { rail: "3V3", on: true } }
//!   - { id: read, phase: verify,  operation: measure, args: { channel: "3V3", samples: 16 }, timeout: 2s }
//!   - { id: off,  phase: cleanup, operation: power,   args: { rail: "3V3", on: false } }
//! graders:
//!   - { type: output_range, step: read, output: volts, min: 3.135, max: 3.465 }
//! ```
//!
//! The whole format is in `schemas/eval.schema.json` and `schemas/task.schema.json`, which editors can use.
//!
//! # The parts
//! - [`load`] reads an eval, and returns everything that is wrong with it; [`list`](list::list) finds evals in folders.
//! - [`run`](run::run) runs one. [`Runs`](runs::Runs) has many, keeps them in a [`Store`](store::Store), and lets each wait its turn.
//! - [`server`] speaks JSON-RPC; [`Service`](service::Service) is what it answers by.
//! - [`tools`] has operations that list and run evals, for agents.
//!
//! # How a trial goes
//! Setup steps, the agent (executors `command` and `mock`), verify steps, and then cleanup steps, whatever happened before. A step that fails ends the
//! trial, but for its cleanup. Then the graders judge. A trial passes when all its steps and graders do, a task when all its trials do, and
//! a run when enough tasks do ([`Metrics::pass_threshold`]), or with a list of metrics, when each reaches its threshold.
//! A task whose graders are all of kinds that are not here is skipped: it is not judged, and has not passed.
//!
//! When a run is cancelled, or a trial's time is over, the operation in hand is stopped (a program's process group is ended, a board's
//! DTR drops), a new session begins, and cleanup steps run in it.
//!
//! # Verdicts
//! What does not pass has a [class](verdict::Class): *fail* is about the board under test, *rig error* about the rig: it could not be reached,
//! was lost during a step, was too late, answered that it cannot do its part, or failed the preflight, the steps under `health`. `retries`
//! of `config` tries what was a rig error again, and failures too with `retry_on: any`. A task is *flaky* whose trials, or attempts, passed and
//! failed. A run with a rig error has not passed, whatever its threshold.
//!
//! # Measurements
//! The grader `measurement`, and `measure` of a step, record a number with its name, unit and limits, and fail beyond the limits. Over the trials
//! of a task they have [statistics](measurement::Statistics).
//!
//! # Placeholders
//! `{{steps.ID.outputs.KEY}}` and `{{steps.ID.message}}` mean what an earlier step said: in arguments, in the prompt, and in the texts that graders
//! look for. Outputs are strings; one that is the whole of an argument becomes a number, a truth value, a list or a map where the operation's schema
//! wants one. What YAML takes for a number is the text that was written, where the schema wants a string.
//!
//! `matrix` of a task makes a case of each combination of its lists, and `for` one of each of its rows; those of the eval are for tasks that have
//! none of their own. `{{matrix.NAME}}` and `{{for.NAME}}` mean a case's values, `{{env.NAME}}` for an environment variable that
//! `config.allow_env` names. `{{"{{"}}` means two braces that begin no placeholder. In logs, reports and the run store `{{env.NAME}}` stands in
//! the place of its value, if that has 8 bytes and is not a number.
//!
//! `{{.Vars.NAME}}` means one of the eval's `inputs`, or a column of the table that `tasks_from` names.
//!
//! # Mistakes
//! A member whose name is nearly a known one, and what other runners have and this one does not, are [warnings](Spec::warnings). A grader that
//! can never fail is a fault: an empty text to look for, a pattern that matches everything, a range without bounds.
#![forbid(unsafe_code)]

mod against;
pub mod attach;
mod command;
mod digits;
mod expand;
mod foreign;
pub mod grade;
pub mod history;
pub mod list;
mod mask;
pub mod measurement;
mod model;
mod node;
mod placeholders;
pub mod records;
pub mod report;
mod results;
mod root;
pub mod run;
pub mod runs;
pub mod server;
pub mod service;
pub mod session;
mod spec;
pub mod store;
pub mod tools;
pub mod trial;
pub mod verdict;
mod walk;

pub use against::{against, owner_of};
pub use command::OUTPUT_LIMIT;
pub use model::class;
pub use root::{Outside, Root};
pub use spec::{
    ATTEMPT_LIMIT, Config, DEFAULT_TIMEOUT, DEPTH_LIMIT, Executor, FILE_LIMIT, Fault, LoadError, Metric, Metrics, Mock,
    Overrides, SIZE_LIMIT, Spec, Step, TASK_LIMIT, TIME_LIMIT, TRIAL_LIMIT, Task, VALUE_LIMIT, WORKER_LIMIT, load,
};
