//! An eval: its file with the variables filled in, and its members.

use std::path::Path;

use serde_json::Value;

use super::config::{config, health, metrics};
use super::members::{EVAL, EVAL_MEMBERS, rest};
use super::reader::Reader;
use super::source::{folder_of, in_folder, is_absent, read};
use super::tasks::tasks;
use super::texts::{braces, unescape_steps};
use super::{Executor, Fault, LoadError, Overrides, Spec};
use crate::expand;
use crate::foreign;
use crate::redact::Redactor;
use crate::yaml::{Node, NodeKind};

/// Reads an eval with its tasks, and returns all faults. A file with faults is read as far as
/// possible. If `path` is a folder, its `eval.yaml` is read.
///
/// # Errors
/// The eval file does not exist, is not YAML, or is not a map.
pub fn load(path: &Path, overrides: &Overrides) -> Result<(Spec, Vec<Fault>), LoadError> {
    let path = if path.is_dir() { in_folder(path) } else { path.to_owned() };
    let folder = folder_of(&path).to_owned();
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let source = match read(&path) {
        Ok(source) => source,
        Err(error) if is_absent(&error) => return Err(LoadError::NotFound(path)),
        Err(error) => {
            return Err(LoadError::Unreadable(Fault {
                text: format!("Cannot be read: {error}"),
                path,
                file,
                line: None,
            }));
        }
    };
    let node = match Node::parse(&source) {
        Ok(node) => node,
        Err(error) => {
            let text = format!("Not valid YAML: {}", error.text);
            return Err(LoadError::Unreadable(Fault { text, path, file, line: error.line }));
        }
    };
    if !matches!(node.kind, NodeKind::Map(_)) {
        let text = format!("An eval is a map, found {}", node.what());
        return Err(LoadError::Unreadable(Fault { text, path, file, line: Some(node.line) }));
    }
    if let Some(whose) = foreign::program_of(node.members()) {
        let text = format!("Not an eval of rigline: it is {whose}");
        return Err(LoadError::Unreadable(Fault { text, path, file, line: Some(node.line) }));
    }
    let (mut faults, mut warnings) = (Vec::new(), Vec::new());
    let mut vars = vars(&node, &overrides.set);
    let mut reader = Reader { path: &path, file: &file, faults: &mut faults, warnings: &mut warnings, vars: &[] };
    vars.extend(environment(&mut reader, &node));
    let mut reader = Reader { path: &path, file: &file, faults: &mut faults, warnings: &mut warnings, vars: &vars };
    let mut full = node.clone();
    for name in ["config", "health"] {
        let Some(mut member) = node.get(name).cloned() else { continue };
        expand::keep_lists(&mut member, &vars, &expand::lists(&node, &overrides.set));
        expand::fill(&mut member, &vars);
        reader.unfilled(&member, "");
        full.set(name, member);
    }
    for (name, member) in full.members_mut() {
        match name.as_str() {
            "config" => member.each_text_mut(&mut braces),
            "health" => unescape_steps(member),
            _ => {}
        }
    }
    let mut spec = eval(&mut reader, &full, &node, &folder, overrides);
    faults.iter_mut().chain(&mut warnings).for_each(|fault| spec.redactor.hide(&mut fault.text));
    spec.warnings = warnings;
    Ok((spec, faults))
}

/// The eval's `inputs`: the values of variables.
fn vars(eval: &Node, set: &[(String, String)]) -> Vec<(String, String)> {
    let inputs = eval.get("inputs").map(Node::members).unwrap_or_default();
    let value = |name: &String, value: &Node| match set.iter().rev().find(|(set, _)| set == name) {
        Some((_, set)) => set.clone(),
        None => value.text().unwrap_or_else(|| value.json()),
    };
    inputs.iter().map(|(name, node)| (format!("inputs.{name}"), value(name, node))).collect()
}

