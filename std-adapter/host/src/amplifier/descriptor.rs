//! Module descriptors: section 1, "Module Descriptor (v1)", of Amplifier's protocol text.

use std::sync::OnceLock;

use rigline::ModuleKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The JSON Schema of a descriptor, as the protocol text has it.
pub const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Module Descriptor v1",
  "type": "object",
  "required": ["name", "kind", "transport", "capabilities"],
  "properties": {
    "name": {"type": "string"},
    "kind": {"type": "string", "enum": ["provider", "tool", "agent", "hook", "orchestrator", "context"]},
    "transport": {
      "type": "object",
      "required": ["type"],
      "properties": {
        "type": {"type": "string", "enum": ["stdio", "http"]},
        "command": {"type": "array", "items": {"type": "string"}},
        "url": {"type": "string"}
      }
    },
    "capabilities": {"type": "array", "items": {"type": "string"}},
    "version": {"type": "string"}
  }
}"#;

/// A module descriptor: it describes a module to a host that has not started it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Descriptor {
    /// The name of the module.
    pub name: String,
    /// The kind of module, such as a tool.
    #[serde(with = "KindName")]
    pub kind: ModuleKind,
    /// The way in which a host reaches the module.
    pub transport: Transport,
    /// The names of the module's operations.
    pub capabilities: Vec<String>,
    /// The version of the module. `None` if the descriptor has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The members that the schema does not name.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How a [`ModuleKind`] is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ModuleKind", rename_all = "lowercase")]
pub(super) enum KindName {
    Provider,
    Tool,
    Agent,
    Hook,
    Orchestrator,
    Context,
}

/// The way in which a host reaches a module. The protocol text requires neither a command nor an
/// address, but a host cannot start the module without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Transport {
    /// The module is a program that reads and writes lines.
    Stdio {
        /// The program, followed by its arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<Vec<String>>,
    },
    /// The module is an HTTP server.
    Http {
        /// The address of the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
}

/// The reason why a text is not a descriptor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// The text is not JSON. The string says where.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// The descriptor breaks the schema. Each string names a place and its fault.
    #[error("{}", .0.join("; "))]
    Schema(Vec<String>),
}

impl Descriptor {
    /// Reads a descriptor, and checks it against [`SCHEMA`].
    ///
    /// ```
    /// use rigline_host::amplifier::Descriptor;
    /// let fault = Descriptor::parse(r#"{"name":"rig","kind":"robot","transport":{"type":"stdio"},"capabilities":[]}"#);
    /// assert!(fault.unwrap_err().to_string().starts_with("kind: "));
    /// ```
    pub fn parse(text: &str) -> Result<Self, DescriptorError> {
        // RFC 8259 §8.1: a byte order mark may be passed over.
        let value: Value = serde_json::from_str(text.trim_start_matches('\u{FEFF}'))
            .map_err(|error| DescriptorError::Syntax(error.to_string()))?;
        Self::from_value(value)
    }

    /// Reads a descriptor from a JSON value, as [`parse`](Self::parse) does from text.
    pub fn from_value(value: Value) -> Result<Self, DescriptorError> {
        let faults: Vec<_> = validator().iter().flat_map(|validator| validator.iter_errors(&value)).collect();
        if !faults.is_empty() {
            let text = |fault: &jsonschema::ValidationError<'_>| match fault.instance_path().as_str() {
                "" => fault.to_string(),
                path => format!("{}: {fault}", path.trim_start_matches('/').replace('/', ".")),
            };
            return Err(DescriptorError::Schema(faults.iter().map(text).collect()));
        }
        serde_json::from_value(value).map_err(|error| DescriptorError::Schema(vec![error.to_string()]))
    }

    /// Returns the descriptor as JSON text of several lines.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn validator() -> Option<&'static jsonschema::Validator> {
    static VALIDATOR: OnceLock<Option<jsonschema::Validator>> = OnceLock::new();
    VALIDATOR.get_or_init(|| jsonschema::validator_for(&serde_json::from_str(SCHEMA).ok()?).ok()).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_and_transports() {
        for kind in ["provider", "tool", "agent", "hook", "orchestrator", "context"] {
            for transport in [
                r#"{"type":"stdio","command":["rig","--x"]}"#,
                r#"{"type":"stdio"}"#,
                r#"{"type":"http","url":"http://127.0.0.1:8080"}"#,
            ] {
                let text = format!(
                    r#"{{"name":"m","kind":"{kind}","transport":{transport},"capabilities":["a"],"version":"1","x":[null]}}"#
                );
                let descriptor = Descriptor::parse(&text).unwrap();
                assert_eq!(Descriptor::parse(&descriptor.to_json()).unwrap(), descriptor);
                assert!(descriptor.more.contains_key("x"));
            }
        }
    }

    #[test]
    fn what_breaks_the_schema() {
        for (text, start) in [
            ("[]", "[] is not"),
            (r#"{"name":"m"}"#, "\"kind\" is a required"),
            (r#"{"name":1,"kind":"tool","transport":{"type":"stdio"},"capabilities":[]}"#, "name: "),
            (r#"{"name":"m","kind":"Tool","transport":{"type":"stdio"},"capabilities":[]}"#, "kind: "),
            (r#"{"name":"m","kind":"tool","transport":{"type":"grpc"},"capabilities":[]}"#, "transport.type: "),
            (r#"{"name":"m","kind":"tool","transport":{},"capabilities":[]}"#, "transport: "),
            (
                r#"{"name":"m","kind":"tool","transport":{"type":"stdio","command":"rig"},"capabilities":[]}"#,
                "transport.command: ",
            ),
            (r#"{"name":"m","kind":"tool","transport":{"type":"stdio"},"capabilities":[1]}"#, "capabilities.0: "),
            (r#"{"name":"m","kind":"tool","transport":{"type":"stdio"},"capabilities":[],"version":2}"#, "version: "),
        ] {
            let Err(DescriptorError::Schema(faults)) = Descriptor::parse(text) else { panic!("{text}") };
            assert!(faults.iter().any(|fault| fault.starts_with(start)), "{text}: {faults:?}");
        }
        assert!(matches!(Descriptor::parse("{"), Err(DescriptorError::Syntax(_))));
        assert!(matches!(Descriptor::parse("\u{FEFF}[]"), Err(DescriptorError::Schema(_))));
    }
}
