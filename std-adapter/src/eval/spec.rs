//! Eval and task files: what they say, and everything that is wrong with them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use rigline::{GoDuration, Phase};
use serde_json::Value;

use super::expand::{self, Axes, nearest};
use super::grade::{Check, Grader};
use super::mask::Mask;
use super::measurement::UNIT_LIMIT;
pub use super::node::{DEPTH_LIMIT, VALUE_LIMIT};
use super::node::{Kind, Node};
use super::placeholders::{PLACEHOLDER, literal};
pub use super::root::FILE_LIMIT;
use super::walk;
use crate::host::JsonObject;
use crate::number;
use crate::target::Target;
use crate::terminal::is_control;

/// The most tasks of an eval.
pub const TASK_LIMIT: usize = 10_000;
/// The most bytes of an eval's task files; those that a table makes several tasks of count as often.
pub const SIZE_LIMIT: usize = 64 << 20;
/// The most trials of a task.
pub const TRIAL_LIMIT: u32 = 1000;
/// The most attempts at a trial.
pub const ATTEMPT_LIMIT: u32 = 100;
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
    /// The preflight: what must hold before the tasks, or the rig is at fault.
    pub health: Option<Task>,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// What may be a mistake: members that are nearly known ones, and what other runners have and this one does not.
    pub warnings: Vec<Fault>,
    /// The environment variables that it has.
    pub(super) mask: Mask,
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
    pub settings: Option<JsonObject>,
    /// The folder that a program of the target is started in: the eval's, where the eval names the target.
    pub target_dir: Option<PathBuf>,
    /// How often a trial that does not pass is tried; the last time counts.
    pub max_attempts: u32,
    /// How often a trial is tried again after a rig error.
    pub retries: u32,
    /// Whether [`retries`](Self::retries) are for failures too.
    pub retries_failures: bool,
}

/// When an eval passes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Metrics {
    /// The least share of tasks that must pass, 0 to 1.
    pub pass_threshold: f64,
    /// A list of metrics, each held against its threshold.
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
    /// `prompt` without what environment variables held.
    pub(super) shown_prompt: Option<String>,
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
    pub(super) args: Node,
    /// Where it stands in its file.
    pub(super) line: u32,
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
    /// The file's name from the eval's folder; empty if the fault is in an option, and not in a file.
    pub file: String,
    /// In which line, from 1, if that is known.
    pub line: Option<u32>,
}

impl Fault {
    /// Whether an option of the command is wrong, and not a file.
    pub fn is_of_option(&self) -> bool {
        self.file.is_empty()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            None if self.is_of_option() => f.write_str(&self.text),
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
    /// It is not YAML, is not a map, or cannot be read.
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
    /// Values for the eval's `inputs`, and for names of `matrix` and `for`.
    pub set: Vec<(String, String)>,
}

/// Reads an eval with its tasks, as far as that goes, and gives everything that is wrong with it. A folder stands for the
/// `eval.yaml` in it.
///
/// # Errors
/// There is no such file, it is not YAML, or it is not a map.
pub fn load(path: &Path, overrides: &Overrides) -> Result<(Spec, Vec<Fault>), LoadError> {
    let path = if path.is_dir() { in_folder(path) } else { path.to_owned() };
    let folder = folder_of(&path).to_owned();
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
    if let Some(whose) = foreign(node.members()) {
        let text = format!("Not an eval of rigline: it is {whose}");
        return Err(LoadError::Unreadable(Fault { text, path, file, line: Some(node.line) }));
    }
    let (mut faults, mut warnings) = (Vec::new(), Vec::new());
    let mut vars = vars(&node, &overrides.set);
    let mut reader = Reader { path: &path, file: &file, faults: &mut faults, warnings: &mut warnings, vars: &[] };
    vars.extend(environment(&mut reader, &node));
    let mut reader = Reader { path: &path, file: &file, faults: &mut faults, warnings: &mut warnings, vars: &vars };
    let mut full = node.clone();
    for name in ["config", "health"] {
        let Some(mut member) = node.get(name).cloned() else { continue };
        expand::fill(&mut member, &vars);
        reader.unfilled(&member, "");
        full.set(name, member);
    }
    for (name, member) in full.members_mut() {
        match name.as_str() {
            "config" => member.each_text_mut(&mut braces),
            "health" => unescape_steps(member),
            _ => {}
        }
    }
    let mut spec = eval(&mut reader, &full, &node, &folder, overrides);
    faults.iter_mut().chain(&mut warnings).for_each(|fault| spec.mask.hide(&mut fault.text));
    spec.warnings = warnings;
    Ok((spec, faults))
}

/// What begins as one.
static ALMOST: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{\{\s*steps\b[^{}]*\}*").expect("a constant pattern"));

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

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
    path: &'r Path,
    file: &'r str,
    faults: &'r mut Vec<Fault>,
    /// What is wrong, perhaps, and does not make the eval invalid.
    warnings: &'r mut Vec<Fault>,
    /// What `{{.Vars.NAME}}` stands for.
    vars: &'r [(String, String)],
}

impl Reader<'_> {
    /// The same, with other variables.
    fn with<'s>(&'s mut self, vars: &'s [(String, String)]) -> Reader<'s> {
        Reader { path: self.path, file: self.file, faults: self.faults, warnings: self.warnings, vars }
    }

    fn fault(&mut self, at: &Node, text: impl Into<String>) {
        self.fault_in(Some(at.line), text);
    }

    /// Notes the variables that are left in a node. `of` is what the node is used for.
    fn unfilled(&mut self, node: &Node, of: &str) {
        let mut wrong = Vec::new();
        expand::unfilled(node, self.vars, &mut wrong);
        wrong.into_iter().for_each(|(line, text)| self.fault_in(Some(line), text + of));
    }

