//! One run of an eval: its trials are run and judged, and their results become the result of the
//! run.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rigline::Level;
use rigline::protocol::waza::{self, RunState, Summary, Verdict};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::attach::Attachments;
use super::grade::{Grade, GradeVerdict};
use super::measurement::Statistics;
use super::redact::Redactor;
use super::session::{Connect, OnLog, RigIdentity, SessionError};
use super::spec::{Executor, Fault, Metric, Spec, Task};
use super::trial::{EarlierAttempt, Mistakes, RunContext, TrialRecord, Worker};
use super::verdict::{self, Cause, Class, Reliability};
use rigline_host::target::Target;
use rigline_std::mutex::lock;

/// The longest text of a log line or of a record, in bytes. As JSON it may be three times as long,
/// since a control character takes six bytes there. A line of the log so stays below 64 KiB, which
/// common readers accept.
pub const TEXT_LIMIT: usize = 16 * 1024;

/// An event of a run. The events come in order, and [`Event::Complete`] is the last one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The run, a task or a trial began or ended. Clients get it as `eval.progress`.
    Progress(Progress),
    /// A trial has ended. This event comes before the [`Progress`](Self::Progress) of the same
    /// trial.
    Trial {
        /// The index of the task in [`Spec::tasks`].
        task: usize,
        /// The result of the trial.
        record: TrialRecord,
    },
    /// A line of the log. Clients get it as `eval.log`.
    Log {
        /// The level of the log.
        level: Level,
        /// The text of the line.
        message: String,
    },
    /// The run has ended. Clients get it as `eval.complete`.
    Complete(Arc<RunOutcome>),
}

/// The beginning or the end of a run, a task or a trial.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Progress {
    /// The kind of event, as the waza protocol names it.
    pub event: waza::Event,
    /// The index of the task in [`Spec::tasks`]. `None` if the event is about the whole run.
    pub task: Option<usize>,
    /// The number of the trial, from 1. `None` if the event is about no trial.
    pub trial: Option<u32>,
    /// The verdict of the task or the trial. `None` if it has not ended.
    pub verdict: Option<Verdict>,
    /// The duration of the task or the trial. `None` if it has not ended.
    pub duration: Option<Duration>,
}

/// The function that gets the events of a run. It is called from several threads, but for one event
/// at a time. It must return without waiting.
pub type OnEvent = Arc<dyn Fn(Event) + Send + Sync>;

/// The result of one run of one eval file: its state, its counts, and the records of its tasks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The state in which the run ended: completed, failed or cancelled.
    pub state: RunState,
    /// The number of tasks, and of those that passed and failed.
    pub summary: Summary,
    /// The reason why the run failed or was cancelled. `None` if it completed.
    pub error: Option<String>,
    /// The number of tasks that no grader could judge.
    pub skipped: u32,
    /// The reason why no task was run: the target could not be reached, or failed the preflight.
    /// `None` if tasks were run.
    pub unreached: Option<SessionError>,
    /// The steps that do not fit the operations of the target. If there are any, no task was run.
    pub mistakes: Vec<Fault>,
    /// The record of the preflight. `None` if there was none.
    pub health: Option<TrialRecord>,
    /// The rig that the run used. `None` if no session was opened.
    pub rig: Option<RigIdentity>,
    /// Whether enough tasks passed, or each metric reached its threshold. A run with a rig error
    /// has not passed.
    pub passed: bool,
    /// The results of the metrics. Empty if the eval lists no metrics.
    pub metrics: Vec<MetricResult>,
    /// The mean of the metrics by their weights, from 0 to 1. `None` if the eval lists no metrics.
    pub score: Option<f64>,
    /// The results of the tasks that were run, in the order of the spec.
    pub tasks: Vec<TaskRecord>,
    /// The duration of the run.
    pub duration: Duration,
}

/// The result of one metric.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MetricResult {
    /// The name of the metric.
    pub name: String,
    /// The share of graders that passed, by weight, from 0 to 1. It is 0 if no grader counts for
    /// the metric.
    pub share: f64,
    /// The least share with which the metric passes.
    pub threshold: f64,
    /// The weight of the metric in [`RunOutcome::score`].
    pub weight: f64,
    /// Whether the share reached the threshold.
    pub passed: bool,
}

/// The result of one task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskRecord {
    /// The index of the task in [`Spec::tasks`].
    pub task: usize,
    /// The verdict of the task, which follows from those of its trials.
    pub verdict: Verdict,
    /// The trials of the task.
    pub trials: Vec<TrialRecord>,
    /// The duration of the task.
    pub duration: Duration,
}

