//! Faults that were seen in the field.

use crate::common::{
    INITIALIZE, MANIFEST, PLAIN, Pipe, Random, Rig, SHUT, SHUTDOWN, Setup, ask, execute, execute_in, id_and_code,
    joined, request, talk,
};
use embedded_io::{ErrorKind, ErrorType, Read, Write};
use rigline::frame::LineEnds;
use rigline::json::Json;
use rigline::serve::{ServeError, Transport, blocking};
use rigline::{
    engine::{Engine, Memory, Step},
    exchange::LEAST_REPLY,
};

fn codes(replies: &[impl AsRef<str>]) -> Vec<(String, i64)> {
    replies.iter().map(|reply| id_and_code(reply.as_ref())).collect()
}

fn expected(replies: &[(&str, i64)]) -> Vec<(String, i64)> {
    replies.iter().map(|(id, code)| ((*id).to_owned(), *code)).collect()
}

const GOOD: &str = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;

/// Reports: modelcontextprotocol/rust-sdk#825, modelcontextprotocol/go-sdk#1209,
/// Ataraxy-Labs/sem#168.
#[test]
fn one_bad_line_costs_one_error() {
    let bad: &[&[u8]] = &[
        b"{oops",
        b"}",
        b"hello",
        b"{\"jsonrpc\":\"2.0\",\"id\":7,",
        b"\"",
        b"\\",
        b"\x00",
        b"[1,2",
        b"{}{}",
        b"Content-Length: 83",
        b"GET / HTTP/1.1",
        b"\x1b[2K{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shutdown\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shutdown\"},",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shutdown\"} trailing",
        b"{'jsonrpc':'2.0','id':1,'method':'shutdown'}",
    ];
    for line in bad {
        let line = line.escape_ascii().to_string();
        let bytes = bad.iter().find(|bytes| bytes.escape_ascii().to_string() == line).unwrap();
        assert_eq!(codes(&talk(&[*bytes, GOOD.as_bytes()])), expected(&[("null", -32700), ("7", 0)]), "{line}");
        assert_eq!(codes(&talk(&[GOOD.as_bytes(), bytes])), expected(&[("7", 0), ("null", -32700)]), "{line}");
        // Last before the end of input, without an end of its own.
        let served = PLAIN.serve([GOOD.as_bytes(), b"\n", bytes].concat());
        assert_eq!(codes(&served.lines()), expected(&[("7", 0), ("null", -32700)]), "{line}");
    }
    let mut replies = codes(&talk(&[bad, &[GOOD.as_bytes()]].concat()));
    assert_eq!(replies.pop().unwrap(), ("7".to_owned(), 0));
    assert_eq!(replies, vec![("null".to_owned(), -32700); bad.len()]);
}

/// Reports: modelcontextprotocol/go-sdk#665, stackql/stackql#668, Taxuspt/garmin_mcp#162.
#[test]
fn carriage_returns_never_matter_outside_strings() {
    let plain = ask(GOOD);
    for end in ["\n", "\r\n", "\r\r\n", "\r\r\r\r\r\r\n", " \r\n", "\t\r \r\n", ""] {
        for longest in [1, 2, 3, 1000] {
            let served = Setup { cuts: Some((9, longest)), ..PLAIN }.serve(format!("{GOOD}{end}"));
            assert_eq!(served.lines(), [&*plain], "{end:?}");
            assert!(!served.output.contains(&b'\r'));
        }
    }
    // They do not count against the limit.
    let size = GOOD.len() + 1;
    for end in ["\n", "\r\n", "\r\r\r\n"] {
        let served = Setup { request: size, ..PLAIN }.serve(format!("{GOOD}{end}{GOOD}{end}"));
        assert_eq!(codes(&served.lines()), expected(&[("7", 0), ("7", 0)]), "{end:?}");
        let served = Setup { request: size - 1, ..PLAIN }.serve(format!("{GOOD}{end}{SHUTDOWN}{end}"));
        assert_eq!(codes(&served.lines()), expected(&[("null", -32700), ("\"end\"", 0)]), "{end:?}");
    }
    // Blank lines are nothing.
    assert_eq!(talk(&["", "\r", " \t\r", "\u{feff}", "\u{feff}\r", SHUTDOWN]), [SHUT]);
    // A raw CR in a string is not JSON.
    assert_eq!(
        codes(&talk(&["{\"jsonrpc\":\"2.0\",\"id\":\"\r\",\"method\":\"shutdown\"}"])),
        expected(&[("null", -32700)])
    );
}

/// Reports: FellouAI/eko#276, FellouAI/eko#286, yetone/cumora#28.
#[test]
fn a_read_is_not_a_message() {
    let lines = [
        GOOD.to_owned(),
        r#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m"}}"#.to_owned(),
        execute("2", "work", r#"{"logs":2,"text":"é\n"}"#),
        "{oops".to_owned(),
        request("3", "nope"),
    ];
    let bytes = joined(&lines);
    let whole = PLAIN.serve(&bytes).output;
    for split in 0..=bytes.len() {
        struct Split<'a>(&'a [u8], &'a [u8], Vec<u8>);
        impl ErrorType for Split<'_> {
            type Error = ErrorKind;
        }
        impl Read for Split<'_> {
            fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
                if self.0.is_empty() {
                    std::mem::swap(&mut self.0, &mut self.1);
                }
                let count = buf.len().min(self.0.len());
                buf[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        impl Write for Split<'_> {
            fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
                self.2.extend_from_slice(buf);
                Ok(buf.len())
            }
            fn flush(&mut self) -> Result<(), ErrorKind> {
                Ok(())
            }
        }
        let clock = std::rc::Rc::default();
        let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 256]);
        let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request, reply: &mut reply }).unwrap();
        let mut pipe = Split(&bytes[..split], &bytes[split..], Vec::new());
        blocking::Server::new(&mut Rig::new(&clock), &mut engine, &*clock)
            .log_buffer(&mut log)
            .serve(&mut pipe)
            .unwrap();
        assert_eq!(pipe.2, whole, "{split}");
    }
    for longest in 1..9 {
        assert_eq!(Setup { cuts: Some((longest, 1)), ..PLAIN }.serve(&bytes).output, whole);
    }
}

