//! `rigline rig`: the simulated rig as a host meets it.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rigline::json::RawJson;
use rigline_host::{CallContext, CallVerdict, EventKind, Host, Options};
use serde_json::json;

/// The example session of the gevals text, adapted to the rig.
const SESSION: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}
{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":true},"context":{"workdir":"/path/to/task","phase":"setup","env":{"HOME":"/root"},"timeout":"5m"}}}
{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"self-test","args":null,"context":{"workdir":"/path/to/task","phase":""}}}
{"jsonrpc":"2.0","id":4,"method":"shutdown","params":{}}
"#;

#[test]
fn a_session_in_order() {
    let output = rig(&["--seed", "3"], SESSION);
    let text = String::from_utf8(output.stdout).unwrap();
    let ids: Vec<_> = text.lines().filter(|line| !line.contains(r#""method":"log""#)).map(|line| &line[..23]).collect();
    assert_eq!(ids, [1, 2, 3, 4].map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id}"#)), "{text}");
    assert!(text.contains(r#""protocolVersion":"0.0.1""#) && text.contains("all 6 checks passed"), "{text}");
    assert!(text.ends_with("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n"), "{text}");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn one_shot() {
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"self-test","args":{},"context":{"workdir":"/tmp","phase":"verify"}}}"#;
    let output = rig(&[], request);
    let text = String::from_utf8(output.stdout).unwrap();
    let (logs, reply) = text.trim_end().rsplit_once('\n').unwrap();
    assert!(logs.lines().all(|line| line.starts_with(r#"{"jsonrpc":"2.0","method":"log","#)), "{text}");
    assert!(reply.starts_with(r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"#), "{text}");
    assert!(output.status.success());
}

#[test]
fn a_seed_is_a_board() {
    let identify = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"measure","args":{"channel":"3V3","samples":3},"context":{}}}"#;
    let measure = |seed| rig(&["--seed", seed], identify).stdout;
    assert_eq!(measure("7"), measure("7"));
}

#[tokio::test]
async fn a_host_starts_the_rig_as_sim_and_gets_no_line_that_it_skips() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&seen);
    let mut options = Options::default();
    options.sim_program = Some(env!("CARGO_BIN_EXE_rigline").into());
    options.listener = Some(Arc::new(move |event| events.lock().unwrap().push(event.kind.clone())));
    let host = Host::connect(&"sim".parse().unwrap(), options).await.unwrap();
    let manifest = host.describe();
    assert!(manifest.operation("measure").is_some() && manifest.faults.is_empty(), "{manifest:?}");
    assert!(manifest.request_limit.is_some());
    let result = host.call("measure", &json!({ "channel": "3V3" }), CallContext::default()).await.unwrap();
    assert!(result.is_success() && !result.outputs.is_empty() && result.faults.is_empty(), "{result:?}");
    let result = host.call("no-such", &json!({}), CallContext::default()).await.unwrap();
    let CallVerdict::Refused(error) = result.outcome else { panic!("{result:?}") };
    assert_eq!(error.code, Some(-32601));
    let echoed = host.request("x.y", RawJson::NULL, Duration::from_secs(5)).await.unwrap();
    assert_eq!(echoed.unwrap_err().code, Some(-32601));
    assert!(host.shutdown().await.unwrap().is_clean());
    let seen = seen.lock().unwrap();
    assert!(!seen.iter().any(|kind| matches!(kind, EventKind::Skipped { .. } | EventKind::Anomaly(_))), "{seen:?}");
}

/// The result of a call of the simulated rig: exit code, standard output and standard error.
fn call(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rigline")).args(["call", "sim"]).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn values_are_measured_by_the_command() {
    let (code, out, error) = call(&["measure-over-time", "channel=TEMP", "samples=50", "every_us=0", "--json"]);
    let reply: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    assert_eq!(code, Some(0), "{out}{error}");
    for name in ["celsius", "min", "max", "rms"] {
        let value = reply["outputs"][name].to_string().trim_matches('"').parse::<f64>().unwrap();
        assert!((25.0..29.0).contains(&value), "{name}: {reply}");
    }
    let (code, out, error) = call(&["pwm", "pin=GP8", "duty=33.333", "hertz=300000"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("GP8 has 299760.192 Hz at 33.333 %"), "{out}");
    let (code, out, error) = call(&["count-pulses", "pin=CLK", "ms=20"]);
    assert!(code == Some(0) && out.contains("CLK has 0 pulses in 20 ms: 0.000 Hz"), "{out}{error}");
    // An address as it is written everywhere.
    let (code, out, error) = call(&["i2c-transfer", "bus=I2C0", "address=0x51", "read=1"]);
    assert_eq!(code, Some(1), "a device that is missing is a failure of the board under test: {out}{error}");
    assert!(format!("{out}{error}").contains("I2C0, address 0x51: no device acknowledges the address"), "{out}{error}");
    for (words, text) in [
        (&["i2c-transfer", "bus=I2C0", "address=0x78", "read=1"][..], "119"),
        (&["i2c-transfer", "bus=I2C0", "address=0x50", "read=257"], "256"),
        (&["spi-transfer", "bus=SPI0", "write=9f", "mode=4"], "3"),
        (&["pwm", "pin=GP8", "duty=101", "hertz=1000"], "100"),
        (&["count-pulses", "pin=CLK", "ms=60001"], "60000"),
    ] {
        let (code, out, error) = call(words);
        assert_eq!(code, Some(2), "{words:?}: {out}{error}");
        assert!(error.contains(text), "{words:?}: {error}");
    }
}

fn rig(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rigline"))
        .arg("rig")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}
