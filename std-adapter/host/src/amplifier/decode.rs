//! Describes Amplifier's lines for `rigline monitor`.

use rigline::json::JsonKind;

use crate::decode::{Fault, Line, Reading, Requests, error};

pub(super) const READING: Reading =
    Reading { claims: |json| json.get("op").is_some() && json.get("ok").is_none(), describe, is_json_rpc: false };

/// The forms of replies.
const HEALTH: &str = "health";
const DESCRIBE: &str = "describe";
const INVOKE: &str = "invoke";

fn describe(requests: &mut Requests, line: Line<'_>, fault: &mut Fault) -> String {
    let Line { json, is_received } = line;
    if let Some(op) = json.get("op").filter(|_| json.get("ok").is_none()) {
        let Some(op) = op.text() else {
            fault.record("op: expected a string");
            return "request".to_owned();
        };
        if is_received {
            fault.record("a request came back: the line echoes");
            return format!("request: {op}");
        }
        let op = op.to_string();
        let args = json.get("args");
        if args.is_some_and(|args| args.kind() != JsonKind::Object) {
            fault.record("args: expected an object");
        }
        let (what, form) = match (&*op, args) {
            ("health", None) => (op, HEALTH),
            ("describe", None) => (op, DESCRIBE),
            ("invoke", Some(args)) => match args.get("op").and_then(|op| op.text()) {
                Some(inner) => (format!("invoke {inner}"), INVOKE),
                None => (op, INVOKE),
            },
            _ => (op, INVOKE),
        };
        return requests.asked_in_order(what, form);
    }
    let (what, form, took) = requests.answered(fault);
    let is_text = |name: &str| json.get(name).is_some_and(|value| value.kind() == JsonKind::String);
    let how = match (json.get("ok").and_then(|ok| ok.bool()), form) {
        (Some(true), Some(INVOKE) | None) => {
            if json.get("result").is_none() {
                fault.record("result: required, but missing");
            }
            "ok".to_owned()
        }
        (Some(false), _) => error(json, "code", fault),
        (None, Some(HEALTH)) if is_text("status") => {
            json.get("status").and_then(|status| status.text()).map(|status| status.to_string()).unwrap_or_default()
        }
        (None, Some(DESCRIBE)) => {
            for name in ["name", "version", "kind"] {
                if !is_text(name) {
                    fault.record(format!("{name}: expected a string"));
                }
            }
            "ok".to_owned()
        }
        _ => {
            fault.record("this is not the form of the reply to it");
            "?".to_owned()
        }
    };
    format!("reply to {what}: {how}{took}")
}
