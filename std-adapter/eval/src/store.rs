//! Runs on the disk. Each run is a file of JSON lines in a folder.
//!
//! The first line is `{"run":…}`. A line follows for each trial and each task that has ended, and
//! the last line is `{"end":…}`. The process of the run holds a lock on the file. If a file has
//! neither an end nor a lock, the process of its run has died.
//!
//! The newest [`KEPT`] runs are kept. When there are more, each new run removes the oldest ended
//! ones.
//!
//! The files that the steps of a run attach are in the folder `ID.files`, which is removed with the
//! run.
//!
//! The folder may contain other files. A file belongs to a run if it is a regular file and not a
//! link, has the name of a run, and its first line is about this run. Other files are never changed
//! or removed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rigline::protocol::waza::{RunState, Summary};
use serde::Serialize;
use serde_json::{Value, json};

use rigline_host::files;

/// The largest number of runs in a folder. When a further run begins, the oldest ended ones are
/// removed. Unfinished runs are never removed.
pub const KEPT: usize = 1000;
/// How old a file is that was to become a run's, when it is certain that nothing will become of it.
const STALE: Duration = Duration::from_secs(60);
/// A line of a run's file that is read is not longer.
const LINE_LIMIT: u64 = 64 << 20;

/// A folder that keeps runs.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// The state of a run, as its file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The state of the run. It is `running` while this or another process runs it.
    pub state: RunState,
    /// The numbers of tasks that have passed and failed so far.
    pub summary: Summary,
    /// The reason why the run failed. `None` if it did not fail.
    pub error: Option<String>,
    /// The result of the run, as in reports. `None` if the run has not ended, or its process was
    /// killed.
    pub result: Option<Ended>,
}

/// The result of a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// The verdict: `pass`, `fail`, `rig_error` or `cancelled`.
    pub verdict: String,
    /// The reason why the run did not pass. In a run that passed: the failures that its threshold
    /// allows.
    pub reason: Option<String>,
}

impl Store {
    /// Returns the default folder for the runs of this user: `$XDG_STATE_HOME/rigline/runs`, or the
    /// corresponding folder of the system.
    ///
    /// # Errors
    /// The user has no home folder.
    pub fn default_folder() -> io::Result<PathBuf> {
        use etcetera::BaseStrategy as _;
        let strategy = etcetera::choose_base_strategy().map_err(io::Error::other)?;
        let base = strategy.state_dir().unwrap_or_else(|| strategy.data_dir());
        Ok(base.join("rigline").join("runs"))
    }

