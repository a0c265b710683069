//! The host: runs tools of a project, as namel3ss does.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rigline::Guarantee;
use rigline::json::Json;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use super::project::{Project, Resolved, Source};
use super::reply::{CapabilityCheck, Reply};
use super::runners::{Output, Program, RunError};
use super::trace::Trace;
use super::{Binding, Runner, redirects};
use crate::http_client::{self, Bounds, Credentials, HttpError};
use crate::process;
use crate::target::Target;
use rigline_std::clock::to_millis;

/// The time limit where nothing says any: "Timeouts".
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time limit: a year. Clocks are finite.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The code that the real host passes to its interpreter: the tool side of its package.
const PYTHON_RUNNER: &str = "from namel3ss.runtime.tools.python_subprocess import _RUNNER\nexec(_RUNNER)\n";

/// The command of a container whose binding names none.
const CONTAINER_COMMAND: [&str; 3] = ["python", "-m", "namel3ss_tools.runner"];

const PROTOCOL_VERSION: u32 = rigline::protocol::namel3ss::VERSION;

/// A host that runs the tools of a project.
///
/// Tools of the local runner are started as namel3ss starts them: `PYTHON -c SOURCE`, with the
/// project on Python's path. [`python`](Self::python) may be any program that answers in the same
/// way.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Host {
    /// The project whose tools run.
    pub project: Project,
    /// The interpreter of local tools [default: that of the project's `.venv`, or `python3`].
    pub python: Option<PathBuf>,
    /// The arguments that the interpreter gets before `-c SOURCE`.
    pub python_args: Vec<String>,
    /// Whether the interpreter is `rigline bridge`. If it then ends without an answer, the error is
    /// about the device behind it.
    pub is_bridge: bool,
    /// The longest accepted reply, in bytes [default: 16 MiB].
    pub limit: usize,
    /// The credentials that each request to a service carries.
    pub credentials: Credentials,
    package_root: OnceCell<Option<PathBuf>>,
}

/// The parameters of a call of a tool.
#[derive(Debug, Clone, Default)]
pub struct ToolCall {
    /// The name of the tool.
    pub tool: String,
    /// The arguments, as the text of a JSON object.
    pub payload: String,
    /// The time limit, if the binding of the tool has none.
    pub timeout: Option<Duration>,
    /// The name of the flow (a namel3ss program) that calls. `None` if no flow does.
    pub flow: Option<String>,
    /// The identifier of the call in traces [default: a new one].
    pub trace_id: Option<String>,
}

/// The result of a call that the tool has answered.
#[derive(Debug)]
#[non_exhaustive]
pub struct ToolOutcome {
    /// The result as JSON text, or the error that the tool reported.
    pub result: Result<String, ToolError>,
    /// The trace record of the call.
    pub trace: Trace,
    /// The last lines of the program's standard error.
    pub stderr: String,
}

/// An error that a tool reports, or that prevents the tool from running.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolError {
    /// The kind of error, such as `ValueError`.
    pub error_type: String,
    /// The description of the error.
    pub message: String,
    /// The reason, as a word such as `guarantee_blocked`. `None` if none is given.
    pub reason_code: Option<String>,
    /// The kind of failure, as rigline's own tools add it where the error type does not tell.
    pub kind: Option<String>,
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.message)
    }
}

impl std::error::Error for ToolError {}

impl Host {
    /// A host for a project, with the default settings.
    pub fn new(project: Project) -> Self {
        Self {
            project,
            python: None,
            python_args: Vec::new(),
            is_bridge: false,
            limit: 16 << 20,
            credentials: Credentials::default(),
            package_root: OnceCell::new(),
        }
    }

    /// A host of the tools behind a program or an HTTP service, whatever their names are. Returns
    /// `None` for other kinds of target.
    pub fn of_target(target: &Target) -> Option<Self> {
        let mut host = Self::new(Project::of_one(None));
        match target {
            Target::Http(url) => host.project = Project::of_one(Some(url.clone())),
            Target::Exec(exec) => {
                // What is looked for in PATH must not be looked for in the tool's folder.
                host.python = Some(which::which(&exec.program).unwrap_or_else(|_| exec.program.clone().into()));
                host.python_args.clone_from(&exec.args);
            }
            Target::Sim => {
                host.python = Some(process::sim_program().unwrap_or_else(|_| process::SIM_COMMAND.into()));
                host.python_args = ["rig", "--protocol", "namel3ss"].map(str::to_owned).to_vec();
            }
            _ => return None,
        }
        Some(host)
    }

