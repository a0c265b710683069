//! One trial of a task.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use rigline::protocol::waza::Verdict;
use rigline::{Level, Phase};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::attach::Attachments;
use super::command;
use super::grade::{Condition, Evidence, Grader};
use super::placeholders::{literal, substitute};
use super::records::{Cause, Grade, GradeVerdict};
pub(crate) use super::records::{EarlierAttempt, StepRecord, TrialRecord};
use super::session::{Call, Connect, EvalSession, OnLog, RigIdentity, SessionError, StepResult};
use super::spec::{Executor, Fault, Spec, Step, Task};
use super::target_check::{known_names, of_tasks};
use rigline_host::client::Part;
use rigline_host::coerce::{Schema, fit};
use rigline_std::mutex::lock;

/// The time limit of a cleanup step that sets none of its own.
pub const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The shared data of a run's trials.
pub(super) struct RunContext {
    pub(super) spec: Arc<Spec>,
    pub(super) executor: Executor,
    pub(super) workdir: String,
    /// Where files that steps attach are kept.
    pub(super) attachments: Arc<Attachments>,
    pub(super) connect: Arc<dyn Connect>,
    pub(super) log: OnLog,
    pub(super) cancel: CancellationToken,
    /// The identity of the rig, once there was a session.
    pub(super) rig: OnceLock<RigIdentity>,
    /// Whether several tasks run at a time, so that log lines have to say which one they are of.
    pub(super) is_parallel: bool,
}

/// Runs trials, one after the other, over one session.
pub(super) struct Worker {
    context: Arc<RunContext>,
    /// Its target, in a run that has several.
    shard: Option<String>,
    session: Option<Box<dyn EvalSession>>,
    /// The task that it runs.
    task: Arc<Mutex<String>>,
    log: OnLog,
}

/// Differences from the target's description.
#[derive(Default)]
pub(super) struct Mistakes {
    /// Of the preflight's steps.
    pub(super) preflight: Vec<Fault>,
    /// Of the tasks' steps.
    pub(super) tasks: Vec<Fault>,
    /// Possible mistakes.
    pub(super) doubts: Vec<Fault>,
}

/// Why a trial's main part ended early.
struct EarlyEnd {
    verdict: Verdict,
    why: String,
    cause: Cause,
    /// The call may still run: the extension is told to stop.
    lost: bool,
}

impl EarlyEnd {
    fn new(verdict: Verdict, cause: Cause, why: impl Into<String>) -> Self {
        Self { verdict, why: why.into(), cause, lost: false }
    }

    fn cancelled() -> Self {
        Self::new(Verdict::Cancelled, Cause::Board, "cancelled")
    }

    /// One for several steps, with all reasons: a failure of the board comes first, then a mistake of the eval, then the rig.
    fn of_all(mut all: Vec<Self>) -> Option<Self> {
        all.sort_by_key(|end| (end.cause.is_rig(), end.verdict == Verdict::Error));
        let why = all.iter().map(|end| end.why.as_str()).collect::<Vec<_>>().join("; ");
        Some(Self { why, ..all.into_iter().next()? })
    }
}

/// The graders that failed, as texts.
struct Failed {
    all: Vec<String>,
    /// Those that judge a step which did its part: certain, whatever happened after it.
    certain: Vec<String>,
}

impl Failed {
    fn of(graders: &[&Grader], grades: &[Grade], steps: &[StepRecord]) -> Self {
        let failed = || graders.iter().zip(grades).filter(|(_, grade)| grade.judgement == GradeVerdict::Failed);
        let text = |grade: &Grade| format!("{}: {}", grade.grader, grade.message);
        let certain = failed().filter(|(grader, _)| grader.is_certain(steps));
        Self {
            all: failed().map(|(_, grade)| text(grade)).collect(),
            certain: certain.map(|(_, grade)| text(grade)).collect(),
        }
    }

