//! The conformance cases for Amplifier modules, over lines and over HTTP.

use std::time::Duration;

use serde_json::Value;

use super::host::HEALTH_TIMEOUT;
use super::{CallError, Host, HttpError, ModuleLocation, RESERVED_CODES};
use crate::check::{
    Case, CaseFailure, CaseResult, MayBeUnreachable, RecordingFixture, Report, Sample, Settings, Suite, Verdict, cases,
    fail, is_success, json, names, own_names, run, start,
};
use crate::client::ClientError;

/// The conformance cases of Amplifier modules, in the order in which they run.
#[rustfmt::skip]
pub const CASES: &[Case<RecordingFixture<Host>>] = cases! {
    "health", "§2 health", Host, health;
    "describe", "§2 describe", Host, describe;
    "describe.capabilities", "§2 describe", Host, capabilities;
    "describe.schemas", "§2 describe", Host, schemas;
    "invoke.success", "§2 invoke", Host, success;
    "invoke.session", "§2 invoke", Host, session;
    "invoke.unknown-members", "§2 invoke", Host, unknown_members;
    "invoke.args-null", "§2 invoke", Host, null_args;
    "unsupported-op", "§4 unsupported_op", Host, unsupported;
    "bad-request.no-op", "§4 bad_request", Host, |trial| bad_request(trial, r#"{"args":{},"session_id":"s"}"#);
    "bad-request.op-type", "§4 bad_request", Host, |trial| bad_request(trial, r#"{"op":7,"args":{}}"#);
    "bad-request.args-type", "§2 invoke", Host, bad_args;
    "malformed", "§2 Transports", Host, malformed;
    "malformed.recovery", "§2 Transports", Host, recovery;
    "errors.shape", "§4 Error Schema", Host, shape;
    "large", "§2 Transports: a message of 1 MB", Host, large;
    "health.busy", "§2 health", Host, busy;
    "timeout", "§4 timeout", Host, timeout;
};

/// The suite, for the registry of protocols.
pub(super) const SUITE: Suite =
    Suite { names: || names(CASES), has_transcripts: true, run: |settings, report| Box::pin(check(settings, report)) };

async fn check(settings: Settings, report: &mut dyn FnMut(&CaseResult)) -> Result<Report, ClientError> {
    let cases = settings.chosen(CASES)?;
    let mut host =
        Host::new(&settings.target, &settings.options).map_err(|error| ClientError::usage(error.to_string()))?;
    host.timeout = settings.timeout;
    let mut plan = settings.plan;
    let described = host.describe().await.map(|description| description.capabilities).unwrap_or_default();
    let identify = "identify".to_owned();
    if !plan.samples.is_empty() && !described.is_empty() {
        let names: Vec<&str> = described.iter().map(String::as_str).collect();
        let calls = plan.samples.iter_mut().chain(&mut plan.slow).map(|sample| &mut sample.operation);
        own_names(calls, &names).map_err(ClientError::usage)?;
    } else if described.contains(&identify) {
        // As with the other protocols: it changes nothing.
        plan.samples = vec![Sample { operation: identify, args: "{}".into() }];
    }
    let host = RecordingFixture::new(host, settings.target.to_string(), plan);
    run(cases, host, report).await.map_err(ClientError::transcripts)
}

type On<'a> = &'a mut RecordingFixture<Host>;

impl MayBeUnreachable for CallError {
    fn is_unreached(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Http(HttpError::Connect { .. }))
    }
}

impl RecordingFixture<Host> {
    async fn send(&mut self, path: &str, op: &str, text: &str, limit: Duration) -> Result<String, CaseFailure> {
        let start = start();
        let answer = self.host.raw(path, text, limit).await;
        self.note(op, text, start, answer)
    }

    async fn invoke(&mut self, op: &str, text: &str) -> Result<Value, CaseFailure> {
        let limit = self.host.timeout + self.host.grace;
        json(&self.send("invoke", op, text, limit).await?)
    }

    /// The operations that have separate paths over HTTP, and that a line names in its `op`.
    async fn own(&mut self, op: &str) -> Result<Value, CaseFailure> {
        let limit = if op == "health" { HEALTH_TIMEOUT } else { self.host.timeout };
        json(&self.send(op, op, &format!("{{\"op\":\"{op}\"}}"), limit).await?)
    }

    async fn unknown(&mut self, more: &str) -> Verdict {
        let text = format!(r#"{{"op":"rigline-no-such-op","args":{{}}{more}}}"#);
        is_error(&self.invoke("rigline-no-such-op", &text).await?, "unsupported_op")
    }
}

fn is_error(json: &Value, code: &str) -> Verdict {
    match (json["ok"].as_bool(), json["error"]["code"].as_str(), json["error"]["message"].is_string()) {
        (Some(false), Some(given), true) if given == code => Ok(None),
        (Some(false), Some(given), true) => fail(format!("error.code: expected {code}, not {given}")),
        _ => fail(format!("expected ok:false with error.code {code} and a message")),
    }
}

async fn health(trial: On<'_>) -> Verdict {
    if trial.own("health").await?["status"] == "ok" {
        return Ok(None);
    }
    fail(r#"expected {"status":"ok"}"#)
}

async fn describe(trial: On<'_>) -> Verdict {
    let json = trial.own("describe").await?;
    let kinds = ["provider", "tool", "agent", "hook", "orchestrator", "context"];
    for (wanted, holds) in [
        ("name: expected a string", json["name"].is_string()),
        ("version: expected a string", json["version"].is_string()),
        ("kind: expected one of the six", json["kind"].as_str().is_some_and(|kind| kinds.contains(&kind))),
        ("inputs: expected an object", json["inputs"].is_object()),
        ("outputs: expected an object", json["outputs"].is_object()),
    ] {
        if !holds {
            return fail(wanted);
        }
    }
    Ok(None)
}

async fn capabilities(trial: On<'_>) -> Verdict {
    let json = trial.own("describe").await?;
    let Some(names) = json["capabilities"].as_array().filter(|list| list.iter().all(Value::is_string)) else {
        return fail("capabilities: expected a list of strings");
    };
    match trial.plan.samples.iter().find(|sample| !names.iter().any(|name| *name == sample.operation)) {
        Some(sample) => fail(format!("capabilities: {} is missing", sample.operation)),
        None => Ok(None),
    }
}

async fn schemas(trial: On<'_>) -> Verdict {
    let json = trial.own("describe").await?;
    for part in ["inputs", "outputs"] {
        for (name, schema) in json[part].as_object().into_iter().flatten() {
            if let Err(error) = jsonschema::validator_for(schema) {
                return fail(format!("{part}.{name}: no valid JSON Schema: {error}"));
            }
        }
    }
    Ok(None)
}

async fn success(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let text = format!("{{\"op\":{},\"args\":{}}}", Value::from(sample.operation.as_str()), sample.args);
        is_success(&trial.invoke(&sample.operation, &text).await?, &sample.operation)?;
    }
    Ok(None)
}

async fn session(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let op = Value::from(sample.operation.as_str());
        let text = format!("{{\"session_id\":\"rigline-check\",\"args\":{},\"op\":{op}}}", sample.args);
        is_success(&trial.invoke(&sample.operation, &text).await?, &sample.operation)?;
    }
    Ok(None)
}

async fn unknown_members(trial: On<'_>) -> Verdict {
    trial.unknown(r#","x-rigline":[{}]"#).await
}

async fn null_args(trial: On<'_>) -> Verdict {
    let Some(sample) = trial.samples()?.into_iter().find(|sample| sample.args.trim() == "{}") else {
        return Err(CaseFailure::Skip("no operation may be called without arguments".into()));
    };
    let op = Value::from(sample.operation.as_str());
    for text in [format!("{{\"op\":{op},\"args\":null}}"), format!("{{\"op\":{op}}}")] {
        is_success(&trial.invoke(&sample.operation, &text).await?, &sample.operation)?;
    }
    Ok(None)
}

async fn unsupported(trial: On<'_>) -> Verdict {
    trial.unknown("").await
}

async fn bad_request(trial: On<'_>, text: &str) -> Verdict {
    is_error(&trial.invoke("", text).await?, "bad_request")
}

async fn bad_args(trial: On<'_>) -> Verdict {
    let Some(sample) = trial.samples()?.into_iter().next() else { return Ok(None) };
    let text = format!("{{\"op\":{},\"args\":[1]}}", Value::from(sample.operation.as_str()));
    is_error(&trial.invoke(&sample.operation, &text).await?, "bad_request")
}

/// On lines an error in the protocol's own form; over HTTP, 400, or that.
async fn broken(trial: On<'_>) -> Verdict {
    let (text, start) = (r#"{"op":"health""#, start());
    let limit = trial.host.timeout + trial.host.grace;
    let answer = trial.host.raw("invoke", text, limit).await;
    let is_status = matches!(answer, Err(CallError::Http(HttpError::Status { status: 400, .. })));
    let answer = trial.note("", text, start, answer);
    if is_status && matches!(trial.host.place(), ModuleLocation::Http { .. }) {
        return Ok(None);
    }
    is_error(&json(&answer?)?, "bad_request")
}

async fn malformed(trial: On<'_>) -> Verdict {
    broken(trial).await
}

async fn recovery(trial: On<'_>) -> Verdict {
    for _ in 0..3 {
        let _ = broken(trial).await;
    }
    trial.unknown(r#","session_id":"rigline-check-recovery""#).await
}

async fn shape(trial: On<'_>) -> Verdict {
    let json = trial.invoke("", r#"{"op":"rigline-no-such-op","session_id":"rigline-check-shape"}"#).await?;
    let error = &json["error"];
    if !matches!(&error["details"], Value::Null | Value::Object(_)) {
        return fail("error.details: expected an object, where there are any");
    }
    match error["code"].as_str() {
        Some(code) if RESERVED_CODES.contains(&code) => Ok(None),
        _ => fail("error.code: expected one of the reserved ones"),
    }
}

async fn large(trial: On<'_>) -> Verdict {
    let text = format!(r#"{{"op":"rigline-no-such-op","args":{{"x":"{}"}}}}"#, "x".repeat(1 << 20));
    let json = trial.invoke("rigline-no-such-op", &text).await?;
    if trial.host.is_device() && is_error(&json, "unsupported_op").is_err() && json["error"]["message"].is_string() {
        return Err(CaseFailure::Skip(format!("a device has less memory: {}", json["error"]["message"])));
    }
    is_error(&json, "unsupported_op")
}

/// Well after all that.
async fn busy(trial: On<'_>) -> Verdict {
    for _ in 0..20 {
        health(trial).await?;
    }
    Ok(None)
}

/// A call is answered in its time; one that cannot be, with `timeout`.
async fn timeout(trial: On<'_>) -> Verdict {
    let limit = trial.host.timeout;
    if let Some(slow) = trial.plan.slow.clone() {
        let op = Value::from(slow.operation.as_str());
        trial.host.timeout = rigline::protocol::amplifier::TIMEOUT;
        let answer = trial.invoke(&slow.operation, &format!("{{\"op\":{op},\"args\":{}}}", slow.args)).await;
        trial.host.timeout = limit;
        return is_error(&answer?, "timeout");
    }
    for sample in trial.samples()? {
        let op = Value::from(sample.operation.as_str());
        let text = format!("{{\"op\":{op},\"args\":{},\"session_id\":\"rigline-check-timeout\"}}", sample.args);
        trial.invoke(&sample.operation, &text).await?;
    }
    health(trial).await
}
