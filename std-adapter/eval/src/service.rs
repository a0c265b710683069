//! The service that answers the requests of one client about evals, from files and runs.

use std::path::{Path, PathBuf};

use rigline::json::RawJson;
use rigline::json::Text;
use rigline::protocol::waza::{
    Error, EvalList, EvalService, EvalSummary, Reply, RunRequest, RunState, Started, Status, TaskSummary, Validation,
};
use serde_json::Value;

use super::list::list;
use super::root::{OutsideRoot, Root};
use super::runs::{Accepted, Request, Runs, StartError};
use super::spec::{Executor, LoadError, Overrides, Spec};
use rigline_host::lines::on_one_line;

/// The service that answers one client. The runs that it accepted wait in
/// [`started`](Self::started) until the reply has been sent.
///
/// A path that the client names must lie below the [root folder](Root). A path or a link that leads
/// out of it is refused with the error -32000.
pub struct Service {
    runs: Runs,
    root: Root,
    /// An error while its text is being written.
    text: String,
    /// The accepted runs. The server starts them after it has sent the reply that names them.
    pub started: Vec<Accepted>,
}

impl Service {
    /// Makes a service of the runs `runs`, for evals below the folder `root`.
    pub fn new(runs: Runs, root: Root) -> Self {
        Self { runs, root, text: String::new(), started: Vec::new() }
    }

    /// The runs that it answers for.
    pub(super) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Reads an eval that is YAML at least.
    fn spec<'a>(&'a mut self, path: Text<'a>) -> Result<Spec, Error<'a>> {
        match self.load(path) {
            Ok(Ok((spec, _))) => Ok(spec),
            Ok(Err(LoadError::NotFound(_))) => Err(Error::NotFound { path }),
            Ok(Err(LoadError::Unreadable(fault))) => Err(self.invalid(&[fault])),
            Err(outside) => Err(self.outside(&outside)),
        }
    }

    fn load(&self, path: Text<'_>) -> Result<Result<(Spec, Vec<super::spec::Fault>), LoadError>, OutsideRoot> {
        let path = self.root.resolve(&file(path))?;
        Ok(self.root.confine(|| self.runs.load(&path, &Overrides::default())))
    }

    fn invalid(&mut self, faults: &[super::spec::Fault]) -> Error<'_> {
        Error::Invalid { errors: raw(&mut self.text, faults.iter().map(ToString::to_string)) }
    }

    fn outside(&mut self, outside: &OutsideRoot) -> Error<'_> {
        self.text = format!("Eval not found: {outside}");
        Error::PathNotAllowed(&self.text)
    }
}

fn file(path: Text<'_>) -> PathBuf {
    PathBuf::from(&*path.to_cow())
}

/// A JSON array of strings, in memory that lasts.
fn raw(memory: &mut String, texts: impl Iterator<Item = String>) -> RawJson<'_> {
    // Compact JSON has no line break, so it is always taken.
    *memory = Value::from(texts.collect::<Vec<_>>()).to_string();
    RawJson::from_checked_str(memory).expect("compact JSON has no line break")
}

