//! MCP: both eras on one stream, tools, content, progress, cancellation.

use std::rc::Rc;
use std::time::Duration;

use crate::common::{FakeClock, INITIALIZE, MS, Pipe, SHUTDOWN};
use rigline::Effects;
use rigline::protocol::gevals::TaskContext;
use rigline::protocol::mcp::{LEGACY, MODERN, TIMEOUT_NAME};
use rigline::serve::{Transport, blocking};
use rigline::{
    Call, Config, Content, Context, Extension, Failure, FailureKind, Level, Manifest, Operation, Outcome, Phase, Schema,
};
use rigline::{
    engine::{Engine, Memory},
    exchange::LEAST_REPLY,
};
use serde_json::{Value, json};

const MANIFEST: Manifest = Manifest::new("bench", "1.2.3").description("A \"bench\"").operations(&[
    Operation::new("self-test", Schema::OBJECT).description("Checks all").effects(Effects::changes(true, false)),
    Operation::new("measure", Schema::text(r#"{"type":"object","properties":{"channel":{"type":"string"}}}"#))
        .outputs(Schema::text(r#"{"type":"object","properties":{"volts":{"type":"number"}}}"#))
        .effects(Effects::READ_ONLY),
    Operation::new("picture", Schema::ANY),
    Operation::new("fail.as", Schema::text(r#"{"anyOf":[{"type":"object"}]}"#)),
    Operation::new("log", Schema::OBJECT),
    Operation::new("odd", Schema::OBJECT),
]);

struct Bench;

impl Extension for Bench {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let kind = call.args_json().get("kind").and_then(|kind| kind.text()).map(|kind| kind.to_string());
        match call.operation() {
            "self-test" => {
                for done in [0, 50, 50, 100] {
                    cx.progress(done, Some(100), format_args!("step \"{done}\""));
                }
                let is_reported = cx.wants_progress();
                cx.done(if is_reported { "all passed, as reported" } else { "all passed" })
            }
            "measure" => {
                if kind.as_deref() != Some("nothing") {
                    cx.output("volts", &3)?;
                    cx.output("of", &"a\"b")?;
                }
                match kind.as_deref() {
                    Some("fail") => cx.failed("too low"),
                    Some("silent" | "nothing") => Ok(Outcome::DONE),
                    _ => cx.done("3 V"),
                }
            }
            "picture" => {
                cx.content("caption", &Content::Text("a \"picture\""))?;
                cx.content("image", &Content::Image { mime_type: "image/png", data: b"\x89PN" })?;
                cx.content("file", &Content::BlobResource { uri: "x:1", mime_type: "a/b", data: b"f" })?;
                match kind.as_deref() {
                    Some("fail") => cx.failed("no ink"),
                    Some("output") => {
                        cx.output("late", &1)?;
                        cx.done("never")
                    }
                    _ => cx.done("drawn"),
                }
            }
            "fail.as" => Err(cx.failure(
                match kind.as_deref() {
                    Some("arguments") => FailureKind::BadArguments,
                    Some("timeout") => FailureKind::Timeout,
                    Some("forbidden") => FailureKind::Forbidden,
                    Some("unknown") => FailureKind::UnknownOperation,
                    Some("internal") => FailureKind::Internal,
                    Some("requirement") => FailureKind::RequirementNotMet,
                    _ => FailureKind::Unreachable,
                },
                "a \"reason\"",
            )),
            "odd" => Ok(Outcome::DONE),
            _ => {
                cx.debug("d");
                cx.info("i");
                cx.log_with(Level::Warn, "w", &json!({"x": 1}).to_string());
                cx.error("e");
                cx.done("logged")
            }
        }
    }
}

/// The lines that come out when these go in.
fn lines(requests: &[Value], reply: usize) -> Vec<Value> {
    lines_of(&MANIFEST, requests, reply)
}

fn lines_of(manifest: &'static Manifest, requests: &[Value], reply: usize) -> Vec<Value> {
    let input: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let (mut request, mut memory, mut log) = (vec![0; 4096], vec![0; reply], vec![0; 1024]);
    let memory = Memory { request: &mut request, reply: &mut memory };
    let mut engine = Engine::new(manifest, memory).unwrap();
    let mut pipe = Pipe::new(input.as_bytes());
    let clock = crate::common::NoTime;
    let mut bench = Bench;
    let server = blocking::Server::new(&mut bench, &mut engine, &clock).transport(Transport::Stream);
    server.log_buffer(&mut log).serve(&mut pipe).unwrap();
    let text = String::from_utf8(pipe.output).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn one(request: Value) -> Value {
    let mut lines = lines(&[request], 4096);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

fn legacy(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

fn meta() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}})
}

fn modern(method: &str, mut params: Value) -> Value {
    let mut all = meta();
    if let Some(more) = params.get("_meta").and_then(Value::as_object) {
        all.as_object_mut().unwrap().extend(more.clone());
    }
    params["_meta"] = all;
    legacy(method, params)
}

fn call(name: &str, kind: &str) -> Value {
    legacy("tools/call", json!({"name": name, "arguments": {"kind": kind}}))
}

/// Lifecycle, Version Negotiation.
#[test]
fn initialize_echoes_a_known_version_and_is_never_an_error() {
    for (offered, answered) in LEGACY.into_iter().map(|known| (known, known)).chain([
        (MODERN, LEGACY[0]),
        ("2099-01-01", LEGACY[0]),
        ("1.0", LEGACY[0]),
    ]) {
        let params =
            json!({"protocolVersion": offered, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let result = &one(legacy("initialize", params))["result"];
        assert_eq!(result["protocolVersion"], answered, "{offered}");
        assert_eq!(result["serverInfo"], json!({"name": "bench", "version": "1.2.3"}));
        assert_eq!(result["capabilities"], json!({"tools": {}, "logging": {}}));
        let instructions = result["instructions"].as_str().unwrap();
        assert!(instructions.starts_with("A \"bench\"\n") && instructions.lines().count() <= 14, "{instructions}");
        assert_eq!(rigline::protocol::mcp::description_in(instructions), "A \"bench\"");
        for line in [
            "Calls run one at a time, in order.",
            "Tools that change nothing: measure.",
            "Tools that change something: self_test picture fail_as log odd.",
        ] {
            assert!(instructions.lines().any(|known| known == line), "{instructions}");
        }
        assert!(
            !instructions.contains("identify") && !instructions.contains("outputs"),
            "it has neither: {instructions}"
        );
    }
    // By the date alone, and by the client's name alone.
    for params in [
        json!({"protocolVersion": "2025-06-18"}),
        json!({"clientInfo": {}}),
        json!({"clientInfo": {}, "protocolVersion": 5}),
    ] {
        assert_eq!(one(legacy("initialize", params))["result"]["serverInfo"]["name"], "bench");
    }
}

/// gevals has an `initialize` too.
#[test]
fn the_sessions_of_two_protocols_are_told_apart() {
    let gevals = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "0.0.1"}});
    let execute =
        json!({"jsonrpc": "2.0", "id": 2, "method": "execute", "params": {"operation": "odd", "context": {}}});
    let unknown = json!({"jsonrpc": "2.0", "id": 3, "method": "nope"});
    let found = lines(
        &[
            gevals.clone(),
            call("odd", ""),
            execute.clone(),
            unknown.clone(),
            legacy("ping", json!({})),
            unknown,
            execute,
        ],
        4096,
    );
    assert_eq!(found[0]["result"]["protocolVersion"], "0.0.1");
    assert_eq!(found[1]["result"]["content"], json!([]));
    assert_eq!(found[2]["result"]["success"], true);
    assert_eq!(found[3]["error"]["code"], -32601);
    assert_eq!(found[4]["result"], json!({}));
    assert_eq!(found[5]["error"]["code"], -32601);
    assert_eq!(found[6]["result"]["success"], true);
}

/// Which protocol answers a request, after one of gevals and after one of MCP.
#[test]
fn a_request_belongs_to_the_protocol_that_its_method_or_its_params_tell() {
    const GEVALS: &str = "Unknown method: ";
    const MCP: &str = "Method not found: ";
    let execute =
        json!({"jsonrpc": "2.0", "id": 2, "method": "execute", "params": {"operation": "odd", "context": {}}});
    let said = |first: &Value, request: &Value| {
        let found = lines(&[first.clone(), request.clone()], 4096);
        let reply = found.last().unwrap();
        reply["error"]["message"].as_str().unwrap_or_else(|| panic!("{request}: {reply}")).to_owned()
    };
    let claims = json!({"_meta": {"io.modelcontextprotocol/nothing": 1}});
    let modern_claims = json!({"_meta": {"io.modelcontextprotocolX": 1}});
    for (method, params, after_gevals, after_mcp) in [
        // Families of MCP.
        ("tools/nope", json!({}), MCP, MCP),
        ("resources/nope", json!({}), MCP, MCP),
        ("prompts/nope", json!({}), MCP, MCP),
        ("logging/nope", json!({}), MCP, MCP),
        ("completion/nope", json!({}), MCP, MCP),
        ("sampling/nope", json!({}), MCP, MCP),
        ("roots/nope", json!({}), MCP, MCP),
        ("elicitation/nope", json!({}), MCP, MCP),
        ("server/nope", json!({}), MCP, MCP),
        ("subscriptions/nope", json!({}), MCP, MCP),
        ("tasks/nope", json!({}), MCP, MCP),
        ("notifications/nope", json!({}), MCP, MCP),
        // With a slash, but of none of them.
        ("toolsX/nope", json!({}), GEVALS, MCP),
        ("x/tools/nope", json!({}), GEVALS, MCP),
        ("/", json!({}), GEVALS, MCP),
        ("x/nope", claims.clone(), MCP, MCP),
        ("x/nope", modern_claims, MCP, MCP),
        ("x/nope", json!({"_meta": {"io.modelcontext": 1}}), GEVALS, MCP),
        ("x/nope", json!({"io.modelcontextprotocol/nothing": 1}), GEVALS, MCP),
        // Without a slash none is MCP's, whatever else it has.
        ("nope", claims.clone(), GEVALS, GEVALS),
        ("Execute", claims.clone(), GEVALS, GEVALS),
        ("tools.list", claims, GEVALS, GEVALS),
        ("tools", json!({}), GEVALS, GEVALS),
        ("Ping", json!({}), GEVALS, GEVALS),
        ("pings", json!({}), GEVALS, GEVALS),
    ] {
        let request = legacy(method, params);
        for (first, expected) in [(&execute, after_gevals), (&legacy("ping", json!({})), after_mcp)] {
            assert_eq!(said(first, &request), format!("{expected}{method}"), "{first} {request}");
        }
    }
    // A version of MCP is a date.
    for (params, is_mcp) in [
        (json!({"protocolVersion": "2025-06-18"}), true),
        (json!({"protocolVersion": "9999-99-99"}), true),
        (json!({"protocolVersion": "2025-06-1"}), false),
        (json!({"protocolVersion": "2025-06-180"}), false),
        (json!({"protocolVersion": "2025-06-1x"}), false),
        (json!({"protocolVersion": "2025006018"}), false),
        (json!({"protocolVersion": "2025-0-018"}), false),
        (json!({"protocolVersion": "0.0.1"}), false),
        (json!({"protocolVersion": 2025}), false),
        (json!({"_meta": {"io.modelcontextprotocol/clientInfo": {}}}), true),
        (json!({"_meta": {}}), false),
        (json!({}), false),
    ] {
        let reply = one(legacy("initialize", params.clone()));
        let is_answered_by_gevals = reply["result"].get("operations").is_some()
            || reply["error"]["message"].as_str().is_some_and(|text| text.contains("only 0.0.1"));
        assert_eq!(!is_answered_by_gevals, is_mcp, "{params}: {reply}");
    }
    // Without params it is of gevals, which needs them.
    let bare = one(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"}));
    assert_eq!(bare["error"]["message"], "params: required, but missing");
}

#[test]
fn a_method_of_mcp_is_ping_or_has_the_name_of_a_family_before_its_slash() {
    for (method, is_mine) in [
        ("ping", true),
        ("tools/call", true),
        ("tasks/", true),
        ("server/discover", true),
        ("Ping", false),
        ("pin", false),
        ("", false),
        ("/tools", false),
        ("tools", false),
        ("toolsX/call", false),
        ("initialize", false),
        ("eval.run", false),
    ] {
        let text = format!("\"{method}\"");
        let text = rigline::json::Json::parse(text.as_bytes()).unwrap().text().unwrap();
        assert_eq!(rigline::protocol::mcp::is_method(text), is_mine, "{method}");
    }
}

/// Base Protocol, Requests: ids are strings and integers, and never null.
#[test]
fn ids() {
    for (id, echoed) in [(json!(1), json!(1)), (json!("x"), json!("x")), (json!(-5), json!(-5)), (json!(""), json!(""))]
    {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        assert_eq!(one(request), json!({"jsonrpc": "2.0", "id": echoed, "result": {}}));
    }
    for id in [json!(null), json!(1.5), json!([]), json!(true), json!({})] {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
        assert_eq!(one(request)["error"]["code"], -32600, "{id}");
    }
    // What has no id is a notification, whatever its method: nothing runs, nothing is said.
    let silent = [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "log"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}),
        json!({"jsonrpc": "2.0", "method": "notifications/nobody/knows"}),
    ];
    assert_eq!(lines(&silent, 4096), Vec::<Value>::new());
}

/// Base Protocol, `_meta`: what a modern request must say.
#[test]
fn a_modern_request_says_what_it_must() {
    let discovered = one(modern("server/discover", json!({})));
    let result = &discovered["result"];
    assert_eq!(result["supportedVersions"][0], MODERN);
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"], json!({"name": "bench", "version": "1.2.3"}));
    assert!(result["ttlMs"].as_u64().is_some() && result["cacheScope"] == "public", "{result}");
    for (meta, message) in [
        (json!({}), "protocolVersion: required, but missing"),
        (json!({"io.modelcontextprotocol/protocolVersion": 5}), "protocolVersion: expected a string"),
        (json!({"io.modelcontextprotocol/protocolVersion": MODERN}), "clientCapabilities: required, but missing"),
        (json!({"io.modelcontextprotocol/clientCapabilities": {}}), "protocolVersion: required, but missing"),
        (
            json!({"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": null}),
            "clientCapabilities: expected an object",
        ),
    ] {
        let error = one(legacy("server/discover", json!({"_meta": meta})))["error"].clone();
        assert_eq!(error, json!({"code": -32602, "message": format!("io.modelcontextprotocol/{message}")}), "{meta}");
    }
    assert_eq!(one(legacy("server/discover", json!(null)))["error"]["code"], -32602);
    let request = modern("tools/list", json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1900-\"01\""}}));
    let error = &one(request)["error"];
    assert_eq!(error["code"], -32022);
    assert_eq!(error["data"]["requested"], "1900-\"01\"");
    assert_eq!(error["data"]["supported"][0], MODERN);
    // What is gone is unknown.
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
        let params = json!({"clientInfo": {}, "level": "info"});
        assert_eq!(one(modern(method, params))["error"]["code"], -32601, "{method}");
    }
}