    /// Why a trial did not pass, with all reasons: what the board did wrong comes first.
    fn with(self, main: Option<EarlyEnd>, cleanup: Option<EarlyEnd>) -> Option<EarlyEnd> {
        let Self { all, certain } = self;
        let failed = |reasons: Vec<String>| EarlyEnd::new(Verdict::Failed, Cause::Board, reasons.join("; "));
        match (main, cleanup) {
            (Some(main), _) if main.verdict == Verdict::Cancelled && certain.is_empty() => Some(main),
            (Some(main), cleanup) => {
                let cleanup = cleanup.map(|cleanup| cleanup.why);
                let is_uncertain = main.cause.is_rig() || main.verdict == Verdict::Cancelled;
                if is_uncertain && !certain.is_empty() {
                    return Some(failed(certain.into_iter().chain([main.why]).chain(cleanup).collect()));
                }
                let why: Vec<String> = [main.why].into_iter().chain(certain).chain(cleanup).collect();
                Some(EarlyEnd { why: why.join("; "), ..main })
            }
            (None, None) => (!all.is_empty()).then(|| failed(all)),
            (None, Some(cleanup)) if cleanup.verdict == Verdict::Failed || !certain.is_empty() => {
                let reasons = if cleanup.verdict == Verdict::Failed { all } else { certain };
                let cause = if reasons.is_empty() { cleanup.cause } else { Cause::Board };
                let why: Vec<String> = reasons.into_iter().chain([cleanup.why]).collect();
                Some(EarlyEnd::new(Verdict::Failed, cause, why.join("; ")))
            }
            // What the others judge may be what the cleanup did.
            (None, Some(cleanup)) => {
                let why: Vec<String> = [cleanup.why].into_iter().chain(all).collect();
                Some(EarlyEnd { why: why.join("; "), ..cleanup })
            }
        }
    }
}

/// The time of a trial.
#[derive(Debug, Clone, Copy)]
struct Time {
    deadline: Instant,
    limit: Duration,
    /// When the trial began.
    began: SystemTime,
    /// The agent's part of it.
    of_agent: Duration,
}

impl Time {
    /// It is over, during a step or before it. The agent is the reason if it has used most of it.
    fn over(self, more: String) -> EarlyEnd {
        let Self { limit, of_agent, .. } = self;
        let mut why = format!("timeout: the trial was not done within {limit:?}");
        let cause = if of_agent > limit / 2 { Cause::Agent } else { Cause::Late };
        if cause == Cause::Agent {
            why += &format!("; the agent has used {of_agent:.3?} of it");
        }
        if !more.is_empty() {
            why += "; ";
            why += &more;
        }
        EarlyEnd::new(Verdict::Failed, cause, why)
    }
}

impl Worker {
    /// `shard` is its target, in a run that has several.
    pub(super) fn new(context: Arc<RunContext>, shard: Option<String>) -> Self {
        let task: Arc<Mutex<String>> = Arc::default();
        let log: OnLog = if context.is_parallel {
            let (log, task) = (context.log.clone(), task.clone());
            Arc::new(move |level, text: &str| match lock(&task).as_str() {
                "" => log(level, text),
                task => log(level, &format!("{task}: {text}")),
            })
        } else {
            context.log.clone()
        };
        Self { context, shard, session: None, task, log }
    }

    /// Its target, in a run that has several.
    pub(super) fn shard(&self) -> Option<&str> {
        self.shard.as_deref()
    }

    /// Finds out whether the target still answers: opens the session anew.
    pub(super) async fn open_again(&mut self) -> Result<(), SessionError> {
        self.close().await;
        self.open().await
    }

    /// Opens the session, if steps will need one.
    pub(super) async fn open(&mut self) -> Result<(), SessionError> {
        let context = &self.context;
        let needs = context.executor != Executor::Mock && context.spec.tasks.iter().any(|task| !task.steps.is_empty());
        if !needs || self.session.is_some() {
            return Ok(());
        }
        if context.cancel.is_cancelled() {
            // Perhaps before its turn: the board may be another run's.
            return Err(SessionError::new("cancelled"));
        }
        let target = self.shard.as_deref().or(context.spec.config.target.as_deref()).unwrap_or_default();
        let connecting = context.connect.connect(
            target,
            context.spec.config.target_dir.as_deref(),
            context.spec.config.settings.clone(),
            self.log.clone(),
        );
        let session = tokio::select! {
            session = connecting => session?,
            () = context.cancel.cancelled() => return Err(SessionError::new("cancelled")),
        };
        context.rig.get_or_init(|| session.rig());
        self.session = Some(session);
        Ok(())
    }

