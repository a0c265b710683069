//! Evals that are part of an extension: their tasks are its own code, and no file is read. A microcontroller offers its
//! self-test so.

use core::cell::Cell;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::{
    Complete, Error, Eval, EvalService, EvalSummary, Event, Progress, Reply, RunRequest, RunState, Started, Status,
    Summary, Task, TaskSummary, Validation, Verdict,
};
use crate::json::RawJson;
use crate::json::view::{Json, Text};
use crate::json::write::{Message, Writer};
use crate::level::Level;
use crate::service::{Job, Service, Step, TaskEnd};

/// How many runs are remembered. A new one takes the place of the oldest that has ended.
pub const MAX_RUNS: usize = 4;

/// An eval that is part of an extension.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BoardEval {
    /// The name of its file, as far as requests are concerned: they may say this or the name.
    pub path: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The skill it is about.
    pub skill: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its tasks.
    pub tasks: &'static [BoardTask],
}

impl BoardEval {
    /// An eval with these tasks.
    pub const fn new(
        name: &'static str,
        skill: &'static str,
        version: &'static str,
        tasks: &'static [BoardTask],
    ) -> Self {
        Self { path: name, name, skill, version, tasks }
    }
}

/// A task of a [`BoardEval`]: [`Extension::run_task`](crate::Extension::run_task) runs it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BoardTask {
    /// Its id.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub description: &'static str,
}

impl BoardTask {
    /// A task.
    pub const fn new(id: &'static str, name: &'static str, description: &'static str) -> Self {
        Self { id, name, description }
    }
}

/// The evals of an extension, and how their runs go: a [`Service`] for
/// [`Engine::with_service`](crate::engine::Engine::with_service).
#[derive(Debug)]
pub struct Evals {
    known: &'static [BoardEval],
    runs: [Cell<Entry>; MAX_RUNS],
    next: Cell<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The run's number; 0 where there is none.
    number: u32,
    eval: usize,
    stage: Stage,
    summary: Summary,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Queued,
    Running,
    /// It was cancelled and has not stopped yet.
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
    /// For these evals. A group of tasks, as [`Extension::run_task`](crate::Extension::run_task) has it, is one of them.
    pub fn new(evals: &'static [BoardEval]) -> Self {
        Self { known: evals, runs: Default::default(), next: Cell::new(1) }
    }

    fn change(&self, job: Job, change: impl FnOnce(&mut Entry)) {
        if let Some(run) = self.runs.iter().find(|run| run.get().number == job.number) {
            let mut entry = run.get();
            change(&mut entry);
            run.set(entry);
        }
    }

    fn entry(&self, job: Job) -> Entry {
        self.runs.iter().map(Cell::get).find(|entry| entry.number == job.number).unwrap_or_default()
    }

