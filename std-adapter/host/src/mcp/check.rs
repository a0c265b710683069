//! The conformance cases of MCP, of both eras, for any server of tools: a program, a serial port,
//! TCP or HTTP.
//!
//! Over HTTP, the cases of messages run as they do over lines. The cases that begin with `http.`
//! run over HTTP only.

mod http;

use rigline::protocol::mcp::{LEGACY, MODERN};
use serde_json::{Value, json};

use super::stream::{Farewells, HttpDialer};
use crate::check::{
    Bench, Case, CaseFailure, CaseResult, Peer, Reply, Report, Settings, Suite, Verdict, calls as calls_of, cases, cut,
    names, run_on,
};
use crate::client::ClientError;
use crate::http_client;
use crate::target::Target;

/// All conformance cases, in the order in which they run.
#[rustfmt::skip]
pub const CASES: &[Case] = cases! {
    "legacy.initialize", "MCP 2025-11-25: Lifecycle, Initialization", Host, initialize;
    "legacy.versions", "MCP 2025-11-25: Lifecycle, Version Negotiation", Host, versions;
    "legacy.unknown-version", "MCP 2025-11-25: Lifecycle, Version Negotiation", Host, unknown_version;
    "legacy.ping", "MCP 2025-11-25: Ping", Host, |bench| succeeds(bench, "ping", json!({}));
    "legacy.tools", "MCP 2025-11-25: Tools, Listing Tools", Host, |bench| list(bench, false);
    "legacy.set-level", "MCP 2025-11-25: Logging, Setting Log Level", Standard, set_level;
    "modern.discover", "MCP 2026-07-28: Discovery", Standard, discover;
    "modern.tools", "MCP 2026-07-28: Tools, Listing Tools", Standard, |bench| list(bench, true);
    "modern.order", "MCP 2026-07-28: Tools, Capabilities", Standard, order;
    "modern.no-meta", "MCP 2026-07-28: Base Protocol, _meta", Standard, |bench| refused_meta(bench, json!({}));
    "modern.no-version", "MCP 2026-07-28: Base Protocol, _meta", Standard, |bench| refused_meta(bench, json!({"io.modelcontextprotocol/clientCapabilities": {}}));
    "modern.no-capabilities", "MCP 2026-07-28: Base Protocol, _meta", Standard, |bench| refused_meta(bench, json!({"io.modelcontextprotocol/protocolVersion": MODERN}));
    "modern.unsupported-version", "MCP 2026-07-28: Versioning, Protocol Version Negotiation", Standard, unsupported_version;
    "modern.removed", "MCP 2026-07-28: Key Changes", Standard, removed;
    "modern.both-eras", "MCP 2026-07-28: Versioning, Backward Compatibility", Standard, both_eras;
    "tool.unknown", "MCP 2025-11-25: Tools, Error Handling", Host, unknown_tool;
    "tool.no-name", "MCP 2025-11-25: Tools, Error Handling", Standard, |bench| refused(bench, "tools/call", json!({"arguments": {}}), &[-32602]);
    "tool.call", "MCP 2025-11-25: Tools, Tool Result", Host, calls;
    "tool.bad-arguments", "MCP 2025-11-25: Tools, Error Handling", Standard, bad_arguments;
    "cursor.unknown", "MCP 2025-11-25: Pagination, Error Handling", Standard, |bench| refused(bench, "tools/list", json!({"cursor": "no such cursor"}), &[-32602]);
    "method.unknown", "JSON-RPC 2.0 §5.1", Host, |bench| refused(bench, "rigline/no-such-method", json!({}), &[-32601]);
    "id.echo", "MCP 2025-11-25: Base Protocol, Requests", Host, ids;
    "id.null", "MCP 2025-11-25: Base Protocol, Requests", Standard, null_id;
    "notification.silence", "MCP 2025-11-25: Base Protocol, Notifications", Host, notifications;
    "cancelled.unknown", "MCP 2025-11-25: Cancellation, Error Handling", Host, cancelled;
    "bad-json", "JSON-RPC 2.0 §5.1", Host, bad_json;
    "bad-json.reply", "JSON-RPC 2.0 §5.1", Standard, bad_json_reply;
    "line.crlf", "MCP 2025-11-25: Transports, stdio", Standard, crlf;
    "end-of-input", "MCP 2025-11-25: Lifecycle, Shutdown", Host, end_of_input;
    "http.origin", "MCP 2026-07-28: Streamable HTTP, Security & Endpoint", Standard, http::origin;
    "http.notification", "MCP 2025-11-25: Transports, Sending Messages to the Server", Host, http::notification;
    "http.bad-json", "MCP 2025-11-25: Transports, Sending Messages to the Server", Standard, http::bad_json;
    "http.answer", "MCP 2025-11-25: Transports, Sending Messages to the Server", Host, http::answer;
    "http.get", "MCP 2025-11-25: Transports, Listening for Messages from the Server", Host, http::get;
    "http.version", "MCP 2025-11-25: Transports, Protocol Version Header", Standard, http::version;
    "http.session", "MCP 2025-11-25: Transports, Session Management", Host, http::session;
    "http.modern.methods", "MCP 2026-07-28: Streamable HTTP, Earlier Streamable HTTP Revisions", Standard, http::modern_methods;
    "http.modern.no-session", "MCP 2026-07-28: Streamable HTTP, Earlier Streamable HTTP Revisions", Standard, http::modern_no_session;
    "http.modern.missing-header", "MCP 2026-07-28: Streamable HTTP, Server Validation", Standard, http::missing_header;
    "http.modern.mismatch", "MCP 2026-07-28: Streamable HTTP, Server Validation", Standard, http::mismatch;
    "http.modern.encoded-name", "MCP 2026-07-28: Streamable HTTP, Value Encoding", Standard, http::encoded_name;
    "http.modern.unknown-method", "MCP 2026-07-28: Streamable HTTP, Protocol Version Header", Standard, http::unknown_method;
    "http.modern.unsupported-version", "MCP 2026-07-28: Streamable HTTP, Protocol Version Header", Standard, http::unsupported_version;
    "http.modern.events", "MCP 2026-07-28: Streamable HTTP, Receiving Messages", Standard, http::events;
};