/// Reports: rust-mcp-stack/rust-mcp-sdk#151, theoriclabs/LeanDB#51,
/// WingedGuardian/GENesis-AGI#1625.
#[test]
fn a_line_beyond_the_limit_is_one_error_and_no_part_of_it_runs() {
    const SIZE: usize = 512;
    let inner = r#"\"}} {"jsonrpc":"2.0","id":9,"method":"shutdown"}"#;
    let long = |length: usize, tail: &str| {
        let head = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"x":""#;
        format!("{head}{}{tail}", "A".repeat(length - head.len() - tail.len()))
    };
    for length in [SIZE - 2, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 4 * SIZE, 100 * SIZE] {
        for tail in ["\"}}", inner, "\r\r\r\r\"}}"] {
            let input = joined(&[long(length, tail), request("2", "nope")]);
            let first = match (length < SIZE, tail == inner) {
                (true, false) => ("1", -32602),
                _ => ("null", -32700),
            };
            // A raw CR is inside a string here, so the short line is not JSON.
            let first = if tail.starts_with('\r') { ("null", -32700) } else { first };
            let mut outputs = vec![];
            for cuts in [None, Some((1, 1)), Some((2, 64)), Some((3, 700))] {
                let served = Setup { request: SIZE, cuts, ..PLAIN }.serve(&input);
                assert_eq!(codes(&served.lines()), expected(&[first, ("2", -32601)]), "{length} {tail}");
                assert_eq!(served.lines()[0].contains("too long"), length >= SIZE);
                if length >= SIZE {
                    assert!(served.lines()[0].contains(&format!("{length} bytes, the limit is {}", SIZE - 1)));
                }
                outputs.push(served.output);
            }
            assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
    // At the end of input too.
    let served = Setup { request: SIZE, ..PLAIN }.serve(long(3 * SIZE, inner));
    assert_eq!(codes(&served.lines()), expected(&[("null", -32700)]));
}

/// Reports: HatriGt/hana-mcp-server#22, shaun0927/openchrome#144, jershell/simple-jsonrpc-js#6.
#[test]
fn unknown_notifications_get_silence() {
    let lines = [
        r#"{"jsonrpc":"2.0","method":"nope"}"#,
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"bad"}}"#,
        r#"{"jsonrpc":"2.0","method":"initialize","params":17}"#,
        &request("5", "shutdown"),
    ];
    assert_eq!(codes(&talk(&lines)), expected(&[("5", 0)]));
}

/// Reports: neandertech/jsonrpclib#104, diem/diem#7208, neo-project/neo-modules#742.
#[test]
fn shutdown_needs_no_params() {
    for params in ["", r#","params":null"#, r#","params":{}"#, r#","params":[]"#] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"shutdown"{params}}}"#);
        assert_eq!(ask(line), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    }
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":["apply",{}]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"context":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"say"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":null,"context":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":["say"],"context":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"shutdown","params":3}"#,
    ] {
        assert_eq!(codes(&[ask(line)]), expected(&[("1", -32602)]), "{line}");
    }
}