impl EvalService for Service {
    fn list<'a>(&'a mut self, directory: Option<Text<'a>>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let directory = directory.filter(|directory| directory.chars().next().is_some());
        let said = directory.map_or_else(|| PathBuf::from("."), file);
        let folder = match self.root.resolve(&said) {
            Ok(folder) => folder,
            Err(outside) => return Err(self.outside(&outside)),
        };
        if let Some(path) = directory.filter(|_| !folder.exists()) {
            return Err(Error::NotFound { path });
        }
        let listing = self.root.confine(|| list(&folder));
        // They begin with the folder as the client calls it.
        let as_said = |path: &Path| match path.strip_prefix(&folder) {
            Ok(rest) if rest.as_os_str().is_empty() => said.clone(),
            Ok(rest) => said.join(rest),
            Err(_) => path.to_owned(),
        };
        let paths: Vec<_> = listing.evals.iter().map(|eval| as_said(&eval.path)).collect();
        let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
        let evals: Vec<_> = listing
            .evals
            .iter()
            .zip(&paths)
            .map(|(eval, path)| EvalSummary {
                path: Some(path),
                name: Some(&eval.name),
                skill: eval.skill.as_deref(),
                version: eval.version.as_deref(),
                ..EvalSummary::default()
            })
            .collect();
        let errors: Vec<&str> = listing.errors.iter().map(String::as_str).collect();
        let errors = (!errors.is_empty()).then_some(&*errors);
        reply.send(&EvalList { evals: Some(&evals), errors, ..EvalList::default() });
        Ok(())
    }

    fn get<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let spec = self.spec(path)?;
        let said = path.to_cow();
        let mut members = Members::default();
        members.text("path", Some(&said));
        members.text("name", Some(&spec.name));
        members.text("description", spec.description.as_deref());
        members.text("skill", spec.skill.as_deref());
        members.text("version", spec.version.as_deref());
        // The text's members first.
        let is_known = |name: &str| matches!(name, "config" | "metrics");
        for (name, json) in spec.members.iter().filter(|(name, _)| is_known(name)) {
            members.raw(name, json);
        }
        // A member `path` of the file would duplicate ours.
        for (name, json) in spec.members.iter().filter(|(name, _)| !is_known(name) && name != "path") {
            members.raw(name, json);
        }
        members.send(reply);
        Ok(())
    }

    fn validate<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let (spec, faults) = match self.load(path) {
            Ok(Ok((spec, faults))) => (Some(spec), faults),
            Ok(Err(LoadError::NotFound(_))) => return Err(Error::NotFound { path }),
            Ok(Err(LoadError::Unreadable(fault))) => (None, vec![fault]),
            Err(outside) => return Err(self.outside(&outside)),
        };
        let errors: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let errors: Vec<&str> = errors.iter().map(String::as_str).collect();
        let valid = errors.is_empty();
        let spec = spec.as_ref().filter(|_| valid);
        reply.send(&Validation {
            valid: Some(valid),
            name: spec.map(|spec| spec.name.as_str()),
            skill: spec.and_then(|spec| spec.skill.as_deref()),
            errors: (!valid).then_some(&*errors),
            ..Validation::default()
        });
        Ok(())
    }

    fn tasks<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let spec = self.spec(path)?;
        let tasks: Vec<_> = spec
            .tasks
            .iter()
            .map(|task| TaskSummary {
                id: Some(&task.id),
                name: Some(&task.name),
                description: task.description.as_deref(),
                file: Some(&task.file),
                ..TaskSummary::default()
            })
            .collect();
        reply.send(&rigline::protocol::waza::TaskList { tasks: Some(&tasks), ..Default::default() });
        Ok(())
    }

    fn task<'a>(&'a mut self, path: Text<'a>, task: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let spec = self.spec(path)?;
        let id = task.to_cow();
        let Some(found) = spec.tasks.iter().find(|task| task.id == *id) else { return Err(Error::UnknownTask(task)) };
        let mut members = Members::default();
        members.text("id", Some(&found.id));
        members.text("name", Some(&found.name));
        members.text("description", found.description.as_deref());
        members.text("prompt", found.shown_prompt.as_deref());
        members.raw("graders", &found.graders_json);
        for (name, json) in &found.members {
            members.raw(name, json);
        }
        members.send(reply);
        Ok(())
    }

    fn run<'a>(&'a mut self, run: &RunRequest<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let text = |text: Option<Text<'a>>| text.map(|text| text.to_cow().into_owned()).filter(|text| !text.is_empty());
        let context_dir = text(run.context_dir).map(PathBuf::from);
        let context_dir = context_dir.map(|folder| self.root.resolve(&folder)).transpose();
        let (path, context_dir) = match self.root.resolve(&file(run.path)).and_then(|path| Ok((path, context_dir?))) {
            Ok(paths) => paths,
            Err(outside) => return Err(self.outside(&outside)),
        };
        let mut request = Request { path, verbose: run.verbose, ..Request::default() };
        request.overrides.executor = text(run.executor);
        request.overrides.model = text(run.model);
        request.context_dir = context_dir;
        match self.root.confine(|| self.runs.accept(&request)) {
            Ok(accepted) => {
                reply.send(&Started {
                    run_id: Some(accepted.id()),
                    status: Some(RunState::Running),
                    ..Started::default()
                });
                self.started.push(accepted);
                Ok(())
            }
            Err(StartError::NotFound(_)) => Err(Error::NotFound { path: run.path }),
            Err(StartError::Invalid(faults)) => Err(self.invalid(&faults)),
            Err(StartError::UnknownExecutor(_)) => Err(Error::UnknownExecutor {
                // It is there, or it could not be unknown.
                name: run.executor.unwrap_or(run.path),
                known: raw(&mut self.text, Executor::known().map(str::to_owned)),
            }),
            Err(other) => {
                self.text = other.to_string();
                Err(Error::RunFailed(&self.text))
            }
        }
    }

    fn status<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let id = run.to_cow();
        match self.runs.look(&id) {
            Ok(Some(stored)) => {
                let has_ended = stored.state != RunState::Running;
                reply.send(&Status {
                    run_id: Some(&id),
                    status: Some(stored.state),
                    result: has_ended.then_some(stored.summary),
                    error: stored.error.as_deref(),
                    ..Status::default()
                });
                Ok(())
            }
            Ok(None) => Err(Error::UnknownRun(run)),
            Err(error) => {
                self.text = format!("the run's file cannot be read: {error}");
                Err(Error::Internal(&self.text))
            }
        }
    }

    fn cancel<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
        let id = run.to_cow();
        match self.runs.cancel(&id) {
            Ok(Some(state)) => {
                reply.send(&Started { run_id: Some(&id), status: Some(state), ..Started::default() });
                Ok(())
            }
            Ok(None) => Err(Error::UnknownRun(run)),
            Err(error) => {
                self.text = error.to_string();
                Err(Error::Internal(&self.text))
            }
        }
    }
}

/// An object with whatever members, as JSON texts.
#[derive(Default)]
struct Members(Vec<String>);

impl Members {
    fn text(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.raw(name, &Value::from(text).to_string());
        }
    }

    fn raw(&mut self, name: &str, json: &str) {
        self.0.push(format!("{}:{}", Value::from(name), on_one_line(json)));
    }

    fn send(&self, reply: &mut Reply<'_, '_>) {
        let text = format!("{{{}}}", self.0.join(","));
        reply.send(&RawJson::from_checked_str(&text).unwrap_or(RawJson::NULL));
    }
}
