//! `rigline bridge` and `rigline serve`: one extension for callers that cannot get there themselves.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;

/// A call that takes a minute.
const WAIT: &str = r#"{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"wait-for","args":{"channel":"3V3","min":9,"max":10,"within_ms":60000},"context":{}}}"#;

#[test]
fn a_host_in_another_language_drives_the_rig_and_a_bridge() {
    let Ok(python) = which::which("python3") else {
        rigline_test_support::skipped("a host in Python", "there is no python3", "apt-get install python3");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/gevals_host.py");
    let server = ServerProcess::start(&[]);
    let tcp = format!("tcp:{}", server.address);
    for program in [&["rig"][..], &["bridge", &tcp], &["bridge", "sim"]] {
        let output = Command::new(&python)
            .arg(&script)
            .args([
                "power",
                r#"{"rail":"3V3","on":true}"#,
                "identify",
                "null",
                "measure",
                r#"{"channel":"<none>\u2028"}"#,
            ])
            .args(["self-test", "{}", "--", env!("CARGO_BIN_EXE_rigline")])
            .args(program)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{program:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(told[0]["manifest"]["result"]["name"], "rig");
        assert!(told.iter().any(|told| told["log"]["message"] == "switching 3V3 on"), "{text}");
        let of = |name: &str| told.iter().find(|told| told["operation"] == name).unwrap();
        assert_eq!(of("power")["result"]["success"], true);
        assert_eq!(of("measure")["error"]["code"], -32602);
        assert_eq!(of("self-test")["result"]["message"], "all 6 checks passed");
        assert_eq!(told.last().unwrap()["exit"], 0);
    }
}

#[test]
fn a_bridge_passes_the_conformance_check() {
    let server = ServerProcess::start(&[]);
    for target in [format!("tcp:{}", server.address), "sim".to_owned()] {
        let bridge = format!("exec:{} bridge {target}", env!("CARGO_BIN_EXE_rigline"));
        let output = rigline(&["check", &bridge, "--call", "identify", "--call", "self-test"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(" passed, 0 failed, 0 skipped"), "{text}");
    }
}

#[test]
fn a_bridge_exits_after_shutdown_and_at_the_end_of_input() {
    let mut bridge = Bridge::start("sim", &[]);
    assert_eq!(bridge.ask(INITIALIZE)["result"]["name"], "rig");
    assert_eq!(
        bridge.ask(r#"{"jsonrpc":"2.0","id":"x","method":"shutdown"}"#),
        json!({"jsonrpc":"2.0","id":"x","result":{}})
    );
    // Its input is still open.
    assert_eq!(bridge.exit(), Some(0));
    let one_shot =
        r#"{"jsonrpc":"2.0","id":7.5,"method":"execute","params":{"operation":"identify","args":null,"context":{}}}"#;
    let output = rigline_with(&["bridge", "sim"], one_shot);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with(r#"{"jsonrpc":"2.0","id":7.5,"result":{"success":true"#) && text.lines().count() == 1,
        "{text}"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn logs_pass_at_once() {
    let (go_on, goes_on) = std::sync::mpsc::channel();
    let board = Board::start(move |line, out| {
        if line["method"] == "execute" {
            say(out, r#"{"jsonrpc":"2.0","method":"log","params":{"level":"trace","message":"first","data":[1.50]}}"#);
            say(
                out,
                r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"second","data":{"n":1.50}}}"#,
            );
            goes_on.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        Some(good(line))
    });
    let mut bridge = Bridge::start(&board.target(), &[]);
    bridge.ask(INITIALIZE);
    bridge.send(r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"go","args":{},"context":{}}}"#);
    // In the form that the real host shows.
    assert_eq!(
        bridge.line(),
        r#"{"jsonrpc":"2.0","method":"log","params":{"level":"debug","message":"first","data":{"value":[1.50]}}}"#
    );
    assert_eq!(
        bridge.line(),
        r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"second","data":{"n":1.50}}}"#
    );
    // While the call is out, faults are answered.
    bridge.send("{oops");
    assert!(bridge.line().contains("-32700"));
    go_on.send(()).unwrap();
    assert!(bridge.line().contains(r#""id":2,"result""#));
}

#[test]
fn what_a_device_has_no_room_for_is_left_out() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&seen);
    let board = Board::start(move |line, _| {
        lines.lock().unwrap().push(line.clone());
        Some(good(line))
    });
    let mut bridge = Bridge::start(&board.target(), &[]);
    let manifest = bridge.ask(INITIALIZE);
    assert_eq!(manifest["result"]["limits"]["reply"], 65535, "its own limits, not the device's: {manifest}");
    let big = "x".repeat(400);
    let table = [
        (
            json!({"workdir":"/t","env":{"A":"b"},"agent":{"prompt":"p"}}),
            &["workdir", "phase", "env", "agent"][..],
            &[][..],
        ),
        (
            json!({"workdir":"/t","env":{"A":"b"},"agent":{"prompt":big}}),
            &["workdir", "phase", "env"],
            &["context.agent was omitted"],
        ),
        (
            json!({"workdir":"/t","env":{"A":big},"agent":{}}),
            &["workdir", "phase"],
            &["context.agent was", "context.env was omitted"],
        ),
    ];
    for (context, left, logs) in table {
        let request = json!({"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"go","args":{"n":1},"context":context}});
        bridge.send(&request.to_string());
        for log in logs {
            let line = bridge.line();
            assert!(line.contains(log) && line.contains("warn"), "{line}");
        }
        assert!(bridge.line().contains(r#""success":true"#));
        let sent = seen.lock().unwrap().last().unwrap().clone();
        let names: Vec<_> = sent["params"]["context"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, left);
    }
    let request =
        json!({"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"go","args":{"x":big},"context":{}}});
    let reply = bridge.ask(&request.to_string());
    assert_eq!(reply["error"]["code"], -32603);
    assert!(reply["error"]["message"].as_str().unwrap().contains("the device accepts 300"), "{reply}");
}

#[test]
fn a_reply_that_the_real_host_cannot_read_is_an_error() {
    let board = Board::start(|line, _| {
        let size = line["params"]["args"]["size"].as_u64().unwrap_or(0);
        let message = "x".repeat(usize::try_from(size).unwrap());
        Some(if line["method"] == "execute" {
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"success":true,"message":"{message}"}}}}"#, line["id"])
        } else {
            good(line)
        })
    });
    let mut bridge = Bridge::start(&board.target(), &[]);
    bridge.ask(INITIALIZE);
    let frame = r#"{"jsonrpc":"2.0","id":2,"result":{"success":true,"message":""}}"#.len();
    for (size, fits) in [(65_534 - frame, true), (65_535 - frame, true), (65_536 - frame, false), (200_000, false)] {
        let request = json!({"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"go","args":{"size":size},"context":{}}});
        bridge.send(&request.to_string());
        let line = bridge.line();
        assert!(line.len() <= 65_535, "{}", line.len());
        assert_eq!(!line.contains("-32603"), fits, "{size}: {}", &line[..200]);
    }
}

#[test]
fn a_lost_device_is_a_clear_error_and_found_again() {
    let calls = Arc::new(Mutex::new(0));
    let board = Board::start(move |line, _| {
        let mut calls = calls.lock().unwrap();
        *calls += usize::from(line["method"] == "execute");
        (*calls != 1 || line["method"] != "execute").then(|| good(line))
    });
    let mut bridge = Bridge::start(&board.target(), &[]);
    bridge.ask(INITIALIZE);
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"go","args":{},"context":{}}}"#;
    let lost = bridge.ask(call);
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!(2), &json!(-32000)), "{lost}");
    assert!(lost["error"]["message"].as_str().unwrap().contains("fake: the connection was closed"), "{lost}");
    assert_eq!(bridge.ask(call)["result"]["success"], true);
    let mut bridge = Bridge::start("serial:/no/such/port", &["--wait", "1ms"]);
    let refused = bridge.ask(INITIALIZE);
    assert!(refused["error"]["message"].as_str().unwrap().contains("cannot be opened"), "{refused}");
}

/// No line of a bridge is longer than the real host reads, unless that is asked for: longer logs are shortened and not dropped, in
/// place of a longer reply goes an error with the size that it needs.
#[test]
fn a_bridges_lines_fit_the_real_host() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("wordy");
    let text = r#"
words=$(head -c 70000 /dev/zero | tr '\0' w)
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case "$line" in
    *'"initialize"'*) result='{"name":"wordy","version":"1.0.0","protocolVersion":"0.0.1","operations":{"log":{"params":true},"say":{"params":true}}}' ;;
    *'"log"'*) echo '{"jsonrpc":"2.0","method":"log","params":{"level":"fatal","message":"'"$words"'","data":{"a":1}}}'
        result='{"success":true}' ;;
    *'"say"'*) result='{"success":true,"outputs":{"words":"'"$words"'"}}' ;;
    *) result='{}' ;;
    esac
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}"
    case "$line" in *shutdown*) exit 0 ;; esac
