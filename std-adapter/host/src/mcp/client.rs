//! MCP's client over lines and over HTTP. It opens a session of the legacy era, since a board
//! notices the end of such a session.
//!
//! The lines are those of the connection of the gevals host. It finds the reply among noise, logs,
//! echoes, incomplete lines and late replies. A `ping` of the server is answered, and its other
//! requests are refused.
//!
//! A small device answers `tools/list` in pages. They are merged here, since several clients read
//! only the first page.
//!
//! Replies stay JSON texts, so that their numbers keep all their digits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rigline::client::Request;
use rigline::json::{Json, JsonKind, RawJson};
use rigline::protocol::mcp;
use rigline::rpc;
use rigline::{FailureKind, Level, Phase};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::stream::{Farewells, HttpDialer};
use crate::client::{
    Beside, CallFailure, CallOutcome, CallRequest, Cause, Client, ClientError, ClientOptions, Described, Description,
    Part, Pending,
};
use crate::host::wire::{self, Connect, InUse};
use crate::host::{
    self, Completion, Connection, Event, EventKind, HostError, JsonObject, Listener, Log, Manifest, NO_LIMIT, Options,
    RequestError, RpcFailure, deadline,
};
use crate::lines::on_one_line;
use crate::target::Target;
use rigline_std::clock::to_millis;

/// The most pages of a list: a server whose cursor does not advance is noticed.
const MAX_PAGES: usize = 1000;

/// How long a notification may take to be written.
const NOTICE: Duration = Duration::from_secs(2);

/// The code with which the official kits end a request that takes too long.
const REQUEST_TIMEOUT: i32 = -32001;

/// The code for something that a request needs and the server does not have (Resources, Error Handling).
const RESOURCE_NOT_FOUND: i32 = -32002;

/// The member with the outputs of a failed call, in the results of rigline's own servers.
const INCOMPLETE_OUTPUTS: &str = "incompleteOutputs";

/// The tool of the safe state.
const ALL_OFF: &str = "all_off";

struct McpClient {
    dialer: Box<dyn Connect>,
    /// The ends of sessions over HTTP.
    farewells: Farewells,
    /// A server over HTTP is in use as long as this is there.
    _in_use: Option<InUse>,
    options: Arc<Options>,
    open: Option<Open>,
    /// The next progress token.
    next: u64,
    /// The operations of a server of rigline's that have other names than their tools, with these.
    renamed: HashMap<String, String>,
    /// The server has said that its tools are others.
    has_changed: Arc<AtomicBool>,
}

struct Open {
    connection: Connection,
    /// The result of `initialize`, once the session has begun. A caller may be gone before.
    server: Option<String>,
    /// A request whose caller has gone, or has not waited for long enough.
    pending: Option<u32>,
}

pub(super) fn connect(target: &Target, options: ClientOptions) -> Pending<'_, Result<Box<dyn Client>, ClientError>> {
    Box::pin(async move {
        let in_use = wire::in_use(target, &options.host).await?;
        let farewells = Farewells::default();
        let dialer: Box<dyn Connect> = match target {
            Target::Http(url) => {
                let (url, limit) = (url.clone(), options.host.line_limit);
                let (credentials, farewells) = (options.host.credentials.clone(), farewells.clone());
                Box::new(HttpDialer { url, credentials, limit, farewells })
            }
            _ => wire::dialer(target, &options.host)?,
        };
        let mut options = options.host;
        let has_changed = Arc::<AtomicBool>::default();
        let listener = options.listener.take().unwrap_or_else(|| Arc::new(|_: &Event| {}));
        options.listener = Some(with_logs(listener, Arc::clone(&has_changed)));
        let options = Arc::new(options);
        Ok(Box::new(McpClient { farewells, _in_use: in_use, ..McpClient::new(dialer, options, None, has_changed) })
            as Box<dyn Client>)
    })
}

