//! The suite of conformance cases that `rigline check` runs for a protocol.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;

use super::{Bench, Case, CaseResult, Plan, Report, run};
use crate::client::{ClientError, OptionValues};
use crate::coerce::{brief, nearest_or_longer};
use crate::host::Options;
use crate::host::spelled;
use crate::target::Target;

/// The conformance cases of a protocol, as the registry of protocols lists them.
#[derive(Debug)]
pub struct Suite {
    /// Returns the names of all cases, in the order in which they run.
    pub names: fn() -> Vec<&'static str>,
    /// Whether the suite can write transcripts.
    pub has_transcripts: bool,
    /// Runs the chosen cases. The function gets each result as soon as the case has ended.
    pub run: RunSuite,
}

/// Runs the cases of a suite.
pub(crate) type RunSuite = for<'a> fn(Settings, &'a mut dyn FnMut(&CaseResult)) -> Checking<'a>;

/// A suite that runs.
pub(crate) type Checking<'a> = Pin<Box<dyn Future<Output = Result<Report, ClientError>> + 'a>>;

/// The target of a suite, and the permissions of its cases.
#[derive(Debug)]
pub struct Settings {
    /// The target that is checked.
    pub target: Target,
    /// The options of the connection to the target.
    pub options: Options,
    /// The time limit for each answer.
    pub timeout: Duration,
    /// The calls that cases may make, and the folder for transcripts.
    pub plan: Plan,
    /// The values of the protocol's own options.
    pub own: OptionValues,
    /// The beginnings of the chosen cases' names. If there are none, all cases are chosen.
    pub prefixes: Vec<String>,
}

impl Settings {
    /// Returns the chosen cases among `all`.
    ///
    /// # Errors
    /// No case is chosen.
    pub fn chosen<F>(&self, all: &'static [Case<F>]) -> Result<Vec<&'static Case<F>>, ClientError> {
        let is_chosen = |case: &&Case<F>| {
            self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| case.name.starts_with(prefix.as_str()))
        };
        let cases: Vec<_> = all.iter().filter(is_chosen).collect();
        if cases.is_empty() {
            let names: Vec<&str> = all.iter().map(|case| case.name).collect();
            let wanted = self.prefixes.join("`, `");
            return Err(ClientError::usage(format!(
                "no case begins with `{wanted}`; expected one of: {}",
                names.join(", ")
            )));
        }
        Ok(cases)
    }
}

/// The names of cases.
pub(crate) fn names<F>(cases: &[Case<F>]) -> Vec<&'static str> {
    cases.iter().map(|case| case.name).collect()
}

/// Runs cases on a [`Bench`].
pub(crate) async fn run_on(
    cases: Vec<&'static Case>,
    mut bench: Bench,
    settings: Settings,
    report: &mut dyn FnMut(&CaseResult),
) -> Result<Report, ClientError> {
    bench.timeout = settings.timeout;
    bench.credentials = settings.options.credentials;
    if bench.calls.is_empty() {
        bench.calls = calls(&settings.plan);
    }
    let unknown_call = bench.unknown_call.clone();
    if let Some(why) = unknown_call.take() {
        return Err(ClientError::usage(why));
    }
    let report = run(cases, bench, report).await.map_err(ClientError::transcripts)?;
    match unknown_call.take() {
        Some(why) => Err(ClientError::usage(why)),
        None => Ok(report),
    }
}

/// The calls of a plan, with their arguments.
pub(crate) fn calls(plan: &Plan) -> Vec<(String, Value)> {
    plan.samples
        .iter()
        .map(|sample| (sample.operation.clone(), serde_json::from_str(&sample.args).unwrap_or_default()))
        .collect()
}

/// Replaces names on the command line by the operations' own, in whichever spelling they are written.
///
/// # Errors
/// One is of no operation, or of several.
pub(crate) fn own_names<'c>(calls: impl Iterator<Item = &'c mut String>, operations: &[&str]) -> Result<(), String> {
    for name in calls {
        match spelled(name, operations) {
            Ok(Some(own)) => own.clone_into(name),
            Ok(None) => {
                let near = nearest_or_longer(name, operations).map(|near| format!("; did you mean `{near}`?"));
                let near = near.unwrap_or_default();
                let known = brief(&operations.join(", "));
                return Err(format!(
                    "--call {name}: the extension has no such operation{near}; expected one of: {known}"
                ));
            }
            Err(why) => return Err(format!("--call {why}")),
        }
    }
    Ok(())
}

/// Runs the chosen cases of a table on a [`Bench`] over lines.
pub(crate) async fn run_on_bench(
    all: &'static [Case],
    settings: Settings,
    report: &mut dyn FnMut(&CaseResult),
) -> Result<Report, ClientError> {
    let cases = settings.chosen(all)?;
    let bench = Bench::new(&settings.target, &settings.options);
    let mut bench = bench.map_err(|error| ClientError::usage(error.to_string()))?;
    bench.calls = calls(&settings.plan);
    if !bench.calls.is_empty() {
        // Before any case: what is no call of this extension is the caller's fault.
        bench.permitted_calls().await.ok();
    }
    run_on(cases, bench, settings, report).await
}
