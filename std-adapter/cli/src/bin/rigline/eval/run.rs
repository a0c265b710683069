//! `rigline eval run`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use rigline::protocol::waza::RunState;
use rigline_eval::report::junit::junit;
use rigline_eval::report::{self, Measured, Results, UnrunnableEval};
use rigline_eval::run::{OnEvent, RunOutcome};
use rigline_eval::runs::{Request, Runs, StartError};
use rigline_eval::session::Hosts;
use rigline_eval::store::Store;
use rigline_eval::{Fault, Spec};
use rigline_host::files;
use rigline_host::record::Recorder;
use rigline_host::terminal;
use rigline_std::clock::unix_millis;
use rigline_std::mutex::lock;
use rigline_std::signals::Signals;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;

use super::progress::Show;
use super::table::show;
use super::{Done, Wanted, assignment, placed, wanted};
use crate::connect::{self, Failure};
use crate::credentials::Credentials;
use crate::exit;
use crate::files::is_stdout;
use crate::jsonrpc::store;
use crate::lab::Rigs;
use crate::out::{self, complain, print_json};
use crate::record::{self, RecordArguments};
use crate::reports::{self, GitHub, ReportArguments, Watched};

/// Run evals
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all evals passed; 1 one did not pass; 2 a wrong command line, an unusable file or a mistake in an eval; 3 the rig is the reason why one did not pass; 124 those that did not pass ran out of time; 128+n ended by signal n."
)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
pub(super) struct Run {
    /// Evals, folders of them, or task files of an eval
    #[arg(default_value = ".", value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// The target that steps call, instead of the one in the file: sim, exec:PROGRAM, serial:auto, tcp:HOST:PORT …
    #[arg(long)]
    target: Option<String>,
    /// The rigs of the lab that the tasks are spread over: a rig's name, or tags as KEY=VALUE,…
    /// (see `rigline lab list`). The prefix `rig:` may be left out
    #[arg(long, value_name = "SELECTOR", conflicts_with = "target")]
    rig: Option<String>,
    /// The number of rigs [default: 1]. The run begins when it has all of them. A task whose rig
    /// fails runs again on another one
    #[arg(long, value_name = "N", requires = "rig", default_value_t = 1, hide_default_value = true)]
    shards: usize,
    /// The executor, instead of the one in the file: mock, command, extension
    #[arg(long)]
    executor: Option<String>,
    /// The model, instead of the one in the file
    #[arg(long)]
    model: Option<String>,
    /// Set an input of the eval. If NAME is a name in `matrix` or `for`, only this value of it is used. May be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Only tasks with this in their id, name or tags
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// The directory that tasks run in: the eval's own by default
    #[arg(long, value_name = "DIR")]
    context_dir: Option<PathBuf>,
    /// Do not run an eval that may have a mistake in it, such as a member with a name that is nearly a known one
    #[arg(long)]
    strict: bool,
    /// How long to wait for rigs of the lab, for a busy port, or for a device that is not plugged in, such as 60s
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
    /// Add this entry to every report, such as operator=Ada or station=3; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    meta: Vec<(String, String)>,
    #[command(flatten)]
    credentials: Credentials,
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
        let begun = Begun::now();
        let (evals, unreadable) = wanted(&self.paths);
        let inputs: Vec<PathBuf> =
            evals.iter().map(|eval| &eval.path).chain(&self.paths).map(|path| crate::files::place(path)).collect();
        let are_writable = self.reports_can_be_written(&inputs);
        let write_failed: &dyn Fn(&Path, &str) = match are_writable {
            Ok(()) => &|path, text| {
                write_report(path, text);
            },
            // The others are still reports of this command.
            Err(_) => &|path, text| {
                if !is_stdout(path) && !inputs.contains(&crate::files::place(path)) {
                    let _ = files::write(path, text.as_bytes());
                }
            },
        };
        let mut recorder = None;
        let ended = are_writable.and_then(|()| {
            self.begin_reports();
            self.run_all(evals, &unreadable?, &begun, &mut recorder)
        });
        let (code, results) = match ended {
            Ok(ended) => ended,
            Err(failure) => {
                let results = self.without_runs(&failure, &begun);
                self.write_all_reports(&results, &BTreeMap::new(), write_failed);
                begun.end(&results, recorder.as_deref(), failure.code);
                return Err(failure);
            }
        };
        Ok(begun.end(&results, recorder.as_deref(), code))
    }

    /// The results of a command that fails before its runs, or without them.
    fn without_runs(&self, failure: &Failure, begun: &Begun) -> Results {
        let mut results = begun.results(self.meta().unwrap_or_default());
        results.errors.push(UnrunnableEval::new(None, failure.text.as_str()));
        results.exit_code = Some(failure.code);
        results
    }

    #[allow(clippy::too_many_lines, reason = "the steps of a run, in their order")]
    fn run_all(
        &self,
        evals: Vec<Wanted>,
        errors: &[String],
        begun: &Begun,
        recorder: &mut Option<Arc<Recorder>>,
    ) -> Result<(u8, Results), Failure> {
        let meta = self.meta()?;
        *recorder = self.record.begin(self.target.as_deref().unwrap_or_default())?;
        let (runs, store) = self.runs(recorder.clone())?;
        let (done, left, signal) = connect::on_threads(async {
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
            let (mut done, mut left) = (Vec::new(), Vec::new());
            let rigs = tokio::select! {
                rigs = self.rigs() => rigs?,
                () = interruption.notified() => {
                    let code = lock(&interrupted).unwrap_or_default();
                    return Err(Failure { code, text: "interrupted while it waited for rigs".to_owned() });
                }
            };
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
                let done = done.collect();
                rigs.give_back().await;
                return Ok((done, left, *lock(&interrupted)));
            }
            for wanted in evals {
                if lock(&interrupted).is_some() {
                    left.push(wanted.path);
                    continue;
                }
                let watched = Watched::new();
                let run = self.one(&runs, &wanted, rigs.targets(), &watched, recorder.as_deref()).await;
                done.push(Done { path: wanted.path, run, watched });
            }
            rigs.give_back().await;
            let code = *lock(&interrupted);
            Ok((done, left, code))
        })?;
        // A signal that came when all was done ends nothing.
        let is_cut_off = |done: &Done| match &done.run {
            Ok((_, _, outcome)) => outcome.state == RunState::Cancelled,
            Err(error) => matches!(error, StartError::Ending),
        };
        let signal = signal.filter(|_| !left.is_empty() || done.iter().any(is_cut_off));
        let mut results = begun.results(meta);
        let recording = self.record.folder().and_then(|folder| std::path::absolute(folder).ok());
        results.recording = recording.map(shown);
        let by = signal.map(signal_name);
        let has_hashes = self.reports.has_page() || recorder.is_some();
        for Done { path, run, watched } in &done {
            match run {
                Ok((id, spec, outcome)) => {
                    let mut run = report::Run::from_outcome(spec, id, outcome);
                    if let Some(cause) = by {
                        run = run.interrupted_by(cause);
                    }
                    (run.started_at_ms, run.logs) = (watched.began_at_ms(), watched.logs());
                    if has_hashes {
                        (run.programs, run.files) = (record::eval_programs(spec), record::eval_files(spec));
                    }
                    if self.reports.has_page() {
                        match report::earlier(&store, &run) {
                            Ok(earlier) => run.earlier = earlier,
                            Err(error) => complain(format_args!("rigline: the report has no trend: {error}")),
                        }
                    }
                    results.runs.push(run);
                }
                Err(error) => results.errors.push(UnrunnableEval::new(Some(shown(path)), error.to_string())),
            }
        }
        let why = format!("it was not run: the command was cut off by {}", by.unwrap_or_default());
        results.errors.extend(left.iter().map(|path| UnrunnableEval::new(Some(shown(path)), why.as_str())));
        results.errors.extend(errors.iter().map(|error| UnrunnableEval::new(None, error.as_str())));
        results.number();
        let code = signal.unwrap_or_else(|| code(&done, !errors.is_empty()));
        (results.exit_code, results.success) = (Some(code), code == exit::SUCCESS);
        let code = self.tell(&done, &mut results);
        Ok((code, results))
    }

    /// The facts of `--meta`.
    fn meta(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut meta = BTreeMap::new();
        for (key, value) in &self.meta {
            if meta.insert(key.clone(), value.clone()).is_some() {
                return Err(Failure::usage(format!("--meta {key}: it is given twice")));
            }
        }
        Ok(meta)
    }

    /// Writes reports that say that the command has not ended, in the place of those of earlier runs.
    fn begin_reports(&self) {
        let unfinished = reports::unfinished();
        self.write_all_reports(&unfinished, &BTreeMap::new(), |path, text| {
            if !is_stdout(path) {
                write_report(path, text);
            }
        });
    }

    /// Writes the reports, and JSON as the last of them.
    fn write_all_reports(
        &self,
        results: &Results,
        attachments: &BTreeMap<String, Vec<PathBuf>>,
        mut write: impl FnMut(&Path, &str),
    ) {
        self.write_reports(results, attachments, &mut write);
        if let Some(path) = &self.json_file {
            write(path, &terminal::json(&results.to_json()));
        }
    }

    /// Writes the reports other than JSON.
    fn write_reports(
        &self,
        results: &Results,
        attachments: &BTreeMap<String, Vec<PathBuf>>,
        mut write: impl FnMut(&Path, &str),
    ) {
        if let Some(path) = &self.junit {
            write(path, &junit(results, attachments));
        }
        self.reports.write(results, write);
    }

    /// Finds out before anything is run that a report could not be written, or would be written over one of the `inputs`.
    fn reports_can_be_written(&self, inputs: &[PathBuf]) -> Result<(), Failure> {
        let reports: Vec<(&str, Option<&Path>)> = self.files().map(|(option, path)| (option, Some(path))).collect();
        crate::files::ensure_reports(&reports, self.json.then_some("--json"))?;
        match self.files().find(|(_, path)| inputs.contains(&crate::files::place(path))) {
            Some((option, path)) => {
                Err(Failure::usage(format!("{option} {}: this is an eval, which would be lost", path.display())))
            }
            None => Ok(()),
        }
    }

    /// The options of reports, with their files.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let own = [("--junit", self.junit.as_deref()), ("--json-file", self.json_file.as_deref())];
        own.into_iter().chain(self.reports.files()).filter_map(|(option, path)| Some((option, path?)))
    }

    fn runs(&self, recorder: Option<Arc<Recorder>>) -> Result<(Runs, Store), Failure> {
        let store = store(self.runs.clone())?;
        let hosts = Hosts { wait: self.wait, recorder, credentials: self.credentials()?, ..Hosts::default() };
        Ok((Runs::with_connect(store.clone(), None, Arc::new(hosts)), store))
    }

    /// The credentials that targets over HTTP are sent. Without `--target`, the evals name the targets.
    fn credentials(&self) -> Result<rigline_host::Credentials, Failure> {
        match &self.target {
            Some(target) => self.credentials.read(&target.parse().map_err(Failure::usage)?),
            None => self.credentials.read_for_any(),
        }
    }

    /// The rigs of the lab, if the run is spread among such.
    async fn rigs(&self) -> Result<Rigs, Failure> {
        match &self.rig {
            Some(selector) => Rigs::take(selector, self.shards, self.wait).await,
            None => Ok(Rigs::none()),
        }
    }

    /// The mistakes of each eval that its target's description shows, before one of several is run. A single eval finds them itself.
    async fn checked(&self, evals: &[Wanted]) -> Vec<Vec<Fault>> {
        let [_, _, ..] = evals else { return Vec::new() };
        // It waits for no board, and leaves nothing in a recording.
        let Ok(store) = store(self.runs.clone()) else { return Vec::new() };
        let hosts = Hosts { credentials: self.credentials().unwrap_or_default(), ..Hosts::default() };
        let runs = Runs::with_connect(store, None, Arc::new(hosts));
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
        if let Some(rig) = &self.rig {
            request.overrides.target = Some(format!("rig:{}", rig.strip_prefix("rig:").unwrap_or(rig)));
        }
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
        rigs: &[String],
        watched: &Arc<Watched>,
        recorder: Option<&Recorder>,
    ) -> Result<(String, Arc<Spec>, Arc<RunOutcome>), StartError> {
        let mut request = self.request(wanted);
        request.shards = rigs.to_vec();
        let accepted = runs.accept(&request)?;
        let (id, spec) = (accepted.id().to_owned(), accepted.spec().clone());
        if let (Some(recorder), None, Some(target)) = (recorder, &self.target, &spec.config.target) {
            recorder.say("target", spec.hidden(target).into());
        }
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
    fn tell(&self, done: &[Done], results: &mut Results) -> u8 {
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
            show(results);
        }
        let mut has_written = true;
        let mut write = |path: &Path, text: &str| has_written &= write_report(path, text);
        self.write_reports(results, &self.attachments(results), &mut write);
        // Those with the exit code in them come last.
        let code = results.exit_code.unwrap_or(exit::FAILED);
        let mut json_text = |has_written: bool| {
            let code = with_reports(code, has_written);
            (results.exit_code, results.success) = (Some(code), code == exit::SUCCESS);
            results.to_json()
        };
        if let Some(path) = &self.json_file {
            has_written &= write_report(path, &terminal::json(&json_text(has_written)));
        }
        let json = json_text(has_written);
        if self.json {
            print_json(&json);
        }
        with_reports(code, has_written)
    }

    /// Files that belong to each run: its record, and the folder of `--record`.
    fn attachments(&self, results: &Results) -> BTreeMap<String, Vec<PathBuf>> {
        let folder = self.runs.clone().or_else(|| Store::default_folder().ok());
        let of = |id: &str| {
            let kept = folder.iter().map(|folder| folder.join(format!("{id}.jsonl")));
            let recorded = self.record.folder().into_iter().map(|folder| folder.join("session.jsonl"));
            kept.chain(recorded).filter_map(|path| std::path::absolute(path).ok()).collect()
        };
        let ids = results.runs.iter().map(|run| &run.run_id);
        ids.map(|id| (id.clone(), of(id))).collect()
    }
}

