//! The manifest of an extension, as a host reads it.

use rigline::client::{Unquoted, member};
use rigline::json::{Json, JsonKind};
use serde_json::Value;

use crate::terminal;

/// The manifest of an extension: gevals "Manifest Fields". A member that is null counts as absent.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Manifest {
    /// The name of the extension. Empty if the manifest has none.
    pub name: String,
    /// The version of the extension.
    pub version: String,
    /// The version of the protocol that the extension speaks.
    pub protocol_version: String,
    /// The description of the extension.
    pub description: String,
    /// The commands that the extension needs in `PATH`.
    pub requires: Vec<String>,
    /// The operations, in the order of the manifest.
    pub operations: Vec<Operation>,
    /// The longest request line that the extension accepts, in bytes, without the newline. `None`
    /// if the manifest does not say.
    pub request_limit: Option<usize>,
    /// The longest reply line that the extension writes, in bytes, without the newline. `None` if
    /// the manifest does not say.
    pub reply_limit: Option<usize>,
    /// The members that are missing or invalid. The rest of the manifest was read.
    pub faults: Vec<String>,
    /// The manifest as a JSON value.
    pub raw: Value,
    /// The manifest as JSON text. Numbers keep all their digits.
    pub text: String,
}

/// An operation of an extension: gevals "Operation Object".
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Operation {
    /// The name of the operation.
    pub name: String,
    /// The description of the operation.
    pub description: String,
    /// The JSON Schema of the arguments. It is `true`, which accepts all values, if the operation
    /// has none.
    pub params: Value,
    /// The JSON Schema of the arguments, as text. Numbers keep all their digits.
    pub params_text: String,
    /// The JSON Schema of the outputs, as text. `None` if the extension reports none.
    pub outputs_text: Option<String>,
    /// Further members of the operation's entry in MCP's list of tools, as the text of an object.
    /// `None` if there are none.
    pub tool_text: Option<String>,
    /// The effects of the operation, such as whether it only reads, in the form of MCP's
    /// annotations. `None` if the extension reports none.
    pub annotations: Option<Value>,
}

impl Operation {
    /// Returns whether the schema requires no arguments.
    pub fn needs_no_arguments(&self) -> bool {
        self.params.get("required").and_then(Value::as_array).is_none_or(Vec::is_empty)
    }
}

/// Returns the known name that `name` means. It is the same name, or the one that differs from it
/// only in `-` and `_`. MCP allows no `-` in the names of tools, so the operation `set-target` is
/// `set_target` there. Returns `None` if no name fits.
///
/// # Errors
/// Several known names differ from `name` only in `-` and `_`.
pub fn spelled<'n>(name: &str, names: &[&'n str]) -> Result<Option<&'n str>, String> {
    if let Some(same) = names.iter().find(|known| **known == name) {
        return Ok(Some(same));
    }
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let is_alike = |known: &&str| known.len() == name.len() && known.bytes().map(dashed).eq(name.bytes().map(dashed));
    let alike: Vec<&'n str> = names.iter().copied().filter(is_alike).collect();
    match alike.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => Err(format!("`{}` may be {}; write one of them", terminal::one_line(name), several.join(" or "))),
    }
}

impl Manifest {
    /// Returns the operation with this name.
    pub fn operation(&self, name: &str) -> Option<&Operation> {
        self.operations.iter().find(|operation| operation.name == name)
    }

