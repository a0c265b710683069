//! Programs that a test writes and then runs.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes an executable file in the folder.
///
/// Another process writes it. A file that this process has open for writing is also open in each
/// child that another thread starts at that moment, and execve(2) fails with ETXTBSY until that
/// child has closed it.
pub(crate) fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    let mut shell = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{} is written", path.display());
    path
}