    /// Runs a tool. The trace record is always returned. An `Err` is an error that the tool has not
    /// reported itself.
    pub async fn call(&self, call: &ToolCall) -> (Result<ToolOutcome, RunError>, Trace) {
        let start = Instant::now();
        let mut trace = Trace {
            record: "tool_call",
            tool: call.tool.clone(),
            tool_name: call.tool.clone(),
            trace_id: call.trace_id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            protocol_version: PROTOCOL_VERSION,
            ..Trace::default()
        };
        let result = self.run(call, &mut trace).await;
        trace.duration_ms = to_millis(start.elapsed());
        let fault = match &result {
            Ok((Ok(_), _)) => None,
            Ok((Err(error), _)) => Some((error.error_type.clone(), error.message.clone())),
            Err(error) => Some((error.error_type().to_owned(), error.to_string())),
        };
        trace.status = if fault.is_some() { "error" } else { "ok" };
        (trace.error_type, trace.error_message) = fault.unzip();
        let result = result.map(|(result, stderr)| ToolOutcome { result, trace: trace.clone(), stderr });
        (result, trace)
    }

    /// Sends the text of one request to the target of [`of_target`](Self::of_target), and returns
    /// the text of the answer. Conformance cases use it.
    pub async fn raw(&self, text: &str) -> Result<String, RunError> {
        let Some(binding) = &self.project.fallback else {
            return Err(RunError::Binding("a project's tools are called by their names".into()));
        };
        if let Some(url) = &binding.url {
            return self.post(url, text).await;
        }
        let python = self.python.clone().unwrap_or_else(|| "python3".into());
        let program = Program {
            program: python.as_os_str(),
            args: self.python_args.iter().cloned().chain(["-c".into(), PYTHON_RUNNER.into()]).collect(),
            folder: &self.project.app_root,
            env: Vec::new(),
            timeout: self.raw_timeout(),
            limit: self.limit,
        };
        let Output { stdout, stderr, status } = program.run(text.as_bytes().to_vec()).await?;
        match status {
            Some(status) if !status.success() && stdout.trim_ascii().is_empty() => Err(self.crash(status, stderr)),
            _ => Ok(String::from_utf8_lossy(&stdout).into_owned()),
        }
    }

    /// Whether [`raw`](Self::raw) goes to a service.
    pub(crate) fn is_service(&self) -> bool {
        self.project.fallback.as_ref().is_some_and(|binding| binding.url.is_some())
    }

    /// [`raw`](Self::raw), for a service's handshake; none if it is not a service.
    pub(crate) async fn raw_handshake(&self, text: &str) -> Option<Result<String, RunError>> {
        let url = self.project.fallback.as_ref()?.url.as_ref()?;
        let address = match redirects::with_path(url, "/capabilities/handshake") {
            Ok(address) => address,
            Err(source) => return Some(Err(RunError::Service { url: url.clone(), source })),
        };
        Some(self.post(&address, text).await)
    }

    fn raw_timeout(&self) -> Duration {
        self.project.settings.python_tools.timeout_seconds.map_or(TIMEOUT, duration)
    }

    async fn post(&self, url: &str, text: &str) -> Result<String, RunError> {
        let bounds = Bounds { timeout: self.raw_timeout() + Duration::from_secs(1), limit: self.limit };
        let answer = http_client::post(url, Some(&self.credentials), text.as_bytes().to_vec(), bounds).await;
        let answer = answer.map_err(|source| RunError::Service { url: url.into(), source })?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// The meaning of a program's end without an answer.
    fn crash(&self, status: ExitStatus, stderr: String) -> RunError {
        if self.is_bridge
            && let Some(code) = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 1)
        {
            let said = stderr.find("rigline: ").and_then(|at| stderr.get(at + "rigline: ".len()..));
            return RunError::Device { text: said.unwrap_or(&stderr).trim_end().to_owned(), code };
        }
        RunError::Crash { status, stderr }
    }

