//! The graders of an eval, which each of its tasks has in addition to its own.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::Task;
use super::grader::graders;
use super::reader::Reader;
use super::texts::{placeholders, strange};
use crate::expand;
use crate::grade::{Condition, Grader};
use crate::yaml::Node;

/// The graders of an eval, which each of its tasks has in addition to its own.
pub(super) struct Graders<'f> {
    node: &'f Node,
    path: &'f Path,
    file: &'f str,
    /// Those that are the same for all tasks: they have no variables.
    same: Option<Vec<Grader>>,
    /// Whether a task was found that they do not fit to: others have the same faults.
    is_broken: bool,
}

impl<'f> Graders<'f> {
    pub(super) fn read<'r: 'f>(reader: &mut Reader<'r>, eval: &'f Node) -> Self {
        eval.get("graders").into_iter().for_each(|node| strange(reader, node));
        let differ = eval.get("graders").is_some_and(expand::has_variable);
        let same = (!differ).then(|| {
            eval.get("graders").into_iter().for_each(|node| reader.unfilled(node, ""));
            graders(reader, eval, "graders")
        });
        Self { node: eval, path: reader.path, file: reader.file, same, is_broken: false }
    }

    /// Adds them to a task, whose variables are those of `reader`.
    pub(super) fn add_to(&mut self, reader: &mut Reader<'_>, task: &mut Task) {
        if self.is_broken {
            return;
        }
        let Some(node) = self.node.get("graders") else { return };
        let mut reader = Reader { path: self.path, file: self.file, ..reader.with(reader.vars) };
        let faults = reader.faults.len();
        let added = match &self.same {
            Some(same) => same.clone(),
            None => {
                let mut filled = Node::empty_map(self.node);
                filled.set("graders", node.clone());
                expand::fill(&mut filled, reader.vars);
                reader.unfilled(&filled, &format!(", of task {}", task.id));
                graders(&mut reader, &filled, "graders")
            }
        };
        let has_step = |step: &str| task.steps.iter().any(|known| known.id == step);
        placeholders(&mut reader, node, &|step| {
            (!has_step(step)).then(|| format!("task {} has no step {step}", task.id))
        });
        for grader in &added {
            if let Some(step) = grader.step.as_deref().filter(|step| !has_step(step)) {
                let text =
                    format!("Grader {} refers to step {step}, which task {} does not have", grader.label(), task.id);
                reader.fault_in(Some(grader.line), text);
            }
            if task.graders.iter().any(|own| own.is_same_measurement(grader)) {
                let text = format!("Two measurements of task {} have the name {}", task.id, grader.measured());
                reader.fault_in(Some(grader.line), text);
            }
        }
        self.is_broken = reader.faults.len() > faults;
        task.graders.extend(added);
    }
}

/// Has the names of measurements differ, since those of one name have one mean: what graders without names measure at several steps has
/// the name of its step, too, and what several graders measure at one step has a number.
pub(super) fn tell_measurements_apart(graders: &mut [Grader]) {
    let measures = |grader: &Grader| matches!(grader.check, Condition::Range { .. } | Condition::Text { .. });
    let mut steps: HashMap<String, HashSet<Option<String>>> = HashMap::new();
    for grader in graders.iter().filter(|grader| measures(grader)) {
        steps.entry(grader.measured().to_owned()).or_default().insert(grader.step.clone());
    }
    let mut taken = HashSet::new();
    for grader in graders.iter_mut().filter(|grader| measures(grader)) {
        let name = grader.measured();
        let has_step = grader.name.is_none() && steps.get(name).is_some_and(|steps| steps.len() > 1);
        let name = match &grader.step {
            Some(step) if has_step => format!("{step}.{name}"),
            _ => name.to_owned(),
        };
        let numbered = (2_usize..).map(|number| format!("{name} ({number})"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| taken.insert(name.clone()));
        grader.measurement = free;
    }
}
