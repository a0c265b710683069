//! What `rigline check` asks of Amplifier modules and namel3ss tools: tables of cases, and what runs them.
//!
//! They differ from those of [`check`](crate::check) in that they go through a host: over lines, over HTTP and as processes
//! alike. Each says where it comes from, by the section of the text. Every exchange of a case can be kept as a transcript of
//! `module:invoke` events ([`Plan::transcripts`]).

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::check::{CaseResult, NO_SESSION, Need, Outcome, Report};
use crate::host::Direction;

/// One case: a name, the section of the text that it comes from, and what is done.
pub struct Case<H> {
    /// Its name, such as `health`.
    pub name: &'static str,
    /// The section of the text.
    pub section: &'static str,
    /// Who needs it.
    pub need: Need,
    /// What is done.
    pub run: for<'a> fn(&'a mut Trial<'_, H>) -> Running<'a>,
}

/// A case that runs.
pub type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// A call that may be made: on live hardware nothing else runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The operation.
    pub operation: String,
    /// The JSON text of its arguments, an object.
    pub args: String,
}

/// What may be done, and what is kept of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The calls that may be made, all of them; without any, cases that need one are skipped.
    pub samples: Vec<Sample>,
    /// A call that takes longer than its time limit.
    pub slow: Option<Sample>,
    /// The folder that a transcript of each case is written to.
    pub transcripts: Option<PathBuf>,
}

/// A case's surroundings.
pub struct Trial<'t, H> {
    host: &'t mut H,
    plan: &'t Plan,
    case: &'static str,
    exchanges: Vec<Exchange>,
    /// Why the other end was not reached, as long as it has not been.
    reach: Reach,
}

/// Whether the other end was ever there.
#[derive(Debug, Clone, Default)]
enum Reach {
    #[default]
    Untried,
    Unreached(String),
    Reached,
}

/// Whether an error means that nothing was there to answer.
trait Unreached: fmt::Display {
    fn is_unreached(&self) -> bool;
}

/// What was sent, and what came back.
#[derive(Debug, Clone)]
struct Exchange {
    at: SystemTime,
    took: Duration,
    op: String,
    sent: String,
    got: Result<String, String>,
}

/// What came of a case: a remark if there is one to make, or why it did not pass.
pub type Verdict = Result<(), Stop>;

/// Why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It is not as it should be.
    Fail(String),
    /// It could not be tried.
    Skip(String),
}

impl<H> fmt::Debug for Case<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("section", &self.section).finish_non_exhaustive()
    }
}

impl<H> fmt::Debug for Trial<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("case", &self.case).finish_non_exhaustive()
    }
}

/// Runs the cases, one after the other, for the frame of [`check`](crate::check). `told` gets each result as it is there.
///
/// # Errors
/// A transcript cannot be written.
pub async fn run<H>(
    cases: &[&Case<H>],
    host: &mut H,
    target: &str,
    plan: &Plan,
    mut told: impl FnMut(&CaseResult),
) -> std::io::Result<Report> {
    if let Some(folder) = &plan.transcripts {
        ensure_transcripts(cases.iter().map(|case| case.name), folder)?;
    }
    let mut results = Vec::with_capacity(cases.len());
    let mut reach = Reach::default();
    for case in cases {
        let started = Instant::now();
        let mut trial = Trial { host: &mut *host, plan, case: case.name, exchanges: Vec::new(), reach };
        let verdict = match &trial.reach {
            Reach::Unreached(why) => Err(Stop::Skip(format!("{NO_SESSION}: {why}"))),
            _ => (case.run)(&mut trial).await,
        };
        let exchanges = trial.exchanges;
        reach = trial.reach;
        let transcript = match &plan.transcripts {
            Some(folder) => {
                let path = transcript(folder, case.name);
                let text: String = exchanges.iter().map(|exchange| exchange.event(target)).collect();
                crate::files::write(&path, text.as_bytes())?;
                Some(path)
            }
            None => None,
        };
        let (outcome, text) = match verdict {
            Ok(()) => (Outcome::Pass, String::new()),
            Err(Stop::Skip(why)) => (Outcome::Skip, why),
            Err(Stop::Fail(why)) => (Outcome::Fail, why),
        };
        let result = CaseResult {
            name: case.name,
            section: case.section,
            need: case.need,
            outcome,
            text,
            exchange: exchanges.iter().flat_map(Exchange::lines).take(40).collect(),
            took: started.elapsed(),
            transcript,
        };
        told(&result);
        results.push(result);
    }
    let unreached = match reach {
        Reach::Unreached(why) => Some(why),
        _ => None,
    };
    Ok(Report { target: target.into(), results, unopened: None, unreached })
}

