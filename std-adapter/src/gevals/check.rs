//! The cases of the gevals extension protocol 0.0.1, and of what its real host does.

use rigline::json::{Json, Kind};
use serde_json::{Map, Value, json};

use crate::check::{Bench, Case, CaseFailure, Peer, Reply, Suite, Verdict, cases, cut, names, run_on_bench};
use crate::stdio::HOST_LINE_LIMIT;

/// A method that no extension has.
const NO_METHOD: &str = "rigline/no-such-method";
/// An operation that no extension has.
const NO_OPERATION: &str = "rigline-no-such-operation";
/// How long a line is that is over any sensible limit, where the manifest names none: in a program, and on a wire.
const OVER_LONG: (usize, usize) = (9 << 20, 256 << 10);

/// All cases, in the order in which they run.
#[rustfmt::skip]
pub const CASES: &[Case] = cases! {
    "handshake", "gevals: Initialize", Host, handshake;
    "manifest.name", "gevals: Manifest Fields", Standard, |bench| manifest_string(bench, "name");
    "manifest.version", "gevals: Manifest Fields", Standard, manifest_version;
    "manifest.protocol-version", "gevals: Manifest Fields", Host, manifest_protocol_version;
    "manifest.description", "gevals: Manifest Fields", Standard, manifest_description;
    "manifest.requires", "gevals: Requirement Object", Standard, manifest_requires;
    "manifest.operations", "gevals: Operation Object", Host, manifest_operations;
    "manifest.schemas", "gevals: Operation Object", Host, manifest_schemas;
    "manifest.size", "peers: the host reads 65,535 bytes", Host, manifest_size;
    "initialize.twice", "gevals: Lifecycle", Standard, initialize_twice;
    "initialize.no-version", "gevals: Initialize", Standard, initialize_no_version;
    "id.integer", "JSON-RPC 2.0 §5", Host, |bench| ids(bench, &["1", "0", "-5", "2147483648", "1501691352102"], false);
    "id.string", "JSON-RPC 2.0 §5", Standard, |bench| ids(bench, STRING_IDS, false);
    "id.large", "JSON-RPC 2.0 §5", Standard, |bench| ids(bench, &["9007199254740993", "18446744073709551616", "-9223372036854775809"], true);
    "id.fraction", "JSON-RPC 2.0 §4", Standard, |bench| ids(bench, &["1.5", "1e3", "1.0"], true);
    "id.null", "JSON-RPC 2.0 §4", Standard, |bench| ids(bench, &["null"], false);
    "id.invalid", "JSON-RPC 2.0 §5.1", Standard, invalid_ids;
    "method.unknown", "gevals: Standard Error Codes", Standard, unknown_method;
    "operation.unknown", "gevals: Error Categories", Host, unknown_operation;
    "operation.missing", "gevals: Execute", Standard, missing_operation;
    "arguments.missing", "gevals: Error Categories", Standard, missing_argument;
    "arguments.wrong-type", "gevals: Standard Error Codes", Standard, wrong_argument;
    "execute.result", "gevals: Result Fields", Host, results;
    "execute.as-the-host-sends", "peers: args null, phase empty", Host, as_the_host_sends;
    "execute.unknown-members", "peers: unknown members are ignored", Standard, unknown_members;
    "execute.before-initialize", "gevals: One-Shot Mode", Standard, before_initialize;
    "notification.silence", "JSON-RPC 2.0 §4.1", Standard, notifications;
    "reply.silence", "peers: the host sends replies", Host, replies;
    "bad-json", "gevals: Error Categories", Standard, bad_json;
    "bad-json.recovery", "gevals: Transport", Standard, recovery;
    "bad-utf8", "gevals: Transport", Standard, bad_utf8;
    "invalid-request", "JSON-RPC 2.0 §5.1", Standard, invalid_requests;
    "batch", "JSON-RPC 2.0 §6", Standard, batch;
    "line.over-long", "gevals: Transport", Standard, over_long;
    "line.at-the-limit", "rigline: Limits", Standard, at_the_limit;
    "line.crlf", "RFC 8259 §2", Standard, crlf;
    "line.byte-order-mark", "RFC 8259 §8.1", Standard, byte_order_mark;
    "line.blank", "gevals: Transport", Standard, blank_lines;
    "line.split", "gevals: Transport", Host, split;
    "line.merged", "gevals: Transport", Standard, merged;
    "nesting", "RFC 8259 §9", Standard, nesting;
    "one-shot", "gevals: One-Shot Mode", Standard, one_shot;
    "one-shot.no-newline", "gevals: One-Shot Mode", Standard, one_shot_without_newline;
    "shutdown.reply", "gevals: Shutdown", Host, shutdown_reply;
    "shutdown.params", "JSON-RPC 2.0 §4", Standard, shutdown_params;
    "shutdown.exit", "gevals: Shutdown", Host, shutdown_exit;
    "end-of-input", "gevals: One-Shot Mode", Standard, end_of_input;
    "log.form", "gevals: Log", Host, log_form;
    "log.level", "gevals: Log", Standard, log_level;
    "stdout.clean", "gevals: Transport", Host, clean;
};