    fn find<'a>(&self, path: Text<'a>) -> Result<(usize, &'static BoardEval), Error<'a>> {
        let found = self.known.iter().enumerate().find(|(_, eval)| path == eval.path || path == eval.name);
        found.ok_or(Error::NotFound { path })
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
        reply.send(&List("evals", self.known, |eval: &BoardEval| EvalSummary {
            path: Some(eval.path),
            name: Some(eval.name),
            skill: Some(eval.skill),
            version: Some(eval.version),
            ..EvalSummary::default()
        }));
        Ok(())
    }

    fn get<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (_, eval) = self.find(path)?;
        reply.send(&Eval {
            path: Some(eval.path),
            name: Some(eval.name),
            skill: Some(eval.skill),
            version: Some(eval.version),
            ..Eval::default()
        });
        Ok(())
    }

    fn validate<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (_, eval) = self.find(path)?;
        let (name, skill) = (Some(eval.name), Some(eval.skill));
        reply.send(&Validation { valid: Some(true), name, skill, ..Validation::default() });
        Ok(())
    }

    fn tasks<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (_, eval) = self.find(path)?;
        reply.send(&List("tasks", eval.tasks, |task: &BoardTask| TaskSummary {
            id: Some(task.id),
            name: Some(task.name),
            description: Some(task.description),
            ..TaskSummary::default()
        }));
        Ok(())
    }

    fn task<'a>(&'a mut self, path: Text<'a>, task: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (_, eval) = self.find(path)?;
        let found = eval.tasks.iter().find(|known| task == known.id).ok_or(Error::UnknownTask(task))?;
        reply.send(&Task {
            id: Some(found.id),
            name: Some(found.name),
            description: Some(found.description),
            ..Task::default()
        });
        Ok(())
    }

    fn run<'a>(&'a mut self, run: &RunRequest<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (eval, found) = self.find(run.path)?;
        if let Some(name) = run.executor.filter(|name| *name != "extension") {
            let known = RawJson::from_checked_str("[\"extension\"]").unwrap_or(RawJson::NULL);
            return Err(Error::UnknownExecutor { name, known });
        }
        // The place of one that never was, or else of the oldest that has ended.
        let free = self.runs.iter().filter(|run| run.get().number == 0 || run.get().stage.has_ended());
        let entry = free.min_by_key(|run| run.get().number).ok_or(Error::RunFailed("too many runs wait their turn"))?;
        let number = self.next.get();
        self.next.set(number.checked_add(1).unwrap_or(1));
        let total = u32::try_from(found.tasks.len()).unwrap_or(u32::MAX);
        entry.set(Entry { number, eval, stage: Stage::Queued, summary: Summary { total, ..Summary::default() } });
        started(number, RunState::Running, reply);
        Ok(())
    }

    fn status<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let Entry { number, stage, summary, .. } = self.run_called(run)?.get();
        let mut memory = [0; 10];
        reply.send(&Status {
            run_id: Some(number_text(number, &mut memory)),
            status: Some(stage.state()),
            result: stage.has_ended().then_some(summary),
            error: (stage == Stage::Failed).then_some("the connection was lost, or the extension runs no tasks"),
            ..Status::default()
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

/// An object with one member, whose value is the list of what the function makes of each item: a list of any length
/// without memory for it.
struct List<I: 'static, F>(&'static str, &'static [I], F);

impl<I, T: Serialize, F: Fn(&I) -> T> Serialize for List<I, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Items<'l, I: 'static, F>(&'l List<I, F>);
        impl<I, T: Serialize, F: Fn(&I) -> T> Serialize for Items<'_, I, F> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let List(_, items, make) = self.0;
                serializer.collect_seq(items.iter().map(make))
            }
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.0, &Items(self))?;
        map.end()
    }
}

fn started(number: u32, state: RunState, reply: &mut Reply<'_, '_>) {
    let mut memory = [0; 10];
    let run_id = Some(number_text(number, &mut memory));
    reply.send(&Started { run_id, status: Some(state), ..Started::default() });
}

/// A run's name: its number in decimal.
fn number_text(number: u32, memory: &mut [u8; 10]) -> &str {
    let mut out = crate::json::write::Writer::new(memory);
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
        let waits = |run: &&Cell<Entry>| {
            let Entry { number, stage, .. } = run.get();
            // A run that was cancelled before its turn has to say so.
            number > 0 && matches!(stage, Stage::Queued | Stage::Stopping)
        };
        let Entry { number, eval, .. } = self.runs.iter().filter(waits).min_by_key(|run| run.get().number)?.get();
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
        let mut memory = [0; 10];
        let name = Some(number_text(job.number, &mut memory));
        let total_tasks = Some(u32::try_from(job.tasks).unwrap_or(u32::MAX));
        let (event, task, status) = match (step, nth) {
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
                let cancelled = stage == Stage::Cancelled;
                let complete = Complete {
                    run_id: name,
                    summary: (!cancelled).then_some(summary),
                    error: cancelled.then_some("the run was cancelled"),
                    ..Complete::default()
                };
                super::write_notification(out, "eval.complete", &complete);
                return true;
            }
            _ => return false,
        };
        let id = task.and_then(|task| self.known.get(job.group)?.tasks.get(task)).map(|task| task.id);
        let trial = matches!(event, Event::TrialStart | Event::TrialComplete).then_some(1);
        let progress = Progress {
            run_id: name,
            event: Some(event),
            task_name: id,
            task_num: task.map(|task| u32::try_from(task).unwrap_or(u32::MAX).saturating_add(1)),
            total_tasks,
            trial_num: trial,
            total_trials: trial,
            status,
            ..Progress::default()
        };
        super::write_notification(out, "eval.progress", &progress);
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
