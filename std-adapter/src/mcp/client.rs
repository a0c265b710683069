//! MCP's client side over lines, and over HTTP as over lines: a session of the legacy era, whose end a board notices.
//!
//! `tools/list` comes in pages from a small device. They are merged here, since several clients read the first page only.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rigline::protocol::mcp;
use rigline::{FailureKind, Level};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::client::{
    Answer, CallFailure, CallRequest, Cause, Client, ClientError, ClientOptions, Described, Description, Pending,
};
use crate::host::wire::{self, Connect, RawConnection, Reader};
use crate::host::{DTR_LOW, Event, EventKind, Listener, Log, Manifest, Options, deadline};
use crate::target::Target;

/// The most pages of a list: a server whose cursor does not advance is noticed.
const MAX_PAGES: usize = 1000;

/// How long a program may take to end when it is asked to.
const TERMINATION: Duration = Duration::from_millis(500);

/// After this time a device that has not answered is asked again: it may have been booting.
const AGAIN: Duration = Duration::from_secs(1);

struct McpClient {
    dialer: Box<dyn Connect>,
    options: Options,
    open: Option<Open>,
    next: u64,
}

struct Open {
    wire: RawConnection,
    /// What was read and is not a whole line yet.
    read: Vec<u8>,
    /// The result of `initialize`.
    server: Value,
    /// A request whose caller has gone.
    pending: Option<u64>,
}

pub(super) fn connect(target: &Target, options: ClientOptions) -> Pending<'_, Result<Box<dyn Client>, ClientError>> {
    Box::pin(async move {
        let dialer: Box<dyn Connect> = match target {
            #[cfg(feature = "http-client")]
            Target::Http(url) => {
                let (url, limit) = (url.clone(), options.host.line_limit);
                Box::new(super::stream::HttpDialer { url, token: options.token, limit })
            }
            _ => wire::dialer(target, &options.host)?,
        };
        Ok(Box::new(McpClient { dialer, options: options.host, open: None, next: 1 }) as Box<dyn Client>)
    })
}

fn no_answer(text: impl Into<String>) -> ClientError {
    ClientError::new(Cause::NoAnswer, text.into())
}

fn timed_out(method: &str, limit: Duration) -> ClientError {
    ClientError::new(Cause::Timeout, format!("no answer to {method} within {limit:?}"))
}

/// An answer to a request: its result, or its error.
type Reply = Result<Value, Value>;

impl McpClient {
    async fn open(&mut self, limit: Duration) -> Result<(), ClientError> {
        if let Some(open) = &self.open
            && open.wire.child.as_ref().is_none_or(|child| child.exit().is_none())
        {
            return Ok(());
        }
        let mut wire = wire::open(&*self.dialer, &self.options, self.options.wait).await?;
        if wire.traits.shared {
            // Half a line of somebody else's may be on the wire.
            wire.writer.write_all(b"\n").await.map_err(|error| no_answer(error.to_string()))?;
        }
        if let Some(stderr) = wire.stderr.take() {
            tokio::spawn(pass_on(stderr, self.options.listener.clone(), Arc::from(self.dialer.name())));
        }
        let resend = wire.traits.resend.unwrap_or(limit).max(AGAIN);
        self.open = Some(Open { wire, read: Vec::new(), server: Value::Null, pending: None });
        let params = json!({
            "protocolVersion": mcp::LEGACY[0],
            "capabilities": {},
            "clientInfo": { "name": "rigline", "version": env!("CARGO_PKG_VERSION") },
        });
        let given_up = deadline(Instant::now(), limit);
        let server = loop {
            let left = given_up.saturating_duration_since(Instant::now());
            match self.ask("initialize", params.clone(), left.min(resend)).await {
                Ok(Ok(server)) => break server,
                Ok(Err(error)) => {
                    self.hang_up().await;
                    return Err(no_answer(format!("initialize was refused: {}", message_of(&error))));
                }
                Err(error) if error.is_timeout() && Instant::now() < given_up => {}
                Err(error) => {
                    self.hang_up().await;
                    return Err(error);
                }
            }
        };
        if server.get("protocolVersion").and_then(Value::as_str).is_none_or(|version| version.len() != 10) {
            self.hang_up().await;
            return Err(no_answer("initialize was not answered as MCP has it"));
        }
        if let Some(open) = &mut self.open {
            open.server = server;
        }
        self.notify("notifications/initialized", None).await
    }