    /// Reads a manifest from the result of `initialize`, which must be an object.
    pub fn read(text: &str) -> Result<Self, String> {
        let json = Json::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        if json.kind() != JsonKind::Object {
            return Err(format!("the manifest is not an object: {}", super::shown(text.as_bytes())));
        }
        let mut faults = Vec::new();
        let string = |faults: &mut Vec<String>, name: &str, required: bool| {
            let value = member(json, name);
            match value {
                None if required => faults.push(format!("{name} is missing")),
                Some(value) if value.kind() != JsonKind::String => faults.push(format!("{name} is not a string")),
                _ => {}
            }
            value.map(|value| Unquoted(value).to_string()).unwrap_or_default()
        };
        let name = string(&mut faults, "name", true);
        let version = string(&mut faults, "version", true);
        let protocol_version = string(&mut faults, "protocolVersion", true);
        let description = string(&mut faults, "description", false);
        let requires = member(json, "requires").unwrap_or(Json::NULL);
        if !matches!(requires.kind(), JsonKind::Array | JsonKind::Null) {
            faults.push("requires is not a list".into());
        }
        let requires: Vec<String> = requires
            .elements()
            .filter_map(|requirement| match requirement.kind() {
                JsonKind::String => Some(Unquoted(requirement).to_string()),
                _ => Some(Unquoted(member(requirement, "command")?).to_string()),
            })
            .filter(|command| !command.is_empty())
            .collect();
        let listed = member(json, "operations");
        match listed.map(|listed| listed.kind()) {
            None => faults.push("operations is missing".into()),
            Some(JsonKind::Object) => {}
            Some(_) => faults.push("operations is not an object".into()),
        }
        let operations = listed
            .unwrap_or(Json::NULL)
            .members()
            .map(|(name, operation)| {
                let name = name.to_string();
                if operation.kind() != JsonKind::Object {
                    faults.push(format!("operations.{name} is not an object"));
                }
                let description = member(operation, "description").map(|text| Unquoted(text).to_string());
                let params = member(operation, "params");
                Operation {
                    name,
                    description: description.unwrap_or_default(),
                    params: params.map_or(Value::Bool(true), value),
                    params_text: params.map_or("true", |params| params.as_str()).to_owned(),
                    outputs_text: member(operation, "outputs").map(|outputs| outputs.as_str().to_owned()),
                    tool_text: member(operation, "tool").map(|tool| tool.as_str().to_owned()),
                    annotations: member(operation, "annotations").map(value),
                }
            })
            .collect();
        let limits = member(json, "limits").unwrap_or(Json::NULL);
        let limit = |name| member(limits, name)?.number()?.to_u64().ok().and_then(|limit| usize::try_from(limit).ok());
        Ok(Self {
            name,
            version,
            protocol_version,
            description,
            requires,
            operations,
            request_limit: limit("request"),
            reply_limit: limit("reply"),
            faults,
            raw: value(json),
            text: json.as_str().to_owned(),
        })
    }
}

/// A view's value, owned. A number beyond the range of `serde_json` becomes a string with its text.
pub(super) fn value(json: Json<'_>) -> Value {
    serde_json::from_str(json.as_str()).unwrap_or_else(|_| Value::String(json.as_str().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_as_people_write_them() {
        let whole = r#"{"name":"k","version":"1.0.0","protocolVersion":"0.0.1","description":"d","requires":[{"command":"kubectl"},"helm",{}],"operations":{"b":{"description":"x","params":{"type":"object"}},"a":{"params":null}},"limits":{"request":100,"reply":200}}"#;
        let manifest = Manifest::read(whole).unwrap();
        assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("k", "1.0.0"));
        assert_eq!(manifest.requires, ["kubectl", "helm"]);
        assert_eq!(manifest.operations.iter().map(|operation| operation.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(manifest.operation("a").unwrap().params, Value::Bool(true));
        assert_eq!((manifest.request_limit, manifest.reply_limit), (Some(100), Some(200)));
        assert!(manifest.faults.is_empty());

        // Reports: smart-mcp-proxy/mcpproxy-go#953, kubescape/kubescape#3505.
        let table: &[(&str, &[&str])] = &[
            (
                r#"{"name":"k","version":"1","protocolVersion":"0.0.1","operations":null,"requires":null}"#,
                &["operations is missing"],
            ),
            (
                r#"{"name":5,"version":null,"protocolVersion":"0.0.1","operations":[],"requires":{}}"#,
                &[
                    "name is not a string",
                    "version is missing",
                    "requires is not a list",
                    "operations is not an object",
                ],
            ),
            (
                r#"{"Name":"k","version":"1","protocolVersion":"0.0.1","operations":{"a":null}}"#,
                &["operations.a is not an object"],
            ),
        ];
        for (text, faults) in table {
            assert_eq!(Manifest::read(text).unwrap().faults, *faults, "{text}");
        }
        for text in ["5", "null", "[]", "\"x\""] {
            assert!(Manifest::read(text).unwrap_err().starts_with("the manifest is not an object"), "{text}");
        }
    }
}
