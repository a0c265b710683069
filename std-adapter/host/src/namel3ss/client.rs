//! namel3ss's protocol as a [`Client`].

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rigline::FailureKind;
use rigline::Guarantee;
use rigline::protocol::namel3ss;
use serde_json::{Value, json};

use super::{Host, HttpError, Project, RunError, Runner, ToolCall, ToolError};
use crate::client::{
    CallFailure, CallOutcome, CallRequest, Cause, Client, ClientError, ClientOptions, Description, Page, Part, Pending,
    Record, kind_named,
};
use crate::host::wire::{self, InUse};
use crate::http_client::Credentials;
use crate::process;
use crate::target::{Exec, Target};

struct Namel3ssClient {
    host: Host,
    /// The tool of the service.
    tool: Option<String>,
    required: Vec<Guarantee>,
    traces: Option<Record>,
    /// Whether trace records have the shape of namel3ss's own.
    has_real_traces: bool,
    /// A server is in use as long as this is there.
    _in_use: Option<InUse>,
}

/// A host of the tools at a target; of a folder, the tools of the project in it.
pub(super) fn host(target: &Target, credentials: Credentials) -> Result<Host, ClientError> {
    let mut host = match target {
        Target::Exec(Exec { program, args }) if args.is_empty() && Path::new(program).is_dir() => {
            let root = std::fs::canonicalize(program).unwrap_or_else(|_| program.into());
            Host::new(Project::load(&root, &[]).map_err(|error| ClientError::usage(error.to_string()))?)
        }
        target => match Host::of_target(target) {
            Some(host) => host,
            None => {
                // The protocol has a process for each call; this one goes to the device.
                let this = process::restart_path().map_err(|error| ClientError::usage(error.to_string()))?;
                let words = ["bridge", &target.to_string(), "--protocol", "namel3ss"].map(str::to_owned);
                let bridge = Exec { program: this.to_string_lossy().into_owned(), args: words.to_vec() };
                let mut host = Host::of_target(&Target::Exec(bridge))
                    .ok_or_else(|| ClientError::usage(format!("{target}: no namel3ss tool can be there")))?;
                host.is_bridge = true;
                host
            }
        },
    };
    host.credentials = credentials;
    Ok(host)
}

pub(super) fn connect(target: &Target, options: ClientOptions) -> Pending<'_, Result<Box<dyn Client>, ClientError>> {
    Box::pin(async move {
        let ClientOptions { host: connection, own, .. } = options;
        let in_use = wire::in_use(target, &connection).await?;
        let mut host = host(target, connection.credentials)?;
        if own.has("handshake") {
            host.project.settings.python_tools.service_handshake_required = Some(true);
        }
        let required = own.all("require").iter().map(|name| guarantee(name)).collect::<Result<Vec<_>, _>>()?;
        // Before the call, so that nothing runs if the record of it cannot be written.
        let traces = own.one("trace").map(|path| Record::append("trace", path)).transpose()?;
        let tool = own.one("tool").map(str::to_owned);
        let has_real_traces = own.one("trace-format") == Some("namel3ss");
        Ok(Box::new(Namel3ssClient { host, tool, required, traces, has_real_traces, _in_use: in_use })
            as Box<dyn Client>)
    })
}

fn guarantee(name: &str) -> Result<Guarantee, ClientError> {
    Guarantee::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
        let names = Guarantee::ALL.map(Guarantee::name).join(", ");
        ClientError::usage(format!("--require `{name}`: expected one of {names}"))
    })
}

impl Client for Namel3ssClient {
    fn describe<'a>(
        &'a mut self,
        about: Option<&'a str>,
        _limit: Duration,
    ) -> Pending<'a, Result<Description, ClientError>> {
        Box::pin(async move {
            if self.host.project.fallback.is_none() {
                return Ok(Description::Page(tools(&self.host.project)));
            }
            shake_hands(&self.host, self.tool.as_deref().or(about)).await.map(Description::Page)
        })
    }

    fn call<'a>(&'a mut self, request: &'a CallRequest) -> Pending<'a, Result<CallOutcome, ClientError>> {
        Box::pin(async move {
            if !self.required.is_empty() {
                let settings = &mut self.host.project.settings;
                let required = settings.capability_overrides.entry(request.operation.clone()).or_default();
                required.extend(self.required.iter().map(|guarantee| (guarantee.name().to_owned(), true.into())));
                // The local runner keeps guarantees in its sandbox only; a native program answers for itself.
                if let Some(binding) = &mut self.host.project.fallback {
                    binding.sandbox = Some(true);
                }
            }
            let call = ToolCall {
                tool: request.operation.clone(),
                payload: request.args.clone(),
                timeout: request.timeout,
                ..ToolCall::default()
            };
            let (result, trace) = self.host.call(&call).await;
            if let Some(file) = &mut self.traces {
                let output = result.as_ref().ok().and_then(|called| called.result.as_deref().ok());
                let line = match self.has_real_traces {
                    true => trace.to_namel3ss_line(&call.payload, output),
                    false => trace.to_line(),
                };
                let _ = file.write_all(line.as_bytes());
            }
            let called = result?;
            Ok(match called.result {
                Ok(result) => CallOutcome::of_result(result, called.stderr),
                Err(error) => failure(error, called.stderr),
            })
        })
    }

    fn carries_less(&self) -> &'static [Part] {
        // A service finishes what it has begun.
        if self.host.is_service() { &[Part::Cancel] } else { &[] }
    }

    fn record_fault(&mut self) -> Option<String> {
        self.traces.as_ref().and_then(Record::fault)
    }

    fn cancel(&mut self) -> Pending<'_, ()> {
        // A call's process ends with the call.
        Box::pin(std::future::ready(()))
    }

    fn close(self: Box<Self>) -> Pending<'static, Result<Option<String>, ClientError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

