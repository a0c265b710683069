//! Evals that are part of an extension. Their tasks are code of the extension, and no file is read.
//! A microcontroller can offer its self-test in this way.

use core::cell::Cell;

use super::{
    Complete, Error, Eval, EvalService, EvalSummary, Event, Object, Progress, Reply, RunRequest, RunState, Started,
    Status, Summary, Task, Validation, Verdict, begin_notification,
};
use crate::json::RawJson;
use crate::json::write::{Message, Writer};
use crate::json::{Json, Text};
use crate::level::Level;
use crate::service::{Job, Service, Step, TaskEnd};

/// The number of runs that are remembered. A new run replaces the oldest one that has ended. If
/// none has ended, it cannot start.
pub const MAX_RUNS: usize = 4;

/// An eval that is part of an extension.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BoardEval {
    /// The path of the eval in requests, where waza has the name of a file. Requests may use this
    /// path or the name.
    pub path: &'static str,
    /// The name of the eval.
    pub name: &'static str,
    /// The skill that the eval tests.
    pub skill: &'static str,
    /// The version of the eval.
    pub version: &'static str,
    /// The tasks of the eval.
    pub tasks: &'static [BoardTask],
}

impl BoardEval {
    /// An eval with these tasks. Its path is its name.
    pub const fn new(
        name: &'static str,
        skill: &'static str,
        version: &'static str,
        tasks: &'static [BoardTask],
    ) -> Self {
        Self { path: name, name, skill, version, tasks }
    }
}

/// A task of a [`BoardEval`]. [`Extension::run_task`](crate::Extension::run_task) runs it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BoardTask {
    /// The id of the task.
    pub id: &'static str,
    /// The name of the task.
    pub name: &'static str,
    /// A description of what the task tests.
    pub description: &'static str,
}

impl BoardTask {
    /// A task with this id, name and description.
    pub const fn new(id: &'static str, name: &'static str, description: &'static str) -> Self {
        Self { id, name, description }
    }
}

/// The evals of an extension and the state of their runs. It is a [`Service`] for
/// [`Engine::with_service`](crate::engine::Engine::with_service).
#[derive(Debug)]
pub struct Evals {
    known: &'static [BoardEval],
    runs: [Cell<Entry>; MAX_RUNS],
    next: Cell<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The run's number; 0 where there is none.
    number: u32,
    eval: usize,
    stage: Stage,
    summary: Summary,
}

impl Entry {
    const NONE: Self =
        Self { number: 0, eval: 0, stage: Stage::Queued, summary: Summary { total: 0, passed: 0, failed: 0 } };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Running,
    /// The run was cancelled and has not stopped yet.
    Stopping,
    Completed,
    Cancelled,
    Failed,
}

impl Stage {
    fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed)
    }

    fn state(self) -> RunState {
        match self {
            Self::Queued | Self::Running => RunState::Running,
            Self::Stopping | Self::Cancelled => RunState::Cancelled,
            Self::Completed => RunState::Completed,
            Self::Failed => RunState::Failed,
        }
    }
}

impl Evals {
    /// A service for these evals. The position of an eval in the list is the `group` that
    /// [`Extension::run_task`](crate::Extension::run_task) gets.
    pub const fn new(evals: &'static [BoardEval]) -> Self {
        Self { known: evals, runs: [const { Cell::new(Entry::NONE) }; MAX_RUNS], next: Cell::new(1) }
    }

    fn change(&self, job: Job, change: impl FnOnce(&mut Entry)) {
        if let Some(run) = self.runs.iter().find(|run| run.get().number == job.number) {
            let mut entry = run.get();
            change(&mut entry);
            run.set(entry);
        }
    }

    fn entry(&self, job: Job) -> Entry {
        self.runs.iter().map(Cell::get).find(|entry| entry.number == job.number).unwrap_or(Entry::NONE)
    }

    fn find<'a>(&self, path: Text<'a>) -> Result<(usize, &'static BoardEval), Error<'a>> {
        let found = self.known.iter().enumerate().find(|(_, eval)| path == eval.path || path == eval.name);
        found.ok_or(Error::NotFound { path })
    }

    fn oldest(&self, is_wanted: impl Fn(Entry) -> bool) -> Option<&Cell<Entry>> {
        let mut oldest: Option<&Cell<Entry>> = None;
        for run in &self.runs {
            if is_wanted(run.get()) && oldest.is_none_or(|oldest| run.get().number < oldest.get().number) {
                oldest = Some(run);
            }
        }
        oldest
    }

    fn run_called<'a>(&self, name: Text<'a>) -> Result<&Cell<Entry>, Error<'a>> {
        let mut memory = [0; 10];
        self.runs
            .iter()
            .find(|run| run.get().number > 0 && name == number_text(run.get().number, &mut memory))
            .ok_or(Error::UnknownRun(name))
    }
}

