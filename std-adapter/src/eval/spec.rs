//! Eval and task files: what they say, and everything that is wrong with them.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use rigline::{GoDuration, Phase};
use serde_json::Value;

use super::grade::{Check, Grader};
use super::node::{Kind, Node};
use crate::target::Target;

/// The largest eval or task file that is read, in bytes.
pub const FILE_LIMIT: u64 = 4 << 20;
/// The most values of a file, those that aliases stand for counted too.
pub const VALUE_LIMIT: usize = 100_000;
/// How deep lists and maps may be nested in a file. Reading them takes up to 32 KiB of stack a level, of a thread's 2 MiB.
pub const DEPTH_LIMIT: usize = 32;
/// The most tasks of an eval.
pub const TASK_LIMIT: usize = 10_000;
/// The most trials of a task.
pub const TRIAL_LIMIT: u32 = 1000;
/// The most workers of a run.
pub const WORKER_LIMIT: usize = 64;
/// The longest time that anything in a file may set: a thousand days.
pub const TIME_LIMIT: Duration = Duration::from_secs(86_400_000);
/// A trial's time where the file sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// What runs a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// Nothing: steps and agent are made up, always in the same way. For trying out.
    Mock,
    /// A program, which gets the prompt on its standard input.
    Command,
    /// Operations of a rigline target.
    Extension,
}

impl Executor {
    /// The executors that can run here.
    pub const AVAILABLE: [&str; 3] = ["mock", "command", "extension"];
    /// Executors of other eval runners: names that are right, of what is not here.
    pub const ELSEWHERE: [&str; 3] = ["copilot-sdk", "copilot-cli", "claude-code"];

    /// The executor of that name, if it can run here.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mock" => Some(Self::Mock),
            "command" => Some(Self::Command),
            "extension" => Some(Self::Extension),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mock => "mock",
            Self::Command => "command",
            Self::Extension => "extension",
        }
    }

    /// Whether there is an executor of that name, here or elsewhere.
    pub fn is_known(name: &str) -> bool {
        Self::named(name).is_some() || Self::ELSEWHERE.contains(&name)
    }

    /// All names.
    pub fn known() -> impl Iterator<Item = &'static str> {
        Self::AVAILABLE.into_iter().chain(Self::ELSEWHERE)
    }
}

/// An eval with its tasks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Spec {
    /// Its file.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The skill it is about.
    pub skill: Option<String>,
    /// Its version, as it was written.
    pub version: Option<String>,
    /// How it is run.
    pub config: Config,
    /// When it passes.
    pub metrics: Metrics,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// `config`, `metrics` and all members that are not known here, as JSON text, in their order.
    pub(super) members: Vec<(String, String)>,
}

/// How an eval is run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The executor's name, here or elsewhere; what the file needs, if it does not say.
    pub executor: String,
    /// The model, for executors that have one.
    pub model: Option<String>,
    /// The rigline target that steps call.
    pub target: Option<String>,
    /// How often each task is tried.
    pub trials_per_task: u32,
    /// The most time a trial may take, its cleanup apart.
    pub timeout: Duration,
    /// How many tasks may run at a time.
    pub workers: usize,
    /// The program of the executor `command`, and its arguments.
    pub command: Vec<String>,
    /// Environment variables of the command, and of calls.
    pub env: BTreeMap<String, String>,
    /// What the target is configured with: gevals `config`.
    pub settings: Option<Value>,
}

/// When an eval passes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Metrics {
    /// The least share of tasks that must pass, 0 to 1.
    pub pass_threshold: f64,
    /// Metrics of their own, each held against its threshold.
    pub list: Vec<Metric>,
}

/// A metric: the share of passed graders among those that count for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Metric {
    /// Its name. Graders with this as their `metric`, name or type count; all of them, if there are none.
    pub name: String,
    /// Its weight in the mean.
    pub weight: f64,
    /// The least share that must pass, 0 to 1.
    pub threshold: f64,
    /// What it is about.
    pub description: Option<String>,
}

/// A task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// Its id, unique in its eval.
    pub id: String,
    /// Its name; the id, if it has none.
    pub name: String,
    /// What it is about.
    pub description: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// What is asked of an agent.
    pub prompt: Option<String>,
    /// Its file, from the eval's folder.
    pub file: String,
    /// The most time a trial may take, in place of the eval's.
    pub timeout: Option<Duration>,
    /// Its steps, by phase and then in their order.
    pub steps: Vec<Step>,
    /// How it is judged: its own graders, what it expects, and the eval's graders.
    pub graders: Vec<Grader>,
    /// What the executor `mock` makes up.
    pub mock: Mock,
    /// `graders` as JSON text.
    pub(super) graders_json: String,
    /// Members that are not known here, as JSON text.
    pub(super) members: Vec<(String, String)>,
}

