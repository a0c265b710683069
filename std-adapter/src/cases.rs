//! What `rigline check` asks of Amplifier modules and namel3ss tools: tables of cases, for its frame to run.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// One case: a name, the section of the text that it comes from, and what is done.
pub struct Case<H> {
    /// Its name, such as `health`.
    pub name: &'static str,
    /// The section of the text.
    pub section: &'static str,
    /// What is done.
    pub run: for<'a> fn(&'a mut H, &'a Sample) -> Running<'a>,
}

/// A case that runs.
pub type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// A call that may be made: on live hardware nothing else runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The operation; none, and cases that need one are skipped.
    pub operation: Option<String>,
    /// The JSON text of its arguments, an object.
    pub args: String,
}

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is as it should be.
    Pass,
    /// It is not.
    Fail {
        /// What is wrong.
        why: String,
        /// What was sent.
        sent: String,
        /// What came back.
        got: String,
    },
    /// It could not be tried.
    Skip(
        /// Why not.
        String,
    ),
}

impl<H> fmt::Debug for Case<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("section", &self.section).finish_non_exhaustive()
    }
}

/// Runs the cases, one after the other, for the frame of [`check`](crate::check). `told` gets each result as it is there.
#[cfg(feature = "check")]
pub async fn run<H>(
    cases: &[&Case<H>],
    host: &mut H,
    target: &str,
    samples: &[Sample],
    mut told: impl FnMut(&crate::check::CaseResult),
) -> crate::check::Report {
    use crate::check::{CaseResult, Outcome, Report};
    use crate::host::Direction;

    let none = Sample { operation: None, args: "{}".into() };
    let sample = samples.first().unwrap_or(&none);
    let mut results = Vec::with_capacity(cases.len());
    for case in cases {
        let started = std::time::Instant::now();
        let verdict = (case.run)(host, sample).await;
        let (outcome, text, exchange) = match verdict {
            Verdict::Pass => (Outcome::Pass, String::new(), Vec::new()),
            Verdict::Skip(why) => (Outcome::Skip, why, Vec::new()),
            Verdict::Fail { why, sent, got } => {
                (Outcome::Fail, why, vec![(Direction::Sent, sent), (Direction::Received, got)])
            }
        };
        let (name, section) = (case.name, case.section);
        let result = CaseResult { name, section, outcome, text, exchange, took: started.elapsed() };
        told(&result);
        results.push(result);
    }
    Report { target: target.into(), results, unopened: None }
}

/// Judges an answer by `wanted`, which says what is wrong with it.
fn judge(
    sent: &str,
    answer: Result<String, impl fmt::Display>,
    wanted: impl FnOnce(&serde_json::Value) -> Result<(), String>,
) -> Verdict {
    let fail = |why: String, got: String| Verdict::Fail { why, sent: sent.chars().take(500).collect(), got };
    match answer {
        Err(error) => fail(error.to_string(), String::new()),
        Ok(got) => match serde_json::from_str(&got).map_err(|error| error.to_string()).and_then(|json| wanted(&json)) {
            Ok(()) => Verdict::Pass,
            Err(why) => fail(why, got.chars().take(2000).collect()),
        },
    }
}

/// The cases for Amplifier modules, on lines and over HTTP.
#[cfg(feature = "amplifier")]
pub mod amplifier {
    use serde_json::Value;

    use super::{Case, Running, Sample, Verdict, judge};
    use crate::amplifier::{Host, Place};

    /// The cases.
    pub const CASES: &[Case<Host>] = &[
        Case { name: "health within 2 s", section: "§2 health", run: health },
        Case { name: "describe", section: "§2 describe", run: describe },
        Case { name: "success", section: "§2 invoke", run: success },
        Case { name: "unsupported op", section: "§4 unsupported_op", run: unsupported },
        Case { name: "no op", section: "§4 bad_request", run: without_op },
        Case { name: "not JSON, then well again", section: "§2 Transports", run: malformed },
        Case { name: "members it does not know", section: "§2 invoke", run: unknown_members },
        Case { name: "a message of 1 MB", section: "§2 Transports", run: large },
    ];