impl EvalService for &Evals {
    fn list<'a>(&'a mut self, _: Option<Text<'a>>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        reply.send_written(&|out| {
            out.raw(b"{\"evals\":");
            write_list(out, self.known, |eval, out| eval.write(out, EvalSummary::KEYS, true));
        });
        Ok(())
    }

    fn get<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (_, eval) = self.find(path)?;
        reply.send_written(&|out| eval.write(out, Eval::KEYS, false));
        Ok(())
    }

    fn validate<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (_, eval) = self.find(path)?;
        reply.send_written(&|out| {
            let mut object = Object::new(out, Validation::KEYS);
            object.value().bool(true);
            object.text(Some(eval.name));
            object.text(Some(eval.skill));
            object.end();
        });
        Ok(())
    }

    fn tasks<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (_, eval) = self.find(path)?;
        reply.send_written(&|out| {
            out.raw(b"{\"tasks\":");
            write_list(out, eval.tasks, BoardTask::write);
        });
        Ok(())
    }

    fn task<'a>(&'a mut self, path: Text<'a>, task: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (_, eval) = self.find(path)?;
        let found = eval.tasks.iter().find(|known| task == known.id).ok_or(Error::UnknownTask(task))?;
        reply.send_written(&|out| found.write(out));
        Ok(())
    }

    fn run<'a>(&'a mut self, run: &RunRequest<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (eval, found) = self.find(run.path)?;
        if let Some(name) = run.executor.filter(|name| *name != "extension") {
            let known = RawJson::from_checked_str("[\"extension\"]").unwrap_or(RawJson::NULL);
            return Err(Error::UnknownExecutor { name, known });
        }
        // The place of one that never was, or else of the oldest that has ended.
        let free = self.oldest(|entry| entry.number == 0 || entry.stage.has_ended());
        let entry = free.ok_or(Error::RunFailed("too many runs wait their turn"))?;
        let number = self.next.get();
        started(number, RunState::Running, reply);
        // A run that nobody hears the name of is not begun: its error says so.
        if reply.fits() {
            self.next.set(number.checked_add(1).unwrap_or(1));
            let total = u32::try_from(found.tasks.len()).unwrap_or(u32::MAX);
            entry.set(Entry { number, eval, stage: Stage::Queued, summary: Summary { total, ..Summary::default() } });
        }
        Ok(())
    }

    fn status<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let Entry { number, stage, summary, .. } = self.run_called(run)?.get();
        reply.send_written(&|out| {
            let mut object = Object::new(out, Status::KEYS);
            write_run(&mut object, number);
            object.text(Some(stage.state().as_str()));
            let result = object.value();
            if stage.has_ended() {
                summary.write(result);
            } else {
                result.raw(b"null");
            }
            let error = object.value();
            if stage == Stage::Failed {
                error.str("the connection was lost, or the extension runs no tasks");
            } else {
                error.raw(b"null");
            }
            object.end();
        });
        Ok(())
    }

    fn cancel<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let cell = self.run_called(run)?;
        let mut entry = cell.get();
        if !entry.stage.has_ended() {
            entry.stage = Stage::Stopping;
            cell.set(entry);
        }
        started(entry.number, entry.stage.state(), reply);
        Ok(())
    }
}

impl BoardEval {
    /// As a summary, or as an eval, which has its description among these members.
    fn write(&self, out: &mut Writer<'_>, keys: &'static str, is_summary: bool) {
        let mut object = Object::new(out, keys);
        object.text(Some(self.path));
        object.text(Some(self.name));
        if !is_summary {
            object.text(None);
        }
        object.text(Some(self.skill));
        object.text(Some(self.version));
        object.end();
    }
}

impl BoardTask {
    /// As a task and as a summary of one, which begin alike.
    fn write(&self, out: &mut Writer<'_>) {
        let mut object = Object::new(out, Task::KEYS);
        for text in [self.id, self.name, self.description] {
            object.text(Some(text));
        }
        object.end();
    }
}

/// Writes a list, and the end of the object that has it.
fn write_list<T>(out: &mut Writer<'_>, items: &[T], write: fn(&T, &mut Writer<'_>)) {
    let mut before = b'[';
    for item in items {
        out.byte(before);
        before = b',';
        write(item, out);
    }
    out.raw(if items.is_empty() { b"[]}" } else { b"]}" });
}

/// Writes a run's name: its number in decimal.
fn write_run(object: &mut Object<'_, '_>, number: u32) {
    object.text(Some(number_text(number, &mut [0; 10])));
}

