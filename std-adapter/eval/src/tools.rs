//! Evals as operations of a target. One operation lists the evals of a folder, and one runs an
//! eval. Agents see them as tools.
//!
//! # One target, one at a time
//! A target has one holder. An eval runs as long as its tool call. Calls that come in meanwhile
//! wait until it has ended, and are answered in their order. During the run the relay releases the
//! target, and the run has a session of its own, as with `rigline eval run`. So the run finds the
//! hardware as the end of a session leaves it.
//!
//! # How a run ends early
//! A run is cancelled when its caller cancels the call, when the input ends, and by a signal. The
//! current operation is then stopped, and the cleanup steps run. Until they have ended, no other
//! call begins and the process does not end. That takes at most [`CLEANUP`].

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rigline::Effects;
use rigline::json::{Json, JsonKind};
use rigline::protocol::waza::{self, RunState, Verdict};
use rigline::{
    Call, Config, Context, Event, Extension, Failure, FailureKind, Level, Manifest, Operation, Outcome, Schema,
};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::list::list;
use super::model::Statistic;
use super::run::{self, OnEvent, TaskRecord};
use super::runs::{Accepted, Request, Runs, StartError};
use super::session::{Connect, EvalSession, Hosts, OnLog, Pending, SessionError};
use super::store::Store;
use super::verdict::Class;
use super::{Root, Spec, TRIAL_LIMIT, class};
use rigline_host::JsonObject;
use rigline_host::coerce::Schemas;
use rigline_host::relay::Relay;
use rigline_std::clock::to_millis;

/// The name of the tool that lists evals.
pub const LIST: &str = "list_evals";
/// The name of the tool that runs an eval.
pub const RUN: &str = "run_eval";
/// The longest time that the cleanup steps of a cancelled run may take before the process ends.
pub const CLEANUP: Duration = Duration::from_secs(30);

/// How many logs and reports of progress wait for the handler.
const QUEUE: usize = 1024;
/// The most tasks that a result names, and the longest text about one of them, in bytes.
const TASKS: usize = 1000;
const TEXT: usize = 1000;

const ENDING: Failure = Failure::new(FailureKind::Unreachable, "the server is about to end");

const LIST_OUTPUTS: &str = r#"{"type":"object","properties":{"evals":{"type":"array","description":"The evals, by path","items":{"type":"object","properties":{"id":{"type":"string","description":"What run_eval takes: the eval's path below the folder"},"name":{"type":"string"},"skill":{"type":["string","null"]},"version":{"type":["string","null"]}},"required":["id","name"]}},"errors":{"type":"array","description":"What could not be read","items":{"type":"string"}}},"required":["evals","errors"]}"#;

const RUN_OUTPUTS: &str = r#"{"type":"object","properties":{"eval":{"type":"string"},"runId":{"type":"string","description":"The name of the run's record"},"status":{"enum":["completed","failed","cancelled"]},"verdict":{"enum":["pass","fail","rig_error","cancelled"],"description":"rig_error: the rig could not do its part, and nothing is known of the board under test"},"error":{"type":["string","null"],"description":"Why the run did not complete"},"summary":{"type":"object","properties":{"total":{"type":"integer"},"passed":{"type":"integer"},"failed":{"type":"integer"},"skipped":{"type":"integer"}},"required":["total","passed","failed","skipped"]},"score":{"type":["number","null"]},"metrics":{"type":"array","items":{"type":"object"}},"rig":{"type":["object","null"]},"warnings":{"type":"array","items":{"type":"string"}},"durationMs":{"type":"integer"},"tasks":{"type":"array","description":"The tasks that were done","items":{"type":"object","properties":{"id":{"type":"string"},"name":{"type":"string"},"verdict":{"enum":["pass","fail","rig_error","flaky","skipped","cancelled"]},"error":{"type":["string","null"]},"trials":{"type":"integer"},"trialsPassed":{"type":"integer"},"measurements":{"type":"array","items":{"type":"object"}},"durationMs":{"type":"integer"}},"required":["id","name","verdict","trials","trialsPassed"]}},"tasksLeftOut":{"type":"integer","description":"How many tasks are not named in tasks, since there are too many; those that passed are left out first"}},"required":["eval","runId","status","verdict","summary","tasks"]}"#;

