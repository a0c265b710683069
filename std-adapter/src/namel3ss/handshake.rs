//! namel3ss's "Service capability handshake".

use rigline::Guarantee;
use rigline::Manifest;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub(super) const PATH: &str = "/capabilities/handshake";

#[derive(Serialize)]
struct HandshakeReply {
    ok: bool,
    enforcement: &'static str,
    supported_guarantees: Map<String, Value>,
    service_version: &'static str,
}

/// Answers a handshake, whose text has been checked.
///
/// `enforcement` is `enforced`, the only word that the real client goes on with. A guarantee that
/// the extension does not keep is false in `supported_guarantees`, and what follows from it is the
/// client's to decide. That client wants every secret that it allows in our list, and an extension
/// that needs no others is content with any; so the list is given back, and left out where it lacks
/// a secret that the extension needs.
pub(super) fn answer(text: &[u8], manifest: &Manifest) -> String {
    let request: Value = match serde_json::from_slice(text) {
        Ok(request) => request,
        Err(error) => return refuse("ProtocolError", &error.to_string()),
    };
    if !request.is_object() {
        return refuse("ProtocolError", "a request must be an object");
    }
    match request.get("protocol_version").map(Value::as_f64) {
        Some(Some(1.0)) => {}
        Some(Some(_)) => return refuse("ProtocolError", "protocol_version: only 1 is supported"),
        Some(None) => return refuse("ProtocolError", "protocol_version: expected a number"),
        None => return refuse("ProtocolError", "protocol_version: required, but missing"),
    }
    let Some(tool) = request.get("tool_name").and_then(Value::as_str) else {
        return refuse("ProtocolError", "tool_name: expected a string");
    };
    let dashed = tool.replace(['_', ' '], "-");
    if !manifest.operations.iter().any(|known| known.name == tool || known.name == dashed) {
        return refuse("UnknownTool", &format!("Unknown tool: {tool}"));
    }
    let required = request.get("required_guarantees").unwrap_or(&Value::Null);
    if !(required.is_object() || required.is_null()) {
        return refuse("ProtocolError", "required_guarantees: expected an object");
    }
    let mut supported: Map<String, Value> = Guarantee::ALL
        .into_iter()
        .map(|guarantee| (guarantee.name().to_owned(), manifest.guarantees.contains(&guarantee).into()))
        .collect();
    match required.get("secrets_allowed") {
        Some(Value::Array(allowed)) => {
            if manifest.secrets.iter().all(|secret| allowed.iter().any(|name| name == secret)) {
                supported.insert("secrets_allowed".into(), Value::Array(allowed.clone()));
            }
        }
        _ => {
            supported.insert("secrets_allowed".into(), manifest.secrets.into());
        }
    }
    let answer = HandshakeReply {
        ok: true,
        enforcement: "enforced",
        supported_guarantees: supported,
        service_version: manifest.version,
    };
    serde_json::to_string(&answer).unwrap_or_default() + "\n"
}

fn refuse(error_type: &str, message: &str) -> String {
    let error = json!({ "type": error_type, "message": message });
    format!("{}\n", json!({ "ok": false, "protocol_version": 1, "error": error }))
}
