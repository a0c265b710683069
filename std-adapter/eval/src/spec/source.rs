//! Files that are read: regular ones, of a bounded size.

use std::io;
use std::path::{Path, PathBuf};

use crate::root::{self, FILE_LIMIT};
use rigline_host::files;

/// Reads a regular file of a bounded size. Others could keep a reader waiting for ever.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let file = root::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    files::read_open_text(&file, FILE_LIMIT)
}

/// Whether an error means that there is no file of that name. Part of the path may be a file, or
/// too long for a name.
pub(super) fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    // `InvalidInput` is of a name with a NUL in it.
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename | InvalidInput)
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(crate) fn in_folder(folder: &Path) -> PathBuf {
    let (usual, other) = (folder.join("eval.yaml"), folder.join("eval.yml"));
    if !usual.is_file() && other.is_file() { other } else { usual }
}