impl TaskRecord {
    /// Returns the reason why the task did not pass. It is taken from a trial with the same verdict
    /// as the task, if there is one.
    pub fn why(&self) -> Option<&str> {
        let class = self.class();
        let of_class = self.trials.iter().filter(|trial| trial.class() == class);
        of_class.chain(&self.trials).find_map(|trial| trial.error.as_deref())
    }

    /// Returns the verdict of the task, which says whether the board under test or the rig is at
    /// fault.
    pub fn class(&self) -> Class {
        if self.verdict == Verdict::Cancelled { Class::Cancelled } else { verdict::of_trials(&self.trials) }
    }

    /// Returns whether the task counts as passed.
    pub fn has_passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }

    /// Returns the reliability of the task: how many of its trials passed.
    pub fn reliability(&self) -> Reliability {
        Reliability::of(&self.trials)
    }

    /// Returns the measurements of the task, over all its trials.
    pub fn measurements(&self) -> Vec<Statistics> {
        Statistics::of(&self.trials)
    }
}

impl RunOutcome {
    /// Returns whether the rig is the reason that a task was not judged.
    pub fn has_rig_error(&self) -> bool {
        self.unreached.is_some() || self.tasks.iter().any(|task| task.class() == Class::RigError)
    }

    /// Returns whether the eval is the reason that a task was not judged: a step does not fit the
    /// operations of the target, or a placeholder has no value.
    pub fn has_mistake(&self) -> bool {
        let trials = self.tasks.iter().flat_map(|task| &task.trials).chain(&self.health);
        let is_mistake = |trial: &TrialRecord| trial.verdict == Verdict::Error && trial.cause == Cause::Eval;
        !self.mistakes.is_empty() || trials.into_iter().any(is_mistake)
    }

    /// Returns whether a task failed for a reason other than the rig.
    pub fn has_failure(&self) -> bool {
        let is_failed = |class| class == Class::Fail || class == Class::Flaky;
        self.tasks.iter().any(|task| task.verdict != Verdict::Passed && is_failed(task.class()))
    }

    /// Returns whether tasks did not pass, and the time limit of a trial is the only reason.
    pub fn is_late(&self) -> bool {
        let is_not_passed = |class| matches!(class, Class::Fail | Class::Flaky | Class::RigError);
        let trials = || {
            let tasks = self.tasks.iter().filter(|task| is_not_passed(task.class()));
            tasks.flat_map(|task| &task.trials).filter(|trial| is_not_passed(trial.class()))
        };
        match &self.unreached {
            Some(why) => why.is_timeout,
            None => trials().next().is_some() && trials().all(|trial| trial.cause.is_time()),
        }
    }
}

/// The parameters of a run.
pub struct Plan {
    /// The eval. It must be valid.
    pub spec: Arc<Spec>,
    /// The executor of the eval, which decides what answers the steps and prompts.
    pub executor: Executor,
    /// The working folder of the tasks.
    pub workdir: String,
    /// The targets that the tasks are spread over, in place of the eval's own target. If the list
    /// is empty, the tasks run one after another on the eval's target.
    pub shards: Vec<String>,
    /// The folder that attached files are copied to.
    pub attachments: PathBuf,
    /// The connector that opens sessions with targets.
    pub connect: Arc<dyn Connect>,
    /// Whether the log includes lines of level debug.
    pub verbose: bool,
    /// Whether a warning about a step keeps the run from beginning, as an error does.
    pub strict: bool,
    /// The token that cancels the run. The running operation is stopped, the cleanup steps run, and
    /// the run ends.
    pub cancel: CancellationToken,
    /// The function that gets the events of the run.
    pub on_event: OnEvent,
}

