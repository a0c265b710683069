//! How each kind of failure is written in each protocol, and read back:
//! `tests/vectors/failures.json`.

use crate::common::{FakeClock, Pipe};
use rigline::engine::{Engine, Memory};
use rigline::protocol::{
    AMPLIFIER, CODE_NAME, GEVALS, KIND_NAME, MCP, NAMEL3SS, Protocol, amplifier, gevals, namel3ss,
};
use rigline::serve::blocking::Server;
use rigline::{Call, Context, Extension, Failure, FailureKind, Manifest, Operation, Outcome, Schema};
use serde_json::{Value, json};

const CODE: &str = "E_OWN";

/// Fails as it is told.
struct Failing {
    kind: FailureKind,
    has_code: bool,
}

impl Extension for Failing {
    fn manifest(&self) -> &'static Manifest {
        const MANIFEST: Manifest =
            Manifest::new("failing", "1.0.0").operations(&[Operation::new("fail", Schema::OBJECT)]);
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let failure = cx.failure(self.kind, "why");
        Err(if self.has_code { failure.with_code(CODE) } else { failure })
    }
}

fn rows() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/failures.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn kind_of(row: &Value) -> FailureKind {
    FailureKind::ALL.into_iter().find(|kind| row["kind"] == kind.name()).unwrap()
}

/// The last line that is written after these.
fn answer(kind: FailureKind, has_code: bool, protocol: &'static Protocol, lines: &[Value]) -> Value {
    let mut extension = Failing { kind, has_code };
    let (mut request, mut reply) = ([0; 2048], [0; 4096]);
    let mut engine = Engine::new(extension.manifest(), Memory { request: &mut request, reply: &mut reply })
        .unwrap()
        .with_protocol(protocol);
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut pipe = Pipe::new(lines.as_bytes());
    Server::new(&mut extension, &mut engine, &FakeClock::default()).serve(&mut pipe).unwrap();
    let written = String::from_utf8(pipe.output).unwrap();
    serde_json::from_str(written.lines().last().unwrap()).unwrap()
}

fn in_gevals(kind: FailureKind, has_code: bool) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "execute", "params": {"operation": "fail", "args": {}, "context": {"workdir": "/", "phase": "setup"}}});
    answer(kind, has_code, GEVALS, &[call])
}

#[test]
fn the_table_has_every_kind_once() {
    let names: Vec<&str> = FailureKind::ALL.into_iter().map(FailureKind::name).collect();
    let rows = rows();
    assert_eq!(rows.iter().map(|row| row["kind"].as_str().unwrap()).collect::<Vec<_>>(), names);
}

#[test]
fn each_kind_has_its_code_and_what_the_code_does_not_say_stands_beside_it() {
    for row in rows() {
        let kind = kind_of(&row);
        for has_code in [false, true] {
            let own = if has_code { json!(CODE) } else { Value::Null };
            let is_beside = |protocol: &str| row["beside"].as_array().unwrap().contains(&json!(protocol));
            let beside = |protocol: &str, is_said: bool| {
                if is_beside(protocol) || !is_said { json!(kind.name()) } else { Value::Null }
            };

            let reply = in_gevals(kind, has_code);
            let error = &reply["error"];
            let data = match row["gevals"].as_i64() {
                Some(code) => {
                    assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!("why")), "{reply}");
                    &error["data"]
                }
                None => {
                    assert_eq!(reply["result"]["success"], false, "{reply}");
                    assert_eq!(reply["result"]["error"], "why", "{reply}");
                    &reply["result"]["data"]
                }
            };
            let is_told = !has_code || row["reads"]["gevals"].is_null();
            assert_eq!((&data[KIND_NAME], &data[CODE_NAME]), (&beside("gevals", is_told), &own), "{reply}");
            assert_eq!(data.is_null(), data[KIND_NAME].is_null() && data[CODE_NAME].is_null(), "{reply}");

            // An own code takes the place of the protocol's.
            let is_said = !has_code || kind == FailureKind::Failed;
            let reply = answer(kind, has_code, AMPLIFIER, &[json!({"op": "fail", "args": {}})]);
            let error = &reply["error"];
            assert_eq!(error["code"], if has_code { json!(CODE) } else { row["amplifier"].clone() }, "{reply}");
            assert_eq!(
                (&error["message"], &error[KIND_NAME]),
                (&json!("why"), &beside("amplifier", is_said)),
                "{reply}"
            );

            let reply =
                answer(kind, has_code, NAMEL3SS, &[json!({"protocol_version": 1, "tool": "fail", "payload": {}})]);
            let error = &reply["error"];
            assert_eq!(error["type"], if has_code { json!(CODE) } else { row["namel3ss"].clone() }, "{reply}");
            assert_eq!(
                (&error["message"], &error[KIND_NAME]),
                (&json!("why"), &beside("namel3ss", is_said)),
                "{reply}"
            );

            let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
            let call =
                json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fail", "arguments": {}}});
            let reply = answer(kind, has_code, MCP, &[begin, call]);
            let result = &reply["result"];
            assert_eq!(result["isError"], true, "{reply}");
            assert_eq!(
                (&result["_meta"][KIND_NAME], &result["_meta"][CODE_NAME]),
                (&json!(kind.name()), &own),
                "{reply}"
            );
        }
    }
}

