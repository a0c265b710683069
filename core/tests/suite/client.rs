//! A host reads the lines that real peers write.

use rigline::client::{
    Anomalies, ClientSession, ExecuteResult, Incoming, Log, MalformedKind, NonProtocolKind, ReplyBody, Request,
    RequestContext, StartError, write_refusal,
};
use rigline::json::write::Writer;
use rigline::json::{Json, RawJson};
use rigline::rpc::MAX_ID;
use rigline::{GoDuration, Level, Phase};

/// A client of which the requests with these ids are out.
fn client(ids: std::ops::RangeInclusive<u32>) -> ClientSession {
    let mut client = ClientSession::new(ids.start() - 1);
    for id in ids {
        assert_eq!(client.start(&Request::Shutdown, &mut Writer::new(&mut [0; 100])), Ok(id));
    }
    client
}

/// The kind of a line, in a word or two.
fn told(client: &mut ClientSession, line: &[u8]) -> String {
    let received = client.receive(line);
    let mut told = match received.incoming {
        Incoming::Reply(reply) => match reply.body {
            ReplyBody::Result(result) => format!("{} result {result}", reply.id),
            ReplyBody::Error(error) => {
                assert_eq!(error.to_string(), error.message().to_string());
                format!("{} error {:?} {}", reply.id, error.code(), error.message())
            }
            ReplyBody::Invalid(why) => format!("{} invalid {why}", reply.id),
            _ => "?".into(),
        },
        Incoming::Malformed(broken) => format!("broken {:?} {broken}", broken.id),
        Incoming::UnknownId(stray) => format!("{} {}", if stray.late { "late" } else { "foreign" }, stray.id),
        Incoming::ErrorWithoutId { error, only } => {
            format!("unaddressed {only:?} {:?} {}", error.code(), error.message())
        }
        Incoming::Log(log) => format!("log {} {}", log.level().name(), log.message()),
        Incoming::Notification { method, .. } => format!("notification {method}"),
        Incoming::Request(request) => format!("request {} {}", request.id, request.method),
        Incoming::Echo => "echo".into(),
        Incoming::NonProtocol(noise) => match noise.why {
            NonProtocolKind::NotJson(_) => "noise".into(),
            NonProtocolKind::NotAnObject => "noise: no object".into(),
            NonProtocolKind::NotAMessage => "noise: no message".into(),
            _ => "?".into(),
        },
        _ => "?".into(),
    };
    for text in [received.before, received.rest] {
        if !text.is_empty() {
            told = told + " | " + &String::from_utf8_lossy(text);
        }
    }
    told
}

#[test]
fn request_lines() {
    let mut client = ClientSession::new(0);
    let context = RequestContext {
        workdir: "/tmp",
        phase: Phase::Verify,
        env: &[("A", "1"), ("B", "\"")],
        timeout: Some(GoDuration::from_nanos(90_000_000_000)),
        agent: Some(("p", "o\n")),
    };
    let config = RawJson::from_checked_str(r#"{"a":1}"#).unwrap();
    let table = [
        (
            Request::Initialize { config: None },
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
        ),
        (
            Request::Initialize { config: Some(config) },
            r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"0.0.1","config":{"a":1}}}"#,
        ),
        (
            Request::Execute { operation: "measure", args: config, context: RequestContext::default() },
            r#"{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"measure","args":{"a":1},"context":{"workdir":"","phase":""}}}"#,
        ),
        (
            Request::Execute { operation: "a\"b", args: config, context },
            r#"{"jsonrpc":"2.0","id":4,"method":"execute","params":{"operation":"a\"b","args":{"a":1},"context":{"workdir":"/tmp","phase":"verify","env":{"A":"1","B":"\""},"timeout":"1m30s","agent":{"prompt":"p","output":"o\n"}}}}"#,
        ),
        (Request::Shutdown, r#"{"jsonrpc":"2.0","id":5,"method":"shutdown","params":{}}"#),
        (
            Request::Other { method: "x.y", params: RawJson::NULL },
            r#"{"jsonrpc":"2.0","id":6,"method":"x.y","params":null}"#,
        ),
    ];
    for (request, line) in table {
        let mut memory = [0; 400];
        let mut out = Writer::new(&mut memory);
        client.start(&request, &mut out).unwrap();
        assert_eq!(std::str::from_utf8(out.as_written()).unwrap(), format!("{line}\n"));
        assert!(request.measure() >= out.len() && request.measure() <= out.len() + 10);
    }
}