#[test]
fn tools_have_names_that_all_clients_take() {
    let tools = one(legacy("tools/list", json!({})))["result"]["tools"].clone();
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["self_test", "measure", "picture", "fail_as", "log", "odd"]);
    assert_eq!(tools[0]["title"], "Self test");
    assert_eq!(tools[0]["description"], "Checks all");
    assert_eq!(
        tools[0]["annotations"],
        json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false})
    );
    assert_eq!(tools[1]["annotations"]["readOnlyHint"], true);
    assert!(tools[2].get("annotations").is_none());
    assert_eq!(tools[1]["inputSchema"]["properties"]["channel"]["type"], "string");
    assert_eq!(tools[1]["outputSchema"]["properties"]["volts"]["type"], "number");
    for tool in tools.as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    for name in ["self-test", "self_test"] {
        assert_eq!(one(call(name, ""))["result"]["content"][0]["text"], "all passed");
    }
    for name in ["self.test", "selftest", "", "SELF_TEST"] {
        let error = &one(call(name, ""))["error"];
        assert_eq!(
            (error["code"].as_i64(), error["message"].as_str()),
            (Some(-32602), Some(&*format!("Unknown tool: {name}")))
        );
    }
    let modern = one(modern("tools/list", json!({})))["result"].clone();
    assert_eq!(modern["tools"], tools);
    assert!(modern["ttlMs"].is_u64() && modern["resultType"] == "complete");
}

