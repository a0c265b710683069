//! Further parts of a server beside tools: resources to read, and prompts.

use std::path::Path;
use std::sync::Arc;

use rigline_eval::Root;
use rigline_eval::list::list;
use rigline_eval::store::Store;
use serde_json::{Value, json};

use crate::policy::calls::Calls;

const MANIFEST: &str = "rigline://manifest";
const CALLS: &str = "rigline://calls";
const RUNS: &str = "rigline://runs/";
/// The most runs that are listed, the newest first.
const LISTED: usize = 100;
/// The longest report that is given, in bytes.
const LONGEST: u64 = 8 << 20;

/// The resources and prompts.
#[derive(Debug, Default)]
pub(crate) struct Library {
    pub(crate) calls: Option<Arc<Calls>>,
    /// The folder of the evals, and the records of their runs.
    pub(crate) evals: Option<(Root, Store)>,
}

/// Why there is no such thing.
pub(crate) enum Missing {
    /// There is no such resource or prompt.
    Unknown,
    /// The resource is there, and cannot be read.
    Unreadable(String),
}

impl Library {
    pub(crate) fn has_prompts(&self) -> bool {
        self.evals.is_some()
    }

    /// The resources, for a list.
    pub(crate) fn resources(&self) -> Vec<Value> {
        let mut all = vec![json!({
            "uri": MANIFEST,
            "name": "manifest",
            "title": "Manifest",
            "description": "The tools of the rig with their schemas, as JSON",
            "mimeType": "application/json",
        })];
        if self.calls.is_some() {
            all.push(json!({
                "uri": CALLS,
                "name": "calls",
                "title": "Calls so far",
                "description": "The record of this session: every call with its time, client, arguments and outcome, a line of JSON each",
                "mimeType": "application/x-ndjson",
            }));
        }
        all.extend(self.runs().into_iter().map(|run| {
            json!({
                "uri": format!("{RUNS}{run}"),
                "name": run,
                "title": format!("Report of the run {run}"),
                "description": "What an eval found: its trials and its verdict, a line of JSON each",
                "mimeType": "application/x-ndjson",
            })
        }));
        all
    }

    /// The names of runs that have ended, the newest first.
    fn runs(&self) -> Vec<String> {
        let Some((_, store)) = &self.evals else { return Vec::new() };
        let names = std::fs::read_dir(store.folder()).into_iter().flatten().flatten();
        let mut found: Vec<_> = names
            .filter_map(|entry| {
                let name = entry.file_name().to_str()?.strip_suffix(".jsonl")?.to_owned();
                Some((entry.metadata().ok()?.modified().ok()?, name))
            })
            .collect();
        found.sort();
        let has_ended = |name: &String| store.look(name).ok().flatten().is_some_and(|run| run.result.is_some());
        found.into_iter().rev().map(|(_, name)| name).filter(has_ended).take(LISTED).collect()
    }

    /// The kind and the text of a resource. The manifest is the caller's.
    pub(crate) fn read(&self, uri: &str, manifest: impl FnOnce() -> String) -> Result<(&'static str, String), Missing> {
        if uri == MANIFEST {
            return Ok(("application/json", manifest()));
        }
        if let (CALLS, Some(calls)) = (uri, &self.calls) {
            let text = calls.text().map_err(|error| Missing::Unreadable(error.to_string()))?;
            return Ok(("application/x-ndjson", text));
        }
        let run = uri.strip_prefix(RUNS).filter(|run| self.runs().iter().any(|known| known == run));
        let (Some(run), Some((_, store))) = (run, &self.evals) else { return Err(Missing::Unknown) };
        let text = rigline_host::files::read_text(&store.folder().join(format!("{run}.jsonl")), LONGEST);
        text.map(|text| ("application/x-ndjson", text)).map_err(|error| Missing::Unreadable(error.to_string()))
    }

    /// The prompts, for a list.
    pub(crate) fn prompts(&self) -> Vec<Value> {
        let evals = self.found();
        evals.iter().map(|(id, name)| json!({ "name": id, "title": name, "description": format!("Runs the eval {name} on the rig, and says what it found") })).collect()
    }

    /// The messages of a prompt.
    pub(crate) fn prompt(&self, id: &str) -> Result<Value, Missing> {
        let evals = self.found();
        let (id, name) = evals.iter().find(|(known, _)| known == id).ok_or(Missing::Unknown)?;
        let text = format!(
            "Run the eval \"{name}\" on the rig with the tool run_eval and the id \"{id}\". Then say its verdict, and for each task that did not pass \
             what was measured and what was expected. A verdict rig_error says nothing about the board under test."
        );
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        Ok(json!({ "description": name, "messages": [message] }))
    }

    /// The evals of the folder: their ids and names.
    fn found(&self) -> Vec<(String, String)> {
        let Some((root, _)) = &self.evals else { return Vec::new() };
        let folder = root.folder();
        let below = |path: &Path| path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
        root.confine(|| list(folder)).evals.into_iter().map(|eval| (below(&eval.path), eval.name)).collect()
    }
}
