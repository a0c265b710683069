//! Arguments are what they seem: what is not known is refused, null is absent, and a number may
//! come as text where hosts write it so.

use crate::common::{NoTime, Pipe};
use rigline::engine::{Engine, Memory};
use rigline::json::{Decimal, RawJson};
use rigline::serve::blocking;
use rigline::{Context, Event, Extension as _, Failure, Outcome, Params};
use serde_json::{Value, json};

#[derive(Params)]
struct Press<'a> {
    /// The button's name
    button: &'a str,
    /// How long
    #[param(minimum = 1, maximum = 1000, default = 100)]
    ms: u32,
    /// Whether to hold it
    #[param(default = false)]
    hold: bool,
    /// How hard
    force: Option<Decimal<3>>,
    /// How
    #[param(default)]
    mode: Mode,
    /// Where
    at: Option<Place>,
    /// A name that no client adds
    #[param(default = "")]
    _own: &'a str,
    /// As it is
    note: Option<RawJson<'a>>,
}

#[derive(Params, Default)]
#[param(rename_all = "lowercase")]
enum Mode {
    #[default]
    Short,
    Long,
}

#[derive(Params)]
struct Place {
    /// From the left
    #[param(default = 7)]
    x: i8,
}

#[derive(Params)]
#[params(allow_unknown)]
struct Any {
    /// A number
    #[param(default = 1)]
    n: u8,
}

#[derive(Params)]
struct Whole<'a> {
    /// As it is
    value: RawJson<'a>,
}

#[derive(Params)]
struct Settings {
    /// A number
    #[param(default = 5)]
    n: u8,
}

struct Panel {
    n: u8,
}

#[rigline::extension(name = "panel", version = "1.0.0", description = "Buttons", kind = "hook")]
impl Panel {
    /// Press a button
    #[operation]
    fn press(&mut self, args: Press<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let Press { button, ms, hold, force, mode, at, _own: own, note } = args;
        let force = force.map_or_else(|| "none".to_owned(), |force| force.to_string());
        let mode = matches!(mode, Mode::Long);
        let (at, note) = (at.map(|at| at.x), note.map(|note| note.as_str().to_owned()));
        cx.done(format_args!("{button} {ms} {hold} {force} {mode} {at:?} {own} {note:?}"))
    }

    /// Take anything
    #[operation]
    fn any(&mut self, args: Any, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done(format_args!("{}", args.n))
    }

    /// Take a value
    #[operation]
    fn whole(&mut self, args: Whole<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done(args.value.as_str())
    }

    /// Take nothing
    #[operation]
    fn nothing(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done(format_args!("{}", self.n))
    }

    #[configure]
    fn settings(&mut self, settings: Settings) -> Result<(), Failure> {
        self.n = settings.n;
        Ok(())
    }

    #[on_event]
    fn hear(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let _ = (event, cx);
    }
}

/// Serves messages; returns the lines.
fn serve(messages: &[Value]) -> Vec<Value> {
    let mut panel = Panel { n: 0 };
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 8192], [0; 512]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(panel.manifest(), memory).unwrap();
    let text: String = messages.iter().map(|message| format!("{message}\n")).collect();
    let mut pipe = Pipe::new(text.as_bytes());
    blocking::Server::new(&mut panel, &mut engine, &NoTime).log_buffer(&mut log).serve(&mut pipe).unwrap();
    let text = String::from_utf8(pipe.output).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const PROTOCOLS: [&str; 4] = ["gevals", "mcp", "amplifier", "namel3ss"];

fn message(protocol: &str, operation: &str, args: &Value) -> Value {
    match protocol {
        "gevals" => json!({"jsonrpc": "2.0", "id": 1, "method": "execute",
            "params": {"operation": operation, "args": args, "context": {"more": 1}, "more": 1}}),
        "mcp" => json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": operation, "arguments": args, "_meta": {"more": 1}, "more": 1}}),
        "amplifier" => json!({"op": "invoke", "tool": operation, "args": args, "more": 1}),
        _ => json!({"protocol_version": 1, "tool": operation, "payload": args, "more": 1}),
    }
}

/// The outcome of a call, in one text, and whether it was refused.
fn call(protocol: &str, operation: &str, args: &Value) -> (String, bool) {
    let request = if protocol == "amplifier" {
        json!({"op": operation, "args": args, "more": 1})
    } else {
        message(protocol, operation, args)
    };
    let lines = serve(&[request]);
    let reply = lines.last().unwrap();
    let is_refused = reply.get("error").is_some() || reply["ok"] == false || reply["result"]["isError"] == true;
    let text = [&reply["error"]["message"], &reply["result"]["message"], &reply["result"]["content"][0]["text"]];
    (text.into_iter().find_map(Value::as_str).unwrap_or_else(|| panic!("{protocol}: {reply}")).to_owned(), is_refused)
}

