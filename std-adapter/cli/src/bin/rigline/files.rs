//! Files that the command line names. `-` is a stream, and so is what a shell hands over as `<(…)`;
//! everything else is read and written by [`rigline_host::files`]: nothing blocks, and nothing is
//! written through a link or into what another user wrote.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use rigline_host::files;

use crate::exit::{FAILED, USAGE};
use crate::failure::Failure;
use crate::out;

/// The longest file that is read as a whole, in bytes.
const LONGEST: u64 = 64 << 20;

/// Opens a file to be read piece by piece.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if is_stream(path) { File::open(path) } else { files::open(path) }
}

/// The text of a file, without the byte order mark that some editors write at its beginning.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = if is_stream(path) {
        io::read_to_string(File::open(path)?.take(LONGEST))?
    } else {
        files::read_text(path, LONGEST)?
    };
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

/// Writes a whole file; `-` is standard output.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if is_stdout(path) {
        out::print_file(text);
        return Ok(());
    }
    files::write(path, text.as_bytes()).map_err(|error| failed(path, &error))
}

/// Checks before the work of a command whether it can write its reports: pairs of an option and the
/// file that it names. At most one of them may be standard output, and none if the command prints
/// `other_output` there.
pub(crate) fn ensure_reports(reports: &[(&str, Option<&Path>)], other_output: Option<&str>) -> Result<(), Failure> {
    let mut on_stdout: Vec<&str> = other_output.into_iter().collect();
    let mut taken: Vec<PathBuf> = Vec::new();
    for (option, path) in reports {
        match path {
            Some(path) if is_stdout(path) => on_stdout.push(option),
            Some(path) if taken.contains(&place(path)) => {
                return Err(Failure::usage(format!("{option} {}: another report goes there", path.display())));
            }
            Some(path) => {
                taken.push(place(path));
                files::ensure_writable(path).map_err(|error| {
                    Failure::usage(format!("{option} {}: cannot be written: {error}", path.display()))
                })?;
            }
            None => {}
        }
    }
    if on_stdout.len() > 1 {
        return Err(Failure::usage(format!("only one of {} can go to standard output", on_stdout.join(", "))));
    }
    Ok(())
}

/// Whether a file's name means standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Where a file is, or will be: the same for all spellings of its folder. A link in its own place
/// is replaced, so it is a separate file.
pub(crate) fn place(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return path };
    let folder = folder.canonicalize().unwrap_or_else(|_| {
        // It is made with the file.
        folder.components().fold(PathBuf::new(), |mut folder, part| {
            match part {
                Component::ParentDir => drop(folder.pop()),
                part => folder.push(part),
            }
            folder
        })
    });
    folder.join(name)
}

fn is_stream(path: &Path) -> bool {
    ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|place| path.starts_with(place))
}

/// The exit code of a file's error: the file cannot be used, or the output could not be written.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Failure {
    let is_output =
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge);
    Failure { code: if is_output { FAILED } else { USAGE }, text: format!("{}: {error}", path.display()) }
}
