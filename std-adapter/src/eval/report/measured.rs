//! Measurements that the results do not name as such: outputs that a grader holds against a range.

use serde_json::Value;

use super::super::grade::{Check, Grader};
use super::super::spec::Spec;
use super::model::{Measured, Range, Run, Trial};
use crate::number;

impl Run {
    /// Has the outputs that the eval's graders hold against ranges stand among the measurements of trials that name none.
    pub fn measure(&mut self, spec: &Spec) {
        self.ranges = spec
            .tasks
            .iter()
            .flat_map(|task| task.graders.iter().filter_map(|grader| range(&task.id, grader)))
            .collect();
        for task in &mut self.tasks {
            for trial in &mut task.trials {
                fill(&self.ranges, trial);
            }
        }
    }
}

fn range(task: &str, grader: &Grader) -> Option<Range> {
    let Check::Range { min, max } = &grader.check else { return None };
    let (step, output) = (grader.step.clone()?, grader.output.clone()?);
    Some(Range { task: task.to_owned(), step, output, low: min.clone(), high: max.clone() })
}

/// Adds what a trial's steps have given for these ranges.
pub(super) fn fill(ranges: &[Range], trial: &mut Trial) {
    if !trial.measurements.is_empty() {
        return;
    }
    for range in ranges.iter().filter(|range| range.task == trial.task) {
        let step = trial.steps.iter().find(|step| step.id == range.step);
        let Some(value) = step.and_then(|step| step.outputs.get(&range.output)) else { continue };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let is_in = number::decimal(&text).is_some_and(|value| {
            let bound = |bound: &Option<String>| bound.as_deref().and_then(number::decimal);
            bound(&range.low).is_none_or(|low| low <= value) && bound(&range.high).is_none_or(|high| value <= high)
        });
        let limit = |limit: &Option<String>| limit.as_deref().map_or(Value::Null, Value::from);
        trial.measurements.push(Measured {
            name: format!("{}.{}", range.step, range.output),
            value: value.clone(),
            unit: None,
            low: limit(&range.low),
            high: limit(&range.high),
            verdict: if is_in { "pass" } else { "fail" }.to_owned(),
        });
    }
}