/// daintreehq/daintree#6639.
#[test]
fn an_unknown_argument_is_refused_in_every_protocol() {
    for protocol in PROTOCOLS {
        for (operation, args, named) in [
            (
                "press",
                json!({"button": "A", "duration_ms": 5000}),
                "args: duration_ms is an unknown member; known: button, ms, hold, force, mode, at, _own, note",
            ),
            ("press", json!({"duration_ms": {"a": [1]}, "button": "A"}), "duration_ms"),
            ("press", json!({"button": "A", "at": {"y": 1}}), "args.at: y is an unknown member; known: x"),
            (
                "press",
                json!({"button": "A", "a name of more than 32 bytes in all": 1}),
                "a name of more than 32 bytes ...",
            ),
            ("press", json!({"button": "A", "Ms": 5}), "Ms"),
        ] {
            let (text, is_refused) = call(protocol, operation, &args);
            assert!(is_refused && text.contains(named), "{protocol} {args}: {text}");
        }
        assert_eq!(call(protocol, "any", &json!({"m": 3, "n": 2})), ("2".to_owned(), false), "{protocol}");
        let (text, is_refused) = call(protocol, "nothing", &json!({"verbose": true}));
        assert!(is_refused && text.contains("args: verbose is an unknown member; none are expected here"), "{text}");
        assert_eq!(call(protocol, "nothing", &json!({})), ("0".to_owned(), false), "{protocol}");
    }
}

