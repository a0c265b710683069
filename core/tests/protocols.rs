//! One extension behind the line forms of Amplifier and namel3ss, and which protocol a line tells.
#![cfg(all(feature = "amplifier", feature = "namel3ss"))]

use std::cell::RefCell;
use std::convert::Infallible;

use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory, Step};
use rigline::json::{Decimal, Json};
use rigline::manifest::{Guarantee, Kind};
use rigline::protocol::Protocol;
use rigline::serve::Transport;
use rigline::serve::blocking::serve;
use rigline::{
    Call, Clock, Context, Extension, Failure, FailureKind, Instant, Level, Manifest, Operation, Outcome, Schema,
};

#[derive(Default)]
struct Module {
    events: Vec<String>,
}

impl Extension for Module {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest =
            Manifest::new("module", "1.0.0").kind(Kind::Hook).guarantees(&[Guarantee::NoNetwork]).operations(&[
                Operation::new("measure-rail", Schema::OBJECT),
                Operation::new("fail", Schema::OBJECT),
                Operation::new("session", Schema::OBJECT),
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
            _ => cx.done(format_args!(
                "{} {}",
                call.context.session_id.map(|id| id.to_string()).unwrap_or_default(),
                call.context.namel3ss.trace_id.map(|id| id.to_string()).unwrap_or_default()
            )),
        }
    }

    async fn on_event(&mut self, event: Json<'_>, _: &mut Context<'_>) {
        self.events.push(event.to_string());
    }
}

struct Pipe<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl ErrorType for Pipe<'_> {
    type Error = Infallible;
}

impl Read for Pipe<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        let count = buf.len().min(self.input.len());
        buf[..count].copy_from_slice(&self.input[..count]);
        self.input = &self.input[count..];
        Ok(count)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        self.output.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[derive(Default)]
struct Aside(RefCell<Vec<String>>);

impl Clock for Aside {
    fn now(&self) -> Instant {
        Instant::default()
    }

    fn aside(&self, level: Level, text: &str) {
        self.0.borrow_mut().push(format!("{}: {text}", level.name()));
    }
}

fn answers(protocol: Option<Protocol>, lines: &[&str]) -> Vec<String> {
    let (mut request, mut reply, mut log) = ([0; 2048], [0; 2048], [0; 512]);
    let mut module = Module::default();
    let mut engine = Engine::new(module.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    if let Some(protocol) = protocol {
        engine = engine.with_protocol(protocol);
    }
    let mut pipe = Pipe { input: (lines.join("\n") + "\n").leak().as_bytes(), output: Vec::new() };
    serve(&mut module, &mut engine, &mut pipe, Transport::Process, &mut log, &Aside::default()).unwrap();
    String::from_utf8(pipe.output).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn amplifier_lines() {
    for (line, answer) in [
        (r#"{"op":"health"}"#, r#"{"status":"ok"}"#),
        (r#"{"op":"health","args":{},"id":[1, 2]}"#, r#"{"id":[1, 2],"status":"ok"}"#),
        (
            r#"{"op":"describe"}"#,
            r#"{"name":"module","version":"1.0.0","kind":"hook","capabilities":["measure-rail","fail","session"],"inputs":{"measure-rail":{"type":"object"},"fail":{"type":"object"},"session":{"type":"object"}},"outputs":{}}"#,
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
        (r#"{"op":"on_event","args":{"event":"session:start"}}"#, r#"{"ok":true,"result":{}}"#),
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

#[test]
fn a_pinned_protocol_takes_every_line() {
    let lines = answers(Some(Protocol::Namel3ss), &[r#"{"op":"health"}"#, "[]"]);
    assert!(lines[0].contains("protocol_version: required, but missing"), "{}", lines[0]);
    assert!(lines[1].contains("a request must be an object"), "{}", lines[1]);
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
    let event = "{\"op\":\"on_event\",\"args\":{\"event\":\"session:start\"}}\n";
    assert_eq!(steps(&mut engine, event), ["{\"ok\":true,\"result\":{}}\n", "Run"]);

    engine.space()[..event.len()].copy_from_slice(event.as_bytes());
    engine.commit(event.len());
    assert!(matches!(engine.step(), Step::Write(_)));
    // The acknowledgement did not get through: its event is not run in another connection, in other memory.
    engine.disconnect();
    let answered = steps(&mut engine, "{\n{\"op\":\"health\"}\n");
    assert_eq!(answered.len(), 2, "{answered:?}");
    assert!(answered[0].contains("-32700"), "the last protocol seen was seen elsewhere: {}", answered[0]);
    assert_eq!(answered[1], "{\"status\":\"ok\"}\n");

    engine = engine.with_protocol(Protocol::Amplifier);
    engine.disconnect();
    assert!(steps(&mut engine, "{\n")[0].contains("bad_request"));
}

/// Only Amplifier's `health` is answered while a call runs.
#[test]
fn what_overtakes_a_call_is_told_by_the_protocol() {
    for (protocol, overtakes) in [(None, true), (Some(Protocol::Amplifier), true), (Some(Protocol::Namel3ss), false)] {
        let (mut request, mut reply) = ([0; 2048], [0; 2048]);
        let module = Module::default();
        let mut engine = Engine::new(module.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
        if let Some(protocol) = protocol {
            engine = engine.with_protocol(protocol);
        }
        let lines = "{\"op\":\"session\",\"protocol_version\":1,\"tool\":\"session\"}\n{\"op\":\"health\"}\n";
        engine.space()[..lines.len()].copy_from_slice(lines.as_bytes());
        engine.commit(lines.len());
        let Step::Run(mut run) = engine.step() else { panic!("it is a call") };
        assert_eq!(run.background.answer(&mut [0; 600]).is_some(), overtakes, "{protocol:?}");
    }
}
