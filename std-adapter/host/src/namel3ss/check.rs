//! The conformance cases for namel3ss tools, as programs and as services.

use std::time::{Duration, Instant};

use rigline::Guarantee;
use serde_json::Value;

use super::{Host, HttpError, RunError};
use crate::check::{
    Case, CaseFailure, CaseResult, MayBeUnreachable, RecordingFixture, Report, Settings, Suite, Verdict, cases, fail,
    is_success, json, names, run, start,
};
use crate::client::ClientError;

/// The conformance cases of namel3ss tools, in the order in which they run.
#[rustfmt::skip]
pub const CASES: &[Case<RecordingFixture<Host>>] = cases! {
    "success", "Local subprocess schema (stdout)", Host, success;
    "success.lines", "Local subprocess schema (stdin)", Standard, lines;
    "success.escapes", "Local subprocess schema (stdin)", Host, escapes;
    "unknown-tool", "Local subprocess schema (stdout)", Host, unknown;
    "unknown-members", "Local subprocess schema (stdin)", Standard, unknown_members;
    "protocol-version", "Protocol version", Standard, version;
    "malformed.members", "Local subprocess schema (stdin)", Standard, members;
    "malformed", "Local subprocess schema (stdout)", Standard, malformed;
    "guarantee", "Local subprocess schema (stdin)", Host, guarantee;
    "large", "Local subprocess schema (stdin)", Standard, large;
    "flow-null", "Service runner schema (HTTP)", Host, flow;
    "handshake", "Service capability handshake (HTTP)", Host, handshake;
    "handshake.guarantees", "Service capability handshake (HTTP)", Host, guarantees;
    "timeout", "Timeouts", Host, timeout;
};

/// The suite, for the registry of protocols.
pub(super) const SUITE: Suite =
    Suite { names: || names(CASES), has_transcripts: true, run: |settings, report| Box::pin(check(settings, report)) };

async fn check(settings: Settings, report: &mut dyn FnMut(&CaseResult)) -> Result<Report, ClientError> {
    let cases = settings.chosen(CASES)?;
    let mut host = super::client::host(&settings.target, settings.options.credentials.clone())?;
    if host.project.fallback.is_none() {
        return Err(ClientError::usage("a project's tools are checked one by one: name a program or a service"));
    }
    host.project.settings.python_tools.timeout_seconds = Some(settings.timeout.as_secs_f64());
    if let (Some(entry), Some(binding)) = (settings.own.one("entry"), &mut host.project.fallback) {
        entry.clone_into(&mut binding.entry);
    }
    let host = RecordingFixture::new(host, settings.target.to_string(), settings.plan);
    run(cases, host, report).await.map_err(ClientError::transcripts)
}

type On<'a> = &'a mut RecordingFixture<Host>;

impl MayBeUnreachable for RunError {
    fn is_unreached(&self) -> bool {
        matches!(
            self,
            Self::Start { .. } | Self::Device { .. } | Self::Service { source: HttpError::Connect { .. }, .. }
        )
    }
}

impl RecordingFixture<Host> {
    async fn raw(&mut self, tool: &str, text: &str) -> Result<Value, CaseFailure> {
        let start = start();
        let answer = self.host.raw(text).await;
        json(&self.note(tool, text, start, answer)?)
    }

    async fn ask(&mut self, tool: &str, payload: &str, more: &str) -> Result<Value, CaseFailure> {
        self.raw(tool, &request(self, tool, payload, more)).await
    }

    async fn handshake(&mut self) -> Result<Value, CaseFailure> {
        let Some(sample) = self.samples()?.into_iter().next() else { return Ok(Value::Null) };
        let text = format!(
            r#"{{"protocol_version": 1, "tool_name": {}, "runner": "service", "required_guarantees": {{"no_network": false, "secrets_allowed": []}}}}"#,
            Value::from(sample.operation.as_str())
        );
        let start = start();
        let Some(answer) = self.host.raw_handshake(&text).await else {
            return Err(CaseFailure::Skip("only services shake hands".into()));
        };
        json(&self.note("handshake", &text, start, answer)?)
    }
}

/// A request as both runners send it, so that either side finds its members.
fn request(trial: &RecordingFixture<Host>, tool: &str, payload: &str, more: &str) -> String {
    let (case, tool) = (trial.case, Value::from(tool));
    let entry = trial.host.project.fallback.as_ref().map(|binding| Value::from(binding.entry.as_str()));
    let entry = entry.unwrap_or_default();
    format!(
        r#"{{"protocol_version": 1, "tool": {tool}, "tool_name": {tool}, "kind": "python", "entry": {entry}, "payload": {payload}, "timeout_ms": 10000, "trace_id": "rigline-check/{case}"{more}}}"#
    )
}

const NO_TOOL: &str = "rigline no such tool";

fn is_error(json: &Value) -> Verdict {
    let error = &json["error"];
    match (json["ok"].as_bool(), error["type"].is_string() && error["message"].is_string()) {
        (Some(false), true) => Ok(None),
        _ => fail("expected ok:false with error.type and error.message"),
    }
}

async fn success(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let json = trial.ask(&sample.operation, &sample.args, "").await?;
        is_success(&json, &sample.operation)?;
    }
    Ok(None)
}