    /// Notes what may be a mistake.
    fn warn(&mut self, at: &Node, text: impl Into<String>) {
        let (path, file) = (self.path.to_owned(), self.file.to_owned());
        let warning = Fault { text: text.into(), path, file, line: Some(at.line) };
        // Several rows of one table have the same faults.
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Notes members of a map that are nearly known ones, and those that do nothing here. Others are the file's own.
    fn check_members(&mut self, node: &Node, known: &Known) {
        for (name, member) in node.members() {
            if known.names.contains(&name.as_str()) || name.starts_with("x-") || name.starts_with('$') {
                continue;
            }
            if known.elsewhere.contains(&name.as_str()) {
                self.warn(member, format!("{name}: not supported here; it has no effect"));
                continue;
            }
            let meant = known.meant.iter().find(|(written, _)| written == name).map(|(_, meant)| *meant);
            let what = known.what;
            // What the map has already is not meant by another member.
            if let Some(meant) = meant.or_else(|| nearest(name, known.names)).filter(|meant| node.get(meant).is_none())
            {
                self.warn(member, format!("{name}: {what} has no such member; did you mean `{meant}`?"));
            } else if let Some(level) = level_of(name) {
                self.warn(member, format!("{name}: {what} has no such member; it is one of {level}"));
            }
        }
    }

    fn fault_in(&mut self, line: Option<u32>, text: impl Into<String>) {
        self.faults.push(Fault { text: text.into(), path: self.path.to_owned(), file: self.file.to_owned(), line });
    }

    fn fault_of_cases(&mut self, line: u32, text: String) {
        let is_of_option = line == expand::OPTION;
        let file = if is_of_option { String::new() } else { self.file.to_owned() };
        let fault = Fault { text, path: self.path.to_owned(), file, line: (!is_of_option).then_some(line) };
        // Several tasks have the same fault.
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn text(&mut self, node: &Node, name: &str) -> Option<String> {
        self.text_of(name, node.get(name)?)
    }

    fn text_of(&mut self, name: &str, member: &Node) -> Option<String> {
        let text = member.text();
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
            match element.text() {
                Some(text) => texts.push(text),
                None => self.fault(element, format!("{name}: expected a string, found {}", element.what())),
            }
        }
        texts
    }

    /// Notes an id with characters that drive what shows it: it stands in lists, logs and reports.
    fn check_id(&mut self, node: &Node, id: &str) {
        if id.trim().is_empty() && node.get("id").is_some() {
            self.fault(node, "id: must not be empty");
        }
        if id.chars().any(is_control) {
            let text = "id: must not have control characters or marks that reorder text";
            self.fault(node.get("id").unwrap_or(node), text);
        }
    }

    fn number(&mut self, node: &Node, name: &str, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
        let member = node.get(name)?;
        match member.number() {
            Some(number) if range.contains(&number) => Some(number),
            found if found.is_some() || member.digits().is_some() => {
                let (least, most) = range.into_inner();
                let written = member.text().unwrap_or_default();
                self.fault(member, format!("{name}: must be from {least} to {most}, is {written}"));
                None
            }
            _ => {
                self.fault(member, format!("{name}: expected a number, found {}", member.what()));
                None
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range, and whole")]
    fn whole(&mut self, node: &Node, name: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
        let (least, most) = range.into_inner();
        let number = self.number(node, name, f64::from(least)..=f64::from(most))?;
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
            // Also a placeholder that a number filled.
            _ if member.digits().is_some() => {
                member.number().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            }
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
        node.get(name).map(|member| self.elements(name, member)).unwrap_or_default()
    }

    fn elements<'n>(&mut self, name: &str, member: &'n Node) -> &'n [Node] {
        if !matches!(member.kind, Kind::List(_)) {
            self.fault(member, format!("{name}: expected a list, found {}", member.what()));
        }
        member.elements()
    }

    fn env(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for (name, value) in self.map(node, "env").map(Node::members).unwrap_or_default() {
            match value.text() {
                Some(text) => drop(env.insert(name.clone(), text)),
                None => self.fault(value, format!("env.{name}: expected a string, found {}", value.what())),
            }
        }
        env
    }
}

const EVAL_MEMBERS: &[&str] = &["name", "description", "skill", "version", "tasks"];
const TASK_MEMBERS: &[&str] = &["id", "name", "description", "prompt", "graders"];

/// `shown` is the eval as it was written, without what environment variables held.
fn eval(reader: &mut Reader<'_>, node: &Node, shown: &Node, folder: &Path, overrides: &Overrides) -> Spec {
    let name = reader.required(node, "name").unwrap_or_default();
    let description = reader.text(node, "description");
    let skill = reader.text(node, "skill");
    let version = reader.text(node, "version");
    reader.check_members(node, &EVAL);
    reader.map(node, "inputs");
    for name in ["name", "description", "skill", "version", "tags", "metrics"] {
        if let Some(member) = node.get(name).filter(|member| expand::has_variable(member)) {
            reader.warn(member, format!("{name}: placeholders have no effect here"));
        }
    }
    let mut config = config(reader, node, folder, overrides);
    let metrics = metrics(reader, node);
    let file = reader.file.to_owned();
    let health = health(reader, node, &file);
    let tasks = tasks(reader, node, folder, &overrides.set);
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
    let mut members = rest(shown, EVAL_MEMBERS);
    let timeout = config.timeout.as_secs_f64();
    let effective = [
        ("executor", Value::from(config.executor.as_str())),
        ("trials_per_task", config.trials_per_task.into()),
        // A whole number as it is usually written.
        ("timeout_seconds", if timeout.fract() == 0.0 { config.timeout.as_secs().into() } else { timeout.into() }),
    ];
    with_defaults(&mut members, "config", shown.get("config"), &effective);
    if node.get("metrics").is_none_or(|metrics| matches!(metrics.kind, Kind::Map(_))) {
        with_defaults(
            &mut members,
            "metrics",
            node.get("metrics"),
            &[("pass_threshold", metrics.pass_threshold.into())],
        );
    }
    Spec {
        path: reader.path.to_owned(),
        name,
        description,
        skill,
        version,
        config,
        metrics,
        health,
        tasks,
        warnings: Vec::new(),
        mask: Mask::of(reader.vars),
        members,
    }
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

fn config(reader: &mut Reader<'_>, eval: &Node, folder: &Path, overrides: &Overrides) -> Config {
    let nothing = Node::default();
    let node = reader.map(eval, "config").unwrap_or(&nothing);
    reader.check_members(node, &CONFIG);
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
            let words = member.text().and_then(|text| shell_words::split(&text).ok());
            if words.is_none() {
                reader.fault(member, "command: expected a program with its arguments, as a string or a list");
            }
            words.unwrap_or_default()
        }
    };
    let range = 1..=u32::try_from(WORKER_LIMIT).unwrap_or(u32::MAX);
    let workers = reader.whole(node, "workers", range.clone());
    let workers = workers.or_else(|| reader.whole(node, "max_workers", range.clone())).unwrap_or(4);
    let workers = match node.get("parallel").map(|parallel| (parallel, parallel.bool())) {
        None | Some((_, Some(false))) => 1,
        Some((_, Some(true))) => workers,
        Some((parallel, None)) if parallel.number().is_some() => reader.whole(node, "parallel", range).unwrap_or(1),
        Some((parallel, None)) => {
            reader.fault(parallel, "parallel: expected true, false or a number of workers");
            1
        }
    };
    Config {
        executor,
        model: overrides.model.clone().or_else(|| reader.text(node, "model")),
        target,
        trials_per_task: reader.whole(node, "trials_per_task", 1..=TRIAL_LIMIT).unwrap_or(1),
        timeout: reader.seconds(node, "timeout_seconds").unwrap_or(DEFAULT_TIMEOUT),
        workers: usize::try_from(workers).unwrap_or(1),
        command,
        env: reader.env(node),
        settings: reader.map(node, "settings").and_then(|settings| settings.json().parse().ok()),
        target_dir: overrides
            .target
            .is_none()
            .then(|| std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())),
        max_attempts: reader.whole(node, "max_attempts", 1..=ATTEMPT_LIMIT).unwrap_or(1),
        retries: reader.whole(node, "retries", 0..=ATTEMPT_LIMIT).unwrap_or(0),
        retries_failures: match reader.text(node, "retry_on").as_deref() {
            None | Some("rig_error") => false,
            Some("any") => true,
            Some(other) => {
                let at = node.get("retry_on").unwrap_or(node);
                reader.fault(at, format!("Invalid retry_on: {other} (expected rig_error or any)"));
                false
            }
        },
    }
}

/// The preflight, as a task whose graders are what its steps expect.
fn health(reader: &mut Reader<'_>, eval: &Node, file: &str) -> Option<Task> {
    let listed = reader.list(eval, "health").to_vec();
    eval.get("health")?;
    let steps = steps(reader, &listed, &HEALTH_STEP);
    let mut graders = Vec::new();
    for (node, step) in listed.iter().filter(|node| node.is_map()).zip(&steps) {
        if node.get("phase").is_some() {
            reader.fault(node, "phase: a step of the preflight has no phase");
        }
        for (output, wanted) in reader.map(node, "expect").map(Node::members).unwrap_or_default() {
            let text = wanted.text().unwrap_or_else(|| wanted.json());
            graders.push(Grader::equals(&step.id, output, text, wanted.json(), wanted.line));
        }
    }
    if steps.is_empty() {
        reader.fault(eval.get("health").unwrap_or(eval), "health: there are no steps");
    }
    Some(Task {
        id: "health".into(),
        name: "preflight".into(),
        description: None,
        tags: Vec::new(),
        prompt: None,
        file: file.to_owned(),
        timeout: None,
        steps,
        graders,
        mock: Mock::default(),
        shown_prompt: None,
        graders_json: "[]".into(),
        members: Vec::new(),
    })
}