/// Runs an eval to its end. The events go to [`Plan::on_event`], and the result is returned.
pub async fn run(plan: Plan) -> Arc<RunOutcome> {
    let started = Instant::now();
    let Plan { spec, executor, workdir, shards, attachments, connect, verbose, strict, cancel, on_event } = plan;
    let on_event: OnEvent = {
        // One at a time, so that a sink sees them in order.
        let turn = Mutex::new(());
        Arc::new(move |event| {
            let _turn = lock(&turn);
            on_event(event);
        })
    };
    let log: OnLog = {
        let (on_event, spec) = (on_event.clone(), spec.clone());
        Arc::new(move |level, text: &str| {
            if verbose || level != Level::Debug {
                let mut message = cut(text);
                spec.redactor.hide(&mut message);
                on_event(Event::Log { level, message });
            }
        })
    };
    let progress = |event, verdict, duration| {
        on_event(Event::Progress(Progress { event, task: None, trial: None, verdict, duration }));
    };
    progress(waza::Event::RunStart, None, None);

    let count = if shards.is_empty() { workers(&spec, executor, &log) } else { shards.len() };
    let context = Arc::new(RunContext {
        spec: spec.clone(),
        executor,
        workdir,
        attachments: Arc::new(Attachments::new(attachments)),
        connect,
        log: log.clone(),
        cancel: cancel.clone(),
        rig: OnceLock::new(),
        is_parallel: count > 1,
    });
    let shared = Arc::new(Shared {
        spec: spec.clone(),
        queue: Mutex::new(Queue { jobs: (0..spec.tasks.len()).map(Job::new).collect(), running: 0 }),
        queued: Notify::new(),
        done: Mutex::default(),
        on_event: on_event.clone(),
        log: log.clone(),
        cancel: cancel.clone(),
    });
    let (mut error, mut unreached, mut mistakes) = (None, None, Vec::new());
    let mut places: VecDeque<Option<String>> = shards.iter().cloned().map(Some).collect();
    places.resize(count, None);
    let (mut first, health, begun) = shared.first(&context, &mut places, strict).await;
    match begun {
        Ok(()) => {
            let mut joined = JoinSet::new();
            joined.spawn(shared.clone().work(first, true));
            for place in places {
                joined.spawn(shared.clone().work(Worker::new(context.clone(), place), shards.is_empty()));
            }
            while let Some(ended) = joined.join_next().await {
                if let Err(panic) = ended {
                    error = Some(format!("Eval execution failed: {panic}"));
                }
            }
            shared.end_what_is_left();
        }
        Err(_) if cancel.is_cancelled() => first.close().await,
        Err(Obstacle::SessionError(mut why)) => {
            first.close().await;
            spec.redactor.hide(&mut why.text);
            error = Some(format!("Eval execution failed: {why}"));
            unreached = Some(why);
        }
        Err(Obstacle::Mistakes(found)) => {
            first.close().await;
            error = Some(cut(&format!("Eval execution failed: {}", said(&found))));
            mistakes = found;
        }
    }

    let mut tasks = std::mem::take(&mut *lock(&shared.done));
    tasks.sort_by_key(|task| task.task);
    let mut outcome = outcome(&spec, tasks, error, cancel.is_cancelled(), started.elapsed());
    outcome.unreached = unreached.filter(|_| outcome.state == RunState::Failed);
    outcome.mistakes = mistakes;
    // No threshold allows what the eval itself does wrong: it is not known what would have become of that.
    outcome.passed &= !outcome.has_mistake();
    (outcome.health, outcome.rig) = (health, context.rig.get().cloned());
    outcome.rig.iter_mut().for_each(|rig| spec.redactor.hide_in_rig(rig));
    let verdict = match outcome.state {
        RunState::Cancelled => Verdict::Cancelled,
        RunState::Failed => Verdict::Error,
        _ if outcome.passed => Verdict::Passed,
        _ => Verdict::Failed,
    };
    let outcome = Arc::new(outcome);
    progress(waza::Event::RunComplete, Some(verdict), Some(outcome.duration));
    on_event(Event::Complete(outcome.clone()));
    outcome
}

/// The first of the mistakes, and how many there are.
fn said(mistakes: &[Fault]) -> String {
    const SHOWN: usize = 20;
    let mut texts: Vec<String> = mistakes.iter().take(SHOWN).map(ToString::to_string).collect();
    if let Some(more) = mistakes.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ")
}

/// How many tasks may run at a time: several if each worker starts its own process, one on a board.
fn workers(spec: &Spec, executor: Executor, log: &OnLog) -> usize {
    let wanted = spec.config.workers.min(spec.tasks.len()).max(1);
    let has_steps = executor != Executor::Mock && spec.tasks.iter().any(|task| !task.steps.is_empty());
    let target = spec.config.target.as_deref().and_then(|target| target.parse::<Target>().ok());
    let is_alone = has_steps && !matches!(target, Some(Target::Sim | Target::Exec(_) | Target::Replay(_)));
    if is_alone && wanted > 1 {
        let target = spec.config.target.as_deref().unwrap_or_default();
        log(Level::Warn, &format!("parallel: {target} is one board, so its tasks run one after the other"));
        return 1;
    }
    wanted
}

/// State that the workers of a run share.
struct Shared {
    spec: Arc<Spec>,
    queue: Mutex<Queue>,
    /// Something has changed in the queue.
    queued: Notify,
    done: Mutex<Vec<TaskRecord>>,
    on_event: OnEvent,
    log: OnLog,
    cancel: CancellationToken,
}