/// Reports: DeusData/codebase-memory-mcp#253, cesanta/fossa#60, reown-com/blockchain-api#171.
#[test]
fn the_id_is_the_same_json_value() {
    for id in [
        r#""1""#,
        r#""abc-123""#,
        r#""a\"b\\c""#,
        r#""\u00e9\n""#,
        r#""7b9e4c1a-0f7d-4e58-b4a6-0d9c2b8f1e63""#,
        "1",
        "-5",
        &format!("\"{}\"", "i".repeat(300)),
        "2147483648",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "1501691352102",
        "1.5",
        "1e3",
        "1.0",
        "-0",
        "1e400",
    ] {
        assert_eq!(codes(&[ask(request(id, "shutdown"))]), expected(&[(id, 0)]));
        assert_eq!(codes(&[ask(request(id, "nope"))]), expected(&[(id, -32601)]));
    }
    // Numbers inside keep their digits too.
    let reply = ask(execute("1", "say", r#"{"text":"1.50, 9007199254740993"}"#));
    assert!(reply.contains("1.50, 9007199254740993"));
}

#[test]
fn the_lines_of_the_real_host_are_answered() {
    let table = [
        (r#"{"workdir":"/tmp","phase":""}"#, "null", 0),
        (r#"{"workdir":"/tmp","phase":"verify","agent":{"prompt":"p","output":""}}"#, "null", 0),
        (r#"{"workdir":"/tmp","phase":"","more":[1,{"workdir":3}],"agent":null,"env":null,"timeout":null}"#, "{}", 0),
        (r#"{"workdir":null,"phase":null}"#, "{}", 0),
        (r#"{"phase":"tea-time"}"#, "{}", 0),
        (r#"{"phase":"set\u0075p"}"#, "{}", 0),
        ("{}", r#"{"unknown":1}"#, 0),
        ("{}", "[]", -32602),
        ("{}", "\"\"", -32602),
        ("{}", "7", -32602),
        ("null", "{}", -32602),
        ("[]", "{}", -32602),
        (r#""""#, "{}", -32602),
        (r#"{"workdir":7}"#, "{}", -32602),
        (r#"{"phase":7}"#, "{}", -32602),
        (r#"{"env":[]}"#, "{}", -32602),
        (r#"{"env":{"A":1}}"#, "{}", -32602),
        (r#"{"agent":"me"}"#, "{}", -32602),
        (r#"{"agent":{"prompt":{}}}"#, "{}", -32602),
    ];
    for (context, args, code) in table {
        let reply = ask(execute_in("2", "say", args, context));
        assert_eq!(codes(&[&reply]), expected(&[("2", code)]), "{context} {args}: {reply}");
    }
}

/// DEV: what the core does with the fragment that a stream is joined in.
/// Reports: tbird20d/grabserial#55, sensiml/open-gateway#30, fossasia/pslab-desktop#610.
#[test]
fn joining_in_the_middle_of_a_line() {
    for fragment in [&b"\x00\x00\xf8 garbage"[..], b"d\":\"info\",\"message\":\"x\"}}", b"\xff\xfe~~", b"{\"id\":1"] {
        let (first, second) = (request("1", "nope"), request("2", "nope"));
        let glued = [fragment, first.as_bytes()].concat();
        assert_eq!(codes(&talk(&[glued.as_slice(), second.as_bytes()])), expected(&[("null", -32700), ("2", -32601)]));
        // With an end of its own it costs nothing but itself.
        let lines = [fragment, first.as_bytes()];
        assert_eq!(codes(&talk(&lines)), expected(&[("null", -32700), ("1", -32601)]));
    }
}

/// Reports: modelcontextprotocol/kotlin-sdk#956, modelcontextprotocol/typescript-sdk#2790,
/// modelcontextprotocol/rust-sdk#825.
#[test]
fn byte_order_marks() {
    let marked = format!("\u{feff}{GOOD}");
    for longest in 1..6 {
        let served = Setup { cuts: Some((7, longest)), ..PLAIN }.serve(format!("{marked}\n{marked}\r\n{marked}"));
        assert_eq!(codes(&served.lines()), expected(&[("7", 0); 3]));
        assert!(!served.output.windows(3).any(|bytes| bytes == "\u{feff}".as_bytes()), "we never write one");
    }
    // It does not count against the limit.
    let served = Setup { request: GOOD.len() + 1, ..PLAIN }.serve(format!("{marked}\n{marked}\n"));
    assert_eq!(codes(&served.lines()), expected(&[("7", 0); 2]));
    // Half a mark, two marks, a mark elsewhere, UTF-16 of both kinds, UTF-32: no JSON.
    let utf16le: Vec<u8> = format!("\u{feff}{SHUTDOWN}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf16be: Vec<u8> = format!("\u{feff}{SHUTDOWN}").encode_utf16().flat_map(u16::to_be_bytes).collect();
    let utf32: Vec<u8> = SHUTDOWN.chars().flat_map(|char| (char as u32).to_le_bytes()).collect();
    let half = [b"\xef\xbb", SHUTDOWN.as_bytes()].concat();
    let two = format!("\u{feff}\u{feff}{SHUTDOWN}").into_bytes();
    let behind = format!(" \u{feff}{SHUTDOWN}").into_bytes();
    for bytes in [utf16le, utf16be, utf32, half, two, behind] {
        let replies = codes(&talk(&[&bytes[..], GOOD.as_bytes()]));
        assert_eq!(replies, expected(&[("null", -32700), ("7", 0)]), "{}", bytes.escape_ascii());
    }
}

/// A transport that is interrupted every other time, takes few bytes at a time, and fails in the
/// end.
struct Bad {
    pipe: Pipe,
    interrupted: bool,
    longest: usize,
    /// Bytes after which writing fails, and how: an error or `Ok(0)`.
    fails: Option<(usize, Option<ErrorKind>)>,
}

impl Bad {
    fn new(input: &[u8], longest: usize) -> Self {
        Self { pipe: Pipe::new(input), interrupted: false, longest, fails: None }
    }

    fn interrupt(&mut self) -> Result<(), ErrorKind> {
        self.interrupted = !self.interrupted;
        if self.interrupted { Err(ErrorKind::Interrupted) } else { Ok(()) }
    }
}

impl ErrorType for Bad {
    type Error = ErrorKind;
}

impl Read for Bad {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        self.interrupt()?;
        self.pipe.read(buf).map_err(|never| match never {})
    }
}

impl Write for Bad {
    fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        self.interrupt()?;
        let mut count = buf.len().min(self.longest);
        if let Some((after, how)) = self.fails {
            count = count.min(after - self.pipe.output.len());
            if count == 0 {
                return how.map_or(Ok(0), Err);
            }
        }
        self.pipe.output.extend_from_slice(&buf[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

/// Reports: rust-embedded-community/usbd-serial#32, raspberrypi/pico-sdk#995, hathach/tinyusb#1677.
#[test]
fn short_writes_leave_no_gap() {
    let lines = [INITIALIZE.to_owned(), execute("1", "say", r#"{"text":"0123456789","times":200}"#)];
    let whole = PLAIN.serve(joined(&lines)).output;
    assert!(whole.len() > 2000);
    let serve = |pipe: &mut Bad| {
        let clock = std::rc::Rc::default();
        let mut rig = Rig::new(&clock);
        let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 256]);
        let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request, reply: &mut reply }).unwrap();
        let result = blocking::Server::new(&mut rig, &mut engine, &*clock).log_buffer(&mut log).serve(pipe);
        (result, rig.events.count("safe"))
    };
    for longest in [1, 7, 64, 65, 100_000] {
        let mut pipe = Bad::new(&joined(&lines), longest);
        assert!(serve(&mut pipe).0.is_ok());
        assert_eq!(pipe.pipe.output, whole);
    }
    // A writer that takes nothing any more, or fails: a clean error, nothing after the cut, and the
    // rig is made safe.
    for after in [0, 1, 100, 1999] {
        for (how, error) in
            [(None, ServeError::WriteZero), (Some(ErrorKind::BrokenPipe), ServeError::Write(ErrorKind::BrokenPipe))]
        {
            let mut pipe = Bad { fails: Some((after, how)), ..Bad::new(&joined(&lines), 64) };
            assert_eq!(serve(&mut pipe), (Err(error), 1));
            assert_eq!(pipe.pipe.output, whole[..after]);
        }
    }
}

/// Serves `lines` over a writer that fails after some bytes; returns what happened to the rig.
fn events_when_lost(lines: &[String], after: usize) -> Vec<String> {
    let clock = std::rc::Rc::default();
    let mut rig = Rig::new(&clock);
    let (mut request, mut reply, mut log) = ([0; 4096], [0; 4096], [0; 256]);
    let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request, reply: &mut reply }).unwrap();
    let mut pipe = Bad { fails: Some((after, Some(ErrorKind::BrokenPipe))), ..Bad::new(&joined(lines), 1000) };
    let result = blocking::Server::new(&mut rig, &mut engine, &*clock)
        .transport(Transport::Stream)
        .log_buffer(&mut log)
        .serve(&mut pipe);
    assert_eq!(result, Err(ServeError::Write(ErrorKind::BrokenPipe)));
    rig.events.all()
}

/// A `shutdown` whose acknowledgement did not get out leaves nobody in charge of the rig.
/// Reports: justrach/devswarm#387, rust-lang/rls#61, machbase/neo-server#285.
#[test]
fn a_shutdown_counts_when_it_is_acknowledged() {
    let manifest = PLAIN.serve(INITIALIZE).output.len();
    for after in 0..SHUT.len() {
        let lines = [INITIALIZE, SHUTDOWN].map(str::to_owned);
        assert_eq!(events_when_lost(&lines, manifest + after), ["safe"], "{after}");
        assert!(events_when_lost(&lines[1..], after).is_empty(), "one-shot use");
    }
}

/// Nobody reads any more, which shows when a log is written. The handler is not resumed.
/// Reports: can1357/oh-my-pi#1710, anomalyco/opencode#43258, openclaw/openclaw#75602.
#[test]
fn a_connection_lost_during_a_call() {
    let call = execute("1", "work", r#"{"ms":10,"logs":9}"#);
    let manifest = PLAIN.serve(INITIALIZE).output.len();
    let log = PLAIN.serve(&call).lines()[0].len() + 1;
    for logs in 0..9 {
        for part in [0, 1, log - 1] {
            let lines = [INITIALIZE.to_owned(), call.clone()];
            assert_eq!(events_when_lost(&lines, manifest + logs * log + part), ["work", "dropped", "safe"]);
            assert_eq!(events_when_lost(&lines[1..], logs * log + part), ["work", "dropped", "safe"]);
        }
    }
    // In a reply: nothing was cut off but the reply.
    assert_eq!(
        events_when_lost(&[INITIALIZE.to_owned(), execute("1", "say", "{}")], manifest + 9),
        ["say", "ended", "safe"]
    );
    assert_eq!(events_when_lost(&[execute("1", "say", "{}")], 9), ["say", "ended"]);
}

/// DEV: DTR drops in the middle of a request.
/// Reports: jamesmunns/ergot#189, arduino/serial-monitor#32, crayzeewulf/libserial#172.
#[test]
fn leftovers_of_the_last_connection() {
    let (mut request_memory, mut reply) = ([0; 512], [0; 2000]);
    let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request_memory, reply: &mut reply }).unwrap();
    let feed = |engine: &mut Engine<'_>, bytes: &[u8]| {
        engine.space()[..bytes.len()].copy_from_slice(bytes);
        engine.commit(bytes.len());
    };
    let leftovers: [&[u8]; 7] = [
        br#"{"jsonrpc":"2.0","id":1,"met"#,
        b"\xef\xbb",
        b"\"",
        &[b'x'; 512],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nope\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"nope\"}\n",
        b"[1,2,3]\n[4",
        b"\r\r\r",
    ];
    for leftover in leftovers {
        for steps in 0..3 {
            feed(&mut engine, leftover);
            for _ in 0..steps {
                let _ = engine.step();
            }
            assert!(!engine.disconnect());
            feed(&mut engine, format!("{}\n", request("5", "nope")).as_bytes());
            let Step::Write(line) = engine.step() else { panic!("no reply") };
            assert_eq!(codes(&[std::str::from_utf8(line).unwrap()]), expected(&[("5", -32601)]));
            assert!(matches!(engine.step(), Step::Read));
        }
    }
    // In the middle of a call, of a batch, after the end of input.
    let call = execute("1", "say", "{}");
    for line in [call.clone(), format!("[{},{call},{call}]", request("1", "nope"))] {
        for finished in [false, true] {
            feed(&mut engine, format!("{INITIALIZE}\n").as_bytes());
            assert!(matches!(engine.step(), Step::Write(_)));
            feed(&mut engine, format!("{line}\n").as_bytes());
            assert!(matches!(engine.step(), Step::Run(_)));
            if finished {
                engine.finish();
            }
            assert!(engine.disconnect(), "a session was open");
            assert!(!engine.is_session_open());
            engine.complete(&Ok(rigline::Outcome::DONE));
            assert!(matches!(engine.step(), Step::Read));
            feed(&mut engine, format!("{}\n", request("5", "nope")).as_bytes());
            let Step::Write(line) = engine.step() else { panic!("no reply") };
            assert_eq!(codes(&[std::str::from_utf8(line).unwrap()]), expected(&[("5", -32601)]));
        }
    }
}

/// Reports: theoriclabs/LeanDB#57, sysprog21/zhtw-mcp#7, DeusData/codebase-memory-mcp#511.
#[test]
fn bytes_that_are_not_utf_8() {
    for bytes in [
        &b"\xc4\xe3"[..],
        b"\xff\xfe",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\x80",
        b"\xbd",
    ] {
        let inside = |before: &str, after: &str| [before.as_bytes(), bytes, after.as_bytes()].concat();
        let lines = [
            inside(r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":""#, "\"}}"),
            inside(r#"{"jsonrpc":"2.0","id":""#, r#"","method":"shutdown"}"#),
            inside(r#"{"jsonrpc":"2.0","id":1,"method":"shutdown",""#, "\":1}"),
            inside(
                r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"say","context":{},"args":{"text":"12345678"#,
                "\"}}}",
            ),
            inside("", ""),
            inside("[", "]"),
            inside(SHUTDOWN, ""),
            GOOD.into(),
        ];
        let mut wanted = vec![("null", -32700); lines.len() - 1];
        wanted.push(("7", 0));
        assert_eq!(codes(&talk(&lines)), expected(&wanted));
    }
}

/// Reports: ndjson/ndjson-spec#1, BaseIntelligence/bounty-challenge#4400, minio/mc#1008.
#[test]
fn pretty_printed_json() {
    let pretty = "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"method\": \"initialize\",\n  \"params\": {\n    \"protocolVersion\": \"0.0.1\",\n    \"config\": {\n      \"key\": \"value\"\n    }\n  }\n}";
    let replies = talk(&[pretty, GOOD]);
    let (last, errors) = replies.split_last().unwrap();
    assert_eq!(codes(&[last]), expected(&[("7", 0)]));
    assert!(errors.len() <= pretty.lines().count());
    assert!(codes(errors).iter().all(|(id, code)| id == "null" && matches!(code, -32700 | -32600)), "{errors:?}");
    assert!(errors[0].contains("on one line"), "the first error names the cause: {}", errors[0]);
    // With CRs for line ends it is one line, and good.
    let configured = pretty.replace("key", "rail").replace('\n', "\r");
    assert_eq!(codes(&talk(&[configured])[1..]), expected(&[("1", 0)]));
    // Ours is always one line.
    let reply = ask(execute("1", "outputs", r#"{"text":"a\nb\r\u2028"}"#));
    assert!(reply.contains(r"a\nb\r\u2028"), "{reply}");
}

const SIZES: std::ops::Range<usize> = LEAST_REPLY..LEAST_REPLY + 200;

/// The size that an error names, if it is the one about a reply that does not fit.
fn needed(reply: &str) -> Option<usize> {
    let (_, rest) = reply.split_once("it needs ")?;
    let rest = rest.strip_prefix("at least ").unwrap_or(rest);
    rest.split_once(" bytes")?.0.parse().ok()
}

/// Reports: 7etsuo/tetsuo-pulse#3492, ESPresense/ESPresense#2428, eclipse-wakaama/wakaama#678.
#[test]
fn a_reply_that_does_not_fit() {
    for text in ["x", "\\\"", "\\u0001", "é", "\\u2028", "\\ud83d\\ude00", "\\\\"] {
        for times in [40, 101, 500] {
            for (operation, more) in [
                ("say", ""),
                ("outputs", ""),
                ("fail", ""),
                ("refuse", r#","kind":"unreachable""#),
                ("refuse", r#","kind":"failed""#),
                ("swap", ""),
            ] {
                let line = execute("\"i\\n\"", operation, &format!(r#"{{"text":"{text}","times":{times}{more}}}"#));
                let serve = |reply: usize| {
                    let served = Setup { reply, ..PLAIN }.serve(&line);
                    let [reply] = served.lines()[..] else { panic!("one line: {:?}", served.lines()) };
                    assert_eq!(id_and_code(reply).0, "\"i\\n\"");
                    reply.to_owned()
                };
                let whole = serve(50_000);
                for size in SIZES.step_by(17) {
                    let reply = serve(size);
                    assert!(reply.len() < size);
                    if id_and_code(&reply).1 != -32603 {
                        assert_eq!(reply, whole, "{operation} in {size}");
                        continue;
                    }
                    // What it says that it needs is what it needs: for a handler that went on to
                    // its end, at once; for one that gave up at the first output without room,
                    // after asking again.
                    let mut size = size;
                    for _ in 0..6 {
                        let reply = serve(size);
                        let Some(more) = needed(&reply) else { break };
                        assert!(more >= size, "{operation}: {reply} in {size}");
                        assert!(more <= whole.len() || operation == "swap", "{operation}: {reply}, {whole}");
                        size = more + 1;
                    }
                    assert_eq!(serve(size), whole, "{operation}");
                    if matches!(operation, "say" | "refuse") {
                        assert_eq!(size, whole.len() + 1, "{operation}");
                        assert_eq!(needed(&serve(size - 1)), Some(whole.len()));
                    }
                }
            }
        }
    }
}

/// Reports: 7etsuo/tetsuo-pulse#3492, ESPresense/ESPresense#2428, eclipse-wakaama/wakaama#678.
#[test]
fn a_manifest_that_does_not_fit() {
    let whole = ask(INITIALIZE);
    let size = |limit: usize| whole.replace(r#""reply":4095"#, &format!(r#""reply":{limit}"#));
    let with_config = INITIALIZE.replace(r#""0.0.1""#, r#""0.0.1","config":{"rail":"3V3"}"#);
    for reply in LEAST_REPLY..LEAST_REPLY + 600 {
        for initialize in [INITIALIZE, &with_config] {
            let served = Setup { reply, ..PLAIN }.serve(initialize);
            let lines = served.lines();
            let [.., line] = lines[..] else { panic!("a reply: {lines:?}") };
            if size(reply - 1).len() < reply {
                assert_eq!(line, size(reply - 1));
            } else {
                assert_eq!(codes(&[line]), expected(&[("\"init\"", -32603)]));
                assert_eq!(needed(line), Some(size(reply - 1).len()));
                assert!(!served.events.iter().any(|event| event == "safe"), "no session began: {:?}", served.events);
            }
        }
    }
}

/// Reports: 7etsuo/tetsuo-pulse#3492, ESPresense/ESPresense#2428, eclipse-wakaama/wakaama#678.
#[test]
fn error_texts_stay_within_bounds() {
    let long = "\\u0001é\\ud83d\\ude00x".repeat(300);
    for size in SIZES {
        for line in [
            request("1", &long),
            execute("1", &long, "{}"),
            execute("1", "say", &format!("{{\"text\":{{\"{long}\":1}}}}")),
            execute_in("1", "say", "{}", &format!("{{\"timeout\":\"{long}\"}}")),
        ] {
            let served = Setup { request: 20_000, reply: size, ..PLAIN }.serve(&line);
            let [reply] = served.lines()[..] else { panic!("one line") };
            assert!(reply.len() < size && id_and_code(reply).0 == "1" && id_and_code(reply).1 < 0);
        }
    }
}

/// Reports: apify/apify-client-python#87, flop-labs/technocore-chat#90,
/// brian7704/OpenTAKServer#291.
#[test]
fn almost_json_is_refused() {
    for value in [
        "NaN",
        "Infinity",
        "-Infinity",
        "+1",
        "01",
        "-01",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "0x10",
        "1_0",
        "'a'",
        "{a:1}",
        "[1,]",
        "{\"a\":1,}",
        "tRue",
        "True",
        "None",
        "undefined",
        "1//c",
        "/*c*/1",
        "\"\\x41\"",
        "\"\t\"",
        "",
        "inf",
        "-",
        "1f",
        "\"\\u00\"",
        "`a`",
        "1,2",
        "\u{a0}1",
        "\u{2028}1",
    ] {
        let lines = [
            execute("1", "say", &format!(r#"{{"data":{{"t":{value}}}}}"#)),
            request(value, "shutdown"),
            format!("[{value},]"),
            GOOD.to_owned(),
        ];
        let wanted = [("null", -32700), ("null", -32700), ("null", -32700), ("7", 0)];
        assert_eq!(codes(&talk(&lines)), expected(&wanted), "{value}");
    }
}

/// Reports: apify/apify-client-python#87, flop-labs/technocore-chat#90,
/// brian7704/OpenTAKServer#291.
#[test]
fn nan_and_infinity_are_not_written() {
    for kind in ["NaN", "inf", "-inf"] {
        for quiet in [false, true] {
            let lines = talk(&[execute("1", "floats", &format!(r#"{{"kind":"{kind}","quiet":{quiet}}}"#))]);
            assert_eq!(lines.len(), 3);
            assert!(lines[..2].iter().all(|line| line.ends_with(r#""data":{"value":null}}}"#)), "{lines:?}");
            assert_eq!(codes(&lines[2..]), expected(&[("1", -32603)]));
            assert!(lines[2].contains("NaN"), "named for its author: {}", lines[2]);
        }
    }
    let lines = talk(&[execute("1", "floats", r#"{"kind":"1.25"}"#)]);
    assert!(lines[0].ends_with(r#""level":"warn","message":"float","data":{"value":1.25}}}"#), "{}", lines[0]);
    assert!(lines[1].ends_with(r#""level":"error","message":"floats","data":{"t":[0.5,1.25]}}}"#), "{}", lines[1]);
    assert!(lines[2].contains(r#""float":"1.25""#), "{}", lines[2]);
}

/// A log datum that does not fit costs its line, whole; it is not replaced by something else.
#[test]
fn log_data_without_room_drop_the_line() {
    let long = format!("[{}0]", "\"x\",".repeat(100));
    for log in [100, 200, 300, 450, 500] {
        let served = Setup { log, ..PLAIN }.serve(execute("1", "data", &format!(r#"{{"value":{long}}}"#)));
        let lines = served.lines();
        let whole = lines.iter().any(|line| line.contains(&format!(r#""data":{{"value":{long}}}"#)));
        assert_eq!(whole, log >= 500, "{log}: {lines:?}");
        assert_eq!(lines.iter().filter(|line| line.contains("data")).count(), usize::from(whole));
    }
}

/// Reports: antirez/ds4#43, oatpp/oatpp#1109, open-source-parsers/jsoncpp#1704.
#[test]
fn nesting_beyond_the_limit_is_an_error() {
    for depth in [16, 63, 64, 126, 127, 128, 129, 1000, 100_000] {
        for (open, close, leaf) in [("[", "]", ""), ("{\"a\":", "}", "1"), ("[{\"id\":", "}]", "null")] {
            let nested = open.repeat(depth) + leaf + &close.repeat(depth);
            let levels = depth * open.matches(['[', '{']).count();
            // The containers around the value are counted too.
            let table = [
                (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"shutdown","x":{nested}}}"#), 1, ("1", 0)),
                (format!(r#"{{"x":{nested},"jsonrpc":"2.0","id":1,"method":"shutdown"}}"#), 1, ("1", 0)),
                (format!(r#"{{"jsonrpc":"2.0","id":{nested},"method":"shutdown"}}"#), 1, ("null", -32600)),
                (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"shutdown","params":{nested}}}"#), 1, ("1", 0)),
                (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"shutdown","params":{{"x":{nested}}}}}"#), 2, ("1", 0)),
                (execute("1", "say", &format!(r#"{{"x":{nested}}}"#)), 3, ("1", 0)),
                (execute_in("1", "say", "{}", &format!(r#"{{"agent":{{"x":{nested}}}}}"#)), 4, ("1", 0)),
            ];
            for (line, around, within) in table {
                let setup = Setup { request: 2_000_000, ..PLAIN };
                let first = if levels + around <= 128 { within } else { ("null", -32700) };
                let served = setup.serve(joined(&[line, GOOD.to_owned()]));
                // A `shutdown` that was understood ends it.
                let replies = codes(&served.lines());
                assert_eq!(replies[0], expected(&[first])[0], "{levels} in {around}");
                assert!(replies.len() == 2 || first == ("1", 0) && replies.len() == 1);
            }
            let unclosed = format!(r#"{{"jsonrpc":"2.0","id":1,"x":{}"#, open.repeat(depth));
            let served = Setup { request: 2_000_000, ..PLAIN }.serve(joined(&[unclosed.as_str(), GOOD]));
            assert_eq!(codes(&served.lines()), expected(&[("null", -32700), ("7", 0)]));
            let batch = format!("[{}]", request("1", "nope").replace('}', &format!(",\"x\":{nested}}}")));
            let served = Setup { request: 2_000_000, ..PLAIN }.serve(&batch);
            assert_eq!(served.lines()[0].starts_with('['), levels + 2 <= 128, "{levels}");
        }
    }
}

/// Reports: vshulcz/deja-vu#1796, modelcontextprotocol/typescript-sdk#2488,
/// modelcontextprotocol/go-sdk#999.
#[test]
fn bad_envelopes_are_invalid_requests() {
    let table = [
        ("{}", "null"),
        (r#"{"id":4,"method":"shutdown"}"#, "4"),
        (r#"{"jsonrpc":"1.0","id":4,"method":"shutdown"}"#, "4"),
        (r#"{"jsonrpc":2.0,"id":4,"method":"shutdown"}"#, "4"),
        (r#"{"jsonrpc":"2.0","id":4,"method":1}"#, "4"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"shutdown"}"#, "null"),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"shutdown"}"#, "null"),
        ("\"hi\"", "null"),
        ("null", "null"),
        ("3", "null"),
    ];
    for (line, id) in table {
        assert_eq!(codes(&talk(&[line, GOOD])), expected(&[(id, -32600), ("7", 0)]), "{line}");
    }
    assert_eq!(codes(&[ask(r#"{"jsonrpc":"2.0","id":4,"method":""}"#)]), expected(&[("4", -32601)]));
}

/// DEV: terminals on a serial line send CR alone.
/// Reports: techomancer/iris#24, beroset/pico-puller#2, rstacruz/taskpaper.js#3.
#[test]
fn a_lone_cr_ends_a_line_on_a_serial_line() {
    let serial = Setup { ends: LineEnds::Serial, kind: Transport::Stream, ..PLAIN };
    for end in ["\r", "\n", "\r\n", "\r\r", "\r\r\n", "\n\r"] {
        for cuts in [None, Some((3, 1)), Some((3, 40))] {
            let input = [request("1", "nope"), "oops".to_owned(), request("2", "nope")].map(|line| line + end).concat();
            let served = Setup { cuts, ..serial.clone() }.serve(input);
            assert_eq!(codes(&served.lines()), expected(&[("1", -32601), ("null", -32700), ("2", -32601)]), "{end:?}");
            assert!(!served.output.contains(&b'\r'));
        }
    }
    // The answer comes when the CR does, not when the next byte does.
    let (mut memory, mut reply) = ([0; 256], [0; 600]);
    let mut engine = Engine::new(&MANIFEST, Memory { request: &mut memory, reply: &mut reply })
        .unwrap()
        .with_line_ends(LineEnds::Serial);
    let line = request("1", "nope") + "\r";
    engine.space()[..line.len()].copy_from_slice(line.as_bytes());
    engine.commit(line.len());
    assert!(matches!(engine.step(), Step::Write(_)));
    // Elsewhere it is white space; telnet's negotiation costs its own line at most.
    assert_eq!(codes(&[ask(format!("{}\r ", request("1", "nope")))]), expected(&[("1", -32601)]));
    let telnet = [b"\xff\xfd\x03\xff\xfb\x18", request("1", "nope").as_bytes(), b"\r"].concat();
    let replies = codes(&talk(&[&telnet[..], request("2", "nope").as_bytes()]));
    assert_eq!(replies, expected(&[("null", -32700), ("2", -32601)]));
    // What a modem manager probes with (openmv/openmv#179, nordicsemi/nRF-Sniffer-for-802.15.4#15).
    let probe =
        [&b"AT\rATE0\rAT+CGMI\r\n\x7e\x00\x78\xf0\x7e\x00\n"[..], request("1", "nope").as_bytes(), b"\r"].concat();
    let replies = codes(&serial.serve(probe).lines());
    assert_eq!(
        replies,
        expected(&[("null", -32700), ("null", -32700), ("null", -32700), ("null", -32700), ("1", -32601)])
    );
}

/// Reports: proffesor-for-testing/agentic-qe#527, pathintegral-institute/mcpm.sh#264.
#[test]
fn initialize_in_every_order() {
    let initialize = |id: &str, version: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{{version}}}}}"#)
    };
    let ours = r#""protocolVersion":"0.0.1""#;
    // Before and without it.
    assert_eq!(codes(&talk(&[execute("1", "say", "{}"), GOOD.to_owned()])), expected(&[("1", 0), ("7", 0)]));
    // Twice: the manifest again.
    let replies = talk(&[initialize("1", ours), initialize("2", ours)]);
    assert_eq!(replies[0].replace("\"id\":1", "\"id\":2"), replies[1]);
    let manifest = Json::parse(replies[0].as_bytes()).unwrap().get("result").unwrap();
    for (member, value) in [("name", "test-rig"), ("version", "1.2.3"), ("protocolVersion", "0.0.1")] {
        assert!(manifest.get(member).unwrap().text().unwrap() == *value);
    }
    let limits = manifest.get("limits").unwrap();
    assert_eq!(limits.to_string(), r#"{"request":4095,"reply":4095}"#);
    // Other versions: -32602 with what is supported.
    for version in [
        r#""protocolVersion":"0.0.2""#,
        r#""protocolVersion":"1.0.0""#,
        r#""protocolVersion":"0.0.1 ""#,
        r#""protocolVersion":"0.0.10""#,
        r#""protocolVersion":"""#,
        r#""protocolVersion":null"#,
        r#""protocolVersion":0.01"#,
        r#""protocolVersion":["0.0.1"]"#,
        "",
        r#""protocolversion":"0.0.1""#,
    ] {
        let replies = talk(&[initialize("1", version), SHUTDOWN.to_owned(), GOOD.to_owned()]);
        assert_eq!(codes(&replies), expected(&[("1", -32602), ("\"end\"", 0)]), "{version}");
        assert!(replies[0].contains("0.0.1"));
    }
    assert_eq!(codes(&talk(&[initialize("1", r#""protocolVersion":"0.\u0030.1""#)])), expected(&[("1", 0)]));
    // After `shutdown`, on a wire: refused until the next `initialize`, which says what is wrong
    // with itself.
    let wire = Setup { kind: Transport::Stream, ..PLAIN };
    let lines = [
        GOOD.to_owned(),
        SHUTDOWN.to_owned(),
        execute("1", "say", "{}"),
        request("2", "shutdown"),
        request("3", "nope"),
        r#"{"jsonrpc":"2.0","method":"execute","params":{"operation":"say","context":{}}}"#.to_owned(),
        "oops".to_owned(),
        initialize("4", r#""protocolVersion":"0.0.2""#),
        execute("5", "say", "{}"),
        initialize("6", ours),
        execute("7", "say", "{}"),
    ];
    let served = wire.serve(joined(&lines));
    let wanted = [
        ("7", 0),
        ("\"end\"", 0),
        ("1", -32600),
        ("2", -32600),
        ("3", -32600),
        ("null", -32700),
        ("4", -32602),
        ("5", -32600),
        ("6", 0),
        ("7", 0),
    ];
    assert_eq!(codes(&served.lines()), expected(&wanted));
    assert_eq!(served.events, ["say", "ended", "safe"]);
}

/// An error of `configure` fails `initialize`: an error, since its result could only be a manifest.
#[test]
fn a_configuration_that_is_refused() {
    let configure = |config: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"config":{config},"protocolVersion":"0.0.1"}}}}"#
        )
    };
    let table = [
        (r#"{"rail":"broken"}"#, -32000, "the rail is broken"),
        (r#"{"rail":"absent"}"#, -32002, "no such rail"),
        (r#"{"rail":7}"#, -32602, "config.rail: expected a string"),
        ("{}", -32602, "rail"),
        ("[]", -32602, "config: expected an object"),
        ("7", -32602, "config: expected an object"),
    ];
    for (config, code, text) in table {
        let served = PLAIN.serve(configure(config));
        let reply = *served.lines().last().unwrap();
        assert_eq!(codes(&[reply]), expected(&[("1", code)]), "{reply}");
        assert!(reply.contains(text), "{reply}");
        assert_eq!(served.events.iter().filter(|event| *event == "safe").count(), 0, "no session began");
    }
    for config in ["null", r#"{"rail":"3V3"}"#] {
        let served = PLAIN.serve(configure(config));
        assert_eq!(codes(&served.lines()[served.lines().len() - 1..]), expected(&[("1", 0)]));
        assert_eq!(served.events.last().unwrap(), "safe");
    }
}

/// A failure's text waits in the reply region; what is written after it must not get into it.
#[test]
fn a_failure_made_early_is_still_json() {
    for times in [1, 2, 5, 8, 10, 20, 40, 100] {
        for quiet in [false, true] {
            for text in ["x", "\\\"", "\\\\", "\\u0001", "é", "},{"] {
                let line = execute("1", "swap", &format!(r#"{{"text":"{text}","times":{times},"quiet":{quiet}}}"#));
                let reply = ask(line);
                assert_eq!(codes(&[&reply]), expected(&[("1", -32000)]));
            }
        }
    }
}

/// Each kind of failure in its own code.
#[test]
fn failures_of_every_kind() {
    let table = [
        ("unreachable", -32000),
        ("forbidden", -32000),
        ("timeout", -32001),
        ("requirement", -32002),
        ("unknown", -32601),
        ("arguments", -32602),
        ("large", -32603),
        ("internal", -32603),
    ];
    for (kind, code) in table {
        let reply = ask(execute("1", "refuse", &format!(r#"{{"kind":"{kind}","text":"a \"reason\""}}"#)));
        let expected = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"a \"reason\""}}}}"#);
        assert_eq!(reply, expected);
    }
    let reply = ask(execute("1", "refuse", r#"{"kind":"failed","text":"1 < 2"}"#));
    assert_eq!(reply, r#"{"jsonrpc":"2.0","id":1,"result":{"success":false,"error":"1 < 2"}}"#);
    let reply = ask(execute("1", "fail", r#"{"text":"low"}"#));
    assert_eq!(
        reply,
        r#"{"jsonrpc":"2.0","id":1,"result":{"success":false,"outputs":{"last":"1.5 V"},"error":"low"}}"#
    );
    let reply = ask(execute("1", "outputs", r#"{"text":"\t"}"#));
    assert_eq!(
        reply,
        r#"{"jsonrpc":"2.0","id":1,"result":{"success":true,"outputs":{"text":"\t","number":"-17","list":"[\"\\t\",\"\\\\\"]","none":"null"},"message":"measured"}}"#
    );
}

/// Whatever a peer sends between good requests, each good one is answered once.
#[test]
fn noise_between_requests_costs_itself_only() {
    let mut random = Random(0x5eed);
    for _ in 0..200 {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for id in 0..10 {
            let mut noise: Vec<u8> = (0..random.below(60)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            noise.retain(|byte| *byte != b'\n');
            lines.push(noise);
            lines.push(request(&id.to_string(), "nope").into_bytes());
        }
        let replies: Vec<_> = codes(&talk(&lines)).into_iter().filter(|(id, _)| id != "null").collect();
        assert_eq!(replies, (0..10).map(|id| (id.to_string(), -32601)).collect::<Vec<_>>());
    }
}