    async fn notify(&mut self, method: &str, params: Option<Value>) -> Result<(), ClientError> {
        let mut message = json!({ "jsonrpc": "2.0", "method": method });
        if let Some(params) = params {
            message["params"] = params;
        }
        self.write(&format!("{message}\n")).await
    }

    async fn write(&mut self, line: &str) -> Result<(), ClientError> {
        let Some(open) = &mut self.open else { return Err(no_answer("the connection is closed")) };
        let written = async {
            open.wire.writer.write_all(line.as_bytes()).await?;
            open.wire.writer.flush().await
        };
        written.await.map_err(|error| no_answer(format!("{}: {error}", self.dialer.name())))
    }

    /// Sends a request and waits for its reply. Notifications go to the listener.
    async fn ask(&mut self, method: &str, params: Value, limit: Duration) -> Result<Reply, ClientError> {
        let id = self.next;
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(id, &request.to_string(), method, limit).await
    }

    async fn send(&mut self, id: u64, request: &str, method: &str, limit: Duration) -> Result<Reply, ClientError> {
        self.write(&format!("{}\n", request.replace(['\n', '\r'], " "))).await?;
        if let Some(open) = &mut self.open {
            open.pending = Some(id);
        }
        let given_up = deadline(Instant::now(), limit);
        loop {
            let line = match timeout_at(given_up, self.line()).await {
                Ok(line) => line?,
                Err(_) => return Err(timed_out(method, limit)),
            };
            let Ok(message) = serde_json::from_slice::<Value>(&line) else { continue };
            if let Some(method) = message.get("method").and_then(Value::as_str) {
                self.hear(method, message.get("params").unwrap_or(&Value::Null));
                continue;
            }
            // A refusal of an older kind of extension may have lost the id.
            let is_ours = message.get("id").and_then(Value::as_u64) == Some(id)
                || method == "initialize"
                    && message.get("id").is_none_or(Value::is_null)
                    && message.get("error").is_some();
            if !is_ours {
                continue;
            }
            if let Some(open) = &mut self.open {
                open.pending = None;
            }
            return Ok(match message.get("error") {
                Some(error) => Err(error.clone()),
                None => Ok(message.get("result").cloned().unwrap_or(Value::Null)),
            });
        }
    }

    /// The next line. Being dropped it loses nothing.
    async fn line(&mut self) -> Result<Vec<u8>, ClientError> {
        let (limit, name) = (self.options.line_limit, self.dialer.name());
        let Some(open) = &mut self.open else { return Err(no_answer("the connection is closed")) };
        loop {
            if let Some(end) = open.read.iter().position(|byte| *byte == b'\n') {
                return Ok(open.read.drain(..=end).collect());
            }
            if open.read.len() > limit {
                open.read.clear();
                return Err(no_answer(format!("{name}: a line is longer than the limit of {limit} bytes")));
            }
            match open.wire.reader.read_buf(&mut open.read).await {
                Ok(0) => {
                    self.open = None;
                    return Err(no_answer(format!("{name} has closed the connection")));
                }
                Ok(_) => {}
                Err(error) => {
                    self.open = None;
                    return Err(no_answer(format!("{name}: {error}")));
                }
            }
        }
    }

