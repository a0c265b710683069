//! Trace records of tool calls, with the members of "Trace fields" in namel3ss's documentation.

use rigline::json::{Json, JsonKind};
use serde::Serialize;
use serde_json::{Value, json};

use super::reply::CapabilityCheck;

/// The trace record of one call, written as a JSON line. Members that do not apply are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Trace {
    /// The kind of record. It is always `tool_call`.
    #[serde(rename = "type")]
    pub record: &'static str,
    /// The name of the tool.
    pub tool: String,
    /// The name of the tool again: namel3ss writes both members.
    pub tool_name: String,
    /// The language of the tool, such as `python`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The identifier of the call.
    pub trace_id: String,
    /// The outcome of the call: `ok` or `error`.
    pub status: &'static str,
    /// The runner of the tool: `local`, `service` or `container`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<&'static str>,
    /// The source of the tool: `builtin_pack`, `installed_pack` or `binding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_source: Option<&'static str>,
    /// The function that the tool's binding names, as `module:function`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// The time limit of the call, in milliseconds.
    pub timeout_ms: u64,
    /// The duration of the call, in milliseconds.
    pub duration_ms: u64,
    /// The version of the tool protocol.
    pub protocol_version: u32,
    /// The Python environment of a local tool: `venv` or `system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_env: Option<&'static str>,
    /// The program that was started for a local tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_path: Option<String>,
    /// The file that declares the dependencies of a local tool: `pyproject`, `requirements` or
    /// `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deps_source: Option<&'static str>,
    /// Whether the binding of a local tool asks for a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<bool>,
    /// The address of the service that was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_url: Option<String>,
    /// Whether the service was asked for its guarantees before the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_handshake: Option<bool>,
    /// The level of enforcement that the service declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement_level: Option<String>,
    /// The container runtime: `docker` or `podman`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<&'static str>,
    /// The image of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The command that ran in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The way in which the container enforces guarantees: `declared` or `verified`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_enforcement: Option<String>,
    /// The id of the tool's pack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_id: Option<String>,
    /// The name of the tool's pack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_name: Option<String>,
    /// The version of the tool's pack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_version: Option<String>,
    /// Whether the call was made although a guarantee was not enforced, because the settings allow
    /// that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unsafe_override: bool,
    /// The capability checks that the tool or its runner reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capability_checks: Vec<CapabilityCheck>,
    /// The kind of error, such as `TimeoutError`. `None` if the call succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// The description of the error. `None` if the call succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

