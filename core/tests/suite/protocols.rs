//! One extension behind the line forms of Amplifier and namel3ss, and which protocol a line tells.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;

use crate::common::{PLAIN, Pipe};
use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory, Step};
use rigline::json::Decimal;
use rigline::protocol::gevals::TaskContext;
use rigline::protocol::{self, AMPLIFIER, GEVALS, MCP, NAMEL3SS, Protocol, amplifier, mcp, namel3ss};
use rigline::serve::blocking::Server;
use rigline::{
    Call, Clock, Context, Extension, Failure, FailureKind, Instant, Level, Manifest, Operation, Outcome, Schema,
};
use rigline::{Event, EventMember};
use rigline::{Guarantee, ModuleKind};

#[derive(Default)]
struct Module {
    events: Vec<String>,
}

impl Extension for Module {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest =
            Manifest::new("module", "1.0.0").kind(ModuleKind::Hook).guarantees(&[Guarantee::NoNetwork]).operations(&[
                Operation::new("measure-rail", Schema::OBJECT),
                Operation::new("fail", Schema::OBJECT),
                Operation::new("session", Schema::OBJECT),
                Operation::new("fail-as", Schema::OBJECT),
            ]);
        &MANIFEST
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.info("working");
        match call.operation() {
            "measure-rail" => {
                cx.output("volts", &Decimal::<3>::from_mantissa(3300))?;
                cx.done("measured")
            }
            "fail" => {
                cx.output("last", &1)?;
                Err(cx.failure(FailureKind::Failed, "no \"power\"").with_code("E_POWER"))
            }
            "fail-as" => {
                let kind = match call.args_json().get("kind").and_then(|kind| kind.number()?.to_u32().ok()) {
                    Some(1) => FailureKind::BadArguments,
                    Some(2) => FailureKind::Unreachable,
                    Some(3) => FailureKind::Timeout,
                    Some(4) => FailureKind::RequirementNotMet,
                    Some(5) => FailureKind::Forbidden,
                    Some(6) => FailureKind::Internal,
                    Some(7) => {
                        cx.output("large", &"x".repeat(4000).as_str())?;
                        FailureKind::Failed
                    }
                    Some(8) => FailureKind::UnknownOperation,
                    _ => FailureKind::Failed,
                };
                Err(cx.failure(kind, "why"))
            }
            _ => cx.done(format_args!(
                "{} {}",
                amplifier::session_id(&call.context).map(|id| id.to_string()).unwrap_or_default(),
                namel3ss::Invocation::of(&call.context).trace_id.map(|id| id.to_string()).unwrap_or_default()
            )),
        }
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        cx.warn("an event came");
        self.events.push(event.json().to_string());
    }
}

#[derive(Default)]
struct Aside(RefCell<Vec<String>>);

impl Clock for Aside {
    fn now(&self) -> Instant {
        Instant::default()
    }

    fn log_out_of_band(&self, level: Level, text: &str) {
        self.0.borrow_mut().push(format!("{}: {text}", level.name()));
    }
}

fn answers(protocol: Option<&'static Protocol>, lines: &[&str]) -> Vec<String> {
    answers_of(&mut Module::default(), protocol, lines)
}

fn answers_of(module: &mut impl Extension, protocol: Option<&'static Protocol>, lines: &[&str]) -> Vec<String> {
    answers_of_list(module, protocol::ALL, protocol, lines)
}

