//! Sessions with the rig, and what of their lines may differ between a desktop and a board.

use std::convert::Infallible;
use std::time::{Duration, Instant as StdInstant};

use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::Transport;
use rigline::serve::blocking::serve;
use rigline::{Clock, Extension, Instant};
use rigline_rig::Rig;
use rigline_rig::sim::SimBoard;
use serde_json::Value;

/// The gevals text's example session, adapted to the rig, and what may go wrong in one. A busy computer does not change its
/// lines: the board under test is up before it is waited for.
pub const SESSION: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":true},"context":{"workdir":"/tasks/boot","phase":"setup"}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"measure","args":{"channel":"3V3"},"context":{"workdir":"/tasks/boot","phase":"verify","agent":{"prompt":"Power the board","output":"Done"}}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"execute","params":{"operation":"wait-for","args":{"channel":"5V0","min":4.75,"max":5.25,"within_ms":600},"context":{"workdir":"/tasks/boot","phase":"verify","timeout":"5m"}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"execute","params":{"operation":"wait-pin","args":{"pin":"LED","high":true},"context":{"workdir":"/tasks/boot","phase":"verify"}}}"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"execute","params":{"operation":"wait-pin","args":{"pin":"LED2","high":true,"within_ms":100},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":"\u00e9\"","method":"execute","params":{"operation":"gpio-write","args":{"pin":"GP14","high":true},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"GP15"},"context":{"phase":""}}}"#,
    r#"{"jsonrpc":"2.0","id":8,"method":"execute","params":{"operation":"press","args":{"button":"USER","ms":30},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":9,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"LED2"},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":10,"method":"execute","params":{"operation":"power","args":{"rail":"1V8","on":true},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":11,"method":"execute","params":{"operation":"power","args":{"rail":5},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":12,"method":"execute","params":{"operation":"explode","args":{},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":13,"method":"execute","params":{"operation":"wait-for","args":{"channel":"AUX","min":1,"max":2},"context":{"timeout":"50ms"}}}"#,
    r#"{"jsonrpc":"2.0","id":14,"method":"execute","params":{"operation":"self-test","args":null,"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":15,"method":"execute","params":{"operation":"identify","args":null,"context":{}}}"#,
    r#"[{"jsonrpc":"2.0","id":16,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"GP14"},"context":{}}},{"jsonrpc":"2.0","id":17,"method":"nope"}]"#,
    r#"{"jsonrpc":"2.0","id":18,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":false},"context":{"phase":"cleanup"}}}"#,
    r#"{"jsonrpc":"2.0","id":19,"method":"shutdown","params":{}}"#,
];

/// What the rig on a simulated board answers to these lines, on this computer's clock.
///
/// # Panics
/// When the rig does.
pub fn on_the_desktop(lines: &[&str], limits: (usize, usize)) -> Vec<String> {
    let mut rig = Rig::new(SimBoard::new(WallClock::new(), 1), limits);
    let (mut request, mut reply, mut log) = (vec![0; limits.0 + 1], vec![0; limits.1 + 1], vec![0; 2048]);
    let mut engine =
        Engine::new(rig.manifest(), Memory { request: &mut request, reply: &mut reply }).expect("large enough");
    let input: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    let mut pipe = Pipe { input: input.as_bytes(), output: Vec::new() };
    let clock = WallClock::new();
    serve(&mut rig, &mut engine, &mut pipe, Transport::Process, &mut log, &clock).expect("a pipe does not fail");
    String::from_utf8(pipe.output).expect("JSON is UTF-8").lines().map(str::to_owned).collect()
}

/// Masks what may differ: measured values, times, and who the board is; and leaves out logs that only say that a wait goes on.
pub fn comparable(lines: &[String]) -> Vec<String> {
    let lines = lines.iter().map(|line| mask(line));
    lines.filter(|line| !(line.contains(r#""level":"debug""#) && line.contains(" after # ms"))).collect()
}

fn mask(line: &str) -> String {
    if line.contains("uptime_ms") {
        let mut reply: Value = serde_json::from_str(line).expect("a line is JSON");
        let outputs = reply["result"]["outputs"].as_object_mut().expect("identify has outputs");
        for name in ["board", "git", "uptime_ms", "reset"] {
            outputs.shift_remove(name);
        }
        reply["result"]["message"] = Value::Null;
        return reply.to_string();
    }
    let mut masked = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let length = rest[start..].find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len() - start);
        let (before, number) = (&rest[..start], &rest[start..start + length]);
        masked.push_str(before);
        let is_time = [" after ", r#"waited_ms":"#, r#"waited_ms":""#].iter().any(|end| before.ends_with(end));
        masked.push_str(if is_time || number.contains('.') { "#" } else { number });
        rest = &rest[start + length..];
    }
    masked + rest
}

#[derive(Debug)]
struct WallClock(StdInstant);

impl WallClock {
    /// All of a process's clocks agree.
    fn new() -> Self {
        static START: std::sync::OnceLock<StdInstant> = std::sync::OnceLock::new();
        Self(*START.get_or_init(StdInstant::now))
    }
}

impl Clock for WallClock {
    fn now(&self) -> Instant {
        Instant::default().after(self.0.elapsed())
    }

    fn idle(&self) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

struct Pipe<'a> {
    input: &'a [u8],
    output: Vec<u8>,
}

impl ErrorType for Pipe<'_> {
    type Error = Infallible;
}

impl Read for Pipe<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        self.input.read(buf)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        self.output.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
