//! Whole sessions, line by line: the gevals text's example adapted to the rig, and what the real
//! host sends.

use crate::common::{LIMITS, serve_lines, sim};
use rigline::serve::End;
use serde_json::{Value, json};

#[test]
fn the_texts_example_session_adapted_to_the_rig() {
    let (mut rig, clock) = sim(42);
    let (lines, end) = serve_lines(
        &mut rig,
        &clock,
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":true},"context":{"workdir":"/tasks/boot","phase":"setup"}}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"measure","args":{"channel":"3V3"},"context":{"workdir":"/tasks/boot","phase":"verify","agent":{"prompt":"Power the board","output":"Done"}}}}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"execute","params":{"operation":"wait-for","args":{"channel":"5V0","min":4.75,"max":5.25,"within_ms":200},"context":{"workdir":"/tasks/boot","phase":"verify","timeout":"5m"}}}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"execute","params":{"operation":"wait-pin","args":{"pin":"LED","high":true},"context":{"workdir":"/tasks/boot","phase":"verify"}}}"#,
            r#"{"jsonrpc":"2.0","id":6,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":false},"context":{"workdir":"/tasks/boot","phase":"cleanup"}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"shutdown","params":{}}"#,
        ],
    );
    let [manifest, lines @ ..] = &lines[..] else { panic!("no lines") };
    assert!(
        manifest.starts_with(
            r#"{"jsonrpc":"2.0","id":1,"result":{"name":"rig","version":"0.1.0","protocolVersion":"0.0.1","description":"#
        ),
        "{manifest}"
    );
    assert_eq!(
        lines,
        [
            r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"switching 3V3 on"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"result":{"success":true,"message":"3V3 is on"}}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{"success":true,"outputs":{"volts":"3.301","min":"3.297","max":"3.303","samples":"16"},"message":"3V3 is at 3.301 V"}}"#,
            r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"waiting for 5V0 to be from 4.750 to 5.250 V: it is at 0.000 V"}}"#,
            r#"{"jsonrpc":"2.0","method":"log","params":{"level":"debug","message":"5V0 is at 0.002 V after 100 ms","data":{"value":0.002,"waited_ms":100}}}"#,
            r#"{"jsonrpc":"2.0","method":"log","params":{"level":"debug","message":"5V0 is at 0.002 V after 200 ms","data":{"value":0.002,"waited_ms":200}}}"#,
            r#"{"jsonrpc":"2.0","id":4,"result":{"success":false,"outputs":{"volts":"0.002","waited_ms":"200"},"error":"5V0 is at 0.002 V after 200 ms, not from 4.750 to 5.250 V"}}"#,
            r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"waiting for LED to be high: it is low"}}"#,
            r#"{"jsonrpc":"2.0","id":5,"result":{"success":true,"outputs":{"high":"true","waited_ms":"60"},"message":"LED is high after 60 ms"}}"#,
            r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"switching 3V3 off"}}"#,
            r#"{"jsonrpc":"2.0","id":6,"result":{"success":true,"message":"3V3 is off"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
        ]
    );
    assert_eq!(end, End::Shutdown);
}

#[test]
fn the_lines_of_the_real_host() {
    let (mut rig, clock) = sim(0);
    let (lines, end) = serve_lines(
        &mut rig,
        &clock,
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"namespace":"a\u003cb"}}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"self-test","args":null,"context":{"workdir":"/tmp/task","phase":""}}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"A\u003cb\u003e\u0026é\u2028"},"context":{"workdir":"/tmp/task","phase":"","agent":{"prompt":"p","output":"o"}}}}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"execute","params":{"operation":"power","args":{"rail":"\u0033V3","on":true},"context":{"workdir":"/tmp/task","phase":"","agent":{"prompt":"p","output":"o"}}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"shutdown","params":{}}"#,
        ],
    );
    assert_eq!(end, End::Shutdown);
    let replies: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["id"] != Value::Null)
        .collect();
    assert!(lines.iter().all(|line| line.len() <= 65_535));
    assert_eq!(replies.iter().map(|reply| reply["id"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 7]);
    assert_eq!(replies[1]["result"]["message"], "all 6 checks passed");
    assert_eq!(
        replies[2]["error"]["message"],
        "args.pin: unknown pin `A<b>&é\u{2028}`: expected one of LED, LED2, GP15, GP14"
    );
    assert_eq!(replies[3]["result"]["message"], "3V3 is on");
    // After `shutdown` the hardware stays as it is.
    assert!(rig.board().is_on(0));
}

#[test]
fn a_session_lost_without_shutdown_turns_everything_off_and_one_shot_use_does_not() {
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    let on = r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"power","args":{"rail":"5V0","on":true},"context":{}}}"#;
    for (lines, stays_on) in [(&[initialize, on][..], false), (&[on][..], true)] {
        let (mut rig, clock) = sim(0);
        let (_, end) = serve_lines(&mut rig, &clock, lines);
        assert_eq!(end, End::Input);
        assert_eq!(rig.board().is_on(1), stays_on, "{lines:?}");
    }
}

#[test]
fn the_config_sets_how_long_a_rail_settles() {
    let on = r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"power","args":{"rail":"5V0","on":true},"context":{}}}"#;
    for (config, settled) in [
        ("{}", Ok(50)),
        (r#"{"settle_ms":0}"#, Ok(0)),
        (r#"{"settle_ms":5000,"other":[]}"#, Ok(5000)),
        (r#"{"settle_ms":5001}"#, Err("config.settle_ms: 5001 is above the maximum 5000")),
        (r#"{"settle_ms":"50"}"#, Err("config.settle_ms: expected an integer from 0 to 5000; got the text \"50\"")),
    ] {
        let (mut rig, clock) = sim(0);
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"0.0.1","config":{config}}}}}"#
        );
        let (lines, _) = serve_lines(&mut rig, &clock, &[&initialize, on]);
        let reply: Value = serde_json::from_str(&lines[0]).unwrap();
        match settled {
            Ok(ms) => assert_eq!(clock.now_ms(), ms, "{config}"),
            Err(message) => {
                assert_eq!(reply["error"]["code"], -32602);
                assert_eq!(reply["error"]["message"], message);
            }
        }
    }
}

