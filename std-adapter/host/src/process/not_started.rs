//! The reason why a program could not be started, with a suggestion.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{is_path, located};
use crate::files;

/// The reason why a program could not be started.
#[derive(Debug)]
pub enum NotStarted {
    /// The program does not exist. The text is a suggestion, if there is one.
    Missing(Option<String>),
    /// The program exists, but the system reports this error.
    Fault(io::Error),
}

impl NotStarted {
    /// Finds the reason behind the system's `error`.
    pub fn why(program: impl AsRef<OsStr>, folder: Option<&Path>, error: io::Error) -> Self {
        let program = program.as_ref();
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Self::Fault(io::Error::new(error.kind(), format!("there is no folder {}", folder.display())));
        }
        let path = if is_path(program) {
            PathBuf::from(located(program, folder))
        } else {
            match which::which(program) {
                Ok(path) => path,
                Err(_) if error.kind() == io::ErrorKind::NotFound => return Self::Missing(hint(program)),
                // Such as `.`, in which there is no separator.
                Err(_) if Path::new(program).is_dir() => PathBuf::from(program),
                Err(_) => return Self::Fault(error),
            }
        };
        let more = match error.kind() {
            io::ErrorKind::NotFound => match fs::symlink_metadata(&path) {
                Err(_) => return Self::Missing(None),
                Ok(_) => missing_part(&path),
            },
            _ if path.is_dir() => Some("it is a folder, not a program".to_owned()),
            io::ErrorKind::PermissionDenied if !is_executable(&path) => {
                Some(format!("it may not be executed; try chmod +x {}", path.display()))
            }
            io::ErrorKind::PermissionDenied => interpreter(&path)
                .filter(|interpreter| !is_executable(Path::new(interpreter)))
                .map(|interpreter| format!("its interpreter {interpreter} may not be executed")),
            // ENOEXEC has no kind that is stable.
            _ if cfg!(unix) && error.raw_os_error() == Some(8) => {
                Some("it is neither a binary for this machine nor a script that begins with `#!`".to_owned())
            }
            _ => None,
        };
        Self::Fault(match more {
            Some(more) => io::Error::new(error.kind(), format!("{error}: {more}")),
            None => error,
        })
    }

    /// Converts the reason to an error of the standard library.
    #[allow(dead_code, reason = "not every protocol starts programs itself")]
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Missing(hint) => {
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                io::Error::new(io::ErrorKind::NotFound, format!("there is no such program{hint}"))
            }
            Self::Fault(error) => error,
        }
    }
}

/// A suggestion for the name of a program that does not exist.
fn hint(program: &OsStr) -> Option<String> {
    let name = program.to_string_lossy();
    match fs::metadata(program) {
        Ok(found) if found.is_dir() => Some(format!("{name} is a folder")),
        Ok(_) => Some(format!("a file of this name is here: write ./{name}")),
        Err(_) => crate::target::meant_by(&name).map(|target| format!("did you mean {target}?")),
    }
}

/// The missing part of a program that exists: its interpreter or its loader.
fn missing_part(path: &Path) -> Option<String> {
    if !path.exists() {
        let to = fs::read_link(path).map(|to| to.display().to_string()).unwrap_or_default();
        return Some(format!("it is a link to {to}, which is not there"));
    }
    let is_missing = |name: &String| !Path::new(name).exists();
    if let Some(interpreter) = interpreter(path).filter(is_missing) {
        return Some(match interpreter.strip_suffix('\r') {
            Some(interpreter) => format!(
                "its first line ends with CR LF, so that its interpreter is looked for as `{interpreter}\\r`; save it with LF"
            ),
            None => format!("its interpreter {interpreter} is not there"),
        });
    }
    loader(path).filter(is_missing).map(|loader| format!("its loader, {loader}, does not exist"))
}

/// The program that the first line of a script names.
pub(super) fn interpreter(path: &Path) -> Option<String> {
    let start = beginning(path, 256)?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    // Only blanks and tabs end it: a CR belongs to the name.
    line.trim_matches([' ', '\t']).split([' ', '\t']).next().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The dynamic loader that an ELF file names. Most files begin with their headers, so that the name is near the
/// beginning.
fn loader(path: &Path) -> Option<String> {
    let start = beginning(path, 4096)?;
    if !start.starts_with(b"\x7fELF") {
        return None;
    }
    let names = start.split(|byte| *byte == 0).filter_map(|piece| std::str::from_utf8(piece).ok());
    names.into_iter().find(|name| name.starts_with('/') && name.contains("ld")).map(str::to_owned)
}

fn beginning(path: &Path, most: u64) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut start = Vec::new();
    files::open(path).ok()?.take(most).read_to_end(&mut start).ok()?;
    Some(start)
}

fn is_executable(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
    }
    #[cfg(not(unix))]
    path.exists()
}