/// n8n-io/n8n#21500, neondatabase/mcp-server-neon#353.
#[test]
fn what_clients_add_to_arguments_over_mcp_is_left_out_and_logged() {
    for name in ["_", "_meta", "_x", "toolCallId", "sessionKey", "user_context", "tool_call_description"] {
        for args in [
            format!(r#"{{"{name}":{{"a":[1,"}},{{"]}},"button":"A"}}"#),
            format!(r#"{{ "button" : "A" , "{name}" : "x" }}"#),
            format!(r#"{{"button":"A","{name}":null,"ms":100}}"#),
            format!(r#"{{"{name}":1,"button":"A","_also":[]}}"#),
        ] {
            let args: Value = serde_json::from_str(&args).unwrap();
            let lines = serve(&[message("mcp", "press", &args)]);
            let reply = lines.last().unwrap();
            assert_eq!(reply["result"]["content"][0]["text"], "A 100 false none false None  None", "{args}: {reply}");
            let logged =
                lines.iter().any(|line| line["params"]["data"].as_str().is_some_and(|text| text.contains(name)));
            assert!(logged, "{lines:?}");
            for protocol in ["gevals", "amplifier", "namel3ss"] {
                let (text, is_refused) = call(protocol, "press", &args);
                assert!(is_refused && text.contains("unknown member"), "{protocol} {args}: {text}");
            }
        }
        let alone: Value = serde_json::from_str(&format!(r#"{{"{name}":1}}"#)).unwrap();
        assert_eq!(call("mcp", "nothing", &alone), ("0".to_owned(), false), "an operation without arguments takes any");
        assert_eq!(call("mcp", "any", &alone), ("1".to_owned(), false));
    }
    // The operation's own argument is none of those.
    assert_eq!(call("mcp", "press", &json!({"_own": "x", "button": "A"})).0, "A 100 false none false None x None");
    // Inside of arguments nothing is left out.
    assert!(call("mcp", "press", &json!({"button": "A", "at": {"_y": 1}})).1);
}

#[test]
fn what_is_not_an_argument_may_have_any_member() {
    let lines = serve(&[
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "0.0.1", "config": {"n": 3, "more": 1}}}),
        message("gevals", "nothing", &json!({})),
    ]);
    assert_eq!(lines[1]["result"]["message"], "3");
}

/// rossoctl/examples#175.
#[test]
fn null_for_an_optional_argument_is_absent() {
    for protocol in PROTOCOLS {
        for name in ["ms", "hold", "force", "mode", "at", "_own", "note"] {
            let args: Value = serde_json::from_str(&format!(r#"{{"button":"A","{name}":null}}"#)).unwrap();
            assert_eq!(
                call(protocol, "press", &args),
                ("A 100 false none false None  None".to_owned(), false),
                "{protocol} {args}"
            );
        }
        assert_eq!(
            call(protocol, "press", &json!({"button": "A", "at": {"x": null}})).0,
            "A 100 false none false Some(7)  None"
        );
        let (text, is_refused) = call(protocol, "press", &json!({"button": null}));
        assert!(is_refused && text.contains("args.button: expected a string; got null"), "{protocol}: {text}");
        // Where null is a value, it is one.
        assert_eq!(call(protocol, "whole", &json!({"value": null})), ("null".to_owned(), false), "{protocol}");
    }
}

#[test]
fn null_is_seen_behind_blanks_and_by_other_decoders_and_counts_as_given() {
    #[derive(Debug, PartialEq, Params)]
    #[allow(deprecated, reason = "the derive warns of fields without a description")]
    struct Two {
        #[param(default = 7)]
        a: u8,
        b: Option<u8>,
    }
    let decode = |text: &str| rigline::json::de::from_checked::<Two>(&mut text.as_bytes().to_vec()).ok();
    let by_serde_json = |text: &str| serde_json::from_str::<Two>(text).ok();
    for text in [
        r#"{"a":null,"b":1}"#,
        r#"{ "a" : null , "b" : 1 }"#,
        "{\"b\":1,\t\"a\":\t null}",
        "{\r\n\"a\":\r\nnull,\"b\":1}",
    ] {
        assert_eq!(decode(text), Some(Two { a: 7, b: Some(1) }), "{text}");
        assert_eq!(by_serde_json(text), decode(text), "{text}");
    }
    for text in [r#"{"a":null,"a":1}"#, r#"{"a":1,"a":null}"#, r#"{"b":null,"b":null}"#, r#"{"a":1"#, r#"["a"]"#, "n"] {
        assert_eq!((decode(text), by_serde_json(text)), (None, None), "{text}");
    }
}

/// VibiumDev/vibium#85, PrefectHQ/fastmcp#932.
#[test]
fn numbers_and_booleans_may_come_as_text_where_hosts_write_them_so() {
    for (args, meant) in [
        (json!({"button": "1", "ms": "16"}), "1 16 false none false None  None"),
        (json!({"button": "A", "ms": "1.6e1"}), "A 16 false none false None  None"),
        (json!({"button": "true", "hold": "true"}), "true 100 true none false None  None"),
        (json!({"button": "A", "hold": "false"}), "A 100 false none false None  None"),
        (json!({"button": "A", "force": "3.3"}), "A 100 false 3.300 false None  None"),
        (json!({"button": "A", "at": {"x": "-3"}}), "A 100 false none false Some(-3)  None"),
        (json!({"button": "A", "note": "3"}), "A 100 false none false None  Some(\"\\\"3\\\"\")"),
    ] {
        for protocol in ["mcp", "namel3ss"] {
            assert_eq!(call(protocol, "press", &args), (meant.to_owned(), false), "{protocol} {args}");
        }
        for protocol in ["gevals", "amplifier"] {
            let is_text = args.get("note").is_some();
            let (text, is_refused) = call(protocol, "press", &args);
            assert_eq!(is_refused, !is_text, "{protocol} {args}: {text}");
            assert!(is_text || text.contains("; got the text \""), "{protocol} {args}: {text}");
        }
    }
    for protocol in PROTOCOLS {
        for (name, value, text) in [
            ("ms", "abc", "args.ms: expected an integer from 1 to 1000; got the text \"abc\""),
            ("ms", "", "; got the text \"\""),
            ("ms", " 16", "; got the text \" 16\""),
            ("ms", "0x10", "; got the text \"0x10\""),
            ("ms", "+16", "; got the text \"+16\""),
            ("ms", "016", "; got the text \"016\""),
            ("hold", "True", "args.hold: expected true or false; got the text \"True\""),
            ("hold", "1", "; got the text \"1\""),
            ("hold", "yes", "; got the text \"yes\""),
            ("force", "3,3", "; got the text \"3,3\""),
            ("mode", "3", "expected one of: short, long"),
        ] {
            let mut args = json!({"button": "A"});
            args[name] = value.into();
            let (found, is_refused) = call(protocol, "press", &args);
            assert!(is_refused && found.contains(text), "{protocol} {args}: {found}");
        }
        let (found, _) = call(protocol, "press", &json!({"button": 5}));
        assert!(found.contains("args.button: expected a string; got 5"), "{found}");
    }
}

/// openai/openai-agents-python#449, microsoft/vscode#251723, decolua/9router#2309.
#[test]
fn every_schema_has_properties_and_no_multiples() {
    let lines = serve(&[json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})]);
    let tools = lines[0]["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 4);
    for tool in tools {
        assert!(tool["inputSchema"]["properties"].is_object() && tool["inputSchema"]["type"] == "object", "{tool}");
        assert!(!tool.to_string().contains("multipleOf"), "{tool}");
    }
    let force = &tools[0]["inputSchema"]["properties"]["force"];
    assert_eq!(force["description"], "How hard; at most 3 digits behind the point", "{force}");
}

const RAILS: &[rigline::params::Choice] =
    &[rigline::params::Choice::new("3V3", "the \"board\""), rigline::params::Choice::new("5V0", "")];
const MODES: [&str; 2] = ["slow", "fast"];

#[derive(Params)]
struct Power<'a> {
    /// The rail
    #[param(one_of = RAILS)]
    rail: &'a str,
    #[allow(deprecated)]
    #[param(one_of = &MODES, default = "fast")]
    mode: &'a str,
    /// Alone
    #[param(one_of = &["only"])]
    only: Option<heapless::String<8>>,
}

struct Supply(bool);

#[rigline::extension(name = "supply", version = "1.0.0", description = "Rails")]
impl Supply {
    /// Switch a rail on
    #[operation]
    fn power(&mut self, args: Power<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.0 = true;
        cx.done(format_args!("{} {} {:?}", args.rail, args.mode, args.only))
    }

    #[safe_state]
    fn off(&mut self) {
        self.0 = false;
    }
}

fn supply(messages: &[Value]) -> (Vec<Value>, bool) {
    let mut supply = Supply(false);
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 8192], [0; 512]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(supply.manifest(), memory).unwrap();
    let text: String = messages.iter().map(|message| format!("{message}\n")).collect();
    let mut pipe = Pipe::new(text.as_bytes());
    blocking::Server::new(&mut supply, &mut engine, &NoTime).log_buffer(&mut log).serve(&mut pipe).unwrap();
    let text = String::from_utf8(pipe.output).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), supply.0)
}