/// "Local subprocess schema": the example stands on several lines.
async fn lines(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let text = request(trial, &sample.operation, &sample.args, "");
        let text = text.replace(r#", "tool"#, ",\n  \"tool").replace(r#", "payload"#, ",\r\n\t\"payload") + "\n\n";
        is_success(&trial.raw(&sample.operation, &text).await?, &sample.operation)?;
    }
    Ok(None)
}

/// Python writes what is not ASCII as escapes.
async fn escapes(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let escaped = |text: &str| -> String {
            text.chars().map(|char| if char == '-' { "\\u002d".into() } else { char.to_string() }).collect()
        };
        let text = request(trial, "TOOL", &sample.args, r#", "x": "\ud83d\ude00""#)
            .replace("TOOL", &escaped(&sample.operation));
        is_success(&trial.raw(&sample.operation, &text).await?, &sample.operation)?;
    }
    Ok(None)
}

async fn unknown(trial: On<'_>) -> Verdict {
    is_error(&trial.ask(NO_TOOL, "{}", "").await?)
}

async fn unknown_members(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let json = trial.ask(&sample.operation, &sample.args, r#", "x_rigline": [{}]"#).await?;
        is_success(&json, &sample.operation)?;
    }
    Ok(None)
}

async fn version(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let text = request(trial, &sample.operation, &sample.args, "").replacen('1', "99", 1);
        is_error(&trial.raw(&sample.operation, &text).await?)?;
    }
    Ok(None)
}

async fn members(trial: On<'_>) -> Verdict {
    for text in [r#"{"protocol_version": 1}"#, r#"{"protocol_version": 1, "tool": 7, "tool_name": 7}"#] {
        is_error(&trial.raw("", text).await?)?;
    }
    Ok(None)
}

/// A program must answer, since a crash explains nothing; a service may answer 400.
async fn malformed(trial: On<'_>) -> Verdict {
    for text in [r#"{"protocol_version": 1,"#, "", "nonsense"] {
        let start = start();
        let answer = trial.host.raw(text).await;
        let is_status = matches!(answer, Err(RunError::Service { source: HttpError::Status { status: 400, .. }, .. }));
        let answer = trial.note("", text, start, answer);
        if !is_status {
            is_error(&json(&answer?)?)?;
        }
    }
    Ok(None)
}

async fn guarantee(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let all: Vec<String> = Guarantee::ALL.iter().map(|known| format!("\"{}\": true", known.name())).collect();
        let context = format!(r#", "capability_context": {{"guarantees": {{{}}}}}"#, all.join(", "));
        let json = trial.ask(&sample.operation, &sample.args, &context).await?;
        match json["ok"].as_bool() {
            // It keeps them all.
            Some(true) => {}
            _ if json["error"]["reason_code"] == "guarantee_blocked" => {}
            _ => return fail("expected a result, or error.reason_code guarantee_blocked"),
        }
    }
    Ok(None)
}

async fn large(trial: On<'_>) -> Verdict {
    let payload = format!(r#"{{"x": "{}"}}"#, "x".repeat(1 << 20));
    is_error(&trial.ask(NO_TOOL, &payload, "").await?)
}

async fn flow(trial: On<'_>) -> Verdict {
    for sample in trial.samples()? {
        let more = r#", "project": {"app_root": "/tmp/app", "flow": null}"#;
        is_success(&trial.ask(&sample.operation, &sample.args, more).await?, &sample.operation)?;
    }
    Ok(None)
}

async fn handshake(trial: On<'_>) -> Verdict {
    let json = trial.handshake().await?;
    match (json["ok"] == true, json["enforcement"].as_str()) {
        // The real client goes on with no other word.
        (true, Some("enforced")) => Ok(None),
        _ => fail("expected ok:true and enforcement \"enforced\""),
    }
}

async fn guarantees(trial: On<'_>) -> Verdict {
    let json = trial.handshake().await?;
    let supported = &json["supported_guarantees"];
    if let Some(missing) = Guarantee::ALL.iter().find(|known| !supported[known.name()].is_boolean()) {
        return fail(format!("supported_guarantees.{}: expected true or false", missing.name()));
    }
    if supported["secrets_allowed"].is_array() {
        return Ok(None);
    }
    fail("supported_guarantees.secrets_allowed: expected a list")
}

/// A call is answered in its time; of a service, one that cannot be, with an error.
async fn timeout(trial: On<'_>) -> Verdict {
    if let (Some(slow), true) = (trial.plan.slow.clone(), trial.host.is_service()) {
        let text = request(trial, &slow.operation, &slow.args, "");
        let text = text.replacen("\"timeout_ms\": 10000", "\"timeout_ms\": 200", 1);
        let start = Instant::now();
        is_error(&trial.raw(&slow.operation, &text).await?)?;
        return match start.elapsed() {
            took if took < Duration::from_secs(2) => Ok(None),
            took => fail(format!("timeout_ms was 200, and the answer took {took:?}")),
        };
    }
    for sample in trial.samples()? {
        trial.ask(&sample.operation, &sample.args, "").await?;
    }
    Ok(None)
}
