//! The second wire, UART0, whose memory is small: its operations and its limits.

use crate::common::{FakeClock, LIMITS, SimRig, execute, serve_lines, serve_within, sim};
use rigline_rig::console::{Encoding, Spelt};
use rigline_rig::dut::Garbage;
use rigline_rig::wires::{UART_LOGS, UART_REPLY, UART_REQUEST};
use serde_json::{Value, json};

const UART: (usize, usize) = (UART_REQUEST - 1, UART_REPLY - 1);
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;

/// The lines that come over UART0 in answer to one: logs, then the reply.
fn over_uart(rig: &mut SimRig, clock: &FakeClock, line: &str) -> Vec<Value> {
    let (lines, _) = serve_within(rig, clock, UART, UART_LOGS / 2, &[line]);
    assert!(lines.iter().all(|line| line.len() < UART_REPLY), "{lines:?}");
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn reply_over_uart(line: &str) -> Value {
    let (mut rig, clock) = sim(1);
    over_uart(&mut rig, &clock, line).pop().unwrap()
}

/// A schema without its descriptions. The rig's arguments have no default that is an object.
fn without_descriptions(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let stays = |(name, value): &(&String, &Value)| *name != "description" || !value.is_string();
            members.iter().filter(stays).map(|(name, value)| (name.clone(), without_descriptions(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(without_descriptions).collect(),
        other => other.clone(),
    }
}

#[test]
fn the_second_wire_lists_each_operation_with_its_arguments() {
    let (mut rig, clock) = sim(1);
    let (lines, _) = serve_lines(&mut rig, &clock, &[INITIALIZE]);
    let whole: Value = serde_json::from_str(&lines[0]).unwrap();
    let whole = &whole["result"]["operations"];

    let manifest = &reply_over_uart(INITIALIZE)["result"];
    assert_eq!(manifest["limits"], json!({"request": UART.0, "reply": UART.1}));
    assert_eq!((&manifest["abridged"], &manifest["safeState"]), (&json!(true), &json!(true)));
    let described = reply_over_uart(r#"{"op":"describe"}"#);
    assert_eq!(described["abridged"], true);
    let operations = whole.as_object().unwrap();
    assert_eq!(manifest["operations"].as_object().unwrap().len(), operations.len());
    assert_eq!(described["capabilities"].as_array().unwrap().len(), operations.len());
    for (name, operation) in operations {
        let params = without_descriptions(&operation["params"]);
        assert_eq!(manifest["operations"][name], json!({"params": params}), "{name}");
        assert_eq!(described["inputs"][name], params, "{name}");
    }

    // MCP has pages, so that nothing of it is left out.
    let (mut cursor, mut tools) = (Value::Null, Vec::new());
    loop {
        let page = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": cursor}});
        let mut page = reply_over_uart(&page.to_string());
        tools.append(page["result"]["tools"].as_array_mut().unwrap());
        cursor = page["result"]["nextCursor"].take();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(tools.len(), operations.len());
    for (tool, operation) in tools.iter().zip(gevals_order(&lines[0])) {
        assert_eq!(tool["description"], whole[&operation]["description"]);
        assert_eq!(tool["inputSchema"], whole[&operation]["params"]);
    }
}

/// The names of the operations in the order of the text.
fn gevals_order(manifest: &str) -> Vec<String> {
    let mut named: Vec<(usize, String)> = serde_json::from_str::<Value>(manifest).unwrap()["result"]["operations"]
        .as_object()
        .unwrap()
        .keys()
        .map(|name| (manifest.find(&format!(r#""{name}":{{"description""#)).unwrap(), name.clone()))
        .collect();
    named.sort_unstable();
    named.into_iter().map(|(_, name)| name).collect()
}

/// The longest arguments and the longest outputs of the buses.
#[test]
fn the_second_wire_carries_the_longest_transfers() {
    let spaced = vec!["5a"; 256].join(" ");
    let (mut rig, clock) = sim(1);
    for (operation, args) in [
        ("power", json!({"rail": "3V3", "on": true})),
        ("i2c-transfer", json!({"bus": "I2C0", "address": 80, "write": spaced, "read": 256})),
        ("spi-transfer", json!({"bus": "SPI0", "write": spaced})),
        ("identify", json!({})),
        ("i2c-scan", json!({"bus": "I2C0"})),
    ] {
        let reply = over_uart(&mut rig, &clock, &execute(operation, &args.to_string(), "10s")).pop().unwrap();
        assert_eq!(reply["result"]["success"], true, "{operation}: {reply}");
    }
    let identity = reply_over_uart(&execute("identify", "{}", "0s"));
    let outputs = &identity["result"]["outputs"];
    assert_eq!((&outputs["request_limit"], &outputs["reply_limit"]), (&json!("1023"), &json!("5119")));
    // The other wire of the same rig has its own.
    let (lines, _) = serve_lines(&mut rig, &clock, &[&execute("identify", "{}", "0s")]);
    assert!(lines[0].contains(&format!(r#""reply_limit":"{}""#, LIMITS.1)), "{lines:?}");
}

#[test]
fn a_request_that_the_second_wire_cannot_carry_gets_an_error_that_names_the_limit() {
    let (mut rig, clock) = sim(1);
    let long = execute("uart-write", &json!({"data": "x".repeat(1000)}).to_string(), "0s");
    let (lines, _) = serve_within(&mut rig, &clock, UART, UART_LOGS / 2, &[&long, INITIALIZE]);
    let told = format!("{} bytes, the limit is 1023", long.len());
    assert!(lines[0].contains("-32700") && lines[0].contains(&told), "{}", lines[0]);
    assert!(lines[1].contains(r#""name":"rig""#), "{}", lines[1]);
}

/// All bytes of the console come over the second wire, in as many reads as it takes. Logs of them fit, too.
#[test]
fn the_second_wire_loses_nothing_of_the_console() {
    let (mut rig, clock) = sim(1);
    let mut ask = |operation: &str, args: Value| {
        let mut lines = over_uart(&mut rig, &clock, &execute(operation, &args.to_string(), "0s"));
        let reply = lines.pop().unwrap();
        assert_eq!(reply["result"]["success"], true, "{operation}: {reply}");
        (reply["result"]["outputs"].clone(), lines)
    };
    let number = |outputs: &Value, name: &str| outputs[name].as_str().unwrap().parse::<u64>().unwrap();
    ask("power", json!({"rail": "3V3", "on": true}));
    ask("uart-expect", json!({"text": "> "}));
    let (written, _) = ask("uart-write", json!({"data": "garbage 4000\r"}));
    let start = number(&written, "mark");
    let (end, logs) = ask("uart-expect", json!({"text": "> "}));
    let stop = number(&end, "mark");
    let (mut at, mut came, mut reads) = (start, Vec::new(), 0);
    while at < stop {
        let (outputs, _) = ask("uart-read", json!({"since": at, "encoding": "hex"}));
        assert_eq!(outputs["missed"], "0");
        came.extend(bytes(outputs["data"].as_str().unwrap(), Encoding::Hex));
        (at, reads) = (number(&outputs, "mark"), reads + 1);
    }
    assert!(reads > 1);
    let garbage: Vec<u8> = Garbage::START.take(4000).collect();
    assert_eq!(came["garbage 4000\r\n".len()..][..4000], garbage);

    // Each log has the bytes of its place, and between two of them is the end of a line.
    let mut told = start;
    for log in &logs {
        let data = &log["params"]["data"];
        let (from, shown) = (data["from"].as_u64().unwrap(), bytes(data["uart"].as_str().unwrap(), Encoding::Text));
        let place = |at: u64| usize::try_from(at - start).unwrap();
        assert!(came[place(told)..place(from)].iter().all(|byte| b"\r\n".contains(byte)), "{log}");
        assert_eq!(came[place(from)..][..shown.len()], shown, "{log}");
        told = from + shown.len() as u64;
    }
    assert!(logs.len() > 40, "{} logs", logs.len());
}

fn bytes(text: &str, encoding: Encoding) -> Vec<u8> {
    Spelt::new(text, encoding).map(|spelt| spelt.unwrap().byte).collect()
}