/// Finds out whether the transcripts of cases of these names can be written.
///
/// # Errors
/// One cannot.
pub fn ensure_transcripts<'c>(names: impl Iterator<Item = &'c str>, folder: &Path) -> std::io::Result<()> {
    for name in names {
        let path = transcript(folder, name);
        crate::files::ensure_writable(&path)
            .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

fn transcript(folder: &Path, case: &str) -> PathBuf {
    folder.join(format!("{case}.jsonl"))
}

impl Exchange {
    fn lines(&self) -> Vec<(Direction, String)> {
        let got = self.got.as_deref().unwrap_or("");
        let mut lines = vec![(Direction::Sent, cut(&self.sent, 400))];
        if !got.is_empty() {
            lines.push((Direction::Received, cut(got, 400)));
        }
        lines
    }

    /// The exchange as an event's line (PROTOCOLS.md §3), what was said in its data.
    fn event(&self, target: &str) -> String {
        let ts = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let is_ok = self.got.as_deref().is_ok_and(|got| {
            serde_json::from_str::<Value>(got)
                .is_ok_and(|got| got["ok"] == true || got["status"] == "ok" || got["name"].is_string())
        });
        let mut event = serde_json::json!({
            "id": uuid::Uuid::new_v4().to_string(),
            "ts": ts,
            "event": "module:invoke",
            "component": "rigline check",
            "module": target,
            "status": if is_ok { "ok" } else { "error" },
            "duration_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "data": { "op": self.op, "sent": cut(&self.sent, 4000) },
        });
        match &self.got {
            Ok(got) => event["data"]["got"] = cut(got, 4000).into(),
            Err(why) => event["error"] = serde_json::json!({ "code": "unreachable", "message": why }),
        }
        format!("{event}\n")
    }
}

fn cut(text: &str, length: usize) -> String {
    let shown: String = text.chars().take(length).collect();
    if shown.len() < text.len() { format!("{shown}… ({} bytes)", text.len()) } else { shown }
}

impl<H> Trial<'_, H> {
    fn note<E: Unreached>(
        &mut self,
        op: &str,
        sent: &str,
        start: (SystemTime, Instant),
        answer: Result<String, E>,
    ) -> Result<String, Stop> {
        let is_unreached = answer.as_ref().is_err_and(E::is_unreached);
        let got = answer.map_err(|error| error.to_string());
        self.reach = match (&self.reach, &got) {
            (Reach::Untried, Err(why)) if is_unreached => Reach::Unreached(why.clone()),
            _ => Reach::Reached,
        };
        self.exchanges.push(Exchange {
            at: start.0,
            took: start.1.elapsed(),
            op: op.into(),
            sent: sent.into(),
            got: got.clone(),
        });
        got.map_err(Stop::Fail)
    }

    /// The calls that may be made.
    fn samples(&self) -> Result<Vec<Sample>, Stop> {
        if self.plan.samples.is_empty() {
            return Err(Stop::Skip("no operation may be called: name one by --call".into()));
        }
        Ok(self.plan.samples.clone())
    }
}

fn start() -> (SystemTime, Instant) {
    (SystemTime::now(), Instant::now())
}

fn fail<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Fail(why.into()))
}

