//! The folder of a recording, and the files in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use serde_json::{Map, Value, json};

use crate::{files, terminal};
use rigline_std::mutex::lock;

/// The name of the file that describes the recording.
pub const RUN: &str = "run.json";
/// The name of the file with the transcript.
pub const SESSION: &str = "session.jsonl";
/// The output of the board under test.
pub(super) const UART: &str = "uart.jsonl";
/// The longest [`RUN`] that is read.
const RUN_LIMIT: u64 = 16 << 20;

/// The reason why a recording cannot be written to a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The path leads to a link, which is not followed.
    #[error("{} is a link, which is not followed: name the folder", .0.display())]
    Link(PathBuf),
    /// The folder contains files that are not part of a recording.
    #[error("{} is neither empty nor a recording; nothing was changed", .0.display())]
    Foreign(PathBuf),
    /// A file has the name of one of the recording's files, but no recording has written it.
    #[error("{} exists, and is not part of the recording in that folder; nothing was changed", .0.display())]
    ForeignFile(PathBuf),
    /// Another process writes a recording to this folder.
    #[error("{}: another process is recording to this folder", .0.display())]
    Busy(PathBuf),
    /// The folder or a file cannot be made, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the folder or the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The folder of a recording that is being written. At first it must be empty, or have an earlier
/// recording, which is replaced.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The content of [`RUN`].
    about: Mutex<Map<String, Value>>,
}

