//! When the safe state is brought about, and who hears of it.

use std::convert::Infallible;

use crate::common::asynch::{In, Outcome, Session, line};
use crate::common::{FakeClock, INITIALIZE, PLAIN, Rig, SHUTDOWN, Setup, WATCHED, execute_in};
use embedded_io::{ErrorKind, ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::{Transport, blocking};
use serde_json::{Value, json};

fn call(id: u64, tool: &str, ms: u64) -> In {
    request(id, json!({"name": tool, "arguments": {"ms": ms}}))
}

fn modern_call(id: u64, tool: &str, ms: u64) -> In {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    request(id, json!({"name": tool, "arguments": {"ms": ms}, "_meta": meta}))
}

fn request(id: u64, params: Value) -> In {
    line(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string())
}

fn begin() -> In {
    line(
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}})
        .to_string(),
    )
}

fn cancel(id: u64) -> In {
    line(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).to_string())
}

fn serve(script: Vec<In>) -> Outcome {
    Session { manifest: &WATCHED, ..Session::new(script) }.serve()
}

/// The times at which the client heard that outputs were switched off.
fn warnings(served: &Outcome) -> Vec<u64> {
    let is_warning = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let data = line["params"]["data"].as_str().or(line["params"]["message"].as_str()).unwrap_or_default();
        data.contains("outputs are off") && (line["params"]["level"] == "warning" || line["params"]["level"] == "warn")
    };
    served.lines.iter().filter(|(_, line)| is_warning(line)).map(|(at, _)| *at).collect()
}

/// The replies that say so.
fn notices(served: &Outcome) -> Vec<i64> {
    let replies = served.lines.iter().map(|(_, line)| serde_json::from_str::<Value>(line).unwrap());
    replies
        .filter(|reply| reply["result"].to_string().contains("outputs_switched_off"))
        .map(|reply| reply["id"].as_i64().unwrap())
        .collect()
}

fn safe(served: &Outcome) -> usize {
    served.events.iter().filter(|event| *event == "safe").count()
}

/// SpartanLabsXyz/simmer-sdk#296.
#[test]
fn a_cancelled_call_that_changed_nothing_changes_nothing() {
    // What is sent; how often the safe state is brought about before the input ends, when that is
    // heard, and which replies say it.
    type Case = (Vec<In>, usize, Vec<u64>, Vec<i64>);
    let table: Vec<Case> = vec![
        (vec![call(1, "watch", 9000), In::At(50), cancel(1), In::At(60), call(2, "watch", 1)], 0, vec![], vec![]),
        // What was switched on before counts, though the cancelled call only watched.
        (
            vec![
                call(1, "work", 5),
                In::At(20),
                call(2, "watch", 9000),
                In::At(50),
                cancel(2),
                In::At(60),
                call(3, "watch", 1),
                call(4, "watch", 1),
            ],
            1,
            vec![50],
            vec![3],
        ),
        (vec![call(1, "work", 9000), In::At(50), cancel(1), In::At(60), call(3, "watch", 1)], 1, vec![50], vec![3]),
        // Once is enough.
        (
            vec![
                call(1, "work", 9000),
                In::At(50),
                cancel(1),
                call(2, "watch", 9000),
                In::At(80),
                cancel(2),
                In::At(90),
                call(3, "watch", 1),
            ],
            1,
            vec![50],
            vec![3],
        ),
        // A failure says it too, and an error does not take the word away.
        (
            vec![
                call(1, "work", 9000),
                In::At(50),
                cancel(1),
                request(2, json!({"name": "nope"})),
                call(3, "fail", 0),
                call(4, "watch", 1),
            ],
            1,
            vec![50],
            vec![3],
        ),
        // One that waits its turn is not begun.
        (
            vec![
                call(1, "watch", 100),
                call(2, "work", 9000),
                In::At(50),
                cancel(2),
                In::At(60),
                cancel(1),
                call(3, "watch", 1),
            ],
            0,
            vec![],
            vec![],
        ),
    ];
    for (number, (mut script, count, heard, said)) in table.into_iter().enumerate() {
        script.extend([In::At(500), line(SHUTDOWN)]);
        let served = serve(script);
        assert_eq!(
            (safe(&served), warnings(&served), notices(&served)),
            (count, heard, said),
            "{number}: {:?}",
            served.lines
        );
    }
}

