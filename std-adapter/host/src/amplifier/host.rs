//! The host that calls Amplifier modules, over lines and over HTTP.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rigline::json::{Json, JsonKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::descriptor::KindName;
use super::error::{CallError, bad};
use super::lines::{Lines, Request};
use rigline::ModuleKind;

use super::{EventLog, EventRecord, ModuleError};
use crate::host as rigline_host;
use crate::host::wire::{self, Connect};
use crate::http_client::{self, Bounds, Credentials, HttpError};
use crate::target::Target;
use rigline_std::clock::to_millis;

/// How soon `health` must be answered: 2 s.
pub(crate) const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// A host that calls one module.
#[derive(Debug)]
pub struct Host {
    place: ModuleLocation,
    /// The time limit of an invocation [default: 30 s].
    pub timeout: Duration,
    /// The time for which the host waits beyond [`timeout`](Self::timeout), so that a `timeout`
    /// error of the module can arrive [default: 2 s]. Any other answer in this time is
    /// [`CallError::Late`].
    pub grace: Duration,
    /// The longest accepted reply, in bytes [default: 16 MiB].
    pub limit: usize,
    /// The id of the session that invocations belong to. `None` if the host has no sessions.
    pub session_id: Option<String>,
    /// The log that gets an event for each invocation. `None` writes none.
    pub events: Option<Arc<EventLog>>,
    module: Option<String>,
    is_device: bool,
}

/// The place where a host reaches a module.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModuleLocation {
    /// The module reads and writes lines. It is a program, or is behind a serial port or a socket.
    Lines(Lines),
    /// The module is an HTTP server.
    Http {
        /// The address of the server. Paths such as `/invoke` are added to it.
        url: String,
        /// The credentials that each request carries.
        credentials: Credentials,
    },
}

/// The answer of a module to a request for its description.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The name of the module.
    pub name: String,
    /// The version of the module.
    pub version: String,
    /// The kind of module, such as a tool.
    #[serde(with = "KindName")]
    pub kind: ModuleKind,
    /// The names of the module's operations.
    pub capabilities: Vec<String>,
    /// The JSON Schema of each operation's arguments, by the name of the operation.
    #[serde(default)]
    pub inputs: Map<String, Value>,
    /// The JSON Schema of each operation's result, by the name of the operation.
    #[serde(default)]
    pub outputs: Map<String, Value>,
}

/// The answer to an invocation: the result as JSON text with all digits, or the error of the
/// module.
pub type InvocationResult = Result<String, ModuleError>;

impl Host {
    /// A host of the module at `target`. The connection is opened by the first call.
    pub fn new(target: &Target, options: &rigline_host::Options) -> Result<Self, CallError> {
        match target {
            // The address with the path of a call, which is what servers print and documents show, means the same server.
            Target::Http(url) => {
                let base = url.trim_end_matches('/');
                let url = base.strip_suffix("/invoke").unwrap_or(base).to_owned();
                Ok(Self::at(ModuleLocation::Http { url, credentials: options.credentials.clone() }))
            }
            target => {
                let dialer = wire::dialer(target, options).map_err(CallError::Connect)?;
                Ok(Self::over(dialer, target, options))
            }
        }
    }

    /// A host over what `dialer` opens, which leads to `target`.
    pub(crate) fn over(dialer: Box<dyn Connect>, target: &Target, options: &rigline_host::Options) -> Self {
        let is_device = matches!(target, Target::Serial(_) | Target::Tcp(_));
        Self { is_device, ..Self::at(ModuleLocation::Lines(Lines::new(dialer).with_options(options))) }
    }

    /// The same, with a connection to it that is open. All that was asked on it has been answered.
    pub(crate) fn on(self, connection: rigline_host::Connection) -> Self {
        match self.place {
            ModuleLocation::Lines(lines) => Self { place: ModuleLocation::Lines(lines.on(connection)), ..self },
            ModuleLocation::Http { .. } => self,
        }
    }

    /// A host of the module at `place`, with the default limits.
    pub fn at(place: ModuleLocation) -> Self {
        Self {
            place,
            timeout: default_timeout(),
            grace: Duration::from_secs(2),
            limit: 16 << 20,
            session_id: None,
            events: None,
            module: None,
            is_device: false,
        }
    }

    /// Returns the place of the module.
    pub fn place(&self) -> &ModuleLocation {
        &self.place
    }

    /// Whether at the other end is a device, most likely, which has memory for messages of so many bytes and no more.
    pub(crate) fn is_device(&self) -> bool {
        self.is_device
    }

