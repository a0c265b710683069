//! Requests that an engine answers from something beside the extension, and jobs that such requests start.

use core::fmt;

use crate::failure::Failure;
use crate::json::view::{Json, Text};
use crate::json::write::{Message, Writer};
use crate::level::Level;

/// A service beside the extension: it answers its requests, also while a call is out, and has the extension run
/// tasks: see [`Engine::with_service`](crate::engine::Engine::with_service). It speaks JSON-RPC 2.0.
///
/// What it answers takes no time. A request may start a *job*: tasks that the extension runs one after the other,
/// [`Extension::run_task`](crate::Extension::run_task), when nothing else is out; the service reports each of them.
pub trait Service {
    /// Whether requests of this method are the service's own.
    fn owns(&self, method: Text<'_>) -> bool;

    /// Answers a request: writes what follows the reply's head, `,"result":…}` or `,"error":{…}}`. `params` is null where
    /// there are none.
    fn answer(&self, method: Text<'_>, params: Json<'_>, out: &mut Writer<'_>);

    /// The job that waits longest for its turn.
    fn next_job(&self) -> Option<Job>;

    /// Whether a job is to end before its next task, and the current task at once.
    fn is_cancelled(&self, job: Job) -> bool;

    /// A job has come to this step.
    fn advance(&self, job: Job, step: &Step<'_>);

    /// Writes the notification number `nth`, from 0, about a step that a job has come to, as a whole line without its
    /// newline. It returns false, and has written nothing, if there are no more. It is asked again where there was no room.
    fn report(&self, job: Job, step: &Step<'_>, nth: usize, out: &mut Writer<'_>) -> bool;

    /// Writes a log of a job as a whole line, without its newline.
    fn write_log(&self, job: Job, level: Level, message: &dyn Message, out: &mut Writer<'_>);

    /// The connection is gone, and with it what runs and what waits.
    fn disconnected(&self);
}

/// Tasks that the extension runs one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Job {
    /// The number by which the service knows it.
    pub number: u32,
    /// Which group of tasks it is.
    pub group: usize,
    /// How many tasks there are.
    pub tasks: usize,
}

/// A job whose turn has come.
#[derive(Clone, Copy)]
pub struct JobRun<'s> {
    pub(crate) service: &'s dyn Service,
    pub(crate) job: Job,
}

impl JobRun<'_> {
    /// The job.
    pub fn job(&self) -> Job {
        self.job
    }

    /// Does not run it.
    pub fn refuse(self) {
        self.service.advance(self.job, &Step::Refused);
    }
}

impl fmt::Debug for JobRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.job.fmt(f)
    }
}

/// The progress of a job.
#[derive(Debug)]
pub enum Step<'a> {
    /// The job starts.
    Start,
    /// A task starts.
    TaskStart(usize),
    /// A task has ended, in this way.
    TaskEnd(usize, TaskEnd<'a>),
    /// It has ended: no task will run any more.
    End,
    /// The extension runs no tasks.
    Refused,
}

/// How a task has ended.
#[derive(Debug, Clone, Copy)]
pub enum TaskEnd<'a> {
    /// The task passed.
    Passed,
    /// With this failure. Its text is in a log already.
    Failed(&'a Failure),
    /// The task was cut off.
    Cancelled,
}
