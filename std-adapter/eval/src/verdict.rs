//! The verdicts of trials and tasks. They say whether the board under test or the rig is at fault.

use serde_json::{Value, json};

use super::records::TrialRecord;
pub(crate) use super::records::{Cause, Class};

/// Returns the verdict of a task by those of its trials. A failure of the board counts more than an
/// error of the rig, since it is certain. Both count more than a trial that was cut off.
pub fn of_trials(trials: &[TrialRecord]) -> Class {
    let has = |class| trials.iter().any(|trial| trial.class() == class);
    let is_cut_off = trials.is_empty() || has(Class::Cancelled);
    match () {
        () if is_cut_off && !has(Class::Fail) && !has(Class::RigError) => Class::Cancelled,
        () if has(Class::Flaky) || (has(Class::Fail) && has(Class::Pass)) => Class::Flaky,
        () if has(Class::Fail) => Class::Fail,
        () if has(Class::RigError) => Class::RigError,
        () if has(Class::Skipped) => Class::Skipped,
        () => Class::Pass,
    }
}

/// The reliability of a task: how many of its trials passed. Trials that the rig spoiled do not
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reliability {
    /// The number of trials that were judged.
    pub trials: u32,
    /// The number of trials that passed in their first attempt. Attempts that the rig spoiled do
    /// not count.
    pub passed: u32,
}

impl Reliability {
    /// The reliability that these trials show.
    pub fn of(trials: &[TrialRecord]) -> Self {
        let count = |classes: &[Class]| {
            u32::try_from(trials.iter().filter(|trial| classes.contains(&trial.class())).count()).unwrap_or(u32::MAX)
        };
        Self { trials: count(&[Class::Pass, Class::Fail, Class::Flaky]), passed: count(&[Class::Pass]) }
    }

    /// Returns pass@k: the estimated probability that at least one of `k` trials passes. Returns
    /// `None` if fewer than `k` trials were judged.
    pub fn pass_at(self, k: u32) -> Option<f64> {
        let failed = self.trials - self.passed;
        self.has(k).then(|| 1.0 - drawn(failed, self.trials, k))
    }

    /// Returns pass^k: the estimated probability that all of `k` trials pass. Returns `None` if
    /// fewer than `k` trials were judged.
    pub fn pass_all(self, k: u32) -> Option<f64> {
        self.has(k).then(|| drawn(self.passed, self.trials, k))
    }

    fn has(self, k: u32) -> bool {
        (1..=self.trials).contains(&k)
    }

    /// Returns the reliability as JSON. The probabilities are given for each `k` from 1 to 10, and
    /// for the number of all trials.
    pub fn to_json(self) -> Value {
        let ks: Vec<u32> = (1..=self.trials.min(10)).chain((self.trials > 10).then_some(self.trials)).collect();
        let each = |of: fn(Self, u32) -> Option<f64>| {
            ks.iter().map(|k| (k.to_string(), json!(of(self, *k)))).collect::<serde_json::Map<_, _>>()
        };
        json!({ "trials": self.trials, "passed": self.passed, "passAtK": each(Self::pass_at), "passAllK": each(Self::pass_all) })
    }
}

/// The probability that `k` of `all`, drawn without putting back, are all among `marked`.
fn drawn(marked: u32, all: u32, k: u32) -> f64 {
    if k > marked {
        return 0.0;
    }
    (0..k).map(|drawn| f64::from(marked - drawn) / f64::from(all - drawn)).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_at_k_and_pass_all_k() {
        let of = |trials, passed| Reliability { trials, passed };
        for (trials, passed, k, at, all) in [
            (3, 3, 3, 1.0, 1.0),
            (3, 0, 1, 0.0, 0.0),
            (3, 2, 1, 2.0 / 3.0, 2.0 / 3.0),
            (3, 2, 2, 1.0, 1.0 / 3.0),
            (3, 2, 3, 1.0, 0.0),
            (10, 5, 2, 1.0 - 10.0 / 45.0, 10.0 / 45.0),
        ] {
            assert!((of(trials, passed).pass_at(k).unwrap() - at).abs() < 1e-12, "{trials} {passed} {k}");
            assert!((of(trials, passed).pass_all(k).unwrap() - all).abs() < 1e-12, "{trials} {passed} {k}");
        }
        assert_eq!(of(3, 2).pass_at(0), None);
        assert_eq!(of(3, 2).pass_at(4), None);
        assert_eq!(of(0, 0).pass_at(1), None);
        assert_eq!(of(1000, 999).to_json()["passAllK"].as_object().unwrap().len(), 11);
    }
}