/// Pagination: a page holds what fits, the cursor always advances, and the pages together are the
/// whole list.
#[test]
fn pages_of_tools() {
    let whole = one(legacy("tools/list", json!({})))["result"]["tools"].clone();
    for size in [LEAST_REPLY, 700, 900, 1300] {
        for era in [legacy as fn(&str, Value) -> Value, modern] {
            let (mut names, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
            loop {
                let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
                let reply = lines(&[era("tools/list", params)], size).remove(0);
                let result = &reply["result"];
                names.extend(
                    result["tools"]
                        .as_array()
                        .unwrap_or_else(|| panic!("{size}: {reply}"))
                        .iter()
                        .map(|tool| tool["name"].clone()),
                );
                pages += 1;
                if result.get("nextCursor").is_none() {
                    break;
                }
                assert_ne!(result["nextCursor"], cursor, "{size}");
                cursor = result["nextCursor"].clone();
            }
            let wanted: Vec<Value> = whole.as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
            assert_eq!(names, wanted, "{size}");
            assert!(pages > 1 || size >= 900, "{size}");
        }
    }
    for cursor in [json!("x"), json!(1), json!("-1"), json!(""), json!("999999"), json!("9999999")] {
        assert_eq!(one(legacy("tools/list", json!({ "cursor": cursor })))["error"]["code"], -32602, "{cursor}");
    }
    assert_eq!(one(legacy("tools/list", json!({"cursor": "99999"})))["result"]["tools"], json!([]));
}

static NAMES: [&str; 26] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v", "w",
    "x", "y", "z",
];

/// Operations with these names, which are alike otherwise.
static ALIKE: [Operation; 26] = {
    let mut operations = [Operation::new("", Schema::OBJECT); 26];
    let mut place = 0;
    while place < 26 {
        operations[place] = Operation::new(NAMES[place], Schema::OBJECT);
        place += 1;
    }
    operations
};

/// Each cursor of a server leads to the tool behind those of the page that it was in, however many those are.
#[test]
fn a_cursor_has_as_many_digits_as_it_needs() {
    static MANY: Manifest = Manifest::new("many", "1.0.0").operations(&ALIKE);
    let (mut names, mut params) = (Vec::new(), json!({}));
    for _ in NAMES {
        let result = lines_of(&MANY, &[legacy("tools/list", params)], LEAST_REPLY).remove(0)["result"].clone();
        names.extend(result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = result.get("nextCursor") else { break };
        params = json!({ "cursor": cursor });
    }
    assert_eq!(names, NAMES);
}

/// A page has as many tools as fit beside the longest cursor, and the reply region has no byte too many.
#[test]
fn a_page_of_tools_is_full() {
    static MANY: Manifest = Manifest::new("many", "1.0.0").operations(&ALIKE);
    let page = |size: usize| {
        let result = &lines_of(&MANY, &[legacy("tools/list", json!({}))], size)[0]["result"];
        result["tools"].as_array().unwrap().len()
    };
    let tool = r#"{"name":"a","title":"A","description":"","inputSchema":{"type":"object","properties":{}}}"#.len();
    let around =
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[],"nextCursor":""}}"#.len() + usize::MAX.to_string().len();
    for size in LEAST_REPLY..LEAST_REPLY + 2 * tool {
        // Without the newline, and without the comma before the first tool.
        assert_eq!(page(size), (size - 1 - around + 1) / (tool + 1), "{size}");
    }
}