/// A client of the modern era hears it if it asks for logs, and in the next reply.
#[test]
fn the_modern_era_hears_it_too() {
    for (level, heard) in [(None, vec![]), (Some("warning"), vec![50]), (Some("error"), vec![])] {
        let In::Bytes(bytes) = modern_call(1, "work", 9000) else { unreachable!() };
        let mut message: Value = serde_json::from_slice(&bytes).unwrap();
        if let Some(level) = level {
            message["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = level.into();
        }
        let served = serve(vec![
            line(message.to_string()),
            In::At(50),
            cancel(1),
            In::At(60),
            modern_call(2, "watch", 1),
            In::At(90),
        ]);
        assert_eq!((warnings(&served), notices(&served)), (heard, vec![2]), "{level:?}");
    }
}

/// A time limit ends a call as cancelling does.
#[test]
fn a_call_out_of_time_that_changed_nothing_changes_nothing() {
    let timed = |operation: &str| execute_in("1", operation, r#"{"ms":1000}"#, r#"{"timeout":"10ms"}"#);
    for (operations, count) in [(&["watch"][..], 0), (&["work"], 1), (&["work", "watch"], 1), (&["watch", "watch"], 0)]
    {
        let script: Vec<In> = operations.iter().map(|operation| line(timed(operation))).collect();
        let served = serve(script.clone());
        assert_eq!((safe(&served), warnings(&served).len()), (count, count), "{operations:?}: {:?}", served.lines);
        let text: Vec<u8> = script
            .into_iter()
            .flat_map(|part| match part {
                In::Bytes(bytes) => bytes,
                _ => vec![],
            })
            .collect();
        let (events, output) = blocking(&text, usize::MAX);
        let warned = String::from_utf8(output).unwrap().matches("outputs are off").count();
        assert_eq!((events.iter().filter(|event| *event == "safe").count(), warned), (count, count), "{operations:?}");
    }
}

/// The events of the rig, by the async driver and by the blocking one.
fn by_each_driver(lines: &[&str]) -> [Vec<String>; 2] {
    let over_async = serve(lines.iter().map(line).collect()).events;
    let (over_blocking, _) = blocking((lines.join("\n") + "\n").as_bytes(), usize::MAX);
    [over_async, over_blocking]
}

/// A refused call has changed nothing: the call after it, which only watches and is late, switches nothing off.
#[test]
fn a_refused_call_changes_nothing() {
    let watch = &execute_in("9", "watch", r#"{"ms":1000}"#, r#"{"timeout":"10ms"}"#);
    let work = &execute_in("8", "work", "{}", "{}");
    let gevals = &execute_in("1", "work", r#"{"ms":"x"}"#, "{}");
    let batch = &format!("[{gevals},{}]", gevals.replace(r#""id":1"#, r#""id":2"#));
    for refused in [
        gevals,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"work","args":{"ms":"x"},"context":{}}}"#,
        &execute_in("1", "nothing", "{}", "{}"),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"ms":"x"}}}"#,
        r#"{"op":"work","args":{"ms":"x"}}"#,
        r#"{"protocol_version":1,"tool":"work","payload":{"ms":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"rail":1}}}"#,
        batch,
    ] {
        for events in by_each_driver(&[refused, watch]) {
            assert!(!events.contains(&"safe".to_owned()), "{refused}: {events:?}");
            assert!(events.contains(&"watch".to_owned()), "{refused}: {events:?}");
        }
        // What was switched on before stays known.
        for events in by_each_driver(&[work, refused, watch]) {
            assert_eq!(events.iter().filter(|event| *event == "safe").count(), 1, "{refused}: {events:?}");
        }
    }
}

/// The end of an agent's connection switches nothing off if its only call was refused, wherever the connection breaks.
#[test]
fn the_loss_of_a_connection_after_a_refused_call_changes_nothing() {
    let call = |id: u64, args: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"work","arguments":{{{args},"_id":"a"}}}}}}"#
        )
    };
    // The driver logs that it leaves an argument out, so that there is a line to write before the reply.
    let (refused, work) = (call(1, r#""ms":"x""#), call(2, r#""ms":1"#));
    let (_, output) = blocking((refused.clone() + "\n").as_bytes(), usize::MAX);
    let log = output.iter().position(|byte| *byte == b'\n').unwrap();
    assert!(output.len() > log + 1);
    for most in [0, log, log + 2, output.len()] {
        for (text, count) in [(refused.clone(), 0), (work.clone() + "\n" + &refused, 1)] {
            let most = most + if count == 1 { 4096 } else { 0 };
            let (events, _) = blocking((text.clone() + "\n").as_bytes(), most);
            assert_eq!(events.iter().filter(|event| *event == "safe").count(), count, "{most}: {events:?}");
            let script = text.lines().map(line).collect();
            let session = Session { manifest: &WATCHED, fails: Some(most), ..Session::new(script) };
            let served = session.serve();
            assert_eq!(safe(&served), count, "{most}: {:?}", served.events);
        }
    }
}

/// A call that is refused before its turn, since its time has passed, was not begun.
#[cfg(feature = "std")]
#[test]
fn a_call_whose_time_passes_while_it_waits_changes_nothing() {
    let watch = |id: &str, timeout: &str| execute_in(id, "watch", r#"{"ms":100}"#, timeout);
    let work = execute_in("2", "work", "{}", r#"{"timeout":"20ms"}"#);
    let batch = format!("[{},{work}]", watch("1", "{}"));
    let served = serve(vec![line(batch), In::At(200), line(watch("3", r#"{"timeout":"10ms"}"#))]);
    assert_eq!(served.events, ["watch", "ended", "watch", "dropped"], "{:?}", served.lines);
}

/// The rest of a batch does not run when the driver is stopped.
#[test]
fn the_rest_of_a_batch_that_is_stopped_changes_nothing() {
    let call = |id: u64, tool: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"ms":9000}}}}}}"#
        )
    };
    for (first, count) in [("watch", 0), ("work", 1)] {
        let script = vec![line(format!("[{},{}]", call(1, first), call(2, "work"))), In::Silence];
        let served = Session { manifest: &WATCHED, stop: Some(50), ..Session::new(script) }.serve();
        assert_eq!((served.events[0].as_str(), safe(&served)), (first, count), "{:?}", served.events);
    }
}

