//! Evals that are part of an extension: their tasks are its own code, and no file is read. A microcontroller offers its
//! self-test so.

use core::cell::Cell;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::{
    Complete, Error, Eval, EvalService, EvalSummary, Event, Progress, Reply, RunRequest, RunState, Started, Status,
    Summary, Task, TaskSummary, Validation, Verdict,
};
use crate::Extension;
use crate::context::Context;
use crate::json::RawJson;
use crate::json::view::Text;
use crate::level::Level;

/// How many runs are remembered. A new one takes the place of the oldest that has ended.
pub const RUNS: usize = 4;

/// An eval that is part of an extension.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BoardEval {
    /// What stands for its file: a request may say this or the name.
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

/// A task of a [`BoardEval`]: [`Extension::run_task`] runs it.
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

/// The evals of an extension, and how their runs go.
#[derive(Debug)]
pub(crate) struct Evals {
    known: &'static [BoardEval],
    runs: [Cell<Entry>; RUNS],
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
    pub(crate) fn new(evals: &'static [BoardEval]) -> Self {
        Self { known: evals, runs: Default::default(), next: Cell::new(1) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The run that waits longest for its turn.
    pub(crate) fn waiting(&self) -> Option<Run<'_>> {
        let waits = |run: &&Cell<Entry>| {
            let Entry { number, stage, .. } = run.get();
            // A run that was cancelled before its turn has to say so.
            number > 0 && matches!(stage, Stage::Queued | Stage::Stopping)
        };
        let entry = self.runs.iter().filter(waits).min_by_key(|run| run.get().number)?;
        let eval = entry.get().eval;
        Some(Run { entry, index: eval, eval: self.known.get(eval)? })
    }

    /// The connection is gone: what ran with it has failed, and what waited for its turn too.
    pub(crate) fn abandon(&self) {
        for run in &self.runs {
            let entry = run.get();
            if !entry.stage.has_ended() {
                run.set(Entry { stage: Stage::Failed, ..entry });
            }
        }
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
            error: (stage == Stage::Failed).then_some("the connection was lost"),
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
/// without memory of its own.
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

/// A run whose turn has come.
#[derive(Debug, Clone, Copy)]
pub struct Run<'s> {
    entry: &'s Cell<Entry>,
    index: usize,
    eval: &'static BoardEval,
}

impl Run<'_> {
    fn is_cancelled(&self) -> bool {
        self.entry.get().stage == Stage::Stopping
    }

    fn set(&self, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.entry.get();
        change(&mut entry);
        self.entry.set(entry);
    }
}

/// Runs an eval, task by task, and tells of it as the text has it.
pub(crate) async fn run<E: Extension>(extension: &mut E, run: Run<'_>, cx: &mut Context<'_>) {
    let mut memory = [0; 10];
    let name = number_text(run.entry.get().number, &mut memory);
    let total = u32::try_from(run.eval.tasks.len()).unwrap_or(u32::MAX);
    let progress = Progress { run_id: Some(name), total_tasks: Some(total), ..Progress::default() };
    let tell = |event| Progress { event: Some(event), ..progress };
    cx.begin_eval(run.entry.get().number);
    if !run.is_cancelled() {
        run.set(|entry| entry.stage = Stage::Running);
        cx.notify("eval.progress", &tell(Event::RunStart)).await;
    }
    for (index, task) in run.eval.tasks.iter().enumerate() {
        if run.is_cancelled() {
            break;
        }
        let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        let of_task = |event| Progress { task_name: Some(task.id), task_num: Some(number), ..tell(event) };
        let of_trial = |event| Progress { trial_num: Some(1), total_trials: Some(1), ..of_task(event) };
        cx.notify("eval.progress", &of_task(Event::TaskStart)).await;
        cx.notify("eval.progress", &of_trial(Event::TrialStart)).await;
        let result = unless_cancelled(run, extension.run_task(run.index, index, cx)).await;
        let status = match result {
            None => {
                extension.safe_state().await;
                Verdict::Cancelled
            }
            Some(Ok(_)) => Verdict::Passed,
            Some(Err(failure)) => {
                if !failure.is_logged() {
                    cx.log(Level::Error, failure);
                }
                Verdict::Failed
            }
        };
        run.set(|entry| match status {
            Verdict::Passed => entry.summary.passed += 1,
            _ => entry.summary.failed += 1,
        });
        let status = Some(status);
        cx.notify("eval.progress", &Progress { status, ..of_trial(Event::TrialComplete) }).await;
        cx.notify("eval.progress", &Progress { status, ..of_task(Event::TaskComplete) }).await;
    }
    let cancelled = run.is_cancelled();
    run.set(|entry| entry.stage = if cancelled { Stage::Cancelled } else { Stage::Completed });
    let summary = (!cancelled).then(|| run.entry.get().summary);
    let error = cancelled.then_some("the run was cancelled");
    cx.notify("eval.progress", &tell(Event::RunComplete)).await;
    cx.notify("eval.complete", &Complete { run_id: Some(name), summary, error, ..Complete::default() }).await;
}

/// The future's output, or none once the run is cancelled.
async fn unless_cancelled<F: Future>(run: Run<'_>, future: F) -> Option<F::Output> {
    let mut future = core::pin::pin!(future);
    core::future::poll_fn(|task| {
        if run.is_cancelled() {
            return core::task::Poll::Ready(None);
        }
        future.as_mut().poll(task).map(Some)
    })
    .await
}
