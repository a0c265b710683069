//! The list of skipped tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::{env, fs, io};

/// Says that a part of the tests is skipped, why, and the command that brings what is missing.
///
/// The line is printed at once, also where the test passes, and [`summary`] has it again.
pub fn skipped(what: &str, why: &str, remedy: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("skipped: {what}: {why}: {remedy}");
    // Once a program, in which dozens of tests may skip for the same reason.
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        // Not by eprintln!, which the test harness keeps to itself when a test passes.
        let _ = writeln!(io::stderr(), "{line}");
        List::of_this_run().add(what, why, remedy);
    }
}

/// Returns the tests that were skipped in this run of cargo, with the commands that bring what is missing; empty if none was.
/// The list is empty afterwards, and those of earlier runs are removed.
pub fn summary() -> String {
    List::of_this_run().summary()
}

/// A file with a line for each part that was skipped: what, why and the remedy, with tabs between them.
struct List(PathBuf);

impl List {
    /// The list of the process that started this one: cargo starts each test program of a run, one after the other.
    fn of_this_run() -> Self {
        let folder = env::current_exe().ok().and_then(|program| Some(program.parent()?.join("skipped")));
        Self(folder.unwrap_or_else(|| env::temp_dir().join("rigline-skipped")).join(run()))
    }

    fn add(&self, what: &str, why: &str, remedy: &str) {
        let line = format!("{}\n", [what, why, remedy].map(|part| part.replace(['\t', '\n'], " ")).join("\t"));
        let _ = self.0.parent().map(fs::create_dir_all);
        // One write of a short line at the end of a file is not mixed with another program's.
        if let Ok(mut file) = fs::OpenOptions::new().create(true).append(true).open(&self.0) {
            let _ = file.write_all(line.as_bytes());
        }
    }

    fn summary(&self) -> String {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        for entry in self.0.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten() {
            if entry.path() == self.0 || is_old(&entry) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let mut remedies = BTreeMap::<&str, Vec<String>>::new();
        for line in text.lines() {
            if let [what, why, remedy] = line.split('\t').collect::<Vec<_>>()[..] {
                let parts = remedies.entry(remedy).or_default();
                let part = format!("{what}: {why}");
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
        if remedies.is_empty() {
            return String::new();
        }
        let mut summary = "\nThese tests were skipped, and these commands bring what they need:\n".to_owned();
        for (remedy, parts) in remedies {
            let _ = writeln!(summary, "  {remedy}\n    {}", parts.join("\n    "));
        }
        summary
    }
}

/// A run of cargo may take hours; nobody reads its list after a day.
fn is_old(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age.as_secs() > 24 * 3600)
}

#[cfg(unix)]
fn run() -> String {
    let parent = std::os::unix::process::parent_id();
    // Numbers of processes are given again. Field 22 is the time at which it was started (proc(5)).
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    let started = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or_default();
    format!("{parent}-{started}")
}

#[cfg(not(unix))]
fn run() -> String {
    "list".to_owned()
}

#[cfg(test)]
mod tests {
    use super::{List, run};

    #[test]
    fn the_summary_names_each_part_once_below_the_command_that_brings_it() {
        let folder = std::env::temp_dir().join(format!("rigline-skipped-{}", std::process::id()));
        let list = List(folder.join(run()));
        assert_eq!(list.summary(), "");
        list.add("the page", "there is no browser", "apt-get install chromium");
        list.add("the page", "there is no browser", "apt-get install chromium");
        list.add("a new project", "there is no\nrustfmt", "rustup component add rustfmt");
        list.add("the plot", "there is no browser", "apt-get install chromium");
        let summary = list.summary();
        let expected = concat!(
            "\nThese tests were skipped, and these commands bring what they need:\n",
            "  apt-get install chromium\n    the page: there is no browser\n    the plot: there is no browser\n",
            "  rustup component add rustfmt\n    a new project: there is no rustfmt\n",
        );
        assert_eq!(summary, expected);
        assert_eq!(list.summary(), "", "the list of a run is told once");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