/// A tool that is too long for a page is written without the schema of its outputs, and then by its name alone, so
/// that those behind it can be had.
#[test]
fn a_tool_that_is_too_long_for_a_page_is_shortened() {
    const LONG: &str = "A sentence that is repeated. A sentence that is repeated. A sentence that is repeated.";
    static LENGTHY: Manifest = Manifest::new("lengthy", "1.0.0").operations(&[
        Operation::new(
            "lo-ng",
            Schema::text(
                r#"{"type":"object","properties":{"argument":{"type":"string","description":"It is described at length, so that a page has no room for it. It is described at length, so that a page has no room for it."}}}"#,
            ),
        )
        .description(LONG)
        .outputs(Schema::text(
            r#"{"type":"object","properties":{"output":{"type":"string","description":"It is described at length, so that a page has no room for it. It is described at length, so that a page has no room for it."}}}"#,
        )),
        Operation::new("short", Schema::OBJECT).description("Whole"),
    ]);
    let tools = |size: usize, id: &str| -> Vec<Value> {
        let mut tools = Vec::new();
        let mut params = json!({});
        for _ in 0..3 {
            let mut request = legacy("tools/list", params);
            request["id"] = json!(id);
            let result = lines_of(&LENGTHY, &[request], size).remove(0)["result"].clone();
            tools.extend(result["tools"].as_array().unwrap().iter().cloned());
            let Some(cursor) = result.get("nextCursor") else { break };
            params = json!({ "cursor": cursor });
        }
        tools
    };
    let [whole, short] = &tools(4096, "")[..] else { panic!() };
    assert!(whole["outputSchema"]["properties"]["output"].is_object());
    assert_eq!(short["description"], "Whole");
    let mut arguments = whole.clone();
    arguments.as_object_mut().unwrap().remove("outputSchema");
    assert!(arguments["inputSchema"]["properties"]["argument"].is_object() && arguments["description"] == LONG);
    assert_eq!(arguments["_meta"], json!({"rigline/name": "lo-ng"}));
    let name = json!({"name": "lo_ng", "inputSchema": {"type": "object", "properties": {}}});
    assert_eq!(tools(620, ""), [arguments, short.clone()]);
    assert_eq!(tools(LEAST_REPLY, &"x".repeat(200)), [name, short.clone()]);
}