    /// Returns the mistakes of the eval's steps that the target's description shows.
    pub(super) fn mistakes(&self) -> Mistakes {
        let operations = self.session.as_ref().map(|session| session.operations()).unwrap_or_default();
        let spec = &self.context.spec;
        let (preflight, mut doubts) = of_tasks(spec, spec.health.as_slice(), &operations);
        let (tasks, more) = of_tasks(spec, &spec.tasks, &operations);
        doubts.extend(more);
        let (mut preflight, tasks) = (preflight, tasks);
        if let Some(session) = &self.session {
            let (lacking, more) = lacking(spec, self.context.executor, |part| session.lacks(part));
            preflight.extend(lacking);
            doubts.extend(more);
        }
        Mistakes { preflight, tasks, doubts }
    }

    pub(super) async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }

    /// Runs a trial. Its cleanup steps run whatever happens.
    pub(super) async fn run(&mut self, task: &Task, number: u32) -> TrialRecord {
        let context = self.context.clone();
        lock(&self.task).clone_from(&task.id);
        let (started, began) = (Instant::now(), SystemTime::now());
        let limit = task.timeout.unwrap_or(context.spec.config.timeout);
        let time = Time { deadline: started + limit, limit, of_agent: Duration::ZERO, began };
        let mut steps = Vec::new();
        let mut output = None;
        let main = self.main(task, time, &mut steps, &mut output).await;
        let elapsed = started.elapsed();
        let cleanup = self.cleanup(task, &mut steps, output.as_deref(), began).await;

        let cancelled = context.cancel.is_cancelled();
        let main = main.err();
        // Of a trial that was cut off, the steps before are judged.
        let is_cut_off = cancelled && (main.is_some() || cleanup.is_some());
        let is_judged = |grader: &&Grader| !is_cut_off || grader.is_certain(&steps);
        let graders: Vec<&Grader> = task.graders.iter().filter(is_judged).collect();
        let evidence =
            Evidence { workdir: Path::new(&context.workdir), agent: output.as_deref(), steps: &steps, elapsed };
        let grades: Vec<Grade> = graders.iter().map(|grader| grader.grade(&evidence)).collect();
        let failed = Failed::of(&graders, &grades, &steps);
        let mut broken = failed.with(main, cleanup);
        let is_judged = |grade: &Grade| grade.judgement != GradeVerdict::Unsupported;
        if broken.is_none() && !grades.is_empty() && !grades.iter().any(is_judged) {
            let why = grades.iter().map(|grade| format!("{}: {}", grade.grader, grade.message)).collect::<Vec<_>>();
            broken = Some(EarlyEnd::new(Verdict::Skipped, Cause::Eval, format!("not judged: {}", why.join("; "))));
        }
        let (verdict, cause, error) = match broken {
            None => (Verdict::Passed, Cause::default(), None),
            Some(EarlyEnd { verdict, cause, why, .. }) => (verdict, cause, Some(why)),
        };
        let (duration, earlier, shard) = (started.elapsed(), Vec::new(), self.shard.clone());
        TrialRecord { number, verdict, error, steps, grades, output, duration, attempts: 1, cause, earlier, shard }
    }

    /// Setup, the agent, verification.
    async fn main(
        &mut self,
        task: &Task,
        mut time: Time,
        steps: &mut Vec<StepRecord>,
        output: &mut Option<String>,
    ) -> Result<(), EarlyEnd> {
        let context = self.context.clone();
        if context.cancel.is_cancelled() {
            return Err(EarlyEnd::cancelled());
        }
        self.open().await.map_err(|error| {
            let verdict = if context.cancel.is_cancelled() { Verdict::Cancelled } else { Verdict::Error };
            EarlyEnd::new(verdict, Cause::Rig, error.text)
        })?;
        let mut agent_is_due = true;
        for step in task.steps.iter().filter(|step| step.phase != Phase::Cleanup) {
            if agent_is_due && step.phase != Phase::Setup {
                agent_is_due = false;
                let began = Instant::now();
                *output = self.agent(task, steps, time).await?;
                time.of_agent = began.elapsed();
            }
            self.step(task, step, steps, output.as_deref(), time).await?;
        }
        if agent_is_due {
            *output = self.agent(task, steps, time).await?;
        }
        Ok(())
    }

    /// Has the agent do its part.
    async fn agent(
        &self,
        task: &Task,
        steps: &[StepRecord],
        Time { deadline, limit, .. }: Time,
    ) -> Result<Option<String>, EarlyEnd> {
        let context = &self.context;
        let prompt = match task.prompt.as_deref().map(|prompt| substitute(prompt, steps)) {
            Some(Err(why)) => return Err(EarlyEnd::new(Verdict::Error, Cause::Eval, format!("prompt: {why}"))),
            Some(Ok(prompt)) => prompt,
            None => Cow::Borrowed(""),
        };
        let cancelled = EarlyEnd::cancelled;
        let late = || EarlyEnd::new(Verdict::Failed, Cause::Agent, format!("timeout: not done within {limit:?}"));
        match context.executor {
            Executor::Extension => Ok(None),
            Executor::Mock => {
                tokio::select! {
                    () = sleep(task.mock.delay) => {}
                    () = context.cancel.cancelled() => return Err(cancelled()),
                    () = sleep_until(deadline) => return Err(late()),
                }
                if task.mock.fail {
                    return Err(EarlyEnd::new(Verdict::Failed, Cause::Board, "the mock fails, as its eval requires"));
                }
                Ok(Some(task.mock.output.clone().unwrap_or_else(|| made_up(task, &prompt))))
            }
            Executor::Command => {
                let config = &context.spec.config;
                let running = command::run(
                    &config.command,
                    &config.env,
                    &context.workdir,
                    config.model.as_deref(),
                    &prompt,
                    &self.log,
                );
                // Dropping it ends the process group.
                tokio::select! {
                    done = running => done.map(Some).map_err(|error| EarlyEnd::new(error.verdict(), Cause::Board, error.to_string())),
                    () = context.cancel.cancelled() => Err(cancelled()),
                    () = sleep_until(deadline) => Err(late()),
                }
            }
        }
    }

    async fn step(
        &self,
        task: &Task,
        step: &Step,
        steps: &mut Vec<StepRecord>,
        output: Option<&str>,
        time: Time,
    ) -> Result<(), EarlyEnd> {
        let deadline = time.deadline;
        let context = self.context.clone();
        let started = Instant::now();
        let left = deadline.saturating_duration_since(started);
        if context.cancel.is_cancelled() {
            return Err(EarlyEnd::cancelled());
        }
        if left.is_zero() {
            return Err(time.over(format!("it was over before step {} ({}) began", step.id, step.operation)));
        }
        let limit_of_step = step.timeout.unwrap_or(left).min(left);
        let calling = self.call(task, step, steps, output, limit_of_step);
        let answer = tokio::select! {
            answer = calling => answer,
            () = context.cancel.cancelled() => Err(EarlyEnd { lost: true, ..EarlyEnd::cancelled() }),
            () = sleep_until(deadline) => Err(EarlyEnd { lost: true, ..time.over(String::new()) }),
        };
        let is_lost = answer.as_ref().is_err_and(|broken| broken.lost);
        let result = self.record(step, answer, started, limit_of_step, steps);
        self.attach(step, steps, time.began).await;
        if is_lost
            && let Some(session) = &self.session
            && let Err(error) = session.cancel().await
        {
            (self.log)(Level::Warn, &format!("{}: {error}", context.spec.config.target.as_deref().unwrap_or_default()));
        }
        result
    }

    /// Runs the cleanup steps, each whatever became of the others.
    async fn cleanup(
        &self,
        task: &Task,
        steps: &mut Vec<StepRecord>,
        output: Option<&str>,
        began: SystemTime,
    ) -> Option<EarlyEnd> {
        let mut broken = Vec::new();
        for step in task.steps.iter().filter(|step| step.phase == Phase::Cleanup) {
            if self.session.is_none() && self.context.executor != Executor::Mock {
                break;
            }
            let started = Instant::now();
            let limit = step.timeout.unwrap_or(CLEANUP_TIMEOUT);
            let calling = self.call(task, step, steps, output, limit);
            // The host gives up by itself a little later; this is for a session that has to be opened again first.
            let answer = match timeout(limit.saturating_add(CLEANUP_TIMEOUT), calling).await {
                Ok(answer) => answer,
                Err(_) => Err(EarlyEnd::new(Verdict::Error, Cause::Rig, "timeout")),
            };
            let result = self.record(step, answer, started, limit, steps);
            self.attach(step, steps, began).await;
            if let Err(error) = result {
                (self.log)(Level::Warn, &format!("cleanup of {}: {}", task.name, error.why));
                broken.push(error);
            }
        }
        EarlyEnd::of_all(broken)
    }

    /// Keeps the files that a step attaches, whatever became of it.
    async fn attach(&self, step: &Step, steps: &mut [StepRecord], began: SystemTime) {
        let Some(record) = steps.last_mut().filter(|_| !step.attach.is_empty()) else { return };
        let (attachments, workdir) = (self.context.attachments.clone(), self.context.workdir.clone());
        let patterns = step.attach.clone();
        let copying =
            tokio::task::spawn_blocking(move || attachments.copy(Path::new(&workdir), &patterns, began)).await;
        record.attachments = copying.unwrap_or_default();
        for (name, error) in record.attachments.iter().filter_map(|it| Some((&it.name, it.error.as_ref()?))) {
            (self.log)(Level::Warn, &format!("step {} ({}): attach {name}: {error}", step.id, step.operation));
        }
    }

    async fn call(
        &self,
        task: &Task,
        step: &Step,
        steps: &[StepRecord],
        output: Option<&str>,
        limit: Duration,
    ) -> Result<StepResult, EarlyEnd> {
        if self.context.executor == Executor::Mock {
            return Ok(StepResult {
                failure: None,
                cause: Cause::default(),
                message: Some(format!("{} (mock)", step.operation)),
                outputs: mocked(task, step),
            });
        }
        let Some(session) = &self.session else {
            return Err(EarlyEnd::new(Verdict::Error, Cause::Rig, "there is no session"));
        };
        // The extension says what is wrong with an operation that it does not have.
        let schema = session.schema(&step.operation).unwrap_or_else(Schema::any);
        let draft = step.args.draft(steps).map_err(|why| EarlyEnd::new(Verdict::Error, Cause::Eval, why))?;
        let fit = fit(&draft, &schema);
        if let Some(why) = &fit.unchecked {
            (self.log)(Level::Warn, &format!("step {} ({}): {why}; it is sent as it is", step.id, step.operation));
        }
        if !fit.faults.is_empty() {
            let faults: Vec<String> = fit.faults.iter().map(|fault| format!("{fault}{}", known_names(fault))).collect();
            return Err(EarlyEnd::new(
                Verdict::Error,
                Cause::Eval,
                format!("the arguments do not fit the operation's schema: {}", faults.join("; ")),
            ));
        }
        let call = Call {
            operation: &step.operation,
            args: fit.json,
            phase: step.phase,
            workdir: &self.context.workdir,
            env: &self.context.spec.config.env,
            timeout: Some(limit),
            agent: task.prompt.as_deref().map(|prompt| (prompt, output.unwrap_or_default())),
        };
        session.call(&call).await.map_err(|why| EarlyEnd {
            verdict: Verdict::Error,
            why,
            cause: Cause::Rig,
            lost: true,
        })
    }

    /// Notes what became of a step.
    fn record(
        &self,
        step: &Step,
        answer: Result<StepResult, EarlyEnd>,
        started: Instant,
        limit: Duration,
        steps: &mut Vec<StepRecord>,
    ) -> Result<(), EarlyEnd> {
        let (verdict, cause, message, outputs) = match answer {
            Ok(StepResult { failure: None, message, outputs, cause }) => {
                (Verdict::Passed, cause, message.unwrap_or_default(), outputs)
            }
            Ok(StepResult { failure: Some(why), cause: Cause::Board, outputs, .. }) => {
                (Verdict::Failed, Cause::Board, why, outputs)
            }
            Ok(StepResult { failure: Some(why), cause, outputs, .. }) => (Verdict::Error, cause, why, outputs),
            Err(EarlyEnd { verdict, why, cause, .. }) => (verdict, cause, why, Vec::new()),
        };
        let why = (verdict != Verdict::Passed).then(|| format!("step {} ({}): {message}", step.id, step.operation));
        let record = StepRecord {
            id: step.id.clone(),
            operation: step.operation.clone(),
            phase: step.phase,
            verdict,
            message,
            outputs,
            limit: (self.context.executor != Executor::Mock).then_some(limit),
            duration: started.elapsed(),
            attachments: Vec::new(),
        };
        steps.push(record);
        why.map_or(Ok(()), |why| Err(EarlyEnd::new(verdict, cause, why)))
    }
}