fn answers_of_list(
    module: &mut impl Extension,
    protocols: &[&'static Protocol],
    pinned: Option<&'static Protocol>,
    lines: &[&str],
) -> Vec<String> {
    let (mut request, mut reply, mut log) = ([0; 2048], [0; 2048], [0; 512]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::with_protocols(module.manifest(), memory, protocols).unwrap();
    if let Some(protocol) = pinned {
        engine = engine.with_protocol(protocol);
    }
    let mut pipe = Pipe::new((lines.join("\n") + "\n").as_bytes());
    Server::new(module, &mut engine, &Aside::default()).log_buffer(&mut log).serve(&mut pipe).unwrap();
    String::from_utf8(pipe.output).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn amplifier_lines() {
    for (line, answer) in [
        (r#"{"op":"health"}"#, r#"{"status":"ok"}"#),
        (r#"{"op":"health","args":{},"id":[1, 2]}"#, r#"{"id":[1, 2],"status":"ok"}"#),
        (
            r#"{"op":"describe"}"#,
            r#"{"name":"module","version":"1.0.0","kind":"hook","capabilities":["measure-rail","fail","session","fail-as"],"inputs":{"measure-rail":{"type":"object","properties":{}},"fail":{"type":"object","properties":{}},"session":{"type":"object","properties":{}},"fail-as":{"type":"object","properties":{}}},"outputs":{}}"#,
        ),
        (r#"{"op":"measure-rail"}"#, r#"{"ok":true,"result":{"volts":3.300,"message":"measured"}}"#),
        (
            r#"{"id":7,"op":"measure-rail","args":null}"#,
            r#"{"id":7,"ok":true,"result":{"volts":3.300,"message":"measured"}}"#,
        ),
        (
            r#"{"op":"invoke","args":{"op":"measure-rail","args":{}}}"#,
            r#"{"ok":true,"result":{"volts":3.300,"message":"measured"}}"#,
        ),
        (
            r#"{"op":"fail","args":{}}"#,
            r#"{"ok":false,"error":{"details":{"last":1},"code":"E_POWER","message":"no \"power\""}}"#,
        ),
        (r#"{"op":"session","session_id":"s1"}"#, r#"{"ok":true,"result":{"message":"s1 "}}"#),
        (
            r#"{"op":"invoke","args":{"op":"session","session_id":"inner"},"session_id":"outer"}"#,
            r#"{"ok":true,"result":{"message":"inner "}}"#,
        ),
        (r#"{"op":"nope"}"#, r#"{"ok":false,"error":{"code":"unsupported_op","message":"Unknown operation: nope"}}"#),
        (r#"{"op":5}"#, r#"{"ok":false,"error":{"code":"bad_request","message":"op: expected a string"}}"#),
        (
            r#"{"op":"fail","args":[]}"#,
            r#"{"ok":false,"error":{"code":"bad_request","message":"args: expected an object"}}"#,
        ),
        (
            r#"{"op":"on_event","args":{"id":"e1","ts":1,"event":"session:start","component":"kernel"}}"#,
            r#"{"ok":true,"result":{}}"#,
        ),
        (
            r#"{"op":"on_event","args":{"event":"session:start"}}"#,
            r#"{"ok":false,"error":{"code":"bad_request","message":"args.ts: required, but missing"}}"#,
        ),
        (r#"{"op":"on_event"}"#, r#"{"ok":false,"error":{"code":"bad_request","message":"args: expected an event"}}"#),
        // Escapes, members in any order, of a member that is there twice the last.
        (r#"{"\u006fp":"he\u0061lth"}"#, r#"{"status":"ok"}"#),
        (r#"{"args":{"op":"x"},"op":"describe","op":"health"}"#, r#"{"status":"ok"}"#),
        (
            r#"{"op":"n\u00f6\n"}"#,
            r#"{"ok":false,"error":{"code":"unsupported_op","message":"Unknown operation: nö\n"}}"#,
        ),
    ] {
        assert_eq!(answers(None, &[line]), [answer], "{line}");
    }
}

#[test]
fn namel3ss_lines() {
    for (line, answer) in [
        (
            r#"{"protocol_version": 1, "tool": "measure rail", "entry": "a:b", "payload": {}}"#,
            r#"{"ok":true,"protocol_version":1,"result":{"volts":3.300,"message":"measured"}}"#,
        ),
        (
            r#"{"protocol_version":1,"tool_name":"session","trace_id":"t","payload":null}"#,
            r#"{"ok":true,"protocol_version":1,"result":{"message":" t"}}"#,
        ),
        (
            r#"{"protocol_version":1,"tool":"fail","payload":{}}"#,
            r#"{"ok":false,"protocol_version":1,"error":{"type":"E_POWER","message":"no \"power\""}}"#,
        ),
        (
            r#"{"protocol_version":2,"tool":"fail","payload":{}}"#,
            r#"{"ok":false,"protocol_version":2,"error":{"type":"ProtocolError","message":"protocol_version: only 1 is supported"}}"#,
        ),
        (
            r#"{"protocol_version":1,"tool":"x","payload":{}}"#,
            r#"{"ok":false,"protocol_version":1,"error":{"type":"UnknownTool","message":"Unknown tool: x"}}"#,
        ),
        (
            r#"{"protocol_version":1,"tool":"fail","payload":{},"capability_context":{"guarantees":{"no_network":true,"no_env_read":true},"sources":{"no_env_read":"user"}}}"#,
            r#"{"ok":false,"protocol_version":1,"error":{"type":"CapabilityViolation","message":"the guarantee no_env_read is required, and module does not keep it","reason_code":"guarantee_blocked"},"capability_checks":[{"capability":"env_read","allowed":false,"guarantee_source":"user","reason":"guarantee_blocked"}]}"#,
        ),
    ] {
        assert_eq!(answers(None, &[line]), [answer], "{line}");
    }
}

#[test]
fn what_cannot_be_read_is_answered_as_the_last_protocol_seen() {
    let lines =
        answers(None, &["{", r#"{"op":"health"}"#, "{", "{}", r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, "{}"]);
    assert_eq!(
        lines[0],
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: the line ends inside a value; a message must be complete and on one line at byte 1"}}"#
    );
    assert!(
        lines[2].starts_with(r#"{"ok":false,"error":{"code":"bad_request","message":"Parse error"#),
        "{}",
        lines[2]
    );
    assert_eq!(lines[3], r#"{"ok":false,"error":{"code":"bad_request","message":"op: required, but missing"}}"#);
    assert!(lines[5].contains("-32600"), "{}", lines[5]);
}

/// An array tells JSON-RPC by its members, and nothing if none of them does.
#[test]
fn arrays_after_another_protocol() {
    let health = r#"{"op":"health"}"#;
    let batch = r#"[1,{"jsonrpc":"2.0","id":1,"method":"x"}]"#;
    for (line, answer, after) in [
        ("[", r#"{"ok":false,"error":{"code":"bad_request","message":"Parse error"#, r#"{"ok":false"#),
        ("[]", r#"{"ok":false,"error":{"code":"bad_request","message":"op: required"#, r#"{"ok":false"#),
        (
            r#"[{"op":"health"}]"#,
            r#"{"ok":false,"error":{"code":"bad_request","message":"op: required"#,
            r#"{"ok":false"#,
        ),
        (batch, r#"[{"jsonrpc":"2.0","id":null,"error":{"code":-32600"#, r#"{"jsonrpc":"2.0","id":null"#),
    ] {
        let lines = answers(None, &[health, line, "{"]);
        assert!(lines[1].starts_with(answer) && lines[2].starts_with(after), "{line}: {lines:?}");
    }
    let lines = answers(None, &[r#"{"protocol_version":1}"#, "[]", " [1]"]);
    assert!(lines[1..].iter().all(|line| line.contains("a request must be an object")), "{lines:?}");
    assert!(answers(None, &["[]"])[0].contains("-32600"));
}

/// The real host's bindings must have a positive limit, and it sends no other.
#[test]
fn a_namel3ss_time_limit_is_positive() {
    for (limit, runs) in [
        ("1", true),
        ("1e3", true),
        ("2.0", true),
        ("4294967295", true),
        ("null", true),
        ("0", false),
        ("-0", false),
        ("0.0", false),
        ("-1", false),
        ("0.5", false),
        ("4294967296", false),
        ("\"5\"", false),
    ] {
        let line = format!(r#"{{"protocol_version":1,"tool":"measure rail","payload":{{}},"timeout_ms":{limit}}}"#);
        let answer = &answers(None, &[&line])[0];
        assert_eq!(answer.starts_with(r#"{"ok":true"#), runs, "{limit}: {answer}");
        assert!(
            runs || answer.contains("ProtocolError") && answer.contains("timeout_ms: expected"),
            "{limit}: {answer}"
        );
    }
}

#[test]
fn a_pinned_protocol_takes_every_line() {
    let lines = answers(Some(NAMEL3SS), &[r#"{"op":"health"}"#, "[]"]);
    assert!(lines[0].contains("protocol_version: required, but missing"), "{}", lines[0]);
    assert!(lines[1].contains("a request must be an object"), "{}", lines[1]);
    // Those that share its marker are no exception.
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert!(answers(Some(GEVALS), &[list])[0].contains("-32601"));
    assert!(answers(Some(MCP), &[list])[0].contains(r#""tools":["#));
    assert!(answers(Some(MCP), &[r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#])[0].contains("-32601"));
}

/// A protocol over JSON-RPC is recognised by the line alone, whatever the protocol of the line before.
#[test]
fn a_protocol_over_json_rpc_is_recognised_after_any_other() {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let end = r#"{"jsonrpc":"2.0","id":2,"method":"shutdown"}"#;
    for before in [r#"{"op":"health"}"#, r#"{"protocol_version":1,"tool":"session"}"#, list] {
        let lines = answers(None, &[before, list, before, end]);
        assert!(lines[1].contains(r#""tools":["#), "{before}: {}", lines[1]);
        assert_eq!(lines[3], r#"{"jsonrpc":"2.0","id":2,"result":{}}"#, "{before}");
    }
}

/// Gives `lines` to an engine; returns what it asks for, up to the first reading.
fn steps(engine: &mut Engine<'_>, lines: &str) -> Vec<String> {
    engine.space()[..lines.len()].copy_from_slice(lines.as_bytes());
    engine.commit(lines.len());
    let mut all = Vec::new();
    loop {
        all.push(match engine.step() {
            Step::Read => return all,
            Step::Write(line) => String::from_utf8(line.to_vec()).unwrap(),
            other => format!("{other:?}").split('(').next().unwrap().to_owned(),
        });
    }
}

#[test]
fn a_new_connection_has_nothing_of_the_last_one() {
    let (mut request, mut reply) = ([0; 2048], [0; 2048]);
    let module = Module::default();
    let mut engine = Engine::new(module.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let event = format!("{EVENT}\n");
    assert_eq!(steps(&mut engine, &event), ["{\"id\":9,\"ok\":true,\"result\":{}}\n", "Run"]);

    engine.space()[..event.len()].copy_from_slice(event.as_bytes());
    engine.commit(event.len());
    assert!(matches!(engine.step(), Step::Write(_)));
    // The acknowledgement did not get through: its event is not run in another connection, in other
    // memory.
    engine.disconnect();
    let answered = steps(&mut engine, "{\n{\"op\":\"health\"}\n");
    assert_eq!(answered.len(), 2, "{answered:?}");
    assert!(answered[0].contains("-32700"), "the last protocol seen was seen elsewhere: {}", answered[0]);
    assert_eq!(answered[1], "{\"status\":\"ok\"}\n");

    engine = engine.with_protocol(AMPLIFIER);
    engine.disconnect();
    assert!(steps(&mut engine, "{\n")[0].contains("bad_request"));
}

/// Without ids a reply is told by its place: nothing overtakes a call, `health` and faults
/// included.
#[test]
fn nothing_overtakes_a_call_where_there_are_no_ids() {
    for protocol in [None, Some(AMPLIFIER), Some(NAMEL3SS)] {
        let (mut request, mut reply) = ([0; 2048], [0; 2048]);
        let module = Module::default();
        let mut engine = Engine::new(module.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
        if let Some(protocol) = protocol {
            engine = engine.with_protocol(protocol);
        }
        let lines =
            "{\"op\":\"session\",\"protocol_version\":1,\"tool\":\"session\"}\n{\"op\":\"health\"}\n{\n[\n{\"op\":7}\n";
        engine.space()[..lines.len()].copy_from_slice(lines.as_bytes());
        engine.commit(lines.len());
        let Step::Run(mut run) = engine.step() else { panic!("it is a call") };
        assert!(run.background.answer(&mut [0; 600]).is_none(), "{protocol:?}");
        engine.complete(&Ok(Outcome::DONE));
        let answered = steps(&mut engine, "");
        assert_eq!(answered.len(), 5, "{answered:?}");
        assert!(answered[0].contains(r#""ok":true"#), "{answered:?}");
        if protocol != Some(NAMEL3SS) {
            assert_eq!(answered[1], "{\"status\":\"ok\"}\n");
        }
    }
}

/// An unreadable message is answered as the last protocol seen, whether or not a call runs when it
/// comes.
#[test]
fn faults_that_overtake_a_call_are_told_by_the_line_before_them() {
    let gevals = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"session","context":{}}}"#;
    let amplifier = r#"{"op":"session"}"#;
    let namel3ss = r#"{"protocol_version":1,"tool":"session"}"#;
    let batch = format!("[{gevals}]");
    let faults = [("{", "-32700", "bad_request", "ProtocolError"), ("[", "-32700", "bad_request", "ProtocolError")];
    for first in [gevals, amplifier, namel3ss] {
        for second in [gevals, amplifier, namel3ss, &batch] {
            for (fault, in_gevals, in_amplifier, in_namel3ss) in faults {
                let (mut request, mut reply) = ([0; 2048], [0; 2048]);
                let module = Module::default();
                let memory = Memory { request: &mut request, reply: &mut reply };
                let mut engine = Engine::new(module.manifest(), memory).unwrap();
                let lines = format!("{first}\n{second}\n{fault}\n");
                engine.space()[..lines.len()].copy_from_slice(lines.as_bytes());
                engine.commit(lines.len());
                let Step::Run(mut run) = engine.step() else { panic!("it is a call") };
                let mut memory = [0; 600];
                let text = |answer: &[u8]| String::from_utf8(answer.to_vec()).unwrap();
                let expected = match second {
                    _ if second == amplifier => in_amplifier,
                    _ if second == namel3ss => in_namel3ss,
                    _ => in_gevals,
                };
                // Where there are no ids, the fault waits its turn.
                let overtakes = expected == in_gevals;
                let answer = run.background.answer(&mut memory).map(text);
                assert_eq!(answer.is_some(), overtakes, "{lines}{answer:?}");
                assert!(answer.as_ref().is_none_or(|answer| answer.contains(expected)), "{lines}{answer:?}");
                assert!(run.background.answer(&mut [0; 600]).is_none());
                // The line that was kept has its turn, and what comes behind it is answered in its
                // protocol.
                engine.complete(&Ok(Outcome::DONE));
                assert!(matches!(engine.step(), Step::Write(_)));
                engine.space()[..2].copy_from_slice(b"{\n");
                engine.commit(2);
                let Step::Run(mut run) = engine.step() else { panic!("it is a call") };
                let answer = run.background.answer(&mut memory).map(text);
                assert_eq!(answer.is_some(), overtakes, "{lines}{answer:?}");
                assert!(answer.as_ref().is_none_or(|answer| answer.contains(expected)), "{lines}{answer:?}");
                engine.complete(&Ok(Outcome::DONE));
                let rest = steps(&mut engine, "");
                let faults = rest.iter().filter(|line| line.contains(expected)).count();
                assert_eq!(faults, if overtakes { 0 } else { 2 }, "{lines}{rest:?}");
            }
        }
    }
}

/// The name of each kind of failure: the seven reserved codes of Amplifier (§4), and Python's
/// names.
#[test]
fn every_failure_by_its_name() {
    for (kind, code, error_type) in [
        (0, "internal", "OperationFailed"),
        (1, "bad_request", "ValueError"),
        (2, "unreachable", "OperationFailed"),
        (3, "timeout", "TimeoutError"),
        (4, "unreachable", "RequirementNotMet"),
        (5, "forbidden", "CapabilityViolation"),
        (6, "internal", "InternalError"),
        (7, "oom", "MemoryError"),
        (8, "unsupported_op", "UnknownTool"),
    ] {
        let line = format!(r#"{{"op":"fail-as","args":{{"kind":{kind}}}}}"#);
        let answer = &answers(None, &[&line])[0];
        assert!(answer.starts_with(&format!(r#"{{"ok":false,"error":{{"code":"{code}","message":""#)), "{answer}");
        let line = format!(r#"{{"protocol_version":1,"tool":"fail-as","payload":{{"kind":{kind}}}}}"#);
        let answer = &answers(None, &[&line])[0];
        let start = format!(r#"{{"ok":false,"protocol_version":1,"error":{{"type":"{error_type}","message":""#);
        assert!(answer.starts_with(&start), "{answer}");
        assert_eq!(answer.contains("guarantee_blocked"), kind == 5, "{answer}");
    }
}

/// Where the real host asks for guarantees, a reply tells of its checks, as the tools of that host
/// do.
#[test]
fn capability_checks() {
    let request = |guarantees: &str| {
        format!(
            r#"{{"protocol_version":1,"tool":"measure rail","payload":{{}},"capability_context":{{"guarantees":{guarantees},"sources":{{"secrets_allowed":"policy"}}}}}}"#
        )
    };
    for guarantees in ["{}", r#"{"no_network":true,"no_subprocess":false}"#, r#"{"secrets_allowed":["K"]}"#, "null"] {
        let answer = &answers(None, &[&request(guarantees)])[0];
        assert_eq!(
            answer,
            r#"{"ok":true,"protocol_version":1,"result":{"volts":3.300,"message":"measured"},"capability_checks":[]}"#
        );
    }
    let answer = &answers(None, &[&request("{}").replace("measure rail", "fail")])[0];
    assert_eq!(
        answer,
        r#"{"ok":false,"protocol_version":1,"error":{"type":"E_POWER","message":"no \"power\""},"capability_checks":[]}"#
    );
    for (guarantee, capability) in [
        ("no_filesystem_write", "filesystem_write"),
        ("no_filesystem_read", "filesystem_read"),
        ("no_subprocess", "subprocess"),
        ("no_env_read", "env_read"),
        ("no_env_write", "env_write"),
    ] {
        let answer = &answers(None, &[&request(&format!(r#"{{"{guarantee}":true}}"#))])[0];
        let checks = format!(
            r#""capability_checks":[{{"capability":"{capability}","allowed":false,"guarantee_source":"tool","reason":"guarantee_blocked"}}]}}"#
        );
        assert!(answer.contains("CapabilityViolation") && answer.ends_with(&checks), "{answer}");
    }
    // As Python sees it; what is neither true nor false is not taken for false.
    for (value, is_required) in [("1", true), ("\"yes\"", true), ("[0]", true), ("false", false), ("null", false)] {
        let answer = &answers(None, &[&request(&format!(r#"{{"no_env_read":{value}}}"#))])[0];
        assert_eq!(answer.contains("CapabilityViolation"), is_required, "{value}: {answer}");
    }
}

/// A secret that is not allowed is one that the extension must not ask for.
#[test]
fn secrets_allowed() {
    struct Secretive;
    impl Extension for Secretive {
        fn manifest(&self) -> &'static Manifest {
            const MANIFEST: Manifest =
                Manifest::new("cloud", "1.0.0").secrets(&["API_KEY"]).operations(&[Operation::new("go", Schema::ANY)]);
            &MANIFEST
        }

        async fn call(&mut self, _: Call<'_>, _: &mut Context<'_>) -> Result<Outcome, Failure> {
            Ok(Outcome::DONE)
        }
    }
    for (allowed, runs) in [
        (r#"["API_KEY","B"]"#, true),
        (r#"["API\u005fKEY"]"#, true),
        ("[]", false),
        (r#"["B"]"#, false),
        ("null", true),
    ] {
        let line = format!(
            r#"{{"protocol_version":1,"tool":"go","payload":{{}},"capability_context":{{"guarantees":{{"secrets_allowed":{allowed}}},"sources":{{"secrets_allowed":"user"}}}}}}"#
        );
        let answer = &answers_of(&mut Secretive, None, &[&line])[0];
        assert_eq!(answer.starts_with(r#"{"ok":true"#), runs, "{answer}");
        if !runs {
            assert!(answer.ends_with(r#""message":"cloud needs the secret API_KEY, which is not allowed","reason_code":"guarantee_blocked"},"capability_checks":[{"capability":"secrets","allowed":false,"guarantee_source":"user","reason":"secrets_blocked"}]}"#), "{answer}");
        }
    }
}

/// Python writes NaN, which is not JSON.
/// Reports: apify/apify-client-python#87, flop-labs/technocore-chat#90,
/// brian7704/OpenTAKServer#291.
#[test]
fn nan_is_refused() {
    let lines = answers(
        Some(NAMEL3SS),
        &[
            r#"{"protocol_version":1,"tool":"session","payload":{"t":NaN}}"#,
            r#"{"protocol_version":1,"tool":"session","payload":{"t":-Infinity}}"#,
            r#"{"protocol_version":1,"tool":"session","payload":{}}"#,
        ],
    );
    for line in &lines[..2] {
        assert!(
            line.starts_with(
                r#"{"ok":false,"protocol_version":1,"error":{"type":"ProtocolError","message":"Parse error"#
            )
        );
    }
    assert_eq!(lines[2], r#"{"ok":true,"protocol_version":1,"result":{"message":" "}}"#);
}

/// The example of the text (§"Local subprocess schema"), on one line.
#[test]
fn the_examples_of_the_namel3ss_text() {
    let local = r#"{ "protocol_version": 1, "tool": "session", "entry": "tools.sample_tool:greet", "payload": { "name": "Ada" }, "sandbox": true, "trace_id": "uuid", "capability_context": { "guarantees": { "no_network": true } } }"#;
    let service = r#"{ "protocol_version": 1, "tool_name": "session", "kind": "python", "entry": "tools.sample_tool:greet", "payload": { "name": "Ada" }, "timeout_ms": 10000, "trace_id": "uuid", "project": { "app_root": "/path/to/app", "flow": "demo" } }"#;
    let lines = answers(None, &[local, service]);
    assert_eq!(lines[0], r#"{"ok":true,"protocol_version":1,"result":{"message":" uuid"},"capability_checks":[]}"#);
    assert_eq!(lines[1], r#"{"ok":true,"protocol_version":1,"result":{"message":" uuid"}}"#);
}

/// Amplifier's protocol text §3: which members must be there, and that absent and null are not the
/// same.
#[test]
fn events() {
    let whole = r#"{"id":"1","ts":1.5e3,"event":"x:y","component":"c","module":"m","status":"ok","duration_ms":7,"data":{},"error":null,"session_id":null,"request_id":"r","span_id":"s","more":[1]}"#;
    let event = Event::parse(whole.as_bytes()).unwrap();
    assert!(event.id() == "1" && event.event() == "x:y" && event.component() == "c");
    assert_eq!(event.module().value().map(|module| module.to_string()).as_deref(), Some("m"));
    assert_eq!(event.duration_ms().value().and_then(|ms| ms.to_u32().ok()), Some(7));
    assert!(matches!((event.error(), event.session_id()), (EventMember::Null, EventMember::Null)));
    assert_eq!(event.json().as_str(), whole);
    let least = Event::parse(br#"{"id":"","ts":0,"event":"","component":""}"#).unwrap();
    assert!(matches!((least.module(), least.data()), (EventMember::Absent, EventMember::Absent)));
    for (text, fault) in [
        ("[]", "an event must be an object"),
        (r#"{"ts":0,"event":"","component":""}"#, "id: required, but missing"),
        (r#"{"id":null,"ts":0,"event":"","component":""}"#, "id: expected a string"),
        (r#"{"id":"","ts":"0","event":"","component":""}"#, "ts: expected a number"),
        (r#"{"id":"","ts":0,"event":"","component":"","duration_ms":1.5}"#, "duration_ms: expected an integer or null"),
        (r#"{"id":"","ts":0,"event":"","component":"","data":[]}"#, "data: expected an object or null"),
        (r#"{"id":"","ts":0,"event":"","component":"","span_id":4}"#, "span_id: expected a string or null"),
    ] {
        assert_eq!(Event::parse(text.as_bytes()).unwrap_err().to_string(), fault, "{text}");
    }
    assert!(Event::parse(br#"{"id":"","ts":0,"event":"","component":"","duration_ms":1.0}"#).is_ok());
}

/// Event Schema v1: each member by itself, given, null, absent, and of another type.
#[test]
fn each_member_of_an_event_is_read_and_checked() {
    const TEXT: (&str, &str) = ("\"text\"", "a string");
    const OBJECT: (&str, &str) = (r#"{"a":1}"#, "an object");
    type Read = fn(&Event<'_>) -> EventMember<String>;
    fn told<T>(member: EventMember<T>, text: impl FnOnce(T) -> String) -> EventMember<String> {
        match member {
            EventMember::Absent => EventMember::Absent,
            EventMember::Null => EventMember::Null,
            EventMember::Value(value) => EventMember::Value(text(value)),
        }
    }
    let members: [(&str, (&str, &str), bool, Read); 12] = [
        ("id", TEXT, true, |event| EventMember::Value(format!("\"{}\"", event.id()))),
        ("ts", ("-7", "a number"), true, |event| {
            EventMember::Value(event.ts().to_i64().map_or_else(|error| error.to_string(), |number| number.to_string()))
        }),
        ("event", TEXT, true, |event| EventMember::Value(format!("\"{}\"", event.event()))),
        ("component", TEXT, true, |event| EventMember::Value(format!("\"{}\"", event.component()))),
        ("module", TEXT, false, |event| told(event.module(), |text| format!("\"{text}\""))),
        ("status", TEXT, false, |event| told(event.status(), |text| format!("\"{text}\""))),
        ("duration_ms", ("7", "an integer"), false, |event| {
            told(event.duration_ms(), |ms| {
                ms.to_i64().map_or_else(|error| error.to_string(), |number| number.to_string())
            })
        }),
        ("data", OBJECT, false, |event| told(event.data(), |json| json.as_str().to_owned())),
        ("error", OBJECT, false, |event| told(event.error(), |json| json.as_str().to_owned())),
        ("session_id", TEXT, false, |event| told(event.session_id(), |text| format!("\"{text}\""))),
        ("request_id", TEXT, false, |event| told(event.request_id(), |text| format!("\"{text}\""))),
        ("span_id", TEXT, false, |event| told(event.span_id(), |text| format!("\"{text}\""))),
    ];
    for (name, (good, kind), is_required, read) in members {
        let with = |value: Option<&str>| {
            let given = members.iter().filter(|(other, ..)| *other != name).map(|(name, (good, _), ..)| (*name, *good));
            let all: Vec<_> = given.chain(value.map(|value| (name, value))).collect();
            let all: Vec<_> = all.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            format!("{{{}}}", all.join(","))
        };
        let read = |value: Option<&str>| {
            let text = with(value);
            Event::parse(text.as_bytes()).map(|event| (read(&event), read(&event).value()))
        };
        assert_eq!(read(Some(good)), Ok((EventMember::Value(good.to_owned()), Some(good.to_owned()))), "{name}");
        let expected = if is_required { kind.to_owned() } else { format!("{kind} or null") };
        let wrong = |value: &str| {
            let error = read(Some(value)).unwrap_err();
            assert_eq!(error.member(), Some(name), "{name}: {value}");
            assert_eq!(error.to_string(), format!("{name}: expected {expected}"), "{value}");
        };
        let others = ["\"\"", "1", "{}", "[]", "true", "1.5"];
        let is_good = |value: &str| {
            matches!(
                (kind, value),
                ("a string", "\"\"") | ("a number", "1" | "1.5") | ("an integer", "1") | ("an object", "{}")
            )
        };
        for other in others {
            if is_good(other) {
                assert!(read(Some(other)).is_ok(), "{name}: {other}");
            } else {
                wrong(other);
            }
        }
        if is_required {
            wrong("null");
            let error = read(None).unwrap_err();
            assert_eq!((error.member(), error.to_string()), (Some(name), format!("{name}: required, but missing")));
        } else {
            assert_eq!(read(Some("null")), Ok((EventMember::Null, None)), "{name}");
            assert_eq!(read(None), Ok((EventMember::Absent, None)), "{name}");
        }
    }
    for text in ["{", "[]"] {
        assert_eq!(Event::parse(text.as_bytes()).unwrap_err().member(), None, "{text}");
    }
}

const EVENT: &str = r#"{"op":"on_event","args":{"id":"e","ts":1,"event":"session:end","component":"kernel"},"id":9}"#;
const ACKNOWLEDGEMENT: &str = "{\"id\":9,\"ok\":true,\"result\":{}}\n";

/// A hook whose work waits at a gate.
struct Hook<'a> {
    gate: &'a Cell<bool>,
    done: &'a Cell<bool>,
}

impl Extension for Hook<'_> {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest = Manifest::new("hook", "1.0.0").kind(ModuleKind::Hook);
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, _: &mut Context<'_>) -> Result<Outcome, Failure> {
        Err(Failure::UNKNOWN_OPERATION)
    }

    async fn on_event(&mut self, event: Event<'_>, _: &mut Context<'_>) {
        assert!(event.event() == "session:end");
        poll_fn(|_| if self.gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
        self.done.set(true);
    }
}

#[test]
fn a_hook_acknowledges_first_over_blocking_io() {
    /// Opens the gate when the handler waits at it, and the acknowledgement is out.
    struct Opener<'a>(&'a RefCell<Vec<u8>>, &'a Cell<bool>);
    impl Clock for Opener<'_> {
        fn now(&self) -> Instant {
            Instant::default()
        }

        fn idle(&self) {
            assert_eq!(String::from_utf8_lossy(&self.0.borrow()), ACKNOWLEDGEMENT);
            self.1.set(true);
        }
    }
    struct Shared<'a>(&'a [u8], &'a RefCell<Vec<u8>>);
    impl ErrorType for Shared<'_> {
        type Error = Infallible;
    }
    impl Read for Shared<'_> {
        fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
            let count = buf.len().min(self.0.len());
            buf[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }
    impl Write for Shared<'_> {
        fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
            self.1.borrow_mut().extend_from_slice(buf);
            Ok(buf.len())
        }

        fn flush(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }
    let (output, gate, done) = (RefCell::default(), Cell::new(false), Cell::new(false));
    let (mut request, mut reply, mut log) = ([0; 512], [0; 600], [0; 512]);
    let mut hook = Hook { gate: &gate, done: &done };
    let mut engine = Engine::new(hook.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let input = format!("{EVENT}\n{{\"op\":\"health\"}}\n");
    let mut pipe = Shared(input.as_bytes(), &output);
    Server::new(&mut hook, &mut engine, &Opener(&output, &gate)).log_buffer(&mut log).serve(&mut pipe).unwrap();
    assert!(done.get());
    assert_eq!(String::from_utf8_lossy(&output.borrow()), format!("{ACKNOWLEDGEMENT}{{\"status\":\"ok\"}}\n"));
}

#[cfg(feature = "async")]
#[test]
fn a_hook_acknowledges_first_over_async_io() {
    use std::future::Future;
    use std::task::{Context as Task, Waker};

    struct Input<'a>(&'a [u8]);
    impl ErrorType for Input<'_> {
        type Error = Infallible;
    }
    impl embedded_io_async::Read for Input<'_> {
        async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
            let count = buf.len().min(self.0.len());
            buf[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }
    struct Output<'a>(&'a RefCell<Vec<u8>>);
    impl ErrorType for Output<'_> {
        type Error = Infallible;
    }
    impl embedded_io_async::Write for Output<'_> {
        async fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
            self.0.borrow_mut().extend_from_slice(buf);
            Ok(buf.len())
        }

        async fn flush(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }
    let (output, gate, done) = (RefCell::default(), Cell::new(false), Cell::new(false));
    let (mut request, mut reply, mut log) = ([0; 512], [0; 600], [0; 2048]);
    let mut hook = Hook { gate: &gate, done: &done };
    let mut engine = Engine::new(hook.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let input = format!("{EVENT}\n{{\"op\":\"health\"}}\n");
    let (mut reader, mut writer) = (Input(input.as_bytes()), Output(&output));
    let clock = Aside::default();
    let mut serving = std::pin::pin!(
        rigline::serve::asynch::Server::new(&mut hook, &mut engine, &clock)
            .log_buffer(&mut log)
            .serve(&mut reader, &mut writer)
    );
    let mut task = Task::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(serving.as_mut().poll(&mut task).is_pending());
        // What needs no handler is answered meanwhile.
        assert!(String::from_utf8_lossy(&output.borrow()).starts_with(ACKNOWLEDGEMENT));
        assert!(!done.get());
    }
    gate.set(true);
    assert!(serving.as_mut().poll(&mut task).is_ready());
    assert!(done.get());
    assert_eq!(String::from_utf8_lossy(&output.borrow()), format!("{ACKNOWLEDGEMENT}{{\"status\":\"ok\"}}\n"));
}

/// An answer of any protocol gets silence, in every protocol: else two endpoints answer each other
/// without end.
#[test]
fn answers_are_not_answered() {
    let own = [
        r#"{"ok":false,"error":{"code":"bad_request","message":"op: required, but missing"}}"#,
        r#"{"id":7,"ok":true,"result":{}}"#,
        r#"{"ok":true,"protocol_version":1,"result":{"volts":3.300}}"#,
        r#"{"ok":false,"protocol_version":1,"error":{"type":"ProtocolError","message":"Parse error: x"}}"#,
        r#"{"ok":false,"protocol_version":1,"error":{"type":"ProtocolError","message":""},"capability_checks":[]}"#,
        r#"{"ok":true}"#,
        r#"{"status":"ok"}"#,
        r#"{"id":1,"status":"ok"}"#,
        r#"{"name":"m","version":"1.0.0","kind":"tool","capabilities":[]}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"log","params":{}}"#,
    ];
    for protocol in [None, Some(GEVALS), Some(AMPLIFIER), Some(NAMEL3SS)] {
        for line in own {
            let line_of_another = protocol.is_some_and(|protocol| protocol != GEVALS) && line.contains("log");
            if !line_of_another {
                assert_eq!(answers(protocol, &[line]), [""; 0], "{protocol:?} {line}");
            }
        }
    }
    // Nor are a protocol's own where no other is known.
    for protocol in [AMPLIFIER, NAMEL3SS] {
        for line in &own[..6] {
            let answers = answers_of_list(&mut Module::default(), &[protocol], None, &[line]);
            assert_eq!(answers, [""; 0], "{protocol:?} {line}");
        }
    }
    // A request is one although it has a member of an answer.
    for line in [
        r#"{"ok":true,"op":"health"}"#,
        r#"{"ok":true,"protocol_version":1,"tool":"session"}"#,
        r#"{"error":{},"protocol_version":1,"tool_name":"session"}"#,
    ] {
        assert_eq!(answers(None, &[line]).len(), 1, "{line}");
    }
}

/// Two endpoints on one line, each pinned to a protocol or none: whatever one of them starts with,
/// the line falls silent.
#[test]
fn two_endpoints_fall_silent() {
    let protocols = [None, Some(GEVALS), Some(AMPLIFIER), Some(NAMEL3SS)];
    for first in protocols {
        for second in protocols {
            for seed in
                ["{", "[]", "{}", "1", r#"{"op":"health"}"#, r#"{"op":1}"#, r#"{"protocol_version":2}"#, "[1,2]"]
            {
                let mut lines = vec![seed.to_owned()];
                for turn in 0..6 {
                    let protocol = if turn % 2 == 0 { first } else { second };
                    lines = lines.iter().flat_map(|line| answers(protocol, &[line])).collect();
                }
                assert!(lines.is_empty(), "{first:?} {second:?} {seed}: {lines:?}");
            }
        }
    }
}

/// A line's protocol is the same whether or not a call was out when it came.
#[test]
fn the_protocol_does_not_depend_on_a_running_call() {
    let invalid = r#"{"jsonrpc":"2.0","id":4,"method":7}"#;
    for (lines, expected) in [
        (format!("{{\"op\":\"session\"}}\n{invalid}\n{{\n"), "-32700"),
        (format!("{invalid}\n{{\"op\":\"session\"}}\n{{\n"), "bad_request"),
    ] {
        let call = "{\"op\":\"session\"}\n";
        for running in [false, true] {
            let (mut request, mut reply) = ([0; 2048], [0; 2048]);
            let module = Module::default();
            let memory = Memory { request: &mut request, reply: &mut reply };
            let mut engine = Engine::new(module.manifest(), memory).unwrap();
            let mut all = Vec::new();
            let text = if running { format!("{call}{lines}") } else { lines.clone() };
            engine.space()[..text.len()].copy_from_slice(text.as_bytes());
            engine.commit(text.len());
            loop {
                match engine.step() {
                    Step::Read => break,
                    Step::Write(line) => all.push(String::from_utf8(line.to_vec()).unwrap()),
                    Step::Run(mut run) => {
                        while let Some(line) = run.background.answer(&mut [0; 600]) {
                            all.push(String::from_utf8(line.to_vec()).unwrap());
                        }
                        engine.complete(&Ok(Outcome::DONE));
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(all.iter().any(|line| line.contains(expected)), "running: {running}, {lines}{all:?}");
        }
    }
}

/// A refusal that does not fit the reply region is an error that says so, and never an empty line.
#[test]
fn a_refusal_always_fits() {
    let source = "\\u0001".repeat(64);
    let line = format!(
        r#"{{"protocol_version":1,"tool":"session","capability_context":{{"guarantees":{{"no_subprocess":true}},"sources":{{"no_subprocess":"{source}"}}}}}}"#
    );
    for size in [600, 700, 800, 2048] {
        let (mut request, mut reply) = ([0; 2048], vec![0; size]);
        let module = Module::default();
        let mut engine = Engine::new(module.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
        let answered = steps(&mut engine, &format!("{line}\n"));
        assert_eq!(answered.len(), 1);
        let json: serde_json::Value = serde_json::from_str(&answered[0]).unwrap();
        assert_eq!((&json["ok"], &json["protocol_version"]), (&false.into(), &1.into()), "{size}: {json}");
        let kind = json["error"]["type"].as_str().unwrap();
        assert!(matches!(kind, "MemoryError" | "CapabilityViolation"), "{json}");
        assert!(answered[0].len() <= size);
    }
}

/// Bytes may be read between an event's acknowledgement and its run.
#[test]
fn an_acknowledged_event_survives_a_read() {
    let (mut request, mut reply) = ([0; 2048], [0; 2048]);
    let module = Module::default();
    let mut engine = Engine::new(module.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let event = format!("{EVENT}\n");
    engine.space()[..event.len()].copy_from_slice(event.as_bytes());
    engine.commit(event.len());
    assert!(matches!(engine.step(), Step::Write(_)));
    let more = "{\"op\":\"health\"}\n";
    engine.space()[..more.len()].copy_from_slice(more.as_bytes());
    engine.commit(more.len());
    let Step::Run(run) = engine.step() else { panic!("the event runs") };
    assert!(matches!(run.work, rigline::exchange::Work::Event(_)));
    engine.complete(&Ok(Outcome::DONE));
    assert!(matches!(engine.step(), Step::Write(b"{\"status\":\"ok\"}\n")));
}

/// An id in Amplifier has the greatest length of one in JSON-RPC, with its quotes.
#[test]
fn an_amplifier_id_is_echoed_up_to_400_bytes() {
    for (length, answer) in [
        (400, format!(r#"{{"id":"{}","status":"ok"}}"#, "x".repeat(398))),
        (401, r#"{"ok":false,"error":{"code":"bad_request","message":"id: longer than 400 bytes"}}"#.to_owned()),
    ] {
        let line = format!(r#"{{"op":"health","id":"{}"}}"#, "x".repeat(length - 2));
        assert_eq!(answers(None, &[&line]), [answer]);
    }
}

/// Any JSON may be an id in Amplifier. A CR between its tokens would end the line for a peer on a
/// serial line.
#[test]
fn no_cr_in_an_echoed_id() {
    let answered = answers(None, &["{\"op\":\"health\",\"id\":{\"a\":\r[1,\r 2]}}"]);
    assert_eq!(answered, [r#"{"id":{"a":[1, 2]},"status":"ok"}"#]);
}

/// The logs of an event's handler take the route of its protocol's logs.
#[test]
fn logs_within_an_event() {
    let (mut request, mut reply, mut log) = ([0; 2048], [0; 2048], [0; 512]);
    let mut module = Module::default();
    let mut engine = Engine::new(module.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let mut pipe = Pipe::new(format!("{EVENT}\n").as_bytes());
    let clock = Aside::default();
    Server::new(&mut module, &mut engine, &clock).log_buffer(&mut log).serve(&mut pipe).unwrap();
    assert_eq!(*clock.0.borrow(), ["warn: an event came"]);
    assert_eq!(pipe.output, b"{\"id\":9,\"ok\":true,\"result\":{}}\n");
}

/// One name twice is an error of the extension, and never a reply with duplicate members.
#[test]
fn an_output_name_twice() {
    struct Twice(&'static [&'static str]);
    impl Extension for Twice {
        fn manifest(&self) -> &'static Manifest {
            const MANIFEST: Manifest =
                Manifest::new("twice", "1.0.0").operations(&[Operation::new("go", Schema::OBJECT)]);
            &MANIFEST
        }

        async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
            for (at, name) in self.0.iter().enumerate() {
                let _ = cx.output(name, &["a,b\":", "c"][at % 2]);
            }
            cx.done("done")
        }
    }
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"go","context":{}}}"#,
        r#"{"op":"go"}"#,
        r#"{"protocol_version":1,"tool":"go"}"#,
    ];
    for (names, fails) in [
        (&["a", "b", "c", "aa", "ab", "ba", "\"", "\\"][..], false),
        (&["a", "b", "a"], true),
        (&["\u{e9}\"", "x", "\u{e9}\""], true),
    ] {
        for answer in answers_of(&mut Twice(names), None, &lines) {
            let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer.contains("two outputs have the same name"), fails, "{answer}");
            assert_eq!(json.get("error").is_some(), fails, "{answer}");
        }
    }
}

/// The real engine writes a flow's decimals as strings: where a number is wanted, namel3ss's are
/// accepted, digit by digit.
#[test]
fn numeric_strings_are_numbers_in_namel3ss() {
    #[derive(serde::Deserialize)]
    struct Inner {
        limits: [f64; 2],
    }
    #[derive(serde::Deserialize)]
    struct Args<'a> {
        max: rigline::json::Decimal<3>,
        samples: u16,
        large: u64,
        ratio: Option<f32>,
        name: &'a str,
        inner: Inner,
    }
    struct Takes;
    impl Extension for Takes {
        fn manifest(&self) -> &'static Manifest {
            const MANIFEST: Manifest =
                Manifest::new("takes", "1.0.0").operations(&[Operation::new("go", Schema::OBJECT)]);
            &MANIFEST
        }

        async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
            let Args { max, samples, large, ratio, name, inner } = call.args()?;
            cx.done(format_args!("{max} {samples} {large} {ratio:?} {name} {:?}", inner.limits))
        }
    }
    let numbers = r#"{"max":"3.465","samples":"16","large":"18446744073709551615","ratio":"0.5","name":"12","inner":{"limits":["-1e3",2]}}"#;
    let line = |payload: &str| format!(r#"{{"protocol_version":1,"tool":"go","payload":{payload}}}"#);
    assert_eq!(
        answers_of(&mut Takes, None, &[&line(numbers)]),
        [
            r#"{"ok":true,"protocol_version":1,"result":{"message":"3.465 16 18446744073709551615 Some(0.5) 12 [-1000.0, 2.0]"}}"#
        ]
    );
    for (from, to, fault) in [
        ("\"16\"", "\"70000\"", "samples: expected an integer from 0 to 65535"),
        ("\"16\"", "\"1.5\"", "samples: expected an integer"),
        ("\"16\"", "\" 16\"", "samples: expected an integer"),
        ("\"16\"", "\"\"", "samples: expected an integer"),
        ("\"16\"", "\"0x10\"", "samples: expected an integer"),
        ("\"3.465\"", "\"3.4655\"", "max: expected"),
        ("\"3.465\"", "\"three\"", "max: expected"),
        ("\"-1e3\"", "\"NaN\"", "inner.limits[0]: expected a number"),
    ] {
        let answer = &answers_of(&mut Takes, None, &[&line(&numbers.replace(from, to))])[0];
        assert!(answer.contains("ValueError") && answer.contains(fault), "{to}: {answer}");
    }
    // The other protocols have no such excuse.
    for line in [
        format!(r#"{{"op":"go","args":{numbers}}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"go","args":{numbers},"context":{{}}}}}}"#
        ),
    ] {
        let answer = &answers_of(&mut Takes, None, &[&line])[0];
        assert!(answer.contains("args.max: expected"), "{answer}");
    }
}

/// Shows what a handler knows of its caller.
struct Tells;

impl Extension for Tells {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest =
            Manifest::new("tells", "1.0.0").operations(&[Operation::new("tell", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let context = &call.context;
        let text = |text: Option<rigline::json::Text<'_>>| text.map_or("-".to_owned(), |text| text.to_string());
        let json = |json: Option<rigline::json::Json<'_>>| json.map_or("-".to_owned(), |json| json.to_string());
        let task = TaskContext::of(context);
        let agent = task.agent.map(|agent| format!("{}>{}", text(agent.prompt), text(agent.output)));
        let env: Vec<_> = task.env().map(|(name, value)| format!("{name}={value}")).collect();
        let tool = namel3ss::Invocation::of(context);
        let told = [
            text(amplifier::session_id(context)),
            text(task.workdir),
            format!("{:?}", task.phase),
            agent.unwrap_or("-".to_owned()),
            env.join(","),
            text(tool.entry),
            text(tool.trace_id),
            text(tool.kind),
            tool.sandbox.to_string(),
            json(tool.capability_context),
            json(tool.project),
            json(mcp::context(context)),
        ];
        cx.done(told.join("|").as_str())
    }
}

/// The text that the handler tells after this line.
fn told(line: &str) -> String {
    let answers = answers_of(&mut Tells, None, &[line]);
    let json: serde_json::Value = serde_json::from_str(&answers[0]).unwrap();
    let result = &json["result"];
    let text = result["message"].as_str().or(result["content"][0]["text"].as_str());
    text.unwrap_or_else(|| panic!("{line}: {json}")).to_owned()
}

#[test]
fn a_handler_knows_the_context_of_its_own_protocol_and_of_no_other() {
    // Everything that another protocol would read is there as well.
    let more = r#""session_id":"s","entry":"e","trace_id":"t","kind":"k","sandbox":true,"project":{},"context":{"workdir":"w"},"_meta":{"rigline/context":{"workdir":"w"}}"#;
    let amplifier = |rest: &str| told(&format!(r#"{{"op":"tell"{rest}}}"#));
    let nothing_else = "-|Unknown|-||-|-|-|false|-|-|-";
    assert_eq!(amplifier(&format!(",{more}")), format!("s|{nothing_else}"));
    assert_eq!(amplifier(r#","session_id":null"#), format!("-|{nothing_else}"));
    assert_eq!(amplifier(r#","args":{"session_id":"x"}"#), format!("-|{nothing_else}"));

    let namel3ss = |rest: &str| told(&format!(r#"{{"protocol_version":1,"tool":"tell"{rest}}}"#));
    assert_eq!(namel3ss(&format!(",{more}")), "-|-|Unknown|-||e|t|k|true|-|{}|-");
    assert_eq!(
        namel3ss(
            r#","entry":null,"trace_id":null,"kind":5,"sandbox":false,"capability_context":{"guarantees":{}},"project":{"flow":null}"#
        ),
        r#"-|-|Unknown|-||-|-|-|false|{"guarantees":{}}|{"flow":null}|-"#
    );
    for none in ["null", "[]", "5", "\"x\""] {
        let capabilities = if none == "null" { ",\"capability_context\":null" } else { "" };
        assert_eq!(
            namel3ss(&format!(r#","project":{none},"sandbox":null{capabilities}"#)),
            "-|-|Unknown|-||-|-|-|false|-|-|-"
        );
    }

    let gevals = |context: &str| {
        told(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"tell",{more},"context":{context}}}}}"#
        ))
    };
    let mcp = |context: &str| {
        let told = told(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"tell","context":{{"workdir":"w"}},"_meta":{{"rigline/context":{context}}}}}}}"#
        ));
        let (told, whole) = told.rsplit_once('|').unwrap();
        assert_eq!(whole, if context.starts_with('{') { context } else { "-" });
        format!("{told}|-")
    };
    for (context, task) in [
        ("{}", "-|Unknown|-|"),
        (r#"{"workdir":"/w","phase":"setup"}"#, "/w|Setup|-|"),
        (r#"{"workdir":null,"phase":"verify","agent":{}}"#, "-|Verify|->-|"),
        (r#"{"phase":"cleanup","agent":{"prompt":"p","output":null}}"#, "-|Cleanup|p>-|"),
        (r#"{"phase":"Setup","agent":{"output":"o"}}"#, "-|Unknown|->o|"),
        (r#"{"phase":null,"agent":null,"env":null}"#, "-|Unknown|-|"),
        (r#"{"env":{"A":"1","B\n":"\u0042"}}"#, "-|Unknown|-|A=1,B\n=B"),
        (r#"{"env":{}}"#, "-|Unknown|-|"),
    ] {
        let expected = format!("-|{task}|-|-|-|false|-|-|-");
        assert_eq!(gevals(context), expected, "{context}");
        assert_eq!(mcp(context), expected, "{context}");
    }
    // MCP has no schema for it: what is of another type is none.
    for (context, task) in [
        (r#"{"workdir":5,"phase":[],"agent":"x","env":["A"]}"#, "-|Unknown|-|"),
        (r#"{"env":{"A":1,"B":"2"}}"#, "-|Unknown|-|B=2"),
        ("[]", "-|Unknown|-|"),
        ("null", "-|Unknown|-|"),
    ] {
        assert_eq!(mcp(context), format!("-|{task}|-|-|-|false|-|-|-"), "{context}");
    }
}

/// Amplifier's protocol text §2: `describe` has the name, version, kind, capabilities, inputs and outputs.
#[test]
fn describe_has_each_operation_and_the_outputs_of_those_that_declare_them() {
    const SCHEMA: Schema = Schema::text(r#"{"type":"object"}"#);
    static MANIFEST: Manifest = Manifest::new("four", "1.0.0").operations(&[
        Operation::new("a\"", Schema::ANY).outputs(SCHEMA),
        Operation::new("b", Schema::OBJECT),
        Operation::new("c", SCHEMA).outputs(Schema::OBJECT),
        Operation::new("d", SCHEMA).outputs(SCHEMA),
    ]);
    let (mut request, mut reply) = ([0; 512], [0; 1024]);
    let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request, reply: &mut reply }).unwrap();
    assert_eq!(
        steps(&mut engine, "{\"op\":\"describe\"}\n"),
        [concat!(
            r#"{"name":"four","version":"1.0.0","kind":"tool","capabilities":["a\"","b","c","d"],"#,
            r#""inputs":{"a\"":{},"b":{"type":"object","properties":{}},"c":{"type":"object"},"d":{"type":"object"}},"#,
            r#""outputs":{"a\"":{"type":"object"},"c":{"type":"object","properties":{}},"d":{"type":"object"}}}"#,
            "\n"
        )]
    );
}

/// A namel3ss request that is wrong is told why, and the version that it says comes back.
#[test]
fn a_fault_in_a_namel3ss_request_names_the_member() {
    let request = |rest: &str| format!(r#"{{"protocol_version":1,"tool":"tell"{rest}}}"#);
    let digits = |count: usize| format!(r#"{{"protocol_version":{},"tool":"tell"}}"#, "7".repeat(count));
    let one = "1".to_owned();
    for (line, version, name, message) in [
        ("[]".to_owned(), &one, "ProtocolError", "a request must be an object"),
        (r#"{"tool":"tell"}"#.to_owned(), &one, "ProtocolError", "protocol_version: required, but missing"),
        (
            r#"{"protocol_version":"1","tool":"tell"}"#.to_owned(),
            &one,
            "ProtocolError",
            "protocol_version: expected a number",
        ),
        (
            r#"{"protocol_version":null,"tool":"tell"}"#.to_owned(),
            &one,
            "ProtocolError",
            "protocol_version: expected a number",
        ),
        (
            r#"{"protocol_version":-1.5,"tool":"tell"}"#.to_owned(),
            &"-1.5".to_owned(),
            "ProtocolError",
            "protocol_version: only 1 is supported",
        ),
        (digits(32), &"7".repeat(32), "ProtocolError", "protocol_version: only 1 is supported"),
        (digits(33), &one, "ProtocolError", "protocol_version: only 1 is supported"),
        (r#"{"protocol_version":1}"#.to_owned(), &one, "ProtocolError", "tool: required, but missing"),
        (r#"{"protocol_version":1,"tool":null}"#.to_owned(), &one, "ProtocolError", "tool: expected a string"),
        (
            r#"{"protocol_version":1.0,"tool_name":5}"#.to_owned(),
            &"1.0".to_owned(),
            "ProtocolError",
            "tool: expected a string",
        ),
        (request(r#","entry":5"#), &one, "ProtocolError", "entry: expected a string"),
        (request(r#","trace_id":{}"#), &one, "ProtocolError", "trace_id: expected a string"),
        (request(r#","sandbox":1"#), &one, "ProtocolError", "sandbox: expected true or false"),
        (request(r#","sandbox":"true""#), &one, "ProtocolError", "sandbox: expected true or false"),
        (request(r#","capability_context":[]"#), &one, "ProtocolError", "capability_context: expected an object"),
        (request(r#","timeout_ms":0"#), &one, "ProtocolError", "timeout_ms: expected an integer from 1 to 4294967295"),
        (request(r#","payload":[]"#), &one, "ValueError", "payload: expected an object"),
        (request("").replace("tell", "tel l"), &one, "UnknownTool", "Unknown tool: tel l"),
    ] {
        let reply =
            format!(r#"{{"ok":false,"protocol_version":{version},"error":{{"type":"{name}","message":"{message}"}}}}"#);
        assert_eq!(answers_of(&mut Tells, Some(NAMEL3SS), &[&line]), [reply], "{line}");
    }
    // Where the request has something to check, each refusal has the list of checks.
    let checked = request(r#","payload":[],"capability_context":{}"#);
    let reply = r#"{"ok":false,"protocol_version":1,"error":{"type":"ValueError","message":"payload: expected an object"},"capability_checks":[]}"#;
    assert_eq!(answers_of(&mut Tells, None, &[&checked]), [reply]);
}

#[test]
fn a_nested_amplifier_call_has_its_own_members() {
    let nested = |args: &str| format!(r#"{{"op":"invoke","session_id":"outer","args":{args}}}"#);
    let session = |line: &str| told(line).split('|').next().unwrap().to_owned();
    assert_eq!(session(&nested(r#"{"op":"tell"}"#)), "outer");
    assert_eq!(session(&nested(r#"{"op":"tell","session_id":"inner"}"#)), "inner");
    assert_eq!(session(r#"{"op":"tell","session_id":"outer","args":{"session_id":"x"}}"#), "outer");
    let refused =
        |code: &str, message: &str| format!(r#"{{"ok":false,"error":{{"code":"{code}","message":"{message}"}}}}"#);
    for (line, code, message) in [
        (nested("[]"), "bad_request", "args: expected an object with the member op"),
        (nested("null"), "bad_request", "args: expected an object with the member op"),
        (r#"{"op":"invoke"}"#.to_owned(), "bad_request", "args: expected an object with the member op"),
        (nested("{}"), "bad_request", "op: required, but missing"),
        (nested(r#"{"op":5}"#), "bad_request", "op: expected a string"),
        (nested(r#"{"op":"tell","args":[]}"#), "bad_request", "args: expected an object"),
        (nested(r#"{"op":"tell","session_id":5}"#), "bad_request", "session_id: expected a string"),
        (r#"{"op":"tell","session_id":5}"#.to_owned(), "bad_request", "session_id: expected a string"),
        // These two are operations of the module itself, and not of an extension.
        (nested(r#"{"op":"health"}"#), "unsupported_op", "Unknown operation: health"),
        (nested(r#"{"op":"describe"}"#), "unsupported_op", "Unknown operation: describe"),
        (nested(r#"{"op":"invoke","args":{"op":"tell"}}"#), "unsupported_op", "Unknown operation: invoke"),
        // Only a hook has events.
        (EVENT.replace(",\"id\":9", ""), "unsupported_op", "Unknown operation: on_event"),
    ] {
        assert_eq!(answers_of(&mut Tells, None, &[&line]), [refused(code, message)], "{line}");
    }
    // An event may be nested as a call may.
    let event = r#"{"id":"e1","ts":1,"event":"session:start","component":"kernel"}"#;
    let nested = |args: &str| format!(r#"{{"op":"invoke","args":{{"op":"on_event","args":{args}}}}}"#);
    let mut module = Module::default();
    let lines = [nested(event), nested(r#"{"ts":1}"#), nested("null")];
    assert_eq!(
        answers_of(&mut module, None, &lines.each_ref().map(String::as_str)),
        [
            r#"{"ok":true,"result":{}}"#.to_owned(),
            refused("bad_request", "args.id: required, but missing"),
            refused("bad_request", "args: expected an event"),
        ]
    );
    assert_eq!(module.events, [event]);
}

/// Amplifier's sibling texts have 30 seconds where nobody says another limit, namel3ss has what the request says in
/// milliseconds, and so has MCP in a member of rigline, where 0 is none.
#[test]
fn a_call_has_the_time_limit_of_its_protocol() {
    let amplifier = |ms: u64| format!(r#"{{"op":"work","args":{{"ms":{ms}}}}}"#);
    let namel3ss = |limit: &str, ms: u64| {
        format!(r#"{{"protocol_version":1,"tool":"work","payload":{{"ms":{ms}}},"timeout_ms":{limit}}}"#)
    };
    let mcp = |limit: &str, ms: u64| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"work","arguments":{{"ms":{ms}}},"_meta":{{"rigline/timeoutMs":{limit}}}}}}}"#
        )
    };
    for (line, is_late) in [
        (amplifier(29_999), false),
        (amplifier(30_001), true),
        (namel3ss("25", 24), false),
        (namel3ss("25", 26), true),
        (namel3ss("null", 1_000_000), false),
        (mcp("250", 249), false),
        (mcp("250", 251), true),
        (mcp("0", 1_000_000), false),
        // What is no whole number of milliseconds, or too large, is no limit.
        (mcp("\"5\"", 100), false),
        (mcp("5.5", 100), false),
        (mcp("-5", 100), false),
        (mcp("99999999999999999999", 100), false),
        (mcp("18446744073710", 100), false),
    ] {
        let served = PLAIN.serve(&line);
        let [reply] = served.lines()[..] else { panic!("{line}: {:?}", served.lines()) };
        let is_told = ["\"code\":\"timeout\"", "TimeoutError", "\"rigline/kind\":\"timeout\""]
            .iter()
            .any(|name| reply.contains(name));
        assert_eq!((is_told, reply.contains("worked")), (is_late, !is_late), "{line}: {reply}");
    }
}
