//! The host against the vectors that the clients in other languages are held to, too: `tests/vectors`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rigline::{GoDuration, Phase};
use rigline_host::number;
use rigline_host::{CallContext, CallVerdict, EventKind, Host, HostError, Options};
use serde_json::{Map, Value, json};

fn vectors(name: &str) -> Vec<Value> {
    let path = format!("{}/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    let cases: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert!(cases.len() > 4);
    cases
}

/// The bytes of a line of `calls.json`.
fn bytes(line: &Value, id: &str) -> Vec<u8> {
    let text = |text: &Value| text.as_str().unwrap_or_default().replace("$ID", id).into_bytes();
    if line.is_string() {
        return [text(line), b"\n".to_vec()].concat();
    }
    let hex = line["hex"].as_str().unwrap_or_default();
    let mut bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    bytes.extend(text(&line["text"]));
    if line["newline"] != false {
        bytes.push(b'\n');
    }
    bytes
}

/// Answers `initialize`, and one call with these lines; returns the call's parameters and what came after it.
fn peer(stream: TcpStream, lines: &[Value]) -> (Value, Vec<Value>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    let mut read = || -> Value {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let opening = read();
    let manifest = json!({ "name": "peer", "version": "1.0.0", "protocolVersion": "0.0.1", "operations": { "op": { "params": {} } } });
    writeln!(writer, "{}", json!({ "jsonrpc": "2.0", "id": opening["id"], "result": manifest })).unwrap();
    let call = read();
    let id = call["id"].to_string();
    for line in lines {
        writer.write_all(&bytes(line, &id)).unwrap();
    }
    // The client may have closed the connection already, which is an error here.
    let _ = writer.shutdown(std::net::Shutdown::Write);
    let mut rest = String::new();
    let _ = reader.read_to_string(&mut rest);
    let sent = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (call["params"].clone(), sent)
}

/// Calls a peer that answers with these lines; returns what the client gave, and what it sent.
async fn call(operation: &str, args: &Value, context: CallContext, lines: &[Value]) -> (Value, Value) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
    let lines = lines.to_vec();
    let peer = thread::spawn(move || peer(listener.accept().unwrap().0, &lines));
    let logs = Arc::new(Mutex::new(Vec::new()));
    let mut options = Options::default();
    let heard = Arc::clone(&logs);
    options.listener = Some(Arc::new(move |event| {
        if let EventKind::Log(log) = &event.kind {
            let log = json!({ "level": log.level.name(), "message": log.message, "data": log.data });
            heard.lock().unwrap().push(log);
        }
    }));
    let host = Host::connect(&target, options).await.unwrap();
    let mut gives = match host.call(operation, args, context).await {
        Ok(result) => {
            let outputs: Map<String, Value> =
                result.outputs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
            match &result.outcome {
                CallVerdict::Success => {
                    json!({ "kind": "success", "message": result.message.as_deref().unwrap_or_default(), "outputs": outputs })
                }
                CallVerdict::Failed(error) => json!({ "kind": "failed", "error": error, "outputs": outputs }),
                CallVerdict::Refused(error) => json!({ "kind": "refused", "error": error.message, "code": error.code }),
                other => {
                    assert!(matches!(other, CallVerdict::Invalid(_)), "{other:?}");
                    json!({ "kind": "invalid" })
                }
            }
        }
        Err(HostError::BadReply { .. }) => json!({ "kind": "invalid" }),
        Err(HostError::Gone { .. }) => json!({ "kind": "lost" }),
        Err(error) => panic!("{error:?}"),
    };
    drop(host);
    // The connection is let go of by tasks, which need this thread.
    let (params, sent) = tokio::task::spawn_blocking(|| peer.join().unwrap()).await.unwrap();
    let logs = std::mem::take(&mut *logs.lock().unwrap());
    gives["logs"] = logs.into();
    gives["sends"] = sent.into();
    (gives, params)
}

#[tokio::test]
async fn a_call_gives_what_the_vectors_say() {
    for case in vectors("calls.json") {
        let lines = case["lines"].as_array().unwrap();
        let (gives, _) = call("op", &json!({}), CallContext::default(), lines).await;
        assert_eq!(gives, case["gives"], "{}", case["name"]);
        // The order of outputs counts, which Value's equality does not see.
        assert_eq!(gives["outputs"].to_string(), case["gives"]["outputs"].to_string(), "{}", case["name"]);
    }
}

#[tokio::test]
async fn a_request_is_what_the_vectors_say() {
    for case in vectors("requests.json") {
        let wanted = &case["call"];
        let context = CallContext {
            workdir: wanted["workdir"].as_str().map(str::to_owned),
            phase: match wanted["phase"].as_str() {
                Some("setup") => Phase::Setup,
                Some("verify") => Phase::Verify,
                Some("cleanup") => Phase::Cleanup,
                _ => Phase::Unknown,
            },
            env: wanted["env"].as_object().map_or_else(Default::default, |env| {
                env.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect()
            }),
            timeout: wanted["timeout"].as_f64().map(Duration::from_secs_f64),
            agent: None,
        };
        let reply = json!("{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"success\":true}}");
        let (gives, params) = call(wanted["operation"].as_str().unwrap(), &wanted["args"], context, &[reply]).await;
        assert_eq!(gives["kind"], "success");
        assert_eq!(params, case["params"], "{}", case["name"]);
    }
}

#[test]
fn a_duration_is_written_as_the_vectors_say() {
    for case in vectors("durations.json") {
        let seconds = Duration::from_secs_f64(case[0].as_f64().unwrap());
        assert_eq!(GoDuration::try_from(seconds).unwrap().to_string(), case[1].as_str().unwrap());
    }
}

#[test]
fn a_number_is_read_as_the_vectors_say() {
    let cases = vectors("numbers.json");
    assert!(cases.len() > 50);
    for case in cases {
        let of = |name: &str| case[name].as_str().map(|text| (text, number::decimal(text)));
        let found = of("text").unwrap().1;
        match of("number") {
            None => assert_eq!(found, None, "{case}"),
            Some((_, wanted)) => {
                assert!(wanted.is_some() && found == wanted, "{case}: {found:?}");
                assert!(of("less").unwrap().1 < found && found < of("more").unwrap().1, "{case}");
            }
        }
    }
}
