//! The agent's books on the disk: what is in them was synced before anybody was told of it, and what a crash has torn is not in them.
//!
//! redb keeps them in one file, with checksums; each write is one transaction.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::records::{Books, Change, Entry, Kept};

const LEASES: TableDefinition<'_, &str, &str> = TableDefinition::new("leases");
const RIGS: TableDefinition<'_, &str, &str> = TableDefinition::new("rigs");
const LOG: TableDefinition<'_, u64, &str> = TableDefinition::new("log");

/// How many events the log keeps.
const LOG_LIMIT: u64 = 10_000;

/// The memory for pages of the file.
const CACHE: usize = 1 << 20;

/// The agent's books in a database file.
pub struct File {
    path: PathBuf,
    /// There is none after an error of the disk, until the file can be opened again.
    database: Option<Database>,
}

impl File {
    /// Opens the database file, and makes it if it is missing. A damaged file is renamed, and a new
    /// one begun; the holders then tell their leases. Returns the content of the books, or `None`
    /// if they are new.
    ///
    /// # Errors
    /// The file cannot be opened or made.
    pub fn open(path: &Path) -> io::Result<(Self, Option<Kept>)> {
        // A file without a byte is one that was torn, or none: nothing is known from it.
        let is_new = std::fs::metadata(path).map_or(0, |about| about.len()) == 0;
        let opened = Self::try_open(path);
        match opened {
            Ok((file, kept)) => Ok((file, (!is_new).then_some(kept))),
            Err(error) if is_new || error.kind() != io::ErrorKind::InvalidData => Err(error),
            Err(error) => {
                let aside = path.with_extension(format!("damaged-{}", crate::clock::unix_seconds()));
                eprintln!("rigline lab: {}: {error}; it is now {}", path.display(), aside.display());
                std::fs::rename(path, aside)?;
                Ok((Self::try_open(path)?.0, None))
            }
        }
    }

    fn try_open(path: &Path) -> io::Result<(Self, Kept)> {
        unharmed(|| {
            let database = open(path)?;
            let kept = read(&database).map_err(failed)?;
            Ok((Self { path: path.to_owned(), database: Some(database) }, kept))
        })
    }
}

/// Does something with a file that may be damaged: redb panics at some damages.
fn unharmed<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::InvalidData, "the books are damaged: they cannot be read"))
    })
}

/// Makes the file if it is missing. Only this user may read who has used which rig, and for what.
fn make_private(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<Database> {
    make_private(path)?;
    let mut builder = Database::builder();
    let database = builder.set_cache_size(CACHE).create(path).map_err(|error| failed(error.into()))?;
    let write = || -> Result<(), redb::Error> {
        let all = database.begin_write()?;
        all.open_table(LEASES)?;
        all.open_table(RIGS)?;
        all.open_table(LOG)?;
        all.commit()?;
        Ok(())
    };
    write().map_err(failed)?;
    Ok(database)
}

fn read(database: &Database) -> Result<Kept, redb::Error> {
    let all = database.begin_read()?;
    let mut kept = Kept::default();
    for entry in all.open_table(LEASES)?.iter()? {
        kept.leases.push(parse(entry?.1.value())?);
    }
    for entry in all.open_table(RIGS)?.iter()? {
        let (name, health) = entry?;
        kept.rigs.push((name.value().to_owned(), parse(health.value())?));
    }
    Ok(kept)
}

fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let all = database.begin_write()?;
    {
        let (mut leases, mut rigs, mut log) = (all.open_table(LEASES)?, all.open_table(RIGS)?, all.open_table(LOG)?);
        for change in changes {
            match change {
                Change::Lease(lease) => drop(leases.insert(lease.id.as_str(), text(lease).as_str())?),
                Change::End(lease) => drop(leases.remove(lease.as_str())?),
                Change::Rig(name, health) => drop(rigs.insert(name.as_str(), text(health).as_str())?),
                Change::Log(entry) => {
                    let next = log.last()?.map_or(0, |(last, _)| last.value() + 1);
                    log.insert(next, text(entry).as_str())?;
                    if log.len()? > LOG_LIMIT {
                        log.pop_first()?;
                    }
                }
            }
        }
    }
    all.commit()?;
    Ok(())
}

impl Books for File {
    fn write(&mut self, changes: &[Change]) -> io::Result<()> {
        let database = match self.database.take() {
            Some(database) => database,
            None => open(&self.path)?,
        };
        match write(&database, changes) {
            Ok(()) => {
                self.database = Some(database);
                Ok(())
            }
            Err(error) => {
                // A store that has met an error of the disk takes nothing any more.
                drop(database);
                self.database = unharmed(|| open(&self.path)).ok();
                Err(failed(error))
            }
        }
    }