/// A listener that gets what MCP's servers say in notifications as logs.
pub(crate) fn with_logs(listener: Listener, has_changed: Arc<AtomicBool>) -> Listener {
    Arc::new(move |event: &Event| {
        let EventKind::Notification { method, params } = &event.kind else { return listener(event) };
        match log_of(method, params) {
            Some(log) => {
                let extension = Arc::clone(&event.extension);
                listener(&Event { time: event.time, extension, kind: EventKind::Log(log) });
            }
            // This and the like say nothing to who calls once.
            None if method == "notifications/tools/list_changed" => has_changed.store(true, Ordering::Release),
            None if method.starts_with("notifications/") => {}
            None => listener(event),
        }
    })
}

/// The text of a log, or of the progress of a call.
fn log_of(method: &str, params: &Value) -> Option<Log> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match method {
        "notifications/message" => {
            let level = match params["level"].as_str().unwrap_or_default() {
                "debug" => Level::Debug,
                "notice" | "warning" => Level::Warn,
                "error" | "critical" | "alert" | "emergency" => Level::Error,
                _ => Level::Info,
            };
            let data = &params["data"];
            Some(match data.get("message") {
                Some(message) => {
                    let data = beside_message(data);
                    Log { level, level_name: None, message: text(message), data, data_text: None }
                }
                None => Log { level, level_name: None, message: text(data), data: None, data_text: None },
            })
        }
        "notifications/progress" => {
            let message = params.get("message").map(text).unwrap_or_default();
            let data = json!({ "progress": params["progress"], "total": params["total"] });
            Some(Log { level: Level::Info, level_name: None, message, data: Some(data), data_text: None })
        }
        _ => None,
    }
}