/// What the executor `mock` makes up instead of what it makes up itself.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Mock {
    /// What the agent says.
    pub output: Option<String>,
    /// How long a trial takes.
    pub delay: Duration,
    /// Whether the trial fails.
    pub fail: bool,
}

/// A call of an operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step {
    /// Its id, unique in its task.
    pub id: String,
    /// When it is run. Steps of [`Phase::Cleanup`] always are.
    pub phase: Phase,
    /// The operation.
    pub operation: String,
    /// Its arguments, with placeholders.
    pub args: Value,
    /// The most time it may take.
    pub timeout: Option<Duration>,
    /// The outputs that the executor `mock` makes up.
    pub mock: Vec<(String, String)>,
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// What.
    pub text: String,
    /// In which file.
    pub path: PathBuf,
    /// The file's name from the eval's folder.
    pub file: String,
    /// In which line, from 1, if that is known.
    pub line: Option<u32>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} ({}:{line})", self.text, self.file),
            None => write!(f, "{} ({})", self.text, self.file),
        }
    }
}

/// Why there is nothing to look at.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such file.
    #[error("Eval not found: {}", .0.display())]
    NotFound(PathBuf),
    /// It is no YAML, or no map, or cannot be read.
    #[error("{0}")]
    Unreadable(Fault),
}

/// What a run says in place of the file.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Overrides {
    /// The executor.
    pub executor: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The target.
    pub target: Option<String>,
}

/// Reads an eval with its tasks, as far as that goes, and gives everything that is wrong with it. A folder stands for the
/// `eval.yaml` in it.
///
/// # Errors
/// There is no such file, or it is no YAML, or no map.
pub fn load(path: &Path, overrides: &Overrides) -> Result<(Spec, Vec<Fault>), LoadError> {
    let path = if path.is_dir() { in_folder(path) } else { path.to_owned() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let source = match read(&path) {
        Ok(source) => source,
        Err(error) if is_absent(&error) => return Err(LoadError::NotFound(path)),
        Err(error) => {
            return Err(LoadError::Unreadable(Fault {
                text: format!("Cannot be read: {error}"),
                path,
                file,
                line: None,
            }));
        }
    };
    let node = match Node::parse(&source) {
        Ok(node) => node,
        Err(error) => {
            let text = format!("Not valid YAML: {}", error.text);
            return Err(LoadError::Unreadable(Fault { text, path, file, line: error.line }));
        }
    };
    if !matches!(node.kind, Kind::Map(_)) {
        let text = format!("An eval is a map, found {}", node.what());
        return Err(LoadError::Unreadable(Fault { text, path, file, line: Some(node.line) }));
    }
    let mut faults = Vec::new();
    let mut reader = Reader { source: &source, path: &path, file: &file, faults: &mut faults };
    let spec = eval(&mut reader, &node, &folder, overrides);
    Ok((spec, faults))
}

/// Where placeholders stand, `{{steps.ID.outputs.KEY}}` and `{{steps.ID.message}}`.
pub(super) static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*steps\.([A-Za-z0-9_-]+)\.(?:outputs\.([^\s{}]+)|(message))\s*\}\}").expect("a constant pattern")
});
/// What begins as one.
static ALMOST: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{\{\s*steps\b[^{}]*\}*").expect("a constant pattern"));

pub(super) fn in_folder(folder: &Path) -> PathBuf {
    let (usual, other) = (folder.join("eval.yaml"), folder.join("eval.yml"));
    if !usual.is_file() && other.is_file() { other } else { usual }
}

/// Whether an error says that there is no file of that name: a part of it may be a file, or longer than names can be.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    // `InvalidInput` is of a name with a NUL in it.
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename | InvalidInput)
}

/// Reads a regular file of a bounded size. Others could keep a reader waiting for ever.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let file = super::root::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let too_large = || io::Error::other(format!("over {FILE_LIMIT} bytes"));
    if about.len() > FILE_LIMIT {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or_default().saturating_add(1));
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

/// Reads one document, and notes what is wrong with it.
struct Reader<'r> {
    source: &'r str,
    path: &'r Path,
    file: &'r str,
    faults: &'r mut Vec<Fault>,
}