/// The reports that a driver makes by itself go to callers who take warnings, and to nobody else.
#[test]
fn who_asked_for_no_warnings_gets_none_of_the_drivers() {
    let mcp = |operation: &str, mut meta: Value| {
        meta["rigline/timeoutMs"] = json!(10);
        let params = json!({"name": operation, "arguments": {"ms": 1000}, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
    };
    let level = |least: &str| {
        json!({"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": least}}).to_string()
    };
    let modern = |log_level: Option<&str>, token: &str| {
        let mut meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}, "progressToken": token});
        if let Some(level) = log_level {
            meta["io.modelcontextprotocol/logLevel"] = json!(level);
        }
        meta
    };
    let gevals = execute_in("1", "work", r#"{"ms":1000}"#, r#"{"timeout":"10ms"}"#);
    let notification = gevals.replacen(r#""id":1,"#, "", 1);
    // A report of progress that does not fit is a line that is dropped.
    let (log, long) = (1000, "t".repeat(1000));
    let report = |meta: Value| {
        let params = json!({"name": "work", "arguments": {"ms": 5000}, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
    };
    for (text, off, dropped) in [
        (gevals.clone(), 1, 0),
        (notification, 0, 0),
        (mcp("work", json!({})), 1, 0),
        (level("warning") + "\n" + &mcp("work", json!({})), 1, 0),
        (level("error") + "\n" + &mcp("work", json!({})), 0, 0),
        (mcp("work", modern(None, "t")), 0, 0),
        (mcp("work", modern(Some("info"), "t")), 1, 0),
        (mcp("work", modern(Some("error"), "t")), 0, 0),
        (report(json!({"progressToken": long})), 0, 1),
        (level("error") + "\n" + &report(json!({"progressToken": long})), 0, 0),
        (level("warning") + "\n" + &report(json!({"progressToken": long})), 0, 1),
        (report(modern(None, &long)), 0, 0),
        (report(modern(Some("warning"), &long)), 0, 1),
        // What a session has asked for ends with it.
        (level("error") + "\n" + INITIALIZE + "\n" + &gevals, 1, 0),
    ] {
        let count = |lines: &[String]| {
            let of = |word: &str| lines.iter().filter(|line| line.contains(word) && !line.contains("\"id\"")).count();
            (of("outputs are off"), of("dropped"))
        };
        let (_, output) = blocking_within(log, (text.clone() + "\n").as_bytes(), usize::MAX);
        let lines: Vec<String> = String::from_utf8(output).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(count(&lines), (off, dropped), "{text:.400}: {lines:?}");
        let setup = Setup { log: 2 * log, ..PLAIN };
        let script = text.lines().map(line).collect();
        let served = Session { setup, manifest: &WATCHED, ..Session::new(script) }.serve();
        let lines: Vec<String> = served.lines.into_iter().map(|(_, line)| line).collect();
        assert_eq!(count(&lines), (off, dropped), "{text:.400}: {lines:?}");
    }
}

/// The blocking driver reads nothing during a call: it notices the loss of its connection when it reports that the call goes on.
#[test]
fn a_call_whose_reports_cannot_be_sent_ends_in_the_safe_state_over_blocking_io() {
    let call = |meta: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"work\",\"arguments\":{{\"ms\":60000}},\"_meta\":{meta}}}}}\n"
        )
    };
    let (events, output) = blocking(call(r#"{"progressToken":1}"#).as_bytes(), 0);
    assert_eq!((events.as_slice(), output.len()), (&["work", "dropped", "safe"].map(str::to_owned)[..], 0));
    let (events, _) = blocking(call("{}").as_bytes(), 0);
    assert_eq!(events[..2], ["work", "ended"]);
}

/// Outputs that an agent has switched on do not outlive it, in either era; those that gevals has set up for another process do.
#[test]
fn the_end_of_the_input_ends_safely() {
    for (script, count) in [
        (vec![begin(), call(1, "work", 1), In::At(90)], 1),
        (vec![begin(), call(1, "watch", 1), In::At(90)], 1),
        (vec![modern_call(1, "work", 1), In::At(90)], 1),
        (vec![modern_call(1, "watch", 1), In::At(90)], 0),
        (vec![call(1, "work", 1), In::At(90)], 1),
        (vec![line(execute_in("1", "work", "{}", "{}")), In::At(90)], 0),
        (vec![line(INITIALIZE), line(execute_in("1", "work", "{}", "{}")), line(SHUTDOWN), In::At(90)], 0),
        (vec![line(INITIALIZE), line(execute_in("1", "work", "{}", "{}")), In::At(90)], 1),
    ] {
        let served = serve(script);
        assert_eq!(safe(&served), count, "{:?}", served.lines);
        // An unplugged wire is the same.
        assert!(served.lines.iter().all(|(at, _)| *at <= 90));
    }
}

#[test]
fn the_end_of_the_input_ends_a_call_of_a_session_within_five_seconds() {
    for (first, is_cut) in [(Some(begin()), true), (Some(line(INITIALIZE)), true), (None, false)] {
        for tool in ["work", "watch"] {
            let script: Vec<In> = first.clone().into_iter().chain([call(1, tool, 60_000), In::At(100)]).collect();
            let served = serve(script);
            let (at, reply) = served.lines.iter().rfind(|(_, line)| line.contains("\"id\":1,")).unwrap();
            assert_eq!(*at, if is_cut { 4_100 } else { 60_000 }, "{tool}: {reply}");
            assert_eq!(reply.contains("cancelled"), is_cut, "{reply}");
            assert_eq!(served.events.contains(&"dropped".to_owned()), is_cut);
            assert!(!is_cut || safe(&served) >= 1, "{:?}", served.events);
        }
    }
}

#[test]
fn a_call_of_a_session_outlives_the_end_of_the_input_where_that_is_asked_for() {
    for first in [begin(), line(INITIALIZE)] {
        let script = vec![first, call(1, "work", 60_000), In::At(100)];
        let served = Session { ends_calls: false, manifest: &WATCHED, ..Session::new(script) }.serve();
        let (at, reply) = served.lines.iter().rfind(|(_, line)| line.contains("\"id\":1,")).unwrap();
        assert_eq!((*at, reply.contains("cancelled")), (60_000, false), "{reply}");
        assert_eq!(served.events[..2], ["work", "ended"]);
    }
}

/// Where that is asked for, the outputs of a session stay on at its end; those of a call that was cut off do not.
#[test]
fn outputs_stay_on_at_the_end_where_that_is_asked_for() {
    for (keeps_outputs, kind, script, count) in [
        (false, Transport::Stdio, vec![line(INITIALIZE), call(1, "work", 1), In::At(90)], 1),
        (true, Transport::Stdio, vec![line(INITIALIZE), call(1, "work", 1), In::At(90)], 0),
        (true, Transport::Stream, vec![line(INITIALIZE), call(1, "work", 1), In::At(90)], 0),
        (true, Transport::Stream, vec![line(INITIALIZE), call(1, "work", 1), In::At(90), In::Fail], 0),
        (true, Transport::Stream, vec![line(INITIALIZE), call(1, "work", 1000), In::At(90)], 1),
        (true, Transport::Stream, vec![line(INITIALIZE), call(1, "work", 1000), In::At(90), In::Fail], 1),
    ] {
        let setup = Setup { kind, ..PLAIN };
        let served = Session { keeps_outputs, setup, manifest: &WATCHED, ..Session::new(script) }.serve();
        assert_eq!(safe(&served), count, "{kind:?} {:?}", served.lines);
    }
}

/// Serves over the blocking driver, whose output breaks after so many bytes.
fn blocking(input: &[u8], most: usize) -> (Vec<String>, Vec<u8>) {
    blocking_within(PLAIN.log, input, most)
}

fn blocking_within(log: usize, input: &[u8], most: usize) -> (Vec<String>, Vec<u8>) {
    struct Broken<'i>(&'i [u8], Vec<u8>, usize);
    impl ErrorType for Broken<'_> {
        type Error = ErrorKind;
    }
    impl Read for Broken<'_> {
        fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
            let count = self.0.len().min(buf.len());
            buf[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }
    impl Write for Broken<'_> {
        fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
            if self.1.len() >= self.2 {
                return Err(ErrorKind::BrokenPipe);
            }
            let count = buf.len().min(self.2 - self.1.len());
            self.1.extend_from_slice(&buf[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> Result<(), ErrorKind> {
            Ok(())
        }
    }
    let clock = std::rc::Rc::new(FakeClock::default());
    let mut rig = Rig::new(&clock);
    let (mut request, mut reply, mut log) = (vec![0; PLAIN.request], vec![0; PLAIN.reply], vec![0; log]);
    let mut engine = Engine::new(&WATCHED, Memory { request: &mut request, reply: &mut reply }).unwrap();
    let mut wire = Broken(input, Vec::new(), most);
    let server = blocking::Server::new(&mut rig, &mut engine, &*clock).transport(Transport::Stdio).log_buffer(&mut log);
    let _: Result<_, _> = server.serve(&mut wire);
    let _: Option<Infallible> = None;
    (rig.events.all(), wire.1)
}

#[test]
fn an_error_of_the_reader_ends_serving_over_blocking_io() {
    struct Once(std::collections::VecDeque<Result<&'static [u8], ErrorKind>>, Vec<u8>);
    impl ErrorType for Once {
        type Error = ErrorKind;
    }
    impl Read for Once {
        fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
            let bytes = self.0.pop_front().unwrap_or(Ok(b""))?;
            buf[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        }
    }
    impl Write for Once {
        fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
            self.1.extend_from_slice(buf);
            Ok(buf.len())
        }
        fn flush(&mut self) -> Result<(), ErrorKind> {
            Ok(())
        }
    }
    const INITIALIZED: &[u8] =
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"0.0.1\"}}\n";
    for (error, end) in [
        (ErrorKind::ConnectionReset, Err(rigline::serve::ServeError::Read(ErrorKind::ConnectionReset))),
        (ErrorKind::Interrupted, Ok(rigline::serve::End::Input)),
    ] {
        let clock = std::rc::Rc::new(FakeClock::default());
        let mut rig = Rig::new(&clock);
        let (mut request, mut reply) = (vec![0; PLAIN.request], vec![0; PLAIN.reply]);
        let mut engine = Engine::new(&WATCHED, Memory { request: &mut request, reply: &mut reply }).unwrap();
        let mut wire = Once([Ok(INITIALIZED), Err(error), Ok(INITIALIZED)].into(), Vec::new());
        assert_eq!(blocking::Server::new(&mut rig, &mut engine, &*clock).serve(&mut wire), end);
        assert_eq!(rig.events.all(), ["safe"], "the session was open");
        let replies = wire.1.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(replies, if end.is_ok() { 2 } else { 1 });
    }
}

#[test]
fn a_call_whose_last_log_cannot_be_written_is_cut_off_in_the_blocking_driver() {
    let text = execute_in("1", "work", r#"{"ms":1,"logs":1,"quiet":true}"#, "{}") + "\n";
    let (events, output) = blocking(text.as_bytes(), usize::MAX);
    assert_eq!(events, ["work", "ended"]);
    let log = output.iter().position(|byte| *byte == b'\n').unwrap();
    for most in [0, 1, log] {
        let (events, _) = blocking(text.as_bytes(), most);
        assert_eq!(events.last().unwrap(), "safe", "{most}: {events:?}");
        assert_eq!(events.iter().filter(|event| *event == "safe").count(), 1);
        // One that changes nothing needs none.
        let (events, _) = blocking(text.replace("work", "watch").as_bytes(), most);
        assert!(!events.contains(&"safe".to_owned()), "{events:?}");
    }
}