/// The data of a log beside its message. Servers of rigline's have it in the member `data`. What other servers have
/// in members of their own is all of it.
fn beside_message(data: &Value) -> Option<Value> {
    let members = data.as_object()?;
    if members.keys().all(|name| name == "message" || name == "data") {
        return members.get("data").cloned();
    }
    let is_said = |name: &str, value: &Value| name == "message" && value.is_string();
    let others = members.iter().filter(|(name, value)| !is_said(name, value));
    Some(others.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn no_answer(text: impl Into<String>) -> ClientError {
    ClientError::new(Cause::NoAnswer, text.into())
}

/// An answer to a request: its result, or its error, as JSON.
type Reply = Result<String, String>;

impl McpClient {
    fn new(dialer: Box<dyn Connect>, options: Arc<Options>, open: Option<Open>, has_changed: Arc<AtomicBool>) -> Self {
        let farewells = Farewells::default();
        Self { dialer, farewells, _in_use: None, options, open, next: 1, renamed: HashMap::new(), has_changed }
    }

    async fn open(&mut self, limit: Duration) -> Result<(), ClientError> {
        if self.open.as_ref().is_some_and(|open| open.server.is_some() && open.connection.ended().is_none()) {
            return Ok(());
        }
        self.hang_up().await;
        let wire = wire::open(&*self.dialer, &self.options, self.options.wait).await?;
        let connection = Connection::open(wire, &self.dialer.name(), &self.options);
        let open = self.open.insert(Open { connection, server: None, pending: None });
        let server = match begin(&open.connection, &self.options, deadline(Instant::now(), limit)).await {
            Ok(server) => server,
            Err(error) => {
                self.hang_up().await;
                return Err(match error {
                    // The settings are arguments of the command.
                    HostError::Refused { error, .. } if self.options.config.is_some() && error.code == Some(-32602) => {
                        ClientError::usage(error.message)
                    }
                    HostError::Refused { error, .. } => no_answer(format!("initialize was refused: {}", error.message)),
                    error => error.into(),
                });
            }
        };
        self.notify("notifications/initialized", None).await?;
        self.open.iter_mut().for_each(|open| open.server = Some(server.clone()));
        Ok(())
    }

    async fn notify(&mut self, method: &str, params: Option<Value>) -> Result<(), ClientError> {
        let mut message = json!({ "jsonrpc": "2.0", "method": method });
        if let Some(params) = params {
            message["params"] = params;
        }
        let Some(open) = &self.open else { return Err(no_answer("the connection is closed")) };
        let sent = open.connection.notify(format!("{message}\n").into_bytes(), deadline(Instant::now(), NOTICE)).await;
        sent.map_err(|error| open.connection.error(error, method, NOTICE).into())
    }

    /// Sends a request and waits for its reply. Notifications go to the listener. A request that was given up is cancelled before.
    async fn ask(&mut self, method: &str, params: &str, limit: Duration) -> Result<Reply, ClientError> {
        self.cancel_pending().await?;
        let Some(open) = &mut self.open else { return Err(no_answer("the connection is closed")) };
        let Open { connection, pending, .. } = open;
        let mut params = params.as_bytes().to_vec();
        let params = RawJson::from_checked(&mut params).map_err(|error| ClientError::usage(error.to_string()))?;
        let request = Request::Other { method, params };
        let given_up = deadline(Instant::now(), limit);
        let asked = connection.request_as(&request, request.measure(), given_up, |id| *pending = Some(id)).await;
        let completion = match asked {
            Ok(completion) => completion,
            // It may still be at it.
            Err(error) => {
                let is_late = matches!(error, RequestError::Late);
                let error = connection.error(error, method, limit).into();
                if is_late {
                    self.cancel().await;
                }
                return Err(error);
            }
        };
        *pending = None;
        match completion {
            Completion::Answer(host::OwnedReply::Result(result)) => Ok(Ok(result)),
            Completion::Answer(host::OwnedReply::Error(_, error)) => Ok(Err(error)),
            completion => Err(connection.completion_error(completion, limit).into()),
        }
    }

    /// Has the server give up a request that nobody waits for any more.
    async fn cancel_pending(&mut self) -> Result<(), ClientError> {
        if let Some(id) = self.open.as_ref().and_then(|open| open.pending) {
            self.notify("notifications/cancelled", Some(json!({ "requestId": id }))).await?;
            self.open.iter_mut().for_each(|open| open.pending = None);
        }
        Ok(())
    }

    /// A boolean member of `_meta` in which a server of rigline's describes itself; none if the server is another's, or has no such member.
    fn says(&self, name: &str) -> Option<bool> {
        let server = self.open.as_ref().and_then(|open| open.server.as_deref());
        server.and_then(|server| view(server).get("_meta")?.get(name)?.bool())
    }

    /// Whether the server reads what only other protocols have from `_meta`.
    fn is_own(&self) -> bool {
        self.says(mcp::CARRIES_NAME) == Some(true)
    }

    /// Whether the server is one of rigline's, be it the extension's own or one in front of another extension.
    fn is_of_rigline(&self) -> bool {
        self.says(mcp::CARRIES_NAME).is_some()
    }

    /// All tools, of all pages.
    async fn tools(&mut self, limit: Duration) -> Result<Vec<String>, ClientError> {
        let (mut tools, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map_or_else(|| "{}".to_owned(), |cursor| format!("{{\"cursor\":{cursor}}}"));
            let page = self.ask("tools/list", &params, limit).await?;
            let page = page.map_err(|error| no_answer(format!("tools/list: {}", message_of(&error))))?;
            let page = view(&page);
            let listed = page.get("tools").unwrap_or(Json::NULL);
            tools.extend(listed.elements().map(|tool| tool.as_str().to_owned()));
            match page.get("nextCursor").filter(|next| !next.is_null()).map(|next| next.as_str().to_owned()) {
                None => return Ok(tools),
                next if next == cursor => return Err(no_answer("tools/list: the cursor does not advance")),
                next => cursor = next,
            }
        }
        Err(no_answer(format!("tools/list: more than {MAX_PAGES} pages")))
    }

    /// Ends the connection: a program is asked to end, a device's DTR drops.
    async fn hang_up(&mut self) {
        if let Some(Open { connection, .. }) = self.open.take() {
            host::hang_up(connection).await;
            self.farewells.said().await;
        }
    }
}

/// Opens a session. Returns what the server says of itself, as JSON text.
async fn begin(connection: &Connection, options: &Options, until: Instant) -> Result<String, HostError> {
    let server = initialize(connection, options, until).await?;
    if describes_server(&server) {
        Ok(server)
    } else {
        Err(connection.bad_reply("the answer to initialize is not valid MCP"))
    }
}

/// Whether an answer to `initialize` is a server's of MCP.
pub(crate) fn describes_server(answer: &str) -> bool {
    string(view(answer).get("protocolVersion")).len() == 10
}

/// Asks for a session. Returns the answer, whatever it is, as JSON text.
pub(crate) async fn initialize(
    connection: &Connection,
    options: &Options,
    until: Instant,
) -> Result<String, HostError> {
    connection.answer_ping();
    let meta =
        options.config.as_ref().map(|config| format!(",\"_meta\":{{\"{}\":{}}}", mcp::CONFIG_NAME, config.as_str()));
    let params = format!(
        "{{\"protocolVersion\":\"{}\",\"capabilities\":{{}},\"clientInfo\":{{\"name\":\"rigline\",\"version\":\"{}\"}}{}}}",
        mcp::LEGACY[0],
        env!("CARGO_PKG_VERSION"),
        meta.unwrap_or_default(),
    );
    let params = RawJson::from_checked_str(&params).unwrap_or(RawJson::NULL);
    let answer = connection.begin(&Request::Other { method: "initialize", params }, until).await?;
    // A server of rigline's refuses a configuration as a tool refuses its arguments.
    let reply = view(&answer);
    if reply.get("isError").and_then(|is_error| is_error.bool()) == Some(true) {
        let text = reply.get("content").and_then(|content| content.elements().next()?.get("text")?.text());
        let message = text.map(|text| text.to_string()).unwrap_or_default();
        let error = RpcFailure { code: Some(rpc::INVALID_PARAMS), message, data: Value::Null };
        return Err(HostError::Refused { extension: connection.name(), error });
    }
    Ok(answer)
}

/// The client of a session that has begun. Its listener must be one [with logs](with_logs).
pub(crate) async fn client_of(
    dialer: Box<dyn Connect>,
    options: Arc<Options>,
    connection: Connection,
    server: String,
    has_changed: Arc<AtomicBool>,
) -> Result<Box<dyn Client>, ClientError> {
    let open = Some(Open { connection, server: Some(server), pending: None });
    let mut client = McpClient::new(dialer, options, open, has_changed);
    client.notify("notifications/initialized", None).await?;
    Ok(Box::new(client))
}

impl Client for McpClient {
    fn describe<'a>(
        &'a mut self,
        _about: Option<&'a str>,
        limit: Duration,
    ) -> Pending<'a, Result<Description, ClientError>> {
        Box::pin(async move {
            self.open(limit).await?;
            let tools = self.tools(limit).await?;
            let server = self.open.as_ref().and_then(|open| open.server.clone()).unwrap_or_default();
            let part = |json: Json<'_>, name: &str, absent: &str| {
                json.get(name).map_or_else(|| absent.to_owned(), |part| part.as_str().to_owned())
            };
            let text = |json: Json<'_>, name: &str| json!(string(json.get(name))).to_string();
            let is_of_rigline = self.is_of_rigline();
            let mut renamed = HashMap::new();
            let mut operation = |tool: &String| {
                let tool = view(tool);
                let name = string(tool.get("name"));
                let own = tool.get("_meta").and_then(|meta| meta.get(mcp::OWN_NAME)).filter(|_| is_of_rigline);
                let own = own.and_then(|own| own.text()).map_or_else(|| name.clone(), |own| own.to_string());
                if own != name {
                    renamed.insert(own.clone(), name);
                }
                // What is for clients that show tools to people.
                let shown = ["title", "annotations", "icons", "_meta"].into_iter();
                let shown = shown.filter_map(|name| Some(format!("\"{name}\":{}", tool.get(name)?.as_str())));
                format!(
                    "{}:{{\"description\":{},\"params\":{},\"outputs\":{},\"annotations\":{},\"tool\":{{{}}}}}",
                    json!(own),
                    text(tool, "description"),
                    part(tool, "inputSchema", "true"),
                    part(tool, "outputSchema", "null"),
                    part(tool, "annotations", "null"),
                    shown.collect::<Vec<_>>().join(","),
                )
            };
            let operations: Vec<String> = tools.iter().map(&mut operation).collect();
            self.renamed = renamed;
            let info = view(&server).get("serverInfo").unwrap_or(Json::NULL);
            // Extensions of rigline's that have a safe state have a tool for it. A server in front of another extension says it.
            let has_tool = || tools.iter().any(|tool| string(view(tool).get("name")) == ALL_OFF);
            let has_safe_state = self.says(mcp::SAFE_STATE_NAME).unwrap_or_else(|| self.is_own() && has_tool());
            // A server of rigline's has added what every extension tells an agent, which a relay adds again.
            let instructions = string(view(&server).get("instructions"));
            let description = if is_of_rigline { mcp::description_in(&instructions) } else { instructions.as_str() };
            let manifest = format!(
                "{{\"name\":{},\"version\":{},\"protocolVersion\":{},\"description\":{},\"operations\":{{{}}},\"safeState\":{has_safe_state}}}",
                text(info, "name"),
                text(info, "version"),
                text(view(&server), "protocolVersion"),
                json!(description),
                operations.join(","),
            );
            let manifest = Manifest::read(&manifest).map_err(no_answer)?;
            let text = format!("{{\"server\":{server},\"tools\":[{}]}}", tools.join(","));
            let described = Described { text, manifest, kind: None, has_typed_outputs: true };
            Ok(Description::Manifest(Box::new(described)))
        })
    }

    fn call<'a>(&'a mut self, request: &'a CallRequest) -> Pending<'a, Result<CallOutcome, ClientError>> {
        Box::pin(async move {
            self.open(self.options.start_timeout).await?;
            let is_own = self.is_own();
            let limit = match request.timeout {
                Some(Duration::ZERO) => NO_LIMIT,
                // Its own error comes first.
                Some(limit) if is_own => limit.saturating_add(self.options.grace),
                Some(limit) => limit,
                None => self.options.call_timeout,
            };
            let token = self.next;
            self.next += 1;
            let mut meta = format!("\"progressToken\":{token}");
            if is_own {
                meta += &own_meta(request);
            }
            // The arguments go as they are, with all their digits.
            let params = format!(
                "{{\"name\":{},\"arguments\":{},\"_meta\":{{{meta}}}}}",
                json!(self.renamed.get(&request.operation).unwrap_or(&request.operation)),
                if request.args.trim().is_empty() { "{}" } else { &request.args },
            );
            let sent = Instant::now();
            let outcome = match self.ask("tools/call", &params, limit).await? {
                Ok(result) if view(&result).kind() != JsonKind::Object => {
                    return Err(no_answer(format!("the result of tools/call is not an object: {}", cut(&result))));
                }
                Ok(result) => answer(&result),
                Err(error) => refused(&error),
            };
            let (took, said) = (sent.elapsed(), outcome.failure.as_ref().map(|failure| failure.kind));
            match request.timeout.filter(|limit| is_own && !limit.is_zero() && took > *limit) {
                Some(limit) if said != Some(FailureKind::Timeout) => Err(ClientError::Host(HostError::Late {
                    extension: self.dialer.name(),
                    request: request.operation.clone(),
                    took,
                    limit,
                    answer: cut(outcome.failure.map_or(outcome.outputs, |failure| failure.message).as_str()).to_owned(),
                })),
                _ => Ok(outcome),
            }
        })
    }

    fn carries_more(&self) -> &'static [Part] {
        match self.is_own() {
            true => &[Part::Config, Part::Context, Part::Env, Part::TimeLimit, Part::FailureKinds, Part::OwnCodes],
            false => &[],
        }
    }

    fn is_lost(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.connection.ended().is_some())
    }

    fn has_changed(&mut self) -> bool {
        self.has_changed.swap(false, Ordering::AcqRel)
    }

    fn cancel(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            if self.cancel_pending().await.is_err() {
                self.hang_up().await;
            }
        })
    }

    fn leave(&mut self) -> bool {
        self.open.iter_mut().for_each(|open| open.pending = None);
        self.open.is_some()
    }

    fn interrupt(&mut self) -> Pending<'_, ()> {
        Box::pin(self.hang_up())
    }

    fn close(mut self: Box<Self>) -> Pending<'static, Result<Option<String>, ClientError>> {
        Box::pin(async move {
            if self.options.keep_outputs && self.is_of_rigline() {
                let _ = self.ask("shutdown", "{}", self.options.shutdown_timeout).await;
            }
            self.hang_up().await;
            Ok(None)
        })
    }
}