    /// Opens a folder of runs. A missing folder is made. Runs whose process has died become failed.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub fn open(folder: PathBuf) -> io::Result<Self> {
        if folder.exists() && !folder.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder"));
        }
        fs::create_dir_all(&folder)?;
        let store = Self { folder };
        for entry in fs::read_dir(&store.folder)?.flatten() {
            let path = entry.path();
            let Ok(name) = entry.file_name().into_string() else { continue };
            // One that cannot be read is left as it is.
            if name.strip_suffix(".jsonl").is_some_and(|id| is_run(id) && is_ours(&path, id)) {
                if !is_ended(&path) {
                    drop(settle(&path));
                }
            } else if is_new(&name).is_some_and(|id| is_stale(&path, id)) {
                let _ = fs::remove_file(&path);
            }
        }
        store.prune();
        Ok(store)
    }

    /// Returns the folder of the runs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins a run's file, which must not be there yet.
    pub(super) fn create(&self, id: &str, head: &Value) -> io::Result<RunFile> {
        let path = self.path(id);
        // It has another name until it is locked, so that no process mistakes it for a run whose owner
        // has ended.
        let new = self.folder.join(format!(".{id}{NEW}"));
        let file = files::private(OpenOptions::new().read(true).append(true).create_new(true)).open(&new)?;
        let begin = || {
            file.lock()?;
            let mut run = RunFile { file, has_failed: false, logs: 0, syncs: false };
            let mut head = head.clone();
            if let Some(head) = head.as_object_mut() {
                head.insert("id".into(), id.into());
            }
            run.append(&json!({ "run": head }))?;
            // A link, other than a new name, takes no other file's place.
            match fs::hard_link(&new, &path) {
                // Some file systems have no links.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists && fs::symlink_metadata(&path).is_err() => {
                    fs::rename(&new, &path)?;
                }
                linked => linked?,
            }
            Ok(run)
        };
        let run = begin();
        let _ = fs::remove_file(&new);
        self.prune();
        run
    }

    /// Removes the oldest runs that have ended, as far as there are too many. Names begin with the time, so that their order
    /// is that of the runs. Files that have other names stay.
    fn prune(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.strip_suffix(".jsonl").is_some_and(is_run))
            .collect();
        let mut excess = names.len().saturating_sub(KEPT);
        if excess == 0 {
            return;
        }
        // The time has as many digits for centuries; a clock that is wrong may give fewer.
        names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        for name in names {
            let path = self.folder.join(name);
            let id = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if excess > 0 && is_ours(&path, id) && is_ended(&path) && fs::remove_file(&path).is_ok() {
                excess -= 1;
                // A link is not followed.
                let files = self.files(id);
                if fs::symlink_metadata(&files).is_ok_and(|about| about.is_dir()) {
                    let _ = fs::remove_dir_all(&files);
                }
            }
        }
    }

    /// Reads the state of a run from its file. Returns `None` if there is no such run.
    ///
    /// # Errors
    /// The file exists, but cannot be read or is not a run's.
    pub fn look(&self, id: &str) -> io::Result<Option<Stored>> {
        let path = self.path(id);
        if !is_run(id) || fs::symlink_metadata(&path).is_err() {
            return Ok(None);
        }
        if !is_ours(&path, id) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file of that name is not a run's"));
        }
        match settle(&path) {
            Ok(stored) => Ok(Some(stored)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All runs that can be read, the newest first: each one's name, the head of its file, and what is known of it.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(super) fn all(&self) -> io::Result<Vec<(String, Value, Stored)>> {
        let run = |(id, head): (String, Value)| {
            let stored = self.look(&id).ok()??;
            Some((id, head, stored))
        };
        Ok(self.heads()?.filter_map(run).collect())
    }

    /// The names of all runs, the newest first, with the heads of their files. A file is opened when its turn comes.
    pub(super) fn heads(&self) -> io::Result<impl Iterator<Item = (String, Value)>> {
        let names = fs::read_dir(&self.folder)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut ids: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(".jsonl").filter(|id| is_run(id))?.to_owned())).collect();
        ids.sort_by(|a, b| (b.len(), b).cmp(&(a.len(), a)));
        Ok(ids.into_iter().filter_map(|id| Some((head_of(&self.path(&id), &id)?, id))).map(|(head, id)| (id, head)))
    }

    /// Returns the complete lines of a run's file. There are none if the file does not exist.
    pub fn records(&self, id: &str) -> impl Iterator<Item = Value> + use<> {
        let path = self.path(id);
        let file = (is_run(id) && is_ours(&path, id)).then(|| files::open(&path).ok()).flatten();
        file.into_iter().flat_map(|file| records_of(file).map_while(Result::ok))
    }

    /// Returns the folder for the files that the steps of a run attach.
    pub fn files(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.files"))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.jsonl"))
    }
}

/// Reads a run. If it has no end, and no process holds its lock, an end is added.
fn settle(path: &Path) -> io::Result<Stored> {
    let file = files::open_with(OpenOptions::new().read(true).append(true), path)?;
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
    let stored = Stored { state: RunState::Failed, summary: stored.summary, error: Some(error), result: None };
    let mut run = RunFile { file, has_failed: false, logs: 0, syncs: false };
    run.append(&end(&stored))?;
    Ok(stored)
}

/// The file of a run that this process runs. The lock goes with it.
#[derive(Debug)]
pub(super) struct RunFile {
    file: File,
    /// Whether it was said that it cannot be written.
    pub(super) has_failed: bool,
    /// How many log lines are in it.
    pub(super) logs: u32,
    /// Whether what was done is on the disk at once.
    pub(super) syncs: bool,
}