/// Parts of the eval that the target's protocol does not carry: what was asked for, and what steps are called without.
fn lacking(spec: &Spec, executor: Executor, lacks: impl Fn(Part) -> Option<&'static str>) -> (Vec<Fault>, Vec<Fault>) {
    let config = &spec.config;
    let has_phases = || spec.tasks.iter().flat_map(|task| &task.steps).any(|step| step.phase != Phase::default());
    let is_for_calls = executor != Executor::Command;
    let needs = [
        (Part::Config, config.settings.is_some(), true),
        // The agent's command has them, too.
        (Part::Env, !config.env.is_empty(), is_for_calls),
        (Part::Context, has_phases() || spec.tasks.iter().any(|task| task.prompt.is_some()), false),
        // The runner keeps those of its own accord, too.
        (Part::TimeLimit, spec.tasks.iter().flat_map(|task| &task.steps).any(|step| step.timeout.is_some()), false),
    ];
    let (mut faults, mut doubts) = (Vec::new(), Vec::new());
    for (part, _, is_asked_for) in needs.into_iter().filter(|(_, is_there, _)| *is_there) {
        let Some(protocol) = lacks(part) else { continue };
        let text = format!("the target is asked by {protocol}, which does not carry {}", part.name());
        let text = if is_asked_for { text } else { format!("{text}: operations are called without") };
        let file = spec.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let fault = Fault { text, path: spec.path.clone(), file, line: None };
        if is_asked_for { faults.push(fault) } else { doubts.push(fault) }
    }
    (faults, doubts)
}