impl Trace {
    /// Returns the record as a JSON line, with the newline.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// The record as the real program 0.1.0a15 keeps it in `.namel3ss/run/last.json`, as a line with its newline: with the shape of what went in
    /// and came out (`input_summary`, `output_summary`), with its decision, and without identifiers. `payload` and `result` are JSON texts.
    pub(crate) fn to_namel3ss_line(&self, payload: &str, result: Option<&str>) -> String {
        let Ok(Value::Object(mut record)) = serde_json::to_value(self) else { return String::new() };
        for own in ["trace_id", "unsafe_override"] {
            record.remove(own);
        }
        let is_blocked = self.error_type.as_deref() == Some("CapabilityViolation");
        let (decision, reason) = if is_blocked { ("blocked", "policy_denied") } else { ("allowed", "policy_allowed") };
        let capability =
            self.capability_checks.iter().find(|check| !check.allowed).map(|check| check.capability.as_str());
        let more = json!({
            "canonical_events": [],
            "memory_events": [],
            "title": format!("Tool call: {}", self.tool),
            "purity": "impure",
            "input_summary": summary(payload),
            "decision": decision,
            "reason": reason,
            "capability": capability.unwrap_or("none"),
            "result": if is_blocked { "blocked" } else { self.status },
        });
        record.extend(more.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        if self.unsafe_override {
            record.insert("unsafe_override".into(), true.into());
        }
        if let Some(result) = result {
            record.insert("output_summary".into(), summary(result));
        }
        let sorted: std::collections::BTreeMap<String, Value> = record.into_iter().collect();
        serde_json::to_string(&sorted).unwrap_or_default() + "\n"
    }
}

/// The summary of a value in a record: its kind and size, the names of an object's first ten members, the first 80 characters of a text.
fn summary(text: &str) -> Value {
    let value = Json::parse(text.as_bytes()).unwrap_or(Json::NULL);
    match value.kind() {
        JsonKind::Object => {
            let names: std::collections::BTreeSet<String> = value.members().map(|(name, _)| name.to_string()).collect();
            json!({ "type": "object", "keys": names.iter().take(10).collect::<Vec<_>>(), "count": names.len() })
        }
        JsonKind::Array => json!({ "type": "list", "count": value.elements().count() }),
        JsonKind::String => {
            let text = value.text().map(|text| text.to_string()).unwrap_or_default();
            let count = text.chars().count();
            let dots = if count > 80 { "..." } else { "" };
            json!({ "type": "text", "chars": count, "preview": text.chars().take(80).collect::<String>() + dots })
        }
        JsonKind::Number => {
            let kind = if value.as_str().contains(['.', 'e', 'E']) { "float" } else { "int" };
            let number: Value = serde_json::from_str(value.as_str()).unwrap_or_default();
            json!({ "type": kind, "value": number })
        }
        JsonKind::Bool => json!({ "type": "bool", "value": value.bool() }),
        JsonKind::Null => json!({ "type": "NoneType", "value": null }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_real_shape() {
        let trace = Trace {
            record: "tool_call",
            tool: "wait for".into(),
            tool_name: "wait for".into(),
            kind: Some("python".into()),
            trace_id: "1".into(),
            status: "error",
            runner: Some("local"),
            resolved_source: Some("binding"),
            entry: Some("tools.rig:run".into()),
            timeout_ms: 10_000,
            duration_ms: 5,
            protocol_version: 1,
            python_env: Some("venv"),
            python_path: Some("/p/.venv/bin/python".into()),
            deps_source: Some("none"),
            sandbox: Some(false),
            error_type: Some("OperationFailed".into()),
            error_message: Some("m".into()),
            ..Trace::default()
        };
        let line = trace.to_namel3ss_line(r#"{"min":"3.135","channel":"3V3","max":"3.465"}"#, None);
        // As the real program has recorded it, with the duration, which its file leaves out.
        let wanted = r#"{"canonical_events":[],"capability":"none","decision":"allowed","deps_source":"none","duration_ms":5,"entry":"tools.rig:run","error_message":"m","error_type":"OperationFailed","input_summary":{"count":3,"keys":["channel","max","min"],"type":"object"},"kind":"python","memory_events":[],"protocol_version":1,"purity":"impure","python_env":"venv","python_path":"/p/.venv/bin/python","reason":"policy_allowed","resolved_source":"binding","result":"error","runner":"local","sandbox":false,"status":"error","timeout_ms":10000,"title":"Tool call: wait for","tool":"wait for","tool_name":"wait for","type":"tool_call"}"#;
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(value(&line), value(wanted));
        for (text, wanted) in [
            (r#""é""#.to_owned(), json!({ "type": "text", "chars": 1, "preview": "é" })),
            (
                format!("\"{}\"", "x".repeat(81)),
                json!({ "type": "text", "chars": 81, "preview": "x".repeat(80) + "..." }),
            ),
            ("[1,2]".into(), json!({ "type": "list", "count": 2 })),
            ("1.50".into(), json!({ "type": "float", "value": 1.5 })),
            ("7".into(), json!({ "type": "int", "value": 7 })),
            ("true".into(), json!({ "type": "bool", "value": true })),
            ("null".into(), json!({ "type": "NoneType", "value": null })),
        ] {
            assert_eq!(summary(&text), wanted, "{text}");
        }
    }
}