/// Cases that only apply to streams of bytes. HTTP has separate cases.
const OF_LINES: &[&str] = &["bad-json", "bad-json.reply", "line.crlf", "end-of-input"];

/// The suite, for the registry of protocols.
pub(super) const SUITE: Suite =
    Suite { names: || names(CASES), has_transcripts: false, run: |settings, report| Box::pin(check(settings, report)) };

async fn check(settings: Settings, report: &mut dyn FnMut(&CaseResult)) -> Result<Report, ClientError> {
    let is_http = matches!(settings.target, Target::Http(_));
    let is_there = |case: &&'static Case| match is_http {
        true => !OF_LINES.contains(&case.name),
        false => !case.name.starts_with("http."),
    };
    let cases: Vec<_> = settings.chosen(CASES)?.into_iter().filter(is_there).collect();
    if cases.is_empty() {
        return Err(ClientError::usage(match is_http {
            true => "the case is one of lines, and the target is reached by HTTP",
            false => "the case is one of HTTP, and the target is reached otherwise",
        }));
    }
    match &settings.target {
        Target::Http(url) => {
            let (url, limit) = (url.clone(), settings.options.line_limit);
            let credentials = settings.options.credentials.clone();
            http_client::parse(&url).map_err(|error| ClientError::usage(error.to_string()))?;
            let dialer = Box::new(HttpDialer { url, credentials, limit, farewells: Farewells::default() });
            let bench = Bench::over(dialer, &settings.target, &settings.options);
            run_on(cases, with_tools(bench, &settings).await, settings, report).await
        }
        target => {
            let bench = Bench::new(target, &settings.options).map_err(|error| ClientError::usage(error.to_string()))?;
            run_on(cases, with_tools(bench, &settings).await, settings, report).await
        }
    }
}

/// Knows the calls that may be made by the tools' own names. What is no call of this server is the
/// caller's fault, before any case.
async fn with_tools(mut bench: Bench, settings: &Settings) -> Bench {
    bench.calls = calls_of(&settings.plan);
    bench.timeout = settings.timeout;
    bench.credentials.clone_from(&settings.options.credentials);
    bench.left_out = other_era(&bench).await;
    if !bench.calls.is_empty()
        && let Ok(mut peer) = session(&bench).await
        && let Ok(tools) = tools(&mut peer, is_modern_only(&bench)).await
    {
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        // The suite asks for what it found.
        bench.ensure_known(&names).ok();
    }
    bench
}

