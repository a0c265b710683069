//! How an eval is run, when it passes, and its preflight.

use std::path::Path;

use super::members::{CONFIG, HEALTH_STEP, METRIC, METRICS};
use super::reader::Reader;
use super::step::steps;
use super::texts::strange;
use super::{
    ATTEMPT_LIMIT, Config, DEFAULT_TIMEOUT, Executor, Metric, Metrics, Mock, Overrides, TRIAL_LIMIT, Task, WORKER_LIMIT,
};
use crate::expand;
use crate::grade::Grader;
use crate::yaml::{Node, NodeKind};
use rigline_host::target::Target;

pub(super) fn config(reader: &mut Reader<'_>, eval: &Node, folder: &Path, overrides: &Overrides) -> Config {
    let nothing = Node::default();
    let node = reader.map(eval, "config").unwrap_or(&nothing);
    reader.check_members(node, &CONFIG);
    strange(reader, node);
    let mut executor = reader.text(node, "executor").unwrap_or_default();
    match &overrides.executor {
        Some(name) => executor.clone_from(name),
        None if executor.is_empty() || Executor::is_known(&executor) => {}
        None => reader.fault(
            node.get("executor").unwrap_or(node),
            format!(
                "Invalid executor type: {executor} (there are {})",
                Executor::known().collect::<Vec<_>>().join(", ")
            ),
        ),
    }
    let target = overrides.target.clone().or_else(|| reader.text(node, "target"));
    if let Some(Err(error)) = target.as_deref().map(str::parse::<Target>) {
        let text = format!("Invalid target: {error}");
        match overrides.target {
            Some(_) => reader.fault_of_cases(expand::OPTION, text),
            None => reader.fault(node.get("target").unwrap_or(node), text),
        }
    }
    let command = match node.get("command") {
        None => Vec::new(),
        Some(member) if matches!(member.kind, NodeKind::List(_)) => reader.texts("command", member),
        Some(member) => {
            let words = member.text().and_then(|text| shell_words::split(&text).ok());
            if words.is_none() {
                reader.fault(member, "command: expected a program with its arguments, as a string or a list");
            }
            words.unwrap_or_default()
        }
    };
    let range = 1..=u32::try_from(WORKER_LIMIT).unwrap_or(u32::MAX);
    let workers = reader.whole(node, "workers", range.clone());
    let workers = workers.or_else(|| reader.whole(node, "max_workers", range.clone())).unwrap_or(4);
    let workers = match node.get("parallel").map(|parallel| (parallel, parallel.bool())) {
        None | Some((_, Some(false))) => 1,
        Some((_, Some(true))) => workers,
        Some((parallel, None)) if parallel.number().is_some() => reader.whole(node, "parallel", range).unwrap_or(1),
        Some((parallel, None)) => {
            reader.fault(parallel, "parallel: expected true, false or a number of workers");
            1
        }
    };
    Config {
        executor,
        model: overrides.model.clone().or_else(|| reader.text(node, "model")),
        target,
        trials_per_task: reader.whole(node, "trials_per_task", 1..=TRIAL_LIMIT).unwrap_or(1),
        timeout: reader.seconds(node, "timeout_seconds").unwrap_or(DEFAULT_TIMEOUT),
        workers: usize::try_from(workers).unwrap_or(1),
        command,
        env: reader.env(node),
        settings: reader.map(node, "settings").and_then(|settings| settings.json().parse().ok()),
        target_dir: overrides
            .target
            .is_none()
            .then(|| std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())),
        max_attempts: reader.whole(node, "max_attempts", 1..=ATTEMPT_LIMIT).unwrap_or(1),
        retries: reader.whole(node, "retries", 0..=ATTEMPT_LIMIT).unwrap_or(0),
        retries_failures: match reader.text(node, "retry_on").as_deref() {
            None | Some("rig_error") => false,
            Some("any") => true,
            Some(other) => {
                let at = node.get("retry_on").unwrap_or(node);
                reader.fault(at, format!("Invalid retry_on: {other} (expected rig_error or any)"));
                false
            }
        },
    }
}

pub(super) fn metrics(reader: &mut Reader<'_>, eval: &Node) -> Metrics {
    let mut metrics = Metrics { pass_threshold: 1.0, list: Vec::new() };
    let Some(node) = eval.get("metrics") else { return metrics };
    match &node.kind {
        NodeKind::Map(_) => {
            reader.check_members(node, &METRICS);
            if let Some(threshold) = reader.number(node, "pass_threshold", 0.0..=1.0) {
                metrics.pass_threshold = threshold;
            }
        }
        NodeKind::List(elements) => {
            for element in elements {
                reader.check_members(element, &METRIC);
                let Some(name) = reader.required(element, "name") else { continue };
                metrics.list.push(Metric {
                    name,
                    weight: reader.number(element, "weight", 0.0..=1e6).unwrap_or(1.0),
                    threshold: reader.number(element, "threshold", 0.0..=1.0).unwrap_or(1.0),
                    description: reader.text(element, "description"),
                });
            }
        }
        _ => reader.fault(node, format!("metrics: expected a map or a list, found {}", node.what())),
    }
    metrics
}

/// The preflight, as a task whose graders are what its steps expect.
pub(super) fn health(reader: &mut Reader<'_>, eval: &Node, file: &str) -> Option<Task> {
    let listed = reader.list(eval, "health").to_vec();
    strange(reader, eval.get("health")?);
    let steps = steps(reader, &listed, &HEALTH_STEP);
    let mut graders = Vec::new();
    for (node, step) in listed.iter().filter(|node| node.is_map()).zip(&steps) {
        if node.get("phase").is_some() {
            reader.fault(node, "phase: a step of the preflight has no phase");
        }
        for (output, wanted) in reader.map(node, "expect").map(Node::members).unwrap_or_default() {
            let text = wanted.text().unwrap_or_else(|| wanted.json());
            graders.push(Grader::equals(&step.id, output, text, wanted.wanted(), wanted.line));
        }
    }
    if steps.is_empty() {
        reader.fault(eval.get("health").unwrap_or(eval), "health: there are no steps");
    }
    Some(Task {
        id: "health".into(),
        name: "preflight".into(),
        description: None,
        tags: Vec::new(),
        prompt: None,
        file: file.to_owned(),
        timeout: None,
        steps,
        graders,
        mock: Mock::default(),
        shown_prompt: None,
        graders_json: "[]".into(),
        members: Vec::new(),
    })
}
