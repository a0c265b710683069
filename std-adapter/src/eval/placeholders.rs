//! Placeholders: `{{steps.ID.outputs.KEY}}` and `{{steps.ID.message}}`.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::records::StepRecord;

/// Where placeholders stand, `{{steps.ID.outputs.KEY}}` and `{{steps.ID.message}}`.
pub(super) static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*steps\.([A-Za-z0-9_-]+)\.(?:outputs\.([^\s{}]+)|(message))\s*\}\}").expect("a constant pattern")
});
/// Puts outputs of earlier steps in the place of `{{steps.ID.outputs.KEY}}`.
pub(super) fn substitute<'t>(text: &'t str, steps: &[StepRecord]) -> Result<Cow<'t, str>, String> {
    let mut fault = None;
    let filled = PLACEHOLDER.replace_all(text, |found: &regex::Captures<'_>| {
        let id = found.get(1).map_or("", |id| id.as_str());
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