fn metrics(reader: &mut Reader<'_>, eval: &Node) -> Metrics {
    let mut metrics = Metrics { pass_threshold: 1.0, list: Vec::new() };
    let Some(node) = eval.get("metrics") else { return metrics };
    match &node.kind {
        Kind::Map(_) => {
            reader.check_members(node, &METRICS);
            if let Some(threshold) = reader.number(node, "pass_threshold", 0.0..=1.0) {
                metrics.pass_threshold = threshold;
            }
        }
        Kind::List(elements) => {
            for element in elements {
                reader.check_members(element, &METRIC);
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

fn tasks(reader: &mut Reader<'_>, eval: &Node, folder: &Path, set: &[(String, String)]) -> Vec<Task> {
    let mut listing = Tasks {
        folder,
        tasks: Vec::new(),
        ids: HashSet::new(),
        files: HashSet::new(),
        found: HashMap::new(),
        read: HashMap::new(),
        room: SIZE_LIMIT,
        set,
        axes: HashSet::new(),
        common: Axes { matrix: eval.get("matrix"), rows: eval.get("for") },
        is_broken: false,
        graders: Graders::read(reader, eval),
    };
    // Those of the eval are read once, so that what is wrong with them is said once, and of this file.
    if let Err((line, text)) = expand::cases(listing.common, eval.line, set, 0, TASK_LIMIT) {
        reader.fault_of_cases(line, text);
        return Vec::new();
    }
    listing.axes.extend(expand::names(listing.common));
    let rows = match eval.get("tasks_from") {
        Some(from) => match rows(reader, from, eval, folder) {
            Some(rows) => rows,
            None => return Vec::new(),
        },
        None => {
            if let Some(range) = eval.get("range") {
                reader.warn(range, "range: it has no effect without tasks_from");
            }
            vec![Vec::new()]
        }
    };
    let Some(member) = eval.get("tasks") else {
        match eval.get("tasks_from") {
            None => reader.fault(eval, "Missing required field: tasks"),
            Some(from) => {
                for (place, row) in rows.iter().enumerate() {
                    listing.row(reader, from, row, place);
                }
            }
        }
        return listing.tasks;
    };
    let listed = match &member.kind {
        Kind::Text(_) => std::slice::from_ref(member),
        _ => reader.list(eval, "tasks"),
    };
    if listed.is_empty() && matches!(member.kind, Kind::List(_)) {
        reader.fault(member, "tasks: there are none");
    }
    let own = reader.vars.to_vec();
    for (place, row) in rows.iter().enumerate() {
        let suffix = eval.get("tasks_from").map(|_| format!("-row-{}", place + 1));
        // A row's columns go before the eval's inputs of the same names.
        let vars: Vec<_> = columns(row).chain(own.iter().cloned()).collect();
        let mut reader = reader.with(&vars);
        listing.files.clear();
        // The other rows have the same broken cases.
        if !listing.list(&mut reader, listed, suffix.as_deref()) || listing.is_broken {
            break;
        }
    }
    let inputs = eval.get("inputs").map(Node::members).unwrap_or_default();
    let known: Vec<&str> =
        inputs.iter().map(|(name, _)| name.as_str()).chain(listing.axes.iter().map(String::as_str)).collect();
    for (name, _) in set.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
        let text = format!(
            "--set {name}: no input and no value of matrix or for has this name{}",
            expand::meant(name, &known)
        );
        reader.fault_of_cases(expand::OPTION, text);
    }
    listing.tasks
}

/// The tasks of an eval, as they are found.
struct Tasks<'f> {
    folder: &'f Path,
    tasks: Vec<Task>,
    ids: HashSet<String>,
    files: HashSet<PathBuf>,
    /// What patterns mean: each is looked for once, however many rows there are.
    found: HashMap<String, Vec<PathBuf>>,
    /// Task files that were read, with their sizes.
    read: HashMap<PathBuf, (Node, usize)>,
    /// How many bytes of task files may still be made tasks of.
    room: usize,
    /// Values that the command line sets.
    set: &'f [(String, String)],
    /// The names of all axes there are.
    axes: HashSet<String>,
    /// The eval's `matrix` and `for`, for tasks that have none of their own.
    common: Axes<'f>,
    /// Whether cases could not be made of a task.
    is_broken: bool,
    /// The eval's graders.
    graders: Graders<'f>,
}

/// The graders of an eval, which each of its tasks has besides its own.
struct Graders<'f> {
    node: &'f Node,
    path: &'f Path,
    file: &'f str,
    /// Those that are the same for all tasks: they have no variables.
    same: Option<Vec<Grader>>,
    /// Whether a task was found that they do not fit to: others have the same faults.
    is_broken: bool,
}

impl<'f> Graders<'f> {
    fn read<'r: 'f>(reader: &mut Reader<'r>, eval: &'f Node) -> Self {
        let differ = eval.get("graders").is_some_and(expand::has_variable);
        let same = (!differ).then(|| {
            eval.get("graders").into_iter().for_each(|node| reader.unfilled(node, ""));
            graders(reader, eval, "graders")
        });
        Self { node: eval, path: reader.path, file: reader.file, same, is_broken: false }
    }

    /// Adds them to a task, whose variables are those of `reader`.
    fn add_to(&mut self, reader: &mut Reader<'_>, task: &mut Task) {
        if self.is_broken {
            return;
        }
        let Some(node) = self.node.get("graders") else { return };
        let mut reader = Reader { path: self.path, file: self.file, ..reader.with(reader.vars) };
        let faults = reader.faults.len();
        let added = match &self.same {
            Some(same) => same.clone(),
            None => {
                let mut filled = Node::empty_map(self.node);
                filled.set("graders", node.clone());
                expand::fill(&mut filled, reader.vars);
                reader.unfilled(&filled, &format!(", of task {}", task.id));
                graders(&mut reader, &filled, "graders")
            }
        };
        let has_step = |step: &str| task.steps.iter().any(|known| known.id == step);
        placeholders(&mut reader, node, &|step| {
            (!has_step(step)).then(|| format!("task {} has no step {step}", task.id))
        });
        for grader in &added {
            if let Some(step) = grader.step.as_deref().filter(|step| !has_step(step)) {
                let text =
                    format!("Grader {} looks at step {step}, which task {} does not have", grader.label(), task.id);
                reader.fault_in(Some(grader.line), text);
            }
            if task.graders.iter().any(|own| own.is_same_measurement(grader)) {
                let text = format!("Two measurements of task {} have the name {}", task.id, grader.measured());
                reader.fault_in(Some(grader.line), text);
            }
        }
        self.is_broken = reader.faults.len() > faults;
        task.graders.extend(added);
    }
}

/// Has the names of measurements differ: what graders without names measure at several steps would have one name, and one mean.
fn tell_measurements_apart(graders: &mut [Grader]) {
    let measures = |grader: &Grader| matches!(grader.check, Check::Range { .. });
    let mut steps: HashMap<String, HashSet<Option<String>>> = HashMap::new();
    for grader in graders.iter().filter(|grader| measures(grader)) {
        steps.entry(grader.measured().to_owned()).or_default().insert(grader.step.clone());
    }
    for grader in graders {
        grader.is_by_step = measures(grader) && steps.get(grader.measured()).is_some_and(|steps| steps.len() > 1);
    }
}

impl Tasks<'_> {
    /// Whether there is room for more.
    fn list(&mut self, reader: &mut Reader<'_>, listed: &[Node], suffix: Option<&str>) -> bool {
        for element in listed {
            match &element.kind {
                Kind::Text(pattern) => {
                    let Some(found) = self.matching(reader, element, pattern) else { continue };
                    // A pattern that takes in the eval's own file does not mean it.
                    let (is_pattern, own) = (pattern.contains(['*', '?', '[']), reader.path);
                    for path in found.into_iter().filter(|path| !is_pattern || path != own) {
                        if self.is_full(reader, element) {
                            return false;
                        }
                        if self.files.insert(path.clone()) {
                            self.file(reader, &path, None, suffix);
                        }
                    }
                }
                Kind::Map(_) => {
                    if self.is_full(reader, element) {
                        return false;
                    }
                    match element.get("file").map(|file| (file, file.text())) {
                        Some((_, Some(file))) => self.file(reader, &self.folder.join(file), Some(element), suffix),
                        Some((file, None)) => {
                            reader.fault(file, format!("file: expected a string, found {}", file.what()));
                        }
                        None => {
                            let file = reader.file.to_owned();
                            self.cases(reader, element, &file, suffix);
                        }
                    }
                }
                _ => {
                    reader
                        .fault(element, format!("tasks: expected a file's name or pattern, found {}", element.what()));
                }
            }
        }
        true
    }

    fn matching(&mut self, reader: &mut Reader<'_>, element: &Node, pattern: &str) -> Option<Vec<PathBuf>> {
        if let Some(found) = self.found.get(pattern) {
            return Some(found.clone());
        }
        let found = match walk::matching(self.folder, pattern) {
            Ok(found) => found,
            Err(error) => {
                reader.fault(element, format!("tasks: {pattern}: {error}"));
                return None;
            }
        };
        for trouble in found.troubles {
            reader.warn(element, format!("tasks: {pattern}: {trouble}"));
        }
        if found.files.is_empty() {
            reader.fault(element, format!("No task file matches {pattern}"));
        }
        self.found.insert(pattern.to_owned(), found.files.clone());
        Some(found.files)
    }

    fn is_full(&self, reader: &mut Reader<'_>, element: &Node) -> bool {
        let is_full = self.tasks.len() >= TASK_LIMIT;
        if is_full {
            reader.fault(element, format!("An eval has at most {TASK_LIMIT} tasks"));
        }
        is_full
    }

    /// Reads a task's file. What its entry in the eval says goes before what the file says.
    fn file(&mut self, reader: &mut Reader<'_>, path: &Path, entry: Option<&Node>, suffix: Option<&str>) {
        let file = path.strip_prefix(self.folder).unwrap_or(path).to_string_lossy().into_owned();
        let mut fault =
            |text, line| reader.faults.push(Fault { text, path: path.to_owned(), file: file.clone(), line });
        let (mut node, size) = match self.read.get(path) {
            Some((node, size)) => (node.clone(), *size),
            None => {
                let source = match read(path) {
                    Ok(source) => source,
                    Err(error) => return fault(format!("Cannot be read: {error}"), None),
                };
                match Node::parse(&source) {
                    Ok(node) => {
                        self.read.insert(path.to_owned(), (node.clone(), source.len()));
                        (node, source.len())
                    }
                    Err(error) => return fault(format!("Not valid YAML: {}", error.text), error.line),
                }
            }
        };
        match self.room.checked_sub(size) {
            Some(room) => self.room = room,
            None => return fault(format!("An eval's tasks have at most {SIZE_LIMIT} bytes"), None),
        }
        for (name, member) in entry.map(Node::members).unwrap_or_default().iter().filter(|(name, _)| name != "file") {
            node.set(name, member.clone());
        }
        let mut inner = Reader { path, file: &file, ..reader.with(reader.vars) };
        self.cases(&mut inner, &node, &file, suffix);
    }

    /// The tasks that one of a file stands for: one, or one for each case of `matrix` and `for`.
    fn cases(&mut self, reader: &mut Reader<'_>, node: &Node, file: &str, suffix: Option<&str>) {
        let axes =
            Axes { matrix: node.get("matrix").or(self.common.matrix), rows: node.get("for").or(self.common.rows) };
        self.axes.extend(expand::names(axes));
        let cases = match expand::cases(axes, node.line, self.set, self.tasks.len(), TASK_LIMIT) {
            Ok(cases) => cases,
            Err((line, text)) => {
                self.is_broken = true;
                return reader.fault_of_cases(line, text);
            }
        };
        // Clients see these, also while the task runs.
        for name in ["id", "name", "description"] {
            if let Some(member) =
                node.get(name).filter(|member| member.text().is_some_and(|text| expand::has_env(&text)))
            {
                let text = format!("{name}: clients see it, so it must not have the value of an environment variable");
                return reader.fault(member, text);
            }
        }
        // A case has its own values only: all of them, in each, would be their square.
        let mut plain = node.clone();
        plain.remove(&["matrix", "for"]);
        let node = &plain;
        for case in cases {
            let vars: Vec<_> = case.iter().chain(reader.vars).cloned().collect();
            let public: Vec<_> = vars.iter().filter(|(name, _)| !name.starts_with("env.")).cloned().collect();
            let (mut shown, mut full) = (node.clone(), node.clone());
            expand::fill(&mut shown, &public);
            expand::fill(&mut full, &vars);
            for filled in [&mut shown, &mut full] {
                distinguish(filled, node, suffix, &case, reader.vars);
            }
            let mut reader = reader.with(&vars);
            let faults = reader.faults.len();
            reader.unfilled(&full, "");
            if reader.faults.len() == faults {
                unescape(&mut full);
                if let Some(mut made) = task(&mut reader, &full, file, &mut self.ids) {
                    // What an environment variable held is not shown.
                    made.members = rest(&shown, TASK_MEMBERS);
                    made.shown_prompt = prompt(&shown).and_then(Node::text);
                    made.graders_json = shown.get("graders").map_or_else(|| "[]".to_owned(), Node::json);
                    self.graders.add_to(&mut reader, &mut made);
                    tell_measurements_apart(&mut made.graders);
                    self.tasks.push(made);
                }
            }
            // The other cases have the same faults.
            if reader.faults.len() > faults {
                break;
            }
        }
    }

    /// A task that a row of `tasks_from` stands for: its columns `id`, `name`, `prompt` and so on are the members.
    fn row(&mut self, reader: &mut Reader<'_>, from: &Node, row: &[(String, String)], place: usize) {
        if self.is_full(reader, from) {
            return;
        }
        let mut node = Node::empty_map(from);
        for (name, text) in row {
            if ["id", "name", "description", "prompt", "timeout"].contains(&name.as_str()) && !text.is_empty() {
                node.set(name, Node::of_text(text, from));
            }
        }
        if node.get("id").is_none() {
            node.set("id", Node::of_text(&format!("row-{}", place + 1), from));
        }
        let file = from.text().unwrap_or_default();
        if self.common.matrix.is_some() || self.common.rows.is_some() {
            return self.cases(reader, &node, &file, None);
        }
        if let Some(mut made) = task(reader, &node, &file, &mut self.ids) {
            let vars: Vec<_> = columns(row).chain(reader.vars.iter().cloned()).collect();
            self.graders.add_to(&mut reader.with(&vars), &mut made);
            tell_measurements_apart(&mut made.graders);
            self.tasks.push(made);
        }
    }
}