/// The answer of a mock agent: the prompt, and the texts that the graders search.
fn made_up(task: &Task, prompt: &str) -> String {
    let mut text = format!("Mock response for: {prompt}");
    for grader in task.graders.iter().filter(|grader| grader.step.is_none() && grader.output.is_none()) {
        if let Condition::Contains { values, any, .. } = &grader.check {
            let enough = if *any { 1 } else { values.len() };
            for value in values.iter().take(enough) {
                text.push('\n');
                text.push_str(&literal(value));
            }
        }
    }
    text
}

/// The outputs of a mock step: those of the file, or those that the graders expect.
fn mocked(task: &Task, step: &Step) -> Vec<(String, String)> {
    let mut outputs = step.mock.clone();
    for grader in task.graders.iter().filter(|grader| grader.step.as_deref() == Some(&step.id)) {
        let Some(name) = grader.output.as_ref().filter(|name| outputs.iter().all(|(found, _)| found != *name)) else {
            continue;
        };
        let value = match &grader.check {
            // A bound is in the range.
            Condition::Range { min: Some(bound), .. } | Condition::Range { max: Some(bound), .. } => bound.clone(),
            Condition::Equals { text, .. } => text.clone(),
            Condition::Contains { values, any: true, .. } => values.first().cloned().unwrap_or_default(),
            Condition::Contains { values, .. } => values.join(" "),
            _ => continue,
        };
        outputs.push((name.clone(), literal(&value).into_owned()));
    }
    outputs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::yaml::Node;
    use super::*;

    #[test]
    fn outputs_are_filled_in_as_the_schema_has_it() {
        let steps = [StepRecord::done(
            "on",
            "ok",
            &[("ms", "250"), ("name", "3V3"), ("high", "true"), ("big", "123456789012345678901234567890")],
        )];
        let schema = json!({"properties": {
            "ms": {"type": "integer"}, "high": {"type": "boolean"}, "id": {"type": "string"}, "big": {"$ref": "#/$defs/whole"},
            "s": {"type": "string"}, "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "tilde": {"type": "string"},
        }, "$defs": {"whole": {"type": "integer"}}});
        let args = Node::parse(
            "ms: '{{steps.on.outputs.ms}}'\nhigh: '{{ steps.on.outputs.high }}'\nid: '{{steps.on.outputs.ms}}'\n\
             text: 'rail {{steps.on.outputs.name}}: {{steps.on.message}}'\nfree: '{{steps.on.outputs.ms}}'\nlist: [1, '{{steps.on.outputs.name}}']\n\
             big: '{{steps.on.outputs.big}}'\nmaybe: '{{steps.on.outputs.ms}}'\ns: 00123\ntilde: ~\n",
        )
        .unwrap();
        assert_eq!(
            fit(&args.draft(&steps).unwrap(), &Schema::from(&schema)).json,
            r#"{"ms":250,"high":true,"id":"250","text":"rail 3V3: ok","free":"250","list":[1,"3V3"],"big":123456789012345678901234567890,"maybe":250,"s":"00123","tilde":"~"}"#
        );
        let fault = |text: &str| Node::parse(text).unwrap().draft(&steps).unwrap_err();
        assert_eq!(fault("'{{steps.on.outputs.x}}'"), "step on has no output x; known outputs: ms, name, high, big");
        assert_eq!(fault("'{{steps.off.outputs.x}}'"), "step off did not run");
    }
}