/// Any error of a handler, by `?`.
#[test]
fn the_text_of_another_error_reaches_the_caller() {
    struct Parses;
    impl Extension for Parses {
        fn manifest(&self) -> &'static Manifest {
            const MANIFEST: Manifest =
                Manifest::new("parses", "1.0.0").operations(&[Operation::new("fail", Schema::OBJECT)]);
            &MANIFEST
        }

        async fn call(&mut self, _: Call<'_>, _: &mut Context<'_>) -> Result<Outcome, Failure> {
            "300".parse::<u8>()?;
            Ok(Outcome::DONE)
        }
    }
    let text = "number too large to fit in target type";
    let failure = Failure::from("300".parse::<u8>().unwrap_err());
    assert_eq!((failure.kind(), failure.to_string().as_str()), (FailureKind::Failed, text));
    for (line, place) in [
        (r#"{"op":"fail","args":{}}"#, "/error/message"),
        (r#"{"protocol_version":1,"tool":"fail","payload":{}}"#, "/error/message"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"fail","args":{},"context":{}}}"#,
            "/result/error",
        ),
    ] {
        let (mut request, mut reply) = ([0; 1024], [0; 1024]);
        let memory = Memory { request: &mut request, reply: &mut reply };
        let mut engine = Engine::new(Parses.manifest(), memory).unwrap();
        let mut pipe = Pipe::new(format!("{line}\n").as_bytes());
        Server::new(&mut Parses, &mut engine, &FakeClock::default()).serve(&mut pipe).unwrap();
        let reply: Value = serde_json::from_slice(&pipe.output).unwrap();
        assert_eq!(reply.pointer(place), Some(&json!(text)), "{reply}");
    }
}

#[test]
fn codes_are_read_back_as_the_table_says() {
    for row in rows() {
        let kind = kind_of(&row);
        let alone = |protocol: &str| match row["reads"][protocol].as_str() {
            Some(name) => FailureKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap(),
            None => kind,
        };
        if let Some(code) = row["gevals"].as_i64() {
            assert_eq!(gevals::failure_kind(i32::try_from(code).unwrap()), Some(alone("gevals")), "{row}");
        }
        assert_eq!(amplifier::failure_kind(row["amplifier"].as_str().unwrap()), Some(alone("amplifier")), "{row}");
        assert_eq!(namel3ss::failure_kind(row["namel3ss"].as_str().unwrap()), Some(alone("namel3ss")), "{row}");
    }
    // Codes that other writers of the protocol use.
    assert_eq!(namel3ss::failure_kind("ProtocolError"), Some(FailureKind::BadArguments));
    assert_eq!(namel3ss::failure_kind("ToolError"), Some(FailureKind::Failed));
    assert_eq!(gevals::failure_kind(-32700), None);
    assert_eq!(amplifier::failure_kind(CODE), None);
    assert_eq!(namel3ss::failure_kind(CODE), None);
}