/// The cases of the era that a server does not speak: one is enough. A server that speaks neither
/// fails the cases of both.
async fn other_era(bench: &Bench) -> Vec<(&'static str, &'static str)> {
    let asked = |method: &'static str, params: String| async move {
        let Ok(mut peer) = bench.connect().await else { return None };
        peer.ask(method, &params).await.ok()?.result()
    };
    let is_legacy = asked("initialize", hello(LEGACY[0]).to_string())
        .await
        .is_some_and(|result| result["protocolVersion"].is_string());
    let is_modern =
        asked("server/discover", modern(json!({}))).await.is_some_and(|result| result["supportedVersions"].is_array());
    match (is_legacy, is_modern) {
        (true, false) => {
            ["modern.", "http.modern."].map(|cases| (cases, "the server does not speak 2026-07-28")).to_vec()
        }
        (false, true) => {
            OF_LEGACY.iter().map(|cases| (*cases, "the server speaks none of the revisions up to 2025-11-25")).collect()
        }
        _ => Vec::new(),
    }
}

/// The cases of the legacy era. The last ones are about sessions and streams over HTTP, which the
/// modern era does not have.
const OF_LEGACY: &[&str] = &[
    "legacy.",
    "modern.both-eras",
    "id.null",
    "http.notification",
    "http.bad-json",
    "http.answer",
    "http.get",
    "http.version",
    "http.session",
];

/// Whether only the modern era is spoken.
fn is_modern_only(bench: &Bench) -> bool {
    bench.left_out.iter().any(|(cases, _)| *cases == "legacy.")
}

/// A connection with a session of the legacy era, or one on which the modern era is spoken, which
/// has none.
async fn session(bench: &Bench) -> Result<Peer, CaseFailure> {
    let mut peer = bench.connect().await?;
    if is_modern_only(bench) {
        return Ok(peer);
    }
    result(&peer.ask("initialize", &hello(LEGACY[0]).to_string()).await?)?;
    peer.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await?;
    Ok(peer)
}

/// Parameters as the era of a [`session`] has them.
fn of_era(bench: &Bench, params: Value) -> String {
    if is_modern_only(bench) { modern(params) } else { params.to_string() }
}

/// That a server still answers. `ping` went with the legacy era.
async fn is_alive(bench: &Bench, peer: &mut Peer) -> Result<(), CaseFailure> {
    let method = if is_modern_only(bench) { "server/discover" } else { "ping" };
    result(&peer.ask(method, &of_era(bench, json!({}))).await?).map(|_| ())
}

fn hello(version: &str) -> Value {
    let client = json!({ "name": "rigline-check", "version": env!("CARGO_PKG_VERSION") });
    json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client })
}

/// Parameters of the modern era.
fn modern(mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params.to_string()
}

fn result(reply: &Reply) -> Result<Value, CaseFailure> {
    reply.result().ok_or_else(|| CaseFailure::Fail(format!("expected a result: {}", cut(reply.line().as_bytes()))))
}

async fn initialize(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let result = result(&peer.ask("initialize", &hello(LEGACY[0]).to_string()).await?)?;
    if result["protocolVersion"] != LEGACY[0] {
        return bench
            .fail(format!("protocolVersion must be the one that was offered, and is {}", result["protocolVersion"]));
    }
    if !result["serverInfo"]["name"].is_string() || !result["serverInfo"]["version"].is_string() {
        return bench.fail(format!("serverInfo must have a name and a version, and is {}", result["serverInfo"]));
    }
    if result["capabilities"]["tools"].is_object() {
        return Ok(None);
    }
    bench.skip(format!("it offers no tools: {}", result["capabilities"]))
}

async fn versions(bench: &mut Bench) -> Verdict {
    for version in LEGACY {
        let mut peer = bench.connect().await?;
        let result = result(&peer.ask("initialize", &hello(version).to_string()).await?)?;
        if result["protocolVersion"] != version {
            return Ok(Some(format!("{version} is answered with {}", result["protocolVersion"])));
        }
    }
    Ok(None)
}

async fn unknown_version(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let result = result(&peer.ask("initialize", &hello("2001-01-01").to_string()).await?)?;
    match result["protocolVersion"].as_str() {
        Some(version) if version != "2001-01-01" => Ok(None),
        _ => {
            bench.fail(format!("it must answer with a version that it has, and answers {}", result["protocolVersion"]))
        }
    }
}

async fn succeeds(bench: &mut Bench, method: &str, params: Value) -> Verdict {
    let mut peer = session(bench).await?;
    result(&peer.ask(method, &params.to_string()).await?)?;
    Ok(None)
}

async fn refused(bench: &mut Bench, method: &str, params: Value, codes: &[i64]) -> Verdict {
    let mut peer = session(bench).await?;
    peer.ask(method, &of_era(bench, params)).await?.expect_error(codes)?;
    Ok(None)
}

async fn refused_meta(bench: &mut Bench, meta: Value) -> Verdict {
    let mut peer = bench.connect().await?;
    peer.ask("server/discover", &json!({ "_meta": meta }).to_string()).await?.expect_error(&[-32602])?;
    Ok(None)
}

