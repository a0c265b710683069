//! Access to the servers, their addresses, and the cost of idle, noisy and vanished clients.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// A user that is neither root nor us.
const STRANGER: u32 = 65_534;

/// A server, and what it said when it was ready.
struct ServerProcess {
    child: Child,
    said: Vec<String>,
    _folder: TempDir,
}

impl ServerProcess {
    /// Starts it in a separate folder, and waits until one of its lines on either stream has this text.
    fn start(arguments: &[&str], until: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), arguments, until)
    }

    fn start_in(folder: TempDir, arguments: &[&str], until: &str) -> Self {
        let mut child = Command::new(RIGLINE)
            .args(arguments)
            .current_dir(folder.path())
            .env("XDG_STATE_HOME", folder.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, told) = mpsc::channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let tell = tell.clone();
            thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
            });
        }
        drop(tell);
        let mut said = Vec::new();
        while !said.iter().any(|line: &String| line.contains(until)) {
            let Ok(line) = told.recv_timeout(Duration::from_secs(60)) else { panic!("not ready: {said:?}") };
            said.push(line);
        }
        // The address of the other family, if it comes behind.
        while let Ok(line) = told.recv_timeout(Duration::from_millis(300)) {
            said.push(line);
        }
        Self { child, said, _folder: folder }
    }

    /// `jsonrpc --tcp`, with these arguments too.
    fn jsonrpc(more: &[&str]) -> Self {
        Self::start(&[&["jsonrpc", "--tcp", "localhost:0", "--runs", "runs"], more].concat(), "token")
    }

    fn addresses(&self) -> Vec<String> {
        let last = |line: &String| {
            let word = line.split_ascii_whitespace().next_back()?;
            let word = word.trim_start_matches("tcp:").trim_start_matches("http://").split('/').next()?;
            word.parse::<std::net::SocketAddr>().is_ok().then(|| word.to_owned())
        };
        self.said.iter().filter_map(last).collect()
    }

    fn token(&self) -> &str {
        self.said.iter().find_map(|line| line.strip_prefix("rigline: token ")).unwrap()
    }

    fn connect(&self) -> LineClient {
        LineClient::new(TcpStream::connect(&self.addresses()[0]).unwrap())
    }

    /// A field of /proc/PID/status: memory in kB, or a number.
    fn status(&self, field: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.split_ascii_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct LineClient {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl LineClient {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let _ = self.stream.write_all(format!("{line}\n").as_bytes());
    }

    /// The next line; null at the end.
    pub(crate) fn line(&mut self) -> Value {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) | Err(_) => Value::Null,
            Ok(_) => serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}")),
        }
    }

    /// The reply; logs before it are passed over.
    fn reply(&mut self) -> Value {
        loop {
            let line = self.line();
            if line["method"] != "log" && line["method"] != "notifications/message" {
                return line;
            }
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&request(method, params));
        self.reply()
    }
}

