//! What earlier runs measured: their tasks, with the outputs that are numbers.

use std::io;

use serde_json::{Map, Value, json};

use super::results::row;
use super::runs::Runs;
use super::store::Stored;

/// The number of runs that are read.
pub const LIMIT: usize = 200;

/// The newest runs, up to `limit` of them and to [`LIMIT`]: `{"runs":[…]}`, with the members of `results.runs`, and of each run its
/// `tasks`: `{"id","status","durationMs","values":{NAME:NUMBER}}`. A value's name is that of its step (the step's `id`, or its operation)
/// and of the output, with a point between them; of several trials it is the mean.
///
/// # Errors
/// The folder of runs cannot be read.
pub fn history(runs: &Runs, limit: usize) -> io::Result<Value> {
    let with_tasks = |run: &(String, Value, Stored)| {
        let mut row = row(run);
        row["tasks"] = tasks(runs, &run.0).into();
        row
    };
    Ok(json!({ "runs": runs.all()?.iter().take(limit.min(LIMIT)).map(with_tasks).collect::<Vec<_>>() }))
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