/// The settings of the tools: the evals that they offer, and the store of their runs.
#[derive(Debug)]
pub struct Settings {
    /// The root folder. The tools list and run only evals below it.
    pub root: Root,
    /// The folder for the records of runs.
    pub store: Store,
    /// The target of all steps, whatever the eval files say.
    pub target: String,
    /// The connector that opens sessions with the target.
    pub hosts: Hosts,
    /// The configuration of the extension, for evals that have none of their own.
    pub config: Option<JsonObject>,
    /// Whether the input of the process has ended. The running eval is then cancelled.
    pub ended: watch::Receiver<bool>,
}

/// An extension that has the operations of a target, and in addition the two tools for evals. The
/// [module](self) describes it.
pub struct Evals {
    relay: Relay,
    /// The manifest that was made of each one that the relay had, by the address of the latter: a board may come and go.
    manifests: Mutex<BTreeMap<usize, &'static Manifest>>,
    schemas: Schemas,
    runs: Runs,
    root: Root,
    ended: watch::Receiver<bool>,
    /// None while this is dropped.
    runtime: Option<Runtime>,
}

/// The reason why the tools for evals cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalsError {
    /// The target already has an operation with the name of a tool.
    #[error(
        "{extension} has the operation `{operation}`, whose tool would have the same name as the tool for evals; run without --evals"
    )]
    Clash {
        /// The name of the target's extension.
        extension: &'static str,
        /// The name of the operation.
        operation: &'static str,
    },
    /// The threads for the runs cannot be started.
    #[error("no async runtime can be started: {0}")]
    Start(#[from] io::Error),
}

