//! A recording that goes on for days: transcripts of bounded size in a folder, of which the oldest
//! make room.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The name of each file begins so.
const NAME: &str = "rigline-";
/// The end of each file's name.
const END: &str = ".jsonl";
/// The share of the folder's limit that one file may have, and the most bytes that it may have.
const SHARE: u64 = 16;
const LONGEST: u64 = 64 << 20;

/// The folder, and the limits.
#[derive(Debug)]
pub(super) struct Days {
    folder: PathBuf,
    /// How much all files may have, in bytes.
    limit: u64,
    /// The day of the newest file, and its number on that day.
    newest: (Day, u32),
}

/// A day by UTC, such as `2026-11-29`: the order of the texts is that of the days.
pub(super) type Day = String;

pub(super) fn today() -> Day {
    let mut text = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    text.truncate("2026-11-29".len());
    text
}

impl Days {
    /// Uses the folder, which is made if there is none, for this user only.
    pub(super) fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        match fs::symlink_metadata(folder) {
            Ok(found) if found.is_symlink() => {
                return Err(io::Error::other("a link, which is not followed: name the folder"));
            }
            Ok(found) if !found.is_dir() => return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder")),
            Ok(_) => {}
            Err(_) => make_private(folder)?,
        }
        let mut days = Self { folder: folder.to_owned(), limit: limit.max(1), newest: (Day::new(), 0) };
        if let Some((day, number, _)) = days.files()?.pop() {
            days.newest = (day, number);
        }
        Ok(days)
    }

    /// The most bytes that one file may have.
    pub(super) fn file_limit(&self) -> u64 {
        (self.limit / SHARE).clamp(1, LONGEST)
    }

    /// Whether the newest file is not of this day.
    pub(super) fn is_past(&self, today: &Day) -> bool {
        self.newest.0 < *today
    }

    /// Begins a file, and removes the oldest ones if there are too many bytes.
    pub(super) fn begin(&mut self, today: Day) -> io::Result<File> {
        // A clock that was set back does not change the order of the files.
        let day = today.max(self.newest.0.clone());
        let number = if day == self.newest.0 { self.newest.1 + 1 } else { 1 };
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(self.folder.join(format!("{NAME}{day}-{number:04}{END}")))?;
        self.newest = (day, number);
        self.prune()?;
        Ok(file)
    }

    /// Removes the oldest files, so that there is room for a further one.
    fn prune(&self) -> io::Result<()> {
        let files = self.files()?;
        let mut size: u64 = files.iter().map(|(_, _, path)| fs::metadata(path).map_or(0, |about| about.len())).sum();
        for (day, number, path) in files {
            if size + self.file_limit() <= self.limit || (&day, number) == (&self.newest.0, self.newest.1) {
                break;
            }
            size = size.saturating_sub(fs::metadata(&path).map_or(0, |about| about.len()));
            fs::remove_file(&path)?;
        }
        Ok(())
    }

    /// The files of this kind, the oldest first. Other files in the folder stay as they are.
    fn files(&self) -> io::Result<Vec<(Day, u32, PathBuf)>> {
        let mut files: Vec<_> = fs::read_dir(&self.folder)?
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let (day, number) = name.strip_prefix(NAME)?.strip_suffix(END)?.rsplit_once('-')?;
                let is_day = day.len() == 10 && day.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
                Some((day.to_owned(), number.parse().ok()?, entry.path())).filter(|_| is_day)
            })
            .collect();
        files.sort();
        Ok(files)
    }
}

#[cfg(unix)]
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}
