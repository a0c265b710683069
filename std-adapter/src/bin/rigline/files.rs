//! Files that the command line names: nothing that is opened to be read blocks, and nothing is written through a link or into
//! what somebody else has written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rigline::json::{Json, Kind};

use crate::connect::Failure;
use crate::out;

/// Opens a file to be read. A FIFO or a device would block, and is refused: `-` is the stream that a command reads. What a shell
/// hands over as `<(…)` is such a stream, too.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let is_stream = ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|place| path.starts_with(place));
    if is_stream {
        return File::open(path);
    }
    let file = options(OpenOptions::new().read(true), false).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is not a regular file; use - to read standard input"));
    }
    Ok(file)
}

/// The text of a file; see [`open`].
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a whole file: beside it first, then by a rename, so that it is there whole or not at all, and a link is replaced, not
/// followed. Its folder is made. `-` is standard output.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") || path == Path::new("/dev/stdout") {
        out::print_file(text);
        return Ok(());
    }
    if path == Path::new("/dev/null") {
        return Ok(());
    }
    let mut file = create(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(|error| failed(path, &error))?;
    file.place()
}

/// Begins a file that lines are written to for long: it is in its place at once. A file that is there already is replaced if
/// `is_ours` knows its first line.
pub(crate) fn record(path: &Path, header: &str, is_ours: impl Fn(Json<'_>) -> bool) -> Result<File, Failure> {
    if let Some(first) = first_line(path)?
        && !Json::parse(first.as_bytes()).is_ok_and(is_ours)
    {
        let text = format!("{} exists, and no command of this kind has written it; nothing was changed", path.display());
        return Err(Failure::usage(text));
    }
    let mut file = create(path)?;
    file.write_all(header.as_bytes()).map_err(|error| failed(path, &error))?;
    let handle = file.file.try_clone().map_err(|error| failed(path, &error))?;
    file.place()?;
    Ok(handle)
}

/// A log of JSON lines that lines are added to. Its folder is made. A link is not followed, and what is no such log is left as it
/// is.
pub(crate) fn append(path: &Path) -> Result<File, Failure> {
    if let Some(first) = first_line(path)?
        && !Json::parse(first.as_bytes()).is_ok_and(|json| json.kind() == Kind::Object)
    {
        let text = format!("{} exists, and is not a log of JSON lines; nothing was changed", path.display());
        return Err(Failure::usage(text));
    }
    make_folder(path)?;
    let file = options(OpenOptions::new().create(true).append(true), true).open(path);
    file.map_err(|error| failed(path, &error))
}

/// The first line of a file, if there is a file with one.
fn first_line(path: &Path) -> Result<Option<String>, Failure> {
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(None),
        Ok(found) if found.is_symlink() => {
            return Err(Failure::usage(format!("{} is a link, which is not followed: name the file", path.display())));
        }
        Ok(found) if !found.is_file() => {
            return Err(Failure::usage(format!("{} is not a regular file", path.display())));
        }
        Ok(found) if found.len() == 0 => return Ok(None),
        Ok(_) => {}
    }
    let mut line = Vec::new();
    let file = open(path).map_err(|error| failed(path, &error))?;
    BufReader::new(file).take(16 << 20).read_until(b'\n', &mut line).map_err(|error| failed(path, &error))?;
    Ok(Some(String::from_utf8_lossy(&line).trim_start_matches('\u{FEFF}').trim().to_owned()))
}

/// A file beside the one that it will be.
struct Beside {
    file: File,
    beside: PathBuf,
    path: PathBuf,
}

fn create(path: &Path) -> Result<Beside, Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return Err(Failure::usage(format!("{} is a folder", path.display()))),
        // A rename would put a file in the place of a device.
        Ok(found) if !(found.is_file() || found.is_symlink()) || is_system(path) => {
            return Err(Failure::usage(format!("{} is not a regular file", path.display())));
        }
        _ => {}
    }
    make_folder(path)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&beside).map_err(|error| failed(path, &error))?;
    Ok(Beside { file, beside, path: path.to_owned() })
}

impl Beside {
    fn place(mut self) -> Result<(), Failure> {
        let placed = fs::rename(&self.beside, &self.path).map_err(|error| failed(&self.path, &error));
        if placed.is_ok() {
            self.beside = PathBuf::new();
        }
        placed
    }
}

impl std::ops::Deref for Beside {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl std::ops::DerefMut for Beside {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.beside != Path::new("") {
            let _ = fs::remove_file(&self.beside);
        }
    }
}

fn is_system(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm") || path.starts_with("/proc") || path.starts_with("/sys")
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    match path.parent() {
        Some(folder) if folder != Path::new("") => fs::create_dir_all(folder).map_err(|error| failed(folder, &error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}

/// Without waiting for the other end of a FIFO, or for what a file such as /proc/kmsg will say some day.
fn options(options: &mut OpenOptions, is_written: bool) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt as _;

        let flags = if is_written { OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY } else { OFlags::NONBLOCK | OFlags::NOCTTY };
        options.custom_flags(flags.bits().cast_signed());
    }
    let _ = is_written;
    options
}