/// The suite, for the registry of protocols.
pub(super) const SUITE: Suite = Suite {
    names: || names(CASES),
    has_transcripts: false,
    run: |settings, report| Box::pin(run_on_bench(CASES, settings, report)),
};

const STRING_IDS: &[&str] =
    &["\"1\"", "\"abc-123\"", r#""a\"b\\c""#, r#""\u00e9\n""#, "\"7b9e2d4a-0c1f-4e5d-9a8b-112233445566\"", "\"\""];

async fn handshake(bench: &mut Bench) -> Verdict {
    let mut peer = bench.connect().await?;
    let reply = bench.initialize(&mut peer).await?;
    match (reply.result(), reply.error()) {
        (_, Some(error)) => bench.fail(format!("initialize was refused: {error}")),
        (Some(Value::Object(_)), _) if reply.is_versioned() => Ok(None),
        (Some(Value::Object(_)), _) => bench.fail("the reply lacks \"jsonrpc\":\"2.0\", and the real host drops it"),
        (result, _) => bench.fail(format!("the result is not an object: {}", result.unwrap_or_default())),
    }
}

async fn manifest_string(bench: &mut Bench, name: &str) -> Verdict {
    match &bench.manifest().await?[name] {
        Value::String(text) if !text.is_empty() => Ok(None),
        Value::Null => bench.fail(format!("{name} is missing")),
        value => bench.fail(format!("{name} must be a string that is not empty, and is {value}")),
    }
}

async fn manifest_version(bench: &mut Bench) -> Verdict {
    manifest_string(bench, "version").await?;
    let manifest = bench.manifest().await?;
    let version = manifest["version"].as_str().unwrap_or_default();
    match semver::Version::parse(version) {
        Ok(_) => Ok(None),
        Err(error) => bench.fail(format!("version must be a semantic version, and `{version}` is none: {error}")),
    }
}

async fn manifest_protocol_version(bench: &mut Bench) -> Verdict {
    match &bench.manifest().await?["protocolVersion"] {
        Value::String(version) if version == "0.0.1" => Ok(None),
        Value::Null => bench.fail("protocolVersion is missing"),
        version => bench.fail(format!("protocolVersion must be \"0.0.1\", and is {version}")),
    }
}

async fn manifest_description(bench: &mut Bench) -> Verdict {
    match &bench.manifest().await?["description"] {
        Value::String(_) | Value::Null => Ok(None),
        value => bench.fail(format!("description must be a string, and is {value}")),
    }
}

async fn manifest_requires(bench: &mut Bench) -> Verdict {
    let manifest = bench.manifest().await?;
    let requires = match &manifest["requires"] {
        Value::Null => return Ok(None),
        Value::Array(requires) => requires,
        value => return bench.fail(format!("requires must be a list, and is {value}")),
    };
    match requires.iter().find(|requirement| !requirement["command"].is_string()) {
        None => Ok(None),
        Some(wrong) => bench.fail(format!("requires must have {{\"command\":…}} objects, and has {wrong}")),
    }
}

async fn operations(bench: &mut Bench) -> Result<Map<String, Value>, CaseFailure> {
    match bench.manifest().await?["operations"].take() {
        Value::Object(operations) => Ok(operations),
        _ => Err(CaseFailure::Skip("the manifest has no operations".to_owned())),
    }
}

async fn manifest_operations(bench: &mut Bench) -> Verdict {
    let manifest = bench.manifest().await?;
    let Value::Object(operations) = &manifest["operations"] else {
        return bench.fail(format!("operations must be an object, and is {}", manifest["operations"]));
    };
    for (name, operation) in operations {
        if !operation.is_object() {
            return bench
                .fail(format!("operations.{name} must be an object, and is {operation}: it crashes the real host"));
        }
        if !matches!(operation["description"], Value::String(_) | Value::Null) {
            return bench.fail(format!("operations.{name}.description must be a string"));
        }
    }
    let is_undescribed = |operation: &Value| operation["description"].as_str().is_none_or(str::is_empty);
    let undescribed: Vec<&str> =
        operations.iter().filter(|(_, operation)| is_undescribed(operation)).map(|(name, _)| name.as_str()).collect();
    Ok(match () {
        () if operations.is_empty() => Some("there are no operations".to_owned()),
        () if undescribed.is_empty() => None,
        () => Some(format!("without a description, by which an agent chooses: {}", undescribed.join(", "))),
    })
}

async fn manifest_schemas(bench: &mut Bench) -> Verdict {
    for (name, operation) in operations(bench).await? {
        let Some(operation) = operation.as_object() else { continue };
        match operation.get("params") {
            None => return bench.fail(format!("operations.{name}.params is missing")),
            Some(Value::Null) => {
                return bench
                    .fail(format!("operations.{name}.params is null, with which the real host refuses every call"));
            }
            // As the Go kit writes it.
            Some(Value::Bool(true)) => {}
            Some(schema @ Value::Object(_)) => {
                if let Err(error) = jsonschema::validator_for(schema) {
                    return bench.fail(format!("operations.{name}.params is no valid JSON Schema: {error}"));
                }
            }
            Some(schema) => {
                return bench.fail(format!("operations.{name}.params must be a JSON Schema object, and is {schema}"));
            }
        }
    }
    Ok(None)
}

async fn manifest_size(bench: &mut Bench) -> Verdict {
    let size = bench.manifest_line().await?.len();
    if size <= HOST_LINE_LIMIT {
        return Ok(None);
    }
    bench.fail(format!("the reply to initialize takes {size} bytes, and the real host reads {HOST_LINE_LIMIT} at most"))
}

async fn initialize_twice(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let again = peer.ask("initialize", r#"{"protocolVersion":"0.0.1"}"#).await?;
    Ok(again.error().map(|error| format!("the second initialize is refused: {error}")))
}

async fn initialize_no_version(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for params in ["", "{}"] {
        let reply = peer.ask("initialize", params).await?;
        if reply.error().is_some() {
            reply.expect_error(&[-32602, -32600])?;
        }
    }
    Ok(None)
}

/// `lenient`: an id that is refused with -32600 and id null is right too.
async fn ids(bench: &mut Bench, ids: &[&str], lenient: bool) -> Verdict {
    let mut peer = bench.session().await?;
    for id in ids {
        for method in [NO_METHOD, "execute"] {
            let params = if method == "execute" { execute(NO_OPERATION, "{}") } else { "{}".to_owned() };
            let request = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n");
            peer.send(request.as_bytes()).await?;
            let reply = peer.any_reply().await?;
            let got = reply.id();
            if same(&got, id) || lenient && got == "null" && reply.code() == Some(-32600) {
                continue;
            }
            return bench.fail(format!("the id {id} came back as {}", if got.is_empty() { "none" } else { &got }));
        }
    }
    Ok(None)
}

/// Whether two ids are the same JSON value.
fn same(a: &str, b: &str) -> bool {
    let text =
        |id: &str| Json::parse(id.as_bytes()).ok().and_then(|id| id.text().map(|text| text.to_cow().into_owned()));
    let number = |id: &str| match Json::parse(id.as_bytes()).ok()?.kind() {
        Kind::Number => id.parse::<f64>().ok().filter(|number| number.abs() < 9e15),
        _ => None,
    };
    a == b
        || text(a).is_some_and(|a| Some(a) == text(b))
        || number(a).is_some_and(|a| number(b).is_some_and(|b| a.total_cmp(&b).is_eq()))
}

async fn invalid_ids(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for id in ["{}", "[1]", "true"] {
        peer.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\"}}\n").as_bytes()).await?;
        let reply = peer.any_reply().await?;
        reply.expect_error(&[-32600])?;
        if reply.id() != "null" {
            return bench.fail(format!("the id {id} is no id, and came back as {}", reply.id()));
        }
    }
    Ok(None)
}