#[test]
fn ids_differ_between_sessions_and_stay_below_two_to_the_31() {
    for (base, first) in [(0, 1), (41, 42), (u32::MAX, 1 << 30)] {
        let mut client = ClientSession::new(base);
        assert_eq!(client.start(&Request::Shutdown, &mut Writer::new(&mut [0; 100])), Ok(first));
    }
}

#[test]
fn what_does_not_fit_is_not_pending_and_the_pending_are_bounded() {
    let mut client = ClientSession::new(0);
    let small = client.start(&Request::Shutdown, &mut Writer::new(&mut [0; 10]));
    assert!(matches!(small, Err(StartError::TooLarge(_))));
    assert_eq!(client.pending().count(), 0);
    for id in 1..=8 {
        assert_eq!(client.start(&Request::Shutdown, &mut Writer::new(&mut [0; 100])), Ok(id));
    }
    assert_eq!(client.start(&Request::Shutdown, &mut Writer::new(&mut [0; 100])), Err(StartError::TooManyPending));
    client.forget(3);
    assert_eq!(client.start(&Request::Shutdown, &mut Writer::new(&mut [0; 100])), Ok(9));
}

/// Each line is given to a fresh client that waits for the replies 7 and 8; 5 and 6 were given out
/// before.
#[test]
#[allow(clippy::too_many_lines, reason = "a table of inputs")]
fn lines_with_two_calls_out() {
    let table: &[(&[u8], &str)] = &[
        // Noise (editor-code-assistant/eca#298, microsoft/azure-devops-mcp#147).
        (b"Loading config...", "noise"),
        (b"\xf0\x9f\x9a\x80 ready", "noise"),
        (b"[1,2]", "noise: no object"),
        (b"\"text\"", "noise: no object"),
        (b"42", "noise: no object"),
        (b"null", "noise: no object"),
        (b"{\"status\":200}", "noise: no message"),
        (b"{}", "noise: no message"),
        (b"{\"id\":7}", "7 invalid the reply has neither a result nor an error"),
        (b"{\"id\":9}", "noise: no message"),
        (b"{\"error\":\"disk full\",\"level\":\"warn\"}", "noise: no message"),
        (b"{\"id\":3,\"error\":\"disk full\"}", "noise: no message"),
        (b"{\"method\":\"GET\",\"path\":\"/\"}", "noise: no message"),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}]", "noise: no object"),
        (b"\xff\xfe", "noise"),
        // Notifications (BaseIntelligence/bounty-challenge#15386,
        // BaseIntelligence/bounty-challenge#12850).
        (br#"{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m"}}"#, "log info m"),
        (br#"{"jsonrpc":"2.0","method":"log","params":{"level":"trace","message":"m\n"}}"#, "log debug m\n"),
        (br#"{"jsonrpc":"2.0","method":"log","params":{"level":"WARNING","message":"m"}}"#, "log warn m"),
        (br#"{"jsonrpc":"2.0","method":"log","params":{"level":7,"message":8}}"#, "log info 8"),
        (br#"{"jsonrpc":"2.0","method":"log","params":{"message":"m"}}"#, "log info m"),
        (br#"{"jsonrpc":"2.0","method":"log","params":["m"]}"#, "log info [\"m\"]"),
        (br#"{"jsonrpc":"2.0","method":"log"}"#, "log info "),
        (br#"{"jsonrpc":"2.0","method":"x.y"}"#, "notification x.y"),
        (br#"{"method":"log","params":{"message":"m"}}"#, "log info m"),
        // Requests, and our own come back.
        (br#"{"jsonrpc":"2.0","id":"a","method":"x.y"}"#, "request \"a\" x.y"),
        (br#"{"jsonrpc":"2.0","id":7,"method":"execute","params":{}}"#, "echo"),
        (br#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}"#, "echo"),
        (br#"{"jsonrpc":"2.0","id":5,"method":"shutdown","params":{}}"#, "echo"),
        (br#"{"jsonrpc":"2.0","id":1,"method":"execute"}"#, "request 1 execute"),
        (br#"{"jsonrpc":"2.0","id":7,"method":"x.y"}"#, "request 7 x.y"),
        (br#"{"id":"a","method":"x.y"}"#, "noise: no message"),
        (br#"{"id":7,"method":"execute","params":{}}"#, "noise: no message"),
        // Replies.
        (br#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "7 result {}"),
        (br#"{"result":{"id":8},"id":7,"jsonrpc":"2.0"}"#, "7 result {\"id\":8}"),
        (br#"{"jsonrpc":"2.0","id":7,"result":null}"#, "7 result null"),
        (br#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#, "7 result {}"),
        (br#"{"jsonrpc":"2.0","id":7,"result":null,"error":{"code":-1,"message":"m"}}"#, "7 error Some(-1) m"),
        (br#"{"jsonrpc":"2.0","id":7.0,"result":1}"#, "7 result 1"),
        (br#"{"jsonrpc":"2.0","id":"7","result":1}"#, "7 result 1"),
        (br#"{"jsonrpc":"2.0","id":7,"error":null}"#, "7 invalid the reply has neither a result nor an error"),
        // Late, or nobody's.
        (br#"{"jsonrpc":"2.0","id":5,"result":{}}"#, "late 5"),
        (br#"{"jsonrpc":"2.0","id":1,"result":{"name":"old"}}"#, "foreign 1"),
        (br#"{"jsonrpc":"2.0","id":7.5,"result":{}}"#, "foreign 7.5"),
        (br#"{"jsonrpc":"2.0","id":null,"result":{}}"#, "foreign null"),
        (br#"{"jsonrpc":"2.0","id":4294967303,"result":{}}"#, "foreign 4294967303"),
        (br#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#, "foreign \"x\""),
        // Text glued to the message (anomalyco/opencode#17282, logancyang/obsidian-copilot#2876).
        (b"\x1b]0;dev: ready\x07{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}", "7 result 1 | \x1b]0;dev: ready\x07"),
        (b"\x1b[2K\r{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}", "7 result 1 | \x1b[2K\r"),
        (b"Booting v1.2...{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}", "7 result 1 | Booting v1.2..."),
        (b"\0\0\xf8{ \"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}", "7 result 1 | \0\0\u{fffd}"),
        (b"{config} {\"a\":1} {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}", "7 result 1 | {config} {\"a\":1} "),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}done", "7 result 1 | done"),
        (b"boot{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}\x1b[0m", "7 result 1 | boot | \x1b[0m"),
        // A reply at the beginning of the line counts without jsonrpc, and whatever follows it.
        (b"{\"id\":7,\"result\":1}done", "7 result 1 | done"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1},", "7 result 1 | ,"),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":1}",
            "7 result 1 | {\"jsonrpc\":\"2.0\",\"id\":8,\"result\":1}",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"par{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}",
            "7 result 1 | {\"jsonrpc\":\"2.0\",\"method\":\"log\",\"par",
        ),
        // Not out of the middle of something else, and not without jsonrpc.
        (b"x\":{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}}", "noise"),
        (b"status {\"id\":7,\"result\":1}", "noise"),
        // Errors that name no request (helidon-io/helidon-mcp#65, zawatton/anvil.el#35).
        (
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
            "unaddressed None Some(-32700) Parse error",
        ),
        (br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"p"}}"#, "unaddressed None Some(-32700) p"),
        (br#"{"jsonrpc":"2.0","error":"p"}"#, "unaddressed None None p"),
        // Reports: zonemaster/zonemaster-backend#431.
        (br#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"m"}}"#, "7 error Some(-32601) m"),
        (br#"{"jsonrpc":"2.0","id":7,"error":{"code":"-32601","message":"m"}}"#, "7 error Some(-32601) m"),
        (br#"{"jsonrpc":"2.0","id":7,"error":"text"}"#, "7 error None text"),
        (br#"{"jsonrpc":"2.0","id":7,"error":-32601}"#, "7 error Some(-32601) -32601"),
        (
            br#"{"jsonrpc":"2.0","id":7,"error":{"code":1.5,"message":""}}"#,
            "7 error None {\"code\":1.5,\"message\":\"\"}",
        ),
        (br#"{"jsonrpc":"2.0","id":7,"error":{"code":"E","data":"why"}}"#, "7 error None why"),
        (br#"{"jsonrpc":"2.0","id":7,"error":{}}"#, "7 error None {}"),
        (br#"{"jsonrpc":"2.0","id":7,"error":["a"]}"#, "7 error None [\"a\"]"),
        // cesanta/mjson.
        (br#"{"id":7,"result":5}"#, "7 result 5"),
        (
            br#"{"error":{"code":-32700,"message":"{\"jsonrpc\":..."}}"#,
            "unaddressed None Some(-32700) {\"jsonrpc\":...",
        ),
        (br#"{"id":null,"error":{"code":-32700,"message":"m"}}"#, "unaddressed None Some(-32700) m"),
        (br#"{"jsonrpc":"1.0","id":7,"result":5}"#, "7 result 5"),
        (br#"{"jsonrpc":2.0,"id":7,"result":5}"#, "7 result 5"),
        // A damaged notification or request fails no call, whatever ids are in it.
        (
            br#"{"jsonrpc":"2.0","method":"log","params":{"id":7,"data":{"id":7,"t":NaN}}}"#,
            "broken None not JSON: invalid number at byte 68 (NaN)",
        ),
        (br#"{"jsonrpc":"2.0","result":{"id":7,"t":NaN}}"#, "broken None not JSON: invalid number at byte 38 (NaN)"),
        (b"{\"t\":NaN}", "noise"),
        // An id counts at the top of the damaged object only, wherever other objects and arrays end.
        (
            br#"{"jsonrpc":"2.0","result":{"a":[1]},"id":7,"t":NaN}"#,
            "broken Some(7) not JSON: invalid number at byte 47 (NaN)",
        ),
        (
            br#"{"jsonrpc":"2.0","result":"a\",\"id\":8","id":7,"t":NaN}"#,
            "broken Some(7) not JSON: invalid number at byte 52 (NaN)",
        ),
        // The outermost message is the damaged one, and without jsonrpc text before it makes it noise.
        (
            br#"{"jsonrpc":"2.0","id":7,"result":{"jsonrpc":"2.0","id":8,"t":NaN}}"#,
            "broken Some(7) not JSON: invalid number at byte 61 (NaN)",
        ),
        (b"boot{\"id\":7,\"t\":NaN}", "noise"),
        // The first one counts: behind the fault, where an object ends is a guess.
        (
            br#"{"jsonrpc":"2.0","id":7,"result":{"t":[NaN]],"id":8}}"#,
            "broken Some(7) not JSON: invalid number at byte 39 (NaN)",
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"execute","params":{"t":NaN}}"#,
            "broken None not JSON: invalid number at byte 57 (NaN)",
        ),
        (br#"{"jsonrpc":"2.0","t":NaN} {"id":7}"#, "broken None not JSON: invalid number at byte 21 (NaN)"),
        (br#"{"jsonrpc":"2.0","t":NaN] {"id":7}"#, "broken None not JSON: invalid number at byte 21 (NaN)"),
        // Cut off at the end of the stream (yc-software/qm#1034, BYVoid/OpenCC#1201).
        (
            br#"{"jsonrpc":"2.0","id":7,"res"#,
            "broken Some(7) not JSON: the line ends inside a value; a message must be complete and on one line at byte 28",
        ),
        // Reports: theoriclabs/LeanDB#57, sysprog21/zhtw-mcp#7.
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xbd\"}", "broken Some(7) not JSON: not UTF-8 at byte 34"),
        (b"{\"jsonrpc\":\"2.0\",\"result\":\"\xbd\",\"id\":7}", "broken Some(7) not JSON: not UTF-8 at byte 27"),
        (b"boot{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xbd\"}", "broken Some(7) not JSON: not UTF-8 at byte 34"),
    ];
    for (line, expected) in table {
        let mut client = client(5..=8);
        client.forget(5);
        client.forget(6);
        assert_eq!(&told(&mut client, line), expected, "{}", String::from_utf8_lossy(line));
    }
}

#[test]
fn almost_json_fails_the_call_it_names() {
    // Within a reply to call 7 (apify/apify-client-python#87, flop-labs/technocore-chat#90).
    for fault in [
        "NaN",
        "-Infinity",
        "Infinity",
        "+1",
        "01",
        ".5",
        "1.",
        "0x10",
        "'a'",
        "{a:1}",
        "[1,]",
        "// c\n1",
        "tRue",
        "\"\t\"",
        "\"\\x\"",
        "",
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"t":{fault}}}}}"#);
        let told = told(&mut client(7..=8), line.as_bytes());
        assert!(told.starts_with("broken Some(7) not JSON: "), "{line}: {told}");
    }
    for (fault, named) in
        [("NaN", "(NaN)"), ("-Infinity", "(-Infinity)"), ("tRue", "(tRue)"), ("01", "(01)"), ("0x10", "(0x10)")]
    {
        let line = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"t":{fault}}}}}"#);
        let told = told(&mut client(7..=7), line.as_bytes());
        assert!(told.ends_with(named), "{line}: {told}");
    }
    // Reports: antirez/ds4#43, oatpp/oatpp#1109.
    let deep = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(told(&mut client(7..=7), deep.as_bytes()).starts_with("broken Some(7) not JSON: nesting deeper than 128"));
}

#[test]
fn an_error_without_id_is_about_the_only_call_that_is_out() {
    let line = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"p"}}"#;
    assert_eq!(told(&mut client(7..=7), line), "unaddressed Some(7) Some(-32700) p");
    assert_eq!(told(&mut client(7..=8), line), "unaddressed None Some(-32700) p");
    assert_eq!(told(&mut ClientSession::new(0), line), "unaddressed None Some(-32700) p");
    let mut client = client(7..=7);
    told(&mut client, line);
    assert!(client.is_pending(7));
    client.forget(7);
    assert_eq!(told(&mut client, br#"{"jsonrpc":"2.0","id":7,"result":1}"#), "late 7");
}

#[test]
fn one_reply_a_call() {
    let mut client = client(7..=8);
    let reply = br#"{"jsonrpc":"2.0","id":7,"result":1}"#;
    assert_eq!(told(&mut client, reply), "7 result 1");
    assert_eq!(told(&mut client, reply), "late 7");
    assert!(client.is_pending(8));
    client.reset();
    assert_eq!(told(&mut client, br#"{"jsonrpc":"2.0","id":8,"result":1}"#), "late 8");
}

#[test]
fn multi_line_json_is_named() {
    // By whatever the peer indents with, and in whatever order (ndjson/ndjson-spec#1,
    // BaseIntelligence/bounty-challenge#4400).
    let texts = [
        "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 7,\n  \"result\": {\n    \"success\": true\n  }\n}",
        "{\n\t\"id\": 7,\n\t\"jsonrpc\": \"2.0\",\n\t\"result\": {}\n}",
        "{\n\"error\" : {\n\"code\":1\n},\n\"id\" :7,\n\"jsonrpc\":\"2.0\"}",
        "{\"jsonrpc\": \"2.0\", \"id\": 7,\n \"result\": {}}",
        "{\"jsonrpc\": \"2.0\", \"id\": 7, \"result\": {\n}}",
        "{ \"jsonrpc\": \"2.0\",\n  \"id\": 7,\n  \"result\": {} }",
    ];
    for text in texts {
        let mut client = client(7..=8);
        let told: Vec<_> = text.lines().map(|line| told(&mut client, line.as_bytes())).collect();
        let named = "broken Some(7) multi-line JSON: a message must be on one line";
        assert_eq!(told.iter().filter(|told| *told == named).count(), 1, "{told:?}");
        assert!(!client.is_pending(7) && client.is_pending(8));
    }
    // A log that is spread over lines fails nobody.
    let mut client = client(7..=7);
    for line in
        ["{", "  \"jsonrpc\": \"2.0\",", "  \"method\": \"log\",", "  \"params\": {", "    \"id\": 7", "  }", "}"]
    {
        told(&mut client, line.as_bytes());
    }
    assert!(client.is_pending(7));
}

#[test]
fn a_strict_client_wants_jsonrpc() {
    let mut client = client(7..=8).strict();
    assert_eq!(told(&mut client, br#"{"id":7,"result":5}"#), "7 invalid the reply lacks \"jsonrpc\":\"2.0\"");
    assert_eq!(told(&mut client, br#"{"jsonrpc":"2.0","id":8,"result":5}"#), "8 result 5");
}

#[test]
fn what_is_odd_is_told() {
    const NO_JSONRPC: &str = "the message lacks \"jsonrpc\":\"2.0\"";
    const ID: &str = "the reply's id is not the JSON value that was sent";
    const EXTRA: &str = "there is other text on the message's line";
    let table: &[(&[u8], Anomalies, &[&str])] = &[
        (br#"{"jsonrpc":"2.0","id":7,"result":5}"#, Anomalies::NONE, &[]),
        (br#"{"id":7,"result":5}"#, Anomalies::NO_JSONRPC, &[NO_JSONRPC]),
        (br#"{"id":"7","result":5}"#, Anomalies::NO_JSONRPC.and(Anomalies::ID_REFORMATTED), &[NO_JSONRPC, ID]),
        (br#"{"jsonrpc":"2.0","id":7.0,"result":5}"#, Anomalies::ID_REFORMATTED, &[ID]),
        (br#"x{"jsonrpc":"2.0","id":7,"result":5}"#, Anomalies::EXTRA_TEXT, &[EXTRA]),
        (br#"{"jsonrpc":"2.0","id":7,"result":5}x"#, Anomalies::EXTRA_TEXT, &[EXTRA]),
        (br#"{"id":7,"result":5}x"#, Anomalies::NO_JSONRPC.and(Anomalies::EXTRA_TEXT), &[NO_JSONRPC, EXTRA]),
    ];
    for (line, anomalies, texts) in table {
        let found = client(7..=7).receive(line).anomalies;
        assert_eq!(found, *anomalies);
        assert_eq!(found.texts().collect::<Vec<_>>(), *texts);
    }
    // A set counts each deviation once.
    let both = Anomalies::NO_JSONRPC.and(Anomalies::EXTRA_TEXT);
    assert_eq!(both.and(Anomalies::NO_JSONRPC), both);
    assert!(both.contains(Anomalies::EXTRA_TEXT) && !both.contains(both.and(Anomalies::ID_REFORMATTED)));
}

/// gevals, "Log": the words of other loggers count as the nearest level, and names are read in any case, as by the real host.
#[test]
fn logs_are_read_in_all_forms_that_peers_send() {
    for (params, level, name, message, data) in [
        (r#"{"level":"debug","message":"m","data":{"pod":"n"}}"#, Level::Debug, "debug", "m", r#"{"pod":"n"}"#),
        (r#"{"level":"info","message":"m","data":null}"#, Level::Info, "info", "m", ""),
        (r#"{"level":"w\u0061rn","message":"m","data":[1]}"#, Level::Warn, "warn", "m", "[1]"),
        (r#"{"LEVEL":"Error","Message":"m","dATA":1}"#, Level::Error, "Error", "m", "1"),
        (r#"{"Level":"info","level":"warn","message":"m"}"#, Level::Warn, "warn", "m", ""),
        (r#"{"l\u0065vel":"trace","\u004dessage":"m"}"#, Level::Debug, "trace", "m", ""),
        (r#"{"levels":"error","message":null}"#, Level::Info, "", "", ""),
        (r#"{"level":"VERBOSE"}"#, Level::Debug, "VERBOSE", "", ""),
        (r#"{"level":"warning"}"#, Level::Warn, "warning", "", ""),
        (r#"{"level":"err"}"#, Level::Error, "err", "", ""),
        (r#"{"level":"fatal"}"#, Level::Error, "fatal", "", ""),
        (r#"{"level":"critical"}"#, Level::Error, "critical", "", ""),
        (r#"{"level":"panic"}"#, Level::Error, "panic", "", ""),
        (r#"{"level":"errors"}"#, Level::Info, "errors", "", ""),
        (r#"{"level":""}"#, Level::Info, "", "", ""),
        (r#"{"level":3,"message":{"a":1}}"#, Level::Info, "3", r#"{"a":1}"#, ""),
        (r#""text""#, Level::Info, "", "text", ""),
        (r#"["level","data"]"#, Level::Info, "", r#"["level","data"]"#, ""),
        ("null", Level::Info, "", "", ""),
    ] {
        let log = Log::of_params(Json::parse(params.as_bytes()).unwrap());
        let found = (
            log.level(),
            log.level_name().map(|name| name.to_string()).unwrap_or_default(),
            log.message().to_string(),
            log.data().map(|data| data.to_string()).unwrap_or_default(),
        );
        assert_eq!(found, (level, name.to_owned(), message.to_owned(), data.to_owned()), "{params}");
    }
}

/// JSON-RPC 2.0 §5.1, and what real peers send for it.
#[test]
fn errors_are_read_in_all_forms_that_peers_send() {
    for (error, code, message, data) in [
        (r#"{"code":-32000,"message":"m","data":{"path":"p"}}"#, Some(-32000), "m", r#"{"path":"p"}"#),
        (r#"{"code":"7","message":"","data":"d"}"#, Some(7), "d", "\"d\""),
        (
            r#"{"code":2147483648,"message":null,"data":null}"#,
            None,
            r#"{"code":2147483648,"message":null,"data":null}"#,
            "null",
        ),
        (r#"{"message":5}"#, None, "5", "null"),
        (r#""text""#, None, "text", "null"),
        ("-5", Some(-5), "-5", "null"),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":7,"error":{error}}}"#);
        let mut client = client(7..=7);
        let Incoming::Reply(reply) = client.receive(line.as_bytes()).incoming else { panic!("{line}") };
        let ReplyBody::Error(read) = reply.body else { panic!("{line}") };
        assert_eq!((read.code(), &*read.message().to_string(), &*read.data().to_string()), (code, message, data));
        assert_eq!(read.json().to_string(), error);
    }
}

#[test]
fn results_of_execute() {
    type Row = (
        &'static str,
        Result<bool, &'static str>,
        &'static str,
        &'static str,
        &'static [(&'static str, &'static str)],
        bool,
    );
    let table: &[Row] = &[
        (r#"{"success":true,"message":"m","outputs":{"a":"1"}}"#, Ok(true), "m", "", &[("a", "1")], false),
        (r#"{"success":false,"message":"m","error":"e"}"#, Ok(false), "m", "e", &[], false),
        // Reports: smart-mcp-proxy/mcpproxy-go#953, kubescape/kubescape#3505.
        (r#"{"success":true,"message":null,"outputs":null,"error":null}"#, Ok(true), "", "", &[], false),
        (
            r#"{"success":true,"outputs":{"n":3,"b":true,"z":null,"f":1.50,"o":{"a":[1, 2]}}}"#,
            Ok(true),
            "",
            "",
            &[("n", "3"), ("b", "true"), ("z", ""), ("f", "1.50"), ("o", "{\"a\":[1, 2]}")],
            false,
        ),
        (r#"{"success":true,"message":5,"outputs":["a"]}"#, Ok(true), "5", "", &[], true),
        (r#"{"Success":true,"MESSAGE":"m"}"#, Ok(true), "m", "", &[], false),
        // The exact name counts, wherever it stands; without one, the last of those in another case.
        (r#"{"success":true,"SUCCESS":false,"Message":"x","message":"m"}"#, Ok(true), "m", "", &[], false),
        (r#"{"Success":false,"success":true,"message":"m","Message":"x"}"#, Ok(true), "m", "", &[], false),
        (r#"{"Success":false,"SUCCESS":true,"m\u0065ssage":"m","Message":"x"}"#, Ok(true), "m", "", &[], false),
        (
            r#"{"\u0053uccess":true,"\u0045RROR":"e","message":"m","Outputs":{"a":1}}"#,
            Ok(true),
            "m",
            "e",
            &[("a", "1")],
            false,
        ),
        // Reports: zonemaster/zonemaster-backend#431.
        (r#"{"message":"m"}"#, Err("the result has no success"), "m", "", &[], false),
        (r#"{"success":null}"#, Err("the result has no success"), "", "", &[], false),
        (r#"{"success":"true"}"#, Err("the result's success is not a boolean"), "", "", &[], false),
        (r#"{"success":1}"#, Err("the result's success is not a boolean"), "", "", &[], false),
        ("null", Err("the result is not an object"), "", "", &[], false),
        ("5", Err("the result is not an object"), "", "", &[], false),
    ];
    for (text, success, message, error, outputs, outputs_are_at_fault) in table {
        let result = ExecuteResult::new(rigline::json::Json::parse(text.as_bytes()).unwrap());
        assert_eq!(result.success(), *success, "{text}");
        let plain =
            |plain: Option<rigline::client::Unquoted<'_>>| plain.map(|plain| plain.to_string()).unwrap_or_default();
        assert_eq!((plain(result.message()).as_str(), plain(result.error()).as_str()), (*message, *error), "{text}");
        let found: Vec<_> = result.outputs().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        assert!(found.iter().map(|(a, b)| (a.as_str(), b.as_str())).eq(outputs.iter().copied()), "{text}: {found:?}");
        assert_eq!(result.outputs_error().is_some(), *outputs_are_at_fault, "{text}");
    }
}

#[test]
fn a_request_of_the_peers_is_refused_with_its_id() {
    let longest = format!("\"{}\"", "x".repeat(MAX_ID - 2));
    let too_long = format!("\"{}\"", "x".repeat(MAX_ID - 1));
    for (id, echoed) in
        [(r#""a\n""#, r#""a\n""#), ("7.50", "7.50"), ("null", "null"), (&*longest, &*longest), (&*too_long, "null")]
    {
        let mut client = ClientSession::new(0);
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling"}}"#);
        let received = client.receive(line.as_bytes());
        let Incoming::Request(request) = received.incoming else { panic!("{received:?}") };
        let mut memory = [0; 600];
        let mut out = Writer::new(&mut memory);
        write_refusal(&request, &mut out);
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":{echoed},"error":{{"code":-32601,"message":"Unknown method: sampling"}}}}"#
        );
        assert_eq!(std::str::from_utf8(out.as_written()).unwrap(), format!("{expected}\n"));
    }
}

#[test]
fn no_bytes_upset_it() {
    use proptest::prelude::*;
    let pieces = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        "\"jsonrpc\":\"2.0\"",
        "\"id\":7",
        "\"id\":",
        "\"result\":",
        "\"error\":",
        "\"method\":\"log\"",
        "\\",
        "\u{feff}",
        "\x1b[0m",
        "NaN",
        "7",
        " ",
        "\0",
        "é",
    ]);
    proptest!(|(pieces in prop::collection::vec(pieces, 0..24), cut in 0_usize..200)| {
        let line = pieces.concat().into_bytes();
        let line = line.get(..cut).unwrap_or(&line);
        let mut client = client(7..=8);
        let mut rest = line;
        // What is given back is always shorter: a caller's loop ends.
        loop {
            let received = client.receive(rest);
            prop_assert!(received.rest.len() < rest.len().max(1));
            if let Incoming::Malformed(broken) = received.incoming {
                let _ = (broken.token(), matches!(broken.fault, MalformedKind::SeveralLines));
            }
            if received.rest.is_empty() { break }
            rest = received.rest;
        }
    });
}