impl Reader<'_> {
    fn fault(&mut self, at: &Node, text: impl Into<String>) {
        self.fault_in(Some(at.line), text);
    }

    fn fault_in(&mut self, line: Option<u32>, text: impl Into<String>) {
        self.faults.push(Fault { text: text.into(), path: self.path.to_owned(), file: self.file.to_owned(), line });
    }

    fn text(&mut self, node: &Node, name: &str) -> Option<String> {
        let member = node.get(name)?;
        let text = member.text(self.source);
        if text.is_none() {
            self.fault(member, format!("{name}: expected a string, found {}", member.what()));
        }
        text
    }

    fn required(&mut self, node: &Node, name: &str) -> Option<String> {
        if node.get(name).is_none() {
            self.fault(node, format!("Missing required field: {name}"));
            return None;
        }
        let text = self.text(node, name)?;
        if text.trim().is_empty() {
            self.fault(node.get(name).unwrap_or(node), format!("{name}: must not be empty"));
        }
        Some(text)
    }

    /// A text, or a list of texts.
    fn texts(&mut self, name: &str, member: &Node) -> Vec<String> {
        let elements = match member.kind {
            Kind::List(ref elements) => elements.as_slice(),
            _ => std::slice::from_ref(member),
        };
        let mut texts = Vec::new();
        for element in elements {
            match element.text(self.source) {
                Some(text) => texts.push(text),
                None => self.fault(element, format!("{name}: expected a string, found {}", element.what())),
            }
        }
        texts
    }

    fn number(&mut self, node: &Node, name: &str, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
        let member = node.get(name)?;
        match member.number() {
            Some(number) if range.contains(&number) => Some(number),
            Some(number) => {
                let (least, most) = range.into_inner();
                self.fault(member, format!("{name}: must be from {least} to {most}, is {number}"));
                None
            }
            None => {
                self.fault(member, format!("{name}: expected a number, found {}", member.what()));
                None
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range, and whole")]
    fn whole(&mut self, node: &Node, name: &str, most: u32) -> Option<u32> {
        let number = self.number(node, name, 1.0..=f64::from(most))?;
        if number.fract() != 0.0 {
            self.fault(node.get(name).unwrap_or(node), format!("{name}: expected a whole number, found {number}"));
            return None;
        }
        Some(number as u32)
    }

    fn seconds(&mut self, node: &Node, name: &str) -> Option<Duration> {
        self.number(node, name, 0.001..=TIME_LIMIT.as_secs_f64()).map(Duration::from_secs_f64)
    }

    /// `2s`, `1m30s`, or a number of seconds.
    fn duration(&mut self, name: &str, member: &Node) -> Option<Duration> {
        let duration = match &member.kind {
            Kind::Number(number) => number.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            Kind::Text(text) => {
                let nanos = GoDuration::parse(text.trim()).ok().map(GoDuration::as_nanos);
                nanos.and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
            }
            _ => None,
        };
        match duration.filter(|duration| !duration.is_zero()) {
            Some(duration) if duration <= TIME_LIMIT => Some(duration),
            Some(_) => {
                self.fault(member, format!("{name}: must be at most {} hours", TIME_LIMIT.as_secs() / 3600));
                None
            }
            None => {
                self.fault(member, format!("{name}: expected a duration such as 2s, 1m30s or 500ms"));
                None
            }
        }
    }

    fn flag(&mut self, name: &str, member: Option<&Node>) -> Option<bool> {
        let member = member?;
        let flag = member.bool();
        if flag.is_none() {
            self.fault(member, format!("{name}: expected true or false, found {}", member.what()));
        }
        flag
    }

    fn map<'n>(&mut self, node: &'n Node, name: &str) -> Option<&'n Node> {
        let member = node.get(name)?;
        if matches!(member.kind, Kind::Map(_)) {
            return Some(member);
        }
        self.fault(member, format!("{name}: expected a map, found {}", member.what()));
        None
    }

    fn list<'n>(&mut self, node: &'n Node, name: &str) -> &'n [Node] {
        let Some(member) = node.get(name) else { return &[] };
        if !matches!(member.kind, Kind::List(_)) {
            self.fault(member, format!("{name}: expected a list, found {}", member.what()));
        }
        member.elements()
    }

    fn env(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for (name, value) in self.map(node, "env").map(Node::members).unwrap_or_default() {
            match value.text(self.source) {
                Some(text) => drop(env.insert(name.clone(), text)),
                None => self.fault(value, format!("env.{name}: expected a string, found {}", value.what())),
            }
        }
        env
    }
}

const EVAL_MEMBERS: &[&str] = &["name", "description", "skill", "version", "tasks"];
const TASK_MEMBERS: &[&str] = &["id", "name", "description", "prompt", "graders"];

