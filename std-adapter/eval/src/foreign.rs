//! Names of other eval runners that this one does not support. `.ci/layers.sh` allows their names in
//! this file.

use super::yaml::{Node, NodeKind};

/// The program whose files have such members, if it is another one.
pub(super) fn program_of<T>(members: &[(String, T)]) -> Option<&'static str>
where
    T: AsText,
{
    let text = |wanted: &str| members.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| value.as_text());
    let has = |wanted: &str| members.iter().any(|(name, _)| name == wanted);
    match () {
        () if text("kind").is_some_and(|kind| kind == "Eval") => {
            Some("an eval of gevals (mcpchecker), which its own host runs")
        }
        () if text("kind").is_some_and(|kind| kind == "Task") && (has("spec") || has("metadata")) => {
            Some("a task of gevals (mcpchecker), which its own host runs")
        }
        () if has("jobs") && (has("on") || has("true") || has("runs-on")) => Some("a CI workflow of GitHub"),
        () if has("providers") && (has("prompts") || has("tests")) => Some("an eval of promptfoo"),
        () if (has("solver") || has("scorer")) && !has("name") => Some("an eval of Inspect"),
        () if (has("epochs") || has("limit")) && has("model") && !has("name") => Some("an eval set of Inspect"),
        // An eval of rigline has tasks. Files of other programs without tasks are recognised by
        // their members.
        () if has("tasks") || has("tasks_from") => None,
        () if has("stages") || has("jobs") || has("trigger") || has("pipeline") => Some("a CI pipeline"),
        () if has("runs") && (has("inputs") || has("description")) => Some("an action of GitHub"),
        () if has("prompts") && (has("targets") || has("tests") || has("defaultTest")) => Some("an eval of promptfoo"),
        () if has("solver") || has("scorer") || has("plan") && has("dataset") => Some("an eval of Inspect"),
        () if has("evalcases") || has("tests") && has("execution") => Some("an eval of agentv"),
        () if has("test_cases") => Some("an eval of DeepEval"),
        () if has("dataset_path") && (has("task") || has("doc_to_text")) => Some("a task of lm-evaluation-harness"),
        () if has("openapi") || has("swagger") => Some("an OpenAPI description"),
        () if has("apiVersion") && has("kind") => Some("a Kubernetes resource"),
        () if has("services") => Some("a Compose file"),
        () if has("repos") => Some("a configuration of pre-commit"),
        () => None,
    }
}

/// A value that may be a text.
pub(super) trait AsText {
    /// The text, if it is one.
    fn as_text(&self) -> Option<&str>;
}

impl AsText for Node {
    fn as_text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Executors.
pub(super) const EXECUTORS: [&str; 3] = ["copilot-sdk", "copilot-cli", "claude-code"];
/// Members of an eval.
pub(super) const EVAL: &[&str] = &["hooks", "baseline", "fixtures"];
/// Members of `config`.
pub(super) const CONFIG: &[&str] = &[
    "group_by",
    "fail_fast",
    "judge_model",
    "skill_directories",
    "required_skills",
    "disabled_skills",
    "mcp_servers",
    "hooks",
];
/// Members of a task.
pub(super) const TASK: &[&str] = &[
    "setup",
    "cleanup",
    "teardown",
    "hooks",
    "enabled",
    "skip",
    "assert",
    "asserts",
    "assertions",
    "check",
    "checks",
    "criteria",
    "evaluators",
    "expected_output",
    "scorer",
    "scorers",
    "verify",
];
/// Members of `inputs`.
pub(super) const INPUTS: &[&str] = &["repos", "environment"];
/// Members of `expected`, which cannot be judged here.
pub(super) const EXPECTED: &[&str] = &["outcomes", "behavior", "tool_calls"];
/// Types of graders.
pub(super) const GRADERS: &[&str] = &[
    "action_sequence",
    "behavior",
    "code",
    "diff",
    "human",
    "human_calibration",
    "inline_script",
    "json_schema",
    "llm",
    "llm_comparison",
    "program",
    "prompt",
    "script",
    "skill_invocation",
    "tool_calls",
    "tool_constraint",
    "trigger",
];
