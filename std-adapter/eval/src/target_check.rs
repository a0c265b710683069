//! Checks of evals against a target's operations, and against the folder of a task file.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::foreign;
use super::spec::source::{folder_of, in_folder, read};
use super::spec::{Fault, Overrides, Spec, Step, Task, load};
use super::yaml::Node;
use rigline_host::coerce::{ArgumentFault, Draft, Schema, brief, fit, nearest_or_longer};
use rigline_host::spelled;

/// Checks the steps of an eval, and of its preflight, against the operations of a target and their
/// schemas. Returns the errors and the warnings.
///
/// The values of placeholders are not known before a run, so they are not checked. If `operations`
/// is empty, nothing is found.
pub fn check_against_target(spec: &Spec, operations: &[(String, Schema)]) -> (Vec<Fault>, Vec<Fault>) {
    let (mut faults, mut warnings) = of_tasks(spec, spec.health.as_slice(), operations);
    let (more, doubts) = of_tasks(spec, &spec.tasks, operations);
    faults.extend(more);
    warnings.extend(doubts);
    (faults, warnings)
}

/// Checks some of the tasks of an eval as [`check_against_target`] does. A fault that several cases of one task
/// share is reported once.
pub(super) fn of_tasks(spec: &Spec, tasks: &[Task], operations: &[(String, Schema)]) -> (Vec<Fault>, Vec<Fault>) {
    let (mut faults, mut warnings) = (Vec::new(), Vec::new());
    if operations.is_empty() {
        return (faults, warnings);
    }
    let mut seen = HashSet::new();
    let names: Vec<&str> = operations.iter().map(|(name, _)| name.as_str()).collect();
    let folder = folder_of(&spec.path);
    for task in tasks {
        for step in &task.steps {
            let mut add = |to: &mut Vec<Fault>, text: String| {
                if seen.insert((task.file.clone(), step.line, text.clone())) {
                    to.push(of_step(folder, task, step, text));
                }
            };
            let operation = &step.operation;
            let named = match spelled(operation, &names) {
                Ok(named) => named.and_then(|named| operations.iter().find(|(name, _)| name == named)),
                Err(why) => {
                    add(&mut faults, why);
                    continue;
                }
            };
            let Some((_, schema)) = named else {
                let near = nearest_or_longer(operation, &names).map(|near| format!("; did you mean `{near}`?"));
                let near = near.unwrap_or_else(|| format!("; expected one of: {}", brief(&names.join(", "))));
                add(&mut faults, format!("the target has no operation {operation}{near}"));
                continue;
            };
            let mut unknown = Vec::new();
            let fit = fit(&known_values(&step.args, &mut Vec::new(), &mut unknown), schema);
            if let Some(why) = fit.unchecked {
                add(&mut warnings, format!("the arguments of {operation} are not checked: {why}"));
            }
            for (path, near) in fit.undeclared {
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                add(&mut warnings, format!("{operation} does not declare the argument `{path}`{near}"));
            }
            for found in fit.faults {
                let is_about = |path: &Vec<String>| path.starts_with(&found.names);
                let hangs_on_unknown = unknown.iter().any(is_about) && found.known.is_none() && !found.is_of_missing;
                if !hangs_on_unknown {
                    add(&mut faults, format!("{operation}: {found}{}", known_names(&found)));
                }
            }
        }
    }
    faults.iter_mut().chain(&mut warnings).for_each(|fault| spec.redactor.hide(&mut fault.text));
    (faults, warnings)
}

/// The names that an operation's argument may have, where none is nearly the one that was written.
pub(super) fn known_names(fault: &ArgumentFault) -> String {
    match (&fault.near, fault.known.as_deref()) {
        (Some(_), _) | (_, None) => String::new(),
        (None, Some([])) => "; it has no arguments".to_owned(),
        (None, Some(known)) => format!("; expected one of: {}", brief(&known.join(", "))),
    }
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

/// Finds the eval that a task file belongs to. Returns the file of the eval, and the path of the
/// task file from the folder of the eval. Returns `None` if the file is not a task file.
///
/// # Errors
/// The file is a task file, and no eval in its folder or in the folders above has it.
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