/// The parts of a call that the protocol has no place for, as members of `_meta`.
fn own_meta(request: &CallRequest) -> String {
    let mut meta = String::new();
    if let Some(limit) = request.timeout {
        meta += &format!(",\"{}\":{}", mcp::TIMEOUT_NAME, to_millis(limit));
    }
    if let Some(context) = &request.context {
        let phase = match context.phase {
            Phase::Setup => Some("setup"),
            Phase::Verify => Some("verify"),
            Phase::Cleanup => Some("cleanup"),
            _ => None,
        };
        let agent = context.agent.as_ref().map(|agent| json!({ "prompt": agent.prompt, "output": agent.output }));
        let context = json!({ "workdir": context.workdir, "phase": phase, "env": context.env, "agent": agent });
        meta += &format!(",\"{}\":{context}", mcp::CONTEXT_NAME);
    }
    meta
}

/// The beginning of a text that is shown.
fn cut(text: &str) -> &str {
    let end = (0..=200.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// A text that was checked before.
fn view(text: &str) -> Json<'_> {
    Json::parse(text.as_bytes()).unwrap_or(Json::NULL)
}

/// A member that is a string; empty if it is not one.
fn string(member: Option<Json<'_>>) -> String {
    member.and_then(|member| member.text()).map(|text| text.to_string()).unwrap_or_default()
}

fn message_of(error: &str) -> String {
    let message = view(error).get("message").and_then(|message| message.text());
    message.map_or_else(|| error.to_owned(), |message| message.to_string())
}

/// The result of a tool: its first text is the message, unless that is the JSON of the structured content.
fn answer(result: &str) -> CallOutcome {
    let result = view(result);
    let structured = result.get("structuredContent").or_else(|| result.get(INCOMPLETE_OUTPUTS));
    let text_of = |block: &Json<'_>| {
        let is_text = string(block.get("type")) == "text";
        block.get("text").filter(|_| is_text).and_then(|text| text.text()).map(|text| text.to_string())
    };
    let is_structured = |text: &String| structured.is_some_and(|known| is_same(text, known.as_str()));
    let blocks = result.get("content").unwrap_or(Json::NULL).elements();
    // The outputs are repeated as a text for clients of older revisions.
    let blocks: Vec<Json<'_>> =
        blocks.filter(|block| !text_of(block).is_some_and(|text| is_structured(&text))).collect();
    let text = blocks.iter().filter_map(text_of).collect::<Vec<_>>().join("\n");
    let is_error = result.get("isError").and_then(|is_error| is_error.bool()).unwrap_or_default();
    let outputs = structured.map_or("{}", |structured| structured.as_str()).to_owned();
    let content = blocks.iter().map(|block| on_one_line(block.as_str()).into_owned()).collect();
    let failure = is_error.then(|| {
        let Beside { kind, own_code: custom_code } = Beside::read(result.get("_meta"));
        CallFailure {
            kind: kind.unwrap_or(FailureKind::Failed),
            code: custom_code.clone().map(Value::from),
            custom_code,
            // An empty text is none that a model's interface takes.
            message: if text.trim().is_empty() { "the tool gave no reason".to_owned() } else { text.clone() },
        }
    });
    let message = (!is_error && !text.is_empty()).then_some(text);
    CallOutcome { message, outputs, content, failure, ..CallOutcome::default() }
}