/// The next task.
struct Queue {
    jobs: VecDeque<Job>,
    /// How many are being done, which may come back.
    running: usize,
}

/// A task, and what was done of it before its rig was lost.
struct Job {
    task: usize,
    trials: Vec<TrialRecord>,
    /// The attempts at the next trial, each on a rig that was lost.
    earlier: Vec<EarlierAttempt>,
    spent: Duration,
}

impl Job {
    fn new(task: usize) -> Self {
        Self { task, trials: Vec::new(), earlier: Vec::new(), spent: Duration::ZERO }
    }
}

/// How many rigs may be lost with one task: it may be the reason, and others need the rest.
const LOST_RIGS: usize = 2;

/// While it is there, a job may come back to the queue.
struct Running<'s>(&'s Shared);

impl Running<'_> {
    fn back(self, job: Job) {
        lock(&self.0.queue).jobs.push_front(job);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.running = queue.running.saturating_sub(1);
        drop(queue);
        self.0.queued.notify_waiters();
    }
}

/// The outcome of a job.
enum Ended {
    Done,
    /// The rig is lost. If the job is present, it must be done on another rig. The text is the
    /// reason.
    Lost(Option<Job>, String),
}

impl Shared {
    /// The next job. One that is being done may come back, so that its end is waited for.
    async fn next(&self) -> Option<(Job, Running<'_>)> {
        loop {
            let changed = self.queued.notified();
            tokio::pin!(changed);
            // From now on no change is missed.
            changed.as_mut().enable();
            {
                let mut queue = lock(&self.queue);
                if self.cancel.is_cancelled() {
                    return None;
                }
                if let Some(job) = queue.jobs.pop_front() {
                    queue.running += 1;
                    return Some((job, Running(self)));
                }
                if queue.running == 0 {
                    return None;
                }
            }
            tokio::select! {
                () = changed => {}
                () = self.cancel.cancelled() => return None,
            }
        }
    }

    async fn work(self: Arc<Self>, mut worker: Worker, is_tried: bool) {
        let mut is_tried = is_tried;
        while let Some((job, running)) = self.next().await {
            if !is_tried {
                is_tried = true;
                let opened = match self.open(&mut worker).await {
                    Ok(()) => self.preflight(&mut worker).await.1,
                    Err(why) => Err(why),
                };
                if let Err(why) = opened {
                    running.back(job);
                    self.out(&worker, &why.text);
                    break;
                }
            }
            if let Ended::Lost(job, why) = self.task(&mut worker, job).await {
                if let Some(job) = job {
                    running.back(job);
                }
                self.out(&worker, &why);
                break;
            }
        }
        worker.close().await;
    }

    /// Says that a rig does no more of the run.
    fn out(&self, worker: &Worker, why: &str) {
        if let (Some(shard), false) = (worker.shard(), self.cancel.is_cancelled()) {
            (self.log)(Level::Warn, &format!("{shard} does no more of this run: {why}"));
        }
    }

    async fn task(&self, worker: &mut Worker, job: Job) -> Ended {
        let mut job = job;
        let place = job.task;
        let Some(task) = self.spec.tasks.get(place) else { return Ended::Done };
        let started = Instant::now();
        let tell = |event, trial, verdict, duration| {
            (self.on_event)(Event::Progress(Progress { event, task: Some(place), trial, verdict, duration }));
        };
        if job.trials.is_empty() && job.earlier.is_empty() {
            tell(waza::Event::TaskStart, None, None, None);
            (self.log)(Level::Info, &format!("Running task: {}", task.id));
        }
        let mut lost = None;
        let begun = u32::try_from(job.trials.len()).unwrap_or(u32::MAX);
        for number in begun.saturating_add(1)..=self.spec.config.trials_per_task {
            if self.cancel.is_cancelled() || lost.is_some() {
                break;
            }
            if job.earlier.is_empty() {
                tell(waza::Event::TrialStart, Some(number), None, None);
            }
            let mut record = self.attempts(worker, task, number).await;
            if let (Some(shard), Class::RigError) = (worker.shard().map(str::to_owned), record.class())
                && !self.cancel.is_cancelled()
                && let Err(why) = worker.open_again().await
            {
                if job.earlier.iter().filter(|attempt| attempt.class == Class::RigError).count() + 1 < LOST_RIGS {
                    let error = format!("on {shard}, which was lost: {}", record.error.unwrap_or_default());
                    let attachments = record.steps.into_iter().flat_map(|step| step.attachments).collect();
                    job.earlier.append(&mut record.earlier);
                    let mut error = cut(&error);
                    self.spec.redactor.hide(&mut error);
                    job.earlier.push(EarlierAttempt::new(Class::RigError, error, attachments));
                    job.spent += started.elapsed();
                    return Ended::Lost(Some(job), why.text);
                }
                lost = Some(why.text);
            }
            let earlier = std::mem::take(&mut job.earlier);
            record.attempts = record.attempts.saturating_add(u32::try_from(earlier.len()).unwrap_or(u32::MAX));
            record.earlier.splice(0..0, earlier);
            for grade in record.grades.iter().filter(|grade| grade.judgement == GradeVerdict::Unsupported) {
                (self.log)(Level::Warn, &format!("{}: grader {}: {}", task.name, grade.grader, grade.message));
            }
            if let Some(error) = &record.error {
                let level = if record.verdict == Verdict::Error { Level::Error } else { Level::Warn };
                (self.log)(level, &format!("{}, trial {number}: {error}", task.name));
            }
            self.keep(&mut job, record);
        }
        job.spent += started.elapsed();
        self.complete(job);
        match lost {
            None => Ended::Done,
            Some(why) => Ended::Lost(None, why),
        }
    }