    /// Asks the module whether it is well. The time limit is 2 s.
    pub async fn health(&mut self) -> Result<(), CallError> {
        let answer = self.ask("health", None, HEALTH_TIMEOUT).await?;
        let json = object(&answer)?;
        match json.get("status").and_then(|status| status.text()) {
            Some(status) if status == "ok" => Ok(()),
            _ => Err(bad("health must answer {\"status\":\"ok\"}", &answer)),
        }
    }

    /// Asks the module for its description.
    pub async fn describe(&mut self) -> Result<Description, CallError> {
        self.describe_as_text().await.map(|(description, _)| description)
    }

    /// As [`describe`](Self::describe), with the JSON text of the answer, in which numbers have all their digits.
    pub(crate) async fn describe_as_text(&mut self) -> Result<(Description, String), CallError> {
        let answer = self.ask("describe", None, self.timeout).await?;
        let description: Description =
            serde_json::from_str(&answer).map_err(|error| bad(error.to_string(), &answer))?;
        self.module = Some(description.name.clone());
        Ok((description, answer))
    }

    /// Invokes the operation `op` with the arguments `args`, the text of a JSON object.
    ///
    /// The invocation is written to [`events`](Self::events) as `module:invoke`. If the module
    /// refuses it as forbidden, a `policy:decision` follows.
    pub async fn invoke(&mut self, op: &str, args: &str) -> Result<InvocationResult, CallError> {
        if !Json::parse(args.as_bytes()).is_ok_and(|json| json.kind() == JsonKind::Object) {
            return Err(CallError::Arguments);
        }
        let start = Instant::now();
        let mut answer = self.ask(op, Some(args), self.timeout.saturating_add(self.grace)).await;
        if let Err(CallError::Timeout { limit, .. }) = &mut answer {
            *limit = self.timeout;
        }
        let took = match &self.place {
            ModuleLocation::Lines(lines) => lines.since_request(),
            ModuleLocation::Http { .. } => start.elapsed(),
        };
        let invocation = answer.and_then(|answer| read(&answer)).and_then(|invocation| match &invocation {
            // The module noticed in time that the time was over; its error was on its way.
            Err(error) if error.code == "timeout" => Ok(invocation),
            _ if took > self.timeout => Err(CallError::Late { took, limit: self.timeout }),
            _ => Ok(invocation),
        });
        self.tell(op, start, &invocation)?;
        invocation
    }

    /// Ends a call whose future was dropped. A program gets SIGTERM and then SIGKILL; any other
    /// connection of lines is closed, and the next call opens a new one. Over HTTP there is nothing
    /// to end: the request was cut off when the future was dropped.
    pub async fn abandon_call(&mut self) {
        if let ModuleLocation::Lines(lines) = &mut self.place {
            lines.end().await;
        }
    }

    /// Closes the connection. A program is ended.
    pub async fn close(self) {
        if let ModuleLocation::Lines(lines) = self.place {
            lines.close().await;
        }
    }

    /// Sends the text of one request as it is, and returns the text of the answer. Conformance
    /// cases use it.
    pub async fn raw(&mut self, path: &str, text: &str, limit: Duration) -> Result<String, CallError> {
        let most = self.limit;
        match &mut self.place {
            ModuleLocation::Http { url, credentials } => {
                let url = format!("{}/{path}", url.trim_end_matches('/'));
                let bounds = Bounds { timeout: limit, limit: most };
                let answer = http_client::post(&url, Some(credentials), text.as_bytes().to_vec(), bounds).await;
                match answer {
                    Ok(answer) => String::from_utf8(answer).map_err(|error| bad(error.to_string(), "")),
                    Err(HttpError::Timeout { limit }) => {
                        Err(CallError::Timeout { limit, waited: limit, hint: None, odd: None, stderr: String::new() })
                    }
                    Err(error) => Err(CallError::Http(error)),
                }
            }
            ModuleLocation::Lines(lines) => lines.ask(&Request::Raw(text), limit, most).await,
        }
    }