fn eval(reader: &mut Reader<'_>, node: &Node, folder: &Path, overrides: &Overrides) -> Spec {
    let name = reader.required(node, "name").unwrap_or_default();
    let description = reader.text(node, "description");
    let skill = reader.text(node, "skill");
    let version = reader.text(node, "version");
    let mut config = config(reader, node, overrides);
    let metrics = metrics(reader, node);
    let common = graders(reader, node, "graders");
    let mut tasks = tasks(reader, node, folder);
    let has_steps = tasks.iter().any(|task| !task.steps.is_empty());
    if config.executor.is_empty() {
        config.executor = match () {
            () if has_steps || config.target.is_some() => "extension",
            () if !config.command.is_empty() => "command",
            () => "mock",
        }
        .into();
    }
    let at = node.get("config").unwrap_or(node);
    match Executor::named(&config.executor) {
        Some(Executor::Extension) => {
            if config.target.is_none() {
                reader
                    .fault(at, "Missing required field: config.target (the executor extension needs one, such as sim)");
            }
            for task in tasks.iter().filter(|task| task.steps.is_empty()) {
                let text = format!("Task {} has no steps, which the executor extension needs", task.id);
                reader.faults.push(Fault { text, path: folder.join(&task.file), file: task.file.clone(), line: None });
            }
        }
        Some(Executor::Command) => {
            if config.command.is_empty() {
                reader.fault(at, "Missing required field: config.command (the executor command needs one)");
            }
            if has_steps && config.target.is_none() {
                reader.fault(at, "Missing required field: config.target (steps need one, such as sim)");
            }
        }
        _ => {}
    }
    for grader in &common {
        let lacks = |step: &str, task: &Task| task.steps.iter().all(|known| known.id != step);
        if let Some(step) = &grader.step
            && let Some(task) = tasks.iter().find(|task| lacks(step, task))
        {
            let text = format!("Grader {} looks at step {step}, which task {} does not have", grader.label(), task.id);
            reader.fault_in(Some(grader.line), text);
        }
    }
    for task in &mut tasks {
        task.graders.extend(common.iter().cloned());
    }
    let mut members = rest(node, EVAL_MEMBERS);
    let timeout = config.timeout.as_secs_f64();
    let effective = [
        ("executor", Value::from(config.executor.as_str())),
        ("trials_per_task", config.trials_per_task.into()),
        // A whole number as it is usually written.
        ("timeout_seconds", if timeout.fract() == 0.0 { config.timeout.as_secs().into() } else { timeout.into() }),
    ];
    with_defaults(&mut members, "config", node.get("config"), &effective);
    if node.get("metrics").is_none_or(|metrics| matches!(metrics.kind, Kind::Map(_))) {
        with_defaults(
            &mut members,
            "metrics",
            node.get("metrics"),
            &[("pass_threshold", metrics.pass_threshold.into())],
        );
    }
    Spec { path: reader.path.to_owned(), name, description, skill, version, config, metrics, tasks, members }
}

/// Says what counts where the file does not.
fn with_defaults(members: &mut Vec<(String, String)>, name: &str, node: Option<&Node>, defaults: &[(&str, Value)]) {
    let mut parts: Vec<String> = node
        .map(Node::members)
        .unwrap_or_default()
        .iter()
        .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.json()))
        .collect();
    for (name, value) in defaults {
        if node.is_none_or(|node| node.get(name).is_none()) {
            parts.push(format!("{}:{value}", Value::from(*name)));
        }
    }
    let text = format!("{{{}}}", parts.join(","));
    match members.iter_mut().find(|(found, _)| found == name) {
        Some((_, value)) => *value = text,
        None => members.push((name.to_owned(), text)),
    }
}

fn rest(node: &Node, known: &[&str]) -> Vec<(String, String)> {
    let members = node.members().iter().filter(|(name, _)| !known.contains(&name.as_str()));
    members.map(|(name, value)| (name.clone(), value.json())).collect()
}