    /// A trial has ended.
    fn keep(&self, job: &mut Job, record: TrialRecord) {
        let mut record = record;
        trim(&mut record, &self.spec.redactor);
        let (task, trial) = (Some(job.task), Some(record.number));
        let (verdict, duration) = (Some(record.verdict), Some(record.duration));
        job.trials.push(record.clone());
        (self.on_event)(Event::Trial { task: job.task, record });
        let event = waza::Event::TrialComplete;
        (self.on_event)(Event::Progress(Progress { event, task, trial, verdict, duration }));
    }

    /// A task has ended.
    fn complete(&self, job: Job) {
        let Job { task, trials, spent: duration, .. } = job;
        // A trial that did not pass decides, also if a later one was cut off.
        let verdict = [Verdict::Error, Verdict::Failed, Verdict::Cancelled, Verdict::Skipped]
            .into_iter()
            .find(|verdict| trials.iter().any(|trial| trial.verdict == *verdict))
            .unwrap_or(if trials.len() < self.spec.config.trials_per_task as usize {
                Verdict::Cancelled
            } else {
                Verdict::Passed
            });
        lock(&self.done).push(TaskRecord { task, verdict, trials, duration });
        let (task, verdict, duration) = (Some(task), Some(verdict), Some(duration));
        let event = waza::Event::TaskComplete;
        (self.on_event)(Event::Progress(Progress { event, task, trial: None, verdict, duration }));
    }

    /// All rigs are lost, or the run is cancelled. Tasks that are still in the queue are not forgotten: each gets a result, unless
    /// it was cancelled before it began.
    fn end_what_is_left(&self) {
        let left = std::mem::take(&mut lock(&self.queue).jobs);
        for mut job in left {
            let is_new = job.trials.is_empty() && job.earlier.is_empty();
            let verdict = match self.cancel.is_cancelled() {
                true if is_new => continue,
                true => Verdict::Cancelled,
                false => Verdict::Error,
            };
            if is_new {
                let event = waza::Event::TaskStart;
                let task = Some(job.task);
                let start = Progress { event, task, trial: None, verdict: None, duration: None };
                (self.on_event)(Event::Progress(start));
            }
            let number = u32::try_from(job.trials.len()).unwrap_or(u32::MAX).saturating_add(1);
            let earlier = std::mem::take(&mut job.earlier);
            let why = if verdict == Verdict::Cancelled { "cancelled" } else { "no rig is left that could run it" };
            let record = TrialRecord {
                number,
                verdict,
                error: Some(why.to_owned()),
                steps: Vec::new(),
                grades: Vec::new(),
                output: None,
                duration: Duration::ZERO,
                attempts: u32::try_from(earlier.len()).unwrap_or(u32::MAX).max(1),
                cause: Cause::Rig,
                earlier,
                shard: None,
            };
            self.keep(&mut job, record);
            self.complete(job);
        }
    }
}

/// Why no task is run.
enum Obstacle {
    /// The target cannot be reached, or failed the preflight.
    SessionError(SessionError),
    /// Some steps do not fit the operations of the target.
    Mistakes(Vec<Fault>),
}

