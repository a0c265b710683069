//! Files: reading without waiting, and writing that never leaves half a file.
//!
//! - [`read`] and [`read_text`] read a regular file of a bounded size. A FIFO, a device or a socket is refused, and nothing waits.
//! - [`write()`] and [`write_executable`] make the folders that a file needs, write a new file
//!   beside it, and rename that. A link is replaced, and its target stays as it is. The system's
//!   own links to streams and devices, such as `/dev/stderr`, are refused. If the write fails, the
//!   old file stays.
//! - [`write_private`] does the same for a file that may hold a secret: only this user can read it.
//!   `write_like` makes a copy that is as private as the original.
//! - [`first_line`] tells what a file is, before it is replaced or appended to.
//! - [`ensure_writable`] checks in advance whether [`write()`] can begin.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;

use rigline::json::{Json, JsonKind};

/// The mode of a file that only its user can read.
const PRIVATE: u32 = 0o600;
/// The name of a new file, before and after some random letters.
const PREFIX: &str = ".rigline-";
const SUFFIX: &str = ".tmp";

/// Opens a regular file for reading.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// Opens an existing regular file with `options`.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_kind(options, path, true)
}

/// As [`open_with`], but a link is refused, also one that takes the file's place just now.
pub(crate) fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_kind(options, path, false)
}

fn open_kind(options: &mut OpenOptions, path: &Path, follows_links: bool) -> io::Result<File> {
    // Before it is opened: to open a device may do something already.
    regular(&fs::metadata(path)?)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // It may have become a FIFO in the meantime; and some regular files of /proc wait for what they will say.
        let mut flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        flags.set(rustix::fs::OFlags::NOFOLLOW, !follows_links);
        options.custom_flags(i32::try_from(flags.bits()).unwrap_or_default());
    }
    #[cfg(not(unix))]
    let _ = follows_links;
    let file = options.open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// The file cannot be read, is not a regular file, or is larger than `limit`.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_open(&open(path)?, limit)
}

fn read_open(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("over {limit} bytes"));
    let length = file.metadata()?.len();
    if length > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default().saturating_add(1));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

/// Reads a regular UTF-8 file of at most `limit` bytes.
///
/// # Errors
/// As [`read`], or the content is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    read_open_text(&open(path)?, limit)
}

/// Reads an open UTF-8 file of at most `limit` bytes, as [`read_text`] does.
pub fn read_open_text(file: &File, limit: u64) -> io::Result<String> {
    String::from_utf8(read_open(file, limit)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

/// Writes a whole file. Missing folders are made. The content goes to a new file beside `path`,
/// which is then renamed; so a reader never sees half a file, and a link is replaced. The new file
/// gets the permissions of the old one.
///
/// # Errors
/// The file cannot be written, or is a folder, a device or a FIFO. The old file is then unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_as(path, bytes, None, fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).as_ref())
}

/// As [`write()`], a file that only this user can read, whatever was there: recordings, runs and tokens have secrets in them.
///
/// # Errors
/// As [`write()`].
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_as(path, bytes, permissions(PRIVATE), None)
}

/// As [`write()`], a file with the permissions and the owner of another one, which it is a copy of.
///
/// # Errors
/// As [`write()`], or the other file cannot be asked about.
pub(crate) fn write_like(path: &Path, bytes: &[u8], original: &Path) -> io::Result<()> {
    write_as(path, bytes, None, Some(&fs::symlink_metadata(original)?))
}

/// Writes a new file that only this user can read. It has another name until it is whole, and a
/// file that is there already stays.
///
/// # Errors
/// As [`write()`], or there is something at `path` already.
pub fn write_new_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut file = beside(path, permissions(PRIVATE))?;
    let _ = file.as_file().try_lock();
    file.as_file_mut().write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map(drop).map_err(|error| error.error)
}

/// As [`write()`], a file that only this user can read. It has the owner of the old one.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let old = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
    write_as(path, bytes, permissions(PRIVATE), old.as_ref())
}

/// Changes `options` so that a file that they create can be read only by this user.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, PRIVATE);
    options
}

