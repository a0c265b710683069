//! `rigline eval run`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use clap::Args;
use rigline_eval::report::{Results, report};
use rigline_eval::run::{OnEvent, Outcome};
use rigline_eval::runs::{Request, Runs, StartError};
use rigline_eval::session::Hosts;
use rigline_eval::store::Store;
use rigline_eval::{Fault, Spec};
use rigline_host::files;
use rigline_host::record::Recorder;
use rigline_host::terminal;
use rigline_std::signals::Signals;
use rigline_std::sync::lock;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::junit::as_junit;
use super::progress::Show;
use super::table::show;
use super::{Done, Wanted, assignment, placed, wanted};
use crate::connect::{self, Failure};
use crate::exit;
use crate::files::is_stdout;
use crate::jsonrpc::store;
use crate::out::{self, complain, print_json};
use crate::record::{self, RecordArguments};
use crate::reports::{self, GitHub, ReportArguments, Watched};

/// Run evals. Exits with 1 if one does not pass, with 3 if the rig is the reason
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
pub(super) struct Run {
    /// Evals, folders of them, or task files of an eval
    #[arg(default_value = ".", value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// The target that steps call, instead of the one in the file: sim, exec:PROGRAM, serial:auto, tcp:HOST:PORT …
    #[arg(long)]
    target: Option<String>,
    /// The executor, instead of the one in the file: mock, command, extension
    #[arg(long)]
    executor: Option<String>,
    /// The model, instead of the one in the file
    #[arg(long)]
    model: Option<String>,
    /// Set one of the eval's inputs, or a name of matrix and for
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Only tasks with this in their id, name or tags
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// The directory that tasks run in: the eval's own by default
    #[arg(long, value_name = "DIR")]
    context_dir: Option<PathBuf>,
    /// Refuse an eval that may have a mistake in it, such as a member with a name that is nearly a known one
    #[arg(long)]
    strict: bool,
    /// How long to wait for a busy port, or for a device that is not plugged in, such as 60s
    #[arg(long, value_name = "DURATION", value_parser = connect::duration, default_value = "0s", hide_default_value = true)]
    wait: Duration,
    /// Write a JUnit report; - is standard output
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    reports: ReportArguments,
    /// Print all results as one JSON value, instead of the table
    #[arg(long)]
    json: bool,
    /// Write all results as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// The folder for the records of runs [default: the user's state folder]
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    #[command(flatten)]
    record: RecordArguments,
    /// Show debug logs too
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
    /// Show no progress and no logs
    #[arg(long, short)]
    quiet: bool,
}

impl Run {
    pub(super) fn run(self) -> Result<u8, Failure> {
        self.reports_can_be_written()?;
        let (evals, errors) = wanted(&self.paths)?;
        let is_eval =
            |report: &Path| evals.iter().any(|eval| crate::files::place(&eval.path) == crate::files::place(report));
        if let Some((option, path)) = self.files().find(|(_, path)| is_eval(path)) {
            return Err(Failure::usage(format!("{option} {}: this is an eval, which would be lost", path.display())));
        }
        let recorder = self.record.begin(self.target.as_deref().unwrap_or_default())?;
        let (runs, store) = self.runs(recorder.clone())?;
        let began = SystemTime::now();
        let github = GitHub::begin();
        let (done, interrupted) = connect::on_threads(async {
            let mut signals = Signals::new().map_err(Failure::failed)?;
            let interrupted = Arc::new(Mutex::new(None));
            let interruption = Arc::new(Notify::new());
            {
                let (runs, interrupted, interruption) = (runs.clone(), interrupted.clone(), interruption.clone());
                tokio::spawn(async move {
                    let code = signals.next().await;
                    *lock(&interrupted) = Some(code);
                    complain(format_args!("rigline: cancelling; cleanup steps run. Once more ends at once"));
                    runs.cancel_all();
                    interruption.notify_one();
                    std::process::exit(signals.next().await.into());
                });
            }
            let mut done = Vec::new();
            let checked = tokio::select! {
                checked = self.checked(&evals) => checked,
                () = interruption.notified() => Vec::new(),
            };
            if checked.iter().any(|faults| !faults.is_empty()) {
                let unusable = |faults: Vec<Fault>| {
                    if faults.is_empty() { StartError::Beside } else { StartError::Invalid(faults) }
                };
                let done = evals.into_iter().zip(checked).map(|(wanted, faults)| Done {
                    path: wanted.path,
                    run: Err(unusable(faults)),
                    watched: Watched::new(),
                });
                return Ok((done.collect(), *lock(&interrupted)));
            }
            for wanted in evals {
                if lock(&interrupted).is_some() {
                    break;
                }
                let watched = Watched::new();
                let run = self.one(&runs, &wanted, &watched).await;
                done.push(Done { path: wanted.path, run, watched });
            }
            let code = *lock(&interrupted);
            Ok((done, code))
        })?;
        let code = interrupted.unwrap_or_else(|| code(&done, !errors.is_empty()));
        let results = || {
            let runs = done.iter().filter_map(|done| Some((&*done.run.as_ref().ok()?.1, &*done.watched)));
            let runs: Vec<(&Spec, &Watched)> = runs.collect();
            reports::results(as_json(&done, &errors, code), &runs, &store, began)
        };
        let code = self.tell(&done, &errors, code, &results);
        if let Some(github) = github {
            github.end(&results());
        }
        Ok(recorder.map_or(code, |recorder| end_recording(&recorder, &done, &errors, code)))
    }

