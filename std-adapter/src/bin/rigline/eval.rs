use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use rigline::protocol::waza::{self, RunState, Verdict};
use rigline_std::eval::list::list;
use rigline_std::eval::measurement::{self, Statistics};
use rigline_std::eval::report::{Results, class, report};
use rigline_std::eval::run::{Event, OnEvent, Outcome, Progress, TaskRecord};
use rigline_std::eval::runs::{Request, Runs, StartError};
use rigline_std::eval::session::Hosts;
use rigline_std::eval::store::Store;
use rigline_std::eval::verdict::Class;
use rigline_std::eval::{Fault, LoadError, Overrides, Spec, against, load, owner_of};
use rigline_std::host::{Host, Options};
use rigline_std::record::Recorder;
use rigline_std::signals::Signals;
use rigline_std::{files, target::Target};
use serde_json::{Value, json};

use crate::connect::Failure;
use crate::jsonrpc::runtime;
use crate::out::{self, Style, Table, Text, complain, print, print_json, print_text};
use crate::record::{self, RecordArguments};
use crate::reports::{self, GitHub, ReportArguments, Watched};
use crate::{exit, junit};

/// Run, list, check and create evals
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<Run>),
    List(List),
    Validate(Validate),
    New(New),
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Run(run) => run.run(),
            Command::List(list) => list.run(),
            Command::Validate(validate) => validate.run(),
            Command::New(new) => new.run(),
        };
        match result {
            Ok(code) => ExitCode::from(code),
            Err(failure) => failure.tell(),
        }
    }
}

/// Run evals. Exits with 1 if one does not pass, with 3 if the rig is the reason
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option")]
struct Run {
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
    #[arg(long, value_name = "DURATION", value_parser = crate::connect::duration, default_value = "0s", hide_default_value = true)]
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
    /// Where runs are kept [default: the user's state folder]
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

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// One run that was done, or could not be.
struct Done {
    path: PathBuf,
    run: Result<(String, Arc<Spec>, Arc<Outcome>), StartError>,
    watched: Arc<Watched>,
}

/// An eval that is asked for, and the task file if only that is.
struct Wanted {
    path: PathBuf,
    task_file: Option<String>,
}

impl Run {
    fn run(self) -> Result<u8, Failure> {
        self.reports_can_be_written()?;
        let (evals, errors) = wanted(&self.paths)?;
        let recorder = self.record.begin(self.target.as_deref().unwrap_or_default())?;
        let (runs, store) = self.runs(recorder.clone())?;
        let began = SystemTime::now();
        let github = GitHub::begin();
        let runtime = runtime().map_err(|error| Failure { code: exit::FAILED, text: error.to_string() })?;
        let (done, interrupted) = runtime.block_on(async {
            let failed = |error: std::io::Error| Failure { code: exit::FAILED, text: error.to_string() };
            let mut signals = Signals::new().map_err(failed)?;
            let interrupted = Arc::new(Mutex::new(None));
            {
                let (runs, interrupted) = (runs.clone(), interrupted.clone());
                tokio::spawn(async move {
                    let code = signals.next().await;
                    *interrupted.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
                    complain(format_args!("rigline: cancelling; cleanup steps run. Once more ends at once"));
                    runs.cancel_all();
                    std::process::exit(signals.next().await.into());
                });
            }
            let mut done = Vec::new();
            for wanted in evals {
                if interrupted.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                    break;
                }
                let watched = Watched::new();
                let run = self.one(&runs, &wanted, &watched).await;
                done.push(Done { path: wanted.path, run, watched });
            }
            let code = *interrupted.lock().unwrap_or_else(PoisonError::into_inner);
            Ok::<_, Failure>((done, code))
        })?;
        runtime.shutdown_background();
        let code = interrupted.unwrap_or_else(|| code(&done, !errors.is_empty()));
        let results = || {
            let runs = done.iter().filter_map(|done| Some((&*done.run.as_ref().ok()?.1, &*done.watched)));
            let runs: Vec<(&Spec, &Watched)> = runs.collect();
            reports::results(as_json(&done, &errors, code), &runs, &store, began)
        };
        let has_written = self.tell(&done, &errors, code, &results);
        if let Some(github) = github {
            github.end(&results());
        }
        let code = recorder.map_or(code, |recorder| end_recording(&recorder, &done, &errors, code));
        Ok(if has_written || code != exit::SUCCESS { code } else { exit::FAILED })
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
        let folder = match &self.runs {
            Some(folder) => folder.clone(),
            None => Store::default_folder()
                .map_err(|error| Failure::usage(format!("no place for runs: {error}; name one by --runs DIR")))?,
        };
        let store = Store::open(folder.clone())
            .map_err(|error| Failure::usage(format!("--runs {}: {error}", folder.display())))?;
        let hosts = Hosts { wait: self.wait, recorder, ..Hosts::default() };
        Ok((Runs::with_connect(store.clone(), None, Arc::new(hosts)), store))
    }