    /// Logs and progress go to the listener as logs.
    fn hear(&self, method: &str, params: &Value) {
        let Some(listener) = &self.options.listener else { return };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let log = match method {
            "notifications/message" => {
                let level_name = params.get("level").and_then(Value::as_str).unwrap_or("info");
                let level = match level_name {
                    "debug" => Level::Debug,
                    "notice" | "warning" => Level::Warn,
                    "error" | "critical" | "alert" | "emergency" => Level::Error,
                    _ => Level::Info,
                };
                let data = params.get("data").unwrap_or(&Value::Null);
                match data.get("message") {
                    Some(message) => {
                        Log { level, level_name: None, message: text(message), data: data.get("data").cloned() }
                    }
                    None => Log { level, level_name: None, message: text(data), data: None },
                }
            }
            "notifications/progress" => {
                let message = params.get("message").map(text).unwrap_or_default();
                let data = json!({ "progress": params.get("progress"), "total": params.get("total") });
                Log { level: Level::Info, level_name: None, message, data: Some(data) }
            }
            _ => return,
        };
        let extension = Arc::from(self.dialer.name());
        listener(&Event { time: SystemTime::now(), extension, kind: EventKind::Log(log) });
    }

    /// All tools, of all pages.
    async fn tools(&mut self, limit: Duration) -> Result<Vec<Value>, ClientError> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let page = self.ask("tools/list", params, limit).await?;
            let page = page.map_err(|error| no_answer(format!("tools/list: {}", message_of(&error))))?;
            tools.extend(page.get("tools").and_then(Value::as_array).cloned().unwrap_or_default());
            match page.get("nextCursor") {
                None | Some(Value::Null) => return Ok(tools),
                next if next == cursor.as_ref() => return Err(no_answer("tools/list: the cursor does not advance")),
                next => cursor = next.cloned(),
            }
        }
        Err(no_answer(format!("tools/list: more than {MAX_PAGES} pages")))
    }

    /// Ends the connection: a program is asked to end, a device's DTR drops.
    async fn hang_up(&mut self) {
        let Some(Open { wire, .. }) = self.open.take() else { return };
        let RawConnection { reader, writer, control, child, .. } = wire;
        if let Some(control) = &control {
            let _ = control.set_dtr(false);
            sleep(DTR_LOW).await;
            let _ = control.discard();
            let _ = control.set_dtr(true);
        }
        drop((reader, writer));
        if let Some(child) = child
            && timeout(TERMINATION, child.ended()).await.is_err()
        {
            child.terminate();
            let _ = timeout(TERMINATION, child.ended()).await;
        }
    }
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
            let server = self.open.as_ref().map(|open| open.server.clone()).unwrap_or_default();
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            let operations: Map<String, Value> = tools
                .iter()
                .map(|tool| {
                    let operation = json!({
                        "description": text(tool.get("description")),
                        "params": tool.get("inputSchema").cloned().unwrap_or(Value::Bool(true)),
                        "outputs": tool.get("outputSchema"),
                        "annotations": tool.get("annotations"),
                    });
                    (text(tool.get("name")), operation)
                })
                .collect();
            let info = server.get("serverInfo").cloned().unwrap_or_default();
            let manifest = json!({
                "name": text(info.get("name")),
                "version": text(info.get("version")),
                "protocolVersion": text(server.get("protocolVersion")),
                "description": text(server.get("instructions")),
                "operations": operations,
            });
            let manifest = Manifest::read(&manifest.to_string()).map_err(no_answer)?;
            let text = json!({ "server": server, "tools": tools }).to_string();
            let described = Described { text, manifest, kind: None, has_typed_outputs: true };
            Ok(Description::Manifest(Box::new(described)))
        })
    }

    fn call<'a>(&'a mut self, request: &'a CallRequest) -> Pending<'a, Result<Answer, ClientError>> {
        Box::pin(async move {
            self.open(self.options.start_timeout).await?;
            if let Some(id) = self.open.as_mut().and_then(|open| open.pending.take()) {
                self.notify("notifications/cancelled", Some(json!({ "requestId": id }))).await?;
            }
            let limit = match request.timeout {
                Some(Duration::ZERO) => Duration::from_secs(100 * 365 * 24 * 60 * 60),
                Some(limit) => limit.saturating_add(self.options.grace),
                None => self.options.call_timeout,
            };
            let id = self.next;
            self.next += 1;
            // The arguments go as they are, with all their digits.
            let line = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":{},\"arguments\":{},\"_meta\":{{\"progressToken\":{id}}}}}}}",
                json!(request.operation),
                if request.args.trim().is_empty() { "{}" } else { &request.args },
            );
            match self.send(id, &line, "tools/call", limit).await? {
                Ok(result) => Ok(answer(&result)),
                Err(error) => Ok(refused(&error)),
            }
        })
    }

    fn cancel(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            if let Some(id) = self.open.as_mut().and_then(|open| open.pending.take())
                && self.notify("notifications/cancelled", Some(json!({ "requestId": id }))).await.is_err()
            {
                self.hang_up().await;
            }
        })
    }

    fn interrupt(&mut self) -> Pending<'_, ()> {
        Box::pin(self.hang_up())
    }

    fn close(mut self: Box<Self>) -> Pending<'static, Result<Option<String>, ClientError>> {
        Box::pin(async move {
            self.hang_up().await;
            Ok(None)
        })
    }
}

