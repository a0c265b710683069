//! The results of runs, as a JUnit report.

use std::collections::HashMap;
use std::path::PathBuf;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use rigline::protocol::waza::RunState;

use super::Done;
use crate::junit;

/// `errors` are of evals that could not be read.
pub(super) fn as_junit(done: &[Done], errors: &[String], attachments: &HashMap<String, Vec<PathBuf>>) -> String {
    let text = junit::text;
    let mut report = Report::new("rigline");
    let mut names = junit::Names::default();
    for Done { path, run, .. } in done {
        let mut suite = TestSuite::new(text(&path.to_string_lossy()));
        match run {
            Err(error) => {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(text(&error.to_string()));
                suite.add_test_case(TestCase::new("start", status));
            }
            Ok((id, spec, outcome)) => {
                let attached: Vec<String> = attachments
                    .get(id)
                    .into_iter()
                    .flatten()
                    .map(|path| format!("[[ATTACHMENT|{}]]", text(&path.to_string_lossy())))
                    .collect();
                suite = TestSuite::new(text(&spec.name));
                suite.set_time(outcome.duration);
                junit::add_rig(&mut suite, outcome);
                let class_name = names.unique(&spec.name);
                for record in &outcome.tasks {
                    let task = spec.tasks.get(record.task);
                    let mut case = TestCase::new(text(task.map_or("", |task| &task.id)), junit::status(record));
                    case.set_classname(text(&class_name));
                    case.set_time(record.duration);
                    junit::add_measurements(&mut case, record);
                    if !record.has_passed() {
                        case.set_system_out(attached.join("\n"));
                    }
                    suite.add_test_case(case);
                }
                // Tasks that were not come to.
                let is_done = |place: usize| outcome.tasks.iter().any(|task| task.task == place);
                for (_, task) in spec.tasks.iter().enumerate().filter(|(place, _)| !is_done(*place)) {
                    let mut case = TestCase::new(text(&task.id), TestCaseStatus::skipped());
                    case.set_classname(text(&class_name));
                    suite.add_test_case(case);
                }
                if let (RunState::Failed, Some(error)) = (outcome.state, &outcome.error) {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                    status.set_message(text(error));
                    let mut case = TestCase::new("run", status);
                    case.set_classname(text(&class_name));
                    suite.add_test_case(case);
                }
            }
        }
        report.add_test_suite(suite);
    }
    if !errors.is_empty() {
        let mut suite = TestSuite::new("evals");
        for (place, error) in errors.iter().enumerate() {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(text(error));
            let mut case = TestCase::new(format!("read {}", place + 1), status);
            case.set_classname("evals");
            suite.add_test_case(case);
        }
        report.add_test_suite(suite);
    }
    report.to_string().unwrap_or_default()
}