/// Whether two texts are the same JSON: also with numbers that only a [`JsonObject`] holds, or that are not written alike.
fn is_same(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    let object = |text: &str| text.parse::<JsonObject>().ok();
    value(one).is_some_and(|one| Some(one) == value(other)) || object(one).is_some_and(|one| Some(one) == object(other))
}

fn refused(error: &str) -> CallOutcome {
    let code = view(error).get("code").and_then(|code| serde_json::from_str::<Value>(code.as_str()).ok());
    let number = code.as_ref().and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
    let kind = match number {
        // Tools, Error Handling: the code is that of wrong parameters.
        Some(rpc::INVALID_PARAMS) if message_of(error).starts_with("Unknown tool") => FailureKind::UnknownOperation,
        Some(rpc::INVALID_PARAMS) => FailureKind::BadArguments,
        Some(rpc::METHOD_NOT_FOUND) => FailureKind::UnknownOperation,
        Some(rpc::INTERNAL_ERROR) => FailureKind::Internal,
        Some(REQUEST_TIMEOUT) => FailureKind::Timeout,
        Some(RESOURCE_NOT_FOUND) => FailureKind::RequirementNotMet,
        _ => FailureKind::Unreachable,
    };
    let failure = CallFailure { kind, code, custom_code: None, message: message_of(error) };
    CallOutcome { outputs: "{}".into(), failure: Some(failure), ..CallOutcome::default() }
}

