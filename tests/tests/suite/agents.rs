//! Agents on the emulated board.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rigline_tests::emulator::Emulator;
use rigline_tests::session::rigline;
use serde_json::{Value, json};

use crate::lab::Port;

/// How long a board may take to come or to go. The emulator starts in that time, on a busy computer too.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of `rigline mcp` on standard input and output. Dropping it kills the server.
struct Agent {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    /// How often it was told that its tools are others.
    changes: usize,
}

impl Agent {
    fn start(target: &str, state: &Path) -> Self {
        let mut command = Command::new(rigline());
        command.args(["mcp", target]).env("XDG_STATE_HOME", state);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
        let mut agent = Self { server, input, output, next: 1, changes: 0 };
        let client = json!({"name": "tests", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        let begun = agent.ask("initialize", params);
        assert_eq!(begun["capabilities"]["tools"]["listChanged"], true, "{begun}");
        writeln!(agent.input, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        agent
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        writeln!(self.input, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            if line["method"] == "notifications/tools/list_changed" {
                self.changes += 1;
            } else if line["id"] == id {
                return line["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The description of a tool, if it is listed.
    fn description(&mut self, tool: &str) -> Option<String> {
        let listed = self.ask("tools/list", json!({}));
        let tools = listed["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
        let tool = tools.iter().find(|found| found["name"] == tool)?;
        Some(tool["description"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the tools are as they should be. The client was told of each change.
    #[track_caller]
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let (started, before) = (Instant::now(), self.changes);
        while !is_so(self) {
            assert!(started.elapsed() < PATIENCE, "not in a minute: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
        // What was said before the tools were listed is read by now.
        assert!(self.changes > before, "{what}: the client was not told");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn is_absent(agent: &mut Agent) -> bool {
    agent.description("measure").is_some_and(|text| text.starts_with("Absent"))
}

fn is_present(agent: &mut Agent) -> bool {
    agent.description("measure").is_some_and(|text| !text.starts_with("Absent"))
}

/// Reports: minhalvp/android-mcp-server#18, maximhq/bifrost#6885.
#[test]
fn an_emulated_board_comes_and_goes_under_a_client_and_comes_back_with_other_firmware() {
    let Some(board) = Emulator::start("rig") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ttyACM0");
    let target = format!("serial:{}", path.display());
    let mut agent = Agent::start(&target, folder.path());
    assert!(agent.description("find_board").is_some() && agent.description("measure").is_none());

    let port = Port::named(&path, board.usb_port());
    agent.until("the board comes", is_present);
    let measured = agent.call("measure", json!({"channel": "3V3"}));
    assert!(measured["structuredContent"]["volts"].is_number(), "{measured}");
    let powered = agent.call("power", json!({"rail": "3V3", "on": true}));
    assert!(powered["isError"] != true, "{powered}");

    drop((port, board));
    agent.until("the board goes", is_absent);
    let missing = agent.call("measure", json!({"channel": "3V3"}));
    assert!(missing["isError"] == true && missing.to_string().contains("ttyACM0"), "{missing}");

    let Some(board) = Emulator::start("rig") else { return };
    let port = Port::named(&path, board.usb_port());
    agent.until("the board comes back", is_present);
    let measured = agent.call("measure", json!({"channel": "3V3"}));
    assert!(measured["structuredContent"]["volts"].is_number(), "{measured}");
    assert!(agent.description("count").is_none());

    drop((port, board));
    agent.until("the board goes again", is_absent);
    // Its next firmware has more operations.
    let Some(board) = Emulator::start("rig-bench") else { return };
    let port = Port::named(&path, board.usb_port());
    agent.until("the board comes with other firmware", |agent| {
        agent.description("count").is_some() && is_present(agent)
    });
    let counted = agent.call("count", json!({}));
    assert!(counted["isError"] != true, "{counted}");
    drop(agent);

    // A server that starts without the board lists what it had last.
    drop((port, board));
    let mut agent = Agent::start(&target, folder.path());
    assert!(agent.description("count").is_some_and(|text| text.starts_with("Absent")));
    let missing = agent.call("count", json!({}));
    assert!(missing["isError"] == true && missing.to_string().contains("ttyACM0"), "{missing}");
}
