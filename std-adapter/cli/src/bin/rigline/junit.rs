//! Shared parts of JUnit reports: their texts, and the parts of an eval's cases.

use std::collections::HashMap;

use quick_junit::{NonSuccessKind, Property, TestCase, TestCaseStatus, TestRerun, TestSuite};
use rigline_eval::run::{Outcome, TaskRecord};
use rigline_eval::verdict::Class;
use rigline_host::terminal;

/// Names, each of which is used once.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, usize>);

impl Names {
    /// The name itself the first time, and with a number behind it after that.
    pub(crate) fn unique(&mut self, name: &str) -> String {
        let count = self.0.entry(name.to_owned()).or_default();
        *count += 1;
        if *count == 1 { name.to_owned() } else { format!("{name} ({count})") }
    }
}

/// The result of a task: `<error>` for the rig, `<failure>` for the board under test, `<flakyFailure>` for a task that
/// passed in a later attempt.
pub(crate) fn status(record: &TaskRecord) -> TestCaseStatus {
    let class = record.class();
    let is_error = record.trials.iter().any(rigline_eval::records::TrialRecord::is_error);
    let (mut status, kind) = match class {
        Class::Pass => (TestCaseStatus::success(), None),
        Class::Flaky if record.has_passed() => (TestCaseStatus::success(), None),
        Class::Skipped | Class::Cancelled => (TestCaseStatus::skipped(), None),
        Class::RigError => (TestCaseStatus::non_success(NonSuccessKind::Error), Some("rig error")),
        _ if is_error => (TestCaseStatus::non_success(NonSuccessKind::Error), Some("eval error")),
        _ => (TestCaseStatus::non_success(NonSuccessKind::Failure), Some(class.label())),
    };
    if let Some(kind) = kind {
        status.set_type(kind);
    }
    if class == Class::Flaky && record.has_passed() {
        for attempt in record.trials.iter().flat_map(|trial| &trial.earlier) {
            let kind = if attempt.class == Class::RigError { NonSuccessKind::Error } else { NonSuccessKind::Failure };
            let mut rerun = TestRerun::new(kind);
            rerun.set_message(text(&attempt.error)).set_type(attempt.class.label());
            status.add_rerun(rerun);
        }
    } else if let Some(why) = record.why() {
        let reliability = record.reliability();
        let flaky = format!("{} of {} trials passed; ", reliability.passed, reliability.trials);
        let before = if class == Class::Flaky { flaky.as_str() } else { "" };
        status.set_message(text(&format!("{before}{why}")));
    }
    status
}

/// A property for each measurement: `3.301 V [3.135 … 3.465] pass`.
pub(crate) fn add_measurements(case: &mut TestCase, record: &TaskRecord) {
    for statistics in record.measurements() {
        let last = &statistics.last;
        let limits = rigline_eval::measurement::limits(last.low.as_deref(), last.high.as_deref());
        let verdict = if statistics.passed { "pass" } else { "fail" };
        let parts = [last.value.as_str(), last.unit.as_deref().unwrap_or_default(), &limits, verdict];
        let value = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        case.properties.push(Property::new(text(&format!("measurement:{}", last.name)), text(&value)));
        if let Some(cpk) = statistics.cpk {
            case.properties.push(Property::new(text(&format!("cpk:{}", last.name)), format!("{cpk:.3}")));
        }
    }
}

/// Properties with the rig's identity and the results of its preflight.
pub(crate) fn add_rig(suite: &mut TestSuite, outcome: &Outcome) {
    let mut add = |name: &str, value: &str| {
        suite.properties.push(Property::new(text(name), text(value)));
    };
    if let Some(rig) = &outcome.rig {
        add("rig", &format!("{} {}", rig.name, rig.version));
        add("target", &rig.target);
        if let Some(number) = &rig.serial_number {
            add("serial_number", number);
        }
    }
    for step in outcome.health.iter().flat_map(|health| &health.steps) {
        for (name, value) in &step.outputs {
            add(&format!("health.{}.{name}", step.id), value);
        }
    }
}

/// A text that XML 1.0 can hold and that drives no terminal: other characters are replaced by U+FFFD.
pub(crate) fn text(text: &str) -> String {
    let is_noncharacter = |char: char| u32::from(char) & 0xFFFE == 0xFFFE;
    terminal::printable(text).replace(is_noncharacter, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nr_17_only_what_xml_1_0_can_hold() {
        assert_eq!(text("a\tb\nc é \u{1f600} <&>"), "a\tb\nc é \u{1f600} <&>");
        for char in [
            "\u{0}",
            "\u{b}",
            "\u{1b}",
            "\u{7f}",
            "\u{85}",
            "\u{9b}",
            "\u{202e}",
            "\u{2066}",
            "\u{fffe}",
            "\u{ffff}",
            "\u{1ffff}",
        ] {
            assert_eq!(text(char), "\u{fffd}");
        }
    }
}