    async fn send(host: &mut Host, path: &str, text: &str) -> Result<String, crate::amplifier::CallError> {
        let limit = host.timeout + host.grace;
        host.raw(path, text, limit).await
    }

    /// The path for HTTP, which says the operation that a line says itself.
    async fn own(host: &mut Host, op: &str) -> Result<String, crate::amplifier::CallError> {
        let limit = if op == "health" { crate::amplifier::HEALTH_TIMEOUT } else { host.timeout };
        host.raw(op, &format!("{{\"op\":\"{op}\"}}"), limit).await
    }

    fn is_error(json: &Value, code: &str) -> Result<(), String> {
        match (json["ok"].as_bool(), json["error"]["code"].as_str(), json["error"]["message"].is_string()) {
            (Some(false), Some(given), true) if given == code => Ok(()),
            (Some(false), Some(given), true) => Err(format!("error.code: expected {code}, not {given}")),
            _ => Err(format!("expected ok:false with error.code {code} and a message")),
        }
    }

    fn is_well(json: &Value) -> Result<(), String> {
        if json["status"] == "ok" { Ok(()) } else { Err("expected {\"status\":\"ok\"}".into()) }
    }

    fn health<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        Box::pin(async { judge("health", own(host, "health").await, is_well) })
    }

    fn describe<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        Box::pin(async {
            judge("describe", own(host, "describe").await, |json| {
                let kinds = ["provider", "tool", "agent", "hook", "orchestrator", "context"];
                for (name, holds) in [
                    ("name: expected a string", json["name"].is_string()),
                    ("version: expected a string", json["version"].is_string()),
                    ("kind: expected one of the six", json["kind"].as_str().is_some_and(|kind| kinds.contains(&kind))),
                    (
                        "capabilities: expected a list of strings",
                        json["capabilities"].as_array().is_some_and(|list| list.iter().all(Value::is_string)),
                    ),
                    ("inputs: expected an object", json["inputs"].is_object()),
                    ("outputs: expected an object", json["outputs"].is_object()),
                ] {
                    if !holds {
                        return Err(name.into());
                    }
                }
                Ok(())
            })
        })
    }

    fn success<'a>(host: &'a mut Host, sample: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let Some(op) = &sample.operation else { return Verdict::Skip("no operation may be called".into()) };
            let text = format!("{{\"op\":{},\"args\":{}}}", Value::from(op.as_str()), sample.args);
            judge(&text, send(host, "invoke", &text).await, |json| {
                let holds = json["ok"] == true && json.get("result").is_some();
                if holds { Ok(()) } else { Err("expected ok:true with a result".into()) }
            })
        })
    }

    fn unsupported<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        let text = r#"{"op":"rigline-no-such-op","args":{}}"#;
        Box::pin(async { judge(text, send(host, "invoke", text).await, |json| is_error(json, "unsupported_op")) })
    }

    fn without_op<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        let text = r#"{"args":{},"session_id":"s"}"#;
        Box::pin(async { judge(text, send(host, "invoke", text).await, |json| is_error(json, "bad_request")) })
    }

    fn malformed<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let text = r#"{"op":"health""#;
            let answer = send(host, "invoke", text).await;
            if let Place::Lines(_) = host.place() {
                let verdict = judge(text, answer, |json| is_error(json, "bad_request"));
                if verdict != Verdict::Pass {
                    return verdict;
                }
            } else if answer.is_ok() {
                return judge(text, answer, |json| is_error(json, "bad_request"));
            }
            judge("health", own(host, "health").await, is_well)
        })
    }

    fn unknown_members<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        let text = r#"{"op":"rigline-no-such-op","args":{},"x-rigline":[{}],"session_id":"s"}"#;
        Box::pin(async { judge(text, send(host, "invoke", text).await, |json| is_error(json, "unsupported_op")) })
    }

    fn large<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let text = format!(r#"{{"op":"rigline-no-such-op","args":{{"x":"{}"}}}}"#, "x".repeat(1 << 20));
            judge(&text, send(host, "invoke", &text).await, |json| is_error(json, "unsupported_op"))
        })
    }
}