/// A row's columns, as variables.
fn columns(row: &[(String, String)]) -> impl Iterator<Item = (String, String)> {
    row.iter().map(|(name, value)| (format!("vars.{name}"), value.clone()))
}

/// Puts braces in the place of `{{"{{"}}` in all of a task that no outputs of steps are filled into while it runs.
fn unescape(task: &mut Node) {
    for (name, member) in task.members_mut() {
        match name.as_str() {
            "prompt" | "inputs" | "graders" | "expected" => {}
            "steps" => unescape_steps(member),
            _ => member.each_text_mut(&mut braces),
        }
    }
}

fn unescape_steps(steps: &mut Node) {
    for step in steps.elements_mut() {
        for (_, member) in step.members_mut().iter_mut().filter(|(name, _)| name != "args" && name != "expect") {
            member.each_text_mut(&mut braces);
        }
    }
}

fn braces(text: &str) -> Option<(String, bool)> {
    match literal(text) {
        Cow::Owned(text) => Some((text, false)),
        Cow::Borrowed(_) => None,
    }
}

/// Adds the row and the case to the id and the name of a task, unless a placeholder did. `before` is the
/// task as it was written, and `vars` has the row's columns.
fn distinguish(node: &mut Node, before: &Node, suffix: Option<&str>, case: &expand::Case, vars: &[(String, String)]) {
    let text = |node: &Node, name: &str| node.get(name).and_then(Node::text);
    let columns: Vec<_> = vars.iter().filter(|(name, _)| name.starts_with("vars.")).cloned().collect();
    if let (Some(id), Some(written)) = (text(node, "id"), text(before, "id").filter(|id| !id.trim().is_empty())) {
        let suffix = suffix.filter(|_| !expand::mentions(&written, &columns)).unwrap_or_default();
        let case = if case.is_empty() || expand::mentions(&written, case) {
            String::new()
        } else {
            format!("[{}]", expand::label(case, ","))
        };
        node.set("id", Node::of_text(&format!("{id}{suffix}{case}"), node));
    }
    if let (Some(name), Some(written)) = (text(node, "name"), text(before, "name"))
        && !case.is_empty()
        && !expand::mentions(&written, case)
    {
        node.set("name", Node::of_text(&format!("{name} ({})", expand::label(case, ", ")), node));
    }
}

/// The eval's `inputs`: what variables stand for.
fn vars(eval: &Node, set: &[(String, String)]) -> Vec<(String, String)> {
    let inputs = eval.get("inputs").map(Node::members).unwrap_or_default();
    let value = |name: &String, value: &Node| match set.iter().rev().find(|(set, _)| set == name) {
        Some((_, set)) => set.clone(),
        None => value.text().unwrap_or_else(|| value.json()),
    };
    inputs.iter().map(|(name, node)| (format!("inputs.{name}"), value(name, node))).collect()
}

