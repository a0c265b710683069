//! Requests that an engine answers without the extension, and the jobs that such requests start.

use core::fmt;

use crate::failure::Failure;
use crate::json::write::{Message, Writer};
use crate::json::{Json, Text};
use crate::level::Level;

/// A service beside the extension, for
/// [`Engine::with_service`](crate::engine::Engine::with_service). It answers its own requests, also
/// while a call of the extension runs. It speaks JSON-RPC 2.0.
///
/// An answer must not take long. A request may start a *job*: tasks that the extension runs one
/// after the other by [`Extension::run_task`](crate::Extension::run_task) when nothing else runs.
/// The service sends the notifications about the tasks.
pub trait Service {
    /// Whether the service answers requests of this method.
    fn owns(&self, method: Text<'_>) -> bool;

    /// Answers a request: writes the part of the reply after its head, `,"result":…}` or
    /// `,"error":{…}}`. `params` is null if the request has none.
    fn answer(&self, method: Text<'_>, params: Json<'_>, out: &mut Writer<'_>);

    /// The job that has waited longest for its turn; none if no job waits.
    fn next_job(&self) -> Option<Job>;

    /// Whether a job was cancelled. Its current task is then ended at once, and no further task
    /// starts.
    fn is_cancelled(&self, job: Job) -> bool;

    /// Takes note that a job has reached this step.
    fn advance(&self, job: Job, step: &Step<'_>);

    /// Writes the notification number `nth` (from 0) about a step of a job, as a whole line without
    /// its newline. Returns false, and writes nothing, if there is no such notification. It is
    /// called again with the same number if the line did not fit.
    fn report(&self, job: Job, step: &Step<'_>, nth: usize, out: &mut Writer<'_>) -> bool;

    /// Writes a log of a job as a whole line without its newline.
    fn write_log(&self, job: Job, level: Level, message: &dyn Message, out: &mut Writer<'_>);

    /// Takes note that the connection is lost. The running job and the waiting ones must end.
    fn disconnected(&self);
}

/// A job: a group of tasks that the extension runs one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Job {
    /// The number of the job, which the service has chosen.
    pub number: u32,
    /// The group of tasks, which [`Extension::run_task`](crate::Extension::run_task) gets.
    pub group: usize,
    /// The number of tasks in the group.
    pub tasks: usize,
}

/// A job whose turn has come, for [`Extension::run_job`](crate::Extension::run_job).
#[derive(Clone, Copy)]
pub struct JobRun<'s> {
    pub(crate) service: &'s dyn Service,
    pub(crate) job: Job,
}

impl JobRun<'_> {
    /// The number, group and size of the job.
    pub fn job(&self) -> Job {
        self.job
    }

    /// Refuses the job, so that none of its tasks runs.
    pub fn refuse(self) {
        self.service.advance(self.job, &Step::Refused);
    }
}

impl fmt::Debug for JobRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.job.fmt(f)
    }
}

/// A step in the progress of a job.
#[derive(Debug)]
pub enum Step<'a> {
    /// The job starts.
    Start,
    /// The task of this number starts.
    TaskStart(usize),
    /// The task of this number has ended with this result.
    TaskEnd(usize, TaskEnd<'a>),
    /// The job has ended. No further task will run.
    End,
    /// The extension has refused the job, because it runs no tasks.
    Refused,
}

/// The result of a task.
#[derive(Debug, Clone, Copy)]
pub enum TaskEnd<'a> {
    /// The task passed.
    Passed,
    /// The task failed. The text of the failure was logged already.
    Failed(&'a Failure),
    /// The task was cancelled.
    Cancelled,
}
