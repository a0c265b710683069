//! The values that earlier runs measured, for each task.

use std::io;

use serde_json::{Map, Value, json};

use super::results::row;
use super::runs::Runs;
use super::store::Stored;

/// The largest number of runs that [`history`] reads.
pub const LIMIT: usize = 200;

/// Returns the newest runs, at most `limit` and at most [`LIMIT`] of them, as `{"runs":[…]}`.
///
/// A run has the members that `results.runs` returns, and `tasks`:
/// `{"id","status","durationMs","values":{NAME:NUMBER}}`. The name of a value is the id of its step
/// (or its operation), a point, and the name of the output. If a task has several trials, the
/// number is the mean.
///
/// # Errors
/// The folder of the runs cannot be read.
pub fn history(runs: &Runs, limit: usize) -> io::Result<Value> {
    let with_tasks = |run: &(String, Value, Stored)| {
        let mut row = row(run);
        row["tasks"] = tasks(runs, &run.0).into();
        row
    };
    Ok(json!({ "runs": runs.all()?.iter().take(limit.min(LIMIT)).map(with_tasks).collect::<Vec<_>>() }))
}

/// The largest part of a run's record that [`run`] returns, as JSON text in bytes.
const RECORD_LIMIT: usize = 8 << 20;

/// Returns one run, or `None` if no run has this id.
///
/// The result has the members that `results.runs` returns, and `target`, `totalTasks` and
/// `trialsPerTask`. The members `trials`, `tasks` (only ended ones) and `logs` are the record so
/// far. `leftOut` is the number of entries that are left out because the record is larger than 8
/// MiB.
///
/// # Errors
/// The file of the run cannot be read.
pub fn run(runs: &Runs, id: &str) -> io::Result<Option<Value>> {
    let Some(stored) = runs.look(id)? else { return Ok(None) };
    let (mut head, mut size, mut left_out) = (Value::Null, 0, 0_u64);
    let (mut trials, mut tasks, mut logs) = (Vec::new(), Vec::new(), Vec::new());
    for mut line in runs.records(id) {
        if line.get("run").is_some() {
            head = line["run"].take();
            continue;
        }
        size += line.to_string().len();
        for (name, kept) in [("trial", &mut trials), ("task", &mut tasks), ("log", &mut logs)] {
            let Some(value) = line.get_mut(name) else { continue };
            if size <= RECORD_LIMIT { kept.push(value.take()) } else { left_out += 1 }
        }
    }
    let mut run = row(&(id.to_owned(), head.clone(), stored));
    for name in ["target", "totalTasks", "trialsPerTask"] {
        run[name] = head[name].take();
    }
    run["trials"] = trials.into();
    run["tasks"] = tasks.into();
    run["logs"] = logs.into();
    run["leftOut"] = left_out.into();
    Ok(Some(run))
}

/// The tasks of a run that are done, in the order in which they ended.
fn tasks(runs: &Runs, id: &str) -> Vec<Value> {
    let mut values: Vec<(String, Means)> = Vec::new();
    let mut tasks = Vec::new();
    for line in runs.records(id) {
        if let Some(trial) = line.get("trial") {
            let task = trial["task"].as_str().unwrap_or_default();
            let means = match values.iter_mut().find(|(name, _)| name == task) {
                Some((_, means)) => means,
                None => {
                    values.push((task.to_owned(), Means::default()));
                    let Some((_, means)) = values.last_mut() else { continue };
                    means
                }
            };
            means.add(trial);
        } else if let Some(task) = line.get("task") {
            let id = task["id"].as_str().unwrap_or_default();
            let values = values.iter().find(|(name, _)| name == id).map(|(_, means)| means.to_json());
            tasks.push(json!({
                "id": id, "status": task["status"], "durationMs": task["durationMs"],
                "values": values.unwrap_or_else(|| json!({})),
            }));
        }
    }
    tasks
}

/// Sums of the numbers of a task's trials, by their names.
#[derive(Default)]
struct Means(Vec<(String, f64, u32)>);

impl Means {
    fn add(&mut self, trial: &Value) {
        for step in trial["steps"].as_array().into_iter().flatten() {
            let id = step["id"].as_str().or_else(|| step["operation"].as_str()).unwrap_or_default();
            for (output, value) in step["outputs"].as_object().into_iter().flatten() {
                let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
                let Some(number) = number.filter(|number: &f64| number.is_finite()) else { continue };
                let name = format!("{id}.{output}");
                match self.0.iter_mut().find(|(known, ..)| *known == name) {
                    Some((_, sum, count)) => {
                        *sum += number;
                        *count += 1;
                    }
                    None => self.0.push((name, number, 1)),
                }
            }
        }
    }

    fn to_json(&self) -> Value {
        let mean = |(name, sum, count): &(String, f64, u32)| (name.clone(), json!(sum / f64::from(*count)));
        Value::Object(self.0.iter().map(mean).collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_several_trials_become_their_mean() {
        let mut means = Means::default();
        for volts in ["3.0", "3.5", "nan", "off"] {
            means.add(&json!({ "steps": [
                { "id": null, "operation": "measure", "outputs": { "volts": volts, "unit": "V" } },
                { "id": "idle", "operation": "measure", "outputs": { "amps": 1 } },
            ] }));
        }
        assert_eq!(means.to_json(), json!({ "measure.volts": 3.25, "idle.amps": 1.0 }));
    }
}