/// A manifest with the tools for evals, which take the place of others of their names.
fn with_tools(inner: &'static Manifest) -> &'static Manifest {
    let is_other = |operation: &&Operation| ![LIST, RUN].iter().any(|name| operation.identifier().eq(name.bytes()));
    let operations: Vec<Operation> = inner.operations.iter().filter(is_other).copied().chain(tools()).collect();
    Box::leak(Box::new(inner.operations(Vec::leak(operations))))
}

impl Evals {
    /// Adds the tools to the operations of a relay.
    ///
    /// # Errors
    /// The target already has an operation with the name of a tool, or threads cannot be started.
    pub fn new(relay: Relay, settings: Settings) -> Result<Self, EvalsError> {
        let Settings { root, store, target, hosts, config, ended } = settings;
        let inner = relay.manifest();
        let is_ours = |operation: &&Operation| [LIST, RUN].iter().any(|name| operation.identifier().eq(name.bytes()));
        if let Some(operation) = inner.operations.iter().find(is_ours) {
            return Err(EvalsError::Clash { extension: inner.name, operation: operation.name });
        }
        let tools = tools();
        let schemas: Vec<(&str, String)> = tools.iter().map(|tool| (tool.name, tool.params.to_string())).collect();
        let schemas = Schemas::new(schemas.iter().map(|(name, schema)| (*name, schema.as_str())));
        let manifests = Mutex::new(BTreeMap::from([(std::ptr::from_ref(inner).addr(), with_tools(inner))]));
        let runs = Runs::with_connect(store, Some(target), Arc::new(Configured { hosts, config }));
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name("rigline-evals").enable_all().build()?;
        Ok(Self { relay, manifests, schemas, runs, root, ended, runtime: Some(runtime) })
    }

    /// Returns the relay that reaches the target.
    pub fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Waits until the cleanup steps of a cancelled run are done.
    async fn settle(&self) {
        let _ = timeout(CLEANUP, self.runs.idle()).await;
    }

    /// Does what reads files, beside the handler.
    async fn blocking<T: Send + 'static>(&self, read: impl FnOnce(&Root) -> T + Send + 'static) -> Result<T, Failure> {
        let root = self.root.clone();
        let runtime = self.runtime.as_ref().ok_or(ENDING)?;
        runtime.spawn_blocking(move || root.confine(|| read(&root))).await.or(Err(ENDING))
    }

    async fn list(&self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let found = self.blocking(found).await?;
        let evals: Vec<Value> = found
            .evals
            .iter()
            .map(|eval| json!({ "id": eval.id, "name": eval.name, "skill": eval.skill, "version": eval.version }))
            .collect();
        let count = evals.len();
        cx.output("evals", &evals)?;
        cx.output("errors", &found.errors)?;
        cx.done(format_args!("{count} {}", if count == 1 { "eval" } else { "evals" }))
    }

    async fn run(&self, args: Arguments, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let id = args.id.clone();
        let path = match self.blocking(move |root| path_of(root, &id)).await? {
            Ok(path) => path,
            Err(text) => return Err(cx.failure(FailureKind::BadArguments, text.as_str())),
        };
        let runs = self.runs.clone();
        let mut request = Request { path, filter: args.filter, trials: args.trials, ..Request::default() };
        request.overrides.set = args.set;
        let accepted = match self.blocking(move |_| runs.accept(&request)).await? {
            Ok(accepted) => accepted,
            Err(error) => return Err(cx.failure(kind_of(&error), error.to_string().as_str())),
        };
        let (run, spec) = (accepted.id().to_owned(), accepted.spec().clone());
        // Dropped with this call, it cancels the run.
        let _cancel = Cancel { runs: &self.runs, run: &run };
        self.relay.release().await;
        let outcome = self.watch(accepted, &run, &spec, cx).await?;
        let class = class(&outcome);
        for (name, value) in result(&spec, &run, &outcome, class) {
            cx.output(&name, &value)?;
        }
        let waza::Summary { total, passed, .. } = outcome.summary;
        let why = outcome.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        let text = format!("{}: {}, {passed} of {total} tasks passed{why}", spec.name, class.label());
        match class {
            // Whatever it says of the board: it was judged.
            Class::RigError | Class::Cancelled => cx.failed(text.as_str()),
            _ if outcome.state == RunState::Failed => cx.failed(text.as_str()),
            _ => cx.done(text.as_str()),
        }
    }

    /// Starts a run, and reports its progress until it has ended.
    async fn watch(
        &self,
        accepted: Accepted,
        run: &str,
        spec: &Arc<Spec>,
        cx: &mut Context<'_>,
    ) -> Result<Arc<run::RunOutcome>, Failure> {
        let runtime = self.runtime.as_ref().ok_or(ENDING)?;
        let (tell, mut told) = mpsc::channel(QUEUE);
        let (done, mut outcome) = oneshot::channel();
        let on_event = reporter(spec.clone(), tell);
        accepted.launch(runtime.handle(), on_event, move |outcome| drop(done.send(outcome)));
        let total = u32::try_from(spec.tasks.len()).unwrap_or(u32::MAX).saturating_mul(spec.config.trials_per_task);
        let mut said = |said: Said| match said {
            Said::Log(level, text) => cx.log(level, text.as_str()),
            Said::Progress(done, text) => cx.progress(done, Some(total), text.as_str()),
        };
        let mut ended = self.ended.clone();
        let mut is_cancelled = false;
        let outcome = loop {
            tokio::select! {
                biased;
                Some(one) = told.recv() => said(one),
                outcome = &mut outcome => break outcome,
                Ok(_) = ended.wait_for(|ended| *ended), if !is_cancelled => {
                    is_cancelled = true;
                    let _ = self.runs.cancel(run);
                }
            }
        };
        while let Ok(one) = told.try_recv() {
            said(one);
        }
        match outcome {
            Ok(outcome) => Ok(outcome),
            Err(_) => Err(cx.failure(FailureKind::Internal, "the run ended without a result")),
        }
    }

    /// The arguments of [`RUN`], checked against its schema.
    fn arguments(&self, call: &Call<'_>, cx: &mut Context<'_>) -> Result<Arguments, Failure> {
        let args = call.args_json();
        if let Some(refusal) = self.schemas.refusal(call.operation(), args.as_str()) {
            return Err(cx.failure(FailureKind::BadArguments, refusal.as_str()));
        }
        let text = |name: &str| args.get(name).and_then(|value| value.text()).map(|text| text.to_string());
        let members = args.get("set").into_iter().flat_map(|set| set.members());
        Ok(Arguments {
            id: text("id").unwrap_or_default(),
            filter: text("filter").filter(|filter| !filter.is_empty()),
            // The schema has whole numbers only, however they are written.
            trials: args.get("trials").and_then(|trials| whole(trials.as_str())),
            set: members.map(|(name, value)| (name.to_string(), setting(value))).collect(),
        })
    }
}