impl Shared {
    /// The first worker finds out whether there is a target at all, whether it is well, and whether it takes what it will get. Of several targets,
    /// the next one is tried then.
    async fn first(
        &self,
        context: &Arc<RunContext>,
        places: &mut VecDeque<Option<String>>,
        strict: bool,
    ) -> (Worker, Option<TrialRecord>, Result<(), Obstacle>) {
        loop {
            let mut first = Worker::new(Arc::clone(context), places.pop_front().flatten());
            let (health, begun) = self.begin(&mut first, strict).await;
            match &begun {
                Err(Obstacle::SessionError(why))
                    if first.shard().is_some() && !places.is_empty() && !self.cancel.is_cancelled() =>
                {
                    self.out(&first, &why.text);
                    first.close().await;
                }
                _ => return (first, health, begun),
            }
        }
    }

    /// Opens the first session, holds the steps against what the target describes, and runs the preflight. Returns the preflight's record, and
    /// what keeps the tasks from being run.
    async fn begin(&self, worker: &mut Worker, strict: bool) -> (Option<TrialRecord>, Result<(), Obstacle>) {
        if let Err(why) = self.open(worker).await {
            return (None, Err(Obstacle::SessionError(why)));
        }
        let Mistakes { preflight, tasks, doubts } = worker.mistakes();
        let mut mistakes = tasks;
        if strict {
            mistakes.extend(doubts);
        } else {
            doubts.iter().for_each(|doubt| (self.log)(Level::Warn, &doubt.to_string()));
        }
        if !preflight.is_empty() {
            return (None, Err(Obstacle::Mistakes(preflight.into_iter().chain(mistakes).collect())));
        }
        // With another rig every step would be a mistake, so that the preflight comes first.
        let (health, is_well) = self.preflight(worker).await;
        let begun = match is_well {
            Err(why) => Err(Obstacle::SessionError(why)),
            Ok(()) if mistakes.is_empty() => Ok(()),
            Ok(()) => Err(Obstacle::Mistakes(mistakes)),
        };
        (health, begun)
    }

    /// Runs the preflight, if there is one.
    async fn preflight(&self, worker: &mut Worker) -> (Option<TrialRecord>, Result<(), SessionError>) {
        let Some(steps) = &self.spec.health else { return (None, Ok(())) };
        let mut record = self.attempts(worker, steps, 1).await;
        trim(&mut record, &self.spec.redactor);
        let why = record.error.as_deref().unwrap_or("not judged");
        let text = format!("preflight: {why}");
        let (is_well, is_timeout) = (record.verdict == Verdict::Passed, record.cause.is_time());
        (Some(record), if is_well { Ok(()) } else { Err(SessionError { text, is_timeout }) })
    }

    /// Opens the first session, again where the rig is the reason that there is none and it may be tried again.
    async fn open(&self, worker: &mut Worker) -> Result<(), SessionError> {
        let mut left = self.spec.config.retries;
        loop {
            match worker.open().await {
                Err(why) if left > 0 && !self.cancel.is_cancelled() => {
                    (self.log)(Level::Warn, &format!("{why}; it is tried again"));
                    left -= 1;
                    self.pause().await;
                }
                opened => return opened,
            }
        }
    }

    /// Waits for the rig to recover, unless the run is cancelled.
    async fn pause(&self) {
        let _ = timeout(RETRY_PAUSE, self.cancel.cancelled()).await;
    }

    /// Runs a trial until it passes, or as often as it may be tried.
    async fn attempts(&self, worker: &mut Worker, task: &Task, number: u32) -> TrialRecord {
        let config = &self.spec.config;
        let (mut attempt, mut retries) = (1, 0);
        let mut earlier = Vec::new();
        loop {
            let mut record = worker.run(task, number).await;
            record.attempts = attempt;
            if record.verdict == Verdict::Cancelled
                && let Some(failed) = earlier.iter().find(|attempt: &&EarlierAttempt| attempt.class == Class::Fail)
            {
                // No attempt has passed, and one has failed.
                (record.verdict, record.cause) = (Verdict::Failed, Cause::Board);
                record.error = Some(format!("{}; attempt {attempt} was cancelled", failed.error));
            }
            let class = record.class();
            let is_over = !matches!(record.verdict, Verdict::Failed | Verdict::Error);
            let is_retried = retries < config.retries && (class == Class::RigError || config.retries_failures);
            if is_over || self.cancel.is_cancelled() || !(attempt < config.max_attempts || is_retried) {
                record.earlier = earlier;
                return record;
            }
            let attachments = record.steps.into_iter().flat_map(|step| step.attachments).collect();
            let why = record.error.unwrap_or_default();
            let text = format!("{}, trial {number}, attempt {attempt}: {}: {why}", task.name, class.label());
            (self.log)(Level::Warn, &text);
            earlier.push(EarlierAttempt::new(class, cut(&why), attachments));
            attempt += 1;
            retries += 1;
            if class == Class::RigError {
                self.pause().await;
            }
        }
    }
}