async fn unknown_method(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.ask(NO_METHOD, "{}").await?.expect_error(&[-32601])?;
    Ok(None)
}

async fn unknown_operation(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let reply = peer.ask("execute", &execute(NO_OPERATION, "{}")).await?;
    // The Go kit does so, and so does today's text.
    if reply.result().is_some_and(|result| result.is_null() || result["success"] == false) {
        return Ok(Some("it gives a result with success false, as the Go kit and today's text do".into()));
    }
    reply.expect_error(&[-32601])?;
    Ok(None)
}

async fn missing_operation(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for params in ["{}", r#"{"operation":5,"args":{},"context":{}}"#, "[]", ""] {
        peer.ask("execute", params).await?.expect_error(&[-32602, -32600])?;
    }
    Ok(None)
}

/// Operations that may be called with wrong arguments: in a program any, on a wire only those that may run.
async fn callable(bench: &mut Bench) -> Result<Vec<(String, Value)>, CaseFailure> {
    let permitted: Vec<String> = bench.calls.iter().map(|(name, _)| name.clone()).collect();
    let live = bench.is_live();
    let operations = operations(bench).await?;
    Ok(operations.into_iter().filter(|(name, _)| !live || permitted.contains(name)).collect())
}

async fn missing_argument(bench: &mut Bench) -> Verdict {
    let operations = callable(bench).await?;
    let with_required_args = operations.iter().filter_map(|(name, operation)| {
        let required = operation["params"]["required"].as_array()?.first()?.as_str()?;
        Some((name, required))
    });
    let with_required_args: Vec<_> = with_required_args.take(4).collect();
    if with_required_args.is_empty() {
        return bench.skip("no operation that may run needs an argument");
    }
    let mut peer = bench.session().await?;
    let mut unnamed = None;
    for (name, required) in with_required_args {
        let reply = peer.ask("execute", &execute(name, "{}")).await?;
        reply.expect_error(&[-32602])?;
        if !reply.error().is_some_and(|error| error["message"].to_string().contains(required)) {
            unnamed = Some(format!("the error of {name} does not name the argument {required}"));
        }
    }
    Ok(unnamed)
}