#[test]
fn what_an_argument_may_be_is_in_the_schema_and_all_else_is_refused() {
    let (lines, _) = supply(&[json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})]);
    let properties = &lines[0]["result"]["tools"][0]["inputSchema"]["properties"];
    assert_eq!(
        properties["rail"],
        json!({"type": "string", "enum": ["3V3", "5V0"], "description": "The rail: 3V3 (the \"board\"), 5V0"})
    );
    assert_eq!(properties["mode"], json!({"type": "string", "enum": ["slow", "fast"], "default": "fast"}));
    assert_eq!(properties["only"]["enum"], json!(["only", null]));
    for (args, text) in [
        (json!({"rail": "3V3"}), "3V3 fast None"),
        (json!({"rail": "5V0", "mode": "slow", "only": "only"}), "5V0 slow Some(\"only\")"),
        (json!({"rail": "5V"}), "args.rail: unknown rail `5V`: expected one of 3V3, 5V0"),
        (json!({"rail": ""}), "args.rail: unknown rail ``: expected one of 3V3, 5V0"),
        (json!({"rail": "3V3", "mode": "Fast"}), "args.mode: unknown mode `Fast`: expected one of slow, fast"),
        (json!({"rail": "3V3", "only": "all"}), "args.only: unknown only `all`: expected only"),
        (json!({"rail": 5}), "args.rail: expected a string; got 5"),
    ] {
        let (lines, _) = supply(&[message("mcp", "power", &args)]);
        assert_eq!(lines[0]["result"]["content"][0]["text"], text, "{args}");
    }
}

#[test]
fn an_extension_with_a_safe_state_can_be_asked_and_switched_off() {
    let call = |operation: &str| message("mcp", operation, &json!({"rail": "3V3"}));
    let plain = |operation: &str| message("mcp", operation, &json!({}));
    let (lines, is_on) = supply(&[plain("state"), call("power"), plain("state"), plain("all_off"), plain("state")]);
    let states: Vec<_> = lines.iter().map(|line| line["result"]["structuredContent"]["may_be_on"].clone()).collect();
    assert_eq!((&states[0], &states[2]), (&json!(false), &json!(true)), "{lines:?}");
    assert_eq!(lines[3]["result"]["content"][0]["text"], "all outputs are off");
    assert!(!is_on);
    let (lines, _) = supply(&[json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})]);
    let names: Vec<_> =
        lines[0]["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["power", "state", "all_off"]);
}