done
"#;
    fs::write(&program, text).unwrap();
    let target = format!("exec:sh {}", program.display());
    let call = |id: u32, name: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"{name}","args":{{}},"context":{{}}}}}}"#
        )
    };
    for (more, is_whole) in [(&[][..], false), (&["--reply-limit", "100000"], true)] {
        let mut bridge = Bridge::start(&target, more);
        bridge.ask(INITIALIZE);
        bridge.send(&call(2, "log"));
        let log = bridge.line();
        let params = serde_json::from_str::<Value>(&log).unwrap()["params"].clone();
        assert_eq!(
            (log.len() <= 65_535, log.len() > 65_000, &params["level"]),
            (!is_whole, true, &json!("error")),
            "{}",
            log.len()
        );
        assert!(params["message"].as_str().unwrap().starts_with("wwww"), "{params}");
        assert_eq!(serde_json::from_str::<Value>(&bridge.line()).unwrap()["result"]["success"], true);
        let reply = bridge.ask(&call(3, "say"));
        if is_whole {
            assert_eq!(reply["result"]["outputs"]["words"].as_str().unwrap().len(), 70_000);
        } else {
            assert_eq!(reply["error"]["code"], -32603, "{reply}");
            assert!(reply["error"]["message"].as_str().unwrap().contains("70"), "{reply}");
        }
        bridge.ask(r#"{"jsonrpc":"2.0","id":4,"method":"shutdown"}"#);
        assert_eq!(bridge.exit(), Some(0));
    }
}

