//! Hosts on the binary link (`?link=cobs`): a device that loses, damages and forgets frames.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rigline::link::{Collected, Collector, Frame, FrameKind, encode, encoded_size};
use rigline_host::{CallContext, Host, HostError, Options};
use serde_json::{Value, json};

/// A frame that came: kind, sequence, payload.
type Taken = (FrameKind, u32, Vec<u8>);

struct Device {
    stream: TcpStream,
    session: u32,
    /// How often each line came to be run.
    runs: Arc<Mutex<Vec<String>>>,
}

impl Device {
    fn send(&mut self, kind: FrameKind, sequence: u32, payload: &[u8]) {
        self.stream.write_all(&frame(kind, sequence, payload)).unwrap();
    }

    fn reply(&mut self, sequence: u32, line: &[u8]) {
        let request: Value = serde_json::from_slice(line).unwrap();
        let result = match request["method"].as_str().unwrap() {
            "initialize" => {
                json!({"name":"d","version":"1.0.0","protocolVersion":"0.0.1","operations":{"go":{"params":{}}}})
            }
            "execute" => json!({"success": true, "message": "went"}),
            _ => json!({}),
        };
        self.runs.lock().unwrap().push(request["method"].as_str().unwrap().to_owned());
        let reply = json!({"jsonrpc":"2.0","id":request["id"],"result":result}).to_string();
        self.send(FrameKind::Reply, sequence, reply.as_bytes());
    }
}

fn frame(kind: FrameKind, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut memory = vec![0; encoded_size(payload.len())];
    let length = encode(&Frame { kind, sequence, payload }, &mut memory).unwrap();
    memory[..length].to_vec()
}

/// Runs a device whose `behave` gets each frame but hellos, and its place among them; returns whether that was all
/// there is to do.
fn device(behave: impl Fn(&mut Device, usize, &Taken) -> bool + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}?link=cobs", listener.local_addr().unwrap());
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    thread::spawn(move || {
        let mut place = 0;
        for stream in listener.incoming().flatten() {
            let mut reader = stream.try_clone().unwrap();
            let mut device = Device { stream, session: 0, runs: Arc::clone(&seen) };
            let mut memory = vec![0; 8192];
            let mut collector = Collector::new(&mut memory);
            let mut byte = [0];
            while reader.read(&mut byte).is_ok_and(|read| read == 1) {
                let Some(Collected::Frame(frame)) = collector.push(byte[0]) else { continue };
                let taken = (frame.kind, frame.sequence, frame.payload.to_vec());
                if taken.0 == FrameKind::Hello {
                    device.session = taken.1;
                    device.send(FrameKind::Hello, taken.1, b"");
                } else {
                    place += 1;
                    if !behave(&mut device, place, &taken) {
                        device.reply(taken.1, &taken.2);
                    }
                }
            }
        }
    });
    (target, runs)
}

async fn call(target: &str) -> Result<String, HostError> {
    let mut options = Options::default();
    options.start_timeout = Duration::from_secs(8);
    options.call_timeout = Duration::from_secs(8);
    let host = Host::connect(&target.parse().unwrap(), options).await?;
    let result = host.call("go", &json!({}), CallContext::default()).await?;
    let text = result.failure().or(result.message.clone()).unwrap_or_default();
    host.shutdown().await?;
    Ok(text)
}

#[tokio::test]
async fn a_session() {
    let (target, runs) = device(|device, _, (_, sequence, line)| {
        device.send(
            FrameKind::Log,
            *sequence,
            br#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m"}}"#,
        );
        device.reply(*sequence, line);
        true
    });
    assert_eq!(call(&target).await.unwrap(), "went");
    assert_eq!(*runs.lock().unwrap(), ["initialize", "execute", "shutdown"]);
}

#[tokio::test]
async fn what_is_lost_or_damaged_is_sent_again_with_its_number() {
    let lose: fn(&mut Device) = |_| {};
    let say_damaged: fn(&mut Device) = |device| device.send(FrameKind::Damaged, 0, b"");
    let damage: fn(&mut Device) = |device| {
        let mut broken = frame(FrameKind::Reply, 2, b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}");
        broken[9] ^= 1;
        thread::sleep(Duration::from_millis(30));
        device.stream.write_all(&broken).unwrap();
    };
    let old: fn(&mut Device) =
        |device| device.send(FrameKind::Reply, 1, b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":false}}");
    for (fault, within) in [(lose, 3000), (say_damaged, 2000), (damage, 900), (old, 3000)] {
        let sequences = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sequences);
        let (target, runs) = device(move |device, place, (_, sequence, _)| {
            seen.lock().unwrap().push(*sequence);
            if place == 2 {
                fault(device);
            }
            place == 2
        });
        let started = Instant::now();
        assert_eq!(call(&target).await.unwrap(), "went");
        assert!(started.elapsed() < Duration::from_millis(within), "{:?}", started.elapsed());
        assert_eq!(*sequences.lock().unwrap(), [1, 2, 2, 3]);
        assert_eq!(*runs.lock().unwrap(), ["initialize", "execute", "shutdown"]);
    }
}

#[tokio::test]
async fn a_device_that_was_reset_is_a_clear_error_and_gets_a_new_session() {
    let (target, _) = device(|device, place, (_, sequence, _)| {
        if place == 2 {
            device.send(FrameKind::Unknown, *sequence, b"");
        }
        place == 2
    });
    let text = call(&target).await.unwrap();
    assert_eq!(text, "the device was reset; whether the request ran is not known (-32000)");
}

#[tokio::test]
async fn a_request_that_does_not_fit_is_a_clear_error() {
    let (target, runs) = device(|device, place, _| {
        if place == 2 {
            device.send(FrameKind::TooLong, 100, b"");
        }
        place == 2
    });
    assert_eq!(call(&target).await.unwrap(), "request too large: the device accepts 100 bytes (-32603)");
    assert_eq!(*runs.lock().unwrap(), ["initialize", "shutdown"], "the next number is the same");
}

#[tokio::test]
async fn a_call_that_is_given_up_with_its_host_is_cancelled() {
    let cancelled = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&cancelled);
    let (target, _) = device(move |_, place, (kind, sequence, _)| {
        if *kind == FrameKind::Cancel {
            *seen.lock().unwrap() = Some(*sequence);
        }
        place >= 2
    });
    let host = Host::connect(&target.parse().unwrap(), Options::default()).await.unwrap();
    let args = json!({});
    let called = host.call("go", &args, CallContext::default());
    assert!(tokio::time::timeout(Duration::from_millis(200), called).await.is_err());
    drop(host);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(*cancelled.lock().unwrap(), Some(2));
}

/// N 15: a device that answers in frames where lines are expected gets the hint that says how to talk to it.
#[test]
fn frames_where_lines_are_expected_are_recognised() {
    let hint_of = |answer: Vec<u8>| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("tcp:{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(&answer);
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        let mut options = Options::default();
        options.start_timeout = Duration::from_secs(2);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async { Host::connect(&target.parse().unwrap(), options).await.unwrap_err() });
        error.to_string()
    };
    let hello = [vec![0], frame(FrameKind::Hello, 7, b"")].concat();
    assert!(hint_of(hello).contains("add the option ?link=cobs"), "a frame");
    assert!(hint_of(b"\xFF\x13\x00\x80\x00".to_vec()).contains("?baud="), "noise");
    assert!(hint_of(b"content-length: 20\r\n\r\n".to_vec()).contains("Content-Length headers"), "headers");
    assert!(!hint_of(b"boot v1.2\n".to_vec()).contains("link"), "text");
}