    async fn run(&self, call: &ToolCall, trace: &mut Trace) -> Result<(Result<String, ToolError>, String), RunError> {
        let Some(resolved) = self.project.resolve(&call.tool) else {
            if let Some(pack) = self.project.unavailable.get(&call.tool) {
                let (tool, pack) = (call.tool.clone(), pack.clone());
                return Err(RunError::UnavailablePack { tool, pack });
            }
            if BUILT_IN.contains(&call.tool.as_str()) {
                return Err(RunError::BuiltIn { tool: call.tool.clone() });
            }
            return Err(RunError::UnknownTool { tool: call.tool.clone(), suggestion: self.like(&call.tool) });
        };
        let payload = if call.payload.trim().is_empty() { "{}" } else { call.payload.as_str() };
        match Json::parse(payload.as_bytes()) {
            Ok(json) if json.kind() == rigline::json::JsonKind::Object => {}
            _ => return Err(RunError::Binding("the payload must be a JSON object".into())),
        }
        if resolved.binding.kind == "node" || resolved.runner == Runner::Node {
            return Err(RunError::Binding(format!("{:?} is a tool of kind node, which is not supported", call.tool)));
        }
        let timeout = self.timeout(call, resolved.binding);
        let guarantees = self.guarantees(&call.tool);
        describe(trace, &resolved, timeout);
        if let Some(error) = self.preflight(&resolved, &guarantees, trace) {
            return Ok((Err(error), String::new()));
        }
        let call = Run { host: self, resolved, payload, flow: call.flow.as_deref(), timeout, guarantees };
        match call.resolved.runner {
            Runner::Local => call.local(trace).await,
            Runner::Service => call.service(trace).await.map(|result| (result, String::new())),
            Runner::Container => call.container(trace).await,
            Runner::Unknown | Runner::Node => Err(RunError::Binding(format!(
                "the tool {:?} has an unknown runner; expected local, service or container",
                call.resolved.tool
            ))),
        }
    }

    fn timeout(&self, call: &ToolCall, binding: &Binding) -> Duration {
        binding
            .timeout_ms
            .map(Duration::from_millis)
            .or_else(|| binding.timeout_seconds.map(duration))
            .or(call.timeout)
            .unwrap_or_else(|| self.raw_timeout())
            .min(LONGEST)
    }

    fn guarantees(&self, tool: &str) -> Guarantees {
        let mut guarantees = Guarantees::default();
        let Some(overrides) = self.project.settings.capability_overrides.get(tool) else { return guarantees };
        for guarantee in Guarantee::ALL {
            if overrides.get(guarantee.name()) == Some(&Value::Bool(true)) {
                guarantees.required.push(guarantee);
            }
        }
        if let Some(Value::Array(secrets)) = overrides.get("secrets_allowed") {
            guarantees.secrets = Some(secrets.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect());
        }
        guarantees.allow_unsafe = overrides.get("allow_unsafe_execution") == Some(&Value::Bool(true));
        guarantees
    }

    /// Why a tool must not run: its runner cannot enforce the guarantees, by the real host's rules.
    fn preflight(&self, resolved: &Resolved<'_>, guarantees: &Guarantees, trace: &mut Trace) -> Option<ToolError> {
        let (missing, why) = match resolved.runner {
            Runner::Local if resolved.binding.sandbox != Some(true) => {
                (guarantees.capabilities(), "the local runner enforces them only in its sandbox (sandbox: true)")
            }
            Runner::Container if guarantees.required.contains(&Guarantee::NoSubprocess) => {
                (vec!["subprocess"], "a container is a separate process")
            }
            Runner::Container if resolved.binding.enforcement.is_none() => {
                (guarantees.capabilities(), "the binding does not declare that the container enforces it")
            }
            _ => return None,
        };
        if missing.is_empty() {
            return None;
        }
        if guarantees.allow_unsafe {
            trace.unsafe_override = true;
            return None;
        }
        trace.capability_checks = missing.iter().map(|name| CapabilityCheck::missing(name, Some("user"))).collect();
        Some(violation(format!("{} cannot be denied to the tool: {why}", missing.join(", "))))
    }

    fn like(&self, tool: &str) -> Option<String> {
        let plain = |name: &str| name.to_lowercase().replace(['_', '-'], " ");
        let wanted = plain(tool);
        let packs = self.project.packs.iter().flat_map(|(_, pack)| pack.entrypoints.keys());
        packs.chain(self.project.bindings.tools.keys()).find(|name| plain(name) == wanted).cloned()
    }
}

