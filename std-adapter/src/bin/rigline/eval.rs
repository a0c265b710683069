use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use rigline::protocol::waza::{self, RunState, Verdict};
use rigline_std::eval::list::list;
use rigline_std::eval::run::{Event, OnEvent, Outcome, Progress, TaskRecord};
use rigline_std::eval::runs::{Request, Runs, StartError};
use rigline_std::eval::service::report;
use rigline_std::eval::{Overrides, Spec, load};
use rigline_std::signals::Signals;
use serde_json::Value;

use crate::connect::{complain, print};
use crate::jsonrpc::{runs, runtime};

/// Run evals, list and check them
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Run),
    List(List),
    Validate(Validate),
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Run(run) => run.run(),
            Command::List(list) => Ok(list.run()),
            Command::Validate(validate) => Ok(validate.run()),
        };
        result.unwrap_or_else(|error| {
            complain(format_args!("rigline: {error}"));
            ExitCode::from(2)
        })
    }
}

/// Run evals. Exits with 1 if one does not pass
#[derive(Debug, Args)]
struct Run {
    /// Evals, or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// The target that steps call, whatever the file says: sim, exec:PROGRAM, serial:auto, tcp:HOST:PORT …
    #[arg(long)]
    target: Option<String>,
    /// The executor, whatever the file says: mock, command, extension
    #[arg(long)]
    executor: Option<String>,
    /// The model, whatever the file says
    #[arg(long)]
    model: Option<String>,
    /// Only tasks with this in their id, name or tags
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// The directory that tasks run in; the eval's own if unsaid
    #[arg(long, value_name = "DIR")]
    context_dir: Option<PathBuf>,
    /// Write a `JUnit` report
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where runs are kept; among this user's state if unsaid
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Show debug logs too
    #[arg(long, short)]
    verbose: bool,
}

/// One run that was done, or could not be.
struct Done {
    path: PathBuf,
    run: Result<(String, Arc<Spec>, Arc<Outcome>), StartError>,
}

impl Run {
    fn run(self) -> Result<ExitCode, String> {
        let evals = self.evals()?;
        let runs = runs(self.runs.clone(), None)?;
        let runtime = runtime().map_err(|error| error.to_string())?;
        let (done, interrupted) = runtime.block_on(async {
            let mut signals = Signals::new().map_err(|error| error.to_string())?;
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
            for path in evals {
                if interrupted.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                    break;
                }
                let run = self.one(&runs, &path).await;
                done.push(Done { path, run });
            }
            let code = *interrupted.lock().unwrap_or_else(PoisonError::into_inner);
            Ok::<_, String>((done, code))
        })?;
        runtime.shutdown_background();
        self.tell(&done)?;
        Ok(match interrupted {
            Some(code) => ExitCode::from(code),
            None if done.iter().any(|done| {
                matches!(
                    done.run,
                    Err(StartError::Invalid(_)
                        | StartError::NotFound(_)
                        | StartError::UnknownExecutor(_)
                        | StartError::NoTask(_))
                )
            }) =>
            {
                ExitCode::from(2)
            }
            None if done.iter().all(|done| done.run.as_ref().is_ok_and(|(_, _, outcome)| outcome.passed)) => {
                ExitCode::SUCCESS
            }
            None => ExitCode::FAILURE,
        })
    }

    fn evals(&self) -> Result<Vec<PathBuf>, String> {
        let mut evals = Vec::new();
        for path in &self.paths {
            if !path.is_dir() {
                evals.push(path.clone());
                continue;
            }
            let listing = list(path);
            listing.errors.iter().for_each(|error| complain(format_args!("rigline: {error}")));
            if listing.evals.is_empty() {
                return Err(format!("{}: there are no evals", path.display()));
            }
            evals.extend(listing.evals.into_iter().map(|eval| eval.path));
        }
        Ok(evals)
    }

    async fn one(&self, runs: &Runs, path: &Path) -> Result<(String, Arc<Spec>, Arc<Outcome>), StartError> {
        let mut request = Request::default();
        request.path = path.to_owned();
        request.overrides.executor.clone_from(&self.executor);
        request.overrides.model.clone_from(&self.model);
        request.overrides.target.clone_from(&self.target);
        request.verbose = self.verbose;
        request.context_dir.clone_from(&self.context_dir);
        request.filter.clone_from(&self.filter);
        let accepted = runs.accept(&request)?;
        let (id, spec) = (accepted.id().to_owned(), accepted.spec().clone());
        let show = Show::new(&spec);
        let on_event: OnEvent = Arc::new(move |event| show.event(&event));
        let (sender, outcome) = tokio::sync::oneshot::channel();
        accepted.launch(&tokio::runtime::Handle::current(), on_event, move |outcome| drop(sender.send(outcome)));
        match outcome.await {
            Ok(outcome) => Ok((id, spec, outcome)),
            Err(_) => Err(StartError::Store(std::io::Error::other("the run panicked"))),
        }
    }

    /// The table, and the reports.
    fn tell(&self, done: &[Done]) -> Result<(), String> {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(["eval", "task", "result", "trials", "time", "why"]);
        for Done { path, run } in done {
            match run {
                Err(error) => {
                    if let StartError::Invalid(faults) = error {
                        complain(format_args!("rigline: {} is not valid:", path.display()));
                        for fault in faults {
                            complain(format_args!("  {fault}"));
                        }
                    } else {
                        complain(format_args!("rigline: {}: {error}", path.display()));
                    }
                }
                Ok((_, spec, outcome)) => {
                    for record in &outcome.tasks {
                        table.add_row(row(spec, record));
                    }
                }
            }
        }
        if !table.is_empty() {
            say(format_args!("{table}"));
        }
        for (_, spec, outcome) in done.iter().filter_map(|done| done.run.as_ref().ok()) {
            say(format_args!("{}", verdict(spec, outcome)));
        }
        if let Some(path) = &self.json {
            let reports: Vec<Value> = done
                .iter()
                .filter_map(|done| done.run.as_ref().ok())
                .map(|(id, spec, outcome)| report(spec, id, outcome))
                .collect();
            let text = serde_json::to_string_pretty(&serde_json::json!({ "runs": reports }))
                .map_err(|error| error.to_string())?;
            write(path, &(text + "\n"))?;
        }
        if let Some(path) = &self.junit {
            write(path, &junit(done)?)?;
        }
        Ok(())
    }
}