/// All tools, of all pages.
async fn tools(peer: &mut Peer, is_modern: bool) -> Result<Vec<Value>, CaseFailure> {
    let (mut tools, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let params = if is_modern { modern(params) } else { params.to_string() };
        let page = result(&peer.ask("tools/list", &params).await?)?;
        let Some(more) = page["tools"].as_array() else {
            return Err(CaseFailure::Fail(format!("tools must be a list, and is {}", page["tools"])));
        };
        if is_modern {
            let has_hints = page["ttlMs"].is_u64() && matches!(page["cacheScope"].as_str(), Some("public" | "private"));
            if page["resultType"] != "complete" || !has_hints {
                return Err(CaseFailure::Fail("a result must have resultType, ttlMs and cacheScope".to_owned()));
            }
        }
        tools.extend(more.iter().cloned());
        match &page["nextCursor"] {
            Value::Null => return Ok(tools),
            next if *next == cursor => return Err(CaseFailure::Fail("the cursor does not advance".to_owned())),
            next => cursor = next.clone(),
        }
    }
}

async fn list(bench: &mut Bench, is_modern: bool) -> Verdict {
    let mut peer = if is_modern { bench.connect().await? } else { session(bench).await? };
    let mut odd = None;
    for tool in tools(&mut peer, is_modern).await? {
        let Some(name) = tool["name"].as_str() else {
            return bench.fail(format!("a tool must have a name: {}", cut(tool.to_string().as_bytes())));
        };
        if tool["inputSchema"]["type"] != "object" {
            return bench.fail(format!("{name}: inputSchema must be one of an object"));
        }
        let is_plain = name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_') && name.len() <= 64;
        if !is_plain {
            odd = Some(format!("{name}: some clients accept only letters, digits and `_`, and 64 characters"));
        }
    }
    Ok(odd)
}

async fn order(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let (first, second) = (tools(&mut peer, true).await?, tools(&mut peer, true).await?);
    if first == second { Ok(None) } else { bench.fail("two lists differ") }
}

async fn set_level(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    let reply = peer.ask("logging/setLevel", "{\"level\":\"warning\"}").await?;
    match reply.code() {
        Some(-32601) => bench.skip("it has no logs"),
        _ => result(&reply).map(|_| None),
    }
}

async fn discover(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let result = result(&peer.ask("server/discover", &modern(json!({}))).await?)?;
    let has_version = result["supportedVersions"].as_array().is_some_and(|versions| versions.contains(&json!(MODERN)));
    if !has_version || !result["capabilities"].is_object() || result["resultType"] != "complete" {
        return bench.fail(format!("supportedVersions, capabilities or resultType is wrong: {result}"));
    }
    if result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].is_string() {
        return Ok(None);
    }
    Ok(Some("a result should have serverInfo in its _meta".to_owned()))
}

async fn unsupported_version(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let params = modern(json!({})).replace(MODERN, "2001-01-01");
    let reply = peer.ask("server/discover", &params).await?;
    reply.expect_error(&[-32022])?;
    let data = reply.error().unwrap_or_default()["data"].clone();
    if data["requested"] == "2001-01-01" && data["supported"].as_array().is_some_and(|known| !known.is_empty()) {
        return Ok(None);
    }
    bench.fail(format!("data must have supported and requested, and is {data}"))
}

async fn removed(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    for method in ["initialize", "ping", "logging/setLevel"] {
        peer.ask(method, &modern(json!({ "level": "info" }))).await?.expect_error(&[-32601])?;
    }
    Ok(None)
}

async fn both_eras(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    let discovered = result(&peer.ask("server/discover", &modern(json!({}))).await?)?;
    let pong = result(&peer.ask("ping", "{}").await?)?;
    if discovered["resultType"] == "complete" && pong == json!({}) {
        return Ok(None);
    }
    bench.fail(format!("one stream does not carry both eras: {discovered}, {pong}"))
}

async fn unknown_tool(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    let params = of_era(bench, json!({ "name": "rigline_no_such_tool", "arguments": {} }));
    let reply = peer.ask("tools/call", &params).await?;
    match reply.result() {
        Some(result) if result["isError"] == true => {
            Ok(Some("an unknown tool is a result with isError; it should be error -32602".to_owned()))
        }
        _ => reply.expect_error(&[-32602, -32601]).map(|()| None),
    }
}