/// The environment variables that `config.allow_env` lets in.
fn environment(reader: &mut Reader<'_>, eval: &Node) -> Vec<(String, String)> {
    let Some(node) = eval.get("config").and_then(|config| config.get("allow_env")) else { return Vec::new() };
    let mut values = Vec::new();
    for name in reader.texts("allow_env", node) {
        match std::env::var(&name) {
            Ok(value) => values.push((format!("env.{name}"), value)),
            Err(std::env::VarError::NotPresent) => {
                reader.fault(node, format!("allow_env: the environment variable {name} is not set"));
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                reader.fault(node, format!("allow_env: the environment variable {name} is not UTF-8"));
            }
        }
    }
    values
}

/// The rows of the CSV file that `tasks_from` names, by their columns' names.
fn rows(reader: &mut Reader<'_>, from: &Node, eval: &Node, folder: &Path) -> Option<Vec<Vec<(String, String)>>> {
    let Some(name) = from.text() else {
        reader.fault(from, format!("tasks_from: expected the name of a CSV file, found {}", from.what()));
        return None;
    };
    let path = folder.join(&name);
    let mut fault = |text: String, line| {
        reader.faults.push(Fault { text, path: path.clone(), file: name.clone(), line });
    };
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) => {
            fault(format!("tasks_from: cannot be read: {error}"), None);
            return None;
        }
    };
    let mut table = csv::ReaderBuilder::new().from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let header = match table.headers() {
        Ok(header) => header.clone(),
        Err(error) => {
            fault(format!("tasks_from: not valid CSV: {error}"), None);
            return None;
        }
    };
    let names: Vec<&str> = header.iter().map(str::trim).collect();
    let mut named = names.iter().enumerate().filter(|(_, name)| !name.is_empty());
    if let Some((_, twice)) = named.find(|(place, name)| names.iter().take(*place).any(|known| known == *name)) {
        fault(format!("tasks_from: two columns have the name {twice}"), Some(1));
        return None;
    }
    let mut rows = Vec::new();
    for record in table.records() {
        match record {
            Ok(record) => {
                let row = header.iter().zip(record.iter());
                rows.push(row.map(|(name, value)| (name.trim().to_owned(), value.to_owned())).collect());
            }
            Err(error) => {
                let line = error.position().and_then(|position| u32::try_from(position.line()).ok());
                fault(format!("tasks_from: not valid CSV: {error}"), line);
                return None;
            }
        }
    }
    // `range: [first, last]`, from 1, both included.
    if let Some(range) = eval.get("range") {
        let ends: Option<Vec<usize>> = range.elements().iter().map(|end| end.digits()?.parse().ok()).collect();
        match ends.as_deref() {
            Some([first, last]) if *first >= 1 && first <= last => {
                rows = rows.into_iter().take(*last).skip(first - 1).collect();
            }
            _ => reader.fault(range, "range: expected the first and the last row, such as [1, 10]"),
        }
    }
    if rows.is_empty() {
        reader.fault(from, format!("tasks_from: {name} has no rows"));
    }
    Some(rows)
}

/// Whose file it is, if its members are those of another program's files.
pub(super) fn foreign<T>(members: &[(String, T)]) -> Option<&'static str>
where
    T: AsText,
{
    let text = |wanted: &str| members.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| value.as_text());
    let has = |wanted: &str| members.iter().any(|(name, _)| name == wanted);
    match () {
        () if text("kind").is_some_and(|kind| kind == "Eval") => {
            Some("an eval of gevals (mcpchecker), which its own host runs")
        }
        () if text("kind").is_some_and(|kind| kind == "Task") && has("spec") => {
            Some("a task of gevals (mcpchecker), which its own host runs")
        }
        () if has("jobs") && (has("on") || has("true") || has("runs-on")) => Some("a CI workflow of GitHub"),
        () if has("stages") && !has("tasks") => Some("a CI pipeline"),
        () if has("providers") && (has("prompts") || has("tests")) => Some("an eval of promptfoo"),
        () if (has("solver") || has("scorer")) && !has("name") => Some("an eval of Inspect"),
        () => None,
    }
}

/// What may be a text.
pub(super) trait AsText {
    /// The text, if it is one.
    fn as_text(&self) -> Option<&str>;
}

impl AsText for Node {
    fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The names that a map's members may have.
struct Known {
    /// What the map is.
    what: &'static str,
    names: &'static [&'static str],
    /// Names that other runners know, and that do nothing here.
    elsewhere: &'static [&'static str],
    /// What people write for some of the names.
    meant: &'static [(&'static str, &'static str)],
}

const EVAL: Known = Known {
    what: "an eval",
    names: &[
        "name",
        "description",
        "skill",
        "version",
        "config",
        "metrics",
        "graders",
        "tasks",
        "tasks_from",
        "range",
        "inputs",
        "tags",
        "health",
        "matrix",
        "for",
    ],
    elsewhere: &["hooks", "baseline", "fixtures"],
    meant: &[("tests", "tasks"), ("settings", "config")],
};
const CONFIG: Known = Known {
    what: "config",
    names: &[
        "executor",
        "model",
        "target",
        "trials_per_task",
        "timeout_seconds",
        "parallel",
        "workers",
        "max_workers",
        "command",
        "env",
        "settings",
        "max_attempts",
        "retries",
        "retry_on",
        "allow_env",
    ],
    elsewhere: &[
        "group_by",
        "fail_fast",
        "judge_model",
        "skill_directories",
        "required_skills",
        "disabled_skills",
        "mcp_servers",
        "hooks",
    ],
    meant: &[("timeout", "timeout_seconds"), ("trials", "trials_per_task"), ("environment", "env")],
};
const METRICS: Known =
    Known { what: "metrics", names: &["pass_threshold"], elsewhere: &[], meant: &[("threshold", "pass_threshold")] };
const METRIC: Known = Known {
    what: "a metric",
    names: &["name", "weight", "threshold", "description", "enabled"],
    elsewhere: &[],
    meant: &[],
};
const TASK: Known = Known {
    what: "a task",
    names: &[
        "id",
        "name",
        "description",
        "tags",
        "inputs",
        "prompt",
        "expected",
        "graders",
        "steps",
        "timeout",
        "timeout_seconds",
        "mock",
        "file",
        "matrix",
        "for",
    ],
    elsewhere: &[
        "hooks",
        "enabled",
        "skip",
        "assert",
        "asserts",
        "assertions",
        "check",
        "checks",
        "criteria",
        "evaluators",
        "expected_output",
        "scorer",
        "scorers",
        "verify",
    ],
    meant: &[("expect", "expected")],
};
const HEALTH_STEP: Known = Known {
    what: "a step of the preflight",
    names: &["id", "operation", "args", "timeout", "mock", "expect"],
    elsewhere: &[],
    meant: STEP.meant,
};
const MEASURE: Known = Known {
    what: "measure",
    names: &["name", "output", "unit", "low", "high"],
    elsewhere: &[],
    meant: &[("min", "low"), ("max", "high"), ("value", "output")],
};
const STEP: Known = Known {
    what: "a step",
    names: &["id", "phase", "operation", "args", "timeout", "mock", "measure"],
    elsewhere: &[],
    meant: &[
        ("params", "args"),
        ("arguments", "args"),
        ("parameters", "args"),
        ("with", "args"),
        ("timeout_seconds", "timeout"),
    ],
};
const INPUTS: Known =
    Known { what: "inputs", names: &["prompt", "context", "files"], elsewhere: &["repos", "environment"], meant: &[] };
/// What a task may expect that cannot be judged here.
const UNJUDGED: &[&str] = &["outcomes", "behavior", "tool_calls"];
const EXPECTED: Known = Known {
    what: "expected",
    names: &["output_contains", "output_contains_any", "output_not_contains"],
    elsewhere: UNJUDGED,
    meant: &[],
};
const MOCK: Known = Known { what: "mock", names: &["output", "delay", "fail"], elsewhere: &[], meant: &[] };