fn config(reader: &mut Reader<'_>, eval: &Node, overrides: &Overrides) -> Config {
    let nothing = Node::default();
    let node = reader.map(eval, "config").unwrap_or(&nothing);
    let mut executor = reader.text(node, "executor").unwrap_or_default();
    match &overrides.executor {
        Some(name) => executor.clone_from(name),
        None if executor.is_empty() || Executor::is_known(&executor) => {}
        None => reader.fault(
            node.get("executor").unwrap_or(node),
            format!(
                "Invalid executor type: {executor} (there are {})",
                Executor::known().collect::<Vec<_>>().join(", ")
            ),
        ),
    }
    let target = overrides.target.clone().or_else(|| reader.text(node, "target"));
    if let Some(Err(error)) = target.as_deref().map(str::parse::<Target>) {
        reader.fault(node.get("target").unwrap_or(node), format!("Invalid target: {error}"));
    }
    let command = match node.get("command") {
        None => Vec::new(),
        Some(member) if matches!(member.kind, Kind::List(_)) => reader.texts("command", member),
        Some(member) => {
            let words = member.text(reader.source).and_then(|text| shell_words::split(&text).ok());
            if words.is_none() {
                reader.fault(member, "command: expected a program with its arguments, as a string or a list");
            }
            words.unwrap_or_default()
        }
    };
    let most = u32::try_from(WORKER_LIMIT).unwrap_or(u32::MAX);
    let workers = reader.whole(node, "workers", most).or_else(|| reader.whole(node, "max_workers", most)).unwrap_or(4);
    let workers = match node.get("parallel").map(|parallel| (parallel, parallel.bool())) {
        None | Some((_, Some(false))) => 1,
        Some((_, Some(true))) => workers,
        Some((parallel, None)) if parallel.number().is_some() => reader.whole(node, "parallel", most).unwrap_or(1),
        Some((parallel, None)) => {
            reader.fault(parallel, "parallel: expected true, false or a number of workers");
            1
        }
    };
    Config {
        executor,
        model: overrides.model.clone().or_else(|| reader.text(node, "model")),
        target,
        trials_per_task: reader.whole(node, "trials_per_task", TRIAL_LIMIT).unwrap_or(1),
        timeout: reader.seconds(node, "timeout_seconds").unwrap_or(DEFAULT_TIMEOUT),
        workers: usize::try_from(workers).unwrap_or(1),
        command,
        env: reader.env(node),
        settings: reader.map(node, "settings").map(Node::value),
    }
}

fn metrics(reader: &mut Reader<'_>, eval: &Node) -> Metrics {
    let mut metrics = Metrics { pass_threshold: 1.0, list: Vec::new() };
    let Some(node) = eval.get("metrics") else { return metrics };
    match &node.kind {
        Kind::Map(_) => {
            if let Some(threshold) = reader.number(node, "pass_threshold", 0.0..=1.0) {
                metrics.pass_threshold = threshold;
            }
        }
        Kind::List(elements) => {
            for element in elements {
                let Some(name) = reader.required(element, "name") else { continue };
                metrics.list.push(Metric {
                    name,
                    weight: reader.number(element, "weight", 0.0..=1e6).unwrap_or(1.0),
                    threshold: reader.number(element, "threshold", 0.0..=1.0).unwrap_or(1.0),
                    description: reader.text(element, "description"),
                });
            }
        }
        _ => reader.fault(node, format!("metrics: expected a map or a list, found {}", node.what())),
    }
    metrics
}

fn tasks(reader: &mut Reader<'_>, eval: &Node, folder: &Path) -> Vec<Task> {
    let Some(member) = eval.get("tasks") else {
        reader.fault(eval, "Missing required field: tasks");
        return Vec::new();
    };
    let listed = match &member.kind {
        Kind::Text(_) => std::slice::from_ref(member),
        _ => reader.list(eval, "tasks"),
    };
    if listed.is_empty() && matches!(member.kind, Kind::List(_)) {
        reader.fault(member, "tasks: there are none");
    }
    let (mut tasks, mut ids, mut files) = (Vec::new(), HashSet::new(), HashSet::new());
    for element in listed {
        match &element.kind {
            Kind::Text(pattern) => {
                let found = match matching(folder, pattern) {
                    Ok(found) => found,
                    Err(error) => {
                        reader.fault(element, format!("tasks: {pattern}: {error}"));
                        continue;
                    }
                };
                if found.is_empty() {
                    reader.fault(element, format!("No task file matches {pattern}"));
                }
                // A pattern that takes in the eval's own file does not mean it.
                let (is_pattern, own) = (pattern.contains(['*', '?', '[']), reader.path);
                for path in found.into_iter().filter(|path| !is_pattern || path != own) {
                    if tasks.len() >= TASK_LIMIT {
                        reader.fault(element, format!("An eval has at most {TASK_LIMIT} tasks"));
                        return tasks;
                    }
                    if files.insert(path.clone()) {
                        task_file(reader, &path, folder, &mut tasks, &mut ids);
                    }
                }
            }
            Kind::Map(_) => {
                let file = reader.file.to_owned();
                tasks.extend(task(reader, element, &file, &mut ids));
            }
            _ => reader.fault(element, format!("tasks: expected a file's name or pattern, found {}", element.what())),
        }
    }
    tasks
}

/// The files that a pattern means, sorted.
fn matching(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    // The folder's own name may have what means something in a pattern.
    let base = glob::Pattern::escape(&folder.to_string_lossy());
    let pattern = Path::new(&base).join(pattern);
    let found = glob::glob(&pattern.to_string_lossy()).map_err(|error| error.to_string())?;
    let mut files = Vec::new();
    for path in found.take(TASK_LIMIT + 1) {
        let path = path.map_err(|error| error.to_string())?;
        if !path.is_dir() {
            files.push(path);
        }
    }
    Ok(files)
}