/// The tools.
fn tools() -> [Operation; 2] {
    let params = format!(
        r#"{{"type":"object","properties":{{"id":{{"type":"string","description":"The eval, as list_evals gives it; or its name, if only one has it"}},"trials":{{"type":"integer","minimum":1,"maximum":{TRIAL_LIMIT},"description":"How many trials each task has, whatever the eval says"}},"set":{{"type":"object","description":"Values for the eval's inputs, and for names of matrix and for","additionalProperties":{{"type":["string","number","boolean"]}}}},"filter":{{"type":"string","description":"Only tasks with this in their id, name or tags"}}}},"required":["id"],"additionalProperties":false}}"#
    );
    [
        Operation::new(LIST, Schema::text(r#"{"type":"object","properties":{},"additionalProperties":false}"#))
            .description("List the evals that can be run on this target: sequences of steps with limits, which pass or fail")
            .outputs(Schema::text(LIST_OUTPUTS))
            .effects(Effects::READ_ONLY),
        Operation::new(RUN, Schema::text(Box::leak(params.into_boxed_str())))
            .description(
                "Run an eval on this target, and judge it. It does what its steps say, and may take minutes; other calls wait until it has ended",
            )
            .outputs(Schema::text(RUN_OUTPUTS))
            .effects(Effects::changes(true, false)),
    ]
}

#[derive(Debug)]
struct Arguments {
    id: String,
    filter: Option<String>,
    trials: Option<u32>,
    set: Vec<(String, String)>,
}

fn whole(text: &str) -> Option<u32> {
    text.parse().ok().or_else(|| rigline_host::number::whole(text)?.parse().ok())
}

/// A value in the form of `--set NAME=VALUE`: a text as it is, other values as JSON.
fn setting(value: Json<'_>) -> String {
    match value.text() {
        Some(text) if value.kind() == JsonKind::String => text.to_string(),
        _ => value.as_str().to_owned(),
    }
}

struct Found {
    evals: Vec<FoundEval>,
    errors: Vec<String>,
}

struct FoundEval {
    id: String,
    path: PathBuf,
    name: String,
    skill: Option<String>,
    version: Option<String>,
}

fn found(root: &Root) -> Found {
    let folder = root.folder();
    let listing = list(folder);
    let below = |path: &Path| path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
    let evals = listing.evals.into_iter().map(|eval| FoundEval {
        id: below(&eval.path),
        path: eval.path,
        name: eval.name,
        skill: eval.skill,
        version: eval.version,
    });
    Found { evals: evals.collect(), errors: listing.errors }
}

/// The file of the eval that a client means.
fn path_of(root: &Root, id: &str) -> Result<PathBuf, String> {
    let found = found(root).evals;
    if let Some(eval) = found.iter().find(|eval| eval.id == id) {
        return Ok(eval.path.clone());
    }
    let named: Vec<&FoundEval> = found.iter().filter(|eval| eval.name == id).collect();
    match named.as_slice() {
        [eval] => Ok(eval.path.clone()),
        [] => {
            let known: Vec<&str> = found.iter().map(|eval| eval.id.as_str()).take(20).collect();
            Err(match known.as_slice() {
                [] => format!("id: there is no eval `{id}`; there are no evals in the folder"),
                known => format!("id: there is no eval `{id}`; expected one of: {}", known.join(", ")),
            })
        }
        named => {
            let ids: Vec<&str> = named.iter().map(|eval| eval.id.as_str()).collect();
            Err(format!("id: {} evals have the name `{id}`: {}", named.len(), ids.join(", ")))
        }
    }
}

/// The caller's error for a run that cannot start.
fn kind_of(error: &StartError) -> FailureKind {
    match error {
        StartError::NotFound(_) | StartError::NoTask(_) => FailureKind::BadArguments,
        StartError::Store(_) => FailureKind::Unreachable,
        _ => FailureKind::Failed,
    }
}

/// The data that the handler passes on.
enum Said {
    Log(Level, String),
    /// The number of trials that have ended, and the result of the last one.
    Progress(u32, String),
}

/// Gets what happens in a run, and passes it on as far as there is room: it must not wait.
fn reporter(spec: Arc<Spec>, tell: mpsc::Sender<Said>) -> OnEvent {
    let count = std::sync::atomic::AtomicU32::new(0);
    Arc::new(move |event| {
        let said = match event {
            run::Event::Log { level, message } => Said::Log(level, message),
            run::Event::Progress(progress) => {
                let task = progress.task.and_then(|task| spec.tasks.get(task)).map_or("", |task| task.id.as_str());
                let verdict = progress.verdict.map_or("", Verdict::as_str);
                match (progress.event, progress.trial) {
                    (waza::Event::TrialComplete, Some(trial)) => {
                        let done = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                        let trials = spec.config.trials_per_task;
                        Said::Progress(done, format!("{task}: trial {trial} of {trials} {verdict}"))
                    }
                    (waza::Event::TaskComplete, _) => Said::Log(Level::Info, format!("{task}: {verdict}")),
                    _ => return,
                }
            }
            _ => return,
        };
        let _ = tell.try_send(said);
    })
}

/// The result of a run, as the members of [`RUN_OUTPUTS`].
fn result(spec: &Spec, run: &str, outcome: &run::RunOutcome, class: Class) -> Map<String, Value> {
    let waza::Summary { total, passed, failed } = outcome.summary;
    // Where there are too many tasks, those that passed are left out first.
    let mut tasks: Vec<&TaskRecord> = outcome.tasks.iter().collect();
    tasks.sort_by_key(|task| task.has_passed());
    let left_out = tasks.len().saturating_sub(TASKS);
    tasks.truncate(TASKS);
    tasks.sort_by_key(|task| task.task);
    let tasks: Vec<Value> = tasks.into_iter().map(|record| task(spec, record)).collect();
    let rig = outcome.rig.as_ref().map(|rig| {
        json!({ "name": rig.name, "version": rig.version, "target": rig.target, "serialNumber": rig.serial_number })
    });
    let mut result = Map::new();
    let members = [
        ("eval", json!(spec.name)),
        ("runId", json!(run)),
        ("status", json!(outcome.state.as_str())),
        ("verdict", json!(class.name())),
        ("error", json!(outcome.error.as_deref().map(cut))),
        ("summary", json!({ "total": total, "passed": passed, "failed": failed, "skipped": outcome.skipped })),
        ("score", json!(outcome.score)),
        ("metrics", json!(outcome.metrics)),
        ("rig", json!(rig)),
        ("warnings", spec.warnings.iter().map(|warning| cut(&warning.to_string()).to_owned()).collect()),
        ("durationMs", json!(to_millis(outcome.duration))),
        ("tasks", json!(tasks)),
    ];
    result.extend(members.map(|(name, value)| (name.to_owned(), value)));
    if left_out > 0 {
        result.insert("tasksLeftOut".to_owned(), json!(left_out));
    }
    result
}

fn task(spec: &Spec, record: &TaskRecord) -> Value {
    let task = spec.tasks.get(record.task);
    let measurements: Vec<Value> = record.measurements().iter().map(|it| json!(Statistic::of(it))).collect();
    json!({
        "id": task.map_or("", |task| &task.id),
        "name": task.map_or("", |task| &task.name),
        "verdict": record.class().name(),
        "error": record.why().map(cut),
        "trials": record.trials.len(),
        "trialsPassed": record.trials.iter().filter(|trial| trial.verdict == Verdict::Passed).count(),
        "measurements": measurements,
        "durationMs": to_millis(record.duration),
    })
}

fn cut(text: &str) -> &str {
    (0..=TEXT.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Cancels a run when it is dropped; one that has ended stays as it is.
struct Cancel<'r> {
    runs: &'r Runs,
    run: &'r str,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        let _ = self.runs.cancel(self.run);
    }
}

/// Sessions with the extension's settings.
struct Configured {
    hosts: Hosts,
    config: Option<JsonObject>,
}

impl Connect for Configured {
    fn connect<'a>(
        &'a self,
        target: &'a str,
        folder: Option<&'a Path>,
        settings: Option<JsonObject>,
        log: OnLog,
    ) -> Pending<'a, Result<Box<dyn EvalSession>, SessionError>> {
        self.hosts.connect(target, folder, settings.or_else(|| self.config.clone()), log)
    }
}

