//! The rig's manifest, held against JSON Schema's meta-schema and against what a real gevals host does with one.

use rigline::engine::{Engine, Memory, Step};
use rigline::{Clock, Extension, Instant};
use rigline_rig::rig::Rig;
use rigline_rig::sim::SimBoard;
use serde_json::Value;

struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

/// The reply to `initialize`, byte for byte.
fn reply() -> Vec<u8> {
    let rig = Rig::new(SimBoard::new(NoTime, 0));
    let (mut request, mut reply) = ([0; 8192], [0; 16_384]);
    let mut engine = Engine::new(rig.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"0.0.1\"}}\n";
    engine.space()[..line.len()].copy_from_slice(line);
    engine.commit(line.len());
    let Step::Write(line) = engine.step() else { panic!("no reply") };
    line.to_vec()
}

#[test]
fn a_gevals_host_can_read_it() {
    let line = reply();
    assert!(line.len() <= 65_536, "the host's reader dies of a longer line");
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert!(line.ends_with(b"\n"));
    let reply: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!((&reply["jsonrpc"], &reply["id"]), (&Value::from("2.0"), &Value::from(1)));
    let manifest = &reply["result"];
    assert_eq!(manifest["protocolVersion"], "0.0.1");
    for member in ["name", "version", "description"] {
        assert!(manifest[member].as_str().is_some_and(|text| !text.is_empty()), "{member}");
    }
    let operations = manifest["operations"].as_object().unwrap();
    assert!(operations.len() >= 9);
    for (name, operation) in operations {
        assert!(operation["description"].is_string(), "{name}: a null operation crashes the host");
        let params = &operation["params"];
        assert!(params.is_object(), "{name}: with null, the host rejects every call");
        jsonschema::draft202012::meta::validate(params).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn its_arguments_are_checked_by_the_host_itself() {
    let reply: Value = serde_json::from_slice(&reply()).unwrap();
    for (operation, args, fine) in [
        ("identify", "{}", true),
        ("power", r#"{"rail":"3V3","on":true}"#, true),
        ("power", r#"{"rail":"3V3"}"#, false),
        ("measure", r#"{"channel":"3V3"}"#, true),
        ("measure", r#"{"channel":"3V3","samples":1000}"#, true),
        ("measure", r#"{"channel":"3V3","samples":1001}"#, false),
        ("measure", r#"{"channel":"3V3","samples":0}"#, false),
        ("wait-for", r#"{"channel":"3V3","min":3.135,"max":3.465}"#, true),
        // The rig refuses it. Validators that compute in floats could not: its digits are in the description, and not in `multipleOf`.
        ("wait-for", r#"{"channel":"3V3","min":3.1355,"max":3.465}"#, true),
        ("wait-for", r#"{"channel":"3V3","min":3.135,"max":3.465,"within_ms":60001}"#, false),
        ("press", r#"{"button":"RESET","ms":1}"#, true),
    ] {
        let schema = &reply["result"]["operations"][operation]["params"];
        let args: Value = serde_json::from_str(args).unwrap();
        assert_eq!(jsonschema::draft202012::is_valid(schema, &args), fine, "{operation} {args}");
    }
}