/// Reads standard error, so that a program is not held up by it, and passes its lines on.
async fn pass_on(stderr: Reader, listener: Option<Listener>, extension: Arc<str>) {
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        if let Some(listener) = &listener {
            let kind = EventKind::Stderr(String::from_utf8_lossy(&line).trim_end().to_owned());
            listener(&Event { time: SystemTime::now(), extension: extension.clone(), kind });
        }
    }
}

fn message_of(error: &Value) -> String {
    error.get("message").and_then(Value::as_str).map_or_else(|| error.to_string(), str::to_owned)
}

/// The result of a tool: its first text is the message, unless that is the JSON of the structured content.
fn answer(result: &Value) -> Answer {
    let structured = result.get("structuredContent");
    let blocks = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_structured = |text: &str| {
        structured.is_some_and(|known| serde_json::from_str::<Value>(text).is_ok_and(|json| json == *known))
    };
    let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str()).filter(|text| !is_structured(text));
    let text = texts.collect::<Vec<_>>().join("\n");
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or_default();
    let mut outputs = structured.cloned().unwrap_or_else(|| json!({}));
    let others: Vec<&Value> = blocks.iter().filter(|block| block.get("type") != Some(&json!("text"))).collect();
    if let Some(outputs) = outputs.as_object_mut()
        && !others.is_empty()
    {
        outputs.entry("content").or_insert_with(|| json!(others));
    }
    let failure = is_error.then(|| CallFailure {
        kind: FailureKind::Failed,
        code: None,
        custom_code: None,
        message: text.clone(),
        is_invalid: false,
    });
    Answer {
        message: (!is_error && !text.is_empty()).then_some(text),
        outputs: outputs.to_string(),
        is_message_output: false,
        failure,
        stderr: String::new(),
    }
}

fn refused(error: &Value) -> Answer {
    let code = error.get("code").cloned();
    let kind = match code.as_ref().and_then(Value::as_i64) {
        Some(-32601) => FailureKind::UnknownOperation,
        Some(-32602) if message_of(error).starts_with("Unknown tool") => FailureKind::UnknownOperation,
        Some(-32602) => FailureKind::BadArguments,
        Some(-32603) => FailureKind::Internal,
        _ => FailureKind::Unreachable,
    };
    let failure = CallFailure { kind, code, custom_code: None, message: message_of(error), is_invalid: false };
    let failure = Some(failure);
    Answer { message: None, outputs: "{}".into(), is_message_output: false, failure, stderr: String::new() }
}