impl fmt::Debug for Evals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evals").field("relay", &self.relay).field("root", &self.root).finish_non_exhaustive()
    }
}

impl Drop for Evals {
    fn drop(&mut self) {
        self.runs.cancel_all();
        let Some(runtime) = self.runtime.take() else { return };
        let (runs, (done, told)) = (self.runs.clone(), std::sync::mpsc::channel());
        runtime.spawn(async move {
            runs.idle().await;
            let _ = done.send(());
        });
        let _ = told.recv_timeout(CLEANUP);
        runtime.shutdown_background();
    }
}

impl Extension for Evals {
    fn manifest(&self) -> &'static Manifest {
        let inner = self.relay.manifest();
        let mut manifests = self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
        manifests.entry(std::ptr::from_ref(inner).addr()).or_insert_with(|| with_tools(inner))
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.settle().await;
        match call.operation() {
            LIST => self.list(cx).await,
            RUN => {
                let args = self.arguments(&call, cx)?;
                self.run(args, cx).await
            }
            _ => self.relay.call(call, cx).await,
        }
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        self.relay.configure(config, cx).await
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        self.relay.on_event(event, cx).await;
    }

    async fn safe_state(&mut self) {
        // The hardware is safe when the cleanup steps are done.
        self.settle().await;
        self.relay.safe_state().await;
    }
}