impl Folder {
    /// Makes the folder, or takes that of an earlier recording.
    ///
    /// # Errors
    /// The folder cannot be made, or contains other files. Nothing was changed then.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderError::Io { path, source }
        };
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => return Err(FolderError::Link(path.to_owned())),
            Ok(found) if !found.is_dir() => return Err(failed(path)(io::Error::other("not a folder"))),
            Ok(_) => {}
            Err(_) => fs::create_dir_all(path).map_err(failed(path))?,
        }
        // A recording that was killed leaves the folder as it finds it.
        files::remove_unfinished(path);
        let names: Vec<_> =
            fs::read_dir(path).map_err(failed(path))?.flatten().map(|entry| entry.file_name()).collect();
        let old = written(&path.join(RUN));
        if old.is_none() && !names.is_empty() {
            return Err(FolderError::Foreign(path.to_owned()));
        }
        let old = old.unwrap_or_default();
        let is_old = |name: &str| old.iter().any(|old| old == name);
        let mut known = names.iter().filter_map(|name| name.to_str());
        if let Some(name) = known.find(|name| is_name(name) && !is_old(name)) {
            return Err(FolderError::ForeignFile(path.join(name)));
        }
        // What has taken the place of one of them since, such as a link, was not written by a recording.
        let is_replaced =
            |name: &&str| is_name(name) && fs::symlink_metadata(path.join(name)).is_ok_and(|about| !about.is_file());
        if let Some(name) = names.iter().filter_map(|name| name.to_str()).find(is_replaced) {
            return Err(FolderError::ForeignFile(path.join(name)));
        }
        if let Ok(session) = files::open(&path.join(SESSION))
            && let Err(TryLockError::WouldBlock) = session.try_lock()
        {
            return Err(FolderError::Busy(path.to_owned()));
        }
        let folder = Self { path: path.to_owned(), about: Mutex::default() };
        {
            let mut about = folder.lock();
            about.insert("rigline".into(), "recording".into());
            about.insert("version".into(), 1.into());
            about.insert("state".into(), "recording".into());
            // The old files are the recording's until they are removed: it may be killed before that.
            let kept = old.iter().map(String::as_str).filter(|name| *name != RUN && is_name(name));
            about.insert("written".into(), [RUN].into_iter().chain(kept).collect());
        }
        // The file that identifies the recording is written first.
        folder.save().map_err(failed(&path.join(RUN)))?;
        for name in old.iter().filter(|name| *name != RUN && is_name(name)) {
            let old = path.join(name);
            if fs::symlink_metadata(&old).is_ok_and(|about| about.is_file()) {
                fs::remove_file(&old).map_err(failed(&old))?;
            }
        }
        // From here on, a file of one of their names is somebody else's.
        folder.say("written", json!([RUN]));
        folder.save().map_err(failed(&path.join(RUN)))?;
        Ok(folder)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the member `name` of the file [`RUN`], which is written at the end of the recording.
    pub fn say(&self, name: &str, value: Value) {
        self.lock().insert(name.to_owned(), value);
    }

    /// Writes a whole file into the folder.
    ///
    /// # Errors
    /// The file cannot be written, or a recording has no file of this name.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.claim(name)?;
        files::write_private(&self.path.join(name), bytes)
    }

    /// Begins a file that lines are added to. It is locked as long as it is open.
    pub(super) fn begin(&self, name: &str, first: &str) -> io::Result<File> {
        self.write(name, first.as_bytes())?;
        let file = files::open_own(OpenOptions::new().append(true), &self.path.join(name))?;
        let _ = file.try_lock();
        Ok(file)
    }

    /// Writes [`RUN`]. `state` is what became of the recording.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn finish(&self, state: &str) -> io::Result<()> {
        self.say("state", state.into());
        self.save()
    }

    /// Has [`RUN`] say that a file is ours, before it is there.
    fn claim(&self, name: &str) -> io::Result<()> {
        if !is_name(name) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is not a file of a recording")));
        }
        let mut about = self.lock();
        let Some(written) = about.get_mut("written").and_then(Value::as_array_mut) else { return Ok(()) };
        if written.iter().any(|written| written == name) {
            return Ok(());
        }
        // A file that has appeared since then is not part of the recording.
        if fs::symlink_metadata(self.path.join(name)).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} was not made by this recording")));
        }
        written.push(name.into());
        drop(about);
        self.save()
    }

    fn save(&self) -> io::Result<()> {
        let text = format!("{:#}\n", Value::Object(self.lock().clone()));
        files::write_private(&self.path.join(RUN), terminal::json(&text).as_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, Map<String, Value>> {
        lock(&self.about)
    }
}

/// Whether a recording has a file of this name.
fn is_name(name: &str) -> bool {
    [RUN, SESSION, UART, "values.jsonl", "report.json", "report.html"].contains(&name)
}

/// The files that the recording consists of which `run` is about, if that is one's.
fn written(run: &Path) -> Option<Vec<String>> {
    if !fs::symlink_metadata(run).is_ok_and(|about| about.is_file()) {
        return None;
    }
    let about: Value = serde_json::from_slice(&files::read(run, RUN_LIMIT).ok()?).ok()?;
    let names = about["written"].as_array().filter(|_| about["rigline"] == "recording")?;
    Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_that_is_not_ours_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("theirs")).unwrap();
        fs::write(at("theirs/notes"), "mine").unwrap();
        symlink("theirs", at("link")).unwrap();
        fs::write(at("file"), "x").unwrap();
        fs::create_dir(at("like")).unwrap();
        fs::write(at("like/run.json"), "{\"run\":1}").unwrap();
        for (name, why) in [
            ("theirs", "neither empty nor a recording"),
            ("link", "is a link"),
            ("file", "not a folder"),
            ("like", "neither empty nor a recording"),
        ] {
            let error = Folder::create(&at(name)).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
        assert_eq!(fs::read_dir(at("theirs")).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(at("like/run.json")).unwrap(), "{\"run\":1}");
    }

    #[test]
    fn a_recording_is_replaced_and_foreign_files_in_it_stay() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("new/run");
        let folder = Folder::create(&path).unwrap();
        folder.write("report.json", b"old").unwrap();
        let session = folder.begin(SESSION, "first\n").unwrap();
        assert!(matches!(Folder::create(&path), Err(FolderError::Busy(_))), "it is being written");
        folder.finish("complete").unwrap();
        drop(session);
        fs::write(path.join("notes.txt"), "mine").unwrap();
        let again = Folder::create(&path).unwrap();
        assert!(!path.join("report.json").exists() && !path.join(SESSION).exists());
        assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
        // A name of the recording that another program has used.
        fs::write(path.join("report.json"), "theirs").unwrap();
        assert!(
            again.write("report.json", b"ours").unwrap_err().to_string().contains("was not made by this recording")
        );
        assert!(again.write("../x", b"ours").is_err());
        drop(again);
        assert!(matches!(Folder::create(&path), Err(FolderError::ForeignFile(_))));
        assert_eq!(fs::read_to_string(path.join("report.json")).unwrap(), "theirs");
    }
}
