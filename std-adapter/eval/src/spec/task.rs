//! One task: its prompt, its steps and its graders.

use std::collections::HashSet;

use rigline::Phase;

use super::grader::{graders, measurement};
use super::members::{EXPECTED, INPUTS, MEASURE, MOCK, STEP, TASK, TASK_MEMBERS, rest};
use super::reader::Reader;
use super::settings::Settings;
use super::step::{rank, steps};
use super::texts::{placeholders, strange};
use super::{Mock, Step, Task};
use crate::foreign;
use crate::grade::Grader;
use crate::yaml::{Node, NodeKind};

pub(super) fn task(reader: &mut Reader<'_>, node: &Node, file: &str, ids: &mut HashSet<String>) -> Option<Task> {
    if !matches!(node.kind, NodeKind::Map(_)) {
        reader.fault(node, format!("A task is a map, found {}", node.what()));
        return None;
    }
    reader.check_members(node, &TASK);
    strange(reader, node);
    if node.get("id").is_none() {
        reader.fault(node, "Missing required field: id");
    }
    let id = reader.text(node, "id").unwrap_or_default();
    reader.check_id(node, &id);
    if !id.is_empty() && !ids.insert(id.clone()) {
        reader.fault(node.get("id").unwrap_or(node), format!("Two tasks have the id {id}"));
    }
    let inputs = reader.map(node, "inputs");
    if let Some(inputs) = inputs {
        reader.check_members(inputs, &INPUTS);
    }
    let asked = inputs.and_then(|inputs| reader.text(inputs, "prompt")).or_else(|| reader.text(node, "prompt"));
    let tags = node.get("tags").map(|tags| reader.texts("tags", tags)).unwrap_or_default();
    let timeout = match node.get("timeout") {
        Some(timeout) => reader.duration("timeout", timeout),
        None => reader.seconds(node, "timeout_seconds"),
    };
    let listed = reader.list(node, "steps").to_vec();
    let mut steps = steps(reader, &listed, &STEP);
    let measures = measures(reader, &listed, &steps);
    // A stable sort keeps the order within each phase.
    steps.sort_by_key(|step| rank(step.phase));
    let mut graders = graders(reader, node, "graders");
    graders.extend(measures);
    for (place, grader) in graders.iter().enumerate().filter(|(_, grader)| grader.kind == "measurement") {
        if graders.iter().take(place).any(|earlier| earlier.is_same_measurement(grader)) {
            reader.fault_in(Some(grader.line), format!("Two measurements have the name {}", grader.measured()));
        }
    }
    if let Some(expected) = reader.map(node, "expected") {
        reader.check_members(expected, &EXPECTED);
        for name in ["output_contains", "output_contains_any", "output_not_contains"] {
            if let Some(member) = expected.get(name) {
                let texts = reader.texts(name, member);
                let never = if name == "output_not_contains" { "pass" } else { "fail" };
                if texts.iter().any(String::is_empty) {
                    reader
                        .fault(member, format!("{name}: an empty text is in every output, so this can never {never}"));
                }
                if texts.is_empty() {
                    reader.fault(member, format!("{name}: there are none, so this can never fail"));
                } else {
                    graders.push(Grader::expected(name, texts));
                }
            }
        }
        let unjudged = foreign::EXPECTED.iter().filter(|name| expected.get(name).is_some());
        graders.extend(unjudged.map(|name| Grader::unjudged(&format!("expected.{name}"))));
    }
    for grader in &graders {
        if let Some(step) = grader.step.as_deref().filter(|step| steps.iter().all(|known| known.id != *step)) {
            let text = format!("Grader {} refers to step {step}, which task {id} does not have", grader.label());
            reader.fault_in(Some(grader.line), text);
        }
    }
    let phase_of = |id: &str| steps.iter().find(|step| step.id == id).map(|step| step.phase);
    let is_there = |step: &str| phase_of(step).is_none().then(|| format!("there is no step {step}"));
    if let Some(asked) = prompt(node) {
        placeholders(reader, asked, &|step| match phase_of(step) {
            None | Some(Phase::Setup) => is_there(step),
            Some(_) => Some(format!("step {step} does not run before the prompt is given, as those of setup do")),
        });
    }
    let looked_for = node.get("graders").map(Node::elements).unwrap_or_default().iter();
    for texts in looked_for.chain(node.get("expected")) {
        placeholders(reader, texts, &is_there);
    }
    Some(Task {
        name: reader.text(node, "name").unwrap_or_else(|| id.clone()),
        id,
        description: reader.text(node, "description"),
        tags,
        shown_prompt: asked.clone(),
        prompt: asked,
        file: file.to_owned(),
        timeout,
        steps,
        graders,
        mock: mock(reader, node),
        graders_json: node.get("graders").map_or_else(|| "[]".to_owned(), Node::json),
        members: rest(node, TASK_MEMBERS),
    })
}

/// The prompt for an agent.
pub(super) fn prompt(task: &Node) -> Option<&Node> {
    task.get("inputs").and_then(|inputs| inputs.get("prompt")).or_else(|| task.get("prompt"))
}

fn mock(reader: &mut Reader<'_>, task: &Node) -> Mock {
    let Some(node) = reader.map(task, "mock") else { return Mock::default() };
    reader.check_members(node, &MOCK);
    Mock {
        output: reader.text(node, "output"),
        delay: node.get("delay").and_then(|delay| reader.duration("mock.delay", delay)).unwrap_or_default(),
        fail: reader.flag("mock.fail", node.get("fail")).unwrap_or_default(),
    }
}

/// The measurements of steps, as graders. The steps are in the order in which they were read.
fn measures(reader: &mut Reader<'_>, listed: &[Node], steps: &[Step]) -> Vec<Grader> {
    let mut graders = Vec::new();
    for (node, step) in listed.iter().filter(|node| node.is_map()).zip(steps) {
        let Some(member) = node.get("measure") else { continue };
        let each = if member.is_list() { member.elements() } else { std::slice::from_ref(member) };
        for one in each {
            if !one.is_map() {
                reader.fault(one, format!("measure: expected a map, found {}", one.what()));
                continue;
            }
            reader.check_members(one, &MEASURE);
            let settings = Settings { node: one, inner: None, kind: "measure".into() };
            let Some(output) = reader.required(one, "output") else { continue };
            let (check, unit) = measurement(reader, &settings);
            graders.push(Grader {
                name: reader.text(one, "name"),
                metric: None,
                weight: 1.0,
                step: Some(step.id.clone()),
                output: Some(output),
                kind: "measurement".into(),
                check,
                unit,
                measurement: None,
                line: one.line,
            });
        }
    }
    graders
}