/// The environment variables that `config.allow_env` lets in.
fn environment(reader: &mut Reader<'_>, eval: &Node) -> Vec<(String, String)> {
    let Some(node) = eval.get("config").and_then(|config| config.get("allow_env")) else { return Vec::new() };
    let mut values = Vec::new();
    for name in reader.texts("allow_env", node) {
        match std::env::var(&name) {
            Ok(value) => values.push((format!("env.{name}"), value)),
            Err(std::env::VarError::NotPresent) => {
                reader.fault(node, format!("allow_env: the environment variable {name} is not set"));
            }
            Err(std::env::VarError::NotUnicode(_)) => {
                reader.fault(node, format!("allow_env: the environment variable {name} is not UTF-8"));
            }
        }
    }
    values
}

/// `shown` is the eval as it was written, without what environment variables held.
fn eval(reader: &mut Reader<'_>, node: &Node, shown: &Node, folder: &Path, overrides: &Overrides) -> Spec {
    let name = reader.required(node, "name").unwrap_or_default();
    let description = reader.text(node, "description");
    let skill = reader.text(node, "skill");
    let version = reader.text(node, "version");
    reader.check_members(node, &EVAL);
    reader.map(node, "inputs");
    for name in ["name", "description", "skill", "version", "tags", "metrics"] {
        if let Some(member) = node.get(name).filter(|member| expand::has_variable(member)) {
            reader.warn(member, format!("{name}: placeholders have no effect here"));
        }
    }
    let mut config = config(reader, node, folder, overrides);
    let metrics = metrics(reader, node);
    let file = reader.file.to_owned();
    let health = health(reader, node, &file);
    let tasks = tasks(reader, node, folder, &overrides.set);
    let has_steps = tasks.iter().any(|task| !task.steps.is_empty());
    if config.executor.is_empty() {
        config.executor = match () {
            () if has_steps || config.target.is_some() => "extension",
            () if !config.command.is_empty() => "command",
            () => "mock",
        }
        .into();
    }
    let at = node.get("config").unwrap_or(node);
    match Executor::named(&config.executor) {
        Some(Executor::Extension) => {
            if config.target.is_none() {
                reader
                    .fault(at, "Missing required field: config.target (the executor extension needs one, such as sim)");
            }
            for task in tasks.iter().filter(|task| task.steps.is_empty()) {
                let text = format!("Task {} has no steps, which the executor extension needs", task.id);
                reader.faults.push(Fault { text, path: folder.join(&task.file), file: task.file.clone(), line: None });
            }
        }
        Some(Executor::Command) => {
            if config.command.is_empty() {
                reader.fault(at, "Missing required field: config.command (the executor command needs one)");
            }
            if has_steps && config.target.is_none() {
                reader.fault(at, "Missing required field: config.target (steps need one, such as sim)");
            }
        }
        _ => {}
    }
    let mut members = rest(shown, EVAL_MEMBERS);
    let timeout = config.timeout.as_secs_f64();
    let effective = [
        ("executor", Value::from(config.executor.as_str())),
        ("trials_per_task", config.trials_per_task.into()),
        // A whole number as it is usually written.
        ("timeout_seconds", if timeout.fract() == 0.0 { config.timeout.as_secs().into() } else { timeout.into() }),
    ];
    with_defaults(&mut members, "config", shown.get("config"), &effective);
    if node.get("metrics").is_none_or(|metrics| matches!(metrics.kind, NodeKind::Map(_))) {
        with_defaults(
            &mut members,
            "metrics",
            node.get("metrics"),
            &[("pass_threshold", metrics.pass_threshold.into())],
        );
    }
    Spec {
        path: reader.path.to_owned(),
        name,
        description,
        skill,
        version,
        config,
        metrics,
        health,
        tasks,
        warnings: Vec::new(),
        redactor: Redactor::of(reader.vars),
        members,
    }
}

/// Says what counts where the file does not.
fn with_defaults(members: &mut Vec<(String, String)>, name: &str, node: Option<&Node>, defaults: &[(&str, Value)]) {
    let mut parts: Vec<String> = node
        .map(Node::members)
        .unwrap_or_default()
        .iter()
        .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.json()))
        .collect();
    for (name, value) in defaults {
        if node.is_none_or(|node| node.get(name).is_none()) {
            parts.push(format!("{}:{value}", Value::from(*name)));
        }
    }
    let text = format!("{{{}}}", parts.join(","));
    match members.iter_mut().find(|(found, _)| found == name) {
        Some((_, value)) => *value = text,
        None => members.push((name.to_owned(), text)),
    }
}
