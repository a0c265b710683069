//! The names that the members of eval and task files have.

use crate::foreign;
use crate::yaml::Node;

/// The names that a map's members may have.
pub(super) struct Known {
    /// The kind of map.
    pub(super) what: &'static str,
    pub(super) names: &'static [&'static str],
    /// Names that other runners know, and that do nothing here.
    pub(super) elsewhere: &'static [&'static str],
    /// Common misspellings of some of the names.
    pub(super) meant: &'static [(&'static str, &'static str)],
    /// Whether other members are the file's own: they are kept, and clients see them.
    pub(super) is_open: bool,
}

pub(super) const EVAL: Known = Known {
    what: "an eval",
    names: &[
        "name",
        "description",
        "skill",
        "version",
        "config",
        "metrics",
        "graders",
        "tasks",
        "tasks_from",
        "range",
        "inputs",
        "tags",
        "health",
        "matrix",
        "for",
    ],
    elsewhere: foreign::EVAL,
    meant: &[("tests", "tasks"), ("settings", "config")],
    is_open: true,
};

pub(super) const CONFIG: Known = Known {
    what: "config",
    names: &[
        "executor",
        "model",
        "target",
        "trials_per_task",
        "timeout_seconds",
        "parallel",
        "workers",
        "max_workers",
        "command",
        "env",
        "settings",
        "max_attempts",
        "retries",
        "retry_on",
        "allow_env",
    ],
    elsewhere: foreign::CONFIG,
    meant: &[("timeout", "timeout_seconds"), ("trials", "trials_per_task"), ("environment", "env")],
    is_open: false,
};
pub(super) const METRICS: Known = Known {
    what: "metrics",
    names: &["pass_threshold"],
    elsewhere: &[],
    meant: &[("threshold", "pass_threshold")],
    is_open: false,
};

pub(super) const METRIC: Known = Known {
    what: "a metric",
    names: &["name", "weight", "threshold", "description", "enabled"],
    elsewhere: &[],
    meant: &[],
    is_open: false,
};

pub(super) const TASK: Known = Known {
    what: "a task",
    names: &[
        "id",
        "name",
        "description",
        "tags",
        "inputs",
        "prompt",
        "expected",
        "graders",
        "steps",
        "timeout",
        "timeout_seconds",
        "mock",
        "file",
        "matrix",
        "for",
    ],
    elsewhere: foreign::TASK,
    meant: &[("expect", "expected")],
    is_open: true,
};

pub(super) const STEP: Known = Known {
    what: "a step",
    names: &["id", "phase", "operation", "args", "timeout", "mock", "measure", "attach"],
    elsewhere: &[],
    meant: &[
        ("params", "args"),
        ("arguments", "args"),
        ("parameters", "args"),
        ("with", "args"),
        ("timeout_seconds", "timeout"),
        ("attachments", "attach"),
    ],
    is_open: false,
};

pub(super) const HEALTH_STEP: Known = Known {
    what: "a step of the preflight",
    names: &["id", "operation", "args", "timeout", "mock", "expect"],
    elsewhere: &[],
    meant: STEP.meant,
    is_open: false,
};

pub(super) const MEASURE: Known = Known {
    what: "measure",
    names: &["name", "output", "unit", "low", "high", "marginal_low", "marginal_high", "equals", "matches", "one_of"],
    elsewhere: &[],
    meant: &[("min", "low"), ("max", "high"), ("value", "output")],
    is_open: false,
};
pub(super) const INPUTS: Known = Known {
    what: "inputs",
    names: &["prompt", "context", "files"],
    elsewhere: foreign::INPUTS,
    meant: &[],
    is_open: true,
};

pub(super) const EXPECTED: Known = Known {
    what: "expected",
    names: &["output_contains", "output_contains_any", "output_not_contains"],
    elsewhere: foreign::EXPECTED,
    meant: &[],
    is_open: false,
};
pub(super) const MOCK: Known =
    Known { what: "mock", names: &["output", "delay", "fail"], elsewhere: &[], meant: &[], is_open: false };

pub(super) const CONTENT_PATTERN: Known = Known {
    what: "content_patterns",
    names: &["path", "must_match", "pattern", "patterns", "must_not_match"],
    elsewhere: &[],
    meant: &[],
    is_open: false,
};

/// The map that has a member of this name, if another map has none. Names that any map may have for its readers, such as `owner` or `name`,
/// belong to none.
pub(super) fn level_of(name: &str) -> Option<String> {
    const FOR_READERS: &[&str] =
        &["name", "description", "id", "tags", "version", "skill", "file", "inputs", "prompt", "model"];
    let levels: Vec<&str> = [&EVAL, &CONFIG, &METRICS, &TASK, &STEP, &HEALTH_STEP, &EXPECTED]
        .into_iter()
        .filter(|known| known.names.contains(&name) && !FOR_READERS.contains(&name))
        .map(|known| known.what)
        .collect();
    (!levels.is_empty()).then(|| levels.join(", of "))
}

pub(super) const EVAL_MEMBERS: &[&str] = &["name", "description", "skill", "version", "tasks"];
pub(super) const TASK_MEMBERS: &[&str] = &["id", "name", "description", "prompt", "graders"];

pub(super) fn rest(node: &Node, known: &[&str]) -> Vec<(String, String)> {
    let members = node.members().iter().filter(|(name, _)| !known.contains(&name.as_str()));
    members.map(|(name, value)| (name.clone(), value.json())).collect()
}
