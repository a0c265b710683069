//! Trace records of tool calls: "Trace fields".

use serde::Serialize;

use super::reply::CapabilityCheck;

/// What is written of a call, as one line of JSON. What does not apply is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Trace {
    /// `tool_call`.
    #[serde(rename = "type")]
    pub record: &'static str,
    /// The tool's name.
    pub tool: String,
    /// The same.
    pub tool_name: String,
    /// The kind of tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The call's own identifier.
    pub trace_id: String,
    /// `ok` or `error`.
    pub status: &'static str,
    /// `local`, `service` or `container`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<&'static str>,
    /// `builtin_pack`, `installed_pack` or `binding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_source: Option<&'static str>,
    /// What is called in the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// The time limit, in milliseconds.
    pub timeout_ms: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The version of the tool protocol.
    pub protocol_version: u32,
    /// Local: `venv` or `system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_env: Option<&'static str>,
    /// Local: the program that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_path: Option<String>,
    /// Local: `pyproject`, `requirements` or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deps_source: Option<&'static str>,
    /// Local: whether a sandbox was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<bool>,
    /// Service: its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_url: Option<String>,
    /// Service: whether there was a handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_handshake: Option<bool>,
    /// Service: what the handshake said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement_level: Option<String>,
    /// Container: `docker` or `podman`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<&'static str>,
    /// Container: its image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Container: what was run in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Container: `declared` or `verified`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_enforcement: Option<String>,
    /// Pack: its identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_id: Option<String>,
    /// Pack: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_name: Option<String>,
    /// Pack: its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_version: Option<String>,
    /// The call went on although guarantees were not enforced, because the settings allow that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unsafe_override: bool,
    /// The checks that the tool or its runner told of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capability_checks: Vec<CapabilityCheck>,
    /// What kind of error it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

impl Trace {
    /// The record as a line, with its newline.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}
