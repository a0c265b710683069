//! Runs on disk: a file of JSON lines a run, in a folder.
//!
//! The first line is `{"run":…}`, one follows for each trial and each task that is done, and the last is `{"end":…}`. Whoever
//! runs it holds a lock on the file. A file without an end and without a lock is of a run whose process has died.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rigline::protocol::waza::{RunState, Summary};
use serde_json::{Value, json};

/// A line of a run's file that is read is not longer.
const LINE_LIMIT: u64 = 64 << 20;

/// A folder of runs.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// What is on disk of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// Its state; `running` if another process runs it.
    pub state: RunState,
    /// What was done of it.
    pub summary: Summary,
    /// Why it failed.
    pub error: Option<String>,
}

impl Store {
    /// The folder for runs among this user's state: `$XDG_STATE_HOME/rigline/runs` or what the system has instead.
    ///
    /// # Errors
    /// The user has no home.
    pub fn default_folder() -> io::Result<PathBuf> {
        use etcetera::BaseStrategy as _;
        let strategy = etcetera::choose_base_strategy().map_err(io::Error::other)?;
        let base = strategy.state_dir().unwrap_or_else(|| strategy.data_dir());
        Ok(base.join("rigline").join("runs"))
    }

    /// Opens the folder, and makes it if it is not there. Runs that a process left unfinished become failed.
    ///
    /// # Errors
    /// It cannot be made or read.
    pub fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let store = Self { folder };
        for entry in fs::read_dir(&store.folder)?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "jsonl") && !is_ended(&path) {
                // One that cannot be read is left as it is.
                let _ = store.settle(&path);
            }
        }
        Ok(store)
    }

    /// Where the runs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins a run's file, which must not be there yet.
    pub(super) fn create(&self, id: &str, head: &Value) -> io::Result<RunFile> {
        let path = self.path(id);
        // Under another name until it is locked, so that nobody takes it for one whose owner has died.
        let new = path.with_extension("new");
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(&new)?;
        let begin = || {
            file.lock()?;
            let mut run = RunFile { file };
            run.append(&json!({ "run": head }))?;
            // A link, other than a new name, takes no other file's place.
            fs::hard_link(&new, &path)?;
            Ok(run)
        };
        let run = begin();
        let _ = fs::remove_file(&new);
        run
    }

    /// What is known of a run that this process does not run; `None` if nothing.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn look(&self, id: &str) -> io::Result<Option<Stored>> {
        if id.is_empty() || id.len() > 64 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Ok(None);
        }
        match self.settle(&self.path(id)) {
            Ok(stored) => Ok(Some(stored)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.jsonl"))
    }

    /// Reads a run; if it has no end, and nobody holds it, it gets one.
    #[allow(clippy::unused_self, reason = "it is about the store's files")]
    fn settle(&self, path: &Path) -> io::Result<Stored> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        let stored = replay(&file)?;
        if stored.state != RunState::Running {
            return Ok(stored);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(stored),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Its owner may have ended it in the meantime.
        let stored = replay(&file)?;
        if stored.state != RunState::Running {
            return Ok(stored);
        }
        let Summary { total, passed, failed } = stored.summary;
        let error = format!(
            "Eval execution failed: its process ended in the middle, with {} of {total} tasks done",
            passed + failed
        );
        let stored = Stored { state: RunState::Failed, summary: stored.summary, error: Some(error) };
        let mut run = RunFile { file };
        run.append(&end(&stored))?;
        Ok(stored)
    }
}

/// The file of a run that this process runs. The lock goes with it.
#[derive(Debug)]
pub(super) struct RunFile {
    file: File,
}

impl RunFile {
    /// Adds a line, in one write. A line that was cut off by a crash is ended first.
    pub(super) fn append(&mut self, value: &Value) -> io::Result<()> {
        let mut line = Vec::new();
        if !ends_in_newline(&mut self.file)? {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, value)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    pub(super) fn end(&mut self, stored: &Stored) -> io::Result<()> {
        self.append(&end(stored))
    }
}

fn end(stored: &Stored) -> Value {
    let Summary { total, passed, failed } = stored.summary;
    json!({ "end": {
        "state": stored.state.as_str(),
        "summary": { "total": total, "passed": passed, "failed": failed },
        "error": stored.error,
    } })
}

fn ends_in_newline(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Whether the last line of a file is an end: without reading the rest.
fn is_ended(path: &Path) -> bool {
    const TAIL: i64 = 64 * 1024;
    let tail = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::End(-i64::try_from(length).unwrap_or(TAIL).min(TAIL)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok::<_, io::Error>(tail)
    };
    tail().is_ok_and(|tail| {
        let whole = tail.strip_suffix(b"\n").unwrap_or_default();
        whole.rsplit(|byte| *byte == b'\n').next().is_some_and(|line| line.starts_with(b"{\"end\":"))
    })
}

fn replay(mut file: &File) -> io::Result<Stored> {
    file.seek(SeekFrom::Start(0))?;
    let mut stored = Stored { state: RunState::Running, summary: Summary::default(), error: None };
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut lines).take(LINE_LIMIT).read_until(b'\n', &mut line)? == 0 {
            return Ok(stored);
        }
        // The last line may have been cut off.
        let Ok(value) = serde_json::from_slice::<Value>(&line) else { continue };
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        if let Some(run) = value.get("run") {
            stored.summary.total = number(&run["totalTasks"]);
        } else if let Some(task) = value.get("task") {
            match task["status"].as_str() {
                Some("passed") => stored.summary.passed += 1,
                Some("cancelled") | None => {}
                Some(_) => stored.summary.failed += 1,
            }
        } else if let Some(end) = value.get("end") {
            let summary = &end["summary"];
            stored.summary = Summary {
                total: number(&summary["total"]),
                passed: number(&summary["passed"]),
                failed: number(&summary["failed"]),
            };
            stored.error = end["error"].as_str().map(str::to_owned);
            stored.state = match end["state"].as_str() {
                Some("completed") => RunState::Completed,
                Some("cancelled") => RunState::Cancelled,
                _ => RunState::Failed,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_nobody_holds_has_failed_with_what_was_done() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("runs")).unwrap();
        let mut run = store.create("r1", &json!({ "totalTasks": 3 })).unwrap();
        run.append(&json!({ "task": { "status": "passed" } })).unwrap();
        assert_eq!(store.look("r1").unwrap().unwrap().state, RunState::Running, "it is locked");
        assert!(store.create("r1", &json!({})).is_err(), "ids are not used twice");

        // The process dies in the middle of a line.
        let path = store.folder().join("r1.jsonl");
        run.file.write_all(b"{\"task\":{\"sta").unwrap();
        drop(run);
        let again = Store::open(folder.path().join("runs")).unwrap();
        let stored = again.look("r1").unwrap().unwrap();
        assert_eq!((stored.state, stored.summary), (RunState::Failed, Summary { total: 3, passed: 1, failed: 0 }));
        assert!(stored.error.as_ref().unwrap().contains("1 of 3 tasks"), "{stored:?}");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 4, "the cut-off line, and the end on a line of its own: {text}");
        assert!(is_ended(&path));
        assert_eq!(again.look("r1").unwrap().unwrap(), stored);

        for unknown in ["r2", "", "../r1", "a/b"] {
            assert_eq!(again.look(unknown).unwrap(), None, "{unknown}");
        }
    }
}