/// The tools that come with namel3ss itself.
const BUILT_IN: [&str; 13] = [
    "convert text to lowercase",
    "convert text to uppercase",
    "format date and time",
    "get current date and time",
    "get json from web",
    "parse date and time",
    "post json to web",
    "read json file",
    "read text file",
    "slugify text",
    "trim text",
    "write json file",
    "write text file",
];

/// The folder that contains the package namel3ss of the Python in `PATH`, if it has one.
async fn package_root() -> Option<PathBuf> {
    const SCRIPT: &str =
        "import importlib.util as u, pathlib as p\nprint(p.Path(u.find_spec('namel3ss').origin).parent.parent)";
    for python in ["python3", "python"] {
        let program = Program {
            program: python.as_ref(),
            args: vec!["-c".into(), SCRIPT.into()],
            folder: Path::new("."),
            env: Vec::new(),
            timeout: TIMEOUT,
            limit: 64 << 10,
        };
        if let Ok(Output { stdout, status: Some(status), .. }) = program.run(Vec::new()).await
            && status.success()
        {
            return Some(PathBuf::from(String::from_utf8_lossy(&stdout).trim()));
        }
    }
    None
}

/// Seconds that have been checked to be more than none.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
}

fn describe(trace: &mut Trace, resolved: &Resolved<'_>, timeout: Duration) {
    let binding = resolved.binding;
    trace.kind = Some(binding.kind.clone());
    trace.runner = Some(resolved.runner.name());
    trace.resolved_source = Some(resolved.source.name());
    trace.entry = (resolved.source == Source::Binding).then(|| binding.entry.clone());
    trace.timeout_ms = to_millis(timeout);
    if let Some(pack) = resolved.pack {
        trace.pack_id = Some(pack.id.clone());
        trace.pack_name = Some(pack.name.clone());
        trace.pack_version = Some(pack.version.clone());
    }
    if resolved.runner == Runner::Container {
        trace.container_enforcement.clone_from(&binding.enforcement);
    }
}

fn violation(message: String) -> ToolError {
    ToolError {
        error_type: "CapabilityViolation".into(),
        message,
        reason_code: Some("coverage_missing".into()),
        kind: None,
    }
}

/// The guarantees that a tool must keep.
#[derive(Debug, Default)]
struct Guarantees {
    required: Vec<Guarantee>,
    secrets: Option<Vec<String>>,
    allow_unsafe: bool,
}

impl Guarantees {
    fn capabilities(&self) -> Vec<&'static str> {
        let secrets = self.secrets.as_ref().map(|_| "secrets");
        self.required.iter().map(|guarantee| guarantee.capability()).chain(secrets).collect()
    }

    fn json(&self) -> Value {
        let mut guarantees: Map<String, Value> = Guarantee::ALL
            .into_iter()
            .map(|guarantee| (guarantee.name().to_owned(), self.required.contains(&guarantee).into()))
            .collect();
        if let Some(secrets) = &self.secrets {
            guarantees.insert("secrets_allowed".into(), secrets.clone().into());
        }
        guarantees.into()
    }

    fn sources(&self) -> Value {
        let names = self.required.iter().map(|guarantee| guarantee.name());
        let secrets = self.secrets.as_ref().map(|_| "secrets_allowed");
        names.chain(secrets).map(|name| (name.to_owned(), Value::from("user"))).collect::<Map<_, _>>().into()
    }
}

/// A call that is on its way.
struct Run<'a> {
    host: &'a Host,
    resolved: Resolved<'a>,
    payload: &'a str,
    flow: Option<&'a str>,
    timeout: Duration,
    guarantees: Guarantees,
}

type RunReply = Result<(Result<String, ToolError>, String), RunError>;

