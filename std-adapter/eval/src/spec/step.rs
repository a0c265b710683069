//! The steps of a task, or of the preflight.

use rigline::Phase;

use super::Step;
use super::members::Known;
use super::reader::Reader;
use super::texts::placeholders;
use crate::attach::{self, PATTERN_LIMIT};
use crate::yaml::{Node, NodeKind};

pub(super) fn steps(reader: &mut Reader<'_>, listed: &[Node], known: &Known) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (place, node) in listed.iter().enumerate() {
        if !matches!(node.kind, NodeKind::Map(_)) {
            reader.fault(node, format!("A step is a map, found {}", node.what()));
            continue;
        }
        reader.check_members(node, known);
        let id = reader.text(node, "id").unwrap_or_else(|| format!("step-{}", place + 1));
        reader.check_id(node, &id);
        if id.contains(['{', '}']) || format!("{id}.").contains(".outputs.") {
            let text =
                format!("id: {id}: a step's id must not have braces or `.outputs`, since no placeholder could name it");
            reader.fault(node.get("id").unwrap_or(node), text);
        }
        if steps.iter().any(|step| step.id == id) {
            reader.fault(node, format!("Two steps have the id {id}"));
        }
        let phase = match reader.text(node, "phase").as_deref() {
            None | Some("verify") => Phase::Verify,
            Some("setup") => Phase::Setup,
            Some("cleanup") => Phase::Cleanup,
            Some(other) => {
                let at = node.get("phase").unwrap_or(node);
                reader.fault(at, format!("Invalid phase: {other} (there are setup, verify, cleanup)"));
                Phase::Verify
            }
        };
        let operation = reader.required(node, "operation").unwrap_or_default();
        let args = reader.map(node, "args").cloned().unwrap_or_else(|| Node::empty_map(node));
        let timeout = node.get("timeout").and_then(|timeout| reader.duration("timeout", timeout));
        let mock = reader.map(node, "mock").map(Node::members).unwrap_or_default();
        let mock =
            mock.iter().map(|(name, value)| (name.clone(), value.text().unwrap_or_else(|| value.json()))).collect();
        let attach = node.get("attach").map(|attach| patterns(reader, attach)).unwrap_or_default();
        steps.push(Step { id, phase, operation, args, line: node.line, timeout, mock, attach });
    }
    // Placeholders look back, in the order in which the steps run.
    let places: Vec<(String, (u8, usize))> =
        steps.iter().enumerate().map(|(place, step)| (step.id.clone(), (rank(step.phase), place))).collect();
    for (node, (id, at)) in listed.iter().filter(|node| matches!(node.kind, NodeKind::Map(_))).zip(&places) {
        let Some(args) = node.get("args") else { continue };
        placeholders(reader, args, &|step| match places.iter().find(|(id, _)| id == step) {
            None => Some(format!("there is no step {step}")),
            Some((_, place)) if place >= at => Some(format!("step {step} does not run before step {id}")),
            Some(_) => None,
        });
    }
    steps
}

/// The files that a step attaches.
fn patterns(reader: &mut Reader<'_>, member: &Node) -> Vec<String> {
    let patterns = reader.texts("attach", member);
    if patterns.len() > PATTERN_LIMIT {
        reader.fault(member, format!("attach: at most {PATTERN_LIMIT} files or patterns, found {}", patterns.len()));
    }
    for fault in patterns.iter().filter_map(|pattern| attach::fault(pattern)) {
        reader.fault(member, fault);
    }
    patterns
}

/// Setup, then verify, then cleanup.
pub(super) fn rank(phase: Phase) -> u8 {
    match phase {
        Phase::Setup => 0,
        Phase::Cleanup => 2,
        _ => 1,
    }
}