/// How long a rig has to recover before it is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Cuts the texts of a record, and hides in them what environment variables held.
fn trim(record: &mut TrialRecord, redactor: &Redactor) {
    redactor.hide_in(record);
    let texts = record.steps.iter_mut().map(|step| &mut step.message);
    let texts = texts.chain(record.output.as_mut()).chain(record.error.as_mut());
    texts.chain(record.grades.iter_mut().map(|grade| &mut grade.message)).for_each(|text| {
        shorten(text);
    });
    for (_, value) in record.steps.iter_mut().flat_map(|step| &mut step.outputs) {
        shorten(value);
    }
}

fn shorten(text: &mut String) {
    if let Some(end) = end(text) {
        text.truncate(end);
        text.push('…');
    }
}

fn cut(text: &str) -> String {
    match end(text) {
        Some(end) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Where a text that is too long is cut.
fn end(text: &str) -> Option<usize> {
    let mut written = 0;
    text.char_indices().find_map(|(at, char)| {
        written += match char {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            '\0'..' ' | '\u{7f}' | '\u{2028}' | '\u{2029}' => 6,
            other => other.len_utf8(),
        };
        (at + char.len_utf8() > TEXT_LIMIT || written > 3 * TEXT_LIMIT).then_some(at)
    })
}

fn outcome(
    spec: &Spec,
    tasks: Vec<TaskRecord>,
    error: Option<String>,
    cancelled: bool,
    duration: Duration,
) -> RunOutcome {
    let count = |verdicts: &[Verdict]| {
        u32::try_from(tasks.iter().filter(|task| verdicts.contains(&task.verdict)).count()).unwrap_or(u32::MAX)
    };
    let summary = Summary {
        total: u32::try_from(spec.tasks.len()).unwrap_or(u32::MAX),
        passed: count(&[Verdict::Passed]),
        failed: count(&[Verdict::Failed, Verdict::Error]),
    };
    let trials = || tasks.iter().flat_map(|task| &task.trials);
    // A trial that failed although no grader says so, and one without graders, counts in every metric as one grader does.
    let own: Vec<Grade> = trials().filter_map(own_grade).collect();
    let grades: Vec<&Grade> = trials().flat_map(|trial| &trial.grades).chain(&own).collect();
    let metrics: Vec<MetricResult> = spec.metrics.list.iter().map(|metric| measure(metric, &grades)).collect();
    let weights: f64 = metrics.iter().map(|metric| metric.weight).sum();
    let score =
        (weights > 0.0).then(|| metrics.iter().map(|metric| metric.share * metric.weight).sum::<f64>() / weights);
    let reached = if metrics.is_empty() {
        reaches(summary, spec.metrics.pass_threshold)
    } else {
        metrics.iter().all(|metric| metric.passed)
    };
    let state = match () {
        () if cancelled => RunState::Cancelled,
        () if error.is_some() => RunState::Failed,
        () => RunState::Completed,
    };
    let error = if cancelled { Some("Eval execution cancelled".to_owned()) } else { error };
    RunOutcome {
        state,
        summary,
        error,
        skipped: count(&[Verdict::Skipped]),
        unreached: None,
        mistakes: Vec::new(),
        health: None,
        rig: None,
        // What the rig spoiled is not known, whatever share is enough.
        passed: reached && state == RunState::Completed && tasks.iter().all(|task| task.class() != Class::RigError),
        metrics,
        score,
        tasks,
        duration,
    }
}

/// The verdict of a trial apart from its graders.
fn own_grade(trial: &TrialRecord) -> Option<Grade> {
    let judgement = match trial.verdict {
        Verdict::Passed if trial.grades.is_empty() => GradeVerdict::Passed,
        Verdict::Failed | Verdict::Error
            if trial.grades.iter().all(|grade| grade.judgement != GradeVerdict::Failed) =>
        {
            GradeVerdict::Failed
        }
        _ => return None,
    };
    Some(Grade {
        grader: String::new(),
        kind: String::new(),
        metric: None,
        weight: 1.0,
        judgement,
        message: String::new(),
        measurement: None,
    })
}

/// Whether enough tasks passed. A threshold has few decimals and 2/3 has many: a difference below a billionth is none.
fn reaches(summary: Summary, threshold: f64) -> bool {
    f64::from(summary.passed) + 1e-9 >= threshold * f64::from(summary.total)
}

fn measure(metric: &Metric, grades: &[&Grade]) -> MetricResult {
    let counts = |grade: &&&Grade| {
        let names = [grade.metric.as_ref(), Some(&grade.grader), Some(&grade.kind)];
        names.into_iter().flatten().any(|name| *name == metric.name)
    };
    let is_own = |grade: &&&Grade| grade.kind.is_empty();
    let judged = |grade: &&&Grade| grade.judgement != GradeVerdict::Unsupported;
    let own: Vec<_> = grades.iter().filter(|grade| counts(grade) || is_own(grade)).filter(judged).collect();
    let is_named = grades.iter().any(|grade| counts(&grade));
    let counted: Vec<_> = if is_named { own } else { grades.iter().filter(judged).collect() };
    let all: f64 = counted.iter().map(|grade| grade.weight).sum();
    let passed = counted.iter().filter(|grade| grade.judgement == GradeVerdict::Passed);
    // The sum of nothing is -0.0.
    let passed = passed.map(|grade| grade.weight).fold(0.0, |sum, weight| sum + weight);
    let share = if all > 0.0 { passed / all } else { 0.0 };
    MetricResult {
        name: metric.name.clone(),
        share,
        threshold: metric.threshold,
        weight: metric.weight,
        passed: share + 1e-9 >= metric.threshold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grade(kind: &str, metric: Option<&str>, judgement: GradeVerdict) -> Grade {
        Grade {
            grader: kind.into(),
            kind: kind.into(),
            metric: metric.map(str::to_owned),
            weight: 1.0,
            judgement,
            message: String::new(),
            measurement: None,
        }
    }

    #[test]
    fn thresholds_are_exact() {
        for (passed, total, threshold, reached) in [
            (4, 5, 0.8, true),
            (3, 5, 0.8, false),
            (2, 3, 2.0 / 3.0, true),
            (2, 3, 0.67, false),
            (0, 0, 1.0, true),
            (0, 4, 0.0, true),
            (7, 10, 0.7, true),
        ] {
            let summary = Summary { total, passed, failed: total - passed };
            assert_eq!(reaches(summary, threshold), reached, "{passed} of {total} against {threshold}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_short_in_json() {
        for (text, kept) in [
            ("a".repeat(TEXT_LIMIT), TEXT_LIMIT),
            ("a".repeat(TEXT_LIMIT + 1), TEXT_LIMIT),
            ("é".repeat(TEXT_LIMIT / 2), TEXT_LIMIT),
            (format!("a{}", "é".repeat(TEXT_LIMIT / 2)), TEXT_LIMIT - 1),
            ("\u{1}".repeat(TEXT_LIMIT), TEXT_LIMIT / 2),
            ("\"".repeat(TEXT_LIMIT), TEXT_LIMIT),
        ] {
            let short = cut(&text);
            assert_eq!(short.trim_end_matches('…').len(), kept);
            assert_eq!(short.ends_with('…'), kept < text.len());
            assert!(serde_json::to_string(&short).unwrap().len() < 50 * 1024);
            let mut shortened = text;
            shorten(&mut shortened);
            assert_eq!(shortened, short);
        }
    }

    #[test]
    fn metrics_count_the_graders_that_name_them_or_all() {
        use GradeVerdict::{Failed, Passed, Unsupported};
        let grades = [
            grade("regex", None, Passed),
            grade("regex", Some("style"), Failed),
            grade("contains", Some("style"), Passed),
            grade("code", None, Unsupported),
        ];
        let grades: Vec<&Grade> = grades.iter().collect();
        for (name, share) in [("style", 0.5), ("regex", 0.5), ("contains", 1.0), ("overall", 2.0 / 3.0), ("code", 0.0)]
        {
            let metric = Metric { name: name.into(), weight: 1.0, threshold: 0.5, description: None };
            let result = measure(&metric, &grades);
            assert!((result.share - share).abs() < 1e-9, "{name}: {}", result.share);
            assert_eq!(result.passed, share >= 0.5);
        }
        // O 8: a grader that weighs three times as much counts three times.
        let mut heavy = grade("regex", Some("style"), Passed);
        heavy.weight = 3.0;
        let failed = grade("contains", Some("style"), Failed);
        let metric = Metric { name: "style".into(), weight: 1.0, threshold: 0.5, description: None };
        assert!((measure(&metric, &[&heavy, &failed]).share - 0.75).abs() < 1e-9);
    }
}