fn task_file(reader: &mut Reader<'_>, path: &Path, folder: &Path, tasks: &mut Vec<Task>, ids: &mut HashSet<String>) {
    let file = path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
    let mut fault = |text, line| reader.faults.push(Fault { text, path: path.to_owned(), file: file.clone(), line });
    let source = match read(path) {
        Ok(source) => source,
        Err(error) => return fault(format!("Cannot be read: {error}"), None),
    };
    match Node::parse(&source) {
        Ok(node) => {
            let mut inner = Reader { source: &source, path, file: &file, faults: reader.faults };
            tasks.extend(task(&mut inner, &node, &file, ids));
        }
        Err(error) => fault(format!("Not valid YAML: {}", error.text), error.line),
    }
}

fn task(reader: &mut Reader<'_>, node: &Node, file: &str, ids: &mut HashSet<String>) -> Option<Task> {
    if !matches!(node.kind, Kind::Map(_)) {
        reader.fault(node, format!("A task is a map, found {}", node.what()));
        return None;
    }
    let id = reader.required(node, "id").unwrap_or_default();
    if !id.is_empty() && !ids.insert(id.clone()) {
        reader.fault(node.get("id").unwrap_or(node), format!("Two tasks have the id {id}"));
    }
    let inputs = reader.map(node, "inputs");
    let prompt = inputs.and_then(|inputs| reader.text(inputs, "prompt")).or_else(|| reader.text(node, "prompt"));
    let tags = node.get("tags").map(|tags| reader.texts("tags", tags)).unwrap_or_default();
    let timeout = match node.get("timeout") {
        Some(timeout) => reader.duration("timeout", timeout),
        None => reader.seconds(node, "timeout_seconds"),
    };
    let mut steps = steps(reader, node);
    // Setup, then verify, then cleanup; a stable sort keeps the order within each.
    steps.sort_by_key(|step| match step.phase {
        Phase::Setup => 0,
        Phase::Cleanup => 2,
        _ => 1,
    });
    let mut graders = graders(reader, node, "graders");
    if let Some(expected) = reader.map(node, "expected") {
        for (name, any) in [("output_contains", false), ("output_contains_any", true)] {
            if let Some(member) = expected.get(name) {
                let texts = reader.texts(name, member);
                if !texts.is_empty() {
                    graders.push(Grader::expected(name, texts, any));
                }
            }
        }
    }
    for grader in &graders {
        if let Some(step) = grader.step.as_deref().filter(|step| steps.iter().all(|known| known.id != *step)) {
            let text = format!("Grader {} looks at step {step}, which task {id} does not have", grader.label());
            reader.fault_in(Some(grader.line), text);
        }
    }
    let phase_of = |id: &str| steps.iter().find(|step| step.id == id).map(|step| step.phase);
    let is_there = |step: &str| phase_of(step).is_none().then(|| format!("there is no step {step}"));
    if let Some(asked) = inputs.and_then(|inputs| inputs.get("prompt")).or_else(|| node.get("prompt")) {
        placeholders(reader, asked, &|step| match phase_of(step) {
            None | Some(Phase::Setup) => is_there(step),
            Some(_) => Some(format!("step {step} does not run before the prompt is given, as those of setup do")),
        });
    }
    let looked_for = node.get("graders").map(Node::elements).unwrap_or_default().iter();
    for texts in looked_for.chain(node.get("expected")) {
        placeholders(reader, texts, &is_there);
    }
    Some(Task {
        name: reader.text(node, "name").unwrap_or_else(|| id.clone()),
        id,
        description: reader.text(node, "description"),
        tags,
        prompt,
        file: file.to_owned(),
        timeout,
        steps,
        graders,
        mock: mock(reader, node),
        graders_json: node.get("graders").map_or_else(|| "[]".to_owned(), Node::json),
        members: rest(node, TASK_MEMBERS),
    })
}

fn mock(reader: &mut Reader<'_>, task: &Node) -> Mock {
    let Some(node) = reader.map(task, "mock") else { return Mock::default() };
    Mock {
        output: reader.text(node, "output"),
        delay: node.get("delay").and_then(|delay| reader.duration("mock.delay", delay)).unwrap_or_default(),
        fail: reader.flag("mock.fail", node.get("fail")).unwrap_or_default(),
    }
}