impl Run<'_> {
    async fn local(&self, trace: &mut Trace) -> RunReply {
        let app_root = &self.host.project.app_root;
        let (env, python) = self.interpreter();
        let sandbox = self.resolved.binding.sandbox == Some(true);
        trace.python_env = Some(env);
        trace.python_path = Some(python.display().to_string());
        trace.deps_source = Some(match () {
            () if app_root.join("pyproject.toml").exists() => "pyproject",
            () if app_root.join("requirements.txt").exists() => "requirements",
            () => "none",
        });
        trace.sandbox = Some(sandbox);
        let context = json!({
            "tool_name": self.resolved.tool,
            "resolved_source": self.resolved.source.name(),
            "runner": "local",
            "protocol_version": PROTOCOL_VERSION,
            "guarantees": self.guarantees.json(),
            "sources": self.guarantees.sources(),
        });
        let mut members = vec![("capability_context", context)];
        if sandbox {
            members.push(("sandbox", true.into()));
        }
        members.push(("trace_id", trace.trace_id.clone().into()));
        let mut path: Vec<PathBuf> = self.resolved.pack.map(|pack| pack.folder.clone()).into_iter().collect();
        path.push(app_root.clone());
        if env == "venv" {
            // A project's own environment need not have namel3ss: the real program puts its package root there, too.
            path.extend(self.host.package_root.get_or_init(package_root).await.clone());
        }
        path.extend(std::env::var_os("PYTHONPATH").iter().flat_map(std::env::split_paths));
        let path = std::env::join_paths(path).unwrap_or_else(|_| OsString::new());
        let program = Program {
            program: python.as_os_str(),
            args: self.host.python_args.iter().cloned().chain(["-c".into(), PYTHON_RUNNER.into()]).collect(),
            folder: app_root,
            env: vec![("PYTHONPATH".into(), path), ("PYTHONIOENCODING".into(), "utf-8".into())],
            timeout: self.timeout,
            limit: self.host.limit,
        };
        self.judge(program.run(self.request("tool", members)).await?, trace)
    }

    async fn container(&self, trace: &mut Trace) -> RunReply {
        let binding = self.resolved.binding;
        let Some(image) = &binding.image else {
            return Err(RunError::Binding(format!("the tool {:?} has no image", self.resolved.tool)));
        };
        let Some(runtime) = ["docker", "podman"].into_iter().find(|name| which::which(name).is_ok()) else {
            return Err(RunError::Binding("neither docker nor podman is in PATH".into()));
        };
        let command = binding.command.clone().unwrap_or_else(|| CONTAINER_COMMAND.map(str::to_owned).to_vec());
        trace.container_runtime = Some(runtime);
        trace.image = Some(image.clone());
        trace.command = Some(command.join(" "));
        let mut args: Vec<String> = ["run", "--rm", "-i"].map(str::to_owned).to_vec();
        for (name, value) in &binding.env {
            args.extend(["-e".into(), format!("{name}={value}")]);
        }
        args.push(image.clone());
        args.extend(command);
        let program = Program {
            program: runtime.as_ref(),
            args,
            folder: Path::new("."),
            env: Vec::new(),
            timeout: self.timeout,
            limit: self.host.limit,
        };
        self.judge(program.run(self.request("tool", Vec::new())).await?, trace)
    }

    async fn service(&self, trace: &mut Trace) -> Result<Result<String, ToolError>, RunError> {
        let settings = &self.host.project.settings.python_tools;
        let Some(url) = self.resolved.binding.url.as_ref().or(settings.service_url.as_ref()) else {
            return Err(RunError::Binding(format!("the tool {:?} has no url", self.resolved.tool)));
        };
        let fault = |source| RunError::Service { url: url.clone(), source };
        // The service has its own clock: the host's is late by a little, so that the service's own error wins.
        let bounds = Bounds { timeout: self.timeout + Duration::from_secs(1), limit: self.host.limit };
        let credentials = Some(&self.host.credentials);
        trace.service_url = Some(url.clone());
        let wants_handshake = settings.service_handshake_required == Some(true);
        trace.service_handshake = Some(wants_handshake);
        if wants_handshake {
            let address = redirects::with_path(url, "/capabilities/handshake").map_err(fault)?;
            let request = json!({
                "protocol_version": PROTOCOL_VERSION,
                "tool_name": self.resolved.tool,
                "runner": "service",
                "required_guarantees": self.guarantees.json(),
            });
            let answer =
                redirects::post_following(&address, credentials, request.to_string().into_bytes(), bounds).await;
            let answer = answer.map_err(|source| match source {
                HttpError::Connect { .. }
                | HttpError::Timeout { .. }
                | HttpError::Address { .. }
                | HttpError::Https { .. } => fault(source),
                source => RunError::Handshake { reason: source.to_string() },
            })?;
            if let Some(error) = self.judge_handshake(&answer, trace)? {
                return Ok(Err(error));
            }
        }
        let members = vec![
            ("kind", self.resolved.binding.kind.clone().into()),
            ("timeout_ms", trace.timeout_ms.into()),
            ("trace_id", trace.trace_id.clone().into()),
            ("project", json!({ "app_root": self.host.project.app_root, "flow": self.flow })),
        ];
        let body = self.request("tool_name", members);
        let started = Instant::now();
        let answer = redirects::post_following(url, credentials, body, bounds).await.map_err(fault)?;
        let is_late = started.elapsed() > self.timeout;
        let reply = Reply::parse(&answer).map_err(|source| RunError::Reply { source, stderr: String::new() })?;
        trace.capability_checks.extend(reply.capability_checks.unwrap_or_default());
        let is_timeout = reply.result.as_ref().is_err_and(|error| error.error_type == "TimeoutError");
        if is_late && !is_timeout {
            return Err(fault(HttpError::Timeout { limit: self.timeout }));
        }
        Ok(reply.result)
    }

    fn judge_handshake(&self, answer: &[u8], trace: &mut Trace) -> Result<Option<ToolError>, RunError> {
        let answer: Value = serde_json::from_slice(answer)
            .map_err(|error| RunError::Handshake { reason: format!("it is not JSON: {error}") })?;
        if !answer.is_object() {
            return Err(RunError::Handshake { reason: format!("expected a JSON object, found {answer:.40}") });
        }
        let enforcement = answer.get("enforcement").and_then(Value::as_str).unwrap_or("none").to_owned();
        let supported = answer.get("supported_guarantees").filter(|_| enforcement == "enforced");
        trace.enforcement_level = Some(enforcement);
        let mut missing: Vec<&str> = Vec::new();
        for guarantee in &self.guarantees.required {
            let is_kept = supported.and_then(|supported| supported.get(guarantee.name()));
            if is_kept.is_none_or(|kept| matches!(kept, Value::Null | Value::Bool(false))) {
                missing.push(guarantee.capability());
            }
        }
        if let Some(secrets) = &self.guarantees.secrets {
            let listed = supported.and_then(|supported| supported.get("secrets_allowed")).and_then(Value::as_array);
            if listed.is_none_or(|listed| !secrets.iter().all(|secret| listed.iter().any(|name| name == secret))) {
                missing.push("secrets");
            }
        }
        let is_rejected = answer.get("ok") == Some(&Value::Bool(false));
        if !is_rejected && missing.is_empty() {
            return Ok(None);
        }
        if self.guarantees.allow_unsafe {
            trace.unsafe_override = true;
            return Ok(None);
        }
        trace.capability_checks = missing.iter().map(|name| CapabilityCheck::missing(name, Some("user"))).collect();
        let said = answer.pointer("/error/message").and_then(Value::as_str);
        Ok(Some(violation(match said {
            Some(message) if is_rejected => message.to_owned(),
            _ if is_rejected => "Service handshake rejected.".into(),
            _ => format!("the service does not keep: {}", missing.join(", ")),
        })))
    }

    /// The request, its payload as it was given.
    fn request(&self, tool: &str, members: Vec<(&str, Value)>) -> Vec<u8> {
        let mut text = format!(
            "{{\"protocol_version\": {PROTOCOL_VERSION}, \"{tool}\": {}, \"entry\": {}, \"payload\": {}",
            Value::from(self.resolved.tool),
            Value::from(self.resolved.binding.entry.as_str()),
            self.payload,
        );
        for (name, value) in members {
            text += &format!(", \"{name}\": {value}");
        }
        text.push('}');
        text.into_bytes()
    }

    fn judge(&self, output: Output, trace: &mut Trace) -> RunReply {
        let Output { stdout, stderr, status } = output;
        // "Exit codes": a crash is neither a reply nor a success; with a reply, the code does not
        // matter.
        match status {
            Some(status) if !status.success() && stdout.trim_ascii().is_empty() => {
                return Err(self.host.crash(status, stderr));
            }
            _ => {}
        }
        match Reply::parse(&stdout) {
            Ok(reply) => {
                trace.capability_checks.extend(reply.capability_checks.unwrap_or_default());
                Ok((reply.result, stderr))
            }
            Err(source) => Err(RunError::Reply { source, stderr }),
        }
    }

    /// The interpreter, and its source.
    fn interpreter(&self) -> (&'static str, PathBuf) {
        if let Some(python) = &self.host.python {
            return ("system", python.clone());
        }
        let venv = self.host.project.app_root.join(if cfg!(windows) {
            ".venv/Scripts/python.exe"
        } else {
            ".venv/bin/python"
        });
        if venv.exists() { ("venv", venv) } else { ("system", "python3".into()) }
    }
}