async fn wrong_argument(bench: &mut Bench) -> Verdict {
    let wrong = |schema: &Value| match schema["type"].as_str()? {
        "string" => Some(json!({ "not": "a string" })),
        "integer" | "number" | "boolean" | "object" | "array" => Some(json!("not what it should be")),
        _ => None,
    };
    let operations = callable(bench).await?;
    let cases = operations.iter().filter_map(|(name, operation)| {
        let required = operation["params"]["required"].as_array()?;
        let properties = operation["params"]["properties"].as_object()?;
        // Were the wrong type let pass, the call would still fail for want of the others, where there are several.
        let (argument, schema) =
            properties.iter().find(|(argument, _)| required.iter().any(|name| name == *argument))?;
        Some((name, argument, wrong(schema)?))
    });
    let cases: Vec<_> = cases.take(4).collect();
    if cases.is_empty() {
        return bench.skip("no operation that may run needs an argument with a type");
    }
    let mut peer = bench.session().await?;
    for (name, argument, value) in cases {
        let args = json!({ argument.as_str(): value }).to_string();
        peer.ask("execute", &execute(name, &args)).await?.expect_error(&[-32602])?;
    }
    Ok(None)
}

async fn results(bench: &mut Bench) -> Verdict {
    let calls = bench.permitted_calls().await?;
    let mut peer = bench.session().await?;
    let mut remark = None;
    for (name, args) in calls {
        let reply = peer.ask("execute", &execute(&name, &args.to_string())).await?;
        if reply.line().len() > HOST_LINE_LIMIT {
            let size = reply.line().len();
            return bench.fail(format!("{name} answers with {size} bytes, and the real host reads {HOST_LINE_LIMIT}"));
        }
        let Some(result) = reply.result() else {
            return bench.fail(format!("{name} was refused: {}", reply.error().unwrap_or_default()));
        };
        if result.is_null() {
            remark = Some(format!("{name} gives the result null, which the real host takes for a failure"));
            continue;
        }
        match &result["success"] {
            Value::Bool(true) => {}
            Value::Bool(false) => remark = Some(format!("{name} failed: {}", result["error"])),
            value => return bench.fail(format!("{name}: success must be a boolean, and is {value}")),
        }
        for member in ["message", "error"] {
            if !matches!(result[member], Value::String(_) | Value::Null) {
                return bench.fail(format!("{name}: {member} must be a string, and is {}", result[member]));
            }
        }
        match &result["outputs"] {
            Value::Null => {}
            Value::Object(outputs) => {
                if let Some((output, value)) = outputs.iter().find(|(_, value)| !value.is_string()) {
                    return bench.fail(format!(
                        "{name}: the output {output} must be a string, and is {value}: the real host fails the call"
                    ));
                }
            }
            value => return bench.fail(format!("{name}: outputs must be an object, and is {value}")),
        }
    }
    Ok(remark)
}

