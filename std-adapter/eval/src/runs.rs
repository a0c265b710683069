//! The runs of one process: they are started, queried, cancelled and stored here.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use rigline::protocol::waza::{self, RunState, Summary, Verdict};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::model::{Run, Trial};
use super::run::{self, Event, OnEvent, Plan, Progress, RunOutcome};
use super::session::{Connect, Hosts, OnLog};
use super::spec::{Executor, Fault, LoadError, Overrides, Spec, load};
use super::store::{Ended, RunFile, Store, Stored};
use super::target_check::check_against_target;
use rigline_host::coerce::Schema;
use rigline_host::target::Target;
use rigline_std::clock::{to_millis, unix_millis};
use rigline_std::mutex::lock;

/// The largest number of runs that are unfinished at a time. Each has an open file, and a process
/// may often open only 1024 files. A further run is refused with [`StartError::TooMany`].
pub const RUN_LIMIT: usize = 500;
/// The largest number of log lines that are kept with a run.
const LOGS: u32 = 1000;
/// The largest number of finished runs that are kept in memory. Older ones are read from the disk.
pub const KEPT: usize = 1000;
/// The largest number of runs that work at the same time. The others wait for their turn.
pub const AT_A_TIME: usize = 8;

/// A request to run an eval.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Request {
    /// The path of the eval file.
    pub path: PathBuf,
    /// The settings that replace those of the file.
    pub overrides: Overrides,
    /// Whether the log includes lines of level debug.
    pub verbose: bool,
    /// The working folder of the tasks. `None` means the folder of the eval file.
    pub context_dir: Option<PathBuf>,
    /// A text that selects tasks: only those run that have it in their id, name or a tag. `None`
    /// selects all.
    pub filter: Option<String>,
    /// The task file whose tasks run, named as [`Task::file`](super::spec::Task::file) is. `None`
    /// selects all.
    pub task_file: Option<String>,
    /// Whether a warning makes the eval invalid, as an error does.
    pub strict: bool,
    /// The number of trials of each task, in place of the number in the eval file. It is at most
    /// [`TRIAL_LIMIT`](super::TRIAL_LIMIT).
    pub trials: Option<u32>,
    /// The targets that the tasks are spread over, in place of the eval's own target. If there are
    /// any, each result is flushed to the disk as soon as its task has ended.
    pub shards: Vec<String>,
}

/// The reason why a run was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The eval file does not exist.
    #[error("Eval not found: {}", .0.display())]
    NotFound(PathBuf),
    /// The eval is invalid. The faults are listed.
    #[error("Validation failed: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Fault>),
    /// The request names an executor that does not exist.
    #[error("unknown executor {}; expected one of: {}", .0, Executor::known().collect::<Vec<_>>().join(", "))]
    UnknownExecutor(String),
    /// The eval names an executor that only other eval runners have.
    #[error("Run failed: the executor {} is not available here; expected one of: {}", .0, Executor::AVAILABLE.join(", "))]
    Unavailable(String),
    /// The filter selects no task.
    #[error("Run failed: no task matches the filter {0}")]
    NoTask(String),
    /// The working folder for the tasks does not exist.
    #[error("Run failed: the context directory {} is not there", .0.display())]
    NoWorkdir(PathBuf),
    /// Another eval of the same request does not fit its target, so that none is run.
    #[error("not run, since another eval does not fit its target")]
    Beside,
    /// The process is ending: all runs were cancelled, and no new ones are accepted.
    #[error("Run failed: no run can start while this process is ending")]
    Ending,
    /// [`RUN_LIMIT`] runs are unfinished already.
    #[error("Run failed: {RUN_LIMIT} runs are unfinished already")]
    TooMany,
    /// The file of the run cannot be written.
    #[error("Run failed: cannot write to the run directory: {0}")]
    Store(io::Error),
}

/// The runs of one process. A clone refers to the same runs.
#[derive(Clone)]
pub struct Runs {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    connect: Arc<dyn Connect>,
    target: Option<String>,
    table: Mutex<Table>,
    slots: Semaphore,
    /// One run at a time on each target that is one board.
    boards: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    unfinished: watch::Sender<usize>,
}