/// A board's reply buffer must hold it.
#[test]
fn the_manifest_is_small_and_its_schemas_are_sound() {
    let (mut rig, clock) = sim(0);
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    let (lines, _) = serve_lines(&mut rig, &clock, &[initialize]);
    assert!(lines[0].len() < 12_000, "{} bytes", lines[0].len());
    let manifest: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(manifest["result"]["limits"]["request"], LIMITS.0);
    assert_eq!(manifest["result"]["safeState"], true, "a page offers to switch everything off");
    for (name, operation) in manifest["result"]["operations"].as_object().unwrap() {
        let params = &operation["params"];
        assert_eq!(params["type"], "object", "{name}");
        assert!(!operation["description"].as_str().unwrap().is_empty());
        let Some(properties) = params["properties"].as_object() else { continue };
        let required: Vec<_> =
            params["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()).collect();
        for (argument, schema) in properties {
            assert!(schema["description"].is_string(), "{name} {argument}");
            // An argument is required, or its default is told; null means that its description tells it.
            let may_be_null = schema.to_string().contains(r#""null""#);
            let has_default = schema.get("default").is_some() || may_be_null;
            assert_eq!(required.contains(&argument.as_str()), !has_default, "{name} {argument}: {schema}");
        }
        assert!(required.iter().all(|argument| properties.contains_key(*argument)));
    }
}

#[test]
fn the_tools_name_what_there_is_and_what_comes_out() {
    let (mut rig, clock) = sim(0);
    let mut tools = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"cursor":{cursor}}}}}"#);
        let (lines, _) = serve_lines(&mut rig, &clock, &[&list]);
        let page: Value = serde_json::from_str(&lines[0]).unwrap();
        tools.extend(page["result"]["tools"].as_array().unwrap().clone());
        cursor = page["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}"));
    for (name, argument, choices) in [
        ("power", "rail", json!(["3V3", "5V0"])),
        ("measure", "channel", json!(["3V3", "5V0", "AUX", "TEMP"])),
        ("gpio_read", "pin", json!(["LED", "LED2", "GP15", "GP14"])),
        ("gpio_write", "pin", json!(["GP14"])),
        ("press", "button", json!(["RESET", "USER", "BOOT"])),
        ("wait_for", "channel", json!(["3V3", "5V0", "AUX", "TEMP"])),
        ("wait_pin", "pin", json!(["LED", "LED2", "GP15", "GP14"])),
    ] {
        let schema = &tool(name)["inputSchema"]["properties"][argument];
        assert_eq!(schema["enum"], choices, "{name}");
        let described =
            choices.as_array().unwrap().iter().all(|choice| {
                schema["description"].as_str().unwrap().contains(&format!("{} (", choice.as_str().unwrap()))
            });
        assert!(described, "{schema}");
    }
    // What comes out fits.
    for (name, args) in [
        ("identify", "{}"),
        ("state", "{}"),
        ("measure", r#"{"channel":"TEMP"}"#),
        ("gpio_read", r#"{"pin":"LED"}"#),
        ("wait_for", r#"{"channel":"AUX","min":-1,"max":1}"#),
        ("wait_pin", r#"{"pin":"LED","high":false}"#),
        ("self_test", "{}"),
    ] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{args}}}}}"#
        );
        let (lines, _) = serve_lines(&mut rig, &clock, &[&call]);
        let reply: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        let (schema, outputs) = (&tool(name)["outputSchema"], &reply["result"]["structuredContent"]);
        let known = schema["properties"].as_object().unwrap();
        assert!(outputs.as_object().unwrap().keys().all(|output| known.contains_key(output)), "{name}: {outputs}");
        for required in schema["required"].as_array().into_iter().flatten() {
            assert!(outputs.get(required.as_str().unwrap()).is_some(), "{name}: {required} of {outputs}");
        }
        for (output, value) in outputs.as_object().unwrap() {
            let is = match known[output]["type"].as_str().or_else(|| known[output]["type"][0].as_str()) {
                Some("number") => value.is_number(),
                Some("integer") => value.is_u64(),
                Some("boolean") => value.is_boolean(),
                Some("array") => value.is_array(),
                _ => value.is_string(),
            };
            assert!(is, "{name}: {output} of {outputs} against {schema}");
        }
    }
    assert!(tools.iter().all(|tool| tool["inputSchema"]["properties"].is_object()));
}

#[test]
fn the_state_is_what_is_on_and_can_be_switched_off() {
    let (mut rig, clock) = sim(0);
    let call = |operation: &str, args: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{operation}","arguments":{args}}}}}"#
        )
    };
    let on = call("power", r#"{"rail":"5V0","on":true}"#);
    let high = call("gpio_write", r#"{"pin":"GP14","high":true}"#);
    let (state, off) = (call("state", "{}"), call("all_off", "{}"));
    let (lines, _) = serve_lines(&mut rig, &clock, &[&state, &on, &high, &state, &off, &state]);
    let states: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["result"]["structuredContent"].clone())
        .filter(|outputs| !outputs.is_null())
        .collect();
    let nothing = json!({"rails_on": [], "pins_high": [], "pwm_on": []});
    let on = json!({"rails_on": ["5V0"], "pins_high": ["GP14", "GP15"], "pwm_on": []});
    assert_eq!(states, [nothing.clone(), on, nothing]);
}