async fn as_the_host_sends(bench: &mut Bench) -> Verdict {
    let calls = bench.permitted_calls().await?;
    let mut peer = bench.session().await?;
    for (name, args) in calls {
        let args = if args.as_object().is_some_and(Map::is_empty) { "null".to_owned() } else { args.to_string() };
        let params = format!(r#"{{"operation":"{name}","args":{args},"context":{{"workdir":"/tmp","phase":""}}}}"#);
        let reply = peer.ask("execute", &params).await?;
        if let Some(error) = reply.error() {
            return bench.fail(format!("{name} was refused: {error}"));
        }
    }
    Ok(None)
}

async fn unknown_members(bench: &mut Bench) -> Verdict {
    let mut calls = bench.permitted_calls().await?;
    let (name, args) = calls.swap_remove(0);
    let mut peer = bench.session().await?;
    let params = format!(
        r#"{{"operation":"{name}","args":{args},"context":{{"workdir":"/tmp","phase":"verify","agent":{{"prompt":"p\u003c","output":"","x":1}},"x":[{{}}]}},"x":null}}"#
    );
    let reply = peer.ask("execute", &params).await?;
    match reply.error() {
        Some(error) => bench.fail(format!("{name} was refused: {error}")),
        None => Ok(None),
    }
}

async fn before_initialize(bench: &mut Bench) -> Verdict {
    let request = execute(NO_OPERATION, "{}");
    let mut peer = bench.session().await?;
    let within = peer.ask("execute", &request).await?;
    drop(peer);
    let without = bench.connect().await?.ask("execute", &request).await?;
    if within.code() == without.code() {
        return Ok(None);
    }
    bench
        .fail(format!("execute must work without initialize, and was answered with {}", cut(without.line().as_bytes())))
}

async fn notifications(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send(
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"{NO_METHOD}\"}}\n\
             {{\"jsonrpc\":\"2.0\",\"method\":\"execute\",\"params\":{{\"operation\":\"{NO_OPERATION}\"}}}}\n\
             {{\"jsonrpc\":\"2.0\",\"method\":\"execute\",\"params\":17}}\n"
        )
        .as_bytes(),
    )
    .await?;
    expect_next(&mut peer, "a notification was answered").await
}

async fn replies(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send(
        b"{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n\
          {\"jsonrpc\":\"2.0\",\"id\":98,\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}\n",
    )
    .await?;
    expect_next(&mut peer, "a reply was answered").await
}

/// The next reply must be the one to a request that is sent now.
async fn expect_next(peer: &mut Peer, fault: &str) -> Verdict {
    let id = peer.next_id();
    peer.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\",\"params\":{{}}}}\n").as_bytes())
        .await?;
    let reply = peer.any_reply().await?;
    if reply.id() == id {
        Ok(None)
    } else {
        Err(CaseFailure::Fail(format!("{fault}: {}", cut(reply.line().as_bytes()))))
    }
}

async fn bad_json(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for line in ["{oops", r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"t":NaN}}"#, "{\"a\":1,}", "nonsense"] {
        peer.send(format!("{line}\n").as_bytes()).await?;
        let reply = peer.any_reply().await?;
        reply.expect_error(&[-32700])?;
        if reply.id() != "null" {
            return bench.fail(format!("the reply to bad JSON must have the id null, and has {:?}", reply.id()));
        }
    }
    Ok(None)
}

async fn recovery(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send(b"{oops\n{\n]\n").await?;
    let id = peer.next_id();
    peer.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\",\"params\":{{}}}}\n").as_bytes())
        .await?;
    for _ in 0..4 {
        match peer.reply_or_end().await? {
            Some(reply) if reply.id() == id => return Ok(None),
            Some(_) => {}
            None => return bench.fail("one bad line ended the session"),
        }
    }
    bench.fail("a bad line got more than one answer")
}