/// What has a member of this name, where another map has not. Names that any map may have for its readers, such as `owner` or `name`,
/// belong to none.
fn level_of(name: &str) -> Option<String> {
    const FOR_READERS: &[&str] =
        &["name", "description", "id", "tags", "version", "skill", "file", "inputs", "prompt", "model"];
    let levels: Vec<&str> = [&EVAL, &CONFIG, &METRICS, &TASK, &STEP, &HEALTH_STEP, &EXPECTED]
        .into_iter()
        .filter(|known| known.names.contains(&name) && !FOR_READERS.contains(&name))
        .map(|known| known.what)
        .collect();
    (!levels.is_empty()).then(|| levels.join(", of "))
}

fn task(reader: &mut Reader<'_>, node: &Node, file: &str, ids: &mut HashSet<String>) -> Option<Task> {
    if !matches!(node.kind, Kind::Map(_)) {
        reader.fault(node, format!("A task is a map, found {}", node.what()));
        return None;
    }
    reader.check_members(node, &TASK);
    if node.get("id").is_none() {
        reader.fault(node, "Missing required field: id");
    }
    let id = reader.text(node, "id").unwrap_or_default();
    reader.check_id(node, &id);
    if !id.is_empty() && !ids.insert(id.clone()) {
        reader.fault(node.get("id").unwrap_or(node), format!("Two tasks have the id {id}"));
    }
    let inputs = reader.map(node, "inputs");
    if let Some(inputs) = inputs {
        reader.check_members(inputs, &INPUTS);
    }
    let asked = inputs.and_then(|inputs| reader.text(inputs, "prompt")).or_else(|| reader.text(node, "prompt"));
    let tags = node.get("tags").map(|tags| reader.texts("tags", tags)).unwrap_or_default();
    let timeout = match node.get("timeout") {
        Some(timeout) => reader.duration("timeout", timeout),
        None => reader.seconds(node, "timeout_seconds"),
    };
    let listed = reader.list(node, "steps").to_vec();
    let mut steps = steps(reader, &listed, &STEP);
    let measures = measures(reader, &listed, &steps);
    // Setup, then verify, then cleanup; a stable sort keeps the order within each.
    steps.sort_by_key(|step| match step.phase {
        Phase::Setup => 0,
        Phase::Cleanup => 2,
        _ => 1,
    });
    let mut graders = graders(reader, node, "graders");
    graders.extend(measures);
    for (place, grader) in graders.iter().enumerate().filter(|(_, grader)| grader.kind == "measurement") {
        if graders.iter().take(place).any(|earlier| earlier.is_same_measurement(grader)) {
            reader.fault_in(Some(grader.line), format!("Two measurements have the name {}", grader.measured()));
        }
    }
    if let Some(expected) = reader.map(node, "expected") {
        reader.check_members(expected, &EXPECTED);
        for name in ["output_contains", "output_contains_any", "output_not_contains"] {
            if let Some(member) = expected.get(name) {
                let texts = reader.texts(name, member);
                let never = if name == "output_not_contains" { "pass" } else { "fail" };
                if texts.iter().any(String::is_empty) {
                    reader
                        .fault(member, format!("{name}: an empty text is in every output, so this can never {never}"));
                }
                if texts.is_empty() {
                    reader.fault(member, format!("{name}: there are none, so this can never fail"));
                } else {
                    graders.push(Grader::expected(name, texts));
                }
            }
        }
        let unjudged = UNJUDGED.iter().filter(|name| expected.get(name).is_some());
        graders.extend(unjudged.map(|name| Grader::unjudged(&format!("expected.{name}"))));
    }
    for grader in &graders {
        if let Some(step) = grader.step.as_deref().filter(|step| steps.iter().all(|known| known.id != *step)) {
            let text = format!("Grader {} looks at step {step}, which task {id} does not have", grader.label());
            reader.fault_in(Some(grader.line), text);
        }
    }
    let phase_of = |id: &str| steps.iter().find(|step| step.id == id).map(|step| step.phase);
    let is_there = |step: &str| phase_of(step).is_none().then(|| format!("there is no step {step}"));
    if let Some(asked) = prompt(node) {
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
        shown_prompt: asked.clone(),
        prompt: asked,
        file: file.to_owned(),
        timeout,
        steps,
        graders,
        mock: mock(reader, node),
        graders_json: node.get("graders").map_or_else(|| "[]".to_owned(), Node::json),
        members: rest(node, TASK_MEMBERS),
    })
}

/// What an agent is asked.
fn prompt(task: &Node) -> Option<&Node> {
    task.get("inputs").and_then(|inputs| inputs.get("prompt")).or_else(|| task.get("prompt"))
}

fn mock(reader: &mut Reader<'_>, task: &Node) -> Mock {
    let Some(node) = reader.map(task, "mock") else { return Mock::default() };
    reader.check_members(node, &MOCK);
    Mock {
        output: reader.text(node, "output"),
        delay: node.get("delay").and_then(|delay| reader.duration("mock.delay", delay)).unwrap_or_default(),
        fail: reader.flag("mock.fail", node.get("fail")).unwrap_or_default(),
    }
}

/// What steps measure, as graders. The steps are in the order in which they were read.
fn measures(reader: &mut Reader<'_>, listed: &[Node], steps: &[Step]) -> Vec<Grader> {
    let mut graders = Vec::new();
    for (node, step) in listed.iter().filter(|node| node.is_map()).zip(steps) {
        let Some(member) = node.get("measure") else { continue };
        let each = if member.is_list() { member.elements() } else { std::slice::from_ref(member) };
        for one in each {
            if !one.is_map() {
                reader.fault(one, format!("measure: expected a map, found {}", one.what()));
                continue;
            }
            reader.check_members(one, &MEASURE);
            let settings = Settings { node: one, inner: None, kind: "measure".into() };
            let Some(output) = reader.required(one, "output") else { continue };
            let (check, unit) = measurement(reader, &settings);
            graders.push(Grader {
                name: reader.text(one, "name"),
                metric: None,
                weight: 1.0,
                step: Some(step.id.clone()),
                output: Some(output),
                kind: "measurement".into(),
                check,
                unit,
                is_by_step: false,
                line: one.line,
            });
        }
    }
    graders
}

/// The limits and the unit of a measurement.
fn measurement(reader: &mut Reader<'_>, settings: &Settings<'_>) -> (Check, Option<String>) {
    let (min, max) = (bound(reader, settings, "low"), bound(reader, settings, "high"));
    let value = |bound: &Option<String>| bound.as_deref().and_then(number::decimal);
    if value(&min).zip(value(&max)).is_some_and(|(min, max)| min > max) {
        settings.fault(reader, "low is greater than high");
    }
    let unit = settings.get(&["unit"]).and_then(|member| reader.text_of("unit", member));
    if let Some(unit) = &unit
        && (unit.chars().count() > UNIT_LIMIT || unit.chars().any(char::is_control))
    {
        settings.fault(reader, &format!("unit: expected at most {UNIT_LIMIT} characters, without control characters"));
    }
    (Check::Range { min, max }, unit)
}

/// A limit, with its digits.
fn bound(reader: &mut Reader<'_>, settings: &Settings<'_>, name: &str) -> Option<String> {
    let member = settings.get(&[name])?;
    let digits = member.digits().filter(|digits| number::decimal(digits).is_some());
    if digits.is_none() {
        reader.fault(member, format!("{name}: expected a number, found {}", member.what()));
    }
    digits.map(str::to_owned)
}