    async fn one(
        &self,
        runs: &Runs,
        wanted: &Wanted,
        watched: &Arc<Watched>,
    ) -> Result<(String, Arc<Spec>, Arc<Outcome>), StartError> {
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
        let accepted = runs.accept(&request)?;
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

    /// The table, and the reports. One that cannot be written takes no other with it; whether all were.
    fn tell(&self, done: &[Done], errors: &[String], code: u8, results: &dyn Fn() -> Results) -> bool {
        let json_text = || {
            let value = as_json(done, errors, code);
            serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
        };
        for Done { path, run, .. } in done {
            if let Err(error) = run {
                if let StartError::Invalid(faults) = error {
                    complain(format_args!("rigline: {} is not valid:", path.display()));
                    for fault in faults {
                        complain(format_args!("  {fault}"));
                    }
                } else {
                    complain(format_args!("rigline: {}: {error}", path.display()));
                }
            }
        }
        let takes_stdout = self.json || self.files().any(|(_, path)| is_stdout(path));
        if self.json {
            print_json(&json_text());
        } else if !takes_stdout {
            show(done);
        }
        let mut has_written = true;
        let mut write = |path: &Path, text: &str| {
            if is_stdout(path) {
                out::print_file(text);
            } else if let Err(error) = files::write(path, text.as_bytes()) {
                out::complain_of_failure(&format!("{}: {error}", path.display()));
                has_written = false;
            }
        };
        if let Some(path) = &self.json_file {
            write(path, &json_text());
        }
        if let Some(path) = &self.junit {
            write(path, &as_junit(done, &self.attachments(done)));
        }
        if self.reports.is_wanted() {
            self.reports.write(&results(), write);
        }
        has_written
    }
}

impl Run {
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
    let report = serde_json::to_string_pretty(&as_json(done, errors, code)).unwrap_or_default() + "\n";
    record::finish(recorder, &[("report.json", report), ("values.jsonl", values)], code)
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The exit code of runs: what could not be begun is told before what failed.
fn code(done: &[Done], has_errors: bool) -> u8 {
    let runs = || done.iter().map(|done| done.run.as_ref());
    let is_unusable = |error: &StartError| !matches!(error, StartError::TooMany | StartError::Ending);
    if has_errors || runs().any(|run| run.is_err_and(is_unusable)) {
        return exit::USAGE;
    }
    let outcomes = || runs().filter_map(Result::ok).map(|(_, _, outcome)| outcome);
    let all_passed = runs().all(|run| run.is_ok_and(|(_, _, outcome)| outcome.passed));
    let mut rig_errors = outcomes().filter(|outcome| outcome.has_rig_error()).peekable();
    match () {
        () if all_passed => exit::SUCCESS,
        // A failure of the board is known, whatever the rig did elsewhere.
        () if outcomes().any(|outcome| outcome.has_failure()) => exit::FAILED,
        () if rig_errors.peek().is_none() => exit::FAILED,
        () if rig_errors.all(|outcome| outcome.is_late()) => exit::TIMED_OUT,
        () => exit::NO_ANSWER,
    }
}

/// The evals that paths stand for, and what could not be read on the way to them.
fn wanted(paths: &[PathBuf]) -> Result<(Vec<Wanted>, Vec<String>), Failure> {
    let (mut evals, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        if !path.is_dir() {
            let (path, task_file) = match owner_of(path) {
                Ok(Some((eval, file))) => (eval, Some(file)),
                Ok(None) => (path.clone(), None),
                Err(why) => return Err(Failure::usage(why)),
            };
            evals.push(Wanted { path, task_file });
            continue;
        }
        let listing = list(path);
        listing.warnings.iter().for_each(|warning| complain(format_args!("warning: {warning}")));
        listing.errors.iter().for_each(|error| complain(format_args!("rigline: {error}")));
        if listing.evals.is_empty() {
            return Err(no_evals(path, &listing.errors));
        }
        errors.extend(listing.errors);
        evals.extend(listing.evals.into_iter().map(|eval| Wanted { path: eval.path, task_file: None }));
    }
    Ok((evals, errors))
}

/// What `run`, `list` and `validate` say of a folder without evals.
fn no_evals(folder: &Path, errors: &[String]) -> Failure {
    let text = match folder.metadata() {
        Err(error) => format!("{}: {error}", folder.display()),
        Ok(_) if errors.is_empty() => {
            format!("{}: there are no evals; `rigline eval new` begins one", folder.display())
        }
        Ok(_) => format!("{}: there are no evals that can be read", folder.display()),
    };
    Failure::usage(text)
}

/// As compilers write it, so that editors find the place.
fn placed(fault: &Fault, kind: &str) -> String {
    let line = fault.line.map_or_else(String::new, |line| format!("{line}:"));
    format!("{}:{line} {kind}{}", fault.path.display(), fault.text)
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

fn show(done: &[Done]) {
    let mut table = Table::new(&["eval", "task", "result", "trials", "time", "why"]);
    let runs = || done.iter().filter_map(|done| done.run.as_ref().ok());
    for (_, spec, outcome) in runs() {
        for record in &outcome.tasks {
            table.row(row(spec, record));
        }
    }
    if !table.is_empty() {
        print(&table.to_string());
    }
    show_measurements(done);
    for (_, spec, outcome) in runs() {
        let style = if outcome.passed { Style::Good } else { Style::Bad };
        print_text(&Text::new().styled(style, &verdict(spec, outcome)).plain("\n"));
    }
}

/// What was measured, a line for each name of each task.
fn show_measurements(done: &[Done]) {
    let mut table = Table::new(&["task", "measurement", "value", "limits", "verdict", "over trials"]);
    for (_, spec, outcome) in done.iter().filter_map(|done| done.run.as_ref().ok()) {
        for record in &outcome.tasks {
            let task = spec.tasks.get(record.task).map_or("", |task| task.name.as_str());
            for statistics in record.measurements() {
                let last = &statistics.last;
                let unit = last.unit.as_deref().unwrap_or_default();
                table.row([
                    task.to_owned(),
                    last.name.clone(),
                    format!("{} {unit}", last.value).trim_end().to_owned(),
                    measurement::limits(last.low.as_deref(), last.high.as_deref()),
                    if statistics.passed { "pass" } else { "fail" }.to_owned(),
                    over_trials(&statistics),
                ]);
            }
        }
    }
    if !table.is_empty() {
        print(&table.to_string());
    }
}

fn over_trials(statistics: &Statistics) -> String {
    let Some(deviation) = statistics.deviation else { return String::new() };
    let Statistics { min, max, mean, .. } = statistics;
    let cpk = statistics.cpk.map_or_else(String::new, |cpk| format!(", Cpk {cpk:.2}"));
    // One digit more than the values have.
    let digits = |text: &str| text.split_once('.').map_or(0, |(_, fraction)| fraction.len()).min(12);
    let digits = digits(min).max(digits(max)) + 1;
    format!("{min} to {max}, mean {mean:.digits$}, s {deviation:.digits$}{cpk}")
}

fn row(spec: &Spec, record: &TaskRecord) -> [String; 6] {
    let name = spec.tasks.get(record.task).map_or("", |task| task.name.as_str());
    let passed = record.trials.iter().filter(|trial| trial.verdict == Verdict::Passed).count();
    let why = record.why().unwrap_or_default();
    let why = match why.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", why.get(..end).unwrap_or_default()),
        None => why.to_owned(),
    };
    [
        spec.name.clone(),
        name.to_owned(),
        record.class().label().to_owned(),
        format!("{passed}/{}", record.trials.len()),
        time(record.duration),
        why,
    ]
}

fn verdict(spec: &Spec, outcome: &Outcome) -> String {
    let summary = outcome.summary;
    let mut text = format!("{}: ", spec.name);
    match outcome.state {
        RunState::Completed => {
            let word = class(outcome).label();
            let _ = write!(text, "{word}, {} of {} tasks passed", summary.passed, summary.total);
            let count = |class: Class| outcome.tasks.iter().filter(|task| task.class() == class).count();
            for (class, plural) in [(Class::RigError, "rig errors"), (Class::Flaky, "flaky")] {
                match count(class) {
                    0 => {}
                    1 => drop(write!(text, ", 1 {}", class.label())),
                    many => drop(write!(text, ", {many} {plural}")),
                }
            }
            if outcome.skipped > 0 {
                let _ = write!(text, ", {} not judged", outcome.skipped);
            }
            if outcome.metrics.is_empty() {
                let _ = write!(text, ", {} needed", percent(spec.metrics.pass_threshold));
            }
        }
        _ => text.push_str(outcome.error.as_deref().unwrap_or(outcome.state.as_str())),
    }
    if !spec.warnings.is_empty() {
        let _ = write!(text, ", {}", out::count(spec.warnings.len(), "warning"));
    }
    for metric in &outcome.metrics {
        let word = if metric.passed { "reached" } else { "not reached" };
        let _ = write!(text, "\n  {}: {}, {} {word}", metric.name, percent(metric.share), percent(metric.threshold));
    }
    if let Some(score) = outcome.score {
        let _ = write!(text, "\n  weighted mean: {}", percent(score));
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn time(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn as_junit(done: &[Done], attachments: &HashMap<String, Vec<PathBuf>>) -> String {
    let text = junit::text;
    let mut report = Report::new("rigline");
    let mut names = junit::Names::default();
    for Done { path, run, .. } in done {
        let mut suite = TestSuite::new(text(&path.to_string_lossy()));
        match run {
            Err(error) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(text(&error.to_string()));
                suite.add_test_case(TestCase::new("start", status));
            }
            Ok((id, spec, outcome)) => {
                let attached: Vec<String> = attachments
                    .get(id)
                    .into_iter()
                    .flatten()
                    .map(|path| format!("[[ATTACHMENT|{}]]", text(&path.to_string_lossy())))
                    .collect();
                suite = TestSuite::new(text(&spec.name));
                suite.set_time(outcome.duration);
                junit::add_rig(&mut suite, outcome);
                let class_name = names.unique(&spec.name);
                for record in &outcome.tasks {
                    let task = spec.tasks.get(record.task);
                    let mut case = TestCase::new(text(task.map_or("", |task| &task.id)), junit::status(record));
                    case.set_classname(text(&class_name));
                    case.set_time(record.duration);
                    junit::add_measurements(&mut case, record);
                    if !record.has_passed() {
                        case.set_system_out(attached.join("\n"));
                    }
                    suite.add_test_case(case);
                }
                // Tasks that were not come to.
                let is_done = |place: usize| outcome.tasks.iter().any(|task| task.task == place);
                for (_, task) in spec.tasks.iter().enumerate().filter(|(place, _)| !is_done(*place)) {
                    let mut case = TestCase::new(text(&task.id), TestCaseStatus::skipped());
                    case.set_classname(text(&class_name));
                    suite.add_test_case(case);
                }
                if let (RunState::Failed, Some(error)) = (outcome.state, &outcome.error) {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                    status.set_message(text(error));
                    let mut case = TestCase::new("run", status);
                    case.set_classname(text(&class_name));
                    suite.add_test_case(case);
                }
            }
        }
        report.add_test_suite(suite);
    }
    report.to_string().unwrap_or_default()
}

/// Progress: bars on a terminal, plain lines elsewhere.
struct Show {
    spec: Arc<Spec>,
    is_quiet: bool,
    bars: Option<Bars>,
}

struct Bars {
    all: MultiProgress,
    run: ProgressBar,
    /// Those of the tasks in hand, by their place.
    tasks: Mutex<HashMap<usize, ProgressBar>>,
}

impl Show {
    fn new(spec: &Arc<Spec>, is_quiet: bool) -> Self {
        let bars = (std::io::stderr().is_terminal() && !is_quiet).then(|| {
            let all = MultiProgress::new();
            let count = u64::try_from(spec.tasks.len()).unwrap_or(u64::MAX);
            let bar = all.add(ProgressBar::new(count));
            bar.set_style(style("{prefix} {bar:30} {pos}/{len} {elapsed}"));
            bar.set_prefix(out::word(&spec.name).into_owned());
            Bars { all, run: bar, tasks: Mutex::default() }
        });
        Self { spec: spec.clone(), is_quiet, bars }
    }

    fn event(&self, event: &Event) {
        match (event, &self.bars) {
            _ if self.is_quiet => {}
            (Event::Log { level, message }, Some(bars)) => {
                let _ = bars.all.println(format!("  {}: {}", level.name(), out::word(message)));
            }
            (Event::Log { level, message }, None) => complain(format_args!("  {}: {message}", level.name())),
            (Event::Progress(progress), Some(bars)) => self.draw(progress, bars),
            (Event::Progress(progress), None) => self.print(progress),
            _ => {}
        }
    }

    fn draw(&self, progress: &Progress, Bars { all, run, tasks }: &Bars) {
        let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let place = progress.task.unwrap_or_default();
        match progress.event {
            waza::Event::TaskStart => {
                let task = all.insert_before(run, ProgressBar::new(self.spec.config.trials_per_task.into()));
                task.set_style(style("  {spinner} {msg} {pos}/{len}"));
                task.set_message(out::word(self.name(place)).into_owned());
                task.enable_steady_tick(Duration::from_millis(100));
                tasks.insert(place, task);
            }
            waza::Event::TrialComplete => tasks.get(&place).into_iter().for_each(|task| task.inc(1)),
            waza::Event::TaskComplete => {
                if let Some(task) = tasks.remove(&place) {
                    task.finish_and_clear();
                }
                run.inc(1);
                let verdict = progress.verdict.map_or("", Verdict::as_str);
                let _ = all.println(format!("{verdict:>9}  {}", out::word(self.name(place))));
            }
            waza::Event::RunComplete => run.finish_and_clear(),
            _ => {}
        }
    }

    fn print(&self, progress: &Progress) {
        let name = progress.task.map_or("", |task| self.name(task));
        let verdict = progress.verdict.map_or("", Verdict::as_str);
        let took = progress.duration.map(time).unwrap_or_default();
        match progress.event {
            waza::Event::RunStart => {
                complain(format_args!("{}: {}", self.spec.name, out::count(self.spec.tasks.len(), "task")));
            }
            waza::Event::TaskComplete => complain(format_args!("{verdict:>9}  {name} ({took})")),
            waza::Event::TrialComplete if self.spec.config.trials_per_task > 1 => {
                let trial = progress.trial.unwrap_or_default();
                complain(format_args!(
                    "  {name}: trial {trial} of {}: {verdict} ({took})",
                    self.spec.config.trials_per_task
                ));
            }
            _ => {}
        }
    }

    fn name(&self, task: usize) -> &str {
        self.spec.tasks.get(task).map_or("", |task| task.name.as_str())
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// List the evals in a folder
#[derive(Debug, Args)]
struct List {
    /// Where to look
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
    /// Print one JSON value instead of the table
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self) -> Result<u8, Failure> {
        let listing = list(&self.folder);
        listing.warnings.iter().for_each(|warning| complain(format_args!("warning: {warning}")));
        listing.errors.iter().for_each(|error| complain(format_args!("rigline: {error}")));
        let code = if listing.errors.is_empty() { exit::SUCCESS } else { exit::USAGE };
        if self.json && self.folder.exists() {
            let code = if listing.evals.is_empty() { exit::USAGE } else { code };
            let evals: Vec<Value> = listing
                .evals
                .iter()
                .map(|eval| {
                    json!({
                        "path": eval.path.to_string_lossy(), "name": eval.name, "skill": eval.skill, "version": eval.version,
                    })
                })
                .collect();
            let value = json!({
                "success": code == exit::SUCCESS, "exit_code": code,
                "evals": evals, "errors": listing.errors, "warnings": listing.warnings,
            });
            print_json(&format!("{value}\n"));
            if listing.evals.is_empty() {
                return Err(no_evals(&self.folder, &listing.errors));
            }
            return Ok(code);
        }
        if listing.evals.is_empty() {
            return Err(no_evals(&self.folder, &listing.errors));
        }
        let mut table = Table::new(&["name", "skill", "version", "path"]);
        for eval in &listing.evals {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            table.row([eval.name.clone(), text(&eval.skill), text(&eval.version), eval.path.display().to_string()]);
        }
        print(&table.to_string());
        Ok(code)
    }
}

/// Check evals and their tasks, and report every mistake
#[derive(Debug, Args)]
struct Validate {
    /// Evals, folders of them, or task files of an eval
    #[arg(default_value = ".", value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Also check operations and arguments against what this target has
    #[arg(long)]
    target: Option<Target>,
    /// Set one of the eval's inputs, or a name of matrix and for
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Print one JSON value instead of lines
    #[arg(long)]
    json: bool,
}

impl Validate {
    fn run(self) -> Result<u8, Failure> {
        let (evals, errors) = wanted(&self.paths)?;
        let operations = match &self.target {
            Some(target) => Some(operations(target)?),
            None => None,
        };
        let (mut is_valid, mut is_missing) = (errors.is_empty(), false);
        let mut reports = Vec::new();
        for Wanted { path, .. } in evals {
            let mut overrides = Overrides::default();
            overrides.set.clone_from(&self.set);
            let (faults, warnings) = match load(&path, &overrides) {
                Ok((spec, mut faults)) => {
                    let mut warnings = spec.warnings.clone();
                    if let Some(operations) = &operations {
                        let (more, may_be) = against(&spec, operations);
                        faults.extend(more);
                        warnings.extend(may_be);
                    }
                    (faults, warnings)
                }
                Err(LoadError::Unreadable(fault)) => (vec![fault], Vec::new()),
                Err(error) => {
                    if self.json {
                        reports.push(json!({ "path": path.to_string_lossy(), "valid": false, "errors": [error.to_string()], "warnings": [] }));
                    } else {
                        print(&format!("{error}\n"));
                    }
                    (is_valid, is_missing) = (false, true);
                    continue;
                }
            };
            let valid = faults.is_empty() && (warnings.is_empty() || !self.strict);
            is_valid &= valid;
            if self.json {
                let texts = |faults: &[Fault]| faults.iter().map(ToString::to_string).collect::<Vec<_>>();
                reports.push(json!({
                    "path": path.to_string_lossy(), "valid": valid, "errors": texts(&faults), "warnings": texts(&warnings),
                }));
                continue;
            }
            let mut text = Text::new();
            for fault in &faults {
                text = text.plain(&placed(fault, "")).plain("\n");
            }
            for warning in &warnings {
                text = text.styled(Style::Warning, &placed(warning, "warning: ")).plain("\n");
            }
            let count = if warnings.is_empty() {
                String::new()
            } else {
                format!(", {}", out::count(warnings.len(), "warning"))
            };
            let (style, word) = if valid { (Style::Good, "valid") } else { (Style::Bad, "not valid") };
            print_text(&text.styled(style, &format!("{}: {word}{count}", path.display())).plain("\n"));
        }
        let code = match () {
            () if is_missing || !errors.is_empty() => exit::USAGE,
            () if is_valid => exit::SUCCESS,
            () => exit::FAILED,
        };
        if self.json {
            let value = json!({ "success": is_valid, "exit_code": code, "evals": reports, "errors": errors });
            print_json(&format!("{value:#}\n"));
        }
        Ok(code)
    }
}

/// The operations that a target has, with their schemas.
fn operations(target: &Target) -> Result<Vec<(String, Value)>, Failure> {
    let runtime = runtime().map_err(|error| Failure { code: exit::FAILED, text: error.to_string() })?;
    runtime.block_on(async {
        let host = Host::connect(target, Options::default()).await.map_err(|error| Failure::of(&error))?;
        let manifest = host.describe();
        let operations = manifest.operations.iter().map(|it| (it.name.clone(), it.params.clone())).collect();
        let _ = host.shutdown().await;
        Ok(operations)
    })
}

/// Write a first eval, which passes, for you to change
#[derive(Debug, Args)]
struct New {
    /// The folder that it is written to
    #[arg(default_value = "evals", value_name = "DIR")]
    folder: PathBuf,
    /// The target that its step calls, with the first operation that needs no arguments
    #[arg(long, default_value = "sim")]
    target: String,
}

impl New {
    fn run(self) -> Result<u8, Failure> {
        let target: Target = self.target.parse().map_err(|error| Failure::usage(format!("--target: {error}")))?;
        let (eval, task) = (self.folder.join("eval.yaml"), self.folder.join("tasks/first.yaml"));
        if let Some(there) = [&eval, &task].into_iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(Failure::usage(format!("{} is there already", there.display())));
        }
        let operations = operations(&target)?;
        let needs_none = |schema: &Value| schema.get("required").and_then(Value::as_array).is_none_or(Vec::is_empty);
        let Some((operation, schema)) =
            operations.iter().find(|(_, schema)| needs_none(schema)).or_else(|| operations.first())
        else {
            return Err(Failure::usage(format!("{} has no operations", self.target)));
        };
        let required = schema.get("required").and_then(Value::as_array);
        let args: String = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(|name| format!("\n      {}: CHANGE-ME", Value::from(name)))
            .collect();
        let args = if args.is_empty() { " {}".to_owned() } else { args };
        // A target from here is not one from the eval's folder.
        let written = match &target {
            Target::Exec(exec) if exec.program.contains('/') => {
                let program = std::path::absolute(&exec.program).unwrap_or_else(|_| PathBuf::from(&exec.program));
                let words = std::iter::once(program.to_string_lossy().into_owned()).chain(exec.args.iter().cloned());
                format!("exec:{}", words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" "))
            }
            _ => self.target.clone(),
        };
        let name = self.folder.file_name().map_or_else(|| "first".into(), |name| name.to_string_lossy());
        let eval_text = format!(
            "name: {}\nconfig: {{ target: {}, timeout_seconds: 30 }}\nmetrics: {{ pass_threshold: 1.0 }}\ntasks: [\"tasks/*.yaml\"]\n",
            Value::from(&*name),
            Value::from(written),
        );
        let task_text = format!(
            "id: first\nname: {operation} answers\nsteps:\n  - id: call\n    operation: {}\n    args:{args}\n    timeout: 10s\n\
             graders:\n  # Others: output_range, output_equals, contains, regex, file_exists\n  - {{ type: max_duration, step: call, max: 10s }}\n",
            Value::from(operation.as_str()),
        );
        for (path, text) in [(&eval, eval_text), (&task, task_text)] {
            files::write(path, text.as_bytes())
                .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            print(&format!("{}\n", path.display()));
        }
        Ok(exit::SUCCESS)
    }
}

/// A word that a target's shell-like splitting takes as one.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+=:@%,".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