fn steps(reader: &mut Reader<'_>, task: &Node) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let listed = reader.list(task, "steps");
    for (place, node) in listed.iter().enumerate() {
        if !matches!(node.kind, Kind::Map(_)) {
            reader.fault(node, format!("A step is a map, found {}", node.what()));
            continue;
        }
        let id = reader.text(node, "id").unwrap_or_else(|| format!("step-{}", place + 1));
        if steps.iter().any(|step| step.id == id) {
            reader.fault(node, format!("Two steps have the id {id}"));
        }
        let phase = match reader.text(node, "phase").as_deref() {
            None | Some("verify") => Phase::Verify,
            Some("setup") => Phase::Setup,
            Some("cleanup") => Phase::Cleanup,
            Some(other) => {
                let at = node.get("phase").unwrap_or(node);
                reader.fault(at, format!("Invalid phase: {other} (there are setup, verify, cleanup)"));
                Phase::Verify
            }
        };
        let operation = reader.required(node, "operation").unwrap_or_default();
        let args = reader.map(node, "args").map_or_else(|| Value::Object(serde_json::Map::new()), Node::value);
        let timeout = node.get("timeout").and_then(|timeout| reader.duration("timeout", timeout));
        let mock = reader.map(node, "mock").map(Node::members).unwrap_or_default();
        let mock = mock
            .iter()
            .map(|(name, value)| (name.clone(), value.text(reader.source).unwrap_or_else(|| value.json())))
            .collect();
        steps.push(Step { id, phase, operation, args, timeout, mock });
    }
    // Placeholders look back, in the order in which the steps run.
    let rank = |phase| match phase {
        Phase::Setup => 0,
        Phase::Cleanup => 2,
        _ => 1,
    };
    let places: Vec<(String, (u8, usize))> =
        steps.iter().enumerate().map(|(place, step)| (step.id.clone(), (rank(step.phase), place))).collect();
    for (node, (id, at)) in listed.iter().filter(|node| matches!(node.kind, Kind::Map(_))).zip(&places) {
        let Some(args) = node.get("args") else { continue };
        placeholders(reader, args, &|step| match places.iter().find(|(id, _)| id == step) {
            None => Some(format!("there is no step {step}")),
            Some((_, place)) if place >= at => Some(format!("step {step} does not run before step {id}")),
            Some(_) => None,
        });
    }
    steps
}

/// Notes what is wrong with the placeholders in a node's texts. `fault` tells what is wrong with a step that one names.
fn placeholders(reader: &mut Reader<'_>, node: &Node, fault: &dyn Fn(&str) -> Option<String>) {
    each_text(node, &mut |text, line| {
        for almost in ALMOST.find_iter(text).map(|almost| almost.as_str()) {
            let fault = match PLACEHOLDER.captures(almost).and_then(|found| found.get(1)) {
                None => Some("write {{steps.ID.outputs.KEY}}".to_owned()),
                Some(step) => fault(step.as_str()),
            };
            if let Some(fault) = fault {
                reader.fault_in(Some(line), format!("{almost}: {fault}"));
            }
        }
    });
}

fn each_text(node: &Node, visit: &mut dyn FnMut(&str, u32)) {
    match &node.kind {
        Kind::Text(text) => visit(text, node.line),
        Kind::List(elements) => elements.iter().for_each(|element| each_text(element, visit)),
        Kind::Map(members) => members.iter().for_each(|(_, member)| each_text(member, visit)),
        _ => {}
    }
}

fn graders(reader: &mut Reader<'_>, node: &Node, name: &str) -> Vec<Grader> {
    let mut graders = Vec::new();
    for element in reader.list(node, name) {
        if !matches!(element.kind, Kind::Map(_)) {
            reader.fault(element, format!("A grader is a map, found {}", element.what()));
            continue;
        }
        graders.extend(grader(reader, element));
    }
    graders
}

/// What other runners grade with, and this one cannot.
const UNSUPPORTED: &[&str] = &[
    "action_sequence",
    "behavior",
    "code",
    "diff",
    "human",
    "inline_script",
    "json_schema",
    "llm",
    "llm_comparison",
    "program",
    "prompt",
    "script",
    "skill_invocation",
    "tool_calls",
    "tool_constraint",
    "trigger",
];
const SUPPORTED: &str =
    "file_exists, regex, contains, output_contains, output_contains_any, output_equals, output_range, max_duration";

