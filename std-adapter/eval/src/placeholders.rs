//! Placeholders that are filled while a trial runs: `{{steps.ID.outputs.KEY}}` and
//! `{{steps.ID.message}}`; and `{{"{{"}}`, which means two braces that begin no placeholder.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::records::StepRecord;

/// The pattern of placeholders, `{{steps.ID.outputs.KEY}}` and `{{steps.ID.message}}`.
pub(super) static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    // An id may have dots, such as `3V3.on`: it ends where the first `.outputs.`, or `.message` at
    // the end, begins.
    Regex::new(r"\{\{\s*steps\.([^\s{}](?:[^{}]*?[^\s{}])?)\.(?:outputs\.([^\s{}]+)|(message))\s*\}\}")
        .expect("a constant pattern")
});

/// The pattern of two literal braces.
static BRACES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\{\{\s*(?:"\{\{"|'\{\{'|`\{\{`)\s*\}\}"#).expect("a constant pattern"));
/// Either of them. Both are replaced in one pass, so that literal braces and the text after them
/// are not read as a placeholder.
static ANY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!("{}|{}", *PLACEHOLDER, *BRACES)).expect("a constant pattern"));

/// Puts braces in the place of `{{"{{"}}`, in a text that no outputs of steps are filled into.
pub(super) fn literal(text: &str) -> Cow<'_, str> {
    BRACES.replace_all(text, "{{")
}

/// Puts outputs of earlier steps in the place of `{{steps.ID.outputs.KEY}}`, and braces in the
/// place of `{{"{{"}}`.
pub(super) fn substitute<'t>(text: &'t str, steps: &[StepRecord]) -> Result<Cow<'t, str>, String> {
    let mut fault = None;
    let filled = ANY.replace_all(text, |found: &regex::Captures<'_>| {
        let Some(id) = found.get(1).map(|id| id.as_str()) else { return "{{".to_owned() };
        let Some(step) = steps.iter().find(|step| step.id == id) else {
            fault.get_or_insert_with(|| format!("step {id} did not run"));
            return String::new();
        };
        let Some(key) = found.get(2) else { return step.message.clone() };
        let value = step.output(key.as_str());
        if value.is_none() {
            fault.get_or_insert_with(|| step.no_output(key.as_str()));
        }
        value.unwrap_or_default().to_owned()
    });
    match fault {
        Some(fault) => Err(fault),
        None => Ok(filled),
    }
}

/// Whether a text is one placeholder, and nothing else.
pub(super) fn is_whole(text: &str) -> bool {
    PLACEHOLDER.find(text).is_some_and(|found| found.len() == text.trim().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_can_name_each_step_that_there_may_be() {
        let ids = ["on", "3V3.on", "step 1", "é", "a/b:c", "message", "1"];
        for id in ids {
            let steps = [StepRecord::done(id, "done", &[("v", "3.3"), ("a.b", "4")])];
            for (placeholder, filled) in [("outputs.v", "3.3"), ("outputs.a.b", "4"), ("message", "done")] {
                let text = format!("<{{{{steps.{id}.{placeholder}}}}}> <{{{{ steps.{id}.{placeholder} }}}}>");
                assert_eq!(substitute(&text, &steps).unwrap(), format!("<{filled}> <{filled}>"), "{text}");
            }
        }
        assert_eq!(substitute("{{steps.off.on.outputs.v}}", &[]).unwrap_err(), "step off.on did not run");
        assert_eq!(
            substitute("{{steps..outputs.v}} {{steps. .message}}", &[]).unwrap(),
            "{{steps..outputs.v}} {{steps. .message}}"
        );
    }
}