fn steps(reader: &mut Reader<'_>, listed: &[Node], known: &Known) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (place, node) in listed.iter().enumerate() {
        if !matches!(node.kind, Kind::Map(_)) {
            reader.fault(node, format!("A step is a map, found {}", node.what()));
            continue;
        }
        reader.check_members(node, known);
        let id = reader.text(node, "id").unwrap_or_else(|| format!("step-{}", place + 1));
        reader.check_id(node, &id);
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
        let args = reader.map(node, "args").cloned().unwrap_or_else(|| Node::empty_map(node));
        let timeout = node.get("timeout").and_then(|timeout| reader.duration("timeout", timeout));
        let mock = reader.map(node, "mock").map(Node::members).unwrap_or_default();
        let mock =
            mock.iter().map(|(name, value)| (name.clone(), value.text().unwrap_or_else(|| value.json()))).collect();
        steps.push(Step { id, phase, operation, args, line: node.line, timeout, mock });
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
    "human_calibration",
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
const SUPPORTED: &[&str] = &[
    "text",
    "file",
    "file_exists",
    "regex",
    "contains",
    "not_contains",
    "output_contains",
    "output_contains_any",
    "output_equals",
    "output_range",
    "measurement",
    "max_duration",
];

/// What every grader may have.
const COMMON: &[&str] = &["type", "name", "metric", "weight", "step", "output", "config", "description"];
const VALUES: &[&str] =
    &["values", "value", "contains", "text", "must_contain", "output_contains", "output_contains_any"];
const NOT_VALUES: &[&str] = &["not_contains", "must_not_contain"];
const MATCHES: &[&str] = &["must_match", "pattern", "patterns", "regex_match", "regex"];
const NOT_MATCHES: &[&str] = &["must_not_match", "regex_not_match"];
const PATHS: &[&str] = &["path", "paths", "files", "must_exist"];
const NOT_PATHS: &[&str] = &["must_not_exist", "absent"];
const CASE: &[&str] = &["ignore_case", "case_sensitive"];
const EQUALS: &[&str] = &["value", "equals", "expected"];
const RANGE: &[&str] = &["min", "max"];
const LIMITS: &[&str] = &["low", "high", "unit"];
const SECONDS: &[&str] = &["max", "duration", "limit", "seconds", "max_seconds", "max_duration", "value"];
const MILLIS: &[&str] = &["max_ms", "ms", "max_duration_ms"];

/// The settings of a grader, besides the common ones.
fn settings_of(kind: &str) -> Vec<&'static str> {
    let groups: &[&[&'static str]] = match kind {
        "text" => {
            &[VALUES, NOT_VALUES, &["contains_cs", "not_contains_cs", "contains_any"], MATCHES, NOT_MATCHES, CASE]
        }
        "file" => &[PATHS, NOT_PATHS, &["exists", "content_patterns", "contains"], NOT_VALUES, MATCHES, NOT_MATCHES],
        "file_exists" => &[PATHS, NOT_PATHS],
        "regex" => &[MATCHES, NOT_MATCHES],
        "contains" | "not_contains" | "output_contains" | "output_contains_any" => &[VALUES, NOT_VALUES, CASE],
        "output_equals" => &[EQUALS],
        "output_range" => &[RANGE],
        "measurement" => &[LIMITS],
        "max_duration" => &[SECONDS, MILLIS],
        _ => &[],
    };
    groups.concat()
}

/// One grader, as it is read.
struct Settings<'n> {
    node: &'n Node,
    inner: Option<&'n Node>,
    kind: String,
}

impl<'n> Settings<'n> {
    /// Settings stand at the top level or under `config`.
    fn get(&self, names: &[&str]) -> Option<&'n Node> {
        names.iter().find_map(|name| self.node.get(name).or_else(|| self.inner.and_then(|inner| inner.get(name))))
    }

    /// All members of these names, at both levels.
    fn all(&self, names: &[&str]) -> Vec<&'n Node> {
        let levels = std::iter::once(self.node).chain(self.inner);
        levels.flat_map(|level| names.iter().filter_map(|name| level.get(name))).collect()
    }

    /// The texts of all members of these names.
    fn texts(&self, reader: &mut Reader<'_>, names: &[&str]) -> Vec<String> {
        let name = names.first().copied().unwrap_or_default();
        self.all(names).into_iter().flat_map(|member| reader.texts(name, member)).collect()
    }

    /// Notes a setting that has several values, of which one would count: `min` at both levels, or `max` and `max_ms`.
    fn check_single(&self, reader: &mut Reader<'_>) {
        let durations = [SECONDS, MILLIS].concat();
        let own: &[&[&str]] = match self.kind.as_str() {
            "output_equals" => &[EQUALS],
            "output_range" => &[&["min"], &["max"]],
            "measurement" => &[&["low"], &["high"], &["unit"]],
            "max_duration" => &[&durations],
            "file" => &[&["exists"]],
            _ => &[],
        };
        for names in own.iter().chain(&[CASE, &["step"], &["output"], &["metric"]]) {
            let found: Vec<&str> = std::iter::once(self.node)
                .chain(self.inner)
                .flat_map(|level| names.iter().copied().filter(|name| level.get(name).is_some()))
                .collect();
            if found.len() > 1 {
                self.fault(reader, &format!("only one of these counts, so keep that one: {}", found.join(", ")));
            }
        }
    }

    fn fault(&self, reader: &mut Reader<'_>, text: &str) {
        reader.fault(self.node, format!("{}: {text}", self.kind));
    }

    /// Texts to look for. An empty one is in every text, so that it says nothing.
    fn looked_for(&self, reader: &mut Reader<'_>, names: &[&str]) -> Vec<String> {
        let texts = self.texts(reader, names);
        if texts.iter().any(String::is_empty) {
            self.fault(reader, "an empty text is in every output, so this can never fail, or never pass");
        }
        texts
    }

    fn patterns(&self, reader: &mut Reader<'_>, names: &[&str], holder: &Node) -> Vec<Regex> {
        let name = names.first().copied().unwrap_or_default();
        let found = if std::ptr::eq(holder, self.node) {
            self.all(names)
        } else {
            names.iter().filter_map(|name| holder.get(name)).collect()
        };
        let mut compiled = Vec::new();
        let patterns: Vec<_> = found
            .into_iter()
            .flat_map(|at| reader.texts(name, at).into_iter().map(move |pattern| (at, pattern)))
            .collect();
        for (at, pattern) in patterns {
            match Regex::new(&pattern) {
                Ok(regex) => {
                    if matches_everything(&regex) {
                        reader.fault(
                            at,
                            format!(
                                "{name}: `{pattern}` matches every text, so this can never {}",
                                if name.contains("not") { "pass" } else { "fail" }
                            ),
                        );
                    }
                    compiled.push(regex);
                }
                Err(error) => {
                    let why = error.to_string();
                    let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
                    reader.fault(at, format!("{name}: `{pattern}` is not a regular expression: {why}"));
                }
            }
        }
        compiled
    }

    fn paths(&self, reader: &mut Reader<'_>, names: &[&str]) -> Vec<String> {
        let paths = self.texts(reader, names);
        for path in &paths {
            if !Path::new(path).components().any(|part| matches!(part, std::path::Component::Normal(_))) {
                self.fault(reader, &format!("`{path}` is always there, so this can never fail, or never pass"));
            }
        }
        paths
    }

    fn ignores_case(&self, reader: &mut Reader<'_>, usual: bool) -> bool {
        let ignore_case = reader.flag("ignore_case", self.get(&["ignore_case"]));
        let case_sensitive = reader.flag("case_sensitive", self.get(&["case_sensitive"]));
        ignore_case.or(case_sensitive.map(|sensitive| !sensitive)).unwrap_or(usual)
    }
}

/// Whether a pattern says nothing: it matches texts that have nothing in common.
fn matches_everything(regex: &Regex) -> bool {
    static PROBES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let ascii: String = (' '..='~').chain("\t\r\n\u{7f}".chars()).collect();
        let mut probes: Vec<String> =
            ["", "a", "0", " ", "\n", "\n\n", "Z\n9", "\u{0}", "é", "\u{1f600}\u{4e2d}", "--", "_._"]
                .into_iter()
                .map(str::to_owned)
                .collect();
        probes.push(ascii.repeat(200));
        probes.push(format!("\n{ascii}\n"));
        probes
    });
    PROBES.iter().all(|probe| regex.is_match(probe))
}

