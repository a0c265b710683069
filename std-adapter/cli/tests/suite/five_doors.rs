//! One bench that a shell, an eval, an agent, the page and pytest use in turn: each of them is recorded.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program, and returns what follows a word in its first line.
fn start(arguments: &[&str], folder: &Path, word: &str) -> (Running, String) {
    let mut command = Command::new(RIGLINE);
    command.args(arguments).current_dir(folder).env("XDG_STATE_HOME", folder).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let running = Running(child);
    let mut line = String::new();
    BufReader::new(&mut out).read_line(&mut line).unwrap();
    // Nobody reads the rest, and nothing may wait for a reader.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    std::thread::spawn(move || std::io::copy(&mut err, &mut std::io::sink()));
    let rest = line.split_once(word).unwrap_or_else(|| panic!("{line}")).1.trim().to_owned();
    (running, rest)
}

/// The calls of each door: it powers the board, waits for its prompt, and has it say who asked.
fn steps(who: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("all-off", json!({})),
        ("power", json!({"rail": "3V3", "on": true})),
        ("uart-expect", json!({"text": "ready\r\n> "})),
        ("uart-write", json!({"data": format!("echo from {who}\r")})),
        ("uart-expect", json!({"text": format!("\nfrom {who}\r\n")})),
    ]
}

#[test]
fn a_shell_an_eval_an_agent_the_page_and_pytest_use_one_console_and_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let record = |who: &str| folder.path().join("bench").join(who).display().to_string();
    let (_serve, target) = start(
        &["serve", "sim", "--tcp", "127.0.0.1:0", "--protocol", "mcp", "--record", &record("all")],
        folder.path(),
        " on ",
    );
    let mut doors = vec!["a shell", "an eval", "an agent", "the page"];

    for (operation, args) in steps("a shell") {
        let call = Command::new(RIGLINE)
            .args(["call", &target, operation, "--record", &record("a shell"), "--args", &args.to_string()])
            .output()
            .unwrap();
        assert!(call.status.success(), "{operation}: {}", String::from_utf8_lossy(&call.stderr));
    }

    let listed: Vec<Value> = (0..)
        .zip(steps("an eval"))
        .map(|(id, (operation, args))| json!({"id": format!("s{id}"), "operation": operation, "args": args}))
        .collect();
    let graders = json!([{"type": "console", "contains": ["rails ok", "from an eval"], "not_contains": "panic"}]);
    let task = json!({"id": "t", "name": "t", "steps": listed, "graders": graders});
    let eval = folder.path().join("eval.yaml");
    fs::write(&eval, json!({"name": "doors", "tasks": [task]}).to_string()).unwrap();
    let run = Command::new(RIGLINE)
        .args(["eval", "run", "--target", &target, "--record", &record("an eval"), "--runs"])
        .arg(folder.path().join("runs"))
        .arg(&eval)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));

    let mut mcp = Command::new(RIGLINE);
    mcp.args(["mcp", &target, "--record", &record("an agent")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut mcp = Running(mcp.spawn().unwrap());
    let (mut input, mut output) = (mcp.0.stdin.take().unwrap(), BufReader::new(mcp.0.stdout.take().unwrap()).lines());
    let mut ask = |id: usize, method: &str, params: Value| {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{line}").unwrap();
        loop {
            let line: Value = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
            if line["id"] == id {
                return line;
            }
        }
    };
    let client = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    ask(1, "initialize", hello);
    for (id, (operation, args)) in (2..).zip(steps("an agent")) {
        let tool = operation.replace('-', "_");
        let reply = ask(id, "tools/call", json!({"name": tool, "arguments": args}));
        assert!(reply["result"].is_object() && reply["result"]["isError"] != true, "{operation}: {reply}");
    }
    drop(input);
    assert!(mcp.0.wait().unwrap().success());

    let (web, url) = start(&["web", &target], folder.path(), "http://");
    let (address, token) = url.split_once("/#token=").unwrap();
    for (operation, args) in steps("the page") {
        let body = json!({"operation": operation, "args": args, "context": {}}).to_string();
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("POST /api/call?token={token} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("\"success\":true"), "{operation}: {answer}");
    }
    drop(web);

    if by_pytest(folder.path(), &target, &record("pytest")) {
        doors.push("pytest");
    }

    // One session has them all: whoever asked, and what the board said.
    let session = |file: &str| fs::read_to_string(folder.path().join("bench/all").join(file)).unwrap();
    let (calls, said) = (session("calls.jsonl"), session("uart.jsonl"));
    for who in &doors {
        assert!(calls.contains(&format!("echo from {who}")), "{who}: {calls}");
        assert!(said.contains(&format!("from {who}")), "{who}: {said}");
    }

    // The page's server records the sessions of pages, and not the calls of programs.
    for who in doors.into_iter().filter(|who| *who != "the page") {
        let heard = heard_below(Path::new(&record(who)));
        // The rig's log of what the board said, which no request has.
        assert!(heard.contains(&format!("uart: from {who}")), "{who}: {heard}");
    }
}

/// Whether pytest is there. Then it does the same.
fn by_pytest(folder: &Path, target: &str, record: &str) -> bool {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/src");
    if Command::new("python3").args(["-c", "import pytest"]).output().is_ok_and(|output| output.status.success()) {
        let test = "def test_board(rig):\n    rig.all_off()\n    rig.power(rail=\"3V3\", on=True)\n    rig.uart.expect(\"ready\\r\\n> \")\n    \
                    rig.uart.write(\"echo from pytest\\r\")\n    rig.uart.expect(\"\\nfrom pytest\\r\\n\")\n";
        fs::write(folder.join("test_doors.py"), test).unwrap();
        let run = Command::new("python3")
            .args([
                "-m",
                "pytest",
                "-q",
                "-p",
                "rigline.pytest_plugin",
                "--rigline-target",
                target,
                "--rigline-record",
                record,
                "test_doors.py",
            ])
            .current_dir(folder)
            .env("PYTHONPATH", python)
            // An installed rigline would bring the plugin a second time.
            .env("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            .env("RIGLINE_BINARY", RIGLINE)
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        true
    } else {
        rigline_test_support::skipped("the console from pytest", "there is no pytest", "pip install pytest");
        false
    }
}

/// The text of all recordings below a folder.
fn heard_below(folder: &Path) -> String {
    let mut heard = String::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            heard += &heard_below(&path);
        } else if path.file_name().is_some_and(|name| name == "uart.jsonl" || name == "session.jsonl") {
            heard += &fs::read_to_string(path).unwrap();
        }
    }
    heard
}