async fn calls(bench: &mut Bench) -> Verdict {
    if bench.calls.is_empty() {
        return bench.skip("no tool may run: name one by --call");
    }
    let mut peer = session(bench).await?;
    let tools = tools(&mut peer, is_modern_only(bench)).await?;
    bench.ensure_known(&tools.iter().filter_map(|tool| tool["name"].as_str()).collect::<Vec<_>>())?;
    for (name, arguments) in bench.calls.clone() {
        let result =
            result(&peer.ask("tools/call", &of_era(bench, json!({ "name": name, "arguments": arguments }))).await?)?;
        if !result["content"].is_array() {
            return bench.fail(format!("{name}: content must be a list, and is {}", result["content"]));
        }
        let has_schema = tools.iter().any(|tool| tool["name"] == *name && tool["outputSchema"].is_object());
        if has_schema && result["isError"] != true && result.get("structuredContent").is_none() {
            return bench.fail(format!("{name} has an outputSchema, and its result no structuredContent"));
        }
    }
    Ok(None)
}

async fn bad_arguments(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    let tools = tools(&mut peer, is_modern_only(bench)).await?;
    let Some(tool) =
        tools.iter().find(|tool| tool["inputSchema"]["required"].as_array().is_some_and(|names| !names.is_empty()))
    else {
        return bench.skip("no tool requires an argument");
    };
    let reply = peer.ask("tools/call", &of_era(bench, json!({ "name": tool["name"], "arguments": {} }))).await?;
    match reply.result() {
        Some(result) if result["isError"] == true => Ok(None),
        Some(_) => bench.fail(format!("{} runs without an argument that it requires", tool["name"])),
        None => Ok(Some("missing arguments are an error; a model can put a result with isError right".to_owned())),
    }
}

async fn ids(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    for id in ["0", "-5", "2147483648", "\"abc\"", "\"7\"", "\"a\\\"b\""] {
        peer.ask_as(id, "rigline/no-such-method", &of_era(bench, json!({}))).await?.expect_error(&[-32601])?;
    }
    Ok(None)
}

async fn null_id(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    peer.send(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"tools/list\"}\n{\"jsonrpc\":\"2.0\",\"id\":\"after\",\"method\":\"ping\"}\n").await?;
    // It is refused, or gets no answer.
    let first = peer.any_reply().await?;
    if first.result().is_some_and(|result| result["tools"].is_array()) {
        return bench.fail("a request whose id is null is answered");
    }
    Ok(None)
}

async fn notifications(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    peer.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/rigline/nobody/knows\"}\n").await?;
    is_alive(bench, &mut peer).await?;
    Ok(None)
}

async fn cancelled(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    for params in [json!({ "requestId": "never sent" }), json!({}), json!({ "requestId": null })] {
        let line = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        peer.send_line(line).await?;
    }
    is_alive(bench, &mut peer).await?;
    Ok(None)
}

/// No client needs an answer to such a line, and both official kits give none; but the next request
/// has to be answered.
async fn bad_json(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    let first = after_bad_json(bench, &mut peer).await?;
    if first.result().is_none() {
        // It was about the line.
        result(&peer.any_reply().await?)?;
    }
    Ok(None)
}

async fn bad_json_reply(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    let first = after_bad_json(bench, &mut peer).await?;
    if first.result().is_some() {
        return bench.fail("a line that is not JSON is not answered");
    }
    first.expect_error(&[-32700])?;
    Ok(None)
}

/// The first reply after a line that is not JSON and a request.
async fn after_bad_json(bench: &Bench, peer: &mut Peer) -> Result<Reply, CaseFailure> {
    peer.send(b"{\"jsonrpc\":\"2.0\",\"id\":\n").await?;
    let (id, method) = (peer.next_id(), if is_modern_only(bench) { "server/discover" } else { "ping" });
    let params = of_era(bench, json!({}));
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n");
    peer.send(line.as_bytes()).await?;
    peer.any_reply().await
}

async fn crlf(bench: &mut Bench) -> Verdict {
    let mut peer = session(bench).await?;
    let id = peer.next_id();
    let method = if is_modern_only(bench) { "server/discover" } else { "ping" };
    let params = of_era(bench, json!({}));
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\r\n");
    peer.send(line.as_bytes()).await?;
    result(&peer.reply(&id).await?)?;
    Ok(None)
}

async fn end_of_input(bench: &mut Bench) -> Verdict {
    if bench.is_live() {
        return bench.skip("a device does not end");
    }
    let mut peer = session(bench).await?;
    peer.close_input().await;
    let within = bench.shutdown_timeout();
    match peer.exit(within).await {
        Some(_) => Ok(None),
        None => bench.fail(format!("it has not ended {within:?} after its input has")),
    }
}