async fn bad_utf8(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let lines: [&[u8]; 3] = [
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xC4\xE3\"}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xC0\xAF\"}\n",
        b"\xFF\xFE\n",
    ];
    for line in lines {
        peer.send(line).await?;
        peer.any_reply().await?.expect_error(&[-32700, -32600])?;
    }
    expect_next(&mut peer, "bad UTF-8 was answered twice").await
}

async fn invalid_requests(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let table = [
        ("{}", "null"),
        ("\"hi\"", "null"),
        ("3", "null"),
        ("[]", "null"),
        (r#"{"jsonrpc":"2.0","id":4}"#, "4"),
        (r#"{"jsonrpc":"2.0","id":4,"method":1}"#, "4"),
        (r#"{"jsonrpc":"1.0","id":4,"method":"rigline/no-such-method"}"#, "4"),
    ];
    for (line, id) in table {
        peer.send(format!("{line}\n").as_bytes()).await?;
        let reply = peer.any_reply().await?;
        // A peer that does not look at the version may serve it.
        let served = line.contains("\"1.0\"") && reply.code() == Some(-32601);
        if !served {
            reply.expect_error(&[-32600])?;
        }
        let got = reply.id();
        if got != id && got != "null" {
            return bench.fail(format!("the reply to {line} must have the id {id}, and has {got:?}"));
        }
    }
    expect_next(&mut peer, "an invalid request was answered twice").await
}

async fn batch(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let request = |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\"}}");
    peer.send(format!("[{},{{\"jsonrpc\":\"2.0\",\"method\":\"x\"}},{}]\n", request(901), request(902)).as_bytes())
        .await?;
    let reply = peer.any_reply().await?;
    let replies: Value = serde_json::from_str(reply.line()).unwrap_or_default();
    let Some(replies) = replies.as_array() else {
        reply.expect_error(&[-32600])?;
        return Ok(Some("it takes no batches".to_owned()));
    };
    let mut ids: Vec<_> = replies.iter().filter_map(|reply| reply["id"].as_i64()).collect();
    ids.sort_unstable();
    if ids != [901, 902] || replies.len() != 2 {
        let got = cut(reply.line().as_bytes());
        return bench.fail(format!("a batch of two requests and a notification gave {got}"));
    }
    expect_next(&mut peer, "a batch was answered twice").await
}

/// The longest request that the manifest says to fit.
async fn request_limit(bench: &mut Bench) -> Result<Option<usize>, CaseFailure> {
    let manifest = bench.manifest().await?;
    Ok(manifest["limits"]["request"].as_u64().and_then(|limit| usize::try_from(limit).ok()))
}

/// A request for nothing, of exactly this many bytes.
fn padded(id: &str, size: usize) -> String {
    let start = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\",\"params\":{{\"x\":\"");
    // What is behind the limit must not run.
    let end = r#"\"}} {\"jsonrpc\":\"2.0\",\"id\":909,\"method\":\"shutdown\"}"}}"#;
    let filling = size.saturating_sub(start.len() + end.len());
    format!("{start}{}{end}", "A".repeat(filling))
}

async fn over_long(bench: &mut Bench) -> Verdict {
    let size = match request_limit(bench).await? {
        Some(limit) if limit < (64 << 20) => limit + 1,
        _ if bench.is_live() => OVER_LONG.1,
        _ => OVER_LONG.0,
    };
    let mut peer = bench.session().await?;
    peer.send(format!("{}\n", padded("900", size)).as_bytes()).await?;
    let reply = peer.any_reply().await?;
    if !matches!(reply.id().as_str(), "null" | "900") {
        return bench.fail(format!("a line of {size} bytes was answered with the id {}", reply.id()));
    }
    expect_next(&mut peer, "a line that is too long was answered twice").await
}

async fn at_the_limit(bench: &mut Bench) -> Verdict {
    let Some(limit) = request_limit(bench).await?.filter(|limit| *limit < (64 << 20)) else {
        return bench.skip("the manifest names no limit");
    };
    let mut peer = bench.session().await?;
    for size in [limit - 1, limit] {
        peer.send(format!("{}\n", padded("900", size)).as_bytes()).await?;
        let reply = peer.any_reply().await?;
        if reply.id() != "900" {
            return bench.fail(format!("a request of {size} bytes must fit {limit}: {}", cut(reply.line().as_bytes())));
        }
    }
    peer.send(format!("{}\n", padded("900", limit + 1)).as_bytes()).await?;
    let reply = peer.any_reply().await?;
    if reply.id() != "null" || reply.error().is_none() {
        return bench.fail(format!("a request of {} bytes must not fit {limit}", limit + 1));
    }
    Ok(None)
}

async fn crlf(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for end in ["\r\n", "\r\r\n"] {
        let id = peer.next_id();
        peer.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\"}}{end}").as_bytes()).await?;
        peer.reply(&id).await?;
    }
    Ok(None)
}