    fn log(&self, most: usize) -> io::Result<Vec<Entry>> {
        let Some(database) = &self.database else {
            return Err(io::Error::other(format!("{} cannot be opened", self.path.display())));
        };
        let read = || -> Result<Vec<Entry>, redb::Error> {
            let mut entries = Vec::new();
            for entry in database.begin_read()?.open_table(LOG)?.iter()?.rev().take(most) {
                entries.push(parse(entry?.1.value())?);
            }
            entries.reverse();
            Ok(entries)
        };
        read().map_err(failed)
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, redb::Error> {
    serde_json::from_str(text).map_err(|error| redb::Error::Corrupted(error.to_string()))
}

fn failed(error: redb::Error) -> io::Error {
    match error {
        redb::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::InvalidData, "the books are damaged: they end too early")
        }
        redb::Error::Io(error) => error,
        redb::Error::DatabaseAlreadyOpen => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another agent has the books open")
        }
        other => io::Error::new(io::ErrorKind::InvalidData, format!("the books are damaged: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::a_lease;

    #[test]
    fn what_was_written_is_there_after_a_crash_and_what_was_not_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("books"), folder.path().join("copy"));
        let (mut file, kept) = File::open(&path).unwrap();
        assert!(kept.is_none());
        file.write(&[Change::Lease(a_lease("one")), Change::Lease(a_lease("two"))]).unwrap();
        file.write(&[Change::End("one".into())]).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        // As a kill -9 leaves the file.
        std::fs::copy(&path, &copy).unwrap();
        std::fs::set_permissions(&copy, Permissions::from_mode(0o644)).unwrap();
        let (_, kept) = File::open(&copy).unwrap();
        assert_eq!(mode(&copy), 0o600, "one of an earlier version");
        let kept: Vec<String> = kept.unwrap().leases.into_iter().map(|lease| lease.id).collect();
        assert_eq!(kept, ["two"]);
    }

    #[test]
    fn damaged_books_are_put_aside_and_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("books");
        drop(File::open(&path).unwrap());
        std::fs::write(&path, [b'x'; 9000]).unwrap();
        let (mut file, kept) = File::open(&path).unwrap();
        assert!(kept.is_none());
        file.write(&[Change::Lease(a_lease("one"))]).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn books_that_are_cut_or_changed_anywhere_are_read_or_put_aside_and_never_end_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("books");
        let (mut file, _) = File::open(&path).unwrap();
        file.write(&[Change::Lease(a_lease("one")), Change::Lease(a_lease("two"))]).unwrap();
        drop(file);
        let whole = std::fs::read(&path).unwrap();
        let cuts = [1, 100, 320, 512, 4095, 4096, 5000, whole.len() / 2, whole.len() - 1, whole.len()];
        for cut in cuts {
            for changed in [None, Some(0), Some(9), Some(70), Some(200), Some(4096), Some(cut / 2), Some(cut - 1)] {
                let mut torn = whole.get(..cut).unwrap().to_vec();
                if let Some(byte) = changed.and_then(|place| torn.get_mut(place)) {
                    *byte ^= 0x5a;
                }
                std::fs::write(&path, torn).unwrap();
                let what = format!("{cut} bytes, changed: {changed:?}");
                let (mut file, kept) = File::open(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
                let known = kept.map_or(0, |kept| kept.leases.len());
                assert!(known == 0 || known == 2, "{what}: {known}");
                file.write(&[Change::Lease(a_lease("three"))]).unwrap();
            }
        }
        // Of an empty file nothing is known: the leases were lost.
        std::fs::write(&path, "").unwrap();
        assert!(File::open(&path).unwrap().1.is_none());
    }

    #[test]
    fn the_log_keeps_its_last_lines_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = File::open(&folder.path().join("books")).unwrap();
        let entry = |at| Entry {
            at,
            what: "granted".into(),
            rigs: vec!["sim".into()],
            lease: None,
            who: "me".into(),
            why: String::new(),
        };
        file.write(&(0..10).map(|at| Change::Log(entry(at))).collect::<Vec<_>>()).unwrap();
        let last: Vec<u64> = file.log(3).unwrap().into_iter().map(|entry| entry.at).collect();
        assert_eq!(last, [7, 8, 9]);
    }
}