fn grader(reader: &mut Reader<'_>, node: &Node) -> Option<Grader> {
    let kind = reader.required(node, "type")?;
    let inner = reader.map(node, "config");
    // Settings stand at the top level or under `config`.
    let setting = |names: &[&str]| {
        names.iter().find_map(|name| node.get(name).or_else(|| inner.and_then(|inner| inner.get(name))))
    };
    let texts = |reader: &mut Reader<'_>, names: &[&str]| match setting(names) {
        Some(member) => reader.texts(names.first().copied().unwrap_or_default(), member),
        None => Vec::new(),
    };
    const VALUES: &[&str] =
        &["values", "value", "contains", "text", "must_contain", "output_contains", "output_contains_any"];
    let check = match kind.as_str() {
        "file_exists" => {
            let (paths, absent) = (
                texts(reader, &["path", "paths", "files", "must_exist"]),
                texts(reader, &["must_not_exist", "absent"]),
            );
            if paths.is_empty() && absent.is_empty() {
                reader.fault(node, "file_exists: Missing required field: path");
            }
            Check::Files { present: paths, absent }
        }
        "regex" => {
            let (matches, not) =
                (texts(reader, &["must_match", "pattern", "patterns"]), texts(reader, &["must_not_match"]));
            if matches.is_empty() && not.is_empty() {
                reader.fault(node, "regex: Missing required field: must_match or must_not_match");
            }
            let compile = |reader: &mut Reader<'_>, patterns: Vec<String>, name: &str| {
                let mut compiled = Vec::new();
                for pattern in patterns {
                    match Regex::new(&pattern) {
                        Ok(regex) => compiled.push(regex),
                        Err(error) => {
                            let why = error.to_string();
                            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
                            let at = setting(&[name, "pattern"]).unwrap_or(node);
                            reader.fault(at, format!("{name}: `{pattern}` is no regular expression: {why}"));
                        }
                    }
                }
                compiled
            };
            Check::Regex {
                matches: compile(reader, matches, "must_match"),
                not: compile(reader, not, "must_not_match"),
            }
        }
        "contains" | "output_contains" | "output_contains_any" => {
            let (values, not) = (texts(reader, VALUES), texts(reader, &["not_contains", "must_not_contain"]));
            if values.is_empty() && not.is_empty() {
                reader.fault(node, format!("{kind}: Missing required field: value"));
            }
            let ignore_case = reader.flag("ignore_case", setting(&["ignore_case"]));
            let case_sensitive = reader.flag("case_sensitive", setting(&["case_sensitive"]));
            let ignore_case = ignore_case.unwrap_or(case_sensitive == Some(false));
            Check::Contains { values, not, any: kind == "output_contains_any", ignore_case }
        }
        "output_equals" => {
            let wanted = setting(&["value", "equals", "expected"]);
            if wanted.is_none() {
                reader.fault(node, "output_equals: Missing required field: value");
            }
            Check::Equals {
                text: wanted
                    .map(|wanted| wanted.text(reader.source).unwrap_or_else(|| wanted.json()))
                    .unwrap_or_default(),
                value: wanted.map_or(Value::Null, Node::value),
            }
        }
        "output_range" => {
            let bound = |reader: &mut Reader<'_>, name: &str| {
                let member = setting(&[name])?;
                let number = member.number();
                if number.is_none() {
                    reader.fault(member, format!("{name}: expected a number, found {}", member.what()));
                }
                number
            };
            let (min, max) = (bound(reader, "min"), bound(reader, "max"));
            if setting(&["min"]).is_none() && setting(&["max"]).is_none() {
                reader.fault(node, "output_range: Missing required field: min or max");
            }
            if min.zip(max).is_some_and(|(min, max)| min > max) {
                reader.fault(node, "output_range: min is greater than max");
            }
            Check::Range { min, max }
        }
        "max_duration" => {
            const NAMES: &[&str] = &["max", "duration", "limit", "seconds", "max_seconds", "max_duration", "value"];
            let most = match (setting(NAMES), setting(&["max_ms", "ms", "max_duration_ms"])) {
                (Some(member), _) => reader.duration("max", member),
                (None, Some(member)) => {
                    let seconds = member.number().map(|ms| ms / 1000.0);
                    let most = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                    if most.is_none() {
                        reader.fault(member, "max_ms: expected a number of milliseconds");
                    }
                    most
                }
                (None, None) => {
                    reader.fault(node, "max_duration: Missing required field: max");
                    None
                }
            };
            Check::Duration { most: most.unwrap_or_default() }
        }
        other if UNSUPPORTED.contains(&other) => Check::Unsupported,
        other => {
            let at = node.get("type").unwrap_or(node);
            reader.fault(at, format!("Unknown grader type: {other} (there are {SUPPORTED})"));
            return None;
        }
    };
    // In `output_contains` the text itself might stand here; everywhere else it is an output's name.
    let one = |reader: &mut Reader<'_>, name: &str| match setting(&[name]) {
        Some(member) => reader.texts(name, member).into_iter().next(),
        None => None,
    };
    Some(Grader {
        name: reader.text(node, "name"),
        metric: one(reader, "metric"),
        step: one(reader, "step"),
        output: one(reader, "output"),
        kind,
        check,
        line: node.line,
    })
}