fn started(number: u32, state: RunState, reply: &mut Reply<'_, '_>) {
    reply.send_written(&|out| {
        let mut object = Object::new(out, Started::KEYS);
        write_run(&mut object, number);
        object.text(Some(state.as_str()));
        object.end();
    });
}

/// A run's name.
fn number_text(number: u32, memory: &mut [u8; 10]) -> &str {
    let mut out = Writer::new(memory);
    out.u32(number);
    let text = out.finish().map_or(&[][..], |text| &*text);
    core::str::from_utf8(text).unwrap_or_default()
}

impl Service for Evals {
    fn owns(&self, method: Text<'_>) -> bool {
        !self.known.is_empty() && super::is_method(method)
    }

    fn answer(&self, method: Text<'_>, params: Json<'_>, out: &mut Writer<'_>) {
        match super::request(method, params) {
            Ok(request) => super::answer(&mut &*self, &request, out),
            Err(refusal) => super::write_refusal(out, refusal, method),
        }
    }

    fn next_job(&self) -> Option<Job> {
        // A run that was cancelled before its turn has to say so.
        let waits = |entry: Entry| entry.number > 0 && matches!(entry.stage, Stage::Queued | Stage::Stopping);
        let Entry { number, eval, .. } = self.oldest(waits)?.get();
        Some(Job { number, group: eval, tasks: self.known.get(eval)?.tasks.len() })
    }

    fn is_cancelled(&self, job: Job) -> bool {
        self.entry(job).stage == Stage::Stopping
    }

    fn advance(&self, job: Job, step: &Step<'_>) {
        self.change(job, |entry| match step {
            Step::Start if entry.stage == Stage::Queued => entry.stage = Stage::Running,
            Step::TaskEnd(_, TaskEnd::Passed) => entry.summary.passed += 1,
            Step::TaskEnd(..) => entry.summary.failed += 1,
            Step::End => {
                entry.stage = if entry.stage == Stage::Stopping { Stage::Cancelled } else { Stage::Completed };
            }
            Step::Refused => entry.stage = Stage::Failed,
            Step::Start | Step::TaskStart(_) => {}
        });
    }

    fn report(&self, job: Job, step: &Step<'_>, nth: usize, out: &mut Writer<'_>) -> bool {
        let Entry { stage, summary, .. } = self.entry(job);
        let (event, task, verdict) = match (step, nth) {
            (Step::Start, 0) if stage == Stage::Running => (Event::RunStart, None, None),
            (Step::TaskStart(task), 0) => (Event::TaskStart, Some(*task), None),
            (Step::TaskStart(task), 1) => (Event::TrialStart, Some(*task), None),
            (Step::TaskEnd(task, end), 0 | 1) => {
                let verdict = match end {
                    TaskEnd::Passed => Verdict::Passed,
                    TaskEnd::Failed(_) => Verdict::Failed,
                    TaskEnd::Cancelled => Verdict::Cancelled,
                };
                let event = if nth == 0 { Event::TrialComplete } else { Event::TaskComplete };
                (event, Some(*task), Some(verdict))
            }
            (Step::End, 0) => (Event::RunComplete, None, None),
            (Step::End, 1) => {
                begin_notification(out, "eval.complete");
                let mut object = Object::new(out, Complete::KEYS);
                write_run(&mut object, job.number);
                if stage == Stage::Cancelled {
                    object.text(None);
                    object.text(Some("the run was cancelled"));
                } else {
                    summary.write(object.value());
                }
                object.end();
                out.byte(b'}');
                return true;
            }
            _ => return false,
        };
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let id = task.and_then(|task| self.known.get(job.group)?.tasks.get(task)).map(|task| task.id);
        let trial = matches!(event, Event::TrialStart | Event::TrialComplete).then_some(1);
        begin_notification(out, "eval.progress");
        let mut object = Object::new(out, Progress::KEYS);
        write_run(&mut object, job.number);
        object.text(Some(event.as_str()));
        object.text(id);
        object.number(task.map(|task| number(task).saturating_add(1)));
        object.number(Some(number(job.tasks)));
        object.number(trial);
        object.number(trial);
        object.text(verdict.map(Verdict::as_str));
        object.end();
        out.byte(b'}');
        true
    }

    fn write_log(&self, job: Job, level: Level, message: &dyn Message, out: &mut Writer<'_>) {
        super::write_log(out, job.number, level, message);
    }

    fn disconnected(&self) {
        for run in &self.runs {
            let entry = run.get();
            if !entry.stage.has_ended() {
                run.set(Entry { stage: Stage::Failed, ..entry });
            }
        }
    }
}
