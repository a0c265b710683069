//! Checks of evals against a target's operations, and against the folder of a task file.

use std::path::{Path, PathBuf};

use super::expand::nearest;
use super::foreign;
use super::node::Node;
use super::spec::source::{folder_of, in_folder, read};
use super::spec::{Fault, Overrides, Spec, Step, Task, load};
use rigline_host::by_schema::{Draft, Schema, settle};

/// Checks the steps of an eval, and of its preflight, against a target's operations and their schemas. Returns errors and warnings. The values
/// of placeholders are not known before a run.
pub fn against(spec: &Spec, operations: &[(String, Schema)]) -> (Vec<Fault>, Vec<Fault>) {
    let (mut faults, mut warnings) = (Vec::new(), Vec::new());
    let names: Vec<&str> = operations.iter().map(|(name, _)| name.as_str()).collect();
    let folder = folder_of(&spec.path);
    for task in spec.health.iter().chain(&spec.tasks) {
        for step in &task.steps {
            let fault = |text: String| of_step(folder, task, step, text);
            let Some((_, schema)) = operations.iter().find(|(name, _)| *name == step.operation) else {
                let near = nearest(&step.operation, &names).map(|near| format!("; did you mean `{near}`?"));
                let near = near.unwrap_or_else(|| format!("; expected one of: {}", names.join(", ")));
                faults.push(fault(format!("the target has no operation {}{near}", step.operation)));
                continue;
            };
            let properties = schema.json().get("properties").into_iter();
            let known: Vec<String> =
                properties.flat_map(|properties| properties.members()).map(|(name, _)| name.to_string()).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            for (name, _) in step.args.members().iter().filter(|(name, _)| !known.contains(&name.as_str())) {
                if let Some(near) = nearest(name, &known).filter(|near| step.args.get(near).is_none()) {
                    warnings.push(fault(format!(
                        "{name}: {} has no such argument; did you mean `{near}`?",
                        step.operation
                    )));
                }
            }
            let mut unknown = Vec::new();
            let settled = settle(&known_values(&step.args, &mut Vec::new(), &mut unknown), schema);
            if let Some(why) = settled.checked.unchecked {
                warnings.push(fault(format!("the arguments of {} are not checked: {why}", step.operation)));
            }
            for misfit in settled.checked.misfits {
                let is_about = |path: &Vec<String>| path.starts_with(&misfit.names);
                let hangs_on_unknown = unknown.iter().any(is_about) && !misfit.text.contains("is a required property");
                if !hangs_on_unknown {
                    faults.push(fault(format!("{}: {misfit}", step.operation)));
                }
            }
        }
    }
    faults.iter_mut().chain(&mut warnings).for_each(|fault| spec.mask.hide(&mut fault.text));
    (faults, warnings)
}

fn of_step(folder: &Path, task: &Task, step: &Step, text: String) -> Fault {
    Fault {
        text: format!("Task {}, step {}: {text}", task.id, step.id),
        path: folder.join(&task.file),
        file: task.file.clone(),
        line: Some(step.line),
    }
}

/// Arguments in which placeholders stay as they are; `unknown` gets the paths of those.
fn known_values(node: &Node, path: &mut Vec<String>, unknown: &mut Vec<Vec<String>>) -> Draft {
    if let Some(text) = node.text().filter(|text| super::placeholders::PLACEHOLDER.is_match(text)) {
        unknown.push(path.clone());
        return Draft::text(&text);
    }
    let mut inner = |name: String, node: &Node| {
        path.push(name);
        let draft = known_values(node, path, unknown);
        path.pop();
        draft
    };
    if node.is_map() {
        return Draft::Map(
            node.members().iter().map(|(name, node)| (name.clone(), inner(name.clone(), node))).collect(),
        );
    }
    if node.is_list() {
        return Draft::List(node.elements().iter().enumerate().map(|(at, node)| inner(at.to_string(), node)).collect());
    }
    // Without a placeholder there is nothing that a step could lack.
    node.draft(&[]).unwrap_or_else(|_| Draft::json("null"))
}

/// The eval that a task file belongs to, and the task's file from the eval's folder; `None` of a file that is not a
/// task's.
///
/// # Errors
/// It is a task's, and no eval in its folder or above has it.
pub fn owner_of(path: &Path) -> Result<Option<(PathBuf, String)>, String> {
    /// The number of folders above the task's that are searched.
    const LEVELS: usize = 8;
    let Some(node) = read(path).ok().and_then(|source| Node::parse(&source).ok()) else { return Ok(None) };
    let has = |name: &str| node.get(name).is_some();
    let is_task = has("id") && ["steps", "prompt", "inputs", "graders", "expected"].into_iter().any(has);
    if !is_task || has("tasks") || has("tasks_from") || has("config") || foreign::program_of(node.members()).is_some() {
        return Ok(None);
    }
    let Ok(own) = path.canonicalize() else { return Ok(None) };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| own.clone());
    for folder in absolute.ancestors().skip(1).take(LEVELS) {
        let eval = in_folder(folder);
        let Ok((spec, _)) = load(&eval, &Overrides::default()) else { continue };
        let is_own = |task: &&Task| folder.join(&task.file).canonicalize().is_ok_and(|path| path == own);
        if let Some(task) = spec.tasks.iter().find(is_own) {
            return Ok(Some((eval, task.file.clone())));
        }
    }
    Err(format!("{} is a task, and no eval.yaml in its folder or above lists it", path.display()))
}