async fn byte_order_mark(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let id = peer.next_id();
    peer.send(format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\"}}\n").as_bytes()).await?;
    let reply = peer.any_reply().await?;
    if reply.id() == id {
        return Ok(None);
    }
    // RFC 8259 lets a parser take it or refuse it.
    reply.expect_error(&[-32700])?;
    Ok(Some("it refuses a byte-order mark, which it may".to_owned()))
}

async fn blank_lines(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send(b"\n\r\n  \n").await?;
    expect_next(&mut peer, "a blank line was answered").await
}

async fn split(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let id = peer.next_id();
    let request = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\",\"params\":{{}}}}\n");
    peer.trickle(request.as_bytes()).await?;
    peer.reply(&id).await?;
    Ok(None)
}

async fn merged(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let ids: Vec<String> = (0..3).map(|_| peer.next_id()).collect();
    let requests = ids.iter().map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\"}}\n"));
    peer.send(requests.collect::<String>().as_bytes()).await?;
    for id in &ids {
        peer.reply(id).await?;
    }
    Ok(None)
}

async fn nesting(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for depth in [100, 100_000] {
        // On a board, what fits its line.
        let depth = request_limit(bench).await?.map_or(depth, |limit| depth.min(limit.saturating_sub(100) / 2));
        let id = peer.next_id();
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        peer.send(
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\",\"params\":{{\"x\":{open}{close}}}}}\n"
            )
            .as_bytes(),
        )
        .await?;
        peer.any_reply().await?;
    }
    expect_next(&mut peer, "deep nesting was answered twice").await
}

async fn one_shot(bench: &mut Bench) -> Verdict {
    shoot(bench, "\n").await
}

async fn one_shot_without_newline(bench: &mut Bench) -> Verdict {
    shoot(bench, "").await
}

async fn shoot(bench: &mut Bench, end: &str) -> Verdict {
    if bench.is_live() {
        return bench.skip("only programs have a one-shot mode");
    }
    let (name, args) = match bench.permitted_calls().await {
        Ok(mut calls) => calls.swap_remove(0),
        Err(_) => (NO_OPERATION.to_owned(), json!({})),
    };
    let mut peer = bench.connect().await?;
    let params = execute(&name, &args.to_string());
    peer.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"execute\",\"params\":{params}}}{end}").as_bytes())
        .await?;
    peer.close_input().await;
    let replies = peer.rest().await?;
    let is_it = |reply: &Reply| reply.id() == "1";
    match replies.as_slice() {
        [reply] if is_it(reply) => {}
        [] => return bench.fail("the end of input came, and no answer"),
        replies => return bench.fail(format!("expected one answer, got {}", replies.len())),
    }
    match peer.exit(bench.shutdown_timeout()).await {
        Some(_) => Ok(None),
        None => bench.fail("it does not exit after its only request"),
    }
}

async fn shutdown_reply(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let id = peer.next_id();
    peer.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"shutdown\",\"params\":{{}}}}\n").as_bytes())
        .await?;
    match peer.reply_or_end().await? {
        Some(reply) if reply.id() == id && reply.result().is_some() => Ok(None),
        Some(reply) => bench.fail(format!("shutdown was answered with {}", cut(reply.line().as_bytes()))),
        None => match peer.exit(bench.shutdown_timeout()).await {
            Some(exit) if exit.is_success() => {
                Ok(Some("it exits without a reply, which the real host takes".to_owned()))
            }
            exit => bench
                .fail(format!("it ended without a reply{}", exit.map(|exit| format!(": {exit}")).unwrap_or_default())),
        },
    }
}

async fn shutdown_params(bench: &mut Bench) -> Verdict {
    for params in ["", "null", "[]"] {
        let mut peer = bench.session().await?;
        let id = peer.next_id();
        let text = if params.is_empty() { String::new() } else { format!(",\"params\":{params}") };
        peer.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"shutdown\"{text}}}\n").as_bytes()).await?;
        if let Some(reply) = peer.reply_or_end().await?
            && let Some(error) = reply.error()
        {
            let params = if params.is_empty() { "no params" } else { params };
            return bench.fail(format!("shutdown with {params} was refused: {error}"));
        }
    }
    Ok(None)
}

