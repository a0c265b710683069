//! Earlier runs of an eval, from the run store.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rigline::protocol::waza::RunState;
use serde_json::Value;

use super::super::model::{Past, Run, Trial};
use super::super::runs::place;
use super::super::store::Store;

/// The largest number of earlier runs that [`earlier`] returns.
pub const EARLIER: usize = 50;

/// Returns the earlier runs of the same eval that have ended, the oldest first. There are at most
/// [`EARLIER`] of them.
///
/// # Errors
/// The folder of the runs cannot be read.
pub fn earlier(store: &Store, run: &Run) -> io::Result<Vec<Past>> {
    // A path from the working folder may be of another eval. Only runs of older versions have nothing else.
    let place = place(Path::new(&run.path));
    let is_place = |head: &Value| match head["place"].as_str() {
        Some(known) => known == place,
        None => head["path"] == run.path.as_str(),
    };
    let is_same = |head: &Value| head["name"] == run.eval.as_str() && is_place(head);
    let mut found = Vec::new();
    for (id, head) in store.heads()? {
        if found.len() >= EARLIER {
            break;
        }
        if id == run.run_id || !is_same(&head) {
            continue;
        }
        let mut means = Means::default();
        // A run that cannot be read is left out, and so is one that goes on.
        let stored = store.look(&id).ok().flatten().filter(|stored| stored.state != RunState::Running);
        let Some(stored) = stored.filter(|stored| stored.summary.total > 0) else { continue };
        store.records(&id).for_each(|line| means.add(&line));
        found.push(Past {
            id,
            started_ms: head["startedAtMs"].as_u64().unwrap_or_default(),
            passed: stored.summary.passed,
            total: stored.summary.total,
            means: means.finish(),
        });
    }
    found.reverse();
    Ok(found)
}

/// The means of measurements, by task and name.
#[derive(Debug, Default)]
pub(super) struct Means(BTreeMap<String, (f64, u32)>);

impl Means {
    /// Reads a line of a run's file.
    fn add(&mut self, line: &Value) {
        let Some(trial) = line.get("trial") else { return };
        if let Ok(trial) = serde_json::from_value::<Trial>(trial.clone()) {
            self.trial(&trial);
        }
    }

    pub(super) fn trial(&mut self, trial: &Trial) {
        for measured in trial.values() {
            if let Some(value) = measured.value.as_f64() {
                let (sum, count) = self.0.entry(key(&trial.task, &measured.name)).or_default();
                *sum += value;
                *count += 1;
            }
        }
    }

    pub(super) fn finish(self) -> Vec<(String, f64)> {
        self.0.into_iter().map(|(name, (sum, count))| (name, sum / f64::from(count.max(1)))).collect()
    }
}

/// The name of a measurement among those of all tasks.
pub(super) fn key(task: &str, name: &str) -> String {
    format!("{task}: {name}")
}