/// When the command began, and GitHub Actions if it runs there.
struct Begun {
    at: SystemTime,
    clock: Instant,
    github: Option<GitHub>,
}

impl Begun {
    fn now() -> Self {
        Self { at: SystemTime::now(), clock: Instant::now(), github: GitHub::begin() }
    }

    /// Results without runs, up to now.
    fn results(&self, meta: BTreeMap<String, String>) -> Results {
        let mut results = Results::default();
        (results.started_at_ms, results.duration_ms) = (unix_millis(self.at), millis(self.clock.elapsed()));
        (results.meta, results.host) = (meta, Some(reports::host()));
        results
    }

    /// Ends what GitHub Actions shows, and the recording. Returns the exit code.
    fn end(self, results: &Results, recorder: Option<&Recorder>, code: u8) -> u8 {
        if let Some(github) = self.github {
            github.end(results);
        }
        recorder.map_or(code, |recorder| end_recording(recorder, results, code))
    }
}

fn complain_of(eval: &Path, faults: &[Fault]) {
    complain(format_args!("rigline: {} is not valid:", eval.display()));
    faults.iter().for_each(|fault| complain(format_args!("  {fault}")));
}

/// Milliseconds, as reports have them.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn shown(path: impl AsRef<Path>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

/// The name of the signal that an exit code stands for.
fn signal_name(code: u8) -> &'static str {
    match code {
        129 => "SIGHUP",
        130 => "SIGINT",
        143 => "SIGTERM",
        _ => "a signal",
    }
}