async fn shutdown_exit(bench: &mut Bench) -> Verdict {
    if bench.is_live() {
        return bench.skip("only programs exit");
    }
    let mut peer = bench.session().await?;
    peer.send(b"{\"jsonrpc\":\"2.0\",\"id\":950,\"method\":\"shutdown\",\"params\":{}}\n").await?;
    let _ = peer.reply_or_end().await?;
    // The real host leaves standard input open.
    match peer.exit(bench.shutdown_timeout()).await {
        Some(exit) if exit.is_success() => Ok(None),
        Some(exit) => bench.fail(format!("it ended with {exit}")),
        None => bench.fail(format!("it still runs {:?} after shutdown, with its input open", bench.shutdown_timeout())),
    }
}

async fn end_of_input(bench: &mut Bench) -> Verdict {
    if bench.is_live() {
        return bench.skip("only programs have an end of input");
    }
    let mut peer = bench.session().await?;
    peer.close_input().await;
    match peer.exit(bench.shutdown_timeout()).await {
        Some(_) => Ok(None),
        None => bench.fail(format!("it still runs {:?} after the end of its input", bench.shutdown_timeout())),
    }
}

/// The logs of all cases so far; without any, those of the calls that may be made.
async fn logs(bench: &mut Bench) -> Result<Vec<String>, CaseFailure> {
    if bench.logs().is_empty()
        && let Ok(calls) = bench.permitted_calls().await
    {
        let mut peer = bench.session().await?;
        for (name, args) in calls {
            peer.ask("execute", &execute(&name, &args.to_string())).await?;
        }
    }
    let logs = bench.logs();
    if logs.is_empty() {
        return Err(CaseFailure::Skip("nothing was logged; name an operation that logs by --call".to_owned()));
    }
    Ok(logs)
}

async fn log_level(bench: &mut Bench) -> Verdict {
    for line in logs(bench).await? {
        let log: Value = serde_json::from_str(&line).unwrap_or_default();
        if !matches!(log["params"]["level"].as_str(), Some("debug" | "info" | "warn" | "error")) {
            return bench.fail(format!("a log's level must be debug, info, warn or error: {}", cut(line.as_bytes())));
        }
    }
    Ok(None)
}

async fn log_form(bench: &mut Bench) -> Verdict {
    let logs = logs(bench).await?;
    for line in &logs {
        let log: Value = serde_json::from_str(line).unwrap_or_default();
        let params = &log["params"];
        let shown = cut(line.as_bytes());
        if log.get("id").is_some() {
            return bench.fail(format!("a log is a notification, and has no id: {shown}"));
        }
        if log["jsonrpc"] != "2.0" {
            return bench.fail(format!("a log lacks \"jsonrpc\":\"2.0\": {shown}"));
        }
        if !matches!(params["level"], Value::String(_) | Value::Null) {
            return bench.fail(format!("a log's level must be a string, or the real host drops the log: {shown}"));
        }
        if !params["message"].is_string() {
            return bench.fail(format!("a log's message must be a string: {shown}"));
        }
        if params.get("data").is_some_and(|data| !data.is_object()) {
            return bench.fail(format!("a log's data must be an object, or the real host drops the log: {shown}"));
        }
        if line.len() > HOST_LINE_LIMIT {
            return bench.fail(format!("a log takes {} bytes, and the real host reads {HOST_LINE_LIMIT}", line.len()));
        }
    }
    Ok(Some(format!("{} logs", logs.len())))
}

async fn clean(bench: &mut Bench) -> Verdict {
    if !bench.is_reached() {
        bench.session().await?;
    }
    match bench.noise().as_slice() {
        [] => Ok(None),
        [first, rest @ ..] => bench.fail(format!(
            "{} lines that are no messages came, at which the real host's reader dies; the first: {first:?}",
            rest.len() + 1
        )),
    }
}

/// The params of `execute`.
fn execute(operation: &str, args: &str) -> String {
    let operation = Value::from(operation);
    format!(r#"{{"operation":{operation},"args":{args},"context":{{"workdir":"/tmp","phase":"setup"}}}}"#)
}
