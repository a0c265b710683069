//! The driver over `embedded-io-async`: what goes on while a handler awaits.

use crate::common::asynch::{In, Session, line};
use crate::common::{INITIALIZE, PLAIN, SHUTDOWN, Setup, execute, execute_in, id_and_code, joined, request};
use embedded_io::ErrorKind;
use rigline::exchange::LEAST_REPLY;
use rigline::serve::{End, ServeError, Transport};

fn codes(lines: &[(u64, String)]) -> Vec<(u64, String, i64)> {
    lines
        .iter()
        .filter(|(_, line)| !line.contains(r#""method":"log""#))
        .map(|(at, line)| {
            let (id, code) = id_and_code(line);
            (*at, id, code)
        })
        .collect()
}

fn expected(replies: &[(u64, &str, i64)]) -> Vec<(u64, String, i64)> {
    replies.iter().map(|(at, id, code)| (*at, (*id).to_owned(), *code)).collect()
}

fn wire(script: Vec<In>) -> Session {
    Session { setup: Setup { kind: Transport::Stream, ..PLAIN }, ..Session::new(script) }
}

const WORK_100: &str = r#"{"ms":100}"#;

#[test]
fn faults_are_answered_at_once_and_calls_in_their_turn() {
    let script = vec![
        line(execute("1", "work", WORK_100)),
        In::At(20),
        line("oops"),
        In::At(30),
        line(request("2", "nope")),
        line(execute("3", "work", WORK_100)),
        In::At(40),
        line(r#"{"jsonrpc":"2.0","id":4,"method":7}"#),
        line("[1,"),
        line(r#"{"jsonrpc":"2.0","method":"note"}"#),
        line(r#"{"jsonrpc":"2.0","id":1,"result":1}"#),
        In::At(50),
        line("[1]"),
        In::Bytes(b"half".to_vec()),
        In::At(60),
        line(" a line"),
        In::At(150),
        line("{"),
    ];
    for cuts in [None, Some((1, 1)), Some((2, 9)), Some((3, 100))] {
        let served = Session { setup: Setup { cuts, ..PLAIN }, ..Session::new(script.clone()) }.serve();
        assert_eq!(served.result, Ok(End::Input));
        let replies: Vec<_> = served.lines.iter().filter(|(_, line)| !line.starts_with('[')).cloned().collect();
        let wanted = [
            (20, "null", -32700),
            (40, "4", -32600),
            (40, "null", -32700),
            (60, "null", -32700),
            (100, "1", 0),
            (100, "2", -32601),
            (150, "null", -32700),
            (200, "3", 0),
        ];
        assert_eq!(codes(&replies), expected(&wanted), "{cuts:?}");
        assert!(served.lines.last().unwrap().1.starts_with("[{"), "a batch waits its turn too");
        assert_eq!(served.events, ["work", "ended", "work", "ended"]);
    }
}

/// The protocol of a line counts for the lines after it, and for none before it, although they wait together.
#[test]
fn a_line_that_waits_is_of_the_protocol_of_the_line_before_it() {
    let script = vec![
        line(execute("1", "work", r#"{"ms":50}"#)),
        In::At(10),
        line("[1]"),
        line(r#"{"op":"health"}"#),
        line("[1]"),
        In::At(500),
    ];
    let served = Session::new(script).serve();
    let [_, (_, first), (_, health), (_, last)] = &served.lines[..] else { panic!("{:?}", served.lines) };
    assert!(first.starts_with(r#"[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"#), "{first}");
    assert_eq!(health, r#"{"status":"ok"}"#);
    assert!(last.starts_with(r#"{"ok":false,"#), "{last}");
}

/// With a log region too small for it, a fault waits until the call has ended. What is over-long
/// waits too.
#[test]
fn faults_that_cannot_be_answered_at_once_are_answered_after() {
    let script = vec![
        line(execute("1", "work", r#"{"ms":50,"logs":2}"#)),
        In::At(20),
        line("oops"),
        line("x".repeat(10_000)),
        line(request("2", "nope")),
    ];
    let setup = Setup { log: 2 * LEAST_REPLY - 2, cuts: Some((5, 300)), ..PLAIN };
    let served = Session { setup, ..Session::new(script) }.serve();
    let wanted = [(100, "1", 0), (100, "null", -32700), (100, "null", -32700), (100, "2", -32601)];
    assert_eq!(codes(&served.lines), expected(&wanted));
    let script = vec![line(execute("1", "work", r#"{"ms":100}"#)), In::At(20), line("oops"), In::At(200)];
    for (log, at) in [(2 * LEAST_REPLY - 2, 100), (2 * LEAST_REPLY, 20)] {
        let served = Session { setup: Setup { log, ..PLAIN }, ..Session::new(script.clone()) }.serve();
        let fault = served.lines.iter().find(|(_, line)| line.contains("-32700")).unwrap();
        assert_eq!(fault.0, at, "{log}");
    }
}

#[test]
fn logs_are_out_while_the_handler_runs() {
    let served = Session::new(vec![line(execute("1", "work", r#"{"ms":10,"logs":5}"#))]).serve();
    let times: Vec<_> = served.lines.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 10, 20, 30, 40, 50]);
}

/// A transport that is interrupted every other time, takes few bytes at a time, and fails in the end: as with the blocking driver.
struct Bad {
    input: std::collections::VecDeque<u8>,
    interrupted: std::cell::Cell<bool>,
    output: Vec<u8>,
    longest: usize,
    /// Bytes after which writing fails, and how: an error or `Ok(0)`.
    fails: Option<(usize, Option<ErrorKind>)>,
    /// After how many flushes one fails.
    flushes: usize,
}

impl Bad {
    fn interrupt(&self) -> Result<(), ErrorKind> {
        self.interrupted.set(!self.interrupted.get());
        if self.interrupted.get() { Err(ErrorKind::Interrupted) } else { Ok(()) }
    }
}

impl embedded_io::ErrorType for Bad {
    type Error = ErrorKind;
}

impl embedded_io_async::Read for Bad {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        self.interrupt()?;
        let count = buf.len().min(self.input.len());
        buf.iter_mut().zip(self.input.drain(..count)).for_each(|(place, byte)| *place = byte);
        Ok(count)
    }
}

impl embedded_io_async::Write for Bad {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        self.interrupt()?;
        let mut count = buf.len().min(self.longest);
        if let Some((after, how)) = self.fails {
            count = count.min(after - self.output.len());
            if count == 0 {
                return how.map_or(Ok(0), Err);
            }
        }
        self.output.extend_from_slice(&buf[..count]);
        Ok(count)
    }

    async fn flush(&mut self) -> Result<(), ErrorKind> {
        if self.flushes == 0 {
            return Err(ErrorKind::TimedOut);
        }
        self.flushes -= 1;
        Ok(())
    }
}

#[test]
fn short_and_interrupted_writes_leave_no_gap() {
    let lines = [INITIALIZE.to_owned(), execute("1", "say", r#"{"text":"0123456789","times":200}"#)];
    let whole = PLAIN.serve(joined(&lines)).output;
    let serve = |longest, fails, flushes| {
        let input = joined(&lines).into();
        let new = |input| Bad { input, interrupted: false.into(), output: Vec::new(), longest, fails, flushes };
        let (mut reader, mut writer) = (new(input), new(std::collections::VecDeque::new()));
        let clock = std::rc::Rc::default();
        let mut rig = crate::common::Rig::new(&clock);
        let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 256]);
        let memory = rigline::engine::Memory { request: &mut request, reply: &mut reply };
        let mut engine = rigline::engine::Engine::new(&crate::common::MANIFEST, memory).unwrap();
        let result = {
            let server = rigline::serve::asynch::Server::new(&mut rig, &mut engine, &*clock).log_buffer(&mut log);
            let mut serving = std::pin::pin!(server.serve(&mut reader, &mut writer));
            let mut task = std::task::Context::from_waker(std::task::Waker::noop());
            loop {
                if let std::task::Poll::Ready(result) = std::future::Future::poll(serving.as_mut(), &mut task) {
                    break result;
                }
                clock.ring();
            }
        };
        (result, rig.events.count("safe"), writer.output)
    };
    for longest in [1, 7, 64, 65, 100_000] {
        assert_eq!(serve(longest, None, usize::MAX), (Ok(End::Input), 1, whole.clone()));
    }
    for after in [0, 1, 100, 1999] {
        for (how, error) in
            [(None, ServeError::WriteZero), (Some(ErrorKind::BrokenPipe), ServeError::Write(ErrorKind::BrokenPipe))]
        {
            assert_eq!(serve(64, Some((after, how)), usize::MAX), (Err(error), 1, whole[..after].to_vec()));
        }
    }
    // What cannot be flushed is a loss too, and nothing is written after it.
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let interrupted = ServeError::Write(ErrorKind::TimedOut);
    let (result, safe, output) = serve(64, None, 0);
    assert_eq!((result, safe, output.len()), (Err(interrupted), 0, 0), "the flush that an interrupted read asks for");
    let (result, safe, output) = serve(64, None, 1);
    assert_eq!((result, safe, &output[..]), (Err(interrupted), 1, &whole[..first]));
}

/// A transport may take a log at once, but none before one that waits.
#[test]
fn a_log_is_offered_to_the_transport_unless_it_would_overtake_another() {
    let number = |line: &str| line.split("\"log ").nth(1).map(|rest| rest[..1].to_owned());
    let run = |args: &str, takes: fn(usize) -> bool| {
        let script = vec![line(execute("1", "work", args))];
        let served = Session { takes: Some(takes), ..Session::new(script) }.serve();
        let taken = served.events.iter().filter(|event| event.starts_with("took {") && event.ends_with("}\n"));
        let queued = served.lines.iter().filter_map(|(at, line)| Some((*at, number(line)?)));
        (taken.filter_map(|line| number(line)).collect::<String>(), queued.collect::<Vec<_>>())
    };
    let queued =
        |lines: &[(u64, &str)]| lines.iter().map(|(at, number)| (*at, (*number).to_owned())).collect::<Vec<_>>();
    for args in [r#"{"ms":10,"logs":3}"#, r#"{"ms":10,"logs":3,"quiet":true}"#] {
        assert_eq!(run(args, |_| true), ("012".to_owned(), vec![]), "{args}");
    }
    // What was refused goes out as soon as the handler awaits; those behind it are offered after that only.
    assert_eq!(run(r#"{"ms":10,"logs":3}"#, |number| number > 0), ("12".to_owned(), queued(&[(0, "0")])));
    let all = queued(&[(0, "0"), (0, "1"), (0, "2")]);
    assert_eq!(run(r#"{"ms":10,"logs":3,"quiet":true}"#, |number| number > 0), (String::new(), all));
}

/// A handler that does not await between its logs can fill the queue.
#[test]
fn a_full_queue_drops_whole_lines_and_reports_them() {
    for log in [700, 1200, 2000, 4000, 20_000] {
        for cuts in [None, Some((7, 5))] {
            let script = vec![line(execute("1", "work", r#"{"logs":50,"ms":5,"quiet":true,"text":"\u0001é"}"#))];
            let served = Session { setup: Setup { log, cuts, ..PLAIN }, ..Session::new(script) }.serve();
            let (logs, rest): (Vec<_>, Vec<_>) = served.lines.iter().partition(|(_, line)| line.contains("\"log "));
            let dropped: usize = rest
                .iter()
                .filter_map(|(_, line)| {
                    let (before, _) = line.split_once(" log line")?;
                    before.rsplit('"').next()?.parse::<usize>().ok()
                })
                .sum();
            assert_eq!(logs.len() + dropped, 50, "{log}");
            assert_eq!(dropped > 0, log < 8000, "{log}");
            assert_eq!(codes(&rest.into_iter().cloned().collect::<Vec<_>>()), expected(&[(5, "1", 0)]));
        }
    }
}

#[test]
fn end_of_input_during_a_call() {
    let call =
        || vec![line(INITIALIZE), line(execute("1", "work", r#"{"ms":50,"logs":2}"#)), line(request("2", "nope"))];
    // A process finishes what is in hand, and what came before the end.
    let served = Session::new(call()).serve();
    assert_eq!(served.result, Ok(End::Input));
    assert_eq!(codes(&served.lines), expected(&[(0, "\"init\"", 0), (100, "1", 0), (100, "2", -32601)]));
    assert_eq!(served.events, ["work", "ended", "safe"]);
    // A last line without an end counts.
    let mut script = call();
    script.push(In::At(20));
    script.push(In::Bytes(request("3", "shutdown").into_bytes()));
    let served = Session::new(script).serve();
    assert_eq!(served.result, Ok(End::Shutdown));
    assert_eq!(codes(&served.lines)[3..], expected(&[(100, "3", 0)]));
    assert_eq!(served.events, ["work", "ended"]);
    // On a wire it is a loss: the call is cancelled and the rig made safe, once.
    for initialize in [true, false] {
        for at in [0, 20, 60] {
            let mut script = call();
            script.drain(..usize::from(!initialize));
            script.push(In::At(at));
            let served = wire(script).serve();
            assert_eq!(served.result, Ok(End::Input));
            assert_eq!(codes(&served.lines).len(), usize::from(initialize), "nobody is there to be answered");
            assert_eq!(served.events, ["work", "dropped", "safe"]);
        }
    }
}

#[test]
fn a_connection_lost_during_a_call() {
    for kind in [Transport::Stdio, Transport::Stream] {
        let script = vec![line(INITIALIZE), line(execute("1", "work", WORK_100)), In::At(30), In::Fail];
        let served = Session { setup: Setup { kind, ..PLAIN }, ..Session::new(script) }.serve();
        assert_eq!(served.result, Err(ServeError::Read(ErrorKind::ConnectionReset)));
        assert_eq!(served.events, ["work", "dropped", "safe"]);
        // Between calls, after `shutdown`, and without a session.
        for (lines, safe) in [
            (vec![INITIALIZE.to_owned(), execute("1", "say", "{}")], 1),
            (vec![INITIALIZE.to_owned(), SHUTDOWN.to_owned()], 0),
            (vec![execute("1", "say", "{}")], 0),
        ] {
            let script = vec![In::Bytes(joined(&lines)), In::At(10), In::Fail];
            let served = wire(script).serve();
            assert!(served.result.is_err());
            assert_eq!(served.events.iter().filter(|event| *event == "safe").count(), safe);
        }
    }
}

#[test]
fn a_writer_that_fails_during_a_call() {
    let script = vec![line(INITIALIZE), line(execute("1", "work", r#"{"ms":10,"logs":9}"#)), In::Silence];
    let whole = Session { stop: Some(500), ..wire(script.clone()) }.serve();
    let first = whole.output.iter().position(|byte| *byte == b'\n').unwrap();
    for after in (0..whole.output.len()).step_by(13) {
        let served = Session { fails: Some(after), ..wire(script.clone()) }.serve();
        assert_eq!(served.result, Err(ServeError::Write(ErrorKind::BrokenPipe)));
        assert_eq!(served.output, whole.output[..after], "nothing after the cut");
        assert_eq!(served.events.iter().filter(|event| *event == "safe").count(), 1, "{after} {first}");
    }
}

#[test]
fn told_to_stop() {
    // While nothing happens.
    let stop = |at, script| Session { stop: Some(at), ..wire(script) }.serve();
    let served = stop(30, vec![line(INITIALIZE), In::Silence]);
    assert_eq!((served.result, served.events), (Ok(End::Stopped), vec!["safe".to_owned()]));
    let served = stop(30, vec![line(execute("1", "say", "{}")), In::Silence]);
    assert_eq!((served.result, served.events.contains(&"safe".to_owned())), (Ok(End::Stopped), false));
    // During a call: it is cancelled, answered, and the rig made safe; what waits is not begun.
    for initialize in [true, false] {
        let mut script =
            vec![line(INITIALIZE), line(execute("1", "work", WORK_100)), line(execute("2", "say", "{}")), In::Silence];
        script.drain(..usize::from(!initialize));
        let served = stop(30, script);
        assert_eq!(served.result, Ok(End::Stopped));
        assert_eq!(codes(&served.lines).last(), expected(&[(30, "1", -32000)]).last());
        assert_eq!(served.events[..3], ["work", "dropped", "safe"]);
        assert!(served.events[3..].iter().all(|event| event == "safe"));
    }
    // During calls that do not await: the one in hand ends as it will, and no other is begun.
    let stubborn = |id: &str| execute(id, "stubborn", r#"{"ms":50}"#);
    let served = stop(30, [INITIALIZE.to_owned(), stubborn("1"), stubborn("2"), stubborn("3")].map(line).to_vec());
    assert_eq!(served.result, Ok(End::Stopped));
    assert_eq!(codes(&served.lines)[1..], expected(&[(50, "1", 0)]));
    assert_eq!(served.events, ["stubborn", "ended", "safe"]);
    let served = stop(30, vec![line(format!("[{},{}]", stubborn("1"), stubborn("2"))), In::Silence]);
    assert!(served.lines.last().unwrap().1.contains(r#""id":2,"error":{"code":-32000"#), "{:?}", served.lines);
    assert_eq!(served.events, ["stubborn", "ended"]);
    // During a batch: one line all the same.
    let work = |id| execute(id, "work", WORK_100);
    let served = stop(130, vec![line(format!("[{},{},{}]", work("1"), work("2"), work("3"))), In::Silence]);
    assert_eq!(served.result, Ok(End::Stopped));
    let members: Vec<serde_json::Value> = serde_json::from_str(&served.lines.last().unwrap().1).unwrap();
    let codes: Vec<_> = members.iter().map(|member| member["error"]["code"].as_i64().unwrap_or(0)).collect();
    assert_eq!(codes, [0, -32000, -32000]);
    assert_eq!(served.events.iter().filter(|event| *event == "work").count(), 2);
}

/// More comes in than there is room for while a call runs: the peer waits, and nothing is lost.
#[test]
fn back_pressure_during_a_call() {
    let mut script = vec![line(execute("0", "work", WORK_100))];
    script.extend((1..50).map(|id| line(execute(&id.to_string(), "work", r#"{"ms":1,"logs":1}"#))));
    for (request, cuts) in [(160, None), (200, Some((3, 7))), (4096, Some((4, 100)))] {
        let setup = Setup { request, cuts, ..PLAIN };
        let served = Session { setup, ..Session::new(script.clone()) }.serve();
        let replies: Vec<_> = codes(&served.lines).into_iter().map(|(_, id, code)| (id, code)).collect();
        assert_eq!(replies, (0..50).map(|id| (id.to_string(), 0)).collect::<Vec<_>>());
    }
}

/// Logs that do not go out as lines take nothing from the room of those that do.
#[test]
fn calls_of_several_protocols_log_one_after_the_other() {
    let amplifier = r#"{"op":"work","args":{"ms":1,"logs":2}}"#;
    let namel3ss = r#"{"protocol_version":1,"tool":"work","payload":{"ms":1,"logs":2}}"#;
    let gevals = &execute("1", "work", r#"{"ms":1,"logs":2}"#);
    for lines in [[amplifier, gevals], [namel3ss, gevals], [gevals, amplifier]] {
        let mut script: Vec<_> = lines.iter().chain(&lines).map(line).collect();
        script.push(In::At(50));
        let served = wire(script).serve();
        let logs = served.lines.iter().filter(|(_, line)| line.contains(r#""method":"log""#)).count();
        assert_eq!((logs, served.lines.len() - logs), (4, 4), "{:?}", served.lines);
    }
}

/// A wire that is lost while the request region is full of lines that wait: the call is cut off and
/// the rails go off.
#[test]
fn a_loss_is_noticed_while_the_request_region_is_full() {
    let waiting = line(execute("2", "work", WORK_100));
    let In::Bytes(bytes) = &waiting else { unreachable!() };
    let first = line(execute("1", "work", r#"{"ms":60000}"#));
    let In::Bytes(first_bytes) = &first else { unreachable!() };
    // Exactly as many bytes as there is room for.
    let request = first_bytes.len() + 3 * bytes.len() + 20;
    let script = vec![
        line(INITIALIZE),
        first.clone(),
        waiting.clone(),
        waiting.clone(),
        waiting.clone(),
        In::Bytes(vec![b' '; 20]),
        In::At(50),
        In::Fail,
    ];
    let served = Session { setup: Setup { kind: Transport::Stream, request, ..PLAIN }, ..Session::new(script) }.serve();
    assert!(matches!(served.result, Err(ServeError::Read(_))), "{:?}", served.result);
    assert!(served.events.iter().any(|event| event.contains("safe")), "{:?}", served.events);
    assert!(!served.events.iter().any(|event| event.contains("ended")), "{:?}", served.events);
}

/// The byte that is read to notice a loss is not lost itself, however the bytes come.
#[test]
fn no_byte_is_lost_at_a_full_request_region() {
    let one = |id: u32| execute(&id.to_string(), "work", r#"{"ms":10}"#);
    let script: Vec<In> = (1..40).map(|id| line(one(id))).collect();
    for request in [one(1).len() * 3, one(1).len() * 3 + 1, one(1).len() * 4 + 7] {
        for cuts in [None, Some((1, 1)), Some((3, 40))] {
            let setup = Setup { request, cuts, ..PLAIN };
            let served = Session { setup, ..Session::new(script.clone()) }.serve();
            let replies: Vec<_> = served.lines.iter().filter(|(_, line)| !line.contains("\"method\"")).collect();
            assert_eq!(replies.len(), 39, "{request} {cuts:?}");
            assert!(replies.iter().all(|(_, line)| line.contains(r#""success":true"#)), "{replies:?}");
        }
    }
}

/// The time limit of a call that waits counts from its arrival, if lines are looked at before their turn. For that, their replies need room.
#[test]
fn a_call_whose_time_is_up_is_refused_at_once_where_there_is_room() {
    let second = execute_in("2", "work", r#"{"ms":1}"#, r#"{"timeout":"20ms"}"#);
    let mut counts = [0; 2];
    for log in (LEAST_REPLY - 4..LEAST_REPLY + 4).chain(2 * LEAST_REPLY - 4..2 * LEAST_REPLY + 4) {
        let script = vec![line(execute("1", "work", WORK_100)), line(&second), In::At(300)];
        let replies = codes(&Session { setup: Setup { log, ..PLAIN }, ..Session::new(script) }.serve().lines);
        let has_room = replies[0].1 == "2";
        counts[usize::from(has_room)] += 1;
        let wanted: &[_] = if has_room { &[(20, "2", -32001), (100, "1", 0)] } else { &[(100, "1", 0), (101, "2", 0)] };
        assert_eq!(replies, expected(wanted), "{log}");
    }
    assert!(counts[0] > 3 && counts[1] > 3, "{counts:?}");
}

/// The time limits of calls that wait are forgotten with a connection that is lost.
#[test]
fn the_limits_of_a_lost_connection_are_not_those_of_the_next() {
    let limited = |id| line(execute_in(id, "work", r#"{"ms":1}"#, r#"{"timeout":"20ms"}"#));
    let script = vec![line(execute("1", "work", r#"{"ms":1000}"#)), limited("2"), limited("3"), In::At(10), In::Fail];
    let next = vec![In::At(20), line(execute("11", "work", WORK_100)), limited("12"), In::At(300)];
    let setup = Setup { kind: Transport::Stream, ..PLAIN };
    let served = Session { setup, next: Some(next), ..Session::new(script) }.serve();
    assert_eq!(codes(&served.lines), expected(&[(40, "12", -32001), (120, "11", 0)]));
}

/// After a stop nothing more is read, whether the call had a reply or not: here the end of a line for which there was no room.
#[test]
fn a_stop_during_a_call_without_a_reply() {
    let first = execute("1", "work", WORK_100).replace(r#""id":1,"#, "");
    let second = request("7", "nope");
    let setup = Setup { request: first.len() + second.len(), ..PLAIN };
    let script = vec![line(first), line(second), In::Silence];
    let served = Session { setup, stop: Some(30), ..Session::new(script) }.serve();
    assert_eq!(served.result, Ok(End::Stopped));
    assert_eq!(served.events[..3], ["work", "dropped", "safe"]);
    assert!(served.lines.iter().all(|(_, line)| !line.contains(r#""id":7"#)), "{:?}", served.lines);
}

/// A caller that keeps the session over a pause of the input: only half a line is forgotten.
#[test]
fn a_pause_ends_neither_the_session_nor_what_it_has_switched_on() {
    let pause = |script: Vec<In>, resumed: Vec<In>| {
        let setup = Setup { kind: Transport::Stream, ..PLAIN };
        Session { setup, resumed: Some(resumed), ..Session::new(script) }.serve()
    };
    let say = |id: &str| line(execute(id, "say", "{}"));
    let served = pause(
        vec![line(INITIALIZE), say("1"), In::Bytes(b"half a line".to_vec())],
        vec![say("2"), In::At(50), line(SHUTDOWN)],
    );
    assert_eq!(served.result, Ok(End::Input));
    assert_eq!(codes(&served.lines), expected(&[(0, "\"init\"", 0), (0, "1", 0), (0, "2", 0), (50, "\"end\"", 0)]));
    assert_eq!(served.events, ["say", "ended", "pause", "say", "ended"]);
    // The loss of the connection after it is one as ever.
    let served = pause(vec![line(INITIALIZE)], vec![say("2")]);
    assert_eq!(served.events, ["pause", "say", "ended", "safe"]);
    // A call that the pause has cut off is made safe before it.
    let served = pause(vec![line(execute("1", "work", WORK_100)), In::At(50)], vec![say("2")]);
    assert_eq!(served.events, ["work", "dropped", "safe", "pause", "say", "ended"]);
    // What is no end of the input is no pause.
    let served = pause(vec![line(INITIALIZE), In::Fail], vec![say("2")]);
    assert_eq!(
        (served.result, served.events),
        (Err(ServeError::Read(ErrorKind::ConnectionReset)), vec!["safe".to_owned()])
    );
}

/// On a desktop the time limit of a call counts from its arrival.
#[cfg(feature = "std")]
mod arrivals {
    use super::*;

    fn limited(id: &str, args: &str, limit: &str) -> In {
        line(execute_in(id, "work", args, &format!(r#"{{"timeout":"{limit}"}}"#)))
    }

    #[test]
    fn a_waiting_call_is_refused_when_its_limit_has_passed() {
        for last in [1100, 1101] {
            let served = Session::new(vec![
                line(execute("1", "work", r#"{"ms":1000}"#)),
                In::At(100),
                limited("2", "{}", "250ms"),
                limited("3", &format!(r#"{{"ms":{last}}}"#), "2s"),
                In::At(200),
                limited("4", "{}", "100ms"),
                In::At(300),
                // Just when the limit of 4 ends, and not passed yet.
                line("oops"),
                In::At(5000),
            ])
            .serve();
            // 3 has waited for 900 ms of its 2000.
            let (at, code) = if last == 1100 { (2100, 0) } else { (2100, -32001) };
            let wanted =
                [(300, "null", -32700), (300, "4", -32001), (350, "2", -32001), (1000, "1", 0), (at, "3", code)];
            assert_eq!(codes(&served.lines), expected(&wanted));
            for (id, text) in [("4", "0.1 s in the queue: work"), ("2", "0.2 s in the queue: work")] {
                let (_, reply) =
                    served.lines.iter().find(|(_, line)| line.contains(&format!(r#""id":{id},"#))).unwrap();
                assert!(reply.contains(&format!("the time limit passed after {text}\"")), "{reply}");
            }
            assert_eq!(served.events.iter().filter(|event| *event == "work").count(), 2, "2 and 4 do not run");
        }
    }

    /// The time of a call does not depend on the lines before it.
    #[test]
    fn the_limit_of_a_call_is_its_own_whatever_waits_before_it() {
        let namel3ss =
            |ms: u32| format!(r#"{{"protocol_version":1,"tool":"work","payload":{{"ms":1}},"timeout_ms":{ms}}}"#);
        for before in [
            execute("2", "say", "{}"),
            request("2", "nope"),
            format!("[{}]", execute("2", "say", "{}")),
            r#"{"jsonrpc":"2.0","method":"note"}"#.to_owned(),
            execute_in("2", "say", "{}", r#"{"timeout":"50ms"}"#),
            namel3ss(50),
        ] {
            let served = Session::new(vec![
                line(execute("1", "work", WORK_100)),
                line(&before),
                line(&before),
                In::At(10),
                limited("5", r#"{"ms":1}"#, "1s"),
                limited("6", r#"{"ms":899}"#, "900ms"),
                limited("7", "{}", "89ms"),
                In::At(5000),
            ])
            .serve();
            let replies = served.lines.iter().filter_map(|(at, line)| {
                let reply: serde_json::Value = serde_json::from_str(line).unwrap();
                let id = reply["id"].as_u64().filter(|id| *id >= 5)?;
                Some((*at, id, reply["error"]["code"].as_i64().unwrap_or(0)))
            });
            let wanted = [(99, 7, -32001), (101, 5, 0), (910, 6, -32001)];
            assert_eq!(replies.collect::<Vec<_>>(), wanted, "{before}: {:?}", served.lines);
        }
    }

    /// A request that was cancelled while it waited has its place among those that wait, until its turn.
    #[test]
    fn a_cancelled_request_does_not_change_whose_limit_passes() {
        let waits = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"say"}}"#;
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
        let served = Session::new(vec![
            line(execute("1", "work", r#"{"ms":1000}"#)),
            In::At(10),
            line(waits),
            limited("3", "{}", "100ms"),
            limited("4", "{}", "200ms"),
            line(cancel),
            In::At(5000),
        ])
        .serve();
        assert_eq!(codes(&served.lines), expected(&[(110, "3", -32001), (210, "4", -32001), (1000, "1", 0)]));
        assert_eq!(served.events[..2], ["work", "ended"]);
        assert!(!served.events.contains(&"say".to_owned()), "{:?}", served.events);
    }

    /// The limits of a batch's members count from the arrival of the batch.
    #[test]
    fn a_member_of_a_batch_that_waited_too_long_does_not_run() {
        let member =
            |id: &str, limit: &str| execute_in(id, "work", r#"{"ms":1}"#, &format!(r#"{{"timeout":"{limit}"}}"#));
        let batch = format!("[{},{},{}]", member("2", "80ms"), member("3", "200ms"), member("4", "90ms"));
        let served =
            Session::new(vec![line(execute("1", "work", WORK_100)), In::At(10), line(batch), In::At(500)]).serve();
        let (at, reply) = served.lines.last().unwrap();
        let members: Vec<serde_json::Value> = serde_json::from_str(reply).unwrap();
        let codes: Vec<_> = members.iter().map(|member| member["error"]["code"].as_i64().unwrap_or(0)).collect();
        // 2 and 4 have waited for 90 ms or more.
        assert_eq!((*at, &codes[..]), (101, &[-32001, 0, -32001][..]), "{reply}");
    }

    /// Amplifier's hosts set no limit: the extension's own counts from the call's turn, however long the line is.
    #[test]
    fn a_limit_of_the_extensions_own_counts_from_the_turn() {
        let call = |text: &str| format!(r#"{{"op":"work","args":{{"ms":20000,"text":"{text}"}}}}"#);
        let served = wire(vec![line(call("")), line(call("")), line(call(&"x".repeat(100))), In::At(90_000)]).serve();
        let times: Vec<_> = served.lines.iter().map(|(at, line)| (*at, line.contains(r#""ok":true"#))).collect();
        assert_eq!(times, [(20_000, true), (40_000, true), (60_000, true)]);
    }

    /// Where replies come in the order of their lines, a call whose limit has passed is refused in its turn.
    #[test]
    fn without_ids_a_late_call_is_refused_in_its_turn() {
        let call = |ms: u32, limit: &str| {
            line(format!(r#"{{"protocol_version":1,"tool":"work","payload":{{"ms":{ms}}},"timeout_ms":{limit}}}"#))
        };
        let served = wire(vec![
            call(250, "null"),
            In::At(50),
            call(0, "199"),
            call(0, "200"),
            call(0, "201"),
            call(10, "205"),
            call(10, "220"),
            In::At(5000),
        ])
        .serve();
        let outcomes: Vec<_> = served
            .lines
            .iter()
            .map(|(at, line)| {
                let reply: serde_json::Value = serde_json::from_str(line).unwrap();
                (*at, reply["error"]["message"].as_str().unwrap_or("worked").to_owned())
            })
            .collect();
        let late = "the time limit passed after 0.2 s in the queue";
        // The fifth has 5 ms left when its turn comes.
        let cut = "the operation did not end before its timeout";
        let wanted = [(250, "worked"), (250, late), (250, late), (250, "worked"), (255, cut), (265, "worked")];
        assert_eq!(outcomes, wanted.map(|(at, text)| (at, text.to_owned())));
    }
}