#[allow(clippy::too_many_lines, reason = "an arm for each type of grader")]
fn grader(reader: &mut Reader<'_>, node: &Node) -> Option<Grader> {
    let kind = reader.required(node, "type")?;
    let inner = reader.map(node, "config");
    let own = settings_of(&kind);
    if SUPPORTED.contains(&kind.as_str()) {
        check_settings(reader, node, inner, &kind, &own);
    }
    let settings = Settings { node, inner, kind: kind.clone() };
    settings.check_single(reader);
    let mut unit = None;
    let check = match kind.as_str() {
        "file_exists" => {
            let (present, absent) = (settings.paths(reader, PATHS), settings.paths(reader, NOT_PATHS));
            if present.is_empty() && absent.is_empty() {
                settings.fault(reader, "Missing required field: path");
            }
            Check::Files { present, absent }
        }
        "file" => file(reader, &settings),
        "text" => text(reader, &settings),
        "regex" => {
            let matches = settings.patterns(reader, MATCHES, node);
            let not = settings.patterns(reader, NOT_MATCHES, node);
            if settings.texts(reader, MATCHES).is_empty() && settings.texts(reader, NOT_MATCHES).is_empty() {
                settings.fault(reader, "Missing required field: must_match or must_not_match");
            }
            Check::Regex { matches, not }
        }
        "contains" | "not_contains" | "output_contains" | "output_contains_any" => {
            let (mut values, mut not) = (settings.looked_for(reader, VALUES), settings.looked_for(reader, NOT_VALUES));
            if kind == "not_contains" {
                not.append(&mut values);
            }
            if values.is_empty() && not.is_empty() {
                settings.fault(reader, "Missing required field: value");
            }
            let ignore_case = settings.ignores_case(reader, false);
            Check::Contains { values, not, any: kind == "output_contains_any", ignore_case }
        }
        "output_equals" => {
            let wanted = settings.get(EQUALS);
            if wanted.is_none() {
                settings.fault(reader, "Missing required field: value");
            }
            Check::Equals {
                text: wanted.map(|wanted| wanted.text().unwrap_or_else(|| wanted.json())).unwrap_or_default(),
                json: wanted.map_or_else(|| "null".to_owned(), Node::json),
            }
        }
        "output_range" => {
            let (min, max) = (bound(reader, &settings, "min"), bound(reader, &settings, "max"));
            if settings.get(RANGE).is_none() {
                settings.fault(reader, "Missing required field: min or max");
            }
            let value = |bound: &Option<String>| bound.as_deref().and_then(number::decimal);
            if value(&min).zip(value(&max)).is_some_and(|(min, max)| min > max) {
                settings.fault(reader, "min is greater than max");
            }
            Check::Range { min, max }
        }
        "measurement" => {
            let check;
            (check, unit) = measurement(reader, &settings);
            if settings.get(&["output"]).is_none() {
                settings.fault(reader, "Missing required field: output");
            }
            check
        }
        "max_duration" => {
            let most = match (settings.get(SECONDS), settings.get(MILLIS)) {
                (Some(member), _) => reader.duration("max", member),
                (None, Some(member)) => {
                    let seconds = member.number().filter(|ms| *ms > 0.0).map(|ms| ms / 1000.0);
                    let most = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                    if most.is_none() {
                        reader.fault(member, "max_ms: expected a number of milliseconds");
                    }
                    most
                }
                (None, None) => {
                    settings.fault(reader, "Missing required field: max");
                    None
                }
            };
            Check::Duration { most: most.unwrap_or_default() }
        }
        other if UNSUPPORTED.contains(&other) => Check::Unsupported,
        other => {
            let at = node.get("type").unwrap_or(node);
            let meant = nearest(other, SUPPORTED).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            reader.fault(at, format!("Unknown grader type: {other}{meant} (there are {})", SUPPORTED.join(", ")));
            return None;
        }
    };
    let one = |reader: &mut Reader<'_>, name: &str| reader.text_of(name, settings.get(&[name])?);
    Some(Grader {
        name: reader.text(node, "name"),
        metric: one(reader, "metric"),
        weight: reader.number(node, "weight", 0.0..=1e6).unwrap_or(1.0),
        step: one(reader, "step"),
        output: one(reader, "output"),
        kind,
        check,
        unit,
        is_by_step: false,
        line: node.line,
    })
}

/// Notes settings that a grader does not have and that are nearly its own, or another's.
fn check_settings(reader: &mut Reader<'_>, node: &Node, inner: Option<&Node>, kind: &str, own: &[&'static str]) {
    let known: Vec<&str> = own.iter().chain(COMMON).copied().collect();
    let others: Vec<&str> = SUPPORTED.iter().flat_map(|kind| settings_of(kind)).collect();
    for (name, member) in node.members().iter().chain(inner.map(Node::members).unwrap_or_default()) {
        if known.contains(&name.as_str()) {
            continue;
        }
        if others.contains(&name.as_str()) {
            reader.warn(member, format!("{name}: a grader of type {kind} has no such setting; it has no effect"));
        } else if let Some(meant) = nearest(name, &known).or_else(|| nearest(name, &others)) {
            reader.warn(member, format!("{name}: a grader has no such member; did you mean `{meant}`?"));
        }
    }
}

/// `text`: what is found in the output, without regard to case unless the name ends in `_cs`; and patterns.
fn text(reader: &mut Reader<'_>, settings: &Settings<'_>) -> Check {
    let mut checks = Vec::new();
    let ignore_case = settings.ignores_case(reader, true);
    for (values, not, any, ignore_case) in [
        (VALUES, NOT_VALUES, false, ignore_case),
        (&["contains_cs"][..], &["not_contains_cs"][..], false, false),
        (&["contains_any"][..], &[][..], true, ignore_case),
    ] {
        let (values, not) = (settings.looked_for(reader, values), settings.looked_for(reader, not));
        if !(values.is_empty() && not.is_empty()) {
            checks.push(Check::Contains { values, not, any, ignore_case });
        }
    }
    let matches =
        settings.patterns(reader, &["regex_match", "regex", "must_match", "pattern", "patterns"], settings.node);
    let not = settings.patterns(reader, &["regex_not_match", "must_not_match"], settings.node);
    let has_patterns = settings.get(MATCHES).is_some() || settings.get(NOT_MATCHES).is_some();
    if !(matches.is_empty() && not.is_empty()) {
        checks.push(Check::Regex { matches, not });
    } else if checks.is_empty() && !has_patterns {
        settings.fault(reader, "Missing required field: contains, not_contains, regex_match or regex_not_match");
    } else if checks.is_empty() {
        settings.fault(reader, "there is nothing to look for, so this can never fail");
    }
    Check::All(checks)
}

/// `file`: files that are there, others that are not, and what is in them.
fn file(reader: &mut Reader<'_>, settings: &Settings<'_>) -> Check {
    let (mut present, mut absent) = (settings.paths(reader, PATHS), settings.paths(reader, NOT_PATHS));
    let mut checks = Vec::new();
    let node = settings.node;
    let matches = settings.patterns(reader, MATCHES, node);
    let not_matches = settings.patterns(reader, NOT_MATCHES, node);
    let (values, not_values) = (settings.looked_for(reader, &["contains"]), settings.looked_for(reader, NOT_VALUES));
    if !(matches.is_empty() && not_matches.is_empty() && values.is_empty() && not_values.is_empty()) {
        if present.is_empty() {
            settings.fault(reader, "Missing required field: path");
        }
        for path in &present {
            checks.push(Check::FileText {
                path: path.clone(),
                matches: matches.clone(),
                not_matches: not_matches.clone(),
                values: values.clone(),
                not_values: not_values.clone(),
            });
        }
    }
    for pattern in settings
        .get(&["content_patterns"])
        .map(|patterns| reader.elements("content_patterns", patterns))
        .unwrap_or_default()
    {
        let Some(path) = reader.required(pattern, "path") else { continue };
        let check = Check::FileText {
            matches: settings.patterns(reader, &["must_match", "pattern", "patterns"], pattern),
            not_matches: settings.patterns(reader, &["must_not_match"], pattern),
            values: Vec::new(),
            not_values: Vec::new(),
            path,
        };
        if pattern.get("must_match").is_none() && pattern.get("must_not_match").is_none() {
            reader.fault(pattern, "content_patterns: Missing required field: must_match or must_not_match");
        }
        checks.push(check);
    }
    if reader.flag("exists", settings.get(&["exists"])) == Some(false) {
        if !checks.is_empty() {
            settings.fault(reader, "a file that must not exist has nothing in it");
        }
        absent.append(&mut present);
    }
    if present.is_empty() && absent.is_empty() && checks.is_empty() {
        settings.fault(reader, "Missing required field: path, must_exist, must_not_exist or content_patterns");
    }
    checks.insert(0, Check::Files { present, absent });
    Check::All(checks)
}