/// Says a line on standard output.
fn say(text: std::fmt::Arguments<'_>) {
    print(&format!("{text}\n"));
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn row(spec: &Spec, record: &TaskRecord) -> [String; 6] {
    let name = spec.tasks.get(record.task).map_or("", |task| task.name.as_str());
    let passed = record.trials.iter().filter(|trial| trial.verdict == Verdict::Passed).count();
    let why = record.trials.iter().find_map(|trial| trial.error.clone()).unwrap_or_default();
    let why = match why.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", why.get(..end).unwrap_or_default()),
        None => why,
    };
    [
        spec.name.clone(),
        name.to_owned(),
        record.verdict.as_str().to_owned(),
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
            let word = if outcome.passed { "passed" } else { "failed" };
            let _ = write!(text, "{word}, {} of {} tasks passed", summary.passed, summary.total);
            if outcome.metrics.is_empty() {
                let _ = write!(text, ", {} needed", percent(spec.metrics.pass_threshold));
            }
        }
        _ => text.push_str(outcome.error.as_deref().unwrap_or(outcome.state.as_str())),
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

fn junit(done: &[Done]) -> Result<String, String> {
    let mut report = Report::new("rigline");
    for Done { path, run } in done {
        let path = path.to_string_lossy();
        let mut suite = TestSuite::new(path.as_ref());
        match run {
            Err(error) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(error.to_string());
                suite.add_test_case(TestCase::new("start", status));
            }
            Ok((_, spec, outcome)) => {
                suite = TestSuite::new(spec.name.as_str());
                suite.set_time(outcome.duration);
                for record in &outcome.tasks {
                    let mut status = match record.verdict {
                        Verdict::Passed => TestCaseStatus::success(),
                        Verdict::Cancelled => TestCaseStatus::skipped(),
                        Verdict::Error => TestCaseStatus::non_success(NonSuccessKind::Error),
                        Verdict::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
                    };
                    if let Some(why) = record.trials.iter().find_map(|trial| trial.error.clone()) {
                        status.set_message(why);
                    }
                    let task = spec.tasks.get(record.task);
                    let mut case = TestCase::new(task.map_or("", |task| task.id.as_str()), status);
                    case.set_classname(spec.name.as_str());
                    case.set_time(record.duration);
                    suite.add_test_case(case);
                }
                // Tasks that were not come to.
                for task in spec
                    .tasks
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| outcome.tasks.iter().all(|task| task.task != *place))
                {
                    let mut case = TestCase::new(task.1.id.as_str(), TestCaseStatus::skipped());
                    case.set_classname(spec.name.as_str());
                    suite.add_test_case(case);
                }
                if let (RunState::Failed, Some(error)) = (outcome.state, &outcome.error) {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                    status.set_message(error.as_str());
                    suite.add_test_case(TestCase::new("run", status));
                }
            }
        }
        report.add_test_suite(suite);
    }
    report.to_string().map_err(|error| error.to_string())
}