fn failure(error: ToolError, stderr: String) -> CallOutcome {
    let by_type = namel3ss::failure_kind(&error.error_type);
    let kind = error.kind.as_deref().and_then(kind_named).or(by_type).unwrap_or(FailureKind::Failed);
    let custom_code = by_type.is_none().then(|| error.error_type.clone());
    let outputs =
        error.reason_code.map_or_else(|| "{}".to_owned(), |reason| json!({ "reason_code": reason }).to_string());
    let code = Some(error.error_type.into());
    let failure = CallFailure { kind, code, custom_code, message: error.message };
    CallOutcome { outputs, is_message_output: true, failure: Some(failure), stderr, ..CallOutcome::default() }
}

impl From<RunError> for ClientError {
    fn from(error: RunError) -> Self {
        let cause = match &error {
            RunError::Timeout { .. } | RunError::Service { source: HttpError::Timeout { .. }, .. } => Cause::Timeout,
            RunError::UnknownTool { .. }
            | RunError::UnavailablePack { .. }
            | RunError::BuiltIn { .. }
            | RunError::Binding(_) => Cause::Usage,
            RunError::Device { code, .. } => Cause::Bridge(*code),
            _ => Cause::NoAnswer,
        };
        Self::new(cause, error)
    }
}

/// The answer of a service to the handshake.
async fn shake_hands(host: &Host, tool: Option<&str>) -> Result<Page, ClientError> {
    let none = || {
        ClientError::usage(
            "a namel3ss program cannot describe itself: use the folder of a project, or the URL of a service with --tool",
        )
    };
    let tool = tool.ok_or_else(none)?;
    let request = json!({
        "protocol_version": rigline::protocol::namel3ss::VERSION,
        "tool_name": tool,
        "runner": "service",
        "required_guarantees": {},
    });
    let answer = host.raw_handshake(&request.to_string()).await.ok_or_else(none)?;
    let answer = answer.map_err(|error| ClientError::new(Cause::NoAnswer, error))?;
    let value: Value = serde_json::from_str(&answer)
        .map_err(|error| ClientError::new(Cause::NoAnswer, format!("the handshake: {error}")))?;
    if value["ok"] == false {
        let why = value["error"]["message"].as_str().unwrap_or("the service refuses the handshake");
        return Err(ClientError::new(Cause::Refused, why));
    }
    let mut text = format!("{tool} {}\n", value["service_version"].as_str().unwrap_or("of no version"));
    text.push_str(&format!("enforcement: {}\n", value["enforcement"].as_str().unwrap_or("none")));
    for (name, kept) in value["supported_guarantees"].as_object().into_iter().flatten() {
        text.push_str(&format!("{name}: {kept}\n"));
    }
    Ok(Page { json: answer, text, ..Page::default() })
}

/// The tools of a project.
fn tools(project: &Project) -> Page {
    let own = project.bindings.tools.keys();
    let names = project.packs.iter().flat_map(|(_, pack)| pack.entrypoints.keys()).chain(own);
    let resolved: Vec<_> = names.filter_map(|name| project.resolve(name)).collect();
    let tools: Vec<Value> = resolved
        .iter()
        .map(|tool| {
            json!({
                "tool": tool.tool,
                "kind": tool.binding.kind,
                "entry": tool.binding.entry,
                "runner": tool.runner.name(),
                "resolved_source": tool.source.name(),
                "pack_id": tool.pack.map(|pack| &pack.id),
            })
        })
        .collect();
    let row = |tool: &super::Resolved<'_>| {
        let runs = match tool.runner {
            Runner::Service => tool.binding.url.clone(),
            Runner::Container => tool.binding.image.clone(),
            _ => None,
        };
        let from = tool.pack.map_or_else(|| tool.source.name().to_owned(), |pack| format!("pack {}", pack.id));
        let runs = runs.unwrap_or_else(|| tool.binding.entry.clone());
        vec![tool.tool.to_owned(), tool.runner.name().to_owned(), from, runs]
    };
    Page {
        json: json!({ "app_root": project.app_root, "tools": tools }).to_string(),
        text: format!("{}\n", project.app_root.display()),
        heads: &["tool", "runner", "from", "runs"],
        rows: resolved.iter().map(row).collect(),
    }
}