/// Removes what writers that were killed have left in a folder: new files that have not taken their names. A writer that is at work
/// holds a lock on its own.
pub(crate) fn remove_unfinished(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_left = || {
            // Not a link, which could lead to another file.
            entry.file_type().is_ok_and(|kind| kind.is_file())
                && open_with(OpenOptions::new().read(true), &entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        };
        if entry.file_name().to_str().is_some_and(is_unfinished) && is_left() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a file of this name is a new one that has not taken its name yet.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)).is_some_and(|middle| !middle.is_empty())
}

/// Writes a whole file as [`write()`] does, and makes it executable for everybody who can read it.
///
/// # Errors
/// As [`write()`].
pub fn write_executable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_as(path, bytes, permissions(0o777), None)
}

/// Opens a log of JSON lines for appending. Its folder is made if it is missing. A link is refused,
/// and a file that is not a log of JSON lines stays as it is.
///
/// # Errors
/// The file cannot be opened, or is not a log of JSON lines. The text names the file.
pub fn append_json_lines(path: &Path) -> io::Result<File> {
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    match first_line(path)? {
        Some(first) if !Json::parse(first.as_bytes()).is_ok_and(|json| json.kind() == JsonKind::Object) => {
            let text = format!("{} exists, and is not a log of JSON lines; nothing was changed", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Some(_) => {}
        None => write_private(path, b"").map_err(with_path)?,
    }
    open_own(OpenOptions::new().append(true), path).map_err(with_path)
}

/// Returns the first line of a file, or `None` if there is no file or no line. A link is refused,
/// since it may lead to a file of another user.
///
/// # Errors
/// The file cannot be read, or is a link. The text names the file.
pub fn first_line(path: &Path) -> io::Result<Option<String>> {
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(None),
        Ok(found) if found.is_symlink() => {
            let text = format!("{} is a link, which is not followed: name the file", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(_) => {}
    }
    let mut line = Vec::new();
    let file = open_own(OpenOptions::new().read(true), path).map_err(with_path)?;
    BufReader::new(file).take(16 << 20).read_until(b'\n', &mut line).map_err(with_path)?;
    let line = String::from_utf8_lossy(&line);
    Ok((!line.is_empty()).then(|| line.trim_start_matches('\u{FEFF}').trim().to_owned()))
}

/// Makes the folders that `path` needs, and checks whether a file can be written there.
///
/// # Errors
/// A file cannot be written there.
pub fn ensure_writable(path: &Path) -> io::Result<()> {
    beside(path, None).map(drop)
}

/// Writes a file with the permissions `new`, to which the umask applies, or else exactly those of `old`; and with the owner of `old`.
fn write_as(path: &Path, bytes: &[u8], new: Option<fs::Permissions>, old: Option<&fs::Metadata>) -> io::Result<()> {
    let is_as_old = new.is_none();
    let mut file = beside(path, new.or_else(|| old.map(fs::Metadata::permissions)))?;
    // For whoever looks for what was left over.
    let _ = file.as_file().try_lock();
    file.as_file_mut().write_all(bytes)?;
    if let Some(old) = old {
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt as _, fchown};
            // Only root can give a file away; who is not root has another user's file replaced by an own one.
            let _ = fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
        }
        // As it was, whatever the umask is now; after the owner, which takes some bits away.
        if is_as_old {
            let _ = file.as_file().set_permissions(old.permissions());
        }
    }
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// A new file in the folder of `path`, which is removed when it is dropped.
fn beside(path: &Path, mode: Option<fs::Permissions>) -> io::Result<tempfile::NamedTempFile> {
    if path.as_os_str().is_empty() || path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    }
    if let Ok(about) = fs::metadata(path) {
        regular(&about)?;
    }
    if is_of_system(path) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a stream or a device, which a file cannot replace"));
    }
    if is_mounted(path) {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "it is a mount point, which a new file cannot replace; mount its folder instead",
        ));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| {
        // The system says "File exists" of a file where a folder has to be.
        if folder.exists() && !folder.is_dir() {
            io::Error::new(io::ErrorKind::NotADirectory, format!("{} is not a folder", folder.display()))
        } else {
            error
        }
    })?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        options.mode(mode.map_or(0o666, |mode| mode.mode()));
    }
    #[cfg(not(unix))]
    let _ = mode;
    // Opened here, since tempfile's own errors name the new file instead of `path`.
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX).make_in(folder, |new| options.open(new))
}