    /// Finds out before anything is run that a report could not be written.
    fn reports_can_be_written(&self) -> Result<(), Failure> {
        let reports: Vec<(&str, Option<&Path>)> = self.files().map(|(option, path)| (option, Some(path))).collect();
        crate::files::ensure_reports(&reports, self.json.then_some("--json"))
    }

    /// The options of reports, with their files.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let own = [("--junit", self.junit.as_deref()), ("--json-file", self.json_file.as_deref())];
        own.into_iter().chain(self.reports.files()).filter_map(|(option, path)| Some((option, path?)))
    }

    fn runs(&self, recorder: Option<Arc<Recorder>>) -> Result<(Runs, Store), Failure> {
        let store = store(self.runs.clone())?;
        let hosts = Hosts { wait: self.wait, recorder, ..Hosts::default() };
        Ok((Runs::with_connect(store.clone(), None, Arc::new(hosts)), store))
    }

    /// The mistakes of each eval that its target's description shows, before one of several is run. A single eval finds them itself.
    async fn checked(&self, evals: &[Wanted]) -> Vec<Vec<Fault>> {
        let [_, _, ..] = evals else { return Vec::new() };
        // It waits for no board, and leaves nothing in a recording.
        let Ok(store) = store(self.runs.clone()) else { return Vec::new() };
        let runs = Runs::with_connect(store, None, Arc::new(Hosts::default()));
        let requests: Vec<Request> = evals.iter().map(|wanted| self.request(wanted)).collect();
        runs.mistakes(&requests).await
    }

    fn request(&self, wanted: &Wanted) -> Request {
        let mut request = Request::default();
        request.path.clone_from(&wanted.path);
        request.task_file.clone_from(&wanted.task_file);
        request.overrides.executor.clone_from(&self.executor);
        request.overrides.model.clone_from(&self.model);
        request.overrides.target.clone_from(&self.target);
        request.overrides.set.clone_from(&self.set);
        request.verbose = self.verbose;
        request.context_dir.clone_from(&self.context_dir);
        request.filter.clone_from(&self.filter);
        request.strict = self.strict;
        request
    }

    async fn one(
        &self,
        runs: &Runs,
        wanted: &Wanted,
        watched: &Arc<Watched>,
    ) -> Result<(String, Arc<Spec>, Arc<Outcome>), StartError> {
        let accepted = runs.accept(&self.request(wanted))?;
        let (id, spec) = (accepted.id().to_owned(), accepted.spec().clone());
        for warning in &spec.warnings {
            complain(format_args!("{}", placed(warning, "warning: ")));
        }
        let show = Show::new(&spec, self.quiet);
        let watched = Arc::clone(watched);
        let on_event: OnEvent = Arc::new(move |event| {
            watched.event(&event);
            show.event(&event);
        });
        let (sender, outcome) = tokio::sync::oneshot::channel();
        accepted.launch(&tokio::runtime::Handle::current(), on_event, move |outcome| drop(sender.send(outcome)));
        match outcome.await {
            Ok(outcome) => Ok((id, spec, outcome)),
            Err(_) => Err(StartError::Store(std::io::Error::other("the run panicked"))),
        }
    }

    /// Prints the table and writes the reports. If one cannot be written, the others are still written. Returns the
    /// exit code, which includes such failures.
    fn tell(&self, done: &[Done], errors: &[String], code: u8, results: &dyn Fn() -> Results) -> u8 {
        for Done { path, run, .. } in done {
            if let Ok((_, _, outcome)) = run
                && !outcome.mistakes.is_empty()
            {
                complain_of(path, &outcome.mistakes);
            }
            if let Err(error) = run {
                match error {
                    StartError::Invalid(faults) => complain_of(path, faults),
                    StartError::NotFound(missing) if missing == path => {
                        complain(format_args!("rigline: {}: there is no such file or folder", path.display()));
                    }
                    _ => complain(format_args!("rigline: {}: {error}", path.display())),
                }
            }
        }
        let takes_stdout = self.json || self.files().any(|(_, path)| is_stdout(path));
        if !takes_stdout {
            show(done);
        }
        let mut has_written = true;
        let mut write = |path: &Path, text: &str| has_written &= write_report(path, text);
        if let Some(path) = &self.junit {
            write(path, &as_junit(done, errors, &self.attachments(done)));
        }
        if self.reports.is_wanted() {
            self.reports.write(&results(), &mut write);
        }
        // Those with the exit code in them come last.
        let json_text = |has_written: bool| format!("{:#}\n", as_json(done, errors, with_reports(code, has_written)));
        if let Some(path) = &self.json_file {
            has_written &= write_report(path, &terminal::json(&json_text(has_written)));
        }
        if self.json {
            print_json(&json_text(has_written));
        }
        with_reports(code, has_written)
    }

    /// Files that belong to each run: its record, and the folder of `--record`.
    fn attachments(&self, done: &[Done]) -> HashMap<String, Vec<PathBuf>> {
        let folder = self.runs.clone().or_else(|| Store::default_folder().ok());
        let of = |id: &str| {
            let kept = folder.iter().map(|folder| folder.join(format!("{id}.jsonl")));
            let recorded = self.record.folder().into_iter().map(|folder| folder.join("session.jsonl"));
            kept.chain(recorded).filter_map(|path| std::path::absolute(path).ok()).collect()
        };
        let ids = done.iter().filter_map(|done| done.run.as_ref().ok()).map(|(id, ..)| id);
        ids.map(|id| (id.clone(), of(id))).collect()
    }
}

