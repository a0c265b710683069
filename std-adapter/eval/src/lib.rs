//! Evals: waza's files, a runner for them, and the JSON-RPC server that IDEs use.
//!
//! An eval is an `eval.yaml` with task files. A task has steps, or a prompt, or both. A step calls
//! an operation of a rigline target; the prompt goes to a program. The graders of the task judge
//! the outputs.
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
//! - [`load`] reads an eval, and returns all its faults. [`list`](list::list) finds evals in
//!   folders.
//! - [`run`](run::run) runs one eval. [`Runs`](runs::Runs) manages many runs: it keeps them in a
//!   [`Store`](store::Store), and lets each wait for its turn.
//! - [`server`] speaks JSON-RPC, and [`Service`](service::Service) answers its requests.
//! - [`tools`] has operations for agents that list and run evals.
//!
//! The [`guide`] explains the content of an eval, its verdicts and its reports.
//!
//! # The course of a trial
//! 1. Setup steps run.
//! 2. The agent runs (executors `command` and `mock`).
//! 3. Verify steps run.
//! 4. Cleanup steps run, whatever happened before.
//! 5. The graders judge.
//!
//! A step that fails ends the trial, except for the cleanup steps. A trial passes if all its steps
//! and graders pass. A task passes if all its trials pass. A run passes if enough tasks pass
//! ([`Metrics::pass_threshold`]). If the eval has a list of metrics, it passes if each reaches its
//! threshold.
//!
//! When a run is cancelled, or the time of a trial is over, the running operation is stopped: the
//! process group of a program is ended, and the DTR line of a board is dropped. The cleanup steps
//! run in a new session.
#![forbid(unsafe_code)]

pub mod attach;
mod command;
mod console;
mod digits;
mod expand;
mod foreign;
pub mod grade;
pub mod guide;
pub mod history;
pub mod list;
pub mod measurement;
mod model;
mod placeholders;
pub mod records;
mod redact;
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
mod target_check;
pub mod tools;
pub mod trial;
pub mod verdict;
mod walk;
mod yaml;

pub use command::OUTPUT_LIMIT;
pub use model::class;
pub use root::{OutsideRoot, Root};
pub use spec::{
    ATTEMPT_LIMIT, Config, DEFAULT_TIMEOUT, DEPTH_LIMIT, Executor, FILE_LIMIT, Fault, LoadError, Metric, Metrics, Mock,
    Overrides, SIZE_LIMIT, Spec, Step, TASK_LIMIT, TIME_LIMIT, TRIAL_LIMIT, Task, VALUE_LIMIT, WORKER_LIMIT, load,
};
pub use target_check::{check_against_target, owner_of};

/// The examples of the README, which are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    use super::{Overrides, load};

    #[test]
    fn the_files_in_the_readme_are_an_eval_without_faults() {
        let folder = tempfile::tempdir().unwrap();
        let blocks: Vec<&str> = include_str!("../README.md").split("```yaml\n").skip(1).collect();
        assert_eq!(blocks.len(), 2);
        for block in blocks {
            let file = block.split("```").next().unwrap();
            let name = file.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap();
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        let (spec, faults) = load(folder.path(), &Overrides::default()).unwrap();
        assert!(faults.is_empty() && spec.warnings.is_empty(), "{faults:?} {:?}", spec.warnings);
        assert_eq!(spec.tasks.len(), 1);
    }
}
