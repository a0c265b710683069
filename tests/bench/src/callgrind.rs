//! Counts of valgrind.

use std::process::Command;

/// Instructions of this program with these arguments; none where valgrind is missing.
pub(crate) fn instructions(arguments: &[&str]) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stderr).ok()?;
    text.split("Collected : ").nth(1)?.split_whitespace().next()?.parse().ok()
}
