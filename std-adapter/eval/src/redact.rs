//! Hides the values of environment variables in the logs, the reports and the records of a run.

use super::records::TrialRecord;
use super::session::RigIdentity;
use rigline_host::number;

/// Shorter values and numbers are not hidden: they would also hide unrelated text.
const SHORTEST: usize = 8;

/// The values that are hidden, each in all its encodings, with its replacement. The longest comes
/// first.
#[derive(Debug, Clone, Default)]
pub(super) struct Redactor(Vec<(String, String)>);

impl Redactor {
    /// Of the environment variables among these values.
    pub(super) fn of(values: &[(String, String)]) -> Self {
        let mut hidden = Vec::new();
        for (name, value) in values.iter().filter(|(name, _)| name.starts_with("env.")) {
            let value = value.trim();
            if value.len() < SHORTEST || number::decimal(value).is_some() {
                continue;
            }
            let json = serde_json::Value::from(value).to_string();
            let json = json.trim_start_matches('"').strip_suffix('"').unwrap_or(&json).to_owned();
            let spellings = [value.to_owned(), value.escape_debug().to_string(), json];
            let lines = value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST).map(str::to_owned);
            hidden.extend(spellings.into_iter().chain(lines).map(|spelling| (spelling, format!("{{{{{name}}}}}"))));
        }
        hidden.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        hidden.dedup();
        Self(hidden)
    }

    /// A text with `{{env.NAME}}` in the place of each value, also of one that was cut and ends in
    /// `…`.
    pub(super) fn hide(&self, text: &mut String) {
        for (value, name) in &self.0 {
            let Some(head) =
                value.char_indices().nth(SHORTEST).map_or(Some(value.as_str()), |(end, _)| value.get(..end))
            else {
                continue;
            };
            let mut from = 0;
            while let Some(at) = text.get(from..).and_then(|rest| rest.find(head)).map(|at| from + at) {
                let rest = text.get(at..).unwrap_or_default();
                let same = rest.chars().zip(value.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
                let is_cut = rest.get(same..).is_some_and(|rest| rest.starts_with('…'));
                if same == value.len() || is_cut {
                    text.replace_range(at..at + same, name);
                    from = at + name.len();
                } else {
                    from = at + head.len();
                }
            }
        }
    }

    /// The text with the values hidden.
    pub(super) fn hidden(&self, text: &str) -> String {
        let mut text = text.to_owned();
        self.hide(&mut text);
        text
    }

    /// Hides the values in the identity of a rig, since its target may contain them.
    pub(super) fn hide_in_rig(&self, rig: &mut RigIdentity) {
        let texts = [&mut rig.name, &mut rig.version, &mut rig.target];
        texts.into_iter().chain(rig.serial_number.as_mut()).for_each(|text| self.hide(text));
    }

    /// Hides the values in all texts of a trial.
    pub(super) fn hide_in(&self, record: &mut TrialRecord) {
        if self.0.is_empty() {
            return;
        }
        let mut texts: Vec<&mut String> = Vec::new();
        texts.extend(record.error.as_mut());
        texts.extend(record.output.as_mut());
        texts.extend(record.earlier.iter_mut().map(|attempt| &mut attempt.error));
        for step in &mut record.steps {
            texts.extend(step.attachments.iter_mut().map(|attachment| &mut attachment.name));
            texts.extend([&mut step.id, &mut step.operation, &mut step.message]);
            texts.extend(step.outputs.iter_mut().flat_map(|(name, value)| [name, value]));
        }
        for grade in &mut record.grades {
            texts.extend([&mut grade.grader, &mut grade.message]);
            texts.extend(grade.metric.as_mut());
            if let Some(measured) = &mut grade.measurement {
                texts.extend([&mut measured.name, &mut measured.value]);
                texts.extend(measured.unit.as_mut());
            }
        }
        texts.into_iter().for_each(|text| self.hide(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_environment_are_hidden_in_every_spelling() {
        let values =
            |value: &str| [("env.KEY".to_owned(), value.to_owned()), ("inputs.x".to_owned(), "in the open".to_owned())];
        for (value, text, hidden) in [
            ("hunter2secret", "a hunter2secret, hunter2secretx", "a {{env.KEY}}, {{env.KEY}}x"),
            ("hunter2secret", "hunter2 is not it, and hunter2s is not", "hunter2 is not it, and hunter2s is not"),
            ("hunter2secret", "it was cut: hunter2se…", "it was cut: {{env.KEY}}…"),
            ("with \"quotes\"", r#"{"a":"with \"quotes\""}"#, r#"{"a":"{{env.KEY}}"}"#),
            ("-----BEGIN-----\nabcdefghij\n", "line abcdefghij", "line {{env.KEY}}"),
            ("geheim\u{e9}\u{e9}\u{e9}", "geheim\u{e9}\u{e9}\u{e9}!", "{{env.KEY}}!"),
            ("short", "short", "short"),
            ("3.30000000", "3.30000000", "3.30000000"),
            ("", "in the open", "in the open"),
        ] {
            let mut told = text.to_owned();
            Redactor::of(&values(value)).hide(&mut told);
            assert_eq!(told, hidden, "{value}");
        }
    }
}