/// The text of one tool.
fn tool(operation: Operation) -> String {
    let manifest = Manifest::new("one", "1.0.0").operations(Box::leak(Box::new([operation])));
    let line = format!("{}\n", legacy("tools/list", json!({})));
    let (mut request, mut memory) = ([0; 512], [0; 2048]);
    let memory = Memory { request: &mut request, reply: &mut memory };
    let mut engine = Engine::new(Box::leak(Box::new(manifest)), memory).unwrap();
    let mut pipe = Pipe::new(line.as_bytes());
    blocking::Server::new(&mut Bench, &mut engine, &crate::common::NoTime).serve(&mut pipe).unwrap();
    let text = String::from_utf8(pipe.output).unwrap();
    let text = text.strip_prefix(r#"{"jsonrpc":"2.0","id":7,"result":{"tools":["#).unwrap();
    text.strip_suffix("]}}\n").unwrap().to_owned()
}

/// Tools, Tool: the schema is one of objects, and clients' interfaces refuse one without properties.
#[test]
fn the_schema_of_a_tool_is_one_of_objects_with_properties() {
    const NONE: &str = r#"{"type":"object","properties":{}}"#;
    for (schema, written) in [
        (Schema::ANY, NONE),
        (Schema::OBJECT, NONE),
        (Schema::text("true"), NONE),
        (Schema::text(r#"{"type":"string"}"#), NONE),
        (Schema::text(r#"{"type":["object"],"properties":{"a":{}}}"#), NONE),
        (Schema::text(r#"{"type":"object","properties":null}"#), NONE),
        (Schema::text(r#"{"properties":[],"type":"object"}"#), NONE),
        (Schema::text(r#"{"properties":{"a":{}}}"#), NONE),
        (Schema::text(r#"{"type":"object"}"#), NONE),
        (
            Schema::text(r#"{"type":"object","required":["a"]}"#),
            r#"{"type":"object","required":["a"],"properties":{}}"#,
        ),
        (Schema::text(r#"{"properties":{"a":{}},"type":"object"}"#), r#"{"properties":{"a":{}},"type":"object"}"#),
        (
            Schema::text(r#"{"type":"object","properties":{"a":{}},"anyOf":[]}"#),
            r#"{"type":"object","properties":{"a":{}},"anyOf":[]}"#,
        ),
    ] {
        assert_eq!(
            tool(Operation::new("a", schema).outputs(schema)),
            format!(r#"{{"name":"a","title":"A","description":"","inputSchema":{written},"outputSchema":{written}}}"#)
        );
    }
}

#[test]
fn a_tool_has_its_title_its_annotations_and_its_own_name() {
    const SCHEMA: &str = r#""inputSchema":{"type":"object","properties":{}}"#;
    let operation = |name| Operation::new(name, Schema::OBJECT).description("d\"");
    for (name, tool_name, title) in [
        ("measure_all-rails", "measure_all_rails", "Measure all rails"),
        ("é\"-x", "____x", "é\\\" x"),
        ("9", "9", "9"),
    ] {
        let meta = if name == tool_name { String::new() } else { format!(r#","_meta":{{"rigline/name":{name:?}}}"#) };
        assert_eq!(
            tool(operation(name)),
            format!(r#"{{"name":"{tool_name}","title":"{title}","description":"d\"",{SCHEMA}{meta}}}"#)
        );
    }
    for (effects, annotations) in [
        (Effects::READ_ONLY, r#""readOnlyHint":true,"destructiveHint":false,"idempotentHint":true"#),
        (Effects::changes(true, false), r#""readOnlyHint":false,"destructiveHint":true,"idempotentHint":false"#),
        (Effects::changes(false, true), r#""readOnlyHint":false,"destructiveHint":false,"idempotentHint":true"#),
    ] {
        assert_eq!(
            tool(operation("a").effects(effects)),
            format!(r#"{{"name":"a","title":"A","description":"d\"",{SCHEMA},"annotations":{{{annotations}}}}}"#)
        );
    }
    // A tool of another server has its own title and annotations, and no other.
    assert_eq!(
        tool(operation("a-b").effects(Effects::READ_ONLY).tool_members(r#""title":"Own""#)),
        format!(r#"{{"name":"a_b","description":"d\"",{SCHEMA},"title":"Own"}}"#)
    );
}

/// The instructions for an agent mention nothing that the extension does not have.
#[test]
fn instructions_tell_what_is_there() {
    const READS: Operation = Operation::new("state", Schema::OBJECT).effects(Effects::READ_ONLY);
    const CHANGES: Operation = Operation::new("all-off", Schema::OBJECT).effects(Effects::changes(false, true));
    const IDENTIFY: Operation = Operation::new("identify", Schema::OBJECT).effects(Effects::READ_ONLY);
    const USE: &str = "Use the names and units of the tools' schemas. Unknown names and arguments are refused.\n";
    const ONE: &str = "Calls run one at a time, in order.\n";
    let instructions = |manifest: Manifest| {
        let manifest: &'static Manifest = Box::leak(Box::new(manifest));
        let hello = legacy("initialize", json!({"protocolVersion": LEGACY[0], "clientInfo": {}}));
        let found = [hello, modern("server/discover", json!({}))].map(|request| {
            let result = lines_of(manifest, &[request], 4096).remove(0)["result"].clone();
            result["instructions"].as_str().unwrap().to_owned()
        });
        assert_eq!(found[0], found[1]);
        found[0].clone()
    };
    let bare = Manifest::new("bare", "1.0.0");
    assert_eq!(instructions(bare), format!("{USE}{ONE}"));
    assert_eq!(
        instructions(bare.operations(&[READS, IDENTIFY])),
        format!("Call identify first: it says what there is.\n{USE}{ONE}Tools that change nothing: state identify.\n")
    );
    assert_eq!(
        instructions(bare.description("A \"bench\"").operations(&[CHANGES])),
        format!("A \"bench\"\n{USE}{ONE}Tools that change something: all_off.\n")
    );
    let whole = instructions(bare.safe_state(true).operations(&[READS, CHANGES]));
    assert_eq!(
        whole,
        format!(
            "{USE}{ONE}Cancelling a call, or its time limit, switches all outputs off if you have changed any since they were off.\n\
            The same happens when the last session ends or is idle.\n\
            A warning says so at once, and your next result has outputs_switched_off.\n\
            state says what is on.\nCall all_off when you are done.\n\
            Tools that change nothing: state.\nTools that change something: all_off.\n"
        )
    );
    assert_eq!(rigline::protocol::mcp::description_in(&whole), "");
    assert_eq!(rigline::protocol::mcp::description_in("Of another server"), "Of another server");
    // 24 tools are named, and of more none is.
    let names = format!("{USE}{ONE}Tools that change something: {}.\n", NAMES[..24].join(" "));
    assert_eq!(instructions(bare.operations(&ALIKE[..24])), names);
    assert_eq!(instructions(bare.operations(&ALIKE[..25])), format!("{USE}{ONE}"));
}

/// A server in front of another extension gets no configuration, and says that it carries none.
#[test]
fn a_server_in_front_of_another_extension_says_so() {
    let meta = |is_elsewhere: bool, has_safe_state: bool| {
        let mut manifest = Manifest::new("front", "1.0.0").safe_state(has_safe_state);
        manifest.is_elsewhere = is_elsewhere;
        let params = json!({"protocolVersion": LEGACY[0], "clientInfo": {}, "_meta": {"rigline/config": {"nope": 1}}});
        let reply = lines_of(Box::leak(Box::new(manifest)), &[legacy("initialize", params)], 4096).remove(0);
        reply["result"]["_meta"].clone()
    };
    assert_eq!(meta(false, false), json!({"rigline/carries": true}));
    assert_eq!(meta(false, true), json!({"rigline/carries": true}));
    assert_eq!(meta(true, false), json!({"rigline/carries": false}));
    assert_eq!(meta(true, true), json!({"rigline/carries": false, "rigline/safeState": true}));
}

/// A server whose tools may become others says so, and a subscription is acknowledged for what it will get.
#[test]
fn a_server_whose_tools_can_change_says_so() {
    let answers = |can_change: bool| {
        let mut manifest = Manifest::new("front", "1.0.0");
        manifest.can_change = can_change;
        let manifest: &'static Manifest = Box::leak(Box::new(manifest));
        let of = |request: Value| lines_of(manifest, &[request], 4096).remove(0);
        let greeted = of(legacy("initialize", json!({"protocolVersion": LEGACY[0], "clientInfo": {}})));
        let discovered = of(modern("server/discover", json!({})));
        let capabilities = [greeted, discovered].map(|reply| reply["result"]["capabilities"]["tools"].clone());
        let wanted = [json!({"toolsListChanged": true}), json!({"toolsListChanged": false}), json!({})];
        let acknowledged = wanted.map(|wanted| {
            of(modern("subscriptions/listen", json!({"notifications": wanted})))["params"]["notifications"].clone()
        });
        (capabilities, acknowledged)
    };
    let (is_so, told) = (json!({"listChanged": true}), json!({"toolsListChanged": true}));
    assert_eq!(answers(true), ([is_so.clone(), is_so], [told, json!({}), json!({})]));
    assert_eq!(answers(false), ([json!({}), json!({})], [json!({}), json!({}), json!({})]));
}

#[test]
fn results() {
    let ok = one(call("measure", ""))["result"].clone();
    assert_eq!(ok["structuredContent"], json!({"volts": 3, "of": "a\"b"}));
    assert_eq!(ok["content"][0], json!({"type": "text", "text": "3 V"}));
    let text: Value = serde_json::from_str(ok["content"][1]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, ok["structuredContent"], "Tools, Structured Content: the same as text");
    assert!(ok.get("isError").is_none() && ok.get("resultType").is_none());
    let silent = one(call("measure", "silent"))["result"].clone();
    assert_eq!(silent["content"].as_array().unwrap().len(), 1);
    let nothing = one(call("measure", "nothing"))["result"].clone();
    assert_eq!(nothing, json!({"content": [], "structuredContent": {}}), "an output schema obliges");
    assert_eq!(one(call("odd", ""))["result"], json!({"content": []}));
    let failed = one(call("measure", "fail"))["result"].clone();
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["content"][0]["text"], "too low");
    assert!(failed["content"][1]["text"].as_str().unwrap().contains("\"volts\":3"));
    let result = one(modern("tools/call", json!({"name": "measure"})))["result"].clone();
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "bench");
    // Error Handling: what a model can put right is a result, in every kind.
    for kind in ["arguments", "timeout", "forbidden", "unknown", "internal", "requirement", ""] {
        let result = one(call("fail_as", kind))["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{kind}: {result}"));
        assert!(result["isError"] == true && text.contains("a \"reason\""), "{kind}: {result}");
    }
    for (params, message) in [
        (json!({}), "name: required, but missing"),
        (json!({"name": 5}), "name: expected a string"),
        (json!({"name": "odd", "arguments": []}), "arguments: expected an object"),
        (json!({"name": "odd", "arguments": "{}"}), "arguments: expected an object"),
    ] {
        let error = one(legacy("tools/call", params.clone()))["error"].clone();
        assert_eq!(error, json!({"code": -32602, "message": message}), "{params}");
    }
    assert_eq!(one(legacy("tools/call", json!({"name": "odd", "arguments": null})))["result"]["content"], json!([]));
}

#[test]
fn content() {
    let drawn = one(call("picture", ""))["result"].clone();
    assert_eq!(
        drawn["content"],
        json!([
            {"type": "text", "text": "a \"picture\""},
            {"type": "image", "mimeType": "image/png", "data": "iVBO"},
            {"type": "resource", "resource": {"uri": "x:1", "mimeType": "a/b", "blob": "Zg=="}},
            {"type": "text", "text": "drawn"},
        ])
    );
    let failed = one(call("picture", "fail"))["result"].clone();
    assert_eq!((&failed["isError"], &failed["content"][3]["text"]), (&json!(true), &json!("no ink")));
    assert_eq!(one(call("picture", "output"))["result"]["isError"], true, "outputs come before content");
    // Another protocol has outputs only.
    let execute =
        json!({"jsonrpc": "2.0", "id": 2, "method": "execute", "params": {"operation": "picture", "context": {}}});
    assert_eq!(
        one(execute)["result"]["outputs"],
        json!({"caption": "a \"picture\"", "image": "data:image/png;base64,iVBO", "file": "data:a/b;base64,Zg=="})
    );
    // What does not fit is an error that says so.
    let reply = lines(&[call("picture", "")], LEAST_REPLY).remove(0);
    assert!(reply["result"]["isError"].is_null() || reply.to_string().contains("too large"), "{reply}");
}

/// Reports progress at these times, in milliseconds since its begin.
struct Reports(Rc<FakeClock>, &'static [(u64, u32)]);

impl Extension for Reports {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let begin = cx.now();
        for (millis, done) in self.1 {
            self.0.advance(begin.as_nanos() + millis * MS - cx.now().as_nanos());
            cx.progress(*done, (*done == 4).then_some(10), "on");
        }
        cx.done("reported")
    }
}

/// The progress that is reported, and the texts of logs.
fn reports(request: &Value, times: &'static [(u64, u32)]) -> (Vec<u64>, Vec<String>) {
    let clock = Rc::new(FakeClock::default());
    let (mut memory, mut reply, mut log) = ([0; 1024], [0; 1024], [0; 512]);
    let mut engine = Engine::new(&MANIFEST, Memory { request: &mut memory, reply: &mut reply }).unwrap();
    let mut pipe = Pipe::new(format!("{request}\n").as_bytes());
    let mut extension = Reports(clock.clone(), times);
    blocking::Server::new(&mut extension, &mut engine, &*clock).log_buffer(&mut log).serve(&mut pipe).unwrap();
    let output = String::from_utf8(pipe.output).unwrap();
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let progress = lines.iter().filter_map(|line| line["params"]["progress"].as_u64()).collect();
    (
        progress,
        lines
            .iter()
            .filter_map(|line| line["params"]["message"].as_str())
            .filter(|text| *text != "on")
            .map(str::to_owned)
            .collect(),
    )
}

/// MCP's progress must increase, and stop when the call has ended: so it does when its time is up.
#[test]
fn progress_rises_and_ends_with_the_calls_time() {
    let call = |meta: Value| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "odd", "_meta": meta}});
    let times: &[_] = &[(0, 0), (1, 3), (2, 3), (3, 2), (10, 4), (10, 5)];
    assert_eq!(reports(&call(json!({"progressToken": 1})), times), (vec![0, 3, 4, 5], vec![]));
    let limited = json!({"progressToken": 1, TIMEOUT_NAME: 10});
    assert_eq!(reports(&call(limited.clone()), times), (vec![0, 3, 4, 5], vec![]));
    assert_eq!(reports(&call(limited), &[(1, 1), (11, 2)]), (vec![1], vec![]));
    // Nobody waits for the progress of a notification.
    let mut silent = call(json!({"progressToken": 1}));
    silent.as_object_mut().unwrap().remove("id");
    assert_eq!(reports(&silent, times), (vec![], vec![]));
}

/// A protocol without progress has logs of it, and no two of the same progress.
#[test]
fn progress_that_does_not_rise_is_not_logged_either() {
    let call = |timeout: &str| json!({"jsonrpc": "2.0", "id": 1, "method": "execute", "params": {"operation": "odd", "args": {}, "context": {"timeout": timeout}}});
    // A log at the last nanosecond of the time limit is in time.
    let texts = |timeout: &str, times| reports(&call(timeout), times).1;
    assert_eq!(texts("1s", &[(0, 0), (1, 3), (2, 3), (3, 2), (10, 4)]), ["on (0)", "on (3)", "on (4 of 10)"]);
    assert_eq!(texts("10ms", &[(1, 1), (10, 2), (11, 3)]), ["on (1)", "on (2)"]);
}

#[test]
fn progress_goes_to_those_who_ask() {
    for (token, is_asked) in
        [(json!(5), true), (json!("t\"1"), true), (json!(null), false), (json!(1.5), false), (json!([]), false)]
    {
        for era in [legacy as fn(&str, Value) -> Value, modern] {
            let request = era("tools/call", json!({"name": "self_test", "_meta": {"progressToken": token}}));
            let found = lines(&[request], 4096);
            let progress: Vec<&Value> = found
                .iter()
                .filter(|line| line["method"] == "notifications/progress")
                .map(|line| &line["params"])
                .collect();
            assert_eq!(progress.len(), if is_asked { 3 } else { 0 }, "{token}: strictly rising");
            assert!(progress.iter().all(|params| params["progressToken"] == token && params["total"] == 100));
            assert!(
                progress.get(1).is_none_or(|params| params["progress"] == 50 && params["message"] == "step \"50\"")
            );
            let said = if is_asked { "all passed, as reported" } else { "all passed" };
            assert_eq!(found.last().unwrap()["result"]["content"][0]["text"], said);
        }
    }
}

#[test]
fn logs_go_to_those_who_want_them() {
    let levels = |found: &[Value]| -> Vec<String> {
        let logs = found.iter().filter(|line| line["method"] == "notifications/message");
        logs.map(|line| line["params"]["level"].as_str().unwrap().to_owned()).collect()
    };
    let found = lines(&[call("log", "")], 4096);
    assert_eq!(levels(&found), ["debug", "info", "warning", "error"]);
    assert_eq!(found[1]["params"], json!({"level": "info", "data": "i"}));
    assert_eq!(found[2]["params"]["data"]["message"], "w");
    for (least, wanted) in [("debug", 4), ("info", 3), ("notice", 2), ("warning", 2), ("error", 1), ("emergency", 1)] {
        let found = lines(&[legacy("logging/setLevel", json!({ "level": least })), call("log", "")], 4096);
        assert_eq!(found[0]["result"], json!({}));
        assert_eq!(levels(&found).len(), wanted, "{least}");
        let meta = json!({"io.modelcontextprotocol/logLevel": least});
        let request = modern("tools/call", json!({"name": "log", "_meta": meta}));
        assert_eq!(levels(&lines(&[request], 4096)).len(), wanted, "{least}");
    }
    for level in [json!("loud"), json!(3), json!(null)] {
        assert_eq!(one(legacy("logging/setLevel", json!({ "level": level })))["error"]["code"], -32602);
    }
    let found = lines(&[modern("tools/call", json!({"name": "log"}))], 4096);
    assert_eq!(found.len(), 1, "a modern request gets logs only if it asks");
}

/// A schema that another program wrote may have space before its colons.
#[test]
fn an_argument_of_a_schema_with_spaces_is_none_that_clients_add() {
    const FOREIGN: Manifest = Manifest::new("foreign", "1.0.0").operations(&[Operation::new(
        "take",
        Schema::text("{\"properties\" :{\"_id\" :\t{},\"sessionKey\" \t : {} , \"user_context\":{}}}"),
    )]);
    for (name, is_added) in
        [("_id", false), ("sessionKey", false), ("user_context", false), ("toolCallId", true), ("_i", true)]
    {
        let request = legacy("tools/call", json!({"name": "take", "arguments": {name: 1}}));
        let found = lines_of(&FOREIGN, &[request], 4096);
        let log = format!("left out the argument {name}, which the client adds itself");
        assert_eq!(found.iter().any(|line| line["params"]["data"] == log), is_added, "{name}: {found:?}");
    }
}

/// A board may serve one host after the other on one wire.
#[test]
fn the_level_of_logs_ends_with_the_session_that_set_it() {
    let begin = legacy("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}));
    let limit = legacy("logging/setLevel", json!({"level": "emergency"}));
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let logs = |between: &[Value]| {
        let messages: Vec<Value> = [&[begin.clone(), limit.clone()], between, &[call("log", "")]].concat();
        lines(&messages, 4096).iter().filter(|line| line["method"] == "notifications/message").count()
    };
    assert_eq!(logs(&[]), 1);
    assert_eq!(logs(std::slice::from_ref(&begin)), 4);
    assert_eq!(logs(&[read(INITIALIZE)]), 4, "of gevals");
    assert_eq!(logs(&[read(SHUTDOWN)]), 4);
}

/// Subscriptions, Acknowledgment: it is the first message, and no reply follows.
#[test]
fn a_subscription_is_acknowledged() {
    let request = modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(
        one(request.clone()),
        json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": 7}, "notifications": {}}})
    );
    let batch = one(json!([legacy("ping", json!({})), request]));
    assert_eq!((&batch[0]["result"], &batch[1]["error"]["code"]), (&json!({}), &json!(-32600)));
}

/// Only a sound subscription stays open: a server over HTTP keeps its stream, and answers all else.
#[test]
fn no_other_request_stays_open() {
    use rigline::exchange::{Exchange, Next, Served, Session};

    let to = Served::new(&MANIFEST, rigline::protocol::ALL, (4096, 4096)).unwrap();
    let mut old = meta();
    old["io.modelcontextprotocol/protocolVersion"] = json!("1900-01-01");
    for (request, stays_open) in [
        (modern("subscriptions/listen", json!({})), true),
        (modern("tools/list", json!({})), false),
        (modern("server/discover", json!({})), false),
        (modern("subscriptions/unlisten", json!({})), false),
        (legacy("subscriptions/listen", json!({})), false),
        (legacy("subscriptions/listen", json!({"_meta": old})), false),
        (legacy("ping", json!({})), false),
    ] {
        let (mut session, mut exchange, mut out) = (Session::new(&to), Exchange::new(&to), [0; 4096]);
        let line = request.to_string();
        let next = session.receive(&to, line.as_bytes(), &mut out, &mut exchange);
        let is_as_told = if stays_open { matches!(next, Next::StaysOpen(_)) } else { matches!(next, Next::Reply(_)) };
        assert!(is_as_told, "{line}: {next:?}");
    }
}

/// 2025-03-26, Batching.
#[test]
fn batches() {
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "odd"}},
    ]);
    let replies = one(batch);
    assert_eq!(replies.as_array().unwrap().len(), 2);
}

/// Reports its progress half way.
struct Slow;

impl Extension for Slow {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("slow", "1.0.0").operations(&[Operation::new("wait", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.sleep(Duration::from_secs(10)).await;
        // What was reported meanwhile is farther than this.
        cx.progress(0, Some(2), "begun");
        cx.progress(1, Some(2), "half");
        cx.sleep(Duration::from_secs(10)).await;
        cx.done("waited")
    }
}

/// The blocking driver reads nothing during a call, and still reports that the call goes on.
#[test]
fn a_call_that_only_waits_has_a_heartbeat_over_blocking_io() {
    let serve = |meta: Value| {
        let input = format!("{}\n", legacy("tools/call", json!({"name": "wait", "_meta": meta})));
        let (mut request, mut reply, mut log) = ([0; 600], [0; 1024], [0; 256]);
        let memory = Memory { request: &mut request, reply: &mut reply };
        let mut engine = Engine::new(Slow.manifest(), memory).unwrap();
        let mut pipe = Pipe::new(input.as_bytes());
        let clock = FakeClock::default();
        blocking::Server::new(&mut Slow, &mut engine, &clock).log_buffer(&mut log).serve(&mut pipe).unwrap();
        let text = String::from_utf8(pipe.output).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (reply, reports) = lines.split_last().unwrap();
        assert!(reply["result"].to_string().contains("waited"), "{reply}");
        reports.iter().map(|report| report["params"]["progress"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    // At 4, 8, 10, 12 and 16 seconds.
    assert_eq!(serve(json!({"progressToken": 4})), [0.000_001, 0.000_002, 1.0, 1.000_001, 1.000_002]);
    assert!(serve(json!({})).is_empty(), "nobody asked");
}

#[cfg(feature = "async")]
mod while_a_call_is_out {
    use super::*;
    use crate::common::asynch::{In, Session, line};

    fn work(id: u64, ms: u64, token: Option<u64>) -> In {
        let meta = token.map_or(json!({}), |token| json!({ "progressToken": token }));
        line(
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "work", "arguments": {"ms": ms, "logs": 0}, "_meta": meta}})
            .to_string(),
        )
    }

    fn request(id: u64, method: &str, params: Value) -> In {
        line(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
    }

    fn cancel(id: u64) -> In {
        line(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).to_string())
    }

    fn ids(lines: &[(u64, String)]) -> Vec<(u64, i64)> {
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_i64();
        lines.iter().filter_map(|(at, line)| Some((*at, id(line)?))).collect()
    }

    #[test]
    fn what_needs_nobody_is_answered_at_once() {
        let script = vec![
            work(1, 100, None),
            In::At(20),
            request(2, "ping", json!({})),
            request(3, "server/discover", json!({"_meta": meta()})),
            request(4, "tools/nope", json!({})),
            request(5, "tools/list", json!({})),
            work(6, 10, None),
            In::At(200),
        ];
        let served = Session::new(script).serve();
        assert_eq!(ids(&served.lines), [(20, 2), (20, 3), (20, 4), (20, 5), (100, 1), (110, 6)]);
    }

    #[test]
    fn the_last_line_needs_no_newline_to_be_answered_at_once() {
        let ping = In::Bytes(br#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#.to_vec());
        let served = Session::new(vec![work(1, 100, None), In::At(20), ping]).serve();
        assert_eq!(ids(&served.lines), [(20, 2), (100, 1)]);
    }

    /// Cancellation: no response, and nothing else about it.
    #[test]
    fn a_cancelled_call_ends_and_is_not_answered() {
        let script = vec![
            work(1, 1000, Some(9)),
            In::At(20),
            cancel(7),
            cancel(1),
            In::At(30),
            request(2, "ping", json!({})),
            work(3, 10, None),
            In::At(2000),
        ];
        let served = Session::new(script).serve();
        assert_eq!(ids(&served.lines), [(30, 2), (40, 3)]);
        assert_eq!(served.events[..3], ["work", "dropped", "safe"]);
    }

    /// Cancellation: only its notification cancels, and only what it names.
    #[test]
    fn what_names_no_request_or_is_no_cancellation_cancels_nothing() {
        let script = vec![
            work(1, 100, None),
            In::At(20),
            request(2, "ping", json!({"requestId": 1})),
            line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#),
            line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"1"}}"#),
            line(r#"{"jsonrpc":"2.0","method":"notifications/cancelledX","params":{"requestId":1}}"#),
            In::At(200),
        ];
        let served = Session::new(script).serve();
        assert_eq!(ids(&served.lines), [(20, 2), (100, 1)]);
    }

    #[test]
    fn a_call_that_waits_can_be_cancelled_too() {
        let script = vec![work(1, 100, None), In::At(20), work(2, 10, None), work(3, 10, None), cancel(2), In::At(500)];
        let served = Session::new(script).serve();
        assert_eq!(ids(&served.lines), [(100, 1), (110, 3)]);
        assert_eq!(served.events.iter().filter(|event| *event == "work").count(), 2);
    }

    /// Clients give up after a minute without a word.
    #[test]
    fn a_call_that_only_waits_has_a_heartbeat() {
        let served = Session::new(vec![work(1, 65_000, Some(4))]).serve();
        let beats: Vec<(u64, f64)> = served
            .lines
            .iter()
            .filter_map(|(at, line)| {
                let line: Value = serde_json::from_str(line).unwrap();
                (line["method"] == "notifications/progress")
                    .then(|| (*at, line["params"]["progress"].as_f64().unwrap()))
            })
            .collect();
        // At least every five seconds.
        let times: Vec<_> = (1..=16).map(|beat| beat * 4_000).collect();
        assert_eq!(beats.iter().map(|(at, _)| *at).collect::<Vec<_>>(), times);
        assert!(beats.windows(2).all(|pair| pair[0].1 < pair[1].1), "{beats:?}");
        let served = Session::new(vec![work(1, 65_000, None)]).serve();
        assert_eq!(served.lines.len(), 1, "nobody asked");
    }

    /// A heartbeat is farther than the first step.
    #[test]
    fn progress_rises_beyond_a_heartbeat() {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "work", "arguments": {"ms": 5000, "steps": 2}, "_meta": {"progressToken": 4}}});
        let served = Session::new(vec![line(call.to_string())]).serve();
        let lines = served.lines.iter().map(|(_, line)| serde_json::from_str::<Value>(line).unwrap());
        let done: Vec<f64> = lines.filter_map(|line| line["params"]["progress"].as_f64()).collect();
        assert_eq!(done, [0.000_001, 1.0]);
    }
}

/// Says what reached it, and fails with a code of its own.
#[derive(Default)]
struct Told {
    port: Option<String>,
}

impl Extension for Told {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("told", "1.0.0").operations(&[Operation::new("tell", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let port = config.json().get("port").map(|port| port.as_str().to_owned());
        self.port = Some(port.ok_or_else(|| cx.failure(FailureKind::BadArguments, "port is missing"))?);
        Ok(())
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let context = TaskContext::of(&call.context);
        let workdir = context.workdir.map(|text| text.to_string()).unwrap_or_default();
        let agent = context.agent.and_then(|agent| agent.output).map(|text| text.to_string()).unwrap_or_default();
        let env = context.env().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
        let is_setup = context.phase == Phase::Setup;
        let text = format!("{:?} {is_setup} {workdir} {agent} {env}", self.port);
        Err(cx.failure(FailureKind::Forbidden, text.as_str()).with_code("door_open"))
    }
}

/// Parts that MCP has no place for go through `_meta`, in both eras: configuration, context, the
/// kind of a failure and its own code.
#[test]
fn meta_carries_what_only_other_protocols_have() {
    let hello = json!({"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let with = |config: Value| {
        let mut params = hello.clone();
        params["_meta"] = json!({ "rigline/config": config });
        legacy("initialize", params)
    };
    let context =
        json!({"phase": "setup", "workdir": "/w", "env": {"A": "1"}, "agent": {"prompt": "p", "output": "o"}});
    let call =
        json!({"name": "tell", "arguments": {}, "_meta": {"rigline/context": context, "rigline/timeoutMs": 5000}});
    let input: String = [
        with(json!({"nope": 1})),
        with(json!({"port": 7})),
        legacy("tools/call", call.clone()),
        modern("tools/call", call),
        legacy("tools/call", json!({"name": "tell", "_meta": {"rigline/context": 3, "rigline/timeoutMs": "x"}})),
    ]
    .iter()
    .map(|request| format!("{request}\n"))
    .collect();
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 1024]);
    let mut engine =
        Engine::new(Told::default().manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let mut pipe = Pipe::new(input.as_bytes());
    let mut told = Told::default();
    blocking::Server::new(&mut told, &mut engine, &crate::common::NoTime)
        .log_buffer(&mut log)
        .serve(&mut pipe)
        .unwrap();
    let lines: Vec<Value> =
        String::from_utf8(pipe.output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [refused, begun, old, new, bare] = &lines[..] else { panic!("{lines:?}") };
    assert!(refused.to_string().contains("port is missing"), "{refused}");
    assert_eq!(begun["result"]["_meta"]["rigline/carries"], true, "{begun}");
    for result in [&old["result"], &new["result"]] {
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["content"][0]["text"], "Some(\"7\") true /w o A=1");
        assert_eq!(result["_meta"]["rigline/kind"], "forbidden");
        assert_eq!(result["_meta"]["rigline/code"], "door_open");
    }
    assert_eq!(new["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "told");
    assert_eq!(bare["result"]["content"][0]["text"], "Some(\"7\") false   ", "{bare}");
}

/// The names of the kinds are in results, for clients that tell kinds apart.
#[test]
fn each_kind_of_failure_has_its_name_in_the_result() {
    for (kind, name) in [
        ("arguments", "bad_arguments"),
        ("timeout", "timeout"),
        ("forbidden", "forbidden"),
        ("unknown", "unknown_operation"),
        ("internal", "internal"),
        ("requirement", "requirement_not_met"),
        ("else", "unreachable"),
    ] {
        let failed = one(legacy("tools/call", json!({"name": "fail.as", "arguments": {"kind": kind}})));
        assert_eq!(failed["result"]["_meta"]["rigline/kind"], name, "{failed}");
        assert_eq!(FailureKind::ALL.iter().filter(|kind| kind.name() == name).count(), 1);
    }
    let failed = one(legacy("tools/call", json!({"name": "measure", "arguments": {"kind": "fail"}})));
    assert_eq!(failed["result"]["_meta"]["rigline/kind"], "failed", "{failed}");
    let done = one(legacy("tools/call", json!({"name": "measure", "arguments": {}})));
    assert!(done["result"].get("_meta").is_none(), "{done}");
}