fn json(text: &str) -> Result<Value, Stop> {
    serde_json::from_str(text).map_err(|error| Stop::Fail(format!("the answer is not JSON: {error}")))
}

fn is_success(json: &Value, operation: &str) -> Verdict {
    if json["ok"] == true && json.get("result").is_some() {
        return Ok(());
    }
    fail(format!("{operation}: expected ok:true with a result"))
}

macro_rules! cases {
    ($($name:literal, $section:literal, $need:ident, $run:expr;)*) => {
        &[$(Case { name: $name, section: $section, need: Need::$need, run: |trial| Box::pin($run(trial)) }),*]
    };
}

/// The cases for Amplifier modules, on lines and over HTTP.
#[cfg(feature = "amplifier")]
pub mod amplifier {
    use std::time::Duration;

    use serde_json::Value;

    use super::{Case, Need, Stop, Trial, Unreached, Verdict, fail, is_success, json, start};
    use crate::amplifier::{CallError, HEALTH_TIMEOUT, Host, HttpError, Place, RESERVED_CODES};

    /// The cases, in the order in which they run.
    #[rustfmt::skip]
    pub const CASES: &[Case<Host>] = cases! {
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

    type On<'a, 't> = &'a mut Trial<'t, Host>;

    impl Unreached for CallError {
        fn is_unreached(&self) -> bool {
            matches!(self, Self::Connect(_) | Self::Http(HttpError::Connect { .. }))
        }
    }

    impl Trial<'_, Host> {
        async fn send(&mut self, path: &str, op: &str, text: &str, limit: Duration) -> Result<String, Stop> {
            let start = start();
            let answer = self.host.raw(path, text, limit).await;
            self.note(op, text, start, answer)
        }

        async fn invoke(&mut self, op: &str, text: &str) -> Result<Value, Stop> {
            let limit = self.host.timeout + self.host.grace;
            json(&self.send("invoke", op, text, limit).await?)
        }

        /// The operations that have paths of their own over HTTP, and are said by a line itself.
        async fn own(&mut self, op: &str) -> Result<Value, Stop> {
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
            (Some(false), Some(given), true) if given == code => Ok(()),
            (Some(false), Some(given), true) => fail(format!("error.code: expected {code}, not {given}")),
            _ => fail(format!("expected ok:false with error.code {code} and a message")),
        }
    }

