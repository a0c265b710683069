//! The reports of `rigline eval run` beside JSON and JUnit: CTRF, TAP, a page, and what GitHub Actions shows.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use rigline_eval::report::{self, Host, Logs, Results, UnrunnableEval};
use rigline_eval::run::Event;
use rigline_host::files;
use rigline_std::clock::unix_millis;
use rigline_std::mutex::lock;
use uuid::Uuid;

use crate::files::is_stdout;
use crate::out::complain;

/// The requested reports.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ReportArguments {
    /// Write a report in the Common Test Report Format (JSON); - is standard output
    #[arg(long, value_name = "FILE")]
    ctrf: Option<PathBuf>,
    /// Write a report in the Test Anything Protocol, version 14; - is standard output
    #[arg(long, value_name = "FILE")]
    tap: Option<PathBuf>,
    /// Write a page with results, plots of measurements, logs and the trend over earlier runs; it needs no network. - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl ReportArguments {
    /// The options and their files.
    pub(crate) fn files(&self) -> [(&'static str, Option<&Path>); 3] {
        [("--ctrf", self.ctrf.as_deref()), ("--tap", self.tap.as_deref()), ("--html", self.html.as_deref())]
    }

    /// Whether the page is wanted, which has more in it than other reports.
    pub(crate) fn has_page(&self) -> bool {
        self.html.is_some()
    }

    /// Calls `write` for each requested report.
    pub(crate) fn write(&self, results: &Results, mut write: impl FnMut(&Path, &str)) {
        let kinds: [fn(&Results, &Path) -> String; 3] =
            [|results, _| report::ctrf(results), |results, _| report::tap(results), page];
        for ((_, path), render) in self.files().into_iter().zip(kinds) {
            if let Some(path) = path {
                write(path, &render(results, path));
            }
        }
    }
}

/// The page at a path, whose links begin at its folder.
fn page(results: &Results, path: &Path) -> String {
    let folder = (!is_stdout(path)).then(|| std::path::absolute(path).ok()).flatten();
    match folder.as_deref().and_then(Path::parent) {
        Some(folder) => {
            let mut results = results.clone();
            results.relative_to(folder);
            report::html(&results)
        }
        None => report::html(results),
    }
}

/// Events of a run that are not in its results.
pub(crate) struct Watched {
    began: Instant,
    began_at: SystemTime,
    logs: Mutex<Logs>,
}

impl Watched {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), began_at: SystemTime::now(), logs: Mutex::default() })
    }

    pub(crate) fn event(&self, event: &Event) {
        if let Event::Log { level, message } = event {
            let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            lock(&self.logs).add(ms, level.name(), message);
        }
    }

    /// When the run began, in milliseconds since 1970 (UTC).
    pub(crate) fn began_at_ms(&self) -> u64 {
        unix_millis(self.began_at)
    }

    pub(crate) fn logs(&self) -> Logs {
        lock(&self.logs).clone()
    }
}

/// The results of a command that has not ended. Reports are written with them before the first run, so that a command that is killed
/// leaves no report of an earlier one that passed.
pub(crate) fn unfinished() -> Results {
    let mut results = Results::default();
    results.started_at_ms = unix_millis(SystemTime::now());
    results.errors.push(UnrunnableEval::new(None, "the command has not ended: it still runs, or it was killed"));
    results
}

/// This machine and its user.
pub(crate) fn host() -> Host {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    let user = ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    Host::this(name, user.filter(|user| !user.is_empty()))
}

/// GitHub Actions, if this runs there.
pub(crate) struct GitHub {
    token: String,
}

impl GitHub {
    /// Has the runner obey no commands in what is printed from now on: logs are not ours.
    pub(crate) fn begin() -> Option<Self> {
        if std::env::var_os("GITHUB_ACTIONS").is_none_or(|value| value != "true") {
            return None;
        }
        let token = Uuid::new_v4().to_string();
        complain(format_args!("::stop-commands::{token}"));
        Some(Self { token })
    }

    /// Marks what is not good, and adds to the summary of the step.
    pub(crate) fn end(self, results: &Results) {
        complain(format_args!("::{}::", self.token));
        let annotations = report::annotations(results);
        if !annotations.is_empty() {
            complain(annotations.trim_end());
        }
        let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()) else { return };
        let path = Path::new(&path);
        if let Err(error) = add(path, results) {
            complain(format_args!("rigline: GITHUB_STEP_SUMMARY {}: {error}", path.display()));
        }
    }
}

fn add(path: &Path, results: &Results) -> std::io::Result<()> {
    /// The limit of GitHub for a summary, in bytes.
    const MOST: u64 = 1 << 20;
    if !path.exists() {
        files::write(path, b"")?;
    }
    let mut file = files::open_with(OpenOptions::new().append(true), path)?;
    let room = MOST.saturating_sub(file.metadata()?.len());
    let text = report::summary(results, usize::try_from(room).unwrap_or(usize::MAX));
    if text.len() as u64 > room {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "the summary of this step is full"));
    }
    file.write_all(text.as_bytes())
}