/// The cases for namel3ss tools, as programs and as services.
#[cfg(feature = "namel3ss")]
pub mod namel3ss {
    use serde_json::Value;

    use super::{Case, Running, Sample, Verdict, judge};
    use crate::namel3ss::Host;

    /// The cases.
    pub const CASES: &[Case<Host>] = &[
        Case { name: "success", section: "Local subprocess schema (stdout)", run: success },
        Case { name: "unknown tool", section: "Local subprocess schema (stdout)", run: unknown },
        Case { name: "another protocol version", section: "Protocol version", run: version },
        Case { name: "over several lines", section: "Local subprocess schema (stdin)", run: lines },
        Case { name: "a guarantee that nobody keeps", section: "Local subprocess schema (stdin)", run: guarantee },
        Case { name: "handshake", section: "Service capability handshake (HTTP)", run: handshake },
    ];

    fn request(tool: &str, payload: &str, more: &str) -> String {
        let tool = Value::from(tool);
        format!(
            r#"{{"protocol_version": 1, "tool": {tool}, "tool_name": {tool}, "kind": "python", "entry": "tools.check:run", "payload": {payload}, "timeout_ms": 10000{more}}}"#
        )
    }

    fn is_error(json: &Value) -> Result<(), String> {
        let error = &json["error"];
        match (json["ok"].as_bool(), error["type"].is_string() && error["message"].is_string()) {
            (Some(false), true) => Ok(()),
            _ => Err("expected ok:false with error.type and error.message".into()),
        }
    }

    fn success<'a>(host: &'a mut Host, sample: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let Some(tool) = &sample.operation else { return Verdict::Skip("no tool may be called".into()) };
            let text = request(tool, &sample.args, "");
            judge(&text, host.raw(&text).await, |json| {
                let holds = json["ok"] == true && json.get("result").is_some();
                if holds { Ok(()) } else { Err("expected ok:true with a result".into()) }
            })
        })
    }

    fn unknown<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let text = request("rigline no such tool", "{}", "");
            judge(&text, host.raw(&text).await, is_error)
        })
    }

    fn version<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let text = request("rigline no such tool", "{}", "").replacen('1', "99", 1);
            judge(&text, host.raw(&text).await, is_error)
        })
    }

    fn lines<'a>(host: &'a mut Host, _: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let text = request("rigline no such tool", "{}", "").replace(", ", ",\n  ") + "\n";
            judge(&text, host.raw(&text).await, is_error)
        })
    }

    fn guarantee<'a>(host: &'a mut Host, sample: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let Some(tool) = &sample.operation else { return Verdict::Skip("no tool may be called".into()) };
            let all = r#"{"no_filesystem_write":true,"no_filesystem_read":true,"no_network":true,"no_subprocess":true,"no_env_read":true,"no_env_write":true}"#;
            let text = request(tool, &sample.args, &format!(r#", "capability_context": {{"guarantees": {all}}}"#));
            judge(&text, host.raw(&text).await, |json| match json["ok"].as_bool() {
                // It keeps them all.
                Some(true) => Ok(()),
                _ if json["error"]["reason_code"] == "guarantee_blocked" => Ok(()),
                _ => Err("expected a result, or error.reason_code guarantee_blocked".into()),
            })
        })
    }

    fn handshake<'a>(host: &'a mut Host, sample: &'a Sample) -> Running<'a> {
        Box::pin(async {
            let Some(tool) = &sample.operation else { return Verdict::Skip("no tool may be named".into()) };
            let text = format!(
                r#"{{"protocol_version": 1, "tool_name": {}, "runner": "service", "required_guarantees": {{}}}}"#,
                Value::from(tool.as_str())
            );
            let Some(answer) = host.raw_handshake(&text).await else {
                return Verdict::Skip("only services shake hands".into());
            };
            judge(&text, answer, |json| {
                let holds =
                    json["ok"] == true && json["enforcement"] == "enforced" && json["supported_guarantees"].is_object();
                if holds { Ok(()) } else { Err("expected ok:true, enforcement and supported_guarantees".into()) }
            })
        })
    }
}
