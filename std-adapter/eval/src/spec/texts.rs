//! Placeholders of steps, which are filled while a task runs, and braces that begin none.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::reader::Reader;
use crate::placeholders::{PLACEHOLDER, literal};
use crate::yaml::{Node, NodeKind};

/// Records the faults of the placeholders in a node's texts. `fault` returns the fault of a step that one names.
pub(super) fn placeholders(reader: &mut Reader<'_>, node: &Node, fault: &dyn Fn(&str) -> Option<String>) {
    each_text(node, &mut |text, line| {
        for almost in ALMOST.find_iter(text).map(|almost| almost.as_str()) {
            let fault = match PLACEHOLDER.captures(almost).and_then(|found| found.get(1)) {
                None => Some("write {{steps.ID.outputs.KEY}}".to_owned()),
                Some(step) => fault(step.as_str()),
            };
            if let Some(fault) = fault {
                reader.fault_in(Some(line), format!("{almost}: {fault}"));
            }
        }
    });
}

/// The beginning of a placeholder.
static ALMOST: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{\{\s*steps\b[^{}]*\}*").expect("a constant pattern"));

fn each_text(node: &Node, visit: &mut dyn FnMut(&str, u32)) {
    match &node.kind {
        NodeKind::Text(text) => visit(text, node.line),
        NodeKind::List(elements) => elements.iter().for_each(|element| each_text(element, visit)),
        NodeKind::Map(members) => members.iter().for_each(|(_, member)| each_text(member, visit)),
        _ => {}
    }
}

/// Notes what looks like a placeholder, and is none: one of a kind that is nearly a known one, and one in the name of a member.
pub(super) fn strange(reader: &mut Reader<'_>, node: &Node) {
    match &node.kind {
        NodeKind::Text(text) => {
            for found in DOTTED.captures_iter(text) {
                let (whole, kind) = (&found[0], &found[1]);
                if let Some(meant) = meant_kind(kind) {
                    reader.warn(node, format!("{whole}: there are no placeholders of {kind}; did you mean `{meant}`?"));
                }
            }
        }
        NodeKind::List(elements) => elements.iter().for_each(|element| strange(reader, element)),
        NodeKind::Map(members) => {
            for (name, member) in members {
                if let Some(found) =
                    DOTTED.captures(name).filter(|found| KINDS.contains(&&found[1]) || meant_kind(&found[1]).is_some())
                {
                    reader.warn(member, format!("{}: placeholders in names are not filled in", &found[0]));
                }
                strange(reader, member);
            }
        }
        _ => {}
    }
}

/// The kinds of placeholders.
const KINDS: [&str; 6] = ["steps", "matrix", "for", "vars", "inputs", "env"];

/// A text in braces that has the form of a placeholder.
static DOTTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{\{\s*([A-Za-z]+)\.[^{}]*\}\}").expect("a constant pattern"));

/// The kind that was probably meant. Other templates may have kinds of their own, such as `foo`.
fn meant_kind(kind: &str) -> Option<&'static str> {
    let lower = kind.to_ascii_lowercase();
    let is_near = |known: &str| lower == known || known.len() > 3 && strsim::damerau_levenshtein(&lower, known) == 1;
    KINDS.into_iter().find(|known| is_near(known)).filter(|_| !KINDS.contains(&kind))
}

/// Puts braces in the place of `{{"{{"}}` in all of a task that no outputs of steps are filled into while it runs.
pub(super) fn unescape(task: &mut Node) {
    for (name, member) in task.members_mut() {
        match name.as_str() {
            "prompt" | "inputs" | "graders" | "expected" => {}
            "steps" => unescape_steps(member),
            _ => member.each_text_mut(&mut braces),
        }
    }
}

pub(super) fn unescape_steps(steps: &mut Node) {
    for step in steps.elements_mut() {
        for (_, member) in step.members_mut().iter_mut().filter(|(name, _)| name != "args" && name != "expect") {
            member.each_text_mut(&mut braces);
        }
    }
}

pub(super) fn braces(text: &str) -> Option<(String, bool)> {
    match literal(text) {
        Cow::Owned(text) => Some((text, false)),
        Cow::Borrowed(_) => None,
    }
}