#[cfg(test)]
mod tests {
    use rigline::FailureKind;

    use super::{answer, beside_message, refused};

    #[test]
    fn the_code_of_an_error_tells_its_kind() {
        for (error, kind) in [
            (r#"{"code":-32602,"message":"Unknown tool: a"}"#, FailureKind::UnknownOperation),
            (r#"{"code":-32602,"message":"a: wrong"}"#, FailureKind::BadArguments),
            (r#"{"code":-32601,"message":"Method not found: a"}"#, FailureKind::UnknownOperation),
            (r#"{"code":-32603,"message":"a"}"#, FailureKind::Internal),
            (r#"{"code":-32001,"message":"Request timed out"}"#, FailureKind::Timeout),
            (r#"{"code":-32002,"message":"Resource not found"}"#, FailureKind::RequirementNotMet),
            (r#"{"code":-32000,"message":"Connection closed"}"#, FailureKind::Unreachable),
            (r#"{"code":-4294999898,"message":"a"}"#, FailureKind::Unreachable),
            (r#"{"code":"a","message":"a"}"#, FailureKind::Unreachable),
        ] {
            assert_eq!(refused(error).failure.unwrap().kind, kind, "{error}");
        }
    }

    #[test]
    fn a_failure_without_a_text_says_that_it_gave_no_reason() {
        for (result, reason) in [
            (r#"{"content":[],"isError":true}"#, "the tool gave no reason"),
            (r#"{"content":[{"type":"text","text":" "}],"isError":true}"#, "the tool gave no reason"),
            (r#"{"structuredContent":{"why":1},"isError":true}"#, "the tool gave no reason"),
            (r#"{"content":[{"type":"text","text":"no ink"}],"isError":true}"#, "no ink"),
        ] {
            assert_eq!(answer(result).failure.unwrap().message, reason, "{result}");
        }
    }

    #[test]
    fn the_members_of_a_log_are_kept() {
        for (said, kept) in [
            (r#"{"message":"m"}"#, None),
            (r#"{"message":"m","data":{"a":1}}"#, Some(r#"{"a":1}"#)),
            (r#"{"message":"m","data":[1]}"#, Some("[1]")),
            (r#"{"message":"m","a":1,"b":[true]}"#, Some(r#"{"a":1,"b":[true]}"#)),
            (r#"{"message":"m","a":1,"data":{"b":2}}"#, Some(r#"{"a":1,"data":{"b":2}}"#)),
            (r#"{"message":{"c":3},"a":1}"#, Some(r#"{"a":1,"message":{"c":3}}"#)),
        ] {
            let kept: Option<serde_json::Value> = kept.map(|kept| serde_json::from_str(kept).unwrap());
            assert_eq!(beside_message(&serde_json::from_str(said).unwrap()), kept, "{said}");
        }
    }
}
