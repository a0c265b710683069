//! The lines of namel3ss, for `rigline monitor`.

use rigline::json::JsonKind;

use crate::decode::{Fault, Line, Reading, Requests, error};

pub(super) const READING: Reading =
    Reading { claims: |json| json.get("protocol_version").is_some(), describe, is_json_rpc: false };

/// The form of replies.
const FORM: &str = "tool";

fn describe(requests: &mut Requests, line: Line<'_>, fault: &mut Fault) -> String {
    let Line { json, is_received } = line;
    if json.get("ok").is_none() && !is_received {
        if json.get("protocol_version").is_none_or(|version| version.as_str() != "1") {
            fault.record("protocol_version: expected 1");
        }
        if json.get("payload").is_none_or(|payload| payload.kind() != JsonKind::Object) {
            fault.record("payload: expected an object");
        }
        // The service runner's requests have another name for it.
        let tool = json.get("tool").or_else(|| json.get("tool_name")).and_then(|tool| tool.text());
        if tool.is_none() {
            fault.record("tool: expected a string");
        }
        return requests.asked_in_order(tool.map(|tool| tool.to_string()).unwrap_or_default(), FORM);
    }
    if json.get("ok").is_none() && (json.get("tool").is_some() || json.get("tool_name").is_some()) {
        fault.record("a request came back: the line echoes");
        return "request".to_owned();
    }
    let (what, _, took) = requests.answered(fault);
    let how = match json.get("ok") {
        Some(ok) if ok.bool() == Some(true) => "ok".to_owned(),
        Some(ok) if ok.bool() == Some(false) => error(json, "type", fault),
        _ => {
            fault.record("ok: expected true or false");
            "?".to_owned()
        }
    };
    format!("reply to {what}: {how}{took}")
}
