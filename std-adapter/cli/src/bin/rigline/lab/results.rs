use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use rigline_eval::store::Store;
use serde_json::{Value, json};

use crate::connect::{self, Failure};
use crate::out::Table;
use crate::{exit, jsonrpc};

/// Show the results of a run over several rigs, also of one that still runs or was killed
///
/// Each task is shown once, with its latest result.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all tasks passed; 1 a task did not pass; 2 a wrong command line, or there is no such run; 3 some tasks were not done; 128+n ended by signal n."
)]
pub(super) struct Results {
    /// The run, by the id that its report has, or `last` for the newest one
    run: String,
    /// The folder for the records of runs [default: the user's state folder]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    runs: Option<PathBuf>,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// The outcome of a task.
struct Row {
    task: String,
    /// None of one that was not done.
    status: Option<String>,
    rig: Option<String>,
    attempts: u64,
    error: Option<String>,
}

impl Results {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let store = jsonrpc::store(self.runs.clone())?;
        let id = if self.run == "last" { newest(&store)? } else { self.run.clone() };
        let stored = store.look(&id).map_err(|error| Failure::usage(format!("run {id}: {error}")))?;
        let stored =
            stored.ok_or_else(|| Failure::usage(format!("there is no run {id} in {}", store.folder().display())))?;
        let (rows, shards) = read(&store, &id);
        if self.json {
            let tasks: Vec<Value> = rows
                .iter()
                .enumerate()
                .map(|(seq, row)| {
                    json!({
                        "run": id, "seq": seq + 1, "task": row.task, "status": row.status, "shard": row.rig,
                        "attempts": row.attempts, "error": row.error,
                    })
                })
                .collect();
            let all = json!({ "run": id, "state": stored.state.as_str(), "shards": shards, "tasks": tasks });
            connect::print_json(&format!("{all:#}\n"));
        } else {
            let mut table = Table::new(&["", "task", "result", "rig", "attempts", "why"]);
            for (seq, row) in rows.iter().enumerate() {
                table.row([
                    (seq + 1).to_string(),
                    row.task.clone(),
                    row.status.clone().unwrap_or_else(|| "not done".to_owned()),
                    row.rig.clone().unwrap_or_default(),
                    row.attempts.to_string(),
                    row.error.clone().unwrap_or_default(),
                ]);
            }
            connect::print(&table.to_string());
        }
        let left = rows.iter().filter(|row| row.status.is_none()).count();
        if left > 0 {
            let tasks = if left == 1 { "task was" } else { "tasks were" };
            return Err(Failure::no_answer(format!(
                "{left} of {} {tasks} not done; the run is {}",
                rows.len(),
                stored.state.as_str()
            )));
        }
        let has_passed = rows.iter().all(|row| row.status.as_deref() == Some("passed"));
        Ok(ExitCode::from(if has_passed { exit::SUCCESS } else { exit::FAILED }))
    }
}

fn newest(store: &Store) -> Result<String, Failure> {
    let names = std::fs::read_dir(store.folder()).into_iter().flatten().flatten();
    let mut ids: Vec<String> =
        names.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".jsonl")?.to_owned())).collect();
    // They begin with the time.
    ids.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    ids.pop().ok_or_else(|| Failure::usage(format!("there is no run in {}", store.folder().display())))
}

/// The tasks of a run in their order, and its rigs.
fn read(store: &Store, id: &str) -> (Vec<Row>, Value) {
    let (mut rows, mut shards) = (Vec::<Row>::new(), Value::Null);
    let new = |task: &str| Row { task: task.to_owned(), status: None, rig: None, attempts: 0, error: None };
    for record in store.records(id) {
        if let Some(head) = record.get("run") {
            shards = head["shards"].clone();
            rows.extend(head["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str).map(new));
        }
        let Some(of) = record.get("trial").or_else(|| record.get("task")) else { continue };
        let name = record.get("trial").map_or(&of["id"], |trial| &trial["task"]).as_str().unwrap_or_default();
        let place = rows.iter().position(|row| row.task == name).unwrap_or_else(|| {
            rows.push(new(name));
            rows.len() - 1
        });
        let Some(row) = rows.get_mut(place) else { continue };
        if record.get("trial").is_some() {
            row.rig = of["shard"].as_str().map(str::to_owned);
            row.attempts += of["attempts"].as_u64().unwrap_or_default();
            row.error = row.error.take().or_else(|| of["error"].as_str().map(str::to_owned));
        } else {
            row.status = of["status"].as_str().map(str::to_owned);
        }
    }
    (rows, shards)
}