/// A line of a recording's values: a measurement, or an output of a step.
#[derive(Serialize)]
struct Line<'r> {
    run: &'r str,
    eval: &'r str,
    task: &'r str,
    trial: u32,
    #[serde(flatten)]
    what: What<'r>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What<'r> {
    Measurement { measurement: &'r Measured },
    Output { step: &'r str, operation: &'r str, output: &'r str, value: &'r serde_json::Value },
}

/// Ends a recording with the report, all measurements and outputs, and the files that the evals are made of.
fn end_recording(recorder: &Recorder, results: &Results, code: u8) -> u8 {
    let of_all = |of: fn(&report::Run) -> &Vec<report::Hashed>| {
        let mut all: Vec<&report::Hashed> = Vec::new();
        for hashed in results.runs.iter().flat_map(of) {
            if !all.contains(&hashed) {
                all.push(hashed);
            }
        }
        json!(all)
    };
    recorder.say("files", of_all(|run| &run.files));
    recorder.say("programs", of_all(|run| &run.programs));
    if let Some(program) = results.runs.iter().find_map(|run| run.programs.first()) {
        recorder.say("program", json!(program));
    }
    if !results.meta.is_empty() {
        recorder.say("meta", json!(results.meta));
    }
    recorder.say("runs", results.runs.iter().map(|run| run.run_id.as_str()).collect());
    let mut values = String::new();
    let mut add = |line: &Line<'_>| {
        values += &serde_json::to_string(line).unwrap_or_default();
        values.push('\n');
    };
    for run in &results.runs {
        for (task, trial) in run.tasks.iter().flat_map(|task| task.trials.iter().map(move |trial| (task, trial))) {
            let line = |what| Line { run: &run.run_id, eval: &run.eval, task: &task.id, trial: trial.trial, what };
            for measurement in trial.values() {
                add(&line(What::Measurement { measurement }));
            }
            for step in &trial.steps {
                for (output, value) in &step.outputs {
                    add(&line(What::Output { step: &step.id, operation: &step.operation, output, value }));
                }
            }
        }
    }
    record::finish(recorder, &[("report.json", results.to_json()), ("values.jsonl", values)], code)
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