/// Whether a file is among the system's devices and streams. `/dev/stderr` is a link, possibly to a regular file, which all programs need.
fn is_of_system(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folder.canonicalize().is_ok_and(|folder| folder == Path::new("/dev") || folder.starts_with("/proc"))
}

/// Whether the file is a mount of its own, as containers have single files of the machine outside (statx(2)).
#[cfg(target_os = "linux")]
fn is_mounted(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())
        .is_ok_and(|about| about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mounted(_: &Path) -> bool {
    false
}

/// Permissions that the umask still applies to.
#[cfg(unix)]
fn permissions(mode: u32) -> Option<fs::Permissions> {
    use std::os::unix::fs::PermissionsExt as _;
    Some(fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn permissions(_: u32) -> Option<fs::Permissions> {
    None
}

fn regular(about: &fs::Metadata) -> io::Result<()> {
    if about.is_file() {
        return Ok(());
    }
    Err(if about.is_dir() {
        io::Error::new(io::ErrorKind::IsADirectory, "a folder, not a file")
    } else {
        io::Error::other("not a regular file")
    })
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_link_is_replaced_and_what_it_points_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("theirs"), "theirs").unwrap();
        symlink("theirs", at("link")).unwrap();
        fs::hard_link(at("theirs"), at("hard")).unwrap();
        for name in ["link", "hard"] {
            write(&at(name), b"ours").unwrap();
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "ours");
            assert!(fs::symlink_metadata(at(name)).unwrap().is_file());
        }
        symlink("nowhere", at("dangling")).unwrap();
        write(&at("dangling"), b"ours").unwrap();
        assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs");
        assert!(!at("nowhere").exists());
        write(&at("a/b/c"), b"made").unwrap();
        assert_eq!(read_text(&at("a/b/c"), 4).unwrap(), "made");
        assert!(read_text(&at("a/b/c"), 3).unwrap_err().to_string().contains("over 3 bytes"));
        // Permissions stay, and an executable file is one.
        fs::set_permissions(at("theirs"), fs::Permissions::from_mode(0o600)).unwrap();
        write(&at("theirs"), b"again").unwrap();
        assert_eq!(fs::metadata(at("theirs")).unwrap().permissions().mode() & 0o777, 0o600);
        write_executable(&at("run"), b"#!/bin/sh\n").unwrap();
        assert_eq!(fs::metadata(at("run")).unwrap().permissions().mode() & 0o700, 0o700);
        let names = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
        assert!(names.into_iter().all(|name| !name.to_string_lossy().contains(".tmp")), "nothing is left over");
    }

    #[test]
    fn an_error_names_no_file_of_ours() {
        // /proc takes no files from anybody, root included.
        for path in [Path::new("/proc/rigline-report"), Path::new("/proc/self/rigline-report")] {
            let error = ensure_writable(path).unwrap_err().to_string();
            assert!(!error.contains(".tmp"), "{error}");
        }
        // Where a mount can be seen: the system has one on each of these.
        for path in ["/proc/self/mountinfo", "/etc/hosts", "/etc/resolv.conf"] {
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            if mounts.lines().any(|line| line.split(' ').nth(4) == Some(path)) {
                let error = ensure_writable(Path::new(path)).unwrap_err().to_string();
                assert!(error.contains("mounted"), "{error}");
            }
        }
    }

    #[test]
    fn nothing_that_is_opened_blocks_or_is_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        symlink("/dev/null", folder.path().join("null")).unwrap();
        symlink("fifo", folder.path().join("pipe")).unwrap();
        for path in [fifo, folder.path().join("null"), folder.path().join("pipe"), folder.path().to_owned()] {
            let before = fs::symlink_metadata(&path).unwrap().file_type();
            for result in [read(&path, 10).map(drop), write(&path, b"x"), ensure_writable(&path)] {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("not a regular file") || error.contains("a folder"), "{error}");
            }
            assert_eq!(fs::symlink_metadata(&path).unwrap().file_type(), before);
        }
        let error = write(&folder.path().join("fifo/x"), b"x").unwrap_err().to_string();
        assert!(error.contains("is not a folder"), "{error}");
    }

    #[test]
    fn what_may_hold_a_secret_is_its_users_only_and_a_copy_is_as_its_original() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        fs::write(at("old"), "x").unwrap();
        fs::set_permissions(at("old"), fs::Permissions::from_mode(0o666)).unwrap();
        for name in ["new", "old"] {
            write_private(&at(name), b"secret").unwrap();
            assert_eq!(mode(name), 0o600, "{name}");
        }
        drop(append_json_lines(&at("log.jsonl")).unwrap());
        assert_eq!(mode("log.jsonl"), 0o600);
        for as_original in [0o600, 0o640, 0o444] {
            fs::set_permissions(at("old"), fs::Permissions::from_mode(as_original)).unwrap();
            write_like(&at("copy"), b"secret", &at("old")).unwrap();
            assert_eq!(mode("copy"), as_original);
            write(&at("old"), b"changed").unwrap();
            assert_eq!(mode("old"), as_original, "in place");
        }
    }

    #[test]
    fn a_new_private_file_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write_new_private(&at("new"), b"secret").unwrap();
        assert_eq!(fs::metadata(at("new")).unwrap().permissions().mode() & 0o777, 0o600);
        symlink("nowhere", at("link")).unwrap();
        for name in ["new", "link"] {
            let error = write_new_private(&at(name), b"other").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        assert_eq!(fs::read_to_string(at("new")).unwrap(), "secret");
        assert!(fs::symlink_metadata(at("nowhere")).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    /// Another user of the folder puts a link in the file's place between the look at it and its opening.
    #[test]
    fn a_link_that_takes_a_files_place_just_now_is_not_followed() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("theirs"), "{}\n").unwrap();
        symlink("theirs", at("link")).unwrap();
        assert!(open_own(OpenOptions::new().append(true), &at("link")).is_err());
        let (is_over, log, link, file) = (AtomicBool::new(false), at("log"), at("link2"), at("file"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = symlink("theirs", &link).and_then(|()| fs::rename(&link, &log));
                    let _ = fs::write(&file, "{}\n").and_then(|()| fs::rename(&file, &log));
                }
            });
            for _ in 0..5000 {
                if let Ok(mut file) = append_json_lines(&log) {
                    let _ = file.write_all(b"{\"ours\":1}\n");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "{}\n");
    }

    #[test]
    fn what_a_killed_writer_has_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [".rigline-a1.tmp", ".rigline-b2.tmp", ".rigline-.tmp", ".rigline-c3", "c.tmp"] {
            fs::write(at(name), "half").unwrap();
        }
        symlink(at("c.tmp"), at(".rigline-link.tmp")).unwrap();
        let at_work = File::open(at(".rigline-b2.tmp")).unwrap();
        at_work.lock().unwrap();
        remove_unfinished(folder.path());
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        left.sort_unstable();
        assert_eq!(left, [".rigline-.tmp", ".rigline-b2.tmp", ".rigline-c3", ".rigline-link.tmp", "c.tmp"]);
    }

    /// A file that replaces another file or a link has the permissions of a new file.
    #[test]
    fn an_executable_keeps_to_the_umask() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o7777;
        let path = |name: &str| folder.path().join(name);
        write_executable(&path("new"), b"x").unwrap();
        fs::write(path("old"), "x").unwrap();
        std::os::unix::fs::symlink("old", path("link")).unwrap();
        for name in ["old", "link"] {
            write_executable(&path(name), b"y").unwrap();
            assert_eq!(mode(name), mode("new"), "{name}");
        }
        fs::set_permissions(path("new"), fs::Permissions::from_mode(0o600)).unwrap();
        write(&path("new"), b"z").unwrap();
        assert_eq!(mode("new"), 0o600);
    }
}