#[derive(Default)]
struct Table {
    runs: HashMap<String, Entry>,
    finished: VecDeque<String>,
    /// No more runs are accepted.
    is_closed: bool,
}

struct Entry {
    stored: Stored,
    cancel: CancellationToken,
}

impl Entry {
    /// Cancels the run unless it has ended; returns its state afterwards.
    fn cancel(&mut self) -> RunState {
        if self.stored.state == RunState::Running {
            self.stored.state = RunState::Cancelled;
            self.cancel.cancel();
        }
        self.stored.state
    }
}

/// A run that was accepted, but not started. [`launch`](Self::launch) starts it. If the value is
/// dropped instead, the run has failed.
pub struct Accepted {
    id: String,
    end: End,
    spec: Arc<Spec>,
    executor: Executor,
    workdir: String,
    shards: Vec<String>,
    verbose: bool,
    strict: bool,
    cancel: CancellationToken,
    file: RunFile,
    runs: Runs,
}

impl Runs {
    /// Keeps runs in `store`. `target` replaces the targets of the eval files.
    pub fn new(store: Store, target: Option<String>) -> Self {
        Self::with_connect(store, target, Arc::new(Hosts::default()))
    }

    /// Keeps runs in `store`, as [`new`](Self::new) does, and opens sessions by the caller's
    /// `connect`.
    pub fn with_connect(store: Store, target: Option<String>, connect: Arc<dyn Connect>) -> Self {
        let inner = Inner {
            store,
            connect,
            target,
            table: Mutex::default(),
            slots: Semaphore::new(AT_A_TIME),
            boards: Mutex::default(),
            unfinished: watch::Sender::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reads an eval file in the way in which a run would. The faults are errors and warnings.
    ///
    /// # Errors
    /// The file does not exist, or is not YAML.
    pub fn load(&self, path: &Path, overrides: &Overrides) -> Result<(Spec, Vec<Fault>), LoadError> {
        let mut overrides = overrides.clone();
        if overrides.target.is_none() {
            overrides.target.clone_from(&self.inner.target);
        }
        load(path, &overrides)
    }

    /// Accepts a run. Everything that can be checked before the run is checked, and the file of the
    /// run is begun.
    ///
    /// # Errors
    /// The run cannot be started. Nothing of it stays behind.
    pub fn accept(&self, request: &Request) -> Result<Accepted, StartError> {
        let (spec, executor) = self.prepare(request)?;
        let folder = match &request.context_dir {
            Some(folder) => folder.clone(),
            None => {
                spec.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
            }
        };
        if !folder.is_dir() {
            return Err(StartError::NoWorkdir(folder));
        }
        // Extensions run elsewhere.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        if self.lock().is_closed {
            return Err(StartError::Ending);
        }
        let has_room = self.inner.unfinished.send_if_modified(|count| {
            let has_room = *count < RUN_LIMIT;
            *count += usize::from(has_room);
            has_room
        });
        if !has_room {
            return Err(StartError::TooMany);
        }
        // From here on it counts, until this is dropped.
        let mut end = End { runs: self.clone(), id: String::new() };
        let total = u32::try_from(spec.tasks.len()).unwrap_or(u32::MAX);
        let mut head = json!({
            "path": spec.path.to_string_lossy(),
            "place": place(&spec.path),
            "name": spec.name,
            "skill": spec.skill,
            "executor": executor.name(),
            "target": spec.config.target.as_deref().map(|target| spec.redactor.hidden(target)),
            "model": spec.config.model.as_deref().map(|model| spec.redactor.hidden(model)),
            "totalTasks": total,
            "trialsPerTask": spec.config.trials_per_task,
            "startedAtMs": unix_millis(SystemTime::now()),
        });
        if !request.shards.is_empty() {
            head["shards"] = json!(request.shards);
            head["tasks"] = spec.tasks.iter().map(|task| task.id.as_str()).collect();
        }
        let (id, mut file) = self.begin(&head)?;
        file.syncs = !request.shards.is_empty();
        let cancel = CancellationToken::new();
        let mut stored = Stored {
            state: RunState::Running,
            summary: Summary { total, ..Summary::default() },
            error: None,
            result: None,
        };
        {
            let mut table = self.lock();
            if table.is_closed {
                // In the meantime.
                stored.state = RunState::Cancelled;
                cancel.cancel();
            }
            table.runs.insert(id.clone(), Entry { stored, cancel: cancel.clone() });
        }
        end.id.clone_from(&id);
        Ok(Accepted {
            id,
            end,
            spec: Arc::new(spec),
            executor,
            workdir: folder.to_string_lossy().into_owned(),
            shards: request.shards.clone(),
            verbose: request.verbose,
            strict: request.strict,
            cancel,
            file,
            runs: self.clone(),
        })
    }

    /// The eval of a request, with the tasks that it selects.
    fn prepare(&self, request: &Request) -> Result<(Spec, Executor), StartError> {
        let asked = request.overrides.executor.as_deref().filter(|name| !Executor::is_known(name));
        let (mut spec, mut faults) = match self.load(&request.path, &request.overrides) {
            Ok(loaded) => loaded,
            Err(LoadError::NotFound(_)) => return Err(StartError::NotFound(request.path.clone())),
            Err(LoadError::Unreadable(fault)) => return Err(StartError::Invalid(vec![fault])),
        };
        if let Some(name) = asked {
            return Err(StartError::UnknownExecutor(name.to_owned()));
        }
        if request.strict {
            faults.extend(spec.warnings.iter().cloned());
        }
        if !faults.is_empty() {
            return Err(StartError::Invalid(faults));
        }
        if let Some(trials) = request.trials {
            spec.config.trials_per_task = trials.clamp(1, super::TRIAL_LIMIT);
        }
        if let Some(file) = &request.task_file {
            spec.tasks.retain(|task| task.file == *file);
            if spec.tasks.is_empty() {
                return Err(StartError::NoTask(file.clone()));
            }
        }
        let Some(executor) = Executor::named(&spec.config.executor) else {
            return Err(StartError::Unavailable(spec.config.executor));
        };
        if let Some(filter) = &request.filter {
            spec.tasks.retain(|task| {
                [&task.id, &task.name].into_iter().chain(&task.tags).any(|text| text.contains(filter.as_str()))
            });
            if spec.tasks.is_empty() {
                return Err(StartError::NoTask(filter.clone()));
            }
        }
        Ok((spec, executor))
    }

    /// Returns the faults in the steps of several evals, against the operations that their targets
    /// describe: a list for each request. Each target is asked once.
    ///
    /// The list is empty if the eval cannot be run, if its target cannot be reached, or if the eval
    /// has a preflight, since the preflight judges the rig first.
    pub async fn mistakes(&self, requests: &[Request]) -> Vec<Vec<Fault>> {
        type TargetKey = (String, Option<PathBuf>, Option<String>);
        let mut known: HashMap<TargetKey, Vec<(String, Schema)>> = HashMap::new();
        let mut found = Vec::new();
        for request in requests {
            let spec = match self.prepare(request) {
                Ok((spec, executor)) if executor != Executor::Mock && spec.health.is_none() => spec,
                _ => {
                    found.push(Vec::new());
                    continue;
                }
            };
            let config = &spec.config;
            let (Some(target), false) = (&config.target, spec.tasks.iter().all(|task| task.steps.is_empty())) else {
                found.push(Vec::new());
                continue;
            };
            let settings = config.settings.clone();
            let asked = (target.clone(), config.target_dir.clone(), settings.as_ref().map(ToString::to_string));
            if !known.contains_key(&asked) {
                let silent: OnLog = Arc::new(|_, _| ());
                let session = self.inner.connect.connect(target, config.target_dir.as_deref(), settings, silent).await;
                let operations = match session {
                    Ok(session) => {
                        let operations = session.operations();
                        session.close().await;
                        operations
                    }
                    Err(_) => Vec::new(),
                };
                known.insert(asked.clone(), operations);
            }
            let (mut faults, doubts) =
                check_against_target(&spec, known.get(&asked).map(Vec::as_slice).unwrap_or_default());
            faults.extend(doubts.into_iter().filter(|_| request.strict));
            found.push(faults);
        }
        found
    }

    /// Begins a file under an id that no run has had.
    fn begin(&self, head: &Value) -> Result<(String, RunFile), StartError> {
        let mut tries = 0;
        loop {
            let random = RandomState::new().hash_one(tries) & 0xFF_FFFF;
            let id = format!("{:x}-{random:06x}", unix_millis(SystemTime::now()));
            match self.inner.store.create(&id, head) {
                Ok(file) => return Ok((id, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 100 => tries += 1,
                Err(error) => return Err(StartError::Store(error)),
            }
        }
    }

    /// Returns the state of a run, or `None` if no run has this id. The summary of an unfinished
    /// run counts the tasks that have ended.
    ///
    /// # Errors
    /// The file of the run cannot be read.
    pub fn look(&self, id: &str) -> io::Result<Option<Stored>> {
        if let Some(entry) = self.lock().runs.get(id) {
            return Ok(Some(entry.stored.clone()));
        }
        self.inner.store.look(id)
    }

    /// All runs that are kept, the newest first: each one's name, what it was begun with, and how it is.
    pub(super) fn all(&self) -> io::Result<Vec<(String, Value, Stored)>> {
        self.inner.store.all()
    }

    /// The record of a run: the complete lines of its file.
    pub(super) fn records(&self, id: &str) -> impl Iterator<Item = Value> + use<> {
        self.inner.store.records(id)
    }

    /// Cancels a run, unless it has ended. Returns the state of the run afterwards, or `None` if no
    /// run has this id.
    ///
    /// # Errors
    /// The file of the run cannot be read, or another process runs it.
    pub fn cancel(&self, id: &str) -> io::Result<Option<RunState>> {
        {
            let mut table = self.lock();
            if let Some(entry) = table.runs.get_mut(id) {
                return Ok(Some(entry.cancel()));
            }
        }
        match self.inner.store.look(id)? {
            Some(stored) if stored.state == RunState::Running => {
                Err(io::Error::other("the run belongs to another process; cancel it there"))
            }
            stored => Ok(stored.map(|stored| stored.state)),
        }
    }

    /// Cancels all unfinished runs. From then on no run is accepted.
    pub fn cancel_all(&self) {
        let mut table = self.lock();
        table.is_closed = true;
        for entry in table.runs.values_mut() {
            entry.cancel();
        }
    }

    /// Waits until all runs have ended.
    pub async fn idle(&self) {
        let mut unfinished = self.inner.unfinished.subscribe();
        // The sender is this.
        let _ = unfinished.wait_for(|count| *count == 0).await;
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.inner.table)
    }

    /// The target's locks, if it is one board: one for each of its names, in their order.
    async fn board(&self, spec: &Spec, executor: Executor) -> Vec<Arc<tokio::sync::Mutex<()>>> {
        let Some(target) = spec.config.target.as_ref().filter(|_| executor != Executor::Mock) else {
            return Vec::new();
        };
        let target = match target.parse::<Target>() {
            Ok(target) if spec.tasks.iter().any(|task| !task.steps.is_empty()) => target,
            _ => return Vec::new(),
        };
        let roots = rigline_host::Options::default().roots;
        let names = tokio::task::spawn_blocking(move || rigline_host::rig_names(&target, &roots)).await;
        let mut boards = lock(&self.inner.boards);
        names.unwrap_or_default().into_iter().map(|name| boards.entry(name).or_default().clone()).collect()
    }
}

/// Where an eval is, whatever the working folder is called.
pub(super) fn place(path: &Path) -> String {
    let place = path.canonicalize().or_else(|_| std::path::absolute(path));
    place.as_deref().unwrap_or(path).to_string_lossy().into_owned()
}

impl Accepted {
    /// Returns the id of the run.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the eval that will be run.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// Starts the run in a tokio runtime. `on_event` gets the events. `done` is called with the
    /// result, after the last event.
    pub fn launch(self, runtime: &Handle, on_event: OnEvent, done: impl FnOnce(Arc<RunOutcome>) + Send + 'static) {
        let Self { id, end, spec, executor, workdir, shards, verbose, strict, cancel, file, runs } = self;
        let file = Arc::new(Mutex::new(file));
        let on_event: OnEvent = {
            let (runs, id, spec) = (runs.clone(), id.clone(), spec.clone());
            Arc::new(move |event| {
                let event = runs.note(&id, &spec, &file, event);
                on_event(event);
            })
        };
        runtime.spawn(async move {
            let end = end;
            let turn = async {
                let mut board = Vec::new();
                for lock in runs.board(&spec, executor).await {
                    board.push(lock.lock_owned().await);
                }
                (board, runs.inner.slots.acquire().await)
            };
            // A run that is cancelled before its turn comes needs none: it does nothing.
            let turn = tokio::select! {
                turn = turn => Some(turn),
                () = cancel.cancelled() => None,
            };
            let connect = runs.inner.connect.clone();
            let attachments = runs.inner.store.files(&id);
            let plan =
                Plan { spec, executor, workdir, shards, attachments, connect, verbose, strict, cancel, on_event };
            let outcome = run::run(plan).await;
            drop(turn);
            drop(end);
            done(outcome);
        });
    }
}

/// Says that a run has ended, even if it panicked.
struct End {
    runs: Runs,
    /// Empty of one that did not come into being.
    id: String,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut table = self.runs.lock();
        if let Some(entry) = table.runs.get_mut(&self.id)
            && entry.stored.state == RunState::Running
        {
            entry.stored.state = RunState::Failed;
            entry.stored.error = Some("Eval execution failed: internal error".into());
        }
        if !self.id.is_empty() {
            table.finished.push_back(std::mem::take(&mut self.id));
        }
        while table.finished.len() > KEPT {
            if let Some(oldest) = table.finished.pop_front() {
                table.runs.remove(&oldest);
            }
        }
        drop(table);
        self.runs.inner.unfinished.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Runs {
    /// Keeps what happens, in memory and on disk; returns what is told.
    fn note(&self, id: &str, spec: &Spec, file: &Mutex<RunFile>, event: Event) -> Event {
        let mut file = lock(file);
        let name = |task: usize| spec.tasks.get(task).map_or("", |task| task.id.as_str());
        let written = match &event {
            Event::Trial { task, record } => file.append(&TrialLine { trial: Trial::of(name(*task), record) }),
            Event::Log { level, message } => {
                if file.logs >= LOGS {
                    return event;
                }
                file.logs += 1;
                let is_last = file.logs == LOGS;
                let message = if is_last { "Further logs are not kept with this run." } else { message.as_str() };
                file.append(&json!({ "log": { "atMs": unix_millis(SystemTime::now()), "level": level.name(), "message": message } }))
            }
            Event::Progress(Progress {
                event: waza::Event::TaskComplete, task: Some(task), verdict, duration, ..
            }) => {
                let mut table = self.lock();
                if let Some(entry) = table.runs.get_mut(id) {
                    match verdict {
                        Some(Verdict::Passed) => entry.stored.summary.passed += 1,
                        Some(Verdict::Failed | Verdict::Error) => entry.stored.summary.failed += 1,
                        _ => {}
                    }
                }
                drop(table);
                let duration = duration.map(to_millis);
                let verdict = verdict.map(Verdict::as_str);
                let line = json!({ "task": { "id": name(*task), "status": verdict, "durationMs": duration } });
                file.append(&line).and_then(|()| file.sync())
            }
            Event::Complete(outcome) => {
                let of_outcome = |outcome: &RunOutcome| {
                    let Run { verdict, reason, .. } = Run::from_outcome(spec, id, outcome);
                    Some(Ended { verdict, reason })
                };
                let mut stored = Stored {
                    state: outcome.state,
                    summary: outcome.summary,
                    error: outcome.error.clone(),
                    result: of_outcome(outcome),
                };
                let mut table = self.lock();
                let Some(entry) = table.runs.get_mut(id) else { return event };
                // It was cancelled when all was done already: what was answered stays true.
                let is_late = entry.stored.state == RunState::Cancelled && stored.state != RunState::Cancelled;
                if is_late {
                    stored.state = RunState::Cancelled;
                    stored.error = Some("Eval execution cancelled".into());
                    let (state, error) = (stored.state, stored.error.clone());
                    stored.result = of_outcome(&RunOutcome { state, error, passed: false, ..(**outcome).clone() });
                }
                entry.stored = stored.clone();
                drop(table);
                let written = file.end(&stored);
                if is_late {
                    tell(&mut file, written);
                    let outcome =
                        RunOutcome { state: stored.state, error: stored.error, passed: false, ..(**outcome).clone() };
                    return Event::Complete(Arc::new(outcome));
                }
                written
            }
            _ => Ok(()),
        };
        tell(&mut file, written);
        event
    }
}

/// Reports once that a run's file cannot be written. The run continues.
fn tell(file: &mut RunFile, written: io::Result<()>) {
    if let Err(error) = written
        && !std::mem::replace(&mut file.has_failed, true)
    {
        // The reader may be gone.
        let _ =
            writeln!(io::stderr(), "rigline: the run's file cannot be written: {error}; the run continues without it");
    }
}

/// A line of a run's file about a trial.
#[derive(Serialize)]
struct TrialLine {
    trial: Trial,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::super::session::{EvalSession, OnLog, Pending, SessionError};
    use super::*;

    /// A board that is never there.
    #[derive(Default)]
    struct Nowhere(AtomicUsize);

    impl Connect for Nowhere {
        fn connect<'a>(
            &'a self,
            _: &'a str,
            _: Option<&'a Path>,
            _: Option<rigline_host::JsonObject>,
            _: OnLog,
        ) -> Pending<'a, Result<Box<dyn EvalSession>, SessionError>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn as_many_runs_are_accepted_as_there_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let eval = folder.path().join("eval.yaml");
        std::fs::write(&eval, "name: e\ntasks: [{ id: t }]\n").unwrap();
        let runs = Runs::new(Store::open(folder.path().join("runs")).unwrap(), None);
        let request = Request { path: eval, ..Request::default() };
        let mut accepted: Vec<_> = (0..RUN_LIMIT).map(|_| runs.accept(&request).unwrap()).collect();
        assert!(matches!(runs.accept(&request), Err(StartError::TooMany)));
        // A run that is not launched ends when it is dropped.
        let dropped = accepted.pop().unwrap().id().to_owned();
        assert_eq!(runs.look(&dropped).unwrap().unwrap().state, RunState::Failed);
        accepted.push(runs.accept(&request).unwrap());
        assert!(matches!(runs.accept(&request), Err(StartError::TooMany)));
    }

    #[test]
    fn a_run_that_is_cancelled_before_its_turn_touches_no_board_and_none_is_taken_after_all_are() {
        let folder = tempfile::tempdir().unwrap();
        let eval = folder.path().join("eval.yaml");
        std::fs::write(&eval, "name: e\nconfig: { target: \"tcp:127.0.0.1:1\" }\ntasks: [t.yaml]\n").unwrap();
        std::fs::write(folder.path().join("t.yaml"), "id: t\nsteps: [{ operation: o }]\n").unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let nowhere = Arc::new(Nowhere::default());
        let store = Store::open(folder.path().join("runs")).unwrap();
        let runs = Runs::with_connect(store, None, nowhere.clone());
        let request = Request { path: eval, ..Request::default() };
        let (sender, ended) = mpsc::channel();
        let launch = || {
            let accepted = runs.accept(&request).unwrap();
            let (id, sender) = (accepted.id().to_owned(), sender.clone());
            accepted.launch(runtime.handle(), Arc::new(|_| {}), move |outcome| sender.send(outcome.state).unwrap());
            id
        };
        let next = || ended.recv_timeout(Duration::from_secs(30)).unwrap();
        launch();
        while nowhere.0.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        // The first has the board. Many, since a race has to be lost.
        for _ in 0..50 {
            assert_eq!(runs.cancel(&launch()).unwrap(), Some(RunState::Cancelled));
            assert_eq!(next(), RunState::Cancelled);
        }
        assert_eq!(nowhere.0.load(Ordering::Relaxed), 1);
        let late = runs.accept(&request).unwrap();
        runs.cancel_all();
        assert_eq!(next(), RunState::Cancelled);
        assert!(matches!(runs.accept(&request), Err(StartError::Ending)));
        late.launch(runtime.handle(), Arc::new(|_| {}), move |outcome| sender.send(outcome.state).unwrap());
        assert_eq!(next(), RunState::Cancelled);
        runtime.block_on(runs.idle());
        assert_eq!(nowhere.0.load(Ordering::Relaxed), 1);
    }
}