impl RunFile {
    /// Adds a line, in one write. A line that was cut off by a crash is ended first.
    pub(super) fn append(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = Vec::new();
        if !ends_in_newline(&mut self.file)? {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, value)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Ensures that appended data is on the disk when this returns, in a file of which that is wanted.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.syncs { self.file.sync_data() } else { Ok(()) }
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
        "verdict": stored.result.as_ref().map(|result| &result.verdict),
        "reason": stored.result.as_ref().and_then(|result| result.reason.as_ref()),
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

/// Whether this is the name of a run: a time and a number, in hexadecimal digits.
fn is_run(id: &str) -> bool {
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    id.len() <= 64 && id.split_once('-').is_some_and(|(time, number)| is_hex(time) && is_hex(number))
}

/// The end of the name of a file before it is renamed to a run's.
const NEW: &str = ".rigline-new";

/// The run that a file of this name is to become.
fn is_new(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(NEW).filter(|id| is_run(id))
}

/// Whether a file was left by a process that died before it became a run's.
fn is_stale(path: &Path, id: &str) -> bool {
    let age = || fs::symlink_metadata(path)?.modified()?.elapsed().map_err(io::Error::other);
    let is_empty = || fs::symlink_metadata(path).is_ok_and(|about| about.is_file() && about.len() == 0);
    age().is_ok_and(|age| age > STALE)
        && (is_empty() || is_ours(path, id))
        && files::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Whether a file is the run's of that name: no link, and its first line says so.
fn is_ours(path: &Path, id: &str) -> bool {
    head_of(path, id).is_some()
}

/// The content of the first line of a run's file, if it is that run's.
fn head_of(path: &Path, id: &str) -> Option<Value> {
    const HEAD_LIMIT: u64 = 1 << 20;
    if !fs::symlink_metadata(path).is_ok_and(|about| about.is_file()) {
        return None;
    }
    let mut line = Vec::new();
    BufReader::new(files::open(path).ok()?.take(HEAD_LIMIT)).read_until(b'\n', &mut line).ok()?;
    if !line.starts_with(b"{\"run\":{") {
        return None;
    }
    let mut head: Value = serde_json::from_slice(&line).ok()?;
    (head["run"]["id"].as_str() == Some(id)).then(|| head["run"].take())
}

/// Whether the last line of a file is an end: without reading the rest.
fn is_ended(path: &Path) -> bool {
    const TAIL: i64 = 64 * 1024;
    let tail = || {
        let mut file = files::open(path)?;
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
    let mut stored = Stored { state: RunState::Running, summary: Summary::default(), error: None, result: None };
    for value in records_of(file) {
        let value = value?;
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        if let Some(run) = value.get("run") {
            stored.summary.total = number(&run["totalTasks"]);
        } else if let Some(task) = value.get("task") {
            match task["status"].as_str() {
                Some("passed") => stored.summary.passed += 1,
                Some("cancelled" | "skipped") | None => {}
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
            let text = |value: &Value| value.as_str().map(str::to_owned);
            stored.result = text(&end["verdict"]).map(|verdict| Ended { verdict, reason: text(&end["reason"]) });
            stored.state = match end["state"].as_str() {
                Some("completed") => RunState::Completed,
                Some("cancelled") => RunState::Cancelled,
                _ => RunState::Failed,
            };
        }
    }
    Ok(stored)
}

/// The lines of a run's file. One that was cut off is null.
fn records_of(file: impl io::Read) -> impl Iterator<Item = io::Result<Value>> {
    let mut lines = BufReader::new(file);
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match (&mut lines).take(LINE_LIMIT).read_until(b'\n', &mut line) {
            Ok(0) => None,
            read => Some(read.map(|_| serde_json::from_slice(&line).unwrap_or_default())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_nobody_holds_has_failed_with_what_was_done() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("runs")).unwrap();
        let mut run = store.create("a-1", &json!({ "totalTasks": 3 })).unwrap();
        run.append(&json!({ "task": { "status": "passed" } })).unwrap();
        assert_eq!(store.look("a-1").unwrap().unwrap().state, RunState::Running, "it is locked");
        assert!(store.create("a-1", &json!({})).is_err(), "ids are not used twice");

        // The process dies in the middle of a line.
        let path = store.folder().join("a-1.jsonl");
        run.file.write_all(b"{\"task\":{\"sta").unwrap();
        drop(run);
        let again = Store::open(folder.path().join("runs")).unwrap();
        let stored = again.look("a-1").unwrap().unwrap();
        assert_eq!((stored.state, stored.summary), (RunState::Failed, Summary { total: 3, passed: 1, failed: 0 }));
        assert!(stored.error.as_ref().unwrap().contains("1 of 3 tasks"), "{stored:?}");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 4, "the cut-off line, and the end on a line of its own: {text}");
        assert!(is_ended(&path));
        assert_eq!(again.look("a-1").unwrap().unwrap(), stored);

        // What was begun and never became a run goes, once it is certain that nothing will become of it.
        let (old, fresh) = (store.folder().join(".a-3.rigline-new"), store.folder().join(".a-4.rigline-new"));
        let past = std::time::SystemTime::now() - 2 * STALE;
        File::create(&old).unwrap().set_modified(past).unwrap();
        File::create(&fresh).unwrap();
        Store::open(folder.path().join("runs")).unwrap();
        assert_eq!((old.exists(), fresh.exists()), (false, true));

        for unknown in ["a-2", "", "../a-1", "a/b", "notes", "-", "a-"] {
            assert_eq!(again.look(unknown).unwrap(), None, "{unknown}");
        }
    }

    #[test]
    fn the_oldest_runs_that_have_ended_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_owned()).unwrap();
        let ended = Stored { state: RunState::Completed, summary: Summary::default(), error: None, result: None };
        let name = |number: usize| format!("{number:011x}-000000");
        // The second is unfinished, and the file with notes is not a run.
        let mut unfinished = None;
        fs::write(folder.path().join("notes.jsonl"), "{\"end\":{}}\n").unwrap();
        for number in 0..KEPT {
            let mut run = store.create(&name(number), &json!({})).unwrap();
            if number == 1 {
                unfinished = Some(run);
            } else {
                run.end(&ended).unwrap();
            }
        }
        let is_there = |number| store.path(&name(number)).exists();
        // Attached files go with their run; a link of such a name is not followed.
        fs::create_dir(store.files(&name(2))).unwrap();
        fs::write(store.files(&name(2)).join("1-x.png"), "x").unwrap();
        #[cfg(unix)]
        let elsewhere = {
            let elsewhere = tempfile::tempdir().unwrap();
            fs::write(elsewhere.path().join("kept"), "x").unwrap();
            std::os::unix::fs::symlink(elsewhere.path(), store.files(&name(0))).unwrap();
            elsewhere
        };
        let is_run = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".jsonl");
        let count = || {
            let names = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
            names.filter(|name| is_run(name)).count() - 1
        };
        assert_eq!((count(), is_there(0)), (KEPT, true), "as many as there may be");
        for (number, gone) in [(KEPT, 0), (KEPT + 1, 2)] {
            store.create(&name(number), &json!({})).unwrap().end(&ended).unwrap();
            assert_eq!((count(), is_there(gone), is_there(1), is_there(number)), (KEPT, false, true, true));
        }
        assert!(folder.path().join("notes.jsonl").exists());
        assert!(!store.files(&name(2)).exists());
        #[cfg(unix)]
        assert!(elsewhere.path().join("kept").exists());
        // What a process left unfinished ends when the folder is opened, and then it is one of the oldest.
        drop(unfinished);
        let copy = fs::read_to_string(store.path(&name(5))).unwrap().replace(&name(5), &name(KEPT + 2));
        fs::write(store.path(&name(KEPT + 2)), copy).unwrap();
        Store::open(folder.path().to_owned()).unwrap();
        assert_eq!((count(), is_there(1)), (KEPT, false));
    }

    /// Reports: retigra/ZabbixCI#23.
    #[test]
    #[cfg(unix)]
    fn what_we_did_not_write_stays_and_nothing_blocks() {
        use std::os::unix::fs::{FileTypeExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let past = std::time::SystemTime::now() - 2 * STALE;
        let theirs = [
            ("config.new", "x"),
            ("notes.jsonl", "{\"run\":{}}\n"),
            ("18c-1.jsonl", "{\"run\":{\"id\":\"another\"}}\n"),
            ("18c-2.jsonl", "{\"run\":1}\n"),
            ("18c-3.jsonl", ""),
            ("18c-4.jsonl", "{\"ts\":\"2026-01-01\",\"event\":\"session:start\"}\n"),
            ("18c-5.new", "{}"),
            (".18c-6.rigline-new", "somebody's"),
            ("elsewhere.jsonl", "{\"run\":{\"id\":\"18c-7\"}}\n"),
        ];
        for (name, text) in theirs {
            fs::write(at(name), text).unwrap();
            File::options().append(true).open(at(name)).unwrap().set_modified(past).unwrap();
        }
        symlink("elsewhere.jsonl", at("18c-7.jsonl")).unwrap();
        symlink("/dev/zero", at("18c-8.jsonl")).unwrap();
        symlink("nowhere", at("18c-9.jsonl")).unwrap();
        for fifo in ["x.jsonl", "18c-a.jsonl", ".18c-b.rigline-new", "y.new"] {
            rustix::fs::mkfifoat(rustix::fs::CWD, at(fifo), 0o600.into()).unwrap();
        }
        fs::create_dir(at("18c-c.jsonl")).unwrap();
        let before = fs::read_dir(folder.path()).unwrap().count();
        let store = Store::open(folder.path().to_owned()).unwrap();
        for id in 1..=9 {
            let _ = store.look(&format!("18c-{id}"));
        }
        let _ = (store.look("18c-a"), store.look("18c-c"), store.look("notes"));
        // The oldest runs make room; theirs, which are older still, do not.
        let ended = Stored { state: RunState::Completed, summary: Summary::default(), error: None, result: None };
        for number in 0..KEPT + 3 {
            store.create(&format!("{number:011x}-000000"), &json!({})).unwrap().end(&ended).unwrap();
        }
        for (name, text) in theirs {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), text, "{name}");
        }
        for (name, target) in
            [("18c-7.jsonl", "elsewhere.jsonl"), ("18c-8.jsonl", "/dev/zero"), ("18c-9.jsonl", "nowhere")]
        {
            assert_eq!(fs::read_link(at(name)).unwrap(), Path::new(target));
        }
        for fifo in ["x.jsonl", "18c-a.jsonl", ".18c-b.rigline-new", "y.new"] {
            assert!(fs::symlink_metadata(at(fifo)).unwrap().file_type().is_fifo());
        }
        let runs = fs::read_dir(folder.path()).unwrap().count() - before;
        assert!((KEPT - 20..=KEPT).contains(&runs), "{runs}");
    }
}