#[test]
fn a_bridge_waits_its_turn_for_a_port() {
    let pty = rustix_openpty::openpty(None, None).unwrap();
    let path = rustix::pty::ptsname(&pty.controller, Vec::new()).unwrap().into_string().unwrap();
    let controller = File::from(pty.controller);
    let mut out = controller.try_clone().unwrap();
    thread::spawn(move || {
        for line in BufReader::new(controller).lines().map_while(Result::ok) {
            let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
            say(&mut out, &good(&line));
        }
    });
    let target = format!("serial:{path}");
    let mut first = Bridge::start(&target, &[]);
    assert_eq!(first.ask(INITIALIZE)["result"]["name"], "fake");
    let mut second = Bridge::start(&target, &["--wait", "20s"]);
    second.send(r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"go","args":{},"context":{}}}"#);
    let waits = second.line();
    assert!(waits.contains(&format!("{path} is in use by process")) && waits.contains("waiting up to 20s"), "{waits}");
    first.ask(r#"{"jsonrpc":"2.0","id":9,"method":"shutdown"}"#);
    assert_eq!(first.exit(), Some(0));
    assert!(second.line().contains(r#""id":1,"result":{"success":true"#));
    drop(pty.user);
}

#[test]
fn clients_take_turns_and_get_their_own_logs() {
    let server = ServerProcess::start(&[]);
    let mut clients: Vec<LineClient> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(INITIALIZE)["result"]["name"], "rig");
    }
    for (place, client) in clients.iter_mut().enumerate() {
        let rail = ["3V3", "5V0", "3V3"][place];
        let id = 10 + place;
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"execute","params":{{"operation":"power","args":{{"rail":"{rail}","on":true}},"context":{{}}}}}}"#
        ));
    }
    for (place, client) in clients.iter_mut().enumerate() {
        let rail = ["3V3", "5V0", "3V3"][place];
        assert!(client.line().contains(&format!("switching {rail} on")));
        assert!(client.line().contains(&format!(r#""id":{},"result""#, 10 + place)));
    }
    // One's shutdown ends no other's session, and what it set up stays.
    let [first, second, _] = &mut clients[..] else { unreachable!() };
    assert_eq!(first.ask(r#"{"jsonrpc":"2.0","id":20,"method":"shutdown"}"#)["result"], json!({}));
    let measured = second.ask(r#"{"jsonrpc":"2.0","id":21,"method":"execute","params":{"operation":"measure","args":{"channel":"3V3"},"context":{}}}"#);
    let volts: f32 = measured["result"]["outputs"]["volts"].as_str().unwrap().parse().unwrap();
    assert!(volts > 3.0, "{measured}");
    // A new session on the same connection.
    assert_eq!(first.ask(INITIALIZE)["result"]["name"], "rig");
}

#[test]
fn another_config_is_refused_while_a_session_has_one() {
    let server = ServerProcess::start(&[]);
    let with = |config: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"0.0.1","config":{config}}}}}"#
        )
    };
    let (mut first, mut second) = (server.client(), server.client());
    assert!(first.ask(&with(r#"{"settle_ms":1}"#))["result"].is_object());
    assert!(second.ask(&with(r#"{ "settle_ms" : 1 }"#))["result"].is_object(), "the same in another spelling");
    let refused = second.ask(&with(r#"{"settle_ms":2}"#));
    assert!(refused["error"]["message"].as_str().unwrap().contains("another config"), "{refused}");
    assert!(server.client().ask(INITIALIZE)["result"].is_object(), "no config takes what is there");
    for client in [&mut first, &mut second] {
        client.ask(r#"{"jsonrpc":"2.0","id":2,"method":"shutdown"}"#);
    }
    thread::sleep(Duration::from_millis(300));
    assert!(second.ask(&with(r#"{"settle_ms":2}"#))["result"].is_object(), "nobody has a session any more");
    assert_eq!(server.client().ask(&with(r#"{"settle_ms":-1}"#))["error"]["code"], -32000, "the second one has");
}

#[test]
fn a_lost_client_cancels_its_call_and_the_last_one_leaves_a_safe_rig() {
    let server = ServerProcess::start(&[]);
    let mut client = server.client();
    client.ask(INITIALIZE);
    client.send(r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":true},"context":{}}}"#);
    assert!(client.line().contains("switching") && client.line().contains("success"));
    client.send(WAIT);
    thread::sleep(Duration::from_millis(300));
    client.reset();
    let started = Instant::now();
    let mut next = server.client();
    // The rail's capacitors take some milliseconds to discharge.
    loop {
        let measured = next.ask(r#"{"jsonrpc":"2.0","id":4,"method":"execute","params":{"operation":"measure","args":{"channel":"3V3"},"context":{}}}"#);
        let volts: f32 =
            measured["result"]["outputs"]["volts"].as_str().unwrap_or_else(|| panic!("{measured}")).parse().unwrap();
        if volts < 0.1 {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{measured}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn http_telnet_and_half_closed_streams() {
    let server = ServerProcess::start(&[]);
    let mut browser = server.client();
    browser.stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    browser.send(r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":true},"context":{}}}"#);
    let mut text = String::new();
    let _ = browser.reader.read_to_string(&mut text);
    assert!(text.contains("-32600") && text.lines().count() == 1, "{text}");

    let mut telnet = server.client();
    telnet.stream.write_all(b"\xFF\xFD\x03\xFF\xFB\x18").unwrap();
    telnet.stream.write_all(INITIALIZE.replace('}', "}\r\n").replace("}\r\n}\r\n", "}}\r\n").as_bytes()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&telnet.line()).unwrap()["result"]["name"], "rig");

    let mut half = server.client();
    half.send(
        r#"{"jsonrpc":"2.0","id":5,"method":"execute","params":{"operation":"self-test","args":{},"context":{}}}"#,
    );
    half.stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    half.reader.read_to_string(&mut text).unwrap();
    assert!(text.lines().last().unwrap().contains("all 6 checks passed"), "{text}");
}

#[test]
fn a_client_that_does_not_read_is_dropped_and_holds_nobody_up() {
    let server = ServerProcess::start(&[]);
    let slow = server.client();
    let mut writer = slow.stream.try_clone().unwrap();
    writer.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"none\"}}\n", "i".repeat(300));
    let block = long.repeat(1000);
    for _ in 0..200 {
        if writer.write_all(block.as_bytes()).is_err() {
            break;
        }
    }
    let mut other = server.client();
    assert_eq!(other.ask(INITIALIZE)["result"]["name"], "rig");
}

#[test]
fn it_listens_on_the_loopback_address_and_ends_in_good_order() {
    let mut server = ServerProcess::start(&[]);
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
    server.client().ask(INITIALIZE);
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    // In a call, too, and when its terminal is closed.
    let mut server = ServerProcess::start(&[]);
    let mut client = server.client();
    client.ask(INITIALIZE);
    client.send(WAIT);
    assert!(client.line().contains("waiting"), "its log");
    kill_process(Pid::from_child(&server.child), Signal::HUP).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert_eq!(rigline(&["serve", "sim", "--tcp", &port]).status.code(), Some(3));
    assert_eq!(rigline(&["serve", "sim", "--tcp", "nowhere"]).status.code(), Some(2));
}

#[test]
fn a_signal_ends_a_bridge_and_leaves_its_extension_safe() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let folder = tempfile::tempdir().unwrap();
        let safe = folder.path().join("safe");
        // It is asked to end, and can put things in order.
        let script = format!(
            "trap 'echo safe > {}; exit 0' TERM; read line; \
            echo '{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"name\":\"fake\"}}}}'; \
            read line; while :; do sleep 0.05; done",
            safe.display()
        );
        let program = folder.path().join("program.sh");
        fs::write(&program, script).unwrap();
        let mut bridge = Bridge::start(&format!("exec:sh {}", program.display()), &[]);
        assert_eq!(bridge.ask(INITIALIZE)["result"]["name"], "fake");
        bridge.send(WAIT);
        thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_child(&bridge.child), signal).unwrap();
        assert_eq!(bridge.exit(), Some(code));
        assert_eq!(fs::read_to_string(&safe).unwrap_or_default(), "safe\n", "{signal:?}");
    }
}

fn rigline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rigline")).args(arguments).output().unwrap()
}

fn rigline_with(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rigline"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

struct Bridge {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Bridge {
    fn start(target: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rigline"));
        command.args(["bridge", target]).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    fn exit(&mut self) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "it does not exit");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct ServerProcess {
    child: Child,
    address: String,
}

impl ServerProcess {
    fn start(more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rigline"));
        command.args(["serve", "sim", "--tcp", "0"]).args(more).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("serving sim on tcp:").unwrap().to_owned();
        Self { child, address }
    }

    fn client(&self) -> LineClient {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        LineClient { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Once it was waited for, its number may be another's.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

struct LineClient {
    reader: BufReader<TcpStream>,
    stream: TcpStream,
}

impl LineClient {
    fn send(&mut self, line: &str) {
        let _ = self.stream.write_all(format!("{line}\n").as_bytes());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The reply; logs before it are passed over.
    fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        loop {
            let line = self.line();
            let reply: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
            if reply["method"] != "log" {
                return reply;
            }
        }
    }

    /// Gone, and not only silent.
    fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }
}

/// A device behind a TCP port: what gets each request gives the reply, or ends the connection.
struct Board {
    port: u16,
}

impl Board {
    fn start(answer: impl Fn(&Value, &mut dyn Write) -> Option<String> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut out = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
                    match answer(&line, &mut out) {
                        Some(reply) => say(&mut out, &reply),
                        None => break,
                    }
                }
            }
        });
        Self { port }
    }

    fn target(&self) -> String {
        format!("tcp:127.0.0.1:{}", self.port)
    }
}

fn good(line: &Value) -> String {
    let result = match line["method"].as_str() {
        Some("initialize") => json!({
            "name": "fake", "version": "1.0.0", "protocolVersion": "0.0.1", "operations": { "go": { "params": {} } },
            "limits": { "request": 300, "reply": 300 },
        }),
        Some("execute") => json!({ "success": true }),
        _ => json!({}),
    };
    json!({ "jsonrpc": "2.0", "id": line["id"], "result": result }).to_string()
}

fn say(out: &mut (impl Write + ?Sized), line: &str) {
    let _ = out.write_all(format!("{line}\n").as_bytes());
}