    async fn ask(&mut self, op: &str, args: Option<&str>, limit: Duration) -> Result<String, CallError> {
        let session = self.session_id.as_ref().map(|id| format!(",\"session_id\":{}", Value::from(id.as_str())));
        let session = session.unwrap_or_default();
        let input = args.map(|args| format!("\"op\":{},\"args\":{args}{session}", Value::from(op)));
        let most = self.limit;
        match (&mut self.place, input) {
            (ModuleLocation::Http { .. }, Some(input)) => self.raw("invoke", &format!("{{{input}}}"), limit).await,
            (ModuleLocation::Http { .. }, None) => self.raw(op, "{}", limit).await,
            (ModuleLocation::Lines(lines), Some(input)) => {
                // The short form would be taken for the protocol's own operation.
                let nested = matches!(op, "health" | "describe" | "invoke");
                lines.ask(&Request::Invoke { nested, input: &input }, limit, most).await
            }
            (ModuleLocation::Lines(lines), None) => {
                let request = if op == "health" { Request::Health } else { Request::Describe };
                lines.ask(&request, limit, most).await
            }
        }
    }

    fn tell(&self, op: &str, start: Instant, invocation: &Result<InvocationResult, CallError>) -> io::Result<()> {
        let Some(events) = &self.events else { return Ok(()) };
        let error = match invocation {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.clone()),
            Err(error) => Some(ModuleError {
                code: match error {
                    CallError::Timeout { .. } | CallError::Late { .. } => "timeout",
                    CallError::Connect(_) | CallError::Gone { .. } | CallError::Http(_) => "unreachable",
                    CallError::TooLong { .. } => "oom",
                    CallError::Arguments => "bad_request",
                    CallError::Bad { .. } | CallError::Io(_) => "internal",
                }
                .into(),
                message: error.to_string(),
                details: None,
                details_text: None,
                kind: None,
            }),
        };
        let data = |name: &str| Some([(name.to_owned(), Value::from(op))].into_iter().collect());
        let (request_id, span_id) = (Some(new_id()), Some(new_id()));
        let module = Some(self.module.clone().unwrap_or_else(|| self.place.name()));
        let is_forbidden = error.as_ref().is_some_and(|error| error.code == "forbidden");
        if is_forbidden {
            events.write(&EventRecord {
                module: module.clone(),
                status: Some("denied".into()),
                data: data("capability"),
                error: error.clone(),
                session_id: self.session_id.clone(),
                request_id: request_id.clone(),
                span_id: span_id.clone(),
                ..EventRecord::now("policy:decision", "rigline")
            })?;
        }
        events.write(&EventRecord {
            module,
            status: Some(if error.is_none() { "ok" } else { "error" }.into()),
            duration_ms: Some(to_millis(start.elapsed())),
            data: data("op"),
            error,
            session_id: self.session_id.clone(),
            request_id,
            span_id,
            ..EventRecord::now("module:invoke", "rigline")
        })
    }
}

pub(super) const fn default_timeout() -> Duration {
    rigline::protocol::amplifier::TIMEOUT
}

impl ModuleLocation {
    fn name(&self) -> String {
        match self {
            Self::Lines(lines) => lines.name(),
            Self::Http { url, .. } => url.clone(),
        }
    }
}

fn object(answer: &str) -> Result<Json<'_>, CallError> {
    let json = Json::parse(answer.as_bytes()).map_err(|error| bad(error.to_string(), answer))?;
    if json.kind() == JsonKind::Object { Ok(json) } else { Err(bad("expected an object", answer)) }
}

/// Reads what an invocation answers.
fn read(answer: &str) -> Result<InvocationResult, CallError> {
    let json = object(answer)?;
    match json.get("ok").and_then(|ok| ok.bool()) {
        Some(true) => match json.get("result") {
            Some(result) => Ok(Ok(result.as_str().to_owned())),
            None => Err(bad("result: required, but missing", answer)),
        },
        Some(false) => Ok(Err(failure(json.get("error").unwrap_or(Json::NULL)))),
        None => Err(bad("ok: expected true or false", answer)),
    }
}

/// The error of a module; one in another shape than §4's is a failure all the same, with the best text there is.
fn failure(error: Json<'_>) -> ModuleError {
    let details = error.get("details").filter(|details| details.kind() == JsonKind::Object);
    let details_text = details.map(|details| details.as_str().to_owned());
    if let Ok(error) = ModuleError::parse(error.as_bytes()) {
        return ModuleError { details_text, ..error };
    }
    let plain = |value: Json<'_>| value.text().map_or_else(|| value.as_str().to_owned(), |text| text.to_string());
    let member = |name: &str| error.get(name).filter(|value| !value.is_null()).map(plain);
    let message = match error.is_null() {
        true => "it failed without a reason".to_owned(),
        false => member("message").unwrap_or_else(|| plain(error)),
    };
    let details = details_text.as_ref().and_then(|details| serde_json::from_str(details).ok());
    let code = member("code").unwrap_or_else(|| "internal".to_owned());
    ModuleError { code, message, details, details_text, kind: None }
}
