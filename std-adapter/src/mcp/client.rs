//! MCP's client side over lines, and over HTTP as over lines: a session of the legacy era, whose end a board notices.
//!
//! `tools/list` comes in pages from a small device. They are merged here, since several clients read the first page only.
//!
//! Replies stay JSON texts, so that their numbers keep all their digits.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rigline::json::{Json, Kind};
use rigline::protocol::mcp;
use rigline::{FailureKind, Level};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::client::{
    Answer, CallFailure, CallRequest, Cause, Client, ClientError, ClientOptions, Described, Description, Pending,
};
use crate::host::wire::{self, Connect, RawConnection, Reader};
use crate::host::{
    DTR_LOW, Event, EventKind, JsonObject, Listener, Log, Manifest, NO_LIMIT, Options, TERMINATION, deadline,
};
use crate::target::Target;

/// The most pages of a list: a server whose cursor does not advance is noticed.
const MAX_PAGES: usize = 1000;

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
    /// The bytes of a line that is not complete yet.
    read: Vec<u8>,
    /// The result of `initialize`.
    server: String,
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

/// An answer to a request: its result, or its error, as JSON.
type Reply = Result<String, String>;

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
        self.open = Some(Open { wire, read: Vec::new(), server: String::new(), pending: None });
        let params = json!({
            "protocolVersion": mcp::LEGACY[0],
            "capabilities": {},
            "clientInfo": { "name": "rigline", "version": env!("CARGO_PKG_VERSION") },
        })
        .to_string();
        let given_up = deadline(Instant::now(), limit);
        let server = loop {
            let left = given_up.saturating_duration_since(Instant::now());
            match self.ask("initialize", &params, left.min(resend)).await {
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
        if string(view(&server).get("protocolVersion")).len() != 10 {
            self.hang_up().await;
            return Err(no_answer("the answer to initialize is not valid MCP"));
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
    async fn ask(&mut self, method: &str, params: &str, limit: Duration) -> Result<Reply, ClientError> {
        let id = self.next;
        self.next += 1;
        let request = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}");
        self.send(id, &request, method, limit).await
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
            let Ok(message) = Json::parse(&line) else { continue };
            if let Some(method) = message.get("method").and_then(|method| method.text()) {
                self.hear(&method.to_string(), message.get("params").unwrap_or(Json::NULL));
                continue;
            }
            // A refusal of an older kind of extension may have lost the id.
            let is_ours = message.get("id").is_some_and(|given| given.as_str() == id.to_string())
                || method == "initialize"
                    && message.get("id").is_none_or(|id| id.is_null())
                    && message.get("error").is_some();
            if !is_ours {
                continue;
            }
            if let Some(open) = &mut self.open {
                open.pending = None;
            }
            return Ok(match message.get("error") {
                Some(error) => Err(error.as_str().to_owned()),
                None => Ok(message.get("result").unwrap_or(Json::NULL).as_str().to_owned()),
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
    fn hear(&self, method: &str, params: Json<'_>) {
        let Some(listener) = &self.options.listener else { return };
        let text = |json: Json<'_>| json.text().map_or_else(|| json.as_str().to_owned(), |text| text.to_string());
        let log = match method {
            "notifications/message" => {
                let level = match &*string(params.get("level")) {
                    "debug" => Level::Debug,
                    "notice" | "warning" => Level::Warn,
                    "error" | "critical" | "alert" | "emergency" => Level::Error,
                    _ => Level::Info,
                };
                let data = params.get("data").unwrap_or(Json::NULL);
                match data.get("message") {
                    Some(message) => {
                        let data = data.get("data").and_then(|data| serde_json::from_str(data.as_str()).ok());
                        Log { level, level_name: None, message: text(message), data }
                    }
                    None => Log { level, level_name: None, message: text(data), data: None },
                }
            }
            "notifications/progress" => {
                let message = params.get("message").map(text).unwrap_or_default();
                let number = |name| params.get(name).and_then(|number| serde_json::from_str(number.as_str()).ok());
                let (progress, total): (Option<Value>, Option<Value>) = (number("progress"), number("total"));
                let data = json!({ "progress": progress, "total": total });
                Log { level: Level::Info, level_name: None, message, data: Some(data) }
            }
            _ => return,
        };
        let extension = Arc::from(self.dialer.name());
        listener(&Event { time: SystemTime::now(), extension, kind: EventKind::Log(log) });
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
            child.end(TERMINATION).await;
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
            let part = |json: Json<'_>, name: &str, absent: &str| {
                json.get(name).map_or_else(|| absent.to_owned(), |part| part.as_str().to_owned())
            };
            let text = |json: Json<'_>, name: &str| json!(string(json.get(name))).to_string();
            let operation = |tool: &String| {
                let tool = view(tool);
                format!(
                    "{}:{{\"description\":{},\"params\":{},\"outputs\":{},\"annotations\":{}}}",
                    text(tool, "name"),
                    text(tool, "description"),
                    part(tool, "inputSchema", "true"),
                    part(tool, "outputSchema", "null"),
                    part(tool, "annotations", "null"),
                )
            };
            let operations: Vec<String> = tools.iter().map(operation).collect();
            let info = view(&server).get("serverInfo").unwrap_or(Json::NULL);
            let manifest = format!(
                "{{\"name\":{},\"version\":{},\"protocolVersion\":{},\"description\":{},\"operations\":{{{}}}}}",
                text(info, "name"),
                text(info, "version"),
                text(view(&server), "protocolVersion"),
                text(view(&server), "instructions"),
                operations.join(","),
            );
            let manifest = Manifest::read(&manifest).map_err(no_answer)?;
            let text = format!("{{\"server\":{server},\"tools\":[{}]}}", tools.join(","));
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
                Some(Duration::ZERO) => NO_LIMIT,
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
fn answer(result: &str) -> Answer {
    let result = view(result);
    let structured = result.get("structuredContent");
    let blocks: Vec<Json<'_>> = result.get("content").unwrap_or(Json::NULL).elements().collect();
    let is_structured = |text: &String| structured.is_some_and(|known| is_same(text, known.as_str()));
    let texts = blocks.iter().filter_map(|block| Some(block.get("text")?.text()?.to_string()));
    let text = texts.filter(|text| !is_structured(text)).collect::<Vec<_>>().join("\n");
    let is_error = result.get("isError").and_then(|is_error| is_error.bool()).unwrap_or_default();
    let others = blocks.iter().filter(|block| string(block.get("type")) != "text").map(Json::as_str);
    let others = others.collect::<Vec<_>>().join(",");
    let outputs = structured.map_or("{}", |structured| structured.as_str());
    let known = view(outputs);
    let outputs = match outputs.strip_suffix('}') {
        Some(members) if !others.is_empty() && known.kind() == Kind::Object && known.get("content").is_none() => {
            let comma = if known.members().next().is_some() { "," } else { "" };
            format!("{members}{comma}\"content\":[{others}]}}")
        }
        _ => outputs.to_owned(),
    };
    let failure = is_error.then(|| CallFailure {
        kind: FailureKind::Failed,
        code: None,
        custom_code: None,
        message: text.clone(),
        is_invalid: false,
    });
    Answer {
        message: (!is_error && !text.is_empty()).then_some(text),
        outputs,
        is_message_output: false,
        failure,
        stderr: String::new(),
    }
}

/// Whether two texts are the same JSON: also with numbers that only a [`JsonObject`] holds, or that are not written alike.
fn is_same(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    let object = |text: &str| text.parse::<JsonObject>().ok();
    value(one).is_some_and(|one| Some(one) == value(other)) || object(one).is_some_and(|one| Some(one) == object(other))
}

fn refused(error: &str) -> Answer {
    let code = view(error).get("code").and_then(|code| serde_json::from_str::<Value>(code.as_str()).ok());
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