/// Progress: bars on a terminal, plain lines elsewhere.
struct Show {
    spec: Arc<Spec>,
    bars: Option<Bars>,
}

struct Bars {
    all: MultiProgress,
    run: ProgressBar,
    /// Those of the tasks in hand, by their place.
    tasks: Mutex<HashMap<usize, ProgressBar>>,
}

impl Show {
    fn new(spec: &Arc<Spec>) -> Self {
        let bars = std::io::stderr().is_terminal().then(|| {
            let all = MultiProgress::new();
            let count = u64::try_from(spec.tasks.len()).unwrap_or(u64::MAX);
            let bar = all.add(ProgressBar::new(count));
            bar.set_style(style("{prefix} {bar:30} {pos}/{len} {elapsed}"));
            bar.set_prefix(spec.name.clone());
            Bars { all, run: bar, tasks: Mutex::default() }
        });
        Self { spec: spec.clone(), bars }
    }

    fn event(&self, event: &Event) {
        match (event, &self.bars) {
            (Event::Log { level, message }, Some(bars)) => {
                let _ = bars.all.println(format!("  {}: {message}", level.name()));
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
                task.set_message(self.name(place).to_owned());
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
                let _ = all.println(format!("{verdict:>9}  {}", self.name(place)));
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
            waza::Event::RunStart => complain(format_args!("{}: {} tasks", self.spec.name, self.spec.tasks.len())),
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
    /// Where to look; here if unsaid
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self) -> ExitCode {
        let listing = list(&self.folder);
        if self.json {
            let evals: Vec<Value> = listing
                .evals
                .iter()
                .map(|eval| {
                    serde_json::json!({
                        "path": eval.path.to_string_lossy(), "name": eval.name, "skill": eval.skill, "version": eval.version,
                    })
                })
                .collect();
            say(format_args!("{}", serde_json::json!({ "evals": evals, "errors": listing.errors })));
        } else {
            let mut table = Table::new();
            table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(["name", "skill", "version", "path"]);
            for eval in &listing.evals {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                table.add_row([
                    eval.name.clone(),
                    text(&eval.skill),
                    text(&eval.version),
                    eval.path.display().to_string(),
                ]);
            }
            if !table.is_empty() {
                say(format_args!("{table}"));
            }
        }
        listing.errors.iter().for_each(|error| complain(format_args!("rigline: {error}")));
        if listing.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Check evals and their tasks, and tell all that is wrong with them
#[derive(Debug, Args)]
struct Validate {
    /// Evals, or folders of them
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

impl Validate {
    fn run(self) -> ExitCode {
        let mut valid = true;
        for path in &self.paths {
            let paths = if path.is_dir() {
                let listing = list(path);
                valid &= listing.errors.is_empty();
                listing.errors.iter().for_each(|error| say(format_args!("{error}")));
                listing.evals.into_iter().map(|eval| eval.path).collect()
            } else {
                vec![path.clone()]
            };
            for path in paths {
                let faults = match load(&path, &Overrides::default()) {
                    Ok((_, faults)) => faults,
                    Err(rigline_std::eval::LoadError::Unreadable(fault)) => vec![fault],
                    Err(error) => {
                        say(format_args!("{error}"));
                        valid = false;
                        continue;
                    }
                };
                valid &= faults.is_empty();
                if faults.is_empty() {
                    say(format_args!("{}: valid", path.display()));
                }
                for fault in faults {
                    // As compilers write it, so that editors find the place.
                    let line = fault.line.map_or_else(String::new, |line| format!("{line}:"));
                    say(format_args!("{}:{line} {}", fault.path.display(), fault.text));
                }
            }
        }
        if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
