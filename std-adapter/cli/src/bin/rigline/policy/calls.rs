//! The record of an agent's calls: a line of JSON for each.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rigline_host::files;
use rigline_std::mutex::lock;
use serde_json::{Value, json};

/// The name of the file in the folder of a recording.
pub(crate) const FILE: &str = "calls.jsonl";

/// A file of calls.
#[derive(Debug)]
pub(crate) struct Calls {
    path: PathBuf,
    file: Mutex<File>,
}

/// A call that has ended.
pub(crate) struct Ended<'c> {
    pub(crate) client: &'c Value,
    pub(crate) operation: &'c str,
    pub(crate) arguments: &'c Value,
    /// `ok`, `failed`, `refused` or `cancelled`.
    pub(crate) outcome: &'c str,
    pub(crate) result: Value,
    pub(crate) took: Duration,
}

impl Calls {
    /// In this folder, which is there.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let mut options = File::options();
        options.create(true).write(true).truncate(true);
        let file = files::private(&mut options).open(&path)?;
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// The calls so far.
    pub(crate) fn text(&self) -> io::Result<String> {
        files::read_text(&self.path, 64 << 20)
    }

    /// Adds a call. It is in the file when this returns.
    pub(crate) fn add(&self, ended: &Ended<'_>) -> io::Result<()> {
        let now = SystemTime::now();
        let began = now.checked_sub(ended.took).unwrap_or(now);
        let unix = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = json!({
            "time": humantime::format_rfc3339_millis(began).to_string(),
            "unixMs": u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
            "client": ended.client,
            "operation": ended.operation,
            "arguments": ended.arguments,
            "outcome": ended.outcome,
            "result": ended.result,
            "seconds": (ended.took.as_secs_f64() * 1e6).round() / 1e6,
        });
        lock(&self.file).write_all(format!("{line}\n").as_bytes())
    }
}