pub(crate) fn request(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

fn execute(operation: &str, args: Value) -> String {
    request("execute", json!({ "operation": operation, "args": args, "context": {} }))
}

fn initialize() -> String {
    request("initialize", json!({ "protocolVersion": "0.0.1" }))
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn volts(measured: &Value) -> f64 {
    let volts = measured["result"]["outputs"]["volts"].as_str();
    volts.unwrap_or_else(|| panic!("{measured}")).parse().unwrap()
}

/// An eval whose mock task takes this long.
fn eval(folder: &Path, delay: &str) {
    fs::create_dir_all(folder).unwrap();
    let text = format!(
        "name: e\nconfig: {{ executor: mock }}\ntasks: [ {{ id: t, prompt: p, mock: {{ delay: {delay} }} }} ]\n"
    );
    fs::write(folder.join("eval.yaml"), text).unwrap();
}

#[test]
fn jsonrpc_over_tcp_asks_for_the_token() {
    let server = ServerProcess::jsonrpc(&[]);
    let token = server.token();
    assert!(token.len() >= 32, "{token}");
    let mut stranger = server.connect();
    let refused = stranger.ask("eval.list", json!({}));
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32000), &json!(1)), "{refused}");
    assert_eq!(stranger.line(), Value::Null, "the connection is closed");
    let mut guesser = server.connect();
    assert_eq!(guesser.ask("authenticate", json!({ "token": "0".repeat(32) }))["error"]["code"], -32000);
    assert_eq!(guesser.line(), Value::Null);
    let mut friend = server.connect();
    assert_eq!(friend.ask("authenticate", json!({ "token": token }))["result"], json!({}));
    assert!(friend.ask("eval.list", json!({}))["result"]["evals"].is_array());
    // As a notification it needs no reply.
    let mut friend = server.connect();
    friend.send(&json!({ "jsonrpc": "2.0", "method": "authenticate", "params": { "token": token } }).to_string());
    assert!(friend.ask("eval.list", json!({}))["result"]["evals"].is_array());
    // A client that says nothing is refused in the end.
    let mut silent = server.connect();
    let start = Instant::now();
    assert_eq!(silent.line()["error"]["code"], -32000);
    assert!((5..30).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[test]
fn a_token_of_ones_own_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "my-token\n").unwrap();
    let path = file.to_str().unwrap().to_owned();
    let server =
        ServerProcess::start(&["jsonrpc", "--tcp", "0", "--runs", "runs", "--token-file", &path], "the token is in");
    assert!(!server.said.iter().any(|line| line.contains("my-token")), "{:?}", server.said);
    assert_eq!(server.connect().ask("eval.list", json!({}))["error"]["code"], -32000);
    let mut client = server.connect();
    client.ask("authenticate", json!({ "token": "my-token" }));
    assert!(client.ask("eval.list", json!({}))["result"]["evals"].is_array());

    let open = ServerProcess::jsonrpc(&["--no-token"]);
    assert!(open.said.iter().any(|line| line.contains("every client can run programs as you")), "{:?}", open.said);
    assert!(open.connect().ask("eval.list", json!({}))["result"]["evals"].is_array());

    let server = ServerProcess::start(&["serve", "sim", "--tcp", "0", "--token-file", &path], "serving sim");
    assert_eq!(server.connect().ask("initialize", json!({ "protocolVersion": "0.0.1" }))["error"]["code"], -32000);
    let mut client = server.connect();
    assert_eq!(client.ask("authenticate", json!({ "token": "my-token" }))["result"], json!({}));
    assert_eq!(client.ask("initialize", json!({ "protocolVersion": "0.0.1" }))["result"]["name"], "rig");

    // Our own commands take it from the target.
    let call = |target: &str| {
        Command::new(RIGLINE).args(["call", target, "measure", "channel=3V3"]).output().unwrap().status.code()
    };
    let target = format!("tcp:{}", server.addresses()[0]);
    assert_eq!(call(&format!("{target}?token-file={path}")), Some(0));
    assert_eq!(call(&target), Some(3));

    // What cannot be a token's file is said before anything listens.
    rustix::fs::mknodat(rustix::fs::CWD, folder.path().join("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    fs::write(folder.path().join("empty"), "\n").unwrap();
    for bad in ["fifo", "empty", "missing", "."] {
        for server in [&["jsonrpc", "--tcp", "0"][..], &["serve", "sim", "--tcp", "0"]] {
            let output =
                Command::new(RIGLINE).args(server).arg("--token-file").arg(folder.path().join(bad)).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{server:?} {bad}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn evals_only_below_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let (root, other) = (folder.path().join("root"), folder.path().join("other"));
    eval(&root.join("in"), "1ms");
    eval(&other, "1ms");
    fs::write(other.join("task.yaml"), "id: secret\nprompt: p\n").unwrap();
    symlink(&other, root.join("out")).unwrap();
    symlink("../other/eval.yaml", root.join("eval-link.yaml")).unwrap();
    symlink("in", root.join("also-in")).unwrap();
    fs::create_dir(root.join("linked")).unwrap();
    symlink("../../other/eval.yaml", root.join("linked/eval.yaml")).unwrap();
    fs::create_dir(root.join("tasks")).unwrap();
    fs::write(
        root.join("tasks/eval.yaml"),
        "name: t\nconfig: { executor: mock }\ntasks: ['../../other/task.yaml', /etc/passwd]\n",
    )
    .unwrap();
    let mut child = Command::new(RIGLINE)
        .args(["jsonrpc", "--runs"])
        .arg(folder.path().join("runs"))
        .current_dir(&root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut ask = |method: &str, params: Value| -> Value {
        writeln!(input, "{}", request(method, params)).unwrap();
        loop {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            if line.get("id").is_some() {
                return line;
            }
        }
    };
    let canonical = root.canonicalize().unwrap();
    for path in ["in", "in/eval.yaml", "also-in", "./in/../in", canonical.join("in").to_str().unwrap()] {
        assert_eq!(ask("eval.get", json!({ "path": path }))["result"]["name"], "e", "{path}");
        assert_eq!(ask("eval.validate", json!({ "path": path }))["result"]["valid"], true, "{path}");
    }
    let other = other.to_str().unwrap();
    for path in [
        "out",
        "out/eval.yaml",
        "eval-link.yaml",
        "..",
        "../other",
        other,
        "/etc/shadow",
        "/nothing",
        "../nothing",
        "/",
    ] {
        for (method, params) in [
            ("eval.get", json!({ "path": path })),
            ("eval.validate", json!({ "path": path })),
            ("eval.list", json!({ "directory": path })),
            ("eval.run", json!({ "path": path })),
            ("eval.run", json!({ "path": "in", "contextDir": path })),
            ("task.list", json!({ "path": path })),
            ("task.get", json!({ "path": path, "taskId": "t" })),
        ] {
            let refused = ask(method, params.clone());
            assert_eq!(refused["error"]["code"], -32000, "{method} {params}: {refused}");
            let message = refused["error"]["message"].as_str().unwrap();
            assert!(message.contains("outside the folder") && message.contains("--root"), "{message}");
        }
    }
    // A folder that lies inside, with a file that does not.
    for method in ["eval.get", "eval.run", "eval.validate"] {
        let refused = ask(method, json!({ "path": "linked" })).to_string();
        assert!(refused.contains("outside the folder") && !refused.contains("\"name\":\"e\""), "{method}: {refused}");
    }
    // Tasks lie inside too, and nothing of other files is told.
    let tasks = ask("eval.validate", json!({ "path": "tasks" }));
    assert_eq!(tasks["result"]["valid"], false, "{tasks}");
    let tasks = tasks.to_string() + &ask("task.list", json!({ "path": "tasks" })).to_string();
    assert!(!tasks.contains("secret") && !tasks.contains("root:"), "{tasks}");
    assert!(ask("eval.run", json!({ "path": "tasks" }))["error"].is_object());
    // A list follows no link that leads out, and says nothing of what is there.
    let listed = ask("eval.list", json!({}));
    let paths: Vec<&str> =
        listed["result"]["evals"].as_array().unwrap().iter().map(|eval| eval["path"].as_str().unwrap()).collect();
    assert_eq!(paths.len(), 2, "{listed}");
    assert!(paths.iter().all(|path| path.starts_with("./")) && !listed.to_string().contains("out/"), "{listed}");
    // What is missing inside is missing.
    let missing = ask("eval.get", json!({ "path": "in/missing.yaml" }));
    assert_eq!(missing["error"]["message"], "Eval not found");
    assert_eq!(missing["error"]["data"]["path"], "in/missing.yaml", "{missing}");
    drop(input);
    assert!(child.wait().unwrap().success());
    // Another root; and one that is none.
    let output = Command::new(RIGLINE).args(["jsonrpc", "--root", "/no/such/folder"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// The answer to another user of this machine, by the shell's own sockets.
fn stranger(address: &str, text: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap();
    let host = host.trim_matches(['[', ']']);
    let script = "exec 3<>\"/dev/tcp/$0/$1\"; printf '%s' \"$2\" >&3; timeout 3 cat <&3";
    let output = Command::new("bash")
        .args(["-c", script, host, port, text])
        .current_dir("/")
        .uid(STRANGER)
        .gid(STRANGER)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn other_users_of_the_machine_are_refused() {
    let is_possible = rustix::process::geteuid().is_root() && cfg!(target_os = "linux") && which::which("bash").is_ok();
    if !is_possible {
        let why = "only root can be another user, and it takes bash";
        rigline_test_support::skipped("other users of the machine", why, "run the tests as root on Linux, with bash");
        return;
    }
    let list = request("eval.list", json!({})) + "\n";
    let power = execute("power", json!({ "rail": "3V3", "on": true })) + "\n";
    let body = r#"{"op":"power","args":{"rail":"3V3","on":true}}"#;
    let http = |body: &str| {
        format!(
            "POST /invoke HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let http_server = ["--protocol", "amplifier", "--http", "localhost:0"];
    for (arguments, until, text, refused) in [
        (&["jsonrpc", "--runs", "runs", "--tcp", "localhost:0", "--no-token"][..], "token", &list, "-32000"),
        (&["serve", "sim", "--tcp", "localhost:0"], "serving", &power, "-32000"),
        (&[&["serve", "sim"][..], &http_server].concat(), "listening", &http(body), "HTTP/1.1 403"),
        (&[&["rig"][..], &http_server].concat(), "listening", &http(body), "HTTP/1.1 403"),
    ] {
        let server = ServerProcess::start(arguments, until);
        for address in server.addresses() {
            let answer = stranger(&address, text);
            assert!(answer.starts_with(refused) || answer.contains(refused), "{arguments:?} {address}: {answer}");
            assert!(answer.contains(&format!("not user {STRANGER}")), "{arguments:?} {address}: {answer}");
        }
        let open = ServerProcess::start(&[arguments, &["--any-user"]].concat(), until);
        let answer = stranger(&open.addresses()[0], text);
        assert!(!answer.is_empty() && !answer.contains("not user"), "{arguments:?}: {answer}");
    }
    // One that is gone before it is examined may be anybody.
    let server = ServerProcess::start(&["serve", "sim", "--tcp", "localhost:0"], "serving");
    let (host, port) =
        server.addresses()[0].rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
    for _ in 0..50 {
        let script = "exec 3<>\"/dev/tcp/$0/$1\"; printf '%s' \"$2\" >&3";
        let _ = Command::new("bash").args(["-c", script, &host, &port, &power]).uid(STRANGER).current_dir("/").status();
    }
    let mut client = server.connect();
    client.send(&execute("measure", json!({ "channel": "3V3" })));
    assert!(volts(&client.reply()) < 0.1);
}

/// The user of a connection is known when it comes, so that those who may not ask take no place from those who may.
#[test]
fn connections_of_other_users_take_no_place() {
    let is_possible = rustix::process::geteuid().is_root() && cfg!(target_os = "linux") && which::which("bash").is_ok();
    if !is_possible {
        let why = "only root can be another user, and it takes bash";
        rigline_test_support::skipped("places of servers", why, "run the tests as root on Linux, with bash");
        return;
    }
    let get = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let measure = execute("measure", json!({ "channel": "3V3" })) + "\n";
    let list = request("eval.list", json!({})) + "\n";
    let amplifier = ["--protocol", "amplifier", "--http", "127.0.0.1:0"];
    for (arguments, until, text, answered) in [
        (&["jsonrpc", "--runs", "runs", "--tcp", "127.0.0.1:0", "--no-token"][..], "token", &*list, "\"result\""),
        (&["serve", "sim", "--tcp", "127.0.0.1:0"], "serving", &measure, "\"result\""),
        (&[&["serve", "sim"][..], &amplifier].concat(), "listening", get, "HTTP/1.1 "),
        (&["web", "sim", "--port", "0"], "http://", get, "HTTP/1.1 "),
    ] {
        let server = ServerProcess::start(arguments, until);
        let address = server.addresses()[0].clone();
        let (host, port) = address.rsplit_once(':').unwrap();
        // More than any of the servers has places for; each sends a byte and stays.
        let script = concat!(
            "for i in $(seq 700); do { exec {fd}<>\"/dev/tcp/$0/$1\" && printf x >&$fd; } 2>/dev/null; done; ",
            "echo open; read -t 60 line"
        );
        let mut flood = Command::new("bash")
            .args(["-c", script, host, port])
            .current_dir("/")
            .uid(STRANGER)
            .gid(STRANGER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(flood.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "open\n");
        let start = Instant::now();
        let mut own = TcpStream::connect(&address).unwrap();
        own.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        own.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(own).read_line(&mut answer).unwrap();
        let took = start.elapsed();
        assert!(answer.contains(answered) && !answer.contains("too many"), "{arguments:?}: {answer}");
        assert!(!answer.contains("503") && !answer.contains("403"), "{arguments:?}: {answer}");
        // The connections are closed as strangers' after two seconds at the latest: that alone would not do.
        assert!(took < Duration::from_millis(1500), "{arguments:?}: {took:?}");
        flood.kill().unwrap();
        flood.wait().unwrap();
    }
}

/// Reports: getappmap/appmap-js#2075, UsefulSoftwareCo/executor#74.
#[test]
fn localhost_is_both_loopback_addresses() {
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    let http = ["--protocol", "amplifier", "--http", "localhost:0"];
    for (arguments, until) in [
        (&["jsonrpc", "--runs", "runs", "--tcp", "localhost:0", "--no-token"][..], "token"),
        (&["serve", "sim", "--tcp", "localhost:0"], "serving"),
        (&["serve", "sim", "--tcp", "0"], "serving"),
        (&[&["serve", "sim"][..], &http].concat(), "listening"),
        (&[&["rig"][..], &http].concat(), "listening"),
    ] {
        let server = ServerProcess::start(arguments, until);
        let addresses = server.addresses();
        assert!(addresses[0].starts_with("127.0.0.1:"), "{addresses:?}");
        let port = addresses[0].rsplit(':').next().unwrap();
        if has_ipv6 {
            assert_eq!(addresses[1..], [format!("[::1]:{port}")], "{arguments:?}");
        }
        for address in &addresses {
            assert!(TcpStream::connect(address).is_ok(), "{arguments:?} {address}");
        }
    }
}

#[test]
fn addresses_that_are_none_are_usage_and_taken_ones_are_not() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("localhost:{}", taken.local_addr().unwrap().port());
    let code =
        |arguments: &[&str]| Command::new(RIGLINE).args(arguments).stdin(Stdio::null()).output().unwrap().status.code();
    for address in ["127.0.0.1:99999", "nowhere", "127.0.0.1:", "::1:7", "1.2.3.4.5:7"] {
        assert_eq!(code(&["jsonrpc", "--tcp", address]), Some(2), "{address}");
        assert_eq!(code(&["serve", "sim", "--tcp", address]), Some(2), "{address}");
        assert_eq!(code(&["serve", "sim", "--protocol", "amplifier", "--http", address]), Some(2), "{address}");
        assert_eq!(code(&["rig", "--protocol", "amplifier", "--http", address]), Some(2), "{address}");
    }
    let runs = tempfile::tempdir().unwrap();
    assert_eq!(code(&["jsonrpc", "--runs", runs.path().to_str().unwrap(), "--tcp", &taken]), Some(3));
    assert_eq!(code(&["serve", "sim", "--tcp", &taken]), Some(3));
    assert_eq!(code(&["serve", "sim", "--protocol", "amplifier", "--http", &taken]), Some(3));
}

/// The first client would otherwise be the one to learn that the program does not exist.
#[test]
fn a_server_of_a_missing_program_does_not_start() {
    let servers: [&[&str]; 4] = [
        &["serve", "nope-nowhere", "--tcp", "127.0.0.1:0"],
        &["serve", "./nope/nowhere", "--http", "127.0.0.1:0", "--protocol", "amplifier"],
        &["web", "nope-nowhere"],
        &["mcp", "nope-nowhere"],
    ];
    for words in servers {
        let output = Command::new(RIGLINE).args(words).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{words:?}: {stderr}");
        assert!(stderr.contains(&format!("there is no program `{}`", words[1])), "{words:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn params_that_are_no_object_are_refused_on_every_way_in() {
    let proxy = ServerProcess::start(&["serve", "sim", "--tcp", "0"], "serving");
    let evals = ServerProcess::jsonrpc(&["--no-token"]);
    for params in [json!([1]), json!("text"), json!(1), json!(true), json!([])] {
        for method in ["initialize", "execute", "shutdown"] {
            // As JSON-RPC has it, and the conformance check.
            if method == "shutdown" && params.is_array() {
                continue;
            }
            let refused = proxy.connect().ask(method, params.clone());
            assert_eq!(refused["error"]["code"], -32602, "{method} {params}: {refused}");
        }
        for method in ["eval.list", "eval.get", "eval.run", "run.status"] {
            let refused = evals.connect().ask(method, params.clone());
            assert_eq!(refused["error"]["code"], -32602, "{method} {params}: {refused}");
        }
    }
}

#[test]
fn a_call_whose_client_is_gone_is_not_begun() {
    let server = ServerProcess::start(&["serve", "sim", "--tcp", "0"], "serving");
    let mut first = server.connect();
    first.send(&execute("wait-for", json!({ "channel": "3V3", "min": 9, "max": 10, "within_ms": 3000 })));
    assert!(first.line()["params"]["message"].as_str().unwrap().contains("waiting"), "its log");
    // They go while they wait: closed, reset, or with more to say.
    for place in 0..12 {
        let mut gone = server.connect();
        if place % 3 == 0 {
            gone.send(&initialize());
        }
        gone.send(&execute("power", json!({ "rail": "3V3", "on": true })));
        if place % 2 == 0 {
            rustix::net::sockopt::set_socket_linger(&gone.stream, Some(Duration::ZERO)).unwrap();
        }
    }
    // One that closed its sending half only is answered.
    let mut half = server.connect();
    half.send(&execute("measure", json!({ "channel": "3V3" })));
    half.stream.shutdown(Shutdown::Write).unwrap();
    let start = Instant::now();
    assert!(volts(&half.reply()) < 0.1);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(first.reply()["result"]["success"], false);
    let mut last = server.connect();
    last.send(&execute("measure", json!({ "channel": "3V3" })));
    assert!(volts(&last.reply()) < 0.1, "nobody who is there has switched it on");
}

/// A client that is killed is lost, and its call with it, though its end of the connection was closed properly.
#[test]
fn a_killed_client_has_its_call_cancelled() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let server = ServerProcess::start(&["serve", "sim", "--tcp", "0"], "serving");
    let mut client = server.connect();
    client.send(&initialize());
    client.reply();
    client.send(&execute("power", json!({ "rail": "3V3", "on": true })));
    assert_eq!(client.reply()["result"]["success"], true);
    client.send(&execute("wait-for", json!({ "channel": "3V3", "min": 9, "max": 10, "within_ms": 60_000 })));
    client.line();
    drop(client);
    let start = Instant::now();
    let mut next = server.connect();
    next.send(&execute("measure", json!({ "channel": "3V3" })));
    next.reply();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // Its voltage falls in some milliseconds.
    wait_until("the rail is off", || {
        let mut next = server.connect();
        next.send(&execute("measure", json!({ "channel": "3V3" })));
        volts(&next.reply()) < 0.1
    });
}

/// HTTP on the port of the proxy, in the middle of a session: the session ends, and the hardware goes into its safe state.
#[test]
fn http_in_a_session_leaves_no_session_behind() {
    let server = ServerProcess::start(&["serve", "sim", "--tcp", "0"], "serving");
    for _ in 0..3 {
        let mut odd = server.connect();
        odd.send(&initialize());
        odd.reply();
        odd.send(&execute("wait-for", json!({ "channel": "3V3", "min": 9, "max": 10, "within_ms": 60_000 })));
        odd.line();
        odd.send("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut rest = String::new();
        let _ = odd.reader.read_to_string(&mut rest);
        assert!(rest.contains("not an HTTP server"), "{rest}");
    }
    let mut client = server.connect();
    client.send(&initialize());
    client.reply();
    client.send(&execute("power", json!({ "rail": "3V3", "on": true })));
    assert_eq!(client.reply()["result"]["success"], true);
    drop(client);
    // The last session was lost: the rail goes off, sooner or later.
    wait_until("the rail stays on", || {
        let mut next = server.connect();
        next.send(&execute("measure", json!({ "channel": "3V3" })));
        volts(&next.reply()) < 0.1
    });
}

/// A call behind another client's endless one is answered when its own time is up, and the answer says who has the rig; and so is a call
/// behind an endless one of its own client.
#[test]
fn what_needs_no_extension_never_waits_for_another_clients_call() {
    let rig = format!("exec:{RIGLINE} rig");
    let never = json!({ "channel": "3V3", "min": 9, "max": 10, "within_ms": 120_000 });
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let call = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    for target in ["sim", &rig] {
        let server = ServerProcess::start(&["serve", target, "--tcp", "0"], "serving");
        let mut holder = server.connect();
        holder.send(&execute("wait-for", never.clone()));
        holder.line();
        let start = Instant::now();
        let mut agent = server.connect();
        assert_eq!(agent.ask("initialize", hello.clone())["result"]["serverInfo"]["name"], "rig", "{target}");
        assert!(agent.ask("tools/list", json!({}))["result"]["tools"].as_array().unwrap().len() > 9, "{target}");
        assert_eq!(agent.ask("ping", json!({}))["result"], json!({}), "{target}");
        assert_eq!(server.connect().ask("initialize", json!({ "protocolVersion": "0.0.1" }))["result"]["name"], "rig");
        let mut module = server.connect();
        for (op, member, value) in [("describe", "name", "rig"), ("health", "status", "ok")] {
            module.send(&json!({ "op": op }).to_string());
            assert_eq!(module.line()[member], value, "{target}");
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{target}: {:?}", start.elapsed());

        let server = ServerProcess::start(&["serve", target, "--http", "0"], "on http");
        let address = server.addresses()[0].clone();
        let holder = {
            let (address, call) =
                (address.clone(), call("tools/call", json!({ "name": "wait_for", "arguments": never })));
            let mut stream = TcpStream::connect(&address).unwrap();
            let body = call.to_string();
            let head = format!("POST /mcp HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(head.as_bytes()).unwrap();
            // The head of the response goes out while the call runs.
            stream.read_exact(&mut [0; 12]).unwrap();
            stream
        };
        let posted = |path: &str, body: &Value| post(&address, path, &body.to_string()).1;
        let start = Instant::now();
        let listed = posted("/mcp", &call("tools/list", json!({})));
        assert!(listed["result"]["tools"].as_array().unwrap().len() > 9, "{target}: {listed}");
        assert_eq!(posted("/mcp", &call("ping", json!({})))["result"], json!({}), "{target}");
        assert_eq!(posted("/mcp", &call("initialize", hello.clone()))["result"]["serverInfo"]["name"], "rig");
        assert_eq!(posted("/describe", &json!({}))["name"], "rig", "{target}");
        assert_eq!(posted("/health", &json!({}))["status"], "ok", "{target}");
        let asked =
            json!({ "protocol_version": 1, "tool_name": "measure", "runner": "service", "required_guarantees": {} });
        assert_eq!(posted("/capabilities/handshake", &asked)["ok"], true, "{target}");
        assert!(start.elapsed() < Duration::from_secs(30), "{target}: {:?}", start.elapsed());
        drop(holder);
    }
}

#[test]
fn a_time_limit_counts_from_arrival_at_a_server_of_any_target() {
    let program = format!("exec:{RIGLINE} rig");
    for target in ["sim", &program] {
        let server = ServerProcess::start(&["serve", target, "--tcp", "0"], "serving");
        let mut holder = server.connect();
        holder.send(&execute("wait-for", json!({ "channel": "3V3", "min": 9, "max": 10, "within_ms": 60_000 })));
        holder.line();
        let limited = |id: u32| {
            let params =
                json!({ "operation": "measure", "args": { "channel": "3V3" }, "context": { "timeout": "400ms" } });
            json!({ "jsonrpc": "2.0", "id": id, "method": "execute", "params": params }).to_string()
        };
        let start = Instant::now();
        let mut other = server.connect();
        other.send(&limited(7));
        let late = other.reply();
        assert_eq!((&late["id"], &late["error"]["code"]), (&json!(7), &json!(-32001)), "{target}: {late}");
        let text = late["error"]["message"].as_str().unwrap();
        assert!(text.contains("wait-for has run for") && text.contains("127.0.0.1:"), "{target}: {text}");
        holder.send(&limited(8));
        let late = holder.reply();
        assert_eq!((&late["id"], &late["error"]["code"]), (&json!(8), &json!(-32001)), "{target}: {late}");
        // A session begins meanwhile.
        other.send(&initialize());
        assert_eq!(other.reply()["result"]["name"], "rig", "{target}");
        assert!(start.elapsed() < Duration::from_secs(30), "{target}: {:?}", start.elapsed());
        // What is left of the limit is the call's own.
        drop(holder);
        let mut other = server.connect();
        other.send(&execute("gpio_read", json!({ "pin": "LED" })));
        assert_eq!(other.reply()["result"]["success"], true, "{target}: in either spelling");
    }
}

#[test]
fn a_time_limit_counts_from_arrival_behind_a_batch_and_within_it() {
    let program = format!("exec:{RIGLINE} rig");
    for target in ["sim", &program] {
        let server = ServerProcess::start(&["serve", target, "--tcp", "0"], "serving");
        let mut client = server.connect();
        let limited = |id: u32, timeout: &str| {
            let args = json!({ "channel": "3V3" });
            let params = json!({ "operation": "measure", "args": args, "context": { "timeout": timeout } });
            json!({ "jsonrpc": "2.0", "id": id, "method": "execute", "params": params }).to_string()
        };
        let wait = execute("wait-for", json!({ "channel": "3V3", "min": 9, "max": 10, "within_ms": 3000 }));
        client.send(&format!("[{wait},{}]", limited(7, "1s")));
        client.send(&limited(8, "500ms"));
        client.send(&limited(9, "60s"));
        let late = client.reply();
        assert_eq!((&late["id"], &late["error"]["code"]), (&json!(8), &json!(-32001)), "{target}: {late}");
        let text = late["error"]["message"].as_str().unwrap();
        assert!(text.contains("in the queue: wait-for has run for"), "{target}: {text}");
        let batch = client.reply();
        assert_eq!((&batch[1]["id"], &batch[1]["error"]["code"]), (&json!(7), &json!(-32001)), "{target}: {batch}");
        let last = client.reply();
        assert_eq!((&last["id"], &last["result"]["success"]), (&json!(9), &json!(true)), "{target}: {last}");
    }
}

#[test]
fn a_timeout_of_zero_is_none_through_a_server_too() {
    let server = ServerProcess::start(&["serve", "sim", "--tcp", "0"], "serving");
    let mut client = server.connect();
    let params = json!({
        "operation": "wait-for",
        "args": { "channel": "3V3", "min": 9, "max": 10, "within_ms": 4000 },
        "context": { "timeout": "0s" },
    });
    let answer = client.ask("execute", params);
    assert_eq!(answer["result"]["success"], false, "the operation's own end: {answer}");
}

#[test]
fn idle_clients_of_jsonrpc_take_little_memory_and_give_it_back() {
    let server = ServerProcess::jsonrpc(&["--no-token"]);
    assert_memory(&server, 250, "eval.list", 50_000);
}

#[test]
fn idle_clients_of_serve_take_little_memory_and_give_it_back() {
    let server = ServerProcess::start(&["serve", "sim", "--tcp", "0"], "serving");
    assert_memory(&server, 60, "none", 50_000);
}

/// Each client sends a long line once, and is silent then.
fn assert_memory(server: &ServerProcess, clients: usize, method: &str, limit: u64) {
    if !cfg!(target_os = "linux") {
        return;
    }
    let mut clients: Vec<LineClient> = (0..clients).map(|_| server.connect()).collect();
    for (place, client) in clients.iter_mut().enumerate() {
        let size = if place % 16 == 0 { 7_000_000 } else { [10, 5_000, 100_000, 300_000][place % 4] };
        let answer = client.ask(method, json!({ "filler": "x".repeat(size) }));
        assert!(answer["id"] == 1, "{answer}");
    }
    let resident = || server.status("VmRSS");
    wait_until(&format!("{} kB for idle clients", resident()), || resident() < limit);
    drop(clients);
    wait_until(&format!("{} kB without clients", resident()), || resident() < limit);
}

#[test]
fn two_busy_clients_need_few_threads() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let server = ServerProcess::jsonrpc(&["--no-token"]);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..500 {
                    assert!(client.ask("eval.list", json!({}))["result"]["evals"].is_array());
                }
            });
        }
    });
    assert!(server.status("Threads") < 24, "{} threads", server.status("Threads"));
}

/// An extension that writes far more to its standard error than waits for a client, which takes its time.
#[test]
fn a_noisy_run_ends_neither_its_server_nor_its_client() {
    if which::which("python3").is_err() {
        rigline_test_support::skipped("a noisy run", "there is no python3", "apt-get install python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = r#"#!/usr/bin/env python3
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        result = {"name": "noisy", "version": "1.0.0", "protocolVersion": "0.0.1", "operations": {"go": {"params": {}}}}
    elif request["method"] == "execute":
        for number in range(60000):
            sys.stderr.write("%d %s\n" % (number, "x" * 1000))
        result = {"success": True}
    else:
        result = {}
    if request.get("id") is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;
    fs::write(folder.path().join("noisy.py"), script).unwrap();
    let target = format!("exec:python3 '{}'", folder.path().join("noisy.py").display());
    let text = format!(
        "name: noisy\nconfig: {{ executor: extension, target: \"{target}\" }}\ntasks: [ {{ id: t, steps: [ {{ operation: go }} ] }} ]\n"
    );
    fs::write(folder.path().join("eval.yaml"), text).unwrap();
    let mut child = Command::new(RIGLINE)
        .args(["jsonrpc", "--runs", "runs"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", request("eval.run", json!({ "path": "eval.yaml", "verbose": true }))).unwrap();
    // It begins to read late.
    thread::sleep(Duration::from_secs(4));
    let (mut logs, mut dropped, mut complete) = (0_u64, 0_u64, Value::Null);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    while complete.is_null() {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended after {logs} logs");
        let line: Value = serde_json::from_str(&line).unwrap();
        let message = line["params"]["message"].as_str().unwrap_or_default();
        if line["method"] == "eval.complete" {
            complete = line;
        } else if let Some(count) =
            message.strip_suffix(" log lines were dropped: they came faster than they were read")
        {
            dropped += count.parse::<u64>().unwrap();
        } else if line["method"] == "eval.log" {
            logs += 1;
        }
    }
    assert_eq!(complete["params"]["summary"]["passed"], 1, "{complete}");
    assert!(dropped > 0 && logs > 0, "{logs} logs, {dropped} dropped");
    // It goes on.
    writeln!(input, "{}", request("eval.validate", json!({ "path": "eval.yaml" }))).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("\"valid\":true"), "{line}");
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// An HTTP server that answers every request with this body.
fn answering(body: &'static str) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut head).is_ok_and(|count| count > 2) {}
            let length = head.to_ascii_lowercase();
            let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
            let mut request = vec![0; length.unwrap_or_default()];
            reader.read_exact(&mut request).unwrap();
            let described = r#"{"name":"pretty","version":"1.0.0","kind":"tool","capabilities":["go"]}"#;
            let body = if head.contains("/describe") { described } else { body };
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    port
}

/// Sends a request; returns the status and the body.
fn post(address: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[test]
fn outputs_on_many_lines_pass_a_relay() {
    let port = answering(
        "{\r\n  \"ok\": true,\n  \"result\": {\n    \"nested\": {\n      \"a\": [\n        1.50,\n        \"x\\ny\"\n      ]\n    },\n    \"n\": 1\n  }\n}\n",
    );
    let upstream = format!("http://127.0.0.1:{port}/");
    for protocol in ["amplifier", "namel3ss"] {
        let server =
            ServerProcess::start(&["serve", &upstream, "--protocol", protocol, "--http", "127.0.0.1:0"], "listening");
        let (path, body) = match protocol {
            "amplifier" => ("/invoke", r#"{"op":"go","args":{}}"#),
            _ => ("/tools", r#"{"protocol_version":1,"tool_name":"go","payload":{}}"#),
        };
        let (status, answer) = post(&server.addresses()[0], path, body);
        assert_eq!(
            (status, &answer["result"]),
            (200, &json!({ "nested": { "a": [1.5, "x\ny"] }, "n": 1 })),
            "{answer}"
        );
    }
}

/// The relay passes no call on whose client is gone, and a time limit of zero as none.
#[test]
fn calls_of_vanished_http_clients_reach_no_device() {
    if which::which("python3").is_err() {
        rigline_test_support::skipped(
            "calls of vanished HTTP clients",
            "there is no python3",
            "apt-get install python3",
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = r#"#!/usr/bin/env python3
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if "op" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "gevals only"}}), flush=True)
        continue
    if request["method"] == "initialize":
        result = {"name": "slow", "version": "1.0.0", "protocolVersion": "0.0.1", "operations": {"go": {"params": {}}}}
    elif request["method"] == "execute":
        with open("calls", "a") as calls:
            calls.write("%s\n" % request["params"]["args"]["n"])
        time.sleep(request["params"]["args"]["n"])
        result = {"success": True}
    else:
        result = {}
    if request.get("id") is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;
    fs::write(folder.path().join("slow.py"), script).unwrap();
    let calls = folder.path().join("calls");
    let server = ServerProcess::start_in(
        folder,
        &["serve", "exec:python3 slow.py", "--protocol", "amplifier", "--http", "localhost:0"],
        "listening",
    );
    let address = &server.addresses()[0];
    let body = |n: f32| format!(r#"{{"op":"go","args":{{"n":{n}}}}}"#);
    thread::scope(|scope| {
        let first = scope.spawn(|| post(address, "/invoke", &body(3.0)));
        wait_until("the first call begins", || fs::read_to_string(&calls).is_ok_and(|calls| !calls.is_empty()));
        for _ in 0..10 {
            let mut gone = TcpStream::connect(address).unwrap();
            let body = body(2.0);
            let head = format!("POST /invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
            gone.write_all((head + &body).as_bytes()).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        // One that closed its sending half waits for its answer.
        let mut half = TcpStream::connect(address).unwrap();
        let body = body(0.5);
        let head = format!("POST /invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        half.write_all((head + &body).as_bytes()).unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        let start = Instant::now();
        let mut text = String::new();
        half.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"ok\":true"), "{text}");
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(first.join().unwrap().1["ok"], true);
    });
    let calls = fs::read_to_string(&calls).unwrap();
    assert_eq!(calls.lines().count(), 2, "{calls}");
}

/// Two endpoints that are connected by mistake do not answer each other for ever, whatever starts it.
#[test]
fn two_servers_on_one_line_fall_silent() {
    let servers = [
        ServerProcess::start(&["serve", "sim", "--tcp", "0"], "serving"),
        ServerProcess::jsonrpc(&["--no-token"]),
        ServerProcess::start(&["serve", "exec:cat", "--start-timeout", "1s", "--tcp", "0"], "serving"),
    ];
    let seeds = [
        "nonsense",
        "{}",
        r#"{"ok":true,"result":{}}"#,
        r#"{"ok":false,"error":{"code":"bad_request","message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        r#"{"op":"health"}"#,
        r#"{"protocol_version":1,"tool":"x","payload":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"nope"},1]"#,
    ];
    for (place, first) in servers.iter().enumerate() {
        for second in &servers[place..] {
            let ends = [first, second].map(|server| server.connect().stream);
            let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            for (from, to) in [(0, 1), (1, 0)] {
                let (mut from, mut to) = (ends[from].try_clone().unwrap(), ends[to].try_clone().unwrap());
                let count = count.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        count.fetch_add(read, std::sync::atomic::Ordering::SeqCst);
                        if to.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                    }
                });
            }
            for end in &ends {
                for seed in seeds {
                    (&*end).write_all(format!("{seed}\n").as_bytes()).unwrap();
                }
            }
            let seen = || count.load(std::sync::atomic::Ordering::SeqCst);
            wait_until("they go on", || {
                let before = seen();
                thread::sleep(Duration::from_millis(300));
                seen() == before && before > 0
            });
            assert!(seen() < 20_000, "{} bytes", seen());
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }
}

/// The requests of a client that is gone are not looked at any more.
#[test]
fn jsonrpc_begins_nothing_for_a_vanished_client() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    eval(&folder.path().join("e"), "1ms");
    for number in 0..3000 {
        eval(&folder.path().join(format!("many/{number}")), "1ms");
    }
    let runs = folder.path().join("runs");
    let server =
        ServerProcess::start_in(folder, &["jsonrpc", "--tcp", "localhost:0", "--runs", "runs", "--no-token"], "token");
    let before = fs::read_dir(&runs).unwrap().count();
    for _ in 0..5 {
        let mut gone = server.connect();
        // The first takes its time, in which the client goes.
        gone.send(&request("eval.list", json!({ "directory": "many" })));
        gone.send(&request("eval.run", json!({ "path": "e" })));
    }
    let mut client = server.connect();
    assert!(client.ask("eval.list", json!({ "directory": "many" }))["result"]["evals"].is_array());
    assert_eq!(fs::read_dir(&runs).unwrap().count(), before);
    // One that only closed its sending half has its run.
    let mut half = server.connect();
    half.send(&request("eval.run", json!({ "path": "e" })));
    half.stream.shutdown(Shutdown::Write).unwrap();
    while half.line()["method"] != "eval.complete" {}
    assert_eq!(fs::read_dir(&runs).unwrap().count(), before + 1);
}

/// A client for which there is no place is told so, although it has sent something before it reads, and so is the server's user.
#[test]
fn a_client_too_many_is_told() {
    let mut child = Command::new(RIGLINE)
        .args(["serve", "sim", "--tcp", "127.0.0.1:0", "--clients", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().rsplit_once("tcp:").unwrap().1.to_owned();
    let connect = || LineClient::new(TcpStream::connect(&address).unwrap());
    let mut clients = [connect(), connect()];
    for client in &mut clients {
        client.send(&initialize());
        assert_eq!(client.reply()["result"]["name"], "rig");
    }
    for _ in 0..3 {
        let mut third = connect();
        third.send(&initialize());
        thread::sleep(Duration::from_millis(200));
        let refused = third.line();
        let text = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(text.contains("too many clients: 2 "), "{refused}");
        assert!(third.line().is_null());
    }
    // A place that is left can be taken.
    drop(clients);
    wait_until("a place is free", || {
        let mut next = connect();
        next.send(&initialize());
        next.reply()["result"]["name"] == "rig"
    });
    let _ = child.kill();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    let _ = child.wait();
    assert_eq!(errors.matches("too many clients: 2 ").count(), 1, "{errors}");
}