    async fn health(trial: On<'_, '_>) -> Verdict {
        if trial.own("health").await?["status"] == "ok" {
            return Ok(());
        }
        fail(r#"expected {"status":"ok"}"#)
    }

    async fn describe(trial: On<'_, '_>) -> Verdict {
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
        Ok(())
    }

    async fn capabilities(trial: On<'_, '_>) -> Verdict {
        let json = trial.own("describe").await?;
        let Some(names) = json["capabilities"].as_array().filter(|list| list.iter().all(Value::is_string)) else {
            return fail("capabilities: expected a list of strings");
        };
        match trial.plan.samples.iter().find(|sample| !names.iter().any(|name| *name == sample.operation)) {
            Some(sample) => fail(format!("capabilities: {} is missing", sample.operation)),
            None => Ok(()),
        }
    }

    async fn schemas(trial: On<'_, '_>) -> Verdict {
        let json = trial.own("describe").await?;
        for part in ["inputs", "outputs"] {
            for (name, schema) in json[part].as_object().into_iter().flatten() {
                if let Err(error) = jsonschema::validator_for(schema) {
                    return fail(format!("{part}.{name}: no valid JSON Schema: {error}"));
                }
            }
        }
        Ok(())
    }

    async fn success(trial: On<'_, '_>) -> Verdict {
        for sample in trial.samples()? {
            let text = format!("{{\"op\":{},\"args\":{}}}", Value::from(sample.operation.as_str()), sample.args);
            is_success(&trial.invoke(&sample.operation, &text).await?, &sample.operation)?;
        }
        Ok(())
    }

    async fn session(trial: On<'_, '_>) -> Verdict {
        for sample in trial.samples()? {
            let op = Value::from(sample.operation.as_str());
            let text = format!("{{\"session_id\":\"rigline-check\",\"args\":{},\"op\":{op}}}", sample.args);
            is_success(&trial.invoke(&sample.operation, &text).await?, &sample.operation)?;
        }
        Ok(())
    }

    async fn unknown_members(trial: On<'_, '_>) -> Verdict {
        trial.unknown(r#","x-rigline":[{}]"#).await
    }

    async fn null_args(trial: On<'_, '_>) -> Verdict {
        let Some(sample) = trial.samples()?.into_iter().find(|sample| sample.args.trim() == "{}") else {
            return Err(Stop::Skip("no operation may be called without arguments".into()));
        };
        let op = Value::from(sample.operation.as_str());
        for text in [format!("{{\"op\":{op},\"args\":null}}"), format!("{{\"op\":{op}}}")] {
            is_success(&trial.invoke(&sample.operation, &text).await?, &sample.operation)?;
        }
        Ok(())
    }

    async fn unsupported(trial: On<'_, '_>) -> Verdict {
        trial.unknown("").await
    }

    async fn bad_request(trial: On<'_, '_>, text: &str) -> Verdict {
        is_error(&trial.invoke("", text).await?, "bad_request")
    }

    async fn bad_args(trial: On<'_, '_>) -> Verdict {
        let Some(sample) = trial.samples()?.into_iter().next() else { return Ok(()) };
        let text = format!("{{\"op\":{},\"args\":[1]}}", Value::from(sample.operation.as_str()));
        is_error(&trial.invoke(&sample.operation, &text).await?, "bad_request")
    }

    /// On lines an error in the protocol's own form; over HTTP, 400, or that.
    async fn broken(trial: On<'_, '_>) -> Verdict {
        let (text, start) = (r#"{"op":"health""#, start());
        let limit = trial.host.timeout + trial.host.grace;
        let answer = trial.host.raw("invoke", text, limit).await;
        let is_status = matches!(answer, Err(CallError::Http(HttpError::Status { status: 400, .. })));
        let answer = trial.note("", text, start, answer);
        if is_status && matches!(trial.host.place(), Place::Http { .. }) {
            return Ok(());
        }
        is_error(&json(&answer?)?, "bad_request")
    }

    async fn malformed(trial: On<'_, '_>) -> Verdict {
        broken(trial).await
    }

    async fn recovery(trial: On<'_, '_>) -> Verdict {
        for _ in 0..3 {
            let _ = broken(trial).await;
        }
        trial.unknown(r#","session_id":"rigline-check-recovery""#).await
    }

    async fn shape(trial: On<'_, '_>) -> Verdict {
        let json = trial.invoke("", r#"{"op":"rigline-no-such-op","session_id":"rigline-check-shape"}"#).await?;
        let error = &json["error"];
        if !matches!(&error["details"], Value::Null | Value::Object(_)) {
            return fail("error.details: expected an object, where there are any");
        }
        match error["code"].as_str() {
            Some(code) if RESERVED_CODES.contains(&code) => Ok(()),
            _ => fail("error.code: expected one of the reserved ones"),
        }
    }

    async fn large(trial: On<'_, '_>) -> Verdict {
        let text = format!(r#"{{"op":"rigline-no-such-op","args":{{"x":"{}"}}}}"#, "x".repeat(1 << 20));
        let json = trial.invoke("rigline-no-such-op", &text).await?;
        if trial.host.is_device() && is_error(&json, "unsupported_op").is_err() && json["error"]["message"].is_string()
        {
            return Err(Stop::Skip(format!("a device has less memory: {}", json["error"]["message"])));
        }
        is_error(&json, "unsupported_op")
    }

    /// Well after all that.
    async fn busy(trial: On<'_, '_>) -> Verdict {
        for _ in 0..20 {
            health(trial).await?;
        }
        Ok(())
    }

    /// A call is answered in its time; one that cannot be, with `timeout`.
    async fn timeout(trial: On<'_, '_>) -> Verdict {
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
}

/// The cases for namel3ss tools, as programs and as services.
#[cfg(feature = "namel3ss")]
pub mod namel3ss {
    use std::time::{Duration, Instant};

    use rigline::manifest::Guarantee;
    use serde_json::Value;

    use super::{Case, Need, Stop, Trial, Unreached, Verdict, fail, is_success, json, start};
    use crate::namel3ss::{Host, HttpError, RunError};

    /// The cases, in the order in which they run.
    #[rustfmt::skip]
    pub const CASES: &[Case<Host>] = cases! {
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

    type On<'a, 't> = &'a mut Trial<'t, Host>;

    impl Unreached for RunError {
        fn is_unreached(&self) -> bool {
            matches!(
                self,
                Self::Start { .. } | Self::Device { .. } | Self::Service { source: HttpError::Connect { .. }, .. }
            )
        }
    }

    impl Trial<'_, Host> {
        async fn raw(&mut self, tool: &str, text: &str) -> Result<Value, Stop> {
            let start = start();
            let answer = self.host.raw(text).await;
            json(&self.note(tool, text, start, answer)?)
        }

        async fn ask(&mut self, tool: &str, payload: &str, more: &str) -> Result<Value, Stop> {
            self.raw(tool, &request(self, tool, payload, more)).await
        }

        async fn handshake(&mut self) -> Result<Value, Stop> {
            let Some(sample) = self.samples()?.into_iter().next() else { return Ok(Value::Null) };
            let text = format!(
                r#"{{"protocol_version": 1, "tool_name": {}, "runner": "service", "required_guarantees": {{"no_network": false, "secrets_allowed": []}}}}"#,
                Value::from(sample.operation.as_str())
            );
            let start = start();
            let Some(answer) = self.host.raw_handshake(&text).await else {
                return Err(Stop::Skip("only services shake hands".into()));
            };
            json(&self.note("handshake", &text, start, answer)?)
        }
    }

    /// A request as both runners send it, so that either side finds its members.
    fn request(trial: &Trial<'_, Host>, tool: &str, payload: &str, more: &str) -> String {
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
            (Some(false), true) => Ok(()),
            _ => fail("expected ok:false with error.type and error.message"),
        }
    }

    async fn success(trial: On<'_, '_>) -> Verdict {
        for sample in trial.samples()? {
            let json = trial.ask(&sample.operation, &sample.args, "").await?;
            is_success(&json, &sample.operation)?;
        }
        Ok(())
    }

    /// "Local subprocess schema": the example stands on several lines.
    async fn lines(trial: On<'_, '_>) -> Verdict {
        for sample in trial.samples()? {
            let text = request(trial, &sample.operation, &sample.args, "");
            let text = text.replace(r#", "tool"#, ",\n  \"tool").replace(r#", "payload"#, ",\r\n\t\"payload") + "\n\n";
            is_success(&trial.raw(&sample.operation, &text).await?, &sample.operation)?;
        }
        Ok(())
    }

    /// Python writes what is not ASCII as escapes.
    async fn escapes(trial: On<'_, '_>) -> Verdict {
        for sample in trial.samples()? {
            let escaped = |text: &str| -> String {
                text.chars().map(|char| if char == '-' { "\\u002d".into() } else { char.to_string() }).collect()
            };
            let text = request(trial, "TOOL", &sample.args, r#", "x": "\ud83d\ude00""#)
                .replace("TOOL", &escaped(&sample.operation));
            is_success(&trial.raw(&sample.operation, &text).await?, &sample.operation)?;
        }
        Ok(())
    }

    async fn unknown(trial: On<'_, '_>) -> Verdict {
        is_error(&trial.ask(NO_TOOL, "{}", "").await?)
    }

    async fn unknown_members(trial: On<'_, '_>) -> Verdict {
        for sample in trial.samples()? {
            let json = trial.ask(&sample.operation, &sample.args, r#", "x_rigline": [{}]"#).await?;
            is_success(&json, &sample.operation)?;
        }
        Ok(())
    }

    async fn version(trial: On<'_, '_>) -> Verdict {
        for sample in trial.samples()? {
            let text = request(trial, &sample.operation, &sample.args, "").replacen('1', "99", 1);
            is_error(&trial.raw(&sample.operation, &text).await?)?;
        }
        Ok(())
    }

    async fn members(trial: On<'_, '_>) -> Verdict {
        for text in [r#"{"protocol_version": 1}"#, r#"{"protocol_version": 1, "tool": 7, "tool_name": 7}"#] {
            is_error(&trial.raw("", text).await?)?;
        }
        Ok(())
    }

    /// A program answers, as a crash tells nobody anything; a service may answer 400.
    async fn malformed(trial: On<'_, '_>) -> Verdict {
        for text in [r#"{"protocol_version": 1,"#, "", "nonsense"] {
            let start = start();
            let answer = trial.host.raw(text).await;
            let is_status =
                matches!(answer, Err(RunError::Service { source: HttpError::Status { status: 400, .. }, .. }));
            let answer = trial.note("", text, start, answer);
            if !is_status {
                is_error(&json(&answer?)?)?;
            }
        }
        Ok(())
    }

    async fn guarantee(trial: On<'_, '_>) -> Verdict {
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
        Ok(())
    }

    async fn large(trial: On<'_, '_>) -> Verdict {
        let payload = format!(r#"{{"x": "{}"}}"#, "x".repeat(1 << 20));
        is_error(&trial.ask(NO_TOOL, &payload, "").await?)
    }

    async fn flow(trial: On<'_, '_>) -> Verdict {
        for sample in trial.samples()? {
            let more = r#", "project": {"app_root": "/tmp/app", "flow": null}"#;
            is_success(&trial.ask(&sample.operation, &sample.args, more).await?, &sample.operation)?;
        }
        Ok(())
    }

    async fn handshake(trial: On<'_, '_>) -> Verdict {
        let json = trial.handshake().await?;
        match (json["ok"] == true, json["enforcement"].as_str()) {
            // The real client goes on with no other word.
            (true, Some("enforced")) => Ok(()),
            _ => fail("expected ok:true and enforcement \"enforced\""),
        }
    }

    async fn guarantees(trial: On<'_, '_>) -> Verdict {
        let json = trial.handshake().await?;
        let supported = &json["supported_guarantees"];
        if let Some(missing) = Guarantee::ALL.iter().find(|known| !supported[known.name()].is_boolean()) {
            return fail(format!("supported_guarantees.{}: expected true or false", missing.name()));
        }
        if supported["secrets_allowed"].is_array() {
            return Ok(());
        }
        fail("supported_guarantees.secrets_allowed: expected a list")
    }

    /// A call is answered in its time; of a service, one that cannot be, with an error.
    async fn timeout(trial: On<'_, '_>) -> Verdict {
        if let (Some(slow), true) = (trial.plan.slow.clone(), trial.host.is_service()) {
            let text = request(trial, &slow.operation, &slow.args, "");
            let text = text.replacen("\"timeout_ms\": 10000", "\"timeout_ms\": 200", 1);
            let start = Instant::now();
            is_error(&trial.raw(&slow.operation, &text).await?)?;
            return match start.elapsed() {
                took if took < Duration::from_secs(2) => Ok(()),
                took => fail(format!("timeout_ms was 200, and the answer took {took:?}")),
            };
        }
        for sample in trial.samples()? {
            trial.ask(&sample.operation, &sample.args, "").await?;
        }
        Ok(())
    }
}