fn complain_of(eval: &Path, faults: &[Fault]) {
    complain(format_args!("rigline: {} is not valid:", eval.display()));
    faults.iter().for_each(|fault| complain(format_args!("  {fault}")));
}

/// Ends a recording with the report, all measurements and outputs, and the files that the evals are made of.
fn end_recording(recorder: &Recorder, done: &[Done], errors: &[String], code: u8) -> u8 {
    let runs = || done.iter().filter_map(|done| done.run.as_ref().ok());
    recorder.say("files", record::eval_files(runs().map(|(_, spec, _)| &**spec)));
    recorder.say("runs", runs().map(|(id, ..)| id.as_str()).collect());
    let mut values = String::new();
    for (id, spec, outcome) in runs() {
        for record in &outcome.tasks {
            let task = spec.tasks.get(record.task).map(|task| &task.id);
            for trial in &record.trials {
                for measured in trial.grades.iter().filter_map(|grade| grade.measurement.as_ref()) {
                    let value = json!({
                        "run": id, "eval": spec.name, "task": task, "trial": trial.number, "measurement": measured.to_json(),
                    });
                    values += &format!("{value}\n");
                }
                for step in &trial.steps {
                    for (output, value) in &step.outputs {
                        let value = json!({
                            "run": id, "eval": spec.name, "task": task, "trial": trial.number,
                            "step": step.id, "operation": step.operation, "output": output, "value": value,
                        });
                        values += &format!("{value}\n");
                    }
                }
            }
        }
    }
    let report = format!("{:#}\n", as_json(done, errors, code));
    record::finish(recorder, &[("report.json", report), ("values.jsonl", values)], code)
}

/// Whether a report was written.
fn write_report(path: &Path, text: &str) -> bool {
    if is_stdout(path) {
        out::print_file(text);
        return true;
    }
    match files::write(path, text.as_bytes()) {
        Ok(()) => true,
        Err(error) => {
            out::complain_of_failure(&format!("{}: {error}", path.display()));
            false
        }
    }
}

/// The exit code, when a report could perhaps not be written.
fn with_reports(code: u8, has_written: bool) -> u8 {
    if has_written || code != exit::SUCCESS { code } else { exit::FAILED }
}

/// The exit code of runs: runs that could not begin count before runs that failed.
fn code(done: &[Done], has_errors: bool) -> u8 {
    let runs = || done.iter().map(|done| done.run.as_ref());
    let is_unusable = |error: &StartError| !matches!(error, StartError::TooMany | StartError::Ending);
    if has_errors || runs().any(|run| run.is_err_and(is_unusable)) {
        return exit::USAGE;
    }
    let outcomes = || runs().filter_map(Result::ok).map(|(_, _, outcome)| outcome);
    if outcomes().any(|outcome| outcome.has_mistake()) {
        return exit::USAGE;
    }
    let all_passed = runs().all(|run| run.is_ok_and(|(_, _, outcome)| outcome.passed));
    let not_passed = || outcomes().filter(|outcome| !outcome.passed);
    match () {
        () if all_passed => exit::SUCCESS,
        () if runs().all(|run| run.is_ok()) && not_passed().all(|outcome| outcome.is_late()) => exit::TIMED_OUT,
        // A failure of the board is known, whatever the rig did elsewhere.
        () if outcomes().any(|outcome| outcome.has_failure()) => exit::FAILED,
        () if outcomes().any(|outcome| outcome.has_rig_error()) => exit::NO_ANSWER,
        () => exit::FAILED,
    }
}

fn as_json(done: &[Done], errors: &[String], code: u8) -> Value {
    let reports: Vec<Value> = done
        .iter()
        .filter_map(|done| done.run.as_ref().ok())
        .map(|(id, spec, outcome)| report(spec, id, outcome))
        .collect();
    let unusable = done.iter().filter_map(|done| Some((&done.path, done.run.as_ref().err()?)));
    let mut faults: Vec<Value> =
        unusable.map(|(path, error)| json!({ "path": path.to_string_lossy(), "error": error.to_string() })).collect();
    faults.extend(errors.iter().map(|error| json!({ "path": null, "error": error })));
    json!({ "success": code == exit::SUCCESS, "exit_code": code, "runs": reports, "errors": faults })
}
